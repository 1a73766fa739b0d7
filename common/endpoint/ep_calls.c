/* ep_calls: what an answer may consist of besides content: tool calls (inference-api 8.4) and
 * thinking (8.9), told to the answer, and to guided decoding where something is enforced. */
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/harmony.h"
#include "common/endpoint/reasoning.h"
#include "common/endpoint/tool_parse.h"

/* How calls are written, as tool_parse.c reads them: open, calls with separators between them,
 * close. A call: begin, name, middle, arguments, end. */
static const struct call_form {
    const char *open, *begin, *middle, *end, *separator, *close;
} call_forms[TOOLS_COUNT] = {
    [TOOLS_HERMES] = {"", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>",
                      "\n", ""},
    [TOOLS_LLAMA3] = {"", "{\"name\": \"", "\", \"parameters\": ", "}", "; ", ""},
    [TOOLS_LLAMA4] = {"", "{\"name\": \"", "\", \"parameters\": ", "}", "", ""},
    [TOOLS_MISTRAL] = {"[TOOL_CALLS][", "{\"name\": \"", "\", \"arguments\": ", "}", ", ", "]"},
    [TOOLS_DEEPSEEK_V3] = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                           "\n```json\n", "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"},
    [TOOLS_DEEPSEEK_V31] = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                            "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
    [TOOLS_CHATGLM] = {"", "", "\n", "", "\n", ""},
    [TOOLS_HARMONY] = {"", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>",
                       "", "", ""},
};

enum tool_format ep_template_format(const struct chat_template *t) {
    size_t n;
    if (t == NULL) return TOOLS_NONE;
    const char *src = chat_template_source(t, &n);
    return tool_format_of_template(src, n);
}

/* ---- guides, as trees of JSON. NULL stands for "no memory" and passes through. */

static struct json_value *guide_of(const char *type) {
    struct json_value *g = json_new_obj();
    if (g != NULL) json_obj_set(g, "type", json_new_str(type));
    return g;
}

static struct json_value *with(struct json_value *g, const char *key, struct json_value *v) {
    if (v != NULL && json_obj_set(g, key, v) == 0) return g;
    json_put(g);
    return NULL;
}

static struct json_value *literal(const char *s) {
    return with(guide_of("literal"), "value", json_new_str(s));
}

static struct json_value *list_of(const char *type) {
    return with(guide_of(type), "items", json_new_arr());
}

static struct json_value *add(struct json_value *list, struct json_value *item) {
    struct json_value *items = NULL;
    (void)json_get_arr(list, "items", &items);
    if (item != NULL && json_arr_add(items, item) == 0) return list;
    json_put(list);
    return NULL;
}

/* Empty literals are left out: they say nothing. */
static struct json_value *add_text(struct json_value *list, const char *s) {
    return s[0] != '\0' ? add(list, literal(s)) : list;
}

/* ---- calls */

/* The schema of a tool's arguments; they are an object even where it does not say so. */
static struct json_value *arguments(const struct json_value *function) {
    static const char *const says[] = {"type", "$ref", "anyOf", "oneOf", "allOf"};
    struct json_value *schema = NULL, *copy, *v;
    bool typed = false;
    if (json_get_obj(function, "parameters", &schema) != JSON_OK) schema = NULL;
    for (size_t i = 0; schema != NULL && i < sizeof(says) / sizeof(says[0]); i++)
        typed |= json_get(schema, says[i], &v) != JSON_ABSENT;
    if (typed) return with(guide_of("json_schema"), "schema", json_ref(schema));
    copy = json_new_obj();
    if (schema != NULL && copy != NULL) {
        json_obj_foreach(schema, key, val) {
            json_obj_set(copy, key, json_ref(val));
        }
    }
    return with(guide_of("json_schema"), "schema", with(copy, "type", json_new_str("object")));
}

static struct json_value *one_call(const struct call_form *f, const struct json_value *tool,
                                   bool forced) {
    struct json_value *function, *g;
    const char *name;
    size_t n;
    if (json_get_obj(tool, "function", &function) != JSON_OK ||
        json_get_str(function, "name", &name, &n) != JSON_OK)
        return NULL; /* ep_chat_tools() has seen both */
    /* Names need no escapes: ep_tool_name(). */
    g = add(add_text(list_of("sequence"), f->begin), literal(name));
    struct json_value *args = forced ? arguments(function) : guide_of("json_object");
    return add_text(add(add_text(g, f->middle), args), f->end);
}

