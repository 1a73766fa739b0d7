/* engine_choice: what each choice of a sequence has of its own: a slot of the batch and KV blocks.
 *
 * The choices of a prompt share its full blocks by reference. Nobody ever writes those again; the
 * one write that would hit a shared block is the row after the prompt, into the block the prompt
 * has only begun, so that one is copied when the choices part: copy on write, with the one write
 * known beforehand. */
#include <string.h>

#include "common/engine/engine_priv.h"

/* ---- slots */

int engine_slots_used(const struct engine *e) {
    return e->n_running + e->n_importing;
}

void engine_slots_take(struct engine *e, struct seq *s, enum seq_state state) {
    s->state = state;
    s->tenant->n_slots += s->n_choices;
    for (int i = 0; i < s->n_choices; i++) {
        struct choice *c = &s->choices[i];
        c->slot_idx = engine_slots_used(e);
        e->slots[c->slot_idx] = c;
        if (state == SEQ_ST_RUNNING)
            e->n_running++;
        else
            e->n_importing++;
    }
}

void engine_slot_give(struct engine *e, struct choice *c) {
    struct choice *last = e->slots[engine_slots_used(e) - 1];
    e->slots[c->slot_idx] = last;
    last->slot_idx = c->slot_idx;
    c->slot_idx = -1;
    c->seq->tenant->n_slots--;
    if (c->seq->state == SEQ_ST_IMPORTING)
        e->n_importing--;
    else
        e->n_running--;
}

/* ---- blocks */

int64_t engine_blocks_needed(const struct seq *s) {
    return s->n_blocks + (int64_t)(s->n_choices - 1) * (s->n_blocks - s->n_shared);
}

bool engine_blocks_take(struct engine *e, struct seq *s) {
    struct choice *lead = &s->choices[0];
    int n_cached = 0, n_look = 0, n_shared = s->n_shared, bt = e->block_tokens;
    lead->chain = (struct kv_chain){.digest = s->digest_seed};
    /* Where every row counts, none may come from elsewhere. */
    if (e->prefix_cache && !s->sampling.prompt_logprobs &&
        (s->kind != SEQ_EMBED || s->embed.pooling == POOL_LAST)) {
        /* The last token is computed whatever is known: its logits are what the sequence is for. */
        n_look = (s->kind == SEQ_IMPORT ? s->n_input : s->n_input - 1) / bt;
        n_cached = kv_prefix_lookup(e->kv, s->salt, lead->ids, n_look, lead->blocks, &lead->chain);
    }
    if (engine_blocks_needed(s) - n_cached > kv_blocks_free(e->kv)) {
        kv_blocks_unref(e->kv, lead->blocks, n_cached);
        return false;
    }
    (void)kv_blocks_alloc(e->kv, lead->blocks + n_cached, s->n_blocks - n_cached);
    for (int i = 1; i < s->n_choices; i++) {
        int32_t *blocks = s->choices[i].blocks;
        memcpy(blocks, lead->blocks, (size_t)n_shared * sizeof(*blocks));
        for (int b = 0; b < n_shared; b++) kv_block_ref(e->kv, blocks[b]);
        (void)kv_blocks_alloc(e->kv, blocks + n_shared, s->n_blocks - n_shared);
    }
    s->has_blocks = true;
    s->held_blocks = engine_blocks_needed(s);
    s->tenant->n_blocks += s->held_blocks;
    s->n_cached_blocks = s->n_final_blocks = lead->n_published = n_cached;
    lead->n_past = n_cached * bt;
    e->lookup_blocks += (uint64_t)n_look;
    e->hit_blocks += (uint64_t)n_cached;
    return true;
}

void engine_choice_publish(struct engine *e, struct choice *c) {
    /* The blocks of beams come and go: nobody else is to find them. */
    if (!e->prefix_cache || (c->seq->search != NULL && c->seq->forked)) return;
    for (; c->n_published < c->n_past / e->block_tokens; c->n_published++)
        kv_prefix_publish(e->kv, c->seq->salt, &c->chain,
                          c->ids + (size_t)c->n_published * (size_t)e->block_tokens,
                          c->blocks[c->n_published]);
}

void engine_block_copy(struct engine *e, int32_t to, int32_t from) {
    size_t n = kv_block_bytes(kv_cache_shape(e->kv));
    for (int layer = 0; layer < model_kv_layers(&e->info); layer++)
        memcpy(kv_block_ptr(e->kv, layer, to), kv_block_ptr(e->kv, layer, from), n);
}

/* ---- parting and ending */

bool engine_fork(struct engine *e, struct seq *s) {
    const struct choice *lead = &s->choices[0];
    bool tail = s->n_input % e->block_tokens != 0;
    s->forked = true;
    for (int i = 1; i < s->n_choices; i++) {
        struct choice *c = &s->choices[i];
        if (c->stopping) continue;
        if (tail) engine_block_copy(e, c->blocks[s->n_shared], lead->blocks[s->n_shared]);
        c->n_past = s->n_input;
        c->n_published = lead->n_published;
        c->chain = lead->chain;
        c->wait_us = lead->wait_us;
        c->wait_open = lead->wait_open;
    }
    for (int i = 0; i < s->n_choices; i++)
        if (s->choices[i].stopping && !engine_choice_end(e, &s->choices[i])) return false;
    return true;
}

void engine_choice_give(struct engine *e, struct choice *c) {
    if (c->plan_idx >= 0) e->plan[c->plan_idx] = NULL;
    c->plan_idx = -1;
    engine_slot_give(e, c);
    kv_blocks_unref(e->kv, c->blocks, c->seq->n_blocks);
    int own = c->seq->n_blocks - c->seq->n_shared;
    c->seq->held_blocks -= own;
    c->seq->tenant->n_blocks -= own;
    c->live = false;
    e->n_frees++;
}

bool engine_choice_end(struct engine *e, struct choice *c) {
    struct seq *s = c->seq;
    if (!c->stopping) s->n_live--;
    if (s->n_live == 0) {
        engine_seq_end(e, s);
        return false;
    }
    engine_choice_give(e, c);
    return true;
}
