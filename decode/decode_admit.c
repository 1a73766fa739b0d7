/* decode_admit: offers, room, and the winding down of whatever a request holds. */
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

/* ---- lists */

void dreq_list_add(struct dreq_list *list, struct dreq *d) {
    d->list = list;
    d->next = list->first;
    d->at = &list->first;
    if (d->next != NULL) d->next->at = &d->next;
    list->first = d;
    list->n++;
}

void dreq_list_remove(struct dreq *d) {
    if (d->list == NULL) return;
    *d->at = d->next;
    if (d->next != NULL) d->next->at = d->at;
    d->list->n--;
    d->list = NULL;
}

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

/* ---- winding down */

static void on_seq_gone(void *arg) {
    struct dpart *part = arg;
    part->seq = DSEQ_NONE;
    dreq_wind_down(part->d);
}

static void free_parts(struct dreq *d) {
    for (uint32_t i = 0; i < d->n_parts; i++) {
        struct dpart *part = &d->parts[i];
        kv_rx_free(&part->rx);
        kv_commit_free(&part->commit);
        infer_req_destroy(&part->req);
        free(part->early);
    }
}

void dreq_wind_down(struct dreq *d) {
    if (d->role != NULL) return;
    bool busy = d->working;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        struct dpart *part = &d->parts[i];
        if (part->rx_state == RX_STATE_NONE && part->seq == DSEQ_LIVE) {
            bool runs = worker_cancel(d->worker, part->seq_id, on_seq_gone, part);
            part->seq = runs ? DSEQ_ENDING : DSEQ_NONE;
        }
        busy |= part->rx_state != RX_STATE_NONE || part->seq != DSEQ_NONE;
    }
    if (busy) return;
    dreq_list_remove(d);
    answer_destroy(&d->answer);
    free_parts(d);
    buf_free(&d->out);
    free(d->tokens);
    free(d);
}

void dreq_drop(struct dreq *d, enum err why, const char *text) {
    struct decode *role = d->role;
    if (role == NULL) return;
    req_meter_end(&d->meter, REQ_CANCELLED); /* unless it ended otherwise */
    struct recent *r =
        d->n_parts > 1 && why != ERR_BUSY ? find_recent(role, d->req->head.req_id) : NULL;
    if (r != NULL && r->epoch == d->req->head.epoch) r->over = true;
    dresult_out_forget(instance_dresult(role->in), d->req->head.req_id, d->req->head.epoch);
    dreq_list_remove(d);
    dreq_list_add(&role->winding, d);
    for (uint32_t i = 0; i < d->n_parts; i++) dpart_unqueue(&d->parts[i]);
    d->role = NULL;
    if (answer_job_cancel(&d->job)) d->working = false;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        struct dpart *part = &d->parts[i];
        guide_job_cancel(&part->guiding);
        if (part->rx_state == RX_STATE_OFFERED) {
            part->rx_state = RX_STATE_NONE;
            kv_rx_refuse(&part->rx, why, text);
        } else if (part->rx_state == RX_STATE_GRANTED) {
            kv_rx_cancel(part->rx, why, text); /* on_rx_end goes on */
        }
    }
    dreq_wind_down(d);
}

/* Parts P still works on: offered to us, and not here yet. */
static bool any_under_way(const struct dreq *d) {
    for (uint32_t i = 0; i < d->n_parts; i++)
        if (d->parts[i].rx_state != RX_STATE_NONE) return true;
    return false;
}

bool dreq_forgotten(const struct dreq *d, uint64_t now_ms) {
    return d->n_committed < d->n_parts && !any_under_way(d) && now_ms - d->offer_ms >= SILENT_MS;
}

/* ---- the transfer */

static void on_rx_end(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct dpart *part = arg;
    struct dreq *d = part->d;
    part->rx_state = RX_STATE_NONE;
    if (d->role == NULL) {
        dreq_wind_down(d);
        return;
    }
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

static void on_admitted(void *arg, uint64_t seq_id, const int32_t *table, int n_blocks, int n_held,
                        int n_cached) {
    struct dpart *part = arg;
    struct decode *role = part->d->role;
    (void)seq_id, (void)n_cached;
    (void)dpart_tried(part, false);
    part->rx_state = RX_STATE_GRANTED;
    enum err e = kv_rx_grant(part->rx, table, n_blocks, n_held, on_rx_end, part);
    if (e != ERR_OK) {
        part->rx_state = RX_STATE_OFFERED;
        dreq_drop(part->d, e, err_text(e));
    }
    decode_look(role);
}

/* Too much waits here: P asks again. The other parts keep what they have. */
static void part_busy(struct dpart *part, unsigned retry_ms) {
    struct dreq *d = part->d;
    part->rx_state = RX_STATE_NONE;
    kv_rx_busy(&part->rx, retry_ms);
    d->offer_ms = clock_ms();
    if (d->n_committed == 0 && !any_under_way(d)) dreq_drop(d, ERR_BUSY, "");
}

static void on_refused(void *arg, uint64_t seq_id, enum err e, const char *text) {
    struct dpart *part = arg;
    (void)seq_id;
    part->seq = DSEQ_NONE;
    if (e == ERR_BUSY) {
        if (!dpart_tried(part, true)) part_busy(part, CROWD_RETRY_MS);
        return;
    }
    part->rx_state = RX_STATE_NONE;
    kv_rx_refuse(&part->rx, e, text);
    dreq_drop(part->d, e, text);
}

static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct dpart *part = arg;
    struct dreq *d = part->d;
    (void)seq_id;
    log_error("decode", "req=%s epoch=%u event=engine_failed err=%s", d->req->head.req_id,
              d->req->head.epoch, err_name(e));
    part->seq = DSEQ_NONE;
    if (d->role == NULL) {
        dreq_wind_down(d);
        return;
    }
    char text[ERR_TEXT_BYTES_MAX];
    int status = endpoint_engine_failure(instance_endpoint(d->role->in), e, text, sizeof(text));
    dreq_fail(d, status >= 500 ? CAUSE_D_FAILED : CAUSE_REQUEST, status, text);
}

