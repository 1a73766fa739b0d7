/* pool: the compute threads. A region is a function over items 0..n_items-1; the calling thread and
 * the workers take items until none is left. Which thread runs an item is chance, so an item's
 * result must not depend on it.
 *
 * Waking a sleeping thread costs tens of microseconds and a region may last five, so an idle worker
 * spins for SPIN_US (pool.c) before it sleeps. A region never waits for a worker that has not
 * woken: the others do its work. Thread: one thread (the engine's) makes all calls; it is thread 0
 * of every region. */
#ifndef BATON_ENGINE_POOL_H
#define BATON_ENGINE_POOL_H

#include <stdint.h>
#include "proto/err.h"

enum { POOL_THREADS_MAX = 1024 };

struct pool;

/* thread: 0..pool_threads()-1, for per-thread scratch. */
typedef void pool_fn(void *arg, int item, int thread);

/* n_threads: the calling thread included; 0: one per core this process may use. cpu_ids:
 * [n_threads] cores to pin the threads to, cpu_ids[0] for the calling thread (and for
 * another one that calls pool_run() later), or NULL. */
enum err pool_create(struct pool **out, int n_threads, const int *cpu_ids, struct errbuf *eb);
void pool_destroy(struct pool **p);
int pool_threads(const struct pool *p);
/* The caller is done with it and another thread will call: that one is pinned at its first call,
 * also if the system gives it the same id. */
void pool_hand_over(struct pool *p);

/* Any thread: changes as long as items of a region are taken or done, so one that stays as it is
 * while a region runs means that nothing gets on. */
uint64_t pool_progress(const struct pool *p);

/* Runs fn(arg, item, thread) once for every item and returns when all are done. One item, or one
 * thread: no hand-over. */
void pool_run(struct pool *p, pool_fn *fn, void *arg, int n_items);

#endif
