/* jinja_strings: str's methods on UTF-8. */
#include "common/text/jinja_strings.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_print.h"

enum { SHORT_BYTES_MAX = 32 }; /* of a text that is looked for byte by byte */

/* Cuts characters at both ends for as long as `is` says so. */
static void strip(const struct jv *s, int sides, bool (*is)(void *arg, int32_t c), void *arg,
                  struct jv *out) {
    size_t from = 0, to = s->n;
    while ((sides & STRIP_LEFT) && from < to) {
        size_t next = from;
        if (!is(arg, jinja_char_next(s->s, to, &next))) break;
        from = next;
    }
    while ((sides & STRIP_RIGHT) && to > from) {
        size_t prev = to - from;
        if (!is(arg, jinja_char_prev(s->s + from, &prev))) break;
        to = from + prev;
    }
    *out = jv_str(s->s + from, to - from);
    out->sub = s->sub;
}

static bool is_space(void *arg, int32_t c) {
    (void)arg;
    return jinja_is_space(c);
}

struct jv jinja_str_strip(const struct jv *s, int sides) {
    struct jv out;
    strip(s, sides, is_space, NULL, &out);
    return out;
}

struct char_set {
    struct jinja_run *r;
    const struct jv *chars;
};

static bool in_set(void *arg, int32_t c) {
    const struct char_set *set = arg;
    if (!jinja_tick(set->r, 1 + set->chars->n / 16)) return false;
    for (size_t at = 0; at < set->chars->n;) {
        if (jinja_char_next(set->chars->s, set->chars->n, &at) == c) return true;
    }
    return false;
}

bool jinja_str_strip_chars(struct jinja_run *r, const struct jv *s, const struct jv *chars,
                           int sides, struct jv *out) {
    struct char_set set = {r, chars};
    strip(s, sides, in_set, &set, out);
    return r->code == ERR_OK;
}

/* Both turned round byte by byte: memmem's linear time then holds for the last place, too. */
static char *turned(struct jinja_run *r, const struct jv *s) {
    char *p = jinja_alloc(r, s->n);
    for (size_t i = 0; p != NULL && i < s->n; i++) p[i] = s->s[s->n - 1 - i];
    return p;
}

bool jinja_str_rfind(struct jinja_run *r, const struct jv *s, const struct jv *what, size_t *at) {
    *at = SIZE_MAX;
    if (what->n > s->n) return true;
    if (what->n <= SHORT_BYTES_MAX) {
        for (size_t i = s->n - what->n + 1; i > 0 && *at == SIZE_MAX; i--) {
            if (memcmp(s->s + i - 1, what->s, what->n) == 0) *at = i - 1;
        }
        return jinja_tick(r, (s->n - (*at == SIZE_MAX ? 0 : *at)) / 32);
    }
    const char *a = turned(r, s), *b = a == NULL ? NULL : turned(r, what);
    if (b == NULL || !jinja_tick(r, s->n / 32)) return false;
    size_t found = jinja_text_find(a, s->n, 0, b, what->n);
    if (found != SIZE_MAX) *at = s->n - found - what->n;
    return true;
}

bool jinja_str_recase(struct jinja_run *r, const struct jv *s, enum jinja_recase how,
                      struct jv *out) {
    struct jinja_sb t;
    bool in_word = false;
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    for (size_t at = 0; at < s->n && !t.failed;) {
        int32_t c = jinja_char_next(s->s, s->n, &at), mapped[3];
        bool cased = jinja_is_lower(c) || jinja_is_upper(c);
        enum jinja_case to = CASE_LOWER;
        if (how == RECASE_UPPER || (how == RECASE_SWAP && jinja_is_lower(c))) to = CASE_UPPER;
        if ((how == RECASE_CAPITALIZE || how == RECASE_TITLE) && !in_word) to = CASE_TITLE;
        in_word = how == RECASE_TITLE ? cased : true;
        int n = jinja_char_case(c, to, mapped);
        for (int i = 0; i < n; i++) jinja_sb_addc(&t, mapped[i]);
    }
    if (!jinja_sb_take(&t, out)) return false;
    out->sub = s->sub;
    return true;
}

bool jinja_str_replace(struct jinja_run *r, const struct jv *s, const struct jv *old,
                       const struct jv *new, int64_t n_max, struct jv *out) {
    struct jinja_sb t;
    size_t at = 0;
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    while (n_max != 0 && !t.failed) {
        size_t found = jinja_text_find(s->s, s->n, at, old->s, old->n);
        if (found == SIZE_MAX) break;
        jinja_sb_add(&t, s->s + at, found - at);
        jinja_sb_add(&t, new->s, new->n);
        if (!jinja_tick(r, 1)) return false;
        at = found + old->n;
        if (n_max > 0) n_max--;
        if (old->n == 0) { /* between all characters, and at both ends */
            if (at >= s->n) break;
            size_t next = at;
            jinja_char_next(s->s, s->n, &next);
            jinja_sb_add(&t, s->s + at, next - at);
            at = next;
        }
    }
    jinja_sb_add(&t, s->s + at, s->n - at);
    return jinja_sb_take(&t, out);
}

