/* main of the coordinator: options, configuration, listeners, loop, graceful end. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/grpc/grpc_health.h"
#include "common/base/clock.h"
#include "common/base/fds.h"
#include "common/base/build.h"
#include "common/base/daemon_args.h"
#include "common/base/log.h"
#include "common/net/http_gate.h"
#include "common/net/http_server.h"
#include "common/net/kept.h"
#include "common/net/router.h"
#include "common/net/access_log.h"
#include "coordinator/alarm_send.h"
#include "coordinator/otlp.h"
#include "coordinator/alarms.h"
#include "coordinator/console.h"
#include "coordinator/coord_metrics.h"
#include "common/net/service.h"
#include "coordinator/coordinator.h"
#include "coordinator/coord_facts.h"
#include "coordinator/ha.h"
#include "coordinator/journal_feed.h"
#include "coordinator/journal_follow.h"
#include "coordinator/lora.h"
#include "coordinator/recorder.h"
#include "coordinator/relay.h"

enum {
    STOP_POLL_MS = 50,
    CONTROL_CONNS_MAX = 128, /* of each plane but the user plane */
    TLS_CONNS_DEFAULT = 8192,
    /* Descriptors that clients of the user plane cannot have: the other planes' connections, calls
     * to instances (poll, metrics, /dresult: three each), files and the loop's own. */
    FDS_RESERVED = (LISTENERS_MAX - 1) * CONTROL_CONNS_MAX + 640,
};

/* ---- listeners */
static enum err open_listener(struct coordinator *co, const char *ip, int64_t port, unsigned planes,
                              enum coord_block tls, struct errbuf *eb) {
    const struct coord_conf *c = &co->conf;
    for (int i = 0; i < co->n_listeners;
         i++) { /* planes on one address and port share its socket, and its TLS block */
        if (http_server_port(co->listeners[i].server) != port ||
            (strcmp(ip, c->predict_ip) != 0 && i == 0))
            continue;
        co->listeners[i].planes |= planes;
        return ERR_OK;
    }
    struct dispatch_listener *l = &co->listeners[co->n_listeners];
    unsigned idle = c->keep_alive_s > 0 ? (unsigned)c->keep_alive_s * 1000 : 0,
             io = (unsigned)c->http_timeout_s * 1000;
    bool user = (planes & PLANE_DATA) != 0;
    struct http_server_opts o = {
        .host = ip,
        .port = (uint16_t)port,
        .name = c->server_name,
        .conns_max = user ? co->conns_max : CONTROL_CONNS_MAX,
        .control = !user,
        .requests_per_conn_max = user ? (unsigned)c->requests_max : 0,
        .head_bytes_max = HTTP_HEAD_BYTES_MAX,
        .idle_ms = idle,
        .read_ms = io,
        .write_ms = io,
        .stream_pending_max = (size_t)c->relay_pending_mib << 20,
        .tls = co->tls.block[tls],
    };
    http_gate_options(&o, co->gate, &c->limits);
    if (user) access_log_watch(co->access_log, &o);
    const struct dispatch d = coord_dispatch(co);
    enum err e = dispatch_listen(l, co->loop, &d, planes, &o, eb);
    if (e == ERR_OK) co->n_listeners++;
    return e;
}

static enum err open_listeners(struct coordinator *co, struct errbuf *eb) {
    const struct coord_conf *c = &co->conf;
    const struct {
        const char *ip;
        int64_t port;
        unsigned planes;
        enum coord_block tls;
    } planes[] = {
        {c->predict_ip, c->predict_port, PLANE_DATA, BLOCK_REQUEST_SERVER},
        {c->manage_ip, c->manage_port, PLANE_MGMT, BLOCK_CONTROLLER_SERVER},
        {c->manage_ip, c->status_port, PLANE_STATUS, BLOCK_STATUS},
        {c->manage_ip, c->external_port, PLANE_METRICS, BLOCK_EXTERNAL},
    };
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < sizeof(planes) / sizeof(planes[0]); i++)
        e = open_listener(co, planes[i].ip, planes[i].port, planes[i].planes, planes[i].tls, eb);
    return e;
}

