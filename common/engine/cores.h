/* cores: which cores the compute threads run on, and which are left to the other threads.
 *
 * Two hardware threads of one core share its arithmetic units, so compute threads go to different
 * cores first. Memory goes to the node of the core that touches it first (mem.h), and the buffers
 * are made and touched by threads that are pinned already: cores of one node have their memory near
 * without a policy of its own.
 *
 * Thread: any; pure but for reading the folder of the system. */
#ifndef BATON_ENGINE_CORES_H
#define BATON_ENGINE_CORES_H

#include <stdbool.h>
#include <stddef.h>
#include "proto/err.h"

enum { CORES_CPUS_MAX = 4096, CORES_LIST_BYTES_MAX = 16384 };

/* "0-3,8,10-11", as the system writes and configurations say it: [*n] cpus in that order into
 * out[max]. False: not such a list, a number of CORES_CPUS_MAX or more, one twice, or more than
 * max. Surrounding white space is fine; nothing at all is an empty list. */
bool cores_list(int *out, int max, int *n, const char *text, size_t len);

/* What the system knows of one cpu. */
struct core_place {
    int core;    /* the lowest cpu of the same core; the cpu itself when unknown */
    int node;    /* 0 when unknown */
    bool memory; /* the node has some of its own, or it is not known */
};
/* sys: "/sys", or a folder like it. What cannot be read counts as a core of its own on node 0. */
void cores_where(const char *sys, int cpu, struct core_place *out);

/* Orders cpus[0..n) so that the first of them are on different cores: of nodes with memory first,
 * of these the node with most of the cores first; otherwise in their order. Returns on how many
 * different cores they are; *n_nodes: on how many nodes. */
int cores_order(const char *sys, int *cpus, int n, int *n_nodes);

/* The cpus this process may use, in order, into out; returns how many, 0: not known. What is
 * offline, outside its cpuset or its affinity is not among them. */
int cores_allowed(int out[CORES_CPUS_MAX]);

/* Leaves those of cpus[0..n) that are among may[0..n_may), in their order; returns how many. */
int cores_keep(const int *may, int n_may, int *cpus, int n);

/* What remains of may[0..n_may) without cpus[0..n), on the node of the first of them if anything
 * of it does, into out[n_may]; returns how many. */
int cores_others(const char *sys, const int *may, int n_may, const int *cpus, int n, int *out);

/* Keeps the threads of this process, and those they start from now on, off cpus[0..n): on the
 * others the caller may use, as cores_others(). False: there are none, nothing changed. */
bool cores_leave(const char *sys, const int *cpus, int n);

/* From now on the calling thread runs only where no other thread wants to. */
void cores_yield_always(void);

#endif
