/* Goal: every kernel set computes what kernels.h says, and the same bits whatever the rows beside a
 * row. Method: random inputs over awkward shapes. Sets that promise so (kernels_arithmetic())
 * must equal the plain C set bit for bit; "avx512bf16", "neonbf16", "amx" and "openblas" within a
 * bound on the rounding of the sum. Then each row of a large product, softmax or score block is
 * computed alone and compared bit for bit. */
#include "tests/unit/common/engine/kernels_rig.h"

static bool same_bits(const float *a, const float *b, size_t n) {
    return memcmp(a, b, n * sizeof(float)) == 0;
}

/* The sets that promise the bits of "ref". */
static bool exact(const struct kernels *k, enum dtype w) {
    return strcmp(kernels_arithmetic(k, w == DTYPE_BF16, DTYPE_F32), "common") == 0;
}

/* y = x W^T by one set, columns in items of `item` panels. */
static void product(const struct kernels *k, float *y, const float *x, const float *w, int m, int n,
                    int dim, enum dtype t, int item) {
    size_t pb = panel_bytes(dim, t);
    int n_panels = (n + PANEL_ROWS - 1) / PANEL_ROWS;
    uint8_t *panels = aligned(pb * (size_t)n_panels), *xp = aligned(x_pack_bytes(m, dim));
    for (int p = 0; p < n_panels; p++) {
        int rows = n - p * PANEL_ROWS < PANEL_ROWS ? n - p * PANEL_ROWS : PANEL_ROWS;
        k->panel_pack(panels + (size_t)p * pb, w + (size_t)p * PANEL_ROWS * (size_t)dim, rows, dim,
                      t);
    }
    for (int r = 0; r < m; r += TILE_ROWS)
        k->x_pack(xp, x, (size_t)dim, r, r + TILE_ROWS < m ? r + TILE_ROWS : m, dim, t);
    for (int p = 0; p < n_panels; p += item) {
        int cols = n - p * PANEL_ROWS < item * PANEL_ROWS ? n - p * PANEL_ROWS : item * PANEL_ROWS;
        gemm_both(k, y + p * PANEL_ROWS, (size_t)n, xp, panels + (size_t)p * pb, m, dim, cols, t);
    }
    free(panels);
    free(xp);
}

static void check_product(const struct kernels *k, const struct kernels *ref, int m, int n, int dim,
                          enum dtype t) {
    float *x = rng_floats((size_t)(m * dim)), *w = rng_floats((size_t)(n * dim));
    float *want = rng_floats((size_t)(m * n)), *got = rng_floats((size_t)(m * n));
    product(ref, want, x, w, m, n, dim, t, 1);
    product(k, got, x, w, m, n, dim, t, 4);
    for (int i = 0; i < m * n; i++) {
        double sum = 0;
        for (int d = 0; d < dim; d++)
            sum += fabs((double)x[(i / n) * dim + d] * (double)w[(i % n) * dim + d]);
        double bound = exact(k, t) ? 0 : sum * (double)dim * 0x1p-24;
        if (fabs((double)got[i] - (double)want[i]) > bound)
            fail_msg("%s m=%d n=%d k=%d %s: row %d column %d: %.9g, want %.9g", k->name, m, n, dim,
                     dtype_name(t), i / n, i % n, (double)got[i], (double)want[i]);
    }
    free(x);
    free(w);
    free(want);
    free(got);
}

static void products_equal_the_plain_set(void **state) {
    static const int shapes[][3] = {{1, 1, 1},    {1, 16, 2},    {1, 130, 33}, {2, 17, 7},
                                    {3, 48, 64},  {4, 33, 96},   {5, 64, 31},  {6, 65, 128},
                                    {7, 80, 129}, {12, 31, 5},   {13, 96, 40}, {25, 16, 700},
                                    {64, 64, 64}, {8, 70, 1030}, {130, 50, 47}};
    struct kernels ref, k;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int i = 0; kernels_at(&k, i); i++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            check_product(&k, &ref, shapes[s][0], shapes[s][1], shapes[s][2], DTYPE_F32);
            if (!k.f32_only)
                check_product(&k, &ref, shapes[s][0], shapes[s][1], shapes[s][2], DTYPE_BF16);
        }
    }
}

