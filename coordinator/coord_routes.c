/* coord_routes: the coordinator's paths by plane, and the way of a request to its handler. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/log.h"
#include "common/grpc/grpc_files.h"
#include "common/grpc/grpc_reflect.h"
#include "common/grpc/grpc_health.h"
#include "common/grpc/stats_reply.h"
#include "common/net/dispatch.h"
#include "common/net/kept.h"
#include "common/net/log_route.h"
#include "common/net/model_config.h"
#include "common/net/openapi.h"
#include "common/net/slots.h"
#include "common/net/router.h"
#include "common/net/web_pages.h"
#include "coordinator/console.h"
#include "coordinator/coord_facts.h"
#include "coordinator/coord_metrics.h"
#include "coordinator/coordinator.h"
#include "coordinator/ha.h"
#include "coordinator/journal_feed.h"
#include "coordinator/lora.h"
#include "coordinator/mgmt_api.h"
#include "coordinator/relay.h"
#include "proto/json.h"

enum { SMALL_BODY = 1 << 20, PING_BODY = 4096 };

enum error_style coord_error_style(const struct coordinator *co) {
    return strcmp(co->conf.error_style, "openai") == 0 ? ERROR_STYLE_OPENAI : ERROR_STYLE_MINDIE;
}

void coord_reply_error(struct coordinator *co, struct http_x *x, int status, const char *text) {
    coord_reply_error_code(co, x, status, NULL, text);
}

void coord_reply_error_code(struct coordinator *co, struct http_x *x, int status, const char *code,
                            const char *text) {
    if (strcmp(co->conf.error_format, "text") == 0) {
        char line[600];
        int n = snprintf(line, sizeof(line), "%s\r\n", text);
        http_x_reply(x, status, "text/plain; charset=utf-8", line,
                     (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
        return;
    }
    enum error_style style = api_path_style(http_x_path(x), coord_error_style(co));
    char *body = api_error_body(api_path_errors(http_x_path(x)), style, &status, text, NULL, code);
    http_x_reply(x, status, "application/json; charset=utf-8", body != NULL ? body : "",
                 body != NULL ? strlen(body) : 0);
    free(body);
}

const char *coord_media_type(const char *type) {
    static const char *const known[][2] = {
        {"application/json", "application/json; charset=utf-8"},
        {"text/plain", "text/plain; charset=utf-8"},
        {"text/event-stream", "text/event-stream; charset=utf-8"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(type, known[i][0]) == 0) return known[i][1];
    return type[0] != 0 ? type : NULL;
}

/* ---- probes */
static void on_alive(void *arg, struct http_x *x, const struct route_params *p) {
    (void)arg, (void)p;
    http_x_reply(x, 200, NULL, "", 0);
}

static void on_readiness(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    coord_reply_readiness(arg, x, true);
}

static void on_ready(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    coord_reply_readiness(arg, x, false);
}

static void on_timed(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    health_timed_default(arg, x);
}

static void on_timed_n(void *arg, struct http_x *x, const struct route_params *p) {
    health_timed(arg, x, p->rest);
}

/* ---- cluster */
static void on_status(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    coord_reply_status(arg, x);
}

static void on_state(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    coord_reply_state(arg, x);
}

static void on_alarms(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    coord_reply_alarms(arg, x);
}

static void on_journal(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    ha_serve_journal(arg, x);
}

static void on_metrics(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    (void)p;
    coord_metrics_scrape(co->metrics, x);
}

static void reply_ok(struct http_x *x) {
    static const char ok[] = "{\"result\":\"ok\"}";
    http_x_reply(x, 200, "application/json; charset=utf-8", ok, sizeof(ok) - 1);
}

static void on_register(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct json_value *root = NULL;
    struct node_conf node;
    struct errbuf eb = {0};
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)p;
    enum err e = json_read(&root, body, n, NULL, &eb);
    if (e == ERR_OK) e = node_conf_read(&node, &co->conf, root, "body", &eb);
    json_put(root);
    if (e != ERR_OK) {
        coord_reply_error(co, x, 422, eb.text);
        return;
    }
    struct inst *in = controller_register(co, &node);
    if (in == NULL) {
        coord_reply_error(co, x, 503, "no room for another instance");
        return;
    }
    char answer[128];
    int len = snprintf(answer, sizeof(answer), "{\"result\":\"ok\",\"id\":%u,\"lease_s\":%lld}",
                       in->id, (long long)co->conf.register_lease_s);
    http_x_reply(x, 200, "application/json; charset=utf-8", answer, (size_t)len);
}

