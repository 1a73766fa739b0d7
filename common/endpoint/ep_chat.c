/* ep_chat: /v1/chat/completions (inference-api 8): from messages through the template to ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_rows.h"

enum {
    INLINE_TEMPLATE_BYTES_MAX = 65536,
    TEMPLATE_MS_DEFAULT = 200, /* of a template that a client sent, limits.templateMs */
    TEMPLATE_MEMORY_BYTES = 16 << 20,
    TEMPLATE_GROWTH_BYTES_MAX = 1 << 20, /* what a template may add to the body it was given */
};

static bool check_thinking(struct ep_read *r) {
    struct json_value *kwargs, *v;
    bool on;
    ep_at(r, "chat_template_kwargs");
    if (!r->fam->thinking || json_get_obj(r->body, "chat_template_kwargs", &kwargs) != JSON_OK ||
        json_get_bool(kwargs, "enable_thinking", &on) != JSON_WRONG_TYPE)
        return true;
    json_get(kwargs, "enable_thinking", &v);
    const char *type = json_is(v, json_type_int) || json_is(v, json_type_double)
                           ? "number"
                           : json_type_name(json_type_of(v));
    r->code = EP_INVALID_TYPE;
    return ep_fail_with(r, 422, "enable_thinking must be boolean, got {got}", "{got}", type, NULL);
}

/* The template of the request itself: text only, a path would let clients read the server's files.
 */
static bool inline_template(struct ep_read *r, struct chat_template **out) {
    struct json_value *v;
    const char *s;
    size_t n;
    *out = NULL;
    ep_at(r, "chat_template");
    if (json_get(r->body, "chat_template", &v) != JSON_OK) return true;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "Parameter chat_template not string");
    enum err e = ERR_INVALID;
    if (n > 0 && n <= INLINE_TEMPLATE_BYTES_MAX && memchr(s, '{', n) != NULL)
        e = chat_template_parse(out, s, n, NULL);
    if (e == ERR_NO_MEMORY) return ep_fail_memory(r);
    return e == ERR_OK || ep_fail(r, 422, "Parameter chat_template is not valid");
}

static void put_var(struct json_value *vars, const char *key, struct json_value *borrowed) {
    json_obj_set(vars, key, json_ref(borrowed));
}

/* Names as the HuggingFace libraries set them: what they pass as None is null here, so that `tools
 * is not none` holds. */
static struct json_value *template_vars(struct ep_read *r, struct json_value *messages) {
    struct json_value *vars = json_new_obj(), *v, *kwargs;
    const char *effort;
    size_t n;
    bool generation = r->p.add_generation_prompt && !r->p.continue_final;
    if (vars == NULL) return NULL;
    if (json_get_str(r->body, "reasoning_effort", &effort, &n) == JSON_OK) {
        if (strcmp(effort, "none") == 0)
            json_obj_set(vars, "enable_thinking", json_new_bool(false));
        else
            json_obj_set(vars, "reasoning_effort", json_new_str_n(effort, n));
    }
    if (json_get_obj(r->body, "chat_template_kwargs", &kwargs) == JSON_OK) {
        json_obj_foreach(kwargs, key, val) {
            put_var(vars, key, val);
        }
    }
    put_var(vars, "messages", messages);
    put_var(vars, "tools", r->callable);
    put_var(vars, "documents", json_get_arr(r->body, "documents", &v) == JSON_OK ? v : NULL);
    json_obj_set(vars, "add_generation_prompt", json_new_bool(generation));
    json_obj_set(vars, "bos_token", json_new_str(r->ep->bos != NULL ? r->ep->bos : ""));
    json_obj_set(vars, "eos_token", json_new_str(r->ep->eos != NULL ? r->ep->eos : ""));
    return vars;
}

static const char *last_content(struct json_value *messages, size_t *n, const char **role) {
    struct json_value *last = json_arr_at(messages, json_arr_len(messages) - 1);
    const char *s = "";
    size_t role_len;
    *n = 0;
    *role = "";
    json_get_str(last, "role", role, &role_len);
    json_get_str(last, "content", &s, n);
    return s;
}

