/* jinja_loop: a for block at work, and its `loop` variable. An if behind the for is asked as late
 * as Jinja asks it: when the next item is wanted. */
#ifndef BATON_TEXT_JINJA_LOOP_H
#define BATON_TEXT_JINJA_LOOP_H

#include "common/text/jinja_ast.h"
#include "common/text/jinja_call.h"
#include "common/text/jinja_run.h"

struct jinja_loop {
    const struct jv_list *items;
    size_t at; /* next of items */
    const struct jinja_expr *target,
        *test; /* test: NULL when there is none, or all items have passed */
    struct jinja_scope *outer;
    int64_t index0;
    struct jv current, before, after; /* JV_ABSENT when there is none */
    int64_t length;                   /* -1: not known yet */
    struct jv changed;                /* what loop.changed() was last asked with */
};

bool jinja_loop_new(struct jinja_run *r, const struct jinja_stmt *s, const struct jv_list *items,
                    struct jinja_loop **out);
bool jinja_loop_next(struct jinja_run *r, struct jinja_loop *l,
                     bool *got); /* moves to l->current */
bool jinja_loop_len(struct jinja_run *r, struct jinja_loop *l, size_t *out);
/* loop.name; JV_ABSENT when it is none of its data. */
bool jinja_loop_attr(struct jinja_run *r, struct jinja_loop *l, const struct jv *name,
                     struct jv *out);
extern const struct jinja_def jinja_loop_methods[];
enum { LOOP_METHODS = 2 };

#endif
