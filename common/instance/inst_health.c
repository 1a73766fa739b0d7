/* inst_health: health endpoints (cluster-api 3.6, 3.7; inference-api 14). */
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_routes.h"

enum { TIMED_DEFAULT_S = 10, TIMED_MAX_S = 600, HOLDS_MS = 500 };

enum health { HEALTH_OK, HEALTH_BUSY, HEALTH_LINK_LOST, HEALTH_ABNORMAL };

static enum health health_of(struct instance *in) {
    struct engine_stats st;
    if (worker_stuck_ms(in->worker) > 0 || inst_engine_held(in)) return HEALTH_ABNORMAL;
    if (role_ctl_unhealthy(in->role_ctl)) return HEALTH_LINK_LOST;
    engine_stats(worker_engine(in->worker), &st);
    return st.slots_free == 0 ? HEALTH_BUSY : HEALTH_OK;
}

static void reply_message(struct http_x *x, int status, const char *text) {
    struct buf b = BUF_INIT;
    if (status == 503) http_x_set_header(x, "Retry-After", "1");
    buf_printf(&b, "{\"message\":\"%s\"}", text);
    http_x_reply(x, status, "application/json", b.data, b.len);
    buf_free(&b);
}

static void reply_abnormal(struct http_x *x, enum health h) {
    reply_message(x, 500,
                  h == HEALTH_LINK_LOST ? "DMI connection is unhealthy" : "Service is abnormal");
}

/* Who loads is alive: an orchestrator that ended it would have it begin again, without end. */
static void on_live(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    (void)p;
    if (!in->loaded && !in->stopping) {
        http_x_reply(x, 200, NULL, "", 0);
        return;
    }
    if (inst_guard(in, x)) return;
    switch (health_of(in)) {
    case HEALTH_OK: http_x_reply(x, 200, NULL, "", 0); return;
    case HEALTH_BUSY: reply_message(x, 200, "Service is alive but busy"); return;
    case HEALTH_LINK_LOST: reply_abnormal(x, HEALTH_LINK_LOST); return;
    case HEALTH_ABNORMAL: reply_abnormal(x, HEALTH_ABNORMAL); return;
    }
}

/* An instance of a cluster is not ready before its role is. */
static bool role_ready(struct instance *in) {
    return role_ctl_status(in->role_ctl) == ROLE_STATUS_READY;
}

bool inst_has_model(const void *arg, const char *name) {
    const struct instance *in = arg;
    return strcmp(in->conf.model_name, name) == 0;
}

bool inst_is_well(const void *arg) {
    struct instance *in = (struct instance *)(uintptr_t)arg;
    return in->loaded && !in->stopping && role_ready(in) && health_of(in) <= HEALTH_BUSY;
}

static void on_ready(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    (void)p;
    if (inst_guard(in, x)) return;
    enum health h = health_of(in);
    if (h == HEALTH_LINK_LOST || h == HEALTH_ABNORMAL) {
        reply_abnormal(x, h);
    } else if (!role_ready(in)) {
        reply_message(x, 503, "The role of this instance is not ready");
    } else if (h == HEALTH_BUSY) {
        reply_message(x, 503, "Service is alive but busy. Consider reducing request frequency");
    } else {
        http_x_reply(x, 200, NULL, "", 0);
    }
}

/* ok: the body of a 200, which may be "". */
static void reply_health(struct instance *in, struct http_x *x, const char *ok) {
    if (health_of(in) == HEALTH_ABNORMAL)
        inst_reply_wrapped(x, 500, "Failed to get health status.");
    else
        http_x_reply(x, 200, ok[0] != 0 ? "application/json" : NULL, ok, strlen(ok));
}

static void on_health(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    (void)p;
    if (!inst_guard(in, x)) reply_health(in, x, "{\"status\":\"ok\"}");
}

static void on_model_ready(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct api_answer a;
    if (inst_guard(in, x)) return;
    if (!endpoint_has_model(in->endpoint, p->model)) {
        endpoint_model_not_found(in->endpoint, p->model, &a);
        instance_reply(x, &a);
    } else {
        reply_health(in, x, "");
    }
}

/* A client of /health/timed that waits. Busy or stopping counts as healthy as long as the engine
 * moves. The engine runs one test at a time, for all that wait (in->timed_testing); what it found
 * healthy holds for HOLDS_MS. */
struct timed {
    struct timed *next, **at; /* of the instance's */
    struct instance *in;
    struct http_x *x;
    struct loop_timer *deadline;
};

static void timed_free(struct timed *t) {
    loop_timer_stop(&t->deadline);
    *t->at = t->next;
    if (t->next != NULL) t->next->at = t->at;
    free(t);
}

