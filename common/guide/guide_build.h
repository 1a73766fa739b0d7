/* guide_build: one compilation: the network being built and what its parts share. Private to
 * common/guide. */
#ifndef BATON_GUIDE_BUILD_H
#define BATON_GUIDE_BUILD_H

#include "common/guide/guide_expr.h"
#include "common/guide/guide_net.h"
#include "common/guide/guide_vocab.h"

/* Rules that many places call; made when first needed. */
enum json_rule {
    RULE_GAP,    /* a line feed and some indentation; never empty */
    RULE_ESCAPE, /* an escape of a JSON string */
    RULE_STRING,
    RULE_INTEGER,
    RULE_NUMBER,
    RULE_VALUE,
    RULE_OBJECT,
    RULE_ARRAY,
    RULE_FREE, /* any text and special tokens */
    RULE_COUNT
};

enum { PATH_BYTES_MAX = 256, INDENT_MAX = 24, INT_DIGITS_MAX = 15 };

struct build {
    struct net net;
    const struct guide_vocab *v;
    struct errbuf *eb;
    int32_t shared[RULE_COUNT]; /* -1: not made */
    struct build_ref {
        struct json_value *target;
        int32_t rule;
    } * refs; /* of the schema at hand */
    size_t n_refs, cap_refs;
    struct json_value **owned; /* merged schemas, freed with the build */
    size_t n_owned, cap_owned;
    struct json_value *root; /* schema at hand */
    char path[PATH_BYTES_MAX];
    size_t path_len;
    int depth;
};

/* ---- guide_json.c: the pieces of JSON. Errors of an nfa stick to it. */
enum err json_rule(struct build *b, enum json_rule which, int32_t *rule);
void nfa_call(struct nfa *a, int32_t from, int32_t rule, int32_t to);
/* A call of a shared rule between two states. */
enum err json_call(struct build *b, struct nfa *a, int32_t from, enum json_rule which, int32_t to);
/* Nothing, or a line feed with indentation. */
enum err json_gap(struct build *b, struct nfa *a, int32_t from, int32_t to);
enum err json_comma(struct build *b, struct nfa *a, int32_t from, int32_t to);
void json_colon(struct nfa *a, int32_t from, int32_t to);
/* Characters of a string without escapes: never `"`, `\`, controls. */
void json_plain_chars(struct nfa *a, int32_t from, int32_t to);
/* One character of a string, written either way. */
enum err json_char(struct build *b, struct nfa *a, int32_t from, int32_t to);

/* ---- guide_number.c */
struct decimal {
    bool given, negative, exclusive;
    int n_int, n_frac; /* digits */
    uint8_t digit[64]; /* n_int then n_frac; no leading zeros but one "0", no trailing ones */
};
/* Reads a JSON number. False: more digits than that. */
bool decimal_read(struct decimal *d, const char *text);
/* Numbers from lo to hi, no exponent. */
void number_range_emit(struct nfa *a, int32_t from, int32_t to, const struct decimal *lo,
                       const struct decimal *hi, bool integer);

/* ---- guide_schema.c */
enum err schema_guide(struct build *b, struct nfa *a, int32_t from, int32_t to,
                      struct json_value *schema);
enum err schema_emit(struct build *b, struct nfa *a, int32_t from, int32_t to,
                     struct json_value *schema); /* at b->path */
bool schema_has(struct json_value *schema, const char *key);
/* The place in the schema, for messages: push gives what pop takes. */
size_t build_path_push(struct build *b, const char *part);
void build_path_pop(struct build *b, size_t was);
enum err build_no_memory(struct build *b);
/* guide_object.c: between the states of a rule of their own. */
enum err schema_object(struct build *b, struct nfa *a, int32_t start, int32_t end,
                       struct json_value *schema);
enum err schema_array(struct build *b, struct nfa *a, int32_t start, int32_t end,
                      struct json_value *schema);
/* guide_string.c: the `string` of a schema. */
enum err schema_string(struct build *b, struct nfa *a, int32_t from, int32_t to,
                       struct json_value *schema);
/* Is the text one of those the schema's string keywords allow? */
enum err schema_string_allows(struct build *b, struct json_value *schema, const char *s, size_t n,
                              bool *yes);
/* guide_merge.c: x and y both hold; the result belongs to the build. */
enum err schema_merge(struct build *b, struct json_value *x, struct json_value *y,
                      struct json_value **out);
bool build_own(struct build *b, struct json_value *v); /* takes v; false: no memory, v is put */
enum err schema_fail(struct build *b, const char *fmt, const char *what); /* {path} is appended */
enum err schema_count(struct build *b, struct json_value *schema, const char *key, int *out);

/* ---- guide_ebnf.c */
enum err ebnf_guide(struct build *b, struct nfa *a, int32_t from, int32_t to, const char *text,
                    size_t n);

/* ---- guide_text.c: the whole guide text; afterwards the net is complete. */
enum err guide_build(struct build *b, const char *text, size_t n);

#endif
