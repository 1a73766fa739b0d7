/* kernels_neon: the operations of kernels_lanes.h where sixteen lanes are four registers of
 * Advanced SIMD, which every aarch64 has; for the sets of that architecture. What differs from
 * x86-64 on its own is made alike here: a maximum beside a NaN, and what a NaN is as an integer. */
#include <arm_neon.h>
#include <string.h>

enum { HEAD_DIM_LANES_MAX = KEY_DIM_MAX, SLICE_BYTES = 256 * 1024 };
#define ONCE_AHEAD_BYTES 2048
#define QUANT_TILES      "common/engine/kernels_tile_quant.h"
#define PACKING          "common/engine/kernels_neon_pack.h"
/* Thirty-two registers: six rows by one panel are 24 accumulators, beside which a step needs four
 * of weights and one of activations. */
#define TILE_PANELS(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)

typedef struct {
    float32x4_t a, b, c, d; /* lanes 0..3, 4..7, 8..11, 12..15 */
} lanes;

#define LN static inline __attribute__((always_inline))

LN lanes ln_set1(float f) {
    const float32x4_t v = vdupq_n_f32(f);
    return (lanes){v, v, v, v};
}
LN lanes ln_load(const float *p) {
    return (lanes){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
LN void ln_store(float *p, lanes v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}
/* Of fewer than all: so that the compiler knows it too. */
LN size_t lanes_of(int n) {
    return (size_t)(n & (LANES - 1));
}
LN lanes ln_load_n(const float *p, int n) {
    float f[LANES] = {0};
    memcpy(f, p, lanes_of(n) * sizeof(*f));
    return ln_load(f);
}
LN void ln_store_n(float *p, lanes v, int n) {
    float f[LANES];
    ln_store(f, v);
    memcpy(p, f, lanes_of(n) * sizeof(*f));
}
LN lanes ln_load_bf16(const uint16_t *p) {
    const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return (lanes){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)),
                   vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)),
                   vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(high), 16)),
                   vreinterpretq_f32_u32(vshll_high_n_u16(high, 16))};
}
LN lanes ln_load_bf16_n(const uint16_t *p, int n) {
    uint16_t h[LANES] = {0};
    memcpy(h, p, lanes_of(n) * sizeof(*h));
    return ln_load_bf16(h);
}
/* Rounded to nearest even in integers, as half.h does: the upper halves are meant. */
LN uint32x4_t round_bf16(float32x4_t v) {
    const uint32x4_t u = vreinterpretq_u32_f32(v),
                     odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1)),
                     up = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd),
                     nan = vorrq_u32(u, vdupq_n_u32(0x400000));
    return vbslq_u32(vceqq_f32(v, v), up, nan);
}
LN uint16x8_t round_bf16_8(float32x4_t low, float32x4_t high) {
    return vshrn_high_n_u32(vshrn_n_u32(round_bf16(low), 16), round_bf16(high), 16);
}
LN void ln_store_bf16(uint16_t *p, lanes v) {
    vst1q_u16(p, round_bf16_8(v.a, v.b));
    vst1q_u16(p + 8, round_bf16_8(v.c, v.d));
}
LN void ln_store_bf16_n(uint16_t *p, lanes v, int n) {
    uint16_t h[LANES];
    ln_store_bf16(h, v);
    memcpy(p, h, lanes_of(n) * sizeof(*h));
}

