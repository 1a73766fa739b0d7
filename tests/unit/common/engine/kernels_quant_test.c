/* Goal: int8 and int4 products are the same numbers in every kernel set of our own, and for a row
 * whatever the rows beside it. Method: random weights and activations over awkward shapes, with
 * groups of zeros, outliers and tiny values. Every set must equal the plain C set bit for bit; the
 * plain set must equal sums in double precision over what the packed panels say. */
#include "common/engine/half.h"
#include "common/engine/kernels_grid.h"
#include "tests/unit/common/engine/kernels_rig.h"

static const enum dtype types[] = {DTYPE_INT8, DTYPE_INT4, DTYPE_INT8_NARROW};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

/* Mostly of one size; some groups of zeros, some of tiny and some of large values. */
static float *floats(size_t n) {
    float *p = aligned(n * sizeof(float)), size = 1;
    for (size_t i = 0; i < n; i++) {
        if (i % 29 == 0) {
            uint32_t kind = rng_u32() % 16;
            size = kind == 0 ? 0 : kind == 1 ? 1e-35f : kind == 2 ? 1e5f : 1;
        }
        p[i] = rng_f32() * size;
        if (rng_u32() % 50 == 0) p[i] *= 20;
    }
    return p;
}

static uint8_t *pack(const struct kernels *k, const float *w, int n, int dim, enum dtype t) {
    const size_t pb = panel_bytes(dim, t);
    const int n_panels = (n + PANEL_ROWS - 1) / PANEL_ROWS;
    uint8_t *panels = aligned(pb * (size_t)n_panels);
    memset(panels, 0xa5, pb * (size_t)n_panels);
    for (int p = 0; p < n_panels; p++) {
        int rows = n - p * PANEL_ROWS < PANEL_ROWS ? n - p * PANEL_ROWS : PANEL_ROWS;
        k->panel_pack(panels + (size_t)p * pb, w + (size_t)p * PANEL_ROWS * (size_t)dim, rows, dim,
                      t);
    }
    return panels;
}

/* y f32 [m][n], columns in items of `item` panels; what lies beyond must not be touched. */
static void product(const struct kernels *k, float *y, const float *x, const uint8_t *panels, int m,
                    int n, int dim, enum dtype t, int item) {
    const size_t pb = panel_bytes(dim, t);
    const int n_panels = (n + PANEL_ROWS - 1) / PANEL_ROWS;
    uint8_t *xp = aligned(x_pack_bytes(m, dim));
    for (int r = 0; r < m; r += TILE_ROWS)
        k->x_pack(xp, x, (size_t)dim, r, r + TILE_ROWS < m ? r + TILE_ROWS : m, dim, t);
    for (int p = 0; p < n_panels; p += item) {
        int cols = n - p * PANEL_ROWS < item * PANEL_ROWS ? n - p * PANEL_ROWS : item * PANEL_ROWS;
        gemm_both(k, y + p * PANEL_ROWS, (size_t)n, xp, panels + (size_t)p * pb, m, dim, cols, t);
    }
    free(xp);
}

static void sets_pack_the_same_bytes(void **state) {
    struct kernels ref, k;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int dim = 1; dim < 140; dim += 9) {
        float *w = floats((size_t)(21 * dim));
        for (int t = 0; t < TYPES; t++) {
            uint8_t *want = pack(&ref, w, 21, dim, types[t]);
            for (int i = 0; kernels_at(&k, i); i++) {
                if (k.f32_only) continue;
                uint8_t *got = pack(&k, w, 21, dim, types[t]);
                assert_memory_equal(got, want, 2 * panel_bytes(dim, types[t]));
                free(got);
            }
            free(want);
        }
        free(w);
    }
}

