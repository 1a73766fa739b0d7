/* relay_priv: the inside of a request in the coordinator, for the relay_*.c files:
 *
 *   relay.c          admission, the set, what comes from outside: losses, moves, time
 *   relay_fsm.c      the states as a table
 *   relay_act.c      the one writer of a state, and what is done on each move
 *   relay_queue.c    who waits for a pair, in whose turn, and the choice
 *   relay_attempt.c  an attempt begins and ends; the call to P
 *   relay_answer.c   P's answer: first tokens, or why not
 *   relay_pieces.c   D's frames: put together, in order, early ones kept
 *   relay_verdict.c  what an attempt says of P, D and link to their breakers
 *   relay_prefix.c   where its beginning was computed, and who had the conversation
 *   relay_targets.c  how soon its tenant is to have tokens
 *   relay_stop.c     stopInfer
 *   relay_log.c      what becomes known of a request: transcript, attempts, its record
 *   relay_record.c   the records as JSON
 *   relay_out.c      the only one that writes to a client
 *   relay_journal.c  clients that come back, and what is kept for them */
#ifndef BATON_COORDINATOR_RELAY_PRIV_H
#define BATON_COORDINATOR_RELAY_PRIV_H

#include "common/base/buf.h"
#include "common/base/model_stats.h"
#include "common/net/kept.h"
#include "common/net/api_keys.h"
#include "coordinator/body_look.h"
#include "coordinator/coord_metrics.h"
#include "coordinator/coordinator.h"
#include "coordinator/forecast.h"
#include "coordinator/mem_guard.h"
#include "coordinator/prefix_book.h"
#include "coordinator/otlp.h"
#include "coordinator/relay.h"
#include "coordinator/relay_fsm.h"
#include "coordinator/relay_out.h"
#include "coordinator/tenants.h"
#include "proto/cause.h"
#include "proto/limits.h"
#include "proto/transcript.h"

struct journal_entry;

/* A whole piece of an answer, as it came from D; what it points to lives during the call. */
struct piece {
    enum dresult_kind kind;
    int status;       /* of DR_ERROR */
    enum cause cause; /* of DR_ERROR */
    const char *body;
    size_t len;
    const struct emitted *tokens;
    size_t n_tokens;
};

/* One that came before P's answer: its tokens and its body follow. */
struct early_piece {
    struct early_piece *next;
    struct piece piece;
    struct emitted data[];
};

/* What P measured of the hand-over, for the record of the request. */
struct handover {
    uint64_t kv_bytes, kv_blocks, kv_blocks_held, prompt_tokens, cached_tokens;
    double transfer_ms, exposed_ms, p_queue_ms, prefill_ms;
};

/* What was said of one end of an attempt to its breaker. */
struct attempt_end {
    bool probe, reported;
};

/* One try of a request at a pair. Begun by attempt_begin(), ended by attempt_end(), which also has
 * whoever is left behind stopped: that goes on by itself (relay_stop.c), fenced by the epoch, while
 * the next one runs. */
struct attempt {
    uint32_t p_id, d_id; /* 0: none runs */
    uint32_t epoch;
    bool answered;                  /* by P, with first tokens */
    bool p_booked;                  /* until P has answered */
    struct ledger_entry at_p, at_d; /* what is booked */
    struct attempt_end p_end, d_end, link_end;
    struct http_call *call; /* to P, until it has answered */
    uint64_t next_seq;      /* of D's frames */
    uint64_t frame_ms;      /* the last one; 0: none yet */
    uint64_t sent_us;
    struct early_piece *early, **early_last;
    struct buf part, part_tokens; /* of D's piece, as far as its parts have come */
    size_t kept_bytes;            /* of all these, counted as BUDGET_ANSWER_BYTES */
};

/* Who may still work for an attempt that is given up. */
enum left { LEFT_NOBODY, LEFT_D, LEFT_BOTH };

