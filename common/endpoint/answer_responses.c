/* answer_responses: the response of OpenAI's Responses, and its stream of numbered events
 * (client-apis 1.3, 1.8, 1.10 to 1.12). A block of the answer is an output item; one that is only
 * white space is none, for clients read every text as JSON where they asked for JSON. */
#include <stdlib.h>
#include <string.h>
#include "common/base/base64.h"
#include "common/endpoint/answer.h"
#include "common/endpoint/tool_parse.h"
#include "proto/json.h"

/* ---- what the request says of its tools: prepared once, in mid: for each tool that is no plain
 * function a letter, its name, a zero; of a namespace ("n") also that name, as JSON, and a zero */

static void note_tool(struct buf *names, char kind, const struct json_value *tool,
                      const char *space) {
    const char *name;
    size_t n;
    if (json_get_str(tool, "name", &name, &n) != JSON_OK || strlen(name) != n) return;
    buf_putc(names, kind);
    buf_append(names, name, n + 1);
    if (space == NULL) return;
    buf_json_str(names, space, strlen(space));
    buf_putc(names, '\0');
}

static void note_tools(struct buf *names, const struct json_value *tools, const char *space) {
    struct json_value *inside;
    const char *type, *name;
    size_t n;
    for (size_t i = 0; i < json_arr_len(tools); i++) {
        const struct json_value *tool = json_arr_at(tools, i);
        if (json_get_str(tool, "type", &type, &n) != JSON_OK) continue;
        if (strcmp(type, "custom") == 0) note_tool(names, 'c', tool, NULL);
        if (space != NULL && strcmp(type, "function") == 0) note_tool(names, 'n', tool, space);
        if (strcmp(type, "namespace") == 0 && space == NULL &&
            json_get_str(tool, "name", &name, &n) == JSON_OK &&
            json_get_arr(tool, "tools", &inside) == JSON_OK)
            note_tools(names, inside, name);
    }
}

static void responses_open(struct answer *a) {
    const char *echoed = a->req->answer.echoed != NULL ? a->req->answer.echoed : "{}";
    const size_t n = strlen(echoed);
    struct json_value *o = NULL, *tools;
    if (n > 2) buf_append(&a->head, echoed + 1, n - 2);
    if (a->req->answer.tools == TOOLS_NONE) return;
    if (json_read(&o, echoed, n, NULL, NULL) == ERR_NO_MEMORY) a->no_memory = true;
    if (json_get_arr(o, "tools", &tools) == JSON_OK) note_tools(&a->mid, tools, NULL);
    json_put(o);
}

/* 'c': custom; 'n': of the namespace *space (JSON); 0: a function. */
static char tool_kind(const struct answer *a, const struct tool_call *call, const char **space) {
    const char *p = a->mid.data, *end = p != NULL ? p + a->mid.len : p;
    const size_t n = call->name.len;
    while (p < end) {
        const char kind = *p, *name = p + 1;
        p = name + strlen(name) + 1;
        *space = p;
        if (kind == 'n') p += strlen(p) + 1;
        if (strlen(name) == n && n > 0 && memcmp(name, call->name.data, n) == 0) return kind;
    }
    return 0;
}

static bool is_custom(const struct choice *c, const struct chat_block *b) {
    const char *space;
    return b->kind == CHAT_CALL && tool_kind(c->a, b->call, &space) == 'c';
}

/* ---- items */

static bool is_blank(const struct chat_block *b) {
    for (size_t i = 0; b->kind == CHAT_CONTENT && i < b->n; i++)
        if (strchr(" \t\r\n", b->p[i]) == NULL || b->p[i] == '\0') return false;
    return b->kind == CHAT_CONTENT;
}

/* "rs_<request>_<item>" */
static void put_item_id(struct buf *out, const struct choice *c, const struct chat_block *b,
                        size_t item) {
    const char *prefix = b->kind == CHAT_THINKING  ? "\"rs_"
                         : b->kind == CHAT_CONTENT ? "\"msg_"
                         : is_custom(c, b)         ? "\"ctc_"
                                                   : "\"fc_";
    buf_puts(out, prefix);
    buf_puts(out, c->req->head.req_id);
    buf_putc(out, '_');
    put_u64(out, item);
    buf_putc(out, '"');
}

