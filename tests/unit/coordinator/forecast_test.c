/* Goal: what would come too late is told from what is only long, and when to come again follows
 * from the wait. Method: the cases by hand; random facts against what the header says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/forecast.h"

static const struct forecast_targets targets = {.first_token_s = 1, .token_s = 0.05, .factor = 2};

static struct forecast of(struct forecast_facts f, struct forecast_targets t) {
    struct forecast out;
    forecast_of(&out, &f, &t);
    return out;
}

static void in_time(void **state) {
    (void)state;
    struct forecast f =
        of((struct forecast_facts){.pair_s = 1.9, .own_s = 0.1, .idle = true}, targets);
    assert_true(f.says == FORECAST_IN_TIME && f.first_token_s == 1.9);
    f = of((struct forecast_facts){.n_before = 10, .placed_per_s = 10, .pair_s = 0.9, .own_s = 0.1},
           targets);
    assert_true(f.says == FORECAST_IN_TIME);
    /* nobody knows */
    assert_true(of((struct forecast_facts){.n_before = 1000}, targets).says == FORECAST_IN_TIME);
    /* no target is set */
    f = of((struct forecast_facts){.n_before = 1000, .placed_per_s = 1, .pair_s = 9, .own_s = 1},
           (struct forecast_targets){.first_token_s = 1, .token_s = 0.05});
    assert_true(f.says == FORECAST_IN_TIME);
}

static void late(void **state) {
    (void)state;
    struct forecast f =
        of((struct forecast_facts){.n_before = 50, .placed_per_s = 10, .pair_s = 0.6, .own_s = 0.1},
           targets);
    assert_int_equal(f.says, FORECAST_LATE);
    assert_true(f.first_token_s > 5.59 && f.first_token_s < 5.61);
    assert_int_equal(f.retry_after_s, 4); /* 5.5 s of waiting, 1.9 are allowed */
    f = of((struct forecast_facts){.n_before = 50, .pair_s = 0.1, .own_s = 0.1}, targets);
    assert_true(f.says == FORECAST_LATE && f.retry_after_s == FORECAST_RETRY_S_MAX);
}

/* A prompt of 10 s cannot be there in 2, whoever waits: only its wait counts. */
static void long_prompts(void **state) {
    (void)state;
    assert_int_equal(of((struct forecast_facts){.pair_s = 10.4, .own_s = 10}, targets).says,
                     FORECAST_IN_TIME);
    assert_int_equal(of((struct forecast_facts){.pair_s = 10.6, .own_s = 10}, targets).says,
                     FORECAST_LATE);
}

static void slow(void **state) {
    (void)state;
    const struct forecast_facts f = {.pair_s = 0.1, .own_s = 0.1, .step_s = 0.11};
    assert_int_equal(of(f, targets).says, FORECAST_SLOW);
    struct forecast_facts g = f;
    g.idle = true; /* such is the model: to refuse would be for ever */
    assert_int_equal(of(g, targets).says, FORECAST_IN_TIME);
    g = f;
    g.step_s = 0.09;
    assert_int_equal(of(g, targets).says, FORECAST_IN_TIME);
}

static void deadlines(void **state) {
    struct forecast_targets t = {.first_token_s = 1, .token_s = 0.05, .deadline_s = 0.5};
    (void)state;
    assert_int_equal(of((struct forecast_facts){.pair_s = 0.4, .own_s = 0.4}, t).says,
                     FORECAST_IN_TIME);
    assert_int_equal(of((struct forecast_facts){.pair_s = 0.6, .own_s = 0.6}, t).says,
                     FORECAST_LATE);
}

static void random_facts(void **state) {
    uint64_t rng = 5;
    unsigned n[3] = {0};
    (void)state;
    for (int i = 0; i < 20000; i++) {
        double r[6];
        for (int k = 0; k < 6; k++) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            r[k] = (double)(rng >> 33) / (double)(1u << 31);
        }
        const struct forecast_facts f = {.n_before = (double)(int)(r[0] * 20),
                                         .placed_per_s = r[1] * 20,
                                         .own_s = r[2],
                                         .pair_s = r[2] + 2 * r[3],
                                         .step_s = r[4] / 5,
                                         .idle = r[5] < 0.5};
        const struct forecast got = of(f, targets);
        n[got.says]++;
        assert_true(got.retry_after_s >= 1 && got.retry_after_s <= FORECAST_RETRY_S_MAX);
        assert_true(got.first_token_s >= f.pair_s);
        if (got.says == FORECAST_LATE)
            assert_true(got.first_token_s > 2 * targets.first_token_s * 0.999);
        if (f.n_before == 0 && f.pair_s <= 2) assert_true(got.says != FORECAST_LATE);
        /* more in front is never better */
        struct forecast_facts more = f;
        more.n_before += 5;
        if (got.says == FORECAST_LATE) assert_int_equal(of(more, targets).says, FORECAST_LATE);
    }
    assert_true(n[0] > 100 && n[1] > 100 && n[2] > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_time), cmocka_unit_test(late),      cmocka_unit_test(long_prompts),
        cmocka_unit_test(slow),    cmocka_unit_test(deadlines), cmocka_unit_test(random_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
