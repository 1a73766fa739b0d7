/* ep_responses: the body of OpenAI's Responses as a chat (client-apis 1.1, 1.5 to 1.7). What the
 * answer repeats of it is put together here, and travels with the request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep_responses.h"

enum { METADATA_PAIRS_MAX = 16, METADATA_KEY_CHARS_MAX = 64, METADATA_VALUE_CHARS_MAX = 512 };

/* Reads that string; another type fails. *s NULL: absent or null. */
static bool string_at(struct ep_read *r, struct json_value *obj, const char *key, const char *at,
                      const char **s, size_t *n) {
    char text[120];
    *s = NULL;
    if (json_get_str(obj, key, s, n) != JSON_WRONG_TYPE) return true;
    snprintf(text, sizeof(text), "%s must be a string", at);
    return resp_wrong(r, at, EP_INVALID_TYPE, text);
}

static bool bool_at(struct ep_read *r, const char *key, bool *on) {
    char text[80];
    if (json_get_bool(r->body, key, on) != JSON_WRONG_TYPE) return true;
    snprintf(text, sizeof(text), "%s must be a boolean", key);
    return resp_wrong(r, key, EP_INVALID_TYPE, text);
}

/* An object, or *o NULL. */
static bool object_at(struct ep_read *r, const char *key, struct json_value **o) {
    char text[80];
    *o = NULL;
    if (json_get_obj(r->body, key, o) != JSON_WRONG_TYPE) return true;
    snprintf(text, sizeof(text), "%s must be an object", key);
    return resp_wrong(r, key, EP_INVALID_TYPE, text);
}

static bool is_one_of(const char *s, const char *const *words) {
    while (*words != NULL && strcmp(s, *words) != 0) words++;
    return *words != NULL;
}

static void echo(struct resp_read *p, const char *key, struct json_value *v) {
    json_obj_set(p->echoed, key, v);
}

/* As the client wrote it, when it is a string; else null. */
static void echo_string(struct resp_read *p, const char *key) {
    struct json_value *v = NULL;
    const char *s;
    size_t n;
    if (json_get(p->c.r->body, key, &v) != JSON_OK || json_as_str(v, &s, &n) != JSON_OK) v = NULL;
    echo(p, key, json_ref(v));
}

static void echo_number(struct resp_read *p, const char *key) {
    int64_t i;
    const bool there = json_get_i64(p->c.r->body, key, &i) == JSON_OK;
    echo(p, key, there ? json_new_i64(i) : NULL);
}

/* ---- what is not there */

static bool refuse_absent_services(struct ep_read *r) {
    static const char *const services[] = {"conversation", "prompt", "context_management",
                                           "moderation", NULL};
    struct json_value *v, *input;
    bool on = false;
    char text[120], with[EP_ELSEWHERE_BYTES];
    for (const char *const *key = services; *key != NULL; key++) {
        if (json_get(r->body, *key, &v) != JSON_OK) continue;
        snprintf(text, sizeof(text), "Unsupported parameter: '%s' is not supported here.", *key);
        /* a prompt that is no reference to one is another path's input */
        const bool other = !json_is(v, json_type_object) &&
                           json_get(r->body, "input", &input) != JSON_OK &&
                           ep_elsewhere(with, r->in->path, r->body, "input", text);
        return resp_wrong(r, *key, EP_UNSUPPORTED, other ? with : text);
    }
    if (!bool_at(r, "background", &on)) return false;
    return !on || resp_wrong(r, "background", EP_UNSUPPORTED_VALUE,
                             "background responses are not supported: stream, or wait");
}

/* ---- tools */

static struct json_value *custom_parameters(const struct json_value *tool) {
    struct json_value *o = json_new_obj(), *props = json_new_obj(), *input = json_new_obj(),
                      *required = json_new_arr(), *format, *regex;
    const char *s;
    size_t n;
    json_obj_set(o, "type", json_new_str("object"));
    json_obj_set(input, "type", json_new_str("string"));
    if (json_get_obj(tool, "format", &format) == JSON_OK &&
        json_get_str(format, "syntax", &s, &n) == JSON_OK && strcmp(s, "regex") == 0 &&
        json_get(format, "definition", &regex) == JSON_OK && json_is(regex, json_type_string))
        json_obj_set(input, "pattern", json_ref(regex));
    json_obj_set(props, "input", input);
    json_obj_set(o, "properties", props);
    json_arr_add(required, json_new_str("input"));
    json_obj_set(o, "required", required);
    json_obj_set(o, "additionalProperties", json_new_bool(false));
    return o;
}

