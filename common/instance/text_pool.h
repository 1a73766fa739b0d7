/* text_pool: a few threads for work on text (templates, tokenising), because a 1 MB prompt takes
 * milliseconds. Thread: the loop thread. */
#ifndef BATON_INSTANCE_TEXT_POOL_H
#define BATON_INSTANCE_TEXT_POOL_H

#include "common/net/loop.h"

struct text_pool;

enum err text_pool_open(struct text_pool **out, struct loop *loop, unsigned n_threads,
                        size_t n_jobs_max);
void text_pool_close(
    struct text_pool **p); /* jobs under way finish; done callbacks not yet run are run now */
/* Runs work(arg) on a pool thread, then done(arg) on the loop thread. ERR_BUSY: the queue is full,
 * neither runs. */
enum err text_pool_run(struct text_pool *p, loop_fn *work, loop_fn *done, void *arg);

/* As above, for work that may be wanted no more; *job lives until done has run. */
struct pool_job;
enum err text_pool_start(struct text_pool *p, struct pool_job **job, loop_fn *work, loop_fn *done,
                         void *arg);
/* True: the job still waited and is gone; neither function will run, arg is the caller's. False: it
 * runs or ran, done will be called. */
bool text_pool_drop(struct text_pool *p, struct pool_job *job);

#endif
