/* ep_fields: the table of generation parameters and the one loop that checks them. */
#include "common/endpoint/ep_fields.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include "common/endpoint/ep.h"

enum ptype { T_F32, T_I32, T_I64, T_U64, T_BOOL, T_CHECK };

static const char *const type_words[] = {
    [T_F32] = "float",    [T_I32] = "integer",  [T_I64] = "integer",
    [T_U64] = "unsigned", [T_BOOL] = "boolean", [T_CHECK] = "",
};

enum { R_ON = 1, R_LO_OPEN = 2, R_HI_OPEN = 4, R_OR_MINUS_1 = 8 };

struct range {
    double lo, hi;
    unsigned how;
};

struct param {
    const char *key; /* NULL: check() is always called */
    enum ptype type;
    size_t at; /* in struct ep_params */
    const char
        *text; /* outside the range; {hi}: the range's upper end, {got}: the client's literal */
    const char *type_text; /* NULL: "<key> must be <type> type." */
    bool (*check)(struct ep_read *r,
                  const struct json_object *v); /* after type and range; NULL: none */
    struct range range[FAM_COUNT];
};

#define AT(member) offsetof(struct ep_params, member)
#define ABOVE_0                                                                                    \
    { 0, FLT_MAX, R_ON | R_LO_OPEN }
#define FROM_0                                                                                     \
    { 0, FLT_MAX, R_ON }
#define UNIT                                                                                       \
    { 0, 1, R_ON | R_LO_OPEN }
#define UNIT_OPEN                                                                                  \
    { 0, 1, R_ON | R_LO_OPEN | R_HI_OPEN }
#define CLOSED(lo, hi)                                                                             \
    { lo, hi, R_ON }
#define I32_FROM(lo)                                                                               \
    { lo, INT32_MAX, R_ON }
#define I32_FROM_1_OR_M1                                                                           \
    { 1, INT32_MAX, R_ON | R_OR_MINUS_1 }
#define ALL(...)                                                                                   \
    { [0 ... FAM_COUNT - 1] = __VA_ARGS__ }
#define OPENAI(...) [FAM_CHAT] = __VA_ARGS__, [FAM_COMPLETIONS] = __VA_ARGS__
#define TRITON(...) [FAM_TRITON_TOKEN] = __VA_ARGS__, [FAM_TRITON_TEXT] = __VA_ARGS__
#define BOOLEAN(name, member)                                                                      \
    {                                                                                              \
        name, T_BOOL, AT(member), NULL, NULL, NULL, {                                              \
            { 0 }                                                                                  \
        }                                                                                          \
    }
#define CHECKED(name, fn)                                                                          \
    {                                                                                              \
        name, T_CHECK, 0, NULL, NULL, fn, {                                                        \
            { 0 }                                                                                  \
        }                                                                                          \
    }

