/* jinja_exec: the walk over statements; macros. */
#include <string.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_eval.h"
#include "common/text/jinja_loop.h"
#include "common/text/jinja_print.h"
#include "common/text/jinja_seq.h"

void jinja_scope_push(struct jinja_run *r, struct jinja_scope *s) {
    *s = (struct jinja_scope){.parent = r->scope};
    r->scope = s;
}

void jinja_scope_pop(struct jinja_run *r) {
    r->scope = r->scope->parent;
}

static struct jinja_scope *new_scope(struct jinja_run *r) {
    struct jinja_scope *s = jinja_alloc(r, sizeof(*s));
    if (s != NULL) jinja_scope_push(r, s);
    return s;
}

/* ---- assignment */

static bool assign_namespace(struct jinja_run *r, const struct jinja_expr *target,
                             const struct jv *v) {
    struct jv ns;
    if (!jinja_eval(r, target->of, &ns)) return false;
    r->line = target->line;
    if (ns.type != JV_NAMESPACE)
        return jinja_fail(r, "cannot assign attribute on non-namespace object");
    return jv_dict_set(r, ns.dict, &target->name, *v);
}

bool jinja_assign(struct jinja_run *r, const struct jinja_expr *target, const struct jv *v) {
    struct jv_list *l;
    if (target->kind == EX_NAME) return jv_dict_set(r, &r->scope->vars, &target->value, *v);
    if (target->kind == EX_ATTR) return assign_namespace(r, target, v);
    if (!jinja_iterate(r, v, &l)) return false;
    r->line = target->line;
    if (l->n != target->items.n) {
        return jinja_fail(r, "%s values to unpack (expected %zu, got %zu)",
                          l->n < target->items.n ? "not enough" : "too many", target->items.n,
                          l->n);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (!jinja_assign(r, target->items.e[i], &l->v[i])) return false;
    }
    return true;
}

/* ---- text of a body as a value */

struct capture {
    struct jinja_sb text, *out;
};

static void capture_begin(struct jinja_run *r, struct capture *c) {
    jinja_sb_init(&c->text, r, CHAT_TEMPLATE_STRING_BYTES_MAX);
    c->out = r->out;
    r->out = &c->text;
}

static bool capture_end(struct jinja_run *r, struct capture *c, struct jv *out) {
    r->out = c->out;
    return jinja_sb_take(&c->text, out);
}

static bool emit(struct jinja_run *r, const struct jv *v) {
    jinja_print_str(r->out, v);
    return !r->out->failed;
}

/* ---- macros */

static bool bind_params(struct jinja_run *r, const struct jinja_macro_def *m,
                        const struct jinja_args *args, struct jinja_scope *s) {
    struct jv_list *varargs;
    struct jv_dict *kwargs;
    struct jv name, v;
    if (!jv_list_new(r, 0, &varargs) || !jv_dict_new(r, &kwargs)) return false;
    for (size_t i = 0; i < args->n_pos; i++) {
        bool ok = i < m->n_params ? jv_dict_set(r, &s->vars, &m->params[i], args->pos[i])
                                  : jv_list_push(r, varargs, args->pos[i]);
        if (!ok) return false;
    }
    if (varargs->n > 0 && !m->takes_varargs) {
        return jinja_fail(r, "macro '%.*s' takes not more than %zu argument(s)", (int)m->name.n,
                          m->name.s, m->n_params);
    }
    struct jv caller = jv_undef_hint("No caller defined");
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jv *kw = &args->kw_names[i];
        size_t at = args->n_pos;
        while (at < m->n_params &&
               !(m->params[at].n == kw->n && memcmp(m->params[at].s, kw->s, kw->n) == 0))
            at++;
        bool ok = true;
        if (at < m->n_params) {
            ok = jv_dict_set(r, &s->vars, kw, args->kw[i]);
        } else if (jv_is_str(kw, "caller") && m->takes_caller) {
            caller = args->kw[i];
        } else if (m->takes_kwargs) {
            ok = jv_dict_set(r, kwargs, kw, args->kw[i]);
        } else {
            ok = jinja_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", (int)m->name.n,
                            m->name.s, (int)kw->n, kw->s);
        }
        if (!ok) return false;
    }
    for (size_t i = 0; i < m->n_params; i++) {
        if (jv_dict_get_str(&s->vars, m->params[i].s, m->params[i].n).type != JV_ABSENT) continue;
        v = jv_undef_hint("a parameter of the macro was not provided");
        if (m->defaults[i] != NULL && !jinja_eval(r, m->defaults[i], &v)) return false;
        if (!jv_dict_set(r, &s->vars, &m->params[i], v)) return false;
    }
    bool ok = true;
    if (m->takes_varargs)
        ok = (name = jv_cstr("varargs"), jv_dict_set(r, &s->vars, &name, jv_of_tuple(varargs)));
    if (ok && m->takes_kwargs)
        ok = (name = jv_cstr("kwargs"), jv_dict_set(r, &s->vars, &name, jv_of_dict(kwargs)));
    name = jv_cstr("caller");
    if (ok && m->takes_caller && jv_dict_get_str(&s->vars, name.s, name.n).type == JV_ABSENT) {
        ok = jv_dict_set(r, &s->vars, &name, caller);
    }
    return ok;
}

