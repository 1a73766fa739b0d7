/* Goal: a tree holds what its text said, in memory that its text bounds; containers can be changed,
 * parsed ones too, and nothing is kept or lost. Method: random texts beside a plain description of
 * them; the worst bodies by kind; random changes beside the same changes of a made copy; the leak
 * checks of the sanitizer builds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "proto/json.h"
#include "proto/json_check.h"

static uint64_t seed = 88172645463325252u;

static unsigned draw(unsigned n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % n;
}

static struct json_value *parse(const char *text) {
    struct json_value *v = NULL;
    struct errbuf eb = {0};
    if (json_read(&v, text, strlen(text), NULL, &eb) != ERR_OK) fail_msg("%s: %s", text, eb.text);
    return v;
}

static void assert_text(const struct json_value *v, const char *want) {
    assert_string_equal(json_to_text(v, JSON_COMPACT, NULL), want);
}

/* ---- memory */

/* unit over and over between head and tail, about n bytes. */
static char *repeat(const char *head, const char *unit, const char *last, const char *tail,
                    size_t n) {
    char *s = malloc(n + 200), *p = s;
    assert_non_null(s);
    p = stpcpy(p, head);
    while ((size_t)(p - s) < n) p = stpcpy(p, unit);
    strcpy(stpcpy(p, last), tail);
    return s;
}

static void memory_is_bounded(void **state) {
    static const struct {
        const char *head, *unit, *last, *tail;
    } worst[] = {
        {"[", "{},", "{}", "]"},
        {"[", "[],", "[]", "]"},
        {"[", "1,", "1", "]"},
        {"[", "-1,", "1", "]"},
        {"[", "1.5,", "1", "]"},
        {"[", "1e1,", "1", "]"},
        {"[", "\"\",", "\"\"", "]"},
        {"[", "\"\\n\",", "\"\"", "]"},
        {"[", "\"\\u0000\",", "\"\"", "]"},
        {"[", "null,", "null", "]"},
        {"[", "[[]],", "1", "]"},
        {"[", "[[1]],", "1", "]"},
        {"[", "{\"\":1},", "1", "]"},
        {"[", "{\"\":{}},", "1", "]"},
        {"[", "{\"\":1,\"a\":2},", "1", "]"},
        {"[", "[1,1,1,1],", "1", "]"},
        {"[", "[[[[[[[[]]]]]]]],", "1", "]"},
        {"{", "\"\":1,", "\"\":1", "}"},
        {"{", "\"\":{},", "\"\":1", "}"},
        {"{", "\"a\":[],", "\"\":1", "}"},
        {"[1,{", "\"\":\"\",", "\"\":1", "}]"},
    };
    enum { N = 100000 };
    struct json_limits plain = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(worst) / sizeof(worst[0]); i++) {
        char *s = repeat(worst[i].head, worst[i].unit, worst[i].last, worst[i].tail, N);
        size_t n = strlen(s);
        struct json_size size;
        struct json_value *v = NULL;
        assert_int_equal(json_check(s, n, 0, &plain, &size, NULL), ERR_OK);
        size_t bytes = size.n_nodes * 12 + size.n_index * 4;
        if (bytes > 6 * n + 64) fail_msg("%s: %zu bytes for %zu", worst[i].unit, bytes, n);
        assert_int_equal(json_read(&v, s, n, NULL, NULL), ERR_OK);
        json_put(v);
        free(s);
    }
    /* many different names: the table of them is in the bound as well */
    char *s = malloc(20 * N), *p = s;
    assert_non_null(s);
    *p++ = '{';
    for (int i = 0; i < N; i++) p += sprintf(p, "\"%x\":%d,", i, i % 10);
    strcpy(p, "\"x\":1}");
    struct json_size size;
    assert_int_equal(json_check(s, strlen(s), 0, &plain, &size, NULL), ERR_OK);
    assert_true(size.n_nodes * 12 + size.n_index * 4 <= 6 * strlen(s) + 64);
    struct json_value *v = parse(s);
    assert_int_equal(json_obj_len(v), N + 1);
    for (int i = 0; i < N; i += 7) {
        char name[16];
        int64_t got = -1;
        snprintf(name, sizeof(name), "%x", i);
        assert_int_equal(json_get_i64(v, name, &got), JSON_OK);
        assert_int_equal(got, i % 10);
    }
    json_put(v);
    free(s);
}

