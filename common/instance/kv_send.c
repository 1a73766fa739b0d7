/* kv_send: transfers out: the offer, the blocks as the prefill finishes them, the commit, and the
 * repair D may ask for once.
 *
 * What the computing thread has finished stands in tx->ready, one number a layer; what is out
 * stands in tx->sent. The difference is sent in frames of about KV_FRAME_TARGET_BYTES, adjacent
 * blocks of one layer together, the transfers of a link taking turns, never more than the peer's
 * window unacknowledged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/instance/bus.h"
#include "common/instance/kv_link.h"

enum { BUSY_RETRY_MS_MIN = 2, BUSY_RETRY_MS_MAX = 1000 };

void kv_tx_destroy(struct kv_tx *tx) {
    struct kv_plane *kp = tx->kp;
    if (tx->lent) {
        tx->peer->n_lends--;
        budget_give(kp->o.budget, BUDGET_KV_LENDS, 1);
    }
    wr_free(&tx->offer);
    kv_commit_free(&tx->commit);
    free(tx->lent_table);
    free(tx->pulls);
    free(tx->sent);
    free(tx);
    kv_unref(kp);
}

static void unlist(struct kv_tx *tx) {
    if (tx->link == NULL) return;
    for (struct kv_tx **at = &tx->link->tx; *at != NULL; at = &(*at)->next) {
        if (*at == tx) {
            *at = tx->next;
            break;
        }
    }
    tx->link = NULL;
}

static void append(struct kv_link *l, struct kv_tx *tx) {
    struct kv_tx **at = &l->tx;
    while (*at != NULL) at = &(*at)->next;
    *at = tx;
    tx->next = NULL;
    tx->link = l;
}

/* From here on no block of the sequence is read. Who has not answered a fetch yet hears of the end
 * when he does. */
static void tx_end(struct kv_plane *kp, struct kv_tx *tx, enum err e, const char *text) {
    const bool asked = tx->state == TX_ASKED;
    unlist(tx);
    tx->state = TX_ENDED;
    tx->end = e;
    if (asked) return;
    struct kv_event ev = {.kind = KV_EV_TX_END, .tx = tx, .e = e, .stats = tx->stats};
    snprintf(ev.text, sizeof(ev.text), "%s", text);
    kv_post(kp, &ev);
}

static void tx_abort(struct kv_plane *kp, struct kv_tx *tx, enum err e, const char *text) {
    if (tx->state != TX_NEW && tx->link != NULL && tx->link->pipe != NULL) {
        kv_cancel_pack(&kp->scratch, &tx->key);
        kv_pipe_send(kp, tx->link->pipe);
    }
    tx_end(kp, tx, e, text);
}

void kv_tx_end_all(struct kv_plane *kp, struct kv_link *l, enum err e, const char *text) {
    while (l->tx != NULL) tx_end(kp, l->tx, e, text);
}

static struct kv_tx *find(const struct kv_link *l, const struct kv_key *k) {
    struct kv_tx *tx = l->tx;
    while (tx != NULL && !kv_key_equal(&tx->key, k)) tx = tx->next;
    return tx;
}

/* ---- fetches */

static void send_lend(struct kv_plane *kp, struct kv_link *l, const struct kv_key *k, enum err code,
                      uint32_t n_blocks, const char *text) {
    struct kv_lend m = {.key = *k, .code = (uint16_t)code, .n_blocks = n_blocks};
    snprintf(m.text, sizeof(m.text), "%s", text);
    kv_lend_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->pipe);
}

/* The loop lends: the blocks are all there. */
static void lend(struct kv_plane *kp, struct kv_tx *tx) {
    if (tx->state == TX_ENDED) {
        tx_end(kp, tx, tx->end, "the fetch was given up");
        return;
    }
    tx->n_blocks = tx->stats.n_blocks = tx->n_lent;
    if (tx->n_held > tx->n_blocks) tx->n_held = tx->n_blocks;
    tx->stats.n_held = tx->n_held;
    for (uint32_t i = 0; i < kp->o.n_layers; i++) tx->sent[i] = tx->n_held;
    tx->state = TX_GRANTED;
    tx->commit_us = clock_us();
    tx->lease_until_ms = clock_ms() + KV_LEND_MS;
    send_lend(kp, tx->link, &tx->key, ERR_OK, tx->n_blocks, "");
}

