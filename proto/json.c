/* json: json-c behind the pass of json_check.c, and the typed getters. */
#include "proto/json.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json_tokener.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "proto/json_check.h"

/* An integer outside 64 bits is handed to json-c with this tail, which makes a double of it (json-c
 * alone would saturate it). json_literal takes the tail off again. */
static const char wide_tail[] = "E+00";
enum { WIDE_DIGITS_MIN = 19 };

static const char *const client_exempt[] = {
    "tools", "response_format", "guided_*", "structured_outputs*", "messages[].tool_calls", NULL,
};

struct json_limits json_limits_client(int depth_max) {
    return (struct json_limits){
        .depth_max = depth_max, .exempt = client_exempt, .depth_exempt_max = JSON_DEPTH_MAX};
}

/* The checked text with every too wide integer marked. NULL: out of memory. */
static char *mark_wide(const char *p, size_t n, const struct json_wide *w, size_t *n_out) {
    size_t at = 0, len = 0;
    if (w->n > (SIZE_MAX - n) / 4) return NULL;
    char *s = malloc(n + w->n * 4);
    if (s == NULL) return NULL;
    for (size_t i = 0; i < w->n; i++) {
        memcpy(s + len, p + at, w->end[i] - at);
        len += w->end[i] - at;
        memcpy(s + len, wide_tail, 4);
        len += 4;
        at = w->end[i];
    }
    memcpy(s + len, p + at, n - at);
    *n_out = len + n - at;
    return s;
}

