/* slots: what llama.cpp's clients are told of the places for sequences (client-apis 4.5). Prompts
 * are nobody's but their clients', so none is shown. */
#ifndef BATON_NET_SLOTS_H
#define BATON_NET_SLOTS_H

#include <stdint.h>
#include "common/base/buf.h"
#include "common/net/http_server.h"

/* Answers GET /slots: an object for each of `total` places, of the first 1,024 where there are
 * more, as many of them in use as are not free; 503 when none is free and the query says
 * fail_on_no_slot=1. n_ctx: tokens of a place. */
void slots_reply(struct http_x *x, uint64_t total, uint64_t free, uint64_t n_ctx);
/* The list alone. */
void slots_put(struct buf *out, uint64_t total, uint64_t free, uint64_t n_ctx);

#endif
