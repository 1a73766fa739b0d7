/* ep_resp_items: the input items of OpenAI's Responses as messages of a chat (client-apis 1.2). An
 * assistant's neighbours (messages, reasoning, calls) are one turn; anything else ends it. */
#include <stdio.h>
#include <string.h>
#include "common/base/base64.h"
#include "common/endpoint/ep_responses.h"

bool resp_wrong(struct ep_read *r, const char *member, const char *code, const char *text) {
    ep_at(r, member);
    if (r->status == 0) r->code = code;
    return ep_fail(r, 422, text);
}

/* what: "", ".role", ".content[3]" */
static bool wrong(struct resp_read *p, const char *what, const char *code, const char *text) {
    char at[64], full[256];
    snprintf(at, sizeof(at), "%s[%zu]%s", p->list, p->item, what);
    snprintf(full, sizeof(full), "%s: %s", at, text);
    return resp_wrong(p->c.r, at, code, full);
}

/* A string member of an item that must be there. */
static bool member(struct resp_read *p, const struct json_value *item, const char *key,
                   const char **s, size_t *n) {
    char what[40];
    enum json_got got = json_get_str(item, key, s, n);
    if (got == JSON_OK) return true;
    snprintf(what, sizeof(what), ".%s", key);
    return wrong(p, what, got == JSON_WRONG_TYPE ? EP_INVALID_TYPE : EP_MISSING,
                 "a string is required");
}

/* ---- content */

/* Text of an item; first: of this item. */
static void put_text(struct conv *c, const char *role, const char *s, size_t n, bool first) {
    if (strcmp(role, "assistant") != 0) {
        conv_text(c, s, n, !first ? "" : strcmp(role, "system") == 0 ? "\n\n" : "\n");
    } else if (n > 0) { /* an assistant that said nothing has no turn */
        conv_message(c, role, true);
        conv_text(c, s, n, first ? "\n" : "");
    }
}

static bool take_part(struct resp_read *p, const struct json_value *part, size_t i,
                      const char *role) {
    const char *type, *s;
    size_t n;
    char what[40];
    snprintf(what, sizeof(what), ".content[%zu]", i);
    if (json_get_str(part, "type", &type, &n) != JSON_OK)
        return wrong(p, what, EP_MISSING, "a part needs a type");
    if (strcmp(type, "input_image") == 0 || strcmp(type, "input_file") == 0 ||
        strcmp(type, "input_audio") == 0)
        return wrong(p, what, EP_UNSUPPORTED_VALUE,
                     "images, files and audio are not supported, the model reads text");
    const bool refusal = strcmp(type, "refusal") == 0;
    if (!refusal && strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0 &&
        strcmp(type, "text") != 0)
        return wrong(p, what, EP_INVALID_VALUE,
                     "the type of a part must be input_text, output_text or refusal");
    if (json_get_str(part, refusal ? "refusal" : "text", &s, &n) != JSON_OK)
        return wrong(p, what, EP_MISSING, "a part needs its text, a string");
    put_text(&p->c, role, s, n, i == 0);
    return true;
}

/* A string, or a list of parts. */
static bool take_content(struct resp_read *p, const struct json_value *item, const char *key,
                         const char *role) {
    struct json_value *v, *arr;
    const char *s;
    size_t n;
    char what[24];
    snprintf(what, sizeof(what), ".%s", key);
    if (json_get(item, key, &v) != JSON_OK)
        return wrong(p, what, EP_MISSING, "a string or a list of parts is required");
    if (json_as_str(v, &s, &n) == JSON_OK) {
        put_text(&p->c, role, s, n, true);
        return true;
    }
    if (json_as_arr(v, &arr) != JSON_OK)
        return wrong(p, what, EP_INVALID_TYPE, "must be a string or a list of parts");
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (!take_part(p, json_arr_at(arr, i), i, role)) return false;
    return true;
}

static bool take_message(struct resp_read *p, const struct json_value *item) {
    const char *role;
    size_t n;
    if (!member(p, item, "role", &role, &n)) return false;
    if (strcmp(role, "developer") == 0) role = "system";
    if (strcmp(role, "user") != 0 && strcmp(role, "system") != 0 && strcmp(role, "assistant") != 0)
        return wrong(p, ".role", EP_INVALID_VALUE, "must be user, assistant, system or developer");
    if (strcmp(role, "assistant") != 0) conv_message(&p->c, role, strcmp(role, "system") == 0);
    return take_content(p, item, "content", role);
}

