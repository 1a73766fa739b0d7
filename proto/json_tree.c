/* json_tree: parsed trees: how they are built and read. Children of a container lie side by side.
 * While the text is read, values wait on a stack at the low end of the block; a container that
 * closes takes its children from there to the high end. The two never meet, since json_check()
 * counted. */
#include "proto/json_tree.h"

#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include "proto/json_check.h"
#include "proto/json_lex.h"
#include "proto/json_node.h"
#include "proto/limits.h"

/* ---- names */

static uint64_t mix(uint64_t a, uint64_t b) {
    unsigned __int128 r = (unsigned __int128)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

/* Drawn once a process: an attacker who could guess it could make all names share a slot. */
static uint64_t hash_key(void) {
    static _Atomic uint64_t key;
    uint64_t k = atomic_load_explicit(&key, memory_order_relaxed), none = 0;
    if (k != 0) return k;
    if (getrandom(&k, sizeof(k), GRND_NONBLOCK) != (ssize_t)sizeof(k)) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        k = (uint64_t)t.tv_nsec * 0x9E3779B97F4A7C15u ^ (uint64_t)(uintptr_t)&key;
    }
    k |= 1;
    return atomic_compare_exchange_strong(&key, &none, k) ? k : none;
}

uint64_t json_name_hash(const char *name, size_t n) {
    uint64_t key = hash_key(), h = key ^ n, w;
    for (; n >= 8; n -= 8, name += 8) {
        memcpy(&w, name, 8);
        h = mix(h ^ w ^ 0xA0761D6478BD642Fu, key ^ 0xE7037ED1A0B428DBu);
    }
    w = 0;
    memcpy(&w, name, n);
    return mix(h ^ w ^ 0x8EBC6AF09C88C6E3u, key ^ 0x589965CC75374CC3u);
}

/* ---- building */

struct frame {
    bool object;
    size_t from; /* the stack's height when it opened */
};

struct build {
    struct json_lex lex;
    struct json_doc *doc;
    char *text;
    size_t low, high; /* words: the stack's end, the first of the finished nodes */
    int depth;        /* open containers */
    struct frame frames[JSON_DEPTH_MAX + 1];
};

static void push(struct build *b, enum kind kind, size_t len, size_t at) {
    assert(b->low + NODE_WORDS <= b->high);
    uint32_t *w = &b->doc->words[b->low];
    w[0] = (uint32_t)kind | (uint32_t)len << TAG_BITS;
    w[1] = (uint32_t)at;
    w[2] = (uint32_t)b->low;
    b->low += NODE_WORDS;
}

static void push_string(struct build *b) {
    struct json_span s;
    json_lex_string(&b->lex, &s);
    if (s.n_bytes != s.len)
        json_unescape(b->text + s.at, (const unsigned char *)b->text + s.at, s.len);
    b->text[s.at + s.n_bytes] = 0;
    push(b, K_STRING, s.n_bytes, s.at);
}

/* The place of a name among n members at words `from`, n when it is not there. table: NULL, or
 * where it is, of n_slots; free_slot: the one it would take. */
static size_t find_name(const struct json_doc *d, size_t from, size_t n, const uint32_t *table,
                        size_t n_slots, const char *name, size_t len, size_t *free_slot) {
    if (table == NULL) {
        for (size_t i = 0; i < n; i++) {
            const uint32_t *w = &d->words[from + 2 * NODE_WORDS * i];
            if (w[0] >> TAG_BITS == len && memcmp(d->text + w[1], name, len) == 0) return i;
        }
        return n;
    }
    size_t s = json_slot(json_name_hash(name, len), n_slots);
    for (; table[s] != 0; s = s + 1 < n_slots ? s + 1 : 0) {
        const uint32_t *w = &d->words[from + 2 * NODE_WORDS * (table[s] - 1)];
        if (w[0] >> TAG_BITS == len && memcmp(d->text + w[1], name, len) == 0) return table[s] - 1;
    }
    *free_slot = s;
    return n;
}

/* Makes the members at words `from` of the stack one of each name; fills their table. Returns how
 * many there are. */
