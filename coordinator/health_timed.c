/* health_timed: GET /health/timed[-N] of the cluster (inference-api 14.4): one prefill and one
 * decode instance that work together must each compute a token within N seconds; where models only
 * embed, one instance.
 *
 * One test runs at a time, however many ask: who comes meanwhile waits for its outcome, and what
 * was found healthy holds for HOLDS_MS. A test that fails answers those whose time it had; for
 * those who gave more it is made again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "coordinator/coordinator.h"

enum { DEFAULT_S = 10, MAX_S = 600, ANSWER_BYTES_MAX = 1 << 16, MARGIN_MS = 2000, HOLDS_MS = 500 };

static const char healthy[] = "{\"status\":\"healthy\"}";

/* A client that waits for the outcome. */
struct waiter {
    struct waiter *next, **at;
    struct health_timed *all;
    struct http_x *x;
    struct loop_timer *late;
    unsigned seconds;
    uint64_t until_ms;
};

struct health_timed {
    struct coordinator *co;
    struct waiter *waiters;
    struct half {
        struct health_timed *whole;
        struct http_call *call;
    } halves[2];
    int n_open;       /* 0: no test runs */
    unsigned seconds; /* of the test */
    int status;       /* of the first that is not well; 0: none */
    struct buf body;
    uint64_t healthy_ms; /* when the last test ended so; 0: it did not */
};

/* ---- those who wait */

static void leave(struct waiter *w) {
    *w->at = w->next;
    if (w->next != NULL) w->next->at = w->at;
    loop_timer_stop(&w->late);
    free(w);
}

static void reply_healthy(struct http_x *x) {
    http_x_reply(x, 200, "application/json; charset=utf-8", healthy, sizeof(healthy) - 1);
}

static void reply_ill(const struct health_timed *t, struct http_x *x, int status) {
    if (status == t->status && t->body.len > 0) {
        http_x_reply(x, status, "application/json; charset=utf-8", t->body.data, t->body.len);
    } else {
        coord_reply_error(t->co, x, status, "Failed to get engine response");
    }
}

static void answer(struct waiter *w, int status) {
    const struct health_timed *t = w->all;
    struct http_x *x = w->x;
    http_x_on_close(x, NULL, NULL);
    leave(w);
    if (status == 0) {
        reply_healthy(x);
    } else if (status == 503) {
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(t->co, x, 503, coord_not_ready(t->co));
    } else {
        reply_ill(t, x, status);
    }
}

/* Nobody waits any more: nobody needs the test. */
static void end_if_alone(struct health_timed *t) {
    if (t->waiters != NULL) return;
    http_call_cancel(&t->halves[0].call);
    http_call_cancel(&t->halves[1].call);
    t->n_open = 0;
}

static void on_gone(void *arg) {
    struct waiter *w = arg;
    struct health_timed *t = w->all;
    leave(w);
    end_if_alone(t);
}

static void on_late(void *arg) {
    struct waiter *w = arg;
    struct health_timed *t = w->all;
    answer(w, 500);
    end_if_alone(t);
}

/* ---- the test */

/* NULL *d: *p does everything by itself. */
static bool find_pair(const struct coordinator *co, const struct inst **p, const struct inst **d) {
    const bool embed = controller_embeds(co);
    *d = NULL;
    for (*p = co->reg.first; *p != NULL; *p = (*p)->next) {
        if (!inst_serves(*p, NULL)) continue;
        if (embed) return true;
        if (!inst_works_as(*p, ROLE_PREFILL)) continue;
        for (*d = co->reg.first; *d != NULL; *d = (*d)->next)
            if (inst_works_as(*d, ROLE_DECODE) && inst_serves(*d, NULL) && inst_linked(*p, *d))
                return true;
    }
    return false;
}

static void start_test(struct health_timed *t);

static void finish(struct health_timed *t) {
    uint64_t now = clock_ms();
    t->healthy_ms = t->status == 0 ? now : 0;
    for (struct waiter *w = t->waiters, *next; w != NULL; w = next) {
        next = w->next;
        if (t->status == 0 || w->seconds <= t->seconds || w->until_ms <= now + MARGIN_MS)
            answer(w, t->status);
    }
    if (t->waiters != NULL) start_test(t); /* a longer one */
}

