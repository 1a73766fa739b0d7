/* jinja_tests: what can stand behind `is`. */
#include "common/text/jinja_call.h"
#include "common/text/jinja_ops.h"
#include "common/text/jinja_print.h"
#include "common/text/jinja_seq.h"
#include "common/text/jinja_strings.h"

static bool answer(struct jinja_call *c, bool b) {
    *c->out = jv_bool(b);
    return true;
}

static bool has_type(struct jinja_call *c, enum jv_type t) {
    return answer(c, c->self.type == t);
}

static bool t_defined(struct jinja_call *c) {
    return answer(c, c->self.type != JV_UNDEF);
}
static bool t_undefined(struct jinja_call *c) {
    return has_type(c, JV_UNDEF);
}
static bool t_none(struct jinja_call *c) {
    return has_type(c, JV_NONE);
}
static bool t_boolean(struct jinja_call *c) {
    return has_type(c, JV_BOOL);
}
static bool t_true(struct jinja_call *c) {
    return answer(c, c->self.type == JV_BOOL && c->self.b);
}
static bool t_false(struct jinja_call *c) {
    return answer(c, c->self.type == JV_BOOL && !c->self.b);
}
static bool t_integer(struct jinja_call *c) {
    return answer(c, c->self.type == JV_INT || c->self.type == JV_BIG);
}
static bool t_float(struct jinja_call *c) {
    return has_type(c, JV_FLOAT);
}
static bool t_string(struct jinja_call *c) {
    return has_type(c, JV_STR);
}
static bool t_mapping(struct jinja_call *c) {
    return has_type(c, JV_DICT);
}
static bool t_number(struct jinja_call *c) {
    return answer(c, jv_is_number(&c->self) || c->self.type == JV_BIG);
}
static bool t_iterable(struct jinja_call *c) {
    return answer(c, jinja_is_iterable(&c->self));
}
static bool t_escaped(struct jinja_call *c) {
    return answer(c, c->self.type == JV_STR && c->self.sub == STR_SAFE);
}

static bool t_sequence(struct jinja_call *c) {
    switch ((enum jv_type)c->self.type) {
    case JV_UNDEF:
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE: return answer(c, true);
    default: return answer(c, false);
    }
}

static bool t_callable(struct jinja_call *c) {
    return answer(
        c, c->self.type == JV_MACRO || c->self.type == JV_METHOD || c->self.type == JV_FUNC ||
               c->self.type == JV_UNDEF); /* Jinja's undefined has a __call__ that raises */
}

/* self % n == want; of a string it is a formatting, as in Python */
static bool remainder_is(struct jinja_call *c, struct jv n, int64_t want) {
    struct jv rest, w = jv_int(want);
    bool same;
    if (!jinja_arith(c->r, OP_MOD, &c->self, &n, &rest) || !jv_equal(c->r, &rest, &w, &same))
        return false;
    return answer(c, same);
}

static bool t_odd(struct jinja_call *c) {
    return remainder_is(c, jv_int(2), 1);
}
static bool t_even(struct jinja_call *c) {
    return remainder_is(c, jv_int(2), 0);
}
static bool t_divisibleby(struct jinja_call *c) {
    return remainder_is(c, c->a[0], 0);
}

static bool is_case(struct jinja_call *c, bool lower) {
    struct jv s;
    return jinja_to_str(c->r, &c->self, &s) && answer(c, jinja_str_is_case(&s, lower));
}

static bool t_lower(struct jinja_call *c) {
    return is_case(c, true);
}
static bool t_upper(struct jinja_call *c) {
    return is_case(c, false);
}
static bool t_sameas(struct jinja_call *c) {
    return answer(c, jv_same(&c->self, &c->a[0]));
}

static bool relation(struct jinja_call *c, enum jinja_op op) {
    bool holds;
    return jinja_relation(c->r, op, &c->self, &c->a[0], &holds) && answer(c, holds);
}

static bool t_eq(struct jinja_call *c) {
    return relation(c, OP_EQ);
}
static bool t_ne(struct jinja_call *c) {
    return relation(c, OP_NE);
}
static bool t_lt(struct jinja_call *c) {
    return relation(c, OP_LT);
}
static bool t_le(struct jinja_call *c) {
    return relation(c, OP_LE);
}
static bool t_gt(struct jinja_call *c) {
    return relation(c, OP_GT);
}
static bool t_ge(struct jinja_call *c) {
    return relation(c, OP_GE);
}
static bool t_in(struct jinja_call *c) {
    return relation(c, OP_IN);
}

static bool t_filter(struct jinja_call *c) {
    return answer(c, c->self.type == JV_STR && jinja_filter_find(c->self.s, c->self.n) != NULL);
}

static bool t_test(struct jinja_call *c) {
    return answer(c, c->self.type == JV_STR && jinja_test_find(c->self.s, c->self.n) != NULL);
}

static const struct jinja_def tests[] = {
    {"defined", t_defined, "", 0},    {"undefined", t_undefined, "", 0},
    {"none", t_none, "", 0},          {"boolean", t_boolean, "", 0},
    {"true", t_true, "", 0},          {"false", t_false, "", 0},
    {"integer", t_integer, "", 0},    {"float", t_float, "", 0},
    {"number", t_number, "", 0},      {"string", t_string, "", 0},
    {"mapping", t_mapping, "", 0},    {"sequence", t_sequence, "", 0},
    {"iterable", t_iterable, "", 0},  {"callable", t_callable, "", 0},
    {"escaped", t_escaped, "", 0},    {"odd", t_odd, "", 0},
    {"even", t_even, "", 0},          {"divisibleby", t_divisibleby, "num", 1},
    {"lower", t_lower, "", 0},        {"upper", t_upper, "", 0},
    {"sameas", t_sameas, "other", 1}, {"filter", t_filter, "", 0},
    {"test", t_test, "", 0},          {"in", t_in, "seq", 1},
    {"eq", t_eq, "other", 1},         {"equalto", t_eq, "other", 1},
    {"==", t_eq, "other", 1},         {"ne", t_ne, "other", 1},
    {"!=", t_ne, "other", 1},         {"lt", t_lt, "other", 1},
    {"lessthan", t_lt, "other", 1},   {"<", t_lt, "other", 1},
    {"le", t_le, "other", 1},         {"<=", t_le, "other", 1},
    {"gt", t_gt, "other", 1},         {"greaterthan", t_gt, "other", 1},
    {">", t_gt, "other", 1},          {"ge", t_ge, "other", 1},
    {">=", t_ge, "other", 1},
};

const struct jinja_def *jinja_test_find(const char *name, size_t n) {
    return jinja_def_find(tests, sizeof(tests) / sizeof(*tests), name, n);
}
