/* kernels_tile_blocks: the matrix product over block formats (kernels_blocks.h), written once for
 * all of them. Included through kernels_lanes.h by the file of one instruction set, which defines
 * beside what kernels_tile_quant.h asks for, all of 16 rows by four k:
 *
 *   lanes ln_load_f16(p), ln_load_u8(p), ln_load_e8m0(p)   sixteen of them as f32; of the last half
 *                                      of what they mean (e8m0_half())
 *   ints b_load(p)
 *   b_table, b_codes(w)                what b_values() looks codes up in
 *   ints b_values(v, step, high, kind, table)   the lower (step 0) or the upper four bits of v as
 *                                      the bytes that b_dot() multiplies; high: their other bits,
 *                                      at the lower end
 *   ints b_next(high, n)               the lower n bits of each byte are done with
 *   int32_t b_word(low, high)          a word of activations (x_put_blocks()) of the sums of those
 *                                      whose k is 0 or 1, and 2 or 3 modulo four
 *   ints b_begin(words, n, half, kind) what the sum of a unit begins with; words: [2], n apart
 *   ints b_dot(acc, values, x, kind)   a step added
 *   lanes b_end(acc, kind)             the exact sum of a unit as f32
 *   BLOCK_PANELS(rows)                 panels of the register tile: its f32 accumulators stay in
 *                                      registers over all of k, beside the sums
 *   B_UNIT_ROWS(sum, p, unit, x, half, table, rows, kind)   optional: what b_unit() does, for one
 *                                      panel and more than one row
 *
 * kind: the type, constant; DTYPE_IQ4_NL stands for all that look codes up. */

/* As block_scale() and block_least(). */
INLINE lanes b_scale(const uint8_t *head, int u, enum dtype kind, enum dtype w) {
    const uint16_t *d = (const uint16_t *)(const void *)head;
    if (kind == DTYPE_Q4_K || kind == DTYPE_Q5_K)
        return ln_mul(ln_load_f16(d), ln_load_u8(head + (4 + 2 * u) * PANEL_ROWS));
    if (w == DTYPE_MXFP4) return ln_load_e8m0(head);
    if (w == DTYPE_IQ4_NL) return ln_load_f16(d);
    return ln_mul(ln_load_f16(d), ln_load_i8((const int8_t *)head + (2 + u) * PANEL_ROWS));
}

INLINE lanes b_least(const uint8_t *head, int u) {
    return ln_mul(ln_load_f16((const uint16_t *)(const void *)(head + 2 * PANEL_ROWS)),
                  ln_load_u8(head + (5 + 2 * u) * PANEL_ROWS));
}

/* Where a tile reads. There may be fewer panels than it is wide: it takes the first in their place,
 * and nothing is stored of what comes out. */
struct b_from {
    const uint8_t *panels[4];
    const uint8_t *x;
    size_t far; /* from the end of the panels to the next tile's */
    int n_blocks, there;
};

/* Sums of unit u of the block at `at` in each panel. x: the group of the unit. */
INLINE void b_unit(ints sum[TILE_ROWS][4], const struct b_from *from, size_t at, int u,
                   const uint8_t *x, b_table table, int rows, int panels, enum dtype kind) {
    const struct block_format f = block_format(kind);
    const int half = u * f.unit % GROUP / 16;
    const int32_t *words = (const int32_t *)(const void *)x + 2 * rows;
    ints high[4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const ints begin = b_begin(words + r, rows, half, kind);
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) sum[r][p] = begin;
    }
    x += 16 * rows + half * 16 * rows;
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++)
        high[p] = b_load(from->panels[p] + at + (f.high > 0 ? f.unit * PANEL_ROWS / 2 : 0));
