/* Goal: no order of calls, failing allocation or reading thread upsets the engine.
 * Method: 10,000 random adds, cancels, releases, imports and steps on a pair of engines, every
 * count recomputed and every token checked against the plain loop; each allocation of an open and
 * of an add fails once; a second thread reads statistics and blocks while the first steps. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/engine/fake_forward.h"

enum { LIVE = 24, IDS_MAX = 100, SEQ_MAX = 80 };

/* One request as the test sees it; the sequence in engine `at` has id slot + 1000 * age. */
struct live {
    bool used, told_end, told_admitted;
    int at; /* 0: the first engine, 1: the second, after its hand-over from the first */
    enum seq_kind kind;
    uint64_t id;
    int32_t ids[IDS_MAX], want[IDS_MAX];
    int n_ids, n_prompt, n_want, n_seen, kv_next[FAKE_LAYERS];
    enum finish want_finish;
    struct sampling p;
    bool importing;
};
struct side {
    struct world *w;
    int index;
};
struct world {
    struct engine *e[2];
    struct side side[2];
    struct live live[LIVE];
    uint64_t rng, next;
    long n_tokens, n_ends, n_handed, n_busy;
};

static int rnd_to(struct world *w, int n) {
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    return (int)((w->rng >> 33) % (uint64_t)n);
}
static struct live *live_of(const struct side *side, uint64_t id) {
    struct live *l = &side->w->live[id % 1000];
    assert_true(l->used && l->id == id);
    return l;
}

static void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct live *l = live_of(arg, id);
    assert_false(l->told_end);
    assert_true(l->n_seen < l->n_want);
    assert_int_equal(ev->id, l->want[l->n_seen]);
    assert_int_equal(ev->index, l->n_ids - l->n_prompt + l->n_seen);
    l->n_seen++;
    assert_int_equal(ev->finish, l->n_seen == l->n_want ? l->want_finish : FINISH_NONE);
    l->told_end = ev->finish != FINISH_NONE;
    l->importing = false;
    ((struct side *)arg)->w->n_tokens++;
}
static void on_admitted(void *arg, uint64_t id, int n_cached) {
    struct live *l = live_of(arg, id);
    assert_false(l->told_admitted);
    assert_true(n_cached >= 0 && n_cached < l->n_ids);
    l->told_admitted = true;
}
static void on_kv(void *arg, uint64_t id, int layer, int first, int n) {
    struct live *l = live_of(arg, id);
    assert_int_equal(l->kind, SEQ_PREFILL);
    assert_int_equal(l->kv_next[layer], first);
    l->kv_next[layer] += n;
}
static void on_failed(void *arg, uint64_t id, enum err e) {
    (void)arg;
    fail_msg("sequence %llu failed: %s", (unsigned long long)id, err_name(e));
}

static void world_open(struct world *w, int variant) {
    memset(w, 0, sizeof(*w));
    w->rng = 77 + (uint64_t)variant;
    for (int i = 0; i < 2; i++) {
        struct engine_opts o = fake_opts();
        struct errbuf eb;
        o.block_tokens = variant == 1 ? 1 : 4;
        o.seq_tokens_max = SEQ_MAX;
        o.batch_max = 4;
        o.prefill_batch_max = 2;
        o.step_tokens_max = variant == 2 ? 4 : 24;
        o.chunk_tokens = i == 0 ? 7 : 16;
        o.decode_gap_percent = i == 0 ? 150 : 0;
        o.queue_max = 6;
        o.prefix_cache = variant != 3;
        o.kv_dtype = variant % 2 == 0 ? DTYPE_F32 : DTYPE_INT8;
        o.kv_bytes = fake_pool_bytes(60 / o.block_tokens * (i + 1) + 6, o.block_tokens, o.kv_dtype);
        assert_int_equal(engine_open_with(&w->e[i], &o, &fake_ops, &eb), ERR_OK);
        w->side[i] = (struct side){w, i};
        const struct engine_events ev = {.on_token = on_token,
                                         .on_kv = on_kv,
                                         .on_admitted = on_admitted,
                                         .on_prompt_logprob = NULL,
                                         .on_failed = on_failed,
                                         .arg = &w->side[i]};
        engine_set_events(w->e[i], &ev);
    }
}

