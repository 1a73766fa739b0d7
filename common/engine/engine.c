/* engine: opening and closing, what may be asked at any time, and the statistics. Sequences are in
 * engine_seq.c, the step in engine_step.c. */
#include "common/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/engine/engine_priv.h"
#include "common/engine/kernels.h"

const char *dtype_name(enum dtype t) {
    switch (t) {
    case DTYPE_F32: return "f32";
    case DTYPE_F16: return "f16";
    case DTYPE_BF16: return "bf16";
    case DTYPE_INT8:
    case DTYPE_INT8_NARROW: return "int8";
    case DTYPE_INT4: return "int4";
    case DTYPE_Q4_K: return "q4_k";
    case DTYPE_Q5_K: return "q5_k";
    case DTYPE_Q6_K: return "q6_k";
    case DTYPE_IQ4_NL: return "iq4_nl";
    case DTYPE_IQ4_XS: return "iq4_xs";
    case DTYPE_MXFP4: return "mxfp4";
    case DTYPE_NONE:
    case DTYPE_COUNT: break;
    }
    return "none";
}

enum dtype dtype_of_name(const char *name) {
    for (enum dtype t = DTYPE_F32; t <= DTYPE_INT4; t++)
        if (strcmp(name, dtype_name(t)) == 0) return t;
    return DTYPE_NONE;
}

/* ---- opening */

static enum err opts_check(const struct engine_opts *o, struct errbuf *eb) {
    const struct {
        const char *name;
        int v, min, max;
    } fields[] = {
        {"cacheBlockSize", o->block_tokens, 1, KV_BLOCK_TOKENS_MAX},
        {"maxSeqLen", o->seq_tokens_max, 2, INT32_MAX},
        {"maxBatchSize", o->batch_max, 1, ENGINE_SLOTS_MAX},
        {"maxPrefillBatchSize", o->prefill_batch_max, 1, INT32_MAX},
        {"tokens of a step", o->step_tokens_max, 1, ENGINE_ROWS_MAX},
        {"tokens of a chunk", o->chunk_tokens, 1, INT32_MAX},
        {"decodeGapMs", o->decode_gap_ms, 0, ENGINE_GAP_MS_MAX},
        {"length of the queue", o->queue_max, 1, ENGINE_QUEUE_MAX},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].v < fields[i].min || fields[i].v > fields[i].max)
            return err_set(eb, ERR_BAD_CONFIG, "%s must be from %d to %d, got %d", fields[i].name,
                           fields[i].min, fields[i].max, fields[i].v);
    const int percent = o->decode_gap_percent;
    if (percent != 0 && (percent <= 100 || percent > ENGINE_GAP_PERCENT_MAX))
        return err_set(eb, ERR_BAD_CONFIG, "decodeGapPercent must be 0 or from 101 to %d, got %d",
                       ENGINE_GAP_PERCENT_MAX, percent);
    if (kv_row_bytes(1, o->kv_dtype) == 0)
        return err_set(eb, ERR_BAD_CONFIG, "KV type must be bf16, f32 or int8, got %s",
                       dtype_name(o->kv_dtype));
    return ERR_OK;
}

static enum err pool_open(struct engine *e, const struct engine_opts *opts, struct errbuf *eb) {
    enum err err = engine_pool_blocks(opts, &e->info, e->seq_tokens_max, engine_free_memory(),
                                      &e->n_blocks, eb);
    if (err != ERR_OK) return err;
    const struct kv_shape shape = {
        .n_layers = model_kv_layers(&e->info),
        .n_kv_heads = e->info.n_kv_heads,
        .head_dim = e->info.head_dim,
        .block_tokens = opts->block_tokens,
        .n_blocks = e->n_blocks + 1, /* one for engine_self_test() */
        .dtype = e->info.encoder ? e->info.kv_dtype : opts->kv_dtype,
        .values_in_keys = e->info.values_in_keys,
    };
    if ((err = kv_cache_create_in(&e->kv, &shape, opts->kv_pages, eb)) != ERR_OK) return err;
    (void)kv_blocks_alloc(e->kv, &e->self_block, 1); /* a fresh pool has one */
    if (!opts->prefix_cache) return ERR_OK;
    if ((err = prefix_log_create(&e->prefix_log)) != ERR_OK)
        return err_set(eb, err, "the prefix cache: %s", err_text(err));
    kv_prefix_tell(e->kv, e->prefix_log);
    return ERR_OK;
}

