/* Goal: panels of GGUF's block formats hold every value of the file, to the bit, in bytes that are
 * those of the file within 6%; and products with them are the same numbers in every kernel set of
 * our own, for a row whatever the rows beside it. Method: blocks of random bytes under scales of
 * all sizes, read back by the panels and by tensor_type.h; random and extreme activations over
 * awkward shapes. Every set must equal the plain C set bit for bit; the plain set must equal sums
 * in double precision. */
#include "common/engine/kernels_blocks.h"
#include "tests/unit/common/engine/kernels_rig.h"

static const char *const names[] = {"Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
enum { N_TYPES = sizeof(names) / sizeof(names[0]) };

struct blocks {
    const struct tensor_type *type;
    enum dtype w;
    int n, k;
    uint8_t *file, *panels;
};

/* Where a block's f16 scales stand: [0] the scale, [1] the minimum's. */
static int f16_places(const char *name, int at[2]) {
    at[0] = strcmp(name, "Q6_K") == 0 ? 208 : 0;
    at[1] = 2;
    return strcmp(name, "MXFP4") == 0                               ? 0
           : strcmp(name, "Q4_K") == 0 || strcmp(name, "Q5_K") == 0 ? 2
                                                                    : 1;
}

static uint16_t f16_bits(float f) { /* normal numbers */
    const uint32_t u = bits_of_f32(f);
    return (uint16_t)((u >> 16 & 0x8000) | (((u >> 23 & 255) - 112) << 10) | (u >> 13 & 0x3ff));
}

/* wild: scales of all sizes, denormals and negative ones too; else about 1 / 100. */
static void make_file(struct blocks *b, bool wild) {
    const int bytes = b->type->bytes;
    for (uint8_t *at = b->file; at < b->file + (size_t)b->n * tensor_row_bytes(b->type, b->k);
         at += bytes) {
        int places[2];
        for (int i = 0; i < bytes; i++) at[i] = (uint8_t)rng_u32();
        for (int i = f16_places(b->type->name, places) - 1; i >= 0; i--) {
            uint16_t h = f16_bits(0.01f + 0.01f * rng_f32() * rng_f32());
            if (wild) h = (uint16_t)(rng_u32() % 3 == 0 ? rng_u32() & 0x83ff : rng_u32() & 0xbbff);
            memcpy(at + places[i], &h, sizeof(h));
        }
        if (b->w == DTYPE_MXFP4)
            at[0] = (uint8_t)(wild ? rng_u32() % 4 == 0 ? rng_u32() % 3 : rng_u32() % 200
                                   : 118 + rng_u32() % 4);
    }
}

static struct blocks make(int type, int n, int k, bool wild) {
    struct blocks b = {.type = tensor_type_find(names[type]), .n = n, .k = k};
    const size_t pb = panel_bytes(k, b.type->own),
                 panels = (size_t)(n + PANEL_ROWS - 1) / PANEL_ROWS;
    b.w = b.type->own;
    b.file = aligned((size_t)n * tensor_row_bytes(b.type, k));
    b.panels = aligned(pb * panels);
    memset(b.panels, 0, pb * panels);
    make_file(&b, wild);
    for (int r = 0; r < n; r++) {
        const uint8_t *row = b.file + (size_t)r * tensor_row_bytes(b.type, k);
        for (int i = 0; i < k / b.type->elements; i++) {
            struct block_parts parts;
            b.type->parts(&parts, row + i * b.type->bytes);
            panel_put_block(b.panels + (size_t)(r / PANEL_ROWS) * pb, &parts, r % PANEL_ROWS, i,
                            b.w);
        }
    }
    return b;
}

static void give(struct blocks *b) {
    free(b->file);
    free(b->panels);
}

static int short_k(int type) {
    return tensor_type_find(names[type])->elements == 32 ? 96 : 512;
}

/* Mostly of one size; groups of zeros, of tiny and of large values, single ones far out. */
static float *activations(size_t n) {
    float *p = aligned(n * sizeof(float)), size = 1;
    for (size_t i = 0; i < n; i++) {
        if (i % 29 == 0) {
            const uint32_t kind = rng_u32() % 16;
            size = kind == 0 ? 0 : kind == 1 ? 1e-35f : kind == 2 ? 1e5f : 1;
        }
        p[i] = rng_f32() * size * (rng_u32() % 50 == 0 ? 20 : 1);
    }
    return p;
}

/* y f32 [m][n], columns in items of `item` panels. */
static void product(const struct kernels *kn, float *y, const float *x, const struct blocks *b,
                    int m, int item) {
    const int n_panels = (b->n + PANEL_ROWS - 1) / PANEL_ROWS;
    uint8_t *xp = aligned(x_pack_bytes(m, b->k));
    for (int r = 0; r < m; r += TILE_ROWS)
        kn->x_pack(xp, x, (size_t)b->k, r, r + TILE_ROWS < m ? r + TILE_ROWS : m, b->k,
                   x_dtype(b->w));
    for (int p = 0; p < n_panels; p += item) {
        const int left = b->n - p * PANEL_ROWS,
                  cols = left < item * PANEL_ROWS ? left : item * PANEL_ROWS;
        gemm_both(kn, y + p * PANEL_ROWS, (size_t)b->n, xp,
                  b->panels + (size_t)p * panel_bytes(b->k, b->w), m, b->k, cols, b->w);
    }
    free(xp);
}

static void panels_hold_the_values_of_the_file(void **state) {
    struct kernels kn;
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        for (int round = 0; round < 20; round++) {
            struct blocks b = make(t, 21, short_k(t), round > 0);
            const int k = b.k;
            float *want = aligned((size_t)k * 21 * sizeof(float)),
                  *got = aligned((size_t)k * sizeof(float));
            b.type->to_f32(want, b.file, (size_t)(21 * k / b.type->elements));
            for (int r = 0; r < 2 * PANEL_ROWS; r++) {
                const uint8_t *panel = b.panels + (size_t)(r / PANEL_ROWS) * panel_bytes(k, b.w);
                for (int i = 0; kernels_at(&kn, i); i++) {
                    if (kn.f32_only) continue;
                    memset(got, 0xa5, (size_t)k * sizeof(float));
                    kn.panel_row(got, panel, r % PANEL_ROWS, k, b.w);
                    for (int j = 0; j < k; j++) {
                        if (r >= 21)
                            assert_true(got[j] == 0);
                        else if (memcmp(&got[j], &want[r * k + j], 4) != 0)
                            fail_msg("%s: row %d, value %d is %g, not %g", names[t], r, j,
                                     (double)got[j], (double)want[r * k + j]);
                    }
                }
            }
            free(want);
            free(got);
            give(&b);
        }
    }
}

