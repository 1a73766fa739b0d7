/* jinja_eval: expressions to values, statements to text. */
#ifndef BATON_TEXT_JINJA_EVAL_H
#define BATON_TEXT_JINJA_EVAL_H

#include "common/text/jinja_ast.h"
#include "common/text/jinja_call.h"

bool jinja_eval(struct jinja_run *r, const struct jinja_expr *e, struct jv *out);
/* An EX_CALL; caller: handed over as the keyword argument of that name, or NULL. */
bool jinja_eval_call(struct jinja_run *r, const struct jinja_expr *e, const struct jv *caller,
                     struct jv *out);

enum jinja_flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
bool jinja_exec(struct jinja_run *r, const struct jinja_stmt *body, enum jinja_flow *flow);
bool jinja_assign(struct jinja_run *r, const struct jinja_expr *target, const struct jv *v);

void jinja_scope_push(struct jinja_run *r,
                      struct jinja_scope *s); /* s is filled in; it may live on the stack
                                                 unless something can capture it */
void jinja_scope_pop(struct jinja_run *r);

#endif
