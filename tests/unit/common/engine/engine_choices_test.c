/* Goal: the choices of one prompt are what that many sequences of their own would be: the same
 * tokens, ends and limits whatever runs beside them, whole or split, with the prompt's blocks held
 * once; and every slot and block comes back whichever choice is taken out, and when.
 * Method: the fake forward pass, which gives itself away on a wrong, shared or stale block; what a
 * choice must say is computed from its ids alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/common/engine/fake_forward.h"

enum { SEQS = 128, CHOICES = 8, TOKENS = 64, SEQ_MAX = 256 };

struct said { /* by one choice */
    int32_t tokens[TOKENS];
    int n;
    enum finish finish;
    bool stopped; /* taken out: nothing may follow */
};
struct rig {
    struct engine *e;
    struct engine_stats start;
    struct said said[SEQS][CHOICES];
    bool cancelled[SEQS];
    int n_failed, n_logprobs;
    void (*hook)(struct rig *r, uint64_t id, int choice);
    uint64_t rng;
};

static uint64_t rnd(struct rig *r, uint64_t n) {
    r->rng += 0x9e3779b97f4a7c15u;
    return fake_mix(r->rng) % n;
}

static void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct rig *r = arg;
    struct said *s = &r->said[id][ev->choice];
    assert_false(s->stopped || r->cancelled[id]);
    assert_int_equal(s->finish, FINISH_NONE);
    s->tokens[s->n++] = ev->id;
    s->finish = ev->finish;
    if (r->hook != NULL) r->hook(r, id, ev->choice);
}
static void on_failed(void *arg, uint64_t id, enum err e) {
    struct rig *r = arg;
    (void)id, (void)e;
    r->n_failed++;
}
static void on_logprob(void *arg, uint64_t id, int position, const struct token_event *ev) {
    struct rig *r = arg;
    (void)id;
    assert_true(position == ev->index && ev->n_top == 3);
    for (int i = 1; i < ev->n_top; i++) assert_true(ev->top[i].logprob <= ev->top[i - 1].logprob);
    r->n_logprobs++;
}

static struct rig *rig_open(const struct engine_opts *o) {
    struct errbuf eb = {0};
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    if (engine_open_with(&r->e, o, &fake_ops, &eb) != ERR_OK) fail_msg("%s", eb.text);
    const struct engine_events ev = {
        .on_token = on_token, .on_failed = on_failed, .on_prompt_logprob = on_logprob, .arg = r};
    engine_set_events(r->e, &ev);
    engine_stats(r->e, &r->start);
    return r;
}
static struct engine_stats stats_of(const struct rig *r) {
    struct engine_stats s;
    engine_stats(r->e, &s);
    return s;
}
static void expect_idle(const struct rig *r) {
    struct engine_stats s = stats_of(r);
    assert_int_equal(s.slots_free, r->start.slots_total);
    assert_int_equal(s.blocks_free, r->start.blocks_total);
    assert_true(s.waiting == 0 && s.running == 0 && s.importing == 0 && s.held == 0);
    assert_true(kv_cache_check(r->e->kv));
}
static void rig_close(struct rig *r) {
    expect_idle(r);
    engine_close(&r->e);
    free(r);
}
static void run_dry(struct rig *r) {
    for (int n = 0; engine_step(r->e); n++) {
        assert_true(kv_cache_check(r->e->kv));
        assert_true(n < 100000);
    }
}

static struct sampling sampling_of(uint64_t seed, int n_choices, int max) {
    return (struct sampling){.do_sample = true,
                             .temperature = 0.9f,
                             .top_p = 0.97f,
                             .typical_p = 1,
                             .repetition_penalty = 1.1f,
                             .presence_penalty = 0.3f,
                             .seed = seed,
                             .new_tokens_max = max,
                             .n_choices = n_choices};
}
static void prompt_of(uint64_t seed, int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(fake_mix(seed * 7777 + (uint64_t)i) % FAKE_VOCAB);
}
static enum err add(struct rig *r, uint64_t id, enum seq_kind kind, const int32_t *ids, int n,
                    const struct sampling *p) {
    const struct seq_opts o = {.seq_id = id,
                               .kind = kind,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n,
                               .sampling = p,
                               .priority = 5};
    struct errbuf eb = {0};
    return engine_seq_add(r->e, &o, &eb);
}

