/* relay_priv: the inside of a request in the coordinator, for the relay_*.c files. */
#ifndef BATON_COORDINATOR_RELAY_PRIV_H
#define BATON_COORDINATOR_RELAY_PRIV_H

#include "common/base/buf.h"
#include "coordinator/body_look.h"
#include "coordinator/coord_metrics.h"
#include "coordinator/coordinator.h"
#include "coordinator/mem_guard.h"
#include "coordinator/relay.h"
#include "coordinator/tenants.h"
#include "proto/cause.h"
#include "proto/limits.h"

enum relay_state {
    RELAY_WAITING, /* for a pair */
    RELAY_PREFILL, /* sent to P, no answer yet */
    RELAY_DECODE,  /* P's answer is out, D's pieces follow */
};

/* A piece of D that came before P's answer. */
struct early_frame {
    struct early_frame *next;
    enum dresult_kind kind;
    int status;
    size_t len;
    char body[];
};

/* What P measured of the hand-over, for the record of the request. */
struct handover {
    uint64_t kv_bytes, kv_blocks, kv_blocks_held, prompt_tokens;
    double transfer_ms, exposed_ms;
};

/* What was said of one end of an attempt to its breaker. */
struct attempt_end {
    bool probe, told;
};

struct relay {
    struct relay *next, **at;              /* all requests */
    struct relay *hash_next;               /* bucket of the id table */
    struct relay *client_next;             /* bucket of the table of client ids */
    struct relay *queue_next, *queue_prev; /* waiting requests of the tenant */
    bool queued, counted;                  /* it waits; it is in the budget of requests */
    struct relay_set *set;
    struct http_x *x;
    const struct api_path *path;
    char url_path[API_PATH_BYTES]; /* the path with the model, as P gets it */
    uint64_t id;
    char id_text[24];
    struct tenant *tenant;                   /* whose request it is */
    char client_id[CLIENT_ID_BYTES_MAX + 1]; /* Triton id or request_id; "" when none */
    bool stream, started;                    /* wants a stream; the head of the 200 is out */
    bool said;                               /* bytes of an answer are out: no other attempt */
    bool stop_asked;                         /* a client's stopInfer is under way */
    enum relay_state state;
    uint32_t epoch;
    uint64_t next_seq;
    unsigned n_retries;
    uint32_t p_id, d_id;       /* 0: none */
    uint32_t avoid_p, avoid_d; /* the last attempt failed there: another one, if there is any */
    uint64_t not_before_ms;    /* of an attempt at the same ones again */
    uint32_t left_d;           /* may still work for an attempt that was given up */
    bool p_booked, d_booked;
    struct attempt_end p_end, d_end, link_end;
    struct demand demand;
    double expected_tokens;
    size_t n_chars;
    unsigned n_prompts, n_sequences;
    uint64_t new_tokens_max; /* of a sequence; 0: the client did not say */
    double charged;          /* to the tenant, for this request; 0: not yet */
    char *body;              /* replaces the client's body after a retry frame; else NULL */
    size_t body_len;
    bool is_recompute;
    struct http_call *call;
    struct early_frame *early, **early_last;
    struct buf piece;  /* of D, as far as its parts have come */
    size_t kept_bytes; /* of early and piece, counted as BUDGET_ANSWER_BYTES */
    uint64_t arrival_ms, first_token_ms;
    uint64_t arrival_us, queued_us, sent_us, first_token_us, last_piece_us,
        n_tokens;      /* for the metrics */
    uint64_t piece_ms; /* clock of the last bytes written to a stream */
    struct handover handover;
};

enum { BUCKETS = 16384, RECENT = 128 };

struct recent {
    char id[24];
    const char *path;
    uint32_t epoch, p_id, d_id;
    char p_name[INSTANCE_NAME_BYTES_MAX + 1], d_name[INSTANCE_NAME_BYTES_MAX + 1];
    bool stream;
    int status;
    uint64_t ttft_ms, total_ms;
    struct handover handover;
};

struct relay_set {
    struct coordinator *co;
    struct relay *first;
    struct relay *buckets[BUCKETS];
    struct relay *client_buckets[BUCKETS];
    struct tenants *tenants; /* and the requests of each that wait */
    double new_tokens_mean;  /* of a sequence, as answers were */
    size_t n, n_queued;
    uint64_t turn;
    double p_turn, d_turn; /* where the turns of P's and of D's are (schedule_turn()) */
    struct loop_timer *scan;
    struct mem_guard memory;
    struct relay_counts counts;
    struct recent recent[RECENT];
    size_t n_recent; /* ever written */
};

/* relay.c */
void relay_finish(struct relay *r,
                  int status); /* books off, records, frees; x has its end already */
void relay_fail(struct relay *r, int status,
                const char *text); /* an error of the coordinator's own */
void relay_reply(struct relay *r, int status, const char *type, const char *body, size_t n);
bool relay_retry(struct relay *r,
                 enum cause why); /* back to the queue with the next epoch; false: no retry left */
void relay_lose_p(struct relay *r, enum cause why, const char *error); /* retries or fails */
void relay_piece(struct relay *r, const char *p, size_t n);            /* a piece of a stream */
/* An instance's own error body: the answer, or the last event of a stream whose head is out. */
void relay_error(struct relay *r, int status, const char *type, const char *body, size_t n);
void relay_piece_last(struct relay *r, const char *p,
                      size_t n); /* the end of a stream, or a whole body */
/* By own or client's id, among the requests of the tenant's owner (proto/tenant.h). */
struct relay *relay_find_any(struct relay_set *s, const char *tenant, const char *id);
/* relay_prefill.c */
void relay_send(struct relay *r, struct inst *p, struct inst *d);
/* relay_stop.c */
void relay_stop_left(struct relay *r);       /* stopInfer to left_d */
void relay_cancel_upstream(struct relay *r); /* stopInfer wherever somebody may work for r */
/* relay_prefill.c */
/* The next frame of D's answer, in order. May end r. */
void relay_take_frame(struct relay *r, const struct dresult_frame *f);
void relay_drop_kept(struct relay *r); /* what came of an answer and was not passed on */
/* relay_verdict.c: an attempt begins; ends, as P, D, the link have to do with it (told once each);
 * is over, whatever was told. cause: of a fault. */
void relay_verdicts_begin(struct relay *r, struct inst *p, struct inst *d);
void relay_tell_p(struct relay *r, enum breaker_verdict v, const char *cause);
void relay_tell_d(struct relay *r, enum breaker_verdict v, const char *cause);
void relay_tell_link(struct relay *r, enum breaker_verdict v, const char *cause);
void relay_verdicts_end(struct relay *r);
bool relay_breakers_all_closed(const struct coordinator *co);
/* Some P and D that serve together would get a request. */
bool relay_breakers_leave_a_pair(const struct coordinator *co, uint64_t now_ms);
/* relay_queue.c */
void relay_settle(
    struct relay *r); /* the tenant pays what the request took, not what was guessed */
void relay_enqueue(struct relay *r);
void relay_dequeue(struct relay *r);
void relay_unbook_p(struct relay *r);
void relay_unbook_d(struct relay *r);

#endif
