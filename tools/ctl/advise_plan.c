/* advise_plan: every plan for every type of weights through the simulator; how far the best one may
 * be off, and what load it bears. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/ctl/advise.h"

enum { FIXED_MAX = 16, DOUBLINGS = 7, BISECTIONS = 7 };
static const double BORNE = 0.95; /* of the requests are within the targets */
static const double TIE = 0.01;   /* plans that differ by less are alike, */
static const double MORE =
    1.1; /* and then the simpler one is it, unless another bears so much more */
static const double SWITCH_S = 0.2, WINDOW_S = 5, COOL_S = 2; /* as simulate has them */

const char *advise_plan_name(const struct advised_plan *p, char text[48]) {
    if (p->mode == SIM_FIXED)
        snprintf(text, 48, "split %u P, %u D", p->p, p->d);
    else
        snprintf(text, 48, "%s", p->mode == SIM_STANDARD ? "not split" : "split, roles follow");
    return text;
}

/* slower: times of everything are so much longer. squeeze: arrivals come so much faster. */
static bool forecast(const struct advise *a, const struct advised_plan *p,
                     const struct sim_ask *asks, double slower, double squeeze,
                     struct forecast *out) {
    static const double quantiles[QUANTILES] = {0.5, 0.9, 0.99};
    struct sim_conf c = {.mode = p->mode,
                         .instances = a->instances,
                         .p_rate = p->p,
                         .d_rate = p->d,
                         .slots = a->slots,
                         .first_token_s = a->ttft_ms * 1e-3,
                         .token_s = a->gap_ms * 1e-3,
                         .link_bytes_per_s = a->link_bytes_per_s,
                         .kv_token_bytes = p->ability->kv_token_bytes,
                         .switch_s = SWITCH_S,
                         .window_s = WINDOW_S,
                         .cool_s = COOL_S,
                         .perf = p->ability->perf,
                         .times = p->ability->times,
                         .per_host = a->per_machine};
    struct sim_ask *moved = malloc(a->n * sizeof(*moved));
    struct sim_result *r = malloc(sizeof(*r));
    if (a->clients_here) {
        c.times.request_cpu_s += c.times.client_request_cpu_s;
        c.times.token_cpu_s += c.times.client_token_cpu_s;
    }
    for (int i = 0; i < PERF_LENGTHS; i++) c.perf.prompts[i].seconds *= slower;
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++) c.perf.steps[i][k].seconds *= slower;
    for (size_t i = 0; moved != NULL && i < a->n; i++) {
        moved[i] = asks[i];
        moved[i].at_s = asks[i].at_s / squeeze;
    }
    const bool ok = moved != NULL && r != NULL && sim_run(r, &c, moved, a->n) == ERR_OK;
    if (ok) {
        out->good = r->asked > 0 ? (double)r->good / (double)r->asked : 0;
        out->good_per_s = r->span_s > 0 ? (double)r->good / r->span_s : 0;
        out->unfinished = r->unfinished;
        out->answers_per_s = a->n > 0 && r->end_s > moved[0].at_s
                                 ? (double)r->ended / (r->end_s - moved[0].at_s)
                                 : 0;
        out->ttft_mean_ms = load_hist_mean(&r->ttft) * 1e-3;
        out->gap_mean_ms = load_hist_mean(&r->gaps) * 1e-3;
        for (int q = 0; q < QUANTILES; q++) {
            out->ttft_ms[q] = load_hist_quantile(&r->ttft, quantiles[q]) * 1e-3;
            out->token_ms[q] = load_hist_quantile(&r->mean_gaps, quantiles[q]) * 1e-3;
            out->gap_ms[q] = load_hist_quantile(&r->gaps, quantiles[q]) * 1e-3;
        }
    }
    free(moved);
    free(r);
    return ok;
}

bool advise_forecast(const struct advise *a, const struct advised_plan *p, struct forecast *out) {
    return forecast(a, p, a->asks, 1, 1, out);
}

static bool try_plan(struct advise *a, const struct ability *m, enum sim_mode mode, unsigned p) {
    if (a->n_plans == ADVISE_PLANS_MAX) return true;
    struct advised_plan *plan = &a->plans[a->n_plans++];
    *plan = (struct advised_plan){.ability = m,
                                  .mode = mode,
                                  .p = mode == SIM_FIXED ? p : 1,
                                  .d = mode == SIM_FIXED ? a->instances - p : 1};
    return forecast(a, plan, a->asks, 1, 1, &plan->forecast);
}

static bool try_plans(struct advise *a, const struct ability *m) {
    unsigned last = 0;
    bool ok = try_plan(a, m, SIM_STANDARD, 0);
    const unsigned n = a->instances, steps = n - 1 < FIXED_MAX ? n - 1 : FIXED_MAX;
    for (unsigned i = 1; i <= steps && ok; i++) {
        const unsigned p = n - 1 <= FIXED_MAX ? i : 1 + (i - 1) * (n - 2) / (steps - 1);
        if (p != last) ok = try_plan(a, m, SIM_FIXED, last = p);
    }
    if (ok && n > 1) ok = try_plan(a, m, SIM_FOLLOW, 0);
    return ok;
}

