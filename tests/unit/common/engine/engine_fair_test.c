/* Goal: a tenant that came first and wants everything leaves others their share of slots, blocks
 * and rows; one alone has all slots; nothing is given that is not there. Method: the engine on the
 * fake forward pass; who is admitted when, and what everybody holds, checked after each step of
 * examples and of random crowds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/common/engine/engine_rig.h"

enum { HEAVY = 71, LIGHT = 72, THIRD = 73 };

static enum err add_of(struct rig *rig, uint64_t tenant, uint64_t id, enum seq_kind kind,
                       int n_choices, int n_new, int priority) {
    int32_t ids[6];
    struct sampling p = neutral(n_new);
    p.n_choices = n_choices;
    p.ignore_eos = true;
    prompt_of(id, ids, 6);
    const struct seq_opts o = {.seq_id = id,
                               .kind = kind,
                               .ids = ids,
                               .n_ids = 6,
                               .n_prompt = 6,
                               .sampling = &p,
                               .tenant = tenant,
                               .priority = priority};
    return engine_seq_add(rig->e, &o, NULL);
}

static void end_all(struct rig *rig) {
    for (uint64_t id = 0; id < SEQS; id++) (void)engine_seq_cancel(rig->e, id);
    (void)engine_step(rig->e);
    assert_int_equal(rig->e->n_tenants, 0);
}

/* Its batch is full of the first tenant's; the second is admitted at the next step all the same,
 * within its share, and the rows of a step stay within the batch. */
static void who_comes_later_is_admitted(void **state) {
    struct rig rig;
    struct engine_opts o = fake_opts();
    (void)state;
    o.kv_bytes = fake_pool_bytes(256, o.block_tokens, DTYPE_F32);
    rig_open(&rig, &o);
    for (uint64_t id = 0; id < 20; id++)
        assert_int_equal(add_of(&rig, HEAVY, id, SEQ_WHOLE, 1, 40, 3), ERR_OK);
    (void)engine_step(rig.e);
    assert_int_equal(rig.e->n_running, 8); /* alone: all of them, and none of the extra ones */
    for (uint64_t id = 20; id < 23; id++)
        assert_int_equal(add_of(&rig, LIGHT, id, SEQ_WHOLE, 1, 5, 3), ERR_OK);
    (void)engine_step(rig.e);
    assert_int_equal(rig.heard[20].n_admitted + rig.heard[21].n_admitted, 2); /* a quarter more */
    assert_int_equal(rig.heard[22].n_admitted, 0);
    struct engine_stats st;
    engine_stats(rig.e, &st);
    assert_int_equal(st.slots_free, 0);
    int n_before[SEQS], most = 0;
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 23; i++) n_before[i] = rig.heard[i].n_tokens;
        (void)engine_step(rig.e);
        int n = 0;
        for (int i = 0; i < 23; i++) n += rig.heard[i].n_tokens - n_before[i];
        if (n > most) most = n;
    }
    assert_true(most <= 8 + 2); /* rows that decode, and first tokens */
    for (int i = 20; i < 23; i++) assert_int_equal(rig.heard[i].n_tokens, 5);
    assert_int_equal(rig.heard[8].n_admitted, 0); /* the first tenant's ninth waits still */
    end_all(&rig);
    rig_close(&rig);
}

/* What comes free goes to who has least, whoever asked first; within a tenant by age; and a more
 * urgent one comes first, whosever it is. */
static void free_slots_go_to_who_has_least(void **state) {
    struct rig rig;
    struct engine_opts o = fake_opts();
    (void)state;
    o.batch_max = 4;
    o.kv_bytes = fake_pool_bytes(256, o.block_tokens, DTYPE_F32);
    rig_open(&rig, &o);
    assert_int_equal(add_of(&rig, HEAVY, 0, SEQ_WHOLE, 4, 40, 3), ERR_OK);
    (void)engine_step(rig.e);
    for (uint64_t id = 1; id < 5; id++)
        assert_int_equal(add_of(&rig, HEAVY, id, SEQ_WHOLE, 1, 40, 3), ERR_OK);
    for (uint64_t id = 5; id < 8; id++)
        assert_int_equal(add_of(&rig, LIGHT, id, SEQ_WHOLE, 1, 40, 3), ERR_OK);
    assert_int_equal(add_of(&rig, THIRD, 8, SEQ_WHOLE, 1, 40, 5), ERR_OK);
    assert_int_equal(add_of(&rig, HEAVY, 9, SEQ_WHOLE, 1, 40, 1), ERR_OK);
    (void)engine_step(rig.e);
    assert_int_equal(rig.heard[5].n_admitted, 1); /* the extra slot */
    assert_int_equal(engine_seq_cancel(rig.e, 0), ERR_OK);
    (void)engine_step(rig.e); /* three more */
    assert_int_equal(rig.heard[9].n_admitted, 1);
    assert_int_equal(rig.heard[1].n_admitted + rig.heard[6].n_admitted, 2); /* 1 to 1, by age */
    assert_int_equal(rig.heard[2].n_admitted + rig.heard[7].n_admitted, 0);
    end_all(&rig);
    rig_close(&rig);
}

