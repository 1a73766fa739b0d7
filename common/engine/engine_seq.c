/* engine_seq: the life of a sequence: added, queued or importing, admitted, held, ended. All memory
 * of a sequence is taken when it is added, all its blocks when it is admitted; the step takes
 * nothing and frees nothing: what ends in it is buried at the next add, or when it idles. What a
 * choice of it has, slot and blocks, is in engine_choice.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/engine/engine_priv.h"
#include "common/engine/lora.h"
#include "common/engine/prompt_lookup.h"
#include "proto/infer_fields.h"

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

/* ---- the queue */

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

/* ---- making one */

static void unguide(struct choice *c) {
    if (c->guide.ops != NULL) c->guide.ops->free(c->guide.state);
    c->guide = (struct token_guide){0};
}

/* A guide that does not allow these ids is dead afterwards: the choice ends at its next token. */
static void guide_over(struct choice *c, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n && c->guide.ops != NULL; i++)
        (void)c->guide.ops->advance(c->guide.state, ids[i]);
}

static void seq_free(struct engine *e, struct seq *s) {
    engine_tenant_leave(e, s);
    lora_unref(&s->lora);
    engine_beam_free(&s->search);
    sampling_free(&s->sampling);
    free(s->ends);
    free(s->pooled);
    for (int i = 0; i < s->n_choices; i++) {
        free(s->choices[i].ids);
        free(s->choices[i].blocks);
        prompt_lookup_destroy(&s->choices[i].lookup);
        unguide(&s->choices[i]);
    }
    free(s);
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
    const bool all = o->kind == SEQ_PREFILL || o->kind == SEQ_EMBED || engine_carries(o->kind);
    return all ? (int)o->n_ids : tokens_max(e, o) - 1;
}

/* Choices that run: a prefill draws from the leader's logits for all of them. */
static int run_choices(const struct seq_opts *o) {
    return o->kind == SEQ_PREFILL ? 1 : o->sampling->n_choices;
}

/* Of all choices: the full blocks of the ids at the add once, the others for each. */
static int64_t blocks_needed(const struct engine *e, const struct seq_opts *o) {
    int64_t shared = (int64_t)o->n_ids / e->block_tokens;
    int64_t own = blocks_for(e, kv_tokens(e, o)) - shared;
    return shared + own * run_choices(o);
}

/* What can never fit, by the names of the client's fields. */
static enum err room_check(const struct engine *e, const struct seq_opts *o, struct errbuf *eb) {
    int64_t n_blocks = blocks_needed(e, o);
    int n = o->sampling->n_choices;
    if (n > e->batch_max)
        return err_set(eb, ERR_TOO_LARGE, "n is %d, this instance runs at most %d (maxBatchSize)",
                       n, e->batch_max);
    if (n_blocks <= e->n_blocks) return ERR_OK;
    if (o->kind == SEQ_PREFILL || o->kind == SEQ_EMBED)
        return err_set(eb, ERR_TOO_LARGE,
                       "a prompt of %zu tokens needs %" PRId64
                       " KV blocks, the pool of this instance has %d",
                       o->n_prompt, n_blocks, e->n_blocks);
    return err_set(eb, ERR_TOO_LARGE,
                   "a prompt of %zu tokens with max_tokens %d and n %d needs %" PRId64
                   " KV blocks, the pool of this instance has %d",
                   o->n_prompt, tokens_max(e, o) - (int)o->n_prompt, n, n_blocks, e->n_blocks);
}

/* Room for what is generated; a text to embed needs none. */
static enum err length_check(const struct engine *e, const struct seq_opts *o, struct errbuf *eb) {
    const size_t most = (size_t)e->seq_tokens_max;
    if (o->kind == SEQ_EMBED) {
        if (o->n_ids <= most) return ERR_OK;
        return err_set(eb, ERR_TOO_LARGE, "a text of %zu tokens is too long, the limit is %zu",
                       o->n_ids, most);
    }
    if (o->n_ids >= most)
        return err_set(eb, ERR_TOO_LARGE, "%zu tokens leave no room for an answer, the limit is %d",
                       o->n_ids, e->seq_tokens_max - 1);
    if (o->sampling->new_tokens_max < 1 ||
        o->n_ids - o->n_prompt >= (size_t)o->sampling->new_tokens_max)
        return err_set(eb, ERR_INVALID, "%zu tokens are generated, nothing is left of %d",
                       o->n_ids - o->n_prompt, o->sampling->new_tokens_max);
    return ERR_OK;
}

