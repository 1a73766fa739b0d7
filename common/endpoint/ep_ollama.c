/* ep_ollama: the bodies of Ollama's generate and chat as chats (client-apis 3.1, 3.2, 3.5, 3.6). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_convert.h"
#include "common/endpoint/ep_rows.h"

enum { CALL_ID_BYTES = 32 };

/* What Ollama itself takes where neither the request nor the model says. */
static const float temperature_default = 0.8f, top_p_default = 0.9f;
enum { TOP_K_DEFAULT = 40 };

/* ---- names */

static size_t untagged(const char *name) {
    static const char tag[] = ":latest";
    const size_t n = strlen(name), n_tag = sizeof(tag) - 1;
    return n > n_tag && strcasecmp(name + n - n_tag, tag) == 0 ? n - n_tag : n;
}

bool ep_ollama_same(const char *said, const char *ours) {
    const size_t n = untagged(said);
    return n == untagged(ours) && strncasecmp(said, ours, n) == 0;
}

static bool find_adapter(struct ep_read *r, const char *s) {
    char name[MODEL_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "%.*s", (int)untagged(s), s);
    return ep_adapter_find(r, s) || ep_adapter_find(r, name);
}

static bool read_model(struct ep_read *r) {
    const char *s;
    size_t n;
    ep_at(r, "model");
    if (json_get_str(r->body, "model", &s, &n) != JSON_OK || n == 0)
        return ep_missing(r, "model is required");
    if (strlen(s) != n || n > MODEL_NAME_BYTES_MAX ||
        (!ep_ollama_same(s, r->ep->conf.model_name) && !find_adapter(r, s))) {
        if (r->status == 0) r->code = EP_NO_MODEL;
        return ep_fail_with(r, 404, "model '{got}' not found", "{got}", s, NULL);
    }
    r->req->head.model = ep_dup(s, n);
    return r->req->head.model != NULL || ep_fail_memory(r);
}

static bool not_capable(struct ep_read *r, const char *member, const char *of) {
    ep_at(r, member);
    r->code = EP_UNSUPPORTED;
    return ep_fail_with(r, 422, "{model} does not support {of}", "{model}", r->req->head.model,
                        "{of}", of, NULL);
}

/* ---- a model that is asked for without anything to answer is just loaded */

/* "5m", "1h30m", "-1.5s", "0": numbers with units. */
static bool is_duration(const char *s) {
    static const char *const units[] = {"ns", "us", "\xC2\xB5s", "\xCE\xBCs", "ms", "s", "m", "h"};
    s += *s == '-' || *s == '+';
    if (strcmp(s, "0") == 0) return true;
    if (*s == '\0') return false;
    while (*s != '\0') {
        const size_t whole = strspn(s, "0123456789"), dot = s[whole] == '.';
        const size_t part = dot ? strspn(s + whole + 1, "0123456789") : 0;
        size_t unit = 0, n = 0;
        if (whole + part == 0) return false;
        s += whole + dot + part;
        for (; unit < sizeof(units) / sizeof(units[0]) && n == 0; unit++)
            if (strncmp(s, units[unit], strlen(units[unit])) == 0) n = strlen(units[unit]);
        if (n == 0) return false;
        s += n;
    }
    return true;
}

bool ep_ollama_keep_alive(const struct json_value *body, char *text, size_t n_text) {
    struct json_value *v;
    const char *s = "";
    char got[128];
    size_t n;
    double d;
    if (json_get(body, "keep_alive", &v) != JSON_OK || json_as_f64(v, &d) == JSON_OK) return true;
    if (json_as_str(v, &s, &n) == JSON_OK && strlen(s) == n && is_duration(s)) return true;
    json_literal(got, sizeof(got), v);
    snprintf(text, n_text,
             "keep_alive must be a number of seconds or a duration as \"5m\", \"1h30m\" or "
             "\"300ms\", got %s",
             got);
    return false;
}

/* "0", 0, "0s": let go of it. */
static bool keeps_nothing(const struct json_value *body) {
    struct json_value *v;
    const char *s;
    size_t n;
    double d;
    if (json_get(body, "keep_alive", &v) != JSON_OK) return false;
    if (json_as_f64(v, &d) == JSON_OK) return d == 0;
    if (json_as_str(v, &s, &n) != JSON_OK || n == 0) return false;
    return s[strspn(s, "0.")] == '\0' || strpbrk(s, "123456789") == NULL;
}

