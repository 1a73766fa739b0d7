/* kernels_amx: products on the tiles of AMX; rows, attention and f32 weights as kernels_avx512.c.
 * For processors with AMX-BF16, AMX-INT8 and AVX-512 VNNI.
 *
 * A panel's bf16 layout [k / 2][16][2] and its int8 groups [8][16][4] are the layout of the second
 * factor of the tile products, so tiles of weights are read where they lie.
 *
 * Which bits. TDPBF16PS sums the even and the odd k of its up to 16 pairs apart, from zero, by FMA,
 * then adds the one sum to the other and this to the accumulator (Intel SDM volume 2, operation of
 * TDPBF16PS; denormals count as zero, MXCSR is not asked). A chain of vdpbf16ps gives other bits,
 * and Intel's Intrinsics Guide describes yet another order, so no other instruction stands in for
 * it: a product of a single row runs on tiles too, in blocks of 32 k from the first, the last one
 * filled up with zeros. Nothing in the sum of a row depends on the rows of its tile. Integer sums
 * are exact, so int8 and int4 products of a few rows run on VNNI, with the bits of all other sets.
 *
 * Tiles are configured by each product and released at its end: the configuration belongs to a
 * thread, and a thread that holds none is switched at no extra cost. */
#include "common/engine/kernels.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__) &&                     \
    defined(__AVX512VNNI__) && defined(__AVX512DQ__)
#include "common/engine/kernels_zmm.h"
#include "common/engine/kernels_pairs.h"
#include "common/engine/kernels_zmm_pairs.h"
#include "common/engine/kernels_zmm_vnni.h"
#define gemm     lanes_gemm
#define x_pack   lanes_x_pack
#define X_GATHER x_gather
#define WORK_PANELS AMX_PANELS
#include "common/engine/kernels_lanes.h"
#undef gemm
#undef x_pack

/* A tile: up to 16 rows of 64 bytes. Tiles 0 to 3 are accumulators, 4 and 5 hold activations, 6 and
 * 7 weights. */
enum {
    T_ROWS = 16,
    T_BYTES = 1024,
    T_LINE = 64,  /* bytes of a row */
    T_PAIRS = 16, /* of k in a block of bf16 */
    T_PAIR_ROWS = 32,
    K_SLICE = 8,    /* blocks of bf16: two panels of it stay in the first-level cache */
    AMX_PANELS = 8, /* of a work item; with so many pairs of rows, 256 KiB of sums */
    SUM_PAIRS = 16,
    GROUPS_SLICE = 32,     /* the same of a quantised panel */
    T_AHEAD_BYTES = 2048,  /* weights are fetched ahead */
    Q4_BYTES = GROUP * 16, /* of a group of int4 widened to bytes */
};

/* gcc's intrinsics do not say that they read memory: whatever lies there must have been written. */
#define T_WRITTEN(p) __asm__ volatile("" ::"r"(p) : "memory")
/* A tile's number is a literal. */
#define T_LOAD(t, from, stride)                                                                    \
    do {                                                                                           \
        const void *t_from = from;                                                                 \
        T_WRITTEN(t_from);                                                                         \
        _tile_loadd(t, t_from, stride);                                                            \
    } while (0)

/* As one that is read once: it leaves in the first-level cache what is there. */
#define T_STREAM(t, from, stride)                                                                  \
    do {                                                                                           \
        const void *t_from = from;                                                                 \
        T_WRITTEN(t_from);                                                                         \
        _tile_stream_loadd(t, t_from, stride);                                                     \
    } while (0)

/* ---- configuration */

struct tile_config { /* what LDTILECFG reads */
    uint8_t palette, start_row, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

static void tile_configure(const struct tile_config *c) {
    T_WRITTEN(c);
    _tile_loadconfig(c);
}

/* Accumulators 0 and 1 with activations 4; 2 and 3 with 5 where there are two tiles of rows. */
static void configure_bf16(int rows, int rows_more) {
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.bytes[t] = T_LINE;
        c.rows[t] = (uint8_t)(t >= 6 ? T_PAIRS : t == 2 || t == 3 || t == 5 ? rows_more : rows);
    }
    tile_configure(&c);
}

static void configure_quant(int rows) {
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 7; t++) {
        c.bytes[t] = t == 4 || t == 5 ? GROUP : T_LINE;
        c.rows[t] = (uint8_t)(t == 6 ? GROUP / 4 : rows);
    }
    tile_configure(&c);
}

