/* kernels_amx_quant: products of int8 and int4 weights with more than Q_ROWS_MAX rows, on tiles of
 * bytes; for kernels_amx.c. The sums of a group are integers, so these are the bits of all sets.
 *
 * A group ends after 32 k, half of what a tile takes: its product goes to memory, and vectors scale
 * it, while the next product runs. The tile unit is what waits: a product takes it 16 cycles and a
 * store as many. Weights are made signed bytes once for all rows, a slice of k of a panel, which
 * then stays in the first-level cache; so nothing is to be taken off the sums.
 *
 * Activations: what kernels_zmm_quant.h wants for up to Q_ROWS_MAX rows, then [row / 16][group]:
 * f32 scale [16]; the values i8 [16][32], which for 16-bit activations are the upper bytes, and
 * then their lower bytes u8 [16][32]. */

enum {
    GROUPS_SLICE = 16,
    G_BYTES = GROUP * PANEL_ROWS, /* of a group's weights as bytes */
    SUM_TILES = 2 * SUM_PAIRS,
};

static size_t few_bytes(int k, enum dtype w) {
    return (Q_ROWS_MAX * k_groups(k) * quant_x_bytes(w) + 63) / 64 * 64;
}

/* A group of a tile of rows. */
static size_t tile_x_bytes(enum dtype w) {
    return T_ROWS * (4 + GROUP * (w == DTYPE_INT8 ? 2 : 1));
}

static void x_pack_tiles(uint8_t *xp, const float *x, size_t x_stride, int first, int end, int k,
                         enum dtype w) {
    const size_t groups = k_groups(k), bytes = tile_x_bytes(w);
    xp += few_bytes(k, w);
    for (int r = first; r < end; r++) {
        const float *src = x + (size_t)r * x_stride;
        uint8_t *dst = xp + (size_t)(r / T_ROWS) * groups * bytes;
        const int at = r % T_ROWS;
        for (size_t g = 0; g < groups; g++, src += GROUP, dst += bytes) {
            int16_t q[GROUP];
            float scale;
            int32_t sum;
            q_row(q, &scale, &sum, src, k - (int)g * GROUP, quant_x_max(w));
            memcpy(dst + 4 * at, &scale, sizeof(scale));
            uint8_t *values = dst + 4 * T_ROWS + GROUP * at;
            const __m512i v = _mm512_loadu_si512(q);
            const __m256i low = _mm512_cvtepi16_epi8(v);
            if (w == DTYPE_INT8) {
                const __m256i high = _mm512_cvtepi16_epi8(_mm512_srli_epi16(v, 8));
                _mm256_storeu_si256((__m256i *)(void *)values, high);
                values += T_ROWS * GROUP;
            }
            _mm256_storeu_si256((__m256i *)(void *)values, low);
        }
    }
}

/* A slice of a panel: the weights as signed bytes in the order of a tile, and their scales. */
struct quant_slice {
    int8_t values[GROUPS_SLICE][G_BYTES];
    float scales[GROUPS_SLICE][PANEL_ROWS];
};

static void slice_weights(struct quant_slice *to, const uint8_t *panel, int n, enum dtype w) {
    const __m512i lower = _mm512_set1_epi8(15), offset4 = _mm512_set1_epi8(QUANT_OFFSET4),
                  offset8 = _mm512_set1_epi8((char)QUANT_OFFSET8);
    for (int g = 0; g < n; g++, panel += group_bytes(w)) {
        const uint8_t *from = panel + Q_SCALE_BYTES;
        int8_t *values = to->values[g];
        ln_store(to->scales[g], ln_load_bf16((const uint16_t *)(const void *)panel));
        for (size_t line = 0; line < group_bytes(w); line += T_LINE)
            __builtin_prefetch(panel + line + AHEAD_BYTES);
        if (w == DTYPE_INT4) {
            for (int j = 0; j < G_BYTES / 2; j += T_LINE) {
                const __m512i v = _mm512_loadu_si512(from + j);
                _mm512_store_si512(values + j,
                                   _mm512_sub_epi8(_mm512_and_si512(v, lower), offset4));
                _mm512_store_si512(
                    values + G_BYTES / 2 + j,
                    _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(v, 4), lower), offset4));
            }
        } else {
            for (int j = 0; j < G_BYTES; j += T_LINE)
                _mm512_store_si512(values + j,
                                   _mm512_xor_si512(_mm512_loadu_si512(from + j), offset8));
        }
    }
}

/* Integer sums of a group: of 16-bit activations the upper bytes' and the lower bytes'. */
typedef int32_t group_sums[2][T_ROWS][PANEL_ROWS];

/* The products of a group, and, apart from them, their sums to memory. T and U are tiles of sums, W
 * one of weights. */
#define DOTS_IN(T, X, W, values, product)                                                          \
    do {                                                                                           \
        T_STREAM(X, values, GROUP);                                                                \
        _tile_zero(T);                                                                             \
        product(T, X, W);                                                                          \
    } while (0)
