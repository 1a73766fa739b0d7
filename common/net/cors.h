/* cors: lets pages of other origins call an API from a browser (Fetch standard, CORS protocol),
 * when an origin is configured: one origin, or "*". Thread: the loop thread. */
#ifndef BATON_NET_CORS_H
#define BATON_NET_CORS_H

#include "common/net/http_server.h"

/* The header every answer to x carries then. origin "": none. Before the answer. */
void cors_set(struct http_x *x, const char *origin);
/* Answers OPTIONS of a path that knows the methods `allow` ("GET, HEAD"): 204. */
void cors_reply_options(struct http_x *x, const char *origin, const char *allow);

#endif
