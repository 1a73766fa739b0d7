/* json_pull: one step of the grammar at a time. */
#include "proto/json_pull.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

void json_pull_start(struct json_pull *j, const char *p, size_t n) {
    size_t bom = n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    j->lex = (struct json_lex){.p = (const unsigned char *)p, .n = n, .at = bom};
    j->depth = 0;
    j->fresh = j->bad = false;
}

static bool fail(struct json_pull *j) {
    j->bad = true;
    j->depth = 0;
    j->lex.at = j->lex.n;
    return false;
}

static inline int peek(struct json_pull *j) {
    if (j->lex.at < j->lex.n && j->lex.p[j->lex.at] > ' ') return j->lex.p[j->lex.at];
    json_lex_space(&j->lex);
    return j->lex.at < j->lex.n ? j->lex.p[j->lex.at] : -1;
}

static inline enum json_pulled open_container(struct json_pull *j, bool object) {
    if (j->depth > JSON_DEPTH_MAX) {
        fail(j);
        return JSON_PULL_BAD;
    }
    j->object[j->depth++] = object;
    j->fresh = true;
    j->lex.at++;
    return object ? JSON_PULL_OBJECT : JSON_PULL_ARRAY;
}

static inline enum json_pulled take_value(struct json_pull *j, struct json_span *s) {
    enum json_number number;
    enum json_pulled v = JSON_PULL_BAD;
    char word;
    int c = peek(j);
    switch (c) {
    case '{':
    case '[': return open_container(j, c == '{');
    case '"':
        if (json_lex_string(&j->lex, s)) v = JSON_PULL_STRING;
        break;
    case '-':
    case '0' ... '9':
        if (json_lex_number(&j->lex, &number))
            v = number == JSON_NUMBER_INT ? JSON_PULL_INT : JSON_PULL_REAL;
        break;
    case -1: break;
    default:
        if (json_lex_word(&j->lex, &word))
            v = word == 't' ? JSON_PULL_TRUE : word == 'f' ? JSON_PULL_FALSE : JSON_PULL_NULL;
    }
    if (v == JSON_PULL_BAD) fail(j);
    j->fresh = false;
    return v;
}

/* Whether something more comes in the innermost container, whose end is `close`. */
static inline bool more(struct json_pull *j, int close) {
    int c = peek(j);
    bool fresh = j->fresh;
    if (c == close && j->depth > 0) {
        j->lex.at++;
        j->depth--;
        j->fresh = false;
        return false;
    }
    j->fresh = false;
    if (j->bad || j->depth == 0) return fail(j);
    if (fresh) return true;
    if (c != ',') return fail(j);
    j->lex.at++;
    return true;
}

static inline bool next_member(struct json_pull *j, struct json_span *name) {
    if (!more(j, '}')) return false;
    if (peek(j) != '"' || !json_lex_string(&j->lex, name) || name->zero || peek(j) != ':')
        return fail(j);
    j->lex.at++;
    return true;
}

enum json_pulled json_pull_value(struct json_pull *j, struct json_span *s) {
    return take_value(j, s);
}

bool json_pull_item(struct json_pull *j) {
    return more(j, ']');
}

bool json_pull_member(struct json_pull *j, struct json_span *name) {
    return next_member(j, name);
}

/* ---- runs of plain items, which are most of what arrays of a million things are made of */

#ifdef __SSE2__
static inline uint64_t mask_of(__m128i a, __m128i b, __m128i c, __m128i d) {
    return (uint64_t)(unsigned)_mm_movemask_epi8(a) |
           (uint64_t)(unsigned)_mm_movemask_epi8(b) << 16 |
           (uint64_t)(unsigned)_mm_movemask_epi8(c) << 32 |
           (uint64_t)(unsigned)_mm_movemask_epi8(d) << 48;
}

static inline unsigned count_bits(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (unsigned)(x * 0x0101010101010101u >> 56);
}

/* How many integers of at most 16 digits begin at p[0..64), each with a comma behind it and nothing
 * between them; *bytes: with their commas. A leading zero or anything odd: 0. */