/* Whether tool_choice allows the tool: `allowed_tools` names some of them. */
static bool allowed(const struct ep_read *r, const char *name) {
    struct json_value *choice, *arr;
    const char *s;
    size_t n;
    if (json_get_obj(r->body, "tool_choice", &choice) != JSON_OK ||
        json_get_str(choice, "type", &s, &n) != JSON_OK || strcmp(s, "allowed_tools") != 0 ||
        json_get_arr(choice, "tools", &arr) != JSON_OK)
        return true;
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (json_get_str(json_arr_at(arr, i), "name", &s, &n) == JSON_OK && strcmp(s, name) == 0)
            return true;
    return false;
}

/* A function or custom tool; also in the nested form of chats. */
static bool take_named(struct resp_read *p, struct json_value *tool, const char *at, bool custom) {
    struct ep_read *r = p->c.r;
    struct json_value *fn = tool, *params = NULL;
    const char *name, *description;
    size_t n;
    char member[64], text[160];
    if (!custom) json_get_obj(tool, "function", &fn);
    snprintf(member, sizeof(member), "%s.name", at);
    if (json_get_str(fn, "name", &name, &n) != JSON_OK) {
        snprintf(text, sizeof(text), "Missing required parameter: '%s', a string.", member);
        return resp_wrong(r, member, EP_MISSING, text);
    }
    if (!ep_tool_name_valid(name, n)) {
        snprintf(text, sizeof(text), "%s " EP_TOOL_NAME, member);
        return resp_wrong(r, member, EP_INVALID_VALUE, text);
    }
    snprintf(member, sizeof(member), "%s.parameters", at);
    if (!custom && json_get_obj(fn, "parameters", &params) == JSON_WRONG_TYPE) {
        snprintf(text, sizeof(text), "%s must be an object", member);
        return resp_wrong(r, member, EP_INVALID_TYPE, text);
    }
    if (!allowed(r, name)) return true;
    snprintf(member, sizeof(member), "%s.description", at);
    if (!string_at(r, fn, "description", member, &description, &n)) return false;
    struct json_value *made = custom ? custom_parameters(tool) : NULL;
    conv_tool(&p->c, name, description, custom ? made : params);
    json_put(made);
    return true;
}

static bool refuse_tool(struct ep_read *r, const char *at, const char *type) {
    char member[64], text[200];
    snprintf(member, sizeof(member), "%s.type", at);
    snprintf(text, sizeof(text),
             "Tools of type '%.60s' are not supported: tools are run by clients here, of type "
             "function or custom.",
             type);
    return resp_wrong(r, member, EP_UNSUPPORTED_VALUE, text);
}

static bool take_tool(struct resp_read *p, struct json_value *tool, const char *at, bool inside,
                      bool *kept) {
    static const char *const dropped[] = {"web_search",         "web_search_2025_08_26",
                                          "web_search_preview", "web_search_preview_2025_03_11",
                                          "tool_search",        NULL};
    struct json_value *tools;
    const char *type;
    size_t n;
    char member[64];
    *kept = true;
    if (json_get_str(tool, "type", &type, &n) != JSON_OK) {
        snprintf(member, sizeof(member), "%s.type", at);
        return resp_wrong(p->c.r, member, EP_MISSING, "a tool needs a type");
    }
    if (strcmp(type, "function") == 0) return take_named(p, tool, at, false);
    if (strcmp(type, "custom") == 0) return take_named(p, tool, at, true);
    if (strcmp(type, "namespace") == 0 && !inside) {
        snprintf(member, sizeof(member), "%s.tools", at);
        if (json_get_arr(tool, "tools", &tools) != JSON_OK)
            return resp_wrong(p->c.r, member, EP_MISSING, "a namespace needs its tools");
        return resp_take_tools(p, tools, member, NULL);
    }
    *kept = false; /* programs send these unasked */
    return is_one_of(type, dropped) || refuse_tool(p->c.r, at, type);
}

