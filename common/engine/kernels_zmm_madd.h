/* kernels_zmm_madd: products of unsigned weights with signed activations where there is no VNNI; as
 * kernels_avx2.c does them. For kernels_avx512.c. */

/* Steps are added one by one, and each is multiplied when it is its turn: left free, gcc sums two
 * of them first, and spills. */
#ifndef IN_TURN
#define IN_TURN(v) __asm__ volatile("" : "+v"(v))
#endif

typedef __m512i ints;
typedef __m512i quant_x;

/* Bytes of both would saturate: narrow activations are laid out, and multiplied, as wide ones. */
LN enum dtype q_kind(enum dtype w) {
    return x_layout_plain(w);
}

LN ints q_load(const uint8_t *p, int step, enum dtype w) {
    __m512i v = _mm512_loadu_si512(p);
    if (w == DTYPE_INT8)
        return step == 0 ? _mm512_and_si512(v, _mm512_set1_epi16(0xff)) : _mm512_srli_epi16(v, 8);
    return _mm512_and_si512(step == 0 ? v : _mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}
LN quant_x q_x(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof(four));
    return _mm512_set1_epi32(four);
}
LN ints q_begin(int32_t sum, enum dtype w) {
    return _mm512_set1_epi32(w == DTYPE_INT8 ? sum : sum & 0xffff);
}
LN ints q_dot(ints acc, ints q, quant_x x, enum dtype w) {
    IN_TURN(x);
    acc = w == DTYPE_INT8 ? _mm512_add_epi32(acc, _mm512_madd_epi16(q, x))
                          : _mm512_add_epi16(acc, _mm512_maddubs_epi16(q, x));
    IN_TURN(acc);
    return acc;
}
LN ints q_add(ints a, ints b, enum dtype w) {
    return w == DTYPE_INT8 ? _mm512_add_epi32(a, b) : _mm512_add_epi16(a, b);
}
LN lanes q_end(ints acc, enum dtype w) {
    if (w == DTYPE_INT4) acc = _mm512_madd_epi16(acc, _mm512_set1_epi16(1));
    return _mm512_cvtepi32_ps(acc);
}

/* Of block formats: Q4_K and Q6_K keep a unit's sums in 16 bits, as kernels_avx2.c says; the others
 * widen each step. Codes are signed: their signs go to the activations. */
#define BLOCK_CODES_OFFSET 0
#include "common/engine/kernels_zmm_blocks.h"

LN int32_t b_word(int32_t low, int32_t high) {
    return (int32_t)((uint32_t)(-32 * low) & 0xffffu) | (int32_t)((uint32_t)(-32 * high) << 16);
}
LN ints b_begin(const int32_t *words, int n, int half, enum dtype kind) {
    return kind == DTYPE_Q6_K ? _mm512_set1_epi32(words[half * n]) : _mm512_setzero_si512();
}
LN ints b_dot(ints acc, ints q, quant_x x, enum dtype kind) {
    if (kind == DTYPE_Q4_K || kind == DTYPE_Q6_K)
        return _mm512_add_epi16(acc, _mm512_maddubs_epi16(q, x));
    if (kind == DTYPE_IQ4_NL) {
        x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(q), _mm512_setzero_si512(), x);
        q = _mm512_abs_epi8(q);
    }
    return _mm512_add_epi32(acc,
                            _mm512_madd_epi16(_mm512_maddubs_epi16(q, x), _mm512_set1_epi16(1)));
}
LN lanes b_end(ints acc, enum dtype kind) {
    if (kind == DTYPE_Q4_K || kind == DTYPE_Q6_K)
        acc = _mm512_madd_epi16(acc, _mm512_set1_epi16(1));
    return _mm512_cvtepi32_ps(acc);
}
