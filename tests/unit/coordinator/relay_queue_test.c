/* Goal: who waits for a pair is served in its turn: by arrival, length or priority, then by
 * deadline; booked demand never exceeds what the instances have, and a deadline that passes is a
 * 408 that is nobody's fault. Method: as relay_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/relay_fixture.h"

static void queue_order(void **state) {
    static const int order_of[3][3] = {{0, 1, 2}, {1, 2, 0}, {0, 2, 1}}; /* by length 30, 10, 20 */
    static const size_t length[3] = {30, 10, 20};
    (void)state;
    for (int type = 1; type <= 3; type++) {
        struct client c[3], first;
        before(NULL);
        fc.co.conf.reordering_type = type;
        fc.co.conf.single_node_requests_max = 1;
        fake_inst(P2)->ledger.tasks = 1000; /* one place only */
        (void)ask(&first, "/generate", "{\"inputs\":\"x\"}");
        for (int i = 0; i < 3; i++) {
            char body[64];
            snprintf(body, sizeof(body), "{\"inputs\":\"%0*d\"}", (int)length[i], i);
            client_ask(&c[i], "POST", "/generate", "", body);
            wait_queue((size_t)i + 1);
            run_for(3); /* arrival has milliseconds */
        }
        fake_reply(&P->held[0], 422, "{}");
        client_expect(&first, 422, "{}");
        client_close(&first);
        for (int k = 0; k < 3; k++) {
            size_t n = (size_t)k + 2;
            run_until(holds_n, &n);
            assert_int_equal(P->last_body[11 + length[order_of[type - 1][k]] - 1] - '0',
                             order_of[type - 1][k]);
            fake_reply(&P->held[n - 1], 422, "{}");
        }
        for (int i = 0; i < 3; i++) {
            client_expect(&c[i], 422, "{}");
            client_close(&c[i]);
        }
        fake_inst(P2)->ledger.tasks = 0;
        check_idle();
    }
}

/* Whoever came last is first: by priority, then by deadline. */
static void queue_by_priority_and_deadline(void **state) {
    static const char *const bodies[] = {"{\"inputs\":\"0\"}", "{\"inputs\":\"1\"}",
                                         "{\"inputs\":\"2\",\"parameters\":{\"priority\":5}}",
                                         "{\"inputs\":\"3\",\"parameters\":{\"priority\":2}}",
                                         "{\"inputs\":\"4\",\"priority\":1}"};
    static const char *const heads[] = {"", "x-baton-deadline-ms: 90000\r\n",
                                        "x-baton-deadline-ms: 60000\r\n", "", ""};
    enum { N = 5 };
    struct client c[N], first;
    (void)state;
    before(NULL);
    fc.co.conf.single_node_requests_max = 1;
    fake_inst(P2)->ledger.tasks = 1000; /* one place only */
    (void)ask(&first, "/generate", "{\"inputs\":\"x\"}");
    for (size_t i = 0; i < N; i++) {
        client_ask(&c[i], "POST", "/generate", heads[i], bodies[i]);
        wait_queue(i + 1);
    }
    fake_reply(&P->held[0], 422, "{}");
    client_expect(&first, 422, "{}");
    client_close(&first);
    for (size_t k = 0; k < N; k++) {
        size_t n = k + 2;
        run_until(holds_n, &n);
        assert_int_equal(P->last_body[11] - '0', N - 1 - k);
        fake_reply(&P->held[n - 1], 422, "{}");
    }
    for (size_t i = 0; i < N; i++) {
        client_expect(&c[i], 422, "{}");
        client_close(&c[i]);
    }
    fake_inst(P2)->ledger.tasks = 0;
    check_idle();
}

static void a_deadline_passes(void **state) {
    static const char *const bad[] = {"0", "3600001", "-1", "1.5", "x", "99999999"};
    struct client c;
    (void)state;
    before(NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char head[64], want[192];
        snprintf(head, sizeof(head), "x-baton-deadline-ms: %s\r\n", bad[i]);
        client_ask(&c, "POST", "/generate", head, "{\"inputs\":\"x\"}");
        snprintf(want, sizeof(want),
                 "{\"error\":\"x-baton-deadline-ms must be an integer from 1 to 3600000, got "
                 "\\\"%s\\\"\",\"error_type\":\"Bad Request\"}",
                 bad[i]);
        client_expect(&c, 400, want);
        client_close(&c);
    }
    client_ask(&c, "POST", "/generate", "x-baton-deadline-ms: 150\r\n", "{\"inputs\":\"x\"}");
    client_expect(&c, 408,
                  "{\"error\":\"Request first token timeout\",\"error_type\":\"Request Timeout\"}");
    client_close(&c);
    for (struct inst *in = fc.co.reg.first; in != NULL; in = in->next)
        assert_int_equal(in->breaker.outcomes, 0); /* nobody's fault */
    check_idle();
}

static bool both_hold_eight(void *arg) {
    (void)arg;
    return P->n_held == 8 && P2->n_held == 8;
}

/* Booked demand is bounded by what the instances have; the rest waits and is served in turn. */
static void room(void **state) {
    enum { N = 24 };
    struct client c[N];
    (void)state;
    for (int i = 0; i < N; i++) client_ask(&c[i], "POST", "/generate", "", "{\"inputs\":\"x\"}");
    wait_queue(N - 16); /* slots 8, rate 1.1: 8.8 of each */
    run_until(both_hold_eight, NULL);
    run_for(100);
    assert_int_equal(P->n_held + P2->n_held, 16);
    uint64_t end = clock_ms() + FC_DEADLINE_MS;
    for (size_t done = 0; done < N;) {
        assert_true(clock_ms() < end);
        for (int k = 0; k < 2; k++) {
            struct fake *p = k ? P2 : P;
            for (size_t i = 0; i < p->n_held; i++)
                if (p->held[i].x != NULL) {
                    fake_reply(&p->held[i], 422, "{}");
                    done++;
                }
        }
        run_for(5);
    }
    for (int i = 0; i < N; i++) {
        client_expect(&c[i], 422, "{}");
        client_close(&c[i]);
    }
}

/* A prompt longer than everything is P's to refuse, not the queue's to keep. */
static void larger_than_all(void **state) {
    struct client c;
    struct buf b = BUF_INIT;
    (void)state;
    buf_puts(&b, "{\"inputs\":\"");
    for (int i = 0; i < 40000; i++) buf_putc(&b, 'a'); /* 622 blocks of 100 */
    buf_puts(&b, "\"}");
    fake_reply(ask(&c, "/generate", b.data), 422, "{\"error\":\"too long\"}");
    client_expect(&c, 422, "{\"error\":\"too long\"}");
    client_close(&c);
    buf_free(&b);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(queue_order),       CASE(queue_by_priority_and_deadline),
        CASE(a_deadline_passes), CASE(room),
        CASE(larger_than_all),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
