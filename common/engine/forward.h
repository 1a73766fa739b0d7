/* forward: the forward pass of the families we load (model_families.c), over paged KV. One pass
 * serves prompt chunks, decode rows and texts to embed alike, and a row's numbers do not depend on
 * the other rows of the pass: every reduction's order is fixed by the shape of one row, or, in an
 * encoder, of its sequence (docs/decisions, batch invariance).
 *
 * An encoder's rows see both sides, so a sequence is one pass (n_past 0); its KV is scratch of one
 * layer, used by one layer after another.
 *
 * Thread: the engine thread; uses the compute pool given at creation. */
#ifndef BATON_ENGINE_FORWARD_H
#define BATON_ENGINE_FORWARD_H

#include <stdint.h>
#include "common/engine/engine.h"
#include "common/engine/kv_cache.h"

struct forward;
struct lora;

/* Loads config.json, weights and generation_config.json of opts->model_dir and makes scratch for
 * rows_max rows a pass, in an encoder at least for its longest text. */
enum err forward_open(struct forward **out, const struct engine_opts *opts, int rows_max,
                      struct errbuf *eb);
void forward_close(struct forward **f);
const struct model_info *forward_model(const struct forward *f);
enum err forward_check(struct forward *f, engine_checked_fn *done, void *arg); /* of the weights */
const atomic_uint_least64_t *forward_expert_rows(const struct forward *f, int layer); /* engine.h */
uint64_t forward_progress(const struct forward *f); /* any thread: pool_progress() of its threads */

/* One sequence's part of a pass: rows [first_row, first_row + n_rows) of ids, at positions n_past,
 * n_past + 1, ... block_table covers positions 0 .. n_past + n_rows - 1. */
struct fwd_seq {
    const int32_t *block_table;
    int n_past, first_row, n_rows;
    const struct lora *lora; /* of this model and at most opts->lora_rank_max; NULL: the base */
    /* A text to embed: f32 [hidden], the normed rows of its n_ids ids made one. Whoever sends it in
     * parts keeps what is there. NULL: it is none. */
    float *pooled;
    enum pooling pooling;
    int n_ids;
    int n_first;   /* ids of the first text of a pair; 0: it is one text */
    int n_tokens;  /* how long the sequence may become: RoPE may depend on it; 0: short */
    float *scores; /* f32 [n_labels] of the pooled row, with the last id; NULL: not asked for */
};

/* Where passes from now on write what sample_maxima() says of the logits of each row, while they
 * are in a near cache: f32 [n_logits][vocab_size / 64, rounded up]. NULL, as at first: nowhere. */
void forward_maxima(struct forward *f, float *to);

/* Rows that a pass computes in about the time of the next multiple: those of a tile of its products
 * (kernels.h). 1: of any number. */
int forward_row_tile(const struct forward *f);

/* fn(arg, item, thread) once for every item below n, on the compute threads (pool_run()). */
void forward_each(struct forward *f, void (*fn)(void *arg, int item, int thread), void *arg, int n);

/* ids: [n_rows]. logit_rows: [n_logits] rows whose logits are wanted; logits: f32
 * [n_logits][vocab_size]. on_layer(arg, layer) runs after the K and V of all rows of that layer are
 * in the pool; may be NULL. */
void forward_run(struct forward *f, struct kv_cache *kv, const int32_t *ids, int n_rows,
                 const struct fwd_seq *seqs, int n_seqs, const int *logit_rows, int n_logits,
                 float *logits, void (*on_layer)(void *arg, int layer), void *arg);

#endif
