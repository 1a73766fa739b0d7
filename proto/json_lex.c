/* json_lex: strings sixteen bytes at a time where they are plain, everything else byte by byte. */
#include "proto/json_lex.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---- strings */

/* Bytes of the characters of three bytes that follow each other at p: most of the world's scripts.
 */
static size_t three_run(const unsigned char *p, size_t n) {
    size_t i = 0;
    for (; n - i >= 4; i += 3) {
        uint32_t w;
        memcpy(&w, p + i, 4);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
        w = __builtin_bswap32(w);
#endif
        if ((w & 0xC0C0F0) != 0x8080E0) break;                  /* 1110xxxx 10xxxxxx 10xxxxxx */
        if ((w & 0x200F) == 0 || (w & 0x200F) == 0x200D) break; /* too long; a surrogate */
    }
    return i;
}

/* How many of the n bytes at p are plain: ASCII, no control character, no quote, no backslash. */
static size_t plain_run(const unsigned char *p, size_t n) {
    size_t i = 0;
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'),
                  first = _mm_set1_epi8(0x20);
    for (; n - i >= 16; i += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        /* as signed bytes, what is not ASCII is below the first plain one too */
        __m128i stop =
            _mm_or_si128(_mm_cmplt_epi8(v, first),
                         _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)));
        unsigned m = (unsigned)_mm_movemask_epi8(stop);
        if (m != 0) return i + (size_t)__builtin_ctz(m);
    }
#endif
    while (i < n && p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' && p[i] != '\\') i++;
    return i;
}

/* Bytes of the well-formed sequence at p (Unicode 15, table 3-7; n >= 1, p[0] >= 0x80), 0 when
 * there is none. */
static inline size_t utf8_take(const unsigned char *p, size_t n) {
    unsigned char b = p[0], c = n > 1 ? p[1] : 0;
    if (b < 0xC2 || b > 0xF4 || (c & 0xC0) != 0x80) return 0;
    if (b < 0xE0) return 2;
    if (n < 3 || (p[2] & 0xC0) != 0x80) return 0;
    if (b < 0xF0) return (b == 0xE0 && c < 0xA0) || (b == 0xED && c > 0x9F) ? 0 : 3;
    if (n < 4 || (p[3] & 0xC0) != 0x80) return 0;
    return (b == 0xF0 && c < 0x90) || (b == 0xF4 && c > 0x8F) ? 0 : 4;
}

/* One more than the digit's value, 0 for what is none. */
static const signed char hex_digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16};

/* -1: no four hexadecimal digits. */
static int32_t hex4(const unsigned char *p, size_t n) {
    if (n < 4) return -1;
    int a = hex_digits[p[0]] - 1, b = hex_digits[p[1]] - 1, c = hex_digits[p[2]] - 1,
        d = hex_digits[p[3]] - 1;
    return (a | b | c | d) < 0 ? -1 : a << 12 | b << 8 | c << 4 | d;
}

static size_t utf8_bytes(uint32_t cp) {
    return cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
}

/* What stands for the letter behind a backslash; -1: nothing. */
static int short_escape(unsigned char k) {
    switch (k) {
    case '"': return '"';
    case '\\': return '\\';
    case '/': return '/';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return -1;
    }
}

/* The cursor is on a backslash; leaves it behind the escape. */
static bool take_escape(struct json_lex *l, uint32_t *cp) {
    size_t start = l->at;
    if (l->n - start < 2) return json_lex_bad(l, l->n, "the text ends inside a string");
    unsigned char k = l->p[start + 1];
    if (k != 'u') {
        int c = short_escape(k);
        if (c < 0) return json_lex_bad(l, start, "unknown escape in a string");
        *cp = (uint32_t)c;
        l->at = start + 2;
        return true;
    }
    int32_t v = hex4(l->p + start + 2, l->n - start - 2);
    if (v < 0) return json_lex_bad(l, start, "\\u wants four hexadecimal digits");
    *cp = (uint32_t)v;
    l->at = start + 6;
    if (v < 0xD800 || v > 0xDFFF) return true;
    int32_t low = -1;
    if (l->n - l->at >= 6 && l->p[l->at] == '\\' && l->p[l->at + 1] == 'u')
        low = hex4(l->p + l->at + 2, 4);
    if (v > 0xDBFF || low < 0xDC00 || low > 0xDFFF)
        return json_lex_bad(l, start, "a surrogate escape stands alone");
    *cp = 0x10000 + ((uint32_t)(v - 0xD800) << 10 | (uint32_t)(low - 0xDC00));
    l->at += 6;
    return true;
}

