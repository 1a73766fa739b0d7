/* vectors_read: bodies to texts. What a form calls its members is in its row; everything else here
 * is one way for all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/vectors_priv.h"
#include "proto/json_tree.h"
#include "proto/limits.h"

#define NO_MODEL_ID "Please provide model_id in payload"

static bool truncation_vllm(struct reading *r);
static bool truncation_caikit(struct reading *r);
static bool truncation_ollama(struct reading *r);
static bool bad_side_vllm(const struct reading *r, const struct side *s);
static bool bad_side_caikit(const struct reading *r, const struct side *s);
static bool bad_side_ollama(const struct reading *r, const struct side *s);
static bool no_texts_ollama(const struct reading *r, const struct side *s);

/* OpenAI, vLLM, llama.cpp and OpenVINO; Caikit over REST and gRPC; Ollama. */
static const struct dialect vllm = {.model = "model",
                                    .model_unknown = "The model `%.*s` does not exist.",
                                    .read_truncation = truncation_vllm,
                                    .dimensions_min = 1,
                                    .one_for_list = true,
                                    .bad_side = bad_side_vllm,
                                    .no_texts = bad_side_vllm};
static const struct dialect caikit = {.model = "model_id",
                                      .model_unknown = "Model '%.*s' not loaded",
                                      .model_needed = NO_MODEL_ID,
                                      .read_truncation = truncation_caikit,
                                      .dimensions_min = 1,
                                      .kinds = true,
                                      .payload = true,
                                      .shows_more = true,
                                      .no_bare = true,
                                      .no_empty = true,
                                      .bad_side = bad_side_caikit,
                                      .no_texts = bad_side_caikit};
static const struct dialect ollama = {.model = "model",
                                      .model_unknown = "model '%.*s' not found",
                                      .model_needed = "model is required",
                                      .same_model = ep_ollama_same,
                                      .no_body = "missing request body",
                                      .too_long = "the input length exceeds the context length",
                                      .read_truncation = truncation_ollama,
                                      .no_empty = true,
                                      .one_for_list = true,
                                      .bad_side = bad_side_ollama,
                                      .no_texts = no_texts_ollama};

static const struct form forms[VECTORS_COUNT] = {
    [VECTORS_EMBEDDINGS] = {.dialect = &vllm,
                            .left = {"input"},
                            .token_ids = true,
                            .chat = true,
                            .no_empty = true,
                            .normalize = true},
    [VECTORS_POOLING] = {.dialect = &vllm, .left = {"input"}, .token_ids = true, .chat = true},
    [VECTORS_SCORE] = {.dialect = &vllm,
                       .left = {"text_1", "data_1", "queries"},
                       .right = {"text_2", "data_2", "documents", "items"},
                       .each = true},
    [VECTORS_RERANK] = {.dialect = &vllm,
                        .left = {"query"},
                        .right = {"documents", "texts"},
                        .left_one = true,
                        .documents = true,
                        .documents_shown = true},
    [VECTORS_RERANK_SHORT] = {.dialect = &vllm,
                              .left = {"query"},
                              .right = {"documents"},
                              .left_one = true,
                              .documents = true},
    [VECTORS_CAIKIT_EMBEDDING] =
        {.dialect = &caikit, .left = {"inputs"}, .left_one = true, .bare = true, .normalize = true},
    [VECTORS_CAIKIT_EMBEDDINGS] = {.dialect = &caikit,
                                   .left = {"texts"},
                                   .bare = true,
                                   .normalize = true},
    [VECTORS_CAIKIT_SIMILARITY] = {.dialect = &caikit,
                                   .left = {"source_sentence"},
                                   .right = {"sentences"},
                                   .left_one = true},
    [VECTORS_CAIKIT_SIMILARITIES] = {.dialect = &caikit,
                                     .left = {"source_sentences"},
                                     .right = {"sentences"}},
    [VECTORS_CAIKIT_RERANK] = {.dialect = &caikit,
                               .left = {"query"},
                               .right = {"documents"},
                               .left_one = true,
                               .documents = true,
                               .documents_shown = true},
    [VECTORS_CAIKIT_RERANKS] = {.dialect = &caikit,
                                .left = {"queries"},
                                .right = {"documents"},
                                .documents = true,
                                .documents_shown = true},
    [VECTORS_LLAMACPP] = {.dialect = &vllm,
                          .left = {"content", "input"},
                          .token_ids = true,
                          .normalize = true},
    [VECTORS_OLLAMA_EMBED] = {.dialect = &ollama, .left = {"input"}, .normalize = true},
    [VECTORS_OLLAMA_EMBEDDINGS] = {.dialect = &ollama, .left = {"prompt"}, .left_one = true},
};

