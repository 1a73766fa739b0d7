/* kv_link: the life of a link: hellos over a pair that the listener (kv_listener) gave, heartbeats,
 * failure and the next try.
 *
 *   lower id:  idle -> asks the other's listener -> connects the pair it was told, HELLO
 *              -> the other's HELLO and OK -> OK -> up
 *   higher id: listener asked -> binds a pair for this one peer, ticket -> HELLO with the ticket
 *              -> own HELLO and OK -> the other's OK -> up
 *
 * With TLS the handshake (kv_auth) stands before the first HELLO, and every HELLO is sealed
 * already.
 * A pair that is up is replaced only by one whose hello was right, so whoever merely knocks cannot
 * end a link. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/bus.h"
#include "common/instance/kv_link.h"

static void code_text(char out[32], unsigned code) {
    snprintf(out, 32, "%u", code);
}

struct kv_link *kv_link_of(struct kv_plane *kp, const struct kv_peer *peer) {
    for (struct kv_link *l = kp->links; l != NULL; l = l->next) {
        if (l->peer == peer) return l;
    }
    return NULL;
}

bool kv_link_connects(const struct kv_plane *kp, const struct kv_link *l) {
    return l->id != 0 && kp->io_self_id != 0 ? kp->io_self_id < l->id : kp->io_can == CAN_PREFILL;
}

static enum inst_role role_of(unsigned can) {
    return can == CAN_PREFILL  ? ROLE_PREFILL
           : can == CAN_DECODE ? ROLE_DECODE
           : can == CAN_BOTH   ? ROLE_FLEX
                               : ROLE_NONE;
}

static void my_hello(const struct kv_plane *kp, uint64_t ticket, struct kv_hello *h) {
    *h = (struct kv_hello){
        .instance_id = kp->io_self_id,
        .role = (uint8_t)role_of(kp->io_can),
        .may_differ = kp->o.may_differ,
        .protocol = KV_VERSION,
        .n_layers = kp->o.n_layers,
        .n_kv_heads = kp->o.n_kv_heads,
        .head_dim = kp->o.head_dim,
        .block_tokens = kp->o.block_tokens,
        .n_shards = 1,
        .boot = kp->boot,
        .ticket = ticket,
        .window_bytes = kp->o.inflight_bytes_max,
    };
    snprintf(h->kv_dtype, sizeof(h->kv_dtype), "%s", dtype_name(kp->o.kv_dtype));
    snprintf(h->weight_dtype, sizeof(h->weight_dtype), "%s", dtype_name(kp->o.weight_dtype));
    snprintf(h->arithmetic, sizeof(h->arithmetic), "%s",
             kp->o.arithmetic != NULL ? kp->o.arithmetic : "");
    memcpy(h->conf_hash, kp->o.conf_hash, sizeof(h->conf_hash));
    memcpy(h->model_hash, kp->o.model_hash, sizeof(h->model_hash));
    memcpy(h->tokenizer_hash, kp->o.tokenizer_hash, sizeof(h->tokenizer_hash));
}

/* ---- outcomes */

static void tell(struct kv_plane *kp, struct kv_link *l, bool up, const char *code,
                 const char *why) {
    struct kv_event ev = {.kind = KV_EV_LINK, .peer = l->peer, .gen = l->gen, .up = up};
    snprintf(ev.code, sizeof(ev.code), "%s", code);
    snprintf(ev.text, sizeof(ev.text), "%s", why);
    l->declared = true;
    kv_post(kp, &ev);
}

bool kv_link_is_hard(unsigned code) {
    return (code >= KV_LINK_VERSION && code <= KV_LINK_TOKENIZER) || code == KV_LINK_SEAL ||
           code == KV_LINK_TLS || code == KV_LINK_ARITHMETIC;
}

static void drop_attempt(struct kv_plane *kp, struct kv_link *l) {
    kv_listener_ask_end(l);
    kv_pipe_retire(kp, &l->fresh);
}

