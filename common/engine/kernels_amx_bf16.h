/* kernels_amx_bf16: products of bf16 weights on tiles; for kernels_amx.c.
 *
 * Many rows go in pairs of tiles by pairs of panels: four accumulators, and each tile that is
 * loaded meets two others. A slice of k of two panels stays in the first-level cache while all rows
 * pass by it; the activations are loaded as a stream (TILELOADDT1), which leaves it there. Sums
 * wait for the next slice tile behind tile: in y rows lie powers of two apart. While one slice is
 * at work the weights of the next two panels, and the activations of the next slice of k, are
 * fetched into the second-level cache, a few lines each step: in bursts they would take the buffers
 * that tiles are loaded through.
 *
 * Activations: bf16 [row / 32][block of 32 k][row / 16 % 2][row % 16][32]. */

static size_t pair_bytes(int k) {
    return 2 * T_BYTES * k_groups(k);
}

static uint8_t *bf16_row(const uint8_t *xp, int r, int k) {
    return (uint8_t *)xp + (size_t)(r / T_PAIR_ROWS) * pair_bytes(k) +
           (size_t)(r / T_ROWS % 2) * T_BYTES + (size_t)(r % T_ROWS) * T_LINE;
}

static void x_pack_bf16(uint8_t *xp, const float *x, size_t x_stride, int first, int end, int k) {
    const size_t blocks = k_groups(k);
    for (int r = first; r < end; r++) {
        const float *src = x + (size_t)r * x_stride;
        uint8_t *dst = bf16_row(xp, r, k);
        for (size_t b = 0; b < blocks; b++, src += GROUP, dst += 2 * T_BYTES) {
            const int n = k - (int)b * GROUP;
            uint16_t *to = (uint16_t *)(void *)dst;
            ln_store_bf16(to, q_get(src, n));
            ln_store_bf16(to + LANES, n > LANES ? q_get(src + LANES, n - LANES) : ln_set1(0));
        }
    }
}

static void x_gather_bf16(uint8_t *xp, const uint8_t *from, const int *rows, int n, int k) {
    const size_t blocks = k_groups(k);
    for (int r = 0; r < n; r++) {
        const uint8_t *src = bf16_row(from, rows[r], k);
        uint8_t *dst = bf16_row(xp, r, k);
        for (size_t b = 0; b < blocks; b++, src += 2 * T_BYTES, dst += 2 * T_BYTES)
            memcpy(dst, src, T_LINE);
    }
}

struct product {
    float *y;
    size_t y_stride;
    const uint8_t *x, *panels;
    size_t panel_stride;
    int k, n_cols, n_rows;
};

/* Blocks of k that a panel holds whole; where it has one more, that is short. */
static int whole_blocks(int k) {
    return (k + 1) / 2 / T_PAIRS;
}

/* The last block of k of up to four panels from `panel` on, filled up with zeros. */
static void last_block(uint8_t last[4][T_BYTES], const struct product *p, int panel, int panels) {
    const size_t whole = (size_t)whole_blocks(p->k), tail = (size_t)(p->k + 1) / 2 % T_PAIRS;
    memset(last, 0, 4 * T_BYTES);
    for (int i = 0; i < panels; i++)
        memcpy(last[i], p->panels + (size_t)(panel + i) * p->panel_stride + whole * T_BYTES,
               tail * T_LINE);
}

/* ---- pairs of tiles of rows */

/* Where four accumulators lie, of two tiles of rows by two panels: tile behind tile, or in y. */
struct pair_sums {
    float *at;                       /* of the first row and panel */
    size_t stride, next_rows, panel; /* bytes from row to row; floats to the other tiles */
};
enum { PAIR_FLOATS = 4 * T_ROWS * PANEL_ROWS };

