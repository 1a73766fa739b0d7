/* Goal: names become addresses on the loop thread, again and again; a name without an answer, one
 * of too many addresses and a look-up that never comes back hurt nobody; wrong names are told of.
 * Method: a resolver of the test's own, told what to answer and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <arpa/inet.h>
#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/coord_conf.h"
#include "coordinator/discover.h"
#include "tests/unit/pace.h"

static const struct discover_name defaults = {
    .mgmt_port = 1026, .port = 1025, .metric_port = 1027, .kv_port = 1121, .label = -1};

/* ---- names */

static void names(void **state) {
    struct discover_names n;
    struct errbuf eb = {0};
    (void)state;
    assert_int_equal(discover_parse(&n, "", &defaults, &eb), ERR_OK);
    assert_int_equal(n.n, 0);
    assert_int_equal(
        discover_parse(&n, "  p.ns.svc=prefill d:2026=decode x:2000:3000:4000 ", &defaults, &eb),
        ERR_OK);
    assert_int_equal(n.n, 3);
    assert_string_equal(n.names[0].host, "p.ns.svc");
    assert_int_equal(n.names[0].label, LABEL_PREFILL_PREFER);
    assert_true(n.names[0].mgmt_port == 1026 && n.names[0].port == 1025 &&
                n.names[0].metric_port == 1027);
    assert_int_equal(n.names[1].label, LABEL_DECODE_PREFER);
    assert_true(n.names[1].mgmt_port == 2026 && n.names[1].metric_port == 2026);
    assert_true(n.names[2].mgmt_port == 2000 && n.names[2].port == 3000 &&
                n.names[2].kv_port == 4000 && n.names[2].label == -1);
}

static void wrong_names(void **state) {
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"a b:80", "\"b:80\" must have up to three ports from 1024 to 65535"},
        {"a:65536", "ports"},
        {"a:", "ports"},
        {"a:x", "ports"},
        {"a:2000:3000:4000:5000", "ports"},
        {"a:99999999999999999999999", "ports"},
        {"a=both", "\"a=both\" must have the role prefill or decode"},
        {"a=", "role"},
        {":2000", "has no name"},
        {"a/b", "has more than that"},
        {"http://a", "ports"},
        {"a:2000x", "has more than that"},
        {"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", "at most 16 names"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct discover_names n;
        struct errbuf eb = {0};
        assert_int_equal(discover_parse(&n, rows[i].text, &defaults, &eb), ERR_BAD_CONFIG);
        if (strstr(eb.text, rows[i].said) == NULL) fail_msg("%s: %s", rows[i].text, eb.text);
    }
    char text[400];
    for (int len = 253; len <= 254; len++) {
        struct discover_names n;
        memset(text, 'a', sizeof(text));
        text[len] = '\0';
        assert_int_equal(discover_parse(&n, text, &defaults, NULL),
                         len == 253 ? ERR_OK : ERR_BAD_CONFIG);
    }
}

/* ---- rounds */

static struct fx {
    pthread_mutex_t lock;
    int n;            /* of addresses of "many"; -1: it is not found */
    bool hangs;       /* look-ups of it do not come back */
    atomic_int begun; /* look-ups */
    atomic_int calls; /* those that came back */
    struct loop *loop;
    unsigned n_found;
    char last[INET_ADDRSTRLEN];
    pthread_t loop_thread;
} fx = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int fake(const char *host, uint32_t *addresses, size_t max, char why[128]) {
    int n = 1;
    atomic_fetch_add(&fx.begun, 1);
    while (true) {
        pthread_mutex_lock(&fx.lock);
        const bool hangs = fx.hangs;
        n = fx.n;
        pthread_mutex_unlock(&fx.lock);
        if (!hangs) break;
        sched_yield();
    }
    if (strcmp(host, "one") == 0) n = 1;
    for (int i = 0; i < n && (size_t)i < max; i++) addresses[i] = htonl(0x0A000001u + (uint32_t)i);
    if (n < 0) snprintf(why, 128, "no such name");
    atomic_fetch_add(&fx.calls, 1);
    return n;
}

