/* guide_expr: the tree and its automaton; characters, classes and quantifiers as both languages
 * write them. */
#include "common/guide/guide_expr.h"

#include <stdlib.h>
#include <string.h>
#include "common/guide/grow.h"
#include "common/guide/guide.h"

struct expr *expr_new(enum expr_kind kind) {
    struct expr *x = calloc(1, sizeof(*x));
    if (x != NULL) x->kind = kind;
    return x;
}

void expr_free(struct expr *x) {
    if (x == NULL) return;
    for (size_t i = 0; i < x->n_kids; i++) expr_free(x->kids[i]);
    free(x->kids);
    cset_fini(&x->set);
    free(x);
}

bool expr_add(struct expr *x, struct expr *kid) {
    if (kid == NULL) return false;
    if (!GROW(x->kids, x->n_kids, x->cap_kids)) {
        expr_free(kid);
        return false;
    }
    x->kids[x->n_kids++] = kid;
    return true;
}

struct expr *expr_repeat(struct expr *x, int min, int max) {
    struct expr *rep = expr_new(EX_REPEAT);
    if (rep == NULL) {
        expr_free(x);
        return NULL;
    }
    rep->min = min;
    rep->max = max;
    if (expr_add(rep, x)) return rep;
    expr_free(rep);
    return NULL;
}

static void emit_repeat(const struct expr *x, struct nfa *a, int32_t from, int32_t to) {
    for (int i = 0; i < x->min && a->err == ERR_OK; i++) {
        int32_t next = nfa_state(a);
        expr_emit(x->kids[0], a, from, next);
        from = next;
    }
    if (x->max < 0) {
        /* A state of its own, so that the loop does not leak into what stands around it. */
        int32_t loop = nfa_state(a);
        nfa_eps(a, from, loop);
        expr_emit(x->kids[0], a, loop, loop);
        from = loop;
    }
    for (int i = x->min; i < x->max && a->err == ERR_OK; i++) {
        int32_t next = nfa_state(a);
        nfa_eps(a, from, to);
        expr_emit(x->kids[0], a, from, next);
        from = next;
    }
    nfa_eps(a, from, to);
}

void expr_emit(const struct expr *x, struct nfa *a, int32_t from, int32_t to) {
    if (a->err != ERR_OK) return;
    switch (x->kind) {
    case EX_EMPTY: nfa_eps(a, from, to); return;
    case EX_SET:
        for (size_t i = 0; i < x->set.n; i++)
            nfa_range(a, from, x->set.r[i].lo, x->set.r[i].hi, to);
        return;
    case EX_RULE:
        nfa_range(a, from, FA_CALL | (uint32_t)x->rule, FA_CALL | (uint32_t)x->rule, to);
        return;
    case EX_CAT:
        for (size_t i = 0; i < x->n_kids; i++) {
            int32_t next = i + 1 < x->n_kids ? nfa_state(a) : to;
            expr_emit(x->kids[i], a, from, next);
            from = next;
        }
        if (x->n_kids == 0) nfa_eps(a, from, to);
        return;
    case EX_ALT:
        for (size_t i = 0; i < x->n_kids; i++) {
            int32_t in = nfa_state(a), out = nfa_state(a);
            nfa_eps(a, from, in);
            expr_emit(x->kids[i], a, in, out);
            nfa_eps(a, out, to);
        }
        return;
    case EX_REPEAT: {
        int32_t in = nfa_state(a), out = nfa_state(a);
        nfa_eps(a, from, in);
        emit_repeat(x, a, in, out);
        nfa_eps(a, out, to);
        return;
    }
    }
}

/* ---- reading */

bool scan_fail(struct scan *s, const char *text) {
    if (s->err == ERR_OK)
        s->err = err_set(s->eb, ERR_INVALID, "%s: %s at byte %zu", s->what, text, s->at);
    return false;
}

bool scan_memory(struct scan *s) {
    if (s->err == ERR_OK) s->err = err_set(s->eb, ERR_NO_MEMORY, "%s: out of memory", s->what);
    return false;
}

uint32_t scan_cp(struct scan *s) {
    unsigned char c = s->p[s->at++];
    int more = c < 0x80 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    uint32_t cp = more == 0 ? c : c & (0x3Fu >> more);
    for (; more > 0 && s->at < s->n; more--) cp = cp << 6 | (s->p[s->at++] & 63u);
    return cp;
}

