/* kv_measure: how fast a link is: some round trips of nothing, then frames of filler, of which a
 * few are under way at a time, each answered by an echo. They go the way of every frame, sealed
 * where the link is.
 *
 * Whoever asks has it measured with tens of megabytes, one link of a plane at a time. Beside that a
 * side that prefills keeps itself told of each of its links: every few seconds some round trips,
 * begun between transfers, and, while nothing goes over any of them, of one after the other, about
 * once a minute each, what little filler tells its bandwidth. A transfer ends that at once. */
#include <stdio.h>
#include "common/base/clock.h"
#include "common/instance/kv_link.h"

enum {
    PINGS = 16,
    FRAMES = 32,
    FRAME_BYTES = 1 << 20,
    UNDER_WAY = 6,
    LIMIT_MS = 10000,

    IDLE_PINGS = 4,
    IDLE_FRAMES = 8,
    IDLE_FRAME_BYTES = 256 << 10,
    IDLE_UNDER_WAY = 2,
    IDLE_LIMIT_MS = 2000,
    /* In kv_plane_opts.idle_ms: */
    PING_EVERY = 10,
    FILL_AFTER = 15, /* of silence on all links of the plane */
    FILL_EVERY = 60, /* of one link */
    FILL_GAP = 3,    /* between two links */
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
    if (ev->idle) {
        ev->peer->rtt_us = (uint64_t)(ev->measured.rtt_s * 1e6 + 0.5);
        if (ev->measured.bytes > 0 && ev->measured.seconds > 0)
            ev->peer->idle_bytes_per_s = (double)ev->measured.bytes / ev->measured.seconds;
        return;
    }
    kp->on_measured = NULL;
    if (fn != NULL && !kp->closing) fn(kp->on_measured_arg, ev->e, ev->text, &ev->measured);
}

/* ---- the I/O thread */

static void tell(struct kv_plane *kp, const struct kv_peer *peer, enum err e, const char *text,
                 const struct kv_measured *m, bool idle) {
    struct kv_event ev = {
        .kind = KV_EV_MEASURED, .peer = (struct kv_peer *)(uintptr_t)peer, .e = e, .idle = idle};
    snprintf(ev.text, sizeof(ev.text), "%s", text);
    if (m != NULL) ev.measured = *m;
    kv_post(kp, &ev);
}

static void drop(struct kv_ruler *r) {
    r->on = false;
    r->n_stale += r->n_sent - r->n_echoed;
    r->first += r->n_sent;
    r->n_sent = r->n_echoed = 0;
}

void kv_measure_end(struct kv_plane *kp, struct kv_link *l, enum err e, const char *text) {
    const bool asked = l->ruler.on && !l->ruler.idle;
    drop(&l->ruler);
    if (asked) tell(kp, l->peer, e, text, NULL, false);
}

static void send_probe(struct kv_plane *kp, struct kv_link *l) {
    struct kv_ruler *r = &l->ruler;
    const struct kv_probe m = {.number = r->first + r->n_sent,
                               .n_bytes = r->n_sent < r->n_pings ? 0 : r->frame_bytes};
    r->sent_us = clock_us();
    if (r->n_sent == r->n_pings) r->began_us = r->sent_us;
    r->n_sent++;
    kv_probe_pack(&kp->scratch, &m);
    kv_pipe_send(kp, l->pipe);
    if (m.n_bytes > 0) wr_free(&kp->scratch); /* other frames are small */
}

static void begin(struct kv_plane *kp, struct kv_link *l, const struct kv_ruler *how) {
    struct kv_ruler *r = &l->ruler;
    drop(r);
    const struct kv_ruler was = *r;
    *r = *how;
    r->on = true;
    r->first = was.first;
    r->n_stale = was.n_stale;
    send_probe(kp, l);
}

