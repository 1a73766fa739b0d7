/* ep_infer_names: the table of Triton's and KServe's names, and what each does. */
#include "common/endpoint/ep_infer_names.h"

#include <string.h>

enum { US_PER_S = 1000000, TIMEOUT_S_MAX = 65535 };

enum own {
    OWN_STREAM,
    OWN_EXCLUDE,
    OWN_SAMPLING,
    OWN_END_ID,
    OWN_BEAMS,
    OWN_TIMEOUT,
    OWN_PRIORITY,
    OWN_LORA
};

static const struct infer_name names[] = {
    {"max_tokens", ROLE_PARAM, "max_tokens", 0},
    {"max_new_tokens", ROLE_PARAM, "max_tokens", 0},
    {"request_output_len", ROLE_PARAM, "max_tokens", 0},
    {"temperature", ROLE_PARAM, "temperature", 0},
    {"top_k", ROLE_PARAM, "top_k", 0},
    {"runtime_top_k", ROLE_PARAM, "top_k", 0},
    {"top_p", ROLE_PARAM, "top_p", 0},
    {"runtime_top_p", ROLE_PARAM, "top_p", 0},
    {"min_p", ROLE_PARAM, "min_p", 0},
    {"repetition_penalty", ROLE_PARAM, "repetition_penalty", 0},
    {"presence_penalty", ROLE_PARAM, "presence_penalty", 0},
    {"frequency_penalty", ROLE_PARAM, "frequency_penalty", 0},
    {"min_tokens", ROLE_PARAM, "min_tokens", 0},
    {"seed", ROLE_PARAM, "seed", 0},
    {"random_seed", ROLE_PARAM, "seed", 0},
    {"n", ROLE_PARAM, "n", 0},
    {"num_return_sequences", ROLE_PARAM, "n", 0},
    {"best_of", ROLE_PARAM, "best_of", 0},
    {"ignore_eos", ROLE_PARAM, "ignore_eos", 0},
    {"skip_special_tokens", ROLE_PARAM, "skip_special_tokens", 0},
    {"include_stop_str_in_output", ROLE_PARAM, "include_stop_str_in_output", 0},
    {"logprobs", ROLE_PARAM, "top_logprobs", 0},
    {"stop", ROLE_LIST, "stop", 0},
    {"stop_words", ROLE_LIST, "stop", 0},
    {"bad_words", ROLE_LIST, "bad_words", 0},
    {"stop_token_ids", ROLE_LIST, "stop_token_ids", 0},
    {"allowed_token_ids", ROLE_LIST, "allowed_token_ids", 0},
    {"logit_bias", ROLE_PARAM, "logit_bias", 0},
    {"guided_json", ROLE_PARAM, "guided_json", 0},
    {"guided_regex", ROLE_PARAM, "guided_regex", 0},
    {"guided_choice", ROLE_LIST, "guided_choice", 0},
    {"guided_grammar", ROLE_PARAM, "guided_grammar", 0},
    {"prompt_lookup_num_tokens", ROLE_PARAM, "prompt_lookup_num_tokens", 0},
    {"return_finish_reason", ROLE_FLAG, NULL, TENSOR_FINISH_REASON},
    {"return_cumulative_logprob", ROLE_FLAG, NULL, TENSOR_CUMULATIVE_LOGPROB},
    {"return_logprobs", ROLE_FLAG, NULL, TENSOR_LOGPROBS},
    {"return_log_probs", ROLE_FLAG, NULL, TENSOR_LOGPROBS},
    {"return_num_input_tokens", ROLE_FLAG, NULL, TENSOR_N_INPUT},
    {"return_num_output_tokens", ROLE_FLAG, NULL, TENSOR_N_OUTPUT},
    {"stream", ROLE_OWN, NULL, OWN_STREAM},
    {"streaming", ROLE_OWN, NULL, OWN_STREAM},
    {"exclude_input_in_output", ROLE_OWN, NULL, OWN_EXCLUDE},
    {"sampling_parameters", ROLE_OWN, NULL, OWN_SAMPLING},
    {"end_id", ROLE_OWN, "stop_token_ids", OWN_END_ID},
    {"beam_width", ROLE_OWN, NULL, OWN_BEAMS},
    {"timeout", ROLE_OWN, NULL, OWN_TIMEOUT},
    {"priority", ROLE_OWN, NULL, OWN_PRIORITY},
    {"lora_name", ROLE_OWN, NULL, OWN_LORA},
    {"pad_id", ROLE_NOTHING, NULL, 0},
    {"len_penalty", ROLE_NOTHING, NULL, 0}, /* of beams */
    {"length_penalty", ROLE_NOTHING, NULL, 0},
    {"early_stopping", ROLE_NOTHING, NULL, 0},
    {"beam_search_diversity_rate", ROLE_NOTHING, NULL, 0},
    {"spaces_between_special_tokens", ROLE_NOTHING, NULL, 0}, /* texts are as the tokenizer's */
    {"attention_mask", ROLE_NOTHING, NULL, 0},
    {"position_ids", ROLE_NOTHING, NULL, 0},
    {"token_type_ids", ROLE_NOTHING, NULL, 0},
    {"input_lengths", ROLE_NOTHING, NULL, 0},
    {"beam_idx", ROLE_NOTHING, NULL, 0},
};