/* ---- life */
/* The lead is given away: what is passed on to the next one goes on until it ends. */
static void on_left(void *arg) {
    struct coordinator *co = arg;
    co->left = true;
    if (ha_handed_on(co) == 0) loop_stop(co->loop);
}

/* Others can go on with all that runs: it ends here, and is told to them before the lead is. */
static void hand_on(struct coordinator *co) {
    if (co->handed || !ha_can_hand_on(co)) return;
    co->handed = true;
    struct relay_counts n;
    relay_counts(co->relays, &n);
    log_info("stop", "event=handed_on requests=%" PRIu64, n.in_flight);
    relay_abort_all(co->relays, 503, "The service has been stopped.");
}

static void on_stop_poll(void *arg) {
    struct coordinator *co = arg;
    const bool late = clock_ms() >= co->stop_until_ms;
    struct relay_counts n;
    if (co->left) {
        if (ha_handed_on(co) == 0 || late) loop_stop(co->loop);
        return;
    }
    if (co->leaving) return;
    if (co->ha != NULL) hand_on(co);
    relay_counts(co->relays, &n);
    if (n.in_flight > 0 && !late) return;
    if (co->feed != NULL && journal_feed_pending(co->feed) > 0 && !late) return;
    if (co->ha == NULL) {
        loop_stop(co->loop);
    } else { /* the next one need not wait for the end of our lease */
        co->leaving = true;
        ha_leave(co, on_left);
    }
}

/* The first signal drains: no new requests, those in flight end. A second one ends at once. */
static void on_term(void *arg) {
    struct coordinator *co = arg;
    if (co->stopping) {
        loop_stop(co->loop);
        return;
    }
    log_info("stop", "event=draining");
    co->stopping = true;
    service_look(co->service);
    for (int i = 0; i < co->n_listeners; i++)
        if (co->listeners[i].planes & PLANE_DATA) http_server_leave(co->listeners[i].server);
    co->stop_until_ms = clock_ms() + (uint64_t)co->conf.stop_drain_timeout_s * 1000;
    if (loop_timer_start(&co->stop_timer, co->loop, 1, STOP_POLL_MS, on_stop_poll, co) != ERR_OK)
        loop_stop(co->loop);
}

/* Certificates and API keys anew. What is wrong leaves what is in force as it is. */
static void on_hup(void *arg) {
    struct coordinator *co = arg;
    cred_watch_now(co->creds);
    service_reloaded(co->service);
}

/* For the service manager: ready as soon as it listens, since instances may come later. */
static enum service_state how_it_stands(void *arg, char text[SERVICE_TEXT_BYTES]) {
    const struct coordinator *co = arg;
    if (co->stopping) {
        struct relay_counts n;
        relay_counts(co->relays, &n);
        snprintf(text, SERVICE_TEXT_BYTES, "stopping: %" PRIu64 " requests are left", n.in_flight);
        return SERVICE_STOPPING;
    }
    if (controller_serves(co))
        snprintf(text, SERVICE_TEXT_BYTES, "serves with %zu instances", co->reg.n);
    else
        snprintf(text, SERVICE_TEXT_BYTES, "%s", coord_not_ready(co));
    return SERVICE_READY;
}

/* A TLS connection takes 26 KB however idle it is, a plain one under 3 KB. */
static unsigned conns_wanted(const struct coord_conf *c) {
    unsigned requests = (unsigned)c->requests_max, conns = 3 * requests;
    if (c->limits.conns > 0) return (unsigned)c->limits.conns;
    if (c->tls[BLOCK_REQUEST_SERVER].enable && conns > TLS_CONNS_DEFAULT)
        conns = requests > TLS_CONNS_DEFAULT ? requests : TLS_CONNS_DEFAULT;
    return conns;
}

/* Descriptors for the clients' connections and the calls their requests need, beside those of the
 * other planes and of the coordinator's own calls. Fewer than are asked for mean fewer connections,
 * not fewer of the others: requests of HTTP/2 share them, and a call is under way only until P has
 * answered. */
