/* kernels_zmm_vnni: products of unsigned weights with signed activations by VNNI, which adds to a
 * 32-bit sum without saturation: vpdpwssd pairs of 16 bits, vpdpbusd fours of 8. For the sets with
 * AVX-512 VNNI. */

/* Written out: of the intrinsics gcc unrolled loads far ahead of their use, and spilled. */
#ifndef VPDPBUSD
#define VPDPBUSD(acc, u, s) __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s))
#define VPDPWSSD(acc, a, b) __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b))
#endif

typedef __m512i ints;
typedef __m512i quant_x;

LN enum dtype q_kind(enum dtype w) {
    return w;
}

LN ints q_load(const uint8_t *p, int step, enum dtype w) {
    __m512i v = _mm512_loadu_si512(p);
    if (w == DTYPE_INT8_NARROW) return v;
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
    (void)w;
    return _mm512_set1_epi32(sum);
}
LN ints q_dot(ints acc, ints q, quant_x x, enum dtype w) {
    if (w == DTYPE_INT8)
        VPDPWSSD(acc, q, x);
    else
        VPDPBUSD(acc, q, x);
    return acc;
}
LN ints q_add(ints a, ints b, enum dtype w) {
    (void)w;
    return _mm512_add_epi32(a, b);
}
LN lanes q_end(ints acc, enum dtype w) {
    (void)w;
    return _mm512_cvtepi32_ps(acc);
}

/* Of block formats: sums of a unit in 32 bits. Q6_K begins with what its offset of 32 takes off,
 * codes, looked up with an offset of 128, with four times as much. */
#define BLOCK_CODES_OFFSET 128
#include "common/engine/kernels_zmm_blocks.h"

LN int32_t b_word(int32_t low, int32_t high) {
    return -32 * (low + high);
}
LN ints b_begin(const int32_t *words, int n, int half, enum dtype kind) {
    if (kind == DTYPE_Q6_K) return _mm512_set1_epi32(words[half * n]);
    if (kind == DTYPE_IQ4_NL) return _mm512_set1_epi32((words[0] + words[n]) * 4);
    return _mm512_setzero_si512();
}
LN ints b_dot(ints acc, ints q, quant_x x, enum dtype kind) {
    (void)kind;
    return _mm512_dpbusd_epi32(acc, q, x);
}
LN lanes b_end(ints acc, enum dtype kind) {
    (void)kind;
    return _mm512_cvtepi32_ps(acc);
}