/* One attempt came to nothing. What may be over in a moment (the peer has no role yet) is tried
 * again quietly while the link settles; anything else shows at once and is tried again with growing
 * pauses. */
void kv_link_attempt_failed(struct kv_plane *kp, struct kv_link *l, unsigned code, const char *why,
                            bool soft) {
    uint64_t now = clock_ms();
    drop_attempt(kp, l);
    if (l->up) return; /* it was an attempt to replace a link that stands */
    log_debug("kv_link", "peer=%u addr=%s:%u event=attempt_failed code=%u why=\"%s\"", l->id, l->ip,
              l->port, code, why);
    if (soft && !l->declared && now < l->began_ms + kp->o.settle_ms) {
        l->next_try_ms = now + KV_SOFT_RETRY_MS;
        kv_due(kp, l->next_try_ms);
        return;
    }
    char text[32];
    code_text(text, code);
    if (!l->declared || !soft) tell(kp, l, false, text, why);
    unsigned most = kv_link_is_hard(code) ? kp->o.mismatch_ms_max : kp->o.backoff_ms_max;
    if (l->backoff_ms > most) l->backoff_ms = most;
    l->next_try_ms = now + l->backoff_ms;
    l->backoff_ms *= 2;
}

static void end_transfers(struct kv_plane *kp, struct kv_link *l, const char *text) {
    kv_tx_end_all(kp, l, ERR_PEER_LOST, text);
    kv_rx_end_all(kp, l, ERR_PEER_LOST, text);
    kv_measure_end(kp, l, ERR_PEER_LOST, text);
}

void kv_link_down(struct kv_plane *kp, struct kv_link *l, const char *code, const char *why) {
    char text[KV_TEXT_BYTES_MAX + 1];
    snprintf(text, sizeof(text), "link to instance %u lost: %s", l->id, why);
    kv_pipe_retire(kp, &l->pipe);
    l->up = false;
    end_transfers(kp, l, text);
    l->backoff_ms = kp->o.backoff_ms;
    l->next_try_ms = clock_ms() + l->backoff_ms;
    tell(kp, l, false, code, why);
}

static void link_up(struct kv_plane *kp, struct kv_link *l) {
    uint64_t now = clock_ms();
    if (l->pipe != NULL) {
        kv_pipe_retire(kp, &l->pipe);
        end_transfers(kp, l, "the peer has linked anew");
    }
    kv_listener_ask_end(l);
    l->pipe = l->fresh;
    l->fresh = NULL;
    l->pipe->state = PIPE_OPEN;
    if (l->pipe->bound)
        bus_admit(kp->bind_ip, l->pipe->port, NULL); /* the one it waited for is in */
    l->window_bytes = l->pipe->window_bytes;
    l->sent_bytes = l->acked_bytes = l->taken_bytes = l->credited_bytes = 0;
    l->silence = (struct silence){.look_ms = now};
    l->ruler = (struct kv_ruler){0};
    l->beat_ms = l->up_ms = l->quiet_ms = now;
    l->backoff_ms = kp->o.backoff_ms;
    l->up = true;
    tell(kp, l, true, "", l->differs);
}

/* ---- commands */

static void link_free(struct kv_plane *kp, struct kv_link *l, enum err e, const char *why) {
    kv_listener_ask_end(l);
    kv_pipe_retire(kp, &l->fresh);
    if (l->pipe != NULL) {
        struct kv_refuse_link bye = {.code = KV_LINK_NOT_WANTED};
        snprintf(bye.text, sizeof(bye.text), "%s", why);
        kv_refuse_link_pack(&kp->scratch, &bye);
        kv_pipe_send(kp, l->pipe);
        kv_pipe_retire(kp, &l->pipe);
    }
    kv_tx_end_all(kp, l, e, why);
    kv_rx_end_all(kp, l, e, why);
    kv_measure_end(kp, l, e, why);
    for (struct kv_link **at = &kp->links; *at != NULL; at = &(*at)->next) {
        if (*at == l) {
            *at = l->next;
            break;
        }
    }
    free(l);
}