/* The instance that an order is for: by id, or by name. */
static enum err read_instance(const struct coordinator *co, const struct json_value *root,
                              uint32_t *id, struct errbuf *eb) {
    const char *name;
    uint64_t v = 0;
    size_t n;
    if (json_get_str(root, "name", &name, &n) == JSON_OK) {
        const struct inst *in = registry_find_name(&co->reg, name);
        if (in == NULL)
            return err_set(eb, ERR_NOT_FOUND,
                           "name must be that of one instance, or its address, got \"%.80s\" (GET "
                           "/v2/status lists them)",
                           name);
        *id = in->id;
        return ERR_OK;
    }
    if (json_get_u64(root, "id", &v) != JSON_OK || v > UINT32_MAX)
        return err_set(eb, ERR_INVALID,
                       "id must be the number of an instance (GET /v2/status lists them)");
    *id = (uint32_t)v;
    return ERR_OK;
}

/* Absent: false. */
static enum err read_force(const struct json_value *root, bool *force, struct errbuf *eb) {
    enum json_got got = json_get_bool(root, "force", force);
    return got == JSON_OK || got == JSON_ABSENT
               ? ERR_OK
               : err_set(eb, ERR_INVALID, "force must be a boolean");
}

static void reply_order(struct coordinator *co, struct http_x *x, enum err e,
                        const struct errbuf *eb) {
    if (e == ERR_OK) {
        reply_ok(x);
    } else {
        coord_reply_error(co, x, e == ERR_BAD_JSON || e == ERR_INVALID ? 422 : err_http_status(e),
                          eb->text);
    }
}

static void order_drain(struct coordinator *co, struct http_x *x, bool on) {
    struct json_value *root = NULL;
    struct errbuf eb = {0};
    uint32_t id = 0;
    bool force = false;
    size_t n;
    const char *body = http_x_body(x, &n);
    enum err e = json_read(&root, body, n, NULL, &eb);
    if (e == ERR_OK) e = read_instance(co, root, &id, &eb);
    if (e == ERR_OK) e = read_force(root, &force, &eb);
    if (e == ERR_OK) e = drain_order(co, id, on, force, &eb);
    json_put(root);
    reply_order(co, x, e, &eb);
}

static void on_drain(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    order_drain(arg, x, true);
}

static void on_undrain(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    order_drain(arg, x, false);
}

static void on_leave(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct json_value *root = NULL;
    struct errbuf eb = {0};
    uint32_t id = 0;
    bool force = false;
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)p;
    enum err e = json_read(&root, body, n, NULL, &eb);
    if (e == ERR_OK) e = read_instance(co, root, &id, &eb);
    if (e == ERR_OK) e = read_force(root, &force, &eb);
    if (e == ERR_OK) e = drain_leave(co, id, force, &eb);
    json_put(root);
    reply_order(co, x, e, &eb);
}

/* As SIGHUP, and the rank table as well. */
static void on_reload(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    (void)p;
    log_info("manage", "event=reload");
    cred_watch_now(co->creds);
    co->next_table_ms = 0;
    reply_ok(x);
}

/* How long the role is for. Absent: 0, it stays. back: it ends one, and cannot have one. */
static enum err read_seconds(const struct json_value *root, bool back, uint64_t *seconds,
                             struct errbuf *eb) {
    struct json_value *v;
    *seconds = 0;
    if (json_get(root, "for_s", &v) == JSON_ABSENT) return ERR_OK;
    if (back) return err_set(eb, ERR_INVALID, "for_s must not be there with the role \"auto\"");
    if (json_as_u64(v, seconds) == JSON_OK && *seconds >= 1 && *seconds <= OVERRIDE_S_MAX)
        return ERR_OK;
    char lit[64];
    json_literal(lit, sizeof(lit), v);
    return err_set(eb, ERR_INVALID, "for_s must be an integer from 1 to %d, got %s", OVERRIDE_S_MAX,
                   lit);
}

