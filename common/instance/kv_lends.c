/* kv_lends: a ring of what is kept, all for the same time, and a list of what is being lent. */
#include "common/instance/kv_lends.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/instance.h"
#include "common/instance/kv_plane.h"
#include "common/instance/req_set.h"

struct kept_kv {
    char req_id[REQ_ID_BYTES_MAX + 1];
    uint32_t epoch;
    uint64_t until_ms; /* 0: over, or fetched */
};

struct lend {
    struct lend *next, **at;
    struct kv_lends *of;
    struct infer_req *req;
    struct req_seq *seq;
};

struct kv_lends {
    struct instance *in;
    struct kept_kv *kept; /* [KV_KEPT_MAX] a ring, oldest at first */
    size_t first, n;
    struct lend *lends;
    unsigned n_lends;
    struct loop_alarm due; /* the oldest is over */
};

static struct kept_kv *at(struct kv_lends *l, size_t i) {
    return &l->kept[(l->first + i) % KV_KEPT_MAX];
}

/* Forgets what is over, oldest first, and counts what is not; what is being lent is a lease until
 * that ends, whatever becomes of the word to keep it. */
static void look(void *arg) {
    struct kv_lends *l = arg;
    const uint64_t now = clock_ms();
    unsigned n_kept = l->n_lends;
    while (l->n > 0 && at(l, 0)->until_ms <= now) {
        l->first = (l->first + 1) % KV_KEPT_MAX;
        l->n--;
    }
    uint64_t next_ms = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct kept_kv *k = at(l, i);
        if (k->until_ms <= now) continue;
        n_kept++;
        if (next_ms == 0) next_ms = k->until_ms;
    }
    req_set_seqs(instance_reqs(l->in))->n_kept = n_kept;
    if (next_ms != 0) loop_alarm_set(instance_loop(l->in), &l->due, next_ms - now, look, l);
}

/* The newest that is kept of the request. */
static struct kept_kv *find(struct kv_lends *l, const char *req_id) {
    for (size_t i = l->n; i > 0; i--)
        if (strcmp(at(l, i - 1)->req_id, req_id) == 0) return at(l, i - 1);
    return NULL;
}

void kv_lends_keep(struct kv_lends *l, const char *req_id, uint32_t epoch) {
    if (l == NULL || strlen(req_id) > REQ_ID_BYTES_MAX) return;
    if (l->n == KV_KEPT_MAX) {
        l->first = (l->first + 1) % KV_KEPT_MAX;
        l->n--;
    }
    struct kept_kv *old = find(l, req_id);
    if (old != NULL) old->until_ms = 0;
    struct kept_kv *k = at(l, l->n++);
    *k = (struct kept_kv){.epoch = epoch, .until_ms = clock_ms() + KV_KEEP_MS};
    strcpy(k->req_id, req_id);
    look(l);
}

/* ---- lending */

static void lend_end(struct lend *d, enum err e, const char *text, uint64_t bytes) {
    struct kv_lends *l = d->of;
    const struct infer_head *h = &d->req->head;
    struct kept_kv *k = find(l, h->req_id);
    log_info("kv_lends", "req=%s epoch=%u part=%u event=%s bytes=%llu err=%s text=\"%s\"",
             h->req_id, h->epoch, h->part, e == ERR_OK ? "lent" : "not_lent",
             (unsigned long long)bytes, err_name(e), text);
    if (k != NULL && e == ERR_OK && h->n_parts == 1) k->until_ms = 0;
    req_seq_drop(&d->seq, e == ERR_OK ? ERR_CANCELLED : e, text);
    infer_req_destroy(&d->req);
    *d->at = d->next;
    if (d->next != NULL) d->next->at = d->at;
    l->n_lends--;
    free(d);
    look(l);
}

static void on_admitted(void *arg, const int32_t *table, int n_blocks, int n_held, int n_cached) {
    struct lend *d = arg;
    (void)n_held, (void)n_cached;
    enum err e = req_seq_lend(d->seq, table, n_blocks);
    if (e != ERR_OK) lend_end(d, e, err_text(e), 0);
}