bool jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jv *out) {
    struct jinja_scope *back = r->scope;
    struct jv block_text = r->block_text;
    struct capture c;
    enum jinja_flow flow = FLOW_ON;
    if (!jinja_enter(r)) return false;
    r->scope = m->scope;
    struct jinja_scope *s = new_scope(r);
    if (s == NULL || !bind_params(r, m->def, args, s)) return false;
    capture_begin(r, &c);
    if (!jinja_exec(r, m->def->body, &flow)) return false;
    r->scope = back;
    r->block_text = block_text;
    jinja_leave(r);
    return capture_end(r, &c, out);
}

/* The definition together with the names around it, which from now on may outlive their block. */
static bool make_macro(struct jinja_run *r, const struct jinja_macro_def *def, struct jv *out) {
    struct jinja_macro *m = jinja_alloc(r, sizeof(*m));
    if (m == NULL) return false;
    *m = (struct jinja_macro){.def = def, .scope = r->scope};
    for (struct jinja_scope *s = r->scope; s != NULL; s = s->parent) s->captured = true;
    *out = (struct jv){.type = JV_MACRO, .macro = m};
    return true;
}

/* ---- statements */

/* Empty names for the next turn of a loop; new ones when a macro holds the old. */
static bool renew_scope(struct jinja_run *r) {
    struct jinja_scope *s = r->scope;
    if (s->captured) {
        r->scope = s->parent;
        return new_scope(r) != NULL;
    }
    s->vars.n = 0;
    if (s->vars.n_slots > 0) memset(s->vars.slots, 0, s->vars.n_slots * sizeof(*s->vars.slots));
    return true;
}

static bool exec_for(struct jinja_run *r, const struct jinja_stmt *s, enum jinja_flow *flow) {
    struct jv iter, name = jv_cstr("loop");
    struct jv_list *items;
    struct jinja_loop *l;
    bool got, any = false;
    if (!jinja_eval(r, s->loop.iter, &iter)) return false;
    r->line = s->line;
    if (!jinja_iterate(r, &iter, &items) || !jinja_loop_new(r, s, items, &l)) return false;
    if (new_scope(r) == NULL) return false;
    for (;;) {
        enum jinja_flow inner = FLOW_ON;
        if (!jinja_loop_next(r, l, &got)) return false;
        if (!got) break;
        if (!renew_scope(r) || !jinja_assign(r, s->loop.target, &l->current)) return false;
        struct jv v = {.type = JV_LOOP, .loop = l};
        if (s->loop.uses_loop && !jv_dict_set(r, &r->scope->vars, &name, v)) return false;
        if (!jinja_tick(r, 1) || !jinja_exec(r, s->loop.body, &inner)) return false;
        if (inner == FLOW_BREAK) break;
        if (inner == FLOW_ON)
            any = true; /* as in Jinja: a body that was left early does not count */
    }
    jinja_scope_pop(r);
    if (any || s->loop.otherwise == NULL) return true;
    if (new_scope(r) == NULL || !jinja_exec(r, s->loop.otherwise, flow)) return false;
    jinja_scope_pop(r);
    return true;
}