/* Every batch from 1 to 70, odd sizes of k, columns that end inside a panel. */
static void every_batch_equals_the_plain_set(void **state) {
    static const int shapes[][2] = {{70, 33}, {16, 32}, {131, 64}, {1, 1}, {50, 1030}, {64, 351}};
    struct kernels ref, k;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        enum { M_MAX = 70 };
        const int n = shapes[s][0], dim = shapes[s][1];
        float *x = floats((size_t)(M_MAX * dim)), *w = floats((size_t)(n * dim));
        float *want = floats((size_t)(M_MAX * n)), *got = floats((size_t)(M_MAX * n + 1));
        for (int t = 0; t < TYPES; t++) {
            uint8_t *panels = pack(&ref, w, n, dim, types[t]);
            for (int m = 0; m < M_MAX; m++)
                product(&ref, want + m * n, x + m * dim, panels, 1, n, dim, types[t], 3);
            for (int i = 0; kernels_at(&k, i); i++) {
                if (k.f32_only) continue;
                for (int m = 1; m <= M_MAX; m += k.item_panels == 1 && m > 8 ? 13 : 1) {
                    got[m * n] = 12345;
                    product(&k, got, x, panels, m, n, dim, types[t], 1 + m % 4);
                    assert_true(got[m * n] == 12345);
                    if (memcmp(got, want, (size_t)(m * n) * sizeof(float)) != 0)
                        fail_msg("%s %s n=%d k=%d: a batch of %d rows", k.name,
                                 dtype_name(types[t]), n, dim, m);
                }
            }
            free(panels);
        }
        free(x);
        free(w);
        free(want);
        free(got);
    }
}

/* Packed activations are the same bytes as the plain set's, whatever the rows of a tile, also where
 * values are huge, tiny, infinite or no numbers. */
static void sets_pack_activations_to_the_same_bytes(void **state) {
    static const float odd[] = {INFINITY, -INFINITY, NAN, -NAN, 3e38f, -3e38f, 1e-42f, 0x1p-100f};
    static const enum dtype all[] = {DTYPE_INT8, DTYPE_INT4, DTYPE_F32, DTYPE_BF16,
                                     DTYPE_INT8_NARROW};
    struct kernels ref, k;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int i = 1; kernels_at(&k, i); i++) {
        if (k.f32_only || strcmp(k.name, "amx") == 0) continue; /* its layout is its own */
        const bool neon = strncmp(k.name, "neon", 4) == 0,
                   vnni = strcmp(k.name, "avx512vnni") == 0 || strcmp(k.name, "avx512bf16") == 0;
        for (int n = 1; n <= 2 * TILE_ROWS; n++) {
            const int dim = 1 + n * 37 % 150, stride = dim + 3;
            const size_t bytes = x_pack_bytes(n, dim);
            float *x = floats((size_t)(n * stride));
            uint8_t *want = aligned(bytes), *got = aligned(bytes);
            for (int j = 0; j < n; j++)
                if (rng_u32() % 2 == 0) x[rng_u32() % (uint32_t)(n * stride)] = odd[j % 8];
            for (size_t t = 0; t < sizeof(all) / sizeof(all[0]); t++) {
                if ((all[t] == DTYPE_BF16 && k.own_bf16) ||
                    (all[t] == DTYPE_INT8_NARROW && (vnni || neon)) ||
                    (all[t] == DTYPE_INT8 && neon))
                    continue; /* its own as well */
                memset(want, 0x5a, bytes);
                memset(got, 0x5a, bytes);
                ref.x_pack(want, x, (size_t)stride, 0, n, dim, all[t]);
                k.x_pack(got, x, (size_t)stride, 0, n, dim, all[t]);
                if (memcmp(got, want, bytes) != 0)
                    fail_msg("%s %s: %d rows of %d", k.name, dtype_name(all[t]), n, dim);
            }
            free(x);
            free(want);
            free(got);
        }
    }
}

