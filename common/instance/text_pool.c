/* text_pool: threads that take jobs from one bounded queue and hand the finished ones back to the
 * loop. */
#include "common/instance/text_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include "common/base/queue.h"

enum { THREADS_MAX = 64 };

struct job {
    struct text_pool *pool;
    loop_fn *work, *done;
    void *arg;
};

struct text_pool {
    struct loop *loop;
    struct queue *jobs;
    struct queue *finished; /* jobs whose done has not run yet; as roomy as everything that can be
                               under way */
    pthread_t threads[THREADS_MAX];
    unsigned n_threads;
};

static void run_done(void *arg) {
    struct text_pool *p = arg;
    struct job *j = queue_pop(p->finished);
    if (j == NULL) return; /* text_pool_close() was faster */
    j->done(j->arg);
    free(j);
}

static void *thread_main(void *arg) {
    struct text_pool *p = arg;
    struct job *j;
    while ((j = queue_pop_wait(p->jobs, -1)) != NULL) {
        j->work(j->arg);
        /* Cannot be full: it has room for the queue and every thread. A failed post is made up for
         * by the next one or by close. */
        queue_push(p->finished, j);
        loop_post(p->loop, run_done, p);
    }
    return NULL;
}

enum err text_pool_open(struct text_pool **out, struct loop *loop, unsigned n_threads,
                        size_t n_jobs_max) {
    *out = NULL;
    if (n_threads < 1 || n_threads > THREADS_MAX) return ERR_INVALID;
    struct text_pool *p = calloc(1, sizeof(*p));
    if (p == NULL) return ERR_NO_MEMORY;
    p->loop = loop;
    enum err e = queue_create(&p->jobs, n_jobs_max);
    if (e == ERR_OK) e = queue_create(&p->finished, n_jobs_max + 1u + n_threads);
    while (e == ERR_OK && p->n_threads < n_threads) {
        if (pthread_create(&p->threads[p->n_threads], NULL, thread_main, p) != 0) {
            e = ERR_NO_MEMORY;
        } else {
            p->n_threads++;
        }
    }
    if (e != ERR_OK) {
        text_pool_close(&p);
        return e;
    }
    *out = p;
    return ERR_OK;
}

void text_pool_close(struct text_pool **pp) {
    struct text_pool *p = *pp;
    if (p == NULL) return;
    if (p->jobs != NULL) queue_close(p->jobs);
    for (unsigned i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    struct job *j;
    while (p->finished != NULL && (j = queue_pop(p->finished)) != NULL) {
        j->done(j->arg);
        free(j);
    }
    queue_destroy(&p->jobs);
    queue_destroy(&p->finished);
    free(p);
    *pp = NULL;
}

enum err text_pool_run(struct text_pool *p, loop_fn *work, loop_fn *done, void *arg) {
    struct job *j = malloc(sizeof(*j));
    if (j == NULL) return ERR_NO_MEMORY;
    *j = (struct job){p, work, done, arg};
    enum err e = queue_push(p->jobs, j);
    if (e != ERR_OK) free(j);
    return e;
}
