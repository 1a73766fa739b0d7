/* jinja_value: making values, lists and dicts; equality, order, truth. */
#include "common/text/jinja_value.h"

#include <math.h>
#include <string.h>
#include "common/base/splitmix.h"
#include "common/text/jinja_run.h"
#include "proto/hash.h"
#include "proto/json.h"

enum { DICT_SEARCH_MAX = 8, LIST_CAP_MIN = 8 };

struct jv jv_cstr(const char *s) {
    return jv_str(s, strlen(s));
}

struct jv jv_undef_name(const char *s, size_t n) {
    return (struct jv){.type = JV_UNDEF, .sub = UNDEF_NAME, .n = (uint32_t)n, .s = s};
}

struct jv jv_undef_hint(const char *text) {
    return (struct jv){.type = JV_UNDEF, .sub = UNDEF_HINT, .n = (uint32_t)strlen(text), .s = text};
}

struct jv jv_undef_member(const struct jv *obj, const struct jv *key) {
    struct jv u = {.type = JV_UNDEF, .of = obj->type};
    if (key->type == JV_STR) {
        u.sub = UNDEF_ATTR;
        u.n = key->n;
        u.s = key->s;
    } else if (key->type == JV_INT) {
        u.sub = UNDEF_INDEX;
        u.i = key->i;
    } else {
        u = jv_undef_hint("no such element");
    }
    return u;
}

bool jv_is_str(const struct jv *v, const char *s) {
    return v->type == JV_STR && v->n == strlen(s) && memcmp(v->s, s, v->n) == 0;
}

const char *jv_type_name(const struct jv *v) {
    static const char *const names[] = {
        [JV_ABSENT] = "missing", [JV_UNDEF] = "Undefined", [JV_NONE] = "NoneType",
        [JV_BOOL] = "bool",      [JV_INT] = "int",         [JV_FLOAT] = "float",
        [JV_BIG] = "int",        [JV_STR] = "str",         [JV_LIST] = "list",
        [JV_TUPLE] = "tuple",    [JV_DICT] = "dict",       [JV_RANGE] = "range",
        [JV_VIEW] = "dict view", [JV_ITER] = "generator",  [JV_NAMESPACE] = "Namespace",
        [JV_LOOP] = "loop",      [JV_MACRO] = "Macro",     [JV_METHOD] = "method",
        [JV_FUNC] = "function",
    };
    return names[v->type];
}

bool jv_list_new(struct jinja_run *r, size_t cap, struct jv_list **out) {
    struct jv_list *l = jinja_alloc(r, sizeof(*l));
    if (l == NULL) return false;
    *l = (struct jv_list){0};
    if (cap > 0) {
        if (cap > SIZE_MAX / sizeof(struct jv)) return jinja_fail(r, "list too long");
        l->v = jinja_alloc(r, cap * sizeof(struct jv));
        if (l->v == NULL) return false;
        l->cap = cap;
    }
    *out = l;
    return true;
}

