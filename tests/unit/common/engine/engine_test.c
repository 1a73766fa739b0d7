/* Goal: a sequence's tokens depend on its ids and parameters alone, and what it took comes back
 * exactly, whatever happens. Method: the engine on the fake forward pass, whose tokens betray a
 * wrong block table, against a loop that knows only the ids; every kind of sequence, every state it
 * can be cancelled in, every bound of admission on both sides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/common/engine/fake_forward.h"

enum { SEQS = 64, TOKENS = 512 };

/* What the callbacks said, per sequence id (small numbers here). */
struct heard {
    int n_tokens, n_admitted, n_failed, n_cached, n_prompt_logprobs;
    int32_t tokens[TOKENS];
    struct token_event last;
    enum finish finish;
    int kv_next[FAKE_LAYERS]; /* blocks announced so far */
    float prompt_logprobs[TOKENS];
};
struct rig {
    struct engine *e;
    struct engine_stats start;
    struct heard heard[SEQS];
    void (*hook)(struct rig *rig, const char *what, uint64_t id); /* runs inside every callback */
    int hook_count;
};

static void hook(struct rig *rig, const char *what, uint64_t id) {
    if (rig->hook != NULL) rig->hook(rig, what, id);
}

static void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct rig *rig = arg;
    struct heard *h = &rig->heard[id];
    assert_int_equal(h->finish, FINISH_NONE);
    h->tokens[h->n_tokens++] = ev->id;
    h->last = *ev;
    h->finish = ev->finish;
    hook(rig, "token", id);
}
static void on_kv(void *arg, uint64_t id, int layer, int first, int n) {
    struct rig *rig = arg;
    struct heard *h = &rig->heard[id];
    assert_true(n > 0);
    assert_int_equal(h->n_admitted, 1);
    assert_int_equal(h->kv_next[layer], first); /* in order, no gap, no repeat */
    for (int l = 0; l < layer; l++) assert_int_equal(h->kv_next[l], first + n);
    h->kv_next[layer] = first + n;
    hook(rig, "kv", id);
}
static void on_admitted(void *arg, uint64_t id, int n_cached) {
    struct rig *rig = arg;
    rig->heard[id].n_admitted++;
    rig->heard[id].n_cached = n_cached;
    hook(rig, "admitted", id);
}
static void on_prompt_logprob(void *arg, uint64_t id, int position, float logprob) {
    struct rig *rig = arg;
    struct heard *h = &rig->heard[id];
    h->n_prompt_logprobs++;
    assert_int_equal(h->n_prompt_logprobs, position);
    h->prompt_logprobs[position] = logprob;
    hook(rig, "logprob", id);
}
static void on_failed(void *arg, uint64_t id, enum err e) {
    struct rig *rig = arg;
    assert_int_equal(e, ERR_INTERNAL);
    rig->heard[id].n_failed++;
    hook(rig, "failed", id);
}

static void rig_open(struct rig *rig, const struct engine_opts *opts) {
    struct errbuf eb = {0};
    memset(rig, 0, sizeof(*rig));
    if (engine_open_with(&rig->e, opts, &fake_ops, &eb) != ERR_OK) fail_msg("%s", eb.text);
    const struct engine_events ev = {on_token,          on_kv,     on_admitted,
                                     on_prompt_logprob, on_failed, rig};
    engine_set_events(rig->e, &ev);
    engine_stats(rig->e, &rig->start);
}

/* Everything is as it was at the start. */
static void rig_check_idle(const struct rig *rig) {
    struct engine_stats s;
    engine_stats(rig->e, &s);
    assert_int_equal(s.slots_free, rig->start.slots_total);
    assert_int_equal(s.blocks_free, rig->start.blocks_total);
    assert_true(s.waiting == 0 && s.running == 0 && s.importing == 0 && s.held == 0);
    assert_true(kv_cache_check(rig->e->kv));
}
static void rig_close(struct rig *rig) {
    rig_check_idle(rig);
    engine_close(&rig->e);
    assert_null(rig->e);
}

static struct sampling neutral(int new_tokens_max) {
    return (struct sampling){.temperature = 1,
                             .top_p = 1,
                             .typical_p = 1,
                             .repetition_penalty = 1,
                             .new_tokens_max = new_tokens_max};
}
static struct sampling seeded(uint64_t seed, int new_tokens_max) {
    struct sampling p = neutral(new_tokens_max);
    p.do_sample = true;
    p.temperature = 0.8f;
    p.top_k = 40;
    p.top_p = 0.95f;
    p.seed = seed;
    p.repetition_penalty = 1.1f;
    p.presence_penalty = 0.3f;
    p.frequency_penalty = 0.2f;
    return p;
}

static void prompt_of(uint64_t seed, int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(fake_mix(seed * 7777 + (uint64_t)i) % FAKE_VOCAB);
}

