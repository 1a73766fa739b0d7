/* Goal: beam search finds what its definition in engine.h says, whole or split, whatever runs
 * beside it; a step copies the partly filled block only; and every slot and block comes back
 * whenever it is ended. Method: the fake forward pass, which gives itself away on a wrong, shared
 * or stale block, against a reference of its own here: log-probabilities in double from the ids
 * alone, all continuations in one list, sorted. For widths that hold every prefix, against all
 * sequences there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/common/engine/fake_forward.h"

enum { SEQS = 16, WIDTH = 32, TOKENS = 32, PROMPT = 40, SEQ_MAX = 256 };

/* ---- the reference */

struct path {
    int32_t ids[PROMPT + TOKENS];
    float logprobs[TOKENS];
    int n; /* of ids */
    double score;
    enum finish finish;
};

static void ref_logprobs(const struct sampling *p, const struct path *b, int n_prompt,
                         double *out) {
    float logits[FAKE_VOCAB];
    double max = -INFINITY, sum = 0;
    fake_logits(b->ids, b->n, logits);
    for (int v = 0; v < FAKE_VOCAB; v++) {
        bool seen = false, allowed = p->allowed_ids == NULL;
        for (int i = 0; i < b->n; i++) seen |= b->ids[i] == v;
        for (size_t i = 0; i < p->n_allowed_ids; i++) allowed |= p->allowed_ids[i] == v;
        bool early = b->n - n_prompt < p->new_tokens_min;
        if (early && v == FAKE_EOS && !p->ignore_eos) allowed = false;
        float x = logits[v];
        if (seen) x = x > 0 ? x / p->repetition_penalty : x * p->repetition_penalty;
        for (size_t i = 0; i < p->n_logit_bias; i++)
            if (p->logit_bias[i].id == v) x += p->logit_bias[i].bias;
        out[v] = allowed ? (double)x : -INFINITY;
        if (out[v] > max) max = out[v];
    }
    for (int v = 0; v < FAKE_VOCAB; v++) sum += exp(out[v] - max);
    for (int v = 0; v < FAKE_VOCAB; v++) out[v] -= max + log(sum);
}

static enum finish ref_finish(const struct sampling *p, const struct path *b, int n_prompt) {
    int32_t id = b->ids[b->n - 1];
    if (!p->ignore_eos && id == FAKE_EOS) return FINISH_EOS;
    for (size_t i = 0; i < p->n_stop_token_ids; i++)
        if (p->stop_token_ids[i] == id) return FINISH_STOP_TOKEN;
    return b->n - n_prompt == p->new_tokens_max || b->n == SEQ_MAX ? FINISH_LENGTH : FINISH_NONE;
}

static struct path longer(const struct sampling *p, const struct path *b, int n_prompt, int32_t id,
                          double logprob) {
    struct path c = *b;
    c.logprobs[c.n - n_prompt] = (float)logprob;
    c.ids[c.n++] = id;
    c.score += logprob;
    c.finish = ref_finish(p, &c, n_prompt);
    return c;
}

static int by_score(const void *x, const void *y) {
    const struct path *a = x, *b = y;
    return (a->score < b->score) - (a->score > b->score);
}

/* The n_choices best sequences by the rules of engine.h, without their shortcuts: it always runs to
 * the last beam. Returns how many there are. */
static int ref_search(const struct sampling *p, const int32_t *ids, int n, struct path *best) {
    int width = p->n_choices, n_run = 1, n_pool = 0;
    struct path *run = calloc((size_t)width, sizeof(*run));
    struct path *all = calloc((size_t)width * FAKE_VOCAB, sizeof(*all));
    struct path *pool = calloc((size_t)(2 * width * (TOKENS + 1)), sizeof(*pool));
    assert_true(run != NULL && all != NULL && pool != NULL);
    memcpy(run[0].ids, ids, (size_t)n * sizeof(*ids));
    run[0].n = n;
    while (n_run > 0) {
        int n_all = 0;
        for (int r = 0; r < n_run; r++) {
            double logprobs[FAKE_VOCAB];
            ref_logprobs(p, &run[r], n, logprobs);
            for (int v = 0; v < FAKE_VOCAB; v++)
                if (logprobs[v] > -INFINITY) all[n_all++] = longer(p, &run[r], n, v, logprobs[v]);
        }
        qsort(all, (size_t)n_all, sizeof(*all), by_score);
        n_run = 0;
        for (int i = 0; i < n_all && i < 2 * width && n_run < width; i++)
            *(all[i].finish == FINISH_NONE ? &run[n_run++] : &pool[n_pool++]) = all[i];
    }
    qsort(pool, (size_t)n_pool, sizeof(*pool), by_score);
    if (n_pool > width) n_pool = width;
    memcpy(best, pool, (size_t)n_pool * sizeof(*pool));
    free(run);
    free(all);
    free(pool);
    return n_pool;
}