/* What was said is the beginning of what had to be said, and all of it unless it was cut short. */
static void expect_said(const struct said *s, const struct sampling *p, int choice,
                        const int32_t *ids, int n, bool all) {
    int32_t want[SEQ_MAX];
    enum finish finish;
    int n_want = fake_expect_choice(p, choice, ids, n, n, SEQ_MAX, want, &finish);
    assert_true(all ? s->n == n_want : s->n <= n_want);
    for (int i = 0; i < s->n; i++)
        if (s->tokens[i] != want[i])
            fail_msg("choice %d, token %d: %d, want %d", choice, i, s->tokens[i], want[i]);
    if (all) assert_int_equal(s->finish, finish);
}

/* ---- whole */

static void test_each_choice_says_its_own(void **state) {
    (void)state;
    static const int lengths[] = {1, 3, 4, 5, 8, 17, 40};
    for (int cache = 0; cache < 2; cache++)
        for (int n_choices = 1; n_choices <= CHOICES; n_choices += 2) {
            struct engine_opts o = fake_opts();
            o.prefix_cache = cache != 0;
            o.batch_max = 24;
            o.chunk_tokens = 7;
            struct rig *r = rig_open(&o);
            struct sampling p[7];
            int32_t ids[7][40];
            for (int i = 0; i < 7; i++) { /* all at once */
                p[i] = sampling_of((uint64_t)(i + 10 * n_choices), n_choices, 20);
                prompt_of((uint64_t)i, ids[i], lengths[i]);
                assert_int_equal(add(r, (uint64_t)i, SEQ_WHOLE, ids[i], lengths[i], &p[i]), ERR_OK);
            }
            run_dry(r);
            int n_other = 0;
            for (int i = 0; i < 7; i++)
                for (int c = 0; c < n_choices; c++) {
                    expect_said(&r->said[i][c], &p[i], c, ids[i], lengths[i], true);
                    n_other += c > 0 && (r->said[i][c].n != r->said[i][0].n ||
                                         memcmp(r->said[i][c].tokens, r->said[i][0].tokens,
                                                sizeof(r->said[i][c].tokens)) != 0);
                }
            assert_true(n_other >= 6 * (n_choices - 1));
            rig_close(r);
        }
}

/* Greedy choices are equal, and so are their blocks; nothing of that disturbs the prefix cache. */
static void test_equal_choices(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig *r = rig_open(&o);
    struct sampling p = sampling_of(1, 4, 30);
    int32_t ids[10];
    p.do_sample = false;
    prompt_of(3, ids, 10);
    for (uint64_t id = 0; id < 3; id++) {
        assert_int_equal(add(r, id, SEQ_WHOLE, ids, 10, &p), ERR_OK);
        run_dry(r);
        for (int c = 0; c < 4; c++) expect_said(&r->said[id][c], &p, c, ids, 10, true);
        expect_idle(r);
    }
    rig_close(r);
}