bool resp_take_tools(struct resp_read *p, const struct json_value *tools, const char *at,
                     struct json_value *kept) {
    char where[56];
    bool keep;
    for (size_t i = 0; i < json_arr_len(tools); i++) {
        struct json_value *tool = json_arr_at(tools, i);
        snprintf(where, sizeof(where), "%.32s[%zu]", at, i);
        if (!take_tool(p, tool, where, strcmp(at, "tools") != 0, &keep)) return false;
        if (keep && kept != NULL) json_arr_add(kept, json_ref(tool));
    }
    return true;
}

static bool take_tools(struct resp_read *p) {
    struct ep_read *r = p->c.r;
    struct json_value *arr = NULL, *kept = json_new_arr();
    echo(p, "tools", kept);
    if (json_get_arr(r->body, "tools", &arr) == JSON_WRONG_TYPE)
        return resp_wrong(r, "tools", EP_INVALID_TYPE, "tools must be a list");
    return arr == NULL || resp_take_tools(p, arr, "tools", kept);
}

static bool is_tool(const struct conv *c, const char *name) {
    struct json_value *fn;
    const char *s;
    size_t n;
    for (size_t i = 0; c->tools != NULL && i < json_arr_len(c->tools); i++)
        if (json_get_obj(json_arr_at(c->tools, i), "function", &fn) == JSON_OK &&
            json_get_str(fn, "name", &s, &n) == JSON_OK && strcmp(s, name) == 0)
            return true;
    return false;
}

static bool choose_word(struct resp_read *p, const char *word) {
    static const char *const words[] = {"none", "auto", "required", NULL};
    struct ep_read *r = p->c.r;
    if (!is_one_of(word, words))
        return resp_wrong(r, "tool_choice", EP_INVALID_VALUE,
                          "tool_choice must be none, auto, required, or an object with a type");
    if (strcmp(word, "required") == 0 && p->c.tools == NULL)
        return resp_wrong(r, "tool_choice", EP_INVALID_VALUE,
                          "tool_choice 'required' needs tools of type function or custom");
    conv_set(&p->c, "tool_choice", json_new_str(word));
    return true;
}

static bool choose_named(struct resp_read *p, const struct json_value *choice) {
    struct ep_read *r = p->c.r;
    struct json_value *fn;
    const char *name;
    size_t n;
    if (json_get_str(choice, "name", &name, &n) != JSON_OK &&
        (json_get_obj(choice, "function", &fn) != JSON_OK ||
         json_get_str(fn, "name", &name, &n) != JSON_OK))
        return resp_wrong(r, "tool_choice.name", EP_MISSING,
                          "Missing required parameter: 'tool_choice.name', a string.");
    if (!is_tool(&p->c, name)) {
        ep_at(r, "tool_choice");
        if (r->status == 0) r->code = EP_INVALID_VALUE;
        return ep_fail_with(r, 422, "Tool choice '{got}' not found in 'tools' parameter.", "{got}",
                            name, NULL);
    }
    conv_force(&p->c, name);
    return true;
}

static bool take_choice(struct resp_read *p) {
    struct ep_read *r = p->c.r;
    struct json_value *v;
    const char *s = "auto";
    size_t n;
    if (json_get(r->body, "tool_choice", &v) != JSON_OK) {
        echo(p, "tool_choice", json_new_str("auto"));
        return true;
    }
    echo(p, "tool_choice", json_ref(v));
    if (json_as_str(v, &s, &n) == JSON_OK) return choose_word(p, s);
    if (json_get_str(v, "type", &s, &n) != JSON_OK)
        return resp_wrong(r, "tool_choice", EP_INVALID_TYPE,
                          "tool_choice must be none, auto, required, or an object with a type");
    if (strcmp(s, "function") == 0 || strcmp(s, "custom") == 0) return choose_named(p, v);
    if (strcmp(s, "allowed_tools") != 0)
        return resp_wrong(r, "tool_choice.type", EP_UNSUPPORTED_VALUE,
                          "tool_choice.type must be function, custom or allowed_tools");
    s = "auto";
    json_get_str(v, "mode", &s, &n);
    return choose_word(p, s);
}

/* ---- the form of the text */

