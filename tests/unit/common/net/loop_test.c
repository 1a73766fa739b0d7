/* Goal: the loop runs what it was given, in the promised order, and stops.
 * Method: callbacks note themselves in a log, which is compared; four threads post at once; a
 * watchdog timer turns a hang into a failure. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/net/loop.h"

static struct loop *loop;
static struct loop_timer *watchdog;
static char notes[256];

static void note(const char *s) {
    assert_true(strlen(notes) + strlen(s) < sizeof(notes));
    strcat(notes, s);
}

static void on_watchdog(void *arg) {
    (void)arg;
    fail_msg("the loop hangs; so far: %s", notes);
}

static int setup(void **state) {
    (void)state;
    notes[0] = '\0';
    if (loop_create(&loop) != ERR_OK) return -1;
    return loop_timer_start(&watchdog, loop, 20000, 0, on_watchdog, NULL) == ERR_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    loop_timer_stop(&watchdog);
    loop_destroy(&loop);
    return loop == NULL ? 0 : -1;
}

static void add(void *arg) {
    note(arg);
}

static void stop(void *arg) {
    (void)arg;
    loop_stop(loop);
}

static void post_more(void *arg) {
    note(arg);
    assert_int_equal(loop_post(loop, add, "d"), ERR_OK);
    assert_int_equal(loop_post(loop, stop, NULL), ERR_OK);
}

static void posts_run_in_order(void **state) {
    (void)state;
    assert_int_equal(loop_post(loop, add, "a"), ERR_OK);
    assert_int_equal(loop_post(loop, post_more, "b"), ERR_OK);
    assert_int_equal(loop_post(loop, add, "c"), ERR_OK);
    loop_run(loop);
    assert_string_equal(notes, "abcd");
}

static struct loop_task ends[3];

static void at_end_again(void *arg) {
    note(arg);
    loop_at_pass_end(loop, &ends[2], add, "e2");
    assert_int_equal(loop_post(loop, stop, NULL), ERR_OK);
}

static void plan_end(void *arg) {
    note(arg);
    loop_at_pass_end(loop, &ends[0], add, "e1");
    loop_at_pass_end(loop, &ends[1], at_end_again, "x");
}

static void pass_end_comes_after_all(void **state) {
    (void)state;
    assert_int_equal(loop_post(loop, plan_end, "a"), ERR_OK);
    assert_int_equal(loop_post(loop, add, "b"), ERR_OK);
    loop_run(loop);
    assert_string_equal(notes, "abe1xe2");
}

struct again {
    struct loop_task task;
    int left;
};

static void post_again(void *arg) {
    struct again *a = arg;
    note("t");
    if (--a->left > 0)
        loop_post_task(loop, &a->task, post_again, a); /* free when it runs */
    else
        loop_stop(loop);
}

static void owned_tasks_keep_the_order(void **state) {
    struct again a = {.left = 3};
    (void)state;
    assert_int_equal(loop_post(loop, add, "a"), ERR_OK);
    loop_post_task(loop, &a.task, post_again, &a);
    assert_int_equal(loop_post(loop, add, "b"), ERR_OK);
    loop_run(loop);
    assert_string_equal(notes, "atbtt");
}

static void stop_before_run(void **state) {
    (void)state;
    loop_stop(loop);
    loop_run(loop); /* returns at once, and uses the stop up */
    assert_int_equal(loop_post(loop, stop, NULL), ERR_OK);
    loop_run(loop);
}

static void destroy_runs_posted(void **state) {
    struct loop *l;
    (void)state;
    assert_int_equal(loop_create(&l), ERR_OK);
    assert_int_equal(loop_post(l, add, "p"), ERR_OK);
    loop_at_pass_end(l, &ends[0], add, "q");
    loop_destroy(&l);
    assert_string_equal(notes, "pq");
}

struct ticker {
    struct loop_timer *t;
    int n;
    uint64_t start_us, last_us;
};

static void on_tick(void *arg) {
    struct ticker *k = arg;
    k->last_us = clock_us();
    if (++k->n == 5) {
        loop_timer_stop(&k->t); /* inside its own callback */
        loop_stop(loop);
    }
}

static void periodic_timer(void **state) {
    struct ticker k = {.start_us = clock_us()};
    (void)state;
    assert_int_equal(loop_timer_start(&k.t, loop, 20, 10, on_tick, &k), ERR_OK);
    loop_run(loop);
    assert_int_equal(k.n, 5);
    assert_null(k.t);
    assert_true(k.last_us - k.start_us >= 60000);
}