/* Entries of the tokens of a block, from that one on. */
static void put_token_logprobs(struct buf *out, const struct choice *c, size_t block, size_t from) {
    size_t n = 0;
    buf_putc(out, '[');
    for (size_t i = from; c->req->answer.show_logprobs && i < c->n_recs; i++) {
        if (c->recs[i].block != block + 1) continue;
        if (n++ > 0) buf_putc(out, ',');
        put_chat_token_logprob(out, c, i);
    }
    buf_putc(out, ']');
}

static void put_text_part(struct buf *out, const struct choice *c, const struct chat_block *b,
                          size_t block) {
    if (b->kind == CHAT_THINKING) {
        buf_puts(out, "{\"type\":\"reasoning_text\",\"text\":");
        put_block_text(out, b);
    } else {
        buf_puts(out, "{\"type\":\"output_text\",\"text\":");
        put_block_text(out, b);
        buf_puts(out, ",\"annotations\":[],\"logprobs\":");
        put_token_logprobs(out, c, block, 0);
    }
    buf_putc(out, '}');
}

static void put_empty_part(struct buf *out, enum chat_kind kind) {
    buf_puts(out, kind == CHAT_THINKING
                      ? "{\"type\":\"reasoning_text\",\"text\":\"\"}"
                      : "{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[],"
                        "\"logprobs\":[]}");
}

static void put_summary_part(struct buf *out, const struct chat_block *b) {
    buf_puts(out, "{\"type\":\"summary_text\",\"text\":");
    put_block_text(out, b);
    buf_putc(out, '}');
}

/* The input of a custom tool's call: the one parameter that the model was shown. */
static void put_custom_input(struct buf *out, const struct chat_block *b) {
    struct json_value *o = NULL;
    const char *s;
    size_t n;
    if (b->n > 0) json_read(&o, b->p, b->n, NULL, NULL);
    if (json_get_str(o, "input", &s, &n) == JSON_OK)
        buf_json_text(out, s, n, true);
    else
        put_block_text(out, b);
    json_put(o);
}

static void put_arguments(struct buf *out, const struct chat_block *b) {
    if (b->n == 0 && b->call->complete)
        buf_puts(out, "\"{}\"");
    else
        put_block_text(out, b);
}

static void put_call(struct buf *out, const struct choice *c, const struct chat_block *b,
                     bool begun) {
    const char *space, kind = tool_kind(c->a, b->call, &space);
    buf_puts(out, ",\"call_id\":");
    put_call_id(out, "call_", 24, b->call);
    buf_puts(out, ",\"name\":");
    buf_json_text(out, b->call->name.data != NULL ? b->call->name.data : "", b->call->name.len,
                  true);
    if (kind == 'n') {
        buf_puts(out, ",\"namespace\":");
        buf_puts(out, space);
    }
    buf_puts(out, kind == 'c' ? ",\"input\":" : ",\"arguments\":");
    if (begun)
        buf_puts(out, "\"\"");
    else if (kind == 'c')
        put_custom_input(out, b);
    else
        put_arguments(out, b);
}

/* begun: nothing of it is there yet. status: with quotes. */
static void put_item(struct buf *out, const struct choice *c, const struct chat_block *b,
                     size_t block, size_t item, const char *status, bool begun) {
    buf_puts(out, b->kind == CHAT_THINKING  ? "{\"type\":\"reasoning\",\"id\":"
                  : b->kind == CHAT_CONTENT ? "{\"type\":\"message\",\"id\":"
                  : is_custom(c, b)         ? "{\"type\":\"custom_tool_call\",\"id\":"
                                            : "{\"type\":\"function_call\",\"id\":");
    put_item_id(out, c, b, item);
    switch (b->kind) {
    case CHAT_THINKING:
        buf_puts(out, ",\"summary\":[");
        if (!begun && c->req->answer.summary) put_summary_part(out, b);
        buf_puts(out, "],\"content\":[");
        if (!begun) put_text_part(out, c, b, block);
        buf_puts(out, "],\"encrypted_content\":");
        if (!begun && c->req->answer.sealed && b->n > 0) {
            buf_putc(out, '"');
            base64_put(out, b->p, b->n);
            buf_putc(out, '"');
        } else {
            buf_puts(out, "null");
        }
        break;
    case CHAT_CONTENT:
        buf_puts(out, ",\"role\":\"assistant\",\"content\":[");
        if (!begun) put_text_part(out, c, b, block);
        buf_putc(out, ']');
        break;
    case CHAT_CALL: put_call(out, c, b, begun); break;
    }
    buf_puts(out, ",\"status\":");
    buf_puts(out, status);
    buf_putc(out, '}');
}

static bool was_cut(const struct choice *c) {
    return c->finish == FINISH_LENGTH || c->finish == FINISH_ABORT;
}

