/* loop: libevent's event_base, one pass at a time, so that there is an "end of the pass".
 * libevent's own locks stay off: what other threads post goes through one mutex and one eventfd.
 * Nothing here activates an event by hand, since libevent runs such events before it polls again
 * and so can starve every socket. Nor is a timer an event of libevent, which needs memory to set
 * one: there is one such event, for the first of the loop's own heap. A crowd has an epoll set of
 * its own, which is one descriptor of libevent's: libevent hands over up to 4,096 descriptors in a
 * pass, and runs them all. */
#include "common/net/loop.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "common/base/clock.h"

enum { CROWD_EVENTS = 64 }; /* taken from its set at a time */

struct task_list {
    struct loop_task *first, **last; /* last: where the next one is hung */
};

struct loop_signal {
    struct loop_signal *next;
    struct event ev;
    loop_fn *fn;
    void *arg;
};

struct loop {
    struct event_base *base;
    struct event wake_ev, due_ev, crowd_ev;
    int wake_fd, crowd_fd;
    struct loop_alarm *first; /* root of a pairing heap */
    uint64_t due_us;          /* when due_ev is set to run; UINT64_MAX: it is not set */
    pthread_mutex_t mutex;    /* guards posted */
    struct task_list posted;
    struct task_list pass_end;           /* loop thread */
    bool crowd_is_ready;                 /* its set has some */
    uint64_t pass;                       /* of the crowd */
    struct loop_fd *ready, **ready_last; /* of the crowd: taken from its set, not run yet */
    struct loop_signal *signals;
    atomic_bool stop;
};

struct loop_timer {
    struct loop_alarm alarm;
    struct loop *loop;
    uint64_t next_us, period_us;
    loop_fn *fn;
    void *arg;
};

struct loop_fd {
    struct loop *loop;
    int fd, events;
    bool crowd;
    int ready;     /* what it is in the loop's list for; 0: it is not there */
    uint64_t pass; /* in which it ran last */
    struct loop_fd *next, **at;
    loop_fd_fn *fn;
    void *arg;
    /* Unless of the crowd: to read and to write; two, so that turning one direction on or off is
     * one epoll_ctl. */
    struct event ev[];
};

static void list_init(struct task_list *l) {
    l->first = NULL;
    l->last = &l->first;
}

static struct loop_task *task_new(loop_fn *fn, void *arg) {
    struct loop_task *t = malloc(sizeof(*t));
    if (t != NULL) *t = (struct loop_task){.fn = fn, .arg = arg};
    return t;
}

static void list_add(struct task_list *l, struct loop_task *t) {
    *l->last = t;
    l->last = &t->next;
}

static struct loop_task *list_take(struct task_list *l) {
    struct loop_task *first = l->first;
    list_init(l);
    return first;
}

static void run_tasks(struct loop_task *t) {
    while (t != NULL) {
        struct loop_task *next = t->next;
        loop_fn *fn = t->fn;
        void *arg = t->arg;
        if (!t->owned) free(t);
        fn(arg);
        t = next;
    }
}

static void wake(struct loop *loop) {
    uint64_t one = 1;
    /* It can fail only when the counter is full, and then the loop is awake anyway. */
    ssize_t n = write(loop->wake_fd, &one, sizeof(one));
    (void)n;
}

static bool run_posted(struct loop *loop) {
    pthread_mutex_lock(&loop->mutex);
    struct loop_task *t = list_take(&loop->posted);
    pthread_mutex_unlock(&loop->mutex);
    run_tasks(t);
    return t != NULL;
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    uint64_t count;
    (void)what;
    /* Read before the list is taken: a post in between wakes us once too often, never once too
     * rarely. */
    ssize_t n = read(fd, &count, sizeof(count));
    (void)n;
    run_posted(arg);
}

/* ---- the crowd */

static void ready_join(struct loop_fd *w, int events) {
    struct loop *loop = w->loop;
    if (events == 0) return;
    w->ready = events;
    w->next = NULL;
    w->at = loop->ready_last;
    *loop->ready_last = w;
    loop->ready_last = &w->next;
}