struct json_value *ep_call_guide(const struct ep_read *r, bool one) {
    const struct call_form *f = &call_forms[r->tool_format];
    bool forced = r->forced != EP_FORCED_NO;
    struct json_value *any = list_of("any_of"), *g;
    for (size_t i = 0; i < json_arr_len(r->callable); i++)
        any = add(any, one_call(f, json_arr_at(r->callable, i), forced));
    if (!one) {
        g = with(guide_of("repeat"), "item", any);
        g = with(g, "min", json_new_i64(1));
        if (f->separator[0] != '\0') g = with(g, "separator", literal(f->separator));
        any = g;
    }
    return add_text(add(add_text(list_of("sequence"), f->open), any), f->close);
}

/* The answer goes on with the content of a message of the prompt's. */
static bool content_open(const struct ep_read *r) {
    const struct infer_req *req = r->req;
    return req->answer.channels && req->answer.thinking_open && !req->answer.analysis_open;
}

/* Content that has a guide is the text of a message, whose header is written before it. */
static bool guide_content(struct ep_read *r, struct json_value **g) {
    if (*g == NULL || !r->req->answer.channels || content_open(r)) return true;
    *g = add(add(list_of("sequence"), literal(HARMONY_FINAL)), *g);
    return *g != NULL || ep_fail_memory(r);
}

/* Takes the guide of plain content (NULL: none) and gives that of content and calls. */
static bool guide_calls(struct ep_read *r, struct json_value **g) {
    struct json_value *calls;
    /* an answer in channels ends with its first call */
    bool one = r->forced == EP_FORCED_NAMED || !r->req->answer.parallel_tools ||
               r->tool_format == TOOLS_HARMONY;
    if (r->callable == NULL || r->tool_format == TOOLS_NONE) return true;
    if (r->forced == EP_FORCED_NO && *g == NULL) return true;
    calls = ep_call_guide(r, one);
    if (r->forced == EP_FORCED_NO) /* what the format asks for covers plain content only */
        calls = add(add(list_of("any_of"), *g), calls);
    else
        json_put(*g);
    *g = calls;
    return calls != NULL || ep_fail_memory(r);
}

/* ---- thinking */

/* Whether the client, or the template, has switched it off. */
static bool thinking_off(const struct ep_read *r) {
    struct json_value *kwargs;
    const char *effort;
    size_t n;
    bool on;
    if (json_get_obj(r->body, "chat_template_kwargs", &kwargs) == JSON_OK &&
        json_get_bool(kwargs, "enable_thinking", &on) == JSON_OK)
        return !on;
    return json_get_str(r->body, "reasoning_effort", &effort, &n) == JSON_OK &&
           strcmp(effort, "none") == 0;
}

/* 0: none. The range was checked with the parameter. */
static int64_t thinking_budget(const struct ep_read *r) {
    struct json_value *kwargs;
    int64_t k;
    bool on = false;
    if (!r->fam->thinking || json_get_obj(r->body, "chat_template_kwargs", &kwargs) != JSON_OK ||
        json_get_bool(kwargs, "enable_thinking", &on) != JSON_OK || !on ||
        json_get_i64(kwargs, "thinking_budget", &k) != JSON_OK)
        return 0;
    return k;
}

/* The prompt ends with this tag, and maybe space after it. From its ids, so that a recompute,
 * which brings nothing else, comes to the same. */
static bool prompt_ends(const struct ep_read *r, const char *tag) {
    enum { IDS = 24 };
    size_t n_prompt = r->ids.n - r->n_generated, n = n_prompt < IDS ? n_prompt : IDS;
    size_t len = strlen(tag);
    struct buf b = BUF_INIT;
    tokenizer_decode(r->ep->tok, r->ids.ids + n_prompt - n, n, false, &b);
    while (b.len > 0 && strchr(" \t\r\n", b.data[b.len - 1]) != NULL) b.len--;
    bool ends = b.len >= len && memcmp(b.data + b.len - len, tag, len) == 0;
    buf_free(&b);
    return ends;
}

/* What the prompt leaves open, by its ids as above: as many of its last as have a message's begin
 * among them. */
static enum harmony_state prompt_opens(const struct ep_read *r) {
    const size_t n_prompt = r->ids.n - r->n_generated;
    enum harmony_state state = HARMONY_CONTENT;
    struct buf b = BUF_INIT;
    for (size_t n = 64;; n *= 16) {
        const size_t last = n < n_prompt ? n : n_prompt;
        buf_clear(&b);
        tokenizer_decode(r->ep->tok, r->ids.ids + n_prompt - last, last, false, &b);
        const bool found =
            b.len > 0 && memmem(b.data, b.len, harmony_tags[0], strlen(harmony_tags[0])) != NULL;
        if (found) state = harmony_opened(b.data, b.len);
        if (found || last == n_prompt) break;
    }
    buf_free(&b);
    return state;
}

