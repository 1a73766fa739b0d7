/* queue: bounded hand-off of pointers between threads, first in first out.
 * A full queue is an answer (ERR_BUSY), never a wait. Any thread may call any function but
 * queue_create and queue_destroy. */
#ifndef BATON_BASE_QUEUE_H
#define BATON_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"

struct queue;

enum err queue_create(struct queue **out, size_t n_max);
void queue_destroy(struct queue **q); /* items still inside belong to the caller: pop them first */
/* ERR_BUSY when full, ERR_STOPPING after queue_close(). */
enum err queue_push(struct queue *q, void *item);
void *queue_pop(struct queue *q); /* NULL when empty */
/* NULL on time-out (-1: none) or when closed and empty. */
void *queue_pop_wait(struct queue *q, int timeout_ms);
/* Takes this item out wherever it stands; false: it is not there. */
bool queue_remove(struct queue *q, const void *item);
void queue_close(struct queue *q); /* wakes all waiters; pushes fail from now on */
bool queue_closed(const struct queue *q);
size_t queue_len(struct queue *q);

#endif