static enum err buffers_open(struct engine *e, const struct engine_opts *opts, struct errbuf *eb) {
    size_t n = (size_t)e->slots_max, rows = (size_t)e->limits.rows_max;
    size_t n_decode = n > ENGINE_DRAFT_ROWS ? n : ENGINE_DRAFT_ROWS;
    size_t n_logits = n_decode + ENGINE_WIDE_ROWS < rows ? n_decode + ENGINE_WIDE_ROWS : rows;
    size_t n_row =
        (size_t)(e->info.vocab_size > e->info.hidden ? e->info.vocab_size : e->info.hidden);
    if (e->info.no_head) n_logits = 1;
    if (e->info.encoder && rows < (size_t)e->seq_tokens_max) rows = (size_t)e->seq_tokens_max;
    uint32_t want = 2 * ((uint32_t)e->queue_max + (uint32_t)e->slots_max);
    e->logits_max = (int)n_logits;
    for (e->table_size = 1; e->table_size < want;) e->table_size *= 2;
    e->table = calloc(e->table_size, sizeof(struct seq *));
    e->slots = calloc(n, sizeof(struct choice *));
    e->views = calloc(n, sizeof(*e->views));
    e->view_choices = calloc(n, sizeof(struct choice *));
    e->view_rows = calloc(n, sizeof(int));
    e->order = calloc(2 * n, sizeof(int));
    e->plan = calloc(n, sizeof(struct choice *));
    e->parts = calloc(n, sizeof(*e->parts));
    e->part_logit = calloc(n, sizeof(int));
    e->row_ids = calloc(rows, sizeof(int32_t));
    e->logit_rows = calloc(n_logits, sizeof(int));
    e->logits = calloc(n_logits, sizeof(float) * (size_t)e->info.vocab_size);
    e->row = calloc(n_row, sizeof(float));
    e->drawn = calloc(n, sizeof(*e->drawn));
    e->ahead = calloc(n, sizeof(int));
    if (e->ops->maxima != NULL)
        e->maxima = calloc(n_logits, sizeof(float) * (size_t)sample_groups(e->info.vocab_size));
    if (e->table == NULL || e->slots == NULL || e->views == NULL || e->view_choices == NULL ||
        e->view_rows == NULL || e->order == NULL || e->plan == NULL || e->parts == NULL ||
        e->part_logit == NULL || e->row_ids == NULL || e->logit_rows == NULL || e->logits == NULL ||
        e->row == NULL || e->drawn == NULL || e->ahead == NULL ||
        (e->ops->maxima != NULL && e->maxima == NULL) || !engine_draw_open(e, opts->n_threads))
        return err_set(eb, ERR_NO_MEMORY, "no memory for a batch of %d sequences", e->batch_max);
    if (e->maxima != NULL) e->ops->maxima(e->fwd, e->maxima);
    return ERR_OK;
}

/* What its times depend on. */
static void name_kind(struct engine *e) {
    const struct model_info *i = &e->info;
    snprintf(e->perf.kind, sizeof(e->perf.kind), "%s/%d/%s-%s/%02x%02x%02x%02x", i->kernels,
             i->n_threads, dtype_name(i->weight_dtype), dtype_name(i->kv_dtype), i->hash[0],
             i->hash[1], i->hash[2], i->hash[3]);
}

