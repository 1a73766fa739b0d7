/* engine_seq: the life of a sequence: added, queued or importing, admitted, held, ended. All memory
 * of a sequence is taken when it is added, all its blocks when it is admitted; the step takes
 * nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/engine/engine_priv.h"

/* ---- the table of ids */

static struct seq **bucket_of(const struct engine *e, uint64_t seq_id) {
    uint64_t h =
        seq_id *
        0x9E3779B97F4A7C15u; /* ids are ours and mostly count up: Fibonacci hashing spreads them */
    return &e->table[(h >> 32) & (e->table_size - 1)];
}

struct seq *engine_seq_find(const struct engine *e, uint64_t seq_id) {
    struct seq *s = *bucket_of(e, seq_id);
    while (s != NULL && s->id != seq_id) s = s->hash_next;
    return s;
}

static void table_insert(struct engine *e, struct seq *s) {
    struct seq **b = bucket_of(e, s->id);
    s->hash_next = *b;
    *b = s;
}

static void table_remove(struct engine *e, struct seq *s) {
    struct seq **at = bucket_of(e, s->id);
    while (*at != s) at = &(*at)->hash_next;
    *at = s->hash_next;
}

/* ---- places: queue and slots */

static bool queued_before(const struct seq *a, const struct seq *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->age < b->age;
}

static void queue_insert(struct engine *e, struct seq *s) {
    struct seq *after = e->queue_tail;
    while (after != NULL && queued_before(s, after)) after = after->prev;
    s->prev = after;
    s->next = after == NULL ? e->queue_head : after->next;
    *(s->prev == NULL ? &e->queue_head : &s->prev->next) = s;
    *(s->next == NULL ? &e->queue_tail : &s->next->prev) = s;
    s->state = SEQ_ST_WAITING;
    e->n_waiting++;
}

static void queue_remove(struct engine *e, struct seq *s) {
    *(s->prev == NULL ? &e->queue_head : &s->prev->next) = s->next;
    *(s->next == NULL ? &e->queue_tail : &s->next->prev) = s->prev;
    s->prev = s->next = NULL;
    e->n_waiting--;
}

static int slots_used(const struct engine *e) {
    return e->n_running + e->n_importing;
}

static void slot_take(struct engine *e, struct seq *s, enum seq_state state) {
    s->slot_idx = slots_used(e);
    e->slots[s->slot_idx] = s;
    s->state = state;
    if (state == SEQ_ST_RUNNING)
        e->n_running++;
    else
        e->n_importing++;
}

static void slot_give(struct engine *e, struct seq *s) {
    struct seq *last = e->slots[slots_used(e) - 1];
    e->slots[s->slot_idx] = last;
    last->slot_idx = s->slot_idx;
    s->slot_idx = -1;
    if (s->state == SEQ_ST_IMPORTING)
        e->n_importing--;
    else
        e->n_running--;
}

/* ---- making one */

static void seq_free(struct seq *s) {
    sampling_free(&s->sampling);
    free(s->banned);
    free(s->ids);
    free(s->blocks);
    free(s);
}

static bool within(float v, float min, float max) {
    return v >= min && v <= max; /* false for NaN */
}

static enum err sampling_check(const struct sampling *p, struct errbuf *eb) {
    const struct {
        const char *name;
        float v, min, max;
    } fields[] = {
        {"temperature", p->temperature, 0, 3.4e38f},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"typical_p", p->typical_p, 0, 1},
        {"repetition_penalty", p->repetition_penalty, 1e-45f, 3.4e38f},
        {"frequency_penalty", p->frequency_penalty, -1e6f, 1e6f},
        {"presence_penalty", p->presence_penalty, -1e6f, 1e6f},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (!within(fields[i].v, fields[i].min, fields[i].max))
            return err_set(eb, ERR_INVALID, "%s must be from %g to %g, got %g", fields[i].name,
                           (double)fields[i].min, (double)fields[i].max, (double)fields[i].v);
    if (p->top_k < 0 || p->new_tokens_min < 0 || p->top_logprobs < 0 ||
        p->top_logprobs > TOP_LOGPROBS_MAX || p->n_stop_token_ids > STOP_TOKEN_IDS_MAX ||
        p->n_logit_bias > LOGIT_BIAS_MAX)
        return err_set(
            eb, ERR_INVALID,
            "top_k, new_tokens_min, top_logprobs, stop_token_ids or logit_bias out of range");
    return ERR_OK;
}

