/* json_tree: JSON values. A text that json_read() takes becomes a compact tree: one block of
 * 12-byte nodes beside the text itself, whose strings are unescaped where they stand; so a body of
 * n bytes costs at most 6 n (`1,1,1,...`) and its text, whatever is in it. Values that a program
 * makes (json_object_new_*) are nodes of the heap and may hold parts of parsed trees.
 *
 * null is NULL here, as a value of its own has nothing to say.
 *
 * Ownership: every value counts its owners; json_object_get() makes one more, json_object_put()
 * ends one. A part of a parsed tree keeps the whole tree. Adding a value to a container gives it
 * away. A container of a parsed tree may be changed too, yet must not get a made container that
 * holds a part of that same tree (it would keep itself). Thread: a tree is one thread's at a time,
 * parts of it included. Errors: NULL and -1 mean no memory; what was to be given away stays the
 * caller's. */
#ifndef BATON_PROTO_JSON_TREE_H
#define BATON_PROTO_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;
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

struct json_object *json_object_get(struct json_object *v); /* v; NULL is fine */
void json_object_put(struct json_object *v);                /* NULL is fine */

enum json_type json_object_get_type(const struct json_object *v);
bool json_object_is_type(const struct json_object *v, enum json_type type);
const char *json_type_to_name(enum json_type type); /* "null", "boolean", "double", "int"... */

/* Of a value whose type is known; of others false, 0, NULL. Integers outside the result's type come
 * as its nearest; a double of an integer is its nearest. Strings are terminated by a zero that the
 * length does not count. */
bool json_object_get_boolean(const struct json_object *v);
int64_t json_object_get_int64(const struct json_object *v);
uint64_t json_object_get_uint64(const struct json_object *v);
double json_object_get_double(const struct json_object *v);
const char *json_object_get_string(const struct json_object *v);
size_t json_object_get_string_len(const struct json_object *v);

/* What a parsed tree takes beside its text; 0 of a value that was made. */
size_t json_object_tree_bytes(const struct json_object *v);

/* Containers lend what is in them. Arrays by number: constant time. Members by name: constant time,
 * whatever names a stranger chose; a name given twice has its first place and its last value. *out
 * (or NULL) is NULL when the name is not there. */
size_t json_object_array_length(const struct json_object *v);
struct json_object *json_object_array_get_idx(const struct json_object *v, size_t i);
size_t json_object_object_length(const struct json_object *v);
bool json_object_object_get_ex(const struct json_object *v, const char *key,
                               struct json_object **out);

/* The members in their order; the object must not change meanwhile. */
struct json_object_iterator {
    const struct json_object *obj;
    size_t i;
};
struct json_object_iterator json_object_iter_begin(const struct json_object *v);
struct json_object_iterator json_object_iter_end(const struct json_object *v);
bool json_object_iter_equal(const struct json_object_iterator *a,
                            const struct json_object_iterator *b);
void json_object_iter_next(struct json_object_iterator *it);
const char *json_object_iter_peek_name(const struct json_object_iterator *it);
struct json_object *json_object_iter_peek_value(const struct json_object_iterator *it);

#define json_object_object_foreach(obj, key, val)                                                  \
    const char *key = NULL;                                                                        \
    struct json_object *val = NULL;                                                                \
    for (struct json_object_iterator it_##key = json_object_iter_begin(obj),                       \
                                     end_##key = json_object_iter_end(obj);                        \
         !json_object_iter_equal(&it_##key, &end_##key) &&                                         \
         (key = json_object_iter_peek_name(&it_##key),                                             \
         val = json_object_iter_peek_value(&it_##key), true);                                      \
         json_object_iter_next(&it_##key))

/* Same type and same value; the order of members does not count, 1 and 1.0 differ. */
bool json_object_equal(const struct json_object *a, const struct json_object *b);

struct json_object *json_object_new_object(void);
struct json_object *json_object_new_array(void);
struct json_object *json_object_new_string(const char *s);
struct json_object *json_object_new_string_len(const char *s, size_t n);
struct json_object *json_object_new_int64(int64_t i);
struct json_object *json_object_new_double(double d);
/* The same with the text it is written as. */
struct json_object *json_object_new_double_s(double d, const char *text);
struct json_object *json_object_new_boolean(bool on);

/* Replaces a member of that name in its place. 0, or -1. */
int json_object_object_add(struct json_object *obj, const char *key, struct json_object *v);
void json_object_object_del(struct json_object *obj, const char *key);
int json_object_array_add(struct json_object *arr, struct json_object *v);
/* Fills with null up to i. */
int json_object_array_put_idx(struct json_object *arr, size_t i, struct json_object *v);

/* v as JSON, numbers as they were written. The text belongs to v's tree and lasts until the next
 * call for a value of that tree. NULL: no memory. n: its length, or NULL. */
enum json_style { JSON_COMPACT, JSON_PRETTY };
const char *json_object_to_text(const struct json_object *v, enum json_style style, size_t *n);

/* ---- for proto/json.c alone */

/* Makes the tree of a text that json_check() took: of a copy of p[0..n), or of in_place[0..n) and a
 * byte behind it, which is changed and must last as long as the tree. false: no memory. */
bool json_tree_build(struct json_object **out, const char *p, char *in_place, size_t n,
                     const struct json_size *size);
/* Writes v as compact JSON, at most dst_bytes of it; returns how many. No terminator. */
size_t json_print_some(char *dst, size_t dst_bytes, const struct json_object *v);

#endif