static bool check_keep_alive(struct ep_read *r) {
    char text[320];
    ep_at(r, "keep_alive");
    return ep_ollama_keep_alive(r->body, text, sizeof(text)) ||
           ep_fail_with(r, 422, "{text}", "{text}", text, NULL);
}

static bool load_only(struct ep_read *r, const char *nothing) {
    buf_puts(&r->text, "{\"model\":");
    put_cstr(&r->text, r->req->head.model);
    buf_puts(&r->text, ",\"created_at\":");
    put_rfc3339(&r->text, r->req->head.created_unix_s);
    buf_printf(&r->text, ",%s,\"done\":true,\"done_reason\":\"%s\"}", nothing,
               keeps_nothing(r->body) ? "unload" : "load");
    return ep_answer_now(r);
}

/* A model of vectors. */
static bool generates(struct ep_read *r, const char *what) {
    if (!r->ep->model->encoder) return true;
    r->code = EP_UNSUPPORTED;
    return ep_fail_with(r, 422, "\"{model}\" does not support {what}", "{model}",
                        r->req->head.model, "{what}", what, NULL);
}

/* No input is a wish to load the model, unless the input is another path's: refused then, and true.
 */
static bool refuse_elsewhere(struct ep_read *r, const char *member) {
    struct json_value *v;
    char text[EP_ELSEWHERE_BYTES];
    if (json_get(r->body, member, &v) == JSON_OK ||
        !ep_elsewhere(text, r->in->path, r->body, member, EP_INPUT_MISSING))
        return false;
    ep_at(r, member);
    ep_missing(r, text);
    return true;
}

/* ---- members of both */

static bool take_think(struct conv *c) {
    static const char *const levels[][2] = {
        {"low", "low"}, {"medium", "medium"}, {"high", "high"}, {"max", "high"}};
    struct ep_read *r = c->r;
    struct json_value *v;
    const char *s = "";
    size_t n, i = 0;
    bool on = true;
    ep_at(r, "think");
    if (json_get(r->body, "think", &v) != JSON_OK) return true;
    if (json_as_bool(v, &on) != JSON_OK) {
        if (json_as_str(v, &s, &n) != JSON_OK)
            return ep_wrong_type(r, "think must be a boolean or a string");
        while (i < 4 && strcmp(levels[i][0], s) != 0) i++;
        if (i == 4)
            return ep_fail_with(r, 422,
                                "invalid think value: \"{got}\" (must be \"high\", \"medium\", "
                                "\"low\", \"max\", true, or false)",
                                "{got}", s, NULL);
        conv_set(c, "reasoning_effort", json_new_str(levels[i][1]));
    }
    if (on && r->ep->thinking == EP_THINKING_NONE)
        return ep_fail_with(r, 422, "\"{model}\" does not support thinking", "{model}",
                            r->req->head.model, NULL);
    conv_var(c, "enable_thinking", json_new_bool(on));
    return true;
}

static bool take_format(struct conv *c) {
    static const char wrong[] =
        "invalid format: {got}; expected \"json\" or a valid JSON Schema object";
    struct json_value *v, *schema, *format;
    const char *s;
    size_t n;
    ep_at(c->r, "format");
    if (json_get(c->r->body, "format", &v) != JSON_OK) return true;
    if (json_as_obj(v, &schema) == JSON_OK) {
        conv_schema(c, schema);
        return true;
    }
    if (json_as_str(v, &s, &n) != JSON_OK || (n > 0 && strcmp(s, "json") != 0))
        return ep_fail_value(c->r, 422, wrong, v);
    if (n == 0) return true;
    format = json_new_obj();
    json_obj_set(format, "type", json_new_str("json_object"));
    conv_set(c, "response_format", format);
    return true;
}

/* Whole numbers may come as 64.0. */
static const struct option {
    const char *name;
    bool whole;
} options[] = {
    {"temperature", false},
    {"top_p", false},
    {"min_p", false},
    {"typical_p", false},
    {"repeat_penalty", false},
    {"frequency_penalty", false},
    {"presence_penalty", false},
    {"top_k", true},
    {"repeat_last_n", true},
    {"seed", true},
    {"num_predict", true},
    {"num_ctx", true},
};

