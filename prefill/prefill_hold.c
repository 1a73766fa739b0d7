/* prefill_hold: two objects with asynchronous ends, wound down step by step: each step's callback
 * takes the next. */
#include "prefill/prefill_hold.h"

#include <stdlib.h>
#include "common/endpoint/endpoint.h"
#include "common/engine/lora.h"

enum seq_state { SEQ_STATE_NONE, SEQ_STATE_LIVE, SEQ_STATE_ENDING };

struct prefill_hold {
    struct prefill_hold *next, **at;
    struct prefill_holds *list; /* NULL: the owner of the list is gone */
    struct worker *worker;
    struct kv_tx *tx;
    bool tx_over,
        tx_taken; /* taken: D has the request, so the sequence is released, not cancelled */
    bool dropped;
    uint64_t seq_id;
    enum seq_state seq;
    const struct prefill_hold_events *ev;
    void *arg;
};

static void link_in(struct prefill_hold *h, struct prefill_holds *list) {
    h->list = list;
    h->next = list->first;
    h->at = &list->first;
    if (h->next != NULL) h->next->at = &h->next;
    list->first = h;
    list->n++;
}

static void link_out(struct prefill_hold *h) {
    if (h->list == NULL) return;
    *h->at = h->next;
    if (h->next != NULL) h->next->at = h->at;
    h->list->n--;
    h->list = NULL;
}

void prefill_holds_detach(struct prefill_holds *list) {
    while (list->first != NULL) link_out(list->first);
}

static void wind_down(struct prefill_hold *h);

static void on_seq_gone(void *arg) {
    struct prefill_hold *h = arg;
    h->seq = SEQ_STATE_NONE;
    wind_down(h);
}

static void wind_down(struct prefill_hold *h) {
    if (!h->dropped || h->seq == SEQ_STATE_ENDING) return;
    if (!h->tx_over) {
        kv_tx_cancel(h->tx);
        return;
    }
    if (h->seq == SEQ_STATE_LIVE) {
        h->seq = SEQ_STATE_ENDING;
        if (h->tx_taken ? worker_release(h->worker, h->seq_id, on_seq_gone, h)
                        : worker_cancel(h->worker, h->seq_id, on_seq_gone, h))
            return;
        h->seq = SEQ_STATE_NONE; /* over already */
    }
    if (h->tx != NULL) kv_tx_free(&h->tx);
    link_out(h);
    free(h);
}

/* ---- the transfer */

static void on_tx_end(void *arg, enum err e, const char *text, const struct kv_tx_stats *st) {
    struct prefill_hold *h = arg;
    h->tx_over = true;
    h->tx_taken = e == ERR_OK;
    if (h->dropped) {
        wind_down(h);
    } else {
        h->ev->on_transfer(h->arg, e, text, st); /* may drop the hold */
    }
}

/* ---- the sequence */

/* Its blocks are reserved: from here on nothing at P can keep D waiting. */
static void on_admitted(void *arg, uint64_t seq_id, const int32_t *table, int n_blocks, int n_held,
                        int n_cached) {
    struct prefill_hold *h = arg;
    (void)seq_id, (void)table, (void)n_blocks, (void)n_held;
    if (h->dropped) return;
    if (h->tx != NULL) kv_tx_offer(h->tx);
    h->ev->on_admitted(h->arg, n_cached);
}

static void on_prompt_logprob(void *arg, uint64_t seq_id, int position,
                              const struct token_event *ev) {
    struct prefill_hold *h = arg;
    (void)seq_id;
    if (!h->dropped) h->ev->on_prompt_logprob(h->arg, position, ev);
}

static void on_token(void *arg, uint64_t seq_id, const struct token_event *ev) {
    struct prefill_hold *h = arg;
    (void)seq_id;
    if (!h->dropped) h->ev->on_token(h->arg, ev);
}

static void on_refused(void *arg, uint64_t seq_id, enum err e, const char *text) {
    struct prefill_hold *h = arg;
    (void)seq_id;
    h->seq = SEQ_STATE_NONE;
    if (h->dropped) {
        wind_down(h);
    } else {
        h->ev->on_engine(h->arg, e, text, true);
    }
}

/* The sequence holds its blocks until it is cancelled: the transfer may be reading them. */
static void on_failed(void *arg, uint64_t seq_id, enum err e) {
    struct prefill_hold *h = arg;
    (void)seq_id;
    if (!h->dropped) h->ev->on_engine(h->arg, e, err_text(e), false);
}

/* The engine thread: hands over, no more. tx is set before the engine knows the sequence and
 * outlives it. */
static void on_kv(void *arg, uint64_t seq_id, const int32_t *table, int layer, int first, int n) {
    struct prefill_hold *h = arg;
    (void)seq_id;
    if (h->tx != NULL) kv_tx_ready(h->tx, table, layer, first, n);
}

static const struct worker_events seq_events = {
    .on_admitted = on_admitted,
    .on_refused = on_refused,
    .on_token = on_token,
    .on_prompt_logprob = on_prompt_logprob,
    .on_failed = on_failed,
    .on_kv = on_kv,
};

/* ---- */

enum err prefill_hold_open(struct prefill_hold **out, struct prefill_holds *list, struct worker *w,
                           const struct endpoint *ep, struct kv_peer *peer,
                           const struct infer_req *req, unsigned block_tokens,
                           const struct prefill_hold_events *ev, void *arg) {
    *out = NULL;
    struct lora *lora;
    enum err e = worker_adapter(w, req, &lora, NULL);
    if (e != ERR_OK) return e;
    struct prefill_hold *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        lora_unref(&lora);
        return ERR_NO_MEMORY;
    }
    h->worker = w;
    h->ev = ev;
    h->arg = arg;
    const struct kv_tx_opts to = {
        .req = req,
        .n_blocks = (uint32_t)((req->n_ids + block_tokens - 1) / block_tokens),
        .on_end = on_tx_end,
        .arg = h,
    };
    h->tx_over = peer == NULL;
    if (peer != NULL && (e = kv_tx_open(&h->tx, peer, &to)) != ERR_OK) {
        lora_unref(&lora);
        free(h);
        return e;
    }
    link_in(h, list);
    h->seq_id = worker_next_seq_id(w);
    struct seq_opts so = {
        .seq_id = h->seq_id,
        .kind = SEQ_PREFILL,
        .ids = req->ids,
        .n_ids = req->n_ids,
        .n_prompt = req->n_prompt,
        .sampling = &req->sampling,
        .priority = req->head.priority,
        .tenant = worker_tenant(req),
        .prefix_salt = worker_prefix_salt(w, req),
        .lora = lora,
    };
    e = endpoint_guide_start(ep, req, &so.guide);
    if (e == ERR_OK) e = worker_add(w, &so, &seq_events, h);
    if (so.guide.ops != NULL) so.guide.ops->free(so.guide.state);
    lora_unref(&lora);
    if (e != ERR_OK) {
        prefill_hold_drop(&h); /* the transfer winds down */
        return e;
    }
    h->seq = SEQ_STATE_LIVE;
    *out = h;
    return ERR_OK;
}

void prefill_hold_patient(struct prefill_hold *h) {
    kv_tx_patient(h->tx);
}

void prefill_hold_commit(struct prefill_hold *h, struct kv_commit *c) {
    kv_tx_commit(h->tx, c);
}

void prefill_hold_drop(struct prefill_hold **hp) {
    struct prefill_hold *h = *hp;
    if (h == NULL) return;
    *hp = NULL;
    h->dropped = true;
    wind_down(h);
}
