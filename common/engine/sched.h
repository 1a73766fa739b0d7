/* sched: which sequences run how many rows in the next step. Pure: plain views in, plain counts
 * out; no clock, no lock, no memory.
 *
 * Rules, in this order:
 * 1. A step has at most rows_max rows.
 * 2. Sequences that decode run one row each, at most decode_max of them. When they do not all fit,
 * tenants take turns: first of each the one that waited longest, then the second of each, and so
 * on; so one stream beside a tenant's full batch has a row of every step. Of those that ran
 * together a lot says who is left out.
 * 3. While a prompt waits, decodes leave it a quarter of the rows (at least one, when rows_max >
 * 1), so neither side starves.
 * 4. Prompts run in the order of priority, at most prefill_max of them, at most chunk_max rows
 * each. Tenants take turns: first the oldest prompt of each, then the second of each, and so on, by
 * age among those. Before any has more, the oldest prompts of the best priority have an equal part
 * of the rows each; so a tenant's long prompt does not hold up another's.
 * 5. A prompt whose every row needs logits shares logit_rows_max rows a step with its like, because
 * logits are wide.
 * 6. A prompt that must be whole takes all its rows or none, whatever chunk_max says; one of more
 * than rows_max is a step of its own, when its turn has come. beside_decode_max does not bind it.
 * 7. Rows nobody else wants go to the guesses that decoding sequences bring along, one each in
 * turn, while all their rows together are at most draft_rows_max: a step of few rows costs hardly
 * more than a step of one, a step of many does. Which rows meet in a step never changes a row's
 * numbers (forward.h), so every rule here is about time only. */
#ifndef BATON_ENGINE_SCHED_H
#define BATON_ENGINE_SCHED_H

#include <stdbool.h>
#include <stdint.h>

struct sched_seq {
    int pending;        /* rows it still has to compute before its next token, >= 1 */
    bool decoding;      /* pending is 1 and it has generated before */
    int draft;          /* rows it could use beyond that one; decoding only */
    bool whole;         /* all its rows run in one step, or none */
    bool all_logits;    /* every prompt row needs logits */
    int priority;       /* 1 first .. 5 last */
    uint64_t tenant;    /* whose it is */
    uint64_t age;       /* order of arrival: smaller came earlier; unique */
    uint64_t last_step; /* step it last ran in */
};

struct sched_limits {
    int rows_max, decode_max, prefill_max, chunk_max, logit_rows_max; /* all >= 1 */
    int beside_decode_max; /* rows of prompts while a sequence decodes, >= 1 */
    int draft_rows_max;    /* rows of decoding sequences up to which guesses run too; 0: none run */
};

/* rows: int [n_seqs], filled with 0 or the rows of that sequence. order: int [2 * n_seqs], scratch.
 * Returns the sum of rows. */
int sched_step(const struct sched_seq *seqs, int n_seqs, const struct sched_limits *lim, int *rows,
               int *order);

#endif