/* Requests a second of which BORNE are within the targets; 0: not even a hundredth of the load. */
bool advise_borne(const struct advise *a, struct advised_plan *p) {
    const double span = a->asks[a->n - 1].at_s, asked = span > 0 ? (double)a->n / span : 0;
    double low = 0, high = 1;
    struct forecast f;
    for (int i = 0; i < DOUBLINGS; i++, high *= 2) {
        if (!forecast(a, p, a->asks, 1, high, &f)) return false;
        if (f.good < BORNE) break;
        low = high;
    }
    for (int i = 0; i < BISECTIONS && high > low; i++) {
        const double middle = (low + high) / 2;
        if (!forecast(a, p, a->asks, 1, middle, &f)) return false;
        *(f.good >= BORNE ? &low : &high) = middle;
    }
    p->borne = low * asked;
    return true;
}

/* Better: more requests within the targets; of plans alike in that, the one that bears more; where
 * hardly any is within them, the one with the earlier first tokens. */
static bool better(const struct advised_plan *p, const struct advised_plan *than) {
    if (than == NULL || p->forecast.good > than->forecast.good + TIE) return true;
    if (p->forecast.good < than->forecast.good - TIE) return false;
    if (p->forecast.good < TIE) return p->forecast.ttft_ms[Q90] < 0.9 * than->forecast.ttft_ms[Q90];
    return p->borne > MORE * than->borne;
}

static bool choose(struct advise *a) {
    double most[2] = {0, 0}; /* split, and not */
    for (size_t i = 0; i < a->n_plans; i++) {
        const struct advised_plan *p = &a->plans[i];
        double *of = &most[p->mode == SIM_STANDARD];
        if (p->forecast.good > *of) *of = p->forecast.good;
    }
    for (size_t i = 0; i < a->n_plans; i++) { /* simpler ones come first */
        struct advised_plan *p = &a->plans[i];
        const bool whole = p->mode == SIM_STANDARD;
        const struct advised_plan **of = whole ? &a->best_whole : &a->best_split;
        if (p->forecast.good >= most[whole] - TIE && !advise_borne(a, p)) return false;
        if (better(p, *of)) *of = p;
    }
    a->best = a->best_whole;
    if (a->best_split != NULL && better(a->best_split, a->best)) a->best = a->best_split;
    return true;
}

/* ---- how far it may be off */

static void widen(struct range *r, double v) {
    if (v < r->low) r->low = v;
    if (v > r->high) r->high = v;
}

static void widen_all(struct advise *a, const struct forecast *f) {
    widen(&a->good, f->good);
    widen(&a->ttft90, f->ttft_ms[Q90]);
    widen(&a->gap90, f->gap_ms[Q90]);
}

/* Other loads of the same description; of a trace there is one. */
static bool other_seeds(struct advise *a) {
    struct forecast f;
    bool ok = true;
    struct sim_ask *asks = malloc(a->n * sizeof(*asks));
    for (uint64_t seed = 1; asks != NULL && ok && a->trace == NULL && seed <= ADVISE_SEEDS;
         seed++) {
        struct load_shape shape = a->shape;
        struct load_source *source = NULL;
        struct load_ask one;
        shape.seed += seed * 7919;
        ok = load_source_create(&source, &shape) == ERR_OK;
        for (size_t i = 0; ok && i < a->n && load_source_next(source, &one); i++)
            asks[i] = (struct sim_ask){.at_s = one.at_s, .in = one.in, .out = one.out};
        ok = ok && forecast(a, a->best, asks, 1, 1, &f);
        if (ok) widen_all(a, &f);
        load_source_free(&source);
    }
    ok = ok && asks != NULL;
    free(asks);
    return ok;
}

static bool find_ranges(struct advise *a) {
    const struct forecast *f = &a->best->forecast;
    struct forecast other;
    a->good = (struct range){f->good, f->good};
    a->ttft90 = (struct range){f->ttft_ms[Q90], f->ttft_ms[Q90]};
    a->gap90 = (struct range){f->gap_ms[Q90], f->gap_ms[Q90]};
    for (int side = -1; side <= 1; side += 2) {
        if (!forecast(a, a->best, a->asks, 1 + side * a->best->ability->spread, 1, &other))
            return false;
        widen_all(a, &other);
    }
    return other_seeds(a);
}

bool advise_simulate(struct advise *a) {
    for (size_t i = 0; i < a->n_abilities; i++)
        if (!try_plans(a, &a->abilities[i])) return false;
    return choose(a) && find_ranges(a);
}
