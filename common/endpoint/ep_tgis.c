/* ep_tgis: fmaas.GenerationService (kserve-runtimes 7): its messages, with TGIS' own checks and
 * their texts, become prompts and parameters by the names of the rows. A number that a message
 * leaves out is 0 there, and means what the chapter says. */
#include <float.h>
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/grpc/grpc_json.h"

enum {
    NEW_TOKENS_DEFAULT = 20,
    STOPS_MAX = 6,
    STOP_BYTES_MAX = 240,
    TOP_TOKENS_MAX = 10,
};
#define DECAY_MAX 10.0

#define STOPS_TEXT                                                                                 \
    "can specify at most 6 non-empty stop sequences, each not more than 240 UTF8 bytes"

struct reading {
    struct ep_read *r;
    struct json_value *sampling, *stopping, *response, *decoding; /* lent; NULL: absent */
    struct json_value *params;                                    /* what is made of them */
    uint64_t max, min;                                            /* new tokens */
    bool chooses_seed; /* one that is drawn without a seed gets one that the answer shows */
};

static void set(struct reading *t, const char *key, struct json_value *v) {
    json_obj_set(t->params, key, v);
}

static bool fail(struct reading *t, const char *text) {
    return ep_fail(t->r, 422, text);
}

static uint64_t u64_of(const struct json_value *o, const char *key) {
    uint64_t v = 0;
    return json_get_u64(o, key, &v) == JSON_OK ? v : 0;
}

static bool flag_of(const struct json_value *o, const char *key) {
    bool on = false;
    return json_get_bool(o, key, &on) == JSON_OK && on;
}

/* A number that may be absent, which is 0; one that is not finite comes as its name. False: that.
 */
static bool f64_of(const struct json_value *o, const char *key, double *v) {
    *v = 0;
    return json_get_f64(o, key, v) != JSON_WRONG_TYPE;
}

static bool is_given(const struct json_value *o, const char *key) {
    struct json_value *v;
    return json_get(o, key, &v) == JSON_OK;
}

/* ---- which token */

static bool take_drawing(struct reading *t) {
    struct json_value *s = t->sampling, *seed;
    double temperature, top_p, typical_p;
    const uint64_t top_k = u64_of(s, "top_k");
    if (!f64_of(s, "temperature", &temperature) || temperature < 0)
        return fail(t, "temperature must be >= 0.0");
    if (!f64_of(s, "top_p", &top_p) || top_p < 0 || top_p > 1)
        return fail(t, "top_p must be > 0.0 and <= 1.0");
    if (!f64_of(s, "typical_p", &typical_p) || typical_p < 0 || typical_p > 1)
        return fail(t, "typical_p must be <= 1.0");
    if (top_k > INT32_MAX) return fail(t, "top_k must be strictly positive");
    set(t, "temperature", json_new_f64(is_given(s, "temperature") ? temperature : 1));
    set(t, "top_k", json_new_i64(top_k > 0 ? (int64_t)top_k : -1));
    set(t, "top_p", json_new_f64(top_p > 0 ? top_p : 1));
    if (typical_p > 0 && typical_p < 1) set(t, "typical_p", json_new_f64(typical_p));
    if (json_get(s, "seed", &seed) == JSON_OK)
        set(t, "seed", json_ref(seed));
    else if (t->chooses_seed)
        set(t, "seed", json_new_i64((int64_t)(t->r->in->random_seed & UINT32_MAX)));
    return true;
}

static bool take_sampling(struct reading *t, const struct json_value *params) {
    const char *method = "";
    size_t n;
    json_get_str(params, "method", &method, &n);
    if (strcmp(method, "SAMPLE") == 0) return take_drawing(t);
    set(t, "temperature", json_new_i64(0)); /* what else is said of sampling is ignored */
    return true;
}

/* ---- how long */

static bool take_stops(struct reading *t) {
    struct json_value *arr;
    const char *s;
    size_t n;
    if (json_get_arr(t->stopping, "stop_sequences", &arr) != JSON_OK) return true;
    if (json_arr_len(arr) > STOPS_MAX) return fail(t, STOPS_TEXT);
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (json_as_str(json_arr_at(arr, i), &s, &n) != JSON_OK || n == 0 || n > STOP_BYTES_MAX)
            return fail(t, STOPS_TEXT);
    if (json_arr_len(arr) == 0) return true;
    set(t, "stop", json_ref(arr));
    const bool without = is_given(t->stopping, "include_stop_sequence") &&
                         !flag_of(t->stopping, "include_stop_sequence");
    set(t, "include_stop_str_in_output", json_new_bool(!without));
    return true;
}

