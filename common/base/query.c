/* query: one pass over the bytes, which whoever parsed the request has bounded. */
#include "common/base/query.h"

#include <string.h>

static int hex_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void take_value(const char *p, const char *end, char *dst, size_t dst_bytes) {
    size_t n = 0;
    for (; p < end && n + 1 < dst_bytes; p++) {
        const int hi = *p == '%' && end - p > 2 ? hex_of(p[1]) : -1;
        const int lo = hi >= 0 ? hex_of(p[2]) : -1;
        const bool escape = lo >= 0 && (hi | lo) != 0;
        dst[n++] = escape ? (char)(hi << 4 | lo) : *p;
        if (escape) p += 2;
    }
    dst[n] = '\0';
}

bool query_next(const char **at, const char *name, char *dst, size_t dst_bytes) {
    const size_t len = strlen(name);
    const char *p = *at;
    while (*p != '\0') {
        const char *start = p, *end = p + strcspn(p, "&");
        p = end + (*end == '&');
        if ((size_t)(end - start) <= len || strncmp(start, name, len) != 0 || start[len] != '=')
            continue;
        take_value(start + len + 1, end, dst, dst_bytes);
        *at = p;
        return true;
    }
    *at = p;
    return false;
}
