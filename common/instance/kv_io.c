/* kv_io: the I/O thread: waits for sockets, commands and time; moves frames between pipes and
 * links. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/instance/bus.h"
#include "common/instance/kv_link.h"

enum { TICK_MS_MAX = 200, TICK_MS_MIN = 5, IDLE_MS = 1000, REST_MS = 1000, EVENTS_RESERVED = 256 };

/* ---- events */

/* An end that is not told would hold a request's blocks for ever: so there is a reserve, filled
 * again when there is memory. NULL: that is used too. */
static struct kv_event *event_new(struct kv_plane *kp) {
    struct kv_event *ev = malloc(sizeof(*ev));
    if (ev == NULL) {
        ev = (struct kv_event *)kp->reserve;
        if (ev == NULL) return NULL;
        kp->reserve = ev->head.next;
        kp->n_reserved--;
        return ev;
    }
    for (struct kv_event *more;
         kp->n_reserved < EVENTS_RESERVED && (more = malloc(sizeof(*more))) != NULL;
         kp->n_reserved++) {
        more->head.next = kp->reserve;
        kp->reserve = &more->head;
    }
    return ev;
}

void kv_post(struct kv_plane *kp, const struct kv_event *ev) {
    struct kv_event *copy = event_new(kp);
    if (copy == NULL) {
        log_error("kv_link", "out of memory: an event of kind %d is lost", (int)ev->kind);
        return;
    }
    *copy = *ev;
    copy->head.next = NULL;
    if (kp->mail != NULL) {
        mailbox_put(kp->mail, &copy->head);
    } else {
        kv_deliver_late(kp, &copy->head); /* closing: the I/O thread has ended */
    }
}

/* ---- pipes */

struct kv_pipe *kv_pipe_create(int sock, bool bound) {
    struct kv_pipe *p = calloc(1, sizeof(*p));
    if (p == NULL) return NULL;
    p->sock = sock;
    p->bound = bound;
    p->last = &p->first;
    return p;
}

void kv_pipe_close(struct kv_pipe **pp) {
    struct kv_pipe *p = *pp;
    if (p == NULL) return;
    *pp = NULL;
    while (p->first != NULL) {
        struct kv_msg *m = p->first;
        p->first = m->next;
        bus_message_free(m->message);
        free(m);
    }
    bus_message_free(p->stuck);
    tls_session_free(&p->tls);
    kv_seal_destroy(&p->seal_out);
    kv_seal_destroy(&p->seal_in);
    bus_close(&p->sock);
    free(p);
}

void kv_pipe_retire(struct kv_plane *kp, struct kv_pipe **pp) {
    struct kv_pipe *p = *pp;
    if (p == NULL) return;
    *pp = NULL;
    p->deadline_ms = clock_ms() + KV_DYING_MS;
    p->next = kp->dying;
    kp->dying = p;
}

static void queue_frame(struct kv_plane *kp, struct kv_pipe *p, bool plain) {
    struct wr *w = &kp->scratch;
    kv_frame_end(w, 0); /* count and seal come when the frame goes out: data frames share them */
    size_t n = w->len + (plain ? 0 : kv_pipe_tag_growth(p));
    struct kv_msg *m = malloc(sizeof(*m));
    void *message = w->failed || p->n_queued >= KV_CONTROL_FRAMES_MAX ? NULL : bus_message_alloc(n);
    if (m == NULL || message == NULL) {
        /* The peer would wait for this frame for ever: let it notice. */
        log_error("kv_link", "a control frame cannot be queued (%zu waiting): the link is given up",
                  p->n_queued);
        wr_free(w);
        free(m);
        bus_message_free(message);
        p->failed = true;
        return;
    }
    memcpy(message, w->data, w->len);
    *m = (struct kv_msg){.message = message, .n = n, .plain = plain};
    *p->last = m;
    p->last = &m->next;
    p->n_queued++;
}

void kv_pipe_send(struct kv_plane *kp, struct kv_pipe *p) {
    queue_frame(kp, p, p->seal_out == NULL);
}

