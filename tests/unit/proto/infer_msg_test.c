/* Goal: what crosses from one instance to another arrives as it left, and bytes that are not
 * exactly that are refused. Method: random requests and events inside the limits go through pack
 * and unpack and are compared member by member; every truncation of a good message fails; each
 * bound is tried on both sides by patching one member; random bytes and random damage must not
 * crash or leak; every allocation fails once. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/infer_msg.h"
#include "proto/transcript.h"
#include "tests/unit/alloc_fault.h"

static uint64_t rng_state;

static uint64_t rnd(void) {
    rng_state += 0x9e3779b97f4a7c15u;
    uint64_t z = rng_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static size_t rnd_to(size_t n) {
    return (size_t)(rnd() % n);
} /* 0 .. n - 1 */
static bool rnd_bool(void) {
    return rnd() >> 63;
}
static float rnd_f32(float min, float max) {
    return min + (max - min) * (float)(rnd() >> 40) / 16777216.0f;
}
static char *rnd_str(size_t n_min, size_t n_max) {
    size_t n = n_min + rnd_to(n_max - n_min + 1);
    char *s = malloc(n + 1);
    for (size_t i = 0; i < n; i++) s[i] = (char)(1 + rnd_to(255));
    s[n] = 0;
    return s;
}
static char *maybe_str(size_t n_max) {
    return rnd_bool() ? rnd_str(0, n_max) : NULL;
}