#define SUMS_OUT(T, sum)                                                                           \
    do {                                                                                           \
        _tile_stored(T, sum, T_LINE);                                                              \
        T_WRITTEN(sum);                                                                            \
    } while (0)
#define BYTE_DOTS(T, X, W, x, weights)                                                             \
    do {                                                                                           \
        T_LOAD(W, weights, T_LINE);                                                                \
        DOTS_IN(T, X, W, (x) + 4 * T_ROWS, _tile_dpbssd);                                          \
    } while (0)
#define WIDE_DOTS(T, U, W, x, weights)                                                             \
    do {                                                                                           \
        T_LOAD(W, weights, T_LINE);                                                                \
        DOTS_IN(T, 4, W, (x) + 4 * T_ROWS, _tile_dpbssd);                                          \
        DOTS_IN(U, 5, W, (x) + 4 * T_ROWS + T_ROWS * GROUP, _tile_dpbusd);                         \
    } while (0)
#define WIDE_OUT(T, U, sums)                                                                       \
    do {                                                                                           \
        SUMS_OUT(T, (sums)[0]);                                                                    \
        SUMS_OUT(U, (sums)[1]);                                                                    \
    } while (0)

/* acc = fma(sum, scales, acc), as all sets do. */
LN void group_add(lanes acc[T_ROWS], group_sums sums, const uint8_t *x, const float *scales,
                  enum dtype w) {
    const float *x_scale = (const float *)(const void *)x;
    const lanes w_scale = ln_load(scales);
#pragma GCC unroll 16
    for (int r = 0; r < T_ROWS; r++) {
        __m512i sum = _mm512_load_si512(sums[0][r]);
        if (w == DTYPE_INT8)
            sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), _mm512_load_si512(sums[1][r]));
        acc[r] = ln_fma(_mm512_cvtepi32_ps(sum), ln_mul(w_scale, ln_set1(x_scale[r])), acc[r]);
    }
}

LN void sums_begin(lanes acc[T_ROWS], const float *from, bool carry) {
#pragma GCC unroll 16
    for (int r = 0; r < T_ROWS; r++) acc[r] = carry ? ln_load(from + r * PANEL_ROWS) : ln_set1(0);
}
LN void sums_end(float *to, const lanes acc[T_ROWS]) {
#pragma GCC unroll 16
    for (int r = 0; r < T_ROWS; r++) ln_store(to + r * PANEL_ROWS, acc[r]);
}

/* n groups of a tile of rows by a panel, added to f32 [16][16]. Three groups are at work: one is
 * multiplied, the sums of the one before it are stored, and those of the one before that, which
 * lie in the cache by then, are scaled. A store right behind its product waits for it, and what
 * reads the store for both, in the places of others. */
static NOINLINE void quant_tile_bytes(float *to, const uint8_t *x,
                                      const struct quant_slice *weights, int n, bool carry) {
    const enum dtype w = DTYPE_INT8_NARROW;
    const size_t bytes = tile_x_bytes(w);
    group_sums sums[2] __attribute__((aligned(64)));
    lanes acc[T_ROWS];
    sums_begin(acc, to, carry);
    BYTE_DOTS(0, 4, 6, x, weights->values[0]);
    if (n > 1) BYTE_DOTS(1, 5, 7, x + bytes, weights->values[1]);
    SUMS_OUT(0, sums[0]);
    for (int g = 0; g < n; g += 2, x += 2 * bytes) {
        if (g + 2 < n) BYTE_DOTS(0, 4, 6, x + 2 * bytes, weights->values[g + 2]);
        group_add(acc, sums[0], x, weights->scales[g], w);
        if (g + 1 == n) break;
        SUMS_OUT(1, sums[1]);
        if (g + 3 < n) BYTE_DOTS(1, 5, 7, x + 3 * bytes, weights->values[g + 3]);
        group_add(acc, sums[1], x + bytes, weights->scales[g + 1], w);
        if (g + 2 < n) SUMS_OUT(0, sums[0]);
    }
    sums_end(to, acc);
}

static NOINLINE void quant_tile_wide(float *to, const uint8_t *x, const struct quant_slice *weights,
                                     int n, bool carry) {
    const enum dtype w = DTYPE_INT8;
    const size_t bytes = tile_x_bytes(w);
    group_sums sums[2] __attribute__((aligned(64)));
    lanes acc[T_ROWS];
    sums_begin(acc, to, carry);
    WIDE_DOTS(0, 1, 6, x, weights->values[0]);
    if (n > 1) WIDE_DOTS(2, 3, 7, x + bytes, weights->values[1]);
    WIDE_OUT(0, 1, sums[0]);
    for (int g = 0; g < n; g += 2, x += 2 * bytes) {
        if (g + 2 < n) WIDE_DOTS(0, 1, 6, x + 2 * bytes, weights->values[g + 2]);
        group_add(acc, sums[0], x, weights->scales[g], w);
        if (g + 1 == n) break;
        WIDE_OUT(2, 3, sums[1]);
        if (g + 3 < n) WIDE_DOTS(2, 3, 7, x + 3 * bytes, weights->values[g + 3]);
        group_add(acc, sums[1], x + bytes, weights->scales[g + 1], w);
        if (g + 2 < n) WIDE_OUT(0, 1, sums[0]);
    }
    sums_end(to, acc);
}

