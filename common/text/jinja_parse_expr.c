/* jinja_parse_expr: expressions, by Jinja's own precedence: if-else, or, and, not, comparison, +
 * and -,
 * ~, * / // %, **, sign, then filters and tests bound to the value before them. */
#include "common/text/jinja_parse.h"

#include <string.h>
#include "common/text/jinja_call.h"

/* A list under construction; grows in the template's memory. */
struct items {
    struct jinja_expr **e;
    size_t n, cap;
};

static bool items_push(struct jinja_parser *p, struct items *l, struct jinja_expr *e) {
    if (l->n == l->cap) {
        size_t cap = l->cap == 0 ? 4 : l->cap * 2;
        struct jinja_expr **q = jinja_alloc(p->r, cap * sizeof(struct jinja_expr *));
        if (q == NULL) return false;
        if (l->n > 0) memcpy(q, l->e, l->n * sizeof(*q));
        l->e = q;
        l->cap = cap;
    }
    l->e[l->n++] = e;
    return true;
}

static struct jinja_exprs items_done(const struct items *l) {
    return (struct jinja_exprs){l->e, l->n};
}

struct jinja_expr *jp_node(struct jinja_parser *p, enum jinja_expr_kind kind, uint32_t line) {
    struct jinja_expr *e = jinja_alloc(p->r, sizeof(*e));
    if (e != NULL) *e = (struct jinja_expr){.kind = kind, .line = line};
    return e;
}

static bool node2(struct jinja_parser *p, enum jinja_expr_kind kind, uint32_t line,
                  struct jinja_expr *a, struct jinja_expr *b, struct jinja_expr **out) {
    struct jinja_expr *e = jp_node(p, kind, line);
    if (e == NULL) return false;
    e->a = a;
    e->b = b;
    e->c = e->d = NULL;
    *out = e;
    return true;
}

static bool node_const(struct jinja_parser *p, uint32_t line, struct jv v,
                       struct jinja_expr **out) {
    *out = jp_node(p, EX_CONST, line);
    if (*out == NULL) return false;
    (*out)->value = v;
    return true;
}

static void note_name(struct jinja_parser *p, const struct jv *name) {
    for (struct jinja_body_names *b = p->names; b != NULL; b = b->outer) {
        b->loop |= jv_is_str(name, "loop");
        b->varargs |= jv_is_str(name, "varargs");
        b->kwargs |= jv_is_str(name, "kwargs");
        b->caller |= jv_is_str(name, "caller");
    }
}

/* ---- primary expressions */

static bool parse_list(struct jinja_parser *p, struct jinja_expr **out) {
    struct items l = {0};
    uint32_t line = p->tok.line;
    if (!jp_next(p)) return false;
    while (p->tok.type != TK_RBRACKET) {
        struct jinja_expr *e;
        if (l.n > 0) {
            if (!jp_expect(p, TK_COMMA, "','")) return false;
            if (p->tok.type == TK_RBRACKET) break;
        }
        if (!jp_expression(p, true, &e) || !items_push(p, &l, e)) return false;
    }
    if (!jp_next(p) || (*out = jp_node(p, EX_LIST, line)) == NULL) return false;
    (*out)->items = items_done(&l);
    return true;
}

static bool parse_dict(struct jinja_parser *p, struct jinja_expr **out) {
    struct items l = {0};
    uint32_t line = p->tok.line;
    if (!jp_next(p)) return false;
    while (p->tok.type != TK_RBRACE) {
        struct jinja_expr *k, *v;
        if (l.n > 0) {
            if (!jp_expect(p, TK_COMMA, "','")) return false;
            if (p->tok.type == TK_RBRACE) break;
        }
        if (!jp_expression(p, true, &k) || !jp_expect(p, TK_COLON, "':'") ||
            !jp_expression(p, true, &v)) {
            return false;
        }
        if (!items_push(p, &l, k) || !items_push(p, &l, v)) return false;
    }
    if (!jp_next(p) || (*out = jp_node(p, EX_DICT, line)) == NULL) return false;
    (*out)->items = items_done(&l);
    return true;
}