/* ---- the rig */

struct said {
    struct token_event evs[TOKENS];
    int n;
};
struct rig {
    struct engine *e;
    struct engine_stats start;
    struct said said[SEQS][2 * WIDTH];
    int n_events[SEQS], n_failed;
    bool cancelled[SEQS];
    void (*hook)(struct rig *r, uint64_t id);
    int hook_at;
};

static void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct rig *r = arg;
    struct said *s = &r->said[id][ev->choice];
    assert_false(r->cancelled[id]);
    assert_int_equal(ev->index, s->n);
    s->evs[s->n++] = *ev;
    r->n_events[id]++;
    if (r->hook != NULL) r->hook(r, id);
}
static void on_failed(void *arg, uint64_t id, enum err e) {
    struct rig *r = arg;
    assert_int_equal(e, ERR_INTERNAL);
    assert_false(r->cancelled[id]);
    r->n_failed++;
}

static struct rig *rig_open(const struct engine_opts *o) {
    struct errbuf eb = {0};
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    if (engine_open_with(&r->e, o, &fake_ops, &eb) != ERR_OK) fail_msg("%s", eb.text);
    const struct engine_events ev = {.on_token = on_token, .on_failed = on_failed, .arg = r};
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

static struct sampling beams(int width, int max) {
    return (struct sampling){.temperature = 1,
                             .top_p = 1,
                             .typical_p = 1,
                             .repetition_penalty = 1,
                             .beam = true,
                             .new_tokens_max = max,
                             .n_choices = width};
}
static void prompt_of(uint64_t seed, int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(fake_mix(seed * 7777 + (uint64_t)i) % FAKE_VOCAB);
}
static enum err add_guided(struct rig *r, uint64_t id, enum seq_kind kind, const int32_t *ids,
                           int n, const struct sampling *p, struct token_guide guide) {
    const struct seq_opts o = {.seq_id = id,
                               .kind = kind,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n,
                               .sampling = p,
                               .priority = 5,
                               .guide = guide};
    struct errbuf eb = {0};
    return engine_seq_add(r->e, &o, &eb);
}
static enum err add(struct rig *r, uint64_t id, enum seq_kind kind, const int32_t *ids, int n,
                    const struct sampling *p) {
    return add_guided(r, id, kind, ids, n, p, (struct token_guide){0});
}

/* Each choice has its sequence, best first; where there are fewer the list begins again. */
static void expect_paths(const struct rig *r, uint64_t id, const struct sampling *p,
                         const struct path *want, int n_want, int n_prompt) {
    for (int c = 0; c < p->n_choices; c++) {
        const struct said *s = &r->said[id][c];
        const struct path *w = &want[c % n_want];
        double sum = 0;
        assert_int_equal(s->n, w->n - n_prompt);
        for (int i = 0; i < s->n; i++) {
            const struct token_event *ev = &s->evs[i];
            if (ev->id != w->ids[n_prompt + i])
                fail_msg("sequence %d, token %d: %d, want %d", c, i, ev->id, w->ids[n_prompt + i]);
            assert_int_equal(ev->finish, i + 1 < s->n ? FINISH_NONE : w->finish);
            assert_int_equal(ev->more, i + 1 < s->n);
            assert_true(fabsf(ev->logprob - w->logprobs[i]) < 1e-4f);
            sum += (double)ev->logprob;
            assert_int_equal(ev->n_top, p->top_logprobs);
            if (ev->n_top > 0) assert_true(ev->top[0].logprob >= ev->logprob);
            for (int t = 1; t < ev->n_top; t++)
                assert_true(ev->top[t].logprob <= ev->top[t - 1].logprob);
        }
        assert_true(fabs(sum - w->score) < 1e-3);
    }
}
static void expect_search(const struct rig *r, uint64_t id, const struct sampling *p,
                          const int32_t *ids, int n) {
    struct path best[WIDTH];
    int n_best = ref_search(p, ids, n, best);
    assert_int_equal(n_best, p->n_choices);
    expect_paths(r, id, p, best, n_best, n);
}

/* A search with whatever a seed says: width, lengths, ends, penalties. The arrays live in *a. */
struct arrays {
    int32_t stop[2];
    struct logit_bias up;
};
static struct sampling any_search(uint64_t seed, struct arrays *a, int32_t *ids, int *n) {
    uint64_t h = fake_mix(seed + 99);
    struct sampling p = beams(1 + (int)(h % 8), 1 + (int)(h / 8 % 20));
    *n = 1 + (int)(h / 160 % 19);
    *a = (struct arrays){.stop = {11, 23}, .up = {FAKE_EOS, (float)(h / 8000 % 4)}};
    if (h >> 20 & 1) p.repetition_penalty = 1.3f;
    if (h >> 21 & 1) p.ignore_eos = true;
    if (h >> 22 & 1) p.stop_token_ids = a->stop, p.n_stop_token_ids = 2;
    if (h >> 23 & 1) p.new_tokens_min = 3 < p.new_tokens_max ? 3 : p.new_tokens_max;
    if (h >> 24 & 1) p.top_logprobs = 1 + (int)(h >> 25 & 15), p.logprobs = true;
    p.logit_bias = &a->up;
    p.n_logit_bias = 1;
    if (p.new_tokens_min > 0) p.n_stop_token_ids = 0; /* the reference knows EOS alone there */
    prompt_of(seed, ids, *n);
    return p;
}

/* ---- whole */

static void test_finds_what_the_reference_finds(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct engine_opts o = fake_opts();
        o.block_tokens = 1 + (int)(seed % 6);
        o.step_tokens_max = seed % 4 == 0 ? 3 : 64; /* 3: the beams of a step need several passes */
        o.chunk_tokens = o.step_tokens_max < 16 ? o.step_tokens_max : 16;
        o.kv_dtype = seed % 2 == 0 ? DTYPE_F32 : seed % 4 == 1 ? DTYPE_BF16 : DTYPE_INT8;
        struct rig *r = rig_open(&o);
        struct arrays a;
        int32_t ids[PROMPT];
        int n;
        struct sampling p = any_search(seed, &a, ids, &n);
        assert_int_equal(add(r, 1, SEQ_WHOLE, ids, n, &p), ERR_OK);
        run_dry(r);
        expect_search(r, 1, &p, ids, n);
        rig_close(r);
    }
}