static bool take_option(struct conv *c, const struct option *o, struct json_value *from) {
    struct json_value *v;
    double d;
    if (json_get(from, o->name, &v) != JSON_OK) return true;
    if (json_as_f64(v, &d) != JSON_OK) {
        c->r->code = EP_INVALID_TYPE;
        return ep_fail_with(c->r, 422, "option \"{name}\" must be of type {type}", "{name}",
                            o->name, "{type}", o->whole ? "integer" : "float32", NULL);
    }
    const bool cut = o->whole && json_is(v, json_type_double) && d > -9e15 && d < 9e15;
    conv_set(c, o->name, cut ? json_new_i64((int64_t)d) : json_ref(v));
    return true;
}

/* What is not in the list has no effect here: threads, batches, where a model lies. */
static bool take_options(struct conv *c) {
    static const char *const same[] = {"stop", NULL};
    struct json_value *from;
    ep_at(c->r, "options");
    enum json_got got = json_get_obj(c->r->body, "options", &from);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got != JSON_OK) return ep_wrong_type(c->r, "options must be an object");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (!take_option(c, &options[i], from)) return false;
    conv_copy(c, from, same);
    return true;
}

/* Too long an input loses its beginning, unless it is asked for as it is: of a chat its oldest
 * turns, and where the newest alone is too long, or of a text, tokens. */
static bool take_truncate(struct conv *c) {
    bool on = true;
    ep_at(c->r, "truncate");
    if (json_get_bool(c->r->body, "truncate", &on) == JSON_WRONG_TYPE)
        return ep_wrong_type(c->r, "truncate must be a boolean");
    c->r->p.given[P_TRUNCATE_PROMPT_TOKENS] = on;
    c->r->p.truncate_prompt_tokens = -1;
    c->r->drop_oldest = on;
    return true;
}

enum { ANSWER_SHARE = 4 }; /* where nobody says how long an answer is */

/* What the answer needs of the context stays free, up to half of it. The limits are read for it
 * here, and again in their turn. */
static bool take_room(struct ep_read *r) {
    static const uint8_t limits[] = {P_NUM_CTX, P_NUM_PREDICT, P_END};
    if (!ep_fields_read(r, limits)) return false;
    const int32_t seq = ep_seq_len(r), half = seq / 2,
                  asked = r->p.given[P_MAX_TOKENS] ? r->p.max_tokens : seq / ANSWER_SHARE;
    r->answer_room = asked > half ? half : asked;
    return true;
}

static bool take_common(struct conv *c) {
    struct ep_read *r = c->r;
    if (r->params == NULL) r->params = json_ref(r->body);
    return ep_fields_read(r, ep_early[r->fam - ep_families]) && take_think(c) && take_format(c) &&
           take_options(c) && take_truncate(c);
}

static bool no_images(struct ep_read *r, const struct json_value *o) {
    struct json_value *v, *arr;
    if (json_get(o, "images", &v) != JSON_OK) return true;
    return (json_as_arr(v, &arr) == JSON_OK && json_arr_len(arr) == 0) ||
           not_capable(r, "images", "vision");
}

/* ---- chat */

static bool wrong_message(struct ep_read *r, const char *what) {
    return ep_fail_with(r, 422, "{at} {what}", "{at}", r->at, "{what}", what, NULL);
}

/* Results name their call, or are those of the last calls in turn. */
struct turn {
    struct json_value *calls; /* of the last message that has some; lent, NULL: none so far */
    size_t n_results;         /* since then */
    unsigned n_calls;         /* of all messages */
};

static bool take_call(struct conv *c, struct turn *t, const struct json_value *call) {
    struct json_value *fn, *args = NULL;
    const char *name, *id, *text = "{}";
    char own[CALL_ID_BYTES];
    size_t n;
    snprintf(own, sizeof(own), "call_%u", t->n_calls++);
    if (json_get_obj(call, "function", &fn) != JSON_OK ||
        json_get_str(fn, "name", &name, &n) != JSON_OK)
        return wrong_message(c->r, "must have a function with a name each");
    if (json_get_str(call, "id", &id, &n) != JSON_OK || n == 0) id = own;
    enum json_got got = json_get_obj(fn, "arguments", &args);
    if (got == JSON_WRONG_TYPE) return wrong_message(c->r, "must have objects as arguments");
    n = 2;
    if (got == JSON_OK && (text = json_to_text(args, JSON_COMPACT, &n)) == NULL)
        return ep_fail_memory(c->r);
    conv_call(c, id, name, text, n);
    return true;
}

