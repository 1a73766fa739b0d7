/* inst_fsm: state times event. */
#include "coordinator/inst_fsm.h"

#include "common/base/log.h"

/* One more than the state, so that a forgotten cell (0) refuses. */
#define TO(s) ((unsigned char)(INST_##s + 1))
enum { no = 0 };
/* clang-format off */
static const unsigned char next_state[INST_STATE_COUNT][INST_EVENT_COUNT] = {
    /*                     status           role taken       role ready   role lost   drain         undrain      stopping     lost */
    [INST_UNKNOWN]     = { TO(ONLINE),      no,              no,          no,         no,           no,          no,          TO(UNKNOWN) },
    [INST_ONLINE]      = { TO(ONLINE),      TO(ROLE_POSTED), TO(SERVING), TO(ONLINE), no,           no,          TO(LEAVING), TO(FAULTY) },
    [INST_ROLE_POSTED] = { TO(ROLE_POSTED), TO(ROLE_POSTED), TO(SERVING), TO(ONLINE), no,           no,          TO(LEAVING), TO(FAULTY) },
    [INST_SERVING]     = { TO(SERVING),     TO(ROLE_POSTED), no,          TO(ONLINE), TO(DRAINING), no,          TO(LEAVING), TO(FAULTY) },
    [INST_DRAINING]    = { TO(DRAINING),    TO(ROLE_POSTED), no,          TO(ONLINE), no,           TO(SERVING), TO(LEAVING), TO(FAULTY) },
    /* A status that is none of a stopping instance: the order to stop was taken back. */
    [INST_LEAVING]     = { TO(ROLE_POSTED), no,              no,          no,         no,           no,          TO(LEAVING), TO(FAULTY) },
    [INST_FAULTY]      = { TO(ONLINE),      no,              no,          no,         no,           no,          no,          TO(FAULTY) },
};
static const char *const state_name[INST_STATE_COUNT] = {"unknown",  "online",  "role posted", "serving",
                                                         "draining", "leaving", "faulty"};
static const char *const event_name[INST_EVENT_COUNT] = {"status", "role taken", "role ready", "role lost",
                                                         "drain",  "undrain",    "stopping",   "lost"};
/* clang-format on */

const char *inst_state_name(enum inst_state s) {
    return state_name[s];
}

enum err inst_fsm_step(struct inst_fsm *fsm, uint32_t id, enum inst_event ev) {
    unsigned char to = next_state[fsm->state][ev];
    if (to == no) return ERR_CONFLICT;
    enum inst_state next = (enum inst_state)(to - 1);
    if (next != fsm->state)
        log_info("instance", "id=%u from=\"%s\" to=\"%s\" on=\"%s\"", id, state_name[fsm->state],
                 state_name[next], event_name[ev]);
    fsm->state = next;
    return ERR_OK;
}