static struct infer_req *rnd_req(void) {
    struct infer_req *q = infer_req_create();
    assert_non_null(q);
    q->head.req_id = maybe_str(40);
    q->head.client_id = maybe_str(CLIENT_ID_BYTES_MAX);
    q->head.trace = maybe_str(TRACE_BYTES_MAX);
    q->head.tenant = maybe_str(TENANT_BYTES_MAX);
    q->head.model = maybe_str(20);
    q->answer.output_name = maybe_str(8);
    q->guide = maybe_str(60);
    q->head.adapter = maybe_str(ADAPTER_NAME_BYTES_MAX);
    if (q->head.adapter != NULL)
        for (size_t i = 0; i < sizeof(q->head.adapter_hash); i++)
            q->head.adapter_hash[i] = (uint8_t)rnd();
    q->head.n_parts = 1 + (uint32_t)rnd_to(PARTS_MAX);
    q->head.part = (uint32_t)rnd_to(q->head.n_parts);
    q->answer.tools = (enum tool_format)rnd_to(TOOLS_COUNT);
    q->sampling.n_choices = 1 + (int32_t)rnd_to(CHOICES_MAX);
    q->answer.n = 1 + (int32_t)rnd_to((size_t)q->sampling.n_choices);
    q->head.epoch = (uint32_t)rnd();
    q->answer.api = (enum api)rnd_to(API_COUNT);
    q->answer.errors = (enum api_errors)rnd_to(API_ERRORS_COUNT);
    q->head.created_unix_s = (int64_t)rnd();
    q->head.arrival_us = rnd();
    bool *const bools[] = {&q->answer.stream,
                           &q->head.is_recompute,
                           &q->answer.include_stop,
                           &q->answer.skip_special,
                           &q->answer.details,
                           &q->answer.decoder_input_details,
                           &q->answer.return_full_text,
                           &q->answer.perf_stat,
                           &q->answer.echo,
                           &q->answer.root_array,
                           &q->answer.include_usage,
                           &q->answer.include_usage_set,
                           &q->answer.continuous_usage,
                           &q->answer.seed_given,
                           &q->answer.top_tokens,
                           &q->answer.parallel_tools,
                           &q->answer.tools_forced,
                           &q->answer.reasoning,
                           &q->answer.thinking_open,
                           &q->answer.analysis_open,
                           &q->answer.drop_reasoning,
                           &q->sampling.do_sample,
                           &q->sampling.ignore_eos,
                           &q->sampling.logprobs,
                           &q->sampling.prompt_logprobs,
                           &q->answer.prompt_only};
    for (size_t i = 0; i < sizeof(bools) / sizeof(bools[0]); i++) *bools[i] = rnd_bool();
    if (rnd_bool()) {
        q->answer.text_len = rnd_to(50);
        q->answer.text = malloc(q->answer.text_len + 1);
        for (size_t i = 0; i < q->answer.text_len; i++)
            q->answer.text[i] = (char)rnd(); /* zero bytes too */
        q->answer.text[q->answer.text_len] = 0;
    }
    q->n_ids = rnd_to(30);
    q->n_prompt = q->n_ids == 0 ? 0 : rnd_to(q->n_ids + 1);
    if (q->n_ids > 0) q->ids = calloc(q->n_ids, sizeof(*q->ids));
    for (size_t i = 0; i < q->n_ids; i++) q->ids[i] = (int32_t)(rnd() >> 33);
    q->n_stop = rnd_to(4);
    if (q->n_stop > 0) q->stop = calloc(q->n_stop, sizeof(*q->stop));
    for (size_t i = 0; i < q->n_stop; i++) q->stop[i] = rnd_str(1, 12);
    q->head.priority = 1 + (int32_t)rnd_to(5);
    q->head.timeout_s = (int32_t)rnd_to(65536);
    struct sampling *s = &q->sampling;
    s->temperature = rnd_f32(0.01f, 2.0f);
    s->top_k = (int32_t)(rnd() >> 33);
    s->top_p = rnd_f32(0.1f, 1.0f);
    s->min_p = rnd_f32(0.0f, 1.0f);
    s->typical_p = rnd_f32(0.1f, 1.0f);
    s->repetition_penalty = rnd_f32(0.1f, 3.0f);
    s->frequency_penalty = rnd_f32(-2.0f, 2.0f);
    s->presence_penalty = rnd_f32(-2.0f, 2.0f);
    s->seed = rnd();
    s->new_tokens_max = 1 + (int32_t)rnd_to(INT32_MAX);
    s->new_tokens_min = (int32_t)(rnd() >> 33);
    s->top_logprobs = (int32_t)rnd_to(TOP_LOGPROBS_MAX + 1);
    s->n_stop_token_ids = rnd_to(4);
    if (s->n_stop_token_ids > 0) s->stop_token_ids = calloc(s->n_stop_token_ids, sizeof(int32_t));
    for (size_t i = 0; i < s->n_stop_token_ids; i++) s->stop_token_ids[i] = (int32_t)rnd();
    s->n_logit_bias = rnd_to(4);
    if (s->n_logit_bias > 0) s->logit_bias = calloc(s->n_logit_bias, sizeof(*s->logit_bias));
    for (size_t i = 0; i < s->n_logit_bias; i++)
        s->logit_bias[i] = (struct logit_bias){(int32_t)rnd(), rnd_f32(-100, 100)};
    s->prompt_top_logprobs = (int32_t)rnd_to(TOP_LOGPROBS_MAX + 1);
    s->lookup_tokens = (int32_t)rnd_to(LOOKUP_TOKENS_MAX + 1);
    if ((s->beam = !s->do_sample && rnd_bool()))
        s->new_tokens_max = 1 + (int32_t)rnd_to(BEAM_TOKENS_MAX);
    if (rnd_bool()) {
        s->n_allowed_ids = rnd_to(4); /* none allowed is not the same as all allowed */
        s->allowed_ids = calloc(s->n_allowed_ids + 1, sizeof(int32_t));
        for (size_t i = 0; i < s->n_allowed_ids; i++) s->allowed_ids[i] = (int32_t)(rnd() >> 33);
    }
    for (size_t words = rnd_to(3); words > 0; words--) {
        size_t len = 1 + rnd_to(3), at = s->n_bad_words;
        int32_t *grown = calloc(at + 1 + len, sizeof(int32_t));
        if (at > 0) memcpy(grown, s->bad_words, at * sizeof(int32_t));
        free(s->bad_words);
        s->bad_words = grown;
        grown[at] = (int32_t)len;
        for (size_t i = 1; i <= len; i++) grown[at + i] = (int32_t)(rnd() >> 33);
        s->n_bad_words = at + 1 + len;
    }
    if (rnd_bool()) {
        q->replay = calloc(1, sizeof(*q->replay));
        assert_int_equal(transcript_open(q->replay, 1, (uint32_t)s->n_choices), ERR_OK);
        q->replay->seed = rnd();
        struct emitted e = {.choice = (uint16_t)rnd_to((size_t)s->n_choices)};
        e.id = (int32_t)(rnd() >> 33);
        e.finish = rnd_bool() ? FINISH_EOS : FINISH_NONE;
        assert_int_equal(transcript_add(q->replay, &e), ERR_OK);
        q->n_prompt = q->n_ids;
        if (rnd_bool()) assert_int_equal(infer_req_resume(q, UINT32_MAX), ERR_OK);
    }
    q->measured.prefill_us = rnd();
    q->measured.queue_wait_us = rnd();
    q->measured.prefill_batch = (uint32_t)rnd();
    q->measured.cached_tokens = (uint32_t)rnd_to(PROMPT_TOKENS_MAX + 1);
    return q;
}

static void same_str(const char *a, const char *b) {
    if (a == NULL || b == NULL)
        assert_ptr_equal(a, b);
    else
        assert_string_equal(a, b);
}

