/* chat_template: a Jinja engine good enough for published chat templates, sandboxed: no attribute
 * access beyond data, bounded steps, depth and output.
 *
 * It behaves as Jinja2 3.1 does under HuggingFace's settings (ImmutableSandboxedEnvironment,
 * trim_blocks, lstrip_blocks, loopcontrols, tojson as json.dumps, generation blocks), which
 * tests/oracle compares. Not there, and refused by name: include, import, extends, block,
 * recursive for, autoescape. Other than Jinja: integers have 64 bits (more is an error), what has
 * no text of its own (generators, functions) prints differently, list.pop and list.clear are
 * withheld like the other methods that change data.
 *
 * Thread: a parsed template is read-only; any thread may render. Rendering uses no global state. */
#ifndef BATON_TEXT_CHAT_TEMPLATE_H
#define BATON_TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/base/work_limit.h"
#include "proto/err.h"

struct json_value;
struct chat_template;

/* The bounds of the sandbox. A step is one node of the template at work, or about a hundred bytes
 * of text. */
enum {
    CHAT_TEMPLATE_BYTES_MAX = 1024 * 1024, /* of the template's text */
    CHAT_TEMPLATE_PARSE_DEPTH_MAX = 100,   /* blocks and brackets inside each other */
    CHAT_TEMPLATE_DEPTH_MAX = 400,         /* expressions, blocks, macro calls, nested values */
    CHAT_TEMPLATE_STEPS_MAX = 20 * 1000 * 1000,
    CHAT_TEMPLATE_RANGE_MAX = 100 * 1000, /* items of range(), as Jinja's own sandbox has it */
    CHAT_TEMPLATE_STRING_BYTES_MAX = 64 * 1024 * 1024, /* of one string */
    CHAT_TEMPLATE_MEMORY_BYTES_MAX = 256 * 1024 * 1024 /* of one rendering */
};

/* Whitespace rules as the HuggingFace libraries set them: trim_blocks and lstrip_blocks on.
 * ERR_INVALID: eb has the line and what was not understood. ERR_TOO_LARGE: over
 * CHAT_TEMPLATE_BYTES_MAX. src is copied. */
enum err chat_template_parse(struct chat_template **out, const char *src, size_t n,
                             struct errbuf *eb);
void chat_template_free(struct chat_template **t);
/* The template's text, with \n for every kind of line end; not terminated. Lives as long as t. */
const char *chat_template_source(const struct chat_template *t, size_t *n);

/* A string of the variables as the template shall see it, appended to out; false: as it is. */
typedef bool chat_mark_fn(void *arg, const char *s, size_t n, struct buf *out);

struct chat_vars {
    struct json_value *vars; /* object: messages, tools, documents, add_generation_prompt,
                                 bos_token, eos_token, any chat_template_kwargs. Members absent here
                                 are undefined in the template (HuggingFace always gives tools and
                                 documents, null when there are none). Borrowed; NULL: none. */
    int64_t now_unix_s;      /* for strftime_now; local time zone */
    struct work_limit limit; /* none when zero */
    chat_mark_fn *mark;      /* of every string but bos_token and eos_token; NULL: none */
    void *mark_arg;
    size_t memory_bytes_max; /* of this rendering; 0: CHAT_TEMPLATE_MEMORY_BYTES_MAX */
};

/* Appends the text to *out; on an error *out is as before.
 * ERR_INVALID: the template raised (raise_exception) or failed; eb has "line N: " and its message.
 * ERR_TOO_LARGE: more than out_bytes_max bytes, or a bound of the sandbox. ERR_TIMEOUT,
 * ERR_CANCELLED: the limit. */
enum err chat_template_render(const struct chat_template *t, const struct chat_vars *v,
                              size_t out_bytes_max, struct buf *out, struct errbuf *eb);

/* Picks the template of a model (a folder, or a GGUF file: gguf_locate()): chat_template.jinja in
 * its folder, or else "tokenizer.chat_template" of GGUF, "chat_template" of
 * tokenizer_config.json (string, or list of {name, template}: "tool_use" when with_tools and
 * present, else "default"). *out NULL and ERR_NOT_FOUND when the model has none. bos/eos: the texts
 * of bos_token and eos_token ("" when absent), strings the caller frees; on errors other than
 * ERR_NOT_FOUND they are NULL. Reads files: not for the loop thread. */
enum err chat_template_load(struct chat_template **out, const char *path, int with_tools,
                            char **bos, char **eos, struct errbuf *eb);

#endif
