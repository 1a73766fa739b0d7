/* worker: the engine thread of an instance and its two queues: commands in, events out to the loop.
 *
 * Thread: the loop thread, except where a callback says otherwise. No call blocks; a full queue is
 * ERR_BUSY. */
#ifndef BATON_INSTANCE_WORKER_H
#define BATON_INSTANCE_WORKER_H

#include "common/engine/engine.h"
#include "common/net/loop.h"

struct metric;
struct worker;
struct lora_set;

/* What a sequence's owner hears, on the loop thread unless said. Any member may be NULL. */
struct worker_events {
    void (*on_admitted)(void *arg, uint64_t seq_id, const int32_t *block_table, int n_blocks,
                        int n_held_blocks,
                        int n_cached_tokens); /* left the queue; for SEQ_IMPORT, SEQ_LEND and
                                                 SEQ_FETCH: reserved. The table lives during the
                                                 call */
    void (*on_refused)(void *arg, uint64_t seq_id, enum err e,
                       const char *text); /* never became live, nothing is held */
    void (*on_token)(void *arg, uint64_t seq_id, const struct token_event *ev);
    void (*on_prompt_logprob)(void *arg, uint64_t seq_id, int position,
                              const struct token_event *ev);
    /* SEQ_EMBED: f32 [hidden], and the head's numbers or NULL, for the time of the call; it has
     * ended */
    void (*on_embedded)(void *arg, uint64_t seq_id, const float *vector, const float *scores);
    /* the sequence has ended; but SEQ_PREFILL holds its blocks until let go or cancelled */
    void (*on_failed)(void *arg, uint64_t seq_id, enum err e);
    /* ENGINE thread, while the step runs; must only hand over (SEQ_PREFILL). It comes after the
     * sequence was admitted; block_table as above, valid until the sequence is released or
     * cancelled. */
    void (*on_kv)(void *arg, uint64_t seq_id, const int32_t *block_table, int layer, int first,
                  int n);
};

/* Takes the engine (closed by worker_close) and starts the thread. n_commands_max: room of the
 * command queue. */
enum err worker_open(struct worker **out, struct loop *loop, struct engine **engine,
                     size_t n_commands_max);
void worker_close(struct worker **w); /* ends the thread; no callback runs afterwards */
const struct engine *worker_engine(const struct worker *w); /* for its any-thread calls only */

/* The adapters of this instance; borrowed, and outlives the worker. */
void worker_set_loras(struct worker *w, struct lora_set *set);
/* The adapter that a request names, for seq_opts.lora: a reference of the caller's, or NULL for the
 * base model. ERR_MISMATCH: it is not here, or not the one with this hash; eb says which. */
enum err worker_adapter(const struct worker *w, const struct infer_req *req, struct lora **out,
                        struct errbuf *eb);

/* For seq_opts.prefix_salt: the same for all requests of one owner (proto/tenant.h), another for
 * each owner; of this process alone. With shared prefixes the same for everybody. */
uint64_t worker_prefix_salt(const struct worker *w, const struct infer_req *req);
/* For seq_opts.digest_seed: the same on all instances. */
uint64_t worker_digest_seed(const struct worker *w, const struct infer_req *req);
/* For seq_opts.tenant: a number for the request's tenant; 0: nobody said. */
uint64_t worker_tenant(const struct infer_req *req);
/* Each step of the engine tells `m` its tokens, of prompts and made; borrowed, and outlives the
 * worker. Before the first sequence. */
void worker_meter_steps(struct worker *w, struct metric *m);
/* The engine measures itself while there is no work: engine_calibrate(). */
void worker_calibrate(struct worker *w);
void worker_share_prefixes(struct worker *w, bool shared); /* before the first sequence; false */

/* engine_set_prefill_share(), from the next step on. */
void worker_set_prefill_share(struct worker *w, int percent);

uint64_t worker_next_seq_id(struct worker *w);
/* Copies *o (ids and sampling too). ev is copied; arg goes to every callback. */
enum err worker_add(struct worker *w, const struct seq_opts *o, const struct worker_events *ev,
                    void *arg);
/* SEQ_IMPORT and SEQ_STAGED; first as engine_seq_start() has it, copied. */
enum err worker_start(struct worker *w, uint64_t seq_id, const struct first_ids *first,
                      size_t n_choices);
/* SEQ_IMPORT of a beam search; first as engine_beam_start() has them, copied. */
enum err worker_beam_start(struct worker *w, uint64_t seq_id, const struct token_event *first,
                           size_t n_first);
/* Takes one choice out while others go on (the caller has found a stop string in its text): no
 * token of it is told after this call. Who has stopped or heard the end of the last one calls
 * worker_cancel(). */
void worker_choice_stop(struct worker *w, uint64_t seq_id, int choice);
/* The sequence takes no part in steps until it is resumed; it keeps what it has. False: without
 * memory, or unknown, it runs on. Neither fails for a full queue, and to resume needs no memory. */
bool worker_pause(struct worker *w, uint64_t seq_id);
void worker_resume(struct worker *w, uint64_t seq_id);
/* Ends the sequence whatever its state. No callback for it runs after this call (on_kv: after
 * `done` ran). done may be NULL; it runs on the loop thread when blocks and slot are free again.
 * False: it is over already, nothing is held and done will not run. Neither fails for a full queue
 * nor for memory. */
bool worker_cancel(struct worker *w, uint64_t seq_id, loop_fn *done, void *done_arg);
bool worker_release(struct worker *w, uint64_t seq_id, loop_fn *done,
                    void *done_arg); /* SEQ_PREFILL after its token */
/* SEQ_FETCH: ends it like worker_cancel(), and its first n_blocks are found by prefix by what is
 * added after this call. */
bool worker_keep(struct worker *w, uint64_t seq_id, int n_blocks, loop_fn *done, void *done_arg);
enum err worker_self_test(struct worker *w, void (*done)(void *arg, enum err e), void *arg);
/* Whether the engine takes steps; it does at the start. While it is held commands are still obeyed:
 * sequences come and go, and wait. done runs once the engine thread knows: then no step is under
 * way any more, and the next one does not begin before it is let go. Never fails for a full queue.
 */
enum err worker_hold(struct worker *w, bool held, void (*done)(void *arg, enum err e), void *arg);
uint64_t worker_last_step_us(const struct worker *w); /* any thread: clock_us() of the last
                                                         completed step or idle pass; a heartbeat */
/* 0: the engine thread gets on, or waits for work. Otherwise milliseconds since it was last seen
 * to: not before it has stood still for WORKER_STALL_MS, within a step or between two. A long step
 * that gets on, layer by layer and part by part, is none. A time in which this whole process did
 * not run does not count. */
enum { WORKER_STALL_MS = 3000 };
uint64_t worker_stuck_ms(const struct worker *w);

#endif
