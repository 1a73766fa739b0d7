/* kernels_avx512vnni: as kernels_avx512.c, with the integer dot products of VNNI for int8 and int4
 * weights. For processors that have it and no bf16 dot products. */
#include "common/engine/kernels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512DQ__)
#include "common/engine/kernels_zmm.h"
#include "common/engine/kernels_pairs.h"
#include "common/engine/kernels_zmm_pairs.h"
#include "common/engine/kernels_zmm_vnni.h"
#include "common/engine/kernels_lanes.h"

static const struct kernels set = KERNELS_OF_LANES("avx512vnni");

const struct kernels *kernels_avx512vnni(void) {
    return &set;
}
#else
const struct kernels *kernels_avx512vnni(void) {
    return NULL;
}
#endif
