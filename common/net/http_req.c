/* http_req: a request on its way to its handler, the same whatever its client speaks: may it come,
 * is there room, does it come in time. */
#include <stdio.h>
#include <string.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/net/http_conn.h"

static struct budget *budget_of(const struct http_conn *c) {
    return http_server_budget(c->s);
}

static uint64_t after(uint64_t now_us, unsigned limit_ms) {
    return limit_ms > 0 ? now_us + (uint64_t)limit_ms * 1000 : UINT64_MAX;
}

/* A handler answers without the body, which is not read. */
static void answer_at_once(struct http_x *x) {
    x->unread = true;
    x->state = X_OPEN;
    http_x_drop_body(x);
    http_server_dirty(x->conn->s, x->conn);
}

void http_req_fail(struct http_x *x, int status, const char *text) {
    char line[HTTP_WHY_BYTES + 2];
    answer_at_once(x);
    if (status == 429 || status == 503) http_x_set_header(x, "Retry-After", "1");
    int n = snprintf(line, sizeof(line), "%.*s\r\n", HTTP_WHY_BYTES - 1, text);
    http_x_reply(x, status, "text/plain; charset=utf-8", line, (size_t)n);
}

/* The handler has the exchange already. */
static void refuse_open(struct http_x *x, int status, const char *text) {
    const struct http_reader *r = x->reader;
    x->body_open = false;
    http_x_drop_body(x);
    http_server_dirty(x->conn->s, x->conn);
    if (r != NULL) r->refused(x->reader_arg, status, text);
}

static void refuse(struct http_x *x, int status, const char *text) {
    const struct http_server_opts *o = &x->conn->s->opts;
    if (x->body_open) {
        refuse_open(x, status, text);
        return;
    }
    if (o->on_refused == NULL) {
        http_req_fail(x, status, text);
        return;
    }
    answer_at_once(x);
    o->on_refused(o->arg, x, status, text);
}

/* The request is over its limit. */
static void too_large(struct http_x *x) {
    const struct http_server_opts *o = &x->conn->s->opts;
    if (o->on_too_large == NULL) {
        http_req_fail(x, 413, "request body too large");
        return;
    }
    answer_at_once(x);
    o->on_too_large(o->arg, x, x->body_max);
}

/* ---- deadlines */
void http_req_wait(struct http_x *x, bool progress) {
    const struct http_server_opts *o = &x->conn->s->opts;
    struct http_body_clock *k = &x->clock;
    const uint64_t now_us = clock_us();
    const size_t len = x->body.len;
    if (!k->runs) {
        k->runs = true;
        k->since_ms = clock_ms();
        k->end_us = after(now_us, o->body_ms);
        k->rate_us = o->body_rate_min > 0 ? after(now_us, o->body_grace_ms) : UINT64_MAX;
        k->silent_us = after(now_us, o->read_ms);
        if (o->gate != NULL) http_list_add(&o->gate->bodies, &x->reads, x);
    } else if (k->rate_us != UINT64_MAX) {
        /* Each byte moves the deadline of the rate by its part of a second, never beyond the grace.
         */
        k->rate_us += (uint64_t)(len - k->seen) * 1000000 / o->body_rate_min;
        if (k->rate_us > after(now_us, o->body_grace_ms))
            k->rate_us = after(now_us, o->body_grace_ms);
    }
    if (progress) k->silent_us = after(now_us, o->read_ms);
    k->seen = len;
    uint64_t end_us = k->end_us < k->rate_us ? k->end_us : k->rate_us;
    if (k->silent_us < end_us) end_us = k->silent_us;
    k->deadline_ms = end_us == UINT64_MAX ? 0 : end_us / 1000 + 1;
}

void http_req_head_late(const struct http_conn *c, char *why) {
    const struct http_server_opts *o = &c->s->opts;
    budget_refused(budget_of(c), BUDGET_HEAD_TIME);
    snprintf(why, HTTP_WHY_BYTES, "The head of the request did not come within %u ms (%s)",
             http_nearer(o->head_ms, o->read_ms), budget_key(BUDGET_HEAD_TIME));
}

void http_req_tick(struct http_x *x, uint64_t now_ms) {
    const struct http_server_opts *o = &x->conn->s->opts;
    const struct http_body_clock *k = &x->clock;
    struct budget *b = budget_of(x->conn);
    const uint64_t now_us = clock_us();
    char why[HTTP_WHY_BYTES];
    if (!k->runs || k->deadline_ms == 0 || now_ms < k->deadline_ms) return;
    if (now_us >= k->end_us) {
        budget_refused(b, BUDGET_BODY_TIME);
        snprintf(why, sizeof(why), "The body of the request did not come within %u seconds (%s)",
                 o->body_ms / 1000, budget_key(BUDGET_BODY_TIME));
    } else if (now_us >= k->rate_us) {
        budget_refused(b, BUDGET_BODY_RATE);
        snprintf(why, sizeof(why),
                 "The body of the request came slower than %u bytes a second (%s) for %u seconds",
                 o->body_rate_min, budget_key(BUDGET_BODY_RATE), o->body_grace_ms / 1000);
    } else {
        budget_refused(b, BUDGET_BODY_RATE);
        snprintf(why, sizeof(why), "The body of the request did not go on for %u ms", o->read_ms);
    }
    refuse(x, 408, why);
}

