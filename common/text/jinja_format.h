/* jinja_format: Python's "..." % args and "...".format(). */
#ifndef BATON_TEXT_JINJA_FORMAT_H
#define BATON_TEXT_JINJA_FORMAT_H

#include "common/text/jinja_call.h"

enum { FORMAT_WIDTH_MAX = 1000 }; /* of one field, in characters; also the precision of a number */

/* arg: a tuple of arguments, a dict for %(name)s, or the only argument. */
bool jinja_format_percent(struct jinja_run *r, const struct jv *fmt, const struct jv *arg,
                          struct jv *out);
bool jinja_format_braces(struct jinja_run *r, const struct jv *fmt, const struct jinja_args *args,
                         struct jv *out);

#endif
