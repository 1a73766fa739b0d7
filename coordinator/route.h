/* route: which pair answers a request soonest, by what instances have measured and by which of them
 * has its beginning computed already (cluster-api 8.4). The policy POLICY_COST of schedule.h. Pure.
 *
 * The cost of a pair is a time in seconds, a sum of four parts, each with its weight:
 *
 *   prompt    what waits in front of it, and what of the prompt has to be computed: there, or
 *             behind blocks that another decode instance has and gives back
 *   link      what of the KV has to go to the decode instance after the prompt is computed
 *   decode    its tokens, by the step of a batch with one more, and what that step takes longer for
 *             the sequences that are in it; time beyond the target for a token counts four times
 *   shortage  the part of its blocks that is not free, as so much of an answer's time
 *
 * A decode instance that has nearly all of a prompt computes the rest itself, beside what it
 * decodes, when that costs no more: then the pair is that instance alone. */
#ifndef BATON_COORDINATOR_ROUTE_H
#define BATON_COORDINATOR_ROUTE_H

#include "coordinator/forecast.h"
#include "coordinator/schedule.h"
#include "proto/perf_msg.h"

struct route_cost {
    double prompt_s, link_s, decode_s, shortage_s; /* without weights */
    double computed;                               /* tokens of the prompt that are computed */
    size_t from; /* index of the D that gives blocks back; n_d: none does */
};

/* Sets what a view has measured, for a prompt of so many tokens and decoding at a context.
 * prompt_pace, step_pace: factors of these seconds (abilities.h). */
void route_measure(struct inst_view *v, const struct perf_msg *perf, double prompt_pace,
                   double step_pace, double tokens, double context);

/* Of p and d: views that are linked. Where p is NULL d computes the prompt itself. */
void route_cost_of(struct route_cost *out, const struct schedule_conf *c, const struct inst_view *p,
                   const struct inst_view *d, size_t n_d, const struct inst_view *at,
                   const struct demand *demand);
/* As schedule_pick(). What is not known of any instance is left to POLICY_LOAD_BALANCE: false with
 * *known false. */
bool route_pick(struct pair_choice *out, const struct schedule_conf *c, const struct inst_view *p,
                size_t n_p, const struct inst_view *d, size_t n_d, const struct demand *demand,
                uint32_t avoid_p, uint32_t avoid_d, bool *known);

/* Gives each D the sequences that will decode beside a request that is placed now: of those whose
 * prompts are computed still, which come one after the other while what waits at prefill instances
 * is computed, as many as come while an answer takes its time. The views have been measured; true:
 * they have to be again, as some changed. */
bool route_expect(const struct inst_view *p, size_t n_p, struct inst_view *d, size_t n_d,
                  const struct demand *demand);
/* What is known of a request that would be placed now, for forecast.h: pair_s, own_s, step_s and
 * idle. The views lose their queues. */
void route_look_ahead(struct forecast_facts *f, const struct schedule_conf *c, struct inst_view *p,
                      size_t n_p, struct inst_view *d, size_t n_d, const struct demand *demand);

/* Seconds until the first token at the best pair of a request that is placed now, whether there is
 * room for it or not: to wait for that is not in it. 0: nobody knows. */
double route_first_token_s(const struct schedule_conf *c, const struct inst_view *p, size_t n_p,
                           const struct inst_view *d, size_t n_d, const struct demand *demand);

#endif
