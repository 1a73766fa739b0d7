/* ep_fields: the one loop that checks the parameters against their rows. */
#include "common/endpoint/ep_fields.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_rows.h"

static const char *const type_words[] = {
    [T_F32] = "float",    [T_I32] = "integer",  [T_I64] = "integer",
    [T_U64] = "unsigned", [T_BOOL] = "boolean", [T_CHECK] = "",
};

/* After type and range. v is NULL for a row without a key. */
typedef bool check_fn(struct ep_read *r, const struct json_value *v);
static check_fn *const checks[P_COUNT] = {
    [P_TEMPERATURE] = ep_check_temperature,
    [P_SEED] = ep_check_seed,
    [P_LOGIT_BIAS] = ep_check_logit_bias,
    [P_STOP] = ep_check_stop,
    [P_STOP_SEQUENCES] = ep_check_stop_sequences,
    [P_REPEAT_PENALTY] = ep_check_repeat_penalty,
    [P_NUM_PREDICT] = ep_check_num_predict,
    [P_N_PREDICT] = ep_check_n_predict,
    [P_N_PROBS] = ep_check_n_probs,
    [P_COMPLETION_TOKENS] = ep_check_completion_tokens,
    [P_OLLAMA_TOPS] = ep_check_ollama_tops,
    [P_STOP_TOKEN_IDS] = ep_check_stop_token_ids,
    [P_INCLUDE_STOP] = ep_check_include_stop,
    [P_MAX_OUTPUT_TOKENS] = ep_check_max_output,
    [P_N] = ep_check_n,
    [P_N_CMPL] = ep_check_n_cmpl,
    [P_CHAT_LOGPROBS] = ep_check_chat_logprobs,
    [P_ADAPTER_ID] = ep_check_adapter,
    [P_VLLM_MODEL] = ep_check_vllm_model,
    [P_TEMPLATE_KWARGS] = ep_check_template_kwargs,
    [P_REQUEST_ID] = ep_check_request_id,
    [P_SUFFIX] = ep_check_suffix,
    [P_TRUNCATION_SIDE] = ep_check_truncation_side,
    [P_CACHE_SALT] = ep_check_cache_salt,
    [P_LOGITS_PROCESSORS] = ep_check_logits_processors,
    [P_PROMPT_EMBEDS] = ep_check_prompt_embeds,
    [P_LORA] = ep_check_lora,
    [P_BEAM_ELSEWHERE] = ep_check_beam_elsewhere,
    [P_STREAM_OPTIONS] = ep_check_stream_options,
    [P_GUIDE] = ep_check_guide,
    [P_BAD_WORDS] = ep_check_bad_words,
    [P_ALLOWED_TOKEN_IDS] = ep_check_allowed_ids,
};

static bool in_range(const struct ep_range *g, double v) {
    if ((g->how & R_OR_MINUS_1) && v == -1) return true;
    if (g->how & R_LO_OPEN ? !(v > g->lo) : !(v >= g->lo)) return false;
    return g->how & R_HI_OPEN ? v < g->hi : v <= g->hi;
}

static enum fam column(const struct ep_read *r) {
    return (enum fam)(r->fam - ep_families);
}

static const struct ep_range *own_range(const struct ep_read *r, const struct ep_row *p) {
    return ep_row_range(p, column(r), ep_openai_manner(r));
}

bool ep_as_openai(const struct ep_read *r) {
    return ep_rows_as_openai(column(r), ep_openai_manner(r));
}

/* With strictRanges off a value is good when any family takes it. */
static bool allowed(const struct ep_read *r, const struct ep_row *p, double v) {
    const struct ep_range *own = own_range(r, p);
    if (p->type == T_CHECK || !(own->how & R_ON) || in_range(own, v)) return true;
    for (int i = 0; !r->ep->conf.strict_ranges && i < FAM_COUNT; i++)
        if ((p->range[i].how & R_ON) && in_range(&p->range[i], v)) return true;
    return false;
}

static bool type_failed(struct ep_read *r, const struct ep_row *p) {
    const char *text = own_range(r, p) == &p->openai && p->openai_type_text != NULL
                           ? p->openai_type_text
                           : p->type_text;
    if (text != NULL) return ep_wrong_type(r, text);
    r->code = EP_INVALID_TYPE;
    return ep_fail_with(r, 422, "{key} must be {type} type.", "{key}", p->key, "{type}",
                        type_words[p->type], NULL);
}

/* Unsigned; where the range begins below 0, negative numbers of 64 bits as well. */
static bool store_u64(const struct ep_range *g, const struct json_value *v, uint64_t *at,
                      double *num) {
    int64_t i;
    if ((g->how & R_ON) && g->lo < 0 && json_as_i64(v, &i) == JSON_OK) {
        *at = (uint64_t)i;
        *num = (double)i;
        return true;
    }
    if (json_as_u64(v, at) != JSON_OK) return false;
    *num = (double)*at;
    return true;
}

/* Stores the value by type; *num is what the range looks at. False: the wrong type. */
static bool store(struct ep_read *r, const struct ep_row *p, const struct json_value *v,
                  double *num) {
    void *at = (char *)&r->p + p->at;
    double d;
    int64_t i;
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
    case T_U64: return store_u64(own_range(r, p), v, at, num);
    case T_BOOL:
        if (json_as_bool(v, &b) != JSON_OK) return false;
        *(bool *)at = b;
        return true;
    case T_CHECK: return true;
    }
    return false;
}

/* How a number is wrong, in OpenAI's words (client-apis 8.2). One that is no number, or is refused
 * in the middle of a range, has the code of any value. */
static const char *range_code(const struct ep_row *p, const struct ep_range *own, double v) {
    const bool whole = p->type != T_F32;
    if (v < own->lo || (v == own->lo && (own->how & R_LO_OPEN)))
        return whole ? "integer_below_min_value" : "decimal_below_min_value";
    if (v > own->hi || (v == own->hi && (own->how & R_HI_OPEN)))
        return whole ? "integer_above_max_value" : "decimal_above_max_value";
    return NULL;
}

static bool range_failed(struct ep_read *r, const struct ep_row *p, const struct json_value *v,
                         double num) {
    const struct ep_range *own = own_range(r, p);
    char hi[32], got[256];
    r->code = range_code(p, own, num);
    snprintf(hi, sizeof(hi), "%g", own->hi);
    json_literal(got, sizeof(got), v);
    return ep_fail_with(r, 422, own == &p->openai ? p->openai_text : p->text, "{hi}", hi, "{got}",
                        got, NULL);
}

bool ep_fields_read(struct ep_read *r, const uint8_t *order) {
    for (; *order != P_END; order++) {
        const struct ep_row *p = &ep_rows[*order];
        struct json_value *v;
        double num;
        if (p->key == NULL) { /* looks for its members itself */
            if (!checks[*order](r, NULL)) return false;
            continue;
        }
        if (p->openai_only && !ep_as_openai(r)) continue;
        if (json_get(r->params, p->key, &v) != JSON_OK) continue;
        ep_at(r, p->key);
        if (!store(r, p, v, &num)) return type_failed(r, p);
        if (!allowed(r, p, num)) return range_failed(r, p, v, num);
        r->p.given[*order] = true;
        if (checks[*order] != NULL && !checks[*order](r, v)) return false;
    }
    ep_at(r, "");
    return true;
}