/* So many rows and so large a k that it is cut for the caches. */
static void long_products_equal_the_plain_set(void **state) {
    enum { M = 45, N = 38, K = 7400 };
    struct kernels ref, k;
    float *x = floats(M * K), *w = floats(N * K), *want = floats(M * N), *got = floats(M * N);
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int t = 0; t < TYPES; t++) {
        uint8_t *panels = pack(&ref, w, N, K, types[t]);
        product(&ref, want, x, panels, M, N, K, types[t], 1);
        for (int i = 1; kernels_at(&k, i); i++) {
            if (k.f32_only) continue;
            product(&k, got, x, panels, M, N, K, types[t], 3);
            assert_memory_equal(got, want, M * N * sizeof(float));
        }
        free(panels);
    }
    free(x);
    free(w);
    free(want);
    free(got);
}

/* Groups whose sums are the largest there are, in either half of a pair of 16-bit sums. */
static void largest_sums_stay_exact(void **state) {
    enum { M = 4, K = GROUP };
    static const int least[] = {-QUANT_OFFSET8, -QUANT_OFFSET4, -QUANT_OFFSET8},
                     most[] = {QUANT_OFFSET8 - 1, QUANT_OFFSET4 - 1, QUANT_OFFSET8 - 1};
    float *x = aligned(M * K * sizeof(float)), *got = aligned(M * PANEL_ROWS * sizeof(float));
    struct kernels k;
    (void)state;
    for (int m = 0; m < M; m++)
        for (int i = 0; i < K; i++) x[m * K + i] = (i % 4 < 2 ? m & 1 : m >> 1) != 0 ? -1 : 1;
    for (int t = 0; t < TYPES; t++) {
        const uint16_t one = 0x3f80; /* bf16 */
        uint8_t *panel = aligned(panel_bytes(K, types[t]));
        memset(panel, 0, panel_bytes(K, types[t]));
        for (int r = 0; r < PANEL_ROWS; r++) {
            memcpy(panel + 2 * r, &one, sizeof(one));
            for (int i = 0; i < K; i++) {
                const bool high = (i % 4 < 2 ? r & 1 : r >> 1 & 1) != 0;
                uint8_t *at = quant_at(panel, r, i, types[t]);
                if (types[t] != DTYPE_INT4)
                    *at = high ? 255 : 0;
                else if (high)
                    *at |= i < GROUP / 2 ? 15 : 15 << 4;
            }
        }
        for (int i = 0; kernels_at(&k, i); i++) {
            if (k.f32_only) continue;
            product(&k, got, x, panel, M, PANEL_ROWS, K, types[t], 1);
            for (int m = 0; m < M; m++) {
                for (int r = 0; r < PANEL_ROWS; r++) {
                    const int low = (r & 1) != 0 ? most[t] : least[t],
                              high = (r & 2) != 0 ? most[t] : least[t];
                    const int want = GROUP / 2 * ((m & 1) != 0 ? -low : low) +
                                     GROUP / 2 * (m > 1 ? -high : high);
                    /* the scale of the row is 1 / quant_x_max() rounded */
                    if (fabs(got[m * PANEL_ROWS + r] - want) > 1e-3)
                        fail_msg("%s %s: row %d of W, %d of x: %g, not %d", k.name,
                                 dtype_name(types[t]), r, m, (double)got[m * PANEL_ROWS + r], want);
                }
            }
        }
        free(panel);
    }
    free(x);
    free(got);
}

static void plain_product_is_the_sum(void **state) {
    enum { M = 7, N = 21, K = 75 };
    struct kernels ref;
    float *x = floats(M * K), *w = floats(N * K), *y = floats(M * N), row[K];
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int t = 0; t < TYPES; t++) {
        uint8_t *panels = pack(&ref, w, N, K, types[t]);
        product(&ref, y, x, panels, M, N, K, types[t], 1);
        for (int i = 0; i < M * N; i++) {
            double sum = 0, size = 0;
            ref.panel_row(row, panels + (size_t)(i % N / PANEL_ROWS) * panel_bytes(K, types[t]),
                          i % N % PANEL_ROWS, K, types[t]);
            for (int d = 0; d < K; d += GROUP) {
                int16_t q[GROUP];
                float scale;
                int32_t total;
                int n = K - d < GROUP ? K - d : GROUP;
                quantise_row(q, &scale, &total, x + i / N * K + d, n, quant_x_max(types[t]));
                for (int j = 0; j < n; j++) {
                    sum += (double)scale * q[j] * (double)row[d + j];
                    size += fabs((double)scale * q[j] * (double)row[d + j]);
                }
            }
            assert_true(fabs((double)y[i] - sum) <= size * 4 * 0x1p-24);
        }
        free(panels);
    }
    free(x);
    free(w);
    free(y);
}

