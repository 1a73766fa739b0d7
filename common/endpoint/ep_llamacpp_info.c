/* ep_llamacpp_info: what llama.cpp's clients ask of a server beside completions (client-apis 4.3,
 * 4.4, 4.6), and what vLLM's ask of the tokenizer and of a rendered chat (kserve-runtimes 12). */
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/engine/lora_set.h"

static void begin(struct api_answer *out) {
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
}

static void put_template(const struct endpoint *ep, struct buf *b) {
    const struct chat_template *t = ep->chat[0];
    size_t n = 0;
    const char *source = t != NULL ? chat_template_source(t, &n) : "";
    buf_puts(b, ",\"chat_template\":");
    buf_json_str(b, source, n);
    buf_puts(b, ",\"bos_token\":");
    put_cstr(b, ep->bos != NULL ? ep->bos : "");
    buf_puts(b, ",\"eos_token\":");
    put_cstr(b, ep->eos != NULL ? ep->eos : "");
}

void endpoint_llamacpp_props(const struct endpoint *ep, struct api_answer *out) {
    const struct endpoint_conf *c = &ep->conf;
    struct buf *b = &out->body;
    begin(out);
    buf_printf(
        b,
        "{\"default_generation_settings\":{\"params\":{\"n_predict\":-1,\"temperature\":%.6g,"
        "\"top_k\":%d,\"top_p\":%.6g,\"min_p\":%.6g,\"repeat_penalty\":1,"
        "\"repeat_last_n\":64,\"seed\":4294967295},\"n_ctx\":%d},\"total_slots\":%d,"
        "\"model_alias\":",
        ep->model->gen.temperature_set ? (double)ep->model->gen.temperature : 0.8,
        ep->model->gen.top_k_set ? (int)ep->model->gen.top_k : 40,
        ep->model->gen.top_p_set ? (double)ep->model->gen.top_p : 0.95,
        ep->model->gen.min_p_set ? (double)ep->model->gen.min_p : 0.05, c->max_seq_len,
        c->max_batch_size);
    put_cstr(b, c->model_name);
    buf_puts(b, ",\"model_path\":");
    put_cstr(b, ep->root);
    buf_puts(b, ",\"model_ftype\":");
    put_cstr(b, ep->model->file_type);
    buf_puts(b, ",\"modalities\":{\"vision\":false,\"video\":false,\"audio\":false},"
                "\"endpoint_slots\":true,\"endpoint_props\":false,\"endpoint_metrics\":false,"
                "\"chat_template_caps\":{}");
    put_template(ep, b);
    buf_puts(b, ",\"build_info\":\"baton\",\"is_sleeping\":false}");
}

/* The adapters that `model` may name; a request uses one of them whole, or none. */
void endpoint_llamacpp_loras(const struct endpoint *ep, struct api_answer *out) {
    struct lora_info adapter;
    int i = 0;
    begin(out);
    buf_putc(&out->body, '[');
    for (int at = 0; ep_next_adapter(ep, &at, &adapter); i++) {
        buf_printf(&out->body, "%s{\"id\":%d,\"path\":", i > 0 ? "," : "", i);
        put_cstr(&out->body, adapter.root);
        buf_puts(&out->body, ",\"name\":");
        put_cstr(&out->body, adapter.name);
        buf_puts(&out->body, ",\"scale\":1.0}");
    }
    buf_putc(&out->body, ']');
}

#define NO_REGIONS "shared memory is not supported: send tensors in the request"
#define NO_TRACE   "trace settings are not supported"
#define NO_LOGGING "log settings are not supported: they are in the configuration"

void endpoint_unsupported(const struct endpoint *ep, const struct endpoint_ask *ask,
                          struct api_answer *out) {
    static const struct {
        const char *prefix, *text;
        int status;
    } texts[] = {
        {"/infill", "infill is not supported: the model has no tokens for the middle of a text",
         501},
        {"/props", "properties cannot be changed: this server's are in its configuration", 501},
        {"/slots/",
         "slots cannot be saved, restored or erased: a prompt's blocks are kept as long "
         "as there is room",
         501},
        {"/v2/systemsharedmemory/", NO_REGIONS, 501},
        {"/v2/cudasharedmemory/", NO_REGIONS, 501},
        {"/v2/trace/", NO_TRACE, 501},
        {"/v2/models/{m}/trace/", NO_TRACE, 501},
        {"/v2/logging", NO_LOGGING, 501},
        {"/inference.GRPCInferenceService/TraceSetting", NO_TRACE, 501},
        {"/inference.GRPCInferenceService/LogSettings", NO_LOGGING, 501},
        {"/inference.GRPCInferenceService/", NO_REGIONS, 501}, /* of others */
        {"/management/models",
         "models are not deployed over this path: this server has those it was started with", 501},
        {"/v1/responses/compact",
         "/v1/responses/compact is not served: send the items again, or truncation auto, which "
         "drops the oldest",
         404},
        {"/classify",
         "The model does not support Classification API: it has no classes. /score compares texts.",
         404},
    };
    const char *text = "not supported", *path = ask->path->path;
    int status = 501;
    size_t i = 0, n = sizeof(texts) / sizeof(texts[0]);
    while (i < n && strncmp(path, texts[i].prefix, strlen(texts[i].prefix)) != 0) i++;
    if (i < n) text = texts[i].text, status = texts[i].status;
    ep_answer_error(ep, ask->path->errors, status, text, out);
}

/* GET /tokenizer_info */
void endpoint_tokenizer_info(const struct endpoint *ep, struct api_answer *out) {
    begin(out);
    buf_printf(&out->body,
               "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"vocab_size\":%d,"
               "\"model_max_length\":%d",
               ep->model->vocab_size, ep->conf.max_seq_len);
    put_template(ep, &out->body);
    buf_putc(&out->body, '}');
}

/* ---- chats as the model sees them */

static void put_rendered(const struct endpoint *ep, const struct id_list *ids, bool with_ids,
                         struct buf *b) {
    struct buf text = BUF_INIT;
    if (tokenizer_decode(ep->tok, ids->ids, ids->n, false, &text) != ERR_OK) b->failed = true;
    buf_puts(b, "{\"prompt\":");
    buf_json_str(b, text.data != NULL ? text.data : "", text.len);
    if (text.failed) b->failed = true;
    buf_free(&text);
    if (with_ids) {
        buf_printf(b, ",\"max_model_len\":%d,\"count\":%zu,\"prompt_token_ids\":[",
                   ep->conf.max_seq_len, ids->n);
        for (size_t i = 0; i < ids->n; i++) buf_printf(b, "%s%d", i > 0 ? "," : "", ids->ids[i]);
        buf_putc(b, ']');
    }
    buf_putc(b, '}');
}

static void render(const struct endpoint *ep, const struct endpoint_ask *ask, bool with_ids,
                   struct api_answer *out) {
    struct id_list ids = {0};
    if (!ep_chat_ids(ep, ask, &ids, out)) return;
    begin(out);
    put_rendered(ep, &ids, with_ids, &out->body);
    id_list_free(&ids);
    if (!out->body.failed) return;
    buf_free(&out->body);
    ep_answer_error(ep, ask->path->errors, 503, "out of memory", out);
}

void endpoint_apply_template(const struct endpoint *ep, const struct endpoint_ask *ask,
                             struct api_answer *out) {
    render(ep, ask, false, out);
}

void endpoint_render(const struct endpoint *ep, const struct endpoint_ask *ask,
                     struct api_answer *out) {
    render(ep, ask, true, out);
}
