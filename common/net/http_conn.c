/* http_conn: bytes between a socket and the parser, in both directions, with every limit in time
 * and size. What an answer looks like is http_x.c's business. */
#include "common/net/http_conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "common/base/clock.h"
#include "common/net/tls.h"

static void on_event(void *arg, int fd, int events);

enum err http_conn_open(struct http_server *s, int fd, const char *peer) {
    struct http_conn *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    enum err e = ERR_OK;
    c->s = s;
    c->phase = s->opts.tls != NULL ? PHASE_HANDSHAKE : PHASE_IDLE;
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
        http_conn_free(c);
        return ERR_OK; /* fd is taken, and closed */
    }
    unsigned limit_ms = c->phase == PHASE_HANDSHAKE ? s->opts.handshake_ms : s->opts.idle_ms;
    if (limit_ms > 0) c->read_deadline_ms = clock_ms() + limit_ms;
    c->next = s->conns;
    if (c->next != NULL) c->next->prev = c;
    s->conns = c;
    s->n_conns++;
    return ERR_OK;
}

void http_conn_free(struct http_conn *c) {
    http_parser_fini(&c->parser);
    buf_free(&c->in);
    buf_free(&c->out);
    free(c);
}

static void conn_close(struct http_conn *c) {
    c->phase = PHASE_DEAD;
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

static void set_phase(struct http_conn *c, enum http_phase phase, unsigned limit_ms) {
    c->phase = phase;
    c->read_deadline_ms = limit_ms > 0 ? clock_ms() + limit_ms : 0;
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
        if (c->phase != PHASE_BODY || progress) set_phase(c, PHASE_BODY, o->read_ms);
    } else if (!http_parser_idle(&c->parser) || unread(c) > 0) {
        if (c->phase != PHASE_HEAD) set_phase(c, PHASE_HEAD, o->read_ms);
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
    http_server_dirty(c->s, c);
}

/* A handler answers without the body, which is not read, so the connection ends with the answer. */
static void answer_at_once(struct http_conn *c) {
    c->x->keep_alive = false;
    c->x->state = X_OPEN;
    buf_free(&c->x->body);
    c->phase = PHASE_ANSWER;
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

/* The connection is over its limit. */
static void too_many(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    struct buf text = BUF_INIT;
    if (o->on_too_many != NULL) {
        answer_at_once(c);
        o->on_too_many(o->arg, c->x, o->requests_per_conn_max);
        return;
    }
    buf_printf(&text, "Connection request out of limit, max is %u\r\n", o->requests_per_conn_max);
    answer_error(c, 429, text.failed ? "" : text.data);
    buf_free(&text);
}

static void on_head(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    struct http_head *h = &c->parser.head;
    c->x = http_x_new(c);
    if (c->x == NULL) {
        answer_error(c, 503, "out of memory");
        return;
    }
    if (o->requests_per_conn_max > 0 && ++c->n_requests > o->requests_per_conn_max) {
        too_many(c);
        return;
    }
    h = &c->x->head;
    c->x->body_max = HTTP_BODY_BYTES_DEFAULT;
    if (o->body_bytes_max != NULL)
        c->x->body_max = o->body_bytes_max(o->arg, http_head_method(h), http_head_path(h));
    if (h->has_length && h->length > c->x->body_max) {
        too_large(c);
    } else if (o->wants_body != NULL && (h->chunked || h->length > 0) &&
               !o->wants_body(o->arg, c->x)) {
        answer_at_once(c);
        o->on_request(o->arg, c->x);
    } else if (h->expect_continue && (h->chunked || h->length > 0) && unread(c) == 0) {
        buf_puts(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        http_server_dirty(c->s, c);
    }
}

static void on_body(struct http_conn *c) {
    struct http_x *x = c->x;
    size_t n = c->parser.piece_len;
    if (n > x->body_max - x->body.len) {
        too_large(c);
        return;
    }
    buf_append(&x->body, c->parser.piece, n);
    if (x->body.failed) answer_error(c, 503, "out of memory");
}

static void on_end(struct http_conn *c) {
    struct http_x *x = c->x;
    http_parser_next(&c->parser);
    x->state = X_OPEN;
    c->phase = PHASE_ANSWER;
    c->s->opts.on_request(c->s->opts.arg, x); /* may answer, and so free x, at once */
}

static bool may_parse(const struct http_conn *c) {
    if (c->phase >= PHASE_LINGER || c->close_after) return false;
    if (c->x != NULL) return c->x->state == X_READING;
    return unread(c) > 0 && http_conn_pending(c) <= HTTP_BACKLOG_BYTES_MAX;
}

/* Moves what has come through the parser, request after request, until one is with a handler. */
static void parse(struct http_conn *c, bool progress) {
    bool more = true;
    while (more && may_parse(c)) {
        size_t used;
        const char *data = c->in.data != NULL ? c->in.data + c->in_at : "";
        enum http_event ev = http_parser_feed(&c->parser, data, unread(c), &used);
        c->in_at += used;
        switch (ev) {
        case HTTP_EV_MORE: more = false; break;
        case HTTP_EV_HEAD: on_head(c); break;
        case HTTP_EV_BODY: on_body(c); break;
        case HTTP_EV_END: on_end(c); break;
        case HTTP_EV_ERROR: answer_error(c, c->parser.status, c->parser.why); break;
        }
    }
    if (c->phase == PHASE_DEAD) return;
    drop_taken(&c->in, &c->in_at);
    update_phase(c, progress);
}

static void on_readable(struct http_conn *c) {
    struct http_server *s = c->s;
    ssize_t n = c->io.ops->read(&c->io, s->read_buf, sizeof(s->read_buf));
    if (c->phase == PHASE_HANDSHAKE && !c->io.handshaking)
        set_phase(c, PHASE_IDLE, s->opts.idle_ms);
    if (n == SOCK_AGAIN) return;
    if (n == SOCK_FAILED) {
        if (c->phase == PHASE_HANDSHAKE && tls_sock_error(&c->io)[0] != 0)
            http_server_tls_failed(s, c->peer, tls_sock_error(&c->io));
        http_conn_gone(c);
    } else if (n == 0) {
        c->eof = true;
        /* Only what is sent already may still go out. */
        if (c->x != NULL || c->phase == PHASE_LINGER || http_conn_pending(c) == 0) {
            http_conn_gone(c);
        } else {
            c->close_after = true;
            update_phase(c, false);
        }
    } else if (c->phase == PHASE_LINGER) {
        c->linger_left = (size_t)n < c->linger_left ? c->linger_left - (size_t)n : 0;
        if (c->linger_left == 0) conn_close(c);
    } else if (!c->close_after) { /* behind the last answer nothing is looked at any more */
        buf_append(&c->in, s->read_buf, (size_t)n);
        if (c->in.failed) {
            http_conn_gone(c);
            return;
        }
        parse(c, true);
    }
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
    if (left == 0) {
        c->write_deadline_ms = 0;
    } else if (n > 0 || c->write_deadline_ms == 0) {
        unsigned limit_ms = c->s->opts.write_ms;
        c->write_deadline_ms = limit_ms > 0 ? clock_ms() + limit_ms : UINT64_MAX;
    }
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
        http_conn_gone(c); /* a reader this slow costs memory that others need */
        return;
    }
    if (left == 0 && c->close_after && c->phase != PHASE_LINGER) start_linger(c);
    if (c->phase != PHASE_DEAD) parse(c, false);
    update_watch(c);
}

static void on_event(void *arg, int fd, int events) {
    struct http_conn *c = arg;
    (void)fd;
    if ((events & LOOP_READ) || c->io.want_write) on_readable(c);
    /* Room to write, or interest to change: both are the pass end's. */
    if (c->phase != PHASE_DEAD) http_server_dirty(c->s, c);
}

void http_conn_tick(struct http_conn *c, uint64_t now_ms) {
    if (c->write_deadline_ms != 0 && now_ms >= c->write_deadline_ms) {
        http_conn_gone(c);
        return;
    }
    if (c->read_deadline_ms == 0 || now_ms < c->read_deadline_ms) return;
    switch (c->phase) {
    case PHASE_HANDSHAKE:
        http_server_tls_failed(c->s, c->peer, "the handshake did not end in time");
        conn_close(c);
        break;
    case PHASE_IDLE:
        if (http_conn_pending(c) > 0) break;
        c->io.ops->shutdown(&c->io);
        conn_close(c);
        break;
    case PHASE_HEAD:
    case PHASE_BODY:
        if (http_conn_pending(c) > 0) break; /* it is we who wait for the client to read */
        answer_error(c, 408, "the request did not come in time");
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
