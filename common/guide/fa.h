/* fa: finite automata over 32-bit symbols: code points, calls of other rules, budgets of neither.
 * Built as a list of edges with empty moves, then made deterministic where that stays small.
 *
 * Thread: pure. Errors stick to the builder, so that a chain of calls is checked once at its end.
 */
#ifndef BATON_GUIDE_FA_H
#define BATON_GUIDE_FA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/work_limit.h"
#include "proto/err.h"

#define FA_CALL  0x80000000u /* | rule: the symbol that stands for any text of the rule */
#define FA_TOKEN 0x40000000u /* | id: a special token of the vocabulary */
enum { CP_MAX = 0x10FFFF, NFA_STATES_MAX = 2000000 };

struct nfa_edge {
    int32_t from, to;
    uint32_t lo, hi; /* lo > hi: the empty move */
};
struct nfa {
    struct nfa_edge *edges;
    size_t n, cap;
    int32_t n_states;
    enum err err;
};
void nfa_fini(struct nfa *a);
int32_t nfa_state(struct nfa *a);
void nfa_eps(struct nfa *a, int32_t from, int32_t to);
void nfa_range(struct nfa *a, int32_t from, uint32_t lo, uint32_t hi, int32_t to);
/* The code points of a UTF-8 text one after the other; returns the last state, made if to < 0. */
int32_t nfa_text(struct nfa *a, int32_t from, const char *s, size_t n, int32_t to);

struct fa_edge {
    uint32_t lo, hi;
    int32_t to;
};
/* Start: state 0. Edges of state q: edges[first[q] .. first[q + 1]), by lo. */
struct fa {
    int32_t n_states;
    uint8_t *accept;
    uint32_t *first;
    struct fa_edge *edges;
};
void fa_fini(struct fa *f);
/* Deterministic, or merely free of empty moves when the former would be much larger than a.
 * ERR_TOO_LARGE, ERR_TIMEOUT, ERR_NO_MEMORY: *out is empty. */
enum err fa_build(struct fa *out, const struct nfa *a, int32_t start, int32_t end,
                  const struct work_limit *w);
/* What both accept. */
enum err fa_and(struct fa *out, const struct fa *a, const struct fa *b, const struct work_limit *w);
enum err fa_is_empty(const struct fa *f, bool *empty); /* calls count as possible */
/* Adds a copy of f to a, from one state to another. */
void nfa_add_fa(struct nfa *a, int32_t from, const struct fa *f, int32_t to);

/* Sets of code points as sorted, disjoint, not adjacent ranges (after cset_normal). */
struct cset {
    struct crange {
        uint32_t lo, hi;
    } * r;
    size_t n, cap;
    bool failed;
};
void cset_fini(struct cset *s);
void cset_add(struct cset *s, uint32_t lo, uint32_t hi);
void cset_add_all(struct cset *s, const struct cset *other);
void cset_normal(struct cset *s);
void cset_negate(struct cset *s); /* of a normal set: within 0..CP_MAX less the surrogates */
void cset_remove(struct cset *s, uint32_t lo, uint32_t hi); /* of a normal set */

#endif
