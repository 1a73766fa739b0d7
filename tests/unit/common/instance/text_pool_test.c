/* Goal: work runs on the pool and its end on the loop, each exactly once; a full queue refuses and
 * runs nothing; tenants take turns, each in its own order, and none shuts the others out; closing
 * at any moment, even with posts still on the loop, runs what is left once and leaves nothing
 * behind. Method: real threads and a real loop; a gate holds workers to make the queue full; what a
 * single thread did is written down in order; many rounds of closing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/clock.h"
#include "common/instance/text_pool.h"
#include "tests/unit/pace.h"

static struct {
    struct loop *loop;
    struct text_pool *pool;
    pthread_t loop_thread;
    pthread_mutex_t gate;
    atomic_int n_begun, n_worked;
    int n_done, n_expected;
    bool wrong_thread;
} t;

struct job {
    int n_worked, n_done;
    int at; /* how many jobs were worked before it */
};

static void work(void *arg) {
    struct job *j = arg;
    atomic_fetch_add(&t.n_begun, 1);
    pthread_mutex_lock(&t.gate);
    pthread_mutex_unlock(&t.gate);
    j->n_worked++;
    j->at = atomic_fetch_add(&t.n_worked, 1);
}

static void done(void *arg) {
    struct job *j = arg;
    j->n_done++;
    if (!pthread_equal(pthread_self(), t.loop_thread)) t.wrong_thread = true;
    if (++t.n_done == t.n_expected) loop_stop(t.loop);
}

static int set_up(void **state) {
    (void)state;
    t.n_begun = t.n_worked = 0;
    t.n_done = t.n_expected = 0;
    t.wrong_thread = false;
    t.loop_thread = pthread_self();
    pthread_mutex_init(&t.gate, NULL);
    return loop_create(&t.loop) == ERR_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    loop_destroy(&t.loop);
    pthread_mutex_destroy(&t.gate);
    return t.wrong_thread ? -1 : 0;
}

static void bounds(void **state) {
    (void)state;
    assert_int_equal(text_pool_open(&t.pool, t.loop, 1, 0), ERR_INVALID);
    assert_int_equal(text_pool_open(&t.pool, t.loop, 0, 4), ERR_INVALID);
    assert_null(t.pool);
    assert_int_equal(text_pool_open(&t.pool, t.loop, 65, 4), ERR_INVALID);
    assert_int_equal(text_pool_open(&t.pool, t.loop, 64, 4), ERR_OK);
    text_pool_close(&t.pool);
    assert_null(t.pool);
    text_pool_close(&t.pool);
}

static void each_once(void **state) {
    enum { N = 500 };
    struct job *jobs = calloc(N, sizeof(*jobs));
    (void)state;
    assert_int_equal(text_pool_open(&t.pool, t.loop, 3, N), ERR_OK);
    t.n_expected = N;
    for (int i = 0; i < N; i++)
        assert_int_equal(text_pool_run(t.pool, "", work, done, &jobs[i]), ERR_OK);
    loop_run(t.loop);
    for (int i = 0; i < N; i++) assert_true(jobs[i].n_worked == 1 && jobs[i].n_done == 1);
    text_pool_close(&t.pool);
    free(jobs);
}

static void full_queue(void **state) {
    struct job jobs[4] = {{0}};
    uint64_t until = clock_ms() + pace_ms(10000);
    (void)state;
    pthread_mutex_lock(&t.gate);
    assert_int_equal(text_pool_open(&t.pool, t.loop, 1, 2), ERR_OK);
    assert_int_equal(text_pool_run(t.pool, "", work, done, &jobs[0]), ERR_OK);
    while (atomic_load(&t.n_begun) == 0 && clock_ms() < until)
        sched_yield(); /* it has left the queue */
    assert_int_equal(t.n_begun, 1);
    assert_int_equal(text_pool_run(t.pool, "", work, done, &jobs[1]), ERR_OK);
    assert_int_equal(text_pool_run(t.pool, "", work, done, &jobs[2]), ERR_OK);
    assert_int_equal(text_pool_run(t.pool, "", work, done, &jobs[3]), ERR_BUSY);
    pthread_mutex_unlock(&t.gate);
    t.n_expected = 3;
    loop_run(t.loop);
    assert_int_equal(text_pool_run(t.pool, "", work, done, &jobs[3]), ERR_OK);
    text_pool_close(&t.pool);
    for (int i = 0; i < 4; i++) assert_true(jobs[i].n_worked == 1 && jobs[i].n_done == 1);
}

/* A job that waits leaves at once and neither of its functions runs; its place is free. One at work
 * goes on. */
static void dropped(void **state) {
    struct job jobs[4] = {{0}};
    struct pool_job *handle[4];
    uint64_t until = clock_ms() + pace_ms(10000);
    (void)state;
    pthread_mutex_lock(&t.gate);
    assert_int_equal(text_pool_open(&t.pool, t.loop, 1, 2), ERR_OK);
    assert_int_equal(text_pool_start(t.pool, "", &handle[0], work, done, &jobs[0]), ERR_OK);
    while (atomic_load(&t.n_begun) == 0 && clock_ms() < until) sched_yield();
    for (int i = 1; i < 3; i++)
        assert_int_equal(text_pool_start(t.pool, "", &handle[i], work, done, &jobs[i]), ERR_OK);
    assert_int_equal(text_pool_start(t.pool, "", &handle[3], work, done, &jobs[3]), ERR_BUSY);
    assert_null(handle[3]);
    assert_false(text_pool_drop(t.pool, handle[0]));
    assert_true(text_pool_drop(t.pool, handle[1]));
    assert_int_equal(text_pool_start(t.pool, "", &handle[3], work, done, &jobs[3]), ERR_OK);
    pthread_mutex_unlock(&t.gate);
    t.n_expected = 3;
    loop_run(t.loop);
    text_pool_close(&t.pool);
    for (int i = 0; i < 4; i++)
        assert_true(jobs[i].n_worked == (i != 1) && jobs[i].n_done == (i != 1));
}

