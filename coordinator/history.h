/* history: what a cluster did in the last hour, in a ring of steps of HISTORY_STEP_MS: of all of it
 * requests, tokens, KV and how long clients waited (as histograms, so that percentiles of any step
 * are known); of each instance tokens, batch and KV use. Beside it what is going on just now:
 * tokens a second of each instance and bytes a second of each KV link, smoothed.
 *
 * Memory: HISTORY_STEPS steps of about 300 bytes, and 16 for each of HISTORY_INSTANCES_MAX
 * instances at most (11.8 MB), each of which begins when it is first heard of; the one that has
 * been silent longest makes room for another. HISTORY_LINKS_MAX links in the same way. Times are of
 * one monotonic clock, which the caller reads. Pure; one thread. */
#ifndef BATON_COORDINATOR_HISTORY_H
#define BATON_COORDINATOR_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"

enum {
    HISTORY_STEP_MS = 5000,
    HISTORY_STEPS = 720,
    HISTORY_INSTANCES_MAX = 1024,
    HISTORY_LINKS_MAX = 8192,
};

struct history;

/* NULL: no memory. now_ms: its first step begins. */
struct history *history_create(uint64_t now_ms);
void history_destroy(struct history **h);

/* P has answered: the client has its first token after so long. */
struct history_first {
    uint32_t p_id, d_id;
    uint64_t ttft_us; /* 0: it is not the first of its request, which is an attempt after another */
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t kv_bytes;
    double transfer_ms; /* of the KV to D */
};
void history_first_token(struct history *h, uint64_t now_ms, const struct history_first *f);
/* D has sent so many tokens, so long after the ones before; gap_us 0: nobody can tell. */
void history_tokens(struct history *h, uint64_t now_ms, uint32_t d_id, uint64_t n, uint64_t gap_us);
enum history_end { HISTORY_ANSWERED, HISTORY_FAILED, HISTORY_CANCELLED, HISTORY_REFUSED };
void history_ended(struct history *h, uint64_t now_ms, enum history_end how);
/* How it stands, now and then; a step keeps the largest queue and the last of the rest. */
struct history_gauges {
    uint32_t running, queued, slots_used, slots_total;
    uint32_t kv_permille; /* of the blocks of all instances that decode */
};
void history_gauges(struct history *h, uint64_t now_ms, const struct history_gauges *g);
struct history_load {
    uint32_t batch; /* sequences that it works on */
    uint32_t kv_permille;
};
void history_instance(struct history *h, uint64_t now_ms, uint32_t id,
                      const struct history_load *l);

/* Just now. Of prompts where it does those, of answers where it does these. */
double history_tokens_per_s(const struct history *h, uint64_t now_ms, uint32_t id);
struct history_link {
    double bytes_per_s;
    double transfer_ms; /* of the last hand-overs, as a mean */
    uint64_t n;         /* hand-overs since it is known */
};
/* False: nothing went over it yet. */
bool history_link_get(const struct history *h, uint64_t now_ms, uint32_t p_id, uint32_t d_id,
                      struct history_link *out);

/* Appends a JSON object: the steps from number `since` on that have ended, oldest first, as one
 * array for each series, at most HISTORY_STEPS; a step of which nothing is known has null.
 * ids[n]: of these instances too, each of which is a few KB. */
void history_write(const struct history *h, uint64_t now_ms, uint64_t since, const uint32_t *ids,
                   size_t n, struct buf *out);

#endif
