/* schedule: which prefill and which decode instance a request goes to (cluster-api 8.2, 8.3). Pure:
 * plain values in, a choice out. */
#ifndef BATON_COORDINATOR_SCHEDULE_H
#define BATON_COORDINATOR_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a policy sees of an instance. Numbers of blocks and slots. One that is in both lists needs
 * no peer: it is a pair by itself. */
struct inst_view {
    uint32_t id;
    unsigned group;
    bool open;  /* published, takes new work, connections below its cap */
    bool whole; /* it is a pair by itself, and of no other */
    /* P: prompt tokens it was given and has not answered, tokens per second as measured (0: not
     * yet), and D's it can hand over to (schedule_count_links()). */
    uint64_t prefill_tokens;
    double prefill_rate;
    size_t links;
    double pass; /* place in the turn: the lowest is next (schedule_turn()) */
    uint64_t slots_total, blocks_total;
    uint64_t slots_booked,
        blocks_booked; /* by requests of this coordinator, not yet seen in a report */
    uint64_t slots_free, blocks_free; /* as last reported, less what was booked since */
    uint64_t blocks_avail;            /* as last reported */
    double token_sum;                 /* expected tokens of the running requests */
    const uint32_t *peers;            /* ids of linked instances of the other role */
    size_t n_peers;
    /* For POLICY_COST. What it has measured: a prompt takes start_s + token_s for each token that
     * is computed, a step with one sequence more step_s, which is step_more_s longer than without
     * it; 0: not measured. */
    double start_s, token_s, step_s, step_more_s;
    double queue_s;      /* of prompts it was given and has not answered, expected */
    double cached;       /* tokens of this prompt whose KV it has, expected */
    unsigned n_prompts;  /* that it was given and has not answered */
    unsigned n_decoding; /* sequences */
    unsigned n_coming;   /* of these, whose prompts are computed still, elsewhere or here */
    bool computes;       /* D: computes prompts of its own */
    const double
        *peer_rate; /* [n_peers] P: bytes a second to each; 0: not measured. NULL: none is */
};

enum policy { POLICY_LOAD_BALANCE, POLICY_ROUND_ROBIN, POLICY_COST, POLICY_CACHE_AFFINITY };

const char *schedule_policy_name(enum policy policy); /* "load_balance", .. */
bool schedule_policy_parse(enum policy *out, const char *name);

struct schedule_conf {
    enum policy policy;
    bool limit_demand; /* select_type 2 */
    double res_limit_rate;
    double coefficients[9]; /* a i o n k m r b c */
    /* POLICY_COST: */
    double weights[4];       /* of prompt, link, decode, shortage (route.h) */
    double local_tokens_max; /* a D computes up to so many tokens of a prompt it has the rest of */
    unsigned prefill_queue_max; /* prompts at every P, above which a D that decodes nothing computes
                                   whole ones; 0: never */
    double token_target_s;      /* of a step, where the demand has none */
    double kv_token_bytes;      /* KV of a token, as transfers said; 0: unknown */
    /* POLICY_CACHE_AFFINITY: parts of all that the home of a request has free */
    double slots_free_min, blocks_free_min;
};

/* What a request takes of an instance. P works on its prompts, D on every sequence drawn from them.
 */
struct demand {
    uint64_t prompts, slots, blocks;
    uint64_t prompt_tokens;    /* of all prompts, estimated */
    double new_tokens;         /* of a sequence, expected */
    double token_target_s;     /* of a step for this request; 0: that of the policy */
    double computed, prompt_s; /* of the pair that was chosen (struct pair_choice) */
    bool whole;    /* one prompt that no attempt has begun: blocks may be fetched for it, and
                      a D may compute it */
    uint32_t home; /* who had the conversation before it (POLICY_CACHE_AFFINITY); 0: nobody */
};

struct pair_choice {
    size_t p, d;     /* indices into the views; where alone is set p is that of no P */
    bool alone;      /* d computes the prompt as well */
    uint32_t kv_at;  /* id of a D that has blocks of the prompt to give back to p; 0: none */
    double computed; /* tokens of the prompt that are computed, and seconds of that; expected; 0:
                        not known */
    double prompt_s;
};

/* What a pick asks of every view: whether it has room for that, and whether two are a pair. */
bool schedule_has_room(const struct schedule_conf *c, const struct inst_view *v, uint64_t slots,
                       uint64_t blocks);
bool schedule_linked(const struct inst_view *p, const struct inst_view *d);

/* Sets links of every P: the open D's of its group that are linked with it, both ways. */
void schedule_count_links(struct inst_view *p, size_t n_p, const struct inst_view *d, size_t n_d);

/* True and *out: the pair. False: no pair has room now. avoid_*: ids not to use (0: none). turn:
 * advances once a call by the caller, for round robin.
 *
 * Load balance. P: the shortest expected wait, which is the tokens in front of the request over the
 * rate of the P, times most links over its own links: what one D cannot take from it goes to the
 * others, and they must not get more of it than their part. A P without a rate counts as a mean
 * one. D: the lowest score (8.2). Among equals the lowest pass, then the lowest id.
 *
 * One that is whole is taken as P by that wait, and where it is the same by the score of a D.
 *
 * Cost: route.h. Cache affinity: the home, as long as more of its slots and blocks are free than
 * the thresholds say; else round robin. */
bool schedule_pick(struct pair_choice *out, const struct schedule_conf *c,
                   const struct inst_view *p, size_t n_p, const struct inst_view *d, size_t n_d,
                   struct demand demand, uint32_t avoid_p, uint32_t avoid_d, uint64_t turn);

/* One turn is over: the chosen instance goes behind. now: the turn's place, of all of one role. A P
 * with twice the links of another has twice its turns; links of a D: 1. An instance that was not
 * chosen for long has not saved up turns. */
void schedule_turn(double *now, double *pass, size_t links);

/* What a request asks for whose prompts have so many characters together (8.2). prompts, sequences:
 * at least 1. by_length false: always one block. */
struct demand schedule_demand(size_t n_chars, unsigned prompts, unsigned sequences,
                              double chars_per_token, unsigned block_tokens, bool by_length);

#endif
