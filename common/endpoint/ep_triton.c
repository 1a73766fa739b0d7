/* ep_triton: Triton's token tensor (inference-api 11.1) and text (11.2). Both put the object of
 * parameters together from the places where clients of either document leave them. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep.h"

enum { TENSOR_NAME_UNITS_MAX = 256, TENSOR_ITEMS_MAX = PROMPT_TOKENS_MAX };

#define BAD_SHAPE                                                                                  \
    "Shape must be at most two-dimensional, and the last element's value must be in (0,1048576]."

/* Adds the members of src that are not null to r->params; later calls win. */
static bool add_params(struct ep_read *r, const struct json_value *obj, const char *key) {
    struct json_value *v, *src;
    if (r->params == NULL && (r->params = json_new_obj()) == NULL) return ep_fail_memory(r);
    if (json_get(obj, key, &v) != JSON_OK) return true;
    if (json_as_obj(v, &src) != JSON_OK) return ep_fail(r, 422, "parameters must be object type.");
    json_obj_foreach(src, name, val) {
        if (val != NULL) json_obj_set(r->params, name, json_ref(val));
    }
    return true;
}

/* Words that are no words: how Triton's clients write that nothing stops. */
static bool is_blank(const struct json_value *v) {
    if (json_is(v, json_type_string)) return json_str_len(v) == 0;
    if (!json_is(v, json_type_array)) return false;
    for (size_t i = 0; i < json_arr_len(v); i++)
        if (!json_is(json_arr_at(v, i), json_type_string) || json_str_len(json_arr_at(v, i)) > 0)
            return false;
    return true;
}

/* `alias` in obj stands for `key` when the client gave no key. */
static void add_alias(struct ep_read *r, const struct json_value *obj, const char *alias,
                      const char *key) {
    struct json_value *v;
    if (json_get(r->params, key, &v) != JSON_OK && json_get(obj, alias, &v) == JSON_OK &&
        !is_blank(v))
        json_obj_set(r->params, key, json_ref(v));
}

/* ---- tokens */

/* The number of items the shape says. */
static bool read_shape(struct ep_read *r, const struct json_value *tensor, int64_t *n) {
    struct json_value *shape;
    int64_t dim[2] = {1, 1};
    if (json_get_arr(tensor, "shape", &shape) != JSON_OK)
        return ep_fail(r, 422, "Cannot find shape in inputs or its type is not array");
    size_t rank = json_arr_len(shape);
    for (size_t i = 0; i < rank; i++) {
        int64_t d;
        if (json_as_i64(json_arr_at(shape, i), &d) != JSON_OK)
            return ep_fail(r, 422, "Shape element must be integer type.");
        dim[i < 2 ? i : 1] = d;
    }
    *n = rank == 2 ? dim[1] : dim[0];
    if (rank < 1 || rank > 2 || (rank == 2 && dim[0] != 1) || *n < 1 || *n > TENSOR_ITEMS_MAX)
        return ep_fail(r, 422, BAD_SHAPE);
    return true;
}

static bool read_data(struct ep_read *r, const struct json_value *tensor, int64_t n) {
    struct json_value *data, *row, *shape;
    char want[24], got[24];
    if (json_get_arr(tensor, "data", &data) != JSON_OK)
        return ep_fail(r, 422, "Cannot find data in inputs or its type is not array");
    /* KServe allows [[...]] for shape [1,n]. */
    (void)json_get_arr(tensor, "shape", &shape);
    if (json_arr_len(shape) == 2 && json_arr_len(data) == 1 &&
        json_as_arr(json_arr_at(data, 0), &row) == JSON_OK)
        data = row;
    size_t items = json_arr_len(data);
    if (items > TENSOR_ITEMS_MAX)
        return ep_fail(r, 422,
                       "Data element must be no more than max token id length, which is 1048576.");
    if (items != (size_t)n) {
        snprintf(want, sizeof(want), "%lld", (long long)n);
        snprintf(got, sizeof(got), "%zu", items);
        return ep_fail_with(r, 422, "Data size should be {want}, got {got}.", "{want}", want,
                            "{got}", got, NULL);
    }
    for (size_t i = 0; i < items; i++) {
        uint64_t id;
        if (json_as_u64(json_arr_at(data, i), &id) != JSON_OK)
            return ep_fail(r, 422, "Data element must be integer type.");
    }
    if (!ep_ids_from_array(r, data)) return ep_fail(r, 422, "Data element must be integer type.");
    return !r->in->is_recompute || ep_split_recompute(r);
}

