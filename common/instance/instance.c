/* instance: opens the parts in order, runs the loop, closes them in reverse. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/base/entropy.h"
#include "common/base/fds.h"
#include "common/base/build.h"
#include "common/base/daemon_args.h"
#include "common/base/log.h"
#include "common/engine/kernels.h"
#include "common/instance/inst_internal.h"
#include "common/instance/inst_links.h"
#include "common/instance/inst_lora.h"
#include "common/instance/inst_metrics.h"
#include "common/instance/inst_facts.h"
#include "common/instance/inst_inspect.h"
#include "common/instance/inst_measure.h"
#include "common/instance/inst_pack.h"
#include "common/instance/inst_routes.h"
#include "common/net/access_log.h"
#include "common/net/http_gate.h"
#include "common/net/service.h"
#include "common/net/log_route.h"

enum {
    CONTROL_CONNS_MAX = 128, /* of each plane but the business plane */
    /* Descriptors that clients of the business plane cannot have: the other planes' connections,
     * KV links and their rendezvous, model files, threads and the loop's own. */
    FDS_RESERVED = (LISTENERS_MAX - 1) * CONTROL_CONNS_MAX + 1024,
};

struct loop *instance_loop(struct instance *in) {
    return in->loop;
}
const struct inst_conf *instance_conf(const struct instance *in) {
    return &in->conf;
}
const struct endpoint *instance_endpoint(const struct instance *in) {
    return in->endpoint;
}
const struct tokenizer *instance_tokenizer(const struct instance *in) {
    return in->tokenizer;
}
struct worker *instance_worker(struct instance *in) {
    return in->worker;
}
struct text_pool *instance_text_pool(struct instance *in) {
    return in->text_pool;
}
struct kv_plane *instance_kv_plane(struct instance *in) {
    return in->kv_plane;
}
struct dresult_out *instance_dresult(struct instance *in) {
    return in->dresult;
}
struct kept_service *instance_kept(struct instance *in) {
    return in->kept;
}

struct req_meters *instance_meters(struct instance *in) {
    return inst_metrics_requests(in->metrics);
}
unsigned instance_can(const struct instance *in) {
    return role_ctl_can(in->role_ctl);
}
enum err instance_go_on(struct instance *in, struct infer_req **req, struct req_seq **seq,
                        struct kv_commit *c, struct errbuf *eb) {
    return role_ctl_take(in->role_ctl, req, seq, c, eb);
}
struct req_set *instance_reqs(const struct instance *in) {
    return in->reqs;
}
uint32_t instance_id(const struct instance *in) {
    return role_ctl_id(in->role_ctl);
}
bool instance_stopping(const struct instance *in) {
    return in->stopping;
}
bool instance_leaving(const struct instance *in) {
    return in->stopping || role_ctl_drained(in->role_ctl);
}

uint64_t instance_random(struct instance *in) {
    uint64_t v;
    (void)in;
    return entropy_get(&v, sizeof(v)) ? v : clock_unix_us() * 0x9e3779b97f4a7c15u;
}

bool instance_next_req_id(struct instance *in, char out[64]) {
    uint64_t id;
    (void)in;
    do {
        if (!entropy_get(&id, sizeof(id))) return false;
        id >>= 1;
    } while (id == 0);
    snprintf(out, 64, "endpoint_common_%llu", (unsigned long long)id);
    return true;
}

void instance_reply(struct http_x *x, struct api_answer *a) {
    if (a->body.failed) {
        http_x_reply(x, 500, NULL, "", 0);
    } else {
        http_x_reply(x, a->status, a->content_type, a->body.data != NULL ? a->body.data : "",
                     a->body.len);
    }
    buf_free(&a->body);
}

void instance_reply_error(struct instance *in, struct http_x *x, const struct api_path *path,
                          int status, const char *text) {
    struct api_answer a = {0};
    endpoint_error(in->endpoint, path, status, text, &a);
    instance_reply(x, &a);
}

