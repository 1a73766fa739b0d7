/* dispatch: how a request finds its handler on a listener, the same for every daemon: inference
 * paths (proto/api.h) first, then route tables; 404, 405 with Allow, OPTIONS, the body limit of a
 * path. Thread: the loop thread. */
#ifndef BATON_NET_DISPATCH_H
#define BATON_NET_DISPATCH_H

#include "common/net/api_keys.h"
#include "common/net/http_server.h"
#include "common/net/router.h"
#include "proto/api.h"

struct dispatch {
    const struct route *const *tables; /* handlers get arg */
    size_t body_bytes_max;             /* of inference; a row's own limit is cut to it */
    const char *cors_origin;           /* cors.h */
    const char *not_found;             /* text of a 404 */
    /* What requests on the data plane must show, but for health, /docs and CORS questions; without:
     * 401 in OpenAI's shape (inference-api 2.2). NULL: nothing. */
    const struct api_keys *keys;
    void (*on_infer)(void *arg, struct http_x *x, const struct api_path *path, const char *model);
    void (*reply_error)(void *arg, struct http_x *x, int status, const char *text);
    void *arg;
};

/* planes: the PLANE_* bits of the listener x came in on. */
void dispatch_serve(const struct dispatch *d, unsigned planes, struct http_x *x);
/* For http_server_opts. An unknown path may have a small body, so that it still gets its 404. */
size_t dispatch_body_bytes_max(const struct dispatch *d, unsigned planes, const char *method,
                               const char *path);
/* For http_server_opts: a client that will get 401 need not send its body. */
bool dispatch_wants_body(const struct dispatch *d, unsigned planes, const struct http_x *x);
void dispatch_reply_too_large(const struct dispatch *d, struct http_x *x, size_t body_bytes_max);

#endif
