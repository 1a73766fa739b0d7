/* Goal: the rate of an instance is right when its requests overlap, when it idles between them, and
 * soon after it changes. Method: answers of a made-up instance of known speed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/rate_meter.h"

enum { S = 1000000 };

/* One request after the other, with pauses that are no work: 100 tokens in 0.2 s. */
static void one_by_one(void **state) {
    struct rate_meter m = {0};
    uint64_t now = 5 * S;
    (void)state;
    for (int i = 0; i < 20; i++) {
        if (i < RATE_METER_ANSWERS_MIN) assert_true(rate_meter_get(&m) <= 0);
        rate_meter_add(&m, 100, now, now + S / 5);
        now += 3 * S;
    }
    assert_true(fabs(rate_meter_get(&m) - 500) < 1e-6);
}

/* Eight are sent at once and answered 0.1 s apart: the instance does 1,000 tokens a second, though
 * the last of them took 0.8 s. */
static void at_once(void **state) {
    struct rate_meter m = {0};
    (void)state;
    for (uint64_t i = 1; i <= 8; i++) rate_meter_add(&m, 100, 7 * S, 7 * S + i * S / 10);
    assert_true(fabs(rate_meter_get(&m) - 1000) < 1e-6);
}

/* It becomes ten times slower: after twice the time that counts the old rate is nearly gone. */
static void changes(void **state) {
    struct rate_meter m = {0};
    uint64_t now = S;
    (void)state;
    for (int i = 0; i < 100; i++, now += S / 5) rate_meter_add(&m, 1000, now, now + S / 5);
    assert_true(fabs(rate_meter_get(&m) - 5000) < 1);
    for (int i = 0; i < 2 * RATE_METER_S; i++, now += S) rate_meter_add(&m, 500, now, now + S);
    assert_true(rate_meter_get(&m) > 500 && rate_meter_get(&m) < 1200);
}

/* Answers of the same moment, and a clock that stands: no division by nothing. */
static void no_time(void **state) {
    struct rate_meter m = {0};
    (void)state;
    for (int i = 0; i < 10; i++) rate_meter_add(&m, 100, S, S);
    assert_true(rate_meter_get(&m) < 100 * 10 + 1);
    for (int i = 0; i < 10; i++) rate_meter_add(&m, 0, 2 * S, S);
    assert_true(isfinite(rate_meter_get(&m)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_by_one),
        cmocka_unit_test(at_once),
        cmocka_unit_test(changes),
        cmocka_unit_test(no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