/* Of an item that is over; last: of the whole answer. */
static const char *item_status(const struct choice *c, const struct chat_block *b, bool last) {
    if (b->kind == CHAT_CALL)
        return b->call->complete || is_custom(c, b) ? "\"completed\"" : "\"incomplete\"";
    return last && was_cut(c) ? "\"incomplete\"" : "\"completed\"";
}

static void put_items(struct buf *out, const struct choice *c) {
    const size_t n = choice_n_blocks(c);
    size_t item = 0;
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        const struct chat_block b = choice_block(c, i);
        if (is_blank(&b)) continue;
        if (item > 0) buf_putc(out, ',');
        put_item(out, c, &b, i, item++, item_status(c, &b, i + 1 == n), false);
    }
    buf_putc(out, ']');
}

/* ---- the response */

static void put_usage(struct buf *out, const struct choice *c) {
    const uint64_t n_prompt = c->req->n_prompt;
    bool closed;
    buf_puts(out, "{\"input_tokens\":");
    put_u64(out, n_prompt);
    buf_puts(out, ",\"input_tokens_details\":{\"cached_tokens\":");
    put_u64(out, c->req->measured.cached_tokens);
    buf_puts(out, ",\"cache_write_tokens\":0},\"output_tokens\":");
    put_u64(out, c->n_recs);
    buf_puts(out, ",\"output_tokens_details\":{\"reasoning_tokens\":");
    put_u64(out, choice_thinking_tokens(c, &closed));
    buf_puts(out, "},\"total_tokens\":");
    put_u64(out, n_prompt + c->n_recs);
    buf_putc(out, '}');
}

static void put_sampling(struct buf *out, const struct sampling *s) {
    buf_puts(out, ",\"temperature\":");
    put_logprob(out, s->do_sample ? s->temperature : 0);
    buf_puts(out, ",\"top_p\":");
    put_logprob(out, s->do_sample ? s->top_p : 1);
}

/* error: JSON, or NULL; over: with what was made. */
static void put_response(struct buf *out, const struct choice *c, const char *status,
                         const char *error, bool over) {
    buf_puts(out, "{\"id\":\"resp_");
    buf_puts(out, c->req->head.req_id);
    buf_puts(out, "\",\"object\":\"response\",\"created_at\":");
    put_i64(out, c->req->head.created_unix_s);
    buf_puts(out, ",\"status\":\"");
    buf_puts(out, status);
    buf_puts(out, "\",\"error\":");
    buf_puts(out, error != NULL ? error : "null");
    buf_puts(out, ",\"incomplete_details\":");
    buf_puts(out, !over || error != NULL       ? "null"
                  : c->finish == FINISH_LENGTH ? "{\"reason\":\"max_output_tokens\"}"
                  : c->finish == FINISH_ABORT  ? "{\"reason\":\"cancelled\"}"
                                               : "null");
    buf_puts(out, ",\"completed_at\":null,\"model\":");
    put_cstr(out, c->req->head.model);
    if (c->a->head.len > 0) {
        buf_putc(out, ',');
        buf_append(out, c->a->head.data, c->a->head.len);
    }
    put_sampling(out, &c->req->sampling);
    buf_puts(out, ",\"output\":");
    if (over)
        put_items(out, c);
    else
        buf_puts(out, "[]");
    buf_puts(out, ",\"usage\":");
    if (over && error == NULL)
        put_usage(out, c);
    else
        buf_puts(out, "null");
    buf_putc(out, '}');
}

static void responses_body(struct answer *a, struct buf *out) {
    const struct choice *c = a->shown[0];
    put_response(out, c, was_cut(c) ? "incomplete" : "completed", NULL, true);
}

/* ---- events */

static void begin_event(struct choice *c, struct buf *out, const char *type) {
    if (c->req->answer.event_ids) {
        buf_puts(out, "id: resp_");
        buf_puts(out, c->req->head.req_id);
        buf_putc(out, ':');
        put_u64(out, c->n_numbered);
        buf_putc(out, '\n');
    }
    buf_puts(out, "event: ");
    buf_puts(out, type);
    buf_puts(out, "\ndata: {\"type\":\"");
    buf_puts(out, type);
    buf_puts(out, "\",\"sequence_number\":");
    put_u64(out, c->n_numbered++);
}

static void end_event(struct buf *out) {
    buf_puts(out, "}\n\n");
}

