/* h2_fixture: http_server_fixture with a gate, so that a test sees that every way in which a stream
 * can end gives back what it took; and allocations of the loop thread that fail. */
#ifndef BATON_TESTS_H2_FIXTURE_H
#define BATON_TESTS_H2_FIXTURE_H

#include "common/base/budget.h"
#include "common/net/http_gate.h"
#include "tests/unit/common/net/http_server_fixture.h"
#include "tests/unit/common/net/raw_h2.h"

static struct {
    struct budget budget;
    struct http_gate *gate;
    enum err err;
} gated;

static void open_gated(void *arg) {
    (void)arg;
    gated.err = http_gate_create(&gated.gate, fx.t.loop, &gated.budget);
    fx.opts.gate = gated.gate;
    if (gated.err == ERR_OK) gated.err = http_server_open(&fx.server, fx.t.loop, &fx.opts, &fx.eb);
}

/* After the test has set fx.opts to its taste. */
static inline void gated_up(void) {
    static const struct limits_conf limits = {0};
    budget_init(&gated.budget);
    http_gate_limits(&gated.budget, &limits, 1000, 1000, 1000);
    loop_thread_start(&fx.t);
    run_on_loop(&fx.t, open_gated, NULL);
    if (gated.err != ERR_OK) fail_msg("%s", fx.eb.text);
    fx.port = http_server_port(fx.server);
}

static inline void gated_down(void) {
    run_on_loop(&fx.t, close_server, NULL);
    loop_thread_stop(&fx.t);
    http_gate_destroy(&gated.gate);
}

static inline uint64_t refusals(enum budget_id id) {
    return atomic_load(&gated.budget.rows[id].refusals);
}

/* What is in use, by name; "": nothing. */
static const char *in_use(void) {
    static char text[128];
    text[0] = 0;
    for (int i = 0; i < BUDGET_COUNT; i++) {
        const uint64_t n = budget_used(&gated.budget, (enum budget_id)i);
        if (n != 0)
            snprintf(text, sizeof(text), "%s %llu", budget_reason((enum budget_id)i),
                     (unsigned long long)n);
    }
    return text;
}

static bool nothing_is_used(void) {
    return in_use()[0] == 0;
}

/* Every connection has been closed: what is left is nothing. */
#define ASSERT_ALL_IS_BACK()                                                                       \
    do {                                                                                           \
        WAIT_FOR(conns() == 0);                                                                    \
        WAIT_FOR(nothing_is_used());                                                               \
    } while (0)

#if OWN_MALLOC
static void arm(void *arg) {
    alloc_fault_once(*(int *)arg);
}

static void disarm(void *arg) {
    *(bool *)arg = alloc_fault_end();
}

static void count_live(void *arg) {
    *(long *)arg = alloc_fault.live;
}

/* Given and not freed, by this thread and the loop's. */
static long live(void) {
    long theirs;
    run_on_loop(&fx.t, count_live, &theirs);
    return theirs + alloc_fault.live;
}

/* Runs `talk` (connects, has its answers or the end, closes) with the first allocation of the loop
 * thread that fails, the second, and so on until none does. None may hang it (raw_recv() fails
 * then), keep anything, or harm what comes afterwards: `after`. */
static void with_each_allocation_failing(void (*talk)(void), void (*after)(void)) {
    int n = 0;
    bool hit = true;
    after(); /* whatever is made once is there */
    ASSERT_ALL_IS_BACK();
    const long calm = live();
    for (; hit; n++) {
        run_on_loop(&fx.t, arm, &n);
        talk();
        WAIT_FOR(conns() == 0);
        run_on_loop(&fx.t, disarm, &hit);
        after();
        WAIT_FOR(conns() == 0);
        if (!nothing_is_used() || live() != calm)
            fail_msg("allocation %d: %ld left, %s", n, live() - calm, in_use());
    }
    assert_in_range(n, 10, 100000);
}
#endif

#endif
