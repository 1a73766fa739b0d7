/* kernels_tile_quant: the matrix product over int8 and int4 weights where registers are short; for
 * kernels_avx2.c. Like kernels_zmm_quant.h it asks the file of one instruction set for, beside what
 * kernels_lanes.h does:
 *
 *   enum dtype q_kind(w)        DTYPE_INT8_NARROW, or what stands for it: how activations are laid
 *                               out and products taken
 *   ints q_load(p, step, w)     of 16 rows by four k, in two steps. int8: even k, then odd k, as
 *                               16-bit numbers; int4: the lower bits, then the upper
 *   quant_x q_x(p)              what a row's activations are to a step, for all lanes
 *   ints q_begin(sum, w)        a group begins with its `sum` (x_put_quant())
 *   ints q_dot(acc, q, x, w)    a step added
 *   lanes q_end(acc, w)         the exact sum of a group as f32
 *
 * A register tile holds integer sums; the f32 accumulators are touched once a group and stay in
 * memory, in y itself. */
enum {
    Q_SCALE_BYTES = 2 * PANEL_ROWS,
    Q_STEP_BYTES = 4 * PANEL_ROWS,
};

/* Sets that take activations of 16 bits as two bytes go over a group's weights once for each
 * (Q_PASSES); step is the pass then, of which Q_DOT is told, and q_next(sum, begin) is what the
 * sums of the first are to the second. Those with products of bytes have loops for narrow
 * activations too (Q_NARROW). */
#ifndef Q_PASSES
#define Q_PASSES(w)               1
#define Q_NARROW                  0
#define Q_DOT(acc, q, x, step, w) q_dot(acc, q, x, w)
#define q_next(sum, begin)        (sum)
#endif

/* A pass over a group's weights. x, panel: at that group; ahead: bytes by which they are fetched.
 */
INLINE void q_pass(ints sum[TILE_ROWS][4], const uint8_t *x, const uint8_t *panel,
                   size_t panel_stride, size_t ahead, int rows, int panels, bool once, int pass,
                   enum dtype w) {
    const int fours = w == DTYPE_INT4 ? GROUP / 8 : GROUP / 4,
              steps = w == DTYPE_INT8_NARROW || Q_PASSES(w) > 1 ? 1 : 2;
    const uint8_t *xq = x + 8 * rows;
#pragma GCC unroll 1
    for (int j = 0; j < fours; j++) {
#pragma GCC unroll 4
        for (int p = 0; pass == 0 && p < panels; p++)
            fetch(panel + (size_t)p * panel_stride + ahead + Q_STEP_BYTES * j, once);
#pragma GCC unroll 2
        for (int s = 0; s < steps; s++) {
            const int step = s + pass,
                      at = w == DTYPE_INT4 ? j + 4 * s : steps * j + s + fours * pass;
            const uint8_t *from = panel + Q_STEP_BYTES * j;
            if (rows == 1) { /* each panel is used once: none has to wait in a register */
                const quant_x v = q_x(xq + 4 * at);
#pragma GCC unroll 4
                for (int p = 0; p < panels; p++)
                    sum[0][p] = Q_DOT(
                        sum[0][p], q_load(from + (size_t)p * panel_stride + Q_SCALE_BYTES, step, w),
                        v, step, w);
                continue;
            }
            ints q[4];
            /* Registers are short: each step loads anew rather than keep what the other had. */
            __asm__("" : "+r"(from));
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++)
                q[p] = q_load(from + (size_t)p * panel_stride + Q_SCALE_BYTES, step, w);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                quant_x v = q_x(xq + 4 * (at * rows + r));
#pragma GCC unroll 4
                for (int p = 0; p < panels; p++) sum[r][p] = Q_DOT(sum[r][p], q[p], v, step, w);
            }
        }
    }
}

/* The sums of a group. */
INLINE void q_group(ints sum[TILE_ROWS][4], const uint8_t *x, const uint8_t *panel,
                    size_t panel_stride, size_t ahead, int rows, int panels, bool once,
                    enum dtype w) {
    const int32_t *x_sum = (const int32_t *)(const void *)x + rows;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) sum[r][p] = q_begin(x_sum[r], w);
    }
    q_pass(sum, x, panel, panel_stride, ahead, rows, panels, once, 0, w);
    if (Q_PASSES(w) == 1) return;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) sum[r][p] = q_next(sum[r][p], x_sum[r]);
    }
    q_pass(sum, x, panel, panel_stride, ahead, rows, panels, once, 1, w);
}
/* MMLA, optional: a file that has Q_GROUP in its place, and B_UNIT_ROWS (kernels_tile_blocks.h). */
#ifdef MMLA
#include MMLA
#else
#define Q_GROUP q_group
#endif

