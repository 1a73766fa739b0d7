/* json: the pass of json_check.c, then the tree; and the typed getters. */
#include "proto/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "proto/json_check.h"
#include "proto/json_node.h"

static const char *const client_exempt[] = {
    "tools", "response_format", "text", "guided_*", "structured_outputs*", "messages[].tool_calls",
    NULL,
};

struct json_limits json_limits_client(int depth_max) {
    return (struct json_limits){
        .depth_max = depth_max, .exempt = client_exempt, .depth_exempt_max = JSON_DEPTH_MAX};
}

static enum err no_memory(size_t n, struct errbuf *eb) {
    json_missing();
    return err_set(eb, ERR_NO_MEMORY, "no memory to parse %zu bytes of JSON", n);
}

/* Checks p[0..n) and makes its tree, in in_place when that is not NULL (the same text then). */
static enum err read_text(struct json_value **out, const char *p, char *in_place, size_t n,
                          const struct json_limits *lim, struct errbuf *eb) {
    static const struct json_limits plain = {.depth_max = JSON_DEPTH_MAX};
    struct json_size size;
    *out = NULL;
    if (n > JSON_TEXT_BYTES_MAX)
        return err_set(eb, ERR_TOO_LARGE, "%zu bytes of JSON, at most %d allowed", n,
                       JSON_TEXT_BYTES_MAX);
    size_t bom = n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    enum err e = json_check(p, n, bom, lim != NULL ? lim : &plain, &size, eb);
    if (e != ERR_OK) return e == ERR_NO_MEMORY ? no_memory(n, eb) : e;
    if (in_place != NULL) in_place += bom;
    return json_tree_build(out, p + bom, in_place, n - bom, &size) ? ERR_OK : no_memory(n, eb);
}

enum err json_read_in_place(struct json_value **out, char *p, size_t n,
                            const struct json_limits *lim, struct errbuf *eb) {
    return read_text(out, p, p, n, lim, eb);
}

enum err json_read(struct json_value **out, const char *p, size_t n, const struct json_limits *lim,
                   struct errbuf *eb) {
    return read_text(out, p, NULL, n, lim, eb);
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

enum err json_read_file(struct json_value **out, const char *path, size_t bytes_max,
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
    } else if ((uintmax_t)st.st_size > bytes_max || st.st_size > JSON_TEXT_BYTES_MAX) {
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

enum json_got json_get(const struct json_value *obj, const char *key, struct json_value **out) {
    struct json_value *v = NULL;
    if (!json_is(obj, json_type_object) || !json_obj_find(obj, key, &v)) return JSON_ABSENT;
    if (v == NULL) return JSON_NULL;
    *out = v;
    return JSON_OK;
}

static enum json_got as_type(const struct json_value *v, enum json_type type) {
    return v == NULL ? JSON_NULL : json_is(v, type) ? JSON_OK : JSON_WRONG_TYPE;
}

static struct json_value *unconst(const struct json_value *v) {
    return (struct json_value *)v;
}

enum json_got json_as_str(const struct json_value *v, const char **s, size_t *n) {
    enum json_got g = as_type(v, json_type_string);
    if (g != JSON_OK) return g;
    *s = json_str(v);
    *n = json_str_len(v);
    return JSON_OK;
}

enum json_got json_as_i64(const struct json_value *v, int64_t *out) {
    enum json_got g = as_type(v, json_type_int);
    if (g != JSON_OK) return g;
    /* The getters saturate: a value over INT64_MAX shows only in the unsigned one. */
    if (json_u64(v) > INT64_MAX) return JSON_WRONG_TYPE;
    *out = json_i64(v);
    return JSON_OK;
}

enum json_got json_as_u64(const struct json_value *v, uint64_t *out) {
    enum json_got g = as_type(v, json_type_int);
    if (g != JSON_OK) return g;
    if (json_i64(v) < 0) return JSON_WRONG_TYPE;
    *out = json_u64(v);
    return JSON_OK;
}

enum json_got json_as_f64(const struct json_value *v, double *out) {
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
    if (g == JSON_OK) *out = json_f64(v);
    return g;
}

enum json_got json_as_bool(const struct json_value *v, bool *out) {
    enum json_got g = as_type(v, json_type_boolean);
    if (g == JSON_OK) *out = json_bool(v);
    return g;
}

enum json_got json_as_arr(const struct json_value *v, struct json_value **out) {
    enum json_got g = as_type(v, json_type_array);
    if (g == JSON_OK) *out = unconst(v);
    return g;
}

enum json_got json_as_obj(const struct json_value *v, struct json_value **out) {
    enum json_got g = as_type(v, json_type_object);
    if (g == JSON_OK) *out = unconst(v);
    return g;
}

enum json_got json_get_str(const struct json_value *obj, const char *key, const char **s,
                           size_t *n) {
    struct json_value *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_str(v, s, n) : g;
}

enum json_got json_get_i64(const struct json_value *obj, const char *key, int64_t *out) {
    struct json_value *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_i64(v, out) : g;
}

enum json_got json_get_u64(const struct json_value *obj, const char *key, uint64_t *out) {
    struct json_value *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_u64(v, out) : g;
}

enum json_got json_get_f64(const struct json_value *obj, const char *key, double *out) {
    struct json_value *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_f64(v, out) : g;
}

enum json_got json_get_bool(const struct json_value *obj, const char *key, bool *out) {
    struct json_value *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_bool(v, out) : g;
}

enum json_got json_get_arr(const struct json_value *obj, const char *key, struct json_value **out) {
    struct json_value *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_arr(v, out) : g;
}

enum json_got json_get_obj(const struct json_value *obj, const char *key, struct json_value **out) {
    struct json_value *v;
    enum json_got g = json_get(obj, key, &v);
    return g == JSON_OK ? json_as_obj(v, out) : g;
}

size_t json_literal(char *dst, size_t dst_bytes, const struct json_value *v) {
    if (dst_bytes == 0) return 0;
    size_t len = json_print_some(dst, dst_bytes, v);
    if (len == dst_bytes) { /* maybe cut: never inside a character, and room for the zero */
        len--;
        while (len > 0 && ((unsigned char)dst[len] & 0xC0) == 0x80) len--;
    }
    dst[len] = '\0';
    return len;
}
