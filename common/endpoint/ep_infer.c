/* ep_infer: tensors and parameters by their names (kserve-runtimes 8.4, 8.5, 8.7, 11.1), of
 * ModelInfer and ModelStreamInfer of inference.GRPCInferenceService and of POST
 * /v2/models/{m}/infer. One name is the prompt's, as text or as ids; the others are parameters,
 * what is to be answered, or nothing. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep_infer_names.h"
#include "common/endpoint/ep_infer_tensor.h"

enum {
    ID_BYTES_MAX = 256,
    INPUTS_MAX = 64,
    LISTED_MAX = 65536, /* elements of all lists together */
};

struct reading {
    struct infer_asked asked;
    struct json_value *prompt; /* lent by r->held: texts; NULL: none, or ids, which are in r->ids */
    bool is_ids;
    bool is_rest; /* a body of REST; else a message */
    struct infer_tail tail;
    uint32_t binary; /* of REST: outputs that are answered in bytes unless they say no */
    size_t listed;   /* elements of lists so far */
};

/* text names the tensor, how many there are, and how many there may be. */
static bool fail_number(struct reading *t, const char *text, const char *name, size_t n,
                        size_t max) {
    char got[24], most[24];
    snprintf(got, sizeof(got), "%zu", n);
    snprintf(most, sizeof(most), "%zu", max);
    return ep_fail_with(t->asked.r, 422, text, "{name}", name, "{got}", got, "{max}", most,
                        "{model}", t->asked.model, NULL);
}

/* ---- parameters of the request */

/* The value of a message's parameter, whatever its type. */
static struct json_value *choice_of(struct json_value *choice) {
    struct json_value *v = NULL;
    json_obj_foreach(choice, key, val) {
        (void)key;
        v = val;
    }
    return v;
}

static bool take_parameter(struct reading *t, const char *name, struct json_value *v) {
    const struct infer_name *row = infer_name_of(name, strlen(name));
    bool on = false;
    if (!t->is_rest && strcmp(name, "triton_enable_empty_final_response") == 0) {
        if (!infer_take_flag(&t->asked, name, v, &on)) return false;
        if (on) t->asked.r->req->answer.tensors |= TENSOR_EMPTY_LAST;
        return true;
    }
    if (strncmp(name, "triton_", 7) == 0)
        return infer_fail(&t->asked,
                          "parameter keys starting with 'triton_' are reserved: '{name}'", name);
    if (t->is_rest && v != NULL && strcmp(name, "binary_data_output") == 0) {
        if (!infer_take_flag(&t->asked, name, v, &on)) return false;
        t->binary = on ? TENSOR_BINARY_ALL : 0;
        return true;
    }
    if (v == NULL) return true;
    if (row != NULL) return infer_take(&t->asked, row, name, v);
    /* sequence_id and its kin, headers and what a model of its own would know are nothing here */
    return infer_check_refused(&t->asked, name, v);
}

static bool take_parameters(struct reading *t) {
    struct json_value *params = NULL;
    if (json_get_obj(t->asked.r->body, "parameters", &params) == JSON_WRONG_TYPE)
        return ep_fail(t->asked.r, 422, "parameters must be an object");
    json_obj_foreach(params, key, val) {
        if (!take_parameter(t, key, t->is_rest ? val : choice_of(val))) return false;
    }
    return true;
}

/* ---- inputs */

