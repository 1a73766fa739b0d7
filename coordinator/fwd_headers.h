/* fwd_headers: the headers of a request to an instance: our own, and those of the client that may
 * go on: tracing and the request's id. Nothing else of a client passes. */
#ifndef BATON_COORDINATOR_FWD_HEADERS_H
#define BATON_COORDINATOR_FWD_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include "common/net/http_server.h"

enum { FWD_HEADERS_MAX = 24, FWD_HEADER_BYTES = 1200 };

struct fwd_headers {
    const char *list[FWD_HEADERS_MAX + 1]; /* for http_call_opts; NULL-terminated */
    size_t n;
    char lines[FWD_HEADERS_MAX][FWD_HEADER_BYTES];
};

void fwd_headers_init(struct fwd_headers *h);
/* Left out when it is too long or there is no room. */
void fwd_headers_add(struct fwd_headers *h, const char *name, const char *value);
/* traceparent, tracestate, b3, X-B3-* as the client sent them, and X-Request-Id. traceparent: the
 * coordinator's own in place of the client's; NULL: there is none. */
void fwd_headers_add_trace(struct fwd_headers *h, struct http_x *x, const char *traceparent);

/* Content-Type, and what else says how the body of x is to be read. */
struct api_path;
void fwd_headers_add_framing(struct fwd_headers *h, struct http_x *x, const struct api_path *path);

/* The path as a request line has it: everything but unreserved characters (RFC 3986) escaped, so
 * that a model's name cannot become a query or another path. False: too long. */
bool fwd_path_put(char *dst, size_t cap, const char *path);

#endif
