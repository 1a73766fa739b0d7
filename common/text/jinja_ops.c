/* jinja_ops: Python's operators on the values of a template. Integers have 64 bits: what would be
 * longer fails instead of growing. */
#include "common/text/jinja_ops.h"

#include <math.h>
#include <string.h>
#include "common/text/chat_template.h"
#include "common/text/jinja_call.h"
#include "common/text/jinja_format.h"
#include "common/text/jinja_loop.h"
#include "common/text/jinja_seq.h"
#include "common/text/jinja_text.h"

static const char *const op_signs[] = {
    [OP_NONE] = "", [OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*",
    [OP_DIV] = "/", [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "**",
    [OP_EQ] = "==", [OP_NE] = "!=",       [OP_LT] = "<",  [OP_LE] = "<=",
    [OP_GT] = ">",  [OP_GE] = ">=",       [OP_IN] = "in", [OP_NOT_IN] = "not in",
};

static bool int_pow(int64_t base, int64_t exp, int64_t *out) {
    *out = 1;
    while (exp > 0) {
        if ((exp & 1) && __builtin_mul_overflow(*out, base, out)) return false;
        exp >>= 1;
        if (exp > 0 && __builtin_mul_overflow(base, base, &base)) return false;
    }
    return true;
}

/* *is_float: the result is in *f */
static bool int_op(struct jinja_run *r, enum jinja_op op, int64_t a, int64_t b, struct jv *out) {
    int64_t x = 0;
    bool fits = true;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return jinja_fail(r, "division by zero");
    switch (op) {
    case OP_ADD: fits = !__builtin_add_overflow(a, b, &x); break;
    case OP_SUB: fits = !__builtin_sub_overflow(a, b, &x); break;
    case OP_MUL: fits = !__builtin_mul_overflow(a, b, &x); break;
    case OP_DIV: *out = jv_float((double)a / (double)b); return true;
    case OP_FLOORDIV:
        fits = !(a == INT64_MIN && b == -1);
        if (fits) x = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case OP_MOD:
        x = b == -1 ? 0 : a % b;
        if (x != 0 && (x < 0) != (b < 0)) x += b;
        break;
    default:
        if (b < 0) {
            if (a == 0) return jinja_fail(r, "0.0 cannot be raised to a negative power");
            *out = jv_float(pow((double)a, (double)b));
            return true;
        }
        fits = int_pow(a, b, &x);
        break;
    }
    if (!fits) return jinja_fail(r, "the result of %s does not fit 64 bits", op_signs[op]);
    *out = jv_int(x);
    return true;
}

/* Quotient rounded down, and the rest with the sign of b: Python's divmod() of floats. */
static void float_divmod(double a, double b, double *div, double *mod) {
    *mod = fmod(a, b);
    double d = (a - *mod) / b;
    if (*mod != 0) {
        if ((b < 0) != (*mod < 0)) {
            *mod += b;
            d -= 1;
        }
    } else {
        *mod = copysign(0.0, b);
    }
    if (d == 0) {
        *div = copysign(0.0, a / b);
        return;
    }
    *div = floor(d);
    if (d - *div > 0.5) *div += 1;
}

static bool float_op(struct jinja_run *r, enum jinja_op op, double a, double b, struct jv *out) {
    double x = 0, other;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return jinja_fail(r, "float division by zero");
    switch (op) {
    case OP_ADD: x = a + b; break;
    case OP_SUB: x = a - b; break;
    case OP_MUL: x = a * b; break;
    case OP_DIV: x = a / b; break;
    case OP_FLOORDIV: float_divmod(a, b, &x, &other); break;
    case OP_MOD: float_divmod(a, b, &other, &x); break;
    default:
        if (a == 0 && b < 0) return jinja_fail(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && b != floor(b))
            return jinja_fail(r, "a negative number cannot be raised to a fractional power");
        x = pow(a, b);
        if (isinf(x) && isfinite(a) && isfinite(b))
            return jinja_fail(r, "numerical result out of range");
        break;
    }
    *out = jv_float(x);
    return true;
}

static bool add_str(struct jinja_run *r, const struct jv *a, const struct jv *b, struct jv *out) {
    struct jv x = *a, y = *b;
    if (a->sub != b->sub) { /* text marked as safe HTML makes the other side safe, too */
        if (!jinja_escape(r, a->sub == STR_SAFE ? b : a, a->sub == STR_SAFE ? &y : &x))
            return false;
    }
    uint8_t sub = a->sub | b->sub;
    if (!jinja_append(r, &x, &y, out)) return false;
    out->sub = sub;
    return true;
}

static bool add_lists(struct jinja_run *r, const struct jv *a, const struct jv *b, struct jv *out) {
    const struct jv_list *x = a->list, *y = b->list;
    struct jv_list *l;
    if (!jv_list_new(r, 0, &l)) return false;
    l->n = l->cap = x->n + y->n;
    l->v = x->v;
    struct jv *rest = x->n == 0 ? NULL : jinja_room_behind(r, x->v + x->n, y->n * sizeof(*rest));
    if (rest == NULL) {
        l->v = jinja_alloc_open(r, l->n * sizeof(*l->v));
        if (l->v == NULL || !jinja_tick(r, x->n)) return false;
        for (size_t i = 0; i < x->n; i++) l->v[i] = x->v[i];
        rest = l->v + x->n;
    }
    for (size_t i = 0; i < y->n; i++) rest[i] = y->v[i];
    *out = (struct jv){.type = a->type, .list = l};
    return jinja_tick(r, y->n);
}

static bool repeat(struct jinja_run *r, const struct jv *v, int64_t times, struct jv *out) {
    if (times < 0) times = 0;
    if (v->type == JV_STR) {
        if (v->n > 0 && times > CHAT_TEMPLATE_STRING_BYTES_MAX / (int64_t)v->n) {
            return jinja_fail_code(r, ERR_TOO_LARGE, "text larger than %d bytes",
                                   CHAT_TEMPLATE_STRING_BYTES_MAX);
        }
        if (v->n == 0) times = 0;
        char *s = jinja_alloc(r, v->n * (size_t)times);
        if (s == NULL) return false;
        for (int64_t i = 0; i < times; i++) memcpy(s + (size_t)i * v->n, v->s, v->n);
        *out = jv_str(s, v->n * (size_t)times);
        out->sub = v->sub;
        return jinja_tick(r, out->n / 16);
    }
    struct jv_list *l;
    size_t n = v->list->n;
    if (n > 0 && times > CHAT_TEMPLATE_MEMORY_BYTES_MAX / (int64_t)(n * sizeof(struct jv))) {
        return jinja_fail_code(r, ERR_TOO_LARGE, "list too long");
    }
    if (n == 0) times = 0;
    if (!jv_list_new(r, n * (size_t)times, &l)) return false;
    for (int64_t i = 0; i < times; i++) {
        for (size_t k = 0; k < n; k++) l->v[l->n++] = v->list->v[k];
    }
    *out = (struct jv){.type = v->type, .list = l};
    return jinja_tick(r, l->n);
}

static bool is_repeatable(const struct jv *v) {
    return v->type == JV_STR || v->type == JV_LIST || v->type == JV_TUPLE;
}

bool jinja_arith(struct jinja_run *r, enum jinja_op op, const struct jv *a, const struct jv *b,
                 struct jv *out) {
    int64_t x, y;
    if (op == OP_MOD && a->type == JV_STR) return jinja_format_percent(r, a, b, out);
    if (a->type == JV_UNDEF || b->type == JV_UNDEF)
        return jinja_fail_undef(r, a->type == JV_UNDEF ? a : b);
    if (jv_is_number(a) && jv_is_number(b)) {
        if (jv_as_int(a, &x) && jv_as_int(b, &y)) return int_op(r, op, x, y, out);
        return float_op(r, op, jv_as_float(a), jv_as_float(b), out);
    }
    if (op == OP_ADD && a->type == JV_STR && b->type == JV_STR) return add_str(r, a, b, out);
    if (op == OP_ADD && a->type == b->type && (a->type == JV_LIST || a->type == JV_TUPLE)) {
        return add_lists(r, a, b, out);
    }
    if (op == OP_MUL && is_repeatable(a) && jv_as_int(b, &y)) return repeat(r, a, y, out);
    if (op == OP_MUL && is_repeatable(b) && jv_as_int(a, &x)) return repeat(r, b, x, out);
    return jinja_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_signs[op],
                      jv_type_name(a), jv_type_name(b));
}

bool jinja_negate(struct jinja_run *r, const struct jv *a, bool minus, struct jv *out) {
    struct jv zero = jv_int(0);
    if (a->type == JV_UNDEF) return jinja_fail_undef(r, a);
    if (!jv_is_number(a)) {
        return jinja_fail(r, "bad operand type for unary %s: '%s'", minus ? "-" : "+",
                          jv_type_name(a));
    }
    if (a->type == JV_FLOAT) {
        *out = jv_float(minus ? -a->f : a->f);
        return true;
    }
    return jinja_arith(r, minus ? OP_SUB : OP_ADD, &zero, a, out);
}

bool jinja_relation(struct jinja_run *r, enum jinja_op op, const struct jv *a, const struct jv *b,
                    bool *out) {
    int c;
    if (op == OP_EQ || op == OP_NE) {
        if (!jv_equal(r, a, b, out)) return false;
        if (op == OP_NE) *out = !*out;
        return true;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        if (!jinja_contains(r, a, b, out)) return false;
        if (op == OP_NOT_IN) *out = !*out;
        return true;
    }
    if ((a->type == JV_FLOAT && isnan(a->f) && jv_is_number(b)) ||
        (b->type == JV_FLOAT && isnan(b->f) && jv_is_number(a))) {
        *out = false;
        return true;
    }
    if (!jv_compare(r, a, b, op_signs[op], &c)) return false;
    *out = op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0;
    return true;
}

/* ---- members */

static bool bind_method(struct jinja_run *r, const struct jv *a, const struct jinja_def *def,
                        struct jv *out) {
    struct jv_method *m = jinja_alloc(r, sizeof(*m));
    if (m == NULL) return false;
    *m = (struct jv_method){.self = *a, .def = def};
    *out = (struct jv){.type = JV_METHOD, .method = m};
    return true;
}

/* What Python's getattr() finds; JV_ABSENT when nothing. Never an item. */
static bool own_attr(struct jinja_run *r, const struct jv *a, const struct jv *name,
                     struct jv *out) {
    *out = (struct jv){0};
    if (a->type == JV_NAMESPACE) {
        *out = jv_dict_get_str(a->dict, name->s, name->n);
        return true;
    }
    if (a->type == JV_LOOP && !jinja_loop_attr(r, a->loop, name, out)) return false;
    if (out->type != JV_ABSENT) return true;
    if (a->type == JV_TUPLE && a->sub == TUPLE_GROUP) {
        if (jv_is_str(name, "grouper")) *out = a->list->v[0];
        if (jv_is_str(name, "list")) *out = a->list->v[1];
        if (out->type != JV_ABSENT) return true;
    }
    if (jinja_method_is_unsafe(a, name)) {
        *out = (struct jv){
            .type = JV_UNDEF, .sub = UNDEF_UNSAFE, .of = a->type, .n = name->n, .s = name->s};
        return true;
    }
    const struct jinja_def *def = jinja_method_find(a, name);
    return def == NULL || bind_method(r, a, def, out);
}

bool jinja_get_attr(struct jinja_run *r, const struct jv *a, const struct jv *name,
                    struct jv *out) {
    if (a->type == JV_UNDEF) return jinja_fail_undef(r, a);
    if (!own_attr(r, a, name, out)) return false;
    if (out->type == JV_ABSENT && a->type == JV_DICT)
        *out = jv_dict_get_str(a->dict, name->s, name->n);
    if (out->type == JV_ABSENT) *out = jv_undef_member(a, name);
    return true;
}

static bool index_of(struct jinja_run *r, const struct jv *a, int64_t i, struct jv *out) {
    size_t n;
    if (!jinja_seq_len(r, a, &n)) return false;
    if (i < 0) i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n) {
        *out = (struct jv){0};
        return true;
    }
    if (a->type != JV_STR) return jinja_seq_at(r, a, (size_t)i, out);
    size_t from = jinja_text_offset(a->s, a->n, (size_t)i), to = from;
    jinja_char_next(a->s, a->n, &to);
    *out = jv_str(a->s + from, to - from);
    out->sub = a->sub;
    return true;
}

