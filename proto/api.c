/* api: the table of inference paths and the builder of error bodies. */
#include "proto/api.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "proto/grpc.h"
#include "proto/json.h"
#include "proto/json_skim.h"

#define GENERATE(path_, api_, stream_, frames_, errors_)                                           \
    {                                                                                              \
        .method = "POST", .path = path_, .work = API_GENERATE, .api = api_, .stream = stream_,     \
        .frames = frames_, .errors = errors_                                                       \
    }
#define MAKE(path_, work_, vectors_, errors_)                                                      \
    { .method = "POST", .path = path_, .work = work_, .vectors = vectors_, .errors = errors_ }
/* Of paths that vLLM alone has, which takes bodies that say they are JSON (kserve-runtimes 12.1).
 */
#define MAKE_JSON(path_, work_, vectors_)                                                          \
    {                                                                                              \
        .method = "POST", .path = path_, .work = work_, .vectors = vectors_,                       \
        .errors = API_ERRORS_V1, .json_only = true                                                 \
    }
#define TOKENIZE(path_, info_, errors_)                                                            \
    { .method = "POST", .path = path_, .work = API_TOKENIZE, .info = info_, .errors = errors_ }
#define KEPT(method_, path_, info_)                                                                \
    {                                                                                              \
        .method = method_, .path = path_, .work = API_KEPT, .info = info_,                         \
        .errors = API_ERRORS_OPENAI                                                                \
    }
#define INFORM(method_, path_, info_, errors_)                                                     \
    { .method = method_, .path = path_, .work = API_INFORM, .info = info_, .errors = errors_ }
/* Methods of gRPC. */
#define CALL(path, api, stream) GENERATE(path, api, stream, API_FRAMES_GRPC, API_ERRORS_GRPC)
#define ASK(path_, work_, info_)                                                                   \
    {                                                                                              \
        .method = "POST", .path = path_, .work = work_, .info = info_, .frames = API_FRAMES_GRPC,  \
        .errors = API_ERRORS_GRPC                                                                  \
    }
/* What whoever serves the client has counted of its models. */
#define STATS(method_, path_, frames_, errors_)                                                    \
    { .method = method_, .path = path_, .work = API_STATS, .frames = frames_, .errors = errors_ }
#define TASK(name, work_, vectors_)                                                                \
    {                                                                                              \
        .method = "POST", .path = "/caikit.runtime.Nlp.NlpService/" name, .work = work_,           \
        .vectors = vectors_, .frames = API_FRAMES_GRPC, .errors = API_ERRORS_GRPC                  \
    }

