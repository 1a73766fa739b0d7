/* near_text: how far apart two names are, for messages that name what may have been meant. Pure. */
#ifndef BATON_BASE_NEAR_TEXT_H
#define BATON_BASE_NEAR_TEXT_H

#include <stddef.h>

enum { NEAR_TEXT_BYTES_MAX = 256 };

/* Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment), without
 * regard to case. What is beyond NEAR_TEXT_BYTES_MAX bytes of either is not looked at. */
size_t near_distance(const char *a, size_t n_a, const char *b, size_t n_b);

#endif
