/* forward_split: of all cuts the largest items that keep threads busy to within BUSY, else the cut
 * that keeps them busiest. */
#include "common/engine/forward_split.h"

#include "common/engine/kernels.h"

/* What the slowest thread may have to do, over a fair share. */
static const double BUSY = 1.03;

static int up(int a, int b) {
    return (a + b - 1) / b;
}

struct split_part split_part(const struct split *s, int n_rows, int part) {
    const bool large = part < s->parts;
    const int small = large ? 0 : part - s->parts, behind = s->parts * s->rows;
    struct split_part p = {.row = large ? part * s->rows : behind + small * s->small};
    const int most = large ? s->rows : s->small;
    p.n = n_rows - p.row < most ? n_rows - p.row : most;
    p.at = large ? p.row : behind + small * lanes_up(s->small);
    return p;
}

int split_part_of(const struct split *s, int row) {
    const int behind = s->parts * s->rows;
    return s->small == 0 || row < behind ? row / s->rows : s->parts + (row - behind) / s->small;
}

/* When the last of `n` small items of that size is done, taken by `later` threads at 1 and the
 * others at 0. A thread that is free at 1 does as many less as are begun by then. */
static double small_done(int n, double size, int later, int threads) {
    const int missed = (int)(1 / size + 0.999);
    int each = (n + (later > 0 ? later * (missed < n ? missed : n) : 0)) / threads;
    while (each > 0 &&
           (threads - later) * (each - 1) + later * (each - 1 > missed ? each - 1 - missed : 0) >=
               n)
        each--;
    while ((threads - later) * each + later * (each > missed ? each - missed : 0) < n) each++;
    return each * size;
}

/* Panels by rows that the thread with most to do has at most: items of large parts come first, each
 * to whoever is free, then small ones, then those of the last part, which may have fewer rows. */
static double longest(const struct split *s, int n_rows, const int *panels, int n, int threads) {
    int items = 0;
    for (int i = 0; i < n; i++) items += up(panels[i], s->panels);
    const int large = s->small > 0 ? s->parts : n_rows / s->rows;
    const int rest = n_rows - large * s->rows, small = s->small > 0 ? rest / s->small : 0;
    const double one = s->rows, last = (double)(rest - small * s->small) / one;
    const int rounds = items * large / threads, later = items * large % threads;
    double most = rounds + (later > 0);
    if (small > 0) {
        const double done = rounds + small_done(items * small, s->small / one, later, threads);
        if (done > most) most = done;
    }
    if (last > 0) {
        const double shared = items * (double)n_rows / one / threads + last;
        if (shared > most) most = shared;
    }
    return most * s->panels * one;
}

/* Looks at cuts from the largest items on; `small`: rows of small parts, 0: none. Returns whether
 * one keeps threads busy; *best and *least: of all that were looked at. */
static bool look(struct split *best, double *least, int small, int n_rows, const int *panels, int n,
                 int threads, int widest, double goal) {
    int last_rows = 0;
    for (int parts = 1; parts <= SPLIT_PARTS_MAX; parts++) {
        struct split s = {.small = small};
        s.rows = parts == 1 ? n_rows : up(up(n_rows, parts), SPLIT_ROWS) * SPLIT_ROWS;
        if (s.rows == last_rows || s.rows > n_rows) continue;
        last_rows = s.rows;
        for (int fewer = 0; fewer <= (small > 0 ? 1 : 0); fewer++) {
            s.parts = small > 0 ? n_rows / s.rows - fewer : up(n_rows, s.rows);
            const int rest = small > 0 ? n_rows - s.parts * s.rows : 0;
            if (small > 0 && (rest < small || rest > small * SPLIT_SMALL_MAX)) continue;
            s.all_parts = s.parts + (small > 0 ? up(rest, small) : 0);
            for (s.panels = widest; s.panels >= 1; s.panels--) {
                const double most = longest(&s, n_rows, panels, n, threads);
                if (*least == 0 || most < *least) {
                    *least = most;
                    *best = s;
                }
                if (*least <= goal) return true;
            }
        }
    }
    return false;
}

struct split forward_split(int n_rows, const int *panels, int n, int threads, int widest,
                           bool whole) {
    static const int smalls[] = {0, 24, 12, 6};
    struct split best = {.rows = n_rows, .parts = 1, .all_parts = 1, .panels = widest};
    double all = 0, least = 0;
    if (threads == 1) return best;
    for (int i = 0; i < n; i++) all += (double)panels[i] * n_rows;
    const double goal = BUSY * all / threads;
    if (whole || n_rows < smalls[1]) {
        for (struct split s = best; s.panels >= 1; s.panels--) {
            const double most = longest(&s, n_rows, panels, n, threads);
            if (least == 0 || most < least) {
                least = most;
                best = s;
            }
            if (least <= goal) break;
        }
        return best;
    }
    for (size_t i = 0; i < sizeof(smalls) / sizeof(smalls[0]); i++)
        if (look(&best, &least, smalls[i], n_rows, panels, n, threads, widest, goal)) break;
    return best;
}
