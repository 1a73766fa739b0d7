/* ctl_advise: `batonctl advise`: the load, the abilities, the plans, and the advice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/ctl/advise.h"

enum { REQUESTS = 1000 };
static const double BUSY = 0.1; /* of a machine, before it is measured */

/* ---- the load */

static bool read_range(struct ctl *c, const char *flag, struct load_range *out) {
    const char *text = ctl_option(c, flag);
    char *end;
    if (text == NULL) return true;
    const unsigned long a = strtoul(text, &end, 10);
    const unsigned long b = *end == ':' ? strtoul(end + 1, &end, 10) : a;
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || a < 1 || b < a || b > LOAD_TOKENS_MAX) {
        ctl_fail(c, 2, "%s must be N or N:M with 1 <= N <= M <= %d, got %s", flag, LOAD_TOKENS_MAX,
                 text);
        return false;
    }
    *out = (struct load_range){(uint32_t)a, (uint32_t)b};
    return true;
}

const char *advise_arrivals(enum load_arrivals kind) {
    static const char *const words[] = {
        [LOAD_POISSON] = "poisson", [LOAD_EVEN] = "even", [LOAD_BURSTY] = "bursty"};
    return words[kind];
}

static bool read_arrivals(struct ctl *c, enum load_arrivals *out) {
    const char *text = ctl_option(c, "--arrivals");
    for (int i = 0; text != NULL && i < 3; i++) {
        if (strcmp(text, advise_arrivals((enum load_arrivals)i)) != 0) continue;
        *out = (enum load_arrivals)i;
        return true;
    }
    if (text == NULL) return true;
    ctl_fail(c, 2, "--arrivals must be poisson, even or bursty, got %s", text);
    return false;
}

static bool read_options(struct advise *a) {
    struct ctl *c = a->c;
    long instances = 2, per_machine = 1, slots = 32, seconds = 8, seed = 1;
    a->shape = (struct load_shape){.rate = 1,
                                   .in = {512, 512},
                                   .out = {128, 128},
                                   .n_groups = 1,
                                   .time_scale = 1,
                                   .length_scale = 1};
    a->ttft_ms = 1000;
    a->gap_ms = 50;
    a->link_bytes_per_s = 1e9;
    a->link_from = ctl_option(c, "--link") != NULL ? "given" : "assumed";
    a->busy = -1;
    a->trace = ctl_option(c, "--trace");
    if (!ctl_number(c, "--instances", 1, ADVISE_INSTANCES_MAX, &instances) ||
        !ctl_number(c, "--per-machine", 1, ADVISE_INSTANCES_MAX, &per_machine) ||
        !ctl_number(c, "--slots", 1, SIM_SLOTS_MAX, &slots) ||
        !ctl_number(c, "--seconds", 1, 600, &seconds) ||
        !ctl_number(c, "--seed", 0, 1L << 52, &seed) ||
        !ctl_decimal(c, "--link", 1, 1e15, &a->link_bytes_per_s) ||
        !ctl_decimal(c, "--ttft-goal", 1e-3, 1e9, &a->ttft_ms) ||
        !ctl_decimal(c, "--gap-goal", 1e-3, 1e9, &a->gap_ms) ||
        !ctl_decimal(c, "--rate", 1e-3, 1e5, &a->shape.rate) ||
        !ctl_decimal(c, "--time-scale", 1e-6, 1e6, &a->shape.time_scale) ||
        !ctl_decimal(c, "--length-scale", 1e-6, 1e3, &a->shape.length_scale) ||
        !read_range(c, "--in", &a->shape.in) || !read_range(c, "--out", &a->shape.out) ||
        !read_arrivals(c, &a->shape.arrivals))
        return false;
    a->instances = (unsigned)instances;
    a->per_machine = (unsigned)per_machine;
    a->slots = (unsigned)slots;
    a->seconds = (double)seconds;
    a->clients_here = ctl_option(c, "--clients-here") != NULL;
    a->shape.seed = (uint64_t)seed;
    if (c->n_args > 0 && ctl_option(c, "--abilities") != NULL) {
        ctl_fail(c, 2, "advise takes a MODEL or --abilities, not both");
        return false;
    }
    return true;
}

