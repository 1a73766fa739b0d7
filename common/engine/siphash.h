/* siphash: SipHash-2-4, a keyed 64-bit hash of short messages (Aumasson and Bernstein, 2012). With
 * a random key nobody outside can choose prompts that collide. */
#ifndef BATON_ENGINE_SIPHASH_H
#define BATON_ENGINE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t siphash24(const uint8_t key[16], const void *bytes, size_t n);

#endif