/* clang-format off */
static const struct param params[P_COUNT] = {
    /* ---- which token is chosen */
    [P_TEMPERATURE] = {"temperature", T_F32, AT(temperature),
        "Parameter temperature must be in (0.0,{hi}], got {got}.", NULL, NULL,
        {OPENAI(FROM_0), [FAM_CHAT_OWN] = CLOSED(0, 2), [FAM_VLLM] = FROM_0, [FAM_TGI] = ABOVE_0,
         [FAM_NATIVE] = ABOVE_0, TRITON(ABOVE_0)}},
    [P_TOP_K] = {"top_k", T_I32, AT(top_k),
        "Parameter top_k must be in -1 || (0,2147483647], got {got}", NULL, NULL,
        {OPENAI(I32_FROM_1_OR_M1), [FAM_CHAT_OWN] = I32_FROM(0), [FAM_VLLM] = I32_FROM_1_OR_M1,
         [FAM_TGI] = I32_FROM(1), [FAM_NATIVE] = I32_FROM(1), TRITON(I32_FROM(0))}},
    [P_TOP_P] = {"top_p", T_F32, AT(top_p),
        "Parameter top_p must be in (0.0,1.0], got {got}.", NULL, NULL,
        {OPENAI(UNIT), [FAM_CHAT_OWN] = UNIT, [FAM_VLLM] = UNIT, [FAM_TGI] = UNIT_OPEN, [FAM_NATIVE] = UNIT_OPEN, TRITON(UNIT)}},
    [P_TYPICAL_P] = {"typical_p", T_F32, AT(typical_p),
        "Parameter typical_p must be in (0.0,1.0], got {got}.", NULL, NULL, ALL(UNIT)},
    [P_MIN_P] = {"min_p", T_F32, AT(min_p),
        "Parameter min_p must be in [0.0,1.0], got {got}.", NULL, NULL, ALL(CLOSED(0, 1))},
    [P_DO_SAMPLE] = BOOLEAN("do_sample", do_sample),
    [P_SEED] = {"seed", T_U64, AT(seed), NULL, NULL, NULL, {{0}}},
    [P_REPETITION_PENALTY] = {"repetition_penalty", T_F32, AT(repetition_penalty),
        "Parameter 'repetition_penalty' must be in (0.0, {hi}], got {got}.", NULL, NULL,
        {OPENAI({0, 2, R_ON | R_LO_OPEN}), [FAM_CHAT_OWN] = {0, 2, R_ON | R_LO_OPEN}, [FAM_VLLM] = ABOVE_0, [FAM_TGI] = ABOVE_0,
         [FAM_NATIVE] = ABOVE_0, TRITON(ABOVE_0)}},
    [P_FREQUENCY_PENALTY] = {"frequency_penalty", T_F32, AT(frequency_penalty),
        "Parameter frequency_penalty should be in [-2.0, 2.0], got {got}.", NULL, NULL, ALL(CLOSED(-2, 2))},
    [P_PRESENCE_PENALTY] = {"presence_penalty", T_F32, AT(presence_penalty),
        "Parameter presence_penalty not in [-2.0, 2.0], but got {got}.", NULL, NULL, ALL(CLOSED(-2, 2))},
    [P_LOGIT_BIAS] = CHECKED("logit_bias", ep_check_logit_bias),

    /* ---- how long */
    [P_MAX_NEW_TOKENS] = {"max_new_tokens", T_I32, AT(max_new_tokens),
        "Parameter max_new_tokens must be in (0,2147483647], got {got}.", NULL, NULL, ALL(I32_FROM(1))},
    [P_MAX_TOKENS] = {"max_tokens", T_I32, AT(max_tokens),
        "Parameter max_tokens must be (0,2147483647], got {got}",
        "Parameter max_tokens not number_integer", NULL, ALL(I32_FROM(1))},
    [P_MAX_COMPLETION_TOKENS] = {"max_completion_tokens", T_I32, AT(max_completion_tokens),
        "Parameter max_completion_tokens must be (0,2147483647], got {got}",
        "Parameter max_completion_tokens not number_integer", NULL, ALL(I32_FROM(1))},
    [P_MIN_TOKENS] = {"min_tokens", T_I32, AT(min_tokens),
        "Parameter min_tokens must be in [0,2147483647], got {got}.", NULL, NULL, ALL(I32_FROM(0))},
    [P_STOP] = CHECKED("stop", ep_check_stop),
    [P_STOP_TOKEN_IDS] = CHECKED("stop_token_ids", ep_check_stop_token_ids),
    [P_INCLUDE_STOP] = CHECKED("include_stop_str_in_output", ep_check_include_stop),
    [P_SKIP_SPECIAL] = BOOLEAN("skip_special_tokens", skip_special),
    [P_IGNORE_EOS] = BOOLEAN("ignore_eos", ignore_eos),

    /* ---- how many */
    [P_N] = {"n", T_U64, AT(n), "Parameter [n] should be in [1, 8192], got {got}. ", NULL, ep_check_n,
        ALL(CLOSED(1, 8192))},
    [P_BEST_OF] = {"best_of", T_U64, AT(best_of), "Parameter [best_of] should be in [1, 128], got {got}.",
        NULL, NULL, ALL(CLOSED(1, 128))},
    [P_BEAM] = BOOLEAN("use_beam_search", beam),

    /* ---- log-probabilities: chat says bool and top_logprobs, completions a number, TGI top_n_tokens */
    [P_CHAT_LOGPROBS] = CHECKED("logprobs", ep_check_chat_logprobs),
    [P_TOP_LOGPROBS] = {"top_logprobs", T_I32, AT(top_logprobs),
        "Parameter top logprobs must be in [0, 20], got {got}.", NULL, NULL, ALL(CLOSED(0, TOP_LOGPROBS_MAX))},
    [P_LOGPROBS] = {"logprobs", T_I32, AT(logprobs), "logprobs should be in range [0, 5], got {got}.",
        NULL, NULL, ALL(CLOSED(0, 5))},
    [P_PROMPT_LOGPROBS] = {"prompt_logprobs", T_I32, AT(prompt_logprobs),
        "Parameter prompt_logprobs must be in [0, 20], got {got}.", NULL, NULL, ALL(CLOSED(0, TOP_LOGPROBS_MAX))},
    [P_TOP_N_TOKENS] = {"top_n_tokens", T_I32, AT(top_n_tokens),
        "Parameter top_n_tokens must be in [0,5], got {got}.", NULL, NULL, ALL(CLOSED(0, 5))},

    /* ---- options of the answer and of the service */
    [P_WATERMARK] = BOOLEAN("watermark", watermark),
    [P_BATCH_SIZE] = {"batch_size", T_I32, AT(batch_size),
        "Parameter batch_size must be in (0,2147483647], got {got}.", NULL, NULL, ALL(I32_FROM(1))},
    [P_PRIORITY] = {"priority", T_U64, AT(priority), "Parameter priority must be in [1,5], got {got}.",
        NULL, NULL, ALL(CLOSED(1, 5))},
    [P_OPENAI_PRIORITY] = {"priority", T_I64, AT(openai_priority), NULL, NULL, NULL, {{0}}},
    [P_TIMEOUT] = {"timeout", T_U64, AT(timeout),
        "Parameter timeout must be strictly positive and small than 65535 seconds, got {got}.", NULL, NULL,
        ALL(CLOSED(1, 65535))},
    [P_DETAILS] = BOOLEAN("details", details),
    [P_DECODER_INPUT_DETAILS] = BOOLEAN("decoder_input_details", decoder_input_details),
    [P_RETURN_FULL_TEXT] = BOOLEAN("return_full_text", return_full_text),
    [P_PERF_STAT] = BOOLEAN("perf_stat", perf_stat),
    [P_TRUNCATE] = {"truncate", T_I32, AT(truncate), "truncate must be in (0,2147483647], got {got}.",
        NULL, NULL, ALL(I32_FROM(1))},
    [P_TRUNCATE_PROMPT_TOKENS] = {"truncate_prompt_tokens", T_I32, AT(truncate_prompt_tokens),
        "Parameter truncate_prompt_tokens must be in -1 || (0,2147483647], got {got}", NULL, NULL,
        ALL(I32_FROM_1_OR_M1)},
    [P_ADAPTER_ID] = CHECKED("adapter_id", ep_check_adapter),
    [P_VLLM_MODEL] = CHECKED("model", ep_check_vllm_model),
    [P_TEMPLATE_KWARGS] = CHECKED("chat_template_kwargs", ep_check_template_kwargs),
    [P_REQUEST_ID] = CHECKED("request_id", ep_check_request_id),
    [P_ECHO] = BOOLEAN("echo", echo),
    [P_SUFFIX] = CHECKED("suffix", ep_check_suffix),
    [P_BEAM_ELSEWHERE] = CHECKED("use_beam_search", ep_check_beam_elsewhere),
    [P_ADD_SPECIAL] = BOOLEAN("add_special_tokens", add_special),
    [P_ADD_GENERATION_PROMPT] = BOOLEAN("add_generation_prompt", add_generation_prompt),
    [P_CONTINUE_FINAL] = BOOLEAN("continue_final_message", continue_final),
    [P_STREAM] = BOOLEAN("stream", stream),
    [P_STREAM_OPTIONS] = CHECKED("stream_options", ep_check_stream_options),

    /* ---- which tokens are allowed at all */
    [P_GUIDE] = CHECKED(NULL, ep_check_guide),
    [P_BAD_WORDS] = CHECKED("bad_words", ep_check_bad_words),
    [P_ALLOWED_TOKEN_IDS] = CHECKED("allowed_token_ids", ep_check_allowed_ids),

    /* ---- how fast */
    [P_LOOKUP_TOKENS] = {"prompt_lookup_num_tokens", T_I32, AT(lookup_tokens),
        "Parameter prompt_lookup_num_tokens must be in [0,{hi}], got {got}.", NULL, NULL,
        ALL(CLOSED(0, LOOKUP_TOKENS_MAX))},
};
/* clang-format on */

