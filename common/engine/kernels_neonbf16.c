/* kernels_neonbf16: as kernels_neoni8mm.c, but products of bf16 weights run on bfmmla, at four
 * times the rate of f32: of two pairs of k the sum of each, its products rounded to odd, and so is
 * what they are added to; denormals count as zeros. A row alone takes bfdot, which is one of these
 * two steps, so that the bits are the same. */
#include "common/engine/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) &&                                      \
    defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "common/engine/kernels_neon.h"
#undef ONCE_AHEAD_BYTES
#include "common/engine/kernels_neon_usdot.h"
#define MMLA     "common/engine/kernels_neon_mmla.h"
#define gemm     lanes_gemm
#define x_pack   lanes_x_pack
#define X_GATHER x_gather
#define OWN_BF16 true
#include "common/engine/kernels_lanes.h"
#undef gemm
#undef x_pack

/* ---- activations for bf16 weights: bf16 [tile][k / 2][rows of the tile][2] */

static void x_gather(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                     enum dtype w) {
    if (w == DTYPE_BF16)
        x_gather_words(xp, from, n_rows, rows, n, ((size_t)k + 1) / 2);
    else
        x_gather_columns(xp, from, n_rows, rows, n, k, w);
}

static void x_pack(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w) {
    if (w != DTYPE_BF16) {
        lanes_x_pack(xp, x, x_stride, first, end, k, w);
        return;
    }
    for (int t = first; t < end; t += TILE_ROWS) {
        const size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        uint8_t *dst = (uint8_t *)xp + 2 * (size_t)t * tile_even(k);
        for (size_t r = 0; r < n; r++) {
            const float *row = x + ((size_t)t + r) * x_stride;
            for (int i = 0; i < k; i += LANES) {
                const int len = k - i < LANES ? k - i : LANES;
                uint16_t h[LANES];
                ln_store_bf16(h, get(row + i, len));
                for (int j = 0; j < len; j += 2)
                    memcpy(dst + 4 * ((size_t)(i + j) / 2 * n + r), h + j, 4);
            }
        }
    }
}

/* ---- products. A register tile is six rows by one panel, as pairs of either: 24 accumulators over
 * all of k; or a row alone by four panels. */
LN bfloat16x8_t bf16_of(int32x4_t v) {
    return vreinterpretq_bf16_s32(v);
}
LN int32x4_t pairs_4(const uint8_t *p) {
    return vreinterpretq_s32_u8(vld1q_u8(p));
}

/* Two pairs of k; the second one may be missing: zeros then, in either tile. */
INLINE void bf16_step(float32x4_t sum[MM_PAIRS][8], const uint8_t *x, const uint8_t *panel,
                      int rows, bool both) {
    const int32x4_t none = vdupq_n_s32(0);
    int32x4_t xv[MM_PAIRS];
#pragma GCC unroll 3
    for (int r = 0; r < (rows + 1) / 2; r++)
        xv[r] = both ? mm_x(x + 8 * r, x + 4 * rows + 8 * r)
                     : vzip1q_s32(vcombine_s32(mm_two(x + 8 * r), vdup_n_s32(0)), none);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const int32x4_t first = pairs_4(panel + 16 * i),
                        second = both ? pairs_4(panel + 4 * PANEL_ROWS + 16 * i) : none;
        const int32x4_t low = vzip1q_s32(first, second), high = vzip2q_s32(first, second);
#pragma GCC unroll 3
        for (int r = 0; r < (rows + 1) / 2; r++) {
            sum[r][2 * i] = vbfmmlaq_f32(sum[r][2 * i], bf16_of(low), bf16_of(xv[r]));
            sum[r][2 * i + 1] = vbfmmlaq_f32(sum[r][2 * i + 1], bf16_of(high), bf16_of(xv[r]));
        }
    }
}

INLINE void put_columns(float *y, lanes v, int n_cols) {
    if (n_cols >= PANEL_ROWS)
        ln_store(y, v);
    else
        ln_store_n(y, v, n_cols);
}

INLINE void tile_rows(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *panel,
                      int n_pairs, int rows) {
    float32x4_t sum[MM_PAIRS][8];
#pragma GCC unroll 3
    for (int r = 0; r < (rows + 1) / 2; r++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) sum[r][i] = vdupq_n_f32(0);
    }
    int i = 0;
