/* simulate: a cluster in virtual time, with the coordinator's own planner and router. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/build.h"
#include "common/base/cli.h"
#include "tools/sim/sim_abilities.h"
#include "tools/sim/sim_asks.h"
#include "tools/sim/sim_cache.h"
#include "tools/sim/sim_oracle.h"
#include "tools/sim/sim_report.h"

static const struct cli_option rows[] = {
    {"--instances", "-n", "N", "instances of the cluster, 2 to 1000; default 4"},
    {"--mode", "-m", "MODE",
     "follow (the planner), fixed (with --ratio), standard (unsplit), oracle, bound, or all; "
     "default "
     "all"},
    {"--ratio", NULL, "P:D", "of fixed: so many that prefill to so many that decode; default 1:1"},
    {"--flex", NULL, NULL, "the planner may let one instance of a group do both"},
    {"--unsplit", NULL, NULL, "the planner may leave a group unsplit, where that serves it better"},
    {"--routing", NULL, "HOW", "pairs by cost (default), or by the score of the reference"},
    {"--reject-factor", NULL, "F",
     "requests whose first token is expected later than F times its goal, or whose tokens would "
     "come so much too slowly, are refused; default 0: none"},
    {"--per-machine", NULL, "N",
     "instances that share a machine's cores, where ABILITIES has times; default 1"},
    {"--slots", NULL, "N", "sequences that an instance decodes at a time; default 32"},
    {"--link", NULL, "X",
     "bytes a second from one instance to another; default: hand-overs take "
     "no time"},
    {"--kv-token", NULL, "N", "bytes of KV of a token; default 0"},
    {"--cache", NULL, "N",
     "tokens of prompts whose KV an instance keeps, where a trace names them (hash_ids); default "
     "0"},
    {"--blind", NULL, NULL, "the router does not know what is kept where"},
    {"--switch", NULL, "S",
     "seconds in which an instance that changes its role takes nothing new; default 0.2"},
    {"--window", NULL, "S", "the planner looks back about S seconds; default 5"},
    {"--cool", NULL, "S", "after a switch a group is not switched back for S seconds; default 2"},
    {"--ttft-goal", NULL, "MS", "goal for the first token; default 1000"},
    {"--gap-goal", NULL, "MS", "goal for the mean time per further token; default 50"},
    {"--trace", NULL, "FILE", "Azure's CSV or Mooncake's JSONL, also compressed by gzip"},
    {"--time-scale", NULL, "X", "times of a trace are multiplied by X; default 1"},
    {"--length-scale", NULL, "X", "lengths of a trace are multiplied by X; default 1"},
    {"--overlay", NULL, "K", "K copies of a trace at once, each from a place that the seed draws"},
    {"--load", NULL, "X",
     "times are scaled so that all of the trace asks for X of what the instances can do"},
    {"--rate", "-r", "R", "without a trace: R requests a second; default 1"},
    {"--arrivals", NULL, "KIND", "of these: poisson (default), even, or bursty (crowds of 8)"},
    {"--in", "-i", "N[:M]", "tokens of a prompt, N to M; default 128"},
    {"--out", "-o", "N[:M]", "tokens of an answer, N to M; default 64"},
    {"--requests", NULL, "N", "so many requests; default 1000, of a trace all"},
    {"--oracle-window", NULL, "S", "the oracle chooses again every S seconds; default 60"},
    {"--seed", NULL, "N", "the same seed gives the same run; default 1"},
    {"--version", NULL, NULL, "what this program was built from"},
    {"--help", "-h", NULL, "this text"},
    {0},
};

enum { FOLLOW = 1, FIXED = 2, STANDARD = 4, ORACLE = 8, BOUND = 16, ALL = 15 };

struct options {
    const char *abilities;
    unsigned modes;
    double instances, per_machine, slots, requests, seed, oracle_window_s, ttft_ms, gap_ms, overlay,
        load, cache_tokens;
    struct sim_asks_conf asks;
    struct sim_conf sim;
};

static int fail(const char *what, const char *value) {
    fprintf(stderr, "simulate: %s%s; --help lists the options\n", what, value);
    return 2;
}

/* ---- values of options */
static bool number(const char *flag, const char *text, double least, double most, bool whole,
                   double *out) {
    char *rest;
    const double v = strtod(text, &rest);
    if (rest != text && *rest == 0 && v >= least && v <= most && (!whole || v == floor(v))) {
        *out = v;
        return true;
    }
    fprintf(stderr, "simulate: %s must be a %snumber in [%.10g, %.10g], got %s\n", flag,
            whole ? "whole " : "", least, most, text);
    return false;
}

