/* jinja_ops: arithmetic, and the members of values. */
#ifndef BATON_TEXT_JINJA_OPS_H
#define BATON_TEXT_JINJA_OPS_H

#include "common/text/jinja_run.h"

enum jinja_op {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

bool jinja_arith(struct jinja_run *r, enum jinja_op op, const struct jv *a, const struct jv *b,
                 struct jv *out);
bool jinja_negate(struct jinja_run *r, const struct jv *a, bool minus, struct jv *out); /* -a, +a */
bool jinja_relation(struct jinja_run *r, enum jinja_op op, const struct jv *a, const struct jv *b,
                    bool *out);

/* a.name and a[key]: what is not there is undefined; asking an undefined value fails. */
bool jinja_get_attr(struct jinja_run *r, const struct jv *a, const struct jv *name, struct jv *out);
bool jinja_get_item(struct jinja_run *r, const struct jv *a, const struct jv *key, struct jv *out);
/* "a.b.0" as the attribute= of filters has it (or an integer); items of items. absent: stands for
 * what is undefined on the way; NULL: nothing does. */
bool jinja_get_path(struct jinja_run *r, const struct jv *a, const struct jv *path,
                    const struct jv *absent, struct jv *out);

#endif