bool jv_list_push(struct jinja_run *r, struct jv_list *l, struct jv v) {
    if (l->n == l->cap) {
        size_t cap = l->cap < LIST_CAP_MIN ? LIST_CAP_MIN : l->cap * 2;
        struct jv *p = jinja_alloc(r, cap * sizeof(*p));
        if (p == NULL) return false;
        if (l->n > 0) memcpy(p, l->v, l->n * sizeof(*p));
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return jinja_tick(r, 1);
}

bool jv_iter_new(struct jinja_run *r, struct jv_list *l, struct jv *out) {
    struct jv_iter *it = jinja_alloc(r, sizeof(*it));
    if (it == NULL) return false;
    *it = (struct jv_iter){.list = l};
    *out = (struct jv){.type = JV_ITER, .iter = it};
    return true;
}

bool jv_str_copy(struct jinja_run *r, const char *s, size_t n, struct jv *out) {
    char *p = jinja_alloc(r, n);
    if (p == NULL) return false;
    memcpy(p, s, n);
    *out = jv_str(p, n);
    return true;
}

/* ---- numbers */

bool jv_is_number(const struct jv *v) {
    return v->type == JV_BOOL || v->type == JV_INT || v->type == JV_FLOAT;
}

bool jv_as_int(const struct jv *v, int64_t *out) {
    if (v->type != JV_BOOL && v->type != JV_INT) return false;
    *out = v->type == JV_BOOL ? v->b : v->i;
    return true;
}

double jv_as_float(const struct jv *v) {
    return v->type == JV_FLOAT ? v->f : v->type == JV_BOOL ? v->b : (double)v->i;
}

/* An int and a double, exactly: the int is never rounded. */
static int compare_int_float(int64_t i, double f) {
    if (f >= 9223372036854775808.0) return -1;
    if (f < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

/* Of two numbers, big ones too, neither of them a NaN. */
static int compare_numbers(const struct jv *a, const struct jv *b) {
    int64_t x, y;
    if (a->type == JV_BIG && b->type == JV_BIG) return a->u < b->u ? -1 : a->u > b->u;
    if (a->type == JV_BIG) return b->type == JV_FLOAT && b->f > (double)a->u ? -1 : 1;
    if (b->type == JV_BIG) return -compare_numbers(b, a);
    bool ia = jv_as_int(a, &x), ib = jv_as_int(b, &y);
    if (ia && ib) return x < y ? -1 : x > y;
    if (ia) return compare_int_float(x, b->f);
    if (ib) return -compare_int_float(y, a->f);
    return a->f < b->f ? -1 : a->f > b->f;
}

static bool is_nan(const struct jv *v) {
    return v->type == JV_FLOAT && isnan(v->f);
}

/* ---- truth, identity, equality, order */

bool jv_truth(const struct jv *v) {
    switch ((enum jv_type)v->type) {
    case JV_ABSENT:
    case JV_UNDEF:
    case JV_NONE: return false;
    case JV_BOOL: return v->b;
    case JV_INT: return v->i != 0;
    case JV_FLOAT: return v->f != 0;
    case JV_STR: return v->n > 0;
    case JV_LIST:
    case JV_TUPLE: return v->list->n > 0;
    case JV_DICT:
    case JV_VIEW: return v->dict->n > 0;
    case JV_RANGE: return v->range->n > 0;
    default: return true;
    }
}

bool jv_same(const struct jv *a, const struct jv *b) {
    if (a->type != b->type) return false;
    switch ((enum jv_type)a->type) {
    case JV_UNDEF: return false;
    case JV_NONE: return true;
    case JV_BOOL: return a->b == b->b;
    case JV_INT: return a->i == b->i;
    case JV_FLOAT: return a->f == b->f;
    case JV_STR: return a->n == b->n && (a->s == b->s || a->n <= 1);
    default: return a->list == b->list; /* all members of the union that are left are pointers */
    }
}

static bool dicts_equal(struct jinja_run *r, const struct jv_dict *a, const struct jv_dict *b,
                        bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        struct jv other;
        if (!jinja_tick(r, 1) || !jv_dict_get(r, b, &a->e[i].key, &other)) return false;
        if (other.type == JV_ABSENT) {
            *out = false;
        } else if (!jv_equal(r, &a->e[i].value, &other, out)) {
            return false;
        }
    }
    return true;
}

bool jv_equal(struct jinja_run *r, const struct jv *a, const struct jv *b, bool *out) {
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
        return true;
    }
    *out = false;
    if (a->type != b->type) return true;
    switch ((enum jv_type)a->type) {
    case JV_UNDEF:
    case JV_NONE: *out = true; return true;
    case JV_BIG: *out = a->u == b->u; return true;
    case JV_STR:
        *out = a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
        return jinja_tick(r, a->n / 128);
    case JV_RANGE:
        *out = a->range->n == b->range->n &&
               (a->range->n == 0 || (a->range->start == b->range->start &&
                                     (a->range->n == 1 || a->range->step == b->range->step)));
        return true;
    case JV_LIST:
    case JV_TUPLE:
        if (!jinja_enter(r)) return false;
        *out = a->list->n == b->list->n;
        for (size_t i = 0; i < a->list->n && *out; i++) {
            if (!jinja_tick(r, 1) || !jv_equal(r, &a->list->v[i], &b->list->v[i], out))
                return false;
        }
        jinja_leave(r);
        return true;
    case JV_DICT:
        if (!jinja_enter(r)) return false;
        if (!dicts_equal(r, a->dict, b->dict, out)) return false;
        jinja_leave(r);
        return true;
    default: *out = jv_same(a, b); return true;
    }
}

static int compare_bytes(const struct jv *a, const struct jv *b) {
    uint32_t n = a->n < b->n ? a->n : b->n;
    int c = memcmp(a->s, b->s, n); /* UTF-8 sorts as its code points do */
    if (c != 0) return c < 0 ? -1 : 1;
    return a->n < b->n ? -1 : a->n > b->n;
}

bool jv_compare(struct jinja_run *r, const struct jv *a, const struct jv *b, const char *op,
                int *out) {
    if (a->type == JV_UNDEF || b->type == JV_UNDEF) {
        return jinja_fail_undef(r, a->type == JV_UNDEF ? a : b);
    }
    if ((jv_is_number(a) || a->type == JV_BIG) && (jv_is_number(b) || b->type == JV_BIG)) {
        if (is_nan(a) || is_nan(b)) return jinja_fail(r, "cannot order nan");
        *out = compare_numbers(a, b);
        return true;
    }
    if (a->type == JV_STR && b->type == JV_STR) {
        *out = compare_bytes(a, b);
        return jinja_tick(r, (a->n < b->n ? a->n : b->n) / 128);
    }
    if (a->type == b->type && (a->type == JV_LIST || a->type == JV_TUPLE)) {
        const struct jv_list *x = a->list, *y = b->list;
        if (!jinja_enter(r)) return false;
        *out = x->n < y->n ? -1 : x->n > y->n;
        for (size_t i = 0; i < x->n && i < y->n; i++) {
            bool same;
            if (!jinja_tick(r, 1) || !jv_equal(r, &x->v[i], &y->v[i], &same)) return false;
            if (same) continue;
            if (!jv_compare(r, &x->v[i], &y->v[i], op, out)) return false;
            break;
        }
        jinja_leave(r);
        return true;
    }
    return jinja_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                      jv_type_name(a), jv_type_name(b));
}