void kv_link_free_all(struct kv_plane *kp) {
    while (kp->links != NULL) link_free(kp, kp->links, ERR_STOPPING, "the instance ends");
    while (kp->dying != NULL) {
        struct kv_pipe *p = kp->dying;
        kp->dying = p->next;
        kv_pipe_close(&p);
    }
}

static void restart_series(struct kv_plane *kp, struct kv_link *l) {
    l->began_ms = clock_ms();
    l->next_try_ms = l->began_ms;
    kv_due(kp, l->began_ms);
    l->backoff_ms = kp->o.backoff_ms;
    l->declared = false;
}

void kv_link_command(struct kv_plane *kp, const struct kv_link_cmd *c) {
    struct kv_link *l = c->cmd.peer != NULL ? kv_link_of(kp, c->cmd.peer) : NULL;
    switch (c->cmd.kind) {
    case KV_CMD_ROLE:
        kp->io_can = c->can;
        kp->io_self_id = c->self_id;
        break;
    case KV_CMD_UNLINK:
        if (l != NULL) link_free(kp, l, ERR_PEER_LOST, "the peer is not wanted any more");
        break;
    case KV_CMD_RETRY:
        if (l == NULL) break;
        if (l->up) {
            tell(kp, l, true, "", l->differs); /* it came up before the command was here */
        } else {
            restart_series(kp, l);
        }
        break;
    case KV_CMD_MEASURE: kv_measure_begin(kp, c->cmd.peer, l); break;
    case KV_CMD_LINK:
        if ((l = calloc(1, sizeof(*l))) == NULL) {
            struct kv_event ev = {.kind = KV_EV_LINK,
                                  .peer = c->cmd.peer,
                                  .gen = c->gen,
                                  .code = "11",
                                  .text = "out of memory"};
            kv_post(kp, &ev);
            break;
        }
        l->peer = c->cmd.peer;
        l->gen = c->gen;
        l->id = c->id;
        l->port = c->port;
        snprintf(l->ip, sizeof(l->ip), "%s", c->ip);
        snprintf(l->host_ip, sizeof(l->host_ip), "%s", c->host_ip);
        l->ask_fd = -1;
        restart_series(kp, l);
        l->next = kp->links;
        kp->links = l;
        break;
    default: break;
    }
}

/* ---- the beginning: a pair that both sides know of */

static void send_hello(struct kv_plane *kp, struct kv_link *l) {
    struct kv_hello h;
    my_hello(kp, l->fresh->ticket, &h);
    l->fresh->state = PIPE_AWAIT_HELLO;
    kv_hello_pack(&kp->scratch, &h);
    kv_pipe_send(kp, l->fresh);
}

enum err kv_link_begin(struct kv_plane *kp, struct kv_link *l, int sock, uint16_t bound_port,
                       uint64_t ticket) {
    struct kv_pipe *p = kv_pipe_create(sock, bound_port != 0);
    if (p == NULL) {
        bus_close(&sock);
        return ERR_NO_MEMORY;
    }
    p->port = bound_port;
    p->ticket = ticket;
    p->state = PIPE_AWAIT_HELLO;
    p->deadline_ms = clock_ms() + kp->o.connect_ms;
    l->fresh = p;
    if (kp->o.tls != NULL) {
        enum err e = kv_auth_begin(kp, l);
        if (e != ERR_OK) kv_pipe_retire(kp, &l->fresh);
        return e;
    }
    if (!p->bound) send_hello(kp, l);
    return ERR_OK;
}

/* ---- hellos */

/* Refuses what the other side of the fresh pipe said of itself; it hears both values. */
static void refuse_fresh(struct kv_plane *kp, struct kv_link *l, unsigned code, const char *text) {
    struct kv_refuse_link m = {.code = (uint16_t)code};
    snprintf(m.text, sizeof(m.text), "%s", text);
    kv_refuse_link_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->fresh);
    kv_link_attempt_failed(kp, l, code, text, code == KV_LINK_ROLE);
}