/* int8: at most half a step each, and half a bit of it in the scale. Both: the squared error of
 * even numbers is about that of the step. */
static void values_come_back_within_half_a_step(void **state) {
    enum { K = 4 * GROUP + 5, ROUNDS = 200 };
    float row[K];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        float *w = floats(K), *even = floats(K);
        for (int i = 0; i < K; i++) even[i] = rng_f32();
        double error[TYPES] = {0}, size = 0;
        for (int t = 0; t < TYPES; t++) {
            uint8_t *panel = aligned(panel_bytes(K, types[t]));
            panel_pack_quant(panel, w, 1, K, types[t]);
            panel_row_quant(row, panel, 0, K, types[t]);
            for (int i = 0; i < K; i++) {
                float most = 0;
                for (int j = i / GROUP * GROUP; j < K && j < (i / GROUP + 1) * GROUP; j++)
                    most = fabsf(w[j]) > most ? fabsf(w[j]) : most;
                float step = most / (types[t] != DTYPE_INT4 ? 2 * 127 : 7);
                assert_true(fabsf(row[i] - w[i]) <= step * 1.02f + 0x1p-100f * 128);
            }
            panel_pack_quant(panel, even, 1, K, types[t]);
            panel_row_quant(row, panel, 0, K, types[t]);
            for (int i = 0; i < K; i++) {
                error[t] += (double)(row[i] - even[i]) * (double)(row[i] - even[i]);
                size += t == 0 ? (double)even[i] * (double)even[i] : 0;
            }
            for (int r = 1; r < PANEL_ROWS; r++) {
                panel_row_quant(row, panel, r, K, types[t]);
                for (int i = 0; i < K; i++) assert_true(row[i] == 0);
            }
            free(panel);
        }
        assert_true(error[0] <= size * 3e-5 && error[2] == error[0]);
        assert_true(error[1] <= size * 7e-3);
        free(w);
        free(even);
    }
}

/* docs/decisions/2026-11-21-quantised-weights.md: of the scales from largest / 6.5 to largest /
 * 8.25 none is nearer than the one that was taken. Also where single values are far out. */
static void int4_takes_the_nearest_scale(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        float *w = floats(GROUP), row[GROUP], most = 0;
        double taken = 0;
        uint8_t *panel = aligned(panel_bytes(GROUP, DTYPE_INT4));
        panel_pack_quant(panel, w, 1, GROUP, DTYPE_INT4);
        panel_row_quant(row, panel, 0, GROUP, DTYPE_INT4);
        for (int i = 0; i < GROUP; i++) {
            most = fabsf(w[i]) > fabsf(most) ? w[i] : most;
            taken += ((double)row[i] - w[i]) * ((double)row[i] - w[i]);
        }
        for (int t = 0; t < 8 && fabsf(most) > 0x1p-90f; t++) {
            const double d = f32_of_bf16(bf16_of_f32(-most / (6.5f + 0.25f * (float)t)));
            double error = 0;
            for (int i = 0; i < GROUP; i++) {
                const double q = fmin(7, fmax(-8, rint(w[i] / d)));
                error += (w[i] - d * q) * (w[i] - d * q);
            }
            if (taken > error * (1 + 1e-5)) fail_msg("scale %d is nearer: %g, %g", t, error, taken);
        }
        free(panel);
        free(w);
    }
}