static bool read_tensor(struct ep_read *r) {
    struct json_value *inputs, *tensor;
    const char *s;
    size_t n;
    int64_t items = 0;
    if (json_get_arr(r->body, "inputs", &inputs) != JSON_OK)
        return ep_missing_input(r, "inputs",
                                "Req should contain 'inputs' and the type should be array.");
    if (json_arr_len(inputs) != 1) return ep_fail(r, 422, "Inputs count must be 1.");
    tensor = json_arr_at(inputs, 0);
    if (json_get_str(tensor, "name", &s, &n) != JSON_OK)
        return ep_fail(r, 422, "Cannot find name in inputs or its type is not string");
    if (ep_utf16_len(s, n) > TENSOR_NAME_UNITS_MAX)
        return ep_fail(r, 422, "The length of name set in inputs exceeds 256.");
    if (!read_shape(r, tensor, &items)) return false;
    if (json_get_str(tensor, "datatype", &s, &n) != JSON_OK)
        return ep_fail(r, 422, "Cannot find datatype in inputs or its type is not string");
    if (strcmp(s, "UINT32") != 0)
        return ep_fail_with(r, 422, "Unsupported datatype, got {got}.", "{got}", s, NULL);
    return read_data(r, tensor, items) && ep_client_id(r);
}

static bool read_outputs(struct ep_read *r) {
    struct json_value *outputs;
    const char *s;
    size_t n;
    char got[24];
    if (json_get_arr(r->body, "outputs", &outputs) != JSON_OK)
        return ep_fail(r, 422, "Req should contain 'outputs' and the type should be array.");
    if (json_arr_len(outputs) != 1) {
        snprintf(got, sizeof(got), "%zu", json_arr_len(outputs));
        return ep_fail_with(r, 422, "Outputs size should be 1, got {got}.", "{got}", got, NULL);
    }
    if (json_get_str(json_arr_at(outputs, 0), "name", &s, &n) != JSON_OK || n == 0 ||
        strlen(s) != n)
        return ep_fail(r, 422, "Outputs name must be non-empty string.");
    if (n > MODEL_NAME_BYTES_MAX)
        return ep_fail(r, 422, "The length of name set in outputs exceeds 256.");
    r->req->answer.output_name = ep_dup(s, n);
    return r->req->answer.output_name != NULL || ep_fail_memory(r);
}

bool ep_triton_token_read(struct ep_read *r) {
    struct json_value *inputs;
    if (!read_tensor(r) || !read_outputs(r)) return false;
    json_get_arr(r->body, "inputs", &inputs);
    /* One document has them inside the tensor, the others beside it; those win. */
    return add_params(r, json_arr_at(inputs, 0), "parameters") &&
           add_params(r, r->body, "parameters");
}

/* ---- text */

bool ep_triton_text_read(struct ep_read *r) {
    struct json_value *own = NULL;
    if (!ep_client_id(r) || !ep_read_prompt(r) || !add_params(r, r->body, "parameters"))
        return false;
    /* Names of the upstream extension, in `parameters` or at the top level. */
    json_get(r->body, "parameters", &own);
    add_alias(r, own, "max_tokens", "max_new_tokens");
    add_alias(r, r->body, "max_tokens", "max_new_tokens");
    add_alias(r, own, "stop_words", "stop");
    add_alias(r, r->body, "stop_words", "stop");
    return true;
}