static void decline(struct kv_plane *kp, struct kv_tx *tx) {
    if (tx->state != TX_ENDED) {
        send_lend(kp, tx->link, &tx->key, tx->decline_code, 0, tx->decline_text);
        unlist(tx);
    }
    kv_tx_destroy(tx);
}

/* A peer may have as many as are left: one alone half of all, each further one half of the rest,
 * and the last goes to one that has none. After that there is none for whoever comes next. */
static bool lend_take(struct kv_plane *kp, struct kv_peer *peer) {
    struct budget *b = kp->o.budget;
    const uint64_t n_free = budget_limit(b, BUDGET_KV_LENDS) - budget_used(b, BUDGET_KV_LENDS);
    if (peer->n_lends >= n_free) {
        budget_refused(b, BUDGET_KV_LENDS);
        return false;
    }
    if (!budget_take(b, BUDGET_KV_LENDS, 1)) return false;
    peer->n_lends++;
    return true;
}

/* ERR_BUSY: too many are under way; ERR_NO_MEMORY. */
static enum err lend_create(struct kv_tx **out, struct kv_plane *kp, struct kv_link *l,
                            const struct kv_fetch *m) {
    const size_t n_layers = kp->o.n_layers;
    if (!lend_take(kp, l->peer)) return ERR_BUSY;
    struct kv_tx *tx = calloc(1, sizeof(*tx) + n_layers * sizeof(tx->ready[0]));
    if (tx == NULL) {
        l->peer->n_lends--;
        budget_give(kp->o.budget, BUDGET_KV_LENDS, 1);
        return ERR_NO_MEMORY;
    }
    tx->kp = kp;
    kv_ref(kp);
    tx->lent = true;
    tx->peer = l->peer;
    tx->key = m->key;
    tx->n_blocks = m->n_blocks;
    tx->n_held = m->n_held;
    tx->state = TX_ASKED;
    if ((tx->sent = calloc(n_layers, sizeof(*tx->sent))) == NULL) {
        kv_tx_destroy(tx);
        return ERR_NO_MEMORY;
    }
    *out = tx;
    return ERR_OK;
}

static void on_fetch(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_fetch m;
    struct infer_req *req = NULL;
    if (kv_fetch_unpack(r, &m) != ERR_OK) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    struct rd body = rd_of(m.req, m.req_bytes);
    enum err e = infer_req_unpack(&body, &req);
    const bool fits = e == ERR_OK && rd_done(&body) && req->head.req_id != NULL &&
                      strcmp(req->head.req_id, m.key.req_id) == 0 &&
                      req->head.epoch == m.key.epoch && req->head.part == m.key.part &&
                      req->n_ids > 0 && m.n_blocks == (req->n_ids - 1) / kp->o.block_tokens;
    struct kv_tx *tx = NULL;
    const char *why = "the fetch does not fit its request";
    if (e == ERR_NO_MEMORY) {
        why = err_text(e);
    } else if (!fits) {
        KV_COUNT(kp, n_protocol, 1);
        e = ERR_INVALID;
    } else if (find(l, &m.key) != NULL) {
        KV_COUNT(kp, n_repeated, 1);
        e = ERR_CONFLICT;
        why = "this fetch is under way already";
    } else if ((e = lend_create(&tx, kp, l, &m)) != ERR_OK) {
        why = e == ERR_BUSY ? "too many fetches are under way" : err_text(e);
    }
    if (tx == NULL) {
        infer_req_destroy(&req);
        send_lend(kp, l, &m.key, e, 0, why);
        return;
    }
    append(l, tx);
    struct kv_event ev = {
        .kind = KV_EV_FETCH, .peer = l->peer, .tx = tx, .req = req, .n_blocks = m.n_blocks};
    kv_post(kp, &ev);
}

