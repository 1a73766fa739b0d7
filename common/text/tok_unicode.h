/* tok_unicode: what Unicode 15.0 added to the sets of characters that a pattern can name, for the
 * PCRE2 of Debian 12, which knows Unicode 14. Where PCRE2 knows more, the additions change nothing;
 * nothing is ever taken from a set but what the categories C and Cn hold too much.
 *
 * Source: the Unicode Character Database 15.0 (DerivedGeneralCategory, Scripts,
 * DerivedCoreProperties, emoji-data). Named here: general categories, scripts, Alphabetic,
 * Lowercase, Ideographic, Unified_Ideograph, Emoji, Emoji_Presentation; Uppercase and White_Space
 * got no member. Further properties (ID_Start and the like) are those of PCRE2.
 *
 * Thread: any; the tables are constant. */
#ifndef BATON_TEXT_TOK_UNICODE_H
#define BATON_TEXT_TOK_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"

/* Appends "\x{FROM}-\x{TO}" for each range of the characters that one of the properties got;
 * props[0..n): names as in \p{name}, separated by ';'. Case, blanks, '_' and '-' do not count. For
 * C and Cn: the characters that left the property. False: there is none. */
bool tok_unicode_added(struct buf *out, const char *props, size_t n);

/* C and Cn: the properties that additions make smaller. */
bool tok_unicode_shrinks(const char *prop, size_t n);

#endif
