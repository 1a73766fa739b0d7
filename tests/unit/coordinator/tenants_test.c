/* Goal: a tenant is found by its name as long as it has requests or owes turns, never longer than
 * the bound; those that wait come in their order whatever happens to them meanwhile. Method: 20,000
 * random steps against a plain array; the bounds by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/tenants.h"

enum { N = 40, STEPS = 20000 };

static uint64_t rng = 2862933555777941757u;

static unsigned rnd(unsigned n) { /* xorshift64*; 0..n-1 */
    rng ^= rng >> 12;
    rng ^= rng << 25;
    rng ^= rng >> 27;
    return (unsigned)((rng * 2685821657736338717u) >> 33) % n;
}

static void random_steps(void **state) {
    struct tenants *ts = tenants_create();
    struct tenant *there[N] = {NULL};
    bool waits[N] = {false};
    (void)state;
    assert_non_null(ts);
    for (int step = 0; step < STEPS; step++) {
        size_t i = rnd(N), n_there = 0, n_wait = 0;
        char name[16];
        snprintf(name, sizeof(name), "key-%zu", i);
        switch (rnd(6)) {
        case 0:
        case 1:
            there[i] = tenants_join(ts, name, 1 + (double)(i % 3));
            assert_string_equal(there[i]->name, name);
            break;
        case 2:
            if (there[i] == NULL) break;
            if (there[i]->n_requests == 1) waits[i] = false;
            tenants_leave(ts, there[i]);
            if (tenants_find(ts, name) == NULL || there[i]->n_requests == 0) there[i] = NULL;
            break;
        case 3:
            if (there[i] == NULL) break;
            tenants_wait(ts, there[i]);
            waits[i] = true;
            break;
        case 4:
            if (there[i] == NULL) break;
            if (rnd(2) == 0)
                tenants_charge(ts, there[i], rnd(1000));
            else
                tenants_correct(ts, there[i], -(double)rnd(1000));
            break;
        default: {
            struct tenant *t = tenants_next(ts), *least = NULL;
            for (size_t k = 0; k < N; k++)
                if (waits[k] && (least == NULL || there[k]->flow.end < least->flow.end))
                    least = there[k];
            if (least == NULL) {
                assert_null(t);
                break;
            }
            assert_non_null(t);
            assert_true(t->flow.end <= least->flow.end);
            for (size_t k = 0; k < N; k++)
                if (there[k] == t) waits[k] = false;
        }
        }
        for (size_t k = 0; k < N; k++) {
            n_there += there[k] != NULL;
            n_wait += waits[k];
        }
        assert_int_equal(tenants_waiting(ts), n_wait);
        assert_int_equal(tenants_count(ts), n_there);
    }
    tenants_destroy(&ts);
    assert_null(ts);
}

/* Who owes turns is remembered, until they are past or too many owe. */
static void debts(void **state) {
    struct tenants *ts = tenants_create();
    char name[32];
    (void)state;
    struct tenant *t = tenants_join(ts, "debtor", 1);
    tenants_charge(ts, t, 1000);
    tenants_leave(ts, t);
    assert_ptr_equal(tenants_find(ts, "debtor"), t);
    assert_int_equal(tenants_count(ts), 0);
    assert_ptr_equal(tenants_join(ts, "debtor", 1), t);
    assert_true(t->flow.end >= 1000);
    struct tenant *other = tenants_join(ts, "other", 1);
    for (int i = 0; i < 3; i++) tenants_charge(ts, other, 600); /* starts at 0, 600, 1200 */
    tenants_leave(ts, t);
    assert_null(tenants_find(ts, "debtor"));
    for (int i = 0; i < TENANTS_IDLE_MAX + 10; i++) {
        snprintf(name, sizeof(name), "many-%d", i);
        struct tenant *m = tenants_join(ts, name, 1);
        tenants_charge(ts, m, 1e9);
        tenants_leave(ts, m);
    }
    assert_null(tenants_find(ts, "many-9"));
    assert_non_null(tenants_find(ts, "many-10"));
    tenants_destroy(&ts);
}

static void shares(void **state) {
    struct tenants *ts = tenants_create();
    (void)state;
    struct tenant *a = tenants_join(ts, "a", 3), *b = tenants_join(ts, "b", 1);
    a->slots = 24;
    b->slots = 7;
    assert_false(tenants_within_share(ts, a, 1, 32));
    assert_true(tenants_within_share(ts, b, 1, 32));
    assert_false(tenants_within_share(ts, b, 2, 32));
    tenants_leave(ts, b); /* it shares with nobody now */
    assert_true(tenants_within_share(ts, a, 8, 32));
    assert_null(tenants_largest(ts));
    b = tenants_join(ts, "b", 1);
    a = tenants_join(ts, "a", 3);
    a->n_queued = b->n_queued = 1;
    assert_ptr_equal(tenants_largest(ts), b); /* 2 over 3 is less than 1 over 1 */
    for (int i = 0; i < 2; i++) (void)tenants_join(ts, "a", 3);
    assert_ptr_equal(tenants_largest(ts), a);
    tenants_destroy(&ts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_steps),
        cmocka_unit_test(debts),
        cmocka_unit_test(shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
