/* Goal: a sequence's tokens depend on its ids and parameters alone.
 * Method: the engine on the fake forward pass, whose tokens betray a wrong block table, against a
 * loop that knows only the ids: for every batch, chunk, block size, prefix hit, split and replay;
 * and what is told beside the tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/common/engine/engine_rig.h"

/* Prompts around the block and chunk bounds, in every combination of batch, chunk, step budget,
 * block size, prefix cache and KV type: always the tokens of the plain loop. */
static void test_tokens_do_not_depend_on_the_batch(void **state) {
    (void)state;
    static const int lengths[] = {1, 3, 4, 5, 15, 16, 17, 40, 100};
    enum { N = sizeof(lengths) / sizeof(lengths[0]) };
    static const int chunks[] = {1, 3, 16, 512}, batches[] = {1, 2, 8}, steps[] = {1, 5, 64},
                     bts[] = {1, 4, 16};
    static const enum dtype kvs[] = {DTYPE_BF16, DTYPE_F32, DTYPE_INT8};
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
                    o.kv_dtype = kvs[variant / 2 % 3];
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
                    assert_int_equal(start_one(dec.e, id, h->tokens, 1), ERR_OK);
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
    assert_int_equal(start_one(rig.e, 30, rig.heard[0].tokens, 5), ERR_OK);
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

/* What the fake passes would have taken: a step a millisecond, and each row a tenth of one. */
static const struct forward *timed;
static uint64_t row_clock(void) {
    return (uint64_t)timed->passes * 1000 + (uint64_t)timed->rows_paid * 100;
}

/* While a stream decodes, a step with rows of a prompt takes at most four times as long, or so many
 * milliseconds, or has the prompt's share, in full tiles; alone the prompt has whole chunks.
 * Answers are the same. */
static void test_prompts_leave_decodes_their_gap(void **state) {
    (void)state;
    static const struct {
        int percent, ms, share, rows; /* as the clock above has it, of a stream's 1.1 ms */
        int tile;
    } cases[] = {{400, 0, 0, 33, 0},  {150, 0, 0, STEP_PROMPT_ROWS_MIN, 0},
                 {400, 3, 0, 19, 0},  {0, 0, 75, 33, 0},
                 {400, 0, 50, 11, 0}, {0, 0, 0, 256, 0},
                 {400, 0, 0, 23, 12}, {0, 0, 0, 239, 48}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct engine_opts o = fake_opts();
        o.step_tokens_max = 300;
        o.chunk_tokens = 256;
        o.seq_tokens_max = 1000;
        o.kv_bytes *= 8;
        o.decode_gap_percent = cases[k].percent;
        o.decode_gap_ms = cases[k].ms;
        struct rig rig;
        rig_open(&rig, &o);
        timed = fake_of(rig.e);
        fake_of(rig.e)->tile = cases[k].tile;
        rig.e->step_clock = row_clock;
        rig.e->cost.tile = cases[k].tile;
        engine_set_prefill_share(rig.e, cases[k].share);
        static int32_t ids[900];
        prompt_of(1, ids, 900);
        struct sampling p = neutral(200);
        p.ignore_eos = true;
        assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 4, &p), ERR_OK);
        for (int i = 0; i < 20; i++) assert_true(engine_step(rig.e));
        const uint64_t before = stats_of(&rig).prompt_tokens;
        p.new_tokens_max = 1;
        assert_int_equal(add(&rig, 1, SEQ_WHOLE, ids + 1, 890, &p), ERR_OK);
        uint64_t most = 0, last = before;
        for (int i = 0; rig.heard[1].n_tokens == 0; i++) {
            assert_true(i < 200 && engine_step(rig.e));
            assert_int_equal(rig.heard[0].n_tokens, 21 + i); /* one in each step */
            const uint64_t now = stats_of(&rig).prompt_tokens;
            most = now - last > most ? now - last : most;
            last = now;
        }
        assert_int_equal(last - before, 890);
        assert_in_range(most, (uint64_t)cases[k].rows - 1, (uint64_t)cases[k].rows + 1);
        const struct engine_stats s = stats_of(&rig);
        assert_true(s.shared_prompt_rows == 890 && s.shared_prompt_rows_max == most);
        assert_true(s.shared_steps >= 890 / most && s.decode_step_us == 1100);
        assert_true(s.prompt_row_us > 90 && s.prompt_row_us < 110);
        assert_int_equal(engine_seq_cancel(rig.e, 0), ERR_OK);
        check_tokens(&rig.heard[1], &p, ids + 1, 890, 890, 1000);
        assert_int_equal(add(&rig, 2, SEQ_WHOLE, ids + 2, 256, &p), ERR_OK); /* alone */
        assert_true(engine_step(rig.e));
        assert_int_equal(rig.heard[2].n_tokens, 1);
        rig_close(&rig);
    }
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
                assert_true(rig.heard[i].prompt_logprobs[pos] == fake_logprob(logits, ids[i][pos]));
            }
        }
        check_tokens(&rig.heard[0], &p, ids[0], 100, 100, 256);
        assert_int_equal(engine_seq_release(rig.e, 2), ERR_OK);
        rig_close(&rig);
    }
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_do_not_depend_on_the_batch),
        cmocka_unit_test(test_prefix_hits),
        cmocka_unit_test(test_split_equals_whole),
        cmocka_unit_test(test_recompute_continues),
        cmocka_unit_test(test_finish_reasons),
        cmocka_unit_test(test_queue_order),
        cmocka_unit_test(test_chunks_do_not_stop_decodes),
        cmocka_unit_test(test_prompts_leave_decodes_their_gap),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_event_fields_and_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
