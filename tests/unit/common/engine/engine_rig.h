/* engine_rig: an engine on the fake forward pass, and an ear that remembers what each sequence
 * said. Included after cmocka.h. */
#ifndef BATON_TESTS_ENGINE_RIG_H
#define BATON_TESTS_ENGINE_RIG_H

#include "tests/unit/common/engine/fake_forward.h"

enum { SEQS = 64, TOKENS = 512 };

/* What the callbacks said, per sequence id (small numbers here). */
struct heard {
    int n_tokens, n_admitted, n_failed, n_cached, n_prompt_logprobs;
    int32_t tokens[TOKENS];
    struct token_event last;
    enum finish finish;
    bool cancelled;           /* set by the test */
    int kv_next[FAKE_LAYERS]; /* blocks announced so far */
    float prompt_logprobs[TOKENS];
    int n_embedded;
    bool scored;
    float vector[FAKE_HIDDEN], scores[FAKE_LABELS];
};
struct rig {
    struct engine *e;
    struct engine_stats start;
    struct heard heard[SEQS];
    void (*hook)(struct rig *rig, const char *what, uint64_t id); /* runs inside every callback */
    int hook_count;
};

static inline void hook(struct rig *rig, const char *what, uint64_t id) {
    assert_false(rig->heard[id].cancelled); /* nothing is heard of it any more */
    if (rig->hook != NULL) rig->hook(rig, what, id);
}

static inline void on_token(void *arg, uint64_t id, const struct token_event *ev) {
    struct rig *rig = arg;
    struct heard *h = &rig->heard[id];
    assert_int_equal(h->finish, FINISH_NONE);
    h->tokens[h->n_tokens++] = ev->id;
    h->last = *ev;
    h->finish = ev->finish;
    hook(rig, "token", id);
}
static inline void on_kv(void *arg, uint64_t id, int layer, int first, int n) {
    struct rig *rig = arg;
    struct heard *h = &rig->heard[id];
    assert_true(n > 0);
    assert_int_equal(h->n_admitted, 1);
    assert_int_equal(h->kv_next[layer], first); /* in order, no gap, no repeat */
    for (int l = 0; l < layer; l++) assert_int_equal(h->kv_next[l], first + n);
    h->kv_next[layer] = first + n;
    hook(rig, "kv", id);
}
static inline void on_admitted(void *arg, uint64_t id, int n_cached) {
    struct rig *rig = arg;
    rig->heard[id].n_admitted++;
    rig->heard[id].n_cached = n_cached;
    hook(rig, "admitted", id);
}
static inline void on_prompt_logprob(void *arg, uint64_t id, int position,
                                     const struct token_event *ev) {
    struct rig *rig = arg;
    struct heard *h = &rig->heard[id];
    h->n_prompt_logprobs++;
    assert_int_equal(h->n_prompt_logprobs, position);
    h->prompt_logprobs[position] = ev->logprob;
    hook(rig, "logprob", id);
}
static inline void on_embedded(void *arg, uint64_t id, const float *vector, const float *scores) {
    struct rig *rig = arg;
    struct heard *h = &rig->heard[id];
    h->n_embedded++;
    memcpy(h->vector, vector, sizeof(h->vector));
    h->scored = scores != NULL;
    if (scores != NULL) memcpy(h->scores, scores, sizeof(h->scores));
    hook(rig, "embedded", id);
}
static inline void on_failed(void *arg, uint64_t id, enum err e) {
    struct rig *rig = arg;
    assert_int_equal(e, ERR_INTERNAL);
    rig->heard[id].n_failed++;
    hook(rig, "failed", id);
}

