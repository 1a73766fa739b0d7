/* ep_ollama_info: what Ollama's clients ask of the models of a server (client-apis 3.7), and what
 * they may not do with them. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/engine/lora_set.h"

/* The version of Ollama whose API this is; clients compare its numbers. */
#define OLLAMA_VERSION "0.12.0"
/* Models are never let go of: a time that no client lives to see, in the form Python reads. */
#define NEVER "\"2318-01-01T00:00:00.000000+00:00\""

static void begin(struct api_answer *out, const char *type) {
    *out = (struct api_answer){.status = 200, .content_type = type};
}

static void failed(const struct endpoint *ep, int status, const char *text,
                   struct api_answer *out) {
    ep_answer_error(ep, API_ERRORS_OLLAMA, status, text, out);
}

/* ---- a model, or an adapter of it */

static void put_name(struct buf *b, const char *name) {
    struct buf tagged = BUF_INIT;
    buf_puts(&tagged, name);
    if (strchr(name, ':') == NULL) buf_puts(&tagged, ":latest");
    put_cstr(b, tagged.data);
    if (tagged.failed) b->failed = true;
    buf_free(&tagged);
}

static void put_identity(const struct endpoint *ep, const struct lora_info *adapter,
                         struct buf *b) {
    const char *name = adapter != NULL ? adapter->name : ep->conf.model_name;
    buf_puts(b, "{\"name\":");
    put_name(b, name);
    buf_puts(b, ",\"model\":");
    put_name(b, name);
    buf_printf(b, ",\"size\":%llu,\"digest\":\"", (unsigned long long)ep->model->weight_bytes);
    for (size_t i = 0; i < sizeof(ep->model->hash); i++) buf_printf(b, "%02x", ep->model->hash[i]);
    buf_puts(b, "\",");
    ep_put_details(ep, adapter, b);
}

static void put_modified(const struct endpoint *ep, const struct lora_info *adapter,
                         struct buf *b) {
    buf_puts(b, ",\"modified_at\":");
    put_rfc3339(b, adapter != NULL ? adapter->loaded_unix_s : ep->conf.loaded_unix_s);
}

static void put_tag(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b) {
    put_identity(ep, adapter, b);
    put_modified(ep, adapter, b);
    buf_putc(b, ',');
    ep_put_capabilities(ep, b);
    buf_putc(b, '}');
}

static void put_running(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b) {
    put_identity(ep, adapter, b);
    buf_printf(b, ",\"expires_at\":" NEVER ",\"size_vram\":0,\"context_length\":%d}",
               ep->conf.max_seq_len);
}

/* The model, then its adapters. */
static void list(const struct endpoint *ep,
                 void (*put)(const struct endpoint *, const struct lora_info *, struct buf *),
                 struct api_answer *out) {
    struct lora_info adapter;
    begin(out, "application/json");
    buf_puts(&out->body, "{\"models\":[");
    put(ep, NULL, &out->body);
    for (int at = 0; ep_next_adapter(ep, &at, &adapter);) {
        buf_putc(&out->body, ',');
        put(ep, &adapter, &out->body);
    }
    buf_puts(&out->body, "]}");
}

void endpoint_ollama_tags(const struct endpoint *ep, struct api_answer *out) {
    list(ep, put_tag, out);
}

void endpoint_ollama_ps(const struct endpoint *ep, struct api_answer *out) {
    list(ep, put_running, out);
}

void endpoint_ollama_version(const struct endpoint *ep, struct api_answer *out) {
    (void)ep;
    begin(out, "application/json");
    buf_puts(&out->body, "{\"version\":\"" OLLAMA_VERSION "\"}");
}

void endpoint_ollama_running(const struct endpoint *ep, struct api_answer *out) {
    (void)ep;
    begin(out, "text/plain");
    buf_puts(&out->body, "Ollama is running");
}

/* ---- one of them */

/* `model`, or `name` as older clients have it, of a body that stays. NULL: *out is the error. */
static const char *asked_model(const struct endpoint *ep, const struct endpoint_ask *ask,
                               struct json_value **body, struct api_answer *out) {
    struct json_limits lim = json_limits_client(JSON_DEPTH_MAX);
    const char *s = NULL;
    size_t n = 0;
    *body = NULL;
    if (ask->n == 0) {
        failed(ep, 400, "missing request body", out);
    } else if (json_read_in_place(body, ask->body, ask->n, &lim, NULL) != ERR_OK ||
               !json_is(*body, json_type_object)) {
        failed(ep, 400, "the body must be a JSON object", out);
    } else if ((json_get_str(*body, "model", &s, &n) == JSON_OK && n > 0) ||
               (json_get_str(*body, "name", &s, &n) == JSON_OK && n > 0)) {
        return s;
    } else {
        failed(ep, 400, "model is required", out);
    }
    return NULL;
}

