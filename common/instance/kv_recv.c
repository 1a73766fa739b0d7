/* kv_recv: transfers in: offers, blocks straight into reserved memory, and the one decision that
 * counts: a request is decoded only when every (layer, block) of it has come once, whole, under its
 * own key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/kv_link.h"

static const char pull_failed[] = "Pull kv failed irreversibly.";

void kv_rx_destroy(struct kv_rx *rx) {
    struct kv_plane *kp = rx->kp;
    kv_commit_free(&rx->commit);
    wr_free(&rx->ask);
    free(rx->have);
    free(rx->table);
    free(rx);
    kv_unref(kp);
}

static void unlist(struct kv_rx *rx) {
    if (rx->link == NULL) return;
    for (struct kv_rx **at = &rx->link->rx; *at != NULL; at = &(*at)->next) {
        if (*at == rx) {
            *at = rx->next;
            break;
        }
    }
    rx->link = NULL;
}

static void post_end(struct kv_plane *kp, struct kv_rx *rx, enum err e, const char *text) {
    struct kv_event ev = {.kind = KV_EV_RX_END, .rx = rx, .e = e};
    snprintf(ev.text, sizeof(ev.text), "%s", text);
    kv_post(kp, &ev);
}

/* From here on no block is written. Who has not answered the offer yet hears that he need not, and
 * of the end when he does. */
static void rx_end(struct kv_plane *kp, struct kv_rx *rx, enum err e, const char *text) {
    unlist(rx);
    rx->state = RX_ENDED;
    rx->end = e;
    if (rx->granted) {
        post_end(kp, rx, e, text);
        return;
    }
    struct kv_event ev = {.kind = KV_EV_WITHDRAWN, .key = rx->key};
    kv_post(kp, &ev);
}

static void release(struct kv_plane *kp, struct kv_rx *rx, enum kv_release_reason reason,
                    const char *text) {
    if (rx->link == NULL || rx->link->pipe == NULL) return;
    struct kv_release m = {.key = rx->key, .reason = (uint8_t)reason};
    snprintf(m.text, sizeof(m.text), "%s", text);
    kv_release_pack(&kp->scratch, &m);
    kv_pipe_send(kp, rx->link->pipe);
}

static void refuse(struct kv_plane *kp, struct kv_link *l, const struct kv_key *k, enum err code,
                   const char *text) {
    struct kv_refuse m = {.key = *k, .code = (uint16_t)code};
    snprintf(m.text, sizeof(m.text), "%s", text);
    kv_refuse_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->pipe);
}

void kv_rx_end_all(struct kv_plane *kp, struct kv_link *l, enum err e, const char *text) {
    while (l->rx != NULL) rx_end(kp, l->rx, e, text);
}

static struct kv_rx *find(const struct kv_link *l, const struct kv_key *k) {
    struct kv_rx *rx = l->rx;
    while (rx != NULL && !kv_key_equal(&rx->key, k)) rx = rx->next;
    return rx;
}

/* Counts a frame whose request is not live here: of another attempt, or of nobody. */
static void count_foreign(struct kv_plane *kp, const struct kv_link *l, const struct kv_key *k) {
    for (const struct kv_rx *rx = l->rx; rx != NULL; rx = rx->next) {
        if (strcmp(rx->key.req_id, k->req_id) == 0) {
            KV_COUNT(kp, n_stale, 1);
            return;
        }
    }
    KV_COUNT(kp, n_unknown, 1);
}

static size_t n_pairs(const struct kv_plane *kp, const struct kv_rx *rx) {
    return (size_t)kp->o.n_layers * rx->n_blocks;
}

static bool has(const struct kv_rx *rx, uint32_t layer, uint32_t block) {
    size_t i = (size_t)layer * rx->n_blocks + block;
    return (rx->have[i / 8] >> (i % 8)) & 1;
}

static void set_has(struct kv_rx *rx, uint32_t layer, uint32_t block) {
    size_t i = (size_t)layer * rx->n_blocks + block;
    rx->have[i / 8] |= (uint8_t)(1u << (i % 8));
}

/* From now on blocks [n_held, n_blocks) may come. False: no memory. */
static bool expect_blocks(struct kv_plane *kp, struct kv_rx *rx) {
    rx->have = calloc(n_pairs(kp, rx) / 8 + 1, 1);
    if (rx->have == NULL) return false;
    for (uint32_t layer = 0; layer < kp->o.n_layers; layer++) {
        for (uint32_t b = 0; b < rx->n_held; b++) set_has(rx, layer, b);
    }
    rx->n_missing = n_pairs(kp, rx) - (size_t)kp->o.n_layers * rx->n_held;
    rx->state = RX_GRANTED;
    return true;
}

/* ---- fetches */

