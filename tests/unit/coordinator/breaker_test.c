/* Goal: a breaker opens on enough faults among the last requests and on nothing else, lets exactly
 * one probe through when its time is over, and does what the probe says. Method: the life of one by
 * hand; every state times every event; 100,000 random events against what must always hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/breaker.h"

static const struct breaker_conf conf = {.faults = 5, .open_ms = 1000};

static bool tell(struct breaker *b, enum breaker_verdict v, uint64_t now) {
    return breaker_report(b, &conf, v, false, "status 500", now);
}

static bool tell_probe(struct breaker *b, enum breaker_verdict v, uint64_t now) {
    return breaker_report(b, &conf, v, true, "status 502", now);
}

static void life(void **state) {
    struct breaker b = {0};
    (void)state;
    for (int i = 0; i < 4; i++) assert_false(tell(&b, VERDICT_FAULT, 10));
    assert_true(breaker_allows(&b, 10));
    assert_true(tell(&b, VERDICT_FAULT, 10));
    assert_int_equal(b.state, BREAKER_OPEN);
    assert_string_equal(b.cause, "status 500");
    assert_false(breaker_allows(&b, 1009));
    assert_false(breaker_send(&b, 1009));
    assert_false(tell(&b, VERDICT_GOOD, 500)); /* sent before it opened */
    assert_true(breaker_allows(&b, 1010));
    assert_true(breaker_send(&b, 1010));
    assert_int_equal(b.state, BREAKER_HALF_OPEN);
    assert_false(breaker_allows(&b, 5000)); /* one probe */
    assert_false(breaker_send(&b, 5000));
    assert_true(tell_probe(&b, VERDICT_FAULT, 1100));
    assert_string_equal(b.cause, "status 502");
    assert_false(breaker_allows(&b, 3099)); /* twice as long */
    assert_true(breaker_send(&b, 3100));
    assert_true(tell_probe(&b, VERDICT_NONE, 3200)); /* the client left: the next may try at once */
    assert_true(breaker_send(&b, 3200));
    assert_true(tell_probe(&b, VERDICT_GOOD, 3300));
    assert_int_equal(b.state, BREAKER_CLOSED);
    assert_int_equal(breaker_faults(&b), 0);
    for (int i = 0; i < 5; i++) (void)tell(&b, VERDICT_FAULT, 4000);
    assert_false(breaker_allows(&b, 4999)); /* as long as the first time */
    assert_true(breaker_allows(&b, 5000));
    assert_true(breaker_reset(&b));
    assert_true(breaker_allows(&b, 0));
    assert_string_equal(b.cause, "");
}

/* Every third fails: five of the last sixteen, though never two in a row. One in eight does not
 * open it, ever; nor do requests that say nothing. */
static void rates(void **state) {
    struct breaker b = {0};
    int opened = 0;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        assert_false(tell(&b, i % 8 == 0 ? VERDICT_FAULT : VERDICT_GOOD, 1));
        assert_false(tell(&b, VERDICT_NONE, 1));
    }
    for (int i = 0; i < 16 && !opened; i++)
        opened = tell(&b, i % 3 == 0 ? VERDICT_FAULT : VERDICT_GOOD, 1);
    assert_true(opened);
    const struct breaker_conf off = {.faults = 0, .open_ms = 1000};
    (void)breaker_reset(&b);
    for (int i = 0; i < 100; i++)
        assert_false(breaker_report(&b, &off, VERDICT_FAULT, false, "x", 1));
}

/* Probes that fail for ever: the time between them is bounded. */
static void longest_wait(void **state) {
    struct breaker b = {0};
    uint64_t now = 0;
    (void)state;
    for (int i = 0; i < 5; i++) (void)tell(&b, VERDICT_FAULT, now);
    for (int i = 0; i < 100; i++) {
        now = b.until_ms;
        assert_true(breaker_send(&b, now));
        assert_true(tell_probe(&b, VERDICT_FAULT, now));
        assert_true(b.until_ms - now <= conf.open_ms * BREAKER_WAITS);
    }
    assert_int_equal(b.until_ms - now, conf.open_ms * BREAKER_WAITS);
}

static void random_events(void **state) {
    struct breaker b = {0};
    uint64_t now = 0, rng = 7;
    bool probe_out = false;
    unsigned n_open = 0, n_closed = 0;
    (void)state;
    for (int i = 0; i < 100000; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        unsigned r = (unsigned)(rng >> 33);
        enum breaker_state was = b.state;
        enum breaker_verdict v = (enum breaker_verdict)(r / 8 % 3);
        now += r % 200;
        switch (r % 4) {
        case 0:
            if (!breaker_allows(&b, now)) {
                assert_false(breaker_send(&b, now));
            } else if (breaker_send(&b, now)) {
                assert_false(probe_out);
                probe_out = true;
            }
            break;
        case 1:
            if (!probe_out) break;
            (void)tell_probe(&b, v, now);
            probe_out = false;
            break;
        default: (void)tell(&b, v, now);
        }
        assert_int_equal(b.state == BREAKER_HALF_OPEN, probe_out);
        if (was == BREAKER_CLOSED && b.state == BREAKER_OPEN) {
            n_open++;
            assert_true(breaker_faults(&b) >= conf.faults && b.until_ms > now);
        }
        n_closed += was != BREAKER_CLOSED && b.state == BREAKER_CLOSED;
        assert_true(was != BREAKER_OPEN || b.state != BREAKER_CLOSED); /* only through a probe */
    }
    assert_true(n_open > 100 && n_closed > 100);
    for (int s = 0; s < BREAKER_STATES; s++)
        assert_true(strlen(breaker_state_name((enum breaker_state)s)) > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(life),
        cmocka_unit_test(rates),
        cmocka_unit_test(longest_wait),
        cmocka_unit_test(random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
