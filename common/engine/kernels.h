/* kernels: the arithmetic of the forward pass, as a table of functions per instruction set, chosen
 * at run time.
 *
 * Promise (docs/decisions/2026-11-21-own-gemm-for-batch-invariance.md): what comes out for a row
 * depends on that row alone. Every sum has one fixed order: in a matrix product one accumulator per
 * output walks k upwards; elsewhere a sum runs in LANES partial sums (element i in lane i % LANES)
 * that are added in one fixed tree. The sets "ref", "avx2", "avx512" and "avx512vnni", and of
 * aarch64 "neon", "neondot" and "neoni8mm" agree bit for bit with each other; "avx512bf16" differs
 * where vdpbf16ps flushes denormals, "neonbf16" where bfmmla rounds to odd, and "amx" sums bf16
 * products in the order of its tiles (kernels_amx.c), those of attention over bf16 KV too
 * (docs/decisions/2026-11-28-attention-on-tiles.md); "openblas" keeps no promise about rows and
 * serves as baseline and oracle. With int8 and int4 weights the activations are quantised as well,
 * to 16 and to 8 bits (DTYPE_INT8_NARROW: int8 weights that meet 8 bits, see
 * docs/decisions/2026-11-23-int8-meets-8-bits.md), a group of a row at a time; the sum over a group
 * is one of integers, thus exact, and acc = fma(sum, scale of the weights * scale of the row, acc)
 * over the groups upwards: these products have the same bits in all sets of our own. The block
 * formats of GGUF meet activations of 8 bits likewise; over their units (block_format()) upwards
 * acc = fma(sum, scale of the weights * scale of the row, acc), and where a unit has a minimum,
 * then acc = fma(-minimum, the row's sum, acc).
 *
 * Weights: W [n][k] is stored as panels of PANEL_ROWS rows, the last one filled up with zero rows.
 * Activations are packed once per input (and rounded to bf16 when the weights are), TILE_ROWS rows
 * or multiples at a time; how, is the set's own affair. Thread: pure functions over the caller's
 * memory; any number of threads. No pointer may be NULL, no output overlaps an input. Pointers to
 * panels and packed activations are 64-byte aligned. */
#ifndef BATON_ENGINE_KERNELS_H
#define BATON_ENGINE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/engine/engine.h"

enum { PANEL_ROWS = 16, TILE_ROWS = 6, LANES = 16, GROUP = 32 };
enum { KEY_DIM_MAX = 576 }; /* the largest head_dim of scores() and mix() */
enum { KV_CHUNK = 512 };    /* positions of a chunk of attention */

struct kernels {
    const char *name;
    bool f32_only; /* takes DTYPE_F32 weights only */
    bool own_bf16; /* products of bf16 weights have bits of its own */
    int tile_rows, tile_rows_bf16, tile_rows_quant; /* products take so many rows at a time, of f32
                        and blocks, of bf16, of int8 and int4: a tile that is not full costs about
                        what a full one does. 0: rows cost what they are */
    int item_panels; /* panels of one work item of a matrix product; 0: as many as give every thread
                        one item */

    /* panel: rows f32 [n_rows][k], n_rows <= PANEL_ROWS, into a whole panel of panel_bytes(k, w).
     */
    void (*panel_pack)(void *panel, const float *rows, int n_rows, int k, enum dtype w);
    /* row: f32 [k] = row `idx` of a panel. */
    void (*panel_row)(float *row, const void *panel, int idx, int k, enum dtype w);
    /* Packs the rows [first, end) of x, f32 [..][x_stride], of which k columns count. first is a
     * multiple of TILE_ROWS; end is one too, or n_rows. xp: x_pack_bytes(n_rows, k) for all of the
     * n_rows rows. */
    void (*x_pack)(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w);
    /* xp: the packing of n of the n_rows rows whose packing `from` is, which stays: rows[0 .. n),
     * upwards. x_pack() of those rows gives no other products. */
    void (*x_gather)(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                     enum dtype w);
    /* y[m][j] = sum over i < k of x[m][i] W[j][i], for m < n_rows, j < n_cols; panels: the
     * ceil(n_cols / PANEL_ROWS) panels of those rows of W. y: f32 [n_rows][y_stride]. */
    void (*gemm)(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w);
    /* The same, to the bit, for weights too large for any cache to hold them until they are read
     * again: those of a single row may pass the caches by. NULL: gemm is all there is. */
    void (*gemm_once)(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows,
                      int k, int n_cols, enum dtype w);