static void fetch(struct kv_plane *kp, struct kv_rx *rx) {
    struct kv_link *l = kv_link_of(kp, rx->peer);
    if (l == NULL || !l->up || l->gen != rx->gen) {
        rx_end(kp, rx, ERR_PEER_LOST, "before the fetch began");
        return;
    }
    rx->state = RX_FETCHING;
    rx->link = l;
    rx->lease_until_ms = clock_ms() + kp->o.lease_ms;
    rx->next = l->rx;
    l->rx = rx;
    wr_clear(&kp->scratch);
    wr_bytes(&kp->scratch, rx->ask.data, rx->ask.len);
    wr_free(&rx->ask);
    kv_pipe_send(kp, l->pipe);
}

static void fetch_if_whole(struct kv_plane *kp, struct kv_link *l, struct kv_rx *rx) {
    if (!rx->fetched || rx->n_missing > 0) return;
    rx->commit.n_blocks = rx->n_blocks;
    kv_ack_pack(&kp->scratch, &rx->key);
    kv_pipe_send(kp, l->pipe);
    rx_end(kp, rx, ERR_OK, "");
}

static void on_lend(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_lend m = {0};
    struct kv_rx *rx = kv_lend_unpack(r, &m) == ERR_OK ? find(l, &m.key) : NULL;
    if (rx == NULL || rx->state != RX_FETCHING) {
        KV_COUNT(kp, n_unknown, 1);
        return;
    }
    if (m.code != ERR_OK) {
        rx_end(kp, rx, ERR_REFUSED, m.text);
        return;
    }
    if (m.n_blocks > rx->n_blocks) {
        KV_COUNT(kp, n_out_of_range, 1);
        release(kp, rx, KV_RELEASE_REJECTED, "more blocks are lent than were asked for");
        rx_end(kp, rx, ERR_REFUSED, "more blocks were lent than asked for");
        return;
    }
    rx->n_blocks = m.n_blocks;
    if (rx->n_held > rx->n_blocks) rx->n_held = rx->n_blocks;
    if (expect_blocks(kp, rx)) {
        fetch_if_whole(kp, l, rx);
        return;
    }
    release(kp, rx, KV_RELEASE_FAILED, err_text(ERR_NO_MEMORY));
    rx_end(kp, rx, ERR_NO_MEMORY, err_text(ERR_NO_MEMORY));
}

/* ---- the loop's answers */

static void grant(struct kv_plane *kp, struct kv_rx *rx) {
    rx->granted = true;
    if (rx->state == RX_ENDED) {
        post_end(kp, rx, rx->end, "the offer was withdrawn");
        return;
    }
    if (!expect_blocks(kp, rx)) {
        refuse(kp, rx->link, &rx->key, ERR_NO_MEMORY, err_text(ERR_NO_MEMORY));
        rx_end(kp, rx, ERR_NO_MEMORY, err_text(ERR_NO_MEMORY));
        return;
    }
    struct kv_grant m = {.key = rx->key, .n_held = rx->n_held};
    kv_grant_pack(&kp->scratch, &m);
    kv_pipe_send(kp, rx->link->pipe);
}

void kv_rx_command(struct kv_plane *kp, struct kv_cmd *c) {
    struct kv_rx *rx = c->rx;
    bool live = rx->state != RX_ENDED;
    switch (c->kind) {
    case KV_CMD_RX_GRANT: grant(kp, rx); break;
    case KV_CMD_RX_BUSY:
        if (live) {
            struct kv_busy m = {.key = rx->key, .retry_after_ms = rx->retry_after_ms};
            kv_busy_pack(&kp->scratch, &m);
            kv_pipe_send(kp, rx->link->pipe);
            unlist(rx);
        }
        kv_rx_destroy(rx);
        break;
    case KV_CMD_RX_REFUSE:
        if (live) {
            refuse(kp, rx->link, &rx->key, rx->answer_code, rx->answer_text);
            unlist(rx);
        }
        kv_rx_destroy(rx);
        break;
    case KV_CMD_RX_CANCEL:
        if (!live) break;
        release(kp, rx, rx->cancel_why == ERR_CANCELLED ? KV_RELEASE_CANCEL : KV_RELEASE_REJECTED,
                rx->cancel_text);
        rx_end(kp, rx, ERR_CANCELLED, rx->cancel_text);
        break;
    case KV_CMD_RX_FETCH: fetch(kp, rx); break;
    case KV_CMD_RX_FREE: kv_rx_destroy(rx); break;
    default: break;
    }
}

/* ---- frames of P */

static bool known_anywhere(const struct kv_plane *kp, const struct kv_key *k) {
    for (const struct kv_link *l = kp->links; l != NULL; l = l->next) {
        if (find(l, k) != NULL) return true;
    }
    return false;
}

