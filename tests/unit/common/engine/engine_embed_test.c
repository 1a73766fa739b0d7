/* Goal: a text's vector is made of its own ids alone, whatever shares its steps; an encoder's text
 * runs whole; everything a sequence took comes back. Method: an engine on the fake forward pass,
 * whose vectors are a hash of the KV it finds through the block table; each is compared with one
 * made of the ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "tests/unit/common/engine/engine_rig.h"

enum { LONG = 90, TEXTS = 12 };

static struct rig rig;

static enum err add_text(uint64_t id, const int32_t *ids, int n, struct seq_embed embed,
                         struct errbuf *eb) {
    const struct seq_opts o = {.seq_id = id,
                               .kind = SEQ_EMBED,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n,
                               .priority = 5,
                               .embed = embed};
    return engine_seq_add(rig.e, &o, eb);
}

static int layers(void) {
    return model_kv_layers(engine_model(rig.e));
}

static void check_vector(uint64_t id, const int32_t *ids, int n, enum pooling pooling) {
    float want[FAKE_HIDDEN];
    fake_embed(ids, n, pooling, layers(), want);
    assert_int_equal(rig.heard[id].n_embedded, 1);
    assert_memory_equal(rig.heard[id].vector, want, sizeof(want));
}

/* Texts of many lengths and a prompt that generates, all at once. */
static void vectors_do_not_depend_on_what_shares_steps(void **state) {
    const enum pooling poolings[] = {POOL_MEAN, POOL_CLS, POOL_LAST};
    int32_t ids[TEXTS][LONG], prompt[40];
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct engine_opts o = fake_opts();
        struct sampling p = seeded(5, 9);
        fake_is_encoder = round >= 3;
        o.chunk_tokens = round % 3 == 0 ? 64 : 7;
        o.step_tokens_max = round % 3 == 1 ? 20 : 64;
        rig_open(&rig, &o);
        prompt_of(77, prompt, 40);
        if (!fake_is_encoder) assert_int_equal(add(&rig, 50, SEQ_WHOLE, prompt, 40, &p), ERR_OK);
        for (int i = 0; i < TEXTS; i++) {
            const int n = 1 + i * 8;
            prompt_of((uint64_t)i, ids[i], n < LONG ? n : LONG);
            const struct seq_embed embed = {.pooling = poolings[i % 3]};
            assert_int_equal(add_text((uint64_t)i, ids[i], n, embed, NULL), ERR_OK);
        }
        run_dry(&rig);
        for (int i = 0; i < TEXTS; i++)
            check_vector((uint64_t)i, ids[i], 1 + i * 8, poolings[i % 3]);
        struct engine_stats s;
        engine_stats(rig.e, &s);
        assert_int_equal(s.embedded, TEXTS);
        assert_int_equal(s.generated_tokens, (uint64_t)rig.heard[50].n_tokens);
        rig_close(&rig);
    }
    fake_is_encoder = false;
}

static void texts_share_a_step(void **state) {
    struct engine_opts o = fake_opts();
    int32_t ids[8];
    (void)state;
    fake_is_encoder = true;
    rig_open(&rig, &o);
    for (uint64_t i = 0; i < 8; i++) {
        prompt_of(i, ids, 8);
        assert_int_equal(add_text(i, ids, 8, (struct seq_embed){0}, NULL), ERR_OK);
    }
    assert_true(engine_step(rig.e));
    for (uint64_t i = 0; i < 8; i++) assert_int_equal(rig.heard[i].n_embedded, 1);
    assert_int_equal(fake_of(rig.e)->passes, 1);
    rig_close(&rig);
    fake_is_encoder = false;
}

/* The model's own pooling, and with scores that of their head; the pair's first text is told. */
static void scores_and_defaults(void **state) {
    struct engine_opts o = fake_opts();
    int32_t ids[LONG];
    (void)state;
    fake_is_encoder = true;
    rig_open(&rig, &o);
    prompt_of(3, ids, LONG);
    assert_int_equal(add_text(1, ids, LONG, (struct seq_embed){0}, NULL), ERR_OK);
    assert_int_equal(add_text(2, ids, 9, (struct seq_embed){.score = true, .n_first = 4}, NULL),
                     ERR_OK);
    run_dry(&rig);
    check_vector(1, ids, LONG, POOL_MEAN); /* longer than a step's 64 rows */
    check_vector(2, ids, 9, POOL_CLS);
    assert_false(rig.heard[1].scored);
    assert_true(rig.heard[2].scored);
    assert_true(rig.heard[2].scores[1] == rig.heard[2].vector[1] + 4);
    rig_close(&rig);
    fake_is_encoder = false;
}

