/* ep_custom: the parameters that are more than a number in a range. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/endpoint/ep.h"
#include "common/endpoint/ep_rows.h"
#include "common/engine/lora_set.h"

/* ---- seed: in OpenAI's manner -1 asks for a random one */

bool ep_check_seed(struct ep_read *r, const struct json_value *v) {
    int64_t i;
    if (ep_openai_manner(r) && json_as_i64(v, &i) == JSON_OK && i == -1) r->p.given[P_SEED] = false;
    return true;
}

/* ---- stop strings (inference-api 4.6) */

static bool stop_length_failed(struct ep_read *r, size_t max, size_t got) {
    char m[24], g[24];
    snprintf(m, sizeof(m), "%zu", max);
    snprintf(g, sizeof(g), "%zu", got);
    return ep_fail_with(
        r, 422, "Input validation error: length of `stop` must be in [1, {max}], but got {got}",
        "{max}", m, "{got}", g, NULL);
}

static bool stop_push(struct ep_read *r, const char *s, size_t n) {
    /* Control characters are taken out of generated text, so a string with a zero in it can never
     * match. */
    if (memchr(s, 0, n) != NULL) return true;
    char *copy = ep_dup(s, n);
    if (copy == NULL) return ep_fail_memory(r);
    r->req->stop[r->req->n_stop++] = copy;
    return true;
}

/* One string, or a list: so many units, so many items as the range of the row says; each
 * item 1..1024, together 32768; in UTF-16 code units. */
enum { STOP_ITEM_UNITS_MAX = 1024 };

bool ep_check_stop(struct ep_read *r, const struct json_value *v) {
    static const char bad_list[] =
        "Input validation error: `stop` must be list[string] if list, and "
        "item length in [1, 1024] with total <= 32768";
    enum fam fam = (enum fam)(r->fam - ep_families);
    size_t max = (size_t)ep_row_range(&ep_rows[P_STOP], fam, false)->hi;
    struct json_value *arr;
    const char *s;
    size_t n, units, total = 0;

    if (json_as_str(v, &s, &n) == JSON_OK) {
        units = ep_utf16_len(s, n);
        if (units < 1 || units > max) return stop_length_failed(r, max, units);
        r->req->stop = calloc(1, sizeof(char *));
        return r->req->stop != NULL ? stop_push(r, s, n) : ep_fail_memory(r);
    }
    if (json_as_arr(v, &arr) != JSON_OK)
        return ep_wrong_type(r,
                             "Input validation error: param stop must be string or list[string]");
    size_t n_items = json_arr_len(arr);
    if (n_items == 0) return true;
    if (n_items > max) return stop_length_failed(r, max, n_items);
    r->req->stop = calloc(n_items, sizeof(char *));
    if (r->req->stop == NULL) return ep_fail_memory(r);
    for (size_t i = 0; i < n_items; i++) {
        if (json_as_str(json_arr_at(arr, i), &s, &n) != JSON_OK) return ep_fail(r, 422, bad_list);
        units = ep_utf16_len(s, n);
        total += units;
        if (units < 1 || units > STOP_ITEM_UNITS_MAX || total > STOP_STRING_UNITS_MAX)
            return ep_fail(r, 422, bad_list);
        if (!stop_push(r, s, n)) return false;
    }
    return true;
}

/* The penalty by its name of llama.cpp and Ollama. */
bool ep_check_repeat_penalty(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->p.given[P_REPETITION_PENALTY] = true;
    return true;
}

/* Theirs of max_tokens; below 1: as many as there is room for. */
bool ep_check_num_predict(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->p.given[P_MAX_TOKENS] = r->p.max_tokens > 0;
    return true;
}

/* llama.cpp's 0 computes the prompt, for those who ask again, and makes nothing. */
bool ep_check_n_predict(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->p.given[P_MAX_TOKENS] = r->p.max_tokens >= 0;
    return true;
}

bool ep_check_n_probs(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->p.given[P_TOP_LOGPROBS] = r->p.top_logprobs > 0;
    return true;
}

/* Ollama's is of no effect without its logprobs, which stands before it. */
bool ep_check_ollama_tops(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->p.given[P_TOP_LOGPROBS] = r->p.chat_logprobs;
    return true;
}

