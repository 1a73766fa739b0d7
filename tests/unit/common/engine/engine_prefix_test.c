/* Goal:   a sequence that has moved is computed from where it was left: what one engine's prefix
 * cache lends and another's keeps is found there like a prefix of its own, and gives the same
 * tokens; what cannot be lent or kept is refused and holds nothing.
 * Method: the engine on the fake forward pass, whose tokens betray a wrong block; blocks of 4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/common/engine/engine_rig.h"

enum { BT = 4, PROMPT = 18, MADE = 9, NEXT = 20 };

static int table_of(struct rig *r, uint64_t id, const int32_t **table, int *n_held) {
    int n;
    assert_int_equal(engine_seq_blocks(r->e, id, table, &n, n_held), ERR_OK);
    return n;
}

/* Copies what `to` lacks, of the blocks that both have; returns how many both have. */
static int carry(struct rig *from, uint64_t from_id, struct rig *to, uint64_t to_id) {
    const int32_t *src, *dst;
    int held, ignored;
    int n = table_of(from, from_id, &src, &ignored), n_to = table_of(to, to_id, &dst, &held);
    if (n > n_to) n = n_to;
    for (int layer = 0; layer < FAKE_LAYERS; layer++)
        for (int b = held; b < n; b++)
            memcpy(engine_kv_block(to->e, layer, dst[b]), engine_kv_block(from->e, layer, src[b]),
                   engine_kv_block_bytes(to->e));
    return n;
}

static enum err add_moved(struct rig *r, uint64_t id, enum seq_kind kind, const int32_t *ids,
                          size_t n_ids, const struct sampling *p, uint64_t salt) {
    struct errbuf eb = {0};
    const struct seq_opts o = {.seq_id = id,
                               .kind = kind,
                               .ids = ids,
                               .n_ids = n_ids,
                               .n_prompt = PROMPT,
                               .sampling = p,
                               .priority = 5,
                               .prefix_salt = salt};
    return engine_seq_add(r->e, &o, &eb);
}

/* old made MADE tokens of the prompt; fresh goes on behind them and computes less than two blocks.
 */
static void test_a_moved_sequence_goes_on(void **state) {
    (void)state;
    for (int known = 0; known < 2; known++) { /* 1: fresh knows the prompt already */
        struct engine_opts o = fake_opts();
        o.prefix_cache = true;
        struct rig old, fresh;
        rig_open(&old, &o);
        rig_open(&fresh, &o);
        int32_t ids[64];
        struct sampling first = seeded(5, MADE), whole = seeded(5, NEXT);
        first.ignore_eos = whole.ignore_eos = true;
        prompt_of(5, ids, PROMPT);
        assert_int_equal(add(&old, 0, SEQ_WHOLE, ids, PROMPT, &first), ERR_OK);
        run_dry(&old);
        memcpy(ids + PROMPT, old.heard[0].tokens, MADE * sizeof(*ids));
        if (known) {
            assert_int_equal(add(&fresh, 0, SEQ_WHOLE, ids, PROMPT, &first), ERR_OK);
            run_dry(&fresh);
        }
        const int n_full = (PROMPT + MADE - 1) / BT;
        const struct engine_stats was = stats_of(&fresh), old_was = stats_of(&old);
        assert_int_equal(add_moved(&old, 1, SEQ_LEND, ids, PROMPT + MADE, &whole, 0), ERR_OK);
        assert_int_equal(add_moved(&fresh, 1, SEQ_FETCH, ids, PROMPT + MADE, &whole, 0), ERR_OK);
        const int32_t *table;
        int held;
        assert_int_equal(table_of(&fresh, 1, &table, &held), n_full);
        assert_int_equal(held, known ? (PROMPT + MADE - 1) / BT : 0);
        assert_int_equal(carry(&old, 1, &fresh, 1), n_full);
        assert_int_equal(stats_of(&fresh).running + stats_of(&fresh).importing, 0);
        assert_int_equal(engine_seq_keep(fresh.e, 1, n_full), ERR_OK);
        assert_int_equal(engine_seq_keep(fresh.e, 1, n_full), ERR_NOT_FOUND);
        assert_int_equal(engine_seq_keep(old.e, 1, n_full), ERR_CONFLICT);
        assert_int_equal(engine_seq_cancel(old.e, 1), ERR_OK);
        assert_int_equal(stats_of(&old).blocks_free, old_was.blocks_free);
        assert_int_equal(stats_of(&fresh).blocks_free, was.blocks_free);
        const int rows = fake_of(fresh.e)->rows_run;
        assert_int_equal(add_moved(&fresh, 2, SEQ_PREFILL, ids, PROMPT + MADE, &whole, 0), ERR_OK);
        run_dry(&fresh);
        assert_int_equal(fresh.heard[2].n_cached, n_full * BT);
        assert_int_equal(fake_of(fresh.e)->rows_run - rows, PROMPT + MADE - n_full * BT);
        assert_int_equal(fresh.heard[2].n_tokens, 1);
        assert_int_equal(fresh.heard[2].last.index, MADE);
        assert_int_equal(engine_seq_release(fresh.e, 2), ERR_OK);
        /* the same token as an engine that was never left */
        assert_int_equal(add(&old, 3, SEQ_WHOLE, ids, PROMPT, &whole), ERR_OK);
        run_dry(&old);
        assert_int_equal(fresh.heard[2].tokens[0], old.heard[3].tokens[MADE]);
        rig_close(&old);
        rig_close(&fresh);
    }
}

