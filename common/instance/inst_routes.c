/* inst_routes: model information, status, role and stop, and the way of a request to its handler.
 */
#include "common/instance/inst_routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/base/query.h"
#include "common/instance/inst_debug.h"
#include "common/instance/inst_facts.h"
#include "common/instance/inst_gauge.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_lora.h"
#include "common/instance/inst_metrics.h"
#include "common/instance/req_read.h"
#include "common/instance/vector_job.h"
#include "common/net/dispatch.h"
#include "common/net/log_route.h"
#include "common/grpc/grpc_files.h"
#include "common/grpc/grpc_reflect.h"
#include "common/grpc/stats_reply.h"
#include "common/net/model_config.h"
#include "common/net/openapi.h"
#include "common/net/slots.h"
#include "common/net/web_pages.h"
#include "proto/cause.h"
#include "proto/json.h"
#include "proto/json_pull.h"
#include "proto/transcript.h"

#define LOADING "The model is loading"
#define STOPPED "The service has been stopped."

void inst_reply_json(struct http_x *x, int status, char *body) {
    if (body == NULL) {
        inst_reply_wrapped(x, 500, err_text(ERR_NO_MEMORY));
        return;
    }
    http_x_reply(x, status, "application/json", body, strlen(body));
    free(body);
}

void inst_reply_tree(struct http_x *x, struct json_value *o) {
    const char *text = o != NULL ? json_to_text(o, JSON_COMPACT, NULL) : NULL;
    if (text != NULL)
        http_x_reply(x, 200, "application/json", text, strlen(text));
    else
        inst_reply_wrapped(x, 500, err_text(ERR_NO_MEMORY));
    json_put(o);
}

void inst_reply_wrapped(struct http_x *x, int status, const char *text) {
    const bool grpc = api_path_errors(http_x_path(x)) == API_ERRORS_GRPC;
    char *body = api_error_body(grpc ? API_ERRORS_GRPC : API_ERRORS_PLAIN, ERROR_STYLE_MINDIE,
                                &status, text, NULL, NULL);
    if (body == NULL) {
        http_x_reply(x, status, NULL, "", 0);
        return;
    }
    http_x_reply(x, status, "application/json", body, strlen(body));
    free(body);
}

static enum error_style error_style(const struct instance *in) {
    return strcmp(in->conf.error_style, "openai") == 0 ? ERROR_STYLE_OPENAI : ERROR_STYLE_MINDIE;
}

/* An error that is not an inference answer, in the shape of its path. */
static void reply_error_code(struct instance *in, struct http_x *x, int status, const char *code,
                             const char *text) {
    enum error_style style = api_path_style(http_x_path(x), error_style(in));
    char *body = api_error_body(api_path_errors(http_x_path(x)), style, &status, text, NULL, code);
    http_x_reply(x, status, "application/json", body != NULL ? body : "",
                 body != NULL ? strlen(body) : 0);
    free(body);
}

/* How far the model is; clients of llama.cpp know the error. */
static void reply_loading(struct instance *in, struct http_x *x) {
    struct load_state s;
    struct buf b = BUF_INIT;
    http_x_set_header(x, "Retry-After", "1");
    if (api_path_errors(http_x_path(x)) == API_ERRORS_GRPC) {
        inst_reply_wrapped(x, 503, LOADING);
        return;
    }
    buf_puts(&b, "{\"error\":{\"code\":503,\"message\":\"Loading model\",\"type\":"
                 "\"unavailable_error\"},\"status\":\"loading\",");
    if (inst_load_state(&in->loader, &s))
        buf_printf(&b,
                   "\"message\":\"The model is loading\",\"what\":\"%s\",\"percent\":%d,"
                   "\"mb_per_s\":%.0f,\"seconds_left\":%.0f}",
                   s.what, s.percent, s.mb_s, s.seconds_left);
    else
        buf_puts(&b, "\"percent\":0}");
    http_x_reply(x, 503, "application/json", b.data, b.len);
    buf_free(&b);
}

bool inst_guard(struct instance *in, struct http_x *x) {
    if (in->stopping) {
        inst_reply_wrapped(x, 503, STOPPED);
        return true;
    }
    if (!in->loaded) {
        reply_loading(in, x);
        return true;
    }
    return false;
}