static bool take_calls(struct conv *c, struct turn *t, size_t i, const struct json_value *m) {
    struct json_value *arr;
    ep_at_message(c->r, i, "tool_calls");
    enum json_got got = json_get_arr(m, "tool_calls", &arr);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got != JSON_OK) return wrong_message(c->r, "must be a list");
    for (size_t k = 0; k < json_arr_len(arr); k++)
        if (!take_call(c, t, json_arr_at(arr, k))) return false;
    if (c->calls == NULL) return true;
    t->calls = c->calls;
    t->n_results = 0;
    return true;
}

static void take_result(struct conv *c, struct turn *t, const struct json_value *m) {
    const char *id = "call_0";
    size_t n = 0, k = t->n_results++;
    if (json_get_str(m, "tool_call_id", &id, &n) != JSON_OK || n == 0) {
        id = "call_0";
        if (t->calls != NULL && k < json_arr_len(t->calls))
            json_get_str(json_arr_at(t->calls, k), "id", &id, &n);
    }
    conv_result_of(c, id);
}

static const char *role_of(const char *said) {
    static const char *const roles[] = {"user", "assistant", "system", "tool"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcasecmp(roles[i], said) == 0) return roles[i];
    return NULL;
}

static bool take_message(struct conv *c, struct turn *t, size_t i, const struct json_value *m) {
    const char *said, *role = NULL, *s = "";
    size_t n = 0;
    if (c->r->status != 0) return false;
    ep_at_message(c->r, i, "role");
    if (json_get_str(m, "role", &said, &n) == JSON_OK) role = role_of(said);
    if (role == NULL) return wrong_message(c->r, "must be system, user, assistant or tool");
    if (!no_images(c->r, m)) return false;
    ep_at_message(c->r, i, "content");
    n = 0;
    if (json_get_str(m, "content", &s, &n) == JSON_WRONG_TYPE)
        return wrong_message(c->r, "must be a string");
    conv_message(c, role, false);
    conv_text(c, s, n, "");
    if (json_get_str(m, "thinking", &s, &n) == JSON_OK) conv_thinking(c, s, n);
    if (strcmp(role, "tool") == 0) take_result(c, t, m);
    return strcmp(role, "assistant") != 0 || take_calls(c, t, i, m);
}

static bool take_tools(struct conv *c) {
    static const char *const same[] = {"tools", "tool_choice", NULL};
    struct json_value *tools, *choice;
    ep_at(c->r, "tools");
    enum json_got got = json_get_arr(c->r->body, "tools", &tools);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    if (got != JSON_OK) return ep_wrong_type(c->r, "tools must be a list");
    if (json_arr_len(tools) == 0) return true;
    if (c->r->ep->tool_format == TOOLS_NONE &&
        json_get(c->r->body, "tool_choice", &choice) != JSON_OK)
        return not_capable(c->r, "tools", "tools");
    conv_copy(c, c->r->body, same);
    return true;
}

static bool convert_chat(struct ep_read *r, struct json_value *messages) {
    struct turn turn = {.calls = NULL};
    struct conv c;
    conv_begin(&c, r);
    bool good = take_common(&c) && take_tools(&c);
    for (size_t i = 0; good && i < json_arr_len(messages); i++)
        good = take_message(&c, &turn, i, json_arr_at(messages, i));
    return conv_end(&c, good);
}