/* 0 is a question about the prompt, which only `echo` answers. */
bool ep_check_completion_tokens(struct ep_read *r, const struct json_value *v) {
    bool echo = false;
    (void)json_get_bool(r->params, "echo", &echo);
    if (r->p.max_tokens == 0 && !echo) {
        r->code = "integer_below_min_value";
        return ep_fail_value(r, 422, ep_rows[P_COMPLETION_TOKENS].text, v);
    }
    r->p.given[P_MAX_TOKENS] = true;
    return true;
}

/* A list; what is all blanks stops nothing. */
bool ep_check_stop_sequences(struct ep_read *r, const struct json_value *v) {
    struct json_value *arr;
    const char *s;
    size_t n, units = 0;
    if (json_as_arr(v, &arr) != JSON_OK)
        return ep_wrong_type(r, "stop_sequences: Input should be a list of strings");
    size_t n_items = json_arr_len(arr);
    if (n_items > STOP_STRINGS_MAX)
        return ep_fail(r, 422, "stop_sequences: at most 32768 are possible");
    r->req->stop = calloc(n_items > 0 ? n_items : 1, sizeof(char *));
    if (r->req->stop == NULL) return ep_fail_memory(r);
    for (size_t i = 0; i < n_items; i++) {
        if (json_as_str(json_arr_at(arr, i), &s, &n) != JSON_OK)
            return ep_wrong_type(r, "stop_sequences: Input should be a list of strings");
        units += ep_utf16_len(s, n);
        if (units > STOP_STRING_UNITS_MAX)
            return ep_fail(r, 422, "stop_sequences: at most 32768 characters together");
        if (strspn(s, " \t\r\n") == n) continue;
        if (!stop_push(r, s, n)) return false;
    }
    return true;
}

static int by_i32(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

bool ep_check_stop_token_ids(struct ep_read *r, const struct json_value *v) {
    struct sampling *s = &r->req->sampling;
    struct json_value *arr;
    size_t n = 0, kept = 0;
    if (json_as_arr(v, &arr) != JSON_OK)
        return ep_wrong_type(r, "Parameter stop_token_ids not array");
    size_t n_items = json_arr_len(arr);
    if (n_items == 0) return true;
    int32_t *ids = calloc(n_items, sizeof(*ids));
    if (ids == NULL) return ep_fail_memory(r);
    s->stop_token_ids = ids; /* the request frees it, whatever happens next */
    for (size_t i = 0; i < n_items; i++) {
        const struct json_value *item = json_arr_at(arr, i);
        int64_t id;
        uint64_t wide;
        if (json_as_i64(item, &id) == JSON_OK) {
            if (id >= 0 && id <= INT32_MAX) ids[n++] = (int32_t)id; /* others name no token */
        } else if (json_as_u64(item, &wide) != JSON_OK) {
            return ep_wrong_type(r, "Parameter stop_token_ids not list[int]");
        }
    }
    qsort(ids, n, sizeof(*ids), by_i32);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || ids[kept - 1] != ids[i]) ids[kept++] = ids[i];
    if (kept > STOP_TOKEN_IDS_MAX) {
        char got[24];
        snprintf(got, sizeof(got), "%zu", kept);
        return ep_fail_with(r, 422,
                            "Parameter stop_token_ids must have at most 1024 ids, got {got}.",
                            "{got}", got, NULL);
    }
    s->n_stop_token_ids = kept;
    return true;
}

/* Read only when there is something that could stop. */
bool ep_check_include_stop(struct ep_read *r, const struct json_value *v) {
    struct json_value *any;
    if (json_get(r->params, "stop", &any) != JSON_OK &&
        json_get(r->params, "stop_token_ids", &any) != JSON_OK)
        return true;
    if (json_as_bool(v, &r->p.include_stop) == JSON_OK) return true;
    return ep_wrong_type(r, "include_stop_str_in_output must be boolean type.");
}

/* ---- logit_bias: {"<token id>": -100..100}; in OpenAI's manner any number, cut to them */

