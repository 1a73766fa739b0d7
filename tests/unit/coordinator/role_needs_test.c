/* Goal: the forecast of how many instances of each role a load needs follows the load, and is acted
 * upon only where that helps clearly. Method: machines of known speed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "coordinator/role_needs.h"

static const struct role_targets targets = {.first_token_s = 1, .token_s = 0.05, .slots = 64};

static void assert_about(double a, double b) {
    if (!(fabs(a - b) <= 0.05 * b)) fail_msg("%g is not about %g", a, b);
}

/* 1 ms a prompt token, steps of 10 ms and 1 ms a sequence. */
static struct perf_msg machine(void) {
    struct perf_msg m = {0};
    for (int n = 16; n <= 4096; n *= 2) perf_add_prompt(&m, n, n * 1e-3);
    for (int b = 1; b <= 64; b *= 2) perf_add_step(&m, b, 100, 0.010 + 0.001 * b);
    return m;
}

/* `rate` requests a second for so long, of these tokens. */
static void come(struct role_load *l, double rate, double seconds, double tokens,
                 uint64_t *now_us) {
    for (double t = 0; t < seconds; t += 1 / rate) {
        *now_us += (uint64_t)(1e6 / rate);
        arrivals_add(&l->arrivals, 1, tokens, 1, tokens * 1e-3, *now_us);
    }
}

static void nothing_is_known(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg none = {0}, m = machine();
    struct role_needs need;
    uint64_t now = 1000000;
    (void)state;
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(need.p == 0 && need.d == 0);
    come(&l, 10, 20, 200, &now);
    role_needs_of(&need, &l, &targets, &none, now);
    assert_true(need.p == 0 && need.d == 0);
}

/* Ten prompts of 200 ms a second keep two instances busy; these may be busy 0.89 of the time, as
 * 0.8 s are left to wait. Their answers of 100 tokens run 40 at once, at 50 ms a step. */
static void a_steady_load(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need;
    uint64_t now = 1000000;
    (void)state;
    come(&l, 10, 60, 200, &now);
    role_needs_of(&need, &l, &targets, &m, now);
    assert_about(need.p, 2 / (2 * 0.8 / (0.2 + 2 * 0.8)));
    assert_about(need.d, 10 * 100 * 0.05 / 40 / 0.9);
    now += 60000000; /* it ends */
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(need.p < 0.01 && need.d < 0.01);
}

/* The same load unsplit, by hand: of so many instances each prompts 2 / n of the time, has
 * 1 - 2 / n of 50 ms for a step, so (50 (1 - 2 / n) - 10) sequences at 1000 tokens a second. */
static void unsplit(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need;
    uint64_t now = 1000000;
    double n = 2.1;
    (void)state;
    come(&l, 10, 60, 200, &now);
    role_needs_of(&need, &l, &targets, &m, now);
    for (; n < 10; n += 0.001) {
        const double step = 0.05 * (1 - 2 / n), batch = floor(step * 1e3 - 10);
        if (batch >= 1 && 1000 * (0.010 + 0.001 * batch) / (1 - 2 / n) / batch / 0.9 <= n) break;
    }
    assert_about(need.whole, n);
    assert_true(need.whole > need.p + need.d); /* in small steps there are fewer rows */
    /* Prompts alone: they take a third longer between steps, whatever they have to wait. */
    l.new_tokens = 1;
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(need.whole > need.p && need.whole < 1.5 * need.p + 0.1);
    now += 600000000;
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(need.whole < 0.01);
}

