/* text_pool: a few threads for work on text (templates, tokenising), because a 1 MB prompt takes
 * milliseconds. Tenants (proto/tenant.h) take turns job by job, each in its own order of arrival;
 * so however many jobs one has waiting, another's first is the next but as many as there are
 * tenants. A tenant that is alone has all threads and all places. Thread: the loop thread. */
#ifndef BATON_INSTANCE_TEXT_POOL_H
#define BATON_INSTANCE_TEXT_POOL_H

#include "common/net/loop.h"

struct text_pool;

/* n_threads: 1 to 64. n_jobs_max: places for jobs that wait, from 1. While all are taken, a tenant
 * that has fewer than its part of them (n_jobs_max over the tenants that wait, at least one) gets a
 * place beyond, of which there are n_jobs_max more; so who came first cannot shut the others out.
 * ERR_INVALID, ERR_NO_MEMORY. */
enum err text_pool_open(struct text_pool **out, struct loop *loop, unsigned n_threads,
                        size_t n_jobs_max);
void text_pool_close(
    struct text_pool **p); /* jobs under way finish; done callbacks not yet run are run now */
/* Runs work(arg) on a pool thread, then done(arg) on the loop thread. tenant: whose work it is, at
 * most TENANT_BYTES_MAX bytes, copied; "": nobody said, which is a tenant too. ERR_BUSY: there is
 * no place for the job, neither runs; ERR_NO_MEMORY the same. */
enum err text_pool_run(struct text_pool *p, const char *tenant, loop_fn *work, loop_fn *done,
                       void *arg);

/* As above, for work that may be wanted no more; *job lives until done has run. */
struct pool_job;
enum err text_pool_start(struct text_pool *p, const char *tenant, struct pool_job **job,
                         loop_fn *work, loop_fn *done, void *arg);
/* True: the job still waited and is gone; neither function will run, arg is the caller's. False: it
 * runs or ran, done will be called. */
bool text_pool_drop(struct text_pool *p, struct pool_job *job);

#endif