/* Inputs of Triton's backends that ask for what is not here; zero: 0 asks for it too. */
static const struct {
    const char *name;
    bool zero;
} refused[] = {
    {"image", false},
    {"image_input", false},
    {"decoder_text_input", false},
    {"prompt_embedding_table", false},
    {"prompt_vocab_size", false},
    {"prompt_logprobs", true},
    {"embedding_bias_words", false},
    {"embedding_bias_weights", false},
    {"cross_attention_mask", false},
    {"return_context_logits", false},
    {"return_generation_logits", false},
    {"return_perf_metrics", false},
    {"lora_task_id", true},
    {"lora_weights", false},
    {"lora_config", false},
    {"use_beam_search", false},
    {"guided_decoding_guide_type", false},
    {"guided_decoding_guide", false},
};

bool infer_is(const char *name, const char *s, size_t n) {
    return strlen(name) == n && memcmp(name, s, n) == 0;
}

const struct infer_name *infer_name_of(const char *s, size_t n) {
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (infer_is(names[i].name, s, n)) return &names[i];
    return NULL;
}

_Static_assert(sizeof(names) / sizeof(names[0]) <= 64, "a bit for each name");

static bool is_same(const struct infer_name *a, const struct infer_name *b) {
    if (a->as != NULL && b->as != NULL) return strcmp(a->as, b->as) == 0;
    return a->as == b->as && a->role == b->role && a->what == b->what;
}

/* Of names that say the same the first. */
static size_t first_of(const struct infer_name *row) {
    size_t i = 0;
    while (!is_same(&names[i], row)) i++;
    return i;
}

bool infer_fail(struct infer_asked *t, const char *text, const char *name) {
    return ep_fail_with(t->r, 422, text, "{name}", name, "{model}", t->model, NULL);
}

bool infer_fail_value(struct infer_asked *t, const char *text, const char *name,
                      const struct json_value *v) {
    char got[64];
    json_literal(got, sizeof(got), v);
    return ep_fail_with(t->r, 422, text, "{name}", name, "{got}", got, "{model}", t->model, NULL);
}

static void set(struct infer_asked *t, const char *key, struct json_value *v) {
    json_obj_set(t->r->params, key, v);
}

/* ---- values */

bool infer_take_flag(struct infer_asked *t, const char *name, const struct json_value *v,
                     bool *on) {
    return json_as_bool(v, on) == JSON_OK ||
           infer_fail_value(t, "{name} must be a boolean, got {got}", name, v);
}

/* The vLLM backend's: a text that is an object. */
static bool take_sampling(struct infer_asked *t, const struct json_value *v) {
    struct json_value *o = NULL;
    const bool is_text = json_is(v, json_type_string);
    const enum err e =
        is_text ? json_read(&o, json_str(v), json_str_len(v), NULL, NULL) : ERR_INVALID;
    if (e == ERR_NO_MEMORY) return ep_fail_memory(t->r);
    bool good = e == ERR_OK && json_is(o, json_type_object);
    if (!good)
        infer_fail_value(t, "{name} must be the text of a JSON object, got {got}",
                         "sampling_parameters", v);
    json_obj_foreach(o, key, val) {
        const struct infer_name *row = infer_name_of(key, strlen(key));
        if (!good || val == NULL) continue;
        good = row != NULL && (row->role != ROLE_OWN || row->what == OWN_LORA)
                   ? infer_take(t, row, key, val)
                   : infer_fail(t, "sampling_parameters: unexpected member '{name}'", key);
    }
    json_put(o);
    return good;
}

/* The adapter to use; that of the path, where it names one. */
static bool take_lora(struct infer_asked *t, const char *name, const struct json_value *v) {
    struct ep_read *r = t->r;
    const char *s = "", *had = r->req->head.adapter;
    size_t n = 0;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return infer_fail_value(t, "{name} must be a string, got {got}", name, v);
    if (had != NULL)
        return infer_is(had, s, n) ||
               infer_fail_value(t, "{name} must be \"{model}\", which the path names, got {got}",
                                name, v);
    return n == 0 || ep_names_served(r, s, n) ||
           infer_fail_value(t, "{name} must be the name of an adapter, got {got}: none has it",
                            name, v);
}

