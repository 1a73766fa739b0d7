/* jinja_text: code points, and what Unicode says of them (utf8proc). */
#include "common/text/jinja_text.h"

#include <string.h>
#include <utf8proc.h>

int32_t jinja_char_next(const char *s, size_t n, size_t *at) {
    const unsigned char *p = (const unsigned char *)s + *at;
    size_t left = n - *at;
    if (p[0] < 0x80) {
        *at += 1;
        return p[0];
    }
    int len = p[0] >= 0xC2 && p[0] <= 0xDF   ? 2
              : (p[0] & 0xF0) == 0xE0        ? 3
              : p[0] >= 0xF0 && p[0] <= 0xF4 ? 4
                                             : 0;
    int32_t c = len == 0 ? 0 : p[0] & (0xFF >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= left || (p[i] & 0xC0) != 0x80) {
            len = 0;
            break;
        }
        c = c << 6 | (p[i] & 0x3F);
    }
    bool bad = len == 0 || (len == 3 && (c < 0x800 || (c >= 0xD800 && c <= 0xDFFF))) ||
               (len == 4 && (c < 0x10000 || c > 0x10FFFF));
    *at += bad ? 1 : (size_t)len;
    return bad ? -1 - (int32_t)p[0] : c;
}

int32_t jinja_char_prev(const char *s, size_t *at) {
    /* The longest sequence that ends exactly here, else the byte alone. */
    for (size_t back = *at < 4 ? *at : 4; back > 1; back--) {
        size_t pos = *at - back;
        int32_t c = jinja_char_next(s, *at, &pos);
        if (c >= 0 && pos == *at) {
            *at -= back;
            return c;
        }
    }
    *at -= 1;
    unsigned char b = (unsigned char)s[*at];
    return b < 0x80 ? b : -1 - (int32_t)b;
}

size_t jinja_char_put(char dst[4], int32_t c) {
    if (c < 0) {
        dst[0] = (char)(-1 - c);
        return 1;
    }
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (char)(0xC0 | c >> 6);
        dst[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (char)(0xE0 | c >> 12);
        dst[1] = (char)(0x80 | (c >> 6 & 0x3F));
        dst[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    dst[0] = (char)(0xF0 | c >> 18);
    dst[1] = (char)(0x80 | (c >> 12 & 0x3F));
    dst[2] = (char)(0x80 | (c >> 6 & 0x3F));
    dst[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

size_t jinja_text_len(const char *s, size_t n) {
    size_t len = 0;
    for (size_t at = 0; at < n; len++) jinja_char_next(s, n, &at);
    return len;
}

size_t jinja_text_offset(const char *s, size_t n, size_t char_idx) {
    size_t at = 0;
    for (size_t i = 0; i < char_idx && at < n; i++) jinja_char_next(s, n, &at);
    return at;
}

bool jinja_text_valid(const char *s, size_t n) {
    for (size_t at = 0; at < n;) {
        if (jinja_char_next(s, n, &at) < 0) return false;
    }
    return true;
}

size_t jinja_text_find(const char *a, size_t n_a, size_t from, const char *b, size_t n_b) {
    if (from > n_a) return SIZE_MAX;
    if (n_b == 0) return from;
    const char *p = memmem(a + from, n_a - from, b, n_b);
    return p == NULL ? SIZE_MAX : (size_t)(p - a);
}

bool jinja_is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

static utf8proc_category_t category(int32_t c) {
    return c < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(c);
}

bool jinja_is_alpha(int32_t c) {
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool jinja_is_decimal(int32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool jinja_is_digit(int32_t c) {
    return jinja_is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool jinja_is_alnum(int32_t c) {
    if (c < 0x80) return jinja_is_alpha(c) || jinja_is_decimal(c);
    utf8proc_category_t k = category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

bool jinja_is_word(int32_t c) {
    return c == '_' || jinja_is_alnum(c);
}

bool jinja_is_lower(int32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z';
    return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}

bool jinja_is_upper(int32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LT;
}

bool jinja_is_printable(int32_t c) {
    if (c < 0x80) return c >= 32 && c < 127;
    utf8proc_category_t k = category(c);
    return k != UTF8PROC_CATEGORY_CN && !(k >= UTF8PROC_CATEGORY_ZS && k <= UTF8PROC_CATEGORY_CO);
}

bool jinja_is_line_end(int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/* Unicode SpecialCasing.txt, the part people write: sharp s and the Latin ligatures. */
static const struct {
    int32_t from, upper[3], title[3];
} special_case[] = {
    {0xDF, {'S', 'S', 0}, {'S', 's', 0}},       {0xFB00, {'F', 'F', 0}, {'F', 'f', 0}},
    {0xFB01, {'F', 'I', 0}, {'F', 'i', 0}},     {0xFB02, {'F', 'L', 0}, {'F', 'l', 0}},
    {0xFB03, {'F', 'F', 'I'}, {'F', 'f', 'i'}}, {0xFB04, {'F', 'F', 'L'}, {'F', 'f', 'l'}},
    {0xFB05, {'S', 'T', 0}, {'S', 't', 0}},     {0xFB06, {'S', 'T', 0}, {'S', 't', 0}},
};

int jinja_char_case(int32_t c, enum jinja_case to, int32_t out[3]) {
    out[0] = c;
    if (c < 0x80) {
        if (to == CASE_LOWER && c >= 'A' && c <= 'Z') out[0] = c + 32;
        if (to != CASE_LOWER && c >= 'a' && c <= 'z') out[0] = c - 32;
        return 1;
    }
    if (to == CASE_LOWER && c == 0x130) { /* I with dot above: i and a combining dot */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    for (size_t i = 0; to != CASE_LOWER && i < sizeof(special_case) / sizeof(*special_case); i++) {
        if (special_case[i].from != c) continue;
        memcpy(out, to == CASE_UPPER ? special_case[i].upper : special_case[i].title,
               3 * sizeof(*out));
        return out[2] != 0 ? 3 : 2;
    }
    out[0] = to == CASE_UPPER   ? utf8proc_toupper(c)
             : to == CASE_LOWER ? utf8proc_tolower(c)
                                : utf8proc_totitle(c);
    return 1;
}
