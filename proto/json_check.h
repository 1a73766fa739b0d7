/* json_check: the pass over the bytes that json_read makes before it parses. Private to proto/json.
 */
#ifndef BATON_PROTO_JSON_CHECK_H
#define BATON_PROTO_JSON_CHECK_H

#include <stddef.h>
#include "proto/err.h"
#include "proto/json.h"

/* Where the integer literals end that no 64-bit type holds; ascending. */
struct json_wide {
    size_t *end; /* caller frees, on errors too */
    size_t n, cap;
};

/* Checks that p[at..n) is one JSON value as json.h says. Linear in n, memory bounded by the number
 * of wide integers (and of keys when lim->unique_keys). */
enum err json_check(const char *p, size_t n, size_t at, const struct json_limits *lim,
                    struct json_wide *wide, struct errbuf *eb);

#endif
