/* answer_anthropic: the message of Anthropic's Messages, and its stream of blocks (client-apis 2.6,
 * 2.7). */
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/tool_parse.h"

/* Clients send thinking back only with a signature, which nobody checks. */
#define SIGNATURE "\"YmF0b24=\""

static const char *stop_reason(const struct choice *c) {
    bool called = c->chat != NULL && chat_text_called(c->chat);
    if (c->finish == FINISH_STOP_STRING) return "\"stop_sequence\"";
    if (c->finish == FINISH_LENGTH) {
        size_t n = c->req->n_prompt + c->n_recs;
        return n >= (size_t)answer_conf(c->a)->max_seq_len ? "\"model_context_window_exceeded\""
                                                           : "\"max_tokens\"";
    }
    return called ? "\"tool_use\"" : "\"end_turn\"";
}

static void put_stop(struct buf *out, const struct choice *c) {
    buf_puts(out, "\"stop_reason\":");
    buf_puts(out, stop_reason(c));
    buf_puts(out, ",\"stop_sequence\":");
    if (c->finish == FINISH_STOP_STRING)
        put_cstr(out, c->req->stop[c->stop_idx]);
    else
        buf_puts(out, "null");
}

/* What the prefix cache held is no input. */
static void put_usage(struct buf *out, const struct choice *c, size_t n_tokens, bool details) {
    const struct infer_req *req = c->req;
    uint64_t cached = req->measured.cached_tokens;
    bool closed;
    buf_puts(out, "\"usage\":{\"input_tokens\":");
    put_u64(out, req->n_prompt > cached ? req->n_prompt - cached : 0);
    buf_puts(out, ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":");
    put_u64(out, cached);
    buf_puts(out, ",\"output_tokens\":");
    put_u64(out, n_tokens);
    if (details) {
        buf_puts(out, ",\"output_tokens_details\":{\"thinking_tokens\":");
        put_u64(out, choice_thinking_tokens(c, &closed));
        buf_puts(out, "},\"cache_creation\":null,\"server_tool_use\":null,"
                      "\"service_tier\":\"standard\"");
    }
    buf_putc(out, '}');
}

static void put_message_head(struct buf *out, const struct choice *c) {
    buf_puts(out, "{\"id\":\"msg_");
    buf_puts(out, c->req->head.req_id);
    buf_puts(out, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    put_cstr(out, c->req->head.model);
    buf_puts(out, ",\"content\":[");
}

static void put_call_name(struct buf *out, const struct tool_call *call) {
    buf_json_text(out, call->name.data != NULL ? call->name.data : "", call->name.len, true);
}

/* ---- whole */

static void put_block(struct buf *out, const struct chat_block *b) {
    switch (b->kind) {
    case CHAT_THINKING:
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
        put_block_text(out, b);
        buf_puts(out, ",\"signature\":" SIGNATURE "}");
        break;
    case CHAT_CONTENT:
        buf_puts(out, "{\"type\":\"text\",\"text\":");
        put_block_text(out, b);
        buf_putc(out, '}');
        break;
    case CHAT_CALL:
        buf_puts(out, "{\"type\":\"tool_use\",\"id\":");
        put_call_id(out, "toolu_", 24, b->call);
        buf_puts(out, ",\"name\":");
        put_call_name(out, b->call);
        buf_puts(out, ",\"input\":");
        buf_append(out, b->n > 0 ? b->p : "{}", b->n > 0 ? b->n : 2);
        buf_putc(out, '}');
    }
}

static void anthropic_body(struct answer *a, struct buf *out) {
    struct choice *c = a->shown[0];
    put_message_head(out, c);
    for (size_t i = 0; i < choice_n_blocks(c); i++) {
        struct chat_block b = choice_block(c, i);
        if (i > 0) buf_putc(out, ',');
        put_block(out, &b);
    }
    buf_puts(out, "],");
    put_stop(out, c);
    buf_puts(out, ",\"stop_details\":null,\"container\":null,");
    put_usage(out, c, c->n_recs, true);
    buf_putc(out, '}');
}

/* ---- stream */

#define EVENT(name) "event: " name "\ndata: {\"type\":\"" name "\""

static void anthropic_begin(struct choice *c, struct buf *out) {
    buf_puts(out, EVENT("message_start") ",\"message\":");
    put_message_head(out, c);
    buf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(out, c, 1, false);
    buf_puts(out, "}}\n\n" EVENT("ping") "}\n\n");
}

static void put_index(struct buf *out, const struct choice *c) {
    buf_puts(out, ",\"index\":");
    put_u64(out, c->n_blocks - 1);
}

static void put_delta(struct buf *out, const struct choice *c, const char *type, const char *key,
                      const struct chat_block *b) {
    buf_puts(out, EVENT("content_block_delta"));
    put_index(out, c);
    buf_puts(out, ",\"delta\":{\"type\":\"");
    buf_puts(out, type);
    buf_puts(out, "\",\"");
    buf_puts(out, key);
    buf_puts(out, "\":");
    put_block_text(out, b);
    buf_puts(out, "}}\n\n");
}

static void close_block(struct choice *c, struct buf *out) {
    if (!c->block_open) return;
    if (c->block_kind == CHAT_THINKING) {
        buf_puts(out, EVENT("content_block_delta"));
        put_index(out, c);
        buf_puts(out, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":" SIGNATURE "}}\n\n");
    }
    buf_puts(out, EVENT("content_block_stop"));
    put_index(out, c);
    buf_puts(out, "}\n\n");
    c->block_open = false;
}

static void open_block(struct choice *c, const struct chat_block *b, struct buf *out) {
    c->n_blocks++;
    c->block_open = true;
    c->block_kind = b->kind;
    buf_puts(out, EVENT("content_block_start"));
    put_index(out, c);
    buf_puts(out, ",\"content_block\":");
    switch (b->kind) {
    case CHAT_THINKING:
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
        break;
    case CHAT_CONTENT: buf_puts(out, "{\"type\":\"text\",\"text\":\"\"}"); break;
    case CHAT_CALL:
        buf_puts(out, "{\"type\":\"tool_use\",\"id\":");
        put_call_id(out, "toolu_", 24, b->call);
        buf_puts(out, ",\"name\":");
        put_call_name(out, b->call);
        buf_puts(out, ",\"input\":{}}");
    }
    buf_puts(out, "}\n\n");
}

static void anthropic_event(struct choice *c, struct buf *out) {
    static const char *const types[][2] = {[CHAT_THINKING] = {"thinking_delta", "thinking"},
                                           [CHAT_CONTENT] = {"text_delta", "text"},
                                           [CHAT_CALL] = {"input_json_delta", "partial_json"}};
    struct chat_block b;
    size_t i;
    while (choice_take(c, &i, &b)) {
        if (i >= c->n_blocks) {
            close_block(c, out);
            open_block(c, &b, out);
        }
        if (b.n > 0) put_delta(out, c, types[b.kind][0], types[b.kind][1], &b);
    }
    if (c->finish == FINISH_NONE) return;
    close_block(c, out);
    buf_puts(out, EVENT("message_delta") ",\"delta\":{");
    put_stop(out, c);
    buf_puts(out, ",\"stop_details\":null,\"container\":null},");
    put_usage(out, c, c->n_recs, false);
    buf_puts(out, "}\n\n" EVENT("message_stop") "}\n\n");
}

const struct answer_ops answer_anthropic = {
    .frames = API_FRAMES_SSE_NAMED,
    .controls = true,
    .blocks = true,
    .begin = anthropic_begin,
    .event = anthropic_event,
    .body = anthropic_body,
};