/* ---- names */

static void names(void **state) {
    struct json_value *v = parse("{\"a\":1,\"b\":null,\"a\":[2],\"\":3,\"\\u0062\":4}"), *x;
    (void)state;
    assert_text(v, "{\"a\":[2],\"b\":4,\"\":3}"); /* the first place, the last value */
    assert_true(json_obj_find(v, "a", NULL));
    assert_false(json_obj_find(v, "c", &x));
    assert_null(x);
    assert_false(json_obj_find(NULL, "c", &x));
    json_put(v);
    /* few left of many: no table then */
    char *s = repeat("{\"x\":0,", "\"k\":1,", "\"k\":2", "}", 1000);
    v = parse(s);
    assert_text(v, "{\"x\":0,\"k\":2}");
    json_put(v);
    free(s);
    /* 17 to 40 names: the table's first sizes, each found, none that is not there */
    for (int n = 10; n < 40; n++) {
        char text[1000], *p = text, name[16];
        *p++ = '{';
        for (int i = 0; i < n; i++) p += sprintf(p, "%s\"n%d\":%d", i > 0 ? "," : "", i, i);
        strcpy(p, "}");
        v = parse(text);
        assert_text(v, text);
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof(name), "n%d", i);
            assert_true(json_obj_find(v, name, &x));
            assert_int_equal(json_i64(x), i);
        }
        assert_false(json_obj_find(v, "n", &x));
        json_put(v);
    }
}

/* 400,000 names cost a table's time, not its square. */
static void many_names_take_no_longer(void **state) {
    enum { N = 400000 };
    char *s = malloc(24 * N), *p = s;
    (void)state;
    assert_non_null(s);
    *p++ = '{';
    for (int i = 0; i < N; i++) p += sprintf(p, "%s\"name%d\":%d", i > 0 ? "," : "", i, i);
    strcpy(p, "}");
    clock_t t = clock();
    struct json_value *v = parse(s), *made = json_new_obj();
    json_obj_foreach(v, name, child) {
        assert_int_equal(json_obj_set(made, name, json_ref(child)), 0);
    }
    assert_true(json_equal(v, made));
    json_put(v); /* its parts keep it */
    assert_string_equal(json_to_text(made, JSON_COMPACT, NULL), s);
    json_put(made);
    assert_true(clock() - t < 20 * CLOCKS_PER_SEC); /* squares would be hours */
    free(s);
}

/* ---- random trees */

static void put_random(char **p, int depth) {
    static const char *const leaves[] = {"null",
                                         "true",
                                         "false",
                                         "0",
                                         "-1",
                                         "12.50",
                                         "1E5",
                                         "\"text\"",
                                         "\"\"",
                                         "\"\xC3\xA4\"",
                                         "18446744073709551615",
                                         "99999999999999999999"};
    unsigned kind = draw(depth < 5 ? 4 : 2), n = draw(6);
    if (draw(20) == 0) n = 30;
    if (kind < 2) {
        *p = stpcpy(*p, leaves[draw(12)]);
        return;
    }
    *(*p)++ = kind == 2 ? '[' : '{';
    for (unsigned i = 0; i < n; i++) {
        if (i > 0) *(*p)++ = ',';
        if (kind == 3) *p += sprintf(*p, "\"m%u\":", i);
        put_random(p, depth + (n > 6 ? 4 : 1));
    }
    *(*p)++ = kind == 2 ? ']' : '}';
    **p = 0;
}

