/* advise_ways: what lies between clients and engines, measured on a cluster of one prefill and one
 * decode instance of a thread each, which `batonctl serve --split` starts on this machine, with
 * requests of baton-bench. What the instances say of their passes is taken off: the rest is the
 * ways. Then the forecast for this very cluster is held against a run of the load. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "tools/ctl/advise.h"
#include "tools/ctl/doctor.h"
#include "tools/load/load_report.h"

enum {
    READY_MS = 120000,
    LOOK_MS = 50,
    SHORT_TOKENS = 16,
    LONG_TOKENS = 512, /* at most */
    ASKS = 40,
    STEPS = 48,
    CROWD = 8,
    BOTH_S = 2,
    WORDS = 24,
    WORD_BYTES = 40,
    LINE_BYTES = 1024,
    IDLE_MS = 400,
    CLUSTER_SLOTS = 32, /* as serve has them */
    PROBE_REQUESTS = 200,
    PROBE_SEED = 1,
    CROWD_STEPS = 256, /* at most */
    HELD_MIN = 20,
    HELD_MAX = 2000,
};
static const double HOP_BESIDE_MAX = 4, OWN_RATIO_MAX = 2;
enum { OWN_S = 2, OWN_MIN = 4, OWN_MAX = 60 };
static const double HELD_PART = 0.5; /* of what the cluster is expected to bear */

struct ways_run {
    double ttft_s, gap_s, requests, tokens, cpu_s, wall_s, client_cpu_s;
    double beside_gap_s, n_long; /* prompts beside the others */
    struct ctl_cpu p, d;         /* of both engines */
};

/* Of children that have ended: baton-bench, as the cluster has not. */
static double client_cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void stop(struct advise_cluster *k) {
    if (k->child.pid > 0) ctl_child_stop(&k->child);
    k->child.pid = 0;
}

void advise_cluster_end(struct advise *a) {
    stop(&a->cluster);
}

/* The line that `serve --json` prints once it serves. */
static bool wait_for_line(struct advise *a, struct advise_cluster *k) {
    const uint64_t end_ms = clock_ms() + READY_MS;
    char line[LINE_BYTES];
    while (clock_ms() < end_ms && k->child.pid > 0) {
        struct json_value *o = NULL;
        const ssize_t n = pread(fileno(k->child.out), line, sizeof(line) - 1, 0);
        if (n > 0 && memchr(line, '\n', (size_t)n) != NULL &&
            json_read(&o, line, (size_t)n, NULL, NULL) == ERR_OK) {
            snprintf(k->base, sizeof(k->base), "%.90s", ctl_str(o, "url"));
            snprintf(k->manage, sizeof(k->manage), "%.90s", ctl_str(o, "manage"));
        }
        json_put(o);
        if (k->manage[0] != '\0') return true;
        if (!ctl_child_runs(&k->child)) break;
        ctl_sleep_ms(LOOK_MS);
    }
    ctl_fail(a->c, 1,
             "the cluster for measuring the ways to it does not start; --no-ways goes without");
    return false;
}

bool advise_cluster_start(struct advise *a, const char *model, const char *dtype) {
    struct advise_cluster *k = &a->cluster;
    char program[4096], type[WORD_BYTES];
    static char json[] = "--json", serve[] = "serve", split[] = "--split", threads[] = "--threads",
                two[] = "2", end[] = "--", cache[] = "--prefix-cache=false";
    if (!ctl_program(a->c, "batonctl", program)) return false;
    snprintf(type, sizeof(type), "--weight-dtype=%.20s", dtype);
    char *const argv[] = {program, json,  serve, (char *)(uintptr_t)model, split, threads, two, end,
                          type,    cache, NULL};
    if (!ctl_child_start(&k->child, argv, true) || !wait_for_line(a, k)) {
        stop(k);
        return false;
    }
    return true;
}

/* ---- runs */

/* argv of one run: words are printed one after the other. */
struct words {
    char text[WORDS][WORD_BYTES];
    char *argv[WORDS + 1];
    int n;
};

static void say(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct words *w, const char *fmt, ...) {
    va_list ap;
    if (w->n >= WORDS) return;
    va_start(ap, fmt);
    vsnprintf(w->text[w->n], WORD_BYTES, fmt, ap);
    va_end(ap);
    w->argv[w->n] = w->text[w->n];
    w->argv[++w->n] = NULL;
}

