/* Goal: an int8 KV row says what was stored within half a step, hides nothing that is no number,
 * and is the same bytes, scores and sums in every kernel set. Method: random rows of awkward
 * lengths with outliers, zeros, tiny and huge values; properties of what ref stores, ref against
 * sums in double precision, and all other sets against ref bit for bit, positions in one piece and
 * in many. Rows lie in memory of their exact size, for the address sanitizer. */
#include "tests/unit/common/engine/kernels_rig.h"

enum { N_MAX = KEY_DIM_MAX, N_POS = 43 };

static const int dims[] = {2, 8, 16, 24, 30, 32, 40, 64, 80, 96, 128, 200, 256, 576};

static void random_row(float *x, int n) {
    static const float sizes[] = {1, 1, 1, 0, 1e-20f, 1e-35f, 1e5f, 1e30f};
    const float size = sizes[rng_u32() % 8];
    for (int i = 0; i < n; i++) x[i] = rng_f32() * size * (rng_u32() % 30 == 0 ? 50 : 1);
}

static float scale_of(const uint8_t *row) {
    uint16_t h;
    memcpy(&h, row, sizeof(h));
    return f32_of_bf16(h);
}

static int value_of(const uint8_t *row, int i) {
    return ((const int8_t *)row)[KV_SCALE_BYTES + i];
}

static void a_row_has_one_size(void **state) {
    (void)state;
    assert_int_equal(kv_row_bytes(64, DTYPE_F32), 256);
    assert_int_equal(kv_row_bytes(64, DTYPE_BF16), 128);
    assert_int_equal(kv_row_bytes(64, DTYPE_INT8), 66);
    assert_int_equal(kv_row_bytes(2, DTYPE_INT8), 4);
    assert_int_equal(kv_row_bytes(64, DTYPE_F16), 0);
    assert_int_equal(kv_row_bytes(64, DTYPE_INT4), 0);
    assert_int_equal(kv_row_bytes(64, DTYPE_NONE), 0);
}

static void a_row_keeps_its_values(void **state) {
    struct kernels ref;
    float x[N_MAX];
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int n = 1; n <= N_MAX; n++) {
        uint8_t *row = malloc(kv_row_bytes(n, DTYPE_INT8));
        float most = 0;
        int high = 0;
        assert_non_null(row);
        random_row(x, n);
        ref.store(row, x, n, DTYPE_INT8);
        const float d = scale_of(row);
        for (int i = 0; i < n; i++) {
            const int q = value_of(row, i);
            most = fmaxf(most, fabsf(x[i]));
            high = abs(q) > high ? abs(q) : high;
            assert_in_range(q + 127, 0, 254);
            if (d > 0)
                assert_true(fabs((double)x[i] - (double)d * q) <= 0.500001 * (double)d);
            else
                assert_int_equal(q, 0);
        }
        /* a step is wider than it must be by one bf16 at most, so nearly all 127 are in use */
        if (d > 0)
            assert_true(d >= most / 127 && d <= most / 127 * 1.0079f && high >= 126);
        else
            assert_true(most < 1e-27f);
        free(row);
    }
}

static void rounding_and_bounds_are_known(void **state) {
    static const struct {
        float x[4];
        uint16_t scale;
        int q[4];
    } rows[] = {
        {{127, 63.5f, -0.5f, 0}, 0x3f80, {127, 64, 0, 0}}, /* halves go to the even one */
        {{-127, 62.5f, 1.5f, 2.5f}, 0x3f80, {-127, 62, 2, 2}},
        {{0, -0.0f, 0, 0}, 0, {0, 0, 0, 0}},
        {{127 * 0x1p-100f, 0, 0, 0}, 0, {0, 0, 0, 0}}, /* a step of 2^-100 is none */
        {{0x1p-93f, 0, 0, 0}, 0x0d82, {126, 0, 0, 0}}, /* the next one is */
        {{127 * 0x1p-99f, -127 * 0x1p-99f, 0, 0}, 0x0e00, {127, -127, 0, 0}},
        {{128, 1, -1, 0}, 0x3f82, {126, 1, -1, 0}}, /* 128/127 up to 1 + 2/128 */
    };
    struct kernels k;
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            uint8_t row[6];
            k.store(row, rows[r].x, 4, DTYPE_INT8);
            if (bits_of_f32(scale_of(row)) >> 16 != rows[r].scale)
                fail_msg("%s: row %zu has scale %g", k.name, r, (double)scale_of(row));
            for (int j = 0; j < 4; j++) assert_int_equal(value_of(row, j), rows[r].q[j]);
        }
    }
}

