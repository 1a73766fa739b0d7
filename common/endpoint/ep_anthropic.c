/* ep_anthropic: the body of Anthropic's Messages as a chat (client-apis 2.2 to 2.5, 2.11). */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_convert.h"

#define NO_MESSAGES "messages: Field required"

enum { THINKING_TOKENS_MIN = 1024 };

/* Where a block is, for messages: "messages.1.content.0". */
struct at {
    size_t message, block;
};

static bool wrong(struct ep_read *r, const struct at *at, const char *what) {
    char text[200];
    snprintf(text, sizeof(text), "messages.%zu.content.%zu%s", at->message, at->block, what);
    return ep_fail(r, 422, text);
}

/* A string member of a block that must be there. */
static bool member(struct ep_read *r, const struct at *at, const struct json_value *block,
                   const char *key, const char **s, size_t *n) {
    char what[80];
    if (json_get_str(block, key, s, n) == JSON_OK) return true;
    snprintf(what, sizeof(what), ".%s: Field required, a string", key);
    return wrong(r, at, what);
}

/* ---- blocks */

static bool take_text_of(struct conv *c, const struct at *at, const struct json_value *block,
                         const char *between) {
    const char *s;
    size_t n;
    if (!member(c->r, at, block, "text", &s, &n)) return false;
    conv_text(c, s, n, between);
    return true;
}

/* The texts of a list of blocks, or a string; NULL: none. */
static bool take_texts(struct conv *c, const struct at *at, struct json_value *content,
                       const char *between) {
    struct json_value *arr;
    const char *s;
    size_t n;
    if (content == NULL) return true;
    if (json_as_str(content, &s, &n) == JSON_OK) {
        conv_text(c, s, n, between);
        return true;
    }
    if (json_as_arr(content, &arr) != JSON_OK)
        return wrong(c->r, at, ".content: Input should be a string or a list of blocks");
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        struct json_value *b = json_arr_at(arr, i);
        if (json_get_str(b, "type", &s, &n) != JSON_OK || strcmp(s, "text") != 0)
            return wrong(c->r, at, ".content: only text blocks are supported here");
        if (!take_text_of(c, at, b, between)) return false;
    }
    return true;
}

static bool take_document(struct conv *c, const struct at *at, const struct json_value *block) {
    struct json_value *source, *content;
    const char *type, *s;
    size_t n;
    if (json_get_obj(block, "source", &source) != JSON_OK ||
        json_get_str(source, "type", &type, &n) != JSON_OK)
        return wrong(c->r, at, ".source: Field required");
    if (json_get_str(block, "title", &s, &n) == JSON_OK) conv_text(c, s, n, "\n");
    if (strcmp(type, "text") == 0 && json_get_str(source, "data", &s, &n) == JSON_OK) {
        conv_text(c, s, n, "\n");
        return true;
    }
    if (strcmp(type, "content") == 0 && json_get(source, "content", &content) == JSON_OK)
        return take_texts(c, at, content, "\n");
    return wrong(c->r, at,
                 ".source.type: only text and content are supported, the model reads text");
}

static bool take_tool_use(struct conv *c, const struct at *at, const struct json_value *block) {
    struct json_value *input;
    const char *id, *name, *args;
    size_t n;
    if (!member(c->r, at, block, "id", &id, &n) || !member(c->r, at, block, "name", &name, &n))
        return false;
    if (json_get_obj(block, "input", &input) != JSON_OK)
        return wrong(c->r, at, ".input: Field required, an object");
    args = json_to_text(input, JSON_COMPACT, &n);
    if (args == NULL) return ep_fail_memory(c->r);
    conv_call(c, id, name, args, n);
    return true;
}

static bool take_tool_result(struct conv *c, const struct at *at, const struct json_value *block) {
    struct json_value *content = NULL;
    const char *id;
    size_t n;
    bool is_error = false;
    if (!member(c->r, at, block, "tool_use_id", &id, &n)) return false;
    conv_message(c, "tool", false);
    if (!conv_is_called(c, id))
        return wrong(c->r, at, ".tool_use_id: no tool_use block before it has this id");
    conv_result_of(c, id);
    json_get(block, "content", &content);
    json_get_bool(block, "is_error", &is_error);
    if (!take_texts(c, at, content, "\n")) return false;
    if (is_error && c->text.len == 0) conv_text(c, "error", 5, "");
    return true;
}

