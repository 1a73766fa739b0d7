/* prefix_log: a table of digests with counts, and a ring of changes, under one lock. */
#include "common/engine/prefix_log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/entropy.h"

enum { SLOTS = 2 * PREFIX_DIGESTS_MAX }; /* a power of two */

struct counted {
    uint64_t digest; /* 0: free */
    uint32_t n;      /* blocks with it */
};

struct prefix_log {
    pthread_mutex_t lock;
    uint64_t epoch, seq;
    size_t n;                             /* digests */
    uint64_t changes[PREFIX_CHANGES_MAX]; /* the i-th at i % PREFIX_CHANGES_MAX, from 0 on */
    struct counted slots[SLOTS];          /* open addressing, no gaps */
};

enum err prefix_log_create(struct prefix_log **out) {
    struct prefix_log *log = calloc(1, sizeof(*log));
    *out = NULL;
    if (log == NULL) return ERR_NO_MEMORY;
    if (!entropy_get(&log->epoch, sizeof(log->epoch))) {
        free(log);
        return ERR_INTERNAL;
    }
    if (log->epoch == 0) log->epoch = 1;
    pthread_mutex_init(&log->lock, NULL);
    *out = log;
    return ERR_OK;
}

void prefix_log_destroy(struct prefix_log **logp) {
    struct prefix_log *log = *logp;
    if (log == NULL) return;
    pthread_mutex_destroy(&log->lock);
    free(log);
    *logp = NULL;
}

static size_t home_of(uint64_t digest) {
    return (size_t)(digest * UINT64_C(0x9E3779B97F4A7C15) >> 40) & (SLOTS - 1);
}

static struct counted *find(struct prefix_log *log, uint64_t digest) {
    size_t i = home_of(digest);
    while (log->slots[i].digest != 0 && log->slots[i].digest != digest) i = (i + 1) & (SLOTS - 1);
    return &log->slots[i];
}

static void note(struct prefix_log *log, uint64_t change) {
    log->changes[log->seq++ % PREFIX_CHANGES_MAX] = change;
}

void prefix_log_put(struct prefix_log *log, uint64_t digest) {
    if (log == NULL || digest == 0) return;
    pthread_mutex_lock(&log->lock);
    struct counted *c = find(log, digest);
    if (c->digest != 0) {
        c->n++;
    } else if (log->n < PREFIX_DIGESTS_MAX) {
        *c = (struct counted){digest, 1};
        log->n++;
        note(log, digest);
    }
    pthread_mutex_unlock(&log->lock);
}

/* What stands behind a slot that becomes free moves up, as far as it may stand there. */
static void remove_at(struct prefix_log *log, size_t hole) {
    for (size_t i = (hole + 1) & (SLOTS - 1); log->slots[i].digest != 0;
         i = (i + 1) & (SLOTS - 1)) {
        const size_t home = home_of(log->slots[i].digest);
        if (((i - home) & (SLOTS - 1)) < ((i - hole) & (SLOTS - 1))) continue;
        log->slots[hole] = log->slots[i];
        hole = i;
    }
    log->slots[hole] = (struct counted){0};
}

void prefix_log_drop(struct prefix_log *log, uint64_t digest) {
    if (log == NULL || digest == 0) return;
    pthread_mutex_lock(&log->lock);
    struct counted *c = find(log, digest);
    if (c->digest != 0 && --c->n == 0) {
        remove_at(log, (size_t)(c - log->slots));
        log->n--;
        note(log, digest | PREFIX_GONE);
    }
    pthread_mutex_unlock(&log->lock);
}

static void copy_changes(const struct prefix_log *log, uint64_t from, struct prefix_msg *out) {
    for (uint64_t i = from; i < log->seq; i++)
        out->digests[out->n++] = log->changes[i % PREFIX_CHANGES_MAX];
}

static void copy_all(const struct prefix_log *log, struct prefix_msg *out) {
    for (size_t i = 0; i < SLOTS; i++)
        if (log->slots[i].digest != 0) out->digests[out->n++] = log->slots[i].digest;
}

enum err prefix_log_read(struct prefix_log *log, uint64_t epoch, uint64_t seq,
                         struct prefix_msg *out) {
    memset(out, 0, sizeof(*out));
    if (log == NULL) return ERR_OK;
    pthread_mutex_lock(&log->lock);
    const bool goes_on =
        epoch == log->epoch && seq <= log->seq && log->seq - seq <= PREFIX_CHANGES_MAX;
    const size_t n = goes_on ? (size_t)(log->seq - seq) : log->n;
    out->digests = malloc(n * sizeof(*out->digests) + 1);
    if (out->digests != NULL) {
        out->epoch = log->epoch;
        out->seq = log->seq;
        out->whole = !goes_on;
        if (goes_on)
            copy_changes(log, seq, out);
        else
            copy_all(log, out);
    }
    pthread_mutex_unlock(&log->lock);
    return out->digests != NULL ? ERR_OK : ERR_NO_MEMORY;
}
