/* answer_ollama: the objects of Ollama's generate and chat, one a line in a stream (client-apis
 * 3.1 to 3.3). All of a stream's have the time at which the request came. */
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/tool_parse.h"

static bool is_chat(const struct choice *c) {
    return c->req->answer.api == API_OLLAMA_CHAT;
}

static void put_head(struct buf *out, const struct choice *c) {
    buf_puts(out, "{\"model\":");
    put_cstr(out, c->req->head.model);
    buf_puts(out, ",\"created_at\":");
    put_rfc3339(out, c->req->head.created_unix_s);
}

/* Text of blocks of a kind, [0, n) of them or one alone, as one string. */
static void put_joined(struct buf *out, const struct choice *c, enum chat_kind kind) {
    struct buf *joined = &c->a->scratch;
    buf_clear(joined);
    for (size_t i = 0; i < choice_n_blocks(c); i++) {
        struct chat_block b = choice_block(c, i);
        if (b.kind == kind && b.n > 0) buf_append(joined, b.p, b.n);
    }
    buf_json_text(out, joined->data != NULL ? joined->data : "", joined->len, true);
}

static size_t n_of_kind(const struct choice *c, enum chat_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < choice_n_blocks(c); i++) n += choice_block(c, i).kind == kind;
    return n;
}

/* b: of CHAT_CALL, complete. */
static void put_call(struct buf *out, const struct chat_block *b, size_t idx) {
    buf_puts(out, "{\"id\":");
    put_cstr(out, b->call->id);
    buf_puts(out, ",\"function\":{\"index\":");
    put_u64(out, idx);
    buf_puts(out, ",\"name\":");
    buf_json_text(out, b->call->name.data != NULL ? b->call->name.data : "", b->call->name.len,
                  true);
    buf_puts(out, ",\"arguments\":");
    buf_append(out, b->n > 0 ? b->p : "{}", b->n > 0 ? b->n : 2);
    buf_puts(out, "}}");
}

/* What a chat's message, or a generation, says: its text, then what else is there. */
static void begin_text(struct buf *out, const struct choice *c) {
    buf_puts(out,
             is_chat(c) ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
}

static void end_text(struct buf *out, const struct choice *c) {
    if (is_chat(c)) buf_putc(out, '}');
}

static void put_logprobs(struct buf *out, const struct choice *c, size_t from) {
    if (!c->req->answer.show_logprobs) return;
    buf_puts(out, ",\"logprobs\":");
    put_logprob_items(out, c, from, c->n_recs);
}

/* ---- the end */

static void put_ns(struct buf *out, const char *key, uint64_t us) {
    buf_printf(out, ",\"%s\":%llu", key, (unsigned long long)us * 1000);
}

/* The prompt and what was generated, as the next request may bring it along. */
static void put_context(struct buf *out, const struct choice *c) {
    buf_puts(out, ",\"context\":[");
    for (size_t i = 0; i < c->req->n_prompt; i++) {
        if (i > 0) buf_putc(out, ',');
        put_i64(out, c->req->ids[i]);
    }
    for (size_t i = 0; i < c->n_recs; i++) {
        buf_putc(out, ',');
        put_i64(out, c->recs[i].id);
    }
    buf_putc(out, ']');
}

/* done, why, counts and times; of what another instance generated the times are lost. */
static void put_done(struct buf *out, const struct choice *c) {
    uint64_t prompt_us = c->n_recs > 0 ? rec_step_us(c, 0) : 0, eval_us = 0,
             queue_us = c->n_recs > 0 ? rec_queue_us(c, 0) : 0;
    for (size_t i = 1; i < c->n_recs; i++) eval_us += rec_step_us(c, i);
    buf_puts(out, ",\"done\":true,\"done_reason\":");
    buf_puts(out, c->finish == FINISH_LENGTH ? "\"length\"" : "\"stop\"");
    if (!is_chat(c) && !c->req->answer.hide_context) put_context(out, c);
    put_ns(out, "total_duration", prompt_us + eval_us);
    put_ns(out, "load_duration", 0);
    buf_printf(out, ",\"prompt_eval_count\":%zu", c->req->n_prompt);
    put_ns(out, "prompt_eval_duration", prompt_us > queue_us ? prompt_us - queue_us : 0);
    buf_printf(out, ",\"eval_count\":%zu", c->n_recs);
    put_ns(out, "eval_duration", eval_us);
    buf_putc(out, '}');
}

/* ---- whole */

static void ollama_body(struct answer *a, struct buf *out) {
    struct choice *c = a->shown[0];
    size_t n = 0;
    put_head(out, c);
    begin_text(out, c);
    put_joined(out, c, CHAT_CONTENT);
    if (n_of_kind(c, CHAT_THINKING) > 0) {
        buf_puts(out, ",\"thinking\":");
        put_joined(out, c, CHAT_THINKING);
    }
    for (size_t i = 0; i < choice_n_blocks(c); i++) {
        struct chat_block b = choice_block(c, i);
        if (b.kind != CHAT_CALL) continue;
        buf_puts(out, n == 0 ? ",\"tool_calls\":[" : ",");
        put_call(out, &b, n++);
    }
    if (n > 0) buf_putc(out, ']');
    end_text(out, c);
    put_logprobs(out, c, 0);
    put_done(out, c);
}

/* ---- stream */

static void put_piece(struct buf *out, struct choice *c, const struct chat_block *b) {
    put_head(out, c);
    begin_text(out, c);
    if (b->kind == CHAT_CONTENT)
        put_block_text(out, b);
    else
        buf_puts(out, "\"\"");
    if (b->kind == CHAT_THINKING) {
        buf_puts(out, ",\"thinking\":");
        put_block_text(out, b);
    } else if (b->kind == CHAT_CALL) {
        buf_puts(out, ",\"tool_calls\":[");
        put_call(out, b, c->n_blocks++);
        buf_putc(out, ']');
    }
    end_text(out, c);
    put_logprobs(out, c, c->recs_sent);
    c->recs_sent = c->n_recs;
    buf_puts(out, ",\"done\":false}\n");
}

static void ollama_event(struct choice *c, struct buf *out) {
    struct chat_block b;
    size_t i;
    while (choice_take(c, &i, &b))
        if (b.n > 0 || b.kind == CHAT_CALL) put_piece(out, c, &b);
    if (c->finish == FINISH_NONE) return;
    put_head(out, c);
    begin_text(out, c);
    buf_puts(out, "\"\"");
    end_text(out, c);
    if (c->recs_sent < c->n_recs) put_logprobs(out, c, c->recs_sent);
    put_done(out, c);
    buf_putc(out, '\n');
}

#define OLLAMA_OPS                                                                                 \
    {                                                                                              \
        .frames = API_FRAMES_NDJSON, .controls = true, .blocks = true, .whole_calls = true,        \
        .event = ollama_event, .body = ollama_body,                                                \
    }
const struct answer_ops answer_ollama_chat = OLLAMA_OPS, answer_ollama_generate = OLLAMA_OPS;