static bool parse_strings(struct jinja_parser *p, struct jinja_expr **out) {
    struct jinja_token first = p->tok;
    if (!jp_next(p)) return false;
    if (p->tok.type == TK_STR) {
        struct jinja_sb t;
        jinja_sb_init(&t, p->r, SIZE_MAX); /* shorter than the template */
        jinja_sb_add(&t, first.v.s, first.v.n);
        while (p->tok.type == TK_STR) {
            jinja_sb_add(&t, p->tok.v.s, p->tok.v.n);
            if (!jp_next(p)) return false;
        }
        if (!jinja_sb_take(&t, &first.v)) return false;
    }
    return node_const(p, first.line, first.v, out);
}

static bool parse_tuple_in(struct jinja_parser *p, bool simple, bool with_if, bool parens,
                           const char *end_word, struct jinja_expr **out);

static bool parse_primary(struct jinja_parser *p, struct jinja_expr **out) {
    const struct jinja_token t = p->tok;
    switch (t.type) {
    case TK_NAME:
        if (!jp_next(p)) return false;
        if (jp_is_name(&t, "true") || jp_is_name(&t, "True"))
            return node_const(p, t.line, jv_bool(true), out);
        if (jp_is_name(&t, "false") || jp_is_name(&t, "False"))
            return node_const(p, t.line, jv_bool(false), out);
        if (jp_is_name(&t, "none") || jp_is_name(&t, "None"))
            return node_const(p, t.line, jv_none(), out);
        if ((*out = jp_node(p, EX_NAME, t.line)) == NULL) return false;
        (*out)->value = t.v;
        note_name(p, &t.v);
        return true;
    case TK_STR: return parse_strings(p, out);
    case TK_NUMBER: return jp_next(p) && node_const(p, t.line, t.v, out);
    case TK_LPAREN:
        return jp_next(p) && parse_tuple_in(p, false, true, true, NULL, out) &&
               jp_expect(p, TK_RPAREN, "')'");
    case TK_LBRACKET: return parse_list(p, out);
    case TK_LBRACE: return parse_dict(p, out);
    default: return jp_unexpected(p, "an expression");
    }
}

static bool tuple_ends(const struct jinja_parser *p, const char *end_word) {
    return p->tok.type == TK_PRINT_END || p->tok.type == TK_BLOCK_END || p->tok.type == TK_RPAREN ||
           (end_word != NULL && jp_is_name(&p->tok, end_word));
}

static bool parse_tuple_in(struct jinja_parser *p, bool simple, bool with_if, bool parens,
                           const char *end_word, struct jinja_expr **out) {
    struct items l = {0};
    bool comma = false;
    uint32_t line = p->tok.line;
    while (!tuple_ends(p, end_word)) {
        struct jinja_expr *e;
        bool did;
        if (simple) {
            if (!jp_enter(p) || !parse_primary(p, &e)) return false;
            jp_leave(p);
        } else if (!jp_expression(p, with_if, &e)) {
            return false;
        }
        if (!items_push(p, &l, e) || !jp_skip_if(p, TK_COMMA, &did)) return false;
        if (!did) break;
        comma = true;
    }
    if (!comma && l.n == 1) {
        *out = l.e[0];
        return true;
    }
    if (l.n == 0 && !parens) return jp_unexpected(p, "an expression");
    if ((*out = jp_node(p, EX_TUPLE, line)) == NULL) return false;
    (*out)->items = items_done(&l);
    return true;
}

bool jp_tuple(struct jinja_parser *p, bool with_if, const char *end_word, struct jinja_expr **out) {
    return parse_tuple_in(p, false, with_if, false, end_word, out);
}

/* ---- what follows a value: .name, [item], (call), |filter, is test */

