/* Goal: the bf16 products of the set "amx" are, bit for bit, the sum that is documented for the
 * instruction, at every number of rows and at every edge. Method: the documented sum in plain C,
 * with denormals among the numbers, over 1 to 70 rows, k and columns that end inside a tile, k long
 * enough to be cut for the cache; memory beside the result must stay as it was. Intel documents two
 * orders; a processor must follow one of them throughout. Without AMX the test runs in the binary
 * that emulates it (tests/unit/emulated/). */
#include "tests/unit/common/engine/kernels_rig.h"

enum { BLOCK_K = 32 };
enum order {
    EVEN_AND_ODD_APART, /* SDM volume 2: over a block of k, then added to the accumulator */
    ONE_BY_ONE,         /* Intrinsics Guide: each product to the accumulator */
    ORDERS
};

/* Some so small that a product, or the number itself, is a denormal. */
static float *floats(size_t n) {
    float *p = aligned(n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        const uint32_t kind = rng_u32() % 40;
        p[i] = rng_f32() * (kind == 0 ? 0x1p-70f : kind == 1 ? 0x1p-130f : 1.0f);
    }
    return p;
}

static bool find_amx(struct kernels *k) {
    return kernels_find(k, "amx", NULL) == ERR_OK;
}

static float flushed(float v) {
    return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v;
}

static float one(const float *x, const float *w, int k, enum order order) {
    float acc = 0;
    for (int b = 0; b < k; b += BLOCK_K) {
        float part[2] = {0};
        for (int i = b; i < b + BLOCK_K; i++) {
            const float a = i < k ? flushed(f32_of_bf16(bf16_of_f32(x[i]))) : 0;
            const float c = i < k ? flushed(f32_of_bf16(bf16_of_f32(w[i]))) : 0;
            if (order == ONE_BY_ONE)
                acc = flushed(fmaf(a, c, acc));
            else
                part[i % 2] = flushed(fmaf(a, c, part[i % 2]));
        }
        if (order == EVEN_AND_ODD_APART) acc = flushed(acc + flushed(part[0] + part[1]));
    }
    return acc;
}

/* Clears what the product of this shape does not equal. */
static void check(const struct kernels *kn, int m, int n, int k, bool holds[ORDERS]) {
    enum { BESIDE = 5 };
    const int n_panels = (n + PANEL_ROWS - 1) / PANEL_ROWS;
    const size_t stride = (size_t)n + BESIDE, pb = panel_bytes(k, DTYPE_BF16);
    float *x = floats((size_t)(m * k)), *w = floats((size_t)(n * k));
    float *y = aligned((size_t)m * stride * sizeof(float));
    uint8_t *panels = aligned((size_t)n_panels * pb), *xp = aligned(x_pack_bytes(m, k));
    for (int p = 0; p < n_panels; p++) {
        const int rows = n - p * PANEL_ROWS < PANEL_ROWS ? n - p * PANEL_ROWS : PANEL_ROWS;
        kn->panel_pack(panels + (size_t)p * pb, w + (size_t)p * PANEL_ROWS * (size_t)k, rows, k,
                       DTYPE_BF16);
    }
    memset(xp, 0xff, x_pack_bytes(m, k)); /* NaN, where it is taken by mistake */
    for (int r = 0; r < m; r += TILE_ROWS)
        kn->x_pack(xp, x, (size_t)k, r, r + TILE_ROWS < m ? r + TILE_ROWS : m, k, DTYPE_BF16);
    for (size_t i = 0; i < (size_t)m * stride; i++) y[i] = -7;
    kn->gemm(y, stride, xp, panels, m, k, n, DTYPE_BF16);
    for (int r = 0; r < m; r++) {
        for (int j = 0; j < n; j++) {
            const float got = y[(size_t)r * stride + (size_t)j];
            for (enum order o = 0; o < ORDERS; o++) {
                const float want = one(x + r * k, w + j * k, k, o);
                holds[o] = holds[o] && got == want;
            }
        }
        for (size_t j = (size_t)n; j < stride; j++) assert_true(y[(size_t)r * stride + j] == -7);
    }
    if (!holds[EVEN_AND_ODD_APART] && !holds[ONE_BY_ONE])
        fail_msg("m=%d n=%d k=%d: neither order that is documented", m, n, k);
    free(x);
    free(w);
    free(y);
    free(panels);
    free(xp);
}

static void products_are_the_documented_sum(void **state) {
    static const int cols[] = {1, 16, 15, 17, 32, 33, 64, 70},
                     ks[] = {1, 2, 31, 32, 33, 62, 64, 65, 97};
    struct kernels kn;
    bool holds[ORDERS] = {true, true};
    (void)state;
    if (!find_amx(&kn)) skip();
    for (int m = 1; m <= 70; m++) {
        for (int i = 0; i < 3; i++) {
            const int n = cols[(m + 3 * i) % 8], k = ks[(m + i) % 9];
            check(&kn, m, n, k, holds);
        }
    }
    check(&kn, 3, 130, 1100, holds);
    check(&kn, 33, 20, 545, holds);
    check(&kn, 96, 48, 1057, holds);
}

/* Quantised: the rows that decide between tiles and vectors give one set of bits. */
static void few_and_many_rows_agree(void **state) {
    enum { M = 40, N = 37, K = 32 * 35 + 9 };
    static const enum dtype types[] = {DTYPE_INT8, DTYPE_INT4};
    struct kernels kn;
    (void)state;
    if (!find_amx(&kn)) skip();
    float *x = floats(M * K), *w = floats(N * K), *alone = floats(M * N), *y = floats(M * N);
    uint8_t *xp = aligned(x_pack_bytes(M, K));
    for (int t = 0; t < 2; t++) {
        const size_t pb = panel_bytes(K, types[t]);
        uint8_t *panels = aligned(3 * pb);
        for (int p = 0; p < 3; p++)
            kn.panel_pack(panels + (size_t)p * pb, w + p * PANEL_ROWS * K,
                          p == 2 ? N - 2 * PANEL_ROWS : PANEL_ROWS, K, types[t]);
        for (int r = 0; r < M; r++) {
            kn.x_pack(xp, x + r * K, K, 0, 1, K, types[t]);
            kn.gemm(alone + r * N, N, xp, panels, 1, K, N, types[t]);
        }
        for (int m = 1; m <= M; m++) {
            memset(xp, 0xff, x_pack_bytes(m, K));
            kn.x_pack(xp, x, K, 0, m, K, types[t]); /* all rows in one call */
            kn.gemm(y, N, xp, panels, m, K, N, types[t]);
            assert_memory_equal(y, alone, (size_t)(m * N) * sizeof(float));
        }
        free(panels);
    }
    free(x);
    free(w);
    free(alone);
    free(y);
    free(xp);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_documented_sum),
        cmocka_unit_test(few_and_many_rows_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
