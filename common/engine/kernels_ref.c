/* kernels_ref: every operation as a plain loop, in the order of sums that kernels.h promises. It is
 * the oracle of the other sets, and what runs where there is no AVX2. fmaf is one rounding, on
 * every machine. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "common/engine/half.h"
#include "common/engine/kernels.h"
#include "common/engine/kernels_blocks.h"
#include "common/engine/kernels_exp.h"

static size_t even(int k) {
    return (size_t)(k + (k & 1));
}

/* Value d of KV row `row` of p. */
static float kv_value(const void *p, int row, int d, int head_dim, enum dtype t) {
    const uint8_t *at = (const uint8_t *)p + (size_t)row * kv_row_bytes(head_dim, t);
    uint16_t h;
    float f;
    if (t == DTYPE_INT8) {
        memcpy(&h, at, sizeof(h));
        return f32_of_bf16(h) * (float)((const int8_t *)at)[KV_SCALE_BYTES + d];
    }
    if (t == DTYPE_BF16) {
        memcpy(&h, at + 2 * (size_t)d, sizeof(h));
        return f32_of_bf16(h);
    }
    memcpy(&f, at + 4 * (size_t)d, sizeof(f));
    return f;
}

static float lane_sum(const float l[LANES]) {
    float a[8], half[2];
    for (int i = 0; i < 8; i++) a[i] = l[i] + l[i + 8];
    for (int h = 0; h < 2; h++) half[h] = (a[4 * h] + a[4 * h + 1]) + (a[4 * h + 2] + a[4 * h + 3]);
    return half[0] + half[1];
}

static float exp_f32(float x) {
    x = x < EXP_MIN ? EXP_MIN : x > EXP_MAX ? EXP_MAX : x;
    float n = rintf(x * EXP_LOG2E);
    float r = fmaf(-n, EXP_LN2_LO, fmaf(-n, EXP_LN2_HI, x));
    float p = EXP_C5;
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, EXP_C1);
    p = fmaf(p, r, EXP_C0);
    float y = fmaf(p, r * r, r) + 1.0f;
    return y * f32_of_bits((uint32_t)((int32_t)n + 127) << 23);
}

/* x: a tile's group of n rows. */
static int quant_x_value(const uint8_t *x, size_t n, size_t r, size_t i, enum dtype w) {
    int16_t h;
    if (w == DTYPE_INT4) return ((const int8_t *)x)[8 * n + (i / 4 * n + r) * 4 + i % 4];
    memcpy(&h, x + 8 * n + ((i / 4 * 2 + i % 2) * n + r) * 4 + i % 4 / 2 * 2, sizeof(h));
    return h;
}

static void gemm_quant(float *y, size_t y_stride, const uint8_t *xp, const uint8_t *panels,
                       int n_rows, int k, int n_cols, enum dtype w) {
    const size_t groups = k_groups(k);
    for (int m = 0; m < n_rows; m++) {
        int t = m / TILE_ROWS * TILE_ROWS;
        size_t n = (size_t)(n_rows - t < TILE_ROWS ? n_rows - t : TILE_ROWS), r = (size_t)(m - t);
        for (int j = 0; j < n_cols; j++) {
            const int lane = j % PANEL_ROWS;
            float acc = 0;
            for (size_t g = 0; g < groups; g++) {
                const uint8_t *x = xp + ((size_t)t * groups + g * n) * quant_x_bytes(w);
                const uint8_t *group =
                    panels + (size_t)(j / PANEL_ROWS) * panel_bytes(k, w) + g * group_bytes(w);
                float x_scale;
                uint16_t w_scale;
                int sum = 0;
                memcpy(&x_scale, x + 4 * r, sizeof(x_scale));
                memcpy(&w_scale, group + 2 * lane, sizeof(w_scale));
                for (int i = 0; i < GROUP; i++)
                    sum += quant_value(group, lane, i, w) * quant_x_value(x, n, r, (size_t)i, w);
                acc = fmaf((float)sum, f32_of_bf16(w_scale) * x_scale, acc);
            }
            y[(size_t)m * y_stride + (size_t)j] = acc;
        }
    }
}

/* Activation i of row r of a tile's group. */
static int block_x_value(const uint8_t *x, size_t n, size_t r, size_t i) {
    return ((const int8_t *)x)[16 * n + (i / 4 * n + r) * 4 + i % 4];
}

