/* ep_infer_text: POST /v2/models/{m}/generate and /generate_stream as Triton's generate extension
 * has them (kserve-runtimes 10.1): members of the body, or of its `parameters`, are inputs by their
 * names. The same paths are the reference's (inference-api 11.2, ep_triton.c), and a body has marks
 * of the one or of the other. */
#include <string.h>
#include "common/endpoint/ep_infer_names.h"

enum { ID_BYTES_MAX = 256 };

static bool is_in(const char *const *list, const char *name) {
    for (; *list != NULL; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

/* ---- whose body it is */

/* Names in `parameters`: the reference's alone, and those that say nothing, as both have them or
 * the reference is bound to ignore them there (inference-api 4.2). */
static const char *const own_parameters[] = {"max_new_tokens", "do_sample", "typical_p",
                                             "watermark",      "details",   "perf_stat",
                                             "batch_size",     NULL};
static const char *const both_parameters[] = {"temperature",
                                              "top_k",
                                              "top_p",
                                              "seed",
                                              "repetition_penalty",
                                              "priority",
                                              "timeout",
                                              "stop",
                                              "prompt_lookup_num_tokens",
                                              "use_beam_search",
                                              "frequency_penalty",
                                              "presence_penalty",
                                              "stop_token_ids",
                                              "include_stop_str_in_output",
                                              "skip_special_tokens",
                                              "ignore_eos",
                                              "n",
                                              "best_of",
                                              "logprobs",
                                              NULL};
/* What inference-api 11.2 takes from Triton's clients beside `parameters`. */
static const char *const both_members[] = {"id",         "text_input", "parameters", "max_tokens",
                                           "stop_words", "stream",     NULL};

/* Some member that Triton's backends know, and that is not in the list. */
static bool has_marks(const struct json_value *o, const char *const *both) {
    bool some = false;
    json_obj_foreach(o, name, v) {
        const bool known = infer_name_of(name, strlen(name)) != NULL || infer_is_refused(name);
        some = some || (v != NULL && known && !is_in(both, name));
    }
    return some;
}

static bool has_own(const struct json_value *o) {
    bool some = false;
    json_obj_foreach(o, name, v) {
        some = some || (v != NULL && is_in(own_parameters, name));
    }
    return some;
}

/* A text, or texts; the reference's parts of a text are objects. */
static bool is_text(const struct json_value *v) {
    for (size_t i = 0; json_is(v, json_type_array) && i < json_arr_len(v); i++)
        if (!json_is(json_arr_at(v, i), json_type_string)) return false;
    return json_is(v, json_type_string) || (json_is(v, json_type_array) && json_arr_len(v) > 0);
}

bool ep_infer_is_text(const struct ep_read *r) {
    struct json_value *text, *params = NULL;
    if (r->body == NULL || json_get(r->body, "text_input", &text) != JSON_OK || !is_text(text) ||
        json_get_obj(r->body, "parameters", &params) == JSON_WRONG_TYPE)
        return false;
    return !has_own(params) &&
           (has_marks(params, both_parameters) || has_marks(r->body, both_members));
}

/* ---- reading it */

/* An input of one element may come in a list of one. */
static bool take_member(struct infer_asked *t, const char *name, struct json_value *v) {
    const struct infer_name *row = infer_name_of(name, strlen(name));
    if (v == NULL) return true;
    if (strncmp(name, "triton_", 7) == 0)
        return infer_fail(t, "parameter keys starting with 'triton_' are reserved: '{name}'", name);
    if (strcmp(name, "binary_data_output") == 0) {
        bool on = false;
        return infer_take_flag(t, name, v, &on) &&
               (!on || infer_fail(t, "{name} must be false here: the answer is JSON", name));
    }
    if (row == NULL) return infer_check_refused(t, name, v);
    if (json_is(v, json_type_array) && row->role != ROLE_LIST && row->role != ROLE_NOTHING) {
        if (json_arr_len(v) != 1)
            return infer_fail_value(t, "{name} must have one element, got {got}", name, v);
        v = json_arr_at(v, 0);
    }
    return infer_take(t, row, name, v);
}

/* What is in both places counts in `parameters` (inference-api 11.2). */
static bool take_members(struct infer_asked *t) {
    static const char *const own[] = {"id", "text_input", "parameters", NULL};
    struct json_value *params = NULL;
    json_get_obj(t->r->body, "parameters", &params);
    json_obj_foreach(params, key, val) {
        if (!take_member(t, key, val)) return false;
    }
    const struct infer_asked said = *t;
    json_obj_foreach(t->r->body, name, v) {
        const struct infer_name *row = infer_name_of(name, strlen(name));
        if (is_in(own, name) || (row != NULL && infer_is_given(&said, row))) continue;
        if (!take_member(t, name, v)) return false;
    }
    return true;
}

static bool take_id(struct infer_asked *t) {
    struct ep_read *r = t->r;
    const char *id = "";
    size_t n = 0;
    struct buf b = BUF_INIT;
    const enum json_got got = json_get_str(r->body, "id", &id, &n);
    if (got == JSON_WRONG_TYPE) return ep_fail(r, 422, "id must be a string");
    if (got != JSON_OK || n == 0) return true;
    if (n > ID_BYTES_MAX) return ep_fail(r, 422, "id must have at most 256 bytes");
    /* what a stopInfer may name */
    if (ep_id_valid(id, n) && (r->req->head.client_id = ep_dup(id, n)) == NULL)
        return ep_fail_memory(r);
    buf_json_str(&b, id, n);
    r->req->answer.echoed = buf_steal(&b);
    return r->req->answer.echoed != NULL || ep_fail_memory(r);
}

/* The path says whether there are events, here as for the reference; `stream` false there: one
 * event. */
static bool take_manner(struct infer_asked *t) {
    struct ep_read *r = t->r;
    struct infer_answer *a = &r->req->answer;
    struct json_value *v;
    const bool whole = t->stream_given && !t->stream;
    const uint32_t probabilities = TENSOR_LOGPROBS | TENSOR_CUMULATIVE_LOGPROB;
    r->stream = r->in->path->stream == API_STREAM_ALWAYS;
    if (r->stream && whole) a->tensors |= TENSOR_AT_END;
    if (t->exclude_given && !t->exclude) {
        if (r->stream && !whole)
            return ep_fail(r, 422, "exclude_input_in_output must be true where the answer streams");
        json_obj_set(r->params, "return_full_text", json_new_bool(true));
    }
    if ((a->tensors & probabilities) != 0 && json_get(r->params, "top_logprobs", &v) != JSON_OK)
        json_obj_set(r->params, "top_logprobs", json_new_i64(0));
    a->output_name = ep_dup("text_output", strlen("text_output"));
    return a->output_name != NULL || ep_fail_memory(r);
}

static bool take_prompts(struct infer_asked *t) {
    struct ep_read *r = t->r;
    struct json_value *text = NULL;
    uint64_t choices = 1;
    if (r->in->is_recompute) return ep_read_prompt(r);
    json_get(r->body, "text_input", &text);
    const bool many = json_is(text, json_type_array);
    const size_t n = many ? json_arr_len(text) : 1;
    json_get_u64(r->params, "n", &choices);
    if (n > PARTS_MAX)
        return infer_fail(t, "text_input may have at most 128 prompts in one request", "");
    if ((n > 1 || choices > 1) && r->stream)
        return ep_fail(r, 422, "one prompt and one answer of it may be streamed");
    for (size_t i = 0; i < n; i++) {
        const struct json_value *one = many ? json_arr_at(text, i) : text;
        r->prompt = json_str(one);
        r->prompt_len = json_str_len(one);
        if (!ep_check_text_length(r) || !ep_tokenise(r, true)) return false;
        if (n > 1 && !ep_keep_prompt(r)) return false;
    }
    return true;
}

bool ep_infer_text_read(struct ep_read *r) {
    struct infer_asked t = {.r = r, .model = r->req->head.model};
    r->params = json_new_obj();
    if (r->params == NULL) return ep_fail_memory(r);
    return take_id(&t) && take_members(&t) && take_manner(&t) && take_prompts(&t);
}