static void on_offer(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_offer m;
    struct infer_req *req = NULL;
    if (kv_offer_unpack(r, &m) != ERR_OK) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    struct rd body = rd_of(m.req, m.req_bytes);
    enum err e = (kp->io_can & CAN_DECODE) != 0 ? infer_req_unpack(&body, &req) : ERR_CONFLICT;
    bool same = e == ERR_OK && rd_done(&body) && req->head.req_id != NULL &&
                strcmp(req->head.req_id, m.key.req_id) == 0 && req->head.epoch == m.key.epoch &&
                req->head.part == m.key.part;
    uint64_t n_blocks =
        e == ERR_OK ? (req->n_ids + kp->o.block_tokens - 1) / kp->o.block_tokens : 0;
    struct kv_rx *rx = NULL;
    const char *why = NULL;
    if (e == ERR_CONFLICT) {
        why = "not a decode instance";
    } else if (e == ERR_NO_MEMORY) {
        why = err_text(e);
    } else if (!same || n_blocks != m.n_blocks) {
        KV_COUNT(kp, n_protocol, 1);
        e = ERR_INVALID;
        why = "the offer does not fit its request";
    } else if (known_anywhere(kp, &m.key)) {
        KV_COUNT(kp, n_repeated, 1);
        e = ERR_CONFLICT;
        why = "this attempt of the request is under way already";
    } else if ((rx = calloc(1, sizeof(*rx))) == NULL) {
        e = ERR_NO_MEMORY;
        why = err_text(e);
    }
    if (rx == NULL) {
        infer_req_destroy(&req);
        refuse(kp, l, &m.key, e, why);
        return;
    }
    rx->kp = kp;
    kv_ref(kp);
    rx->key = m.key;
    rx->n_blocks = m.n_blocks;
    rx->link = l;
    rx->lease_until_ms = clock_ms() + kp->o.lease_ms;
    rx->next = l->rx;
    l->rx = rx;
    struct kv_event ev = {
        .kind = KV_EV_OFFER, .peer = l->peer, .rx = rx, .req = req, .n_blocks = m.n_blocks};
    kv_post(kp, &ev);
}

/* A block goes where it lies until a step reads it, past the caches: what they held of that place
 * would be read from memory first, only to be written over. */
