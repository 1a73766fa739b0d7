/* Goal: guesses by prompt lookup change the number of steps and nothing else: tokens, finishes,
 * log-probabilities, prefix cache, blocks and slots are those of an engine that never guesses.
 * Method: a pair of engines on the fake forward pass, whose logits give away every wrong block,
 * position or overwritten cell. Both get the same requests, one without guesses; every event is
 * compared. Only a few ids are allowed, so that many guesses come true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/common/engine/engine_rig.h"

enum { N_SEQS = 12, N_CHOICES = 3, EVENTS = 160, IDS = 64 };

struct told {
    int n, n_more;
    struct token_event ev[EVENTS];
    bool open; /* the last event said that more of its step follow */
};
struct ear {
    struct engine *e;
    struct told told[N_SEQS][N_CHOICES];
    int n_failed, cancel_at; /* every sequence, at its token of this index; 0: never */
};

static uint64_t rng;
static int rnd_to(int n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (int)((rng >> 33) % (uint64_t)n);
}

static void hear_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct ear *ear = arg;
    struct told *t = &ear->told[id][ev->choice];
    assert_true(t->n < EVENTS);
    if (t->open) assert_int_equal(ev->step_us, 0); /* of the step of the one before */
    t->open = ev->more;
    t->n_more += ev->more;
    assert_false(ev->more && ev->finish != FINISH_NONE);
    t->ev[t->n++] = *ev;
    if (ear->cancel_at > 0 && ev->index == ear->cancel_at && ev->finish == FINISH_NONE)
        assert_int_equal(engine_seq_cancel(ear->e, id), ERR_OK);
}
static void hear_failed(void *arg, uint64_t id, enum err e) {
    (void)id, (void)e;
    ((struct ear *)arg)->n_failed++;
}

static void ear_open(struct ear *ear, const struct engine_opts *o) {
    struct errbuf eb = {0};
    memset(ear, 0, sizeof(*ear));
    assert_int_equal(engine_open_with(&ear->e, o, &fake_ops, &eb), ERR_OK);
    const struct engine_events ev = {.on_token = hear_token, .on_failed = hear_failed, .arg = ear};
    engine_set_events(ear->e, &ev);
}
static struct engine_stats ear_stats(const struct ear *ear) {
    struct engine_stats s;
    engine_stats(ear->e, &s);
    return s;
}
static void ear_run(struct ear *ear) {
    while (engine_step(ear->e)) assert_true(kv_cache_check(ear->e->kv));
}
static void ear_close(struct ear *ear) {
    struct engine_stats s = ear_stats(ear);
    assert_true(s.slots_free == s.slots_total && s.blocks_free == s.blocks_total);
    assert_int_equal(ear->n_failed, 0);
    engine_close(&ear->e);
}

static void same_event(const struct token_event *a, const struct token_event *b) {
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->index, b->index);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(&a->logprob, &b->logprob, sizeof(a->logprob));
    assert_int_equal(a->n_top, b->n_top);
    assert_memory_equal(a->top, b->top, (size_t)a->n_top * sizeof(a->top[0]));
}
static void same_told(const struct ear *a, const struct ear *b) {
    for (int i = 0; i < N_SEQS; i++)
        for (int c = 0; c < N_CHOICES; c++) {
            assert_int_equal(a->told[i][c].n, b->told[i][c].n);
            for (int k = 0; k < a->told[i][c].n; k++)
                same_event(&a->told[i][c].ev[k], &b->told[i][c].ev[k]);
            assert_false(b->told[i][c].open && b->cancel_at == 0);
        }
}

struct ask {
    struct sampling p;
    int32_t ids[IDS], allowed[4], stop[1], bad[3];
    struct logit_bias bias;
    int n_ids, n_prompt;
};