/* An attempt that was lost, for the record of the request. */
struct lost_attempt {
    uint32_t epoch, p_id, d_id;
    char p_name[INSTANCE_NAME_BYTES_MAX + 1], d_name[INSTANCE_NAME_BYTES_MAX + 1];
    enum cause cause;
    uint32_t n_kept;         /* tokens the client has and the next attempt goes on behind */
    uint64_t n_fetched;      /* tokens whose KV the next attempt had from this one's D */
    uint64_t silence_us;     /* until a piece of the next one came */
    uint64_t silent_unix_us; /* since when */
};

enum { ATTEMPTS_MAX = 64 }; /* of a request, planned moves and all */

/* What each event and each look at all requests reads comes first: with thousands of them it is not
 * in any cache. */
struct relay {
    struct relay *next, **at; /* all requests */
    struct relay *hash_next;  /* bucket of the id table */
    uint64_t id;
    size_t slot;            /* its place in relay_set.looks */
    enum relay_state state; /* written by relay_step() alone */
    bool counted;           /* in the budget of requests */
    struct relay_set *set;
    struct journal_entry *entry; /* its client may come back (journal.h); NULL: it may not */
    uint64_t silent_since_us;    /* a lost attempt's silence goes on; 0: none does */
    uint64_t last_piece_us, n_tokens;
    uint64_t skip_to; /* so many events its client had of a coordinator before */
    bool feeds_kept;  /* its first client is gone: what it keeps is said to it */
    struct relay_out out;
    struct attempt attempt;
    const struct api_path *path;
    struct tenant *tenant; /* whose request it is */
    char id_text[24];
    struct relay *client_next;               /* bucket of the table of client ids */
    struct relay *queue_next, *queue_prev;   /* waiting requests of the tenant */
    char url_path[API_PATH_BYTES];           /* the path with the model, as P gets it */
    char client_id[CLIENT_ID_BYTES_MAX + 1]; /* Triton id or request_id; "" when none */
    struct lost_attempt *lost;               /* [n_logged] oldest first */
    unsigned n_logged;
    unsigned n_lost;     /* attempts before this one: its epoch */
    unsigned n_failures; /* of them those that were no planned moves */
    struct {
        uint32_t p, d;          /* the last attempt failed there: another one, if there is any */
        uint64_t not_before_ms; /* of an attempt at the same ones again */
    } avoid;
    uint32_t kv_at; /* a D that has KV of it: the one that the attempt before has left in a planned
                       move, or of a first attempt one that has its beginning; 0: none */
    struct transcript transcript;
    size_t transcript_bytes; /* counted as BUDGET_TRANSCRIPT_BYTES */
    bool transcript_broken;  /* it was given up: what the client has is not known any more */
    const char *body;        /* [n_body] the client's; of out.x, or of the entry */
    size_t n_body;
    uint64_t gone_ms;     /* since when its client is away; 0: it is there */
    unsigned epoch_base;  /* of attempts: above those of a coordinator before */
    struct demand demand; /* of the attempt that is to be, or runs */
    double expected_tokens;
    size_t n_chars;
    struct prefix_key *keys; /* [n_keys] of its input, which has input_bytes; NULL: none */
    size_t n_keys, input_bytes;
    unsigned n_ends; /* keys that may be where its last message ends; 0: it is a text */
    unsigned n_prompts, n_sequences;
    uint64_t new_tokens_max; /* of a sequence; 0: the client did not say */
    unsigned priority;       /* 1 first to 5 last */
    uint64_t deadline_ms;    /* the client wants its first token until then; 0: it did not say */
    double charged;          /* to the tenant, for this request; 0: not yet */
    struct kept_ask ask;     /* what lies before the body */
    struct buf recompute;    /* D's body in place of the client's (5.7); empty: none */
    uint64_t arrival_ms;
    uint64_t since_ms; /* of the wait for a first token: arrival, or the loss of the last attempt */
    enum cause silent_cause; /* what ended that attempt */
    bool refusal_recorded;   /* that no pair was found for it, since it waits (recorder.h) */
    uint64_t arrival_us, queued_us, first_token_us; /* for the metrics */
    uint64_t last_token_us;                         /* that came from D, or P's; 0: none has */
    struct handover handover;
    char *adapter;                       /* as P has said; NULL: none, or not yet */
    unsigned n_answered;                 /* prompts, as P has said */
    uint64_t waited_us, waited_first_us; /* for a pair; of it before the first token */
    bool stop_asked;                     /* its client wants no more of it */
    bool traced;                         /* and exported (otlp.h) */
    struct otlp_place trace;
};