/* The first round of what baton-bench printed; NULL: it failed, and that was said. */
static struct json_value *bench(struct advise *a, struct words *w) {
    struct buf out = BUF_INIT, said = BUF_INIT;
    struct json_value *root = NULL;
    char program[4096];
    if (!ctl_program(a->c, "baton-bench", program)) return NULL;
    w->argv[0] = program;
    w->argv[1] = a->cluster.base;
    const int rc = ctl_run_program(w->argv, &out, &said);
    if (rc != 0 || json_read(&root, out.data, out.len, NULL, NULL) != ERR_OK)
        ctl_fail(a->c, 1, "asking the cluster that was started: %.*s",
                 said.len > 0 ? (int)strcspn(said.data, "\n") : 7,
                 said.len > 0 ? said.data : "nothing");
    buf_free(&out);
    buf_free(&said);
    return root;
}

static const struct json_value *first_round(const struct json_value *root) {
    struct json_value *targets = NULL, *rounds = NULL;
    if (json_get_arr(root, "targets", &targets) != JSON_OK || json_arr_len(targets) == 0 ||
        json_get_arr(json_arr_at(targets, 0), "rounds", &rounds) != JSON_OK ||
        json_arr_len(rounds) == 0)
        return NULL;
    return json_arr_at(rounds, 0);
}

static struct ctl_cpu less(struct ctl_cpu a, struct ctl_cpu b) {
    return (struct ctl_cpu){a.ran_s - b.ran_s, a.waited_s - b.waited_s};
}

/* A closed loop. */
struct ask {
    int clients;
    struct load_range in;
    int out, requests;
    int beside; /* above 0: prompts of so many tokens, one after the other, beside the others; then
                   it takes BOTH_S instead of so many requests */
};

static bool probe(struct advise *a, const struct ask *q, struct ways_run *r) {
    const int pid = a->cluster.child.pid;
    struct words w = {.n = 2};
    say(&w, "--completions");
    say(&w, "--clients=%d", q->clients);
    say(&w, "--in=%u:%u", q->in.from, q->in.to);
    say(&w, "--out=%d", q->out);
    if (q->beside > 0) {
        say(&w, "--long=%d", q->beside);
        say(&w, "--long-every=0");
        say(&w, "--seconds=%d", BOTH_S);
    } else {
        say(&w, "--requests=%d", q->requests);
    }
    say(&w, "--seed=%d", PROBE_SEED);
    say(&w, "--warm-up=0");
    say(&w, "--json=-");
    const double before = ctl_cpu_beside_engines(pid), client = client_cpu_s();
    const struct ctl_cpu p = ctl_cpu_of_engines(pid, "prefill"),
                         d = ctl_cpu_of_engines(pid, "decode");
    const uint64_t start_us = clock_us();
    struct json_value *root = bench(a, &w);
    const struct json_value *o = first_round(root);
    if (o != NULL) {
        *r = (struct ways_run){
            .ttft_s = doc_num(o, "figures.ttft_p50_ms") * 1e-3,
            .gap_s = doc_num(o, "figures.gap_p50_ms") * 1e-3,
            .requests = doc_num(o, "sent"),
            .tokens = doc_num(o, "output_tokens"),
            .beside_gap_s = doc_num(o, "figures.beside_gap_p50_ms") * 1e-3,
            .n_long = doc_num(o, "long_ttft.n"),
            .cpu_s = ctl_cpu_beside_engines(pid) - before,
            .wall_s = (double)(clock_us() - start_us) * 1e-6,
            .client_cpu_s = client_cpu_s() - client,
            .p = less(ctl_cpu_of_engines(pid, "prefill"), p),
            .d = less(ctl_cpu_of_engines(pid, "decode"), d),
        };
    }
    json_put(root);
    return o != NULL;
}

/* ---- what they are made of */

/* What the instances have measured of what they were asked: prompts of the one that prefills, steps
 * of the one that decodes. */
static bool ask_instances(struct advise *a, struct perf_msg *out) {
    struct ctl c = *a->c;
    struct doctor d = {.c = &c};
    unsigned n = 0;
    c.base = a->cluster.manage;
    c.tls = NULL;
    c.n_args = c.n_given = 0;
    memset(out, 0, sizeof(*out));
    const bool ok = doc_look(&d);
    for (size_t i = 0; ok && i < d.n_nodes; i++) {
        const struct doc_node *node = &d.nodes[i];
        struct perf_msg *perf = calloc(1, sizeof(*perf));
        struct json_value *o = NULL;
        const bool decodes = strcmp(doc_str(node->seen, "role"), "decode") == 0;
        if (perf != NULL && !node->coordinator &&
            json_get_obj(node->status, "perf", &o) == JSON_OK &&
            perf_parse(perf, o, NULL) == ERR_OK) {
            if (decodes)
                memcpy(out->steps, perf->steps, sizeof(out->steps));
            else
                memcpy(out->prompts, perf->prompts, sizeof(out->prompts));
            n++;
        }
        free(perf);
    }
    if (n == 2 && a->per_machine >= a->instances) advise_link(a, &d); /* all are on this machine */
    doc_free(&d);
    if (n != 2)
        ctl_fail(a->c, 1, "%u of the 2 instances that were started say how fast they are", n);
    return n == 2;
}