static unsigned ints_of_block(const unsigned char *p, size_t *bytes) {
    const __m128i zero = _mm_set1_epi8('0'), nine = _mm_set1_epi8(9), comma = _mm_set1_epi8(',');
    __m128i v[4], digit[4], is_comma[4], is_zero[4];
    for (int i = 0; i < 4; i++) {
        v[i] = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
        __m128i x = _mm_sub_epi8(v[i], zero);
        digit[i] = _mm_cmpeq_epi8(_mm_min_epu8(x, nine), x);
        is_comma[i] = _mm_cmpeq_epi8(v[i], comma);
        is_zero[i] = _mm_cmpeq_epi8(v[i], zero);
    }
    uint64_t d = mask_of(digit[0], digit[1], digit[2], digit[3]),
             c = mask_of(is_comma[0], is_comma[1], is_comma[2], is_comma[3]),
             z = mask_of(is_zero[0], is_zero[1], is_zero[2], is_zero[3]), other = ~(d | c);
    if (other != 0) c &= (other & (0 - other)) - 1; /* commas before the first odd byte */
    if (c == 0) return 0;
    unsigned last = 63 - (unsigned)__builtin_clzll(c);
    uint64_t taken = ~(uint64_t)0 >> (63 - last), first = (c << 1 | 1) & taken, run = d & taken;
    run &= run >> 1;
    run &= run >> 2;
    run &= run >> 4;
    run &= run >> 8;
    run &= (d & taken) >> 16; /* seventeen in a row */
    if ((first & c) != 0 || (first & z & d >> 1) != 0 || run != 0) return 0;
    *bytes = last + 1;
    return count_bits(c);
}
#endif

size_t json_pull_ints(struct json_pull *j) {
    size_t n = 0;
#ifdef __SSE2__
    size_t at = j->lex.at, bytes;
    if (at < j->lex.n && (unsigned)j->lex.p[at] - '0' > 9) return 0;
    for (unsigned k; j->lex.n - at >= 64 && (k = ints_of_block(j->lex.p + at, &bytes)) > 0;
         at += bytes)
        n += k;
    if (n > 0) j->lex.at = at - 1;
#endif
    return n;
}

size_t json_pull_empties(struct json_pull *j) {
    const unsigned char *p = j->lex.p;
    size_t at = j->lex.at, from = at;
    if (j->depth > JSON_DEPTH_MAX) return 0;
    while (j->lex.n - at >= 3 && (p[at] == '{' || p[at] == '[') && p[at + 1] == p[at] + 2 &&
           p[at + 2] == ',')
        at += 3;
    if (at > from) j->lex.at = at - 1;
    return (at - from) / 3;
}

/* Behind the string whose opening quote is at p[at], when it is short, plain and ends before n;
 * else 0. */
static inline size_t short_string(const unsigned char *p, size_t at, size_t n) {
    size_t end = n - at > 40 ? at + 40 : n;
    for (size_t i = at + 1; i < end; i++) {
        if (p[i] == '"') return i + 1;
        if (p[i] < 0x20 || p[i] >= 0x80 || p[i] == '\\') return 0;
    }
    return 0;
}

size_t json_pull_texts(struct json_pull *j, size_t *n_bytes) {
    const unsigned char *p = j->lex.p;
    size_t n = 0, at = j->lex.at, end;
    *n_bytes = 0;
    while (at < j->lex.n && p[at] == '"' && (end = short_string(p, at, j->lex.n)) != 0 &&
           end < j->lex.n && p[end] == ',') {
        *n_bytes += end - at - 2;
        at = end + 1;
        n++;
    }
    if (n > 0) j->lex.at = at - 1;
    return n;
}

/* Behind the digits at p[at], at most 18 of them: else where it was. */
static inline size_t few_digits(const unsigned char *p, size_t at) {
    size_t i = at;
    while ((unsigned)p[i] - '0' < 10 && i < at + 18) i++;
    return i;
}

/* Behind the number at p[at], when it is short (its exponent of two digits at most, so that a
 * double holds it) and something follows that ends it; else 0. */
static inline size_t short_number(const unsigned char *p, size_t at, size_t n) {
    if (n - at < 48) return 0;
    size_t i = at + (p[at] == '-'), from = i;
    i = few_digits(p, i);
    if (i == from || (p[from] == '0' && i > from + 1)) return 0;
    if (p[i] == '.') {
        from = ++i;
        if ((i = few_digits(p, i)) == from) return 0;
    }
    if ((p[i] | 0x20) == 'e') {
        i++;
        i += p[i] == '+' || p[i] == '-';
        from = i;
        i = few_digits(p, i);
        if (i == from || i > from + 2) return 0;
    }
    return p[i] == ',' || p[i] == ']' || p[i] == '}' ? i : 0;
}

