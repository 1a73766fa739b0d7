/* kv_plane: the loop thread's side of the links: which peers are wanted and how they stand, the
 * calls roles make, and the delivery of what the I/O thread reports. */
#include "common/instance/kv_plane.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/instance/bus.h"
#include "common/instance/kv_link.h"

enum { RATE_BYTES_MIN = 16 << 10 }; /* less says more of round trips than of the link */
static const double RATE_KEEP = 63.0 / 64;

/* ---- options */

void kv_plane_opts_default(struct kv_plane_opts *o) {
    *o = (struct kv_plane_opts){
        .inflight_bytes_max = 64u << 20,
        .heartbeat_ms = 500,
        .misses_max = 3,
        .lease_ms = 30000,
        .settle_ms = 10000,
        .connect_ms = 2000,
        .backoff_ms = 100,
        .backoff_ms_max = 500,
        .mismatch_ms_max = 10000,
        .trans_ms = 10000,
        .handover_ms = 30000,
        .idle_ms = 1000,
    };
}

static uint8_t *engine_block(const void *memory, int layer, int32_t block) {
    return engine_kv_block(memory, layer, block);
}

static void engine_load(const void *memory, uint64_t *free_blocks, uint32_t *queue_len) {
    struct engine_stats st;
    engine_stats(memory, &st);
    *free_blocks = st.blocks_free > 0 ? (uint64_t)st.blocks_free : 0;
    *queue_len = st.waiting > 0 ? (uint32_t)st.waiting : 0;
}

void kv_plane_opts_of_engine(struct kv_plane_opts *o, const struct engine *e) {
    const struct model_info *m = engine_model(e);
    memcpy(o->conf_hash, m->conf_hash, sizeof(o->conf_hash));
    memcpy(o->model_hash, m->hash, sizeof(o->model_hash));
    o->n_layers = (uint32_t)m->n_layers;
    o->n_kv_heads = (uint32_t)m->n_kv_heads;
    o->head_dim = (uint32_t)m->head_dim;
    o->kv_dtype = m->kv_dtype;
    o->weight_dtype = m->weight_dtype;
    o->arithmetic = m->arithmetic;
    o->block_tokens = (uint32_t)engine_block_tokens(e);
    o->block = engine_block;
    o->block_bytes = engine_kv_block_bytes(e);
    o->load = engine_load;
    o->memory = e;
}

/* ---- commands */

