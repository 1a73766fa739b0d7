/* load_random: numbers for workloads, by a seed. Pure. */
#ifndef BATON_TOOLS_LOAD_RANDOM_H
#define BATON_TOOLS_LOAD_RANDOM_H

#include <math.h>
#include <stdint.h>
#include "common/base/splitmix.h"

struct load_random {
    uint64_t state;
};

static inline uint64_t load_random_u64(struct load_random *r) {
    return splitmix_next(&r->state);
}

static inline double load_random_unit(struct load_random *r) { /* (0, 1] */
    return splitmix_unit(&r->state) + 0x1p-53;
}

static inline double load_random_exp(struct load_random *r) { /* mean 1 */
    return -log(load_random_unit(r));
}

#endif
