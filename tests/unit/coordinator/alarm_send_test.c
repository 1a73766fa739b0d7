/* Goal: a receiver is sent every alarm once it takes it, in their order and in the reference's
 * form; one that is away or busy is asked again, later each time, one that refuses loses that alarm
 * alone, and what the ring forgets meanwhile is counted. Method: a server on the same loop that
 * answers as it is told; the clock of the tries is handed in, and each wait is for a fact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/budget.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "coordinator/alarm_send.h"
#include "coordinator/alarms.h"
#include "proto/json.h"
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(30000)
enum { SEEN_MAX = 64 };

static struct fx {
    struct loop *loop;
    struct http_client *client;
    struct http_server *server;
    struct alarms *alarms;
    struct alarm_send *send;
    struct budget budget;
    char url[64];
    int status;          /* what the receiver answers */
    size_t answer_bytes; /* of its body */
    unsigned n_seen;
    char seen[SEEN_MAX][ALARM_TEXT_BYTES]; /* additionalInformation of each that came */
} fx;
static char answer[70 << 10]; /* more than is read of one */

static void receive(void *arg, struct http_x *x) {
    struct json_value *root = NULL;
    const char *s = "?";
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)arg;
    if (json_read(&root, body, n, NULL, NULL) == ERR_OK && json_arr_len(root) == 1)
        (void)json_get_str(json_arr_at(root, 0), "additionalInformation", &s, &n);
    if (strcmp(http_x_path(x), "/alarms") == 0 && fx.n_seen < SEEN_MAX)
        snprintf(fx.seen[fx.n_seen++], sizeof(fx.seen[0]), "%s", s);
    json_put(root);
    http_x_reply(x, fx.status, "text/plain", answer, fx.answer_bytes);
}
static size_t body_max(void *arg, const char *method, const char *path) {
    (void)arg, (void)method, (void)path;
    return 1 << 16;
}

static int set_up(void **state) {
    const struct http_server_opts so = {.host = "127.0.0.1",
                                        .conns_max = 8,
                                        .head_bytes_max = 16384,
                                        .idle_ms = 60000,
                                        .read_ms = 60000,
                                        .write_ms = 60000,
                                        .stream_pending_max = 1 << 20,
                                        .body_bytes_max = body_max,
                                        .on_request = receive};
    struct errbuf eb;
    (void)state;
    log_init(LOG_NONE, 2);
    memset(&fx, 0, sizeof(fx));
    memset(answer, 'x', sizeof(answer));
    fx.status = 204;
    budget_init(&fx.budget);
    if (loop_create(&fx.loop) != ERR_OK ||
        http_client_create(&fx.client, fx.loop, "test") != ERR_OK ||
        http_server_open(&fx.server, fx.loop, &so, &eb) != ERR_OK ||
        alarms_create(&fx.alarms, "10.0.0.9") != ERR_OK)
        return -1;
    alarms_set(fx.alarms, ALARM_RANK_TABLE, NULL, true, 2, "before"); /* not sent */
    snprintf(fx.url, sizeof(fx.url), "http://127.0.0.1:%u/alarms", http_server_port(fx.server));
    const struct alarm_send_opts o = {
        .alarms = fx.alarms, .client = fx.client, .budget = &fx.budget, .url = fx.url};
    return alarm_send_create(&fx.send, &o) == ERR_OK ? 0 : -1;
}
static int tear_down(void **state) {
    (void)state;
    alarm_send_destroy(&fx.send);
    alarms_destroy(&fx.alarms);
    http_server_close(&fx.server);
    http_client_destroy(&fx.client);
    loop_destroy(&fx.loop);
    return 0;
}

/* ---- waiting */

struct wait {
    bool (*is_so)(void);
    uint64_t until_ms;
};
static void look(void *arg) {
    const struct wait *w = arg;
    if (w->is_so() || clock_ms() >= w->until_ms) loop_stop(fx.loop);
}
static void run_until(bool (*is_so)(void)) {
    struct wait w = {is_so, clock_ms() + DEADLINE_MS};
    struct loop_timer *t = NULL;
    assert_int_equal(loop_timer_start(&t, fx.loop, 1, 1, look, &w), ERR_OK);
    loop_run(fx.loop);
    loop_timer_stop(&t);
    assert_true(is_so());
}

/* No call is under way: all are taken or refused, or the next try waits for its time. */
static bool is_still(void) {
    return alarm_send_due_ms(fx.send) != UINT64_MAX;
}
static bool three_came(void) {
    return fx.n_seen >= 3;
}
/* All that is to be sent now, and its answers. */
static void send_all(void) {
    alarm_send_tick(fx.send, clock_ms());
    run_until(is_still);
}