#define SUMS_FROM(A0, A1, A2, A3, from)                                                            \
    do {                                                                                           \
        T_LOAD(A0, from, T_LINE);                                                                  \
        T_LOAD(A1, (from) + T_ROWS * PANEL_ROWS, T_LINE);                                          \
        T_LOAD(A2, (from) + 2 * T_ROWS * PANEL_ROWS, T_LINE);                                      \
        T_LOAD(A3, (from) + 3 * T_ROWS * PANEL_ROWS, T_LINE);                                      \
    } while (0)
#define SUMS_ZERO(A0, A1, A2, A3)                                                                  \
    do {                                                                                           \
        _tile_zero(A0);                                                                            \
        _tile_zero(A1);                                                                            \
        _tile_zero(A2);                                                                            \
        _tile_zero(A3);                                                                            \
    } while (0)
#define SUMS_TO(A0, A1, A2, A3, s)                                                                 \
    do {                                                                                           \
        _tile_stored(A0, (s).at, (s).stride);                                                      \
        _tile_stored(A1, (s).at + (s).panel, (s).stride);                                          \
        _tile_stored(A2, (s).at + (s).next_rows, (s).stride);                                      \
        _tile_stored(A3, (s).at + (s).next_rows + (s).panel, (s).stride);                          \
    } while (0)
/* A block of k: X and Y take the two tiles of rows at x, P and Q those of the panels at w. */
#define PAIR_STEP(A0, A1, A2, A3, X, Y, P, Q, x, w, w_stride)                                      \
    do {                                                                                           \
        T_STREAM(X, x, T_LINE);                                                                    \
        T_LOAD(P, w, T_LINE);                                                                      \
        _tile_dpbf16ps(A0, X, P);                                                                  \
        T_LOAD(Q, (w) + (w_stride), T_LINE);                                                       \
        _tile_dpbf16ps(A1, X, Q);                                                                  \
        T_STREAM(Y, (x) + T_BYTES, T_LINE);                                                        \
        _tile_dpbf16ps(A2, Y, P);                                                                  \
        _tile_dpbf16ps(A3, Y, Q);                                                                  \
    } while (0)

LN void fetch_lines(const uint8_t **at, int lines) {
    for (int i = 0; i < lines; i++, *at += T_LINE) __builtin_prefetch(*at, 0, 2);
}

/* Two panels (or one: w_stride is 0), one slice of k. */
struct slice {
    const struct product *p;
    int panel, panels, first, end; /* blocks [first, end) of k */
    bool carry, to_y;              /* sums begin with what the slice before left; they are done */
    float *sums;                   /* of these panels: PAIR_FLOATS for each pair of rows */
    const uint8_t *w, *last; /* last: the last block of k, where it is short and in the slice */
    size_t w_stride;
    /* Fetched meanwhile: of the next slice's panels so many lines a step, in two runs; of the next
     * activations so many bytes for each pair of rows, `shares` of which are a pair's slice. */
    const uint8_t *next_w[2], *next_x;
    int w_lines, share, shares;
    size_t share_bytes;
};

/* Whether pair m of rows and these panels are all there in y. */
static bool pair_in_y(const struct slice *s, int m) {
    return (m + 1) * T_PAIR_ROWS <= s->p->n_rows && (s->panel + 2) * PANEL_ROWS <= s->p->n_cols;
}

/* Where the sums of pair m go. */
static struct pair_sums pair_sums_of(const struct slice *s, int m) {
    const struct product *p = s->p;
    if (!s->to_y || !pair_in_y(s, m))
        return (struct pair_sums){s->sums + (size_t)m * PAIR_FLOATS, T_LINE,
                                  2 * T_ROWS * PANEL_ROWS, T_ROWS * PANEL_ROWS};
    return (struct pair_sums){p->y + (size_t)m * T_PAIR_ROWS * p->y_stride +
                                  (size_t)s->panel * PANEL_ROWS,
                              p->y_stride * sizeof(float), T_ROWS * p->y_stride, PANEL_ROWS};
}

