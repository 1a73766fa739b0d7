/* Goal: what an instance measures of itself is a mean of the newest samples, is read between and
 * beyond them without nonsense, and comes through JSON unchanged and bounded. Method: samples of
 * known machines. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/json.h"
#include "proto/perf_msg.h"

static void assert_near(double a, double b) {
    const double d = a > b ? a - b : b - a;
    if (d > 1e-9 * (1 + (b > 0 ? b : -b))) fail_msg("%.12g is not %.12g", a, b);
}

static void nothing_is_known(void **state) {
    struct perf_msg m = {0};
    (void)state;
    assert_near(perf_prompt_s(&m, 100), 0);
    assert_near(perf_step_s(&m, 4, 100), 0);
    perf_add_prompt(&m, 0, 1);
    perf_add_prompt(&m, 10, 0);
    perf_add_prompt(&m, 10, -1);
    perf_add_prompt(&m, 10, (double)NAN);
    perf_add_step(&m, 1, -1, 1);
    perf_add_step(&m, 0, 10, 1);
    assert_near(perf_prompt_s(&m, 100), 0);
    assert_near(perf_step_s(&m, 4, 100), 0);
}

/* A machine of 1 ms a token: exact at, between, below and above what was measured. */
static void prompts(void **state) {
    struct perf_msg m = {0};
    (void)state;
    perf_add_prompt(&m, 64, 0.064);
    assert_near(perf_prompt_s(&m, 32), 0.032);
    assert_near(perf_prompt_s(&m, 640), 0.64);
    perf_add_prompt(&m, 1000, 1.0);
    perf_add_prompt(&m, 16, 0.016);
    for (double n = 1; n < 5000; n += 7) assert_near(perf_prompt_s(&m, n), n * 1e-3);
}

/* Longer prompts cost more a token; the last line goes on, and never down. */
static void beyond(void **state) {
    struct perf_msg m = {0};
    (void)state;
    perf_add_prompt(&m, 100, 0.1);
    perf_add_prompt(&m, 200, 0.3);
    assert_near(perf_prompt_s(&m, 300), 0.5);
    perf_add_prompt(&m, 3000, 0.2); /* a wild one: both are taken for their mean */
    assert_near(perf_prompt_s(&m, 30000), 0.25);
    assert_near(perf_prompt_s(&m, 2900), 0.25);
}

static void steps(void **state) {
    struct perf_msg m = {0};
    (void)state;
    for (int batch = 1; batch <= 16; batch *= 2) {
        perf_add_step(&m, batch, 100, 0.010 + 0.001 * batch);
        perf_add_step(&m, batch, 4000, 0.030 + 0.003 * batch);
    }
    assert_near(perf_step_s(&m, 3, 50), 0.013);
    assert_near(perf_step_s(&m, 16, 100), 0.026);
    assert_near(perf_step_s(&m, 32, 100), 0.042);
    assert_near(perf_step_s(&m, 4, 3000), 0.042);
    assert_near(perf_step_s(&m, 0.5, 100), 0.011); /* no step is shorter than that of one */
}

static void newest_count(void **state) {
    struct perf_msg m = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) perf_add_prompt(&m, 100, 1);
    for (int i = 0; i < 10 * PERF_SAMPLES; i++) perf_add_prompt(&m, 100, 2);
    assert_true(perf_prompt_s(&m, 100) > 1.99 && perf_prompt_s(&m, 100) <= 2);
}

static void merge(void **state) {
    struct perf_msg a = {0}, b = {0}, all = {0};
    (void)state;
    perf_add_prompt(&a, 100, 1);
    perf_add_prompt(&b, 100, 3);
    perf_add_step(&b, 2, 10, 0.5);
    perf_merge(&all, &a);
    perf_merge(&all, &b);
    assert_near(perf_prompt_s(&all, 100), 2);
    assert_near(perf_step_s(&all, 2, 10), 0.5);
}

/* All count the same, however many there are; one of them can be taken out again. */
static void merge_many(void **state) {
    struct perf_msg one[5], all = {0}, rest;
    (void)state;
    for (int i = 0; i < 5; i++) {
        memset(&one[i], 0, sizeof(one[i]));
        for (int k = 0; k < PERF_SAMPLES; k++) {
            perf_add_prompt(&one[i], 100, 1 + i);
            perf_add_step(&one[i], 4, 10, 2 * (1 + i));
        }
        perf_merge(&all, &one[i]);
    }
    assert_near(perf_prompt_s(&all, 100), 3);
    assert_near(perf_step_s(&all, 4, 10), 6);
    perf_without(&rest, &all, &one[4]);
    assert_near(perf_prompt_s(&rest, 100), 2.5);
    assert_near(perf_step_s(&rest, 4, 10), 5);
    assert_near(perf_prompt_ratio(&one[4], &rest), 2);
    assert_near(perf_step_ratio(&one[0], &rest), 0.4);
    for (int i = 0; i < 4; i++) perf_without(&rest, &rest, &one[i]);
    assert_near(perf_prompt_s(&rest, 100), 0);
    assert_near(perf_prompt_ratio(&one[0], &rest), 0); /* nobody to compare with */
}