bool jinja_get_item(struct jinja_run *r, const struct jv *a, const struct jv *key, struct jv *out) {
    int64_t i;
    if (a->type == JV_UNDEF) return jinja_fail_undef(r, a);
    *out = (struct jv){0};
    if (a->type == JV_DICT) {
        if (key->type != JV_LIST && key->type != JV_DICT && !jv_dict_get(r, a->dict, key, out))
            return false;
    } else if (jv_as_int(key, &i) && (is_repeatable(a) || a->type == JV_RANGE)) {
        if (!index_of(r, a, i, out)) return false;
    }
    if (out->type == JV_ABSENT && key->type == JV_STR && !own_attr(r, a, key, out)) return false;
    if (out->type == JV_ABSENT) *out = jv_undef_member(a, key);
    return true;
}

static bool path_step(struct jinja_run *r, const struct jv *key, const struct jv *absent,
                      struct jv *v) {
    struct jv from = *v;
    if (!jinja_get_item(r, &from, key, v)) return false;
    if (v->type == JV_UNDEF && absent != NULL) *v = *absent;
    return true;
}

bool jinja_get_path(struct jinja_run *r, const struct jv *a, const struct jv *path,
                    const struct jv *absent, struct jv *out) {
    *out = *a;
    if (path->type == JV_NONE || path->type == JV_ABSENT) return true;
    if (path->type != JV_STR) return path_step(r, path, absent, out);
    for (size_t at = 0; at <= path->n;) {
        size_t end = jinja_text_find(path->s, path->n, at, ".", 1);
        if (end == SIZE_MAX) end = path->n;
        struct jv part = jv_str(path->s + at, end - at);
        int64_t i = 0;
        bool digits = end > at;
        for (size_t k = at; k < end && digits; k++) {
            digits = path->s[k] >= '0' && path->s[k] <= '9' && i < INT64_MAX / 10 - 1;
            if (digits) i = i * 10 + (path->s[k] - '0');
        }
        if (digits) part = jv_int(i);
        if (!path_step(r, &part, absent, out)) return false;
        at = end + 1;
    }
    return true;
}
