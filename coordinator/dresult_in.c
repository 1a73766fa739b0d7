/* dresult_in: one stream, its parser, its reconnects. */
#include "coordinator/dresult_in.h"

#include <stdio.h>
#include <stdlib.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/relay.h"
#include "proto/dresult.h"
#include "proto/limits.h"

enum { SILENCE_MS = 30000, BACKOFF_MS = 100, BACKOFF_MAX_MS = 2000 };

struct dresult_in {
    struct coordinator *co;
    uint32_t inst_id;
    struct http_call *call;
    struct loop_timer *retry;
    struct dresult_parser *parser; /* made at the first byte, which tells the version */
    bool replaced;                 /* another coordinator took the stream */
    unsigned n_failures;           /* connects without a byte, in a row */
};

static enum err on_frame(void *arg, const struct dresult_frame *f) {
    struct dresult_in *d = arg;
    if (f->kind == DR_CLOSE) {
        log_warn("dresult", "id=%u event=replaced", d->inst_id);
        d->replaced = true;
    } else if (f->kind != DR_HEARTBEAT) {
        relay_on_frame(d->co->relays, d->inst_id, f);
    }
    return ERR_OK;
}

static void set_up(struct dresult_in *d, bool up) {
    struct inst *in = registry_find(&d->co->reg, d->inst_id);
    if (in == NULL || in->dresult_up == up) return;
    in->dresult_up = up;
    log_info("dresult", "id=%u event=%s", d->inst_id, up ? "up" : "down");
}

static bool on_data(void *arg, const char *p, size_t n) {
    struct dresult_in *d = arg;
    if (n == 0) return true;
    if (d->parser ==
        NULL) { /* version 1 begins with "reqId:" or "ka:", version 2 with a hex digit */
        int version = p[0] == 'r' || p[0] == 'k' ? 1 : 2;
        size_t most = version == 1 ? DRESULT_PIECE_BYTES_MAX : DRESULT_FRAME_BYTES_MAX;
        if (dresult_parser_create(&d->parser, version, most) != ERR_OK) return false;
    }
    enum err e = dresult_parser_feed(d->parser, p, n, on_frame, d);
    if (e == ERR_OK) {
        d->n_failures = 0;
    } else {
        log_error("dresult", "id=%u event=bad_frame err=%s", d->inst_id, err_name(e));
    }
    return e == ERR_OK;
}

static void on_headers(void *arg, int status) {
    if (status == 200) set_up(arg, true);
}

static void connect_now(void *arg);

static void on_done(void *arg, const struct http_result *r) {
    struct dresult_in *d = arg;
    d->call = NULL;
    dresult_parser_destroy(&d->parser);
    set_up(d, false);
    if (d->n_failures < 16) d->n_failures++;
    if (d->n_failures == 1 || r->err == ERR_OK)
        log_warn("dresult", "id=%u event=lost err=%s status=%d", d->inst_id, err_name(r->err),
                 r->status);
    /* A stream that stays away loses its requests: after max_retry attempts they are answered or
     * moved. */
    if (d->n_failures > (unsigned)d->co->conf.retries_max + 1)
        relay_instance_lost(d->co->relays, d->inst_id);
    unsigned wait = BACKOFF_MS << (d->n_failures < 5 ? d->n_failures - 1 : 4);
    if (d->replaced || wait > BACKOFF_MAX_MS) wait = BACKOFF_MAX_MS;
    loop_timer_stop(&d->retry);
    if (loop_timer_start(&d->retry, d->co->loop, wait, 0, connect_now, d) != ERR_OK)
        log_error("dresult", "id=%u event=no_timer", d->inst_id);
}

static void connect_now(void *arg) {
    struct dresult_in *d = arg;
    const struct inst *in = registry_find(&d->co->reg, d->inst_id);
    char url[96];
    static const char *const headers[] = {"dresult-version: 2", NULL};
    loop_timer_stop(&d->retry);
    if (in == NULL || d->call != NULL) return;
    struct tls *tls =
        coord_tls_url(&d->co->tls, url, sizeof(url), &in->node, NODE_BUSINESS, "/dresult");
    struct http_call_opts o = {.method = "GET",
                               .url = url,
                               .tls = tls,
                               .headers = headers,
                               .connect_ms = (unsigned)d->co->conf.instance_timeout_s * 1000,
                               .silence_ms = SILENCE_MS,
                               .fresh_connection = true,
                               .on_data = on_data,
                               .on_headers = on_headers,
                               .on_done = on_done,
                               .arg = d};
    if (http_client_call(d->co->client, &o, &d->call) != ERR_OK)
        (void)loop_timer_start(&d->retry, d->co->loop, BACKOFF_MAX_MS, 0, connect_now, d);
}

enum err dresult_in_open(struct dresult_in **out, struct coordinator *co, uint32_t inst_id) {
    struct dresult_in *d = calloc(1, sizeof(*d));
    *out = d;
    if (d == NULL) return ERR_NO_MEMORY;
    d->co = co;
    d->inst_id = inst_id;
    connect_now(d);
    return ERR_OK;
}

void dresult_in_close(struct dresult_in **dp) {
    struct dresult_in *d = *dp;
    if (d == NULL) return;
    *dp = NULL;
    http_call_cancel(&d->call);
    loop_timer_stop(&d->retry);
    dresult_parser_destroy(&d->parser);
    free(d);
}