/* Every sequence of at most three tokens out of four and EOS. */
static void all_paths(const struct sampling *p, const struct path *b, int n_prompt,
                      struct path *out, int *n_out) {
    double logprobs[FAKE_VOCAB];
    ref_logprobs(p, b, n_prompt, logprobs);
    for (int v = 0; v < FAKE_VOCAB; v++) {
        if (!(logprobs[v] > -INFINITY)) continue;
        struct path c = longer(p, b, n_prompt, v, logprobs[v]);
        if (c.finish == FINISH_NONE)
            all_paths(p, &c, n_prompt, out, n_out);
        else
            out[(*n_out)++] = c;
    }
}

static void test_wide_search_is_exhaustive(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct engine_opts o = fake_opts();
        o.batch_max = 32;
        struct rig *r = rig_open(&o);
        struct sampling p = beams(20, 3); /* 16 prefixes of two tokens */
        int32_t ids[6], allowed[5] = {2, 30, 31, 90, FAKE_EOS};
        p.allowed_ids = allowed;
        p.n_allowed_ids = 5;
        prompt_of(seed, ids, 6);
        struct path all[128], root = {.n = 6};
        int n_all = 0;
        memcpy(root.ids, ids, sizeof(ids));
        all_paths(&p, &root, 6, all, &n_all);
        assert_int_equal(n_all, 1 + 4 + 16 * 5);
        qsort(all, (size_t)n_all, sizeof(*all), by_score);
        assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 6, &p), ERR_OK);
        run_dry(r);
        expect_paths(r, 1, &p, all, n_all, 6);
        rig_close(r);
    }
}

