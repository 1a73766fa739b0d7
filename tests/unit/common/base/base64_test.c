/* Goal: bytes go through base64 and back, and what is no base64 is refused whole. Method: the
 * vectors of RFC 4648; every length; every place of a bad digit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/base64.h"

static void vectors(void **state) {
    static const char *const rows[][2] = {{"", ""},
                                          {"f", "Zg=="},
                                          {"fo", "Zm8="},
                                          {"foo", "Zm9v"},
                                          {"foob", "Zm9vYg=="},
                                          {"fooba", "Zm9vYmE="},
                                          {"foobar", "Zm9vYmFy"}};
    struct buf b = BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buf_clear(&b);
        base64_put(&b, rows[i][0], strlen(rows[i][0]));
        assert_int_equal(b.len, strlen(rows[i][1]));
        assert_memory_equal(b.data != NULL ? b.data : "", rows[i][1], b.len);
    }
    buf_free(&b);
}

static void there_and_back(void **state) {
    struct buf there = BUF_INIT, back = BUF_INIT;
    uint8_t bytes[64];
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 37 + 200);
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        buf_clear(&there);
        buf_clear(&back);
        base64_put(&there, bytes, n);
        assert_true(base64_take(&back, there.data != NULL ? there.data : "", there.len));
        assert_int_equal(back.len, n);
        if (n > 0) assert_memory_equal(back.data, bytes, n);
        assert_int_equal(back.data[n], 0);
    }
    buf_free(&there);
    buf_free(&back);
}

static void no_base64(void **state) {
    static const char *const rows[] = {
        "a", "ab", "abc", "a===", "ab=c", "====", "=abc", "ab c", "abcd=abc", "ab-_", "abc\xC3"};
    struct buf b = BUF_INIT;
    (void)state;
    buf_puts(&b, "kept");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_false(base64_take(&b, rows[i], strlen(rows[i])));
        assert_int_equal(b.len, 4);
        assert_string_equal(b.data, "kept");
    }
    assert_false(base64_take(&b, "ab\0d", 4));
    assert_string_equal(b.data, "kept");
    buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(no_base64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
