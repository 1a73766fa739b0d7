/* tok_utf8: UTF-8 and the few character classes the tokenizer needs beyond its regular expressions.
 * Except where it is said otherwise, text is valid UTF-8. */
#ifndef BATON_TEXT_TOK_UTF8_H
#define BATON_TEXT_TOK_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"

/* Strict: no overlong forms, no surrogates, at most U+10FFFF. */
bool tok_utf8_valid(const char *s, size_t n);

/* Length of the first n_max bytes that are ASCII only. */
size_t tok_ascii_span(const char *s, size_t n_max);

/* Reads the character at s[*i] of valid text and moves *i behind it. */
static inline uint32_t tok_utf8_next(const char *s, size_t *i) {
    const unsigned char *p = (const unsigned char *)s + *i;
    if (p[0] < 0x80) {
        *i += 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *i += 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    }
    if (p[0] < 0xF0) {
        *i += 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    }
    *i += 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 |
           (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
}

/* Bytes of the character that starts with this byte (valid text). */
static inline size_t tok_utf8_len(char lead) {
    unsigned char c = (unsigned char)lead;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/* The first place in s[0..n) where what[0..len) stands, len > 0; NULL: nowhere. Never looks further
 * than it must, so a caller may go on behind each hit without paying for the rest every time (the
 * sanitizers' memmem touches all of s). */
const char *tok_find_bytes(const char *s, size_t n, const char *what, size_t len);

/* Start of the last character of s[0..n), n > 0. */
size_t tok_utf8_last(const char *s, size_t n);

size_t tok_utf8_put(char dst[4], uint32_t c); /* returns the bytes written */

bool tok_is_space(uint32_t c);   /* Unicode White_Space */
bool tok_is_numeric(uint32_t c); /* categories Nd, Nl, No */
bool tok_is_punct(uint32_t c);   /* categories P*, and ASCII's punctuation ($ + < and so on) */
bool tok_is_word(uint32_t c);    /* Alphabetic, M, Nd, Pc, Join_Control: what \w is in UTS 18 */

/* GPT-2's bijection between bytes and printable characters ("byte-level" vocabularies are written
 * in it): a byte that is printable Latin-1 is itself, the others are U+0100 onwards in order. */
uint32_t tok_byte_to_char(unsigned char b);
int tok_char_to_byte(uint32_t c); /* -1: not in the image */

/* Bytes to text as they come: whole characters are passed on, each maximal piece that can become no
 * character is one U+FFFD, an unfinished character waits. */
struct tok_lossy {
    unsigned char pend[4];
    size_t n_pend, n_need;
};
void tok_lossy_feed(struct tok_lossy *l, const char *p, size_t n, struct buf *out);
void tok_lossy_flush(struct tok_lossy *l, struct buf *out);

#endif