static void test_one_beam_is_greedy(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct engine_opts o = fake_opts();
        struct rig *r = rig_open(&o);
        struct sampling p = beams(1, 25), greedy = p;
        struct logit_bias up = {FAKE_EOS, 2.5f};
        p.logit_bias = greedy.logit_bias = &up;
        p.n_logit_bias = greedy.n_logit_bias = 1;
        greedy.beam = false;
        int32_t ids[9], want[SEQ_MAX];
        enum finish finish;
        prompt_of(seed, ids, 9);
        assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 9, &p), ERR_OK);
        run_dry(r);
        int n = fake_expect(&greedy, ids, 9, 9, SEQ_MAX, want, &finish);
        assert_int_equal(r->said[1][0].n, n);
        for (int i = 0; i < n; i++) assert_int_equal(r->said[1][0].evs[i].id, want[i]);
        assert_int_equal(r->said[1][0].evs[n - 1].finish, finish);
        rig_close(r);
    }
}

/* Others come and go, blocks are short, prompts are shared: the sequences stay the same. */
static void test_neighbours_change_nothing(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct engine_opts o = fake_opts();
        o.batch_max = 16;
        o.kv_dtype = seed % 2 == 0 ? DTYPE_F32 : DTYPE_INT8;
        o.kv_bytes = fake_pool_bytes(96, o.block_tokens, o.kv_dtype);
        struct rig *r = rig_open(&o);
        struct arrays a[6];
        struct sampling p[6];
        int32_t ids[6][PROMPT];
        int n[6];
        for (uint64_t i = 0; i < 6; i++) {
            p[i] = any_search(seed * 6 + i, &a[i], ids[i], &n[i]);
            if (i % 2 == 1) { /* the prompt of the one before */
                n[i] = n[i - 1];
                memcpy(ids[i], ids[i - 1], sizeof(ids[i]));
            }
            assert_int_equal(add(r, i, SEQ_WHOLE, ids[i], n[i], &p[i]), ERR_OK);
            if (i % 3 == seed % 3) (void)engine_step(r->e);
        }
        run_dry(r);
        for (uint64_t i = 0; i < 6; i++) expect_search(r, i, &p[i], ids[i], n[i]);
        rig_close(r);
    }
}

/* ---- split */

static void carry_blocks(struct rig *a, struct rig *b, uint64_t id) {
    const int32_t *ta, *tb;
    int na, nb, held;
    assert_int_equal(engine_seq_blocks(a->e, id, &ta, &na, &held), ERR_OK);
    assert_int_equal(engine_seq_blocks(b->e, id, &tb, &nb, &held), ERR_OK);
    assert_true(na == nb && held == 0);
    for (int l = 0; l < FAKE_LAYERS; l++)
        for (int i = 0; i < na; i++)
            memcpy(engine_kv_block(b->e, l, tb[i]), engine_kv_block(a->e, l, ta[i]),
                   engine_kv_block_bytes(a->e));
}

static void test_split_is_whole(void **state) {
    (void)state;
    int n_over = 0, n_pooled = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct engine_opts o = fake_opts();
        struct rig *a = rig_open(&o), *b = rig_open(&o);
        struct arrays arrays;
        struct token_event first[2 * WIDTH];
        int32_t ids[PROMPT];
        int n, n_first, n_next = 0;
        struct sampling p = any_search(seed, &arrays, ids, &n);
        assert_int_equal(add(a, 5, SEQ_PREFILL, ids, n, &p), ERR_OK);
        assert_int_equal(add(b, 5, SEQ_IMPORT, ids, n, &p), ERR_OK);
        run_dry(a);
        assert_true(stats_of(a).held == 1 && stats_of(a).slots_free == 8);
        n_first = a->n_events[5];
        for (int i = 0; i < n_first; i++) {
            first[i] = a->said[5][i].evs[0];
            assert_int_equal(first[i].choice, i);
            assert_int_equal(first[i].more, i + 1 < n_first);
            n_next += first[i].finish == FINISH_NONE;
        }
        carry_blocks(a, b, 5);
        assert_int_equal(engine_seq_release(a->e, 5), ERR_OK);
        if (n_next == 0) { /* over with the first tokens: P has told it all */
            n_over++;
            assert_int_equal(n_first, p.n_choices);
            for (int i = 0; i < n_first; i++) a->said[5][i].evs[0].more = false;
            expect_search(a, 5, &p, ids, n);
            assert_int_equal(engine_seq_cancel(b->e, 5), ERR_OK);
        } else {
            n_pooled += n_next < n_first;
            assert_int_equal(engine_choice_stop(b->e, 5, 0), ERR_CONFLICT);
            assert_int_equal(start_one(b->e, 5, ids, 1), ERR_CONFLICT);
            assert_int_equal(engine_beam_start(b->e, 5, first, (size_t)n_first), ERR_OK);
            assert_int_equal(engine_beam_start(b->e, 5, first, (size_t)n_first), ERR_CONFLICT);
            run_dry(b);
            expect_search(b, 5, &p, ids, n);
        }
        rig_close(a);
        rig_close(b);
    }
    assert_true(n_over > 5 && n_pooled > 5); /* or the test says little */
}

