/* ep_caikit_info: the tokens of a text, and what Caikit says of itself and its models
 * (kserve-runtimes 3.2, 5, 6), over REST and gRPC. */
#include <stdlib.h>
#include <string.h>
#include "common/base/query.h"
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

/* The releases whose wire form is spoken. */
#define PACKAGES  "{\"caikit\":\"0.27.7\",\"caikit_nlp\":\"0.5.13\"}"
#define GENERATES "f9181353-4ccf-4572-bd1e-f12bcda26792"
#define EMBEDS    "eeb12558-b4fa-4f34-a9fd-3f5890e9cd3f"

static bool fail(const struct endpoint *ep, const struct endpoint_ask *ask, int status,
                 const char *text, const char *name, struct api_answer *out) {
    struct buf b = BUF_INIT;
    const char *hole = strchr(text, '%');
    if (hole == NULL)
        buf_puts(&b, text);
    else
        buf_printf(&b, "%.*s%.256s%s", (int)(hole - text), text, name, hole + 1);
    ep_answer_error(ep, ask->path->errors, status, b.data != NULL ? b.data : text, out);
    buf_free(&b);
    return false;
}

/* ---- tokens */

/* A member that is not Caikit's: of another dialect's body, where that goes. */
static bool fail_extra(const struct endpoint *ep, const struct endpoint_ask *ask,
                       const struct json_value *body, struct api_answer *out) {
    char with[EP_ELSEWHERE_BYTES] = EP_CAIKIT_EXTRA;
    struct json_value *v;
    if (json_get(body, "inputs", &v) != JSON_OK)
        (void)ep_elsewhere(with, ask->path, body, "inputs", EP_CAIKIT_EXTRA);
    ep_answer_error(ep, ask->path->errors, 422, with, out);
    return false;
}

/* The text, after checks of the model's name. False: *out is the error. */
static bool find_text(const struct endpoint *ep, const struct endpoint_ask *ask,
                      const struct json_value *body, const char **s, size_t *n,
                      struct api_answer *out) {
    const bool grpc = ask->path->frames == API_FRAMES_GRPC;
    const char *model = ask->meta.model, *member = grpc ? "text" : "inputs";
    size_t n_model = 0;
    enum json_got got = ask->meta.has_model ? JSON_OK : JSON_ABSENT;
    if (!grpc) {
        json_obj_foreach(body, key, val) {
            (void)val;
            if (strcmp(key, "inputs") != 0 && strcmp(key, "parameters") != 0 &&
                strcmp(key, "model_id") != 0)
                return fail_extra(ep, ask, body, out);
        }
        got = json_get_str(body, "model_id", &model, &n_model);
    }
    if (got == JSON_WRONG_TYPE)
        return fail(ep, ask, 422, "Input should be a valid string", "", out);
    if (got != JSON_OK) return fail(ep, ask, 400, "Please provide model_id in payload", "", out);
    if (!ep_names_model(ep, model, grpc ? strlen(model) : n_model))
        return fail(ep, ask, 404, "Model '%' not loaded", model, out);
    got = json_get_str(body, member, s, n);
    if (got == JSON_WRONG_TYPE)
        return fail(ep, ask, 422, "Input should be a valid string", "", out);
    return got == JSON_OK || grpc ||
           fail(ep, ask, 400, "the required argument text is missing", "", out);
}

static enum err put_results(const struct endpoint *ep, const char *s, size_t n, struct buf *json) {
    struct id_list ids = {0};
    struct buf text = BUF_INIT;
    struct ep_span *spans = NULL;
    enum err e = tokenizer_encode(ep->tok, s, n, true, PROMPT_TOKENS_MAX, &ids);
    if (e == ERR_OK && (spans = calloc(ids.n + 1, sizeof(*spans))) == NULL) e = ERR_NO_MEMORY;
    if (e == ERR_OK) e = ep_token_spans(ep, &ids, &text, spans);
    buf_puts(json, "{\"results\":[");
    for (size_t i = 0; e == ERR_OK && i < ids.n; i++) {
        buf_printf(json, "%s{\"start\":%zu,\"end\":%zu,\"text\":", i > 0 ? "," : "", spans[i].start,
                   spans[i].end);
        buf_json_text(json, spans[i].n > 0 ? text.data + spans[i].at : "", spans[i].n, true);
        buf_putc(json, '}');
        if (json->len > DRESULT_PIECE_BYTES_MAX) e = ERR_TOO_LARGE;
    }
    buf_printf(json, "],\"token_count\":%zu}", ids.n);
    free(spans);
    buf_free(&text);
    id_list_free(&ids);
    return e;
}