static bool take_stopping(struct reading *t) {
    const uint64_t most = (uint64_t)t->r->ep->conf.max_iter_times;
    char text[64];
    t->max = u64_of(t->stopping, "max_new_tokens");
    t->min = u64_of(t->stopping, "min_new_tokens");
    snprintf(text, sizeof(text), "max_new_tokens must be <= %llu", (unsigned long long)most);
    if (t->max > most) return fail(t, text);
    if (t->max == 0) t->max = NEW_TOKENS_DEFAULT;
    if (t->min > t->max) return fail(t, "min_new_tokens must be <= max_new_tokens");
    set(t, "max_new_tokens", json_new_i64((int64_t)t->max));
    if (t->min > 0) set(t, "min_tokens", json_new_i64((int64_t)t->min));
    t->r->req->head.time_limit_ms = (uint32_t)u64_of(t->stopping, "time_limit_millis");
    return take_stops(t);
}

/* ---- what is allowed */

static bool take_penalties(struct reading *t) {
    struct json_value *length = NULL;
    double repetition, decay;
    if (!f64_of(t->decoding, "repetition_penalty", &repetition) ||
        !(repetition >= 0 && repetition <= FLT_MAX))
        return fail(t, "repetition_penalty must be > 0.0");
    set(t, "repetition_penalty", json_new_f64(repetition > 0 ? repetition : 1));
    if (json_get_obj(t->decoding, "length_penalty", &length) != JSON_OK) return true;
    const uint64_t start = u64_of(length, "start_index");
    if (!f64_of(length, "decay_factor", &decay) || decay < 1 || decay > DECAY_MAX)
        return fail(t, "length_penalty must be >= 1.0 and <= 10.0");
    t->r->req->sampling.decay_start = start > INT32_MAX ? INT32_MAX : (int32_t)start;
    t->r->req->sampling.decay_factor = (float)decay;
    return true;
}

/* The members of the oneof, by the names of ep_guide. */
static bool take_guide(struct reading *t) {
    static const char *const same[][2] = {
        {"json_schema", "guided_json"}, {"regex", "guided_regex"}, {"grammar", "guided_grammar"}};
    struct json_value *v, *choice;
    const char *format = "";
    size_t n;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        if (json_get(t->decoding, same[i][0], &v) == JSON_OK) set(t, same[i][1], json_ref(v));
    if (json_get_obj(t->decoding, "choice", &choice) == JSON_OK) {
        if (json_get_arr(choice, "choices", &v) != JSON_OK)
            return fail(t, "choice must have at least one of choices");
        set(t, "guided_choice", json_ref(v));
    }
    json_get_str(t->decoding, "format", &format, &n);
    if (strcmp(format, "JSON") == 0) {
        struct json_value *any = json_new_obj();
        json_obj_set(any, "json_object", json_new_bool(true));
        set(t, "structured_outputs", any);
    }
    return true;
}

/* ---- what is shown */

static bool take_response(struct reading *t) {
    struct infer_answer *a = &t->r->req->answer;
    const bool generated = flag_of(t->response, "generated_tokens"),
               input = flag_of(t->response, "input_tokens");
    const uint64_t tops = u64_of(t->response, "top_n_tokens");
    a->token_logprobs = flag_of(t->response, "token_logprobs");
    a->token_ranks = flag_of(t->response, "token_ranks");
    const bool detail = a->token_logprobs || a->token_ranks || tops > 0;
    if (detail && !generated && !input)
        return fail(t, "must request input and/or generated tokens to request extra token detail");
    if (tops > TOP_TOKENS_MAX) return fail(t, "top_n_tokens must be <= 10");
    t->r->req->sampling.ranks = a->token_ranks;
    set(t, "details", json_new_bool(generated));
    if (input) set(t, "decoder_input_details", json_new_bool(true));
    if (flag_of(t->response, "input_text")) set(t, "return_full_text", json_new_bool(true));
    if (detail) set(t, "top_logprobs", json_new_i64((int64_t)tops));
    return true;
}

