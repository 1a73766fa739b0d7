/* inst_register: an instance that announces itself: POST <registerUrl>/v1/instances/register every
 * few seconds (cluster-api 7.1). Of several coordinators the one that takes it is kept to, and the
 * next one asked when it does not: it stands by, or is gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/inst_internal.h"

enum {
    LOOK_MS = 250,
    PERIOD_MS = 3000,
    AWAY_PERIOD_MS = 500, /* nobody knows it: the next one shall at once */
    TIMEOUT_MS = 1000,
    TURNS = 1 << 10, /* through the coordinators, before it counts anew */
};

/* Of several coordinators the one at the place that is asked now: where it begins and its length.
 */
static size_t url_now(const struct instance *in, const char **url) {
    const char *p = in->conf.register_url;
    for (unsigned i = 0; i < in->register_at; i++) {
        p += strcspn(p, " ");
        p += strspn(p, " ");
        if (*p == '\0') p = in->conf.register_url;
    }
    *url = p;
    return strcspn(p, " ");
}

/* One that stands by, or is gone, has another one beside it. */
static void on_answer(void *arg, const struct http_result *r) {
    struct instance *in = arg;
    const char *url;
    const int n = (int)url_now(in, &url);
    const bool several = strchr(in->conf.register_url, ' ') != NULL;
    in->register_call = NULL;
    in->register_failed = r->err != ERR_OK || r->status != 200;
    if (!in->register_failed) return;
    if (!several || r->err != ERR_OK || r->status != 503)
        log_warn("register", "url=%.*s err=%s status=%d detail=\"%s\"", n, url, err_name(r->err),
                 r->status, r->detail != NULL ? r->detail : "");
    if (several) in->register_at = (in->register_at + 1) % TURNS;
}

/* The label of the rank table that says so (cluster-api 6.4); "": none. */
static const char *label_of(const struct instance *in) {
    const char *asks = in->conf.register_role;
    bool decode = in->first_role == ROLE_DECODE;
    if (strcmp(asks, "any") == 0) return "";
    if (strcmp(asks, "prefer") == 0) return decode ? "\"label\":1," : "\"label\":0,";
    if (strcmp(asks, "static") != 0) decode = strcmp(asks, "decode") == 0;
    return decode ? "\"label\":3," : "\"label\":2,";
}

static void on_period(void *arg) {
    struct instance *in = arg;
    const struct inst_conf *c = &in->conf;
    uint64_t now = clock_ms();
    const char *at;
    const size_t n = url_now(in, &at);
    bool away = (in->register_failed && strchr(c->register_url, ' ') != NULL) ||
                (in->dresult != NULL && role_ctl_role(in->role_ctl) != ROLE_NONE &&
                 !dresult_out_has_listener(in->dresult));
    if (in->register_call != NULL || in->stopping ||
        (in->registered_ms != 0 && now - in->registered_ms < (away ? AWAY_PERIOD_MS : PERIOD_MS)))
        return;
    in->registered_ms = now;
    struct buf b = BUF_INIT;
    char url[sizeof(c->register_url) + 32];
    snprintf(url, sizeof(url), "%.*s/v1/instances/register", (int)n, at);
    buf_printf(&b,
               "{\"server_ip\":\"%s\",\"server_id\":\"%s\",\"mgmt_ip\":\"%s\",\"predict_port\":\"%"
               "u\",\"mgmt_port\":\"%u\",\"metric_port\":\"%u\","
               "\"inter_comm_port\":\"%lld\",%s\"device\":[",
               c->ip, c->ip, c->management_ip, http_server_port(in->listeners[0].server),
               (unsigned)c->management_port, (unsigned)c->metrics_port,
               (long long)c->inter_comm_port, label_of(in));
    for (int64_t i = 0; i < c->world_size; i++) /* as many as a role body must name */
        buf_printf(&b,
                   "%s{\"device_id\":\"%lld\",\"device_ip\":\"%s\",\"rank_id\":\"%lld\","
                   "\"device_logical_id\":\"%lld\"}",
                   i > 0 ? "," : "", (long long)i, c->ip, (long long)i, (long long)i);
    buf_puts(&b, "]}");
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct http_call_opts o = {.method = "POST",
                               .url = url,
                               .headers = headers,
                               .body = b.data,
                               .body_len = b.len,
                               .connect_ms = TIMEOUT_MS,
                               .total_ms = TIMEOUT_MS,
                               .body_bytes_max = 1 << 20,
                               .tls = in->tls.plane[INST_PLANE_REGISTER],
                               .on_done = on_answer,
                               .arg = in};
    if (http_client_call(in->client, &o, &in->register_call) != ERR_OK)
        log_warn("register", "url=%s event=not_sent", url);
    buf_free(&b);
}

enum err inst_register_start(struct instance *in) {
    if (in->conf.register_url[0] == 0) return ERR_OK;
    enum err e = http_client_create(&in->client, in->loop, "Baton-Instance/1.0");
    if (e == ERR_OK) e = loop_timer_start(&in->register_timer, in->loop, 1, LOOK_MS, on_period, in);
    return e;
}

void inst_register_stop(struct instance *in) {
    loop_timer_stop(&in->register_timer);
    http_call_cancel(&in->register_call);
    http_client_destroy(&in->client);
}
