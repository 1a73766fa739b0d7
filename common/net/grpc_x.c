/* grpc_x: gRPC as a framing above an exchange (kserve-runtimes 13): handlers answer as ever, and
 * the calls of struct http_x_ops here put the outcome where clients of gRPC look for it. A 200 is a
 * stream of messages with the status in its trailers; any other status is a head that is all,
 * with gRPC's status and what would have been the body as its message. And the deadline that a
 * client set: when it is over the client is told so, and to the handler it has gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/grpc_priv.h"

enum { ENCODED_BYTES = 1024, DEADLINE_MS_MAX = 7 * 24 * 3600 * 1000 };

void grpc_x_text(struct grpc_x *g, const char *p, size_t n) {
    if (n > GRPC_X_TEXT_BYTES - g->n_text) n = GRPC_X_TEXT_BYTES - g->n_text;
    memcpy(g->text + g->n_text, p, n);
    g->n_text += n;
}

/* The lines that say how it went. */
static void put_status(struct buf *out, const struct grpc_x *g) {
    char text[ENCODED_BYTES];
    size_t n = g->n_text;
    while (n > 0 && (g->text[n - 1] == '\n' || g->text[n - 1] == '\r')) n--;
    buf_printf(out, "grpc-status: %d\r\n", (int)g->status);
    grpc_text_put(text, sizeof(text), g->text, n);
    if (g->status != GRPC_OK && n > 0) buf_printf(out, "grpc-message: %s\r\n", text);
}

/* ---- answers */

static void x_go_on(struct http_x *x) {
    x->grpc->under->go_on(x);
}

static void x_head(struct http_x *x, int status, const char *content_type, uint64_t length) {
    struct grpc_x *g = x->grpc;
    (void)content_type, (void)length;
    g->status = grpc_status_of(status);
    if (g->status != GRPC_OK) return; /* what follows is the text of an error */
    g->began = true;
    buf_puts(&x->fields, "grpc-accept-encoding: identity,gzip\r\n");
    g->under->head(x, 200, GRPC_TYPE, HTTP_LENGTH_UNKNOWN);
}

static void x_data(struct http_x *x, const void *p, size_t n) {
    if (x->grpc->began)
        x->grpc->under->data(x, p, n);
    else
        grpc_x_text(x->grpc, p, n);
}

static void x_end(struct http_x *x) {
    struct grpc_x *g = x->grpc;
    loop_alarm_stop(&g->deadline);
    if (g->began) {
        put_status(&x->trailers, g);
    } else {
        if (g->status == GRPC_UNIMPLEMENTED)
            buf_puts(&x->fields, "grpc-accept-encoding: identity,gzip\r\n");
        put_status(&x->fields, g);
        g->under->head(x, 200, GRPC_TYPE, HTTP_LENGTH_BARE);
    }
    g->under->end(x);
}

static void x_abort(struct http_x *x) {
    loop_alarm_stop(&x->grpc->deadline);
    x->grpc->under->abort(x);
}

static size_t x_pending(const struct http_x *x) {
    return x->grpc->under->pending(x);
}

static void x_more(struct http_x *x, size_t n) {
    x->grpc->under->more(x, n);
}

static const struct http_x_ops grpc_x_ops = {
    .go_on = x_go_on,
    .head = x_head,
    .data = x_data,
    .end = x_end,
    .abort = x_abort,
    .pending = x_pending,
    .more = x_more,
};

void grpc_x_fail(struct http_x *x, int http_status, const char *text, size_t n) {
    struct grpc_x *g = x->grpc;
    g->status = grpc_status_of(http_status);
    g->n_text = 0;
    grpc_x_text(g, text, n);
}

/* ---- its life */

static void on_deadline(void *arg) {
    static const char text[] = "the deadline of the call is over";
    struct http_x *x = arg;
    struct http_conn *c = x->conn;
    grpc_x_fail(x, 504, text, sizeof(text) - 1);
    if (x->state == X_READING) x->unread = true;
    x->ops->end(x);
    http_server_dirty(c->s, c);
    http_x_client_gone(x);
}

bool grpc_x_begin(struct http_x *x) {
    const char *timeout = http_x_header(x, "grpc-timeout");
    uint64_t ms;
    if (strcmp(http_head_method(&x->head), "POST") != 0 ||
        !grpc_is_type(http_x_header(x, "content-type")))
        return true;
    x->grpc = calloc(1, sizeof(*x->grpc));
    if (x->grpc == NULL) {
        http_req_fail(x, 503, "out of memory");
        return false;
    }
    x->grpc->under = x->ops;
    x->ops = &grpc_x_ops;
    if (timeout == NULL) return true;
    if (!grpc_timeout_read(timeout, &ms)) {
        http_req_fail(x, 400, "grpc-timeout must be 1 to 8 digits and one of H, M, S, m, u, n");
        return false;
    }
    if (ms > DEADLINE_MS_MAX) ms = DEADLINE_MS_MAX;
    loop_alarm_set(x->loop, &x->grpc->deadline, ms, on_deadline, x);
    return true;
}

void grpc_x_under(struct http_x *x, const struct http_x_ops *ops) {
    x->grpc->under = ops;
}

bool grpc_x_body_ok(struct http_x *x) {
    const char *wrong = grpc_one_message(x->body.data, x->body.len);
    if (wrong == NULL) return true;
    http_req_fail(x, GRPC_UNREADABLE, wrong);
    return false;
}

void grpc_x_stop(struct http_x *x) {
    if (x->grpc != NULL) loop_alarm_stop(&x->grpc->deadline);
}

void grpc_x_free(struct http_x *x) {
    grpc_x_stop(x);
    free(x->grpc);
    x->grpc = NULL;
}
