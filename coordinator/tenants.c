/* tenants: a hash table, a list of those with requests, one of the idle, a heap of those that wait.
 */
#include "coordinator/tenants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/hash.h"

enum { BUCKETS = 1024, HEAP_FIRST = 64 };

struct list {
    struct tenant *first, *last;
    size_t n;
};

struct tenants {
    struct fair fair;
    struct tenant *buckets[BUCKETS];
    struct list busy, idle;
    double weights;       /* of the busy ones */
    struct tenant **heap; /* [1..n_heap], by the end of the flow */
    size_t n_heap, heap_cap;
};

static struct tenant **bucket(struct tenants *ts, const char *name) {
    return &ts->buckets[hash64_text(HASH64_BEGIN, name) % BUCKETS];
}

/* ---- lists */

static void put_first(struct list *l, struct tenant *t) {
    t->prev = NULL;
    t->next = l->first;
    *(t->next != NULL ? &t->next->prev : &l->last) = t;
    l->first = t;
    l->n++;
}

static void put_last(struct list *l, struct tenant *t) {
    t->next = NULL;
    t->prev = l->last;
    *(t->prev != NULL ? &t->prev->next : &l->first) = t;
    l->last = t;
    l->n++;
}

static void take_out(struct list *l, struct tenant *t) {
    *(t->prev != NULL ? &t->prev->next : &l->first) = t->next;
    *(t->next != NULL ? &t->next->prev : &l->last) = t->prev;
    l->n--;
}

/* ---- the heap */

static bool before(const struct tenants *ts, size_t a, size_t b) {
    return ts->heap[a]->flow.end < ts->heap[b]->flow.end;
}

static void set_at(struct tenants *ts, size_t at, struct tenant *t) {
    ts->heap[at] = t;
    t->heap_at = at;
}

static void swap(struct tenants *ts, size_t a, size_t b) {
    struct tenant *t = ts->heap[a];
    set_at(ts, a, ts->heap[b]);
    set_at(ts, b, t);
}

static void sift(struct tenants *ts, size_t at) {
    for (; at > 1 && before(ts, at, at / 2); at /= 2) swap(ts, at, at / 2);
    for (size_t child; (child = at * 2) <= ts->n_heap; at = child) {
        if (child < ts->n_heap && before(ts, child + 1, child)) child++;
        if (!before(ts, child, at)) return;
        swap(ts, child, at);
    }
}

void tenants_wait(struct tenants *ts, struct tenant *t) {
    if (t->heap_at != 0) return;
    set_at(ts, ++ts->n_heap, t);
    sift(ts, ts->n_heap);
}

/* So that waiting cannot fail later: places for n tenants. */
static bool has_places(struct tenants *ts, size_t n) {
    if (n < ts->heap_cap) return true;
    size_t cap = n * 2 > HEAP_FIRST ? n * 2 : HEAP_FIRST;
    struct tenant **grown = realloc(ts->heap, cap * sizeof(*grown));
    if (grown == NULL) return false;
    ts->heap = grown;
    ts->heap_cap = cap;
    return true;
}

void tenants_wait_no_more(struct tenants *ts, struct tenant *t) {
    size_t at = t->heap_at;
    if (at == 0) return;
    t->heap_at = 0;
    if (at != ts->n_heap) {
        set_at(ts, at, ts->heap[ts->n_heap]);
        ts->n_heap--;
        sift(ts, at);
    } else {
        ts->n_heap--;
    }
}

struct tenant *tenants_next(struct tenants *ts) {
    struct tenant *t = ts->n_heap > 0 ? ts->heap[1] : NULL;
    if (t != NULL) tenants_wait_no_more(ts, t);
    return t;
}

size_t tenants_waiting(const struct tenants *ts) {
    return ts->n_heap;
}

/* ---- coming and going */

static void forget(struct tenants *ts, struct tenant *t) {
    struct tenant **at = bucket(ts, t->name);
    while (*at != t) at = &(*at)->hash_next;
    *at = t->hash_next;
    free(t);
}

struct tenant *tenants_find(struct tenants *ts, const char *name) {
    struct tenant *t = *bucket(ts, name);
    while (t != NULL && strcmp(t->name, name) != 0) t = t->hash_next;
    return t;
}

struct tenant *tenants_join(struct tenants *ts, const char *name, double weight) {
    struct tenant **b = bucket(ts, name), *t = tenants_find(ts, name);
    if (!has_places(ts, ts->busy.n + 1)) return NULL;
    if (t == NULL) {
        if ((t = calloc(1, sizeof(*t))) == NULL) return NULL;
        snprintf(t->name, sizeof(t->name), "%s", name);
        t->flow.weight = weight;
        t->hash_next = *b;
        *b = t;
    } else if (t->n_requests == 0) {
        take_out(&ts->idle, t);
        t->flow.weight = weight;
    }
    if (t->n_requests++ == 0) {
        put_first(&ts->busy, t);
        ts->weights += t->flow.weight;
    }
    return t;
}

void tenants_leave(struct tenants *ts, struct tenant *t) {
    if (--t->n_requests > 0) return;
    tenants_wait_no_more(ts, t);
    take_out(&ts->busy, t);
    ts->weights = ts->busy.n > 0 ? ts->weights - t->flow.weight : 0;
    put_last(&ts->idle, t);
    while (ts->idle.first != NULL &&
           (ts->idle.first->flow.end <= ts->fair.now || ts->idle.n > TENANTS_IDLE_MAX)) {
        struct tenant *old = ts->idle.first;
        take_out(&ts->idle, old);
        forget(ts, old);
    }
}

/* ---- shares */

void tenants_charge(struct tenants *ts, struct tenant *t, double cost) {
    fair_charge(&ts->fair, &t->flow, cost);
    if (t->heap_at != 0) sift(ts, t->heap_at);
}

void tenants_correct(struct tenants *ts, struct tenant *t, double by) {
    fair_correct(&t->flow, by);
    if (t->heap_at != 0) sift(ts, t->heap_at);
}

bool tenants_within_share(const struct tenants *ts, const struct tenant *t, uint64_t wanted,
                          uint64_t slots_total) {
    return fair_within(t->slots, wanted, slots_total, t->flow.weight, ts->weights);
}

struct tenant *tenants_largest(const struct tenants *ts) {
    struct tenant *most = NULL;
    for (struct tenant *t = ts->busy.first; t != NULL; t = t->next)
        if (t->n_queued > 0 && (most == NULL || (double)t->n_requests / t->flow.weight >
                                                    (double)most->n_requests / most->flow.weight))
            most = t;
    return most;
}

struct tenant *tenants_first(const struct tenants *ts) {
    return ts->busy.first;
}

size_t tenants_count(const struct tenants *ts) {
    return ts->busy.n;
}

/* ---- life */

struct tenants *tenants_create(void) {
    return calloc(1, sizeof(struct tenants));
}

void tenants_destroy(struct tenants **tsp) {
    struct tenants *ts = *tsp;
    if (ts == NULL) return;
    *tsp = NULL;
    struct list *const lists[] = {&ts->busy, &ts->idle};
    for (int i = 0; i < 2; i++)
        while (lists[i]->first != NULL) {
            struct tenant *t = lists[i]->first;
            lists[i]->first = t->next;
            free(t);
        }
    free(ts->heap);
    free(ts);
}
