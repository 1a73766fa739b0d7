/* pool: regions are handed out through one 64-bit word {region number, n_items, next item}. Taking
 * an item is one fetch-add, and the answer says at once whether it was of the region meant: a
 * worker that wakes late finds no item, or one of a newer region, never half of each. The fields of
 * a region are written before the word and stay until its last item is done, so whoever holds an
 * item may read them. */
#include "common/engine/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/base/clock.h"

enum {
    SPIN_US = 60,
    SPINS_PER_LOOK = 64,
    ITEM_BITS = 20,
    REGION_SHIFT = 2 * ITEM_BITS,
    /* Threads that find nothing count the word on: room for that beside the items. */
    REGION_ITEMS_MAX = 1 << (ITEM_BITS - 1)
};
#define ITEM_MASK ((UINT64_C(1) << ITEM_BITS) - 1)

struct worker {
    struct pool *pool;
    pthread_t id;
    int thread;
};

struct pool {
    int n_threads;
    struct worker *workers; /* [n_threads - 1] */
    int n_started;
    int caller_cpu;   /* -1: the caller is not pinned */
    pthread_t caller; /* the thread that is pinned to it, if caller_pinned */
    bool caller_pinned;

    /* the region that runs */
    pool_fn *fn;
    void *arg;
    int first; /* item 0 of the region is item `first` of the caller */

    _Alignas(64) _Atomic uint64_t word;
    _Alignas(64) _Atomic int n_done;   /* items of the region */
    _Alignas(64) _Atomic int n_parked; /* workers asleep or about to be */
    _Atomic bool caller_parked, stopping;
    _Atomic uint64_t n_alone; /* items that the caller ran by itself; it alone writes */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
};

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t region_of(uint64_t word) {
    return word >> REGION_SHIFT;
}

/* Takes and runs items until there are none. Returns the number of the region last seen. */
static uint64_t work(struct pool *p, int thread) {
    for (;;) {
        uint64_t word = atomic_fetch_add_explicit(&p->word, 1, memory_order_acquire);
        uint64_t n = (word >> ITEM_BITS) & ITEM_MASK, item = word & ITEM_MASK;
        if (item >= n) return region_of(word);
        p->fn(p->arg, p->first + (int)item, thread);
        if ((uint64_t)atomic_fetch_add(&p->n_done, 1) + 1 == n && atomic_load(&p->caller_parked)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

/* Until the region is another than `seen`, or the pool stops: spins, then sleeps. */
static void await_region(struct pool *p, uint64_t seen) {
    uint64_t until = clock_us() + SPIN_US;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (region_of(atomic_load_explicit(&p->word, memory_order_relaxed)) != seen) return;
            pause_cpu();
        }
    } while (clock_us() < until && !atomic_load(&p->stopping));
    pthread_mutex_lock(&p->lock);
    /* The count is raised before the last look at the word, and pool_run() looks at the count after
     * it wrote the word: one of the two sees the other. */
    atomic_fetch_add(&p->n_parked, 1);
    while (region_of(atomic_load(&p->word)) == seen && !atomic_load(&p->stopping))
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_parked, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    uint64_t seen = 0;
    while (!atomic_load(&w->pool->stopping)) {
        await_region(w->pool, seen);
        seen = work(w->pool, w->thread);
    }
    return NULL;
}

static void await_done(struct pool *p, int n_items) {
    uint64_t until = clock_us() + SPIN_US;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load_explicit(&p->n_done, memory_order_acquire) == n_items) return;
            pause_cpu();
        }
    } while (clock_us() < until);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_parked, true);
    while (atomic_load(&p->n_done) != n_items) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_parked, false);
    pthread_mutex_unlock(&p->lock);
}

