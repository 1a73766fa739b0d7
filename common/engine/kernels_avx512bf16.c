/* kernels_avx512bf16: as kernels_avx512.c, but products of bf16 weights run on vdpbf16ps, at twice
 * the rate of f32. */
#include "common/engine/kernels.h"

#if defined(__AVX512BF16__) && defined(__AVX512DQ__)

/* Zen 5 reads one stream at full rate and four at two thirds of it; processors with AVX-512 and
 * without bf16 products (Cascade Lake) read four streams a tenth faster than one. */
#define ROW_PANELS      1
#define ROW_AHEAD_BYTES 8192
/* But Xeons with bf16 products read quantised rows faster in four. Few rows are read in one stream
 * too; where sums are many per byte, twelve of them. */
#define FEW_PANELS(rows, w)                                                                        \
    ((rows) == 1 ? row_streams() : (w) == DTYPE_INT8 && (rows) >= 4 && (rows) <= 6 ? 2 : 1)
static inline bool is_xeon(void) {
    return __builtin_cpu_is("intel");
}
static inline int row_streams(void) {
    return is_xeon() ? 4 : 1;
}
static inline size_t row_ahead_bytes(void) {
    return is_xeon() ? 2048 : ROW_AHEAD_BYTES;
}
#include "common/engine/kernels_zmm.h"

#include "common/engine/kernels_pairs.h"
#include "common/engine/kernels_zmm_pairs.h"
#include "common/engine/kernels_zmm_vnni.h"
#define gemm           lanes_gemm
#define x_pack         lanes_x_pack
#define X_GATHER       x_gather
#define OWN_BF16       true
#define TILE_ROWS_BF16 (2 * TILE_ROWS)
#include "common/engine/kernels_lanes.h"
#undef gemm
#undef x_pack

/* ---- activations for bf16 weights: bf16 [tile][k / 2][rows of the tile][2] */

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

static void x_pack(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w) {
    if (w != DTYPE_BF16) {
        lanes_x_pack(xp, x, x_stride, first, end, k, w);
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

/* ---- products. A register tile is all rows of up to two packed tiles by two panels, twelve by two
 * at most: 24 accumulators over all of k, two registers of weights and one of activations. */
enum { PAIR_ROWS_MAX = 2 * TILE_ROWS };

struct pairs_from {
    const uint8_t *x, *x2, *panel;
    size_t panel_stride, ahead; /* bytes; ahead: of a single panel */
    int n_pairs;
};

INLINE __m512bh x_pair(const uint8_t *x) {
    int32_t two;
    memcpy(&two, x, sizeof(two));
    return (__m512bh)_mm512_set1_epi32(two);
}

/* `a` rows, all of the packed tile x, and `b`, all of x2; ahead: bytes by which weights are fetched
 * ahead, 0: they are not, but the activations of the next two tiles. */
INLINE void tile_pairs(float *y, size_t y_stride, int n_cols, const struct pairs_from *from, int a,
                       int b, int panels, size_t ahead) {
    const size_t stride = from->panel_stride, next = (size_t)from->n_pairs * 4 * (size_t)(a + b);
    const uint8_t *x = from->x, *x2 = from->x2, *panel = from->panel;
    const int rows = a + b;
    lanes acc[PAIR_ROWS_MAX][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) acc[r][p] = ln_set1(0);
    }
#pragma GCC unroll 1
    for (int i = 0; i < from->n_pairs; i++, x += 4 * a, x2 += 4 * b, panel += 4 * PANEL_ROWS) {
        __m512bh w[2];
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            w[p] = (__m512bh)_mm512_loadu_si512(panel + (size_t)p * stride);
            if (ahead > 0) __builtin_prefetch(panel + (size_t)p * stride + ahead);
        }
        if (ahead == 0) {
            __builtin_prefetch(x + next);
            __builtin_prefetch(x2 + next);
        }
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const __m512bh v = r < a ? x_pair(x + 4 * r) : x_pair(x2 + 4 * (r - a));
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], w[p], v);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++) {
            const int n = n_cols - p * PANEL_ROWS;
            float *to = y + (size_t)r * y_stride + (size_t)p * PANEL_ROWS;
            if (n >= PANEL_ROWS)
                ln_store(to, acc[r][p]);
            else
                ln_store_n(to, acc[r][p], n);
        }
    }
}

/* ---- a row alone on a Xeon: two panels, the second half a page behind the first. Panels lie whole
 * pages apart, and streams that come to the end of their pages together are read slower. */
enum { ROW_SKEW = 2048 / (4 * PANEL_ROWS) };