/* What y has of pair m, from its sums. */
static void pair_copy(const struct slice *s, int m) {
    const struct product *p = s->p;
    const int row = m * T_PAIR_ROWS, rows = p->n_rows - row;
    for (int r = 0; r < T_PAIR_ROWS && r < rows; r++) {
        for (int i = 0; i < s->panels; i++) {
            const int col = (s->panel + i) * PANEL_ROWS, n = p->n_cols - col;
            const float *from = s->sums + (size_t)m * PAIR_FLOATS +
                                (size_t)(r / T_ROWS * 2 + i) * T_ROWS * PANEL_ROWS +
                                (size_t)(r % T_ROWS) * PANEL_ROWS;
            memcpy(p->y + (size_t)(row + r) * p->y_stride + col, from,
                   (size_t)(n < PANEL_ROWS ? n : PANEL_ROWS) * sizeof(float));
        }
    }
}

#define PAIR_BEGIN(A0, A1, A2, A3, m)                                                              \
    do {                                                                                           \
        if (s->carry)                                                                              \
            SUMS_FROM(A0, A1, A2, A3, s->sums + (size_t)(m)*PAIR_FLOATS);                          \
        else                                                                                       \
            SUMS_ZERO(A0, A1, A2, A3);                                                             \
    } while (0)
#define PAIR_END(A0, A1, A2, A3, m)                                                                \
    do {                                                                                           \
        const struct pair_sums e_sums = pair_sums_of(s, m);                                        \
        SUMS_TO(A0, A1, A2, A3, e_sums);                                                           \
        if (s->to_y && !pair_in_y(s, m)) pair_copy(s, m);                                          \
    } while (0)
#define PAIR_RUN(A0, A1, A2, A3, X, Y, P, Q, m)                                                    \
    do {                                                                                           \
        const uint8_t *x = x0 + (size_t)(m)*x_stride, *w = s->w;                                   \
        const int t = s->share + (m);                                                              \
        const uint8_t *fx = s->next_x + (size_t)(t / s->shares) * x_stride +                       \
                            (size_t)(t % s->shares) * s->share_bytes;                              \
        const int x_lines = (int)(s->share_bytes / T_LINE) / steps;                                \
        if ((m) == n / 2) fw = s->next_w[1];                                                       \
        for (int b = 0; b < whole; b++, x += 2 * T_BYTES, w += T_BYTES) {                          \
            fetch_lines(&fw, s->w_lines);                                                          \
            fetch_lines(&fx, x_lines);                                                             \
            PAIR_STEP(A0, A1, A2, A3, X, Y, P, Q, x, w, s->w_stride);                              \
        }                                                                                          \
        if (s->last != NULL) PAIR_STEP(A0, A1, A2, A3, X, Y, P, Q, x, s->last, T_BYTES);           \
    } while (0)

/* All pairs of rows. Sums and factors change places from pair to pair: so the sums of the next one
 * are loaded before those of the last are stored, and neither waits for the other. */
static void slice_run(const struct slice *s, int n) {
    const size_t x_stride = pair_bytes(s->p->k);
    const uint8_t *x0 = s->p->x + (size_t)s->first * 2 * T_BYTES, *fw = s->next_w[0];
    const int steps = s->end - s->first, whole = steps - (s->last != NULL);
    PAIR_BEGIN(0, 1, 2, 3, 0);
    for (int m = 0; m < n; m += 2) {
        PAIR_RUN(0, 1, 2, 3, 4, 5, 6, 7, m);
        if (m + 1 < n) PAIR_BEGIN(4, 5, 6, 7, m + 1);
        PAIR_END(0, 1, 2, 3, m);
        if (m + 1 == n) return;
        PAIR_RUN(4, 5, 6, 7, 0, 1, 2, 3, m + 1);
        if (m + 2 < n) PAIR_BEGIN(0, 1, 2, 3, m + 2);
        PAIR_END(4, 5, 6, 7, m + 1);
    }
}

