/* Goal: the requests of a simulated run are those of the trace, as often as was asked for, in the
 * order of their times, and ask for as much as was wanted. Method: a trace of two lines and a drawn
 * one. */
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

#include "tools/sim/sim_asks.h"

static char path[] = "/tmp/sim_asks_test_XXXXXX";
static const char TRACE[] =
    "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 4, \"hash_ids\": [7, 9]}\n"
    "{\"timestamp\": 3000, \"input_length\": 512, \"output_length\": 5, \"hash_ids\": [7]}\n"
    "{\"timestamp\": 8000, \"input_length\": 512, \"output_length\": 6, \"hash_ids\": [8]}\n";

static int write_trace(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    const bool ok = fd >= 0 && write(fd, TRACE, strlen(TRACE)) == (ssize_t)strlen(TRACE);
    if (fd >= 0) close(fd);
    return ok ? 0 : -1;
}
static int remove_trace(void **state) {
    (void)state;
    return unlink(path);
}

static struct sim_asks_conf conf(unsigned overlay, uint64_t seed) {
    return (struct sim_asks_conf){
        .trace = path,
        .overlay = overlay,
        .shape = {.seed = seed, .n_groups = 1, .time_scale = 1, .length_scale = 1}};
}

static void a_trace_as_it_is(void **state) {
    struct errbuf eb = {0};
    struct sim_asks a;
    (void)state;
    struct sim_asks_conf c = conf(0, 1);
    assert_int_equal(sim_asks_read(&a, &c, &eb), ERR_OK);
    assert_int_equal(a.n, 3);
    assert_true(a.a[0].at_s == 0 && a.a[1].at_s == 3 && a.a[2].at_s == 8);
    assert_true(a.a[0].in == 1024 && a.a[0].out == 4 && a.a[0].block_tokens == 512);
    assert_int_equal(a.a[0].n_blocks, 2);
    assert_true(a.a[0].blocks[0] == a.a[1].blocks[0]);
    sim_asks_free(&a);
    c.most = 2;
    assert_int_equal(sim_asks_read(&a, &c, &eb), ERR_OK);
    assert_int_equal(a.n, 2);
    sim_asks_free(&a);
    c.trace = "/nowhere/trace";
    assert_int_equal(sim_asks_read(&a, &c, &eb), ERR_NOT_FOUND);
    assert_true(eb.text[0] != 0 && a.a == NULL);
}

/* Every copy has every row once; where it begins depends on the seed, and on nothing else. */
static void copies(void **state) {
    struct errbuf eb = {0};
    struct sim_asks a, b, other;
    (void)state;
    const struct sim_asks_conf c = conf(50, 1), d = conf(50, 2);
    assert_int_equal(sim_asks_read(&a, &c, &eb), ERR_OK);
    assert_int_equal(sim_asks_read(&b, &c, &eb), ERR_OK);
    assert_int_equal(sim_asks_read(&other, &d, &eb), ERR_OK);
    assert_int_equal(a.n, 150);
    unsigned seen[50][3] = {0};
    bool differs = false;
    for (size_t i = 0; i < a.n; i++) {
        assert_true(a.a[i].at_s >= 0 && a.a[i].at_s <= 8);
        if (i > 0) assert_true(a.a[i].at_s >= a.a[i - 1].at_s);
        seen[a.a[i].copy][a.a[i].out - 4]++;
        assert_true(a.a[i].at_s == b.a[i].at_s && a.a[i].copy == b.a[i].copy);
        differs |= a.a[i].at_s != other.a[i].at_s;
    }
    for (int k = 0; k < 50; k++)
        for (int r = 0; r < 3; r++) assert_int_equal(seen[k][r], 1);
    assert_true(differs);
    sim_asks_free(&a);
    sim_asks_free(&b);
    sim_asks_free(&other);
}

static void too_many(void **state) {
    struct errbuf eb = {0};
    struct sim_asks a;
    struct sim_asks_conf c = conf(0, 1);
    (void)state;
    c.trace = NULL;
    c.most = SIM_ASKS_MAX + 1;
    c.shape.rate = 1;
    c.shape.in = c.shape.out = (struct load_range){1, 1};
    assert_int_equal(sim_asks_read(&a, &c, &eb), ERR_TOO_LARGE);
    assert_non_null(strstr(eb.text, "4000001 requests"));
}

/* 2,048 tokens of prompt at 1 ms, and 15 of answer in batches of 10 with 40 ms: 2.048 s and 0.06 s
 * on two instances. */
static void as_much_as_was_wanted(void **state) {
    struct errbuf eb = {0};
    struct sim_conf s = {.instances = 2, .slots = 10, .first_token_s = 1, .token_s = 0.05};
    struct sim_asks a;
    (void)state;
    const struct sim_asks_conf c = conf(0, 1);
    perf_add_prompt(&s.perf, 512, 0.512);
    perf_add_prompt(&s.perf, 1024, 1.024);
    for (int b = 1; b <= 16; b *= 2) perf_add_step(&s.perf, b, 100, 0.040);
    assert_int_equal(sim_asks_read(&a, &c, &eb), ERR_OK);
    sim_asks_scale(&a, &s, 0.5);
    assert_true(fabs(a.a[2].at_s - (2.048 + 0.060) / 2 / 0.5) < 1e-9);
    assert_true(fabs(a.a[1].at_s / a.a[2].at_s - 3.0 / 8) < 1e-9);
    sim_asks_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_as_it_is),
        cmocka_unit_test(copies),
        cmocka_unit_test(too_many),
        cmocka_unit_test(as_much_as_was_wanted),
    };
    return cmocka_run_group_tests(tests, write_trace, remove_trace);
}