/* A request for few different ids, with every parameter that looks at position or history. */
static void ask_any(struct ask *a, int ids_max) {
    memset(a, 0, sizeof(*a));
    int n_allowed = 1 + rnd_to(3);
    a->p = rnd_to(2) ? neutral(1) : seeded((uint64_t)rng, 1);
    a->n_ids = 1 + rnd_to(ids_max);
    a->n_prompt = 1 + rnd_to(a->n_ids);
    for (int i = 0; i < n_allowed; i++) a->allowed[i] = 20 + i;
    for (int i = 0; i < a->n_ids; i++) a->ids[i] = a->allowed[rnd_to(n_allowed)];
    a->p.allowed_ids = a->allowed;
    a->p.n_allowed_ids = (size_t)n_allowed;
    a->p.new_tokens_max = a->n_ids - a->n_prompt + 1 + rnd_to(90);
    a->p.ignore_eos = rnd_to(4) != 0;
    a->p.new_tokens_min = rnd_to(40);
    if (rnd_to(2)) {
        a->p.repetition_penalty = 1.3f;
        a->p.frequency_penalty = 0.05f;
        a->p.presence_penalty = -0.2f;
    }
    if (rnd_to(2)) {
        a->bias = (struct logit_bias){21, 1.5f};
        a->p.logit_bias = &a->bias;
        a->p.n_logit_bias = 1;
    }
    if (rnd_to(4) == 0) {
        a->stop[0] = 22;
        a->p.stop_token_ids = a->stop;
        a->p.n_stop_token_ids = 1;
    }
    if (rnd_to(3) == 0 && n_allowed > 1) { /* 20 20 never */
        a->bad[0] = 2;
        a->bad[1] = a->bad[2] = 20;
        a->p.bad_words = a->bad;
        a->p.n_bad_words = 3;
    }
    a->p.logprobs = rnd_to(2) == 0;
    a->p.top_logprobs = a->p.logprobs ? rnd_to(4) : 0;
    if (a->n_ids == a->n_prompt) a->p.n_choices = 1 + rnd_to(N_CHOICES);
}

static void add_to(struct ear *ear, uint64_t id, struct ask *a, int lookup) {
    a->p.lookup_tokens = lookup;
    const struct seq_opts o = {.seq_id = id,
                               .kind = SEQ_WHOLE,
                               .ids = a->ids,
                               .n_ids = (size_t)a->n_ids,
                               .n_prompt = (size_t)a->n_prompt,
                               .sampling = &a->p,
                               .priority = 5};
    assert_int_equal(engine_seq_add(ear->e, &o, NULL), ERR_OK);
}

static struct engine_opts opts_of(int variant) {
    struct engine_opts o = fake_opts();
    o.block_tokens = variant % 3 == 0 ? 1 : variant % 3 == 1 ? 4 : 16;
    o.step_tokens_max = variant % 4 == 0 ? 5 : variant % 4 == 1 ? 24 : 64;
    o.batch_max = variant % 5 == 0 ? N_CHOICES : 40;
    o.prefix_cache = variant % 7 != 0;
    o.seq_tokens_max = 128;
    return o;
}

static void nothing_but_the_steps_changes(void **state) {
    (void)state;
    static const int lookups[] = {1, 3, 8, LOOKUP_TOKENS_MAX};
    uint64_t accepted = 0, drafted = 0, steps[2] = {0};
    static struct ear with, without;
    for (int variant = 0; variant < 60; variant++) {
        struct engine_opts o = opts_of(variant);
        int lookup = lookups[variant % 4];
        rng = (uint64_t)variant + 1;
        ear_open(&without, &o);
        ear_open(&with, &o);
        for (int i = 0; i < N_SEQS; i++) {
            struct ask a;
            ask_any(&a, IDS);
            if (variant % 6 == 5) a.p.n_choices = 1; /* a cancel ends all, each wherever it is */
            add_to(&without, (uint64_t)i, &a, 0);
            add_to(&with, (uint64_t)i, &a, lookup);
        }
        if (variant % 6 == 5) without.cancel_at = with.cancel_at = 1 + rnd_to(20);
        ear_run(&without);
        ear_run(&with);
        same_told(&without, &with);
        struct engine_stats s = ear_stats(&with), plain = ear_stats(&without);
        int n_more = 0;
        for (int i = 0; i < N_SEQS * N_CHOICES; i++)
            n_more += with.told[i / N_CHOICES][i % N_CHOICES].n_more;
        assert_true(plain.drafts == 0 && plain.draft_tokens == 0 && plain.draft_accepted == 0);
        assert_true(s.drafts <= s.draft_tokens && s.draft_accepted <= s.draft_tokens);
        assert_true((uint64_t)n_more <= s.draft_accepted); /* less where a guess ended it */
        assert_int_equal(s.generated_tokens, plain.generated_tokens);
        assert_true(s.steps <= plain.steps);
        drafted += s.draft_tokens;
        accepted += s.draft_accepted;
        steps[0] += plain.steps;
        steps[1] += s.steps;
        ear_close(&without);
        ear_close(&with);
    }
    assert_true(drafted > 2000 && accepted > 1000 && accepted < drafted);
    assert_true(steps[1] < steps[0] * 9 / 10);
}