static char *reversed(const char *s, size_t n) {
    char *out = malloc(n + 1);
    for (size_t i = 0; out != NULL && i < n; i++) out[i] = s[n - 1 - i];
    return out;
}

/* The last place of s in text; text's length when there is none (or no memory). Both are turned
 * round, so that memmem's linear time holds for any client's text. */
static size_t find_last(const struct buf *text, const char *s, size_t n) {
    char *rt = reversed(text->data, text->len), *rs = reversed(s, n);
    const char *hit = rt != NULL && rs != NULL ? memmem(rt, text->len, rs, n) : NULL;
    size_t at = hit != NULL ? text->len - (size_t)(hit - rt) - n : text->len;
    free(rt);
    free(rs);
    return at;
}

/* continue_final_message: what the template wrote after the last message's content goes, so that
 * the model writes on there. */
static bool cut_after_final(struct ep_read *r, struct json_value *messages) {
    const char *role;
    size_t n;
    const char *s = last_content(messages, &n, &role);
    struct buf marked = BUF_INIT;
    if (r->marked && tokenizer_mark(r->ep->tok, s, n, &marked)) s = marked.data, n = marked.len;
    if (marked.failed) n = 0;
    while (n > 0 && strchr(" \t\r\n", s[n - 1]) != NULL) n--; /* templates trim */
    while (n > 0 && strchr(" \t\r\n", *s) != NULL) s++, n--;
    size_t at = n > 0 && n <= r->text.len ? find_last(&r->text, s, n) : r->text.len;
    buf_free(&marked);
    if (n == 0 || at == r->text.len)
        return ep_fail(r, 422,
                       "continue_final_message is set but the final message does not appear in the "
                       "chat after the template");
    r->text.len = at + n;
    r->text.data[r->text.len] = '\0';
    return true;
}

static bool mark(void *arg, const char *s, size_t n, struct buf *out) {
    struct ep_read *r = arg;
    if (!tokenizer_mark(r->ep->tok, s, n, out)) return false;
    r->marked = true;
    return true;
}

/* What a template may use: values of small things take many times their text, so that where the
 * trees of the body are large already, little more is left. Long texts have small trees. */
static size_t template_memory(const struct ep_read *r) {
    size_t trees = json_tree_bytes(r->body) + r->args_bytes, n = 4 * r->in->body_len;
    size_t most = TEMPLATE_MEMORY_BYTES + (n > trees ? n - trees : 0);
    return most < CHAT_TEMPLATE_MEMORY_BYTES_MAX ? most : CHAT_TEMPLATE_MEMORY_BYTES_MAX;
}

/* own: the request brought the template, so its time is bounded. */
static bool render(struct ep_read *r, const struct chat_template *tpl, bool own,
                   struct json_value *messages) {
    struct errbuf why = {0};
    int ms = r->ep->conf.template_ms > 0 ? r->ep->conf.template_ms : TEMPLATE_MS_DEFAULT;
    struct chat_vars vars = {.vars = template_vars(r, messages),
                             .now_unix_s = r->req->head.created_unix_s,
                             .limit = work_limit_start(own ? ms : 0, r->in->cancelled),
                             .mark = r->ep->conf.special_as_text ? mark : NULL,
                             .mark_arg = r,
                             .memory_bytes_max = template_memory(r)};
    if (vars.vars == NULL) return ep_fail_memory(r);
    enum err e = chat_template_render(tpl, &vars, r->in->body_len + TEMPLATE_GROWTH_BYTES_MAX,
                                      &r->text, &why);
    json_put(vars.vars);
    if (e == ERR_NO_MEMORY || r->text.failed) return ep_fail_memory(r);
    if (e == ERR_TIMEOUT) {
        char most[16];
        snprintf(most, sizeof(most), "%d", ms);
        budget_refused(r->ep->conf.budget, BUDGET_TEMPLATE_TIME);
        return ep_fail_with(r, 422,
                            "Failed to apply the chat template: it takes more than {ms} ms of "
                            "processor time (limits.templateMs)",
                            "{ms}", most, NULL);
    }
    if (e == ERR_TOO_LARGE && own) budget_refused(r->ep->conf.budget, BUDGET_TEMPLATE_MEMORY);
    if (e != ERR_OK)
        return ep_fail_with(r, 422, "Failed to apply the chat template: {why}", "{why}", why.text,
                            NULL);
    return !r->p.continue_final || cut_after_final(r, messages);
}

