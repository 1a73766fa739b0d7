/* api: the table of inference paths and the builder of error bodies. */
#include "proto/api.h"

#include <stdio.h>
#include <string.h>
#include "proto/json.h"

const struct api_path api_paths[] = {
    {"/", API_TGI, API_STREAM_FIELD},
    {"/generate", API_TGI, API_STREAM_BY_DIALECT},
    {"/generate_stream", API_TGI, API_STREAM_ALWAYS},
    {"/v1/chat/completions", API_OPENAI_CHAT, API_STREAM_FIELD},
    {"/v1/completions", API_OPENAI_COMPLETIONS, API_STREAM_FIELD},
    {"/infer", API_NATIVE, API_STREAM_FIELD},
    {"/infer_token", API_NATIVE, API_STREAM_FIELD},
    {"/v2/models/{m}/infer", API_TRITON_TOKEN, API_STREAM_NEVER},
    {"/v2/models/{m}/generate", API_TRITON_TEXT, API_STREAM_NEVER},
    {"/v2/models/{m}/generate_stream", API_TRITON_TEXT, API_STREAM_ALWAYS},
    {NULL, API_NONE, API_STREAM_NEVER},
};

const char *const api_trace_headers[] = {
    "traceparent",  "b3",         "X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId",
    "X-B3-Sampled", "X-B3-Flags", "tracestate",   NULL};

void api_path_drop_version(char *path) {
    static const char models[] = "/v2/models/", versions[] = "/versions/";
    if (strncmp(path, models, sizeof(models) - 1) != 0) return;
    char *at = strchr(path + sizeof(models) - 1, '/');
    if (at == NULL || strncmp(at, versions, sizeof(versions) - 1) != 0) return;
    const char *version = at + sizeof(versions) - 1;
    const char *rest = version + strcspn(version, "/");
    if (rest == version) return; /* an empty version is no version */
    memmove(at, rest, strlen(rest) + 1);
}

/* Bytes of a model's name at the start of s. */
static size_t name_len(const char *s) {
    return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
}

static bool path_matches(const char *pattern, const char *path, char *model) {
    const char *hole = strstr(pattern, "{m}");
    model[0] = '\0';
    if (hole == NULL) return strcmp(pattern, path) == 0;
    size_t head = (size_t)(hole - pattern);
    if (strncmp(pattern, path, head) != 0) return false;
    size_t n = name_len(path + head);
    if (n == 0 || n > MODEL_NAME_BYTES_MAX || strcmp(hole + 3, path + head + n) != 0) return false;
    memcpy(model, path + head, n);
    model[n] = '\0';
    return true;
}

const struct api_path *api_path_find(const char *path, char model[MODEL_NAME_BYTES_MAX + 1]) {
    for (const struct api_path *a = api_paths; a->path != NULL; a++)
        if (path_matches(a->path, path, model)) return a;
    return NULL;
}

void api_path_format(char *dst, size_t dst_bytes, const struct api_path *path, const char *model) {
    const char *hole = strstr(path->path, "{m}");
    if (hole == NULL) {
        snprintf(dst, dst_bytes, "%s", path->path);
    } else {
        snprintf(dst, dst_bytes, "%.*s%s%s", (int)(hole - path->path), path->path, model, hole + 3);
    }
}

bool api_streams(const struct api_path *path, bool asks, bool has_prompt) {
    if (path->stream == API_STREAM_ALWAYS) return true;
    if (path->stream == API_STREAM_NEVER) return false;
    return asks && (path->stream != API_STREAM_BY_DIALECT || has_prompt);
}

bool api_wants_stream(const struct api_path *path, const struct json_value *body) {
    bool on = false;
    struct json_value *v;
    bool asks = json_get_bool(body, "stream", &on) == JSON_OK && on;
    return api_streams(path, asks, json_get(body, "prompt", &v) == JSON_OK);
}

/* One row per status: the MindIE error_type, the flat vLLM type, the nested OpenAI type and code.
 */