/* What was guessed wrongly is in no published block: whoever finds its text in the cache computes
 * the same tokens on it. */
static void the_prefix_cache_knows_checked_ids_only(void **state) {
    (void)state;
    static struct ear ear;
    int n_cached_blocks = 0;
    for (int variant = 0; variant < 12; variant++) {
        struct engine_opts o = opts_of(3 * variant + 1);
        struct ask a, next;
        o.prefix_cache = true;
        rng = 900 + (uint64_t)variant;
        ear_open(&ear, &o);
        ask_any(&a, 20);
        a.n_prompt = a.n_ids;
        a.p.n_choices = 1;
        a.p.new_tokens_max = 40;
        a.p.n_stop_token_ids = 0;
        add_to(&ear, 0, &a, 8);
        ear_run(&ear);
        next = a;
        for (int i = 0; i < ear.told[0][0].n && next.n_ids < IDS; i++)
            next.ids[next.n_ids++] = ear.told[0][0].ev[i].id;
        next.n_prompt = next.n_ids;
        next.p.new_tokens_max = 30;
        next.p.allowed_ids = next.allowed;
        add_to(&ear, 1, &next, 0);
        ear_run(&ear);
        int32_t want[EVENTS];
        enum finish finish;
        int n = fake_expect(&next.p, next.ids, next.n_ids, next.n_prompt, o.seq_tokens_max, want,
                            &finish);
        assert_int_equal(ear.told[1][0].n, n);
        for (int i = 0; i < n; i++) assert_int_equal(ear.told[1][0].ev[i].id, want[i]);
        n_cached_blocks += (int)ear_stats(&ear).prefix_hit_blocks;
        ear_close(&ear);
    }
    assert_true(n_cached_blocks > 12); /* more than the prompts' own */
}

/* One id allowed: every guess is right, up to the last token there is room for. */
static void a_loop_takes_few_steps(void **state) {
    (void)state;
    for (int lookup = 1; lookup <= LOOKUP_TOKENS_MAX; lookup += 3) {
        static struct ear ear;
        struct engine_opts o = fake_opts();
        struct ask a = {.ids = {20, 20, 20, 20}, .n_ids = 4, .n_prompt = 4, .allowed = {20}};
        ear_open(&ear, &o);
        a.p = neutral(100);
        a.p.ignore_eos = true;
        a.p.allowed_ids = a.allowed;
        a.p.n_allowed_ids = 1;
        add_to(&ear, 0, &a, lookup);
        ear_run(&ear);
        struct engine_stats s = ear_stats(&ear);
        assert_int_equal(ear.told[0][0].n, 100);
        assert_int_equal(ear.told[0][0].ev[99].finish, FINISH_LENGTH);
        assert_int_equal(s.draft_tokens, s.draft_accepted);
        /* The prompt's step, then 1 + lookup tokens a step once the drafts are as long. */
        assert_true((int)s.steps >= 1 + 99 / (lookup + 1));
        assert_true((int)s.steps <= 1 + 99 / (lookup + 1) + 5);
        assert_int_equal(fake_of(ear.e)->rows_run, 4 + 99); /* no row was in vain */
        ear_close(&ear);
    }
}

static void guesses_leave_room_to_others(void **state) {
    (void)state;
    static struct ear ear;
    struct engine_opts o = fake_opts();
    o.batch_max = o.prefill_batch_max = 40;
    o.step_tokens_max = 128;
    ear_open(&ear, &o);
    for (int i = 0; i < N_SEQS; i++) {
        struct ask a = {.ids = {20, 20, 20}, .n_ids = 3, .n_prompt = 3, .allowed = {20}};
        a.p = neutral(120);
        a.p.ignore_eos = true;
        a.p.allowed_ids = a.allowed;
        a.p.n_allowed_ids = 1;
        a.p.n_choices = N_CHOICES;
        add_to(&ear, (uint64_t)i, &a, 8);
    }
    assert_true(engine_step(ear.e)); /* the prompts: 36 choices are under way */
    for (int i = 0; i < 5; i++) {
        int rows = fake_of(ear.e)->rows_run;
        assert_true(engine_step(ear.e));
        assert_int_equal(fake_of(ear.e)->rows_run - rows, 36); /* too many rows for guesses */
    }
    assert_int_equal(ear_stats(&ear).draft_tokens, 0);
    for (uint64_t i = 4; i < N_SEQS; i++) assert_int_equal(engine_seq_cancel(ear.e, i), ERR_OK);
    for (int i = 0; i < 5; i++) {
        int rows = fake_of(ear.e)->rows_run;
        assert_true(engine_step(ear.e));
        assert_int_equal(fake_of(ear.e)->rows_run - rows, ENGINE_DRAFT_ROWS);
    }
    ear_run(&ear);
    ear_close(&ear);
}

