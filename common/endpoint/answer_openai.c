/* answer_openai: chat.completion(.chunk) and text_completion (inference-api 8.7, 8.8, 9.2, 9.3). */
#include <string.h>
#include "common/endpoint/answer.h"

#define BUILD_NAME "baton"

static const char *finish_name(const struct choice *c) {
    static const char *const names[] = {
        [FINISH_NONE] = "null",           [FINISH_EOS] = "\"stop\"",
        [FINISH_STOP_TOKEN] = "\"stop\"", [FINISH_STOP_STRING] = "\"stop\"",
        [FINISH_LENGTH] = "\"length\"",   [FINISH_ABORT] = "\"stop\"",
        [FINISH_ERROR] = "\"stop\"",
    };
    if (c->finish != FINISH_NONE && c->chat != NULL && chat_text_called(c->chat))
        return "\"tool_calls\"";
    return names[c->finish];
}

/* The matched stop string or stop token id, else null (vLLM). */
static void put_stop_reason(struct buf *out, const struct choice *c) {
    if (c->finish == FINISH_STOP_STRING)
        put_cstr(out, c->req->stop[c->stop_idx]);
    else if (c->finish == FINISH_STOP_TOKEN && c->n_recs > 0)
        put_i64(out, c->recs[c->n_recs - 1].id);
    else
        buf_puts(out, "null");
}

/* ---- usage */

/* What is counted: one choice, or every sequence that was drawn for any part. */
struct counted {
    const struct choice *one; /* NULL: all */
    const struct answer *all;
};

/* The next choice to count after c; NULL at first, and when there is none. */
static const struct choice *next_counted(const struct counted *k, const struct choice *c) {
    const struct answer *a = k->all;
    if (k->one != NULL) return c == NULL ? k->one : NULL;
    size_t p = c == NULL ? 0 : c->req->head.part;
    if (c != NULL && ++c < a->parts[p].choices + a->n_choices) return c;
    for (p = c == NULL ? 0 : p + 1; p < a->n_parts; p++)
        if (a->parts[p].req != NULL) return &a->parts[p].choices[0];
    return NULL;
}

/* A member of usage or of the answer that lists something of every token counted. */
static void put_list(struct buf *out, const struct counted *k, const char *name, size_t from,
                     void (*put)(struct buf *out, const struct choice *c, size_t i)) {
    bool first = true;
    buf_puts(out, name);
    for (const struct choice *c = next_counted(k, NULL); c != NULL; c = next_counted(k, c)) {
        for (size_t i = from; i < c->n_recs; i++) {
            if (!first) buf_putc(out, ',');
            first = false;
            put(out, c, i);
        }
    }
    buf_putc(out, ']');
}

static void put_rec_batch(struct buf *out, const struct choice *c, size_t i) {
    put_u64(out, rec_batch(c, i));
}

static void put_rec_queue(struct buf *out, const struct choice *c, size_t i) {
    put_u64(out, rec_queue_us(c, i));
}

static void put_rec_ms(struct buf *out, const struct choice *c, size_t i) {
    put_ms(out, rec_step_us(c, i));
}

/* Tokens before the end tag of the thinking, where there was one. */
static void put_thinking_tokens(struct buf *out, const struct counted *k) {
    bool closed = false;
    uint64_t n = 0;
    for (const struct choice *c = next_counted(k, NULL); c != NULL; c = next_counted(k, c)) {
        bool one;
        n += choice_thinking_tokens(c, &one);
        closed = closed || one;
    }
    if (!closed) return;
    buf_puts(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":");
    put_u64(out, n);
    buf_putc(out, '}');
}

/* done: with the lists of benchmarkInfo. n_tokens: of one choice so far. */
static void put_usage_of(struct buf *out, const struct counted *k, uint64_t n_prompt,
                         uint64_t n_cached, uint64_t n_tokens, bool done) {
    const struct endpoint_conf *conf = answer_conf(k->all);
    buf_puts(out, "\"usage\":{\"prompt_tokens\":");
    put_u64(out, n_prompt);
    if (conf->prefix_cache) {
        buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
        put_u64(out, n_cached);
        buf_putc(out, '}');
    }
    buf_puts(out, ",\"completion_tokens\":");
    put_u64(out, n_tokens);
    put_thinking_tokens(out, k);
    buf_puts(out, ",\"total_tokens\":");
    put_u64(out, n_prompt + n_tokens);
    if (done && conf->benchmark_info) {
        put_list(out, k, ",\"batch_size\":[", 0, put_rec_batch);
        put_list(out, k, ",\"queue_wait_time\":[", 0, put_rec_queue);
    }
    buf_putc(out, '}');
}

