/* cors: lets pages of other origins call an API from a browser (Fetch standard, CORS protocol),
 * when origins are configured. They are a list separated by blanks of
 *   *                     every origin
 *   https://a.example     this one; with a port when it has one, as browsers write it
 *   http://localhost:*    this host with any port, or none
 * Thread: the loop thread, but for cors_origins_ok(), which is pure. */
#ifndef BATON_NET_CORS_H
#define BATON_NET_CORS_H

#include "common/net/http_server.h"

#define CORS_RULE                                                                                  \
    "origins separated by blanks, each *, scheme://host, scheme://host:port or scheme://host:*"

/* Whether a setting is such a list; "" is. */
bool cors_origins_ok(const char *origins);
/* Whether a page of this origin may call. */
bool cors_allows(const char *origins, const char *origin);

/* The headers every answer to x carries then: those that let the page at the other end read it,
 * when its origin is one of origins. Before the answer. */
void cors_set(struct http_x *x, const char *origins);
/* Answers OPTIONS of a path that knows the methods `allow` ("GET, HEAD"): 204. After cors_set(). */
void cors_reply_options(struct http_x *x, const char *origins, const char *allow);

#endif