static bool read_load(struct advise *a) {
    struct errbuf eb = {0};
    struct load_source *source = NULL;
    struct load_ask one;
    long most = a->trace == NULL ? REQUESTS : LOAD_TRACE_ROWS_MAX;
    if (!ctl_number(a->c, "--requests", 1, LOAD_TRACE_ROWS_MAX, &most)) return false;
    const enum err e = a->trace != NULL ? load_source_read_trace(&source, &a->shape, a->trace, &eb)
                                        : load_source_create(&source, &a->shape);
    if (e == ERR_OK && a->trace != NULL && (long)load_source_rows(source) < most)
        most = (long)load_source_rows(source);
    if (e == ERR_OK) a->asks = malloc((size_t)most * sizeof(*a->asks));
    while (a->asks != NULL && a->n < (size_t)most && load_source_next(source, &one)) {
        a->asks[a->n++] = (struct sim_ask){.at_s = one.at_s, .in = one.in, .out = one.out};
        a->mean_in += one.in;
        a->mean_out += one.out;
        if (one.in > a->longest_in) a->longest_in = one.in;
    }
    load_source_free(&source);
    if (a->n == 0) {
        ctl_fail(a->c, e == ERR_OK ? 1 : 2, "%s", eb.text[0] != 0 ? eb.text : "out of memory");
        return false;
    }
    a->mean_in /= (double)a->n;
    a->mean_out /= (double)a->n;
    return true;
}

/* ---- what is said */

static const char *warning(const struct advise *a, char text[160]) {
    snprintf(text, 160,
             "this machine was busy before it was measured: other work had %.0f%% of its "
             "processors; measure again when it is quiet",
             100 * a->busy);
    return a->busy > BUSY ? text : NULL;
}

static void print_plan(const struct advise *a, const struct advised_plan *p) {
    char name[48];
    const struct forecast *f = &p->forecast;
    printf("%-6s %-20s %6.1f %9.1f %9.1f %9.1f %8.2f %8.2f %8.2f%s\n", p->ability->dtype,
           advise_plan_name(p, name), 100 * f->good, f->ttft_ms[Q50], f->ttft_ms[Q90],
           f->ttft_ms[Q99], f->gap_ms[Q50], f->gap_ms[Q90], f->gap_ms[Q99],
           p == a->best ? "  <" : "");
}

static void print_error(const char *what, double said, double is, const char *unit) {
    printf("  %-18s %9.2f %-2s forecast, %9.2f %-2s measured: %+.0f%%\n", what, said, unit, is,
           unit, said > 0 ? 100 * (is / said - 1) : 0);
}

/* The forecast's own error, of the one cluster that could be tried here. */
static void print_held(const struct advise_held *h) {
    if (!(h->rate > 0)) return;
    printf("\nheld against 1 P and 1 D of one thread each that were started here, %zu requests at "
           "%.2f a second:\n",
           h->n, h->rate);
    print_error("first token, median", h->said.ttft_ms[Q50], h->is.ttft_ms[Q50], "ms");
    print_error("first token, p90", h->said.ttft_ms[Q90], h->is.ttft_ms[Q90], "ms");
    print_error("token of an answer", h->said.token_ms[Q50], h->is.token_ms[Q50], "ms");
    print_error("answers", h->said.answers_per_s, h->is.answers_per_s, "/s");
    print_error("within both", 100 * h->said.good, 100 * h->is.good, "%");
}

