/* rate_meter: tokens per second of an instance that works on several requests at once, from the
 * answers it gives. An answer's time is what passed since the answer before it, or since its own
 * request was sent when that was later: so the times of overlapping requests add up to the time the
 * instance was busy. Old answers fade: the newest RATE_METER_S seconds of work count. Pure. */
#ifndef BATON_COORDINATOR_RATE_METER_H
#define BATON_COORDINATOR_RATE_METER_H

#include <stdint.h>

enum { RATE_METER_S = 10, RATE_METER_ANSWERS_MIN = 4 };

struct rate_meter {
    double tokens, seconds;
    uint64_t n_answers, last_us;
};

/* A request of so many tokens, sent at sent_us, was answered at now_us (one clock). */
void rate_meter_add(struct rate_meter *m, uint64_t tokens, uint64_t sent_us, uint64_t now_us);
/* Tokens per second; 0: fewer than RATE_METER_ANSWERS_MIN answers yet. */
double rate_meter_get(const struct rate_meter *m);

#endif
