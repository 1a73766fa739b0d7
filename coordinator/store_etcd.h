/* store_etcd: the store of several coordinators, one of which leads (election.h). Only who leads
 * writes it, and etcd itself refuses one whose lock is gone. A term is in etcd before anything is
 * ordered under it, so that each leader's is above those of all before it. */
#ifndef BATON_COORDINATOR_STORE_ETCD_H
#define BATON_COORDINATOR_STORE_ETCD_H

#include "coordinator/election.h"
#include "coordinator/store.h"

#define STORE_LOCK_NAME  "leader-lock"
#define STORE_STATE_NAME "state"

struct store_etcd_opts {
    struct loop *loop;
    struct etcd *etcd;  /* lent */
    const char *prefix; /* of the two keys: "/name-space/coordinator/" */
    const char *value;  /* of the lock: who we are; lent */
    unsigned ttl_s;
    bool keep_on_loss;
    /* We lead, under the term of the store, which holds what the leader before us kept. */
    void (*on_lead)(void *arg);
    /* We do not any more. */
    void (*on_yield)(void *arg, const char *why);
    void *arg;
};

/* Starts empty, and stands for election at once. A process that has led before keeps its own state
 * where etcd has lost it. ERR_INVALID: the prefix is too long. */
enum err store_etcd_open(struct store **out, const struct store_etcd_opts *o);
/* We lead, and on_lead has run. */
bool store_etcd_leads(const struct store *s);
/* For questions; giving the lead away goes through store_etcd_resign(). */
const struct election *store_etcd_election(const struct store *s);
/* Another acts as the leader: on_yield, and we stand again later. */
void store_etcd_depose(struct store *s, const char *why);
/* election_resign(); on_yield does not run. */
void store_etcd_resign(struct store *s, bool for_good, void (*on_done)(void *arg), void *arg);

#endif
