/* kernels_quant: packing int8 and int4 weights, activations to meet them, and the scale of an int8
 * KV row. Plain C in one fixed order, so the packed bytes are the same whatever kernel set and
 * number of threads. docs/decisions/2026-11-21-quantised-weights.md and 2026-11-21-int8-kv.md have
 * the formats' reasons. */
#include <math.h>
#include <string.h>
#include "common/engine/half.h"
#include "common/engine/kernels.h"
#include "common/engine/kernels_grid.h"

/* Scales below are taken for zero: their inverse would not be finite. */
#define SCALE_MIN 0x1p-100f

enum { Q8_MAX = 127, Q4_MAX = 7, Q4_MIN = -8, Q4_TRIES = 8 };

static int rounded(float v, int min, int max) {
    return v >= (float)max ? max : v > (float)min ? (int)rintf(v) : min;
}

/* v: the GROUP values of a row. Returns the scale, a bf16. */
static float quantise8(int8_t q[GROUP], const float v[GROUP]) {
    float most = 0;
    for (int i = 0; i < GROUP; i++) most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
    float d = bf16_up(most / Q8_MAX), inv = d > SCALE_MIN ? 1 / d : 0;
    for (int i = 0; i < GROUP; i++) q[i] = (int8_t)rounded(v[i] * inv, -Q8_MAX, Q8_MAX);
    return inv > 0 ? d : 0;
}

/* A lane for each scale that is tried. */
typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
enum { TRY_PARTS = Q4_TRIES / 4 };

static inline f32x4 chosen(i32x4 where, f32x4 a, f32x4 b) {
    return (f32x4)(((i32x4)a & where) | ((i32x4)b & ~where));
}

