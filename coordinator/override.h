/* override: an operator's role for an instance that ends by itself. As long as it holds, the plan
 * treats the instance as one whose label allows that role alone; then it goes back to the role it
 * had before. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_OVERRIDE_H
#define BATON_COORDINATOR_OVERRIDE_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/role_msg.h"

struct coordinator;
struct inst;

enum { OVERRIDE_S_MAX = 604800 };

struct inst_override {
    enum inst_role role; /* ROLE_NONE: there is none */
    enum inst_role back; /* ROLE_NONE: it had no role before */
    uint64_t until_ms;
    uint64_t until_unix_s; /* the same, for the store */
};

/* A switch (planner_switch()) for `seconds`, from 1 to OVERRIDE_S_MAX. One that replaces another
 * goes back to what was before that. */
enum err override_order(struct coordinator *co, uint32_t id, enum inst_role role, bool force,
                        uint64_t seconds, struct errbuf *eb);
/* Ends it now: the instance goes back. ERR_NOT_FOUND; ERR_CONFLICT: there is none. */
enum err override_end(struct coordinator *co, uint32_t id, struct errbuf *eb);
/* In each tick: ends one whose time is over. Where the instance cannot go back (it is the last of
 * its role, or away), it keeps the role, and the plan may move it again. */
void override_tick(struct coordinator *co, struct inst *in, uint64_t now_ms);
/* What the plan is shown as its label. */
int override_label(const struct inst *in);
/* As it was kept by a coordinator before this one: it ends at that time of the wall clock, in
 * OVERRIDE_S_MAX at the latest. */
void override_resume(struct inst *in, enum inst_role role, enum inst_role back,
                     uint64_t until_unix_s);

#endif