static unsigned hex4(const char *p) {
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        v = v * 16 + (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

/* The first escaped surrogate pair at or after `at` in checked text; n when there is none. A
 * backslash stands in strings only, and what follows it belongs to it. */
static size_t next_pair(const char *p, size_t n, size_t at) {
    while (at < n) {
        const char *b = memchr(p + at, '\\', n - at);
        if (b == NULL) return n;
        at = (size_t)(b - p);
        if (b[1] == 'u' && (hex4(b + 2) & 0xFC00) == 0xD800) return at;
        at += 2;
    }
    return n;
}

/* Writes escaped surrogate pairs as the UTF-8 they mean: json-c 0.16 takes the low half of some
 * (U+1D800 and others) for a high one. Returns n when there is none, else fills dst[n] and returns
 * its length, which is smaller. */
static size_t write_pairs_raw(char *dst, const char *p, size_t n) {
    size_t at = 0, len = 0, pair;
    while ((pair = next_pair(p, n, at)) < n) {
        unsigned cp = 0x10000 + ((hex4(p + pair + 2) & 0x3FF) << 10) + (hex4(p + pair + 8) & 0x3FF);
        memcpy(dst + len, p + at, pair - at);
        len += pair - at;
        dst[len++] = (char)(0xF0 | cp >> 18);
        dst[len++] = (char)(0x80 | (cp >> 12 & 0x3F));
        dst[len++] = (char)(0x80 | (cp >> 6 & 0x3F));
        dst[len++] = (char)(0x80 | (cp & 0x3F));
        at = pair + 12;
    }
    memcpy(dst + len, p + at, n - at);
    return len + n - at;
}

static enum err build(struct json_object **out, const char *p, size_t n, struct errbuf *eb) {
    struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 2);
    if (tok == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory to parse %zu bytes of JSON", n);
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
    struct json_object *v = json_tokener_parse_ex(tok, p, (int)n);
    /* A number at the top level ends only with the text: the zero byte says so. */
    if (json_tokener_get_error(tok) == json_tokener_continue) v = json_tokener_parse_ex(tok, "", 1);
    enum json_tokener_error je = json_tokener_get_error(tok);
    json_tokener_free(tok);
    if (je != json_tokener_success) {
        json_object_put(v);
        return err_set(eb, ERR_BAD_JSON, "%s", json_tokener_error_desc(je));
    }
    *out = v;
    return ERR_OK;
}

enum err json_read(struct json_object **out, const char *p, size_t n, const struct json_limits *lim,
                   struct errbuf *eb) {
    static const struct json_limits plain = {.depth_max = JSON_DEPTH_MAX};
    struct json_wide wide = {0};
    char *copy = NULL;
    size_t bom = 0;

    *out = NULL;
    if (n > INT_MAX - 4096) return err_set(eb, ERR_TOO_LARGE, "%zu bytes of JSON", n);
    if (n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) bom = 3;
    enum err e = json_check(p, n, bom, lim != NULL ? lim : &plain, &wide, eb);
    p += bom;
    n -= bom;
    if (e == ERR_OK && wide.n > 0) {
        for (size_t i = 0; i < wide.n; i++) wide.end[i] -= bom;
        copy = mark_wide(p, n, &wide, &n);
        if (copy == NULL) e = err_set(eb, ERR_NO_MEMORY, "no memory to parse %zu bytes of JSON", n);
        if (n > INT_MAX) e = err_set(eb, ERR_TOO_LARGE, "%zu bytes of JSON", n);
    }
    if (e == ERR_OK && next_pair(copy != NULL ? copy : p, n, 0) < n) {
        char *raw = malloc(n);
        if (raw == NULL) {
            e = err_set(eb, ERR_NO_MEMORY, "no memory to parse %zu bytes of JSON", n);
        } else {
            n = write_pairs_raw(raw, copy != NULL ? copy : p, n);
            free(copy);
            copy = raw;
        }
    }
    if (e == ERR_OK) e = build(out, copy != NULL ? copy : p, n, eb);
    free(copy);
    free(wide.end);
    return e;
}

static enum err read_fd(int fd, char *data, size_t n_max, size_t *n) {
    *n = 0;
    while (*n < n_max) {
        ssize_t got = read(fd, data + *n, n_max - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ERR_IO;
        if (got == 0) break;
        *n += (size_t)got;
    }
    return ERR_OK;
}

enum err json_read_file(struct json_object **out, const char *path, size_t bytes_max,
                        const struct json_limits *lim, struct errbuf *eb) {
    struct errbuf why = {0};
    struct stat st;
    char *data = NULL;
    size_t n = 0;
    enum err e;

    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(eb, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path,
                       strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        e = err_set(eb, ERR_IO, "%s: not a regular file", path);
    } else if ((uintmax_t)st.st_size > bytes_max) {
        e = err_set(eb, ERR_TOO_LARGE, "%s: %jd bytes, at most %zu allowed", path,
                    (intmax_t)st.st_size, bytes_max);
    } else if ((data = malloc((size_t)st.st_size + 1)) == NULL) {
        e = err_set(eb, ERR_NO_MEMORY, "%s: no memory for %jd bytes", path, (intmax_t)st.st_size);
    } else if ((e = read_fd(fd, data, (size_t)st.st_size, &n)) != ERR_OK) {
        err_set(eb, e, "%s: %s", path, strerror(errno));
    } else if ((e = json_read(out, data, n, lim, &why)) != ERR_OK) {
        err_set(eb, e, "%s: %s", path, why.text);
    }
    free(data);
    close(fd);
    return e;
}

enum json_got json_get(const struct json_object *obj, const char *key, struct json_object **out) {
    struct json_object *v = NULL;
    if (!json_object_is_type(obj, json_type_object) || !json_object_object_get_ex(obj, key, &v))
        return JSON_ABSENT;
    if (v == NULL) return JSON_NULL;
    *out = v;
    return JSON_OK;
}

static enum json_got as_type(const struct json_object *v, enum json_type type) {
    return v == NULL ? JSON_NULL : json_object_is_type(v, type) ? JSON_OK : JSON_WRONG_TYPE;
}

/* json-c has no const accessors for some types, though none of these changes the value. */
static struct json_object *unconst(const struct json_object *v) {
    return (struct json_object *)v;
}

enum json_got json_as_str(const struct json_object *v, const char **s, size_t *n) {
    enum json_got g = as_type(v, json_type_string);
    if (g != JSON_OK) return g;
    *s = json_object_get_string(unconst(v));
    *n = (size_t)json_object_get_string_len(v);
    return JSON_OK;
}

enum json_got json_as_i64(const struct json_object *v, int64_t *out) {
    enum json_got g = as_type(v, json_type_int);
    if (g != JSON_OK) return g;
    /* json-c saturates: a value over INT64_MAX shows only in the unsigned getter. */
    if (json_object_get_uint64(v) > INT64_MAX) return JSON_WRONG_TYPE;
    *out = json_object_get_int64(v);
    return JSON_OK;
}

enum json_got json_as_u64(const struct json_object *v, uint64_t *out) {
    enum json_got g = as_type(v, json_type_int);
    if (g != JSON_OK) return g;
    if (json_object_get_int64(v) < 0) return JSON_WRONG_TYPE;
    *out = json_object_get_uint64(v);
    return JSON_OK;
}

enum json_got json_as_f64(const struct json_object *v, double *out) {
    int64_t i;
    uint64_t u;
    if (json_as_i64(v, &i) == JSON_OK) {
        *out = (double)i;
        return JSON_OK;
    }
    if (json_as_u64(v, &u) == JSON_OK) {
        *out = (double)u;
        return JSON_OK;
    }
    enum json_got g = as_type(v, json_type_double);
    if (g == JSON_OK) *out = json_object_get_double(v);
    return g;
}

enum json_got json_as_bool(const struct json_object *v, bool *out) {
    enum json_got g = as_type(v, json_type_boolean);
    if (g == JSON_OK) *out = json_object_get_boolean(v);
    return g;
}

enum json_got json_as_arr(const struct json_object *v, struct json_object **out) {
    enum json_got g = as_type(v, json_type_array);
    if (g == JSON_OK) *out = unconst(v);
    return g;
}

enum json_got json_as_obj(const struct json_object *v, struct json_object **out) {
    enum json_got g = as_type(v, json_type_object);
    if (g == JSON_OK) *out = unconst(v);
    return g;
}

enum json_got json_get_str(const struct json_object *obj, const char *key, const char **s,
                           size_t *n) {
    struct json_object *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_str(v, s, n) : g;
}

enum json_got json_get_i64(const struct json_object *obj, const char *key, int64_t *out) {
    struct json_object *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_i64(v, out) : g;
}

enum json_got json_get_u64(const struct json_object *obj, const char *key, uint64_t *out) {
    struct json_object *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_u64(v, out) : g;
}

enum json_got json_get_f64(const struct json_object *obj, const char *key, double *out) {
    struct json_object *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_f64(v, out) : g;
}

enum json_got json_get_bool(const struct json_object *obj, const char *key, bool *out) {
    struct json_object *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_bool(v, out) : g;
}

enum json_got json_get_arr(const struct json_object *obj, const char *key,
                           struct json_object **out) {
    struct json_object *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_arr(v, out) : g;
}

enum json_got json_get_obj(const struct json_object *obj, const char *key,
                           struct json_object **out) {
    struct json_object *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_obj(v, out) : g;
}

size_t json_literal(char *dst, size_t dst_bytes, const struct json_object *v) {
    size_t n = 4, len = 0, n_digits = 0;
    bool in_str = false;
    if (dst_bytes == 0) return 0;
    const char *s = "null";
    if (v != NULL)
        s = json_object_to_json_string_length(
            unconst(v), JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
    if (s == NULL) n = 0;
    size_t i = 0;
    while (i < n && len + 1 < dst_bytes) {
        char c = s[i];
        if (!in_str && n_digits >= WIDE_DIGITS_MIN && n - i >= 4 &&
            memcmp(s + i, wide_tail, 4) == 0) {
            i += 4;
            continue;
        }
        if (in_str && c == '\\' && len + 2 < dst_bytes)
            dst[len++] = s[i++];
        else if (c == '"')
            in_str = !in_str;
        n_digits = c >= '0' && c <= '9' ? n_digits + 1 : 0;
        dst[len++] = s[i++];
    }
    /* A cut never ends inside a character. */
    while (i < n && len > 0 && ((unsigned char)s[i] & 0xC0) == 0x80) {
        i--;
        len--;
    }
    dst[len] = '\0';
    return len;
}
