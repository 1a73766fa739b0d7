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
    defined(__AVX512VNNI__) && defined(__AVX512BF16__) && defined(__AVX512DQ__)
#include "common/engine/kernels_zmm.h"
#include "common/engine/kernels_pairs.h"
#include "common/engine/kernels_zmm_pairs.h"
#include "common/engine/kernels_zmm_vnni.h"
#define gemm            lanes_gemm
#define x_pack          lanes_x_pack
#define X_GATHER        x_gather
#define WORK_PANELS     AMX_PANELS
#define CHUNK_SCORES    chunk_scores
#define CHUNK_MIX       chunk_mix
#define OWN_BF16        true
#define TILE_ROWS_BF16  32 /* a pair of tiles */
#define TILE_ROWS_QUANT 16
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
    T_AHEAD_BYTES = 3072, /* weights are fetched ahead into the second-level cache */
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

/* Accumulators 0 to 3, activations 4 and 5, weights 6 and 7. */
static void configure_quant(void) {
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.bytes[t] = t == 4 || t == 5 ? GROUP : T_LINE;
        c.rows[t] = t >= 6 ? GROUP / 4 : T_ROWS;
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

#include "common/engine/kernels_amx_quant.h"

#include "common/engine/kernels_amx_attention.h"

/* ---- the table's functions */

/* Whether more than Q_ROWS_MAX rows come is not known before the last call. */
static void x_pack(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w) {
    if (w == DTYPE_BF16) {
        x_pack_bf16(xp, x, x_stride, first, end, k);
    } else if (!dtype_is_quant(w)) { /* blocks too: their units are too short for tiles */
        lanes_x_pack(xp, x, x_stride, first, end, k, w);
    } else {
        if (first < Q_ROWS_MAX)
            lanes_x_pack(xp, x, x_stride, first, end < Q_ROWS_MAX ? end : Q_ROWS_MAX, k, w);
        x_pack_tiles(xp, x, x_stride, first, end, k, w);
    }
}

/* n rows whose tiles are packed, as far as they are few. */
static void gather_few(uint8_t *xp, const uint8_t *from, const int *rows, int n, int k,
                       enum dtype w) {
    const size_t groups = k_groups(k), bytes = tile_x_bytes(w);
    for (int r = 0; r < n; r++) {
        const uint8_t *src = from + (size_t)(rows[r] / T_ROWS) * groups * bytes;
        const size_t tile = (size_t)(r / TILE_ROWS * TILE_ROWS),
                     wide = (size_t)n - tile < TILE_ROWS ? (size_t)n - tile : TILE_ROWS;
        uint8_t *dst = xp + tile * groups * quant_x_bytes(w);
        const int at = rows[r] % T_ROWS;
        for (size_t g = 0; g < groups; g++, src += bytes, dst += wide * quant_x_bytes(w)) {
            const uint8_t *values = src + 4 * T_ROWS + GROUP * at;
            int16_t q[GROUP];
            float scale;
            int32_t sum = 0;
            memcpy(&scale, src + 4 * at, sizeof(scale));
            for (int i = 0; i < GROUP; i++) {
                q[i] =
                    (int16_t)(w == DTYPE_INT8 ? (int8_t)values[i] * 256 + values[T_ROWS * GROUP + i]
                                              : (int8_t)values[i]);
                sum += q[i];
            }
            /* narrow ones lie as those of int4 do, whose sum is taken less often */
            const bool narrow = w == DTYPE_INT8_NARROW;
            if (narrow) sum *= QUANT_OFFSET8 / QUANT_OFFSET4;
            x_put_quant(dst, wide, (size_t)r - tile, q, scale, sum, narrow ? DTYPE_INT4 : w);
        }
    }
}

/* Rows of tiles, one line after another in each part of a block. */
static void gather_tiles(uint8_t *xp, const uint8_t *from, const int *rows, int n, int k,
                         enum dtype w) {
    static const size_t lines[] = {4, GROUP, GROUP};
    const size_t groups = k_groups(k), bytes = tile_x_bytes(w);
    const int parts = w == DTYPE_INT8 ? 3 : 2;
    for (int r = 0; r < n; r++) {
        const uint8_t *src = from + (size_t)(rows[r] / T_ROWS) * groups * bytes;
        uint8_t *dst = xp + (size_t)(r / T_ROWS) * groups * bytes;
        for (size_t g = 0; g < groups; g++, src += bytes, dst += bytes) {
            size_t at = 0;
            for (int i = 0; i < parts; at += lines[i++] * T_ROWS)
                memcpy(dst + at + lines[i] * (size_t)(r % T_ROWS),
                       src + at + lines[i] * (size_t)(rows[r] % T_ROWS), lines[i]);
        }
    }
}

static void x_gather(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                     enum dtype w) {
    if (w == DTYPE_BF16) {
        x_gather_bf16(xp, from, rows, n, k);
    } else if (!dtype_is_quant(w)) {
        x_gather_columns(xp, from, n_rows, rows, n, k, w);
    } else {
        const size_t skip = few_bytes(k, w);
        if (n <= Q_ROWS_MAX) gather_few(xp, (const uint8_t *)from + skip, rows, n, k, w);
        gather_tiles((uint8_t *)xp + skip, (const uint8_t *)from + skip, rows, n, k, w);
    }
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
    if (w == DTYPE_BF16) {
        gemm_bf16(&p);
    } else if (!dtype_is_quant(w) || n_rows <= Q_ROWS_MAX) {
        kernels_avx512vnni()->gemm(y, y_stride, xp, panels, n_rows, k, n_cols, w);
        return;
    } else {
        p.x += few_bytes(k, w);
        gemm_tiles_quant(&p, w);
    }
    _tile_release();
}

static const struct kernels set = KERNELS_OF_LANES("amx");

const struct kernels *kernels_amx(void) {
    (void)lanes_gemm; /* gemm() asks for the same one, which is compiled there */
    return &set;
}
#else
const struct kernels *kernels_amx(void) {
    return NULL;
}
#endif