static size_t settle_members(struct build *b, size_t from, size_t n, uint32_t *table,
                             size_t n_slots) {
    enum { MEMBER_WORDS = 2 * NODE_WORDS };
    struct json_doc *d = b->doc;
    size_t kept = 0, slot = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t *w = &d->words[from + MEMBER_WORDS * i];
        size_t k =
            find_name(d, from, kept, table, n_slots, d->text + w[1], w[0] >> TAG_BITS, &slot);
        if (k < kept) { /* the last value counts */
            memcpy(&d->words[from + MEMBER_WORDS * k + NODE_WORDS], w + NODE_WORDS,
                   NODE_WORDS * sizeof(*w));
            continue;
        }
        if (kept < i) memcpy(&d->words[from + MEMBER_WORDS * kept], w, MEMBER_WORDS * sizeof(*w));
        kept++;
        if (table != NULL) table[slot] = (uint32_t)kept;
    }
    return kept;
}

static void close_container(struct build *b) {
    struct frame f = b->frames[--b->depth];
    struct json_doc *d = b->doc;
    size_t n = (b->low - f.from) / NODE_WORDS, n_nodes = n;
    if (f.object) {
        size_t table_words = json_index_words(n / 2);
        uint32_t *table = NULL;
        if (table_words > 0) {
            b->high -= table_words;
            assert(b->low <= b->high);
            table = &d->words[b->high];
            table[0] = (uint32_t)(table_words - 1);
            memset(table + 1, 0, (table_words - 1) * sizeof(*table));
        }
        n = settle_members(b, f.from, n / 2, table != NULL ? table + 1 : NULL, table_words - 1);
        if (n <= JSON_INDEX_FROM) b->high += table_words; /* names that were all the same */
        n_nodes = 2 * n;
    }
    b->high -= n_nodes * NODE_WORDS;
    memmove(&d->words[b->high], &d->words[f.from], n_nodes * NODE_WORDS * sizeof(d->words[0]));
    for (size_t i = 0; i < n_nodes; i++)
        d->words[b->high + NODE_WORDS * i + 2] = (uint32_t)(b->high + NODE_WORDS * i);
    b->low = f.from;
    push(b, f.object ? K_OBJECT : K_ARRAY, n, b->high);
}

/* One step: a value, a bracket, or what stands between. */
static void take(struct build *b) {
    unsigned char c = b->lex.p[b->lex.at];
    size_t at = b->lex.at;
    enum json_number number;
    char word;
    switch (c) {
    case ',':
    case ':': b->lex.at++; return;
    case '{':
    case '[':
        b->frames[b->depth++] = (struct frame){.object = c == '{', .from = b->low};
        b->lex.at++;
        return;
    case '}':
    case ']':
        b->lex.at++;
        close_container(b);
        return;
    case '"': push_string(b); return;
    case '-':
    case '0' ... '9':
        json_lex_number(&b->lex, &number);
        push(b, number == JSON_NUMBER_INT ? K_INT : K_REAL, b->lex.at - at, at);
        return;
    default:
        json_lex_word(&b->lex, &word);
        push(b, word == 't' ? K_TRUE : word == 'f' ? K_FALSE : K_NULL, 0, at);
        return;
    }
}

/* A large block is a mapping: what malloc() is given back it would keep, for the next body. */
enum { MAPPED_BYTES_MIN = 256 * 1024 };

static struct json_doc *doc_new(size_t bytes) {
    struct json_doc *d;
    if (bytes < MAPPED_BYTES_MIN) {
        d = malloc(bytes);
    } else {
        d = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (d == MAP_FAILED) d = NULL;
    }
    if (d == NULL) return NULL;
    *d = (struct json_doc){.refs = 1, .mapped = bytes < MAPPED_BYTES_MIN ? 0 : bytes};
    return d;
}

static void doc_free(struct json_doc *d) {
    for (uint32_t i = 0; i < d->n_moved; i++) json_made_free(d->moved[i]);
    free(d->moved);
    free(d->printed);
    if (d->mapped > 0)
        munmap(d, d->mapped);
    else
        free(d);
}

bool json_tree_build(struct json_value **out, const char *p, char *in_place, size_t n,
                     const struct json_size *size) {
    size_t n_words = size->n_nodes * NODE_WORDS + size->n_index;
    size_t bytes = sizeof(struct json_doc) + n_words * sizeof(uint32_t);
    struct json_doc *d = doc_new(bytes + (in_place == NULL ? n + 1 : 0));
    if (d == NULL) return false;
    d->text_n = n;
    d->n_words = n_words;
    d->text = in_place != NULL ? in_place : (char *)&d->words[n_words];
    if (in_place == NULL) memcpy(d->text, p, n);
    d->text[n] = 0;
    struct build b = {.lex = {.p = (const unsigned char *)d->text, .n = n},
                      .doc = d,
                      .text = d->text,
                      .high = n_words};
    for (json_lex_space(&b.lex); b.lex.at < n; json_lex_space(&b.lex)) take(&b);
    *out = json_lend(json_node_at(d, 0));
    if (*out == NULL) doc_free(d); /* null itself holds nothing */
    return true;
}