/* ---- guides */

enum { WORD = 4 };
static const int32_t word[WORD] = {3, 90, 17, 64};

/* Allows the word over and over, up to `until` ids, then EOS. */
struct chanter {
    int at, until, *n_alive;
    bool dead;
};
static int32_t chant_next(const struct chanter *s) {
    return s->at < s->until ? word[s->at % WORD] : FAKE_EOS;
}
static void *chant_fork(const void *state) {
    struct chanter *s = malloc(sizeof(*s));
    assert_non_null(s);
    *s = *(const struct chanter *)state;
    (*s->n_alive)++;
    return s;
}
static bool chant_mask(void *state, uint64_t *bits, int n_ids) {
    const struct chanter *s = state;
    (void)n_ids;
    bits[0] = bits[1] = 0;
    if (s->dead) return false;
    bits[chant_next(s) >> 6] |= UINT64_C(1) << (chant_next(s) & 63);
    return true;
}
static bool chant_advance(void *state, int32_t id) {
    struct chanter *s = state;
    s->dead |= id != chant_next(s);
    s->at++;
    return !s->dead;
}
static int chant_follow(void *state, const int32_t *ids, int n) {
    struct chanter s = *(struct chanter *)state;
    int n_good = 0;
    while (n_good < n && chant_advance(&s, ids[n_good])) n_good++;
    return n_good;
}
static void chant_free(void *state) {
    struct chanter *s = state;
    if (s == NULL) return;
    (*s->n_alive)--;
    free(s);
}
static const struct token_guide_ops chant_ops = {
    .fork = chant_fork,
    .mask = chant_mask,
    .advance = chant_advance,
    .follow = chant_follow,
    .free = chant_free,
};
static const struct token_guide_ops mute_ops = {
    .fork = chant_fork, .mask = chant_mask, .advance = chant_advance, .free = chant_free};

static void a_guide_cuts_guesses(void **state) {
    (void)state;
    for (int mute = 0; mute < 2; mute++)
        for (int until = 1; until < 50; until += 7) {
            static struct ear ear;
            struct engine_opts o = fake_opts();
            int n_alive = 0;
            struct chanter s = {.until = until, .n_alive = &n_alive};
            /* The prompt chants on where the guide will not. */
            int32_t ids[20];
            struct sampling p = seeded(9, 100);
            for (int i = 0; i < 20; i++) ids[i] = word[i % WORD];
            p.lookup_tokens = 8;
            ear_open(&ear, &o);
            const struct seq_opts so = {.seq_id = 1,
                                        .kind = SEQ_WHOLE,
                                        .ids = ids,
                                        .n_ids = 20,
                                        .n_prompt = 20,
                                        .sampling = &p,
                                        .priority = 5,
                                        .guide = {mute ? &mute_ops : &chant_ops, &s}};
            assert_int_equal(engine_seq_add(ear.e, &so, NULL), ERR_OK);
            ear_run(&ear);
            const struct told *t = &ear.told[1][0];
            assert_int_equal(t->n, until + 1);
            for (int i = 0; i < until; i++) assert_int_equal(t->ev[i].id, word[i % WORD]);
            assert_int_equal(t->ev[until].id, FAKE_EOS);
            assert_int_equal(t->ev[until].finish, FINISH_EOS);
            assert_int_equal(n_alive, 0);
            struct engine_stats st = ear_stats(&ear);
            if (until > 8) assert_true(st.draft_accepted > 0);
            if (!mute) assert_int_equal(st.draft_tokens, st.draft_accepted);
            if (mute && until > 8) assert_true(st.draft_tokens > st.draft_accepted);
            ear_close(&ear);
        }
}

