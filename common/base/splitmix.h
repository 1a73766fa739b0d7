/* splitmix: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * 2014): numbers that look random, of a counter or of a key. Pure; no secret, and no hash against
 * those who choose its keys. */
#ifndef BATON_BASE_SPLITMIX_H
#define BATON_BASE_SPLITMIX_H

#include <stdint.h>

#define SPLITMIX_GAMMA 0x9e3779b97f4a7c15u

/* One to one; neighbours come out far apart. */
static inline uint64_t splitmix_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t splitmix_next(uint64_t *state) {
    return splitmix_mix(*state += SPLITMIX_GAMMA);
}

/* 53 bits: [0, 1) */
static inline double splitmix_unit(uint64_t *state) {
    return (double)(splitmix_next(state) >> 11) * 0x1p-53;
}

#endif