/* Alone a tenant has all blocks but an eighth, which another finds free; what needs more than that
 * is served where nothing else of its tenant runs. */
static void an_eighth_of_the_blocks_is_left(void **state) {
    struct rig rig;
    struct engine_opts o = fake_opts();
    (void)state;
    o.batch_max = 32;
    o.kv_bytes = fake_pool_bytes(64, o.block_tokens, DTYPE_F32);
    rig_open(&rig, &o);
    int n_blocks = rig.e->n_blocks;
    for (uint64_t id = 0; id < 20; id++)
        assert_int_equal(add_of(&rig, HEAVY, id, SEQ_WHOLE, 1, 19, 3), ERR_OK); /* 6 blocks */
    (void)engine_step(rig.e);
    int held = 0;
    for (int i = 0; i < 20; i++) held += 6 * rig.heard[i].n_admitted;
    assert_true(held <= n_blocks - n_blocks / 8 && held + 6 > n_blocks - n_blocks / 8);
    assert_int_equal(add_of(&rig, LIGHT, 20, SEQ_WHOLE, 1, 19, 3), ERR_OK);
    (void)engine_step(rig.e);
    assert_int_equal(rig.heard[20].n_admitted, 1);
    end_all(&rig);
    int n_new = n_blocks * o.block_tokens - 5; /* all of them */
    assert_int_equal(add_of(&rig, HEAVY, 21, SEQ_WHOLE, 1, n_new, 3), ERR_OK);
    (void)engine_step(rig.e);
    assert_int_equal(rig.heard[21].n_admitted, 1);
    end_all(&rig);
    rig_close(&rig);
}

/* Imports are held to the same shares. */
static void imports_have_shares_too(void **state) {
    struct rig rig;
    struct engine_opts o = fake_opts();
    (void)state;
    o.kv_bytes = fake_pool_bytes(256, o.block_tokens, DTYPE_F32);
    rig_open(&rig, &o);
    for (uint64_t id = 0; id < 2; id++)
        assert_int_equal(add_of(&rig, HEAVY, id, SEQ_IMPORT, 4, 9, 3), ERR_OK);
    assert_int_equal(add_of(&rig, HEAVY, 2, SEQ_IMPORT, 1, 9, 3), ERR_BUSY);
    assert_int_equal(add_of(&rig, LIGHT, 3, SEQ_IMPORT, 2, 9, 3), ERR_OK);
    assert_int_equal(add_of(&rig, LIGHT, 4, SEQ_IMPORT, 1, 9, 3), ERR_BUSY); /* no slot at all */
    end_all(&rig);
    rig_close(&rig);
}

/* Crowds that come and go: everybody is served in the end, the counts of tenants are those of their
 * sequences at every step, and nobody waits while another has more and goes on taking. */
static void random_crowds(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rig rig;
        struct engine_opts o = fake_opts();
        uint64_t rng = seed;
        o.batch_max = 1 + (int)(fake_mix(++rng) % 12);
        o.kv_bytes = fake_pool_bytes(64 + (int)(fake_mix(++rng) % 200), o.block_tokens, DTYPE_F32);
        rig_open(&rig, &o);
        rig.e->ev.on_token = NULL; /* the rig knows one choice a sequence */
        int n = 10 + (int)(fake_mix(++rng) % 20);
        for (int step = 0, added = 0; added < n || rig.e->n_waiting + rig.e->n_running > 0;
             step++) {
            assert_true(step < 3000);
            if (added < n && fake_mix(++rng) % 2 == 0) {
                uint64_t tenant = HEAVY + fake_mix(++rng) % 3;
                int choices = 1 + (int)(fake_mix(++rng) % (uint64_t)o.batch_max);
                enum err e = add_of(&rig, tenant, (uint64_t)added, SEQ_WHOLE,
                                    choices > 4 ? 4 : choices, 1 + (int)(fake_mix(++rng) % 30), 3);
                assert_true(e == ERR_OK || e == ERR_TOO_LARGE);
                added++;
            }
            (void)engine_step(rig.e);
            assert_true(engine_slots_used(rig.e) <= rig.e->slots_max);
            int slots = 0, of[3] = {0};
            for (int i = 0; i < engine_slots_used(rig.e); i++)
                of[rig.e->slots[i]->seq->tenant->id - HEAVY]++;
            for (int b = 0; b < ENGINE_TENANT_BUCKETS; b++)
                for (const struct tenant *t = rig.e->tenants[b]; t != NULL; t = t->next) {
                    assert_int_equal(t->n_slots, of[t->id - HEAVY]);
                    assert_true(t->n_blocks >= 0 && (t->n_slots == 0) == (t->n_blocks == 0));
                    slots += t->n_slots;
                }
            assert_int_equal(slots, engine_slots_used(rig.e));
        }
        end_all(&rig);
        rig_close(&rig);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_later_is_admitted),
        cmocka_unit_test(free_slots_go_to_who_has_least),
        cmocka_unit_test(an_eighth_of_the_blocks_is_left),
        cmocka_unit_test(imports_have_shares_too),
        cmocka_unit_test(random_crowds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
