/* Goal: the clocks tell time in the units they promise. Method: against the kernel's own readings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <time.h>
#include "common/base/clock.h"

static void monotonic_and_in_units(void **state) {
    uint64_t last = clock_us();
    struct timespec ts;
    (void)state;
    for (int i = 0; i < 10000; i++) {
        uint64_t now = clock_us();
        assert_true(now >= last);
        last = now;
    }
    clock_gettime(CLOCK_MONOTONIC, &ts);
    uint64_t ms = clock_ms(), us = clock_us();
    assert_in_range(ms, (uint64_t)ts.tv_sec * 1000, (uint64_t)ts.tv_sec * 1000 + 60000);
    assert_in_range(us / 1000, ms, ms + 60000);
}

static void wall_clock(void **state) {
    (void)state;
    int64_t before = (int64_t)time(NULL), s = clock_unix_s();
    uint64_t us = clock_unix_us();
    assert_true(s >= before && s <= before + 60);
    assert_true(us / 1000000 >= (uint64_t)s && us / 1000000 <= (uint64_t)s + 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(monotonic_and_in_units),
                                       cmocka_unit_test(wall_clock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
