/* answer_openai: chat.completion(.chunk) and text_completion (inference-api 8.7, 8.8, 9.2, 9.3). */
#include <string.h>
#include "common/endpoint/answer.h"

#define BUILD_NAME "baton"

static const char *finish_name(enum finish f) {
    static const char *const names[] = {
        [FINISH_NONE] = "null",           [FINISH_EOS] = "\"stop\"",
        [FINISH_STOP_TOKEN] = "\"stop\"", [FINISH_STOP_STRING] = "\"stop\"",
        [FINISH_LENGTH] = "\"length\"",   [FINISH_ABORT] = "\"stop\"",
        [FINISH_ERROR] = "\"stop\"",
    };
    return names[f];
}

/* The matched stop string or stop token id, else null (vLLM). */
static void put_stop_reason(struct buf *out, const struct answer *a) {
    if (a->finish == FINISH_STOP_STRING)
        put_cstr(out, a->req->stop[a->stop_idx]);
    else if (a->finish == FINISH_STOP_TOKEN && a->n_recs > 0)
        put_i64(out, a->recs[a->n_recs - 1].id);
    else
        buf_puts(out, "null");
}

/* ---- usage */

static void put_lists(struct buf *out, const struct answer *a) {
    buf_puts(out, ",\"batch_size\":[");
    for (size_t i = 0; i < a->n_recs; i++) {
        if (i > 0) buf_putc(out, ',');
        put_u64(out, rec_batch(a, i));
    }
    buf_puts(out, "],\"queue_wait_time\":[");
    for (size_t i = 0; i < a->n_recs; i++) {
        if (i > 0) buf_putc(out, ',');
        put_u64(out, rec_queue_us(a, i));
    }
    buf_putc(out, ']');
}

static void put_usage(struct buf *out, const struct answer *a, size_t n_tokens, bool whole) {
    buf_puts(out, "\"usage\":{\"prompt_tokens\":");
    put_u64(out, a->req->n_prompt);
    if (answer_conf(a)->prefix_cache) {
        buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
        put_u64(out, a->req->cached_tokens);
        buf_putc(out, '}');
    }
    buf_puts(out, ",\"completion_tokens\":");
    put_u64(out, n_tokens);
    buf_puts(out, ",\"total_tokens\":");
    put_u64(out, a->req->n_prompt + n_tokens);
    if (whole && answer_conf(a)->benchmark_info) put_lists(out, a);
    buf_putc(out, '}');
}

static bool no_usage(const struct answer *a) {
    return a->req->include_usage_set && !a->req->include_usage;
}

/* What a chunk says of usage: stream_options decide (8.8). True when something was printed. */
static bool put_chunk_usage(struct buf *out, const struct answer *a) {
    bool last = a->finish != FINISH_NONE;
    if (no_usage(a)) return false;
    if (a->req->continuous_usage || (last && !a->req->include_usage)) {
        put_usage(out, a, a->n_recs, last);
        return true;
    }
    if (a->req->include_usage) buf_puts(out, "\"usage\":null");
    return a->req->include_usage;
}

/* ---- both */

/* {"id":..,"object":..,"created":..,"model":.., up to where usage or choices begin. */
static void put_head(struct buf *out, const struct answer *a, const char *frame, const char *prefix,
                     const char *object) {
    const struct endpoint_conf *c = answer_conf(a);
    struct buf id = BUF_INIT;
    if (c->openai_id_prefix) buf_puts(&id, prefix);
    buf_puts(&id, a->req->req_id);
    buf_puts(out, frame);
    buf_puts(out, "{\"id\":");
    buf_json_str(out, id.data != NULL ? id.data : "", id.len);
    buf_puts(out, ",\"object\":");
    put_cstr(out, object);
    buf_puts(out, ",\"created\":");
    put_i64(out, a->req->created_unix_s);
    buf_puts(out, ",\"model\":");
    put_cstr(out, a->req->model);
    if (c->error_style == ERROR_STYLE_OPENAI)
        buf_puts(out, ",\"system_fingerprint\":\"" BUILD_NAME "\"");
    buf_putc(out, ',');
    if (id.failed) out->failed = true;
    buf_free(&id);
}

static void put_frame_error(struct answer *a, const char *json, struct buf *out) {
    (void)a;
    buf_puts(out, "data: ");
    buf_puts(out, json);
    buf_puts(out, "\n\ndata: [DONE]\n\n");
}

/* After the finishing chunk: the chunk with the whole usage when asked for, then the end marker. */
static void end_stream(struct answer *a, struct buf *out, const char *before, const char *after) {
    if (a->req->include_usage) {
        buf_append(out, a->head.data, a->head.len);
        buf_puts(out, before);
        put_usage(out, a, a->n_recs, true);
        buf_puts(out, after);
        buf_puts(out, "}\n\n");
    }
    buf_puts(out, "data: [DONE]\n\n");
}

/* prefill_time and decode_time_arr, with the comma before them; only with benchmarkInfo. */
static void put_times(struct buf *out, const struct answer *a) {
    if (!answer_conf(a)->benchmark_info) return;
    buf_puts(out, ",\"prefill_time\":");
    if (a->n_recs > 0)
        put_ms(out, rec_step_us(a, 0));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"decode_time_arr\":[");
    for (size_t i = 1; i < a->n_recs; i++) {
        if (i > 1) buf_putc(out, ',');
        put_ms(out, rec_step_us(a, i));
    }
    buf_putc(out, ']');
}

/* ---- chat */

#define DELTA "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":"