static double above_zero(double v) {
    return v > 0 ? v : 0;
}

/* At half the context of a run of so many steps from SHORT_TOKENS on. */
static double step_s(const struct perf_msg *m, double batch, double steps) {
    return perf_step_s(m, batch, SHORT_TOKENS + steps / 2);
}

/* Times on an idle cluster are those of a request and of a token; processor time is what is left
 * when that of requests is taken off. */
static void compute(struct sim_times *t, const struct perf_msg *m, const struct ways_run *small,
                    const struct ways_run *large, double long_tokens, const struct ways_run *alone,
                    const struct ways_run *crowd, double clients) {
    const double few = small->ttft_s - perf_prompt_s(m, SHORT_TOKENS);
    const double many = large->ttft_s - perf_prompt_s(m, long_tokens);
    const double run = long_tokens - SHORT_TOKENS;
    t->prompt_token_s = run > 0 ? above_zero((many - few) / run) : 0;
    t->request_s = above_zero(few - SHORT_TOKENS * t->prompt_token_s);
    const double one = above_zero(alone->gap_s - step_s(m, 1, STEPS)),
                 all =
                     above_zero(crowd->gap_s - step_s(m, clients, crowd->tokens / crowd->requests));
    t->sequence_s = clients > 1 ? above_zero((all - one) / (clients - 1)) : 0;
    t->step_s = above_zero(one - t->sequence_s);
    t->request_s = above_zero(t->request_s - t->step_s - t->sequence_s); /* a pass has them too */

    const double small_s = small->cpu_s / small->requests, large_s = large->cpu_s / large->requests;
    t->prompt_token_cpu_s = run > 0 ? above_zero((large_s - small_s) / run) : 0;
    const double tokens = fmax(crowd->tokens - 2 * crowd->requests, 1);
    const double short_s = small_s * crowd->requests;
    t->token_cpu_s = above_zero((crowd->cpu_s - short_s) / tokens);
    t->request_cpu_s =
        above_zero(small_s - SHORT_TOKENS * t->prompt_token_cpu_s - 2 * t->token_cpu_s);
    const double client_s = small->client_cpu_s / small->requests;
    t->client_token_cpu_s = above_zero((crowd->client_cpu_s - client_s * crowd->requests) / tokens);
    t->client_request_cpu_s = above_zero(client_s - 2 * t->client_token_cpu_s);
}

/* What the cluster does with nothing asked, of a second. */
static double idle_part(const struct advise *a) {
    const double before = ctl_cpu_beside_engines(a->cluster.child.pid);
    const uint64_t start_us = clock_us();
    ctl_sleep_ms(IDLE_MS);
    return (ctl_cpu_beside_engines(a->cluster.child.pid) - before) /
           ((double)(clock_us() - start_us) * 1e-6);
}

static double longer(double with, double without) {
    return without > 0 && with > without ? with / without : 1;
}

/* How much longer prompts take beside steps, and steps beside prompts: of instances that share a
 * machine, as these two do. Of prompts what their engine ran counts, not what it waited for a
 * processor: it waited for what lies outside engines, which gets there what it takes and what it
 * costs to change places. Of steps the median counts, as their number is not known: streams that
 * begin one after the other share them less. */
static void besides(struct advise *a, const struct ways_run *both, const struct ways_run *small,
                    const struct ways_run *large, const struct ways_run *crowd) {
    const double prompts = both->requests * small->p.ran_s / small->requests +
                           both->n_long * large->p.ran_s / large->requests;
    for (size_t i = 0; i < a->n_abilities; i++) {
        struct sim_times *t = &a->abilities[i].times;
        t->prompt_beside_step = longer(both->p.ran_s, prompts);
        t->step_beside_prompt = longer(both->beside_gap_s, crowd->gap_s);
        t->hop_beside_engines =
            longer(both->p.waited_s + both->d.waited_s, both->cpu_s + both->client_cpu_s);
        if (t->hop_beside_engines > HOP_BESIDE_MAX) t->hop_beside_engines = HOP_BESIDE_MAX;
    }
}