/* Messages, whose form was checked, to r->ids. */
static bool ids_of(struct ep_read *r, const struct chat_template *tpl, bool own,
                   struct json_value *messages) {
    buf_clear(&r->text);
    r->ids.n = 0;
    r->marked = false;
    if (!render(r, tpl, own, messages)) return false;
    r->prompt = r->text.data != NULL ? r->text.data : "";
    r->prompt_len = r->text.len;
    return ep_tokenise(r, r->p.given[P_ADD_SPECIAL] && r->p.add_special);
}

/* ---- a chat that is too long */

static bool has_role(const struct json_value *messages, size_t i, const char *role) {
    const char *s;
    size_t n;
    return json_get_str(json_arr_at(messages, i), "role", &s, &n) == JSON_OK &&
           strcmp(s, role) == 0;
}

/* The messages without those from `lead` to `from`. */
static struct json_value *rest_of(const struct json_value *messages, size_t lead, size_t from) {
    struct json_value *rest = json_new_arr();
    for (size_t i = 0; i < json_arr_len(messages); i++)
        if (i < lead || i >= from) json_arr_add(rest, json_ref(json_arr_at(messages, i)));
    return rest;
}

static bool ids_of_rest(struct ep_read *r, const struct chat_template *tpl, bool own,
                        const struct json_value *messages, size_t lead, size_t from) {
    struct json_value *rest = rest_of(messages, lead, from);
    const bool good = ids_of(r, tpl, own, rest);
    json_put(rest);
    return good;
}

/* Where a conversation may begin behind its first `lead` messages: with a user's, since templates
 * may refuse another beginning; where there is none, with what is no result of a call. */
static size_t beginnings(size_t *starts, const struct json_value *messages, size_t lead) {
    const size_t n = json_arr_len(messages);
    size_t n_starts = 0;
    for (size_t i = lead + 1; i < n; i++)
        if (has_role(messages, i, "user")) starts[n_starts++] = i;
    for (size_t i = lead + 1; i < n && (n_starts == 0 || !has_role(messages, starts[0], "user"));
         i++)
        if (!has_role(messages, i, "tool")) starts[n_starts++] = i;
    return n_starts;
}

/* Leaves out as few of the oldest messages as makes it fit: never what stands at the beginning for
 * the system, never a call without its results. Where nothing helps the shortest is left, which is
 * refused for its length. */
static bool drop_oldest(struct ep_read *r, const struct chat_template *tpl, bool own,
                        const struct json_value *messages) {
    const size_t n = json_arr_len(messages), max = ep_prompt_cut(r);
    size_t *starts = calloc(n + 1, sizeof(*starts)), n_starts = 0, lead = 0, lo = 0,
           tried = SIZE_MAX;
    bool good = starts != NULL || ep_fail_memory(r);
    while (lead < n && has_role(messages, lead, "system")) lead++;
    if (good) n_starts = beginnings(starts, messages, lead);
    size_t hi = n_starts; /* before lo it is too long, from hi on it fits */
    while (good && lo < hi) {
        tried = lo + (hi - lo) / 2;
        good = ids_of_rest(r, tpl, own, messages, lead, starts[tried]);
        if (r->ids.n > max)
            lo = tried + 1;
        else
            hi = tried;
    }
    if (hi == n_starts && n_starts > 0) hi = n_starts - 1;
    if (good && n_starts > 0 && hi != tried)
        good = ids_of_rest(r, tpl, own, messages, lead, starts[hi]);
    free(starts);
    return good;
}

