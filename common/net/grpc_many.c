/* grpc_many: exchanges whose answers go out on that of the call. */
#include "common/net/grpc_many.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/budget.h"
#include "common/net/grpc_priv.h"

struct grpc_one {
    struct call *call;
    struct http_x *x;
    struct grpc_one *prev, *next;
};

struct call {
    struct grpc_many how;
    struct http_x *x; /* NULL: it has ended */
    struct grpc_one *ones;
    unsigned n_ones;
    bool at_work;           /* pump() is running: nobody else may free it */
    struct loop_alarm wake; /* requests have ended; or nothing came for long */
};

static void on_wake(void *arg);
static void on_idle(void *arg);
static void pump(struct call *c);

/* ---- ends */

static struct http_x *forget(struct grpc_one *o) {
    struct call *c = o->call;
    struct http_x *x = o->x;
    if (o->prev != NULL)
        o->prev->next = o->next;
    else
        c->ones = o->next;
    if (o->next != NULL) o->next->prev = o->prev;
    c->n_ones--;
    x->one = NULL;
    free(o);
    return x;
}

/* The call has ended: whoever still works for it is told. */
static void let_go(struct call *c) {
    c->x = NULL;
    loop_alarm_stop(&c->wake);
    while (c->ones != NULL) http_x_client_gone(forget(c->ones));
    if (!c->at_work) free(c);
}

static struct http_x *take_x(struct call *c) {
    struct http_x *x = c->x;
    http_x_on_close(x, NULL, NULL);
    http_x_read(x, NULL, NULL);
    http_x_on_room(x, 0, NULL, NULL);
    let_go(c);
    return x;
}

static void fail(struct call *c, int status, const char *text, size_t n) {
    char copy[GRPC_X_TEXT_BYTES]; /* it may be a part of what goes first */
    if (n > sizeof(copy)) n = sizeof(copy);
    memcpy(copy, text, n);
    http_x_stream_fail(take_x(c), status, copy, n);
}

static void on_gone(void *arg) {
    let_go(arg);
}

/* ---- the answer to one request */

static void o_go_on(struct http_x *x) {
    (void)x;
}

static void o_head(struct http_x *x, int status, const char *content_type, uint64_t length) {
    (void)content_type, (void)length;
    x->grpc->status = grpc_status_of(status);
    x->grpc->began = x->grpc->status == GRPC_OK;
}

static void o_data(struct http_x *x, const void *p, size_t n) {
    struct http_x *all = x->one->call->x;
    if (all == NULL) return; /* the call is ending */
    if (x->paced) http_x_stream_paced(all);
    if (x->grpc->began)
        http_x_stream_write(all, p, n);
    else
        grpc_x_text(x->grpc, p, n);
}

static size_t text_len(const struct grpc_x *g) {
    size_t n = g->n_text;
    while (n > 0 && (g->text[n - 1] == '\n' || g->text[n - 1] == '\r')) n--;
    return n;
}

/* False: the call has ended. */
static bool say_failure(struct call *c, const struct http_x *x) {
    const struct grpc_x *g = x->grpc;
    struct buf out = BUF_INIT;
    if (c->how.put_failure == NULL) {
        struct http_x *all = take_x(c);
        all->grpc->n_text = 0;
        grpc_x_text(all->grpc, g->text, text_len(g));
        all->grpc->status = g->status;
        http_x_stream_end(all);
        return false;
    }
    const bool packed = x->body.len > 0 && x->body.data[0] != 0; /* nobody looks into it here */
    const size_t n = x->body.len > GRPC_HEAD_BYTES && !packed ? x->body.len - GRPC_HEAD_BYTES : 0;
    c->how.put_failure(&out, n > 0 ? x->body.data + GRPC_HEAD_BYTES : "", n, g->text, text_len(g));
    http_x_stream_write(c->x, out.data, out.failed ? 0 : out.len);
    buf_free(&out);
    return true;
}

static void o_end(struct http_x *x) {
    struct call *c = x->one->call;
    forget(x->one);
    if (c->x == NULL) return;
    if (x->grpc->status != GRPC_OK && !say_failure(c, x)) return;
    if (!c->at_work) loop_alarm_set(x->loop, &c->wake, 0, on_wake, c);
}

static void o_abort(struct http_x *x) {
    static const char text[] = "the answer has broken off";
    grpc_x_fail(x, 500, text, sizeof(text) - 1);
    o_end(x);
}

static size_t o_pending(const struct http_x *x) {
    const struct http_x *all = x->one->call->x;
    return all != NULL ? http_x_pending(all) : 0;
}

static const struct http_x_ops one_ops = {
    .go_on = o_go_on,
    .head = o_head,
    .data = o_data,
    .end = o_end,
    .abort = o_abort,
    .pending = o_pending,
};

/* ---- requests */

static bool copy_head(struct http_head *dst, const struct http_head *src) {
    *dst = *src;
    dst->raw = BUF_INIT;
    buf_append(&dst->raw, src->raw.data, src->raw.len);
    if (!dst->raw.failed) return true;
    http_head_free(dst);
    return false;
}

