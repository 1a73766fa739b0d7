/* answer_vllm: {"text":[..]} of vLLM's /generate (inference-api 7.2). */
#include "common/endpoint/answer.h"

static void vllm_body(struct answer *a, struct buf *out) {
    buf_puts(out, "{\"text\":[");
    put_all_text(out, a, answer_conf(a)->vllm_legacy_space ? " " : "");
    buf_puts(out, "]}");
}

static void vllm_event(struct answer *a, struct buf *out) {
    buf_puts(out, "{\"text\":[");
    put_new_text(out, a);
    buf_puts(out, "]}");
    buf_putc(out, answer_conf(a)->vllm_delimiter);
}

static void vllm_error(struct answer *a, const char *json, struct buf *out) {
    buf_puts(out, json);
    buf_putc(out, answer_conf(a)->vllm_delimiter);
}

const struct answer_ops answer_vllm = {
    .event = vllm_event,
    .body = vllm_body,
    .error = vllm_error,
};
