/* tok_json: see the header. */
#include "common/text/tok_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t tok_enter(struct tok_at *at, const char *fmt, ...) {
    size_t old = strlen(at->path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(at->path + old, sizeof at->path - old, fmt, ap);
    va_end(ap);
    return old;
}

void tok_leave(struct tok_at *at, size_t old) {
    at->path[old] = '\0';
}

static enum err vfail(struct tok_at *at, enum err code, const char *fmt, va_list ap) {
    char text[320];
    vsnprintf(text, sizeof text, fmt, ap);
    return err_set(at->eb, code, "%s: %s%s%s", at->name, at->path, at->path[0] ? ": " : "", text);
}

enum err tok_fail(struct tok_at *at, enum err code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    code = vfail(at, code, fmt, ap);
    va_end(ap);
    return code;
}

enum err tok_fail_at(struct tok_at *at, const char *key, const char *fmt, ...) {
    size_t old = tok_enter(at, "%s%s", at->path[0] ? "." : "", key);
    enum err e;
    va_list ap;
    va_start(ap, fmt);
    e = vfail(at, ERR_BAD_FILE, fmt, ap);
    va_end(ap);
    tok_leave(at, old);
    return e;
}

/* Turns what a getter said into an error; JSON_OK is ERR_OK. */
static enum err check(struct tok_at *at, const char *key, enum json_got got, const char *want) {
    switch (got) {
    case JSON_OK: return ERR_OK;
    case JSON_ABSENT: return tok_fail_at(at, key, "is missing, must be %s", want);
    case JSON_NULL: return tok_fail_at(at, key, "must be %s, got null", want);
    default: return tok_fail_at(at, key, "must be %s", want);
    }
}

enum err tok_need_str(struct tok_at *at, const struct json_value *o, const char *key,
                      size_t bytes_max, const char **s, size_t *n) {
    enum err e = check(at, key, json_get_str(o, key, s, n), "a string");
    if (e == ERR_OK && *n > bytes_max) {
        e = tok_fail_at(at, key, "must have at most %zu bytes, got %zu", bytes_max, *n);
    }
    return e;
}

enum err tok_need_arr(struct tok_at *at, const struct json_value *o, const char *key,
                      struct json_value **out) {
    return check(at, key, json_get_arr(o, key, out), "an array");
}

enum err tok_need_bool(struct tok_at *at, const struct json_value *o, const char *key, bool *out) {
    return check(at, key, json_get_bool(o, key, out), "true or false");
}

enum err tok_opt_bool(struct tok_at *at, const struct json_value *o, const char *key, bool *out) {
    enum json_got got = json_get_bool(o, key, out);
    if (got == JSON_ABSENT || got == JSON_NULL) return ERR_OK;
    return check(at, key, got, "true or false");
}

enum err tok_need_u32(struct tok_at *at, const struct json_value *o, const char *key, uint32_t max,
                      uint32_t *out) {
    uint64_t v = 0;
    char want[64];
    enum json_got got = json_get_u64(o, key, &v);
    snprintf(want, sizeof want, "an integer from 0 to %u", max);
    if (got == JSON_OK && v > max) got = JSON_WRONG_TYPE;
    if (got == JSON_OK) *out = (uint32_t)v;
    return check(at, key, got, want);
}

enum err tok_each_step(struct tok_at *at, const struct json_value *o, const char *list,
                       tok_step_fn *one, void *arg) {
    const char *type;
    struct json_value *arr;
    size_t n;
    enum err e;
    if (o == NULL) return ERR_OK;
    if (!json_is(o, json_type_object)) {
        return tok_fail(at, ERR_BAD_FILE, "must be an object or null");
    }
    if ((e = tok_need_str(at, o, "type", TOK_STRING_BYTES_MAX, &type, &n)) != ERR_OK) return e;
    if (strcmp(type, "Sequence") != 0) return one(at, o, type, arg);
    if ((e = tok_need_arr(at, o, list, &arr)) != ERR_OK) return e;
    for (size_t i = 0; i < json_arr_len(arr) && e == ERR_OK; i++) {
        const struct json_value *item = json_arr_at(arr, i);
        size_t old = tok_enter(at, "[%zu]", i);
        if (item == NULL) {
            e = tok_fail(at, ERR_BAD_FILE, "must be an object, got null");
        } else {
            e = tok_each_step(at, item, list, one, arg);
        }
        tok_leave(at, old);
    }
    return e;
}
