/* ep_triton_info: Triton's repository and shared memory over REST (kserve-runtimes 10). Models come
 * with the server, adapters over the management plane: what is served may be "loaded" again, and
 * nothing be unloaded by whoever has a key of the user plane. */
#include <stdio.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/ep.h"
#include "common/engine/lora_set.h"

static void begin(struct api_answer *out) {
    *out = (struct api_answer){.status = 200, .content_type = "application/json"};
}

static void put_ready(struct buf *out, const char *name) {
    buf_puts(out, "{\"name\":");
    put_cstr(out, name);
    buf_puts(out, ",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"}");
}

/* All that is listed is ready, so that `ready` in the body changes nothing. */
void endpoint_triton_index(const struct endpoint *ep, struct api_answer *out) {
    struct lora_info adapter;
    begin(out);
    buf_putc(&out->body, '[');
    put_ready(&out->body, ep->conf.model_name);
    for (int at = 0; ep_next_adapter(ep, &at, &adapter);) {
        buf_putc(&out->body, ',');
        put_ready(&out->body, adapter.name);
    }
    buf_putc(&out->body, ']');
}

bool ep_refuse_load(const struct endpoint *ep, enum api_errors shape, const char *name, size_t n,
                    struct api_answer *out) {
    char text[MODEL_NAME_BYTES_MAX + 160];
    if (ep_serves(ep, name, n)) return false;
    snprintf(text, sizeof(text),
             "failed to load '%.*s': LoRA adapters are loaded over the management plane, POST "
             "/v1/load_lora_adapter",
             MODEL_NAME_BYTES_MAX, name);
    ep_answer_error(ep, shape, 400, text, out);
    return true;
}

void ep_refuse_unload(const struct endpoint *ep, enum api_errors shape, const char *name, size_t n,
                      struct api_answer *out) {
    char text[MODEL_NAME_BYTES_MAX + 160];
    snprintf(text, sizeof(text), "failed to unload '%.*s': %s", MODEL_NAME_BYTES_MAX, name,
             !ep_serves(ep, name, n)        ? "it is not loaded"
             : endpoint_has_model(ep, name) ? "the model is served as long as the server runs"
                                            : "LoRA adapters are unloaded over the management "
                                              "plane, POST /v1/unload_lora_adapter");
    ep_answer_error(ep, shape, 400, text, out);
}

void endpoint_triton_load(const struct endpoint *ep, const char *name, struct api_answer *out) {
    if (!ep_refuse_load(ep, API_ERRORS_PLAIN, name, strlen(name), out)) begin(out); /* empty */
}

void endpoint_triton_unload(const struct endpoint *ep, const char *name, struct api_answer *out) {
    ep_refuse_unload(ep, API_ERRORS_PLAIN, name, strlen(name), out);
}

/* Nothing is ever registered. */
void endpoint_triton_regions(const struct endpoint *ep, struct api_answer *out) {
    (void)ep;
    begin(out);
    buf_puts(&out->body, "[]");
}