static void place(uint8_t *to, const uint8_t *from, size_t n) {
#if defined(__SSE2__)
    if ((uintptr_t)to % 16 == 0) {
        size_t i = 0;
        for (; i + 16 <= n; i += 16)
            _mm_stream_si128((__m128i *)(void *)(to + i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
        memcpy(to + i, from + i, n - i);
        _mm_sfence(); /* before the thread that computes is told */
        return;
    }
#endif
    memcpy(to, from, n);
}

static void on_data(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_data m;
    if (kv_data_unpack(r, &m) != ERR_OK) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    struct kv_rx *rx = find(l, &m.key);
    if (rx == NULL) {
        count_foreign(kp, l, &m.key);
        return;
    }
    if (rx->state != RX_GRANTED && rx->state != RX_COMMITTED) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    size_t block = kp->o.block_bytes;
    if (m.layer >= kp->o.n_layers || m.first >= rx->n_blocks || m.n > rx->n_blocks - m.first ||
        m.n_bytes != m.n * block) {
        KV_COUNT(kp, n_out_of_range, 1);
        return;
    }
    for (uint32_t i = 0; i < m.n; i++) {
        uint32_t b = m.first + i;
        if (has(rx, m.layer,
                b)) { /* held or here already: what is verified is never written over */
            KV_COUNT(kp, n_repeated, 1);
            continue;
        }
        place(kp->o.block(kp->o.memory, (int)m.layer, rx->table[b]), m.bytes + i * block, block);
        set_has(rx, m.layer, b);
        rx->n_missing--;
    }
    fetch_if_whole(kp, l, rx);
}

static void fail_pull(struct kv_plane *kp, struct kv_link *l, struct kv_rx *rx) {
    release(kp, rx, KV_RELEASE_FAILED, pull_failed);
    rx_end(kp, rx, ERR_IO, pull_failed);
    kv_link_down(kp, l, "pull kv failed.", pull_failed);
}

/* Asks once for what is missing. */
static void pull(struct kv_plane *kp, struct kv_link *l, struct kv_rx *rx) {
    struct kv_pull m = {.key = rx->key};
    size_t cap = rx->n_missing < KV_RANGES_MAX ? (size_t)rx->n_missing : KV_RANGES_MAX;
    m.ranges = malloc(cap * sizeof(*m.ranges));
    bool fits = m.ranges != NULL;
    for (uint32_t layer = 0; layer < kp->o.n_layers && fits; layer++) {
        for (uint32_t b = 0; b < rx->n_blocks && fits; b++) {
            if (has(rx, layer, b)) continue;
            struct kv_range *last = m.n_ranges > 0 ? &m.ranges[m.n_ranges - 1] : NULL;
            if (last != NULL && last->layer == layer && last->first + last->n == b) {
                last->n++;
            } else if ((fits = m.n_ranges < cap)) {
                m.ranges[m.n_ranges++] = (struct kv_range){.layer = layer, .first = b, .n = 1};
            }
        }
    }
    if (!fits) {
        kv_pull_free(&m);
        fail_pull(kp, l, rx);
        return;
    }
    KV_COUNT(kp, n_pulls, 1);
    log_warn("kv_link", "req=%s epoch=%u peer=%u event=pull ranges=%zu: Pull kv failed reversibly.",
             rx->key.req_id, rx->key.epoch, l->id, m.n_ranges);
    rx->pulled = true;
    kv_pull_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->pipe);
    kv_pull_free(&m);
}

/* There was no memory for a commit, which comes once: P, which waits for its ack as long as the
 * link lives, is told. */
static void commit_lost(struct kv_plane *kp, struct kv_link *l, const struct kv_key *k) {
    struct kv_rx *rx = find(l, k);
    if (rx == NULL || rx->fetched) return;
    release(kp, rx, KV_RELEASE_FAILED, err_text(ERR_NO_MEMORY));
    rx_end(kp, rx, ERR_NO_MEMORY, err_text(ERR_NO_MEMORY));
}

static void on_commit(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_commit m;
    const enum err e = kv_commit_unpack(r, &m);
    if (e == ERR_NO_MEMORY) {
        commit_lost(kp, l, &m.key);
        return;
    }
    if (e != ERR_OK) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    struct kv_rx *rx = find(l, &m.key);
    if (rx == NULL || rx->fetched || (rx->state != RX_GRANTED && rx->state != RX_COMMITTED)) {
        if (rx == NULL) {
            count_foreign(kp, l, &m.key);
        } else {
            KV_COUNT(kp, n_protocol, 1);
        }
        kv_commit_free(&m);
        return;
    }
    if (m.n_blocks != rx->n_blocks || m.n_layers != kp->o.n_layers) {
        KV_COUNT(kp, n_out_of_range, 1);
        kv_commit_free(&m);
        fail_pull(kp, l, rx);
        return;
    }
    bool again = rx->has_commit;
    kv_commit_free(&rx->commit);
    rx->commit = m;
    rx->has_commit = true;
    rx->state = RX_COMMITTED;
    if (!again) rx->deadline_ms = clock_ms() + kp->o.trans_ms;
    if (rx->n_missing == 0) {
        kv_ack_pack(&kp->scratch, &rx->key);
        kv_pipe_send(kp, l->pipe);
        rx_end(kp, rx, ERR_OK, "");
    } else if (rx->pulled) {
        fail_pull(kp, l, rx);
    } else {
        pull(kp, l, rx);
    }
}

static void on_cancel(struct kv_plane *kp, struct kv_link *l, struct rd *r) {
    struct kv_key k;
    struct kv_rx *rx = kv_key_only_unpack(r, &k) == ERR_OK ? find(l, &k) : NULL;
    if (rx == NULL) {
        KV_COUNT(kp, n_unknown, 1);
        return;
    }
    rx_end(kp, rx, ERR_CANCELLED, "cancelled by the prefill instance");
}

void kv_rx_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f) {
    switch (f->type) {
    case KV_OFFER: on_offer(kp, l, &f->payload); break;
    case KV_LEND: on_lend(kp, l, &f->payload); break;
    case KV_DATA: on_data(kp, l, &f->payload); break;
    case KV_COMMIT: on_commit(kp, l, &f->payload); break;
    case KV_CANCEL: on_cancel(kp, l, &f->payload); break;
    default: break;
    }
}

/* ---- time */

void kv_rx_renew(struct kv_plane *kp, struct kv_link *l, const struct kv_key *k, uint64_t now_ms) {
    struct kv_rx *rx = find(l, k);
    if (rx != NULL) rx->lease_until_ms = now_ms + kp->o.lease_ms;
}

void kv_rx_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms) {
    for (struct kv_rx *rx = l->rx, *next; rx != NULL; rx = next) {
        next = rx->next;
        if (rx->state == RX_COMMITTED && now_ms >= rx->deadline_ms) {
            fail_pull(kp, l, rx); /* ends every transfer of the link */
            return;
        }
        if (rx->state != RX_COMMITTED && now_ms >= rx->lease_until_ms) {
            KV_COUNT(kp, n_leases_expired, 1);
            release(kp, rx, KV_RELEASE_FAILED, "the lease ran out");
            rx_end(kp, rx, ERR_TIMEOUT,
                   "the lease ran out: the prefill instance does not name the request any more");
        }
    }
}
