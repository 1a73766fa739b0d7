/* kernels_amx_attention: attention over a chunk of bf16 KV on tiles; for kernels_amx.c. Queries and
 * weights are rounded to bf16 as they are. Blocks of 32 positions, and of 32 d, begin with the
 * chunk and the row: what a query gets depends on it and on what it sees, not on the others. What
 * nobody sees counts as zeros; what a query does not see has the weight zero. */

enum {
    A_TILES = 4, /* of queries at a time */
    A_QUERIES = A_TILES * T_ROWS,
    A_BLOCKS = KV_CHUNK / GROUP,
    A_DIM_BLOCKS = KEY_DIM_MAX / GROUP,
    A_COLS = 64, /* d of values at a time */
};

/* bf16 of 32 floats, as the processor rounds: denormals become zeros. */
LN void store_pairs(uint8_t *to, lanes low, lanes high) {
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Rows of f32 as first factors: [row / 16][block of 32][row % 16][32]. Whole tiles, of zeros where
 * there is no row. n columns, of which a whole group of lanes can be read. */
LN void factor_rows(uint8_t *to, const float *rows, size_t stride, int n_rows, int n, float f) {
    const int blocks = (n + GROUP - 1) / GROUP;
    const lanes scale = ln_set1(f);
    if (n_rows % T_ROWS != 0)
        memset(to + (size_t)(n_rows / T_ROWS * blocks) * T_BYTES, 0, (size_t)blocks * T_BYTES);
    for (int r = 0; r < n_rows; r++) {
        const float *at = rows + (size_t)r * stride;
        uint8_t *dst = to + (size_t)(r / T_ROWS * blocks) * T_BYTES + (size_t)(r % T_ROWS) * T_LINE;
        for (int b = 0; b < blocks; b++, at += GROUP, dst += T_BYTES) {
            const lanes low = ln_load(at),
                        high = b * GROUP + LANES < n ? ln_load(at + LANES) : ln_set1(0);
            store_pairs(dst, ln_mul(low, scale), ln_mul(high, scale));
        }
    }
}

/* Sums of two tiles of rows by two of columns, or of one; where y has not all of their rows,
 * through a copy. rows: from the first on. */
LN void sums_out(float *y, size_t stride, int rows, bool both) {
    float part[2][2][T_ROWS][PANEL_ROWS] __attribute__((aligned(64)));
    if (rows >= 2 * T_ROWS || (!both && rows == T_ROWS)) {
        _tile_stored(0, y, stride * sizeof(float));
        _tile_stored(1, y + PANEL_ROWS, stride * sizeof(float));
        if (!both) return;
        _tile_stored(2, y + T_ROWS * stride, stride * sizeof(float));
        _tile_stored(3, y + T_ROWS * stride + PANEL_ROWS, stride * sizeof(float));
        return;
    }
    _tile_stored(0, part[0][0], T_LINE);
    _tile_stored(1, part[0][1], T_LINE);
    if (both) {
        _tile_stored(2, part[1][0], T_LINE);
        _tile_stored(3, part[1][1], T_LINE);
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < 2; c++)
            ln_store(y + (size_t)r * stride + c * PANEL_ROWS,
                     ln_load(part[r / T_ROWS][c][r % T_ROWS]));
    }
}

/* y = a b: a of up to two tiles of rows a_stride apart, b of two of columns b_stride apart; n
 * blocks of both, one behind the other, those of b b_step apart. */
LN void product_out(float *y, size_t stride, int rows, const uint8_t *a, size_t a_stride,
                    const uint8_t *b, size_t b_stride, size_t b_step, int n) {
    const bool both = rows > T_ROWS;
    for (int t = 0; t < 4; t++) acc_zero(t);
    for (int i = 0; i < n; i++, a += T_BYTES, b += b_step) {
        T_LOAD(4, a, T_LINE);
        T_LOAD(6, b, T_LINE);
        _tile_dpbf16ps(0, 4, 6);
        T_LOAD(7, b + b_stride, T_LINE);
        _tile_dpbf16ps(1, 4, 7);
        if (!both) continue;
        T_LOAD(5, a + a_stride, T_LINE);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    sums_out(y, stride, rows, both);
}

/* Thirty-two keys as second factors: [block of 32 d][two][16 pairs of d][16 keys][2]. */
static void factor_keys(uint8_t *to, const void *const *keys, int head_dim) {
    uint8_t rows[GROUP][A_DIM_BLOCKS * T_LINE] __attribute__((aligned(64)));
    const int blocks = (head_dim + GROUP - 1) / GROUP;
    const size_t bytes = (size_t)head_dim * 2, up = (size_t)blocks * T_LINE;
    for (int p = 0; p < GROUP; p++) {
        if (keys[p] != NULL) memcpy(rows[p], keys[p], bytes);
        memset(rows[p] + (keys[p] != NULL ? bytes : 0), 0, up - (keys[p] != NULL ? bytes : 0));
    }
    const size_t stride = sizeof(rows[0]) / sizeof(float);
    for (int b = 0; b < blocks; b++) {
        for (int half = 0; half < 2; half++, to += T_BYTES) {
            const float *from = (const float *)(const void *)(rows[half * T_ROWS] + b * T_LINE);
            for (int i = 0; i < T_PAIRS; i += 8) {
                for (int p = 0; p < T_ROWS; p += 8)
                    turn_8x8((float *)(void *)to + i * T_ROWS + p, T_ROWS,
                             from + (size_t)p * stride + i, stride);
            }
        }
    }
}

static bool any_of(const void *const *rows, int block) {
    bool any = false;
    for (int p = 0; p < GROUP; p++) any = any || rows[block * GROUP + p] != NULL;
    return any;
}

static void chunk_scores(float *s, size_t s_stride, const float *q, size_t q_stride, int n_q,
                         const void *const *keys, int head_dim, float f) {
    uint8_t queries[A_TILES * A_DIM_BLOCKS * T_BYTES] __attribute__((aligned(64))),
        columns[2 * A_DIM_BLOCKS * T_BYTES] __attribute__((aligned(64)));
    const int blocks = (head_dim + GROUP - 1) / GROUP;
    const size_t tile = (size_t)blocks * T_BYTES;
    configure_bf16(T_ROWS, T_ROWS);
    for (int at = 0; at < n_q; at += A_QUERIES) {
        const int n = n_q - at < A_QUERIES ? n_q - at : A_QUERIES;
        factor_rows(queries, q + (size_t)at * q_stride, q_stride, n, (int)q_stride, f);
        for (int b = 0; b < A_BLOCKS; b++) {
            if (!any_of(keys, b)) continue;
            factor_keys(columns, keys + b * GROUP, head_dim);
            for (int i = 0; i < n; i += 2 * T_ROWS)
                product_out(s + (size_t)(at + i) * s_stride + b * GROUP, s_stride, n - i,
                            queries + (size_t)(i / T_ROWS) * tile, tile, columns, T_BYTES,
                            2 * T_BYTES, blocks);
        }
    }
    _tile_release();
}

/* Columns [first, first + 16 n) of two rows of values: pairs for n tiles, T_BYTES apart. Where a
 * value is not finite, *wild becomes so. */
LN void pair_rows(uint8_t *to, const uint8_t *a, const uint8_t *b, int n, __m256i *wild) {
    const __m256i most = _mm256_set1_epi16(0x7f80);
    for (int i = 0; i < n; i++, a += 2 * LANES, b += 2 * LANES, to += T_BYTES) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)a),
                      y = _mm256_loadu_si256((const __m256i *)(const void *)b);
        const __m256i low = _mm256_unpacklo_epi16(x, y), high = _mm256_unpackhi_epi16(x, y);
        *wild = _mm256_or_si256(
            *wild, _mm256_or_si256(_mm256_cmpeq_epi16(_mm256_and_si256(x, most), most),
                                   _mm256_cmpeq_epi16(_mm256_and_si256(y, most), most)));
        _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(to + 2 * LANES),
                            _mm256_permute2x128_si256(low, high, 0x31));
    }
}