/* The plain set itself, against double precision. */
static void plain_product_is_the_sum(void **state) {
    enum { M = 7, N = 21, K = 19 };
    struct kernels ref;
    float *x = rng_floats(M * K), *w = rng_floats(N * K), *y = rng_floats(M * N);
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int t = 0; t < 2; t++) {
        product(&ref, y, x, w, M, N, K, t == 0 ? DTYPE_F32 : DTYPE_BF16, 1);
        for (int i = 0; i < M * N; i++) {
            double sum = 0;
            for (int d = 0; d < K; d++) {
                float a = x[(i / N) * K + d], b = w[(i % N) * K + d];
                if (t == 1) {
                    a = f32_of_bf16(bf16_of_f32(a));
                    b = f32_of_bf16(bf16_of_f32(b));
                }
                sum += (double)a * (double)b;
            }
            assert_true(fabs((double)y[i] - sum) < 1e-5);
        }
    }
    free(x);
    free(w);
    free(y);
}

static void a_row_does_not_see_its_neighbours(void **state) {
    enum { N = 38, K = 2100, M_MAX = 130 }; /* so large a k is cut for the caches */
    struct kernels k;
    float *x = rng_floats(M_MAX * K), *w = rng_floats(N * K), *alone = rng_floats(M_MAX * N),
          *all = rng_floats(M_MAX * N);
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        if (strcmp(k.name, "openblas") == 0) continue;
        for (int t = 0; t < 2; t++) {
            enum dtype dt = t == 0 ? DTYPE_F32 : DTYPE_BF16;
            for (int r = 0; r < M_MAX; r++)
                product(&k, alone + r * N, x + r * K, w, 1, N, K, dt, 5);
            for (int m = 2; m <= M_MAX; m = m < 14 ? m + 1 : m * 2 - 1) {
                product(&k, all, x, w, m, N, K, dt, 2);
                if (!same_bits(all, alone, (size_t)(m * N)))
                    fail_msg("%s %s: a batch of %d rows", k.name, dtype_name(dt), m);
            }
        }
    }
    free(x);
    free(w);
    free(alone);
    free(all);
}

static void panels_give_rows_back(void **state) {
    struct kernels k;
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        for (int dim = 1; dim < 40; dim += 6) {
            for (int t = 0; t < (k.f32_only ? 1 : 2); t++) {
                enum dtype dt = t == 0 ? DTYPE_F32 : DTYPE_BF16;
                float *w = rng_floats((size_t)(11 * dim)), row[40];
                uint8_t *panel = aligned(panel_bytes(dim, dt));
                k.panel_pack(panel, w, 11, dim, dt);
                for (int r = 0; r < PANEL_ROWS; r++) {
                    k.panel_row(row, panel, r, dim, dt);
                    for (int d = 0; d < dim; d++) {
                        float want = r < 11 ? w[r * dim + d] : 0;
                        assert_true(row[d] == (t == 0 ? want : f32_of_bf16(bf16_of_f32(want))));
                    }
                }
                free(w);
                free(panel);
            }
        }
    }
}