/* On until no more than `outside` containers are open. The hot loop, since most of a body is what
 * nobody asked for: what is short and plain is taken here, anything else by the functions above. */
static void walk_out(struct json_pull *j, int outside) {
    const unsigned char *p = j->lex.p;
    const size_t n = j->lex.n;
    struct json_span s;
    while (j->depth > outside) {
        size_t at = j->lex.at, end, comma = !j->fresh;
        bool object = j->object[j->depth - 1];
        if (at < n && p[at] == (object ? '}' : ']')) {
            j->lex.at = at + 1;
            j->depth--;
            j->fresh = false;
            continue;
        }
        if (object && n - at > 2 && (!comma || p[at] == ',') && p[at + comma] == '"' &&
            (end = short_string(p, at + comma, n)) != 0 && end < n && p[end] == ':') {
            j->lex.at = end + 1;
            j->fresh = false;
        } else if (!object && at < n && comma && p[at] == ',') {
            j->lex.at = at + 1;
        } else if (object ? !next_member(j, &s) : !more(j, ']')) {
            continue;
        }
        at = j->lex.at;
        unsigned char c = at < n ? p[at] : 0;
        if (c == '"' && (end = short_string(p, at, n)) != 0) {
            j->lex.at = end;
        } else if (c == '[' || c == '{') {
            if (object || json_pull_empties(j) == 0) open_container(j, c == '{');
        } else if (((unsigned)c - '0' < 10 || c == '-') && (end = short_number(p, at, n)) != 0) {
            bool ints = !object && p[end] == ',' && few_digits(p, at) == end;
            if (!ints || json_pull_ints(j) == 0) j->lex.at = end;
        } else {
            take_value(j, &s);
        }
    }
}

enum json_pulled json_pull_skip(struct json_pull *j) {
    struct json_span s;
    int outside = j->depth;
    enum json_pulled first = take_value(j, &s);
    walk_out(j, outside);
    return j->bad ? JSON_PULL_BAD : first;
}

void json_pull_rest(struct json_pull *j) {
    walk_out(j, j->depth - 1);
}

bool json_pull_end(struct json_pull *j) {
    return peek(j) < 0 && !j->bad && j->depth == 0;
}

bool json_pull_spells(const struct json_pull *j, const struct json_span *s, const char *name) {
    const unsigned char *p = j->lex.p + s->at;
    char c[4];
    for (size_t i = 0, n; i < s->len; i += n) {
        size_t k = json_put_utf8(c, json_next_char(p + i, &n));
        if (memcmp(name, c, k) != 0) return false;
        name += k;
    }
    return true;
}

bool json_pull_copy(const struct json_pull *j, const struct json_span *s, char *dst,
                    size_t dst_bytes) {
    if (s->n_bytes >= dst_bytes) return false;
    json_unescape(dst, j->lex.p + s->at, s->len);
    dst[s->n_bytes] = 0;
    return true;
}

enum json_found json_pull_find(const char *p, size_t n, const char *key, char *dst,
                               size_t dst_bytes, size_t *len) {
    struct json_pull j;
    struct json_span s;
    enum json_found found = JSON_FOUND_NONE;
    dst[0] = 0;
    *len = 0;
    json_pull_start(&j, p, n);
    if (json_pull_value(&j, &s) != JSON_PULL_OBJECT) return JSON_FOUND_NO_OBJECT;
    while (json_pull_member(&j, &s)) {
        if (!json_pull_name_is(&j, &s, key)) {
            json_pull_skip(&j);
            continue;
        }
        enum json_pulled kind = json_pull_value(&j, &s);
        if (kind >= JSON_PULL_ARRAY) json_pull_rest(&j);
        found = kind != JSON_PULL_STRING                 ? JSON_FOUND_NONE
                : json_pull_copy(&j, &s, dst, dst_bytes) ? JSON_FOUND
                                                         : JSON_FOUND_TOO_LONG;
        *len = s.n_bytes;
    }
    if (!json_pull_end(&j)) found = JSON_FOUND_NO_OBJECT;
    if (found != JSON_FOUND) dst[0] = 0;
    return found;
}