static bool parse_subscript(struct jinja_parser *p, struct jinja_expr *of,
                            struct jinja_expr **out) {
    uint32_t line = p->tok.line;
    struct jinja_expr *part[3] = {NULL, NULL, NULL};
    int n_colons = 0;
    if (!jp_next(p)) return false;
    if (p->tok.type == TK_RBRACKET || p->tok.type == TK_COMMA) return jp_unexpected(p, "an index");
    while (p->tok.type != TK_RBRACKET && p->tok.type != TK_COMMA) {
        bool colon = false;
        if (p->tok.type != TK_COLON && !jp_expression(p, true, &part[n_colons])) return false;
        if (n_colons < 2 && !jp_skip_if(p, TK_COLON, &colon)) return false;
        if (!colon) break;
        n_colons++;
    }
    if (n_colons == 0 && p->tok.type == TK_COMMA) { /* a[1, 2]: a tuple as key */
        struct items l = {0};
        if (!items_push(p, &l, part[0])) return false;
        while (p->tok.type == TK_COMMA) {
            struct jinja_expr *e;
            if (!jp_next(p)) return false;
            if (p->tok.type == TK_RBRACKET) return jp_unexpected(p, "an index");
            if (!jp_expression(p, true, &e) || !items_push(p, &l, e)) return false;
        }
        if ((part[0] = jp_node(p, EX_TUPLE, line)) == NULL) return false;
        part[0]->items = items_done(&l);
    }
    if (!jp_expect(p, TK_RBRACKET, "']'")) return false;
    if (!node2(p, n_colons > 0 ? EX_SLICE : EX_ITEM, line, of, part[0], out)) return false;
    (*out)->c = part[1];
    (*out)->d = part[2];
    return true;
}

static bool parse_dot(struct jinja_parser *p, struct jinja_expr *of, struct jinja_expr **out) {
    uint32_t line = p->tok.line;
    struct jinja_expr *idx;
    if (!jp_next(p)) return false;
    if (p->tok.type == TK_NUMBER && p->tok.v.type == JV_INT) {
        return node_const(p, line, p->tok.v, &idx) && jp_next(p) &&
               node2(p, EX_ITEM, line, of, idx, out);
    }
    if (p->tok.type != TK_NAME) return jp_unexpected(p, "a name or number after '.'");
    if ((*out = jp_node(p, EX_ATTR, line)) == NULL) return false;
    (*out)->of = of;
    (*out)->name = p->tok.v;
    return jp_next(p);
}

static bool parse_args(struct jinja_parser *p, struct jinja_arg_exprs **out) {
    struct items pos = {0}, kw = {0}, names = {0};
    struct jinja_arg_exprs *a = jinja_alloc(p->r, sizeof(*a));
    uint32_t line = p->tok.line;
    if (a == NULL || !jp_next(p)) return false;
    *a = (struct jinja_arg_exprs){0};
    bool comma = false;
    while (p->tok.type != TK_RPAREN) {
        struct jinja_expr *e, *name;
        if (comma && !jp_expect(p, TK_COMMA, "','")) return false;
        if (comma && p->tok.type == TK_RPAREN) break;
        comma = true;
        bool star = p->tok.type == TK_MUL, stars = p->tok.type == TK_POW, named = false;
        if (p->tok.type == TK_NAME) {
            if (!jp_look(p)) return false;
            named = p->ahead.type == TK_ASSIGN;
        }
        if (a->dyn_kw != NULL || (star && a->dyn != NULL) ||
            (!star && !stars && !named && (kw.n > 0 || a->dyn != NULL))) {
            p->r->line = line;
            return jinja_fail(p->r, "invalid order of arguments in a call");
        }
        if (named && (!node_const(p, p->tok.line, p->tok.v, &name) || !jp_next(p))) return false;
        if ((star || stars || named) && !jp_next(p)) return false;
        if (!jp_expression(p, true, &e)) return false;
        if (star) {
            a->dyn = e;
        } else if (stars) {
            a->dyn_kw = e;
        } else if (named) {
            for (size_t i = 0; i < names.n; i++) {
                if (names.e[i]->value.n == name->value.n &&
                    memcmp(names.e[i]->value.s, name->value.s, name->value.n) == 0) {
                    return jinja_fail(p->r, "keyword argument '%.*s' repeated", (int)name->value.n,
                                      name->value.s);
                }
            }
            if (!items_push(p, &kw, e) || !items_push(p, &names, name)) return false;
        } else if (!items_push(p, &pos, e)) {
            return false;
        }
    }
    a->pos = items_done(&pos);
    a->kw = items_done(&kw);
    a->kw_names = jinja_alloc(p->r, names.n * sizeof(struct jv));
    if (a->kw_names == NULL) return false;
    for (size_t i = 0; i < names.n; i++) a->kw_names[i] = names.e[i]->value;
    *out = a;
    return jp_next(p);
}

static bool no_args(struct jinja_parser *p, struct jinja_arg_exprs **out) {
    *out = jinja_alloc(p->r, sizeof(**out));
    if (*out == NULL) return false;
    **out = (struct jinja_arg_exprs){0};
    return true;
}