#pragma GCC unroll 1
    for (int i = 0; i < f.unit / 8; i++, at += 4 * PANEL_ROWS, x += 8 * rows) {
#pragma GCC unroll 2
        for (int step = 0; step < 2; step++) {
            ints q[4];
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++)
                q[p] = b_values(b_load(from->panels[p] + at), step, high[p], kind, table);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                const quant_x v = q_x(x + 4 * (step * rows + r));
#pragma GCC unroll 4
                for (int p = 0; p < panels; p++) sum[r][p] = b_dot(sum[r][p], q[p], v, kind);
            }
        }
        if (f.high == 0) continue;
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) high[p] = b_next(high[p], 2 * f.high);
    }
}

/* y: f32 [rows][y_stride], n_cols of the tile's columns. */
INLINE void tile_blocks(float *y, size_t y_stride, int n_cols, const struct b_from *from, int rows,
                        int panels, bool once, enum dtype kind, enum dtype w) {
    const struct block_format f = block_format(kind), own = block_format(w);
    const int units = own.k / f.unit;
    const size_t bytes = (size_t)block_bytes(own), share = bytes / (size_t)units;
    const size_t near = ahead_bytes(rows, panels, once);
    const int near_blocks = from->n_blocks - (int)(near / bytes);
    const b_table table = b_codes(w);
    const uint8_t *x = from->x;
    size_t at = 0;
    lanes acc[TILE_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) acc[r][p] = ln_set1(0);
    }
    for (int b = 0; b < from->n_blocks; b++, at += bytes) {
        const size_t ahead = at + (b < near_blocks ? near : near + from->far);
#pragma GCC unroll 1
        for (int u = 0; u < units; u++) {
            ints sum[TILE_ROWS][4];
            const float *x_scale = (const float *)(const void *)x;
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) {
#pragma GCC unroll 6
                for (size_t line = 0; line < share; line += 64)
                    fetch(from->panels[p] + ahead + (size_t)u * share + line, once);
            }
            const size_t unit = at + (size_t)(own.head + u * block_unit_bytes(f));
#ifdef B_UNIT_ROWS
            if (rows > 1) {
#pragma GCC unroll 4
                for (int p = 0; p < panels; p++)
                    B_UNIT_ROWS(sum, p, from->panels[p] + unit, x, u * f.unit % GROUP / 16, table,
                                rows, kind);
            } else
#endif
                b_unit(sum, from, unit, u, x, table, rows, panels, kind);
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) {
                const uint8_t *head = from->panels[p] + at;
                const lanes scale = b_scale(head, u, kind, w);
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++)
                    acc[r][p] = ln_fma(b_end(sum[r][p], kind), ln_mul(scale, ln_set1(x_scale[r])),
                                       acc[r][p]);
                if (kind != DTYPE_Q4_K && kind != DTYPE_Q5_K) continue;
                const lanes least = b_least(head, u);
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++)
                    acc[r][p] = ln_fnma(least, ln_set1(x_scale[rows + r]), acc[r][p]);
            }
            if ((u + 1) * f.unit % GROUP == 0) x += (16 + GROUP) * rows;
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            const int n = n_cols - p * PANEL_ROWS;
            float *to = y + (size_t)r * y_stride + (size_t)p * PANEL_ROWS;
            if (p >= from->there) continue;
            if (n >= PANEL_ROWS)
                ln_store(to, acc[r][p]);
            else
                ln_store_n(to, acc[r][p], n);
        }
    }
}

/* A function for each kind and count of rows. */
#define BLOCK_CASE(KIND, R)                                                                        \
    case R:                                                                                        \
        tile_blocks(y, y_stride, n_cols, from, R, BLOCK_PANELS(R), false, KIND, w);                \
        break
