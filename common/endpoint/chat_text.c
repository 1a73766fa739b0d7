/* chat_text: reasoning, then tool_parse, then JSON. */
#include "common/endpoint/chat_text.h"

#include <stdlib.h>
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/harmony.h"
#include "common/endpoint/reasoning.h"
#include "common/endpoint/tool_parse.h"
#include "proto/hash.h"

enum { READ_IDS_MAX = TOOL_TAGS_MAX + 2 + HARMONY_TAGS };

struct chat_text {
    const struct infer_req *req;
    struct chat_text_opts opts;
    int32_t read_ids[READ_IDS_MAX]; /* special tokens that the parsers need */
    size_t n_read_ids;

    size_t fed;
    struct reasoning thinking; /* used with req->reasoning, but not with channels */
    struct harmony channels;   /* used with req->channels */
    struct tool_parse *calls;  /* NULL: calls are not looked for */
    struct buf content; /* without calls all of it, with them what the thinking let through */

    size_t thinking_sent, content_sent;
    size_t calls_sent, args_sent; /* calls begun, and bytes of the last one's arguments */
    bool echo_due;                /* the first content of a stream repeats the prompt */
    size_t block, block_sent;     /* in_order: bytes of this block that were sent */
    bool block_begun;
};

bool chat_text_needed(const struct infer_req *req) {
    return req->answer.tools != TOOLS_NONE || req->answer.reasoning || req->answer.channels;
}

/* ---- life */

/* Ids of calls must be the same on every instance that answers this request. */
static uint64_t seed_of(const struct infer_req *req, size_t choice) {
    const char *id = req->head.req_id != NULL ? req->head.req_id : "";
    return hash64_add(hash64_text(HASH64_BEGIN, id), (uint64_t)req->head.part << 32 ^ choice);
}

/* True: tag is a special token, which the answer leaves out unless it is read. */
static bool read_special(struct chat_text *t, const struct tokenizer *tok, const char *tag) {
    int32_t id = tokenizer_token_id(tok, tag);
    if (id < 0 || !tokenizer_is_special(tok, id)) return false;
    t->read_ids[t->n_read_ids++] = id;
    return true;
}

enum harmony_state chat_text_opened(const struct infer_req *req) {
    return !req->answer.thinking_open  ? HARMONY_HEADER
           : req->answer.analysis_open ? HARMONY_THINKING
                                       : HARMONY_CONTENT;
}

struct chat_text *chat_text_create(const struct infer_req *req, size_t choice,
                                   const struct tokenizer *tok, const struct chat_text_opts *opts) {
    struct chat_text *t = calloc(1, sizeof(*t));
    if (t == NULL) return NULL;
    t->req = req;
    t->opts = *opts;
    t->echo_due = req->answer.echo;
    reasoning_init(&t->thinking, req->answer.thinking_open);
    harmony_init(&t->channels, chat_text_opened(req));
    for (int i = 0; req->answer.channels && i < HARMONY_TAGS; i++)
        read_special(t, tok, harmony_tags[i]);
    if (req->answer.reasoning && !req->answer.channels) {
        read_special(t, tok, THINK_OPEN);
        read_special(t, tok, THINK_CLOSE);
    }
    if (req->answer.tools == TOOLS_NONE) return t;
    struct tool_parse_opts o = {
        .format = req->answer.tools,
        .whole = !req->answer.stream || opts->whole_calls,
        .parallel = req->answer.parallel_tools,
        .id_seed = seed_of(req, choice),
    };
    const char *const *tags = tool_format_tags(req->answer.tools);
    for (size_t i = 0; i < TOOL_TAGS_MAX && tags[i] != NULL; i++)
        if (read_special(t, tok, tags[i]) && req->answer.skip_special) o.hidden |= 1u << i;
    t->calls = tool_parse_create(&o);
    if (t->calls == NULL) chat_text_destroy(&t);
    return t;
}

void chat_text_destroy(struct chat_text **tp) {
    struct chat_text *t = *tp;
    if (t == NULL) return;
    reasoning_fini(&t->thinking);
    harmony_fini(&t->channels);
    tool_parse_destroy(&t->calls);
    buf_free(&t->content);
    free(t);
    *tp = NULL;
}

/* ---- text in */

bool chat_text_reads(const struct chat_text *t, int32_t id) {
    for (size_t i = 0; i < t->n_read_ids; i++)
        if (t->read_ids[i] == id) return true;
    return false;
}

/* What has passed the thinking goes on to the calls. */
static void pass_on(struct chat_text *t) {
    if (t->calls == NULL || t->content.len == 0) return;
    tool_parse_feed(t->calls, t->content.data, t->content.len);
    buf_clear(&t->content);
}

void chat_text_feed(struct chat_text *t, const char *s, size_t n) {
    if (n <= t->fed) return;
    if (t->req->answer.channels)
        harmony_feed(&t->channels, s + t->fed, n - t->fed, t->calls, &t->content);
    else if (t->req->answer.reasoning)
        reasoning_feed(&t->thinking, s + t->fed, n - t->fed, &t->content);
    else
        buf_append(&t->content, s + t->fed, n - t->fed);
    t->fed = n;
    pass_on(t);
}

