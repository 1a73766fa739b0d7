/* forward_split: of all cuts the largest items that keep threads busy to within BUSY, else the cut
 * that keeps them busiest. */
#include "common/engine/forward_split.h"

/* What the slowest thread may have to do, over a fair share. */
static const double BUSY = 1.03;

static int up(int a, int b) {
    return (a + b - 1) / b;
}

/* Panels by rows that the thread with most to do has at most: items of whole parts come first, each
 * to whoever is free, then those of the last part, which has fewer rows. */
static double longest(const struct split *s, int n_rows, const int *panels, int n, int threads) {
    int items = 0;
    for (int i = 0; i < n; i++) items += up(panels[i], s->panels);
    const int whole = n_rows / s->rows;
    const double last = (double)(n_rows - whole * s->rows) / s->rows;
    const double rounds = up(items * whole, threads),
                 shared = items * (whole + last) / threads + (last > 0 ? last : 0);
    return (last > 0 && shared > rounds ? shared : rounds) * s->panels * s->rows;
}

struct split forward_split(int n_rows, const int *panels, int n, int threads, int widest,
                           bool whole) {
    struct split best = {.rows = n_rows, .parts = 1, .panels = widest};
    double all = 0, least = 0;
    int last_rows = 0;
    if (threads == 1) return best;
    for (int i = 0; i < n; i++) all += (double)panels[i] * n_rows;
    for (int parts = 1; parts <= (whole ? 1 : SPLIT_PARTS_MAX); parts++) {
        struct split s = {.rows =
                              parts == 1 ? n_rows : up(up(n_rows, parts), SPLIT_ROWS) * SPLIT_ROWS};
        if (s.rows == last_rows || s.rows > n_rows) continue;
        last_rows = s.rows;
        s.parts = up(n_rows, s.rows);
        for (s.panels = widest; s.panels >= 1; s.panels--) {
            const double most = longest(&s, n_rows, panels, n, threads);
            if (least == 0 || most < least) {
                least = most;
                best = s;
            }
            if (least * threads <= BUSY * all) return best;
        }
    }
    return best;
}