/* An exchange for the first n bytes of the call's body, a frame, which it takes; NULL: no memory.
 */
static struct http_x *one_new(struct call *c, size_t n) {
    struct http_x *all = c->x, *x = NULL;
    struct grpc_one *o = calloc(1, sizeof(*o));
    struct http_head head;
    if (o == NULL || !copy_head(&head, &all->head)) {
        free(o);
        return NULL;
    }
    x = http_x_new(all->conn, &one_ops, &head);
    if (x != NULL) x->grpc = calloc(1, sizeof(*x->grpc));
    if (x != NULL) http_x_body_move(x, all, n);
    if (x == NULL || x->grpc == NULL || x->body.failed) {
        http_head_free(&head);
        if (x != NULL) http_x_free(x);
        free(o);
        return NULL;
    }
    x->state = X_OPEN;
    http_x_set_tenant(x, http_x_tenant(all));
    *o = (struct grpc_one){.call = c, .x = x, .next = c->ones};
    if (o->next != NULL) o->next->prev = o;
    c->ones = x->one = o;
    c->n_ones++;
    return x;
}

/* The client does not take what it has asked for. */
static bool is_behind(const struct call *c) {
    return http_x_pending(c->x) > GRPC_MANY_UNSENT_MAX;
}

/* What can be done with the bytes that are there. */
enum step { STEP_SERVED, STEP_FULL, STEP_MORE, STEP_FAILED };
static enum step step(struct call *c) {
    struct grpc_frame f;
    struct http_x *x = c->x, *one;
    char text[96];
    size_t n_there;
    const char *p = http_x_body(x, &n_there);
    const enum grpc_took took = grpc_frame_take(&f, p, n_there);
    if (took == GRPC_BAD) {
        static const char bad[] = "the flag of a message must be 0 or 1";
        fail(c, GRPC_UNREADABLE, bad, sizeof(bad) - 1);
        return STEP_FAILED;
    }
    if (took == GRPC_MORE) {
        if (n_there < GRPC_HEAD_BYTES || f.n <= x->body_max) return STEP_MORE;
        const int n =
            snprintf(text, sizeof(text), "the message is over the limit of %zu bytes", x->body_max);
        fail(c, 413, text, (size_t)n);
        return STEP_FAILED;
    }
    if (c->n_ones == GRPC_MANY_AT_ONCE || is_behind(c)) return STEP_FULL;
    one = one_new(c, GRPC_HEAD_BYTES + f.n);
    if (one == NULL) {
        fail(c, 503, "out of memory", 13);
        return STEP_FAILED;
    }
    c->how.serve(c->how.arg, one, c->how.row);
    return c->x != NULL ? STEP_SERVED : STEP_FAILED;
}

static void settle(struct call *c, enum step last) {
    static const char cut[] = "the message ends before the length that it gives";
    struct http_x *x = c->x;
    const bool ended = http_x_body_ended(x);
    size_t n_left;
    (void)http_x_body(x, &n_left);
    if (last == STEP_FULL) {
        http_x_body_take(x, 0); /* it is not the client who is late */
    } else if (!ended) {
        http_x_body_more(x);
    } else if (n_left > 0) {
        fail(c, GRPC_UNREADABLE, cut, sizeof(cut) - 1);
        return;
    } else if (c->n_ones == 0) {
        http_x_stream_end(take_x(c));
        return;
    }
    if (last == STEP_FULL && is_behind(c))
        http_x_on_room(x, GRPC_MANY_UNSENT_MAX / 2, on_wake, c);
    else if (c->n_ones == 0)
        loop_alarm_set(x->loop, &c->wake, GRPC_MANY_IDLE_MS, on_idle, c);
}

static void pump(struct call *c) {
    enum step last = STEP_SERVED;
    if (c->at_work) return;
    loop_alarm_stop(&c->wake);
    c->at_work = true;
    for (int i = 0; last == STEP_SERVED && i < GRPC_MANY_AT_ONCE; i++) last = step(c);
    if (last == STEP_SERVED) /* others' turn */
        loop_alarm_set(c->x->loop, &c->wake, 0, on_wake, c);
    else if (last != STEP_FAILED)
        settle(c, last);
    c->at_work = false;
    if (c->x == NULL) free(c);
}

static void on_wake(void *arg) {
    pump(arg);
}

static void on_idle(void *arg) {
    char text[96];
    const int n = snprintf(text, sizeof(text), "no message has come for %d seconds",
                           GRPC_MANY_IDLE_MS / 1000);
    fail(arg, 504, text, (size_t)n);
}

static void on_refused(void *arg, int status, const char *text) {
    fail(arg, status, text, strlen(text));
}

static void on_more(void *arg) {
    pump(arg);
}

void grpc_many_start(struct http_x *x, const struct grpc_many *how) {
    static const struct http_reader reader = {.more = on_more, .refused = on_refused};
    struct call *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        http_x_reply(x, 503, NULL, "out of memory", 13);
        return;
    }
    c->how = *how;
    c->x = x;
    http_x_on_close(x, on_gone, c);
    http_x_read(x, &reader, c);
    http_x_stream_begin(x, 200, GRPC_TYPE);
    pump(c);
}