/* The first n_pairs pairs of rows, which are at most SUM_PAIRS, by at most AMX_PANELS panels. */
static void rows_many_item(const struct product *p, int n_pairs) {
    const int n_panels = (p->n_cols + PANEL_ROWS - 1) / PANEL_ROWS, blocks = (int)k_groups(p->k),
              shares = (n_panels + 1) / 2;
    uint8_t last[4][T_BYTES] __attribute__((aligned(64)));
    float sums[AMX_PANELS / 2 * SUM_PAIRS * PAIR_FLOATS] __attribute__((aligned(64)));
    for (int b = 0; b < blocks; b += K_SLICE) {
        const int end = blocks - b < K_SLICE ? blocks : b + K_SLICE, next = end < blocks ? end : 0;
        for (int panel = 0; panel < n_panels; panel += 2) {
            struct slice s = {.p = p,
                              .panel = panel,
                              .panels = n_panels - panel < 2 ? 1 : 2,
                              .first = b,
                              .end = end,
                              .carry = b > 0,
                              .to_y = end == blocks,
                              .sums = sums + (size_t)(panel / 2 * n_pairs) * PAIR_FLOATS,
                              .share = panel / 2 * n_pairs,
                              .shares = shares,
                              .share_bytes = (size_t)(end - b) * 2 * T_BYTES / (size_t)shares};
            s.w = p->panels + (size_t)panel * p->panel_stride + (size_t)b * T_BYTES;
            s.w_stride = s.panels < 2 ? 0 : p->panel_stride;
            s.next_w[0] = s.w + 2 * p->panel_stride;
            if (panel + 2 >= n_panels && next > 0) s.next_w[0] = p->panels + (size_t)next * T_BYTES;
            s.next_w[1] = s.next_w[0] + p->panel_stride;
            s.next_x = p->x + (size_t)next * 2 * T_BYTES;
            s.w_lines = n_pairs < T_PAIR_ROWS ? (T_PAIR_ROWS + n_pairs - 1) / n_pairs : 1;
            if (end > whole_blocks(p->k)) {
                last_block(last, p, panel, s.panels);
                s.last = last[0];
            }
            slice_run(&s, n_pairs);
        }
    }
}

static void rows_many(const struct product *p, int n_pairs) {
    const int n_panels = (p->n_cols + PANEL_ROWS - 1) / PANEL_ROWS;
    configure_bf16(T_ROWS, T_ROWS);
    for (int m = 0; m < n_pairs; m += SUM_PAIRS) {
        for (int panel = 0; panel < n_panels; panel += AMX_PANELS) {
            struct product item = *p;
            item.y += (size_t)m * T_PAIR_ROWS * p->y_stride + (size_t)panel * PANEL_ROWS;
            item.x += (size_t)m * pair_bytes(p->k);
            item.panels += (size_t)panel * p->panel_stride;
            item.n_rows -= m * T_PAIR_ROWS;
            item.n_cols -= panel * PANEL_ROWS;
            if (item.n_cols > AMX_PANELS * PANEL_ROWS) item.n_cols = AMX_PANELS * PANEL_ROWS;
            rows_many_item(&item, n_pairs - m < SUM_PAIRS ? n_pairs - m : SUM_PAIRS);
        }
    }
}

/* ---- up to two tiles of rows, over all of k in one, by two panels: with four, or with all fetches
 * of a block at once, memory is read slower */
enum { FEW_WIDE = 2 };

/* How far ahead the weights of a block are fetched, bytes: into the second-level cache, and the
 * next block's into the first. 0: they are not. */
struct few_ahead {
    size_t far, near;
};

/* The tile that is loaded from w next, and what is fetched beside it. */
LN void fetch_tile(const uint8_t *w, struct few_ahead ahead) {
    if (ahead.far == 0) return;
#pragma GCC unroll 16
    for (int line = 0; line < T_BYTES; line += T_LINE) {
        __builtin_prefetch(w + ahead.far + line, 0, 2);
        __builtin_prefetch(w + ahead.near + line);
    }
}