/* The same for a path of a client family, whose errors have its shape. */
static bool family_guard(struct instance *in, struct http_x *x, const struct api_path *path) {
    if (!in->stopping && !in->loaded && path->errors == API_ERRORS_LLAMACPP) {
        reply_loading(in, x);
        return true;
    }
    if (!in->stopping && in->loaded) return false;
    http_x_set_header(x, "Retry-After", "1");
    reply_error_code(in, x, 503, in->stopping ? NULL : "model_loading",
                     in->stopping ? STOPPED : LOADING);
    return true;
}

/* ---- model information */
static void on_ping(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    if (!inst_guard(arg, x)) http_x_reply(x, 200, NULL, "", 0);
}

static void on_info(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct api_answer a;
    (void)p;
    if (inst_guard(in, x)) return;
    endpoint_info(in->endpoint, &a);
    instance_reply(x, &a);
}

static void on_slots(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct engine_stats st;
    struct api_answer a;
    if (inst_guard(in, x)) return;
    engine_stats(worker_engine(in->worker), &st);
    endpoint_slots(in->endpoint, p->model, st.slots_free,
                   (int64_t)st.blocks_free * engine_block_tokens(worker_engine(in->worker)), &a);
    instance_reply(x, &a);
}

static void on_load(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct role_load load;
    char body[64];
    (void)p;
    if (inst_guard(in, x)) return;
    req_set_load(in->reqs, ROLE_NONE, &load);
    int n = snprintf(body, sizeof(body), "{\"server_load\":%llu}",
                     (unsigned long long)load.waiting + load.running);
    http_x_reply(x, 200, "application/json", body, (size_t)n);
}

static void on_llamacpp_slots(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct engine_stats st;
    (void)p;
    if (inst_guard(in, x)) return;
    engine_stats(worker_engine(in->worker), &st);
    slots_reply(x, (uint64_t)st.slots_total, (uint64_t)st.slots_free,
                (uint64_t)engine_seq_tokens_max(worker_engine(in->worker)));
}

/* Also while the model is loading. */
static void on_model_config(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    (void)p;
    model_config_reply(x, in->conf.model_name, in->loaded && !in->stopping);
}

static void on_openapi(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    (void)p;
    openapi_reply(x, error_style(in), in->conf.model_name);
}

/* ---- text services: on the text pool, for a megabyte of text takes milliseconds */
struct text_job {
    const struct endpoint *ep;
    struct http_x *x; /* NULL: the client is gone */
    struct text_pool *pool;
    struct pool_job *job;
    atomic_bool cancelled;
    char *body;
    size_t n; /* of it, with what is behind the client's own */
    struct endpoint_ask ask;
    struct kept_service *kept;
    struct kept_ask before; /* what lies before the body */
    char name[MODEL_NAME_BYTES_MAX + 1];
    struct api_answer answer;
};

static void text_job_free(struct text_job *j) {
    heap_give(j->body, j->n + 1);
    kept_ask_free(j->kept, &j->before);
    free(j);
}

static void text_gone(void *arg) {
    struct text_job *j = arg;
    j->x = NULL;
    atomic_store(&j->cancelled, true);
    if (text_pool_drop(j->pool, j->job)) text_job_free(j);
}

static void text_work(void *arg) {
    struct text_job *j = arg;
    endpoint_inform(j->ep, &j->ask, &j->answer);
}

static void text_done(void *arg) {
    struct text_job *j = arg;
    if (j->x != NULL) {
        http_x_on_close(j->x, NULL, NULL);
        instance_reply(j->x, &j->answer);
    } else {
        buf_free(&j->answer.body);
    }
    text_job_free(j);
}

/* In a cluster the coordinator says for whom it asks; else it is whoever asks. */
static const char *text_tenant(const struct instance *in, struct http_x *x) {
    const char *said =
        strcmp(in->conf.infer_mode, "dmi") == 0 ? http_x_header(x, TENANT_HEADER) : NULL;
    return said != NULL && tenant_ok(said) ? said : http_x_tenant(x);
}

/* What lies before the body: in a cluster the coordinator sends it behind the body, else it is kept
 * here. False: x is answered. */
static bool text_before(struct instance *in, struct text_job *j, struct http_x *x) {
    const char *said =
        strcmp(in->conf.infer_mode, "dmi") == 0 ? http_x_header(x, CONTEXT_HEADER) : NULL;
    if (said == NULL) {
        if (!kept_ask_read(in->kept, x, &j->before)) return false;
    } else {
        const size_t n = strtoul(said, NULL, 10);
        if (said[0] < '1' || said[0] > '9' || n > CONTEXT_BYTES_MAX || n > j->n) {
            inst_reply_wrapped(x, 400,
                               "Parameter " CONTEXT_HEADER " must be 1 to the body's bytes");
            return false;
        }
        buf_append(&j->before.context, j->body + j->n - n, n);
        j->ask.n -= n;
        j->body[j->ask.n] = 0;
    }
    j->ask.context = j->before.context.data;
    j->ask.context_len = j->before.context.len;
    if (!j->before.context.failed) return true;
    inst_reply_wrapped(x, 503, err_text(ERR_NO_MEMORY));
    return false;
}

