/* kernels_lanes: the kernels over groups of LANES = 16 floats, written once: rows and attention. A
 * file of one instruction set defines the type `lanes` and the operations below, then includes
 * this; so every set runs the same arithmetic in the same order.
 *
 * Unaligned; "_n": the first n lanes, zeros beyond when loading.
 *   ln_load, ln_load_n, ln_store, ln_store_n                    float
 *   ln_load_bf16, .._n, ln_store_bf16, .._n                     widened; rounded to nearest even
 *   ln_load_i8, .._n, ln_store_i8, .._n, ln_store_i16           the same, saturated
 *   ln_set1(float), ln_add, ln_sub, ln_mul, ln_div, ln_max, ln_min, ln_round (to even)
 *   ln_fma(a, b, c): a b + c    ln_fnma: c - a b    ln_fms: a b - c
 *   ln_pow2(lanes n): 2^n for whole n from -126 to 127
 *   float ln_sum(lanes): the fixed tree    ln_sum4(float out[4], four lanes): four such sums
 *   float ln_max_of(lanes)
 * ln_max(a, b) is b where either is no number. HEAD_DIM_LANES_MAX: the largest lanes_up(head_dim);
 * and what kernels_tile.h asks for, the matrix product. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "common/engine/half.h"
#include "common/engine/kernels_exp.h"
#include "common/engine/kernels_tile_loops.h"
#include QUANT_TILES
#include "common/engine/kernels_pack_row.h"
#ifdef PACKING
#include PACKING
#else
#include "common/engine/kernels_pack.h"
#include "common/engine/kernels_turn.h"
#endif
#include "common/engine/kernels_tile_blocks.h"
#include "common/engine/kernels_tile.h"

/* ---- rows */

INLINE lanes ln_exp(lanes x) {
    x = ln_min(ln_set1(EXP_MAX), ln_max(ln_set1(EXP_MIN), x));
    lanes n = ln_round(ln_mul(x, ln_set1(EXP_LOG2E)));
    lanes r = ln_fnma(n, ln_set1(EXP_LN2_LO), ln_fnma(n, ln_set1(EXP_LN2_HI), x));
    lanes p = ln_set1(EXP_C5);
    p = ln_fma(p, r, ln_set1(EXP_C4));
    p = ln_fma(p, r, ln_set1(EXP_C3));
    p = ln_fma(p, r, ln_set1(EXP_C2));
    p = ln_fma(p, r, ln_set1(EXP_C1));
    p = ln_fma(p, r, ln_set1(EXP_C0));
    lanes y = ln_add(ln_fma(p, ln_mul(r, r), r), ln_set1(1));
    return ln_mul(y, ln_pow2(n));
}

/* Whole groups, then one group of n % LANES: `step(i, n)` with n == LANES is the common case. */
#define FOR_LANES(i, n, len)                                                                       \
    for (int i = 0, n = 0; n = (len)-i < LANES ? (len)-i : LANES, i < (len); i += LANES)

INLINE lanes get(const float *p, int n) {
    return n == LANES ? ln_load(p) : ln_load_n(p, n);
}
INLINE void put(float *p, lanes v, int n) {
    if (n == LANES)
        ln_store(p, v);
    else
        ln_store_n(p, v, n);
}
INLINE lanes get_as(const void *p, size_t at, int n, enum dtype t) {
    if (t != DTYPE_BF16) return get((const float *)p + at, n);
    const uint16_t *h = (const uint16_t *)p + at;
    return n == LANES ? ln_load_bf16(h) : ln_load_bf16_n(h, n);
}

static void rmsnorm(float *y, const float *x, const float *weight, int n, float eps) {
    lanes sum = ln_set1(0);
    FOR_LANES(i, len, n) {
        lanes v = get(x + i, len);
        sum = ln_fma(v, v, sum);
    }
    lanes f = ln_set1(1.0f / sqrtf(ln_sum(sum) / (float)n + eps));
    FOR_LANES(i, len, n) {
        put(y + i, ln_mul(ln_mul(get(x + i, len), f), get(weight + i, len)), len);
    }
}

