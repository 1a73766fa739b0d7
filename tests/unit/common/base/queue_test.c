/* Goal: every item that went in comes out once, in order; full, closed and late are answers, not
 * waits. Method: both sides of the bound; close while others wait; four writers and two readers at
 * once. */
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
#include <stdatomic.h>
#include "common/base/clock.h"
#include "common/base/queue.h"

static void order_and_bound(void **state) {
    struct queue *q;
    int items[4];
    (void)state;
    assert_int_equal(queue_create(&q, 0), ERR_INVALID);
    assert_int_equal(queue_create(&q, SIZE_MAX / 2), ERR_INVALID);
    assert_int_equal(queue_create(&q, 3), ERR_OK);
    for (int round = 0; round < 5; round++) { /* the ring wraps */
        for (int i = 0; i < 3; i++) assert_int_equal(queue_push(q, &items[i]), ERR_OK);
        assert_int_equal(queue_push(q, &items[3]), ERR_BUSY);
        assert_int_equal(queue_len(q), 3);
        assert_ptr_equal(queue_pop(q), &items[0]);
        assert_int_equal(queue_push(q, &items[3]), ERR_OK);
        assert_ptr_equal(queue_pop(q), &items[1]);
        assert_ptr_equal(queue_pop_wait(q, -1), &items[2]);
        assert_ptr_equal(queue_pop_wait(q, 0), &items[3]);
        assert_null(queue_pop(q));
    }
    queue_destroy(&q);
    assert_null(q);
    queue_destroy(&q);
}

/* Any item can be taken out, wherever the ring stands; the others keep their order. */
static void items_are_removed(void **state) {
    int items[5];
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        for (int gone = 0; gone < 4; gone++) {
            struct queue *q;
            assert_int_equal(queue_create(&q, 4), ERR_OK);
            for (int i = 0; i < turn; i++) { /* the ring begins here */
                assert_int_equal(queue_push(q, &items[4]), ERR_OK);
                assert_ptr_equal(queue_pop(q), &items[4]);
            }
            for (int i = 0; i < 4; i++) assert_int_equal(queue_push(q, &items[i]), ERR_OK);
            assert_false(queue_remove(q, &items[4]));
            assert_true(queue_remove(q, &items[gone]));
            assert_false(queue_remove(q, &items[gone]));
            assert_int_equal(queue_push(q, &items[4]), ERR_OK);
            for (int i = 0; i < 5; i++)
                if (i != gone) assert_ptr_equal(queue_pop(q), &items[i]);
            assert_null(queue_pop(q));
            queue_destroy(&q);
        }
    }
}

static void waits_as_long_as_told(void **state) {
    struct queue *q;
    (void)state;
    assert_int_equal(queue_create(&q, 1), ERR_OK);
    uint64_t start = clock_us();
    assert_null(queue_pop_wait(q, 30));
    assert_true(clock_us() - start >= 30000);
    assert_null(queue_pop_wait(q, 0));
    queue_destroy(&q);
}

static void *wait_for_one(void *arg) {
    return queue_pop_wait(arg, -1);
}

static void close_wakes_and_refuses(void **state) {
    struct queue *q;
    pthread_t t[2];
    void *got;
    int item;
    (void)state;
    assert_int_equal(queue_create(&q, 2), ERR_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, wait_for_one, q), 0);
    assert_false(queue_closed(q));
    queue_close(q);
    assert_true(queue_closed(q));
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &got);
        assert_null(got);
    }
    assert_int_equal(queue_push(q, &item), ERR_STOPPING);
    queue_destroy(&q);

    assert_int_equal(queue_create(&q, 2), ERR_OK);
    assert_int_equal(queue_push(q, &item), ERR_OK);
    queue_close(q);
    assert_ptr_equal(queue_pop_wait(q, -1), &item); /* what was inside is still handed out */
    assert_null(queue_pop_wait(q, -1));
    queue_destroy(&q);
}

enum { WRITERS = 4, PER_WRITER = 5000 };
static char marks[WRITERS * PER_WRITER]; /* an item is the address of its mark */
static atomic_int seen[WRITERS * PER_WRITER];

struct writer {
    struct queue *q;
    int who;
};

static void *write_all(void *arg) {
    struct writer *w = arg;
    for (int i = 0; i < PER_WRITER; i++)
        while (queue_push(w->q, &marks[w->who * PER_WRITER + i]) == ERR_BUSY) sched_yield();
    return NULL;
}

static void *read_all(void *arg) {
    int last[WRITERS] = {-1, -1, -1, -1};
    bool in_order = true;
    char *m;
    while ((m = queue_pop_wait(arg, -1)) != NULL) {
        int at = (int)(m - marks), who = at / PER_WRITER;
        atomic_fetch_add(&seen[at], 1);
        in_order = in_order && at > last[who];
        last[who] = at;
    }
    return in_order ? arg : NULL;
}

static void many_threads(void **state) {
    struct queue *q;
    struct writer w[WRITERS];
    pthread_t wt[WRITERS], rt[2];
    void *in_order;
    (void)state;
    assert_int_equal(queue_create(&q, 16), ERR_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&rt[i], NULL, read_all, q), 0);
    for (int i = 0; i < WRITERS; i++) {
        w[i] = (struct writer){q, i};
        assert_int_equal(pthread_create(&wt[i], NULL, write_all, &w[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(wt[i], NULL);
    queue_close(q);
    for (int i = 0; i < 2; i++) {
        pthread_join(rt[i], &in_order);
        assert_non_null(in_order);
    }
    for (int i = 0; i < WRITERS * PER_WRITER; i++) assert_int_equal(seen[i], 1);
    queue_destroy(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_bound),       cmocka_unit_test(items_are_removed),
        cmocka_unit_test(waits_as_long_as_told), cmocka_unit_test(close_wakes_and_refuses),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