static enum err add_full(struct rig *rig, uint64_t id, enum seq_kind kind, const int32_t *ids,
                         int n, int n_prompt, const struct sampling *p, int priority) {
    const struct seq_opts o = {.seq_id = id,
                               .kind = kind,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n_prompt,
                               .sampling = p,
                               .priority = priority};
    struct errbuf eb = {0};
    enum err e = engine_seq_add(rig->e, &o, &eb);
    if (e != ERR_OK) assert_true(eb.code == e && eb.text[0] != 0);
    return e;
}
static enum err add(struct rig *rig, uint64_t id, enum seq_kind kind, const int32_t *ids, int n,
                    const struct sampling *p) {
    return add_full(rig, id, kind, ids, n, n, p, 5);
}
static void run_dry(struct rig *rig) {
    int n = 0;
    while (engine_step(rig->e)) {
        assert_true(kv_cache_check(rig->e->kv));
        assert_true(++n < 100000);
    }
}
static int blocks_free(const struct rig *rig) {
    struct engine_stats s;
    engine_stats(rig->e, &s);
    return s.blocks_free;
}
static struct engine_stats stats_of(const struct rig *rig) {
    struct engine_stats s;
    engine_stats(rig->e, &s);
    return s;
}

static void check_tokens(const struct heard *h, const struct sampling *p, const int32_t *ids,
                         int n_ids, int n_prompt, int seq_tokens_max) {
    int32_t want[TOKENS];
    enum finish finish;
    int n = fake_expect(p, ids, n_ids, n_prompt, seq_tokens_max, want, &finish);
    assert_int_equal(h->n_tokens, n);
    for (int i = 0; i < n; i++) assert_int_equal(h->tokens[i], want[i]);
    assert_int_equal(h->finish, finish);
    assert_int_equal(h->last.index, n_ids - n_prompt + n - 1);
}

/* Prompts around the block and chunk bounds, in every combination of batch, chunk, step budget,
 * block size, prefix cache and KV type: always the tokens of the plain loop. */
static void test_tokens_do_not_depend_on_the_batch(void **state) {
    (void)state;
    static const int lengths[] = {1, 3, 4, 5, 15, 16, 17, 40, 100};
    enum { N = sizeof(lengths) / sizeof(lengths[0]) };
    static const int chunks[] = {1, 3, 16, 512}, batches[] = {1, 2, 8}, steps[] = {1, 5, 64},
                     bts[] = {1, 4, 16};
    int variant = 0;
    for (size_t c = 0; c < 4; c++)
        for (size_t b = 0; b < 3; b++)
            for (size_t st = 0; st < 3; st++)
                for (size_t t = 0; t < 3; t++, variant++) {
                    struct engine_opts o = fake_opts();
                    o.chunk_tokens = chunks[c];
                    o.batch_max = batches[b];
                    o.prefill_batch_max = 1 + variant % 3;
                    o.step_tokens_max = steps[st];
                    o.block_tokens = bts[t];
                    o.prefix_cache = variant % 2 == 0;
                    o.kv_dtype = variant % 3 == 0 ? DTYPE_BF16 : DTYPE_F32;
                    struct rig rig;
                    rig_open(&rig, &o);
                    int32_t ids[N][128];
                    struct sampling p[N];
                    for (int i = 0; i < N; i++) {
                        prompt_of(i < 6 ? 1 : 2, ids[i], lengths[i]); /* shared prefixes */
                        p[i] = i % 2 == 0 ? neutral(12) : seeded((uint64_t)i, 12);
                        assert_int_equal(
                            add(&rig, (uint64_t)i, SEQ_WHOLE, ids[i], lengths[i], &p[i]), ERR_OK);
                    }
                    run_dry(&rig);
                    for (int i = 0; i < N; i++)
                        check_tokens(&rig.heard[i], &p[i], ids[i], lengths[i], lengths[i], 256);
                    rig_close(&rig);
                }
}

