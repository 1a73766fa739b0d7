/* conf: walks a table of keys over a JSON tree. */
#include "common/base/conf.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "proto/json.h"

enum { PATH_BYTES_MAX = 256, FILE_BYTES_MAX = 10 << 20 };

enum err conf_read_file(struct json_value **root, const char *path, struct errbuf *eb) {
    struct stat st;
    *root = NULL;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IWOTH) != 0)
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s: others than owner and group must not be able to write it, it has mode "
                       "%04o",
                       path, (unsigned)(st.st_mode & 07777));
    return json_read_file(root, path, FILE_BYTES_MAX, NULL, eb);
}

enum err conf_find(struct json_value **out, const struct json_value *root,
                   const char *const whole_path, const char *prefix, struct errbuf *eb) {
    struct json_value *v = (struct json_value *)(uintptr_t)root;
    *out = NULL;
    for (const char *path = whole_path; *path != 0;) {
        char seg[96], lit[128];
        size_t n = strcspn(path, ".");
        assert(n < sizeof(seg));
        memcpy(seg, path, n);
        seg[n] = 0;
        bool index = isdigit((unsigned char)seg[0]);
        if (!json_is(v, index ? json_type_array : json_type_object)) {
            json_literal(lit, sizeof(lit), v);
            return err_set(eb, ERR_BAD_CONFIG, "%s%.*s must be an %s, got %s", prefix,
                           path > whole_path ? (int)(path - whole_path) - 1 : 0, whole_path,
                           index ? "array" : "object", lit);
        }
        struct json_value *next = NULL;
        if (index) {
            next = json_arr_at(v, strtoul(seg, NULL, 10));
        } else if (json_get(v, seg, &next) != JSON_OK) {
            next = NULL;
        }
        if (next == NULL) return ERR_OK;
        v = next;
        path += n;
        if (*path == '.') path++;
    }
    *out = v;
    return ERR_OK;
}

static bool word_in(const char *words, const char *s) {
    size_t n = strlen(s);
    for (const char *p = words; *p != 0;) {
        size_t k = strcspn(p, "|");
        if (k == n && memcmp(p, s, n) == 0) return true;
        p += k + (p[k] == '|');
    }
    return false;
}

static bool lower_ok(const char *s) {
    return s[0] != 0 && s[strspn(s, "abcdefghijklmnopqrstuvwxyz_")] == 0;
}

static bool name_ok(const char *s) {
    size_t n = strlen(s);
    if (n == 0 || strchr("-._", s[0]) != NULL || strchr("-._", s[n - 1]) != NULL) return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && strchr("-._", s[i]) == NULL) return false;
    return true;
}

static bool ip_ok(const char *s) {
    unsigned char a[16];
    return inet_pton(AF_INET, s, a) == 1 || inet_pton(AF_INET6, s, a) == 1;
}

static bool number_of(struct json_value *v, bool integer, double *d, int64_t *i) {
    const char *s;
    size_t n;
    if (integer && json_as_i64(v, i) == JSON_OK) return true;
    if (!integer && json_as_f64(v, d) == JSON_OK) return true;
    if (json_as_str(v, &s, &n) != JSON_OK || n == 0 || isspace((unsigned char)s[0])) return false;
    char *end;
    if (integer) {
        *i = strtoll(s, &end, 10);
    } else {
        *d = strtod(s, &end);
    }
    return *end == 0;
}

