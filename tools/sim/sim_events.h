/* sim_events: what will happen, in the order of its times; equal times in the order in which it was
 * added. Pure. Thread: one. */
#ifndef BATON_TOOLS_SIM_EVENTS_H
#define BATON_TOOLS_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_event {
    double at_s;
    uint64_t number; /* of the adding, from 0 on */
    int what;        /* the caller's, with what it is of */
    uint32_t of;
};

struct sim_events {
    struct sim_event *heap; /* [n]; heap[0] is the next one */
    size_t n, cap;
    uint64_t n_added;
};

/* False: no memory, and nothing was added. */
bool sim_events_add(struct sim_events *e, double at_s, int what, uint32_t of);
struct sim_event sim_events_take(struct sim_events *e); /* n is above 0 */
void sim_events_free(struct sim_events *e);

#endif
