/* json_check: the pass over the bytes that json_read makes before it parses. Private to proto/json.
 */
#ifndef BATON_PROTO_JSON_CHECK_H
#define BATON_PROTO_JSON_CHECK_H

#include <stddef.h>
#include "proto/err.h"
#include "proto/json.h"

/* What the tree of a checked text takes: nodes (a value, a member's name), and words of the tables
 * of objects with many members. */
struct json_size {
    size_t n_nodes, n_index;
};

/* Objects with more members than this have a table of them. */
enum { JSON_INDEX_FROM = 16 };

/* 32-bit words of the table of an object of n members: its slots, a quarter more than members, and
 * their number. */
static inline size_t json_index_words(size_t n) {
    return n <= JSON_INDEX_FROM ? 0 : 1 + n + n / 4;
}

/* Checks that p[at..n) is one JSON value as json.h says. Linear in n; memory for the keys when
 * lim->unique_keys, else none. */
enum err json_check(const char *p, size_t n, size_t at, const struct json_limits *lim,
                    struct json_size *size, struct errbuf *eb);

#endif