static bool exec_if(struct jinja_run *r, const struct jinja_stmt *s, enum jinja_flow *flow) {
    for (const struct jinja_if_part *p = s->parts; p != NULL; p = p->next) {
        struct jv test = jv_bool(true);
        if (p->test != NULL && !jinja_eval(r, p->test, &test)) return false;
        if (jv_truth(&test)) return jinja_exec(r, p->body, flow);
    }
    return true;
}

/* {% set x %}..{% endset %} and {% filter f %}..{% endfilter %}. Left early, the text is lost. */
static bool exec_block_text(struct jinja_run *r, const struct jinja_stmt *s,
                            enum jinja_flow *flow) {
    struct capture c;
    struct jv v, before = r->block_text;
    if (new_scope(r) == NULL) return false;
    capture_begin(r, &c);
    if (!jinja_exec(r, s->set.body, flow) || !capture_end(r, &c, &v)) return false;
    if (*flow != FLOW_ON) {
        jinja_scope_pop(r);
        return true;
    }
    r->block_text = v;
    if (s->set.value != NULL && !jinja_eval(r, s->set.value, &v)) return false;
    r->block_text = before;
    jinja_scope_pop(r);
    return s->kind == ST_FILTER ? emit(r, &v) : jinja_assign(r, s->set.target, &v);
}

static bool exec_with(struct jinja_run *r, const struct jinja_stmt *s, enum jinja_flow *flow) {
    struct jinja_scope *outer = r->scope, *inner = new_scope(r);
    if (inner == NULL) return false;
    for (size_t i = 0; i < s->with.targets.n; i++) {
        struct jv v;
        r->scope = outer; /* values do not see the new names */
        if (!jinja_eval(r, s->with.values.e[i], &v)) return false;
        r->scope = inner;
        if (!jinja_assign(r, s->with.targets.e[i], &v)) return false;
    }
    if (!jinja_exec(r, s->with.body, flow)) return false;
    jinja_scope_pop(r);
    return true;
}

static bool exec_one(struct jinja_run *r, const struct jinja_stmt *s, enum jinja_flow *flow) {
    struct jv v, caller;
    switch ((enum jinja_stmt_kind)s->kind) {
    case ST_TEXT: return emit(r, &s->text);
    case ST_PRINT: return jinja_eval(r, s->expr, &v) && emit(r, &v);
    case ST_FOR: return exec_for(r, s, flow);
    case ST_IF: return exec_if(r, s, flow);
    case ST_SET: return jinja_eval(r, s->set.value, &v) && jinja_assign(r, s->set.target, &v);
    case ST_SET_BLOCK:
    case ST_FILTER: return exec_block_text(r, s, flow);
    case ST_MACRO:
        return make_macro(r, &s->macro, &v) && jv_dict_set(r, &r->scope->vars, &s->macro.name, v);
    case ST_CALL:
        return make_macro(r, s->call.def, &caller) &&
               jinja_eval_call(r, s->call.call, &caller, &v) && emit(r, &v);
    case ST_WITH:
    case ST_SCOPE: return exec_with(r, s, flow);
    case ST_BREAK: *flow = FLOW_BREAK; return true;
    case ST_CONTINUE: *flow = FLOW_CONTINUE; return true;
    }
    return true;
}

bool jinja_exec(struct jinja_run *r, const struct jinja_stmt *body, enum jinja_flow *flow) {
    if (!jinja_enter(r)) return false;
    for (const struct jinja_stmt *s = body; s != NULL && *flow == FLOW_ON; s = s->next) {
        r->line = s->line;
        if (!jinja_tick(r, 1) || !exec_one(r, s, flow)) return false;
    }
    jinja_leave(r);
    return true;
}
