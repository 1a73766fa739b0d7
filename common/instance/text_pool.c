/* text_pool: a line of waiting jobs per tenant, the lines in a ring; threads take the first job of
 * the line whose turn it is, and hand the finished ones back to the loop. */
#include "common/instance/text_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/instance/mailbox.h"
#include "proto/hash.h"
#include "proto/tenant.h"

enum { THREADS_MAX = 64, BUCKETS = 256 };

struct pool_job {
    struct mail head;
    struct pool_job *next, *prev; /* in its line */
    struct line *line;            /* NULL: it waits no more */
    loop_fn *work, *done;
    void *arg;
};

/* The waiting jobs of one tenant; there while it has any. */
struct line {
    struct line *next, *prev; /* in the ring of turns */
    struct line *bucket_next;
    struct pool_job *first, *last;
    size_t n;
    char tenant[TENANT_BYTES_MAX + 1];
};

struct text_pool {
    pthread_mutex_t mutex; /* over all down to closed */
    pthread_cond_t not_empty;
    struct line *turn; /* whose first job is next; NULL: no job waits */
    struct line *buckets[BUCKETS];
    size_t n_lines, n_waiting, n_jobs_max;
    bool closed;

    struct mailbox *finished; /* jobs whose done has not run yet */
    pthread_t threads[THREADS_MAX];
    unsigned n_threads;
};

/* ---- lines (under the mutex) */

static struct line **bucket_of(struct text_pool *p, const char *tenant) {
    return &p->buckets[hash32_text(HASH32_BEGIN, tenant) % BUCKETS];
}

/* The tenant's line, or NULL. */
static struct line *line_find(struct text_pool *p, const char *tenant) {
    struct line *l = *bucket_of(p, tenant);
    while (l != NULL && strcmp(l->tenant, tenant) != 0) l = l->bucket_next;
    return l;
}

/* An empty line whose turn comes last; NULL: no memory. */
static struct line *line_add(struct text_pool *p, const char *tenant) {
    struct line *l = calloc(1, sizeof(*l));
    if (l == NULL) return NULL;
    snprintf(l->tenant, sizeof(l->tenant), "%s", tenant);
    struct line **bucket = bucket_of(p, l->tenant);
    l->bucket_next = *bucket;
    *bucket = l;
    l->next = l->prev = l;
    if (p->turn != NULL) {
        l->next = p->turn;
        l->prev = p->turn->prev;
        l->prev->next = l->next->prev = l;
    } else {
        p->turn = l;
    }
    p->n_lines++;
    return l;
}

static void line_end(struct text_pool *p, struct line *l) {
    struct line **at = bucket_of(p, l->tenant);
    while (*at != l) at = &(*at)->bucket_next;
    *at = l->bucket_next;
    l->prev->next = l->next;
    l->next->prev = l->prev;
    if (p->turn == l) p->turn = l->next != l ? l->next : NULL;
    p->n_lines--;
    free(l);
}

static void job_add(struct text_pool *p, struct line *l, struct pool_job *j) {
    j->line = l;
    j->prev = l->last;
    if (l->last != NULL)
        l->last->next = j;
    else
        l->first = j;
    l->last = j;
    l->n++;
    p->n_waiting++;
}

static void job_leave(struct text_pool *p, struct pool_job *j) {
    struct line *l = j->line;
    if (j->prev != NULL)
        j->prev->next = j->next;
    else
        l->first = j->next;
    if (j->next != NULL)
        j->next->prev = j->prev;
    else
        l->last = j->prev;
    j->line = NULL;
    p->n_waiting--;
    if (--l->n == 0) line_end(p, l);
}

/* l: the tenant's line, NULL when it has none. */
static bool has_place(const struct text_pool *p, const struct line *l) {
    if (p->n_waiting < p->n_jobs_max) return true;
    size_t mine = l != NULL ? l->n : 0;
    size_t part = p->n_jobs_max / (p->n_lines + (l == NULL));
    return p->n_waiting - p->n_jobs_max < p->n_jobs_max && mine < (part > 0 ? part : 1);
}

