/* kv_lends: the KV of requests that have moved away in a planned move, for the prefill instance of
 * their next attempt. Whoever stops a request with header KEEP_KV_HEADER says that it goes on
 * elsewhere; for KV_KEEP_MS from then on, or until it was fetched, the request counts as a lease of
 * this instance, so that a drain waits for it, and its blocks, which lie in the prefix cache, are
 * lent to a linked peer that asks with the ids they stand for, the owner whose salt finds them and
 * a newer attempt of the request; so they are while it still runs. A first attempt gets what there
 * is: its prompt goes on behind an answer that was made here. All else is declined.
 *
 * Thread: the loop thread. */
#ifndef BATON_INSTANCE_KV_LENDS_H
#define BATON_INSTANCE_KV_LENDS_H

#include <stdint.h>
#include "proto/err.h"

#define KEEP_KV_HEADER "baton-keep-kv"

enum {
    KV_KEEP_MS =
        800, /* the next attempt asks within a few ms, unless it has to wait for its pair */
    KV_KEPT_MAX = 1024,
};

struct instance;
struct kv_lends;

enum err kv_lends_create(struct kv_lends **out, struct instance *in);
void kv_lends_destroy(struct kv_lends **l); /* before the links close */
/* That attempt of the request was stopped here, and goes on elsewhere. Over KV_KEPT_MAX the oldest
 * is forgotten. */
void kv_lends_keep(struct kv_lends *l, const char *req_id, uint32_t epoch);

#endif
