/* attention: softmax(scale q K^T) V, with scores capped or falling with the distance, over paged
 * KV, for query rows of prompts and decodes alike.
 *
 * One order per (row, head). Positions are cut in chunks [c C, (c + 1) C), C = ATTENTION_CHUNK, and
 * of each chunk the row takes what it sees: scores by position, their maximum, exponentials and
 * their sum in lanes counted from the chunk's first visible position, the weighted sum of V by
 * position. Then the chunks' results are folded into one, the lowest chunk first. Neither block
 * size nor the rows beside it nor who computes which chunk enters: attention_tile() on one thread
 * gives the bits of attention_chunk() on many and attention_join()
 * (docs/decisions/2026-11-21-attention-in-chunks.md). Which of the two, attention_plan.h decides.
 * Thread: any thread of the pool, with scratch of its own. */
#ifndef BATON_ENGINE_ATTENTION_H
#define BATON_ENGINE_ATTENTION_H

#include <stddef.h>
#include <stdint.h>
#include "common/engine/kernels.h"
#include "common/engine/kv_cache.h"

/* A tile's queries share each walk over keys and values, so that widening them is paid once; their
 * scores (ATTENTION_QUERIES x ATTENTION_CHUNK) stay in the second-level cache. */
enum { ATTENTION_ROWS_MAX = 32, ATTENTION_QUERIES = 64, ATTENTION_CHUNK = KV_CHUNK };

struct attention_shape {
    int n_heads, n_kv_heads, head_dim;
    float scale;         /* of q K^T */
    float cap;           /* scores become cap tanh(score / cap); 0: they stay */
    const float *slopes; /* [n_heads]: ALiBi, scores fall by so much a position; NULL: none */
    int values_in_keys;  /* V is the first so many values of K and has no rows; 0: it has */
    int slices;          /* the queries of a KV head in so many groups, a work item each; 0: as 1 */
};

/* Groups of heads that share a KV head: what a work item computes of its rows. */
static inline int attention_groups(const struct attention_shape *s) {
    return s->n_kv_heads * (s->slices > 0 ? s->slices : 1);
}
static inline int attention_value_dim(const struct attention_shape *s) {
    return s->values_in_keys > 0 ? s->values_in_keys : s->head_dim;
}

/* Consecutive rows of one sequence, n <= attention_rows(). */
struct attention_tile {
    const int32_t *block_table;
    int row, n;   /* rows [row, row + n) of the pass */
    int position; /* of the first row */
    int end;      /* rows see both sides: positions of the sequence; 0: none behind themselves */
};

/* One layer's attention. q: f32 [rows][n_heads][head_dim] of the whole pass, out: the same with
 * attention_value_dim(); K and V of every position up to a tile's last, or up to its end, are in
 * the pool, which has values_in_keys of the shape.
 window: 0, or how many positions
 * a row sees to a side, itself included; below 0: chunks of so many positions, of which a row sees
 * its own up to itself. */
struct attention {
    const struct kernels *kn;
    const struct attention_shape *shape;
    const struct kv_cache *kv;
    int layer, window;
    const float *sinks; /* [n_heads]: a score beside those of the keys, of no value; NULL: none */
    const float *q;
    float *out;
};

/* Rows that share one walk over the keys: enough to fill ATTENTION_QUERIES queries of a group. */
int attention_rows(const struct attention_shape *s);

/* Floats of scratch for one thread; 64-byte aligned. */
size_t attention_scratch_floats(const struct attention_shape *s);

/* How many chunks any row of the tile sees; *first: the lowest. */
int attention_chunks(const struct attention_tile *t, int window, int *first);

/* One group of one tile, all chunks. */
void attention_tile(const struct attention *a, const struct attention_tile *t, int group,
                    float *scratch);

/* The same in pieces: one chunk's result to `part` (attention_part_floats() for the tile's n rows,
 * 64-byte aligned); then, when all n_parts of the tile's chunks lie side by side from the lowest
 * on, what they make together. The parts do not survive it. */
size_t attention_part_floats(const struct attention_shape *s, int n_rows);
void attention_chunk(const struct attention *a, const struct attention_tile *t, int group,
                     int chunk, float *part, float *scratch);
void attention_join(const struct attention *a, const struct attention_tile *t, int group,
                    float *parts, int n_parts);

#endif