static bool take_schema(struct resp_read *p, const struct json_value *format) {
    struct ep_read *r = p->c.r;
    struct json_value *schema;
    const char *name;
    size_t n;
    if (json_get_str(format, "name", &name, &n) != JSON_OK)
        return resp_wrong(r, "text.format.name", EP_MISSING,
                          "Missing required parameter: 'text.format.name'.");
    if (json_get_obj(format, "schema", &schema) != JSON_OK)
        return resp_wrong(r, "text.format.schema", EP_MISSING,
                          "Missing required parameter: 'text.format.schema', an object.");
    conv_schema(&p->c, schema);
    return true;
}

static bool take_format(struct resp_read *p, const struct json_value *format) {
    struct ep_read *r = p->c.r;
    const char *type;
    size_t n;
    if (json_get_str(format, "type", &type, &n) != JSON_OK)
        return resp_wrong(r, "text.format.type", EP_MISSING,
                          "Missing required parameter: 'text.format.type'.");
    if (strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_schema") == 0) return take_schema(p, format);
    if (strcmp(type, "json_object") != 0)
        return resp_wrong(r, "text.format.type", EP_INVALID_VALUE,
                          "text.format.type must be text, json_object or json_schema");
    struct json_value *o = json_new_obj();
    json_obj_set(o, "type", json_new_str("json_object"));
    conv_set(&p->c, "response_format", o);
    return true;
}

/* A copy of an object's members, in a made object. */
static struct json_value *copy_of(const struct json_value *o) {
    struct json_value *copy = json_new_obj();
    if (o == NULL) return copy;
    json_obj_foreach(o, key, val) {
        json_obj_set(copy, key, json_ref(val));
    }
    return copy;
}

static bool take_text(struct resp_read *p) {
    struct ep_read *r = p->c.r;
    static const char *const verbosities[] = {"low", "medium", "high", NULL};
    struct json_value *text, *format = NULL, *copy;
    const char *verbosity = NULL;
    size_t n;
    if (!object_at(r, "text", &text)) return false;
    if (json_get_obj(text, "format", &format) == JSON_WRONG_TYPE)
        return resp_wrong(r, "text.format", EP_INVALID_TYPE, "text.format must be an object");
    if (!string_at(r, text, "verbosity", "text.verbosity", &verbosity, &n)) return false;
    if (verbosity != NULL && !is_one_of(verbosity, verbosities))
        return resp_wrong(r, "text.verbosity", EP_INVALID_VALUE,
                          "text.verbosity must be low, medium or high");
    copy = copy_of(text);
    if (format == NULL) {
        struct json_value *plain = json_new_obj();
        json_obj_set(plain, "type", json_new_str("text"));
        json_obj_set(copy, "format", plain);
    }
    echo(p, "text", copy);
    return format == NULL || take_format(p, format);
}

/* ---- reasoning */

static bool take_reasoning(struct resp_read *p) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max", NULL};
    static const char *const summaries[] = {"auto", "concise", "detailed", NULL};
    struct ep_read *r = p->c.r;
    struct json_value *o, *copy, *v;
    const char *effort = NULL, *summary = NULL;
    size_t n;
    if (!object_at(r, "reasoning", &o)) return false;
    if (!string_at(r, o, "effort", "reasoning.effort", &effort, &n) ||
        !string_at(r, o, "summary", "reasoning.summary", &summary, &n))
        return false;
    if (effort != NULL && !is_one_of(effort, efforts))
        return resp_wrong(
            r, "reasoning.effort", EP_INVALID_VALUE,
            "reasoning.effort must be none, minimal, low, medium, high, xhigh or max");
    if (summary != NULL && !is_one_of(summary, summaries))
        return resp_wrong(r, "reasoning.summary", EP_INVALID_VALUE,
                          "reasoning.summary must be auto, concise or detailed");
    if (effort != NULL) {
        const bool on = strcmp(effort, "none") != 0;
        conv_var(&p->c, "enable_thinking", json_new_bool(on));
        if (on) conv_set(&p->c, "reasoning_effort", json_new_str(effort));
    }
    r->req->answer.summary = summary != NULL;
    copy = copy_of(o);
    if (json_get(copy, "effort", &v) == JSON_ABSENT) json_obj_set(copy, "effort", NULL);
    if (json_get(copy, "summary", &v) == JSON_ABSENT) json_obj_set(copy, "summary", NULL);
    echo(p, "reasoning", copy);
    return true;
}

/* ---- what the answer shows */

