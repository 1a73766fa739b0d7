/* engine_fair: shares of slots and KV blocks among tenants.
 *
 * Who is next: of the waiting ones of the best priority, that of the tenant which has the fewest
 * slots, and of a tenant the oldest. So tenants that want more than there is come to have the same,
 * one that wants less has what it wants, and one alone has everything.
 *
 * What runs is never taken away, so a tenant that came first could hold all there is until its
 * sequences end, which may be a minute. Therefore:
 * - there are a quarter more slots than the batch has rows; those are only for tenants that hold
 *   less than their share, batch_max by the number of tenants. The rows of a step stay within
 *   batch_max (sched.h): then sequences that decode take turns;
 * - a tenant that has sequences already leaves an eighth of the blocks free, which hold prefixes
 *   meanwhile.
 * Tenant 0 is nobody: callers that know no tenants. It has no eighth to leave. */
#include <stdlib.h>

#include "common/engine/engine_priv.h"

enum { EXTRA_SLOTS = 4, RESERVED_BLOCKS = 8 }; /* so many-th part */

int engine_slots_max(int batch_max) {
    return batch_max + (batch_max + EXTRA_SLOTS - 1) / EXTRA_SLOTS;
}

/* ---- who holds what */

static struct tenant **find(struct engine *e, uint64_t id) {
    struct tenant **at = &e->tenants[id % ENGINE_TENANT_BUCKETS];
    while (*at != NULL && (*at)->id != id) at = &(*at)->next;
    return at;
}

bool engine_tenant_join(struct engine *e, struct seq *s, uint64_t id) {
    struct tenant **at = find(e, id);
    if (*at == NULL) {
        if ((*at = calloc(1, sizeof(**at))) == NULL) return false;
        (*at)->id = id;
        e->n_tenants++;
    }
    (*at)->n_seqs++;
    s->tenant = *at;
    return true;
}

void engine_tenant_leave(struct engine *e, struct seq *s) {
    struct tenant *t = s->tenant;
    s->tenant = NULL;
    if (t == NULL || --t->n_seqs > 0) return;
    struct tenant **at = find(e, t->id);
    *at = t->next;
    e->n_tenants--;
    free(t);
}

/* ---- admission */

/* Its tenant has what it may have at present; others may have more. */
static bool over_share(const struct engine *e, const struct seq *s) {
    const struct tenant *t = s->tenant;
    int share = e->batch_max / e->n_tenants;
    if (engine_slots_used(e) + s->n_choices > e->batch_max &&
        t->n_slots + s->n_choices > (share > 0 ? share : 1))
        return true;
    return t->id != 0 && t->n_blocks > 0 &&
           t->n_blocks + engine_blocks_needed(s) > e->n_blocks - e->n_blocks / RESERVED_BLOCKS;
}

bool engine_slots_allow(const struct engine *e, const struct seq *s) {
    return !over_share(e, s) && engine_slots_used(e) + s->n_choices <= e->slots_max;
}

static bool goes_before(const struct seq *a, const struct seq *b) {
    if (a->priority != b->priority) return a->priority < b->priority;
    if (a->tenant->n_slots != b->tenant->n_slots) return a->tenant->n_slots < b->tenant->n_slots;
    return a->age < b->age;
}

struct seq *engine_next_waiting(struct engine *e) {
    struct seq *next = NULL;
    e->fair_look++;
    for (struct seq *s = e->queue_head; s != NULL; s = s->next) {
        if (s->tenant->looked_at == e->fair_look) continue; /* its older ones go first */
        s->tenant->looked_at = e->fair_look;
        if (!over_share(e, s) && (next == NULL || goes_before(s, next))) next = s;
    }
    return next;
}
