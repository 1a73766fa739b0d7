/* http_conn: one connection: its socket, its phases, and every limit in time of what it sends. What
 * the bytes mean is the affair of c->ops. */
#include "common/net/http_conn.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/tls.h"

static void on_event(void *arg, int fd, int events);

static struct budget *budget_of(const struct http_conn *c) {
    return http_server_budget(c->s);
}

/* The list of a phase in which a connection waits for its client. */
static struct http_list *list_of(struct http_conn *c, enum http_phase phase) {
    switch (phase) {
    case PHASE_IDLE: return &c->s->idle;
    case PHASE_HANDSHAKE:
    case PHASE_HEAD: return &c->s->heads;
    default: return NULL;
    }
}

void http_conn_set_phase(struct http_conn *c, enum http_phase phase, unsigned limit_ms) {
    struct http_list *l = list_of(c, phase);
    uint64_t now_ms = clock_ms();
    http_list_drop(&c->waits);
    if (l != NULL) http_list_add(l, &c->waits, c);
    c->phase = phase;
    c->since_ms = now_ms;
    c->read_deadline_ms = limit_ms > 0 ? now_ms + limit_ms : 0;
}

enum err http_conn_open(struct http_server *s, int fd, const char *peer, struct http_addr *addr) {
    struct http_conn *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    enum err e = ERR_OK;
    c->s = s;
    memcpy(c->peer, peer, sizeof(c->peer));
    if (s->opts.tls == NULL)
        c->io = sock_io_plain(fd);
    else
        e = tls_sock_io(&c->io, s->opts.tls, fd);
    if (e != ERR_OK) {
        free(c);
        return e;
    }
    c->ops = &h1_conn_ops;
    h1_init(c);
    e = (s->opts.control ? loop_fd_watch : loop_fd_watch_crowd)(&c->w, s->loop, fd, LOOP_READ,
                                                                on_event, c);
    if (e != ERR_OK) {
        c->io.ops->close(&c->io);
        http_gate_leave(s->opts.gate, addr);
        http_conn_free(c);
        return ERR_OK; /* fd is taken, and closed */
    }
    c->addr = addr;
    if (s->opts.tls != NULL)
        http_conn_set_phase(c, PHASE_HANDSHAKE, s->opts.handshake_ms);
    else
        http_conn_set_phase(c, PHASE_IDLE, s->opts.idle_ms);
    c->next = s->conns;
    if (c->next != NULL) c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    budget_hold(budget_of(c), s->opts.control ? BUDGET_CONTROL_CONNS : BUDGET_CONNS, 1);
    return ERR_OK;
}

void http_conn_free(struct http_conn *c) {
    c->ops->fini(c);
    buf_free(&c->out);
    free(c);
}

static void conn_close(struct http_conn *c) {
    struct http_gate *g = c->s->opts.gate;
    http_conn_set_phase(c, PHASE_DEAD, 0);
    http_list_drop(&c->stalls);
    http_gate_hold(g, c, 0);
    http_gate_leave(g, c->addr);
    budget_give(budget_of(c), c->s->opts.control ? BUDGET_CONTROL_CONNS : BUDGET_CONNS, 1);
    loop_fd_unwatch(&c->w);
    c->io.ops->close(&c->io);
    http_server_forget(c->s, c);
}

void http_conn_gone(struct http_conn *c) {
    conn_close(c);
    c->ops->let_go(c);
}

size_t http_conn_pending(const struct http_conn *c) {
    return c->out.len - c->out_at;
}