static void test_start_checks_what_it_is_given(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig *r = rig_open(&o);
    struct sampling p = beams(2, 8);
    const int32_t ids[5] = {1, 2, 3, 4, 5};
    struct token_event ok[5] = {{.id = 1, .logprob = -1}, {.id = FAKE_VOCAB - 1, .logprob = -2}};
    assert_int_equal(engine_beam_start(r->e, 1, ok, 2), ERR_NOT_FOUND);
    assert_int_equal(add(r, 1, SEQ_IMPORT, ids, 5, &p), ERR_OK);
    for (int bad = 0; bad < 8; bad++) {
        struct token_event first[5];
        size_t n = 2;
        memcpy(first, ok, sizeof(first));
        switch (bad) {
        case 0: n = 0; break;
        case 1: n = 5; break; /* three beams of two */
        case 2: first[0].id = -1; break;
        case 3: first[1].id = FAKE_VOCAB; break;
        case 4: first[0].logprob = 0.5f; break;
        case 5: first[0].logprob = NAN; break;
        case 6: first[0].finish = first[1].finish = FINISH_EOS; break;
        case 7: first[0].n_top = TOP_LOGPROBS_MAX + 1; break;
        }
        assert_int_equal(engine_beam_start(r->e, 1, first, n), ERR_INVALID);
    }
    struct token_event ended[4] = {ok[0], ok[1], ok[1], ok[1]};
    for (int i = 1; i < 4; i++) ended[i].finish = FINISH_EOS; /* three that ended of two */
    assert_int_equal(engine_beam_start(r->e, 1, ended, 4), ERR_INVALID);
    assert_int_equal(engine_beam_start(r->e, 1, ended, 3), ERR_OK);
    assert_int_equal(engine_seq_cancel(r->e, 1), ERR_OK);
    p.new_tokens_max = 1; /* nothing is left to generate after the first */
    assert_int_equal(add(r, 2, SEQ_IMPORT, ids, 5, &p), ERR_OK);
    assert_int_equal(engine_beam_start(r->e, 2, ok, 2), ERR_INVALID);
    assert_int_equal(engine_seq_cancel(r->e, 2), ERR_OK);
    p.beam = false;
    p.new_tokens_max = 8;
    assert_int_equal(add(r, 3, SEQ_IMPORT, ids, 5, &p), ERR_OK);
    assert_int_equal(engine_beam_start(r->e, 3, ok, 2), ERR_CONFLICT);
    assert_int_equal(engine_seq_cancel(r->e, 3), ERR_OK);
    rig_close(r);
}

/* ---- limits */

static void test_limits(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig *r = rig_open(&o);
    const int32_t ids[5] = {1, 2, 3, 4, 5};
    struct sampling p = beams(8, BEAM_TOKENS_MAX);
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 5, &p), ERR_OK);
    assert_int_equal(engine_seq_cancel(r->e, 1), ERR_OK);
    p.new_tokens_max++;
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 5, &p), ERR_INVALID);
    p = beams(9, 4);
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 5, &p), ERR_TOO_LARGE); /* eight slots */
    p = beams(2, 4);
    p.do_sample = true;
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 5, &p), ERR_INVALID);
    p = beams(2, 4);
    const struct seq_opts replay = {
        .seq_id = 1, .ids = ids, .n_ids = 5, .n_prompt = 4, .sampling = &p, .priority = 5};
    assert_int_equal(engine_seq_add(r->e, &replay, NULL), ERR_INVALID);
    /* The blocks are those of as many choices: n_shared once, the others for each. */
    p = beams(4, 9); /* 13 positions of KV: four blocks, one full of prompt */
    assert_int_equal(add(r, 1, SEQ_IMPORT, ids, 5, &p), ERR_OK);
    struct engine_stats s = stats_of(r);
    assert_int_equal(s.importing, 4);
    assert_int_equal(r->start.blocks_free - s.blocks_free, 1 + 4 * 3);
    assert_int_equal(engine_seq_cancel(r->e, 1), ERR_OK);
    rig_close(r);
}

