/* buf: growable bytes and the JSON pieces that answers are put together from. */
#include "common/base/buf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_CAP_MIN = 64, BUF_KEEP_BYTES = 16384 };

void buf_free(struct buf *b) {
    free(b->data);
    *b = BUF_INIT;
}

void buf_clear(struct buf *b) {
    b->len = 0;
    if (b->data != NULL) b->data[0] = '\0';
}

void buf_forgive(struct buf *b) {
    buf_clear(b);
    b->failed = false;
}

bool buf_reserve(struct buf *b, size_t n_more) {
    return buf_reserve_most(b, n_more, SIZE_MAX);
}

bool buf_reserve_most(struct buf *b, size_t n_more, size_t most) {
    if (b->failed) return false;
    if (n_more < b->cap - b->len) return true; /* cap 0: nothing is less than 0 */
    if (n_more > SIZE_MAX / 2 - b->len - 1) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + n_more + 1;
    size_t cap = b->cap < BUF_CAP_MIN ? BUF_CAP_MIN : b->cap;
    while (cap < need) cap *= 2;
    if (most < cap && most + 1 >= need) cap = most + 1;
    char *data = realloc(b->data, cap);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return true;
}

void buf_append(struct buf *b, const void *p, size_t n) {
    if (!buf_reserve(b, n)) return;
    if (n > 0) memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s) {
    buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c) {
    buf_append(b, &c, 1);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap) {
    va_list again;
    if (!buf_reserve(b, BUF_CAP_MIN)) return;
    va_copy(again, ap);
    size_t room = b->cap - b->len;
    int n = vsnprintf(b->data + b->len, room, fmt, ap);
    if (n < 0) {
        b->failed = true;
    } else if ((size_t)n < room) {
        b->len += (size_t)n;
    } else if (buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    if (b->failed) b->data[b->len] = '\0'; /* half a text may stand there */
    va_end(again);
}

void buf_printf(struct buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_consume(struct buf *b, size_t n) {
    if (n == 0) return;
    if (n >= b->len) {
        b->len = 0;
    } else {
        memmove(b->data, b->data + n, b->len - n);
        b->len -= n;
    }
    if (b->data != NULL) b->data[b->len] = '\0';
}

void buf_drop_taken(struct buf *b, size_t *at) {
    if (*at == b->len) {
        *at = 0;
        buf_clear(b);
        if (b->cap > BUF_KEEP_BYTES) buf_free(b);
    } else if (*at > b->len / 2) { /* at least as much is dropped as is moved */
        buf_consume(b, *at);
        *at = 0;
    }
}

char *buf_steal(struct buf *b) {
    char *data = NULL;
    if (!b->failed && buf_reserve(b, 0)) {
        data = b->data;
        b->data = NULL;
    }
    buf_free(b);
    return data;
}

static void put_escaped(struct buf *b, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    char u[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    switch (c) {
    case '"': buf_append(b, "\\\"", 2); break;
    case '\\': buf_append(b, "\\\\", 2); break;
    case '\b': buf_append(b, "\\b", 2); break;
    case '\f': buf_append(b, "\\f", 2); break;
    case '\n': buf_append(b, "\\n", 2); break;
    case '\r': buf_append(b, "\\r", 2); break;
    case '\t': buf_append(b, "\\t", 2); break;
    default: buf_append(b, u, sizeof(u)); break;
    }
}

void buf_json_str(struct buf *b, const char *s, size_t n) {
    size_t start = 0;
    buf_reserve(b, n < SIZE_MAX / 4 ? n + 2 : 2);
    buf_putc(b, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        buf_append(b, s + start, i - start);
        put_escaped(b, c);
        start = i + 1;
    }
    buf_append(b, s + start, n - start);
    buf_putc(b, '"');
}

/* Length of the well-formed UTF-8 sequence at s (Unicode 15, table 3-7), or 0. *bad is then the
 * length of the longest prefix that could have begun one, which becomes one U+FFFD, as the Unicode
 * standard advises. */
static size_t utf8_seq(const unsigned char *s, size_t n, size_t *bad) {
    unsigned char c = s[0];
    size_t len = c < 0x80                 ? 1
                 : c >= 0xC2 && c <= 0xDF ? 2
                 : c >= 0xE0 && c <= 0xEF ? 3
                 : c >= 0xF0 && c <= 0xF4 ? 4
                                          : 0;
    *bad = 1;
    for (size_t i = 1; i < len; i++) {
        unsigned char lo = 0x80, hi = 0xBF;
        if (i == 1 && c == 0xE0) lo = 0xA0;
        if (i == 1 && c == 0xED) hi = 0x9F;
        if (i == 1 && c == 0xF0) lo = 0x90;
        if (i == 1 && c == 0xF4) hi = 0x8F;
        if (i >= n || s[i] < lo || s[i] > hi) {
            *bad = i;
            return 0;
        }
    }
    return len;
}

size_t buf_utf8_span(const char *s, size_t n) {
    size_t i = 0, bad;
    while (i < n) {
        const size_t len = utf8_seq((const unsigned char *)s + i, n - i, &bad);
        if (len == 0) break;
        i += len;
    }
    return i;
}

#define REPLACEMENT "\xEF\xBF\xBD"

size_t buf_copy_text(char *dst, size_t dst_bytes, const char *s, size_t n) {
    size_t len = 0, bad = 0;
    for (size_t i = 0; i < n;) {
        const size_t take = utf8_seq((const unsigned char *)s + i, n - i, &bad);
        const size_t put = take > 0 ? take : sizeof(REPLACEMENT) - 1;
        if (put >= dst_bytes - len) break;
        memcpy(dst + len, take > 0 ? s + i : REPLACEMENT, put);
        len += put;
        i += take > 0 ? take : bad;
    }
    dst[len] = '\0';
    return len;
}

void buf_json_text(struct buf *b, const char *s, size_t n, bool controls) {
    const unsigned char *p = (const unsigned char *)s;
    size_t start = 0, i = 0;
    buf_reserve(b, n < SIZE_MAX / 4 ? n + 2 : 2);
    buf_putc(b, '"');
    while (i < n) {
        size_t bad, len = utf8_seq(p + i, n - i, &bad);
        if (len > 1 || (len == 1 && p[i] >= 0x20 && (p[i] != 0x7F || controls) && p[i] != '"' &&
                        p[i] != '\\')) {
            i += len;
            continue;
        }
        buf_append(b, s + start, i - start);
        if (len == 0) {
            buf_append(b, REPLACEMENT, sizeof(REPLACEMENT) - 1);
            i += bad;
        } else {
            unsigned char c = p[i++];
            if (c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || controls)
                put_escaped(b, c);
        }
        start = i;
    }
    buf_append(b, s + start, n - start);
    buf_putc(b, '"');
}

void buf_json_double(struct buf *b, double v) {
    char t[40];
    if (!isfinite(v)) {
        buf_append(b, "null", 4);
        return;
    }
    /* 17 digits always read back the same; most values need fewer. */
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(t, sizeof(t), "%.*g", digits, v);
        if (strtod(t, NULL) == v) break;
    }
    buf_puts(b, t);
    if (strpbrk(t, ".e") == NULL) buf_append(b, ".0", 2);
}
