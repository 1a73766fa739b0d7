/* loop: libevent's event_base, one pass at a time, so that there is an "end of the pass".
 * libevent's own locks stay off: what other threads post goes through one mutex and one eventfd.
 * Nothing here activates an event by hand, since libevent runs such events before it polls again
 * and so can starve every socket. */
#include "common/net/loop.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "common/base/clock.h"

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
    struct event wake_ev;
    int wake_fd;
    pthread_mutex_t mutex; /* guards posted */
    struct task_list posted;
    struct task_list pass_end; /* loop thread */
    struct loop_signal *signals;
    atomic_bool stop;
};

struct loop_timer {
    struct event ev;
    uint64_t next_us, period_us;
    loop_fn *fn;
    void *arg;
};

/* Two events, so that turning one direction on or off is one epoll_ctl. */
struct loop_fd {
    struct event read_ev, write_ev;
    int events;
    loop_fd_fn *fn;
    void *arg;
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

enum err loop_create(struct loop **out) {
    struct loop *loop = calloc(1, sizeof(*loop));
    *out = NULL;
    if (loop == NULL) return ERR_NO_MEMORY;
    list_init(&loop->posted);
    list_init(&loop->pass_end);
    pthread_mutex_init(&loop->mutex, NULL);
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
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
    if (loop->wake_fd < 0 || loop->base == NULL ||
        event_assign(&loop->wake_ev, loop->base, loop->wake_fd, EV_READ | EV_PERSIST, on_wake,
                     loop) != 0 ||
        event_add(&loop->wake_ev, NULL) != 0) {
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
        event_base_free(loop->base);
    }
    if (loop->wake_fd >= 0) close(loop->wake_fd);
    pthread_mutex_destroy(&loop->mutex);
    free(loop);
}

void loop_run(struct loop *loop) {
    while (!atomic_load(&loop->stop)) {
        /* What a pass-end function left for the next pass end must not wait for an event. */
        event_base_loop(loop->base,
                        EVLOOP_ONCE | (loop->pass_end.first != NULL ? EVLOOP_NONBLOCK : 0));
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

enum err loop_at_pass_end(struct loop *loop, loop_fn *fn, void *arg) {
    struct loop_task *t = task_new(fn, arg);
    if (t == NULL) return ERR_NO_MEMORY;
    list_add(&loop->pass_end, t);
    return ERR_OK;
}

static struct timeval timeval_us(uint64_t us) {
    return (struct timeval){.tv_sec = (time_t)(us / 1000000u),
                            .tv_usec = (suseconds_t)(us % 1000000u)};
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    struct loop_timer *t = arg;
    (void)fd;
    (void)what;
    if (t->period_us > 0) {
        /* Along the schedule, so that periods do not drift; a schedule that was missed starts anew.
         */
        uint64_t now = clock_us();
        t->next_us += t->period_us;
        if (t->next_us <= now) t->next_us = now + t->period_us;
        struct timeval tv = timeval_us(t->next_us - now);
        event_add(&t->ev, &tv);
    }
    t->fn(t->arg); /* may stop, and so free, the timer */
}

enum err loop_timer_start(struct loop_timer **out, struct loop *loop, uint64_t first_ms,
                          uint64_t period_ms, loop_fn *fn, void *arg) {
    *out = NULL;
    if (first_ms > UINT64_MAX / 2000u || period_ms > UINT64_MAX / 2000u) return ERR_INVALID;
    struct loop_timer *t = calloc(1, sizeof(*t));
    if (t == NULL) return ERR_NO_MEMORY;
    t->fn = fn;
    t->arg = arg;
    t->period_us = period_ms * 1000u;
    t->next_us = clock_us() + first_ms * 1000u;
    struct timeval tv = timeval_us(first_ms * 1000u);
    if (event_assign(&t->ev, loop->base, -1, 0, on_timer, t) != 0 || event_add(&t->ev, &tv) != 0) {
        free(t);
        return ERR_NO_MEMORY;
    }
    *out = t;
    return ERR_OK;
}

void loop_timer_stop(struct loop_timer **tp) {
    struct loop_timer *t = *tp;
    if (t == NULL) return;
    *tp = NULL;
    event_del(&t->ev);
    free(t);
}

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

enum err loop_fd_watch(struct loop_fd **out, struct loop *loop, int fd, int events, loop_fd_fn *fn,
                       void *arg) {
    struct loop_fd *w = calloc(1, sizeof(*w));
    *out = NULL;
    if (w == NULL) return ERR_NO_MEMORY;
    w->fn = fn;
    w->arg = arg;
    if (event_assign(&w->read_ev, loop->base, fd, EV_READ | EV_PERSIST, on_readable, w) != 0 ||
        event_assign(&w->write_ev, loop->base, fd, EV_WRITE | EV_PERSIST, on_writable, w) != 0 ||
        loop_fd_set(w, events) != ERR_OK) {
        free(w);
        return ERR_NO_MEMORY;
    }
    *out = w;
    return ERR_OK;
}

static enum err set_one(struct event *ev, bool was, bool is) {
    if (was == is) return ERR_OK;
    return (is ? event_add(ev, NULL) : event_del(ev)) == 0 ? ERR_OK : ERR_IO;
}

enum err loop_fd_set(struct loop_fd *w, int events) {
    enum err e = set_one(&w->read_ev, w->events & LOOP_READ, events & LOOP_READ);
    if (e == ERR_OK) w->events = (w->events & ~LOOP_READ) | (events & LOOP_READ);
    if (e == ERR_OK) e = set_one(&w->write_ev, w->events & LOOP_WRITE, events & LOOP_WRITE);
    if (e == ERR_OK) w->events = events;
    return e;
}

void loop_fd_unwatch(struct loop_fd **wp) {
    struct loop_fd *w = *wp;
    if (w == NULL) return;
    *wp = NULL;
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
