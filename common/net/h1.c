/* h1: HTTP/1.1 on a connection: requests one by one through the parser, answers in chunks or with
 * their length. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/http_conn.h"

static const struct http_x_ops h1_x_ops; /* below: how answers are framed */

void h1_init(struct http_conn *c) {
    http_parser_init(&c->h1.parser, c->s->opts.head_bytes_max);
    c->h1.is_fresh = c->io.tls == NULL;
}

static void h1_fini(struct http_conn *c) {
    http_parser_fini(&c->h1.parser);
    buf_free(&c->h1.in);
}

static size_t unread(const struct http_conn *c) {
    return c->h1.in.len - c->h1.in_at;
}

static bool is_ahead(const struct http_conn *c) {
    return unread(c) > 0;
}

static bool is_paced(const struct http_conn *c) {
    return c->h1.x != NULL && c->h1.x->paced;
}

static bool wants_read(const struct http_conn *c) {
    return unread(c) < HTTP_AHEAD_BYTES_MAX;
}

static size_t unsent(const struct http_conn *c) {
    (void)c; /* all of it is in c->out */
    return 0;
}

static void bye(struct http_conn *c) {
    (void)c; /* there is no word for it */
}

static size_t held(const struct http_conn *c) {
    return unread(c) + c->h1.parser.head.raw.len + (c->h1.x != NULL ? c->h1.x->head.raw.len : 0);
}

/* ---- requests */
/* Fits phase and deadline to where parser and exchange stand. progress: bytes of the request have
 * come. */
static void update_phase(struct http_conn *c, bool progress) {
    const struct http_server_opts *o = &c->s->opts;
    struct http_x *x = c->h1.x;
    if (c->phase >= PHASE_LINGER || c->phase == PHASE_HANDSHAKE) return;
    if (c->close_after) {
        if (c->phase != PHASE_DRAIN) http_conn_set_phase(c, PHASE_DRAIN, 0);
    } else if (x != NULL && x->state != X_READING) {
        if (c->phase != PHASE_ANSWER) http_conn_set_phase(c, PHASE_ANSWER, 0);
    } else if (x != NULL) {
        if (c->phase != PHASE_BODY) http_conn_set_phase(c, PHASE_BODY, 0);
        if (progress || !x->clock.runs) http_req_wait(x, progress);
    } else if (!http_parser_idle(&c->h1.parser) || unread(c) > 0) {
        if (c->phase != PHASE_HEAD)
            http_conn_set_phase(c, PHASE_HEAD, http_nearer(o->head_ms, o->read_ms));
    } else if (http_conn_pending(c) > 0) { /* the limits of the write apply */
        if (c->phase != PHASE_ANSWER) http_conn_set_phase(c, PHASE_ANSWER, 0);
    } else if (c->phase != PHASE_IDLE) {
        http_conn_set_phase(c, PHASE_IDLE, o->idle_ms);
    }
}

