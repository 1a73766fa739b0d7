/* jinja_call: arguments to parameters, and who is called. */
#include "common/text/jinja_call.h"

#include <string.h>

const struct jinja_def *jinja_def_find(const struct jinja_def *table, size_t n_rows,
                                       const char *name, size_t n) {
    for (size_t i = 0; i < n_rows; i++) {
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0) return &table[i];
    }
    return NULL;
}

/* The number of the parameter called so, or -1. */
static int param_find(const char *params, const struct jv *name) {
    for (int i = 0; *params != '\0'; i++) {
        size_t n = strcspn(params, " ");
        if (n == name->n && memcmp(params, name->s, n) == 0) return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static int param_count(const char *params) {
    int n = *params != '\0';
    for (; *params != '\0'; params++) n += *params == ' ';
    return n;
}

static bool bind_params(struct jinja_call *c, const struct jinja_def *def) {
    size_t n = (size_t)param_count(def->params);
    if (c->args->n_pos > n) {
        return jinja_fail(c->r, "%s takes at most %zu argument(s), got %zu", def->name, n,
                          c->args->n_pos);
    }
    for (size_t i = 0; i < c->args->n_pos; i++) c->a[i] = c->args->pos[i];
    for (size_t i = 0; i < c->args->n_kw; i++) {
        const struct jv *kw = &c->args->kw_names[i];
        int at = param_find(def->params, kw);
        if (at < 0)
            return jinja_fail(c->r, "%s takes no argument '%.*s'", def->name, (int)kw->n, kw->s);
        if (c->a[at].type != JV_ABSENT) {
            return jinja_fail(c->r, "%s got argument '%.*s' twice", def->name, (int)kw->n, kw->s);
        }
        c->a[at] = c->args->kw[i];
    }
    for (int i = 0; i < def->n_required; i++) {
        if (c->a[i].type == JV_ABSENT)
            return jinja_fail(c->r, "%s needs %d argument(s)", def->name, def->n_required);
    }
    return true;
}

/* A built-in walks its texts a few times at most. */
static bool tick_text(struct jinja_run *r, const struct jv *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (v[i].type == JV_STR && !jinja_tick(r, v[i].n / 64)) return false;
    }
    return true;
}

bool jinja_call_def(struct jinja_run *r, const struct jinja_def *def, const struct jv *self,
                    const struct jinja_args *args, struct jv *out) {
    struct jinja_call c = {.r = r, .name = def->name, .self = *self, .args = args, .out = out};
    if (!jinja_enter(r) || !tick_text(r, self, 1) || !tick_text(r, args->pos, args->n_pos))
        return false;
    if (def->params != NULL && !bind_params(&c, def)) return false;
    if (!def->fn(&c)) return false;
    jinja_leave(r);
    return true;
}

bool jinja_call_value(struct jinja_run *r, const struct jv *callee, const struct jinja_args *args,
                      struct jv *out) {
    struct jv none = jv_none();
    switch ((enum jv_type)callee->type) {
    case JV_UNDEF: return jinja_fail_undef(r, callee);
    case JV_MACRO: return jinja_call_macro(r, callee->macro, args, out);
    case JV_METHOD: return jinja_call_def(r, callee->method->def, &callee->method->self, args, out);
    case JV_FUNC: return jinja_call_def(r, callee->func, &none, args, out);
    default: return jinja_fail(r, "'%s' object is not callable", jv_type_name(callee));
    }
}

bool jinja_param_int(struct jinja_call *c, int i, int64_t absent, int64_t *out) {
    *out = absent;
    if (c->a[i].type == JV_ABSENT || jv_as_int(&c->a[i], out)) return true;
    if (c->a[i].type == JV_UNDEF) return jinja_fail_undef(c->r, &c->a[i]);
    return jinja_fail(c->r, "%s: argument %d must be an integer, got %s", c->name, i + 1,
                      jv_type_name(&c->a[i]));
}

bool jinja_param_str(struct jinja_call *c, int i, const char *absent, struct jv *out) {
    *out = c->a[i];
    if (out->type == JV_STR) return true;
    if (out->type == JV_ABSENT && absent != NULL) {
        *out = jv_cstr(absent);
        return true;
    }
    return jinja_fail(c->r, "%s: argument %d must be a string, got %s", c->name, i + 1,
                      jv_type_name(out));
}

bool jinja_param_bool(const struct jinja_call *c, int i, bool absent) {
    return c->a[i].type == JV_ABSENT ? absent : jv_truth(&c->a[i]);
}
