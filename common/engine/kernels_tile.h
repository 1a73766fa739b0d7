/* kernels_tile: the matrix product over packed panels, written once. Included through
 * kernels_lanes.h by the file of one instruction set, which defines beside `lanes` and its
 * operations:
 *
 *   TILE_PANELS(n_rows)   panels of the register tile for 1..TILE_ROWS rows: 4, 2 or 1
 *   SLICE_BYTES           of an item's panels, which stay in a cache while rows pass by them
 *   X_PACK                packs activations (kernels.h)
 *   X_PAIR_BYTES          of one row's pair of k in activations packed for bf16 weights
 *   PAIR_STEPS            in which a pair of k is added: one, or odd k and then even k, as
 * vdpbf16ps adds pairs pairs_load(const uint8_t *, int step)                         of 16 pairs of
 * bf16 weights what step takes pairs x_pair_load(const uint8_t *x, int rows, int row, int step) the
 * same of one row's pair, for all lanes lanes pairs_fma(pairs w, pairs x, lanes acc)
 *
 * A register tile holds `rows` x `panels` accumulators, each over k upwards. With `carry` they
 * start from y, where the slice of k before left them: storing an f32 and loading it again changes
 * no bit, so slicing k for the cache keeps the order of the sum. How weights are fetched ahead, and
 * how few rows take k unsliced, kernels_tile_quant.h says. */
static size_t tile_even(int k) {
    return (size_t)(k + (k & 1));
}

INLINE void tile_begin(lanes acc[TILE_ROWS][4], const float *y, size_t y_stride, int n_cols,
                       int rows, int panels, bool carry) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            int n = n_cols - p * PANEL_ROWS;
            const float *at = y + (size_t)r * y_stride + (size_t)p * PANEL_ROWS;
            acc[r][p] = !carry ? ln_set1(0) : n >= PANEL_ROWS ? ln_load(at) : ln_load_n(at, n);
        }
    }
}

INLINE void tile_end(lanes acc[TILE_ROWS][4], float *y, size_t y_stride, int n_cols, int rows,
                     int panels) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            int n = n_cols - p * PANEL_ROWS;
            float *at = y + (size_t)r * y_stride + (size_t)p * PANEL_ROWS;
            if (n >= PANEL_ROWS)
                ln_store(at, acc[r][p]);
            else
                ln_store_n(at, acc[r][p], n);
        }
    }
}

/* w: f32 [panels][..][16], panels panel_stride floats apart; x: f32 [k][rows]. */
INLINE void tile_f32(float *y, size_t y_stride, int n_cols, const float *x, const float *w,
                     size_t panel_stride, int k, int rows, int panels, bool carry, bool once) {
    const size_t ahead = ahead_bytes(rows, panels, once) / sizeof(float);
    lanes acc[TILE_ROWS][4];
    tile_begin(acc, y, y_stride, n_cols, rows, panels, carry);
    for (int i = 0; i < k; i++, x += rows, w += PANEL_ROWS) {
        lanes wv[4];
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            wv[p] = ln_load(w + (size_t)p * panel_stride);
            fetch(w + (size_t)p * panel_stride + ahead, once);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            lanes xv = ln_set1(x[r]);
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) acc[r][p] = ln_fma(wv[p], xv, acc[r][p]);
        }
    }
    tile_end(acc, y, y_stride, n_cols, rows, panels);
}

/* w: bf16 [panels][..][16][2], panels panel_stride bytes apart; x: [n_pairs][rows] pairs. */
INLINE void tile_bf16(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *w,
                      size_t panel_stride, int n_pairs, int rows, int panels, bool carry,
                      bool once) {
    const size_t ahead = ahead_bytes(rows, panels, once);
    lanes acc[TILE_ROWS][4];
    tile_begin(acc, y, y_stride, n_cols, rows, panels, carry);
    for (int i = 0; i < n_pairs; i++, x += X_PAIR_BYTES * rows, w += 4 * PANEL_ROWS) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) fetch(w + (size_t)p * panel_stride + ahead, once);
