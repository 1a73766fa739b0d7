/* near_path: which served paths a mistyped one may have meant. Pure.
 *
 * Bounded: paths over NEAR_PATH_BYTES_MAX are not compared, and what is compared costs the product
 * of both lengths for each row. */
#ifndef BATON_NET_NEAR_PATH_H
#define BATON_NET_NEAR_PATH_H

#include <stddef.h>
#include "common/net/router.h"

enum { NEAR_PATH_BYTES_MAX = 96, NEAR_PATHS_MAX = 3, NEAR_PATHS_TEXT_BYTES = 512 };

/* Writes "POST /v1/chat/completions, GET /v1/models" of the paths that these planes serve, the
 * nearest first, at most NEAR_PATHS_MAX; "" when none is near. `{m}` and `{*}` of a
 * pattern stand for whatever the path has there, and are written "...". Returns how many. */
size_t near_paths(char dst[NEAR_PATHS_TEXT_BYTES], const struct route *const *tables,
                  unsigned planes, const char *path);

#endif
