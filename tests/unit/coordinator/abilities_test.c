/* Goal: like instances count as alike however differently they have measured themselves; one that
 * is off for long has a pace of its own, until it is not any more or nothing new is heard.
 * Method: instances of known speed, a made-up clock. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/abilities.h"

enum { N_MAX = 24 };

static struct abilities all;
static struct ability of[N_MAX];
static struct perf_msg said[N_MAX];
static uint64_t now_ms;

static void assert_near(double a, double b) {
    if (!(fabs(a - b) <= 1e-9 + 1e-6 * fabs(b))) fail_msg("%g is not %g", a, b);
}

static void begin(void) {
    memset(of, 0, sizeof(of));
    memset(said, 0, sizeof(said));
    now_ms = 1000000;
}

/* 1 ms a token, 10 ms a step, times its factor, measured 32 times each; a jitter tells this time
 * from the last one. */
static void measure(size_t i, const char *kind, double factor, double jitter) {
    struct perf_msg *m = &said[i];
    memset(m, 0, sizeof(*m));
    snprintf(m->kind, sizeof(m->kind), "%s", kind);
    factor *= 1 + jitter;
    for (int k = 0; k < PERF_SAMPLES; k++) {
        perf_add_prompt(m, 64, 0.064 * factor);
        perf_add_prompt(m, 512, 0.512 * factor);
        perf_add_step(m, 1, 64, 0.010 * factor);
        perf_add_step(m, 8, 64, 0.017 * factor);
    }
}

static void take(size_t n) {
    abilities_begin(&all);
    for (size_t i = 0; i < n; i++) abilities_add(&all, &of[i], &said[i]);
    for (size_t i = 0; i < n; i++) abilities_note(&all, &of[i], &said[i], now_ms);
}

static double prompt_s(size_t i) {
    return perf_prompt_s(abilities_of(&all, &of[i]), 512) * pace_of(&of[i].prompt, now_ms);
}

/* A second of a poll each; factors of n instances of one kind. */
static void pass(size_t n, const double *factors, unsigned seconds, bool news) {
    for (unsigned s = 0; s < seconds; s++) {
        now_ms += 1000;
        for (size_t i = 0; i < n; i++)
            measure(i, "a", factors[i], news ? 1e-9 * (double)(now_ms % 1000000) : 0);
        take(n);
    }
}

static void like_ones_are_alike(void **state) {
    static const double factors[] = {1, 1.3, 0.9, 1.2};
    (void)state;
    begin();
    pass(4, factors, 60, true);
    for (size_t i = 0; i < 4; i++) assert_near(prompt_s(i), prompt_s(0));
    assert_true(fabs(prompt_s(0) - 0.512 * 1.1) < 0.001);
}

static void one_that_is_off_for_long_is_not(void **state) {
    static const double off[] = {1, 1, 2, 1}, near[] = {1, 1, 1.4, 1}, well[] = {1, 1, 1.2, 1};
    (void)state;
    begin();
    pass(4, off, 9, true); /* not for long yet */
    assert_near(prompt_s(2), prompt_s(0));
    pass(4, off, 3, true);
    assert_true(fabs(prompt_s(2) / prompt_s(0) - 2) < 0.001);
    pass(4, near, 1, true); /* it is off still */
    assert_true(fabs(prompt_s(2) / prompt_s(0) - 1.4) < 0.001);
    pass(4, well, 1, true);
    assert_near(prompt_s(2), prompt_s(0));
    pass(4, near, 60, true);
    assert_near(prompt_s(2), prompt_s(0));
}

/* Of two nobody is the mean: each is off by what the other is. */
static void two_that_differ(void **state) {
    static const double off[] = {1, 3};
    (void)state;
    begin();
    pass(2, off, 12, true);
    assert_true(of[0].prompt.counts && of[1].prompt.counts);
    assert_true(prompt_s(1) > 4 * prompt_s(0));
}

/* Whoever is given nothing because it was slow once must be tried again. */
static void what_is_old_is_forgotten(void **state) {
    static const double off[] = {1, 1, 3};
    (void)state;
    begin();
    pass(3, off, 12, true);
    assert_true(pace_of(&of[2].step, now_ms) > 2.9);
    pass(3, off, PACE_FADES_MS / 1000 + 2, false);
    assert_near(pace_of(&of[2].step, now_ms), 1);
    pass(3, off, 60, false); /* the same figures again say nothing */
    assert_near(pace_of(&of[2].step, now_ms), 1);
    pass(3, off, 12, true);
    assert_true(pace_of(&of[2].step, now_ms) > 2.9);
}

static void kinds_are_apart(void **state) {
    (void)state;
    begin();
    measure(0, "a", 1, 0);
    measure(1, "a", 1, 0);
    measure(2, "b", 5, 0);
    said[3] = (struct perf_msg){.kind = "b"};
    said[4] = (struct perf_msg){.kind = "c"}; /* nobody of it has measured */
    take(5);
    assert_near(prompt_s(0), 0.512);
    assert_near(prompt_s(2), 5 * 0.512);
    assert_near(prompt_s(3), 5 * 0.512);
    assert_near(prompt_s(4), 0.512 * 7 / 3);
    /* More kinds than there is room for are as all are. */
    for (size_t i = 0; i < N_MAX; i++) {
        char kind[8];
        snprintf(kind, sizeof(kind), "k%zu", i);
        measure(i, kind, 1 + (double)i, 0);
    }
    take(N_MAX);
    assert_near(prompt_s(0), 0.512);
    assert_int_equal(of[N_MAX - 1].kind, 0);
    assert_near(prompt_s(N_MAX - 1), 0.512 * 12.5);
}

/* Probes alone are an accident: eight prompts and fifty steps are wanted of a kind. */
static void few_samples_count_with_all(void **state) {
    (void)state;
    begin();
    measure(0, "a", 1, 0);
    snprintf(said[1].kind, sizeof(said[1].kind), "b");
    perf_add_prompt(&said[1], 512, 9);
    perf_add_step(&said[1], 1, 64, 9);
    take(2);
    assert_near(prompt_s(0), 0.512);
    assert_true(prompt_s(1) > 0.512 && prompt_s(1) < 1);
    assert_near(prompt_s(1), perf_prompt_s(&all.of[0], 512));
}

static void links(void **state) {
    double r[] = {100, 0, 150, 80, 20, 1000}, none[] = {0, 0};
    (void)state;
    abilities_level_rates(none, 2);
    assert_near(none[0], 0);
    abilities_level_rates(r, 6);
    const double mean = exp((log(100) + log(150) + log(80) + log(20) + log(1000)) / 5);
    for (size_t i = 0; i < 4; i++) assert_near(r[i], mean);
    assert_near(r[4], 20);
    assert_near(r[5], 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_ones_are_alike),
        cmocka_unit_test(one_that_is_off_for_long_is_not),
        cmocka_unit_test(two_that_differ),
        cmocka_unit_test(what_is_old_is_forgotten),
        cmocka_unit_test(kinds_are_apart),
        cmocka_unit_test(few_samples_count_with_all),
        cmocka_unit_test(links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