static void layernorm(float *y, const float *x, const float *weight, const float *bias, int n,
                      float eps) {
    lanes sum = ln_set1(0), squares = sum;
    FOR_LANES(i, len, n) {
        sum = ln_add(sum, get(x + i, len));
    }
    const float mean = ln_sum(sum) / (float)n;
    const int whole = n / LANES * LANES;
    for (int i = 0; i < whole; i += LANES) {
        lanes d = ln_sub(ln_load(x + i), ln_set1(mean));
        squares = ln_fma(d, d, squares);
    }
    if (whole < n) { /* the lanes beyond are zeros only before the mean is taken off */
        float rest[LANES] = {0};
        for (int i = whole; i < n; i++) rest[i - whole] = x[i] - mean;
        squares = ln_fma(ln_load(rest), ln_load(rest), squares);
    }
    const lanes f = ln_set1(1.0f / sqrtf(ln_sum(squares) / (float)n + eps));
    FOR_LANES(i, len, n) {
        lanes d = ln_mul(ln_sub(get(x + i, len), ln_set1(mean)), f);
        put(y + i, ln_fma(d, get(weight + i, len), bias != NULL ? get(bias + i, len) : ln_set1(0)),
            len);
    }
}

static void rope(float *x, const float *cos, const float *sin, int half) {
    FOR_LANES(i, n, half) {
        lanes a = get(x + i, n), b = get(x + half + i, n), c = get(cos + i, n), s = get(sin + i, n);
        put(x + i, ln_fms(a, c, ln_mul(b, s)), n);
        put(x + half + i, ln_fma(b, c, ln_mul(a, s)), n);
    }
}

static void swiglu(float *gate, const float *up, int n) {
    FOR_LANES(i, len, n) {
        lanes g = get(gate + i, len);
        lanes d = ln_add(ln_set1(1), ln_exp(ln_sub(ln_set1(-0.0f), g)));
        put(gate + i, ln_mul(ln_div(g, d), get(up + i, len)), len);
    }
}

static void gelu(float *x, int n) {
    FOR_LANES(i, len, n) {
        lanes v = get(x + i, len), a = ln_max(v, ln_sub(ln_set1(-0.0f), v));
        lanes t = ln_div(ln_set1(1), ln_fma(a, ln_set1(ERF_P), ln_set1(1)));
        lanes p = ln_set1(ERF_C5);
        p = ln_fma(p, t, ln_set1(ERF_C4));
        p = ln_fma(p, t, ln_set1(ERF_C3));
        p = ln_fma(p, t, ln_set1(ERF_C2));
        p = ln_fma(p, t, ln_set1(ERF_C1));
        lanes tail = ln_mul(ln_mul(a, ln_mul(p, t)), ln_exp(ln_mul(ln_mul(v, v), ln_set1(-0.5f))));
        put(x + i, ln_fma(tail, ln_set1(-0.5f), ln_max(ln_set1(0), v)), len);
    }
}

static void gelu_tanh(float *x, int n) {
    FOR_LANES(i, len, n) {
        lanes v = get(x + i, len);
        lanes u = ln_mul(v, ln_fma(ln_mul(v, v), ln_set1(GELU_C3), ln_set1(GELU_C1)));
        put(x + i, ln_div(v, ln_add(ln_set1(1), ln_exp(u))), len);
    }
}

/* tanh(a) = (1 - e) / (1 + e), e = exp(-2 a), a >= 0; a quotient brings the sign back. */
static void softcap(float *x, float cap, int n) {
    const lanes f = ln_set1(-2.0f / cap);
    FOR_LANES(i, len, n) {
        lanes v = get(x + i, len), a = ln_max(v, ln_sub(ln_set1(-0.0f), v));
        lanes e = ln_exp(ln_mul(a, f));
        lanes t = ln_mul(ln_div(ln_sub(ln_set1(1), e), ln_add(ln_set1(1), e)), ln_set1(cap));
        put(x + i, ln_mul(t, ln_div(v, ln_max(a, ln_set1(FLT_MIN)))), len);
    }
}

