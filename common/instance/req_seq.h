/* req_seq: one prompt of a request in the engine of this instance, and its KV on a link: the life
 * of a sequence, the same whichever role it serves.
 *
 *   out         not in the engine: just opened, to be granted first, refused by it, or failed in it
 *   queued      waits for a slot and blocks
 *   prefilling  its prompt is computed here
 *   importing   has its blocks, which another instance fills
 *   held        computed, or lent: its blocks stay for another instance, or until it starts here
 *   decoding    makes tokens here
 *   detaching   given up, but the link still reads or writes the blocks
 *   leaving     given up, and the engine gives slot and blocks back
 *   gone        nothing is held
 *
 * Whoever gives one up, at any time, calls req_seq_drop() and hears no more of it; the rest happens
 * alone and in one order: first the transfer lets go of the blocks, then the sequence gives them
 * back, then the transfer's memory goes.
 *
 * Thread: the loop thread. */
#ifndef BATON_INSTANCE_REQ_SEQ_H
#define BATON_INSTANCE_REQ_SEQ_H

#include "common/endpoint/endpoint.h"
#include "common/instance/kv_plane.h"
#include "common/instance/worker.h"

enum req_seq_state {
    RSEQ_OUT,
    RSEQ_QUEUED,
    RSEQ_PREFILLING,
    RSEQ_IMPORTING,
    RSEQ_HELD,
    RSEQ_DECODING,
    RSEQ_DETACHING,
    RSEQ_LEAVING,
    RSEQ_GONE,
    RSEQ_STATES
};

enum req_seq_event {
    RSEQ_EV_ADDED,        /* the engine was asked */
    RSEQ_EV_REFUSED,      /* and said no: nothing is held */
    RSEQ_EV_ADMITTED,     /* it has its blocks, and is computed here */
    RSEQ_EV_RESERVED,     /* it has its blocks, for another instance to fill */
    RSEQ_EV_LENT,         /* it has its blocks, for another instance to read */
    RSEQ_EV_TOKEN,        /* of one that goes on here */
    RSEQ_EV_COMPUTED,     /* a first token of one that goes on elsewhere */
    RSEQ_EV_STARTED,      /* every block and first token is there: it goes on here */
    RSEQ_EV_FAILED,       /* in the engine, which holds nothing any more */
    RSEQ_EV_FAILED_HELD,  /* in the engine, which holds its blocks until it is dropped */
    RSEQ_EV_DROPPED,      /* its owner gives it up */
    RSEQ_EV_DROPPED_LATE, /* the same, while the link works on its blocks */
    RSEQ_EV_UNLINKED,     /* the transfer is over */
    RSEQ_EV_LEFT,         /* the engine has given everything back */
    RSEQ_EVENTS
};

/* The table. RSEQ_STATES: the state does not expect the event. */
enum req_seq_state req_seq_next(enum req_seq_state s, enum req_seq_event e);
const char *req_seq_state_name(enum req_seq_state s);
const char *req_seq_event_name(enum req_seq_event e);

struct req_seq;

/* What is open, for reports of load. Outlives its sequences. Zeroed by its owner at the start. */
struct req_seqs {
    unsigned n_winding_held; /* dropped, not gone yet: of those another instance waits for */
    unsigned n_winding;      /* the others */
    unsigned n_kept; /* of requests that have moved away: kept, or being lent (kv_lends.h) */
};

/* What the owner is told until it drops the sequence, which it may do in any of these. Members may
 * be NULL where they cannot come. */
struct req_seq_owner {
    /* It has its blocks. table: [n_blocks], n_held of them found by prefix; during the call. */
    void (*on_admitted)(void *arg, const int32_t *table, int n_blocks, int n_held, int n_cached);
    void (*on_refused)(void *arg, enum err e, const char *text); /* it may be added again */
    void (*on_token)(void *arg, const struct token_event *ev);
    void (*on_prompt_logprob)(void *arg, int position, const struct token_event *ev);
    void (*on_failed)(void *arg, enum err e);
    void (*on_sent)(void *arg, enum err e, const char *text,
                    const struct kv_tx_stats *st); /* kv_tx_opts.on_end */
    void (*on_received)(void *arg, enum err e, const char *text,
                        const struct kv_commit *c); /* kv_rx_end_fn */
};