/* ---- listeners */
static enum err open_listener(struct instance *in, const char *ip, int64_t port, unsigned planes,
                              enum inst_plane tls, struct errbuf *eb) {
    const struct inst_conf *c = &in->conf;
    struct dispatch_listener *l = &in->listeners[in->n_listeners];
    bool business = (planes & PLANE_DATA) != 0;
    struct http_server_opts o = {
        .host = ip,
        .port = (uint16_t)port,
        .conns_max = business ? in->conns_max : CONTROL_CONNS_MAX,
        .control = !business,
        .head_bytes_max = HTTP_HEAD_BYTES_MAX,
        .idle_ms = 60000,
        .read_ms = 60000,
        .write_ms = 600000,
        .stream_pending_max = (size_t)c->stream_pending_mib << 20,
        .tls = in->tls.plane[tls],
    };
    http_gate_options(&o, in->gate, &c->limits);
    if (business) access_log_watch(in->access_log, &o);
    const struct dispatch d = inst_dispatch(in);
    enum err e = dispatch_listen(l, in->loop, &d, planes, &o, eb);
    if (e == ERR_OK) in->n_listeners++;
    return e;
}

/* Planes with the same address and port share a socket, and the TLS block of its first one
 * (cluster-api 1.3). */
static enum err open_listeners(struct instance *in, struct errbuf *eb) {
    const struct inst_conf *c = &in->conf;
    bool business_is_mgmt = inst_management_is_business(c);
    bool business_is_metrics = inst_metrics_is_business(c);
    bool mgmt_is_metrics = inst_metrics_is_management(c);
    unsigned planes = PLANE_DATA | (business_is_mgmt ? PLANE_MGMT : 0) |
                      (business_is_metrics ? PLANE_METRICS : 0);
    enum err e = open_listener(in, c->ip, c->port, planes, INST_PLANE_BUSINESS, eb);
    if (e == ERR_OK && !business_is_mgmt)
        e = open_listener(in, c->management_ip, c->management_port,
                          PLANE_MGMT |
                              (mgmt_is_metrics && !business_is_metrics ? PLANE_METRICS : 0),
                          INST_PLANE_MANAGEMENT, eb);
    if (e == ERR_OK && !business_is_metrics && !mgmt_is_metrics)
        e = open_listener(in, c->management_ip, c->metrics_port, PLANE_METRICS, INST_PLANE_METRICS,
                          eb);
    return e;
}

/* ---- life */
static void fail_start(struct instance *in, const struct errbuf *eb) {
    log_error("start", "%s", eb->text);
    in->exit_status = 1;
    loop_stop(in->loop);
}

static enum err open_parts(struct instance *in, struct errbuf *eb) {
    struct inst_loader *l = &in->loader;
    const struct inst_conf *c = &in->conf;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = c->tokenizer_threads < cores ? c->tokenizer_threads : cores;
    in->tokenizer = l->tokenizer;
    in->endpoint = l->endpoint;
    l->tokenizer = NULL;
    l->endpoint = NULL;
    inst_load_check(in);
    enum err e = worker_open(&in->worker, in->loop, &l->engine, (size_t)c->queue_max * 2 + 1024);
    if (e == ERR_OK) {
        worker_set_loras(in->worker, in->loras);
        worker_meter_steps(in->worker, inst_metrics_steps(in->metrics));
        worker_share_prefixes(in->worker, strcmp(c->prefix_cache_scope, "all") == 0);
        worker_calibrate(in->worker);
    }
    if (e == ERR_OK)
        e = text_pool_open(&in->text_pool, in->loop, (unsigned)(threads < 1 ? 1 : threads),
                           (size_t)c->link_num_max * 2);
    if (e != ERR_OK)
        return err_set(eb, e, "cannot start the threads of the instance: %s", err_text(e));
    if (strcmp(c->infer_mode, "dmi") != 0) {
        e = role_ctl_start_alone(in->role_ctl);
        return e == ERR_OK ? e : err_set(eb, e, "cannot start standard mode: %s", err_text(e));
    }
    if ((e = dresult_out_create(&in->dresult, in->loop, &in->budget)) != ERR_OK)
        return err_set(eb, e, "cannot start /dresult: %s", err_text(e));
    return inst_links_open(in, eb);
}

