/* fair: whose turn it is among flows that share one resource by weight: start-time fair queueing
 * (Goyal, Vin, Cheng 1996). A flow's place is the virtual time at which its next request starts:
 * where its last one ended, or now, whichever is later; the lowest is next. So over any time in
 * which two flows both wait, what they got differs, each over its weight, by at most one request of
 * each; and a flow that was away has neither saved up turns nor lost any. Pure; costs and times are
 * plain numbers. */
#ifndef BATON_COORDINATOR_FAIR_H
#define BATON_COORDINATOR_FAIR_H

#include <stdbool.h>
#include <stdint.h>

struct fair {
    double now; /* virtual time: where the request served last started */
};
struct fair_flow {
    double weight; /* above 0 */
    double end;    /* where its last request ends */
};

double fair_start(const struct fair *f, const struct fair_flow *w);
/* A request of the flow is served; cost >= 0. */
void fair_charge(struct fair *f, struct fair_flow *w, double cost);
/* What was charged turned out to be so much more (less: negative). */
void fair_correct(struct fair_flow *w, double by);
/* Whether it may hold wanted more of total while others wait: its part of all weights, and always
 * its first request. */
bool fair_within(uint64_t held, uint64_t wanted, uint64_t total, double weight, double weights);

#endif