void kv_pipe_send_plain(struct kv_plane *kp, struct kv_pipe *p) {
    queue_frame(kp, p, true);
}

void kv_pipe_unsealable(struct kv_pipe *p, void *message, enum err e) {
    log_error("kv_link", "a frame cannot be sealed (%s): the link is given up", err_name(e));
    bus_message_free(message);
    p->failed = true;
}

/* Counts or seals a control frame. */
static bool finish(struct kv_pipe *p, void *message, size_t n, bool plain) {
    if (plain) {
        kv_frame_reseal(message, n, ++p->seq_out);
        return true;
    }
    enum err e = kv_seal_frame(p->seal_out, message, n);
    if (e != ERR_OK) kv_pipe_unsealable(p, message, e);
    return e == ERR_OK;
}

/* Sends or keeps one finished message; takes it. False: the socket is full. */
static bool pipe_put(struct kv_plane *kp, struct kv_pipe *p, void *message, size_t n) {
    if (bus_send(p->sock, &message) != ERR_OK) {
        p->stuck = message;
        p->stuck_bytes = n;
        return false;
    }
    KV_COUNT(kp, n_frames_out, 1);
    KV_COUNT(kp, bytes_out, n);
    return true;
}

/* The stuck message first, then control frames. True: the socket can take more. */
static bool pipe_flush(struct kv_plane *kp, struct kv_pipe *p) {
    if (p->stuck != NULL) {
        if (bus_send(p->sock, &p->stuck) != ERR_OK) return false;
        KV_COUNT(kp, n_frames_out, 1);
        KV_COUNT(kp, bytes_out, p->stuck_bytes);
    }
    while (p->first != NULL) {
        struct kv_msg *m = p->first;
        if ((p->first = m->next) == NULL) p->last = &p->first;
        p->n_queued--;
        void *message = m->message;
        size_t n = m->n;
        bool plain = m->plain;
        free(m);
        if (!finish(p, message, n, plain) || !pipe_put(kp, p, message, n)) return false;
    }
    return true;
}

static void link_send(struct kv_plane *kp, struct kv_link *l) {
    struct kv_pipe *p = l->pipe;
    if (p->failed) {
        kv_link_down(kp, l, "12", "frames cannot be queued or sealed");
        return;
    }
    for (int i = 0; i < KV_SEND_BURST; i++) {
        if (!pipe_flush(kp, p)) return;
        void *message = NULL;
        size_t n = 0;
        bool more = kv_tx_next(kp, l, &message, &n);
        if (message != NULL && !pipe_put(kp, p, message, n)) return;
        if (!more && p->first == NULL) return;
    }
    kv_poke(kp); /* the burst is used up: others first */
}

/* On a sealed link the first frame that is not the very next one of the peer ends it: whoever can
 * put a frame there, or take one away, must not get a second try. */
static void link_take_sealed(struct kv_plane *kp, struct kv_link *l, void *message, size_t n) {
    struct kv_frame f;
    if (kv_unseal_frame(l->pipe->seal_in, &f, message, n) != ERR_OK) {
        KV_COUNT(kp, n_corrupt, 1);
        kv_link_down(kp, l, "12", "a frame without a right seal");
        return;
    }
    silence_end(&l->silence);
    kv_link_frame(kp, l, &f, n);
}

/* One frame of an open pipe into its link: check, count, dispatch. */
static void link_take(struct kv_plane *kp, struct kv_link *l, void *message, size_t n) {
    struct kv_pipe *p = l->pipe;
    KV_COUNT(kp, n_frames_in, 1);
    KV_COUNT(kp, bytes_in, n);
    if (p->seal_in != NULL) {
        link_take_sealed(kp, l, message, n);
        return;
    }
    struct kv_frame f;
    enum err e = kv_frame_open(&f, message, n);
    if (e != ERR_OK) {
        KV_COUNT(kp, n_corrupt, 1);
        if (f.type == KV_DATA && e == ERR_BAD_FRAME && !f.sealed) {
            /* Its blocks stay missing and are asked for again. */
            p->n_corrupt++;
            l->taken_bytes += n;
            return;
        }
        kv_link_down(kp, l, "12", "a damaged control frame");
        return;
    }
    if (f.seq <= p->seq_in) {
        KV_COUNT(kp, n_repeated, 1);
        return;
    }
    uint32_t gap = f.seq - p->seq_in - 1;
    if (gap > p->n_corrupt) {
        KV_COUNT(kp, n_lost, gap - p->n_corrupt);
        kv_link_down(kp, l, "12", "frames are missing");
        return;
    }
    p->n_corrupt -= gap;
    p->seq_in = f.seq;
    silence_end(&l->silence);
    kv_link_frame(kp, l, &f, n);
}

