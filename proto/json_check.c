/* json_check: the grammar of RFC 8259 over bytes, without building anything and without recursion.
 */
#include "proto/json_check.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES_MAX = 1024 }; /* a longer literal is no number anybody meant */

struct frame {
    bool object;
    int depth_max;   /* for containers inside */
    uint64_t serial; /* tells objects apart in the key set */
};

/* Open addressing over 64-bit key hashes, 0 = free. Two keys that collide read as a duplicate:
 * chance 2^-64 per pair, and who crafts one only has his own text refused. */
struct key_set {
    uint64_t *slot;
    size_t n, cap; /* cap: 0 or a power of two */
};

struct check {
    const unsigned char *p;
    size_t n, at;
    const struct json_limits *lim;
    struct json_wide *wide;
    struct errbuf *eb;
    struct key_set keys;
    uint64_t n_objects;
    size_t root_key_at, root_key_len; /* raw bytes of the root object's present key */
    int depth, value_depth_max; /* of the innermost open container, -1: none; for the next value */
    struct frame frames[JSON_DEPTH_MAX + 1];
};

static enum err bad(struct check *c, size_t at, const char *what) {
    return err_set(c->eb, ERR_BAD_JSON, "byte %zu: %s", at, what);
}

static void skip_space(struct check *c) {
    while (c->at < c->n && (c->p[c->at] == ' ' || c->p[c->at] == '\n' || c->p[c->at] == '\r' ||
                            c->p[c->at] == '\t'))
        c->at++;
}

/* Length of the well-formed sequence at p (Unicode 15, table 3-7; n >= 1), 0 when there is none. */
static size_t utf8_take(const unsigned char *p, size_t n, uint32_t *cp) {
    unsigned char b = p[0];
    size_t len = b < 0x80 ? 1 : b < 0xC2 ? 0 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : b < 0xF5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    *cp = len == 1 ? b : b & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        *cp = *cp << 6 | (p[i] & 0x3F);
    }
    bool overlong = (len == 3 && *cp < 0x800) || (len == 4 && *cp < 0x10000);
    return overlong || (*cp >= 0xD800 && *cp < 0xE000) || *cp > 0x10FFFF ? 0 : len;
}

static bool hex4(const struct check *c, size_t at, uint32_t *v) {
    if (c->n - at < 4) return false;
    *v = 0;
    for (size_t i = at; i < at + 4; i++) {
        unsigned char h = c->p[i];
        uint32_t d;
        if (h >= '0' && h <= '9')
            d = h - '0';
        else if (h >= 'a' && h <= 'f')
            d = h - 'a' + 10u;
        else if (h >= 'A' && h <= 'F')
            d = h - 'A' + 10u;
        else
            return false;
        *v = *v << 4 | d;
    }
    return true;
}

/* c->at is on a backslash; leaves it behind the escape. */
static enum err take_escape(struct check *c, uint32_t *cp) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = c->at;
    if (c->n - start < 2) return bad(c, c->n, "the text ends inside a string");
    unsigned char k = c->p[start + 1];
    if (k != 'u') {
        const char *f = k == '\0' ? NULL : strchr(from, k);
        if (f == NULL) return bad(c, start, "unknown escape in a string");
        *cp = (unsigned char)to[f - from];
        c->at = start + 2;
        return ERR_OK;
    }
    if (!hex4(c, start + 2, cp)) return bad(c, start, "\\u wants four hexadecimal digits");
    c->at = start + 6;
    if (*cp < 0xD800 || *cp > 0xDFFF) return ERR_OK;
    uint32_t low;
    if (*cp > 0xDBFF || c->n - c->at < 6 || c->p[c->at] != '\\' || c->p[c->at + 1] != 'u' ||
        !hex4(c, c->at + 2, &low) || low < 0xDC00 || low > 0xDFFF)
        return bad(c, start, "a surrogate escape stands alone");
    *cp = 0x10000 + ((*cp - 0xD800) << 10 | (low - 0xDC00));
    c->at += 6;
    return ERR_OK;
}

/* c->at is on the opening quote; leaves it behind the closing one. key_hash: NULL, or the string is
 * a key. */
static enum err take_string(struct check *c, uint64_t *key_hash) {
    uint64_t h = 0xCBF29CE484222325u;
    c->at++;
    while (c->at < c->n) {
        unsigned char b = c->p[c->at];
        uint32_t cp = b;
        if (b == '"') {
            c->at++;
            if (key_hash != NULL) *key_hash = h;
            return ERR_OK;
        }
        if (b == '\\') {
            enum err e = take_escape(c, &cp);
            if (e != ERR_OK) return e;
        } else if (b < 0x20) {
            return bad(c, c->at, "raw control character in a string");
        } else {
            size_t len = utf8_take(c->p + c->at, c->n - c->at, &cp);
            if (len == 0) return bad(c, c->at, "not UTF-8");
            c->at += len;
        }
        if (key_hash == NULL) continue;
        if (cp == 0) return bad(c, c->at, "a key holds a zero character");
        h = (h ^ cp) * 0x100000001B3u;
    }
    return bad(c, c->n, "the text ends inside a string");
}