static void acc_zero(int t) {
    switch (t) {
    case 0: _tile_zero(0); break;
    case 1: _tile_zero(1); break;
    case 2: _tile_zero(2); break;
    case 3: _tile_zero(3); break;
    }
}
static void acc_store(int t, void *to, size_t stride) {
    switch (t) {
    case 0: _tile_stored(0, to, stride); break;
    case 1: _tile_stored(1, to, stride); break;
    case 2: _tile_stored(2, to, stride); break;
    case 3: _tile_stored(3, to, stride); break;
    }
}

#include "common/engine/kernels_amx_bf16.h"

/* ---- quantised weights. Activations: what kernels_tile_quant.h wants for up to TILE_ROWS rows,
 * then [row / 16][group]: f32 scale [16]; i32 [16], the sum of the values times minus the weights'
 * offset; the values i8 [16][32], which for int8 weights are the upper bytes, and then their lower
 * bytes u8 [16][32]. */

static size_t few_bytes(int k, enum dtype w) {
    return (TILE_ROWS * k_groups(k) * quant_x_bytes(w) + 63) / 64 * 64;
}

static void x_pack_tiles(uint8_t *xp, const float *x, size_t x_stride, int first, int end, int k,
                         enum dtype w) {
    const size_t groups = k_groups(k), bytes = T_ROWS * quant_x_bytes(w);
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
            sum *= w == DTYPE_INT4 ? -QUANT_OFFSET4 : -QUANT_OFFSET8;
            memcpy(dst + 4 * at, &scale, sizeof(scale));
            memcpy(dst + 4 * (T_ROWS + at), &sum, sizeof(sum));
            uint8_t *values = dst + 8 * T_ROWS + GROUP * at;
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

/* Integer products of a group: up to 16 rows by a panel, for int8 the upper bytes' and the lower
 * bytes'. */
typedef int32_t group_sums[2][T_ROWS][PANEL_ROWS];

/* Two pairs of tiles in turn, so that the next products need not wait for the last. */
LN void group_dots(group_sums sums, const uint8_t *x, const uint8_t *w4or8, bool odd,
                   enum dtype w) {
    const uint8_t *values = x + 8 * T_ROWS;
    T_LOAD(6, w4or8, T_LINE);
    T_LOAD(4, values, GROUP);
    if (w == DTYPE_INT8) T_LOAD(5, values + T_ROWS * GROUP, GROUP);
    if (odd) {
        _tile_zero(2);
        _tile_dpbsud(2, 4, 6);
        _tile_stored(2, sums[0], T_LINE);
        if (w == DTYPE_INT8) {
            _tile_zero(3);
            _tile_dpbuud(3, 5, 6);
            _tile_stored(3, sums[1], T_LINE);
        }
    } else {
        _tile_zero(0);
        _tile_dpbsud(0, 4, 6);
        _tile_stored(0, sums[0], T_LINE);
        if (w == DTYPE_INT8) {
            _tile_zero(1);
            _tile_dpbuud(1, 5, 6);
            _tile_stored(1, sums[1], T_LINE);
        }
    }
}

/* acc = fma(sum, scales, acc), as q_end() and what follows it do. */
LN void group_add(lanes acc[T_ROWS], group_sums sums, const uint8_t *x, const uint8_t *group,
                  int rows, enum dtype w) {
    const float *x_scale = (const float *)(const void *)x;
    const int32_t *x_sum = (const int32_t *)(const void *)x + T_ROWS;
    const lanes w_scale = ln_load_bf16((const uint16_t *)(const void *)group);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        __m512i sum = _mm512_loadu_si512(sums[0][r]);
        if (w == DTYPE_INT8)
            sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), _mm512_loadu_si512(sums[1][r]));
        sum = _mm512_add_epi32(sum, _mm512_set1_epi32(x_sum[r]));
        acc[r] = ln_fma(_mm512_cvtepi32_ps(sum), ln_mul(w_scale, ln_set1(x_scale[r])), acc[r]);
    }
}

/* A tile of rows by one panel, n groups. values: the weights of the first group, stride apart. */
LN void quant_tile(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *panel,
                   const uint8_t *values, size_t stride, int n, int rows, bool carry,
                   enum dtype w) {
    group_sums sums[2] __attribute__((aligned(64)));
    const size_t x_bytes = T_ROWS * quant_x_bytes(w);
    lanes acc[T_ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
        acc[r] = carry ? get(y + (size_t)r * y_stride, n_cols) : ln_set1(0);
    group_dots(sums[0], x, values, false, w);
    for (int g = 1; g < n; g++) {
        group_dots(sums[g & 1], x + (size_t)g * x_bytes, values + (size_t)g * stride, g & 1, w);
        group_add(acc, sums[(g & 1) ^ 1], x + (size_t)(g - 1) * x_bytes,
                  panel + (size_t)(g - 1) * group_bytes(w), rows, w);
    }
    group_add(acc, sums[(n & 1) ^ 1], x + (size_t)(n - 1) * x_bytes,
              panel + (size_t)(n - 1) * group_bytes(w), rows, w);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) put(y + (size_t)r * y_stride, acc[r], n_cols);
}