/* An array of strings, or one string that stands for an array of one. */
static enum err set_list(char *at, const struct conf_key *k, struct json_value *v,
                         const char *prefix, struct errbuf *eb) {
    size_t max = (size_t)k->max, n_items = 1, n;
    bool array = json_is(v, json_type_array);
    const char *s;
    if (array) n_items = json_arr_len(v);
    if (n_items > max)
        return err_set(eb, ERR_BAD_CONFIG, "%s%s must have at most %zu entries, got %zu", prefix,
                       k->path, max, n_items);
    memset(at, 0, max * k->size);
    for (size_t i = 0; i < n_items; i++) {
        struct json_value *item = array ? json_arr_at(v, i) : v;
        if (json_as_str(item, &s, &n) != JSON_OK || strlen(s) != n) {
            char lit[128];
            json_literal(lit, sizeof(lit), item);
            return err_set(eb, ERR_BAD_CONFIG, "%s%s must be an array of strings, got %s", prefix,
                           k->path, lit);
        }
        if (n >= k->size)
            return err_set(eb, ERR_BAD_CONFIG,
                           "%s%s must have entries of at most %zu characters, got %zu", prefix,
                           k->path, k->size - 1, n);
        memcpy(at + i * k->size, s, n + 1);
    }
    return ERR_OK;
}

/* Checks one value and stores it. */
static enum err set_value(void *dst, const struct conf_key *k, struct json_value *v,
                          const char *prefix, struct errbuf *eb) {
    char *at = (char *)dst + k->offset, lit[128];
    int64_t i = 0;
    double d = 0;
    const char *s = "";
    size_t n = 0;
    json_literal(lit, sizeof(lit), v);
    switch (k->type) {
    case CONF_BOOL:
        if (json_as_bool(v, (bool *)at) != JSON_OK)
            return err_set(eb, ERR_BAD_CONFIG, "%s%s must be true or false, got %s", prefix,
                           k->path, lit);
        return ERR_OK;
    case CONF_INT:
        if (!number_of(v, true, &d, &i) || (double)i < k->min || (double)i > k->max)
            return err_set(eb, ERR_BAD_CONFIG, "%s%s must be an integer from %.0f to %.0f, got %s",
                           prefix, k->path, k->min, k->max, lit);
        memcpy(at, &i, sizeof(i));
        return ERR_OK;
    case CONF_F64:
        if (!number_of(v, false, &d, &i) || !(d >= k->min && d <= k->max))
            return err_set(eb, ERR_BAD_CONFIG, "%s%s must be a number from %g to %g, got %s",
                           prefix, k->path, k->min, k->max, lit);
        memcpy(at, &d, sizeof(d));
        return ERR_OK;
    case CONF_LIST: return set_list(at, k, v, prefix, eb);
    case CONF_STR:
    case CONF_WORD:
    case CONF_LOWER:
    case CONF_NAME:
    case CONF_IP: break;
    }
    if (json_as_str(v, &s, &n) != JSON_OK || strlen(s) != n)
        return err_set(eb, ERR_BAD_CONFIG, "%s%s must be a string, got %s", prefix, k->path, lit);
    if (k->must && n == 0)
        return err_set(eb, ERR_BAD_CONFIG, "%s%s must not be empty: %s", prefix, k->path, k->help);
    if (n >= k->size)
        return err_set(eb, ERR_BAD_CONFIG, "%s%s must have at most %zu characters, got %zu", prefix,
                       k->path, k->size - 1, n);
    if (k->type == CONF_WORD && !word_in(k->words, s))
        return err_set(eb, ERR_BAD_CONFIG, "%s%s must be one of %s, got %s", prefix, k->path,
                       k->words, lit);
    if (k->type == CONF_LOWER && !lower_ok(s))
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s%s must be 1 to %zu of the characters a-z and _, got %s", prefix, k->path,
                       k->size - 1, lit);
    if (k->type == CONF_NAME && !name_ok(s))
        return err_set(
            eb, ERR_BAD_CONFIG,
            "%s%s must be letters, digits, '-', '.', '_' (none of these three at the ends), got %s",
            prefix, k->path, lit);
    if (k->type == CONF_IP && !ip_ok(s))
        return err_set(eb, ERR_BAD_CONFIG, "%s%s must be an IPv4 or IPv6 address, got %s", prefix,
                       k->path, lit);
    memcpy(at, s, n + 1);
    return ERR_OK;
}