static void read_thinking(struct ep_read *r) {
    struct infer_req *req = r->req;
    if (r->ep->thinking == EP_THINKING_CHANNEL || r->tool_format == TOOLS_HARMONY) {
        req->answer.channels = req->answer.reasoning = true;
        const enum harmony_state opened = prompt_opens(r);
        req->answer.thinking_open = opened != HARMONY_HEADER;
        req->answer.analysis_open = opened == HARMONY_THINKING;
        return;
    }
    if (r->ep->thinking == EP_THINKING_NONE || thinking_off(r) || prompt_ends(r, THINK_CLOSE))
        return;
    req->answer.reasoning = true;
    req->answer.thinking_open = r->ep->thinking == EP_THINKING_ALWAYS || prompt_ends(r, THINK_OPEN);
}

/* In channels thinking ends with its end tag alone: none of the other tags may be in it, with which
 * the model would leave it, and what is enforced behind it, for another message. */
static struct json_value *never_tags(struct json_value *after) {
    struct json_value *list = json_new_arr();
    for (int i = 0; i < HARMONY_TAGS; i++)
        if (list != NULL && strcmp(harmony_tags[i], HARMONY_END) != 0)
            json_arr_add(list, json_new_str(harmony_tags[i]));
    return with(after, "never", list);
}

/* Free text up to the end tag, then g (taken; NULL: free text). */
static struct json_value *thinking_then(bool channels, int64_t budget, struct json_value *g) {
    const char *close = channels ? HARMONY_END : THINK_CLOSE;
    struct json_value *after = with(guide_of("after"), "text", json_new_str(close));
    if (channels) after = never_tags(after);
    if (budget > 0) after = with(after, "budget", json_new_i64(budget));
    if (g == NULL) return after;
    struct json_value *lines = channels
                                   ? literal(HARMONY_START)
                                   : with(guide_of("regex"), "value", json_new_str("\\n{0,2}"));
    return with(after, "then", add(add(list_of("sequence"), lines), g));
}

/* Puts what the thinking needs before the guide of the answer. */
static bool guide_thinking(struct ep_read *r, struct json_value **g) {
    int64_t budget = thinking_budget(r);
    if (!r->req->answer.reasoning || (*g == NULL && budget == 0)) return true;
    const bool channels = r->req->answer.channels;
    if (content_open(r)) return true;
    if (r->req->answer.thinking_open) {
        *g = thinking_then(channels, budget, *g);
    } else {
        /* The model opens it itself: must, when it has a budget, else may. */
        struct json_value *plain = *g != NULL && budget == 0 ? json_ref(*g) : NULL;
        struct json_value *tagged =
            add(add(list_of("sequence"), literal(channels ? HARMONY_ANALYSIS : THINK_OPEN)),
                thinking_then(channels, budget, *g));
        *g = plain == NULL ? tagged : add(add(list_of("any_of"), plain), tagged);
    }
    return *g != NULL || ep_fail_memory(r);
}

/* ---- together */

static bool include_reasoning(struct ep_read *r) {
    bool on = true;
    if (json_get_bool(r->body, "include_reasoning", &on) == JSON_WRONG_TYPE)
        return ep_fail(r, 422, "include_reasoning must be boolean type.");
    r->req->answer.drop_reasoning = !on;
    return true;
}

/* req->guide as a tree; *g NULL: there is none. */
static bool read_guide(struct ep_read *r, struct json_value **g) {
    *g = NULL;
    if (r->req->guide == NULL) return true;
    return json_read(g, r->req->guide, strlen(r->req->guide), NULL, NULL) == ERR_OK ||
           ep_fail_memory(r);
}

static bool write_guide(struct ep_read *r, const struct json_value *g) {
    const char *s;
    size_t n;
    if (g == NULL) return true;
    s = json_to_text((struct json_value *)g, JSON_COMPACT, &n);
    if (s != NULL && n > GUIDE_BYTES_MAX)
        return ep_fail(r, 422, "the schemas of the tools are too large to enforce a call");
    free(r->req->guide);
    r->req->guide = s != NULL ? ep_dup(s, n) : NULL;
    return r->req->guide != NULL || ep_fail_memory(r);
}

bool ep_chat_combine(struct ep_read *r) {
    struct json_value *g = NULL;
    struct infer_req *req = r->req;
    if (!ep_openai_combine(r) || !include_reasoning(r)) return false;
    if (r->callable != NULL) req->answer.tools = r->tool_format;
    req->answer.tools_forced = r->forced != EP_FORCED_NO;
    read_thinking(r);
    bool needed = r->callable != NULL || req->answer.reasoning;
    bool good = !needed || (read_guide(r, &g) && guide_content(r, &g) && guide_calls(r, &g) &&
                            guide_thinking(r, &g) && write_guide(r, g));
    json_put(g);
    return good;
}