static void found(void *arg, const struct discover_name *name, const char *ip) {
    (void)arg;
    assert_true(pthread_equal(pthread_self(), fx.loop_thread));
    assert_true(name->port == 1025);
    fx.n_found++;
    snprintf(fx.last, sizeof(fx.last), "%s", ip);
}

static void stop(void *arg) {
    (void)arg;
    loop_stop(fx.loop);
}

static void turn(void) {
    struct loop_alarm end = {0};
    loop_alarm_set(fx.loop, &end, 5, stop, NULL);
    loop_run(fx.loop);
}

static void say(int n, bool hangs) {
    pthread_mutex_lock(&fx.lock);
    fx.n = n;
    fx.hangs = hangs;
    pthread_mutex_unlock(&fx.lock);
}

/* Turns the loop until so many addresses have been found since. */
static void wait_found(unsigned n) {
    const uint64_t end = clock_ms() + pace_ms(30000);
    for (fx.n_found = 0; fx.n_found < n;) {
        assert_true(clock_ms() < end);
        turn();
    }
}

static struct discover *begin(const char *text) {
    struct discover *d = NULL;
    struct discover_names n;
    assert_int_equal(discover_parse(&n, text, &defaults, NULL), ERR_OK);
    assert_int_equal(loop_create(&fx.loop), ERR_OK);
    fx.loop_thread = pthread_self();
    const struct discover_opts o = {
        .loop = fx.loop, .names = &n, .look_up = fake, .period_ms = 5, .found = found};
    assert_int_equal(discover_start(&d, &o), ERR_OK);
    return d;
}

static void rounds(void **state) {
    (void)state;
    say(3, false);
    struct discover *d = begin("one many");
    wait_found(8); /* at least two rounds of 1 and 3 */
    say(-1, false);
    wait_found(20); /* the one that is there is found all the same */
    turn();
    assert_string_equal(fx.last, "10.0.0.1");
    say(DISCOVER_ADDRESSES_MAX + 100, false);
    wait_found(DISCOVER_ADDRESSES_MAX + 1);
    discover_stop(&d);
    assert_null(d);
    loop_destroy(&fx.loop); /* what was posted is freed with it */
    discover_stop(&d);
}

static void one_that_hangs(void **state) {
    (void)state;
    say(1, true);
    const int begun = atomic_load(&fx.begun);
    const uint64_t begin_end = clock_ms() + pace_ms(30000);
    struct discover *d = begin("many");
    for (int i = 0; i < 20 || atomic_load(&fx.begun) == begun; i++) { /* the loop turns meanwhile */
        assert_true(clock_ms() < begin_end);
        turn();
    }
    discover_stop(&d); /* and does not wait for ever */
    loop_destroy(&fx.loop);
    fx.n_found = 0;
    const int calls = atomic_load(&fx.calls);
    say(1, false); /* now it comes back, to nobody */
    const uint64_t end = clock_ms() + pace_ms(30000);
    while (atomic_load(&fx.calls) == calls) {
        assert_true(clock_ms() < end);
        sched_yield();
    }
    assert_int_equal(fx.n_found, 0);
}

static void stopped_at_any_moment(void **state) {
    (void)state;
    say(2, false);
    for (int i = 0; i < 100; i++) {
        struct discover *d = begin("one many");
        for (int k = 0; k < i % 4; k++) turn();
        discover_stop(&d);
        loop_destroy(&fx.loop);
    }
}

/* The system's own resolver. */
static void of_the_system(void **state) {
    uint32_t addresses[4];
    char why[128] = "";
    (void)state;
    assert_true(discover_look_up("127.0.0.7", addresses, 4, why) == 1);
    assert_int_equal(addresses[0], htonl(0x7F000007));
    assert_int_equal(discover_look_up("localhost", addresses, 4, why), 1);
    assert_int_equal(addresses[0], htonl(0x7F000001));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(wrong_names),
        cmocka_unit_test(rounds),
        cmocka_unit_test(one_that_hangs),
        cmocka_unit_test(stopped_at_any_moment),
        cmocka_unit_test(of_the_system),
    };
    log_init(LOG_NONE, 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