static void panels_take_the_bytes_of_the_file(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        const struct tensor_type *type = tensor_type_find(names[t]);
        const double file = PANEL_ROWS * (double)tensor_row_bytes(type, 2048);
        assert_true((double)panel_bytes(2048, type->own) <= file * 1.06);
    }
}

/* Every batch from 1 to 40, columns that end inside a panel, one to four panels in an item. */
static void every_batch_equals_the_plain_set(void **state) {
    enum { M_MAX = 40 };
    struct kernels ref, kn;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int t = 0; t < N_TYPES; t++) {
        for (int shape = 0; shape < 2; shape++) {
            const int n = shape == 0 ? 70 : 33, k = shape == 0 ? short_k(t) : 1536;
            struct blocks b = make(t, n, k, shape == 0);
            float *x = activations((size_t)(M_MAX * k)), *want = activations((size_t)(M_MAX * n)),
                  *got = activations((size_t)(M_MAX * n + 1));
            for (int m = 0; m < M_MAX; m++) product(&ref, want + m * n, x + m * k, &b, 1, 3);
            for (int i = 0; kernels_at(&kn, i); i++) {
                if (kn.f32_only) continue;
                for (int m = 1; m <= M_MAX; m += m < 14 ? 1 : 13) {
                    got[m * n] = 12345;
                    product(&kn, got, x, &b, m, 1 + m % 4);
                    assert_true(got[m * n] == 12345);
                    if (memcmp(got, want, (size_t)(m * n) * sizeof(float)) != 0)
                        fail_msg("%s %s n=%d k=%d: a batch of %d rows", kn.name, names[t], n, k, m);
                }
            }
            free(x);
            free(want);
            free(got);
            give(&b);
        }
    }
}

/* Values and activations whose sums are the largest there are, of either sign, in either half of a
 * pair of 16-bit sums. */