static void mul(float *y, const float *x, int n) {
    FOR_LANES(i, len, n) {
        put(y + i, ln_mul(get(y + i, len), get(x + i, len)), len);
    }
}

static void add(float *y, const float *x, int n) {
    FOR_LANES(i, len, n) {
        put(y + i, ln_add(get(y + i, len), get(x + i, len)), len);
    }
}

static void scale(float *y, const float *x, float f, int n) {
    FOR_LANES(i, len, n) {
        put(y + i, ln_mul(get(x + i, len), ln_set1(f)), len);
    }
}

/* What is no number is passed over by the maximum and stays in the sum of zeros. */
static void store_int8(uint8_t *row, const float *src, int n) {
    lanes most = ln_set1(0), zero = ln_set1(0);
    float inv;
    FOR_LANES(i, len, n) {
        lanes v = get(src + i, len);
        most = ln_max(ln_max(v, ln_sub(ln_set1(0), v)), most);
        zero = ln_fma(v, ln_set1(0), zero);
    }
    const bool finite = ln_sum(zero) == 0;
    const uint16_t h = kv_row_scale(&inv, ln_max_of(most), finite);
    int8_t *values = (int8_t *)row + KV_SCALE_BYTES;
    memcpy(row, &h, sizeof(h));
    if (!finite) {
        memset(values, 0, (size_t)n);
        return;
    }
    FOR_LANES(i, len, n) {
        lanes v = ln_mul(get(src + i, len), ln_set1(inv));
        if (len == LANES)
            ln_store_i8(values + i, v);
        else
            ln_store_i8_n(values + i, v, len);
    }
}

static void store(void *dst, const float *src, int n, enum dtype t) {
    if (t == DTYPE_INT8) {
        store_int8(dst, src, n);
        return;
    }
    if (t != DTYPE_BF16) {
        memcpy(dst, src, (size_t)n * sizeof(float));
        return;
    }
    FOR_LANES(i, len, n) {
        if (len == LANES)
            ln_store_bf16((uint16_t *)dst + i, ln_load(src + i));
        else
            ln_store_bf16_n((uint16_t *)dst + i, ln_load_n(src + i, len), len);
    }
}

/* ---- attention */

enum {
    KEYS = 4,
    SCORE_ROWS = TILE_PANELS(TILE_ROWS) == 4 ? 8 : 4, /* as many as cover the latency of an FMA */
    TURN_FROM = 8, /* queries: with fewer, turning the keys costs more than it gains */
    MIX_POSITIONS = 32,
    MIX_ROWS = 6
};

INLINE void widen_int8(float *dst, size_t dst_stride, const uint8_t *row, int n, int head_dim) {
    for (int p = 0; p < n; p++, row += kv_row_bytes(head_dim, DTYPE_INT8), dst += dst_stride) {
        const int8_t *values = (const int8_t *)row + KV_SCALE_BYTES;
        uint16_t h;
        memcpy(&h, row, sizeof(h));
        const lanes f = ln_set1(f32_of_bf16(h));
        FOR_LANES(d, len, head_dim) {
            lanes v = len == LANES ? ln_load_i8(values + d) : ln_load_i8_n(values + d, len);
            ln_store(dst + d, ln_mul(v, f));
        }
    }
}

/* KV rows [first, first + n) of type t, widened and filled up with zeros to whole groups of lanes.
 */
INLINE void widen_rows(float *dst, size_t dst_stride, const void *src, size_t first, int n,
                       int head_dim, enum dtype t) {
    if (t == DTYPE_INT8) {
        const uint8_t *rows = src;
        widen_int8(dst, dst_stride, rows + first * kv_row_bytes(head_dim, t), n, head_dim);
        return;
    }
    for (int p = 0; p < n; p++) {
        FOR_LANES(d, len, head_dim) {
            ln_store(dst + (size_t)p * dst_stride + (size_t)d,
                     get_as(src, (first + (size_t)p) * (size_t)head_dim + (size_t)d, len, t));
        }
    }
}

/* Two queries and two keys share their loads and one tree of sums; so do four keys of a query that
 * has no partner. */