static void do_add(struct world *w, int slot) {
    struct live *l = &w->live[slot];
    memset(l, 0, sizeof(*l));
    l->kind = rnd_to(w, 2) ? SEQ_WHOLE : SEQ_PREFILL;
    l->at = l->kind == SEQ_WHOLE ? rnd_to(w, 2) : 0;
    l->n_ids = 1 + rnd_to(w, 45);
    l->n_prompt = 1 + rnd_to(w, l->n_ids);
    for (int i = 0; i < l->n_ids; i++)
        l->ids[i] = i < 12 ? rnd_to(w, 2) == 0 && i > 8 : rnd_to(w, FAKE_VOCAB);
    l->p = (struct sampling){.do_sample = rnd_to(w, 2) == 0,
                             .n_choices = 1,
                             .temperature = 0.9f,
                             .top_k = 30,
                             .top_p = 0.9f,
                             .typical_p = 1,
                             .repetition_penalty = 1.2f,
                             .seed = w->next,
                             .new_tokens_max = l->n_ids - l->n_prompt + 1 + rnd_to(w, 12),
                             .new_tokens_min = rnd_to(w, 4),
                             .lookup_tokens = rnd_to(w, 3) * 4};
    l->n_want =
        fake_expect(&l->p, l->ids, l->n_ids, l->n_prompt, SEQ_MAX, l->want, &l->want_finish);
    l->id = w->next++ * 1000 + (uint64_t)slot;
    const struct seq_opts o = {.seq_id = l->id,
                               .kind = l->kind,
                               .ids = l->ids,
                               .n_ids = (size_t)l->n_ids,
                               .n_prompt = (size_t)l->n_prompt,
                               .sampling = &l->p,
                               .priority = 1 + rnd_to(w, 5),
                               .prefix_salt = (uint64_t)(rnd_to(w, 8) == 0)};
    enum err e = engine_seq_add(w->e[l->at], &o, NULL);
    assert_true(e == ERR_OK || e == ERR_BUSY || e == ERR_TOO_LARGE);
    l->used = e == ERR_OK;
    w->n_busy += e == ERR_BUSY;
}

/* The first engine has made its token and holds the blocks: over to the second, or given up when
 * there is no room. */
static void do_hand_over(struct world *w, struct live *l) {
    const int32_t *src, *dst;
    int n_src, n_dst, held;
    if (l->told_end) {
        assert_int_equal(engine_seq_release(w->e[0], l->id), ERR_OK);
        l->used = false;
        return;
    }
    const struct seq_opts o = {.seq_id = l->id,
                               .kind = SEQ_IMPORT,
                               .ids = l->ids,
                               .n_ids = (size_t)l->n_ids,
                               .n_prompt = (size_t)l->n_prompt,
                               .sampling = &l->p,
                               .priority = 3};
    enum err e = engine_seq_add(w->e[1], &o, NULL);
    if (e == ERR_BUSY) return;
    assert_int_equal(e, ERR_OK);
    assert_int_equal(engine_seq_blocks(w->e[0], l->id, &src, &n_src, &held), ERR_OK);
    assert_int_equal(engine_seq_blocks(w->e[1], l->id, &dst, &n_dst, &held), ERR_OK);
    assert_int_equal(n_src, n_dst);
    for (int layer = 0; layer < FAKE_LAYERS; layer++) {
        assert_int_equal(l->kv_next[layer], n_src);
        for (int b = held; b < n_dst; b++)
            memcpy(engine_kv_block(w->e[1], layer, dst[b]), engine_kv_block(w->e[0], layer, src[b]),
                   engine_kv_block_bytes(w->e[0]));
    }
    assert_int_equal(engine_seq_release(w->e[0], l->id), ERR_OK);
    l->at = 1;
    l->kind = SEQ_IMPORT;
    l->importing = true;
    w->n_handed++;
}

static void do_something(struct world *w) {
    int what = rnd_to(w, 10), slot = rnd_to(w, LIVE);
    struct live *l = &w->live[slot];
    if (what < 4) {
        (void)engine_step(w->e[rnd_to(w, 2)]);
    } else if (!l->used) {
        do_add(w, slot);
    } else if (l->told_end && l->kind != SEQ_PREFILL) {
        assert_int_equal(engine_seq_cancel(w->e[l->at], l->id), ERR_NOT_FOUND);
        l->used = false;
        w->n_ends++;
    } else if (l->kind == SEQ_PREFILL && l->n_seen == 1 && what < 9) {
        do_hand_over(w, l);
    } else if (l->importing && what < 9) {
        assert_int_equal(start_one(w->e[1], l->id, l->want, 1), ERR_OK);
        l->importing = false;
    } else if (what == 9 && rnd_to(w, 4) == 0) {
        assert_int_equal(engine_seq_cancel(w->e[l->at], l->id), ERR_OK);
        l->used = false;
    }
}

