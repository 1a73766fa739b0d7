/* fair: tags of virtual time. */
#include "coordinator/fair.h"

double fair_start(const struct fair *f, const struct fair_flow *w) {
    return w->end > f->now ? w->end : f->now;
}

void fair_charge(struct fair *f, struct fair_flow *w, double cost) {
    f->now = fair_start(f, w);
    w->end = f->now + cost / w->weight;
}

void fair_correct(struct fair_flow *w, double by) {
    w->end += by / w->weight;
    if (w->end < 0) w->end = 0;
}

bool fair_within(uint64_t held, uint64_t wanted, uint64_t total, double weight, double weights) {
    return held == 0 || (double)(held + wanted) * weights <= (double)total * weight;
}