void kv_measure_begin(struct kv_plane *kp, const struct kv_peer *peer, struct kv_link *l) {
    if (l == NULL || !l->up || (l->ruler.on && !l->ruler.idle)) {
        tell(kp, peer, ERR_PEER_LOST, "the link is not up", NULL, false);
        return;
    }
    const struct kv_ruler how = {.n_pings = PINGS,
                                 .n_frames = FRAMES,
                                 .frame_bytes = FRAME_BYTES,
                                 .under_way = UNDER_WAY,
                                 .deadline_ms = clock_ms() + LIMIT_MS};
    begin(kp, l, &how);
}

static bool is_busy(const struct kv_link *l) {
    return l->tx != NULL || l->rx != NULL;
}

/* Of a link on which nothing goes just now: what is due. */
static void look_idle(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms) {
    struct kv_ruler how = {.idle = true,
                           .n_pings = IDLE_PINGS,
                           .frame_bytes = IDLE_FRAME_BYTES,
                           .under_way = IDLE_UNDER_WAY,
                           .deadline_ms = now_ms + IDLE_LIMIT_MS};
    const uint64_t unit_ms = kp->o.idle_ms, still_ms = FILL_AFTER * unit_ms;
    if (unit_ms == 0 || now_ms < l->up_ms + unit_ms || now_ms < l->ping_ms || is_busy(l)) return;
    l->ping_ms = now_ms + PING_EVERY * unit_ms;
    if (now_ms >= l->quiet_ms + still_ms && now_ms >= kp->moved_ms + still_ms &&
        now_ms >= l->fill_ms && now_ms >= kp->fill_ms) {
        how.n_frames = IDLE_FRAMES;
        l->fill_ms = now_ms + FILL_EVERY * unit_ms;
        kp->fill_ms = now_ms + FILL_GAP * unit_ms;
        kp->rested = false; /* the filler's memory goes back, too */
    }
    begin(kp, l, &how);
}

void kv_measure_tick(struct kv_plane *kp, struct kv_link *l, uint64_t now_ms) {
    struct kv_ruler *r = &l->ruler;
    if (is_busy(l)) l->quiet_ms = now_ms;
    if (r->on && r->idle && ((r->n_frames > 0 && is_busy(l)) || now_ms >= r->deadline_ms))
        drop(r);
    else if (r->on && now_ms >= r->deadline_ms)
        kv_measure_end(kp, l, ERR_TIMEOUT, "the peer does not answer in time");
    else if (!r->on && (kp->io_can & CAN_PREFILL) != 0)
        look_idle(kp, l, now_ms);
}

static void finish(struct kv_plane *kp, struct kv_link *l, uint64_t now_us) {
    struct kv_ruler *r = &l->ruler;
    const struct kv_measured m = {.bytes = (uint64_t)r->n_frames * r->frame_bytes,
                                  .seconds =
                                      r->n_frames > 0 ? (double)(now_us - r->began_us) * 1e-6 : 0,
                                  .rtt_s = (double)r->rtt_us * 1e-6};
    const bool idle = r->idle;
    drop(r);
    tell(kp, l->peer, ERR_OK, "", &m, idle);
}

static void on_echo(struct kv_plane *kp, struct kv_link *l, uint32_t number) {
    struct kv_ruler *r = &l->ruler;
    const uint64_t now_us = clock_us();
    if (r->n_stale > 0 && number == r->first - r->n_stale) {
        r->n_stale--; /* of a measurement that was given up */
        return;
    }
    if (!r->on || number - r->first != r->n_echoed || r->n_echoed >= r->n_sent) {
        KV_COUNT(kp, n_protocol, 1);
        return;
    }
    if (r->n_echoed++ < r->n_pings && (r->rtt_us == 0 || now_us - r->sent_us < r->rtt_us))
        r->rtt_us = now_us > r->sent_us ? now_us - r->sent_us : 1;
    if (r->n_echoed == r->n_pings + r->n_frames) {
        finish(kp, l, now_us);
        return;
    }
    if (r->idle && r->n_frames > 0 && is_busy(l)) {
        drop(r);
        return;
    }
    const uint32_t ahead = r->n_echoed < r->n_pings ? 1 : r->under_way;
    while (r->n_sent < r->n_pings + r->n_frames && r->n_sent - r->n_echoed < ahead)
        send_probe(kp, l);
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