/* clang-format off */
const struct api_path api_paths[] = {
    {.method = "POST", .path = "/", .work = API_GENERATE, .api = API_TGI, .stream = API_STREAM_FIELD, .frames = API_FRAMES_SSE,
     .errors = API_ERRORS_PLAIN, .root_array = true},
    GENERATE("/generate", API_TGI, API_STREAM_BY_DIALECT, API_FRAMES_OBJECTS, API_ERRORS_PLAIN),
    GENERATE("/generate_stream", API_TGI, API_STREAM_ALWAYS, API_FRAMES_SSE, API_ERRORS_PLAIN),
    GENERATE("/v1/chat/completions", API_OPENAI_CHAT, API_STREAM_FIELD, API_FRAMES_SSE_DONE, API_ERRORS_V1),
    GENERATE("/v1/completions", API_OPENAI_COMPLETIONS, API_STREAM_FIELD, API_FRAMES_SSE_DONE, API_ERRORS_V1),
    GENERATE("/infer", API_NATIVE, API_STREAM_FIELD, API_FRAMES_SSE, API_ERRORS_PLAIN),
    GENERATE("/infer_token", API_NATIVE, API_STREAM_FIELD, API_FRAMES_SSE, API_ERRORS_PLAIN),
    GENERATE("/v2/models/{m}/infer", API_TRITON_TOKEN, API_STREAM_NEVER, API_FRAMES_TENSORS, API_ERRORS_PLAIN),
    GENERATE("/v2/models/{m}/generate", API_TRITON_TEXT, API_STREAM_NEVER, API_FRAMES_NONE, API_ERRORS_PLAIN),
    GENERATE("/v2/models/{m}/generate_stream", API_TRITON_TEXT, API_STREAM_ALWAYS, API_FRAMES_SSE_BARE, API_ERRORS_PLAIN),
    GENERATE("/v3/chat/completions", API_OPENAI_CHAT, API_STREAM_FIELD, API_FRAMES_SSE_DONE, API_ERRORS_OVMS),
    GENERATE("/v3/completions", API_OPENAI_COMPLETIONS, API_STREAM_FIELD, API_FRAMES_SSE_DONE, API_ERRORS_OVMS),
    GENERATE("/v1/messages", API_ANTHROPIC, API_STREAM_FIELD, API_FRAMES_SSE_NAMED, API_ERRORS_ANTHROPIC),
    CALL("/fmaas.GenerationService/Generate", API_TGIS, API_STREAM_NEVER),
    CALL("/fmaas.GenerationService/GenerateStream", API_TGIS, API_STREAM_ALWAYS),
    TASK("EmbeddingTaskPredict", API_EMBED, VECTORS_CAIKIT_EMBEDDING),
    TASK("EmbeddingTasksPredict", API_EMBED, VECTORS_CAIKIT_EMBEDDINGS),
    TASK("SentenceSimilarityTaskPredict", API_SCORE, VECTORS_CAIKIT_SIMILARITY),
    TASK("SentenceSimilarityTasksPredict", API_SCORE, VECTORS_CAIKIT_SIMILARITIES),
    TASK("RerankTaskPredict", API_SCORE, VECTORS_CAIKIT_RERANK),
    TASK("RerankTasksPredict", API_SCORE, VECTORS_CAIKIT_RERANKS),
    ASK("/fmaas.GenerationService/Tokenize", API_TOKENIZE, INFO_TGIS_TOKENIZE),
    ASK("/fmaas.GenerationService/ModelInfo", API_INFORM, INFO_TGIS_MODEL),
    CALL("/caikit.runtime.Nlp.NlpService/TextGenerationTaskPredict", API_CAIKIT_GRPC, API_STREAM_NEVER),
    CALL("/caikit.runtime.Nlp.NlpService/ServerStreamingTextGenerationTaskPredict", API_CAIKIT_GRPC, API_STREAM_ALWAYS),
    ASK("/caikit.runtime.Nlp.NlpService/TokenizationTaskPredict", API_TOKENIZE, INFO_CAIKIT_TOKENIZE),
    ASK("/caikit.runtime.info.InfoService/GetRuntimeInfo", API_INFORM, INFO_CAIKIT_RUNTIME),
    ASK("/caikit.runtime.info.InfoService/GetModelsInfo", API_INFORM, INFO_CAIKIT_MODELS),
    CALL("/inference.GRPCInferenceService/ModelInfer", API_INFER, API_STREAM_NEVER),
    CALL("/inference.GRPCInferenceService/ModelStreamInfer", API_INFER, API_STREAM_MANY),
    ASK("/inference.GRPCInferenceService/ServerMetadata", API_INFORM, INFO_INFER_SERVER),
    ASK("/inference.GRPCInferenceService/ModelMetadata", API_INFORM, INFO_INFER_MODEL),
    ASK("/inference.GRPCInferenceService/ModelConfig", API_INFORM, INFO_INFER_CONFIG),
    STATS("POST", "/inference.GRPCInferenceService/ModelStatistics", API_FRAMES_GRPC, API_ERRORS_GRPC),
    ASK("/inference.GRPCInferenceService/RepositoryIndex", API_INFORM, INFO_INFER_INDEX),
    ASK("/inference.GRPCInferenceService/RepositoryModelLoad", API_INFORM, INFO_INFER_LOAD),
    ASK("/inference.GRPCInferenceService/RepositoryModelUnload", API_INFORM, INFO_INFER_UNLOAD),
    ASK("/inference.GRPCInferenceService/SystemSharedMemoryStatus", API_INFORM, INFO_INFER_EMPTY),
    ASK("/inference.GRPCInferenceService/CudaSharedMemoryStatus", API_INFORM, INFO_INFER_EMPTY),
    ASK("/inference.GRPCInferenceService/SystemSharedMemoryRegister", API_INFORM, INFO_UNSUPPORTED),
    ASK("/inference.GRPCInferenceService/SystemSharedMemoryUnregister", API_INFORM, INFO_UNSUPPORTED),
    ASK("/inference.GRPCInferenceService/CudaSharedMemoryRegister", API_INFORM, INFO_UNSUPPORTED),
    ASK("/inference.GRPCInferenceService/CudaSharedMemoryUnregister", API_INFORM, INFO_UNSUPPORTED),
    ASK("/inference.GRPCInferenceService/TraceSetting", API_INFORM, INFO_UNSUPPORTED),
    ASK("/inference.GRPCInferenceService/LogSettings", API_INFORM, INFO_UNSUPPORTED),
    GENERATE("/api/v1/task/text-generation", API_CAIKIT, API_STREAM_NEVER, API_FRAMES_NONE, API_ERRORS_CAIKIT),
    GENERATE("/api/v1/task/server-streaming-text-generation", API_CAIKIT, API_STREAM_ALWAYS, API_FRAMES_SSE_EVENTS, API_ERRORS_CAIKIT),
    TOKENIZE("/api/v1/task/tokenization", INFO_CAIKIT_TOKENIZE, API_ERRORS_CAIKIT),
    INFORM("GET", "/info/version", INFO_CAIKIT_RUNTIME, API_ERRORS_CAIKIT),
    INFORM("GET", "/info/runtime", INFO_CAIKIT_RUNTIME, API_ERRORS_CAIKIT),
    INFORM("GET", "/info/models", INFO_CAIKIT_MODELS, API_ERRORS_CAIKIT),
    INFORM("POST", "/management/models", INFO_UNSUPPORTED, API_ERRORS_CAIKIT),
    INFORM("DELETE", "/management/models", INFO_UNSUPPORTED, API_ERRORS_CAIKIT),
    TOKENIZE("/v1/messages/count_tokens", INFO_ANTHROPIC_TOKENS, API_ERRORS_ANTHROPIC),
    {.method = "POST", .path = "/v1/responses", .work = API_GENERATE, .api = API_RESPONSES, .stream = API_STREAM_FIELD,
     .frames = API_FRAMES_SSE_TYPED, .errors = API_ERRORS_OPENAI, .chained = true},
    {.method = "POST", .path = "/responses", .work = API_GENERATE, .api = API_RESPONSES, .stream = API_STREAM_FIELD,
     .frames = API_FRAMES_SSE_TYPED, .errors = API_ERRORS_OPENAI, .chained = true},
    {.method = "POST", .path = "/v3/responses", .work = API_GENERATE, .api = API_RESPONSES, .stream = API_STREAM_FIELD,
     .frames = API_FRAMES_SSE_TYPED, .errors = API_ERRORS_OVMS, .chained = true},
    {.method = "POST", .path = "/v1/responses/input_tokens", .work = API_TOKENIZE, .info = INFO_RESPONSES_TOKENS,
     .errors = API_ERRORS_OPENAI, .chained = true},
    INFORM("POST", "/v1/responses/compact", INFO_UNSUPPORTED, API_ERRORS_OPENAI),
    KEPT("GET", "/v1/responses/{m}", INFO_KEPT_RESPONSE),
    KEPT("DELETE", "/v1/responses/{m}", INFO_KEPT_DELETE),
    KEPT("POST", "/v1/responses/{m}/cancel", INFO_KEPT_CANCEL),
    KEPT("GET", "/v1/responses/{m}/input_items", INFO_KEPT_ITEMS),
    MAKE("/v1/embeddings", API_EMBED, VECTORS_EMBEDDINGS, API_ERRORS_V1),
    MAKE("/v3/embeddings", API_EMBED, VECTORS_EMBEDDINGS, API_ERRORS_OVMS),
    MAKE_JSON("/pooling", API_EMBED, VECTORS_POOLING),
    {.method = "POST", .path = "/classify", .work = API_INFORM, .info = INFO_UNSUPPORTED, .errors = API_ERRORS_V1, .json_only = true},
    MAKE_JSON("/invocations", API_BY_BODY, VECTORS_NONE),
    MAKE_JSON("/score", API_SCORE, VECTORS_SCORE),
    MAKE_JSON("/v1/score", API_SCORE, VECTORS_SCORE),
    MAKE("/rerank", API_SCORE, VECTORS_RERANK, API_ERRORS_V1),
    MAKE("/v1/rerank", API_SCORE, VECTORS_RERANK, API_ERRORS_V1),
    MAKE_JSON("/v2/rerank", API_SCORE, VECTORS_RERANK_SHORT),
    MAKE("/v3/rerank", API_SCORE, VECTORS_RERANK_SHORT, API_ERRORS_OVMS),
    MAKE("/api/v1/task/embedding", API_EMBED, VECTORS_CAIKIT_EMBEDDING, API_ERRORS_CAIKIT),
    MAKE("/api/v1/task/embedding-tasks", API_EMBED, VECTORS_CAIKIT_EMBEDDINGS, API_ERRORS_CAIKIT),
    MAKE("/api/v1/task/sentence-similarity", API_SCORE, VECTORS_CAIKIT_SIMILARITY, API_ERRORS_CAIKIT),
    MAKE("/api/v1/task/sentence-similarity-tasks", API_SCORE, VECTORS_CAIKIT_SIMILARITIES, API_ERRORS_CAIKIT),
    MAKE("/api/v1/task/rerank", API_SCORE, VECTORS_CAIKIT_RERANK, API_ERRORS_CAIKIT),
    MAKE("/api/v1/task/rerank-tasks", API_SCORE, VECTORS_CAIKIT_RERANKS, API_ERRORS_CAIKIT),
    GENERATE("/api/chat", API_OLLAMA_CHAT, API_STREAM_DEFAULT, API_FRAMES_NDJSON, API_ERRORS_OLLAMA),
    GENERATE("/api/generate", API_OLLAMA_GENERATE, API_STREAM_DEFAULT, API_FRAMES_NDJSON, API_ERRORS_OLLAMA),
    MAKE("/api/embed", API_EMBED, VECTORS_OLLAMA_EMBED, API_ERRORS_OLLAMA),
    MAKE("/api/embeddings", API_EMBED, VECTORS_OLLAMA_EMBEDDINGS, API_ERRORS_OLLAMA),
    INFORM("GET", "/", INFO_OLLAMA_RUNNING, API_ERRORS_PLAIN),
    INFORM("GET", "/api/tags", INFO_OLLAMA_TAGS, API_ERRORS_OLLAMA),
    INFORM("GET", "/api/ps", INFO_OLLAMA_PS, API_ERRORS_OLLAMA),
    INFORM("GET", "/api/version", INFO_OLLAMA_VERSION, API_ERRORS_OLLAMA),
    INFORM("POST", "/api/show", INFO_OLLAMA_SHOW, API_ERRORS_OLLAMA),
    INFORM("POST", "/api/pull", INFO_OLLAMA_PULL, API_ERRORS_OLLAMA),
    INFORM("POST", "/api/push", INFO_OLLAMA_REFUSED, API_ERRORS_OLLAMA),
    INFORM("POST", "/api/create", INFO_OLLAMA_REFUSED, API_ERRORS_OLLAMA),
    INFORM("POST", "/api/copy", INFO_OLLAMA_REFUSED, API_ERRORS_OLLAMA),
    INFORM("DELETE", "/api/delete", INFO_OLLAMA_REFUSED, API_ERRORS_OLLAMA),
    INFORM("POST", "/api/blobs/{*}", INFO_OLLAMA_REFUSED, API_ERRORS_OLLAMA),
    INFORM("GET", "/api/blobs/{*}", INFO_OLLAMA_REFUSED, API_ERRORS_OLLAMA),
    GENERATE("/completion", API_LLAMACPP, API_STREAM_FIELD, API_FRAMES_SSE, API_ERRORS_LLAMACPP),
    GENERATE("/completions", API_LLAMACPP, API_STREAM_FIELD, API_FRAMES_SSE, API_ERRORS_LLAMACPP),
    {.method = "POST", .path = "/chat/completions", .work = API_GENERATE, .api = API_OPENAI_CHAT, .stream = API_STREAM_FIELD,
     .frames = API_FRAMES_SSE_DONE, .errors = API_ERRORS_V1, .any_model = true},
    MAKE("/embedding", API_EMBED, VECTORS_LLAMACPP, API_ERRORS_LLAMACPP),
    MAKE("/embeddings", API_EMBED, VECTORS_LLAMACPP, API_ERRORS_LLAMACPP),
    MAKE("/reranking", API_SCORE, VECTORS_RERANK, API_ERRORS_V1),
    MAKE("/v1/reranking", API_SCORE, VECTORS_RERANK, API_ERRORS_V1),
    TOKENIZE("/apply-template", INFO_LLAMACPP_TEMPLATE, API_ERRORS_LLAMACPP),
    TOKENIZE("/v1/chat/completions/input_tokens", INFO_CHAT_TOKENS, API_ERRORS_V1),
    {.method = "POST", .path = "/v1/chat/completions/render", .work = API_TOKENIZE, .info = INFO_RENDER, .errors = API_ERRORS_V1,
     .json_only = true},
    INFORM("GET", "/props", INFO_LLAMACPP_PROPS, API_ERRORS_LLAMACPP),
    INFORM("POST", "/props", INFO_UNSUPPORTED, API_ERRORS_LLAMACPP),
    INFORM("POST", "/infill", INFO_UNSUPPORTED, API_ERRORS_LLAMACPP),
    INFORM("POST", "/slots/{m}", INFO_UNSUPPORTED, API_ERRORS_LLAMACPP),
    INFORM("GET", "/lora-adapters", INFO_LLAMACPP_LORAS, API_ERRORS_LLAMACPP),
    INFORM("GET", "/models", INFO_MODELS, API_ERRORS_V1),
    INFORM("GET", "/tokenizer_info", INFO_TOKENIZER_INFO, API_ERRORS_V1),
    TOKENIZE("/v1/tokenizer", INFO_TOKENIZER, API_ERRORS_V1),
    TOKENIZE("/tokenize", INFO_TOKENIZE, API_ERRORS_VLLM),
    TOKENIZE("/detokenize", INFO_DETOKENIZE, API_ERRORS_VLLM),
    TOKENIZE("/v3/tokenize", INFO_OVMS_TOKENIZE, API_ERRORS_OVMS),
    TOKENIZE("/v1/tokenize", INFO_OVMS_TOKENIZE, API_ERRORS_OVMS),
    INFORM("GET", "/v3/models", INFO_MODELS, API_ERRORS_OVMS),
    INFORM("GET", "/v3/models/{*}", INFO_MODEL, API_ERRORS_OVMS),
    INFORM("GET", "/v3/v1/models", INFO_MODELS, API_ERRORS_OVMS),
    INFORM("GET", "/v1/models", INFO_MODELS, API_ERRORS_V1),
    INFORM("GET", "/v1/models/{*}", INFO_MODEL, API_ERRORS_V1),
    INFORM("GET", "/version", INFO_VERSION, API_ERRORS_PLAIN),
    INFORM("GET", "/v2", INFO_TRITON_SERVER, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/models/{m}", INFO_TRITON_MODEL, API_ERRORS_PLAIN),
    STATS("GET", "/v2/models/stats", API_FRAMES_NONE, API_ERRORS_PLAIN),
    STATS("GET", "/v2/models/{m}/stats", API_FRAMES_NONE, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/repository/index", INFO_TRITON_INDEX, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/repository/models/{m}/load", INFO_TRITON_LOAD, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/repository/models/{m}/unload", INFO_TRITON_UNLOAD, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/systemsharedmemory/status", INFO_TRITON_REGIONS, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/cudasharedmemory/status", INFO_TRITON_REGIONS, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/systemsharedmemory/region/{m}/status", INFO_TRITON_REGIONS, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/cudasharedmemory/region/{m}/status", INFO_TRITON_REGIONS, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/systemsharedmemory/region/{m}/register", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/systemsharedmemory/region/{m}/unregister", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/systemsharedmemory/unregister", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/cudasharedmemory/region/{m}/register", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/cudasharedmemory/region/{m}/unregister", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/cudasharedmemory/unregister", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/trace/setting", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/trace/setting", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/models/{m}/trace/setting", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/models/{m}/trace/setting", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/logging", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("POST", "/v2/logging", INFO_UNSUPPORTED, API_ERRORS_PLAIN),
    INFORM("GET", "/v2/models/{m}/config", INFO_TRITON_CONFIG, API_ERRORS_PLAIN),
    {.path = NULL},
};
/* clang-format on */

#define FRAMING(type, before, after, comments)                                                     \
    { type, "application/json", before, after, false, sizeof(after) - 1, comments, false, false }
#define EVENTS "text/event-stream"

const struct api_framing api_framings[] = {
    [API_FRAMES_NONE] = FRAMING("application/json", "", "", false),
    [API_FRAMES_SSE] = FRAMING(EVENTS, "data: ", "\n\n", true),
    [API_FRAMES_SSE_DONE] = FRAMING(EVENTS, "data: ", "\n\ndata: [DONE]\n\n", true),
    [API_FRAMES_SSE_BARE] = FRAMING(EVENTS, "data:", "\n\n", true),
    [API_FRAMES_SSE_NAMED] = FRAMING(EVENTS, "event: error\ndata: ", "\n\n", true),
    [API_FRAMES_SSE_TYPED] = {EVENTS, "application/json",
                              "event: error\ndata: {\"type\":\"error\",", "\n\n", true, 2, true,
                              false, false},
    [API_FRAMES_SSE_EVENTS] = FRAMING(EVENTS, "event: error\r\ndata: ", "\r\n\r\n", true),
    [API_FRAMES_OBJECTS] = FRAMING(EVENTS, "", "\0", false),
    [API_FRAMES_NDJSON] = FRAMING("application/x-ndjson", "", "\n", false),
    [API_FRAMES_TENSORS] = {"application/json", "application/json", "", "", false, 0, false, false,
                            true},
    [API_FRAMES_GRPC] = {GRPC_TYPE, GRPC_TYPE, "", "", false, 0, false, true, true},
};

/* The shape of errors by the beginning of a path; the first that fits. Control paths under /v1/
 * are the reference's. */
static const struct {
    const char *prefix;
    enum api_errors errors;
} error_prefixes[] = {{"/v1/messages/", API_ERRORS_ANTHROPIC},
                      {"/v1/responses/", API_ERRORS_OPENAI},
                      {"/v1/", API_ERRORS_V1},
                      {"/v3/", API_ERRORS_OVMS},
                      {"/api/v1/", API_ERRORS_CAIKIT},
                      {"/info/", API_ERRORS_CAIKIT},
                      {"/management/", API_ERRORS_CAIKIT},
                      {"/api/", API_ERRORS_OLLAMA}};

const char *const api_trace_headers[] = {
    "traceparent",  "b3",         "X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId",
    "X-B3-Sampled", "X-B3-Flags", "tracestate",   NULL};

bool api_version_is_served(const char *version) {
    return version[0] == '\0' || strcmp(version, "1") == 0;
}

void api_path_drop_version(char *path, char version[API_VERSION_BYTES]) {
    static const char models[] = "/v2/models/", versions[] = "/versions/";
    version[0] = '\0';
    if (strncmp(path, models, sizeof(models) - 1) != 0) return;
    char *at = strchr(path + sizeof(models) - 1, '/');
    if (at == NULL || strncmp(at, versions, sizeof(versions) - 1) != 0) return;
    const char *v = at + sizeof(versions) - 1, *rest = v + strcspn(v, "/");
    if (rest == v) return; /* an empty version is no version */
    snprintf(version, API_VERSION_BYTES, "%.*s", (int)(rest - v), v);
    memmove(at, rest, strlen(rest) + 1);
}

/* Bytes of a model's name at the start of s. */
static size_t name_len(const char *s) {
    return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
}

static const char *hole_of(const char *pattern) {
    return strchr(pattern, '{');
}

static bool path_matches(const char *pattern, const char *path, char *model) {
    const char *hole = hole_of(pattern);
    model[0] = '\0';
    if (hole == NULL) return strcmp(pattern, path) == 0;
    size_t head = (size_t)(hole - pattern);
    if (strncmp(pattern, path, head) != 0) return false;
    size_t n = hole[1] == '*' ? strlen(path + head) : name_len(path + head);
    if (n == 0 || n > MODEL_NAME_BYTES_MAX || strcmp(hole + 3, path + head + n) != 0) return false;
    memcpy(model, path + head, n);
    model[n] = '\0';
    return true;
}

/* Rows that name a path in full are all that it has: no {m} takes it. */
static bool is_literal(const char *path) {
    for (const struct api_path *a = api_paths; a->path != NULL; a++)
        if (strcmp(a->path, path) == 0) return true;
    return false;
}

const struct api_path *api_path_find(const char *method, const char *path,
                                     char model[MODEL_NAME_BYTES_MAX + 1]) {
    const char *as = strcmp(method, "HEAD") == 0 ? "GET" : method;
    const bool literal = is_literal(path);
    for (const struct api_path *a = api_paths; a->path != NULL; a++)
        if (strcmp(a->method, as) == 0 && (!literal || hole_of(a->path) == NULL) &&
            path_matches(a->path, path, model))
            return a;
    model[0] = '\0';
    return NULL;
}

/* The first that is there, and not null, says whose body it is. */
static const struct {
    const char *member, *path;
} by_body[] = {
    {"messages", "/v1/chat/completions"},
    {"prompt", "/v1/completions"},
    {"input", "/v1/embeddings"},
    {"text_1", "/score"},
    {"data_1", "/score"},
    {"queries", "/score"},
    {"query", "/rerank"},
};
enum { BY_BODY = sizeof(by_body) / sizeof(by_body[0]) };

const char *api_body_members(void) {
    return "messages, prompt, input, text_1, data_1, queries or query";
}

const struct api_path *api_path_by_body(const char *body, size_t n) {
    const struct json_skim *skim = json_skim();
    char model[MODEL_NAME_BYTES_MAX + 1];
    const char *names[BY_BODY];
    size_t found[BY_BODY];
    struct json_skim_names t;
    for (size_t i = 0; i < BY_BODY; i++) names[i] = by_body[i].member;
    json_skim_names_init(&t, names, BY_BODY);
    const size_t at = n > 0 ? skim->space(body, n, 0) : n;
    if (at >= n || body[at] != '{' || skim->members(body, n, at, &t, found) == 0) return NULL;
    for (size_t i = 0; i < BY_BODY; i++)
        if (found[i] != 0 && body[found[i]] != 'n')
            return api_path_find("POST", by_body[i].path, model);
    return NULL;
}

static void add_method(char allow[API_ALLOW_BYTES], const char *method) {
    size_t len = strlen(allow);
    if (strstr(allow, method) != NULL) return; /* no method is part of another */
    snprintf(allow + len, API_ALLOW_BYTES - len, "%s%s", len > 0 ? ", " : "", method);
}

void api_path_methods(char allow[API_ALLOW_BYTES], const char *path) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    const bool literal = is_literal(path);
    allow[0] = '\0';
    for (const struct api_path *a = api_paths; a->path != NULL; a++) {
        if (literal && hole_of(a->path) != NULL) continue;
        if (!path_matches(a->path, path, model)) continue;
        add_method(allow, a->method);
        if (strcmp(a->method, "GET") == 0) add_method(allow, "HEAD");
    }
}

bool api_is_infer(const struct api_path *path) {
    return path->work == API_GENERATE;
}

bool api_is_open(const struct api_path *path) {
    return path->info == INFO_VERSION;
}

bool api_takes_type(const struct api_path *path, const char *type) {
    static const char json[] = "application/json";
    const bool looks = path->errors == API_ERRORS_CAIKIT || path->json_only;
    if (type == NULL || !looks || strcmp(path->method, "POST") != 0) return true;
    if (strncasecmp(type, json, sizeof(json) - 1) != 0) return false;
    const char after = type[sizeof(json) - 1];
    return after == '\0' || after == ';' || after == ' ' || after == '\t';
}

enum api_errors api_path_errors(const char *path) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    for (const struct api_path *a = api_paths; a->path != NULL; a++)
        if (path_matches(a->path, path, model)) return a->errors;
    for (size_t i = 0; i < sizeof(error_prefixes) / sizeof(error_prefixes[0]); i++)
        if (strncmp(path, error_prefixes[i].prefix, strlen(error_prefixes[i].prefix)) == 0)
            return error_prefixes[i].errors;
    return grpc_is_path(path) ? API_ERRORS_GRPC : API_ERRORS_PLAIN;
}

