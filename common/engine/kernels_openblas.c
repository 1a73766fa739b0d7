/* kernels_openblas: f32 products by OpenBLAS's sgemm; the only file that knows it. Baseline of the
 * bench and oracle of the tests: OpenBLAS chooses its order of sums by the whole shape, so a row's
 * last bits depend on the rows beside it, and it packs the weights anew at every call. Everything
 * but the product comes from the set it is laid over.
 *
 * One thread a call: our pool splits the columns. Debian's OpenBLAS
 * takes processors it does not know for Haswell, at half the speed of AVX-512;
 * OPENBLAS_CORETYPE=SkylakeX in the environment, set before the program starts, cures that. */
#include <cblas.h>
#include <string.h>
#include "common/base/log.h"
#include "common/engine/kernels.h"

/* A panel is PANEL_ROWS rows as they come, so panels one after the other are the whole matrix,
 * row-major. */
static void panel_pack(void *panel, const float *rows, int n_rows, int k, enum dtype w) {
    memset(panel, 0, panel_bytes(k, w));
    for (size_t r = 0; r < (size_t)n_rows; r++)
        memcpy((float *)panel + r * (panel_bytes(k, w) / sizeof(float) / PANEL_ROWS),
               rows + r * (size_t)k, (size_t)k * sizeof(float));
}

static void panel_row(float *row, const void *panel, int idx, int k, enum dtype w) {
    memcpy(row,
           (const float *)panel + (size_t)idx * (panel_bytes(k, w) / sizeof(float) / PANEL_ROWS),
           (size_t)k * sizeof(float));
}

static void x_pack(void *xp, const float *x, size_t x_stride, int first, int end, int k,
                   enum dtype w) {
    (void)w;
    for (size_t r = (size_t)first; r < (size_t)end; r++)
        memcpy((float *)xp + r * (size_t)k, x + r * x_stride, (size_t)k * sizeof(float));
}

static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w) {
    int w_stride = (int)(panel_bytes(k, w) / sizeof(float) / PANEL_ROWS);
    if (n_rows == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, n_cols, k, 1.0f, panels, w_stride, xp, 1, 0.0f, y,
                    1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_cols, k, 1.0f, xp, k, panels,
                    w_stride, 0.0f, y, (int)y_stride);
}

void kernels_openblas(struct kernels *k) {
    const char *core = openblas_get_corename();
    openblas_set_num_threads(1);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") &&
        (strcmp(core, "Haswell") == 0 || strcmp(core, "Zen") == 0))
        log_warn("engine",
                 "openblas_core=%s on a processor with AVX-512 runs at half speed: set "
                 "OPENBLAS_CORETYPE=SkylakeX",
                 core);
#endif
    log_debug("engine", "openblas_core=%s", core);
    k->name = "openblas";
    k->f32_only = true;
    k->item_panels = 0;
    k->panel_pack = panel_pack;
    k->panel_row = panel_row;
    k->x_pack = x_pack;
    k->gemm = gemm;
    k->gemm_once = NULL;
}
