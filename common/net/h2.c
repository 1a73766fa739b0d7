/* h2: a connection of HTTP/2: bytes through nghttp2, its callbacks to streams, what a client may
 * waste, and how it ends. */
#include <stdlib.h>
#include <string.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/h2_priv.h"

enum { FRAMES_EARNED_BY_DATA = 2, FRAMES_EARNED_BY_REQUEST = 4, SETTINGS_BYTES_MAX = 192 };
/* Bytes of names and values that a head may have beyond its limit: more than its frames can hold
 * unless fields repeat others by their index, a byte for thousands that are looked at again. */
enum { BLOCK_BYTES_BEYOND = 256 << 10 };

static const struct http_conn_ops h2_conn_ops;

static struct budget *budget_of(const struct http_conn *c) {
    return http_server_budget(c->s);
}

/* ---- rates */
static struct h2_rate rate_of(unsigned per_s) {
    return (struct h2_rate){
        .left_us = H2_RATE_SECONDS * 1000000u, .at_us = clock_us(), .per_s = per_s};
}

void h2_rate_give(struct h2_rate *r, unsigned n) {
    r->left_us += (uint64_t)n * 1000000u / r->per_s;
    if (r->left_us > H2_RATE_SECONDS * 1000000u) r->left_us = H2_RATE_SECONDS * 1000000u;
}

bool h2_rate_take(struct h2_rate *r, unsigned n) {
    const uint64_t now_us = clock_us(), cost_us = (uint64_t)n * 1000000u / r->per_s;
    r->left_us += now_us - r->at_us;
    r->at_us = now_us;
    h2_rate_give(r, 0);
    if (r->left_us < cost_us) return false;
    r->left_us -= cost_us;
    return true;
}

/* ---- ends */
void h2_doom(struct http_conn *c, uint32_t error) {
    if (c->h2->doomed) return;
    c->h2->doomed = true;
    c->h2->doom = error;
}

void h2_leave(struct http_conn *c) {
    struct h2 *h2 = c->h2;
    if (h2->leaving) return;
    h2->leaving = true;
    if (nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(h2->session),
                              NGHTTP2_NO_ERROR, NULL, 0) != 0)
        c->out.failed = true;
    http_server_dirty(c->s, c);
}

/* A GOAWAY of our own making, for when nghttp2 may not be called any more. */
static void put_goaway(struct http_conn *c, uint32_t error) {
    uint8_t frame[17] = {0, 0, 8, NGHTTP2_GOAWAY};
    const uint32_t last = (uint32_t)nghttp2_session_get_last_proc_stream_id(c->h2->session);
    for (int i = 0; i < 4; i++) {
        frame[9 + i] = (uint8_t)(last >> (24 - 8 * i));
        frame[13 + i] = (uint8_t)(error >> (24 - 8 * i));
    }
    buf_append(&c->out, frame, sizeof(frame));
}

static void let_go(struct http_conn *c) {
    for (struct h2_stream *st = c->h2->streams; st != NULL; st = st->next) {
        struct http_x *x = st->x;
        st->x = NULL;
        if (x != NULL) http_x_client_gone(x);
    }
}

/* What is in c->out goes out, and no more. */
static void close_soon(struct http_conn *c) {
    c->close_after = true;
    http_conn_set_phase(c, PHASE_DRAIN, 0);
    http_server_dirty(c->s, c);
    let_go(c);
}

static void end_with(struct http_conn *c, uint32_t error) {
    put_goaway(c, error);
    close_soon(c);
}

/* ---- callbacks: frames */
static bool is_over(const struct http_conn *c) {
    return c->phase == PHASE_DEAD || c->h2->doomed;
}

