/* decode_admit: offers, room, and the end of a request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/lora.h"
#include "common/instance/req_trace.h"
#include "decode/decode_req.h"

enum {
    QUEUE_FULL_RETRY_MS = 5, /* the text pool has not begun its jobs yet */
    CROWD_RETRY_MS = 500,    /* thousands wait here already */
    SILENT_MS = 5000,        /* P offers a busy part again within a second, so it has given up */
};

/* ---- the newest attempts */

static struct recent *find_recent(struct decode *role, const char *req_id) {
    size_t n = role->n_recent < RECENT_MAX ? role->n_recent : RECENT_MAX;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(role->recent[i].req_id, req_id) == 0) return &role->recent[i];
    }
    return NULL;
}

static bool note_attempt(struct decode *role, const struct infer_req *req) {
    struct recent *r = find_recent(role, req->head.req_id);
    if (r == NULL) {
        char *copy = strdup(req->head.req_id);
        if (copy == NULL) return false;
        r = &role->recent[role->n_recent++ % RECENT_MAX];
        free(r->req_id);
        r->req_id = copy;
    }
    r->over = r->over && r->epoch == req->head.epoch;
    r->epoch = req->head.epoch;
    return true;
}

/* ---- the end */

void dreq_free(struct dreq *d) {
    answer_destroy(&d->answer);
    for (uint32_t i = 0; i < d->n_parts; i++) {
        kv_commit_free(&d->parts[i].commit);
        infer_req_destroy(&d->parts[i].req);
        free(d->parts[i].early);
    }
    buf_free(&d->out);
    free(d->tokens);
    free(d);
}

void dreq_drop(struct dreq *d, enum err why, const char *text) {
    struct decode *role = d->role;
    req_end(&d->of, REQ_CANCELLED, "dropped", "why=\"%s\"", text); /* unless it ended otherwise */
    struct recent *r =
        d->n_parts > 1 && why != ERR_BUSY ? find_recent(role, d->req->head.req_id) : NULL;
    if (r != NULL && r->epoch == d->req->head.epoch) r->over = true;
    dresult_out_forget(instance_dresult(role->in), d->req->head.req_id, d->req->head.epoch);
    for (uint32_t i = 0; i < d->n_parts; i++) {
        struct dpart *part = &d->parts[i];
        dpart_unqueue(part);
        guide_job_cancel(&part->guiding);
        req_seq_drop(&part->seq, why, text);
    }
    d->role = NULL;
    if (!d->working || answer_job_cancel(&d->job)) dreq_free(d); /* or on_replayed() does */
}

/* Parts P still works on: offered to us, and not here yet. */
static bool any_under_way(const struct dreq *d) {
    for (uint32_t i = 0; i < d->n_parts; i++)
        if (d->parts[i].seq != NULL && req_seq_is_linked(d->parts[i].seq)) return true;
    return false;
}

bool dreq_forgotten(const struct dreq *d, uint64_t now_ms) {
    if (d->n_committed == d->n_parts) return false;
    if (d->here)
        return !req_set_has(instance_reqs(d->role->in), ROLE_PREFILL, d->of.id, d->of.epoch);
    return !any_under_way(d) && now_ms >= d->offer_ms + SILENT_MS;
}

/* ---- the transfer */

static void on_received(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct dpart *part = arg;
    struct dreq *d = part->d;
    if (e == ERR_OK) {
        dpart_start(part, c);
        return;
    }
    /* Before the commit the request is P's: whoever asked P hears of it there. */
    req_meters_transfer_failed(instance_meters(d->role->in), e);
    log_info("decode", "req=%s epoch=%u event=import_ended err=%s text=\"%s\" %s",
             d->req->head.req_id, d->req->head.epoch, err_name(e), text, req_trace_fields(d->req));
    dreq_drop(d, e, text);
}

/* ---- the engine */

static void on_admitted(void *arg, const int32_t *table, int n_blocks, int n_held, int n_cached) {
    struct dpart *part = arg;
    struct decode *role = part->d->role;
    (void)n_cached;
    (void)dpart_tried(part, false);
    enum err e = req_seq_grant(part->seq, table, n_blocks, n_held);
    if (e != ERR_OK) dreq_drop(part->d, e, err_text(e));
    decode_look(role);
}

/* Too much waits here: P asks again. The other parts keep what they have. */
static void part_busy(struct dpart *part, unsigned retry_ms) {
    struct dreq *d = part->d;
    req_seq_send_away(&part->seq, retry_ms);
    d->offer_ms = clock_ms();
    if (d->n_committed == 0 && !any_under_way(d)) dreq_drop(d, ERR_BUSY, "no room");
}

