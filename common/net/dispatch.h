/* dispatch: how a request finds its handler on a listener, the same for every daemon: the paths of
 * the user plane (proto/api.h) first, then route tables; 404, 405 with Allow, OPTIONS, the body
 * limit of a path. A client whose certificate is limited (tls.h) gets 403 but for rows of
 * PLANE_LIMITED. Thread: the loop thread. */
#ifndef BATON_NET_DISPATCH_H
#define BATON_NET_DISPATCH_H

#include "common/net/api_keys.h"
#include "common/net/http_server.h"
#include "common/net/router.h"
#include "proto/api.h"

struct dispatch {
    const struct route *const *tables; /* handlers get arg */
    size_t body_bytes_max;             /* of inference; a row's own limit is cut to it */
    size_t beside_bytes_max;           /* that a coordinator may send beside a body of inference,
                                        * who reads it checks that the body keeps its own limit */
    const char *cors_origin;           /* cors.h */
    const char *not_found;             /* text of a 404; NULL: one that names paths nearby */
    /* What requests on the data plane must show, but for rows with PLANE_OPEN and CORS questions;
     * without: 401 in OpenAI's shape (inference-api 2.2), or that of the path's family where
     * error_style is OpenAI's. NULL: nothing. */
    struct api_keys *keys;
    enum error_style error_style;
    /* Names that planes without PLANE_DATA may be spoken to by, beside literals and localhost
     * (origin.h); others get 403. With TLS the certificate has the say over Host. */
    const char *management_hosts;
    struct budget *budget; /* NULL: refusals are not counted */
    /* Where a browser that opens the root is sent: to what on the data plane, and elsewhere; it may
     * show no key for that. NULL: it gets what others get. */
    const char *data_page, *page;
    /* Calls of gRPC that a coordinator passes on come here as ordinary requests; without they are
     * foreign. */
    bool passed_on;
    /* Asked before anything is served; row: of a route table, or NULL. True: it has answered x.
     * NULL: nobody is asked. */
    bool (*refuses)(void *arg, struct http_x *x, const struct route *row);
    void (*on_path)(void *arg, struct http_x *x, const struct api_path *path, const char *model);
    void (*reply_error)(void *arg, struct http_x *x, int status, const char *text);
    void (*reply_unknown_path)(void *arg, struct http_x *x, const char *text); /* 404 */
    void *arg;
};

/* A listener whose requests go this way. */
struct dispatch_listener {
    struct dispatch d;
    unsigned planes; /* PLANE_* bits; more may be added while it listens */
    bool has_tls;
    struct http_server *server;
};

/* Opens *l with o, whose callbacks are set here; d's pointers and *l must stay until
 * http_server_close(&l->server). Errors: those of http_server_open(). */
enum err dispatch_listen(struct dispatch_listener *l, struct loop *loop, const struct dispatch *d,
                         unsigned planes, const struct http_server_opts *o, struct errbuf *eb);

#endif
