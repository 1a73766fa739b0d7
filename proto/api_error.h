/* api_error: the body of an error in the shape of the family whose path was asked (inference-api 3,
 * client-apis 2.10, 3.4, 4.1, 8). Pure. */
#ifndef BATON_PROTO_API_ERROR_H
#define BATON_PROTO_API_ERROR_H

#include <stddef.h>

/* The manner of paths under /v1/ (config errorStyle): the reference's, or that of OpenAI's own
 * service, with its error objects and statuses and its wider ranges (docs/api.md). */
/* What a model that only turns texts into vectors or scores answers to a request for text. */
#define API_GENERATES_NOTHING "The model generates nothing: it turns texts into vectors or scores."

enum error_style { ERROR_STYLE_MINDIE, ERROR_STYLE_OPENAI };

enum api_errors {
    API_ERRORS_PLAIN,     /* {"error","error_type"}: the reference's */
    API_ERRORS_V1,        /* the same with vLLM's flat members, or OpenAI's object, by errorStyle */
    API_ERRORS_OPENAI,    /* {"error":{"message","type","param","code"}} always */
    API_ERRORS_ANTHROPIC, /* {"type":"error","error":{"type","message"}} */
    API_ERRORS_OLLAMA,    /* {"error":"text"} */
    API_ERRORS_CAIKIT,    /* {"details","code","id"} */
    API_ERRORS_GRPC,      /* the text alone: the status is not in the body */
    API_ERRORS_LLAMACPP,  /* {"error":{"code":status,"message","type"}} */
    API_ERRORS_VLLM,      /* the reference's, or OpenAI's object, by errorStyle */
    API_ERRORS_OVMS,      /* {"error":"text"}; 412 for a body that cannot be read */
    API_ERRORS_COUNT,
};

/* "Input Validation Error" for 422 and so on (inference-api 3.1, 3.5); a string constant. */
const char *api_error_type(int status);

/* The text of a 413 (inference-api 3.3 row 1). dst[API_TOO_LARGE_BYTES]. */
enum { API_TOO_LARGE_BYTES = 96 };
void api_too_large_text(char *dst, size_t body_bytes_max);

/* The JSON of an error; a malloc'd string, NULL: no memory. *status is mapped to one that clients
 * of the shape know. param: the member of the body that is wrong, "messages[1].content", and code:
 * how, "invalid_type"; NULL or "": not known. Only OpenAI's object shows them; code NULL there: the
 * one that goes with the status, "": null. */
char *api_error_body(enum api_errors shape, enum error_style style, int *status, const char *text,
                     const char *param, const char *code);
/* The same; input: what stands at the member, which Caikit's shows; NULL: not known. Only lent. */
struct json_value;
char *api_error_body_of(enum api_errors shape, enum error_style style, int *status,
                        const char *text, const char *param, const char *code,
                        struct json_value *input);

#endif
