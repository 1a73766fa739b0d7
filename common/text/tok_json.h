/* tok_json: reading the members of tokenizer.json with errors that say where: every error names the
 * file and the path of the member ("pre_tokenizer[1].pattern"). Private to the tokenizer. */
#ifndef BATON_TEXT_TOK_JSON_H
#define BATON_TEXT_TOK_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/json.h"

enum {
    TOK_FILE_BYTES_MAX = 128 * 1024 * 1024,
    TOK_STEPS_MAX = 32,    /* of one normalizer, pre-tokenizer or decoder, sequences flattened */
    TOK_IDS_MAX = 1 << 20, /* ids are 0..TOK_IDS_MAX-1 */
    TOK_TOKEN_BYTES_MAX = 4096,   /* written form of one token */
    TOK_STRING_BYTES_MAX = 1024,  /* a replacement, prefix or literal pattern */
    TOK_PATTERN_BYTES_MAX = 8192, /* a regular expression */
};

/* Where the reader is. path is "" at the root. */
struct tok_at {
    const char *name; /* of the file */
    struct errbuf *eb;
    char path[160];
};

/* Appends to the path (cut when too long) and returns the old length for tok_leave(). */
size_t tok_enter(struct tok_at *at, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tok_leave(struct tok_at *at, size_t old);

/* "name: path: text" into at->eb; returns code. */
enum err tok_fail(struct tok_at *at, enum err code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for the member key of the place at hand. */
enum err tok_fail_at(struct tok_at *at, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Members that must be there; ERR_BAD_FILE otherwise. */
enum err tok_need_str(struct tok_at *at, const struct json_value *o, const char *key,
                      size_t bytes_max, const char **s, size_t *n);
enum err tok_need_arr(struct tok_at *at, const struct json_value *o, const char *key,
                      struct json_value **out);
enum err tok_need_bool(struct tok_at *at, const struct json_value *o, const char *key, bool *out);
/* Absent or null leaves *out as it is. */
enum err tok_opt_bool(struct tok_at *at, const struct json_value *o, const char *key, bool *out);
enum err tok_need_u32(struct tok_at *at, const struct json_value *o, const char *key, uint32_t max,
                      uint32_t *out);

/* Calls one() for the step o, or for each step in it where its type is Sequence (members in the
 * array `list`), however nested. o NULL (JSON null): nothing to do. */
typedef enum err tok_step_fn(struct tok_at *at, const struct json_value *o, const char *type,
                             void *arg);
enum err tok_each_step(struct tok_at *at, const struct json_value *o, const char *list,
                       tok_step_fn *one, void *arg);

#endif
