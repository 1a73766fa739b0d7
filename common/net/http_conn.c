/* http_conn: bytes between a socket and the parser, in both directions, with every limit in time
 * and size. What an answer looks like is http_x.c's business. */
#include "common/net/http_conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/tls.h"

enum { WHY_BYTES = 200 };

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
    case PHASE_BODY: return c->s->opts.gate != NULL ? &c->s->opts.gate->bodies : NULL;
    default: return NULL;
    }
}

/* The only writer of c->phase. limit_ms 0: no deadline. */
static void set_phase(struct http_conn *c, enum http_phase phase, unsigned limit_ms) {
    struct http_list *l = list_of(c, phase);
    uint64_t now_ms = clock_ms();
    http_list_drop(c, LINK_WAITS);
    if (l != NULL) http_list_add(l, c, LINK_WAITS);
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
    http_parser_init(&c->parser, s->opts.head_bytes_max);
    e = loop_fd_watch(&c->w, s->loop, fd, LOOP_READ, on_event, c);
    if (e != ERR_OK) {
        c->io.ops->close(&c->io);
        http_gate_leave(s->opts.gate, addr);
        http_conn_free(c);
        return ERR_OK; /* fd is taken, and closed */
    }
    c->addr = addr;
    if (s->opts.tls != NULL)
        set_phase(c, PHASE_HANDSHAKE, s->opts.handshake_ms);
    else
        set_phase(c, PHASE_IDLE, s->opts.idle_ms);
    c->next = s->conns;
    if (c->next != NULL) c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    budget_hold(budget_of(c), s->opts.control ? BUDGET_CONTROL_CONNS : BUDGET_CONNS, 1);
    return ERR_OK;
}

void http_conn_free(struct http_conn *c) {
    http_parser_fini(&c->parser);
    buf_free(&c->in);
    buf_free(&c->out);
    free(c);
}

static void conn_close(struct http_conn *c) {
    struct http_gate *g = c->s->opts.gate;
    set_phase(c, PHASE_DEAD, 0);
    http_list_drop(c, LINK_STALLS);
    http_gate_hold(g, c, 0);
    http_gate_leave(g, c->addr);
    budget_give(budget_of(c), c->s->opts.control ? BUDGET_CONTROL_CONNS : BUDGET_CONNS, 1);
    loop_fd_unwatch(&c->w);
    c->io.ops->close(&c->io);
    http_server_forget(c->s, c);
}

void http_conn_gone(struct http_conn *c) {
    struct http_x *x = c->x;
    c->x = NULL;
    conn_close(c);
    if (x != NULL) http_x_client_gone(x);
}

size_t http_conn_pending(const struct http_conn *c) {
    return c->out.len - c->out_at;
}

static size_t unread(const struct http_conn *c) {
    return c->in.len - c->in_at;
}

static void drop_taken(struct buf *b, size_t *at) {
    if (*at == b->len) {
        *at = 0;
        buf_clear(b);
        if (b->cap > HTTP_BUF_KEEP_BYTES) buf_free(b);
    } else if (*at > b->len / 2) { /* at least as much is dropped as is moved */
        buf_consume(b, *at);
        *at = 0;
    }
}

/* What is held of the gate's room for bytes that wait. */
static void count_held(struct http_conn *c) {
    size_t head = c->parser.head.raw.len + (c->x != NULL ? c->x->head.raw.len : 0);
    http_gate_hold(c->s->opts.gate, c,
                   unread(c) + http_conn_pending(c) + head + tls_sock_held(&c->io));
}

