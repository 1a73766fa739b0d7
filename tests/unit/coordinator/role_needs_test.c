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

/* Needs of instances that do both without a loss: half of a decode instance is half of one. */
static inline struct role_needs needs_are(double p, double d, double whole) {
    struct role_needs out = {.p = p, .d = d, .whole = whole};
    for (int i = 0; i < ROLE_SHARES; i++) out.left[i] = 1 - (i + 1) / 10.0;
    return out;
}

static struct role_needs kept;
static const struct role_needs *ptr(struct role_needs need) {
    kept = need;
    return &kept;
}

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

/* Ten prompts of 200 ms a second, so 2 seconds a second, of variance 0.2 over their mean: nine of
 * ten wait no longer than the 0.8 s that the target leaves them on n with exp(-2 n 0.8 (n - 2) /
 * 0.4) = 0.1. Their answers of 100 tokens run 50 at a time, at 50 ms a step and 40 an instance. */
static void a_steady_load(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need;
    uint64_t now = 1000000;
    (void)state;
    come(&l, 10, 60, 200, &now);
    role_needs_of(&need, &l, &targets, &m, now);
    assert_about(need.p, 2.255);
    assert_about(need.d, (50 + 1.2816 * sqrt(50)) / 40);
    now += 60000000; /* it ends */
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(need.p < 0.01 && need.d < 0.01);
}

/* The same load unsplit, by hand: n instances each have prompts 2 / n of the time. So many decode
 * on each as the step for so many needs, which must be short enough, and no more of an answer's
 * time may have a prompt beside it than makes its mean gap 50 ms. */
static void unsplit(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need;
    uint64_t now = 1000000;
    double n = 2.1;
    (void)state;
    come(&l, 10, 60, 200, &now);
    role_needs_of(&need, &l, &targets, &m, now);
    for (; n < 20; n += 0.001) {
        const double r = 2 / n, part = r * 4 / 3;
        double step = 0.01;
        for (int i = 0; i < 100; i++) {
            const double runs = 1000 * step / (1 - r);
            step = 0.010 + 0.001 * (runs + 1.2816 * sqrt(runs)) / n;
        }
        const double runs_s = 100 * step / (1 - r),
                     variance = fmin(16 / 9.0 * r * (0.2 + 0.2 / n) / runs_s, part * (1 - part));
        if (step <= 0.05 && part + 1.2816 * sqrt(variance) <= 4 / 3.0 * (1 - step / 0.05)) break;
    }
    assert_about(need.whole, n);
    assert_true(need.whole > need.p + need.d); /* in small steps there are fewer rows */
    /* Prompts alone: they take a third longer between steps, whatever they have to wait. */
    l.new_tokens = 1;
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(need.whole > need.p && need.whole < 1.5 * need.p + 0.1);
    now += 3600000000;
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(need.whole < 0.01);
}

/* Crowds need more than the same load that comes evenly, of all three. */
static void crowds_need_more(void **state) {
    struct role_load even = {.arrivals = {.window_s = 5}, .new_tokens = 100}, crowds = even;
    struct perf_msg m = machine();
    struct role_needs a, b;
    uint64_t now = 1000000, then = 1000000;
    (void)state;
    come(&even, 4, 240, 200, &now);
    for (int i = 0; i < 12; i++) { /* 80 in four of twenty seconds */
        come(&crowds, 20, 4, 200, &then);
        then += 16000000;
    }
    role_needs_of(&a, &even, &targets, &m, now);
    role_needs_of(&b, &crowds, &targets, &m, then);
    print_message("needs %.2f %.2f %.2f, in crowds %.2f %.2f %.2f\n", a.p, a.d, a.whole, b.p, b.d,
                  b.whole);
    assert_true(b.p > 1.5 * a.p && b.d > 1.2 * a.d && b.whole > 1.2 * a.whole);
    /* and are no reason to forget it between them, as a load that came evenly and ended is */
    assert_true(b.p > 1);
    role_needs_of(&a, &even, &targets, &m, now + 16000000);
    assert_true(a.p < 0.2 * b.p / 4);
}

/* Chance is not followed: of few requests the last seconds say little. */
static void chance_is_not_followed(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need, few;
    uint64_t now = 1000000;
    (void)state;
    srand(5);
    for (int i = 0; i < 200; i++) {
        const double wait = -log((rand() + 1.0) / (RAND_MAX + 1.0));
        now += (uint64_t)(wait * 1e6);
        arrivals_add(&l.arrivals, 1, 200, 1, 0.2, now);
    }
    role_needs_of(&need, &l, &targets, &m, now);
    role_needs_of(&few, &l, &targets, &m, now + 2000000);
    assert_about(few.p, need.p);
    role_needs_of(&few, &l, &targets, &m, now + 15000000); /* nor is it that nobody comes at all */
    assert_true(few.p < 0.3 * need.p);
    come(&l, 10, 10, 200, &now); /* ten times as many are no chance */
    role_needs_of(&few, &l, &targets, &m, now);
    assert_true(few.p > 4 * need.p);
}

/* What a share leaves of a decode instance: 60 percent of 50 ms are steps of 30, 20 sequences
 * of 40.
 */
