/* Goal: an armed point fails at its n-th hit, once; nothing else fails.
 * Method: the environment is set before the first hit, which reads it. Builds without failure
 * points compile them into this test alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifndef BATON_FAULTS
#define BATON_FAULTS
#include "common/base/fault.c"
#else
#include "common/base/fault.h"
#endif

static void nth_hit_fails_once(void **state) {
    (void)state;
    assert_int_equal(setenv("BATON_FAULT", "a:1,b.c:3,,bad,bad:,bad:x,:2,bad:0,d:2x,d:2", 1), 0);
    assert_true(fault_hit("a"));
    for (int i = 1; i <= 10; i++) {
        assert_false(fault_hit("a"));
        assert_int_equal(fault_hit("b.c"), i == 3);
        assert_int_equal(fault_hit("d"), i == 2);
        assert_false(fault_hit("bad"));
        assert_false(fault_hit("b"));
        assert_false(fault_hit(""));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nth_hit_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