static bool parse_id(const char *s, int32_t *id) {
    uint64_t v = 0;
    if (*s == '\0' || strlen(s) > 10) return false;
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9') return false;
        v = v * 10 + (uint64_t)(*s - '0');
    }
    *id = (int32_t)v;
    return v <= INT32_MAX;
}

static bool read_bias(struct ep_read *r, const struct json_value *v, float *bias) {
    bool cut = ep_as_openai(r);
    double d;
    bool number = json_as_f64(v, &d) == JSON_OK;
    if (!number && cut)
        return ep_fail_value(r, 422, "Parameter logit_bias must have numbers as values, got {got}.",
                             v);
    if (!number || (!cut && !(d >= -100 && d <= 100)))
        return ep_fail_value(
            r, 422, "Parameter logit_bias must have values in [-100.0,100.0], got {got}.", v);
    *bias = d < -100 ? -100 : d > 100 ? 100 : (float)d;
    return true;
}

bool ep_check_logit_bias(struct ep_read *r, const struct json_value *v) {
    struct sampling *s = &r->req->sampling;
    struct json_value *obj;
    char text[32];
    if (json_as_obj(v, &obj) != JSON_OK) return ep_wrong_type(r, "logit_bias must be object type.");
    size_t n = json_obj_len(obj);
    if (n == 0) return true;
    if (n > LOGIT_BIAS_MAX) {
        snprintf(text, sizeof(text), "%zu", n);
        return ep_fail_with(r, 422,
                            "Parameter logit_bias must have at most 1024 entries, got {got}.",
                            "{got}", text, NULL);
    }
    s->logit_bias = calloc(n, sizeof(*s->logit_bias));
    if (s->logit_bias == NULL) return ep_fail_memory(r);
    int32_t vocab = r->ep->model->vocab_size > 0 ? r->ep->model->vocab_size : INT32_MAX;
    json_obj_foreach(obj, key, val) {
        struct logit_bias *b = &s->logit_bias[s->n_logit_bias];
        if (!parse_id(key, &b->id) || b->id >= vocab) {
            snprintf(text, sizeof(text), "%d", vocab - 1);
            return ep_fail_with(
                r, 422, "Parameter logit_bias must have token ids in [0,{max}] as keys, got {got}.",
                "{max}", text, "{got}", key, NULL);
        }
        if (!read_bias(r, val, &b->bias)) return false;
        s->n_logit_bias++;
    }
    return true;
}

/* ---- n, logprobs */

/* Of Responses: max_tokens by another name. */
bool ep_check_max_output(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->p.given[P_MAX_TOKENS] = true;
    return true;
}

bool ep_check_n(struct ep_read *r, const struct json_value *v) {
    const struct endpoint_conf *c = &r->ep->conf;
    const struct {
        int max;
        const char *name, *end;
    } limits[] = {
        {c->max_batch_size, "max_batch_size", " "},
        {c->max_prefill_batch_size, "maxPrefillBatchSize", ""},
        {c->max_n, "maxN", ""},
    };
    (void)v;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        char n[24], m[24];
        if (limits[i].max <= 0 || r->p.n <= (uint64_t)limits[i].max) continue;
        snprintf(n, sizeof(n), "%llu", (unsigned long long)r->p.n);
        snprintf(m, sizeof(m), "%d", limits[i].max);
        return ep_fail_with(
            r, 422,
            "The n parameter ({n}) exceeds '{name}' ({m}). Please reduce n or increase "
            "'{name}' in config.json of mindie-service.{end}",
            "{n}", n, "{name}", limits[i].name, "{m}", m, "{end}", limits[i].end, NULL);
    }
    return true;
}

/* What it asks for is not done, so it is not passed over. */
bool ep_check_lora(struct ep_read *r, const struct json_value *v) {
    const bool none = json_is(v, json_type_array) && json_arr_len(v) == 0;
    return none || ep_fail(r, 422,
                           "lora: adapters are not mixed here; name one of GET /lora-adapters as "
                           "model");
}

bool ep_check_n_cmpl(struct ep_read *r, const struct json_value *v) {
    r->p.given[P_N] = true;
    return ep_check_n(r, v);
}

