/* attention: softmax(q K^T / sqrt(head_dim)) V over paged KV, for query rows of prompts and decodes
 * alike.
 *
 * One order per (row, head): scores by position, their maximum, exponentials and their sum in lanes
 * counted from the row's first visible position, then the weighted sum of V by position. Neither
 * block size nor the rows beside it enter. Thread: attention_tile() on any thread of the pool, with
 * scratch of its own. */
#ifndef BATON_ENGINE_ATTENTION_H
#define BATON_ENGINE_ATTENTION_H

#include <stddef.h>
#include <stdint.h>
#include "common/engine/kernels.h"
#include "common/engine/kv_cache.h"

/* A tile's queries share each walk over keys and values, so that widening them is paid once; their
 * scores (ATTENTION_QUERIES x context) should stay in the second-level cache. */
enum { ATTENTION_ROWS_MAX = 16, ATTENTION_QUERIES = 32 };

struct attention_shape {
    int n_heads, n_kv_heads, head_dim;
    float scale; /* 1 / sqrt(head_dim) */
};

/* Consecutive rows of one sequence, n <= attention_rows(). */
struct attention_tile {
    const int32_t *block_table;
    int row, n;   /* rows [row, row + n) of the pass */
    int position; /* of the first row */
};

/* Rows that share one walk over the keys: enough to fill ATTENTION_QUERIES queries of a KV head. */
int attention_rows(const struct attention_shape *s);

/* Floats of scratch for one thread, for sequences of up to seq_tokens_max positions. */
size_t attention_scratch_floats(const struct attention_shape *s, int seq_tokens_max);

/* One KV head of one tile. q, out: f32 [rows][n_heads][head_dim] of the whole pass; K and V of
 * every position up to the tile's last are in the pool. window: 0, or how many positions a row
 * sees, itself included. */
void attention_tile(const struct kernels *kn, const struct attention_shape *s,
                    const struct kv_cache *kv, int layer, int window,
                    const struct attention_tile *t, int kv_head, const float *q, float *out,
                    float *scratch);

#endif