static enum err plan_descriptors(struct coordinator *co, struct errbuf *eb) {
    const struct coord_conf *c = &co->conf;
    unsigned requests = (unsigned)c->requests_max, conns = conns_wanted(c);
    const unsigned each = (unsigned)c->limits.h2_streams;
    const uint64_t shared = (requests + each - 1) / each, calls = requests / 4;
    const uint64_t least = shared + calls + FDS_RESERVED, limit = fds_raise(co->descriptors_wanted);
    if (limit < least)
        return err_set(eb, ERR_BAD_CONFIG,
                       "coordinator.request_limit.max_requests %u needs %llu open files though all "
                       "of them come over HTTP/2, %u on a connection (pd.limits.http2Streams); the "
                       "limit is %llu (ulimit -n)",
                       requests, (unsigned long long)least, each, (unsigned long long)limit);
    co->conns_max = fds_for_clients(limit, FDS_RESERVED, conns, requests);
    if (co->conns_max < conns)
        log_warn("start", "event=few_descriptors limit=%llu wanted=%llu connections=%u",
                 (unsigned long long)limit, (unsigned long long)co->descriptors_wanted,
                 co->conns_max);
    return ERR_OK;
}

/* Against this file's folder. */
static void path_of(char *out, size_t n, const struct coord_conf *c, const char *name) {
    snprintf(out, n, "%s%s%s", name[0] == '/' ? "" : c->dir, name[0] == '/' ? "" : "/", name);
}

/* What the daily decision computes with until instances have measured themselves; without the files
 * it waits for that. */
static enum err read_digs_files(struct coordinator *co, struct errbuf *eb) {
    const struct coord_conf *c = &co->conf;
    char model[2 * COORD_PATH_BYTES], machine[2 * COORD_PATH_BYTES];
    if (strcmp(c->role_decision, "daily") != 0) return ERR_OK;
    path_of(model, sizeof(model), c, c->digs_model_path);
    path_of(machine, sizeof(machine), c, c->digs_machine_path);
    const enum err e = digs_files_read(&co->digs_model, &co->digs_machine, model, machine, eb);
    if (e != ERR_NOT_FOUND) return e;
    log_info("start", "event=no_formulas detail=\"%s\"", eb->text);
    co->digs_model = (struct digs_model){0};
    eb->text[0] = 0;
    return ERR_OK;
}

static void fill_schedule(struct coordinator *co) {
    const struct coord_conf *c = &co->conf;
    (void)schedule_policy_parse(&co->sched.policy, c->algorithm_type);
    if (co->sched.policy == POLICY_LOAD_BALANCE && strcmp(c->routing, "cost") == 0)
        co->sched.policy = POLICY_COST;
    co->sched.slots_free_min = c->slots_thresh;
    co->sched.blocks_free_min = c->block_thresh;
    memcpy(co->sched.weights, c->weights, sizeof(co->sched.weights));
    co->sched.local_tokens_max = (double)c->local_prefill_max;
    co->sched.prefill_queue_max = (unsigned)c->prefill_queue_max;
    co->sched.token_target_s = (double)c->decode_slo_ms * 1e-3;
    co->sched.limit_demand = c->select_type == 2;
    co->sched.res_limit_rate = c->res_limit_rate;
    memcpy(co->sched.coefficients, c->coefficients, sizeof(co->sched.coefficients));
}

static void fill_budget(struct coordinator *co) {
    budget_init(&co->budget);
    http_gate_limits(&co->budget, &co->conf.limits, co->conns_max, conns_wanted(&co->conf),
                     (LISTENERS_MAX - 1) * CONTROL_CONNS_MAX);
    const int64_t answers = co->conf.limits.answers_mib;
    budget_limit_set(&co->budget, BUDGET_ANSWER_BYTES,
                     answers > 0 ? (uint64_t)answers << 20 : budget_bodies_default());
    const int64_t transcripts = co->conf.transcripts_mib;
    budget_limit_set(&co->budget, BUDGET_TRANSCRIPT_BYTES,
                     transcripts > 0 ? (uint64_t)transcripts << 20 : budget_bodies_default());
    const int64_t replicas = co->conf.replicate_mib;
    budget_limit_set(&co->budget, BUDGET_JOURNAL_BYTES,
                     replicas > 0 ? (uint64_t)replicas << 20 : budget_bodies_default());
    budget_limit_set(&co->budget, BUDGET_REQUESTS, (uint64_t)co->conf.requests_max);
    if (co->conf.tenant_waiting_max > 0)
        budget_limit_set(&co->budget, BUDGET_TENANT_WAITING, (uint64_t)co->conf.tenant_waiting_max);
}

