/* chat_text: what one choice of a chat said, sorted into thinking, content and tool calls
 * (inference-api 8.4, 8.7 to 8.9), and how much of it a stream has sent. Exists only where a
 * request has tools or the model thinks; otherwise all text is content.
 *
 * A function of the request, the number of the choice and the text fed. One user at a time. */
#ifndef BATON_ENDPOINT_CHAT_TEXT_H
#define BATON_ENDPOINT_CHAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/endpoint/harmony.h"
#include "common/text/tokenizer.h"
#include "proto/infer_msg.h"

struct chat_text;
struct tool_call;

/* What of the server's configuration shapes the text. */
struct chat_text_opts {
    bool null_content; /* content is null instead of "" beside calls */
    bool full_text;    /* streams repeat the content so far */
    bool whole_calls;  /* a stream's calls are there once they are complete, as a whole answer's */
    bool in_order;     /* a stream takes pieces (chat_text_take()), not deltas */
};

/* Whether the text of req needs sorting at all. */
bool chat_text_needed(const struct infer_req *req);
/* What its prompt leaves open of a message in channels. */
enum harmony_state chat_text_opened(const struct infer_req *req);
/* NULL: no memory. Borrows req. choice: of its part, in the order drawn. */
struct chat_text *chat_text_create(const struct infer_req *req, size_t choice,
                                   const struct tokenizer *tok, const struct chat_text_opts *opts);
void chat_text_destroy(struct chat_text **t);

/* Whether the text of this special token must be fed although clients never see it. */
bool chat_text_reads(const struct chat_text *t, int32_t id);
/* The whole text so far: the first n bytes of s, of which earlier calls had the first ones. */
void chat_text_feed(struct chat_text *t, const char *s, size_t n);
void chat_text_finish(struct chat_text *t); /* the text is over */
bool chat_text_failed(const struct chat_text *t);

bool chat_text_called(
    const struct chat_text *t); /* the answer is calls: finish_reason tool_calls */
/* Where in the text the end tag of the thinking began; false: there was none. */
bool chat_text_thought(const struct chat_text *t, size_t *close_at);

bool chat_text_news(const struct chat_text *t); /* a stream has something to send */
/* Members of the next delta: reasoning_content, content, or one step of one call; marks it sent.
 * False: nothing is left. */
bool chat_text_delta(struct chat_text *t, struct buf *out);
void chat_text_skip(struct chat_text *t); /* marks all that a stream has to send as sent */
/* The content alone as a JSON string: of full_text. */
void chat_text_content(const struct chat_text *t, struct buf *out);

/* ---- the same in the order of the text, for families whose answers are lists of blocks. A block
 * is the thinking, what stands between calls, or a call: a function of the text alone, whatever
 * pieces it came in. */
enum chat_kind { CHAT_THINKING, CHAT_CONTENT, CHAT_CALL };
struct chat_block {
    enum chat_kind kind;
    const char
        *p; /* its text so far; of a call the JSON of its arguments; may be NULL where n is 0 */
    size_t n;
    const struct tool_call *call; /* of CHAT_CALL */
};
size_t chat_text_n_blocks(const struct chat_text *t);
struct chat_block chat_text_block(const struct chat_text *t, size_t i);
/* What a stream has to send next: *i is the block, *b the part of it that is new. False: nothing is
 * left. */
bool chat_text_take(struct chat_text *t, size_t *i, struct chat_block *b);

/* Members of a whole message after role: content, reasoning_content, tool_calls. */
void chat_text_message(const struct chat_text *t, struct buf *out);

#endif
