/* step_cost: fading means, and a line by least squares from five sums. */
#include "common/engine/step_cost.h"

#include <limits.h>
#include <math.h>

static const double FAR = 4;            /* a step counts as at most so many times the expected */
static const double KEEP = 15.0 / 16;   /* of the line's sums, from step to step */
static const double SPREAD_MIN = 64;    /* standard deviation of contexts that tells a slope */
static const double BASE_MIN = 1.0 / 8; /* of the mean: what a row takes without a context */
enum { DECODE_REACH = 8, PRIOR_ROWS_MIN = 8 };

static int class_of(int rows) {
    int c = 0;
    while (c < STEP_DECODE_CLASSES - 1 && (1 << c) < rows) c++;
    return c;
}

/* Rows that so many cost. */
static int in_full(const struct step_cost *c, int rows) {
    const int tile = c->tile > 0 ? c->tile : 1;
    return rows > INT_MAX - tile ? rows : (rows + tile - 1) / tile * tile;
}

static double clip(double v, double expected) {
    if (expected <= 0) return v;
    return fmin(fmax(v, expected / FAR), expected * FAR);
}

double step_cost_decode_us(const struct step_cost *c, int decode_rows) {
    return decode_rows > 0 ? c->decode[class_of(decode_rows)].us : 0;
}

double step_cost_row_us(const struct step_cost *c, double context) {
    if (c->w <= 0) return 0;
    const double x = c->wx / c->w, y = c->wy / c->w;
    const double var = c->wxx / c->w - x * x;
    double slope = var > SPREAD_MIN * SPREAD_MIN ? (c->wxy / c->w - x * y) / var : 0;
    if (slope < 0) slope = 0;
    if (y - slope * x < y * BASE_MIN) slope = x > 0 ? y * (1 - BASE_MIN) / x : 0;
    return y + slope * (fmax(context, 0) - x);
}

static void add_decode(struct step_cost *c, int rows, double us) {
    struct step_decode *d = &c->decode[class_of(rows)];
    us = clip(us, d->us);
    if (d->n < DECODE_REACH) d->n++;
    d->us += (us - d->us) / d->n;
    d->at = c->steps;
}

static void add_rows(struct step_cost *c, const struct step_seen *s, double us) {
    const int all = s->decode_rows + s->prompt_rows; /* a step of few has no tiles to fill */
    const double w = all > c->tile ? in_full(c, all) - s->decode_rows : s->prompt_rows,
                 x = fmax(s->context, 0);
    const double y = clip(us / w, step_cost_row_us(c, x));
    c->w = c->w * KEEP + w;
    c->wx = c->wx * KEEP + w * x;
    c->wxx = c->wxx * KEEP + w * x * x;
    c->wy = c->wy * KEEP + w * y;
    c->wxy = c->wxy * KEEP + w * x * y;
}

static bool is_known(const struct step_cost *c, int decode_rows) {
    const struct step_decode *d = &c->decode[class_of(decode_rows)];
    return d->us > 0 && c->steps - d->at <= STEP_DECODE_STALE;
}

/* A step with both. Where decode(n) is not known it has few prompt rows, and tells that. */
static void add_both(struct step_cost *c, const struct step_seen *s) {
    if (!is_known(c, s->decode_rows)) {
        if (s->prompt_rows <= STEP_PROMPT_ROWS_MIN) add_decode(c, s->decode_rows, s->us);
        return;
    }
    const double us = s->us - step_cost_decode_us(c, s->decode_rows);
    if (!c->beside) c->w = c->wx = c->wxx = c->wy = c->wxy = 0;
    c->beside = true;
    /* A step may even have been shorter than those without prompts. */
    add_rows(c, s, fmax(us, s->us / 64));
    if (s->prompt_rows > c->proven) c->proven = s->prompt_rows;
}

void step_cost_add(struct step_cost *c, const struct step_seen *s) {
    if (!isfinite(s->us) || s->us <= 0 || !isfinite(s->context)) return;
    if (s->decode_rows > 0 && s->prompt_rows > 0)
        add_both(c, s);
    else if (s->decode_rows > 0)
        add_decode(c, s->decode_rows, s->us);
    else if (s->prompt_rows >= PRIOR_ROWS_MIN && !c->beside)
        add_rows(c, s, s->us);
    c->steps++;
}

int step_cost_prompt_rows(const struct step_cost *c, const struct step_bounds *b, int decode_rows,
                          double context, int rows_max) {
    const bool shared = b->share > 0 && b->share < 100;
    if (decode_rows <= 0 || (b->percent <= 0 && b->ms <= 0 && !shared)) return rows_max;
    const double calm = step_cost_decode_us(c, decode_rows);
    double us = HUGE_VAL, least = STEP_PROMPT_ROWS_MIN;
    if (b->ms > 0)
        us = b->ms * 1e3 - calm;
    else if (b->percent > 0)
        us = calm * (b->percent - 100) / 100;
    if (shared && calm * b->share / (100 - b->share) < us) {
        us = calm * b->share / (100 - b->share);
        least = 1;
    }
    double rows = least;
    if (!is_known(c, decode_rows)) {
        rows = least = c->steps > 0 ? 1 : least;
    } else {
        const double row_us = step_cost_row_us(c, context);
        const double most = in_full(c, decode_rows + 2 * (int)fmax(c->proven, least)) - decode_rows;
        rows = row_us > 0 ? fmin(us / row_us, most) : least;
    }
    rows = fmin(fmax(rows, least), rows_max);
    return (int)fmax(rows, 1);
}

int step_cost_in_tiles(const struct step_cost *c, int decode_rows, int most, int want) {
    if (want <= most && in_full(c, decode_rows + want) - decode_rows <= most) return want;
    const int tile = c->tile > 0 ? c->tile : 1, rows = want < most ? want : most;
    const int full = (decode_rows + rows) / tile * tile - decode_rows;
    return full >= STEP_PROMPT_ROWS_MIN ? full : rows;
}
