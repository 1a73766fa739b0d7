/* kept: answers that the process which serves the client keeps, and what clients ask of them
 * (OpenAI's Responses, client-apis 1.4, 1.9, 7.4): a coordinator, or an instance alone. It reads
 * along with answers on their way out (http_x_tap()), so it does not matter who makes them, nor
 * whether the one that made an earlier answer is still there; what an instance needs of earlier
 * answers goes with the body ("baton-context": docs/wire-context.md).
 *
 * Thread: the loop thread. */
#ifndef BATON_NET_KEPT_H
#define BATON_NET_KEPT_H

#include "common/base/limits_conf.h"
#include "common/net/http_server.h"
#include "common/net/kept_json.h"
#include "common/net/kept_store.h"
#include "proto/api.h"

struct kept_service;

/* Sets the limits of the budget's rows; dir: kept_dir.h, "" where answers are kept in memory alone.
 * ERR_BAD_CONFIG: the folder cannot be used; eb names it. */
enum err kept_service_create(struct kept_service **out, struct loop *loop,
                             const struct limits_conf *limits, const char *dir,
                             struct budget *budget, struct errbuf *eb);
void kept_service_destroy(struct kept_service **s); /* after the listeners are closed */

/* What a request on a path that is `chained` has to do with other answers. */
struct kept_ask {
    bool store;
    char previous[KEPT_ID_BYTES]; /* "": none */
    struct kept_span input;       /* of x's body */
    struct buf context;           /* for the instance; empty: nothing lies before the body */
    uint64_t counted;             /* BUDGET_BODY_BYTES, while the context is there */
};
/* False: x is answered, for what it goes on behind is not there. */
bool kept_ask_read(struct kept_service *s, struct http_x *x, struct kept_ask *out);
void kept_ask_free(struct kept_service *s, struct kept_ask *a);
/* The answer to x will be that of this request: it is kept as it goes out, if a.store. req_id: as
 * its id names it. */
void kept_record(struct kept_service *s, struct http_x *x, const struct kept_ask *a,
                 const char *req_id);

/* The exchange of that record ends, and the answer goes on without it, for a client that may come
 * back: its maker says what more there is of it, and its end. Nothing where nothing is recorded.
 * stream: as the answer's. False: it was cancelled, and goes on for nobody. */
bool kept_go_on(struct kept_service *s, const char *tenant, const char *req_id, bool stream);
void kept_more(struct kept_service *s, const char *tenant, const char *req_id, const char *p,
               size_t n);
void kept_end(struct kept_service *s, const char *tenant, const char *req_id, bool whole);

/* Answers a request on a path of API_KEPT. */
void kept_serve(struct kept_service *s, struct http_x *x, const struct api_path *path,
                const char *id);

#endif