static int blocks_for(const struct engine *e, int n_tokens) {
    return (n_tokens + e->block_tokens - 1) / e->block_tokens;
}

/* How long the sequence can become, the token that ends it included. */
static int tokens_max(const struct engine *e, const struct seq_opts *o) {
    int64_t n = (int64_t)o->n_prompt + o->sampling->new_tokens_max;
    return n < e->seq_tokens_max ? (int)n : e->seq_tokens_max;
}

static int kv_tokens(const struct engine *e, const struct seq_opts *o) {
    return o->kind == SEQ_PREFILL ? (int)o->n_ids : tokens_max(e, o) - 1;
}

static enum err opts_check(const struct engine *e, const struct seq_opts *o, struct errbuf *eb) {
    if (o->n_ids < 1 || o->n_prompt < 1 || o->n_prompt > o->n_ids)
        return err_set(eb, ERR_INVALID,
                       "a sequence needs a prompt, got %zu ids, %zu of them prompt", o->n_ids,
                       o->n_prompt);
    if (o->priority < 1 || o->priority > 5)
        return err_set(eb, ERR_INVALID, "priority must be from 1 to 5, got %d", o->priority);
    enum err err = sampling_check(o->sampling, eb);
    if (err != ERR_OK) return err;
    if (o->n_ids >= (size_t)e->seq_tokens_max)
        return err_set(eb, ERR_TOO_LARGE, "%zu tokens leave no room for an answer, the limit is %d",
                       o->n_ids, e->seq_tokens_max - 1);
    if (o->sampling->new_tokens_max < 1 ||
        o->n_ids - o->n_prompt >= (size_t)o->sampling->new_tokens_max)
        return err_set(eb, ERR_INVALID, "%zu tokens are generated, nothing is left of %d",
                       o->n_ids - o->n_prompt, o->sampling->new_tokens_max);
    for (size_t i = 0; i < o->n_ids; i++)
        if (o->ids[i] < 0 || o->ids[i] >= e->info.vocab_size)
            return err_set(eb, ERR_INVALID, "token id must be from 0 to %d, got %" PRId32 " at %zu",
                           e->info.vocab_size - 1, o->ids[i], i);
    int n_blocks = blocks_for(e, kv_tokens(e, o));
    if (n_blocks > e->n_blocks)
        return err_set(eb, ERR_TOO_LARGE, "needs %d KV blocks, the pool has %d", n_blocks,
                       e->n_blocks);
    if (engine_seq_find(e, o->seq_id) != NULL)
        return err_set(eb, ERR_CONFLICT, "sequence %" PRIu64 " is live", o->seq_id);
    return ERR_OK;
}

/* What may not end the answer before new_tokens_min. */
static enum err banned_create(struct seq *s, const struct model_info *info) {
    size_t n_eos = s->sampling.ignore_eos ? 0 : (size_t)info->n_eos;
    size_t n_stop = s->sampling.n_stop_token_ids;
    if (n_eos + n_stop == 0) return ERR_OK;
    s->banned = calloc(n_eos + n_stop, sizeof(*s->banned));
    if (s->banned == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < n_eos; i++) s->banned[i] = info->eos_ids[i];
    for (size_t i = 0; i < n_stop; i++) s->banned[n_eos + i] = s->sampling.stop_token_ids[i];
    s->n_banned = (int)(n_eos + n_stop);
    return ERR_OK;
}

