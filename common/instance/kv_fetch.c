/* kv_fetch: the loop thread's side of fetches: blocks that come from the decode instance which a
 * request has left, and those that go there. The I/O thread's side is in kv_send.c and kv_recv.c,
 * as that of hand-overs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/instance/kv_link.h"

void kv_plane_on_fetch(struct kv_plane *kp, kv_fetch_fn *fn, void *arg) {
    kp->on_fetch = fn;
    kp->on_fetch_arg = arg;
}

/* ---- who asks */

enum err kv_rx_fetch(struct kv_rx **out, struct kv_peer *peer, const struct infer_req *req,
                     const int32_t *table, int n_table, int n_held, kv_rx_end_fn *on_end,
                     void *arg) {
    struct kv_plane *kp = peer->kp;
    *out = NULL;
    if (!kv_peer_up(peer)) return ERR_PEER_LOST;
    if (n_held < 0 || n_table <= n_held || strlen(req->head.req_id) > REQ_ID_BYTES_MAX)
        return ERR_INVALID;
    struct kv_rx *rx = calloc(1, sizeof(*rx));
    if (rx == NULL) return ERR_NO_MEMORY;
    enum err e = ERR_NO_MEMORY;
    rx->kp = kp;
    kv_ref(kp);
    rx->peer = peer;
    rx->gen = peer->gen;
    rx->on_end = on_end;
    rx->arg = arg;
    rx->fetched = rx->granted = true;
    rx->n_blocks = (uint32_t)n_table;
    rx->n_held = (uint32_t)n_held;
    kv_key_set(&rx->key, req->head.req_id, req->head.epoch, req->head.part);
    if ((rx->table = malloc((size_t)n_table * sizeof(*table))) == NULL) goto fail;
    memcpy(rx->table, table, (size_t)n_table * sizeof(*table));
    kv_fetch_pack(&rx->ask, &rx->key, rx->n_blocks, rx->n_held, req);
    if (rx->ask.failed) goto fail;
    if (rx->ask.len - KV_HEAD_BYTES > KV_FRAME_BYTES_MAX) {
        e = ERR_TOO_LARGE;
        goto fail;
    }
    rx->answer_cmd = (struct kv_cmd){.kind = KV_CMD_RX_FETCH, .rx = rx};
    kv_command(kp, &rx->answer_cmd);
    *out = rx;
    return ERR_OK;
fail:
    kv_rx_destroy(rx);
    return e;
}

/* ---- who is asked */

enum err kv_tx_lend(struct kv_tx *tx, const int32_t *table, int n_table,
                    void (*on_end)(void *arg, enum err e, const char *text,
                                   const struct kv_tx_stats *st),
                    void *arg) {
    const uint32_t n = (uint32_t)n_table < tx->n_blocks ? (uint32_t)n_table : tx->n_blocks;
    tx->lent_table = malloc(n * sizeof(*table));
    if (tx->lent_table == NULL) return ERR_NO_MEMORY;
    memcpy(tx->lent_table, table, n * sizeof(*table));
    tx->n_lent = n;
    tx->cb = (struct kv_tx_opts){.n_blocks = n, .on_end = on_end, .arg = arg};
    atomic_store_explicit(&tx->table, tx->lent_table, memory_order_release);
    for (uint32_t i = 0; i < tx->kp->o.n_layers; i++)
        atomic_store_explicit(&tx->ready[i], n, memory_order_release);
    tx->offer_cmd = (struct kv_cmd){.kind = KV_CMD_TX_LEND, .tx = tx};
    kv_command(tx->kp, &tx->offer_cmd);
    return ERR_OK;
}

void kv_tx_decline(struct kv_tx **txp, enum err code, const char *text) {
    struct kv_tx *tx = *txp;
    *txp = NULL;
    tx->decline_code = code;
    snprintf(tx->decline_text, sizeof(tx->decline_text), "%s", text);
    tx->offer_cmd = (struct kv_cmd){.kind = KV_CMD_TX_DECLINE, .tx = tx};
    kv_command(tx->kp, &tx->offer_cmd);
}
