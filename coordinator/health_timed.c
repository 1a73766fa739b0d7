/* health_timed: GET /health/timed[-N] of the cluster (inference-api 14.4): one prefill and one
 * decode instance that work together must each compute a token within N seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "coordinator/coordinator.h"

enum { DEFAULT_S = 10, MAX_S = 600, ANSWER_BYTES_MAX = 1 << 16, MARGIN_MS = 2000 };

static const char healthy[] = "{\"status\":\"healthy\"}";

struct timed {
    struct coordinator *co;
    struct http_x *x;
    struct half {
        struct timed *whole;
        struct http_call *call;
    } halves[2];
    int n_open;
    int status; /* of the first that is not well; 0: none */
    struct buf body;
};

static void timed_free(struct timed *t) {
    buf_free(&t->body);
    free(t);
}

static void on_gone(void *arg) {
    struct timed *t = arg;
    http_call_cancel(&t->halves[0].call);
    http_call_cancel(&t->halves[1].call);
    timed_free(t);
}

static void finish(struct timed *t) {
    http_x_on_close(t->x, NULL, NULL);
    if (t->status == 0) {
        http_x_reply(t->x, 200, "application/json; charset=utf-8", healthy, sizeof(healthy) - 1);
    } else if (t->body.len > 0) {
        http_x_reply(t->x, t->status, "application/json; charset=utf-8", t->body.data, t->body.len);
    } else {
        coord_reply_error(t->co, t->x, t->status, "Failed to get engine response");
    }
    timed_free(t);
}

static void on_half(void *arg, const struct http_result *r) {
    struct half *h = arg;
    struct timed *t = h->whole;
    h->call = NULL;
    if (t->status == 0 && (r->err != ERR_OK || r->status != 200)) {
        t->status = r->err == ERR_OK ? r->status : 500;
        if (r->err == ERR_OK) buf_append(&t->body, r->body, r->body_len);
    }
    if (--t->n_open == 0) finish(t);
}

static bool ask(struct timed *t, struct half *h, const struct inst *in, unsigned seconds) {
    char path[32], url[128];
    h->whole = t;
    snprintf(path, sizeof(path), "/health/timed-%u", seconds);
    struct tls *tls =
        coord_tls_url(&t->co->tls, url, sizeof(url), &in->node, NODE_MANAGEMENT, path);
    struct http_call_opts o = {.method = "GET",
                               .url = url,
                               .tls = tls,
                               .total_ms = seconds * 1000 + MARGIN_MS,
                               .body_bytes_max = ANSWER_BYTES_MAX,
                               .on_done = on_half,
                               .arg = h};
    if (http_client_call(t->co->client, &o, &h->call) != ERR_OK) return false;
    t->n_open++;
    return true;
}

static bool find_pair(const struct coordinator *co, const struct inst **p, const struct inst **d) {
    for (*p = co->reg.first; *p != NULL; *p = (*p)->next) {
        if ((*p)->want != ROLE_PREFILL || !inst_serves(*p, NULL)) continue;
        for (*d = co->reg.first; *d != NULL; *d = (*d)->next)
            if ((*d)->want == ROLE_DECODE && inst_serves(*d, NULL) && inst_linked(*p, *d))
                return true;
    }
    return false;
}

static void probe(struct coordinator *co, struct http_x *x, unsigned seconds) {
    const struct inst *p, *d;
    if (co->stopping) { /* a daemon that drains must not be killed for it */
        http_x_reply(x, 200, "application/json; charset=utf-8", healthy, sizeof(healthy) - 1);
        return;
    }
    if (!find_pair(co, &p, &d)) {
        http_x_set_header(x, "Retry-After", "1");
        coord_reply_error(co, x, 503, "MindIE-MS Coordinator is not ready");
        return;
    }
    struct timed *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        coord_reply_error(co, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    t->co = co;
    t->x = x;
    http_x_on_close(x, on_gone, t);
    bool all = ask(t, &t->halves[0], p, seconds);
    all = ask(t, &t->halves[1], d, seconds) && all;
    if (!all) t->status = 500;
    if (t->n_open == 0) finish(t);
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
