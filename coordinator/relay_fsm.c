/* relay_fsm: the table. */
#include "coordinator/relay_fsm.h"

/* clang-format off */
static const struct relay_move table[RELAY_STATES][RELAY_EVENTS] = {
#define TO(next, act) {RELAY_##next, ACT_##act}
#define NO            {RELAY_ENDED, ACT_UNEXPECTED}
    [RELAY_WAITING] = {
        [EV_PAIR]        = TO(PREFILLING, SEND),
        [EV_FIRST_TOKEN] = NO, [EV_EARLY] = NO, [EV_PIECE] = NO, [EV_ANSWERED] = NO, [EV_REFUSED] = NO, [EV_LOST] = NO,
        [EV_STOP]        = TO(ENDED, FAIL),
        [EV_CLIENT_GONE] = TO(ENDED, DROP),
        [EV_FAILED]      = TO(ENDED, FAIL),
    },
    [RELAY_PREFILLING] = {
        [EV_PAIR]        = NO,
        [EV_FIRST_TOKEN] = TO(DECODING, FIRST),
        [EV_EARLY]       = TO(PREFILLING, KEEP),
        [EV_PIECE]       = NO,
        [EV_ANSWERED]    = TO(ENDED, FINISH),
        [EV_REFUSED]     = TO(ENDED, PASS_ERROR),
        [EV_LOST]        = TO(RECOVERING, RECOVER),
        [EV_STOP]        = TO(DRAINING, ASK_STOP),
        [EV_CLIENT_GONE] = TO(ENDED, DROP),
        [EV_FAILED]      = TO(ENDED, FAIL),
    },
    [RELAY_DECODING] = {
        [EV_PAIR] = NO, [EV_FIRST_TOKEN] = NO, [EV_EARLY] = NO,
        [EV_PIECE]       = TO(DECODING, WRITE),
        [EV_ANSWERED]    = TO(ENDED, FINISH),
        [EV_REFUSED]     = TO(ENDED, PASS_ERROR),
        [EV_LOST]        = TO(RECOVERING, RECOVER),
        [EV_STOP]        = TO(DRAINING, ASK_STOP),
        [EV_CLIENT_GONE] = TO(ENDED, DROP),
        [EV_FAILED]      = TO(ENDED, FAIL),
    },
    [RELAY_RECOVERING] = {
        [EV_PAIR]        = TO(PREFILLING, SEND),
        [EV_FIRST_TOKEN] = NO, [EV_EARLY] = NO, [EV_PIECE] = NO, [EV_ANSWERED] = NO, [EV_REFUSED] = NO, [EV_LOST] = NO,
        [EV_STOP]        = TO(ENDED, FAIL),
        [EV_CLIENT_GONE] = TO(ENDED, DROP),
        [EV_FAILED]      = TO(ENDED, FAIL),
    },
    [RELAY_DRAINING] = {
        [EV_PAIR]        = NO,
        [EV_FIRST_TOKEN] = TO(DRAINING, FIRST),
        [EV_EARLY]       = TO(DRAINING, KEEP),
        [EV_PIECE]       = TO(DRAINING, WRITE),
        [EV_ANSWERED]    = TO(ENDED, FINISH),
        [EV_REFUSED]     = TO(ENDED, PASS_ERROR),
        [EV_LOST]        = NO,
        [EV_STOP]        = NO,
        [EV_CLIENT_GONE] = TO(ENDED, DROP),
        [EV_FAILED]      = TO(ENDED, FAIL),
    },
    [RELAY_ENDED] = {
        [EV_PAIR] = NO, [EV_FIRST_TOKEN] = NO, [EV_EARLY] = NO, [EV_PIECE] = NO, [EV_ANSWERED] = NO, [EV_REFUSED] = NO,
        [EV_LOST] = NO, [EV_STOP] = NO, [EV_CLIENT_GONE] = NO, [EV_FAILED] = NO,
    },
#undef TO
#undef NO
};
/* clang-format on */

struct relay_move relay_fsm_move(enum relay_state s, enum relay_event e) {
    return table[s][e];
}

const char *relay_state_name(enum relay_state s) {
    static const char *const names[RELAY_STATES] = {
        [RELAY_WAITING] = "waiting",       [RELAY_PREFILLING] = "prefilling",
        [RELAY_DECODING] = "decoding",     [RELAY_RECOVERING] = "recovering",
        [RELAY_DRAINING] = "draining_out", [RELAY_ENDED] = "ended"};
    return names[s];
}

const char *relay_event_name(enum relay_event e) {
    static const char *const names[RELAY_EVENTS] = {[EV_PAIR] = "pair",
                                                    [EV_FIRST_TOKEN] = "first_token",
                                                    [EV_EARLY] = "early_piece",
                                                    [EV_PIECE] = "piece",
                                                    [EV_ANSWERED] = "answered",
                                                    [EV_REFUSED] = "refused",
                                                    [EV_LOST] = "attempt_lost",
                                                    [EV_STOP] = "stop",
                                                    [EV_CLIENT_GONE] = "client_gone",
                                                    [EV_FAILED] = "failed"};
    return names[e];
}
