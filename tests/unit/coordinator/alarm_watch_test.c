/* Goal: each situation raises its alarm once, with the reason of the reference's table and the
 * instance it is about, and clears it when it is over; what may be over in a moment is none before
 * it has lasted; of an instance that is lost only that stands. Method: a real coordinator over
 * instances of the test (fake_cluster.h) that get into each situation; what is to last has begun
 * earlier than it did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/alarm_watch.h"
#include "coordinator/alarms.h"
#include "tests/unit/coordinator/fake_cluster.h"

#define CONF "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50}}"

static struct fake *const P = &fc.fakes[0], *const D = &fc.fakes[1];

/* One cluster for all cases: each leaves it as it was, the last one not. */
static int start(void **state) {
    (void)state;
    fc_start(CONF, 1, 1);
    return 0;
}
static int stop(void **state) {
    (void)state;
    fc_close();
    return 0;
}
static int set_up(void **state) {
    (void)state;
    run_until(fc_all_serve, NULL);
    alarm_watch_tick(&fc.co, clock_ms()); /* nothing of what was before lasts */
    return alarms_create(&fc.co.alarms, "127.0.0.1") != ERR_OK;
}
static int tear_down(void **state) {
    (void)state;
    alarms_destroy(&fc.co.alarms);
    return 0;
}

/* ---- what stands */

/* An alarm, of an instance (NULL: of the coordinator). */
struct wanted {
    const char *id;
    int reason;
    const struct fake *of;
    bool cleared;
};

static bool str_is(const struct json_value *o, const char *key, const char *want) {
    const char *s;
    size_t n;
    return json_get_str(o, key, &s, &n) == JSON_OK && strcmp(s, want) == 0;
}
static int64_t i64_of(const struct json_value *o, const char *key) {
    int64_t v = -1;
    return json_get_i64(o, key, &v) == JSON_OK ? v : -1;
}

static bool is_about(const struct json_value *o, const struct fake *f) {
    char moi[ALARM_TEXT_BYTES];
    if (f == NULL) return str_is(o, "moi", "service name=Coordinator, service ip=127.0.0.1");
    const struct inst *in = fake_inst(f);
    snprintf(moi, sizeof(moi), "service name=%.80s, service ip=%.24s", inst_name(in), in->address);
    return str_is(o, "moi", moi);
}

/* How often it was raised, or cleared. */
static unsigned n_of(const struct wanted *w) {
    struct json_value *arr = alarms_json(fc.co.alarms);
    unsigned n = 0;
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        const struct json_value *o = json_arr_at(arr, i);
        n += str_is(o, "alarmId", w->id) && i64_of(o, "reasonId") == w->reason &&
             i64_of(o, "cleared") == w->cleared && is_about(o, w->of);
    }
    json_put(arr);
    return n;
}
static bool is_there(void *arg) {
    controller_poll_soon(&fc.co);
    return n_of(arg) > 0;
}

static void raised(const char *id, int reason, const struct fake *of) {
    struct wanted w = {id, reason, of, false};
    run_until(is_there, &w);
    alarm_watch_tick(&fc.co, clock_ms()); /* once, however often it is looked at */
    assert_int_equal(n_of(&w), 1);
    w.cleared = true;
    assert_int_equal(n_of(&w), 0);
}
static void cleared(const char *id, int reason, const struct fake *of) {
    struct wanted w = {id, reason, of, true};
    run_until(is_there, &w);
    assert_int_equal(n_of(&w), 1);
}
static void nothing(void) {
    struct json_value *arr = alarms_json(fc.co.alarms);
    assert_int_equal(json_arr_len(arr), 0);
    json_put(arr);
}

/* It began earlier than it did. */
static bool has_begun(void *since_ms) {
    controller_poll_soon(&fc.co);
    return *(uint64_t *)since_ms != 0;
}
static void lasts(uint64_t *since_ms, const char *id, int reason, const struct fake *of) {
    const struct wanted w = {id, reason, of, false};
    run_until(has_begun, since_ms);
    assert_int_equal(n_of(&w), 0);
    *since_ms -= ALARM_AFTER_MS;
    raised(id, reason, of);
}

/* ---- situations */

static void an_engine_stands_still(void **state) {
    (void)state;
    D->stuck_ms = 3500;
    raised("0xFC001008", 4, D);
    D->stuck_ms = 0;
    cleared("0xFC001008", 4, D);
}

static void an_engine_is_held(void **state) {
    (void)state;
    P->engine_held = true;
    raised("0xFC001002", 1, P);
    P->engine_held = false;
    cleared("0xFC001002", 1, P);
}

static void an_instance_does_not_get_ready(void **state) {
    (void)state;
    P->role_status = ROLE_STATUS_UNKNOWN;
    lasts(&fake_inst(P)->watch.unfit_ms, "0xFC001002", 1, P);
    P->role_status = ROLE_STATUS_READY;
    cleared("0xFC001002", 1, P);
}