static void test_prefix_hits(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    rig_open(&rig, &o);
    int32_t ids[64];
    struct sampling p = neutral(4);
    p.ignore_eos = true;
    prompt_of(5, ids, 64);
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 16, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[0].n_cached, 0);
    int rows = fake_of(rig.e)->rows_run;
    /* the same prompt: all but its last block, and that one is computed up to the last token */
    assert_int_equal(add(&rig, 1, SEQ_WHOLE, ids, 16, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[1].n_cached, 12);
    assert_int_equal(fake_of(rig.e)->rows_run - rows, 4 + 3);
    /* one token more: the whole first prompt is known */
    assert_int_equal(add(&rig, 2, SEQ_WHOLE, ids, 17, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[2].n_cached, 16);
    /* generated blocks are known too: 16 prompt + 3 fed tokens, so no further full block; 5 more
     * make one */
    int32_t more[64];
    memcpy(more, ids, 16 * sizeof(*ids));
    memcpy(more + 16, rig.heard[0].tokens, 4 * sizeof(*more));
    struct sampling long_p = neutral(8);
    long_p.ignore_eos = true;
    assert_int_equal(add(&rig, 3, SEQ_WHOLE, ids, 16, &long_p), ERR_OK);
    run_dry(&rig);
    memcpy(more + 16, rig.heard[3].tokens, 8 * sizeof(*more));
    assert_int_equal(add(&rig, 4, SEQ_WHOLE, more, 24, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[4].n_cached, 20);
    check_tokens(&rig.heard[4], &p, more, 24, 24, 256);
    /* another salt shares nothing */
    struct seq_opts so = {.seq_id = 5,
                          .kind = SEQ_WHOLE,
                          .ids = ids,
                          .n_ids = 16,
                          .n_prompt = 16,
                          .sampling = &p,
                          .priority = 5,
                          .prefix_salt = 9};
    assert_int_equal(engine_seq_add(rig.e, &so, NULL), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[5].n_cached, 0);
    for (int i = 0; i < 2; i++) check_tokens(&rig.heard[i], &p, ids, 16, 16, 256);
    check_tokens(&rig.heard[2], &p, ids, 17, 17, 256);
    struct engine_stats s = stats_of(&rig);
    assert_int_equal(s.prefix_hit_blocks, 3 + 4 + 3 + 5);
    rig_close(&rig);
}

/* Carries a prompt from one engine to the other: all blocks the importer does not hold. */
static void carry(struct rig *from, uint64_t from_id, struct rig *to, uint64_t to_id) {
    const int32_t *src, *dst;
    int n_src, n_dst, src_held, dst_held;
    assert_int_equal(engine_seq_blocks(from->e, from_id, &src, &n_src, &src_held), ERR_OK);
    assert_int_equal(engine_seq_blocks(to->e, to_id, &dst, &n_dst, &dst_held), ERR_OK);
    assert_int_equal(n_src, n_dst);
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        assert_int_equal(from->heard[from_id].kv_next[layer],
                         n_src); /* every block was announced */
        for (int b = dst_held; b < n_dst; b++)
            memcpy(engine_kv_block(to->e, layer, dst[b]), engine_kv_block(from->e, layer, src[b]),
                   engine_kv_block_bytes(to->e));
    }
}

static void test_split_equals_whole(void **state) {
    (void)state;
    static const int lengths[] = {1, 3, 4, 5, 15, 16, 17, 100};
    for (int chunk = 1; chunk <= 64; chunk = chunk * 4 + (chunk == 1)) {
        struct engine_opts o = fake_opts();
        o.chunk_tokens = chunk;
        struct rig pre, dec;
        rig_open(&pre, &o);
        rig_open(&dec, &o);
        uint64_t id = 0;
        for (int round = 0; round < 2; round++) /* the second finds prefixes on both sides */
            for (size_t k = 0; k < 8; k++, id++) {
                int32_t ids[128];
                struct sampling p = k % 2 == 0 ? seeded(k, 9) : neutral(9);
                prompt_of(3, ids, lengths[k]);
                assert_int_equal(add(&dec, id, SEQ_IMPORT, ids, lengths[k], &p), ERR_OK);
                assert_int_equal(add(&pre, id, SEQ_PREFILL, ids, lengths[k], &p), ERR_OK);
                run_dry(&pre);
                run_dry(&dec);
                assert_int_equal(pre.heard[id].n_tokens, 1);
                assert_int_equal(stats_of(&pre).held, 1);
                assert_int_equal(stats_of(&pre).slots_free, o.batch_max);
                carry(&pre, id, &dec, id);
                struct heard *h = &dec.heard[id];
                h->tokens[0] = pre.heard[id].tokens[0];
                h->n_tokens = 1;
                h->last = pre.heard[id].last;
                if (pre.heard[id].finish == FINISH_NONE) {
                    assert_int_equal(engine_seq_start(dec.e, id, h->tokens, 1), ERR_OK);
                    run_dry(&dec);
                } else {
                    h->finish = pre.heard[id].finish;
                    assert_int_equal(engine_seq_cancel(dec.e, id), ERR_OK);
                }
                assert_int_equal(engine_seq_release(pre.e, id), ERR_OK);
                check_tokens(h, &p, ids, lengths[k], lengths[k], 256);
                rig_check_idle(&pre);
                rig_check_idle(&dec);
            }
        assert_true(stats_of(&dec).prefix_hit_blocks > 0);
        rig_close(&pre);
        rig_close(&dec);
    }
}

/* A replayed request: prompt and the first tokens given as input go on exactly where the first run
 * was. */
static void test_recompute_continues(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    rig_open(&rig, &o);
    int32_t ids[64], all[64];
    prompt_of(8, ids, 10);
    struct sampling p = seeded(42, 20);
    p.ignore_eos = true;
    p.new_tokens_min = 20;
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 10, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[0].n_tokens, 20);
    for (int cut = 1; cut < 20; cut++) {
        memcpy(all, ids, sizeof(ids));
        memcpy(all + 10, rig.heard[0].tokens, (size_t)cut * sizeof(*all));
        uint64_t id = (uint64_t)cut;
        assert_int_equal(add_full(&rig, id, SEQ_WHOLE, all, 10 + cut, 10, &p, 5), ERR_OK);
        run_dry(&rig);
        const struct heard *h = &rig.heard[id];
        assert_int_equal(h->n_tokens, 20 - cut);
        for (int i = 0; i < 20 - cut; i++)
            assert_int_equal(h->tokens[i], rig.heard[0].tokens[cut + i]);
        assert_int_equal(h->last.index, 19);
        assert_int_equal(h->finish, FINISH_LENGTH);
    }
    /* several first ids at an import: all but the last are computed here */
    struct rig pre;
    rig_open(&pre, &o);
    assert_int_equal(add(&pre, 30, SEQ_PREFILL, ids, 10, &p), ERR_OK);
    run_dry(&pre);
    assert_int_equal(add(&rig, 30, SEQ_IMPORT, ids, 10, &p), ERR_OK);
    carry(&pre, 30, &rig, 30);
    assert_int_equal(engine_seq_start(rig.e, 30, rig.heard[0].tokens, 5), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[30].n_tokens, 15);
    for (int i = 0; i < 15; i++)
        assert_int_equal(rig.heard[30].tokens[i], rig.heard[0].tokens[5 + i]);
    assert_int_equal(engine_seq_cancel(pre.e, 30),
                     ERR_OK); /* a held sequence may also be cancelled */
    rig_close(&pre);
    rig_close(&rig);
}

