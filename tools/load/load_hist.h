/* load_hist: a histogram of durations with classes of 1%, from a microsecond to an hour. Pure. */
#ifndef BATON_TOOLS_LOAD_HIST_H
#define BATON_TOOLS_LOAD_HIST_H

#include <stddef.h>
#include <stdint.h>

enum { LOAD_HIST_CLASSES = 2214 };

struct load_hist {
    uint64_t n;
    double sum_us, max_us;
    uint32_t classes[LOAD_HIST_CLASSES];
};

void load_hist_add(struct load_hist *h, double us); /* below 1 counts as 1, over an hour as one */
void load_hist_merge(struct load_hist *to, const struct load_hist *from);
/* The duration that a share q of [0, 1] of all is not above, within 1%; 0 when empty. */
double load_hist_quantile(const struct load_hist *h, double q);
double load_hist_mean(const struct load_hist *h);
/* The share that is at most `us`; 1 when empty. */
double load_hist_share(const struct load_hist *h, double us);

#endif