enum { BUCKETS = 16384, RECENT = 128, RELAY_EXPECTED = 16 };

/* What is known of a request that has ended; of one that runs, relay_log_fill(). */
struct recent {
    char id[24];
    char tenant[TENANT_BYTES_MAX + 1], adapter[ADAPTER_NAME_BYTES_MAX + 1];
    const char *path;
    enum relay_state state;
    uint32_t epoch, p_id, d_id;
    char p_name[INSTANCE_NAME_BYTES_MAX + 1], d_name[INSTANCE_NAME_BYTES_MAX + 1];
    bool stream;
    int status;
    enum cause cause; /* of an end by the coordinator or an instance; CAUSE_NONE */
    uint64_t started_unix_ms, ttft_us, queue_us, total_ms, n_tokens;
    struct handover handover;
    struct lost_attempt *lost; /* owned */
    unsigned n_lost;
};

enum { RELAY_MEAN_OF = 32 }; /* answers that a mean remembers, about */

/* Of requests that were answered; halved when there are LENGTHS_MAX. */
enum { LENGTHS_MAX = 2000 };
struct length_sums {
    double input, output; /* tokens */
    unsigned n;
};

struct relay_set {
    struct coordinator *co;
    struct relay *first;
    struct relay_look { /* when one may have something that is due by time; 0: now */
        struct relay *r;
        uint64_t at_ms;
    } * looks; /* [n] one beside the other: all of them are gone through each 100 ms */
    size_t looks_cap;
    struct relay *buckets[BUCKETS];
    struct relay *client_buckets[BUCKETS];
    struct tenants *tenants; /* and the requests of each that wait */
    struct model_stats *stats;
    double new_tokens_mean; /* of a sequence, as answers were */
    struct arrivals arrivals, placed;
    size_t n_waiting[PRIORITY_LAST + 1];     /* of the queued, by priority */
    double waiting_chars, waiting_sequences; /* of those that are queued */
    double uncached_mean;            /* part of a prompt that is computed, as answers said */
    double token_chars, token_bytes; /* of the input a token has, as answers said */
    double kv_token_bytes;           /* KV of a token, as transfers said; 0: not known */
    struct prefix_book *book;        /* NULL: nobody asks where a beginning was computed */
    struct affinity *affinity;       /* NULL: nor who had a conversation */
    struct targets_seen asked;       /* by tenants, lately */
    size_t n, n_queued;
    size_t n_recovering; /* of the queued */
    uint64_t turn;
    double p_turn, d_turn; /* where the turns of P's and of D's are (schedule_turn()) */
    struct loop_timer *scan;
    uint64_t expire_ms; /* the next look at what the journal has kept long enough */
    struct mem_guard memory;
    struct relay_counts counts;
    uint64_t expected[RELAY_EXPECTED]; /* ids of frames that come soon; 0: none */
    unsigned n_expected;               /* ever written */
    struct recent recent[RECENT];
    struct length_sums lengths;
    size_t n_recent; /* ever written */
};

