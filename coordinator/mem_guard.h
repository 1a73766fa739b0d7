/* mem_guard: whether the coordinator's memory is so short that new requests are refused
 * (inference-api 3.5, cluster-api 6.3): from 80 % of the limit on, until it is below 60 %.
 *
 * What counts is the process's own resident memory: the figure of a control group has page cache in
 * it, and programs that a refusal here would not make smaller. Knows no request and no socket. */
#ifndef BATON_COORDINATOR_MEM_GUARD_H
#define BATON_COORDINATOR_MEM_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct mem_guard {
    uint64_t limit_bytes; /* 0: there is none, and never a refusal */
    bool full;
};

/* The limit of the control group this process is in (version 1 or 2); 0: none. Files are looked for
 * below root: "" in a program, a folder of its own in a test. */
uint64_t mem_limit_bytes(const char *root);
/* Resident memory of this process; 0 when the system does not say. */
uint64_t mem_used_bytes(const char *root);
/* Notes the memory in use now; true while requests are to be refused. */
bool mem_guard_look(struct mem_guard *g, uint64_t used_bytes);

#endif