static void test_finish_reasons(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.seq_tokens_max = 64;
    struct rig rig;
    rig_open(&rig, &o);
    int32_t ids[64];
    prompt_of(11, ids, 8);
    /* what a long answer without stops looks like */
    struct sampling p = neutral(200);
    p.ignore_eos = true;
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 8, &p), ERR_OK);
    run_dry(&rig);
    const struct heard *all = &rig.heard[0];
    assert_int_equal(all->n_tokens, 64 - 8); /* maxSeqLen ends it */
    assert_int_equal(all->finish, FINISH_LENGTH);
    /* a stop token, at its first occurrence; then forbidden until the 10th token */
    int32_t stop = all->tokens[5];
    int first = 0;
    while (all->tokens[first] != stop) first++;
    p.stop_token_ids = &stop;
    p.n_stop_token_ids = 1;
    assert_int_equal(add(&rig, 1, SEQ_WHOLE, ids, 8, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[1].finish, FINISH_STOP_TOKEN);
    assert_int_equal(rig.heard[1].n_tokens, first + 1);
    p.new_tokens_min = 10;
    assert_int_equal(add(&rig, 2, SEQ_WHOLE, ids, 8, &p), ERR_OK);
    run_dry(&rig);
    for (int i = 0; i < 10; i++) assert_int_not_equal(rig.heard[2].tokens[i], stop);
    check_tokens(&rig.heard[2], &p, ids, 8, 8, 64);
    /* EOS: prompts until one answer contains it */
    int n_eos = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        uint64_t id = 3 + seed;
        struct sampling q = seeded(seed, 40);
        prompt_of(100 + seed, ids, 8);
        assert_int_equal(add(&rig, id, SEQ_WHOLE, ids, 8, &q), ERR_OK);
        run_dry(&rig);
        check_tokens(&rig.heard[id], &q, ids, 8, 8, 64);
        n_eos += rig.heard[id].finish == FINISH_EOS;
    }
    assert_true(n_eos > 0);
    /* one token: prefill's own token may be the last; what it held stays until released */
    struct sampling one = neutral(1);
    one.ignore_eos = true;
    assert_int_equal(add(&rig, 40, SEQ_PREFILL, ids, 8, &one), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[40].finish, FINISH_LENGTH);
    assert_int_equal(stats_of(&rig).held, 1);
    assert_int_equal(blocks_free(&rig), rig.start.blocks_total - 2);
    assert_int_equal(engine_seq_release(rig.e, 40), ERR_OK);
    assert_int_equal(engine_seq_release(rig.e, 40), ERR_NOT_FOUND);
    rig_close(&rig);
}

