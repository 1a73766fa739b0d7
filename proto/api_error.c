/* api_error: one table of statuses, a function for each shape. */
#include "proto/api_error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "proto/json.h"
#include "proto/json_lex.h"

/* One row per status: the reference's error_type, the flat vLLM type, OpenAI's type and code, and
 * the types of Anthropic's and llama.cpp's objects. */
static const struct status_row {
    int status;
    const char *error_type;
    const char *vllm_type;
    const char *openai_type, *openai_code;
    const char *anthropic_type, *llamacpp_type;
} status_rows[] = {
    {400, "Bad Request", "BadRequestError", "invalid_request_error", "invalid_request",
     "invalid_request_error", "invalid_request_error"},
    {401, "Unauthorized", "AuthenticationError", "invalid_request_error", "invalid_api_key",
     "authentication_error", "authentication_error"},
    {403, "Forbidden", "PermissionDeniedError", "permission_error", "permission_denied",
     "permission_error", "permission_error"},
    {404, "NotFoundError", "NotFoundError", "invalid_request_error", "not_found", "not_found_error",
     "not_found_error"},
    {405, "Method Not Allowed", "BadRequestError", "invalid_request_error", "method_not_supported",
     "invalid_request_error", "invalid_request_error"},
    {408, "Request Timeout", "RequestTimeoutError", "timeout", "timeout", "timeout_error",
     "server_error"},
    {409, "Conflict", "BadRequestError", "invalid_request_error", "conflict", "conflict_error",
     "invalid_request_error"},
    {413, "Input Validation Error", "BadRequestError", "invalid_request_error", "request_too_large",
     "request_too_large", "invalid_request_error"},
    {422, "Input Validation Error", "BadRequestError", "invalid_request_error", "invalid_value",
     "invalid_request_error", "invalid_request_error"},
    {424, "Generation Error", "BadRequestError", "invalid_request_error", "invalid_request",
     "invalid_request_error", "exceed_context_size_error"},
    {429, "overloaded", "RateLimitError", "rate_limit_error", "rate_limit_exceeded",
     "rate_limit_error", "unavailable_error"},
    {500, "Incomplete Generation", "InternalServerError", "server_error", "internal_error",
     "api_error", "server_error"},
    {501, "Not Implemented", "InternalServerError", "server_error", "not_implemented", "api_error",
     "not_supported_error"},
    {503, "Service Unavailable", "ServiceUnavailableError", "server_error", "service_unavailable",
     "overloaded_error", "unavailable_error"},
};

static const struct status_row *status_row(int status) {
    enum { CLIENT = 0, SERVER = 11 }; /* 400 and 500 stand for the others */
    for (size_t i = 0; i < sizeof(status_rows) / sizeof(status_rows[0]); i++)
        if (status_rows[i].status == status) return &status_rows[i];
    return &status_rows[status < 500 ? CLIENT : SERVER];
}

const char *api_error_type(int status) {
    return status_row(status)->error_type;
}

void api_too_large_text(char *dst, size_t body_bytes_max) {
    snprintf(dst, API_TOO_LARGE_BYTES, "Request body too large. Maximum allowed size is %zuMB.",
             body_bytes_max >> 20);
}

static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}

static struct json_value *openai(int status, const char *text, const char *param,
                                 const char *code) {
    struct json_value *o = json_new_obj(), *in = json_new_obj();
    const struct status_row *row = status_row(status);
    bool has_param = param != NULL && param[0] != '\0';
    add_str(in, "message", text);
    add_str(in, "type", row->openai_type);
    json_obj_set(in, "param", has_param ? json_new_str(param) : NULL);
    if (code == NULL) code = row->openai_code;
    json_obj_set(in, "code", code[0] != '\0' ? json_new_str(code) : NULL);
    json_obj_set(o, "error", in);
    return o;
}

static struct json_value *plain(bool v1, int status, const char *text) {
    struct json_value *o = json_new_obj();
    add_str(o, "error", text);
    add_str(o, "error_type", api_error_type(status));
    if (v1) {
        add_str(o, "object", "error");
        add_str(o, "message", text);
        add_str(o, "type", status_row(status)->vllm_type);
        json_obj_set(o, "param", NULL);
        json_obj_set(o, "code", json_new_i64(status));
    } else if (status == 413) {
        add_str(o, "message", text); /* the vendor's only member there */
    }
    return o;
}

static struct json_value *anthropic(int status, const char *text) {
    struct json_value *o = json_new_obj(), *in = json_new_obj();
    add_str(o, "type", "error");
    add_str(in, "type", status_row(status)->anthropic_type);
    add_str(in, "message", text);
    json_obj_set(o, "error", in);
    return o;
}

static struct json_value *text_alone(const char *text) {
    struct json_value *o = json_new_obj();
    add_str(o, "error", text);
    return o;
}

static struct json_value *llamacpp(int status, const char *type, const char *text) {
    struct json_value *o = json_new_obj(), *in = json_new_obj();
    json_obj_set(in, "code", json_new_i64(status));
    add_str(in, "message", text);
    add_str(in, "type", type);
    json_obj_set(o, "error", in);
    return o;
}

/* A body that is no JSON, or names no model, cannot be routed to one there. */
static struct json_value *ovms(int *status, const char *text, const char *param, const char *code) {
    const bool no_json = code != NULL && strcmp(code, "invalid_json") == 0,
               no_model = code != NULL && strcmp(code, "missing_required_parameter") == 0 &&
                          param != NULL && strcmp(param, "model") == 0;
    if (no_json || no_model) *status = 412;
    return text_alone(no_json    ? "The file is not valid json"
                      : no_model ? "model field is missing in JSON body"
                                 : text);
}