/* A whole tile of rows keeps its accumulators in registers. */
LN void quant_tile_of(float *y, size_t y_stride, int n_cols, const uint8_t *x, const uint8_t *panel,
                      const uint8_t *values, size_t stride, int n, int rows, bool carry,
                      enum dtype w) {
    if (rows == T_ROWS)
        quant_tile(y, y_stride, n_cols, x, panel, values, stride, n, T_ROWS, carry, w);
    else
        quant_tile(y, y_stride, n_cols, x, panel, values, stride, n, rows, carry, w);
}

/* n groups of int4, as bytes in the order of int8. */
static void widen4(uint8_t *to, const uint8_t *panel, int n) {
    const __m512i lower = _mm512_set1_epi8(15);
    for (int g = 0; g < n; g++, panel += group_bytes(DTYPE_INT4), to += Q4_BYTES) {
        for (int j = 0; j < Q4_BYTES / 2; j += T_LINE) {
            const __m512i v = _mm512_loadu_si512(panel + Q_SCALE_BYTES + j);
            _mm512_storeu_si512(to + j, _mm512_and_si512(v, lower));
            _mm512_storeu_si512(to + Q4_BYTES / 2 + j,
                                _mm512_and_si512(_mm512_srli_epi16(v, 4), lower));
        }
    }
}

/* Rows [row, end), `rows` of them at a time. */
static void rows_quant(const struct product *p, int row, int end, int rows, enum dtype w) {
    uint8_t widened[GROUPS_SLICE * Q4_BYTES] __attribute__((aligned(64)));
    const int groups = (int)k_groups(p->k);
    const size_t x_bytes = T_ROWS * quant_x_bytes(w);
    configure_quant(rows);
    for (int col = 0; col < p->n_cols; col += PANEL_ROWS) {
        const int n_cols = p->n_cols - col < PANEL_ROWS ? p->n_cols - col : PANEL_ROWS;
        for (int g = 0; g < groups; g += GROUPS_SLICE) {
            const int n = groups - g < GROUPS_SLICE ? groups - g : GROUPS_SLICE;
            const uint8_t *panel = p->panels + (size_t)(col / PANEL_ROWS) * p->panel_stride +
                                   (size_t)g * group_bytes(w);
            if (w == DTYPE_INT4) widen4(widened, panel, n);
            for (int m = row; m < end; m += rows) {
                float *y = p->y + (size_t)m * p->y_stride + col;
                const uint8_t *x =
                    p->x + ((size_t)(m / T_ROWS) * (size_t)groups + (size_t)g) * x_bytes;
                if (w == DTYPE_INT8)
                    quant_tile_of(y, p->y_stride, n_cols, x, panel, panel + Q_SCALE_BYTES,
                                  group_bytes(w), n, rows, g > 0, DTYPE_INT8);
                else if (w == DTYPE_INT8_NARROW)
                    quant_tile_of(y, p->y_stride, n_cols, x, panel, panel + Q_SCALE_BYTES,
                                  group_bytes(w), n, rows, g > 0, DTYPE_INT8_NARROW);
                else
                    quant_tile_of(y, p->y_stride, n_cols, x, panel, widened, Q4_BYTES, n, rows,
                                  g > 0, DTYPE_INT4);
            }
        }
    }
}

/* ---- the table's functions */

/* Whether more than TILE_ROWS rows come is not known before the second call. */
static void x_pack(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w) {
    if (w == DTYPE_BF16) {
        x_pack_bf16(xp, x, x_stride, first, end, k);
    } else if (!dtype_is_quant(w)) { /* blocks too: their units are too short for tiles */
        lanes_x_pack(xp, x, x_stride, first, end, k, w);
    } else {
        if (end <= TILE_ROWS) lanes_x_pack(xp, x, x_stride, first, end, k, w);
        if (end >= TILE_ROWS) x_pack_tiles(xp, x, x_stride, first, end, k, w);
    }
}