void api_path_format(char *dst, size_t dst_bytes, const struct api_path *path, const char *model) {
    const char *hole = hole_of(path->path);
    if (hole == NULL) {
        snprintf(dst, dst_bytes, "%s", path->path);
    } else {
        snprintf(dst, dst_bytes, "%.*s%s%s", (int)(hole - path->path), path->path, model, hole + 3);
    }
}

bool api_streams(const struct api_path *path, enum api_asks asks, bool has_prompt) {
    switch (path->stream) {
    case API_STREAM_NEVER: return false;
    case API_STREAM_ALWAYS:
    case API_STREAM_MANY: return true;
    case API_STREAM_DEFAULT: return asks != API_ASKS_WHOLE;
    case API_STREAM_FIELD: return asks == API_ASKS_STREAM;
    case API_STREAM_BY_DIALECT: return asks == API_ASKS_STREAM && has_prompt;
    }
    return false;
}

bool api_wants_stream(const struct api_path *path, const struct json_value *body) {
    bool on = false;
    struct json_value *v;
    enum api_asks asks = API_ASKS_NOTHING;
    if (json_get_bool(body, "stream", &on) == JSON_OK) asks = on ? API_ASKS_STREAM : API_ASKS_WHOLE;
    return api_streams(path, asks, json_get(body, "prompt", &v) == JSON_OK);
}

enum error_style api_path_style(const char *path, enum error_style configured) {
    static const char *const control[] = {
        "/v1/instances/", "/v1/role/",   "/v1/engine-server/", "/v1/load_lora_adapter",
        "/v1/config",     "/v1/status",  "/v1/health",         "/v1/unload_lora_adapter",
        "/v1/tokenizer",  "/v1/startup", "/v1/readiness",      "/v1/coordinator_info",
        "/v1/alarms",     "/v1/plan"};
    for (size_t i = 0; i < sizeof(control) / sizeof(control[0]); i++)
        if (strncmp(path, control[i], strlen(control[i])) == 0) return ERROR_STYLE_MINDIE;
    return configured;
}