static size_t take_digits(struct check *c) {
    size_t start = c->at;
    while (c->at < c->n && c->p[c->at] >= '0' && c->p[c->at] <= '9') c->at++;
    return c->at - start;
}

static bool fits_64(const unsigned char *digits, size_t n, bool negative) {
    uint64_t v = 0, max = negative ? (uint64_t)INT64_MAX + 1 : UINT64_MAX;
    if (n > 20) return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t d = (uint64_t)(digits[i] - '0');
        if (v > (max - d) / 10) return false;
        v = v * 10 + d;
    }
    return true;
}

static enum err note_wide(struct check *c) {
    struct json_wide *w = c->wide;
    if (w->n == w->cap) {
        size_t cap = w->cap == 0 ? 16 : w->cap * 2;
        size_t *end = realloc(w->end, cap * sizeof(*end));
        if (end == NULL) return err_set(c->eb, ERR_NO_MEMORY, "no memory to check JSON");
        w->end = end;
        w->cap = cap;
    }
    w->end[w->n++] = c->at;
    return ERR_OK;
}

static enum err take_number(struct check *c) {
    char copy[NUMBER_BYTES_MAX + 1];
    size_t start = c->at;
    bool integer = true;
    if (c->p[c->at] == '-') c->at++;
    size_t digits_at = c->at, n_digits = take_digits(c);
    if (n_digits == 0) return bad(c, start, "a number wants a digit");
    if (n_digits > 1 && c->p[digits_at] == '0') return bad(c, start, "a number has a leading zero");
    if (c->at < c->n && c->p[c->at] == '.') {
        integer = false;
        c->at++;
        if (take_digits(c) == 0) return bad(c, start, "a number wants a digit after the point");
    }
    if (c->at < c->n && (c->p[c->at] == 'e' || c->p[c->at] == 'E')) {
        integer = false;
        c->at++;
        if (c->at < c->n && (c->p[c->at] == '+' || c->p[c->at] == '-')) c->at++;
        if (take_digits(c) == 0) return bad(c, start, "a number wants a digit in its exponent");
    }
    if (integer && fits_64(c->p + digits_at, n_digits, digits_at > start)) return ERR_OK;
    size_t len = c->at - start;
    if (len > NUMBER_BYTES_MAX) return bad(c, start, "a number has more than 1024 characters");
    memcpy(copy, c->p + start, len);
    copy[len] = '\0';
    if (!isfinite(strtod(copy, NULL))) return bad(c, start, "a number is too large");
    return integer ? note_wide(c) : ERR_OK;
}

static enum err take_word(struct check *c) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++) {
        size_t len = strlen(words[i]);
        if (c->n - c->at >= len && memcmp(c->p + c->at, words[i], len) == 0) {
            c->at += len;
            return ERR_OK;
        }
    }
    return bad(c, c->at, "expected a value");
}

/* ERR_CONFLICT when h is there already. */
static enum err key_set_add(struct key_set *s, uint64_t h) {
    if (h == 0) h = 1;
    if (s->n * 2 >= s->cap) {
        size_t cap = s->cap == 0 ? 64 : s->cap * 2;
        uint64_t *slot = calloc(cap, sizeof(*slot));
        if (slot == NULL) return ERR_NO_MEMORY;
        for (size_t i = 0; i < s->cap; i++) {
            if (s->slot[i] == 0) continue;
            size_t j = s->slot[i] & (cap - 1);
            while (slot[j] != 0) j = (j + 1) & (cap - 1);
            slot[j] = s->slot[i];
        }
        free(s->slot);
        s->slot = slot;
        s->cap = cap;
    }
    size_t j = h & (s->cap - 1);
    while (s->slot[j] != 0) {
        if (s->slot[j] == h) return ERR_CONFLICT;
        j = (j + 1) & (s->cap - 1);
    }
    s->slot[j] = h;
    s->n++;
    return ERR_OK;
}

/* Does the place (json.h) name this key: at depth 0 by itself, at depth 2 together with the root
 * key? */