static void timers_fire_by_time(void **state) {
    struct loop_timer *t[4] = {NULL};
    (void)state;
    assert_int_equal(loop_timer_start(&t[0], loop, 30, 0, add, "c"), ERR_OK);
    assert_int_equal(loop_timer_start(&t[1], loop, 0, 0, add, "a"), ERR_OK);
    assert_int_equal(loop_timer_start(&t[2], loop, 15, 0, add, "b"), ERR_OK);
    assert_int_equal(loop_timer_start(&t[3], loop, 22, 0, add, "never"), ERR_OK);
    loop_timer_stop(&t[3]);
    assert_int_equal(loop_timer_start(&t[3], loop, 60, 0, stop, NULL), ERR_OK);
    loop_run(loop);
    assert_string_equal(notes, "abc");
    for (int i = 0; i < 4; i++) loop_timer_stop(&t[i]);
    loop_timer_stop(&t[0]); /* NULL is fine */
    assert_int_equal(loop_timer_start(&t[0], loop, UINT64_MAX, 0, add, ""), ERR_INVALID);
}

enum { N_ALARMS = 500 };

static struct bell {
    struct loop_alarm a;
    uint64_t at_us;
    int rung;
} bells[N_ALARMS];
static uint64_t last_us;

static void on_bell(void *arg) {
    struct bell *b = arg;
    assert_false(loop_alarm_is_set(&b->a));
    assert_true(clock_us() >= b->at_us);
    assert_true(b->at_us >= last_us); /* what is due first runs first */
    last_us = b->at_us;
    b->rung++;
    struct bell *next = b + 1;
    if (b->rung == 1 && b - bells < N_ALARMS / 4) { /* again */
        loop_alarm_set(loop, &b->a, 0, on_bell, b);
        b->at_us = b->a.at_us;
    } else if (next < bells + N_ALARMS && (next - bells) % 7 == 0) {
        loop_alarm_stop(&next->a); /* another one never */
    }
}

static void stop_when_all_rang(void *arg) {
    for (int i = 0; i < N_ALARMS; i++) {
        if (!loop_alarm_is_set(&bells[i].a)) continue;
        loop_alarm_set(loop, arg, 1, stop_when_all_rang, arg);
        return;
    }
    loop_stop(loop);
}

/* Alarms in any order, set anew before they ring, stopped, and set again by themselves. */
static void alarms_ring_by_time(void **state) {
    struct loop_alarm end = {0};
    uint64_t base_us = clock_us();
    (void)state;
    last_us = 0;
    memset(bells, 0, sizeof(bells));
    for (int i = 0; i < 2 * N_ALARMS; i++) {
        struct bell *b = &bells[i % N_ALARMS];
        uint64_t ms = ((unsigned)i * 7919u) % 61;
        loop_alarm_set(loop, &b->a, ms, on_bell, b);
        b->at_us = b->a.at_us;
        assert_true(loop_alarm_is_set(&b->a));
    }
    for (int i = 0; i < N_ALARMS; i += 5) loop_alarm_stop(&bells[i].a);
    loop_alarm_stop(&bells[0].a); /* one that is not set is fine */
    loop_alarm_set(loop, &end, 100, stop_when_all_rang, &end);
    loop_run(loop);
    assert_true(clock_us() - base_us >= 100000);
    for (int i = 0; i < N_ALARMS; i++) {
        int most = i < N_ALARMS / 4 ? 2 : 1;
        assert_true(bells[i].rung <= most);
        if (i % 5 == 0) assert_int_equal(bells[i].rung, 0);
        if (i % 5 != 0 && i % 7 != 0) assert_int_equal(bells[i].rung, most);
    }
}

struct pipe_watch {
    int fd[2];
    struct loop_fd *r, *w;
    int n_read;
};

static void on_pipe_read(void *arg, int fd, int events) {
    struct pipe_watch *p = arg;
    char c;
    assert_int_equal(events, LOOP_READ);
    assert_int_equal(read(fd, &c, 1), 1);
    if (++p->n_read < 3) {
        assert_int_equal(loop_fd_set(p->w, LOOP_WRITE), ERR_OK);
    } else {
        loop_fd_unwatch(&p->r);
        loop_stop(loop);
    }
}

static void on_pipe_write(void *arg, int fd, int events) {
    struct pipe_watch *p = arg;
    assert_int_equal(events, LOOP_WRITE);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(loop_fd_set(p->w, 0), ERR_OK);
}