static void on_refused(void *arg, enum err e, const char *text) {
    struct dpart *part = arg;
    if (e != ERR_BUSY) {
        req_seq_drop(&part->seq, e, text); /* first: P is told why of the part it is about */
        dreq_drop(part->d, e, text);
    } else if (!dpart_tried(part, true)) {
        part_busy(part, CROWD_RETRY_MS);
    }
}

static const struct req_seq_owner owner = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = dpart_on_token,
    .on_failed = dpart_on_failed,
    .on_received = on_received,
};

/* ---- offers */

static struct dreq *find_req(struct decode *role, const char *req_id) {
    return (struct dreq *)req_set_find(instance_reqs(role->in), &decode_kind, req_id);
}

/* Whether req is a part of d that is not here: never offered, or sent away for want of room. */
static bool is_missing_part(const struct dreq *d, const struct infer_req *req) {
    if (req->head.epoch != d->req->head.epoch || req->head.n_parts != d->n_parts ||
        req->head.part >= d->n_parts)
        return false;
    const struct dpart *part = &d->parts[req->head.part];
    return !part->committed && part->seq == NULL;
}

/* Why this attempt is not taken; NULL: it may be. A newer attempt ends the one that runs. */
static const char *reason_to_refuse(struct decode *role, const struct infer_req *req,
                                    enum err *code) {
    *code = ERR_CONFLICT;
    struct recent *r = find_recent(role, req->head.req_id);
    if (r != NULL && req->head.epoch < r->epoch) return "a newer attempt of the request was seen";
    if (r != NULL && req->head.epoch == r->epoch && r->over)
        return "this attempt of the request has ended already";
    struct dreq *d = find_req(role, req->head.req_id);
    if (d != NULL && req->head.epoch <= d->req->head.epoch)
        return is_missing_part(d, req) ? NULL : "this attempt of the request is running already";
    if (d != NULL) {
        log_info("decode", "req=%s event=replaced epoch=%u by=%u", req->head.req_id,
                 d->req->head.epoch, req->head.epoch);
        dreq_drop(d, ERR_CANCELLED, "a newer attempt takes its place");
    }
    if (!note_attempt(role, req)) {
        *code = ERR_NO_MEMORY;
        return err_text(ERR_NO_MEMORY);
    }
    return NULL;
}

/* What all parts have in common is read from this one. */
static void name_by(struct dreq *d, struct infer_req *req) {
    d->req = req;
    d->of.req = req;
    d->of.id = req->head.req_id;
    d->of.tenant = req->head.tenant;
}

/* The record of the request, new with its first part: then its end has room on the result stream,
 * before anything of it is granted. */
static struct dreq *dreq_of(struct decode *role, struct infer_req *req) {
    struct dreq *d = find_req(role, req->head.req_id);
    if (d != NULL) return d;
    if ((d = calloc(1, sizeof(*d) + req->head.n_parts * sizeof(d->parts[0]))) == NULL) return NULL;
    if (!buf_reserve(&d->out, ANSWER_ERROR_BYTES) ||
        dresult_out_open(instance_dresult(role->in), req->head.req_id, req->head.epoch,
                         dreq_on_room, d) != ERR_OK) {
        buf_free(&d->out);
        free(d);
        return NULL;
    }
    d->role = role;
    d->n_parts = req->head.n_parts;
    for (uint32_t i = 0; i < d->n_parts; i++) d->parts[i].d = d;
    d->of = (struct inst_req){.kind = &decode_kind, .epoch = req->head.epoch};
    name_by(d, req);
    req_begin(instance_reqs(role->in), &d->of);
    return d;
}

/* NULL: no memory, and nothing was taken. */
static struct dpart *take_part(struct dreq *d, struct infer_req *req, struct kv_rx *rx) {
    struct dpart *part = &d->parts[req->head.part];
    struct instance *in = d->role->in;
    part->seq = req_seq_open(req_set_seqs(instance_reqs(in)), instance_worker(in),
                             instance_endpoint(in), &owner, part);
    if (part->seq == NULL) return NULL;
    req_seq_take_offer(part->seq, rx);
    if (d->req == req || d->req == part->req) name_by(d, req);
    infer_req_destroy(&part->req); /* of an offer that found no room */
    part->req = req;
    d->offer_ms = clock_ms();
    return part;
}