static bool take_own(struct infer_asked *t, const struct infer_name *row, const char *name,
                     struct json_value *v) {
    uint64_t u = 0;
    struct json_value *list;
    switch ((enum own)row->what) {
    case OWN_STREAM: t->stream_given = true; return infer_take_flag(t, name, v, &t->stream);
    case OWN_EXCLUDE: t->exclude_given = true; return infer_take_flag(t, name, v, &t->exclude);
    case OWN_SAMPLING: return take_sampling(t, v);
    case OWN_END_ID:
        list = json_new_arr();
        json_arr_add(list, json_ref(v));
        set(t, row->as, list);
        return true;
    case OWN_BEAMS:
        return (json_as_u64(v, &u) == JSON_OK && u == 1) ||
               infer_fail_value(t, "{name} must be 1, got {got}: beam search is not available here",
                                name, v);
    case OWN_TIMEOUT: /* microseconds */
        if (json_as_u64(v, &u) != JSON_OK)
            return infer_fail_value(t, "{name} must be microseconds, 0 to 2^64-1, got {got}", name,
                                    v);
        u = u / US_PER_S + (u % US_PER_S != 0);
        if (u > 0) set(t, "timeout", json_new_i64(u > TIMEOUT_S_MAX ? TIMEOUT_S_MAX : (int64_t)u));
        return true;
    case OWN_PRIORITY: /* 0: the default */
        if (json_as_u64(v, &u) != JSON_OK)
            return infer_fail_value(t, "{name} must be 0 to 2^64-1, got {got}", name, v);
        if (u > 0) set(t, "priority", json_new_i64(u > 5 ? 5 : (int64_t)u));
        return true;
    case OWN_LORA: return take_lora(t, name, v);
    }
    return true;
}

/* An option is said once, by whatever name and in whatever place: of two nobody knows which is
 * meant. */
static bool take_once(struct infer_asked *t, const struct infer_name *row, const char *name) {
    const uint64_t bit = (uint64_t)1 << first_of(row);
    if ((t->given & bit) != 0)
        return infer_fail(t, "{name} is given twice, or under two names: it must be given once",
                          name);
    t->given |= bit;
    return true;
}

/* One element is a list of one. A text that is empty stops and forbids nothing: it is how Triton's
 * clients write that there are no such words. */
static bool take_list(struct infer_asked *t, const struct infer_name *row, struct json_value *v) {
    const bool words = strcmp(row->as, "stop") == 0 || strcmp(row->as, "bad_words") == 0;
    const bool many = json_is(v, json_type_array);
    struct json_value *list = json_new_arr();
    if (list == NULL) return ep_fail_memory(t->r);
    for (size_t i = 0; i < (many ? json_arr_len(v) : 1); i++) {
        struct json_value *item = many ? json_arr_at(v, i) : v;
        if (!words || !json_is(item, json_type_string) || json_str_len(item) > 0)
            json_arr_add(list, json_ref(item));
    }
    if (words && json_arr_len(list) == 0)
        json_put(list);
    else
        set(t, row->as, list);
    return true;
}

bool infer_is_given(const struct infer_asked *t, const struct infer_name *row) {
    return (t->given & (uint64_t)1 << first_of(row)) != 0;
}

bool infer_take(struct infer_asked *t, const struct infer_name *row, const char *name,
                struct json_value *v) {
    bool on = false;
    if (row->role != ROLE_NOTHING && !take_once(t, row, name)) return false;
    switch (row->role) {
    case ROLE_LIST: return take_list(t, row, v);
    case ROLE_PARAM: set(t, row->as, json_ref(v)); return true;
    case ROLE_FLAG:
        if (!infer_take_flag(t, name, v, &on)) return false;
        if (on) t->r->req->answer.tensors |= row->what;
        return true;
    case ROLE_OWN: return take_own(t, row, name, v);
    case ROLE_NOTHING: return true;
    }
    return true;
}

bool infer_is_refused(const char *name) {
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (strcmp(refused[i].name, name) == 0) return true;
    return false;
}

static bool asks_nothing(const struct json_value *v, bool zero) {
    double d = 1;
    bool on = true;
    return (json_as_bool(v, &on) == JSON_OK && !on) ||
           (!zero && json_as_f64(v, &d) == JSON_OK && d == 0) ||
           (json_is(v, json_type_string) && json_str_len(v) == 0) ||
           (json_is(v, json_type_array) && json_arr_len(v) == 0);
}

bool infer_check_refused(struct infer_asked *t, const char *name, const struct json_value *v) {
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (strcmp(refused[i].name, name) == 0 && !asks_nothing(v, refused[i].zero))
            return infer_fail_value(t, "{name} is not available here, got {got}", name, v);
    return true;
}
