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

struct doctor;

enum { Q50, Q90, Q99, QUANTILES };
struct forecast {
    double good; /* share of the requests that meet both targets, 0 to 1 */
    double good_per_s;
    /* token_ms: the mean gap of an answer. */
    double answers_per_s; /* from the first request to the last answer */
    double ttft_ms[QUANTILES], gap_ms[QUANTILES], token_ms[QUANTILES], ttft_mean_ms, gap_mean_ms;
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

/* One prefill and one decode instance that were started here, each of one thread. */
struct advise_cluster {
    struct ctl_child child; /* batonctl serve; pid 0: none runs */
    char base[96], manage[96];
    struct perf_msg perf; /* what both have measured of themselves */
};

/* What was forecast of that cluster, and what it did. */
struct advise_held {
    double rate; /* requests a second; 0: nothing was run */
    size_t n;
    struct forecast said, is;
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
    bool clients_here; /* their processor time is the machine's */
    struct advise_cluster cluster;
    struct advise_held held;
    double link_bytes_per_s, ttft_ms, gap_ms, seconds;
    const char *link_from; /* "given", "handed over", "measured", "assumed" */
    double busy; /* the part of this machine at work before it was measured, 0 to 1; -1: it was not
                    measured */
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
/* advise_ways.c. False: that was said. */
bool advise_cluster_start(struct advise *a, const char *model, const char *dtype);
void advise_cluster_end(struct advise *a);
/* What lies between clients and engines, into the times of all abilities. */
bool advise_ways(struct advise *a);
/* Runs the load at half of what the cluster is expected to bear, into a->held. */
bool advise_hold(struct advise *a);
const char *advise_arrivals(enum load_arrivals kind);
/* advise_measure.c: bytes a second that hand-overs have had of all links, or that a measurement
 * finds where there was none, into a->link_bytes_per_s, unless --link says it. */
void advise_link(struct advise *a, struct doctor *d);
/* advise_plan.c. False: no memory. */
bool advise_simulate(struct advise *a);
bool advise_forecast(const struct advise *a, const struct advised_plan *p, struct forecast *out);
bool advise_borne(const struct advise *a, struct advised_plan *p); /* finds p->borne */
const char *advise_plan_name(const struct advised_plan *p, char text[48]);

#endif
