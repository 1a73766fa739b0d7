/* base64 with padding (RFC 4648, 4). Pure. */
#ifndef BATON_BASE_BASE64_H
#define BATON_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"

/* Appends p[0..n) in base64, without quotes. */
void base64_put(struct buf *out, const void *p, size_t n);
/* Appends what s[0..n) stands for. False: it is no base64, or there is no memory (out->failed);
 * nothing was appended. */
bool base64_take(struct buf *out, const char *s, size_t n);

#endif
