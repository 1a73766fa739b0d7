/* query: the values of a URL's query, "name=value" pairs between ampersands. */
#ifndef BATON_BASE_QUERY_H
#define BATON_BASE_QUERY_H

#include <stdbool.h>
#include <stddef.h>

/* The next value of that name from *at on, its escapes undone; *at is then behind it. An escaped
 * zero stays as it is written. A value that does not fit is cut, so that dst tells a long one from
 * the longest that is allowed when it has room for one byte more. False: there is none left. */
bool query_next(const char **at, const char *name, char *dst, size_t dst_bytes);

#endif
