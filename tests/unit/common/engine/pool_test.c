/* Goal: every item of a region runs exactly once, whatever the threads do, and a region is over
 * when pool_run() returns. Method: counters per item over many regions of many sizes, sums written
 * without atomics by whoever has the item (so a thread sanitizer sees a missing hand-over), pools
 * made and destroyed while their workers spin or sleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/base/clock.h"
#include "common/engine/pool.h"

enum { ITEMS_MAX = 600 };

struct region {
    int runs[ITEMS_MAX];
    int threads_max;
    uint64_t spin_us;
};

static void count_item(void *arg, int item, int thread) {
    struct region *r = arg;
    if (item < 0 || item >= ITEMS_MAX || thread < 0 || thread >= r->threads_max) abort();
    r->runs[item]++;
    uint64_t until = r->spin_us > 0 ? clock_us() + r->spin_us : 0;
    while (until > 0 && clock_us() < until) {}
}

static void check_region(struct pool *p, struct region *r, int n) {
    memset(r->runs, 0, sizeof(r->runs));
    pool_run(p, count_item, r, n);
    for (int i = 0; i < ITEMS_MAX; i++) assert_int_equal(r->runs[i], i < n);
}

static void every_item_runs_once(void **state) {
    struct region r = {0};
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_create(&p, threads, NULL, NULL), ERR_OK);
        assert_int_equal(pool_threads(p), threads);
        r.threads_max = threads;
        for (int n = 0; n <= ITEMS_MAX; n += n < 20 ? 1 : 29) check_region(p, &r, n);
        for (int i = 0; i < 3000; i++) check_region(p, &r, i % 9);
        pool_destroy(&p);
        assert_null(p);
    }
}

/* Regions far enough apart that the workers sleep in between, and items long enough that the caller
 * sleeps at the end. */
static void sleepers_are_woken(void **state) {
    struct region r = {.threads_max = 3, .spin_us = 300};
    struct region idle = {.threads_max = 3, .spin_us = 400};
    struct pool *p = NULL;
    (void)state;
    assert_int_equal(pool_create(&p, 3, NULL, NULL), ERR_OK);
    for (int i = 0; i < 40; i++) {
        check_region(p, &r, 4);
        count_item(&idle, 0, 0);
    }
    pool_destroy(&p);
}

struct sum {
    uint64_t *parts;
};

static void sum_item(void *arg, int item, int thread) {
    struct sum *s = arg;
    (void)thread;
    s->parts[item % 64] +=
        (uint64_t)item; /* 64 items in flight never share a part: each part is a region's own */
}

static void results_are_there_when_it_returns(void **state) {
    uint64_t parts[64];
    struct sum s = {parts};
    struct pool *p = NULL;
    (void)state;
    assert_int_equal(pool_create(&p, 2, NULL, NULL), ERR_OK);
    for (int round = 0; round < 2000; round++) {
        uint64_t total = 0;
        memset(parts, 0, sizeof(parts));
        pool_run(p, sum_item, &s, 64);
        for (int i = 0; i < 64; i++) total += parts[i];
        assert_int_equal(total, 64 * 63 / 2);
    }
    pool_destroy(&p);
}

static void touch_item(void *arg, int item, int thread) {
    unsigned char *seen = arg;
    (void)thread;
    seen[item]++;
}

/* More items than one region's word can hold. */
struct watched {
    struct pool *p;
    uint64_t before[8];
};

static void look_item(void *arg, int item, int thread) {
    struct watched *w = arg;
    (void)thread;
    w->before[item] = pool_progress(w->p);
}

/* Whoever looks from outside sees each item, with one thread as with several. */
static void progress_is_seen(void **state) {
    (void)state;
    struct errbuf eb = {0};
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct watched w = {0};
        assert_int_equal(pool_create(&w.p, n_threads, NULL, &eb), ERR_OK);
        for (int n = 1; n <= 8; n++) {
            const uint64_t before = pool_progress(w.p);
            pool_run(w.p, look_item, &w, n);
            assert_true(pool_progress(w.p) != before);
        }
        if (n_threads == 1)
            for (int i = 1; i < 8; i++) assert_true(w.before[i] != w.before[i - 1]);
        pool_destroy(&w.p);
    }
}

static void a_million_items(void **state) {
    enum { N = 1200000 };
    unsigned char *seen = calloc(N, 1);
    struct pool *p = NULL;
    (void)state;
    assert_non_null(seen);
    assert_int_equal(pool_create(&p, 2, NULL, NULL), ERR_OK);
    pool_run(p, touch_item, seen, N);
    for (int i = 0; i < N; i++) {
        if (seen[i] != 1) fail_msg("item %d ran %d times", i, seen[i]);
    }
    pool_destroy(&p);
    free(seen);
}

static void unused_pools_end(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct pool *p = NULL;
        assert_int_equal(pool_create(&p, i % 5, NULL, NULL), ERR_OK);
        assert_true(pool_threads(p) >= 1);
        pool_destroy(&p);
    }
    struct pool *none = NULL;
    pool_destroy(&none);
}

static void bad_arguments_are_refused(void **state) {
    struct pool *p = NULL;
    struct errbuf eb;
    const int no_such_core[] = {0, 1 << 20};
    (void)state;
    assert_int_equal(pool_create(&p, -1, NULL, &eb), ERR_BAD_CONFIG);
    assert_int_equal(pool_create(&p, POOL_THREADS_MAX + 1, NULL, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "1024"));
    assert_int_equal(pool_create(&p, 2, no_such_core, &eb), ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "core 1048576 cannot be used"));
    assert_null(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(results_are_there_when_it_returns),
        cmocka_unit_test(progress_is_seen),
        cmocka_unit_test(a_million_items),
        cmocka_unit_test(unused_pools_end),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