static bool in_range(const struct range *g, double v) {
    if ((g->how & R_OR_MINUS_1) && v == -1) return true;
    if (g->how & R_LO_OPEN ? !(v > g->lo) : !(v >= g->lo)) return false;
    return g->how & R_HI_OPEN ? v < g->hi : v <= g->hi;
}

static int column(const struct ep_read *r) {
    return (int)(r->fam - ep_families);
}

/* With strictRanges off a value is good when any family takes it. */
static bool allowed(const struct ep_read *r, const struct param *p, double v) {
    const struct range *own = &p->range[column(r)];
    if (!(own->how & R_ON) || in_range(own, v)) return true;
    for (int i = 0; !r->ep->conf.strict_ranges && i < FAM_COUNT; i++)
        if ((p->range[i].how & R_ON) && in_range(&p->range[i], v)) return true;
    return false;
}

static bool type_failed(struct ep_read *r, const struct param *p) {
    if (p->type_text != NULL) return ep_fail(r, 422, p->type_text);
    return ep_fail_with(r, 422, "{key} must be {type} type.", "{key}", p->key, "{type}",
                        type_words[p->type], NULL);
}

/* Stores the value by type; *num is what the range looks at. False: the wrong type. */
static bool store(struct ep_read *r, const struct param *p, const struct json_object *v,
                  double *num) {
    void *at = (char *)&r->p + p->at;
    double d;
    int64_t i;
    uint64_t u;
    bool b;
    *num = 0;
    switch (p->type) {
    case T_F32:
        if (json_as_f64(v, &d) != JSON_OK) return false;
        /* The engine computes in float, so the range must hold for what is left after rounding:
         * 1e-300 is no temperature. */
        *num = *(float *)at = d > FLT_MAX ? HUGE_VALF : d < -FLT_MAX ? -HUGE_VALF : (float)d;
        return true;
    case T_I32:
        if (json_as_i64(v, &i) != JSON_OK) return false;
        *num = (double)i;
        *(int32_t *)at = i > INT32_MAX ? INT32_MAX : i < INT32_MIN ? INT32_MIN : (int32_t)i;
        return true;
    case T_I64:
        if (json_as_i64(v, &i) != JSON_OK) return false;
        *num = (double)i;
        *(int64_t *)at = i;
        return true;
    case T_U64:
        if (json_as_u64(v, &u) != JSON_OK) return false;
        *num = (double)u;
        *(uint64_t *)at = u;
        return true;
    case T_BOOL:
        if (json_as_bool(v, &b) != JSON_OK) return false;
        *(bool *)at = b;
        return true;
    case T_CHECK: return true;
    }
    return false;
}

static bool range_failed(struct ep_read *r, const struct param *p, const struct json_object *v) {
    char hi[32], got[256];
    snprintf(hi, sizeof(hi), "%g", p->range[column(r)].hi);
    json_literal(got, sizeof(got), v);
    return ep_fail_with(r, 422, p->text, "{hi}", hi, "{got}", got, NULL);
}

bool ep_fields_read(struct ep_read *r, const uint8_t *order) {
    for (; *order != P_END; order++) {
        const struct param *p = &params[*order];
        struct json_object *v;
        double num;
        if (p->key == NULL) { /* looks for its members itself */
            if (!p->check(r, NULL)) return false;
            continue;
        }
        if (json_get(r->params, p->key, &v) != JSON_OK) continue;
        if (!store(r, p, v, &num)) return type_failed(r, p);
        if (!allowed(r, p, num)) return range_failed(r, p, v);
        r->p.given[*order] = true;
        if (p->check != NULL && !p->check(r, v)) return false;
    }
    return true;
}