static int verdict(const struct http_conn *c) {
    return is_over(c) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void charge(struct http_conn *c, struct h2_rate *r, enum budget_id id) {
    if (is_over(c) || h2_rate_take(r, 1)) return;
    budget_refused(budget_of(c), id);
    h2_doom(c, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* Frames that ask for nothing are counted, also those that nghttp2 would not show. */
static void on_frame_head(struct http_conn *c, const uint8_t *head) {
    struct h2_scan *scan = &c->h2->scan;
    const uint8_t type = head[3], flags = head[4];
    const bool is_block = type == NGHTTP2_HEADERS || type == NGHTTP2_CONTINUATION;
    scan->left = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
    scan->is_data = type == NGHTTP2_DATA;
    scan->block_open = is_block && (flags & NGHTTP2_FLAG_END_HEADERS) == 0;
    bool asks = type == NGHTTP2_HEADERS ||
                (scan->is_data && (scan->left > 0 || (flags & NGHTTP2_FLAG_END_STREAM) != 0));
    if (!asks) charge(c, &c->h2->control, BUDGET_H2_CONTROL);
    /* 6.3; nghttp2 does not look at priorities that it does not use. */
    if (type == NGHTTP2_PRIORITY && ((head[5] & 0x7f) | head[6] | head[7] | head[8]) == 0)
        h2_doom(c, NGHTTP2_PROTOCOL_ERROR);
}

static void scan_frames(struct http_conn *c, const uint8_t *p, size_t n) {
    struct h2_scan *scan = &c->h2->scan;
    while (n > 0 && !c->h2->doomed) {
        size_t part = scan->left;
        if (scan->left == 0) {
            part = sizeof(scan->head) - scan->n_head;
            if (part > n) part = n;
            memcpy(scan->head + scan->n_head, p, part);
            scan->n_head += part;
            if (scan->n_head == sizeof(scan->head)) {
                scan->n_head = 0;
                on_frame_head(c, scan->head);
            }
        } else {
            if (part > n) part = n;
            scan->left -= (uint32_t)part;
        }
        p += part;
        n -= part;
    }
}

/* Something has begun that is to come whole, as a head has to. */
static bool in_frame(const struct h2_scan *scan) {
    return scan->n_head > 0 || (scan->left > 0 && !scan->is_data) || scan->block_open;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *f, void *arg) {
    struct http_conn *c = arg;
    if (is_over(c)) return NGHTTP2_ERR_CALLBACK_FAILURE;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, f->hd.stream_id);
    bool end = (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (f->hd.type == NGHTTP2_SETTINGS) {
        c->h2->began = true;
    } else if (f->hd.type == NGHTTP2_HEADERS && st != NULL && st->malformed) {
        h2_stream_reset(st, NGHTTP2_PROTOCOL_ERROR); /* RFC 9113 8.1.1 */
    } else if (f->hd.type == NGHTTP2_HEADERS) {
        if (st != NULL && f->headers.cat == NGHTTP2_HCAT_REQUEST) h2_stream_head(st, !end);
        if (st != NULL && end && !is_over(c)) h2_stream_end(st);
    } else if (f->hd.type == NGHTTP2_DATA && end && st != NULL) {
        h2_stream_end(st);
    }
    return verdict(c);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *f, void *arg) {
    static const nghttp2_extpri fair = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    struct http_conn *c = arg;
    if (is_over(c)) return NGHTTP2_ERR_CALLBACK_FAILURE;
    c->h2->block_bytes = 0;
    if (f->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    h2_rate_give(&c->h2->control, FRAMES_EARNED_BY_REQUEST);
    struct h2_stream *st = h2_stream_new(c, f->hd.stream_id);
    if (st == NULL) /* it may be tried again, elsewhere or later */
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, f->hd.stream_id,
                                         NGHTTP2_REFUSED_STREAM);
    nghttp2_session_set_stream_user_data(session, st->id, st);
    /* Streams of one client take turns, whatever it says of their priorities. */
    nghttp2_session_change_extpri_stream_priority(session, st->id, &fair, 1);
    return 0;
}

/* Also of fields that nghttp2 drops, for it has looked at them. */
static int count_field(struct http_conn *c, size_t bytes) {
    if (is_over(c)) return NGHTTP2_ERR_CALLBACK_FAILURE;
    c->h2->block_bytes += bytes;
    if (c->h2->block_bytes <= c->s->opts.head_bytes_max + BLOCK_BYTES_BEYOND) return 0;
    budget_refused(budget_of(c), BUDGET_H2_CONTROL);
    h2_doom(c, NGHTTP2_ENHANCE_YOUR_CALM);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                             size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                             void *arg) {
    (void)name, (void)value, (void)flags;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, f->hd.stream_id);
    if (st != NULL) st->malformed = true;
    return count_field(arg, name_len + value_len); /* and those behind it */
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg) {
    struct http_conn *c = arg;
    (void)flags;
    if (count_field(c, name_len + value_len) != 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, f->hd.stream_id);
    if (st == NULL) return 0;
    if (f->headers.cat == NGHTTP2_HCAT_REQUEST) {
        h2_head_field(st, name, name_len, value, value_len);
    } else { /* trailers are bounded and dropped: nothing here may change a request after the fact
              */
        st->trailer_bytes += name_len + value_len + 32;
        if (st->trailer_bytes > HTTP_TRAILER_BYTES_MAX)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                   void *arg) {
    struct http_conn *c = arg;
    (void)flags;
    if (is_over(c)) return NGHTTP2_ERR_CALLBACK_FAILURE;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, id);
    if (st != NULL)
        h2_stream_body(st, p, n);
    else
        nghttp2_session_consume_connection(session, n);
    return verdict(c);
}

/* A stream that ends in an error of its client's cost work that nobody wants. */
static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg) {
    struct http_conn *c = arg;
    struct h2_stream *st = nghttp2_session_get_stream_user_data(session, id);
    if (c->phase == PHASE_DEAD || st == NULL) return 0;
    struct http_x *x = st->x;
    bool by_client = error != NGHTTP2_NO_ERROR && !st->aborted;
    st->x = NULL;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    h2_stream_free(st);
    http_server_dirty(c->s, c);
    if (x != NULL) http_x_client_gone(x);
    if (by_client) charge(c, &c->h2->resets, BUDGET_H2_RESETS);
    return verdict(c);
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *f, int error,
                            void *arg) {
    struct http_conn *c = arg;
    (void)session;
    (void)f;
    if (is_over(c)) return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (error == NGHTTP2_ERR_REFUSED_STREAM) budget_refused(budget_of(c), BUDGET_CONN_STREAMS);
    charge(c, &c->h2->resets, BUDGET_H2_RESETS);
    return verdict(c);
}

/* An answer that ended before its request: the rest is not wanted (RFC 9113 8.1). */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *f, void *arg) {
    struct http_conn *c = arg;
    if (f->hd.type == NGHTTP2_DATA) h2_rate_give(&c->h2->control, FRAMES_EARNED_BY_DATA);
    bool ends = (f->hd.type == NGHTTP2_DATA || f->hd.type == NGHTTP2_HEADERS) &&
                (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (!ends) return 0; /* nearly all of them: the stream is not even looked up */
    const struct h2_stream *st = nghttp2_session_get_stream_user_data(session, f->hd.stream_id);
    if (st == NULL || st->request_ended) return 0;
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
}

/* ---- life */
static bool set_callbacks(nghttp2_session_callbacks **out) {
    nghttp2_session_callbacks *cb;
    if (nghttp2_session_callbacks_new(&cb) != 0) return false;
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(cb, on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    *out = cb;
    return true;
}

static nghttp2_session *new_session(struct http_conn *c) {
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;
    nghttp2_mem mem = h2_mem_calls(&c->h2->mem);
    if (nghttp2_option_new(&option) == 0 && set_callbacks(&cb)) {
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_max_settings(option, H2_SETTINGS_ENTRIES_MAX);
        nghttp2_option_set_max_outbound_ack(option, H2_ACKS_WAITING_MAX);
        if (nghttp2_session_server_new3(&session, cb, c, option, &mem) != 0) session = NULL;
    }
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    return session;
}

static bool say_settings(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    const nghttp2_settings_entry mine[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, o->h2_streams_max},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)o->head_bytes_max},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session *s = c->h2->session;
    return nghttp2_submit_settings(s, NGHTTP2_FLAG_NONE, mine, sizeof(mine) / sizeof(mine[0])) ==
               0 &&
           nghttp2_session_set_local_window_size(s, NGHTTP2_FLAG_NONE, 0, H2_CONN_WINDOW_BYTES) ==
               0;
}

