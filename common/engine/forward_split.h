/* forward_split: the products of one region cut into work items. Whoever is free takes the next
 * item, so threads wait at most for the last items taken: an item is as large as what a thread's
 * share of the region allows, since larger ones read their weights and activations less often.
 * Where a share is a few items alone, the last rows are cut finer: they fill up what the large
 * items before them leave.
 *
 * Pure. A row's numbers depend neither on the other rows of a product nor on its other columns, so
 * the choice may look at the batch and at the threads. */
#ifndef BATON_ENGINE_FORWARD_SPLIT_H
#define BATON_ENGINE_FORWARD_SPLIT_H

#include <stdbool.h>

enum {
    SPLIT_ROWS = 48,      /* large parts of the rows are a multiple: of a tile's of every set */
    SPLIT_PARTS_MAX = 16, /* large parts */
    SPLIT_SMALL_MAX = 9,  /* small parts */
    /* Packings of small parts begin at whole groups of lanes: so many rows more, over all. */
    SPLIT_SPARE_ROWS = SPLIT_SMALL_MAX * 10,
};

struct split {
    int rows, parts; /* of an item; large parts of the rows, of which the last may have fewer */
    int small;       /* rows of an item of the rows behind them; 0: none are */
    int all_parts;   /* with the small ones */
    int panels;      /* of an item */
};

/* Products of n_rows rows with matrices of panels[0 .. n) panels, of one k, on `threads` threads.
 * widest: panels of an item at most. whole: rows are not to be parted. */
struct split forward_split(int n_rows, const int *panels, int n, int threads, int widest,
                           bool whole);

/* Rows [row, row + n) of the n_rows; `at`: the rows, rounded up to lanes, packed before them. */
struct split_part {
    int row, n, at;
};
struct split_part split_part(const struct split *s, int n_rows, int part);
/* The part that has this row. */
int split_part_of(const struct split *s, int row);

#endif
