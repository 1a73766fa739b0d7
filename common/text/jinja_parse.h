/* jinja_parse: tokens to the tree of jinja_ast.h. jinja_parse.c has the statements,
 * jinja_parse_expr.c the expressions. */
#ifndef BATON_TEXT_JINJA_PARSE_H
#define BATON_TEXT_JINJA_PARSE_H

#include "common/text/jinja_ast.h"
#include "common/text/jinja_lex.h"

/* Names whose use inside a body is noted, for every body around the place. */
struct jinja_body_names {
    struct jinja_body_names *outer;
    bool loop, varargs, kwargs, caller;
};

struct jinja_parser {
    struct jinja_run *r; /* memory, errors and depth */
    struct jinja_lex lex;
    struct jinja_token tok, ahead; /* at hand; the next one when has_ahead */
    bool has_ahead;
    int loops; /* for blocks around that break and continue may leave */
    int fors;  /* for blocks around at all */
    struct jinja_body_names *names;
};

/* Fails with false throughout; *out is a body. */
bool jinja_parse(struct jinja_parser *p, struct jinja_stmt **out);

/* For the two files. */
bool jp_next(struct jinja_parser *p);
bool jp_look(struct jinja_parser *p); /* fills p->ahead */
bool jp_is_name(const struct jinja_token *t, const char *word);
bool jp_expect(struct jinja_parser *p, enum jinja_tk type, const char *what);
bool jp_skip_if(struct jinja_parser *p, enum jinja_tk type, bool *did);
bool jp_skip_word(struct jinja_parser *p, const char *word, bool *did);
bool jp_unexpected(struct jinja_parser *p, const char *wanted); /* always false */
bool jp_enter(struct jinja_parser *p);
void jp_leave(struct jinja_parser *p);

struct jinja_expr *jp_node(struct jinja_parser *p, enum jinja_expr_kind kind, uint32_t line);
/* with_if: `a if b else c` is allowed. */
bool jp_expression(struct jinja_parser *p, bool with_if, struct jinja_expr **out);
/* One expression, or a tuple without parentheses; end_word: a name that ends it, or NULL. */
bool jp_tuple(struct jinja_parser *p, bool with_if, const char *end_word, struct jinja_expr **out);
bool jp_filters(struct jinja_parser *p, struct jinja_expr *of, bool at_name,
                struct jinja_expr **out);
bool jp_call(struct jinja_parser *p, struct jinja_expr *callee, struct jinja_expr **out);
/* What can be assigned to: a name, a tuple of such, with_namespace: ns.name. */
bool jp_target(struct jinja_parser *p, bool with_tuple, bool with_namespace, const char *end_word,
               struct jinja_expr **out);

#endif
