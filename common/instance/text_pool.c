/* text_pool: threads that take jobs from one bounded queue and hand the finished ones back to the
 * loop. */
#include "common/instance/text_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include "common/base/queue.h"
#include "common/instance/mailbox.h"

enum { THREADS_MAX = 64 };

struct pool_job {
    struct mail head;
    loop_fn *work, *done;
    void *arg;
};

struct text_pool {
    struct queue *jobs;
    struct mailbox *finished; /* jobs whose done has not run yet */
    pthread_t threads[THREADS_MAX];
    unsigned n_threads;
};

static void finish(void *arg, struct mail *m) {
    struct pool_job *j = (struct pool_job *)m;
    (void)arg;
    j->done(j->arg);
    free(j);
}

static void *thread_main(void *arg) {
    struct text_pool *p = arg;
    struct pool_job *j;
    while ((j = queue_pop_wait(p->jobs, -1)) != NULL) {
        j->work(j->arg);
        mailbox_put(p->finished, &j->head);
    }
    return NULL;
}

enum err text_pool_open(struct text_pool **out, struct loop *loop, unsigned n_threads,
                        size_t n_jobs_max) {
    *out = NULL;
    if (n_threads < 1 || n_threads > THREADS_MAX) return ERR_INVALID;
    struct text_pool *p = calloc(1, sizeof(*p));
    if (p == NULL) return ERR_NO_MEMORY;
    enum err e = queue_create(&p->jobs, n_jobs_max);
    if (e == ERR_OK) e = mailbox_open(&p->finished, loop, finish, NULL);
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
    mailbox_close(&p->finished, finish, NULL); /* a post of it may still be on the loop */
    queue_destroy(&p->jobs);
    free(p);
    *pp = NULL;
}

enum err text_pool_start(struct text_pool *p, struct pool_job **job, loop_fn *work, loop_fn *done,
                         void *arg) {
    struct pool_job *j = *job = malloc(sizeof(*j));
    if (j == NULL) return ERR_NO_MEMORY;
    *j = (struct pool_job){.work = work, .done = done, .arg = arg};
    enum err e = queue_push(p->jobs, j);
    if (e == ERR_OK) return ERR_OK;
    free(j);
    *job = NULL;
    return e;
}

enum err text_pool_run(struct text_pool *p, loop_fn *work, loop_fn *done, void *arg) {
    struct pool_job *job;
    return text_pool_start(p, &job, work, done, arg);
}

bool text_pool_drop(struct text_pool *p, struct pool_job *job) {
    if (!queue_remove(p->jobs, job)) return false;
    free(job);
    return true;
}
