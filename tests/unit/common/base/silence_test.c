/* Goal: silence is what its observer has lived through. Method: looks at times of the test's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "common/base/silence.h"

enum { STEP = 200 };

static void steps_add_up(void **state) {
    struct silence s = {0};
    (void)state;
    silence_look(&s, 5000, STEP);
    assert_int_equal(s.ms, 0); /* the first look */
    for (int i = 1; i <= 10; i++) silence_look(&s, 5000 + 100 * (uint64_t)i, STEP);
    assert_int_equal(s.ms, 1000);
    silence_look(&s, 6000, STEP); /* a second look in the same millisecond */
    assert_int_equal(s.ms, 1000);
    silence_look(&s, 6200, STEP);
    assert_int_equal(s.ms, 1200);
}

static void a_sign_of_life_ends_it(void **state) {
    struct silence s = {0};
    (void)state;
    silence_look(&s, 1000, STEP);
    silence_look(&s, 1100, STEP);
    silence_end(&s);
    assert_int_equal(s.ms, 0);
    silence_look(&s, 1150, STEP); /* since the look, not since the sign */
    assert_int_equal(s.ms, 50);
}

/* However long nobody looked, it is one step. */
static void an_observer_that_stood_still(void **state) {
    struct silence s = {0};
    (void)state;
    silence_look(&s, 1000, STEP);
    silence_look(&s, 61000, STEP);
    assert_int_equal(s.ms, STEP);
    silence_look(&s, 61100, STEP);
    assert_int_equal(s.ms, STEP + 100);
}

static void a_clock_that_goes_back(void **state) {
    struct silence s = {0};
    (void)state;
    silence_look(&s, 2000, STEP);
    silence_look(&s, 1000, STEP);
    assert_int_equal(s.ms, 0);
    silence_look(&s, 1100, STEP);
    assert_int_equal(s.ms, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_add_up),
        cmocka_unit_test(a_sign_of_life_ends_it),
        cmocka_unit_test(an_observer_that_stood_still),
        cmocka_unit_test(a_clock_that_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
