/* kernels_zmm: the operations of kernels_lanes.h where sixteen lanes are one AVX-512 register; for
 * kernels_avx512.c and kernels_avx512bf16.c. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { HEAD_DIM_LANES_MAX = KEY_DIM_MAX, SLICE_BYTES = 32768 };
/* Thirty-two registers: four panels by six rows are 24 accumulators. A single row reads as many
 * streams as it takes panels: ROW_PANELS is what the set's processors read fastest. */
#ifndef ROW_PANELS
#define ROW_PANELS 4
#endif
#define TILE_PANELS(rows) ((rows) == 1 ? ROW_PANELS : 4)
/* Sums carried from slice to slice lie in y a power of two apart, in the same few sets of the
 * caches: slower than weights that come from the second level. */
#define WHOLE_K_ROWS INT32_MAX

#define QUANT_TILES "common/engine/kernels_zmm_quant.h"

typedef __m512 lanes;

#define LN static inline __attribute__((always_inline))

LN __mmask16 below(int n) {
    return (__mmask16)((1u << n) - 1u);
}
LN lanes ln_set1(float f) {
    return _mm512_set1_ps(f);
}
LN lanes ln_load(const float *p) {
    return _mm512_loadu_ps(p);
}
LN void ln_store(float *p, lanes v) {
    _mm512_storeu_ps(p, v);
}
LN lanes ln_load_n(const float *p, int n) {
    return _mm512_maskz_loadu_ps(below(n), p);
}
LN void ln_store_n(float *p, lanes v, int n) {
    _mm512_mask_storeu_ps(p, below(n), v);
}
LN lanes widen(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
LN lanes ln_load_bf16(const uint16_t *p) {
    return widen(_mm256_loadu_si256((const __m256i *)p));
}
LN lanes ln_load_bf16_n(const uint16_t *p, int n) {
    return widen(_mm256_maskz_loadu_epi16(below(n), p));
}
/* Rounded to nearest even in integers, as half.h does: vcvtneps2bf16 would flush denormals. */
LN __m256i round_bf16(lanes v) {
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    __m512i nan = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan));
}
LN void ln_store_bf16(uint16_t *p, lanes v) {
    _mm256_storeu_si256((__m256i *)p, round_bf16(v));
}
LN void ln_store_bf16_n(uint16_t *p, lanes v, int n) {
    _mm256_mask_storeu_epi16(p, below(n), round_bf16(v));
}
LN lanes ln_add(lanes x, lanes y) {
    return _mm512_add_ps(x, y);
}
LN lanes ln_sub(lanes x, lanes y) {
    return _mm512_sub_ps(x, y);
}
LN lanes ln_mul(lanes x, lanes y) {
    return _mm512_mul_ps(x, y);
}
LN lanes ln_div(lanes x, lanes y) {
    return _mm512_div_ps(x, y);
}
LN lanes ln_max(lanes x, lanes y) {
    return _mm512_max_ps(x, y);
}
LN lanes ln_min(lanes x, lanes y) {
    return _mm512_min_ps(x, y);
}
LN lanes ln_fma(lanes x, lanes y, lanes z) {
    return _mm512_fmadd_ps(x, y, z);
}
LN lanes ln_fnma(lanes x, lanes y, lanes z) {
    return _mm512_fnmadd_ps(x, y, z);
}
LN lanes ln_fms(lanes x, lanes y, lanes z) {
    return _mm512_fmsub_ps(x, y, z);
}
LN lanes ln_round(lanes x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
LN lanes ln_pow2(lanes n) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
/* Lanes i and i + 8 added. */
LN __m256 fold(lanes x) {
    return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}
LN void ln_sum4(float out[4], lanes w, lanes x, lanes y, lanes z) {
    __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(fold(w), fold(x)), _mm256_hadd_ps(fold(y), fold(z)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
LN float ln_sum(lanes x) {
    float out[4];
    ln_sum4(out, x, x, x, x);
    return out[0];
}
LN float ln_max_of(lanes x) {
    __m256 m = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
/* Saturated; what is no number becomes -32768. */
LN void ln_store_i16(int16_t *p, lanes v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}
/* Rows of int8 KV. */
LN lanes ln_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
LN lanes ln_load_i8_n(const int8_t *p, int n) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(below(n), p)));
}
LN void ln_store_i8(int8_t *p, lanes v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}
LN void ln_store_i8_n(int8_t *p, lanes v, int n) {
    _mm_mask_storeu_epi8(p, below(n), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}
