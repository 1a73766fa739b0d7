/* Goal: json_read takes JSON and nothing else, and the getters never bend a value into another
 * type. Method: lists of good and bad texts; every truncation of a good one; both sides of the
 * depth, number and length limits; the getters against a value of each type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <unistd.h>
#include "proto/json.h"

static enum err read_len(struct json_value **o, const char *text, size_t n,
                         const struct json_limits *lim, struct errbuf *eb) {
    char *exact = malloc(n + 1); /* no terminator within reach */
    assert_non_null(exact);
    memcpy(exact, text, n);
    char *shifted = exact + 1;
    memmove(shifted, exact, n);
    enum err e = json_read(o, shifted, n, lim, eb);
    free(exact);
    return e;
}

static struct json_value *parse(const char *text) {
    struct json_value *o;
    struct errbuf eb = {0};
    if (read_len(&o, text, strlen(text), NULL, &eb) != ERR_OK) fail_msg("%s: %s", text, eb.text);
    return o;
}

static void takes_json(void **state) {
    static const struct {
        const char *text, *literal;
    } good[] = {
        {"{}", "{}"},
        {" \t\r\n[ ] \n", "[]"},
        {"null", "null"},
        {"true", "true"},
        {"0", "0"},
        {"-0", "0"},
        {"-12", "-12"},
        {"1.50", "1.50"},
        {"[-0.0,1E5,1e-7,0.1e+1]", "[-0.0,1E5,1e-7,0.1e+1]"},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"18446744073709551615", "18446744073709551615"},
        {"[18446744073709551616,-9223372036854775809]",
         "[18446744073709551616,-9223372036854775809]"},
        {"\"a/b\\/\\u0041\\n\"", "\"a/b/A\\n\""},
        {"\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\""},
        {"\"\x7F\xC2\x80\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"",
         "\"\x7F\xC2\x80\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\""},
        {"{\"a\":{\"b\":[1,{\"c\":null}]},\"d\":\"\"}",
         "{\"a\":{\"b\":[1,{\"c\":null}]},\"d\":\"\"}"},
        {"{\"a\":1,\"a\":2}", "{\"a\":2}"},
        {"\xEF\xBB\xBF{\"n\":99999999999999999999}", "{\"n\":99999999999999999999}"},
    };
    char lit[200];
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct json_value *o = parse(good[i].text);
        size_t n = json_literal(lit, sizeof(lit), o);
        assert_string_equal(lit, good[i].literal);
        assert_int_equal(n, strlen(lit));
        json_put(o);
    }
}

static void refuses_the_rest(void **state) {
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "['a']",
        "{\"a\" 1}",
        "{1:2}",
        "[1 2]",
        "]",
        "}",
        "[}",
        "{]",
        "nul",
        "nulll",
        "TRUE",
        "True",
        "NaN",
        "Infinity",
        "-Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "-.5",
        "1e",
        "1e+",
        "1.e5",
        "0x10",
        "1_000",
        "1e999",
        "-1e999",
        "1 2",
        "{} {}",
        "[] x",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800x\"",
        "\"\\ud800\\ud800\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\x01\"",
        "\"\x80\"",
        "\"\xC0\x80\"",
        "\"\xC1\xBF\"",
        "\"\xE0\x80\x80\"",
        "\"\xED\xA0\x80\"",
        "\"\xF0\x80\x80\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xF5\x80\x80\x80\"",
        "\"\xC2\"",
        "\"\xE2\x82\"",
        "\xFF\xFE{}",
        "// c\n{}",
        "{} // c",
        "/**/1",
        "\xEF\xBB\xBF",
        "\xEF\xBB\xBF\xEF\xBB\xBF{}",
        "{\"a\\u0000b\":1}",
        "[1]\v",
        "\xC2\xA0{}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct json_value *o = (void *)1;
        struct errbuf eb = {0};
        enum err e = read_len(&o, bad[i], strlen(bad[i]), NULL, &eb);
        if (e != ERR_BAD_JSON) fail_msg("taken: %s", bad[i]);
        assert_null(o);
        assert_int_equal(eb.code, ERR_BAD_JSON);
        assert_non_null(strstr(eb.text, "byte "));
    }
    struct json_value *o;
    assert_int_equal(read_len(&o, "[1]\0", 4, NULL, NULL),
                     ERR_BAD_JSON); /* a zero behind the value */
    assert_int_equal(read_len(&o, "\"a\0b\"", 5, NULL, NULL), ERR_BAD_JSON);
}

static void every_truncation_is_refused(void **state) {
    static const char text[] =
        "{\"k\":[1.5e3,\"\\ud83d\\ude00\xE2\x82\xAC\",{\"t\":true,\"n\":null}],\"z\":-7}";
    struct json_value *o;
    (void)state;
    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        assert_int_equal(read_len(&o, text, n, NULL, NULL), ERR_BAD_JSON);
        assert_null(o);
    }
    assert_int_equal(read_len(&o, text, sizeof(text) - 1, NULL, NULL), ERR_OK);
    json_put(o);
}

