/* prefill_answer: one object, member by member. */
#include "prefill/prefill_answer.h"

#include <string.h>
#include "common/base/base64.h"
#include "proto/prefix_msg.h"

static void put_ms(struct buf *out, const char *name, uint64_t us) {
    buf_printf(out, ",\"%s\":%.3f", name, (double)us / 1000.0);
}

static void put_output(struct buf *out, const struct prefill_answer *a) {
    const char *p = a->output_len > 0 ? a->output : "";
    if (!a->binary) {
        buf_json_str(out, p, a->output_len);
        return;
    }
    buf_putc(out, '"');
    base64_put(out, p, a->output_len);
    buf_putc(out, '"');
}

void prefill_answer_format(struct buf *out, const struct prefill_answer *a) {
    const struct infer_req *req = a->req;
    buf_puts(out, "{\"reqId\":");
    buf_json_str(out, req->head.req_id, strlen(req->head.req_id));
    buf_printf(out, ",\"isStream\":%s", req->answer.stream ? "true" : "false");
    if (req->answer.stream || a->last) {
        buf_printf(out, ",\"isLastResp\":%s,\"%s\":", a->last ? "true" : "false",
                   a->binary ? "outputBase64" : "output");
        put_output(out, a);
    }
    size_t n_prompt = 0;
    for (const struct infer_req *part = req; part != NULL; part = part->next_part)
        n_prompt += part->n_prompt;
    buf_printf(out, ",\"promptTokens\":%zu", n_prompt);
    /* a string: seeds use all 64 bits, more than readers of JSON numbers keep */
    buf_printf(out, ",\"seed\":\"%llu\"", (unsigned long long)req->sampling.seed);
    buf_printf(out, ",\"tokens\":\"%s\"", a->tokens);
    buf_printf(out, ",\"created\":%lld,\"cachedTokens\":", (long long)req->head.created_unix_s);
    for (const struct infer_req *part = req; part != NULL; part = part->next_part)
        buf_printf(out, part == req ? "[%u" : ",%u", part->measured.cached_tokens);
    buf_printf(out, "],\"choices\":%d", (int)req->sampling.n_choices);
    if (req->head.adapter != NULL) {
        buf_puts(out, ",\"adapter\":");
        buf_json_str(out, req->head.adapter, strlen(req->head.adapter));
    }
    put_ms(out, "queueWaitMs", a->queue_wait_us);
    put_ms(out, "prefillMs", a->prefill_us);
    if (a->fetched_tokens > 0)
        buf_printf(out, ",\"fetchedTokens\":%llu", (unsigned long long)a->fetched_tokens);
    if (a->n_digests > 0 && a->n_digests <= PREFIX_PROMPT_DIGESTS_MAX) {
        char text[PREFIX_PROMPT_DIGESTS_MAX * PREFIX_DIGEST_CHARS + 1];
        prefix_digests_write(text, a->digests, a->n_digests);
        buf_printf(out, ",\"blockTokens\":%d,\"prefixDigests\":\"%s\"", a->block_tokens, text);
    }
    if (a->stats != NULL) {
        buf_printf(out, ",\"kvBytes\":%llu,\"kvBlocks\":%u,\"kvBlocksHeld\":%u",
                   (unsigned long long)a->stats->bytes, a->stats->n_blocks, a->stats->n_held);
        put_ms(out, "kvTransferMs", a->stats->transfer_us);
        put_ms(out, "kvExposedMs", a->stats->exposed_us);
    }
    buf_putc(out, '}');
}
