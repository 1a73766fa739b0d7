/* infer_fields: the rows and who walks them. */
#include "proto/infer_fields.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

enum { PRIORITY_LAST = 5, TIMEOUT_S_MAX = 65535 };
#define PENALTY_ABS_MAX 2.0

const struct infer_req infer_req_default = {
    .head = {.n_parts = 1, .priority = PRIORITY_LAST},
    .answer = {.n = 1, .skip_special = true, .parallel_tools = true},
    .sampling = {.temperature = 1,
                 .top_p = 1,
                 .typical_p = 1,
                 .repetition_penalty = 1,
                 .new_tokens_max = INT32_MAX,
                 .n_choices = 1},
};

#define AT(member) offsetof(struct infer_req, member)
#define ANY        0, 0, false
#define FLAG(name, member)                                                                         \
    { name, INFER_BOOL, AT(member), ANY }
#define TEXT(name, member, n)                                                                      \
    { name, INFER_STR, AT(member), 0, n, false }
#define FROM(name, type, m, lo, hi)                                                                \
    { name, type, AT(m), lo, hi, false }
#define ABOVE(name, m, lo, hi)                                                                     \
    { name, INFER_F32, AT(m), lo, hi, true }

const struct infer_field infer_fields[] = {
    /* whose request it is */
    TEXT("req_id", head.req_id, REQ_ID_BYTES_MAX),
    TEXT("client_id", head.client_id, CLIENT_ID_BYTES_MAX),
    TEXT("trace", head.trace, TRACE_BYTES_MAX),
    TEXT("tenant", head.tenant, TENANT_BYTES_MAX),
    TEXT("model", head.model, MODEL_NAME_BYTES_MAX),
    TEXT("cache_salt", head.cache_salt, CACHE_SALT_BYTES_MAX),
    TEXT("adapter", head.adapter, ADAPTER_NAME_BYTES_MAX),
    {"epoch", INFER_U32, AT(head.epoch), ANY},
    {"part", INFER_U32, AT(head.part), ANY},
    FROM("n_parts", INFER_U32, head.n_parts, 1, PARTS_MAX),
    {"created", INFER_I64, AT(head.created_unix_s), ANY},
    FROM("priority", INFER_I32, head.priority, 1, PRIORITY_LAST),
    FROM("timeout", INFER_I32, head.timeout_s, 0, TIMEOUT_S_MAX),
    {"time_limit_ms", INFER_U32, AT(head.time_limit_ms), ANY},
    FLAG("is_recompute", head.is_recompute),

    /* what the answer shows */
    FROM("api", INFER_ENUM, answer.api, 0, API_COUNT - 1),
    FROM("errors", INFER_ENUM, answer.errors, 0, API_ERRORS_COUNT - 1),
    FLAG("stream", answer.stream),
    FROM("n", INFER_I32, answer.n, 1, CHOICES_MAX),
    FLAG("include_stop_str_in_output", answer.include_stop),
    FLAG("skip_special_tokens", answer.skip_special),
    FLAG("details", answer.details),
    FLAG("decoder_input_details", answer.decoder_input_details),
    FLAG("return_full_text", answer.return_full_text),
    FLAG("perf_stat", answer.perf_stat),
    FLAG("echo", answer.echo),
    FLAG("prompt_only", answer.prompt_only),
    FLAG("root_array", answer.root_array),
    FLAG("include_usage", answer.include_usage),
    FLAG("include_usage_set", answer.include_usage_set),
    FLAG("continuous_usage_stats", answer.continuous_usage),
    FLAG("seed_given", answer.seed_given),
    FLAG("return_token_ids", answer.token_ids),
    FLAG("return_tokens_as_token_ids", answer.tokens_as_ids),
    FLAG("show_prompt_logprobs", answer.show_prompt_logprobs),
    FLAG("show_logprobs", answer.show_logprobs),
    FLAG("top_tokens", answer.top_tokens),
    FLAG("token_logprobs", answer.token_logprobs),
    FLAG("token_ranks", answer.token_ranks),
    FROM("tools", INFER_ENUM, answer.tools, 0, TOOLS_COUNT - 1),
    FLAG("parallel_tool_calls", answer.parallel_tools),
    FLAG("tools_forced", answer.tools_forced),
    FLAG("reasoning", answer.reasoning),
    FLAG("channels", answer.channels),
    FLAG("thinking_open", answer.thinking_open),
    FLAG("analysis_open", answer.analysis_open),
    FLAG("drop_reasoning", answer.drop_reasoning),
    FLAG("hide_context", answer.hide_context),
    TEXT("output_name", answer.output_name, MODEL_NAME_BYTES_MAX),
    FROM("tensors", INFER_U32, answer.tensors, 0, TENSOR_MAX),
    TEXT("echoed", answer.echoed, ECHOED_BYTES_MAX),
    FLAG("reasoning_summary", answer.summary),
    FLAG("reasoning_sealed", answer.sealed),
    FLAG("event_ids", answer.event_ids),

    /* what is asked for */
    FROM("work", INFER_ENUM, work, 0, WORK_COUNT - 1),
    FLAG("do_sample", sampling.do_sample),
    FROM("temperature", INFER_F32, sampling.temperature, 0, FLT_MAX),
    FROM("top_k", INFER_I32, sampling.top_k, 0, INT32_MAX),
    ABOVE("top_p", sampling.top_p, 0, 1),
    FROM("min_p", INFER_F32, sampling.min_p, 0, 1),
    ABOVE("typical_p", sampling.typical_p, 0, 1),
    ABOVE("repetition_penalty", sampling.repetition_penalty, 0, FLT_MAX),
    FROM("frequency_penalty", INFER_F32, sampling.frequency_penalty, -PENALTY_ABS_MAX,
         PENALTY_ABS_MAX),
    FROM("presence_penalty", INFER_F32, sampling.presence_penalty, -PENALTY_ABS_MAX,
         PENALTY_ABS_MAX),
    FROM("penalty_window", INFER_I32, sampling.penalty_window, 0, INT32_MAX),
    {"seed", INFER_U64, AT(sampling.seed), ANY},
    FLAG("ignore_eos", sampling.ignore_eos),
    FROM("new_tokens_max", INFER_I32, sampling.new_tokens_max, 1, INT32_MAX),
    FROM("new_tokens_min", INFER_I32, sampling.new_tokens_min, 0, INT32_MAX),
    FLAG("logprobs", sampling.logprobs),
    FROM("top_logprobs", INFER_I32, sampling.top_logprobs, 0, TOP_LOGPROBS_MAX),
    FLAG("prompt_logprobs", sampling.prompt_logprobs),
    FROM("prompt_top_logprobs", INFER_I32, sampling.prompt_top_logprobs, 0, TOP_LOGPROBS_MAX),
    FLAG("ranks", sampling.ranks),
    FROM("decay_start", INFER_I32, sampling.decay_start, 0, INT32_MAX),
    FROM("decay_factor", INFER_F32, sampling.decay_factor, 0, 10),
    FROM("n_choices", INFER_I32, sampling.n_choices, 1, CHOICES_MAX),
    FLAG("beam", sampling.beam),
    FROM("prompt_lookup_num_tokens", INFER_I32, sampling.lookup_tokens, 0, LOOKUP_TOKENS_MAX),
    TEXT("guide", guide, GUIDE_BYTES_MAX),

    /* what P measured */
    {"prefill_us", INFER_U64, AT(measured.prefill_us), ANY},
    {"queue_wait_us", INFER_U64, AT(measured.queue_wait_us), ANY},
    {"prefill_batch", INFER_U32, AT(measured.prefill_batch), ANY},
    FROM("cached_tokens", INFER_U32, measured.cached_tokens, 0, PROMPT_TOKENS_MAX),
    {NULL, INFER_BOOL, 0, ANY},
};

