/* silence: how long a peer has given no sign of life, as who waits for it has lived through it. A
 * look adds the time since the look before, but no more than `step_max_ms`: whatever is beyond that
 * the observer itself stood still (a process that was stopped, a machine that was), and so perhaps
 * the peer did, or its words wait to be read. Pure. */
#ifndef BATON_BASE_SILENCE_H
#define BATON_BASE_SILENCE_H

#include <stdint.h>

/* Zeroed: nothing is known; the first look adds nothing. */
struct silence {
    uint64_t look_ms; /* the last look; 0: none */
    uint64_t ms;      /* of silence */
};

void silence_look(struct silence *s, uint64_t now_ms, uint64_t step_max_ms);
void silence_end(struct silence *s); /* a sign of life */

#endif
