/* sample_wide_avx512: sixteen floats at a time. */
#include "common/engine/sample_wide.h"
#include <stddef.h>

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>

enum { WIDE = 16 };
#define WIDE_NAME "avx512"
typedef float wide __attribute__((vector_size(64)));
typedef __mmask16 wide_mask;

static inline wide_mask le(wide a, wide b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
static inline wide_mask lt(wide a, wide b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline wide with(wide_mask m, wide a) {
    return _mm512_maskz_mov_ps(m, a);
}
static inline unsigned bits(wide_mask m) {
    return m;
}
static inline wide larger(wide a, wide b) {
    return _mm512_max_ps(a, b);
}
static inline float largest_of(wide a) {
    return _mm512_reduce_max_ps(a);
}

struct wide_sum {
    __m512d low, high;
};
static inline __m512d low_of(wide a) {
    return _mm512_cvtps_pd(_mm512_castps512_ps256(a));
}
static inline __m512d high_of(wide a) {
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
}
static inline void sum_add(struct wide_sum *s, wide a) {
    s->low = _mm512_add_pd(s->low, low_of(a));
    s->high = _mm512_add_pd(s->high, high_of(a));
}
static inline void sum_add_product(struct wide_sum *s, wide a, wide b) {
    s->low = _mm512_add_pd(s->low, _mm512_mul_pd(low_of(a), low_of(b)));
    s->high = _mm512_add_pd(s->high, _mm512_mul_pd(high_of(a), high_of(b)));
}
static inline void sum_add_both(struct wide_sum *s, struct wide_sum *there, wide_mask m, wide a) {
    const __m512d low = low_of(a), high = high_of(a);
    s->low = _mm512_add_pd(s->low, low);
    s->high = _mm512_add_pd(s->high, high);
    there->low = _mm512_mask_add_pd(there->low, (__mmask8)m, there->low, low);
    there->high = _mm512_mask_add_pd(there->high, (__mmask8)(m >> 8), there->high, high);
}
static inline double sum_all(const struct wide_sum *s) {
    return _mm512_reduce_add_pd(_mm512_add_pd(s->low, s->high));
}

#include "common/engine/sample_wide_lanes.h"

const struct sample_wide *sample_wide_avx512(void) {
    return &wide_set;
}
#else
const struct sample_wide *sample_wide_avx512(void) {
    return NULL;
}
#endif