static void ready_leave(struct loop_fd *w) {
    if (w->ready == 0) return;
    *w->at = w->next;
    *(w->next != NULL ? &w->next->at : &w->loop->ready_last) = w->at;
    w->ready = 0;
}

/* Who is ready, in order: the kernel puts behind all others who was taken. */
static bool take_ready(struct loop *loop) {
    struct epoll_event ev[CROWD_EVENTS];
    int n = epoll_wait(loop->crowd_fd, ev, CROWD_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct loop_fd *w = ev[i].data.ptr;
        const uint32_t is = ev[i].events;
        const bool all = (is & (EPOLLERR | EPOLLHUP)) != 0; /* the next read or write says which */
        ready_join(w, all ? w->events
                          : (is & EPOLLIN ? LOOP_READ : 0) | (is & EPOLLOUT ? LOOP_WRITE : 0));
    }
    return n > 0;
}

/* Each at most once. */
static void run_crowd(struct loop *loop) {
    if (loop->ready == NULL && !loop->crowd_is_ready) return;
    const uint64_t end_us = clock_us() + LOOP_CROWD_MS * 1000u;
    loop->crowd_is_ready = false;
    loop->pass++;
    while (loop->ready != NULL || take_ready(loop)) {
        struct loop_fd *w = loop->ready;
        const int events = w->ready & w->events; /* what is still asked for */
        if (w->pass == loop->pass) return;       /* all had their turn */
        w->pass = loop->pass;
        ready_leave(w);
        if (events != 0) w->fn(w->arg, w->fd, events);
        if (clock_us() >= end_us) return;
    }
}

static void on_crowd(evutil_socket_t fd, short what, void *arg) {
    struct loop *loop = arg;
    (void)fd, (void)what;
    loop->crowd_is_ready = true;
}

/* ---- alarms: a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986). prev: the left sibling,
 * or the parent of a first child. */

static struct timeval timeval_us(uint64_t us) {
    return (struct timeval){.tv_sec = (time_t)(us / 1000000u),
                            .tv_usec = (suseconds_t)(us % 1000000u)};
}

static struct loop_alarm *meld(struct loop_alarm *a, struct loop_alarm *b) {
    if (a == NULL || b == NULL) return a != NULL ? a : b;
    if (b->at_us < a->at_us) {
        struct loop_alarm *t = a;
        a = b;
        b = t;
    }
    b->prev = a;
    b->next = a->child;
    if (b->next != NULL) b->next->prev = b;
    a->child = b;
    a->prev = a->next = NULL;
    return a;
}

/* The siblings from a on as one heap: in pairs from the left, then those from the right. */
static struct loop_alarm *meld_all(struct loop_alarm *a) {
    struct loop_alarm *pairs = NULL, *heap = NULL;
    while (a != NULL) {
        struct loop_alarm *b = a->next, *rest = b != NULL ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b != NULL) b->next = b->prev = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
        a = rest;
    }
    while (pairs != NULL) {
        struct loop_alarm *rest = pairs->next;
        pairs->next = NULL;
        heap = meld(heap, pairs);
        pairs = rest;
    }
    return heap;
}

static void alarm_remove(struct loop *loop, struct loop_alarm *a) {
    struct loop_alarm *below = meld_all(a->child);
    if (a == loop->first) {
        loop->first = below;
    } else {
        *(a->prev->child == a ? &a->prev->child : &a->prev->next) = a->next;
        if (a->next != NULL) a->next->prev = a->prev;
        loop->first = meld(loop->first, below);
    }
    *a = (struct loop_alarm){0};
}

/* due_ev runs no later than the first alarm. Its place in libevent's heap is there since it was set
 * first, so this cannot fail. */
static void watch_first(struct loop *loop) {
    if (loop->first == NULL || loop->due_us <= loop->first->at_us) return;
    uint64_t now_us = clock_us();
    loop->due_us = loop->first->at_us;
    struct timeval tv = timeval_us(loop->due_us > now_us ? loop->due_us - now_us : 0);
    event_add(&loop->due_ev, &tv);
}

