/* tok_regex_syntax: from Oniguruma's Ruby syntax, in which tokenizer files write their patterns, to
 * PCRE2's. Most of a pattern means the same in both and is copied. The differences:
 *
 *   \s \S           Unicode White_Space; PCRE2 counts U+180E as a space too
 *   \w \W \b \B     Alphabetic, M, Nd, Pc; PCRE2 10.42 takes letters, numbers and "_" only
 *   \p{L} \d        as of Unicode 15 (tok_unicode); PCRE2 10.42 knows Unicode 14
 *   \h \H, \v       a hexadecimal digit, U+000B; PCRE2: horizontal and vertical white space
 *   \uHHHH          not known to PCRE2
 *   \p{Greek}       the script; PCRE2 takes script extensions
 *   [[:alpha:]]     the Unicode property of that name
 *   ^ $             always at lines (PCRE2_MULTILINE); so Ruby's (?m) is "dot takes all": (?s)
 *   {n,m}+          one or more times {n,m}; in PCRE2 a possessive {n,m}
 *   {,n}            {0,n}; a literal in PCRE2 10.42
 *
 * Class intersections, sets in sets, and escapes that one side lacks are refused. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/text/tok_regex.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include "common/text/tok_unicode.h"

#define WORD "Alphabetic;M;Nd;Pc"
#define HEX  "0-9A-Fa-f"
#define NONE "\\P{Any}" /* in a class: no character, and neither end of a range */

struct tr {
    struct tok_at *at;
    const char *s;
    size_t n, i;
    bool in_class;
    struct buf *out;
    struct buf
        others; /* of the class at hand: "|[^...]" for each set of which it takes the others */
};

static enum err refuse(struct tr *t, size_t at_byte, const char *what) {
    return tok_fail(t->at, ERR_BAD_FILE, "%s at byte %zu of the pattern is not supported", what,
                    at_byte);
}

