/* drain: takes an instance out of work without hurting a request. From the moment it is to be
 * drained it gets nothing new; what it has runs to its end for `pd.drain_soft_s`, and what is left
 * then goes on elsewhere, as long as there is an elsewhere. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_DRAIN_H
#define BATON_COORDINATOR_DRAIN_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"

struct coordinator;
struct inst;

/* Why an instance is being drained: an operator's order, a switch of its role, that it is being
 * stopped, that the rank table does not list it any more, that a controller took it offline: then
 * what it has stays there. */
enum drain_why {
    DRAIN_NONE,
    DRAIN_ORDER,
    DRAIN_SWITCH,
    DRAIN_STOPPING,
    DRAIN_UNLISTED,
    DRAIN_OFFLINE
};
const char *drain_why_name(enum drain_why why); /* "none", "order", "switch", .. */

/* An operator's order, and its end. The last instance of its role needs force: what it has then
 * stays there. ERR_NOT_FOUND, ERR_CONFLICT: eb says why. */
enum err drain_order(struct coordinator *co, uint32_t id, bool on, bool force, struct errbuf *eb);

/* Drains it and, once it is empty and does not register by itself (any more), forgets it.
 * ERR_CONFLICT: the rank table lists it, or a controller pushed it. Undrained, it stays. */
enum err drain_leave(struct coordinator *co, uint32_t id, bool force, struct errbuf *eb);
/* It is to leave, and nothing holds it any more. */
bool drain_is_over(const struct inst *in, uint64_t now_ms);

/* POST /v1/instances/offline and /online: nothing new there, what it has runs to its end; and the
 * end of that. An unknown id is logged. */
void drain_offline(struct coordinator *co, uint32_t id, bool on);

/* In each tick: begins, moves what is left, notes the end. */
void drain_tick(struct coordinator *co, struct inst *in, uint64_t now_ms);
/* Moves what is left now, where somebody else can go on with it. */
void drain_move(struct coordinator *co, struct inst *in);
/* Nothing of ours runs there, and it says itself that it is idle. */
bool drain_is_empty(const struct inst *in);

#endif
