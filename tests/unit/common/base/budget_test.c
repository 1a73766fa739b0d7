/* Goal: a budget is never exceeded, what is taken comes back, and every refusal is counted and
 * shown. Method: both sides of a limit; threads that take and give at once; the text of the
 * metrics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include "common/base/budget.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

static void both_sides_of_a_limit(void **state) {
    struct budget b;
    (void)state;
    budget_init(&b);
    assert_true(budget_take(&b, BUDGET_BODY_BYTES, UINT64_MAX - 1)); /* no limit yet */
    budget_give(&b, BUDGET_BODY_BYTES, UINT64_MAX - 1);
    budget_limit_set(&b, BUDGET_BODY_BYTES, 10);
    assert_true(budget_take(&b, BUDGET_BODY_BYTES, 10));
    assert_false(budget_take(&b, BUDGET_BODY_BYTES, 1));
    assert_false(budget_take(&b, BUDGET_BODY_BYTES, UINT64_MAX)); /* no wrap */
    assert_int_equal(budget_used(&b, BUDGET_BODY_BYTES), 10);
    assert_int_equal(budget_refusals(&b, BUDGET_BODY_BYTES), 2);
    budget_limit_set(&b, BUDGET_BODY_BYTES, 5); /* below what is in use */
    assert_false(budget_take(&b, BUDGET_BODY_BYTES, 0));
    budget_give(&b, BUDGET_BODY_BYTES, 10);
    assert_true(budget_take(&b, BUDGET_BODY_BYTES, 5));
    assert_true(budget_take(NULL, BUDGET_BODY_BYTES, 5));
    budget_give(NULL, BUDGET_BODY_BYTES, 5);
}

enum { THREADS = 4, TURNS = 20000, LIMIT = 7 };

static void *take_and_give(void *arg) {
    struct budget *b = arg;
    for (int i = 0; i < TURNS; i++) {
        if (!budget_take(b, BUDGET_BODY_BYTES, 3)) continue;
        if (budget_used(b, BUDGET_BODY_BYTES) > LIMIT) return b;
        budget_give(b, BUDGET_BODY_BYTES, 3);
    }
    return NULL;
}

static void threads_never_exceed_it(void **state) {
    struct budget b;
    pthread_t t[THREADS];
    (void)state;
    log_init(LOG_NONE, 2);
    budget_init(&b);
    budget_limit_set(&b, BUDGET_BODY_BYTES, LIMIT);
    for (int i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, take_and_give, &b);
    for (int i = 0; i < THREADS; i++) {
        void *over;
        pthread_join(t[i], &over);
        assert_null(over);
    }
    assert_int_equal(budget_used(&b, BUDGET_BODY_BYTES), 0);
}

static void metrics_show_it(void **state) {
    struct budget b;
    struct metrics *m;
    struct buf out = BUF_INIT;
    (void)state;
    log_init(LOG_NONE, 2);
    budget_init(&b);
    budget_limit_set(&b, BUDGET_BODY_BYTES, 10);
    assert_int_equal(metrics_create(&m), ERR_OK);
    struct budget_metrics *bm = budget_metrics_create(m, &b, "coordinator");
    assert_non_null(bm);
    assert_true(budget_take(&b, BUDGET_BODY_BYTES, 4));
    for (int i = 0; i < 3; i++) assert_false(budget_take(&b, BUDGET_BODY_BYTES, 7));
    budget_metrics_read(bm);
    budget_metrics_read(bm); /* a counter is not counted twice */
    metrics_write(m, &out);
    assert_false(out.failed);
    assert_non_null(strstr(out.data, "coordinator_limit_refused_total{reason=\"body_bytes\"} 3\n"));
    assert_non_null(strstr(out.data, "coordinator_limit_used{reason=\"body_bytes\"} 4\n"));
    assert_non_null(strstr(out.data, "coordinator_limit_max{reason=\"body_bytes\"} 10\n"));
    buf_free(&out);
    metrics_destroy(&m);
    budget_metrics_destroy(&bm);
}

static void defaults_are_sane(void **state) {
    (void)state;
    assert_in_range(budget_bodies_default(), 1 << 20, 256 << 20);
    for (int i = 0; i < BUDGET_COUNT; i++) assert_true(budget_reason(i)[0] != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_of_a_limit),
        cmocka_unit_test(threads_never_exceed_it),
        cmocka_unit_test(metrics_show_it),
        cmocka_unit_test(defaults_are_sane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