typedef enum err watch_fn(struct loop_fd **out, struct loop *loop, int fd, int events,
                          loop_fd_fn *fn, void *arg);

static void watched_with(watch_fn *watch) {
    struct pipe_watch p = {0};
    assert_int_equal(pipe(p.fd), 0);
    assert_int_equal(watch(&p.r, loop, p.fd[0], LOOP_READ, on_pipe_read, &p), ERR_OK);
    assert_int_equal(watch(&p.w, loop, p.fd[1], LOOP_WRITE, on_pipe_write, &p), ERR_OK);
    loop_run(loop);
    assert_int_equal(p.n_read, 3);
    assert_null(p.r);
    loop_fd_unwatch(&p.w);
    loop_fd_unwatch(&p.w);
    close(p.fd[0]);
    close(p.fd[1]);
    assert_int_not_equal(watch(&p.r, loop, p.fd[0], LOOP_READ, on_pipe_read, &p), ERR_OK);
    assert_null(p.r);
}

static void descriptors(void **state) {
    (void)state;
    watched_with(loop_fd_watch);
    watched_with(loop_fd_watch_crowd);
}

enum { CROWD = 200, SPIN_US = 1000 };

static struct crowd {
    struct one {
        int fd[2];
        struct loop_fd *w;
    } one[CROWD];
    int order[CROWD], n_run, n_other;
    int in_pass, most_in_pass;
    bool ended;
    struct loop_task pass_end;
} crowd;

static void end_crowd(void) {
    crowd.ended = true;
    loop_stop(loop);
}

static void on_one(void *arg, int fd, int events) {
    struct one *o = arg;
    assert_int_equal(events, LOOP_READ);
    assert_int_equal(fd, o->fd[0]);
    for (uint64_t end_us = clock_us() + SPIN_US; clock_us() < end_us;) continue;
    crowd.order[crowd.n_run++] = (int)(o - crowd.one);
    crowd.in_pass++;
    loop_fd_unwatch(&o->w);
    if (crowd.n_run == 1) loop_fd_unwatch(&crowd.one[CROWD / 2].w); /* leaves while it waits */
    if (crowd.n_run == CROWD - 1) end_crowd();
}

static void on_other(void *arg, int fd, int events) {
    (void)arg, (void)fd, (void)events;
    assert_int_equal(crowd.in_pass, 0); /* before the crowd */
    crowd.n_other++;
}

static void count_pass(void *arg) {
    if (crowd.in_pass > crowd.most_in_pass) crowd.most_in_pass = crowd.in_pass;
    crowd.in_pass = 0;
    if (!crowd.ended) loop_at_pass_end(loop, &crowd.pass_end, count_pass, arg);
}

/* A crowd that is ready all at once has its part of each pass, in its order, behind the others. */
static void a_crowd_takes_turns(void **state) {
    struct loop_fd *other = NULL;
    int pipe_fd[2];
    (void)state;
    crowd = (struct crowd){0};
    assert_int_equal(pipe(pipe_fd), 0);
    for (int i = 0; i < CROWD; i++) {
        struct one *o = &crowd.one[i];
        assert_int_equal(pipe(o->fd), 0);
        assert_int_equal(loop_fd_watch_crowd(&o->w, loop, o->fd[0], LOOP_READ, on_one, o), ERR_OK);
        assert_int_equal(write(o->fd[1], "x", 1), 1);
    }
    assert_int_equal(loop_fd_watch(&other, loop, pipe_fd[1], LOOP_WRITE, on_other, NULL), ERR_OK);
    count_pass(NULL);
    loop_run(loop);
    assert_in_range(crowd.most_in_pass, 1, LOOP_CROWD_MS * 1000 / SPIN_US);
    assert_in_range(crowd.n_other, 5, INT_MAX);
    for (int i = 0; i < CROWD - 1; i++) assert_int_equal(crowd.order[i], i < CROWD / 2 ? i : i + 1);
    loop_fd_unwatch(&other);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    for (int i = 0; i < CROWD; i++) {
        loop_fd_unwatch(&crowd.one[i].w);
        close(crowd.one[i].fd[0]);
        close(crowd.one[i].fd[1]);
    }
}

static void on_left_alone(void *arg, int fd, int events) {
    (void)fd;
    assert_int_equal(events, LOOP_READ | LOOP_WRITE);
    crowd.in_pass++;
    if (++*(int *)arg == 50) end_crowd();
}

