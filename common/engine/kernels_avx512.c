/* kernels_avx512: sixteen lanes in one register. For processors with AVX-512 F, BW, DQ, VL;
 * kernels.c asks first. */
#include "common/engine/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "common/engine/kernels_zmm.h"
#include "common/engine/kernels_pairs.h"
#include "common/engine/kernels_zmm_pairs.h"
#include "common/engine/kernels_zmm_madd.h"
#include "common/engine/kernels_lanes.h"

static const struct kernels set = KERNELS_OF_LANES("avx512");

const struct kernels *kernels_avx512(void) {
    return &set;
}
#else
const struct kernels *kernels_avx512(void) {
    return NULL;
}
#endif