static void link_recv(struct kv_plane *kp, struct kv_link *l) {
    for (int i = 0; i < KV_RECV_BURST && l->pipe != NULL; i++) {
        void *message;
        size_t n;
        if (bus_recv(l->pipe->sock, &message, &n) != ERR_OK) break;
        link_take(kp, l, message, n);
        bus_message_free(message);
    }
    if (l->pipe != NULL && l->taken_bytes != l->credited_bytes) {
        l->credited_bytes = l->taken_bytes;
        kv_credit_pack(&kp->scratch, l->taken_bytes);
        kv_pipe_send(kp, l->pipe);
    }
}

/* ---- commands */

void kv_obey(struct kv_plane *kp, struct kv_cmd *c, bool has_links) {
    switch (c->kind) {
    case KV_CMD_ROLE:
    case KV_CMD_LINK:
    case KV_CMD_UNLINK:
    case KV_CMD_RETRY:
    case KV_CMD_MEASURE:
        if (has_links) kv_link_command(kp, (struct kv_link_cmd *)c);
        free((struct kv_link_cmd *)c);
        break;
    case KV_CMD_TX_OPEN:
    case KV_CMD_TX_OFFER:
    case KV_CMD_TX_COMMIT:
    case KV_CMD_TX_CANCEL:
    case KV_CMD_TX_LEND:
    case KV_CMD_TX_DECLINE:
    case KV_CMD_TX_FREE: kv_tx_command(kp, c); break;
    case KV_CMD_RX_GRANT:
    case KV_CMD_RX_BUSY:
    case KV_CMD_RX_REFUSE:
    case KV_CMD_RX_CANCEL:
    case KV_CMD_RX_FETCH:
    case KV_CMD_RX_FREE: kv_rx_command(kp, c); break;
    }
}

static bool obey_all(struct kv_plane *kp) {
    pthread_mutex_lock(&kp->mutex);
    struct kv_cmd *list = kp->cmds;
    kp->cmds = NULL;
    kp->cmds_last = &kp->cmds;
    bool stop = kp->stop;
    pthread_mutex_unlock(&kp->mutex);
    while (list != NULL) {
        struct kv_cmd *c = list;
        list = c->next; /* the command may free what it lives in */
        kv_obey(kp, c, true);
    }
    return !stop;
}

/* ---- the loop */

struct poll_set {
    struct kv_plane *kp;
    size_t n;
    bool failed;
};

static void watch(struct poll_set *ps, int fd, short events) {
    struct kv_plane *kp = ps->kp;
    if (ps->n == kp->polls_cap) {
        size_t cap = kp->polls_cap * 2 + 16;
        struct pollfd *grown = realloc(kp->polls, cap * sizeof(*grown));
        if (grown == NULL) {
            ps->failed = true;
            return;
        }
        kp->polls = grown;
        kp->polls_cap = cap;
    }
    kp->polls[ps->n++] = (struct pollfd){.fd = fd, .events = events};
}

static void watch_pipe(struct poll_set *ps, const struct kv_pipe *p) {
    if (p == NULL) return;
    watch(ps, bus_recv_fd(p->sock), POLLIN);
    if (p->stuck != NULL) watch(ps, bus_send_fd(p->sock), POLLIN);
}

