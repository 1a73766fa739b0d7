/* rate_meter: two sums that fade together. */
#include "coordinator/rate_meter.h"

void rate_meter_add(struct rate_meter *m, uint64_t tokens, uint64_t sent_us, uint64_t now_us) {
    uint64_t since = sent_us > m->last_us ? sent_us : m->last_us;
    double seconds = now_us > since ? (double)(now_us - since) / 1e6 : 0;
    m->last_us = now_us;
    m->n_answers++;
    m->tokens += (double)tokens;
    m->seconds += seconds;
    if (m->seconds > RATE_METER_S) {
        m->tokens *= RATE_METER_S / m->seconds;
        m->seconds = RATE_METER_S;
    }
}

double rate_meter_get(const struct rate_meter *m) {
    if (m->n_answers < RATE_METER_ANSWERS_MIN || m->seconds <= 0) return 0;
    return m->tokens / m->seconds;
}
