/* election: which of several coordinators leads: the one that has made a key of etcd, the lock, on
 * a lease that it keeps renewing. The lock goes with its lease, and the next one makes it.
 *
 * Who leads may rely on it until the lease can have ended, counted from the moment in which the
 * last renewal was sent, on the clock that also runs while the machine sleeps. election_leads()
 * looks at that clock, so that it is right in the first moment after a process was stopped.
 *
 * Thread: the loop thread. */
#ifndef BATON_COORDINATOR_ELECTION_H
#define BATON_COORDINATOR_ELECTION_H

#include <stdbool.h>
#include <stdint.h>
#include "coordinator/etcd.h"
#include "proto/err.h"

struct loop;
struct election;

enum { ELECTION_KEY_BYTES = 160, ELECTION_VALUE_BYTES = 256, ELECTION_BEAT_MS = 100 };

struct election_opts {
    struct loop *loop;
    struct etcd *etcd; /* lent */
    const char *lock;  /* its key, and that of the state; lent */
    const char *state;
    const char *value; /* of the lock: who we are; lent */
    unsigned ttl_s;
    /* While etcd is away the leader goes on behind the end of its lease, until it hears of
     * another. */
    bool keep_on_loss;
    /* The lock is ours, made at that revision; value: of the state, NULL: there is none. */
    void (*on_won)(void *arg, int64_t revision, const struct buf *value);
    /* It is not any more, or may not be. Not after election_resign(). */
    void (*on_lost)(void *arg, const char *why);
    void *arg;
};

enum err election_create(struct election **out, const struct election_opts *o);
void election_destroy(struct election **e);

bool election_leads(const struct election *e);
/* It leads behind the end of its lease (keep_on_loss). */
bool election_is_unsure(const struct election *e);
/* Milliseconds until the lease may have ended; 0: it may have. */
uint64_t election_left_ms(const struct election *e);
/* Revision of the lock that is ours; 0: it is not. */
int64_t election_revision(const struct election *e);
/* Value of the lock as it was seen last, up to ELECTION_MORE; "": nobody had it, or it is not
 * known.
 */
#define ELECTION_MORE ';'
const char *election_leader(const struct election *e);
/* What the value of the lock says behind ELECTION_MORE; "": nothing. */
const char *election_leader_more(const struct election *e);
/* Why etcd could not be asked; "": it answers. */
const char *election_trouble(const struct election *e);
/* The lock is known to be another's, or another acts: on_lost, and it stands again later. */
void election_depose(struct election *e, const char *why);
/* Lets go of the lease, and does not stand for a while, or (for good) ever again: then it goes on
 * looking who leads. on_done runs when
 * etcd has answered, a second later at the latest; it may be NULL. */
void election_resign(struct election *e, bool for_good, void (*on_done)(void *arg), void *arg);

#endif