static int tick_ms(const struct kv_plane *kp) {
    if (kp->links == NULL && kp->dying == NULL) return IDLE_MS;
    unsigned ms = kp->o.heartbeat_ms / 8;
    return ms < TICK_MS_MIN ? TICK_MS_MIN : ms > TICK_MS_MAX ? TICK_MS_MAX : (int)ms;
}

static void wait_for_work(struct kv_plane *kp) {
    struct poll_set ps = {.kp = kp};
    watch(&ps, kp->wake_fd, POLLIN);
    if (clock_ms() >= kp->listener_rest_ms) watch(&ps, kp->listener, POLLIN);
    for (struct kv_guest *g = kp->guests; g != NULL; g = g->next) watch(&ps, g->fd, POLLIN);
    for (struct kv_link *l = kp->links; l != NULL; l = l->next) {
        if (l->ask_fd >= 0) watch(&ps, l->ask_fd, l->asked ? POLLIN : POLLOUT);
        watch_pipe(&ps, l->pipe);
        watch_pipe(&ps, l->fresh);
    }
    for (struct kv_pipe *p = kp->dying; p != NULL; p = p->next) {
        if (p->stuck != NULL) watch(&ps, bus_send_fd(p->sock), POLLIN);
    }
    /* Without memory for the set the tick alone keeps things moving. */
    int wait_ms = tick_ms(kp);
    uint64_t now_ms = clock_ms();
    if (kp->due_ms <= now_ms) {
        wait_ms = 0;
    } else if (kp->due_ms - now_ms < (uint64_t)wait_ms) {
        wait_ms = (int)(kp->due_ms - now_ms);
    }
    poll(kp->polls, ps.failed ? 0 : (nfds_t)ps.n, wait_ms);
    uint64_t count;
    while (read(kp->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR) continue;
    atomic_store(&kp->poked, false); /* after the read: a poke from now on writes again */
}

static void bury_dying(struct kv_plane *kp, uint64_t now_ms) {
    for (struct kv_pipe **pp = &kp->dying; *pp != NULL;) {
        struct kv_pipe *p = *pp;
        pipe_flush(kp, p);
        if (now_ms < p->deadline_ms) {
            pp = &p->next;
            continue;
        }
        *pp = p->next;
        kv_pipe_close(&p);
    }
}

/* Memory of frames goes back once none has come or gone for a while. */
static void rest(struct kv_plane *kp, uint64_t now_ms) {
    uint64_t moved = 0;
    for (const struct kv_link *l = kp->links; l != NULL; l = l->next)
        moved += l->sent_bytes + l->taken_bytes;
    if (moved != kp->moved_bytes) {
        kp->moved_bytes = moved;
        kp->moved_ms = now_ms;
        kp->rested = false;
    } else if (!kp->rested && now_ms >= kp->moved_ms + REST_MS) {
        kp->rested = true;
        heap_trim();
    }
}

void *kv_io_main(void *arg) {
    struct kv_plane *kp = arg;
    uint64_t next_tick_ms = 0;
    kp->due_ms = UINT64_MAX;
    while (obey_all(kp)) {
        uint64_t now_ms = clock_ms();
        bool tick = now_ms >= next_tick_ms || now_ms >= kp->due_ms;
        if (tick) {
            next_tick_ms = now_ms + (uint64_t)tick_ms(kp);
            kp->due_ms = UINT64_MAX;
        }
        kv_listener_tick(kp, now_ms);
        for (struct kv_link *l = kp->links; l != NULL; l = l->next) {
            if (l->ask_fd >= 0) kv_listener_ask_ready(kp, l);
            if (l->fresh != NULL) kv_link_recv_fresh(kp, l);
            if (l->fresh != NULL) pipe_flush(kp, l->fresh);
            if (l->pipe != NULL) link_recv(kp, l);
            if (tick) kv_link_tick(kp, l, now_ms);
            if (l->pipe != NULL) link_send(kp, l);
        }
        if (tick) rest(kp, now_ms);
        bury_dying(kp, now_ms);
        wait_for_work(kp);
    }
    return NULL;
}
