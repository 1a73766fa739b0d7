/* inst_gauge: measurements that cost something, made only when somebody asks, one at a time: read
 * bandwidth and peak of the machine with the threads of the engine, on a thread of their own beside
 * whatever runs; the link to a peer. POST /v1/measure of the management plane. Thread: the loop
 * thread. */
#ifndef BATON_INSTANCE_INST_GAUGE_H
#define BATON_INSTANCE_INST_GAUGE_H

#include <pthread.h>
#include <stdbool.h>
#include "common/net/loop.h"
#include "common/net/router.h"

struct instance;

struct inst_gauge {
    bool busy, running; /* running: the thread is to be joined */
    struct http_x *x;   /* who asked; NULL: gone */
    pthread_t thread;
    struct loop_task done;
    int threads;
    double read_bytes_s, ops_s;
    const char *instruction;
    const char *why; /* it could not be measured; NULL: it was */
};

extern const struct route inst_gauge_routes[];
/* Waits for a measurement of the machine that runs (a second at most). */
void inst_gauge_fini(struct instance *in);

#endif
