/* sample_priv: what sample.c and sample_mass.c share; for them and their tests only. */
#ifndef BATON_ENGINE_SAMPLE_PRIV_H
#define BATON_ENGINE_SAMPLE_PRIV_H

#include "common/engine/sample.h"
#include "common/engine/sample_wide.h"

/* A token that is still in the game. Rank: larger key first, then lower id. */
struct cand {
    float key;
    int32_t id;
    double p; /* exp((logit - largest) / temperature), so at most 1; not normalised */
};

struct sample_scratch {
    int vocab_size;
    const struct sample_wide *wide;
    bool one_by_one;    /* draws go the long way only: what the short one is held against */
    float *group_max;   /* [groups], NaN: to be looked at */
    uint32_t *counts;   /* [vocab_size] zero between calls */
    struct cand *cands; /* [vocab_size] the candidates in id order */
    struct cand *work;  /* [vocab_size] permuted by the quickselect */
    float *p;           /* [groups][SAMPLE_GROUP] */
    double *sums;       /* [groups] */
    int32_t *groups;    /* [groups] some of their numbers */
};

static inline bool sample_ranks_before(const struct cand *a, const struct cand *b) {
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

/* The candidate of w[0..n) at which the running weight, in rank order, first reaches target; the
 * weight of one is 1 or its p. Rounding may leave the target just out of reach: then the last in
 * rank. Permutes w. The pivots come from a fixed sequence, so the same input always takes the same
 * way. */
struct cand sample_select_cut(struct cand *w, int n, double target, bool by_p);

/* sample_mass.c: the draw where top_p or typical_p (typical) of `share` is the only filter, u of
 * [0, 1) from the generator. s->group_max is of these logits. False: it takes sums in the order of
 * ids to tell. */
bool sample_mass_draw(struct sample_scratch *s, const float *logits, int n, float max, float scale,
                      double share, bool typical, double u, int32_t *id);

#endif