static const struct worker_events seq_events = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = dpart_on_token,
    .on_failed = on_failed,
};

/* ---- offers */

static struct dreq *find_req(struct decode *role, const char *req_id) {
    struct dreq *d = role->reqs.first;
    while (d != NULL && strcmp(d->req->head.req_id, req_id) != 0) d = d->next;
    return d;
}

/* Whether req is a part of d that is not here: never offered, or sent away for want of room. */
static bool is_missing_part(const struct dreq *d, const struct infer_req *req) {
    if (req->head.epoch != d->req->head.epoch || req->head.n_parts != d->n_parts ||
        req->head.part >= d->n_parts)
        return false;
    const struct dpart *part = &d->parts[req->head.part];
    return !part->committed && part->rx_state == RX_STATE_NONE && part->seq == DSEQ_NONE;
}

/* Why this attempt is not taken; NULL: it may be. A newer attempt ends the one that runs. */
static const char *reason_to_refuse(struct decode *role, const struct infer_req *req,
                                    enum err *code) {
    *code = ERR_CONFLICT;
    if (instance_stopping(role->in)) {
        *code = ERR_STOPPING;
        return "The service has been stopped";
    }
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

/* The record of the request, new with its first part: then its end has room on the result stream,
 * before anything of it is granted. */
static struct dreq *dreq_of(struct decode *role, const struct infer_req *req) {
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
    d->worker = instance_worker(role->in);
    d->n_parts = req->head.n_parts;
    for (uint32_t i = 0; i < d->n_parts; i++) d->parts[i].d = d;
    d->arrival_ms = d->last_token_ms = clock_ms();
    dreq_list_add(&role->reqs, d);
    return d;
}

static struct dpart *take_part(struct dreq *d, struct infer_req *req, struct kv_rx *rx) {
    struct dpart *part = &d->parts[req->head.part];
    if (d->req == NULL || d->req == part->req) d->req = req;
    infer_req_destroy(&part->req); /* of an offer that found no room */
    part->req = req;
    part->rx = rx;
    part->rx_state = RX_STATE_OFFERED;
    d->offer_ms = clock_ms();
    return part;
}

enum dpart_entry dpart_enter(struct dpart *part) {
    struct dreq *d = part->d;
    const struct infer_req *req = part->req;
    struct errbuf eb = {0};
    struct lora *lora;
    enum err e = worker_adapter(d->worker, req, &lora, &eb);
    if (e != ERR_OK) {
        on_refused(part, 0, e, eb.text);
        return DPART_ENDED;
    }
    part->seq_id = worker_next_seq_id(d->worker);
    struct seq_opts o = {
        .seq_id = part->seq_id,
        .kind = SEQ_IMPORT,
        .ids = req->ids,
        .n_ids = req->n_ids,
        .n_prompt = req->n_prompt,
        .sampling = &req->sampling,
        .priority = req->head.priority,
        .tenant = worker_tenant(req),
        .prefix_salt = worker_prefix_salt(d->worker, req),
        .lora = lora,
    };
    e = endpoint_guide_start(instance_endpoint(d->role->in), req, &o.guide);
    if (e == ERR_OK) e = worker_add(d->worker, &o, &seq_events, part);
    if (o.guide.ops != NULL) o.guide.ops->free(o.guide.state);
    lora_unref(&lora);
    if (e == ERR_BUSY) return DPART_QUEUE_FULL;
    if (e != ERR_OK) {
        on_refused(part, part->seq_id, e, err_text(e));
        return DPART_ENDED;
    }
    part->seq = DSEQ_LIVE;
    return DPART_ENTERED;
}

static void on_guide(void *arg, enum err e, struct endpoint_guide *g, const char *text) {
    struct dpart *part = arg;
    part->guiding = NULL;
    if (e != ERR_OK) {
        on_refused(part, 0, e, text);
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
    const char *why = reason_to_refuse(role, req, &e);
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
        on_refused(part, 0, e, err_text(e));
}

void decode_on_withdrawn(void *arg, const struct kv_key *key) {
    struct decode *role = arg;
    struct dreq *d = find_req(role, key->req_id);
    if (d == NULL || d->req->head.epoch != key->epoch || key->part >= d->n_parts ||
        d->parts[key->part].rx_state != RX_STATE_OFFERED)
        return; /* answered meanwhile: on_rx_end tells */
    log_info("decode", "req=%s epoch=%u part=%u event=withdrawn", key->req_id, key->epoch,
             key->part);
    dreq_drop(d, ERR_CANCELLED, "the offer was withdrawn");
}
