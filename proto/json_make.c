/* json_make: values that the program makes, and containers of parsed trees that it changes: those
 * get a made form, which the tree owns and their node names from then on. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "proto/json_check.h"
#include "proto/json_node.h"

static _Atomic uint32_t n_failures;

uint32_t json_failures(void) {
    return atomic_load_explicit(&n_failures, memory_order_relaxed);
}

/* Makers return it: a part that is missing shows in what it would have been part of. */
void *json_missing(void) {
    atomic_fetch_add_explicit(&n_failures, 1, memory_order_relaxed);
    return NULL;
}

static struct json_made *made_new(enum kind kind) {
    struct json_made *m = calloc(1, sizeof(*m));
    if (m == NULL) return json_missing();
    m->born = json_failures();
    m->tag = (uint32_t)kind | TAG_MADE;
    m->refs = 1;
    return m;
}

static struct json_value *as_value(struct json_made *m) {
    return (struct json_value *)(void *)m;
}

struct json_value *json_new_obj(void) {
    return as_value(made_new(K_OBJECT));
}

struct json_value *json_new_arr(void) {
    return as_value(made_new(K_ARRAY));
}

static bool set_text(struct json_made *m, const char *s, size_t n) {
    m->text = malloc(n + 1);
    if (m->text == NULL) return false;
    if (n > 0) memcpy(m->text, s, n);
    m->text[n] = 0;
    m->n = n;
    return true;
}

struct json_value *json_new_str_n(const char *s, size_t n) {
    struct json_made *m = made_new(K_STRING);
    if (m != NULL && !set_text(m, s, n)) {
        free(m);
        m = json_missing();
    }
    return as_value(m);
}

struct json_value *json_new_str(const char *s) {
    return json_new_str_n(s, strlen(s));
}

struct json_value *json_new_i64(int64_t i) {
    struct json_made *m = made_new(K_INT);
    if (m != NULL) m->i = i;
    return as_value(m);
}

struct json_value *json_new_u64(uint64_t u) {
    struct json_made *m = made_new(K_INT);
    if (m != NULL) {
        m->i = (int64_t)u;
        m->above = u > INT64_MAX;
    }
    return as_value(m);
}

struct json_value *json_new_f64_as(double d, const char *text) {
    struct json_made *m = made_new(K_REAL);
    if (m != NULL && !set_text(m, text, strlen(text))) {
        free(m);
        m = json_missing();
    }
    if (m != NULL) m->d = d;
    return as_value(m);
}

struct json_value *json_new_f64(double d) {
    char text[40];
    snprintf(text, sizeof(text), "%.17g", d);
    if (text[strcspn(text, ".eEni")] == 0) strcat(text, ".0"); /* it stays no integer */
    return json_new_f64_as(d, text);
}

struct json_value *json_new_bool(bool on) {
    return as_value(made_new(on ? K_TRUE : K_FALSE));
}

/* ---- owners of what is inside */

/* A container does not count the parts of its own tree. */
static bool is_home(const struct json_made *m, const struct json_value *v) {
    return m->home != NULL && v != NULL && (v->tag & TAG_MADE) == 0 && json_doc_of(v) == m->home;
}

static void take(struct json_made *m, struct json_value *v) {
    if (is_home(m, v)) m->home->refs--;
}

static void drop(struct json_made *m, struct json_value *v) {
    if (!is_home(m, v)) json_put(v);
}

static void drop_name(struct json_made *m, char *name) {
    const struct json_doc *d = m->home;
    uintptr_t p = (uintptr_t)name;
    if (d == NULL || p < (uintptr_t)d->text || p > (uintptr_t)d->text + d->text_n) free(name);
}

void json_made_free(struct json_made *m) {
    enum kind kind = json_kind(as_value(m));
    for (size_t i = 0; kind == K_ARRAY && i < m->n; i++) drop(m, m->items[i]);
    for (size_t i = 0; kind == K_OBJECT && i < m->n; i++) {
        drop(m, m->members[i].v);
        drop_name(m, m->members[i].name);
    }
    if (kind == K_ARRAY) free(m->items);
    if (kind == K_OBJECT) free(m->members);
    free(m->slots);
    free(m->text);
    free(m->printed);
    free(m);
}

/* ---- members */

struct json_value *json_made_find(const struct json_made *m, const char *name, size_t n,
                                  size_t *i) {
    if (m->slots == NULL) {
        for (*i = 0; *i < m->n; ++*i)
            if (m->members[*i].name_len == n && memcmp(m->members[*i].name, name, n) == 0)
                return m->members[*i].v;
        return NULL;
    }
    size_t s = json_slot(json_name_hash(name, n), m->n_slots);
    for (; m->slots[s] != 0; s = s + 1 < m->n_slots ? s + 1 : 0) {
        *i = m->slots[s] - 1;
        if (m->members[*i].name_len == n && memcmp(m->members[*i].name, name, n) == 0)
            return m->members[*i].v;
    }
    *i = m->n;
    return NULL;
}

static void fill_slot(struct json_made *m, size_t i) {
    size_t s = json_slot(json_name_hash(m->members[i].name, m->members[i].name_len), m->n_slots);
    while (m->slots[s] != 0) s = s + 1 < m->n_slots ? s + 1 : 0;
    m->slots[s] = (uint32_t)i + 1;
}

