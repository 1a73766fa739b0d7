/* json_skim: finds members and the ends of containers in a JSON text by its quotes and brackets
 * alone, 64 bytes at a time: for who wants a few members of a large body on a thread that must not
 * stop, and leaves it to another to check the text. Numbers, words, commas and the insides of
 * strings are not looked at, and a bracket of one kind never ends a container of the other.
 *
 * Of valid JSON everything said is exact. Of anything else it is within bounds and means nothing;
 * a text that ends inside a container or a string is always noticed.
 *
 * All offsets count from p; 0 is never one that is returned (a container was opened before it), and
 * says that the text ended too early. Nothing is allocated. The work is a constant a byte whatever
 * the text, but for json_skim_items(), whose caller is given single items.
 * Thread: pure. */
#ifndef BATON_PROTO_JSON_SKIM_H
#define BATON_PROTO_JSON_SKIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first byte at or behind `at` that is no white space; n: none. */
size_t json_skim_space(const char *p, size_t n, size_t at);

/* p[at] opens a string: the offset behind its end; *n_bytes: of its UTF-8, escapes taken out. */
size_t json_skim_string(const char *p, size_t n, size_t at, size_t *n_bytes);

/* p[at] opens a container: the offset behind its end. */
size_t json_skim_container(const char *p, size_t n, size_t at);

/* Which of the caller's members a name is, 0 <= i < n_found; else -1. name[0..len), 1 <= len <=
 * JSON_SKIM_NAME_BYTES_MAX, its escapes taken out. */
enum { JSON_SKIM_NAME_BYTES_MAX = 21 };
typedef int json_skim_name_fn(const char *name, size_t len);

/* p[at] opens an object: found[i] is where the value of member i begins (white space is skipped; of
 * a name that stands there twice the last counts), 0 for one that is not there. The offset behind
 * the object's end. Escaped names are unescaped as long as they hold [a-z_] alone. */
size_t json_skim_members(const char *p, size_t n, size_t at, json_skim_name_fn *which,
                         size_t *found, size_t n_found);

/* What lies in an array and in the arrays in it. */
struct json_skim_sum {
    size_t n_items;      /* of the outermost array, less one; exact up to n_items_max, then any */
    size_t n_items_max;  /* of the caller */
    size_t n_scalars;    /* numbers and words */
    size_t n_text_bytes; /* of strings that were not given to the caller */
};
enum json_skim_item {
    JSON_SKIM_END,    /* the outermost array is closed; at: behind it */
    JSON_SKIM_OBJECT, /* p[at] opens an object: the caller goes on behind it */
    JSON_SKIM_STRING, /* p[at] opens a string, with escapes or a long one: the same */
    JSON_SKIM_BAD,    /* the text ended */
};
/* Walks on from *at inside of *depth arrays, the outermost being one (at first: behind its bracket,
 * 1). What is counted is added to *s. */
enum json_skim_item json_skim_items(const char *p, size_t n, size_t *at, size_t *depth,
                                    struct json_skim_sum *s);

#endif
