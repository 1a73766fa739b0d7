/* coord_metrics: own families; the scrape of all instances behind one answer. */
#include "coordinator/coord_metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/build.h"
#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "coordinator/coordinator.h"
#include "coordinator/ha.h"
#include "coordinator/prom_merge.h"
#include "coordinator/relay.h"

static const double ttft_buckets[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                      0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10};
static const double tpot_buckets[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                      0.3,  0.4,   0.5,  0.75,  1,   2.5};
static const double e2e_buckets[] = {1, 2.5, 5, 10, 15, 20, 30, 40, 50, 60};
static const double silence_buckets[] = {0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60};
static const double switch_buckets[] = {0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};

#define BUCKETS(b) .kind = METRIC_HISTOGRAM, .buckets = (b), .n_buckets = sizeof(b) / sizeof((b)[0])

enum row {
    RECEIVED,
    SUCCESS,
    FAILED,
    CANCELLED,
    CLIENT_ERRORS,
    FAILED_PART,
    ANSWERS,
    INFLIGHT,
    QUEUE,
    SCHEDULE,
    TTFT,
    TPOT,
    E2E,
    RETRIES,
    SILENCE,
    REJECTED,
    RELAYED,
    ROLE,
    MASTER,
    SWITCH,
    TARGETS,
    SCRAPE_UP,
    BREAKER_OPENED,
    BREAKER,
    LINK_BREAKER,
    ROUTED,
    N_ROWS
};

static const struct metric_def rows[N_ROWS] = {
    [RECEIVED] = {.name = "request_received_total", .help = "Requests of clients."},
    [SUCCESS] = {.name = "request_success_total", .help = "Requests answered in full."},
    [FAILED] = {.name = "request_failed_total",
                .help = "Requests that the service failed: 5xx, time-outs, ended by itself."},
    [CANCELLED] = {.name = "request_cancelled_total", .help = "Requests whose client went away."},
    [CLIENT_ERRORS] = {.name = "coordinator_client_errors_total",
                       .help = "Requests refused for what the client did or asked for (4xx)."},
    [FAILED_PART] = {.name = "failed_request_perc",
                     .kind = METRIC_GAUGE,
                     .help = "Failed of received requests, 0 to 1."},
    [ANSWERS] = {.name = "coordinator_requests_total",
                 .labels = {"code"},
                 .help = "Requests that ended, by status; 499: the client went away."},
    [INFLIGHT] = {.name = "coordinator_requests_inflight",
                  .kind = METRIC_GAUGE,
                  .help = "Requests admitted and not yet ended."},
    [QUEUE] = {.name = "coordinator_queue_len",
               .kind = METRIC_GAUGE,
               .help = "Requests that wait for a pair of instances."},
    [SCHEDULE] = {.name = "coordinator_schedule_seconds",
                  BUCKETS(ttft_buckets),
                  .help = "What a request, or a further attempt, waited for its pair."},
    [TTFT] = {.name = "coordinator_ttft_seconds",
              BUCKETS(ttft_buckets),
              .help =
                  "From the arrival of a request to P's answer, which carries the first token."},
    [TPOT] = {.name = "coordinator_tpot_seconds",
              BUCKETS(tpot_buckets),
              .help = "Mean time between the tokens of an answer as they arrive here; of requests "
                      "with one answer."},
    [E2E] = {.name = "coordinator_request_seconds",
             BUCKETS(e2e_buckets),
             .help = "From the arrival of a request to the end of its answer."},
    [RETRIES] = {.name = "coordinator_retries_total",
                 .labels = {"reason"},
                 .help = "Further attempts of requests, by what ended the one before."},
    [SILENCE] = {.name = "coordinator_recovery_silence_seconds",
                 .labels = {"cause"},
                 BUCKETS(silence_buckets),
                 .help =
                     "What clients waited for an answer to go on whose attempt was lost, by what "
                     "ended that."},
    [REJECTED] = {.name = "coordinator_rejected_total",
                  .labels = {"reason"},
                  .help = "Requests not admitted."},
    [RELAYED] = {.name = "coordinator_relay_bytes_total",
                 .help = "Bytes of answers passed on to clients."},
    [ROLE] = {.name = "coordinator_role",
              .kind = METRIC_GAUGE,
              .labels = {"instance_name", "address", "role"},
              .help = "1 for the role an instance says it has."},
    [MASTER] = {.name = "coordinator_is_master",
                .kind = METRIC_GAUGE,
                .help = "1: this coordinator serves."},
    [SWITCH] = {.name = "coordinator_role_switch_seconds",
                BUCKETS(switch_buckets),
                .help = "From the order of a role switch to its being taken."},
    [BREAKER_OPENED] = {.name = "coordinator_breaker_opened_total",
                        .labels = {"of"},
                        .help = "Times that faults took an instance, or a link, out of service."},
    [BREAKER] = {.name = "coordinator_breaker_state",
                 .kind = METRIC_GAUGE,
                 .labels = {"instance_name", "address"},
                 .help = "Of an instance: 0: closed, it gets requests; 1: half-open, one tries it; "
                         "2: open."},
    [LINK_BREAKER] = {.name = "coordinator_link_breaker_state",
                      .kind = METRIC_GAUGE,
                      .labels = {"instance_name", "address", "peer_name", "peer_address"},
                      .help = "Of a KV link over which a request failed: as "
                              "coordinator_breaker_state."},
    [TARGETS] = {.name = "coordinator_targets_total",
                 .labels = {"target", "of", "result"},
                 .help = "First tokens, and answers by the mean time between their tokens, that "
                         "were in time (met) or not (missed), by a target of the API key's own or "
                         "that of all."},
    [ROUTED] = {.name = "coordinator_routed_total",
                .labels = {"how"},
                .help =
                    "Attempts that were placed: on a pair; alone, on a decode instance that "
                    "computes the prompt as well; fetched, on a pair to which a decode instance "
                    "gives back the beginning it has."},
    [SCRAPE_UP] = {.name = "instance_scrape_up",
                   .kind = METRIC_GAUGE,
                   .labels = {"instance_name", "address"},
                   .help = "1: the last scrape of the instance succeeded."},
};

