/* prefill_hold: the KV of one prompt on its way to a decode instance: the engine's sequence and the
 * transfer. They end in one order: first the transfer stops reading blocks, then the sequence gives
 * them back, then the transfer's memory goes. However a request ends, prefill_hold_drop() sees to
 * that, also when the role is gone by then.
 *
 * Thread: the loop thread. */
#ifndef BATON_PREFILL_PREFILL_HOLD_H
#define BATON_PREFILL_PREFILL_HOLD_H

#include "common/endpoint/endpoint.h"
#include "common/instance/kv_plane.h"
#include "common/instance/worker.h"

struct prefill_hold;

/* All holds of a role, the dropped ones too until they have given everything back. Zeroed by its
 * owner at the start. */
struct prefill_holds {
    struct prefill_hold *first;
    unsigned n;
};
/* The owner goes: what is still winding down carries on alone. */
void prefill_holds_detach(struct prefill_holds *list);

/* What the request's owner hears until it drops the hold. */
struct prefill_hold_events {
    void (*on_admitted)(void *arg, int n_cached_tokens);
    void (*on_prompt_logprob)(void *arg, int position, const struct token_event *ev);
    void (*on_token)(void *arg, const struct token_event *ev);
    void (*on_engine)(void *arg, enum err e, const char *text,
                      bool refused); /* refused by the engine, or failed in it */
    void (*on_transfer)(void *arg, enum err e, const char *text,
                        const struct kv_tx_stats *st); /* kv_tx_opts.on_end */
};

/* Queues the prefill of req; it is offered to peer as soon as the engine has blocks for it. So a
 * grant never waits for blocks of P, whose holders wait for grants. peer NULL: it ends here
 * whatever it says, so nobody is asked for room. block_tokens: of the engine.
 * ERR_PEER_LOST, ERR_TOO_LARGE: the transfer. ERR_BUSY: the engine's queue is full. ERR_MISMATCH:
 * the request's adapter was unloaded meanwhile. On an error nothing is held. */
enum err prefill_hold_open(struct prefill_hold **out, struct prefill_holds *list, struct worker *w,
                           const struct endpoint *ep, struct kv_peer *peer,
                           const struct infer_req *req, unsigned block_tokens,
                           const struct prefill_hold_events *ev, void *arg);
void prefill_hold_patient(struct prefill_hold *h);                     /* see kv_tx_patient() */
void prefill_hold_commit(struct prefill_hold *h, struct kv_commit *c); /* see kv_tx_commit() */
void prefill_hold_drop(struct prefill_hold **h); /* no event comes after; NULL is fine */

#endif