static void a_share_leaves_short_steps(void **state) {
    struct role_load l = {.arrivals = {.window_s = 5}, .new_tokens = 100};
    struct perf_msg m = machine();
    struct role_needs need;
    uint64_t now = 1000000;
    (void)state;
    come(&l, 10, 60, 200, &now);
    role_needs_of(&need, &l, &targets, &m, now);
    assert_true(fabs(need.left[3] - 20.0 / 39) < 0.03);
    for (int i = 1; i < ROLE_SHARES; i++) assert_true(need.left[i] <= need.left[i - 1]);
    assert_true(need.left[8] == 0); /* 5 ms are no step */
    const struct role_needs part = role_needs_part(&need, 0.25);
    assert_true(part.left[3] == need.left[3] && part.p == need.p / 4);
}

static void splits_and_not(void **state) {
    static const struct {
        double p, d, whole;
        size_t n_p, n_d;
        bool had, unsplit;
    } cases[] = {
        {1.5, 1.5, 2.6, 2, 2, false, true}, {1.5, 1.5, 2.8, 2, 2, false, false},
        {1.5, 1.5, 2.8, 2, 2, true, true},  {1.5, 1.5, 3.4, 2, 2, true, false},
        {1.5, 1.5, 0, 2, 2, true, false},   {0.6, 0.6, 1, 2, 2, false, false}, /* no pressure */
        {1.1, 1.1, 2, 2, 2, true, true},    {0.6, 0.6, 1, 2, 2, true, false},
        {2.9, 0.2, 5.5, 2, 2, true, false}, {2.9, 0.2, 5.5, 2, 2, false, false},
        {1.5, 1.5, 2.6, 0, 4, true, false}, {6, 6, 12.5, 8, 8, false, false},
        {6, 6, 9, 8, 8, false, true},       {NAN, NAN, NAN, 2, 2, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct role_needs need = needs_are(cases[i].p, cases[i].d, cases[i].whole);
        if (role_needs_unsplit(&need, cases[i].n_p, cases[i].n_d, cases[i].had) != cases[i].unsplit)
            fail_msg("case %zu", i);
    }
    /* Whoever is not split would not be at once again, nor the other way. */
    srand(9);
    for (int round = 0; round < 20000; round++) {
        const struct role_needs need =
            needs_are(rand() % 1000 * 0.01, rand() % 1000 * 0.01, rand() % 2000 * 0.01);
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
    assert_about(need.d, (80 + 1.2816 * sqrt(80)) / 40);
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
    assert_about(need.d, (64 + 1.2816 * 8) / 64);
    /* a quarter of the target may be waited for: 2 n (n - 1) 0.00025 = 0.001 log 10 */
    assert_about(need.p, 2.703);
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
        const struct role_needs need = needs_are(cases[i].p, cases[i].d, 0);
        const int lean = role_needs_lean(&need, cases[i].n_p, cases[i].n_d);
        if (lean != cases[i].lean) fail_msg("case %zu: %d", i, lean);
    }
}

/* Whatever the needs are, moves come to an end, and none is taken back. */
static void moves_end(void **state) {
    (void)state;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        const struct role_needs need = needs_are(rand() % 1000 * 0.02, rand() % 1000 * 0.02, 0);
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
    struct role_share s = role_needs_share(ptr(needs_are(1.8, 0.2, 0)), 1, 1, false);
    assert_true(!s.of_p && s.percent == 80);
    /* and mirrored the prefill instance keeps a fifth of its own */
    s = role_needs_share(ptr(needs_are(0.2, 1.8, 0)), 1, 1, false);
    assert_true(s.of_p && s.percent == 20);
    /* as it should be already */
    assert_int_equal(role_needs_share(ptr(needs_are(1, 1, 0)), 1, 1, false).percent, 0);
    assert_int_equal(role_needs_share(ptr(needs_are(3, 3, 0)), 2, 2, false).percent, 0);
    /* little to do: none begins, one that is there stays a while */
    assert_int_equal(role_needs_share(ptr(needs_are(0.6, 0.1, 0)), 1, 1, false).percent, 0);
    assert_true(role_needs_share(ptr(needs_are(0.6, 0.1, 0)), 1, 1, true).percent > 0);
    assert_int_equal(role_needs_share(ptr(needs_are(0.4, 0.1, 0)), 1, 1, true).percent, 0);
    /* a whole instance more is rule 5's affair; until it comes there is as much as can be given */
    assert_int_equal(role_needs_share(ptr(needs_are(9, 0.1, 0)), 1, 3, false).percent, 90);
    /* one whose steps would be too long decodes nothing, and that is counted */
    struct role_needs need = needs_are(1.8, 0.4, 0);
    for (int i = 4; i < ROLE_SHARES; i++) need.left[i] = 0;
    s = role_needs_share(&need, 1, 1, false);
    assert_true(!s.of_p && s.percent == 40);
    assert_int_equal(role_needs_share(ptr(needs_are(0, 0, 0)), 1, 1, true).percent, 0);
    assert_int_equal(role_needs_share(ptr(needs_are(2, 2, 0)), 0, 2, false).percent, 0);
}

/* With a share neither side is under more pressure than the worse one was without. */
static void shares_relieve(void **state) {
    (void)state;
    for (int n_p = 1; n_p <= 8; n_p++)
        for (int n_d = 1; n_d <= 8; n_d++)
            for (int a = 0; a < 40; a++)
                for (int b = 0; b < 40; b++) {
                    const struct role_needs need = needs_are(a * 0.25, b * 0.25, 0);
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
        cmocka_unit_test(crowds_need_more),
        cmocka_unit_test(chance_is_not_followed),
        cmocka_unit_test(a_share_leaves_short_steps),
        cmocka_unit_test(splits_and_not),
        cmocka_unit_test(what_waits_counts),
        cmocka_unit_test(out_of_reach),
        cmocka_unit_test(leans),
        cmocka_unit_test(moves_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
