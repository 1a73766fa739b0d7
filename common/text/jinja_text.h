/* jinja_text: characters of UTF-8 text as Python's str sees them: length and position in code
 * points, white space, letters and digits, upper and lower case.
 *
 * Text comes from JSON and from templates that were checked to be UTF-8; a stray byte all the same
 * counts as one character and is copied unchanged, so no function here can leave its bounds.
 * Deviation: of the characters whose upper case is more than one character only those of
 * jinja_text.c's table are known; the rest map one to one. */
#ifndef BATON_TEXT_JINJA_TEXT_H
#define BATON_TEXT_JINJA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads one character of s[*at..n), at < n, and moves *at behind it. A stray byte b gives -1 - b.
 */
int32_t jinja_char_next(const char *s, size_t n, size_t *at);
/* The same backwards: the character that ends at *at > 0. */
int32_t jinja_char_prev(const char *s, size_t *at);
/* Writes c (or the stray byte it stands for) and returns its length, 1 to 4. */
size_t jinja_char_put(char dst[4], int32_t c);

size_t jinja_text_len(const char *s, size_t n);                     /* characters */
size_t jinja_text_offset(const char *s, size_t n, size_t char_idx); /* bytes; n when beyond */
bool jinja_text_valid(const char *s, size_t n);                     /* is it UTF-8? */
/* First place of b in a[from..), in bytes; SIZE_MAX when there is none. An empty b is found at
 * once. */
size_t jinja_text_find(const char *a, size_t n_a, size_t from, const char *b, size_t n_b);

bool jinja_is_space(int32_t c);
bool jinja_is_alpha(int32_t c);
bool jinja_is_decimal(int32_t c);
bool jinja_is_digit(int32_t c); /* decimals, and superscripts and the like */
bool jinja_is_alnum(int32_t c);
bool jinja_is_word(int32_t c); /* \w of Python's re */
bool jinja_is_lower(int32_t c);
bool jinja_is_upper(int32_t c); /* upper or title case */
bool jinja_is_printable(int32_t c);
bool jinja_is_line_end(int32_t c); /* what splitlines() cuts at */

/* Case of one character: up to 3 characters into out, returns how many. */
enum jinja_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
int jinja_char_case(int32_t c, enum jinja_case to, int32_t out[3]);

#endif
