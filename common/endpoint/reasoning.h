/* reasoning: parts what a reasoning model writes into its thinking and the answer (inference-api
 * 8.9). Text goes in as it comes; what could still be a tag is held back. The tags vanish, all
 * other text stays as generated.
 *
 * Pure: the same text gives the same result however it is cut. */
#ifndef BATON_ENDPOINT_REASONING_H
#define BATON_ENDPOINT_REASONING_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"

#define THINK_OPEN  "<think>"
#define THINK_CLOSE "</think>"

enum reasoning_state {
    REASONING_START, /* only space so far: thinking may begin */
    REASONING_THINKING,
    REASONING_OVER, /* all text is content */
};

struct reasoning {
    enum reasoning_state state;
    bool first;      /* of thinking that the prompt opened: a tag may be repeated */
    bool closed;     /* an end tag came */
    size_t taken;    /* bytes fed so far */
    size_t close_at; /* where in them the end tag began; meaningful with closed */
    size_t matched;  /* bytes of a tag at the end of held */
    struct buf held; /* neither thinking nor content yet */
    struct buf text; /* the thinking; only grows */
};

/* open: the prompt itself has opened the thinking part. */
void reasoning_init(struct reasoning *r, bool open);
void reasoning_fini(struct reasoning *r);
/* Thinking grows r->text; content is appended to *content. */
void reasoning_feed(struct reasoning *r, const char *s, size_t n, struct buf *content);
void reasoning_finish(struct reasoning *r, struct buf *content); /* the text is over */

#endif