/* What comes with an event; each action says what it reads. */
struct relay_input {
    const struct piece *piece; /* EV_EARLY, EV_PIECE; EV_REFUSED and EV_ANSWERED from D or P */
    const char *type;          /* EV_REFUSED: of the body; NULL: JSON */
    bool framed;               /* EV_REFUSED: the body may continue a stream as it is */
    struct inst *p, *d;        /* EV_PAIR */
    struct http_x *asker;      /* EV_STOP: who waits for the outcome; relay_stop.c */
    const char *asked_id;
    /* EV_LOST, EV_FAILED, EV_REFUSED, EV_STOP */
    enum cause cause;
    enum left left;
    int status;       /* EV_FAILED: 0: that of the cause */
    const char *text; /* EV_FAILED */
};

/* ---- relay_act.c */
/* The only writer of r->state. May end r. */
void relay_step(struct relay *r, enum relay_event e, const struct relay_input *in);
/* The attempt is of no use any more: another one begins where that can help and is allowed, else r
 * ends: by in->piece, the instance's own error, when there is one; else with in->text. in->cause
 * says whose it is: that one is avoided. */
void relay_lose(struct relay *r, const struct relay_input *in);
/* Away from an instance that is well and has to go; false: r stays where it is. */
bool relay_move(struct relay *r, uint32_t inst_id, enum cause cause);
/* Ends r with an error of the coordinator's own, whoever works for it is stopped. */
void relay_fail(struct relay *r, enum cause cause, const char *text);

/* ---- relay.c */
/* False: it is not admitted, and x is answered. */
bool relay_admit(struct relay_set *s, struct http_x *x, const struct api_path *path);
/* id 0: it gets its own. NULL: no memory. */
struct relay *relay_add(struct relay_set *s, struct http_x *x, const struct api_path *path,
                        const char *path_model, const struct body_look *look, uint64_t id);
/* By own or client's id, among the requests of the tenant's owner (proto/tenant.h). */
struct relay *relay_find_any(struct relay_set *s, const char *tenant, const char *id);
struct relay *relay_find(struct relay_set *s, uint64_t id);
/* Frees r, which has ended. */
void relay_remove(struct relay *r);

/* ---- relay_attempt.c */
/* Books, and sends to P; epoch: of the attempt. False: the call could not be made. */
bool attempt_begin(struct relay *r, struct inst *p, struct inst *d);
/* P has answered: what was booked there is free. */
void attempt_p_done(struct relay *r);
/* Everything it holds here goes; left: who is told to stop. Nothing where no attempt runs. */
void attempt_end(struct relay *r, enum left left);
/* Counts n bytes that the attempt keeps (BUDGET_ANSWER_BYTES). False: over the limit. */
bool attempt_keep(struct relay *r, size_t n);
void attempt_release(struct relay *r, size_t n);

/* ---- relay_answer.c */
void relay_on_p_answer(void *arg, const struct http_result *res);

/* ---- relay_pieces.c */
/* The next frame of D's answer, in order. May end r. */
void relay_take_frame(struct relay *r, const struct dresult_frame *f);
void relay_keep_early(struct relay *r, const struct piece *p); /* may end r */
/* Those that were kept, each as its own event. May end r. */
void relay_flush_early(struct relay *r);
void relay_drop_kept(struct relay *r);
/* A piece of D while decoding, or draining with P's answer out. */
void relay_take_piece(struct relay *r, const struct piece *p);

/* ---- relay_journal.c: clients that come back for the rest of an answer, or for the same again */
/* False: x is a request like any other. Else it is answered, or will be. */
bool relay_come_back(struct relay_set *s, struct http_x *x, const struct api_path *path,
                     const char *path_model);
/* From here on its client may come back, where that is switched on. */
void relay_journal_open(struct relay *r, struct http_x *x);
/* To the client, and to the journal. */
void relay_write(struct relay *r, const struct piece *p);
void relay_write_last(struct relay *r, const struct piece *p);
/* Its client has gone: it goes on for a while where that one may come back, else it ends. */
void relay_client_left(struct relay *r);
void relay_journal_ended(struct relay *r, int status, enum cause cause);
/* Whether its client may go to another coordinator with it, as this one stops. */
bool relay_is_handed_on(const struct relay *r, enum cause cause);
void relay_hand_on(struct relay *r, const char *text);