bool json_lex_string(struct json_lex *l, struct json_span *s) {
    const unsigned char *p = l->p;
    size_t n = l->n, at = ++l->at, saved = 0;
    *s = (struct json_span){.at = at};
    for (;;) {
        if (at >= n) return json_lex_bad(l, n, "the text ends inside a string");
        unsigned char b = p[at];
        if (b == '"') break;
        if (b == '\\') {
            uint32_t cp = 0;
            int32_t v = n - at >= 6 && p[at + 1] == 'u' ? hex4(p + at + 2, 4) : 0xD800;
            if (v > 0 && (v & 0xF800) != 0xD800) { /* one character of most scripts */
                saved += 6 - utf8_bytes((uint32_t)v);
                at += 6;
                continue;
            }
            l->at = at;
            if (!take_escape(l, &cp)) return false;
            saved += l->at - at - utf8_bytes(cp);
            s->zero |= cp == 0;
            at = l->at;
        } else if (b < 0x20) {
            return json_lex_bad(l, at, "raw control character in a string");
        } else if (b < 0x80) {
            at += plain_run(p + at, n - at);
        } else {
            size_t len = three_run(p + at, n - at);
            if (len == 0) len = utf8_take(p + at, n - at);
            if (len == 0) return json_lex_bad(l, at, "not UTF-8");
            at += len;
        }
    }
    s->len = at - s->at;
    s->n_bytes = s->len - saved;
    l->at = at + 1;
    return true;
}

uint32_t json_next_char(const unsigned char *p, size_t *n) {
    unsigned char b = p[0];
    if (b == '\\') {
        if (p[1] != 'u') {
            *n = 2;
            return (uint32_t)short_escape(p[1]);
        }
        uint32_t v = (uint32_t)hex4(p + 2, 4);
        *n = 6;
        if ((v & 0xFC00) != 0xD800) return v;
        *n = 12;
        return 0x10000 + ((v & 0x3FF) << 10 | ((uint32_t)hex4(p + 8, 4) & 0x3FF));
    }
    *n = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    uint32_t cp = *n == 1 ? b : b & (0x7Fu >> *n);
    for (size_t i = 1; i < *n; i++) cp = cp << 6 | (p[i] & 0x3F);
    return cp;
}

size_t json_take_utf8(const char *p, size_t n) {
    return (unsigned char)p[0] < 0x80 ? 1 : utf8_take((const unsigned char *)p, n);
}

