/* ep_completions: /v1/completions (inference-api 9): a text, or token ids; a list of either is as
 * many prompts, each with choices of its own (9.4). */
#include <stdio.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_rows.h"

static bool read_ids(struct ep_read *r, const struct json_value *arr) {
    if (json_arr_len(arr) == 0) return ep_fail(r, 422, r->fam->input_empty_array);
    if (!ep_ids_from_array(r, arr))
        return ep_wrong_type(r, "All elements of the prompt array must be integers.");
    return ep_check_token_count(r);
}

static bool read_string(struct ep_read *r, const struct json_value *v) {
    if (json_as_str(v, &r->prompt, &r->prompt_len) != JSON_OK)
        return ep_wrong_type(r, r->fam->input_bad_type);
    return ep_check_text_length(r) && ep_tokenise(r, r->p.add_special);
}

static bool read_one(struct ep_read *r, struct json_value *v, bool text) {
    struct json_value *ids;
    if (text) return read_string(r, v);
    if (json_as_arr(v, &ids) != JSON_OK) return ep_wrong_type(r, r->fam->input_bad_type);
    return read_ids(r, ids);
}

/* [1,2,3], or a list of prompts: ["text",..] or [[1,2,3],..]. The first item says which. */
static bool read_list(struct ep_read *r, struct json_value *arr) {
    size_t n = json_arr_len(arr);
    if (n == 0) return ep_fail(r, 422, r->fam->input_empty_array);
    struct json_value *first = json_arr_at(arr, 0);
    bool text = json_is(first, json_type_string);
    if (!text && !json_is(first, json_type_array)) return read_ids(r, arr);
    if (n == 1) return read_one(r, first, text);
    if (n > PARTS_MAX) {
        char got[24];
        snprintf(got, sizeof(got), "%zu", n);
        return ep_fail_with(r, 422, "The number of prompts must be in [1, 128], got {got}.",
                            "{got}", got, NULL);
    }
    for (size_t i = 0; i < n; i++)
        if (!read_one(r, json_arr_at(arr, i), text) || !ep_keep_prompt(r)) return false;
    return true;
}

bool ep_completions_read(struct ep_read *r) {
    struct json_value *v, *arr;
    r->params = json_ref(r->body);
    if (!ep_model_member(r)) return false;
    if (r->in->is_recompute) return ep_read_prompt(r);
    ep_at(r, "prompt");
    if (json_get(r->body, "prompt", &v) != JSON_OK)
        return ep_missing_input(r, "prompt", r->fam->input_missing);
    if (!ep_fields_read(r, ep_early[FAM_COMPLETIONS])) return false;
    ep_at(r, "prompt");
    return json_as_arr(v, &arr) == JSON_OK ? read_list(r, arr) : read_string(r, v);
}

/* What only OpenAI's manner refuses, as vLLM does: the reference does not look at it. */
static bool combine_as_vllm(struct ep_read *r) {
    const struct ep_params *p = &r->p;
    const int32_t most = ep_tokens_asked(p);
    struct json_value *options;
    char max[16], min[16];
    ep_at(r, "stream_options");
    if (!r->stream && json_get_obj(r->params, "stream_options", &options) == JSON_OK &&
        json_obj_len(options) > 0)
        return ep_fail(r, 422, "Stream options can only be defined when `stream=True`.");
    ep_at(r, "min_tokens");
    if (most == 0 || p->min_tokens <= most) return true;
    snprintf(max, sizeof(max), "%d", most);
    snprintf(min, sizeof(min), "%d", p->min_tokens);
    return ep_fail_with(r, 422,
                        "min_tokens must be less than or equal to max_tokens={max}, got {min}.",
                        "{max}", max, "{min}", min, NULL);
}

/* Of both OpenAI forms: the prompt's log-probabilities belong to no chunk. As in vLLM a stream that
 * asks for no alternatives is taken, and gets none. */
bool ep_openai_combine(struct ep_read *r) {
    ep_at(r, "prompt_logprobs");
    if (r->stream && r->p.given[P_PROMPT_LOGPROBS] && r->p.prompt_logprobs > 0)
        return ep_fail(r, 422, "prompt_logprobs are not available when stream is true.");
    return !ep_openai_manner(r) || combine_as_vllm(r);
}
