/* journal: requests whose clients may come back for what they lack: what they asked for, what they
 * have been sent, and the tokens behind it. The coordinator that leads writes it as it relays;
 * those that stand by have a copy (journal_feed.h), so that whoever leads next can go on. Where
 * nobody works on a request it is kept for a while, and then forgotten.
 *
 * An answer that streams is kept as the bytes its client gets, each event with its `id:`. The
 * oldest of them go when an answer grows over JOURNAL_ANSWER_BYTES_MAX.
 *
 * Memory: all of it is counted (BUDGET_JOURNAL_BYTES); where it is full the oldest that nobody
 * works on give way, those of the same owner first. Knows no socket. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_JOURNAL_H
#define BATON_COORDINATOR_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/budget.h"
#include "coordinator/journal_msg.h"

struct journal;
struct relay;

enum { JOURNAL_ANSWER_BYTES_MAX = 1 << 20 }; /* of a stream */

struct journal_entry {
    struct journal_entry *next, *prev;             /* by serial */
    struct journal_entry *quiet_next, *quiet_prev; /* nobody works on it, the longest first */
    struct journal_entry *id_next, *key_next;      /* buckets */
    uint64_t serial;                               /* rising with each one that is opened */
    uint64_t id;                                   /* of the request */
    char id_text[24];
    char tenant[TENANT_BYTES_MAX + 1];
    char path[API_PATH_BYTES];           /* as P gets it */
    char key[JOURNAL_KEY_BYTES_MAX + 1]; /* Idempotency-Key; "": none */
    uint8_t digest[JOURNAL_DIGEST_BYTES];
    bool stream;
    bool broken;                   /* nobody can go on with it */
    bool done;                     /* the answer is whole */
    bool stale;                    /* of a leader before the one that is followed */
    bool shut;                     /* nobody finds it any more; its relay's, until that ends */
    uint32_t epoch_base;           /* of attempts: above those of a coordinator before */
    uint64_t opened_ms;            /* the request's arrival, on this clock */
    uint64_t until_ms;             /* kept until then; 0: somebody works on it */
    struct buf headers;            /* lines that P gets beside those of every request */
    struct buf body, context;      /* the client's; what lies before it */
    struct transcript transcript;  /* while no relay here has it */
    const struct transcript *live; /* the relay's */
    struct relay *relay;           /* who works on it here; NULL: nobody */
    struct buf answer;
    uint64_t first_event, n_events; /* number of the first in the answer; how many there were */
    uint64_t counted;               /* bytes, in the budget */
};

struct journal_opts {
    struct budget *budget;
    uint64_t answered_ms; /* so long an entry is kept that nobody works on */
    uint64_t keyed_ms;    /* the same of an answer with a key */
    /* Of everything that happens; e: the entry, still there. NULL: nobody is told. */
    void (*on_change)(void *arg, const struct journal_entry *e, const struct journal_msg *m);
    void *arg;
};

enum err journal_create(struct journal **out, const struct journal_opts *o);
void journal_destroy(struct journal **j);

/* ---- looking */
/* Among the entries of the tenant's owner (proto/tenant.h). */
struct journal_entry *journal_find(const struct journal *j, const char *tenant, uint64_t id);
struct journal_entry *journal_find_key(const struct journal *j, const char *tenant,
                                       const char *path, const char *key);
void journal_digest(uint8_t out[JOURNAL_DIGEST_BYTES], const void *body, size_t n);
/* The oldest whose serial is above; NULL: there is none. */
const struct journal_entry *journal_above(const struct journal *j, uint64_t serial);
uint64_t journal_last_serial(const struct journal *j);
size_t journal_count(const struct journal *j);
/* Fills m with all of e, as it is; lent from it, and not to be freed. */
void journal_tell(struct journal_msg *m, const struct journal_entry *e);
/* The answer behind the first n events of all. False: some of these are not kept any more. */
bool journal_answer_from(const struct journal_entry *e, uint64_t n, struct journal_span *out);
/* Behind the first n events of these. */
struct journal_span journal_skip_events(struct journal_span s, uint64_t n);

/* ---- what the leader's relay writes */
/* m: an ENTRY as it begins. NULL: no room, or no memory. Somebody works on it. */
struct journal_entry *journal_open(struct journal *j, const struct journal_msg *m);
void journal_start(struct journal *j, struct journal_entry *e, const struct transcript *t);
/* More of the answer. Of a stream: whole events; tagged, which the caller frees, gets them with
 * their ids. eol: what ends a line. False: no memory or room; the entry is shut. */
bool journal_piece(struct journal *j, struct journal_entry *e, const char *p, size_t n,
                   const struct emitted *tokens, size_t n_tokens, const char *eol,
                   struct buf *tagged);
void journal_break(struct journal *j, struct journal_entry *e);
void journal_done(struct journal *j, struct journal_entry *e, uint64_t now_ms);
void journal_drop(struct journal *j, struct journal_entry *e); /* frees it, as the two around it
                                                                * do with one that is shut */
/* Nobody works on it any more, and somebody may again. Takes *t. */
void journal_release(struct journal *j, struct journal_entry *e, struct transcript *t,
                     uint64_t now_ms);
/* r works on it; *t is what is known. */
void journal_take(struct journal *j, struct journal_entry *e, struct relay *r,
                  struct transcript *t);

/* ---- what one that stands by reads */
/* Its own copy of what a leader tells; takes the transcript of *m. Where there is no room it lacks
 * that request. */
void journal_apply(struct journal *j, struct journal_msg *m, uint64_t now_ms);
/* The leader has gone, or we lead: whoever does not come back in time is forgotten. */
void journal_orphan(struct journal *j, uint64_t now_ms);
/* A leader begins to tell all it has: what it does not name by journal_swept() goes then. */
void journal_sweep(struct journal *j);
void journal_swept(struct journal *j);

/* Forgets what has been kept long enough. */
void journal_expire(struct journal *j, uint64_t now_ms);

#endif
