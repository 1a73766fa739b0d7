/* load_hist: class c holds durations up to 1.01^c microseconds. */
#include "tools/load/load_hist.h"

#include <math.h>

static const double STEP = 1.01;

static size_t class_of(double us) {
    if (!(us > 1)) return 0;
    const double c = ceil(log(us) / log(STEP) - 1e-9);
    return c < LOAD_HIST_CLASSES - 1 ? (size_t)c : LOAD_HIST_CLASSES - 1;
}

void load_hist_add(struct load_hist *h, double us) {
    if (!(us > 0)) us = 0;
    h->n++;
    h->sum_us += us;
    if (us > h->max_us) h->max_us = us;
    h->classes[class_of(us)]++;
}

void load_hist_merge(struct load_hist *to, const struct load_hist *from) {
    to->n += from->n;
    to->sum_us += from->sum_us;
    if (from->max_us > to->max_us) to->max_us = from->max_us;
    for (size_t i = 0; i < LOAD_HIST_CLASSES; i++) to->classes[i] += from->classes[i];
}

double load_hist_quantile(const struct load_hist *h, double q) {
    if (h->n == 0) return 0;
    const double want = q * (double)h->n;
    uint64_t seen = 0;
    for (size_t i = 0; i < LOAD_HIST_CLASSES; i++) {
        seen += h->classes[i];
        if (seen > 0 && (double)seen >= want) return fmin(pow(STEP, (double)i), h->max_us);
    }
    return h->max_us;
}

double load_hist_mean(const struct load_hist *h) {
    return h->n == 0 ? 0 : h->sum_us / (double)h->n;
}

double load_hist_share(const struct load_hist *h, double us) {
    if (h->n == 0) return 1;
    uint64_t within = 0;
    for (size_t i = 0, last = class_of(us); i <= last; i++) within += h->classes[i];
    return (double)within / (double)h->n;
}
