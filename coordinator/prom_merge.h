/* prom_merge: the numbers of many instances as one (cluster-api 6.6): reads what each says of
 * itself in Prometheus' text form, and writes the sums. Pure; one thread.
 *
 * Samples are summed by name and labels, with the instance's role as a further label.
 *   counters, histograms  what was counted since the last time is added under the role the instance
 *                         has now. So a sum never falls: not when an instance is restarted,
 *                         switched, silent for a while or gone.
 *   gauges                summed over the instances of this round; a silent one has none
 *   pd_link_up, instance_certificate_not_after_seconds, moe_expert_imbalance, moe_experts_unused
 *                         of each instance by itself, with the labels instance_name and address: a
 *                         sum of them says nothing
 *   *_cache_usage_perc    mean, weighted with the instances' blocks
 *   npu_prefix_cache_hit_rate  all hits over all look-ups; of prefill instances when there are any
 *   request_received, _success, _failed, _cancelled_total, failed_request_perc: left out; who
 *                         answers clients knows them better
 *   process_*, baton_build_info, baton_log_dropped_total: left out; they are one process's, and
 *                         each instance shows its own
 *   moe_expert_rows_total, pd_link_rtt_seconds, pd_link_bytes_per_second
 *                         left out; a series for each expert or peer of each instance fills the
 *                         table
 * Limits: PROM_TEXT_BYTES_MAX a text, PROM_SAMPLES_MAX samples in all; more are left out. */
#ifndef BATON_COORDINATOR_PROM_MERGE_H
#define BATON_COORDINATOR_PROM_MERGE_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/err.h"

enum {
    PROM_TEXT_BYTES_MAX = 4 << 20,
    PROM_LINE_BYTES_MAX = 8192,
    PROM_SAMPLES_MAX = 200000,
    PROM_FAMILIES_MAX = 1000,
};

struct prom_merge;

enum err prom_merge_create(struct prom_merge **out);
void prom_merge_destroy(struct prom_merge **pm);
/* A new round: gauges are taken anew; those that nobody has said in the last one are forgotten. */
void prom_merge_begin(struct prom_merge *pm);
/* Whose text it is. name and address go into labels as they are: no quotes, no backslashes. */
struct prom_source {
    uint32_t id;
    const char *role, *name, *address;
    double blocks; /* weight of its means */
};
/* One instance's text. ERR_BAD_FRAME: not the format, or over a limit; nothing of it is taken.
 * ERR_NO_MEMORY: some of it is missing. */
enum err prom_merge_add(struct prom_merge *pm, const struct prom_source *src, const char *text,
                        size_t n);
/* The instance does not exist any more; what it has counted stays. */
void prom_merge_forget(struct prom_merge *pm, uint32_t id);
void prom_merge_write(const struct prom_merge *pm, struct buf *out);

#endif