static void what_is_no_number_stays_none(void **state) {
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    struct kernels k;
    float x[70], s[3];
    (void)state;
    for (int i = 0; kernels_at(&k, i); i++) {
        for (int n = 2; n <= 70; n += 17) {
            for (int at = 0; at < n; at++) {
                const size_t bytes = kv_row_bytes(n, DTYPE_INT8);
                const size_t up = (size_t)lanes_up(n);
                uint8_t *rows = malloc(3 * bytes);
                float *query = rng_floats(up), *o = rng_floats(up), w[3] = {0.25f, 0.5f, 0.25f};
                assert_non_null(rows);
                memset(query, 0, up * sizeof(float));
                query[at == 0] = 1; /* a query that does not look at the bad value */
                for (int r = 0; r < 3; r++) {
                    for (int j = 0; j < n; j++) x[j] = rng_f32();
                    if (r == 1) x[at] = bad[at % 4];
                    k.store(rows + (size_t)r * bytes, x, n, DTYPE_INT8);
                }
                assert_true(isnan(scale_of(rows + bytes)));
                for (int j = 0; j < n; j++) assert_int_equal(value_of(rows + bytes, j), 0);
                k.scores(s, 3, query, up, 1, rows, 3, n, DTYPE_INT8, 1);
                assert_true(isfinite(s[0]) && isnan(s[1]) && isfinite(s[2]));
                k.mix(o, up, w, 3, 1, rows, 3, n, DTYPE_INT8);
                for (int j = 0; j < n; j++) assert_true(isnan(o[j]));
                free(rows);
                free(query);
                free(o);
            }
        }
    }
}

/* Every length, and nothing written beyond it. */
static void sets_store_the_same_bytes(void **state) {
    struct kernels ref, k;
    float x[N_MAX];
    uint8_t want[N_MAX + 20], got[N_MAX + 20];
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int i = 0; kernels_at(&k, i); i++) {
        for (int n = 1; n <= N_MAX; n++) {
            for (int kind = 0; kind < 6; kind++) {
                random_row(x, n);
                if (kind == 5) x[rng_u32() % (uint32_t)n] = n % 2 == 0 ? NAN : INFINITY;
                memset(want, 0x5a, sizeof(want));
                memset(got, 0x5a, sizeof(got));
                ref.store(want, x, n, DTYPE_INT8);
                k.store(got, x, n, DTYPE_INT8);
                if (memcmp(want, got, sizeof(want)) != 0) fail_msg("%s: %d values", k.name, n);
                assert_int_equal(want[kv_row_bytes(n, DTYPE_INT8)], 0x5a);
            }
        }
    }
}

static uint8_t *stored_rows(const struct kernels *k, int hd) {
    const size_t row_bytes = kv_row_bytes(hd, DTYPE_INT8);
    uint8_t *rows = malloc(N_POS * row_bytes);
    float x[N_MAX];
    assert_non_null(rows);
    for (int p = 0; p < N_POS; p++) {
        for (int d = 0; d < hd; d++) x[d] = p % 11 == 3 ? 0 : rng_f32() * (d % 13 == 5 ? 9 : 1);
        k->store(rows + (size_t)p * row_bytes, x, hd, DTYPE_INT8);
    }
    return rows;
}

