/* kernels_rig: what the tests of the kernels share: cmocka, random numbers that are the same in
 * every run, memory as kernels want it, a product. */
#ifndef BATON_TESTS_KERNELS_RIG_H
#define BATON_TESTS_KERNELS_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/engine/half.h"
#include "common/engine/kernels.h"

static uint64_t rng_state = 42;

static inline uint32_t rng_u32(void) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 32);
}

/* From -1 to 1. */
static inline float rng_f32(void) {
    return (float)(int32_t)rng_u32() * 0x1p-31f;
}

static inline void *aligned(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

static inline float *rng_floats(size_t n) {
    float *p = aligned(n * sizeof(float));
    for (size_t i = 0; i < n; i++) p[i] = rng_f32();
    return p;
}

/* k->gemm, and that gemm_once, where there is one, gives the same bits. */
static inline void gemm_both(const struct kernels *k, float *y, size_t y_stride, const void *xp,
                             const void *panels, int m, int dim, int n, enum dtype t) {
    k->gemm(y, y_stride, xp, panels, m, dim, n, t);
    if (k->gemm_once == NULL) return;
    float *once = aligned((size_t)(m * n) * sizeof(float));
    k->gemm_once(once, (size_t)n, xp, panels, m, dim, n, t);
    for (int r = 0; r < m; r++)
        assert_memory_equal(once + r * n, y + (size_t)r * y_stride, (size_t)n * sizeof(float));
    free(once);
}

#endif