static void splits_and_not(void **state) {
    static const struct {
        double p, d, whole;
        size_t n_p, n_d;
        bool had, unsplit;
    } cases[] = {
        {1.5, 1.5, 3.1, 2, 2, false, true},  {1.5, 1.5, 0, 2, 2, true, false},
        {0.7, 0.7, 1.5, 2, 2, false, false}, {0.7, 0.7, 1.5, 2, 2, true, true}, /* little to do */
        {0.3, 0.3, 0.7, 2, 2, true, false},  {2.9, 0.2, 5.5, 2, 2, true, false},
        {2.9, 0.2, 5.5, 2, 2, false, false}, {1.5, 1.5, 3.1, 0, 4, true, false},
        {6, 6, 12.5, 8, 8, false, false},    {6, 6, 9, 8, 8, false, true}, /* by far better */
        {NAN, NAN, NAN, 2, 2, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct role_needs need = {cases[i].p, cases[i].d, cases[i].whole};
        if (role_needs_unsplit(&need, cases[i].n_p, cases[i].n_d, cases[i].had) != cases[i].unsplit)
            fail_msg("case %zu", i);
    }
    /* Whoever is not split would not be at once again, nor the other way. */
    srand(9);
    for (int round = 0; round < 20000; round++) {
        const struct role_needs need = {rand() % 1000 * 0.01, rand() % 1000 * 0.01,
                                        rand() % 2000 * 0.01};
        const size_t n_p = 1 + (size_t)rand() % 8, n_d = 1 + (size_t)rand() % 8;
        if (role_needs_unsplit(&need, n_p, n_d, false))
            assert_true(role_needs_unsplit(&need, n_p, n_d, true));
    }
}

static void what_waits_counts(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need;
    (void)state;
    l.backlog_prompt_s = 20;
    role_needs_of(&need, &l, &targets, &m, 1);
    assert_true(need.p > 2 && need.d == 0);
    l = (struct role_load){.arrivals = {.window_s = 5}, .decoding = 80, .new_tokens = 100};
    role_needs_of(&need, &l, &targets, &m, 1);
    assert_true(need.p == 0);
    assert_about(need.d, 80 / 40.0 / 0.9);
}

/* A target that no batch meets: the batch of the highest rate, which is the largest here. */
static void out_of_reach(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .decoding = 64, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need;
    struct role_targets t = targets;
    (void)state;
    t.token_s = 0.005;
    t.first_token_s = 0.001;
    l.backlog_prompt_s = 10;
    role_needs_of(&need, &l, &t, &m, 1);
    assert_about(need.d, 64 / 64.0 / 0.9);
    assert_about(need.p, 1 / 0.5);
}

static void leans(void **state) {
    static const struct {
        double p, d;
        size_t n_p, n_d;
        int lean;
    } cases[] = {
        {0, 0, 2, 2, 0},   {0.5, 0.5, 1, 1, 0}, {5, 0.1, 1, 1, 0},   /* one of each stays */
        {3, 0.5, 2, 2, 1}, {0.5, 3, 2, 2, -1},  {1.2, 0.1, 2, 2, 0}, /* no pressure */
        {2, 2, 2, 2, 0},   {10, 10, 2, 2, 0},   {10, 8, 2, 2, 0},    /* no relief */
        {100, 1, 3, 1, 0}, {100, 1, 1, 3, 1},   {1, 100, 3, 1, -1},  {1, 100, 1, 3, 0},
        {4, 1, 0, 4, 0},   {4, 1, 4, 0, 0},     {NAN, NAN, 2, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct role_needs need = {cases[i].p, cases[i].d, 0};
        const int lean = role_needs_lean(&need, cases[i].n_p, cases[i].n_d);
        if (lean != cases[i].lean) fail_msg("case %zu: %d", i, lean);
    }
}

/* Whatever the needs are, moves come to an end, and none is taken back. */
static void moves_end(void **state) {
    (void)state;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        const struct role_needs need = {rand() % 1000 * 0.02, rand() % 1000 * 0.02, 0};
        size_t n = 2 + (size_t)(rand() % 30), n_p = 1 + (size_t)rand() % (n - 1);
        int first = 0, lean;
        for (size_t moves = 0; (lean = role_needs_lean(&need, n_p, n - n_p)) != 0; moves++) {
            if (first == 0) first = lean;
            if (lean != first || moves > n) fail_msg("needs %g and %g of %zu", need.p, need.d, n);
            n_p = lean > 0 ? n_p + 1 : n_p - 1;
            assert_true(n_p >= 1 && n_p < n);
        }
    }
}

/* ---- shares */
static void one_that_does_both(void **state) {
    (void)state;
    /* 1P1D, nearly all of it prompts: the decode instance helps with four fifths of its time */
    struct role_share s = role_needs_share(&(struct role_needs){1.8, 0.2, 0}, 1, 1, false);
    assert_true(!s.of_p && s.percent == 80);
    /* and mirrored the prefill instance keeps a fifth of its own */
    s = role_needs_share(&(struct role_needs){0.2, 1.8, 0}, 1, 1, false);
    assert_true(s.of_p && s.percent == 20);
    /* as it should be already */
    assert_int_equal(role_needs_share(&(struct role_needs){1, 1, 0}, 1, 1, false).percent, 0);
    assert_int_equal(role_needs_share(&(struct role_needs){3, 3, 0}, 2, 2, false).percent, 0);
    /* little to do: none begins, one that is there stays a while */
    assert_int_equal(role_needs_share(&(struct role_needs){0.6, 0.1, 0}, 1, 1, false).percent, 0);
    assert_true(role_needs_share(&(struct role_needs){0.6, 0.1, 0}, 1, 1, true).percent > 0);
    assert_int_equal(role_needs_share(&(struct role_needs){0.4, 0.1, 0}, 1, 1, true).percent, 0);
    /* a whole instance more is rule 5's affair */
    assert_int_equal(role_needs_share(&(struct role_needs){9, 0.1, 0}, 1, 3, false).percent, 0);
    assert_int_equal(role_needs_share(&(struct role_needs){0, 0, 0}, 1, 1, true).percent, 0);
    assert_int_equal(role_needs_share(&(struct role_needs){2, 2, 0}, 0, 2, false).percent, 0);
}

/* With a share neither side is under more pressure than the worse one was without. */
static void shares_relieve(void **state) {
    (void)state;
    for (int n_p = 1; n_p <= 8; n_p++)
        for (int n_d = 1; n_d <= 8; n_d++)
            for (int a = 0; a < 40; a++)
                for (int b = 0; b < 40; b++) {
                    const struct role_needs need = {a * 0.25, b * 0.25, 0};
                    const struct role_share s =
                        role_needs_share(&need, (size_t)n_p, (size_t)n_d, false);
                    if (s.percent == 0) continue;
                    const double x = s.percent / 100.0, p = n_p - s.of_p + x,
                                 d = n_d - !s.of_p + 1 - x;
                    const double was = fmax(need.p / n_p, need.d / n_d),
                                 is = fmax(need.p / p, need.d / d);
                    assert_true(s.percent % 10 == 0 && s.percent >= 10 && s.percent <= 90);
                    assert_true(was >= 0.7 && is <= was * 0.9 + 1e-9);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known),
        cmocka_unit_test(one_that_does_both),
        cmocka_unit_test(shares_relieve),
        cmocka_unit_test(a_steady_load),
        cmocka_unit_test(unsplit),
        cmocka_unit_test(splits_and_not),
        cmocka_unit_test(what_waits_counts),
        cmocka_unit_test(out_of_reach),
        cmocka_unit_test(leans),
        cmocka_unit_test(moves_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
