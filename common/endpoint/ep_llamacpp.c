/* ep_llamacpp: the body of llama.cpp's completion (client-apis 4.2): shapes of prompts, and
 * parameters by the names that rows know. What its samplers have beyond ours has no effect. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_convert.h"
#include "common/endpoint/ep_rows.h"

/* What llama.cpp itself takes where neither the request nor the model says. */
static const float temperature_default = 0.8f, top_p_default = 0.95f, min_p_default = 0.05f;
enum { TOP_K_DEFAULT = 40, BIAS_BAN = -100 };

/* ---- prompts */

static bool wrong_prompt(struct ep_read *r) {
    return ep_wrong_type(r, "prompt must be a string, a list of strings and token ids, or a list "
                            "of such prompts");
}

/* Strings and ids one after another; the first string brings the tokenizer's special tokens. */
static bool read_mixed(struct ep_read *r, const struct json_value *arr) {
    const char *s;
    size_t n;
    int64_t id;
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        const struct json_value *v = json_arr_at(arr, i);
        if (json_as_i64(v, &id) == JSON_OK) {
            if (id < 0 || id > INT32_MAX) id = -1; /* admission refuses it */
            if (id_list_push(&r->ids, (int32_t)id) != ERR_OK) return ep_fail_memory(r);
            continue;
        }
        if (json_as_str(v, &s, &n) != JSON_OK) return wrong_prompt(r);
        enum err e = tokenizer_encode(r->ep->tok, s, n, i == 0, PROMPT_TOKENS_MAX + 1, &r->ids);
        if (e == ERR_NO_MEMORY) return ep_fail_memory(r);
        if (e != ERR_OK && e != ERR_TOO_LARGE)
            return ep_fail(r, 422, "prompt: the text cannot be tokenised");
    }
    return ep_check_token_count(r);
}

static bool read_one(struct ep_read *r, struct json_value *v) {
    struct json_value *arr, *o, *media;
    r->prompt = NULL;
    if (json_as_obj(v, &o) == JSON_OK) {
        if (json_get_arr(o, "multimodal_data", &media) == JSON_OK && json_arr_len(media) > 0)
            return ep_fail(r, 422, "prompt.multimodal_data is not supported, the model reads text");
        if (json_get(o, "prompt_string", &v) != JSON_OK) return wrong_prompt(r);
    }
    if (json_as_str(v, &r->prompt, &r->prompt_len) == JSON_OK)
        return ep_check_text_length(r) && ep_tokenise(r, true);
    if (json_as_arr(v, &arr) != JSON_OK) return wrong_prompt(r);
    return read_mixed(r, arr);
}

/* A list with a number in it is one prompt; else each item is one. */
static bool is_batch(const struct json_value *v) {
    int64_t id;
    if (!json_is(v, json_type_array) || json_arr_len(v) == 0) return false;
    for (size_t i = 0; i < json_arr_len(v); i++)
        if (json_as_i64(json_arr_at(v, i), &id) == JSON_OK) return false;
    return true;
}

static bool read_prompts(struct ep_read *r, struct json_value *v) {
    if (!is_batch(v)) return read_one(r, v);
    const size_t n = json_arr_len(v);
    if (n == 1) return read_one(r, json_arr_at(v, 0));
    if (n > PARTS_MAX) {
        char got[24];
        snprintf(got, sizeof(got), "%zu", n);
        return ep_fail_with(r, 422, "The number of prompts must be in [1, 128], got {got}.",
                            "{got}", got, NULL);
    }
    r->req->answer.root_array = true;
    for (size_t i = 0; i < n; i++)
        if (!read_one(r, json_arr_at(v, i)) || !ep_keep_prompt(r)) return false;
    return true;
}

/* ---- parameters */

/* A member that is made takes many times the bytes that asked for it: no more of them than count.
 */
static bool too_many_biases(struct ep_read *r, size_t n) {
    char max[24], got[24];
    if (n <= LOGIT_BIAS_MAX) return false;
    snprintf(max, sizeof(max), "%d", LOGIT_BIAS_MAX);
    snprintf(got, sizeof(got), "%zu", n);
    ep_fail_with(r, 422, "Parameter logit_bias must have at most {max} entries, got {got}.",
                 "{max}", max, "{got}", got, NULL);
    return true;
}