static void same_sampling(const struct sampling *a, const struct sampling *b) {
    struct sampling x = *a, y = *b;
    assert_int_equal(x.n_stop_token_ids, y.n_stop_token_ids);
    assert_int_equal(x.n_logit_bias, y.n_logit_bias);
    for (size_t i = 0; i < x.n_stop_token_ids; i++)
        assert_int_equal(x.stop_token_ids[i], y.stop_token_ids[i]);
    for (size_t i = 0; i < x.n_logit_bias; i++) {
        assert_int_equal(x.logit_bias[i].id, y.logit_bias[i].id);
        assert_true(x.logit_bias[i].bias == y.logit_bias[i].bias);
    }
    assert_true((x.allowed_ids == NULL) == (y.allowed_ids == NULL));
    assert_int_equal(x.n_allowed_ids, y.n_allowed_ids);
    assert_int_equal(x.n_bad_words, y.n_bad_words);
    for (size_t i = 0; i < x.n_allowed_ids; i++)
        assert_int_equal(x.allowed_ids[i], y.allowed_ids[i]);
    for (size_t i = 0; i < x.n_bad_words; i++) assert_int_equal(x.bad_words[i], y.bad_words[i]);
    assert_true(x.n_choices == y.n_choices && x.prompt_top_logprobs == y.prompt_top_logprobs);
    assert_int_equal(x.lookup_tokens, y.lookup_tokens);
    assert_int_equal(x.beam, y.beam);
    assert_true(x.do_sample == y.do_sample && x.temperature == y.temperature &&
                x.top_k == y.top_k && x.top_p == y.top_p && x.min_p == y.min_p &&
                x.typical_p == y.typical_p && x.repetition_penalty == y.repetition_penalty &&
                x.frequency_penalty == y.frequency_penalty &&
                x.presence_penalty == y.presence_penalty && x.seed == y.seed &&
                x.ignore_eos == y.ignore_eos && x.new_tokens_max == y.new_tokens_max &&
                x.new_tokens_min == y.new_tokens_min && x.logprobs == y.logprobs &&
                x.top_logprobs == y.top_logprobs && x.prompt_logprobs == y.prompt_logprobs);
}

static void same_replay(const struct transcript *a, const struct transcript *b) {
    assert_true((a == NULL) == (b == NULL));
    if (a == NULL) return;
    assert_true(a->seed == b->seed && a->n_ids == b->n_ids && a->n_choices == b->n_choices);
    for (uint32_t i = 0; i < a->n_choices; i++) {
        assert_int_equal(a->choices[i].n_ids, b->choices[i].n_ids);
        assert_int_equal(a->choices[i].finish, b->choices[i].finish);
        for (uint32_t k = 0; k < a->choices[i].n_ids; k++)
            assert_int_equal(a->choices[i].ids[k], b->choices[i].ids[k]);
    }
}

static void same_req(const struct infer_req *a, const struct infer_req *b) {
    same_replay(a->replay, b->replay);
    same_str(a->head.req_id, b->head.req_id);
    same_str(a->head.client_id, b->head.client_id);
    same_str(a->head.trace, b->head.trace);
    same_str(a->head.tenant, b->head.tenant);
    same_str(a->head.model, b->head.model);
    same_str(a->answer.output_name, b->answer.output_name);
    same_str(a->guide, b->guide);
    same_str(a->head.adapter, b->head.adapter);
    if (a->head.adapter != NULL)
        assert_memory_equal(a->head.adapter_hash, b->head.adapter_hash,
                            sizeof(a->head.adapter_hash));
    assert_true(a->head.part == b->head.part && a->head.n_parts == b->head.n_parts &&
                a->answer.n == b->answer.n && a->answer.tools == b->answer.tools &&
                a->answer.top_tokens == b->answer.top_tokens &&
                a->answer.parallel_tools == b->answer.parallel_tools &&
                a->answer.tools_forced == b->answer.tools_forced &&
                a->answer.reasoning == b->answer.reasoning &&
                a->answer.thinking_open == b->answer.thinking_open &&
                a->answer.analysis_open == b->answer.analysis_open &&
                a->answer.drop_reasoning == b->answer.drop_reasoning);
    assert_true((a->answer.text == NULL) == (b->answer.text == NULL));
    assert_int_equal(a->answer.text_len, b->answer.text_len);
    if (a->answer.text != NULL)
        assert_memory_equal(a->answer.text, b->answer.text, a->answer.text_len + 1);
    assert_int_equal(a->n_ids, b->n_ids);
    assert_int_equal(a->n_prompt, b->n_prompt);
    for (size_t i = 0; i < a->n_ids; i++) assert_int_equal(a->ids[i], b->ids[i]);
    assert_int_equal(a->n_stop, b->n_stop);
    for (size_t i = 0; i < a->n_stop; i++) same_str(a->stop[i], b->stop[i]);
    assert_true(a->head.epoch == b->head.epoch && a->answer.api == b->answer.api &&
                a->answer.errors == b->answer.errors && a->answer.stream == b->answer.stream &&
                a->head.is_recompute == b->head.is_recompute &&
                a->head.created_unix_s == b->head.created_unix_s &&
                a->answer.include_stop == b->answer.include_stop &&
                a->answer.skip_special == b->answer.skip_special &&
                a->answer.details == b->answer.details &&
                a->answer.decoder_input_details == b->answer.decoder_input_details &&
                a->answer.return_full_text == b->answer.return_full_text &&
                a->answer.perf_stat == b->answer.perf_stat && a->answer.echo == b->answer.echo &&
                a->answer.prompt_only == b->answer.prompt_only &&
                a->answer.root_array == b->answer.root_array &&
                a->answer.include_usage == b->answer.include_usage &&
                a->answer.include_usage_set == b->answer.include_usage_set &&
                a->answer.continuous_usage == b->answer.continuous_usage &&
                a->answer.seed_given == b->answer.seed_given &&
                a->head.priority == b->head.priority && a->head.timeout_s == b->head.timeout_s &&
                a->measured.prefill_us == b->measured.prefill_us &&
                a->measured.queue_wait_us == b->measured.queue_wait_us &&
                a->measured.prefill_batch == b->measured.prefill_batch &&
                a->measured.cached_tokens == b->measured.cached_tokens);
    same_sampling(&a->sampling, &b->sampling);
}