bool ep_check_temperature(struct ep_read *r, const struct json_value *v) {
    const float max = r->fam->temperature_max;
    if (max <= 0 || r->p.temperature <= max || !r->ep->conf.strict_ranges) return true;
    r->code = "decimal_above_max_value";
    return ep_fail_value(r, 422, "Parameter temperature must be in [0,2], got {got}.", v);
}

/* logprobs of chat is a boolean; false forbids top_logprobs. It stands before top_logprobs in the
 * order. */
bool ep_check_chat_logprobs(struct ep_read *r, const struct json_value *v) {
    struct json_value *top;
    if (json_as_bool(v, &r->p.chat_logprobs) != JSON_OK)
        return ep_wrong_type(r, "logprobs must be boolean type.");
    if (!r->p.chat_logprobs && json_get(r->params, "top_logprobs", &top) == JSON_OK)
        return ep_fail(r, 422,
                       "Value error, when using top_logprobs, logprobs must be true or null in "
                       "chat completions");
    return true;
}

/* ---- adapters */

bool ep_adapter_find(struct ep_read *r, const char *s) {
    struct lora_set *loras = r->ep->conf.loras;
    if (loras == NULL || !lora_set_find(loras, s, r->req->head.adapter_hash)) return false;
    r->req->head.adapter = strdup(s);
    return r->req->head.adapter != NULL || ep_fail_memory(r);
}

bool ep_names_model(const struct endpoint *ep, const char *s, size_t n) {
    return strlen(s) == n && strcmp(s, ep->conf.model_name) == 0;
}

bool ep_serves(const struct endpoint *ep, const char *s, size_t n) {
    struct lora_info adapter;
    bool found = ep_names_model(ep, s, n);
    for (int at = 0; !found && strlen(s) == n && ep_next_adapter(ep, &at, &adapter);)
        found = strcmp(adapter.name, s) == 0;
    return found;
}

bool ep_names_served(struct ep_read *r, const char *s, size_t n) {
    return ep_names_model(r->ep, s, n) || (strlen(s) == n && ep_adapter_find(r, s));
}

static bool adapter(struct ep_read *r, const char *s, size_t n) {
    return (strlen(s) == n && strcmp(s, "None") == 0) ||
           (strlen(s) == n && ep_adapter_find(r, s)) ||
           ep_fail_with(r, 422, "The LoRA adapter '{got}' cannot be found.", "{got}", s, NULL);
}

bool ep_check_adapter(struct ep_read *r, const struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "adapter_id must be string type.");
    bool good = n >= 1 && n <= 256;
    for (size_t i = 0; good && i < n; i++)
        good = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
               (s[i] >= '0' && s[i] <= '9') || s[i] == '_' || s[i] == '.' || s[i] == '/' ||
               s[i] == '-';
    if (!good) return ep_fail(r, 422, "The format of adapter_id is invalid.");
    return adapter(r, s, n);
}

bool ep_check_vllm_model(struct ep_read *r, const struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK) return ep_wrong_type(r, "Model must be string type.");
    size_t units = ep_utf16_len(s, n);
    if (units < 1 || units > 256) {
        char got[24];
        snprintf(got, sizeof(got), "%zu", units);
        return ep_fail_with(
            r, 422, "Input validation error: length of `model` must be in [1, 256], but got {got}",
            "{got}", got, NULL);
    }
    return ep_names_model(r->ep, s, n) || adapter(r, s, n);
}

/* ---- chat */

bool ep_check_template_kwargs(struct ep_read *r, const struct json_value *v) {
    struct json_value *obj, *budget;
    int64_t k;
    bool thinking = false;
    if (json_as_obj(v, &obj) != JSON_OK)
        return ep_wrong_type(r, "chat_template_kwargsmust be a JSON object");
    if (json_get_bool(obj, "enable_thinking", &thinking) != JSON_OK || !thinking) return true;
    if (json_get(obj, "thinking_budget", &budget) != JSON_OK) return true;
    if (json_as_i64(budget, &k) != JSON_OK || k < 1 || k > INT32_MAX)
        return ep_fail_value(
            r, 422, "Parameter thinking_budget must be in [1,2147483647], got {got}", budget);
    return true;
}