void chat_text_finish(struct chat_text *t) {
    if (t->req->answer.channels)
        harmony_finish(&t->channels, t->calls, &t->content);
    else if (t->req->answer.reasoning)
        reasoning_finish(&t->thinking, &t->content);
    pass_on(t);
    if (t->calls != NULL) tool_parse_finish(t->calls);
}

bool chat_text_failed(const struct chat_text *t) {
    return t->content.failed || t->thinking.text.failed || t->thinking.held.failed ||
           harmony_failed(&t->channels) || (t->calls != NULL && tool_parse_failed(t->calls));
}

/* ---- what there is */

static const struct buf *content(const struct chat_text *t) {
    return t->calls != NULL ? tool_parse_content(t->calls) : &t->content;
}

static const struct buf *thinking(const struct chat_text *t) {
    return t->req->answer.channels ? &t->channels.text : &t->thinking.text;
}

static size_t n_calls(const struct chat_text *t) {
    return t->calls != NULL ? tool_parse_n_calls(t->calls) : 0;
}

bool chat_text_called(const struct chat_text *t) {
    return t->calls != NULL && tool_parse_called(t->calls);
}

bool chat_text_thought(const struct chat_text *t, size_t *close_at) {
    const bool channels = t->req->answer.channels;
    *close_at = channels ? t->channels.close_at : t->thinking.close_at;
    return channels ? t->channels.closed : t->thinking.closed;
}

static bool thinking_shown(const struct chat_text *t) {
    return t->req->answer.reasoning && !t->req->answer.drop_reasoning;
}

/* Bytes of the last begun call's arguments that were not sent. */
static size_t args_news(const struct chat_text *t) {
    if (t->calls_sent == 0) return 0;
    return tool_parse_call(t->calls, t->calls_sent - 1)->args.len - t->args_sent;
}

/* ---- blocks */

/* The content between call i - 1 and call i, which may be the one that is not there yet. */
static struct chat_block content_before(const struct chat_text *t, size_t i) {
    const struct buf *c = content(t);
    size_t from = i > 0 ? tool_parse_call(t->calls, i - 1)->content_at : 0;
    size_t to = i < n_calls(t) ? tool_parse_call(t->calls, i)->content_at : c->len;
    return (struct chat_block){
        .kind = CHAT_CONTENT, .p = c->data != NULL ? c->data + from : NULL, .n = to - from};
}

/* Calls fn-like over all blocks: the number of them, and block number `want`. */
static size_t walk_blocks(const struct chat_text *t, size_t want, struct chat_block *out) {
    size_t n = 0;
    const size_t lead = t->req->answer.channels ? harmony_lead(&t->channels) : t->thinking.text.len;
    if (t->req->answer.reasoning && lead > 0) {
        bool shown = !t->req->answer.drop_reasoning;
        if (n++ == want)
            *out = (struct chat_block){
                .kind = CHAT_THINKING, .p = thinking(t)->data, .n = shown ? lead : 0};
    }
    for (size_t i = 0; i <= n_calls(t); i++) {
        struct chat_block b = content_before(t, i);
        if (b.n > 0 && n++ == want) *out = b;
        if (i == n_calls(t)) break;
        const struct tool_call *call = tool_parse_call(t->calls, i);
        if (n++ == want)
            *out = (struct chat_block){
                .kind = CHAT_CALL, .p = call->args.data, .n = call->args.len, .call = call};
    }
    return n;
}

size_t chat_text_n_blocks(const struct chat_text *t) {
    return walk_blocks(t, SIZE_MAX, NULL);
}

struct chat_block chat_text_block(const struct chat_text *t, size_t i) {
    struct chat_block b = {.kind = CHAT_CONTENT};
    walk_blocks(t, i, &b);
    return b;
}

bool chat_text_take(struct chat_text *t, size_t *i, struct chat_block *b) {
    const size_t n = chat_text_n_blocks(t);
    for (; t->block < n; t->block++, t->block_sent = 0, t->block_begun = false) {
        *b = chat_text_block(t, t->block);
        if (!t->block_begun || b->n > t->block_sent) {
            *i = t->block;
            if (b->p != NULL) b->p += t->block_sent;
            b->n -= t->block_sent;
            t->block_sent += b->n;
            t->block_begun = true;
            return true;
        }
        if (t->block + 1 == n) break;
    }
    return false;
}

static bool block_news(const struct chat_text *t) {
    const size_t n = chat_text_n_blocks(t);
    if (t->block + 1 != n) return t->block < n;
    return !t->block_begun || chat_text_block(t, t->block).n > t->block_sent;
}

bool chat_text_news(const struct chat_text *t) {
    if (t->opts.in_order) return block_news(t);
    return (thinking_shown(t) && thinking(t)->len > t->thinking_sent) ||
           content(t)->len > t->content_sent || t->echo_due || n_calls(t) > t->calls_sent ||
           args_news(t) > 0;
}

/* ---- JSON out */

static void put_text(struct buf *out, const struct buf *b, size_t from, size_t to) {
    buf_json_text(out, to > from ? b->data + from : "", to - from, true);
}

