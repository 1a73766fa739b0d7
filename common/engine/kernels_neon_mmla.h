/* kernels_neon_mmla: products of bytes two rows by two rows at a time (smmla, usmmla, ummla of
 * Armv8.6), for two rows and more; in place of q_group() and b_unit(), with the same activations,
 * and the same sums, which are exact. A register is two rows of eight k: of the weights'
 * [..][row][4] and of the activations' those of one k and of another lie side by side after a zip.
 */
enum { MM_PAIRS = (TILE_ROWS + 1) / 2 };
enum mm_kind { MM_SIGNED, MM_MIXED, MM_UNSIGNED };

/* (w0 x0, w0 x1, w1 x0, w1 x1) added. */
LN int32x4_t mm_add(int32x4_t acc, int32x4_t w, int32x4_t x, enum mm_kind kind) {
    if (kind == MM_UNSIGNED)
        return vreinterpretq_s32_u32(
            vmmlaq_u32(vreinterpretq_u32_s32(acc), bytes_of(w), bytes_of(x)));
    return kind == MM_MIXED ? vusmmlaq_s32(acc, bytes_of(w), signed_of(x))
                            : vmmlaq_s32(acc, signed_of(w), signed_of(x));
}
/* Those of two rows of x, of the last one of an odd number and what lies behind it: nobody looks at
 * what comes of that. */
LN int32x2_t mm_two(const void *p) {
    int32x2_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}
LN int32x4_t mm_x(const uint8_t *first, const uint8_t *second) {
    const int32x4_t a = vcombine_s32(mm_two(first), vdup_n_s32(0)),
                    b = vcombine_s32(mm_two(second), vdup_n_s32(0));
    return vzip1q_s32(a, b);
}
/* Part `i`, four rows, of weights of eight k against all rows. */
LN void mm_part(int32x4_t sum[MM_PAIRS][8], int i, int32x4_t first, int32x4_t second,
                const int32x4_t x[MM_PAIRS], int rows, enum mm_kind kind) {
    const int32x4_t low = vzip1q_s32(first, second), high = vzip2q_s32(first, second);
#pragma GCC unroll 3
    for (int r = 0; r < (rows + 1) / 2; r++) {
        sum[r][2 * i] = mm_add(sum[r][2 * i], low, x[r], kind);
        sum[r][2 * i + 1] = mm_add(sum[r][2 * i + 1], high, x[r], kind);
    }
}
/* begin: i32 [rows], or NULL for zeros. */
LN void mm_begin(int32x4_t sum[MM_PAIRS][8], const int32_t *begin, int rows) {
#pragma GCC unroll 3
    for (int r = 0; r < (rows + 1) / 2; r++) {
        const int32x2_t two = begin != NULL ? mm_two(begin + 2 * r) : vdup_n_s32(0);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) sum[r][i] = vcombine_s32(two, two);
    }
}
LN ints mm_row(const int32x4_t s[8], int odd) {
    return odd == 0 ? (ints){vuzp1q_s32(s[0], s[1]), vuzp1q_s32(s[2], s[3]), vuzp1q_s32(s[4], s[5]),
                             vuzp1q_s32(s[6], s[7])}
                    : (ints){vuzp2q_s32(s[0], s[1]), vuzp2q_s32(s[2], s[3]), vuzp2q_s32(s[4], s[5]),
                             vuzp2q_s32(s[6], s[7])};
}

