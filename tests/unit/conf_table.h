/* conf_table: holds every row of a configuration table against its own words: both sides of every
 * bound, every word of a list, wrong types, the exact texts. For the tests of the programs' tables
 * (common/base/conf.h). Include after cmocka.h. */
#ifndef BATON_TESTS_CONF_TABLE_H
#define BATON_TESTS_CONF_TABLE_H

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/conf.h"
#include "proto/json.h"

enum { CT_STRUCT_BYTES_MAX = 1 << 20 };

struct conf_table {
    const struct conf_key *keys;
    size_t n;
    size_t struct_bytes;
    const char *base; /* a file that says what must be said */
};

static struct json_value *ct_parse(const char *text) {
    struct json_value *v = NULL;
    assert_int_equal(json_read(&v, text, strlen(text), NULL, NULL), ERR_OK);
    return v;
}

/* Sets the value (JSON text) at a dotted path, making what is missing on the way. */
static void ct_set(struct json_value *root, const char *path, const char *value) {
    struct json_value *at = root;
    for (;;) {
        char seg[128];
        size_t n = strcspn(path, ".");
        bool last = path[n] == 0;
        struct json_value *next = NULL;
        memcpy(seg, path, n);
        seg[n] = 0;
        if (last) {
            next = ct_parse(value);
        } else if (json_is(at, json_type_array)) {
            next = json_arr_at(at, strtoul(seg, NULL, 10));
        } else {
            json_obj_find(at, seg, &next);
        }
        if (last || next == NULL) {
            if (!last) next = isdigit((unsigned char)path[n + 1]) ? json_new_arr() : json_new_obj();
            if (json_is(at, json_type_array)) {
                json_arr_put(at, strtoul(seg, NULL, 10), next);
            } else {
                json_obj_set(at, seg, next);
            }
        }
        if (last) return;
        at = next;
        path += n + 1;
    }
}

static struct json_value *ct_with(const struct conf_table *t, const char *path, const char *value) {
    struct json_value *root = ct_parse(t->base);
    assert_non_null(root);
    ct_set(root, path, value);
    return root;
}

/* Reads the base with one value changed, into dst. */
static enum err ct_read(const struct conf_table *t, void *dst, const struct conf_key *k,
                        const char *value, struct errbuf *eb) {
    struct json_value *root = ct_with(t, k->path, value);
    memset(dst, 0, t->struct_bytes);
    memset(eb, 0, sizeof(*eb));
    conf_defaults(dst, t->keys, t->n);
    enum err e = conf_read(dst, t->keys, t->n, root, "", true, eb);
    json_put(root);
    return e;
}

static void ct_refused(const struct conf_table *t, void *dst, const struct conf_key *k,
                       const char *value, const char *text) {
    struct errbuf eb;
    char want[512];
    snprintf(want, sizeof(want), "%s %s", k->path, text);
    if (ct_read(t, dst, k, value, &eb) != ERR_BAD_CONFIG || strcmp(eb.text, want) != 0)
        fail_msg("%s = %s:\n  got  \"%s\"\n  want \"%s\"", k->path, value, eb.text, want);
}

static const void *ct_taken(const struct conf_table *t, void *dst, const struct conf_key *k,
                            const char *value) {
    struct errbuf eb;
    if (ct_read(t, dst, k, value, &eb) != ERR_OK)
        fail_msg("%s = %s is refused: %s", k->path, value, eb.text);
    return (const char *)dst + k->offset;
}

static void ct_int(const struct conf_table *t, void *dst, const struct conf_key *k) {
    const double bounds[2] = {k->min, k->max};
    static const char *const wrong[] = {"1.5", "1.0",  "true",   "[]",
                                        "{}",  "\"\"", "\"1x\"", "\" 1\""};
    char value[64], text[256];
    int64_t got;
    for (int side = 0; side < 2; side++) {
        for (int quoted = 0; quoted < 2; quoted++) {
            const char *q = quoted ? "\"" : "";
            snprintf(value, sizeof(value), "%s%.0f%s", q, bounds[side], q);
            memcpy(&got, ct_taken(t, dst, k, value), sizeof(got));
            assert_true((double)got == bounds[side]);
            snprintf(value, sizeof(value), "%s%.0f%s", q, bounds[side] + (side == 0 ? -1 : 1), q);
            snprintf(text, sizeof(text), "must be an integer from %.0f to %.0f, got %s", k->min,
                     k->max, value);
            ct_refused(t, dst, k, value, text);
        }
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text), "must be an integer from %.0f to %.0f, got %s", k->min, k->max,
                 wrong[i]);
        ct_refused(t, dst, k, wrong[i], text);
    }
}

static void ct_f64(const struct conf_table *t, void *dst, const struct conf_key *k) {
    const double bounds[2] = {k->min, k->max};
    char value[64], text[256];
    double got;
    for (int side = 0; side < 2; side++) {
        snprintf(value, sizeof(value), "%.17g", bounds[side]);
        memcpy(&got, ct_taken(t, dst, k, value), sizeof(got));
        assert_true(got == bounds[side]);
        snprintf(value, sizeof(value), "\"%.17g\"", bounds[side]);
        ct_taken(t, dst, k, value);
        snprintf(value, sizeof(value), "%.6f", bounds[side] + (side == 0 ? -0.001 : 0.001));
        snprintf(text, sizeof(text), "must be a number from %g to %g, got %s", k->min, k->max,
                 value);
        ct_refused(t, dst, k, value, text);
    }
    static const char *const wrong[] = {"true", "\"x\"", "\"\"", "\"nan\"", "[]"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text), "must be a number from %g to %g, got %s", k->min, k->max,
                 wrong[i]);
        ct_refused(t, dst, k, wrong[i], text);
    }
}