static void on_refused(void *arg, enum err e, const char *text) {
    lend_end(arg, e, text, 0);
}

static void on_failed(void *arg, enum err e) {
    lend_end(arg, e, err_text(e), 0);
}

static void on_sent(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    lend_end(arg, e, text, st->bytes);
}

static const struct req_seq_owner owner = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_failed = on_failed,
    .on_sent = on_sent,
};

/* Why nothing is lent for it; NULL: it may be. */
static const char *reason_to_decline(struct kv_lends *l, const struct infer_req *req) {
    const struct infer_head *h = &req->head;
    const struct kept_kv *k = find(l, h->req_id);
    /* The word to stop it may still be on its way. */
    if (req_set_has_older(instance_reqs(l->in), ROLE_DECODE, h->req_id, h->epoch)) return NULL;
    const bool is_here =
        req_set_has_older(instance_reqs(l->in), ROLE_DECODE, h->req_id, UINT32_MAX);
    if (k == NULL && h->epoch == 0 && !is_here) return NULL; /* of a conversation's next turn */
    if (k == NULL || k->until_ms <= clock_ms()) return "nothing is kept of the request";
    if (h->epoch <= k->epoch) return "the attempt is no newer than the one that was stopped";
    return NULL;
}

static void on_fetch(void *arg, struct kv_peer *peer, struct kv_tx *tx, struct infer_req *req,
                     uint32_t n_blocks) {
    struct kv_lends *l = arg;
    struct errbuf eb = {0};
    enum err e = ERR_NOT_FOUND;
    const char *why = reason_to_decline(l, req);
    struct lend *d = why == NULL ? calloc(1, sizeof(*d)) : NULL;
    if (d != NULL)
        d->seq = req_seq_open(req_set_seqs(instance_reqs(l->in)), instance_worker(l->in),
                              instance_endpoint(l->in), &owner, d);
    log_debug("kv_lends", "req=%s epoch=%u part=%u event=asked by=%u blocks=%u", req->head.req_id,
              req->head.epoch, req->head.part, kv_peer_id(peer), n_blocks);
    if (d == NULL || d->seq == NULL) {
        if (why == NULL) e = ERR_NO_MEMORY;
        kv_tx_decline(&tx, e, why != NULL ? why : err_text(e));
        infer_req_destroy(&req);
        free(d);
        return;
    }
    d->of = l;
    d->req = req;
    d->next = l->lends;
    d->at = &l->lends;
    if (d->next != NULL) d->next->at = &d->next;
    l->lends = d;
    l->n_lends++;
    look(l);
    req_seq_take_fetch(d->seq, tx);
    e = req_seq_add(d->seq, SEQ_LEND, req, &eb);
    if (e != ERR_OK) lend_end(d, e, eb.text[0] != '\0' ? eb.text : err_text(e), 0);
}

/* ---- life */

enum err kv_lends_create(struct kv_lends **out, struct instance *in) {
    struct kv_lends *l = calloc(1, sizeof(*l));
    *out = NULL;
    if (l == NULL || (l->kept = calloc(KV_KEPT_MAX, sizeof(*l->kept))) == NULL) {
        free(l);
        return ERR_NO_MEMORY;
    }
    l->in = in;
    kv_plane_on_fetch(instance_kv_plane(in), on_fetch, l);
    *out = l;
    return ERR_OK;
}

void kv_lends_destroy(struct kv_lends **lp) {
    struct kv_lends *l = *lp;
    if (l == NULL) return;
    *lp = NULL;
    kv_plane_on_fetch(instance_kv_plane(l->in), NULL, NULL);
    while (l->lends != NULL) lend_end(l->lends, ERR_STOPPING, err_text(ERR_STOPPING), 0);
    loop_alarm_stop(&l->due);
    req_set_seqs(instance_reqs(l->in))->n_kept = 0;
    free(l->kept);
    free(l);
}