/* The prompt's full blocks once, everything else for each choice; a slot for each. */
static void test_what_they_take(void **state) {
    (void)state;
    for (int n = 1; n <= 13; n++) {
        struct engine_opts o = fake_opts();
        o.prefix_cache = false;
        struct rig *r = rig_open(&o);
        struct sampling p = sampling_of(2, 3, 9);
        p.ignore_eos = true;
        int32_t ids[16];
        prompt_of(9, ids, n);
        assert_int_equal(add(r, 1, SEQ_WHOLE, ids, n, &p), ERR_OK);
        assert_true(engine_step(r->e));
        int whole = (n + 9 - 1 + 3) / 4, shared = n / 4;
        struct engine_stats s = stats_of(r);
        assert_int_equal(s.blocks_total - s.blocks_free, shared + 3 * (whole - shared));
        assert_true(s.running == 3 && s.slots_free == s.slots_total - 3);
        assert_int_equal(fake_of(r->e)->rows_run, n); /* computed once */
        assert_int_equal(engine_choice_stop(r->e, 1, 1), ERR_OK);
        r->said[1][1].stopped = true;
        s = stats_of(r);
        assert_int_equal(s.blocks_total - s.blocks_free, shared + 2 * (whole - shared));
        assert_int_equal(s.running, 2);
        assert_int_equal(engine_choice_stop(r->e, 1, 1), ERR_NOT_FOUND);
        assert_int_equal(engine_choice_stop(r->e, 1, 3), ERR_NOT_FOUND);
        assert_int_equal(engine_choice_stop(r->e, 1, -1), ERR_NOT_FOUND);
        assert_int_equal(engine_choice_stop(r->e, 2, 0), ERR_NOT_FOUND);
        run_dry(r);
        expect_said(&r->said[1][0], &p, 0, ids, n, true);
        expect_said(&r->said[1][2], &p, 2, ids, n, true);
        assert_int_equal(engine_choice_stop(r->e, 1, 0), ERR_NOT_FOUND);
        rig_close(r);
    }
}

static void test_limits(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    o.batch_max = 4;
    o.kv_bytes = fake_pool_bytes(20, 4, DTYPE_F32);
    struct rig *r = rig_open(&o);
    int32_t ids[8], first[5] = {1, 2, 3, 4, 5};
    struct sampling p = sampling_of(1, 0, 4);
    prompt_of(1, ids, 8);
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 8, &p), ERR_INVALID);
    p.n_choices = CHOICES_MAX + 1;
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 8, &p), ERR_INVALID);
    p.n_choices = 5; /* more than the batch has room for */
    for (int kind = SEQ_WHOLE; kind <= SEQ_IMPORT; kind++)
        assert_int_equal(add(r, 1, (enum seq_kind)kind, ids, 8, &p), ERR_TOO_LARGE);
    p.n_choices = 4;
    p.new_tokens_max = 17; /* 2 shared + 4 * 4 = 18 of 20 blocks */
    assert_int_equal(add(r, 1, SEQ_IMPORT, ids, 8, &p), ERR_OK);
    assert_int_equal(stats_of(r).blocks_free, 2);
    assert_int_equal(stats_of(r).importing, 4);
    struct sampling one = sampling_of(1, 1, 1);
    assert_int_equal(add(r, 2, SEQ_IMPORT, ids, 2, &one), ERR_BUSY); /* no slot */
    assert_int_equal(start_each(r->e, 1, first, 3), ERR_INVALID);
    assert_int_equal(start_each(r->e, 1, first, 5), ERR_INVALID);
    int32_t gone[4] = {-1, -1, -1, -1}, foreign[4] = {1, FAKE_VOCAB, 1, 1};
    assert_int_equal(start_each(r->e, 1, gone, 4), ERR_INVALID);
    assert_int_equal(start_each(r->e, 1, foreign, 4), ERR_INVALID);
    assert_int_equal(engine_seq_cancel(r->e, 1), ERR_OK);
    p.new_tokens_max = 21; /* 2 + 4 * 5 */
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 8, &p), ERR_TOO_LARGE);
    p.n_bad_words = 3;
    int32_t words[3] = {3, 1, 2}; /* says three, has two */
    p.bad_words = words;
    p.new_tokens_max = 4;
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 8, &p), ERR_INVALID);
    words[0] = 0;
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 8, &p), ERR_INVALID);
    words[0] = 2;
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 8, &p), ERR_OK);
    run_dry(r);
    rig_close(r);
}