/* With one CA for both, whoever may register an instance may give orders as well. */
static void warn_of_registering(const struct coord_conf *c) {
    if (c->tls[BLOCK_CONTROLLER_SERVER].enable && c->rank_table_path[0] == 0 &&
        c->register_ca[0][0] == 0)
        log_warn("start", "event=registering_is_not_limited setting=coordinator.tls_config."
                          "controller_server_tls_items.register_ca_cert");
}

enum { FOLDER_BYTES = 2 * COORD_PATH_BYTES };

/* A folder of the configuration, which lies beside its file; "" stays. */
static const char *folder_of(const struct coordinator *co, const char *dir,
                             char path[FOLDER_BYTES]) {
    const bool beside = dir[0] != 0 && dir[0] != '/';
    snprintf(path, FOLDER_BYTES, "%s%s%s", beside ? co->conf.dir : "", beside ? "/" : "", dir);
    return path;
}

static enum err open_store(struct coordinator *co, struct errbuf *eb) {
    char path[FOLDER_BYTES];
    if (co->ha != NULL) return ERR_OK; /* it needs the loop */
    if (co->conf.state_dir[0] == 0) return store_memory_open(&co->store);
    return store_file_open(&co->store, folder_of(co, co->conf.state_dir, path), eb);
}

static enum err open_kept(struct coordinator *co, struct errbuf *eb) {
    char path[FOLDER_BYTES];
    return kept_service_create(&co->kept, co->loop, &co->conf.limits,
                               folder_of(co, co->conf.responses_dir, path), &co->budget, eb);
}

static const char *env_or(const char *name, const char *otherwise) {
    const char *v = getenv(name);
    return v != NULL && v[0] != 0 ? v : otherwise;
}

static enum err open_otlp(struct coordinator *co, struct errbuf *eb) {
    const struct otlp_opts o = {.client = co->client,
                                .budget = &co->budget,
                                .url = co->conf.otlp_url,
                                .headers = env_or("OTEL_EXPORTER_OTLP_HEADERS", ""),
                                .service = env_or("OTEL_SERVICE_NAME", "baton-coordinator"),
                                .resource = env_or("OTEL_RESOURCE_ATTRIBUTES", ""),
                                .sample = co->conf.otlp_sample,
                                .tls = co->tls.block[BLOCK_OTLP_CLIENT]};
    return o.url[0] != 0 ? otlp_create(&co->otlp, &o, eb) : ERR_OK;
}

static enum err open_journal(struct coordinator *co) {
    if (!co->conf.replicate) return ERR_OK;
    enum err e = co->ha != NULL ? journal_feed_create(&co->feed, co->loop) : ERR_OK;
    const struct journal_opts o = {.budget = &co->budget,
                                   .answered_ms = (uint64_t)co->conf.resume_keep_s * 1000,
                                   .keyed_ms = (uint64_t)co->conf.idempotency_keep_s * 1000,
                                   .on_change = co->feed != NULL ? journal_feed_change : NULL,
                                   .arg = co->feed};
    return e == ERR_OK ? journal_create(&co->journal, &o) : e;
}

static enum err open_alarm_send(struct coordinator *co) {
    const struct alarm_send_opts o = {.alarms = co->alarms,
                                      .client = co->client,
                                      .budget = &co->budget,
                                      .url = co->conf.alarm_url,
                                      .tls = co->tls.block[BLOCK_ALARM_CLIENT]};
    return o.url[0] != '\0' ? alarm_send_create(&co->alarm_send, &o) : ERR_OK;
}