/* The value at `at` as a number that rows compare; of a string its length. */
static double value_of(enum infer_type type, const void *at) {
    const char *s;
    switch (type) {
    case INFER_BOOL: return *(const bool *)at;
    case INFER_ENUM: return *(const unsigned *)at;
    case INFER_I32: return *(const int32_t *)at;
    case INFER_U32: return *(const uint32_t *)at;
    case INFER_I64: return (double)*(const int64_t *)at;
    case INFER_U64: return (double)*(const uint64_t *)at;
    case INFER_F32: return (double)*(const float *)at;
    case INFER_STR: s = *(const char *const *)at; return s != NULL ? (double)strlen(s) : 0;
    }
    return 0;
}

/* False for NaN. */
static bool in_range(const struct infer_field *f, double v) {
    if (f->lo == 0 && f->hi == 0) return true;
    return (f->above_lo ? v > f->lo : v >= f->lo) && v <= f->hi;
}

/* The rows whose place is in [from, from + n) of a request; p: where that part of it lies. */
static enum err check_rows(const void *p, size_t from, size_t n, struct errbuf *eb) {
    for (const struct infer_field *f = infer_fields; f->name != NULL; f++) {
        if (f->at < from || f->at - from >= n) continue;
        double v = value_of(f->type, (const char *)p + (f->at - from));
        if (in_range(f, v)) continue;
        if (f->type == INFER_STR)
            return err_set(eb, ERR_INVALID, "%s must have at most %.0f bytes, got %.0f", f->name,
                           f->hi, v);
        return err_set(eb, ERR_INVALID, "%s must be %s %.9g to %.9g, got %.9g", f->name,
                       f->above_lo ? "above" : "from", f->lo, f->hi, v);
    }
    return ERR_OK;
}

