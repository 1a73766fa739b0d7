/* guide_ebnf: grammars in the style of GBNF (docs/guided.md): `name ::= ...`, `|`, "literals" with
 * escapes, [classes], `.`, ( groups ), * + ? {m,n}, # comments, rule `root`. A rule ends where the
 * next `name ::=` begins, so line ends mean nothing. */
#include <string.h>
#include "common/guide/grow.h"
#include "common/guide/guide.h"
#include "common/guide/guide_build.h"

struct ebnf_rule {
    const char *name;
    size_t len;
    int32_t rule;
    bool defined;
};

struct ebnf {
    struct scan s;
    struct build *b;
    struct ebnf_rule *rules;
    size_t n_rules, cap_rules;
};

static struct expr *parse_alt(struct ebnf *g);

static void skip_space(struct scan *s) {
    for (; s->at < s->n; s->at++) {
        unsigned char c = s->p[s->at];
        if (c == '#')
            while (s->at + 1 < s->n && s->p[s->at + 1] != '\n') s->at++;
        else if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
    }
}

static size_t name_len(const struct scan *s) {
    size_t n = 0;
    for (; s->at + n < s->n; n++) {
        unsigned char c = s->p[s->at + n];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (n == 0 || !((c >= '0' && c <= '9') || c == '-'))) break;
    }
    return n;
}

/* Does `name ::=` stand here? */
static bool at_definition(const struct scan *s) {
    struct scan t = *s;
    size_t n = name_len(&t);
    if (n == 0) return false;
    t.at += n;
    skip_space(&t);
    return t.at + 3 <= t.n && memcmp(t.p + t.at, "::=", 3) == 0;
}

static struct ebnf_rule *find_rule(struct ebnf *g, const char *name, size_t n) {
    for (size_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].len == n && memcmp(g->rules[i].name, name, n) == 0) return &g->rules[i];
    if (!GROW(g->rules, g->n_rules, g->cap_rules)) {
        scan_memory(&g->s);
        return NULL;
    }
    int32_t rule = net_rule(&g->b->net, "a rule of the grammar");
    if (rule < 0) {
        scan_memory(&g->s);
        return NULL;
    }
    g->rules[g->n_rules] = (struct ebnf_rule){.name = name, .len = n, .rule = rule};
    return &g->rules[g->n_rules++];
}

static struct expr *parse_literal(struct scan *s) {
    struct expr *cat = expr_new(EX_CAT);
    if (cat == NULL) {
        scan_memory(s);
        return NULL;
    }
    s->at++;
    for (;;) {
        struct cset set = {0};
        bool single = true;
        if (s->at >= s->n) {
            scan_fail(s, "'\"' is missing");
            goto fail;
        }
        if (s->p[s->at] == '"') break;
        if (s->p[s->at] == '\\') {
            s->at++;
            if (!scan_escape(s, &set, true, &single) ||
                (!single && !scan_fail(s, "a class inside a literal"))) {
                cset_fini(&set);
                goto fail;
            }
        } else {
            uint32_t cp = scan_cp(s);
            cset_add(&set, cp, cp);
        }
        struct expr *x = scan_set_expr(s, &set);
        if (x == NULL || !expr_add(cat, x)) {
            scan_memory(s);
            goto fail;
        }
    }
    s->at++;
    return cat;
fail:
    expr_free(cat);
    return NULL;
}

static struct expr *parse_set(struct scan *s) {
    struct cset set = {0};
    s->at++;
    if (s->p[s->at - 1] == '.') {
        cset_add_text(&set);
    } else if (!scan_class(s, &set)) {
        cset_fini(&set);
        return NULL;
    }
    return scan_set_expr(s, &set);
}