bool jp_call(struct jinja_parser *p, struct jinja_expr *callee, struct jinja_expr **out) {
    struct jinja_expr *e = jp_node(p, EX_CALL, p->tok.line);
    if (e == NULL) return false;
    e->call.callee = callee;
    *out = e;
    return parse_args(p, &e->call.args);
}

static bool parse_postfix(struct jinja_parser *p, struct jinja_expr *e, struct jinja_expr **out) {
    for (;;) {
        bool ok = true;
        switch (p->tok.type) {
        case TK_DOT: ok = parse_dot(p, e, &e); break;
        case TK_LBRACKET: ok = parse_subscript(p, e, &e); break;
        case TK_LPAREN: ok = jp_call(p, e, &e); break;
        default: *out = e; return true;
        }
        if (!ok) return false;
    }
}

/* The name of a filter or test, dots and all, as a C string. */
static bool parse_def_name(struct jinja_parser *p, const char **out) {
    struct jinja_sb t;
    struct jv name;
    jinja_sb_init(&t, p->r, SIZE_MAX);
    for (;;) {
        bool did;
        if (p->tok.type != TK_NAME) return jp_unexpected(p, "the name of a filter or test");
        jinja_sb_add(&t, p->tok.v.s, p->tok.v.n);
        if (!jp_next(p) || !jp_skip_if(p, TK_DOT, &did)) return false;
        if (!did) break;
        jinja_sb_addc(&t, '.');
    }
    jinja_sb_add(&t, "", 1);
    if (!jinja_sb_take(&t, &name)) return false;
    *out = name.s;
    return true;
}

bool jp_filters(struct jinja_parser *p, struct jinja_expr *of, bool at_name,
                struct jinja_expr **out) {
    while (at_name || p->tok.type == TK_PIPE) {
        if (!at_name && !jp_next(p)) return false;
        at_name = false;
        struct jinja_expr *e = jp_node(p, EX_FILTER, p->tok.line);
        if (e == NULL || !parse_def_name(p, &e->call.def_name)) return false;
        e->call.callee = of;
        e->call.def = jinja_filter_find(e->call.def_name, strlen(e->call.def_name));
        if (!(p->tok.type == TK_LPAREN ? parse_args(p, &e->call.args) : no_args(p, &e->call.args)))
            return false;
        of = e;
    }
    *out = of;
    return true;
}

static bool starts_test_arg(const struct jinja_parser *p) {
    if (jp_is_name(&p->tok, "else") || jp_is_name(&p->tok, "or") || jp_is_name(&p->tok, "and"))
        return false;
    return p->tok.type == TK_NAME || p->tok.type == TK_STR || p->tok.type == TK_NUMBER ||
           p->tok.type == TK_LBRACKET || p->tok.type == TK_LBRACE;
}

static bool parse_test(struct jinja_parser *p, struct jinja_expr *of, struct jinja_expr **out) {
    bool negated;
    struct jinja_expr *e = jp_node(p, EX_TEST, p->tok.line), *arg;
    if (e == NULL || !jp_next(p) || !jp_skip_word(p, "not", &negated)) return false;
    if (!parse_def_name(p, &e->call.def_name)) return false;
    e->call.callee = of;
    e->call.def = jinja_test_find(e->call.def_name, strlen(e->call.def_name));
    if (p->tok.type == TK_LPAREN) {
        if (!parse_args(p, &e->call.args)) return false;
    } else {
        if (!no_args(p, &e->call.args)) return false;
        if (starts_test_arg(p)) {
            struct items l = {0};
            if (jp_is_name(&p->tok, "is"))
                return jinja_fail(p->r, "tests cannot be chained with is");
            if (!parse_primary(p, &arg) || !parse_postfix(p, arg, &arg) || !items_push(p, &l, arg))
                return false;
            e->call.args->pos = items_done(&l);
        }
    }
    if (negated) return node2(p, EX_NOT, e->line, e, NULL, out);
    *out = e;
    return true;
}

static bool parse_filter_expr(struct jinja_parser *p, struct jinja_expr *e,
                              struct jinja_expr **out) {
    for (;;) {
        bool ok = true;
        if (p->tok.type == TK_PIPE) {
            ok = jp_filters(p, e, false, &e);
        } else if (jp_is_name(&p->tok, "is")) {
            ok = parse_test(p, e, &e);
        } else if (p->tok.type == TK_LPAREN) {
            ok = jp_call(p, e, &e);
        } else {
            *out = e;
            return true;
        }
        if (!ok) return false;
    }
}