/* Of the n prompts that a probe draws, computed one after the other. */
static double expected_prompts_s(const struct ability *of, struct load_range in, int n) {
    const struct sim_times *t = &of->times;
    const struct load_shape shape = {.seed = PROBE_SEED,
                                     .in = in,
                                     .out = {2, 2},
                                     .n_groups = 1,
                                     .time_scale = 1,
                                     .length_scale = 1};
    struct load_source *source = NULL;
    struct load_ask one;
    struct sim_pass pass;
    double sum = 0;
    sim_pass_of(&pass, &of->perf, (unsigned)t->chunk_tokens);
    if (load_source_create(&source, &shape) != ERR_OK) return 0;
    for (int i = 0; i < n && load_source_next(source, &one); i++)
        for (double from = 0; from < one.in; from += t->chunk_tokens) {
            const struct sim_part part = {from, fmin(from + t->chunk_tokens, one.in)};
            sum += sim_pass_s(&pass, &part, 1) + t->step_s + t->sequence_s;
        }
    load_source_free(&source);
    return sum;
}

/* Prompts of the load itself, one after the other, as many as fit into the time; what they take
 * over what was measured of lengths between which theirs are: times are not straight lines. Without
 * pauses: a core that rests between them is slower than one of a cluster at work ever is. */
static bool own_prompts(struct advise *a, const struct ways_run *large, int n_long) {
    struct ways_run r;
    struct load_range in = a->shape.in;
    if (a->trace != NULL) in.from = in.to = (uint32_t)(a->mean_in + 0.5);
    if (in.to > (uint32_t)n_long) in.to = (uint32_t)n_long;
    if (in.from > in.to) in.from = in.to;
    const double fit = OWN_S / (large->ttft_s > 0 ? large->ttft_s : 1);
    const int n = fit < OWN_MIN ? OWN_MIN : fit > OWN_MAX ? OWN_MAX : (int)fit;
    if (!probe(a, &(struct ask){1, in, 2, n, 0}, &r)) return false;
    const double expected = expected_prompts_s(&a->abilities[0], in, n);
    double ratio = expected > 0 ? r.p.ran_s / expected : 1;
    ratio = ratio < 1 / OWN_RATIO_MAX ? 1 / OWN_RATIO_MAX
            : ratio > OWN_RATIO_MAX   ? OWN_RATIO_MAX
                                      : ratio;
    for (size_t i = 0; i < a->n_abilities && r.p.ran_s > 0; i++)
        for (int k = 0; k < PERF_LENGTHS; k++) a->abilities[i].perf.prompts[k].seconds *= ratio;
    return true;
}

bool advise_ways(struct advise *a) {
    struct ways_run small, large, alone, crowd, both;
    const uint32_t n_long = a->longest_in < LONG_TOKENS ? a->longest_in : LONG_TOKENS;
    const int clients = a->slots < CROWD ? (int)a->slots : CROWD;
    const struct load_range few = {SHORT_TOKENS, SHORT_TOKENS}, many = {n_long, n_long};
    struct perf_msg *m = &a->cluster.perf;
    if (!probe(a, &(struct ask){1, few, 2, ASKS, 0}, &small) ||
        !probe(a, &(struct ask){1, many, 2, n_long > SHORT_TOKENS ? ASKS / 2 : 1, 0}, &large) ||
        !probe(a, &(struct ask){1, few, STEPS, ASKS / 8, 0}, &alone))
        return false;
    const double fit = BOTH_S * 1.2 / (alone.gap_s > 0 ? alone.gap_s : 1);
    const int steps = fit < STEPS ? STEPS : fit > CROWD_STEPS ? CROWD_STEPS : (int)fit;
    if (!probe(a, &(struct ask){clients, few, steps, clients, 0}, &crowd) || !ask_instances(a, m))
        return false;
    const double idle = idle_part(a);
    struct ways_run *const all[] = {&small, &large, &alone, &crowd};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        all[i]->cpu_s = above_zero(all[i]->cpu_s - idle * all[i]->wall_s);
    for (size_t i = 0; i < a->n_abilities; i++)
        compute(&a->abilities[i].times, m, &small, &large, n_long, &alone, &crowd, clients);
    /* an instance of more threads is another one than what was started */
    if (a->abilities[0].times.threads == 1 && !own_prompts(a, &large, (int)n_long)) return false;
    if (a->per_machine == 1) return true;
    if (!probe(a, &(struct ask){clients, few, steps, 0, (int)n_long}, &both)) return false;
    besides(a, &both, &small, &large, &crowd);
    return true;
}

