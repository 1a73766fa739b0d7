/* ep_models: the models of this server and its adapters as one list that OpenAI's, vLLM's,
 * Anthropic's and llama.cpp's clients read alike (client-apis 2.9), a card of it alone, and what
 * Ollama's list has in common with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/query.h"
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/engine/lora_set.h"

enum { LIMIT_MAX = 1000 };

/* The next adapter a request may name, from number *at on. */
bool ep_next_adapter(const struct endpoint *ep, int *at, struct lora_info *out) {
    while (ep->conf.loras != NULL && lora_set_at(ep->conf.loras, (*at)++, out))
        if (out->state == LORA_SERVED) return true;
    return false;
}

/* ---- what is said of a model */

/* "7.4M" */
static void put_count(struct buf *b, uint64_t n) {
    static const char units[] = "KMBT";
    double v = (double)n / 1e3;
    size_t i = 0;
    while (v >= 1e3 && i + 2 < sizeof(units)) v /= 1e3, i++;
    buf_printf(b, "\"%.1f%c\"", v, units[i]);
}

void ep_put_details(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b) {
    const size_t n = strlen(ep->root);
    const bool gguf = n > 5 && strcmp(ep->root + n - 5, ".gguf") == 0;
    buf_puts(b, "\"details\":{\"parent_model\":");
    put_cstr(b, adapter != NULL ? ep->conf.model_name : "");
    buf_puts(b, gguf ? ",\"format\":\"gguf\"" : ",\"format\":\"safetensors\"");
    buf_puts(b, ",\"family\":");
    put_cstr(b, ep->model->family);
    buf_puts(b, ",\"families\":[");
    put_cstr(b, ep->model->family);
    buf_puts(b, "],\"parameter_size\":");
    put_count(b, ep->model->n_params);
    buf_puts(b, ",\"quantization_level\":");
    put_cstr(b, ep->model->file_type);
    buf_putc(b, '}');
}

void ep_put_capabilities(const struct endpoint *ep, struct buf *b) {
    const struct {
        bool has;
        const char *name;
    } all[] = {{!ep->model->no_head, "\"completion\""},
               {ep->tool_format != TOOLS_NONE, "\"tools\""},
               {ep->thinking != EP_THINKING_NONE, "\"thinking\""},
               {ep->model->is_embedder, "\"embedding\""}};
    const char *between = "";
    buf_puts(b, "\"capabilities\":[");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (!all[i].has) continue;
        buf_puts(b, between);
        buf_puts(b, all[i].name);
        between = ",";
    }
    buf_putc(b, ']');
}

static const char *name_of(const struct endpoint *ep, const struct lora_info *adapter) {
    return adapter != NULL ? adapter->name : ep->conf.model_name;
}

/* A card, without its last brace. */
static void put_card(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b) {
    const struct endpoint_conf *c = &ep->conf;
    const struct model_info *m = ep->model;
    const char *name = name_of(ep, adapter);
    const int64_t loaded_unix_s = adapter != NULL ? adapter->loaded_unix_s : c->loaded_unix_s;
    buf_puts(b, "{\"id\":");
    put_cstr(b, name);
    buf_puts(b, ",\"object\":\"model\",\"created\":");
    put_i64(b, loaded_unix_s);
    buf_puts(b, ",\"owned_by\":\"" EP_SERVER_NAME "\",\"root\":");
    put_cstr(b, adapter != NULL ? adapter->root : ep->root);
    buf_puts(b, ",\"parent\":");
    put_cstr(b, adapter != NULL ? c->model_name : NULL);
    buf_printf(b, ",\"max_model_len\":%d,\"context_length\":%d,\"type\":\"model\"", c->max_seq_len,
               c->max_seq_len);
    buf_puts(b, ",\"display_name\":");
    put_cstr(b, name);
    buf_puts(b, ",\"created_at\":");
    put_rfc3339(b, loaded_unix_s);
    buf_printf(b, ",\"max_input_tokens\":%d,\"max_tokens\":%d", c->max_input_token_len,
               c->max_iter_times);
    buf_printf(b,
               ",\"meta\":{\"n_ctx\":%d,\"n_ctx_train\":%d,\"n_vocab\":%d,\"n_embd\":%d,"
               "\"n_params\":%llu,\"size\":%llu,\"vocab_type\":%d}",
               c->max_seq_len, m->context_max, m->vocab_size, m->hidden,
               (unsigned long long)m->n_params, (unsigned long long)m->weight_bytes,
               tokenizer_kind(ep->tok).number);
}