static void test_identity(void **state) {
    (void)state;
    rng_state = 1;
    for (int k = 0; k < 300; k++) {
        struct infer_req *a = rnd_req(), *b = NULL;
        struct wr w = WR_INIT, again = WR_INIT;
        infer_req_pack(&w, a);
        wr_u8(&w, 77); /* what follows belongs to the caller */
        assert_false(w.failed);
        struct rd r = rd_of(w.data, w.len);
        assert_int_equal(infer_req_unpack(&r, &b), ERR_OK);
        assert_int_equal(rd_left(&r), 1);
        same_req(a, b);
        assert_true(b->head.arrival_us == 0);
        infer_req_pack(&again, b);
        assert_int_equal(again.len, w.len - 1);
        assert_memory_equal(again.data, w.data, again.len);
        infer_req_destroy(&a);
        assert_null(a);
        infer_req_destroy(&b);
        wr_free(&w);
        wr_free(&again);
    }
}

/* A replay of another shape than its request. */
static void test_replay_must_fit(void **state) {
    (void)state;
    static const struct {
        uint32_t n_parts, n_choices, n_ids;
        bool good;
    } cases[] = {
        {1, 2, 5, true}, {1, 2, 6, false}, {1, 1, 5, false}, {1, 3, 5, false}, {2, 2, 5, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct infer_req *a = infer_req_create(), *b;
        struct wr w = WR_INIT;
        a->sampling.n_choices = 2;
        a->sampling.new_tokens_max = 5;
        a->replay = calloc(1, sizeof(*a->replay));
        assert_int_equal(transcript_open(a->replay, cases[i].n_parts, cases[i].n_choices), ERR_OK);
        for (uint32_t k = 0; k < cases[i].n_ids; k++)
            assert_int_equal(transcript_add(a->replay, &(struct emitted){.id = 1}), ERR_OK);
        infer_req_pack(&w, a);
        struct rd r = rd_of(w.data, w.len);
        assert_int_equal(infer_req_unpack(&r, &b), cases[i].good ? ERR_OK : ERR_BAD_FRAME);
        infer_req_destroy(&a);
        infer_req_destroy(&b);
        wr_free(&w);
    }
}

/* Ids behind the prompt are the only choice's of the record, or nobody's. */
static void test_resumed_ids_are_those_of_the_record(void **state) {
    (void)state;
    static const struct {
        uint32_t n_choices, n_ids;
        enum finish finish;
        int resumed; /* ids that infer_req_resume() adds */
    } cases[] = {{1, 3, FINISH_NONE, 3},
                 {1, 0, FINISH_NONE, 0},
                 {1, 2, FINISH_EOS, 0},
                 {2, 3, FINISH_NONE, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int n_wrong = cases[i].resumed > 0 ? 3 : 1; /* 1: another id, 2: one id less */
        for (int wrong = 0; wrong < n_wrong; wrong++) {
            struct infer_req *a = infer_req_create(), *b;
            struct wr w = WR_INIT;
            a->ids = calloc(8, sizeof(*a->ids));
            a->n_ids = a->n_prompt = 4;
            a->sampling.n_choices = (int32_t)cases[i].n_choices;
            a->sampling.new_tokens_max = 5;
            a->replay = calloc(1, sizeof(*a->replay));
            assert_int_equal(transcript_open(a->replay, 1, cases[i].n_choices), ERR_OK);
            for (uint32_t k = 0; k < cases[i].n_ids; k++) {
                struct emitted e = {.id = (int32_t)(40 + k)};
                if (k + 1 == cases[i].n_ids) e.finish = (uint8_t)cases[i].finish;
                assert_int_equal(transcript_add(a->replay, &e), ERR_OK);
            }
            assert_int_equal(infer_req_resume(a, 4 + cases[i].n_ids - 1), ERR_OK); /* no room */
            assert_int_equal(a->n_ids, 4);
            assert_int_equal(infer_req_resume(a, 4 + cases[i].n_ids), ERR_OK);
            assert_int_equal(infer_req_resume(a, UINT32_MAX), ERR_OK); /* once is enough */
            assert_int_equal(a->n_ids, 4 + cases[i].resumed);
            assert_int_equal(a->n_prompt, 4);
            assert_int_equal(infer_req_is_resumed(a), cases[i].resumed > 0);
            if (cases[i].resumed > 0) assert_int_equal(a->ids[6], 42);
            if (wrong == 1) a->ids[4]++;
            if (wrong == 2) a->n_ids--;
            infer_req_pack(&w, a);
            struct rd r = rd_of(w.data, w.len);
            assert_int_equal(infer_req_unpack(&r, &b), wrong == 0 ? ERR_OK : ERR_BAD_FRAME);
            infer_req_destroy(&a);
            infer_req_destroy(&b);
            wr_free(&w);
        }
    }
}

static void test_truncations(void **state) {
    (void)state;
    rng_state = 2;
    for (int k = 0; k < 20; k++) {
        struct infer_req *a = rnd_req(), *b;
        struct wr w = WR_INIT;
        infer_req_pack(&w, a);
        for (size_t n = 0; n < w.len; n++) {
            uint8_t *tight = malloc(n + 1); /* so that a sanitizer sees a read past the end */
            memcpy(tight, w.data, n);
            struct rd r = rd_of(tight, n);
            b = a;
            assert_int_equal(infer_req_unpack(&r, &b), ERR_BAD_FRAME);
            assert_null(b);
            free(tight);
        }
        infer_req_destroy(&a);
        wr_free(&w);
    }
}

/* Packs the request and says whether the other side takes it. */
static bool taken(const struct infer_req *a) {
    struct wr w = WR_INIT;
    infer_req_pack(&w, a);
    assert_false(w.failed);
    struct rd r = rd_of(w.data, w.len);
    struct infer_req *b = NULL;
    enum err e = infer_req_unpack(&r, &b);
    assert_true(e == ERR_OK ? b != NULL && rd_done(&r) : e == ERR_BAD_FRAME && b == NULL);
    infer_req_destroy(&b);
    wr_free(&w);
    return e == ERR_OK;
}

#define BOTH_SIDES(member, good, bad)                                                              \
    do {                                                                                           \
        struct infer_req *q_ = infer_req_create();                                                 \
        q_->sampling.do_sample = true;                                                             \
        q_->member = (good);                                                                       \
        if (!taken(q_)) fail_msg("%s = %s was refused", #member, #good);                           \
        q_->member = (bad);                                                                        \
        if (taken(q_)) fail_msg("%s = %s was taken", #member, #bad);                               \
        infer_req_destroy(&q_);                                                                    \
    } while (0)

static void test_number_bounds(void **state) {
    (void)state;
    BOTH_SIDES(head.priority, 1, 0);
    BOTH_SIDES(head.priority, 5, 6);
    BOTH_SIDES(head.timeout_s, 0, -1);
    BOTH_SIDES(head.timeout_s, 65535, 65536);
    BOTH_SIDES(answer.api, API_COUNT - 1, API_COUNT);
    BOTH_SIDES(measured.cached_tokens, PROMPT_TOKENS_MAX, PROMPT_TOKENS_MAX + 1);
    BOTH_SIDES(sampling.temperature, FLT_MAX, INFINITY);
    BOTH_SIDES(sampling.temperature, 1e-6f, 0.0f);
    BOTH_SIDES(sampling.temperature, 1.0f, NAN);
    BOTH_SIDES(sampling.temperature, 1.0f, -1.0f);
    BOTH_SIDES(sampling.top_k, 0, -1);
    BOTH_SIDES(sampling.top_p, 1.0f, 1.01f);
    BOTH_SIDES(sampling.top_p, 1e-6f, 0.0f);
    BOTH_SIDES(sampling.top_p, 1.0f, NAN);
    BOTH_SIDES(sampling.min_p, 0.0f, -0.1f);
    BOTH_SIDES(sampling.min_p, 1.0f, 1.1f);
    BOTH_SIDES(sampling.typical_p, 1.0f, 1.1f);
    BOTH_SIDES(sampling.typical_p, 0.1f, 0.0f);
    BOTH_SIDES(sampling.repetition_penalty, 0.01f, 0.0f);
    BOTH_SIDES(sampling.repetition_penalty, FLT_MAX, INFINITY);
    BOTH_SIDES(sampling.frequency_penalty, 2.0f, 2.1f);
    BOTH_SIDES(sampling.frequency_penalty, -2.0f, -2.1f);
    BOTH_SIDES(sampling.presence_penalty, 2.0f, 2.1f);
    BOTH_SIDES(sampling.presence_penalty, -2.0f, NAN);
    BOTH_SIDES(sampling.new_tokens_max, 1, 0);
    BOTH_SIDES(sampling.new_tokens_min, 0, -1);
    BOTH_SIDES(sampling.top_logprobs, TOP_LOGPROBS_MAX, TOP_LOGPROBS_MAX + 1);
    BOTH_SIDES(sampling.top_logprobs, 0, -1);
    BOTH_SIDES(sampling.lookup_tokens, LOOKUP_TOKENS_MAX, LOOKUP_TOKENS_MAX + 1);
    BOTH_SIDES(sampling.lookup_tokens, 0, -1);
    struct infer_req *q = infer_req_create();
    q->sampling.temperature = 0.0f; /* greedy needs none */
    assert_true(taken(q));
    infer_req_destroy(&q);
}

static char *str_of(size_t n) {
    char *s = malloc(n + 1);
    memset(s, 'a', n);
    s[n] = 0;
    return s;
}

static void test_size_bounds(void **state) {
    (void)state;
    static const struct {
        size_t at, max;
    } strs[] = {{offsetof(struct infer_req, head.req_id), REQ_ID_BYTES_MAX},
                {offsetof(struct infer_req, head.client_id), CLIENT_ID_BYTES_MAX},
                {offsetof(struct infer_req, head.trace), TRACE_BYTES_MAX},
                {offsetof(struct infer_req, head.tenant), TENANT_BYTES_MAX},
                {offsetof(struct infer_req, head.model), MODEL_NAME_BYTES_MAX},
                {offsetof(struct infer_req, answer.output_name), MODEL_NAME_BYTES_MAX}};
    for (size_t i = 0; i < sizeof(strs) / sizeof(strs[0]); i++)
        for (size_t over = 0; over < 2; over++) {
            struct infer_req *q = infer_req_create();
            *(char **)((char *)q + strs[i].at) = str_of(strs[i].max + over);
            assert_int_equal(taken(q), over == 0);
            infer_req_destroy(&q);
        }
    for (size_t over = 0; over < 2; over++) {
        struct infer_req *q = infer_req_create();
        q->n_stop = STOP_STRINGS_MAX + over;
        q->stop = calloc(q->n_stop, sizeof(*q->stop));
        for (size_t i = 0; i < q->n_stop; i++) q->stop[i] = str_of(1);
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create(); /* all stop strings together */
        q->n_stop = 2;
        q->stop = calloc(2, sizeof(*q->stop));
        q->stop[0] = str_of(STOP_STRINGS_BYTES_MAX - 10);
        q->stop[1] = str_of(10 + over);
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create(); /* an empty stop string would stop at once */
        q->n_stop = 1;
        q->stop = calloc(1, sizeof(*q->stop));
        q->stop[0] = str_of(1 - over);
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create();
        q->sampling.n_stop_token_ids = STOP_TOKEN_IDS_MAX + over;
        q->sampling.stop_token_ids = calloc(q->sampling.n_stop_token_ids, sizeof(int32_t));
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create();
        q->sampling.n_logit_bias = LOGIT_BIAS_MAX + over;
        q->sampling.logit_bias = calloc(q->sampling.n_logit_bias, sizeof(struct logit_bias));
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create();
        q->n_ids = PROMPT_TOKENS_MAX + over;
        q->n_prompt = 1;
        q->ids = calloc(q->n_ids, sizeof(*q->ids));
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create();
        q->n_ids = 3;
        q->n_prompt = 3 + over;
        q->ids = calloc(q->n_ids, sizeof(*q->ids));
        assert_int_equal(taken(q), over == 0);
        q->n_prompt = 3;
        q->ids[2] = -(int32_t)over;
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create();
        q->sampling.n_choices = CHOICES_MAX + (int32_t)over;
        assert_int_equal(taken(q), over == 0);
        q->sampling.n_choices = q->answer.n = 3;
        q->answer.n += (int32_t)over;
        assert_int_equal(taken(q), over == 0);
        q->answer.n = 1;
        q->sampling.beam = true;
        q->sampling.new_tokens_max = BEAM_TOKENS_MAX + (int32_t)over;
        assert_int_equal(taken(q), over == 0);
        q->sampling.new_tokens_max = BEAM_TOKENS_MAX;
        q->sampling.do_sample = over == 1; /* a beam search draws nothing */
        assert_int_equal(taken(q), over == 0);
        q->sampling.beam = q->sampling.do_sample = false;
        q->answer.n = 1;
        q->head.n_parts = PARTS_MAX + (uint32_t)over;
        assert_int_equal(taken(q), over == 0);
        q->head.n_parts = 2;
        q->head.part = 1 + (uint32_t)over;
        assert_int_equal(taken(q), over == 0);
        q->head.part = 0;
        q->sampling.n_bad_words = 4; /* two words; the length of the second may lead outside */
        q->sampling.bad_words = calloc(4, sizeof(int32_t));
        q->sampling.bad_words[0] = 1;
        q->sampling.bad_words[2] = 1 + (int32_t)over;
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);

        q = infer_req_create();
        q->sampling.n_logit_bias = 1;
        q->sampling.logit_bias = calloc(1, sizeof(struct logit_bias));
        q->sampling.logit_bias[0].bias = over ? NAN : 100.0f;
        assert_int_equal(taken(q), over == 0);
        infer_req_destroy(&q);
    }
}

/* The version, an unknown flag and a zero byte inside a string, each by damage to a good message.
 */
static void test_format_damage(void **state) {
    (void)state;
    struct infer_req *a = infer_req_create(), *b;
    a->head.req_id = str_of(4);
    struct wr w = WR_INIT;
    infer_req_pack(&w, a);
    static const struct {
        size_t at;
        uint8_t flip;
    } damage[] = {{0, 3}, {1, 1}, {2, 0x80}, {3, 2}, {8, 'a'}};
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        w.data[damage[i].at] ^= damage[i].flip;
        struct rd r = rd_of(w.data, w.len);
        assert_int_equal(infer_req_unpack(&r, &b), ERR_BAD_FRAME);
        w.data[damage[i].at] ^= damage[i].flip;
    }
    struct rd r = rd_of(w.data, w.len);
    assert_int_equal(infer_req_unpack(&r, &b), ERR_OK);
    infer_req_destroy(&a);
    infer_req_destroy(&b);
    wr_free(&w);
}

/* Whatever is taken packs to the bytes it came from. */
static void test_random_damage(void **state) {
    (void)state;
    rng_state = 3;
    int n_taken = 0, n_refused = 0;
    for (int k = 0; k < 4000; k++) {
        struct infer_req *a = rnd_req(), *b;
        struct wr w = WR_INIT, again = WR_INIT;
        infer_req_pack(&w, a);
        for (size_t n = 1 + rnd_to(3); n > 0; n--)
            w.data[rnd_to(w.len)] ^= (uint8_t)(1 + rnd_to(255));
        struct rd r = rd_of(w.data, w.len);
        if (infer_req_unpack(&r, &b) == ERR_OK) {
            n_taken++;
            infer_req_pack(&again, b);
            assert_int_equal(again.len, w.len - rd_left(&r));
            assert_memory_equal(again.data, w.data, again.len);
        } else {
            n_refused++;
            assert_null(b);
        }
        infer_req_destroy(&a);
        infer_req_destroy(&b);
        wr_free(&w);
        wr_free(&again);
    }
    assert_true(n_taken > 0 && n_refused > 0);
}

static struct token_event rnd_event(void) {
    struct token_event ev = {
        .id = (int32_t)(rnd() >> 33),
        .index = (int32_t)(rnd() >> 33),
        .finish = (enum finish)rnd_to(FINISH_ERROR + 1),
        .logprob = -rnd_f32(0, 20),
        .rank = (int32_t)(rnd() >> 33),
        .n_top = (int32_t)rnd_to(TOP_LOGPROBS_MAX + 1),
        .batch_size = (uint32_t)rnd(),
        .queue_wait_us = (uint32_t)rnd(),
        .step_us = (uint32_t)rnd(),
    };
    for (int32_t i = 0; i < ev.n_top; i++)
        ev.top[i] = (struct top_logprob){(int32_t)(rnd() >> 33), -rnd_f32(0, 20)};
    return ev;
}

static enum err event_trip(const struct token_event *a, struct token_event *b) {
    struct wr w = WR_INIT;
    token_event_pack(&w, a);
    for (size_t n = 0; n < w.len; n++) {
        struct rd cut = rd_of(w.data, n);
        assert_int_equal(token_event_unpack(&cut, b), ERR_BAD_FRAME);
    }
    struct rd r = rd_of(w.data, w.len);
    enum err e = token_event_unpack(&r, b);
    if (e == ERR_OK) assert_true(rd_done(&r));
    wr_free(&w);
    return e;
}

static void test_event(void **state) {
    (void)state;
    rng_state = 4;
    struct token_event a, b;
    for (int k = 0; k < 300; k++) {
        a = rnd_event();
        assert_int_equal(event_trip(&a, &b), ERR_OK);
        assert_true(a.id == b.id && a.index == b.index && a.finish == b.finish &&
                    a.logprob == b.logprob && a.rank == b.rank && a.n_top == b.n_top &&
                    a.batch_size == b.batch_size && a.queue_wait_us == b.queue_wait_us &&
                    a.step_us == b.step_us);
        for (int32_t i = 0; i < a.n_top; i++)
            assert_true(a.top[i].id == b.top[i].id && a.top[i].logprob == b.top[i].logprob);
    }
#define EVENT_BAD(member, bad)                                                                     \
    do {                                                                                           \
        a = rnd_event();                                                                           \
        a.n_top = 1;                                                                               \
        a.top[0] = (struct top_logprob){0, 0};                                                     \
        assert_int_equal(event_trip(&a, &b), ERR_OK);                                              \
        a.member = (bad);                                                                          \
        struct wr w_ = WR_INIT;                                                                    \
        token_event_pack(&w_, &a);                                                                 \
        struct rd r_ = rd_of(w_.data, w_.len);                                                     \
        assert_int_equal(token_event_unpack(&r_, &b), ERR_BAD_FRAME);                              \
        wr_free(&w_);                                                                              \
    } while (0)
    EVENT_BAD(id, -1);
    EVENT_BAD(index, -1);
    EVENT_BAD(choice, -1);
    EVENT_BAD(choice, 2 * CHOICES_MAX);
    EVENT_BAD(finish, FINISH_ERROR + 1);
    EVENT_BAD(logprob, NAN);
    EVENT_BAD(logprob, 0.5f);
    EVENT_BAD(logprob, -INFINITY);
    EVENT_BAD(rank, -1);
    EVENT_BAD(top[0].id, -1);
    EVENT_BAD(top[0].logprob, NAN);
    a = rnd_event();
    a.n_top = TOP_LOGPROBS_MAX;
    struct wr w = WR_INIT;
    token_event_pack(&w, &a);
    w.data[1 + 4 + 4 + 4 + 1 + 8 + 12] = TOP_LOGPROBS_MAX + 1;
    for (int i = 0; i < 8; i++) wr_u8(&w, 0);
    struct rd r = rd_of(w.data, w.len);
    assert_int_equal(token_event_unpack(&r, &b), ERR_BAD_FRAME);
    wr_free(&w);
}

static void test_sampling_copy(void **state) {
    (void)state;
    rng_state = 5;
    for (int k = 0; k < 50; k++) {
        struct infer_req *a = rnd_req();
        struct sampling s;
        assert_int_equal(sampling_copy(&s, &a->sampling), ERR_OK);
        same_sampling(&s, &a->sampling);
        if (s.n_logit_bias > 0) assert_ptr_not_equal(s.logit_bias, a->sampling.logit_bias);
        if (s.n_stop_token_ids > 0)
            assert_ptr_not_equal(s.stop_token_ids, a->sampling.stop_token_ids);
        sampling_free(&s);
        sampling_free(&s);
        infer_req_destroy(&a);
    }
}

static void test_nth_allocation_fails(void **state) {
    (void)state;
#if OWN_MALLOC
    rng_state = 6;
    struct infer_req *a = infer_req_create(), *b = NULL;
    a->head.req_id = str_of(3);
    a->answer.text = str_of(5);
    a->answer.text_len = 5;
    a->n_ids = a->n_prompt = 4;
    a->ids = calloc(4, sizeof(*a->ids));
    a->n_stop = 2;
    a->stop = calloc(2, sizeof(*a->stop));
    a->stop[0] = str_of(2);
    a->stop[1] = str_of(2);
    a->sampling.n_stop_token_ids = 1;
    a->sampling.stop_token_ids = calloc(1, sizeof(int32_t));
    a->sampling.n_logit_bias = 1;
    a->sampling.logit_bias = calloc(1, sizeof(struct logit_bias));
    struct wr w = WR_INIT;
    infer_req_pack(&w, a);
    int n = 0;
    for (;; n++) {
        long live = alloc_fault.live;
        alloc_fault_after(n);
        struct rd r = rd_of(w.data, w.len);
        enum err e = infer_req_unpack(&r, &b);
        if (!alloc_fault_end()) break;
        assert_int_equal(e, ERR_NO_MEMORY);
        assert_null(b);
        assert_int_equal(alloc_fault.live, live);
    }
    assert_true(n >= 8); /* one per member above */
    same_req(a, b);
    for (int k = 0; k < 2; k++) {
        struct sampling s;
        long live = alloc_fault.live;
        alloc_fault_after(k);
        enum err e = sampling_copy(&s, &a->sampling);
        assert_true(alloc_fault_end());
        assert_int_equal(e, ERR_NO_MEMORY);
        assert_int_equal(alloc_fault.live, live);
        sampling_free(&s);
    }
    infer_req_destroy(&a);
    infer_req_destroy(&b);
    wr_free(&w);
#else
    print_message("skipped: a sanitizer owns malloc in this build\n");
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_replay_must_fit),
        cmocka_unit_test(test_resumed_ids_are_those_of_the_record),
        cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_number_bounds),
        cmocka_unit_test(test_size_bounds),
        cmocka_unit_test(test_format_damage),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_event),
        cmocka_unit_test(test_sampling_copy),
        cmocka_unit_test(test_nth_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