static void test_prompt_alternatives(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig *r = rig_open(&o);
    struct sampling p = sampling_of(4, 3, 5);
    int32_t ids[30];
    p.prompt_logprobs = true;
    p.prompt_top_logprobs = 3;
    prompt_of(8, ids, 30);
    assert_int_equal(add(r, 0, SEQ_WHOLE, ids, 30, &p), ERR_OK);
    run_dry(r);
    assert_int_equal(r->n_logprobs, 29); /* once, not for each choice */
    for (int c = 0; c < 3; c++) expect_said(&r->said[0][c], &p, c, ids, 30, true);
    rig_close(r);
}

/* ---- split */

static void test_split_is_whole(void **state) {
    (void)state;
    int n_ended = 0;
    for (int n = 1; n <= 12; n++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct engine_opts o = fake_opts();
            struct rig *a = rig_open(&o), *b = rig_open(&o);
            struct sampling p = sampling_of(seed, 6, 12);
            struct logit_bias up = {FAKE_EOS, 3};
            p.logit_bias = &up;
            p.n_logit_bias = 1;
            int32_t ids[12], first[6];
            prompt_of(seed, ids, n);
            assert_int_equal(add(a, 5, SEQ_PREFILL, ids, n, &p), ERR_OK);
            assert_int_equal(add(b, 5, SEQ_IMPORT, ids, n, &p), ERR_OK);
            run_dry(a);
            assert_true(stats_of(a).held == 1 && stats_of(a).slots_free == 8);
            assert_int_equal(engine_choice_stop(a->e, 5, 0), ERR_CONFLICT);
            const int32_t *ta, *tb;
            int na, nb, held;
            assert_int_equal(engine_seq_blocks(a->e, 5, &ta, &na, &held), ERR_OK);
            assert_int_equal(engine_seq_blocks(b->e, 5, &tb, &nb, &held), ERR_OK);
            assert_true(na == nb && held == 0);
            for (int l = 0; l < FAKE_LAYERS; l++)
                for (int i = 0; i < na; i++)
                    memcpy(engine_kv_block(b->e, l, tb[i]), engine_kv_block(a->e, l, ta[i]),
                           engine_kv_block_bytes(a->e));
            bool any = false;
            for (int c = 0; c < 6; c++) {
                assert_int_equal(a->said[5][c].n, 1);
                b->said[5][c] = a->said[5][c];
                bool ended = a->said[5][c].finish != FINISH_NONE;
                n_ended += ended;
                first[c] = ended ? -1 : a->said[5][c].tokens[0];
                any = any || !ended;
            }
            assert_int_equal(engine_seq_release(a->e, 5), ERR_OK);
            if (any) {
                if (seed % 3 == 0) { /* one more is not wanted, before the start */
                    int c = 0;
                    while (first[c] >= 0 && c < 5) c++;
                    enum err e = engine_choice_stop(b->e, 5, (c + 1) % 6);
                    assert_int_equal(e, ERR_OK);
                    b->said[5][(c + 1) % 6].stopped = true;
                    first[(c + 1) % 6] = -1;
                }
                any = false;
                for (int c = 0; c < 6; c++) any = any || first[c] >= 0;
            }
            assert_int_equal(start_each(b->e, 5, first, 6), any ? ERR_OK : ERR_INVALID);
            if (!any) assert_int_equal(engine_seq_cancel(b->e, 5), ERR_OK);
            run_dry(b);
            for (int c = 0; c < 6; c++)
                expect_said(&b->said[5][c], &p, c, ids, n, !b->said[5][c].stopped);
            rig_close(a);
            rig_close(b);
        }
    assert_true(n_ended > 20); /* both kinds of first tokens were there */
}

/* Both halves in one place: the sequence waits after its first tokens with all it will need, and
 * goes on as it is. */
