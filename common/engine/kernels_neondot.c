/* kernels_neondot: as kernels_neon.c, with the dot products of bytes of Armv8.2 (sdot, udot). */
#include "common/engine/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include "common/engine/kernels_neon.h"
#include "common/engine/kernels_neon_sdot.h"
#define Q_SIGNED 1
#include "common/engine/kernels_neon_dot.h"
#include "common/engine/kernels_lanes.h"

static const struct kernels set = KERNELS_OF_LANES("neondot");

const struct kernels *kernels_neondot(void) {
    return &set;
}
#else
const struct kernels *kernels_neondot(void) {
    return NULL;
}
#endif
