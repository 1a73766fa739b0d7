/* tool_parse: finds the tool calls in what a model writes (inference-api 8.4). Text goes in as it
 * comes; content, and calls with their name and the JSON text of their arguments, grow.
 *
 * What could still be the beginning of a call is held back from the content. A call counts from
 * where it cannot be taken back:
 *  - whole answers: when it is complete; one that turns out malformed is content instead;
 *  - streams: when its name is known and its arguments begin, because they are sent as they come.
 *    If they turn out malformed the call stays as it stands, and the text from there is content.
 * Text after a complete call is dropped, unless it is a malformed call.
 *
 * Pure: the same text gives the same result however it is cut. One user at a time. */
#ifndef BATON_ENDPOINT_TOOL_PARSE_H
#define BATON_ENDPOINT_TOOL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/err.h"
#include "proto/infer_msg.h"

enum {
    TOOL_TAGS_MAX = 6,     /* of one format */
    TOOL_CALLS_MAX = 128,  /* of one answer; text after the last is dropped */
    TOOL_NAME_BYTES = 256, /* a longer name is no name */
};

struct tool_call {
    char id[14]; /* call_<8 alphanumerics> */
    struct buf name, args;
    size_t content_at; /* bytes of content before it */
    bool complete;
};

struct tool_parse_opts {
    enum tool_format format;
    bool whole;       /* calls are taken back when they turn out malformed */
    bool parallel;    /* false: only the first call counts */
    uint32_t hidden;  /* bit i: tag i of the format is a special token that clients never see */
    uint64_t id_seed; /* ids are a function of it and of the call's index */
};

struct tool_parse;

/* NULL: no memory. */
struct tool_parse *tool_parse_create(const struct tool_parse_opts *opts);
void tool_parse_destroy(struct tool_parse **p);
void tool_parse_feed(struct tool_parse *p, const char *s, size_t n);
/* For TOOLS_HARMONY, whose calls another has found (harmony.h): a call of that name begins, and
 * what is fed up to tool_parse_shut() is its arguments. False: it does not count, for there are
 * enough, or the name is none. */
bool tool_parse_open(struct tool_parse *p, const char *name, size_t n);
void tool_parse_shut(struct tool_parse *p);
void tool_parse_finish(struct tool_parse *p); /* the text is over; feeds after it do nothing */

const struct buf *tool_parse_content(const struct tool_parse *p); /* only grows */
size_t tool_parse_n_calls(const struct tool_parse *p);            /* only grows */
const struct tool_call *tool_parse_call(const struct tool_parse *p, size_t i);
/* Calls, every one complete, and the text did not end in one. */
bool tool_parse_called(const struct tool_parse *p);
bool tool_parse_failed(const struct tool_parse *p); /* memory ran out: the result is useless */

/* The strings that have a meaning in a format, NULL where there are fewer than TOOL_TAGS_MAX. A
 * detokeniser that leaves out special tokens must let these through. */
const char *const *tool_format_tags(enum tool_format format);
/* The format of a chat template by the tags in its text; TOOLS_NONE: none that is known. */
enum tool_format tool_format_of_template(const char *src, size_t n);
/* The format of a name as clients of the reference write it in configurations: hermes, qwen2_5,
 * qwen3, llama3, llama4, mistral, deepseek_v3, deepseek_v31, chatglm, harmony, none. False: no such
 * name. */
bool tool_format_of_name(const char *name, enum tool_format *out);

#endif