bool ep_check_stream_options(struct ep_read *r, const struct json_value *v) {
    struct infer_req *req = r->req;
    struct json_value *obj;
    bool on = false;
    enum json_got g;
    if (json_as_obj(v, &obj) != JSON_OK)
        return ep_wrong_type(r, "stream_options must be object type.");
    g = json_get_bool(obj, "include_usage", &req->answer.include_usage);
    if (g == JSON_WRONG_TYPE) return ep_wrong_type(r, "include_usage must be boolean type.");
    req->answer.include_usage_set = g == JSON_OK;
    g = json_get_bool(obj, "continuous_usage_stats", &on);
    if (g == JSON_WRONG_TYPE)
        return ep_wrong_type(r, "continuous_usage_stats must be boolean type.");
    req->answer.continuous_usage = on;
    return true;
}

/* ---- which tokens are allowed at all */

bool ep_check_guide(struct ep_read *r, const struct json_value *v) {
    (void)v;
    return ep_guide_read(r);
}

static bool too_many(struct ep_read *r, const char *text, size_t got) {
    char g[24];
    snprintf(g, sizeof(g), "%zu", got);
    return ep_fail_with(r, 422, text, "{got}", g, NULL);
}

bool ep_check_allowed_ids(struct ep_read *r, const struct json_value *v) {
    struct sampling *s = &r->req->sampling;
    int32_t vocab = r->ep->model->vocab_size > 0 ? r->ep->model->vocab_size : INT32_MAX;
    struct json_value *arr;
    size_t kept = 0;
    if (json_as_arr(v, &arr) != JSON_OK)
        return ep_wrong_type(r, "allowed_token_ids must be array type.");
    size_t n = json_arr_len(arr);
    if (n == 0) return true;
    if (n > ALLOWED_IDS_MAX)
        return too_many(r, "Parameter allowed_token_ids must have at most 1048576 ids, got {got}.",
                        n);
    s->allowed_ids = calloc(n, sizeof(*s->allowed_ids));
    if (s->allowed_ids == NULL) return ep_fail_memory(r);
    for (size_t i = 0; i < n; i++) {
        struct json_value *item = json_arr_at(arr, i);
        int64_t id;
        if (json_as_i64(item, &id) != JSON_OK || id < 0 || id >= vocab) {
            char max[24], got[256];
            snprintf(max, sizeof(max), "%d", vocab - 1);
            json_literal(got, sizeof(got), item);
            return ep_fail_with(
                r, 422, "Parameter allowed_token_ids must hold token ids in [0,{max}], got {got}.",
                "{max}", max, "{got}", got, NULL);
        }
        s->allowed_ids[i] = (int32_t)id;
    }
    qsort(s->allowed_ids, n, sizeof(*s->allowed_ids), by_i32);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || s->allowed_ids[kept - 1] != s->allowed_ids[i])
            s->allowed_ids[kept++] = s->allowed_ids[i];
    s->n_allowed_ids = kept;
    return true;
}

/* Appends one id sequence, its length before it. */
static bool push_word(struct ep_read *r, const struct id_list *ids) {
    struct sampling *s = &r->req->sampling;
    size_t n = s->n_bad_words + 1 + ids->n;
    if (n > BAD_WORDS_IDS_MAX)
        return too_many(
            r, "Parameter bad_words must make at most 65536 ids, lengths included, got {got}.", n);
    int32_t *grown = realloc(s->bad_words, n * sizeof(*grown));
    if (grown == NULL) return ep_fail_memory(r);
    s->bad_words = grown;
    grown[s->n_bad_words] = (int32_t)ids->n;
    memcpy(grown + s->n_bad_words + 1, ids->ids, ids->n * sizeof(*grown));
    s->n_bad_words = n;
    return true;
}

/* A word reads otherwise to the tokenizer after a blank, so both ways are forbidden: as it is
 * written, and after a blank when that makes another first token of as many (as vLLM does it). */