static bool take_include(struct resp_read *p) {
    static const char *const known[] = {"file_search_call.results",
                                        "web_search_call.results",
                                        "web_search_call.action.sources",
                                        "message.input_image.image_url",
                                        "computer_call_output.output.image_url",
                                        "code_interpreter_call.outputs",
                                        "reasoning.encrypted_content",
                                        "message.output_text.logprobs",
                                        NULL};
    struct ep_read *r = p->c.r;
    struct json_value *arr = NULL;
    const char *s;
    size_t n;
    int64_t top = 0;
    char at[40];
    if (json_get_arr(r->body, "include", &arr) == JSON_WRONG_TYPE)
        return resp_wrong(r, "include", EP_INVALID_TYPE, "include must be a list of strings");
    bool logprobs = json_get_i64(r->body, "top_logprobs", &top) == JSON_OK && top != 0;
    if (logprobs) conv_set(&p->c, "top_logprobs", json_new_i64(top));
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        snprintf(at, sizeof(at), "include[%zu]", i);
        if (json_as_str(json_arr_at(arr, i), &s, &n) != JSON_OK || !is_one_of(s, known))
            return resp_wrong(r, at, EP_INVALID_VALUE,
                              "include must name what responses can hold, such as "
                              "message.output_text.logprobs");
        r->req->answer.sealed |= strcmp(s, "reasoning.encrypted_content") == 0;
        logprobs |= strcmp(s, "message.output_text.logprobs") == 0;
    }
    if (logprobs) conv_set(&p->c, "logprobs", json_new_bool(true));
    echo(p, "top_logprobs", json_new_i64(top));
    return true;
}

static bool take_metadata(struct resp_read *p) {
    struct ep_read *r = p->c.r;
    struct json_value *o;
    const char *s;
    size_t n;
    if (!object_at(r, "metadata", &o)) return false;
    if (json_obj_len(o) > METADATA_PAIRS_MAX)
        return resp_wrong(r, "metadata", EP_INVALID_VALUE, "metadata may have 16 pairs at most");
    if (o != NULL) {
        json_obj_foreach(o, key, val) {
            if (ep_utf16_len(key, strlen(key)) > METADATA_KEY_CHARS_MAX)
                return resp_wrong(r, "metadata", EP_INVALID_VALUE,
                                  "keys of metadata may have 64 characters at most");
            if (json_as_str(val, &s, &n) != JSON_OK ||
                ep_utf16_len(s, n) > METADATA_VALUE_CHARS_MAX)
                return resp_wrong(r, "metadata", EP_INVALID_VALUE,
                                  "values of metadata must be strings of 512 characters at most");
        }
    }
    echo(p, "metadata", o != NULL ? json_ref(o) : json_new_obj());
    return true;
}

static bool take_truncation(struct resp_read *p) {
    static const char *const words[] = {"auto", "disabled", NULL};
    struct ep_read *r = p->c.r;
    const char *s;
    size_t n;
    if (!string_at(r, r->body, "truncation", "truncation", &s, &n)) return false;
    if (s != NULL && !is_one_of(s, words))
        return resp_wrong(r, "truncation", EP_INVALID_VALUE, "truncation must be auto or disabled");
    r->drop_oldest = s != NULL && strcmp(s, "auto") == 0;
    echo(p, "truncation", json_new_str(r->drop_oldest ? "auto" : "disabled"));
    return true;
}

/* Whether the answer is kept is the business of who serves the client; here it means that events
 * can be asked for again. */
static bool take_store(struct resp_read *p) {
    bool store = true, parallel = true;
    struct ep_read *r = p->c.r;
    if (!bool_at(r, "store", &store) || !bool_at(r, "parallel_tool_calls", &parallel)) return false;
    conv_set(&p->c, "parallel_tool_calls", json_new_bool(parallel));
    echo(p, "parallel_tool_calls", json_new_bool(parallel));
    echo(p, "background", json_new_bool(false));
    echo(p, "store", json_new_bool(store));
    r->req->answer.event_ids = store;
    return true;
}

/* ---- the conversation */

static bool take_instructions(struct resp_read *p) {
    const char *s;
    size_t n;
    if (!string_at(p->c.r, p->c.r->body, "instructions", "instructions", &s, &n)) return false;
    echo_string(p, "instructions");
    if (s == NULL) return true;
    conv_message(&p->c, "system", false);
    conv_text(&p->c, s, n, "");
    return true;
}