/* Two numbers with a colon between them; b NULL where there is one alone. */
static bool pair(const char *flag, const char *text, double most, bool both, double *a, double *b) {
    char first[32];
    const char *colon = strchr(text, ':');
    const size_t n = colon == NULL ? strlen(text) : (size_t)(colon - text);
    if (n >= sizeof(first) || (both && colon == NULL)) {
        fprintf(stderr, "simulate: %s must be two numbers with a colon, got %s\n", flag, text);
        return false;
    }
    memcpy(first, text, n);
    first[n] = 0;
    if (!number(flag, first, 1, most, true, a)) return false;
    *b = *a;
    return colon == NULL || number(flag, colon + 1, 1, most, true, b);
}

static bool range(const char *flag, const char *text, struct load_range *out) {
    double a, b;
    if (!pair(flag, text, LOAD_TOKENS_MAX, false, &a, &b)) return false;
    if (b < a) {
        fprintf(stderr, "simulate: %s must not end below its beginning, got %s\n", flag, text);
        return false;
    }
    *out = (struct load_range){(uint32_t)a, (uint32_t)b};
    return true;
}

static bool ratio(const char *flag, const char *text, struct sim_conf *c) {
    double p, d;
    if (!pair(flag, text, SIM_INSTANCES_MAX, true, &p, &d)) return false;
    c->p_rate = (unsigned)p;
    c->d_rate = (unsigned)d;
    return true;
}

struct word {
    const char *name;
    unsigned value;
};

static bool word(const char *flag, const char *text, const struct word *words, unsigned *out) {
    for (const struct word *w = words; w->name != NULL; w++) {
        if (strcmp(text, w->name) != 0) continue;
        *out = w->value;
        return true;
    }
    fprintf(stderr, "simulate: %s must be one of", flag);
    for (const struct word *w = words; w->name != NULL; w++) fprintf(stderr, " %s", w->name);
    fprintf(stderr, ", got %s\n", text);
    return false;
}

