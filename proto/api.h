/* api: the client-facing paths of inference and the shape of each family's errors, in one table
 * that instances and the coordinator share (inference-api 1, 3). */
#ifndef BATON_PROTO_API_H
#define BATON_PROTO_API_H

#include <stdbool.h>
#include <stddef.h>
#include "proto/infer_msg.h"
#include "proto/limits.h"

struct json_value;

enum api_stream {
    API_STREAM_NEVER,
    API_STREAM_FIELD, /* when the body says "stream": true */
    API_STREAM_ALWAYS,
    API_STREAM_BY_DIALECT, /* /generate: a body with `prompt` (vLLM) as FIELD, one with `inputs`
                              (TGI) never */
};

/* A row per inference path. /generate is API_TGI here; the body decides between TGI and vLLM
 * (inference-api 6.1). */
struct api_path {
    const char *path; /* router pattern with {m} */
    enum api api;
    enum api_stream stream;
};
extern const struct api_path api_paths[]; /* ends with path NULL; all are POST */

/* Takes the optional "/versions/V" out of a "/v2/models/M/versions/V..." path, in place, before it
 * is routed; any other path stays as it is (inference-api 1: the part is accepted and ignored). */
void api_path_drop_version(char *path);

/* The row of a path that api_path_drop_version() has seen, and the model in it ("" when the row
 * names none). NULL: no inference path. {m} takes 1 to MODEL_NAME_BYTES_MAX of [A-Za-z0-9_.-]. */
const struct api_path *api_path_find(const char *path, char model[MODEL_NAME_BYTES_MAX + 1]);
/* The other way: the row's path with model in the place of {m}. Cut when dst is too small; enough
 * is API_PATH_BYTES. */
enum { API_PATH_BYTES = MODEL_NAME_BYTES_MAX + 64 };
void api_path_format(char *dst, size_t dst_bytes, const struct api_path *path, const char *model);

/* Whether a body on this path asks for a stream; body: the parsed object, or NULL when there is
 * none. */
bool api_wants_stream(const struct api_path *path, const struct json_value *body);
/* The same of what such a body says: "stream": true; a `prompt` that is not null. */
bool api_streams(const struct api_path *path, bool asks, bool has_prompt);

/* Headers of a client that go with its request through the cluster, beside X-Request-Id; ends with
 * NULL (inference-api 2.2, cluster-api 2). */
extern const char *const api_trace_headers[];

/* The manner of paths under /v1/ (config errorStyle): the reference's, or that of OpenAI's own
 * service, with its error objects and statuses and its wider ranges (docs/api.md). */
enum error_style { ERROR_STYLE_MINDIE, ERROR_STYLE_OPENAI };

/* The style of errors on a path: errors of control paths under /v1/ (roles, registration, adapters,
 * probes) stay as the reference has them. */
enum error_style api_path_style(const char *path, enum error_style configured);

/* "Input Validation Error" for 422 and so on (inference-api 3.1, 3.5); a string constant. */
const char *api_error_type(int status);

/* The text of a 413 (inference-api 3.3 row 1). dst[API_TOO_LARGE_BYTES]. */
enum { API_TOO_LARGE_BYTES = 96 };
void api_too_large_text(char *dst, size_t body_bytes_max);

/* The JSON error body of a family. error_type NULL: api_error_type(status). openai_path: the path
 * begins with /v1/ (adds the flat vLLM members, or the nested OpenAI object in that style). Returns
 * a malloc'd string (NULL: no memory). *status is mapped when the style asks for it. */
char *api_error_body(bool openai_path, enum error_style style, int *status, const char *error_type,
                     const char *text);
/* The same for an error that knows which member of the body is wrong and how; only OpenAI's shape
 * shows it. param: "temperature", "messages[1].content"; NULL or "": none. code: "invalid_type"...;
 * NULL: the one that goes with the status. */
char *api_error_body_of(bool openai_path, enum error_style style, int *status, const char *text,
                        const char *param, const char *code);

#endif
