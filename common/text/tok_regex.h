/* tok_regex: the patterns of tokenizer.json: literal strings, and regular expressions in the syntax
 * of the HuggingFace library (Oniguruma's, Ruby flavour) compiled by PCRE2.
 *
 * Thread: a pattern is read-only once created; each thread brings its own struct tok_rx. */
#ifndef BATON_TEXT_TOK_REGEX_H
#define BATON_TEXT_TOK_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"
#include "common/text/tok_json.h"
#include "proto/err.h"

struct tok_pattern {
    char *lit; /* not NULL: the literal */
    size_t lit_bytes;
    void *code; /* pcre2_code, when lit is NULL */
    bool jit;
};

/* {"String": "..."} or {"Regex": "..."} as member key of o. */
enum err tok_pattern_read(struct tok_at *at, const struct json_value *o, const char *key,
                          struct tok_pattern *out);
enum err tok_pattern_literal(struct tok_pattern *out, const char *s, size_t n);
enum err tok_pattern_regex(struct tok_at *at, const char *s, size_t n, struct tok_pattern *out);
void tok_pattern_fini(struct tok_pattern *p);

/* Rewrites what the two syntaxes understand differently: \s \w \d \b \h \v, POSIX classes, scripts,
 * (?m), \uHHHH, {n,m}+, {,n}; and sets that Unicode 15 made larger. What PCRE2 would misunderstand
 * and has no counterpart is refused. */
enum err tok_regex_translate(struct tok_at *at, const char *s, size_t n, struct buf *out);

/* What matching needs besides the pattern; zero it before the first use. */
struct tok_rx {
    void *match_data, *match_context;
};
void tok_rx_fini(struct tok_rx *rx);

/* The matches of p in s[0..n), left to right, none overlapping. An empty match right behind another
 * match is passed over. */
struct tok_find {
    const struct tok_pattern *p;
    struct tok_rx *rx;
    const char *s; /* valid UTF-8 */
    size_t n;
    size_t from, last_end; /* where to search next; end of the last match */
    bool has_last;
};

enum tok_found {
    TOK_FOUND_NONE,
    TOK_FOUND,
    TOK_FOUND_GAVE_UP, /* the pattern needs more steps on this text than the limit */
    TOK_FOUND_NO_MEMORY,
};
/* ERR_OK for the first two, ERR_INTERNAL, ERR_NO_MEMORY. */
enum err tok_found_err(enum tok_found f);
enum tok_found tok_find_next(struct tok_find *f, size_t *start, size_t *end);

#endif
