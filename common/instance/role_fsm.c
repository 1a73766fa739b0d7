/* role_fsm: state times event. */
#include "common/instance/role_fsm.h"

#include "common/base/log.h"

/* One more than the state, so that a forgotten cell (0) refuses. */
#define TO(s) ((unsigned char)((s) + 1))
static const unsigned char next_state[ROLE_STATUS_READY + 1][ROLE_EV_COUNT] = {
    [ROLE_STATUS_UNKNOWN] = {[ROLE_EV_POSTED] = TO(ROLE_STATUS_SWITCHING)},
    [ROLE_STATUS_SWITCHING] = {[ROLE_EV_POSTED] = TO(ROLE_STATUS_SWITCHING),
                               [ROLE_EV_LINKED] = TO(ROLE_STATUS_READY),
                               [ROLE_EV_UNLINKED] = TO(ROLE_STATUS_SWITCHING),
                               [ROLE_EV_LOST] = TO(ROLE_STATUS_UNKNOWN)},
    /* A link lost later is that link's affair (linkStatus, health), not the role's. */
    [ROLE_STATUS_READY] = {[ROLE_EV_POSTED] = TO(ROLE_STATUS_SWITCHING),
                           [ROLE_EV_LINKED] = TO(ROLE_STATUS_READY),
                           [ROLE_EV_UNLINKED] = TO(ROLE_STATUS_READY),
                           [ROLE_EV_LOST] = TO(ROLE_STATUS_UNKNOWN)},
};
static const char *const event_name[ROLE_EV_COUNT] = {"posted", "linked", "unlinked", "lost"};

enum err role_fsm_step(struct role_fsm *fsm, enum role_event ev) {
    unsigned char to = next_state[fsm->state][ev];
    if (to == 0) return ERR_CONFLICT;
    enum role_status next = (enum role_status)(to - 1);
    if (next != fsm->state)
        log_info("role", "from=%s to=%s on=%s", role_status_name(fsm->state),
                 role_status_name(next), event_name[ev]);
    fsm->state = next;
    return ERR_OK;
}