static void send_offer(struct kv_plane *kp, struct kv_tx *tx) {
    wr_clear(&kp->scratch);
    wr_bytes(&kp->scratch, tx->offer.data, tx->offer.len);
    kv_pipe_send(kp, tx->link->pipe);
    tx->state = TX_OFFERED;
}

void kv_tx_command(struct kv_plane *kp, struct kv_cmd *c) {
    struct kv_tx *tx = c->tx;
    switch (c->kind) {
    case KV_CMD_TX_OPEN: {
        struct kv_link *l = kv_link_of(kp, tx->peer);
        if (l == NULL || !l->up || l->gen != tx->gen) {
            tx_end(kp, tx, ERR_PEER_LOST, "before the transfer began");
            break;
        }
        tx->stats.n_blocks = tx->n_blocks;
        append(l, tx);
        break;
    }
    case KV_CMD_TX_OFFER:
        if (tx->state != TX_NEW) break; /* it has ended meanwhile */
        tx->deadline_ms = clock_ms() + kp->o.handover_ms;
        send_offer(kp, tx);
        break;
    case KV_CMD_TX_COMMIT: tx->has_commit = true; break;
    case KV_CMD_TX_CANCEL:
        if (tx->state != TX_ENDED) tx_abort(kp, tx, ERR_CANCELLED, "cancelled");
        break;
    case KV_CMD_TX_LEND: lend(kp, tx); break;
    case KV_CMD_TX_DECLINE: decline(kp, tx); break;
    case KV_CMD_TX_FREE: kv_tx_destroy(tx); break;
    default: break;
    }
}

/* ---- answers of D */

static void on_grant(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_grant m;
    struct kv_tx *tx = kv_grant_unpack(r, &m) == ERR_OK ? find(l, &m.key) : NULL;
    if (tx == NULL || tx->state != TX_OFFERED) {
        KV_COUNT(kp, n_unknown, 1);
        return;
    }
    if (m.n_held > tx->n_blocks) {
        KV_COUNT(kp, n_out_of_range, 1);
        tx_abort(kp, tx, ERR_REFUSED, "the grant holds more blocks than were offered");
        return;
    }
    tx->state = TX_GRANTED;
    tx->n_held = tx->stats.n_held = m.n_held;
    tx->lease_until_ms = clock_ms() + kp->o.lease_ms;
    for (uint32_t i = 0; i < kp->o.n_layers; i++) tx->sent[i] = m.n_held;
    wr_free(&tx->offer);
    struct kv_event ev = {.kind = KV_EV_TX_GRANTED, .tx = tx, .n_held = m.n_held};
    kv_post(kp, &ev);
}

static void on_busy(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_busy m;
    struct kv_tx *tx = kv_busy_unpack(r, &m) == ERR_OK ? find(l, &m.key) : NULL;
    if (tx == NULL || tx->state != TX_OFFERED) {
        KV_COUNT(kp, n_unknown, 1);
        return;
    }
    uint32_t ms = m.retry_after_ms < BUSY_RETRY_MS_MIN   ? BUSY_RETRY_MS_MIN
                  : m.retry_after_ms > BUSY_RETRY_MS_MAX ? BUSY_RETRY_MS_MAX
                                                         : m.retry_after_ms;
    tx->state = TX_BUSY;
    tx->retry_ms = clock_ms() + ms;
    kv_due(kp, tx->retry_ms);
}

static void on_refuse(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_refuse m = {0};
    struct kv_tx *tx = kv_refuse_unpack(r, &m) == ERR_OK ? find(l, &m.key) : NULL;
    if (tx == NULL) {
        KV_COUNT(kp, n_unknown, 1);
        return;
    }
    /* The request's own affair, and no fault of an instance or a link: its adapter is not there, or
     * it can never fit there. */
    bool told = m.code == ERR_CANCELLED || m.code == ERR_MISMATCH || m.code == ERR_TOO_LARGE ||
                m.code == ERR_STOPPING;
    tx_end(kp, tx, told ? (enum err)m.code : ERR_REFUSED, m.text);
}

