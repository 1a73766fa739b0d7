/* http_x: one exchange: what a handler sees of the request, and the bytes of its answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/http_conn.h"
#include "common/net/tls.h"

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {302, "Found"},
    {304, "Not Modified"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {424, "Failed Dependency"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

const char *http_reason(int status) {
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Status";
}

struct http_x *http_x_new(struct http_conn *c, const struct http_x_ops *ops,
                          struct http_head *head) {
    struct http_x *x = calloc(1, sizeof(*x));
    if (x == NULL) return NULL;
    x->conn = c;
    x->ops = ops;
    x->loop = c->s->loop;
    http_head_move(&x->head, head);
    x->keep_alive = x->head.keep_alive;
    x->head_only = strcmp(http_head_method(&x->head), "HEAD") == 0;
    memcpy(x->peer, c->peer, sizeof(x->peer));
    x->limited = tls_sock_limited(&c->io);
    x->on_ended = c->s->opts.on_ended;
    x->ended_arg = c->s->opts.ended_arg;
    if (x->on_ended != NULL) x->begun_us = clock_us();
    return x;
}

static void give_room(struct http_x *x, size_t n) {
    if (n > 0) budget_give(x->gate->budget, BUDGET_BODY_BYTES, n);
    x->body_taken -= n;
}

void http_x_drop_body(struct http_x *x) {
    x->clock.runs = false;
    http_list_drop(&x->reads);
    buf_free(&x->body);
    x->body_at = 0;
    give_room(x, x->body_taken);
}

void http_x_fit_body(struct http_x *x) {
    if (x->body_taken > x->body.cap) give_room(x, x->body_taken - x->body.cap);
}

/* ---- room behind what was written */

void http_x_on_room(struct http_x *x, size_t bytes, loop_fn *fn, void *arg) {
    http_list_drop(&x->room);
    x->on_room = fn;
    x->on_room_arg = arg;
    x->room_bytes = bytes;
    if (fn == NULL || x->conn == NULL) return;
    http_list_add(&x->conn->rooms, &x->room, x);
    http_server_dirty(x->conn->s, x->conn);
}

/* A call may end any exchange, and the connection: what is left in `ready` then is unlinked. */
void http_x_tell_room(struct http_conn *c) {
    struct http_list ready = {0};
    for (struct http_link *k = c->rooms.first, *next; k != NULL; k = next) {
        struct http_x *x = k->of;
        next = k->next;
        if (x->ops->pending(x) > x->room_bytes) continue;
        http_list_drop(k);
        http_list_add(&ready, k, x);
    }
    while (ready.first != NULL) {
        struct http_x *x = ready.first->of;
        http_list_drop(&x->room);
        x->on_room(x->on_room_arg);
    }
}

/* The connection and x have parted. */
static void leave_conn(struct http_x *x) {
    x->conn = NULL;
    http_list_drop(&x->room);
}

/* ---- who reads along, and who is told of the end */

bool http_x_notes(const struct http_x *x) {
    return x->on_ended != NULL;
}

void http_x_note(struct http_x *x, const char *members) {
    if (x->on_ended == NULL) return;
    free(x->note);
    x->note = strdup(members);
}

/* A message of a call is no exchange of its own, and what no handler has seen is none. */
static void tell_ended(struct http_x *x) {
    if (x->on_ended == NULL || x->one != NULL || (x->status == 0 && x->state == X_READING)) return;
    x->on_ended(x->ended_arg, &(struct http_ended){.method = http_x_method(x),
                                                   .path = http_x_path(x),
                                                   .peer = x->peer,
                                                   .request_id = http_x_request_id(x),
                                                   .tenant = http_x_tenant(x),
                                                   .note = x->note != NULL ? x->note : "",
                                                   .h2 = x->h2,
                                                   .grpc = x->grpc != NULL,
                                                   .status = x->status != 0 ? x->status : 499,
                                                   .broken = x->status != 0 && !x->whole,
                                                   .in_bytes = x->in_bytes,
                                                   .out_bytes = x->out_bytes,
                                                   .us = clock_us() - x->begun_us});
}

void http_x_tap(struct http_x *x, const struct http_tap *tap, void *arg) {
    x->tap = tap;
    x->tap_arg = arg;
}

static void tap_begin(struct http_x *x, int status, bool stream) {
    x->status = status;
    if (x->tap != NULL) x->tap->begin(x->tap_arg, status, stream);
}

static void tap_data(struct http_x *x, const void *p, size_t n) {
    x->out_bytes += n;
    if (x->tap != NULL && n > 0) x->tap->data(x->tap_arg, p, n);
}

static void tap_end(struct http_x *x, enum http_tap_end how) {
    const struct http_tap *tap = x->tap;
    x->whole = x->whole || how == HTTP_TAP_WHOLE;
    x->tap = NULL;
    if (tap != NULL) tap->end(x->tap_arg, how);
}

/* ---- life */

void http_x_free(struct http_x *x) {
    tap_end(x, HTTP_TAP_GONE);
    tell_ended(x);
    free(x->note);
    http_list_drop(&x->room);
    http_x_drop_body(x);
    grpc_x_free(x);
    http_head_free(&x->head);
    buf_free(&x->fields);
    buf_free(&x->trailers);
    free(x);
}

