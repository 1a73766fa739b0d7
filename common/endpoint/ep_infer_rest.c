/* ep_infer_rest: POST /v2/models/{m}/infer before its tensors are read: which of two dialects a
 * body has, and where its JSON ends (kserve-runtimes 8.2, 8.4; inference-api 11.1). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_infer_tensor.h"

/* ---- which dialect */

static bool is_named(const struct json_value *o, const char *member, const char *value) {
    const char *s = "";
    size_t n = 0;
    json_get_str(o, member, &s, &n);
    return n == strlen(value) && memcmp(s, value, n) == 0;
}

static bool has_type(const struct json_value *input) {
    const char *s = "";
    size_t n = 0;
    json_get_str(input, "datatype", &s, &n);
    return infer_type_of(s, n) != NULL;
}

/* Somewhere to take elements from, or somewhere where there are none. */
static bool has_elements(const struct json_value *input) {
    struct json_value *v, *params = NULL;
    json_get_obj(input, "parameters", &params);
    return json_get(input, "data", &v) != JSON_ABSENT ||
           json_get(params, "binary_data_size", &v) != JSON_ABSENT ||
           json_get(params, "shared_memory_region", &v) != JSON_ABSENT;
}

static bool has_parameter(const struct json_value *o, const char *name) {
    struct json_value *v, *params = NULL;
    json_get_obj(o, "parameters", &params);
    return json_get(params, name, &v) != JSON_ABSENT;
}

/* It is there, and is not false. */
static bool wants(const struct json_value *o, const char *name) {
    struct json_value *params = NULL;
    bool on = true;
    json_get_obj(o, "parameters", &params);
    return has_parameter(o, name) && (json_get_bool(params, name, &on) != JSON_OK || on);
}

/* The answer is to be bytes, which the reference does not know. */
static bool wants_bytes(const struct json_value *body) {
    struct json_value *outputs = NULL;
    json_get_arr(body, "outputs", &outputs);
    for (size_t i = 0; i < json_arr_len(outputs); i++)
        if (wants(json_arr_at(outputs, i), "binary_data")) return true;
    return wants(body, "binary_data_output");
}

/* The reference has one tensor of UINT32 as JSON, and refuses others of that form in its own words;
 * "input0" is its name. Ids that a client of KServe sends as UINT32 are told from its by their name
 * and by outputs, which the reference must have. */
static bool is_tensors_alone(const struct json_value *body, const struct json_value *input) {
    struct json_value *v;
    if (has_parameter(input, "binary_data_size") || wants_bytes(body)) return true;
    if (is_named(input, "name", "input0") || !has_type(input) || !has_elements(input)) return false;
    if (!is_named(input, "datatype", "UINT32")) return true;
    return json_get(body, "outputs", &v) == JSON_ABSENT &&
           (is_named(input, "name", "input_ids") || is_named(input, "name", "tokens"));
}

bool ep_infer_is_tensors(const struct ep_read *r) {
    struct json_value *inputs = NULL;
    if (r->in->meta.json_bytes[0] != '\0') return true;
    if (r->body == NULL || json_get_arr(r->body, "inputs", &inputs) != JSON_OK) return false;
    const size_t n = json_arr_len(inputs);
    if (n == 1) return is_tensors_alone(r->body, json_arr_at(inputs, 0));
    for (size_t i = 0; i < n; i++)
        if (has_type(json_arr_at(inputs, i))) return true; /* what is wrong in the others is said */
    return false;
}

/* ---- where the JSON ends */

/* A body without JSON is one text with its length ahead, and its answer is bytes as well. */
static bool raw_body(struct ep_read *r, struct ep_body *b) {
    buf_printf(&r->wire,
               "{\"inputs\":[{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":[1],"
               "\"parameters\":{\"binary_data_size\":%zu}}],"
               "\"parameters\":{\"binary_data_output\":true}}",
               r->in->body_len);
    if (r->wire.failed) return ep_fail_memory(r);
    b->p = r->wire.data;
    b->n = r->wire.len;
    return true;
}

bool ep_infer_split(struct ep_read *r, struct ep_body *b) {
    const char *said = r->in->meta.json_bytes;
    size_t n;
    char most[24];
    if (said[0] == '\0') return true;
    snprintf(most, sizeof(most), "%zu", r->in->body_len);
    if (!tensors_json_bytes(said, r->in->body_len, &n))
        return ep_fail_with(r, 400,
                            TENSORS_HEADER " must be 0 to the {max} bytes of the body, got '{got}'",
                            "{max}", most, "{got}", said, NULL);
    r->tail = r->in->body + n;
    r->tail_len = r->in->body_len - n;
    b->own = NULL; /* what lies behind the JSON stays as it is */
    b->n = n;
    return n > 0 || raw_body(r, b);
}
