/* forward_split: the products of one region cut into work items. Whoever is free takes the next
 * item, so threads wait at most for the last items taken: an item is as large as what a thread's
 * share of the region allows, since larger ones read their weights and activations less often.
 *
 * Pure. A row's numbers depend neither on the other rows of a product nor on its other columns, so
 * the choice may look at the batch and at the threads. */
#ifndef BATON_ENGINE_FORWARD_SPLIT_H
#define BATON_ENGINE_FORWARD_SPLIT_H

#include <stdbool.h>

enum {
    SPLIT_ROWS = 48,      /* parts of the rows are a multiple: of a tile's of every kernel set */
    SPLIT_PARTS_MAX = 16, /* of the rows */
};

struct split {
    int rows, parts; /* of an item; parts of the rows */
    int panels;      /* of an item */
};

/* Products of n_rows rows with matrices of panels[0 .. n) panels, of one k, on `threads` threads.
 * widest: panels of an item at most. whole: rows are not to be parted. */
struct split forward_split(int n_rows, const int *panels, int n, int threads, int widest,
                           bool whole);

#endif