void conf_defaults(void *dst, const struct conf_key *keys, size_t n_keys) {
    for (size_t i = 0; i < n_keys; i++) {
        const struct conf_key *k = &keys[i];
        char *at = (char *)dst + k->offset;
        int64_t iv;
        double dv;
        switch (k->type) {
        case CONF_BOOL: *(bool *)at = strcmp(k->def, "true") == 0; break;
        case CONF_INT:
            iv = strtoll(k->def, NULL, 10);
            assert(k->def[0] == 0 ? k->min > 0 : (double)iv >= k->min && (double)iv <= k->max);
            memcpy(at, &iv, sizeof(iv));
            break;
        case CONF_F64:
            dv = strtod(k->def, NULL);
            assert(dv >= k->min && dv <= k->max);
            memcpy(at, &dv, sizeof(dv));
            break;
        case CONF_LIST:
            assert(strlen(k->def) < k->size);
            memset(at, 0, (size_t)k->max * k->size);
            strcpy(at, k->def);
            break;
        case CONF_STR:
        case CONF_WORD:
        case CONF_LOWER:
        case CONF_NAME:
        case CONF_IP:
            assert(strlen(k->def) < k->size && (k->type != CONF_WORD || word_in(k->words, k->def)));
            strcpy(at, k->def);
            break;
        }
    }
}

enum err conf_read(void *dst, const struct conf_key *keys, size_t n_keys,
                   const struct json_value *root, const char *prefix, bool check_must,
                   struct errbuf *eb) {
    for (size_t i = 0; i < n_keys; i++) {
        struct json_value *v;
        enum err e = conf_find(&v, root, keys[i].path, prefix, eb);
        if (e != ERR_OK) return e;
        if (v == NULL) {
            if (check_must && keys[i].must)
                return err_set(eb, ERR_BAD_CONFIG, "%s%s is missing: %s", prefix, keys[i].path,
                               keys[i].help);
            continue;
        }
        e = set_value(dst, &keys[i], v, prefix, eb);
        if (e != ERR_OK) return e;
    }
    return ERR_OK;
}

enum err conf_check(const struct conf_tables *t, const struct json_value *root, struct errbuf *eb) {
    struct conf_scratch scratch;
    return conf_read(&scratch, t->checked, t->n_checked, root, "", false, eb);
}

struct unknown_walk {
    const struct conf_tables *t;
    void (*fn)(void *arg, const char *path);
    void *arg;
    char path[PATH_BYTES_MAX];
};

/* 2: names a key; 1: lies on the way to one; 0: unknown. */
static int known(const struct unknown_walk *u) {
    const struct conf_tables *t = u->t;
    size_t n = strlen(u->path);
    int found = 0;
    for (size_t i = 0; i < t->n_keys + t->n_checked; i++) {
        const char *path = i < t->n_keys ? t->keys[i].path : t->checked[i - t->n_keys].path;
        if (strcmp(path, u->path) == 0) return 2;
        if (strncmp(path, u->path, n) == 0 && path[n] == '.') found = 1;
    }
    for (size_t i = 0; t->also != NULL && t->also[i] != NULL; i++)
        if (strcmp(t->also[i], u->path) == 0) return 2;
    return found;
}

static void walk_unknown(struct unknown_walk *u, const struct json_value *v, int depth);

static void walk_child(struct unknown_walk *u, const char *seg, const struct json_value *v,
                       int depth) {
    size_t n = strlen(u->path);
    if (n + strlen(seg) + 2 > sizeof(u->path)) return;
    snprintf(u->path + n, sizeof(u->path) - n, "%s%s", n > 0 ? "." : "", seg);
    int k = known(u);
    if (k == 0) {
        u->fn(u->arg, u->path);
    } else if (k == 1) {
        walk_unknown(u, v, depth + 1);
    }
    u->path[n] = 0;
}

