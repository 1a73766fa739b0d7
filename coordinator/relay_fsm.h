/* relay_fsm: the states of a client's request in the coordinator, as a table: state and event give
 * the next state and what is done. relay_step() (relay_act.c) is the one writer of a request's
 * state. Pure.
 *
 *   waiting      for its first pair
 *   prefilling   an attempt is at P; what D says already is kept
 *   decoding     P's answer is out; D's pieces go out as they come
 *   recovering   an attempt was lost; waits for the pair of the next one
 *   draining     its client asked for the end: what is under way goes out, nothing is begun anew
 *   ended        answered, or its client has gone */
#ifndef BATON_COORDINATOR_RELAY_FSM_H
#define BATON_COORDINATOR_RELAY_FSM_H

enum relay_state {
    RELAY_WAITING,
    RELAY_PREFILLING,
    RELAY_DECODING,
    RELAY_RECOVERING,
    RELAY_DRAINING,
    RELAY_ENDED,
    RELAY_STATES
};

enum relay_event {
    EV_PAIR,        /* a pair was chosen */
    EV_FIRST_TOKEN, /* P's answer: D goes on */
    EV_EARLY,       /* a piece of D before P's answer */
    EV_PIECE,       /* a piece of D */
    EV_ANSWERED,    /* the end of the answer, from P or D */
    EV_REFUSED,     /* an instance's own error, which is the answer */
    EV_LOST,        /* the attempt is lost, and another one may be made */
    EV_STOP,        /* the client asked for its end */
    EV_CLIENT_GONE,
    EV_FAILED, /* the coordinator ends it: a time-out, no attempt left, the daemon stops */
    RELAY_EVENTS
};

enum relay_action {
    ACT_UNEXPECTED, /* 0: a forgotten cell */
    ACT_SEND,       /* begin an attempt */
    ACT_FIRST,      /* P's piece goes out, then what D said meanwhile */
    ACT_KEEP,       /* the piece waits for P's */
    ACT_WRITE,      /* the piece goes out */
    ACT_FINISH,     /* the last piece goes out */
    ACT_PASS_ERROR, /* the instance's error goes out */
    ACT_RECOVER,    /* end the attempt, back to the queue */
    ACT_ASK_STOP,   /* stopInfer to P and D for the client */
    ACT_DROP,       /* nobody reads the answer any more */
    ACT_FAIL,       /* the coordinator's own error goes out */
    RELAY_ACTIONS
};

struct relay_move {
    enum relay_state next;
    enum relay_action act;
};

/* An event that a state does not expect: next RELAY_ENDED, ACT_UNEXPECTED. */
struct relay_move relay_fsm_move(enum relay_state s, enum relay_event e);
const char *relay_state_name(enum relay_state s);
const char *relay_event_name(enum relay_event e);

#endif