/* llama.cpp's own; what it does not know of a model is empty there too. */
static void put_entry(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b) {
    buf_puts(b, "{\"name\":");
    put_cstr(b, name_of(ep, adapter));
    buf_puts(b, ",\"model\":");
    put_cstr(b, name_of(ep, adapter));
    buf_puts(b, ",\"type\":\"model\",\"modified_at\":\"\",\"size\":\"\",\"digest\":\"\","
                "\"description\":\"\",\"tags\":[\"\"],");
    ep_put_capabilities(ep, b);
    buf_puts(b, ",\"parameters\":\"\",");
    ep_put_details(ep, adapter, b);
    buf_putc(b, '}');
}

/* ---- pages of the list, which only Anthropic's clients ask for */

struct page {
    size_t first, end; /* of the model and its adapters, counted from 0 */
    bool has_more;     /* in the direction that was asked for */
};

static enum api_errors shape_of(const struct endpoint_ask *ask) {
    return ask->meta.anthropic ? API_ERRORS_ANTHROPIC : ask->path->errors;
}

static bool bad_query(const struct endpoint *ep, const struct endpoint_ask *ask, const char *name,
                      const char *must, const char *got, struct api_answer *out) {
    struct buf text = BUF_INIT;
    buf_printf(&text, "%s must be %s, got '%.*s'", name, must, (int)ep_name_shown(got, strlen(got)),
               got);
    ep_answer_error_of(ep, shape_of(ask), 400, text.data != NULL ? text.data : "out of memory",
                       name, "invalid_value", out);
    buf_free(&text);
    return false;
}

/* Where the query's after_id or before_id is in the list; SIZE_MAX: it names none. */
static bool find_id(const struct endpoint *ep, const struct endpoint_ask *ask, const char *name,
                    size_t *at, struct api_answer *out) {
    char value[MODEL_NAME_BYTES_MAX + 2];
    const char *query = ask->query != NULL ? ask->query : "";
    struct lora_info adapter;
    *at = SIZE_MAX;
    if (!query_next(&query, name, value, sizeof(value))) return true;
    if (endpoint_has_model(ep, value)) *at = 0;
    size_t i = 1;
    for (int next = 0; *at == SIZE_MAX && ep_next_adapter(ep, &next, &adapter); i++)
        if (strcmp(adapter.name, value) == 0) *at = i;
    return *at != SIZE_MAX || bad_query(ep, ask, name, "the id of a model in the list", value, out);
}

static bool find_limit(const struct endpoint *ep, const struct endpoint_ask *ask, size_t *limit,
                       struct api_answer *out) {
    char value[8];
    const char *query = ask->query != NULL ? ask->query : "";
    if (!query_next(&query, "limit", value, sizeof(value))) return true;
    const bool digits = value[0] != '\0' && value[strspn(value, "0123456789")] == '\0';
    *limit = digits ? strtoul(value, NULL, 10) : 0;
    return (*limit > 0 && *limit <= LIMIT_MAX) ||
           bad_query(ep, ask, "limit", "an integer from 1 to 1000", value, out);
}

