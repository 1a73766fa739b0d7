/* json_tree: JSON values. A text that json_read() takes becomes a compact tree: one block of
 * 12-byte nodes beside the text itself, whose strings are unescaped where they stand; so a body of
 * n bytes costs at most 6 n (`1,1,1,...`) and its text, whatever is in it. Values that a program
 * makes (json_new_*) are nodes of the heap and may hold parts of parsed trees.
 *
 * null is NULL here, as a value of its own has nothing to say.
 *
 * Ownership: every value counts its owners; json_ref() makes one more, json_put()
 * ends one. A part of a parsed tree keeps the whole tree. Adding a value to a container gives it
 * away, also where it does not get in. A container of a parsed tree may be changed too, yet must
 * not get a made container that holds a part of that same tree (it would keep itself). Thread: a
 * tree is one thread's at a time, parts of it included. Errors: NULL and -1 mean no memory. */
#ifndef BATON_PROTO_JSON_TREE_H
#define BATON_PROTO_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_value;
struct json_size;

enum json_type {
    json_type_null,
    json_type_boolean,
    json_type_double,
    json_type_int,
    json_type_object,
    json_type_array,
    json_type_string,
};

struct json_value *json_ref(struct json_value *v); /* v; NULL is fine */
void json_put(struct json_value *v);               /* NULL is fine */

enum json_type json_type_of(const struct json_value *v);
bool json_is(const struct json_value *v, enum json_type type);
const char *json_type_name(enum json_type type); /* "null", "boolean", "double", "int"... */

/* Of a value whose type is known; of others false, 0, NULL. Integers outside the result's type come
 * as its nearest; a double of an integer is its nearest. Strings are terminated by a zero that the
 * length does not count. */
bool json_bool(const struct json_value *v);
int64_t json_i64(const struct json_value *v);
uint64_t json_u64(const struct json_value *v);
double json_f64(const struct json_value *v);
const char *json_str(const struct json_value *v);
size_t json_str_len(const struct json_value *v);

/* What a parsed tree takes beside its text; 0 of a value that was made. */
size_t json_tree_bytes(const struct json_value *v);

/* Containers lend what is in them. Arrays by number: constant time. Members by name: constant time,
 * whatever names a stranger chose; a name given twice has its first place and its last value. *out
 * (or NULL) is NULL when the name is not there. */
size_t json_arr_len(const struct json_value *v);
struct json_value *json_arr_at(const struct json_value *v, size_t i);
size_t json_obj_len(const struct json_value *v);
bool json_obj_find(const struct json_value *v, const char *key, struct json_value **out);

/* The members in their order; the object must not change meanwhile. */
struct json_iter {
    const struct json_value *obj;
    size_t i;
};
struct json_iter json_iter_begin(const struct json_value *v);
struct json_iter json_iter_end(const struct json_value *v);
bool json_iter_equal(const struct json_iter *a, const struct json_iter *b);
void json_iter_next(struct json_iter *it);
const char *json_iter_name(const struct json_iter *it);
struct json_value *json_iter_value(const struct json_iter *it);

#define json_obj_foreach(obj, key, val)                                                            \
    const char *key = NULL;                                                                        \
    struct json_value *val = NULL;                                                                 \
    for (struct json_iter it_##key = json_iter_begin(obj), end_##key = json_iter_end(obj);         \
         !json_iter_equal(&it_##key, &end_##key) &&                                                \
         (key = json_iter_name(&it_##key), val = json_iter_value(&it_##key), true);                \
         json_iter_next(&it_##key))

/* Same type and same value; the order of members does not count, 1 and 1.0 differ. */
bool json_equal(const struct json_value *a, const struct json_value *b);

/* Makers give NULL, which reads as null, when there is no memory; so do values that could not be
 * put in. Nobody has to look at each: such failures of the process are counted, and a tree that was
 * made before one has no text. */
uint32_t json_failures(void);
struct json_value *json_new_obj(void);
struct json_value *json_new_arr(void);
struct json_value *json_new_str(const char *s);
struct json_value *json_new_str_n(const char *s, size_t n);
struct json_value *json_new_i64(int64_t i);
struct json_value *json_new_u64(uint64_t u);
struct json_value *json_new_f64(double d);
/* The same with the text it is written as. */
struct json_value *json_new_f64_as(double d, const char *text);
struct json_value *json_new_bool(bool on);

/* Replaces a member of that name in its place. 0, or -1. */
int json_obj_set(struct json_value *obj, const char *key, struct json_value *v);
void json_obj_del(struct json_value *obj, const char *key);
int json_arr_add(struct json_value *arr, struct json_value *v);
/* Fills with null up to i. */
int json_arr_put(struct json_value *arr, size_t i, struct json_value *v);

/* v as JSON, numbers as they were written. The text belongs to v's tree and lasts until the next
 * call for a value of that tree. NULL: no memory, now or since v was made. n: its length,
 * or NULL. */
enum json_style { JSON_COMPACT, JSON_PRETTY };
const char *json_to_text(const struct json_value *v, enum json_style style, size_t *n);

/* ---- for proto/json.c alone */

/* Makes the tree of a text that json_check() took: of a copy of p[0..n), or of in_place[0..n) and a
 * byte behind it, which is changed and must last as long as the tree. false: no memory. */
bool json_tree_build(struct json_value **out, const char *p, char *in_place, size_t n,
                     const struct json_size *size);
/* Writes v as compact JSON, at most dst_bytes of it; returns how many. No terminator. */
size_t json_print_some(char *dst, size_t dst_bytes, const struct json_value *v);

#endif
