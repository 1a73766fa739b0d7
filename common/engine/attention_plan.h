/* attention_plan: a layer's attention as work items for the compute pool, each of them once for
 * every group of heads (attention_groups()).
 *
 * With plenty of tiles an item is a tile. Where a tile is so large a share of the work that threads
 * would wait for it (a decode of few sequences, a long context beside short ones) each of its
 * chunks is an item, and the thread that finishes the last one joins them; where it has one chunk
 * alone, some of its rows are. All give the same bits (attention.h), so the choice may look at the
 * batch and at the threads.
 *
 * Memory is the caller's, laid out once; a pass allocates nothing. Thread: one thread fills tiles
 * and makes the plan, then any threads run its items. */
#ifndef BATON_ENGINE_ATTENTION_PLAN_H
#define BATON_ENGINE_ATTENTION_PLAN_H

#include <stdatomic.h>
#include "common/engine/attention.h"

/* Parts of chunks take no more than this, or what one row of the longest context needs. */
enum { ATTENTION_PARTS_BYTES = 16 * 1024 * 1024 };

struct attention_item {
    int tile;
    int cut;    /* index of its tile's cut; -1: all chunks of some rows */
    int chunk;  /* of a cut: 0 .. n_chunks - 1 */
    int row, n; /* rows [row, row + n) of the tile; all of them in a cut */
};

/* A tile in chunks. */
struct attention_cut {
    int tile, first, n_chunks;
    size_t parts; /* where its parts start: [groups][n_chunks][attention_part_floats()] */
};

struct attention_plan {
    struct attention_shape shape;
    int threads;
    int tiles_max, cuts_max;
    size_t items_max, parts_max; /* parts: floats */

    struct attention_tile *tiles; /* [tiles_max]; the caller's to fill, of tiles_max rows in all */
    int n_tiles;
    struct attention_item *items; /* [items_max] */
    int n_items;
    struct attention_cut *cuts; /* [cuts_max] */
    int n_cuts;
    atomic_int *done; /* [cuts_max][groups]: finished chunks; zeros between passes */
    float *parts;     /* [parts_max], 64-byte aligned */
};

/* Sets the sizes of p's arrays (the four *_max), for tiles_max tiles of sequences of up to
 * seq_tokens_max positions; the caller then sets the pointers, `done` to zeros. */
void attention_plan_init(struct attention_plan *p, const struct attention_shape *s, int threads,
                         int tiles_max, int seq_tokens_max);

/* Items for tiles[0 .. n_tiles) in layers with that window: long ones first, chunks last. */
void attention_plan_make(struct attention_plan *p, int window);

/* Item `item` of the n_items * attention_groups() of the plan. a->shape and a->window are the
 * plan's; scratch: as attention_tile(). */
void attention_plan_run(const struct attention_plan *p, const struct attention *a, int item,
                        float *scratch);

#endif
