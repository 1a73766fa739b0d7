/* stand_in: instances that do both while their group has nobody of the other role (plan.h, rule 6;
 * `pd.fallback_to_standard`): how they are told, and how they come back to their role. Such an
 * instance has the role flex, and is P and D of a request alone. When the other role serves again
 * it gets no new request of that kind, keeps flex until none is left, and is posted its own role.
 *
 * A role that changes for a load comes and goes the same way: the instance is posted flex with
 * everybody of its group as peers, has its new role as soon as it has taken that, and is flex until
 * nothing of the old one is left. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_STAND_IN_H
#define BATON_COORDINATOR_STAND_IN_H

#include <stdbool.h>
#include <stdint.h>
#include "coordinator/plan.h"
#include "proto/role_msg.h"

struct coordinator;
struct inst;
struct status_msg;

/* Its role changes at once (a load wants it), or has changed and some of the old one is left. */
bool stand_in_changes(const struct inst *in);

/* The role body's p_percentage of one that does both: 98 or 99 of one that stands in, else the
 * share of its plan. It is odd of one whose own role is prefill: its status repeats it, so that the
 * next coordinator knows which role it is to have again. */
int stand_in_share(const struct plan_place *at);
/* That of in; of one that changes at once already that of its new role. */
int stand_in_share_of(const struct inst *in);
/* Whether a flex that says so stands in. */
bool stand_in_says(int p_percentage);
/* Which role of a plan goes with a status: prefill or decode, also of one that stands in; else
 * ROLE_NONE. */
enum inst_role stand_in_reported(const struct coordinator *co, const struct status_msg *m);

/* What it is to be posted as: the role of its plan, or flex. ROLE_NONE: it has no role yet. */
enum inst_role stand_in_word(const struct inst *in);

/* Somebody is gone: whoever is to stand in is told at once. */
void stand_in_now(struct coordinator *co);
/* In each tick: what is left of the time in which it stood in, or had another role, ends there
 * within `pd.drain_soft_s`, and then goes on elsewhere. */
void stand_in_tick(struct coordinator *co, struct inst *in, uint64_t now_ms);

#endif
