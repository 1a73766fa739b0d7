/* jinja_ast: a parsed template. Read-only after parsing, in the template's memory. */
#ifndef BATON_TEXT_JINJA_AST_H
#define BATON_TEXT_JINJA_AST_H

#include "common/text/jinja_ops.h"
#include "common/text/jinja_value.h"

struct jinja_expr;
struct jinja_stmt;

struct jinja_exprs {
    struct jinja_expr **e;
    size_t n;
};

struct jinja_arg_exprs {
    struct jinja_exprs pos;
    struct jinja_exprs kw; /* of kw_names, in order */
    struct jv *kw_names;
    struct jinja_expr *dyn, *dyn_kw; /* *args and **kwargs, or NULL */
};

enum jinja_expr_kind {
    EX_CONST,
    EX_NAME,
    EX_TUPLE,
    EX_LIST,
    EX_DICT,    /* items: key, value, key, value */
    EX_CONCAT,  /* a ~ b ~ c */
    EX_COMPARE, /* items[0] ops[0] items[1] ops[1] ... */
    EX_ATTR,
    EX_ITEM,
    EX_SLICE,
    EX_CALL,
    EX_FILTER,
    EX_TEST,
    EX_ARITH,
    EX_NEG,
    EX_POS,
    EX_NOT,
    EX_AND,
    EX_OR,
    EX_IF, /* a if b else c; c may be NULL */
};

struct jinja_expr {
    uint8_t kind; /* enum jinja_expr_kind */
    uint8_t op;   /* EX_ARITH: enum jinja_op */
    uint32_t line;
    union {
        struct jv value; /* EX_CONST; EX_NAME: the name */
        struct {
            struct jinja_exprs items;
            uint8_t *ops;
        }; /* EX_TUPLE .. EX_COMPARE */
        struct {
            struct jinja_expr *a, *b, *c, *d;
        }; /* EX_ITEM a[b], EX_SLICE a[b:c:d], operators */
        struct {
            struct jinja_expr *of;
            struct jv name;
        }; /* EX_ATTR */
        struct {
            struct jinja_expr
                *callee; /* EX_FILTER, EX_TEST: the value; NULL: the text of the block */
            struct jinja_arg_exprs *args;
            const struct jinja_def *def; /* EX_FILTER, EX_TEST; NULL: there is none of that name */
            const char *def_name;        /* terminated */
        } call;
    };
};

enum jinja_stmt_kind {
    ST_TEXT,
    ST_PRINT,
    ST_FOR,
    ST_IF,
    ST_SET,
    ST_SET_BLOCK,
    ST_MACRO,
    ST_CALL,
    ST_FILTER,
    ST_WITH,
    ST_SCOPE, /* generation, autoescape: a body with names of its own */
    ST_BREAK,
    ST_CONTINUE,
};

struct jinja_if_part {
    struct jinja_expr *test; /* NULL: else */
    struct jinja_stmt *body;
    struct jinja_if_part *next;
};

/* What a macro or call block takes. */
struct jinja_macro_def {
    struct jv name;
    struct jv *params;
    struct jinja_expr **defaults; /* n_params; NULL: none */
    size_t n_params;
    struct jinja_stmt *body;
    bool takes_varargs, takes_kwargs, takes_caller; /* the body uses these names */
};

struct jinja_stmt {
    uint8_t kind; /* enum jinja_stmt_kind */
    uint32_t line;
    struct jinja_stmt *next;
    union {
        struct jv text;          /* ST_TEXT */
        struct jinja_expr *expr; /* ST_PRINT */
        struct jinja_if_part *parts;
        struct {
            struct jinja_expr *target, *iter, *test; /* test: NULL when there is none */
            struct jinja_stmt *body, *otherwise;
            bool uses_loop;
        } loop; /* ST_FOR */
        struct {
            struct jinja_expr
                *target;              /* EX_NAME, EX_TUPLE or EX_ATTR of an EX_NAME (a namespace) */
            struct jinja_expr *value; /* ST_SET; ST_SET_BLOCK: filters of the text or NULL */
            struct jinja_stmt *body;
        } set; /* also ST_FILTER, which has no target */
        struct jinja_macro_def macro;
        struct {
            struct jinja_expr *call; /* EX_CALL */
            struct jinja_macro_def *def;
        } call;
        struct {
            struct jinja_exprs targets, values;
            struct jinja_stmt *body;
        } with; /* also ST_SCOPE, which has no names */
    };
};

struct chat_template {
    struct jinja_mem mem;
    struct jinja_stmt *body;
    const char *src; /* in mem */
    size_t n_src;
};

/* A macro at work: its definition and the names around it. */
struct jinja_macro {
    const struct jinja_macro_def *def;
    struct jinja_scope *scope;
};

#endif