/* failure: the text of the 500, or NULL. */
static void timed_reply(struct timed *t, const char *failure) {
    static const char ok[] = "{\"status\":\"healthy\"}";
    struct http_x *x = t->x;
    timed_free(t);
    http_x_on_close(x, NULL, NULL);
    if (failure == NULL) {
        http_x_reply(x, 200, "application/json", ok, sizeof(ok) - 1);
    } else {
        inst_reply_wrapped(x, 500, failure);
    }
}

static void timed_gone(void *arg) {
    timed_free(arg);
}

static void reply_all(struct instance *in, const char *failure) {
    while (in->timed != NULL) timed_reply(in->timed, failure);
}

static void timed_done(void *arg, enum err e) {
    struct instance *in = arg;
    bool well = e == ERR_OK || e == ERR_BUSY;
    in->timed_testing = false;
    in->timed_healthy_ms = well ? clock_ms() : 0;
    reply_all(in, well ? NULL : "Failed to get engine response");
}

static void timed_expired(void *arg) {
    struct timed *t = arg;
    uint64_t last = worker_last_step_us(t->in->worker);
    timed_reply(t, clock_us() - last < 1000000 ? NULL : "Engine callback timeout");
}

static void run_timed(struct instance *in, struct http_x *x, unsigned seconds) {
    static const char ok[] = "{\"status\":\"healthy\"}";
    if (in->stopping) {
        http_x_reply(x, 200, "application/json", ok, sizeof(ok) - 1);
        return;
    }
    if (inst_guard(in, x)) return;
    if (inst_engine_held(in)) {
        inst_reply_wrapped(x, 500, "Health status changed during health detector");
        return;
    }
    if (in->timed_healthy_ms != 0 && clock_ms() - in->timed_healthy_ms < HOLDS_MS) {
        http_x_reply(x, 200, "application/json", ok, sizeof(ok) - 1);
        return;
    }
    struct timed *t = calloc(1, sizeof(*t));
    if (t == NULL ||
        loop_timer_start(&t->deadline, in->loop, seconds * 1000u, 0, timed_expired, t) != ERR_OK) {
        free(t);
        inst_reply_wrapped(x, 500, err_text(ERR_NO_MEMORY));
        return;
    }
    t->in = in;
    t->x = x;
    t->next = in->timed;
    t->at = &in->timed;
    if (t->next != NULL) t->next->at = &t->next;
    in->timed = t;
    http_x_on_close(x, timed_gone, t);
    if (in->timed_testing) return; /* its outcome is for all */
    enum err e = worker_self_test(in->worker, timed_done, in);
    in->timed_testing = e == ERR_OK;
    if (e != ERR_OK) reply_all(in, e == ERR_BUSY ? NULL : "Failed to submit simulate request");
}

/* Those who wait for a test that the engine did not finish before it was closed. */
void inst_health_fini(struct instance *in) {
    while (in->timed != NULL) timed_free(in->timed);
}

static void on_timed(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    run_timed(arg, x, TIMED_DEFAULT_S);
}

static void reply_plain(struct http_x *x, int status, const char *text) {
    http_x_reply(x, status, "text/plain", text, strlen(text));
}

static void on_timed_n(void *arg, struct http_x *x, const struct route_params *p) {
    const char *n = p->rest;
    size_t len = strlen(n);
    if (len == 0 || len > 3 || n[strspn(n, "0123456789")] != 0) {
        reply_plain(x, 404, "Max wait time is 600, input is invalid or too long");
        return;
    }
    unsigned long s = strtoul(n, NULL, 10);
    if (s < 1 || s > TIMED_MAX_S) {
        reply_plain(x, 404, "Wait time should be in range of [1, 600], input is not valid");
        return;
    }
    run_timed(arg, x, (unsigned)s);
}

static void on_grpc_health(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    (void)p;
    grpc_health_serve(in->grpc_health, x);
}

const struct route inst_health_routes[] = {
    {PLANE_MGMT | PLANE_DATA | PLANE_OPEN | PLANE_LIMITED, "GET", "/v2/health/live", on_live, 0},
    {PLANE_MGMT | PLANE_DATA | PLANE_OPEN | PLANE_LIMITED, "GET", "/v2/health/ready", on_ready, 0},
    {PLANE_MGMT | PLANE_DATA | PLANE_OPEN, "GET", "/v2/models/{m}/ready", on_model_ready, 0},
    {PLANE_MGMT | PLANE_DATA | PLANE_OPEN | PLANE_LIMITED, "GET", "/health", on_health, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/v1/health", on_health, 0}, /* llama.cpp's */
    {PLANE_MGMT | PLANE_DATA, "GET", "/health/timed", on_timed, 0},
    {PLANE_MGMT | PLANE_DATA, "GET", "/health/timed-{*}", on_timed_n, 0},
    {PLANE_DATA | PLANE_OPEN | PLANE_GRPC, "POST", GRPC_HEALTH_PATH, on_grpc_health,
     GRPC_HEALTH_BODY_BYTES},
    GRPC_PROBE_ROWS(on_grpc_health),
    {0, NULL, NULL, NULL, 0},
};
