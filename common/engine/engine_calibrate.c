/* engine_calibrate: probes of a model that has not run yet: prompts of growing length, and steps of
 * growing batches. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/engine/engine_priv.h"

static const struct probe {
    bool decodes;
    int n; /* rows of a prompt, or sequences */
} probes[] = {{true, 1},    {false, 16}, {true, 1},    {false, 64}, {true, 2},   {true, 4},
              {false, 128}, {true, 8},   {false, 256}, {true, 16},  {false, 512}};
enum { N_PROBES = sizeof(probes) / sizeof(probes[0]), ROWS_MAX = 512 };
static const double PROBE_S = 0.5; /* one that would take longer is not begun */

static bool fits(const struct engine *e, const struct probe *p) {
    if (p->decodes) return p->n <= e->batch_max && p->n <= e->limits.decode_max;
    return p->n <= e->limits.rows_max && p->n <= e->limits.chunk_max && p->n < e->seq_tokens_max;
}

/* By what the last probe of its kind took. */
static double expected_s(const struct engine *e, const struct probe *p) {
    return p->decodes ? perf_step_s(&e->perf, p->n, 0) : perf_prompt_s(&e->perf, p->n);
}

/* Seconds of it; 0: no memory or no blocks for it. */
static double run(struct engine *e, const struct probe *p) {
    struct fwd_seq parts[ROWS_MAX];
    int32_t blocks[ROWS_MAX];
    int logit_rows[ROWS_MAX];
    const int n_parts = p->decodes ? p->n : 1, bt = e->block_tokens;
    const int n_blocks = p->decodes ? p->n : (p->n + bt - 1) / bt;
    if (!kv_blocks_alloc(e->kv, blocks, n_blocks)) return 0;
    for (int i = 0; i < p->n; i++) e->row_ids[i] = i % e->info.vocab_size;
    for (int i = 0; i < n_parts; i++) {
        parts[i] = (struct fwd_seq){.block_table = blocks + i,
                                    .n_past = p->decodes ? bt - 1 : 0,
                                    .first_row = i,
                                    .n_rows = p->decodes ? 1 : p->n,
                                    .n_ids = p->decodes ? bt : p->n};
        logit_rows[i] = p->decodes ? i : p->n - 1;
    }
    const uint64_t start_us = clock_us();
    e->ops->run(e->fwd, e->kv, e->row_ids, p->n, parts, n_parts, logit_rows, n_parts, e->logits,
                NULL, NULL);
    const double s = (double)(clock_us() - start_us) * 1e-6;
    kv_blocks_unref(e->kv, blocks, n_blocks);
    return s;
}

bool engine_calibrate(struct engine *e) {
    const struct probe *p = &probes[e->n_probes];
    if (e->in_step || e->steps > 0 || e->info.encoder || e->info.no_head ||
        e->n_probes >= N_PROBES || e->probes_s >= ENGINE_CALIBRATE_S)
        return false;
    const bool warms = e->n_probes++ == 0; /* the first touches everything once */
    if (!fits(e, p) || expected_s(e, p) > PROBE_S) return true;
    const double s = run(e, p);
    e->probes_s += s;
    if (s > 0 && !warms) {
        if (p->decodes)
            perf_add_step(&e->perf, p->n, e->block_tokens, s);
        else
            perf_add_prompt(&e->perf, p->n, s);
        step_cost_add(&e->cost, &(struct step_seen){.decode_rows = p->decodes ? p->n : 0,
                                                    .prompt_rows = p->decodes ? 0 : p->n,
                                                    .context = p->n / 2.0,
                                                    .us = s * 1e6});
        engine_stats_publish(e);
    }
    return true;
}