struct scrape {
    struct scrape *next;
    struct coord_metrics *cm;
    struct http_call *call;
    uint32_t id;
};

/* A client that waits for the round. */
struct waiter {
    struct waiter *next, **at;
    struct coord_metrics *cm;
    struct http_x *x;
};

struct coord_metrics {
    struct coordinator *co;
    struct metrics *reg;
    struct metric_family *families[N_ROWS];
    struct metric *plain[N_ROWS]; /* of families without labels */
    struct budget_metrics *limits;
    struct build_metrics *build;
    struct prom_merge *merge;
    struct scrape *scrapes; /* under way */
    struct waiter *waiters;
    struct buf answer;  /* of the last round */
    uint64_t answer_ms; /* 0: none yet */
};

/* ---- counting */

static void count(struct coord_metrics *cm, enum row row, const char *label) {
    metric_add(metric_of(cm->families[row], (const char *const[]){label, NULL}), 1);
}

void coord_metrics_received(struct coord_metrics *cm) {
    if (cm != NULL) metric_add(cm->plain[RECEIVED], 1);
}

static void count_end(struct coord_metrics *cm, int status, bool stopped) {
    char code[16];
    snprintf(code, sizeof(code), "%d", status);
    count(cm, ANSWERS, code);
    metric_add(cm->plain[status == 200                              ? SUCCESS
                         : status == 499                            ? CANCELLED
                         : relay_status_is_failure(status, stopped) ? FAILED
                                                                    : CLIENT_ERRORS],
               1);
}

