/* tenants: who has requests in the coordinator (proto/tenant.h: an API key, or an address), what
 * each holds, and the order in which those that wait are served (fair.h).
 *
 * A tenant lives while it has requests, and until what it was charged is past; of tenants without
 * requests at most TENANTS_IDLE_MAX are kept, the oldest go first. So the table is bounded by the
 * requests in flight. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_TENANTS_H
#define BATON_COORDINATOR_TENANTS_H

#include <stddef.h>
#include "coordinator/fair.h"
#include "coordinator/targets.h"
#include "proto/tenant.h"

enum { TENANTS_IDLE_MAX = 1024 };

struct relay;

struct tenant {
    struct tenant *hash_next;
    struct tenant *prev, *next; /* all of its kind: with requests, or idle (oldest first) */
    struct tenant *aside;       /* set aside in a pass over those that wait */
    char name[TENANT_BYTES_MAX + 1];
    struct fair_flow flow;
    struct relay *first, *last; /* its queue: relay_queue.c */
    size_t n_queued, n_requests;
    uint64_t slots;                  /* of D's that its requests have */
    struct targets targets;          /* as its last request had them (relay_targets.c) */
    bool own_first_token, own_token; /* they are not those of all */
    struct {
        uint64_t first_token[2], token[2]; /* answers that were later, and in time */
    } kept;
    size_t heap_at; /* place among those that wait, from 1; 0: does not wait */
};

struct tenants;

struct tenants *tenants_create(void); /* NULL: no memory */
void tenants_destroy(struct tenants **ts);

/* A request of the tenant comes, goes. weight is of a tenant that is new. NULL: no memory. */
struct tenant *tenants_join(struct tenants *ts, const char *name, double weight);
void tenants_leave(struct tenants *ts, struct tenant *t);
struct tenant *tenants_find(struct tenants *ts, const char *name); /* NULL: none of that name */

/* It has requests that wait, or none any more. */
void tenants_wait(struct tenants *ts, struct tenant *t);
void tenants_wait_no_more(struct tenants *ts, struct tenant *t);
/* The one whose turn it is; it does not wait any more for the rest of a pass: tenants_wait() again
 * when it has requests left. NULL: nobody waits. */
struct tenant *tenants_next(struct tenants *ts);
size_t tenants_waiting(const struct tenants *ts);

void tenants_charge(struct tenants *ts, struct tenant *t, double cost);
void tenants_correct(struct tenants *ts, struct tenant *t, double by);
/* While others wait: fair_within() with the weights of all that have requests. */
bool tenants_within_share(const struct tenants *ts, const struct tenant *t, uint64_t wanted,
                          uint64_t slots_total);
/* The one with requests that wait and, over its weight, most requests; NULL: none waits. */
struct tenant *tenants_largest(const struct tenants *ts);
/* All that have requests, newest first, linked by next. */
struct tenant *tenants_first(const struct tenants *ts);
size_t tenants_count(const struct tenants *ts); /* of those */

#endif