static enum err seq_create(struct seq **out, const struct engine *e, const struct seq_opts *o) {
    struct seq *s = calloc(1, sizeof(*s));
    if (s == NULL) return ERR_NO_MEMORY;
    s->id = o->seq_id;
    s->kind = o->kind;
    s->salt = o->prefix_salt;
    s->priority = o->priority;
    s->slot_idx = s->plan_idx = -1;
    s->refused_at = UINT64_MAX;
    s->n_ids = s->n_input = (int)o->n_ids;
    s->n_prompt = (int)o->n_prompt;
    s->ids_max = tokens_max(e, o);
    s->n_blocks = blocks_for(e, kv_tokens(e, o));
    s->ids = calloc((size_t)s->ids_max, sizeof(*s->ids));
    s->blocks = calloc((size_t)s->n_blocks, sizeof(*s->blocks));
    if (s->ids == NULL || s->blocks == NULL || sampling_copy(&s->sampling, o->sampling) != ERR_OK ||
        banned_create(s, &e->info) != ERR_OK) {
        seq_free(s);
        return ERR_NO_MEMORY;
    }
    memcpy(s->ids, o->ids, o->n_ids * sizeof(*s->ids));
    if (o->kind == SEQ_IMPORT)
        s->sampling.prompt_logprobs = false; /* whoever prefills tells them */
    s->arrival_us = s->token_us = s->ready_us = clock_us();
    s->wait_open = true;
    *out = s;
    return ERR_OK;
}

/* ---- blocks */

/* All blocks the sequence can ever need, those of a known prefix shared, or nothing. */
static bool blocks_take(struct engine *e, struct seq *s) {
    int n_cached = 0, n_look = 0;
    if (e->prefix_cache && !s->sampling.prompt_logprobs) {
        /* The last token is computed whatever is known: its logits are what the sequence is for. */
        n_look = (s->kind == SEQ_IMPORT ? s->n_ids : s->n_ids - 1) / e->block_tokens;
        n_cached = kv_prefix_lookup(e->kv, s->salt, s->ids, n_look, s->blocks, &s->chain);
    }
    if (!kv_blocks_alloc(e->kv, s->blocks + n_cached, s->n_blocks - n_cached)) {
        kv_blocks_unref(e->kv, s->blocks, n_cached);
        return false;
    }
    s->has_blocks = true;
    s->n_cached_blocks = s->n_final_blocks = s->n_published = n_cached;
    s->n_past = n_cached * e->block_tokens;
    e->lookup_blocks += (uint64_t)n_look;
    e->hit_blocks += (uint64_t)n_cached;
    return true;
}

void engine_seq_publish(struct engine *e, struct seq *s) {
    if (!e->prefix_cache) return;
    for (; s->n_published < s->n_past / e->block_tokens; s->n_published++)
        kv_prefix_publish(e->kv, s->salt, &s->chain,
                          s->ids + (size_t)s->n_published * (size_t)e->block_tokens,
                          s->blocks[s->n_published]);
}

/* ---- ends */

static void leave_place(struct engine *e, struct seq *s) {
    if (s->plan_idx >= 0) e->plan[s->plan_idx] = NULL;
    s->plan_idx = -1;
    if (e->admitting == s) e->admitting = NULL;
    if (s->state == SEQ_ST_WAITING)
        queue_remove(e, s);
    else if (s->state == SEQ_ST_HELD)
        e->n_held--;
    else
        slot_give(e, s);
}

static void give_back(struct engine *e, struct seq *s) {
    if (s->has_blocks) {
        kv_blocks_unref(e->kv, s->blocks, s->n_blocks);
        e->n_frees++;
    }
    seq_free(s);
}

void engine_seq_end(struct engine *e, struct seq *s) {
    table_remove(e, s);
    leave_place(e, s);
    e->n_frees++; /* a slot, if no block */
    give_back(e, s);
}

void engine_seq_hold(struct engine *e, struct seq *s) {
    slot_give(e, s);
    s->state = SEQ_ST_HELD;
    e->n_held++;
}

void engine_reap_doomed(struct engine *e) {
    while (e->doomed != NULL) {
        struct seq *s = e->doomed;
        e->doomed = s->next;
        leave_place(e, s);
        give_back(e, s);
    }
}

/* ---- admission */