/* Who serves the client has looked the earlier responses up, and sends what they hold. */
static bool open_context(struct resp_read *p) {
    struct ep_read *r = p->c.r;
    const struct json_limits lim = {.depth_max = JSON_DEPTH_MAX};
    const char *id;
    size_t n;
    if (!string_at(r, r->body, "previous_response_id", "previous_response_id", &id, &n))
        return false;
    if (id != NULL && r->in->context_len == 0) {
        ep_at(r, "previous_response_id");
        if (r->status == 0) r->code = "previous_response_not_found";
        return ep_fail_with(r, 422, "Previous response with id '{id}' not found.", "{id}", id,
                            NULL);
    }
    if (r->in->context_len == 0) return true;
    enum err e = json_read(&p->context, r->in->context, r->in->context_len, &lim, NULL);
    if (e == ERR_NO_MEMORY) return ep_fail_memory(r);
    r->args_bytes += json_tree_bytes(p->context);
    return (e == ERR_OK && json_is(p->context, json_type_object)) ||
           resp_wrong(r, "previous_response_id", EP_INVALID_VALUE,
                      "the stored conversation is no JSON object");
}

/* ---- the body */

static bool keep_echoed(struct resp_read *p) {
    struct ep_read *r = p->c.r;
    size_t n;
    char text[160];
    const char *s = json_to_text(p->echoed, JSON_COMPACT, &n);
    if (s == NULL) return ep_fail_memory(r);
    if (n > ECHOED_BYTES_MAX) {
        snprintf(text, sizeof(text),
                 "instructions, tools and what else the answer repeats have %zu bytes, at most %d "
                 "are possible",
                 n, ECHOED_BYTES_MAX);
        return resp_wrong(r, "instructions", "string_above_max_length", text);
    }
    r->req->answer.echoed = ep_dup(s, n);
    return r->req->answer.echoed != NULL || ep_fail_memory(r);
}

static void echo_rest(struct resp_read *p) {
    static const char *const strings[] = {"previous_response_id", "prompt_cache_key",
                                          "safety_identifier", "user", NULL};
    for (const char *const *key = strings; *key != NULL; key++) echo_string(p, *key);
    echo_number(p, "max_output_tokens");
    echo_number(p, "max_tool_calls");
    echo(p, "conversation", NULL);
    echo(p, "service_tier", json_new_str("default"));
}

static bool convert(struct ep_read *r) {
    static const char *const same[] = {"temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "seed",
                                       "stop",
                                       "stop_token_ids",
                                       "include_stop_str_in_output",
                                       "ignore_eos",
                                       "skip_special_tokens",
                                       "frequency_penalty",
                                       "presence_penalty",
                                       "repetition_penalty",
                                       "logit_bias",
                                       "bad_words",
                                       "allowed_token_ids",
                                       "min_tokens",
                                       "max_output_tokens",
                                       "prompt_lookup_num_tokens",
                                       "priority",
                                       "stream",
                                       "chat_template_kwargs",
                                       "cache_salt",
                                       NULL};
    struct resp_read p = {.echoed = json_new_obj()};
    conv_begin(&p.c, r);
    conv_copy(&p.c, r->body, same);
    bool good = refuse_absent_services(r) && open_context(&p) && take_instructions(&p) &&
                resp_take_input(&p) && take_tools(&p) && take_choice(&p) && take_text(&p) &&
                take_reasoning(&p) && take_include(&p) && take_metadata(&p) &&
                take_truncation(&p) && take_store(&p);
    if (good) {
        echo_rest(&p);
        good = keep_echoed(&p);
    }
    json_put(p.echoed);
    good = conv_end(&p.c, good);
    json_put(p.context);
    return good;
}

/* Absent: the server's model. */
static bool read_model(struct ep_read *r) {
    const char *s;
    size_t n;
    if (!string_at(r, r->body, "model", "model", &s, &n)) return false;
    ep_at(r, "model");
    if (s == NULL) {
        s = r->ep->conf.model_name;
        n = strlen(s);
    }
    return ep_model_named(r, s, n,
                          "The model `{got}` does not exist. GET /v1/models lists those that do.");
}

bool ep_responses_read(struct ep_read *r) {
    if (r->in->is_recompute) return read_model(r) && ep_read_prompt(r);
    return read_model(r) && convert(r) && ep_chat_tokens(r);
}