#define LN_TWO(OP, x, y) ((lanes){OP(x.a, y.a), OP(x.b, y.b), OP(x.c, y.c), OP(x.d, y.d)})
LN lanes ln_add(lanes x, lanes y) {
    return LN_TWO(vaddq_f32, x, y);
}
LN lanes ln_sub(lanes x, lanes y) {
    return LN_TWO(vsubq_f32, x, y);
}
LN lanes ln_mul(lanes x, lanes y) {
    return LN_TWO(vmulq_f32, x, y);
}
LN lanes ln_div(lanes x, lanes y) {
    return LN_TWO(vdivq_f32, x, y);
}
/* y where either is no number, or both are zeros. */
LN float32x4_t max4(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
LN float32x4_t min4(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
LN lanes ln_max(lanes x, lanes y) {
    return LN_TWO(max4, x, y);
}
LN lanes ln_min(lanes x, lanes y) {
    return LN_TWO(min4, x, y);
}
LN lanes ln_fma(lanes x, lanes y, lanes z) {
    return (lanes){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                   vfmaq_f32(z.d, x.d, y.d)};
}
LN lanes ln_fnma(lanes x, lanes y, lanes z) {
    return (lanes){vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b), vfmsq_f32(z.c, x.c, y.c),
                   vfmsq_f32(z.d, x.d, y.d)};
}
LN lanes ln_fms(lanes x, lanes y, lanes z) {
    return ln_fma(x, y, (lanes){vnegq_f32(z.a), vnegq_f32(z.b), vnegq_f32(z.c), vnegq_f32(z.d)});
}
LN lanes ln_round(lanes x) {
    return (lanes){vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)};
}
LN float32x4_t pow2_4(float32x4_t n) {
    const int32x4_t i = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(i, 23));
}
LN lanes ln_pow2(lanes n) {
    return (lanes){pow2_4(n.a), pow2_4(n.b), pow2_4(n.c), pow2_4(n.d)};
}
LN void ln_sum4(float out[4], lanes w, lanes x, lanes y, lanes z) {
    const float32x4_t low = vpaddq_f32(vpaddq_f32(vaddq_f32(w.a, w.c), vaddq_f32(x.a, x.c)),
                                       vpaddq_f32(vaddq_f32(y.a, y.c), vaddq_f32(z.a, z.c))),
                      high = vpaddq_f32(vpaddq_f32(vaddq_f32(w.b, w.d), vaddq_f32(x.b, x.d)),
                                        vpaddq_f32(vaddq_f32(y.b, y.d), vaddq_f32(z.b, z.d)));
    vst1q_f32(out, vaddq_f32(low, high));
}
LN float ln_sum(lanes x) {
    float out[4];
    ln_sum4(out, x, x, x, x);
    return out[0];
}
LN float ln_max_of(lanes x) {
    const float32x4_t m = max4(max4(x.a, x.c), max4(x.b, x.d)), h = max4(m, vextq_f32(m, m, 2));
    return vgetq_lane_f32(max4(h, vextq_f32(h, h, 1)), 0);
}
/* Rounded to even; what is no number is the least there is. */
LN int32x4_t whole(float32x4_t v) {
    return vbslq_s32(vceqq_f32(v, v), vcvtnq_s32_f32(v), vdupq_n_s32(INT32_MIN));
}
LN int16x8_t whole_8(float32x4_t low, float32x4_t high) {
    return vqmovn_high_s32(vqmovn_s32(whole(low)), whole(high));
}
LN void ln_store_i16(int16_t *p, lanes v) {
    vst1q_s16(p, whole_8(v.a, v.b));
    vst1q_s16(p + 8, whole_8(v.c, v.d));
}
/* Sixteen bytes, or numbers of 16 bits, as f32. */
LN lanes of_i16(int16x8_t low, int16x8_t high) {
    return (lanes){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                   vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                   vcvtq_f32_s32(vmovl_high_s16(high))};
}
LN lanes ln_load_i8(const int8_t *p) {
    const int8x16_t v = vld1q_s8(p);
    return of_i16(vmovl_s8(vget_low_s8(v)), vmovl_high_s8(v));
}
LN lanes ln_load_i8_n(const int8_t *p, int n) {
    int8_t b[LANES] = {0};
    memcpy(b, p, lanes_of(n));
    return ln_load_i8(b);
}
LN void ln_store_i8(int8_t *p, lanes v) {
    vst1q_s8(p, vqmovn_high_s16(vqmovn_s16(whole_8(v.a, v.b)), whole_8(v.c, v.d)));
}
LN void ln_store_i8_n(int8_t *p, lanes v, int n) {
    int8_t b[LANES];
    ln_store_i8(b, v);
    memcpy(p, b, lanes_of(n));
}
LN lanes ln_load_f16(const uint16_t *p) {
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p)),
                      high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return (lanes){vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
                   vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
}
/* Sixteen bytes as numbers of 32 bits. */
LN uint32x4x4_t bytes16(const uint8_t *p) {
    const uint8x16_t v = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_high_u8(v);
    return (uint32x4x4_t){{vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low),
                           vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)}};
}
LN lanes ln_load_u8(const uint8_t *p) {
    const uint32x4x4_t v = bytes16(p);
    return (lanes){vcvtq_f32_u32(v.val[0]), vcvtq_f32_u32(v.val[1]), vcvtq_f32_u32(v.val[2]),
                   vcvtq_f32_u32(v.val[3])};
}
LN float32x4_t e8m0_4(uint32x4_t e) {
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23),
                     small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal));
}
LN lanes ln_load_e8m0(const uint8_t *p) {
    const uint32x4x4_t v = bytes16(p);
    return (lanes){e8m0_4(v.val[0]), e8m0_4(v.val[1]), e8m0_4(v.val[2]), e8m0_4(v.val[3])};
}

/* Of 16 pairs of bf16. */
#include "common/engine/kernels_pairs.h"

LN float32x4_t pair_4(const uint8_t *p, int step) {
    const uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(p));
    return vreinterpretq_f32_u32(step == 0 ? vandq_u32(v, vdupq_n_u32(0xffff0000u))
                                           : vshlq_n_u32(v, 16));
}
LN pairs pairs_load(const uint8_t *p, int step) {
    return (pairs){pair_4(p, step), pair_4(p + 16, step), pair_4(p + 32, step),
                   pair_4(p + 48, step)};
}
