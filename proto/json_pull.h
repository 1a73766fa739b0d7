/* json_pull: walks over one JSON text value by value, and checks all of it as json_read() does, but
 * builds nothing: constant memory, no allocation. For who wants a few members of a small body that
 * it does not own (a large one on a loop thread: json_skim.h).
 *
 *     json_pull_start(&j, p, n);
 *     if (json_pull_value(&j, &s) == JSON_PULL_OBJECT)
 *         while (json_pull_member(&j, &name))
 *             if (json_pull_name_is(&j, &name, "stream")) ... json_pull_value(&j, &s) ...
 *             else json_pull_skip(&j);
 *     if (!json_pull_end(&j)) ... no JSON: what was found does not count
 *
 * Every member and item is followed by one json_pull_value() or json_pull_skip(); a container that
 * json_pull_value() opened is walked to its end. What is wrong stops all loops.
 * Thread: pure; a walk is one thread's. */
#ifndef BATON_PROTO_JSON_PULL_H
#define BATON_PROTO_JSON_PULL_H

#include <string.h>
#include "proto/json_lex.h"
#include "proto/limits.h"

enum json_pulled {
    JSON_PULL_BAD,
    JSON_PULL_NULL,
    JSON_PULL_FALSE,
    JSON_PULL_TRUE,
    JSON_PULL_INT,  /* 64 bits hold it */
    JSON_PULL_REAL, /* any other number */
    JSON_PULL_STRING,
    JSON_PULL_ARRAY,  /* opened: json_pull_item() */
    JSON_PULL_OBJECT, /* opened: json_pull_member() */
};

struct json_pull {
    struct json_lex lex;
    int depth; /* open containers */
    bool fresh, bad;
    bool object[JSON_DEPTH_MAX + 2]; /* of each open container */
};

void json_pull_start(struct json_pull *j, const char *p, size_t n);

/* The value that comes next: a scalar whole, or a container opened. *s: of a string. */
enum json_pulled json_pull_value(struct json_pull *j, struct json_span *s);
/* The same, whole. */
enum json_pulled json_pull_skip(struct json_pull *j);
/* What is left of the innermost container. */
void json_pull_rest(struct json_pull *j);
/* Another item or member comes; false: the container is closed (or the text bad). */
bool json_pull_item(struct json_pull *j);
bool json_pull_member(struct json_pull *j, struct json_span *name);
/* The text was JSON to its end. */
bool json_pull_end(struct json_pull *j);

/* Whether a string is this one, however it is spelled. */
bool json_pull_spells(const struct json_pull *j, const struct json_span *s, const char *name);
static inline bool json_pull_name_is(const struct json_pull *j, const struct json_span *s,
                                     const char *name) {
    if (s->n_bytes != strlen(name)) return false;
    if (s->n_bytes == s->len) return memcmp(j->lex.p + s->at, name, s->len) == 0;
    return json_pull_spells(j, s, name); /* as long, with escapes */
}
/* Copies a string and a zero when it fits: s->n_bytes < dst_bytes. */
bool json_pull_copy(const struct json_pull *j, const struct json_span *s, char *dst,
                    size_t dst_bytes);
/* The string member `key` of the object p[0..n), the last of several: dst with a zero behind, *len
 * its bytes. dst is "" otherwise. */
enum json_found {
    JSON_FOUND,
    JSON_FOUND_NONE,     /* an object without such a string */
    JSON_FOUND_TOO_LONG, /* for dst */
    JSON_FOUND_NO_OBJECT,
};
enum json_found json_pull_find(const char *p, size_t n, const char *key, char *dst,
                               size_t dst_bytes, size_t *len);

#endif
