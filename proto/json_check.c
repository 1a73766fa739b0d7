/* json_check: the grammar of RFC 8259 over bytes, without building anything and without recursion.
 */
#include "proto/json_check.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "proto/hash.h"
#include "proto/json_lex.h"

struct frame {
    bool object;
    int depth_max; /* for containers inside */
    uint32_t n_members;
    uint64_t serial; /* tells objects apart in the key set */
};

/* Open addressing over 64-bit key hashes, 0 = free. Two keys that collide read as a duplicate:
 * chance 2^-64 per pair, and who crafts one only has his own text refused. */
struct key_set {
    uint64_t *slot;
    size_t n, cap; /* cap: 0 or a power of two */
};

struct check {
    struct json_lex lex;
    const struct json_limits *lim;
    struct json_size *size;
    struct errbuf *eb;
    struct key_set keys;
    uint64_t n_objects;
    const char *inner; /* a key in the objects of the array under the root object's present key,
                          whose containers may be deeper; NULL: none */
    int depth, value_depth_max; /* of the innermost open container, -1: none; for the next value */
    struct frame frames[JSON_DEPTH_MAX + 1];
};

static enum err bad(struct check *c, size_t at, const char *what) {
    return err_set(c->eb, ERR_BAD_JSON, "byte %zu: %s", at, what);
}

static enum err lex_failed(struct check *c) {
    return bad(c, c->lex.what_at, c->lex.what);
}

/* The next byte, -1 at the end. */
static int peek(const struct check *c) {
    return c->lex.at < c->lex.n ? c->lex.p[c->lex.at] : -1;
}