    /* y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i], i < n. */
    void (*rmsnorm)(float *y, const float *x, const float *weight, int n, float eps);
    /* y[i] = (x[i] - mean(x)) / sqrt(var(x) + eps) * weight[i] + bias[i], i < n; var is the mean of
     * squares. bias may be NULL: zeros. */
    void (*layernorm)(float *y, const float *x, const float *weight, const float *bias, int n,
                      float eps);
    /* x[i], x[i + half] = x[i] cos[i] - x[i + half] sin[i], x[i + half] cos[i] + x[i] sin[i], i <
     * half. In place. */
    void (*rope)(float *x, const float *cos, const float *sin, int half);
    /* gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i], i < n. In place. */
    void (*swiglu)(float *gate, const float *up, int n);
    /* x[i] = x[i] / 2 (1 + erf(x[i] / sqrt 2)), i < n, within 3e-7 |x[i]|. In place. */
    void (*gelu)(float *x, int n);
    /* x[i] = x[i] / 2 (1 + tanh(sqrt(2 / pi) (x[i] + 0.044715 x[i]^3))), i < n. In place. */
    void (*gelu_tanh)(float *x, int n);
    /* x[i] = cap tanh(x[i] / cap), i < n, within 3e-7 cap. In place. */
    void (*softcap)(float *x, float cap, int n);
    /* y[i] *= x[i], i < n. */
    void (*mul)(float *y, const float *x, int n);
    /* y[i] += x[i], i < n. */
    void (*add)(float *y, const float *x, int n);
    /* dst: n values of dtype t (f32, or bf16 rounded to nearest even); with int8 one KV row of n
     * values, see kv_row_bytes(). */
    void (*store)(void *dst, const float *src, int n, enum dtype t);

    /* s[i][p] = scale * sum over d of q[i][d] K[p][d], i < n_q, p < n_pos. q: f32 [n_q][q_stride],
     * q_stride = lanes_up(head_dim), zero beyond head_dim, 64-byte aligned; K: n_pos KV rows of
     * head_dim values of dtype t; s: f32 [n_q][s_stride]. */
    void (*scores)(float *s, size_t s_stride, const float *q, size_t q_stride, int n_q,
                   const void *K, int n_pos, int head_dim, enum dtype t, float scale);
    /* *max = max(s), then s[p] = exp(s[p] - *max), p < n; returns the sum. s has room for
     * lanes_up(n) values. */
    float (*softmax)(float *s, int n, float *max);
    /* o[i][d] += sum over p upwards of w[i][p] V[p][d]. o: f32 [n_q][o_stride], o_stride =
     * lanes_up(head_dim), 64-byte aligned; w: f32 [n_q][w_stride]; V: n_pos KV rows of dtype
     * t. */
    void (*mix)(float *o, size_t o_stride, const float *w, size_t w_stride, int n_q, const void *V,
                int n_pos, int head_dim, enum dtype t);
    /* The same on products of bf16, for a chunk of bf16 KV at once; NULL: the set has none. Queries
     * (times scale) and weights are rounded to bf16, and blocks of 32 positions or d are summed as
     * they lie in the chunk and the row. keys, values: [KV_CHUNK] KV rows, NULL where nobody sees
     * one. s, w: f32 [n_q][stride] of KV_CHUNK positions; of s only those with a key are written; w
     * is zero where a query does not see. o: as in mix(), is overwritten. False: some value is not
     * finite, so that it shows in queries which give it the weight zero. */
    void (*chunk_scores)(float *s, size_t s_stride, const float *q, size_t q_stride, int n_q,
                         const void *const *keys, int head_dim, float scale);
    bool (*chunk_mix)(float *o, size_t o_stride, const float *w, size_t w_stride, int n_q,
                      const void *const *values, int head_dim);
    /* y[i] = x[i] * f, i < n; y may be x. */
    void (*scale)(float *y, const float *x, float f, int n);
};

static inline int lanes_up(int n) {
    return (n + LANES - 1) / LANES * LANES;
}

static inline bool dtype_is_quant(enum dtype w) {
    return w == DTYPE_INT8 || w == DTYPE_INT4 || w == DTYPE_INT8_NARROW;
}
/* Groups of GROUP along k; the last one is filled up with zeros. */
static inline size_t k_groups(int k) {
    return ((size_t)k + GROUP - 1) / GROUP;
}
/* Bytes of one group of a quantised panel: a bf16 scale for each row, then the values. These are u8
 * [GROUP / 4][PANEL_ROWS][4], QUANT_OFFSET8 more than they mean; or two values a byte, the lower
 * half of k in the lower bits, QUANT_OFFSET4 more. */