static bool is_text_name(const char *s, size_t n) {
    static const char *const texts[] = {"text_input", "text",   "prompt", "inputs",
                                        "input_text", "INPUT0", "input-0"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (infer_is(texts[i], s, n)) return true;
    return false;
}

static bool is_ids_name(const char *s, size_t n) {
    return infer_is("input_ids", s, n) || infer_is("input0", s, n) || infer_is("tokens", s, n);
}

/* Two bits: the type that ids are answered in. */
static uint32_t ids_type(const struct infer_type *type) {
    const uint32_t is = type->is_signed ? 0 : 2;
    return TENSOR_IDS | (is | (type->bytes == 8 ? 0 : 1)) << TENSOR_TYPE_SHIFT;
}

static bool fail_read(struct reading *t, enum err e, const struct errbuf *eb) {
    if (e == ERR_NO_MEMORY) return ep_fail_memory(t->asked.r);
    return ep_fail_with(t->asked.r, 422, "{why}", "{why}", eb->text, NULL);
}

/* The elements, which live as long as the request is read. */
static bool read_values(struct reading *t, const struct infer_tensor *x,
                        struct json_value **values) {
    struct errbuf eb = {0};
    const enum err e = infer_tensor_values(x, values, &eb);
    if (*values != NULL) json_arr_add(t->asked.r->held, *values);
    return e == ERR_OK || fail_read(t, e, &eb);
}

static bool take_ids(struct reading *t, const struct infer_tensor *x) {
    const size_t max = (size_t)t->asked.r->ep->conf.max_seq_len, rows = x->n / x->dims[x->rank - 1];
    struct errbuf eb = {0};
    if (rows != 1)
        return fail_number(t,
                           "inference input '{name}' has ids of {got} prompts, one for each row of "
                           "its shape: of ids one prompt is taken in a request, shape [n] or [1,n]",
                           x->name, rows, 1);
    if (x->n > max)
        return fail_number(t, "inference input '{name}' has {got} ids, it may have 1 to {max}",
                           x->name, x->n, max);
    const enum err e = infer_tensor_ids(x, &t->asked.r->ids, &eb);
    if (e != ERR_OK) return fail_read(t, e, &eb);
    t->is_ids = true;
    t->asked.r->req->answer.tensors |= ids_type(x->type);
    return true;
}

static bool take_prompt(struct reading *t, const struct infer_tensor *x) {
    if (t->prompt != NULL || t->is_ids)
        return infer_fail(&t->asked,
                          "unexpected inference input '{name}' for model '{model}': there is a "
                          "prompt already",
                          x->name);
    if (x->n == 0)
        return infer_fail(
            &t->asked, "inference input '{name}' has 0 elements, a prompt has 1 at least", x->name);
    if (x->type->class == INFER_INTEGERS) return take_ids(t, x);
    if (x->n > PARTS_MAX)
        return fail_number(t,
                           "inference input '{name}' has {got} elements: at most {max} prompts are "
                           "taken in one request",
                           x->name, x->n, PARTS_MAX);
    return read_values(t, x, &t->prompt);
}

static bool take_list(struct reading *t, const struct infer_name *row,
                      const struct infer_tensor *x) {
    struct json_value *values;
    t->listed += x->n;
    if (t->listed > LISTED_MAX)
        return fail_number(t,
                           "inference input '{name}': the lists of a request have {got} elements "
                           "so far, they may have {max} together",
                           x->name, t->listed, LISTED_MAX);
    return read_values(t, x, &values) && infer_take(&t->asked, row, x->name, values);
}

static bool take_option(struct reading *t, const struct infer_name *row,
                        const struct infer_tensor *x) {
    struct json_value *values;
    struct errbuf eb = {0};
    if (row->role == ROLE_LIST) return take_list(t, row, x);
    if (row->role == ROLE_NOTHING) {
        const enum err e = infer_tensor_fits(x, &eb);
        return e == ERR_OK || fail_read(t, e, &eb);
    }
    if (x->n != 1)
        return fail_number(t, "inference input '{name}' must have one element, got {got}", x->name,
                           x->n, 1);
    return read_values(t, x, &values) &&
           infer_take(&t->asked, row, x->name, json_arr_at(values, 0));
}

/* By its name, else by its type: the only texts, or the only integers of a name nobody knows. Of
 * what is not wanted no element is read. */
static bool take_tensor(struct reading *t, const struct infer_tensor *x, bool alone) {
    const bool texts = x->type->class == INFER_TEXTS, ids = x->type->class == INFER_INTEGERS;
    const bool names_text = is_text_name(x->name, x->n_name),
               names_ids = is_ids_name(x->name, x->n_name);
    const struct infer_name *row = infer_name_of(x->name, x->n_name);
    if ((names_text && texts) || (names_ids && ids)) return take_prompt(t, x);
    if (names_text || names_ids)
        return ep_fail_with(t->asked.r, 422,
                            "inference input '{name}' for model '{model}' has the wrong datatype: "
                            "it must be {want}, got {got}",
                            "{name}", x->name, "{model}", t->asked.model, "{want}",
                            names_text ? "BYTES" : "an integer type", "{got}", x->type->name, NULL);
    if (row != NULL) return take_option(t, row, x);
    if (alone && (texts || ids)) return take_prompt(t, x);
    return infer_fail(&t->asked, "unexpected inference input '{name}' for model '{model}'",
                      x->name);
}

/* Of names that nobody knows there is one. */
static bool is_alone(const struct json_value *inputs) {
    size_t n = 0;
    for (size_t i = 0; i < json_arr_len(inputs); i++) {
        const char *s = "";
        size_t len = 0;
        json_get_str(json_arr_at(inputs, i), "name", &s, &len);
        if (is_text_name(s, len) || is_ids_name(s, len)) return false;
        n += infer_name_of(s, len) == NULL;
    }
    return n == 1;
}

/* Bytes that belong to no input would be read as another's, had they been counted right. */
static bool check_tail(struct reading *t) {
    return t->tail.n == 0 ||
           fail_number(t,
                       "unexpected additional input data for model '{model}': the inputs' "
                       "binary_data_size leave {got} bytes of the body",
                       "", t->tail.n, 0);
}

static bool take_inputs(struct reading *t) {
    struct json_value *inputs = NULL, *raw = NULL;
    struct errbuf eb = {0};
    json_get_arr(t->asked.r->body, "inputs", &inputs);
    if (!t->is_rest) json_get_arr(t->asked.r->body, "raw_input_contents", &raw);
    const size_t n = json_arr_len(inputs), n_raw = json_arr_len(raw);
    if (n < 1 || n > INPUTS_MAX)
        return fail_number(t, "model '{model}' expects 1 to {max} inference inputs, got {got}", "",
                           n, INPUTS_MAX);
    if (n_raw > 0 && n_raw != n)
        return fail_number(t,
                           "raw_input_contents of model '{model}' must have an entry for each of "
                           "the {max} inputs, got {got}",
                           "", n_raw, n);
    const bool alone = is_alone(inputs);
    for (size_t i = 0; i < n; i++) {
        struct infer_tensor x;
        struct json_value *input = json_arr_at(inputs, i);
        const enum err e = t->is_rest
                               ? infer_tensor_rest(&x, t->asked.model, input, n == 1, &t->tail, &eb)
                               : infer_tensor_head(&x, t->asked.model, input,
                                                   n_raw > 0 ? json_arr_at(raw, i) : NULL, &eb);
        if (e != ERR_OK) return fail_read(t, e, &eb);
        if (!take_tensor(t, &x, alone)) return false;
    }
    if (t->prompt == NULL && !t->is_ids)
        return infer_fail(
            &t->asked, "expected inference input 'text_input' or 'input_ids' for model '{model}'",
            "");
    return check_tail(t);
}

/* ---- outputs */

/* The bits of the outputs that have names of their own; 0: any other is the main one. */
static uint32_t extra_of(const char *name, size_t n) {
    static const struct {
        const char *name;
        uint32_t what;
    } extra[] = {{"finish_reason", TENSOR_FINISH_REASON},
                 {"cumulative_logprob", TENSOR_CUMULATIVE_LOGPROB},
                 {"logprobs", TENSOR_LOGPROBS},
                 {"num_input_tokens", TENSOR_N_INPUT},
                 {"num_output_tokens", TENSOR_N_OUTPUT}};
    for (size_t i = 0; i < sizeof(extra) / sizeof(extra[0]); i++)
        if (infer_is(extra[i].name, name, n)) return extra[i].what;
    return 0;
}

/* The main one may have any name; it is answered under that. */
static bool take_main_output(struct reading *t, const char *name, size_t n, bool *main_named) {
    struct infer_answer *a = &t->asked.r->req->answer;
    if (*main_named || n == 0 || n > MODEL_NAME_BYTES_MAX || strlen(name) != n)
        return infer_fail(&t->asked, "unexpected inference output '{name}' for model '{model}'",
                          name);
    *main_named = true;
    a->output_name = ep_dup(name, n);
    return a->output_name != NULL || ep_fail_memory(t->asked.r);
}

/* How one is to be answered: in bytes or not, and nothing that is not done here. */
static bool take_manner_of(struct reading *t, const char *name, const struct json_value *output,
                           uint32_t what) {
    struct json_value *params = NULL, *v = NULL;
    bool on = false;
    json_get_obj(output, "parameters", &params);
    if (json_get(params, "shared_memory_region", &v) != JSON_ABSENT)
        return infer_fail(&t->asked,
                          "inference output '{name}': shared memory is not available here", name);
    if (json_get(params, "classification", &v) != JSON_ABSENT)
        return infer_fail(&t->asked,
                          "inference output '{name}': classification is not available here", name);
    if (!t->is_rest || json_get(params, "binary_data", &v) != JSON_OK) return true;
    if (json_as_bool(v, &on) != JSON_OK)
        return infer_fail_value(
            &t->asked, "inference output '{name}': binary_data must be a boolean, got {got}", name,
            v);
    const uint32_t bit = tensor_binary_of(what);
    t->binary = on ? t->binary | bit : t->binary & ~bit;
    return true;
}

static bool take_output(struct reading *t, const struct json_value *output, bool *main_named) {
    const char *name = "";
    size_t n = 0;
    json_get_str(output, "name", &name, &n);
    const uint32_t what = extra_of(name, n);
    t->asked.r->req->answer.tensors |= what;
    return (what != 0 || take_main_output(t, name, n, main_named)) &&
           take_manner_of(t, name, output, what);
}

static bool take_outputs(struct reading *t) {
    struct infer_answer *a = &t->asked.r->req->answer;
    struct json_value *outputs = NULL;
    bool main_named = false;
    if (json_get_arr(t->asked.r->body, "outputs", &outputs) == JSON_WRONG_TYPE)
        return ep_fail(t->asked.r, 422, "outputs must be an array");
    for (size_t i = 0; i < json_arr_len(outputs); i++)
        if (!take_output(t, json_arr_at(outputs, i), &main_named)) return false;
    a->tensors |= t->binary;
    if (main_named) return true;
    if (json_arr_len(outputs) > 0) a->tensors |= TENSOR_NO_MAIN; /* those that are named, no more */
    const char *name = t->is_ids ? "output_ids" : "text_output";
    a->output_name = ep_dup(name, strlen(name));
    return a->output_name != NULL || ep_fail_memory(t->asked.r);
}

/* ---- together */

/* Of REST the path has named it. */
static bool take_model(struct reading *t) {
    struct ep_read *r = t->asked.r;
    const char *name = "";
    size_t n = 0;
    char why[400];
    t->asked.model = r->req->head.model;
    if (t->is_rest) return true;
    json_get_str(r->body, "model_name", &name, &n);
    if (!ep_infer_model(r->ep, r->body, "model_name", "model_version", why, sizeof(why)))
        return ep_fail_with(r, 404, "{why}", "{why}", why, NULL);
    if (!ep_names_served(r, name, n)) /* it has just been unloaded, or there is no memory */
        return ep_fail_with(r, 404, "Request for unknown model: '{name}' is not found", "{name}",
                            name, NULL);
    t->asked.model = r->req->head.model = ep_dup(name, n);
    return t->asked.model != NULL || ep_fail_memory(r);
}

static bool take_id(struct reading *t) {
    struct ep_read *r = t->asked.r;
    const char *id = "";
    size_t n = 0;
    const enum json_got got = json_get_str(r->body, "id", &id, &n);
    if (got == JSON_WRONG_TYPE) return ep_fail(r, 422, "id must be a string");
    if (got != JSON_OK || n == 0) return true;
    if (n > ID_BYTES_MAX)
        return fail_number(t, "id must have at most {max} bytes, got {got}", "", n, ID_BYTES_MAX);
    /* what a stopInfer may name */
    if (t->is_rest && ep_id_valid(id, n) && (r->req->head.client_id = ep_dup(id, n)) == NULL)
        return ep_fail_memory(r);
    struct buf b = BUF_INIT;
    buf_json_str(&b, id, n);
    r->req->answer.echoed = buf_steal(&b);
    return r->req->answer.echoed != NULL || ep_fail_memory(r);
}

/* How it is answered: as events where the client streams and wants them, else as one. */
static bool take_manner(struct reading *t) {
    struct ep_read *r = t->asked.r;
    struct infer_answer *a = &r->req->answer;
    const bool many = r->in->path->stream == API_STREAM_MANY;
    if (t->asked.stream && !many)
        return ep_fail(r, 422,
                       t->is_rest
                           ? "stream must be false here: generate_stream answers in pieces"
                           : "stream must be false here: ModelStreamInfer answers in pieces");
    if (many) a->tensors |= TENSOR_IN_STREAM;
    r->stream = t->asked.stream;
    if (t->asked.exclude_given && !t->asked.exclude) {
        if (t->asked.stream)
            return ep_fail(r, 422, "exclude_input_in_output must be true where stream is");
        json_obj_set(t->asked.r->params, "return_full_text", json_new_bool(true));
    }
    struct json_value *v;
    const uint32_t probabilities = TENSOR_LOGPROBS | TENSOR_CUMULATIVE_LOGPROB;
    if ((a->tensors & probabilities) != 0 && json_get(r->params, "top_logprobs", &v) != JSON_OK)
        json_obj_set(t->asked.r->params, "top_logprobs", json_new_i64(0));
    return true;
}

static bool several(struct reading *t, size_t n) {
    uint64_t choices = 1;
    json_get_u64(t->asked.r->params, "n", &choices);
    if ((n > 1 || choices > 1) && t->asked.stream)
        return ep_fail(t->asked.r, 422, "one prompt and one answer of it may be streamed");
    return choices <= 1 || !t->is_ids ||
           ep_fail(t->asked.r, 422, "of ids one answer is made, n must be 1");
}

static bool take_prompts(struct reading *t) {
    struct ep_read *r = t->asked.r;
    const size_t n = t->is_ids ? 1 : json_arr_len(t->prompt);
    if (!several(t, n)) return false;
    if (t->is_ids) return ep_check_token_count(r);
    for (size_t i = 0; i < n; i++) {
        r->prompt = json_str(json_arr_at(t->prompt, i));
        r->prompt_len = json_str_len(json_arr_at(t->prompt, i));
        if (!ep_check_text_length(r) || !ep_tokenise(r, true)) return false;
        if (n > 1 && !ep_keep_prompt(r)) return false;
    }
    return true;
}

bool ep_infer_read(struct ep_read *r) {
    struct reading t = {.asked.r = r,
                        .is_rest = r->in->path->frames == API_FRAMES_TENSORS,
                        .tail = {r->tail != NULL ? r->tail : "", r->tail_len}};
    r->params = json_new_obj();
    r->held = json_new_arr();
    if (r->params == NULL || r->held == NULL) return ep_fail_memory(r);
    return take_model(&t) && take_id(&t) && take_parameters(&t) && take_inputs(&t) &&
           take_outputs(&t) && take_manner(&t) && take_prompts(&t);
}