void coord_metrics_rejected(struct coord_metrics *cm, const char *reason, int status) {
    if (cm == NULL) return;
    count(cm, REJECTED, reason);
    count_end(cm, status, false);
}

void coord_metrics_turned_away(struct coord_metrics *cm, const char *reason) {
    if (cm != NULL) count(cm, REJECTED, reason);
}

void coord_metrics_scheduled(struct coord_metrics *cm, uint64_t waited_us) {
    if (cm != NULL) metric_observe(cm->plain[SCHEDULE], (double)waited_us / 1e6);
}

void coord_metrics_first_token(struct coord_metrics *cm, uint64_t since_arrival_us) {
    if (cm != NULL) metric_observe(cm->plain[TTFT], (double)since_arrival_us / 1e6);
}

void coord_metrics_target(struct coord_metrics *cm, const char *what, bool own, bool met) {
    const char *const labels[] = {what, own ? "own" : "all", met ? "met" : "missed", NULL};
    if (cm != NULL) metric_add(metric_of(cm->families[TARGETS], labels), 1);
}

void coord_metrics_routed(struct coord_metrics *cm, enum coord_route how) {
    static const char *const words[] = {"pair", "alone", "fetched"};
    if (cm != NULL) count(cm, ROUTED, words[how]);
}

void coord_metrics_retried(struct coord_metrics *cm, const char *cause) {
    if (cm != NULL) count(cm, RETRIES, cause);
}

void coord_metrics_recovered(struct coord_metrics *cm, const char *cause, uint64_t silence_us) {
    if (cm == NULL) return;
    metric_observe(metric_of(cm->families[SILENCE], (const char *const[]){cause, NULL}),
                   (double)silence_us / 1e6);
}

void coord_metrics_breaker(struct coord_metrics *cm, const char *of) {
    if (cm != NULL) count(cm, BREAKER_OPENED, of);
}

void coord_metrics_relayed(struct coord_metrics *cm, size_t bytes) {
    if (cm != NULL) metric_add(cm->plain[RELAYED], (double)bytes);
}

void coord_metrics_ended(struct coord_metrics *cm, const struct coord_request_end *e) {
    if (cm == NULL) return;
    count_end(cm, e->status, e->stopped);
    if (e->status != 200) return;
    metric_observe(cm->plain[E2E], (double)e->total_us / 1e6);
    if (e->n_tokens > 1)
        metric_observe(cm->plain[TPOT], (double)e->decode_us / 1e6 / (double)(e->n_tokens - 1));
}

void coord_metrics_switched(struct coord_metrics *cm, uint64_t took_us) {
    if (cm != NULL) metric_observe(cm->plain[SWITCH], (double)took_us / 1e6);
}

void coord_metrics_forget(struct coord_metrics *cm, uint32_t id) {
    if (cm != NULL) prom_merge_forget(cm->merge, id);
}

/* ---- the answer */

static double breaker_level(const struct breaker *b) {
    return b->state == BREAKER_CLOSED ? 0 : b->state == BREAKER_HALF_OPEN ? 1 : 2;
}

static void read_breakers(struct coord_metrics *cm) {
    metric_clear(cm->families[BREAKER]);
    metric_clear(cm->families[LINK_BREAKER]);
    for (const struct inst *in = cm->co->reg.first; in != NULL; in = in->next) {
        metric_set(metric_of(cm->families[BREAKER],
                             (const char *const[]){inst_name(in), in->address, NULL}),
                   breaker_level(&in->breaker));
        for (size_t i = 0; i < in->n_link_breakers; i++) {
            const struct inst *d = registry_find(&cm->co->reg, in->link_breakers[i].d_id);
            if (d == NULL) continue;
            const char *const ends[] = {inst_name(in), in->address, inst_name(d), d->address, NULL};
            metric_set(metric_of(cm->families[LINK_BREAKER], ends),
                       breaker_level(&in->link_breakers[i].b));
        }
    }
}