bool vectors_fail_code(const struct reading *r, int status, const char *param, const char *code,
                       const char *text) {
    ep_answer_error_in(r->ep, r->ask->path->errors, status, text, param, code, r->v->body, r->err);
    return false;
}

/* What is refused because of a member has a value that is not allowed. */
bool vectors_fail(const struct reading *r, int status, const char *param, const char *text) {
    const char *code = status == 400 && param != NULL ? EP_INVALID_VALUE : NULL;
    return vectors_fail_code(r, status, param, code, text);
}

bool vectors_wrong_kind(const struct reading *r, const char *param, const char *kind,
                        const char *text) {
    char said[64];
    if (!r->form->dialect->kinds) return vectors_fail_code(r, 400, param, EP_INVALID_TYPE, text);
    snprintf(said, sizeof(said), "Input should be a valid %s", kind);
    return vectors_fail(r, 422, param, said);
}

bool vectors_fail_memory(const struct reading *r) {
    return vectors_fail(r, 503, NULL, err_text(ERR_NO_MEMORY));
}

/* ---- parameters */

static bool read_int(const struct reading *r, const char *name, int64_t min, int64_t max,
                     int64_t *out, bool *given) {
    char text[160], value[32] = "";
    enum json_got got = json_get_i64(r->params, name, out);
    *given = got == JSON_OK;
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got == JSON_OK && *out >= min && *out <= max) return true;
    if (got == JSON_OK) snprintf(value, sizeof(value), ", got %lld", (long long)*out);
    snprintf(text, sizeof(text), "%s must be an integer from %lld to %lld%s", name, (long long)min,
             (long long)max, value);
    return got == JSON_OK ? vectors_fail(r, 400, name, text)
                          : vectors_wrong_kind(r, name, "integer", text);
}

static bool read_bool(const struct reading *r, const char *name, bool *out) {
    char text[96];
    bool v = *out;
    enum json_got got = json_get_bool(r->params, name, &v);
    if (got == JSON_OK) *out = v;
    if (got != JSON_WRONG_TYPE) return true;
    snprintf(text, sizeof(text), "%s must be true or false", name);
    return vectors_wrong_kind(r, name, "boolean", text);
}

/* So many tokens in all; -1: as many as fit. */
static bool truncation_vllm(struct reading *r) {
    static const char name[] = "truncate_prompt_tokens";
    int64_t n = 0;
    if (!read_int(r, name, -1, (int64_t)r->room, &n, &r->cut)) return false;
    if (r->cut && n == 0) return vectors_fail(r, 400, name, "truncate_prompt_tokens must not be 0");
    if (r->cut && n > 0) r->keep = (size_t)n;
    return true;
}

/* So many beside the specials; below 0: as many as fit; 0 or above what fits: none may be too
 * long. */
static bool truncation_caikit(struct reading *r) {
    const int64_t most = (int64_t)r->room;
    int64_t n = 0;
    bool given;
    if (!read_int(r, "truncate_input_tokens", INT32_MIN, INT32_MAX, &n, &given)) return false;
    r->cut = n < 0 || (n > 0 && n <= most);
    r->content = n > 0;
    if (r->cut && n > 0) r->keep = (size_t)n;
    return true;
}

static bool truncation_ollama(struct reading *r) {
    char text[320];
    r->cut = true;
    if (!ep_ollama_keep_alive(r->v->body, text, sizeof(text)))
        return vectors_fail(r, 400, "keep_alive", text);
    return read_bool(r, "truncate", &r->cut);
}

static bool read_dimensions(const struct reading *r) {
    const struct matryoshka *m = &r->ep->model->matryoshka;
    const int hidden = r->ep->model->hidden;
    char text[256], sizes[160] = "";
    int64_t n = 0;
    bool given = false;
    if (!read_int(r, "dimensions", r->form->dialect->dimensions_min, hidden, &n, &given))
        return false;
    given = given && n > 0; /* Ollama's 0: all */
    bool known = m->n == 0 || n == hidden;
    for (int i = 0; i < m->n; i++) {
        const size_t at = strlen(sizes);
        known = known || m->sizes[i] == n;
        snprintf(sizes + at, sizeof(sizes) - at, "%s%d", i > 0 ? ", " : "", m->sizes[i]);
    }
    if (given && !known) {
        snprintf(text, sizeof(text), "dimensions must be one of %s, got %lld", sizes, (long long)n);
        return vectors_fail(r, 400, "dimensions", text);
    }
    r->v->dimensions = given ? (int)n : 0;
    return true;
}

