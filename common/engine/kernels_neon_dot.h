/* kernels_neon_dot: products of int8, int4 and block weights with activations, of bytes by bytes;
 * for the sets of kernels_neon.h, which define
 *
 *   int32x4_t dot_signed(acc, int8x16_t w, int8x16_t x)       four sums of four products each; w
 * and int32x4_t dot_unsigned(acc, uint8x16_t w, uint8x16_t x)   x: 128 is the largest magnitude
 *   int32x4_t dot_small(acc, int8x16_t w, int8x16_t x)        the same of signed ones, where two
 *                                                             products sum up to 16 bits
 *   Q_SIGNED   1: products are of signed weights. 0: those of int8, which lie unsigned, are taken
 * as they lie, by dot_mixed(acc, uint8x16_t w, int8x16_t x)
 *
 * Activations of 16 bits are two bytes, 256 upper + lower: over a group sum = 256 (sum of the upper
 * ones' products) + (sum of the lower ones'), which is exact. */
#include "common/engine/kernels_blocks.h"

typedef struct {
    int32x4_t a, b, c, d; /* rows 0..3, 4..7, 8..11, 12..15 of a panel */
} ints;
typedef int8x16_t quant_x;

LN enum dtype q_kind(enum dtype w) {
    return w;
}
LN uint8x16_t bytes_of(int32x4_t v) {
    return vreinterpretq_u8_s32(v);
}
LN int8x16_t signed_of(int32x4_t v) {
    return vreinterpretq_s8_s32(v);
}

/* The upper bytes meet signed weights (Q_SIGNED), the lower ones unsigned weights. */
LN int32x4_t q_load_4(const uint8_t *p, int step, enum dtype w) {
    uint8x16_t v = vld1q_u8(p);
    if (w == DTYPE_INT4)
        v = step == 0 ? vandq_u8(v, vdupq_n_u8(15)) : vshrq_n_u8(v, 4);
    else if (Q_SIGNED && step == 0)
        v = veorq_u8(v, vdupq_n_u8(QUANT_OFFSET8));
    return vreinterpretq_s32_u8(v);
}
LN ints q_load(const uint8_t *p, int step, enum dtype w) {
    return (ints){q_load_4(p, step, w), q_load_4(p + 16, step, w), q_load_4(p + 32, step, w),
                  q_load_4(p + 48, step, w)};
}
LN quant_x q_x(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof(four));
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
LN ints q_all(int32_t v) {
    const int32x4_t all = vdupq_n_s32(v);
    return (ints){all, all, all, all};
}
LN ints q_begin(int32_t sum, enum dtype w) {
    return q_all(w == DTYPE_INT4 || (w == DTYPE_INT8_NARROW && !Q_SIGNED) ? sum : 0);
}
#define Q_NARROW    1
#define Q_PASSES(w) ((w) == DTYPE_INT8 ? 2 : 1)
LN int32x4_t q_next_4(int32x4_t upper, int32x4_t begin) {
    return vaddq_s32(vshlq_n_s32(upper, 8), begin);
}
LN ints q_next(ints sum, int32_t begin) {
    const int32x4_t v = vdupq_n_s32(begin);
    return (ints){q_next_4(sum.a, v), q_next_4(sum.b, v), q_next_4(sum.c, v), q_next_4(sum.d, v)};
}
LN int32x4_t q_dot_4(int32x4_t acc, int32x4_t q, quant_x x, int step, enum dtype w) {
    if (w == DTYPE_INT4) return dot_small(acc, signed_of(q), x);
    if (w == DTYPE_INT8 && step == 1) return dot_unsigned(acc, bytes_of(q), vreinterpretq_u8_s8(x));
#if !Q_SIGNED
    return dot_mixed(acc, bytes_of(q), x);
#else
    return w == DTYPE_INT8 ? dot_signed(acc, signed_of(q), x) : dot_small(acc, signed_of(q), x);
#endif
}
#define Q_DOT(acc, q, x, step, w) q_dot(acc, q, x, step, w)
LN ints q_dot(ints acc, ints q, quant_x x, int step, enum dtype w) {
    return (ints){q_dot_4(acc.a, q.a, x, step, w), q_dot_4(acc.b, q.b, x, step, w),
                  q_dot_4(acc.c, q.c, x, step, w), q_dot_4(acc.d, q.d, x, step, w)};
}
LN lanes as_lanes(ints v) {
    return (lanes){vcvtq_f32_s32(v.a), vcvtq_f32_s32(v.b), vcvtq_f32_s32(v.c), vcvtq_f32_s32(v.d)};
}
LN lanes q_end(ints acc, enum dtype w) {
    (void)w;
    return as_lanes(acc);
}

