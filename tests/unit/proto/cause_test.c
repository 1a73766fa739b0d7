/* Goal: the list of causes reads the same from every side, and names that are not in it are
 * harmless. Method: walk all rows; parse each name, its beginnings and a longer one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/cause.h"

static void names_go_both_ways(void **state) {
    (void)state;
    for (int c = 0; c < CAUSE_COUNT; c++) {
        const char *name = cause_name((enum cause)c);
        const size_t n = strlen(name);
        assert_in_range(n, 1, CAUSE_NAME_BYTES_MAX);
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), n);
        assert_int_equal(cause_parse(name, n), c);
        for (size_t i = 0; i < n; i++) assert_int_not_equal(cause_parse(name, i), c == 0 ? -1 : c);
    }
    static const char *const strange[] = {"", "none", "d_lost ", "D_LOST", "of_tomorrow"};
    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
        assert_int_equal(cause_parse(strange[i], strlen(strange[i])), CAUSE_NONE);
}

/* What is the client's is never tried again; what is broken is somebody's; a client is answered
 * with an error. */
static void rows_agree_with_themselves(void **state) {
    (void)state;
    for (int i = 0; i < CAUSE_COUNT; i++) {
        const enum cause c = (enum cause)i;
        if (c != CAUSE_ANSWERED) assert_in_range(cause_status(c), 400, 599);
        if (cause_side(c) == SIDE_CLIENT) assert_false(cause_elsewhere(c));
        if (cause_side(c) == SIDE_P || cause_side(c) == SIDE_D || cause_side(c) == SIDE_LINK)
            assert_true(cause_elsewhere(c));
        if (cause_is_fault(c))
            assert_true(cause_side(c) == SIDE_P || cause_side(c) == SIDE_D ||
                        cause_side(c) == SIDE_LINK);
    }
}

static void a_status_alone_means_something(void **state) {
    (void)state;
    assert_int_equal(cause_of_p_status(200), CAUSE_ANSWERED);
    assert_int_equal(cause_of_p_status(429), CAUSE_P_FULL);
    assert_int_equal(cause_of_p_status(503), CAUSE_P_NOT_SERVING);
    assert_int_equal(cause_of_p_status(500), CAUSE_P_FAILED);
    assert_int_equal(cause_of_p_status(422), CAUSE_REQUEST);
    assert_int_equal(cause_of_p_status(424), CAUSE_REQUEST);
    assert_int_equal(cause_of_d_status(0), CAUSE_D_FAILED);
    assert_int_equal(cause_of_d_status(503), CAUSE_D_FAILED);
    assert_int_equal(cause_of_d_status(424), CAUSE_REQUEST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_go_both_ways),
        cmocka_unit_test(rows_agree_with_themselves),
        cmocka_unit_test(a_status_alone_means_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