/* A row's group of the tiles, as q_row() gave it. */
static void tile_group(int16_t q[GROUP], float *scale, int32_t *sum, const uint8_t *group, int at,
                       enum dtype w) {
    const uint8_t *values = group + 8 * T_ROWS + GROUP * at;
    memcpy(scale, group + 4 * at, sizeof(*scale));
    memcpy(sum, group + 4 * (T_ROWS + at), sizeof(*sum));
    *sum /= w == DTYPE_INT4 ? -QUANT_OFFSET4 : -QUANT_OFFSET8;
    for (int i = 0; i < GROUP; i++)
        q[i] = (int16_t)(w == DTYPE_INT8 ? (int8_t)values[i] * 256 + values[T_ROWS * GROUP + i]
                                         : (int8_t)values[i]);
}

/* From tiles of more than TILE_ROWS rows to up to TILE_ROWS rows. */
static void gather_few(uint8_t *xp, const uint8_t *from, const int *rows, int n, int k,
                       enum dtype w) {
    const size_t groups = k_groups(k), bytes = T_ROWS * quant_x_bytes(w);
    for (int r = 0; r < n; r++) {
        const uint8_t *src = from + (size_t)(rows[r] / T_ROWS) * groups * bytes;
        for (size_t g = 0; g < groups; g++, src += bytes) {
            int16_t q[GROUP];
            float scale;
            int32_t sum;
            tile_group(q, &scale, &sum, src, rows[r] % T_ROWS, w);
            /* narrow ones lie as those of int4 do, whose sum is taken less often */
            const bool narrow = w == DTYPE_INT8_NARROW;
            if (narrow) sum *= QUANT_OFFSET8 / QUANT_OFFSET4;
            x_put_quant(xp + g * (size_t)n * quant_x_bytes(w), (size_t)n, (size_t)r, q, scale, sum,
                        narrow ? DTYPE_INT4 : w);
        }
    }
}

/* Rows of tiles of `blocks` blocks of T_ROWS lines each, one line after another in up to `parts`
 * parts of a block. */
static void gather_lines(uint8_t *xp, const uint8_t *from, const int *rows, int n, size_t blocks,
                         size_t block_bytes, const int *lines, int parts) {
    for (int r = 0; r < n; r++) {
        const uint8_t *src = from + (size_t)(rows[r] / T_ROWS) * blocks * block_bytes;
        uint8_t *dst = xp + (size_t)(r / T_ROWS) * blocks * block_bytes;
        for (size_t b = 0; b < blocks; b++, src += block_bytes, dst += block_bytes) {
            size_t at = 0;
            for (int i = 0; i < parts; at += (size_t)lines[i++] * T_ROWS)
                memcpy(dst + at + (size_t)lines[i] * (size_t)(r % T_ROWS),
                       src + at + (size_t)lines[i] * (size_t)(rows[r] % T_ROWS), (size_t)lines[i]);
        }
    }
}

static void x_gather(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                     enum dtype w) {
    static const int integers[] = {4, 4, GROUP, GROUP};
    const size_t groups = k_groups(k), skip = few_bytes(k, w);
    if (w == DTYPE_BF16)
        x_gather_bf16(xp, from, rows, n, k);
    else if (!dtype_is_quant(w) || n_rows <= TILE_ROWS)
        x_gather_columns(xp, from, n_rows, rows, n, k, w);
    else if (n <= TILE_ROWS)
        gather_few(xp, (const uint8_t *)from + skip, rows, n, k, w);
    else
        gather_lines((uint8_t *)xp + skip, (const uint8_t *)from + skip, rows, n, groups,
                     T_ROWS * quant_x_bytes(w), integers, w == DTYPE_INT8 ? 4 : 3);
}

static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w) {
    struct product p = {.y = y,
                        .y_stride = y_stride,
                        .x = xp,
                        .panels = panels,
                        .panel_stride = panel_bytes(k, w),
                        .k = k,
                        .n_cols = n_cols,
                        .n_rows = n_rows};
    const int whole = n_rows / T_ROWS * T_ROWS;
    if (w == DTYPE_BF16) {
        gemm_bf16(&p);
    } else if (!dtype_is_quant(w) || n_rows <= TILE_ROWS) {
        lanes_gemm(y, y_stride, xp, panels, n_rows, k, n_cols, w);
        return;
    } else {
        p.x += few_bytes(k, w);
        if (whole > 0) rows_quant(&p, 0, whole, T_ROWS, w);
        if (whole < n_rows) rows_quant(&p, whole, n_rows, n_rows - whole, w);
    }
    _tile_release();
}

static const struct kernels set = KERNELS_OF_LANES("amx");

const struct kernels *kernels_amx(void) {
    return &set;
}
#else
const struct kernels *kernels_amx(void) {
    return NULL;
}
#endif