static void test_refusals(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.seq_tokens_max = 40;
    o.queue_max = 2;
    o.batch_max = 2;
    o.kv_bytes = fake_pool_bytes(6, 4, DTYPE_F32);
    struct rig rig;
    rig_open(&rig, &o);
    assert_int_equal(rig.start.blocks_total, 6);
    int32_t ids[64];
    prompt_of(1, ids, 64);
    struct sampling p = neutral(4);
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 0, &p), ERR_INVALID);
    assert_int_equal(add_full(&rig, 0, SEQ_WHOLE, ids, 4, 0, &p, 5), ERR_INVALID);
    assert_int_equal(add_full(&rig, 0, SEQ_WHOLE, ids, 4, 5, &p, 5), ERR_INVALID);
    assert_int_equal(add_full(&rig, 0, SEQ_WHOLE, ids, 4, 4, &p, 0), ERR_INVALID);
    assert_int_equal(add_full(&rig, 0, SEQ_WHOLE, ids, 4, 4, &p, 6), ERR_INVALID);
    assert_int_equal(add_full(&rig, 0, SEQ_WHOLE, ids, 8, 4, &p, 5),
                     ERR_INVALID); /* 4 of 4 generated */
    struct sampling bad = p;
    bad.top_p = NAN;
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 4, &bad), ERR_INVALID);
    bad = p;
    bad.new_tokens_max = 0;
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 4, &bad), ERR_INVALID);
    bad = p;
    bad.top_logprobs = TOP_LOGPROBS_MAX + 1;
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 4, &bad), ERR_INVALID);
    int32_t foreign[2] = {0, FAKE_VOCAB};
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, foreign, 2, &p), ERR_INVALID);
    foreign[1] = -1;
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, foreign, 2, &p), ERR_INVALID);
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 40, &p),
                     ERR_TOO_LARGE); /* no room for an answer */
    /* 6 blocks of 4: 24 tokens of KV. 21 + 4 - 1 fit exactly, 22 + 4 - 1 never */
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 22, &p), ERR_TOO_LARGE);
    assert_int_equal(add(&rig, 0, SEQ_IMPORT, ids, 22, &p), ERR_TOO_LARGE);
    assert_int_equal(add(&rig, 0, SEQ_PREFILL, ids, 25, &p), ERR_TOO_LARGE);
    rig_check_idle(&rig);
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 21, &p), ERR_OK);
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 21, &p), ERR_CONFLICT);
    assert_int_equal(add(&rig, 1, SEQ_PREFILL, ids, 24, &p), ERR_OK);
    assert_int_equal(add(&rig, 2, SEQ_WHOLE, ids, 4, &p), ERR_BUSY); /* the queue is full */
    assert_true(engine_step(rig.e));
    assert_int_equal(stats_of(&rig).waiting, 1); /* no blocks for the second */
    assert_int_equal(add(&rig, 2, SEQ_IMPORT, ids, 4, &p), ERR_BUSY);
    run_dry(&rig);
    check_tokens(&rig.heard[0], &p, ids, 21, 21, 40);
    assert_int_equal(stats_of(&rig).held, 1);
    assert_int_equal(engine_seq_release(rig.e, 1), ERR_OK);

    const int32_t *table;
    int n_blocks, n_held;
    assert_int_equal(engine_seq_cancel(rig.e, 9), ERR_NOT_FOUND);
    assert_int_equal(engine_seq_release(rig.e, 9), ERR_NOT_FOUND);
    assert_int_equal(engine_seq_start(rig.e, 9, ids, 1), ERR_NOT_FOUND);
    assert_int_equal(engine_seq_blocks(rig.e, 9, &table, &n_blocks, &n_held), ERR_NOT_FOUND);
    assert_int_equal(add(&rig, 3, SEQ_WHOLE, ids, 4, &p), ERR_OK);
    assert_int_equal(engine_seq_blocks(rig.e, 3, &table, &n_blocks, &n_held), ERR_CONFLICT);
    assert_int_equal(engine_seq_release(rig.e, 3), ERR_CONFLICT);
    assert_int_equal(engine_seq_start(rig.e, 3, ids, 1), ERR_CONFLICT);
    assert_int_equal(engine_seq_cancel(rig.e, 3), ERR_OK);
    assert_int_equal(add(&rig, 4, SEQ_IMPORT, ids, 4, &p), ERR_OK);
    assert_int_equal(engine_seq_start(rig.e, 4, ids, 0), ERR_INVALID);
    assert_int_equal(engine_seq_start(rig.e, 4, foreign, 2), ERR_INVALID);
    assert_int_equal(engine_seq_start(rig.e, 4, ids, 4),
                     ERR_INVALID); /* nothing left to generate */
    assert_int_equal(stats_of(&rig).importing, 1);
    assert_int_equal(engine_seq_start(rig.e, 4, ids, 3), ERR_OK);
    assert_int_equal(engine_seq_start(rig.e, 4, ids, 1), ERR_CONFLICT);
    run_dry(&rig);
    assert_int_equal(rig.heard[4].n_tokens, 1);
    rig_close(&rig);
}

/* An import needs a slot and all its blocks at once: exactly enough is enough. */
static void test_import_bounds(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.batch_max = 2;
    o.kv_bytes = fake_pool_bytes(5, 4, DTYPE_F32);
    struct rig rig;
    rig_open(&rig, &o);
    int32_t a[16], b[16];
    prompt_of(1, a, 16);
    prompt_of(2, b, 16);
    struct sampling p = neutral(5); /* 8 + 5 - 1: 3 blocks */
    assert_int_equal(add(&rig, 0, SEQ_IMPORT, a, 8, &p), ERR_OK);
    assert_int_equal(blocks_free(&rig), 2);
    assert_int_equal(add(&rig, 1, SEQ_IMPORT, b, 8, &p), ERR_BUSY); /* one short */
    assert_int_equal(blocks_free(&rig), 2);
    struct sampling four = neutral(1 + 4 - 1 + 1); /* 4 + 5 - 1: 2 blocks, exactly */
    assert_int_equal(add(&rig, 1, SEQ_IMPORT, b, 4, &four), ERR_OK);
    assert_int_equal(blocks_free(&rig), 0);
    assert_int_equal(add(&rig, 2, SEQ_IMPORT, b, 1, &p), ERR_BUSY); /* no slot */
    assert_int_equal(engine_seq_cancel(rig.e, 1), ERR_OK);
    assert_int_equal(engine_seq_cancel(rig.e, 0), ERR_OK);
    rig_check_idle(&rig);
    /* blocks already here count: two imports of one prompt share its full blocks once it is
     * published */
    const int32_t first = 3, *table;
    int n_blocks, n_held;
    assert_int_equal(add(&rig, 0, SEQ_IMPORT, a, 8, &p), ERR_OK);
    assert_int_equal(engine_seq_blocks(rig.e, 0, &table, &n_blocks, &n_held), ERR_OK);
    assert_true(n_blocks == 2 && n_held == 0);
    assert_int_equal(engine_seq_start(rig.e, 0, &first, 1), ERR_OK);
    assert_int_equal(add(&rig, 1, SEQ_IMPORT, a, 8, &p), ERR_OK);
    const int32_t *table2;
    assert_int_equal(engine_seq_blocks(rig.e, 1, &table2, &n_blocks, &n_held), ERR_OK);
    assert_true(n_blocks == 2 && n_held == 2 && table2[0] == table[0] && table2[1] == table[1]);
    assert_int_equal(kv_block_refs(rig.e->kv, table[0]), 2);
    assert_int_equal(blocks_free(&rig), 1);
    assert_int_equal(engine_seq_cancel(rig.e, 0), ERR_OK);
    assert_int_equal(kv_block_refs(rig.e->kv, table2[0]), 1);
    assert_int_equal(engine_seq_cancel(rig.e, 1), ERR_OK);
    rig_close(&rig);
}