/* What is due now; what is set meanwhile waits for the next pass. */
static void on_due(evutil_socket_t fd, short what, void *arg) {
    struct loop *loop = arg;
    uint64_t now_us = clock_us();
    (void)fd, (void)what;
    loop->due_us = 0; /* not set again before all have run */
    while (loop->first != NULL && loop->first->at_us <= now_us) {
        loop_fn *fn = loop->first->fn;
        void *fn_arg = loop->first->arg;
        alarm_remove(loop, loop->first);
        fn(fn_arg);
    }
    loop->due_us = UINT64_MAX;
    watch_first(loop);
}

void loop_alarm_stop(struct loop_alarm *a) {
    if (a->loop != NULL) alarm_remove(a->loop, a);
}

static void alarm_at(struct loop *loop, struct loop_alarm *a, uint64_t at_us, loop_fn *fn,
                     void *arg) {
    loop_alarm_stop(a);
    *a = (struct loop_alarm){.loop = loop, .at_us = at_us, .fn = fn, .arg = arg};
    loop->first = meld(loop->first, a);
    watch_first(loop);
}

void loop_alarm_set(struct loop *loop, struct loop_alarm *a, uint64_t in_ms, loop_fn *fn,
                    void *arg) {
    if (in_ms > LOOP_ALARM_MS_MAX) in_ms = LOOP_ALARM_MS_MAX;
    alarm_at(loop, a, clock_us() + in_ms * 1000u + 1, fn, arg);
}

/* ---- life */

enum err loop_create(struct loop **out) {
    struct loop *loop = calloc(1, sizeof(*loop));
    *out = NULL;
    if (loop == NULL) return ERR_NO_MEMORY;
    list_init(&loop->posted);
    list_init(&loop->pass_end);
    loop->ready_last = &loop->ready;
    pthread_mutex_init(&loop->mutex, NULL);
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    loop->crowd_fd = epoll_create1(EPOLL_CLOEXEC);
    struct event_config *conf = event_config_new();
    if (conf != NULL) {
        /* Timers count from the call that sets them, in real milliseconds, not from the start of
         * the pass. */
        event_config_set_flag(conf, EVENT_BASE_FLAG_NO_CACHE_TIME);
        event_config_set_flag(conf, EVENT_BASE_FLAG_PRECISE_TIMER);
        event_config_set_flag(conf, EVENT_BASE_FLAG_NOLOCK);
        loop->base = event_base_new_with_config(conf);
        event_config_free(conf);
    }
    if (loop->wake_fd < 0 || loop->crowd_fd < 0 || loop->base == NULL ||
        event_assign(&loop->wake_ev, loop->base, loop->wake_fd, EV_READ | EV_PERSIST, on_wake,
                     loop) != 0 ||
        event_add(&loop->wake_ev, NULL) != 0 ||
        event_assign(&loop->crowd_ev, loop->base, loop->crowd_fd, EV_READ | EV_PERSIST, on_crowd,
                     loop) != 0 ||
        event_add(&loop->crowd_ev, NULL) != 0 ||
        event_assign(&loop->due_ev, loop->base, -1, 0, on_due, loop) != 0 ||
        event_add(&loop->due_ev, &(struct timeval){0}) != 0) {
        loop_destroy(&loop);
        return ERR_NO_MEMORY;
    }
    *out = loop;
    return ERR_OK;
}

void loop_destroy(struct loop **loopp) {
    struct loop *loop = *loopp;
    if (loop == NULL) return;
    *loopp = NULL;
    while (run_posted(loop) || loop->pass_end.first != NULL) run_tasks(list_take(&loop->pass_end));
    while (loop->signals != NULL) {
        struct loop_signal *s = loop->signals;
        loop->signals = s->next;
        event_del(&s->ev);
        free(s);
    }
    if (loop->base != NULL) {
        if (event_initialized(&loop->wake_ev)) event_del(&loop->wake_ev);
        if (event_initialized(&loop->crowd_ev)) event_del(&loop->crowd_ev);
        if (event_initialized(&loop->due_ev)) event_del(&loop->due_ev);
        event_base_free(loop->base);
    }
    if (loop->wake_fd >= 0) close(loop->wake_fd);
    if (loop->crowd_fd >= 0) close(loop->crowd_fd);
    pthread_mutex_destroy(&loop->mutex);
    free(loop);
}

