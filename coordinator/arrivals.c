/* arrivals: sums that fade. */
#include "coordinator/arrivals.h"

#include <math.h>

static const double WINDOWS_MIN = 4; /* fewer say nothing of how they differ */
static const double MISSED = 8; /* where so many are missed (crowds), there is a load no more */

static double faded(const struct arrivals *a, uint64_t now_us) {
    if (a->last_us == 0 || now_us <= a->last_us) return 1;
    return exp(-(double)(now_us - a->last_us) * 1e-6 / a->window_s);
}

static double span_of(const struct arrivals *a, uint64_t now_us) {
    const double age = now_us > a->first_us ? (double)(now_us - a->first_us) * 1e-6 : 0;
    const double span = a->window_s * (1 - exp(-age / a->window_s));
    return span > 1 ? span : 1; /* what came in less is no rate yet */
}

/* Ends the windows that are over; those without an arrival count as well. */
static void end_windows(struct arrivals *a, uint64_t now_us) {
    const double keep = 1 - 1.0 / ARRIVALS_WINDOWS;
    if (a->from_us == 0) a->from_us = now_us;
    const double over =
        now_us > a->from_us ? floor((double)(now_us - a->from_us) * 1e-6 / a->window_s) : 0;
    if (over < 1) return;
    a->windows = a->windows * keep + 1;
    a->sum_s = a->sum_s * keep + a->now_s;
    a->sum_ss = a->sum_ss * keep + a->now_s * a->now_s;
    a->sum_n = a->sum_n * keep + a->now_n;
    a->sum_nn = a->sum_nn * keep + a->now_n * a->now_n;
    const double left = pow(keep, over - 1); /* after those in which nothing came */
    a->windows = a->windows * left + (1 - left) * ARRIVALS_WINDOWS;
    a->sum_s *= left;
    a->sum_ss *= left;
    a->sum_n *= left;
    a->sum_nn *= left;
    a->now_s = a->now_n = 0;
    a->from_us += (uint64_t)(over * a->window_s * 1e6);
}

void arrivals_add(struct arrivals *a, double n_prompts, double tokens, double sequences,
                  double prompt_s, uint64_t now_us) {
    const double keep = faded(a, now_us);
    if (a->first_us == 0) a->first_us = now_us;
    a->prompts = a->prompts * keep + n_prompts;
    a->tokens = a->tokens * keep + tokens;
    a->sequences = a->sequences * keep + sequences;
    a->prompt_s = a->prompt_s * keep + prompt_s;
    a->prompt_ss = a->prompt_ss * keep + (n_prompts > 0 ? prompt_s * prompt_s / n_prompts : 0);
    if (now_us > a->last_us) a->last_us = now_us;
    end_windows(a, now_us);
    a->now_s += prompt_s;
    a->now_n += sequences;
}

double arrivals_per_s(const struct arrivals *a, uint64_t now_us) {
    return a->prompts * faded(a, now_us) / span_of(a, now_us);
}

/* Variance over mean of what came in a window. */
static double spread(const struct arrivals *a, double sum, double squares) {
    if (a->windows < WINDOWS_MIN || !(sum > 0)) return 0;
    const double mean = sum / a->windows;
    return fmax(squares / a->windows - mean * mean, 0) / mean;
}

double arrivals_unevenness_s(const struct arrivals *a) {
    const double alone = a->prompt_s > 0 ? a->prompt_ss / a->prompt_s : 0;
    return fmax(spread(a, a->sum_s, a->sum_ss), alone);
}

double arrivals_unevenness(const struct arrivals *a) {
    return fmax(spread(a, a->sum_n, a->sum_nn), 1);
}

bool arrivals_differs(double x, double mean, double variance) {
    return fabs(x - mean) > 2 * sqrt(variance);
}

/* lately: what came in span seconds; unevenly as said. Since the last one there was silence. */
static double rate_of(const struct arrivals *a, double lately, double span, double sum,
                      double uneven, double silence_s) {
    if (a->windows < WINDOWS_MIN) return lately / span;
    const double mean = sum / a->windows / a->window_s;
    if (mean * silence_s > MISSED * uneven) return lately / span;
    return arrivals_differs(lately, mean * span, mean * span * uneven) ? lately / span : mean;
}

struct arrivals_rate arrivals_rate(const struct arrivals *a, uint64_t now_us) {
    const double keep = faded(a, now_us), span = span_of(a, now_us);
    const double silence_s = now_us > a->last_us ? (double)(now_us - a->last_us) * 1e-6 : 0;
    struct arrivals all = *a;
    if (a->first_us != 0) end_windows(&all, now_us);
    return (struct arrivals_rate){
        rate_of(&all, a->prompt_s * keep, span, all.sum_s, arrivals_unevenness_s(a), silence_s),
        rate_of(&all, a->sequences * keep, span, all.sum_n, arrivals_unevenness(a), silence_s)};
}