bool ep_ollama_chat_read(struct ep_read *r) {
    struct json_value *messages = NULL;
    if (!read_model(r) || !check_keep_alive(r)) return false;
    if (r->in->is_recompute) return ep_read_prompt(r);
    ep_at(r, "messages");
    if (json_get_arr(r->body, "messages", &messages) == JSON_WRONG_TYPE)
        return ep_wrong_type(r, "messages must be a list");
    if (refuse_elsewhere(r, "messages")) return false;
    if (messages == NULL || json_arr_len(messages) == 0)
        return load_only(r, "\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
    return generates(r, "chat") && convert_chat(r, messages) && take_room(r) && ep_chat_tokens(r);
}

/* ---- generate */

/* A member that is a string with something in it. */
static bool text_member(struct ep_read *r, const char *key, const char **s, size_t *n) {
    *s = "";
    *n = 0;
    ep_at(r, key);
    return json_get_str(r->body, key, s, n) != JSON_WRONG_TYPE ||
           ep_fail_with(r, 422, "{key} must be a string", "{key}", key, NULL);
}

/* Tokens of a conversation before this prompt. */
static bool take_context(struct ep_read *r, struct id_list *out) {
    struct json_value *arr;
    int64_t id;
    ep_at(r, "context");
    enum json_got got = json_get_arr(r->body, "context", &arr);
    if (got == JSON_ABSENT || got == JSON_NULL) return true;
    const size_t n = got == JSON_OK ? json_arr_len(arr) : 0;
    if (got != JSON_OK || n > PROMPT_TOKENS_MAX)
        return ep_wrong_type(r, "context must be a list of at most 1048576 token ids");
    for (size_t i = 0; i < n; i++) {
        if (json_as_i64(json_arr_at(arr, i), &id) != JSON_OK || id < 0 || id > INT32_MAX)
            return ep_wrong_type(r, "context must be a list of at most 1048576 token ids");
        if (id_list_push(out, (int32_t)id) != ERR_OK) return ep_fail_memory(r);
    }
    return true;
}

/* The ids of the prompt go behind those of the context. */
static bool join_context(struct ep_read *r, struct id_list *context) {
    if (context->n == 0) return true;
    for (size_t i = 0; i < r->ids.n; i++)
        if (id_list_push(context, r->ids.ids[i]) != ERR_OK) return ep_fail_memory(r);
    id_list_free(&r->ids);
    r->ids = *context;
    *context = (struct id_list){0};
    return ep_check_token_count(r);
}

struct asked {
    const char *prompt, *system, *template;
    size_t n_prompt, n_system, n_template;
    bool raw;
};

static bool read_asked(struct ep_read *r, struct asked *a) {
    struct json_value *v;
    const char *suffix;
    size_t n;
    if (!text_member(r, "prompt", &a->prompt, &a->n_prompt) ||
        !text_member(r, "system", &a->system, &a->n_system) ||
        !text_member(r, "template", &a->template, &a->n_template) ||
        !text_member(r, "suffix", &suffix, &n))
        return false;
    if (n > 0) return not_capable(r, "suffix", "insert");
    if (!no_images(r, r->body)) return false;
    ep_at(r, "raw");
    if (json_get_bool(r->body, "raw", &a->raw) == JSON_WRONG_TYPE)
        return ep_wrong_type(r, "raw must be a boolean");
    if (a->raw &&
        (a->n_system > 0 || a->n_template > 0 || json_get(r->body, "context", &v) == JSON_OK))
        return ep_fail(r, 422, "raw mode does not support template, system, or context");
    return true;
}

static bool convert_prompt(struct ep_read *r, const struct asked *a, struct id_list *context) {
    struct conv c;
    conv_begin(&c, r);
    bool good = take_common(&c) && take_context(r, context);
    if (good && a->raw) conv_set(&c, "prompt", json_new_str_n(a->prompt, a->n_prompt));
    if (good && a->n_template > 0)
        conv_set(&c, "chat_template", json_new_str_n(a->template, a->n_template));
    if (a->n_system > 0) {
        conv_message(&c, "system", false);
        conv_text(&c, a->system, a->n_system, "");
    }
    conv_message(&c, "user", false);
    conv_text(&c, a->prompt, a->n_prompt, "");
    return conv_end(&c, good);
}

bool ep_ollama_generate_read(struct ep_read *r) {
    struct asked a = {.raw = false};
    struct id_list context = {0};
    if (!read_model(r) || !check_keep_alive(r)) return false;
    if (r->in->is_recompute) return ep_read_prompt(r);
    if (!read_asked(r, &a)) return false;
    if (refuse_elsewhere(r, "prompt")) return false;
    if (a.n_prompt == 0) return load_only(r, "\"response\":\"\"");
    bool good = generates(r, "generate") && convert_prompt(r, &a, &context) && take_room(r);
    if (good) good = a.raw ? ep_read_prompt(r) : ep_chat_tokens(r);
    good = good && join_context(r, &context);
    r->req->answer.hide_context = a.raw;
    id_list_free(&context);
    return good;
}

/* ---- after the parameters */

bool ep_ollama_combine(struct ep_read *r) {
    ep_drawn_by_default(r, temperature_default, TOP_K_DEFAULT, top_p_default);
    return ep_chat_combine(r);
}
