/* h2_stream: one request on a connection of HTTP/2, and its answer under flow control: what the
 * client gives no window for waits in the stream's own buffer, with the limits of a slow reader. */
#include <stdlib.h>
#include <string.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/h2_priv.h"

enum { HELD_BYTES = sizeof(struct h2_stream) + sizeof(struct http_x) };

static struct budget *budget_of(const struct http_conn *c) {
    return http_server_budget(c->s);
}

struct h2_stream *h2_stream_new(struct http_conn *c, int32_t id) {
    struct h2 *h2 = c->h2;
    if (!c->s->opts.control && !budget_take(budget_of(c), BUDGET_STREAMS, 1)) return NULL;
    struct h2_stream *st = calloc(1, sizeof(*st));
    if (st == NULL) {
        if (!c->s->opts.control) budget_give(budget_of(c), BUDGET_STREAMS, 1);
        return NULL;
    }
    st->c = c;
    st->id = id;
    st->next = h2->streams;
    if (st->next != NULL) st->next->prev = st;
    h2->streams = st;
    h2->n_streams++;
    h2->n_asking++;
    h2->held += HELD_BYTES;
    return st;
}

void h2_stream_fetch(const struct h2_stream *st) {
    __builtin_prefetch(st, 1);
    __builtin_prefetch((const char *)st + 64, 1);
}

static size_t waiting(const struct h2_stream *st) {
    return st->out.len - st->out_at;
}

static void drop_out(struct h2_stream *st) {
    st->c->h2->unsent -= waiting(st);
    buf_free(&st->out);
    buf_free(&st->trailers);
    st->out_at = 0;
}

void h2_stream_free(struct h2_stream *st) {
    struct http_conn *c = st->c;
    struct h2 *h2 = c->h2;
    if (!c->s->opts.control) budget_give(budget_of(c), BUDGET_STREAMS, 1);
    if (st->prev != NULL)
        st->prev->next = st->next;
    else
        h2->streams = st->next;
    if (st->next != NULL) st->next->prev = st->prev;
    h2->n_streams--;
    h2_stream_asked(st);
    h2->held -= HELD_BYTES;
    drop_out(st);
    http_head_free(&st->head);
    free(st);
}