void loop_run(struct loop *loop) {
    while (!atomic_load(&loop->stop)) {
        /* What is left for this pass must not wait for an event. */
        bool left = loop->pass_end.first != NULL || loop->ready != NULL;
        event_base_loop(loop->base, EVLOOP_ONCE | (left ? EVLOOP_NONBLOCK : 0));
        run_crowd(loop);
        run_tasks(list_take(&loop->pass_end));
    }
    atomic_store(&loop->stop, false);
}

void loop_stop(struct loop *loop) {
    atomic_store(&loop->stop, true);
    wake(loop);
}

static void post(struct loop *loop, struct loop_task *t) {
    pthread_mutex_lock(&loop->mutex);
    bool was_empty = loop->posted.first == NULL;
    list_add(&loop->posted, t);
    pthread_mutex_unlock(&loop->mutex);
    if (was_empty) wake(loop);
}

enum err loop_post(struct loop *loop, loop_fn *fn, void *arg) {
    struct loop_task *t = task_new(fn, arg);
    if (t == NULL) return ERR_NO_MEMORY;
    post(loop, t);
    return ERR_OK;
}

void loop_post_task(struct loop *loop, struct loop_task *t, loop_fn *fn, void *arg) {
    *t = (struct loop_task){.fn = fn, .arg = arg, .owned = true};
    post(loop, t);
}

void loop_at_pass_end(struct loop *loop, struct loop_task *t, loop_fn *fn, void *arg) {
    *t = (struct loop_task){.fn = fn, .arg = arg, .owned = true};
    list_add(&loop->pass_end, t);
}

static void on_timer(void *arg) {
    struct loop_timer *t = arg;
    if (t->period_us > 0) {
        /* Along the schedule, so that periods do not drift; a schedule that was missed starts anew.
         */
        uint64_t now = clock_us();
        t->next_us += t->period_us;
        if (t->next_us <= now) t->next_us = now + t->period_us;
        alarm_at(t->loop, &t->alarm, t->next_us, on_timer, t);
    }
    t->fn(t->arg); /* may stop, and so free, the timer */
}

enum err loop_timer_start(struct loop_timer **out, struct loop *loop, uint64_t first_ms,
                          uint64_t period_ms, loop_fn *fn, void *arg) {
    *out = NULL;
    if (first_ms > UINT64_MAX / 2000u || period_ms > UINT64_MAX / 2000u) return ERR_INVALID;
    struct loop_timer *t = calloc(1, sizeof(*t));
    if (t == NULL) return ERR_NO_MEMORY;
    t->loop = loop;
    t->fn = fn;
    t->arg = arg;
    t->period_us = period_ms * 1000u;
    t->next_us = clock_us() + first_ms * 1000u + 1;
    alarm_at(loop, &t->alarm, t->next_us, on_timer, t);
    *out = t;
    return ERR_OK;
}

void loop_timer_stop(struct loop_timer **tp) {
    struct loop_timer *t = *tp;
    if (t == NULL) return;
    *tp = NULL;
    loop_alarm_stop(&t->alarm);
    free(t);
}

/* ---- descriptors */

static void on_readable(evutil_socket_t fd, short what, void *arg) {
    struct loop_fd *w = arg;
    (void)what;
    w->fn(w->arg, fd, LOOP_READ);
}

static void on_writable(evutil_socket_t fd, short what, void *arg) {
    struct loop_fd *w = arg;
    (void)what;
    w->fn(w->arg, fd, LOOP_WRITE);
}