void cset_add_text(struct cset *s) {
    cset_add(s, '\t', '\n');
    cset_add(s, '\r', '\r');
    cset_add(s, 0x20, 0x7E);
    cset_add(s, 0x80, 0xD7FF);
    cset_add(s, 0xE000, CP_MAX);
}

/* What a negated class means: any text character but those of s. */
static void text_but(struct cset *s) {
    cset_normal(s);
    cset_negate(s);
    cset_remove(s, 0, 8);
    cset_remove(s, 11, 12);
    cset_remove(s, 14, 31);
    cset_remove(s, 127, 127);
}

static int hex_of(unsigned char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool scan_hex(struct scan *s, int n_min, int n_max, uint32_t *cp) {
    int n = 0;
    *cp = 0;
    for (; n < n_max && s->at < s->n && hex_of(s->p[s->at]) >= 0; n++)
        *cp = *cp * 16 + (uint32_t)hex_of(s->p[s->at++]);
    if (n < n_min) return scan_fail(s, "a hexadecimal digit is missing");
    if (*cp > CP_MAX) return scan_fail(s, "a code point is above 10FFFF");
    return true;
}

static bool scan_unicode(struct scan *s, uint32_t *cp) {
    uint32_t low;
    if (s->at < s->n && s->p[s->at] == '{') {
        s->at++;
        if (!scan_hex(s, 1, 6, cp)) return false;
        if (s->at >= s->n || s->p[s->at] != '}') return scan_fail(s, "'}' is missing");
        s->at++;
    } else if (!scan_hex(s, 4, 4, cp)) {
        return false;
    }
    if (*cp >= 0xD800 && *cp <= 0xDBFF && s->at + 2 <= s->n && s->p[s->at] == '\\' &&
        s->p[s->at + 1] == 'u') {
        s->at += 2;
        if (!scan_hex(s, 4, 4, &low)) return false;
        if (low >= 0xDC00 && low <= 0xDFFF) *cp = 0x10000 + ((*cp - 0xD800) << 10) + low - 0xDC00;
    }
    if (*cp >= 0xD800 && *cp <= 0xDFFF) return scan_fail(s, "half a surrogate pair");
    return true;
}

static void add_word(struct cset *s) {
    cset_add(s, '0', '9');
    cset_add(s, 'A', 'Z');
    cset_add(s, '_', '_');
    cset_add(s, 'a', 'z');
}

/* \d \w \s and their opposites. */
static bool shorthand(struct cset *out, unsigned char c) {
    struct cset in = {0};
    switch (c | 32) {
    case 'd': cset_add(&in, '0', '9'); break;
    case 'w': add_word(&in); break;
    case 's':
        cset_add(&in, '\t', '\n');
        cset_add(&in, '\r', '\r');
        cset_add(&in, ' ', ' ');
        break;
    default: return false;
    }
    if ((c & 32) == 0) text_but(&in);
    cset_add_all(out, &in);
    out->failed |= in.failed;
    cset_fini(&in);
    return true;
}

bool scan_escape(struct scan *s, struct cset *out, bool in_class, bool *single) {
    static const char plain[] = "^$\\.*+?()[]{}|/-\"'#&~,:;<=>@!%_ `";
    static const char from[] = "tnrfv0", to[] = {9, 10, 13, 12, 11, 0};
    const char *at;
    uint32_t cp;
    *single = true;
    if (s->at >= s->n) return scan_fail(s, "nothing follows '\\'");
    unsigned char c = s->p[s->at++];
    if (c == 'x') {
        if (!scan_hex(s, 2, 2, &cp)) return false;
    } else if (c == 'u') {
        if (!scan_unicode(s, &cp)) return false;
    } else if (c == 'U') {
        if (!scan_hex(s, 8, 8, &cp)) return false;
        if (cp >= 0xD800 && cp <= 0xDFFF) return scan_fail(s, "half a surrogate pair");
    } else if (c == 'b' && in_class) {
        cp = 8;
    } else if (c != 0 && (at = strchr(from, c)) != NULL) {
        cp = (unsigned char)to[at - from];
        if (c == '0' && s->at < s->n && s->p[s->at] >= '0' && s->p[s->at] <= '9')
            return scan_fail(s, "octal escapes are not supported");
    } else if (shorthand(out, c)) {
        *single = false;
        return true;
    } else if (c != 0 && strchr(plain, c) != NULL) {
        cp = c;
    } else {
        s->at--;
        if (c >= '1' && c <= '9') return scan_fail(s, "back references are not supported");
        if (c == 'p' || c == 'P') return scan_fail(s, "character properties are not supported");
        if (c == 'b' || c == 'B') return scan_fail(s, "word boundaries are not supported");
        return scan_fail(s, "this escape is not supported");
    }
    cset_add(out, cp, cp);
    return true;
}

/* One member of a class; *single: it may begin a range. */
static bool class_member(struct scan *s, struct cset *out, bool *single) {
    uint32_t cp;
    if (s->p[s->at] == '\\') {
        s->at++;
        return scan_escape(s, out, true, single);
    }
    if (s->p[s->at] == '[' && s->at + 1 < s->n && s->p[s->at + 1] == ':')
        return scan_fail(s, "POSIX classes are not supported");
    *single = true;
    cp = scan_cp(s);
    cset_add(out, cp, cp);
    return true;
}

bool scan_class(struct scan *s, struct cset *out) {
    bool negate = s->at < s->n && s->p[s->at] == '^', single;
    if (negate) s->at++;
    for (bool first = true;; first = false) {
        if (s->at >= s->n) return scan_fail(s, "']' is missing");
        if (s->p[s->at] == ']' && !first) break;
        if (s->p[s->at] == ']' && first) return scan_fail(s, "an empty class");
        if (!class_member(s, out, &single)) return false;
        if (out->failed) return scan_memory(s);
        if (s->at + 1 >= s->n || s->p[s->at] != '-' || s->p[s->at + 1] == ']') continue;
        if (!single) return scan_fail(s, "a range cannot begin with a class");
        s->at++;
        size_t was = out->n;
        if (!class_member(s, out, &single)) return false;
        if (out->failed) return scan_memory(s);
        if (!single || out->n != was + 1) return scan_fail(s, "a range cannot end with a class");
        uint32_t lo = out->r[was - 1].lo, hi = out->r[was].lo;
        if (lo > hi) return scan_fail(s, "a range is the wrong way round");
        out->n = was;
        out->r[was - 1].hi = hi;
    }
    s->at++;
    cset_normal(out);
    if (negate) text_but(out);
    if (!negate) cset_remove(out, 0xD800, 0xDFFF);
    if (out->failed) return scan_memory(s);
    return out->n > 0 || scan_fail(s, "the class before this allows no character");
}

static bool scan_number(struct scan *s, int *v, bool *any) {
    long n = 0;
    *any = false;
    for (; s->at < s->n && s->p[s->at] >= '0' && s->p[s->at] <= '9'; s->at++) {
        *any = true;
        n = n * 10 + (s->p[s->at] - '0');
        if (n > GUIDE_REPEAT_MAX) return scan_fail(s, "a repetition is above 65536");
    }
    *v = (int)n;
    return true;
}

static bool scan_braces(struct scan *s, int *min, int *max, bool *found) {
    size_t was = s->at++;
    bool any_min, any_max;
    if (!scan_number(s, min, &any_min)) return false;
    *max = *min;
    any_max = any_min;
    if (s->at < s->n && s->p[s->at] == ',') {
        s->at++;
        if (!scan_number(s, max, &any_max)) return false;
        if (!any_max) *max = -1;
        any_max = true;
    }
    if (s->at >= s->n || s->p[s->at] != '}' || !any_max || (!any_min && *max < 0)) {
        s->at = was;
        return scan_fail(s, "'{' must begin a quantifier; write \\{ for the character");
    }
    s->at++;
    if (*max >= 0 && *max < *min) return scan_fail(s, "a quantifier has its bounds reversed");
    *found = true;
    return true;
}

bool scan_quantifier(struct scan *s, int *min, int *max, bool *found) {
    *found = false;
    if (s->at >= s->n) return true;
    switch (s->p[s->at]) {
    case '*':
        *min = 0;
        *max = -1;
        break;
    case '+':
        *min = 1;
        *max = -1;
        break;
    case '?':
        *min = 0;
        *max = 1;
        break;
    case '{': return scan_braces(s, min, max, found);
    default: return true;
    }
    s->at++;
    *found = true;
    return true;
}

struct expr *scan_set_expr(struct scan *s, struct cset *set) {
    struct expr *x = expr_new(EX_SET);
    cset_normal(set);
    if (x == NULL || set->failed) {
        expr_free(x);
        cset_fini(set);
        scan_memory(s);
        return NULL;
    }
    x->set = *set;
    return x;
}