void inst_on_loaded(struct instance *in) {
    struct inst_loader *l = &in->loader;
    struct errbuf eb = {0};
    inst_load_wait(in);
    if (in->closing || atomic_load(&l->cancel)) return;
    if (l->result != ERR_OK) {
        fail_start(in, &l->eb);
        return;
    }
    if (open_parts(in, &eb) != ERR_OK) {
        fail_start(in, &eb);
        return;
    }
    in->loaded = true;
    const struct model_info *m = engine_model(worker_engine(in->worker));
    log_info("start",
             "event=ready mode=%s model=%s family=%s params=%llu weights=%s kv=%s kernels=%s "
             "weights_from=\"%s\" huge_mib=%llu max_seq_len=%d",
             in->conf.infer_mode, in->conf.model_name, m->family, (unsigned long long)m->n_params,
             dtype_name(m->weight_dtype), dtype_name(m->kv_dtype), m->kernels, m->weights_from,
             (unsigned long long)(mem_huge_bytes() >> 20),
             engine_seq_tokens_max(worker_engine(in->worker)));
    if (inst_register_start(in) != ERR_OK) log_warn("register", "event=not_started");
}

static void on_term(void *arg) {
    struct instance *in = arg;
    inst_stop_by_signal(in);
    service_look(in->service);
}

/* Certificates and API keys anew. What is wrong leaves what is in force as it is. */
static void on_hup(void *arg) {
    struct instance *in = arg;
    cred_watch_now(in->creds);
    service_reloaded(in->service);
}

/* For the service manager: ready when the model is loaded, whatever the cluster makes of it. */
static enum service_state how_it_stands(void *arg, char text[SERVICE_TEXT_BYTES]) {
    struct instance *in = arg;
    struct load_state l;
    struct role_load load;
    if (in->stopping || in->closing) {
        req_set_load(in->reqs, ROLE_NONE, &load);
        snprintf(text, SERVICE_TEXT_BYTES, "stopping: %u requests are left",
                 load.waiting + load.running + load.leases);
        return SERVICE_STOPPING;
    }
    if (!in->loaded) {
        if (inst_load_state(&in->loader, &l))
            snprintf(text, SERVICE_TEXT_BYTES, "loading %s: %d%%", l.what, l.percent);
        return SERVICE_STARTING;
    }
    snprintf(text, SERVICE_TEXT_BYTES, "%s: serves %.64s",
             inst_role_name(role_ctl_role(in->role_ctl)), in->conf.model_name);
    return SERVICE_READY;
}

static unsigned conns_wanted(const struct inst_conf *c) {
    return c->limits.conns > 0 ? (unsigned)c->limits.conns : 3 * (unsigned)c->link_num_max;
}

uint64_t inst_descriptors_wanted(const struct inst_conf *c) {
    return (uint64_t)conns_wanted(c) + FDS_RESERVED;
}

/* Descriptors for the connections of the business plane, beside those of everything else. */
static void plan_descriptors(struct instance *in) {
    const unsigned conns = conns_wanted(&in->conf);
    const uint64_t want = inst_descriptors_wanted(&in->conf), limit = fds_raise(want);
    in->conns_max = fds_for_clients(limit, FDS_RESERVED, conns, 0);
    if (in->conns_max == 0) in->conns_max = 1;
    if (in->conns_max < conns)
        log_warn("start", "event=few_descriptors limit=%llu wanted=%llu connections=%u",
                 (unsigned long long)limit, (unsigned long long)want, in->conns_max);
}

static void fill_budget(struct instance *in) {
    budget_init(&in->budget);
    http_gate_limits(&in->budget, &in->conf.limits, in->conns_max, conns_wanted(&in->conf),
                     (LISTENERS_MAX - 1) * CONTROL_CONNS_MAX);
    const int64_t answers = in->conf.limits.answers_mib;
    budget_limit_set(&in->budget, BUDGET_ANSWER_BYTES,
                     answers > 0 ? (uint64_t)answers << 20 : budget_bodies_default());
    budget_limit_set(&in->budget, BUDGET_TEMPLATE_TIME, (uint64_t)in->conf.template_ms);
    budget_limit_set(&in->budget, BUDGET_GUIDE_COMPILE_TIME, (uint64_t)in->conf.guide_compile_ms);
    budget_limit_set(&in->budget, BUDGET_GUIDE_STEP, (uint64_t)in->conf.guide_step_ms);
}

static enum err open_kept(struct instance *in, struct errbuf *eb) {
    const char *dir = in->conf.responses_dir;
    char path[2 * CONF_PATH_BYTES];
    const bool beside = dir[0] != 0 && dir[0] != '/';
    snprintf(path, sizeof(path), "%s%s%s", beside ? in->conf.dir : "", beside ? "/" : "", dir);
    return kept_service_create(&in->kept, in->loop, &in->conf.limits, path, &in->budget, eb);
}

