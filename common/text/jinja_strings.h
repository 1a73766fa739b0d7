/* jinja_strings: what Python's str can do; shared by filters, tests and methods. Positions and
 * counts are in bytes unless they are called characters. */
#ifndef BATON_TEXT_JINJA_STRINGS_H
#define BATON_TEXT_JINJA_STRINGS_H

#include "common/text/jinja_run.h"
#include "common/text/jinja_text.h"

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* White space, or any of the characters given. The result is a part of s. */
struct jv jinja_str_strip(const struct jv *s, int sides);
bool jinja_str_strip_chars(struct jinja_run *r, const struct jv *s, const struct jv *chars,
                           int sides, struct jv *out);

enum jinja_recase { RECASE_UPPER, RECASE_LOWER, RECASE_CAPITALIZE, RECASE_TITLE, RECASE_SWAP };
bool jinja_str_recase(struct jinja_run *r, const struct jv *s, enum jinja_recase how,
                      struct jv *out);

/* Last place of what in s, SIZE_MAX when there is none. In linear time: the texts may be a
 * client's. */
bool jinja_str_rfind(struct jinja_run *r, const struct jv *s, const struct jv *what, size_t *at);

/* n_max < 0: all. */
bool jinja_str_replace(struct jinja_run *r, const struct jv *s, const struct jv *old,
                       const struct jv *new, int64_t n_max, struct jv *out);
bool jinja_str_lines(struct jinja_run *r, const struct jv *s, bool keep_ends, struct jv_list **out);
bool jinja_str_join(
    struct jinja_run *r, const struct jv *sep, const struct jv_list *items, bool strict,
    struct jv *out); /* strict: items that are no strings fail; else they are printed */

/* One side padded with c up to `width` characters: '<' to the left, '>' to the right, '^' center.
 */
bool jinja_str_pad(struct jinja_run *r, const struct jv *s, int64_t width, char align, int32_t c,
                   struct jv *out);

/* Is every character one of these (and there is at least one)? */
bool jinja_str_all(const struct jv *s, bool (*is)(int32_t c));
/* At least one cased character, all of them lower (upper) case. */
bool jinja_str_is_case(const struct jv *s, bool lower);

/* int(text, base) and float(text); false: Python raises ValueError. *too_big: it does not fit 64
 * bits. */
bool jinja_str_to_int(const struct jv *s, int base, int64_t *out, bool *too_big);
bool jinja_str_to_float(const struct jv *s, double *out);

#endif
