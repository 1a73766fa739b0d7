/* answer_blocks: a choice as a list of blocks (thinking, text, calls), for the families whose
 * answers are such lists. */
#include <string.h>
#include "common/endpoint/answer.h"
#include "common/endpoint/tool_parse.h"
#include "proto/hash.h"

static struct chat_block all_text(const struct choice *c, size_t from) {
    return (struct chat_block){.kind = CHAT_CONTENT,
                               .p = c->text.data != NULL ? c->text.data + from : NULL,
                               .n = c->ready - from};
}

size_t choice_n_blocks(const struct choice *c) {
    if (c->chat != NULL) return chat_text_n_blocks(c->chat);
    return c->ready > 0 ? 1 : 0;
}

struct chat_block choice_block(const struct choice *c, size_t i) {
    return c->chat != NULL ? chat_text_block(c->chat, i) : all_text(c, 0);
}

bool choice_take(struct choice *c, size_t *i, struct chat_block *b) {
    if (c->chat != NULL) return chat_text_take(c->chat, i, b);
    if (c->ready == c->sent) return false;
    *i = 0;
    *b = all_text(c, c->sent);
    c->sent = c->ready;
    return true;
}

uint64_t choice_thinking_tokens(const struct choice *c, bool *closed) {
    size_t close_at;
    uint64_t n = 0;
    *closed = c->chat != NULL && chat_text_thought(c->chat, &close_at);
    if (!*closed) return 0;
    size_t chars = utf8_chars(c->text.data, close_at);
    while (n < c->n_recs && c->recs[n].chars_at < chars) n++;
    return n;
}

void put_block_text(struct buf *out, const struct chat_block *b) {
    buf_json_text(out, b->p != NULL ? b->p : "", b->n, true);
}

void put_call_id(struct buf *out, const char *prefix, size_t n, const struct tool_call *call) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t h = hash64_text(HASH64_BEGIN, call->id);
    buf_putc(out, '"');
    buf_puts(out, prefix);
    for (size_t i = 0; i < n; i++) {
        h = hash64_add(h, i);
        buf_putc(out, letters[(h >> 32) % (sizeof(letters) - 1)]);
    }
    buf_putc(out, '"');
}
