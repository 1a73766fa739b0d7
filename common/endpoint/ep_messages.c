/* ep_messages: the messages of a chat (inference-api 8.3): every rule of both columns, then the
 * form that templates expect: contents joined to strings, roles by their usual names, arguments of
 * tool calls as objects. */
#include <string.h>
#include "common/endpoint/ep.h"

#define NO_CONTENT "Request param contains not content or content null"

enum { CHANGED_BYTES = 300 }; /* what a message takes when its content is replaced, about */

static bool set_str(struct ep_read *r, struct json_value *obj, const char *key, const char *s,
                    size_t n) {
    struct json_value *v = json_new_str_n(s, n);
    return (v != NULL && json_obj_set(obj, key, v) == 0) || ep_fail_memory(r);
}

/* An array of parts becomes the text of its parts (8.2 row 1). Other contents stay. */
static bool join_content(struct ep_read *r, struct json_value *msg) {
    struct json_value *arr;
    struct buf text = BUF_INIT;
    if (json_get_arr(msg, "content", &arr) != JSON_OK || json_arr_len(arr) == 0) return true;
    bool good = ep_join_parts(r, arr, &text) &&
                set_str(r, msg, "content", text.data != NULL ? text.data : "", text.len);
    r->args_bytes += CHANGED_BYTES + text.len;
    buf_free(&text);
    return good;
}

/* ---- tool calls of an assistant */

/* Mistral's templates take ids of nine characters and no others: the last nine of ours. */
static bool shorten_id(struct ep_read *r, struct json_value *obj, const char *key) {
    enum { MISTRAL_ID_BYTES = 9 };
    const char *s;
    size_t n;
    if (r->tool_format != TOOLS_MISTRAL || json_get_str(obj, key, &s, &n) != JSON_OK ||
        n <= MISTRAL_ID_BYTES || !ep_id_valid(s, n))
        return true;
    return set_str(r, obj, key, s + n - MISTRAL_ID_BYTES, MISTRAL_ID_BYTES);
}

/* Templates print arguments with `tojson`, so text that holds an object is given to them as that
 * object. The body's text, which ends after what it holds, is read where it lies; a text that was
 * made for this request ends with its value, which the object replaces, and is copied. */
static bool args_as_object(struct ep_read *r, struct json_value *fn, struct json_value *text) {
    const char *s = json_str(text);
    const size_t n = json_str_len(text);
    const bool made = json_tree_bytes(text) == 0;
    struct json_value *args = NULL;
    if (s[strspn(s, " \t\r\n")] != '{') return true;
    enum err e = made ? json_read(&args, s, n, NULL, NULL)
                      : json_read_in_place(&args, (char *)(uintptr_t)s, n, NULL, NULL);
    if (e != ERR_OK) return e != ERR_NO_MEMORY || ep_fail_memory(r);
    r->args_bytes += json_tree_bytes(args) + (made ? n : 0);
    return json_obj_set(fn, "arguments", args) == 0 || ep_fail_memory(r);
}

static bool check_call(struct ep_read *r, struct json_value *call) {
    struct json_value *v, *fn;
    const char *s;
    size_t n;
    if (json_get(call, "id", &v) != JSON_OK)
        return ep_fail(r, 422, "Tool call param contains no id.");
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_fail(r, 422, "Tool call param \"id\" arguments expected to be a string");
    if (!shorten_id(r, call, "id")) return false;
    if (json_get_str(call, "type", &s, &n) != JSON_OK || strcmp(s, "function") != 0)
        return ep_fail(r, 422, "The type of the tool. Currently, only function is supported.");
    if (json_get_obj(call, "function", &fn) != JSON_OK)
        return ep_fail(r, 422, "Tool call param contains no function that the model called.");
    if (json_get(fn, "name", &v) != JSON_OK)
        return ep_fail(r, 422, "Tool call param contains no function name");
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_fail(r, 422, "Tool call param function name expected to be a string");
    if (!ep_tool_name(r, s, n)) return false;
    if (json_get(fn, "arguments", &v) != JSON_OK)
        return ep_fail(r, 422, "Tool call param contains no function arguments");
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_fail(r, 422, "Tool call param function arguments expected to be a string");
    return args_as_object(r, fn, v);
}

static bool check_calls(struct ep_read *r, struct json_value *msg, bool *some) {
    struct json_value *v, *arr;
    *some = false;
    if (json_get(msg, "tool_calls", &v) != JSON_OK) return true;
    if (json_as_arr(v, &arr) != JSON_OK) return ep_fail(r, 422, "tool_calls must be array type.");
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        if (!check_call(r, json_arr_at(arr, i))) return false;
        *some = true;
    }
    return true;
}

