/* tok_utf8: see the header. Categories come from utf8proc; White_Space and the part of Alphabetic
 * that categories do not give are short enough to be written out. */
#include "common/text/tok_utf8.h"

#include <string.h>
#include <utf8proc.h>

size_t tok_ascii_span(const char *s, size_t n_max) {
    size_t i = 0;
    for (; i + 8 <= n_max; i += 8) {
        uint64_t w;
        memcpy(&w, s + i, 8);
        if (w & 0x8080808080808080u) break;
    }
    while (i < n_max && (unsigned char)s[i] < 0x80) i++;
    return i;
}

/* The range of the byte that follows lead (Unicode, table 3-7); further ones are 80..BF. Returns
 * how many bytes follow lead, or 0 for a byte that starts no longer character. */
static size_t follow(unsigned char lead, unsigned char *lo, unsigned char *hi) {
    *lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) return 1;
    if (lead >= 0xE0 && lead <= 0xEF) return 2;
    if (lead >= 0xF0 && lead <= 0xF4) return 3;
    return 0;
}

bool tok_utf8_valid(const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < n) {
        unsigned char lo, hi;
        size_t more;
        i += tok_ascii_span(s + i, n - i);
        if (i == n) break;
        more = follow(p[i], &lo, &hi);
        if (more == 0 || n - i <= more) return false;
        if (p[i + 1] < lo || p[i + 1] > hi) return false;
        for (size_t k = 2; k <= more; k++) {
            if ((p[i + k] & 0xC0) != 0x80) return false;
        }
        i += more + 1;
    }
    return true;
}

const char *tok_find_bytes(const char *s, size_t n, const char *what, size_t len) {
    while (n >= len) {
        const char *hit = memchr(s, what[0], n - len + 1);
        if (hit == NULL || memcmp(hit, what, len) == 0) return hit;
        n -= (size_t)(hit + 1 - s);
        s = hit + 1;
    }
    return NULL;
}

size_t tok_utf8_last(const char *s, size_t n) {
    size_t i = n - 1;
    while (i > 0 && ((unsigned char)s[i] & 0xC0) == 0x80) i--;
    return i;
}

size_t tok_utf8_put(char dst[4], uint32_t c) {
    unsigned char *p = (unsigned char *)dst;
    if (c < 0x80) {
        p[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (unsigned char)(0xC0 | c >> 6);
        p[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (unsigned char)(0xE0 | c >> 12);
        p[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
        p[2] = (unsigned char)(0x80 | (c & 0x3F));
        return 3;
    }
    p[0] = (unsigned char)(0xF0 | c >> 18);
    p[1] = (unsigned char)(0x80 | (c >> 12 & 0x3F));
    p[2] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    p[3] = (unsigned char)(0x80 | (c & 0x3F));
    return 4;
}

bool tok_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool tok_is_numeric(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
    }
}

bool tok_is_punct(uint32_t c) {
    if (c < 0x80) {
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    }
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
    }
}

bool tok_is_word(uint32_t c) {
    if (c < 0x80) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               c == '_';
    }
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_SO: /* letters in circles and squares: Other_Alphabetic */
        return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
               (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    default: return c == 0x200C || c == 0x200D;
    }
}

uint32_t tok_byte_to_char(unsigned char b) {
    if (b <= 32) return 256u + b;
    if (b >= 127 && b <= 160) return 289u + (b - 127u);
    return b == 173 ? 323 : b;
}

int tok_char_to_byte(uint32_t c) {
    if (c <= 32 || (c >= 127 && c <= 160) || c == 173 || c > 323) return -1;
    if (c < 256) return (int)c;
    if (c < 289) return (int)c - 256;
    return c < 323 ? (int)c - 289 + 127 : 173;
}

static void put_replacement(struct buf *out) {
    buf_append(out, "\xEF\xBF\xBD", 3);
}

void tok_lossy_feed(struct tok_lossy *l, const char *p, size_t n, struct buf *out) {
    size_t i = 0;
    while (i < n) {
        unsigned char c = (unsigned char)p[i], lo, hi;
        if (l->n_pend == 0) {
            size_t ascii = tok_ascii_span(p + i, n - i);
            if (ascii > 0) {
                buf_append(out, p + i, ascii);
                i += ascii;
                continue;
            }
            l->n_need = follow(c, &lo, &hi);
            if (l->n_need == 0) {
                put_replacement(out);
            } else {
                l->pend[l->n_pend++] = c;
            }
            i++;
            continue;
        }
        (void)follow(l->pend[0], &lo, &hi);
        if (l->n_pend > 1) lo = 0x80, hi = 0xBF;
        if (c < lo || c > hi) { /* c is looked at again as a start */
            put_replacement(out);
            l->n_pend = 0;
            continue;
        }
        l->pend[l->n_pend++] = c;
        i++;
        if (l->n_pend == l->n_need + 1) {
            buf_append(out, l->pend, l->n_pend);
            l->n_pend = 0;
        }
    }
}

void tok_lossy_flush(struct tok_lossy *l, struct buf *out) {
    if (l->n_pend > 0) put_replacement(out);
    l->n_pend = 0;
}
