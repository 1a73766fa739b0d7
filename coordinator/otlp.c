/* otlp: spans wait in a buffer, and leave in batches, one call at a time. */
#include "coordinator/otlp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/base/splitmix.h"
#include "common/net/http_client.h"
#include "coordinator/otlp_priv.h"
#include "coordinator/send_again.h"

enum {
    AGAIN_MS = 1000,
    AGAIN_MS_MAX = 60000,
    TIMEOUT_MS = 10000,
    HEADERS_MAX = 16,
    HEADER_BYTES = 1400
};

struct otlp {
    struct otlp_opts o;
    struct http_call *call;
    struct buf waiting, sent;   /* spans, with commas between them; a whole body */
    uint64_t n_waiting, n_sent; /* requests in them */
    struct send_again again;
    uint64_t random; /* of span ids: unique, no secret */
    char lines[HEADERS_MAX][HEADER_BYTES];
    const char *headers[HEADERS_MAX + 2];
};

/* ---- numbers */

static void next_id(void *arg, uint8_t id[SPAN_ID_BYTES]) {
    struct otlp *o = arg;
    uint64_t v;
    do v = splitmix_next(&o->random);
    while (v == 0);
    memcpy(id, &v, SPAN_ID_BYTES);
}

/* ---- life */

static enum err take_headers(struct otlp *o, struct errbuf *eb) {
    const char *list = o->o.headers;
    struct otlp_pair pair;
    size_t n = 0;
    bool bad;
    o->headers[n++] = "Content-Type: application/json";
    while (otlp_pair_next(&pair, &list, &bad)) {
        if (n > HEADERS_MAX || strpbrk(pair.key, ": \t\"") != NULL)
            return err_set(eb, ERR_BAD_CONFIG,
                           "the headers for traces must be at most %d of name=value, \"%.60s\" is "
                           "none, or one too many",
                           HEADERS_MAX, pair.key);
        snprintf(o->lines[n - 1], HEADER_BYTES, "%s: %s", pair.key, pair.value);
        o->headers[n] = o->lines[n - 1];
        n++;
    }
    if (bad)
        return err_set(eb, ERR_BAD_CONFIG,
                       "the headers for traces must be name=value with commas between them");
    return ERR_OK;
}

static enum err check_resource(const char *list, struct errbuf *eb) {
    struct otlp_pair pair;
    bool bad;
    while (otlp_pair_next(&pair, &list, &bad)) {}
    if (!bad) return ERR_OK;
    return err_set(eb, ERR_BAD_CONFIG,
                   "OTEL_RESOURCE_ATTRIBUTES must be key=value with commas between them");
}

enum err otlp_create(struct otlp **out, const struct otlp_opts *opts, struct errbuf *eb) {
    struct otlp *o = calloc(1, sizeof(*o));
    if (o == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for traces");
    o->o = *opts;
    o->again = (struct send_again){
        .area = "otlp", .url = opts->url, .first_ms = AGAIN_MS, .longest_ms = AGAIN_MS_MAX};
    if (getrandom(&o->random, sizeof(o->random), 0) != (ssize_t)sizeof(o->random))
        o->random = clock_unix_us();
    enum err e = take_headers(o, eb);
    if (e == ERR_OK) e = check_resource(opts->resource, eb);
    if (e != ERR_OK) {
        free(o);
        return e;
    }
    *out = o;
    return ERR_OK;
}

void otlp_destroy(struct otlp **op) {
    struct otlp *o = *op;
    if (o == NULL) return;
    http_call_cancel(&o->call);
    buf_free(&o->waiting);
    buf_free(&o->sent);
    free(o);
    *op = NULL;
}

/* ---- requests */

bool otlp_begin(struct otlp *o, struct otlp_place *at, const char *header) {
    struct traceparent above;
    *at = (struct otlp_place){0};
    if (o == NULL) return false;
    if (header != NULL && traceparent_read(&above, header)) {
        if (!above.sampled) return false;
        at->own = above;
        memcpy(at->parent, above.span_id, SPAN_ID_BYTES);
        at->has_parent = true;
    } else {
        if (splitmix_unit(&o->random) >= o->o.sample) return false;
        next_id(o, at->own.trace_id);
        next_id(o, at->own.trace_id + SPAN_ID_BYTES);
        at->own.sampled = true;
    }
    next_id(o, at->own.span_id);
    return true;
}

static void drop(struct otlp *o, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) budget_refused(o->o.budget, BUDGET_SPANS);
}

static void send_some(struct otlp *o, uint64_t now_ms);

void otlp_request(struct otlp *o, const struct otlp_place *at, const struct recent *e) {
    if (o == NULL || !at->own.sampled) return;
    const size_t was = o->waiting.len;
    otlp_spans(&o->waiting, at, e, next_id, o);
    if (o->waiting.failed || o->waiting.len > OTLP_WAITING_BYTES) {
        o->waiting.failed = false;
        o->waiting.len = was;
        drop(o, 1);
        return;
    }
    o->n_waiting++;
    if (o->waiting.len >= OTLP_BATCH_BYTES) send_some(o, clock_ms());
}

/* ---- sending */

static bool may_help_later(const struct http_result *r) {
    return r->err != ERR_OK || r->status == 429 || (r->status >= 502 && r->status <= 504);
}

static void on_done(void *arg, const struct http_result *r) {
    struct otlp *o = arg;
    o->call = NULL;
    if (may_help_later(r)) {
        send_again_later(&o->again, r);
        return;
    }
    if (r->status < 200 || r->status >= 300) drop(o, o->n_sent);
    send_again_done(&o->again, r, clock_ms() + OTLP_EVERY_MS);
    buf_clear(&o->sent);
}

/* A body of what waits; false: no memory, and what waits is dropped. */
static bool make_body(struct otlp *o) {
    otlp_head(&o->sent, o->o.service, o->o.resource);
    buf_append(&o->sent, o->waiting.data, o->waiting.len);
    otlp_tail(&o->sent);
    o->n_sent = o->n_waiting;
    o->n_waiting = 0;
    buf_clear(&o->waiting);
    if (!o->sent.failed) return true;
    buf_free(&o->sent);
    drop(o, o->n_sent);
    return false;
}

static void send_some(struct otlp *o, uint64_t now_ms) {
    if (o->call != NULL || now_ms < o->again.not_before_ms) return;
    if (o->sent.len == 0 && (o->waiting.len == 0 || !make_body(o))) return;
    const struct http_call_opts call = {.method = "POST",
                                        .url = o->o.url,
                                        .headers = o->headers,
                                        .body = o->sent.data,
                                        .body_len = o->sent.len,
                                        .body_lent = true,
                                        .connect_ms = TIMEOUT_MS,
                                        .total_ms = TIMEOUT_MS,
                                        .body_bytes_max = 1 << 16,
                                        .tls = o->o.tls,
                                        .on_done = on_done,
                                        .arg = o};
    const enum err e = http_client_call(o->o.client, &call, &o->call);
    if (e != ERR_OK) send_again_later(&o->again, &(struct http_result){.err = e});
}

void otlp_tick(struct otlp *o, uint64_t now_ms) {
    if (o != NULL) send_some(o, now_ms);
}
