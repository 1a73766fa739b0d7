/* queue: a ring under one mutex. */
#include "common/base/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t not_empty; /* on the monotonic clock */
    void **items;
    size_t n_max, head, len;
    bool closed;
};

enum err queue_create(struct queue **out, size_t n_max) {
    *out = NULL;
    if (n_max == 0 || n_max > SIZE_MAX / sizeof(void *)) return ERR_INVALID;
    struct queue *q = calloc(1, sizeof(*q));
    if (q == NULL) return ERR_NO_MEMORY;
    q->items = malloc(n_max * sizeof(void *));
    if (q->items == NULL) {
        free(q);
        return ERR_NO_MEMORY;
    }
    q->n_max = n_max;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->not_empty, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&q->mutex, NULL);
    *out = q;
    return ERR_OK;
}

void queue_destroy(struct queue **qp) {
    struct queue *q = *qp;
    if (q == NULL) return;
    *qp = NULL;
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->mutex);
    free(q->items);
    free(q);
}

enum err queue_push(struct queue *q, void *item) {
    enum err e = ERR_OK;
    pthread_mutex_lock(&q->mutex);
    if (q->closed) {
        e = ERR_STOPPING;
    } else if (q->len == q->n_max) {
        e = ERR_BUSY;
    } else {
        q->items[(q->head + q->len++) % q->n_max] = item;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->mutex);
    return e;
}

static void *take_first(struct queue *q) {
    if (q->len == 0) return NULL;
    void *item = q->items[q->head];
    q->head = (q->head + 1) % q->n_max;
    q->len--;
    return item;
}

void *queue_pop(struct queue *q) {
    pthread_mutex_lock(&q->mutex);
    void *item = take_first(q);
    pthread_mutex_unlock(&q->mutex);
    return item;
}

void *queue_pop_wait(struct queue *q, int timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_ms > 0) {
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
    }
    pthread_mutex_lock(&q->mutex);
    while (q->len == 0 && !q->closed) {
        if (timeout_ms < 0)
            pthread_cond_wait(&q->not_empty, &q->mutex);
        else if (pthread_cond_timedwait(&q->not_empty, &q->mutex, &until) == ETIMEDOUT)
            break;
    }
    void *item = take_first(q);
    pthread_mutex_unlock(&q->mutex);
    return item;
}

bool queue_remove(struct queue *q, const void *item) {
    bool found = false;
    pthread_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->len; i++) {
        void **at = &q->items[(q->head + i) % q->n_max];
        if (found)
            q->items[(q->head + i - 1) % q->n_max] = *at;
        else
            found = *at == item;
    }
    q->len -= found;
    pthread_mutex_unlock(&q->mutex);
    return found;
}

void queue_close(struct queue *q) {
    pthread_mutex_lock(&q->mutex);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_mutex_unlock(&q->mutex);
}

bool queue_closed(const struct queue *q) {
    struct queue *m = (struct queue *)q; /* the mutex is not part of the value a caller sees */
    pthread_mutex_lock(&m->mutex);
    bool closed = m->closed;
    pthread_mutex_unlock(&m->mutex);
    return closed;
}

size_t queue_len(struct queue *q) {
    pthread_mutex_lock(&q->mutex);
    size_t len = q->len;
    pthread_mutex_unlock(&q->mutex);
    return len;
}