/* One panel's; x: [four][rows][4]. */
LN void mm_int8(int32x4_t sum[MM_PAIRS][8], const uint8_t *x, const uint8_t *weights, int rows,
                int pass, enum dtype w) {
    const enum mm_kind kind = w == DTYPE_INT8 && pass == 1 ? MM_UNSIGNED : MM_MIXED;
#pragma GCC unroll 1
    for (int j = 0; j < GROUP / 4; j += 2, x += 8 * rows, weights += 2 * Q_STEP_BYTES) {
        int32x4_t xv[MM_PAIRS];
#pragma GCC unroll 3
        for (int r = 0; r < (rows + 1) / 2; r++) xv[r] = mm_x(x + 8 * r, x + 4 * rows + 8 * r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            mm_part(sum, i, q_load_4(weights + 16 * i, pass, w),
                    q_load_4(weights + Q_STEP_BYTES + 16 * i, pass, w), xv, rows, kind);
    }
}
LN void mm_int4(int32x4_t sum[MM_PAIRS][8], const uint8_t *x, const uint8_t *weights, int rows) {
#pragma GCC unroll 1
    for (int j = 0; j < GROUP / 8; j++, x += 4 * rows, weights += Q_STEP_BYTES) {
        int32x4_t xv[MM_PAIRS];
#pragma GCC unroll 3
        for (int r = 0; r < (rows + 1) / 2; r++)
            xv[r] = mm_x(x + 8 * r, x + GROUP / 8 * 4 * rows + 8 * r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            mm_part(sum, i, q_load_4(weights + 16 * i, 0, DTYPE_INT4),
                    q_load_4(weights + 16 * i, 1, DTYPE_INT4), xv, rows, MM_SIGNED);
    }
}

LN void mm_group(ints out[TILE_ROWS][4], const uint8_t *x, const uint8_t *panel,
                 size_t panel_stride, size_t ahead, int rows, int panels, bool once, enum dtype w) {
    const int32_t *begin = (const int32_t *)(const void *)x + rows;
    const uint8_t *xq = x + 8 * rows;
    if (rows == 1) {
        q_group(out, x, panel, panel_stride, ahead, rows, panels, once, w);
        return;
    }
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++, panel += panel_stride) {
        const uint8_t *weights = panel + Q_SCALE_BYTES;
        int32x4_t sum[MM_PAIRS][8];
        for (size_t line = 0; line < group_bytes(w); line += 64) fetch(panel + ahead + line, once);
        mm_begin(sum, w == DTYPE_INT8 ? NULL : begin, rows);
        if (w == DTYPE_INT4) {
            mm_int4(sum, xq, weights, rows);
        } else {
            mm_int8(sum, xq, weights, rows, 0, w);
        }
        if (w == DTYPE_INT8) {
#pragma GCC unroll 3
            for (int r = 0; r < (rows + 1) / 2; r++) {
                const int32x2_t two = mm_two(begin + 2 * r);
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++) sum[r][i] = q_next_4(sum[r][i], vcombine_s32(two, two));
            }
            mm_int8(sum, xq + GROUP * rows, weights, rows, 1, w);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) out[r][p] = mm_row(sum[r / 2], r % 2);
    }
}
#define Q_GROUP mm_group

/* The sums of a unit, as b_unit() has them. */
LN void mm_unit(ints out[TILE_ROWS][4], int p, const uint8_t *unit, const uint8_t *x, int half,
                b_table table, int rows, enum dtype kind) {
    const struct block_format f = block_format(kind);
    const int32_t *words = (const int32_t *)(const void *)x + 2 * rows;
    int32x4_t sum[MM_PAIRS][8];
    ints high = b_load(unit + (f.high > 0 ? f.unit * PANEL_ROWS / 2 : 0));
    mm_begin(sum, kind == DTYPE_Q6_K ? words + half * rows : NULL, rows);
    x += 16 * rows + half * 16 * rows;
#pragma GCC unroll 1
    for (int i = 0; i < f.unit / 8; i++, unit += 4 * PANEL_ROWS, x += 8 * rows) {
        const int32x4_t bits[4] = {high.a, high.b, high.c, high.d};
        int32x4_t xv[MM_PAIRS];
#pragma GCC unroll 3
        for (int r = 0; r < (rows + 1) / 2; r++) xv[r] = mm_x(x + 8 * r, x + 4 * rows + 8 * r);
#pragma GCC unroll 4
        for (int part = 0; part < 4; part++) {
            const int32x4_t v = vreinterpretq_s32_u8(vld1q_u8(unit + 16 * part));
            mm_part(sum, part, b_values_4(v, 0, bits[part], kind, table),
                    b_values_4(v, 1, bits[part], kind, table), xv, rows, MM_SIGNED);
        }
        if (f.high > 0) high = b_next(high, 2 * f.high);
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) out[r][p] = mm_row(sum[r / 2], r % 2);
}
#define B_UNIT_ROWS mm_unit
