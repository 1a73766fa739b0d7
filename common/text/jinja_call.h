/* jinja_call: calling filters, tests, methods, functions and macros, and the tables of the first
 * four. */
#ifndef BATON_TEXT_JINJA_CALL_H
#define BATON_TEXT_JINJA_CALL_H

#include "common/text/jinja_run.h"

enum { CALL_PARAMS_MAX = 6 };

struct jinja_args {
    struct jv *pos, *kw, *kw_names;
    size_t n_pos, n_kw;
};

/* One call of a built-in. */
struct jinja_call {
    struct jinja_run *r;
    const char *name;              /* for messages */
    struct jv self;                /* what the filter, test or method is applied to */
    const struct jinja_args *args; /* as given */
    struct jv a[CALL_PARAMS_MAX];  /* by parameter; JV_ABSENT when left out */
    struct jv *out;
};

/* A row of a table of built-ins. */
struct jinja_def {
    const char *name;
    bool (*fn)(struct jinja_call *c);
    const char *params; /* names, space between them; NULL: fn looks at args itself */
    int n_required;
};

/* NULL: there is none. */
const struct jinja_def *jinja_filter_find(const char *name, size_t n);
const struct jinja_def *jinja_text_filter_find(const char *name,
                                               size_t n); /* jinja_filters_text.c */
const struct jinja_def *jinja_test_find(const char *name, size_t n);
const struct jinja_def *jinja_func_find(const char *name, size_t n);
const struct jinja_def *jinja_method_find(const struct jv *of, const struct jv *name);
/* Methods that would change data, which the sandbox withholds. */
bool jinja_method_is_unsafe(const struct jv *of, const struct jv *name);
const struct jinja_def *jinja_def_find(const struct jinja_def *table, size_t n_rows,
                                       const char *name, size_t n);

bool jinja_call_def(struct jinja_run *r, const struct jinja_def *def, const struct jv *self,
                    const struct jinja_args *args, struct jv *out);
bool jinja_call_value(struct jinja_run *r, const struct jv *callee, const struct jinja_args *args,
                      struct jv *out);
bool jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jv *out); /* jinja_exec.c */

/* Parameters of built-ins: what an absent one defaults to, and the type it must have. */
bool jinja_param_int(struct jinja_call *c, int i, int64_t absent, int64_t *out);
bool jinja_param_str(struct jinja_call *c, int i, const char *absent, struct jv *out);
bool jinja_param_bool(const struct jinja_call *c, int i, bool absent);

/* HTML escaping of str(v); the result is marked safe. Safe text stays. */
bool jinja_escape(struct jinja_run *r, const struct jv *v, struct jv *out);

#endif
