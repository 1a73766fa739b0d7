/* breaker: keeps work away from an instance, or a link, that answers its polls but fails its
 * requests. Closed, it lets all through and remembers how the last BREAKER_OUTCOMES requests ended;
 * with so many faults among them it opens. When its time is over one request goes through as a
 * probe: it closes the breaker, or opens it again for twice the time, up to BREAKER_WAITS times the
 * first. Pure; times are milliseconds of one clock. */
#ifndef BATON_COORDINATOR_BREAKER_H
#define BATON_COORDINATOR_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

enum { BREAKER_OUTCOMES = 16, BREAKER_WAITS = 32, BREAKER_CAUSE_BYTES = 96 };

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN, BREAKER_STATES };
const char *breaker_state_name(enum breaker_state s); /* "closed", "open", "half-open" */

struct breaker_conf {
    unsigned faults;  /* of the last BREAKER_OUTCOMES; 0: it never opens */
    uint64_t open_ms; /* the first time */
};

struct breaker {
    enum breaker_state state;
    uint32_t outcomes; /* newest lowest; 1: a fault */
    uint64_t until_ms, wait_ms;
    char cause[BREAKER_CAUSE_BYTES]; /* of the last fault; "" when there was none */
};

/* How a request ended, as far as the instance has to do with it. NONE: nothing can be said (the
 * client left, somebody else failed). */
enum breaker_verdict { VERDICT_GOOD, VERDICT_FAULT, VERDICT_NONE };

/* Whether a request may go there now. */
bool breaker_allows(const struct breaker *b, uint64_t now_ms);
/* One goes. True: it is the probe; what becomes of it must be reported, once. */
bool breaker_send(struct breaker *b, uint64_t now_ms);
/* A request ended. cause: of a fault. True: the state has changed. */
bool breaker_report(struct breaker *b, const struct breaker_conf *c, enum breaker_verdict v,
                    bool probe, const char *cause, uint64_t now_ms);
/* It was started anew. True: it was not closed. */
bool breaker_reset(struct breaker *b);
unsigned breaker_faults(const struct breaker *b); /* among the outcomes */

#endif