static void on_switch(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct json_value *root = NULL;
    struct errbuf eb = {0};
    const char *word = "";
    size_t n, word_len;
    uint64_t seconds = 0;
    uint32_t id = 0;
    bool force = false;
    const char *body = http_x_body(x, &n);
    (void)p;
    enum err e = json_read(&root, body, n, NULL, &eb);
    if (e == ERR_OK) e = read_instance(co, root, &id, &eb);
    if (e == ERR_OK && json_get_str(root, "role", &word, &word_len) != JSON_OK) word = "";
    const bool back = strcmp(word, "auto") == 0;
    const enum inst_role role = inst_role_parse(word);
    if (e == ERR_OK && !back && role != ROLE_PREFILL && role != ROLE_DECODE)
        e = err_set(&eb, ERR_INVALID, "role must be \"prefill\" or \"decode\"");
    if (e == ERR_OK) e = read_force(root, &force, &eb);
    if (e == ERR_OK) e = read_seconds(root, back, &seconds, &eb);
    if (e == ERR_OK)
        e = back          ? override_end(co, id, &eb)
            : seconds > 0 ? override_order(co, id, role, force, seconds, &eb)
                          : planner_switch(co, id, role, force, &eb);
    json_put(root);
    reply_order(co, x, e, &eb);
}

/* ---- what an instance answers better */
static void on_management_info(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    proxy_to_instance(arg, x, NULL);
}

static bool model_is_served(const struct coordinator *co, const char *model) {
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (in->facts.online && strcmp(in->facts.config.model_name, model) == 0) return true;
    return false;
}

/* True: no instance serves the model, and x is answered. */
static bool unknown_model(struct coordinator *co, struct http_x *x, const char *model) {
    char text[MODEL_NAME_BYTES_MAX + 32];
    if (model_is_served(co, model)) return false;
    snprintf(text, sizeof(text), "Model %s not found.", model);
    coord_reply_error(co, x, 404, text);
    return true;
}

static void on_stop_infer(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    if (!unknown_model(co, x, p->model)) relay_stop(co->relays, x);
}

/* 503 for an unknown model too: this probe knows 200 and 503 (inference-api 14.5). */
static void on_model_ready(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    if (model_is_served(co, p->model)) {
        coord_reply_readiness(co, x, false);
    } else {
        http_x_set_header(x, "Retry-After", "1");
        http_x_reply(x, 503, NULL, "", 0);
    }
}

const char *coord_model(const struct coordinator *co) {
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (in->facts.online && in->facts.config.model_name[0] != 0)
            return in->facts.config.model_name;
    return NULL;
}

static void reply_not_ready(struct coordinator *co, struct http_x *x) {
    http_x_set_header(x, "Retry-After", "1");
    coord_reply_error(co, x, 503, coord_not_ready(co));
}

static void on_model_config(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    const char *name = coord_model(co);
    (void)p;
    if (name == NULL)
        reply_not_ready(co, x);
    else
        model_config_reply(x, name, controller_serves(co) && !co->stopping);
}

static void on_openapi(void *arg, struct http_x *x, const struct route_params *p) {
    const char *name = coord_model(arg);
    (void)p;
    openapi_reply(x, coord_error_style(arg), name != NULL ? name : "MODEL");
}

struct room {
    uint64_t total, free, tokens, n_ctx;
};

/* The room of the cluster is that of its decode instances (inference-api 13.7). */
static struct room room_of(const struct coordinator *co) {
    struct room r = {.n_ctx = 0};
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!inst_works_as(in, ROLE_DECODE) || !inst_serves(in, NULL)) continue;
        r.total += in->facts.status.total_slots;
        r.free += inst_slots_free(in);
        r.tokens += inst_blocks_free(in) * in->facts.config.cache_block_size;
        if (r.n_ctx == 0 || in->facts.config.max_seq_len < r.n_ctx)
            r.n_ctx = in->facts.config.max_seq_len;
    }
    return r;
}

static void on_llamacpp_slots(void *arg, struct http_x *x, const struct route_params *p) {
    const struct room r = room_of(arg);
    (void)p;
    slots_reply(x, r.total, r.free, r.n_ctx);
}

static void on_load(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    struct relay_counts counts;
    char body[64];
    (void)p;
    relay_counts(co->relays, &counts);
    int n = snprintf(body, sizeof(body), "{\"server_load\":%" PRIu64 "}", counts.in_flight);
    http_x_reply(x, 200, "application/json; charset=utf-8", body, (size_t)n);
}