static bool place_matches(const struct check *c, const char *place, const char *key,
                          size_t key_len) {
    const char *dot = strstr(place, "[].");
    size_t len = strlen(place);
    if (c->depth == 0) {
        if (dot != NULL) return false;
        if (len > 0 && place[len - 1] == '*')
            return key_len >= len - 1 && memcmp(key, place, len - 1) == 0;
        return key_len == len && memcmp(key, place, len) == 0;
    }
    if (dot == NULL || c->depth != 2 || !c->frames[0].object || c->frames[1].object) return false;
    size_t root_len = (size_t)(dot - place), rest_len = len - root_len - 3;
    return c->root_key_len == root_len && memcmp(c->p + c->root_key_at, place, root_len) == 0 &&
           key_len == rest_len && memcmp(key, dot + 3, rest_len) == 0;
}

/* c->at is where a key should begin; leaves it behind the colon. */
static enum err take_key(struct check *c) {
    struct frame *f = &c->frames[c->depth];
    const struct json_limits *lim = c->lim;
    uint64_t h = 0;
    if (c->at >= c->n) return bad(c, c->n, "the text ends inside an object");
    if (c->p[c->at] != '"') return bad(c, c->at, "expected a key in double quotes");
    size_t key_at = c->at + 1;
    enum err e = take_string(c, &h);
    if (e != ERR_OK) return e;
    size_t key_len = c->at - 1 - key_at;
    if (lim->unique_keys) {
        e = key_set_add(&c->keys, (h ^ f->serial) * 0x9E3779B97F4A7C15u);
        if (e == ERR_CONFLICT) {
            int shown = key_len < 64 ? (int)key_len : 64;
            return err_set(c->eb, ERR_BAD_JSON,
                           "byte %zu: the key \"%.*s\" stands here a second time", key_at - 1,
                           shown, (const char *)c->p + key_at);
        }
        if (e != ERR_OK) return err_set(c->eb, e, "no memory to check JSON");
    }
    if (c->depth == 0) {
        c->root_key_at = key_at;
        c->root_key_len = key_len;
    }
    c->value_depth_max = f->depth_max;
    for (const char *const *x = lim->exempt; x != NULL && *x != NULL; x++)
        if (place_matches(c, *x, (const char *)c->p + key_at, key_len) &&
            lim->depth_exempt_max > f->depth_max)
            c->value_depth_max = lim->depth_exempt_max;
    skip_space(c);
    if (c->at >= c->n || c->p[c->at] != ':') return bad(c, c->at, "expected ':' after a key");
    c->at++;
    return ERR_OK;
}

/* One value without its inside: a container is opened, anything else is taken whole. */
static enum err take_value(struct check *c, bool *opened) {
    *opened = false;
    if (c->at >= c->n) return bad(c, c->n, "the text ends where a value should be");
    switch (c->p[c->at]) {
    case '{':
    case '[':
        if (c->depth + 1 > c->value_depth_max || c->depth + 1 > JSON_DEPTH_MAX)
            return bad(c, c->at, "nested too deep");
        c->frames[++c->depth] = (struct frame){.object = c->p[c->at] == '{',
                                               .depth_max = c->value_depth_max,
                                               .serial = ++c->n_objects};
        c->at++;
        *opened = true;
        return ERR_OK;
    case '"': return take_string(c, NULL);
    case '-':
    case '0' ... '9': return take_number(c);
    default: return take_word(c);
    }
}

/* Behind a value or an opening bracket: closes what closes here, and steps to the next value if one
 * must follow. */
static enum err step(struct check *c, bool opened, bool *more) {
    for (;; opened = false) {
        skip_space(c);
        *more = false;
        if (c->depth < 0)
            return c->at < c->n ? bad(c, c->at, "text after the end of the value") : ERR_OK;
        struct frame *f = &c->frames[c->depth];
        if (c->at >= c->n)
            return bad(c, c->n,
                       f->object ? "the text ends inside an object"
                                 : "the text ends inside an array");
        if (c->p[c->at] == (f->object ? '}' : ']')) {
            c->at++;
            c->depth--;
            continue;
        }
        *more = true;
        if (!opened) {
            if (c->p[c->at] != ',')
                return bad(c, c->at, f->object ? "expected ',' or '}'" : "expected ',' or ']'");
            c->at++;
            skip_space(c);
        }
        c->value_depth_max = f->depth_max;
        return f->object ? take_key(c) : ERR_OK;
    }
}

enum err json_check(const char *p, size_t n, size_t at, const struct json_limits *lim,
                    struct json_wide *wide, struct errbuf *eb) {
    struct check c = {.p = (const unsigned char *)p,
                      .n = n,
                      .at = at,
                      .lim = lim,
                      .wide = wide,
                      .eb = eb,
                      .depth = -1};
    bool opened, more = true;
    enum err e = ERR_OK;
    c.value_depth_max = lim->depth_max <= 0 ? JSON_DEPTH_MAX : lim->depth_max;
    while (e == ERR_OK && more) {
        skip_space(&c);
        if ((e = take_value(&c, &opened)) == ERR_OK) e = step(&c, opened, &more);
    }
    free(c.keys.slot);
    return e;
}
