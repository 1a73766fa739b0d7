/* loop: one event loop, one thread (libevent's base, its only door). Owns sockets, timers and
 * request objects.
 *
 * Thread: the loop thread, except loop_post(), loop_post_task() and loop_stop(), which any thread
 * may call. Time:   no callback may block. */
#ifndef BATON_NET_LOOP_H
#define BATON_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include "proto/err.h"

struct loop;
struct loop_timer;
struct loop_fd;
typedef void loop_fn(void *arg);

enum { LOOP_READ = 1, LOOP_WRITE = 2 };
typedef void loop_fd_fn(void *arg, int fd, int events);

enum err loop_create(struct loop **out);
/* After loop_run() returned. Callbacks still posted are run first. */
void loop_destroy(struct loop **loop);
void loop_run(struct loop *loop);  /* until loop_stop() */
void loop_stop(struct loop *loop); /* any thread */

/* Any thread. Runs fn(arg) once on the loop thread, in the order
 * posted. Posts from the loop thread itself run on the next pass. ERR_NO_MEMORY: not posted. */
enum err loop_post(struct loop *loop, loop_fn *fn, void *arg);

/* Room for one post, inside what posts it. It is free again when fn is called. */
struct loop_task {
    struct loop_task *next;
    loop_fn *fn;
    void *arg;
    bool owned; /* by whoever posted it */
};
/* As loop_post(), and cannot fail: for what must not get lost. *t is not posted now, and is there
 * until fn is called. */
void loop_post_task(struct loop *loop, struct loop_task *t, loop_fn *fn, void *arg);

/* Runs fn(arg) at the end of the present loop pass, after all callbacks of the pass: for coalescing
 * writes. Cannot fail: *t is as for loop_post_task(). */
void loop_at_pass_end(struct loop *loop, struct loop_task *t, loop_fn *fn, void *arg);

/* A moment at which something is due, inside what waits for it, so that setting it cannot fail.
 * Zeroed: not set. The loop thread's. */
struct loop_alarm {
    struct loop *loop; /* NULL: not set */
    uint64_t at_us;
    loop_fn *fn;
    void *arg;
    struct loop_alarm *child, *next, *prev; /* in the loop's heap */
};
/* Runs fn(arg) once, in_ms (at most LOOP_ALARM_MS_MAX) from now; *a is not set any more when it is
 * called. One that is set already gets its new time. */
#define LOOP_ALARM_MS_MAX (UINT64_MAX / 4000u)
void loop_alarm_set(struct loop *loop, struct loop_alarm *a, uint64_t in_ms, loop_fn *fn,
                    void *arg);
void loop_alarm_stop(struct loop_alarm *a); /* one that is not set is fine */
static inline bool loop_alarm_is_set(const struct loop_alarm *a) {
    return a->loop != NULL;
}

/* First run after first_ms, then each period_ms (0: once; the timer object lives until
 * loop_timer_stop). It needs memory to start, and none to go on. */
enum err loop_timer_start(struct loop_timer **out, struct loop *loop, uint64_t first_ms,
                          uint64_t period_ms, loop_fn *fn, void *arg);
/* NULL is fine. Allowed inside the timer's own callback. */
void loop_timer_stop(struct loop_timer **t);

/* Level-triggered watch of a descriptor the caller keeps owning. events: LOOP_READ | LOOP_WRITE. */
enum err loop_fd_watch(struct loop_fd **out, struct loop *loop, int fd, int events, loop_fd_fn *fn,
                       void *arg);
/* The same for one of a crowd, of which thousands may be ready at once: together they have
 * LOOP_CROWD_MS of each pass, in the order in which they became ready, behind everything else; who
 * is left waits for the next pass. */
enum err loop_fd_watch_crowd(struct loop_fd **out, struct loop *loop, int fd, int events,
                             loop_fd_fn *fn, void *arg);
enum { LOOP_CROWD_MS = 10 };
enum err loop_fd_set(struct loop_fd *w, int events);
void loop_fd_unwatch(struct loop_fd **w);

/* Until loop_destroy(). One loop of a process only may watch signals. */
enum err loop_on_signal(struct loop *loop, int signo, loop_fn *fn, void *arg);

#endif
