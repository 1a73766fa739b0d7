/* ep_caikit: text generation as Caikit has it (kserve-runtimes 4, 6.2): its parameters, checked in
 * its manner, become those of fmaas.GenerationService, which Caikit itself asks behind it. What is
 * wrong in kind is 422, a value that is not allowed 400. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep.h"

#define SECONDS_MAX     4000000.0
#define TEMPERATURE_MIN 0.05

enum kind { K_INT, K_REAL, K_BOOL, K_TEXT, K_TEXTS, K_DECAY, K_SEED };

/* The part of TGIS' parameters that a value goes to. */
enum part { PART_PARAMS, PART_SAMPLING, PART_STOPPING, PART_RESPONSE, PART_DECODING, PARTS };
static const char *const part_names[PARTS] = {NULL, "sampling", "stopping", "response", "decoding"};

static const struct row {
    const char *name;
    enum kind kind;
    enum part part;
    const char *as; /* NULL: it has a form of its own */
} rows[] = {
    {"max_new_tokens", K_INT, PART_STOPPING, "max_new_tokens"},
    {"min_new_tokens", K_INT, PART_STOPPING, "min_new_tokens"},
    {"truncate_input_tokens", K_INT, PART_PARAMS, "truncate_input_tokens"},
    {"decoding_method", K_TEXT, PART_PARAMS, NULL},
    {"top_k", K_INT, PART_SAMPLING, "top_k"},
    {"top_p", K_REAL, PART_SAMPLING, "top_p"},
    {"typical_p", K_REAL, PART_SAMPLING, "typical_p"},
    {"temperature", K_REAL, PART_SAMPLING, "temperature"},
    {"repetition_penalty", K_REAL, PART_DECODING, "repetition_penalty"},
    {"max_time", K_REAL, PART_STOPPING, NULL},
    {"exponential_decay_length_penalty", K_DECAY, PART_DECODING, "length_penalty"},
    {"stop_sequences", K_TEXTS, PART_STOPPING, "stop_sequences"},
    {"seed", K_SEED, PART_SAMPLING, "seed"},
    {"preserve_input_text", K_BOOL, PART_RESPONSE, "input_text"},
    {"input_tokens", K_BOOL, PART_RESPONSE, "input_tokens"},
    {"generated_tokens", K_BOOL, PART_RESPONSE, "generated_tokens"},
    {"token_logprobs", K_BOOL, PART_RESPONSE, "token_logprobs"},
    {"token_ranks", K_BOOL, PART_RESPONSE, "token_ranks"},
    {"include_stop_sequence", K_BOOL, PART_STOPPING, "include_stop_sequence"},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* ---- the body */

static bool extra(struct ep_read *r, const char *key) {
    struct json_value *v;
    char text[EP_ELSEWHERE_BYTES] = EP_CAIKIT_EXTRA;
    if (json_get(r->body, "inputs", &v) != JSON_OK)
        (void)ep_elsewhere(text, r->in->path, r->body, "inputs", EP_CAIKIT_EXTRA);
    ep_at(r, key);
    return ep_wrong_type(r, text);
}

static const struct row *row_of(const char *name) {
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* A message as the body of REST: the text apart, the model of the call's metadata. */
static bool as_payload(struct ep_read *r) {
    const struct endpoint_meta *meta = &r->in->meta;
    struct json_value *body = json_new_obj(), *params = json_new_obj(), *text = NULL;
    json_obj_foreach(r->body, key, val) {
        if (strcmp(key, "text") == 0)
            text = val;
        else
            json_obj_set(params, key, json_ref(val));
    }
    json_obj_set(body, "inputs", text != NULL ? json_ref(text) : json_new_str(""));
    json_obj_set(body, "parameters", params);
    if (meta->has_model) json_obj_set(body, "model_id", json_new_str(meta->model));
    json_put(r->body);
    r->body = body;
    return body != NULL || ep_fail_memory(r);
}

static bool check_members(struct ep_read *r) {
    json_obj_foreach(r->body, key, val) {
        (void)val;
        if (strcmp(key, "inputs") != 0 && strcmp(key, "parameters") != 0 &&
            strcmp(key, "model_id") != 0)
            return extra(r, key);
    }
    return true;
}

static bool check_model(struct ep_read *r) {
    const char *name = "";
    size_t n = 0;
    ep_at(r, "model_id");
    const enum json_got got = json_get_str(r->body, "model_id", &name, &n);
    if (got == JSON_WRONG_TYPE) return ep_wrong_type(r, "Input should be a valid string");
    if (got != JSON_OK || n == 0) return ep_fail(r, 400, "Please provide model_id in payload");
    if (!ep_names_served(r, name, n))
        return ep_fail_with(r, 404, "Model '{got}' not loaded", "{got}", name, NULL);
    r->req->head.model = ep_dup(name, n);
    return r->req->head.model != NULL || ep_fail_memory(r);
}

/* ---- values */

static bool is_texts(const struct json_value *v) {
    if (!json_is(v, json_type_array)) return false;
    for (size_t i = 0; i < json_arr_len(v); i++)
        if (!json_is(json_arr_at(v, i), json_type_string)) return false;
    return true;
}

static bool is_decay(const struct json_value *v) {
    int64_t i;
    double d;
    if (!json_is(v, json_type_object)) return false;
    json_obj_foreach(v, key, val) {
        (void)val;
        if (strcmp(key, "start_index") != 0 && strcmp(key, "decay_factor") != 0) return false;
    }
    const enum json_got start = json_get_i64(v, "start_index", &i),
                        factor = json_get_f64(v, "decay_factor", &d);
    return start != JSON_WRONG_TYPE && factor != JSON_WRONG_TYPE;
}

/* The text for a value of another kind; NULL: it is of the row's. */
static const char *wrong_kind(const struct row *row, const struct json_value *v, bool message) {
    int64_t i;
    uint64_t u;
    double d;
    switch (row->kind) {
    case K_INT: return json_as_i64(v, &i) == JSON_OK ? NULL : "Input should be a valid integer";
    case K_SEED:
        return json_as_u64(v, &u) == JSON_OK || json_as_i64(v, &i) == JSON_OK
                   ? NULL
                   : "Input should be a valid integer";
    case K_REAL: /* a message may have NaN and its kin, as their names */
        return json_as_f64(v, &d) == JSON_OK || (message && json_is(v, json_type_string))
                   ? NULL
                   : "Input should be a valid number";
    case K_BOOL: return json_is(v, json_type_boolean) ? NULL : "Input should be a valid boolean";
    case K_TEXT: return json_is(v, json_type_string) ? NULL : "Input should be a valid string";
    case K_TEXTS: return is_texts(v) ? NULL : "Input should be a valid list of strings";
    case K_DECAY: return is_decay(v) ? NULL : "Input should be a valid dictionary";
    }
    return NULL;
}

static bool negative(const struct row *row, const struct json_value *v) {
    int64_t i = 0;
    if (row->kind != K_INT && row->kind != K_SEED) return false;
    return json_as_i64(v, &i) == JSON_OK && i < 0;
}

static bool check_value(struct ep_read *r, const struct row *row, const struct json_value *v) {
    const char *wrong = wrong_kind(row, v, r->in->path->frames == API_FRAMES_GRPC);
    double d;
    ep_at(r, row->name);
    if (wrong != NULL) return ep_wrong_type(r, wrong);
    if (negative(row, v))
        return ep_fail_with(r, 400, "{name} must be >= 0", "{name}", row->name, NULL);
    if (row->kind == K_REAL && (json_as_f64(v, &d) != JSON_OK || !isfinite(d)))
        return ep_fail_with(r, 400, "{name} must be finite", "{name}", row->name, NULL);
    return true;
}

static bool check_values(struct ep_read *r, const struct json_value *params) {
    json_obj_foreach(params, key, val) {
        const struct row *row = row_of(key);
        if (row == NULL) return extra(r, key);
        if (val != NULL && !check_value(r, row, val)) return false;
    }
    return true;
}

/* ---- what they mean together */

static bool f64_is(const struct json_value *o, const char *key, double neutral) {
    double d = neutral;
    return json_get_f64(o, key, &d) != JSON_OK || d == neutral;
}

static bool is_greedy(const struct json_value *params, bool *known) {
    const char *method = "GREEDY";
    size_t n;
    json_get_str(params, "decoding_method", &method, &n);
    *known = strcmp(method, "GREEDY") == 0 || strcmp(method, "SAMPLING") == 0;
    return strcmp(method, "SAMPLING") != 0;
}

static bool check_method(struct ep_read *r, const struct json_value *params) {
    double temperature = 0;
    bool known;
    const bool greedy = is_greedy(params, &known);
    ep_at(r, "decoding_method");
    if (!known) return ep_fail(r, 400, "decoding_method must be GREEDY or SAMPLING");
    if (greedy && !(f64_is(params, "temperature", 1) && f64_is(params, "top_k", 0) &&
                    f64_is(params, "top_p", 1) && f64_is(params, "typical_p", 1) &&
                    f64_is(params, "seed", 0)))
        return ep_fail(r, 400,
                       "sampling parameters (temperature/top_k/top_p/typical_p/seed) are not "
                       "applicable in greedy mode");
    ep_at(r, "temperature");
    json_get_f64(params, "temperature", &temperature);
    if (temperature != 0 && temperature < TEMPERATURE_MIN)
        return ep_fail(r, 400, "temperature must be >= 0.05");
    ep_at(r, "top_p");
    if (!f64_is(params, "top_p", 1) && f64_is(params, "top_p", 0))
        return ep_fail(r, 400, "top_p must be > 0.0 and <= 1.0");
    ep_at(r, "repetition_penalty");
    if (!f64_is(params, "repetition_penalty", 1) && f64_is(params, "repetition_penalty", 0))
        return ep_fail(r, 400, "repetition_penalty must be > 0.0");
    return true;
}

static bool put_time(struct ep_read *r, const struct json_value *params,
                     struct json_value *stopping) {
    double s;
    ep_at(r, "max_time");
    if (json_get_f64(params, "max_time", &s) != JSON_OK) return true;
    if (s <= 0 || s > SECONDS_MAX)
        return ep_fail(r, 400, "max_time must be > 0.0 and <= 4000000.0 seconds");
    json_obj_set(stopping, "time_limit_millis", json_new_i64((int64_t)ceil(s * 1000)));
    return true;
}

/* {"request":{"text":..},"params":{..}}, or requests, as the reader of TGIS wants it. */
static bool put_body(struct ep_read *r, struct json_value *text, const struct json_value *params) {
    struct json_value *body = json_new_obj(), *of[PARTS], *request = json_new_obj();
    bool known;
    for (int i = 0; i < PARTS; i++) of[i] = json_new_obj();
    json_obj_foreach(params, key, val) {
        const struct row *row = row_of(key);
        if (val != NULL && row->as != NULL) json_obj_set(of[row->part], row->as, json_ref(val));
    }
    const bool good = put_time(r, params, of[PART_STOPPING]);
    json_obj_set(of[PART_PARAMS], "method",
                 json_new_str(is_greedy(params, &known) ? "GREEDY" : "SAMPLE"));
    for (int i = 1; i < PARTS; i++) json_obj_set(of[PART_PARAMS], part_names[i], of[i]);
    json_obj_set(request, "text", json_ref(text));
    if (r->stream) {
        json_obj_set(body, "request", request);
    } else {
        struct json_value *list = json_new_arr();
        json_arr_add(list, request);
        json_obj_set(body, "requests", list);
    }
    json_obj_set(body, "params", of[PART_PARAMS]);
    json_put(r->body);
    r->body = body;
    return good && (body != NULL || ep_fail_memory(r));
}

bool ep_caikit_read(struct ep_read *r) {
    struct json_value *text = NULL, *params = NULL;
    if (r->in->path->frames == API_FRAMES_GRPC && !as_payload(r)) return false;
    if (!check_members(r)) return false;
    ep_at(r, "parameters");
    if (json_get_obj(r->body, "parameters", &params) == JSON_WRONG_TYPE)
        return ep_wrong_type(r, "Input should be a valid dictionary");
    if (!check_values(r, params)) return false;
    ep_at(r, "inputs");
    const enum json_got got = json_get(r->body, "inputs", &text);
    if (got == JSON_OK && !json_is(text, json_type_string))
        return ep_wrong_type(r, "Input should be a valid string");
    if (!check_model(r)) return false;
    ep_at(r, "inputs");
    if (got != JSON_OK || json_str_len(text) == 0)
        return ep_fail(r, 400, "the required argument text is missing");
    return check_method(r, params) && put_body(r, text, params) && ep_tgis_take(r, false);
}
