/* api: the client-facing paths of inference and the shape of each family's errors, in one table
 * that instances and the coordinator share (inference-api 1, 3). */
#ifndef BATON_PROTO_API_H
#define BATON_PROTO_API_H

#include <stdbool.h>
#include <stddef.h>
#include "proto/api_error.h"
#include "proto/infer_msg.h"
#include "proto/limits.h"

struct json_value;

/* What a path asks an instance for. The first three are requests of the engine (enum infer_work),
 * which a coordinator schedules; any instance answers the others. */
enum api_work {
    API_GENERATE,
    API_EMBED,
    API_SCORE,
    API_KEPT,     /* nothing: who serves the client has what it asks for (common/net/kept.h) */
    API_STATS,    /* nothing: who serves the client has counted (common/grpc/stats_reply.h) */
    API_TOKENIZE, /* on the text pool: a megabyte of text takes milliseconds */
    API_INFORM,   /* at once */
    API_BY_BODY,  /* what the body's members say: api_path_by_body() */
};

enum api_stream {
    API_STREAM_NEVER,
    API_STREAM_FIELD,   /* when the body says "stream": true */
    API_STREAM_DEFAULT, /* unless the body says "stream": false */
    API_STREAM_ALWAYS,
    API_STREAM_MANY,       /* a call whose client streams too: ALWAYS for each of its messages */
    API_STREAM_BY_DIALECT, /* /generate: a body with `prompt` (vLLM) as FIELD, one with `inputs`
                              (TGI) never */
};

/* How the pieces of a stream are framed. */
enum api_frames {
    API_FRAMES_NONE,
    API_FRAMES_SSE,        /* "data: {..}" and an empty line */
    API_FRAMES_SSE_DONE,   /* the same, and "data: [DONE]" at the end */
    API_FRAMES_SSE_BARE,   /* Triton's: "data:{..}" */
    API_FRAMES_SSE_NAMED,  /* each event has a name: "event: error" before an error's data */
    API_FRAMES_SSE_TYPED,  /* the same, and the data repeat it as their `type` */
    API_FRAMES_SSE_EVENTS, /* each event has a name, lines end in CR LF; Caikit's */
    API_FRAMES_OBJECTS,    /* vLLM's /generate: objects with a zero byte behind each */
    API_FRAMES_NDJSON,     /* an object a line */
    API_FRAMES_GRPC,       /* messages of gRPC, status in the trailers */
    API_FRAMES_TENSORS,    /* never a stream: JSON, maybe with bytes behind it (tensors.h) */
};

/* What surrounds the pieces of a framing, as those who write errors into a stream need it. */
struct api_framing {
    const char *type, *whole;   /* Content-Type of a stream, and of an answer that is none */
    const char *before, *after; /* of an error's JSON, which ends the stream */
    bool opened;                /* `before` has opened the object: without its first brace */
    size_t after_bytes;
    bool comments; /* ":" and an empty line keep a silent stream open */
    bool trailers; /* the error of a stream is no part of it: http_x_stream_fail() */
    bool binary;   /* pieces are no text */
};
extern const struct api_framing api_framings[]; /* by enum api_frames */

/* The form of a path of API_EMBED or API_SCORE: what is asked and how the answer looks; a row of
 * common/endpoint/vectors.h each. */
enum api_vectors {
    VECTORS_NONE,
    VECTORS_EMBEDDINGS,
    VECTORS_POOLING,
    VECTORS_SCORE,
    VECTORS_RERANK,
    VECTORS_RERANK_SHORT, /* documents are not repeated unless asked for */
    VECTORS_CAIKIT_EMBEDDING,
    VECTORS_CAIKIT_EMBEDDINGS,
    VECTORS_CAIKIT_SIMILARITY,
    VECTORS_CAIKIT_SIMILARITIES,
    VECTORS_CAIKIT_RERANK,
    VECTORS_CAIKIT_RERANKS,
    VECTORS_OLLAMA_EMBED,
    VECTORS_OLLAMA_EMBEDDINGS,
    VECTORS_LLAMACPP,
    VECTORS_COUNT,
};

/* What a path of API_TOKENIZE or API_INFORM is answered with; a table of the endpoint has a
 * function for each. */
enum api_info {
    INFO_NONE,
    INFO_MODELS,
    INFO_MODEL,
    INFO_VERSION,
    INFO_TRITON_SERVER,
    INFO_TRITON_MODEL,
    INFO_TRITON_CONFIG,
    INFO_TOKENIZER,
    INFO_TOKENIZE,
    INFO_DETOKENIZE,
    INFO_ANTHROPIC_TOKENS,
    INFO_RESPONSES_TOKENS,
    INFO_CHAT_TOKENS,
    INFO_TOKENIZER_INFO,
    INFO_RENDER,
    INFO_LLAMACPP_PROPS,
    INFO_LLAMACPP_LORAS,
    INFO_LLAMACPP_TEMPLATE,
    INFO_UNSUPPORTED, /* 501: known, and not here */
    INFO_OLLAMA_RUNNING,
    INFO_OLLAMA_TAGS,
    INFO_OLLAMA_PS,
    INFO_OLLAMA_VERSION,
    INFO_OLLAMA_SHOW,
    INFO_OLLAMA_PULL,
    INFO_OLLAMA_REFUSED, /* what changes the models of a server */
    INFO_TGIS_TOKENIZE,
    INFO_TGIS_MODEL,
    INFO_OVMS_TOKENIZE,
    INFO_TRITON_INDEX,
    INFO_TRITON_LOAD,
    INFO_TRITON_UNLOAD,
    INFO_TRITON_REGIONS, /* of shared memory */
    INFO_CAIKIT_TOKENIZE,
    INFO_CAIKIT_RUNTIME,
    INFO_CAIKIT_MODELS,
    INFO_INFER_SERVER,
    INFO_INFER_MODEL,
    INFO_INFER_CONFIG,
    INFO_INFER_INDEX,
    INFO_INFER_LOAD,
    INFO_INFER_UNLOAD,
    INFO_INFER_EMPTY, /* there is none of it */
    /* of API_KEPT */
    INFO_KEPT_RESPONSE,
    INFO_KEPT_DELETE,
    INFO_KEPT_CANCEL,
    INFO_KEPT_ITEMS,
    INFO_COUNT,
};