static enum err kind_check(const struct engine *e, const struct seq_opts *o, struct errbuf *eb) {
    if (o->kind != SEQ_EMBED)
        return e->info.no_head
                   ? err_set(eb, ERR_INVALID, "this model generates nothing: it embeds texts")
                   : ERR_OK;
    if (o->embed.score && e->info.n_labels == 0)
        return err_set(eb, ERR_INVALID, "this model has no head for scores");
    if (o->embed.n_first < 0 || (size_t)o->embed.n_first > o->n_ids)
        return err_set(eb, ERR_INVALID, "the first text must have from 0 to %zu tokens, got %d",
                       o->n_ids, o->embed.n_first);
    return ERR_OK;
}

static enum err opts_check(const struct engine *e, const struct seq_opts *o, struct errbuf *eb) {
    if (o->n_ids < 1 || o->n_prompt < 1 || o->n_prompt > o->n_ids)
        return err_set(eb, ERR_INVALID,
                       "a sequence needs a prompt, got %zu ids, %zu of them prompt", o->n_ids,
                       o->n_prompt);
    if (o->lora != NULL && o->lora->rank > e->lora_rank_max)
        return err_set(eb, ERR_INVALID, "the adapter's rank must be from 1 to %d, got %d",
                       e->lora_rank_max, o->lora->rank);
    if (o->priority < 1 || o->priority > 5)
        return err_set(eb, ERR_INVALID, "priority must be from 1 to 5, got %d", o->priority);
    enum err err = kind_check(e, o, eb);
    if (err != ERR_OK) return err;
    if (o->kind != SEQ_EMBED && (err = sampling_check(o->sampling, eb)) != ERR_OK) return err;
    if ((err = length_check(e, o, eb)) != ERR_OK) return err;
    for (size_t i = 0; i < o->n_ids; i++)
        if (o->ids[i] < 0 || o->ids[i] >= e->info.vocab_size)
            return err_set(eb, ERR_INVALID, "token id must be from 0 to %d, got %" PRId32 " at %zu",
                           e->info.vocab_size - 1, o->ids[i], i);
    if (o->kind == SEQ_STAGED && o->sampling->beam)
        return err_set(eb, ERR_INVALID, "a beam search cannot wait after its first tokens");
    if (o->sampling->beam && o->n_ids > o->n_prompt)
        return err_set(eb, ERR_INVALID, "a beam search begins with the prompt, got %zu more tokens",
                       o->n_ids - o->n_prompt);
    if ((err = room_check(e, o, eb)) != ERR_OK) return err;
    if (engine_seq_find(e, o->seq_id) != NULL)
        return err_set(eb, ERR_CONFLICT, "sequence %" PRIu64 " is live", o->seq_id);
    return ERR_OK;
}

/* What ends an answer, though not before new_tokens_min. */
static enum err ends_create(struct seq *s, const struct model_info *info) {
    size_t n_eos = s->sampling.ignore_eos ? 0 : (size_t)info->n_eos;
    size_t n_stop = s->sampling.n_stop_token_ids;
    if (n_eos + n_stop == 0) return ERR_OK;
    s->ends = calloc(n_eos + n_stop, sizeof(*s->ends));
    if (s->ends == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < n_eos; i++) s->ends[i] = info->eos_ids[i];
    for (size_t i = 0; i < n_stop; i++) s->ends[n_eos + i] = s->sampling.stop_token_ids[i];
    s->n_ends = (int)(n_eos + n_stop);
    return ERR_OK;
}

static bool choice_create(struct choice *c, struct seq *s, int idx, const struct seq_opts *o) {
    c->seq = s;
    c->idx = idx;
    c->live = true;
    c->slot_idx = c->plan_idx = -1;
    c->n_ids = s->n_input;
    c->token_us = c->ready_us = s->arrival_us;
    c->wait_open = true;
    c->ids = calloc((size_t)s->ids_max, sizeof(*c->ids));
    c->blocks = calloc((size_t)s->n_blocks, sizeof(*c->blocks));
    if (c->ids == NULL || c->blocks == NULL) return false;
    memcpy(c->ids, o->ids, o->n_ids * sizeof(*c->ids));
    if (s->sampling.lookup_tokens > 0 && !s->sampling.beam && o->kind != SEQ_PREFILL) {
        c->lookup = prompt_lookup_create(s->ids_max, s->sampling.lookup_tokens);
        if (c->lookup == NULL) return false;
    }
    if (o->guide.ops == NULL) return true;
    c->guide.state = o->guide.ops->fork(o->guide.state);
    if (c->guide.state == NULL) return false;
    c->guide.ops = o->guide.ops;
    guide_over(c, o->ids + o->n_prompt, o->n_ids - o->n_prompt);
    return true;
}