static void run_on_close(struct http_x *x) {
    loop_fn *fn = x->on_close;
    x->on_close = NULL;
    x->closing = true;
    if (fn != NULL) fn(x->on_close_arg);
    http_x_free(x);
}

static void on_gone_posted(void *arg) {
    struct http_x *x = arg;
    x->gone_posted = false;
    if (x->finished)
        http_x_free(x);
    else if (x->on_close != NULL)
        run_on_close(x);
}

void http_x_client_gone(struct http_x *x) {
    leave_conn(x);
    grpc_x_stop(x);
    if (x->state == X_READING) { /* no handler has seen it */
        http_x_free(x);
    } else if (x->on_close != NULL) {
        run_on_close(x);
    }
    /* Otherwise the handler still holds it, and answers into nothing. */
}

void http_x_on_close(struct http_x *x, loop_fn *fn, void *arg) {
    x->on_close = fn;
    x->on_close_arg = arg;
    if (x->conn == NULL && fn != NULL && !x->closing && !x->gone_posted) {
        x->gone_posted = true;
        loop_post_task(x->loop, &x->gone, on_gone_posted, x);
    }
}

/* The handler is done with x; so is the connection, if there was one. */
static void finish(struct http_x *x) {
    x->on_close = NULL;
    x->finished = true;
    if (!x->closing && !x->gone_posted) http_x_free(x);
}

const char *http_x_method(const struct http_x *x) {
    return http_head_method(&x->head);
}

const char *http_x_path(const struct http_x *x) {
    return http_head_path(&x->head);
}

const char *http_x_query(const struct http_x *x) {
    return http_head_query(&x->head);
}

const char *http_x_header(const struct http_x *x, const char *name) {
    return http_head_field(&x->head, name);
}

size_t http_x_n_headers(const struct http_x *x) {
    return x->head.n_fields;
}

void http_x_header_at(const struct http_x *x, size_t i, const char **name, const char **value) {
    *name = x->head.raw.data + x->head.fields[i].name;
    *value = x->head.raw.data + x->head.fields[i].value;
}

const char *http_x_body(const struct http_x *x, size_t *n) {
    if (n != NULL) *n = x->body.len - x->body_at;
    return x->body.data != NULL ? x->body.data + x->body_at : "";
}

/* ---- a body that is read as it comes */

void http_x_read(struct http_x *x, const struct http_reader *r, void *arg) {
    x->reader = r;
    x->reader_arg = arg;
}

bool http_x_body_ended(const struct http_x *x) {
    return !x->body_open;
}

/* What is left of a body after much of it was taken, in no more memory than it needs. */
static void shrink_body(struct http_x *x) {
    struct buf rest = BUF_INIT;
    if (x->body.cap <= 2 * x->body.len + HTTP_TAKE_BYTES) return;
    buf_append(&rest, x->body.data, x->body.len);
    if (rest.failed) return;
    buf_free(&x->body);
    x->body = rest;
    if (x->body_taken > rest.len) give_room(x, x->body_taken - rest.len);
}

void http_x_body_take(struct http_x *x, size_t n) {
    x->clock.runs = false;
    http_list_drop(&x->reads);
    x->body_at += n;
    if (x->body_at == x->body.len) {
        http_x_drop_body(x);
        return;
    }
    buf_drop_taken(&x->body, &x->body_at);
    if (x->body_at == 0) shrink_body(x);
}

void http_x_body_move(struct http_x *to, struct http_x *from, size_t n) {
    to->gate = from->gate;
    if (from->body_at == 0 && n == from->body.len) {
        to->body = from->body;
        to->body_taken = from->body_taken;
        from->body = BUF_INIT;
        from->body_taken = 0;
    } else {
        buf_append(&to->body, from->body.data + from->body_at, n);
        if (to->body.failed) return;
        if (to->gate != NULL) budget_hold(to->gate->budget, BUDGET_BODY_BYTES, n);
        to->body_taken = to->gate != NULL ? n : 0;
        from->body_at += n;
    }
    http_x_body_take(from, 0);
}

void http_x_body_more(struct http_x *x) {
    if (x->conn != NULL && x->body_open) http_req_more(x);
}

static bool id_ok(const char *s) {
    size_t n = 0;
    for (; s[n] != '\0'; n++)
        if (s[n] <= ' ' || s[n] > '~' || n >= HTTP_REQUEST_ID_BYTES_MAX) return false;
    return n > 0;
}

const char *http_x_request_id(struct http_x *x) {
    const char *given = http_x_header(x, "X-Request-Id");
    unsigned char random[16];
    if (x->request_id[0] != '\0') return x->request_id;
    if (given != NULL && id_ok(given)) {
        memcpy(x->request_id, given, strlen(given) + 1);
        return x->request_id;
    }
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        memset(random, 0, sizeof(random)); /* it names a request, no more */
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(x->request_id + 2 * i, 3, "%02x", random[i]);
    return x->request_id;
}