static void read_gauges(struct coord_metrics *cm) {
    struct relay_counts n;
    relay_counts(cm->co->relays, &n);
    double received = metric_value(cm->plain[RECEIVED]);
    metric_set(cm->plain[INFLIGHT], (double)n.in_flight);
    metric_set(cm->plain[QUEUE], (double)n.queued);
    metric_set(cm->plain[MASTER], coord_leads(cm->co) && !cm->co->stands_by);
    budget_metrics_read(cm->limits);
    build_metrics_read(cm->build);
    cred_watch_metrics_read(cm->co->creds);
    metric_set(cm->plain[FAILED_PART],
               received > 0 ? metric_value(cm->plain[FAILED]) / received : 0);
    read_breakers(cm);
    metric_clear(cm->families[ROLE]);
    for (const struct inst *in = cm->co->reg.first; in != NULL; in = in->next) {
        const char *role = inst_role_name(in->facts.status.role);
        metric_set(metric_of(cm->families[ROLE],
                             (const char *const[]){inst_name(in), in->address, role, NULL}),
                   1);
    }
}

static void reply(struct coord_metrics *cm, struct http_x *x) {
    if (cm->answer.failed || cm->answer.data == NULL) {
        coord_reply_error(cm->co, x, 503, err_text(ERR_NO_MEMORY));
    } else {
        http_x_reply(x, 200, "text/plain; charset=utf-8", cm->answer.data, cm->answer.len);
    }
}

/* Every instance has answered, or failed to. */
static void finish(struct coord_metrics *cm) {
    buf_free(&cm->answer);
    read_gauges(cm);
    metrics_write(cm->reg, &cm->answer);
    prom_merge_write(cm->merge, &cm->answer);
    cm->answer_ms = clock_ms();
    while (cm->waiters != NULL) {
        struct waiter *w = cm->waiters;
        cm->waiters = w->next;
        http_x_on_close(w->x, NULL, NULL);
        reply(cm, w->x);
        free(w);
    }
}

/* ---- the round */

static void end_scrape(struct scrape *s) {
    struct scrape **at = &s->cm->scrapes;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    free(s);
}

static void mark(struct coord_metrics *cm, const struct inst *in, bool up) {
    metric_set(
        metric_of(cm->families[SCRAPE_UP], (const char *const[]){inst_name(in), in->address, NULL}),
        up ? 1 : 0);
}

static void on_scraped(void *arg, const struct http_result *r) {
    struct scrape *s = arg;
    struct coord_metrics *cm = s->cm;
    const struct inst *in = registry_find(&cm->co->reg, s->id);
    if (in != NULL) {
        enum err e = r->err;
        if (e == ERR_OK && r->status != 200) e = ERR_REFUSED;
        const struct prom_source src = {.id = s->id,
                                        .role = inst_role_name(in->facts.status.role),
                                        .name = inst_name(in),
                                        .address = in->address,
                                        .blocks = (double)in->facts.status.total_blocks};
        if (e == ERR_OK) e = prom_merge_add(cm->merge, &src, r->body, r->body_len);
        if (e != ERR_OK) log_warn("metrics", "id=%u event=not_scraped err=%s", s->id, err_name(e));
        mark(cm, in, e == ERR_OK);
    }
    end_scrape(s);
    if (cm->scrapes == NULL) finish(cm);
}

static bool ask(struct coord_metrics *cm, const struct inst *in) {
    char url[128];
    struct scrape *s = calloc(1, sizeof(*s));
    if (s == NULL) return false;
    s->cm = cm;
    s->id = in->id;
    struct tls *tls =
        coord_tls_url(&cm->co->tls, url, sizeof(url), &in->node, NODE_METRICS, "/metrics");
    struct http_call_opts o = {.method = "GET",
                               .url = url,
                               .tls = tls,
                               .total_ms = SCRAPE_MS,
                               .connect_ms = SCRAPE_MS,
                               .body_bytes_max = PROM_TEXT_BYTES_MAX,
                               .on_done = on_scraped,
                               .arg = s};
    if (http_client_call(cm->co->client, &o, &s->call) != ERR_OK) {
        free(s);
        return false;
    }
    s->next = cm->scrapes;
    cm->scrapes = s;
    return true;
}