static struct expr *parse_group(struct ebnf *g) {
    struct scan *s = &g->s;
    if (++s->depth > GUIDE_DEPTH_MAX) {
        scan_fail(s, "groups are nested too deep");
        return NULL;
    }
    s->at++;
    struct expr *x = parse_alt(g);
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

static struct expr *parse_atom(struct ebnf *g) {
    struct scan *s = &g->s;
    unsigned char c = s->p[s->at];
    if (c == '"') return parse_literal(s);
    if (c == '[' || c == '.') return parse_set(s);
    if (c == '(') return parse_group(g);
    size_t n = name_len(s);
    if (n == 0) {
        scan_fail(s, "a rule, literal, class or group is expected");
        return NULL;
    }
    struct ebnf_rule *r = find_rule(g, (const char *)s->p + s->at, n);
    struct expr *x = expr_new(EX_RULE);
    if (r == NULL || x == NULL) {
        expr_free(x);
        scan_memory(s);
        return NULL;
    }
    x->rule = r->rule;
    s->at += n;
    return x;
}

static struct expr *parse_piece(struct ebnf *g) {
    struct expr *x = parse_atom(g);
    int min, max, n = 0;
    bool found = true;
    while (x != NULL && found) {
        if (!scan_quantifier(&g->s, &min, &max, &found)) {
            expr_free(x);
            return NULL;
        }
        if (!found) break;
        if (++n > 4) {
            scan_fail(&g->s, "too many quantifiers in a row");
            expr_free(x);
            return NULL;
        }
        x = expr_repeat(x, min, max);
        if (x == NULL) scan_memory(&g->s);
    }
    return x;
}

static struct expr *parse_cat(struct ebnf *g) {
    struct scan *s = &g->s;
    struct expr *cat = expr_new(EX_CAT);
    if (cat == NULL) {
        scan_memory(s);
        return NULL;
    }
    for (;;) {
        skip_space(s);
        if (s->at >= s->n || s->p[s->at] == '|' || s->p[s->at] == ')' || at_definition(s))
            return cat;
        struct expr *x = parse_piece(g);
        if (x == NULL || !expr_add(cat, x)) {
            if (x != NULL) scan_memory(s);
            expr_free(cat);
            return NULL;
        }
    }
}

static struct expr *parse_alt(struct ebnf *g) {
    struct expr *alt = expr_new(EX_ALT);
    if (alt == NULL) {
        scan_memory(&g->s);
        return NULL;
    }
    for (;;) {
        struct expr *x = parse_cat(g);
        if (x == NULL || !expr_add(alt, x)) {
            if (x != NULL) scan_memory(&g->s);
            expr_free(alt);
            return NULL;
        }
        if (g->s.at >= g->s.n || g->s.p[g->s.at] != '|') return alt;
        g->s.at++;
    }
}

static enum err parse_rule(struct ebnf *g) {
    struct scan *s = &g->s;
    struct nfa a = {0};
    if (!at_definition(s)) {
        scan_fail(s, "'name ::=' is expected");
        return s->err;
    }
    size_t n = name_len(s);
    struct ebnf_rule *r = find_rule(g, (const char *)s->p + s->at, n);
    if (r == NULL) return s->err;
    int32_t rule = r->rule;
    if (r->defined) {
        scan_fail(s, "a rule is defined twice");
        return s->err;
    }
    r->defined = true;
    s->at += n;
    skip_space(s);
    s->at += 3;
    struct expr *x = parse_alt(g);
    if (x == NULL) return s->err;
    if (s->at < s->n && s->p[s->at] == ')') {
        scan_fail(s, "')' without '('");
        expr_free(x);
        return s->err;
    }
    int32_t start = nfa_state(&a), end = nfa_state(&a);
    expr_emit(x, &a, start, end);
    expr_free(x);
    enum err e = net_define_nfa(&g->b->net, rule, &a, start, end, LOWER_RAW);
    nfa_fini(&a);
    return e;
}

enum err ebnf_guide(struct build *b, struct nfa *a, int32_t from, int32_t to, const char *text,
                    size_t n) {
    struct ebnf g = {
        .s = {.p = (const unsigned char *)text, .n = n, .eb = b->eb, .what = "grammar"},
        .b = b,
    };
    enum err e = ERR_OK;
    bool root = false;
    skip_space(&g.s);
    while (e == ERR_OK && g.s.at < g.s.n) {
        e = parse_rule(&g);
        skip_space(&g.s);
    }
    for (size_t i = 0; i < g.n_rules && e == ERR_OK; i++) {
        const struct ebnf_rule *r = &g.rules[i];
        if (!r->defined)
            e = err_set(b->eb, ERR_INVALID, "grammar: rule '%.*s' is not defined",
                        (int)(r->len < 100 ? r->len : 100), r->name);
        if (r->len != 4 || memcmp(r->name, "root", 4) != 0) continue;
        root = true;
        nfa_call(a, from, r->rule, to);
    }
    if (e == ERR_OK && !root) e = err_set(b->eb, ERR_INVALID, "grammar: there is no rule 'root'");
    free(g.rules);
    return e;
}
