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
#define X_GATHER     x_gather
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
                         enum dtype w);

#include "common/engine/kernels_zmm_vnni.h"
#include "common/engine/kernels_lanes.h"

/* [k / 2][n] pairs of bf16. */
INLINE void pairs_of(uint8_t *dst, size_t n, const float *x, size_t x_stride, size_t k,
                     size_t count) {
    size_t i = 0;
    for (; i + LANES <= k; i += LANES) {
        __m256i v[4];
#pragma GCC unroll 4
        for (size_t r = 0; r < count; r++) v[r] = round_bf16(ln_load(x + r * x_stride + i));
        turn_out(dst + 2 * i * n, n, v, (int)count);
    }
    for (; i < k; i += 2) {
        for (size_t r = 0; r < count; r++) {
            const float *at = x + r * x_stride + i;
            const uint16_t two[2] = {bf16_of_f32(at[0]), i + 1 < k ? bf16_of_f32(at[1]) : 0};
            memcpy(dst + 2 * i * n + 4 * r, two, sizeof(two));
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

static void x_pack_pairs(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                         enum dtype w) {
    if (w != DTYPE_BF16) {
        pack_columns(xp, x, x_stride, first, end, k, w);
        return;
    }
    const size_t cols = (size_t)k, up = cols + (cols & 1);
    for (int t = first; t < end; t += TILE_ROWS) {
        const size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        const float *rows = x + (size_t)t * x_stride;
        uint8_t *dst = (uint8_t *)xp + 2 * (size_t)t * up;
#define PAIRS(R, N) pairs_of(dst + 4 * (R), n, rows + (R)*x_stride, x_stride, cols, N)
        PACK_ROWS(PAIRS, n)
#undef PAIRS
    }
}

static const struct kernels set = KERNELS_OF_LANES("avx512bf16");

const struct kernels *kernels_avx512bf16(void) {
    return &set;
}
#else
const struct kernels *kernels_avx512bf16(void) {
    return NULL;
}
#endif
