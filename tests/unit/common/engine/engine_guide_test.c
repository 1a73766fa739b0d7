/* Goal: the engine obeys a guide to the letter: only tokens of the mask, each choice in a state of
 * its own, moved over ids that were generated before, ended cleanly where nothing may follow, and
 * every state given back. Method: a guide that spells a fixed word of ids and counts its states, on
 * the fake forward pass, in every kind of sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/common/engine/engine_rig.h"

enum { WORD = 5 };
static const int32_t word[WORD] = {3, 90, 17, 17, 64};

/* Allows word[0], word[1], .. in turn, then EOS alone (or nothing: `mute`). */
struct speller {
    int at, *n_alive;
    bool dead, mute;
};

static void *spell_fork(const void *state) {
    struct speller *s = malloc(sizeof(*s));
    assert_non_null(s);
    *s = *(const struct speller *)state;
    (*s->n_alive)++;
    return s;
}

static bool spell_mask(void *state, uint64_t *bits, int n_ids) {
    const struct speller *s = state;
    int32_t id = s->at < WORD ? word[s->at] : FAKE_EOS;
    assert_int_equal(n_ids, FAKE_VOCAB);
    bits[0] = bits[1] = 0;
    if (s->dead || s->at > WORD || (s->at == WORD && s->mute)) return false;
    bits[id >> 6] |= UINT64_C(1) << (id & 63);
    return true;
}

static bool spell_advance(void *state, int32_t id) {
    struct speller *s = state;
    s->dead |= s->at > WORD || id != (s->at < WORD ? word[s->at] : FAKE_EOS);
    s->at++;
    return !s->dead;
}

static void spell_free(void *state) {
    struct speller *s = state;
    if (s == NULL) return;
    (*s->n_alive)--;
    free(s);
}

static const struct token_guide_ops spell_ops = {
    .fork = spell_fork, .mask = spell_mask, .advance = spell_advance, .free = spell_free};

static void add_guided(struct rig *rig, uint64_t id, enum seq_kind kind, const int32_t *ids,
                       size_t n, size_t n_prompt, const struct sampling *p, struct speller *s) {
    const struct seq_opts o = {
        .seq_id = id,
        .kind = kind,
        .ids = ids,
        .n_ids = n,
        .n_prompt = n_prompt,
        .sampling = p,
        .priority = 5,
        .guide = {&spell_ops, s},
    };
    assert_int_equal(engine_seq_add(rig->e, &o, NULL), ERR_OK);
}

static void check_word(const struct heard *h, int from) {
    assert_int_equal(h->n_tokens, WORD + 1 - from);
    for (int i = from; i < WORD; i++) assert_int_equal(h->tokens[i - from], word[i]);
    assert_int_equal(h->tokens[WORD - from], FAKE_EOS);
    assert_int_equal(h->finish, FINISH_EOS);
    assert_int_equal(h->n_failed, 0);
}

static void a_word_is_spelt(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    int n_alive = 0;
    struct speller s = {.n_alive = &n_alive}, mute = {.n_alive = &n_alive, .mute = true};
    int32_t ids[16];
    rig_open(&rig, &o);
    prompt_of(1, ids, 8);
    struct sampling greedy = neutral(20), drawn = seeded(4, 20), stubborn = neutral(20);
    stubborn.ignore_eos = true;
    stubborn.new_tokens_min = 15;
    add_guided(&rig, 1, SEQ_WHOLE, ids, 8, 8, &greedy, &s);
    add_guided(&rig, 2, SEQ_WHOLE, ids, 8, 8, &drawn, &s);
    add_guided(&rig, 3, SEQ_WHOLE, ids, 8, 8, &stubborn, &s);
    add_guided(&rig, 4, SEQ_WHOLE, ids, 8, 8, &greedy, &mute);
    run_dry(&rig);
    for (uint64_t id = 1; id <= 4; id++) check_word(&rig.heard[id], 0);
    assert_int_equal(n_alive, 0);
    rig_close(&rig);
}

static void generated_ids_move_it(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    int n_alive = 0;
    struct speller s = {.n_alive = &n_alive};
    int32_t ids[16];
    struct sampling p = neutral(20);
    rig_open(&rig, &o);
    prompt_of(2, ids, 8);
    ids[8] = word[0];
    ids[9] = word[1];
    add_guided(&rig, 1, SEQ_WHOLE, ids, 10, 8, &p, &s);
    run_dry(&rig);
    check_word(&rig.heard[1], 2);
    ids[9] = word[1] + 1; /* no beginning of the word: dead, ends at once */
    add_guided(&rig, 2, SEQ_WHOLE, ids, 10, 8, &p, &s);
    run_dry(&rig);
    assert_int_equal(rig.heard[2].n_tokens, 1);
    assert_int_equal(rig.heard[2].finish, FINISH_EOS);
    assert_int_equal(n_alive, 0);
    rig_close(&rig);
}

static void a_prefill_draws_the_first_and_a_cancel_frees(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    int n_alive = 0;
    struct speller s = {.n_alive = &n_alive};
    int32_t ids[8];
    struct sampling p = neutral(20);
    rig_open(&rig, &o);
    prompt_of(3, ids, 8);
    add_guided(&rig, 1, SEQ_PREFILL, ids, 8, 8, &p, &s);
    run_dry(&rig);
    assert_int_equal(rig.heard[1].n_tokens, 1);
    assert_int_equal(rig.heard[1].tokens[0], word[0]);
    assert_int_equal(engine_seq_release(rig.e, 1), ERR_OK);
    add_guided(&rig, 2, SEQ_WHOLE, ids, 8, 8, &p, &s);
    assert_true(engine_step(rig.e));
    assert_int_equal(n_alive, 1);
    assert_int_equal(engine_seq_cancel(rig.e, 2), ERR_OK);
    assert_int_equal(n_alive, 0);
    rig_close(&rig);
}

/* The ear of the rig takes an end for the last word; with two choices it is not. */
static void forgive_end(struct rig *rig, const char *what, uint64_t id) {
    (void)what;
    rig->heard[id].finish = FINISH_NONE;
}

static void choices_go_their_own_way(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig rig;
    int n_alive = 0;
    struct speller s = {.n_alive = &n_alive};
    int32_t ids[8];
    struct sampling p = neutral(20);
    p.n_choices = 2;
    rig_open(&rig, &o);
    prompt_of(4, ids, 8);
    add_guided(&rig, 1, SEQ_WHOLE, ids, 8, 8, &p, &s);
    assert_int_equal(n_alive, 2);
    rig.hook = forgive_end;
    run_dry(&rig);
    assert_int_equal(n_alive, 0);
    assert_int_equal(rig.heard[1].n_tokens, 2 * (WORD + 1));
    for (int i = 0; i < WORD; i++) {
        assert_int_equal(rig.heard[1].tokens[2 * i], word[i]);
        assert_int_equal(rig.heard[1].tokens[2 * i + 1], word[i]);
    }
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_is_spelt),
        cmocka_unit_test(generated_ids_move_it),
        cmocka_unit_test(a_prefill_draws_the_first_and_a_cancel_frees),
        cmocka_unit_test(choices_go_their_own_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
