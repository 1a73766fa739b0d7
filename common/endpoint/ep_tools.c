/* ep_tools: tools and tool_choice of a chat (inference-api 8.4): syntax, and which tools the
 * template sees. */
#include <string.h>
#include "common/endpoint/ep.h"

enum { TOOL_NAME_CHARS_MAX = 64 };

/* ^[a-zA-Z0-9_\u4e00-\u9fa5-]{1,64}$ over valid UTF-8. */
bool ep_tool_name_valid(const char *s, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; chars++) {
        unsigned char c = (unsigned char)s[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '_' || c == '-') {
            i++;
            continue;
        }
        if (c < 0xE0 || c > 0xEF || n - i < 3) return false;
        unsigned cp = (unsigned)(c & 0x0F) << 12 | (unsigned)(s[i + 1] & 0x3F) << 6 |
                      (unsigned)(s[i + 2] & 0x3F);
        if (cp < 0x4E00 || cp > 0x9FA5) return false;
        i += 3;
    }
    return chars >= 1 && chars <= TOOL_NAME_CHARS_MAX;
}

bool ep_tool_name(struct ep_read *r, const char *s, size_t n) {
    if (ep_tool_name_valid(s, n)) return true;
    return ep_fail_with(
        r, 422,
        "The name of function must be a-z, A-Z, 0-9, common chinese characters, underscores and "
        "dashe within max length of 64, unexpected function name: {got}",
        "{got}", s, NULL);
}

static bool check_tool(struct ep_read *r, const struct json_value *tool, const char **name) {
    struct json_value *v, *fn;
    const char *s;
    size_t n;
    switch (json_get(tool, "type", &v)) {
    case JSON_OK: break;
    case JSON_NULL: return ep_fail(r, 422, "Tool param invalid tool type");
    default: return ep_fail(r, 422, "Tool param invalid, tool type not exist");
    }
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_fail(r, 422, "Tool param invalid tool string type");
    if (strcmp(s, "function") != 0) return ep_fail(r, 422, "Tool param not function type");
    if (json_get(tool, "function", &v) == JSON_ABSENT)
        return ep_fail(r, 422, "Tool param invalid, tool function not exist");
    if (json_get_obj(tool, "function", &fn) != JSON_OK)
        return ep_fail(r, 422, "Tool param invalid function object");
    if (json_get(fn, "name", &v) == JSON_ABSENT)
        return ep_fail(r, 422, "Function object invalid, function name not exist");
    if (json_get_str(fn, "name", name, &n) != JSON_OK)
        return ep_fail(r, 422, "Function object invalid name type");
    return ep_tool_name(r, *name, n);
}

enum choice_kind { CHOICE_AUTO, CHOICE_NONE, CHOICE_REQUIRED, CHOICE_NAMED };

/* *named: the one function the client wants, or NULL. */
static bool check_choice(struct ep_read *r, enum choice_kind *kind, const char **named) {
    struct json_value *v;
    const char *s;
    size_t n;
    ep_at(r, "tool_choice");
    if (json_get(r->body, "tool_choice", &v) != JSON_OK) return true;
    if (json_as_str(v, &s, &n) == JSON_OK) {
        if (strcmp(s, "none") == 0)
            *kind = CHOICE_NONE;
        else if (strcmp(s, "required") == 0)
            *kind = CHOICE_REQUIRED;
        else if (strcmp(s, "auto") != 0)
            return ep_fail(r, 422, "Parameter tool_choice string not in [none, auto, required]");
        return true;
    }
    if (!json_is(v, json_type_object))
        return ep_wrong_type(r, "Parameter tool_choice not string or object");
    if (json_get_str(v, "type", &s, &n) == JSON_OK && strcmp(s, "allowed_tools") == 0)
        return true; /* as auto */
    *kind = CHOICE_NAMED;
    return check_tool(r, v, named);
}

/* The tools, each checked; *arr NULL: none. *found: the one called `named`. */
static bool check_tools(struct ep_read *r, const char *named, struct json_value **arr,
                        struct json_value **found) {
    struct json_value *v;
    const char *name;
    ep_at(r, "tools");
    if (json_get(r->body, "tools", &v) != JSON_OK) return true;
    if (json_as_arr(v, arr) != JSON_OK) return ep_wrong_type(r, "Tools not array");
    for (size_t i = 0; i < json_arr_len(*arr); i++) {
        struct json_value *tool = json_arr_at(*arr, i);
        if (!check_tool(r, tool, &name)) return false;
        r->with_tools = true;
        if (named != NULL && strcmp(name, named) == 0) *found = tool;
    }
    return true;
}

bool ep_chat_tools(struct ep_read *r) {
    struct json_value *tools = NULL, *found = NULL;
    enum choice_kind kind = CHOICE_AUTO;
    const char *named = NULL;
    if (!check_choice(r, &kind, &named) || !check_tools(r, named, &tools, &found)) return false;
    ep_at(r, "tool_choice");
    if (named != NULL && found == NULL)
        return ep_fail(r, 422, "Tool param invalid function object");
    if (json_get_bool(r->body, "parallel_tool_calls", &r->req->answer.parallel_tools) ==
        JSON_WRONG_TYPE) {
        ep_at(r, "parallel_tool_calls");
        return ep_wrong_type(r, "parallel_tool_calls must be boolean type.");
    }
    if (!r->with_tools)
        return kind != CHOICE_REQUIRED ||
               ep_fail(r, 422, "tool_choice required is only allowed when tools are given");
    if (kind == CHOICE_NONE) return true;
    r->callable = found != NULL ? json_new_arr() : json_ref(tools);
    if (r->callable == NULL) return ep_fail_memory(r);
    if (found != NULL) json_arr_add(r->callable, json_ref(found));
    r->forced = kind == CHOICE_REQUIRED ? EP_FORCED_ANY
                : kind == CHOICE_NAMED  ? EP_FORCED_NAMED
                                        : EP_FORCED_NO;
    return true;
}