/* A decoder's cached blocks serve the last row's vector; a mean needs every row. */
static void prefixes_serve_only_the_last_row(void **state) {
    struct engine_opts o = fake_opts();
    int32_t ids[40];
    (void)state;
    rig_open(&rig, &o);
    prompt_of(9, ids, 40);
    for (uint64_t i = 0; i < 3; i++) {
        const struct seq_embed embed = {.pooling = i == 2 ? POOL_MEAN : POOL_LAST};
        assert_int_equal(add_text(i, ids, 40, embed, NULL), ERR_OK);
        run_dry(&rig);
        assert_int_equal(rig.heard[i].n_cached, i == 1 ? 36 : 0);
        check_vector(i, ids, 40, embed.pooling);
    }
    rig_close(&rig);
}

static void refusals_name_the_reason(void **state) {
    struct engine_opts o = fake_opts();
    struct errbuf eb = {0};
    int32_t ids[300] = {0};
    struct sampling p = neutral(4);
    (void)state;
    rig_open(&rig, &o);
    assert_int_equal(add_text(1, ids, 257, (struct seq_embed){0}, &eb), ERR_TOO_LARGE);
    assert_string_equal(eb.text, "a text of 257 tokens is too long, the limit is 256");
    assert_int_equal(add_text(1, ids, 256, (struct seq_embed){0}, &eb), ERR_OK);
    assert_int_equal(add_text(1, ids, 3, (struct seq_embed){0}, &eb), ERR_CONFLICT);
    assert_int_equal(add_text(2, ids, 0, (struct seq_embed){0}, &eb), ERR_INVALID);
    assert_int_equal(add_text(2, ids, 3, (struct seq_embed){.score = true}, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "this model has no head for scores");
    assert_int_equal(add_text(2, ids, 3, (struct seq_embed){.n_first = 4}, &eb), ERR_INVALID);
    ids[2] = FAKE_VOCAB;
    assert_int_equal(add_text(2, ids, 3, (struct seq_embed){0}, &eb), ERR_INVALID);
    ids[2] = 0;
    for (uint64_t i = 2; i <= 32; i++)
        assert_int_equal(add_text(i, ids, 3, (struct seq_embed){0}, &eb), ERR_OK);
    assert_int_equal(add_text(33, ids, 3, (struct seq_embed){0}, &eb), ERR_BUSY);
    run_dry(&rig);
    rig_close(&rig);
    fake_is_encoder = true;
    rig_open(&rig, &o);
    assert_int_equal(engine_self_test(rig.e), ERR_OK);
    const struct seq_opts whole = {.seq_id = 1,
                                   .kind = SEQ_WHOLE,
                                   .ids = ids,
                                   .n_ids = 3,
                                   .n_prompt = 3,
                                   .priority = 5,
                                   .sampling = &p};
    assert_int_equal(engine_seq_add(rig.e, &whole, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "this model generates nothing: it embeds texts");
    rig_close(&rig);
    fake_is_encoder = false;
}

static void cancel_all(struct rig *r, const char *what, uint64_t id) {
    (void)what;
    if (r->hook_count++ > 0) return;
    for (uint64_t i = 0; i < 6; i++) {
        if (engine_seq_cancel(r->e, i) == ERR_OK) r->heard[i].cancelled = true;
    }
    (void)id;
}

/* Waiting, running, and inside the callback that tells one of them. */
static void cancels_give_everything_back(void **state) {
    struct engine_opts o = fake_opts();
    int32_t ids[LONG];
    (void)state;
    for (int encoder = 0; encoder < 2; encoder++) {
        fake_is_encoder = encoder == 1;
        rig_open(&rig, &o);
        prompt_of(1, ids, LONG);
        for (uint64_t i = 0; i < 6; i++)
            assert_int_equal(
                add_text(i, ids, i == 0 ? 5 : 30, (struct seq_embed){.pooling = POOL_MEAN}, NULL),
                ERR_OK);
        assert_int_equal(engine_seq_cancel(rig.e, 5), ERR_OK);
        rig.heard[5].cancelled = true;
        rig.hook = NULL;
        (void)engine_step(rig.e);
        for (uint64_t i = 6; i < 9; i++)
            assert_int_equal(add_text(i, ids, 30, (struct seq_embed){0}, NULL), ERR_OK);
        rig.hook = cancel_all;
        run_dry(&rig);
        rig_close(&rig);
    }
    fake_is_encoder = false;
}

static void what_is_not_finite_fails(void **state) {
    struct engine_opts o = fake_opts();
    int32_t ids[9] = {0};
    (void)state;
    fake_is_encoder = true;
    rig_open(&rig, &o);
    fake_of(rig.e)->all_nan = true;
    assert_int_equal(add_text(1, ids, 9, (struct seq_embed){0}, NULL), ERR_OK);
    run_dry(&rig);
    assert_true(rig.heard[1].n_failed == 1 && rig.heard[1].n_embedded == 0);
    rig_close(&rig);
    fake_is_encoder = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_do_not_depend_on_what_shares_steps),
        cmocka_unit_test(texts_share_a_step),
        cmocka_unit_test(scores_and_defaults),
        cmocka_unit_test(prefixes_serve_only_the_last_row),
        cmocka_unit_test(refusals_name_the_reason),
        cmocka_unit_test(cancels_give_everything_back),
        cmocka_unit_test(what_is_not_finite_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
