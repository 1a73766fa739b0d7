/* chat_template: a Jinja engine good enough for published chat templates, sandboxed: no attribute
 * access beyond data, bounded steps, depth and output.
 *
 * Thread: a parsed template is read-only; any thread may render. Rendering uses no global state. */
#ifndef BATON_TEXT_CHAT_TEMPLATE_H
#define BATON_TEXT_CHAT_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/err.h"

struct json_object;
struct chat_template;

/* The bounds of the sandbox. A step is one node of the template at work, or about a hundred bytes
 * of text. */
enum {
    CHAT_TEMPLATE_BYTES_MAX = 1024 * 1024, /* of the template's text */
    CHAT_TEMPLATE_PARSE_DEPTH_MAX = 100,   /* blocks and brackets inside each other */
    CHAT_TEMPLATE_DEPTH_MAX =
        400, /* while rendering: expressions, blocks, macro calls, nested values */
    CHAT_TEMPLATE_STEPS_MAX = 20 * 1000 * 1000,
    CHAT_TEMPLATE_RANGE_MAX = 100 * 1000, /* items of range(), as Jinja's own sandbox has it */
    CHAT_TEMPLATE_STRING_BYTES_MAX = 64 * 1024 * 1024, /* of one string */
    CHAT_TEMPLATE_MEMORY_BYTES_MAX = 256 * 1024 * 1024 /* of one rendering */
};

/* Whitespace rules as the HuggingFace libraries set them: trim_blocks and lstrip_blocks on.
 * eb: line and what was not understood. */
enum err chat_template_parse(struct chat_template **out, const char *src, size_t n,
                             struct errbuf *eb);
void chat_template_free(struct chat_template **t);

struct chat_vars {
    struct json_object *vars; /* object: messages, tools, documents, add_generation_prompt,
                                 bos_token, eos_token, any chat_template_kwargs. Members absent here
                                 are undefined in the template. Borrowed. */
    int64_t now_unix_s;       /* for strftime_now; local time zone */
};

/* ERR_INVALID: the template raised (raise_exception) or failed; eb has its message and line.
 * ERR_TOO_LARGE: more than out_bytes_max bytes or the step limit. */
enum err chat_template_render(const struct chat_template *t, const struct chat_vars *v,
                              size_t out_bytes_max, struct buf *out, struct errbuf *eb);

/* Picks the template of a model directory: tokenizer_config.json "chat_template" (string, or list
 * of {name, template}: "tool_use" when with_tools and present, else "default"), or
 * chat_template.jinja beside it. *out NULL and ERR_NOT_FOUND when the model has none. bos/eos: the
 * texts of bos_token and eos_token ("" when absent), strings the caller frees. */
enum err chat_template_load(struct chat_template **out, const char *dir, int with_tools, char **bos,
                            char **eos, struct errbuf *eb);

#endif