static void walk_unknown(struct unknown_walk *u, const struct json_value *v, int depth) {
    if (depth > 8) return;
    if (json_is(v, json_type_object)) {
        struct json_value *obj = (struct json_value *)(uintptr_t)v;
        struct json_iter it = json_iter_begin(obj), end = json_iter_end(obj);
        for (; !json_iter_equal(&it, &end); json_iter_next(&it))
            walk_child(u, json_iter_name(&it), json_iter_value(&it), depth);
    } else if (json_is(v, json_type_array)) {
        for (size_t i = 0; i < json_arr_len(v); i++) {
            char seg[24];
            snprintf(seg, sizeof(seg), "%zu", i);
            walk_child(u, seg, json_arr_at(v, i), depth);
        }
    }
}

void conf_unknown(const struct conf_tables *t, const struct json_value *root,
                  void (*fn)(void *arg, const char *path), void *arg) {
    struct unknown_walk u = {.t = t, .fn = fn, .arg = arg};
    walk_unknown(&u, root, 0);
}

static struct json_value *value_of(const void *src, const struct conf_key *k) {
    const char *at = (const char *)src + k->offset;
    int64_t i;
    double d;
    char num[40];
    struct json_value *list;
    switch (k->type) {
    case CONF_BOOL: return json_new_bool(*(const bool *)at);
    case CONF_INT: memcpy(&i, at, sizeof(i)); return json_new_i64(i);
    case CONF_F64:
        memcpy(&d, at, sizeof(d));
        snprintf(num, sizeof(num), "%.15g", d);
        return json_new_f64_as(d, num);
    case CONF_LIST:
        list = json_new_arr();
        for (size_t n = 0; n < (size_t)k->max && at[n * k->size] != 0; n++)
            json_arr_add(list, json_new_str(at + n * k->size));
        return list;
    case CONF_STR:
    case CONF_WORD:
    case CONF_LOWER:
    case CONF_NAME:
    case CONF_IP: break;
    }
    return json_new_str(at);
}

bool conf_put(struct json_value *root, const char *path, struct json_value *v) {
    struct json_value *at = root;
    for (;;) {
        char seg[96];
        const size_t n = strcspn(path, ".");
        assert(n < sizeof(seg));
        memcpy(seg, path, n);
        seg[n] = 0;
        const bool last = path[n] == 0, index = isdigit((unsigned char)seg[0]);
        struct json_value *next = NULL;
        if (!json_is(at, index ? json_type_array : json_type_object)) break;
        if (index) {
            next = json_arr_at(at, strtoul(seg, NULL, 10));
        } else {
            json_obj_find(at, seg, &next);
        }
        if (last || next == NULL) {
            struct json_value *child = last                                  ? v
                                       : isdigit((unsigned char)path[n + 1]) ? json_new_arr()
                                                                             : json_new_obj();
            if (index) {
                json_arr_put(at, strtoul(seg, NULL, 10), child);
            } else {
                json_obj_set(at, seg, child);
            }
            next = child;
        }
        if (last) return true;
        at = next;
        path += n + 1;
    }
    json_put(v);
    return false;
}

static bool is_unset(const void *src, const struct conf_key *k) {
    int64_t i = 1;
    if (k->type == CONF_INT && k->def[0] == 0) memcpy(&i, (const char *)src + k->offset, sizeof(i));
    return i == 0;
}

void conf_print(struct buf *out, const void *src, const struct conf_key *keys, size_t n_keys) {
    struct json_value *root = json_new_obj();
    for (size_t i = 0; i < n_keys; i++)
        if (!is_unset(src, &keys[i])) (void)conf_put(root, keys[i].path, value_of(src, &keys[i]));
    const char *text = json_to_text(root, JSON_PRETTY, NULL);
    if (text != NULL) buf_puts(out, text);
    out->failed = out->failed || text == NULL;
    buf_putc(out, '\n');
    json_put(root);
}