/* What y has of a tile. */
static void tile_copy(const struct product *p, int tile, int panel, const float *from) {
    const int n = p->n_cols - panel * PANEL_ROWS, cols = n < PANEL_ROWS ? n : PANEL_ROWS;
    float *y = p->y + (size_t)tile * T_ROWS * p->y_stride + (size_t)panel * PANEL_ROWS;
    for (int r = 0; r < T_ROWS && tile * T_ROWS + r < p->n_rows; r++, y += p->y_stride)
        put(y, ln_load(from + r * PANEL_ROWS), cols);
}

enum { X_SLICE_BYTES = GROUPS_SLICE * T_ROWS * (4 + 2 * GROUP) };

/* A slice of a tile with fewer rows, whose others were never packed: with scales of zero in their
 * place. What lies there may be denormal, and each product of it would cost a hundred cycles. */
static const uint8_t *part_tile(uint8_t part[X_SLICE_BYTES], const uint8_t *x, int rows, int n,
                                size_t bytes) {
    memcpy(part, x, (size_t)n * bytes);
    for (int g = 0; g < n; g++)
        memset(part + (size_t)g * bytes + 4 * rows, 0, 4 * (size_t)(T_ROWS - rows));
    return part;
}

/* One slice of one panel; sums: f32 [tile][16][16]. */
static void quant_panel(const struct product *p, int panel, int first, int n, float *sums,
                        enum dtype w) {
    struct quant_slice weights __attribute__((aligned(64)));
    uint8_t part[X_SLICE_BYTES] __attribute__((aligned(64)));
    const size_t groups = k_groups(p->k), x_bytes = tile_x_bytes(w);
    slice_weights(&weights,
                  p->panels + (size_t)panel * p->panel_stride + (size_t)first * group_bytes(w), n,
                  w);
    for (int t = 0; t * T_ROWS < p->n_rows; t++) {
        const uint8_t *x = p->x + ((size_t)t * groups + (size_t)first) * x_bytes;
        float *to = sums + (size_t)t * T_ROWS * PANEL_ROWS;
        const int rows = p->n_rows - t * T_ROWS;
        if (rows < T_ROWS) x = part_tile(part, x, rows, n, x_bytes);
        if (w == DTYPE_INT8)
            quant_tile_wide(to, x, &weights, n, first > 0);
        else
            quant_tile_bytes(to, x, &weights, n, first > 0);
        if (first + n == (int)groups) tile_copy(p, t, panel, to);
    }
}

/* Up to SUM_TILES tiles of rows by AMX_PANELS panels. Few rows take a panel from its first to its
 * last byte: it comes from memory in one stream. */
static void quant_item(const struct product *p, enum dtype w) {
    float sums[AMX_PANELS][SUM_TILES * T_ROWS * PANEL_ROWS] __attribute__((aligned(64)));
    const int n_panels = (p->n_cols + PANEL_ROWS - 1) / PANEL_ROWS, groups = (int)k_groups(p->k);
    const int slices = (groups + GROUPS_SLICE - 1) / GROUPS_SLICE;
    const bool stream = p->n_rows <= T_PAIR_ROWS;
    for (int i = 0; i < slices * n_panels; i++) {
        const int panel = stream ? i / slices : i % n_panels,
                  first = (stream ? i % slices : i / n_panels) * GROUPS_SLICE;
        quant_panel(p, panel, first, groups - first < GROUPS_SLICE ? groups - first : GROUPS_SLICE,
                    sums[panel], w);
    }
}

static void gemm_tiles_quant(const struct product *p, enum dtype w) {
    const int n_panels = (p->n_cols + PANEL_ROWS - 1) / PANEL_ROWS;
    configure_quant();
    for (int m = 0; m < p->n_rows; m += SUM_TILES * T_ROWS) {
        for (int panel = 0; panel < n_panels; panel += AMX_PANELS) {
            struct product item = *p;
            item.y += (size_t)m * p->y_stride + (size_t)panel * PANEL_ROWS;
            item.x += (size_t)(m / T_ROWS) * k_groups(p->k) * tile_x_bytes(w);
            item.panels += (size_t)panel * p->panel_stride;
            item.n_rows -= m;
            item.n_cols -= panel * PANEL_ROWS;
            if (item.n_rows > SUM_TILES * T_ROWS) item.n_rows = SUM_TILES * T_ROWS;
            if (item.n_cols > AMX_PANELS * PANEL_ROWS) item.n_cols = AMX_PANELS * PANEL_ROWS;
            quant_item(&item, w);
        }
    }
}