static void errors_name_the_byte(void **state) {
    struct json_value *o;
    struct errbuf eb;
    (void)state;
    assert_int_equal(json_read(&o, "{\"a\":01}", 8, NULL, &eb), ERR_BAD_JSON);
    assert_string_equal(eb.text, "byte 5: a number has a leading zero");
    assert_int_equal(json_read(&o, "[1,\"\xFF\"]", 7, NULL, &eb), ERR_BAD_JSON);
    assert_string_equal(eb.text, "byte 4: not UTF-8");
}

/* n containers, each inside the one before: the innermost at depth n - 1. */
static char *nested(const char *head, size_t n, const char *tail) {
    size_t h = strlen(head), t = strlen(tail);
    char *s = malloc(h + 2 * n + t + 1);
    assert_non_null(s);
    memcpy(s, head, h);
    memset(s + h, '[', n);
    memset(s + h + n, ']', n);
    memcpy(s + h + 2 * n, tail, t + 1);
    return s;
}

static enum err depth_result(const char *head, size_t n, const char *tail,
                             const struct json_limits *lim) {
    struct json_value *o;
    char *s = nested(head, n, tail);
    enum err e = json_read(&o, s, strlen(s), lim, NULL);
    json_put(o);
    free(s);
    return e;
}

static void depth_limits(void **state) {
    struct json_limits client = json_limits_client(10), ten = {.depth_max = 10};
    static const struct {
        const char *head, *tail;
        size_t above; /* containers around the nest */
        bool exempt;
    } places[] = {
        {"{\"x\":", "}", 1, false},
        {"{\"tools\":", "}", 1, true},
        {"{\"response_format\":", "}", 1, true},
        {"{\"guided_json\":", "}", 1, true},
        {"{\"guided_\":", "}", 1, true},
        {"{\"guided\":", "}", 1, false},
        {"{\"structured_outputs\":", "}", 1, true},
        {"{\"messages\":[{\"tool_calls\":", "}]}", 3, true},
        {"{\"messages\":[{\"content\":", "}]}", 3, false},
        {"{\"messages\":{\"a\":{\"tool_calls\":", "}}}", 3, false},
        {"{\"other\":[{\"tool_calls\":", "}]}", 3, false},
        {"{\"tool_calls\":", "}", 1, false},
        {"{\"x\":{\"tools\":", "}}", 2, false},
        {"{\"tools\":[],\"x\":", "}", 1, false},
    };
    (void)state;
    assert_int_equal(depth_result("", 11, "", &ten), ERR_OK); /* the innermost is at depth 10 */
    assert_int_equal(depth_result("", 12, "", &ten), ERR_BAD_JSON);
    assert_int_equal(depth_result("", JSON_DEPTH_MAX + 1, "", NULL), ERR_OK);
    assert_int_equal(depth_result("", JSON_DEPTH_MAX + 2, "", NULL), ERR_BAD_JSON);
    assert_int_equal(depth_result("", 100000, "", NULL), ERR_BAD_JSON);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        size_t most = (places[i].exempt ? JSON_DEPTH_MAX : 10) + 1 - places[i].above;
        assert_int_equal(depth_result(places[i].head, most, places[i].tail, &client), ERR_OK);
        if (depth_result(places[i].head, most + 1, places[i].tail, &client) != ERR_BAD_JSON)
            fail_msg("too deep under %s", places[i].head);
        if (places[i].exempt) /* the exemption belongs to the list, not to the reader */
            assert_int_equal(
                depth_result(places[i].head, 12 - places[i].above, places[i].tail, &ten),
                ERR_BAD_JSON);
    }
}

static void duplicate_keys(void **state) {
    struct json_limits unique = {.unique_keys = true};
    struct json_value *o;
    struct errbuf eb;
    static const char *const fine = "[{\"a\":1,\"b\":{\"a\":1}},{\"a\":{\"a\":2},\"A\":3,\"\":0}]";
    (void)state;
    assert_int_equal(json_read(&o, fine, strlen(fine), &unique, NULL), ERR_OK);
    json_put(o);
    assert_int_equal(json_read(&o, "{\"a\":1,\"b\":2,\"a\":3}", 19, &unique, &eb), ERR_BAD_JSON);
    assert_string_equal(eb.text, "byte 13: the key \"a\" stands here a second time");
    /* the same key spelled with an escape, and one after an inner object */
    assert_int_equal(json_read(&o, "{\"a\":1,\"\\u0061\":3}", 18, &unique, NULL), ERR_BAD_JSON);
    assert_int_equal(json_read(&o, "{\"a\":{\"b\":1},\"a\":3}", 19, &unique, NULL), ERR_BAD_JSON);
    /* many keys: the set grows */
    char *many = malloc(200000), *p = many;
    assert_non_null(many);
    *p++ = '{';
    for (int i = 0; i < 10000; i++) p += sprintf(p, "%s\"key%d\":0", i == 0 ? "" : ",", i);
    memcpy(p, "}", 2);
    assert_int_equal(json_read(&o, many, strlen(many), &unique, NULL), ERR_OK);
    assert_int_equal(json_obj_len(o), 10000);
    json_put(o);
    memcpy(p, ",\"key77\":1}", 12);
    assert_int_equal(json_read(&o, many, strlen(many), &unique, NULL), ERR_BAD_JSON);
    free(many);
}

