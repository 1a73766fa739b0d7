/* jinja_eval: the walk over expressions. */
#include "common/text/jinja_eval.h"

#include <string.h>
#include "common/text/jinja_print.h"
#include "common/text/jinja_seq.h"

/* Names: the scopes from inside out, the caller's variables, the built-in functions. */
static void lookup(struct jinja_run *r, const struct jv *name, struct jv *out) {
    *out = (struct jv){0};
    for (const struct jinja_scope *s = r->scope; s != NULL && out->type == JV_ABSENT;
         s = s->parent) {
        *out = jv_dict_get_str(&s->vars, name->s, name->n);
    }
    if (out->type == JV_ABSENT) *out = jv_dict_get_str(r->vars, name->s, name->n);
    if (out->type != JV_ABSENT) return;
    const struct jinja_def *def = jinja_func_find(name->s, name->n);
    *out =
        def != NULL ? (struct jv){.type = JV_FUNC, .func = def} : jv_undef_name(name->s, name->n);
}

static bool eval_items(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv_list *l;
    if (!jv_list_new(r, e->items.n, &l)) return false;
    for (size_t i = 0; i < e->items.n; i++) {
        if (!jinja_eval(r, e->items.e[i], &l->v[i])) return false;
        l->n = i + 1;
    }
    *out = e->kind == EX_TUPLE ? jv_of_tuple(l) : jv_of_list(l);
    return true;
}

static bool eval_dict(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv_dict *d;
    if (!jv_dict_new(r, &d)) return false;
    for (size_t i = 0; i + 1 < e->items.n; i += 2) {
        struct jv k, v;
        if (!jinja_eval(r, e->items.e[i], &k) || !jinja_eval(r, e->items.e[i + 1], &v))
            return false;
        if (!jv_dict_set(r, d, &k, v)) return false;
    }
    *out = jv_of_dict(d);
    return true;
}

/* a ~ b ~ c. All are computed before any text is put together, so that it can grow in place. */
static bool eval_concat(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv_list *l;
    struct jv text = jv_cstr("");
    if (!jv_list_new(r, e->items.n, &l)) return false;
    for (size_t i = 0; i < e->items.n; i++) {
        struct jv v;
        if (!jinja_eval(r, e->items.e[i], &v) || !jinja_to_str(r, &v, &l->v[i])) return false;
    }
    for (size_t i = 0; i < e->items.n; i++) {
        if (text.n == 0) {
            text = jv_str(l->v[i].s, l->v[i].n);
        } else if (l->v[i].n > 0 && !jinja_append(r, &text, &l->v[i], &text)) {
            return false;
        }
    }
    *out = text;
    return true;
}

static bool eval_compare(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv left, right;
    bool holds = true;
    if (!jinja_eval(r, e->items.e[0], &left)) return false;
    for (size_t i = 1; i < e->items.n && holds; i++) {
        if (!jinja_eval(r, e->items.e[i], &right)) return false;
        r->line = e->line;
        if (!jinja_relation(r, (enum jinja_op)e->ops[i - 1], &left, &right, &holds)) return false;
        left = right;
    }
    *out = jv_bool(holds);
    return true;
}

/* ---- calls */

static bool push_arg(struct jinja_run *r, struct jinja_args *a, size_t *cap, const struct jv *name,
                     struct jv v) {
    struct jv **list = name == NULL ? &a->pos : &a->kw;
    size_t *n = name == NULL ? &a->n_pos : &a->n_kw;
    if (*n == *cap) {
        size_t more = *cap == 0 ? 4 : *cap * 2;
        struct jv *values = jinja_alloc(r, more * sizeof(*values));
        struct jv *names = name == NULL ? NULL : jinja_alloc(r, more * sizeof(*names));
        if (values == NULL || (name != NULL && names == NULL)) return false;
        if (*n > 0) memcpy(values, *list, *n * sizeof(*values));
        if (*n > 0 && name != NULL) memcpy(names, a->kw_names, *n * sizeof(*names));
        *list = values;
        if (name != NULL) a->kw_names = names;
        *cap = more;
    }
    if (name != NULL) a->kw_names[*n] = *name;
    (*list)[(*n)++] = v;
    return true;
}

static bool eval_dyn_kw(struct jinja_run *r, const struct jinja_expr *e, struct jinja_args *a,
                        size_t *cap) {
    struct jv v;
    if (!jinja_eval(r, e, &v)) return false;
    if (v.type != JV_DICT)
        return jinja_fail(r, "argument after ** must be a mapping, not %s", jv_type_name(&v));
    for (size_t i = 0; i < v.dict->n; i++) {
        const struct jv *key = &v.dict->e[i].key;
        if (key->type != JV_STR) return jinja_fail(r, "keywords must be strings");
        for (size_t k = 0; k < a->n_kw; k++) {
            if (a->kw_names[k].n == key->n && memcmp(a->kw_names[k].s, key->s, key->n) == 0) {
                return jinja_fail(r, "got multiple values for keyword argument '%.*s'", (int)key->n,
                                  key->s);
            }
        }
        if (!push_arg(r, a, cap, key, v.dict->e[i].value)) return false;
    }
    return true;
}