static void on_half(void *arg, const struct http_result *r) {
    struct half *h = arg;
    struct health_timed *t = h->whole;
    h->call = NULL;
    if (t->status == 0 && (r->err != ERR_OK || r->status != 200)) {
        t->status = r->err == ERR_OK ? r->status : 500;
        if (r->err == ERR_OK) buf_append(&t->body, r->body, r->body_len);
    }
    if (--t->n_open == 0) finish(t);
}

static bool ask(struct health_timed *t, struct half *h, const struct inst *in) {
    char path[32], url[128];
    h->whole = t;
    snprintf(path, sizeof(path), "/health/timed-%u", t->seconds);
    struct tls *tls =
        coord_tls_url(&t->co->tls, url, sizeof(url), &in->node, NODE_MANAGEMENT, path);
    struct http_call_opts o = {.method = "GET",
                               .url = url,
                               .tls = tls,
                               .total_ms = t->seconds * 1000 + MARGIN_MS,
                               .body_bytes_max = ANSWER_BYTES_MAX,
                               .on_done = on_half,
                               .arg = h};
    if (http_client_call(t->co->client, &o, &h->call) != ERR_OK) return false;
    t->n_open++;
    return true;
}

/* With the least time that anybody who waits gives. */
static void start_test(struct health_timed *t) {
    const struct inst *p, *d;
    t->status = 0;
    buf_free(&t->body);
    if (!find_pair(t->co, &p, &d)) {
        while (t->waiters != NULL) answer(t->waiters, 503);
        return;
    }
    t->seconds = MAX_S;
    for (const struct waiter *w = t->waiters; w != NULL; w = w->next)
        if (w->seconds < t->seconds) t->seconds = w->seconds;
    bool all = ask(t, &t->halves[0], p);
    if (d != NULL) all = ask(t, &t->halves[1], d) && all;
    if (all) return;
    t->status = 500;
    t->seconds = MAX_S; /* all are answered */
    if (t->n_open == 0) finish(t);
}

static struct health_timed *of(struct coordinator *co) {
    if (co->timed == NULL && (co->timed = calloc(1, sizeof(*co->timed))) != NULL)
        co->timed->co = co;
    return co->timed;
}

static void probe(struct coordinator *co, struct http_x *x, unsigned seconds) {
    struct health_timed *t = of(co);
    struct waiter *w = t != NULL ? calloc(1, sizeof(*w)) : NULL;
    if (co->stopping ||
        (t != NULL && t->healthy_ms != 0 && clock_ms() - t->healthy_ms < HOLDS_MS)) {
        free(w); /* a daemon that drains must not be killed for it */
        reply_healthy(x);
        return;
    }
    if (w == NULL ||
        loop_timer_start(&w->late, co->loop, seconds * 1000 + MARGIN_MS, 0, on_late, w) != ERR_OK) {
        free(w);
        coord_reply_error(co, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    w->all = t;
    w->x = x;
    w->seconds = seconds;
    w->until_ms = clock_ms() + seconds * 1000 + MARGIN_MS;
    w->next = t->waiters;
    w->at = &t->waiters;
    if (w->next != NULL) w->next->at = &w->next;
    t->waiters = w;
    http_x_on_close(x, on_gone, w);
    if (t->n_open == 0) start_test(t);
}

void health_timed_close(struct coordinator *co) {
    struct health_timed *t = co->timed;
    if (t == NULL) return;
    while (t->waiters != NULL) answer(t->waiters, 503);
    end_if_alone(t);
    buf_free(&t->body);
    free(t);
    co->timed = NULL;
}

void health_timed(struct coordinator *co, struct http_x *x, const char *seconds) {
    static const char too_long[] = "Max wait time is 600, input is invalid or too long",
                      out_of_range[] =
                          "Wait time should be in range of [1, 600], input is not valid";
    size_t n = strlen(seconds);
    if (n == 0 || n > 3 || seconds[strspn(seconds, "0123456789")] != 0) {
        http_x_reply(x, 404, "text/plain; charset=utf-8", too_long, sizeof(too_long) - 1);
        return;
    }
    unsigned long s = strtoul(seconds, NULL, 10);
    if (s < 1 || s > MAX_S) {
        http_x_reply(x, 404, "text/plain; charset=utf-8", out_of_range, sizeof(out_of_range) - 1);
    } else {
        probe(co, x, (unsigned)s);
    }
}

void health_timed_default(struct coordinator *co, struct http_x *x) {
    probe(co, x, DEFAULT_S);
}
