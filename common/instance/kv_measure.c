/* kv_measure: how fast a link is: some round trips of nothing, then frames of filler, of which a
 * few are under way at a time, each answered by an echo. They go the way of every frame, sealed
 * where the link is. One at a time of a plane. */
#include <stdio.h>
#include "common/base/clock.h"
#include "common/instance/kv_link.h"

enum {
    PINGS = 16,
    FRAMES = 32,
    FRAME_BYTES = 1 << 20,
    UNDER_WAY = 6,
    LIMIT_MS = 10000,
};

/* ---- the loop thread */

enum err kv_plane_measure(struct kv_plane *kp, struct kv_peer *peer, kv_measured_fn *fn,
                          void *arg) {
    if (kp->on_measured != NULL) return ERR_BUSY;
    if (!peer->wanted || !peer->up) return ERR_PEER_LOST;
    const enum err e = kv_link_command_send(kp, KV_CMD_MEASURE, peer);
    if (e != ERR_OK) return e;
    kp->on_measured = fn;
    kp->on_measured_arg = arg;
    return ERR_OK;
}

void kv_measure_deliver(struct kv_plane *kp, const struct kv_event *ev) {
    kv_measured_fn *fn = kp->on_measured;
    kp->on_measured = NULL;
    if (fn != NULL && !kp->closing) fn(kp->on_measured_arg, ev->e, ev->text, &ev->measured);
}

/* ---- the I/O thread */

static void tell(struct kv_plane *kp, const struct kv_peer *peer, enum err e, const char *text,
                 const struct kv_measured *m) {
    struct kv_event ev = {
        .kind = KV_EV_MEASURED, .peer = (struct kv_peer *)(uintptr_t)peer, .e = e};
    snprintf(ev.text, sizeof(ev.text), "%s", text);
    if (m != NULL) ev.measured = *m;
    kv_post(kp, &ev);
}

void kv_measure_end(struct kv_plane *kp, struct kv_link *l, enum err e, const char *text) {
    if (!l->ruler.on) return;
    l->ruler.on = false;
    tell(kp, l->peer, e, text, NULL);
}

static void send_probe(struct kv_plane *kp, struct kv_link *l) {
    struct kv_ruler *r = &l->ruler;
    const struct kv_probe m = {.number = r->n_sent, .n_bytes = r->n_sent < PINGS ? 0 : FRAME_BYTES};
    r->sent_us = clock_us();
    if (r->n_sent == PINGS) r->began_us = r->sent_us;
    r->n_sent++;
    kv_probe_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->pipe);
    if (m.n_bytes > 0) wr_free(&kp->scratch); /* other frames are small */
}

void kv_measure_begin(struct kv_plane *kp, const struct kv_peer *peer, struct kv_link *l) {
    if (l == NULL || !l->up || l->ruler.on) {
        tell(kp, peer, ERR_PEER_LOST, "the link is not up", NULL);
        return;
    }
    l->ruler = (struct kv_ruler){.on = true, .deadline_ms = clock_ms() + LIMIT_MS};
    send_probe(kp, l);
}

void kv_measure_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms) {
    if (l->ruler.on && now_ms >= l->ruler.deadline_ms)
        kv_measure_end(kp, l, ERR_TIMEOUT, "the peer does not answer in time");
}

static void on_echo(struct kv_plane *kp, struct kv_link *l, uint32_t number) {
    struct kv_ruler *r = &l->ruler;
    const uint64_t now_us = clock_us();
    if (!r->on || number != r->n_echoed || number >= r->n_sent) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    if (r->n_echoed++ < PINGS && (r->rtt_us == 0 || now_us - r->sent_us < r->rtt_us))
        r->rtt_us = now_us - r->sent_us;
    if (r->n_echoed == PINGS + FRAMES) {
        const struct kv_measured m = {.bytes = (uint64_t)FRAMES * FRAME_BYTES,
                                      .seconds = (double)(now_us - r->began_us) * 1e-6,
                                      .rtt_s = (double)r->rtt_us * 1e-6};
        r->on = false;
        tell(kp, l->peer, ERR_OK, "", &m);
        return;
    }
    const uint32_t ahead = r->n_echoed < PINGS ? 1 : UNDER_WAY;
    while (r->n_sent < PINGS + FRAMES && r->n_sent - r->n_echoed < ahead) send_probe(kp, l);
}

void kv_measure_frame(struct kv_plane *kp, struct kv_link *l, struct kv_frame *f) {
    struct kv_probe m;
    uint32_t number;
    if (f->type == KV_PROBE && kv_probe_unpack(&f->payload, &m) == ERR_OK) {
        kv_echo_pack(&kp->scratch, m.number);
        kv_pipe_send(kp, l->pipe);
    } else if (f->type == KV_ECHO && kv_echo_unpack(&f->payload, &number) == ERR_OK) {
        on_echo(kp, l, number);
    } else {
        KV_COUNT(kp, n_protocol, 1);
    }
}