static void test_queue_order(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.batch_max = 1;
    struct rig rig;
    rig_open(&rig, &o);
    int32_t ids[8];
    prompt_of(1, ids, 8);
    struct sampling p = neutral(1);
    static const int priority[] = {5, 3, 5, 1, 3, 1};
    static const int want[] = {3, 5, 1, 4, 0, 2}; /* by priority, then age */
    for (int i = 0; i < 6; i++)
        assert_int_equal(add_full(&rig, (uint64_t)i, SEQ_WHOLE, ids, 8, 8, &p, priority[i]),
                         ERR_OK);
    for (int i = 0; i < 6; i++) {
        assert_true(engine_step(rig.e));
        for (int k = 0; k < 6; k++) {
            bool done = false;
            for (int j = 0; j <= i; j++) done = done || want[j] == k;
            assert_int_equal(rig.heard[k].n_tokens, done);
        }
    }
    rig_close(&rig);
}

/* Decodes go on while a long prompt comes in by chunks. */
static void test_chunks_do_not_stop_decodes(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.step_tokens_max = 16;
    o.chunk_tokens = 8;
    struct rig rig;
    rig_open(&rig, &o);
    int32_t ids[200];
    prompt_of(1, ids, 200);
    struct sampling p = neutral(50);
    p.ignore_eos = true;
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 4, &p), ERR_OK);
    assert_true(engine_step(rig.e));
    assert_int_equal(add(&rig, 1, SEQ_WHOLE, ids, 150, &p), ERR_OK);
    for (int i = 0; i < 10; i++) {
        assert_true(engine_step(rig.e));
        assert_int_equal(rig.heard[0].n_tokens, 2 + i);
        assert_int_equal(rig.heard[1].n_tokens, 0);
    }
    run_dry(&rig);
    check_tokens(&rig.heard[1], &p, ids, 150, 150, 256);
    rig_close(&rig);
}

/* A sequence of each kind, cancelled after every number of steps: all comes back, nothing more is
 * heard, the neighbour's tokens are untouched. */
static void test_cancel_at_every_stage(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.chunk_tokens = 4;
    for (int kind = 0; kind < 3; kind++)
        for (int after = 0; after < 14; after++) {
            struct rig rig;
            rig_open(&rig, &o);
            int32_t ids[32], other[32];
            const int32_t first = 1;
            prompt_of(1, ids, 20);
            prompt_of(2, other, 9);
            struct sampling p = neutral(6), q = seeded(3, 30);
            q.ignore_eos = p.ignore_eos = true;
            assert_int_equal(add(&rig, 1, SEQ_WHOLE, other, 9, &q), ERR_OK);
            assert_int_equal(add(&rig, 0, (enum seq_kind)kind, ids, 20, &p), ERR_OK);
            for (int i = 0; i < after; i++) {
                if (kind == SEQ_IMPORT && i == 3)
                    assert_int_equal(engine_seq_start(rig.e, 0, &first, 1), ERR_OK);
                assert_true(engine_step(rig.e));
            }
            int n_tokens = rig.heard[0].n_tokens;
            bool live = rig.heard[0].finish == FINISH_NONE || kind == SEQ_PREFILL;
            assert_int_equal(engine_seq_cancel(rig.e, 0), live ? ERR_OK : ERR_NOT_FOUND);
            assert_int_equal(engine_seq_cancel(rig.e, 0), ERR_NOT_FOUND);
            assert_true(kv_cache_check(rig.e->kv));
            run_dry(&rig);
            assert_int_equal(rig.heard[0].n_tokens, n_tokens);
            check_tokens(&rig.heard[1], &q, other, 9, 9, 256);
            rig_close(&rig);
        }
}