/* ---- requests */
/* An answer that no handler gives, since there is no request to show. */
static void answer_refusal(struct h2_stream *st) {
    struct http_conn *c = st->c;
    const bool head_only = st->has_method && !st->head.raw.failed && /* or there may be nothing */
                           strcmp(http_head_method(&st->head), "HEAD") == 0;
    st->head.n_fields = 0;
    st->head.method = st->head.path = st->head.query = 0;
    buf_forgive(&st->head.raw);
    buf_append(&st->head.raw, "", 1); /* every string is empty */
    if (st->head.raw.failed || (st->x = http_x_new(c, &h2_x_ops, &st->head)) == NULL) {
        h2_stream_reset(st, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    st->x->stream = st;
    st->x->h2 = true;
    st->x->keep_alive = true;
    st->x->head_only = head_only;
    http_req_fail(st->x, st->refuse_status, st->refuse_why);
}

void h2_stream_head(struct h2_stream *st, bool has_body) {
    struct http_conn *c = st->c;
    h2_head_finish(st, has_body);
    if (st->refuse_status != 0) {
        answer_refusal(st);
        return;
    }
    st->x = http_x_new(c, &h2_x_ops, &st->head);
    if (st->x == NULL) {
        h2_stream_reset(st, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    st->x->stream = st;
    st->x->h2 = true;
    http_req_head(st->x, false);
    if (c->phase == PHASE_DEAD || st->x == NULL) return;
    if (!st->x->keep_alive) h2_leave(c); /* its last request */
    if (has_body && st->x->state == X_READING) http_req_wait(st->x, true);
}

void h2_stream_body(struct h2_stream *st, const uint8_t *p, size_t n) {
    struct http_conn *c = st->c;
    int32_t id = st->id;
    bool reads = st->x != NULL && (st->x->state == X_READING || st->x->body_open);
    if (reads) http_req_body(st->x, (const char *)p, n);
    if (c->phase == PHASE_DEAD) return;
    if (reads && st->x != NULL && st->x->state == X_READING) {
        http_req_wait(st->x, true);
        nghttp2_session_consume(c->h2->session, id, n);
    } else { /* of what nobody wants, or reads now, the stream's window is all there will be */
        nghttp2_session_consume_connection(c->h2->session, n);
    }
}

void h2_stream_asked(struct h2_stream *st) {
    st->c->h2->n_asking -= !st->request_ended;
    st->request_ended = true;
}

void h2_stream_end(struct h2_stream *st) {
    h2_stream_asked(st);
    if (st->x != NULL && (st->x->state == X_READING || st->x->body_open)) http_req_end(st->x);
}

void h2_stream_reset(struct h2_stream *st, uint32_t error) {
    struct http_conn *c = st->c;
    struct http_x *x = st->x;
    st->x = NULL;
    st->ended = st->aborted = true;
    drop_out(st);
    if (nghttp2_submit_rst_stream(c->h2->session, NGHTTP2_FLAG_NONE, st->id, error) != 0)
        c->out.failed = true;
    http_server_dirty(c->s, c);
    if (x != NULL) http_x_client_gone(x);
}

void h2_stream_tick(struct h2_stream *st, uint64_t now_ms) {
    const struct http_server_opts *o = &st->c->s->opts;
    if (st->x != NULL && (st->x->state == X_READING || st->x->body_open))
        http_req_tick(st->x, now_ms);
    if (st->c->phase == PHASE_DEAD) return;
    /* What was answered just now is newer than now_ms. */
    if (waiting(st) > 0 && o->write_ms > 0 && now_ms >= st->stalled_ms + o->write_ms) {
        budget_refused(budget_of(st->c), BUDGET_SLOW_READER);
        h2_stream_reset(st, NGHTTP2_CANCEL);
    }
}

void h2_stream_bound(struct h2_stream *st) {
    const size_t max = st->c->s->opts.stream_pending_max;
    if (max == 0 || waiting(st) <= max || st->x == NULL || st->x->state != X_STREAM || st->x->paced)
        return;
    budget_refused(budget_of(st->c), BUDGET_SLOW_READER);
    h2_stream_reset(st, NGHTTP2_CANCEL);
}

/* ---- answers */
static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *p, size_t n,
                         uint32_t *flags, nghttp2_data_source *source, void *arg) {
    struct h2_stream *st = source->ptr;
    struct http_conn *c = arg;
    (void)session;
    (void)id;
    size_t left = waiting(st);
    if (left == 0 && st->aborted) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* a reset */
    if (left == 0 && !st->ended) {
        st->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > left) n = left;
    if (n > 0) memcpy(p, st->out.data + st->out_at, n);
    st->out_at += n;
    c->h2->unsent -= n;
    buf_drop_taken(&st->out, &st->out_at);
    if (n == left && st->ended && !st->aborted) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (st->trailers.len > 0) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (!h2_head_trailers(st)) return NGHTTP2_ERR_CALLBACK_FAILURE;
        }
    }
    st->stalled_ms = clock_ms();
    c->fed = true;
    return (ssize_t)n;
}

nghttp2_data_provider h2_stream_provider(struct h2_stream *st) {
    return (nghttp2_data_provider){.source.ptr = st, .read_callback = read_data};
}

static void resume(struct h2_stream *st) {
    if (!st->deferred) return;
    st->deferred = false;
    if (nghttp2_session_resume_data(st->c->h2->session, st->id) == NGHTTP2_ERR_NOMEM)
        st->c->out.failed = true;
}

static void x_go_on(struct http_x *x) {
    struct h2_stream *st = x->stream;
    const nghttp2_nv nv = {
        .name = (uint8_t[]){":status"}, .value = (uint8_t[]){"100"}, .namelen = 7, .valuelen = 3};
    if (nghttp2_submit_headers(st->c->h2->session, NGHTTP2_FLAG_NONE, st->id, NULL, &nv, 1, NULL) <
        0)
        st->c->out.failed = true;
}

static void x_head(struct http_x *x, int status, const char *content_type, uint64_t length) {
    struct h2_stream *st = x->stream;
    bool with_data =
        !x->head_only && !http_has_no_body(status) && length > 0 && length != HTTP_LENGTH_BARE;
    st->began = true;
    if (!h2_head_submit(st, x, status, content_type, length, with_data)) x->conn->out.failed = true;
}

static void x_data(struct http_x *x, const void *p, size_t n) {
    struct h2_stream *st = x->stream;
    struct h2 *h2 = x->conn->h2;
    if (waiting(st) == 0) st->stalled_ms = clock_ms();
    buf_append(&st->out, p, n);
    if (st->out.failed) {
        x->conn->out.failed = true;
        return;
    }
    h2->unsent += n;
    resume(st);
}

static void x_end(struct http_x *x) {
    struct h2_stream *st = x->stream;
    st->x = NULL;
    st->ended = true;
    st->trailers = x->trailers;
    x->trailers = BUF_INIT;
    resume(st);
    if (!x->keep_alive) h2_leave(x->conn);
}

static void x_abort(struct http_x *x) {
    struct h2_stream *st = x->stream;
    st->x = NULL;
    st->aborted = true;
    if (!st->began || st->ended)
        h2_stream_reset(st, NGHTTP2_INTERNAL_ERROR);
    else
        resume(st);
    http_server_dirty(x->conn->s, x->conn);
}

static size_t x_pending(const struct http_x *x) {
    return waiting(x->stream) + http_conn_pending(x->conn);
}

static void x_more(struct http_x *x, size_t n) {
    struct h2_stream *st = x->stream;
    if (nghttp2_session_consume_stream(st->c->h2->session, st->id, n) == NGHTTP2_ERR_NOMEM)
        st->c->out.failed = true;
    http_server_dirty(st->c->s, st->c);
}

const struct http_x_ops h2_x_ops = {
    .go_on = x_go_on,
    .head = x_head,
    .data = x_data,
    .end = x_end,
    .abort = x_abort,
    .pending = x_pending,
    .more = x_more,
};