static void test_staged_is_whole(void **state) {
    (void)state;
    for (int n = 1; n <= 12; n++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            struct engine_opts o = fake_opts();
            struct rig *a = rig_open(&o);
            struct sampling p = sampling_of(seed, 6, 12);
            int32_t ids[12], first[6] = {1, 1, 1, 1, 1, 1};
            bool any = false;
            prompt_of(seed, ids, n);
            assert_int_equal(add(a, 5, SEQ_STAGED, ids, n, &p), ERR_OK);
            assert_int_equal(start_each(a->e, 5, first, 6), ERR_CONFLICT); /* not yet */
            run_dry(a);
            assert_true(stats_of(a).importing == 6 && stats_of(a).slots_free == 2);
            assert_int_equal(engine_seq_release(a->e, 5), ERR_CONFLICT);
            for (int c = 0; c < 6; c++) {
                assert_int_equal(a->said[5][c].n, 1);
                bool ended = a->said[5][c].finish != FINISH_NONE;
                first[c] = ended ? -1 : a->said[5][c].tokens[0];
                any = any || !ended;
            }
            if (any && seed % 4 != 3) {
                assert_int_equal(start_each(a->e, 5, first, 6), ERR_OK);
                assert_int_equal(start_each(a->e, 5, first, 6), ERR_CONFLICT);
                run_dry(a);
                for (int c = 0; c < 6; c++) expect_said(&a->said[5][c], &p, c, ids, n, true);
            } else {
                assert_int_equal(engine_seq_cancel(a->e, 5), ERR_OK);
            }
            assert_true(stats_of(a).slots_free == 8 && stats_of(a).importing == 0 &&
                        stats_of(a).blocks_free == stats_of(a).blocks_total);
            rig_close(a);
        }
}

/* The KV of the prompt is at b, as if P had sent it. */
static void import(struct rig *a, struct rig *b, const int32_t *ids, int n,
                   const struct sampling *p) {
    const int32_t *ta, *tb;
    int na, nb, held;
    assert_int_equal(add(a, 5, SEQ_PREFILL, ids, n, p), ERR_OK);
    assert_int_equal(add(b, 5, SEQ_IMPORT, ids, n, p), ERR_OK);
    run_dry(a);
    assert_int_equal(engine_seq_blocks(a->e, 5, &ta, &na, &held), ERR_OK);
    assert_int_equal(engine_seq_blocks(b->e, 5, &tb, &nb, &held), ERR_OK);
    for (int l = 0; l < FAKE_LAYERS; l++)
        for (int i = 0; i < na; i++)
            memcpy(engine_kv_block(b->e, l, tb[i]), engine_kv_block(a->e, l, ta[i]),
                   engine_kv_block_bytes(a->e));
    assert_int_equal(engine_seq_release(a->e, 5), ERR_OK);
}

/* Each choice goes on from wherever it was, also from different places, in chunks and beside others
 * that decode; those that had ended are left out. */
static void test_goes_on_from_any_token(void **state) {
    (void)state;
    int n_far = 0, n_over = 0;
    for (int n = 1; n <= 9; n++)
        for (uint64_t seed = 0; seed < 16; seed++) {
            struct engine_opts o = fake_opts();
            o.chunk_tokens = 3 + (int)(seed % 5);
            struct rig *w = rig_open(&o), *a = rig_open(&o), *b = rig_open(&o);
            struct sampling p = sampling_of(seed, seed % 4 == 0 ? 1 : 4, 24);
            struct logit_bias up = {FAKE_EOS, 1};
            p.logit_bias = &up;
            p.n_logit_bias = 1;
            p.lookup_tokens = seed % 3 == 0 ? 3 : 0;
            int32_t ids[9], other[5];
            prompt_of(seed, ids, n);
            prompt_of(seed + 100, other, 5);
            assert_int_equal(add(w, 5, SEQ_WHOLE, ids, n, &p), ERR_OK);
            run_dry(w);
            struct sampling q = sampling_of(seed, 1, 20);
            assert_int_equal(add(b, 6, SEQ_WHOLE, other, 5, &q), ERR_OK);
            import(a, b, ids, n, &p);
            struct first_ids first[4];
            bool any = false;
            for (int c = 0; c < p.n_choices; c++) {
                const struct said *s = &w->said[5][c];
                int k = 1 + (int)rnd(b, (uint64_t)s->n);
                memcpy(b->said[5][c].tokens, s->tokens, (size_t)k * sizeof(s->tokens[0]));
                b->said[5][c].n = k;
                if (k == s->n) b->said[5][c].finish = s->finish;
                first[c] = (struct first_ids){s->tokens, k == s->n ? 0 : (size_t)k};
                any = any || k < s->n;
                n_far += k > 10 && k < s->n;
                n_over += k == s->n;
            }
            assert_int_equal(engine_seq_start(b->e, 5, first, (size_t)p.n_choices),
                             any ? ERR_OK : ERR_INVALID);
            if (!any) assert_int_equal(engine_seq_cancel(b->e, 5), ERR_OK);
            run_dry(b);
            for (int c = 0; c < p.n_choices; c++) expect_said(&b->said[5][c], &p, c, ids, n, true);
            expect_said(&b->said[6][0], &q, 0, other, 5, true);
            rig_close(w);
            rig_close(a);
            rig_close(b);
        }
    assert_true(n_far > 20 && n_over > 20);
}

