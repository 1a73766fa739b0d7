/* prefix_keys: marks of a client's input, by which the beginning that two bodies share is found
 * without reading them as text: a hash of all bytes up to a cut. Cuts are made where the bytes say
 * so, so they fall on the same bytes in every body that begins alike: at most a sixteenth apart,
 * and behind closing braces, which is where messages end. Pure. */
#ifndef BATON_COORDINATOR_PREFIX_KEYS_H
#define BATON_COORDINATOR_PREFIX_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PREFIX_KEYS_MAX = 256,
    PREFIX_KEY_BRACES = 96,        /* the last ones are cuts */
    PREFIX_KEY_BYTES_MAX = 1 << 20 /* what lies behind is not looked at */
};

struct prefix_key {
    uint64_t hash; /* never 0 */
    uint32_t at;   /* bytes of the input before it */
    bool behind_brace;
};

/* The cuts of p[0..n), first to last, of what lies between cuts nothing is known. seed: of what
 * stands before the input: whose request it is, the model, its tools. */
size_t prefix_keys_of(struct prefix_key out[PREFIX_KEYS_MAX], uint64_t seed, const char *p,
                      size_t n);
/* Adds to what stands before the input. */
uint64_t prefix_keys_mix(uint64_t seed, const char *p, size_t n);

#endif