static void h2_free(struct h2 **h2p) {
    struct h2 *h2 = *h2p;
    if (h2 == NULL) return;
    while (h2->streams != NULL) h2_stream_free(h2->streams);
    h2_mem_free(&h2->mem);
    free(h2);
    *h2p = NULL;
}

static bool h2_new(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    c->h2 = calloc(1, sizeof(*c->h2));
    if (c->h2 == NULL) return false;
    c->h2->control = rate_of(o->h2_control_rate);
    c->h2->resets = rate_of(o->h2_reset_rate);
    c->h2->scan.left = NGHTTP2_CLIENT_MAGIC_LEN; /* which is checked elsewhere */
    c->h2->session = new_session(c);
    if (c->h2->session == NULL) h2_free(&c->h2);
    return c->h2 != NULL;
}

static void speak_h2(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    c->ops = &h2_conn_ops;
    http_conn_set_phase(c, PHASE_HEAD, http_nearer(o->head_ms, o->read_ms));
    http_server_dirty(c->s, c);
}

enum err h2_start(struct http_conn *c) {
    if (!h2_new(c)) return ERR_NO_MEMORY;
    if (!say_settings(c)) {
        h2_free(&c->h2);
        return ERR_NO_MEMORY;
    }
    speak_h2(c);
    return ERR_OK;
}

