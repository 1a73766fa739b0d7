/* json: the strict JSON reader (RFC 8259) that every floor uses, and getters that never coerce. A
 * linear pass checks the text, and counts what its tree takes, before anything is made. Refused is
 * all that is not JSON: text that is not UTF-8, raw control characters, single quotes, NaN and
 * Infinity, "1." and ".5", 1e999, lone surrogates, too deep nesting. A leading byte order mark is
 * skipped. A key that holds a zero character is refused, as keys are C strings.
 *
 * Memory: at most 6 n bytes beside a copy of the n bytes of text (json_tree.h).
 * Ownership: the tree belongs to the caller: json_put(). Getters lend; pointers live as long
 * as the tree. Thread: pure; a tree is one thread's at a time. */
#ifndef BATON_PROTO_JSON_H
#define BATON_PROTO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/json_tree.h"
#include "proto/limits.h"

struct json_limits {
    int depth_max; /* of containers, the root object or array being at depth 0; negative:
                      JSON_DEPTH_MAX */
    /* NULL-terminated list of places under which containers may be as deep as depth_exempt_max (at
     * most JSON_DEPTH_MAX) instead. A place is a key of the root object ("tools"), a prefix of one
     * ("guided_*"), or a key of the objects in an array of the root object
     * ("messages[].tool_calls"). NULL: none. */
    const char *const *exempt;
    int depth_exempt_max;
    bool unique_keys; /* a key given twice is refused; otherwise the last one wins */
};

/* The rule for bodies of clients (inference-api.md 2.4): depth_max for ordinary fields,
 * JSON_DEPTH_MAX under schemas and tool calls. depth_max is the server's `maxJsonDepth`. */
struct json_limits json_limits_client(int depth_max);

/* Parses exactly p[0..n): one value, white space around it. lim NULL: JSON_DEPTH_MAX, last key
 * wins. A top-level `null` gives ERR_OK with *out NULL. ERR_BAD_JSON: eb says the byte offset and
 * what is wrong there. ERR_TOO_LARGE: over 2^27-1 bytes. Integers outside [-2^63, 2^64-1] become
 * doubles. */
enum err json_read(struct json_value **out, const char *p, size_t n, const struct json_limits *lim,
                   struct errbuf *eb);

/* The same without a copy: p[0..n], a byte more than the text, is changed and must last as long as
 * the tree; on errors it is as it was. */
enum err json_read_in_place(struct json_value **out, char *p, size_t n,
                            const struct json_limits *lim, struct errbuf *eb);

/* Reads a whole file of at most bytes_max; ERR_NOT_FOUND, ERR_TOO_LARGE, ERR_IO or as json_read; eb
 * names the path. */
enum err json_read_file(struct json_value **out, const char *path, size_t bytes_max,
                        const struct json_limits *lim, struct errbuf *eb);

enum json_got { JSON_ABSENT, JSON_NULL, JSON_OK, JSON_WRONG_TYPE };

/* The field `key` of obj; JSON_ABSENT too when obj is NULL or no object. *out changes on JSON_OK
 * only. An integer is a literal without fraction and exponent: 1.0 is none. f64 takes integers too.
 * i64: JSON_WRONG_TYPE outside [-2^63, 2^63-1]. u64: outside [0, 2^64-1]. */
enum json_got json_get(const struct json_value *obj, const char *key, struct json_value **out);
enum json_got json_get_str(const struct json_value *obj, const char *key, const char **s,
                           size_t *n);
enum json_got json_get_i64(const struct json_value *obj, const char *key, int64_t *out);
enum json_got json_get_u64(const struct json_value *obj, const char *key, uint64_t *out);
enum json_got json_get_f64(const struct json_value *obj, const char *key, double *out);
enum json_got json_get_bool(const struct json_value *obj, const char *key, bool *out);
enum json_got json_get_arr(const struct json_value *obj, const char *key, struct json_value **out);
enum json_got json_get_obj(const struct json_value *obj, const char *key, struct json_value **out);

/* The same for a value at hand, such as an item of an array. Never JSON_ABSENT. A string is
 * terminated by a zero that n does not count, and may hold zeros inside. */
enum json_got json_as_str(const struct json_value *v, const char **s, size_t *n);
enum json_got json_as_i64(const struct json_value *v, int64_t *out);
enum json_got json_as_u64(const struct json_value *v, uint64_t *out);
enum json_got json_as_f64(const struct json_value *v, double *out);
enum json_got json_as_bool(const struct json_value *v, bool *out);
enum json_got json_as_arr(const struct json_value *v, struct json_value **out);
enum json_got json_as_obj(const struct json_value *v, struct json_value **out);

/* Writes v as compact JSON for an error text ("got 1.5"): doubles as the client wrote them, raw
 * UTF-8, `/` bare. Cut between characters to fit dst[dst_bytes], terminated. Returns the length
 * written. v NULL: null. */
size_t json_literal(char *dst, size_t dst_bytes, const struct json_value *v);

#endif
