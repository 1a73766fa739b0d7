/* expert_metrics: of a model with experts, which of them the rows of passes go to:
 *
 *   moe_expert_imbalance{layer}            rows of the busiest expert over the mean of all; 1: even
 *   moe_experts_unused{layer}              experts that no row has gone to
 *   moe_expert_rows_total{layer, expert}   rows, where all layers together have at most
 *                                          METRIC_SERIES_MAX experts
 *
 * Counts are those since the start. A model without experts has no such series.
 * Thread: the loop thread. */
#ifndef BATON_INSTANCE_EXPERT_METRICS_H
#define BATON_INSTANCE_EXPERT_METRICS_H

#include "common/base/metrics.h"
#include "common/engine/engine.h"

struct expert_metrics;

/* The registry outlives it. ERR_NO_MEMORY. */
enum err expert_metrics_create(struct expert_metrics **out, struct metrics *reg);
void expert_metrics_destroy(struct expert_metrics **x); /* NULL is fine */
/* e: the same engine each time. */
void expert_metrics_read(struct expert_metrics *x, const struct engine *e);

#endif