/* base64url without padding (RFC 7540 3.2.1). */
static bool decode_settings(const char *s, uint8_t *out, size_t *n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    int n_bits = 0;
    for (*n = 0; *s != '\0' && *s != '='; s++) {
        const char *d = strchr(digits, *s);
        if (d == NULL) return false;
        bits = bits << 6 | (uint32_t)(d - digits);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        if (*n == SETTINGS_BYTES_MAX) return false;
        out[(*n)++] = (uint8_t)(bits >> n_bits);
    }
    return true;
}

enum err h2_upgrade(struct http_conn *c, struct http_x *x, const char *settings) {
    static const char switching[] =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    uint8_t payload[SETTINGS_BYTES_MAX];
    size_t n;
    struct h2_stream *st = NULL;
    if (!decode_settings(settings, payload, &n)) return ERR_INVALID;
    if (!h2_new(c)) return ERR_NO_MEMORY;
    st = h2_stream_new(c, 1);
    if (st == NULL || nghttp2_session_upgrade2(c->h2->session, payload, n, x->head_only, st) != 0 ||
        !say_settings(c)) {
        h2_free(&c->h2);
        return ERR_INVALID;
    }
    buf_puts(&c->out, switching);
    h2_stream_asked(st);
    st->x = x;
    x->stream = st;
    x->h2 = true;
    if (x->grpc != NULL)
        grpc_x_under(x, &h2_x_ops);
    else
        x->ops = &h2_x_ops;
    x->keep_alive = true; /* of HTTP/1's connection nothing is left */
    c->h1.x = NULL;
    speak_h2(c);
    return ERR_OK;
}

/* ---- a connection */
static void update_phase(struct http_conn *c) {
    const struct http_server_opts *o = &c->s->opts;
    struct h2 *h2 = c->h2;
    if (c->phase >= PHASE_LINGER || c->close_after) return;
    bool writes = nghttp2_session_want_write(h2->session) != 0 || http_conn_pending(c) > 0;
    if ((!nghttp2_session_want_read(h2->session) && !writes) ||
        (h2->leaving && h2->n_streams == 0 && !writes)) {
        close_soon(c);
    } else if (!h2->began || in_frame(&h2->scan)) {
        if (c->phase != PHASE_HEAD)
            http_conn_set_phase(c, PHASE_HEAD, http_nearer(o->head_ms, o->read_ms));
    } else if (h2->n_streams > 0 || writes) {
        if (c->phase != PHASE_ANSWER) http_conn_set_phase(c, PHASE_ANSWER, 0);
    } else if (c->phase != PHASE_IDLE) {
        http_conn_set_phase(c, PHASE_IDLE, o->idle_ms);
    }
}

static uint32_t error_of(ssize_t rv) {
    switch (rv) {
    case NGHTTP2_ERR_FLOODED:
    case NGHTTP2_ERR_TOO_MANY_CONTINUATIONS: return NGHTTP2_ENHANCE_YOUR_CALM;
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC: return NGHTTP2_PROTOCOL_ERROR;
    default: return NGHTTP2_INTERNAL_ERROR;
    }
}

/* nghttp2 1.52 counts a CONTINUATION anew with each piece of its head, and takes eight: it gets
 * heads of frames whole. Gives what it says, 0: nothing to say. */
static ssize_t take_in(struct http_conn *c, const uint8_t *p, size_t n) {
    nghttp2_session *s = c->h2->session;
    struct h2_scan *scan = &c->h2->scan;
    uint8_t head[sizeof(scan->head)];
    const size_t held = scan->n_head, missing = sizeof(head) - held;
    memcpy(head, scan->head, held);
    scan_frames(c, p, n);
    if (c->h2->doomed || scan->n_head == held + n) return 0;
    if (held > 0) {
        memcpy(head + held, p, missing);
        const ssize_t rv = nghttp2_session_mem_recv(s, head, sizeof(head));
        if (rv < 0 || is_over(c)) return rv;
        p += missing;
        n -= missing;
    }
    return n > scan->n_head ? nghttp2_session_mem_recv(s, p, n - scan->n_head) : 0;
}