void kv_poke(struct kv_plane *kp) {
    if (atomic_exchange(&kp->poked, true)) return; /* told already */
    uint64_t one = 1;
    while (write(kp->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) continue;
}

void kv_ref(struct kv_plane *kp) {
    atomic_fetch_add(&kp->n_refs, 1);
}

void kv_unref(struct kv_plane *kp) {
    if (atomic_fetch_sub(&kp->n_refs, 1) > 1) return;
    if (kp->wake_fd >= 0) close(kp->wake_fd);
    pthread_mutex_destroy(&kp->mutex);
    while (kp->peers != NULL) { /* transfers name them */
        struct kv_peer *p = kp->peers;
        kp->peers = p->next;
        free(p);
    }
    while (kp->reserve != NULL) {
        struct mail *m = kp->reserve;
        kp->reserve = m->next;
        free(m);
    }
    free(kp);
}

/* After the I/O thread has ended: obeys what it no longer can. */
static void obey_leftovers(struct kv_plane *kp) {
    struct kv_cmd *c;
    while ((c = kp->cmds) != NULL) {
        if ((kp->cmds = c->next) == NULL) kp->cmds_last = &kp->cmds;
        kv_obey(kp, c, false);
    }
}

void kv_command(struct kv_plane *kp, struct kv_cmd *c) {
    c->next = NULL;
    pthread_mutex_lock(&kp->mutex);
    *kp->cmds_last = c;
    kp->cmds_last = &c->next;
    pthread_mutex_unlock(&kp->mutex);
    if (!kp->closed) {
        kv_poke(kp);
        return;
    }
    kv_ref(kp); /* freeing a transfer may let go of the plane */
    obey_leftovers(kp);
    kv_unref(kp);
}

enum err kv_link_command_send(struct kv_plane *kp, enum kv_cmd_kind kind, const struct kv_peer *p) {
    struct kv_link_cmd *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    c->cmd.kind = kind;
    c->cmd.peer = (struct kv_peer *)p;
    c->can = kp->can;
    c->self_id = kp->self_id;
    if (p != NULL) {
        c->gen = p->gen;
        c->id = p->id;
        c->port = p->port;
        snprintf(c->ip, sizeof(c->ip), "%s", p->ip);
        snprintf(c->host_ip, sizeof(c->host_ip), "%s", p->host_ip);
    }
    kv_command(kp, &c->cmd);
    return ERR_OK;
}

/* ---- peers */

static void peer_state(struct kv_peer *p, bool up, bool failed, const char *code, const char *why) {
    p->up = up;
    p->failed = failed;
    if (failed) {
        snprintf(p->text, sizeof(p->text), "failed : %s", code);
        snprintf(p->full, sizeof(p->full), "%s: %s", p->text, why);
    } else {
        snprintf(p->text, sizeof(p->text), "%s", up ? "ok" : "linking");
        snprintf(p->full, sizeof(p->full), "%s%s%s", p->text, why[0] != '\0' ? ": " : "", why);
    }
}

static struct kv_peer *peer_of_node(struct kv_plane *kp, const struct role_node *n, uint16_t port) {
    for (struct kv_peer *p = kp->peers; p != NULL; p = p->next) {
        bool same = n->has_id ? p->id == n->id : p->id == 0;
        if (same && strcmp(p->ip, n->server_ip) == 0 && p->port == port) return p;
    }
    struct kv_peer *p = calloc(1, sizeof(*p));
    if (p == NULL) return NULL;
    p->kp = kp;
    p->id = n->has_id ? n->id : 0;
    p->port = port;
    snprintf(p->ip, sizeof(p->ip), "%s", n->server_ip);
    snprintf(p->host_ip, sizeof(p->host_ip), "%s", n->host_ip);
    struct kv_peer **at = &kp->peers;
    while (*at != NULL) at = &(*at)->next;
    *at = p;
    return p;
}

static enum err unwant(struct kv_plane *kp, struct kv_peer *p) {
    enum err e = kv_link_command_send(kp, KV_CMD_UNLINK, p);
    if (e != ERR_OK) return e;
    p->wanted = false;
    p->gen++; /* whatever the I/O thread still says of the old link is ignored */
    peer_state(p, false, false, "", "");
    return ERR_OK;
}

static enum err want(struct kv_plane *kp, struct kv_peer *p) {
    if (p->wanted && !p->failed) return ERR_OK;
    peer_state(p, false, false, "", "");
    if (p->wanted) return kv_link_command_send(kp, KV_CMD_RETRY, p);
    p->wanted = true;
    p->gen++;
    return kv_link_command_send(kp, KV_CMD_LINK, p);
}

enum err kv_plane_want(struct kv_plane *kp, unsigned can, uint32_t self_id,
                       const struct role_node *peers, size_t n_peers) {
    if (n_peers > INSTANCES_MAX) return ERR_TOO_LARGE;
    enum err e = ERR_OK;
    struct kv_peer **wanted = calloc(n_peers + 1, sizeof(struct kv_peer *));
    if (wanted == NULL) return ERR_NO_MEMORY;
    const bool links = can != 0;
    for (size_t i = 0; links && i < n_peers; i++) {
        uint16_t port = peers[i].inter_comm_port != 0 ? peers[i].inter_comm_port : kp->port;
        if ((wanted[i] = peer_of_node(kp, &peers[i], port)) == NULL) goto no_memory;
    }
    /* What both sides of a link still do needs no new one. */
    const bool anew = self_id != kp->self_id || (can & kp->can) == 0;
    for (struct kv_peer *p = kp->peers; p != NULL; p = p->next) {
        bool keep = false;
        for (size_t i = 0; i < n_peers && !anew; i++) keep = keep || wanted[i] == p;
        if (p->wanted && !keep && (e = unwant(kp, p)) != ERR_OK) goto out;
    }
    if (anew || can != kp->can) {
        kp->can = can;
        kp->self_id = self_id;
        if ((e = kv_link_command_send(kp, KV_CMD_ROLE, NULL)) != ERR_OK) goto out;
    }
    for (size_t i = 0; links && i < n_peers; i++) {
        if ((e = want(kp, wanted[i])) != ERR_OK) goto out;
    }
    struct kv_event *ev = calloc(1, sizeof(*ev));
    if (ev == NULL) goto no_memory;
    ev->kind = KV_EV_SETTLE;
    mailbox_put(kp->mail, &ev->head);
out:
    free(wanted);
    return e;
no_memory:
    free(wanted);
    return ERR_NO_MEMORY;
}

void kv_plane_counts(const struct kv_plane *kp, unsigned *n_wanted, unsigned *n_ok,
                     unsigned *n_failed, unsigned *n_linking) {
    *n_wanted = *n_ok = *n_failed = *n_linking = 0;
    for (const struct kv_peer *p = kp->peers; p != NULL; p = p->next) {
        if (!p->wanted) continue;
        ++*n_wanted;
        ++*(p->up ? n_ok : p->failed ? n_failed : n_linking);
    }
}

size_t kv_plane_links(const struct kv_plane *kp, struct link_status **links) {
    unsigned n_wanted, n_ok, n_failed, n_linking;
    kv_plane_counts(kp, &n_wanted, &n_ok, &n_failed, &n_linking);
    size_t n = 0;
    *links = calloc(n_ok + n_failed + 1, sizeof(**links));
    if (*links == NULL) return 0;
    for (const struct kv_peer *p = kp->peers; p != NULL; p = p->next) {
        if (!p->wanted || (!p->up && !p->failed)) continue;
        struct link_status *s = &(*links)[n++];
        s->target = p->id;
        s->ok = p->up;
        snprintf(s->text, sizeof(s->text), "%s", p->text);
        snprintf(s->server_ip, sizeof(s->server_ip), "%s", p->ip);
        s->bytes_per_s = (uint64_t)p->bytes_per_s;
        s->idle_bytes_per_s = (uint64_t)p->idle_bytes_per_s;
        s->rtt_us = p->up ? p->rtt_us : 0;
        const char *why = strstr(p->full + (p->up ? 0 : strlen("failed : ")), ": ");
        if (why != NULL) snprintf(s->detail, sizeof(s->detail), "%s", why + 2);
    }
    return n;
}

void kv_peer_note_rate(struct kv_peer *p, uint64_t bytes, uint64_t us) {
    if (p == NULL || us == 0 || bytes < RATE_BYTES_MIN) return;
    const double now = (double)bytes / ((double)us * 1e-6), kept = p->bytes_per_s * RATE_KEEP;
    p->bytes_per_s = now > kept ? now : kept;
}

/* "ip" or "ip;port". */
struct target {
    size_t n_ip;
    unsigned long port; /* 0: not given */
};

static struct target target_of(const char *text) {
    const char *semi = strchr(text, ';');
    return (struct target){semi != NULL ? (size_t)(semi - text) : strlen(text),
                           semi != NULL ? strtoul(semi + 1, NULL, 10) : 0};
}

static bool is_ip(const char *ip, const char *text, const struct target *t) {
    return strlen(ip) == t->n_ip && memcmp(ip, text, t->n_ip) == 0;
}

struct kv_peer *kv_plane_find(const struct kv_plane *kp, const char *text) {
    const struct target t = target_of(text);
    struct kv_peer *found = NULL;
    for (struct kv_peer *p = kp->peers; p != NULL; p = p->next) {
        const bool same_ip = is_ip(p->ip, text, &t) || is_ip(p->host_ip, text, &t);
        if (!p->wanted || !same_ip || (t.port != 0 && p->port != t.port)) continue;
        if (p->up) return p;
        if (found == NULL) found = p;
    }
    return found;
}

bool kv_plane_is_self(const struct kv_plane *kp, const char *text) {
    const struct target t = target_of(text);
    return is_ip(kp->bind_ip, text, &t) && (t.port == 0 || t.port == kp->port);
}

struct kv_peer *kv_plane_find_id(const struct kv_plane *kp, uint32_t id) {
    for (struct kv_peer *p = kp->peers; p != NULL; p = p->next) {
        if (p->wanted && p->id == id) return p;
    }
    return NULL;
}

uint32_t kv_peer_id(const struct kv_peer *p) {
    return p->id;
}

bool kv_peer_up(const struct kv_peer *p) {
    return p->wanted && p->up;
}

const char *kv_peer_text(const struct kv_peer *p) {
    return p->wanted ? p->full : "not wanted";
}

/* ---- transfers out */

enum err kv_tx_open(struct kv_tx **out, struct kv_peer *peer, const struct kv_tx_opts *o) {
    struct kv_plane *kp = peer->kp;
    *out = NULL;
    if (!kv_peer_up(peer)) return ERR_PEER_LOST;
    if (strlen(o->req->head.req_id) > REQ_ID_BYTES_MAX || o->n_blocks == 0) return ERR_INVALID;
    size_t n_layers = kp->o.n_layers;
    struct kv_tx *tx = calloc(1, sizeof(*tx) + n_layers * sizeof(tx->ready[0]));
    if (tx == NULL) return ERR_NO_MEMORY;
    enum err e = ERR_NO_MEMORY;
    tx->kp = kp;
    kv_ref(kp);
    tx->peer = peer;
    tx->gen = peer->gen;
    tx->cb = *o;
    tx->cb.req = NULL;
    tx->n_blocks = o->n_blocks;
    kv_key_set(&tx->key, o->req->head.req_id, o->req->head.epoch, o->req->head.part);
    if ((tx->sent = calloc(n_layers, sizeof(*tx->sent))) == NULL) goto fail;
    kv_offer_pack(&tx->offer, &tx->key, o->n_blocks, kp->o.lease_ms, o->req);
    if (tx->offer.failed) goto fail;
    const struct sampling *sp = &o->req->sampling;
    size_t n_logged = sp->prompt_logprobs ? o->req->n_prompt : 0;
    if (tx->offer.len - KV_HEAD_BYTES > KV_FRAME_BYTES_MAX ||
        kv_commit_bytes_max((size_t)sp->n_choices * (sp->beam ? 2 : 1), n_logged,
                            (size_t)sp->prompt_top_logprobs) > KV_FRAME_BYTES_MAX) {
        e = ERR_TOO_LARGE;
        goto fail;
    }
    tx->open_cmd = (struct kv_cmd){.kind = KV_CMD_TX_OPEN, .peer = peer, .tx = tx};
    kv_command(kp, &tx->open_cmd);
    *out = tx;
    return ERR_OK;
fail:
    kv_tx_destroy(tx);
    return e;
}

bool kv_peer_grants_first(const struct kv_peer *peer) {
    return peer->kp->can == CAN_BOTH && peer->id < peer->kp->self_id;
}

void kv_tx_offer(struct kv_tx *tx) {
    if (tx->offered || tx->cancelled || tx->over) return;
    tx->offered = true;
    tx->offer_cmd = (struct kv_cmd){.kind = KV_CMD_TX_OFFER, .tx = tx};
    kv_command(tx->kp, &tx->offer_cmd);
}

void kv_tx_patient(struct kv_tx *tx) {
    atomic_store(&tx->patient, true);
}

void kv_tx_ready(struct kv_tx *tx, const int32_t *table, int layer, int first, int n) {
    uint32_t end = (uint32_t)(first + n);
    if (layer < 0 || (uint32_t)layer >= tx->kp->o.n_layers) return;
    if (end > tx->n_blocks)
        end = tx->n_blocks; /* room for tokens to come is not part of the hand-over */
    atomic_store_explicit(&tx->table, table, memory_order_release);
    if (atomic_load_explicit(&tx->ready[layer], memory_order_relaxed) >= end) return;
    atomic_store_explicit(&tx->ready[layer], end, memory_order_release);
    kv_poke(tx->kp);
}

void kv_tx_commit(struct kv_tx *tx, struct kv_commit *c) {
    if (tx->committed || tx->over) {
        kv_commit_free(c);
        return;
    }
    tx->committed = true;
    tx->commit = *c;
    *c = (struct kv_commit){0};
    tx->commit.key = tx->key;
    tx->commit.n_blocks = tx->n_blocks;
    tx->commit.n_layers = tx->kp->o.n_layers;
    tx->commit_us = clock_us();
    tx->commit_cmd = (struct kv_cmd){.kind = KV_CMD_TX_COMMIT, .tx = tx};
    kv_command(tx->kp, &tx->commit_cmd);
}

void kv_tx_cancel(struct kv_tx *tx) {
    if (tx->cancelled || tx->over) return;
    tx->cancelled = true;
    tx->cancel_cmd = (struct kv_cmd){.kind = KV_CMD_TX_CANCEL, .tx = tx};
    kv_command(tx->kp, &tx->cancel_cmd);
}

void kv_tx_free(struct kv_tx **txp) {
    struct kv_tx *tx = *txp;
    if (tx == NULL) return;
    *txp = NULL;
    /* Earlier commands may still point into it, so the I/O thread frees it, after them. */
    tx->free_cmd = (struct kv_cmd){.kind = KV_CMD_TX_FREE, .tx = tx};
    kv_command(tx->kp, &tx->free_cmd);
}

/* ---- transfers in */

void kv_plane_on_offer(struct kv_plane *kp, kv_offer_fn *fn, void *arg) {
    kp->on_offer = fn;
    kp->on_offer_arg = arg;
}

void kv_plane_on_withdrawn(struct kv_plane *kp, kv_withdrawn_fn *fn, void *arg) {
    kp->on_withdrawn = fn;
    kp->on_withdrawn_arg = arg;
}

enum err kv_rx_grant(struct kv_rx *rx, const int32_t *table, int n_table, int n_held,
                     kv_rx_end_fn *on_end, void *arg) {
    if (n_table < 0 || (uint32_t)n_table < rx->n_blocks || n_held < 0 ||
        (uint32_t)n_held > rx->n_blocks)
        return ERR_INVALID;
    rx->table = malloc(rx->n_blocks * sizeof(*rx->table));
    if (rx->table == NULL) return ERR_NO_MEMORY;
    memcpy(rx->table, table, rx->n_blocks * sizeof(*rx->table));
    rx->n_held = (uint32_t)n_held;
    rx->on_end = on_end;
    rx->arg = arg;
    rx->answer_cmd = (struct kv_cmd){.kind = KV_CMD_RX_GRANT, .rx = rx};
    kv_command(rx->kp, &rx->answer_cmd);
    return ERR_OK;
}

void kv_rx_busy(struct kv_rx **rxp, unsigned retry_after_ms) {
    struct kv_rx *rx = *rxp;
    *rxp = NULL;
    rx->retry_after_ms = retry_after_ms;
    rx->answer_cmd = (struct kv_cmd){.kind = KV_CMD_RX_BUSY, .rx = rx};
    kv_command(rx->kp, &rx->answer_cmd);
}

void kv_rx_refuse(struct kv_rx **rxp, enum err code, const char *text) {
    struct kv_rx *rx = *rxp;
    *rxp = NULL;
    rx->answer_code = code;
    snprintf(rx->answer_text, sizeof(rx->answer_text), "%s", text);
    rx->answer_cmd = (struct kv_cmd){.kind = KV_CMD_RX_REFUSE, .rx = rx};
    kv_command(rx->kp, &rx->answer_cmd);
}

void kv_rx_cancel(struct kv_rx *rx, enum err why, const char *text) {
    if (rx->cancelled) return;
    rx->cancelled = true;
    rx->cancel_why = why;
    snprintf(rx->cancel_text, sizeof(rx->cancel_text), "%s", text);
    rx->cancel_cmd = (struct kv_cmd){.kind = KV_CMD_RX_CANCEL, .rx = rx};
    kv_command(rx->kp, &rx->cancel_cmd);
}

void kv_rx_free(struct kv_rx **rxp) {
    struct kv_rx *rx = *rxp;
    if (rx == NULL) return;
    *rxp = NULL;
    rx->free_cmd = (struct kv_cmd){.kind = KV_CMD_RX_FREE, .rx = rx};
    kv_command(rx->kp, &rx->free_cmd);
}

/* ---- events */

static void tell_settled(struct kv_plane *kp) {
    unsigned n_wanted, n_ok, n_failed, n_linking;
    kv_plane_counts(kp, &n_wanted, &n_ok, &n_failed, &n_linking);
    if (n_linking == 0 && kp->o.on_settled != NULL) kp->o.on_settled(kp->o.arg, n_ok, n_wanted);
}

static void on_link_event(struct kv_plane *kp, const struct kv_event *ev) {
    struct kv_peer *p = ev->peer;
    if (!p->wanted || p->gen != ev->gen) return;
    bool was_up = p->up;
    peer_state(p, ev->up, !ev->up, ev->code, ev->text);
    log_write(ev->up ? LOG_INFO : LOG_WARN, "kv_link", "peer=%u addr=%s:%u state=\"%s\"", p->id,
              p->ip, p->port, p->full);
    if (was_up != ev->up && kp->o.on_link != NULL) kp->o.on_link(kp->o.arg, p, ev->up);
    tell_settled(kp);
}

static void on_offer_event(struct kv_plane *kp, struct kv_event *ev) {
    struct kv_rx *rx = ev->rx;
    if (kp->on_offer == NULL || kp->closing) {
        infer_req_destroy(&ev->req);
        kv_rx_refuse(&rx, ERR_CONFLICT, "the instance is not a decode instance");
        return;
    }
    kp->on_offer(kp->on_offer_arg, ev->peer, rx, ev->req, ev->n_blocks);
}

static void on_fetch_event(struct kv_plane *kp, struct kv_event *ev) {
    struct kv_tx *tx = ev->tx;
    if (kp->on_fetch == NULL || kp->closing) {
        infer_req_destroy(&ev->req);
        kv_tx_decline(&tx, ERR_CONFLICT, "the instance lends no blocks");
        return;
    }
    kp->on_fetch(kp->on_fetch_arg, ev->peer, tx, ev->req, ev->n_blocks);
}

static void deliver(void *arg, struct mail *m) {
    struct kv_plane *kp = arg;
    struct kv_event *ev = (struct kv_event *)m;
    switch (ev->kind) {
    case KV_EV_LINK: on_link_event(kp, ev); break;
    case KV_EV_SETTLE: tell_settled(kp); break;
    case KV_EV_MEASURED: kv_measure_deliver(kp, ev); break;
    case KV_EV_OFFER: on_offer_event(kp, ev); break;
    case KV_EV_FETCH: on_fetch_event(kp, ev); break;
    case KV_EV_WITHDRAWN:
        if (kp->on_offer != NULL && kp->on_withdrawn != NULL && !kp->closing)
            kp->on_withdrawn(kp->on_withdrawn_arg, &ev->key);
        break;
    case KV_EV_TX_GRANTED:
        if (ev->tx->cb.on_granted != NULL && !ev->tx->over)
            ev->tx->cb.on_granted(ev->tx->cb.arg, ev->n_held);
        break;
    case KV_EV_TX_END:
        ev->tx->over = true;
        ev->tx->cb.on_end(ev->tx->cb.arg, ev->e, ev->text, &ev->stats);
        break;
    case KV_EV_RX_END:
        ev->rx->on_end(ev->rx->arg, ev->e, ev->text, ev->e == ERR_OK ? &ev->rx->commit : NULL);
        break;
    }
    free(ev);
}

/* Left over at the close: ends are still told, offers go back unanswered. */
void kv_deliver_late(void *arg, struct mail *m) {
    struct kv_event *ev = (struct kv_event *)m;
    if (ev->kind == KV_EV_TX_END || ev->kind == KV_EV_RX_END) {
        deliver(arg, m);
        return;
    }
    if (ev->kind == KV_EV_OFFER) {
        infer_req_destroy(&ev->req);
        kv_rx_destroy(ev->rx);
    } else if (ev->kind == KV_EV_FETCH) {
        infer_req_destroy(&ev->req);
        kv_tx_destroy(ev->tx);
    }
    free(ev);
}

/* ---- life */

enum err kv_plane_open(struct kv_plane **out, const struct kv_plane_opts *o, struct errbuf *eb) {
    *out = NULL;
    if (o->n_layers == 0 || o->n_layers > KV_LAYERS_MAX || o->block_bytes == 0 ||
        o->block_bytes > KV_FRAME_BYTES_MAX - REQ_ID_BYTES_MAX - KV_HEAD_BYTES) {
        return err_set(
            eb, ERR_BAD_CONFIG,
            "a KV block of %zu bytes a layer does not fit into a frame of the KV link (%d)",
            o->block_bytes, KV_FRAME_BYTES_MAX);
    }
    struct kv_plane *kp = calloc(1, sizeof(*kp));
    if (kp == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    kp->o = *o;
    if (o->tls != NULL) kp->o.tls = tls_ref(o->tls);
    if (o->budget != NULL) {
        budget_limit_set(o->budget, BUDGET_KV_LISTENER, KV_STRANGERS_MAX);
        budget_limit_set(o->budget, BUDGET_KV_LENDS, KV_LENDS_MAX);
    }
    snprintf(kp->bind_ip, sizeof(kp->bind_ip), "%s", o->bind_ip);
    kp->listener = kp->wake_fd = -1;
    kp->cmds_last = &kp->cmds;
    atomic_init(&kp->n_refs, 1);
    pthread_mutex_init(&kp->mutex, NULL);
    if (getrandom(&kp->boot, sizeof(kp->boot), 0) != sizeof(kp->boot)) kp->boot = clock_unix_us();
    enum err e = mailbox_open(&kp->mail, o->loop, deliver, kp);
    if (e != ERR_OK) goto fail;
    if ((kp->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) {
        e = err_set(eb, ERR_IO, "eventfd: %s", strerror(errno));
        goto fail;
    }
    heap_keep();
    if ((e = kv_listener_open(kp, eb)) != ERR_OK) goto fail;
    if (pthread_create(&kp->thread, NULL, kv_io_main, kp) != 0) {
        e = err_set(eb, ERR_NO_MEMORY, "KV link: cannot start a thread");
        goto fail;
    }
    kp->started = true;
    *out = kp;
    return ERR_OK;
fail:
    kv_plane_close(&kp);
    return e;
}

void kv_plane_close(struct kv_plane **kpp) {
    struct kv_plane *kp = *kpp;
    if (kp == NULL) return;
    *kpp = NULL;
    kp->closing = true;
    if (kp->started) {
        pthread_mutex_lock(&kp->mutex);
        kp->stop = true;
        pthread_mutex_unlock(&kp->mutex);
        kv_poke(kp);
        pthread_join(kp->thread, NULL);
    }
    /* Ending what lives makes events, events make commands (kv_tx_free), commands may end what had
     * not begun. From mailbox_close() on kv_post() delivers at once. */
    kv_link_free_all(kp);
    mailbox_close(&kp->mail, kv_deliver_late, kp);
    obey_leftovers(kp);
    kp->closed = true;
    kv_listener_close(kp);
    wr_free(&kp->scratch);
    free(kp->polls);
    kp->polls = NULL;
    tls_close(&kp->o.tls);
    kv_unref(kp); /* transfers not yet freed keep the rest */
}

uint16_t kv_plane_port(const struct kv_plane *kp) {
    return kp->port;
}

void kv_plane_stats(const struct kv_plane *kp, struct kv_plane_stats *out) {
    const struct kv_counters *c = &kp->count;
#define COPY(member) out->member = atomic_load_explicit(&c->member, memory_order_relaxed)
    COPY(n_frames_in);
    COPY(n_frames_out);
    COPY(bytes_in);
    COPY(bytes_out);
    COPY(n_corrupt);
    COPY(n_repeated);
    COPY(n_lost);
    COPY(n_stale);
    COPY(n_unknown);
    COPY(n_out_of_range);
    COPY(n_protocol);
    COPY(n_strangers);
    COPY(n_pulls);
    COPY(n_leases_expired);
    COPY(inflight_bytes_peak);
#undef COPY
}