static float dot_blocks(const uint8_t *x, size_t n, size_t r, const uint8_t *panel, int lane, int k,
                        enum dtype w) {
    const struct block_format f = block_format(w);
    float acc = 0;
    for (int i = 0; i < k; i += f.unit) {
        const uint8_t *group = x + (size_t)(i / GROUP) * n * quant_x_bytes(w),
                      *block = panel + (size_t)(i / f.k) * (size_t)block_bytes(f);
        const int u = i % f.k / f.unit;
        float x_scale, x_sum;
        int sum = 0;
        memcpy(&x_scale, group + 4 * r, sizeof(x_scale));
        memcpy(&x_sum, group + 4 * (n + r), sizeof(x_sum));
        for (int j = i; j < i + f.unit; j++)
            sum += block_value(block, lane, j % f.k, w) *
                   block_x_value(group, n, r, (size_t)(j % GROUP));
        acc = fmaf((float)sum, block_scale(block, lane, u, w) * x_scale, acc);
        if (w == DTYPE_Q4_K || w == DTYPE_Q5_K)
            acc = fmaf(-block_least(block, lane, u, w), x_sum, acc);
    }
    return acc;
}

static void gemm_blocks(float *y, size_t y_stride, const uint8_t *xp, const uint8_t *panels,
                        int n_rows, int k, int n_cols, enum dtype w) {
    for (int m = 0; m < n_rows; m++) {
        const int t = m / TILE_ROWS * TILE_ROWS;
        const size_t n = (size_t)(n_rows - t < TILE_ROWS ? n_rows - t : TILE_ROWS);
        const uint8_t *x = xp + (size_t)t * k_groups(k) * quant_x_bytes(w);
        for (int j = 0; j < n_cols; j++)
            y[(size_t)m * y_stride + (size_t)j] = dot_blocks(
                x, n, (size_t)(m - t), panels + (size_t)(j / PANEL_ROWS) * panel_bytes(k, w),
                j % PANEL_ROWS, k, w);
    }
}

static void x_pack(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w) {
    if (dtype_is_blocks(w))
        x_pack_blocks(xp, x, x_stride, first, end, k);
    else if (dtype_is_quant(w))
        x_pack_quant(xp, x, x_stride, first, end, k, w);
    else
        x_pack_columns(xp, x, x_stride, first, end, k, w);
}

static void x_gather(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                     enum dtype w) {
    x_gather_columns(xp, from, n_rows, rows, n, k, x_layout_plain(w));
}

/* A bf16 product takes the odd k of a pair before the even one, as vdpbf16ps does. */
static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w) {
    const float *x = xp;
    if (dtype_is_blocks(w)) {
        gemm_blocks(y, y_stride, xp, panels, n_rows, k, n_cols, w);
        return;
    }
    if (dtype_is_quant(w)) {
        gemm_quant(y, y_stride, xp, panels, n_rows, k, n_cols, x_layout_plain(w));
        return;
    }
    for (int m = 0; m < n_rows; m++) {
        int t = m / TILE_ROWS * TILE_ROWS;
        size_t n = (size_t)(n_rows - t < TILE_ROWS ? n_rows - t : TILE_ROWS);
        const float *tile = x + (size_t)t * even(k) + (m - t);
        for (int j = 0; j < n_cols; j++) {
            const uint8_t *panel =
                (const uint8_t *)panels + (size_t)(j / PANEL_ROWS) * panel_bytes(k, w);
            size_t lane = (size_t)(j % PANEL_ROWS);
            float acc = 0;
            for (size_t i = 0; i < (w == DTYPE_BF16 ? even(k) : (size_t)k); i++) {
                if (w == DTYPE_BF16) {
                    size_t odd_first = i ^ 1;
                    uint16_t h = ((
                        const uint16_t *)panel)[(i / 2 * PANEL_ROWS + lane) * 2 + (odd_first & 1)];
                    acc = fmaf(f32_of_bf16(h), tile[odd_first * n], acc);
                } else {
                    acc = fmaf(((const float *)panel)[i * PANEL_ROWS + lane], tile[i * n], acc);
                }
            }
            y[(size_t)m * y_stride + (size_t)j] = acc;
        }
    }
}