#pragma GCC unroll 1
    for (; i + 2 <= n_pairs; i += 2, x += 8 * rows, panel += 8 * PANEL_ROWS) {
        fetch(panel + AHEAD_BYTES, false);
        fetch(panel + AHEAD_BYTES + 64, false);
        bf16_step(sum, x, panel, rows, true);
    }
    if (i < n_pairs) bf16_step(sum, x, panel, rows, false);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const float32x4_t *s = sum[r / 2];
        const lanes v = r % 2 == 0 ? (lanes){vuzp1q_f32(s[0], s[1]), vuzp1q_f32(s[2], s[3]),
                                             vuzp1q_f32(s[4], s[5]), vuzp1q_f32(s[6], s[7])}
                                   : (lanes){vuzp2q_f32(s[0], s[1]), vuzp2q_f32(s[2], s[3]),
                                             vuzp2q_f32(s[4], s[5]), vuzp2q_f32(s[6], s[7])};
        put_columns(y + (size_t)r * y_stride, v, n_cols);
    }
}

LN float32x4_t dot_4(float32x4_t acc, int32x4_t w, int32x4_t x) {
    return vbfdotq_f32(acc, bf16_of(w), bf16_of(x));
}
INLINE void tile_row(float *y, int n_cols, const uint8_t *x, const uint8_t *panel,
                     size_t panel_stride, int n_pairs, int panels) {
    const size_t ahead = AHEAD_BYTES / (size_t)panels;
    lanes acc[4];
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) acc[p] = ln_set1(0);
    for (int i = 0; i < n_pairs; i++, panel += 4 * PANEL_ROWS) {
        const int32x4_t v = vreinterpretq_s32_s8(q_x(x + 4 * i));
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            const uint8_t *at = panel + (size_t)p * panel_stride;
            fetch(at + ahead, false);
            acc[p] =
                (lanes){dot_4(acc[p].a, pairs_4(at), v), dot_4(acc[p].b, pairs_4(at + 16), v),
                        dot_4(acc[p].c, pairs_4(at + 32), v), dot_4(acc[p].d, pairs_4(at + 48), v)};
        }
    }
    const int32x4_t none = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) {
        if (n_pairs % 2 != 0) /* as bf16_step() does */
            acc[p] = (lanes){dot_4(acc[p].a, none, none), dot_4(acc[p].b, none, none),
                             dot_4(acc[p].c, none, none), dot_4(acc[p].d, none, none)};
        put_columns(y + p * PANEL_ROWS, acc[p], n_cols - p * PANEL_ROWS);
    }
}

static void gemm_row(float *y, const uint8_t *x, const uint8_t *panels, size_t stride, int n_pairs,
                     int n_cols) {
    const int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS;
    for (int p = 0, n = 0; p < n_panels; p += n) {
        const uint8_t *panel = panels + (size_t)p * stride;
        n = n_panels - p >= 4 ? 4 : 1;
        if (n == 4)
            tile_row(y + p * PANEL_ROWS, n_cols - p * PANEL_ROWS, x, panel, stride, n_pairs, 4);
        else
            tile_row(y + p * PANEL_ROWS, n_cols - p * PANEL_ROWS, x, panel, stride, n_pairs, 1);
    }
}

#define ROWS_CASE(R)                                                                               \
    case R: tile_rows(to, y_stride, cols, x, panel, n_pairs, R); break

static void gemm_pairs(float *y, size_t y_stride, const uint8_t *xp, const uint8_t *panels,
                       int n_rows, int k, int n_cols) {
    const size_t stride = panel_bytes(k, DTYPE_BF16), x_row_bytes = 2 * tile_even(k);
    const int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS, n_pairs = (int)(tile_even(k) / 2);
    for (int m = 0; m < n_rows; m += TILE_ROWS) {
        const int rows = n_rows - m < TILE_ROWS ? n_rows - m : TILE_ROWS;
        const uint8_t *x = xp + (size_t)m * x_row_bytes;
        if (rows == 1) {
            gemm_row(y + (size_t)m * y_stride, x, panels, stride, n_pairs, n_cols);
            continue;
        }
        for (int p = 0; p < n_panels; p++) {
            const uint8_t *panel = panels + (size_t)p * stride;
            float *to = y + (size_t)m * y_stride + (size_t)p * PANEL_ROWS;
            const int cols = n_cols - p * PANEL_ROWS;
            switch (rows) {
                ROWS_CASE(2);
                ROWS_CASE(3);
                ROWS_CASE(4);
                ROWS_CASE(5);
                ROWS_CASE(6);
            }
        }
    }
}

static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w) {
    if (w == DTYPE_BF16)
        gemm_pairs(y, y_stride, xp, panels, n_rows, k, n_cols);
    else
        lanes_gemm(y, y_stride, xp, panels, n_rows, k, n_cols, w);
}

static const struct kernels set = KERNELS_OF_LANES("neonbf16");

const struct kernels *kernels_neonbf16(void) {
    return &set;
}
#else
const struct kernels *kernels_neonbf16(void) {
    return NULL;
}
#endif