static void put_choice_usage(struct buf *out, const struct choice *c, size_t n_tokens, bool done) {
    const struct counted k = {.one = c, .all = c->a};
    put_usage_of(out, &k, c->req->n_prompt, c->req->measured.cached_tokens, n_tokens, done);
}

static void put_usage(struct buf *out, const struct answer *a) {
    const struct counted k = {.all = a};
    uint64_t n_prompt = 0, n_cached = 0;
    for (size_t p = 0; p < a->n_parts; p++) {
        if (a->parts[p].req == NULL) continue;
        n_prompt += a->parts[p].req->n_prompt;
        n_cached += a->parts[p].req->measured.cached_tokens;
    }
    put_usage_of(out, &k, n_prompt, n_cached, (uint64_t)answer_n_tokens(a), true);
}

static bool no_usage(const struct infer_req *req) {
    return req->answer.include_usage_set && !req->answer.include_usage;
}

/* What a chunk says of usage: stream_options decide (8.8). last: it is the finishing chunk. True
 * when something was printed. */
static bool put_chunk_usage(struct buf *out, const struct choice *c, bool last) {
    if (no_usage(c->req)) return false;
    if (c->req->answer.continuous_usage || (last && !c->req->answer.include_usage)) {
        put_choice_usage(out, c, c->n_recs, last);
        return true;
    }
    if (c->req->answer.include_usage) buf_puts(out, "\"usage\":null");
    return c->req->answer.include_usage;
}

/* ---- both */

/* {"id":..,"object":..,"created":..,"model":.., up to where usage or choices begin. */
static void put_head(struct buf *out, const struct answer *a, const char *frame, const char *prefix,
                     const char *object) {
    const struct endpoint_conf *c = answer_conf(a);
    struct buf id = BUF_INIT;
    if (c->openai_id_prefix) buf_puts(&id, prefix);
    buf_puts(&id, a->req->head.client_id != NULL ? a->req->head.client_id : a->req->head.req_id);
    buf_puts(out, frame);
    buf_puts(out, "{\"id\":");
    buf_json_str(out, id.data != NULL ? id.data : "", id.len);
    buf_puts(out, ",\"object\":");
    put_cstr(out, object);
    buf_puts(out, ",\"created\":");
    put_i64(out, a->req->head.created_unix_s);
    buf_puts(out, ",\"model\":");
    put_cstr(out, a->req->head.model);
    if (c->error_style == ERROR_STYLE_OPENAI)
        buf_puts(out, ",\"system_fingerprint\":\"" BUILD_NAME "\",\"service_tier\":\"default\"");
    buf_putc(out, ',');
    if (id.failed) out->failed = true;
    buf_free(&id);
}

/* After the finishing chunks: the chunk with the whole usage when asked for, then the end marker.
 */
static void end_stream(struct answer *a, struct buf *out, const char *before, const char *after) {
    if (a->req->answer.include_usage) {
        buf_append(out, a->head.data, a->head.len);
        buf_puts(out, before);
        put_usage(out, a);
        buf_puts(out, after);
        buf_puts(out, "}\n\n");
    }
    buf_puts(out, "data: [DONE]\n\n");
}

/* prefill_time and decode_time_arr, with the comma before them; only with benchmarkInfo. */
static void put_times(struct buf *out, const struct answer *a) {
    const struct counted k = {.all = a};
    if (!answer_conf(a)->benchmark_info) return;
    const struct choice *c = a->shown[0];
    buf_puts(out, ",\"prefill_time\":");
    if (c->n_recs > 0)
        put_ms(out, rec_step_us(c, 0));
    else
        buf_puts(out, "null");
    put_list(out, &k, ",\"decode_time_arr\":[", 1, put_rec_ms);
}

#define CHOICES "\"choices\":[{\"index\":"

/* ---- chat */

#define DELTA ",\"delta\":{\"role\":\"assistant\","