/* Status line and fields up to, not with, those of the framing. */
static void put_head(struct buf *out, const struct http_server *s, int status,
                     const char *content_type) {
    buf_printf(out, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
    if (s->name != NULL) buf_printf(out, "Server: %s\r\n", s->name);
    if (content_type != NULL && *content_type != '\0')
        buf_printf(out, "Content-Type: %s\r\n", content_type);
}

/* Without an exchange, since its head or its body cannot be read. */
static void answer_error(struct http_conn *c, int status, const char *text) {
    if (c->h1.x != NULL) http_x_free(c->h1.x);
    c->h1.x = NULL;
    put_head(&c->out, c->s, status, "text/plain; charset=utf-8");
    if (status == 429 || status == 503) buf_puts(&c->out, "Retry-After: 1\r\n");
    buf_printf(&c->out, "Content-Length: %zu\r\nConnection: close\r\n\r\n%s\r\n", strlen(text) + 2,
               text);
    c->close_after = true;
    http_conn_set_phase(c, PHASE_DRAIN, 0);
    http_server_dirty(c->s, c);
}

static void on_head(struct http_conn *c, bool body_came) {
    struct http_x *x = c->h1.x = http_x_new(c, &h1_x_ops, &c->h1.parser.head);
    if (x == NULL)
        answer_error(c, 503, "out of memory");
    else
        http_req_head(x, body_came);
}

/* Has `word` among the comma-separated words of a header. */
static bool lists(const char *value, const char *word) {
    const size_t len = strlen(word);
    while (value != NULL && *value != '\0') {
        value += strspn(value, ", \t");
        size_t n = strcspn(value, ", \t");
        if (n == len && strncasecmp(value, word, n) == 0) return true;
        value += n;
    }
    return false;
}

/* A client that knows HTTP/2, and asks for it in clear (RFC 7540 3.2). One that asks wrongly is
 * answered as it speaks. */
static bool wants_h2c(const struct http_conn *c, const struct http_x *x) {
    const char *connection = http_x_header(x, "Connection");
    return c->io.tls == NULL && x->head.minor == 1 && lists(http_x_header(x, "Upgrade"), "h2c") &&
           lists(connection, "Upgrade") && lists(connection, "HTTP2-Settings") &&
           http_x_header(x, "HTTP2-Settings") != NULL;
}

static void on_end(struct http_conn *c) {
    struct http_x *x = c->h1.x;
    http_parser_next(&c->h1.parser);
    http_conn_set_phase(c, PHASE_ANSWER, 0);
    if (wants_h2c(c, x)) h2_upgrade(c, x, http_x_header(x, "HTTP2-Settings"));
    http_req_end(x);
}

static bool may_parse(const struct http_conn *c) {
    if (c->h2 != NULL) return false;
    if (c->phase >= PHASE_LINGER || c->close_after) return false;
    if (c->h1.x != NULL) return c->h1.x->state == X_READING;
    return http_conn_pending(c) <= HTTP_BACKLOG_BYTES_MAX;
}

/* Moves bytes through the parser, request after request, until one is with a handler. How many it
 * took. */
static size_t parse(struct http_conn *c, const char *data, size_t n) {
    struct http_parser *p = &c->h1.parser;
    size_t at = 0;
    /* An exchange that is read may end without a byte more; a head cannot begin without one. */
    while (may_parse(c) && (c->h1.x != NULL || at < n)) {
        size_t used;
        enum http_event ev = http_parser_feed(p, data + at, n - at, &used);
        at += used;
        switch (ev) {
        case HTTP_EV_MORE: return at;
        case HTTP_EV_HEAD: on_head(c, at < n); break;
        case HTTP_EV_BODY: http_req_body(c->h1.x, p->piece, p->piece_len); break;
        case HTTP_EV_END: on_end(c); break;
        case HTTP_EV_ERROR: answer_error(c, p->status, p->why); break;
        }
    }
    return at;
}

/* The bytes are no request: they are for what the connection speaks now. */
static void feed_h2(struct http_conn *c, const char *data, size_t n) {
    struct buf in = c->h1.in;
    size_t at = c->h1.in_at;
    c->h1.in = BUF_INIT;
    c->h1.in_at = 0;
    if (in.len > at) c->ops->feed(c, in.data + at, in.len - at);
    if (n > 0 && c->phase != PHASE_DEAD) c->ops->feed(c, data, n);
    buf_free(&in);
}

/* What was read before, and waited for an answer. */
static void parse_waiting(struct http_conn *c) {
    if (unread(c) > 0 && !c->h1.is_fresh)
        c->h1.in_at += parse(c, c->h1.in.data + c->h1.in_at, unread(c));
    if (c->phase == PHASE_DEAD) return;
    if (c->h2 != NULL) {
        feed_h2(c, NULL, 0);
        return;
    }
    buf_drop_taken(&c->h1.in, &c->h1.in_at);
    update_phase(c, false);
}

/* Whether the first bytes of a connection are those of HTTP/2 (RFC 9113 3.4). */
enum preface { PREFACE_NO, PREFACE_YES, PREFACE_PERHAPS };
static enum preface preface_of(const struct http_conn *c, const char *data, size_t n) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const size_t had = unread(c), all = sizeof(preface) - 1;
    const size_t more = n < all - had ? n : all - had;
    if (memcmp(preface, c->h1.in.data != NULL ? c->h1.in.data : "", had) != 0 ||
        memcmp(preface + had, data, more) != 0)
        return PREFACE_NO;
    return had + more == all ? PREFACE_YES : PREFACE_PERHAPS;
}

/* What cannot be looked at yet is kept. */
static void feed(struct http_conn *c, const char *data, size_t n) {
    size_t used = 0;
    if (c->h1.is_fresh) {
        enum preface is = preface_of(c, data, n);
        if (is == PREFACE_YES && h2_start(c) != ERR_OK) {
            http_conn_gone(c);
            return;
        }
        if (is == PREFACE_YES) {
            feed_h2(c, data, n);
            return;
        }
        c->h1.is_fresh = is == PREFACE_PERHAPS;
        if (is == PREFACE_NO) {
            parse_waiting(c);
            if (c->phase == PHASE_DEAD) return;
        }
    }
    if (unread(c) == 0 && !c->h1.is_fresh) used = parse(c, data, n);
    if (c->phase == PHASE_DEAD) return;
    if (c->h2 != NULL) {
        feed_h2(c, data + used, n - used);
        return;
    }
    if (!c->close_after) buf_append(&c->h1.in, data + used, n - used);
    if (c->h1.in.failed) {
        http_conn_gone(c);
        return;
    }
    update_phase(c, true);
}

static void end_of_input(struct http_conn *c) {
    /* Only what is sent already may still go out. */
    if (c->h1.x != NULL || http_conn_pending(c) == 0) {
        http_conn_gone(c);
    } else {
        c->close_after = true;
        update_phase(c, false);
    }
}

