/* arrivals: what came in the last seconds, how fast, and how unevenly. Sums that fade. Pure. */
#ifndef BATON_COORDINATOR_ARRIVALS_H
#define BATON_COORDINATOR_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

/* Old arrivals fade with window_s. What comes in a window of that length is compared with the other
 * ones of the last ARRIVALS_WINDOWS: what changes more slowly can be followed, what changes faster
 * has to be made room for. All zero but window_s at first. */
enum { ARRIVALS_WINDOWS = 24 };
struct arrivals {
    double window_s;
    double prompts, tokens, sequences, prompt_s, prompt_ss; /* faded sums; of squares */
    uint64_t first_us, last_us;                             /* of one clock; 0: none yet */
    /* the window that is not over; faded sums over those that are: how many, of each, of squares */
    uint64_t from_us;
    double now_s, now_n, windows, sum_s, sum_ss, sum_n, sum_nn;
};

/* A request of n_prompts prompts of so many tokens together, and of what is drawn from them. */
void arrivals_add(struct arrivals *a, double n_prompts, double tokens, double sequences,
                  double prompt_s, uint64_t now_us);
/* Seconds of prompts and sequences that come in a second: the mean of the last ARRIVALS_WINDOWS
 * windows, or that of the last one alone where it differs from them by more than chance. */
struct arrivals_rate {
    double prompt_s, sequences;
};
struct arrivals_rate arrivals_rate(const struct arrivals *a, uint64_t now_us);
/* Whether a number is so far from its mean, by twice what it commonly is. */
bool arrivals_differs(double x, double mean, double variance);
/* Requests a second, lately. */
double arrivals_per_s(const struct arrivals *a, uint64_t now_us);

/* The variance of the seconds of prompts that come in a while, over their mean: for requests that
 * come independently that is a mean prompt, weighed by its length; the longer the crowds they come
 * in, the more. In seconds; 0: nothing came. */
double arrivals_unevenness_s(const struct arrivals *a);
/* The same of the number of sequences: 1 when they come independently. */
double arrivals_unevenness(const struct arrivals *a);

#endif
