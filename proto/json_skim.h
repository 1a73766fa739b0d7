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
 * the text, but for items(), whose caller is given single items.
 * Thread: pure. */
#ifndef BATON_PROTO_JSON_SKIM_H
#define BATON_PROTO_JSON_SKIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names of the members that are looked for. */
enum { JSON_SKIM_NAME_BYTES_MAX = 21, JSON_SKIM_SLOTS = 128 };
struct json_skim_names {
    const char *const *name;
    size_t n;
    uint64_t factor; /* by which the first eight bytes of each have a slot of their own */
    struct {
        uint64_t head;        /* the first eight bytes of the name, the first one lowest */
        unsigned char len, i; /* len 0: none */
    } slot[JSON_SKIM_SLOTS];
};
/* n names, 1 to JSON_SKIM_NAME_BYTES_MAX bytes of [a-z0-9_] each, which stay where they are; no two
 * begin with the same eight bytes. For any number of walks. */
void json_skim_names_init(struct json_skim_names *t, const char *const *names, size_t n);

/* What lies in an array and in the arrays in it. */
struct json_skim_sum {
    size_t n_items;      /* of the outermost array, less one */
    size_t n_scalars;    /* numbers and words */
    size_t n_text_bytes; /* of strings that were not given to the caller */
};
enum json_skim_item {
    JSON_SKIM_END,    /* the outermost array is closed; at: behind it */
    JSON_SKIM_OBJECT, /* p[at] opens an object: the caller goes on behind it */
    JSON_SKIM_STRING, /* p[at] opens a string, with escapes or a long one: the same */
    JSON_SKIM_BAD,    /* the text ended */
};

/* The walks, as a set of instructions does them. */
struct json_skim {
    /* The first byte at or behind `at` that is no white space; n: none. */
    size_t (*space)(const char *p, size_t n, size_t at);
    /* p[at] opens a string: the offset behind its end; *n_bytes: of its UTF-8, escapes taken out.
     */
    size_t (*string)(const char *p, size_t n, size_t at, size_t *n_bytes);
    /* p[at] opens a container: the offset behind its end. */
    size_t (*container)(const char *p, size_t n, size_t at);
    /* p[at] lies in this many arrays, 1 or more, and in no string: the offset behind the end of the
     * outermost. */
    size_t (*arrays_end)(const char *p, size_t n, size_t at, size_t depth);
    /* p[at] opens an object: found[i] is where the value of name i begins (white space is skipped;
     * of a name that stands there twice the last counts), 0 for one that is not there. The offset
     * behind the object's end. Escaped names are unescaped as long as they hold [a-z_] alone. */
    size_t (*members)(const char *p, size_t n, size_t at, const struct json_skim_names *names,
                      size_t *found);
    /* Walks on from *at inside of *depth arrays, the outermost being one (at first: behind its
     * bracket, 1). What is counted is added to *s. */
    enum json_skim_item (*items)(const char *p, size_t n, size_t *at, size_t *depth,
                                 struct json_skim_sum *s);
};
/* The fastest set that this processor has. Any thread. */
const struct json_skim *json_skim(void);

#endif