/* Thirty-two values as second factors: [n tiles of 16 d][16 pairs of positions][16 d][2]. */
static void factor_values(uint8_t *to, const void *const *values, int first, int n, int head_dim,
                          __m256i *wild) {
    uint8_t rows[2][A_COLS * 2];
    for (int p = 0; p < GROUP; p += 2, to += T_LINE) {
        const uint8_t *from[2];
        for (int i = 0; i < 2; i++) {
            const uint8_t *row = values[p + i];
            const int there = row == NULL ? 0 : head_dim - first;
            from[i] = row + 2 * first;
            if (there >= n * LANES) continue;
            memset(rows[i], 0, sizeof(rows[i]));
            if (there > 0) memcpy(rows[i], row + 2 * first, (size_t)there * 2);
            from[i] = rows[i];
        }
        pair_rows(to, from[0], from[1], n, wild);
    }
}

static bool chunk_mix(float *o, size_t o_stride, const float *w, size_t w_stride, int n_q,
                      const void *const *values, int head_dim) {
    uint8_t weights[A_TILES * A_BLOCKS * T_BYTES] __attribute__((aligned(64))),
        pairs_of_v[A_BLOCKS * (A_COLS / LANES) * T_BYTES] __attribute__((aligned(64)));
    const int cols = lanes_up(head_dim);
    __m256i wild = _mm256_setzero_si256();
    int from = 0, end = A_BLOCKS;
    while (from < end && !any_of(values, from)) from++;
    while (end > from && !any_of(values, end - 1)) end--;
    configure_bf16(T_ROWS, T_ROWS);
    for (int at = 0; at < n_q; at += A_QUERIES) {
        const int n = n_q - at < A_QUERIES ? n_q - at : A_QUERIES, blocks = end - from;
        factor_rows(weights, w + (size_t)at * w_stride + from * GROUP, w_stride, n, blocks * GROUP,
                    1);
        for (int d = 0; d < cols; d += A_COLS) {
            const int tiles = (cols - d < A_COLS ? cols - d : A_COLS) / LANES;
            const size_t step = (size_t)tiles * T_BYTES;
            for (int b = 0; b < blocks; b++)
                factor_values(pairs_of_v + (size_t)b * step, values + (from + b) * GROUP, d, tiles,
                              head_dim, &wild);
            for (int i = 0; i < n; i += 2 * T_ROWS) {
                const uint8_t *a = weights + (size_t)(i / T_ROWS * blocks) * T_BYTES;
                float *to = o + (size_t)(at + i) * o_stride + d;
                int c = 0;
                for (; c + 2 <= tiles; c += 2)
                    product_out(to + c * LANES, o_stride, n - i, a, (size_t)blocks * T_BYTES,
                                pairs_of_v + (size_t)c * T_BYTES, T_BYTES, step, blocks);
                if (c < tiles) {
                    float part[2 * T_ROWS][2 * PANEL_ROWS];
                    const int rows = n - i < 2 * T_ROWS ? n - i : 2 * T_ROWS;
                    product_out(part[0], 2 * PANEL_ROWS, rows, a, (size_t)blocks * T_BYTES,
                                pairs_of_v + (size_t)c * T_BYTES, 0, step, blocks);
                    for (int r = 0; r < rows; r++)
                        ln_store(to + (size_t)r * o_stride + c * LANES, ln_load(part[r]));
                }
            }
        }
    }
    _tile_release();
    return _mm256_testz_si256(wild, wild) != 0;
}