/* True: it is served; *is_adapter: by that adapter. */
static bool find_model(const struct endpoint *ep, const char *name, bool *is_adapter,
                       struct lora_info *adapter) {
    *is_adapter = false;
    if (ep_ollama_same(name, ep->conf.model_name)) return true;
    for (int at = 0; ep_next_adapter(ep, &at, adapter);)
        if (ep_ollama_same(name, adapter->name)) return *is_adapter = true;
    return false;
}

static void put_parameter(struct buf *b, const char *name, double v, bool given) {
    if (given) buf_printf(b, "%-30s %.6g\n", name, v);
}

/* One a line: what a request that says nothing gets. */
static void put_parameters(const struct endpoint *ep, struct buf *out) {
    struct buf b = BUF_INIT;
    put_parameter(&b, "num_ctx", ep->conf.max_seq_len, true);
    put_parameter(&b, "temperature", (double)ep->model->gen.temperature,
                  ep->model->gen.temperature_set);
    put_parameter(&b, "top_k", ep->model->gen.top_k, ep->model->gen.top_k_set);
    put_parameter(&b, "top_p", (double)ep->model->gen.top_p, ep->model->gen.top_p_set);
    if (b.len > 0) b.len--; /* the last line has no end */
    buf_json_str(out, b.data != NULL ? b.data : "", b.len);
    if (b.failed) out->failed = true;
    buf_free(&b);
}

static void put_model_info(const struct endpoint *ep, struct buf *b) {
    const struct model_info *m = ep->model;
    const struct {
        const char *name;
        long long v;
    } rows[] = {{"context_length", ep->conf.max_seq_len},
                {"embedding_length", m->hidden},
                {"block_count", m->n_layers},
                {"feed_forward_length", m->intermediate},
                {"attention.head_count", m->n_heads},
                {"attention.head_count_kv", m->n_kv_heads},
                {"vocab_size", m->vocab_size}};
    buf_puts(b, "\"model_info\":{\"general.architecture\":");
    put_cstr(b, m->family);
    buf_printf(b, ",\"general.parameter_count\":%llu", (unsigned long long)m->n_params);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        buf_printf(b, ",\"%s.%s\":%lld", m->family, rows[i].name, rows[i].v);
    buf_printf(b,
               ",\"tokenizer.ggml.model\":\"%s\",\"tokenizer.ggml.tokens\":null,"
               "\"tokenizer.ggml.merges\":null}",
               tokenizer_kind(ep->tok).name);
}

static void put_shown(const struct endpoint *ep, const struct lora_info *adapter, struct buf *b) {
    const struct chat_template *t = ep->chat[0];
    size_t n = 0;
    const char *template = t != NULL ? chat_template_source(t, &n) : "";
    struct buf from = BUF_INIT;
    buf_printf(&from, "FROM %s\n", ep->root);
    buf_puts(b, "{\"modelfile\":");
    buf_json_str(b, from.data != NULL ? from.data : "", from.len);
    buf_free(&from);
    buf_puts(b, ",\"parameters\":");
    put_parameters(ep, b);
    buf_puts(b, ",\"template\":");
    buf_json_str(b, template, n);
    buf_puts(b, ",\"system\":\"\",\"license\":\"\",");
    ep_put_details(ep, adapter, b);
    buf_putc(b, ',');
    put_model_info(ep, b);
    buf_putc(b, ',');
    ep_put_capabilities(ep, b);
    put_modified(ep, adapter, b);
    buf_putc(b, '}');
}

void endpoint_ollama_show(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out) {
    struct json_value *body;
    struct lora_info adapter;
    bool is_adapter;
    const char *name = asked_model(ep, ask, &body, out);
    if (name != NULL && find_model(ep, name, &is_adapter, &adapter)) {
        begin(out, "application/json");
        put_shown(ep, is_adapter ? &adapter : NULL, &out->body);
    } else if (name != NULL) {
        char text[MODEL_NAME_BYTES_MAX + 32];
        snprintf(text, sizeof(text), "model '%.*s' not found",
                 (int)ep_name_shown(name, strlen(name)), name);
        failed(ep, 404, text, out);
    }
    json_put(body);
}

/* ---- what would change them */

static const char refusal[] = "not supported: this server has the models it was started with; GET "
                              "/api/tags lists them";

/* Of a model that is here already nothing is left to do. */
void endpoint_ollama_pull(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out) {
    struct json_value *body;
    struct lora_info adapter;
    bool is_adapter, stream = true;
    const char *name = asked_model(ep, ask, &body, out);
    if (name != NULL && find_model(ep, name, &is_adapter, &adapter)) {
        json_get_bool(body, "stream", &stream);
        begin(out, stream ? api_framings[API_FRAMES_NDJSON].type : "application/json");
        buf_puts(&out->body, "{\"status\":\"success\"}");
        if (stream) buf_putc(&out->body, '\n');
    } else if (name != NULL) {
        failed(ep, 400, refusal, out);
    }
    json_put(body);
}

void endpoint_ollama_refused(const struct endpoint *ep, struct api_answer *out) {
    failed(ep, 400, refusal, out);
}
