/* load_random: numbers for workloads, by a seed. Pure. */
#ifndef BATON_TOOLS_LOAD_RANDOM_H
#define BATON_TOOLS_LOAD_RANDOM_H

#include <math.h>
#include <stdint.h>

struct load_random {
    uint64_t state;
};

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t load_random_u64(struct load_random *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double load_random_unit(struct load_random *r) { /* (0, 1] */
    return ((double)(load_random_u64(r) >> 11) + 1) * 0x1p-53;
}

static inline double load_random_exp(struct load_random *r) { /* mean 1 */
    return -log(load_random_unit(r));
}

#endif