static bool read_encoding(const struct reading *r) {
    const char *s = "float";
    size_t n = 0;
    enum json_got got = json_get_str(r->params, "encoding_format", &s, &n);
    r->v->base64 = strcmp(s, "base64") == 0;
    if (got == JSON_WRONG_TYPE || (!r->v->base64 && strcmp(s, "float") != 0))
        return vectors_fail_code(r, 400, "encoding_format",
                                 got == JSON_WRONG_TYPE ? EP_INVALID_TYPE : EP_INVALID_VALUE,
                                 "encoding_format must be \"float\" or \"base64\"");
    return true;
}

/* vLLM's: in which bytes base64 has a number, whether texts get the model's specials. The first are
 * little-endian floats of 32 bits here; pairs that are judged always have specials. */
static bool read_form(struct reading *r) {
    const char *dtype = "float32", *order = "little";
    size_t n = 0;
    bool specials = true;
    if (!read_bool(r, "add_special_tokens", &specials)) return false;
    if (!specials && !r->form->token_ids)
        return vectors_fail(r, 400, "add_special_tokens",
                            "add_special_tokens must be true: texts are read with the model's own");
    r->plain = !specials;
    if (json_get_str(r->params, "embed_dtype", &dtype, &n) == JSON_WRONG_TYPE ||
        (strcmp(dtype, "float32") != 0 && strcmp(dtype, "auto") != 0))
        return vectors_fail(r, 400, "embed_dtype", "embed_dtype must be \"float32\"");
    if (json_get_str(r->params, "endianness", &order, &n) == JSON_WRONG_TYPE ||
        (strcmp(order, "little") != 0 && strcmp(order, "native") != 0))
        return vectors_fail(r, 400, "endianness", "endianness must be \"little\" or \"native\"");
    return true;
}

/* llama.cpp's: -1 as the model has it, 2 of length one. */
static bool read_norm(const struct reading *r) {
    int64_t n = 2;
    enum json_got got = json_get_i64(r->params, "embd_normalize", &n);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got != JSON_OK || (n != -1 && n != 2))
        return vectors_fail(r, 400, "embd_normalize",
                            "embd_normalize must be -1 (as the model has it) or 2 (of length one)");
    r->v->normalize = n == 2;
    return true;
}

static bool read_params(struct reading *r) {
    struct vectors_req *v = r->v;
    bool given;
    v->normalize = r->form->normalize;
    v->show_documents = v->show_texts = v->show_queries = r->form->documents_shown;
    if (r->form->dialect->shows_more) v->show_queries = v->show_texts = true;
    r->keep = r->room;
    return r->form->dialect->read_truncation(r) && read_form(r) && read_norm(r) &&
           read_dimensions(r) && read_encoding(r) && read_bool(r, "normalize", &v->normalize) &&
           read_bool(r, "return_documents", &v->show_documents) &&
           read_bool(r, "return_text", &v->show_texts) &&
           read_bool(r, r->form->left_one ? "return_query" : "return_queries", &v->show_queries) &&
           read_bool(r, "raw_scores", &v->raw_scores) &&
           read_int(r, "top_n", INT32_MIN, INT32_MAX, &v->top_n, &given);
}

/* ---- sides that are none */

/* Where the input is missing, the path that a body like this one goes to is named. */
static bool bad_side_vllm(const struct reading *r, const struct side *s) {
    char text[EP_ELSEWHERE_BYTES], must[160];
    snprintf(must, sizeof(must), "%s must be %s", s->name,
             s->one_only ? "a string" : "a string or a list of at least one");
    snprintf(text, sizeof(text), "%s", must);
    if (s->given == NULL && s->is_left)
        (void)ep_elsewhere(text, r->ask->path, r->v->body, s->name, must);
    return vectors_fail_code(r, 400, s->name,
                             s->given == NULL               ? EP_MISSING
                             : vectors_is_nothing(s->given) ? EP_EMPTY_ARRAY
                                                            : EP_INVALID_TYPE,
                             text);
}

