/* guide_regex: a subset of ECMA 262 regular expressions that is regular indeed: no look-around, no
 * back references. '^' and '$' stand at the beginning and at the end of an alternative only, groups
 * around the whole of it included; elsewhere they would need empty tests inside the automaton. */
#include <string.h>
#include "common/guide/guide.h"
#include "common/guide/guide_expr.h"

enum { ANCHOR_BEGIN = 1, ANCHOR_END = 2 };

struct regex {
    struct scan s;
    bool search;
};

static struct expr *parse_alt(struct regex *r, bool outer);

/* Skips what follows "(?" of a group that only groups. */
static bool group_head(struct scan *s) {
    if (s->at >= s->n || s->p[s->at] != '?') return true;
    s->at++;
    if (s->at < s->n && s->p[s->at] == ':') {
        s->at++;
        return true;
    }
    if (s->at < s->n && s->p[s->at] == 'P') s->at++;
    if (s->at + 1 < s->n && s->p[s->at] == '<' && s->p[s->at + 1] != '=' &&
        s->p[s->at + 1] != '!') {
        while (s->at < s->n && s->p[s->at] != '>') s->at++;
        if (s->at >= s->n) return scan_fail(s, "'>' is missing");
        s->at++;
        return true;
    }
    return scan_fail(s, "look-around, conditions and flags are not supported");
}

static struct expr *parse_group(struct regex *r, bool outer) {
    struct scan *s = &r->s;
    struct expr *x;
    if (++s->depth > GUIDE_DEPTH_MAX) {
        scan_fail(s, "groups are nested too deep");
        return NULL;
    }
    if (!group_head(s)) return NULL;
    x = parse_alt(r, outer);
    s->depth--;
    if (x == NULL) return NULL;
    if (s->at >= s->n || s->p[s->at] != ')') {
        scan_fail(s, "')' is missing");
        expr_free(x);
        return NULL;
    }
    s->at++;
    return x;
}

static struct expr *parse_atom(struct regex *r, bool outer) {
    struct scan *s = &r->s;
    struct cset set = {0};
    bool single;
    unsigned char c = s->p[s->at];
    if (c == '(') {
        s->at++;
        return parse_group(r, outer);
    }
    if (c == '[') {
        s->at++;
        if (!scan_class(s, &set)) goto fail;
    } else if (c == '\\') {
        s->at++;
        if (!scan_escape(s, &set, false, &single)) goto fail;
    } else if (c == '.') {
        s->at++;
        cset_add_text(&set);
        cset_normal(&set);
        cset_remove(&set, '\n', '\n');
        cset_remove(&set, '\r', '\r');
        cset_remove(&set, 0x2028, 0x2029);
    } else if (c == '*' || c == '+' || c == '?') {
        scan_fail(s, "nothing to repeat");
        return NULL;
    } else if (c == '^' || c == '$') {
        scan_fail(s, "'^' and '$' are supported only around a whole alternative");
        return NULL;
    } else if (c == '{' || c == '}' || c == ']') {
        scan_fail(s, "this character needs '\\' before it");
        return NULL;
    } else {
        uint32_t cp = scan_cp(s);
        cset_add(&set, cp, cp);
    }
    return scan_set_expr(s, &set);
fail:
    cset_fini(&set);
    return NULL;
}

/* One atom with its quantifier. */
static struct expr *parse_piece(struct regex *r, bool outer) {
    struct scan *s = &r->s;
    struct expr *x = parse_atom(r, outer);
    int min, max;
    bool found;
    if (x == NULL) return NULL;
    if (!scan_quantifier(s, &min, &max, &found)) {
        expr_free(x);
        return NULL;
    }
    if (!found) return x;
    if (s->at < s->n && s->p[s->at] == '?') s->at++; /* lazy: the same texts */
    if (s->at < s->n && strchr("*+?{", s->p[s->at]) != NULL && s->p[s->at] != 0) {
        scan_fail(s, s->p[s->at] == '+' ? "possessive quantifiers are not supported"
                                        : "nothing to repeat");
        expr_free(x);
        return NULL;
    }
    x = expr_repeat(x, min, max);
    if (x == NULL) scan_memory(s);
    return x;
}

