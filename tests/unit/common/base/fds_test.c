/* Goal: clients never get descriptors that the daemon needs itself. Method: the plan at its edges;
 * the process's own limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/resource.h>
#include "common/base/fds.h"

static void plan(void **state) {
    (void)state;
    assert_int_equal(fds_for_clients(100000, 1000, 3000, 1000), 3000);
    assert_int_equal(fds_for_clients(5000, 1000, 3000, 1000), 3000);
    assert_int_equal(fds_for_clients(4999, 1000, 3000, 1000), 3000);
    assert_int_equal(fds_for_clients(3000, 1000, 3000, 1000), 1500);
    assert_int_equal(fds_for_clients(1000, 1000, 3000, 1000), 0);
    assert_int_equal(fds_for_clients(0, 1000, 3000, 1000), 0);
    assert_int_equal(fds_for_clients(1500, 1000, 3000, 0), 500);
    for (uint64_t limit = 0; limit < 50000; limit += 7) {
        unsigned conns = fds_for_clients(limit, 1000, 30000, 10000);
        assert_true(conns == 0 || conns + 1000 <= limit);
    }
}

static void raise_to_the_hard_limit(void **state) {
    struct rlimit was, now;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    struct rlimit low = {.rlim_cur = 64, .rlim_max = was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(fds_raise(32), 64); /* never lowers */
    assert_int_equal(fds_raise(65), 65);
    assert_int_equal(fds_raise(UINT64_C(1) << 62), was.rlim_max);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, was.rlim_max);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan),
                                       cmocka_unit_test(raise_to_the_hard_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
