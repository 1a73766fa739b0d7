/* ep_info: bodies that say what the server is (inference-api 13, 16.2); its models are in
 * ep_models.c. */
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"

#define SERVER_NAME    EP_SERVER_NAME
#define SERVER_VERSION "1.0.0"

static void begin(struct api_answer *out) {
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
}

bool endpoint_has_model(const struct endpoint *ep, const char *name) {
    return strcmp(ep->conf.model_name, name) == 0;
}

void ep_model_not_found(const struct endpoint *ep, enum api_errors shape, const char *name,
                        struct api_answer *out) {
    struct buf text = BUF_INIT;
    buf_printf(&text, "Model %s not found.", name);
    ep_answer_error_of(ep, shape, 404, text.data != NULL ? text.data : "Model not found.", "model",
                       EP_NO_MODEL, out);
    buf_free(&text);
}

void endpoint_model_not_found(const struct endpoint *ep, const char *name, struct api_answer *out) {
    ep_model_not_found(ep, API_ERRORS_PLAIN, name, out);
}

void endpoint_version(const struct endpoint *ep, struct api_answer *out) {
    (void)ep;
    begin(out);
    buf_puts(&out->body, "{\"version\":\"" SERVER_VERSION "\"}");
}

void endpoint_triton_server(const struct endpoint *ep, struct api_answer *out) {
    const struct endpoint_conf *c = &ep->conf;
    begin(out);
    buf_printf(&out->body,
               "{\"name\":\"" SERVER_NAME "\",\"version\":\"" SERVER_VERSION
               "\",\"extensions\":{\"max_iter_times\":%d,"
               "\"prefill_policy_type\":%d,\"decode_policy_type\":%d,\"max_prefill_batch_size\":%d,"
               "\"max_prefill_tokens\":%d}}",
               c->max_iter_times, c->prefill_policy, c->decode_policy, c->max_prefill_batch_size,
               c->max_prefill_tokens);
}

void endpoint_triton_model(const struct endpoint *ep, const char *name, struct api_answer *out) {
    if (!ep_serves(ep, name, strlen(name))) {
        ep_model_not_found(ep, API_ERRORS_PLAIN, name, out);
        return;
    }
    begin(out);
    buf_puts(&out->body, "{\"name\":");
    put_cstr(&out->body, name);
    buf_puts(&out->body,
             ",\"platform\":\"" SERVER_NAME
             "\",\"inputs\":[{\"name\":\"input0\",\"shape\":[-1],\"datatype\":\"UINT32\"}],"
             "\"outputs\":[{\"name\":\"output0\",\"shape\":[-1],\"datatype\":\"UINT32\"}],"
             "\"versions\":[\"1\"]}");
}

void endpoint_triton_config(const struct endpoint *ep, const char *name, struct api_answer *out) {
    const struct endpoint_conf *c = &ep->conf;
    if (!ep_serves(ep, name, strlen(name))) {
        ep_model_not_found(ep, API_ERRORS_PLAIN, name, out);
        return;
    }
    begin(out);
    buf_puts(&out->body, "{\"model_name\":");
    put_cstr(&out->body, name);
    buf_printf(&out->body,
               ",\"input_datatype\":\"INT64\",\"output_datatype\":\"INT64\",\"max_seq_len\":%d,"
               "\"npu_mem_size\":%d,"
               "\"cpu_mem_size\":%d,\"world_size\":%d,\"model_weight_path\":",
               c->max_seq_len, c->npu_mem_gb, c->cpu_mem_gb, c->world_size);
    put_cstr(&out->body, ep->root);
    buf_puts(&out->body, ",\"model_instance_type\":\"Standard\"}");
}

/* The names clients know from other servers. */
static const char *dtype_long_name(enum dtype t) {
    return t == DTYPE_BF16 ? "bfloat16" : t == DTYPE_F16 ? "float16" : "float32";
}

void endpoint_info(const struct endpoint *ep, struct api_answer *out) {
    const struct endpoint_conf *c = &ep->conf;
    const char *dtype = dtype_long_name(ep->model->weight_dtype);
    struct buf *b = &out->body;
    begin(out);
    buf_printf(b,
               "{\"docker_label\":null,\"max_batch_total_tokens\":%d,\"max_best_of\":1,\"max_"
               "concurrent_requests\":%d,"
               "\"max_stop_sequences\":null,\"max_waiting_tokens\":null,\"sha\":null,\"validation_"
               "workers\":null,"
               "\"version\":\"" SERVER_VERSION
               "\",\"waiting_served_ratio\":null,\"models\":[{\"model_device_type\":\"cpu\","
               "\"model_dtype\":\"%s\",\"model_id\":",
               c->max_prefill_tokens, c->max_batch_size, dtype);
    put_cstr(b, c->model_name);
    buf_printf(
        b,
        ",\"model_pipeline_tag\":\"text-generation\",\"model_sha\":null,\"max_total_tokens\":%d}],"
        "\"max_input_length\":%d,\"model_id\":",
        c->max_seq_len, c->max_input_token_len);
    put_cstr(b, c->model_name);
    buf_printf(b,
               ",\"model_dtype\":\"%s\",\"model_device_type\":\"cpu\",\"model_pipeline_tag\":"
               "\"text-generation\","
               "\"max_input_tokens\":%d,\"max_total_tokens\":%d,\"max_client_batch_size\":1,\"auto_"
               "truncate\":false,"
               "\"router\":\"text-generation-router\"}",
               dtype, c->max_input_token_len, c->max_seq_len);
}

void endpoint_slots(const struct endpoint *ep, const char *name, int slots_free,
                    int64_t tokens_free, struct api_answer *out) {
    if (!endpoint_has_model(ep, name)) {
        ep_model_not_found(ep, API_ERRORS_PLAIN, name, out);
        return;
    }
    begin(out);
    buf_printf(&out->body,
               "{\"total_slots\":%d,\"free_slots\":%d,\"available_tokens_length\":%lld}",
               ep->conf.max_batch_size, slots_free, (long long)tokens_free);
}
