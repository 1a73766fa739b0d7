/* kernels_neon: Advanced SIMD as every aarch64 has it, without products of bytes of its own: those
 * are widened, and summed in pairs. */
#include "common/engine/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include "common/engine/kernels_neon.h"

/* (even rows, odd rows) of low and high: sixteen products as eight sums of two. */
LN int32x4_t dot_small(int32x4_t acc, int8x16_t w, int8x16_t x) {
    return vpadalq_s16(acc,
                       vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x)));
}
LN int32x4_t dot_signed(int32x4_t acc, int8x16_t w, int8x16_t x) {
    return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x))),
                                     vpaddlq_s16(vmull_high_s8(w, x))));
}
LN int32x4_t dot_unsigned(int32x4_t acc, uint8x16_t w, uint8x16_t x) {
    const uint32x4_t sum = vpaddq_u32(vpaddlq_u16(vmull_u8(vget_low_u8(w), vget_low_u8(x))),
                                      vpaddlq_u16(vmull_high_u8(w, x)));
    return vaddq_s32(acc, vreinterpretq_s32_u32(sum));
}
#define Q_SIGNED 1
#include "common/engine/kernels_neon_dot.h"
#include "common/engine/kernels_lanes.h"

static const struct kernels set = KERNELS_OF_LANES("neon");

const struct kernels *kernels_neon(void) {
    return &set;
}
#else
const struct kernels *kernels_neon(void) {
    return NULL;
}
#endif
