/* Goal: a traceparent is read as W3C Trace Context 1 (3.2) says, and written back the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/traceparent.h"

#define IDS "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"

static void good_ones(void **state) {
    struct traceparent t;
    char text[TRACEPARENT_BYTES];
    (void)state;
    assert_true(traceparent_read(&t, "00-" IDS "-01") && t.sampled);
    assert_true(t.trace_id[0] == 0x4b && t.trace_id[15] == 0x36 && t.span_id[7] == 0xb7);
    traceparent_write(text, &t);
    assert_string_equal(text, "00-" IDS "-01");
    assert_true(traceparent_read(&t, "00-" IDS "-00") && !t.sampled);
    traceparent_write(text, &t);
    assert_string_equal(text, "00-" IDS "-00");
    assert_true(traceparent_read(&t, "00-" IDS "-03") && t.sampled);
    assert_true(traceparent_read(&t, "cc-" IDS "-01-what the future brings"));
    assert_true(traceparent_read(&t, "01-" IDS "-01"));
}

static void bad_ones(void **state) {
    static const char *const bad[] = {
        "",
        "00",
        "00-" IDS,
        "00-" IDS "-",
        "00-" IDS "-0",
        "00-" IDS "-0g",
        "00-" IDS "-01-x",
        "00-" IDS "-011",
        "ff-" IDS "-01",
        "cc-" IDS "-01x",
        "0x-" IDS "-01",
        "00_" IDS "-01",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct traceparent t;
        if (traceparent_read(&t, bad[i])) fail_msg("%s", bad[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(good_ones), cmocka_unit_test(bad_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