static void the_plain_set_is_the_sum(void **state) {
    struct kernels ref;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (size_t h = 0; h < sizeof(dims) / sizeof(dims[0]); h++) {
        const int hd = dims[h];
        const size_t up = (size_t)lanes_up(hd), row_bytes = kv_row_bytes(hd, DTYPE_INT8);
        uint8_t *rows = stored_rows(&ref, hd);
        float *q = rng_floats(up), *o = rng_floats(up), s[N_POS];
        for (size_t d = (size_t)hd; d < up; d++) q[d] = 0;
        memset(o, 0, up * sizeof(float));
        ref.scores(s, N_POS, q, up, 1, rows, N_POS, hd, DTYPE_INT8, 0.125f);
        ref.mix(o, up, s, N_POS, 1, rows, N_POS, hd, DTYPE_INT8);
        for (int p = 0; p < N_POS; p++) {
            const uint8_t *row = rows + (size_t)p * row_bytes;
            double sum = 0;
            for (int d = 0; d < hd; d++)
                sum += (double)q[d] * (double)scale_of(row) * value_of(row, d);
            assert_true(fabs((double)s[p] - sum * 0.125) < 1e-4);
        }
        for (int d = 0; d < hd; d++) {
            double sum = 0;
            for (int p = 0; p < N_POS; p++) {
                const uint8_t *row = rows + (size_t)p * row_bytes;
                sum += (double)s[p] * (double)scale_of(row) * value_of(row, d);
            }
            assert_true(fabs((double)o[d] - sum) < 1e-3);
        }
        free(rows);
        free(q);
        free(o);
    }
}

static void check_attention(const struct kernels *k, const struct kernels *ref, int hd, int n_q) {
    const size_t up = (size_t)lanes_up(hd), row_bytes = kv_row_bytes(hd, DTYPE_INT8);
    const size_t n_scores = (size_t)n_q * N_POS, n_out = (size_t)n_q * up;
    uint8_t *rows = stored_rows(ref, hd);
    float *q = rng_floats(n_out), *want = rng_floats(n_scores), *got = rng_floats(n_scores),
          *o_want = rng_floats(n_out), *o_got = rng_floats(n_out);
    for (int i = 0; i < n_q; i++)
        for (size_t d = (size_t)hd; d < up; d++) q[(size_t)i * up + d] = 0;
    ref->scores(want, N_POS, q, up, n_q, rows, N_POS, hd, DTYPE_INT8, 0.25f);
    for (int p = 0, n = 1; p < N_POS; p += n, n = (n * 5 + 3) % 23 + 1) {
        if (n > N_POS - p) n = N_POS - p;
        k->scores(got + p, N_POS, q, up, n_q, rows + (size_t)p * row_bytes, n, hd, DTYPE_INT8,
                  0.25f);
    }
    if (memcmp(want, got, n_scores * sizeof(float)) != 0)
        fail_msg("%s: scores, head_dim=%d queries=%d", k->name, hd, n_q);
    memset(o_want, 0, n_out * sizeof(float));
    memset(o_got, 0, n_out * sizeof(float));
    ref->mix(o_want, up, want, N_POS, n_q, rows, N_POS, hd, DTYPE_INT8);
    for (int p = 0, n = 1; p < N_POS; p += n, n = (n * 5 + 3) % 23 + 1) {
        if (n > N_POS - p) n = N_POS - p;
        k->mix(o_got, up, want + p, N_POS, n_q, rows + (size_t)p * row_bytes, n, hd, DTYPE_INT8);
    }
    for (int i = 0; i < n_q; i++)
        if (memcmp(o_want + (size_t)i * up, o_got + (size_t)i * up, (size_t)hd * sizeof(float)) !=
            0)
            fail_msg("%s: mix, head_dim=%d queries=%d", k->name, hd, n_q);
    free(rows);
    free(q);
    free(want);
    free(got);
    free(o_want);
    free(o_got);
}

static void attention_equals_the_plain_set(void **state) {
    struct kernels ref, k;
    (void)state;
    assert_int_equal(kernels_find(&ref, "ref", NULL), ERR_OK);
    for (int i = 0; kernels_at(&k, i); i++)
        for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
            for (int n_q = 1; n_q <= 11; n_q += 2) check_attention(&k, &ref, dims[d], n_q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_one_size),
        cmocka_unit_test(a_row_keeps_its_values),
        cmocka_unit_test(rounding_and_bounds_are_known),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(sets_store_the_same_bytes),
        cmocka_unit_test(the_plain_set_is_the_sum),
        cmocka_unit_test(attention_equals_the_plain_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