/* As an instance says it: ok, or how many of the instances serve. */
static void on_health(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    unsigned n = 0, n_serving = 0;
    char body[512];
    int len;
    (void)p;
    if (coord_serves_anything(co)) {
        len = snprintf(body, sizeof(body), "{\"status\":\"ok\"}");
        http_x_reply(x, 200, "application/json; charset=utf-8", body, (size_t)len);
        return;
    }
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next, n++)
        n_serving += inst_serves(in, NULL);
    len = snprintf(body, sizeof(body),
                   "{\"error\":{\"code\":503,\"message\":\"%.200s\",\"type\":"
                   "\"unavailable_error\"},\"status\":\"loading\",\"percent\":%u}",
                   co->stopping ? "The service has been stopped" : coord_not_ready(co),
                   n > 0 ? 100 * n_serving / n : 0);
    http_x_set_header(x, "Retry-After", "1");
    http_x_reply(x, 503, "application/json; charset=utf-8", body, (size_t)len);
}

static void on_slots(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    char body[160];
    if (unknown_model(co, x, p->model)) return;
    const struct room r = room_of(co);
    int n = snprintf(body, sizeof(body),
                     "{\"total_slots\":%llu,\"free_slots\":%llu,\"available_tokens_length\":%llu}",
                     (unsigned long long)r.total, (unsigned long long)r.free,
                     (unsigned long long)r.tokens);
    http_x_reply(x, 200, "application/json; charset=utf-8", body, (size_t)n);
}

bool coord_serves_anything(const void *co) {
    const struct coordinator *c = co;
    return controller_serves(c) && !c->stopping && !c->stands_by;
}

bool coord_has_model(const void *co, const char *name) {
    return model_is_served(co, name);
}

static void on_grpc_health(void *arg, struct http_x *x, const struct route_params *p) {
    struct coordinator *co = arg;
    (void)p;
    grpc_health_serve(co->grpc_health, x);
}

static void on_load_lora(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    lora_route(arg, x, true);
}

static void on_unload_lora(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    lora_route(arg, x, false);
}

static const struct route routes[] = {
    {PLANE_DATA | PLANE_OPEN, "GET", "/ping", on_ready, 0},
    {PLANE_DATA | PLANE_OPEN, "POST", "/ping", on_ready, PING_BODY},
    {PLANE_DATA, "GET", "/load", on_load, 0},
    {PLANE_DATA, "GET", "/slots", on_llamacpp_slots, 0},
    {PLANE_DATA, "GET", "/v1/config", on_model_config, 0},
    {PLANE_DATA, "POST", "/v1/config/reload", on_model_config, SMALL_BODY},
    {PLANE_DATA, "GET", "/info", on_management_info, 0},
    {PLANE_DATA, "GET", "/v2/models/{m}/getSlotCount", on_slots, 0},
    {PLANE_DATA, "POST", "/v2/models/{m}/stopInfer", on_stop_infer, SMALL_BODY},
    {PLANE_DATA | PLANE_OPEN, "GET", "/health", on_health, 0},
    {PLANE_DATA, "GET", "/health/timed", on_timed, 0},
    {PLANE_DATA, "GET", "/health/timed-{*}", on_timed_n, 0},
    {PLANE_DATA | PLANE_MGMT | PLANE_STATUS | PLANE_OPEN, "GET", "/v1/startup", on_alive, 0},
    {PLANE_DATA | PLANE_MGMT | PLANE_STATUS | PLANE_OPEN, "GET", "/v1/health", on_alive, 0},
    {PLANE_DATA | PLANE_MGMT | PLANE_STATUS | PLANE_OPEN, "GET", "/v2/health/live", on_alive, 0},
    {PLANE_DATA | PLANE_MGMT | PLANE_STATUS | PLANE_OPEN, "GET", "/v1/readiness", on_readiness, 0},
    {PLANE_DATA | PLANE_MGMT | PLANE_STATUS | PLANE_OPEN, "GET", "/v2/health/ready", on_ready, 0},
    {PLANE_DATA | PLANE_MGMT | PLANE_STATUS | PLANE_OPEN, "GET", "/v2/models/{m}/ready",
     on_model_ready, 0},
    {PLANE_DATA | PLANE_OPEN | PLANE_GRPC, "POST", GRPC_HEALTH_PATH, on_grpc_health,
     GRPC_HEALTH_BODY_BYTES},
    GRPC_PROBE_ROWS(on_grpc_health),
    {PLANE_DATA | PLANE_OPEN, "GET", "/openapi.json", on_openapi, 0},
    {PLANE_METRICS, "GET", "/metrics", on_metrics, 0},
    {PLANE_MGMT, "GET", "/v1/status", on_status, 0},
    {PLANE_MGMT, "GET", "/v2/status", on_status, 0},
    {PLANE_MGMT, "GET", "/debug/state", on_state, 0},
    {PLANE_MGMT, "GET", "/v1/alarms", on_alarms, 0},
    {PLANE_MGMT, "GET", JOURNAL_PATH, on_journal, 0},
    {PLANE_MGMT | PLANE_LIMITED, "POST", "/v1/instances/register", on_register, SMALL_BODY},
    {PLANE_MGMT, "POST", "/v1/instances/role", on_switch, SMALL_BODY},
    {PLANE_MGMT, "POST", "/v1/instances/drain", on_drain, SMALL_BODY},
    {PLANE_MGMT, "POST", "/v1/instances/undrain", on_undrain, SMALL_BODY},
    {PLANE_MGMT, "POST", "/v1/instances/leave", on_leave, SMALL_BODY},
    {PLANE_MGMT, "POST", "/v1/reload", on_reload, SMALL_BODY},
    {PLANE_MGMT, "POST", "/v1/load_lora_adapter", on_load_lora, LORA_BODY_BYTES_MAX},
    {PLANE_MGMT, "POST", "/v1/unload_lora_adapter", on_unload_lora, LORA_BODY_BYTES_MAX},
    {0, NULL, NULL, NULL, 0},
};
static const struct route *const tables[] = {
    routes,     mgmt_api_routes,     console_data_routes, web_console_routes,  web_chat_routes,
    log_routes, openapi_docs_routes, grpc_file_routes,    grpc_reflect_routes, coord_facts_routes,
    NULL,
};

