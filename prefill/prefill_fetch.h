/* prefill_fetch: before a prompt that goes on here is computed: what the decode instance that it
 * left still has of its KV comes over the link to it, into the prefix cache, where the prompt then
 * finds it. Whatever fails or takes longer than computing would, at most a second, is computed.
 *
 * Thread: the loop thread. */
#ifndef BATON_PREFILL_PREFILL_FETCH_H
#define BATON_PREFILL_PREFILL_FETCH_H

#include "common/instance/instance.h"
#include "common/instance/kv_plane.h"

struct prefill_fetch;

/* n_blocks: that came; the prompt may be added now. */
typedef void prefill_fetch_fn(void *arg, uint32_t n_blocks);

/* fn comes once, later, unless it is cancelled. NULL: there is nothing to ask for, no way to, or no
 * gain in it (no prefix cache to put it into; computed sooner than kvFetchMsMin): fn will not come.
 * req must live as long. */
struct prefill_fetch *prefill_fetch_start(struct instance *in, const char *target,
                                          const struct infer_req *req, prefill_fetch_fn *fn,
                                          void *arg);
void prefill_fetch_cancel(struct prefill_fetch **f); /* NULL is fine */

#endif