/* Someone without the right ticket sits on the pair: the pair goes, and the rightful peer asks for
 * another. */
static void stranger_on_pair(struct kv_plane *kp, struct kv_link *l, const char *what) {
    KV_COUNT(kp, n_strangers, 1);
    log_warn("kv_link", "peer=%u event=stranger what=\"%s\"", l->id, what);
    struct kv_refuse_link m = {.code = KV_LINK_TICKET};
    snprintf(m.text, sizeof(m.text), "%s", kv_link_code_text(KV_LINK_TICKET));
    kv_refuse_link_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->fresh);
    kv_pipe_retire(kp, &l->fresh);
}

static void on_hello(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f) {
    struct kv_hello mine, theirs = {0};
    char text[KV_TEXT_BYTES_MAX + 1];
    bool bound = l->fresh->bound;
    if (kv_hello_unpack(&f->payload, &theirs) != ERR_OK ||
        (bound && theirs.ticket != l->fresh->ticket)) {
        if (bound) {
            stranger_on_pair(kp, l, "wrong ticket");
        } else {
            kv_link_attempt_failed(kp, l, KV_LINK_DAMAGED, "a damaged hello", true);
        }
        return;
    }
    my_hello(kp, bound ? 0 : theirs.ticket, &mine);
    enum kv_link_code code = kv_fit(&mine, &theirs, text);
    if (code == KV_LINK_OK && l->id != 0 && theirs.instance_id != l->id) {
        code = KV_LINK_NOT_WANTED;
        snprintf(text, sizeof(text), "instance id: wanted %u, got %u", l->id, theirs.instance_id);
    }
    if (code != KV_LINK_OK) {
        refuse_fresh(kp, l, code, text);
        return;
    }
    snprintf(l->differs, sizeof(l->differs), "%s", text);
    l->fresh->ticket = 0; /* good once */
    l->fresh->window_bytes = theirs.window_bytes;
    if (bound) {
        kv_hello_pack(&kp->scratch, &mine);
        kv_pipe_send(kp, l->fresh);
        kv_ok_pack(&kp->scratch);
        kv_pipe_send(kp, l->fresh);
        l->fresh->state = PIPE_AWAIT_OK;
        return;
    }
    kv_ok_pack(&kp->scratch);
    kv_pipe_send(kp, l->fresh);
    l->fresh->state = PIPE_AWAIT_OK;
}

static void on_tls(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f) {
    char why[KV_TEXT_BYTES_MAX + 1], text[KV_TEXT_BYTES_MAX + 1];
    if (kv_auth_frame(kp, l, f, why)) {
        l->fresh->state = PIPE_AWAIT_HELLO;
        if (!l->fresh->bound) send_hello(kp, l);
        return;
    }
    if (why[0] == '\0') return;
    if (l->fresh->bound) KV_COUNT(kp, n_strangers, 1);
    log_warn("kv_link", "peer=%u addr=%s:%u event=tls_failed why=\"%s\"", l->id, l->ip, l->port,
             why);
    struct kv_refuse_link m = {.code = KV_LINK_TLS};
    snprintf(m.text, sizeof(m.text), "instance %u refuses the TLS handshake: %.210s",
             kp->io_self_id, why);
    kv_refuse_link_pack(&kp->scratch, &m);
    kv_pipe_send_plain(kp, l->fresh);
    snprintf(text, sizeof(text), "TLS handshake: %.235s", why);
    kv_link_attempt_failed(kp, l, KV_LINK_TLS, text, false);
}