enum dpart_entry dpart_enter(struct dpart *part) {
    struct errbuf eb = {0};
    enum err e = req_seq_add(part->seq, SEQ_IMPORT, part->req, &eb);
    if (e == ERR_OK) return DPART_ENTERED;
    if (e == ERR_BUSY) return DPART_QUEUE_FULL;
    on_refused(part, e, eb.text[0] != '\0' ? eb.text : err_text(e));
    return DPART_ENDED;
}

static void on_guide(void *arg, enum err e, struct endpoint_guide *g, const char *text) {
    struct dpart *part = arg;
    part->guiding = NULL;
    if (e != ERR_OK) {
        on_refused(part, e, text);
        return;
    }
    endpoint_guide_keep(part->req, g);
    dpart_queue(part);
}

void decode_on_offer(void *arg, struct kv_peer *peer, struct kv_rx *rx, struct infer_req *req,
                     uint32_t n_blocks) {
    struct decode *role = arg;
    enum err e;
    struct errbuf eb = {0};
    struct lora *lora = NULL;
    const char *why = "The service has been stopped";
    if (instance_stopping(role->in))
        e = ERR_STOPPING;
    else
        why = reason_to_refuse(role, req, &e);
    if (why == NULL && (e = worker_adapter(instance_worker(role->in), req, &lora, &eb)) != ERR_OK)
        why = eb.text;
    lora_unref(&lora); /* only asked for: it is looked up again when the sequence is added */
    struct dreq *d = why == NULL ? dreq_of(role, req) : NULL;
    if (d == NULL) {
        infer_req_destroy(&req);
        kv_rx_refuse(&rx, why != NULL ? e : ERR_NO_MEMORY,
                     why != NULL ? why : err_text(ERR_NO_MEMORY));
        return;
    }
    struct dpart *part = take_part(d, req, rx);
    if (part == NULL) {
        kv_rx_refuse(&rx, ERR_NO_MEMORY, err_text(ERR_NO_MEMORY));
        dreq_drop(d, ERR_NO_MEMORY, err_text(ERR_NO_MEMORY));
        infer_req_destroy(&req);
        return;
    }
    log_debug("decode", "req=%s epoch=%u part=%u event=offered by=%u blocks=%u %s",
              req->head.req_id, req->head.epoch, req->head.part, kv_peer_id(peer), n_blocks,
              req_trace_fields(req));
    if (role->n_waiting >= WAITING_MAX) {
        part_busy(part, CROWD_RETRY_MS);
        return;
    }
    if (req->guide == NULL) {
        dpart_queue(part);
        return;
    }
    e = guide_job_start(&part->guiding, role->in, req->head.tenant, req->guide, on_guide, part);
    if (e == ERR_BUSY)
        part_busy(part, QUEUE_FULL_RETRY_MS);
    else if (e != ERR_OK)
        on_refused(part, e, err_text(e));
}

enum err decode_take(void *self, struct infer_req **req, struct req_seq **seq, struct kv_commit *c,
                     struct errbuf *eb) {
    struct decode *role = self;
    enum err e = ERR_NO_MEMORY;
    const char *why = reason_to_refuse(role, *req, &e);
    struct dreq *d = why == NULL ? dreq_of(role, *req) : NULL;
    if (d == NULL) {
        if (why == NULL) e = ERR_NO_MEMORY;
        err_set(eb, e, "%s", why != NULL ? why : err_text(e));
        infer_req_destroy(req);
        req_seq_drop(seq, ERR_CANCELLED, "");
        kv_commit_free(c);
        return e;
    }
    struct dpart *part = &d->parts[(*req)->head.part];
    d->here = true;
    part->req = *req;
    part->seq = *seq;
    *req = NULL;
    *seq = NULL;
    req_seq_give(part->seq, &owner, part);
    dpart_reckon(part);
    dpart_start(part, c); /* may end it: on the result stream, like everything from here on */
    kv_commit_free(c);
    return ERR_OK;
}

void decode_on_withdrawn(void *arg, const struct kv_key *key) {
    struct decode *role = arg;
    struct dreq *d = find_req(role, key->req_id);
    if (d == NULL || d->req->head.epoch != key->epoch || key->part >= d->n_parts ||
        d->parts[key->part].seq == NULL || !req_seq_is_offered(d->parts[key->part].seq))
        return; /* answered meanwhile: on_received() tells */
    log_info("decode", "req=%s epoch=%u part=%u event=withdrawn", key->req_id, key->epoch,
             key->part);
    dreq_drop(d, ERR_CANCELLED, "the offer was withdrawn");
}
