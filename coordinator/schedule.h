/* schedule: which prefill and which decode instance a request goes to (cluster-api 8.2, 8.3). Pure:
 * plain values in, a choice out. */
#ifndef BATON_COORDINATOR_SCHEDULE_H
#define BATON_COORDINATOR_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a policy sees of an instance. Numbers of blocks and slots. */
struct inst_view {
    uint32_t id;
    unsigned group;
    bool open; /* published, takes new work, connections below its cap */
    uint64_t slots_total, blocks_total;
    uint64_t slots_booked,
        blocks_booked;     /* by requests of this coordinator, not yet seen in a report */
    uint64_t blocks_avail; /* as last reported */
    double token_sum;      /* expected tokens of the running requests */
    const uint32_t *peers; /* ids of linked instances of the other role */
    size_t n_peers;
};

enum policy { POLICY_LOAD_BALANCE, POLICY_ROUND_ROBIN };

struct schedule_conf {
    enum policy policy;
    bool limit_demand; /* select_type 2 */
    double res_limit_rate;
    double coefficients[9]; /* a i o n k m r b c */
};

struct demand {
    uint64_t slots, blocks;
};

struct pair_choice {
    size_t p, d; /* indices into the views */
};

/* True and *out: the pair. False: no pair has room now. avoid_*: ids not to use (0: none). turn:
 * advances once a call by the caller, for round robin. */
bool schedule_pick(struct pair_choice *out, const struct schedule_conf *c,
                   const struct inst_view *p, size_t n_p, const struct inst_view *d, size_t n_d,
                   struct demand demand, uint32_t avoid_p, uint32_t avoid_d, uint64_t turn);

/* blocks of a prompt of so many characters (8.2). by_length false: always one. */
struct demand schedule_demand(size_t n_chars, double chars_per_token, unsigned block_tokens,
                              bool by_length);

/* Fixed ratio (7.3): how many of n instances prefill; at least one of each when n >= 2. Rates of 0:
 * one to one. */
size_t schedule_n_prefill(size_t n, unsigned p_rate, unsigned d_rate);

#endif
