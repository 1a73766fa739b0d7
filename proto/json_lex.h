/* json_lex: the tokens of RFC 8259 over bytes, at the rate of memory: what json_check, json_pull
 * and the tree of json.c share. Nothing is built, nothing is allocated.
 *
 * Thread: pure. Errors: false, with what and what_at set; the cursor may stand anywhere then. */
#ifndef BATON_PROTO_JSON_LEX_H
#define BATON_PROTO_JSON_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_NUMBER_BYTES_MAX = 1024 }; /* a longer literal is no number anybody meant */

struct json_lex {
    const unsigned char *p;
    size_t n, at;
    const char *what; /* a constant that says what is wrong at byte what_at */
    size_t what_at;
};

/* A string between its quotes, as it stands in the text. */
struct json_span {
    size_t at, len;
    size_t n_bytes; /* of UTF-8 once its escapes are taken out; <= len */
    bool zero;      /* it holds a zero character (as an escape) */
};

enum json_number { JSON_NUMBER_INT, JSON_NUMBER_WIDE, JSON_NUMBER_REAL };

/* The cursor is on the opening quote; leaves it behind the closing one. */
bool json_lex_string(struct json_lex *l, struct json_span *s);
/* The cursor is on '-' or a digit. INT: an integer that int64_t or uint64_t holds; WIDE: one that
 * only a double holds; REAL: with a fraction or an exponent. A number no double holds is refused.
 * Constant work a byte: no conversion is made. */
bool json_lex_number(struct json_lex *l, enum json_number *kind);
/* The cursor is on anything else; takes true, false or null (*first: its first letter). */
bool json_lex_word(struct json_lex *l, char *first);

/* Writes the UTF-8 of a string that json_lex_string took: dst[span.n_bytes], no terminator. dst may
 * be src: what is written never overtakes what is read. */
void json_unescape(char *dst, const unsigned char *src, size_t len);
/* The same one character at a time: its code point, *n its bytes at p; for checked text only. */
uint32_t json_next_char(const unsigned char *p, size_t *n);
/* Bytes of the character of UTF-8 at p (n >= 1); 0: there is none. */
size_t json_take_utf8(const char *p, size_t n);
/* The UTF-8 of cp: dst[4], the length. */
size_t json_put_utf8(char *dst, uint32_t cp);

static inline bool json_lex_bad(struct json_lex *l, size_t at, const char *what) {
    l->what = what;
    l->what_at = at;
    return false;
}

static inline bool json_is_space(unsigned char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline void json_lex_space(struct json_lex *l) {
    while (l->at < l->n && json_is_space(l->p[l->at])) l->at++;
}

#endif