/* ---- callbacks that end things */

static void stop_next(struct rig *r, uint64_t id, int choice) {
    if (choice != 1) return;
    if (engine_choice_stop(r->e, id, 2) == ERR_OK) r->said[id][2].stopped = true;
}
static void cancel_at_second(struct rig *r, uint64_t id, int choice) {
    if (choice == 1 && engine_seq_cancel(r->e, id) == ERR_OK) r->cancelled[id] = true;
}
static void stop_self(struct rig *r, uint64_t id, int choice) {
    if (r->said[id][choice].n < choice + 1) return;
    if (engine_choice_stop(r->e, id, choice) == ERR_OK) r->said[id][choice].stopped = true;
}
static void stop_all_others(struct rig *r, uint64_t id, int choice) {
    for (int c = 0; c < 4; c++)
        if (c != choice && engine_choice_stop(r->e, id, c) == ERR_OK) r->said[id][c].stopped = true;
}

static void test_ends_inside_callbacks(void **state) {
    (void)state;
    void (*const hooks[])(struct rig *, uint64_t, int) = {stop_next, cancel_at_second, stop_self,
                                                          stop_all_others};
    for (size_t h = 0; h < 4; h++)
        for (int n = 1; n < 10; n++) {
            struct engine_opts o = fake_opts();
            struct rig *r = rig_open(&o);
            struct sampling p = sampling_of(h, 4, 15), q = sampling_of(h, 2, 10);
            int32_t ids[2][10];
            prompt_of(1, ids[0], n);
            prompt_of(2, ids[1], 10 - n);
            r->hook = hooks[h];
            assert_int_equal(add(r, 1, SEQ_WHOLE, ids[0], n, &p), ERR_OK);
            assert_int_equal(add(r, 2, SEQ_WHOLE, ids[1], 10 - n, &q), ERR_OK);
            run_dry(r);
            for (int c = 0; c < 4; c++)
                expect_said(&r->said[1][c], &p, c, ids[0], n,
                            !r->said[1][c].stopped && !r->cancelled[1]);
            if (h == 3) assert_true(r->said[1][0].n > 0 && r->said[1][1].n == 0);
            rig_close(r);
        }
}

/* The prompt's only runner may be stopped before it is computed: another takes its place at the
 * end, and the last one takes the sequence along. */