static void text_service(struct instance *in, struct http_x *x, const struct api_path *path,
                         const char *name) {
    struct text_job *j = calloc(1, sizeof(*j));
    size_t n = 0;
    char *copy = j != NULL ? req_body_copy(x, &n) : NULL;
    if (copy == NULL) {
        free(j);
        inst_reply_wrapped(x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    snprintf(j->name, sizeof(j->name), "%s", name);
    j->body = copy;
    j->n = n;
    j->kept = in->kept;
    j->ask = (struct endpoint_ask){
        .path = path, .name = j->name, .body = copy, .n = n, .cancelled = &j->cancelled};
    req_meta_read(&j->ask.meta, x);
    if (path->chained && !text_before(in, j, x)) {
        text_job_free(j);
        return;
    }
    j->ep = in->endpoint;
    j->x = x;
    http_x_on_close(x, text_gone, j);
    j->pool = in->text_pool;
    if (text_pool_start(j->pool, text_tenant(in, x), &j->job, text_work, text_done, j) != ERR_OK) {
        http_x_on_close(x, NULL, NULL);
        http_x_set_header(x, "Retry-After", "1");
        reply_error_code(in, x, 429, NULL, "Too many requests");
        text_job_free(j);
    }
}

/* What has a body may be long. */
static void inform(struct instance *in, struct http_x *x, const struct api_path *path,
                   const char *name) {
    struct endpoint_ask ask = {.path = path, .name = name, .query = http_x_query(x)};
    struct api_answer a;
    if (strcmp(path->method, "POST") == 0) {
        text_service(in, x, path, name);
        return;
    }
    req_meta_read(&ask.meta, x);
    endpoint_inform(in->endpoint, &ask, &a);
    instance_reply(x, &a);
}

/* ---- management */
static void on_config(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    const struct inst_conf *c = &in->conf;
    struct config_msg m = {.max_seq_len = (uint32_t)c->max_seq_len,
                           .max_output_len = (uint32_t)c->max_iter_times,
                           .cache_block_size = (uint32_t)c->cache_block_size,
                           .world_size = (uint32_t)c->world_size,
                           .npu_mem_gb = c->npu_mem_gb,
                           .cpu_mem_gb = c->cpu_mem_gb};
    (void)p;
    memcpy(m.model_name, c->model_name, sizeof(m.model_name));
    memcpy(m.instance_name, c->instance_name, sizeof(m.instance_name));
    if (in->loaded) m.max_seq_len = (uint32_t)engine_seq_tokens_max(worker_engine(in->worker));
    inst_reply_json(x, 200, config_msg_format(&m));
}

static void read_adapters(const struct instance *in, struct status_msg *m) {
    struct lora_info l;
    size_t n_max = (size_t)in->conf.max_loras;
    if (!lora_set_at(in->loras, 0, &l)) return;
    m->adapters = calloc(n_max, sizeof(*m->adapters));
    for (int i = 0; m->adapters != NULL && lora_set_at(in->loras, i, &l); i++) {
        if (l.state != LORA_SERVED || m->n_adapters == n_max) continue;
        struct adapter_status *a = &m->adapters[m->n_adapters++];
        snprintf(a->name, sizeof(a->name), "%s", l.name);
        snprintf(a->path, sizeof(a->path), "%s", l.path);
    }
}

/* The 503 of an instance that is being stopped, with what is left there. */
static void reply_stopping(struct instance *in, struct http_x *x) {
    struct role_load load;
    req_set_load(in->reqs, ROLE_NONE, &load);
    const struct status_msg m = {
        .waiting = load.waiting, .running = load.running, .kv_leases = load.leases};
    inst_reply_json(x, 503, status_msg_format_draining(&m, "The service has been stopped."));
}

/* ?prefix=EPOCH.SEQ: the changes of the prefix cache since a message before. Without it nothing is
 * said of the cache: most who ask do not want to know. */
static void read_prefix(const struct instance *in, struct http_x *x, struct status_msg *m) {
    char text[64], *end;
    const char *at = http_x_query(x);
    if (!query_next(&at, "prefix", text, sizeof(text))) return;
    const uint64_t epoch = strtoull(text, &end, 16);
    const uint64_t seq = *end == '.' ? strtoull(end + 1, NULL, 10) : 0;
    (void)engine_prefix_changes(worker_engine(in->worker), epoch, seq, &m->prefix);
}

static void reply_status(struct instance *in, struct http_x *x, int version) {
    struct engine_stats st;
    struct role_load load;
    struct status_msg m = {0};
    if (version == 2 && in->stopping && in->loaded) {
        reply_stopping(in, x);
        return;
    }
    if (inst_guard(in, x)) return;
    engine_stats(worker_engine(in->worker), &st);
    req_set_load(in->reqs, ROLE_NONE, &load);
    m.role_status = role_ctl_status(in->role_ctl);
    m.role = role_ctl_role(in->role_ctl);
    m.p_percentage = role_ctl_share(in->role_ctl);
    if (m.role == ROLE_MIXED) m.role = ROLE_NONE; /* the reference's word for standard mode */
    m.avail_slots = (uint32_t)st.slots_free;
    m.total_slots = (uint32_t)st.slots_total;
    m.waiting = load.waiting;
    m.running = load.running;
    m.kv_leases = load.leases;
    m.avail_blocks = m.free_blocks = (uint64_t)st.blocks_free;
    m.held = inst_engine_held(in);
    m.embeds_only = engine_model(worker_engine(in->worker))->encoder;
    m.stuck_ms = worker_stuck_ms(in->worker);
    m.total_blocks = (uint64_t)st.blocks_total;
    m.perf = st.perf;
    m.term = role_ctl_term(in->role_ctl);
    m.plan = role_ctl_plan(in->role_ctl);
    m.id = role_ctl_id(in->role_ctl);
    m.drained = role_ctl_drained(in->role_ctl);
    m.listened = in->dresult != NULL && dresult_out_has_listener(in->dresult);
    if (in->kv_plane != NULL) m.n_links = kv_plane_links(in->kv_plane, &m.links);
    read_adapters(in, &m);
    if (version == 2) read_prefix(in, x, &m);
    inst_reply_json(x, 200, status_msg_format(&m, version));
    status_msg_free(&m);
}

static void on_status_v1(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    reply_status(arg, x, 1);
}
static void on_status_v2(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    reply_status(arg, x, 2);
}

static void post_role(struct instance *in, struct http_x *x, int version, const char *word) {
    enum inst_role role = inst_role_parse(word);
    if (role == ROLE_NONE || role == ROLE_MIXED || (role == ROLE_FLEX && version == 2)) {
        http_x_reply(x, 404, NULL, "", 0);
    } else if (!inst_guard(in, x)) {
        role_ctl_post(in->role_ctl, x, version, role);
    }
}

static void on_role_v1(void *arg, struct http_x *x, const struct route_params *p) {
    post_role(arg, x, 1, p->model);
}
static void on_role_v2(void *arg, struct http_x *x, const struct route_params *p) {
    post_role(arg, x, 2, p->model);
}

static void on_stop_service(void *arg, struct http_x *x, const struct route_params *p) {
    (void)p;
    inst_stop_service(arg, x, strcmp(http_x_query(x), "mode=Force") == 0);
}

/* POST .../stopInfer (cluster-api 3.13, inference-api 11.3). */
static bool stop_id_ok(const char *s, size_t n) {
    if (n < 1 || n > CLIENT_ID_BYTES_MAX) return false;
    for (size_t i = 0; i < n; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", s[i]) ==
                NULL ||
            s[i] == 0)
            return false;
    return true;
}

/* The attempt that a coordinator means; clients of a standard instance name none. */
static uint32_t epoch_of(struct http_x *x) {
    const char *s = http_x_header(x, "req-epoch");
    char *end;
    if (s == NULL || s[0] < '0' || s[0] > '9') return UINT32_MAX;
    const unsigned long long v = strtoull(s, &end, 10);
    return *end == 0 && v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

static void on_stop_infer(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    struct api_answer a;
    const char *body;
    char id[CLIENT_ID_BYTES_MAX + 1];
    size_t n, id_len = 0;
    /* In a cluster the coordinator asks, for a client whose request it is or for itself. */
    const char *tenant = strcmp(in->conf.infer_mode, "dmi") == 0 ? http_x_header(x, TENANT_HEADER)
                                                                 : http_x_tenant(x);
    if (!in->loaded) { /* a service that stops still lets go of what it is told to */
        http_x_reply(x, 503, NULL, "", 0);
        return;
    }
    if (!endpoint_has_model(in->endpoint, p->model)) {
        endpoint_model_not_found(in->endpoint, p->model, &a);
        instance_reply(x, &a);
        return;
    }
    body = http_x_body(x, &n);
    enum json_found found = json_pull_find(body, n, "id", id, sizeof(id), &id_len);
    if (found == JSON_FOUND_NO_OBJECT) {
        inst_reply_wrapped(x, 422, "Failed to parse context to json body.");
    } else if (found == JSON_FOUND_NONE) {
        inst_reply_wrapped(x, 422, "Not found id.");
    } else if (found == JSON_FOUND_TOO_LONG || !stop_id_ok(id, id_len)) {
        inst_reply_wrapped(x, 422,
                           "The id can contain only digits, letters, underscores(_), hyphens(-) "
                           "and no more than 256 words in length.");
    } else if (!req_set_stop(in->reqs, id, tenant, epoch_of(x))) {
        char text[CLIENT_ID_BYTES_MAX + 64] = "Stop request id ";
        strcat(text, id);
        strcat(text, " not found.");
        inst_reply_wrapped(x, 404, text);
    } else {
        const uint32_t epoch = epoch_of(x);
        if (http_x_header(x, KEEP_KV_HEADER) != NULL && epoch != UINT32_MAX)
            kv_lends_keep(in->lends, id, epoch); /* it goes on elsewhere */
        http_x_reply(x, 200, "application/json", body, n);
    }
}

static void on_dresult(void *arg, struct http_x *x, const struct route_params *p) {
    struct instance *in = arg;
    (void)p;
    if (strcmp(in->conf.infer_mode, "dmi") != 0) {
        inst_reply_wrapped(x, 400, "Non DMI does not support dresult request");
    } else if (!in->loaded) {
        http_x_reply(x, 503, NULL, "", 0);
    } else if ((role_ctl_can(in->role_ctl) & CAN_DECODE) == 0 && !dresult_out_is_watch(x)) {
        char text[96] = "Only the Decode node supports dresult but you send to ";
        strcat(text, inst_role_name(role_ctl_role(in->role_ctl)));
        inst_reply_wrapped(x, 400, text);
    } else { /* while the service stops too: its running requests end on this stream */
        role_ctl_listen(in->role_ctl, x);
    }
}

/* As SIGHUP. */
static void on_reload(void *arg, struct http_x *x, const struct route_params *p) {
    static const char ok[] = "{\"result\":\"ok\"}";
    struct instance *in = arg;
    (void)p;
    log_info("manage", "event=reload");
    cred_watch_now(in->creds);
    http_x_reply(x, 200, "application/json; charset=utf-8", ok, sizeof(ok) - 1);
}

enum { SMALL_BODY = 1 << 20, PING_BODY = 4096 };

const struct route inst_info_routes[] = {
    {PLANE_DATA, "POST", "/v2/models/{m}/stopInfer", on_stop_infer, SMALL_BODY},
    {PLANE_DATA, "GET", "/dresult", on_dresult, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/openapi.json", on_openapi, 0},
    {PLANE_DATA | PLANE_OPEN, "GET", "/ping", on_ping, 0},
    {PLANE_DATA | PLANE_OPEN, "POST", "/ping", on_ping, PING_BODY},
    {PLANE_DATA, "GET", "/load", on_load, 0},
    {PLANE_DATA, "GET", "/slots", on_llamacpp_slots, 0},
    {PLANE_MGMT | PLANE_DATA, "GET", "/info", on_info, 0},
    {PLANE_MGMT | PLANE_DATA, "GET", "/v2/models/{m}/getSlotCount", on_slots, 0},
    {PLANE_MGMT, "GET", "/stopService", on_stop_service, 0},
    {PLANE_MGMT, "GET", "/v1/config", on_config, 0}, /* before OpenVINO's, on a shared port */
    {PLANE_DATA, "GET", "/v1/config", on_model_config, 0},
    {PLANE_DATA, "POST", "/v1/config/reload", on_model_config, SMALL_BODY},
    {PLANE_MGMT, "GET", "/v1/status", on_status_v1, 0},
    {PLANE_MGMT, "GET", "/v2/status", on_status_v2, 0},
    {PLANE_MGMT, "POST", "/v1/reload", on_reload, PING_BODY},
    {PLANE_MGMT, "POST", "/v1/role/{m}", on_role_v1, SMALL_BODY},
    {PLANE_MGMT, "POST", "/v2/role/{m}", on_role_v2, SMALL_BODY},
    {0, NULL, NULL, NULL, 0},
};

/* ---- dispatch */
static void reply_error(void *arg, struct http_x *x, int status, const char *text) {
    reply_error_code(arg, x, status, NULL, text);
}

static bool next_adapter(const void *arg, int *at, char name[ADAPTER_NAME_BYTES_MAX + 1]) {
    const struct instance *in = arg;
    struct lora_info l;
    while (lora_set_at(in->loras, (*at)++, &l)) {
        if (l.state != LORA_SERVED) continue;
        memcpy(name, l.name, sizeof(l.name));
        return true;
    }
    return false;
}

static void on_stats(struct instance *in, struct http_x *x, const struct api_path *path,
                     const char *model) {
    const struct stats_served served = {.stats = req_meters_stats(instance_meters(in)),
                                        .model = in->conf.model_name,
                                        .next_adapter = next_adapter,
                                        .reply_error = reply_error,
                                        .arg = in};
    if (!family_guard(in, x, path)) stats_reply(x, path, model, &served);
}

static void on_path(void *arg, struct http_x *x, const struct api_path *path, const char *model) {
    struct instance *in = arg;
    if (path->work == API_KEPT) {
        kept_serve(in->kept, x, path, model);
        return;
    }
    if (path->work == API_STATS) {
        on_stats(in, x, path, model);
        return;
    }
    if (path->vectors != VECTORS_NONE) {
        if (!family_guard(in, x, path)) vector_job_start(in, x, path, text_tenant(in, x));
        return;
    }
    if (!api_is_infer(path)) {
        if (!family_guard(in, x, path)) inform(in, x, path, model);
        return;
    }
    if (!in->loaded) {
        req_meters_refused(instance_meters(in));
        (void)family_guard(in, x, path);
        return;
    }
    if (in->stopping) {
        req_meters_refused(instance_meters(in));
        http_x_set_header(x, CAUSE_HEADER, cause_name(CAUSE_P_NOT_SERVING));
        http_x_set_header(x, "Retry-After", "1");
        instance_reply_error(in, x, path, 503, "The service has been stopped");
    } else if (!role_ctl_is_current(in->role_ctl, x)) {
        req_meters_refused(instance_meters(in));
        http_x_set_header(x, CAUSE_HEADER, cause_name(CAUSE_STOPPING));
        instance_reply_error(in, x, path, 409, "Another coordinator leads");
    } else if (!role_ctl_request(in->role_ctl, x, path, model)) {
        req_meters_refused(instance_meters(in));
        http_x_set_header(x, CAUSE_HEADER, cause_name(CAUSE_P_NOT_SERVING));
        http_x_set_header(x, "Retry-After", "1");
        instance_reply_error(
            in, x, path, 503,
            "The server cannot process the inference request due to an unknown status. ");
    }
}

static void reply_unknown_path(void *arg, struct http_x *x, const char *text) {
    reply_error_code(arg, x, 404, "unknown_url", text);
}

struct dispatch inst_dispatch(struct instance *in) {
    static const struct route *const tables[] = {
        inst_info_routes,  inst_health_routes,
        inst_lora_routes,  inst_metrics_routes,
        inst_fault_routes, openapi_docs_routes,
        grpc_file_routes,  grpc_reflect_routes,
        web_chat_routes,   log_routes,
        inst_facts_routes, inst_debug_routes,
        inst_gauge_routes, NULL,
    };
    bool split = strcmp(in->conf.infer_mode, "dmi") == 0;
    return (struct dispatch){
        .tables = tables,
        .body_bytes_max = (size_t)in->conf.request_mib_max << 20,
        .beside_bytes_max = split ? TRANSCRIPT_BYTES_MAX + CONTEXT_BYTES_MAX : 0,
        .cors_origin = in->conf.cors_origin,
        .keys = in->keys,
        .error_style = error_style(in),
        .management_hosts = in->conf.management_hosts,
        .budget = &in->budget,
        .passed_on = split,
        .data_page = split ? NULL : WEB_CHAT,
        .not_found =
            error_style(in) == ERROR_STYLE_OPENAI ? NULL : "The requested path does not exist.",
        .on_path = on_path,
        .reply_error = reply_error,
        .reply_unknown_path = reply_unknown_path,
        .arg = in};
}
