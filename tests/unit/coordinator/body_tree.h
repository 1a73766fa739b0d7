/* body_tree: what body_look() must say of a body, by way of its tree. */
#ifndef BATON_TESTS_BODY_TREE_H
#define BATON_TESTS_BODY_TREE_H

#include <string.h>
#include "coordinator/body_look.h"
#include "proto/json.h"

/* Characters of a text, of texts in a list, or of the texts of messages and their parts. */
static size_t tree_length(const struct json_value *v, int deep) {
    static const char *const members[] = {"content", "text", "data"};
    struct json_value *c;
    size_t n = 0;
    switch (json_type_of(v)) {
    case json_type_string: return json_str_len(v);
    case json_type_array:
        for (size_t i = 0; i < json_arr_len(v); i++) n += tree_length(json_arr_at(v, i), deep);
        return n;
    case json_type_object:
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]) && deep < 2; i++)
            if (json_get(v, members[i], &c) == JSON_OK) return tree_length(c, deep + 1);
        return 0;
    default: return 4;
    }
}

/* The members a family's input may stand in; the first one there counts. */
static const char *const *tree_inputs_of(const struct api_path *path) {
    static const char *const chat[] = {"messages", NULL}, *const completions[] = {"prompt", NULL},
                             *const responses[] = {"input", NULL},
                             *const text[] = {"text_input", NULL},
                             *const tokens[] = {"inputs", NULL},
                             *const native[] = {"inputs", "input_id", NULL},
                             *const generate[] = {"inputs", "prompt", NULL};
    switch (path->api) {
    case API_OPENAI_CHAT:
    case API_ANTHROPIC:
    case API_OLLAMA_CHAT: return chat;
    case API_OPENAI_COMPLETIONS:
    case API_LLAMACPP:
    case API_OLLAMA_GENERATE: return completions;
    case API_RESPONSES: return responses;
    case API_TRITON_TEXT: return text;
    case API_TRITON_TOKEN: return tokens;
    case API_NATIVE: return native;
    default: return generate;
    }
}

/* The member that holds the client's own id; NULL: the family has none. */
static const char *tree_id_of(const struct api_path *path) {
    switch (path->api) {
    case API_TRITON_TEXT:
    case API_TRITON_TOKEN: return "id";
    case API_OPENAI_CHAT:
    case API_OPENAI_COMPLETIONS: return "request_id";
    default: return NULL;
    }
}

/* Prompts of an input: of a list of texts, or of lists of tokens, its items. */
static unsigned tree_prompts(const struct json_value *v) {
    if (!json_is(v, json_type_array)) return 1;
    size_t n = json_arr_len(v);
    enum json_type first = n > 0 ? json_type_of(json_arr_at(v, 0)) : json_type_null;
    if (first != json_type_string && first != json_type_array) return 1;
    return n < PARTS_MAX ? (unsigned)n : PARTS_MAX;
}

/* The largest of these members, of the body or of its parameters; 0: none is there. */
static uint64_t tree_largest(const struct json_value *root, const char *const *keys) {
    struct json_value *params = NULL;
    uint64_t most = 0, v;
    if (json_get(root, "parameters", &params) != JSON_OK) json_get(root, "options", &params);
    if (params != NULL && !json_is(params, json_type_object)) params = NULL;
    for (; *keys != NULL; keys++) {
        if (json_get_u64(root, *keys, &v) == JSON_OK && v > most) most = v;
        if (params != NULL && json_get_u64(params, *keys, &v) == JSON_OK && v > most) most = v;
    }
    return most;
}

static void tree_work(struct body_look *out, const struct json_value *root) {
    static const char *const choices[] = {"n", "best_of", NULL}, *const tokens[] = {
                                                                     "max_tokens",
                                                                     "max_completion_tokens",
                                                                     "max_output_tokens",
                                                                     "max_new_tokens",
                                                                     "n_predict",
                                                                     "num_predict",
                                                                     NULL};
    uint64_t n = tree_largest(root, choices);
    if (n < 1) n = 1;
    if (n > SEQUENCES_MAX) n = SEQUENCES_MAX;
    n *= out->n_prompts;
    out->n_sequences = n < SEQUENCES_MAX ? (unsigned)n : SEQUENCES_MAX;
    out->new_tokens_max = tree_largest(root, tokens);
    if (out->new_tokens_max > PROMPT_TOKENS_MAX) out->new_tokens_max = PROMPT_TOKENS_MAX;
}

static unsigned tree_priority(const struct json_value *o, const struct api_path *path) {
    int64_t v;
    struct json_value *text;
    if (json_get_i64(o, "priority", &v) != JSON_OK) {
        char word[32] = "";
        if (json_get(o, "priority", &text) == JSON_OK && json_is(text, json_type_double))
            (void)json_literal(word, sizeof(word), text);
        if (word[0] == 0 || strpbrk(word, ".eE") != NULL) return 0;
        v = word[0] == '-' ? -1 : INT64_MAX; /* an integer of more than 64 bits */
    }
    if (v == 0) return path->errors == API_ERRORS_V1 ? 1 : 0;
    return v < 0 ? 1 : v < 5 ? (unsigned)v : 5;
}

/* False: no JSON, and *out says no more than that. What the input's bytes are is not compared. */
static bool body_tree(struct body_look *out, const struct api_path *path, const char *body,
                      size_t n) {
    struct json_value *root = NULL, *v;
    const char *id;
    size_t id_len;
    memset(out, 0, sizeof(*out));
    out->n_chars = n;
    out->n_prompts = out->n_sequences = 1;
    out->stream = api_wants_stream(path, NULL);
    if (json_read(&root, body, n, NULL, NULL) != ERR_OK) return false;
    out->is_object = json_is(root, json_type_object);
    if (out->is_object) {
        out->stream = api_wants_stream(path, root);
        for (const char *const *key = tree_inputs_of(path); *key != NULL && !out->has_input;
             key++) {
            if (json_get(root, *key, &v) != JSON_OK) continue;
            out->has_input = true;
            out->n_chars = tree_length(v, 0);
            out->n_prompts = tree_prompts(v);
        }
        tree_work(out, root);
        struct json_value *params = NULL;
        if (json_get(root, "parameters", &params) != JSON_OK) json_get(root, "options", &params);
        out->priority = tree_priority(root, path);
        if (out->priority == 0) out->priority = tree_priority(params, path);
        const char *member = tree_id_of(path);
        if (member != NULL && json_get_str(root, member, &id, &id_len) == JSON_OK &&
            body_id_ok(id, id_len)) {
            memcpy(out->client_id, id, id_len + 1);
            out->client_id_soft = strcmp(member, "request_id") == 0;
        }
    }
    json_put(root);
    return true;
}

#endif