/* The prompt that echo repeats, and the text after it, as one string. */
static void put_echo(struct buf *out, const struct chat_text *t, const char *s, size_t n) {
    struct buf joined = BUF_INIT;
    if (t->req->answer.text != NULL)
        buf_append(&joined, t->req->answer.text, t->req->answer.text_len);
    buf_append(&joined, s, n);
    buf_json_str(out, joined.data != NULL ? joined.data : "", joined.len);
    if (joined.failed) out->failed = true;
    buf_free(&joined);
}

static void put_content_delta(struct chat_text *t, struct buf *out) {
    const struct buf *c = content(t);
    size_t from = t->opts.full_text ? 0 : t->content_sent;
    buf_puts(out, "\"content\":");
    if (t->echo_due || (t->req->answer.echo && t->opts.full_text))
        put_echo(out, t, c->data != NULL ? c->data + from : "", c->len - from);
    else
        put_text(out, c, from, c->len);
    t->content_sent = c->len;
    t->echo_due = false;
}

static void put_call_index(struct buf *out, size_t i) {
    buf_puts(out, "\"tool_calls\":[{\"index\":");
    put_u64(out, i);
}

static void put_call_start(struct chat_text *t, struct buf *out) {
    const struct tool_call *c = tool_parse_call(t->calls, t->calls_sent);
    put_call_index(out, t->calls_sent);
    buf_puts(out, ",\"id\":");
    put_cstr(out, c->id);
    buf_puts(out, ",\"type\":\"function\",\"function\":{\"name\":");
    put_text(out, &c->name, 0, c->name.len);
    buf_puts(out, ",\"arguments\":\"\"}}]");
    t->calls_sent++;
    t->args_sent = 0;
}

static void put_args_delta(struct chat_text *t, struct buf *out) {
    const struct tool_call *c = tool_parse_call(t->calls, t->calls_sent - 1);
    put_call_index(out, t->calls_sent - 1);
    buf_puts(out, ",\"function\":{\"arguments\":");
    put_text(out, &c->args, t->args_sent, c->args.len);
    buf_puts(out, "}}]");
    t->args_sent = c->args.len;
}

bool chat_text_delta(struct chat_text *t, struct buf *out) {
    if (thinking_shown(t) && thinking(t)->len > t->thinking_sent) {
        buf_puts(out, "\"reasoning_content\":");
        put_text(out, thinking(t), t->thinking_sent, thinking(t)->len);
        t->thinking_sent = thinking(t)->len;
    } else if (content(t)->len > t->content_sent || t->echo_due) {
        put_content_delta(t, out);
    } else if (args_news(t) > 0) {
        put_args_delta(t, out);
    } else if (n_calls(t) > t->calls_sent) {
        put_call_start(t, out);
    } else {
        return false;
    }
    return true;
}

void chat_text_skip(struct chat_text *t) {
    t->thinking_sent = thinking(t)->len;
    t->content_sent = content(t)->len;
    t->calls_sent = n_calls(t);
    t->args_sent = t->calls_sent > 0 ? tool_parse_call(t->calls, t->calls_sent - 1)->args.len : 0;
    t->echo_due = false;
}

void chat_text_content(const struct chat_text *t, struct buf *out) {
    put_text(out, content(t), 0, content(t)->len);
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void put_message_content(const struct chat_text *t, struct buf *out) {
    const struct buf *c = content(t);
    size_t from = 0, to = c->len;
    if (chat_text_called(t)) { /* text before a call is trimmed */
        while (to > 0 && is_space(c->data[to - 1])) to--;
        while (from < to && is_space(c->data[from])) from++;
        if (from == to && t->opts.null_content && !t->req->answer.echo) {
            buf_puts(out, "null");
            return;
        }
    }
    if (t->req->answer.echo)
        put_echo(out, t, c->data != NULL ? c->data + from : "", to - from);
    else
        put_text(out, c, from, to);
}

static void put_calls(const struct chat_text *t, struct buf *out) {
    for (size_t i = 0; i < n_calls(t); i++) {
        const struct tool_call *c = tool_parse_call(t->calls, i);
        if (i > 0) buf_putc(out, ',');
        buf_puts(out, "{\"type\":\"function\",\"id\":");
        put_cstr(out, c->id);
        buf_puts(out, ",\"function\":{\"name\":");
        put_text(out, &c->name, 0, c->name.len);
        buf_puts(out, ",\"arguments\":");
        put_text(out, &c->args, 0, c->args.len);
        buf_puts(out, "}}");
    }
}

void chat_text_message(const struct chat_text *t, struct buf *out) {
    buf_puts(out, "\"content\":");
    put_message_content(t, out);
    if (thinking_shown(t)) {
        buf_puts(out, ",\"reasoning_content\":");
        if (thinking(t)->len > 0)
            put_text(out, thinking(t), 0, thinking(t)->len);
        else
            buf_puts(out, "null");
    }
    buf_puts(out, ",\"tool_calls\":[");
    put_calls(t, out);
    buf_putc(out, ']');
}