static struct loop_fd *fd_new(struct loop *loop, int fd, bool crowd, loop_fd_fn *fn, void *arg) {
    struct loop_fd *w = calloc(1, sizeof(*w) + (crowd ? 0 : 2) * sizeof(struct event));
    if (w != NULL)
        *w = (struct loop_fd){.loop = loop, .fd = fd, .crowd = crowd, .fn = fn, .arg = arg};
    return w;
}

enum err loop_fd_watch(struct loop_fd **out, struct loop *loop, int fd, int events, loop_fd_fn *fn,
                       void *arg) {
    struct loop_fd *w = fd_new(loop, fd, false, fn, arg);
    *out = w;
    if (w == NULL) return ERR_NO_MEMORY;
    if (event_assign(&w->ev[0], loop->base, fd, EV_READ | EV_PERSIST, on_readable, w) != 0 ||
        event_assign(&w->ev[1], loop->base, fd, EV_WRITE | EV_PERSIST, on_writable, w) != 0 ||
        loop_fd_set(w, events) != ERR_OK) {
        loop_fd_unwatch(out); /* one direction may be watched */
        return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

enum err loop_fd_watch_crowd(struct loop_fd **out, struct loop *loop, int fd, int events,
                             loop_fd_fn *fn, void *arg) {
    struct loop_fd *w = fd_new(loop, fd, true, fn, arg);
    *out = w;
    if (w == NULL) return ERR_NO_MEMORY;
    if (loop_fd_set(w, events) != ERR_OK) {
        loop_fd_unwatch(out);
        return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

/* Nothing is asked for: not in the set, which would tell of the end of a connection all the same.
 */
static enum err crowd_set(struct loop_fd *w, int events) {
    struct epoll_event ev = {.events = (events & LOOP_READ ? (uint32_t)EPOLLIN : 0) |
                                       (events & LOOP_WRITE ? (uint32_t)EPOLLOUT : 0),
                             .data.ptr = w};
    const int op = events == 0 ? EPOLL_CTL_DEL : w->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (events == w->events) return ERR_OK;
    if (epoll_ctl(w->loop->crowd_fd, op, w->fd, &ev) != 0) return ERR_IO;
    w->events = events;
    return ERR_OK;
}

static enum err set_one(struct event *ev, bool was, bool is) {
    if (was == is) return ERR_OK;
    return (is ? event_add(ev, NULL) : event_del(ev)) == 0 ? ERR_OK : ERR_IO;
}

enum err loop_fd_set(struct loop_fd *w, int events) {
    if (w->crowd) return crowd_set(w, events);
    enum err e = set_one(&w->ev[0], w->events & LOOP_READ, events & LOOP_READ);
    if (e == ERR_OK) w->events = (w->events & ~LOOP_READ) | (events & LOOP_READ);
    if (e == ERR_OK) e = set_one(&w->ev[1], w->events & LOOP_WRITE, events & LOOP_WRITE);
    if (e == ERR_OK) w->events = events;
    return e;
}

void loop_fd_unwatch(struct loop_fd **wp) {
    struct loop_fd *w = *wp;
    if (w == NULL) return;
    *wp = NULL;
    ready_leave(w);
    loop_fd_set(w, 0);
    free(w);
}

static void on_signal(evutil_socket_t signo, short what, void *arg) {
    struct loop_signal *s = arg;
    (void)signo;
    (void)what;
    s->fn(s->arg);
}

enum err loop_on_signal(struct loop *loop, int signo, loop_fn *fn, void *arg) {
    struct loop_signal *s = calloc(1, sizeof(*s));
    if (s == NULL) return ERR_NO_MEMORY;
    s->fn = fn;
    s->arg = arg;
    if (event_assign(&s->ev, loop->base, signo, EV_SIGNAL | EV_PERSIST, on_signal, s) != 0 ||
        event_add(&s->ev, NULL) != 0) {
        free(s);
        return ERR_INVALID;
    }
    s->next = loop->signals;
    loop->signals = s;
    return ERR_OK;
}