static bool bad_word(struct ep_read *r, const char *s, size_t n) {
    const struct tokenizer *tok = r->ep->tok;
    struct id_list plain = {0}, after = {0};
    struct buf b = BUF_INIT;
    size_t lead = strspn(s, " \t\r\n");
    enum err e = tokenizer_encode(tok, s + lead, n - lead, false, BAD_WORDS_IDS_MAX, &plain);
    buf_putc(&b, ' ');
    buf_append(&b, s + lead, n - lead);
    if (b.failed) e = ERR_NO_MEMORY;
    if (e == ERR_OK) e = tokenizer_encode(tok, b.data, b.len, false, BAD_WORDS_IDS_MAX, &after);
    bool good = e == ERR_OK;
    if (e == ERR_NO_MEMORY)
        ep_fail_memory(r);
    else if (!good)
        ep_fail(r, 422, "The text of bad_words cannot be tokenised");
    else if (plain.n > 0)
        good = push_word(r, &plain) &&
               (after.n != plain.n || after.ids[0] == plain.ids[0] || push_word(r, &after));
    buf_free(&b);
    id_list_free(&plain);
    id_list_free(&after);
    return good;
}

bool ep_check_bad_words(struct ep_read *r, const struct json_value *v) {
    struct json_value *arr;
    const char *s;
    size_t n;
    if (json_as_arr(v, &arr) != JSON_OK) return ep_wrong_type(r, "bad_words must be array type.");
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        if (json_as_str(json_arr_at(arr, i), &s, &n) != JSON_OK)
            return ep_wrong_type(r, "bad_words must hold string type.");
        if (n == 0 || strlen(s) != n)
            return ep_fail(r, 422, "bad_words must not hold an empty string or a zero character.");
        if (!bad_word(r, s, n)) return false;
    }
    return true;
}

/* ---- ids and endings */

/* A client's own id, as Triton's `id`; one that no id can be is ignored. */
bool ep_check_request_id(struct ep_read *r, const struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "request_id must be string type.");
    if (!ep_id_valid(s, n)) return true;
    r->req->head.client_id = ep_dup(s, n);
    r->req->head.client_id_soft = true;
    return r->req->head.client_id != NULL || ep_fail_memory(r);
}

bool ep_check_suffix(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->code = EP_UNSUPPORTED;
    return ep_fail(r, 422, "suffix is not supported.");
}

/* The prompt as vectors (vLLM): the server would compute with what it cannot check. */
bool ep_check_prompt_embeds(struct ep_read *r, const struct json_value *v) {
    (void)v;
    r->code = EP_UNSUPPORTED;
    return ep_fail(r, 422, "prompt_embeds is not supported.");
}

/* Code of the client's that looks at logits (vLLM, where it is off unless enabled). */
bool ep_check_logits_processors(struct ep_read *r, const struct json_value *v) {
    struct json_value *arr;
    if (json_as_arr(v, &arr) != JSON_OK)
        return ep_wrong_type(r, "logits_processors must be array type.");
    if (json_arr_len(arr) == 0) return true;
    r->code = EP_UNSUPPORTED;
    return ep_fail(r, 422, "logits_processors are not supported.");
}

bool ep_check_truncation_side(struct ep_read *r, const struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "truncation_side must be string type.");
    r->p.truncate_right = strcmp(s, "right") == 0;
    return r->p.truncate_right || strcmp(s, "left") == 0 ||
           ep_fail_value(r, 422, "Parameter truncation_side must be left or right, got {got}.", v);
}

bool ep_check_cache_salt(struct ep_read *r, const struct json_value *v) {
    const char *s;
    size_t n;
    if (json_as_str(v, &s, &n) != JSON_OK)
        return ep_wrong_type(r, "cache_salt must be string type.");
    if (n < 1 || n > CACHE_SALT_BYTES_MAX || strlen(s) != n)
        return ep_fail(r, 422, "Parameter cache_salt must have 1 to 256 bytes, none of them zero.");
    r->req->head.cache_salt = ep_dup(s, n);
    return r->req->head.cache_salt != NULL || ep_fail_memory(r);
}

/* Families without beam search do not read the member (4.2), but to ask for one is refused (4.4).
 */
bool ep_check_beam_elsewhere(struct ep_read *r, const struct json_value *v) {
    bool wanted;
    if (json_as_bool(v, &wanted) == JSON_OK && wanted) r->p.beam = true;
    return true;
}