static void print_text(const struct advise *a) {
    char name[48], text[160];
    const char *warned = warning(a, text);
    const struct advised_plan *b = a->best;
    const double span = a->asks[a->n - 1].at_s;
    if (warned != NULL) printf("warning: %s\n", warned);
    printf(
        "load: %zu requests in %.0f s (%.2f a second), %.0f tokens in and %.0f out in the mean\n",
        a->n, span, span > 0 ? (double)a->n / span : 0, a->mean_in, a->mean_out);
    printf("targets: first token within %g ms, further tokens every %g ms; %u instances, %u on a "
           "machine\n",
           a->ttft_ms, a->gap_ms, a->instances, a->per_machine);
    printf("a KV link of %.4g MB/s, %s\n", a->link_bytes_per_s * 1e-6, a->link_from);
    for (size_t i = 0; i < a->n_abilities; i++) {
        const struct ability *m = &a->abilities[i];
        printf("an instance with %s%s%s: %.0f tokens/s of a prompt of %.0f, %.1f tokens/s of one "
               "answer; times differ by %.0f%%\n",
               m->dtype, m->kernels[0] != 0 ? " on " : "", m->kernels,
               a->mean_in / perf_prompt_s(&m->perf, a->mean_in), a->mean_in,
               1 / perf_step_s(&m->perf, 1, a->mean_in + a->mean_out / 2), 100 * m->spread);
    }
    printf("\n%-6s %-20s %6s %9s %9s %9s %8s %8s %8s\n", "dtype", "plan", "good%", "ttft50ms",
           "ttft90ms", "ttft99ms", "gap50ms", "gap90ms", "gap99ms");
    for (size_t i = 0; i < a->n_plans; i++) print_plan(a, &a->plans[i]);
    printf("\nadvice: %s, %s: %.1f%% of the requests within both targets (%.1f to %.1f)\n",
           b->ability->dtype, advise_plan_name(b, name), 100 * b->forecast.good, 100 * a->good.low,
           100 * a->good.high);
    printf("first token of 9 in 10 within %.0f ms (%.0f to %.0f): the target is %s reach\n",
           b->forecast.ttft_ms[Q90], a->ttft90.low, a->ttft90.high,
           a->ttft90.high <= a->ttft_ms  ? "within"
           : a->ttft90.low <= a->ttft_ms ? "just within or out of"
                                         : "out of");
    printf("gaps of 9 in 10 within %.1f ms (%.1f to %.1f): the target is %s reach\n",
           b->forecast.gap_ms[Q90], a->gap90.low, a->gap90.high,
           a->gap90.high <= a->gap_ms  ? "within"
           : a->gap90.low <= a->gap_ms ? "just within or out of"
                                       : "out of");
    printf("it bears %.2f requests a second with 95 of 100 within both targets", b->borne);
    if (a->best_split != NULL && a->best_whole != NULL)
        printf(" (split %.2f, not split %.2f)", a->best_split->borne, a->best_whole->borne);
    printf("\n");
    print_held(&a->held);
}

static void put_range(struct json_value *o, const char *key, double v, const struct range *r) {
    struct json_value *arr = json_new_arr();
    json_arr_add(arr, json_new_f64(r->low));
    json_arr_add(arr, json_new_f64(v));
    json_arr_add(arr, json_new_f64(r->high));
    json_obj_set(o, key, arr);
}

static void put_figures(struct json_value *o, const struct forecast *f) {
    const struct {
        const char *key;
        const double *v;
    } rows[] = {{"ttftMs", f->ttft_ms}, {"gapMs", f->gap_ms}, {"tokenMs", f->token_ms}};
    json_obj_set(o, "good", json_new_f64(f->good));
    json_obj_set(o, "answersPerSecond", json_new_f64(f->answers_per_s));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct json_value *arr = json_new_arr();
        for (int q = 0; q < QUANTILES; q++) json_arr_add(arr, json_new_f64(rows[i].v[q]));
        json_obj_set(o, rows[i].key, arr);
    }
}

static struct json_value *plan_json(const struct advised_plan *p) {
    static const char *const modes[] = {
        [SIM_FOLLOW] = "follow", [SIM_FIXED] = "fixed", [SIM_STANDARD] = "standard"};
    struct json_value *o = json_new_obj();
    json_obj_set(o, "dtype", json_new_str(p->ability->dtype));
    json_obj_set(o, "mode", json_new_str(modes[p->mode]));
    if (p->mode == SIM_FIXED) {
        json_obj_set(o, "prefill", json_new_i64(p->p));
        json_obj_set(o, "decode", json_new_i64(p->d));
    }
    put_figures(o, &p->forecast);
    json_obj_set(o, "goodPerSecond", json_new_f64(p->forecast.good_per_s));
    if (p->borne > 0) json_obj_set(o, "bornePerSecond", json_new_f64(p->borne));
    json_obj_set(o, "ttftMeanMs", json_new_f64(p->forecast.ttft_mean_ms));
    json_obj_set(o, "gapMeanMs", json_new_f64(p->forecast.gap_mean_ms));
    json_obj_set(o, "unfinished", json_new_i64((int64_t)p->forecast.unfinished));
    return o;
}

