/* answer_vllm: {"text":[..]} of vLLM's /generate (inference-api 7.2): one element per choice. */
#include "common/endpoint/answer.h"

static void vllm_body(struct answer *a, struct buf *out) {
    buf_puts(out, "{\"text\":[");
    for (size_t i = 0; i < a->n_shown; i++) {
        if (i > 0) buf_putc(out, ',');
        put_all_text(out, a->shown[i], answer_conf(a)->vllm_legacy_space ? " " : "");
    }
    buf_puts(out, "]}");
}

static void vllm_event(struct choice *c, struct buf *out) {
    struct answer *a = c->a;
    buf_puts(out, "{\"text\":[");
    for (size_t i = 0; i < a->n_shown; i++) {
        if (i > 0) buf_putc(out, ',');
        put_new_text(out, a->shown[i]);
    }
    buf_puts(out, "]}");
    buf_putc(out, answer_conf(a)->vllm_delimiter);
}

static void vllm_error(struct answer *a, const char *json, struct buf *out) {
    buf_puts(out, json);
    buf_putc(out, answer_conf(a)->vllm_delimiter);
}

const struct answer_ops answer_vllm = {
    .best_first = true,
    .controls = true,
    .frames = API_FRAMES_OBJECTS,
    .joint = true,
    .event = vllm_event,
    .body = vllm_body,
    .error = vllm_error,
};
