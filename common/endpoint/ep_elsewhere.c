/* ep_elsewhere: a body that came to the path of another dialect is told where it goes. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/ep.h"

enum {
    MAKES = 1u << API_GENERATE,
    VECTORS = 1u << API_EMBED | 1u << API_SCORE,
    TOKENS = 1u << API_TOKENIZE,
    OLLAMA_VECTORS = 1u << 30, /* the same on paths of Ollama's, which come first */
    OLLAMA = 1u << 31
};

/* By the member that a dialect's input is in. The first row that fits both: what the path does, and
 * the body. */
static const struct {
    const char *member;
    unsigned asked; /* what the path that it came to does */
    const char *paths;
} dialects[] = {
    {"messages", OLLAMA, "/api/chat"},
    {"prompt", OLLAMA, "/api/generate"},
    {"input", OLLAMA | OLLAMA_VECTORS, "/api/embed"},
    {"messages", MAKES | VECTORS, "/v1/chat/completions or /v1/messages"},
    {"messages", TOKENS, "/tokenize or /v1/messages/count_tokens"},
    {"prompt", MAKES, "/v1/completions"},
    {"prompt", VECTORS, "/api/embeddings"},
    {"prompt", TOKENS, "/tokenize"},
    {"text_1", MAKES | VECTORS, "/score"},
    {"query", MAKES | VECTORS, "/rerank"},
    {"input", MAKES, "/v1/responses or /v1/embeddings"},
    {"input", VECTORS, "/v1/embeddings"},
    {"input", TOKENS, "/v1/responses/input_tokens"},
    {"inputs", MAKES, "/generate"},
    {"inputs", VECTORS, "/api/v1/task/embedding"},
    {"inputs", TOKENS, "/v1/tokenizer"},
    {"text_input", MAKES | VECTORS | TOKENS, "/v2/models/{model}/generate"},
    {"texts", 1u << API_EMBED, "/api/v1/task/embedding-tasks, as `inputs`"},
    {"text", TOKENS, "/v1/tokenize"},
    {"content", MAKES | TOKENS, "/tokenize"},
    {"tokens", TOKENS, "/detokenize"},
    {"content", VECTORS, "/embedding"},
};

/* path NULL: of one that counts tokens. */
static unsigned asked_of(const struct api_path *path) {
    if (path == NULL) return TOKENS;
    const unsigned of_ollama = path->work == API_GENERATE ? OLLAMA : OLLAMA_VECTORS;
    return 1u << path->work | (path->errors == API_ERRORS_OLLAMA ? of_ollama : 0);
}

bool ep_elsewhere(char dst[EP_ELSEWHERE_BYTES], const struct api_path *path,
                  const struct json_value *body, const char *member, const char *text) {
    const unsigned asked = asked_of(path);
    const size_t n = strlen(text);
    struct json_value *v;
    snprintf(dst, EP_ELSEWHERE_BYTES, "%s", text);
    for (size_t i = 0; i < sizeof(dialects) / sizeof(dialects[0]); i++) {
        if ((dialects[i].asked & asked) == 0 || strcmp(dialects[i].member, member) == 0 ||
            json_get(body, dialects[i].member, &v) != JSON_OK)
            continue;
        snprintf(dst, EP_ELSEWHERE_BYTES, "%s%s A body with `%s` goes to POST %s.", text,
                 n > 0 && text[n - 1] == '.' ? "" : ".", dialects[i].member, dialects[i].paths);
        return true;
    }
    return false;
}

bool ep_missing_input(struct ep_read *r, const char *member, const char *text) {
    char with[EP_ELSEWHERE_BYTES];
    ep_at(r, member);
    (void)ep_elsewhere(with, r->in->path, r->body, member, text);
    return ep_missing(r, with);
}