#pragma GCC unroll 2
        for (int step = 0; step < PAIR_STEPS; step++) {
            if (rows == 1) { /* each panel is used once: none has to wait in a register */
                const pairs xv = x_pair_load(x, 1, 0, step);
#pragma GCC unroll 4
                for (int p = 0; p < panels; p++)
                    acc[0][p] =
                        pairs_fma(pairs_load(w + (size_t)p * panel_stride, step), xv, acc[0][p]);
                continue;
            }
            pairs wv[4];
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) wv[p] = pairs_load(w + (size_t)p * panel_stride, step);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                pairs xv = x_pair_load(x, rows, r, step);
#pragma GCC unroll 4
                for (int p = 0; p < panels; p++) acc[r][p] = pairs_fma(wv[p], xv, acc[r][p]);
            }
        }
    }
    tile_end(acc, y, y_stride, n_cols, rows, panels);
}

/* One slice of k (k_len; even but for the last one, where bf16) of a tile. */
#define TILE_LOOP(R, P, ONCE)                                                                      \
    if (w == DTYPE_BF16)                                                                           \
        tile_bf16(y, y_stride, n_cols, x, panel, panel_stride, (k_len + 1) / 2, R, P, carry,       \
                  ONCE);                                                                           \
    else                                                                                           \
        tile_f32(y, y_stride, n_cols, (const float *)x, (const float *)panel, panel_stride / 4,    \
                 k_len, R, P, carry, ONCE)

static void tile_run(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *panel,
                     size_t panel_stride, int k_len, int rows, int panels, bool carry, bool once,
                     enum dtype w) {
    TILE_SWITCH(TILE_LOOP)
}

/* Rows [m_first, m_end) in tiles of `rows` against one slice of k of all panels. */
static void gemm_slice(float *y, size_t y_stride, const uint8_t *x, const uint8_t *panels,
                       size_t panel_stride, int m_first, int m_end, int rows, size_t x_row_bytes,
                       int k_len, int n_cols, bool carry, bool once, enum dtype w) {
    int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS;
    for (int m = m_first; m < m_end; m += rows) {
        for (int p = 0, n = 0; p < n_panels; p += n) {
            n = TILE_PANELS(rows);
            while (n > n_panels - p) n /= 2;
            tile_run(y + (size_t)m * y_stride + (size_t)p * PANEL_ROWS, y_stride,
                     n_cols - p * PANEL_ROWS, x + (size_t)m * x_row_bytes,
                     panels + (size_t)p * panel_stride, panel_stride, k_len, rows, n, carry, once,
                     w);
        }
    }
}

static void gemm_any(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows,
                     int k, int n_cols, enum dtype w, bool once) {
    if (dtype_is_blocks(w)) {
        gemm_blocks(y, y_stride, xp, panels, n_rows, k, n_cols, w, once);
        return;
    }
    if (dtype_is_quant(w)) {
        gemm_quant(y, y_stride, xp, panels, n_rows, k, n_cols, w, once);
        return;
    }
    const size_t w_bytes = w == DTYPE_BF16 ? 2 : 4,
                 x_bytes = w == DTYPE_BF16 ? X_PAIR_BYTES / 2 : 4;
    const size_t stride = panel_bytes(k, w), x_row_bytes = tile_even(k) * x_bytes;
    const int whole = n_rows / TILE_ROWS * TILE_ROWS, rest = n_rows - whole;
    const int slice = SLICE_BYTES / (ITEM_PANELS * PANEL_ROWS * (int)w_bytes),
              k_slice = n_rows > WHOLE_K_ROWS ? slice : k;
    for (int k0 = 0; k0 < k; k0 += k_slice) {
        const int k_len = k - k0 < k_slice ? k - k0 : k_slice;
        const uint8_t *panel = (const uint8_t *)panels + (size_t)k0 * PANEL_ROWS * w_bytes, *x = xp;
        if (whole > 0)
            gemm_slice(y, y_stride, x + (size_t)k0 * TILE_ROWS * x_bytes, panel, stride, 0, whole,
                       TILE_ROWS, x_row_bytes, k_len, n_cols, k0 > 0, once, w);
        if (rest > 0)
            gemm_slice(y, y_stride, x + (size_t)k0 * (size_t)rest * x_bytes, panel, stride, whole,
                       n_rows, rest, x_row_bytes, k_len, n_cols, k0 > 0, once, w);
    }
}

static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w) {
    gemm_any(y, y_stride, xp, panels, n_rows, k, n_cols, w, false);
}

#ifdef ONCE_AHEAD_BYTES
static void gemm_once(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows,
                      int k, int n_cols, enum dtype w) {
    gemm_any(y, y_stride, xp, panels, n_rows, k, n_cols, w, true);
}
#define GEMM_ONCE gemm_once
#else
#define GEMM_ONCE NULL
#endif