/* One that takes nothing of what there is has one turn a pass, and sees the end of its peer. */
static void one_of_a_crowd_has_one_turn_a_pass(void **state) {
    struct loop_fd *w = NULL;
    int fd[2], n = 0;
    (void)state;
    crowd = (struct crowd){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    close(fd[1]);
    assert_int_equal(
        loop_fd_watch_crowd(&w, loop, fd[0], LOOP_READ | LOOP_WRITE, on_left_alone, &n), ERR_OK);
    count_pass(NULL);
    loop_run(loop);
    assert_int_equal(n, 50);
    assert_int_equal(crowd.most_in_pass, 1);
    loop_fd_unwatch(&w);
    close(fd[0]);
}

static void signals(void **state) {
    (void)state;
    assert_int_equal(loop_on_signal(loop, SIGUSR1, add, "s"), ERR_OK);
    assert_int_equal(loop_on_signal(loop, SIGUSR2, stop, NULL), ERR_OK);
    raise(SIGUSR1);
    raise(SIGUSR2);
    loop_run(loop);
    assert_string_equal(notes, "s");
}

enum { POSTERS = 4, PER_POSTER = 2000 };

struct posted {
    int who, n;
};

static int next_of[POSTERS], n_got;

static void take(void *arg) {
    struct posted *p = arg;
    assert_int_equal(p->n, next_of[p->who]++);
    free(p);
    if (++n_got == POSTERS * PER_POSTER) loop_stop(loop);
}

static void *post_all(void *arg) {
    for (int i = 0; i < PER_POSTER; i++) {
        struct posted *p = malloc(sizeof(*p));
        if (p == NULL) abort();
        *p = (struct posted){*(int *)arg, i};
        if (loop_post(loop, take, p) != ERR_OK) abort();
    }
    return NULL;
}

static void posts_of_threads_keep_their_order(void **state) {
    pthread_t t[POSTERS];
    int who[POSTERS];
    (void)state;
    n_got = 0;
    memset(next_of, 0, sizeof(next_of));
    for (int i = 0; i < POSTERS; i++) {
        who[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, post_all, &who[i]), 0);
    }
    loop_run(loop);
    for (int i = 0; i < POSTERS; i++) pthread_join(t[i], NULL);
    assert_int_equal(n_got, POSTERS * PER_POSTER);
}

static void *stop_thread(void *arg) {
    loop_stop(arg);
    return NULL;
}

static void stop_from_another_thread(void **state) {
    pthread_t t;
    (void)state;
    assert_int_equal(pthread_create(&t, NULL, stop_thread, loop), 0);
    loop_run(loop);
    pthread_join(t, NULL);
}

/* Posts that never end must not starve descriptors and timers. */
static void post_for_ever(void *arg) {
    bool *go_on = arg;
    if (*go_on)
        assert_int_equal(loop_post(loop, post_for_ever, arg), ERR_OK);
    else
        loop_stop(loop);
}

static void end_it(void *arg) {
    *(bool *)arg = false;
}

static void posts_starve_nobody(void **state) {
    struct loop_timer *t;
    bool go_on = true;
    (void)state;
    assert_int_equal(loop_timer_start(&t, loop, 20, 0, end_it, &go_on), ERR_OK);
    post_for_ever(&go_on);
    loop_run(loop);
    assert_false(go_on);
    loop_timer_stop(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(posts_run_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(pass_end_comes_after_all, setup, teardown),
        cmocka_unit_test_setup_teardown(owned_tasks_keep_the_order, setup, teardown),
        cmocka_unit_test_setup_teardown(stop_before_run, setup, teardown),
        cmocka_unit_test_setup_teardown(destroy_runs_posted, setup, teardown),
        cmocka_unit_test_setup_teardown(periodic_timer, setup, teardown),
        cmocka_unit_test_setup_teardown(timers_fire_by_time, setup, teardown),
        cmocka_unit_test_setup_teardown(alarms_ring_by_time, setup, teardown),
        cmocka_unit_test_setup_teardown(descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(a_crowd_takes_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(one_of_a_crowd_has_one_turn_a_pass, setup, teardown),
        cmocka_unit_test_setup_teardown(signals, setup, teardown),
        cmocka_unit_test_setup_teardown(posts_of_threads_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(stop_from_another_thread, setup, teardown),
        cmocka_unit_test_setup_teardown(posts_starve_nobody, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