static void check_counts(const struct world *w) {
    for (int i = 0; i < 2; i++) {
        struct engine_stats s;
        engine_stats(w->e[i], &s);
        int n = 0;
        for (int k = 0; k < LIVE; k++) {
            const struct live *l = &w->live[k];
            n += l->used && l->at == i && (!l->told_end || l->kind == SEQ_PREFILL);
        }
        assert_int_equal(s.waiting + s.running + s.importing + s.held, n);
        assert_int_equal(s.slots_free, s.slots_total - s.running - s.importing);
        assert_true(s.blocks_free >= 0 && s.blocks_free <= s.blocks_total);
        assert_true(kv_cache_check(w->e[i]->kv));
    }
}

static void test_random_operations(void **state) {
    (void)state;
    static struct world w;
    for (int variant = 0; variant < 4; variant++) {
        world_open(&w, variant);
        for (int k = 0; k < 10000; k++) {
            do_something(&w);
            check_counts(&w);
        }
        assert_true(w.n_ends > 100 && w.n_handed > 50 && w.n_tokens > 1000 && w.n_busy > 0);
        for (int k = 0; k < LIVE; k++)
            if (w.live[k].used && (!w.live[k].told_end || w.live[k].kind == SEQ_PREFILL))
                assert_int_equal(engine_seq_cancel(w.e[w.live[k].at], w.live[k].id), ERR_OK);
        for (int i = 0; i < 2; i++) {
            struct engine_stats s;
            engine_stats(w.e[i], &s);
            assert_true(s.slots_free == s.slots_total && s.blocks_free == s.blocks_total);
            assert_false(engine_step(w.e[i]));
            engine_close(&w.e[i]);
        }
    }
}

/* Closing with sequences in every state leaks nothing (the address sanitizer watches). */
static void test_close_with_live_sequences(void **state) {
    (void)state;
    static struct world w;
    world_open(&w, 0);
    for (int k = 0; k < 500; k++) do_something(&w);
    for (int i = 0; i < 2; i++) engine_close(&w.e[i]);
}

static void test_nth_allocation_fails(void **state) {
    (void)state;
#if OWN_MALLOC
    struct engine_opts o = fake_opts();
    struct engine *e = NULL;
    struct errbuf eb;
    int n = 0;
    for (;; n++) {
        alloc_fault_after(n);
        enum err err = engine_open_with(&e, &o, &fake_ops, &eb);
        if (!alloc_fault_end()) break;
        /* fopen of /proc may fail too: then the memory is only unknown */
        if (err == ERR_OK)
            engine_close(&e);
        else
            assert_int_equal(err, ERR_NO_MEMORY);
        assert_null(e);
    }
    assert_true(n > 15);
    int32_t ids[5] = {1, 2, 3, 4, 5}, stop[2] = {90, 91};
    struct logit_bias bias = {3, 1.0f};
    struct sampling p = {.temperature = 1,
                         .n_choices = 1,
                         .top_p = 1,
                         .typical_p = 1,
                         .repetition_penalty = 1,
                         .new_tokens_max = 9,
                         .stop_token_ids = stop,
                         .n_stop_token_ids = 2,
                         .logit_bias = &bias,
                         .n_logit_bias = 1};
    struct engine_stats before, after;
    engine_stats(e, &before);
    for (int kind = 0; kind < 3; kind++)
        for (n = 0;; n++) {
            struct seq_opts so = {.seq_id = 1,
                                  .kind = (enum seq_kind)kind,
                                  .ids = ids,
                                  .n_ids = 5,
                                  .n_prompt = 5,
                                  .sampling = &p,
                                  .priority = 5};
            alloc_fault_after(n);
            enum err err = engine_seq_add(e, &so, NULL);
            if (!alloc_fault_end()) {
                assert_int_equal(err, ERR_OK);
                assert_int_equal(n, 7);
                assert_int_equal(engine_seq_cancel(e, 1), ERR_OK);
                break;
            }
            assert_int_equal(err, ERR_NO_MEMORY);
            engine_stats(e, &after);
            assert_true(after.blocks_free == before.blocks_free && after.waiting == 0 &&
                        after.slots_free == after.slots_total);
            assert_int_equal(engine_seq_cancel(e, 1), ERR_NOT_FOUND);
        }
    engine_close(&e);
#else
    print_message("skipped: a sanitizer owns malloc in this build\n");
    skip();
#endif
}