/* The same for a key however it is spelled. */
static uint64_t key_hash(const struct check *c, const struct json_span *key) {
    uint64_t h = HASH64_BEGIN;
    size_t n;
    for (size_t i = 0; i < key->len; i += n)
        h = hash64_add(h, json_next_char(c->lex.p + key->at + i, &n));
    return h;
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

static bool is(const char *key, size_t n, const char *name, size_t name_len) {
    return n == name_len && memcmp(key, name, n) == 0;
}

/* Whether a place (json.h) names this key of the root object, whole or by its prefix. Notes the key
 * that a place names further in. */
static bool root_key_exempt(struct check *c, const char *key, size_t n) {
    bool found = false;
    c->inner = NULL;
    for (const char *const *x = c->lim->exempt; x != NULL && *x != NULL; x++) {
        const char *dot = strstr(*x, "[].");
        size_t len = strlen(*x);
        if (dot != NULL) {
            if (is(key, n, *x, (size_t)(dot - *x))) c->inner = dot + 3;
        } else if (len > 0 && (*x)[len - 1] == '*') {
            found |= n >= len - 1 && memcmp(key, *x, len - 1) == 0;
        } else {
            found |= is(key, n, *x, len);
        }
    }
    return found;
}

/* How deep containers under this key may be. */
static int key_depth_max(struct check *c, const char *key, size_t n) {
    bool exempt = false;
    if (c->depth == 0)
        exempt = root_key_exempt(c, key, n);
    else if (c->depth == 2 && c->inner != NULL && c->frames[0].object && !c->frames[1].object)
        exempt = is(key, n, c->inner, strlen(c->inner));
    int plain = c->frames[c->depth].depth_max;
    return exempt && c->lim->depth_exempt_max > plain ? c->lim->depth_exempt_max : plain;
}

/* Where a key should begin; leaves the colon behind. */
static enum err take_key(struct check *c) {
    struct frame *f = &c->frames[c->depth];
    const struct json_limits *lim = c->lim;
    struct json_span key;
    int b = peek(c);
    if (b < 0) return bad(c, c->lex.n, "the text ends inside an object");
    if (b != '"') return bad(c, c->lex.at, "expected a key in double quotes");
    if (!json_lex_string(&c->lex, &key)) return lex_failed(c);
    const char *raw = (const char *)c->lex.p + key.at;
    if (key.zero) return bad(c, key.at - 1, "a key holds a zero character");
    if (lim->unique_keys) {
        enum err e = key_set_add(&c->keys, (key_hash(c, &key) ^ f->serial) * 0x9E3779B97F4A7C15u);
        if (e == ERR_CONFLICT) {
            int shown = key.len < 64 ? (int)key.len : 64;
            return err_set(c->eb, ERR_BAD_JSON,
                           "byte %zu: the key \"%.*s\" stands here a second time", key.at - 1,
                           shown, raw);
        }
        if (e != ERR_OK) return err_set(c->eb, e, "no memory to check JSON");
    }
    f->n_members++;
    c->size->n_nodes++;
    c->value_depth_max = key_depth_max(c, raw, key.len);
    json_lex_space(&c->lex);
    if (peek(c) != ':') return bad(c, c->lex.at, "expected ':' after a key");
    c->lex.at++;
    return ERR_OK;
}

/* One value without its inside: a container is opened, anything else is taken whole. */
static enum err take_value(struct check *c, bool *opened) {
    struct json_span s;
    enum json_number kind;
    char first;
    bool ok;
    int b = peek(c);
    *opened = false;
    c->size->n_nodes++;
    switch (b) {
    case -1: return bad(c, c->lex.n, "the text ends where a value should be");
    case '{':
    case '[':
        if (c->depth + 1 > c->value_depth_max || c->depth + 1 > JSON_DEPTH_MAX)
            return bad(c, c->lex.at, "nested too deep");
        c->frames[++c->depth] = (struct frame){
            .object = b == '{', .depth_max = c->value_depth_max, .serial = ++c->n_objects};
        c->lex.at++;
        *opened = true;
        return ERR_OK;
    case '"': ok = json_lex_string(&c->lex, &s); break;
    case '-':
    case '0' ... '9': ok = json_lex_number(&c->lex, &kind); break;
    default: ok = json_lex_word(&c->lex, &first); break;
    }
    return ok ? ERR_OK : lex_failed(c);
}

/* Behind a value or an opening bracket: closes what closes here, and steps to the next value if one
 * must follow. */
static enum err step(struct check *c, bool opened, bool *more) {
    for (;; opened = false) {
        json_lex_space(&c->lex);
        *more = false;
        int b = peek(c);
        if (c->depth < 0)
            return b >= 0 ? bad(c, c->lex.at, "text after the end of the value") : ERR_OK;
        struct frame *f = &c->frames[c->depth];
        if (b < 0)
            return bad(c, c->lex.n,
                       f->object ? "the text ends inside an object"
                                 : "the text ends inside an array");
        if (b == (f->object ? '}' : ']')) {
            c->size->n_index += json_index_words(f->n_members);
            c->lex.at++;
            c->depth--;
            continue;
        }
        *more = true;
        if (!opened) {
            if (b != ',')
                return bad(c, c->lex.at, f->object ? "expected ',' or '}'" : "expected ',' or ']'");
            c->lex.at++;
            json_lex_space(&c->lex);
        }
        c->value_depth_max = f->depth_max;
        return f->object ? take_key(c) : ERR_OK;
    }
}

enum err json_check(const char *p, size_t n, size_t at, const struct json_limits *lim,
                    struct json_size *size, struct errbuf *eb) {
    struct check c = {.lex = {.p = (const unsigned char *)p, .n = n, .at = at},
                      .lim = lim,
                      .size = size,
                      .eb = eb,
                      .depth = -1};
    bool opened, more = true;
    enum err e = ERR_OK;
    *size = (struct json_size){0};
    c.value_depth_max = lim->depth_max <= 0 ? JSON_DEPTH_MAX : lim->depth_max;
    while (e == ERR_OK && more) {
        json_lex_space(&c.lex);
        if ((e = take_value(&c, &opened)) == ERR_OK) e = step(&c, opened, &more);
    }
    free(c.keys.slot);
    return e;
}