static void long_numbers(void **state) {
    char text[1100];
    struct json_value *o;
    double d = 0;
    (void)state;
    memset(text, '1', sizeof(text));
    memcpy(text, "0.", 2);
    assert_int_equal(json_read(&o, text, 1024, NULL, NULL), ERR_OK);
    assert_int_equal(json_as_f64(o, &d), JSON_OK);
    assert_true(d > 0.11 && d < 0.12);
    json_put(o);
    memset(text, '1', 2);
    assert_int_equal(json_read(&o, text, 308, NULL, NULL),
                     ERR_OK); /* an integer that only a double holds */
    assert_int_equal(json_as_f64(o, &d), JSON_OK);
    assert_true(d > 1.1e307);
    json_put(o);
    assert_int_equal(json_read(&o, text, 400, NULL, NULL), ERR_BAD_JSON); /* overflow */
    assert_int_equal(json_read(&o, text, 1025, NULL, NULL), ERR_BAD_JSON);
}

static void getters_never_coerce(void **state) {
    struct json_value *o =
        parse("{\"s\":\"12\",\"e\":\"\",\"z\":\"a\\u0000b\",\"i\":12,\"neg\":-1,\"f\":1.0,\"b\":"
              "true,\"n\":null,\"a\":[1],"
              "\"o\":{\"k\":1},\"umax\":18446744073709551615,\"over\":18446744073709551616,"
              "\"imax\":9223372036854775807,\"imax1\":9223372036854775808,"
              "\"imin\":-9223372036854775808,\"imin1\":-9223372036854775809}");
    static const char *const keys[] = {"s", "i", "f", "b", "a", "o"};
    const char *s = "untouched";
    size_t n = 99;
    int64_t i = 5;
    uint64_t u = 5;
    double d = 5;
    bool b = false;
    struct json_value *sub = NULL;
    (void)state;
    for (size_t k = 0; k < 6;
         k++) { /* each type through each getter: one fits, f64 takes the integer too */
        assert_int_equal(json_get_str(o, keys[k], &s, &n), k == 0 ? JSON_OK : JSON_WRONG_TYPE);
        assert_int_equal(json_get_i64(o, keys[k], &i), k == 1 ? JSON_OK : JSON_WRONG_TYPE);
        assert_int_equal(json_get_u64(o, keys[k], &u), k == 1 ? JSON_OK : JSON_WRONG_TYPE);
        assert_int_equal(json_get_f64(o, keys[k], &d),
                         k == 1 || k == 2 ? JSON_OK : JSON_WRONG_TYPE);
        assert_int_equal(json_get_bool(o, keys[k], &b), k == 3 ? JSON_OK : JSON_WRONG_TYPE);
        assert_int_equal(json_get_arr(o, keys[k], &sub), k == 4 ? JSON_OK : JSON_WRONG_TYPE);
        assert_int_equal(json_get_obj(o, keys[k], &sub), k == 5 ? JSON_OK : JSON_WRONG_TYPE);
    }
    assert_string_equal(s, "12");
    assert_int_equal(n, 2);
    assert_true(i == 12 && u == 12 && d == 1.0 && b);
    assert_int_equal(json_get_str(o, "z", &s, &n), JSON_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(s, "a\0b", 4);
    assert_int_equal(json_get_str(o, "e", &s, &n), JSON_OK);
    assert_int_equal(n, 0);
    assert_int_equal(json_get_i64(o, "n", &i), JSON_NULL);
    assert_int_equal(json_get_i64(o, "nope", &i), JSON_ABSENT);
    assert_int_equal(json_get_i64(NULL, "i", &i), JSON_ABSENT);
    assert_int_equal(json_get_obj(o, "o", &sub), JSON_OK);
    assert_int_equal(json_get_i64(sub, "k", &i), JSON_OK);
    assert_int_equal(json_get_arr(o, "a", &sub), JSON_OK);
    assert_int_equal(json_get_i64(sub, "k", &i), JSON_ABSENT); /* an array has no fields */

    assert_int_equal(json_get_u64(o, "neg", &u), JSON_WRONG_TYPE);
    assert_int_equal(json_get_u64(o, "umax", &u), JSON_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(json_get_u64(o, "over", &u), JSON_WRONG_TYPE);
    assert_int_equal(json_get_f64(o, "over", &d), JSON_OK);
    assert_true(d == 18446744073709551616.0);
    assert_int_equal(json_get_i64(o, "imax", &i), JSON_OK);
    assert_true(i == INT64_MAX);
    assert_int_equal(json_get_i64(o, "imax1", &i), JSON_WRONG_TYPE);
    assert_int_equal(json_get_u64(o, "imax1", &u), JSON_OK);
    assert_true(u == (uint64_t)INT64_MAX + 1);
    assert_int_equal(json_get_i64(o, "imin", &i), JSON_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(json_get_i64(o, "imin1", &i), JSON_WRONG_TYPE);
    assert_int_equal(json_as_i64(NULL, &i), JSON_NULL);
    json_put(o);
}

static void literal_is_cut_between_characters(void **state) {
    struct json_value *o = parse("\"ab\xE2\x82\xAC\xE2\x82\xAC\"");
    char lit[16];
    static const size_t want[] = {0, 0, 1, 2, 3, 3, 3, 6, 6, 6, 9, 10, 10};
    (void)state;
    for (size_t room = 1; room < sizeof(want) / sizeof(want[0]); room++) {
        memset(lit, '#', sizeof(lit));
        assert_int_equal(json_literal(lit, room, o), want[room]);
        assert_int_equal(strlen(lit), want[room]);
        assert_int_equal(lit[room], '#');
    }
    assert_int_equal(json_literal(lit, 0, o), 0);
    assert_int_equal(json_literal(lit, sizeof(lit), NULL), 4);
    assert_string_equal(lit, "null");
    json_put(o);
    o = parse(
        "\"12345678901234567890E+00\""); /* text that only looks like the mark of a wide integer */
    char wide[40];
    json_literal(wide, sizeof(wide), o);
    assert_string_equal(wide, "\"12345678901234567890E+00\"");
    json_put(o);
}

static void reads_files(void **state) {
    char path[] = "/tmp/json_test_XXXXXX";
    struct json_value *o;
    struct errbuf eb;
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{\"a\":[]}", 8), 8);
    assert_int_equal(json_read_file(&o, path, 8, NULL, NULL), ERR_OK);
    json_put(o);
    assert_int_equal(json_read_file(&o, path, 7, NULL, &eb), ERR_TOO_LARGE);
    assert_int_equal(write(fd, "}", 1), 1);
    assert_int_equal(json_read_file(&o, path, 100, NULL, &eb), ERR_BAD_JSON);
    assert_non_null(strstr(eb.text, path));
    assert_non_null(strstr(eb.text, "byte 8"));
    close(fd);
    unlink(path);
    assert_int_equal(json_read_file(&o, path, 100, NULL, &eb), ERR_NOT_FOUND);
    assert_int_equal(json_read_file(&o, "/tmp", 100, NULL, &eb), ERR_IO);
    assert_null(o);
}

/* Every surrogate pair is the character it means, also where json-c alone errs (U+1D800 and
 * others). */
static void escaped_pairs_are_their_characters(void **state) {
    (void)state;
    for (unsigned cp = 0x10000; cp <= 0x10FFFF; cp += cp % 0x400 == 0 ? 0x3FF : 1) {
        char text[64], want[8];
        const char *s;
        size_t n;
        struct json_value *root = NULL, *v;
        int len = snprintf(text, sizeof(text), "[\"\\\\a\\u%04x\\u%04X\\n\"]",
                           0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
        assert_int_equal(json_read(&root, text, (size_t)len, NULL, NULL), ERR_OK);
        v = json_arr_at(root, 0);
        assert_int_equal(json_as_str(v, &s, &n), JSON_OK);
        snprintf(want, sizeof(want), "\\a%c%c%c%c\n", (int)(0xF0 | cp >> 18),
                 (int)(0x80 | (cp >> 12 & 0x3F)), (int)(0x80 | (cp >> 6 & 0x3F)),
                 (int)(0x80 | (cp & 0x3F)));
        assert_int_equal(n, 7);
        assert_memory_equal(s, want, 7);
        json_put(root);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escaped_pairs_are_their_characters),
        cmocka_unit_test(takes_json),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(errors_name_the_byte),
        cmocka_unit_test(depth_limits),
        cmocka_unit_test(duplicate_keys),
        cmocka_unit_test(long_numbers),
        cmocka_unit_test(getters_never_coerce),
        cmocka_unit_test(literal_is_cut_between_characters),
        cmocka_unit_test(reads_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
