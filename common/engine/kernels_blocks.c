/* kernels_blocks: packing block formats into panels, and reading them back, value by value. The
 * packed bytes are the same whatever kernel set and number of threads. */
#include "common/engine/kernels_blocks.h"

#include <string.h>
#include "common/engine/half.h"

const int8_t *block_codes(enum dtype w) {
    return w == DTYPE_MXFP4 ? tensor_codes_fp4 : tensor_codes_iq4;
}

static bool has_least(enum dtype w) {
    return w == DTYPE_Q4_K || w == DTYPE_Q5_K;
}

static bool has_unit_scales(enum dtype w) {
    return w != DTYPE_IQ4_NL && w != DTYPE_MXFP4;
}

/* Where the scale of unit u of a row lies; its minimum is PANEL_ROWS behind it. */
static size_t scale_at(int row, int u, enum dtype w) {
    const int head = has_least(w) ? 4 : 2, each = has_least(w) ? 2 : 1;
    return (size_t)((head + each * u) * PANEL_ROWS + row);
}

/* Where value i of a row has its lower bits; *high: its others. */
static size_t value_at(struct block_format f, int row, int i, size_t *high) {
    const int u = i / f.unit, j = i % f.unit;
    const size_t unit = (size_t)(f.head + u * block_unit_bytes(f)), lane = (size_t)row * 4;
    *high = unit + (size_t)f.unit * PANEL_ROWS / 2 + lane + (size_t)(j % 4);
    return unit + (size_t)(j / 8) * PANEL_ROWS * 4 + lane + (size_t)(j % 4);
}

static void put_head(uint8_t *block, const struct block_parts *parts, int row, enum dtype w) {
    const struct block_format f = block_format(w);
    if (w == DTYPE_MXFP4)
        block[row] = (uint8_t)parts->d;
    else
        memcpy(block + 2 * row, &parts->d, sizeof(parts->d));
    if (has_least(w)) memcpy(block + 2 * (PANEL_ROWS + row), &parts->least, sizeof(parts->least));
    for (int u = 0; has_unit_scales(w) && u < f.k / f.unit; u++) {
        block[scale_at(row, u, w)] = parts->scales[u];
        if (has_least(w)) block[scale_at(row, u, w) + PANEL_ROWS] = parts->mins[u];
    }
}

void panel_put_block(void *panel, const struct block_parts *parts, int row, int idx, enum dtype w) {
    const struct block_format f = block_format(w);
    uint8_t *block = (uint8_t *)panel + (size_t)idx * (size_t)block_bytes(f);
    put_head(block, parts, row, w);
    for (int i = 0; i < f.k; i++) {
        size_t high;
        uint8_t *low = block + value_at(f, row, i, &high);
        *low = (uint8_t)(*low | (parts->q[i] & 15) << (i / 4 % 2 * 4));
        if (f.high > 0)
            block[high] = (uint8_t)(block[high] | (parts->q[i] >> 4) << (i % f.unit / 4 * f.high));
    }
}

float block_scale(const uint8_t *block, int row, int u, enum dtype w) {
    uint16_t d;
    if (w == DTYPE_MXFP4) return e8m0_half(block[row]);
    memcpy(&d, block + 2 * row, sizeof(d));
    if (!has_unit_scales(w)) return f32_of_f16(d);
    const uint8_t s = block[scale_at(row, u, w)];
    return f32_of_f16(d) * (has_least(w) ? (float)s : (float)(int8_t)s);
}

float block_least(const uint8_t *block, int row, int u, enum dtype w) {
    uint16_t d;
    if (!has_least(w)) return 0;
    memcpy(&d, block + 2 * (PANEL_ROWS + row), sizeof(d));
    return f32_of_f16(d) * (float)block[scale_at(row, u, w) + PANEL_ROWS];
}

int block_value(const uint8_t *block, int row, int i, enum dtype w) {
    const struct block_format f = block_format(w);
    size_t high;
    int q = block[value_at(f, row, i, &high)] >> (i / 4 % 2 * 4) & 15;
    if (f.high > 0) q |= (block[high] >> (i % f.unit / 4 * f.high) & ((1 << f.high) - 1)) << 4;
    if (has_least(w)) return q;
    return w == DTYPE_Q6_K ? q - 32 : block_codes(w)[q];
}

void panel_row_blocks(float *row, const void *panel, int idx, int k, enum dtype w) {
    const struct block_format f = block_format(w);
    const uint8_t *block = panel;
    for (int at = 0; at < k; at += f.k, block += block_bytes(f)) {
        for (int u = 0; u < f.k / f.unit; u++) {
            const float scale = block_scale(block, idx, u, w),
                        least = block_least(block, idx, u, w);
            float *to = row + at + u * f.unit;
            for (int i = 0; i < f.unit; i++) {
                to[i] = scale * (float)block_value(block, idx, u * f.unit + i, w);
                if (has_least(w)) to[i] -= least;
            }
        }
    }
}

void x_put_blocks(uint8_t *dst, size_t n, size_t r, const int16_t q[GROUP], float scale,
                  int32_t sum, const int32_t words[2]) {
    const float scaled = scale * (float)sum;
    memcpy(dst + 4 * r, &scale, 4);
    memcpy(dst + 4 * (n + r), &scaled, 4);
    memcpy(dst + 4 * (2 * n + r), &words[0], 4);
    memcpy(dst + 4 * (3 * n + r), &words[1], 4);
    dst += 16 * n + 4 * r;
    for (size_t j = 0; j < GROUP; j += 4) {
        const int8_t four[4] = {(int8_t)q[j], (int8_t)q[j + 1], (int8_t)q[j + 2], (int8_t)q[j + 3]};
        memcpy(dst + j * n, four, 4);
    }
}

void x_pack_blocks(void *xp, const float *x, size_t x_stride, int first, int end, int k) {
    static const int32_t none[2] = {0};
    const size_t groups = k_groups(k), bytes = quant_x_bytes(DTYPE_Q4_K);
    for (int t = first; t < end; t += TILE_ROWS) {
        const size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        for (size_t g = 0; g < groups; g++) {
            uint8_t *dst = (uint8_t *)xp + ((size_t)t * groups + g * n) * bytes;
            for (size_t r = 0; r < n; r++) {
                int16_t q[GROUP];
                float scale;
                int32_t sum;
                quantise_row(q, &scale, &sum, x + ((size_t)t + r) * x_stride + g * GROUP, GROUP,
                             quant_x_max(DTYPE_Q4_K));
                x_put_blocks(dst, n, r, q, scale, sum, none);
            }
        }
    }
}
