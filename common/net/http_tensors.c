/* http_tensors: the header, then the reply. */
#include "common/net/http_tensors.h"

#include <stdio.h>
#include "proto/tensors.h"

void http_tensors_reply(struct http_x *x, const char *json, const char *body, size_t n) {
    char value[24];
    const size_t end = tensors_json_end(body, n);
    const bool binary = end < n || tensors_has_empty(body, n);
    if (binary) {
        snprintf(value, sizeof(value), "%zu", end);
        http_x_set_header(x, TENSORS_HEADER, value);
    }
    http_x_reply(x, 200, binary ? TENSORS_TYPE : json, body, n);
}