static void feed(struct http_conn *c, const char *data, size_t n) {
    c->h2->in_call = true;
    const ssize_t rv = take_in(c, (const uint8_t *)data, n);
    c->h2->in_call = false;
    if (c->phase == PHASE_DEAD) return;
    if (!c->h2->doomed && rv < 0) {
        uint32_t error = error_of(rv);
        if (error == NGHTTP2_ENHANCE_YOUR_CALM) budget_refused(budget_of(c), BUDGET_H2_CONTROL);
        h2_doom(c, error);
    }
    if (c->h2->doomed)
        end_with(c, c->h2->doom);
    else
        update_phase(c);
}

static bool fill(struct http_conn *c) {
    nghttp2_session *s = c->h2->session;
    const uint8_t *p;
    ssize_t n = 1;
    c->h2->in_call = true;
    while (c->phase != PHASE_DEAD && !c->h2->doomed && n > 0 &&
           http_conn_pending(c) < H2_OUT_BYTES) {
        n = nghttp2_session_mem_send(s, &p);
        if (n > 0) buf_append(&c->out, p, (size_t)n);
    }
    c->h2->in_call = false;
    if (c->phase == PHASE_DEAD) return false;
    if (c->h2->doomed)
        end_with(c, c->h2->doom);
    else if (n < 0)
        c->out.failed = true;
    return n > 0;
}

static void advance(struct http_conn *c) {
    if (c->leaves || (c->s->leaving && c->h2->n_streams > 0)) h2_leave(c);
    const size_t max = c->s->opts.stream_pending_max;
    if (max > 0 && c->h2->unsent > max)
        for (struct h2_stream *st = c->h2->streams; st != NULL && c->phase != PHASE_DEAD;
             st = st->next)
            h2_stream_bound(st);
    update_phase(c);
}

static void tick(struct http_conn *c, uint64_t now_ms) {
    struct h2 *h2 = c->h2;
    if (c->phase == PHASE_HEAD && c->read_deadline_ms != 0 && now_ms >= c->read_deadline_ms) {
        budget_refused(budget_of(c), BUDGET_HEAD_TIME);
        end_with(c, h2->began ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_SETTINGS_TIMEOUT);
        return;
    }
    if (h2->n_asking == 0 && h2->unsent == 0) return; /* nobody waits for anything of its client */
    for (struct h2_stream *st = h2->streams; st != NULL && !is_over(c); st = st->next)
        h2_stream_tick(st, now_ms);
}

static void end_of_input(struct http_conn *c) {
    http_conn_gone(c);
}

/* What the client's socket does not take, no frame of the client's can free. */
static bool wants_read(const struct http_conn *c) {
    return http_conn_pending(c) <= HTTP_BACKLOG_BYTES_MAX;
}

static size_t held(const struct http_conn *c) {
    return c->h2->unsent + c->h2->held;
}

static size_t unsent(const struct http_conn *c) {
    return c->h2->unsent;
}

static bool is_ahead(const struct http_conn *c) {
    for (const struct h2_stream *st = c->h2->streams; st != NULL; st = st->next)
        if (st->x != NULL && st->x->state == X_READING) return true;
    return false;
}

static bool is_paced(const struct http_conn *c) {
    for (const struct h2_stream *st = c->h2->streams; st != NULL; st = st->next)
        if (st->x != NULL && st->x->paced) return true;
    return false;
}

static void bye(struct http_conn *c) {
    if (c->close_after) return;
    if (c->h2->in_call) {
        put_goaway(c, NGHTTP2_NO_ERROR);
    } else {
        h2_leave(c);
        fill(c);
    }
}

static void fini(struct http_conn *c) {
    h2_free(&c->h2);
    http_parser_fini(&c->h1.parser);
    buf_free(&c->h1.in);
}

static const struct http_conn_ops h2_conn_ops = {
    .feed = feed,
    .end_of_input = end_of_input,
    .fill = fill,
    .advance = advance,
    .tick = tick,
    .wants_read = wants_read,
    .held = held,
    .unsent = unsent,
    .is_ahead = is_ahead,
    .is_paced = is_paced,
    .bye = bye,
    .let_go = let_go,
    .fini = fini,
};
