/* Goal: a walk says where members and ends are, whatever the set of instructions, and never reads
 * behind the text. Method: a table; the sets beside each other over random texts of the characters
 * that matter, in memory of exactly their size. That what is found is right: body_look_test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/json_skim_ops.h"

enum { A, B, N_FOUND };

static struct json_skim_names names;

static int make_names(void **state) {
    static const char *const name[N_FOUND] = {"a", "bb"};
    (void)state;
    json_skim_names_init(&names, name, N_FOUND);
    return 0;
}

static void members(void **state) {
    static const struct {
        const char *text;
        size_t a, b, end;
    } rows[] = {
        {"{}", 0, 0, 2},
        {"{\"a\":1}", 5, 0, 7},
        {"{\"a\" : 1,\"bb\":\"a\"} ", 7, 14, 18},
        {"{\"a\":1,\"a\":2}", 11, 0, 13},
        {"{\"\\u0061\":{\"bb\":1}}", 10, 0, 19},
        {"{\"x\":[{\"a\":{\"a\":1}}],\"bb\":[]}", 0, 26, 29},
        {"{\"x\":\"{\\\"a\\\":1,\",\"a\":1}", 21, 0, 23},
        {"{\"aa\":1,\"b\":1,\"a\\n\":1,\"\\n\":1,\"A\":1}", 0, 0, 35},
        {"{\"a\":1", 0, 0, 0},
        {"{\"a\":\"}", 0, 0, 0},
        {"{", 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t found[N_FOUND];
        size_t end = json_skim()->members(rows[i].text, strlen(rows[i].text), 0, &names, found);
        if (end != rows[i].end || (end != 0 && (found[A] != rows[i].a || found[B] != rows[i].b)))
            fail_msg("row %zu: %zu %zu %zu", i, found[A], found[B], end);
    }
}

static void strings(void **state) {
    static const struct {
        const char *text;
        size_t n_bytes, end;
    } rows[] = {
        {"\"\"", 0, 2},
        {"\"abc\",", 3, 5},
        {"\"\\\"\\\\\" \"", 2, 6},
        {"\"\\u0000\\u007f\\u0080\\u07ff\\u0800\\uffff\\ud83d\\uDE00\"", 16, 50},
        {"\"a", 0, 0},
        {"\"a\\\"", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t n_bytes = 0,
               end = json_skim()->string(rows[i].text, strlen(rows[i].text), 0, &n_bytes);
        if (end != rows[i].end || n_bytes != rows[i].n_bytes)
            fail_msg("row %zu: %zu %zu", i, n_bytes, end);
    }
}

/* Ends of arrays however deep: both sides of where the depth is counted in a block, and of blocks.
 */
static void ends_of_arrays(void **state) {
    static char text[2000];
    (void)state;
    for (size_t depth = 1; depth < 400; depth += depth < 140 ? 1 : 37) {
        for (size_t gap = 0; gap < 2; gap++) { /* [[..]],[..]] */
            size_t n = 0;
            for (size_t i = 0; i < depth; i++) text[n++] = '[';
            for (size_t i = 0; i < depth - 1; i++) text[n++] = ']';
            if (gap > 0) n += (size_t)sprintf(text + n, ",[\"]\",[{\"]\":[]}]]");
            text[n++] = ']';
            assert_int_equal(json_skim()->container(text, n, 0), n);
            assert_int_equal(json_skim_plain.container(text, n, 0), n);
            assert_int_equal(json_skim()->container(text, n - 1, 0), 0);
            assert_int_equal(json_skim()->arrays_end(text, n, depth, depth), n);
            assert_int_equal(json_skim_plain.arrays_end(text, n, depth, depth), n);
            assert_int_equal(json_skim()->arrays_end(text, n - 1, depth, depth), 0);
        }
    }
}

/* ---- the sets beside each other */

static uint64_t seed = 88172645463325252u;

static unsigned draw(unsigned n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % n;
}

static void compare(const char *p, size_t n) {
    const struct json_skim *x = &json_skim_plain, *y = json_skim_avx2();
    size_t f[N_FOUND], g[N_FOUND], k = 0, l = 0;
    if (y == NULL) y = x;
    assert_int_equal(x->space(p, n, 0), y->space(p, n, 0));
    assert_int_equal(x->string(p, n, 0, &k), y->string(p, n, 0, &l));
    assert_int_equal(k, l);
    size_t end = x->members(p, n, 0, &names, f);
    assert_int_equal(end, y->members(p, n, 0, &names, g));
    assert_true(end <= n && (end == 0 || memcmp(f, g, sizeof(f)) == 0));
    if (p[0] == '[' || p[0] == '{') {
        end = x->container(p, n, 0);
        assert_int_equal(end, y->container(p, n, 0));
        assert_true(end <= n);
        end = x->arrays_end(p, n, 1, 3);
        assert_int_equal(end, y->arrays_end(p, n, 1, 3));
        assert_true(end <= n);
    }
    size_t at = 1, bt = 1, d = 1, e = 1;
    struct json_skim_sum s = {0}, t = s;
    for (int steps = 0; steps < 1000 && at < n; steps++) {
        enum json_skim_item item = x->items(p, n, &at, &d, &s);
        assert_int_equal(item, y->items(p, n, &bt, &e, &t));
        assert_true(at == bt && d == e && at <= n && memcmp(&s, &t, sizeof(s)) == 0);
        if (item == JSON_SKIM_END || item == JSON_SKIM_BAD) break;
        at = ++bt;
    }
}

static void sets_agree(void **state) {
    static const char *const parts[] = {
        "{",        "}",    "[",  "]",       ",",    ":",  "\"",  "\\",  "\"a\"",
        "\"bb\":1", "null", "  ", "\\u0061", "[[]]", "{}", "1.5", "xyz", "\xE4\xBD\xA0"};
    enum { N = 18, BYTES = 700 };
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[BYTES + 16];
        size_t n = 0, want = 1 + draw(round % 20 == 0 ? BYTES : 150), few = 1 + draw(N);
        while (n < want) {
            const char *part = parts[(draw(few) * 7 + (unsigned)round) % N];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        char *exact = malloc(n);
        assert_non_null(exact);
        memcpy(exact, text, n);
        compare(exact, n);
        free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(members), cmocka_unit_test(strings),
                                       cmocka_unit_test(ends_of_arrays),
                                       cmocka_unit_test(sets_agree)};
    return cmocka_run_group_tests(tests, make_names, NULL);
}