/* results: the tool_result blocks of a user, which come before everything else; or the others. */
static bool take_block(struct conv *c, const struct at *at, const struct json_value *block,
                       const char *role, bool results) {
    const char *type, *s;
    size_t n;
    bool assistant = strcmp(role, "assistant") == 0;
    if (c->r->status != 0) return false;
    if (json_get_str(block, "type", &type, &n) != JSON_OK)
        return wrong(c->r, at, ".type: Field required");
    if (strcmp(type, "tool_result") == 0) return !results || take_tool_result(c, at, block);
    if (results) return true;
    conv_message(c, role, true);
    if (strcmp(type, "text") == 0) return take_text_of(c, at, block, assistant ? "" : "\n");
    if (strcmp(type, "tool_use") == 0 && assistant) return take_tool_use(c, at, block);
    if (strcmp(type, "thinking") == 0) {
        if (!member(c->r, at, block, "thinking", &s, &n)) return false;
        conv_thinking(c, s, n);
        return true;
    }
    if (strcmp(type, "document") == 0) return take_document(c, at, block);
    if (strcmp(type, "search_result") == 0) {
        struct json_value *content = NULL;
        json_get(block, "content", &content);
        return take_texts(c, at, content, "\n");
    }
    if (strcmp(type, "image") == 0)
        return wrong(c->r, at, ".type: image blocks are not supported, the model reads text");
    return true; /* of servers' own tools, and what is opaque: nothing to show to a model */
}

static bool take_message(struct conv *c, size_t i, struct json_value *m) {
    struct json_value *content, *arr;
    struct at at = {.message = i};
    const char *role, *s;
    size_t n;
    char text[96];
    if (c->r->status != 0) return false;
    ep_at_message(c->r, i, "role");
    if (json_get_str(m, "role", &role, &n) != JSON_OK ||
        (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 &&
         strcmp(role, "system") != 0)) {
        snprintf(text, sizeof(text), "messages.%zu.role: Input should be 'user' or 'assistant'", i);
        return ep_fail(c->r, 422, text);
    }
    ep_at_message(c->r, i, "content");
    if (json_get(m, "content", &content) != JSON_OK) {
        snprintf(text, sizeof(text), "messages.%zu.content: Field required", i);
        return ep_missing(c->r, text);
    }
    if (json_as_str(content, &s, &n) == JSON_OK) {
        conv_message(c, role, true);
        conv_text(c, s, n, "\n");
        return true;
    }
    if (json_as_arr(content, &arr) != JSON_OK)
        return ep_wrong_type(c->r, "messages: content should be a string or a list of blocks");
    for (int results = 1; results >= 0; results--)
        for (at.block = 0; at.block < json_arr_len(arr); at.block++)
            if (!take_block(c, &at, json_arr_at(arr, at.block), role, results != 0)) return false;
    return true;
}

static bool take_system(struct conv *c) {
    const struct at at = {0};
    struct json_value *v;
    if (json_get(c->r->body, "system", &v) != JSON_OK) return true;
    ep_at(c->r, "system");
    conv_message(c, "system", false);
    return take_texts(c, &at, v, "\n\n");
}

/* An assistant's last message is the beginning of the answer. */
static void continue_last(struct conv *c) {
    if (c->role == NULL || strcmp(c->role, "assistant") != 0 || c->calls != NULL) return;
    while (c->text.len > 0 && strchr(" \t\r\n", c->text.data[c->text.len - 1]) != NULL)
        c->text.len--;
    if (c->text.len == 0) return;
    conv_set(c, "continue_final_message", json_new_bool(true));
    conv_set(c, "add_generation_prompt", json_new_bool(false));
}

static bool take_messages(struct conv *c) {
    struct json_value *v, *arr;
    if (json_get(c->r->body, "messages", &v) != JSON_OK)
        return ep_missing_input(c->r, "messages", NO_MESSAGES);
    ep_at(c->r, "messages");
    if (json_as_arr(v, &arr) != JSON_OK || json_arr_len(arr) == 0)
        return ep_fail(c->r, 422, "messages: at least one message is required");
    if (!take_system(c)) return false;
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (!take_message(c, i, json_arr_at(arr, i))) return false;
    continue_last(c);
    return true;
}