void http_req_yield(struct http_x *x) {
    struct budget *b = budget_of(x->conn);
    char why[HTTP_WHY_BYTES];
    budget_refused(b, BUDGET_BODY_YIELDED);
    snprintf(
        why, sizeof(why),
        "The body of the request did not come within %llu ms, and other clients need its room: "
        "%s allows %llu bytes in flight",
        (unsigned long long)(clock_ms() - x->clock.since_ms), budget_key(BUDGET_BODY_YIELDED),
        (unsigned long long)budget_limit(b, BUDGET_BODY_BYTES));
    refuse(x, 408, why);
}

/* ---- room */
/* Room for n more bytes of the body. False: refused. */
static bool take_room(struct http_x *x, size_t n) {
    struct http_gate *g = x->conn->s->opts.gate;
    char why[HTTP_WHY_BYTES];
    if (http_gate_take_body(g, x, n)) return true;
    snprintf(why, sizeof(why),
             "No room for a request body of %zu bytes now: %s allows %llu bytes in flight, %llu "
             "are in use",
             x->body_taken + n, budget_key(BUDGET_BODY_BYTES),
             (unsigned long long)budget_limit(g->budget, BUDGET_BODY_BYTES),
             (unsigned long long)budget_used(g->budget, BUDGET_BODY_BYTES));
    refuse(x, 503, why);
    return false;
}

/* Too many bytes wait on other connections. */
static void refuse_waiting(struct http_x *x) {
    struct budget *b = budget_of(x->conn);
    char why[HTTP_WHY_BYTES];
    snprintf(
        why, sizeof(why),
        "%llu bytes wait on connections, %s allows %llu: clients read their answers too slowly",
        (unsigned long long)budget_used(b, BUDGET_BUFFER_BYTES), budget_key(BUDGET_BUFFER_BYTES),
        (unsigned long long)budget_limit(b, BUDGET_BUFFER_BYTES));
    budget_refused(b, BUDGET_BUFFER_BYTES);
    refuse(x, 503, why);
}

/* Room for a body of unknown length is taken ahead of it. */
static bool has_room(struct http_x *x, size_t n) {
    size_t need = x->body.len + n, ahead = x->body_taken + HTTP_TAKE_BYTES;
    if (x->conn->s->opts.gate == NULL || need <= x->body_taken) return true;
    if (ahead > x->body_max) ahead = x->body_max;
    return take_room(x, (need > ahead ? need : ahead) - x->body_taken);
}

/* ---- head, body, end */
void http_req_head(struct http_x *x, bool body_came) {
    struct http_conn *c = x->conn;
    const struct http_server_opts *o = &c->s->opts;
    const struct http_head *h = &x->head;
    bool has_body = h->chunked || h->length > 0;
    if (!grpc_x_begin(x)) return;
    x->is_read = x->grpc != NULL && o->reads_body != NULL && o->reads_body(o->arg, x);
    if (o->requests_per_conn_max > 0 && ++c->n_requests >= o->requests_per_conn_max)
        x->keep_alive = false;
    x->body_max = HTTP_BODY_BYTES_DEFAULT;
    if (o->body_bytes_max != NULL)
        x->body_max = o->body_bytes_max(o->arg, http_head_method(h), http_head_path(h));
    if (h->has_length && h->length > x->body_max) {
        too_large(x);
    } else if (o->wants_body != NULL && has_body && !o->wants_body(o->arg, x)) {
        answer_at_once(x);
        o->on_request(o->arg, x);
    } else if (!o->control && !http_gate_sweep(o->gate, c)) {
        refuse_waiting(x);
    } else if (x->is_read && has_body && x->stream != NULL) {
        x->state = X_OPEN;
        x->body_open = true;
        o->on_request(o->arg, x);
    } else if (h->has_length && !take_room(x, (size_t)h->length)) {
        return;
    } else if (h->expect_continue && has_body && !body_came) {
        x->ops->go_on(x);
        http_server_dirty(c->s, c);
    }
}

/* To a handler that reads along. */
static void open_body(struct http_x *x, const char *p, size_t n) {
    if (!has_room(x, n)) return;
    x->in_bytes += n;
    buf_append(&x->body, p, n);
    x->body_owed += n;
    if (x->body.failed)
        refuse(x, 503, "out of memory");
    else if (x->reader != NULL)
        x->reader->more(x->reader_arg);
}

void http_req_more(struct http_x *x) {
    const size_t n = x->body_owed;
    x->body_owed = 0;
    if (n > 0) x->ops->more(x, n);
    if (x->body.len > x->body_at) http_req_wait(x, n > 0);
}

void http_req_body(struct http_x *x, const char *p, size_t n) {
    if (x->body_open) {
        open_body(x, p, n);
        return;
    }
    if (n > x->body_max - x->body.len) {
        too_large(x);
        return;
    }
    if (!has_room(x, n)) return;
    /* Its memory grows to what the head announced and no further. */
    if (x->head.has_length) buf_reserve_most(&x->body, n, (size_t)x->head.length);
    x->in_bytes += n;
    buf_append(&x->body, p, n);
    if (x->body.failed) http_req_fail(x, 503, "out of memory");
}

void http_req_end(struct http_x *x) {
    const struct http_server_opts *o = &x->conn->s->opts;
    const bool open = x->body_open;
    x->body_open = false;
    x->clock.runs = false;
    http_list_drop(&x->reads);
    if (open) {
        if (x->reader != NULL) x->reader->more(x->reader_arg);
        return;
    }
    x->state = X_OPEN;
    http_x_fit_body(x);
    if (x->grpc != NULL && !x->is_read && !grpc_x_body_ok(x)) return;
    o->on_request(o->arg, x); /* may answer, and so free x, at once */
}
