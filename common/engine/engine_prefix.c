/* engine_prefix: sequences that carry KV between the prefix caches of two instances. One lends what
 * its cache has; the other keeps what came, and a prompt finds it there like any other prefix. */
#include <inttypes.h>

#include "common/engine/engine_priv.h"

enum err engine_prefix_opts(const struct engine *e, const struct seq_opts *asked,
                            struct seq_opts *o, struct sampling *sampling, struct errbuf *eb) {
    const size_t bt = (size_t)e->block_tokens;
    *sampling = (struct sampling){.top_p = 1,
                                  .typical_p = 1,
                                  .repetition_penalty = 1,
                                  .n_choices = 1,
                                  .new_tokens_max = asked->sampling->new_tokens_max};
    *o = *asked;
    o->sampling = sampling;
    o->guide = (struct token_guide){0};
    o->n_ids = (asked->n_ids - 1) / bt * bt;
    if (!e->prefix_cache) return err_set(eb, ERR_NOT_FOUND, "there is no prefix cache");
    if (o->n_ids == 0)
        return err_set(eb, ERR_NOT_FOUND, "%zu tokens have no full block of %d", asked->n_ids,
                       e->block_tokens);
    return ERR_OK;
}

enum err engine_prefix_take(struct engine *e, struct seq *s, struct errbuf *eb) {
    struct choice *c = &s->choices[0];
    c->chain = (struct kv_chain){.digest = s->digest_seed};
    const int n = kv_prefix_lookup(e->kv, s->salt, c->ids, s->n_blocks, c->blocks, &c->chain);
    if (s->kind == SEQ_LEND) {
        if (n == 0) return err_set(eb, ERR_NOT_FOUND, "the prefix cache has none of the blocks");
        s->n_blocks = n;
        s->n_input = n * e->block_tokens;
    } else if (!kv_blocks_alloc(e->kv, c->blocks + n, s->n_blocks - n)) {
        const int n_free = kv_blocks_free(e->kv); /* those found are not */
        kv_blocks_unref(e->kv, c->blocks, n);
        return err_set(eb, ERR_BUSY, "needs %d KV blocks, %d are free", s->n_blocks - n, n_free);
    }
    s->has_blocks = true;
    s->held_blocks = s->n_blocks;
    s->tenant->n_blocks += s->held_blocks;
    s->n_cached_blocks = c->n_published = n;
    s->state = SEQ_ST_HELD;
    e->n_held++;
    return ERR_OK;
}

enum err engine_seq_keep(struct engine *e, uint64_t seq_id, int n_blocks) {
    struct seq *s = engine_seq_find(e, seq_id);
    if (s == NULL) return ERR_NOT_FOUND;
    if (s->kind != SEQ_FETCH) return ERR_CONFLICT;
    struct choice *c = &s->choices[0];
    c->n_past = (n_blocks < s->n_blocks ? n_blocks : s->n_blocks) * e->block_tokens;
    engine_choice_publish(e, c);
    engine_seq_end(e, s);
    engine_stats_publish(e);
    return ERR_OK;
}