static enum err job_wait(struct text_pool *p, const char *tenant, struct pool_job *j) {
    struct line *l = line_find(p, tenant);
    if (p->closed) return ERR_STOPPING;
    if (!has_place(p, l)) return ERR_BUSY;
    if (l == NULL && (l = line_add(p, tenant)) == NULL) return ERR_NO_MEMORY;
    job_add(p, l, j);
    pthread_cond_signal(&p->not_empty);
    return ERR_OK;
}

/* ---- threads */

/* The next job, waited for; NULL: the pool is closed and no job waits. */
static struct pool_job *job_take(struct text_pool *p) {
    struct pool_job *j = NULL;
    pthread_mutex_lock(&p->mutex);
    while (p->turn == NULL && !p->closed) pthread_cond_wait(&p->not_empty, &p->mutex);
    if (p->turn != NULL) {
        j = p->turn->first;
        p->turn = p->turn->next;
        job_leave(p, j);
    }
    pthread_mutex_unlock(&p->mutex);
    return j;
}

static void finish(void *arg, struct mail *m) {
    struct pool_job *j = (struct pool_job *)m;
    (void)arg;
    j->done(j->arg);
    free(j);
}

static void *thread_main(void *arg) {
    struct text_pool *p = arg;
    struct pool_job *j;
    while ((j = job_take(p)) != NULL) {
        j->work(j->arg);
        mailbox_put(p->finished, &j->head);
    }
    return NULL;
}

/* ---- the pool */

enum err text_pool_open(struct text_pool **out, struct loop *loop, unsigned n_threads,
                        size_t n_jobs_max) {
    *out = NULL;
    if (n_threads < 1 || n_threads > THREADS_MAX || n_jobs_max < 1) return ERR_INVALID;
    struct text_pool *p = calloc(1, sizeof(*p));
    if (p == NULL) return ERR_NO_MEMORY;
    p->n_jobs_max = n_jobs_max;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->not_empty, NULL);
    enum err e = mailbox_open(&p->finished, loop, finish, NULL);
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
    pthread_mutex_lock(&p->mutex);
    p->closed = true;
    pthread_cond_broadcast(&p->not_empty);
    pthread_mutex_unlock(&p->mutex);
    for (unsigned i = 0; i < p->n_threads; i++) pthread_join(p->threads[i], NULL);
    mailbox_close(&p->finished, finish, NULL); /* a post of it may still be on the loop */
    pthread_cond_destroy(&p->not_empty);
    pthread_mutex_destroy(&p->mutex);
    free(p);
    *pp = NULL;
}

enum err text_pool_start(struct text_pool *p, const char *tenant, struct pool_job **job,
                         loop_fn *work, loop_fn *done, void *arg) {
    struct pool_job *j = *job = malloc(sizeof(*j));
    if (j == NULL) return ERR_NO_MEMORY;
    *j = (struct pool_job){.work = work, .done = done, .arg = arg};
    pthread_mutex_lock(&p->mutex);
    enum err e = job_wait(p, tenant, j);
    pthread_mutex_unlock(&p->mutex);
    if (e == ERR_OK) return ERR_OK;
    free(j);
    *job = NULL;
    return e;
}

enum err text_pool_run(struct text_pool *p, const char *tenant, loop_fn *work, loop_fn *done,
                       void *arg) {
    struct pool_job *job;
    return text_pool_start(p, tenant, &job, work, done, arg);
}

bool text_pool_drop(struct text_pool *p, struct pool_job *job) {
    pthread_mutex_lock(&p->mutex);
    bool waits = job->line != NULL;
    if (waits) job_leave(p, job);
    pthread_mutex_unlock(&p->mutex);
    if (waits) free(job);
    return waits;
}