static void put_state(struct choice *c, struct buf *out, const char *type, const char *status,
                      bool over) {
    begin_event(c, out, type);
    buf_puts(out, ",\"response\":");
    put_response(out, c, status, NULL, over);
    end_event(out);
}

static void responses_begin(struct choice *c, struct buf *out) {
    put_state(c, out, "response.created", "in_progress", false);
    put_state(c, out, "response.in_progress", "in_progress", false);
}

/* An event of the item under way. */
static void begin_of_item(struct choice *c, struct buf *out, const char *type,
                          const struct chat_block *b) {
    begin_event(c, out, type);
    buf_puts(out, ",\"item_id\":");
    put_item_id(out, c, b, c->n_blocks - 1);
    buf_puts(out, ",\"output_index\":");
    put_u64(out, c->n_blocks - 1);
}

static void put_whole_item(struct choice *c, struct buf *out, const char *type,
                           const struct chat_block *b, const char *status, bool begun) {
    begin_event(c, out, type);
    buf_puts(out, ",\"output_index\":");
    put_u64(out, c->n_blocks - 1);
    buf_puts(out, ",\"item\":");
    put_item(out, c, b, c->block_at, c->n_blocks - 1, status, begun);
    end_event(out);
}

static void open_item(struct choice *c, struct buf *out, const struct chat_block *b) {
    c->n_blocks++;
    c->block_open = true;
    put_whole_item(c, out, "response.output_item.added", b, "\"in_progress\"", true);
    if (b->kind == CHAT_CALL) return;
    begin_of_item(c, out, "response.content_part.added", b);
    buf_puts(out, ",\"content_index\":0,\"part\":");
    put_empty_part(out, b->kind);
    end_event(out);
}

/* b: what is new. */
static void put_delta(struct choice *c, struct buf *out, const struct chat_block *b) {
    static const char *const types[] = {[CHAT_THINKING] = "response.reasoning_text.delta",
                                        [CHAT_CONTENT] = "response.output_text.delta",
                                        [CHAT_CALL] = "response.function_call_arguments.delta"};
    if (is_custom(c, b)) return; /* its text is known when its JSON is */
    begin_of_item(c, out, types[b->kind], b);
    if (b->kind != CHAT_CALL) buf_puts(out, ",\"content_index\":0");
    buf_puts(out, ",\"delta\":");
    put_block_text(out, b);
    if (b->kind == CHAT_CONTENT) {
        buf_puts(out, ",\"logprobs\":");
        put_token_logprobs(out, c, c->block_at, c->recs_sent);
    }
    end_event(out);
}

static void close_text(struct choice *c, struct buf *out, const struct chat_block *b) {
    const bool thinking = b->kind == CHAT_THINKING;
    begin_of_item(c, out, thinking ? "response.reasoning_text.done" : "response.output_text.done",
                  b);
    buf_puts(out, ",\"content_index\":0,\"text\":");
    put_block_text(out, b);
    if (!thinking) {
        buf_puts(out, ",\"logprobs\":");
        put_token_logprobs(out, c, c->block_at, 0);
    }
    end_event(out);
    begin_of_item(c, out, "response.content_part.done", b);
    buf_puts(out, ",\"content_index\":0,\"part\":");
    put_text_part(out, c, b, c->block_at);
    end_event(out);
}

static void put_summary(struct choice *c, struct buf *out, const struct chat_block *b) {
    static const struct chat_block none = {.kind = CHAT_THINKING};
    static const struct {
        const char *type, *key;
        bool part, full;
    } events[] = {{"response.reasoning_summary_part.added", ",\"part\":", true, false},
                  {"response.reasoning_summary_text.delta", ",\"delta\":", false, true},
                  {"response.reasoning_summary_text.done", ",\"text\":", false, true},
                  {"response.reasoning_summary_part.done", ",\"part\":", true, true}};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        begin_of_item(c, out, events[i].type, b);
        buf_puts(out, ",\"summary_index\":0");
        buf_puts(out, events[i].key);
        if (events[i].part)
            put_summary_part(out, events[i].full ? b : &none);
        else
            put_block_text(out, b);
        end_event(out);
    }
}

static void put_input_event(struct choice *c, struct buf *out, const struct chat_block *b,
                            const char *type, const char *key) {
    begin_of_item(c, out, type, b);
    buf_puts(out, key);
    put_custom_input(out, b);
    end_event(out);
}

