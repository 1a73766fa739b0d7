/* base64: three bytes, four digits. */
#include "common/base/base64.h"

#include <stdint.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_put(struct buf *out, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    buf_reserve(out, (n + 2) / 3 * 4);
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t b = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                           (i + 2 < n ? p[i + 2] : 0u);
        buf_putc(out, digits[b >> 18]);
        buf_putc(out, digits[b >> 12 & 63]);
        buf_putc(out, i + 1 < n ? digits[b >> 6 & 63] : '=');
        buf_putc(out, i + 2 < n ? digits[b & 63] : '=');
    }
}

static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_take(struct buf *out, const char *s, size_t n) {
    size_t n_pad = 0;
    if (n % 4 != 0) return false;
    while (n_pad < 2 && n_pad < n && s[n - 1 - n_pad] == '=') n_pad++;
    if (!buf_reserve(out, n / 4 * 3)) return false;
    char *to = out->data + out->len;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t b = 0;
        const size_t n_digits = i + 4 == n ? 4 - n_pad : 4;
        for (size_t k = 0; k < 4; k++) {
            const int v = k < n_digits ? value_of(s[i + k]) : 0;
            if (v < 0) {
                out->data[out->len] = '\0';
                return false;
            }
            b = b << 6 | (uint32_t)v;
        }
        for (size_t k = 0; k + 1 < n_digits; k++) *to++ = (char)(b >> (16 - 8 * k));
    }
    out->len = (size_t)(to - out->data);
    *to = '\0';
    return true;
}