static void raise(const char *who, const char *info) {
    alarms_raise(fx.alarms, ALARM_INSTANCE, &(struct alarm_of){who, who, "10.0.0.1:1"}, 1, info);
}

static void each_is_sent_in_its_order(void **state) {
    (void)state;
    raise("p1", "one");
    raise("p2", "two");
    alarms_clear(fx.alarms, ALARM_INSTANCE, &(struct alarm_of){"p1", "p1", "10.0.0.1:1"});
    raise("p3", "three");
    send_all();
    assert_int_equal(fx.n_seen, 4);
    assert_string_equal(fx.seen[0], "one");
    assert_string_equal(fx.seen[1], "two");
    assert_string_equal(fx.seen[2], ""); /* the end of the first */
    assert_string_equal(fx.seen[3], "three");
    alarm_send_tick(fx.send, clock_ms()); /* nothing is left */
    assert_true(is_still());
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 0);
}

/* A second, two, four ..: nothing before. */
static void who_is_busy_is_asked_again(void **state) {
    static const int busy[] = {503, 429, 408, 500};
    uint64_t wait_ms = ALARM_AGAIN_MS;
    (void)state;
    raise("p1", "one");
    raise("p2", "two");
    fx.status = busy[0];
    uint64_t began_ms = clock_ms();
    send_all();
    for (unsigned i = 1; i <= 4; i++, wait_ms *= 2) {
        const uint64_t due_ms = alarm_send_due_ms(fx.send);
        assert_int_equal(fx.n_seen, i);
        assert_in_range(due_ms, began_ms + wait_ms, clock_ms() + wait_ms);
        alarm_send_tick(fx.send, due_ms - 1); /* too soon */
        assert_int_equal(alarm_send_due_ms(fx.send), due_ms);
        fx.status = i < 4 ? busy[i] : 200;
        began_ms = clock_ms();
        alarm_send_tick(fx.send, due_ms);
        assert_false(is_still());
        run_until(is_still);
    }
    assert_int_equal(fx.n_seen, 6); /* the second at once behind the first */
    for (int i = 0; i < 5; i++) assert_string_equal(fx.seen[i], "one");
    assert_string_equal(fx.seen[5], "two");
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 0);
}

static void who_refuses_loses_that_one(void **state) {
    (void)state;
    fx.status = 400;
    raise("p1", "one");
    send_all();
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 1);
    fx.status = 200;
    raise("p2", "two");
    send_all();
    assert_int_equal(fx.n_seen, 2);
    assert_string_equal(fx.seen[1], "two");
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 1);
}

/* Its status says what became of it, whatever comes behind. */
static void an_answer_may_be_too_long(void **state) {
    (void)state;
    fx.answer_bytes = sizeof(answer);
    fx.status = 200;
    raise("p1", "one");
    raise("p2", "two");
    send_all();
    assert_int_equal(fx.n_seen, 2);
    assert_string_equal(fx.seen[1], "two");
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 0);
    fx.status = 400;
    raise("p3", "three");
    send_all();
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 1);
    fx.status = 503;
    raise("p4", "four");
    send_all();
    assert_true(alarm_send_due_ms(fx.send) > 0);
    assert_int_equal(fx.n_seen, 4);
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 1);
}

/* The oldest are lost; what is left comes when it is back. */
static void the_ring_is_all_that_waits(void **state) {
    char who[16];
    (void)state;
    for (int i = 0; i < ALARMS_MAX + 5; i++) {
        snprintf(who, sizeof(who), "i%d", i);
        raise(who, who);
    }
    alarm_send_tick(fx.send, clock_ms());
    run_until(three_came);
    assert_string_equal(fx.seen[0], "i5");
    assert_string_equal(fx.seen[1], "i6");
    assert_int_equal(budget_refusals(&fx.budget, BUDGET_ALARMS), 5);
}

/* One that is not there at all, and the end with a call under way. */
static void nobody_is_there(void **state) {
    (void)state;
    http_server_close(&fx.server);
    raise("p1", "one");
    send_all();
    assert_int_equal(fx.n_seen, 0);
    alarm_send_tick(fx.send, alarm_send_due_ms(fx.send));
    assert_false(is_still());
    alarm_send_tick(NULL, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(each_is_sent_in_its_order),  CASE(who_is_busy_is_asked_again),
        CASE(who_refuses_loses_that_one), CASE(an_answer_may_be_too_long),
        CASE(the_ring_is_all_that_waits), CASE(nobody_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