enum { QUANT_OFFSET8 = 128, QUANT_OFFSET4 = 8 };
static inline size_t group_bytes(enum dtype w) {
    return PANEL_ROWS * 2 + PANEL_ROWS * GROUP / (w == DTYPE_INT4 ? 2 : 1);
}
/* The block formats of GGUF as panels: every number of the file's blocks as it is, in another
 * order. A panel is blocks one behind the other, of PANEL_ROWS rows each: head    f16 d [16], of
 * MXFP4 u8 [16], the exponents; Q4_K and Q5_K: f16 dmin [16]; then of each unit u8 scale [16], of
 * Q6_K and IQ4_XS i8, and of Q4_K and Q5_K u8 min [16]; IQ4_NL and MXFP4: d is the scale units   u8
 * [unit / 8][16][4]: the lower four bits of values 8 i + 0..3 of a row, above them those of 8 i
 * + 4..7; then the values' other bits, u8 [16][4]: in byte j those of values j, 4 + j, 8 + j, ..,
 * from the lowest bit up What a value means: kernels_blocks.h. */
struct block_format {
    int k;    /* values of a row in a block */
    int unit; /* of these that share a scale */
    int high; /* bits of a value beyond four */
    int head; /* bytes */
};
static inline bool dtype_is_blocks(enum dtype w) {
    return w >= DTYPE_Q4_K && w <= DTYPE_MXFP4;
}
static inline struct block_format block_format(enum dtype w) {
    switch (w) {
    case DTYPE_Q4_K: return (struct block_format){256, 32, 0, (2 + 2 + 8 + 8) * PANEL_ROWS};
    case DTYPE_Q5_K: return (struct block_format){256, 32, 1, (2 + 2 + 8 + 8) * PANEL_ROWS};
    case DTYPE_Q6_K: return (struct block_format){256, 16, 2, (2 + 16) * PANEL_ROWS};
    case DTYPE_IQ4_XS: return (struct block_format){256, 32, 0, (2 + 8) * PANEL_ROWS};
    case DTYPE_MXFP4: return (struct block_format){32, 32, 0, PANEL_ROWS};
    default: return (struct block_format){32, 32, 0, 2 * PANEL_ROWS};
    }
}
static inline int block_unit_bytes(struct block_format f) {
    return f.unit * (4 + f.high) * PANEL_ROWS / 8;
}
static inline int block_bytes(struct block_format f) {
    return f.head + f.k / f.unit * block_unit_bytes(f);
}

/* Bytes of one panel, and of n_rows packed activation rows; the same for every set. k is rounded up
 * to even; quantised panels to whole groups and to 64 bytes, those of blocks too, of which k is
 * whole ones; rows of activations to LANES, the most that a set takes at once. */
static inline size_t panel_bytes(int k, enum dtype w) {
    if (dtype_is_blocks(w)) {
        const struct block_format f = block_format(w);
        return ((size_t)(k / f.k) * (size_t)block_bytes(f) + 63) / 64 * 64;
    }
    if (dtype_is_quant(w)) return (k_groups(k) * group_bytes(w) + 63) / 64 * 64;
    return (size_t)PANEL_ROWS * (size_t)(k + (k & 1)) * (w == DTYPE_BF16 ? 2 : 4);
}
static inline size_t x_pack_bytes(int n_rows, int k) {
    return (size_t)lanes_up(n_rows) * k_groups(k) * GROUP * 4;
}

/* Bytes of a KV row: the key, or the value, of one position in one head. Whoever walks a block goes
 * by it. 0: no KV is of that type. An int8 row is its bf16 scale, then head_dim values from -127 to
 * 127; it means their products, which are exact in f32. */
enum { KV_SCALE_BYTES = 2 };
static inline size_t kv_row_bytes(int head_dim, enum dtype t) {
    if (t == DTYPE_INT8) return KV_SCALE_BYTES + (size_t)head_dim;
    return (size_t)head_dim * (t == DTYPE_F32 ? 4 : t == DTYPE_BF16 ? 2 : 0);
}
/* The scale of a row whose largest magnitude is `most`, and what values are multiplied with before
 * they are rounded to nearest even. finite: all values are; else the scale is a NaN and the values
 * are to be zeros, so that the whole row reads as NaN. Rows too small for a scale become zeros. */
uint16_t kv_row_scale(float *inv, float most, bool finite);

/* Where value i < GROUP of a row lies in a group, and what it is before the scale. */
static inline uint8_t *quant_at(const uint8_t *group, int row, int i, enum dtype w) {
    int j = w == DTYPE_INT4 ? i % (GROUP / 2) : i;
    return (uint8_t *)group + 2 * PANEL_ROWS + (j / 4 * PANEL_ROWS + row) * 4 + j % 4;
}
static inline int quant_value(const uint8_t *group, int row, int i, enum dtype w) {
    int v = *quant_at(group, row, i, w);
    return w != DTYPE_INT4 ? v - QUANT_OFFSET8 : (i < GROUP / 2 ? v & 15 : v >> 4) - QUANT_OFFSET4;
}

