/* load_report: what a run measured, as text, JSON, or a page with plots; two targets beside each
 * other. Pure but for the FILE that is given. */
#ifndef BATON_TOOLS_LOAD_REPORT_H
#define BATON_TOOLS_LOAD_REPORT_H

#include <stdio.h>
#include "common/base/buf.h"
#include "tools/load/load_run.h"

enum { LOAD_ROUNDS_MAX = 99, LOAD_SIDES_MAX = 2 };

/* All runs of one target, of as many rounds as the other's. */
struct load_side {
    const struct load_target *target;
    struct load_result *rounds; /* [n_rounds] */
    size_t n_rounds;
};

struct load_report {
    const struct load_plan *plan;
    const char *workload; /* one line, as the user asked for it */
    struct load_side sides[LOAD_SIDES_MAX];
    size_t n_sides;
};

void load_report_text(FILE *to, const struct load_report *r);
void load_report_json(struct buf *out, const struct load_report *r);
/* One file without scripts and outside assets. */
void load_report_html(struct buf *out, const struct load_report *r);

/* Figures of a result: what the texts above are made of. */
struct load_figure {
    const char *name; /* "ttft_p50_ms" */
    const char *label, *unit;
    bool more_is_better;
    bool with_goals, with_long; /* shown only where goals, or long prompts, were asked for */
    double (*of)(const struct load_result *r);
};
extern const struct load_figure load_figures[]; /* ends with a row without a name */
bool load_figure_shown(const struct load_figure *f, const struct load_plan *plan);

/* The second side over the first, round by round: median, smallest, largest. false: a round of the
 * first has 0. */
struct load_ratio {
    double median, least, most;
};
bool load_ratio(struct load_ratio *out, const struct load_figure *f, const struct load_side *first,
                const struct load_side *second);
/* The median of the rounds. */
double load_figure_median(const struct load_figure *f, const struct load_side *s);

#endif
