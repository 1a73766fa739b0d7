/* guide_expr: expressions, what regular expressions and EBNF have in common: sets of characters,
 * sequences, alternatives, repetitions, calls. Private to common/guide. */
#ifndef BATON_GUIDE_EXPR_H
#define BATON_GUIDE_EXPR_H

#include "common/guide/fa.h"

enum expr_kind { EX_EMPTY, EX_SET, EX_CAT, EX_ALT, EX_REPEAT, EX_RULE };

struct expr {
    enum expr_kind kind;
    struct cset set;    /* EX_SET; normal */
    int32_t rule;       /* EX_RULE */
    int min, max;       /* EX_REPEAT; max -1: no end */
    struct expr **kids; /* EX_CAT, EX_ALT, EX_REPEAT (one) */
    size_t n_kids, cap_kids;
};
struct expr *expr_new(enum expr_kind kind); /* NULL: no memory */
void expr_free(struct expr *x);
bool expr_add(struct expr *x, struct expr *kid); /* takes kid, also when it fails or kid is NULL */
struct expr *expr_repeat(struct expr *x, int min, int max); /* takes x */
/* Adds what x stands for between two states. Depth is bounded by the parser's. */
void expr_emit(const struct expr *x, struct nfa *a, int32_t from, int32_t to);

/* guide_regex.c. search: the expression may match anywhere (JSON Schema's `pattern`), else all of
 * the text. ERR_INVALID with the place in eb. */
enum err regex_emit(struct nfa *a, int32_t from, int32_t to, const char *re, size_t n, bool search,
                    struct errbuf *eb);
/* Any character that a model may write: no control characters but tab, line feed and return. */
void cset_add_text(struct cset *s);

/* Reading both kinds of text. */
struct scan {
    const unsigned char *p;
    size_t n, at;
    int depth;
    struct errbuf *eb;
    const char *what; /* "regex" or "grammar", begins every error */
    enum err err;
};
bool scan_fail(struct scan *s, const char *text); /* false; "what: text at byte at" */
bool scan_memory(struct scan *s);
uint32_t scan_cp(struct scan *s); /* takes one code point; the text is UTF-8 and not at its end */
/* After '[': the rest of a class with its ']'. */
bool scan_class(struct scan *s, struct cset *out);
/* After '\': one character, or a class of several (*single false). */
bool scan_escape(struct scan *s, struct cset *out, bool in_class, bool *single);
/* A quantifier if there is one: * + ? {m} {m,} {m,n}. *found says so. */
bool scan_quantifier(struct scan *s, int *min, int *max, bool *found);
/* One of the set's code points; takes *set. NULL: no memory, s says so. */
struct expr *scan_set_expr(struct scan *s, struct cset *set);

#endif
