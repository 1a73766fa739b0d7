/* decode_admit: offers, room, and the winding down of whatever a request holds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/lora.h"
#include "decode/decode_req.h"

enum {
    QUEUE_FULL_RETRY_MS = 5, /* the engine thread has not read its commands yet */
    NO_ROOM_RETRY_MS = 25,   /* slots and blocks come free as sequences end: some steps from now */
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

/* ---- winding down */

static void wind_down(struct dreq *d);

static void on_seq_gone(void *arg) {
    struct dreq *d = arg;
    d->seq = DSEQ_NONE;
    wind_down(d);
}

static void wind_down(struct dreq *d) {
    if (d->role != NULL || d->rx_state != RX_STATE_NONE || d->seq == DSEQ_ENDING) return;
    if (d->seq == DSEQ_LIVE) {
        d->seq = DSEQ_ENDING;
        worker_cancel(d->worker, d->seq_id, on_seq_gone, d);
        return;
    }
    kv_rx_free(&d->rx);
    dreq_list_remove(d);
    answer_destroy(&d->answer);
    infer_req_destroy(&d->req);
    buf_free(&d->out);
    free(d->ids);
    free(d);
}

void dreq_drop(struct dreq *d, enum err why, const char *text) {
    struct decode *role = d->role;
    if (role == NULL) return;
    req_meter_end(&d->meter, REQ_CANCELLED); /* unless it ended otherwise */
    dreq_list_remove(d);
    dreq_list_add(&role->winding, d);
    d->role = NULL;
    if (d->rx_state == RX_STATE_OFFERED) {
        d->rx_state = RX_STATE_NONE;
        kv_rx_refuse(&d->rx, why, text);
    } else if (d->rx_state == RX_STATE_GRANTED) {
        kv_rx_cancel(d->rx, why, text); /* on_rx_end goes on */
    }
    wind_down(d);
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
    struct recent *r = find_recent(role, req->req_id);
    if (r == NULL) {
        char *copy = strdup(req->req_id);
        if (copy == NULL) return false;
        r = &role->recent[role->n_recent++ % RECENT_MAX];
        free(r->req_id);
        r->req_id = copy;
    }
    r->epoch = req->epoch;
    return true;
}

/* ---- the transfer */

static void on_rx_end(void *arg, enum err e, const char *text, const struct kv_commit *c) {
    struct dreq *d = arg;
    d->rx_state = RX_STATE_NONE;
    if (d->role == NULL) {
        wind_down(d);
        return;
    }
    if (e == ERR_OK) {
        dreq_start(d, c);
        return;
    }
    /* Before the commit the request is P's: whoever asked P hears of it there. */
    req_meters_transfer_failed(instance_meters(d->role->in), e);
    log_info("decode", "req=%s epoch=%u event=import_ended err=%s text=\"%s\"", d->req->req_id,
             d->req->epoch, err_name(e), text);
    dreq_drop(d, e, text);
}

/* ---- the engine */

static void on_admitted(void *arg, uint64_t seq_id, const int32_t *table, int n_blocks, int n_held,
                        int n_cached) {
    struct dreq *d = arg;
    (void)seq_id, (void)n_cached;
    d->rx_state = RX_STATE_GRANTED;
    enum err e = kv_rx_grant(d->rx, table, n_blocks, n_held, on_rx_end, d);
    if (e == ERR_OK) return;
    d->rx_state = RX_STATE_OFFERED;
    dreq_drop(d, e, err_text(e));
}

static void on_refused(void *arg, uint64_t seq_id, enum err e, const char *text) {
    struct dreq *d = arg;
    (void)seq_id;
    d->seq = DSEQ_NONE;
    d->rx_state = RX_STATE_NONE;
    if (e == ERR_BUSY) {
        kv_rx_busy(&d->rx, NO_ROOM_RETRY_MS);
    } else {
        kv_rx_refuse(&d->rx, e, text);
    }
    dreq_drop(d, e, text);
}

static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct dreq *d = arg;
    (void)seq_id;
    log_error("decode", "req=%s epoch=%u event=engine_failed err=%s", d->req->req_id, d->req->epoch,
              err_name(e));
    d->seq = DSEQ_NONE;
    dreq_fail(d, 500, "Failed to get engine response.");
}

static const struct worker_events seq_events = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = dreq_on_token,
    .on_failed = on_failed,
};

/* ---- offers */

/* Why this attempt is not taken; NULL: it may be. A newer attempt ends the one that runs. */
static const char *reason_to_refuse(struct decode *role, const struct infer_req *req,
                                    enum err *code) {
    *code = ERR_CONFLICT;
    if (instance_stopping(role->in)) {
        *code = ERR_STOPPING;
        return "The service has been stopped";
    }
    struct recent *r = find_recent(role, req->req_id);
    if (r != NULL && req->epoch < r->epoch) return "a newer attempt of the request was seen";
    for (struct dreq *d = role->reqs.first; d != NULL; d = d->next) {
        if (strcmp(d->req->req_id, req->req_id) != 0) continue;
        if (req->epoch <= d->req->epoch) return "this attempt of the request is running already";
        log_info("decode", "req=%s event=replaced epoch=%u by=%u", req->req_id, d->req->epoch,
                 req->epoch);
        dresult_out_forget(instance_dresult(role->in), d->req->req_id, d->req->epoch);
        dreq_drop(d, ERR_CANCELLED, "a newer attempt takes its place");
        break;
    }
    if (!note_attempt(role, req)) {
        *code = ERR_NO_MEMORY;
        return err_text(ERR_NO_MEMORY);
    }
    return NULL;
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
    struct dreq *d = why == NULL ? calloc(1, sizeof(*d)) : NULL;
    if (d == NULL) {
        lora_unref(&lora);
        infer_req_destroy(&req);
        kv_rx_refuse(&rx, why != NULL ? e : ERR_NO_MEMORY,
                     why != NULL ? why : err_text(ERR_NO_MEMORY));
        return;
    }
    d->role = role;
    d->worker = instance_worker(role->in);
    d->req = req;
    d->rx = rx;
    d->rx_state = RX_STATE_OFFERED;
    d->arrival_ms = d->last_token_ms = clock_ms();
    dreq_list_add(&role->reqs, d);
    d->seq_id = worker_next_seq_id(d->worker);
    const struct seq_opts o = {
        .seq_id = d->seq_id,
        .kind = SEQ_IMPORT,
        .ids = req->ids,
        .n_ids = req->n_ids,
        .n_prompt = req->n_prompt,
        .sampling = &req->sampling,
        .priority = req->priority,
        .lora = lora,
    };
    log_debug("decode", "req=%s epoch=%u event=offered by=%u blocks=%u", req->req_id, req->epoch,
              kv_peer_id(peer), n_blocks);
    e = worker_add(d->worker, &o, &seq_events, d);
    lora_unref(&lora);
    if (e == ERR_OK) {
        d->seq = DSEQ_LIVE;
    } else if (e == ERR_BUSY) {
        d->rx_state = RX_STATE_NONE;
        kv_rx_busy(&d->rx, QUEUE_FULL_RETRY_MS);
        dreq_drop(d, e, "");
    } else {
        on_refused(d, d->seq_id, e, err_text(e));
    }
}