static void test_stopped_before_the_first_token(void **state) {
    (void)state;
    for (int steps = 0; steps < 3; steps++) {
        struct engine_opts o = fake_opts();
        o.chunk_tokens = 8;
        struct rig *r = rig_open(&o);
        struct sampling p = sampling_of(6, 3, 10);
        int32_t ids[30];
        prompt_of(5, ids, 30);
        assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 30, &p), ERR_OK);
        for (int i = 0; i < steps; i++) assert_true(engine_step(r->e));
        assert_int_equal(engine_choice_stop(r->e, 1, 0), ERR_OK);
        r->said[1][0].stopped = true;
        assert_int_equal(engine_choice_stop(r->e, 1, 0), ERR_NOT_FOUND);
        run_dry(r);
        expect_said(&r->said[1][1], &p, 1, ids, 30, true);
        expect_said(&r->said[1][2], &p, 2, ids, 30, true);
        expect_idle(r);
        prompt_of(6, ids, 30);
        assert_int_equal(add(r, 2, SEQ_WHOLE, ids, 30, &p), ERR_OK);
        for (int i = 0; i < steps; i++) assert_true(engine_step(r->e));
        for (int c = 0; c < 3; c++) assert_int_equal(engine_choice_stop(r->e, 2, c), ERR_OK);
        expect_idle(r); /* at once */
        rig_close(r);
    }
}

/* ---- anything, in any order */

static void test_random_load(void **state) {
    (void)state;
    for (uint64_t run = 0; run < 12; run++) {
        struct engine_opts o = fake_opts();
        o.kv_dtype = run % 3 == 2 ? DTYPE_INT8 : DTYPE_F32;
        o.kv_bytes = fake_pool_bytes(90, 4, o.kv_dtype); /* often full */
        o.prefix_cache = run % 2 == 0;
        o.step_tokens_max = 5 + (int)run * 4;
        struct rig *r = rig_open(&o);
        struct sampling p[SEQS];
        int32_t ids[SEQS][30];
        int n_ids[SEQS], n_added = 0;
        bool added[SEQS] = {false};
        r->rng = run;
        for (int i = 0; i < 1500; i++) {
            uint64_t what = rnd(r, 10), id = n_added > 0 ? rnd(r, (uint64_t)n_added) : 0;
            if (what < 2 && n_added < SEQS) {
                id = (uint64_t)n_added++;
                n_ids[id] = 1 + (int)rnd(r, 29);
                p[id] = sampling_of(rnd(r, 5), 1 + (int)rnd(r, CHOICES), 1 + (int)rnd(r, 20));
                prompt_of(rnd(r, 4), ids[id], n_ids[id]); /* prefixes meet */
                added[id] = add(r, id, SEQ_WHOLE, ids[id], n_ids[id], &p[id]) == ERR_OK;
            } else if (what == 2 && n_added > 0) {
                int c = (int)rnd(r, CHOICES);
                if (engine_choice_stop(r->e, id, c) == ERR_OK) r->said[id][c].stopped = true;
            } else if (what == 3 && n_added > 0 && rnd(r, 4) == 0) {
                if (engine_seq_cancel(r->e, id) == ERR_OK) r->cancelled[id] = true;
            } else {
                (void)engine_step(r->e);
            }
            assert_true(kv_cache_check(r->e->kv));
        }
        run_dry(r);
        for (int id = 0; id < n_added; id++)
            for (int c = 0; added[id] && c < p[id].n_choices; c++)
                expect_said(&r->said[id][c], &p[id], c, ids[id], n_ids[id],
                            !r->said[id][c].stopped && !r->cancelled[id]);
        rig_close(r);
    }
}

static void test_failure_ends_all(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig *r = rig_open(&o);
    struct sampling p = sampling_of(6, 5, 10);
    int32_t ids[5];
    prompt_of(5, ids, 5);
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 5, &p), ERR_OK);
    assert_true(engine_step(r->e));
    fake_of(r->e)->all_nan = true;
    run_dry(r);
    assert_int_equal(r->n_failed, 1);
    rig_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_choice_says_its_own),
        cmocka_unit_test(test_equal_choices),
        cmocka_unit_test(test_what_they_take),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_prompt_alternatives),
        cmocka_unit_test(test_split_is_whole),
        cmocka_unit_test(test_staged_is_whole),
        cmocka_unit_test(test_goes_on_from_any_token),
        cmocka_unit_test(test_ends_inside_callbacks),
        cmocka_unit_test(test_stopped_before_the_first_token),
        cmocka_unit_test(test_random_load),
        cmocka_unit_test(test_failure_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