/* The same value, made. */
static struct json_value *copy_of(const struct json_value *v) {
    struct json_value *c;
    switch (json_type_of(v)) {
    case json_type_array:
        c = json_new_arr();
        for (size_t i = 0; i < json_arr_len(v); i++) json_arr_add(c, copy_of(json_arr_at(v, i)));
        return c;
    case json_type_object:
        c = json_new_obj();
        {
            json_obj_foreach(v, name, child) {
                json_obj_set(c, name, copy_of(child));
            }
        }
        return c;
    case json_type_string: return json_new_str_n(json_str(v), json_str_len(v));
    case json_type_boolean: return json_new_bool(json_bool(v));
    case json_type_int:
        return json_u64(v) <= INT64_MAX ? json_new_i64(json_i64(v)) : json_new_u64(json_u64(v));
    case json_type_double: {
        char text[64];
        json_literal(text, sizeof(text), v);
        return json_new_f64_as(json_f64(v), text);
    }
    default: return NULL;
    }
}

static struct json_value *random_container(struct json_value *v) {
    for (int hop = 0; hop < 20; hop++) {
        struct json_value *next = NULL;
        if (json_is(v, json_type_array) && json_arr_len(v) > 0) {
            next = json_arr_at(v, draw((unsigned)json_arr_len(v)));
        } else if (json_is(v, json_type_object)) {
            char name[8];
            snprintf(name, sizeof(name), "m%u", draw(6));
            json_obj_find(v, name, &next);
        }
        if (!json_is(next, json_type_array) && !json_is(next, json_type_object)) return v;
        v = next;
    }
    return v;
}

static void change(struct json_value *v, uint64_t with_seed) {
    uint64_t was = seed;
    seed = with_seed;
    struct json_value *at = random_container(v);
    char name[8];
    snprintf(name, sizeof(name), "m%u", draw(8));
    unsigned what = draw(3), n = draw(5);
    if (json_is(at, json_type_array)) {
        if (what == 0)
            json_arr_put(at, n, json_new_i64(7));
        else
            json_arr_add(at, json_new_str("added"));
    } else if (what == 0) {
        json_obj_del(at, name);
    } else if (what == 1) {
        struct json_value *old;
        json_obj_find(at, name, &old);
        json_obj_set(at, "moved", json_ref(old)); /* a part of the same tree */
    } else {
        json_obj_set(at, name, NULL);
    }
    seed = was;
}

static void random_trees(void **state) {
    static char text[1 << 20];
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char *p = text;
        put_random(&p, 0);
        *p = 0;
        struct json_value *v = parse(text), *copy = copy_of(v);
        assert_string_equal(json_to_text(v, JSON_COMPACT, NULL), text);
        assert_string_equal(json_to_text(copy, JSON_COMPACT, NULL), text);
        assert_true(json_equal(v, copy));
        char *pretty = strdup(json_to_text(v, JSON_PRETTY, NULL));
        struct json_value *again = parse(pretty);
        assert_true(json_equal(v, again));
        json_put(again);
        free(pretty);
        /* a part outlives its tree */
        struct json_value *part =
            v != NULL && json_type_of(v) >= json_type_object ? random_container(v) : NULL;
        json_ref(part);
        if (part != NULL)
            for (int i = 0; i < 8; i++) {
                uint64_t s = seed + (uint64_t)i * 7919u;
                change(v, s);
                change(copy, s);
                assert_true(json_equal(v, copy));
                char *one = strdup(json_to_text(v, JSON_COMPACT, NULL));
                assert_string_equal(one, json_to_text(copy, JSON_COMPACT, NULL));
                free(one);
            }
        json_put(v);
        json_put(copy);
        if (part != NULL) assert_non_null(json_to_text(part, JSON_COMPACT, NULL));
        json_put(part);
    }
}