static enum err coordinator_open(struct coordinator *co, struct errbuf *eb) {
    fill_schedule(co);
    enum err e = read_digs_files(co, eb);
    if (e == ERR_OK) e = open_store(co, eb);
    if (e != ERR_OK) return e;
    co->reg.co = co;
    co->reg.store = co->store;
    e = plan_descriptors(co, eb);
    if (e != ERR_OK) return e;
    fill_budget(co);
    if ((e = recorder_open_env(&co->recorder, &co->sched, eb)) != ERR_OK) return e;
    e = loop_create(&co->loop);
    if (e == ERR_OK) e = http_gate_create(&co->gate, co->loop, &co->budget);
    if (e == ERR_OK) e = http_client_create(&co->client, co->loop, co->conf.user_agent);
    if (e == ERR_OK) e = coord_metrics_create(&co->metrics, co);
    if (e == ERR_OK) e = alarms_create(&co->alarms, co->conf.manage_ip);
    if (e == ERR_OK) e = open_alarm_send(co);
    if (e == ERR_OK) e = console_create(&co->console, co);
    if (e == ERR_OK) e = open_journal(co);
    if (e == ERR_OK) e = relay_set_create(&co->relays, co);
    if (e == ERR_OK)
        e = grpc_health_create(&co->grpc_health, co->loop, coord_serves_anything, coord_has_model,
                               co);
    if (e == ERR_OK) e = loop_on_signal(co->loop, SIGTERM, on_term, co);
    if (e == ERR_OK) e = loop_on_signal(co->loop, SIGINT, on_term, co);
    if (e == ERR_OK) e = loop_on_signal(co->loop, SIGHUP, on_hup, co);
    if (e == ERR_OK) e = cred_watch_start(co->creds, CRED_LOOK_MS);
    if (e != ERR_OK) return err_set(eb, e, "cannot create the event loop: %s", err_text(e));
    warn_of_registering(&co->conf);
    if ((e = open_kept(co, eb)) != ERR_OK) return e;
    if ((e = open_otlp(co, eb)) != ERR_OK) return e;
    e = access_log_open(&co->access_log, "coordinator.log_info.access_log", co->conf.dir,
                        co->conf.access_log, eb);
    if (e != ERR_OK) return e;
    if ((e = open_listeners(co, eb)) != ERR_OK) return e;
    if ((e = service_start(&co->service, co->loop, how_it_stands, co, eb)) != ERR_OK) return e;
    if (co->ha == NULL) return controller_start(co, eb);
    if ((e = controller_check(co, eb)) != ERR_OK) return e;
    return ha_start(co, eb);
}

static void coordinator_close(struct coordinator *co) {
    loop_timer_stop(&co->stop_timer);
    service_stop(&co->service);
    if (co->relays != NULL) relay_abort_all(co->relays, 503, "The service has been stopped.");
    recorder_close(&co->recorder); /* what follows is no fault */
    controller_stop(co);
    coord_metrics_destroy(&co->metrics);
    alarm_send_destroy(&co->alarm_send);
    alarms_destroy(&co->alarms);
    health_timed_close(co);
    grpc_health_destroy(&co->grpc_health);
    for (int i = 0; i < co->n_listeners; i++) http_server_close(&co->listeners[i].server);
    relay_set_destroy(&co->relays);
    journal_follow_destroy(&co->follow);
    journal_destroy(&co->journal);
    journal_feed_destroy(&co->feed);
    console_destroy(&co->console);
    kept_service_destroy(&co->kept);
    ha_close(co);
    otlp_destroy(&co->otlp);
    http_client_destroy(&co->client);
    lora_forget_all(co);
    loop_destroy(&co->loop);
    access_log_close(&co->access_log);
    http_gate_destroy(&co->gate);
    store_close(&co->store);
}

static int run(struct coordinator *co) {
    struct errbuf eb = {0};
    int status = 0;
    enum err e = coordinator_open(co, &eb);
    if (e != ERR_OK) {
        log_error("start", "%s", eb.text);
        status = e == ERR_BAD_CONFIG || e == ERR_INVALID || e == ERR_BAD_JSON || e == ERR_NOT_FOUND
                     ? 2
                     : 1;
    } else {
        log_info("start",
                 "event=listening user_plane=%s:%lld management=%s:%lld status_port=%lld "
                 "external_port=%lld",
                 co->conf.predict_ip, (long long)co->conf.predict_port, co->conf.manage_ip,
                 (long long)co->conf.manage_port, (long long)co->conf.status_port,
                 (long long)co->conf.external_port);
        loop_run(co->loop);
        log_info("stop", "event=ended");
    }
    coordinator_close(co);
    return status;
}