static void start_round(struct coord_metrics *cm) {
    prom_merge_begin(cm->merge);
    metric_clear(cm->families[SCRAPE_UP]);
    for (const struct inst *in = cm->co->reg.first; in != NULL; in = in->next)
        if (!ask(cm, in)) mark(cm, in, false);
    if (cm->scrapes == NULL) finish(cm);
}

static void on_waiter_gone(void *arg) {
    struct waiter *w = arg;
    *w->at = w->next;
    if (w->next != NULL) w->next->at = w->at;
    free(w);
}

void coord_metrics_scrape(struct coord_metrics *cm, struct http_x *x) {
    uint64_t reuse_ms = (uint64_t)cm->co->conf.metrics_reuse_s * 1000;
    if (cm->answer_ms != 0 && clock_ms() - cm->answer_ms < reuse_ms) {
        reply(cm, x);
        return;
    }
    struct waiter *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        coord_reply_error(cm->co, x, 503, err_text(ERR_NO_MEMORY));
        return;
    }
    w->cm = cm;
    w->x = x;
    w->next = cm->waiters;
    w->at = &cm->waiters;
    if (w->next != NULL) w->next->at = &w->next;
    cm->waiters = w;
    http_x_on_close(x, on_waiter_gone, w);
    if (cm->scrapes == NULL) start_round(cm);
}

/* ---- life */

enum err coord_metrics_create(struct coord_metrics **out, struct coordinator *co) {
    struct coord_metrics *cm = calloc(1, sizeof(*cm));
    *out = cm;
    if (cm == NULL) return ERR_NO_MEMORY;
    cm->co = co;
    enum err e = metrics_create(&cm->reg);
    if (e == ERR_OK) e = prom_merge_create(&cm->merge);
    for (int i = 0; e == ERR_OK && i < N_ROWS; i++) {
        cm->families[i] = metrics_family(cm->reg, &rows[i]);
        bool plain = rows[i].labels[0] == NULL;
        if (plain) cm->plain[i] = metric_of(cm->families[i], NULL);
        if (cm->families[i] == NULL || (plain && cm->plain[i] == NULL)) e = ERR_NO_MEMORY;
    }
    if (e == ERR_OK) {
        cm->limits = budget_metrics_create(cm->reg, &co->budget, "coordinator");
        if (cm->limits == NULL) e = ERR_NO_MEMORY;
    }
    if (e == ERR_OK) e = build_metrics_create(&cm->build, cm->reg);
    if (e == ERR_OK && co->creds != NULL) e = cred_watch_metrics(co->creds, cm->reg);
    if (e != ERR_OK) coord_metrics_destroy(out);
    return e;
}

void coord_metrics_destroy(struct coord_metrics **cmp) {
    struct coord_metrics *cm = *cmp;
    if (cm == NULL) return;
    *cmp = NULL;
    while (cm->scrapes != NULL) {
        http_call_cancel(&cm->scrapes->call);
        end_scrape(cm->scrapes);
    }
    while (cm->waiters != NULL) {
        struct waiter *w = cm->waiters;
        cm->waiters = w->next;
        http_x_on_close(w->x, NULL, NULL);
        coord_reply_error(cm->co, w->x, 503, "The service has been stopped.");
        free(w);
    }
    buf_free(&cm->answer);
    prom_merge_destroy(&cm->merge);
    metrics_destroy(&cm->reg);
    budget_metrics_destroy(&cm->limits);
    build_metrics_destroy(&cm->build);
    free(cm);
}
