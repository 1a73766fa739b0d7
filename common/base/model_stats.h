/* model_stats: what a server counts of the requests to each model it serves, and to each LoRA
 * adapter, as Triton's statistics have it (kserve-runtimes 10, 11). One writer; thread: the loop
 * thread. Times are microseconds of clock_us(). */
#ifndef BATON_BASE_MODEL_STATS_H
#define BATON_BASE_MODEL_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* The model, and as many adapters as an instance may have (maxLoras). One more takes the place of
 * the adapter that was asked for the longest ago. */
enum { MODEL_STATS_MAX = 1 + 1024 };

struct model_stats;

/* One that has ended. A time that is not in its order counts as the one before it. */
struct model_request {
    bool ok;             /* answered; else it has failed, or its client has left */
    unsigned n_prompts;  /* 0 counts as 1 */
    uint64_t arrival_us; /* of the request */
    uint64_t first_us;   /* its first token, 0: none was made */
    uint64_t last_us;    /* its last one */
    uint64_t end_us;     /* its answer was out, or given up */
    /* What of it was waited: for its turn, before the first token and, where it had to begin
     * again, after it. */
    uint64_t queue_us, queue_later_us;
};

/* Sums. The parts of the requests that went well make up success_us: what they waited, from there
 * to their first tokens, from these to the last ones, and from these to the end of their answers.
 */
struct model_counts {
    uint64_t n_ok, n_failed, n_prompts;
    uint64_t ok_us, failed_us;
    uint64_t queue_us, input_us, infer_us, output_us;
    uint64_t last_unix_ms; /* the last request that was answered; 0: none yet */
};

/* NULL: no memory. */
struct model_stats *model_stats_create(void);
void model_stats_destroy(struct model_stats **s);

/* adapter: its name; NULL or "": the model itself. Where there is no memory nothing is counted. s
 * may be NULL. */
void model_stats_add(struct model_stats *s, const char *adapter, const struct model_request *r);
/* All zero where nothing was counted. s may be NULL. */
void model_stats_get(const struct model_stats *s, const char *adapter, struct model_counts *out);

#endif