static bool take_params(struct reading *t) {
    struct json_value *params = NULL;
    json_get_obj(t->r->body, "params", &params);
    json_get_obj(params, "sampling", &t->sampling);
    json_get_obj(params, "stopping", &t->stopping);
    json_get_obj(params, "response", &t->response);
    json_get_obj(params, "decoding", &t->decoding);
    const uint64_t keep = u64_of(params, "truncate_input_tokens");
    if (keep > 0) set(t, "truncate", json_new_i64(keep > INT32_MAX ? INT32_MAX : (int64_t)keep));
    return take_sampling(t, params) && take_stopping(t) && take_penalties(t) && take_guide(t) &&
           take_response(t);
}

/* ---- whose */

static bool take_names(struct ep_read *r) {
    const char *s = "";
    size_t n = 0;
    if (json_get_str(r->body, "prefix_id", &s, &n) == JSON_OK && n > 0)
        return ep_fail_with(r, 422,
                            "can't retrieve prompt prefix with id '{got}': there is no store of "
                            "prefixes",
                            "{got}", s, NULL);
    if (json_get_str(r->body, "adapter_id", &s, &n) != JSON_OK || n == 0) return true;
    if (r->ep->conf.loras == NULL)
        return ep_fail(r, 422, "adapter_id supplied but no adapter store was configured");
    if (ep_adapter_find(r, s)) return true;
    return ep_fail_with(r, 422, "can't retrieve adapter with id '{got}': it is not loaded", "{got}",
                        s, NULL);
}

/* ---- prompts */

static bool read_text(struct ep_read *r, const struct json_value *request) {
    r->prompt = "";
    r->prompt_len = 0;
    json_get_str(request, "text", &r->prompt, &r->prompt_len);
    return ep_check_text_length(r) && ep_tokenise(r, true);
}

/* No requests have no responses (kserve-runtimes 7.1). */
static bool answer_none(struct ep_read *r) {
    struct buf json = BUF_INIT;
    buf_puts(&json, "{}");
    grpc_put_made(&r->text, &grpc_fmaas_BatchedGenerationResponse, &json);
    return ep_answer_now(r);
}

static bool read_texts(struct ep_read *r) {
    struct json_value *one, *list = NULL;
    char got[24];
    if (r->stream) {
        if (json_get_obj(r->body, "request", &one) == JSON_OK) return read_text(r, one);
        return ep_fail(r, 422, "missing request");
    }
    json_get_arr(r->body, "requests", &list);
    const size_t n = json_arr_len(list);
    snprintf(got, sizeof(got), "%zu", n);
    if (n == 0) return answer_none(r);
    if (n > PARTS_MAX)
        return ep_fail_with(r, 422, "the number of requests must be at most 128, got {got}",
                            "{got}", got, NULL);
    if (n == 1) return read_text(r, json_arr_at(list, 0));
    for (size_t i = 0; i < n; i++)
        if (!read_text(r, json_arr_at(list, i)) || !ep_keep_prompt(r)) return false;
    return true;
}

bool ep_tgis_take(struct ep_read *r, bool chooses_seed) {
    struct reading t = {.r = r, .params = json_new_obj(), .chooses_seed = chooses_seed};
    r->params = t.params;
    return r->params == NULL ? ep_fail_memory(r)
                             : take_names(r) && take_params(&t) && read_texts(r);
}

bool ep_tgis_read(struct ep_read *r) {
    return ep_tgis_take(r, true);
}

static bool leaves_room(struct ep_read *r, size_t n) {
    const size_t most = (size_t)r->ep->conf.max_seq_len, min = (size_t)r->p.min_tokens;
    char got[24], m[24], c[24];
    if (r->p.given[P_TRUNCATE] && n > (size_t)r->p.truncate) n = (size_t)r->p.truncate;
    if (n >= most || n + min <= most) return true; /* the first is ep_admit()'s */
    snprintf(got, sizeof(got), "%zu", n);
    snprintf(m, sizeof(m), "%zu", min);
    snprintf(c, sizeof(c), "%zu", most);
    return ep_fail_with(r, 422,
                        "input tokens ({got}) plus prefix length (0) plus min_new_tokens ({min}) "
                        "must be <= {max}",
                        "{got}", got, "{min}", m, "{max}", c, NULL);
}

bool ep_tgis_combine(struct ep_read *r) {
    if (r->prompts == NULL) return leaves_room(r, r->ids.n);
    for (size_t i = 0; i < r->n_prompts; i++)
        if (!leaves_room(r, r->prompts[i].ids.n)) return false;
    return true;
}