static void on_ack(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_key k;
    struct kv_tx *tx = kv_key_only_unpack(r, &k) == ERR_OK ? find(l, &k) : NULL;
    /* Who fetches has no commit to wait for: it knows its last block. */
    if (tx == NULL || tx->state != (tx->lent ? TX_GRANTED : TX_COMMITTED)) {
        KV_COUNT(kp, n_unknown, 1);
        return;
    }
    uint64_t now_us = clock_us();
    if (tx->first_frame_us != 0) tx->stats.transfer_us = now_us - tx->first_frame_us;
    tx->stats.exposed_us = now_us - tx->commit_us;
    tx_end(kp, tx, ERR_OK, "");
}

static void on_release(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_release m = {0};
    struct kv_tx *tx = kv_release_unpack(r, &m) == ERR_OK ? find(l, &m.key) : NULL;
    if (tx == NULL) {
        KV_COUNT(kp, n_unknown, 1);
        return;
    }
    tx_end(kp, tx, m.reason == KV_RELEASE_CANCEL ? ERR_CANCELLED : ERR_REFUSED, m.text);
}

static void on_pull(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_pull m;
    const enum err e = kv_pull_unpack(r, &m);
    if (e == ERR_NO_MEMORY) { /* D waits for what it asks for */
        struct kv_tx *lost = find(l, &m.key);
        if (lost != NULL) tx_abort(kp, lost, ERR_REFUSED, err_text(e));
        return;
    }
    if (e != ERR_OK) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    struct kv_tx *tx = find(l, &m.key);
    if (tx == NULL) {
        KV_COUNT(kp, n_unknown, 1);
        kv_pull_free(&m);
        return;
    }
    bool fits = tx->state == TX_COMMITTED && !tx->was_pulled;
    for (size_t i = 0; i < m.n_ranges && fits; i++) {
        const struct kv_range *g = &m.ranges[i];
        fits = g->layer < kp->o.n_layers && g->first >= tx->n_held && g->first < tx->n_blocks &&
               g->n <= tx->n_blocks - g->first;
    }
    if (!fits) {
        KV_COUNT(kp, n_protocol, 1);
        kv_pull_free(&m);
        tx_abort(kp, tx, ERR_REFUSED, "Pull kv failed irreversibly.");
        return;
    }
    KV_COUNT(kp, n_pulls, 1);
    tx->pulls = m.ranges;
    tx->n_pulls = m.n_ranges;
    tx->n_pulls_done = 0;
    tx->was_pulled = true;
    tx->state = TX_GRANTED; /* the commit goes out again behind the repair */
}

static void on_credit(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    uint64_t taken = 0;
    if (kv_credit_unpack(r, &taken) != ERR_OK || taken < l->acked_bytes || taken > l->sent_bytes) {
        KV_COUNT(kp, n_protocol, 1);
        kv_link_down(kp, l, "12", "credit for bytes that were never sent");
        return;
    }
    l->acked_bytes = taken;
}

void kv_tx_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f) {
    switch (f->type) {
    case KV_FETCH: on_fetch(kp, l, &f->payload); break;
    case KV_GRANT: on_grant(kp, l, &f->payload); break;
    case KV_BUSY: on_busy(kp, l, &f->payload); break;
    case KV_REFUSE: on_refuse(kp, l, &f->payload); break;
    case KV_ACK: on_ack(kp, l, &f->payload); break;
    case KV_PULL: on_pull(kp, l, &f->payload); break;
    case KV_RELEASE: on_release(kp, l, &f->payload); break;
    case KV_CREDIT: on_credit(kp, l, &f->payload); break;
    default: break;
    }
}

/* ---- blocks */