/* ---- operators */

static bool parse_unary(struct jinja_parser *p, bool with_filter, struct jinja_expr **out) {
    uint32_t line = p->tok.line;
    struct jinja_expr *e;
    if (p->tok.type == TK_SUB || p->tok.type == TK_ADD) {
        enum jinja_expr_kind kind = p->tok.type == TK_SUB ? EX_NEG : EX_POS;
        if (!jp_enter(p) || !jp_next(p) || !parse_unary(p, false, &e)) return false;
        jp_leave(p);
        if (!node2(p, kind, line, e, NULL, &e)) return false;
    } else if (!parse_primary(p, &e)) {
        return false;
    }
    if (!parse_postfix(p, e, &e)) return false;
    if (with_filter && !parse_filter_expr(p, e, &e)) return false;
    *out = e;
    return true;
}

static enum jinja_op arith_op(enum jinja_tk t) {
    switch (t) {
    case TK_ADD: return OP_ADD;
    case TK_SUB: return OP_SUB;
    case TK_MUL: return OP_MUL;
    case TK_DIV: return OP_DIV;
    case TK_FLOORDIV: return OP_FLOORDIV;
    case TK_MOD: return OP_MOD;
    case TK_POW: return OP_POW;
    default: return OP_NONE;
    }
}

static bool parse_concat(struct jinja_parser *p, struct jinja_expr **out);

/* level 0: + -; level 1: * / // %; level 2: **. All lean to the left, ** too. */
static bool parse_arith(struct jinja_parser *p, int level, struct jinja_expr **out) {
    struct jinja_expr *e;
    for (bool first = true;; first = false) {
        struct jinja_expr *right;
        enum jinja_op op = OP_NONE;
        uint32_t line = p->tok.line;
        if (!first) {
            op = arith_op(p->tok.type);
            int of_level = op == OP_NONE ? -1 : op <= OP_SUB ? 0 : op <= OP_MOD ? 1 : 2;
            if (of_level != level) break;
            if (!jp_next(p)) return false;
        }
        bool ok = level == 0   ? parse_concat(p, &right)
                  : level == 1 ? parse_arith(p, 2, &right)
                               : parse_unary(p, true, &right);
        if (!ok) return false;
        if (first) {
            e = right;
        } else {
            if (!node2(p, EX_ARITH, line, e, right, &e)) return false;
            e->op = (uint8_t)op;
        }
    }
    *out = e;
    return true;
}

static bool parse_concat(struct jinja_parser *p, struct jinja_expr **out) {
    struct items l = {0};
    uint32_t line = p->tok.line;
    bool more = true;
    while (more) {
        struct jinja_expr *e;
        if (!parse_arith(p, 1, &e) || !items_push(p, &l, e) || !jp_skip_if(p, TK_TILDE, &more))
            return false;
    }
    *out = l.e[0];
    if (l.n == 1) return true;
    if ((*out = jp_node(p, EX_CONCAT, line)) == NULL) return false;
    (*out)->items = items_done(&l);
    return true;
}

/* The comparison at hand, skipped; OP_NONE when there is none. */
static bool compare_op(struct jinja_parser *p, enum jinja_op *op) {
    *op = OP_NONE;
    switch (p->tok.type) {
    case TK_EQ: *op = OP_EQ; break;
    case TK_NE: *op = OP_NE; break;
    case TK_LT: *op = OP_LT; break;
    case TK_LE: *op = OP_LE; break;
    case TK_GT: *op = OP_GT; break;
    case TK_GE: *op = OP_GE; break;
    default:
        if (jp_is_name(&p->tok, "in")) {
            *op = OP_IN;
        } else if (jp_is_name(&p->tok, "not")) {
            if (!jp_look(p)) return false;
            if (!jp_is_name(&p->ahead, "in")) return true;
            *op = OP_NOT_IN;
            if (!jp_next(p)) return false;
        } else {
            return true;
        }
    }
    return jp_next(p);
}