/* The set of that name, or with "auto" or NULL the fastest of our own that this processor and
 * system can run. ERR_BAD_CONFIG: unknown name, or not on this processor; eb lists what there is.
 */
enum err kernels_find(struct kernels *out, const char *name, struct errbuf *eb);
/* The idx-th set this processor can run, slowest first, openblas (where it is installed) last;
 * false past the end. */
bool kernels_at(struct kernels *out, int idx);

/* Whose bits a model's answers have with that set: "common" of all sets that agree with "ref", else
 * the set's name. bf16_weights: it has some; kv: the type of its KV. Two processes, of whatever
 * architecture, give the same bits where the name is the same; but "openblas" does so on processors
 * of one kind only. */
const char *kernels_arithmetic(const struct kernels *k, bool bf16_weights, enum dtype kv);

/* Sets by file; kernels.c decides which may run. NULL: the compiler made none for its target. */
const struct kernels *kernels_ref(void);
const struct kernels *kernels_avx2(void);
const struct kernels *kernels_avx512(void);
const struct kernels *kernels_avx512vnni(void);
const struct kernels *kernels_avx512bf16(void);
const struct kernels *kernels_amx(void);
const struct kernels *kernels_neon(void);
const struct kernels *kernels_neondot(void);
const struct kernels *kernels_neoni8mm(void);
const struct kernels *kernels_neonbf16(void);
/* Lays OpenBLAS's product over the best set of our own in *k. The library is opened by the first
 * call (any thread); ERR_BAD_CONFIG: it is not there, or lacks memory, and *k is as it was. */
enum err kernels_openblas(struct kernels *k, struct errbuf *eb);
/* Tells the library of this process, through the environment, to start no threads and to use
 * AVX-512 where there is some. Before the process has threads of its own. */
void kernels_openblas_environment(void);

/* The panel layout of all sets but openblas (kernels_panel.c): f32 [k][PANEL_ROWS]; bf16 [k /
 * 2][PANEL_ROWS][2]. */
void panel_pack_columns(void *panel, const float *rows, int n_rows, int k, enum dtype w);
void panel_row_columns(float *row, const void *panel, int idx, int k, enum dtype w);
/* The same for int8 and int4, which those above call (kernels_quant.c). */
void panel_pack_quant(void *panel, const float *rows, int n_rows, int k, enum dtype w);
void panel_row_quant(float *row, const void *panel, int idx, int k, enum dtype w);
/* n <= GROUP activations, then zeros, to q in [-max, max]: x = scale q; sum: of q. Where x is not
 * finite q is -max - 1 and scale a NaN. */
void quantise_row(int16_t q[GROUP], float *scale, int32_t *sum, const float *x, int n, int max);
/* Activations for quantised weights: for each tile of n rows, for each group: f32 scale [n]; i32
 * [n], the sum of the values times minus the weights' offset; the values. These are for int8 i16
 * [GROUP / 4][2][n][2], of four k the even ones and the odd ones; for int4 i8 [GROUP / 4][n][4].
 * DTYPE_INT8_NARROW is laid out as int8 by sets whose products of bytes would saturate, as int4 by
 * those with VNNI.
 * The largest is such that a group's sums fit 32 bits, and with int4 16 bits. */
static inline size_t quant_x_bytes(enum dtype w) { /* of a row's group */
    if (dtype_is_blocks(w)) return 16 + GROUP;
    return 8 + GROUP * (w == DTYPE_INT8 ? 2 : 1);
}
static inline int quant_x_max(enum dtype w) {
    return w == DTYPE_INT8 ? 32767 : 127;
}
/* How sets without products of bytes lay out activations for w. */
static inline enum dtype x_layout_plain(enum dtype w) {
    return w == DTYPE_INT8_NARROW ? DTYPE_INT8 : w;
}
/* Row r of a tile's group at dst, in that layout. */
void x_put_quant(uint8_t *dst, size_t n, size_t r, const int16_t q[GROUP], float scale, int32_t sum,
                 enum dtype w);
void x_pack_quant(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                  enum dtype w);
/* x_gather() of packings that are, for each tile of n rows, 32-bit words [words][n]. */
void x_gather_words(void *xp, const void *from, int n_rows, const int *rows, int n, size_t words);
/* That of x_pack_columns(), x_pack_quant() and x_pack_blocks(). */
void x_gather_columns(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                      enum dtype w);
/* The type of weights whose packed activations meet w too. */
static inline enum dtype x_dtype(enum dtype w) {
    return dtype_is_blocks(w) ? DTYPE_Q4_K : w;
}
/* Activations as f32 [tile][k, even][rows of the tile], rounded to bf16 when w is. */
void x_pack_columns(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                    enum dtype w);

#endif