/* The next range of this transfer: repairs first. False: nothing now. */
static bool next_range(const struct kv_plane *kp, struct kv_tx *tx, struct kv_range *out) {
    if (tx->state != TX_GRANTED) return false;
    if (tx->n_pulls_done < tx->n_pulls) {
        *out = tx->pulls[tx->n_pulls_done];
        return true;
    }
    uint32_t n_layers = kp->o.n_layers;
    for (uint32_t i = 0; i < n_layers; i++) {
        uint32_t layer = (tx->turn + i) % n_layers;
        uint32_t ready = atomic_load_explicit(&tx->ready[layer], memory_order_acquire);
        if (ready > tx->sent[layer]) {
            *out = (struct kv_range){
                .layer = layer, .first = tx->sent[layer], .n = ready - tx->sent[layer]};
            return true;
        }
    }
    return false;
}

static void range_sent(const struct kv_plane *kp, struct kv_tx *tx, const struct kv_range *g,
                       uint64_t bytes) {
    if (tx->n_pulls_done < tx->n_pulls) {
        struct kv_range *p = &tx->pulls[tx->n_pulls_done];
        p->first += g->n;
        p->n -= g->n;
        if (p->n == 0) tx->n_pulls_done++;
        tx->stats.n_repaired += g->n;
    } else {
        tx->sent[g->layer] = g->first + g->n;
        tx->turn = (g->layer + 1) % kp->o.n_layers;
        tx->data_bytes += bytes;
    }
    tx->stats.bytes += bytes;
    if (tx->first_frame_us == 0) tx->first_frame_us = clock_us();
}

static void commit_if_due(struct kv_plane *kp, struct kv_tx *tx) {
    if (tx->state != TX_GRANTED || !tx->has_commit || tx->n_pulls_done < tx->n_pulls) return;
    for (uint32_t i = 0; i < kp->o.n_layers; i++) {
        if (tx->sent[i] < tx->n_blocks) return;
    }
    tx->commit.total_bytes = tx->data_bytes;
    kv_commit_pack(&kp->scratch, &tx->commit);
    kv_pipe_send(kp, tx->link->pipe);
    tx->state = TX_COMMITTED;
}

/* Blocks that fit into one frame and into what the peer still lets come; 0: wait for credit. */
static uint32_t blocks_allowed(struct kv_plane *kp, const struct kv_link *l,
                               const struct kv_tx *tx) {
    size_t block = kp->o.block_bytes;
    size_t head = kv_data_bytes(&tx->key, 0) + kv_pipe_tag_growth(l->pipe);
    size_t n = KV_FRAME_TARGET_BYTES / block;
    if (n == 0) n = 1;
    uint64_t window =
        l->window_bytes < kp->o.inflight_bytes_max ? l->window_bytes : kp->o.inflight_bytes_max;
    uint64_t inflight = l->sent_bytes - l->acked_bytes;
    if (inflight == 0 && window < head + block)
        return 1; /* a window under one block still moves, block by block */
    uint64_t room = window > inflight ? window - inflight : 0;
    uint64_t fits = room > head ? (room - head) / block : 0;
    return (uint32_t)(fits < n ? fits : n);
}

static void note_inflight(struct kv_plane *kp, const struct kv_link *l) {
    uint64_t inflight = l->sent_bytes - l->acked_bytes; /* the I/O thread is the only writer */
    if (inflight > atomic_load_explicit(&kp->count.inflight_bytes_peak, memory_order_relaxed)) {
        atomic_store_explicit(&kp->count.inflight_bytes_peak, inflight, memory_order_relaxed);
    }
}

static const uint8_t *block_of(const struct kv_plane *kp, const struct kv_tx *tx,
                               const struct kv_range *g, uint32_t i) {
    const int32_t *table = atomic_load_explicit(&tx->table, memory_order_acquire);
    return kp->o.block(kp->o.memory, (int)g->layer, table[g->first + i]);
}

