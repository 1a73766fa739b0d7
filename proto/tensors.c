/* tensors: two numbers. */
#include "proto/tensors.h"
#include <string.h>

#include "proto/json_skim.h"

bool tensors_json_bytes(const char *value, size_t body_len, size_t *n) {
    *n = 0;
    if (*value == '\0' || strlen(value) > TENSORS_DIGITS_MAX) return false;
    for (; *value != '\0'; value++) {
        if (*value < '0' || *value > '9') return false;
        *n = *n * 10 + (size_t)(*value - '0');
        if (*n > body_len) return false;
    }
    return true;
}

bool tensors_has_empty(const char *body, size_t n) {
    static const char empty[] = "\"parameters\":{\"binary_data_size\":0}";
    return n > 0 && memmem(body, n, empty, sizeof(empty) - 1) != NULL;
}

size_t tensors_json_end(const char *body, size_t n) {
    if (n == 0 || body[0] != '{') return n;
    const size_t end = json_skim()->container(body, n, 0);
    return end > 0 ? end : n;
}