/* Messages to ids through tpl, or the model's own template. */
static bool template_ids(struct ep_read *r, const struct chat_template *tpl) {
    struct json_value *v, *messages;
    const char *role;
    ep_at(r, "messages");
    if (json_get(r->body, "messages", &v) != JSON_OK)
        return ep_missing_input(r, "messages",
                                r->with_tools
                                    ? "Request param messages is null"
                                    : "Request param contains not messages or messages null");
    if (json_as_arr(v, &messages) != JSON_OK || json_arr_len(messages) == 0)
        return ep_fail(r, 422,
                       r->with_tools ? "Request param messages is not arr or arr is empty"
                                     : "Request param messages not arr or arr is empty");
    if (!ep_chat_messages(r, messages)) return false;
    ep_at(r, "messages");
    if (r->p.given[P_CONTINUE_FINAL] && r->p.continue_final &&
        r->p.given[P_ADD_GENERATION_PROMPT] && r->p.add_generation_prompt)
        return ep_fail(r, 422,
                       "Cannot set both continue_final_message and add_generation_prompt to true");
    bool own = tpl != NULL;
    if (!own) tpl = r->ep->chat[r->callable != NULL];
    if (tpl == NULL)
        return !ep_generates_nothing(r) &&
               ep_fail(r, 422, "The model has no chat template; send one as chat_template");
    /* 8.2 row 8, the length of the serialised messages, is implied by the limit of the body. */
    if (!ids_of(r, tpl, own, messages)) return false;
    if (r->drop_oldest && r->ids.n > ep_prompt_cut(r) && !drop_oldest(r, tpl, own, messages))
        return false;
    r->marked = false;
    /* From here on the prompt is what `echo` repeats: the message that the answer continues. */
    r->prompt = last_content(messages, &r->prompt_len, &role);
    if (strcmp(role, "assistant") != 0) r->prompt_len = 0;
    return true;
}

/* A template of the request's own may show the model another way to write calls. */
static void choose_format(struct ep_read *r, const struct chat_template *own) {
    enum tool_format of_own = ep_template_format(own);
    r->tool_format = of_own != TOOLS_NONE ? of_own : r->ep->tool_format;
    if (r->tool_format != TOOLS_NONE || r->forced == EP_FORCED_NO) return;
    /* A forced call is written in some format, whatever the model is used to. */
    r->tool_format = r->ep->thinking == EP_THINKING_CHANNEL ? TOOLS_HARMONY : TOOLS_HERMES;
}

bool ep_chat_tokens(struct ep_read *r) {
    struct chat_template *own = NULL;
    if (r->params == NULL) r->params = json_ref(r->body);
    bool good = ep_chat_tools(r) && check_thinking(r) && inline_template(r, &own) &&
                ep_fields_read(r, ep_early[FAM_CHAT]);
    choose_format(r, own);
    if (good) good = r->in->is_recompute ? ep_read_prompt(r) : template_ids(r, own);
    if (r->in->is_recompute) r->prompt = ""; /* the ids hold the whole chat, no message to echo */
    chat_template_free(&own);
    return good;
}

/* In OpenAI's manner a choice needs something to choose from; the reference ignores it. */
static bool check_choice_alone(struct ep_read *r) {
    struct json_value *v;
    if (!ep_openai_manner(r) || json_get(r->body, "tools", &v) == JSON_OK ||
        json_get(r->body, "tool_choice", &v) != JSON_OK)
        return true;
    ep_at(r, "tool_choice");
    return ep_fail(r, 422, "When using `tool_choice`, `tools` must be set.");
}

bool ep_chat_read(struct ep_read *r) {
    return ep_model_member(r) && check_choice_alone(r) && ep_chat_tokens(r);
}

/* What a body of OpenAI's own chats may not have together. */
bool ep_openai_chat_combine(struct ep_read *r) {
    ep_at(r, "top_logprobs");
    if (ep_openai_manner(r) && r->p.given[P_TOP_LOGPROBS] && r->p.top_logprobs > 0 &&
        !r->p.chat_logprobs)
        return ep_fail(r, 422, "when using `top_logprobs`, `logprobs` must be set to true.");
    return ep_chat_combine(r);
}