static void row_operations_equal_the_plain_set(void **state) {
    struct kernels ref, k;
    float a[200], b[200], c[200], want[200], got[200];
    uint16_t half_want[200], half_got[200];
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int i = 0; kernels_at(&k, i); i++) {
        for (int n = 1; n <= 100; n++) {
            for (int j = 0; j < 200; j++) a[j] = rng_f32() * 4, b[j] = rng_f32(), c[j] = rng_f32();
#define BOTH(call_ref, call_got, n_values)                                                         \
    do {                                                                                           \
        memcpy(want, a, sizeof(a));                                                                \
        memcpy(got, a, sizeof(a));                                                                 \
        call_ref;                                                                                  \
        call_got;                                                                                  \
        if (!same_bits(want, got, n_values)) fail_msg("%s: %s, n=%d", k.name, #call_got, n);       \
    } while (0)
            /* 200 values are compared, so that nothing beyond n may change either */
            BOTH(ref.rmsnorm(want, a, b, n, 1e-5f), k.rmsnorm(got, a, b, n, 1e-5f), 200);
            BOTH(ref.rope(want, b, c, n), k.rope(got, b, c, n), 200);
            BOTH(ref.swiglu(want, b, n), k.swiglu(got, b, n), 200);
            BOTH(ref.layernorm(want, a, b, c, n, 1e-5f), k.layernorm(got, a, b, c, n, 1e-5f), 200);
            BOTH(ref.layernorm(want, a, b, NULL, n, 1e-12f),
                 k.layernorm(got, a, b, NULL, n, 1e-12f), 200);
            BOTH(ref.gelu(want, n), k.gelu(got, n), 200);
            BOTH(ref.gelu_tanh(want, n), k.gelu_tanh(got, n), 200);
            BOTH(ref.softcap(want, 2.5f, n), k.softcap(got, 2.5f, n), 200);
            BOTH(ref.mul(want, b, n), k.mul(got, b, n), 200);
            BOTH(ref.add(want, b, n), k.add(got, b, n), 200);
            BOTH(ref.scale(want, b, 0.3f, n), k.scale(got, b, 0.3f, n), 200);
            BOTH(ref.store(want, b, n, DTYPE_F32), k.store(got, b, n, DTYPE_F32), 200);
            float sum_want = 0, sum_got = 1, max_want = 0, max_got = 1;
            BOTH(sum_want = ref.softmax(want, n, &max_want), sum_got = k.softmax(got, n, &max_got),
                 (size_t)lanes_up(n));
            assert_true(sum_want == sum_got && max_want == max_got);
#undef BOTH
            memset(half_want, 0x5a, sizeof(half_want));
            memset(half_got, 0x5a, sizeof(half_got));
            ref.store(half_want, a, n, DTYPE_BF16);
            k.store(half_got, a, n, DTYPE_BF16);
            assert_memory_equal(half_want, half_got, sizeof(half_want));
        }
    }
}

static void exp_is_accurate(void **state) {
    struct kernels k;
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        double worst = 0;
        for (int n = 0; n < 40000; n++) {
            /* exp(s[1] - s[0]) with s[0] = 0 the maximum; in lane n % 15 + 1 */
            float s[16] = {0}, max, x = -87.0f * (float)n / 40000.0f;
            int lane = n % 15 + 1;
            s[lane] = x;
            k.softmax(s, 16, &max);
            double want = exp((double)x), error = fabs((double)s[lane] - want) / (want * 0x1p-23);
            if (error > worst) worst = error;
        }
        if (worst > 1.5) fail_msg("%s: exp is off by %.2f units in the last place", k.name, worst);
        /* the ends: silu of large values is the value, or zero; never NaN */
        float g[4] = {200.0f, -200.0f, 0.0f, -0.0f}, up[4] = {1, 1, 1, 1};
        k.swiglu(g, up, 4);
        assert_true(g[0] == 200.0f);
        assert_true(g[1] <= 0 && g[1] > -1e-30f);
        assert_true(g[2] == 0 && g[3] == 0);
    }
}

static void gelu_and_layernorm_are_accurate(void **state) {
    enum { N = 45 };
    struct kernels k;
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        for (int n = -9000; n <= 9000; n++) {
            float x = (float)n / 1000.0f, y = x;
            k.gelu(&y, 1);
            double want = (double)x * 0.5 * (1 + erf((double)x / sqrt(2)));
            if (fabs((double)y - want) > 3e-7 * fabs((double)x) + 1e-12)
                fail_msg("%s: gelu(%g) is %.9g, want %.9g", k.name, (double)x, (double)y, want);
        }
        float ends[4] = {300.0f, -300.0f, 0.0f, NAN};
        k.gelu(ends, 4);
        assert_true(ends[0] == 300.0f && ends[1] <= 0 && ends[1] > -1e-30f && ends[2] == 0);
        assert_true(isnan(ends[3]));

        float x[N], weight[N], bias[N], y[N];
        double mean = 0, var = 0;
        for (int j = 0; j < N; j++) {
            x[j] = 100.0f + rng_f32();
            weight[j] = 1 + rng_f32();
            bias[j] = rng_f32();
            mean += (double)x[j] / N;
        }
        for (int j = 0; j < N; j++) var += ((double)x[j] - mean) * ((double)x[j] - mean) / N;
        k.layernorm(y, x, weight, bias, N, 1e-5f);
        for (int j = 0; j < N; j++) {
            double want =
                ((double)x[j] - mean) / sqrt(var + 1e-5) * (double)weight[j] + (double)bias[j];
            assert_true(fabs((double)y[j] - want) < 1e-4);
        }
    }
}