/* Of block formats. A row alone takes two panels: sums and accumulators are sixteen registers. */
#define BLOCK_PANELS(rows) ((rows) == 1 ? 2 : 1)
typedef int8x16_t b_table;

LN b_table b_codes(enum dtype w) {
    return vld1q_s8(block_codes(w));
}
LN ints b_load(const uint8_t *p) {
    return (ints){vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p + 16)),
                  vreinterpretq_s32_u8(vld1q_u8(p + 32)), vreinterpretq_s32_u8(vld1q_u8(p + 48))};
}
LN int32x4_t b_values_4(int32x4_t v, int step, int32x4_t high, enum dtype kind, b_table table) {
    const uint8x16_t q = step == 0 ? vandq_u8(bytes_of(v), vdupq_n_u8(15))
                                   : vshrq_n_u8(bytes_of(v), 4),
                     h = bytes_of(high);
    if (kind == DTYPE_Q5_K)
        return vreinterpretq_s32_u8(vorrq_u8(
            q, vandq_u8(step == 0 ? vshlq_n_u8(h, 4) : vshlq_n_u8(h, 3), vdupq_n_u8(0x10))));
    if (kind == DTYPE_Q6_K)
        return vreinterpretq_s32_u8(vorrq_u8(
            q, vandq_u8(step == 0 ? vshlq_n_u8(h, 4) : vshlq_n_u8(h, 2), vdupq_n_u8(0x30))));
    return kind == DTYPE_IQ4_NL ? vreinterpretq_s32_s8(vqtbl1q_s8(table, q))
                                : vreinterpretq_s32_u8(q);
}
LN ints b_values(ints v, int step, ints high, enum dtype kind, b_table table) {
    return (ints){
        b_values_4(v.a, step, high.a, kind, table), b_values_4(v.b, step, high.b, kind, table),
        b_values_4(v.c, step, high.c, kind, table), b_values_4(v.d, step, high.d, kind, table)};
}
LN int32x4_t b_next_4(int32x4_t high, int n) {
    return vreinterpretq_s32_u8(n == 2 ? vshrq_n_u8(bytes_of(high), 2)
                                       : vshrq_n_u8(bytes_of(high), 4));
}
LN ints b_next(ints high, int n) {
    return (ints){b_next_4(high.a, n), b_next_4(high.b, n), b_next_4(high.c, n),
                  b_next_4(high.d, n)};
}
/* Q6_K begins with what its offset of 32 takes off. */
LN int32_t b_word(int32_t low, int32_t high) {
    return -32 * (low + high);
}
LN ints b_begin(const int32_t *words, int n, int half, enum dtype kind) {
    return q_all(kind == DTYPE_Q6_K ? words[half * n] : 0);
}
LN ints b_dot(ints acc, ints q, quant_x x, enum dtype kind) {
    (void)kind;
    return (ints){dot_small(acc.a, signed_of(q.a), x), dot_small(acc.b, signed_of(q.b), x),
                  dot_small(acc.c, signed_of(q.c), x), dot_small(acc.d, signed_of(q.d), x)};
}
LN lanes b_end(ints acc, enum dtype kind) {
    (void)kind;
    return as_lanes(acc);
}