/* A row per path of the user plane that an instance answers. /generate is API_TGI here; the body
 * decides between TGI and vLLM (inference-api 6.1). */
struct api_path {
    const char *method;
    const char *path; /* router pattern with {m}, one part (a model, an id), or {*}, the rest */
    enum api_work work;
    enum api api;             /* API_NONE: nothing is generated */
    enum api_info info;       /* INFO_NONE: a request of the engine */
    enum api_vectors vectors; /* VECTORS_NONE: no vectors or scores are made */
    enum api_stream stream;
    enum api_frames frames; /* of a stream */
    enum api_errors errors;
    bool root_array; /* TGI on "/": a whole answer is inside an array */
    bool chained;    /* a body may go on behind answers that were kept */
    bool json_only;  /* a body must say that it is JSON, where it says what it is */
    bool any_model;  /* of OpenAI's families: a body that names no model is for the server's */
};
extern const struct api_path api_paths[]; /* ends with path NULL */

/* Takes the optional "/versions/V" out of a "/v2/models/M/versions/V..." path, in place, before it
 * is routed; any other path stays as it is. version: V, cut where it is too long to be any; "":
 * there is none. */
enum { API_VERSION_BYTES = 32 };
void api_path_drop_version(char *path, char version[API_VERSION_BYTES]);
/* Models have one version (kserve-runtimes 8.6); "": whichever there is. */
bool api_version_is_served(const char *version);

/* The row of a method and a path that api_path_drop_version() has seen, and the model in it (""
 * when the row names none). NULL: there is none. {m} takes 1 to MODEL_NAME_BYTES_MAX of
 * [A-Za-z0-9_.-], {*} as many of anything; HEAD is answered as GET. */
const struct api_path *api_path_find(const char *method, const char *path,
                                     char model[MODEL_NAME_BYTES_MAX + 1]);
/* Of API_BY_BODY: the row of the path that a body like this one is for, by the member that its
 * input is in. NULL: it has none of them, or is no JSON object. Takes a pass over the body. */
const struct api_path *api_path_by_body(const char *body, size_t n);
/* "messages, prompt, ..": the members that api_path_by_body() looks for. */
const char *api_body_members(void);
/* The methods of a path for Allow: "GET, HEAD, DELETE"; "": it has no row. */
enum { API_ALLOW_BYTES = 64 };
void api_path_methods(char allow[API_ALLOW_BYTES], const char *path);
bool api_is_infer(const struct api_path *path); /* generates: it has P and D in a cluster */
/* Answered without a key: what runs here, which whoever probes asks first (kserve-runtimes 2). */
bool api_is_open(const struct api_path *path);
/* The shape of errors of any path, one that does not exist as well. */
enum api_errors api_path_errors(const char *path);
/* The other way: the row's path with model in the place of {m} or {*}. Cut when dst is too small;
 * enough is API_PATH_BYTES. */
enum { API_PATH_BYTES = MODEL_NAME_BYTES_MAX + 64 };
void api_path_format(char *dst, size_t dst_bytes, const struct api_path *path, const char *model);

/* Whether a path takes bodies of this Content-Type, NULL: of none; only Caikit's and vLLM's own
 * look at it. */
bool api_takes_type(const struct api_path *path, const char *type);

/* Whether a body on this path asks for a stream; body: the parsed object, or NULL when there is
 * none. */
bool api_wants_stream(const struct api_path *path, const struct json_value *body);
/* The same of what such a body says: its `stream`; a `prompt` that is not null. */
enum api_asks { API_ASKS_NOTHING, API_ASKS_STREAM, API_ASKS_WHOLE };
bool api_streams(const struct api_path *path, enum api_asks asks, bool has_prompt);

/* Header of a request to an instance: so many bytes behind the client's body are what lies before
 * it, {"items":[..],"referenced":{id:item}} (docs/wire-context.md). A replay record comes behind
 * them. */
#define CONTEXT_HEADER "baton-context"

/* Header of Anthropic's clients, by which paths that all have in common know them. */
#define ANTHROPIC_HEADER "anthropic-version"

/* Headers of a client that go with its request through the cluster, beside X-Request-Id; ends with
 * NULL (inference-api 2.2, cluster-api 2). */
extern const char *const api_trace_headers[];

/* The style of errors on a path: errors of control paths under /v1/ (roles, registration, adapters,
 * probes) stay as the reference has them. */
enum error_style api_path_style(const char *path, enum error_style configured);

#endif