/* The very next frame of the fresh pipe, opened. */
static enum err fresh_open(struct kv_pipe *p, struct kv_frame *f, void *message, size_t n) {
    enum err e = kv_frame_head(f, message, n);
    if (e == ERR_OK && p->seal_in != NULL && f->sealed)
        return kv_unseal_frame(p->seal_in, f, message, n);
    e = kv_frame_open(f, message, n);
    if (e != ERR_OK) return e;
    if (f->seq != p->seq_in + 1) return ERR_BAD_FRAME;
    p->seq_in++;
    /* In the clear a sealed link has the handshake and a refusal, and nothing else. */
    bool clear = p->state == PIPE_TLS ? f->type == KV_TLS || f->type == KV_REFUSE_LINK
                                      : p->seal_in == NULL || f->type == KV_REFUSE_LINK;
    return clear ? ERR_OK : ERR_BAD_FRAME;
}

static void fresh_frame(struct kv_plane *kp, struct kv_link *l, void *message, size_t n) {
    struct kv_pipe *p = l->fresh;
    struct kv_frame f;
    enum err e = fresh_open(p, &f, message, n);
    bool next = e == ERR_OK;
    if (next && f.type == KV_TLS && p->state == PIPE_TLS) {
        on_tls(kp, l, &f);
    } else if (next && f.type == KV_HELLO && p->state == PIPE_AWAIT_HELLO) {
        on_hello(kp, l, &f);
    } else if (next && f.type == KV_OK && p->state == PIPE_AWAIT_OK && rd_done(&f.payload)) {
        link_up(kp, l);
    } else if (next && f.type == KV_REFUSE_LINK) {
        struct kv_refuse_link m = {0};
        if (kv_refuse_link_unpack(&f.payload, &m) != ERR_OK) m.code = KV_LINK_DAMAGED;
        bool of_tls = p->state == PIPE_TLS && m.code == KV_LINK_TLS;
        if (p->bound && p->state != PIPE_AWAIT_OK && !of_tls) {
            stranger_on_pair(kp, l, "no hello");
            return;
        }
        kv_link_attempt_failed(kp, l, m.code, m.text, !kv_link_is_hard(m.code));
    } else if (p->bound) {
        stranger_on_pair(kp, l, e == ERR_MISMATCH ? "other protocol version" : "no hello");
    } else {
        kv_link_attempt_failed(kp, l, KV_LINK_DAMAGED, "no hello in answer to ours", true);
    }
}

void kv_link_recv_fresh(struct kv_plane *kp, struct kv_link *l) {
    void *message;
    size_t n;
    /* Stops where the pipe opens: what follows in it is for kv_link_frame(). */
    while (l->fresh != NULL && bus_recv(l->fresh->sock, &message, &n) == ERR_OK) {
        fresh_frame(kp, l, message, n);
        bus_message_free(message);
    }
}

/* ---- a link that is up */

static void on_heartbeat(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f) {
    struct kv_heartbeat m;
    uint64_t now = clock_ms();
    if (kv_heartbeat_unpack(&f->payload, &m) != ERR_OK) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    for (size_t i = 0; i < m.n_wanted; i++) {
        kv_tx_renew(kp, l, &m.wanted[i], now);
        kv_rx_renew(kp, l, &m.wanted[i], now);
    }
    kv_heartbeat_free(&m);
}

static void beat(struct kv_plane *kp, struct kv_link *l) {
    struct kv_heartbeat m = {.instance_id = kp->io_self_id};
    if (kp->o.load != NULL) kp->o.load(kp->o.memory, &m.free_blocks, &m.queue_len);
    size_t n = 0;
    for (const struct kv_tx *tx = l->tx; tx != NULL; tx = tx->next) n += tx->state != TX_NEW;
    for (const struct kv_rx *rx = l->rx; rx != NULL; rx = rx->next) n++;
    if (n > KV_WANTED_MAX) n = KV_WANTED_MAX;
    if (n > 0) m.wanted = malloc(n * sizeof(*m.wanted));
    if (m.wanted != NULL) {
        for (const struct kv_tx *tx = l->tx; tx != NULL && m.n_wanted < n; tx = tx->next)
            if (tx->state != TX_NEW) m.wanted[m.n_wanted++] = tx->key;
        for (const struct kv_rx *rx = l->rx; rx != NULL && m.n_wanted < n; rx = rx->next)
            m.wanted[m.n_wanted++] = rx->key;
    }
    kv_heartbeat_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->pipe);
    kv_heartbeat_free(&m);
}

