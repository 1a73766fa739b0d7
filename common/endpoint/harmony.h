/* harmony: parts what a model that writes in channels (gpt-oss) says into thinking, content and
 * tool calls. An answer is messages:
 *
 *   HEADER<|message|>TEXT<|end|><|start|>HEADER<|message|>TEXT ...
 *
 * whose last ends with <|return|> or <|call|>. The prompt ends with the first <|start|>assistant. A
 * header has a role, and in any order a channel (<|channel|>analysis), whom it is for
 * (to=functions.NAME) and the text's type (<|constrain|>json). The channel analysis is thinking;
 * what is for functions.NAME is a call whose arguments are the text; all else is content. Of one
 * kind messages are parted by a line break. Headers and tags vanish, also those in which the answer
 * ends; a first header without anything of a header in it is plain text, thus content. One of more
 * than HARMONY_HEADER_BYTES_MAX begins the message without its <|message|>: it vanishes if it has a
 * channel or names whom it is for, else it is content.
 *
 * Pure: the same text gives the same result however it is cut. Source: OpenAI's description of the
 * harmony response format. */
#ifndef BATON_ENDPOINT_HARMONY_H
#define BATON_ENDPOINT_HARMONY_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"
#include "common/endpoint/tool_parse.h"

#define HARMONY_START    "<|start|>assistant"
#define HARMONY_ANALYSIS "<|channel|>analysis<|message|>"
#define HARMONY_FINAL    "<|channel|>final<|message|>"
#define HARMONY_END      "<|end|>"

enum { HARMONY_TAGS = 7, HARMONY_HEADER_BYTES_MAX = 1024 };

enum harmony_state {
    HARMONY_HEADER,
    HARMONY_THINKING,
    HARMONY_CONTENT,
    HARMONY_CALL,
    HARMONY_BETWEEN, /* after a message: nothing counts before the next begins */
};

/* What a prompt leaves open: HARMONY_HEADER: one of which no more than the role is written;
 * HARMONY_THINKING, HARMONY_CONTENT: such a message. s: its end, from its last <|start|> on or from
 * before that; without one it is content. */
enum harmony_state harmony_opened(const char *s, size_t n);

/* Which bytes of an answer are text of messages that clients see: where stop strings are looked
 * for. Tags and headers are not, nor is thinking that nobody is shown. Text before any tag is, but
 * for what may begin a header ("to="). */
struct harmony_look {
    enum { LOOK_FIRST, LOOK_HEADER, LOOK_BETWEEN, LOOK_TEXT } state;
    bool no_thinking; /* it is not shown */
    bool fresh;       /* the next span begins a message, or goes on behind a tag in one */
    size_t taken;     /* bytes looked at */
    size_t header;    /* where the header began */
    size_t from;      /* LOOK_TEXT: text is told up to here */
    size_t tag;       /* bytes at the end that may begin a tag */
};
struct harmony_span {
    size_t from, to;
    bool fresh; /* what ended before it is none of its text */
};
void harmony_look_init(struct harmony_look *l, enum harmony_state opened, bool no_thinking);
/* The next span of text[0 .. n), of which what was looked at has not changed; over: nothing
 * follows. False: there is none. */
bool harmony_look_next(struct harmony_look *l, const char *text, size_t n, bool over,
                       struct harmony_span *out);

struct harmony {
    enum harmony_state state;
    bool tagged;       /* a tag has come, or the prompt has it: a header is no plain text */
    bool begun[2];     /* one with thinking, one with content has been */
    struct buf header; /* of the next message so far */
    struct buf held;   /* what may be the beginning of a tag */
    size_t taken;      /* bytes fed so far */
    bool closed;       /* a message of thinking has ended */
    size_t close_at;   /* where in them the last one did; meaningful with closed */
    struct buf text;   /* the thinking; only grows */
    bool answered;     /* a message with content or a call has begun */
    size_t lead;       /* bytes of the thinking before it; meaningful with answered */
};

/* The strings with a meaning, which a detokeniser must let through. */
extern const char *const harmony_tags[HARMONY_TAGS];

/* opened: as harmony_opened() says; the answer goes on with the message. */
void harmony_init(struct harmony *h, enum harmony_state opened);
void harmony_fini(struct harmony *h);
/* calls: takes content and calls; NULL: content is appended to *content, and calls are content. */
void harmony_feed(struct harmony *h, const char *s, size_t n, struct tool_parse *calls,
                  struct buf *content);
void harmony_finish(struct harmony *h, struct tool_parse *calls, struct buf *content);
/* Bytes of the thinking that come before all else: what lists of blocks show as thinking. */
size_t harmony_lead(const struct harmony *h);
bool harmony_failed(const struct harmony *h);

#endif