/* ---- dicts */

/* The number of keys is bounded by the input. */
static uint64_t hash_bytes(const char *s, size_t n) {
    return hash64_bytes(HASH64_BEGIN, s, n);
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. */
bool jv_hash(struct jinja_run *r, const struct jv *v, uint64_t *out) {
    int64_t i;
    if (jv_as_int(v, &i)) {
        *out = splitmix_mix((uint64_t)i);
        return true;
    }
    switch ((enum jv_type)v->type) {
    case JV_STR: *out = hash_bytes(v->s, v->n); return jinja_tick(r, v->n / 64);
    case JV_FLOAT:
        if (v->f >= -9223372036854775808.0 && v->f < 9223372036854775808.0 && v->f == floor(v->f)) {
            *out = splitmix_mix((uint64_t)(int64_t)v->f);
        } else {
            memcpy(out, &v->f, sizeof(*out));
            *out = splitmix_mix(*out);
        }
        return true;
    case JV_TUPLE:
        if (!jinja_enter(r)) return false;
        *out = v->list->n;
        for (size_t k = 0; k < v->list->n; k++) {
            uint64_t h;
            if (!jinja_tick(r, 1) || !jv_hash(r, &v->list->v[k], &h)) return false;
            *out = splitmix_mix(*out * 31 + h);
        }
        jinja_leave(r);
        return true;
    case JV_LIST:
    case JV_DICT: return jinja_fail(r, "unhashable type: '%s'", jv_type_name(v));
    case JV_UNDEF:
    case JV_NONE: *out = v->type; return true;
    case JV_BIG: *out = splitmix_mix(v->u); return true;
    default: *out = splitmix_mix((uint64_t)(uintptr_t)v->list); return true;
    }
}

bool jv_dict_new(struct jinja_run *r, struct jv_dict **out) {
    struct jv_dict *d = jinja_alloc(r, sizeof(*d));
    if (d == NULL) return false;
    *d = (struct jv_dict){0};
    *out = d;
    return true;
}

/* Position of the key, or d->n. */
static bool dict_find(struct jinja_run *r, const struct jv_dict *d, const struct jv *key,
                      size_t *pos) {
    bool same;
    *pos = d->n;
    if (d->n_slots == 0) {
        uint64_t unused;
        if (key->type != JV_STR && !jv_hash(r, key, &unused)) return false;
        for (size_t i = 0; i < d->n; i++) {
            if (!jv_equal(r, &d->e[i].key, key, &same)) return false;
            if (same) {
                *pos = i;
                return true;
            }
        }
        return true;
    }
    uint64_t h;
    if (!jv_hash(r, key, &h)) return false;
    for (size_t i = h & (d->n_slots - 1); d->slots[i] != 0; i = (i + 1) & (d->n_slots - 1)) {
        if (!jinja_tick(r, 1)) return false;
        if (!jv_equal(r, &d->e[d->slots[i] - 1].key, key, &same)) return false;
        if (same) {
            *pos = d->slots[i] - 1;
            return true;
        }
    }
    return true;
}

/* Every probe is a step, so keys made to collide end in the step limit and not in a busy thread. */
static bool dict_note(struct jinja_run *r, struct jv_dict *d, uint64_t h, size_t pos) {
    size_t i = h & (d->n_slots - 1);
    while (d->slots[i] != 0) {
        i = (i + 1) & (d->n_slots - 1);
        if (!jinja_tick(r, 1)) return false;
    }
    d->slots[i] = (uint32_t)pos + 1;
    return true;
}

static bool dict_grow(struct jinja_run *r, struct jv_dict *d) {
    size_t cap = d->cap == 0 ? 4 : d->cap * 2;
    struct jv_pair *e = jinja_alloc(r, cap * sizeof(*e));
    if (e == NULL) return false;
    if (d->n > 0) memcpy(e, d->e, d->n * sizeof(*e));
    d->e = e;
    d->cap = cap;
    if (cap <= DICT_SEARCH_MAX) return true;
    d->slots = jinja_alloc(r, 2 * cap * sizeof(*d->slots));
    if (d->slots == NULL) return false;
    memset(d->slots, 0, 2 * cap * sizeof(*d->slots));
    d->n_slots = 2 * cap;
    for (size_t i = 0; i < d->n; i++) {
        uint64_t h;
        if (!jv_hash(r, &d->e[i].key, &h) || !dict_note(r, d, h, i)) return false;
    }
    return true;
}

bool jv_dict_set(struct jinja_run *r, struct jv_dict *d, const struct jv *key, struct jv value) {
    size_t pos;
    if (!dict_find(r, d, key, &pos)) return false;
    if (pos < d->n) {
        d->e[pos].value = value;
        return true;
    }
    if (d->n == d->cap && !dict_grow(r, d)) return false;
    if (d->n_slots > 0) {
        uint64_t h;
        if (!jv_hash(r, key, &h) || !dict_note(r, d, h, d->n)) return false;
    }
    d->e[d->n++] = (struct jv_pair){*key, value};
    return jinja_tick(r, 1);
}

bool jv_dict_get(struct jinja_run *r, const struct jv_dict *d, const struct jv *key,
                 struct jv *out) {
    size_t pos;
    if (!dict_find(r, d, key, &pos)) return false;
    *out = pos < d->n ? d->e[pos].value : (struct jv){0};
    return true;
}

struct jv jv_dict_get_str(const struct jv_dict *d, const char *s, size_t n) {
    size_t i, pos;
    if (d->n_slots == 0) {
        for (i = 0; i < d->n; i++) {
            const struct jv *k = &d->e[i].key;
            if (k->type == JV_STR && k->n == n && memcmp(k->s, s, n) == 0) return d->e[i].value;
        }
        return (struct jv){0};
    }
    for (i = hash_bytes(s, n) & (d->n_slots - 1); d->slots[i] != 0;
         i = (i + 1) & (d->n_slots - 1)) {
        pos = d->slots[i] - 1;
        const struct jv *k = &d->e[pos].key;
        if (k->type == JV_STR && k->n == n && memcmp(k->s, s, n) == 0) return d->e[pos].value;
    }
    return (struct jv){0};
}

/* ---- variables of the caller. Strings stay where the tree has them. */

/* Borrows s unless it is marked. */
static bool from_json_string(struct jinja_run *r, const char *s, size_t n, struct jv *out) {
    struct buf marked = BUF_INIT;
    bool ok = true;
    *out = jv_str(s, n);
    if (r->mark == NULL) return true;
    if (r->mark(r->mark_arg, s, n, &marked))
        ok = marked.failed ? jinja_fail_code(r, ERR_NO_MEMORY, "no memory left")
                           : jv_str_copy(r, marked.data, marked.len, out);
    buf_free(&marked);
    return ok;
}

static bool from_json_container(struct jinja_run *r, struct json_value *o, struct jv *out) {
    if (json_is(o, json_type_array)) {
        size_t n = json_arr_len(o);
        struct jv_list *l;
        if (!jv_list_new(r, n, &l)) return false;
        for (size_t i = 0; i < n; i++) {
            struct jv v;
            if (!jv_from_json(r, json_arr_at(o, i), &v)) return false;
            if (!jv_list_push(r, l, v)) return false;
        }
        *out = jv_of_list(l);
        return true;
    }
    struct jv_dict *d;
    if (!jv_dict_new(r, &d)) return false;
    json_obj_foreach(o, name, member) {
        struct jv key, v;
        if (!from_json_string(r, name, strlen(name), &key) || !jv_from_json(r, member, &v) ||
            !jv_dict_set(r, d, &key, v))
            return false;
    }
    *out = jv_of_dict(d);
    return true;
}

bool jv_from_json(struct jinja_run *r, struct json_value *o, struct jv *out) {
    switch (json_type_of(o)) {
    case json_type_null: *out = jv_none(); return true;
    case json_type_boolean: *out = jv_bool(json_bool(o)); return true;
    case json_type_double: *out = jv_float(json_f64(o)); return true;
    case json_type_int: {
        uint64_t u = json_u64(o); /* 0 for a negative one */
        *out = jv_int(json_i64(o));
        if (u > INT64_MAX) *out = (struct jv){.type = JV_BIG, .u = u};
        return true;
    }
    case json_type_string: return from_json_string(r, json_str(o), (size_t)json_str_len(o), out);
    case json_type_array:
    case json_type_object: break;
    }
    if (!jinja_enter(r)) return false;
    if (!from_json_container(r, o, out)) return false;
    jinja_leave(r);
    return true;
}