static bool bad_side_caikit(const struct reading *r, const struct side *s) {
    const enum json_type want = s->one_only ? json_type_string : json_type_array;
    char text[96];
    if (s->given != NULL && !json_is(s->given, want))
        return vectors_wrong_kind(r, s->name, s->one_only ? "string" : "list", "");
    if (r->form->documents)
        return vectors_fail(r, 400, s->name,
                            "Cannot rerank without a query and at least one document");
    snprintf(text, sizeof(text), "the required argument %s is missing",
             r->form->bare && s->one_only ? "text" : s->name);
    return vectors_fail(r, 400, s->name, text);
}

static bool bad_side_ollama(const struct reading *r, const struct side *s) {
    return vectors_fail(r, 400, s->name, "invalid input type");
}

/* Nothing is made of nothing, unless the body is another dialect's. */
static bool no_texts_ollama(const struct reading *r, const struct side *s) {
    char text[EP_ELSEWHERE_BYTES];
    if (s->given != NULL ||
        !ep_elsewhere(text, r->ask->path, r->v->body, s->name, EP_INPUT_MISSING))
        return true;
    return vectors_fail(r, 400, s->name, text);
}

/* ---- the body */

/* A body that is not Caikit's: where it goes, if it has no inputs. */
static bool caikit_foreign(const struct reading *r, int status, const char *param,
                           const char *text) {
    char with[EP_ELSEWHERE_BYTES];
    struct json_value *v;
    if (json_get(r->v->body, "inputs", &v) == JSON_OK ||
        !ep_elsewhere(with, r->ask->path, r->v->body, "inputs", text))
        return vectors_fail(r, status, param, text);
    return vectors_fail(r, status, param, with);
}

static bool no_model(const struct reading *r) {
    const struct dialect *d = r->form->dialect;
    const char *needed = d->model_needed;
    if (needed == NULL && r->ask->path->errors == API_ERRORS_OVMS) needed = "model is required";
    if (needed == NULL) return true;
    if (d->payload) return caikit_foreign(r, 400, d->model, needed);
    return vectors_fail_code(r, 400, d->model, EP_MISSING, needed);
}

static bool find_model(const struct reading *r) {
    const struct dialect *d = r->form->dialect;
    const char *name = NULL, *ours = r->ep->conf.model_name;
    char text[MODEL_NAME_BYTES_MAX + 64];
    size_t n = 0;
    enum json_got got = json_get_str(r->v->body, d->model, &name, &n);
    if (got == JSON_WRONG_TYPE)
        return vectors_wrong_kind(r, d->model, "string", "the model's name must be a string");
    if (got != JSON_OK || n == 0) return no_model(r); /* as vLLM has it */
    if (ep_names_model(r->ep, name, n) ||
        (d->same_model != NULL && strlen(name) == n && d->same_model(name, ours))) {
        r->v->model = ep_dup(name, n);
        return r->v->model != NULL || vectors_fail_memory(r);
    }
    snprintf(text, sizeof(text), d->model_unknown, (int)ep_name_shown(name, n), name);
    return vectors_fail_code(r, 404, d->model, EP_NO_MODEL, text);
}

/* Caikit refuses a member that it does not know, wherever it is. NULL ends known. */
static bool only(const struct reading *r, const struct json_value *o, const char *const *known) {
    json_obj_foreach(o, key, val) {
        const char *const *k = known;
        (void)val;
        while (*k != NULL && strcmp(*k, key) != 0) k++;
        if (*k == NULL) return caikit_foreign(r, 422, key, EP_CAIKIT_EXTRA);
    }
    return true;
}

/* Where texts and parameters are: at the root, or as Caikit has it. */
static bool find_places(struct reading *r) {
    static const char *const members[] = {"inputs", "parameters", "model_id", NULL};
    static const char *const parameters[] = {
        "truncate_input_tokens", "top_n", "return_documents", "return_text", "return_query",
        "return_queries",        NULL};
    const struct form *f = r->form;
    const char *const inputs[] = {f->left[0], f->right[0], NULL};
    r->in = r->params = r->v->body;
    if (!f->dialect->payload) return true;
    if (!only(r, r->v->body, members)) return false;
    if (json_get(r->v->body, "inputs", &r->in) != JSON_OK)
        return vectors_fail(r, 400, "inputs", "inputs is missing");
    struct json_value *p = NULL;
    enum json_got got = json_get_obj(r->v->body, "parameters", &p);
    if (got == JSON_WRONG_TYPE)
        return vectors_fail(r, 422, "parameters", "parameters must be an object");
    if (got == JSON_OK && !only(r, p, parameters)) return false;
    r->params = got == JSON_OK ? p : r->v->body; /* which has none of them */
    if (json_is(r->in, json_type_object)) return only(r, r->in, inputs);
    return f->bare || vectors_fail(r, 422, "inputs", "inputs must be an object");
}