/* Whether PCRE2 has \p{KINDname}. */
static bool pcre_has(const char *kind, const char *name, size_t n) {
    char re[80];
    int rc;
    PCRE2_SIZE where;
    pcre2_code *code;
    int len = snprintf(re, sizeof re, "\\p{%s%.*s}", kind, (int)n, name);
    code = pcre2_compile((PCRE2_SPTR)re, (PCRE2_SIZE)len, PCRE2_UTF, &rc, &where, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* The set that holds the properties (as tok_unicode_added() takes them, "" for none) and chars
 * (members of a class) as members of a class. True when it is one property as PCRE2 has it. */
static bool put_members(struct buf *out, const char *props, size_t n, const char *chars) {
    struct buf added = BUF_INIT;
    bool any = n > 0 && tok_unicode_added(&added, props, n), one = !any && chars[0] == '\0';
    char sign = tok_unicode_shrinks(props, n) ? 'P' : 'p';
    for (size_t i = 0; i < n;) {
        const char *semicolon = memchr(props + i, ';', n - i);
        size_t len = semicolon != NULL ? (size_t)(semicolon - props) - i : n - i;
        bool script = pcre_has("sc:", props + i, len);
        if (any && !script && !pcre_has("", props + i, len)) {
            buf_puts(out, NONE); /* a script that is all new */
        } else {
            buf_printf(out, "\\%c{%s%.*s}", sign, script ? "sc:" : "", (int)len, props + i);
        }
        i += len + 1;
        if (i < n) one = false;
    }
    buf_puts(out, chars);
    if (added.failed) {
        out->failed = true;
    } else if (any) {
        buf_append(out, added.data, added.len);
    }
    buf_free(&added);
    return one;
}

/* One character of the set, or with neg one that is not of it; inside a class as its members. */
static void put_set(struct tr *t, const char *props, size_t n, const char *chars, bool neg) {
    struct buf set = BUF_INIT;
    bool one = put_members(&set, props, n, chars);
    if (n > 0 && tok_unicode_shrinks(props, n)) neg = !neg; /* its members are those it lacks */
    if (set.failed) {
        t->out->failed = true;
    } else if (one) {
        if (neg) set.data[1] = set.data[1] == 'p' ? 'P' : 'p';
        buf_append(t->out, set.data, set.len);
    } else if (!t->in_class) {
        buf_printf(t->out, "[%s%s]", neg ? "^" : "", set.data);
    } else if (neg) {
        buf_puts(t->out, NONE);
        buf_printf(&t->others, "|[^%s]", set.data);
    } else {
        buf_append(t->out, set.data, set.len);
    }
    buf_free(&set);
}

/* \b, or with neg \B. */
static void put_boundary(struct tr *t, bool neg) {
    struct buf set = BUF_INIT;
    put_members(&set, WORD, sizeof WORD - 1, "");
    if (set.failed) {
        t->out->failed = true;
    } else {
        buf_printf(t->out, "(?:(?<=[%s])(?%c[%s])|(?<![%s])(?%c[%s]))", set.data, neg ? '=' : '!',
                   set.data, set.data, neg ? '!' : '=', set.data);
    }
    buf_free(&set);
}

/* \p{...} and \P{...}; t->i is at the backslash. */
static enum err property(struct tr *t) {
    const char *open = t->s + t->i + 2;
    size_t left = t->n - t->i - 2, n;
    bool neg = t->s[t->i + 1] == 'P';
    const char *close = left > 0 && *open == '{' ? memchr(open, '}', left) : NULL;
    if (close == NULL || close - open > 48) return refuse(t, t->i, "a property without {name}");
    t->i += (size_t)(close - (t->s + t->i)) + 1;
    open++;
    if (*open == '^') neg = !neg, open++;
    n = (size_t)(close - open);
    for (size_t k = 0; k < n; k++) {
        if (!isalnum((unsigned char)open[k]) && memchr("_ -&", open[k], 4) == NULL) {
            return refuse(t, (size_t)(open - t->s), "this property name");
        }
    }
    if (n == 0) return refuse(t, (size_t)(open - t->s), "this property name");
    put_set(t, open, n, "", neg);
    return ERR_OK;
}

static enum err escape(struct tr *t) {
    static const struct {
        char yes, no; /* no '\0': there is none */
        const char *props, *chars;
    } map[] = {
        {'s', 'S', "White_Space", ""}, {'w', 'W', WORD, ""},     {'d', 'D', "Nd", ""},
        {'h', 'H', "", HEX},           {'v', '\0', "", "\\x0b"},
    };
    char c;
    if (t->i + 1 >= t->n) return refuse(t, t->i, "a backslash at the end");
    c = t->s[t->i + 1];
    if (c == 'p' || c == 'P') return property(t);
    if (c == 'u' || c == 'x') {
        size_t k = t->i + 2, digits = 0;
        if (c == 'x' && k < t->n && t->s[k] == '{') { /* \x{...} is the same in both */
            buf_append(t->out, "\\x", 2);
            t->i += 2;
            return ERR_OK;
        }
        while (k < t->n && digits < (c == 'u' ? 4u : 2u) && isxdigit((unsigned char)t->s[k])) {
            k++, digits++;
        }
        if (digits == 0 || (c == 'u' && digits < 4) ||
            (c == 'x' && digits == 2 && t->s[k - 2] > '7')) {
            return refuse(t, t->i, "this \\x or \\u");
        }
        buf_printf(t->out, "\\x{%.*s}", (int)digits, t->s + t->i + 2);
        t->i = k;
        return ERR_OK;
    }
    if (c == 'b' && t->in_class) {
        buf_puts(t->out, "\\x08");
        t->i += 2;
        return ERR_OK;
    }
    if ((c == 'b' || c == 'B') && !t->in_class) {
        put_boundary(t, c == 'B');
        t->i += 2;
        return ERR_OK;
    }
    for (size_t k = 0; k < sizeof map / sizeof map[0]; k++) {
        if (c == '\0' || (map[k].yes != c && map[k].no != c)) continue;
        put_set(t, map[k].props, strlen(map[k].props), map[k].chars, map[k].no == c);
        t->i += 2;
        return ERR_OK;
    }
    if (isalpha((unsigned char)c) &&
        strchr(t->in_class ? "tnrfae" : "tnrfaeAzZGKRXkg", c) == NULL) {
        return refuse(t, t->i, "this escape");
    }
    buf_append(t->out, t->s + t->i, 2);
    t->i += 2;
    return ERR_OK;
}

/* [:name:] inside a class; t->i is at its bracket. */
static enum err posix_class(struct tr *t) {
    static const struct {
        const char *name, *props, *chars;
    } map[] = {
        {"alpha", "Alphabetic", ""},   {"upper", "Uppercase", ""},
        {"lower", "Lowercase", ""},    {"digit", "Nd", ""},
        {"cntrl", "Cc", ""},           {"space", "White_Space", ""},
        {"punct", "P", "$+<=>\\^`|~"}, {"word", WORD, ""},
        {"xdigit", "", HEX},           {"alnum", "Alphabetic;Nd", ""},
    };
    size_t name = t->i + 2, len;
    bool neg = name < t->n && t->s[name] == '^';
    const char *end;
    if (neg) name++;
    end = name < t->n ? memmem(t->s + name, t->n - name, ":]", 2) : NULL;
    if (end == NULL) return refuse(t, t->i, "a set inside a character class");
    len = (size_t)(end - (t->s + name));
    for (size_t k = 0; k < sizeof map / sizeof map[0]; k++) {
        if (strlen(map[k].name) != len || memcmp(map[k].name, t->s + name, len) != 0) continue;
        put_set(t, map[k].props, strlen(map[k].props), map[k].chars, neg);
        t->i = name + len + 2;
        return ERR_OK;
    }
    return refuse(t, t->i, "this POSIX class");
}

/* The members of a class up to its end; t->i is behind "[" or "[^". */
static enum err class_members(struct tr *t, size_t open) {
    enum err e = ERR_OK;
    if (t->i < t->n && t->s[t->i] == ']') { /* first: a literal */
        buf_append(t->out, "\\]", 2);
        t->i++;
    }
    while (t->i < t->n && e == ERR_OK) {
        char c = t->s[t->i];
        if (c == ']') {
            t->i++;
            return ERR_OK;
        }
        if (c == '\\') {
            e = escape(t);
        } else if (c == '[' && t->i + 1 < t->n && t->s[t->i + 1] == ':') {
            e = posix_class(t);
        } else if (c == '[') {
            e = refuse(t, t->i, "a set inside a character class");
        } else if (c == '&' && t->i + 1 < t->n && t->s[t->i + 1] == '&') {
            e = refuse(t, t->i, "an intersection of character classes");
        } else {
            buf_putc(t->out, c);
            t->i++;
        }
    }
    return e != ERR_OK ? e : refuse(t, open, "a character class without end");
}

/* A class with a member like "all but letters and digits" is written as a choice of classes. */
static enum err char_class(struct tr *t) {
    struct buf *out = t->out, members = BUF_INIT;
    size_t open = t->i++;
    bool neg = t->i < t->n && t->s[t->i] == '^';
    enum err e;
    if (neg) t->i++;
    t->out = &members;
    t->in_class = true;
    e = class_members(t, open);
    t->in_class = false;
    t->out = out;
    if (members.failed || t->others.failed) out->failed = true;
    if (e == ERR_OK && !out->failed) {
        if (t->others.len == 0) {
            buf_printf(out, "[%s", neg ? "^" : "");
            buf_append(out, members.data, members.len);
            buf_putc(out, ']');
        } else {
            buf_puts(out, neg ? "(?:(?![" : "(?:[");
            buf_append(out, members.data, members.len);
            buf_putc(out, ']');
            buf_append(out, t->others.data, t->others.len);
            buf_puts(out, neg ? ")(?s:.))" : ")");
        }
    }
    buf_free(&members);
    buf_free(&t->others);
    return e;
}

/* A number of at most 5 digits at t->s[*k]; false when there is none. */
static bool number(const struct tr *t, size_t *k, unsigned *out) {
    size_t from = *k;
    *out = 0;
    while (*k < t->n && *k - from < 5 && isdigit((unsigned char)t->s[*k])) {
        *out = *out * 10 + (unsigned)(t->s[(*k)++] - '0');
    }
    return *k > from;
}

/* {n}, {n,}, {,m}, {n,m} and what follows; any other brace is a literal in both. */
static enum err interval(struct tr *t) {
    size_t k = t->i + 1;
    unsigned lo, hi;
    bool has_lo = number(t, &k, &lo), has_hi = false;
    bool comma = k < t->n && t->s[k] == ',';
    if (comma) {
        k++;
        has_hi = number(t, &k, &hi);
    }
    if (k >= t->n || t->s[k] != '}' || !(has_lo || has_hi)) {
        buf_append(t->out, "\\{", 2);
        t->i++;
        return ERR_OK;
    }
    t->i = k + 1;
    if (t->i < t->n && t->s[t->i] == '+') {
        /* with n at most 1, one or more times {n,m} is {n,} */
        if (lo > 1) return refuse(t, t->i, "a repeated {n,m} with n above 1");
        t->i++;
        comma = true;
        has_hi = false;
    } else if (!comma && t->i < t->n && t->s[t->i] == '?') {
        return refuse(t, t->i, "{n}?");
    }
    if (!comma) {
        buf_printf(t->out, "{%u}", lo);
    } else if (has_hi) {
        buf_printf(t->out, "{%u,%u}", lo, hi);
    } else {
        buf_printf(t->out, "{%u,}", lo);
    }
    return ERR_OK;
}

/* (?imx-imx) and (?imx-imx:...); other groups are the same in both. */
static enum err group(struct tr *t) {
    size_t k = t->i + 2;
    if (k >= t->n || t->s[t->i + 1] != '?' || strchr("imxsadu-", t->s[k]) == NULL) {
        buf_putc(t->out, '(');
        t->i++;
        return ERR_OK;
    }
    buf_append(t->out, "(?", 2);
    for (; k < t->n && t->s[k] != ')' && t->s[k] != ':'; k++) {
        char c = t->s[k];
        if (strchr("imx-", c) == NULL) return refuse(t, k, "this option");
        buf_putc(t->out, (char)(c == 'm' ? 's' : c));
    }
    t->i = k;
    return ERR_OK;
}

enum err tok_regex_translate(struct tok_at *at, const char *s, size_t n, struct buf *out) {
    struct tr t = {.at = at, .s = s, .n = n, .out = out};
    enum err e = ERR_OK;
    while (t.i < n && e == ERR_OK) {
        char c = s[t.i];
        if (c == '\\') {
            e = escape(&t);
        } else if (c == '[') {
            e = char_class(&t);
        } else if (c == '{') {
            e = interval(&t);
        } else if (c == '(') {
            e = group(&t);
        } else {
            buf_putc(out, c);
            t.i++;
        }
    }
    return e == ERR_OK && out->failed ? ERR_NO_MEMORY : e;
}
