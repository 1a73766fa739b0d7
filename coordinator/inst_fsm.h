/* inst_fsm: the life of an instance as its coordinator sees it, as a table. Pure; what is done
 * about a step belongs to the caller. */
#ifndef BATON_COORDINATOR_INST_FSM_H
#define BATON_COORDINATOR_INST_FSM_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"

enum inst_state {
    INST_UNKNOWN,     /* listed or registered; it has not said anything yet */
    INST_ONLINE,      /* it answers, and has no role from us */
    INST_ROLE_POSTED, /* it took a role, and does not say yet that it is ready */
    INST_SERVING,     /* ready in its role: inst_serves() says whether it gets work now */
    INST_DRAINING,    /* nothing new; what it has ends or moves (drain.h) */
    INST_LEAVING,     /* it says itself that it is being stopped */
    INST_FAULTY,      /* lost: whatever was there is given up */
    INST_STATE_COUNT
};

enum inst_event {
    INST_EV_STATUS,     /* it answered a poll */
    INST_EV_ROLE_TAKEN, /* it took a role that it did not have */
    INST_EV_ROLE_READY, /* it says that it is ready in the role it is to have */
    INST_EV_ROLE_LOST,  /* it has another role than it was given */
    INST_EV_DRAIN,
    INST_EV_UNDRAIN,
    INST_EV_STOPPING, /* it says that it is being stopped */
    INST_EV_LOST,     /* no sign of life, or another process */
    INST_EVENT_COUNT
};

struct inst_fsm {
    enum inst_state state;
};

const char *inst_state_name(enum inst_state s); /* "unknown", "online", "role posted", .. */
/* The only writer of fsm->state; logs the step with the instance's id. ERR_CONFLICT: the table
 * refuses the pair, nothing changed. */
enum err inst_fsm_step(struct inst_fsm *fsm, uint32_t id, enum inst_event ev);

/* It answers: calls may be made to it. */
static inline bool inst_state_answers(enum inst_state s) {
    return s != INST_UNKNOWN && s != INST_FAULTY;
}
/* It has its role, and said so. */
static inline bool inst_state_has_role(enum inst_state s) {
    return s == INST_SERVING || s == INST_DRAINING;
}

#endif