static void tanh_forms_are_accurate(void **state) {
    struct kernels k;
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        for (int n = -9000; n <= 9000; n++) {
            const float x = (float)n / 1000.0f;
            const double v = (double)x, u = sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
            float gelu = x, cap = 50 * x;
            k.gelu_tanh(&gelu, 1);
            k.softcap(&cap, 30, 1);
            if (fabs((double)gelu - v / 2 * (1 + tanh(u))) > 3e-7 * fabs(v) + 1e-12)
                fail_msg("%s: gelu_tanh(%g) is %.9g", k.name, v, (double)gelu);
            if (fabs((double)cap - 30 * tanh(50 * v / 30)) > 3e-7 * 30)
                fail_msg("%s: softcap(%g) is %.9g", k.name, 50 * v, (double)cap);
        }
        float ends[4] = {300.0f, -300.0f, 0.0f, NAN}, caps[5] = {1e30f, -1e30f, 0, -0.0f, NAN};
        k.gelu_tanh(ends, 4);
        assert_true(ends[0] == 300.0f && ends[1] <= 0 && ends[1] > -1e-30f && ends[2] == 0);
        assert_true(isnan(ends[3]));
        k.softcap(caps, 50, 5);
        assert_true(caps[0] == 50 && caps[1] == -50 && caps[2] == 0 && caps[3] == 0);
        assert_true(isnan(caps[4]));
    }
}

static void bf16_rounds_to_nearest_even(void **state) {
    static const struct {
        uint32_t in;
        uint16_t out;
    } rows[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
        {0x3f817fff, 0x3f81}, {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x00018000, 0x0002},
        {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0},
        {0x7fc00000, 0x7fc0}, {0xffffffff, 0xffff},
    };
    struct kernels k;
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            float in[17];
            uint16_t out[17];
            for (int j = 0; j < 17; j++) in[j] = f32_of_bits(rows[r].in);
            k.store(out, in, 17, DTYPE_BF16);
            for (int j = 0; j < 17; j++) {
                if (out[j] != rows[r].out)
                    fail_msg("%s: %08x gives %04x, lane %d", k.name, rows[r].in, out[j], j);
            }
        }
    }
}

static void f16_widens(void **state) {
    (void)state;
    assert_true(f32_of_f16(0x3c00) == 1.0f);
    assert_true(f32_of_f16(0xc000) == -2.0f);
    assert_true(f32_of_f16(0x7bff) == 65504.0f);
    assert_true(f32_of_f16(0x0400) == 0x1p-14f);
    assert_true(f32_of_f16(0x0001) == 0x1p-24f);
    assert_true(f32_of_f16(0x83ff) == -0x1p-24f * 1023);
    assert_true(bits_of_f32(f32_of_f16(0x8000)) == 0x80000000u);
    assert_true(isinf(f32_of_f16(0x7c00)) && isnan(f32_of_f16(0x7e01)));
}

/* Scores and mix at one head size and type: equal to the plain set, and the same in whatever pieces
 * the positions come. */