/* ---- reasoning */

/* The texts of a list of {"text"}. */
static void join(struct buf *out, const struct json_value *item, const char *key) {
    struct json_value *arr;
    const char *s;
    size_t n;
    if (json_get_arr(item, key, &arr) != JSON_OK) return;
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (json_get_str(json_arr_at(arr, i), "text", &s, &n) == JSON_OK) buf_append(out, s, n);
}

/* The text itself, else what a client was given to keep, else the summary. */
static bool take_reasoning(struct resp_read *p, const struct json_value *item) {
    struct buf text = BUF_INIT;
    const char *s;
    size_t n;
    join(&text, item, "content");
    if (text.len == 0 && json_get_str(item, "encrypted_content", &s, &n) == JSON_OK &&
        !base64_take(&text, s, n) && !text.failed) {
        buf_free(&text);
        return wrong(p, ".encrypted_content", EP_INVALID_VALUE, "it was not made by this server");
    }
    if (text.len == 0) join(&text, item, "summary");
    if (text.failed) ep_fail_memory(p->c.r);
    if (text.len > 0) {
        conv_message(&p->c, "assistant", true);
        conv_thinking(&p->c, text.data, text.len);
    }
    buf_free(&text);
    return true;
}

/* ---- calls and their outputs */

static bool take_call(struct resp_read *p, const struct json_value *item) {
    const char *id, *name, *args;
    size_t n;
    if (!member(p, item, "call_id", &id, &n) || !member(p, item, "name", &name, &n)) return false;
    if (!ep_tool_name_valid(name, n)) return wrong(p, ".name", EP_INVALID_VALUE, EP_TOOL_NAME);
    if (!member(p, item, "arguments", &args, &n)) return false;
    conv_message(&p->c, "assistant", true);
    conv_call(&p->c, id, name, args, n);
    return true;
}

/* What the model was shown as a function with one parameter. */
static bool take_custom_call(struct resp_read *p, const struct json_value *item) {
    const char *id, *name, *input;
    size_t n;
    struct buf args = BUF_INIT;
    if (!member(p, item, "call_id", &id, &n) || !member(p, item, "name", &name, &n)) return false;
    if (!ep_tool_name_valid(name, n)) return wrong(p, ".name", EP_INVALID_VALUE, EP_TOOL_NAME);
    if (!member(p, item, "input", &input, &n)) return false;
    buf_puts(&args, "{\"input\":");
    buf_json_str(&args, input, n);
    buf_putc(&args, '}');
    if (args.failed) ep_fail_memory(p->c.r);
    conv_message(&p->c, "assistant", true);
    conv_call(&p->c, id, name, args.data != NULL ? args.data : "", args.len);
    buf_free(&args);
    return true;
}

static bool take_output(struct resp_read *p, const struct json_value *item) {
    const char *id;
    size_t n;
    if (!member(p, item, "call_id", &id, &n)) return false;
    conv_message(&p->c, "tool", false);
    if (!conv_is_called(&p->c, id)) {
        ep_at(p->c.r, "input");
        return ep_fail_with(p->c.r, 422,
                            "No tool call found for function call output with call_id {id}.",
                            "{id}", id, NULL);
    }
    conv_result_of(&p->c, id);
    return take_content(p, item, "output", "tool");
}

/* ---- items */

static bool take_tools_item(struct resp_read *p, const struct json_value *item) {
    struct json_value *tools;
    char at[48];
    if (json_get_arr(item, "tools", &tools) != JSON_OK) return true;
    snprintf(at, sizeof(at), "%s[%zu].tools", p->list, p->item);
    return resp_take_tools(p, tools, at, NULL);
}

/* History of a hosted tool: what a model would be shown of it is in the texts around it. */
static bool skip(struct resp_read *p, const struct json_value *item) {
    (void)p, (void)item;
    return true;
}

static bool take_item(struct resp_read *p, const struct json_value *item, bool referenced);

