/* kernels_neoni8mm: as kernels_neondot.c, with the products of two rows by two rows of bytes of
 * Armv8.6 for int8, int4 and block weights. For processors that have these and none of bf16. */
#include "common/engine/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8)
#include "common/engine/kernels_neon.h"
#include "common/engine/kernels_neon_usdot.h"
#define MMLA "common/engine/kernels_neon_mmla.h"
#include "common/engine/kernels_lanes.h"

static const struct kernels set = KERNELS_OF_LANES("neoni8mm");

const struct kernels *kernels_neoni8mm(void) {
    return &set;
}
#else
const struct kernels *kernels_neoni8mm(void) {
    return NULL;
}
#endif
