/* sample_wide_avx2: eight floats at a time. */
#include "common/engine/sample_wide.h"
#include <stddef.h>

#if defined(__AVX2__)
#include <immintrin.h>

enum { WIDE = 8 };
#define WIDE_NAME "avx2"
typedef float wide __attribute__((vector_size(32)));
typedef __m256 wide_mask;

static inline wide_mask le(wide a, wide b) {
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
static inline wide_mask lt(wide a, wide b) {
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline wide with(wide_mask m, wide a) {
    return _mm256_and_ps(m, a);
}
static inline unsigned bits(wide_mask m) {
    return (unsigned)_mm256_movemask_ps(m);
}
static inline wide larger(wide a, wide b) {
    return _mm256_max_ps(a, b);
}
static inline float largest_of(wide a) {
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)));
}

struct wide_sum {
    __m256d low, high;
};
static inline __m256d low_of(wide a) {
    return _mm256_cvtps_pd(_mm256_castps256_ps128(a));
}
static inline __m256d high_of(wide a) {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
}
static inline void sum_add(struct wide_sum *s, wide a) {
    s->low = _mm256_add_pd(s->low, low_of(a));
    s->high = _mm256_add_pd(s->high, high_of(a));
}
static inline void sum_add_product(struct wide_sum *s, wide a, wide b) {
    s->low = _mm256_add_pd(s->low, _mm256_mul_pd(low_of(a), low_of(b)));
    s->high = _mm256_add_pd(s->high, _mm256_mul_pd(high_of(a), high_of(b)));
}
static inline void sum_add_both(struct wide_sum *s, struct wide_sum *there, wide_mask m, wide a) {
    sum_add(s, a);
    sum_add(there, with(m, a));
}
static inline double sum_all(const struct wide_sum *s) {
    const __m256d v = _mm256_add_pd(s->low, s->high);
    return (v[0] + v[1]) + (v[2] + v[3]);
}

#include "common/engine/sample_wide_lanes.h"

const struct sample_wide *sample_wide_avx2(void) {
    return &wide_set;
}
#else
const struct sample_wide *sample_wide_avx2(void) {
    return NULL;
}
#endif