/* A page lies behind after_id, or right before before_id. */
static bool find_page(const struct endpoint *ep, const struct endpoint_ask *ask, struct page *page,
                      struct api_answer *out) {
    size_t after, before, limit = SIZE_MAX, n = 1;
    struct lora_info adapter;
    for (int at = 0; ep_next_adapter(ep, &at, &adapter);) n++;
    if (!find_id(ep, ask, "after_id", &after, out) ||
        !find_id(ep, ask, "before_id", &before, out) || !find_limit(ep, ask, &limit, out))
        return false;
    page->first = after != SIZE_MAX ? after + 1 : 0;
    page->end = before < n ? before : n;
    if (page->end < page->first) page->end = page->first;
    const bool backwards = before != SIZE_MAX && after == SIZE_MAX;
    if (page->end - page->first > limit) {
        if (backwards)
            page->first = page->end - limit;
        else
            page->end = page->first + limit;
    }
    page->has_more = backwards ? page->first > 0 : page->end < n;
    return true;
}

/* The page's entries; *last: the name of the last one, *first of the first. */
static void put_list(const struct endpoint *ep, const struct page *page,
                     void (*put)(const struct endpoint *, const struct lora_info *, struct buf *),
                     char first[MODEL_NAME_BYTES_MAX + 1], char last[MODEL_NAME_BYTES_MAX + 1],
                     struct buf *b) {
    struct lora_info adapter;
    bool is_adapter = false;
    int next = 0;
    for (size_t i = 0; i < page->end; i++) {
        if (i > 0 && !(is_adapter = ep_next_adapter(ep, &next, &adapter))) break;
        if (i < page->first) continue;
        const struct lora_info *of = is_adapter ? &adapter : NULL;
        if (i > page->first) buf_putc(b, ',');
        put(ep, of, b);
        snprintf(last, MODEL_NAME_BYTES_MAX + 1, "%s", name_of(ep, of));
        if (i == page->first) memcpy(first, last, MODEL_NAME_BYTES_MAX + 1);
    }
}

static void put_model(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b) {
    put_card(ep, adapter, b);
    buf_putc(b, '}');
}

/* Codex reads `models` as objects of its own kind, of which there are none. */
static bool is_codex(const struct endpoint_ask *ask) {
    char version[2];
    const char *query = ask->query != NULL ? ask->query : "";
    return query_next(&query, "client_version", version, sizeof(version));
}

void endpoint_models(const struct endpoint *ep, const struct endpoint_ask *ask,
                     struct api_answer *out) {
    char first[MODEL_NAME_BYTES_MAX + 1] = "", last[MODEL_NAME_BYTES_MAX + 1] = "";
    struct page page;
    struct buf *b = &out->body;
    if (!find_page(ep, ask, &page, out)) return;
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
    buf_puts(b, "{\"object\":\"list\",\"data\":[");
    put_list(ep, &page, put_model, first, last, b);
    buf_puts(b, "],\"has_more\":");
    buf_puts(b, page.has_more ? "true" : "false");
    buf_puts(b, ",\"first_id\":");
    put_cstr(b, page.end > page.first ? first : NULL);
    buf_puts(b, ",\"last_id\":");
    put_cstr(b, page.end > page.first ? last : NULL);
    buf_puts(b, ",\"models\":[");
    if (!is_codex(ask)) put_list(ep, &page, put_entry, first, last, b);
    buf_puts(b, "]}");
}

/* Anthropic's clients look for these words. */
static void not_found(const struct endpoint *ep, const struct endpoint_ask *ask,
                      struct api_answer *out) {
    struct buf text = BUF_INIT;
    if (!ask->meta.anthropic) {
        ep_model_not_found(ep, ask->path->errors, ask->name, out);
        return;
    }
    buf_printf(&text, "model: %s", ask->name);
    ep_answer_error(ep, API_ERRORS_ANTHROPIC, 404, text.data != NULL ? text.data : "model", out);
    buf_free(&text);
}

/* What OpenVINO's clients ask for here. */
#define VERSION_STATUS                                                                             \
    "\"model_version_status\":[{\"version\":\"1\",\"state\":\"AVAILABLE\",\"status\":"             \
    "{\"error_code\":\"OK\",\"error_message\":\"OK\"}}]}"