static void chat_open(struct answer *a) {
    if (!a->req->answer.stream) return;
    put_head(&a->head, a, "data: ", "chatcmpl-", "chat.completion.chunk");
    /* mid and tail: around index and text of every chunk that is neither the last nor has
     * log-probabilities or its own usage */
    buf_append(&a->mid, a->head.data != NULL ? a->head.data : "", a->head.len);
    if (a->req->answer.include_usage) buf_puts(&a->mid, "\"usage\":null,");
    buf_puts(&a->mid, CHOICES);
    buf_puts(&a->tail, "},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void put_delta(struct buf *out, const struct choice *c) {
    put_u64(out, c->index);
    buf_puts(out, DELTA);
}

static void chat_chunk_head(struct choice *c, bool last, struct buf *out) {
    buf_append(out, c->a->head.data, c->a->head.len);
    if (put_chunk_usage(out, c, last)) buf_putc(out, ',');
    if (last && answer_conf(c->a)->full_text) {
        buf_puts(out, "\"full_text\":");
        if (c->chat != NULL)
            chat_text_content(c->chat, out);
        else
            put_all_text(out, c, NULL);
        buf_putc(out, ',');
    }
    buf_puts(out, CHOICES);
    put_delta(out, c);
}

/* The role chunk. It comes with the first token, but counts none. */
static void chat_begin(struct choice *c, struct buf *out) {
    if (c->req->answer.continuous_usage && !no_usage(c->req)) {
        buf_append(out, c->a->head.data, c->a->head.len);
        put_choice_usage(out, c, 0, false);
        buf_puts(out, "," CHOICES);
    } else {
        buf_append(out, c->a->mid.data, c->a->mid.len);
    }
    put_delta(out, c);
    buf_puts(out, "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
    put_prompt_ids(out, c);
    buf_puts(out, "}\n\n");
}

/* The members of a delta: what the text was sorted into, or its new part as it is. */
static bool put_news(struct choice *c, struct buf *out) {
    if (c->chat != NULL) return chat_text_delta(c->chat, out);
    buf_puts(out, "\"content\":");
    put_new_text(out, c);
    return true;
}

/* A chunk with the members of news. first: no role chunk went before it, and it has the prompt's
 * ids; final: the event's last one, with what its tokens bring along. */
static void chat_chunk(struct choice *c, const struct buf *news, bool first, bool final,
                       struct buf *out) {
    bool last = final && c->finish != FINISH_NONE;
    bool listed = c->req->answer.show_logprobs || c->req->answer.token_ids;
    if (!last && !c->req->answer.continuous_usage && (!listed || !(first || final))) {
        buf_append(out, c->a->mid.data, c->a->mid.len);
        put_delta(out, c);
        buf_append(out, news->data, news->len);
        buf_append(out, c->a->tail.data, c->a->tail.len);
        return;
    }
    chat_chunk_head(c, last, out);
    buf_append(out, news->data, news->len);
    buf_puts(out, "},\"logprobs\":");
    if (final)
        put_chat_logprobs(out, c, c->recs_sent, c->n_recs);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"finish_reason\":");
    buf_puts(out, last ? finish_name(c) : "null");
    if (last) {
        buf_puts(out, ",\"stop_reason\":");
        put_stop_reason(out, c);
    }
    if (final) put_choice_ids(out, c, c->recs_sent, c->n_recs);
    buf_puts(out, "}]");
    if (first) put_prompt_ids(out, c);
    buf_puts(out, "}\n\n");
}

/* A chunk for each thing there is to say; the last of them ends the event. */
static void chat_event(struct choice *c, struct buf *out) {
    struct buf news = BUF_INIT;
    bool first = c->req->sampling.beam && c->n_events == 0;
    if (!put_news(c, &news)) buf_puts(&news, "\"content\":\"\"");
    while (c->chat != NULL && chat_text_news(c->chat)) {
        chat_chunk(c, &news, first, false, out);
        first = false;
        buf_clear(&news);
        put_news(c, &news);
    }
    chat_chunk(c, &news, first, true, out);
    if (news.failed) out->failed = true;
    buf_free(&news);
}

static void chat_end(struct answer *a, struct buf *out) {
    end_stream(a, out, "", ",\"choices\":[]");
}

static void chat_choice(struct buf *out, struct choice *c) {
    buf_puts(out, "{\"index\":");
    put_u64(out, c->index);
    buf_puts(out, ",\"message\":{\"role\":\"assistant\",");
    if (c->chat != NULL) {
        chat_text_message(c->chat, out);
    } else {
        buf_puts(out, "\"content\":");
        put_all_text(out, c, c->req->answer.echo ? "" : NULL);
        buf_puts(out, ",\"tool_calls\":[]");
    }
    buf_puts(out, "},\"logprobs\":");
    put_chat_logprobs(out, c, 0, c->n_recs);
    buf_puts(out, ",\"finish_reason\":");
    buf_puts(out, finish_name(c));
    buf_puts(out, ",\"stop_reason\":");
    put_stop_reason(out, c);
    put_choice_ids(out, c, 0, c->n_recs);
    buf_putc(out, '}');
}

/* The choices of a whole answer, with the usage and times after them. */
static void put_choices(struct answer *a, struct buf *out,
                        void (*put)(struct buf *out, struct choice *c)) {
    buf_puts(out, "\"choices\":[");
    for (size_t i = 0; i < a->n_shown; i++) {
        if (i > 0) buf_putc(out, ',');
        put(out, a->shown[i]);
    }
    buf_puts(out, "],");
    put_usage(out, a);
    put_times(out, a);
}

static void chat_body(struct answer *a, struct buf *out) {
    put_head(out, a, "", "chatcmpl-", "chat.completion");
    put_choices(a, out, chat_choice);
    if (a->req->answer.show_prompt_logprobs) put_prompt_logprobs(out, a->shown[0]);
    put_prompt_ids(out, a->shown[0]);
    buf_putc(out, '}');
}

const struct answer_ops answer_chat = {
    .frames = API_FRAMES_SSE_DONE,
    .controls = true,
    .open = chat_open,
    .begin = chat_begin,
    .event = chat_event,
    .end = chat_end,
    .body = chat_body,
};

/* ---- completions */

static void completions_open(struct answer *a) {
    if (!a->req->answer.stream) return;
    put_head(&a->head, a, "data: ", "cmpl-", "text_completion");
    buf_append(&a->mid, a->head.data != NULL ? a->head.data : "", a->head.len);
    buf_puts(&a->mid, CHOICES);
    buf_puts(&a->tail, ",\"logprobs\":null,\"stop_reason\":null,\"finish_reason\":null}]");
    if (a->req->answer.include_usage) buf_puts(&a->tail, ",\"usage\":null");
    buf_puts(&a->tail, "}\n\n");
}

static void put_choice_end(struct buf *out, const struct choice *c) {
    buf_puts(out, ",\"stop_reason\":");
    put_stop_reason(out, c);
    buf_puts(out, ",\"finish_reason\":");
    buf_puts(out, finish_name(c));
}

static void completions_event(struct choice *c, struct buf *out) {
    buf_append(out, c->a->mid.data, c->a->mid.len);
    put_u64(out, c->index);
    buf_puts(out, ",\"text\":");
    put_new_text(out, c);
    if (c->finish == FINISH_NONE && !c->req->answer.show_logprobs &&
        !c->req->answer.continuous_usage && !c->req->answer.token_ids) {
        buf_append(out, c->a->tail.data, c->a->tail.len);
        return;
    }
    buf_puts(out, ",\"logprobs\":");
    put_completion_logprobs(out, c, c->recs_sent, c->n_recs,
                            c->req->answer.echo && c->n_events == 0);
    put_choice_end(out, c);
    if (c->n_events == 0) put_prompt_ids(out, c);
    put_choice_ids(out, c, c->recs_sent, c->n_recs);
    buf_puts(out, "}]");
    size_t before = out->len;
    buf_putc(out, ',');
    if (!put_chunk_usage(out, c, c->finish != FINISH_NONE) && !out->failed) out->len = before;
    buf_puts(out, "}\n\n");
}

static void completions_end(struct answer *a, struct buf *out) {
    end_stream(a, out, "\"choices\":[],", "");
}

static void completions_choice(struct buf *out, struct choice *c) {
    buf_puts(out, "{\"index\":");
    put_u64(out, c->index);
    buf_puts(out, ",\"text\":");
    put_all_text(out, c, c->req->answer.echo ? "" : NULL);
    buf_puts(out, ",\"logprobs\":");
    put_completion_logprobs(out, c, 0, c->n_recs, c->req->answer.echo);
    put_choice_end(out, c);
    if (c->req->answer.show_prompt_logprobs) put_prompt_logprobs(out, c);
    put_prompt_ids(out, c);
    put_choice_ids(out, c, 0, c->n_recs);
    buf_putc(out, '}');
}

static void completions_body(struct answer *a, struct buf *out) {
    put_head(out, a, "", "cmpl-", "text_completion");
    put_choices(a, out, completions_choice);
    buf_putc(out, '}');
}

const struct answer_ops answer_completions = {
    .frames = API_FRAMES_SSE_DONE,
    .controls = true,
    .open = completions_open,
    .event = completions_event,
    .end = completions_end,
    .body = completions_body,
};
