/* sim_oracle: many runs. */
#include "tools/sim/sim_oracle.h"

#include <math.h>
#include <stdlib.h>

enum { ROUNDS_MAX = 2 };

struct search {
    struct sim_conf conf;
    const struct sim_ask *asks;
    size_t n;
    struct sim_result *r;
    enum err e;
};

static uint64_t good_of(struct search *x) {
    if (x->e == ERR_OK) x->e = sim_run(x->r, &x->conf, x->asks, x->n);
    return x->e == ERR_OK ? x->r->good : 0;
}

/* One ratio for all of the run. */
static uint64_t best_ratio(struct search *x, unsigned *ratio) {
    const unsigned parts =
        x->conf.instances < SIM_RATIO_PARTS ? x->conf.instances : SIM_RATIO_PARTS;
    uint64_t best = 0;
    x->conf.n_ratios = 0;
    *ratio = SIM_RATIO_PARTS / 2;
    for (unsigned p = 1; x->e == ERR_OK && p < parts; p++) {
        x->conf.p_rate = p;
        x->conf.d_rate = parts - p;
        const uint64_t good = good_of(x);
        if (good <= best) continue;
        best = good;
        *ratio = (p * SIM_RATIO_PARTS + parts / 2) / parts;
    }
    return best;
}

/* Another ratio in one window, by steps that get shorter. */
static uint64_t better_window(struct search *x, unsigned *ratio, uint64_t best) {
    const int least = x->conf.instances < SIM_RATIO_PARTS
                          ? (int)((SIM_RATIO_PARTS + x->conf.instances - 1) / x->conf.instances)
                          : 1;
    for (int step = 4; step >= 1; step /= 2) {
        if (step < least && step > 1) continue;
        for (int sign = -1; sign <= 1; sign += 2) {
            const unsigned was = *ratio;
            const int by = sign * (step > least ? step : least), to = (int)was + by;
            if (to < 1 || to >= SIM_RATIO_PARTS) continue;
            *ratio = (unsigned)to;
            const uint64_t good = good_of(x);
            if (good > best)
                best = good;
            else
                *ratio = was;
        }
    }
    return best;
}

static bool search_start(struct search *x, const struct sim_conf *c, const struct sim_ask *asks,
                         size_t n) {
    *x = (struct search){.conf = *c, .asks = asks, .n = n};
    x->conf.mode = SIM_FIXED;
    x->conf.n_ratios = 0;
    x->r = malloc(sizeof(*x->r));
    x->e = x->r != NULL ? ERR_OK : ERR_NO_MEMORY;
    return x->r != NULL;
}

enum err sim_oracle(uint64_t *good, const struct sim_conf *c, const struct sim_ask *asks, size_t n,
                    double window_s) {
    struct search x;
    const double span_s = n > 0 ? asks[n - 1].at_s : 0;
    size_t windows = (size_t)fmin(floor(span_s / window_s) + 1, SIM_WINDOWS_MAX);
    unsigned *ratios = calloc(windows, sizeof(*ratios)), ratio;
    *good = 0;
    if (search_start(&x, c, asks, n) && ratios != NULL) {
        uint64_t best = best_ratio(&x, &ratio), before = 0;
        for (size_t k = 0; k < windows; k++) ratios[k] = ratio;
        x.conf.ratios = ratios;
        x.conf.n_ratios = windows;
        x.conf.ratio_window_s = window_s;
        for (int round = 0; round < ROUNDS_MAX && best > before; round++) {
            before = best;
            for (size_t k = 0; k < windows && best < n; k++)
                best = better_window(&x, &ratios[k], best);
        }
        *good = best;
    }
    const enum err e = ratios == NULL ? ERR_NO_MEMORY : x.e;
    free(x.r);
    free(ratios);
    return e;
}

enum err sim_bound(uint64_t *good, const struct sim_conf *c, const struct sim_ask *asks, size_t n,
                   double window_s) {
    struct sim_ask *part = malloc((n + 1) * sizeof(*part));
    struct search x;
    *good = 0;
    if (!search_start(&x, c, asks, 0) || part == NULL) x.e = ERR_NO_MEMORY;
    x.asks = part;
    for (size_t from = 0, to; x.e == ERR_OK && from < n; from = to) {
        const double begin = floor(asks[from].at_s / window_s) * window_s;
        unsigned ratio;
        for (to = from; to < n && (to == from || asks[to].at_s < begin + window_s); to++) {
            part[to - from] = asks[to];
            part[to - from].at_s -= begin;
        }
        x.n = to - from;
        *good += best_ratio(&x, &ratio);
    }
    free(x.r);
    free(part);
    return x.e;
}
