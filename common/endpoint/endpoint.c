/* endpoint: creation, and the way of one body through its family: dialect, JSON, input, parameters,
 * combinations, admission, the request (the order of inference-api 3.3). */
#include "common/endpoint/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_rows.h"
#include "common/guide/guide.h"
#include "common/endpoint/tool_parse.h"
#include "proto/json_tree.h"

enum { JSON_DEPTH_DEFAULT = 10, GUIDES_MAX = 32 };

/* ---- life */

char *ep_dup(const char *s, size_t n) {
    char *copy = malloc(n + 1);
    if (copy == NULL) return NULL;
    if (n > 0) memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

static enum err load_templates(struct endpoint *ep, struct errbuf *eb) {
    for (int tools = 0; tools < 2; tools++) {
        free(ep->bos);
        free(ep->eos);
        ep->bos = ep->eos = NULL;
        enum err e =
            chat_template_load(&ep->chat[tools], ep->conf.model_dir, tools, &ep->bos, &ep->eos, eb);
        if (e != ERR_OK && e != ERR_NOT_FOUND) return e;
    }
    return ERR_OK;
}

/* Names of parsers, which are not looked at again. */
static enum err choose_parsers(struct endpoint *ep, struct errbuf *eb) {
    const char *tools = ep->conf.tool_call_parser, *thinking = ep->conf.reasoning_parser;
    ep->conf.tool_call_parser = ep->conf.reasoning_parser = NULL;
    if (tools == NULL || strcmp(tools, "auto") == 0)
        ep->tool_format = ep_template_format(ep->chat[1]);
    else if (!tool_format_of_name(tools, &ep->tool_format))
        return err_set(eb, ERR_BAD_CONFIG, "toolCallParser: no parser is called %s", tools);
    if (thinking == NULL || strcmp(thinking, "none") == 0)
        ep->thinking = EP_THINKING_NONE;
    else if (strcmp(thinking, "qwen3") == 0)
        ep->thinking = EP_THINKING_TAGGED;
    else if (strcmp(thinking, "deepseek_r1") == 0)
        ep->thinking = EP_THINKING_ALWAYS;
    else
        return err_set(eb, ERR_BAD_CONFIG, "reasoningParser: no parser is called %s", thinking);
    if (ep->tool_format == TOOLS_HARMONY || ep_template_format(ep->chat[0]) == TOOLS_HARMONY)
        ep->thinking = EP_THINKING_CHANNEL;
    return ERR_OK;
}

static enum err open_guides(struct endpoint *ep, struct errbuf *eb) {
    enum err e = guide_vocab_create(&ep->vocab, ep->tok, ep->model->vocab_size, ep->model->eos_ids,
                                    ep->model->n_eos);
    if (e == ERR_OK) {
        int ms = ep->conf.guide_compile_ms;
        guide_vocab_limits(ep->vocab, ms > 0 ? ms : GUIDE_COMPILE_MS, guide_step_ms(ep));
        e = guide_cache_create(&ep->guides, ep->vocab, GUIDES_MAX);
    }
    return e == ERR_OK ? e : err_set(eb, e, "no memory for guided decoding");
}

enum err endpoint_create(struct endpoint **out, const struct endpoint_conf *conf,
                         const struct tokenizer *tok, const struct model_info *model,
                         struct errbuf *eb) {
    *out = NULL;
    if (conf->max_seq_len < 2 || conf->max_input_token_len < 1 || conf->max_iter_times < 1)
        return err_set(eb, ERR_BAD_CONFIG,
                       "maxSeqLen must be at least 2, maxInputTokenLen and maxIterTimes at least "
                       "1; got %d, %d, %d",
                       conf->max_seq_len, conf->max_input_token_len, conf->max_iter_times);
    struct endpoint *ep = calloc(1, sizeof(*ep));
    if (ep == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the endpoint");
    ep->conf = *conf;
    ep->conf.model_name = strdup(conf->model_name != NULL ? conf->model_name : "");
    ep->conf.model_dir = strdup(conf->model_dir != NULL ? conf->model_dir : "");
    ep->tok = tok;
    ep->model = model;
    enum err e = ERR_NO_MEMORY;
    if (ep->conf.model_name == NULL || ep->conf.model_dir == NULL) {
        err_set(eb, e, "no memory for the endpoint");
        goto fail;
    }
    if (ep->conf.model_dir[0] != '\0' && (e = load_templates(ep, eb)) != ERR_OK) goto fail;
    if ((e = choose_parsers(ep, eb)) != ERR_OK) goto fail;
    if (tok != NULL && (e = open_guides(ep, eb)) != ERR_OK) goto fail;
    /* Only the last part of the directory is ever shown to a client. */
    char *dir = (char *)ep->conf.model_dir;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') dir[--n] = '\0';
    const char *slash = strrchr(dir, '/');
    ep->root = slash != NULL && slash[1] != '\0' ? slash + 1 : dir;
    *out = ep;
    return ERR_OK;
fail:
    endpoint_destroy(&ep);
    return e;
}

void endpoint_destroy(struct endpoint **ep_ptr) {
    struct endpoint *ep = *ep_ptr;
    if (ep == NULL) return;
    chat_template_free(&ep->chat[0]);
    chat_template_free(&ep->chat[1]);
    guide_cache_destroy(&ep->guides);
    guide_vocab_destroy(&ep->vocab);
    free(ep->bos);
    free(ep->eos);
    free((char *)ep->conf.model_name);
    free((char *)ep->conf.model_dir);
    free(ep);
    *ep_ptr = NULL;
}

const struct endpoint_conf *endpoint_conf(const struct endpoint *ep) {
    return &ep->conf;
}

/* ---- errors */

/* What stands at the member: in the body, its parameters or its inputs. More than a screen of it
 * helps nobody. */
static struct json_value *member_of(const struct json_value *body, const char *name) {
    enum { SHOWN_BYTES_MAX = 1024 };
    struct json_value *v = NULL, *in = NULL;
    if (body == NULL || name == NULL || name[0] == '\0') return NULL;
    if (json_get(body, name, &v) == JSON_ABSENT &&
        (json_get_obj(body, "parameters", &in) != JSON_OK ||
         json_get(in, name, &v) == JSON_ABSENT) &&
        json_get_obj(body, "inputs", &in) == JSON_OK)
        json_get(in, name, &v);
    if (v == NULL || json_is(v, json_type_object) || json_is(v, json_type_array))
        return v != NULL && json_tree_bytes(v) <= SHOWN_BYTES_MAX ? v : NULL;
    return json_is(v, json_type_string) && json_str_len(v) > SHOWN_BYTES_MAX ? NULL : v;
}

void ep_answer_error_in(const struct endpoint *ep, enum api_errors shape, int status,
                        const char *text, const char *param, const char *code,
                        const struct json_value *body, struct api_answer *out) {
    *out = (struct api_answer){.status = status, .content_type = "application/json"};
    struct json_value *input = shape == API_ERRORS_CAIKIT ? member_of(body, param) : NULL;
    char *said =
        api_error_body_of(shape, ep->conf.error_style, &out->status, text, param, code, input);
    if (said != NULL)
        buf_puts(&out->body, said);
    else
        out->status = 503; /* no memory to say it */
    free(said);
}

void ep_answer_error_of(const struct endpoint *ep, enum api_errors shape, int status,
                        const char *text, const char *param, const char *code,
                        struct api_answer *out) {
    ep_answer_error_in(ep, shape, status, text, param, code, NULL, out);
}

void ep_answer_error(const struct endpoint *ep, enum api_errors shape, int status, const char *text,
                     struct api_answer *out) {
    ep_answer_error_of(ep, shape, status, text, NULL, NULL, out);
}

void endpoint_error(const struct endpoint *ep, const struct api_path *path, int status,
                    const char *text, struct api_answer *out) {
    ep_answer_error(ep, path->errors, status, text, out);
}

/* Bytes of s, at most room, that end with a whole character. */
static size_t whole_chars(const char *s, size_t n, size_t room) {
    if (n <= room) return n;
    while (room > 0 && ((unsigned char)s[room] & 0xC0) == 0x80) room--;
    return room;
}

void ep_at(struct ep_read *r, const char *member) {
    if (r->status != 0) return;
    const size_t n =
        whole_chars(member, strlen(member), sizeof(r->at) - 1); /* it may be a client's */
    memcpy(r->at, member, n);
    r->at[n] = '\0';
}

void ep_at_message(struct ep_read *r, size_t i, const char *member) {
    if (r->status == 0) snprintf(r->at, sizeof(r->at), "messages[%zu].%s", i, member);
}

bool ep_openai_manner(const struct ep_read *r) {
    const struct api_path *path = r->in->path;
    if (path == NULL || path->errors == API_ERRORS_PLAIN) return false;
    return path->errors != API_ERRORS_V1 || r->ep->conf.error_style == ERROR_STYLE_OPENAI;
}

void endpoint_req_error(const struct endpoint *ep, const struct infer_req *req, int status,
                        const char *text, struct api_answer *out) {
    ep_answer_error(ep, req->answer.errors, status, text, out);
}

/* Appends n bytes to r->error; a text too long for it ends before the character that does not fit.
 */
static void error_append(struct ep_read *r, size_t *len, const char *s, size_t n) {
    n = whole_chars(s, n, sizeof(r->error) - 1 - *len);
    memcpy(r->error + *len, s, n);
    *len += n;
    r->error[*len] = '\0';
}

bool ep_fail(struct ep_read *r, int status, const char *text) {
    return ep_fail_with(r, status, text, NULL);
}

bool ep_missing(struct ep_read *r, const char *text) {
    if (r->status == 0) r->code = EP_MISSING;
    return ep_fail(r, 422, text);
}

bool ep_wrong_type(struct ep_read *r, const char *text) {
    if (r->status == 0) r->code = EP_INVALID_TYPE;
    return ep_fail(r, 422, text);
}

bool ep_fail_pairs(struct ep_read *r, int status, const char *text, const char *const *pairs) {
    size_t len = 0;
    if (r->status != 0) return false;
    r->status = status;
    while (*text != '\0') {
        size_t plain = strcspn(text, "{");
        const char *const *p = pairs;
        error_append(r, &len, text, plain);
        text += plain;
        if (*text == '\0') break;
        while (p[0] != NULL && strncmp(text, p[0], strlen(p[0])) != 0) p += 2;
        if (p[0] == NULL) { /* a brace that is just a brace */
            error_append(r, &len, text++, 1);
            continue;
        }
        error_append(r, &len, p[1], strlen(p[1]));
        text += strlen(p[0]);
    }
    return false;
}

bool ep_fail_value(struct ep_read *r, int status, const char *text, const struct json_value *got) {
    char literal[256];
    json_literal(literal, sizeof(literal), got);
    return ep_fail_with(r, status, text, "{got}", literal, NULL);
}

bool ep_fail_memory(struct ep_read *r) {
    return ep_fail(r, 503, "out of memory");
}

bool ep_answer_now(struct ep_read *r) {
    if (r->text.failed) return ep_fail_memory(r);
    if (r->status == 0) r->status = 200;
    return false;
}

/* ---- names */

size_t ep_name_shown(const char *s, size_t n) {
    return buf_utf8_span(s, n < MODEL_NAME_BYTES_MAX ? n : MODEL_NAME_BYTES_MAX);
}

bool ep_id_valid(const char *s, size_t n) {
    if (n < 1 || n > CLIENT_ID_BYTES_MAX) return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
              (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '-'))
            return false;
    return true;
}

bool ep_client_id(struct ep_read *r) {
    struct json_value *v;
    const char *s;
    size_t n;
    if (json_get(r->body, "id", &v) != JSON_OK) return true;
    if (json_as_str(v, &s, &n) != JSON_OK || !ep_id_valid(s, n))
        return ep_fail(r, 422,
                       "The id can contain only digits, letters, underscores(_), hyphens(-) and no "
                       "more than 256 words in length.");
    r->req->head.client_id = ep_dup(s, n);
    return r->req->head.client_id != NULL || ep_fail_memory(r);
}

static bool no_model(struct ep_read *r, const char *name) {
    if (r->status == 0) r->code = EP_NO_MODEL;
    if (!ep_openai_manner(r))
        return ep_fail_with(r, 422, r->fam->model_unknown, "{got}", name, NULL);
    return ep_fail_with(r, 404,
                        "The model '{got}' does not exist. GET /v1/models lists those that do.",
                        "{got}", name, NULL);
}

bool ep_model_member(struct ep_read *r) {
    struct json_value *v;
    const char *s;
    size_t n;
    ep_at(r, "model");
    if (json_get(r->body, "model", &v) != JSON_OK) {
        if (!r->in->path->any_model)
            return ep_missing(r, "Request contains not model or model null");
        s = r->ep->conf.model_name;
        n = strlen(s);
    } else if (json_as_str(v, &s, &n) != JSON_OK) {
        return ep_wrong_type(r, "Request param model must be string");
    }
    if (n == 0) return ep_fail(r, 422, "Request param model must be not empty");
    if (!ep_names_served(r, s, n)) return no_model(r, s);
    r->req->head.model = ep_dup(s, n);
    return r->req->head.model != NULL || ep_fail_memory(r);
}

/* ---- one body */

/* The tree, if the body is one object; a message that is none has failed. */
static bool parse_object(struct ep_read *r) {
    const struct endpoint_in *in = r->in;
    const int depth = r->ep->conf.json_depth_max;
    struct ep_body b = {.path = in->path,
                        .meta = &in->meta,
                        .p = in->body,
                        .own = in->body_own,
                        .n = in->body_len,
                        .bytes_max = r->ep->conf.max_request_bytes,
                        .limits = json_limits_client(depth > 0 ? depth : JSON_DEPTH_DEFAULT)};
    char why[ERR_TEXT_BYTES_MAX];
    int status;
    if (in->path->frames == API_FRAMES_TENSORS && !ep_infer_split(r, &b)) return false;
    if (ep_body_parse(&b, &r->wire, &r->body, &status, why, sizeof(why))) return true;
    return status == 0 || ep_fail_with(r, status, "{why}", "{why}", why, NULL);
}

/* What each kind of path asks of the body before the family is at work: the dialect of /generate
 * (6.1), the stream member of `/` (3.3 rows 5 and 6). Sets the family and whether to stream, as far
 * as known. */
static bool open_by_dialect(struct ep_read *r) {
    static const char neither[] =
        "`inputs` or `prompt` must be necessary and data type must be string. Additionally, the "
        "request body must be valid json";
    char text[EP_ELSEWHERE_BYTES];
    struct json_value *v;
    if (json_get(r->body, "prompt", &v) == JSON_OK)
        r->fam = ep_family_of(r->ep, API_VLLM);
    else if (json_get(r->body, "inputs", &v) != JSON_OK) {
        (void)ep_elsewhere(text, r->in->path, r->body, "inputs", neither);
        return ep_fail_with(r, 422, "{\"Error\": \"{text}\", \"error_type\": \"validation\"}",
                            "{text}", text, NULL);
    }
    r->stream = api_wants_stream(r->in->path, r->body);
    return true;
}

static bool open_root(struct ep_read *r) {
    if (r->body == NULL) return ep_fail(r, 422, "Failed to parse context to json body");
    if (json_get_bool(r->body, "stream", &r->stream) == JSON_WRONG_TYPE)
        return ep_fail(r, 422, "Stream must be boolean type.");
    r->req->answer.root_array = true;
    return true;
}

static bool open_plain(struct ep_read *r) {
    if (r->body == NULL) {
        const bool nothing = r->in->body_len == 0 && r->in->path->errors == API_ERRORS_OLLAMA;
        r->code = EP_INVALID_JSON;
        return ep_fail(
            r, 422, nothing ? "missing request body" : "Failed to parse request context to json");
    }
    /* Here, because checks before `stream` depend on it; its type is checked in its place of the
     * order. */
    r->stream = api_wants_stream(r->in->path, r->body);
    return true;
}

static bool open_body(struct ep_read *r) {
    const struct api_path *path = r->in->path;
    const bool tensors = path->frames == API_FRAMES_TENSORS;
    r->fam = ep_family_of(r->ep, path->api);
    if (tensors && r->in->meta.json_bytes[0] != '\0') r->fam = ep_family_of(r->ep, API_INFER_REST);
    if (!parse_object(r)) return false;
    if (tensors && ep_infer_is_tensors(r)) r->fam = ep_family_of(r->ep, API_INFER_REST);
    if (path->api == API_TRITON_TEXT && ep_infer_is_text(r))
        r->fam = ep_family_of(r->ep, API_INFER_TEXT);
    r->no_json = r->body == NULL;
    if (path->stream == API_STREAM_BY_DIALECT) return open_by_dialect(r);
    if (path->root_array) return open_root(r);
    return open_plain(r);
}

/* The object the parameters are in; a family's reader may have put one together already. */
static bool open_params(struct ep_read *r) {
    struct json_value *v;
    if (r->params != NULL) return true;
    if (!r->fam->params_object) {
        r->params = json_ref(r->body);
        return true;
    }
    if (json_get(r->body, "parameters", &v) != JSON_OK) return true;
    if (!json_is(v, json_type_object)) return ep_fail(r, 422, "parameters must be object type.");
    r->params = json_ref(v);
    return true;
}

static bool check_size(struct ep_read *r) {
    char mb[24];
    if (r->ep->conf.max_request_bytes == 0 || r->in->body_len <= r->ep->conf.max_request_bytes)
        return true;
    snprintf(mb, sizeof(mb), "%zu", r->ep->conf.max_request_bytes >> 20);
    return ep_fail_with(r, 413, "Request body too large. Maximum allowed size is {mb}MB.", "{mb}",
                        mb, NULL);
}

static bool check_path_model(struct ep_read *r) {
    const char *name = r->in->path_model;
    if (name == NULL || name[0] == '\0') return true;
    if (!ep_names_served(r, name, strlen(name)))
        return ep_fail_with(r, 404, "Model {got} not found.", "{got}", name, NULL);
    r->req->head.model = strdup(name);
    return r->req->head.model != NULL || ep_fail_memory(r);
}

static bool start_req(struct ep_read *r) {
    r->req = infer_req_create();
    if (r->req == NULL) return ep_fail_memory(r);
    r->req->head.req_id = strdup(r->in->req_id);
    if (r->req->head.req_id == NULL) return ep_fail_memory(r);
    r->req->head.created_unix_s =
        r->in->created_unix_s > 0 ? r->in->created_unix_s : clock_unix_s();
    r->req->head.arrival_us = r->in->arrival_us;
    r->req->head.is_recompute = r->in->is_recompute;
    return true;
}

static bool read_all(struct ep_read *r) {
    if (!start_req(r) || !check_size(r) || !check_path_model(r) || !open_body(r)) return false;
    r->req->answer.api = r->fam->api;
    r->req->answer.errors = r->in->path->errors;
    return r->fam->read(r) && open_params(r) &&
           ep_fields_read(r, ep_orders[r->fam - ep_families]) &&
           (r->fam->combine == NULL || r->fam->combine(r)) && ep_nbest(r) && ep_build(r) &&
           ep_answer_fits(r) && ep_guide_compile(r);
}

/* A value that is not allowed, in a family that keeps 422 for what is wrong in kind, or for
 * nothing. */
static bool is_value(const struct ep_read *r) {
    const char *code = r->code != NULL ? r->code : "";
    if (r->fam != NULL && r->fam->all_are_400) return true;
    return r->fam != NULL && r->fam->values_are_400 && strcmp(code, EP_INVALID_TYPE) != 0 &&
           strcmp(code, EP_INVALID_JSON) != 0;
}

/* A body that can be read has opened the stream: what is wrong in it is the stream's one event
 * (kserve-runtimes 4.1). */
static void as_event(struct api_answer *err) {
    const struct api_framing *f = &api_framings[API_FRAMES_SSE_EVENTS];
    struct buf event = BUF_INIT;
    if (err->status != 400 && err->status != 404) return;
    buf_puts(&event, f->before);
    buf_append(&event, err->body.data, err->body.len);
    buf_append(&event, f->after, f->after_bytes);
    event.failed = event.failed || err->body.failed;
    buf_free(&err->body);
    *err = (struct api_answer){.status = 200, .content_type = f->type, .body = event};
}

bool endpoint_read(const struct endpoint *ep, const struct endpoint_in *in, struct infer_req **out,
                   struct api_answer *err) {
    struct ep_read r = {
        .ep = ep,
        .in = in,
        .p = EP_PARAMS_DEFAULT,
    };
    *out = NULL;
    *err = (struct api_answer){0};
    const uint32_t failures = json_failures();
    bool good = read_all(&r);
    if (json_failures() != failures) { /* what was built may lack a part */
        r.status = 0;
        r.code = NULL;
        good = ep_fail_memory(&r);
    }
    if (good) {
        *out = r.req;
    } else if (r.status == 200) {
        infer_req_destroy(&r.req);
        *err = (struct api_answer){.status = 200,
                                   .content_type = api_framings[in->path->frames].whole};
        err->body = r.text;
        r.text = BUF_INIT;
    } else {
        infer_req_destroy(&r.req);
        if ((r.status == 422 || r.status == 424) && is_value(&r)) r.status = 400;
        ep_answer_error_in(ep, in->path->errors, r.status, r.error, r.at, r.code, r.body, err);
        err->no_json = r.no_json;
        if (in->path->frames == API_FRAMES_SSE_EVENTS) as_event(err);
    }
    json_put(r.callable);
    json_put(r.held);
    json_put(r.params);
    json_put(r.body);
    buf_free(&r.wire);
    for (size_t i = 0; i < r.n_prompts; i++) id_list_free(&r.prompts[i].ids);
    free(r.prompts);
    id_list_free(&r.ids);
    buf_free(&r.text);
    return good;
}
