/* Goal: the error list reads the same from every side, and a number outside it is harmless.
 * Method: walk all rows; try the values just outside; fill an errbuf to its last byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"

static void rows_are_complete(void **state) {
    (void)state;
    for (int e = 0; e < ERR_COUNT; e++) {
        assert_int_equal(strncmp(err_name((enum err)e), "ERR_", 4), 0);
        assert_true(strlen(err_text((enum err)e)) > 0);
        int status = err_http_status((enum err)e);
        assert_true(status == 200 ? e == ERR_OK : status >= 400 && status < 600);
        for (int other = 0; other < e; other++)
            assert_string_not_equal(err_name((enum err)e), err_name((enum err)other));
    }
    assert_string_equal(err_name(ERR_BUSY), "ERR_BUSY");
    assert_int_equal(err_http_status(ERR_BUSY), 429);
    assert_true(err_retryable(ERR_BUSY));
    assert_false(err_retryable(ERR_INVALID));
}

static void unknown_values_are_harmless(void **state) {
    const int values[] = {-1, ERR_COUNT, 100000};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        enum err e = (enum err)values[i];
        assert_string_equal(err_name(e), "ERR_UNKNOWN");
        assert_non_null(err_text(e));
        assert_int_equal(err_http_status(e), 500);
        assert_false(err_retryable(e));
    }
}

static void set_fills_and_cuts(void **state) {
    struct errbuf eb;
    char longer[ERR_TEXT_BYTES_MAX * 2];
    (void)state;
    assert_int_equal(err_set(&eb, ERR_TOO_LARGE, "port %d not in [%d,%d]", 7, 1, 5), ERR_TOO_LARGE);
    assert_int_equal(eb.code, ERR_TOO_LARGE);
    assert_string_equal(eb.text, "port 7 not in [1,5]");
    assert_int_equal(err_set(NULL, ERR_IO, "nobody reads this"), ERR_IO);
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    err_set(&eb, ERR_IO, "%s", longer);
    assert_int_equal(strlen(eb.text), ERR_TEXT_BYTES_MAX - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(unknown_values_are_harmless),
        cmocka_unit_test(set_fills_and_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