static void activations_quantise_alike(void **state) {
    enum { M = 13, K = 77 };
    struct kernels k;
    float *x = floats(M * K);
    int16_t q[GROUP];
    float scale;
    int32_t sum;
    (void)state;
    for (int g = 0; g < M * K / GROUP; g++) {
        const float *v = x + g * GROUP;
        const int max = quant_x_max(types[g % 2]);
        float most = 0;
        int total = 0;
        quantise_row(q, &scale, &sum, v, GROUP, max);
        for (int i = 0; i < GROUP; i++)
            most = fabsf(v[i]) > most ? fabsf(v[i]) : most, total += q[i];
        assert_int_equal(total, sum);
        for (int i = 0; i < GROUP; i++) {
            assert_in_range(q[i] + max, 0, 2 * max);
            assert_true(fabsf(scale * q[i] - v[i]) <= most / (float)max * 0.51f + 0x1p-100f);
        }
    }
    /* What is not finite stays visible in every set. */
    for (int i = 0; kernels_at(&k, i); i++) {
        if (k.f32_only) continue;
        for (int bad = 0; bad < 2; bad++) {
            float y[PANEL_ROWS], was = x[40];
            uint8_t *panels = pack(&k, x, M, K, DTYPE_INT8);
            x[40] = bad == 0 ? NAN : -INFINITY;
            product(&k, y, x, panels, 1, PANEL_ROWS, K, DTYPE_INT8, 1);
            for (int j = 0; j < M; j++) assert_true(isnan(y[j]));
            x[40] = was;
            free(panels);
        }
    }
    free(x);
}

/* Integers from the least to the largest, scales of either sign: what comes back is theirs, and all
 * sets multiply with it alike. */
static void integers_stay(void **state) {
    enum { N = 21, K = 96, M = 7 };
    static const int least[] = {-128, -8, -128}, most[] = {127, 7, 127};
    struct kernels ref, k;
    float row[K], *x = floats(M * K), *want = floats(M * N), *got = floats(M * N);
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int t = 0; t < TYPES; t++) {
        const size_t pb = panel_bytes(K, types[t]);
        uint8_t *panels = aligned(2 * pb);
        int8_t q[N * K];
        float scale[N * K / GROUP];
        for (int i = 0; i < N * K; i++)
            q[i] = (int8_t)(least[t] + (int)(rng_u32() % (uint32_t)(most[t] - least[t] + 1)));
        for (int i = 0; i < N * K / GROUP; i++) scale[i] = i % 9 == 0 ? 0 : rng_f32() / 64;
        for (int p = 0; p < 2; p++)
            panel_pack_grid(panels + (size_t)p * pb, q + p * PANEL_ROWS * K,
                            scale + p * PANEL_ROWS * K / GROUP,
                            p == 0 ? PANEL_ROWS : N - PANEL_ROWS, K, types[t]);
        for (int r = 0; r < 2 * PANEL_ROWS; r++) {
            panel_row_columns(row, panels + (size_t)(r / PANEL_ROWS) * pb, r % PANEL_ROWS, K,
                              types[t]);
            for (int i = 0; i < K; i++) {
                const int at = r * K + i;
                const float value =
                    r < N ? (float)q[at] * f32_of_bf16(bf16_of_f32(scale[at / GROUP])) : 0;
                assert_true(row[i] == value);
            }
        }
        product(&ref, want, x, panels, M, N, K, types[t], 1);
        for (int i = 0; kernels_at(&k, i); i++) {
            if (k.f32_only) continue;
            product(&k, got, x, panels, M, N, K, types[t], 2);
            assert_memory_equal(got, want, M * N * sizeof(float));
        }
        free(panels);
    }
    free(x);
    free(want);
    free(got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_pack_the_same_bytes),
        cmocka_unit_test(every_batch_equals_the_plain_set),
        cmocka_unit_test(sets_pack_activations_to_the_same_bytes),
        cmocka_unit_test(long_products_equal_the_plain_set),
        cmocka_unit_test(largest_sums_stay_exact),
        cmocka_unit_test(plain_product_is_the_sum),
        cmocka_unit_test(values_come_back_within_half_a_step),
        cmocka_unit_test(int4_takes_the_nearest_scale),
        cmocka_unit_test(activations_quantise_alike),
        cmocka_unit_test(integers_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