static void ct_bool(const struct conf_table *t, void *dst, const struct conf_key *k) {
    static const char *const wrong[] = {"0", "1", "\"true\"", "[]"};
    char text[128];
    assert_true(*(const bool *)ct_taken(t, dst, k, "true"));
    assert_false(*(const bool *)ct_taken(t, dst, k, "false"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text), "must be true or false, got %s", wrong[i]);
        ct_refused(t, dst, k, wrong[i], text);
    }
}

static void ct_string(const struct conf_table *t, void *dst, const struct conf_key *k) {
    char *value = malloc(k->size + 8), text[128];
    for (size_t n = k->size - 1; n <= k->size; n++) {
        value[0] = '"';
        memset(value + 1, 'a', n);
        strcpy(value + 1 + n, "\"");
        snprintf(text, sizeof(text), "must have at most %zu characters, got %zu", k->size - 1, n);
        if (n >= k->size) {
            ct_refused(t, dst, k, value, text);
        } else if (k->type == CONF_STR || k->type == CONF_NAME || k->type == CONF_LOWER) {
            assert_int_equal(strlen(ct_taken(t, dst, k, value)), n);
        }
    }
    free(value);
    ct_refused(t, dst, k, "5", "must be a string, got 5");
    ct_refused(t, dst, k, "\"a\\u0000b\"", "must be a string, got \"a\\u0000b\"");
}

static void ct_word(const struct conf_table *t, void *dst, const struct conf_key *k) {
    char text[512];
    for (const char *w = k->words; *w != 0;) {
        char value[128];
        size_t n = strcspn(w, "|");
        snprintf(value, sizeof(value), "\"%.*s\"", (int)n, w);
        assert_true(strlen(ct_taken(t, dst, k, value)) == n);
        w += n + (w[n] == '|');
    }
    static const char *const wrong[] = {"\"\"", "\"?\"", "\"a|b\""};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text), "must be one of %s, got %s", k->words, wrong[i]);
        ct_refused(t, dst, k, wrong[i], text);
    }
}

static void ct_list(const struct conf_table *t, void *dst, const struct conf_key *k) {
    size_t max = (size_t)k->max;
    char *value = malloc((max + 1) * 8 + k->size + 16), text[160];
    const char *at = ct_taken(t, dst, k, "\"one\"");
    assert_string_equal(at, "one");
    for (size_t n = 0; n <= max + 1; n++) { /* entries */
        strcpy(value, "[");
        for (size_t i = 0; i < n; i++) strcat(value, i > 0 ? ",\"e\"" : "\"e\"");
        strcat(value, "]");
        if (n > max) {
            snprintf(text, sizeof(text), "must have at most %zu entries, got %zu", max, n);
            ct_refused(t, dst, k, value, text);
            break;
        }
        at = ct_taken(t, dst, k, value);
        for (size_t i = 0; i < max; i++) assert_string_equal(at + i * k->size, i < n ? "e" : "");
    }
    for (size_t n = k->size - 1; n <= k->size; n++) { /* characters */
        strcpy(value, "[\"");
        memset(value + 2, 'a', n);
        strcpy(value + 2 + n, "\"]");
        snprintf(text, sizeof(text), "must have entries of at most %zu characters, got %zu",
                 k->size - 1, n);
        if (n >= k->size)
            ct_refused(t, dst, k, value, text);
        else
            assert_int_equal(strlen(ct_taken(t, dst, k, value)), n);
    }
    free(value);
    ct_refused(t, dst, k, "5", "must be an array of strings, got 5");
    ct_refused(t, dst, k, "[\"a\",{}]", "must be an array of strings, got {}");
}

static void ct_char_refused(const struct conf_table *t, void *dst, const struct conf_key *k,
                            const char *value) {
    char text[128];
    snprintf(text, sizeof(text), "must be 1 to %zu of the characters a-z and _, got %s",
             k->size - 1, value);
    ct_refused(t, dst, k, value, text);
}

static void ct_rows(const struct conf_table *t) {
    void *dst = malloc(t->struct_bytes);
    for (size_t i = 0; i < t->n; i++) {
        const struct conf_key *k = &t->keys[i];
        assert_true(k->help != NULL && k->help[0] != 0);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(k->path, t->keys[j].path);
        switch (k->type) {
        case CONF_BOOL: ct_bool(t, dst, k); break;
        case CONF_INT: ct_int(t, dst, k); break;
        case CONF_F64: ct_f64(t, dst, k); break;
        case CONF_STR: ct_string(t, dst, k); break;
        case CONF_LIST: ct_list(t, dst, k); break;
        case CONF_WORD:
            ct_string(t, dst, k);
            ct_word(t, dst, k);
            break;
        case CONF_LOWER:
            ct_string(t, dst, k);
            ct_taken(t, dst, k, "\"a_z\"");
            ct_char_refused(t, dst, k, "\"\"");
            ct_char_refused(t, dst, k, "\"aB\"");
            ct_char_refused(t, dst, k, "\"a-b\"");
            break;
        case CONF_NAME:
            ct_string(t, dst, k);
            ct_taken(t, dst, k, "\"a-b._9\"");
            ct_refused(t, dst, k, "\"-a\"",
                       "must be letters, digits, '-', '.', '_' (none of these three at the ends), "
                       "got \"-a\"");
            break;
        case CONF_IP:
            ct_string(t, dst, k);
            ct_taken(t, dst, k, "\"127.0.0.1\"");
            ct_taken(t, dst, k, "\"::1\"");
            ct_refused(t, dst, k, "\"localhost\"",
                       "must be an IPv4 or IPv6 address, got \"localhost\"");
            break;
        }
        ct_taken(t, dst, k, k->must ? "\"needed\"" : "null"); /* null: as if absent */
    }
    free(dst);
}

#endif