static void run_region(struct pool *p, int first, int n_items) {
    uint64_t region = region_of(atomic_load_explicit(&p->word, memory_order_relaxed)) + 1;
    p->first = first;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    atomic_store(&p->word, region << REGION_SHIFT | (uint64_t)n_items << ITEM_BITS);
    if (atomic_load(&p->n_parked) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    work(p, 0);
    await_done(p, n_items);
}

static bool pin(pthread_t id, int cpu) {
    cpu_set_t set;
    if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(id, sizeof(set), &set) == 0;
}

/* The thread that loads a model may not be the one that runs it: whoever calls takes the caller's
 * core along. */
static void follow_caller(struct pool *p) {
    if (p->caller_cpu < 0 || (p->caller_pinned && pthread_equal(p->caller, pthread_self()))) return;
    p->caller = pthread_self();
    p->caller_pinned = true;
    pin(p->caller, p->caller_cpu); /* it was possible in pool_create() */
}

void pool_run(struct pool *p, pool_fn *fn, void *arg, int n_items) {
    follow_caller(p);
    if (n_items <= 1 || p->n_threads == 1) {
        uint64_t n = atomic_load_explicit(&p->n_alone, memory_order_relaxed);
        for (int i = 0; i < n_items; i++) {
            fn(arg, i, 0);
            atomic_store_explicit(&p->n_alone, ++n, memory_order_relaxed);
        }
        return;
    }
    p->fn = fn;
    p->arg = arg;
    for (int first = 0; first < n_items; first += REGION_ITEMS_MAX)
        run_region(p, first,
                   n_items - first < REGION_ITEMS_MAX ? n_items - first : REGION_ITEMS_MAX);
}

static int cores(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                         : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > POOL_THREADS_MAX ? POOL_THREADS_MAX : n;
}

static enum err start(struct pool *p, const int *cpu_ids, struct errbuf *eb) {
    p->caller_cpu = cpu_ids != NULL ? cpu_ids[0] : -1;
    p->caller = pthread_self();
    p->caller_pinned = cpu_ids != NULL;
    if (cpu_ids != NULL && !pin(p->caller, p->caller_cpu))
        return err_set(eb, ERR_BAD_CONFIG, "compute threads: core %d cannot be used", cpu_ids[0]);
    for (int i = 0; i < p->n_threads - 1; i++) {
        struct worker *w = &p->workers[i];
        w->pool = p;
        w->thread = i + 1;
        if (pthread_create(&w->id, NULL, worker_main, w) != 0)
            return err_set(eb, ERR_NO_MEMORY, "compute threads: thread %d of %d cannot be made",
                           i + 2, p->n_threads);
        p->n_started++;
        if (cpu_ids != NULL && !pin(w->id, cpu_ids[i + 1]))
            return err_set(eb, ERR_BAD_CONFIG, "compute threads: core %d cannot be used",
                           cpu_ids[i + 1]);
    }
    return ERR_OK;
}

enum err pool_create(struct pool **out, int n_threads, const int *cpu_ids, struct errbuf *eb) {
    *out = NULL;
    if (n_threads < 0 || n_threads > POOL_THREADS_MAX)
        return err_set(eb, ERR_BAD_CONFIG, "compute threads must be from 0 to %d, got %d",
                       POOL_THREADS_MAX, n_threads);
    struct pool *p = aligned_alloc(64, sizeof(*p));
    if (p == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for compute threads");
    memset(p, 0, sizeof(*p));
    p->n_threads = n_threads > 0 ? n_threads : cores();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    p->workers = calloc((size_t)p->n_threads, sizeof(*p->workers));
    enum err e = p->workers != NULL ? start(p, cpu_ids, eb)
                                    : err_set(eb, ERR_NO_MEMORY, "no memory for compute threads");
    if (e != ERR_OK) pool_destroy(&p);
    *out = p;
    return e;
}

void pool_destroy(struct pool **pp) {
    struct pool *p = *pp;
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stopping, true);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->workers[i].id, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
    *pp = NULL;
}

void pool_hand_over(struct pool *p) {
    p->caller_pinned = false;
}

uint64_t pool_progress(const struct pool *p) {
    return atomic_load_explicit(&p->word, memory_order_relaxed) +
           (uint64_t)atomic_load_explicit(&p->n_done, memory_order_relaxed) +
           atomic_load_explicit(&p->n_alone, memory_order_relaxed);
}

int pool_threads(const struct pool *p) {
    return p->n_threads;
}