/* Without a place in the engine yet. NULL: no memory. */
struct req_seq *req_seq_open(struct req_seqs *count, struct worker *w, const struct endpoint *ep,
                             const struct req_seq_owner *owner, void *arg);
/* Puts the prompt into the engine's queue; on_admitted or on_refused follows. kind: SEQ_WHOLE, or
 * SEQ_PREFILL, SEQ_IMPORT, SEQ_STAGED, SEQ_LEND or SEQ_FETCH. ERR_MISMATCH: the request's adapter
 * is not here, or another one; eb says which. ERR_BUSY: the engine's queue is full. ERR_NO_MEMORY.
 * It stays out then. */
enum err req_seq_add(struct req_seq *s, enum seq_kind kind, const struct infer_req *req,
                     struct errbuf *eb);
/* Another owner from now on: nothing of it changes. */
void req_seq_give(struct req_seq *s, const struct req_seq_owner *owner, void *arg);
/* ERR_OK: it goes on here. As worker_start() and worker_beam_start(). */
enum err req_seq_start(struct req_seq *s, const struct first_ids *first, size_t n_choices);
enum err req_seq_beam_start(struct req_seq *s, const struct token_event *first, size_t n_first);
void req_seq_choice_stop(struct req_seq *s, int choice); /* as worker_choice_stop() */
void req_seq_pause(struct req_seq *s, bool on);
enum req_seq_state req_seq_state(const struct req_seq *s);

/* ---- its KV goes to another instance */

/* Before req_seq_add(). It is offered to peer as soon as the engine has blocks for it, so that a
 * grant never waits for blocks of P, whose holders wait for grants; or, where peer comes first
 * (kv_peer_grants_first()), it is out until peer has granted it, and then added: *req must live as
 * long as the owner. Errors as kv_tx_open(). */
enum err req_seq_send_to(struct req_seq *s, struct kv_peer *peer, const struct infer_req *req);
void req_seq_patient(struct req_seq *s);                     /* see kv_tx_patient() */
void req_seq_commit(struct req_seq *s, struct kv_commit *c); /* see kv_tx_commit() */

/* ---- its KV comes from another instance */

void req_seq_take_offer(struct req_seq *s, struct kv_rx *rx); /* takes rx */
enum err req_seq_grant(struct req_seq *s, const int32_t *table, int n_blocks, int n_held);
/* Not now: whoever offers asks again after so long. Drops the sequence. */
void req_seq_send_away(struct req_seq **s, unsigned retry_after_ms);
/* Offered and not answered yet; offered, or on its way. */
bool req_seq_is_offered(const struct req_seq *s);
bool req_seq_is_linked(const struct req_seq *s);

/* ---- blocks of a request that has moved (engine.h: SEQ_FETCH, SEQ_LEND) */

/* In on_admitted: asks peer for what is missing; on_received follows. Errors as kv_rx_fetch(). */
enum err req_seq_fetch_from(struct req_seq *s, struct kv_peer *peer, const struct infer_req *req,
                            const int32_t *table, int n_blocks, int n_held);
/* After on_received: what is added from now on finds n_blocks by prefix. Drops the sequence. */
void req_seq_keep(struct req_seq **s, uint32_t n_blocks);
void req_seq_take_fetch(struct req_seq *s, struct kv_tx *tx); /* takes tx; then req_seq_add() */
/* In on_admitted: they go to the peer that asked; on_sent follows. */
enum err req_seq_lend(struct req_seq *s, const int32_t *table, int n_blocks);

/* Gives it up; no event follows. While another instance has a part in it, that one is told text,
 * and by why whether the request was stopped (ERR_CANCELLED) or may be tried elsewhere. NULL is
 * fine. */
void req_seq_drop(struct req_seq **s, enum err why, const char *text);

#endif