/* ---- tools */

static bool take_tool(struct conv *c, size_t i, const struct json_value *tool) {
    struct json_value *schema = NULL;
    const char *type = "custom", *name, *description = NULL;
    size_t n;
    char text[160];
    json_get_str(tool, "type", &type, &n);
    if (strncmp(type, "web_search", 10) == 0 || strncmp(type, "web_fetch", 9) == 0) return true;
    if (strcmp(type, "custom") != 0) {
        snprintf(text, sizeof(text), "tools.%zu.type: '%.60s' is not supported, only custom tools",
                 i, type);
        return ep_fail(c->r, 422, text);
    }
    snprintf(text, sizeof(text), "tools.%zu.name: Field required", i);
    if (json_get_str(tool, "name", &name, &n) != JSON_OK) return ep_missing(c->r, text);
    if (!ep_tool_name(c->r, name, n)) return false;
    snprintf(text, sizeof(text), "tools.%zu.input_schema: Field required, an object", i);
    if (json_get_obj(tool, "input_schema", &schema) != JSON_OK) return ep_missing(c->r, text);
    json_get_str(tool, "description", &description, &n);
    conv_tool(c, name, description, schema);
    return true;
}

static bool take_choice(struct conv *c) {
    struct json_value *choice;
    const char *type, *name;
    size_t n;
    bool one = false;
    ep_at(c->r, "tool_choice");
    enum json_got got = json_get_obj(c->r->body, "tool_choice", &choice);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got != JSON_OK || json_get_str(choice, "type", &type, &n) != JSON_OK)
        return ep_wrong_type(c->r, "tool_choice: Input should be an object with a type");
    if (json_get_bool(choice, "disable_parallel_tool_use", &one) == JSON_OK && one)
        conv_set(c, "parallel_tool_calls", json_new_bool(false));
    if (strcmp(type, "auto") == 0) return true;
    if (strcmp(type, "none") == 0) {
        conv_set(c, "tool_choice", json_new_str("none"));
        return true;
    }
    if (c->tools == NULL)
        return ep_fail(c->r, 422, "tool_choice: may only be given together with tools");
    if (strcmp(type, "any") == 0) {
        conv_set(c, "tool_choice", json_new_str("required"));
    } else if (strcmp(type, "tool") != 0) {
        return ep_fail(c->r, 422, "tool_choice.type: Input should be auto, any, tool or none");
    } else if (json_get_str(choice, "name", &name, &n) != JSON_OK) {
        return ep_missing(c->r, "tool_choice.name: Field required");
    } else {
        conv_force(c, name);
    }
    return true;
}

static bool take_tools(struct conv *c) {
    struct json_value *v, *arr;
    ep_at(c->r, "tools");
    if (json_get(c->r->body, "tools", &v) == JSON_OK) {
        if (json_as_arr(v, &arr) != JSON_OK)
            return ep_wrong_type(c->r, "tools: Input should be a list");
        for (size_t i = 0; i < json_arr_len(arr); i++)
            if (!take_tool(c, i, json_arr_at(arr, i))) return false;
    }
    return take_choice(c);
}

/* ---- thinking, formats */

static bool take_budget(struct conv *c, const struct json_value *thinking) {
    int64_t budget, max;
    if (json_get_i64(thinking, "budget_tokens", &budget) != JSON_OK ||
        budget < THINKING_TOKENS_MIN || budget > INT32_MAX)
        return ep_fail(c->r, 422,
                       "thinking.enabled.budget_tokens: Input should be an integer of at least "
                       "1024");
    if (json_get_i64(c->r->body, "max_tokens", &max) == JSON_OK && budget >= max)
        return ep_fail(c->r, 422, "max_tokens must be greater than thinking.budget_tokens");
    conv_var(c, "thinking_budget", json_new_i64(budget));
    return true;
}