/* ---- ends */

static void test_cancel_at_every_step(void **state) {
    (void)state;
    for (int step = 0; step < 24; step++)
        for (int kind = 0; kind < 2; kind++) {
            struct engine_opts o = fake_opts();
            o.step_tokens_max = 4; /* some beams wait while others are in the pass */
            o.chunk_tokens = 4;
            struct rig *r = rig_open(&o);
            struct sampling p = beams(6, 12);
            int32_t ids[10];
            prompt_of((uint64_t)step, ids, 10);
            assert_int_equal(add(r, 1, kind == 0 ? SEQ_WHOLE : SEQ_PREFILL, ids, 10, &p), ERR_OK);
            for (int i = 0; i < step; i++) (void)engine_step(r->e);
            (void)engine_seq_cancel(r->e, 1);
            r->cancelled[1] = true;
            expect_idle(r);
            run_dry(r);
            rig_close(r);
        }
}

static void cancel_at_hook(struct rig *r, uint64_t id) {
    if (r->n_events[id] != r->hook_at) return;
    enum err e = engine_seq_cancel(r->e, id);
    assert_true(e == ERR_OK || e == ERR_NOT_FOUND);
    r->cancelled[id] = true;
    if (e == ERR_OK) assert_int_equal(stats_of(r).slots_free, r->start.slots_total);
}

static void test_cancel_while_it_is_told(void **state) {
    (void)state;
    for (int at = 1; at <= 18; at++)
        for (int kind = 0; kind < 2; kind++) {
            struct engine_opts o = fake_opts();
            struct rig *r = rig_open(&o);
            struct sampling p = beams(3, 6);
            int32_t ids[10];
            p.ignore_eos = true;
            prompt_of(4, ids, 10);
            r->hook = cancel_at_hook;
            r->hook_at = at;
            assert_int_equal(add(r, 1, kind == 0 ? SEQ_WHOLE : SEQ_PREFILL, ids, 10, &p), ERR_OK);
            run_dry(r);
            assert_int_equal(r->n_events[1], kind == 0 ? at : at < 3 ? at : 3);
            if (kind == 1 && at > 3) assert_int_equal(engine_seq_release(r->e, 1), ERR_OK);
            rig_close(r);
        }
}

/* With the last event the id is free again. */
static void again_hook(struct rig *r, uint64_t id) {
    if (r->n_events[id] != 6) return;
    const int32_t ids[3] = {9, 8, 7};
    struct sampling p = beams(2, 3);
    p.ignore_eos = true;
    memset(r->said[id], 0, sizeof(r->said[id]));
    assert_int_equal(add(r, id, SEQ_WHOLE, ids, 3, &p), ERR_OK);
}

static void test_id_is_free_with_the_last_event(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig *r = rig_open(&o);
    const int32_t ids[3] = {9, 8, 7};
    struct sampling p = beams(2, 3);
    p.ignore_eos = true;
    r->hook = again_hook;
    assert_int_equal(add(r, 1, SEQ_WHOLE, ids, 3, &p), ERR_OK);
    run_dry(r);
    assert_int_equal(r->n_events[1], 12);
    expect_search(r, 1, &p, ids, 3);
    rig_close(r);
}

static void test_failure_gives_everything_back(void **state) {
    (void)state;
    for (int step = 0; step < 6; step++)
        for (int kind = 0; kind < 2; kind++) {
            struct engine_opts o = fake_opts();
            struct rig *r = rig_open(&o);
            struct sampling p = beams(4, 10);
            int32_t ids[6];
            p.ignore_eos = true;
            prompt_of(3, ids, 6);
            assert_int_equal(add(r, 1, kind == 0 ? SEQ_WHOLE : SEQ_PREFILL, ids, 6, &p), ERR_OK);
            for (int i = 0; i < step; i++) (void)engine_step(r->e);
            fake_of(r->e)->all_nan = true;
            run_dry(r);
            if (kind == 0) assert_int_equal(r->n_failed, 1);
            if (kind == 1) assert_int_equal(engine_seq_cancel(r->e, 1), ERR_OK);
            rig_close(r);
        }
}