static void test_what_cannot_be_carried(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.prefix_cache = true;
    struct rig r;
    rig_open(&r, &o);
    int32_t ids[64], other[64];
    struct sampling p = neutral(NEXT);
    prompt_of(5, ids, 40);
    prompt_of(6, other, 40);
    assert_int_equal(add(&r, 0, SEQ_WHOLE, ids, PROMPT, &p), ERR_OK);
    run_dry(&r);
    const struct engine_stats was = stats_of(&r);
    assert_int_equal(add_moved(&r, 1, SEQ_LEND, other, PROMPT, &p, 0), ERR_NOT_FOUND);
    assert_int_equal(add_moved(&r, 1, SEQ_LEND, ids, PROMPT, &p, 9), ERR_NOT_FOUND); /* another's */
    other[0] = ids[0];
    assert_int_equal(add_moved(&r, 1, SEQ_LEND, other, PROMPT, &p, 0), ERR_NOT_FOUND);
    struct seq_opts tiny = {.seq_id = 1,
                            .kind = SEQ_FETCH,
                            .ids = ids,
                            .n_ids = BT, /* no full block before the last one */
                            .n_prompt = BT,
                            .sampling = &p,
                            .priority = 5};
    struct errbuf eb = {0};
    assert_int_equal(engine_seq_add(r.e, &tiny, &eb), ERR_NOT_FOUND);
    assert_string_equal(eb.text, "4 tokens have no full block of 4");
    assert_int_equal(stats_of(&r).blocks_free, was.blocks_free);
    /* fewer blocks came than were asked for: those are kept */
    assert_int_equal(add_moved(&r, 2, SEQ_FETCH, other, 24, &p, 9), ERR_OK);
    assert_int_equal(stats_of(&r).held, 1);
    assert_int_equal(engine_seq_keep(r.e, 2, 2), ERR_OK);
    assert_int_equal(stats_of(&r).held, 0);
    assert_int_equal(add_moved(&r, 3, SEQ_LEND, other, 24, &p, 9), ERR_OK);
    const int32_t *table;
    int held;
    assert_int_equal(table_of(&r, 3, &table, &held), 2);
    assert_int_equal(engine_seq_release(r.e, 3), ERR_CONFLICT);
    assert_int_equal(engine_seq_cancel(r.e, 3), ERR_OK);
    /* given up: nothing of it is found */
    assert_int_equal(add_moved(&r, 4, SEQ_FETCH, other, 24, &p, 7), ERR_OK);
    assert_int_equal(engine_seq_cancel(r.e, 4), ERR_OK);
    assert_int_equal(add_moved(&r, 5, SEQ_LEND, other, 24, &p, 7), ERR_NOT_FOUND);
    assert_int_equal(stats_of(&r).blocks_free, was.blocks_free);
    rig_close(&r);
    o.prefix_cache = false;
    rig_open(&r, &o);
    assert_int_equal(add_moved(&r, 1, SEQ_FETCH, ids, PROMPT, &p, 0), ERR_NOT_FOUND);
    rig_close(&r);
}

/* A pool that is full of running sequences has no room for what is fetched. */
static void test_no_room(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.prefix_cache = true;
    struct rig r;
    rig_open(&r, &o);
    int32_t ids[256];
    struct sampling p = neutral(NEXT);
    prompt_of(5, ids, 200);
    uint64_t id = 0;
    enum err e = ERR_OK;
    while (id < 200 && e == ERR_OK) {
        prompt_of(id + 10, ids, 30);
        e = add_moved(&r, id++, SEQ_FETCH, ids, 30, &p, 0);
    }
    assert_int_equal(e, ERR_BUSY);
    assert_true(stats_of(&r).blocks_free < 10);
    for (uint64_t i = 0; i + 1 < id; i++) assert_int_equal(engine_seq_cancel(r.e, i), ERR_OK);
    assert_int_equal(stats_of(&r).blocks_free, stats_of(&r).blocks_total);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_moved_sequence_goes_on),
        cmocka_unit_test(test_what_cannot_be_carried),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
