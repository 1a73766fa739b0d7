/* jinja_value: the values a template computes with. They behave as Python's: str, int (64 bits),
 * float, bool, None, list, tuple, dict in order of insertion, range, the views of a dict, iterators
 * that can be read once, and Jinja's undefined.
 *
 * Ownership: everything a value points to lives in the rendering's memory (jinja_run.h), in the
 * template or in the caller's variables; nothing is freed alone. Values are never changed once
 * made, except namespaces, loops and the position of an iterator. */
#ifndef BATON_TEXT_JINJA_VALUE_H
#define BATON_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_run;
struct json_value;

enum jv_type {
    JV_ABSENT, /* no value at all: an argument that was not given */
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_BIG, /* an integer of the variables in [2^63, 2^64): can be printed and compared, not
               computed with */
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_RANGE,
    JV_VIEW, /* d.items(), d.keys(), d.values() */
    JV_ITER, /* what Python gives as a generator */
    JV_NAMESPACE,
    JV_LOOP,
    JV_MACRO,
    JV_METHOD, /* a method and the value it was taken from */
    JV_FUNC,   /* a function of the globals */
};

/* How an undefined value came about; its message depends on it. */
enum jv_undef { UNDEF_NAME, UNDEF_ATTR, UNDEF_INDEX, UNDEF_UNSAFE, UNDEF_HINT };
enum jv_view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
enum { STR_PLAIN, STR_SAFE };      /* jv.sub of a string: STR_SAFE came out of `escape` or `safe` */
enum { TUPLE_PLAIN, TUPLE_GROUP }; /* jv.sub of a tuple: TUPLE_GROUP is a row of `groupby` */

struct jv {
    uint8_t type; /* enum jv_type */
    uint8_t sub;  /* JV_UNDEF, JV_VIEW, JV_STR, JV_TUPLE: see above */
    uint8_t
        of; /* UNDEF_ATTR, UNDEF_INDEX, UNDEF_UNSAFE: type of the object that has no such member */
    uint32_t n; /* bytes of s */
    union {
        bool b;
        int64_t i;  /* JV_INT; UNDEF_INDEX: the index */
        uint64_t u; /* JV_BIG */
        double f;
        const char *s; /* JV_STR; UNDEF_NAME, _ATTR, _UNSAFE: the name; UNDEF_HINT: the message */
        struct jv_list *list;
        struct jv_dict *dict; /* JV_DICT, JV_VIEW, JV_NAMESPACE */
        const struct jv_range *range;
        struct jv_iter *iter;
        struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jv_method *method;
        const struct jinja_def *func;
    };
};

struct jv_list {
    struct jv *v;
    size_t n, cap;
};

struct jv_pair {
    struct jv key, value;
};

/* Small dicts are searched, big ones have a table of positions (open addressing, 0 is free, else
 * position + 1). */
struct jv_dict {
    struct jv_pair *e;
    uint32_t *slots;
    size_t n, cap, n_slots;
};

struct jv_range {
    int64_t start, stop, step;
    size_t n;
};

struct jv_iter {
    struct jv_list *list;
    size_t at; /* items before it are used up */
};

struct jv_method {
    struct jv self;
    const struct jinja_def *def;
};

static inline struct jv jv_none(void) {
    return (struct jv){.type = JV_NONE};
}
static inline struct jv jv_bool(bool b) {
    return (struct jv){.type = JV_BOOL, .b = b};
}
static inline struct jv jv_int(int64_t i) {
    return (struct jv){.type = JV_INT, .i = i};
}
static inline struct jv jv_float(double f) {
    return (struct jv){.type = JV_FLOAT, .f = f};
}
static inline struct jv jv_str(const char *s, size_t n) {
    return (struct jv){.type = JV_STR, .n = (uint32_t)n, .s = s};
}
struct jv jv_cstr(const char *s);
static inline struct jv jv_of_list(struct jv_list *l) {
    return (struct jv){.type = JV_LIST, .list = l};
}
static inline struct jv jv_of_tuple(struct jv_list *l) {
    return (struct jv){.type = JV_TUPLE, .list = l};
}
static inline struct jv jv_of_dict(struct jv_dict *d) {
    return (struct jv){.type = JV_DICT, .dict = d};
}
struct jv jv_undef_name(const char *s, size_t n);
struct jv jv_undef_hint(const char *text);
struct jv jv_undef_member(const struct jv *obj, const struct jv *key);

bool jv_is_str(const struct jv *v, const char *s);
/* "str", "NoneType": the name Python gives the type in its messages. */
const char *jv_type_name(const struct jv *v);

/* All that follow fail with false, having told r why (jinja_run.h). */
bool jv_list_new(struct jinja_run *r, size_t cap, struct jv_list **out);
bool jv_list_push(struct jinja_run *r, struct jv_list *l, struct jv v);
bool jv_iter_new(struct jinja_run *r, struct jv_list *l, struct jv *out);
bool jv_str_copy(struct jinja_run *r, const char *s, size_t n, struct jv *out);

bool jv_dict_new(struct jinja_run *r, struct jv_dict **out);
bool jv_dict_set(struct jinja_run *r, struct jv_dict *d, const struct jv *key, struct jv value);
/* *out is JV_ABSENT when there is no such key. Fails for a key that cannot be hashed. */
bool jv_dict_get(struct jinja_run *r, const struct jv_dict *d, const struct jv *key,
                 struct jv *out);
/* For names: cannot fail. */
struct jv jv_dict_get_str(const struct jv_dict *d, const char *s, size_t n);

bool jv_from_json(struct jinja_run *r, struct json_value *o, struct jv *out);

/* Numbers: bool, int and float. */
bool jv_is_number(const struct jv *v);
bool jv_as_int(const struct jv *v, int64_t *out); /* bool and int; false is no error here */
double jv_as_float(const struct jv *v);           /* of a number */
bool jv_truth(const struct jv *v);
bool jv_same(const struct jv *a, const struct jv *b); /* Python's `is` */
bool jv_equal(struct jinja_run *r, const struct jv *a, const struct jv *b, bool *out);
/* -1, 0, 1; fails when Python has no order between the two. op: the sign for the message. */
bool jv_compare(struct jinja_run *r, const struct jv *a, const struct jv *b, const char *op,
                int *out);
bool jv_hash(struct jinja_run *r, const struct jv *v, uint64_t *out);

#endif