/* ---- guides */

/* Two sequences: 3 5 and 4 5, each then EOS. Counts its states; forks fail when `mean`. */
struct fork_guide {
    int at, *n_alive;
    const bool *mean;
};
static void *guide_fork(const void *state) {
    const struct fork_guide *from = state;
    if (*from->mean) return NULL;
    struct fork_guide *s = malloc(sizeof(*s));
    assert_non_null(s);
    *s = *from;
    (*s->n_alive)++;
    return s;
}
static bool guide_mask(void *state, uint64_t *bits, int n_ids) {
    const struct fork_guide *s = state;
    (void)n_ids;
    bits[0] = s->at == 0 ? 3u << 3 : s->at == 1 ? 1u << 5 : s->at == 2 ? 1u << FAKE_EOS : 0;
    bits[1] = 0;
    return s->at <= 2;
}
static bool guide_advance(void *state, int32_t id) {
    struct fork_guide *s = state;
    assert_true(s->at == 0 ? id == 3 || id == 4 : s->at == 1 ? id == 5 : id == FAKE_EOS);
    s->at++;
    return true;
}
static void guide_free(void *state) {
    struct fork_guide *s = state;
    if (s == NULL) return;
    (*s->n_alive)--;
    free(s);
}
static const struct token_guide_ops guide_ops = {
    .fork = guide_fork, .mask = guide_mask, .advance = guide_advance, .free = guide_free};

static void test_guide_leaves_fewer_sequences(void **state) {
    (void)state;
    for (int ignore = 0; ignore < 2; ignore++) {
        struct engine_opts o = fake_opts();
        struct rig *r = rig_open(&o);
        struct sampling p = beams(5, 10);
        int n_alive = 0;
        bool mean = false;
        struct fork_guide g = {.n_alive = &n_alive, .mean = &mean};
        int32_t ids[7];
        p.ignore_eos = ignore; /* the guide's end is an end all the same */
        prompt_of(1, ids, 7);
        assert_int_equal(
            add_guided(r, 1, SEQ_WHOLE, ids, 7, &p, (struct token_guide){&guide_ops, &g}), ERR_OK);
        run_dry(r);
        assert_int_equal(n_alive, 0);
        for (int c = 0; c < 5; c++) {
            const struct said *s = &r->said[1][c];
            assert_int_equal(s->n, 3);
            assert_int_equal(s->evs[0].id, r->said[1][c % 2].evs[0].id);
            assert_true(s->evs[1].id == 5 && s->evs[2].id == FAKE_EOS);
            assert_int_equal(s->evs[2].finish, FINISH_EOS);
        }
        assert_int_equal(r->said[1][0].evs[0].id + r->said[1][1].evs[0].id, 3 + 4);
        assert_true(r->said[1][0].evs[0].logprob > r->said[1][1].evs[0].logprob);
        rig_close(r);
    }
}

static void test_guide_without_memory_fails_the_search(void **state) {
    (void)state;
    struct engine_opts o = fake_opts();
    struct rig *r = rig_open(&o);
    struct sampling p = beams(2, 10);
    int n_alive = 0;
    bool mean = false;
    struct fork_guide g = {.n_alive = &n_alive, .mean = &mean};
    int32_t ids[7];
    prompt_of(1, ids, 7);
    assert_int_equal(add_guided(r, 1, SEQ_WHOLE, ids, 7, &p, (struct token_guide){&guide_ops, &g}),
                     ERR_OK);
    mean = true;
    run_dry(r);
    assert_true(r->n_failed == 1 && n_alive == 0 && r->n_events[1] == 0);
    rig_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_the_reference_finds),
        cmocka_unit_test(test_wide_search_is_exhaustive),
        cmocka_unit_test(test_one_beam_is_greedy),
        cmocka_unit_test(test_neighbours_change_nothing),
        cmocka_unit_test(test_split_is_whole),
        cmocka_unit_test(test_start_checks_what_it_is_given),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_cancel_at_every_step),
        cmocka_unit_test(test_cancel_while_it_is_told),
        cmocka_unit_test(test_id_is_free_with_the_last_event),
        cmocka_unit_test(test_failure_gives_everything_back),
        cmocka_unit_test(test_guide_leaves_fewer_sequences),
        cmocka_unit_test(test_guide_without_memory_fails_the_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