static void requests_fail(void **state) {
    const struct breaker_conf once = {.faults = 1, .open_ms = 60000};
    struct breaker *b = &fake_inst(P)->breaker;
    (void)state;
    assert_true(breaker_report(b, &once, VERDICT_FAULT, false, "p_failed", clock_ms()));
    raised("0xFC001007", 1, P);
    assert_true(breaker_reset(b));
    cleared("0xFC001007", 1, P);
}

static void results_stay_away(void **state) {
    (void)state;
    fake_inst(D)->stream = STREAM_DOWN;
    lasts(&fake_inst(D)->watch.unheard_ms, "0xFC001007", 1, D);
    fake_inst(D)->stream = STREAM_UP;
    cleared("0xFC001007", 1, D);
}

static void a_link_fails(void **state) {
    (void)state;
    P->links_fail = true;
    lasts(&fake_inst(P)->watch.unlinked_ms, "0xFC001008", 3, P);
    P->links_fail = false;
    cleared("0xFC001008", 3, P);
}

static void requests_over_a_link_fail(void **state) {
    const struct breaker_conf once = {.faults = 1, .open_ms = 60000};
    struct breaker *b = inst_link_breaker_put(fake_inst(P), D->id);
    (void)state;
    assert_true(breaker_report(b, &once, VERDICT_FAULT, false, "kv_timeout", clock_ms()));
    lasts(&fake_inst(P)->watch.unlinked_ms, "0xFC001008", 3, P);
    assert_true(breaker_reset(b));
    cleared("0xFC001008", 3, P);
}

static void another_coordinator_has_them(void **state) {
    char want[ALARM_TEXT_BYTES];
    (void)state;
    D->obeys = fc.co.term + 5;
    raised("0xFC001000", 1, NULL);
    struct json_value *arr = alarms_json(fc.co.alarms);
    snprintf(want, sizeof(want), "%s obeys a coordinator of term %llu; ours is %llu",
             inst_name(fake_inst(D)), (unsigned long long)D->obeys, (unsigned long long)fc.co.term);
    assert_true(str_is(json_arr_at(arr, 0), "additionalInformation", want));
    json_put(arr);
    D->obeys = 0;
    cleared("0xFC001000", 1, NULL);
}

static void the_rank_table_is_gone(void **state) {
    (void)state;
    snprintf(fc.co.conf.rank_table_path, sizeof(fc.co.conf.rank_table_path), "/nonexistent/table");
    fc.co.next_table_ms = 0;
    raised("0xFC001006", 2, NULL);
    fc.co.conf.rank_table_path[0] = '\0';
    fc.co.next_table_ms = 0;
    cleared("0xFC001006", 2, NULL);
}

static void the_state_cannot_be_kept(void **state) {
    (void)state;
    fc.co.store_failed = true;
    alarm_watch_tick(&fc.co, clock_ms());
    raised("0xFC001004", 2, NULL);
    cleared("0xFC001004", 2, NULL); /* the next round wrote it */
}

static void an_instance_is_lost(void **state) {
    (void)state;
    D->stuck_ms = 3500;
    raised("0xFC001008", 4, D);
    D->status_code = 500;
    D->status_text = "{}";
    raised("0xFC001003", 2, D); /* error status */
    cleared("0xFC001008", 4, D);
    raised("0xFC001004", 1, NULL);
    D->status_code = 0;
    D->stuck_ms = 0;
    cleared("0xFC001003", 2, D);
    cleared("0xFC001004", 1, NULL);
    fake_kill(D);
    raised("0xFC001003", 1, D); /* no reply */
    struct wanted engine = {"0xFC001008", 4, D, false};
    assert_int_equal(n_of(&engine), 1);
}

/* Another process answers in its place: it has no role. */
static void an_instance_restarts(void **state) {
    (void)state;
    P->refuse_roles = true;
    P->role = ROLE_NONE;
    raised("0xFC001003", 3, P);
    P->refuse_roles = false;
    cleared("0xFC001003", 3, P);
}

static void a_calm_cluster_raises_none(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        run_until(fc_all_serve, NULL);
        alarm_watch_tick(&fc.co, clock_ms());
    }
    nothing();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    log_init(LOG_NONE, 2);
    const struct CMUnitTest tests[] = {
        CASE(an_engine_stands_still),
        CASE(an_engine_is_held),
        CASE(an_instance_does_not_get_ready),
        CASE(requests_fail),
        CASE(results_stay_away),
        CASE(a_link_fails),
        CASE(requests_over_a_link_fail),
        CASE(another_coordinator_has_them),
        CASE(the_rank_table_is_gone),
        CASE(the_state_cannot_be_kept),
        CASE(an_instance_restarts),
        CASE(a_calm_cluster_raises_none),
        CASE(an_instance_is_lost),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
