/* advise: `batonctl advise`: abilities (advise_measure.c), simulated under every plan that there is
 * (advise_plan.c, over tools/sim), and what follows from that (ctl_advise.c). Thread: one. */
#ifndef BATON_TOOLS_CTL_ADVISE_H
#define BATON_TOOLS_CTL_ADVISE_H

#include "tools/ctl/ctl.h"
#include "tools/load/load_source.h"
#include "tools/sim/sim_run.h"

enum {
    ADVISE_INSTANCES_MAX = 64,
    ADVISE_ABILITIES_MAX = 5, /* types of weights */
    ADVISE_PLANS_MAX = ADVISE_ABILITIES_MAX * 20,
    ADVISE_SEEDS = 4,
};

/* What an instance can do with one type of weights. */
struct ability {
    char dtype[16], kernels[16];
    struct perf_msg perf;
    struct sim_times times;
    double kv_token_bytes, weight_bytes;
    double spread; /* of the times of one thing, relative; 0: unknown */
};

enum { Q50, Q90, Q99, QUANTILES };
struct forecast {
    double good; /* share of the requests that meet both targets, 0 to 1 */
    double good_per_s;
    double ttft_ms[QUANTILES], gap_ms[QUANTILES], ttft_mean_ms, gap_mean_ms;
    uint64_t unfinished;
};

struct advised_plan {
    const struct ability *ability;
    enum sim_mode mode;
    unsigned p, d; /* SIM_FIXED: p + d instances */
    struct forecast forecast;
    double borne; /* requests a second with 95 of 100 within the targets; of the best alone */
};

struct range {
    double low, high;
};

struct advise {
    struct ctl *c;
    struct load_shape shape;
    const char *trace;
    double rate;
    struct sim_ask *asks;
    size_t n;
    double mean_in, mean_out;
    uint32_t longest_in;
    unsigned instances, per_machine, slots;
    double link_bytes_per_s, ttft_ms, gap_ms, seconds;
    struct ability abilities[ADVISE_ABILITIES_MAX];
    size_t n_abilities;
    struct advised_plan plans[ADVISE_PLANS_MAX];
    size_t n_plans;
    /* of the best: what other seeds and the spread of the measuring make of it */
    const struct advised_plan *best, *best_split, *best_whole;
    struct range good, ttft90, gap90;
};

/* advise_measure.c. False: that was said. */
bool advise_abilities(struct advise *a);
/* advise_plan.c. False: no memory. */
bool advise_simulate(struct advise *a);
const char *advise_plan_name(const struct advised_plan *p, char text[48]);

#endif