/* What is wrong in kind, as a list of where and what. */
static const char *caikit_type(const char *text, const char *code) {
    static const struct {
        const char *begins, *type;
    } types[] = {{"Extra inputs", "extra_forbidden"},
                 {"Input should be a valid integer", "int_type"},
                 {"Input should be a valid number", "float_type"},
                 {"Input should be a valid boolean", "bool_type"},
                 {"Input should be a valid string", "string_type"},
                 {"Input should be a valid list", "list_type"},
                 {"Input should be a valid dictionary", "dict_type"}};
    if (code != NULL && strcmp(code, "invalid_json") == 0) return "json_invalid";
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strncmp(text, types[i].begins, strlen(types[i].begins)) == 0) return types[i].type;
    return "value_error";
}

static struct json_value *caikit_info(const char *text, const char *param, const char *code,
                                      struct json_value *input) {
    struct json_value *list = json_new_arr(), *one = json_new_obj(), *loc = json_new_arr();
    add_str(one, "type", caikit_type(text, code));
    if (param != NULL && param[0] != '\0') json_arr_add(loc, json_new_str(param));
    json_obj_set(one, "loc", loc);
    add_str(one, "msg", text);
    if (input != NULL) json_obj_set(one, "input", json_ref(input));
    json_arr_add(list, one);
    return list;
}

/* The id is for whoever looks for the answer in a log: different each time, no more. */
static struct json_value *caikit(int status, const char *text, const char *param, const char *code,
                                 struct json_value *input) {
    struct json_value *o = json_new_obj();
    struct timespec now;
    char id[33];
    clock_gettime(CLOCK_REALTIME, &now);
    const unsigned long long ns = (unsigned long long)now.tv_nsec;
    snprintf(id, sizeof(id), "%016llx%016llx", (unsigned long long)now.tv_sec,
             ns * 0x9E3779B97F4A7C15ull);
    add_str(o, "details", text);
    if (status == 422) json_obj_set(o, "additional_info", caikit_info(text, param, code, input));
    json_obj_set(o, "code", json_new_i64(status));
    add_str(o, "id", id);
    return o;
}

/* Of what is refused before Caikit sees it. */
static struct json_value *caikit_detail(const char *text) {
    struct json_value *o = json_new_obj();
    add_str(o, "detail", text);
    return o;
}

static bool is_of_framework(int status, const char *code) {
    return status == 405 || status == 415 ||
           (status == 404 && code != NULL && strcmp(code, "unknown_url") == 0);
}

static const char *framework_text(int status, const char *text) {
    return status == 404 ? "Not Found" : status == 405 ? "Method Not Allowed" : text;
}

/* A text without the bytes of characters that it was cut in. The caller frees it. */
static char *whole_characters(const char *text) {
    const size_t n = strlen(text);
    char *whole = malloc(n + 1);
    size_t len = 0;
    for (size_t i = 0, take; whole != NULL && i<n; i += take> 0 ? take : 1) {
        take = json_take_utf8(text + i, n - i);
        memcpy(whole + len, text + i, take);
        len += take;
    }
    if (whole != NULL) whole[len] = '\0';
    return whole;
}

static char *printed(struct json_value *o) {
    const char *s = o != NULL ? json_to_text(o, JSON_COMPACT, NULL) : NULL;
    char *body = s != NULL ? strdup(s) : NULL;
    json_put(o);
    return body;
}

static char *body_of(enum api_errors shape, enum error_style style, int *status, const char *text,
                     const char *param, const char *code, struct json_value *input) {
    const int was = *status;
    if (shape == API_ERRORS_V1 && style == ERROR_STYLE_OPENAI) shape = API_ERRORS_OPENAI;
    if (shape == API_ERRORS_VLLM)
        shape = style == ERROR_STYLE_OPENAI ? API_ERRORS_OPENAI : API_ERRORS_PLAIN;
    /* 401 has one shape for the families of the reference in its manner (inference-api 2.2). */
    if (was == 401 && style == ERROR_STYLE_MINDIE &&
        (shape == API_ERRORS_PLAIN || shape == API_ERRORS_V1))
        shape = API_ERRORS_OPENAI;
    if (shape == API_ERRORS_PLAIN || shape == API_ERRORS_V1)
        return printed(plain(shape == API_ERRORS_V1, was, text));
    if (shape == API_ERRORS_CAIKIT) /* its own 422 stays */
        return printed(is_of_framework(was, code) ? caikit_detail(framework_text(was, text))
                                                  : caikit(was, text, param, code, input));
    if (was == 422 || was == 424) *status = 400;
    switch (shape) {
    case API_ERRORS_GRPC: return strdup(text);
    case API_ERRORS_ANTHROPIC: return printed(anthropic(was, text));
    case API_ERRORS_OLLAMA:
        if (was == 429) *status = 503; /* its word for a full queue */
        return printed(text_alone(text));
    case API_ERRORS_OVMS: return printed(ovms(status, text, param, code));
    case API_ERRORS_LLAMACPP:
        return printed(llamacpp(*status, status_row(was)->llamacpp_type, text));
    default: return printed(openai(was, text, param, code));
    }
}

char *api_error_body_of(enum api_errors shape, enum error_style style, int *status,
                        const char *text, const char *param, const char *code,
                        struct json_value *input) {
    char *whole = whole_characters(text);
    char *body = whole != NULL ? body_of(shape, style, status, whole, param, code, input) : NULL;
    free(whole);
    return body;
}

char *api_error_body(enum api_errors shape, enum error_style style, int *status, const char *text,
                     const char *param, const char *code) {
    return api_error_body_of(shape, style, status, text, param, code, NULL);
}