/* Callbacks that end sequences: each one in turn, the speaker itself or its neighbour. */
static uint64_t victim_of_hook;
static int hook_at;
static void cancel_in_hook(struct rig *rig, const char *what, uint64_t id) {
    (void)what;
    (void)id;
    if (rig->hook_count++ == hook_at) (void)engine_seq_cancel(rig->e, victim_of_hook);
    assert_false(engine_step(rig->e)); /* a step inside a step does nothing */
    assert_int_equal(engine_self_test(rig->e), ERR_CONFLICT);
}
static void test_cancel_inside_callbacks(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.chunk_tokens = 6;
    for (victim_of_hook = 0; victim_of_hook < 3; victim_of_hook++)
        for (hook_at = 0;; hook_at++) {
            struct rig rig;
            rig_open(&rig, &o);
            int32_t ids[3][16];
            struct sampling p[3] = {neutral(5), seeded(1, 5), neutral(5)};
            p[1].prompt_logprobs = true;
            static const enum seq_kind kinds[] = {SEQ_PREFILL, SEQ_WHOLE, SEQ_WHOLE};
            for (int round = 0; round < 2; round++) { /* the second announces cached blocks */
                memset(rig.heard, 0, sizeof(rig.heard));
                for (int i = 0; i < 3; i++) {
                    p[i].ignore_eos = true;
                    prompt_of(i == 2 ? 9 : 1, ids[i], 13);
                    assert_int_equal(add(&rig, (uint64_t)i, kinds[i], ids[i], 13, &p[i]), ERR_OK);
                }
                rig.hook = round == 1 ? cancel_in_hook : NULL;
                run_dry(&rig);
                if (engine_seq_find(rig.e, 0) != NULL)
                    assert_int_equal(engine_seq_release(rig.e, 0), ERR_OK);
                rig_check_idle(&rig);
            }
            for (uint64_t i = 1; i < 3; i++)
                if (i != victim_of_hook) check_tokens(&rig.heard[i], &p[i], ids[i], 13, 13, 256);
            bool done = rig.hook_count <= hook_at;
            rig_close(&rig);
            if (done) break;
        }
    assert_true(hook_at > 20);
}

/* The id of a sequence that has just told its end may be used again at once, and its slot and
 * blocks are free. */
static void readd_in_hook(struct rig *rig, const char *what, uint64_t id) {
    if (strcmp(what, "token") != 0 || rig->heard[id].finish == FINISH_NONE || rig->hook_count >= 3)
        return;
    rig->hook_count++;
    struct engine_stats s;
    engine_stats(rig->e, &s);
    int32_t ids[20];
    struct sampling p = neutral(5);
    prompt_of(50 + (uint64_t)rig->hook_count, ids, 20);
    memset(&rig->heard[id], 0, sizeof(rig->heard[id]));
    assert_int_equal(add(rig, id, SEQ_IMPORT, ids, 20, &p),
                     ERR_OK); /* takes the one slot and every block */
    const int32_t first = 2;
    assert_int_equal(engine_seq_start(rig->e, id, &first, 1), ERR_OK);
}
static void test_end_frees_before_it_tells(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.batch_max = 1;
    o.kv_bytes = fake_pool_bytes(6, 4, DTYPE_F32);
    struct rig rig;
    rig_open(&rig, &o);
    rig.hook = readd_in_hook;
    int32_t ids[20];
    prompt_of(1, ids, 20);
    struct sampling p = neutral(5);
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 20, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.hook_count, 3);
    rig_close(&rig);
}

static void test_prompt_logprobs(void **state) {
    (void)state;
    static const int chunks[] = {1, 5, 64};
    for (int k = 0; k < 3; k++) {
        struct engine_opts o = fake_opts();
        o.chunk_tokens = chunks[k];
        struct rig rig;
        rig_open(&rig, &o);
        int32_t ids[3][128];
        struct sampling p = neutral(3);
        p.prompt_logprobs = true;
        static const int lengths[] = {100, 1, 64};
        for (int i = 0; i < 3; i++) {
            prompt_of((uint64_t)i, ids[i], lengths[i]);
            assert_int_equal(
                add(&rig, (uint64_t)i, i == 2 ? SEQ_PREFILL : SEQ_WHOLE, ids[i], lengths[i], &p),
                ERR_OK);
        }
        run_dry(&rig);
        for (int i = 0; i < 3; i++) {
            float logits[FAKE_VOCAB];
            assert_int_equal(rig.heard[i].n_prompt_logprobs, lengths[i] - 1);
            for (int pos = 1; pos < lengths[i]; pos++) {
                fake_logits(ids[i], pos, logits);
                assert_true(rig.heard[i].prompt_logprobs[pos] ==
                            sample_logprob(logits, FAKE_VOCAB, ids[i][pos]));
            }
        }
        check_tokens(&rig.heard[0], &p, ids[0], 100, 100, 256);
        assert_int_equal(engine_seq_release(rig.e, 2), ERR_OK);
        rig_close(&rig);
    }
}

static void test_no_finite_logit_fails_the_sequence(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    rig_open(&rig, &o);
    int32_t ids[8];
    prompt_of(1, ids, 8);
    struct sampling p = neutral(3);
    for (int kind = 0; kind < 2; kind++) {
        fake_of(rig.e)->all_nan = true;
        assert_int_equal(add(&rig, (uint64_t)kind, (enum seq_kind)kind, ids, 8, &p), ERR_OK);
        assert_int_equal(engine_self_test(rig.e), ERR_INTERNAL);
        run_dry(&rig);
        assert_int_equal(rig.heard[kind].n_failed, 1);
        assert_int_equal(rig.heard[kind].n_tokens, 0);
        rig_check_idle(&rig);
        fake_of(rig.e)->all_nan = false;
        assert_int_equal(engine_self_test(rig.e), ERR_OK);
    }
    rig_close(&rig);
}