static const struct status_row {
    int status;
    const char *error_type;
    const char *vllm_type;
    const char *openai_type, *openai_code;
} status_rows[] = {
    {400, "Bad Request", "BadRequestError", "invalid_request_error", "invalid_request"},
    {401, "Unauthorized", "AuthenticationError", "invalid_request_error", "invalid_api_key"},
    {403, "Forbidden", "PermissionDeniedError", "permission_error", "permission_denied"},
    {404, "NotFoundError", "NotFoundError", "invalid_request_error", "not_found"},
    {405, "Method Not Allowed", "BadRequestError", "invalid_request_error", "method_not_supported"},
    {408, "Request Timeout", "RequestTimeoutError", "timeout", "timeout"},
    {409, "Conflict", "BadRequestError", "invalid_request_error", "conflict"},
    {413, "Input Validation Error", "BadRequestError", "invalid_request_error",
     "request_too_large"},
    {422, "Input Validation Error", "BadRequestError", "invalid_request_error", "invalid_value"},
    {424, "Generation Error", "BadRequestError", "invalid_request_error", "invalid_request"},
    {429, "overloaded", "RateLimitError", "rate_limit_error", "rate_limit_exceeded"},
    {500, "Incomplete Generation", "InternalServerError", "server_error", "internal_error"},
    {501, "Not Implemented", "InternalServerError", "server_error", "not_implemented"},
    {503, "Service Unavailable", "ServiceUnavailableError", "server_error", "service_unavailable"},
};

static const struct status_row *status_row(int status) {
    static const struct status_row client = {400, "Bad Request", "BadRequestError",
                                             "invalid_request_error", "invalid_request"};
    static const struct status_row server = {500, "Incomplete Generation", "InternalServerError",
                                             "server_error", "internal_error"};
    for (size_t i = 0; i < sizeof(status_rows) / sizeof(status_rows[0]); i++)
        if (status_rows[i].status == status) return &status_rows[i];
    return status < 500 ? &client : &server;
}

enum error_style api_path_style(const char *path, enum error_style configured) {
    static const char *const control[] = {
        "/v1/instances/", "/v1/role/",   "/v1/engine-server/", "/v1/load_lora_adapter",
        "/v1/config",     "/v1/status",  "/v1/health",         "/v1/unload_lora_adapter",
        "/v1/tokenizer",  "/v1/startup", "/v1/readiness"};
    for (size_t i = 0; i < sizeof(control) / sizeof(control[0]); i++)
        if (strncmp(path, control[i], strlen(control[i])) == 0) return ERROR_STYLE_MINDIE;
    return configured;
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

/* {"error":{"message","type","param","code"}}: OpenAI's own shape. */
static struct json_value *nested(int status, const char *text, const char *param,
                                 const char *code) {
    struct json_value *o = json_new_obj(), *in = json_new_obj();
    const struct status_row *row = status_row(status);
    bool has_param = param != NULL && param[0] != '\0';
    add_str(in, "message", text);
    add_str(in, "type", row->openai_type);
    json_obj_set(in, "param", has_param ? json_new_str(param) : NULL);
    add_str(in, "code", code != NULL ? code : row->openai_code);
    json_obj_set(o, "error", in);
    return o;
}

static struct json_value *flat(bool openai_path, int status, const char *error_type,
                               const char *text) {
    struct json_value *o = json_new_obj();
    add_str(o, "error", text);
    add_str(o, "error_type", error_type != NULL ? error_type : api_error_type(status));
    if (openai_path) {
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

static char *printed(struct json_value *o) {
    const char *s = o != NULL ? json_to_text(o, JSON_COMPACT, NULL) : NULL;
    char *body = s != NULL ? strdup(s) : NULL;
    json_put(o);
    return body;
}

char *api_error_body_of(bool openai_path, enum error_style style, int *status, const char *text,
                        const char *param, const char *code) {
    int was = *status;
    /* 401 has one shape for every family (inference-api 2.2). */
    if (was != 401 && !(openai_path && style == ERROR_STYLE_OPENAI))
        return printed(flat(openai_path, was, NULL, text));
    if (was == 422 || was == 424) *status = 400;
    return printed(nested(was, text, param, code));
}

char *api_error_body(bool openai_path, enum error_style style, int *status, const char *error_type,
                     const char *text) {
    if (error_type != NULL && *status != 401 && !(openai_path && style == ERROR_STYLE_OPENAI))
        return printed(flat(openai_path, *status, error_type, text));
    return api_error_body_of(openai_path, style, status, text, NULL, NULL);
}