/* [[15043, 1.5], ["Hello", false], ..] as an object of ids. */
static bool bias_of_list(struct ep_read *r, const struct json_value *list, struct json_value *o) {
    char key[16];
    if (too_many_biases(r, json_arr_len(list))) return false;
    for (size_t i = 0; i < json_arr_len(list); i++) {
        struct json_value *pair = json_arr_at(list, i), *what, *bias;
        struct id_list ids = {0};
        const char *s;
        size_t n;
        double d = BIAS_BAN;
        bool on = true, good = json_is(pair, json_type_array) && json_arr_len(pair) == 2;
        int64_t id;
        if (good) {
            what = json_arr_at(pair, 0);
            bias = json_arr_at(pair, 1);
            if (json_as_bool(bias, &on) == JSON_OK)
                good = !on;
            else
                good = json_as_f64(bias, &d) == JSON_OK;
            if (json_as_i64(what, &id) == JSON_OK)
                good = good && id >= 0 && id <= INT32_MAX && id_list_push(&ids, (int32_t)id) == 0;
            else
                good =
                    good && json_as_str(what, &s, &n) == JSON_OK &&
                    tokenizer_encode(r->ep->tok, s, n, false, LOGIT_BIAS_MAX + 1, &ids) == ERR_OK;
        }
        for (size_t k = 0; good && k < ids.n; k++) {
            snprintf(key, sizeof(key), "%d", (int)ids.ids[k]);
            json_obj_set(o, key, json_new_f64(d));
        }
        id_list_free(&ids);
        if (too_many_biases(r, json_obj_len(o))) return false;
        if (!good)
            return ep_wrong_type(r, "logit_bias must be a list of [token id or text, number or "
                                    "false], or an object of ids");
    }
    return true;
}

static bool take_bias(struct ep_read *r) {
    struct json_value *list, *o;
    ep_at(r, "logit_bias");
    if (json_get_arr(r->params, "logit_bias", &list) != JSON_OK) return true;
    o = json_new_obj();
    bool good = bias_of_list(r, list, o);
    json_obj_set(r->params, "logit_bias", o);
    return good;
}

/* The names under which guided decoding is found; an empty grammar is none. */
static void take_guides(struct ep_read *r) {
    struct json_value *v;
    const char *s;
    size_t n;
    if (json_get(r->body, "json_schema", &v) == JSON_OK)
        json_obj_set(r->params, "guided_json", json_ref(v));
    if (json_get(r->body, "grammar", &v) == JSON_OK && (json_as_str(v, &s, &n) != JSON_OK || n > 0))
        json_obj_set(r->params, "guided_grammar", json_ref(v));
}

/* The body itself, with what rows know otherwise changed in its place. Members of vLLM's guided
 * decoding are none here. */
static bool read_params(struct ep_read *r) {
    static const char *const not_here[] = {"guided_json", "guided_regex", "guided_choice",
                                           "guided_grammar"};
    double t;
    for (size_t i = 0; i < sizeof(not_here) / sizeof(not_here[0]); i++)
        if (json_obj_find(r->body, not_here[i], NULL)) json_obj_del(r->body, not_here[i]);
    r->params = json_ref(r->body);
    if (json_get_f64(r->params, "temperature", &t) == JSON_OK && t < 0)
        json_obj_set(r->params, "temperature", json_new_i64(0));
    take_guides(r);
    return take_bias(r);
}

bool ep_llamacpp_read(struct ep_read *r) {
    struct json_value *v;
    const char *s;
    size_t n;
    if (r->in->is_recompute) return ep_read_prompt(r);
    ep_at(r, "model");
    if (json_get_str(r->body, "model", &s, &n) == JSON_OK &&
        !ep_model_named(r, s, n, "The model '{got}' does not exist."))
        return false;
    ep_at(r, "prompt");
    if (json_get(r->body, "prompt", &v) != JSON_OK)
        return ep_missing_input(r, "prompt", "prompt is missing");
    r->p.return_full_text = true; /* the answer repeats it */
    return read_prompts(r, v) && read_params(r);
}

/* ---- after the parameters */

bool ep_llamacpp_combine(struct ep_read *r) {
    struct ep_params *p = &r->p;
    if (p->given[P_N] && p->n > 1) r->req->answer.root_array = true;
    ep_drawn_by_default(r, temperature_default, TOP_K_DEFAULT, top_p_default);
    if (!p->given[P_MIN_P] && !r->ep->model->gen.min_p_set) {
        p->given[P_MIN_P] = true;
        p->min_p = min_p_default;
    }
    return true;
}