/* ---- owners */

struct json_value *json_ref(struct json_value *v) {
    if (v == NULL) return NULL;
    if ((v->tag & TAG_MADE) != 0)
        ((struct json_made *)(void *)v)->refs++;
    else
        json_doc_of(v)->refs++;
    return v;
}

void json_put(struct json_value *v) {
    if (v == NULL) return;
    if ((v->tag & TAG_MADE) != 0) {
        struct json_made *m = (struct json_made *)(void *)v;
        if (--m->refs == 0) json_made_free(m);
    } else {
        struct json_doc *d = json_doc_of(v);
        if (--d->refs == 0) doc_free(d);
    }
}

/* ---- reading */

enum json_type json_type_of(const struct json_value *v) {
    static const enum json_type types[] = {json_type_null,  json_type_boolean, json_type_boolean,
                                           json_type_int,   json_type_double,  json_type_string,
                                           json_type_array, json_type_object};
    return types[json_kind(v)];
}

const char *json_type_name(enum json_type type) {
    static const char *const names[] = {"null",   "boolean", "double", "int",
                                        "object", "array",   "string"};
    return names[type];
}

bool json_is(const struct json_value *v, enum json_type type) {
    return json_type_of(v) == type;
}

bool json_bool(const struct json_value *v) {
    return json_kind(v) == K_TRUE;
}

/* Sign and magnitude of an integer. */
static uint64_t magnitude(const struct json_value *v, bool *negative) {
    const struct json_made *m = json_made_of(v);
    if (m != NULL) {
        *negative = m->i < 0 && !m->above;
        return *negative ? 0 - (uint64_t)m->i : (uint64_t)m->i;
    }
    const char *p = json_text_of(v);
    uint64_t u = 0;
    *negative = *p == '-';
    for (p += *negative; *p >= '0' && *p <= '9'; p++) u = u * 10 + (uint64_t)(*p - '0');
    return u;
}

double json_f64(const struct json_value *v) {
    bool negative;
    if (json_kind(v) == K_REAL) {
        const struct json_made *m = json_made_of(v);
        return m != NULL ? m->d : strtod(json_text_of(v), NULL);
    }
    if (json_kind(v) != K_INT) return 0;
    uint64_t u = magnitude(v, &negative);
    return negative ? -(double)u : (double)u;
}

int64_t json_i64(const struct json_value *v) {
    bool negative;
    if (json_kind(v) == K_REAL) {
        double d = json_f64(v);
        return d >= 0x1p63 ? INT64_MAX : d < -0x1p63 ? INT64_MIN : (int64_t)d;
    }
    if (json_kind(v) != K_INT) return 0;
    uint64_t u = magnitude(v, &negative);
    if (negative) return u > INT64_MAX ? INT64_MIN : -(int64_t)u;
    return u > INT64_MAX ? INT64_MAX : (int64_t)u;
}

uint64_t json_u64(const struct json_value *v) {
    bool negative;
    if (json_kind(v) == K_REAL) {
        double d = json_f64(v);
        return d >= 0x1p64 ? UINT64_MAX : d < 0 ? 0 : (uint64_t)d;
    }
    if (json_kind(v) != K_INT) return 0;
    uint64_t u = magnitude(v, &negative);
    return negative ? 0 : u;
}

const char *json_str(const struct json_value *v) {
    if (json_kind(v) != K_STRING) return NULL;
    const struct json_made *m = json_made_of(v);
    return m != NULL ? m->text : json_text_of(v);
}

size_t json_str_len(const struct json_value *v) {
    if (json_kind(v) != K_STRING) return 0;
    const struct json_made *m = json_made_of(v);
    return m != NULL ? m->n : v->tag >> TAG_BITS;
}

/* Items or members of a container of that kind, 0 of anything else. */
static size_t n_inside(const struct json_value *v, enum kind kind) {
    if (json_kind(v) != kind) return 0;
    const struct json_made *m = json_made_of(v);
    return m != NULL ? m->n : v->tag >> TAG_BITS;
}

