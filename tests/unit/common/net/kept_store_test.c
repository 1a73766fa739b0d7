/* Goal: the store of answers keeps its bounds whatever is asked of it, and gives up what it should:
 * of the tenant that holds most, first events, then the oldest; never what runs; nobody finds
 * another owner's; what nobody used goes. Method: each rule by itself; then thousands of random
 * calls, after each of which the sums are counted again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/kept_store.h"

#define ALICE "key-11111111111111111111111111111111"
#define BOB   "key-22222222222222222222222222222222"

struct world {
    struct budget budget;
    struct kept_store *s;
    unsigned n_gone, n_shrunk;
};

static void on_gone(void *arg, const struct kept *k) {
    struct world *w = arg;
    (*(k->n == 0 ? &w->n_gone : &w->n_shrunk))++;
}

static void open_world(struct world *w, uint64_t bytes, size_t count) {
    const struct kept_limits l = {.bytes_max = bytes, .count_max = count, .idle_ms = 1000};
    memset(w, 0, sizeof(*w));
    budget_init(&w->budget);
    assert_int_equal(kept_store_create(&w->s, &l, &w->budget), ERR_OK);
    kept_store_watch(w->s, on_gone, w);
}

static void close_world(struct world *w) {
    kept_store_destroy(&w->s);
    assert_int_equal(budget_used(&w->budget, BUDGET_KEPT), 0);
    assert_int_equal(budget_used(&w->budget, BUDGET_KEPT_BYTES), 0);
}

static struct kept *run_one(struct world *w, const char *id, const char *tenant, size_t n_text,
                            uint64_t now) {
    char *text = calloc(1, n_text + 1);
    memset(text, 'x', n_text);
    struct kept *k = kept_add(w->s, id, tenant, "", "\"i\"", 3, now);
    if (k != NULL && !kept_append(w->s, k, text, n_text)) {
        kept_remove(w->s, k);
        k = NULL;
    }
    free(text);
    return k;
}

static struct kept *put(struct world *w, const char *id, const char *tenant, size_t n_text,
                        bool events, uint64_t now) {
    struct kept *k = run_one(w, id, tenant, n_text, now);
    if (k == NULL) return NULL;
    k->has_events = events;
    assert_true(kept_finish(w->s, k, events ? n_text / 2 : 0, events ? n_text / 4 : n_text,
                            events ? n_text : 0, now));
    return k;
}

static void owners(void **state) {
    struct world w;
    (void)state;
    open_world(&w, 1 << 20, 10);
    put(&w, "resp_1", ALICE, 10, false, 0);
    put(&w, "resp_2", "addr-10.0.0.1", 10, false, 0);
    assert_non_null(kept_find(w.s, ALICE, "resp_1"));
    assert_null(kept_find(w.s, BOB, "resp_1"));
    assert_null(kept_find(w.s, "addr-10.0.0.1", "resp_1"));
    assert_null(kept_find(w.s, ALICE, "resp_2"));
    assert_non_null(kept_find(w.s, "addr-10.0.0.9", "resp_2")); /* without keys all are one */
    assert_null(kept_add(w.s, "resp_1", BOB, "", "", 0, 0));    /* taken */
    kept_remove(w.s, kept_find(w.s, ALICE, "resp_1"));
    assert_null(kept_find(w.s, ALICE, "resp_1"));
    assert_int_equal(w.n_gone, 1);
    close_world(&w);
}

static void number(void **state) {
    struct world w;
    (void)state;
    open_world(&w, 1 << 20, 4);
    put(&w, "a1", ALICE, 10, false, 1);
    put(&w, "b1", BOB, 10, false, 2);
    put(&w, "a2", ALICE, 10, false, 3);
    put(&w, "a3", ALICE, 10, false, 4);
    kept_use(kept_find(w.s, ALICE, "a1"), 5); /* then a2 is the oldest */
    put(&w, "b2", BOB, 10, false, 6);
    assert_null(kept_find(w.s, ALICE, "a2"));
    assert_non_null(kept_find(w.s, ALICE, "a1"));
    assert_non_null(kept_find(w.s, BOB, "b1"));
    assert_int_equal(kept_count(w.s), 4);
    close_world(&w);
    open_world(&w, 1 << 20, 0);
    assert_null(kept_add(w.s, "a1", ALICE, "", "", 0, 0));
    close_world(&w);
}

static void bytes(void **state) {
    struct world w;
    (void)state;
    open_world(&w, 64 << 10, 100);
    put(&w, "b1", BOB, 4000, false, 0);
    char id[8];
    for (int i = 0; i < 7; i++) {
        snprintf(id, sizeof(id), "a%d", i);
        assert_non_null(put(&w, id, ALICE, 7000, true, 1));
    }
    assert_int_equal(kept_count(w.s), 8);
    /* events give way first, and what they led to stays */
    for (int i = 7; i < 14; i++) {
        snprintf(id, sizeof(id), "a%d", i);
        assert_non_null(put(&w, id, ALICE, 7000, true, 2));
    }
    const struct kept *k = kept_find(w.s, ALICE, "a0");
    assert_non_null(k);
    assert_false(k->has_events);
    assert_true(k->at == 0 && k->n == 1750 && k->text.len == 1750);
    assert_true(w.n_shrunk >= 7 && w.n_gone == 0);
    for (int i = 14; i < 60; i++) {
        snprintf(id, sizeof(id), "a%d", i);
        assert_non_null(put(&w, id, ALICE, 7000, i % 2 == 0, 3));
        assert_true(budget_used(&w.budget, BUDGET_KEPT_BYTES) <= 64 << 10);
    }
    assert_null(kept_find(w.s, ALICE, "a0"));
    assert_non_null(kept_find(w.s, BOB, "b1")); /* who holds little loses nothing */
    close_world(&w);
}