static void reply_error(void *arg, struct http_x *x, int status, const char *text) {
    coord_reply_error(arg, x, status, text);
}

static bool next_adapter(const void *arg, int *at, char name[ADAPTER_NAME_BYTES_MAX + 1]) {
    const struct coordinator *co = arg;
    const struct coord_lora *l = co->loras;
    for (int i = 0; i < *at && l != NULL; i++) l = l->next;
    ++*at;
    if (l != NULL) snprintf(name, ADAPTER_NAME_BYTES_MAX + 1, "%s", l->name);
    return l != NULL;
}

static void on_stats(struct coordinator *co, struct http_x *x, const struct api_path *path,
                     const char *model) {
    const char *served = coord_model(co);
    if (served == NULL) {
        reply_not_ready(co, x);
        return;
    }
    stats_reply(x, path, model,
                &(struct stats_served){.stats = relay_stats(co->relays),
                                       .model = served,
                                       .next_adapter = next_adapter,
                                       .reply_error = reply_error,
                                       .arg = co});
}

/* What is no request of the engine any instance can answer. */
static void on_path(void *arg, struct http_x *x, const struct api_path *path, const char *model) {
    struct coordinator *co = arg;
    if (path->work == API_KEPT) {
        kept_serve(co->kept, x, path, model);
    } else if (path->work == API_STATS) {
        on_stats(co, x, path, model);
    } else if (api_is_infer(path)) {
        relay_start(co->relays, x, path, model);
    } else {
        proxy_to_instance(co, x, path);
    }
}

static void reply_unknown_path(void *arg, struct http_x *x, const char *text) {
    coord_reply_error_code(arg, x, 404, "unknown_url", text);
}

/* One that stands by answers probes, and what asks about itself. */
static bool refuses(void *arg, struct http_x *x, const struct route *row) {
    struct coordinator *co = arg;
    const bool of_clients = row == NULL || (row->planes & (PLANE_DATA | PLANE_OPEN)) == PLANE_DATA;
    if (coord_leads(co) || (!of_clients && strcmp(row->method, "GET") == 0) ||
        (row != NULL && (row->planes & PLANE_OPEN) != 0))
        return false;
    if (of_clients)
        ha_stand_by(co, x);
    else
        ha_reply_standby(co, x);
    return true;
}

struct dispatch coord_dispatch(struct coordinator *co) {
    return (struct dispatch){
        .tables = tables,
        .body_bytes_max = coord_conf_body_bytes(&co->conf),
        .cors_origin = co->conf.cors_origin,
        .keys = co->keys,
        .error_style = coord_error_style(co),
        .management_hosts = co->conf.management_hosts,
        .budget = &co->budget,
        .not_found = coord_error_style(co) == ERROR_STYLE_OPENAI ? NULL : "Invalid request",
        .refuses = refuses,
        .data_page = WEB_CHAT,
        .page = WEB_CONSOLE,
        .on_path = on_path,
        .reply_error = reply_error,
        .reply_unknown_path = reply_unknown_path,
        .arg = co};
}
