/* Goal: what one client asks for, however much, keeps no other from its share of slots and places;
 * alone it has all. Method: as relay_test.c; clients come from different loopback addresses, which
 * are tenants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/relay_fixture.h"

#define ONE   "{\"prompt\":\"x\",\"max_tokens\":10}"
#define EIGHT "{\"prompt\":\"x\",\"max_tokens\":10,\"n\":8}"
#define PATH  "/v1/completions"

enum { SLOTS = 16 }; /* 8 of each D; res_limit_rate makes 8.8 of them, which is no slot more */

static const char *const A = "127.0.0.1", *const B = "127.0.0.2";

static struct tenant *tenant(const char *ip) {
    char name[TENANT_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "addr-%s", ip);
    return tenants_find(fc.co.relays->tenants, name);
}

static size_t waiting(const char *ip) {
    const struct tenant *t = tenant(ip);
    return t != NULL ? t->n_queued : 0;
}

static uint64_t slots(const char *ip) {
    const struct tenant *t = tenant(ip);
    return t != NULL ? t->slots : 0;
}

static void ask_as(struct client *c, const char *ip, const char *body) {
    fc.client_ip = ip;
    client_ask(c, "POST", PATH, "", body);
}

/* Ends one request: P refuses it, so that P and D are free of it. False: none is at a P. */
static bool end_one(void) {
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < fc.fakes[k].n_held; i++)
            if (fc.fakes[k].held[i].x != NULL) {
                fake_reply(&fc.fakes[k].held[i], 422, "{}");
                return true;
            }
    return false;
}

static bool ends_and_looks(void *arg) {
    (void)end_one();
    return client_done(arg);
}

static void end_all(struct client *c, size_t n) {
    for (size_t i = 0; i < n; i++) {
        run_until(ends_and_looks, &c[i]);
        client_close(&c[i]);
    }
}

static bool counts_are(void *arg) {
    const size_t *want = arg; /* slots of A, waiting of A, slots of B, waiting of B */
    return slots(A) == want[0] && waiting(A) == want[1] && slots(B) == want[2] &&
           waiting(B) == want[3];
}

#define EXPECT(sa, wa, sb, wb)                                                                     \
    do {                                                                                           \
        size_t want[] = {sa, wa, sb, wb};                                                          \
        run_until_at(counts_are, want, #sa " " #wa " " #sb " " #wb, __LINE__);                     \
    } while (0)

/* A has everything and 20 more that wait. What becomes free is B's, until both have half; then they
 * take turns. */
static void late_comer_is_next(void **state) {
    enum { N_A = SLOTS + 20, N_B = 12 };
    struct client c[N_A + N_B];
    (void)state;
    for (int i = 0; i < N_A; i++) ask_as(&c[i], A, ONE);
    EXPECT(SLOTS, 20, 0, 0); /* alone it may have all */
    for (int i = 0; i < N_B; i++) ask_as(&c[N_A + i], B, ONE);
    EXPECT(SLOTS, 20, 0, N_B);
    for (size_t k = 1; k <= SLOTS / 2; k++) {
        assert_true(end_one());
        EXPECT(SLOTS - k, 20, k, N_B - k);
    }
    /* From here on neither has more than its half while the other waits. */
    for (int k = 0; k < 4; k++) {
        assert_true(end_one());
        run_for(10);
        assert_true(slots(A) + slots(B) == SLOTS && slots(A) == SLOTS / 2);
    }
    end_all(c, N_A + N_B);
}

/* Requests for eight sequences take eight slots of a D, so that two fill the cluster. */
static void sequences_are_slots(void **state) {
    struct client c[5];
    (void)state;
    for (int i = 0; i < 4; i++) ask_as(&c[i], A, EIGHT);
    EXPECT(16, 2, 0, 0);
    assert_int_equal(fake_inst(D)->ledger.booked.slots, 8);
    assert_int_equal(fake_inst(P)->ledger.booked.slots, 1);
    ask_as(&c[4], B, ONE);
    EXPECT(16, 2, 0, 1);
    assert_true(end_one()); /* B's one goes, and then there is no room for eight */
    EXPECT(8, 2, 1, 0);
    end_all(c, 5);
}

/* The large request of B waits for its room, and A's small ones do not keep it away for ever. */
static void large_among_small(void **state) {
    enum { N = 40 };
    struct client c[N + 1];
    (void)state;
    for (int i = 0; i < N; i++) ask_as(&c[i], A, ONE);
    EXPECT(SLOTS, N - SLOTS, 0, 0);
    ask_as(&c[N], B, EIGHT);
    EXPECT(SLOTS, N - SLOTS, 0, 1);
    unsigned n = 0;
    while (slots(B) == 0) {
        assert_true(n++ < SLOTS); /* all that ran when it came */
        assert_true(end_one());
        run_for(5);
    }
    assert_int_equal(waiting(A), N - SLOTS);
    end_all(c, N + 1);
}

/* The places are taken by A: its youngest that waits makes room for B, not the other way round. */
static void places(void **state) {
    struct client c[7];
    (void)state;
    fc.co.conf.requests_max = 6;
    fc.co.conf.single_node_requests_max = 1; /* two run */
    for (int i = 0; i < 6; i++) {
        ask_as(&c[i], A, ONE);
        wait_queue(i < 2 ? 0 : (size_t)i - 1);
    }
    EXPECT(2, 4, 0, 0);
    uint64_t refused = budget_refusals(&fc.co.budget, BUDGET_REQUESTS);
    ask_as(&c[6], A, ONE);
    run_until(client_done, &c[6]);
    assert_int_equal(client_status(&c[6]), 429);
    client_close(&c[6]);
    ask_as(&c[6], B, ONE);
    run_until(client_done, &c[5]);
    assert_int_equal(client_status(&c[5]), 429);
    assert_true(client_has(&c[5], "Retry-After: 1"));
    client_close(&c[5]);
    EXPECT(2, 3, 0, 1);
    assert_int_equal(budget_refusals(&fc.co.budget, BUDGET_REQUESTS), refused + 2);
    struct client more[3];
    for (int i = 0; i < 2; i++) ask_as(&more[i], B, ONE);
    EXPECT(2, 1, 0, 3); /* three of each */
    ask_as(&more[2], B, ONE);
    run_until(client_done, &more[2]);
    assert_int_equal(client_status(&more[2]), 429);
    client_close(&more[2]);
    for (int i = 3; i < 5; i++) {
        run_until(client_done, &c[i]);
        assert_int_equal(client_status(&c[i]), 429);
        client_close(&c[i]);
    }
    end_all(&c[6], 1);
    end_all(more, 2);
    end_all(c, 3);
}

/* A bound of its own for what one client may have waiting. */
static void waiting_max(void **state) {
    struct client c[6];
    (void)state;
    fc.co.conf.tenant_waiting_max = 2;
    fc.co.conf.single_node_requests_max = 1;
    for (int i = 0; i < 4; i++) {
        ask_as(&c[i], A, ONE);
        wait_queue(i < 2 ? 0 : (size_t)i - 1);
    }
    ask_as(&c[4], A, ONE);
    run_until(client_done, &c[4]);
    assert_int_equal(client_status(&c[4]), 429);
    client_close(&c[4]);
    ask_as(&c[4], B, ONE);
    EXPECT(2, 2, 0, 1);
    end_all(c, 5);
    assert_int_equal(budget_refusals(&fc.co.budget, BUDGET_TENANT_WAITING), 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(late_comer_is_next), CASE(sequences_are_slots), CASE(large_among_small), CASE(places),
        CASE(waiting_max),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