/* A message of Caikit's as the body that its REST path has: parameters apart, the model of the
 * call's metadata, a text or texts alone as they are. */
static bool as_payload(const struct reading *r) {
    static const char *const parameters[] = {"truncate_input_tokens", "top_n",
                                             "return_documents",      "return_text",
                                             "return_query",          "return_queries"};
    const struct endpoint_meta *meta = &r->ask->meta;
    const uint32_t failures = json_failures();
    struct json_value *body = json_new_obj(), *in = json_new_obj(), *params = json_new_obj(), *one;
    json_obj_foreach(r->v->body, key, val) {
        bool param = false;
        for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++)
            param |= strcmp(parameters[i], key) == 0;
        json_obj_set(param ? params : in, key, json_ref(val));
    }
    if (json_get(in, "text", &one) == JSON_OK || json_get(in, "texts", &one) == JSON_OK) {
        json_ref(one);
        json_put(in);
        in = one;
    }
    json_obj_set(body, "inputs", in);
    json_obj_set(body, "parameters", params);
    if (meta->has_model) json_obj_set(body, "model_id", json_new_str(meta->model));
    json_put(r->v->body);
    r->v->body = body;
    return json_failures() == failures || vectors_fail_memory(r);
}

static bool parse(const struct reading *r) {
    const struct ep_body b = {.path = r->ask->path,
                              .meta = &r->ask->meta,
                              .p = r->ask->body,
                              .own = r->ask->body,
                              .n = r->ask->n,
                              .bytes_max = r->ep->conf.max_request_bytes,
                              .limits = json_limits_client(JSON_DEPTH_MAX)};
    char why[ERR_TEXT_BYTES_MAX];
    int status;
    if (!ep_body_parse(&b, &r->v->wire, &r->v->body, &status, why, sizeof(why)))
        return status != 0 ? vectors_fail(r, status, NULL, why)
                           : vectors_fail_code(r, 422, NULL, EP_INVALID_JSON,
                                               r->form->dialect->no_body != NULL && r->ask->n == 0
                                                   ? r->form->dialect->no_body
                                                   : "The body must be a JSON object");
    return r->ask->path->frames != API_FRAMES_GRPC || as_payload(r);
}

/* Whether the answer shows something of the body again. */
static bool repeats(const struct reading *r) {
    const struct vectors_req *v = r->v;
    return r->form->documents &&
           (v->show_documents || (v->show_texts && (v->tei || r->form->dialect->shows_more)) ||
            (v->show_queries && r->form->dialect->shows_more));
}

/* Texts may wait long for the engine: what is of no more use is given back now. */
static void keep_body(const struct reading *r) {
    struct vectors_req *v = r->v;
    if (repeats(r)) {
        v->body_bytes = json_tree_bytes(v->body) + v->wire.len;
        return;
    }
    json_put(v->body);
    v->body = NULL;
    buf_free(&v->wire);
}

bool vectors_read(const struct endpoint *ep, const struct endpoint_ask *ask,
                  const struct vectors_limits *limits, struct vectors_req **out,
                  struct api_answer *err) {
    struct reading r = {.ep = ep, .ask = ask, .limits = limits, .err = err};
    bool good;
    r.form = &forms[ask->path->vectors];
    r.room = (size_t)ep->conf.max_seq_len;
    r.v = *out = calloc(1, sizeof(*r.v));
    if (r.v == NULL) return vectors_fail_memory(&r);
    r.v->path = ask->path;
    good =
        parse(&r) && find_model(&r) && find_places(&r) && read_params(&r) && vectors_read_texts(&r);
    if (good)
        keep_body(&r);
    else
        vectors_free(out);
    return good;
}

void vectors_free(struct vectors_req **vp) {
    struct vectors_req *v = *vp;
    if (v == NULL) return;
    for (size_t i = 0; i < v->n_texts; i++) id_list_free(&v->texts[i].ids);
    free(v->texts);
    json_put(v->body);
    buf_free(&v->wire);
    free(v->model);
    free(v);
    *vp = NULL;
}