void endpoint_caikit_tokenize(const struct endpoint *ep, const struct endpoint_ask *ask,
                              struct api_answer *out) {
    struct buf wire = BUF_INIT, json = BUF_INIT;
    struct json_value *body = NULL;
    const char *s = "";
    size_t n = 0;
    if (ep_ask_read(ep, ask, &wire, &body, out) && find_text(ep, ask, body, &s, &n, out)) {
        const enum err e = put_results(ep, s, n, &json);
        if (e == ERR_OK)
            ep_ask_reply(ask, &json, out);
        else
            fail(ep, ask, e == ERR_NO_MEMORY ? 503 : 400,
                 e == ERR_TOO_LARGE ? "the answer would be over 64 MiB: ask for a shorter text"
                                    : "the text cannot be tokenised",
                 "", out);
    }
    buf_free(&json);
    json_put(body);
    buf_free(&wire);
}

/* ---- runtime and models */

void endpoint_caikit_runtime(const struct endpoint *ep, const struct endpoint_ask *ask,
                             struct api_answer *out) {
    struct buf json = BUF_INIT;
    (void)ep;
    buf_puts(&json, "{\"runtime_version\":null,\"python_packages\":" PACKAGES "}");
    ep_ask_reply(ask, &json, out);
}

static void put_model(const struct endpoint *ep, struct buf *json) {
    const struct model_info *m = ep->model;
    const bool embeds = m->encoder;
    buf_puts(json, "{\"models\":[{\"model_path\":");
    put_cstr(json, ep->root);
    buf_puts(json, ",\"name\":");
    put_cstr(json, ep->conf.model_name);
    buf_printf(json,
               ",\"size\":%llu,\"metadata\":{\"max_seq_length\":%d,"
               "\"sentence_embedding_dimension\":%d},\"loaded\":true,\"module_id\":\"%s\","
               "\"module_metadata\":{\"name\":\"%s\",\"version\":\"%s\"}}]}",
               (unsigned long long)m->weight_bytes, ep->conf.max_seq_len, m->hidden,
               embeds ? EMBEDS : GENERATES, embeds ? "EmbeddingModule" : "Text Generation",
               embeds ? "0.0.1" : "0.1.0");
}

static bool known(const struct endpoint *ep, const struct endpoint_ask *ask, const char *name,
                  size_t n, struct api_answer *out) {
    return ep_names_model(ep, name, n) || fail(ep, ask, 404, "Model % is not loaded", name, out);
}

/* ?model_ids=a&model_ids=b */
static bool query_known(const struct endpoint *ep, const struct endpoint_ask *ask,
                        struct api_answer *out) {
    char name[MODEL_NAME_BYTES_MAX + 2];
    const char *at = ask->query != NULL ? ask->query : "";
    while (query_next(&at, "model_ids", name, sizeof(name)))
        if (!known(ep, ask, name, strlen(name), out)) return false;
    return true;
}

static bool message_known(const struct endpoint *ep, const struct endpoint_ask *ask,
                          const struct json_value *body, struct api_answer *out) {
    struct json_value *list = NULL;
    json_get_arr(body, "model_ids", &list);
    for (size_t i = 0; i < json_arr_len(list); i++) {
        const struct json_value *v = json_arr_at(list, i);
        if (!known(ep, ask, json_str(v), json_str_len(v), out)) return false;
    }
    return true;
}

void endpoint_caikit_models(const struct endpoint *ep, const struct endpoint_ask *ask,
                            struct api_answer *out) {
    struct buf wire = BUF_INIT, json = BUF_INIT;
    struct json_value *body = NULL;
    const bool grpc = ask->path->frames == API_FRAMES_GRPC;
    if (grpc ? ep_ask_read(ep, ask, &wire, &body, out) && message_known(ep, ask, body, out)
             : query_known(ep, ask, out)) {
        put_model(ep, &json);
        ep_ask_reply(ask, &json, out);
    }
    json_put(body);
    buf_free(&wire);
}