/* How long a sequence may become by its request and the model alone: P and D, whose own limits may
 * differ, must turn its keys alike. */
static int rope_tokens(const struct engine *e, const struct seq_opts *o) {
    if (o->kind == SEQ_EMBED) return (int)o->n_ids;
    int64_t n = (int64_t)o->n_prompt + o->sampling->new_tokens_max;
    return n < e->info.context_max ? (int)n : e->info.context_max;
}

/* KV of one adapter is another's poison, so the adapter's hash is part of the salt; so is what
 * makes keys turn otherwise than those of other sequences. */
static uint64_t salt_of(const struct engine *e, const struct seq_opts *o) {
    uint64_t hash = 0, salt = o->prefix_salt;
    const int n = rope_tokens(e, o);
    if (e->info.rope_short_max > 0 && n > e->info.rope_short_max)
        salt = (salt + (e->info.rope_each_length ? (uint64_t)n : 1)) * 0xD6E8FEB86659FD93u;
    if (o->lora == NULL) return salt;
    memcpy(&hash, o->lora->hash, sizeof(hash));
    return salt * 0x9E3779B97F4A7C15u ^ hash;
}

/* The vector, and behind it the scores. */
static bool embed_create(const struct engine *e, struct seq *s, const struct seq_opts *o) {
    const struct model_info *m = &e->info;
    if (o->kind != SEQ_EMBED) return true;
    s->embed = o->embed;
    if (s->embed.pooling == POOL_NONE)
        s->embed.pooling = o->embed.score ? m->score_pooling : m->pooling;
    s->pooled = calloc((size_t)m->hidden + (size_t)m->n_labels, sizeof(*s->pooled));
    if (s->pooled != NULL && o->embed.score) s->scores = s->pooled + m->hidden;
    return s->pooled != NULL;
}

static enum err seq_create(struct seq **out, struct engine *e, const struct seq_opts *o) {
    int n_choices = run_choices(o);
    struct seq *s = calloc(1, sizeof(*s) + (size_t)n_choices * sizeof(s->choices[0]));
    if (s == NULL) return ERR_NO_MEMORY;
    s->id = o->seq_id;
    s->kind = o->kind;
    s->salt = salt_of(e, o);
    s->digest_seed = o->digest_seed;
    s->rope_tokens = rope_tokens(e, o);
    s->lora = lora_ref(o->lora);
    s->priority = o->priority;
    s->refused_at = UINT64_MAX;
    s->n_input = (int)o->n_ids;
    s->n_prompt = (int)o->n_prompt;
    s->ids_max = tokens_max(e, o);
    s->n_blocks = blocks_for(e, kv_tokens(e, o));
    s->n_shared = s->n_input / e->block_tokens;
    s->n_choices = s->n_live = n_choices;
    s->arrival_us = clock_us();
    bool made = sampling_copy(&s->sampling, o->sampling) == ERR_OK;
    made = engine_tenant_join(e, s, o->tenant) && embed_create(e, s, o) && made;
    for (int i = 0; i < n_choices; i++) made = choice_create(&s->choices[i], s, i, o) && made;
    if (made && s->sampling.beam) made = engine_beam_open(s);
    if (!made || ends_create(s, &e->info) != ERR_OK) {
        seq_free(e, s);
        return ERR_NO_MEMORY;
    }
    if (o->kind == SEQ_IMPORT)
        s->sampling.prompt_logprobs = false; /* whoever prefills tells them */
    *out = s;
    return ERR_OK;
}

/* ---- ends */

static void leave_place(struct engine *e, struct seq *s) {
    if (e->telling == s) e->telling = NULL;
    for (int i = 0; i < s->n_choices; i++) {
        struct choice *c = &s->choices[i];
        if (c->plan_idx >= 0) e->plan[c->plan_idx] = NULL;
        c->plan_idx = -1;
        if (c->slot_idx >= 0) engine_slot_give(e, c);
    }
    if (s->state == SEQ_ST_WAITING)
        queue_remove(e, s);
    else if (s->state == SEQ_ST_HELD)
        e->n_held--;
}

static void give_back(struct engine *e, struct seq *s) {
    for (int i = 0; s->has_blocks && i < s->n_choices; i++)
        if (s->choices[i].live) kv_blocks_unref(e->kv, s->choices[i].blocks, s->n_blocks);
    s->tenant->n_blocks -= s->held_blocks;
    s->held_blocks = 0;
    e->n_frees++; /* a slot, if no block */
    lora_unref(&s->lora);
    if (!e->in_step) {
        seq_free(e, s);
        return;
    }
    s->next = e->dead;
    e->dead = s;
}