static bool take_value(struct options *o, const char *flag, const char *v) {
    static const struct word modes[] = {
        {"follow", FOLLOW}, {"fixed", FIXED}, {"standard", STANDARD},
        {"oracle", ORACLE}, {"bound", BOUND}, {"all", ALL},
        {NULL, 0}};
    static const struct word kinds[] = {
        {"poisson", LOAD_POISSON}, {"even", LOAD_EVEN}, {"bursty", LOAD_BURSTY}, {NULL, 0}};
    const struct {
        const char *flag;
        double least, most;
        bool whole;
        double *to;
    } numbers[] = {{"--instances", 2, SIM_INSTANCES_MAX, true, &o->instances},
                   {"--per-machine", 1, SIM_INSTANCES_MAX, true, &o->per_machine},
                   {"--slots", 1, SIM_SLOTS_MAX, true, &o->slots},
                   {"--link", 1, 1e15, false, &o->sim.link_bytes_per_s},
                   {"--kv-token", 0, 1e9, true, &o->sim.kv_token_bytes},
                   {"--reject-factor", 0, 1000, false, &o->sim.reject_factor},
                   {"--cache", 0, 1e9, true, &o->cache_tokens},
                   {"--switch", 0, 1e6, false, &o->sim.switch_s},
                   {"--window", 1, 3600, false, &o->sim.window_s},
                   {"--cool", 0, 604800, false, &o->sim.cool_s},
                   {"--ttft-goal", 1e-3, 1e9, false, &o->ttft_ms},
                   {"--gap-goal", 1e-3, 1e9, false, &o->gap_ms},
                   {"--time-scale", 1e-6, 1e6, false, &o->asks.shape.time_scale},
                   {"--length-scale", 1e-6, 1e3, false, &o->asks.shape.length_scale},
                   {"--rate", 1e-3, 1e5, false, &o->asks.shape.rate},
                   {"--overlay", 1, SIM_OVERLAY_MAX, true, &o->overlay},
                   {"--load", 1e-3, 1e3, false, &o->load},
                   {"--requests", 1, LOAD_TRACE_ROWS_MAX, true, &o->requests},
                   {"--oracle-window", 1, 1e6, false, &o->oracle_window_s},
                   {"--seed", 0, 0x1p53, true, &o->seed}};
    static const struct word routings[] = {{"cost", 0}, {"reference", 1}, {NULL, 0}};
    unsigned kind;
    if (strcmp(flag, "--routing") == 0) {
        if (!word(flag, v, routings, &kind)) return false;
        o->sim.reference = kind == 1;
        return true;
    }
    if (strcmp(flag, "--trace") == 0) {
        o->asks.trace = v;
        return true;
    }
    if (strcmp(flag, "--mode") == 0) return word(flag, v, modes, &o->modes);
    if (strcmp(flag, "--ratio") == 0) return ratio(flag, v, &o->sim);
    if (strcmp(flag, "--in") == 0) return range(flag, v, &o->asks.shape.in);
    if (strcmp(flag, "--out") == 0) return range(flag, v, &o->asks.shape.out);
    if (strcmp(flag, "--arrivals") == 0) {
        if (!word(flag, v, kinds, &kind)) return false;
        o->asks.shape.arrivals = (enum load_arrivals)kind;
        return true;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(flag, numbers[i].flag) == 0)
            return number(flag, v, numbers[i].least, numbers[i].most, numbers[i].whole,
                          numbers[i].to);
    return false;
}

static int take_options(struct options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (text[0] != '-') {
            if (o->abilities != NULL)
                return fail("one file of abilities is wanted, and another is ", text);
            o->abilities = text;
            continue;
        }
        const struct cli_option *row = cli_find(rows, text);
        if (row == NULL) {
            cli_no_option("simulate", rows, text);
            return 2;
        }
        const char *value = strchr(text, '=');
        if (row->arg == NULL) {
            if (value != NULL) return fail("no value is taken by ", row->flag);
            o->sim.flex |= strcmp(row->flag, "--flex") == 0;
            o->sim.blind |= strcmp(row->flag, "--blind") == 0;
            o->sim.unsplit |= strcmp(row->flag, "--unsplit") == 0;
            continue;
        }
        if (value == NULL && i + 1 == argc) return fail("a value is needed by ", row->flag);
        if (!take_value(o, row->flag, value != NULL ? value + 1 : argv[++i])) return 2;
    }
    if (o->abilities == NULL)
        return fail("a file of abilities is wanted: the body of an instance's ", "/v2/status");
    return 0;
}

/* ---- the runs */
static bool run_mode(const struct options *o, enum sim_mode mode, const struct sim_ask *asks,
                     size_t n) {
    struct sim_result *r = malloc(sizeof(*r));
    struct sim_conf c = o->sim;
    char name[32] = "follow";
    c.mode = mode;
    const bool ok = r != NULL && sim_run(r, &c, asks, n) == ERR_OK;
    if (mode == SIM_STANDARD) snprintf(name, sizeof(name), "standard");
    if (mode == SIM_FIXED) snprintf(name, sizeof(name), "fixed %u:%u", c.p_rate, c.d_rate);
    if (ok) sim_report_line(stdout, name, r);
    free(r);
    return ok;
}

