/* kernels_avx512vnni: as kernels_avx512.c, with the integer dot products of VNNI for int8 and int4
 * weights. For processors that have it and no bf16 dot products. */
#include "common/engine/kernels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512DQ__)
#include "common/engine/kernels_zmm.h"
#include "common/engine/kernels_pairs.h"
#include "common/engine/kernels_zmm_pairs.h"
#include "common/engine/kernels_zmm_vnni.h"
#define gemm lanes_gemm
#include "common/engine/kernels_lanes.h"
#undef gemm

/* Those of f32 and bf16 weights are kernels_avx512.c's: loops take long to compile. */
static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w) {
    if (dtype_is_blocks(w))
        gemm_blocks(y, y_stride, xp, panels, n_rows, k, n_cols, w, false);
    else if (dtype_is_quant(w))
        gemm_quant(y, y_stride, xp, panels, n_rows, k, n_cols, w, false);
    else
        kernels_avx512()->gemm(y, y_stride, xp, panels, n_rows, k, n_cols, w);
}

static const struct kernels set = KERNELS_OF_LANES("avx512vnni");

const struct kernels *kernels_avx512vnni(void) {
    (void)lanes_gemm; /* in its place: gemm() */
    return &set;
}
#else
const struct kernels *kernels_avx512vnni(void) {
    return NULL;
}
#endif