/* Tensors as TensorFlow Serving writes them: the prompts and the texts of /infer, any number. */
static void put_metadata(const char *name, struct buf *b) {
    static const char tensor[] = "{\"dtype\":\"DT_STRING\",\"tensorShape\":{\"dim\":[{\"size\":"
                                 "\"-1\",\"name\":\"\"}],\"unknownRank\":false},\"name\":";
    buf_puts(b, "{\"modelSpec\":{\"name\":");
    put_cstr(b, name);
    buf_puts(b, ",\"signatureName\":\"\",\"version\":\"1\"},\"metadata\":{\"signature_def\":{"
                "\"@type\":\"type.googleapis.com/tensorflow.serving.SignatureDefMap\","
                "\"signatureDef\":{\"serving_default\":{\"inputs\":{\"text_input\":");
    buf_puts(b, tensor);
    buf_puts(b, "\"text_input\"}},\"outputs\":{\"text_output\":");
    buf_puts(b, tensor);
    buf_puts(b, "\"text_output\"}},\"methodName\":\"\",\"defaults\":{}}}}}}");
}

/* True: the name is a model's, or *is_adapter says that it is one of *adapter. */
static bool find_name(const struct endpoint *ep, const char *name, bool *is_adapter,
                      struct lora_info *adapter) {
    bool found = endpoint_has_model(ep, name);
    *is_adapter = false;
    for (int at = 0; !found && ep_next_adapter(ep, &at, adapter);)
        found = *is_adapter = strcmp(adapter->name, name) == 0;
    return found;
}

/* OpenVINO's "NAME/versions/1", "NAME/metadata" and both; a model's own name may hold slashes. */
struct about {
    char name[MODEL_NAME_BYTES_MAX + 1];
    bool metadata, version, other_version; /* asked for; the version is not ours */
};

static void take_end(char *name, const char *end, bool *there) {
    const size_t n = strlen(name), n_end = strlen(end);
    *there = n > n_end && strcmp(name + n - n_end, end) == 0;
    if (*there) name[n - n_end] = '\0';
}

static void read_about(struct about *a, const char *path) {
    *a = (struct about){.metadata = false};
    snprintf(a->name, sizeof(a->name), "%s", path);
    take_end(a->name, "/metadata", &a->metadata);
    take_end(a->name, "/versions/1", &a->version);
    char *slash = a->version ? NULL : strrchr(a->name, '/');
    static const char versions[] = "/versions";
    const size_t n = slash != NULL ? (size_t)(slash - a->name) : 0, n_v = sizeof(versions) - 1;
    if (n <= n_v || memcmp(slash - n_v, versions, n_v) != 0 || slash[1] == '\0' ||
        slash[1 + strspn(slash + 1, "0123456789")] != '\0')
        return;
    slash[-(int)n_v] = '\0';
    a->other_version = true;
}

static void put_about(const struct endpoint *ep, const struct endpoint_ask *ask,
                      const struct about *a, struct api_answer *out) {
    if (a->other_version) {
        ep_answer_error_of(ep, shape_of(ask), 404, "Model with requested version is not found",
                           "model", EP_NO_MODEL, out);
        return;
    }
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
    if (a->metadata)
        put_metadata(a->name, &out->body);
    else
        buf_puts(&out->body, "{" VERSION_STATUS);
}

void endpoint_model(const struct endpoint *ep, const struct endpoint_ask *ask,
                    struct api_answer *out) {
    struct lora_info adapter;
    struct about about;
    bool is_adapter;
    if (find_name(ep, ask->name, &is_adapter, &adapter)) {
        *out = (struct api_answer){.status = 200, .content_type = "application/json"};
        put_card(ep, is_adapter ? &adapter : NULL, &out->body);
        buf_puts(&out->body, "," VERSION_STATUS);
        return;
    }
    read_about(&about, ask->name);
    if ((about.metadata || about.version || about.other_version) &&
        find_name(ep, about.name, &is_adapter, &adapter))
        put_about(ep, ask, &about, out);
    else
        not_found(ep, ask, out);
}
