/* kernels_tile: the matrix product over packed panels, written once. Included through kernels_lanes.h by the file of one
 * instruction set, which defines beside `lanes` and its operations:
 *
 *   TILE_PANELS(n_rows)   panels of the register tile for 1..TILE_ROWS rows: 4, 2 or 1
 *   SLICE_BYTES           of one tile's panels that stay in the first-level cache
 *   X_PACK                packs activations (kernels.h)
 *   X_PAIR_BYTES          of one row's pair of k in activations packed for bf16 weights
 *   pairs pairs_load(const uint8_t *)                         16 pairs of bf16 weights
 *   x_pair x_pair_load(const uint8_t *x, int rows, int row)   one row's pair, for all lanes
 *   lanes pairs_fma(pairs, x_pair, lanes acc)                 acc + odd k, then + even k, as vdpbf16ps adds
 *
 * A register tile holds `rows` x `panels` accumulators, each over k upwards. With `carry` they start
 * from y, where the slice of k before left them: storing an f32 and loading it again changes no bit, so slicing k for the
 * cache keeps the order of the sum. */
#define INLINE static inline __attribute__((always_inline))

static size_t tile_even(int k) {
    return (size_t)(k + (k & 1));
}

INLINE void tile_begin(lanes acc[TILE_ROWS][4], const float *y, size_t y_stride, int n_cols, int rows, int panels,
                       bool carry) {
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

INLINE void tile_end(lanes acc[TILE_ROWS][4], float *y, size_t y_stride, int n_cols, int rows, int panels) {
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
INLINE void tile_f32(float *y, size_t y_stride, int n_cols, const float *x, const float *w, size_t panel_stride, int k,
                     int rows, int panels, bool carry) {
    lanes acc[TILE_ROWS][4];
    tile_begin(acc, y, y_stride, n_cols, rows, panels, carry);
    for (int i = 0; i < k; i++, x += rows, w += PANEL_ROWS) {
        lanes wv[4];
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) wv[p] = ln_load(w + (size_t)p * panel_stride);
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
INLINE void tile_bf16(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *w, size_t panel_stride,
                      int n_pairs, int rows, int panels, bool carry) {
    lanes acc[TILE_ROWS][4];
    tile_begin(acc, y, y_stride, n_cols, rows, panels, carry);
    for (int i = 0; i < n_pairs; i++, x += X_PAIR_BYTES * rows, w += 4 * PANEL_ROWS) {
        pairs wv[4];
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) wv[p] = pairs_load(w + (size_t)p * panel_stride);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            x_pair xv = x_pair_load(x, rows, r);
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) acc[r][p] = pairs_fma(wv[p], xv, acc[r][p]);
        }
    }
    tile_end(acc, y, y_stride, n_cols, rows, panels);
}

/* One slice of k (k_first, k_len, both even where bf16) of a tile; constants for rows and panels make one loop each. */
#define TILE_CASE(R, P)                                                                                                \
    case (R) * 8 + (P):                                                                                                \
        if (w == DTYPE_BF16)                                                                                           \
            tile_bf16(y, y_stride, n_cols, x, panel, panel_stride, (k_len + 1) / 2, R, P, carry);                      \
        else                                                                                                           \
            tile_f32(y, y_stride, n_cols, (const float *)x, (const float *)panel, panel_stride / 4, k_len, R, P, carry); \
        break

static void tile_run(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *panel, size_t panel_stride,
                     int k_len, int rows, int panels, bool carry, enum dtype w) {
    switch (rows * 8 + panels) {
        TILE_CASE(1, 1);
        TILE_CASE(1, 2);
        TILE_CASE(1, 4);
        TILE_CASE(2, 1);
        TILE_CASE(2, 2);
        TILE_CASE(3, 1);
        TILE_CASE(3, 2);
        TILE_CASE(4, 1);
        TILE_CASE(5, 1);
        TILE_CASE(6, 1);
#if TILE_PANELS(6) == 4
        TILE_CASE(2, 4);
        TILE_CASE(3, 4);
        TILE_CASE(4, 2);
        TILE_CASE(4, 4);
        TILE_CASE(5, 2);
        TILE_CASE(5, 4);
        TILE_CASE(6, 2);
        TILE_CASE(6, 4);
#endif
    }
}

static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k, int n_cols,
                 enum dtype w) {
    size_t stride = panel_bytes(k, w), x_k_bytes = w == DTYPE_BF16 ? X_PAIR_BYTES / 2 : 4;
    int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS, most = n_rows < TILE_ROWS ? n_rows : TILE_ROWS;
    int step = TILE_PANELS(most), k_slice = k;
    /* More than one tile of rows goes over the same weights: hold a slice of them in the cache. */
    if (n_rows > TILE_ROWS) k_slice = SLICE_BYTES / (step * PANEL_ROWS * (w == DTYPE_BF16 ? 2 : 4));
    for (int k0 = 0; k0 < k; k0 += k_slice) {
        int k_len = k - k0 < k_slice ? k - k0 : k_slice;
        for (int p = 0, n = 0; p < n_panels; p += n) {
            n = step;
            while (n > n_panels - p) n /= 2;
            const uint8_t *panel =
                (const uint8_t *)panels + (size_t)p * stride + (size_t)k0 * PANEL_ROWS * (w == DTYPE_BF16 ? 2 : 4);
            for (int m = 0; m < n_rows; m += TILE_ROWS) {
                int rows = n_rows - m < TILE_ROWS ? n_rows - m : TILE_ROWS;
                const uint8_t *x =
                    (const uint8_t *)xp + ((size_t)m * tile_even(k) + (size_t)k0 * (size_t)rows) * x_k_bytes;
                tile_run(y + (size_t)m * y_stride + (size_t)p * PANEL_ROWS, y_stride, n_cols - p * PANEL_ROWS, x, panel,
                         stride, k_len, rows, n, k0 > 0, w);
            }
        }
    }
}