static enum err instance_open(struct instance *in, struct errbuf *eb) {
    plan_descriptors(in);
    fill_budget(in);
    inst_place(in); /* before any thread is there */
    enum err e = loop_create(&in->loop);
    if (e == ERR_OK) e = http_gate_create(&in->gate, in->loop, &in->budget);
    if (e == ERR_OK) e = inst_metrics_create(&in->metrics, in);
    if (e == ERR_OK) e = req_set_create(&in->reqs, in);
    if (e == ERR_OK)
        e = grpc_health_create(&in->grpc_health, in->loop, inst_is_well, inst_has_model, in);
    if (e == ERR_OK) e = role_ctl_create(&in->role_ctl, in, in->roles);
    if (e == ERR_OK) e = loop_on_signal(in->loop, SIGTERM, on_term, in);
    if (e == ERR_OK) e = loop_on_signal(in->loop, SIGINT, on_term, in);
    if (e == ERR_OK) e = loop_on_signal(in->loop, SIGHUP, on_hup, in);
    if (e == ERR_OK) e = cred_watch_start(in->creds, CRED_LOOK_MS);
    if (e != ERR_OK) return err_set(eb, e, "cannot create the event loop: %s", err_text(e));
    if ((e = open_kept(in, eb)) != ERR_OK) return e;
    if ((e = inst_lora_open(in)) != ERR_OK)
        return err_set(eb, e, "cannot start the thread that loads adapters: %s", err_text(e));
    e = access_log_open(&in->access_log, "BatonConfig.accessLog", in->conf.dir, in->conf.access_log,
                        eb);
    if (e != ERR_OK) return e;
    if ((e = open_listeners(in, eb)) != ERR_OK) return e;
    if ((e = inst_load_start(in)) != ERR_OK)
        return err_set(eb, e, "cannot start loading: %s", err_text(e));
    return service_start(&in->service, in->loop, how_it_stands, in, eb);
}

static void instance_close(struct instance *in) {
    in->closing = true;
    service_stop(&in->service);
    inst_stop_bound();
    inst_register_stop(in);
    inst_stop_fini(in);
    inst_load_wait(in);
    grpc_health_destroy(&in->grpc_health);
    role_ctl_destroy(&in->role_ctl); /* answers what is left, so it goes before the listeners */
    for (int i = 0; i < in->n_listeners; i++) http_server_close(&in->listeners[i].server);
    kept_service_destroy(&in->kept);
    inst_gauge_fini(in); /* it looks at the engine */
    inst_links_close(in);
    text_pool_close(&in->text_pool);
    inst_lora_stop(in);
    worker_close(&in->worker);
    req_set_destroy(&in->reqs);
    inst_health_fini(in);
    dresult_out_destroy(&in->dresult);
    endpoint_destroy(&in->endpoint);
    endpoint_destroy(&in->loader.endpoint);
    engine_close(&in->loader.engine);
    tokenizer_free(&in->tokenizer);
    tokenizer_free(&in->loader.tokenizer);
    inst_lora_fini(in);
    inst_metrics_destroy(&in->metrics);
    loop_destroy(&in->loop);
    access_log_close(&in->access_log);
    http_gate_destroy(&in->gate);
}

static int run(struct instance *in) {
    struct errbuf eb = {0};
    if (instance_open(in, &eb) != ERR_OK) {
        log_error("start", "%s", eb.text);
        in->exit_status = 1;
    } else {
        log_info("start",
                 "event=listening ip=%s port=%u management_port=%lld mode=%s natural_role=%s",
                 in->conf.ip, http_server_port(in->listeners[0].server),
                 (long long)in->conf.management_port, in->conf.infer_mode,
                 inst_role_name(in->first_role));
        loop_run(in->loop);
    }
    int status = in->exit_status;
    instance_close(in);
    return status;
}