/* The files that the configuration names: certificates, keys, API keys. */
static enum err open_files(struct coordinator *co, struct errbuf *eb) {
    const struct coord_conf *c = &co->conf;
    enum err e = coord_tls_open(&co->tls, c, eb);
    if (e == ERR_OK && c->api_keys_file[0] != 0)
        e = api_keys_open(&co->keys, "coordinator.apiKeysFile", c->dir, c->api_keys_file, eb);
    if (e != ERR_OK) return e;
    if ((co->creds = cred_watch_create("coordinator")) == NULL)
        return err_set(eb, ERR_NO_MEMORY, "no memory to watch certificates and keys");
    if ((e = ha_open(co, eb)) != ERR_OK) return e;
    coord_tls_watch(&co->tls, co->creds);
    cred_watch_keys(co->creds, co->keys);
    return ERR_OK;
}

static enum log_level level_of(const char *word) {
    int l = log_level_parse(word);
    return l >= 0 ? (enum log_level)l : LOG_INFO;
}

static const struct cli_option options[] = {
    {"--config", "-c", "FILE",
     "merged configuration, or the coordinator's alone (docs/configuration.md)"},
    {"--controller", "-r", "FILE", "the controller's configuration, when it is a file of its own"},
    DAEMON_OPTIONS,
    {NULL, NULL, NULL, NULL},
};

static int start(struct coordinator *co, const struct daemon_args *a) {
    struct errbuf eb = {0};
    log_init(LOG_INFO, STDERR_FILENO);
    if (coord_conf_load(&co->conf, a->config, a->controller, a->layers, &eb) != ERR_OK) {
        fprintf(stderr, "coordinator: %s\n", eb.text);
        return 2;
    }
    co->descriptors_wanted =
        (uint64_t)conns_wanted(&co->conf) + (uint64_t)co->conf.requests_max + FDS_RESERVED;
    if (a->what == DAEMON_FACTS) return coord_facts_print(co);
    if (open_files(co, &eb) != ERR_OK) {
        fprintf(stderr, "coordinator: %s%s%s\n", a->config != NULL ? a->config : "",
                a->config != NULL ? ": " : "", eb.text);
        return 2;
    }
    if (a->what != DAEMON_RUN && controller_check(co, &eb) != ERR_OK) {
        fprintf(stderr, "coordinator: %s\n", eb.text);
        return 2;
    }
    if (a->what != DAEMON_RUN) {
        struct buf out = BUF_INIT;
        coord_conf_print(&out, &co->conf);
        const int status = daemon_args_show(a, &out);
        buf_free(&out);
        return status;
    }
    log_init(level_of(co->conf.log_level), STDERR_FILENO);
    log_start();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file over RLIMIT_FSIZE is an error of its write */
    heap_pages_open(&co->pages);
    return run(co);
}

int main(int argc, char **argv) {
    const struct daemon_cli cli = {
        "coordinator",
        "Takes requests of every client family and spreads them over prefill and decode instances.",
        options, coord_conf_names()};
    struct daemon_args args;
    daemon_args_read(&args, &cli, argc, argv);
    int status = args.status;
    if (args.what == DAEMON_VERSION) build_print(stdout, "coordinator", NULL);
    struct coordinator *co = args.what < DAEMON_VERSION ? calloc(1, sizeof(*co)) : NULL;
    if (co != NULL) {
        status = start(co, &args);
        ha_close(co);
        cred_watch_destroy(&co->creds);
        coord_tls_close(&co->tls);
        api_keys_close(&co->keys);
        free(co);
    } else if (args.what < DAEMON_VERSION) {
        fprintf(stderr, "coordinator: out of memory\n");
        status = 1;
    }
    daemon_args_free(&args);
    return status;
}