/* ---- relay_log.c */
/* r->transcript is that of a coordinator before: it is counted. */
void relay_log_adopt(struct relay *r);
/* Of P's answer: the first that knows opens the transcript. */
struct json_value;
void relay_log_first(struct relay *r, const struct json_value *answer);
/* Their events are out. */
void relay_log_tokens(struct relay *r, const struct emitted *t, size_t n);
/* Whether another attempt can go on where the client stands. */
bool relay_can_go_on(const struct relay *r);
void relay_log_lost(struct relay *r, enum cause cause);
void relay_log_recovered(struct relay *r); /* the silence of a lost attempt is over */
/* For the client's access log (http_x_note()): before the exchange is answered to its end. */
void relay_log_note(struct relay *r, enum cause cause);
void relay_log_end(struct relay *r, int status, enum cause cause);
void relay_log_free(struct relay *r);
/* What is known of r; lends e->lost to it. */
void relay_log_fill(const struct relay *r, struct recent *e);

/* ---- relay_stop.c */
/* stopInfer of an attempt with this epoch or an older one. keep: the next one fetches its KV. */
void relay_stop_at(const struct relay *r, uint32_t inst_id, uint32_t epoch, bool keep);
/* For a client that asked. Takes asker. */
void relay_ask_stop(struct relay *r, struct http_x *asker, const char *asked_id);

/* ---- relay_verdict.c: an attempt begins; ends, as P, D, the link have to do with it (reported
 * once each); is over, whatever was reported. cause: of a fault. */
void relay_verdicts_begin(struct relay *r, struct inst *p, struct inst *d);
void relay_report_p(struct relay *r, enum breaker_verdict v, const char *cause);
void relay_report_d(struct relay *r, enum breaker_verdict v, const char *cause);
void relay_report_link(struct relay *r, enum breaker_verdict v, const char *cause);
/* Tells a fault to whom it belongs; nothing for a cause that is none. */
void relay_report_fault(struct relay *r, enum cause cause, const char *detail);
void relay_verdicts_end(struct relay *r);
bool relay_breakers_all_closed(const struct coordinator *co);
/* Some P and D that serve together would get a request. */
bool relay_breakers_leave_a_pair(const struct coordinator *co, uint64_t now_ms);

/* ---- relay_prefix.c: where the beginning of a request lies */
void relay_prefix_open(struct relay *r, const struct body_look *look);
/* What of r is known: its tokens go to the demand. */
size_t relay_prefix_find(const struct relay *r, struct prefix_found out[PREFIX_FOUND_MAX],
                         struct demand *d);
/* P has answered; handed_over: D has all of it now. */
void relay_prefix_learn(struct relay *r, const struct json_value *answer, bool handed_over);
void relay_prefix_ended(struct relay *r);
/* Who had the conversation that it goes on with, 0: nobody known; and who has it from now on. */
uint32_t relay_prefix_home(const struct relay *r);
void relay_prefix_settle(const struct relay *r, uint32_t id);

/* ---- relay_targets.c: what its tenant was promised */
void relay_targets_open(struct relay *r, const struct key_terms *terms);
/* Its first token has come, so long after it; it has ended. */
void relay_targets_first(struct relay *r, uint64_t us);
void relay_targets_ended(struct relay *r);

/* ---- relay_queue.c */
/* What r, which waits, can expect; nothing where no target is set. False: it can go on waiting. */
bool relay_comes_too_late(struct relay *r, struct forecast *out);
/* The tenant pays what the request took, not what was guessed. */
void relay_settle(struct relay *r);
void relay_enqueue(struct relay *r);
void relay_note_arrival(struct relay *r); /* for what roles follow */
void relay_dequeue(struct relay *r);

#endif