static inline void rig_open(struct rig *rig, const struct engine_opts *opts) {
    struct errbuf eb = {0};
    memset(rig, 0, sizeof(*rig));
    if (engine_open_with(&rig->e, opts, &fake_ops, &eb) != ERR_OK) fail_msg("%s", eb.text);
    const struct engine_events ev = {.on_token = on_token,
                                     .on_kv = on_kv,
                                     .on_admitted = on_admitted,
                                     .on_prompt_logprob = on_prompt_logprob,
                                     .on_embedded = on_embedded,
                                     .on_failed = on_failed,
                                     .arg = rig};
    engine_set_events(rig->e, &ev);
    engine_stats(rig->e, &rig->start);
}

/* Everything is as it was at the start. */
static inline void rig_check_idle(const struct rig *rig) {
    struct engine_stats s;
    engine_stats(rig->e, &s);
    assert_int_equal(s.slots_free, rig->start.slots_total);
    assert_int_equal(s.blocks_free, rig->start.blocks_total);
    assert_true(s.waiting == 0 && s.running == 0 && s.importing == 0 && s.held == 0);
    assert_true(kv_cache_check(rig->e->kv));
}
static inline void rig_close(struct rig *rig) {
    rig_check_idle(rig);
    engine_close(&rig->e);
    assert_null(rig->e);
}

static inline struct sampling neutral(int new_tokens_max) {
    return (struct sampling){.temperature = 1,
                             .top_p = 1,
                             .typical_p = 1,
                             .repetition_penalty = 1,
                             .n_choices = 1,
                             .new_tokens_max = new_tokens_max};
}
static inline struct sampling seeded(uint64_t seed, int new_tokens_max) {
    struct sampling p = neutral(new_tokens_max);
    p.do_sample = true;
    p.temperature = 0.8f;
    p.top_k = 40;
    p.top_p = 0.95f;
    p.seed = seed;
    p.repetition_penalty = 1.1f;
    p.presence_penalty = 0.3f;
    p.frequency_penalty = 0.2f;
    return p;
}

static inline void prompt_of(uint64_t seed, int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(fake_mix(seed * 7777 + (uint64_t)i) % FAKE_VOCAB);
}

static inline enum err add_full(struct rig *rig, uint64_t id, enum seq_kind kind,
                                const int32_t *ids, int n, int n_prompt, const struct sampling *p,
                                int priority) {
    const struct seq_opts o = {.seq_id = id,
                               .kind = kind,
                               .ids = ids,
                               .n_ids = (size_t)n,
                               .n_prompt = (size_t)n_prompt,
                               .sampling = p,
                               .priority = priority};
    struct errbuf eb = {0};
    enum err e = engine_seq_add(rig->e, &o, &eb);
    if (e != ERR_OK) assert_true(eb.code == e && eb.text[0] != 0);
    return e;
}
static inline enum err add(struct rig *rig, uint64_t id, enum seq_kind kind, const int32_t *ids,
                           int n, const struct sampling *p) {
    return add_full(rig, id, kind, ids, n, n, p, 5);
}
static inline void run_dry(struct rig *rig) {
    int n = 0;
    while (engine_step(rig->e)) {
        assert_true(kv_cache_check(rig->e->kv));
        assert_true(++n < 100000);
    }
}
static inline int blocks_free(const struct rig *rig) {
    struct engine_stats s;
    engine_stats(rig->e, &s);
    return s.blocks_free;
}
static inline struct engine_stats stats_of(const struct rig *rig) {
    struct engine_stats s;
    engine_stats(rig->e, &s);
    return s;
}

static inline void check_tokens(const struct heard *h, const struct sampling *p, const int32_t *ids,
                                int n_ids, int n_prompt, int seq_tokens_max) {
    int32_t want[TOKENS];
    enum finish finish;
    int n = fake_expect(p, ids, n_ids, n_prompt, seq_tokens_max, want, &finish);
    assert_int_equal(h->n_tokens, n);
    for (int i = 0; i < n; i++) assert_int_equal(h->tokens[i], want[i]);
    assert_int_equal(h->finish, finish);
    assert_int_equal(h->last.index, n_ids - n_prompt + n - 1);
}

#endif
