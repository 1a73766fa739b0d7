/* plan_preview: what plan_make() would change, now or, if nothing else happened, at the next moment
 * at which the mere time changes something; why; and which groups lack a role that no rule can give
 * them, and which constraint forbids it. It asks plan_make() itself, on a copy. Pure. */
#ifndef BATON_COORDINATOR_PLAN_PREVIEW_H
#define BATON_COORDINATOR_PLAN_PREVIEW_H

#include "coordinator/plan.h"

enum { PLAN_WHY_BYTES = 200, PLAN_LOOKS_MAX = 16 /* moments ahead that are looked at */ };

struct plan_change {
    uint32_t id;
    struct plan_place from, to;
    char why[PLAN_WHY_BYTES];
};

/* A group in which nobody takes new work of a role, after the changes. */
struct plan_lack {
    unsigned group;
    enum inst_role role;
    char why[PLAN_WHY_BYTES]; /* it stays so */
};

struct plan_preview {
    uint64_t in_ms;              /* until the changes; 0: the next run makes them */
    struct plan_change *changes; /* by id */
    size_t n_changes;
    struct plan_lack *lacks; /* by group; prefill first */
    size_t n_lacks;
};

/* p stays as it is, but for the order of its nodes. ERR_NO_MEMORY: *out is empty. */
enum err plan_preview(struct plan_preview *out, struct plan *p, const struct plan_conf *c,
                      uint64_t now_ms);
void plan_preview_free(struct plan_preview *v);

#endif