static bool take_thinking(struct conv *c) {
    struct json_value *v;
    const char *type, *display;
    size_t n;
    ep_at(c->r, "thinking");
    enum json_got got = json_get_obj(c->r->body, "thinking", &v);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got != JSON_OK || json_get_str(v, "type", &type, &n) != JSON_OK)
        return ep_wrong_type(c->r, "thinking: Input should be an object with a type");
    bool enabled = strcmp(type, "enabled") == 0, off = strcmp(type, "disabled") == 0;
    if (!enabled && !off && strcmp(type, "adaptive") != 0 && strcmp(type, "between_tools") != 0)
        return ep_fail(c->r, 422,
                       "thinking.type: Input should be enabled, disabled, adaptive or "
                       "between_tools");
    conv_var(c, "enable_thinking", json_new_bool(!off));
    if (json_get_str(v, "display", &display, &n) == JSON_OK && strcmp(display, "omitted") == 0)
        conv_set(c, "include_reasoning", json_new_bool(false));
    return !enabled || take_budget(c, v);
}

static bool take_format(struct conv *c, struct json_value *format, const char *where) {
    struct json_value *schema;
    const char *type;
    size_t n;
    ep_at(c->r, where);
    if (json_get_str(format, "type", &type, &n) != JSON_OK || strcmp(type, "json_schema") != 0 ||
        json_get_obj(format, "schema", &schema) != JSON_OK)
        return ep_fail_with(c->r, 422, "{where}: Input should be a json_schema with its schema",
                            "{where}", where, NULL);
    conv_schema(c, schema);
    return true;
}

static bool is_effort(const char *s) {
    static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
    size_t i = 0;
    while (i < sizeof(efforts) / sizeof(efforts[0]) && strcmp(s, efforts[i]) != 0) i++;
    return i < sizeof(efforts) / sizeof(efforts[0]);
}

static bool take_output(struct conv *c) {
    struct json_value *config, *format, *value;
    const char *effort;
    size_t n;
    if (json_get_obj(c->r->body, "output_config", &config) == JSON_OK) {
        if (json_get(config, "effort", &value) == JSON_OK) {
            ep_at(c->r, "output_config.effort");
            if (json_as_str(value, &effort, &n) != JSON_OK || !is_effort(effort))
                return ep_fail(c->r, 422,
                               "output_config.effort: Input should be low, medium, high, xhigh or "
                               "max");
            conv_set(c, "reasoning_effort", json_new_str(effort));
        }
        if (json_get(config, "format", &format) == JSON_OK)
            return take_format(c, format, "output_config.format");
    }
    return json_get(c->r->body, "output_format", &format) != JSON_OK ||
           take_format(c, format, "output_format");
}

static bool no_servers(struct ep_read *r) {
    struct json_value *servers;
    ep_at(r, "mcp_servers");
    return json_get_arr(r->body, "mcp_servers", &servers) != JSON_OK ||
           json_arr_len(servers) == 0 ||
           ep_fail(r, 422, "mcp_servers: MCP servers are not supported");
}

/* ---- the body */

static bool convert(struct ep_read *r) {
    static const char *const same[] = {"temperature",    "top_p",  "top_k", "max_tokens",
                                       "stop_sequences", "stream", NULL};
    struct conv c;
    conv_begin(&c, r);
    bool good = take_messages(&c) && take_tools(&c) && take_thinking(&c) && take_output(&c) &&
                no_servers(r);
    if (good) conv_copy(&c, r->body, same);
    return conv_end(&c, good);
}

static bool read_model(struct ep_read *r) {
    const char *s;
    size_t n;
    ep_at(r, "model");
    if (json_get_str(r->body, "model", &s, &n) != JSON_OK)
        return ep_missing(r, "model: Field required");
    return ep_model_named(r, s, n, "model: {got}");
}

bool ep_anthropic_tokens(struct ep_read *r) {
    return read_model(r) && convert(r) && ep_chat_tokens(r);
}

bool ep_anthropic_read(struct ep_read *r) {
    struct json_value *v;
    if (r->in->is_recompute) return read_model(r) && ep_read_prompt(r);
    if (json_get(r->body, "messages", &v) != JSON_OK)
        return ep_missing_input(r, "messages", NO_MESSAGES);
    ep_at(r, "max_tokens");
    if (json_get(r->body, "max_tokens", &v) != JSON_OK)
        return ep_missing(r, "max_tokens: Field required");
    return ep_anthropic_tokens(r);
}