static bool at_end_of_alternative(const struct scan *s) {
    return s->at >= s->n || s->p[s->at] == '|' || s->p[s->at] == ')';
}

/* Does the group that begins here reach to the end of its alternative? Then anchors inside it are
 * those of the alternative. */
static bool group_is_all(const struct scan *s) {
    size_t at = s->at;
    int depth = 0;
    bool in_class = false;
    if (at >= s->n || s->p[at] != '(') return false;
    for (; at < s->n; at++) {
        unsigned char c = s->p[at];
        if (c == '\\') {
            at++;
        } else if (in_class) {
            in_class = c != ']';
        } else if (c == '[') {
            in_class = true;
        } else if (c == '(') {
            depth++;
        } else if (c == ')' && --depth == 0) {
            break;
        }
    }
    at++;
    return at >= s->n || s->p[at] == '|' || s->p[at] == ')';
}

static bool add_any(struct scan *s, struct expr *cat) {
    struct cset set = {0};
    struct expr *x;
    cset_add_text(&set);
    x = scan_set_expr(s, &set);
    if (x == NULL) return false;
    return expr_add(cat, expr_repeat(x, 0, -1)) || scan_memory(s);
}

/* outer: this alternative is a whole one, so anchors may stand here, and a search begins and ends
 * with any text. */
static struct expr *parse_cat(struct regex *r, bool outer) {
    struct scan *s = &r->s;
    struct expr *cat = expr_new(EX_CAT), *x;
    bool begin = false, end = false, all = outer && group_is_all(s);
    if (cat == NULL) {
        scan_memory(s);
        return NULL;
    }
    while (outer && s->at < s->n && s->p[s->at] == '^') {
        s->at++;
        begin = true;
        all = false;
    }
    if (outer && r->search && !begin && !all && !add_any(s, cat)) goto fail;
    while (!at_end_of_alternative(s)) {
        if (outer && s->p[s->at] == '$') {
            s->at++;
            end = true;
            if (!at_end_of_alternative(s) && s->p[s->at] != '$') {
                scan_fail(s, "'$' is supported only at the end of an alternative");
                goto fail;
            }
            continue;
        }
        x = parse_piece(r, all);
        if (x == NULL) goto fail;
        if (!expr_add(cat, x)) {
            scan_memory(s);
            goto fail;
        }
    }
    if (outer && r->search && !end && !all && !add_any(s, cat)) goto fail;
    return cat;
fail:
    expr_free(cat);
    return NULL;
}

static struct expr *parse_alt(struct regex *r, bool outer) {
    struct expr *alt = expr_new(EX_ALT), *x;
    if (alt == NULL) {
        scan_memory(&r->s);
        return NULL;
    }
    for (;;) {
        x = parse_cat(r, outer);
        if (x == NULL || !expr_add(alt, x)) {
            if (x != NULL) scan_memory(&r->s);
            expr_free(alt);
            return NULL;
        }
        if (r->s.at >= r->s.n || r->s.p[r->s.at] != '|') return alt;
        r->s.at++;
    }
}

enum err regex_emit(struct nfa *a, int32_t from, int32_t to, const char *re, size_t n, bool search,
                    struct errbuf *eb) {
    struct regex r = {
        .s = {.p = (const unsigned char *)re, .n = n, .eb = eb, .what = "regex"},
        .search = search,
    };
    struct expr *x = parse_alt(&r, true);
    if (x != NULL && r.s.at < r.s.n) scan_fail(&r.s, "')' without '('");
    if (r.s.err == ERR_OK) expr_emit(x, a, from, to);
    expr_free(x);
    return r.s.err;
}