static bool parse_compare(struct jinja_parser *p, struct jinja_expr **out) {
    struct items l = {0};
    uint8_t *ops = NULL;
    size_t cap = 0;
    uint32_t line = p->tok.line;
    for (;;) {
        struct jinja_expr *e;
        enum jinja_op op;
        if (!parse_arith(p, 0, &e) || !items_push(p, &l, e) || !compare_op(p, &op)) return false;
        if (op == OP_NONE) break;
        if (l.n > cap) {
            uint8_t *q = jinja_alloc(p->r, cap = l.n * 2);
            if (q == NULL) return false;
            if (l.n > 1) memcpy(q, ops, l.n - 1);
            ops = q;
        }
        ops[l.n - 1] = (uint8_t)op;
    }
    *out = l.e[0];
    if (l.n == 1) return true;
    if ((*out = jp_node(p, EX_COMPARE, line)) == NULL) return false;
    (*out)->items = items_done(&l);
    (*out)->ops = ops;
    return true;
}

static bool parse_not(struct jinja_parser *p, struct jinja_expr **out) {
    uint32_t line = p->tok.line;
    struct jinja_expr *e;
    if (!jp_is_name(&p->tok, "not")) return parse_compare(p, out);
    if (!jp_enter(p) || !jp_next(p) || !parse_not(p, &e)) return false;
    jp_leave(p);
    return node2(p, EX_NOT, line, e, NULL, out);
}

static bool parse_logic(struct jinja_parser *p, bool is_or, struct jinja_expr **out) {
    struct jinja_expr *e, *right;
    uint32_t line = p->tok.line;
    if (!(is_or ? parse_logic(p, false, &e) : parse_not(p, &e))) return false;
    for (;;) {
        bool did;
        if (!jp_skip_word(p, is_or ? "or" : "and", &did)) return false;
        if (!did) break;
        if (!(is_or ? parse_logic(p, false, &right) : parse_not(p, &right))) return false;
        if (!node2(p, is_or ? EX_OR : EX_AND, line, e, right, &e)) return false;
    }
    *out = e;
    return true;
}

bool jp_expression(struct jinja_parser *p, bool with_if, struct jinja_expr **out) {
    struct jinja_expr *e, *test, *other;
    uint32_t line = p->tok.line;
    if (!jp_enter(p) || !parse_logic(p, true, &e)) return false;
    while (with_if) {
        bool is_if, is_else;
        if (!jp_skip_word(p, "if", &is_if)) return false;
        if (!is_if) break;
        if (!parse_logic(p, true, &test) || !jp_skip_word(p, "else", &is_else)) return false;
        other = NULL;
        if (is_else && !jp_expression(p, true, &other)) return false;
        if (!node2(p, EX_IF, line, e, test, &e)) return false;
        e->c = other;
    }
    jp_leave(p);
    *out = e;
    return true;
}

/* ---- targets */

static bool check_target(struct jinja_parser *p, const struct jinja_expr *e) {
    p->r->line = e->line;
    if (e->kind == EX_NAME) {
        if (p->fors > 0 && jv_is_str(&e->value, "loop")) {
            return jinja_fail(p->r,
                              "cannot assign to the special variable loop inside a for block");
        }
        return true;
    }
    if (e->kind != EX_TUPLE) return jinja_fail(p->r, "cannot assign to this expression");
    for (size_t i = 0; i < e->items.n; i++) {
        if (!check_target(p, e->items.e[i])) return false;
    }
    return true;
}

bool jp_target(struct jinja_parser *p, bool with_tuple, bool with_namespace, const char *end_word,
               struct jinja_expr **out) {
    if (with_namespace && p->tok.type == TK_NAME) {
        if (!jp_look(p)) return false;
        if (p->ahead.type == TK_DOT) {
            struct jinja_expr *ns = jp_node(p, EX_NAME, p->tok.line);
            if (ns == NULL) return false;
            ns->value = p->tok.v;
            if (!jp_next(p) || !jp_next(p)) return false;
            if (p->tok.type != TK_NAME) return jp_unexpected(p, "a name after '.'");
            if ((*out = jp_node(p, EX_ATTR, ns->line)) == NULL) return false;
            (*out)->of = ns;
            (*out)->name = p->tok.v;
            return jp_next(p);
        }
    }
    bool ok =
        with_tuple ? parse_tuple_in(p, true, false, false, end_word, out) : parse_primary(p, out);
    return ok && check_target(p, *out);
}