INLINE void scores_2x2(float *s, size_t s_stride, const float *q, const float *keys, size_t stride,
                       int n, float f) {
    lanes a0 = ln_set1(0), a1 = a0, b0 = a0, b1 = a0;
    float out[4];
    for (size_t d = 0; d < stride; d += LANES) {
        lanes k0 = ln_load(keys + d), k1 = ln_load(keys + stride + d);
        lanes a = ln_load(q + d), b = ln_load(q + stride + d);
        a0 = ln_fma(a, k0, a0);
        a1 = ln_fma(a, k1, a1);
        b0 = ln_fma(b, k0, b0);
        b1 = ln_fma(b, k1, b1);
    }
    ln_sum4(out, a0, a1, b0, b1);
    for (int j = 0; j < n; j++) {
        s[j] = out[j] * f;
        s[s_stride + (size_t)j] = out[2 + j] * f;
    }
}

INLINE void scores_1x4(float *s, const float *q, const float *keys, size_t stride, int n, float f) {
    lanes a0 = ln_set1(0), a1 = a0, a2 = a0, a3 = a0;
    float out[KEYS];
    for (size_t d = 0; d < stride; d += LANES) {
        lanes v = ln_load(q + d);
        a0 = ln_fma(v, ln_load(keys + d), a0);
        a1 = ln_fma(v, ln_load(keys + stride + d), a1);
        a2 = ln_fma(v, ln_load(keys + 2 * stride + d), a2);
        a3 = ln_fma(v, ln_load(keys + 3 * stride + d), a3);
    }
    ln_sum4(out, a0, a1, a2, a3);
    for (int j = 0; j < n; j++) s[j] = out[j] * f;
}

/* Scores of `rows` queries and sixteen keys, which stand in columns: a lane is a key. The sum of a
 * score is that of ln_sum(), with no lane moved: sixteen sums over every sixteenth d, and the tree
 * over them, where sums wait for their partner. */
