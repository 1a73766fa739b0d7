/* kernels_neon_usdot: products of unsigned weights and signed activations (usdot of Armv8.6), by
 * which weights of int8 are multiplied as they lie. For the sets that have kernels_neon_mmla.h. */
#include "common/engine/kernels_neon_sdot.h"

LN int32x4_t dot_mixed(int32x4_t acc, uint8x16_t w, int8x16_t x) {
    return vusdotq_s32(acc, w, x);
}
#define Q_SIGNED 0
#include "common/engine/kernels_neon_dot.h"
