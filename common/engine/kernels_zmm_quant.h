/* kernels_zmm_quant: the matrix product over int8 and int4 weights where there are thirty-two
 * registers; for the sets of AVX-512, which define what kernels_tile_quant.h asks for.
 *
 * A register tile keeps the integer sums of a group and the f32 accumulators of all of k in
 * registers: twelve of each at most, of six rows by two panels, or of up to twelve rows, which are
 * two packed tiles, by one. Nothing of its loop may spill: tests/lint/spills.sh. */

enum {
    Q_SCALE_BYTES = 2 * PANEL_ROWS,
    Q_STEP_BYTES = 4 * PANEL_ROWS,
    Q_ROWS_MAX = 2 * TILE_ROWS,
    Q_ORDER_ROWS = 24, /* up to so many rows meet a panel at once, while it is in a near cache */
};
/* Panels of a tile that is read from memory. */
#ifndef FEW_PANELS
#define FEW_PANELS(rows, w) ((rows) == 1 ? ROW_PANELS : (rows) <= TILE_ROWS ? 2 : 1)
#endif

/* A row alone, in four streams, takes too few products for a line to wait for the memory: each is
 * fetched into the second-level cache first (from->ahead), and so far ahead into the first. */
#define Q_TWICE(rows, panels) ((rows) == 1 && (panels) == 4)
enum { Q_FAR_BYTES = 3072, Q_NEAR_BYTES = 384 };

/* What a register tile meets: rows of up to two packed tiles, and panels. */
struct q_from {
    const uint8_t *x, *x2, *panel;
    size_t panel_stride, ahead; /* bytes */
    size_t
        far; /* of a row alone, read in several streams: from the end of its panels to the next */
    int groups;
};

INLINE void q_fetch(const uint8_t *at, size_t ahead, bool twice) {
    if (!twice) {
        __builtin_prefetch(at + ahead);
        return;
    }
    __builtin_prefetch(at + ahead, 0, 2);
    __builtin_prefetch(at + Q_NEAR_BYTES);
}

/* `a` rows, all of the packed tile x, and `b`, all of x2; fetches: weights are fetched ahead. */
INLINE void tile_quant(float *y, size_t y_stride, int n_cols, const struct q_from *from, int a,
                       int b, int panels, bool fetches, enum dtype w) {
    const int fours = w == DTYPE_INT4 ? GROUP / 8 : GROUP / 4, rows = a + b,
              steps = w == DTYPE_INT8_NARROW ? 1 : 2;
    const size_t stride = from->panel_stride;
    /* Behind the last bytes of a row's panels come the first of its next ones. */
    const int near =
        rows == 1 && panels > 1 ? from->groups - (int)(from->ahead / group_bytes(w)) : from->groups;
    const uint8_t *x = from->x, *x2 = from->x2, *panel = from->panel;
    lanes acc[Q_ROWS_MAX][4];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) acc[r][p] = ln_set1(0);
    }
#pragma GCC unroll 1
    for (int g = 0; g < from->groups; g++) {
        const size_t ahead = from->ahead + (g < near ? 0 : from->far);
        ints sum[Q_ROWS_MAX][4], odd = q_begin(0, w);
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const uint8_t *at = r < a ? x + 4 * (a + r) : x2 + 4 * (b + r - a);
            int32_t begin;
            memcpy(&begin, at, sizeof(begin));
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) sum[r][p] = q_begin(begin, w);
        }
#pragma GCC unroll 8
        for (int j = 0; j < fours; j++) {
            const uint8_t *weights = panel + Q_SCALE_BYTES + Q_STEP_BYTES * j;
#pragma GCC unroll 4
            for (int p = 0; fetches && p < panels; p++)
                q_fetch(panel + (size_t)p * stride + Q_STEP_BYTES * j, ahead,
                        Q_TWICE(rows, panels));
#pragma GCC unroll 2
            for (int step = 0; step < steps; step++) {
                const int four = w == DTYPE_INT4 ? j + 4 * step : steps * j + step;
                ints q[4];
#pragma GCC unroll 4
                for (int p = 0; p < panels; p++)
                    q[p] = q_load(weights + (size_t)p * stride, step, w);
#pragma GCC unroll 12
                for (int r = 0; r < rows; r++) {
                    const quant_x v = r < a ? q_x(x + 8 * a + 4 * (four * a + r))
                                            : q_x(x2 + 8 * b + 4 * (four * b + r - a));
#pragma GCC unroll 4
                    for (int p = 0; p < panels; p++) {
                        /* one sum alone would wait for each product */
                        if (rows * panels == 1 && step == 1)
                            odd = q_dot(odd, q[p], v, w);
                        else
                            sum[r][p] = q_dot(sum[r][p], q[p], v, w);
                    }
                }
            }
        }
        if (fetches && rows == 1) { /* a group ends in the middle of a line */
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++)
                q_fetch(panel + (size_t)p * stride + group_bytes(w) - Q_SCALE_BYTES, ahead,
                        Q_TWICE(rows, panels));
        }
        if (rows * panels == 1) sum[0][0] = q_add(sum[0][0], odd, w);
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            const lanes scale =
                ln_load_bf16((const uint16_t *)(const void *)(panel + (size_t)p * stride));
#pragma GCC unroll 12
            for (int r = 0; r < rows; r++) {
                float f;
                memcpy(&f, r < a ? x + 4 * r : x2 + 4 * (r - a), sizeof(f));
                acc[r][p] = ln_fma(q_end(sum[r][p], w), ln_mul(scale, ln_set1(f)), acc[r][p]);
            }
        }
        panel += group_bytes(w);
        x += quant_x_bytes(w) * (size_t)a;
        x2 += quant_x_bytes(w) * (size_t)b;
    }
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
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

