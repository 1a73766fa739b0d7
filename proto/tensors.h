/* tensors: bodies of POST /v2/models/{m}/infer whose JSON has tensors as bytes behind it, and the
 * header that says where they begin (kserve-runtimes 8.4). */
#ifndef BATON_PROTO_TENSORS_H
#define BATON_PROTO_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

#define TENSORS_HEADER "Inference-Header-Content-Length"
#define TENSORS_TYPE   "application/octet-stream" /* of a body with bytes behind its JSON */

enum { TENSORS_DIGITS_MAX = 20 }; /* of the header's value */

/* The header's value: the bytes of JSON at the start of a body of body_len. False: it is none,
 * longer than TENSORS_DIGITS_MAX, or more than there are. */
bool tensors_json_bytes(const char *value, size_t body_len, size_t *n);

/* Where the object ends that an answer begins with: n when there is nothing behind it. */
size_t tensors_json_end(const char *body, size_t n);
/* Whether the JSON of such an answer has a tensor whose bytes lie behind it and are none, as the
 * endpoint writes it. No text in it looks like that: its quotes have backslashes. */
bool tensors_has_empty(const char *body, size_t n);

#endif