static void largest_sums_stay_exact(void **state) {
    enum { M = 8, K = 256 };
    struct kernels ref, kn;
    float *x = aligned(M * K * sizeof(float)), want[M * PANEL_ROWS], got[M * PANEL_ROWS];
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int m = 0; m < M; m++)
        for (int i = 0; i < K; i++)
            x[m * K + i] = (i % 4 < 2 ? m & 1 : m >> 1 & 1) != 0 && (m < 4 || i % 32 < 16) ? -1 : 1;
    for (int t = 0; t < N_TYPES; t++) {
        struct blocks b = {.type = tensor_type_find(names[t]), .n = PANEL_ROWS, .k = K};
        struct block_parts parts = {.d = 0x3c00, .least = 0x3c00};
        b.w = b.type->own;
        b.panels = aligned(panel_bytes(K, b.w));
        memset(b.panels, 0, panel_bytes(K, b.w));
        memset(parts.scales, b.w == DTYPE_Q6_K ? 128 : b.w == DTYPE_IQ4_XS ? 0xe0 : 63, 16);
        memset(parts.mins, 63, 8);
        if (b.w == DTYPE_MXFP4) parts.d = 128;
        const int top = (16 << block_format(b.w).high) - 1;
        for (int r = 0; r < PANEL_ROWS; r++) {
            for (int i = 0; i < K; i++)
                parts.q[i] = (uint8_t)((i % 4 < 2 ? r & 1 : r >> 1 & 1) != 0 ? top
                                       : b.w == DTYPE_MXFP4 && r > 7         ? 7
                                                                             : 0);
            for (int i = 0; i < K / b.type->elements; i++)
                panel_put_block(b.panels, &parts, r, i, b.w);
        }
        product(&ref, want, x, &b, M, 1);
        for (int m = 0; m < M; m++) {
            for (int r = 0; r < PANEL_ROWS; r++) {
                float row[K];
                double sum = 0;
                ref.panel_row(row, b.panels, r, K, b.w);
                for (int i = 0; i < K; i++) sum += (double)row[i] * (double)x[m * K + i];
                assert_true(fabs((double)want[m * PANEL_ROWS + r] - sum) <= 1e-5 * 4096 * K);
            }
        }
        for (int i = 0; kernels_at(&kn, i); i++) {
            if (kn.f32_only) continue;
            product(&kn, got, x, &b, M, 1);
            if (memcmp(got, want, sizeof(want)) != 0) fail_msg("%s %s", kn.name, names[t]);
        }
        free(b.panels);
    }
    free(x);
}

/* Of the values that the panel holds and the activations as they are rounded, both exact. */
static void plain_product_is_the_sum(void **state) {
    enum { M = 7, N = 21 };
    struct kernels ref;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int t = 0; t < N_TYPES; t++) {
        struct blocks b = make(t, N, short_k(t), false);
        float *x = activations((size_t)(M * b.k)), y[M * N],
              *row = aligned((size_t)b.k * sizeof(float));
        product(&ref, y, x, &b, M, 1);
        for (int i = 0; i < M * N; i++) {
            double sum = 0, size = 0;
            ref.panel_row(row, b.panels + (size_t)(i % N / PANEL_ROWS) * panel_bytes(b.k, b.w),
                          i % N % PANEL_ROWS, b.k, b.w);
            for (int d = 0; d < b.k; d += GROUP) {
                int16_t q[GROUP];
                float scale;
                int32_t total;
                quantise_row(q, &scale, &total, x + i / N * b.k + d, GROUP, 127);
                for (int j = 0; j < GROUP; j++) {
                    sum += (double)scale * q[j] * (double)row[d + j];
                    size += fabs((double)scale * q[j]) * 0.02 * 4096;
                }
            }
            assert_true(fabs((double)y[i] - sum) <= size * 8 * 0x1p-24);
        }
        free(x);
        free(row);
        give(&b);
    }
}

/* What is no number, or infinite, among the activations stays visible in every set. */
static void what_is_no_number_stays_one(void **state) {
    struct kernels kn;
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        struct blocks b = make(t, 20, short_k(t), false);
        float *x = activations((size_t)b.k), y[20];
        for (int i = 0; kernels_at(&kn, i); i++) {
            if (kn.f32_only) continue;
            for (int bad = 0; bad < 2; bad++) {
                x[40] = bad == 0 ? NAN : -INFINITY;
                product(&kn, y, x, &b, 1, 1);
                for (int j = 0; j < 20; j++) assert_true(isnan(y[j]));
            }
        }
        free(x);
        give(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panels_hold_the_values_of_the_file),
        cmocka_unit_test(panels_take_the_bytes_of_the_file),
        cmocka_unit_test(every_batch_equals_the_plain_set),
        cmocka_unit_test(largest_sums_stay_exact),
        cmocka_unit_test(plain_product_is_the_sum),
        cmocka_unit_test(what_is_no_number_stays_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
