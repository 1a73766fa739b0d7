/* Goal: a buffer holds what was put in, and its JSON pieces are JSON that reads back the same.
 * Method: every operation next to a plain array; every single byte and broken UTF-8 through the
 * string writers, read back by the strict reader; doubles of every size through text and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include "common/base/buf.h"
#include "proto/json.h"

static void append_consume_steal(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    buf_consume(&b, 3);
    buf_append(&b, "", 0);
    assert_string_equal(b.data, "");
    buf_puts(&b, "hello");
    buf_putc(&b, ' ');
    buf_append(&b, "w\0rld", 5);
    assert_int_equal(b.len, 11);
    assert_memory_equal(b.data, "hello w\0rld", 12);
    buf_consume(&b, 6);
    assert_memory_equal(b.data, "w\0rld", 6);
    buf_consume(&b, 100);
    assert_int_equal(b.len, 0);
    buf_printf(&b, "%d-%s", 42, "x");
    assert_string_equal(b.data, "42-x");
    buf_clear(&b);
    assert_string_equal(b.data, "");
    buf_puts(&b, "mine");
    char *s = buf_steal(&b);
    assert_string_equal(s, "mine");
    free(s);
    assert_null(b.data);
    s = buf_steal(&b);
    assert_string_equal(s, "");
    free(s);
}

static void printf_of_every_length(void **state) {
    char line[301];
    (void)state;
    memset(line, 'x', 300);
    for (int n = 0; n <= 300; n++) {
        struct buf b = BUF_INIT;
        buf_puts(&b, "ab");
        buf_printf(&b, "%.*s|", n, line);
        assert_int_equal(b.len, (size_t)n + 3);
        assert_int_equal(b.data[n + 2], '|');
        assert_int_equal(b.data[n + 3], '\0');
        buf_free(&b);
    }
}

static void failure_sticks(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    buf_puts(&b, "kept");
    assert_false(buf_reserve(&b, SIZE_MAX - 2));
    assert_true(b.failed);
    buf_puts(&b, "ignored");
    buf_printf(&b, "%d", 5);
    assert_string_equal(b.data, "kept");
    buf_clear(&b); /* what is put together of parts lacks one, however often it is begun anew */
    buf_puts(&b, "ignored");
    assert_string_equal(b.data, "");
    assert_null(buf_steal(&b));
    assert_null(b.data);
    buf_puts(&b, "new");
    assert_string_equal(b.data, "new");
    assert_false(buf_reserve(&b, SIZE_MAX - 2));
    buf_forgive(&b);
    assert_int_equal(b.len, 0);
    buf_puts(&b, "newer");
    assert_string_equal(b.data, "newer");
    buf_free(&b);
}

static void many_appends(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    for (int i = 0; i < 100000; i++) buf_putc(&b, (char)('a' + i % 26));
    assert_int_equal(b.len, 100000);
    for (int i = 0; i < 100000; i++) assert_int_equal(b.data[i], 'a' + i % 26);
    buf_free(&b);
}

static void json_str_reads_back(void **state) {
    char all[256];
    size_t n_all = 0, n;
    const char *s;
    struct json_value *o;
    struct buf b = BUF_INIT;
    (void)state;
    for (int c = 0; c < 0x80; c++) all[n_all++] = (char)c;
    memcpy(all + n_all, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80/", 10);
    n_all += 10;
    buf_json_str(&b, all, n_all);
    assert_int_equal(json_read(&o, b.data, b.len, NULL, NULL), ERR_OK);
    assert_int_equal(json_as_str(o, &s, &n), JSON_OK);
    assert_int_equal(n, n_all);
    assert_memory_equal(s, all, n_all);
    json_put(o);
    buf_clear(&b);
    buf_json_str(&b, "a\"b\\c\n\x01/\x7F\xC3\xA9", 11);
    assert_string_equal(b.data, "\"a\\\"b\\\\c\\n\\u0001/\x7F\xC3\xA9\"");
    buf_free(&b);
}

static void json_text_cleans(void **state) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"a\nb\rc\td", "\"a\\nb\\rc\\td\""},
        {"a\x01\x02\x1F\x7F"
         "b\b\f",
         "\"ab\""},
        {"q\"b\\s", "\"q\\\"b\\\\s\""},
        {"\xE2\x82\xAC", "\"\xE2\x82\xAC\""},
        {"x\x80y", "\"x\xEF\xBF\xBDy\""},
        {"\xE2\x82y", "\"\xEF\xBF\xBDy\""}, /* cut in the middle: one mark for what was begun */
        {"\xE2\x82", "\"\xEF\xBF\xBD\""},
        {"\xC0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""}, /* overlong */
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xF0\x9F\x98\x80\xF0\x9F\x98", "\"\xF0\x9F\x98\x80\xEF\xBF\xBD\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf b = BUF_INIT;
        buf_json_text(&b, cases[i].in, strlen(cases[i].in), false);
        assert_string_equal(b.data, cases[i].out);
        buf_free(&b);
    }
}