bool engine_admit(struct engine *e) {
    bool any = false;
    while (e->queue_head != NULL && slots_used(e) < e->batch_max) {
        struct seq *s = e->queue_head;
        if (s->refused_at == e->n_frees) break; /* nothing came back since */
        if (!blocks_take(e, s)) {
            s->refused_at = e->n_frees;
            break; /* whoever is first stays first, or long prompts would starve */
        }
        queue_remove(e, s);
        slot_take(e, s, SEQ_ST_RUNNING);
        any = true;

        e->admitting = s; /* NULL as soon as a callback ends it */
        if (e->ev.on_admitted != NULL) e->ev.on_admitted(e->ev.arg, s->id, s->n_past);
        if (e->admitting == NULL || s->kind != SEQ_PREFILL || s->n_cached_blocks == 0 ||
            e->ev.on_kv == NULL)
            continue;
        for (int layer = 0; layer < e->info.n_layers && e->admitting != NULL; layer++)
            e->ev.on_kv(e->ev.arg, s->id, layer, 0, s->n_cached_blocks);
    }
    e->admitting = NULL;
    return any;
}

/* ---- what callers ask for */

enum err engine_seq_add(struct engine *e, const struct seq_opts *o, struct errbuf *eb) {
    enum err err = opts_check(e, o, eb);
    if (err != ERR_OK) return err;
    if (o->kind == SEQ_IMPORT ? slots_used(e) >= e->batch_max : e->n_waiting >= e->queue_max)
        return err_set(eb, ERR_BUSY,
                       o->kind == SEQ_IMPORT ? "no slot is free" : "the queue is full");
    struct seq *s;
    if ((err = seq_create(&s, e, o)) != ERR_OK)
        return err_set(eb, err, "no memory for a sequence of %d tokens", tokens_max(e, o));
    if (o->kind == SEQ_IMPORT) {
        if (!blocks_take(e, s)) {
            int n = s->n_blocks;
            seq_free(s);
            return err_set(eb, ERR_BUSY, "needs %d KV blocks, %d are free", n,
                           kv_blocks_free(e->kv));
        }
        slot_take(e, s, SEQ_ST_IMPORTING);
    } else {
        s->age = e->next_age;
        queue_insert(e, s);
    }
    s->age = e->next_age++;
    table_insert(e, s);
    engine_stats_publish(e);
    return ERR_OK;
}

enum err engine_seq_blocks(struct engine *e, uint64_t seq_id, const int32_t **block_table,
                           int *n_blocks, int *n_held) {
    const struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (!s->has_blocks) return ERR_CONFLICT;
    *block_table = s->blocks;
    *n_blocks = blocks_for(e, s->n_input);
    *n_held = s->n_cached_blocks;
    return ERR_OK;
}

enum err engine_seq_start(struct engine *e, uint64_t seq_id, const int32_t *first_ids,
                          size_t n_first) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != SEQ_ST_IMPORTING) return ERR_CONFLICT;
    if (n_first < 1 || n_first >= (size_t)(s->ids_max - s->n_ids)) return ERR_INVALID;
    for (size_t i = 0; i < n_first; i++)
        if (first_ids[i] < 0 || first_ids[i] >= e->info.vocab_size) return ERR_INVALID;
    s->n_past = s->n_ids;
    engine_seq_publish(e, s);
    memcpy(s->ids + s->n_ids, first_ids, n_first * sizeof(*first_ids));
    s->n_ids += (int)n_first;
    s->ready_us = clock_us();
    s->state = SEQ_ST_RUNNING;
    e->n_importing--;
    e->n_running++;
    engine_stats_publish(e);
    return ERR_OK;
}

enum err engine_seq_cancel(struct engine *e, uint64_t seq_id) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (e->in_pass && s->plan_idx >= 0) {
        /* The pass still writes its blocks: nobody else may get them before it is over. */
        table_remove(e, s);
        s->state = SEQ_ST_DOOMED;
        s->next = e->doomed;
        e->doomed = s;
    } else {
        engine_seq_end(e, s);
    }
    engine_stats_publish(e);
    return ERR_OK;
}

enum err engine_seq_release(struct engine *e, uint64_t seq_id) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != SEQ_ST_HELD) return ERR_CONFLICT;
    engine_seq_end(e, s);
    engine_stats_publish(e);
    return ERR_OK;
}