/* A loop for each count of rows and panels. */
#define Q_CASE(A, B, P, FETCHES, W)                                                                \
    case ((A) + (B)) * 8 + (P):                                                                    \
        tile_quant(y, y_stride, n_cols, from, A, B, P, FETCHES, W);                                \
        break;
#define Q_FEW(W)                                                                                   \
    Q_CASE(1, 0, 1, true, W)                                                                       \
    Q_CASE(1, 0, 2, true, W)                                                                       \
    Q_CASE(1, 0, 4, true, W)                                                                       \
    Q_CASE(2, 0, 1, true, W)                                                                       \
    Q_CASE(2, 0, 2, true, W)                                                                       \
    Q_CASE(3, 0, 1, true, W)                                                                       \
    Q_CASE(3, 0, 2, true, W)                                                                       \
    Q_CASE(4, 0, 1, true, W)                                                                       \
    Q_CASE(4, 0, 2, true, W)                                                                       \
    Q_CASE(5, 0, 1, true, W)                                                                       \
    Q_CASE(5, 0, 2, true, W)                                                                       \
    Q_CASE(6, 0, 1, true, W)                                                                       \
    Q_CASE(6, 1, 1, true, W)                                                                       \
    Q_CASE(6, 2, 1, true, W)                                                                       \
    Q_CASE(6, 3, 1, true, W)                                                                       \
    Q_CASE(6, 4, 1, true, W)                                                                       \
    Q_CASE(6, 5, 1, true, W)                                                                       \
    Q_CASE(6, 6, 1, true, W)

#define Q_KIND(NAME, W)                                                                            \
    static void NAME(float *y, size_t y_stride, int n_cols, const struct q_from *from, int rows,   \
                     int panels, bool fetches) {                                                   \
        if (rows == TILE_ROWS && panels == 2) {                                                    \
            if (fetches)                                                                           \
                tile_quant(y, y_stride, n_cols, from, TILE_ROWS, 0, 2, true, W);                   \
            else                                                                                   \
                tile_quant(y, y_stride, n_cols, from, TILE_ROWS, 0, 2, false, W);                  \
            return;                                                                                \
        }                                                                                          \
        switch (rows * 8 + panels) { Q_FEW(W) }                                                    \
    }
Q_KIND(tile_int8, DTYPE_INT8)
Q_KIND(tile_int4, DTYPE_INT4)
#ifdef VPDPBUSD
Q_KIND(tile_narrow, DTYPE_INT8_NARROW)
#else
#define tile_narrow tile_int8 /* never asked for: q_kind() */
#endif

struct q_product {
    float *y;
    size_t y_stride, x_row_bytes, panel_stride;
    const uint8_t *xp, *panels;
    int n_rows, k, n_cols;
    enum dtype w;
};

/* Rows [m, m + rows) against panels from p on; returns how many. */
static int q_tile(const struct q_product *t, int m, int rows, int p) {
    const int there = (t->n_cols + PANEL_ROWS - 1) / PANEL_ROWS - p;
    int panels = t->n_rows <= Q_ROWS_MAX ? FEW_PANELS(rows, t->w) : 2;
    while (panels > there) panels /= 2;
    const uint8_t *x = t->xp + (size_t)m * t->x_row_bytes;
    const struct q_from from = {
        .x = x,
        .x2 = x + TILE_ROWS * t->x_row_bytes,
        .panel = t->panels + (size_t)p * t->panel_stride,
        .panel_stride = t->panel_stride,
        .ahead = Q_TWICE(rows, panels) ? Q_FAR_BYTES : (size_t)ROW_AHEAD_BYTES / (size_t)panels,
        .far = (size_t)(panels - 1) * t->panel_stride,
        .groups = (int)k_groups(t->k)};
    float *y = t->y + (size_t)m * t->y_stride + (size_t)p * PANEL_ROWS;
    const int n_cols = t->n_cols - p * PANEL_ROWS;
    if (t->w == DTYPE_INT8)
        tile_int8(y, t->y_stride, n_cols, &from, rows, panels, m == 0);
    else if (t->w == DTYPE_INT8_NARROW)
        tile_narrow(y, t->y_stride, n_cols, &from, rows, panels, m == 0);
    else
        tile_int4(y, t->y_stride, n_cols, &from, rows, panels, m == 0);
    return panels;
}

static void gemm_quant(float *y, size_t y_stride, const uint8_t *xp, const uint8_t *panels,
                       int n_rows, int k, int n_cols, enum dtype of, bool once) {
    const enum dtype w = q_kind(of);
    const struct q_product t = {.y = y,
                                .y_stride = y_stride,
                                .x_row_bytes = k_groups(k) * quant_x_bytes(w),
                                .panel_stride = panel_bytes(k, w),
                                .xp = xp,
                                .panels = panels,
                                .n_rows = n_rows,
                                .k = k,
                                .n_cols = n_cols,
                                .w = w};
    const int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS,
              step = n_rows <= Q_ROWS_MAX ? Q_ROWS_MAX : TILE_ROWS,
              wide = n_rows > Q_ROWS_MAX && n_rows <= Q_ORDER_ROWS ? 2 : n_panels;
    (void)once;
    for (int first = 0; first < n_panels; first += wide) {
        const int end = n_panels - first < wide ? n_panels : first + wide;
        for (int m = 0; m < n_rows; m += step) {
            const int rows = n_rows - m < step ? n_rows - m : step;
            for (int p = first; p < end;) p += q_tile(&t, m, rows, p);
        }
    }
}
