/* Goal: what a sequence took comes back exactly, whatever happens, and what cannot be served is
 * refused whole. Method: every option and every bound of admission on both sides; each kind of
 * sequence cancelled after each number of steps and from inside each callback, with a neighbour
 * whose tokens must not change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/common/engine/engine_rig.h"

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
    assert_int_equal(start_one(rig.e, 9, ids, 1), ERR_NOT_FOUND);
    assert_int_equal(engine_seq_blocks(rig.e, 9, &table, &n_blocks, &n_held), ERR_NOT_FOUND);
    assert_int_equal(add(&rig, 3, SEQ_WHOLE, ids, 4, &p), ERR_OK);
    assert_int_equal(engine_seq_blocks(rig.e, 3, &table, &n_blocks, &n_held), ERR_CONFLICT);
    assert_int_equal(engine_seq_release(rig.e, 3), ERR_CONFLICT);
    assert_int_equal(start_one(rig.e, 3, ids, 1), ERR_CONFLICT);
    assert_int_equal(engine_seq_cancel(rig.e, 3), ERR_OK);
    assert_int_equal(add(&rig, 4, SEQ_IMPORT, ids, 4, &p), ERR_OK);
    assert_int_equal(start_one(rig.e, 4, ids, 0), ERR_INVALID);
    assert_int_equal(start_one(rig.e, 4, foreign, 2), ERR_INVALID);
    assert_int_equal(start_one(rig.e, 4, ids, 4), ERR_INVALID); /* nothing left to generate */
    assert_int_equal(stats_of(&rig).importing, 1);
    assert_int_equal(start_one(rig.e, 4, ids, 3), ERR_OK);
    assert_int_equal(start_one(rig.e, 4, ids, 1), ERR_CONFLICT);
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
    assert_int_equal(start_one(rig.e, 0, &first, 1), ERR_OK);
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
                    assert_int_equal(start_one(rig.e, 0, &first, 1), ERR_OK);
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
    if (rig->hook_count++ == hook_at)
        rig->heard[victim_of_hook].cancelled = engine_seq_cancel(rig->e, victim_of_hook) == ERR_OK;
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
    assert_int_equal(start_one(rig->e, id, &first, 1), ERR_OK);
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
        if (kind == SEQ_PREFILL) { /* a sender may be reading its blocks: they stay until let go */
            struct engine_stats s;
            engine_stats(rig.e, &s);
            assert_true(s.held == 1 && s.blocks_free < rig.start.blocks_total);
            assert_int_equal(s.slots_free, rig.start.slots_total);
            assert_int_equal(engine_seq_cancel(rig.e, (uint64_t)kind), ERR_OK);
        }
        rig_check_idle(&rig);
        fake_of(rig.e)->all_nan = false;
        assert_int_equal(engine_self_test(rig.e), ERR_OK);
    }
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
    REFUSED(decode_gap_percent, -1);
    REFUSED(decode_gap_percent, 100);
    REFUSED(decode_gap_percent, 100001);
    REFUSED(decode_gap_ms, -1);
    REFUSED(decode_gap_ms, 60001);
    REFUSED(queue_max, 0);
    REFUSED(kv_dtype, DTYPE_F16);
    REFUSED(kv_dtype, DTYPE_INT4);
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
    assert_int_equal(n, 2 * 4 * o.batch_max); /* twice what the slots can fill */
    info.weight_bytes = gib;
    assert_int_equal(engine_pool_blocks(&o, &info, 1 << 20, 8 * gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 4096); /* one full sequence would take all the memory: half of it */
    assert_int_equal(engine_pool_blocks(&o, &info, 16384, 8 * gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 2048); /* a quarter */
    /* int8 holds 128 / 66 times what bf16 does */
    o.kv_bytes = 330 * mib;
    o.kv_dtype = DTYPE_BF16;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 660);
    o.kv_dtype = DTYPE_INT8;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, gib, &n, &eb), ERR_OK);
    assert_int_equal(n, 1280);
    o.kv_bytes = 0;
    info.head_dim = INT32_MAX;
    info.n_kv_heads = INT32_MAX;
    assert_int_equal(engine_pool_blocks(&o, &info, 1024, gib, &n, &eb), ERR_BAD_CONFIG);
    assert_true(engine_free_memory() > mib);
}

/* Probes leave nothing behind: no block, no count, no other token; after work there are none. */
static void test_calibrate(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig plain, rig;
    struct sampling p = seeded(5, 12);
    struct engine_stats s;
    int32_t ids[20];
    int n = 0;
    prompt_of(1, ids, 20);
    rig_open(&plain, &o);
    assert_int_equal(add(&plain, 0, SEQ_WHOLE, ids, 20, &p), ERR_OK);
    run_dry(&plain);
    assert_false(engine_calibrate(plain.e)); /* what it does measures it now */
    rig_open(&rig, &o);
    while (engine_calibrate(rig.e)) assert_in_range(++n, 1, 20);
    assert_true(n > 4);
    engine_stats(rig.e, &s);
    assert_true(s.steps == 0 && s.prompt_tokens == 0 && s.generated_tokens == 0);
    rig_check_idle(&rig);
    assert_int_equal(add(&rig, 0, SEQ_WHOLE, ids, 20, &p), ERR_OK);
    run_dry(&rig);
    assert_int_equal(rig.heard[0].n_tokens, plain.heard[0].n_tokens);
    assert_memory_equal(rig.heard[0].tokens, plain.heard[0].tokens, sizeof(plain.heard[0].tokens));
    rig_close(&rig);
    rig_close(&plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_import_bounds),
        cmocka_unit_test(test_cancel_at_every_stage),
        cmocka_unit_test(test_cancel_inside_callbacks),
        cmocka_unit_test(test_end_frees_before_it_tells),
        cmocka_unit_test(test_calibrate),
        cmocka_unit_test(test_no_finite_logit_fails_the_sequence),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_pool_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