static void chat_open(struct answer *a) {
    if (!a->req->stream) return;
    put_head(&a->head, a, "data: ", "chatcmpl-", "chat.completion.chunk");
    /* mid and tail: around the text of every chunk that is neither the last nor has
     * log-probabilities or its own usage */
    buf_append(&a->mid, a->head.data != NULL ? a->head.data : "", a->head.len);
    if (a->req->include_usage) buf_puts(&a->mid, "\"usage\":null,");
    buf_puts(&a->mid, DELTA);
    buf_puts(&a->tail, "},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void chat_chunk_head(struct answer *a, struct buf *out) {
    buf_append(out, a->head.data, a->head.len);
    if (put_chunk_usage(out, a)) buf_putc(out, ',');
    if (a->finish != FINISH_NONE && answer_conf(a)->full_text) {
        buf_puts(out, "\"full_text\":");
        put_all_text(out, a, NULL);
        buf_putc(out, ',');
    }
    buf_puts(out, DELTA);
}

/* The role chunk. It comes with the first token, but counts none. */
static void chat_begin(struct answer *a, struct buf *out) {
    if (a->req->continuous_usage && !no_usage(a)) {
        buf_append(out, a->head.data, a->head.len);
        put_usage(out, a, 0, false);
        buf_puts(out, "," DELTA);
    } else {
        buf_append(out, a->mid.data, a->mid.len);
    }
    buf_puts(out, "\"\"");
    buf_append(out, a->tail.data, a->tail.len);
}

static void chat_event(struct answer *a, struct buf *out) {
    if (a->finish == FINISH_NONE && !a->req->sampling.logprobs && !a->req->continuous_usage) {
        buf_append(out, a->mid.data, a->mid.len);
        put_new_text(out, a);
        buf_append(out, a->tail.data, a->tail.len);
        return;
    }
    chat_chunk_head(a, out);
    put_new_text(out, a);
    buf_puts(out, "},\"logprobs\":");
    put_chat_logprobs(out, a, a->recs_sent, a->n_recs);
    buf_puts(out, ",\"finish_reason\":");
    buf_puts(out, finish_name(a->finish));
    if (a->finish != FINISH_NONE) {
        buf_puts(out, ",\"stop_reason\":");
        put_stop_reason(out, a);
    }
    buf_puts(out, "}]}\n\n");
}

static void chat_end(struct answer *a, struct buf *out) {
    end_stream(a, out, "", ",\"choices\":[]");
}

static void chat_body(struct answer *a, struct buf *out) {
    put_head(out, a, "", "chatcmpl-", "chat.completion");
    buf_puts(out, "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
    put_all_text(out, a, a->req->echo ? "" : NULL);
    buf_puts(out, ",\"tool_calls\":[]},\"logprobs\":");
    put_chat_logprobs(out, a, 0, a->n_recs);
    buf_puts(out, ",\"finish_reason\":");
    buf_puts(out, finish_name(a->finish));
    buf_puts(out, ",\"stop_reason\":");
    put_stop_reason(out, a);
    buf_puts(out, "}],");
    put_usage(out, a, a->n_recs, true);
    put_times(out, a);
    buf_putc(out, '}');
}

const struct answer_ops answer_chat = {
    .openai_errors = true,
    .open = chat_open,
    .begin = chat_begin,
    .event = chat_event,
    .end = chat_end,
    .body = chat_body,
    .error = put_frame_error,
};

/* ---- completions */

#define CHOICE_TEXT "\"choices\":[{\"index\":0,\"text\":"

static void completions_open(struct answer *a) {
    if (!a->req->stream) return;
    put_head(&a->head, a, "data: ", "cmpl-", "text_completion");
    buf_append(&a->mid, a->head.data != NULL ? a->head.data : "", a->head.len);
    buf_puts(&a->mid, CHOICE_TEXT);
    buf_puts(&a->tail, ",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":null}]");
    if (a->req->include_usage) buf_puts(&a->tail, ",\"usage\":null");
    buf_puts(&a->tail, "}\n\n");
}

static void put_choice_end(struct buf *out, const struct answer *a) {
    buf_puts(out, ",\"stop_reason\":");
    put_stop_reason(out, a);
    buf_puts(out, ",\"finish_reason\":");
    buf_puts(out, finish_name(a->finish));
    buf_puts(out, "}]");
}

static void completions_event(struct answer *a, struct buf *out) {
    buf_append(out, a->mid.data, a->mid.len);
    put_new_text(out, a);
    if (a->finish == FINISH_NONE && !a->req->sampling.logprobs && !a->req->continuous_usage) {
        buf_append(out, a->tail.data, a->tail.len);
        return;
    }
    buf_puts(out, ",\"logprobs\":");
    put_completion_logprobs(out, a, a->recs_sent, a->n_recs, a->req->echo && a->n_events == 0);
    put_choice_end(out, a);
    size_t before = out->len;
    buf_putc(out, ',');
    if (!put_chunk_usage(out, a) && !out->failed) out->len = before;
    buf_puts(out, "}\n\n");
}

static void completions_end(struct answer *a, struct buf *out) {
    end_stream(a, out, "\"choices\":[],", "");
}

static void completions_body(struct answer *a, struct buf *out) {
    put_head(out, a, "", "cmpl-", "text_completion");
    buf_puts(out, CHOICE_TEXT);
    put_all_text(out, a, a->req->echo ? "" : NULL);
    buf_puts(out, ",\"logprobs\":");
    put_completion_logprobs(out, a, 0, a->n_recs, a->req->echo);
    put_choice_end(out, a);
    buf_putc(out, ',');
    put_usage(out, a, a->n_recs, true);
    put_times(out, a);
    buf_putc(out, '}');
}

const struct answer_ops answer_completions = {
    .openai_errors = true,
    .open = completions_open,
    .event = completions_event,
    .end = completions_end,
    .body = completions_body,
    .error = put_frame_error,
};