/* As rounded(): what is added and taken away again leaves no bits behind the point. */
static inline f32x4 rounded4(f32x4 v) {
    const f32x4 none = {0}, min = none + Q4_MIN, max = none + Q4_MAX;
    v = chosen(v > min, v, min);
    v = chosen(v < max, v, max);
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

/* How far each of the scales is off, and which would be best for what it rounds to. Each lane's
 * sums run upwards over the group. */
static void try_scales4(float error[Q4_TRIES], float better[Q4_TRIES], const float d[Q4_TRIES],
                        const float v[GROUP]) {
    f32x4 scale[TRY_PARTS], inv[TRY_PARTS], e[TRY_PARTS] = {{0}}, vq[TRY_PARTS] = {{0}},
                                            qq[TRY_PARTS] = {{0}};
    memcpy(scale, d, sizeof(scale));
    for (int t = 0; t < TRY_PARTS; t++) inv[t] = 1 / scale[t];
    for (int i = 0; i < GROUP; i++) {
#pragma GCC unroll 2
        for (int t = 0; t < TRY_PARTS; t++) {
            const f32x4 q = rounded4(v[i] * inv[t]), off = v[i] - scale[t] * q;
            e[t] += off * off;
            vq[t] += v[i] * q;
            qq[t] += q * q;
        }
    }
    memcpy(error, e, sizeof(e));
    for (int t = 0; t < Q4_TRIES; t++) {
        const float n = qq[t / 4][t % 4];
        better[t] = n > 0 ? f32_of_bf16(bf16_of_f32(vq[t / 4][t % 4] / n)) : 0;
    }
}

/* Eight steps lie on one side of zero and seven on the other, so the scale takes the sign that
 * gives the largest value the longer side. Then some scales about it are tried, each followed by
 * the one that is best for its rounding, and the least squared error wins. */
static float quantise4(int8_t q[GROUP], const float v[GROUP]) {
    float d[3][Q4_TRIES], error[2][Q4_TRIES], most = 0, best = INFINITY, scale = 0;
    for (int i = 0; i < GROUP; i++) most = fabsf(v[i]) > fabsf(most) ? v[i] : most;
    memset(q, 0, GROUP);
    if (!(fabsf(most) > SCALE_MIN)) return 0;
    for (int t = 0; t < Q4_TRIES; t++)
        d[0][t] = f32_of_bf16(bf16_of_f32(-most / (6.5f + 0.25f * (float)t)));
    try_scales4(error[0], d[1], d[0], v);
    try_scales4(error[1], d[2], d[1], v);
    for (int t = 0; t < Q4_TRIES; t++) {
        for (int pass = 0; pass < 2 && fabsf(d[pass][t]) > SCALE_MIN; pass++) {
            if (error[pass][t] < best) {
                best = error[pass][t];
                scale = d[pass][t];
            }
        }
    }
    if (scale == 0) return 0;
    const float inv = 1 / scale;
    for (int i = 0; i < GROUP; i++) q[i] = (int8_t)rounded(v[i] * inv, Q4_MIN, Q4_MAX);
    return scale;
}

/* Values are kept with an offset, so that they are not negative: the dot products of processors
 * take one side unsigned. */
static void put_group(uint8_t *group, int row, const int8_t q[GROUP], float scale, enum dtype w) {
    uint16_t h = bf16_of_f32(scale);
    memcpy(group + 2 * row, &h, sizeof(h));
    for (int i = 0; i < GROUP; i++) {
        uint8_t *at = quant_at(group, row, i, w);
        if (w != DTYPE_INT4)
            *at = (uint8_t)(q[i] + QUANT_OFFSET8);
        else
            *at = (uint8_t)(*at | (uint8_t)(q[i] + QUANT_OFFSET4) << (i < GROUP / 2 ? 0 : 4));
    }
}

void panel_pack_quant(void *panel, const float *rows, int n_rows, int k, enum dtype w) {
    memset(panel, 0, panel_bytes(k, w));
    for (int g = 0; g < (int)k_groups(k); g++) {
        uint8_t *group = (uint8_t *)panel + (size_t)g * group_bytes(w);
        int n = k - g * GROUP < GROUP ? k - g * GROUP : GROUP;
        for (int r = 0; r < PANEL_ROWS; r++) {
            float v[GROUP] = {0};
            int8_t q[GROUP];
            if (r < n_rows)
                memcpy(v, rows + (size_t)r * (size_t)k + (size_t)g * GROUP, (size_t)n * sizeof(*v));
            float scale = w != DTYPE_INT4 ? quantise8(q, v) : quantise4(q, v);
            put_group(group, r, q, scale, w);
        }
    }
}

void panel_pack_grid(void *panel, const int8_t *q, const float *scale, int n_rows, int k,
                     enum dtype w) {
    static const int8_t none[GROUP] = {0};
    const size_t groups = k_groups(k);
    memset(panel, 0, panel_bytes(k, w));
    for (size_t g = 0; g < groups; g++) {
        uint8_t *group = (uint8_t *)panel + g * group_bytes(w);
        for (int r = 0; r < PANEL_ROWS; r++) {
            if (r < n_rows)
                put_group(group, r, q + (size_t)r * (size_t)k + g * GROUP,
                          scale[(size_t)r * groups + g], w);
            else
                put_group(group, r, none, 0, w);
        }
    }
}

void panel_row_quant(float *row, const void *panel, int idx, int k, enum dtype w) {
    for (int i = 0; i < k; i++) {
        const uint8_t *group = (const uint8_t *)panel + (size_t)(i / GROUP) * group_bytes(w);
        uint16_t h;
        memcpy(&h, group + 2 * idx, sizeof(h));
        row[i] = f32_of_bf16(h) * (float)quant_value(group, idx, i % GROUP, w);
    }
}

/* A value that is not finite gives a scale that is not: it must not vanish. */
void quantise_row(int16_t q[GROUP], float *scale, int32_t *sum, const float *x, int n, int max) {
    float most = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float inv = most > SCALE_MIN ? (float)max / most : 0;
    *sum = 0;
    for (int i = 0; i < GROUP; i++) {
        float v = i < n ? x[i] * inv : 0;
        bool is = v > (float)(-max - 1) && v < (float)(max + 1);
        finite = finite && is;
        q[i] = (int16_t)(is ? (int)rintf(v) : -max - 1);
        *sum += q[i];
    }
    *scale = !finite ? NAN : inv > 0 ? most / (float)max : 0;
}

uint16_t kv_row_scale(float *inv, float most, bool finite) {
    float d = bf16_up(most / Q8_MAX);
    *inv = finite && d > SCALE_MIN ? 1 / d : 0;
    return !finite ? 0x7fc0 : *inv > 0 ? bf16_of_f32(d) : 0;
}

void x_put_quant(uint8_t *dst, size_t n, size_t r, const int16_t q[GROUP], float scale, int32_t sum,
                 enum dtype w) {
    sum *= w != DTYPE_INT4 ? -QUANT_OFFSET8 : -QUANT_OFFSET4;
    memcpy(dst + 4 * r, &scale, 4);
    memcpy(dst + 4 * (n + r), &sum, 4);
    dst += 8 * n + 4 * r;
    for (int j = 0; j < GROUP; j += 4) {
        if (w != DTYPE_INT4) {
            const int16_t even[2] = {q[j], q[j + 2]}, odd[2] = {q[j + 1], q[j + 3]};
            memcpy(dst + (size_t)j * 2 * n, even, 4);
            memcpy(dst + (size_t)(j * 2 + 4) * n, odd, 4);
        } else {
            const int8_t four[4] = {(int8_t)q[j], (int8_t)q[j + 1], (int8_t)q[j + 2],
                                    (int8_t)q[j + 3]};
            memcpy(dst + (size_t)j * n, four, 4);
        }
    }
}

void x_pack_quant(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                  enum dtype w) {
    const size_t groups = k_groups(k), bytes = quant_x_bytes(x_layout_plain(w));
    for (int t = first; t < end; t += TILE_ROWS) {
        size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        for (size_t g = 0; g < groups; g++) {
            uint8_t *dst = (uint8_t *)xp + ((size_t)t * groups + g * n) * bytes;
            for (size_t r = 0; r < n; r++) {
                int len = k - (int)g * GROUP < GROUP ? k - (int)g * GROUP : GROUP;
                int16_t q[GROUP];
                float scale;
                int32_t sum;
                quantise_row(q, &scale, &sum, x + ((size_t)t + r) * x_stride + g * GROUP, len,
                             quant_x_max(w));
                x_put_quant(dst, n, r, q, scale, sum, w);
            }
        }
    }
}