/* A table with room for m->cap members, or none for few. */
static bool make_slots(struct json_made *m) {
    free(m->slots);
    m->slots = NULL;
    if (m->cap <= JSON_INDEX_FROM) return true;
    m->n_slots = m->cap + m->cap / 4;
    m->slots = calloc(m->n_slots, sizeof(*m->slots));
    if (m->slots == NULL) return false;
    for (size_t i = 0; i < m->n; i++) fill_slot(m, i);
    return true;
}

static bool room_for_member(struct json_made *m) {
    if (m->n < m->cap) return true;
    size_t cap = m->cap < 4 ? 4 : m->cap * 2;
    struct json_member *p = realloc(m->members, cap * sizeof(*p));
    if (p == NULL) return false;
    m->members = p;
    m->cap = cap;
    if (make_slots(m)) return true;
    m->cap = m->n; /* nothing more goes in; what is in is found one by one */
    return false;
}

static bool room_for_item(struct json_made *m, size_t n) {
    if (n <= m->cap) return true;
    size_t cap = m->cap < 4 ? 4 : m->cap * 2;
    if (cap < n) cap = n;
    struct json_value **p = realloc(m->items, cap * sizeof(struct json_value *));
    if (p == NULL) return false;
    m->items = p;
    m->cap = cap;
    return true;
}

/* ---- changing a parsed tree */

/* Gives a container of a parsed tree its made form. NULL: no memory. */
static struct json_made *move(struct json_value *v) {
    struct json_doc *d = json_doc_of(v);
    size_t n = v->tag >> TAG_BITS;
    struct json_made *m = made_new(json_kind(v));
    if (m == NULL) return NULL;
    m->home = d;
    m->cap = n + 1;
    struct json_made **moved = d->moved;
    if ((d->n_moved & (d->n_moved - 1)) == 0) /* its room doubles at powers of two */
        moved = realloc(moved, (d->n_moved == 0 ? 1 : 2 * (size_t)d->n_moved) * sizeof(*moved));
    if (moved != NULL) d->moved = moved;
    m->items = moved == NULL             ? NULL
               : json_kind(v) == K_ARRAY ? calloc(m->cap, sizeof(struct json_value *))
                                         : calloc(m->cap, sizeof(struct json_member));
    if (m->items == NULL) {
        free(m);
        return NULL;
    }
    if (json_kind(v) == K_ARRAY) {
        for (; m->n < n; m->n++) m->items[m->n] = json_arr_at(v, m->n);
    } else {
        json_obj_foreach(v, name, child) {
            const uint32_t *w = &d->words[v->at + 2 * NODE_WORDS * it_name.i];
            m->members[m->n++] =
                (struct json_member){(char *)(uintptr_t)name, w[0] >> TAG_BITS, child};
        }
        if (!make_slots(m)) {
            free(m->members);
            free(m);
            return NULL;
        }
    }
    d->moved[d->n_moved] = m;
    v->at = d->n_moved++;
    v->tag |= TAG_MOVED;
    return m;
}

/* v as a container of that kind that can be changed. NULL: it is none, or no memory. */
static struct json_made *to_change(struct json_value *v, enum kind kind) {
    if (json_kind(v) != kind) return NULL;
    struct json_made *m = json_made_of(v);
    return m != NULL ? m : move(v);
}

/* v does not get in; counted: it was for want of memory. */
static int not_in(struct json_value *v, bool counted) {
    if (counted) json_missing();
    json_put(v);
    return -1;
}

int json_obj_set(struct json_value *obj, const char *key, struct json_value *v) {
    struct json_made *m = to_change(obj, K_OBJECT);
    size_t len = strlen(key), i;
    if (m == NULL) return not_in(v, json_kind(obj) == K_OBJECT);
    struct json_value *old = json_made_find(m, key, len, &i);
    if (i < m->n) {
        m->members[i].v = v;
        take(m, v);
        drop(m, old);
        return 0;
    }
    char *name = room_for_member(m) ? malloc(len + 1) : NULL;
    if (name == NULL) return not_in(v, true);
    memcpy(name, key, len + 1);
    m->members[m->n] = (struct json_member){name, len, v};
    if (m->slots != NULL) fill_slot(m, m->n);
    m->n++;
    take(m, v);
    return 0;
}

void json_obj_del(struct json_value *obj, const char *key) {
    struct json_value *v;
    if (!json_obj_find(obj, key, &v)) return;
    struct json_made *m = to_change(obj, K_OBJECT);
    size_t i;
    if (m == NULL) return;
    v = json_made_find(m, key, strlen(key), &i);
    drop_name(m, m->members[i].name);
    memmove(&m->members[i], &m->members[i + 1], (m->n - i - 1) * sizeof(m->members[0]));
    m->n--;
    if (m->slots != NULL) memset(m->slots, 0, m->n_slots * sizeof(*m->slots));
    for (i = 0; m->slots != NULL && i < m->n; i++) fill_slot(m, i);
    drop(m, v);
}

int json_arr_add(struct json_value *arr, struct json_value *v) {
    struct json_made *m = to_change(arr, K_ARRAY);
    if (m == NULL || !room_for_item(m, m->n + 1)) return not_in(v, json_kind(arr) == K_ARRAY);
    m->items[m->n++] = v;
    take(m, v);
    return 0;
}

int json_arr_put(struct json_value *arr, size_t i, struct json_value *v) {
    struct json_made *m = to_change(arr, K_ARRAY);
    if (m == NULL || !room_for_item(m, i + 1)) return not_in(v, json_kind(arr) == K_ARRAY);
    while (m->n <= i) m->items[m->n++] = NULL;
    struct json_value *old = m->items[i];
    m->items[i] = v;
    take(m, v);
    drop(m, old);
    return 0;
}