INLINE void scores_tile(float *s, size_t s_stride, const float *q, size_t q_stride,
                        const float *columns, int n, int rows, float f) {
    lanes waiting[4][SCORE_ROWS], sum[SCORE_ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        const int first = i / 2 + i % 2 * (LANES / 2); /* partners: 0 and 8, 1 and 9, .. */
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) sum[r] = ln_set1(0);
        for (size_t d = (size_t)first; d < q_stride; d += LANES) {
            const lanes k = ln_load(columns + d * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                sum[r] = ln_fma(ln_set1(q[(size_t)r * q_stride + d]), k, sum[r]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            if ((i & 1) != 0) sum[r] = ln_add(waiting[0][r], sum[r]);
            if ((i & 3) == 3) sum[r] = ln_add(waiting[1][r], sum[r]);
            if ((i & 7) == 7) sum[r] = ln_add(waiting[2][r], sum[r]);
            if ((i & 15) == 15) sum[r] = ln_add(waiting[3][r], sum[r]);
            waiting[(i & 1) == 0 ? 0 : (i & 3) == 1 ? 1 : (i & 7) == 3 ? 2 : 3][r] = sum[r];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) put(s + (size_t)r * s_stride, ln_mul(sum[r], ln_set1(f)), n);
}

/* Sixteen keys at a time against every query: they are widened and turned once. This and the next
 * are functions of their own: as one, registers of the other's spill (7% of a decode's attention).
 */
#define NOINLINE __attribute__((noinline))
static NOINLINE void scores_turned(float *s, size_t s_stride, const float *q, size_t q_stride,
                                   int n_q, const void *K, int n_pos, int head_dim, enum dtype t,
                                   float f) {
    float rows[LANES * HEAD_DIM_LANES_MAX] __attribute__((aligned(64)));
    float columns[LANES * HEAD_DIM_LANES_MAX] __attribute__((aligned(64)));
    for (int p = 0; p < n_pos; p += LANES) {
        int n = n_pos - p < LANES ? n_pos - p : LANES;
        widen_rows(rows, q_stride, K, (size_t)p, n, head_dim, t);
        memset(rows + (size_t)n * q_stride, 0, (size_t)(LANES - n) * q_stride * sizeof(float));
        for (size_t d = 0; d < q_stride; d += 8) {
            turn_8x8(columns + d * LANES, LANES, rows + d, q_stride);
            turn_8x8(columns + d * LANES + 8, LANES, rows + 8 * q_stride + d, q_stride);
        }
        int i = 0;
        for (; i + SCORE_ROWS <= n_q; i += SCORE_ROWS)
            scores_tile(s + (size_t)i * s_stride + p, s_stride, q + (size_t)i * q_stride, q_stride,
                        columns, n, SCORE_ROWS, f);
        for (; i + 2 <= n_q; i += 2)
            scores_tile(s + (size_t)i * s_stride + p, s_stride, q + (size_t)i * q_stride, q_stride,
                        columns, n, 2, f);
        if (i < n_q)
            scores_tile(s + (size_t)i * s_stride + p, s_stride, q + (size_t)i * q_stride, q_stride,
                        columns, n, 1, f);
    }
}

/* Four keys at a time, for few queries. */
static NOINLINE void scores_few(float *s, size_t s_stride, const float *q, size_t q_stride, int n_q,
                                const void *K, int n_pos, int head_dim, enum dtype t, float f) {
    float keys[KEYS * HEAD_DIM_LANES_MAX] __attribute__((aligned(64)));
    for (int p = 0; p < n_pos; p += KEYS) {
        int n = n_pos - p < KEYS ? n_pos - p : KEYS;
        widen_rows(keys, q_stride, K, (size_t)p, n, head_dim, t);
        for (int j = n; j < KEYS; j++)
            memset(keys + (size_t)j * q_stride, 0, q_stride * sizeof(float));
        int i = 0;
        for (; i + 2 <= n_q; i += 2)
            for (int j = 0; j < n; j += 2)
                scores_2x2(s + (size_t)i * s_stride + (size_t)(p + j), s_stride,
                           q + (size_t)i * q_stride, keys + (size_t)j * q_stride, q_stride,
                           n - j < 2 ? 1 : 2, f);
        if (i < n_q)
            scores_1x4(s + (size_t)i * s_stride + (size_t)p, q + (size_t)i * q_stride, keys,
                       q_stride, n, f);
    }
}

static void scores(float *s, size_t s_stride, const float *q, size_t q_stride, int n_q,
                   const void *K, int n_pos, int head_dim, enum dtype t, float f) {
    if (n_q >= TURN_FROM)
        scores_turned(s, s_stride, q, q_stride, n_q, K, n_pos, head_dim, t, f);
    else
        scores_few(s, s_stride, q, q_stride, n_q, K, n_pos, head_dim, t, f);
}

static float softmax(float *s, int n, float *max) {
    int whole = lanes_up(n);
    for (int p = n; p < whole; p++) s[p] = -INFINITY;
    lanes most = ln_load(s), sum = ln_set1(0);
    for (int p = LANES; p < whole; p += LANES) most = ln_max(most, ln_load(s + p));
    *max = ln_max_of(most);
    most = ln_set1(*max);
    for (int p = 0; p < whole; p += LANES) {
        lanes e = ln_exp(ln_sub(ln_load(s + p), most));
        ln_store(s + p, e);
        sum = ln_add(sum, e);
    }
    return ln_sum(sum);
}

/* o[rows][groups of lanes] += sum over p of w[p] V[p]; what is summed stays in registers over all
 * positions. */
INLINE void mix_tile(float *o, size_t o_stride, const float *w, size_t w_stride, const float *v,
                     int n_pos, int rows, int groups) {
    lanes acc[MIX_ROWS][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++)
            acc[r][g] = ln_load(o + (size_t)r * o_stride + (size_t)g * LANES);
    }
    for (int p = 0; p < n_pos; p++, v += o_stride) {
        lanes values[4];
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) values[g] = ln_load(v + (size_t)g * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            lanes f = ln_set1(w[(size_t)r * w_stride + (size_t)p]);
#pragma GCC unroll 4
            for (int g = 0; g < groups; g++) acc[r][g] = ln_fma(f, values[g], acc[r][g]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++)
            ln_store(o + (size_t)r * o_stride + (size_t)g * LANES, acc[r][g]);
    }
}

/* All columns for one count of rows; `groups` of them at a time as long as they last. */
INLINE void mix_rows(float *o, size_t o_stride, const float *w, size_t w_stride, const float *v,
                     int n_pos, int rows, int groups) {
    size_t d = 0;
    for (; d + (size_t)groups * LANES <= o_stride; d += (size_t)groups * LANES)
        mix_tile(o + d, o_stride, w, w_stride, v + d, n_pos, rows, groups);
    for (; d < o_stride; d += LANES) mix_tile(o + d, o_stride, w, w_stride, v + d, n_pos, rows, 1);
}

static void mix(float *o, size_t o_stride, const float *w, size_t w_stride, int n_q, const void *V,
                int n_pos, int head_dim, enum dtype t) {
    float values[MIX_POSITIONS * HEAD_DIM_LANES_MAX] __attribute__((aligned(64)));
    for (int p = 0; p < n_pos; p += MIX_POSITIONS) {
        int n = n_pos - p < MIX_POSITIONS ? n_pos - p : MIX_POSITIONS;
        widen_rows(values, o_stride, V, (size_t)p, n, head_dim, t);
        const float *f = w + p;
        int i = 0;
        for (; i + MIX_ROWS <= n_q; i += MIX_ROWS)
            mix_rows(o + (size_t)i * o_stride, o_stride, f + (size_t)i * w_stride, w_stride, values,
                     n, MIX_ROWS, TILE_PANELS(MIX_ROWS) == 4 ? 2 : 1);
        for (; i + 2 <= n_q; i += 2)
            mix_rows(o + (size_t)i * o_stride, o_stride, f + (size_t)i * w_stride, w_stride, values,
                     n, 2, 2);
        if (i < n_q)
            mix_rows(o + (size_t)i * o_stride, o_stride, f + (size_t)i * w_stride, w_stride, values,
                     n, 1, 4);
    }
}

static __attribute__((unused)) void lanes_gather(void *xp, const void *from, int n_rows,
                                                 const int *rows, int n, int k, enum dtype w) {
    x_gather_columns(xp, from, n_rows, rows, n, k, dtype_is_quant(w) ? q_kind(w) : w);
}
#ifndef X_GATHER
#define X_GATHER lanes_gather
#endif

#ifndef CHUNK_SCORES
#define CHUNK_SCORES NULL
#define CHUNK_MIX    NULL
#endif

#ifndef OWN_BF16
#define OWN_BF16 false
#endif

/* Rows of a tile. */
#ifndef TILE_ROWS_BF16
#define TILE_ROWS_BF16 TILE_ROWS
#endif
#ifndef TILE_ROWS_QUANT
#define TILE_ROWS_QUANT TILE_ROWS
#endif

/* Panels of a work item. */
#ifndef WORK_PANELS
#define WORK_PANELS ITEM_PANELS
#endif

#define KERNELS_OF_LANES(set_name)                                                                 \
    {                                                                                              \
        .name = set_name, .own_bf16 = OWN_BF16, .tile_rows = TILE_ROWS,                            \
        .tile_rows_bf16 = TILE_ROWS_BF16, .tile_rows_quant = TILE_ROWS_QUANT,                      \
        .item_panels = WORK_PANELS, .panel_pack = panel_pack_columns,                              \
        .panel_row = panel_row_columns, .x_pack = x_pack, .x_gather = X_GATHER, .gemm = gemm,      \
        .gemm_once = GEMM_ONCE, .rmsnorm = rmsnorm, .layernorm = layernorm, .rope = rope,          \
        .swiglu = swiglu, .gelu = gelu, .gelu_tanh = gelu_tanh, .softcap = softcap, .mul = mul,    \
        .add = add, .store = store, .scores = scores, .softmax = softmax, .mix = mix,              \
        .chunk_scores = CHUNK_SCORES, .chunk_mix = CHUNK_MIX, .scale = scale,                      \
    }