/* A pool of one thread, which is held at the gate by a job of nobody's. */
static void open_held(struct job *gate, size_t n_jobs_max) {
    uint64_t until = clock_ms() + pace_ms(10000);
    pthread_mutex_lock(&t.gate);
    assert_int_equal(text_pool_open(&t.pool, t.loop, 1, n_jobs_max), ERR_OK);
    assert_int_equal(text_pool_run(t.pool, "", work, done, gate), ERR_OK);
    while (atomic_load(&t.n_begun) == 0 && clock_ms() < until) sched_yield();
    assert_int_equal(t.n_begun, 1);
}

/* The gate opens; n jobs with the gate's come to their end. */
static void let_go(int n) {
    pthread_mutex_unlock(&t.gate);
    t.n_expected = n;
    loop_run(t.loop);
    text_pool_close(&t.pool);
}

static enum err run_as(const char *tenant, struct job *j) {
    return text_pool_run(t.pool, tenant, work, done, j);
}

/* Of three tenants, one with a thousand jobs from before, each gets every third turn, as long as it
 * has jobs. */
static void tenants_take_turns(void **state) {
    enum { MANY = 1000 };
    struct job gate = {0}, *many = calloc(MANY, sizeof(*many)), b[3] = {{0}}, c[2] = {{0}};
    (void)state;
    open_held(&gate, MANY + 5);
    for (int i = 0; i < MANY; i++) assert_int_equal(run_as("addr-10.0.0.1", &many[i]), ERR_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(run_as("key-b", &b[i]), ERR_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(run_as("key-c", &c[i]), ERR_OK);
    let_go(MANY + 6);
    assert_int_equal(gate.at, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(b[i].at, 2 + 3 * i);
    for (int i = 0; i < 2; i++) assert_int_equal(c[i].at, 3 + 3 * i);
    for (int i = 0; i < 3; i++) assert_int_equal(many[i].at, 1 + 3 * i);
    for (int i = 3; i < MANY; i++) assert_int_equal(many[i].at, 6 + i);
    free(many);
}

/* A tenant whose only job leaves loses its turn and nobody else's; one whose first leaves keeps it.
 */
static void a_turn_is_dropped(void **state) {
    struct job gate = {0}, jobs[6] = {{0}};
    static const char *const tenants[6] = {"a", "a", "b", "c", "c", "d"};
    struct pool_job *handle[6];
    (void)state;
    open_held(&gate, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(text_pool_start(t.pool, tenants[i], &handle[i], work, done, &jobs[i]),
                         ERR_OK);
    assert_true(text_pool_drop(t.pool, handle[0]));
    assert_true(text_pool_drop(t.pool, handle[2]));
    assert_true(text_pool_drop(t.pool, handle[4]));
    let_go(4);
    assert_int_equal(jobs[1].at, 1);
    assert_int_equal(jobs[3].at, 2);
    assert_int_equal(jobs[5].at, 3);
    assert_int_equal(jobs[0].n_worked + jobs[2].n_worked + jobs[4].n_worked, 0);
}

/* Alone a tenant has all places. Others get their part of as many more, and no more than those. */
static void a_place_for_each(void **state) {
    static const struct {
        const char *tenant;
        int n; /* places it gets */
    } rows[] = {{"a", 4}, {"b", 2}, {"c", 1}, {"d", 1}, {"e", 0}};
    enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };
    struct job gate = {0}, jobs[8] = {{0}}, refused = {0};
    int n = 0;
    (void)state;
    open_held(&gate, 4);
    for (int r = 0; r < N_ROWS; r++) {
        for (int i = 0; i < rows[r].n; i++)
            assert_int_equal(run_as(rows[r].tenant, &jobs[n++]), ERR_OK);
        assert_int_equal(run_as(rows[r].tenant, &refused), ERR_BUSY);
        assert_int_equal(run_as("a", &refused), ERR_BUSY);
    }
    let_go(9);
    static const int at[8] = {1, 5, 7, 8, 2, 6, 3, 4}; /* a a a a b b c d */
    for (int i = 0; i < 8; i++) assert_int_equal(jobs[i].at, at[i]);
    assert_int_equal(refused.n_worked + refused.n_done, 0);
}

/* Ends while jobs wait, run, or have ended without the loop having seen them; the posts they left
 * on the loop run after the pool is gone. */
static void close_at_any_moment(void **state) {
    enum { N = 20, ROUNDS = 200 };
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct job jobs[N] = {{0}};
        assert_int_equal(text_pool_open(&t.pool, t.loop, 2, N), ERR_OK);
        t.n_worked = 0;
        for (int i = 0; i < N; i++)
            assert_int_equal(run_as((const char *[]){"a", "b", "c"}[i % 3], &jobs[i]), ERR_OK);
        while (atomic_load(&t.n_worked) < round % (N + 1)) sched_yield();
        if (round % 3 == 0) { /* one pass of the loop in between */
            loop_stop(t.loop);
            loop_run(t.loop);
        }
        text_pool_close(&t.pool);
        for (int i = 0; i < N; i++) assert_true(jobs[i].n_worked == 1 && jobs[i].n_done == 1);
        if (round % 2 == 0) { /* what was posted finds no pool */
            loop_stop(t.loop);
            loop_run(t.loop);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bounds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_queue, set_up, tear_down),
        cmocka_unit_test_setup_teardown(dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tenants_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_turn_is_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_place_for_each, set_up, tear_down),
        cmocka_unit_test_setup_teardown(close_at_any_moment, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