bool jinja_str_lines(struct jinja_run *r, const struct jv *s, bool keep_ends,
                     struct jv_list **out) {
    if (!jv_list_new(r, 0, out)) return false;
    for (size_t at = 0, from = 0; at < s->n; from = at) {
        size_t end = s->n;
        while (at < s->n) {
            size_t here = at;
            int32_t c = jinja_char_next(s->s, s->n, &at);
            if (!jinja_is_line_end(c)) continue;
            if (c == '\r' && at < s->n && s->s[at] == '\n') at++;
            end = keep_ends ? at : here;
            break;
        }
        if (!jv_list_push(r, *out, jv_str(s->s + from, end - from))) return false;
    }
    return jinja_tick(r, s->n / 128);
}

bool jinja_str_join(struct jinja_run *r, const struct jv *sep, const struct jv_list *items,
                    bool strict, struct jv *out) {
    struct jinja_sb t;
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    for (size_t i = 0; i < items->n && !t.failed; i++) {
        if (strict && items->v[i].type != JV_STR) {
            return jinja_fail(r, "join: sequence item %zu: expected str, found %s", i,
                              jv_type_name(&items->v[i]));
        }
        if (i > 0) jinja_sb_add(&t, sep->s, sep->n);
        jinja_print_str(&t, &items->v[i]);
    }
    return jinja_sb_take(&t, out);
}

bool jinja_str_pad(struct jinja_run *r, const struct jv *s, int64_t width, char align, int32_t c,
                   struct jv *out) {
    struct jinja_sb t;
    int64_t len = (int64_t)jinja_text_len(s->s, s->n), pad = width - len;
    if (pad <= 0) {
        *out = *s;
        return jinja_tick(r, s->n / 128);
    }
    /* Python's center puts the odd one to the left when the width is odd. */
    int64_t left = align == '<' ? 0 : align == '>' ? pad : pad / 2 + (pad & width & 1);
    jinja_sb_init(&t, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    jinja_sb_pad(&t, c, (size_t)left);
    jinja_sb_add(&t, s->s, s->n);
    jinja_sb_pad(&t, c, (size_t)(pad - left));
    return jinja_sb_take(&t, out);
}

bool jinja_str_all(const struct jv *s, bool (*is)(int32_t c)) {
    for (size_t at = 0; at < s->n;) {
        if (!is(jinja_char_next(s->s, s->n, &at))) return false;
    }
    return s->n > 0;
}

bool jinja_str_is_case(const struct jv *s, bool lower) {
    bool any = false;
    for (size_t at = 0; at < s->n;) {
        int32_t c = jinja_char_next(s->s, s->n, &at);
        if (lower ? jinja_is_upper(c) : jinja_is_lower(c)) return false;
        any |= lower ? jinja_is_lower(c) : jinja_is_upper(c);
    }
    return any;
}

/* ---- numbers in text */

/* Text without outer white space and without single underscores between digits, terminated. */
static bool number_text(const struct jv *s, char *dst, size_t n_dst) {
    struct jv v = jinja_str_strip(s, STRIP_LEFT | STRIP_RIGHT);
    size_t n = 0;
    for (size_t i = 0; i < v.n; i++) {
        if (v.s[i] == '_') {
            bool between = i > 0 && i + 1 < v.n &&
                           jinja_is_alnum((unsigned char)v.s[i - 1] & 0x7F) &&
                           jinja_is_alnum((unsigned char)v.s[i + 1] & 0x7F);
            if (!between) return false;
            continue;
        }
        if (n + 1 == n_dst || v.s[i] == '\0' || (unsigned char)v.s[i] >= 0x80) return false;
        dst[n++] = v.s[i];
    }
    dst[n] = '\0';
    return n > 0;
}

bool jinja_str_to_int(const struct jv *s, int base, int64_t *out, bool *too_big) {
    char text[400], *p = text, *end;
    *too_big = false;
    if (!number_text(s, text, sizeof(text)) || base == 1 || base < 0 || base > 36) return false;
    bool minus = *p == '-';
    if (*p == '-' || *p == '+') p++;
    char kind = p[0] == '0' ? (char)(p[1] | 32) : '\0';
    int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix != 0 && (base == 0 || base == prefix)) {
        base = prefix;
        p += 2;
    } else if (base == 0) {
        if (p[0] == '0' && strspn(p, "0") != strlen(p)) return false; /* 012 is no number */
        base = 10;
    }
    if (!jinja_is_alnum((unsigned char)*p)) return false; /* strtoull would take spaces and signs */
    if (base == 16 && p[0] == '0' && (p[1] | 32) == 'x') return false;
    errno = 0;
    unsigned long long u = strtoull(p, &end, base);
    if (*end != '\0') return false;
    *too_big = errno != 0 || u > (unsigned long long)INT64_MAX + minus;
    *out = minus ? (int64_t)(0 - u) : (int64_t)u;
    return true;
}

bool jinja_str_to_float(const struct jv *s, double *out) {
    char text[400], *p = text, *end;
    if (!number_text(s, text, sizeof(text))) return false;
    if (*p == '-' || *p == '+') p++;
    bool word =
        strcasecmp(p, "inf") == 0 || strcasecmp(p, "infinity") == 0 || strcasecmp(p, "nan") == 0;
    if (!word && strspn(p, "0123456789.eE+-") != strlen(p)) return false;
    if (!word && *p != '.' && !(*p >= '0' && *p <= '9')) return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}