void engine_bury(struct engine *e) {
    while (e->dead != NULL) {
        struct seq *s = e->dead;
        e->dead = s->next;
        seq_free(e, s);
    }
}

void engine_seq_end(struct engine *e, struct seq *s) {
    table_remove(e, s);
    leave_place(e, s);
    give_back(e, s);
}

void engine_seq_hold(struct engine *e, struct seq *s) {
    engine_slot_give(e, &s->choices[0]);
    s->state = SEQ_ST_HELD;
    e->n_held++;
}

void engine_seq_stage(struct engine *e, struct seq *s) {
    s->state = SEQ_ST_IMPORTING;
    e->n_running -= s->n_choices;
    e->n_importing += s->n_choices;
}

void engine_reap_doomed(struct engine *e) {
    while (e->doomed != NULL) {
        struct seq *s = e->doomed;
        e->doomed = s->next;
        leave_place(e, s);
        give_back(e, s);
    }
    for (int i = 0; i < e->n_plan; i++)
        if (e->plan[i] != NULL && e->plan[i]->stopping && e->plan[i]->seq->forked)
            (void)engine_choice_end(e, e->plan[i]);
}

/* ---- admission */

bool engine_admit(struct engine *e) {
    bool any = false;
    for (struct seq *s; (s = engine_next_waiting(e)) != NULL;) {
        if (!engine_slots_allow(e, s)) break;
        if (s->refused_at == e->n_frees) break; /* nothing came back since */
        if (!engine_blocks_take(e, s)) {
            s->refused_at = e->n_frees;
            break; /* whoever is first stays first, or long prompts would starve */
        }
        queue_remove(e, s);
        engine_slots_take(e, s, SEQ_ST_RUNNING);
        any = true;

        e->telling = s; /* NULL as soon as a callback ends it */
        if (e->ev.on_admitted != NULL) e->ev.on_admitted(e->ev.arg, s->id, s->choices[0].n_past);
        if (e->telling == NULL || s->kind != SEQ_PREFILL || s->n_cached_blocks == 0 ||
            e->ev.on_kv == NULL)
            continue;
        for (int layer = 0; layer < e->info.n_layers && e->telling != NULL; layer++)
            e->ev.on_kv(e->ev.arg, s->id, layer, 0, s->n_cached_blocks);
    }
    e->telling = NULL;
    return any;
}

/* ---- what callers ask for */

/* One that takes its blocks at once, or nothing. */
static enum err seq_enter(struct engine *e, struct seq *s, struct errbuf *eb) {
    if (engine_carries(s->kind)) return engine_prefix_take(e, s, eb);
    if (!engine_slots_allow(e, s))
        return err_set(eb, ERR_BUSY, "needs %d slots, %d of %d are taken", s->n_choices,
                       engine_slots_used(e), e->batch_max);
    if (!engine_blocks_take(e, s))
        return err_set(eb, ERR_BUSY, "needs %" PRId64 " KV blocks, %d are free",
                       engine_blocks_needed(s), kv_blocks_free(e->kv));
    engine_slots_take(e, s, SEQ_ST_IMPORTING);
    return ERR_OK;
}

enum err engine_seq_add(struct engine *e, const struct seq_opts *asked, struct errbuf *eb) {
    static const struct sampling nothing = {
        .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_choices = 1};
    struct seq_opts own = *asked;
    struct sampling carried;
    const struct seq_opts *o = &own;
    if (own.kind == SEQ_EMBED) own.sampling = &nothing;
    const bool at_once = o->kind == SEQ_IMPORT || engine_carries(o->kind);
    enum err err = opts_check(e, o, eb);
    engine_bury(e);
    if (err == ERR_OK && engine_carries(o->kind))
        err = engine_prefix_opts(e, asked, &own, &carried, eb);
    if (err != ERR_OK) return err;
    if (!at_once && e->n_waiting >= e->queue_max) return err_set(eb, ERR_BUSY, "the queue is full");
    struct seq *s;
    if ((err = seq_create(&s, e, o)) != ERR_OK)
        return err_set(eb, err, "no memory for %d sequences of %d tokens", run_choices(o),
                       tokens_max(e, o));
    s->age = e->next_age;
    for (int i = 0; i < s->n_choices; i++) s->choices[i].age = e->next_age++;
    if (at_once && (err = seq_enter(e, s, eb)) != ERR_OK) {
        seq_free(e, s);
        return err;
    }
    if (!at_once) queue_insert(e, s);
    table_insert(e, s);
    engine_stats_publish(e);
    return ERR_OK;
}