enum err engine_open_with(struct engine **out, const struct engine_opts *opts,
                          const struct forward_ops *ops, struct errbuf *eb) {
    *out = NULL;
    enum err err = opts_check(opts, eb);
    if (err != ERR_OK) return err;
    struct engine *e = calloc(1, sizeof(*e));
    if (e == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for an engine");
    e->ops = ops;
    e->step_clock = clock_us;
    if ((err = ops->open(&e->fwd, opts, opts->step_tokens_max, eb)) != ERR_OK) goto fail;
    e->info = *ops->model(e->fwd);
    name_kind(e);
    e->block_tokens = opts->block_tokens;
    e->seq_tokens_max =
        opts->seq_tokens_max < e->info.context_max ? opts->seq_tokens_max : e->info.context_max;
    e->batch_max = opts->batch_max;
    e->slots_max = engine_slots_max(e->batch_max);
    e->queue_max = opts->queue_max;
    e->prefix_cache = opts->prefix_cache && !e->info.encoder;
    e->lora_rank_max = opts->lora_rank_max;
    e->limits = (struct sched_limits){
        .rows_max = opts->step_tokens_max,
        .decode_max = opts->batch_max,
        .prefill_max = opts->prefill_batch_max,
        .chunk_max = opts->chunk_tokens,
        .logit_rows_max = ENGINE_WIDE_ROWS,
        .draft_rows_max = ENGINE_DRAFT_ROWS,
        .beside_decode_max = opts->step_tokens_max,
    };
    if (ops->row_tile != NULL) e->cost.tile = ops->row_tile(e->fwd);
    e->bounds =
        (struct step_bounds){.percent = opts->decode_gap_percent, .ms = opts->decode_gap_ms};
    if ((err = pool_open(e, opts, eb)) != ERR_OK) goto fail;
    if ((err = buffers_open(e, opts, eb)) != ERR_OK) goto fail;
    if (pthread_mutex_init(&e->stats_lock, NULL) != 0) {
        err = err_set(eb, ERR_NO_MEMORY, "no memory for a lock");
        goto fail;
    }
    e->stats_lock_made = true;
    engine_stats_publish(e);
    *out = e;
    return ERR_OK;
fail:
    engine_close(&e);
    return err;
}

void engine_close(struct engine **e_ptr) {
    struct engine *e = *e_ptr;
    if (e == NULL) return;
    for (uint32_t i = 0; e->table != NULL && i < e->table_size; i++)
        while (e->table[i] != NULL) engine_seq_end(e, e->table[i]);
    engine_bury(e);
    if (e->stats_lock_made) pthread_mutex_destroy(&e->stats_lock);
    engine_draw_close(e);
    free(e->table);
    free(e->slots);
    free(e->views);
    free(e->view_choices);
    free(e->view_rows);
    free(e->order);
    free(e->plan);
    free(e->parts);
    free(e->part_logit);
    free(e->row_ids);
    free(e->logit_rows);
    free(e->logits);
    free(e->row);
    free(e->maxima);
    free(e->drawn);
    free(e->ahead);
    kv_cache_destroy(&e->kv);
    prefix_log_destroy(&e->prefix_log);
    if (e->fwd != NULL) e->ops->close(&e->fwd);
    free(e);
    *e_ptr = NULL;
}

/* ---- questions */

const struct model_info *engine_model(const struct engine *e) {
    return &e->info;
}

int engine_block_tokens(const struct engine *e) {
    return e->block_tokens;
}

enum err engine_prefix_changes(const struct engine *e, uint64_t epoch, uint64_t seq,
                               struct prefix_msg *out) {
    return prefix_log_read(e->prefix_log, epoch, seq, out);
}

int engine_seq_tokens_max(const struct engine *e) {
    return e->seq_tokens_max;
}

uint8_t *engine_kv_block(const struct engine *e, int layer, int32_t block) {
    return kv_block_ptr(e->kv, layer, block);
}

size_t engine_kv_block_bytes(const struct engine *e) {
    return kv_block_bytes(kv_cache_shape(e->kv));
}

void engine_set_events(struct engine *e, const struct engine_events *ev) {
    e->ev = *ev;
}

void engine_set_prefill_share(struct engine *e, int percent) {
    e->bounds.share = percent;
}

enum err engine_self_test(struct engine *e) {
    if (e->in_step) return ERR_CONFLICT;
    const int32_t id = 0;
    const int row = 0;
    struct fwd_seq part = {.block_table = &e->self_block, .n_rows = 1, .n_ids = 1};
    const float *out = e->logits;
    int n = e->info.vocab_size;
    if (e->info.no_head) {
        part.pooled = e->row;
        part.pooling = POOL_LAST;
        out = e->row;
        n = e->info.hidden;
    }
    e->ops->run(e->fwd, e->kv, &id, 1, &part, 1, &row, e->info.no_head ? 0 : 1, e->logits, NULL,
                NULL);
    for (int i = 0; i < n; i++)
        if (!isfinite(out[i])) return ERR_INTERNAL;
    return ERR_OK;
}

/* ---- statistics */

static double rate_of(const struct rate *r) {
    return r->s > 0 ? r->tokens / r->s : 0;
}

void engine_stats_publish(struct engine *e) {
    int n_used = engine_slots_used(e);
    const struct engine_stats s = {
        .slots_total = e->batch_max,
        .slots_free = n_used < e->batch_max ? e->batch_max - n_used : 0,
        .blocks_total = e->n_blocks,
        .blocks_free = kv_blocks_free(e->kv),
        .waiting = e->n_waiting,
        .running = e->n_running,
        .importing = e->n_importing,
        .held = e->n_held,
        .steps = e->steps,
        .prompt_tokens = e->prompt_tokens,
        .generated_tokens = e->generated_tokens,
        .prefix_lookup_blocks = e->lookup_blocks,
        .prefix_hit_blocks = e->hit_blocks,
        .embedded = e->embedded,
        .drafts = e->drafts,
        .draft_tokens = e->draft_tokens,
        .draft_accepted = e->draft_accepted,
        .shared_steps = e->shared_steps,
        .shared_prompt_rows = e->shared_prompt_rows,
        .shared_prompt_rows_max = e->shared_prompt_rows_max,
        .decode_step_us = step_cost_decode_us(&e->cost, e->decode_rows),
        .prompt_row_us = step_cost_row_us(&e->cost, e->context),
        .prefill_tokens_per_s = rate_of(&e->prefill_rate),
        .decode_tokens_per_s = rate_of(&e->decode_rate),
        .perf = e->perf,
    };
    pthread_mutex_lock(&e->stats_lock);
    e->stats = s;
    pthread_mutex_unlock(&e->stats_lock);
}

enum err engine_check_weights(struct engine *e, engine_checked_fn *done, void *arg) {
    return e->ops->check != NULL ? e->ops->check(e->fwd, done, arg) : ERR_OK;
}

uint64_t engine_progress(const struct engine *e) {
    return e->ops->progress != NULL ? e->ops->progress(e->fwd) : 0;
}

const atomic_uint_least64_t *engine_expert_rows(const struct engine *e, int layer) {
    return e->ops->expert_rows != NULL ? e->ops->expert_rows(e->fwd, layer) : NULL;
}

void engine_stats(const struct engine *e, struct engine_stats *out) {
    struct engine *m = (struct engine *)e; /* the lock is the one member a reader changes */
    pthread_mutex_lock(&m->stats_lock);
    *out = m->stats;
    pthread_mutex_unlock(&m->stats_lock);
}