/* acc: f32 [rows][acc_stride], whole panels. x, w: at the first of n_groups groups. */
INLINE void tile_quant(float *acc, size_t acc_stride, const uint8_t *x, const uint8_t *panel,
                       size_t panel_stride, int n_groups, int rows, int panels, bool once,
                       enum dtype w) {
    /* A single row takes all of k, and these panels are short: behind the last bytes of each come
     * the first of the next tile's, as far away as the tile is wide. */
    const size_t near = ahead_bytes(rows, panels, once),
                 far = near + (rows == 1 ? (size_t)(panels - 1) * panel_stride : 0);
    const int near_groups = n_groups - (int)(near / group_bytes(w));
    for (int g = 0; g < n_groups;
         g++, panel += group_bytes(w), x += quant_x_bytes(w) * (size_t)rows) {
        const float *x_scale = (const float *)(const void *)x;
        ints sum[TILE_ROWS][4];
        Q_GROUP(sum, x, panel, panel_stride, g < near_groups ? near : far, rows, panels, once, w);
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            lanes w_scale =
                ln_load_bf16((const uint16_t *)(const void *)(panel + (size_t)p * panel_stride));
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                float *at = acc + (size_t)r * acc_stride + (size_t)p * PANEL_ROWS;
                lanes f = ln_mul(w_scale, ln_set1(x_scale[r]));
                ln_store(at, ln_fma(q_end(sum[r][p], w), f, ln_load(at)));
            }
        }
    }
}

#define Q_TILE_LOOP(R, P, ONCE)                                                                    \
    if (w == DTYPE_INT8)                                                                           \
        tile_quant(acc, acc_stride, x, panel, panel_stride, n_groups, R, P, ONCE, DTYPE_INT8);     \
    else if (Q_NARROW && w == DTYPE_INT8_NARROW)                                                   \
        tile_quant(acc, acc_stride, x, panel, panel_stride, n_groups, R, P, ONCE,                  \
                   DTYPE_INT8_NARROW);                                                             \
    else                                                                                           \
        tile_quant(acc, acc_stride, x, panel, panel_stride, n_groups, R, P, ONCE, DTYPE_INT4)

static void q_tile_run(float *acc, size_t acc_stride, const uint8_t *x, const uint8_t *panel,
                       size_t panel_stride, int n_groups, int rows, int panels, bool once,
                       enum dtype w) {
    TILE_SWITCH(Q_TILE_LOOP)
}

/* The tile's accumulators are its part of y; where that ends inside a panel, a copy of it. */
static void q_tile(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *panel,
                   size_t panel_stride, int n_groups, int rows, int panels, bool carry, bool once,
                   enum dtype w) {
    float part[TILE_ROWS * 4 * PANEL_ROWS] __attribute__((aligned(64)));
    const int width = panels * PANEL_ROWS, n = n_cols < width ? n_cols : width;
    if (n < width) {
        for (int r = 0; r < rows; r++) {
            memset(part + r * width, 0, (size_t)width * sizeof(float));
            if (carry)
                memcpy(part + r * width, y + (size_t)r * y_stride, (size_t)n * sizeof(float));
        }
        q_tile_run(part, (size_t)width, x, panel, panel_stride, n_groups, rows, panels, once, w);
        for (int r = 0; r < rows; r++)
            memcpy(y + (size_t)r * y_stride, part + r * width, (size_t)n * sizeof(float));
        return;
    }
    for (int r = 0; r < rows && !carry; r++)
        memset(y + (size_t)r * y_stride, 0, (size_t)width * sizeof(float));
    q_tile_run(y, y_stride, x, panel, panel_stride, n_groups, rows, panels, once, w);
}

/* Rows [m_first, m_end) in tiles of `rows`; x: of row 0, at the slice's first group of a tile. */
static void q_slice(float *y, size_t y_stride, const uint8_t *x, const uint8_t *panels,
                    size_t panel_stride, int m_first, int m_end, int rows, size_t x_row_bytes,
                    int n_groups, int n_cols, bool carry, bool once, enum dtype w) {
    int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS;
    for (int m = m_first; m < m_end; m += rows) {
        for (int p = 0, n = 0; p < n_panels; p += n) {
            n = TILE_PANELS(rows);
            while (n > n_panels - p) n /= 2;
            q_tile(y + (size_t)m * y_stride + (size_t)p * PANEL_ROWS, y_stride,
                   n_cols - p * PANEL_ROWS, x + (size_t)m * x_row_bytes,
                   panels + (size_t)p * panel_stride, panel_stride, n_groups, rows, n, carry, once,
                   w);
        }
    }
}

static void gemm_quant(float *y, size_t y_stride, const uint8_t *xp, const uint8_t *panels,
                       int n_rows, int k, int n_cols, enum dtype of, bool once) {
    const enum dtype w = q_kind(of);
    const int groups = (int)k_groups(k);
    const size_t stride = panel_bytes(k, w), x_row_bytes = (size_t)groups * quant_x_bytes(w);
    const int whole = n_rows / TILE_ROWS * TILE_ROWS, rest = n_rows - whole;
    const int slice =
        n_rows > WHOLE_K_ROWS ? SLICE_BYTES / (ITEM_PANELS * (int)group_bytes(w)) : groups;
    for (int g = 0; g < groups; g += slice) {
        const int n = groups - g < slice ? groups - g : slice;
        const uint8_t *panel = panels + (size_t)g * group_bytes(w), *x = xp;
        const size_t x_at = (size_t)g * quant_x_bytes(w);
        if (whole > 0)
            q_slice(y, y_stride, x + x_at * TILE_ROWS, panel, stride, 0, whole, TILE_ROWS,
                    x_row_bytes, n, n_cols, g > 0, once, w);
        if (rest > 0)
            q_slice(y, y_stride, x + x_at * (size_t)rest, panel, stride, whole, n_rows, rest,
                    x_row_bytes, n, n_cols, g > 0, once, w);
    }
}
