/* role_fsm: the states of an instance's role (cluster-api 4), as a table. Pure; actions belong to
 * the caller. */
#ifndef BATON_INSTANCE_ROLE_FSM_H
#define BATON_INSTANCE_ROLE_FSM_H

#include "proto/err.h"
#include "proto/status_msg.h"

enum role_event {
    ROLE_EV_POSTED,   /* a role body was accepted */
    ROLE_EV_LINKED,   /* no link is in progress and at least one is ok */
    ROLE_EV_UNLINKED, /* no link is in progress and none is ok */
    ROLE_EV_LOST,     /* the role could not be started: there is none */
    ROLE_EV_COUNT,
};

struct role_fsm {
    enum role_status state;
};

/* The only writer of fsm->state. ERR_CONFLICT: the table refuses the pair, nothing changed. */
enum err role_fsm_step(struct role_fsm *fsm, enum role_event ev);

#endif