/* Every length leads to the next one, and the last to the end. */
static bool bad_words_sound(const struct sampling *s) {
    size_t at = 0;
    while (at < s->n_bad_words) {
        int32_t len = s->bad_words[at];
        if (len < 1 || (size_t)len >= s->n_bad_words - at) return false;
        at += 1 + (size_t)len;
    }
    return true;
}

/* What the members of a sampling mean together, and its lists. */
static enum err check_together(const struct sampling *s, struct errbuf *eb) {
    const struct {
        const char *name;
        size_t n, max;
    } lists[] = {{"stop_token_ids", s->n_stop_token_ids, STOP_TOKEN_IDS_MAX},
                 {"logit_bias", s->n_logit_bias, LOGIT_BIAS_MAX},
                 {"allowed_token_ids", s->n_allowed_ids, ALLOWED_IDS_MAX},
                 {"bad_words", s->n_bad_words, BAD_WORDS_IDS_MAX}};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (lists[i].n > lists[i].max)
            return err_set(eb, ERR_INVALID, "%s must have at most %zu entries, got %zu",
                           lists[i].name, lists[i].max, lists[i].n);
    if (!bad_words_sound(s))
        return err_set(eb, ERR_INVALID, "bad_words: a word has no ids, or more than are there");
    if (s->do_sample && !(s->temperature > 0))
        return err_set(eb, ERR_INVALID,
                       "temperature must be above 0 where tokens are drawn, got 0");
    if (s->beam && (s->do_sample || s->new_tokens_max > BEAM_TOKENS_MAX))
        return err_set(eb, ERR_INVALID,
                       "a beam search draws nothing and has at most %d new tokens, got %d",
                       BEAM_TOKENS_MAX, s->new_tokens_max);
    return ERR_OK;
}

enum err sampling_check(const struct sampling *s, struct errbuf *eb) {
    enum err e = check_rows(s, offsetof(struct infer_req, sampling), sizeof(*s), eb);
    return e == ERR_OK ? check_together(s, eb) : e;
}

enum err infer_fields_check(const struct infer_req *req, struct errbuf *eb) {
    enum err e = check_rows(req, 0, sizeof(*req), eb);
    if (e == ERR_OK) e = check_together(&req->sampling, eb);
    if (e == ERR_OK && req->head.part >= req->head.n_parts)
        e = err_set(eb, ERR_INVALID, "part must be from 0 to %u, got %u", req->head.n_parts - 1,
                    req->head.part);
    if (e == ERR_OK && req->answer.n > req->sampling.n_choices)
        e = err_set(eb, ERR_INVALID, "n must be from 1 to %d, got %d", req->sampling.n_choices,
                    req->answer.n);
    return e;
}

/* ---- print */

static size_t append(char *dst, size_t cap, size_t len, const char *name, const char *value) {
    if (len >= cap) return len;
    int n = snprintf(dst + len, cap - len, "%s%s=%s", len > 0 ? " " : "", name, value);
    if (n > 0 && (size_t)n < cap - len) return len + (size_t)n;
    dst[len] = 0; /* the one that does not fit is left out */
    return cap;
}

void infer_req_print(char *dst, size_t cap, const struct infer_req *req) {
    size_t len = 0;
    char value[40];
    dst[0] = 0;
    for (const struct infer_field *f = infer_fields; f->name != NULL; f++) {
        const void *at = (const char *)req + f->at;
        double v = value_of(f->type, at);
        if (v == value_of(f->type, (const char *)&infer_req_default + f->at)) continue;
        if (f->type == INFER_STR)
            snprintf(value, sizeof(value), "%.0fB", v);
        else if (f->type == INFER_U64)
            snprintf(value, sizeof(value), "%llu", (unsigned long long)*(const uint64_t *)at);
        else
            snprintf(value, sizeof(value), "%.9g", v);
        len = append(dst, cap, len, f->name, value);
    }
}