size_t json_arr_len(const struct json_value *v) {
    return n_inside(v, K_ARRAY);
}

struct json_value *json_arr_at(const struct json_value *v, size_t i) {
    if (i >= n_inside(v, K_ARRAY)) return NULL;
    const struct json_made *m = json_made_of(v);
    return m != NULL ? m->items[i]
                     : json_lend(json_node_at(json_doc_of(v), v->at + NODE_WORDS * i));
}

size_t json_obj_len(const struct json_value *v) {
    return n_inside(v, K_OBJECT);
}

bool json_obj_find(const struct json_value *v, const char *key, struct json_value **out) {
    size_t n = n_inside(v, K_OBJECT), len = strlen(key), i = 0, free_slot;
    struct json_value *found = NULL;
    const struct json_made *m = n > 0 ? json_made_of(v) : NULL;
    if (m != NULL) {
        found = json_made_find(m, key, len, &i);
    } else if (n > 0) {
        const struct json_doc *d = json_doc_of(v);
        const uint32_t *table = n > JSON_INDEX_FROM ? &d->words[v->at + 2 * NODE_WORDS * n] : NULL;
        i = find_name(d, v->at, n, table != NULL ? table + 1 : NULL, table != NULL ? table[0] : 0,
                      key, len, &free_slot);
        if (i < n) found = json_lend(json_node_at(d, v->at + NODE_WORDS * (2 * i + 1)));
    }
    if (out != NULL) *out = found;
    return i < n;
}

struct json_iter json_iter_begin(const struct json_value *v) {
    return (struct json_iter){v, 0};
}

struct json_iter json_iter_end(const struct json_value *v) {
    return (struct json_iter){v, n_inside(v, K_OBJECT)};
}

bool json_iter_equal(const struct json_iter *a, const struct json_iter *b) {
    return a->i == b->i;
}

void json_iter_next(struct json_iter *it) {
    it->i++;
}

const char *json_iter_name(const struct json_iter *it) {
    const struct json_made *m = json_made_of(it->obj);
    if (m != NULL) return m->members[it->i].name;
    const struct json_doc *d = json_doc_of(it->obj);
    return d->text + d->words[it->obj->at + 2 * NODE_WORDS * it->i + 1];
}

struct json_value *json_iter_value(const struct json_iter *it) {
    const struct json_made *m = json_made_of(it->obj);
    if (m != NULL) return m->members[it->i].v;
    return json_lend(
        json_node_at(json_doc_of(it->obj), it->obj->at + NODE_WORDS * (2 * it->i + 1)));
}

size_t json_tree_bytes(const struct json_value *v) {
    if (v == NULL || (v->tag & TAG_MADE) != 0) return 0;
    return json_doc_of(v)->n_words * sizeof(uint32_t);
}

/* ---- comparing */

static bool ints_equal(const struct json_value *a, const struct json_value *b) {
    bool neg_a, neg_b;
    uint64_t x = magnitude(a, &neg_a), y = magnitude(b, &neg_b);
    return x == y && (neg_a == neg_b || x == 0);
}

static bool arrays_equal(const struct json_value *a, const struct json_value *b) {
    size_t n = json_arr_len(a);
    if (n != json_arr_len(b)) return false;
    for (size_t i = 0; i < n; i++)
        if (!json_equal(json_arr_at(a, i), json_arr_at(b, i))) return false;
    return true;
}

static bool objects_equal(const struct json_value *a, const struct json_value *b) {
    if (json_obj_len(a) != json_obj_len(b)) return false;
    json_obj_foreach(a, name, v) {
        struct json_value *other;
        if (!json_obj_find(b, name, &other) || !json_equal(v, other)) return false;
    }
    return true;
}

bool json_equal(const struct json_value *a, const struct json_value *b) {
    if (a == b) return true;
    if (json_kind(a) != json_kind(b)) return false;
    switch (json_kind(a)) {
    case K_INT: return ints_equal(a, b);
    case K_REAL: return json_f64(a) == json_f64(b);
    case K_STRING:
        return json_str_len(a) == json_str_len(b) &&
               memcmp(json_str(a), json_str(b), json_str_len(a)) == 0;
    case K_ARRAY: return arrays_equal(a, b);
    case K_OBJECT: return objects_equal(a, b);
    default: return true;
    }
}