static void close_call(struct choice *c, struct buf *out, const struct chat_block *b) {
    if (is_custom(c, b)) {
        put_input_event(c, out, b, "response.custom_tool_call_input.delta", ",\"delta\":");
        put_input_event(c, out, b, "response.custom_tool_call_input.done", ",\"input\":");
        return;
    }
    if (b->n == 0 && b->call->complete) {
        const struct chat_block empty = {.kind = CHAT_CALL, .p = "{}", .n = 2, .call = b->call};
        put_delta(c, out, &empty);
    }
    begin_of_item(c, out, "response.function_call_arguments.done", b);
    buf_puts(out, ",\"name\":");
    buf_json_text(out, b->call->name.data != NULL ? b->call->name.data : "", b->call->name.len,
                  true);
    buf_puts(out, ",\"arguments\":");
    put_arguments(out, b);
    end_event(out);
}

/* last: nothing comes behind it. */
static void close_item(struct choice *c, struct buf *out, bool last) {
    if (!c->block_open) return;
    const struct chat_block b = choice_block(c, c->block_at);
    c->block_open = false;
    if (b.kind == CHAT_CALL)
        close_call(c, out, &b);
    else
        close_text(c, out, &b);
    if (b.kind == CHAT_THINKING && c->req->answer.summary) put_summary(c, out, &b);
    put_whole_item(c, out, "response.output_item.done", &b, item_status(c, &b, last), false);
}

/* A piece of block i. Blanks at the beginning of a text wait for what follows them. */
static void take_piece(struct choice *c, struct buf *out, size_t i, struct chat_block b) {
    if (i != c->block_at) close_item(c, out, false);
    c->block_at = i;
    if (!c->block_open) {
        b = choice_block(c, i);
        if (is_blank(&b)) return;
        open_item(c, out, &b);
    }
    if (b.n > 0) put_delta(c, out, &b);
}

static void responses_event(struct choice *c, struct buf *out) {
    struct chat_block b;
    size_t i;
    while (choice_take(c, &i, &b)) take_piece(c, out, i, b);
    if (c->finish == FINISH_NONE) return;
    close_item(c, out, true);
    put_state(c, out, was_cut(c) ? "response.incomplete" : "response.completed",
              was_cut(c) ? "incomplete" : "completed", true);
}

/* ---- failures */

/* {"code","message","type"} of an error body. */
static void put_failure(struct buf *out, const char *json) {
    struct json_value *o = NULL, *in;
    const char *message = "", *code = "server_error";
    size_t n = 0, n_code = strlen(code);
    json_read(&o, json, strlen(json), NULL, NULL);
    if (json_get_obj(o, "error", &in) == JSON_OK) {
        json_get_str(in, "message", &message, &n);
        json_get_str(in, "code", &code, &n_code);
    }
    if (strcmp(code, "rate_limit_exceeded") != 0 && strcmp(code, "context_length_exceeded") != 0) {
        code = "server_error"; /* what the types of clients know */
        n_code = strlen(code);
    }
    buf_puts(out, "{\"code\":");
    buf_json_str(out, code, n_code);
    buf_puts(out, ",\"message\":");
    buf_json_str(out, message, n);
    buf_puts(out, ",\"type\":");
    buf_json_str(out, code, n_code);
    buf_putc(out, '}');
    json_put(o);
}

static void put_failed(struct choice *c, const char *json, struct buf *out) {
    struct buf failure = BUF_INIT;
    put_failure(&failure, json);
    begin_event(c, out, "response.failed");
    buf_puts(out, ",\"response\":");
    put_response(out, c, "failed", failure.data, true);
    end_event(out);
    if (failure.failed) out->failed = true;
    buf_free(&failure);
}

/* A response that has begun fails as such; else, or where there is no memory for that, an event
 * says the error. */
static void responses_error(struct answer *a, const char *json, struct buf *out) {
    const struct api_framing *f = &api_framings[API_FRAMES_SSE_TYPED];
    const size_t before = out->len;
    struct choice *c = a->parts != NULL && a->parts[0].req != NULL ? a->parts[0].choices : NULL;
    if (c != NULL && c->begun && !a->no_memory) put_failed(c, json, out);
    if (!out->failed && out->len > before) return;
    out->failed = false;
    out->len = before;
    buf_puts(out, f->before);
    buf_puts(out, json + 1);
    buf_append(out, f->after, f->after_bytes);
}

const struct answer_ops answer_responses = {
    .frames = API_FRAMES_SSE_TYPED,
    .controls = true,
    .blocks = true,
    .open = responses_open,
    .begin = responses_begin,
    .event = responses_event,
    .body = responses_body,
    .error = responses_error,
};
