/* jinja_lex: text, tags and white space control. */
#include "common/text/jinja_lex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_text.h"

enum { NAME_BYTES_MAX = 1000 };

void jinja_lex_init(struct jinja_lex *lx, struct jinja_run *r, const char *src, size_t n) {
    *lx = (struct jinja_lex){.r = r, .s = src, .n = n, .line = 1, .line_starting = true};
    r->line = 1;
}

static bool fail_at(struct jinja_lex *lx, const char *what) {
    lx->r->line = lx->line;
    return jinja_fail(lx->r, "%s", what);
}

static void advance(struct jinja_lex *lx, size_t to) {
    if (to > lx->at) lx->line_starting = lx->s[to - 1] == '\n';
    for (; lx->at < to; lx->at++) lx->line += lx->s[lx->at] == '\n';
}

static bool starts(const struct jinja_lex *lx, size_t at, const char *what) {
    size_t n = strlen(what);
    return at <= lx->n && lx->n - at >= n && memcmp(lx->s + at, what, n) == 0;
}

static size_t skip_space(const struct jinja_lex *lx, size_t at) {
    while (at < lx->n) {
        size_t next = at;
        if (!jinja_is_space(jinja_char_next(lx->s, lx->n, &next))) break;
        at = next;
    }
    return at;
}

/* Where the text from..to ends once a tag with the given sign follows. */
static size_t strip_before_tag(const struct jinja_lex *lx, size_t from, size_t to, char sign,
                               bool is_print) {
    if (sign == '-') {
        while (to > from) {
            size_t prev = to - from;
            if (!jinja_is_space(jinja_char_prev(lx->s + from, &prev))) break;
            to = from + prev;
        }
        return to;
    }
    if (sign == '+' || is_print) return to;
    const char *nl = memrchr(lx->s + from, '\n', to - from);
    size_t line = nl == NULL ? from : (size_t)(nl - lx->s) + 1;
    if (line == from && nl == NULL && !lx->line_starting) return to;
    return skip_space(lx, line) >= to ? line : to;
}

/* The end of a block tag or comment at `at`: "+%}", "-%}" and the space behind it, "%}" and a
 * newline. 0 when there is none. */
static size_t tag_end(const struct jinja_lex *lx, size_t at, const char *mark) {
    if (at < lx->n && lx->s[at] == '+' && starts(lx, at + 1, mark)) return at + 1 + strlen(mark);
    if (at < lx->n && lx->s[at] == '-' && starts(lx, at + 1, mark))
        return skip_space(lx, at + 1 + strlen(mark));
    if (!starts(lx, at, mark)) return 0;
    at += strlen(mark);
    return at < lx->n && lx->s[at] == '\n' ? at + 1 : at;
}

/* "{% raw %}" at `at`: the place behind it, or 0. */
static size_t raw_begin(const struct jinja_lex *lx, size_t at) {
    at += 2;
    if (at < lx->n && (lx->s[at] == '-' || lx->s[at] == '+')) at++;
    at = skip_space(lx, at);
    if (!starts(lx, at, "raw")) return 0;
    at = skip_space(lx, at + 3);
    if (starts(lx, at, "-%}")) return skip_space(lx, at + 3);
    return starts(lx, at, "%}") ? at + 2 : 0;
}

