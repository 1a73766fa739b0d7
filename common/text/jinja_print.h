/* jinja_print: values as text: Python's str() and repr(), and JSON as Python's json.dumps writes
 * it. */
#ifndef BATON_TEXT_JINJA_PRINT_H
#define BATON_TEXT_JINJA_PRINT_H

#include "common/text/jinja_run.h"

enum { FLOAT_TEXT_BYTES = 40 };

/* repr() of a float: the shortest digits that read back the same; fixed notation for exponents -4
 * to 15. */
void jinja_float_text(char dst[FLOAT_TEXT_BYTES], double f);

/* Append to t; failures are sticky there. */
void jinja_print_str(struct jinja_sb *t, const struct jv *v);
void jinja_print_repr(struct jinja_sb *t, const struct jv *v);

/* str(v) as a value; a string stays itself. */
bool jinja_to_str(struct jinja_run *r, const struct jv *v, struct jv *out);

struct jinja_json_style {
    bool ascii; /* escape everything above U+007E */
    bool sort_keys;
    bool multiline;   /* indent is given */
    struct jv indent; /* string put before each level */
    struct jv item_sep, key_sep;
};
bool jinja_to_json(struct jinja_run *r, const struct jv *v, const struct jinja_json_style *style,
                   struct jv *out);

#endif
