/* Goal: rows gathered from a packing give the products that the same rows packed by themselves
 * give, in every kernel set and for every type of weights. Method: random rows, packed all together
 * and picked upwards at random, over counts on both sides of a tile; every product bit for bit. */
#include "tests/unit/common/engine/kernels_rig.h"

enum { N = 37, ROWS_MAX = 40 };

/* Panels of N rows of k. */
static uint8_t *make_panels(const struct kernels *kn, int k, enum dtype w) {
    const size_t pb = panel_bytes(k, w);
    const int n_panels = (N + PANEL_ROWS - 1) / PANEL_ROWS;
    uint8_t *panels = aligned((size_t)n_panels * pb);
    if (w == DTYPE_IQ4_NL) { /* f16 scales of 1, then codes */
        for (size_t i = 0; i < (size_t)n_panels * pb; i++) {
            const size_t at = i % pb % (size_t)block_bytes(block_format(w));
            panels[i] = at < 2 * PANEL_ROWS ? (at % 2 ? 0x3c : 0) : (uint8_t)rng_u32();
        }
        return panels;
    }
    float *rows = rng_floats((size_t)PANEL_ROWS * (size_t)k);
    for (int p = 0; p < n_panels; p++)
        kn->panel_pack(panels + (size_t)p * pb, rows,
                       p + 1 < n_panels ? PANEL_ROWS : N % PANEL_ROWS, k, w);
    free(rows);
    return panels;
}

/* As the engine packs: a tile at a time. */
static uint8_t *pack(const struct kernels *kn, const float *x, int n, int k, enum dtype w) {
    uint8_t *xp = aligned(x_pack_bytes(n, k));
    memset(xp, 0xff, x_pack_bytes(n, k));
    for (int r = 0; r < n; r += TILE_ROWS)
        kn->x_pack(xp, x, (size_t)k, r, r + TILE_ROWS < n ? r + TILE_ROWS : n, k, w);
    return xp;
}

static void check(const struct kernels *kn, const uint8_t *panels, int n_rows, int n, int k,
                  enum dtype w) {
    float *x = rng_floats((size_t)n_rows * (size_t)k), *picked = aligned((size_t)(n * k) * 4),
          *want = aligned((size_t)(n * N) * 4), *got = aligned((size_t)(n * N) * 4);
    int rows[ROWS_MAX], at = 0;
    for (int i = 0; i < n; i++) { /* upwards, and so that all n find a place */
        const int spare = n_rows - at - (n - i);
        at += spare > 0 ? (int)(rng_u32() % (uint32_t)(spare + 1)) : 0;
        memcpy(picked + (size_t)(i * k), x + (size_t)at * (size_t)k, (size_t)k * sizeof(float));
        rows[i] = at++;
    }
    uint8_t *all = pack(kn, x, n_rows, k, w), *alone = pack(kn, picked, n, k, w),
            *gathered = aligned(x_pack_bytes(n, k));
    memset(gathered, 0xff, x_pack_bytes(n, k)); /* NaN, where it is taken by mistake */
    kn->x_gather(gathered, all, n_rows, rows, n, k, w);
    kn->gemm(want, N, alone, panels, n, k, N, w);
    kn->gemm(got, N, gathered, panels, n, k, N, w);
    assert_memory_equal(got, want, (size_t)(n * N) * sizeof(float));
    void *const made[] = {x, picked, want, got, all, alone, gathered};
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) free(made[i]);
}

static void gathered_rows_are_packed_rows(void **state) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_INT8, DTYPE_INT4, DTYPE_IQ4_NL};
    static const int counts[] = {1, 2, 5, 6, 7, 12, 16, 17, 23, ROWS_MAX};
    struct kernels kn;
    int n_sets = 0;
    (void)state;
    for (; kernels_at(&kn, n_sets); n_sets++) {
        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
            if (kn.f32_only && types[t] != DTYPE_F32) continue;
            for (int k = types[t] == DTYPE_IQ4_NL ? 32 : 7; k < 330; k += k < 32 ? 94 : 224) {
                uint8_t *panels = make_panels(&kn, k, types[t]);
                for (int i = 0; i < 10; i++)
                    for (int j = 0; j <= i; j++)
                        check(&kn, panels, counts[i], counts[j], k, types[t]);
                free(panels);
            }
        }
    }
    assert_true(n_sets > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gathered_rows_are_packed_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