static void what_runs_stays(void **state) {
    struct world w;
    char id[8];
    int n = 0;
    (void)state;
    open_world(&w, 64 << 10, 100);
    while (n < 50) {
        snprintf(id, sizeof(id), "a%d", n);
        if (run_one(&w, id, ALICE, 7000, 0) == NULL) break;
        n++;
    }
    assert_true(n >= 4 && n < 10);
    assert_true(budget_refusals(&w.budget, BUDGET_KEPT_BYTES) > 0);
    assert_int_equal(kept_count(w.s), n);
    kept_expire(w.s, 100000);
    assert_int_equal(kept_count(w.s), n);
    close_world(&w);
}

static void one_too_large(void **state) {
    static const char event[] = "event: e\ndata: {\"response\":{}}\n\n";
    struct world w;
    (void)state;
    open_world(&w, 64 << 10, 100);
    assert_null(run_one(&w, "a1", ALICE, 9000, 0)); /* an eighth of all */
    /* of a stream the last event stays */
    struct kept *k = kept_add(w.s, "a2", ALICE, "", "", 0, 0);
    k->has_events = true;
    for (int i = 0; i < 1000; i++) assert_true(kept_append(w.s, k, event, sizeof(event) - 1));
    assert_false(k->has_events);
    assert_true(k->text.len <= 8192);
    assert_memory_equal(k->text.data + k->text.len - (sizeof(event) - 1), event, sizeof(event) - 1);
    close_world(&w);
}

static void time_passes(void **state) {
    struct world w;
    (void)state;
    open_world(&w, 1 << 20, 10);
    put(&w, "a1", ALICE, 10, true, 0);
    put(&w, "a2", ALICE, 10, false, 500);
    put(&w, "b1", BOB, 10, false, 10);
    kept_use(kept_find(w.s, ALICE, "a1"), 900);
    kept_expire(w.s, 1500);
    assert_null(kept_find(w.s, ALICE, "a2"));
    assert_null(kept_find(w.s, BOB, "b1"));
    assert_non_null(kept_find(w.s, ALICE, "a1"));
    kept_expire(w.s, 1900);
    assert_int_equal(kept_count(w.s), 0);
    close_world(&w);
}

static uint32_t rng_state = 7;
static uint32_t pick(uint32_t n) {
    rng_state = rng_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)rng_state * n) >> 32);
}

static void anything(void **state) {
    static const char *const tenants[] = {ALICE, BOB, "addr-1", "addr-2"};
    enum { IDS = 60 };
    struct world w;
    char id[8];
    (void)state;
    open_world(&w, 64 << 10, 24);
    for (uint64_t now = 0; now < 20000; now++) {
        const char *tenant = tenants[pick(4)];
        snprintf(id, sizeof(id), "r%u", pick(IDS));
        struct kept *k = kept_find(w.s, tenant, id);
        if (k == NULL) {
            k = pick(4) == 0 ? run_one(&w, id, tenant, pick(3000), now)
                             : put(&w, id, tenant, 8 + pick(3000), pick(2) == 0, now);
        } else if (k->runs && pick(2) == 0) {
            const size_t n = k->text.len;
            k->has_events = pick(2) == 0 && n > 0;
            kept_finish(w.s, k, 0, n, k->has_events ? n : 0, now);
        } else if (pick(3) == 0) {
            kept_remove(w.s, k);
        } else {
            kept_use(k, now);
        }
        if (pick(50) == 0) kept_expire(w.s, now);
        uint64_t sum = 0;
        size_t n = 0;
        for (unsigned t = 0; t < 3; t++) /* addr-1 and addr-2 are one owner */
            for (unsigned i = 0; i < IDS; i++) {
                snprintf(id, sizeof(id), "r%u", i);
                const struct kept *there = kept_find(w.s, tenants[t], id);
                if (there == NULL) continue;
                sum += there->bytes;
                n++;
                assert_int_equal(there->bytes, sizeof(*there) + there->input.cap + there->text.cap);
                assert_true(there->at + there->n <= there->text.len);
            }
        assert_int_equal(n, kept_count(w.s));
        assert_int_equal(sum, budget_used(&w.budget, BUDGET_KEPT_BYTES));
        assert_true(n <= 24);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners),        cmocka_unit_test(number),
        cmocka_unit_test(bytes),         cmocka_unit_test(what_runs_stays),
        cmocka_unit_test(one_too_large), cmocka_unit_test(time_passes),
        cmocka_unit_test(anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