enum err engine_seq_blocks(struct engine *e, uint64_t seq_id, const int32_t **block_table,
                           int *n_blocks, int *n_held) {
    const struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (!s->has_blocks) return ERR_CONFLICT;
    *block_table = s->choices[0].blocks;
    *n_blocks = blocks_for(e, s->n_input);
    *n_held = s->n_cached_blocks;
    return ERR_OK;
}

static void choice_first(struct choice *c, const struct first_ids *first) {
    memcpy(c->ids + c->n_ids, first->ids, first->n * sizeof(*first->ids));
    c->n_ids += (int)first->n;
    guide_over(c, first->ids, first->n);
    c->ready_us = clock_us();
}

static bool first_ok(const struct engine *e, const struct seq *s, const struct first_ids *first) {
    if (first->n >= (size_t)(s->ids_max - s->n_input)) return false;
    for (size_t i = 0; i < first->n; i++)
        if (first->ids[i] < 0 || first->ids[i] >= e->info.vocab_size) return false;
    return true;
}

static enum err first_check(const struct engine *e, const struct seq *s,
                            const struct first_ids *first, size_t n_choices) {
    bool goes_on = false;
    if (n_choices != (size_t)s->n_choices) return ERR_INVALID;
    for (size_t i = 0; i < n_choices; i++) {
        if (!first_ok(e, s, &first[i])) return ERR_INVALID;
        goes_on = goes_on || (first[i].n > 0 && !s->choices[i].stopping);
    }
    return goes_on ? ERR_OK : ERR_INVALID;
}

void engine_import_over(struct engine *e, struct seq *s) {
    s->state = SEQ_ST_RUNNING;
    e->n_importing -= s->n_choices;
    e->n_running += s->n_choices;
    s->choices[0].n_past = s->n_input;
    engine_choice_publish(e, &s->choices[0]);
}

enum err engine_seq_start(struct engine *e, uint64_t seq_id, const struct first_ids *first,
                          size_t n_choices) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != SEQ_ST_IMPORTING || s->search != NULL) return ERR_CONFLICT;
    enum err err = first_check(e, s, first, n_choices);
    if (err != ERR_OK) return err;
    engine_import_over(e, s);
    for (int i = 0; i < s->n_choices; i++) {
        struct choice *c = &s->choices[i];
        if (first[i].n > 0 || c->stopping) continue;
        c->stopping = true; /* it has ended elsewhere */
        s->n_live--;
    }
    (void)engine_fork(e, s); /* one goes on, so it stays */
    for (int i = 0; i < s->n_choices; i++)
        if (s->choices[i].live) choice_first(&s->choices[i], &first[i]);
    engine_stats_publish(e);
    return ERR_OK;
}

static bool in_plan(const struct seq *s) {
    for (int i = 0; i < s->n_choices; i++)
        if (s->choices[i].plan_idx >= 0) return true;
    return false;
}

enum err engine_seq_cancel(struct engine *e, uint64_t seq_id) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (e->in_pass && in_plan(s)) {
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

enum err engine_choice_stop(struct engine *e, uint64_t seq_id, int choice) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->kind == SEQ_PREFILL) return ERR_CONFLICT;
    if (choice < 0 || choice >= s->n_choices) return ERR_NOT_FOUND;
    struct choice *c = &s->choices[choice];
    if (!c->live || c->stopping) return ERR_NOT_FOUND;
    if (s->search != NULL) return ERR_CONFLICT;
    if (s->n_live == 1) return engine_seq_cancel(e, seq_id);
    c->stopping = true;
    s->n_live--;
    /* The prompt is the leader's and its slots go together; the pass still writes its blocks. */
    if (s->forked && !(e->in_pass && c->plan_idx >= 0)) (void)engine_choice_end(e, c);
    engine_stats_publish(e);
    return ERR_OK;
}

enum err engine_seq_pause(struct engine *e, uint64_t seq_id, bool paused) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    s->paused = paused;
    return ERR_OK;
}

enum err engine_seq_release(struct engine *e, uint64_t seq_id) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->state != SEQ_ST_HELD || s->kind != SEQ_PREFILL) return ERR_CONFLICT;
    engine_seq_end(e, s);
    engine_stats_publish(e);
    return ERR_OK;
}
