/* breaker: a table of states and events, and the memory that raises them. */
#include "coordinator/breaker.h"

#include <stdio.h>

/* Enough faults; a probe goes, was good, was bad, ended without a verdict; started anew. */
enum event { EV_FAULTS, EV_PROBE, EV_GOOD, EV_BAD, EV_LOST, EV_RESET, EVENTS };
enum { no = -1 };

static const int8_t next_state[BREAKER_STATES][EVENTS] = {
    [BREAKER_CLOSED] = {[EV_FAULTS] = BREAKER_OPEN,
                        [EV_PROBE] = no,
                        [EV_GOOD] = no,
                        [EV_BAD] = no,
                        [EV_LOST] = no,
                        [EV_RESET] = BREAKER_CLOSED},
    [BREAKER_OPEN] = {[EV_FAULTS] = no,
                      [EV_PROBE] = BREAKER_HALF_OPEN,
                      [EV_GOOD] = no,
                      [EV_BAD] = no,
                      [EV_LOST] = no,
                      [EV_RESET] = BREAKER_CLOSED},
    [BREAKER_HALF_OPEN] = {[EV_FAULTS] = no,
                           [EV_PROBE] = no,
                           [EV_GOOD] = BREAKER_CLOSED,
                           [EV_BAD] = BREAKER_OPEN,
                           [EV_LOST] = BREAKER_OPEN,
                           [EV_RESET] = BREAKER_CLOSED},
};

const char *breaker_state_name(enum breaker_state s) {
    static const char *const names[BREAKER_STATES] = {"closed", "open", "half-open"};
    return names[s];
}

/* The only writer of b->state. False: the event means nothing in it. */
static bool step(struct breaker *b, enum event ev) {
    int to = next_state[b->state][ev];
    if (to == no || to == (int)b->state) return false;
    b->state = (enum breaker_state)to;
    if (b->state == BREAKER_CLOSED) {
        b->outcomes = 0;
        b->wait_ms = 0;
    }
    return true;
}

bool breaker_allows(const struct breaker *b, uint64_t now_ms) {
    return b->state == BREAKER_CLOSED || (b->state == BREAKER_OPEN && now_ms >= b->until_ms);
}

bool breaker_send(struct breaker *b, uint64_t now_ms) {
    return b->state == BREAKER_OPEN && now_ms >= b->until_ms && step(b, EV_PROBE);
}

unsigned breaker_faults(const struct breaker *b) {
    return (unsigned)__builtin_popcount(b->outcomes);
}

static void remember(struct breaker *b, bool fault) {
    b->outcomes = (b->outcomes << 1 | fault) & ((1u << BREAKER_OUTCOMES) - 1);
}

static void wait_for(struct breaker *b, const struct breaker_conf *c, uint64_t now_ms) {
    uint64_t most = c->open_ms * BREAKER_WAITS, twice = b->wait_ms * 2;
    b->wait_ms = b->wait_ms == 0 ? c->open_ms : twice < most ? twice : most;
    b->until_ms = now_ms + b->wait_ms;
}

bool breaker_report(struct breaker *b, const struct breaker_conf *c, enum breaker_verdict v,
                    bool probe, const char *cause, uint64_t now_ms) {
    if (v == VERDICT_FAULT) snprintf(b->cause, sizeof(b->cause), "%s", cause);
    if (probe && b->state != BREAKER_HALF_OPEN) return false; /* started anew since */
    if (probe) {
        if (v == VERDICT_FAULT) wait_for(b, c, now_ms);
        return step(b, v == VERDICT_GOOD ? EV_GOOD : v == VERDICT_FAULT ? EV_BAD : EV_LOST);
    }
    if (b->state != BREAKER_CLOSED || v == VERDICT_NONE) return false; /* of the time before */
    remember(b, v == VERDICT_FAULT);
    if (c->faults == 0 || breaker_faults(b) < c->faults) return false;
    wait_for(b, c, now_ms);
    return step(b, EV_FAULTS);
}

bool breaker_reset(struct breaker *b) {
    bool changed = step(b, EV_RESET);
    *b = (struct breaker){0};
    return changed;
}