size_t json_put_utf8(char *dst, uint32_t cp) {
    size_t n = utf8_bytes(cp);
    for (size_t i = n - 1; i > 0; i--) {
        dst[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    static const unsigned char head[] = {0, 0, 0xC0, 0xE0, 0xF0};
    dst[0] = (char)(head[n] | cp);
    return n;
}

void json_unescape(char *dst, const unsigned char *src, size_t len) {
    while (len > 0) {
        const unsigned char *slash = memchr(src, '\\', len);
        size_t plain = slash != NULL ? (size_t)(slash - src) : len, n;
        memmove(dst, src, plain);
        dst += plain;
        src += plain;
        len -= plain;
        if (len == 0) break;
        uint32_t cp = json_next_char(src, &n);
        dst += json_put_utf8(dst, cp);
        src += n;
        len -= n;
    }
}

/* ---- numbers */

static size_t take_digits(struct json_lex *l) {
    size_t start = l->at;
    while (l->at < l->n && (unsigned)l->p[l->at] - '0' < 10) l->at++;
    return l->at - start;
}

static bool fits_64(const unsigned char *digits, size_t n, bool negative) {
    uint64_t v = 0, max = negative ? (uint64_t)INT64_MAX + 1 : UINT64_MAX;
    if (n < 19) return true;
    if (n > 20) return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t d = (uint64_t)(digits[i] - '0');
        if (v > (max - d) / 10) return false;
        v = v * 10 + d;
    }
    return true;
}

/* 2^1024 - 2^970: from here on a decimal is rounded to infinity. Its first digit counts 10^308. */
static const char infinite[] = "1797693134862315807937289714053034150799341327100378269361737789804"
                               "449682927647509466490179775872"
                               "0709633028641669288791094655554785194040263065748867150582068190890"
                               "200070838367627385484581771153"
                               "1764475730270069855571366959622842914819860834936475292719074168444"
                               "365510704342711559699508093042"
                               "880177904174497792";
enum { INFINITE_EXP = 308 };

/* Whether digits p[0..n) with at most one point among them (n_before: digits before it), times
 * 10^exp10, is finite. */
static bool is_finite(const unsigned char *p, size_t n, size_t n_before, int64_t exp10) {
    size_t i = 0, seen = 0;
    while (i < n && (p[i] == '0' || p[i] == '.')) {
        seen += p[i] != '.';
        i++;
    }
    if (i == n) return true; /* zero */
    int64_t e = (int64_t)n_before - 1 - (int64_t)seen + exp10;
    if (e != INFINITE_EXP) return e < INFINITE_EXP;
    for (size_t k = 0; k < sizeof(infinite) - 1; k++, i++) {
        if (i < n && p[i] == '.') i++;
        char d = i < n ? (char)p[i] : '0';
        if (d != infinite[k]) return d < infinite[k];
    }
    return false;
}

bool json_lex_number(struct json_lex *l, enum json_number *kind) {
    size_t start = l->at;
    *kind = JSON_NUMBER_INT;
    if (l->p[l->at] == '-') l->at++;
    size_t digits_at = l->at, n_digits = take_digits(l);
    if (n_digits == 0) return json_lex_bad(l, start, "a number wants a digit");
    if (n_digits > 1 && l->p[digits_at] == '0')
        return json_lex_bad(l, start, "a number has a leading zero");
    unsigned char c = l->at < l->n ? l->p[l->at] : 0;
    if (c != '.' && c != 'e' && c != 'E' && fits_64(l->p + digits_at, n_digits, digits_at > start))
        return true;
    if (c == '.') {
        *kind = JSON_NUMBER_REAL;
        l->at++;
        if (take_digits(l) == 0)
            return json_lex_bad(l, start, "a number wants a digit after the point");
        c = l->at < l->n ? l->p[l->at] : 0;
    }
    size_t mantissa = l->at - digits_at;
    int64_t exp10 = 0;
    if (c == 'e' || c == 'E') {
        *kind = JSON_NUMBER_REAL;
        l->at++;
        c = l->at < l->n ? l->p[l->at] : 0;
        bool negative = c == '-';
        if (negative || c == '+') l->at++;
        size_t from = l->at;
        if (take_digits(l) == 0)
            return json_lex_bad(l, start, "a number wants a digit in its exponent");
        /* what is past 99,999 is past every double, whatever the mantissa */
        for (size_t i = from; i < l->at && exp10 < 99999; i++) exp10 = exp10 * 10 + (l->p[i] - '0');
        if (negative) exp10 = -exp10;
    }
    if (l->at - start > JSON_NUMBER_BYTES_MAX)
        return json_lex_bad(l, start, "a number has more than 1024 characters");
    if (!is_finite(l->p + digits_at, mantissa, n_digits, exp10))
        return json_lex_bad(l, start, "a number is too large");
    if (*kind == JSON_NUMBER_INT) *kind = JSON_NUMBER_WIDE;
    return true;
}

/* ---- words */

bool json_lex_word(struct json_lex *l, char *first) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++) {
        size_t len = strlen(words[i]);
        if (l->n - l->at >= len && memcmp(l->p + l->at, words[i], len) == 0) {
            *first = words[i][0];
            l->at += len;
            return true;
        }
    }
    return json_lex_bad(l, l->at, "expected a value");
}