/* ---- one message */

static bool empty_allowed(const struct ep_read *r) {
    return ep_openai_manner(r);
}

static bool check_assistant(struct ep_read *r, struct json_value *msg, size_t i) {
    struct json_value *v;
    const char *s;
    size_t n;
    bool calls;
    /* what templates of models with channels call it */
    if (r->tool_format == TOOLS_HARMONY && json_get(msg, "thinking", &v) == JSON_ABSENT &&
        json_get_str(msg, "reasoning_content", &s, &n) == JSON_OK &&
        !set_str(r, msg, "thinking", s, n))
        return false;
    ep_at_message(r, i, "tool_calls");
    if (!check_calls(r, msg, &calls)) return false;
    ep_at_message(r, i, "content");
    if (json_get(msg, "content", &v) != JSON_OK) {
        /* Programs send an answer back as it came, and one cut before its first token has none. */
        if (!calls && empty_allowed(r)) return set_str(r, msg, "content", "", 0);
        if (!calls) return ep_missing(r, NO_CONTENT);
        json_obj_set(msg, "content", NULL); /* templates ask `content is none` */
        return true;
    }
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "Request param \"content\" arguments expected to be a string");
    if (n == 0 && !calls && !empty_allowed(r))
        return ep_fail(r, 422, "Request param \"content\" should not be empty");
    return true;
}

static bool check_content(struct ep_read *r, const struct json_value *msg, bool is_tool) {
    struct json_value *v, *arr;
    const char *s;
    size_t n;
    if (json_get(msg, "content", &v) != JSON_OK) return ep_missing(r, NO_CONTENT);
    if (json_as_arr(v, &arr) == JSON_OK)
        return ep_fail(r, 422, "Inputs arr is empty"); /* all others are joined by now */
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "The type of inputs is abnormal");
    if (r->with_tools && n == 0 && !is_tool && !empty_allowed(r))
        return ep_fail(r, 422, "Request param content len should not be 0");
    return true;
}

static bool check_tool_call_id(struct ep_read *r, struct json_value *msg) {
    struct json_value *v;
    const char *s;
    size_t n;
    if (json_get(msg, "tool_call_id", &v) != JSON_OK)
        return ep_missing(
            r, "Request param contains not tool_call_id or tool_call_id null while role is tool");
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "The type of tool_call_id is abnormal");
    if (n == 0)
        return ep_fail(r, 422, "Request param tool_call_id len should not be 0 while role is tool");
    return shorten_id(r, msg, "tool_call_id");
}

/* Roles by the names templates know; the old "function" has a name instead of a tool_call_id. */
static const struct role_alias {
    const char *from, *to;
} role_aliases[] = {{"developer", "system"}, {"function", "tool"}};

static bool check_role(struct ep_read *r, struct json_value *msg, const char **role) {
    static const char *const with_tools[] = {"system", "assistant", "user", "tool"};
    size_t n;
    if (json_get_str(msg, "role", role, &n) != JSON_OK)
        return ep_missing(r, "Request param contains not role or role null");
    for (size_t i = 0; i < sizeof(role_aliases) / sizeof(role_aliases[0]); i++) {
        if (strcmp(*role, role_aliases[i].from) != 0) continue;
        *role = role_aliases[i].to;
        return set_str(r, msg, "role", *role, strlen(*role));
    }
    for (size_t i = 0; i < sizeof(with_tools) / sizeof(with_tools[0]); i++)
        if (strcmp(*role, with_tools[i]) == 0) return true;
    return !r->with_tools ||
           ep_fail(r, 422, "Request param contains role must be system, assistant, user or tool");
}

static bool check_message(struct ep_read *r, struct json_value *msg, size_t i) {
    const char *role, *was;
    size_t n;
    bool old_function =
        json_get_str(msg, "role", &was, &n) == JSON_OK && strcmp(was, "function") == 0;
    ep_at_message(r, i, "role");
    if (!check_role(r, msg, &role)) return false;
    ep_at_message(r, i, "content");
    if (!join_content(r, msg)) return false;
    if (strcmp(role, "assistant") == 0) return check_assistant(r, msg, i);
    bool is_tool = strcmp(role, "tool") == 0;
    if (!check_content(r, msg, is_tool)) return false;
    ep_at_message(r, i, "tool_call_id");
    return !is_tool || old_function || check_tool_call_id(r, msg);
}

bool ep_chat_messages(struct ep_read *r, struct json_value *messages) {
    for (size_t i = 0; i < json_arr_len(messages); i++)
        if (!check_message(r, json_arr_at(messages, i), i)) return false;
    return true;
}
