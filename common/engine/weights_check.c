/* weights_check: see weights_check.h. */
#include "common/engine/weights_check.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/engine/cores.h"
#include "common/engine/weights_cache.h"

enum { CHUNK_MS = WEIGHTS_CHUNK_BYTES / 1048576 * 1000 / WEIGHTS_CHECK_MIB_S };

struct weights_check {
    const struct weights *w;
    engine_checked_fn *done;
    void *arg;
    pthread_t thread;
    pthread_mutex_t mutex; /* for wake */
    pthread_cond_t wake;   /* on the monotonic clock: stop was set */
    atomic_bool stop;
    uint64_t *sums; /* of the chunks */
    size_t n;
};

/* True: the check is to end. */
static bool nap(struct weights_check *c, unsigned ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&c->mutex);
    while (!atomic_load(&c->stop) &&
           pthread_cond_timedwait(&c->wake, &c->mutex, &until) != ETIMEDOUT)
        continue;
    pthread_mutex_unlock(&c->mutex);
    return atomic_load(&c->stop);
}

/* Only the very file that is mapped: meanwhile there may be another one in its place. */
static bool put_aside(const struct weights_file *f) {
    char aside[WC_PATH_BYTES + 8];
    struct stat st;
    snprintf(aside, sizeof(aside), "%s.bad", f->path);
    return stat(f->path, &st) == 0 && (uint64_t)st.st_dev == f->dev &&
           (uint64_t)st.st_ino == f->ino && rename(f->path, aside) == 0;
}

static void tell_mismatch(struct weights_check *c) {
    const struct weights_file *f = &c->w->file;
    char text[ERR_TEXT_BYTES_MAX];
    snprintf(text, sizeof(text),
             "%s: the checksum of its data is wrong, so these weights are not what was packed; %s",
             f->path,
             put_aside(f) ? "it is now FILE.bad, and the next start packs anew"
                          : "remove it, and the next start packs anew");
    c->done(c->arg, ERR_BAD_FILE, text);
}

static void *thread_main(void *arg) {
    struct weights_check *c = arg;
    const struct weights *w = c->w;
    const uint8_t *data = (const uint8_t *)w->file.map + WC_HEADER_BYTES;
    const uint64_t began = clock_ms();
    uint8_t sum[WC_XXH_BYTES];
    pthread_setname_np(pthread_self(), "weights-check");
    cores_yield_always();
    for (size_t i = 0; i < c->n; i++) {
        const uint64_t at = (uint64_t)i * WEIGHTS_CHUNK_BYTES, left = w->bytes - at;
        /* On a busy machine this thread gets so little that a chunk takes minutes, and whoever
         * stops it waits for it. */
        if (nap(c, CHUNK_MS) ||
            !wc_sum_chunk_unless(&c->sums[i], data + at,
                                 left < WEIGHTS_CHUNK_BYTES ? left : WEIGHTS_CHUNK_BYTES, &c->stop))
            return NULL;
    }
    wc_sum(sum, c->sums, c->n);
    if (memcmp(sum, w->file.sum, sizeof(sum)) != 0) {
        tell_mismatch(c);
        return NULL;
    }
    log_info("load", "event=weights_checked file=%s ms=%" PRIu64, w->file.path, clock_ms() - began);
    c->done(c->arg, ERR_OK, "");
    return NULL;
}

enum err weights_check_start(struct weights_check **out, const struct weights *w,
                             engine_checked_fn *done, void *arg) {
    *out = NULL;
    if (!w->file.unchecked) return ERR_OK;
    struct weights_check *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    *c = (struct weights_check){.w = w, .done = done, .arg = arg};
    c->n = (size_t)((w->bytes + WEIGHTS_CHUNK_BYTES - 1) / WEIGHTS_CHUNK_BYTES);
    c->sums = malloc(c->n * sizeof(*c->sums));
    pthread_condattr_t attr;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (c->sums == NULL || pthread_create(&c->thread, NULL, thread_main, c) != 0) {
        pthread_cond_destroy(&c->wake);
        pthread_mutex_destroy(&c->mutex);
        free(c->sums);
        free(c);
        return ERR_NO_MEMORY;
    }
    *out = c;
    return ERR_OK;
}

void weights_check_stop(struct weights_check **cp) {
    struct weights_check *c = *cp;
    if (c == NULL) return;
    *cp = NULL;
    pthread_mutex_lock(&c->mutex);
    atomic_store(&c->stop, true);
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    free(c->sums);
    free(c);
}