/* The nearer of two limits in time; 0: none. */
static unsigned nearer(unsigned a_ms, unsigned b_ms) {
    return a_ms == 0 || (b_ms > 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static uint64_t after(uint64_t now_us, unsigned limit_ms) {
    return limit_ms > 0 ? now_us + (uint64_t)limit_ms * 1000 : UINT64_MAX;
}

/* When the body that is being read is late: each byte moves the deadline of the rate by its part of
 * a second, never beyond the grace. progress: bytes of the request have come. */
static void update_body_deadline(struct http_conn *c, bool progress) {
    const struct http_server_opts *o = &c->s->opts;
    const uint64_t now_us = clock_us();
    const size_t len = c->x->body.len;
    if (c->phase != PHASE_BODY) {
        set_phase(c, PHASE_BODY, 0);
        c->body_end_us = after(now_us, o->body_ms);
        c->rate_us = o->body_rate_min > 0 ? after(now_us, o->body_grace_ms) : UINT64_MAX;
        c->silent_us = after(now_us, o->read_ms);
    } else if (c->rate_us != UINT64_MAX) {
        c->rate_us += (uint64_t)(len - c->body_seen) * 1000000 / o->body_rate_min;
        if (c->rate_us > after(now_us, o->body_grace_ms))
            c->rate_us = after(now_us, o->body_grace_ms);
    }
    if (progress) c->silent_us = after(now_us, o->read_ms);
    c->body_seen = len;
    uint64_t end_us = c->body_end_us < c->rate_us ? c->body_end_us : c->rate_us;
    if (c->silent_us < end_us) end_us = c->silent_us;
    c->read_deadline_ms = end_us == UINT64_MAX ? 0 : end_us / 1000 + 1;
}

/* Fits phase and deadline to where parser and exchange stand. progress: bytes of the request have
 * come. */
static void update_phase(struct http_conn *c, bool progress) {
    const struct http_server_opts *o = &c->s->opts;
    if (c->phase >= PHASE_LINGER || c->phase == PHASE_HANDSHAKE) return;
    if (c->close_after) {
        if (c->phase != PHASE_DRAIN) set_phase(c, PHASE_DRAIN, 0);
    } else if (c->x != NULL && c->x->state != X_READING) {
        if (c->phase != PHASE_ANSWER) set_phase(c, PHASE_ANSWER, 0);
    } else if (c->x != NULL) {
        if (c->phase != PHASE_BODY || progress) update_body_deadline(c, progress);
    } else if (!http_parser_idle(&c->parser) || unread(c) > 0) {
        if (c->phase != PHASE_HEAD) set_phase(c, PHASE_HEAD, nearer(o->head_ms, o->read_ms));
    } else if (http_conn_pending(c) > 0) { /* the limits of the write apply */
        if (c->phase != PHASE_ANSWER) set_phase(c, PHASE_ANSWER, 0);
    } else if (c->phase != PHASE_IDLE) {
        set_phase(c, PHASE_IDLE, o->idle_ms);
    }
}

static void update_watch(struct http_conn *c) {
    int events = 0;
    if (c->phase == PHASE_DEAD) return;
    /* Reading goes on while a handler works: the end of the stream is how a client that left shows
     * itself. */
    if (!c->eof && (c->phase == PHASE_LINGER || unread(c) < HTTP_AHEAD_BYTES_MAX))
        events |= LOOP_READ;
    if (http_conn_pending(c) > 0 && c->write_deadline_ms != 0) events |= LOOP_WRITE;
    if (c->io.want_write) events |= LOOP_WRITE;
    if (loop_fd_set(c->w, events) != ERR_OK) http_conn_gone(c);
}

/* Everything is sent and no more will be answered. What the client still sends is read and dropped
 * for a while: closing on unread bytes would make the kernel reset the connection, and the answer
 * could be lost with it. */
static void start_linger(struct http_conn *c) {
    c->io.ops->shutdown(&c->io);
    if (c->eof) {
        conn_close(c);
        return;
    }
    buf_free(&c->in);
    c->in_at = 0;
    c->linger_left = HTTP_LINGER_BYTES_MAX;
    set_phase(c, PHASE_LINGER, HTTP_LINGER_MS);
}

static void answer_error(struct http_conn *c, int status, const char *text) {
    if (c->x != NULL) http_x_free(c->x);
    c->x = NULL;
    http_x_plain_answer(c, status, text);
    c->close_after = true;
    set_phase(c, PHASE_DRAIN, 0);
    http_server_dirty(c->s, c);
}

/* A handler answers without the body, which is not read, so the connection ends with the answer. */
static void answer_at_once(struct http_conn *c) {
    c->x->keep_alive = false;
    c->x->state = X_OPEN;
    http_x_drop_body(c->x);
    set_phase(c, PHASE_ANSWER, 0);
}

/* The request that is being read is refused. */
static void refuse(struct http_conn *c, int status, const char *text) {
    const struct http_server_opts *o = &c->s->opts;
    struct http_x *x = c->x;
    if (o->on_refused == NULL) {
        answer_error(c, status, text);
        return;
    }
    answer_at_once(c);
    o->on_refused(o->arg, x, status, text);
}

/* The request is over its limit. */
static void too_large(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    struct http_x *x = c->x;
    if (o->on_too_large == NULL) {
        answer_error(c, 413, "request body too large");
        return;
    }
    answer_at_once(c);
    o->on_too_large(o->arg, x, x->body_max);
}

/* Room for n more bytes of the body. False: refused. */
static bool take_room(struct http_conn *c, size_t n) {
    struct http_gate *g = c->s->opts.gate;
    char why[WHY_BYTES];
    if (http_gate_take_body(g, c->x, n)) return true;
    snprintf(why, sizeof(why),
             "No room for a request body of %zu bytes now: %s allows %llu bytes in flight, %llu "
             "are in use",
             c->x->body_taken + n, budget_key(BUDGET_BODY_BYTES),
             (unsigned long long)budget_limit(g->budget, BUDGET_BODY_BYTES),
             (unsigned long long)budget_used(g->budget, BUDGET_BODY_BYTES));
    refuse(c, 503, why);
    return false;
}

/* Too many bytes wait on other connections. */
static void refuse_waiting(struct http_conn *c) {
    const struct budget *b = budget_of(c);
    char why[WHY_BYTES];
    snprintf(
        why, sizeof(why),
        "%llu bytes wait on connections, %s allows %llu: clients read their answers too slowly",
        (unsigned long long)budget_used(b, BUDGET_BUFFER_BYTES), budget_key(BUDGET_BUFFER_BYTES),
        (unsigned long long)budget_limit(b, BUDGET_BUFFER_BYTES));
    budget_refused(budget_of(c), BUDGET_BUFFER_BYTES);
    refuse(c, 503, why);
}

/* body_came: bytes behind the head are here already. */
static void on_head(struct http_conn *c, bool body_came) {
    const struct http_server_opts *o = &c->s->opts;
    c->x = http_x_new(c);
    if (c->x == NULL) {
        answer_error(c, 503, "out of memory");
        return;
    }
    struct http_head *h = &c->x->head;
    bool has_body = h->chunked || h->length > 0;
    if (o->requests_per_conn_max > 0 && ++c->n_requests >= o->requests_per_conn_max)
        c->x->keep_alive = false;
    c->x->body_max = HTTP_BODY_BYTES_DEFAULT;
    if (o->body_bytes_max != NULL)
        c->x->body_max = o->body_bytes_max(o->arg, http_head_method(h), http_head_path(h));
    if (h->has_length && h->length > c->x->body_max) {
        too_large(c);
    } else if (o->wants_body != NULL && has_body && !o->wants_body(o->arg, c->x)) {
        answer_at_once(c);
        o->on_request(o->arg, c->x);
    } else if (!o->control && !http_gate_sweep(o->gate, c)) {
        refuse_waiting(c);
    } else if (h->has_length && !take_room(c, (size_t)h->length)) {
        return;
    } else if (h->expect_continue && has_body && !body_came) {
        buf_puts(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        http_server_dirty(c->s, c);
    }
}

/* Room for a chunked body is taken ahead of it. */
static bool has_room(struct http_conn *c, size_t n) {
    struct http_x *x = c->x;
    size_t need = x->body.len + n, ahead = x->body_taken + HTTP_TAKE_BYTES;
    if (c->s->opts.gate == NULL || need <= x->body_taken) return true;
    if (ahead > x->body_max) ahead = x->body_max;
    return take_room(c, (need > ahead ? need : ahead) - x->body_taken);
}

static void on_body(struct http_conn *c) {
    struct http_x *x = c->x;
    size_t n = c->parser.piece_len;
    if (n > x->body_max - x->body.len) {
        too_large(c);
        return;
    }
    if (!has_room(c, n)) return;
    http_x_body_append(x, c->parser.piece, n);
    if (x->body.failed) answer_error(c, 503, "out of memory");
}

static void on_end(struct http_conn *c) {
    struct http_x *x = c->x;
    http_parser_next(&c->parser);
    x->state = X_OPEN;
    set_phase(c, PHASE_ANSWER, 0);
    c->s->opts.on_request(c->s->opts.arg, x); /* may answer, and so free x, at once */
}

static bool may_parse(const struct http_conn *c) {
    if (c->phase >= PHASE_LINGER || c->close_after) return false;
    if (c->x != NULL) return c->x->state == X_READING;
    return http_conn_pending(c) <= HTTP_BACKLOG_BYTES_MAX;
}

/* Moves bytes through the parser, request after request, until one is with a handler. How many it
 * took. */
static size_t parse(struct http_conn *c, const char *data, size_t n) {
    size_t at = 0;
    /* An exchange that is read may end without a byte more; a head cannot begin without one. */
    while (may_parse(c) && (c->x != NULL || at < n)) {
        size_t used;
        enum http_event ev = http_parser_feed(&c->parser, data + at, n - at, &used);
        at += used;
        switch (ev) {
        case HTTP_EV_MORE: return at;
        case HTTP_EV_HEAD: on_head(c, at < n); break;
        case HTTP_EV_BODY: on_body(c); break;
        case HTTP_EV_END: on_end(c); break;
        case HTTP_EV_ERROR: answer_error(c, c->parser.status, c->parser.why); break;
        }
    }
    return at;
}

/* What was read before, and waited for an answer. */
static void parse_waiting(struct http_conn *c) {
    if (unread(c) > 0) c->in_at += parse(c, c->in.data + c->in_at, unread(c));
    if (c->phase == PHASE_DEAD) return;
    drop_taken(&c->in, &c->in_at);
    update_phase(c, false);
}

/* Fresh bytes. What cannot be looked at yet is kept. */
static void take_in(struct http_conn *c, const char *data, size_t n) {
    size_t used = 0;
    if (unread(c) == 0) used = parse(c, data, n);
    if (c->phase == PHASE_DEAD) return;
    if (!c->close_after) buf_append(&c->in, data + used, n - used);
    if (c->in.failed) {
        http_conn_gone(c);
        return;
    }
    update_phase(c, true);
}

static void on_end_of_stream(struct http_conn *c) {
    c->eof = true;
    /* Only what is sent already may still go out. */
    if (c->x != NULL || c->phase == PHASE_LINGER || http_conn_pending(c) == 0) {
        http_conn_gone(c);
    } else {
        c->close_after = true;
        update_phase(c, false);
    }
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
    if (handshake && !c->io.handshaking) set_phase(c, PHASE_IDLE, s->opts.idle_ms);
    return n;
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
        on_end_of_stream(c);
    } else if (c->phase == PHASE_LINGER) {
        c->linger_left = (size_t)n < c->linger_left ? c->linger_left - (size_t)n : 0;
        if (c->linger_left == 0) conn_close(c);
    } else if (!c->close_after) { /* behind the last answer nothing is looked at any more */
        take_in(c, s->read_buf, (size_t)n);
    }
}

/* After a write that took n bytes (negative: none) and left some, or all is gone. */
static void note_progress(struct http_conn *c, ssize_t n, size_t left) {
    unsigned limit_ms = c->s->opts.write_ms;
    if (left == 0) {
        if (c->waits_ms != 0) http_list_drop(c, LINK_STALLS);
        c->write_deadline_ms = c->waits_ms = 0;
        return;
    }
    if (n <= 0 && c->waits_ms != 0) return;
    uint64_t now_ms = clock_ms();
    c->write_deadline_ms = limit_ms > 0 ? now_ms + limit_ms : UINT64_MAX;
    if (c->waits_ms == 0) c->waits_ms = now_ms;
    c->stalled_ms = now_ms;
    http_list_drop(c, LINK_STALLS);
    http_list_add(&c->s->stalled, c, LINK_STALLS);
}

/* One write. A short or refused write waits for the socket to have room. */
static void flush(struct http_conn *c) {
    size_t left = http_conn_pending(c);
    if (c->out.failed) {
        http_conn_gone(c);
        return;
    }
    if (left == 0) return;
    ssize_t n = c->io.ops->write(&c->io, c->out.data + c->out_at, left);
    if (n == SOCK_FAILED) {
        http_conn_gone(c);
        return;
    }
    if (n > 0) {
        c->out_at += (size_t)n;
        left -= (size_t)n;
        drop_taken(&c->out, &c->out_at);
    }
    note_progress(c, n, left);
}

/* Thousands may idle. */
static void keep_nothing(struct http_conn *c) {
    buf_free(&c->in);
    buf_free(&c->out);
    c->in_at = c->out_at = 0;
}

void http_conn_shutdown(struct http_conn *c) {
    flush(c);
    if (c->phase != PHASE_DEAD) http_conn_gone(c);
}

void http_conn_pass_end(struct http_conn *c) {
    flush(c);
    if (c->phase == PHASE_DEAD) return;
    size_t left = http_conn_pending(c), max = c->s->opts.stream_pending_max;
    if (max > 0 && left > max && c->x != NULL && c->x->state == X_STREAM && !c->x->paced) {
        budget_refused(budget_of(c), BUDGET_SLOW_READER);
        http_conn_gone(c); /* a reader this slow costs memory that others need */
        return;
    }
    if (left == 0 && c->close_after && c->phase != PHASE_LINGER) start_linger(c);
    if (c->phase != PHASE_DEAD) parse_waiting(c);
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

/* A head, or a piece of a body, is late. */
static void on_late(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    char why[WHY_BYTES];
    if (c->phase == PHASE_HEAD) {
        budget_refused(budget_of(c), BUDGET_HEAD_TIME);
        snprintf(why, sizeof(why), "The head of the request did not come within %u ms (%s)",
                 nearer(o->head_ms, o->read_ms), budget_key(BUDGET_HEAD_TIME));
        answer_error(c, 408, why);
        return;
    }
    uint64_t now_us = clock_us();
    if (now_us >= c->body_end_us) {
        budget_refused(budget_of(c), BUDGET_BODY_TIME);
        snprintf(why, sizeof(why), "The body of the request did not come within %u seconds (%s)",
                 o->body_ms / 1000, budget_key(BUDGET_BODY_TIME));
    } else if (now_us >= c->rate_us) {
        budget_refused(budget_of(c), BUDGET_BODY_RATE);
        snprintf(why, sizeof(why),
                 "The body of the request came slower than %u bytes a second (%s) for %u seconds",
                 o->body_rate_min, budget_key(BUDGET_BODY_RATE), o->body_grace_ms / 1000);
    } else {
        budget_refused(budget_of(c), BUDGET_BODY_RATE);
        snprintf(why, sizeof(why), "The body of the request did not go on for %u ms", o->read_ms);
    }
    refuse(c, 408, why);
}

void http_conn_yield_body(struct http_conn *c) {
    const struct budget *b = budget_of(c);
    char why[WHY_BYTES];
    budget_refused(budget_of(c), BUDGET_BODY_YIELDED);
    snprintf(
        why, sizeof(why),
        "The body of the request did not come within %llu ms, and other clients need its room: "
        "%s allows %llu bytes in flight",
        (unsigned long long)(clock_ms() - c->since_ms), budget_key(BUDGET_BODY_YIELDED),
        (unsigned long long)budget_limit(b, BUDGET_BODY_BYTES));
    refuse(c, 408, why);
    update_phase(c, false);
}

void http_conn_spare(struct http_conn *c) {
    budget_refused(budget_of(c), BUDGET_CONNS_YIELDED);
    if (c->phase == PHASE_IDLE) c->io.ops->shutdown(&c->io);
    http_conn_gone(c);
}

void http_conn_tick(struct http_conn *c, uint64_t now_ms) {
    if (c->write_deadline_ms != 0 && now_ms >= c->write_deadline_ms) {
        http_conn_gone(c);
        return;
    }
    if (c->read_deadline_ms == 0 || now_ms < c->read_deadline_ms) return;
    switch (c->phase) {
    case PHASE_HANDSHAKE:
        budget_refused(budget_of(c), BUDGET_HANDSHAKE_TIME);
        http_server_tls_failed(c->s, c->peer, "the handshake did not end in time");
        conn_close(c);
        break;
    case PHASE_IDLE:
        c->io.ops->shutdown(&c->io);
        conn_close(c);
        break;
    case PHASE_HEAD:
    case PHASE_BODY:
        if (http_conn_pending(c) > 0) break; /* it is we who wait for the client to read */
        on_late(c);
        update_phase(c, false);
        break;
    case PHASE_LINGER: conn_close(c); break;
    default: break;
    }
}

void http_conn_abort(struct http_conn *c, bool reset) {
    c->x = NULL;
    flush(c);
    if (c->phase == PHASE_DEAD) return;
    if (reset) {
        struct linger l = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->io.fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
    }
    conn_close(c);
}
