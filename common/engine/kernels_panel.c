/* kernels_panel: the packed layouts shared by all our own kernel sets. Runs while loading and once per activation. */
#include <string.h>
#include "common/engine/half.h"
#include "common/engine/kernels.h"

static size_t even(int k) {
    return (size_t)(k + (k & 1));
}

void panel_pack_columns(void *panel, const float *rows, int n_rows, int k, enum dtype w) {
    memset(panel, 0, panel_bytes(k, w));
    for (int r = 0; r < n_rows; r++) {
        const float *src = rows + (size_t)r * (size_t)k;
        if (w == DTYPE_BF16) {
            uint16_t *dst = panel;
            for (int i = 0; i < k; i++) dst[((i / 2) * PANEL_ROWS + r) * 2 + (i & 1)] = bf16_of_f32(src[i]);
        } else {
            float *dst = panel;
            for (int i = 0; i < k; i++) dst[(size_t)i * PANEL_ROWS + (size_t)r] = src[i];
        }
    }
}

void panel_row_columns(float *row, const void *panel, int idx, int k, enum dtype w) {
    if (w == DTYPE_BF16) {
        const uint16_t *src = panel;
        for (int i = 0; i < k; i++) row[i] = f32_of_bf16(src[((i / 2) * PANEL_ROWS + idx) * 2 + (i & 1)]);
    } else {
        const float *src = panel;
        for (int i = 0; i < k; i++) row[i] = src[(size_t)i * PANEL_ROWS + (size_t)idx];
    }
}

void x_pack_columns(void *xp, const float *x, size_t x_stride, int first, int end, int k, enum dtype w) {
    for (int t = first; t < end; t += TILE_ROWS) {
        size_t n = (size_t)(end - t < TILE_ROWS ? end - t : TILE_ROWS);
        float *dst = (float *)xp + (size_t)t * even(k);
        for (size_t r = 0; r < n; r++) {
            const float *src = x + ((size_t)t + r) * x_stride;
            if (w == DTYPE_BF16) {
                for (size_t i = 0; i < (size_t)k; i++) dst[i * n + r] = f32_of_bf16(bf16_of_f32(src[i]));
            } else {
                for (size_t i = 0; i < (size_t)k; i++) dst[i * n + r] = src[i];
            }
            if (k & 1) dst[(size_t)k * n + r] = 0;
        }
    }
}