static struct json_value *held_json(const struct advise_held *h) {
    struct json_value *o = json_new_obj(), *said = json_new_obj(), *is = json_new_obj();
    put_figures(said, &h->said);
    put_figures(is, &h->is);
    json_obj_set(o, "requests", json_new_i64((int64_t)h->n));
    json_obj_set(o, "rate", json_new_f64(h->rate));
    json_obj_set(o, "forecast", said);
    json_obj_set(o, "measured", is);
    return o;
}

static bool print_json(const struct advise *a) {
    char words[160];
    const char *warned = warning(a, words);
    struct json_value *root = json_new_obj(), *load = json_new_obj(), *abilities = json_new_arr(),
                      *plans = json_new_arr(), *advice = plan_json(a->best);
    json_obj_set(load, "requests", json_new_i64((int64_t)a->n));
    json_obj_set(load, "seconds", json_new_f64(a->asks[a->n - 1].at_s));
    json_obj_set(load, "meanIn", json_new_f64(a->mean_in));
    json_obj_set(load, "meanOut", json_new_f64(a->mean_out));
    json_obj_set(root, "load", load);
    json_obj_set(root, "instances", json_new_i64(a->instances));
    json_obj_set(root, "perMachine", json_new_i64(a->per_machine));
    json_obj_set(root, "ttftGoalMs", json_new_f64(a->ttft_ms));
    json_obj_set(root, "gapGoalMs", json_new_f64(a->gap_ms));
    json_obj_set(root, "linkBytesPerSecond", json_new_f64(a->link_bytes_per_s));
    json_obj_set(root, "linkFrom", json_new_str(a->link_from));
    if (a->busy >= 0) json_obj_set(root, "busy", json_new_f64(a->busy));
    if (warned != NULL) json_obj_set(root, "warning", json_new_str(warned));
    for (size_t i = 0; i < a->n_abilities; i++) {
        const struct ability *m = &a->abilities[i];
        struct json_value *o = json_new_obj();
        json_obj_set(o, "dtype", json_new_str(m->dtype));
        json_obj_set(o, "kernels", json_new_str(m->kernels));
        json_obj_set(o, "weightBytes", json_new_f64(m->weight_bytes));
        json_obj_set(o, "kvTokenBytes", json_new_f64(m->kv_token_bytes));
        json_obj_set(o, "spread", json_new_f64(m->spread));
        json_obj_set(o, "perf", perf_format(&m->perf));
        json_obj_set(o, "times", sim_times_format(&m->times));
        json_arr_add(abilities, o);
    }
    json_obj_set(root, "abilities", abilities);
    for (size_t i = 0; i < a->n_plans; i++) json_arr_add(plans, plan_json(&a->plans[i]));
    json_obj_set(root, "plans", plans);
    json_obj_set(advice, "split", json_new_bool(a->best->mode != SIM_STANDARD));
    put_range(advice, "goodRange", a->best->forecast.good, &a->good);
    put_range(advice, "ttft90MsRange", a->best->forecast.ttft_ms[Q90], &a->ttft90);
    put_range(advice, "gap90MsRange", a->best->forecast.gap_ms[Q90], &a->gap90);
    json_obj_set(advice, "bornePerSecond", json_new_f64(a->best->borne));
    json_obj_set(advice, "borneSplitPerSecond",
                 json_new_f64(a->best_split != NULL ? a->best_split->borne : 0));
    json_obj_set(advice, "borneWholePerSecond", json_new_f64(a->best_whole->borne));
    json_obj_set(root, "advice", advice);
    if (a->held.rate > 0) json_obj_set(root, "held", held_json(&a->held));
    const char *text = json_to_text(root, JSON_COMPACT, NULL);
    if (text != NULL) puts(text);
    json_put(root);
    return text != NULL;
}

int ctl_cmd_advise(struct ctl *c) {
    struct advise *a = calloc(1, sizeof(*a));
    int rc = 2;
    if (a == NULL) return ctl_fail(c, 1, "out of memory");
    a->c = c;
    if (read_options(a) && read_load(a)) {
        rc = 1;
        if (advise_abilities(a)) {
            bool ok = advise_simulate(a);
            if (!ok) ctl_fail(c, 1, "out of memory");
            if (ok && a->cluster.child.pid > 0) ok = advise_hold(a);
            if (ok && c->json)
                ok = print_json(a);
            else if (ok)
                print_text(a);
            rc = ok ? 0 : 1;
        }
        advise_cluster_end(a);
    }
    free(a->asks);
    free(a);
    return rc;
}
