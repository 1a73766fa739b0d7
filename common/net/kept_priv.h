/* kept_priv: what the files of kept.h share: kept.c records, kept_ask.c looks before the body,
 * kept_routes.c answers. Not for others. */
#ifndef BATON_NET_KEPT_PRIV_H
#define BATON_NET_KEPT_PRIV_H

#include "common/net/kept.h"

struct kept_dir;

struct kept_service {
    struct kept_store *store;
    struct kept_dir *dir; /* NULL: in memory alone */
    struct budget *budget;
    struct loop_timer *tick;
};

/* A client that follows an answer on its way. */
struct kept_watcher {
    struct kept_watcher *next;
    struct kept_record *of; /* NULL: over */
    struct http_x *x;
};

/* An answer on its way: user of its struct kept. */
struct kept_record {
    struct kept_service *s;
    struct kept *k;
    struct http_x *x; /* NULL: it goes on without one (kept_go_on()) */
    bool cancelled;
    struct kept_watcher *watchers;
    unsigned n_watchers;
};

enum { KEPT_WATCHERS_MAX = 16 }; /* of one answer */

#define KEPT_ID_PREFIX "resp_"

/* "17" of "resp_17". */
const char *kept_number(const struct kept *k);
/* What there is of its events now. */
struct kept_span kept_stream(const struct kept *k);
/* Its response as it stands; n 0: not known yet. */
struct kept_span kept_response(const struct kept *k);
/* Ends what runs as if its client had gone. k may be gone afterwards. */
void kept_cancel(struct kept *k);
/* An error in OpenAI's shape. param, code: NULL: none in particular. */
void kept_reply_error(struct http_x *x, int status, const char *param, const char *code,
                      const char *text);

#endif