static bool eval_args(struct jinja_run *r, const struct jinja_arg_exprs *e, const struct jv *caller,
                      struct jinja_args *a) {
    size_t cap = 0, kw_cap = 0;
    struct jv v, caller_name = jv_cstr("caller");
    *a = (struct jinja_args){0};
    for (size_t i = 0; i < e->pos.n; i++) {
        if (!jinja_eval(r, e->pos.e[i], &v) || !push_arg(r, a, &cap, NULL, v)) return false;
    }
    if (e->dyn != NULL) {
        struct jv_list *l;
        if (!jinja_eval(r, e->dyn, &v) || !jinja_iterate(r, &v, &l)) return false;
        for (size_t i = 0; i < l->n; i++) {
            if (!push_arg(r, a, &cap, NULL, l->v[i])) return false;
        }
    }
    for (size_t i = 0; i < e->kw.n; i++) {
        if (!jinja_eval(r, e->kw.e[i], &v) || !push_arg(r, a, &kw_cap, &e->kw_names[i], v))
            return false;
    }
    if (caller != NULL && !push_arg(r, a, &kw_cap, &caller_name, *caller)) return false;
    return e->dyn_kw == NULL || eval_dyn_kw(r, e->dyn_kw, a, &kw_cap);
}

bool jinja_eval_call(struct jinja_run *r, const struct jinja_expr *e, const struct jv *caller,
                     struct jv *out) {
    struct jv callee;
    struct jinja_args args;
    if (!jinja_eval(r, e->call.callee, &callee) || !eval_args(r, e->call.args, caller, &args))
        return false;
    r->line = e->line;
    return jinja_call_value(r, &callee, &args, out);
}

/* Filters and tests. Without a value in front the filter works on the text of its block. */
static bool eval_def(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv self = r->block_text;
    struct jinja_args args;
    if (e->call.callee != NULL && !jinja_eval(r, e->call.callee, &self)) return false;
    r->line = e->line;
    if (e->call.def == NULL) {
        return jinja_fail(r, "no %s named '%s'", e->kind == EX_FILTER ? "filter" : "test",
                          e->call.def_name);
    }
    if (!eval_args(r, e->call.args, NULL, &args)) return false;
    r->line = e->line;
    return jinja_call_def(r, e->call.def, &self, &args, out);
}

/* ---- all kinds */

static bool eval_slice(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv of, part[3] = {{0}};
    const struct jinja_expr *bounds[3] = {e->b, e->c, e->d};
    if (!jinja_eval(r, e->a, &of)) return false;
    for (int i = 0; i < 3; i++) {
        if (bounds[i] != NULL && !jinja_eval(r, bounds[i], &part[i])) return false;
    }
    r->line = e->line;
    return jinja_slice(r, &of, &part[0], &part[1], &part[2], out);
}

static bool eval_if(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv test;
    if (!jinja_eval(r, e->b, &test)) return false;
    if (jv_truth(&test)) return jinja_eval(r, e->a, out);
    if (e->c != NULL) return jinja_eval(r, e->c, out);
    *out = jv_undef_hint(
        "the inline if-expression evaluated to false and no else section was defined");
    return true;
}

/* Operators of one or two operands. */
static bool eval_operator(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv a, b;
    if (!jinja_eval(r, e->a, &a)) return false;
    if (e->kind == EX_AND || e->kind == EX_OR) {
        if (jv_truth(&a) == (e->kind == EX_AND)) return jinja_eval(r, e->b, out);
        *out = a;
        return true;
    }
    if (e->kind == EX_NOT) {
        *out = jv_bool(!jv_truth(&a));
        return true;
    }
    if (e->kind == EX_NEG || e->kind == EX_POS) {
        r->line = e->line;
        return jinja_negate(r, &a, e->kind == EX_NEG, out);
    }
    if (!jinja_eval(r, e->b, &b)) return false;
    r->line = e->line;
    if (e->kind == EX_ITEM) return jinja_get_item(r, &a, &b, out);
    return jinja_arith(r, (enum jinja_op)e->op, &a, &b, out);
}

static bool eval_kind(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    struct jv of;
    switch ((enum jinja_expr_kind)e->kind) {
    case EX_CONST: *out = e->value; return true;
    case EX_NAME: lookup(r, &e->value, out); return true;
    case EX_TUPLE:
    case EX_LIST: return eval_items(r, e, out);
    case EX_DICT: return eval_dict(r, e, out);
    case EX_CONCAT: return eval_concat(r, e, out);
    case EX_COMPARE: return eval_compare(r, e, out);
    case EX_ATTR:
        if (!jinja_eval(r, e->of, &of)) return false;
        r->line = e->line;
        return jinja_get_attr(r, &of, &e->name, out);
    case EX_SLICE: return eval_slice(r, e, out);
    case EX_CALL: return jinja_eval_call(r, e, NULL, out);
    case EX_FILTER:
    case EX_TEST: return eval_def(r, e, out);
    case EX_IF: return eval_if(r, e, out);
    case EX_ITEM:
    case EX_ARITH:
    case EX_NEG:
    case EX_POS:
    case EX_NOT:
    case EX_AND:
    case EX_OR: break;
    }
    return eval_operator(r, e, out);
}

bool jinja_eval(struct jinja_run *r, const struct jinja_expr *e, struct jv *out) {
    r->line = e->line;
    if (!jinja_enter(r) || !eval_kind(r, e, out)) return false;
    jinja_leave(r);
    return true;
}