static void test_event_fields_and_stats(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    rig_open(&rig, &o);
    int32_t ids[3][8];
    struct sampling p = neutral(4);
    p.ignore_eos = true;
    p.logprobs = true;
    p.top_logprobs = 3;
    for (int i = 0; i < 3; i++) {
        prompt_of((uint64_t)i, ids[i], 8);
        assert_int_equal(add(&rig, (uint64_t)i, SEQ_WHOLE, ids[i], 8, &p), ERR_OK);
    }
    assert_int_equal(stats_of(&rig).waiting, 3);
    assert_true(engine_step(rig.e));
    struct engine_stats s = stats_of(&rig);
    assert_true(s.running == 3 && s.waiting == 0 && s.slots_free == o.batch_max - 3 &&
                s.steps == 1);
    assert_true(s.prompt_tokens == 24 && s.generated_tokens == 3 && s.prefill_tokens_per_s > 0);
    for (int i = 0; i < 3; i++) {
        const struct token_event *ev = &rig.heard[i].last;
        assert_true(ev->batch_size == 3 && ev->index == 0 && ev->n_top == 3);
        assert_true(ev->top[0].id == ev->id && ev->top[0].logprob == ev->logprob &&
                    ev->logprob < 0);
        assert_true(ev->step_us >= ev->queue_wait_us);
    }
    run_dry(&rig);
    s = stats_of(&rig);
    assert_true(s.steps == 4 && s.generated_tokens == 12 && s.prompt_tokens == 24 &&
                s.decode_tokens_per_s > 0);
    assert_false(engine_step(rig.e));
    assert_int_equal(stats_of(&rig).steps, 4);
    rig_close(&rig);
}

static void test_open_refuses(void **state) {
    (void)state;
    struct engine_opts good = fake_opts();
    struct errbuf eb;
    struct engine *e;
#define REFUSED(member, bad)                                                                       \
    do {                                                                                           \
        struct engine_opts o_ = good;                                                              \
        o_.member = (bad);                                                                         \
        eb = (struct errbuf){0};                                                                   \
        assert_int_equal(engine_open_with(&e, &o_, &fake_ops, &eb), ERR_BAD_CONFIG);               \
        assert_null(e);                                                                            \
        assert_true(eb.text[0] != 0);                                                              \
    } while (0)
    REFUSED(block_tokens, 0);
    REFUSED(block_tokens, 129);
    REFUSED(seq_tokens_max, 1);
    REFUSED(batch_max, 0);
    REFUSED(prefill_batch_max, 0);
    REFUSED(step_tokens_max, 0);
    REFUSED(chunk_tokens, 0);
    REFUSED(queue_max, 0);
    REFUSED(kv_dtype, DTYPE_F16);
    REFUSED(kv_bytes, 1);
    REFUSED(kv_bytes, UINT64_MAX);
    good.block_tokens = 128;
    good.seq_tokens_max = 1 << 20;
    assert_int_equal(engine_open_with(&e, &good, &fake_ops, &eb), ERR_OK);
    assert_int_equal(engine_seq_tokens_max(e), FAKE_CONTEXT); /* cut to the model's */
    assert_int_equal(engine_block_tokens(e), 128);
    assert_string_equal(engine_model(e)->family, "fake");
    engine_close(&e);
    engine_close(&e);
}

static void test_pool_size(void **state) {
    (void)state;
    const uint64_t mib = 1 << 20, gib = 1 << 30;
    struct engine_opts o = fake_opts();
    struct model_info info = {.n_layers = 16, .n_kv_heads = 8, .head_dim = 64};
    o.block_tokens = 16; /* 16 layers x 2 x 8 x 16 x 64 x 4 bytes = 1 MiB a block */
    int n;
    struct errbuf eb;
    o.kv_bytes = 10 * mib + mib / 2;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 10);
    o.kv_bytes = mib - 1;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, gib, &n, &eb), ERR_BAD_CONFIG);
    o.kv_bytes = gib + 1;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, gib, &n, &eb), ERR_BAD_CONFIG);
    o.kv_bytes = 0;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, 8 * gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 64); /* a small model: 64 MiB, which is one full sequence here too */
    assert_int_equal(engine_pool_blocks(&o, &info, 2048, 8 * gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 128); /* one full sequence */
    assert_int_equal(engine_pool_blocks(&o, &info, 64, 8 * gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 4 * o.batch_max); /* all there can ever be */
    info.weight_bytes = gib;
    assert_int_equal(engine_pool_blocks(&o, &info, 1 << 20, 8 * gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 4096); /* one full sequence would take all the memory: half of it */
    assert_int_equal(engine_pool_blocks(&o, &info, 16384, 8 * gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 2048); /* a quarter */
    info.head_dim = INT32_MAX;
    info.n_kv_heads = INT32_MAX;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, gib, &n, &eb), ERR_BAD_CONFIG);
    assert_true(engine_free_memory() > mib);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_pool_size),
        cmocka_unit_test(test_tokens_do_not_depend_on_the_batch),
        cmocka_unit_test(test_prefix_hits),
        cmocka_unit_test(test_split_equals_whole),
        cmocka_unit_test(test_recompute_continues),
        cmocka_unit_test(test_finish_reasons),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_import_bounds),
        cmocka_unit_test(test_queue_order),
        cmocka_unit_test(test_chunks_do_not_stop_decodes),
        cmocka_unit_test(test_cancel_at_every_stage),
        cmocka_unit_test(test_cancel_inside_callbacks),
        cmocka_unit_test(test_end_frees_before_it_tells),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_no_finite_logit_fails_the_sequence),
        cmocka_unit_test(test_event_fields_and_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
