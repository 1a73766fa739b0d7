/* decode_req: one request at a decode instance, shared by the files of this folder.
 *
 *   decode_role.c    the contract of a role, and what only time tells
 *   decode_admit.c   from the offer to the verified KV
 *   decode_queue.c   offers that wait for room, in order
 *   decode_answer.c  from the first tokens to the last frame
 *
 * A request of several prompts comes prompt by prompt, each with an offer, a sequence and a commit
 * of its own: its parts. A part decodes as soon as its KV is here, so that parts which do not fit
 * together run one after another; what it says waits (part->early) until every part has come, for
 * only then P answers its coordinator and the answer can stand where P's stood.
 *
 * A request that ends leaves the instance's set at once; what it still holds on the link and in the
 * engine winds down alone (req_seq.h). */
#ifndef BATON_DECODE_DECODE_REQ_H
#define BATON_DECODE_DECODE_REQ_H

#include "common/base/buf.h"
#include "common/instance/answer_job.h"
#include "common/instance/dresult_out.h"
#include "common/instance/guide_job.h"
#include "common/instance/instance.h"
#include "common/instance/req_set.h"

enum { RECENT_MAX = 1024, WAITING_MAX = 4096 };

struct decode;
struct dreq;

/* One prompt of the request. */
struct dpart {
    struct dreq *d;
    struct infer_req *req;     /* NULL: not offered yet */
    struct req_seq *seq;       /* NULL: P keeps it, or it has no more to say */
    struct guide_job *guiding; /* its guide is being compiled; then it is queued */
    /* decode_queue.c */
    struct dpart *wait_next;
    bool waiting, trying; /* in the queue; in the engine, which has not answered yet */
    uint64_t stamp;       /* order of the offers */
    uint64_t tenant;
    int64_t n_slots, n_blocks; /* it will need, blocks found by prefix not counted */
    bool committed;
    bool searching; /* its beam search goes on: the commit has where it stands, no answer */
    struct kv_commit commit;                 /* what P said with the KV; from then on */
    uint64_t ended[(CHOICES_MAX + 63) / 64]; /* choices that have no more to say */
    struct token_event *early;               /* [n_early] ours, before every part was here */
    size_t n_early, early_cap;
};

struct dreq {
    struct inst_req of; /* first */
    struct decode *role;
    struct infer_req *req; /* of one part: what all have in common is read from it */
    uint32_t n_parts, n_committed;
    struct answer *answer;  /* once every part is committed, and it stands where it goes on */
    struct answer_job *job; /* puts it there; d lives until that is over */
    bool working;           /* the job has not called back yet */
    bool stop_asked;        /* while it works: ends then */
    struct buf out;         /* what the client has not got yet */
    struct emitted *tokens; /* of the next frame; room that is used again */
    size_t n_tokens, tokens_cap;
    unsigned n_untold; /* of an answer in one piece: made since the last frame, at told_ms */
    uint64_t told_ms;
    bool here;         /* its prompts were computed on this instance: nothing comes over a link */
    bool begun;        /* the client has bytes of the answer, from P or from here */
    bool paused;       /* its sequences make no tokens until the listener has read some */
    uint64_t offer_ms; /* when P last spoke of a part that is not here yet */
    struct dpart parts[]; /* [n_parts] */
};

struct decode {
    struct instance *in;
    struct dpart *waiting; /* for room, in the order of the offers */
    unsigned n_waiting, n_trying;
    int64_t trying_slots, trying_blocks; /* of those in the engine that it has not answered yet */
    uint64_t next_stamp, tried_ms;
    struct loop_alarm room; /* while parts wait */
    uint64_t listener_seen_ms;
    /* the newest attempts seen, so that an older one arriving late is refused */
    struct recent {
        char *req_id;
        uint32_t epoch;
        bool over; /* that attempt, of several parts, has ended: none of them is taken any more */
    } recent[RECENT_MAX];
    size_t n_recent; /* ever noted */
};

/* ---- decode_admit.c */
void decode_on_offer(void *role, struct kv_peer *peer, struct kv_rx *rx, struct infer_req *req,
                     uint32_t n_blocks);
/* role_ops.take */
enum err decode_take(void *role, struct infer_req **req, struct req_seq **seq, struct kv_commit *c,
                     struct errbuf *eb);
extern const struct req_kind decode_kind; /* decode_role.c */
/* Ends the request and gives back what it holds; d is not the caller's any more. While the KV is
 * still on its way P hears text, and by why whether the request was stopped (ERR_CANCELLED) or may
 * be tried elsewhere. */
void dreq_drop(struct dreq *d, enum err why, const char *text);
void dreq_free(struct dreq *d); /* of a dropped one whose job is over */

/* Gives it to the engine, which answers dpart_tried(). ENDED: its request is gone. */
enum dpart_entry { DPART_ENTERED, DPART_QUEUE_FULL, DPART_ENDED };
enum dpart_entry dpart_enter(struct dpart *part);
/* P took an offer back that nobody has answered yet. */
void decode_on_withdrawn(void *role, const struct kv_key *key);
/* Whether parts are missing and P has gone silent about them. */
bool dreq_forgotten(const struct dreq *d, uint64_t now_ms);

/* ---- decode_queue.c */
void dpart_reckon(struct dpart *part); /* what it takes in the engine */
/* Enters the engine as soon as there is room and nobody before it waits for that. May end it. */
void dpart_queue(struct dpart *part);
/* The engine has answered. again: it had no room, part keeps its place. False: too many wait. */
bool dpart_tried(struct dpart *part, bool again);
void dpart_unqueue(struct dpart *part); /* it leaves, in the queue or in the engine */
void decode_look(struct decode *role);  /* room may have come free */

/* ---- decode_answer.c */
/* The KV of a part is verified: lets the engine go on with it, and with the last part feeds P's
 * tokens to the answer. Ends the request itself when that fails. */
void dpart_start(struct dpart *part, const struct kv_commit *c);
/* The result stream has room for the request again; arg: the dreq. */
void dreq_on_room(void *arg);
/* Ends the request. Once every part of it is committed the coordinator waits for us, and gets an
 * error frame, whatever memory and limits say; before that P is told. */
void dreq_fail(struct dreq *d, enum cause cause, int status, const char *text);
/* Ends it as stopInfer does: the normal end of an answer, finish reason abort. */
void dreq_stop(struct dreq *d);
void dpart_on_token(void *part, const struct token_event *ev); /* req_seq_owner */
void dpart_on_failed(void *part, enum err e);

#endif