#define BLOCK_KIND(NAME, KIND)                                                                     \
    static void NAME(float *y, size_t y_stride, int n_cols, const struct b_from *from, int rows,   \
                     bool once, enum dtype w) {                                                    \
        if (rows == 1 && once) {                                                                   \
            tile_blocks(y, y_stride, n_cols, from, 1, BLOCK_PANELS(1), true, KIND, w);             \
            return;                                                                                \
        }                                                                                          \
        switch (rows) {                                                                            \
            BLOCK_CASE(KIND, 1);                                                                   \
            BLOCK_CASE(KIND, 2);                                                                   \
            BLOCK_CASE(KIND, 3);                                                                   \
            BLOCK_CASE(KIND, 4);                                                                   \
            BLOCK_CASE(KIND, 5);                                                                   \
            BLOCK_CASE(KIND, 6);                                                                   \
        }                                                                                          \
    }
BLOCK_KIND(tile_q4_k, DTYPE_Q4_K)
BLOCK_KIND(tile_q5_k, DTYPE_Q5_K)
BLOCK_KIND(tile_q6_k, DTYPE_Q6_K)
BLOCK_KIND(tile_codes, DTYPE_IQ4_NL)

static void gemm_blocks(float *y, size_t y_stride, const uint8_t *xp, const uint8_t *panels,
                        int n_rows, int k, int n_cols, enum dtype w, bool once) {
    const size_t stride = panel_bytes(k, w), x_row_bytes = k_groups(k) * quant_x_bytes(w);
    const int n_panels = (n_cols + PANEL_ROWS - 1) / PANEL_ROWS;
    for (int m = 0, rows = 0; m < n_rows; m += rows) {
        rows = n_rows - m < TILE_ROWS ? n_rows - m : TILE_ROWS;
        const int wide = BLOCK_PANELS(rows);
        for (int p = 0; p < n_panels; p += wide) {
            struct b_from from = {.x = xp + (size_t)m * x_row_bytes,
                                  .far = rows == 1 ? (size_t)(wide - 1) * stride : 0,
                                  .n_blocks = k / block_format(w).k,
                                  .there = n_panels - p < wide ? n_panels - p : wide};
            for (int i = 0; i < wide; i++)
                from.panels[i] = panels + (size_t)(i < from.there ? p + i : p) * stride;
            float *to = y + (size_t)m * y_stride + (size_t)p * PANEL_ROWS;
            const int cols = n_cols - p * PANEL_ROWS;
            switch (w) {
            case DTYPE_Q4_K: tile_q4_k(to, y_stride, cols, &from, rows, once, w); break;
            case DTYPE_Q5_K: tile_q5_k(to, y_stride, cols, &from, rows, once, w); break;
            case DTYPE_Q6_K: tile_q6_k(to, y_stride, cols, &from, rows, once, w); break;
            default: tile_codes(to, y_stride, cols, &from, rows, once, w); break;
            }
        }
    }
}

/* The words of a row's group; q: its values. */
INLINE void b_words(int32_t words[2], const int16_t q[GROUP]) {
    for (int half = 0; half < 2; half++) {
        int32_t low = 0, high = 0;
        for (int i = 16 * half; i < 16 * half + 16; i += 4) {
            low += q[i] + q[i + 1];
            high += q[i + 2] + q[i + 3];
        }
        words[half] = b_word(low, high);
    }
}

static void x_pack(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w) {
    const size_t groups = k_groups(k);
    if (dtype_is_quant(w)) {
        pack_quant(xp, x, x_stride, first, end, k, w);
        return;
    }
    if (!dtype_is_blocks(w)) {
        X_PACK(xp, x, x_stride, first, end, k, w);
        return;
    }
    for (int t = first; t < end; t += TILE_ROWS) {
        size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        for (size_t g = 0; g < groups; g++) {
            uint8_t *dst = (uint8_t *)xp + ((size_t)t * groups + g * n) * quant_x_bytes(w);
            for (size_t r = 0; r < n; r++) {
                int16_t q[GROUP];
                float scale;
                int32_t sum;
                q_row(q, &scale, &sum, x + ((size_t)t + r) * x_stride + g * GROUP,
                      k - (int)g * GROUP, quant_x_max(w));
                int32_t words[2];
                b_words(words, q);
                x_put_blocks(dst, n, r, q, scale, sum, words);
            }
        }
    }
}
