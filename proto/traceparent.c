#include "proto/traceparent.h"

#include <stddef.h>
#include <string.h>

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* n bytes of text at p, which has at least so many digits or ends; false: not all are there. */
static bool read_hex(uint8_t *dst, unsigned n, const char *p) {
    for (unsigned i = 0; i < n; i++) {
        const int high = digit(p[2 * i]), low = high < 0 ? -1 : digit(p[2 * i + 1]);
        if (low < 0) return false;
        dst[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *p, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (p[i] != 0) return false;
    return true;
}

bool traceparent_read(struct traceparent *out, const char *text) {
    uint8_t version, flags;
    if (strnlen(text, 55) < 55 || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
        !read_hex(&version, 1, text) || version == 0xFF ||
        !read_hex(out->trace_id, TRACE_ID_BYTES, text + 3) ||
        !read_hex(out->span_id, SPAN_ID_BYTES, text + 36) || !read_hex(&flags, 1, text + 53))
        return false;
    if (version == 0 ? text[55] != 0 : text[55] != 0 && text[55] != '-') return false;
    out->sampled = (flags & 1) != 0;
    return !is_zero(out->trace_id, TRACE_ID_BYTES) && !is_zero(out->span_id, SPAN_ID_BYTES);
}

void traceparent_hex(char *dst, const uint8_t *p, unsigned n) {
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < n; i++) {
        dst[2 * i] = digits[p[i] >> 4];
        dst[2 * i + 1] = digits[p[i] & 15];
    }
    dst[(size_t)2 * n] = 0;
}

void traceparent_write(char dst[TRACEPARENT_BYTES], const struct traceparent *t) {
    memcpy(dst, "00-", 3);
    traceparent_hex(dst + 3, t->trace_id, TRACE_ID_BYTES);
    dst[35] = '-';
    traceparent_hex(dst + 36, t->span_id, SPAN_ID_BYTES);
    memcpy(dst + 52, t->sampled ? "-01" : "-00", 4);
}
