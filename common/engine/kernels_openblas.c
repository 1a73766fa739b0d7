/* kernels_openblas: f32 products by OpenBLAS's sgemm; the only file that knows it. Baseline of the
 * bench and oracle of the tests: OpenBLAS chooses its order of sums by the whole shape, so a row's
 * last bits depend on the rows beside it, and it packs the weights anew at every call. Everything
 * but the product comes from the set it is laid over.
 *
 * The library is opened when the set is asked for, and not before: it starts a thread a core as
 * soon as it is there, each of which asks for 128 MiB until it gets them, however long that takes,
 * and none of which ends before; so a process with little memory would neither rest nor end. One
 * thread a call: our pool splits the columns. Debian's OpenBLAS takes processors it does not know
 * for Haswell, at half the speed of AVX-512. Both are told by the environment, which it reads when
 * it is opened. */
#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/heap.h"
#include "common/base/log.h"
#include "common/engine/kernels.h"

enum { BUFFER_MIB = 128 }; /* of each thread that computes */

static struct {
    __typeof__(&cblas_sgemv) sgemv;
    __typeof__(&cblas_sgemm) sgemm;
    __typeof__(&openblas_get_corename) corename;
    __typeof__(&openblas_set_num_threads) set_num_threads;
    char why[160]; /* it is not there; empty: it is */
} blas;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *find(void *lib, const char *name) {
    void *at = dlsym(lib, name);
    if (at == NULL) snprintf(blas.why, sizeof(blas.why), "libopenblas.so.0 has no %s", name);
    return at;
}

/* Never closed: threads of ours may have buffers in it. */
static void open_library(void) {
    void *room = heap_take((size_t)BUFFER_MIB << 20);
    if (room == NULL) {
        snprintf(blas.why, sizeof(blas.why), "OpenBLAS wants %d MiB a thread", BUFFER_MIB);
        return;
    }
    heap_give(room, (size_t)BUFFER_MIB << 20);
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        snprintf(blas.why, sizeof(blas.why), "%s", dlerror());
        return;
    }
    *(void **)&blas.sgemv = find(lib, "cblas_sgemv");
    *(void **)&blas.sgemm = find(lib, "cblas_sgemm");
    *(void **)&blas.corename = find(lib, "openblas_get_corename");
    *(void **)&blas.set_num_threads = find(lib, "openblas_set_num_threads");
    if (blas.why[0] == 0) blas.set_num_threads(1);
}

void kernels_openblas_environment(void) {
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#endif
}

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

static void x_gather(void *xp, const void *from, int n_rows, const int *rows, int n, int k,
                     enum dtype w) {
    (void)n_rows;
    (void)w;
    for (int i = 0; i < n; i++)
        memcpy((float *)xp + (size_t)i * (size_t)k,
               (const float *)from + (size_t)rows[i] * (size_t)k, (size_t)k * sizeof(float));
}

static void gemm(float *y, size_t y_stride, const void *xp, const void *panels, int n_rows, int k,
                 int n_cols, enum dtype w) {
    int w_stride = (int)(panel_bytes(k, w) / sizeof(float) / PANEL_ROWS);
    if (n_rows == 1)
        blas.sgemv(CblasRowMajor, CblasNoTrans, n_cols, k, 1.0f, panels, w_stride, xp, 1, 0.0f, y,
                   1);
    else
        blas.sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n_rows, n_cols, k, 1.0f, xp, k, panels,
                   w_stride, 0.0f, y, (int)y_stride);
}

enum err kernels_openblas(struct kernels *k, struct errbuf *eb) {
    pthread_once(&once, open_library);
    if (blas.why[0] != 0)
        return err_set(eb, ERR_BAD_CONFIG, "kernels: \"openblas\" is not available: %s", blas.why);
    log_debug("engine", "openblas_core=%s", blas.corename());
    k->name = "openblas";
    k->f32_only = true;
    k->item_panels = 0;
    k->panel_pack = panel_pack;
    k->panel_row = panel_row;
    k->x_pack = x_pack;
    k->x_gather = x_gather;
    k->gemm = gemm;
    k->gemm_once = NULL;
    return ERR_OK;
}