static char sign_at(const struct jinja_lex *lx, size_t at) {
    char c = at < lx->n ? lx->s[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
}

static struct jv span(const struct jinja_lex *lx, size_t from, size_t to) {
    return jv_str(lx->s + from, to - from);
}

/* Inside {% raw %}: its text is *t; the tag that ends it is skipped. */
static bool lex_raw(struct jinja_lex *lx, struct jinja_token *t) {
    size_t from = lx->at;
    for (size_t at = from; at < lx->n; at++) {
        const char *p = memmem(lx->s + at, lx->n - at, "{%", 2);
        if (p == NULL) break;
        at = (size_t)(p - lx->s);
        char sign = sign_at(lx, at + 2);
        size_t word = skip_space(lx, at + 2 + (sign != '\0'));
        if (!starts(lx, word, "endraw")) continue;
        size_t end = tag_end(lx, skip_space(lx, word + 6), "%}");
        if (end == 0) continue;
        t->type = TK_DATA;
        t->line = lx->line;
        t->v = span(lx, from, strip_before_tag(lx, from, at, sign, false));
        advance(lx, end);
        return true;
    }
    return fail_at(lx, "{% raw %} without {% endraw %}");
}

static bool skip_comment(struct jinja_lex *lx, size_t at) {
    for (; at < lx->n; at++) {
        size_t end = tag_end(lx, at, "#}");
        if (end == 0) continue;
        advance(lx, end);
        return true;
    }
    return fail_at(lx, "missing end of comment");
}

/* One token outside of tags. *t stays TK_EOF with more text left after an empty text or a comment.
 */
static bool lex_text(struct jinja_lex *lx, struct jinja_token *t) {
    size_t at = lx->at;
    while (at < lx->n && !(lx->s[at] == '{' && at + 1 < lx->n &&
                           strchr("{%#", lx->s[at + 1]) != NULL && lx->s[at + 1] != '\0')) {
        const char *p = memchr(lx->s + at + 1, '{', lx->n - at - 1);
        at = p == NULL ? lx->n : (size_t)(p - lx->s);
    }
    size_t from = lx->at, to = at;
    t->line = lx->line;
    if (at == lx->n) {
        advance(lx, at);
    } else {
        char kind = lx->s[at + 1], sign = sign_at(lx, at + 2);
        size_t raw = kind == '%' ? raw_begin(lx, at) : 0;
        to = strip_before_tag(lx, from, at, sign, kind == '{');
        size_t body = at + 2 + (sign != '\0');
        advance(lx, raw != 0 ? raw : body);
        if (raw != 0) {
            lx->pending = TK_DATA; /* raw text comes next */
        } else if (kind == '#') {
            if (!skip_comment(lx, body)) return false;
        } else {
            lx->pending = kind == '{' ? TK_PRINT_BEGIN : TK_BLOCK_BEGIN;
        }
    }
    if (to > from) {
        t->type = TK_DATA;
        t->v = span(lx, from, to);
    }
    return true;
}

/* ---- inside tags */

static size_t skip_digits(const struct jinja_lex *lx, size_t at, int base) {
    /* digits with single underscores between them; at is returned when there is none */
    size_t end = at;
    for (;;) {
        size_t p = end;
        if (p > at && p < lx->n && lx->s[p] == '_') p++;
        if (p >= lx->n) return end;
        char c = lx->s[p] | 32;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        if (lx->s[p] < '0' || digit >= base) return end;
        end = p + 1;
    }
}

static bool lex_float(const struct jinja_lex *lx, size_t *end) {
    size_t whole = skip_digits(lx, lx->at, 10), at = whole;
    if (whole == lx->at || (lx->at > 0 && lx->s[lx->at - 1] == '.')) return false;
    if (at < lx->n && lx->s[at] == '.') {
        size_t frac = skip_digits(lx, at + 1, 10);
        if (frac > at + 1) at = frac;
    }
    bool is_float = at > whole;
    if (at < lx->n && (lx->s[at] | 32) == 'e') {
        size_t exp = at + 1 + (at + 1 < lx->n && (lx->s[at + 1] == '+' || lx->s[at + 1] == '-'));
        size_t digits = skip_digits(lx, exp, 10);
        if (digits > exp) {
            at = digits;
            is_float = true;
        }
    }
    *end = at;
    return is_float;
}

static bool lex_number(struct jinja_lex *lx, struct jinja_token *t) {
    char digits[320];
    size_t end, n = 0, from = lx->at;
    int base = 10;
    bool is_float = lex_float(lx, &end);
    if (!is_float) {
        char kind = lx->s[from] == '0' && from + 1 < lx->n ? lx->s[from + 1] | 32 : '\0';
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
        size_t start = from + (base == 10 ? 0 : 2 + (from + 2 < lx->n && lx->s[from + 2] == '_'));
        end = skip_digits(lx, start, lx->s[from] == '0' && base == 10 ? 1 : base);
        if (end == start) { /* "0x" and nothing: a zero, then a name */
            base = 10;
            end = from + 1;
        } else {
            from = start;
        }
    }
    for (size_t i = from; i < end; i++) {
        if (lx->s[i] == '_') continue;
        if (n + 1 == sizeof(digits)) return fail_at(lx, "number too long");
        digits[n++] = lx->s[i];
    }
    digits[n] = '\0';
    errno = 0;
    t->type = TK_NUMBER;
    t->v = is_float ? jv_float(strtod(digits, NULL)) : jv_int(strtoll(digits, NULL, base));
    if (!is_float && errno != 0) return fail_at(lx, "integer does not fit 64 bits");
    advance(lx, end);
    return true;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

static bool hex_escape(struct jinja_lex *lx, const char *p, const char *end, int n, int32_t *c) {
    *c = 0;
    for (int i = 0; i < n; i++) {
        int d = p + i < end ? hex_digit(p[i]) : -1;
        if (d < 0) return fail_at(lx, "truncated \\x, \\u or \\U escape in a string");
        *c = *c > 0x10FFFF ? *c : *c * 16 + d;
    }
    return *c <= 0x10FFFF || fail_at(lx, "\\U escape beyond U+10FFFF in a string");
}

/* One escape at *p (behind the backslash), as Python's literals have them. */
static bool unescape(struct jinja_lex *lx, const char **p, const char *end, struct jinja_sb *t) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *(*p)++;
    const char *known = strchr(from, c);
    int32_t u, low;
    if (c == '\n') return true;
    if (c != '\0' && known != NULL) {
        jinja_sb_addc(t, to[known - from]);
    } else if (c >= '0' && c <= '7') {
        u = c - '0';
        for (int i = 0; i < 2 && *p < end && **p >= '0' && **p <= '7'; i++)
            u = u * 8 + (*(*p)++ - '0');
        jinja_sb_addc(t, u);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        int n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (!hex_escape(lx, *p, end, n, &u)) return false;
        *p += n;
        if (u >= 0xD800 && u <= 0xDBFF && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u') {
            if (!hex_escape(lx, *p + 2, end, 4, &low)) return false;
            if (low >= 0xDC00 && low <= 0xDFFF) {
                u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
                *p += 6;
            }
        }
        if (u >= 0xD800 && u <= 0xDFFF) return fail_at(lx, "lone surrogate in a string");
        jinja_sb_addc(t, u);
    } else if (c == 'N') {
        return fail_at(lx, "\\N escapes in strings are not supported");
    } else {
        jinja_sb_addc(t, '\\');
        (*p)--;
    }
    return true;
}

static bool lex_string(struct jinja_lex *lx, struct jinja_token *t) {
    char quote = lx->s[lx->at];
    size_t at = lx->at + 1;
    bool escapes = false;
    while (at < lx->n && lx->s[at] != quote) {
        escapes |= lx->s[at] == '\\';
        at += lx->s[at] == '\\' ? 2 : 1;
    }
    if (at >= lx->n) return fail_at(lx, "a string does not end");
    t->type = TK_STR;
    t->v = span(lx, lx->at + 1, at);
    if (escapes) {
        struct jinja_sb text;
        jinja_sb_init(&text, lx->r, CHAT_TEMPLATE_STRING_BYTES_MAX);
        const char *p = t->v.s, *end = p + t->v.n;
        while (p < end) {
            const char *slash = memchr(p, '\\', (size_t)(end - p));
            jinja_sb_add(&text, p, (size_t)((slash == NULL ? end : slash) - p));
            if (slash == NULL) break;
            p = slash + 1;
            if (!unescape(lx, &p, end, &text)) return false;
        }
        if (!jinja_sb_take(&text, &t->v)) return false;
    }
    advance(lx, at + 1);
    return true;
}

static const struct {
    const char *text;
    enum jinja_tk type;
} operators[] = {
    /* longer ones first */
    {"//", TK_FLOORDIV}, {"**", TK_POW},   {"==", TK_EQ},      {"!=", TK_NE},      {">=", TK_GE},
    {"<=", TK_LE},       {"+", TK_ADD},    {"-", TK_SUB},      {"/", TK_DIV},      {"*", TK_MUL},
    {"%", TK_MOD},       {"~", TK_TILDE},  {"[", TK_LBRACKET}, {"]", TK_RBRACKET}, {"(", TK_LPAREN},
    {")", TK_RPAREN},    {"{", TK_LBRACE}, {"}", TK_RBRACE},   {">", TK_GT},       {"<", TK_LT},
    {"=", TK_ASSIGN},    {".", TK_DOT},    {":", TK_COLON},    {"|", TK_PIPE},     {",", TK_COMMA},
    {";", TK_SEMICOLON},
};

static bool balance(struct jinja_lex *lx, char c) {
    if (strchr("([{", c) != NULL) {
        if (lx->n_brackets == LEX_BRACKETS_MAX) return fail_at(lx, "too many open brackets");
        lx->brackets[lx->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        return true;
    }
    if (strchr(")]}", c) == NULL) return true;
    if (lx->n_brackets > 0 && lx->brackets[lx->n_brackets - 1] == c) {
        lx->n_brackets--;
        return true;
    }
    lx->r->line = lx->line;
    if (lx->n_brackets == 0) return jinja_fail(lx->r, "unexpected '%c'", c);
    return jinja_fail(lx->r, "unexpected '%c', expected '%c'", c, lx->brackets[lx->n_brackets - 1]);
}

static bool lex_operator(struct jinja_lex *lx, struct jinja_token *t) {
    for (size_t i = 0; i < sizeof(operators) / sizeof(*operators); i++) {
        if (!starts(lx, lx->at, operators[i].text)) continue;
        if (!balance(lx, lx->s[lx->at])) return false;
        t->type = operators[i].type;
        t->v = jv_cstr(operators[i].text);
        advance(lx, lx->at + t->v.n);
        return true;
    }
    lx->r->line = lx->line;
    size_t end = lx->at;
    jinja_char_next(lx->s, lx->n, &end);
    return jinja_fail(lx->r, "unexpected character '%.*s'", (int)(end - lx->at), lx->s + lx->at);
}

/* The end of the tag we are in; false: it does not end here. */
static bool lex_tag_end(struct jinja_lex *lx, struct jinja_token *t) {
    size_t end = 0;
    if (lx->n_brackets > 0) return false;
    if (lx->state == LEX_BLOCK) {
        end = tag_end(lx, lx->at, "%}");
    } else if (starts(lx, lx->at, "-}}")) {
        end = skip_space(lx, lx->at + 3);
    } else if (starts(lx, lx->at, "}}")) {
        end = lx->at + 2;
    }
    if (end == 0) return false;
    t->type = lx->state == LEX_BLOCK ? TK_BLOCK_END : TK_PRINT_END;
    t->v = jv_cstr(lx->state == LEX_BLOCK ? "%}" : "}}");
    lx->state = LEX_TEXT;
    advance(lx, end);
    return true;
}

static bool lex_tag(struct jinja_lex *lx, struct jinja_token *t) {
    for (;;) {
        t->line = lx->line;
        if (lex_tag_end(lx, t)) return true;
        size_t at = skip_space(lx, lx->at);
        if (at == lx->at) break;
        advance(lx, at);
    }
    if (lx->at >= lx->n) return fail_at(lx, "the template ends inside a tag");
    char c = lx->s[lx->at];
    if (c >= '0' && c <= '9') return lex_number(lx, t);
    if (c == '\'' || c == '"') return lex_string(lx, t);
    size_t end = lx->at, next = end;
    while (next < lx->n && jinja_is_word(jinja_char_next(lx->s, lx->n, &next))) end = next;
    if (end == lx->at) return lex_operator(lx, t);
    if (end - lx->at > NAME_BYTES_MAX) return fail_at(lx, "a name is too long");
    t->type = TK_NAME;
    t->v = span(lx, lx->at, end);
    advance(lx, end);
    return true;
}

bool jinja_lex_next(struct jinja_lex *lx, struct jinja_token *t) {
    *t = (struct jinja_token){.line = lx->line};
    if (!jinja_tick(lx->r, 1)) return false;
    while (lx->state == LEX_TEXT && t->type == TK_EOF) {
        if (lx->pending == TK_DATA) {
            lx->pending = TK_EOF;
            if (!lex_raw(lx, t)) return false;
            if (t->v.n == 0) t->type = TK_EOF;
        } else if (lx->pending != TK_EOF) {
            t->type = lx->pending;
            t->v = jv_cstr(t->type == TK_PRINT_BEGIN ? "{{" : "{%");
            t->line = lx->line;
            lx->state = t->type == TK_PRINT_BEGIN ? LEX_PRINT : LEX_BLOCK;
            lx->pending = TK_EOF;
        } else if (lx->at >= lx->n) {
            return true;
        } else if (!lex_text(lx, t)) {
            return false;
        }
    }
    if (t->type != TK_EOF) return true;
    return lex_tag(lx, t);
}