static void made_values(void **state) {
    struct json_value *o = json_new_obj(), *a = json_new_arr();
    (void)state;
    json_obj_set(o, "s", json_new_str("a\"\\/\n\x01\x7F\xC3\xA4"));
    json_obj_set(o, "z", json_new_str_n("\0", 1));
    json_obj_set(o, "i", json_new_i64(INT64_MIN));
    json_obj_set(o, "u", json_new_u64(UINT64_MAX));
    json_obj_set(o, "v", json_new_u64(INT64_MAX));
    json_obj_set(o, "d", json_new_f64(2));
    json_obj_set(o, "e", json_new_f64_as(0.1, "0.10"));
    json_obj_set(o, "b", json_new_bool(true));
    json_obj_set(o, "n", NULL);
    json_arr_put(a, 2, json_new_i64(0));
    json_obj_set(o, "a", a);
    assert_text(o, "{\"s\":\"a\\\"\\\\/\\n\\u0001\x7F\xC3\xA4\",\"z\":\"\\u0000\","
                   "\"i\":-9223372036854775808,\"u\":18446744073709551615,"
                   "\"v\":9223372036854775807,\"d\":2.0,\"e\":0.10,\"b\":true,\"n\":null,"
                   "\"a\":[null,null,0]}");
    struct json_value *again = parse(json_to_text(o, JSON_COMPACT, NULL));
    uint64_t u = 0;
    int64_t i = 0;
    double d = 0;
    assert_true(json_equal(o, again));
    assert_int_equal(json_get_u64(o, "u", &u), JSON_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(json_get_i64(o, "u", &i), json_get_i64(again, "u", &i));
    assert_int_equal(json_get_f64(o, "u", &d), JSON_OK);
    assert_true(d == 18446744073709551616.0);
    assert_int_equal(json_get_i64(o, "v", &i), JSON_OK);
    assert_true(i == INT64_MAX);
    /* What does not get in is given away all the same. */
    assert_int_equal(json_arr_add(o, json_new_str("lost")), -1); /* no array */
    assert_int_equal(json_arr_put(NULL, 0, json_new_str("lost")), -1);
    assert_int_equal(json_obj_set(NULL, "a", json_new_str("lost")), -1);
    assert_int_equal(json_obj_set(again, "z", json_ref(o)), 0);
    json_put(again);
    json_put(o);
    assert_string_equal(json_to_text(NULL, JSON_COMPACT, NULL), "null");
    o = parse("{\"a\":[],\"b\":{\"c\":[1]},\"d\":{}}");
    assert_string_equal(json_to_text(o, JSON_PRETTY, NULL),
                        "{\n  \"a\": [],\n  \"b\": {\n    \"c\": [\n      1\n    ]\n  },\n"
                        "  \"d\": {}\n}");
    json_put(o);
}

static void in_place(void **state) {
    char text[] = "\xEF\xBB\xBF{\"\\u0061\":\"\\ud83d\\ude00\",\"n\":12}x";
    struct json_value *v;
    const char *s;
    size_t n;
    int64_t i;
    (void)state;
    assert_int_equal(json_read_in_place(&v, text, sizeof(text) - 1, NULL, NULL), ERR_BAD_JSON);
    assert_null(v);
    assert_int_equal(json_read_in_place(&v, text, sizeof(text) - 2, NULL, NULL), ERR_OK);
    assert_int_equal(json_get_str(v, "a", &s, &n), JSON_OK);
    assert_string_equal(s, "\xF0\x9F\x98\x80");
    assert_true(s > text && s < text + sizeof(text));
    assert_int_equal(json_get_i64(v, "n", &i), JSON_OK);
    assert_int_equal(i, 12);
    json_put(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(names),
        cmocka_unit_test(many_names_take_no_longer),
        cmocka_unit_test(random_trees),
        cmocka_unit_test(made_values),
        cmocka_unit_test(in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