/* ---- the forecast for that cluster, and what it is */

/* A thread each, and the client beside them. A trace is followed by the means of its lengths. */
static void as_it_is(struct advise *of, const struct advise *a, struct ability *m) {
    *of = *a;
    *m = a->abilities[0];
    if (m->times.threads > 1) m->perf = a->cluster.perf;
    m->times.threads = 1;
    of->clients_here = true;
    of->instances = of->per_machine = 2;
    of->slots = a->slots < CLUSTER_SLOTS ? a->slots : CLUSTER_SLOTS;
    of->asks = NULL;
    if (a->trace == NULL) return;
    const uint32_t in = (uint32_t)(a->mean_in + 0.5), out = (uint32_t)(a->mean_out + 0.5);
    of->shape.in = (struct load_range){in, in};
    of->shape.out = (struct load_range){out, out};
}

static bool draw(struct advise *of, double rate, double n) {
    struct load_source *source = NULL;
    struct load_ask one;
    of->shape.rate = rate;
    free(of->asks);
    of->asks = calloc((size_t)n, sizeof(*of->asks));
    of->n = 0;
    const bool ok = of->asks != NULL && load_source_create(&source, &of->shape) == ERR_OK;
    while (ok && of->n < (size_t)n && load_source_next(source, &one))
        of->asks[of->n++] = (struct sim_ask){.at_s = one.at_s, .in = one.in, .out = one.out};
    load_source_free(&source);
    return ok;
}

static bool run_load(struct advise *a, const struct advise *of, struct forecast *is) {
    struct words w = {.n = 2};
    say(&w, "--completions");
    say(&w, "--rate=%.6g", of->shape.rate);
    say(&w, "--in=%u:%u", of->shape.in.from, of->shape.in.to);
    say(&w, "--out=%u:%u", of->shape.out.from, of->shape.out.to);
    say(&w, "--arrivals=%s", advise_arrivals(of->shape.arrivals));
    say(&w, "--requests=%zu", of->n);
    say(&w, "--seed=%llu", (unsigned long long)of->shape.seed);
    say(&w, "--ttft-goal=%g", a->ttft_ms);
    say(&w, "--gap-goal=%g", a->gap_ms);
    say(&w, "--warm-up=0");
    say(&w, "--json=-");
    struct json_value *root = bench(a, &w);
    const struct json_value *o = first_round(root);
    static const char *const ttft[QUANTILES] = {"figures.ttft_p50_ms", "figures.ttft_p90_ms",
                                                "figures.ttft_p99_ms"};
    static const char *const gap[QUANTILES] = {"figures.gap_p50_ms", "figures.gap_p90_ms",
                                               "figures.gap_p99_ms"};
    for (int q = 0; q < QUANTILES && o != NULL; q++) {
        is->ttft_ms[q] = doc_num(o, ttft[q]);
        is->gap_ms[q] = doc_num(o, gap[q]);
    }
    is->token_ms[Q50] = doc_num(o, "figures.token_p50_ms");
    is->token_ms[Q99] = doc_num(o, "figures.token_p99_ms");
    is->good = doc_num(o, "figures.good_share");
    is->answers_per_s = doc_num(o, "figures.answers_s");
    json_put(root);
    return o != NULL;
}

bool advise_hold(struct advise *a) {
    struct advise *of = malloc(sizeof(*of));
    struct ability m;
    struct advised_plan plan = {.ability = &m, .mode = SIM_FIXED, .p = 1, .d = 1};
    bool ok = of != NULL;
    if (ok) as_it_is(of, a, &m);
    ok = ok && draw(of, 1, PROBE_REQUESTS) && advise_borne(of, &plan);
    const double rate = HELD_PART * plan.borne, n = rate * a->seconds;
    if (ok && rate > 0) {
        ok = draw(of, rate,
                  n < HELD_MIN   ? HELD_MIN
                  : n > HELD_MAX ? HELD_MAX
                                 : n) &&
             advise_forecast(of, &plan, &a->held.said) && run_load(a, of, &a->held.is);
        a->held.rate = ok ? rate : 0;
        a->held.n = of->n;
    }
    if (of != NULL) free(of->asks);
    free(of);
    return ok;
}