static void rmsnorm(float *y, const float *x, const float *weight, int n, float eps) {
    float sum[LANES] = {0};
    for (int i = 0; i < n; i++) sum[i % LANES] = fmaf(x[i], x[i], sum[i % LANES]);
    float f = 1.0f / sqrtf(lane_sum(sum) / (float)n + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * f * weight[i];
}

static void layernorm(float *y, const float *x, const float *weight, const float *bias, int n,
                      float eps) {
    float sum[LANES] = {0}, squares[LANES] = {0};
    for (int i = 0; i < n; i++) sum[i % LANES] += x[i];
    const float mean = lane_sum(sum) / (float)n;
    for (int i = 0; i < n; i++) {
        float d = x[i] - mean;
        squares[i % LANES] = fmaf(d, d, squares[i % LANES]);
    }
    const float f = 1.0f / sqrtf(lane_sum(squares) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = fmaf((x[i] - mean) * f, weight[i], bias != NULL ? bias[i] : 0);
}

static void rope(float *x, const float *cos, const float *sin, int half) {
    for (int i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = fmaf(a, cos[i], -(b * sin[i]));
        x[i + half] = fmaf(b, cos[i], a * sin[i]);
    }
}

static void swiglu(float *gate, const float *up, int n) {
    for (int i = 0; i < n; i++) gate[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

static void gelu(float *x, int n) {
    for (int i = 0; i < n; i++) {
        float v = x[i], a = v > -v ? v : -v;
        float t = 1.0f / fmaf(a, ERF_P, 1);
        float p = ERF_C5;
        p = fmaf(p, t, ERF_C4);
        p = fmaf(p, t, ERF_C3);
        p = fmaf(p, t, ERF_C2);
        p = fmaf(p, t, ERF_C1);
        float tail = a * (p * t) * exp_f32(v * v * -0.5f);
        x[i] = fmaf(tail, -0.5f, 0 > v ? 0 : v);
    }
}

static void gelu_tanh(float *x, int n) {
    for (int i = 0; i < n; i++) {
        float v = x[i], u = v * fmaf(v * v, GELU_C3, GELU_C1);
        x[i] = v / (1.0f + exp_f32(u));
    }
}

static void softcap(float *x, float cap, int n) {
    const float f = -2.0f / cap;
    for (int i = 0; i < n; i++) {
        float v = x[i], a = v > -v ? v : -v, e = exp_f32(a * f);
        float t = (1.0f - e) / (1.0f + e) * cap;
        x[i] = t * (v / (a > FLT_MIN ? a : FLT_MIN));
    }
}

static void mul(float *y, const float *x, int n) {
    for (int i = 0; i < n; i++) y[i] *= x[i];
}

static void add(float *y, const float *x, int n) {
    for (int i = 0; i < n; i++) y[i] += x[i];
}

static void store_int8(uint8_t *row, const float *src, int n) {
    float most = 0, inv;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        most = fabsf(src[i]) > most ? fabsf(src[i]) : most;
        finite = finite && isfinite(src[i]);
    }
    uint16_t h = kv_row_scale(&inv, most, finite);
    memcpy(row, &h, sizeof(h));
    for (int i = 0; i < n; i++)
        ((int8_t *)row)[KV_SCALE_BYTES + i] = finite ? (int8_t)rintf(src[i] * inv) : 0;
}

static void store(void *dst, const float *src, int n, enum dtype t) {
    if (t == DTYPE_INT8) {
        store_int8(dst, src, n);
    } else if (t == DTYPE_BF16) {
        for (int i = 0; i < n; i++) ((uint16_t *)dst)[i] = bf16_of_f32(src[i]);
    } else {
        memcpy(dst, src, (size_t)n * sizeof(float));
    }
}

static void scores(float *s, size_t s_stride, const float *q, size_t q_stride, int n_q,
                   const void *K, int n_pos, int head_dim, enum dtype t, float scale) {
    for (int i = 0; i < n_q; i++) {
        for (int p = 0; p < n_pos; p++) {
            float sum[LANES] = {0};
            for (int d = 0; d < head_dim; d++) {
                float k = kv_value(K, p, d, head_dim, t);
                sum[d % LANES] = fmaf(q[(size_t)i * q_stride + (size_t)d], k, sum[d % LANES]);
            }
            s[(size_t)i * s_stride + (size_t)p] = lane_sum(sum) * scale;
        }
    }
}

static float softmax(float *s, int n, float *most) {
    float max = s[0], sum[LANES] = {0};
    for (int p = 1; p < n; p++) max = s[p] > max ? s[p] : max;
    for (int p = 0; p < lanes_up(n); p++) {
        float e = exp_f32(p < n ? s[p] - max : -INFINITY);
        s[p] = e;
        sum[p % LANES] += e;
    }
    *most = max;
    return lane_sum(sum);
}

static void mix(float *o, size_t o_stride, const float *w, size_t w_stride, int n_q, const void *V,
                int n_pos, int head_dim, enum dtype t) {
    for (int i = 0; i < n_q; i++) {
        for (int p = 0; p < n_pos; p++) {
            for (int d = 0; d < head_dim; d++) {
                float *acc = &o[(size_t)i * o_stride + (size_t)d];
                float v = kv_value(V, p, d, head_dim, t);
                *acc = fmaf(w[(size_t)i * w_stride + (size_t)p], v, *acc);
            }
        }
    }
}

static void scale(float *y, const float *x, float f, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] * f;
}

static const struct kernels set = {
    .name = "ref",
    .item_panels = 1,
    .panel_pack = panel_pack_columns,
    .panel_row = panel_row_columns,
    .x_pack = x_pack,
    .x_gather = x_gather,
    .gemm = gemm,
    .rmsnorm = rmsnorm,
    .layernorm = layernorm,
    .rope = rope,
    .swiglu = swiglu,
    .gelu = gelu,
    .gelu_tanh = gelu_tanh,
    .softcap = softcap,
    .mul = mul,
    .add = add,
    .store = store,
    .scores = scores,
    .softmax = softmax,
    .mix = mix,
    .scale = scale,
};

const struct kernels *kernels_ref(void) {
    return &set;
}