void kv_link_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f, size_t n_bytes) {
    switch (f->type) {
    case KV_HEARTBEAT: on_heartbeat(kp, l, f); return;
    case KV_REFUSE_LINK: {
        struct kv_refuse_link m = {0};
        char code[32];
        if (kv_refuse_link_unpack(&f->payload, &m) != ERR_OK) break;
        code_text(code, m.code);
        kv_link_down(kp, l, code, m.text);
        return;
    }
    case KV_DATA:
        l->taken_bytes += n_bytes;
        kv_rx_frame(kp, l, f);
        return;
    case KV_PROBE:
    case KV_ECHO: kv_measure_frame(kp, l, f); return;
    case KV_OFFER:
    case KV_COMMIT:
    case KV_LEND:
    case KV_CANCEL: kv_rx_frame(kp, l, f); return;
    case KV_FETCH:
    case KV_GRANT:
    case KV_BUSY:
    case KV_REFUSE:
    case KV_CREDIT:
    case KV_ACK:
    case KV_PULL:
    case KV_RELEASE: kv_tx_frame(kp, l, f); return;
    default: break;
    }
    KV_COUNT(kp, n_protocol, 1);
}

/* The socket knows of a lost connection sooner than three missed heartbeats do, and frames may have
 * gone with it. */
static bool connection_lost(const struct kv_pipe *p) {
    return p->bound ? bus_n_connected(p->sock) == 0 : bus_n_broken(p->sock) > 0;
}

/* Of silence, that a tick adds; ticks come eight times a heartbeat, of small ones each 5 ms. */
static uint64_t silence_step_ms(const struct kv_plane *kp) {
    return kp->o.heartbeat_ms / 4 + 10;
}

static void tick_up(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms) {
    if (connection_lost(l->pipe)) {
        kv_link_down(kp, l, "11", "the connection broke");
        return;
    }
    silence_look(&l->silence, now_ms, silence_step_ms(kp));
    if (l->silence.ms >= (uint64_t)kp->o.misses_max * kp->o.heartbeat_ms) {
        kv_link_down(kp, l, "10", "no heartbeat");
        return;
    }
    if (now_ms >= l->beat_ms) {
        l->beat_ms = now_ms + kp->o.heartbeat_ms;
        beat(kp, l);
    }
    kv_tx_tick(kp, l, now_ms);
    kv_rx_tick(kp, l, now_ms);
    kv_measure_tick(kp, l, now_ms);
}

void kv_link_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms) {
    if (l->fresh != NULL && !l->fresh->bound && bus_n_broken(l->fresh->sock) > 0) {
        /* Someone else sits on the pair: not worth the wait for a hello. */
        kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, "the pair takes no connection", true);
    } else if (l->fresh != NULL && now_ms >= l->fresh->deadline_ms) {
        if (l->fresh->bound) {
            KV_COUNT(kp, n_strangers, 1);
            kv_pipe_retire(kp, &l->fresh);
        } else {
            kv_link_attempt_failed(kp, l, KV_LINK_TIMEOUT, "no hello in time", true);
        }
    }
    if (l->up) {
        tick_up(kp, l, now_ms);
        return;
    }
    if (kv_link_connects(kp, l)) {
        if (l->ask_fd >= 0 && now_ms >= l->try_deadline_ms) {
            kv_link_attempt_failed(kp, l, KV_LINK_UNREACHABLE, "the listener does not answer",
                                   true);
        } else if (l->ask_fd < 0 && l->fresh == NULL) {
            if (now_ms >= l->next_try_ms) {
                kv_listener_ask(kp, l);
            } else {
                kv_due(kp, l->next_try_ms);
            }
        }
    } else if (!l->declared && now_ms >= l->began_ms + kp->o.settle_ms) {
        tell(kp, l, false, "11", "the peer has not come");
    }
}
