/* json_skim_avx2: 32 bytes a register. Compiled with -mavx2 -mbmi -mbmi2 -mpclmul -mpopcnt, by
 * which the compiler counts and finds bits; the processor is asked first. */
#include "proto/json_skim_ops.h"

#include <stddef.h>

#if defined(__AVX2__) && defined(__BMI2__) && defined(__PCLMUL__) && defined(__POPCNT__)
#include <immintrin.h>

struct vectors {
    __m256i v[2];
};

INLINE struct vectors load(const unsigned char *p) {
    return (struct vectors){{_mm256_loadu_si256((const __m256i *)(const void *)p),
                             _mm256_loadu_si256((const __m256i *)(const void *)(p + 32))}};
}

INLINE uint64_t mask2(__m256i a, __m256i b) {
    return (uint64_t)(uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b)
                                                             << 32;
}

INLINE uint64_t equal(const struct vectors *x, char c) {
    const __m256i w = _mm256_set1_epi8(c);
    return mask2(_mm256_cmpeq_epi8(x->v[0], w), _mm256_cmpeq_epi8(x->v[1], w));
}

INLINE uint64_t at_most_space(const struct vectors *x) {
    const __m256i w = _mm256_set1_epi8(' ');
    return mask2(_mm256_cmpeq_epi8(_mm256_min_epu8(x->v[0], w), x->v[0]),
                 _mm256_cmpeq_epi8(_mm256_min_epu8(x->v[1], w), x->v[1]));
}

INLINE uint64_t odd_so_far(uint64_t x) {
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)x), _mm_set1_epi8(-1), 0));
}

#include "proto/json_skim_walk.h"

static const struct json_skim ops = JSON_SKIM_OPS;

const struct json_skim *json_skim_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                   __builtin_cpu_supports("pclmul")
               ? &ops
               : NULL;
}
#else
const struct json_skim *json_skim_avx2(void) {
    return NULL;
}
#endif
