/* load_sse: a stream of server-sent events as it comes, in pieces of any size: the data of each
 * event, its lines joined; names, ids and comments are passed over. Pure.
 *
 * Bound: an event over LOAD_EVENT_BYTES_MAX ends the stream. */
#ifndef BATON_TOOLS_LOAD_SSE_H
#define BATON_TOOLS_LOAD_SSE_H

#include <stdbool.h>
#include <stddef.h>
#include "common/base/buf.h"

enum { LOAD_EVENT_BYTES_MAX = 4 << 20 };

struct load_sse {
    struct buf line, data;
    bool has_data, after_cr;
    /* Each event's data [n], terminated; false ends the stream. */
    bool (*on_event)(void *arg, const char *data, size_t n);
    void *arg;
};

/* false: an event was too large, there was no memory, or on_event said so. */
bool load_sse_feed(struct load_sse *s, const char *p, size_t n);
void load_sse_free(struct load_sse *s);

#endif