/* ---- a sequence that comes from elsewhere */

static void an_import_guesses_too(void **state) {
    (void)state;
    static struct ear p_ear, d_ear, whole;
    struct engine_opts o = fake_opts();
    for (int round = 0; round < 20; round++) {
        struct ask a;
        const int32_t *src, *dst;
        int n_src, n_dst, held;
        rng = 40 + (uint64_t)round;
        ask_any(&a, 40);
        a.n_prompt = a.n_ids;
        a.p.n_choices = 1;
        a.p.new_tokens_max = 80;
        ear_open(&whole, &o);
        add_to(&whole, 0, &a, 0);
        ear_run(&whole);
        ear_open(&p_ear, &o);
        ear_open(&d_ear, &o);
        a.p.lookup_tokens = 8;
        struct seq_opts so = {.seq_id = 0,
                              .kind = SEQ_PREFILL,
                              .ids = a.ids,
                              .n_ids = (size_t)a.n_ids,
                              .n_prompt = (size_t)a.n_prompt,
                              .sampling = &a.p,
                              .priority = 5};
        assert_int_equal(engine_seq_add(p_ear.e, &so, NULL), ERR_OK);
        ear_run(&p_ear);
        assert_int_equal(ear_stats(&p_ear).draft_tokens, 0);
        struct told *t = &p_ear.told[0][0];
        assert_int_equal(t->n, 1);
        if (t->ev[0].finish == FINISH_NONE) {
            so.kind = SEQ_IMPORT;
            assert_int_equal(engine_seq_add(d_ear.e, &so, NULL), ERR_OK);
            assert_int_equal(engine_seq_blocks(p_ear.e, 0, &src, &n_src, &held), ERR_OK);
            assert_int_equal(engine_seq_blocks(d_ear.e, 0, &dst, &n_dst, &held), ERR_OK);
            assert_int_equal(n_src, n_dst);
            for (int layer = 0; layer < FAKE_LAYERS; layer++)
                for (int b = 0; b < n_src; b++)
                    memcpy(engine_kv_block(d_ear.e, layer, dst[b]),
                           engine_kv_block(p_ear.e, layer, src[b]), engine_kv_block_bytes(p_ear.e));
            assert_int_equal(start_one(d_ear.e, 0, &t->ev[0].id, 1), ERR_OK);
            ear_run(&d_ear);
        }
        for (int i = 0; i < d_ear.told[0][0].n; i++) t->ev[t->n++] = d_ear.told[0][0].ev[i];
        t->open = d_ear.told[0][0].open;
        same_told(&whole, &p_ear);
        assert_int_equal(engine_seq_release(p_ear.e, 0), ERR_OK);
        ear_close(&whole);
        ear_close(&p_ear);
        ear_close(&d_ear);
    }
}

static void the_number_is_checked(void **state) {
    (void)state;
    static struct ear ear;
    struct engine_opts o = fake_opts();
    ear_open(&ear, &o);
    for (int lookup = -1; lookup <= LOOKUP_TOKENS_MAX + 1; lookup++) {
        int32_t ids[2] = {1, 2};
        struct sampling p = neutral(3);
        p.lookup_tokens = lookup;
        const struct seq_opts so = {.seq_id = 1,
                                    .kind = SEQ_WHOLE,
                                    .ids = ids,
                                    .n_ids = 2,
                                    .n_prompt = 2,
                                    .sampling = &p,
                                    .priority = 5};
        struct errbuf eb = {0};
        bool good = lookup >= 0 && lookup <= LOOKUP_TOKENS_MAX;
        assert_int_equal(engine_seq_add(ear.e, &so, &eb), good ? ERR_OK : ERR_INVALID);
        if (good)
            assert_int_equal(engine_seq_cancel(ear.e, 1), ERR_OK);
        else
            assert_non_null(strstr(eb.text, "prompt_lookup_num_tokens"));
    }
    ear_close(&ear);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_the_steps_changes),
        cmocka_unit_test(the_prefix_cache_knows_checked_ids_only),
        cmocka_unit_test(a_loop_takes_few_steps),
        cmocka_unit_test(guesses_leave_room_to_others),
        cmocka_unit_test(a_guide_cuts_guesses),
        cmocka_unit_test(an_import_guesses_too),
        cmocka_unit_test(the_number_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