static void advance(struct http_conn *c) {
    struct http_x *x = c->h1.x;
    size_t max = c->s->opts.stream_pending_max;
    if (max > 0 && http_conn_pending(c) > max && x != NULL && x->state == X_STREAM && !x->paced) {
        budget_refused(http_server_budget(c->s), BUDGET_SLOW_READER);
        http_conn_gone(c); /* a reader this slow costs memory that others need */
        return;
    }
    if (c->phase == PHASE_LINGER) {
        buf_free(&c->h1.in);
        c->h1.in_at = 0;
    }
    parse_waiting(c);
    if (c->phase == PHASE_IDLE) buf_free(&c->h1.in);
}

static void tick(struct http_conn *c, uint64_t now_ms) {
    char why[HTTP_WHY_BYTES];
    if (http_conn_pending(c) > 0) return; /* it is we who wait for the client to read */
    if (c->phase == PHASE_HEAD && c->read_deadline_ms != 0 && now_ms >= c->read_deadline_ms) {
        http_req_head_late(c, why);
        answer_error(c, 408, why);
    } else if (c->phase == PHASE_BODY && c->h1.x != NULL) {
        http_req_tick(c->h1.x, now_ms);
    }
}

static void let_go(struct http_conn *c) {
    struct http_x *x = c->h1.x;
    c->h1.x = NULL;
    if (x != NULL) http_x_client_gone(x);
}

const struct http_conn_ops h1_conn_ops = {
    .feed = feed,
    .end_of_input = end_of_input,
    .advance = advance,
    .tick = tick,
    .wants_read = wants_read,
    .held = held,
    .unsent = unsent,
    .bye = bye,
    .is_ahead = is_ahead,
    .is_paced = is_paced,
    .let_go = let_go,
    .fini = h1_fini,
};

/* ---- answers */
static bool closes(const struct http_x *x) {
    return !x->keep_alive || x->unread; /* behind the rest of a body no request can be found */
}

static void x_go_on(struct http_x *x) {
    buf_puts(&x->conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void x_head(struct http_x *x, int status, const char *content_type, uint64_t length) {
    struct buf *out = &x->conn->out;
    if (x->conn->s->leaving) x->keep_alive = false;
    if (length == HTTP_LENGTH_UNKNOWN) {
        x->chunked = x->head.minor == 1;
        if (!x->chunked) x->keep_alive = false; /* the close is the end of the body */
    }
    put_head(out, x->conn->s, status, content_type);
    if (x->chunked)
        buf_puts(out, "Transfer-Encoding: chunked\r\n");
    else if (length != HTTP_LENGTH_UNKNOWN && !http_has_no_body(status))
        buf_printf(out, "Content-Length: %llu\r\n",
                   (unsigned long long)(length == HTTP_LENGTH_BARE ? 0 : length));
    buf_append(out, x->fields.data, x->fields.len);
    if (x->fields.failed) out->failed = true;
    if (closes(x))
        buf_puts(out, "Connection: close\r\n");
    else if (x->head.minor == 0)
        buf_puts(out, "Connection: keep-alive\r\n");
    buf_puts(out, "\r\n");
}

enum { CHUNK_HEAD_BYTES_MAX = 2 * sizeof(size_t) + 2 };

/* Once for each token of each stream. */
static size_t put_chunk_head(char head[CHUNK_HEAD_BYTES_MAX], size_t n) {
    size_t digits = 1;
    while (digits < 2 * sizeof(size_t) && n >> 4 * digits != 0) digits++;
    for (size_t i = digits; i > 0; i--, n >>= 4) head[i - 1] = "0123456789abcdef"[n & 15];
    memcpy(head + digits, "\r\n", 2);
    return digits + 2;
}

static void x_data(struct http_x *x, const void *p, size_t n) {
    struct buf *out = &x->conn->out;
    char head[CHUNK_HEAD_BYTES_MAX];
    if (x->chunked) buf_append(out, head, put_chunk_head(head, n));
    buf_append(out, p, n);
    if (x->chunked) buf_append(out, "\r\n", 2);
}

static void x_end(struct http_x *x) {
    struct http_conn *c = x->conn;
    if (x->chunked && !x->head_only) {
        buf_puts(&c->out, "0\r\n");
        buf_append(&c->out, x->trailers.data, x->trailers.len);
        buf_puts(&c->out, "\r\n");
    }
    c->h1.x = NULL;
    if (closes(x)) c->close_after = true;
}

/* Where the close would read as a proper end, the client gets a reset instead. */
static void x_abort(struct http_x *x) {
    struct http_conn *c = x->conn;
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    c->h1.x = NULL;
    http_conn_write(c);
    if (c->phase == PHASE_DEAD) return;
    if (x->state == X_STREAM && !x->chunked)
        setsockopt(c->io.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    http_conn_gone(c);
}

static size_t x_pending(const struct http_x *x) {
    return http_conn_pending(x->conn);
}

static const struct http_x_ops h1_x_ops = {
    .go_on = x_go_on,
    .head = x_head,
    .data = x_data,
    .end = x_end,
    .abort = x_abort,
    .pending = x_pending,
};