/* One block of k: a tile of rows, or two, by up to two panels. */
LN void step_few(const uint8_t *x, const uint8_t *w, size_t w_stride, int panels, bool two,
                 struct few_ahead ahead) {
    T_LOAD(4, x, T_LINE);
    if (two) T_LOAD(5, x + T_BYTES, T_LINE);
    fetch_tile(w, ahead);
    T_LOAD(6, w, T_LINE);
    _tile_dpbf16ps(0, 4, 6);
    if (two) _tile_dpbf16ps(2, 5, 6);
    if (panels < 2) return;
    fetch_tile(w + w_stride, ahead);
    T_LOAD(7, w + w_stride, T_LINE);
    _tile_dpbf16ps(1, 4, 7);
    if (two) _tile_dpbf16ps(3, 5, 7);
}

/* An accumulator is its part of y; where that ends inside a panel, a copy of it goes through
 * memory. */
static void acc_end(const struct product *p, int t, int row, int rows, int panel) {
    float *at = p->y + (size_t)row * p->y_stride + (size_t)panel * PANEL_ROWS;
    const int n = p->n_cols - panel * PANEL_ROWS;
    float part[T_ROWS][PANEL_ROWS];
    if (n >= PANEL_ROWS) {
        acc_store(t, at, p->y_stride * sizeof(float));
    } else {
        acc_store(t, part, sizeof(part[0]));
        for (int r = 0; r < rows; r++)
            ln_store_n(at + (size_t)r * p->y_stride, ln_load(part[r]), n);
    }
}

static void block_few(const struct product *p, int row, int rows, int rows_more, int panel,
                      int panels) {
    const int whole = whole_blocks(p->k);
    const bool two = rows_more > 0;
    const uint8_t *x = p->x + (size_t)(row / T_PAIR_ROWS) * pair_bytes(p->k);
    const uint8_t *w = p->panels + (size_t)panel * p->panel_stride;
    for (int t = 0; t < 4; t++) acc_zero(t);
    /* behind the last bytes of these panels come the first of the next ones */
    const size_t behind = (size_t)(panels - 1) * p->panel_stride;
    for (int b = 0; b < whole; b++, x += 2 * T_BYTES, w += T_BYTES) {
        const int left = (whole - b) * T_BYTES;
        const struct few_ahead ahead = {.far = T_AHEAD_BYTES + (left > T_AHEAD_BYTES ? 0 : behind),
                                        .near = T_BYTES + (left > T_BYTES ? 0 : behind)};
        step_few(x, w, p->panel_stride, panels, two, ahead);
    }
    if (whole < (int)k_groups(p->k)) {
        uint8_t last[4][T_BYTES] __attribute__((aligned(64)));
        last_block(last, p, panel, panels);
        step_few(x, last[0], T_BYTES, panels, two, (struct few_ahead){0});
    }
    for (int i = 0; i < panels; i++) {
        acc_end(p, i, row, rows, panel + i);
        if (two) acc_end(p, 2 + i, row + T_ROWS, rows_more, panel + i);
    }
}

static void rows_few(const struct product *p, int row) {
    const int n_panels = (p->n_cols + PANEL_ROWS - 1) / PANEL_ROWS, n = p->n_rows - row,
              rows = n < T_ROWS ? n : T_ROWS, rows_more = n - rows;
    configure_bf16(rows, rows_more > 0 ? rows_more : rows);
    for (int panel = 0; panel < n_panels; panel += FEW_WIDE)
        block_few(p, row, rows, rows_more, panel,
                  n_panels - panel < FEW_WIDE ? n_panels - panel : FEW_WIDE);
}

static void gemm_bf16(const struct product *p) {
    const int n_pairs = p->n_rows > T_PAIR_ROWS ? (p->n_rows + T_ROWS - 1) / T_PAIR_ROWS : 0;
    if (n_pairs > 0) rows_many(p, n_pairs);
    if (n_pairs * T_PAIR_ROWS < p->n_rows) rows_few(p, n_pairs * T_PAIR_ROWS);
}
