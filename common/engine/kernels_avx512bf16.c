/* kernels_avx512bf16: as kernels_avx512.c, but products of bf16 weights run on vdpbf16ps, at twice
 * the rate of f32. */
#include "common/engine/kernels.h"

#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
#include "common/engine/half.h"

/* Zen 5 reads one stream at full rate and four at two thirds of it; processors with AVX-512 and
 * without bf16 products (Cascade Lake) read four streams a tenth faster than one. */
#define ROW_PANELS      1
#define ROW_AHEAD_BYTES 8192
#include "common/engine/kernels_zmm.h"

/* Activations for bf16 weights: bf16 [tile][k / 2][rows of the tile][2]; for f32 weights as
 * everywhere. */
#define X_PACK       x_pack_pairs
#define X_PAIR_BYTES 4
#define PAIR_STEPS   1

typedef __m512bh pairs;

LN pairs pairs_load(const uint8_t *p, int step) {
    (void)step;
    return (pairs)_mm512_loadu_si512(p);
}
LN pairs x_pair_load(const uint8_t *x, int rows, int row, int step) {
    int32_t two;
    (void)rows;
    (void)step;
    memcpy(&two, x + 4 * (size_t)row, sizeof(two));
    return (pairs)_mm512_set1_epi32(two);
}
LN lanes pairs_fma(pairs w, pairs x, lanes acc) {
    return _mm512_dpbf16_ps(acc, w, x);
}

static void x_pack_pairs(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                         enum dtype w) {
    if (w != DTYPE_BF16) {
        x_pack_columns(xp, x, x_stride, first, end, k, w);
        return;
    }
    size_t even = (size_t)(k + (k & 1));
    for (int t = first; t < end; t += TILE_ROWS) {
        size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        uint16_t *dst = (uint16_t *)xp + (size_t)t * even;
        for (size_t r = 0; r < n; r++) {
            const float *src = x + ((size_t)t + r) * x_stride;
            for (size_t i = 0; i < (size_t)k; i++)
                dst[(i / 2 * n + r) * 2 + (i & 1)] = bf16_of_f32(src[i]);
            if (k & 1) dst[((size_t)k / 2 * n + r) * 2 + 1] = 0;
        }
    }
}

static void x_gather(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                     enum dtype w) {
    if (w == DTYPE_BF16)
        x_gather_words(xp, from, n_rows, rows, n, ((size_t)k + 1) / 2);
    else
        x_gather_columns(xp, from, n_rows, rows, n, k, w);
}
#define X_GATHER x_gather

#include "common/engine/kernels_zmm_vnni.h"
#include "common/engine/kernels_lanes.h"

static const struct kernels set = KERNELS_OF_LANES("avx512bf16");

const struct kernels *kernels_avx512bf16(void) {
    return &set;
}
#else
const struct kernels *kernels_avx512bf16(void) {
    return NULL;
}
#endif
