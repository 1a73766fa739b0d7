/* http_tensors: how an answer with tensors is sent: as JSON, or as JSON with bytes behind it
 * (kserve-runtimes 8.4). */
#ifndef BATON_NET_HTTP_TENSORS_H
#define BATON_NET_HTTP_TENSORS_H

#include "common/net/http_server.h"

/* Replies 200 with body[n], as `json` where it is JSON alone, else as bytes, were there none of
 * them, with the header that says where they begin. Like http_x_reply(). */
void http_tensors_reply(struct http_x *x, const char *json, const char *body, size_t n);

#endif