static int simulate(struct options *o) {
    struct errbuf eb = {0};
    struct sim_asks all;
    if (sim_abilities_read(&o->sim.perf, &o->sim.times, o->abilities, &eb) != ERR_OK ||
        sim_asks_read(&all, &o->asks, &eb) != ERR_OK) {
        fprintf(stderr, "simulate: %s\n", eb.text);
        return 2;
    }
    if (all.n > 0 && all.a[0].block_tokens > 0)
        o->sim.cache_blocks =
            (uint32_t)fmin(o->cache_tokens / all.a[0].block_tokens, SIM_CACHE_BLOCKS_MAX);
    if (o->load > 0) sim_asks_scale(&all, &o->sim, o->load);
    const struct sim_ask *asks = all.a;
    const size_t n = all.n;
    printf("%u instances, %zu requests in %.1f s, goals %g ms and %g ms, seed %.0f\n",
           o->sim.instances, n, n > 0 ? asks[n - 1].at_s : 0, o->ttft_ms, o->gap_ms, o->seed);
    sim_report_head(stdout);
    bool ok = true;
    if (o->modes & FOLLOW) ok = run_mode(o, SIM_FOLLOW, asks, n);
    if (ok && o->modes & FIXED) ok = run_mode(o, SIM_FIXED, asks, n);
    if (ok && o->modes & STANDARD) ok = run_mode(o, SIM_STANDARD, asks, n);
    for (unsigned mode = ORACLE; ok && mode <= BOUND; mode *= 2) {
        uint64_t good = 0;
        if (!(o->modes & mode)) continue;
        ok = (mode == ORACLE ? sim_oracle : sim_bound)(&good, &o->sim, asks, n,
                                                       o->oracle_window_s) == ERR_OK;
        if (ok)
            sim_report_good(stdout, mode == ORACLE ? "oracle" : "bound", good, n,
                            n > 0 ? asks[n - 1].at_s : 0);
    }
    sim_asks_free(&all);
    if (!ok) fputs("simulate: out of memory\n", stderr);
    return ok ? 0 : 2;
}

static int help(void) {
    puts("usage: simulate ABILITIES [options]\n"
         "A cluster in virtual time: the coordinator's planner and router over instances that are "
         "as quick\n"
         "as ABILITIES says, a file with the body of GET /v2/status of one.\n");
    cli_print_options(stdout, rows);
    puts("\nEnds with 0: simulated; 2: usage, or a file that cannot be read.");
    return 0;
}

int main(int argc, char **argv) {
    struct options o = {
        .modes = ALL,
        .instances = 4,
        .per_machine = 1,
        .slots = 32,
        .seed = 1,
        .oracle_window_s = 60,
        .ttft_ms = 1000,
        .gap_ms = 50,
        .asks.shape = {.rate = 1,
                       .in = {128, 128},
                       .out = {64, 64},
                       .n_groups = 1,
                       .time_scale = 1,
                       .length_scale = 1},
        .sim = {.p_rate = 1, .d_rate = 1, .switch_s = 0.2, .window_s = 5, .cool_s = 2}};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return help();
        if (strcmp(argv[i], "--version") == 0) {
            build_print(stdout, "simulate", NULL);
            return 0;
        }
    }
    const int status = take_options(&o, argc, argv);
    if (status != 0) return status;
    o.sim.instances = (unsigned)o.instances;
    o.sim.per_host = (unsigned)o.per_machine;
    o.sim.slots = (unsigned)o.slots;
    o.sim.first_token_s = o.ttft_ms * 1e-3;
    o.sim.token_s = o.gap_ms * 1e-3;
    o.asks.shape.seed = (uint64_t)o.seed;
    o.asks.overlay = (unsigned)o.overlay;
    o.asks.most = (size_t)o.requests;
    return simulate(&o);
}
