/* ep_native: /infer and /infer_token (inference-api 10): a text in `inputs` or ids in `input_id`,
 * on either path. */
#include "common/endpoint/ep.h"

enum { INPUT_ID_MAX = 1048576 };

static bool read_ids(struct ep_read *r, const struct json_value *v) {
    struct json_value *arr;
    if (v == NULL) return ep_fail(r, 422, "Input_id should not be empty");
    if (json_as_arr(v, &arr) != JSON_OK)
        return ep_fail(r, 422, "Parameter input_id must be an array");
    if (json_arr_len(arr) == 0) return ep_fail(r, 422, "Input_id should not be empty");
    if (!ep_ids_from_array(r, arr)) return ep_fail(r, 422, "Parameter input_id must be integer");
    for (size_t i = 0; i < r->ids.n; i++)
        if (r->ids.ids[i] < 0 || r->ids.ids[i] > INPUT_ID_MAX)
            return ep_fail(r, 422, "Data element in param input_id is invalid");
    return ep_check_token_count(r);
}

bool ep_native_read(struct ep_read *r) {
    struct json_value *v = NULL;
    bool text = json_get(r->body, "inputs", &v) != JSON_ABSENT;
    bool ids = json_get(r->body, "input_id", &v) != JSON_ABSENT;
    if (text && ids) return ep_fail(r, 422, "Input conflict.");
    if (!text && !ids) return ep_missing_input(r, "inputs", "Not found inputs.");
    return text ? ep_read_prompt(r) : read_ids(r, v);
}

/* `stream` lies beside the parameters here, and its turn comes after theirs. */
bool ep_native_combine(struct ep_read *r) {
    bool on;
    if (json_get_bool(r->body, "stream", &on) == JSON_WRONG_TYPE)
        return ep_fail(r, 422, "stream must be boolean type.");
    return true;
}