bool http_x_is_grpc(const struct http_x *x) {
    return x->grpc != NULL;
}

const char *http_x_peer(const struct http_x *x) {
    return x->peer;
}

bool http_x_limited(const struct http_x *x) {
    return x->limited;
}

const char *http_x_tenant(struct http_x *x) {
    if (x->tenant[0] == '\0') tenant_of_peer(x->tenant, x->peer);
    return x->tenant;
}

void http_x_set_tenant(struct http_x *x, const char *tenant) {
    snprintf(x->tenant, sizeof(x->tenant), "%s", tenant);
}

void http_x_set_header(struct http_x *x, const char *name, const char *value) {
    if (*name == '\0' || strpbrk(name, "\r\n: \t") != NULL || strpbrk(value, "\r\n") != NULL)
        return;
    /* How the answer is framed is not a handler's choice. */
    if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0)
        return;
    if (strcasecmp(name, "Connection") == 0) {
        if (strcasecmp(value, "close") == 0) x->keep_alive = false;
        return;
    }
    buf_printf(&x->fields, "%s: %s\r\n", name, value);
}

bool http_has_no_body(int status) {
    return status < 200 || status == 204 || status == 304;
}

static void end(struct http_x *x) {
    struct http_conn *c = x->conn;
    if (c != NULL) {
        x->ops->end(x);
        leave_conn(x);
        http_server_dirty(c->s, c);
    }
    finish(x);
}

void http_x_name_errors(struct http_x *x) {
    x->names_errors = true;
}

/* The error with its request's id to out; false: it is none of the shape, or has one. */
static bool put_named_error(struct http_x *x, const char *body, size_t n, struct buf *out) {
    static const char begin[] = "{\"type\":\"error\",\"error\":{", end[] = "}}";
    const size_t n_begin = sizeof(begin) - 1, n_end = sizeof(end) - 1;
    const char *id = http_x_request_id(x);
    if (n < n_begin + n_end || memcmp(body, begin, n_begin) != 0 ||
        memcmp(body + n - n_end, end, n_end) != 0)
        return false;
    buf_append(out, body, n - 1);
    buf_puts(out, ",\"request_id\":");
    buf_json_str(out, id, strlen(id));
    buf_putc(out, '}');
    return !out->failed;
}

static void reply_whole(struct http_x *x, int status, const char *content_type, const void *body,
                        size_t n) {
    bool bare = http_has_no_body(status);
    tap_begin(x, status, false);
    tap_data(x, body, n);
    tap_end(x, HTTP_TAP_WHOLE);
    if (x->conn != NULL) {
        x->ops->head(x, status, bare ? NULL : content_type, n);
        if (!bare && !x->head_only && n > 0) x->ops->data(x, body, n);
    }
    end(x);
}

void http_x_reply(struct http_x *x, int status, const char *content_type, const void *body,
                  size_t n) {
    struct buf named = BUF_INIT;
    if (status >= 400 && x->names_errors && put_named_error(x, body, n, &named))
        reply_whole(x, status, content_type, named.data, named.len);
    else
        reply_whole(x, status, content_type, body, n);
    buf_free(&named);
}

void http_x_stream_begin(struct http_x *x, int status, const char *content_type) {
    x->state = X_STREAM;
    tap_begin(x, status, true);
    if (x->conn == NULL) return;
    x->ops->head(x, status, content_type, HTTP_LENGTH_UNKNOWN);
    http_server_dirty(x->conn->s, x->conn);
}

void http_x_stream_write(struct http_x *x, const void *p, size_t n) {
    tap_data(x, p, n);
    if (x->conn == NULL || x->head_only || n == 0) return;
    x->ops->data(x, p, n);
    http_server_dirty(x->conn->s, x->conn);
}

void http_x_fetch(const struct http_x *x, int step) {
    if (step == 0) {
        __builtin_prefetch(x, 1);
        return;
    }
    if (x->conn == NULL) return;
    __builtin_prefetch(x->conn, 1);
    __builtin_prefetch((const char *)x->conn + 64, 1);
    if (x->stream != NULL) h2_stream_fetch(x->stream);
}

void http_x_stream_paced(struct http_x *x) {
    x->paced = true;
}

void http_x_stream_end(struct http_x *x) {
    tap_end(x, HTTP_TAP_WHOLE);
    end(x);
}

void http_x_stream_fail(struct http_x *x, int status, const char *text, size_t n) {
    if (x->grpc == NULL) { /* nowhere to say it */
        http_x_abort(x);
        return;
    }
    tap_end(x, HTTP_TAP_BROKEN);
    grpc_x_fail(x, status, text, n);
    end(x);
}

void http_x_cancel(struct http_x *x) {
    if (x->conn != NULL) {
        x->ops->abort(x);
        leave_conn(x);
    }
    http_x_client_gone(x);
}

void http_x_abort(struct http_x *x) {
    tap_end(x, HTTP_TAP_BROKEN);
    if (x->conn != NULL) {
        x->ops->abort(x);
        leave_conn(x);
    }
    finish(x);
}

size_t http_x_pending(const struct http_x *x) {
    return x->conn != NULL ? x->ops->pending(x) : 0;
}