/* Pair i of the row by a panel; behind this panel comes, for its stream, the next but one. */
INLINE lanes row_pair(lanes acc, const struct pairs_from *from, const uint8_t *panel, int i) {
    const uint8_t *w = panel + (size_t)i * 4 * PANEL_ROWS;
    const size_t left = (size_t)(from->n_pairs - i) * 4 * PANEL_ROWS;
    __builtin_prefetch(w + Q_FAR_BYTES + (left > Q_FAR_BYTES ? 0 : from->panel_stride), 0, 2);
    __builtin_prefetch(w + Q_NEAR_BYTES + (left > Q_NEAR_BYTES ? 0 : from->panel_stride));
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_loadu_si512(w), x_pair(from->x + 4 * i));
}

INLINE void row_put(float *y, lanes acc, int n) {
    if (n >= PANEL_ROWS)
        ln_store(y, acc);
    else
        ln_store_n(y, acc, n);
}

static void row_two_panels(float *y, int n_cols, const struct pairs_from *from) {
    const uint8_t *one = from->panel, *two = one + from->panel_stride;
    const int n = from->n_pairs, skew = n < ROW_SKEW ? n : ROW_SKEW;
    lanes a = ln_set1(0), b = ln_set1(0);
    for (int i = 0; i < skew; i++) a = row_pair(a, from, one, i);
    for (int i = skew; i < n; i++) {
        a = row_pair(a, from, one, i);
        b = row_pair(b, from, two, i - skew);
    }
    for (int i = n - skew; i < n; i++) b = row_pair(b, from, two, i);
    ln_store(y, a);
    row_put(y + PANEL_ROWS, b, n_cols - PANEL_ROWS);
}

#define PAIRS_CASE(A, B)                                                                           \
    case (A) + (B):                                                                                \
        if (panels == 2)                                                                           \
            tile_pairs(y, y_stride, n_cols, from, A, B, 2, AHEAD_BYTES / 2);                       \
        else                                                                                       \
            tile_pairs(y, y_stride, n_cols, from, A, B, 1, from->ahead);                           \
        break;

static void tile_pairs_few(float *y, size_t y_stride, int n_cols, const struct pairs_from *from,
                           int rows, int panels) {
    switch (rows) {
        PAIRS_CASE(1, 0)
        PAIRS_CASE(2, 0)
        PAIRS_CASE(3, 0)
        PAIRS_CASE(4, 0)
        PAIRS_CASE(5, 0)
        PAIRS_CASE(6, 0)
        PAIRS_CASE(6, 1)
        PAIRS_CASE(6, 2)
        PAIRS_CASE(6, 3)
        PAIRS_CASE(6, 4)
        PAIRS_CASE(6, 5)
        PAIRS_CASE(6, 6)
    }
}

/* The first tile reads weights from memory, or from far; the others find them in a near cache. Up
 * to two tiles meet a pair of panels at once. */
static void gemm_pairs(float *y, size_t y_stride, const uint8_t *xp, const uint8_t *panels,
                       int n_rows, int k, int n_cols) {
    const size_t stride = panel_bytes(k, DTYPE_BF16), x_row_bytes = 2 * tile_even(k);
    const int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS,
              few = n_rows == 1 && !is_xeon() ? ROW_PANELS : 2,
              wide = n_rows <= 2 * PAIR_ROWS_MAX ? 2 : n_panels;
    for (int first = 0; first < n_panels; first += wide) {
        const int end = n_panels - first < wide ? n_panels : first + wide;
        for (int m = 0; m < n_rows; m += PAIR_ROWS_MAX) {
            const int rows = n_rows - m < PAIR_ROWS_MAX ? n_rows - m : PAIR_ROWS_MAX;
            const uint8_t *x = xp + (size_t)m * x_row_bytes;
            for (int p = first, n = 0; p < end; p += n) {
                const struct pairs_from from = {.x = x,
                                                .x2 = x + TILE_ROWS * x_row_bytes,
                                                .panel = panels + (size_t)p * stride,
                                                .panel_stride = stride,
                                                .ahead = row_ahead_bytes(),
                                                .n_pairs = (int)(tile_even(k) / 2)};
                float *to = y + (size_t)m * y_stride + (size_t)p * PANEL_ROWS;
                const int cols = n_cols - p * PANEL_ROWS;
                n = end - p < few ? 1 : few;
                if (rows == 1 && n == 2 && n_rows == 1)
                    row_two_panels(to, cols, &from);
                else if (m > 0 && rows == PAIR_ROWS_MAX && n == 2)
                    tile_pairs(to, y_stride, cols, &from, TILE_ROWS, TILE_ROWS, 2, 0);
                else
                    tile_pairs_few(to, y_stride, cols, &from, rows, n);
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

static const struct kernels set = KERNELS_OF_LANES("avx512bf16");

const struct kernels *kernels_avx512bf16(void) {
    return &set;
}
#else
const struct kernels *kernels_avx512bf16(void) {
    return NULL;
}
#endif
