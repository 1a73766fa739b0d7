/* kernels_grid: weights that are integers already go into panels as they are: what a file's blocks
 * or a checkpoint's groups mean is q * scale, and the panels of int8 and int4 (kernels.h) hold just
 * that. The integers stay; the scale is rounded to bf16, by which no value moves further than bf16
 * itself would move it. docs/decisions/2026-11-22-integers-stay.md. */
#ifndef BATON_ENGINE_KERNELS_GRID_H
#define BATON_ENGINE_KERNELS_GRID_H

#include "common/engine/kernels.h"

/* q [n_rows][k], of int8 from -128, of int4 from -8 to 7; scale [n_rows][k / GROUP], finite; k: a
 * multiple of GROUP; n_rows <= PANEL_ROWS. The layout of all sets but openblas. Pure. */
void panel_pack_grid(void *panel, const int8_t *q, const float *scale, int n_rows, int k,
                     enum dtype w);

#endif