/* Whatever bytes go in, JSON comes out. */
static void json_text_is_always_json(void **state) {
    uint32_t x = 7;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        char in[24];
        struct buf b = BUF_INIT;
        struct json_value *o;
        for (size_t i = 0; i < sizeof(in); i++) {
            x = x * 1664525u + 1013904223u;
            in[i] = (char)(x >> 24);
        }
        buf_json_text(&b, in, sizeof(in), round % 2 == 0);
        assert_int_equal(json_read(&o, b.data, b.len, NULL, NULL), ERR_OK);
        json_put(o);
        buf_free(&b);
    }
}

static void doubles_read_back(void **state) {
    static const struct {
        double v;
        const char *text;
    } fixed[] = {{0, "0.0"},         {-0.0, "-0.0"},
                 {1, "1.0"},         {0.1, "0.1"},
                 {-1.5, "-1.5"},     {1e20, "1e+20"},
                 {1e-7, "1e-07"},    {NAN, "null"},
                 {INFINITY, "null"}, {1.0 / 3, "0.3333333333333333"}};
    uint64_t x = 12345;
    struct buf b = BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        buf_clear(&b);
        buf_json_double(&b, fixed[i].v);
        assert_string_equal(b.data, fixed[i].text);
    }
    for (int i = 0; i < 20000; i++) {
        double v;
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(&v, &x, sizeof(v));
        if (!isfinite(v)) continue;
        buf_clear(&b);
        buf_json_double(&b, v);
        assert_true(strtod(b.data, NULL) == v);
    }
    buf_free(&b);
}

/* As much as fits, never half a character; what is no character is one U+FFFD as in JSON. */
static void copies_are_text(void **state) {
#define BAD "\xEF\xBF\xBD"
    static const struct {
        const char *from;
        size_t room; /* with the zero */
        const char *want;
    } rows[] = {
        {"abc", 16, "abc"},
        {"abc", 4, "abc"},
        {"abc", 3, "ab"},
        {"abc", 1, ""},
        {"a\xC3\xA4", 3, "a"},
        {"a\xC3\xA4", 4, "a\xC3\xA4"},
        {"\xE2\x82", 4, BAD},
        {"\xE2\x82", 3, ""},
        {"\xE2\x82x\xFF\xC0\xAF", 32, BAD "x" BAD BAD BAD},
        {"\xF0\x9F\x98\x80", 5, "\xF0\x9F\x98\x80"},
        {"\xF0\x9F\x98\x80", 4, ""},
    };
    char dst[40];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(dst, '#', sizeof(dst));
        assert_int_equal(buf_copy_text(dst, rows[i].room, rows[i].from, strlen(rows[i].from)),
                         strlen(rows[i].want));
        assert_string_equal(dst, rows[i].want);
        assert_int_equal(dst[rows[i].room], '#');
    }
    assert_int_equal(buf_copy_text(dst, sizeof(dst), "a\0b", 3), 3); /* a zero is a character */
    assert_memory_equal(dst, "a\0b", 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_text),        cmocka_unit_test(append_consume_steal),
        cmocka_unit_test(printf_of_every_length), cmocka_unit_test(failure_sticks),
        cmocka_unit_test(many_appends),           cmocka_unit_test(json_str_reads_back),
        cmocka_unit_test(json_text_cleans),       cmocka_unit_test(json_text_is_always_json),
        cmocka_unit_test(doubles_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
