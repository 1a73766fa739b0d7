/* kernels_panel: the packed layouts shared by all our own kernel sets. Runs while loading and once
 * per activation. */
#include <string.h>
#include "common/engine/half.h"
#include "common/engine/kernels.h"
#include "common/engine/kernels_blocks.h"

static size_t even(int k) {
    return (size_t)(k + (k & 1));
}

/* Column by column, so that the panel is written once from front to back; the rows are sixteen
 * streams of reads. */
void panel_pack_columns(void *panel, const float *rows, int n_rows, int k, enum dtype w) {
    const size_t n = (size_t)n_rows, cols = (size_t)k, step = w == DTYPE_BF16 ? 2 : 1;
    if (dtype_is_quant(w)) {
        panel_pack_quant(panel, rows, n_rows, k, w);
        return;
    }
    if (n_rows < PANEL_ROWS || (k & 1)) memset(panel, 0, panel_bytes(k, w));
    for (size_t i = 0; i < cols; i += step) {
        if (w == DTYPE_F32) {
            float *dst = (float *)panel + i * PANEL_ROWS;
            for (size_t r = 0; r < n; r++) dst[r] = rows[r * cols + i];
        } else {
            uint16_t *dst = (uint16_t *)panel + i * PANEL_ROWS;
            for (size_t r = 0; r < n; r++) {
                dst[2 * r] = bf16_of_f32(rows[r * cols + i]);
                if (i + 1 < cols) dst[2 * r + 1] = bf16_of_f32(rows[r * cols + i + 1]);
            }
        }
    }
}

void panel_row_columns(float *row, const void *panel, int idx, int k, enum dtype w) {
    if (dtype_is_blocks(w)) {
        panel_row_blocks(row, panel, idx, k, w);
    } else if (dtype_is_quant(w)) {
        panel_row_quant(row, panel, idx, k, w);
    } else if (w == DTYPE_BF16) {
        const uint16_t *src = panel;
        for (int i = 0; i < k; i++)
            row[i] = f32_of_bf16(src[((i / 2) * PANEL_ROWS + idx) * 2 + (i & 1)]);
    } else {
        const float *src = panel;
        for (int i = 0; i < k; i++) row[i] = src[(size_t)i * PANEL_ROWS + (size_t)idx];
    }
}

void x_gather_words(void *xp, const void *from, int n_rows, const int *rows, int n, size_t words) {
    for (int i = 0; i < n; i++) {
        const size_t t = (size_t)(rows[i] / TILE_ROWS * TILE_ROWS),
                     u = (size_t)(i / TILE_ROWS * TILE_ROWS);
        const size_t wide = (size_t)n_rows - t < TILE_ROWS ? (size_t)n_rows - t : TILE_ROWS,
                     to_wide = (size_t)n - u < TILE_ROWS ? (size_t)n - u : TILE_ROWS;
        const uint32_t *src = (const uint32_t *)from + t * words + ((size_t)rows[i] - t);
        uint32_t *dst = (uint32_t *)xp + u * words + ((size_t)i - u);
        for (size_t j = 0; j < words; j++) dst[j * to_wide] = src[j * wide];
    }
}

void x_gather_columns(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                      enum dtype w) {
    const size_t words = dtype_is_quant(w) || dtype_is_blocks(w)
                             ? k_groups(k) * quant_x_bytes(w) / sizeof(uint32_t)
                             : (size_t)even(k);
    x_gather_words(xp, from, n_rows, rows, n, words);
}

void x_pack_columns(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                    enum dtype w) {
    for (int t = first; t < end; t += TILE_ROWS) {
        size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        float *dst = (float *)xp + (size_t)t * even(k);
        for (size_t r = 0; r < n; r++) {
            const float *src = x + ((size_t)t + r) * x_stride;
            if (w == DTYPE_BF16) {
                for (size_t i = 0; i < (size_t)k; i++)
                    dst[i * n + r] = f32_of_bf16(bf16_of_f32(src[i]));
            } else {
                for (size_t i = 0; i < (size_t)k; i++) dst[i * n + r] = src[i];
            }
            if (k & 1) dst[(size_t)k * n + r] = 0;
        }
    }
}