/* Noise in a curve that can only rise: neighbours in the wrong order have their mean, and one
 * sequence more never costs less in a larger batch. */
static void rising(void **state) {
    struct perf_msg m = {0};
    (void)state;
    perf_add_step(&m, 1, 10, 0.002);
    perf_add_step(&m, 2, 10, 0.006);
    perf_add_step(&m, 4, 10, 0.004);
    perf_add_step(&m, 8, 10, 0.005);
    assert_near(perf_step_s(&m, 2, 10), 0.005);
    assert_near(perf_step_s(&m, 4, 10), 0.005);
    assert_near(perf_step_s(&m, 8, 10), 0.005);
    assert_near(perf_step_s(&m, 1, 10), 0.002);
    for (int b = 1; b <= 8; b++) assert_near(perf_step_more_s(&m, b, 10), 0.003 / 7);
    perf_add_step(&m, 16, 10, 0.021);
    assert_near(perf_step_more_s(&m, 4, 10), 0.003 / 7);
    assert_near(perf_step_more_s(&m, 8, 10), 0.002);
    assert_near(perf_step_more_s(&m, 100, 10), 0.002);
    for (double b = 1; b < 40; b++)
        assert_true(perf_step_s(&m, b + 1, 10) >= perf_step_s(&m, b, 10) - 1e-12);
}

static void json(void **state) {
    struct perf_msg m = {.kind = "amx/2/bf16-bf16/0a1b2c3d"}, back;
    struct errbuf eb = {0};
    (void)state;
    for (int i = 0; i < PERF_LENGTHS; i++) perf_add_prompt(&m, 16 << i, 0.25 * (i + 1));
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++)
            perf_add_step(&m, 1 << i, 128 << (2 * k), 0.125 * (i + k + 1));
    struct json_value *o = perf_format(&m);
    assert_int_equal(perf_parse(&back, o, &eb), ERR_OK);
    assert_memory_equal(&back, &m, sizeof(m));
    json_put(o);
    assert_int_equal(perf_parse(&back, NULL, &eb), ERR_OK);
    assert_near(perf_prompt_s(&back, 100), 0);
}

static void bad_json(void **state) {
    static const char *const cases[][2] = {
        {"{\"prompts\":[{\"seconds\":1,\"samples\":1}]}",
         "perf.prompts[0].tokens must be a number"},
        {"{\"prompts\":[{\"tokens\":1,\"seconds\":-1,\"samples\":1}]}",
         "perf.prompts[0].seconds must be a number from 0 to 1e+06"},
        {"{\"prompts\":[{\"tokens\":1,\"seconds\":1,\"samples\":0}]}",
         "perf.prompts[0].samples must be a positive integer"},
        {"{\"prompts\":[{\"tokens\":1,\"seconds\":1,\"samples\":1},7]}",
         "perf.prompts[1].tokens must be a number"},
        {"{\"steps\":[{\"batch\":1,\"context\":1e10,\"seconds\":1,\"samples\":1}]}",
         "perf.steps[0].context must be a number from 0 to 1e+09"},
        {"{\"kind\":7}", "perf.kind must be a string of at most 47 letters, digits and ._/-"},
        {"{\"kind\":\"a b\"}", "perf.kind must be a string"},
        {"{\"kind\":\"012345678901234567890123456789012345678901234567\"}", "perf.kind must be"},
        {"{\"prompts\":[0,0,0,0,0,0,0,0,0,0,0,0,0]}",
         "perf.prompts has 13 entries, at most 12 are allowed"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_value *o;
        struct perf_msg m;
        struct errbuf eb = {0};
        assert_int_equal(json_read(&o, cases[i][0], strlen(cases[i][0]), NULL, &eb), ERR_OK);
        assert_int_equal(perf_parse(&m, o, &eb), ERR_INVALID);
        if (strstr(eb.text, cases[i][1]) == NULL) fail_msg("%zu: %s", i, eb.text);
        json_put(o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known),
        cmocka_unit_test(prompts),
        cmocka_unit_test(beyond),
        cmocka_unit_test(steps),
        cmocka_unit_test(newest_count),
        cmocka_unit_test(merge),
        cmocka_unit_test(merge_many),
        cmocka_unit_test(rising),
        cmocka_unit_test(json),
        cmocka_unit_test(bad_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