/* The files that the configuration names: certificates, keys, API keys. */
static enum err open_files(struct instance *in, struct errbuf *eb) {
    const struct inst_conf *c = &in->conf;
    enum err e = inst_tls_open(&in->tls, c, eb);
    if (e == ERR_OK && c->api_keys_file[0] != 0)
        e = api_keys_open(&in->keys, "BatonConfig.apiKeysFile", c->dir, c->api_keys_file, eb);
    if (e != ERR_OK) return e;
    if ((in->creds = cred_watch_create("instance")) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory to watch certificates and keys");
    inst_tls_watch(&in->tls, in->creds);
    cred_watch_keys(in->creds, in->keys);
    return ERR_OK;
}

/* The kernel sets that the compiler made, whether this processor has them or not. */
static void print_version(enum inst_role role) {
    const struct kernels *const sets[] = {kernels_ref(),        kernels_avx2(),
                                          kernels_avx512(),     kernels_avx512vnni(),
                                          kernels_avx512bf16(), kernels_amx()};
    struct buf names = BUF_INIT;
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        if (sets[i] != NULL) buf_printf(&names, "%s%s", i > 0 ? " " : "", sets[i]->name);
    build_print(stdout, inst_role_name(role), names.data);
    buf_free(&names);
}

static const struct cli_option options[] = {
    {"--config", "-c", "FILE", "configuration of the instance (docs/configuration.md)"},
    DAEMON_OPTIONS,
    {"--pack-weights", NULL, "MODEL",
     "as the first argument: packs a model's weights for later starts, and ends (batonctl "
     "quantize)"},
    {"--inspect", NULL, "MODEL",
     "as the first argument: says what a model is and needs, and ends (batonctl inspect)"},
    {"--measure", NULL, "MODEL",
     "as the first argument: measures this machine with a model, and ends (batonctl advise)"},
    {NULL, NULL, NULL, NULL},
};

/* For the hours that it is valid, from now on. */
static void set_dynamic_level(const struct inst_conf *c) {
    log_route_minutes((unsigned)c->log_level_valid_hours * 60);
    if (c->log_level[0] == 0) return;
    const struct log_rule rule = {.level = (enum log_level)log_level_parse(c->log_level),
                                  .until_ms =
                                      clock_ms() + (uint64_t)c->log_level_valid_hours * 3600000};
    log_rule_set(&rule); /* the first one has room */
}

static int start(struct instance *in, const char *name, const struct daemon_args *a) {
    struct errbuf eb = {0};
    log_init(LOG_INFO, STDERR_FILENO);
    if (inst_conf_load(&in->conf, a->config, a->layers, &eb) != ERR_OK) {
        fprintf(stderr, "%s: %s\n", name, eb.text);
        return 2;
    }
    if (a->what == DAEMON_FACTS) return inst_facts_print(in);
    if (open_files(in, &eb) != ERR_OK) {
        fprintf(stderr, "%s: %s%s%s\n", name, a->config != NULL ? a->config : "",
                a->config != NULL ? ": " : "", eb.text);
        return 2;
    }
    if (a->what != DAEMON_RUN) {
        struct buf out = BUF_INIT;
        inst_conf_print(&out, &in->conf);
        const int status = daemon_args_show(a, &out);
        buf_free(&out);
        return status;
    }
    log_init((enum log_level)log_level_parse(in->conf.log_start_level), STDERR_FILENO);
    set_dynamic_level(&in->conf);
    log_start();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file over RLIMIT_FSIZE is an error of its write */
    return run(in);
}

int instance_main(int argc, char **argv, const struct role_ops *const *roles,
                  enum inst_role first_role) {
    const struct daemon_cli cli = {
        inst_role_name(first_role),
        "Serves a model alone, or as a prefill or decode instance of a cluster.", options,
        inst_conf_names()};
    struct daemon_args args;
    kernels_openblas_environment();
    if (argc > 1 && strcmp(argv[1], "--pack-weights") == 0) return inst_pack(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "--inspect") == 0) return inst_inspect(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "--measure") == 0) return inst_measure(argc - 2, argv + 2);
    daemon_args_read(&args, &cli, argc, argv);
    int status = args.status;
    if (args.what == DAEMON_VERSION) print_version(first_role);
    struct instance *in = args.what < DAEMON_VERSION ? calloc(1, sizeof(*in)) : NULL;
    if (in != NULL) {
        in->roles = roles;
        in->first_role = first_role;
        status = start(in, cli.name, &args);
        cred_watch_destroy(&in->creds);
        inst_tls_close(&in->tls);
        api_keys_close(&in->keys);
        free(in);
    } else if (args.what < DAEMON_VERSION) {
        fprintf(stderr, "%s: out of memory\n", cli.name);
        status = 1;
    }
    daemon_args_free(&args);
    return status;
}
