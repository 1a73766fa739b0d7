/* sim_oracle: what could be had of a load that is known before, by ratios alone. */
#ifndef BATON_TOOLS_SIM_ORACLE_H
#define BATON_TOOLS_SIM_ORACLE_H

#include "tools/sim/sim_run.h"

enum { SIM_WINDOWS_MAX = 10000 };

/* A ratio for every window of window_s, found by trying: the best one of all first, and then for
 * each window after the other the one with which the whole run has most good requests, as long as
 * there is a better one. Changes cost nothing; what waits is inherited. ERR_NO_MEMORY. */
enum err sim_oracle(uint64_t *good, const struct sim_conf *c, const struct sim_ask *asks, size_t n,
                    double window_s);
/* More than can be had: the best that a fixed ratio does in every window by itself, which begins
 * with idle instances whatever waited before. */
enum err sim_bound(uint64_t *good, const struct sim_conf *c, const struct sim_ask *asks, size_t n,
                   double window_s);

#endif