static void check_attention(const struct kernels *k, const struct kernels *ref, int hd,
                            enum dtype t, int n_q) {
    enum { N_POS = 43, STRIDE = 64 };
    size_t up = (size_t)lanes_up(hd), value_bytes = t == DTYPE_BF16 ? 2 : 4;
    float *rows = rng_floats((size_t)(N_POS * hd)), *q = rng_floats((size_t)n_q * up);
    float *want = rng_floats((size_t)n_q * STRIDE), *got = rng_floats((size_t)n_q * STRIDE),
          *o_want = rng_floats((size_t)n_q * up), *o_got = rng_floats((size_t)n_q * up);
    uint8_t *kv = aligned((size_t)(N_POS * hd) * 4);
    ref->store(kv, rows, N_POS * hd, t);
    for (int i = 0; i < n_q; i++) {
        for (size_t d = (size_t)hd; d < up; d++) q[(size_t)i * up + d] = 0;
    }
    memcpy(got, want, (size_t)n_q * STRIDE * sizeof(float));
    ref->scores(want, STRIDE, q, up, n_q, kv, N_POS, hd, t, 0.25f);
    for (int p = 0, n = 1; p < N_POS; p += n, n = (n * 5 + 3) % 23 + 1) {
        if (n > N_POS - p) n = N_POS - p;
        k->scores(got + p, STRIDE, q, up, n_q, kv + (size_t)(p * hd) * value_bytes, n, hd, t,
                  0.25f);
    }
    if (!same_bits(want, got, (size_t)n_q * STRIDE))
        fail_msg("%s: scores, head_dim=%d %s", k->name, hd, dtype_name(t));
    memset(o_want, 0, (size_t)n_q * up * sizeof(float));
    memset(o_got, 0, (size_t)n_q * up * sizeof(float));
    ref->mix(o_want, up, want, STRIDE, n_q, kv, N_POS, hd, t);
    for (int p = 0, n = 1; p < N_POS; p += n, n = (n * 5 + 3) % 23 + 1) {
        if (n > N_POS - p) n = N_POS - p;
        k->mix(o_got, up, want + p, STRIDE, n_q, kv + (size_t)(p * hd) * value_bytes, n, hd, t);
    }
    for (int i = 0; i < n_q; i++) {
        if (!same_bits(o_want + (size_t)i * up, o_got + (size_t)i * up, (size_t)hd))
            fail_msg("%s: mix, head_dim=%d %s", k->name, hd, dtype_name(t));
    }
    free(rows);
    free(q);
    free(want);
    free(got);
    free(o_want);
    free(o_got);
    free(kv);
}

static void attention_equals_the_plain_set(void **state) {
    static const int dims[] = {2, 8, 16, 24, 32, 40, 64, 80, 96, 128, 200, 256};
    struct kernels ref, k;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int i = 0; kernels_at(&k, i); i++) {
        for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++) {
            check_attention(&k, &ref, dims[d], DTYPE_F32, 5);
            check_attention(&k, &ref, dims[d], DTYPE_BF16, 7);
            check_attention(&k, &ref, dims[d], DTYPE_F32, 23);
            check_attention(&k, &ref, dims[d], DTYPE_BF16, 15);
        }
    }
}

static void sets_are_found_by_name(void **state) {
    struct kernels k;
    struct errbuf eb;
    (void)state;
    assert_int_equal(kernels_find(&k, NULL, &eb), ERR_OK);
    assert_string_not_equal(k.name, "openblas");
    assert_int_equal(kernels_find(&k, "openblas", &eb), ERR_OK);
    assert_true(k.f32_only);
    assert_int_equal(kernels_find(&k, "sse", &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "kernels: \"sse\" is not available"));
    assert_non_null(strstr(eb.text, "ref"));
    for (int i = 0; kernels_at(&k, i); i++) {
        struct kernels again;
        assert_int_equal(kernels_find(&again, k.name, &eb), ERR_OK);
        assert_string_equal(again.name, k.name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_product_is_the_sum),
        cmocka_unit_test(products_equal_the_plain_set),
        cmocka_unit_test(a_row_does_not_see_its_neighbours),
        cmocka_unit_test(panels_give_rows_back),
        cmocka_unit_test(row_operations_equal_the_plain_set),
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(gelu_and_layernorm_are_accurate),
        cmocka_unit_test(tanh_forms_are_accurate),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_widens),
        cmocka_unit_test(attention_equals_the_plain_set),
        cmocka_unit_test(sets_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