/* The blocks are sealed on their way to `to`: their plain bytes are never written a second time. */
static enum err fill_sealed(const struct kv_plane *kp, struct kv_seal *seal, const struct kv_tx *tx,
                            const struct kv_range *g, uint8_t *frame, size_t n, uint8_t *to) {
    uint8_t *payload = frame + KV_HEAD_BYTES;
    enum err e = kv_seal_begin(seal, frame, n);
    if (e == ERR_OK) e = kv_seal_piece(seal, payload, payload, (size_t)(to - payload));
    for (uint32_t i = 0; i < g->n && e == ERR_OK; i++, to += kp->o.block_bytes)
        e = kv_seal_piece(seal, to, block_of(kp, tx, g, i), kp->o.block_bytes);
    return e == ERR_OK ? kv_seal_end(seal, to) : e;
}

/* A range of blocks into its frame of n bytes. */
static enum err fill(const struct kv_plane *kp, struct kv_pipe *p, const struct kv_tx *tx,
                     const struct kv_range *g, uint8_t *frame, size_t n) {
    const size_t block = kp->o.block_bytes;
    uint8_t *to = kv_data_begin(frame, &tx->key, g->layer, g->first, g->n, g->n * block);
    if (p->seal_out != NULL) return fill_sealed(kp, p->seal_out, tx, g, frame, n, to);
    for (uint32_t i = 0; i < g->n; i++, to += block) memcpy(to, block_of(kp, tx, g, i), block);
    kv_frame_reseal(frame, n, ++p->seq_out);
    return ERR_OK;
}

bool kv_tx_next(struct kv_plane *kp, struct kv_link *l, void **message, size_t *n) {
    struct kv_tx *tx, *next;
    struct kv_range g;
    for (tx = l->tx; tx != NULL; tx = next) {
        next = tx->next;
        if (next_range(kp, tx, &g)) break;
        commit_if_due(kp, tx);
    }
    if (tx == NULL) return false;
    uint32_t allowed = blocks_allowed(kp, l, tx);
    if (allowed == 0) return false;
    if (g.n > allowed) g.n = allowed;
    size_t bytes = (size_t)g.n * kp->o.block_bytes;
    *n = kv_data_bytes(&tx->key, bytes) + kv_pipe_tag_growth(l->pipe);
    uint8_t *frame = bus_message_alloc(*n);
    if (frame == NULL) return false; /* the next pass tries again; the lease bounds how long */
    enum err e = fill(kp, l->pipe, tx, &g, frame, *n);
    if (e != ERR_OK) {
        kv_pipe_unsealable(l->pipe, frame, e);
        return false;
    }
    range_sent(kp, tx, &g, bytes);
    l->sent_bytes += *n;
    note_inflight(kp, l);
    *message = frame;
    unlist(tx); /* to the end: transfers take turns */
    append(l, tx);
    return true;
}

/* ---- time */

void kv_tx_renew(struct kv_plane *kp, struct kv_link *l, const struct kv_key *k, uint64_t now_ms) {
    struct kv_tx *tx = find(l, k);
    if (tx != NULL && !tx->lent) tx->lease_until_ms = now_ms + kp->o.lease_ms;
}

void kv_tx_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms) {
    for (struct kv_tx *tx = l->tx, *next; tx != NULL; tx = next) {
        next = tx->next;
        switch (tx->state) {
        case TX_OFFERED:
        case TX_BUSY:
            if (now_ms >= tx->deadline_ms && !atomic_load(&tx->patient)) {
                /* D leaves an offer without answer while it has no room; heartbeats tell whether
                 * it lives. */
                tx_abort(kp, tx, ERR_BUSY, "no room on the decode instance");
            } else if (tx->state == TX_BUSY && now_ms >= tx->retry_ms) {
                send_offer(kp, tx);
            } else if (tx->state == TX_BUSY) {
                kv_due(kp, tx->retry_ms);
            }
            break;
        case TX_GRANTED:
        case TX_COMMITTED:
            if (now_ms >= tx->lease_until_ms) {
                KV_COUNT(kp, n_leases_expired, 1);
                tx_abort(
                    kp, tx, ERR_TIMEOUT,
                    "the lease ran out: the decode instance does not want the request any more");
            }
            break;
        case TX_NEW:
        case TX_ASKED:
        case TX_ENDED: break;
        }
    }
}
