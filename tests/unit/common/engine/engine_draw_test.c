/* Goal: no sequence of a step waits for the draw of another one that takes long, and what is drawn
 * ahead is what would have been drawn in turn, or nothing where its sequence has ended meanwhile.
 * Method: a guide, typical_p and log-probabilities beside greedy decoding and top_k on the fake
 * forward pass; the order in which masks are made and tokens told; callbacks that cancel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/common/engine/engine_rig.h"

enum { GUIDED = 1, TYPICAL, LOGPROBS, GREEDY, TOP_K, LAST = TOP_K, PROMPT = 8, TOKENS_EACH = 12 };

/* The guide allows all but what ends a text, so the tokens of that one are not those of
 * fake_expect(). What a step did, in order: a sequence told its token, 0: a mask was made. */
static int done[64], n_done;

static void *free_fork(const void *state) {
    (void)state;
    return malloc(1);
}
static bool free_mask(void *state, uint64_t *bits, int n_ids) {
    (void)state;
    for (int i = 0; i * 64 < n_ids; i++) bits[i] = UINT64_MAX;
    done[n_done++] = 0;
    return true;
}
static bool free_advance(void *state, int32_t id) {
    (void)state;
    (void)id;
    return true;
}
static const struct token_guide_ops free_ops = {
    .fork = free_fork, .mask = free_mask, .advance = free_advance, .free = free};

static uint64_t cancels, when; /* the sequence that a callback of another one ends; 0: none */

static void told(struct rig *rig, const char *what, uint64_t id) {
    if (strcmp(what, "token") != 0) return;
    done[n_done++] = (int)id;
    if (cancels == 0 || when != id || rig->heard[cancels].cancelled) return;
    rig->heard[cancels].cancelled = true;
    assert_int_equal(engine_seq_cancel(rig->e, cancels), ERR_OK);
}

static void add_all(struct rig *rig, struct sampling p[LAST + 1], int32_t ids[LAST + 1][PROMPT]) {
    static char state;
    for (int id = 1; id <= LAST; id++) {
        p[id] = neutral(TOKENS_EACH);
        p[id].do_sample = id != GREEDY;
        p[id].seed = (uint64_t)id;
        p[id].ignore_eos = true;
        prompt_of((uint64_t)id, ids[id], PROMPT);
    }
    p[TYPICAL].typical_p = 0.7f;
    p[LOGPROBS].logprobs = true;
    p[TOP_K].top_k = 9;
    for (int id = 1; id <= LAST; id++) {
        const struct seq_opts o = {.seq_id = (uint64_t)id,
                                   .kind = SEQ_WHOLE,
                                   .ids = ids[id],
                                   .n_ids = PROMPT,
                                   .n_prompt = PROMPT,
                                   .sampling = &p[id],
                                   .priority = 5,
                                   .guide = {id == GUIDED ? &free_ops : NULL, &state}};
        assert_int_equal(engine_seq_add(rig->e, &o, NULL), ERR_OK);
    }
}

static int place_of(int what) {
    int i = 0;
    while (i < n_done && done[i] != what) i++;
    return i;
}

static void quick_draws_are_told_first(void **state) {
    struct rig rig;
    const struct engine_opts o = fake_opts();
    struct sampling p[LAST + 1];
    int32_t ids[LAST + 1][PROMPT];
    int whole = 0;
    (void)state;
    cancels = 0;
    rig_open(&rig, &o);
    rig.hook = told;
    add_all(&rig, p, ids);
    do {
        n_done = 0;
        if (!engine_step(rig.e)) break;
        if (n_done != LAST + 1) continue; /* the first ones, while prompts are not complete */
        whole++;
        for (int quick = GREEDY; quick <= TOP_K; quick++) {
            assert_true(place_of(quick) < place_of(0));
            for (int slow = GUIDED; slow <= LOGPROBS; slow++)
                assert_true(place_of(quick) < place_of(slow));
        }
        for (int slow = GUIDED; slow <= LOGPROBS; slow++) assert_true(place_of(0) < place_of(slow));
    } while (true);
    assert_true(whole >= TOKENS_EACH - 1);
    assert_true(rig.e->fwd->each_run >= TOKENS_EACH - 1);
    for (int id = TYPICAL; id <= LAST; id++)
        check_tokens(&rig.heard[id], &p[id], ids[id], PROMPT, PROMPT, o.seq_tokens_max);
    rig_close(&rig);
}

/* By a token told before the draws ahead, by one that was drawn with it, and by itself. */
static void what_is_cancelled_is_not_told(void **state) {
    static const int pairs[][2] = {{GREEDY, TYPICAL}, {GUIDED, TYPICAL},  {GUIDED, LOGPROBS},
                                   {TOP_K, GUIDED},   {TYPICAL, TYPICAL}, {LOGPROBS, GREEDY}};
    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct rig rig;
        const struct engine_opts o = fake_opts();
        struct sampling p[LAST + 1];
        int32_t ids[LAST + 1][PROMPT];
        rig_open(&rig, &o);
        add_all(&rig, p, ids);
        for (int step = 0; step < 5; step++) assert_true(engine_step(rig.e));
        when = (uint64_t)pairs[i][0];
        cancels = (uint64_t)pairs[i][1];
        n_done = 0;
        rig.hook = told; /* which fails where a cancelled one is heard of */
        assert_true(engine_step(rig.e));
        rig.hook = NULL;
        assert_true(rig.heard[cancels].cancelled);
        run_dry(&rig);
        for (int id = TYPICAL; id <= LAST; id++)
            if (!rig.heard[id].cancelled)
                check_tokens(&rig.heard[id], &p[id], ids[id], PROMPT, PROMPT, o.seq_tokens_max);
        rig_close(&rig);
    }
}

/* The same requests with the draws in turn. */
static void one_thread_draws_the_same(void **state) {
    struct rig rig;
    struct engine_opts o = fake_opts();
    struct sampling p[LAST + 1];
    int32_t ids[LAST + 1][PROMPT];
    (void)state;
    o.n_threads = 1;
    n_done = 0;
    rig_open(&rig, &o);
    add_all(&rig, p, ids);
    while (engine_step(rig.e)) n_done = 0;
    assert_int_equal(rig.e->fwd->each_run, 0);
    for (int id = TYPICAL; id <= LAST; id++)
        check_tokens(&rig.heard[id], &p[id], ids[id], PROMPT, PROMPT, o.seq_tokens_max);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quick_draws_are_told_first),
        cmocka_unit_test(what_is_cancelled_is_not_told),
        cmocka_unit_test(one_thread_draws_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