static bool take_reference(struct resp_read *p, const struct json_value *item) {
    struct json_value *all, *found;
    const char *id;
    size_t n;
    if (!member(p, item, "id", &id, &n)) return false;
    if (json_get_obj(p->context, "referenced", &all) == JSON_OK &&
        json_get_obj(all, id, &found) == JSON_OK)
        return take_item(p, found, true);
    ep_at(p->c.r, "input");
    return ep_fail_with(p->c.r, 404, "Item with id '{id}' not found.", "{id}", id, NULL);
}

static const struct {
    const char *type;
    bool (*take)(struct resp_read *p, const struct json_value *item); /* NULL: refused */
} kinds[] = {
    {"message", take_message},
    {"function_call", take_call},
    {"function_call_output", take_output},
    {"custom_tool_call", take_custom_call},
    {"custom_tool_call_output", take_output},
    {"reasoning", take_reasoning},
    {"additional_tools", take_tools_item},
    {"file_search_call", skip},
    {"web_search_call", skip},
    {"computer_call", skip},
    {"image_generation_call", skip},
    {"code_interpreter_call", skip},
    {"local_shell_call", skip},
    {"shell_call", skip},
    {"apply_patch_call", skip},
    {"mcp_list_tools", skip},
    {"mcp_approval_request", skip},
    {"mcp_approval_response", skip},
    {"mcp_call", skip},
    {"tool_search_call", skip},
};

static bool take_item(struct resp_read *p, const struct json_value *item, bool referenced) {
    struct json_value *v;
    const char *type = NULL;
    size_t n;
    char text[200];
    if (p->c.r->status != 0) return false;
    if (!json_is(item, json_type_object))
        return wrong(p, "", EP_INVALID_TYPE, "an item must be an object");
    enum json_got got = json_get_str(item, "type", &type, &n);
    if (got == JSON_WRONG_TYPE) return wrong(p, ".type", EP_INVALID_TYPE, "must be a string");
    if (got != JSON_OK)
        type = json_get(item, "role", &v) == JSON_OK || json_get(item, "id", &v) != JSON_OK
                   ? "message"
                   : "item_reference";
    if (strcmp(type, "item_reference") == 0 && !referenced) return take_reference(p, item);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].take(p, item);
    snprintf(text, sizeof(text),
             "items of type '%.60s' are not supported; messages, function and custom tool calls "
             "with their outputs, and reasoning are",
             type);
    return wrong(p, ".type", EP_UNSUPPORTED_VALUE, text);
}

static bool take_items(struct resp_read *p, const struct json_value *arr, const char *list) {
    p->list = list;
    for (p->item = 0; p->item < json_arr_len(arr); p->item++)
        if (!take_item(p, json_arr_at(arr, p->item), false)) return false;
    return p->c.r->status == 0;
}

/* Calls may wait for their outputs only where the client sends no more. */
static bool all_answered(struct resp_read *p) {
    const char *id = conv_unanswered(&p->c);
    if (id == NULL) return true;
    ep_at(p->c.r, "input");
    return ep_fail_with(p->c.r, 422, "No tool output found for function call {id}.", "{id}", id,
                        NULL);
}

bool resp_take_input(struct resp_read *p) {
    struct ep_read *r = p->c.r;
    struct json_value *v, *arr;
    const char *s;
    size_t n, n_before;
    if (json_get_arr(p->context, "items", &arr) == JSON_OK &&
        !take_items(p, arr, "previous_response_id"))
        return false;
    n_before = p->c.n_messages;
    enum json_got got = json_get(r->body, "input", &v);
    if (got != JSON_OK) {
        if (n_before > 0 && json_get(r->body, "previous_response_id", &v) == JSON_OK)
            return all_answered(p);
        return ep_missing_input(r, "input", "Missing required parameter: 'input'.");
    }
    if (json_as_str(v, &s, &n) == JSON_OK) {
        conv_message(&p->c, "user", false);
        conv_text(&p->c, s, n, "");
        return all_answered(p);
    }
    if (json_as_arr(v, &arr) != JSON_OK)
        return resp_wrong(r, "input", EP_INVALID_TYPE, "input must be a string or a list of items");
    if (!take_items(p, arr, "input")) return false;
    if (p->c.n_messages == 0)
        return resp_wrong(r, "input", "empty_array", "input holds nothing that a model could read");
    return all_answered(p);
}
