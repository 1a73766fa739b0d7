/* sim_run: a cluster in virtual time. The daemon's own planner (coordinator/plan.h, role_needs.h)
 * gives roles, its router (schedule.h, route.h) gives pairs; instances are what proto/perf_msg.h
 * says of them. Times in seconds. Thread: one. The same input gives the same output.
 *
 * An instance computes prompts one after the other, or in passes of chunks of all that wait where
 * `times` has chunks, and decodes its sequences step by step; one that does both gives prompts
 * their part of the time between two steps. Layers go to the decode instance while later ones are
 * computed; the first token is there when the KV is, and when what lies between instance and client
 * has taken its time (tools/sim/sim_times.h). Instances of one machine share its cores
 * (tools/sim/sim_host.h). One that changes its role takes nothing new for switch_s, then it has the
 * new role, and what is left of the old one ends there beside it. */
#ifndef BATON_TOOLS_SIM_RUN_H
#define BATON_TOOLS_SIM_RUN_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/perf_msg.h"
#include "tools/load/load_hist.h"
#include "tools/sim/sim_times.h"

enum { SIM_INSTANCES_MAX = 1000, SIM_SLOTS_MAX = 1024, SIM_RATIO_PARTS = 16 };

enum sim_mode { SIM_FOLLOW, SIM_FIXED, SIM_STANDARD };

struct sim_conf {
    enum sim_mode mode;
    unsigned instances;      /* 2 to SIM_INSTANCES_MAX; SIM_STANDARD: 1 as well */
    unsigned p_rate, d_rate; /* SIM_FIXED */
    const unsigned *ratios;  /* SIM_FIXED, [n_ratios]: instead of these so many of SIM_RATIO_PARTS
                                prefill in each window of ratio_window_s, the last one from then on;
                                roles change at once, for nothing. n_ratios 0: they do not */
    size_t n_ratios;
    double ratio_window_s;
    bool reference;                /* pairs by the reference's score, not by cost */
    double reject_factor;          /* as pd.reject_factor; 0: nobody is refused */
    unsigned slots;                /* sequences that an instance decodes at a time */
    bool flex, unsplit;            /* SIM_FOLLOW: one of a group may do both, all of it */
    double first_token_s, token_s; /* targets; token_s is that of the mean gap of an answer */
    double link_bytes_per_s, kv_token_bytes; /* 0: hand-overs take no time */
    uint32_t cache_blocks; /* of prefixes that an instance keeps, of block_tokens of the requests */
    bool blind;            /* the router does not know of them */
    double switch_s;       /* in which one that changes its role takes nothing new */
    double window_s, cool_s; /* of the planner */
    struct perf_msg perf;
    struct sim_times times;
    unsigned per_host; /* instances of a machine, whose cores they share where times.cores says; at
                          least 1 */
};

struct sim_ask {
    double at_s;
    uint32_t in, out; /* at least 1 */
    uint32_t number;  /* orders what comes at one time */
    uint32_t copy;    /* beginnings are shared with those of the same alone */
    uint32_t n_blocks, block_tokens;
    const uint64_t *blocks; /* [n_blocks] names of its first tokens, block_tokens each */
};

struct sim_result {
    uint64_t asked, ended, good; /* good: within both targets */
    uint64_t refused;            /* at once, as their first token would have come too late */
    uint64_t
        unfinished; /* an hour after the last arrival; 0 but for an overload beyond all bounds */
    uint64_t moves, shares;              /* switches of a role, changes of a share */
    uint64_t tokens, fetched;            /* fetched: prompts whose beginning came back from a D */
    double prompt_tokens, cached_tokens; /* of what got a pair; of these in caches */
    double span_s, end_s;                /* of the arrivals, of the last answer */
    struct load_hist ttft, gaps,
        mean_gaps; /* mean_gaps: one for each answer of two tokens or more */
};

/* asks[0..n): in the order of their times. ERR_NO_MEMORY. */
enum err sim_run(struct sim_result *out, const struct sim_conf *c, const struct sim_ask *asks,
                 size_t n);

#endif
