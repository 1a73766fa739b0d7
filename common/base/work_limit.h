/* work_limit: how long a piece of work for a stranger may take, in processor time of its own thread
 * (a busy machine refuses nothing that a calm one accepts), and whether anybody still wants the
 * result. Whoever loops over what a stranger sent looks at it now and then; a look costs about a
 * third of a microsecond.
 *
 * Thread: a limit belongs to the thread that works; `cancelled` may be set by any other. */
#ifndef BATON_BASE_WORK_LIMIT_H
#define BATON_BASE_WORK_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "common/base/clock.h"
#include "proto/err.h"

struct work_limit {
    uint64_t until_us;            /* of clock_thread_us(); 0: no deadline */
    const atomic_bool *cancelled; /* NULL: nobody will cancel it */
};

/* A limit that begins now, for this thread. ms 0: no deadline. */
static inline struct work_limit work_limit_start(int64_t ms, const atomic_bool *cancelled) {
    return (struct work_limit){.until_us = ms > 0 ? clock_thread_us() + (uint64_t)ms * 1000 : 0,
                               .cancelled = cancelled};
}

/* ERR_OK, ERR_TIMEOUT, ERR_CANCELLED. */
static inline enum err work_limit_check(const struct work_limit *w) {
    if (w->cancelled != NULL && atomic_load_explicit(w->cancelled, memory_order_relaxed))
        return ERR_CANCELLED;
    return w->until_us != 0 && clock_thread_us() > w->until_us ? ERR_TIMEOUT : ERR_OK;
}

#endif
