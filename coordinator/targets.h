/* targets: how soon a tenant is to have its first token and the next ones (controller.digs_*_slo,
 * or its API key's own), and which of all that were asked for lately are the strictest. Instances
 * serve all tenants: a batch has one step, and a queue one length, for whoever is in it. So what
 * must hold for one of them must hold on every instance, and that is what the planner is told; one
 * who asks for nothing any more is forgotten. Pure. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_TARGETS_H
#define BATON_COORDINATOR_TARGETS_H

#include <stddef.h>
#include <stdint.h>

struct targets {
    double first_token_s, token_s;
};

/* Those that were asked for lately: of more than so many different ones the loosest are not kept.
 * All zero at first. */
enum { TARGETS_KEPT = 16 };
struct target_row {
    double s; /* 0: free */
    uint64_t seen_ms;
};
struct targets_seen {
    struct target_row first_token[TARGETS_KEPT], token[TARGETS_KEPT];
};
void targets_note(struct targets_seen *b, const struct targets *t, uint64_t now_ms);
/* Of those that were noted since; `otherwise` where none was. */
struct targets targets_strictest(const struct targets_seen *b, uint64_t since_ms,
                                 struct targets otherwise);

#endif
