/* Goal: the reference's formulas give what they give by hand, and instances are dealt so that the
 * side that can do less gets the next. Method: one machine worked out beside the code; all small
 * clusters against the best split; files that are wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "coordinator/digs.h"

static const struct digs_model model = {.hidden = 1000,
                                        .intermediate = 4000,
                                        .layers = 10,
                                        .heads = 10,
                                        .kv_heads = 5,
                                        .value_bytes = 2};
/* 1 TFLOPS, 1 TiB/s, 1 GiB/s between devices, 8 Gb/s between instances, all of it reached. */
static const struct digs_machine machine = {.bw_gb = 1,
                                            .bw_eff = 1,
                                            .bw_rdma_gb = 8,
                                            .tflops = 1,
                                            .tflops_eff = 1,
                                            .mbw_tb = 1,
                                            .mbw_eff = 1,
                                            .alpha_us = 25,
                                            .memory_gb = 32,
                                            .eta_oom = 0.9,
                                            .transfer_delay_s = 1e-5};

static void near(double got, double want) {
    if (fabs(got - want) > 1e-3 * want) fail_msg("%g is not %g", got, want);
}

static void by_hand(void **state) {
    struct digs_load l = {.input = 100, .output = 50, .prefill_slo_ms = 100, .decode_slo_ms = 10};
    struct digs_abilities a;
    (void)state;
    /* a prompt: 2 * 10 * (2e8 + 1e8 + 2e7 + 8e8) = 2.24e10 operations, 22.4 ms; exchange 100 * 4 *
     * 1e4 bytes, 3.7253 ms, and 1 ms once: four of them are 105.5 ms, three 79.376 ms */
    digs_by_formula(&a, &model, &machine, &l);
    near(a.p, 3 / 0.0793758);
    /* 2 * 10 * 100 * 2 * 1000 / 2 bytes at 1 GiB/s, and 0.15625 ms */
    near(a.t, 1000 / (2e6 / (1024.0 * 1024 * 1024) * 1000 + 2e-5 * 1000 * 10 * 100 / 128));
    assert_true(a.d > 0);
    l.decode_slo_ms = 1; /* not even one: the exchange alone takes as long */
    digs_by_formula(&a, &model, &machine, &l);
    assert_true(a.p > 0 && a.d == 0);
    assert_int_equal(digs_fill(&a, 8), 4); /* half and half */
}

static void memory_bounds(void **state) {
    struct digs_machine small = machine;
    struct digs_abilities a, b;
    const struct digs_load l = {
        .input = 100, .output = 100, .prefill_slo_ms = 1e6, .decode_slo_ms = 1e6};
    (void)state;
    small.memory_gb = 0.4;
    digs_by_formula(&a, &model, &machine, &l);
    digs_by_formula(&b, &model, &small, &l);
    assert_true(b.d > 0 && b.d < a.d);
    small.memory_gb = 0.1; /* the weights have no room */
    digs_by_formula(&b, &model, &small, &l);
    assert_true(b.p == 0 && b.d == 0);
}

static void fills(void **state) {
    (void)state;
    assert_int_equal(digs_fill(&(struct digs_abilities){0.25, 0.89, 0}, 4), 3);
    assert_int_equal(digs_fill(&(struct digs_abilities){1, 1, 0}, 7), 4);
    assert_int_equal(digs_fill(&(struct digs_abilities){0, 0, 0}, 6), 3);
    assert_int_equal(digs_fill(&(struct digs_abilities){9, 9, 1}, 6),
                     3); /* the link is what counts */
    for (int p = 1; p <= 20; p++)
        for (int d = 1; d <= 20; d++)
            for (size_t n = 2; n <= 32; n++) {
                const struct digs_abilities a = {p * 0.1, d * 0.1, 0};
                const size_t got = digs_fill(&a, n);
                assert_true(got >= 1 && got < n);
                double best = 0;
                for (size_t k = 1; k < n; k++)
                    best = fmax(best, fmin(a.p * (double)k, a.d * (double)(n - k)));
                const double is = fmin(a.p * (double)got, a.d * (double)(n - got));
                assert_true(is + 1e-9 >= best - fmax(a.p, a.d)); /* at most one instance away */
            }
}

static void measured(void **state) {
    struct perf_msg perf = {0};
    struct digs_abilities a;
    const struct role_targets t = {.first_token_s = 1, .token_s = 0.05, .slots = 8};
    const struct digs_load l = {.input = 3000, .output = 200};
    (void)state;
    digs_measured(&a, &perf, &t, &l);
    assert_true(a.p == 0 && a.d == 0);
    for (int i = 0; i < 50; i++) {
        perf_add_prompt(&perf, 3000, 4);
        perf_add_step(&perf, 8, 3100, 0.045);
    }
    digs_measured(&a, &perf, &t, &l);
    near(a.p, 0.25);
    near(a.d, 8 / (0.045 * 200));
    assert_int_equal(digs_fill(&a, 4), 3);
}

static void put(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void files(void **state) {
    static const char good_model[] =
        "{\"hidden_size\":8192,\"intermediate_size\":28672,\"num_attention_heads\":64,\"num_hidden_"
        "layers\":80,\"num_key_value_heads\":8,\"torch_dtype\":\"bfloat16\"}";
    static const char good_machine[] =
        "{\"BW_GB\":392,\"BWeff\":0.5,\"BW_RDMA_Gb\":200,\"TFLOPS\":246,\"TFLOPSeff\":0.5,\"MBW_"
        "TB\":"
        "0.8,\"MBW_TBeff\":0.3,\"alpha\":2,\"MEMCapacity\":32,\"eta_OOM\":0.9,"
        "\"staticTransferDelay\":1e-5}";
    char dir[] = "/tmp/digs_test.XXXXXX", m[64], x[64];
    struct digs_model got;
    struct digs_machine at;
    struct errbuf eb = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(m, sizeof(m), "%s/model.json", dir);
    snprintf(x, sizeof(x), "%s/machine.json", dir);
    assert_int_equal(digs_files_read(&got, &at, m, x, &eb), ERR_NOT_FOUND);
    put(m, good_model);
    put(x, good_machine);
    assert_int_equal(digs_files_read(&got, &at, m, x, &eb), ERR_OK);
    assert_true(got.hidden == 8192 && got.kv_heads == 8 && got.value_bytes == 2);
    assert_true(at.memory_gb == 32 && at.transfer_delay_s == 1e-5);
    put(m, "{\"hidden_size\":\"8192\"}");
    assert_int_equal(digs_files_read(&got, &at, m, x, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "hidden_size must be a number above 0"));
    put(m, good_model);
    put(x, "{\"BW_GB\":0}");
    assert_int_equal(digs_files_read(&got, &at, m, x, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "BW_GB"));
    put(x, "{");
    assert_int_equal(digs_files_read(&got, &at, m, x, &eb), ERR_BAD_JSON);
    unlink(m);
    unlink(x);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),  cmocka_unit_test(memory_bounds), cmocka_unit_test(fills),
        cmocka_unit_test(measured), cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