static void test_steps_allocate_nothing(void **state) {
    (void)state;
#if OWN_MALLOC
    static struct world w;
    world_open(&w, 0);
    for (int i = 0; i < 2; i++) {
        const struct engine_events none = {0};
        engine_set_events(w.e[i], &none);
    }
    for (int k = 0; k < 10; k++) do_add(&w, k);
    long taken = allocs_taken;
    for (int i = 0; i < 2; i++)
        while (engine_step(w.e[i])) {}
    assert_int_equal(allocs_taken, taken);
    for (int i = 0; i < 2; i++) engine_close(&w.e[i]);
#else
    print_message("skipped: a sanitizer owns malloc in this build\n");
    skip();
#endif
}

/* A thread that asks what any thread may ask while the engine works; the thread sanitizer watches.
 * It reads a block once the engine has said that the block is final. */
struct reader {
    struct engine *e;
    atomic_bool stop, torn;
    atomic_int final_block; /* + 1; 0: none yet */
    long n_reads, n_blocks;
};
static void *reader_main(void *arg) {
    struct reader *r = arg;
    uint64_t steps = 0;
    while (!atomic_load(&r->stop)) {
        struct engine_stats s;
        engine_stats(r->e, &s);
        if (s.steps < steps || s.slots_free + s.running + s.importing != s.slots_total)
            atomic_store(&r->torn, true);
        steps = s.steps;
        (void)engine_model(r->e);
        int block = atomic_exchange(&r->final_block, 0);
        if (block > 0) {
            const uint8_t *p = engine_kv_block(r->e, 0, block - 1);
            uint8_t x = 0;
            for (size_t i = 0; i < engine_kv_block_bytes(r->e); i++) x ^= p[i];
            r->n_blocks += 1 + (x & 0);
        }
        r->n_reads++;
    }
    return NULL;
}
static void reader_on_kv(void *arg, uint64_t id, int layer, int first, int n) {
    struct reader *r = arg;
    const int32_t *table;
    int n_blocks, held;
    if (layer != 0) return;
    assert_int_equal(engine_seq_blocks(r->e, id, &table, &n_blocks, &held), ERR_OK);
    assert_true(first + n <= n_blocks);
    atomic_store(&r->final_block, table[first] + 1);
    while (atomic_load(&r->final_block) != 0) {} /* the block is ours until it has been read */
}
static void test_reading_thread(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct reader r = {0};
    struct errbuf eb;
    pthread_t thread;
    assert_int_equal(engine_open_with(&r.e, &o, &fake_ops, &eb), ERR_OK);
    const struct engine_events ev = {.on_kv = reader_on_kv, .arg = &r};
    engine_set_events(r.e, &ev);
    assert_int_equal(pthread_create(&thread, NULL, reader_main, &r), 0);
    struct sampling p = {.temperature = 1,
                         .top_p = 1,
                         .typical_p = 1,
                         .repetition_penalty = 1,
                         .new_tokens_max = 3,
                         .n_choices = 1};
    for (uint64_t k = 0; k < 60; k++) {
        int32_t ids[30];
        for (int i = 0; i < 30; i++) ids[i] = (int32_t)((k * 31 + (uint64_t)i * 7) % FAKE_VOCAB);
        struct seq_opts so = {.seq_id = k,
                              .kind = SEQ_PREFILL,
                              .ids = ids,
                              .n_ids = 30,
                              .n_prompt = 30,
                              .sampling = &p,
                              .priority = 5};
        assert_int_equal(engine_seq_add(r.e, &so, NULL), ERR_OK);
        while (engine_step(r.e)) {}
        assert_int_equal(engine_seq_release(r.e, k), ERR_OK);
    }
    atomic_store(&r.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(atomic_load(&r.torn));
    assert_true(r.n_reads > 0 && r.n_blocks >= 60);
    engine_close(&r.e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_close_with_live_sequences),
        cmocka_unit_test(test_nth_allocation_fails),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_reading_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