unsigned http_nearer(unsigned a_ms, unsigned b_ms) {
    return a_ms == 0 || (b_ms > 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void update_watch(struct http_conn *c) {
    int events = 0;
    if (c->phase == PHASE_DEAD) return;
    /* Reading goes on while a handler works: the end of the stream is how a client that left shows
     * itself. */
    if (!c->eof && (c->phase == PHASE_LINGER || c->ops->wants_read(c))) events |= LOOP_READ;
    if ((http_conn_pending(c) > 0 && c->write_deadline_ms != 0) || c->more) events |= LOOP_WRITE;
    if (c->io.want_write) events |= LOOP_WRITE;
    if (loop_fd_set(c->w, events) != ERR_OK) http_conn_gone(c);
}

/* Everything is sent and no more will be answered. What the client still sends is read and dropped
 * for a while: closing on unread bytes would make the kernel reset the connection, and the answer
 * could be lost with it. */
static void start_linger(struct http_conn *c) {
    c->io.ops->shutdown(&c->io);
    if (c->eof) {
        http_conn_gone(c);
        return;
    }
    c->linger_left = HTTP_LINGER_BYTES_MAX;
    http_conn_set_phase(c, PHASE_LINGER, HTTP_LINGER_MS);
}

static void on_end_of_input(struct http_conn *c) {
    c->eof = true;
    if (c->phase == PHASE_LINGER)
        http_conn_gone(c);
    else
        c->ops->end_of_input(c);
}

/* One read; of a flood of handshakes only as many steps as a pass may take. */
static ssize_t read_some(struct http_conn *c) {
    struct http_server *s = c->s;
    struct http_gate *g = s->opts.gate;
    bool handshake = c->phase == PHASE_HANDSHAKE;
    uint64_t began_us = 0;
    if (handshake && !http_gate_handshake_begin(g, s->opts.control, &began_us)) return SOCK_AGAIN;
    ssize_t n = c->io.ops->read(&c->io, s->read_buf, sizeof(s->read_buf));
    if (handshake) http_gate_handshake_end(g, s->opts.control, began_us);
    if (!handshake || c->io.handshaking || n == SOCK_FAILED) return n;
    http_conn_set_phase(c, PHASE_IDLE, s->opts.idle_ms);
    return tls_sock_h2(&c->io) && h2_start(c) != ERR_OK ? SOCK_FAILED : n;
}

static void on_readable(struct http_conn *c) {
    struct http_server *s = c->s;
    ssize_t n = read_some(c);
    if (n == SOCK_AGAIN) return;
    if (n == SOCK_FAILED) {
        if (c->phase == PHASE_HANDSHAKE && tls_sock_error(&c->io)[0] != 0)
            http_server_tls_failed(s, c->peer, tls_sock_error(&c->io));
        http_conn_gone(c);
    } else if (n == 0) {
        on_end_of_input(c);
    } else if (c->phase == PHASE_LINGER) {
        c->linger_left = (size_t)n < c->linger_left ? c->linger_left - (size_t)n : 0;
        if (c->linger_left == 0) http_conn_gone(c);
    } else if (!c->close_after) { /* behind the last answer nothing is looked at any more */
        c->ops->feed(c, s->read_buf, (size_t)n);
    }
}

/* The deadline is for bytes that the socket does not take. What waits for a window of HTTP/2 has
 * one of its own, for its stream (h2_stream_tick()). */
static void note_deadline(struct http_conn *c, bool progress) {
    const unsigned limit_ms = c->s->opts.write_ms;
    if (http_conn_pending(c) == 0 && !c->more)
        c->write_deadline_ms = 0;
    else if (progress || c->write_deadline_ms == 0)
        c->write_deadline_ms = limit_ms > 0 ? clock_ms() + limit_ms : UINT64_MAX;
}

/* After a write; left: of answers, unsent. progress: it took some of them. */
static void note_progress(struct http_conn *c, bool progress, size_t left) {
    note_deadline(c, progress);
    if (left == 0) {
        if (c->waits_ms != 0) http_list_drop(&c->stalls);
        c->waits_ms = 0;
        return;
    }
    if (!progress && c->waits_ms != 0) return;
    uint64_t now_ms = clock_ms();
    if (c->waits_ms == 0) c->waits_ms = now_ms;
    c->stalled_ms = now_ms;
    http_list_drop(&c->stalls);
    http_list_add(&c->s->stalled, &c->stalls, c);
}

/* A short or refused write waits for the socket to have room. */
void http_conn_write(struct http_conn *c) {
    size_t left = http_conn_pending(c);
    ssize_t n = 0;
    if (c->out.failed) {
        http_conn_gone(c);
        return;
    }
    if (left > 0) n = c->io.ops->write(&c->io, c->out.data + c->out_at, left);
    if (n == SOCK_FAILED) {
        http_conn_gone(c);
        return;
    }
    if (n > 0) {
        c->out_at += (size_t)n;
        left -= (size_t)n;
        buf_drop_taken(&c->out, &c->out_at);
    }
    note_progress(c, n > 0 && (left > 0 || c->fed), left + c->ops->unsent(c));
    c->fed = false;
}

/* As much as the socket takes, within reason: others wait for their turn. */
static void flush(struct http_conn *c) {
    c->more = false;
    for (int i = 0; i < HTTP_WRITES_PER_PASS; i++) {
        if (c->ops->fill != NULL && !c->close_after) c->more = c->ops->fill(c);
        http_conn_write(c);
        if (c->phase == PHASE_DEAD || !c->more || http_conn_pending(c) > 0) return;
    }
}

/* Thousands may idle. */
static void keep_nothing(struct http_conn *c) {
    buf_free(&c->out);
    c->out_at = 0;
}

/* What is held of the gate's room for bytes that wait. */
static void count_held(struct http_conn *c) {
    http_gate_hold(c->s->opts.gate, c,
                   http_conn_pending(c) + c->ops->held(c) + tls_sock_held(&c->io));
}

void http_conn_shutdown(struct http_conn *c) {
    c->ops->bye(c);
    http_conn_write(c);
    if (c->phase != PHASE_DEAD) http_conn_gone(c);
}

void http_conn_fetch(const struct http_conn *c) {
    enum { LINE_BYTES = 64 };
    for (size_t at = 0; at < offsetof(struct http_conn, peer); at += LINE_BYTES)
        __builtin_prefetch((const char *)c + at, 1);
}

void http_conn_pass_end(struct http_conn *c) {
    flush(c);
    if (c->phase == PHASE_DEAD) return;
    if (http_conn_pending(c) == 0 && c->close_after && c->phase != PHASE_LINGER) start_linger(c);
    if (c->phase != PHASE_DEAD) c->ops->advance(c);
    if (c->phase != PHASE_DEAD) http_x_tell_room(c);
    if (c->phase == PHASE_IDLE) keep_nothing(c);
    if (c->phase != PHASE_DEAD) count_held(c);
    update_watch(c);
}

static void on_event(void *arg, int fd, int events) {
    struct http_conn *c = arg;
    (void)fd;
    if ((events & LOOP_READ) || c->io.want_write) on_readable(c);
    /* Room to write, or interest to change: both are the pass end's. */
    if (c->phase != PHASE_DEAD) http_server_dirty(c->s, c);
}

/* Nothing is under way, or nothing that could be finished. */
static void end_idle(struct http_conn *c) {
    if (c->phase == PHASE_IDLE) {
        c->ops->bye(c);
        http_conn_write(c);
        if (c->phase == PHASE_DEAD) return;
        c->io.ops->shutdown(&c->io);
    }
    http_conn_gone(c);
}

void http_conn_spare(struct http_conn *c) {
    budget_refused(budget_of(c), BUDGET_CONNS_YIELDED);
    end_idle(c);
}

void http_conn_tick(struct http_conn *c, uint64_t now_ms) {
    bool late = c->read_deadline_ms != 0 && now_ms >= c->read_deadline_ms;
    if (c->write_deadline_ms != 0 && now_ms >= c->write_deadline_ms) {
        http_conn_gone(c);
        return;
    }
    switch (c->phase) {
    case PHASE_HANDSHAKE:
        if (!late) break;
        budget_refused(budget_of(c), BUDGET_HANDSHAKE_TIME);
        http_server_tls_failed(c->s, c->peer, "the handshake did not end in time");
        http_conn_gone(c);
        break;
    case PHASE_IDLE:
        if (late) end_idle(c);
        break;
    case PHASE_LINGER:
        if (late) http_conn_gone(c);
        break;
    case PHASE_DEAD: break;
    default: c->ops->tick(c, now_ms); break;
    }
}
