/* step_cost: what the steps of an engine take, learnt while they run, and how many prompt rows a
 * step can carry so that the sequences that decode get their next tokens in time. Pure: times come
 * in as microseconds; no clock, no lock, no memory.
 *
 * The model. A step of n decoding rows and R prompt rows takes
 *     decode(n) + (R + spare) * (base + slope * context)
 * where context is the mean position of the prompt rows and spare the rows that the last tile has
 * room for: products take rows in tiles, and one that is not full costs what a full one does.
 * decode(n) is a fading mean by size class of n, taken from steps without prompts. The line is a
 * fading least-squares fit to what steps with both took beyond decode(n); until there is one, to
 * what rows took in steps of prompts alone.
 *
 * What it can rely on, whatever it is fed:
 * - a time that is not a positive number is ignored, so a clock that stands still teaches nothing;
 * - a single step counts as at most four times what was expected of it, and at least a quarter; so
 *   an outlier passes, and a machine that has changed is known within some twenty steps;
 * - bounds grow to at most twice the rows that a step with both is known to have had;
 * - prompts always get rows: STEP_PROMPT_ROWS_MIN where a gap bounds them, one where a share does.
 *   So a prompt of n rows that is first in line ends after at most n steps;
 * - a size class without a time, or with one that is STEP_DECODE_STALE steps old, is measured in a
 *   step that carries one prompt row. Where prompts always wait there is none without. */
#ifndef BATON_ENGINE_STEP_COST_H
#define BATON_ENGINE_STEP_COST_H

#include <stdbool.h>
#include <stdint.h>

enum { STEP_PROMPT_ROWS_MIN = 8, STEP_DECODE_STALE = 256, STEP_DECODE_CLASSES = 18 };

/* Plain; all zero at first. */
struct step_cost {
    int tile; /* rows of a tile; 0: 1 */
    struct step_decode {
        double us;                 /* 0: unknown */
        int n;                     /* times it was measured, up to the fading mean's reach */
        uint64_t at;               /* steps seen then */
    } decode[STEP_DECODE_CLASSES]; /* of 1, 2, 3..4, 5..8, ... rows */
    /* Fading sums over steps: weight, context, its square, us of a row, their product. */
    double w, wx, wxx, wy, wxy;
    bool beside; /* the sums are of steps with both */
    int proven;  /* most prompt rows of such a step */
    uint64_t steps;
};

struct step_seen {
    int decode_rows, prompt_rows;
    double context; /* mean position of the prompt rows */
    double us;
};
void step_cost_add(struct step_cost *c, const struct step_seen *s);

/* What a step of so many decoding rows takes, microseconds; 0: unknown. */
double step_cost_decode_us(const struct step_cost *c, int decode_rows);
/* What a prompt row at this position adds to it; 0: unknown. */
double step_cost_row_us(const struct step_cost *c, double context);

/* How long steps may last in which both wait. All 0: any time. */
struct step_bounds {
    int percent; /* of what the decoding rows take alone, above 100 */
    int ms;      /* or so many milliseconds; then percent does not matter */
    int share;   /* and of its time prompts have at most so many percent, 1..99 */
};
/* Prompt rows the next step may carry beside decode_rows, 1..rows_max; rows_max when there are none
 * of those, or no bounds. */
int step_cost_prompt_rows(const struct step_cost *c, const struct step_bounds *b, int decode_rows,
                          double context, int rows_max);
/* Of the `want` rows that prompts still have, so many that tiles are full beside decode_rows; all
 * of them if they take no longer than `most` rows in full tiles; never more than most. */
int step_cost_in_tiles(const struct step_cost *c, int decode_rows, int most, int want);

#endif
