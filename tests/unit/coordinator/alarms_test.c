/* Goal: an alarm is raised once and cleared once, each object for itself, the newest come first,
 * and the ring keeps the newest ones. Method: rows in, the JSON out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "coordinator/alarms.h"
#include "proto/json.h"

/* 80 bytes, half of a text of an alarm. */
#define X20 "xxxxxxxxxxxxxxxxxxxx"
#define X80 X20 X20 X20 X20

static struct alarms *a;

static int set_up(void **state) {
    (void)state;
    log_init(LOG_NONE, 2);
    return alarms_create(&a, "10.0.0.9") != ERR_OK;
}
static int tear_down(void **state) {
    (void)state;
    alarms_destroy(&a);
    return 0;
}

static size_t count(void) {
    struct json_value *arr = alarms_json(a);
    const size_t n = json_arr_len(arr);
    json_put(arr);
    return n;
}

/* Of the i-th, newest first. */
static void expect(size_t i, const char *id, int64_t cleared, const char *moi) {
    struct json_value *arr = alarms_json(a);
    const struct json_value *o = json_arr_at(arr, i);
    const char *s;
    size_t n;
    int64_t v;
    assert_int_equal(json_get_str(o, "alarmId", &s, &n), JSON_OK);
    assert_string_equal(s, id);
    assert_int_equal(json_get_str(o, "moi", &s, &n), JSON_OK);
    assert_string_equal(s, moi);
    assert_int_equal(json_get_i64(o, "cleared", &v), JSON_OK);
    assert_int_equal(v, cleared);
    assert_int_equal(json_get_i64(o, "occurUtc", &v), JSON_OK);
    assert_true(v > 1700000000000);
    json_put(arr);
}

static void raised_and_cleared_once(void **state) {
    static const char me[] = "service name=Coordinator, service ip=10.0.0.9",
                      p1[] = "service name=p1, service ip=10.0.0.1:1025";
    (void)state;
    alarms_set(a, ALARM_COORDINATOR, NULL, false, 1, "");
    assert_int_equal(count(), 0); /* nothing to clear */
    for (int i = 0; i < 3; i++) alarms_set(a, ALARM_COORDINATOR, NULL, true, 1, "no D");
    assert_int_equal(count(), 1);
    expect(0, "0xFC001004", 0, me);
    for (int i = 0; i < 3; i++) {
        alarms_raise(a, ALARM_INSTANCE, &(struct alarm_of){"p1", "p1", "10.0.0.1:1025"}, 1, "gone");
        alarms_raise(a, ALARM_INSTANCE, &(struct alarm_of){"p2", "p2", "10.0.0.2:1025"}, 1, "gone");
    }
    assert_int_equal(count(), 3);
    alarms_clear(a, ALARM_INSTANCE, &(struct alarm_of){"p1", "p1", "10.0.0.1:1025"});
    alarms_clear(a, ALARM_INSTANCE, &(struct alarm_of){"p1", "p1", "10.0.0.1:1025"});
    assert_int_equal(count(), 4);
    expect(0, "0xFC001003", 1, p1);
    expect(2, "0xFC001003", 0, p1);
    alarms_raise(a, ALARM_INSTANCE, &(struct alarm_of){"p1", "p1", "10.0.0.1:1025"}, 1, "again");
    expect(0, "0xFC001003", 0, p1);
    alarms_raise(NULL, ALARM_INSTANCE, &(struct alarm_of){"p1", "p1", "x"}, 1,
                 ""); /* none are kept */
}

static void a_ring(void **state) {
    char name[16];
    (void)state;
    for (int i = 0; i < ALARMS_MAX + 10; i++) {
        snprintf(name, sizeof(name), "i%d", i);
        alarms_raise(a, ALARM_INSTANCE, &(struct alarm_of){name, name, "10.0.0.1:1"}, 1, "");
    }
    assert_int_equal(count(), ALARMS_MAX);
    snprintf(name, sizeof(name), "i%d", ALARMS_MAX + 9);
    expect(0, "0xFC001003", 0, "service name=i1033, service ip=10.0.0.1:1");
    expect(ALARMS_MAX - 1, "0xFC001003", 0, "service name=i10, service ip=10.0.0.1:1");
}

/* What stands is known when the ring has forgotten that it was raised, and when its name is another
 * one. */
static void what_stands_is_not_forgotten(void **state) {
    char name[16];
    (void)state;
    alarms_raise(a, ALARM_INSTANCE, &(struct alarm_of){"10.0.0.1:1026", "1", "10.0.0.1:1025"}, 2,
                 "");
    for (int i = 0; i < 4 * ALARMS_MAX; i++) {
        snprintf(name, sizeof(name), "i%d", i);
        alarms_raise(a, ALARM_INSTANCE, &(struct alarm_of){name, name, "10.0.0.2:1"}, 1, "");
    }
    const struct alarm_of renamed = {"10.0.0.1:1026", "p1", "10.0.0.1:1025"};
    alarms_raise(a, ALARM_INSTANCE, &renamed, 1, "");
    expect(0, "0xFC001003", 0, "service name=i4095, service ip=10.0.0.2:1");
    alarms_clear(a, ALARM_INSTANCE, &renamed);
    expect(0, "0xFC001003", 1, "service name=p1, service ip=10.0.0.1:1025");
    alarms_clear(a, ALARM_INSTANCE, &renamed);
    expect(1, "0xFC001003", 0, "service name=i4095, service ip=10.0.0.2:1");
}

static void every_kind_of_the_reference(void **state) {
    static const char *const ids[] = {"0xFC001000", "0xFC001001", "0xFC001002",
                                      "0xFC001003", "0xFC001004", "0xFC001005",
                                      "0xFC001006", "0xFC001007", "0xFC001008"};
    const struct alarm_of p1 = {"p1", "p1", "10.0.0.1:1025"};
    const char *s;
    size_t n;
    int64_t v;
    bool seen[9] = {false};
    (void)state;
    for (int which = 0; which < ALARM_KINDS; which++)
        alarms_raise(a, (enum alarm)which, &p1, which + 1, "why");
    assert_int_equal(count(), ALARM_KINDS);
    struct json_value *arr = alarms_json(a);
    for (size_t i = 0; i < ALARM_KINDS; i++) {
        const struct json_value *o = json_arr_at(arr, i);
        assert_int_equal(json_get_str(o, "alarmId", &s, &n), JSON_OK);
        for (int k = 0; k < 9; k++) seen[k] |= strcmp(s, ids[k]) == 0;
        assert_int_equal(json_get_str(o, "alarmName", &s, &n), JSON_OK);
        assert_true(n > 0);
        assert_int_equal(json_get_str(o, "probableCause", &s, &n), JSON_OK);
        assert_true(n > 0);
        assert_int_equal(json_get_i64(o, "severity", &v), JSON_OK);
        assert_in_range(v, 1, 4);
        assert_int_equal(json_get_i64(o, "category", &v), JSON_OK);
        assert_in_range(v, 1, 2);
        assert_int_equal(json_get_i64(o, "reasonId", &v), JSON_OK);
        assert_int_equal(v, ALARM_KINDS - (int64_t)i); /* newest first */
    }
    json_put(arr);
    for (int k = 0; k < 9; k++) assert_true(seen[k]);
    alarms_forget(a, &p1); /* all of it */
    assert_int_equal(count(), 2 * ALARM_KINDS);
    alarms_forget(a, &p1);
    assert_int_equal(count(), 2 * ALARM_KINDS);
}

static void text_of(const struct json_value *o, const char *key, const char *want) {
    const char *s;
    size_t n;
    assert_int_equal(json_get_str(o, key, &s, &n), JSON_OK);
    assert_string_equal(s, want);
    assert_int_equal(buf_utf8_span(s, n), n);
}

/* Whatever instances call themselves and say: what is shown is UTF-8. */
static void texts_are_utf8(void **state) {
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"caf\xC3\xA9", "caf\xC3\xA9"},
        {"\xFF", "\xEF\xBF\xBD"},
        {"a\xFFz", "a\xEF\xBF\xBDz"},
        {"a\xC3", "a\xEF\xBF\xBD"},                 /* cut inside */
        {"\xC0\x80z", "\xEF\xBF\xBD\xEF\xBF\xBDz"}, /* longer than need be */
        {"\xF0\x9F\x98\x80\xED\xA0z", "\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBDz"}, /* half */
        {"", ""},
    };
    char name[200], info[400], moi[300], who[16];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(who, sizeof(who), "%zu", i);
        alarms_raise(a, ALARM_ENGINE, &(struct alarm_of){who, rows[i].in, "x"}, 4, rows[i].in);
        struct json_value *o = alarms_at(a, alarms_count(a) - 1);
        snprintf(moi, sizeof(moi), "service name=%s, service ip=x", rows[i].out);
        text_of(o, "moi", moi);
        text_of(o, "additionalInformation", rows[i].out);
        json_put(o);
    }
    /* Cut where a character of two, three bytes begins or ends. */
    for (size_t before = 76; before <= 80; before++) {
        snprintf(name, sizeof(name), "%.*s\xE2\x82\xAC\xE2\x82\xAC", (int)before, X80);
        snprintf(info, sizeof(info), "%s%.*s\xE2\x82\xAC\xE2\x82\xAC", X80, (int)before, X80);
        snprintf(who, sizeof(who), "cut %zu", before);
        alarms_raise(a, ALARM_ENGINE, &(struct alarm_of){who, name, "x"}, 4, info);
        struct json_value *o = alarms_at(a, alarms_count(a) - 1);
        snprintf(moi, sizeof(moi), "service name=%.*s%s, service ip=x", (int)before, X80,
                 before <= 77 ? "\xE2\x82\xAC" : "");
        text_of(o, "moi", moi);
        snprintf(moi, sizeof(moi), "%s%.*s%s", X80, (int)(before < 79 ? before : 79), X80,
                 before <= 76 ? "\xE2\x82\xAC" : "");
        text_of(o, "additionalInformation", moi);
        json_put(o);
    }
    for (size_t i = 0; i + 1 < sizeof(info); i++) info[i] = '\x80'; /* each of them becomes three */
    info[sizeof(info) - 1] = '\0';
    alarms_raise(a, ALARM_ENGINE, &(struct alarm_of){"all", info, info}, 4, info);
    struct json_value *o = alarms_at(a, alarms_count(a) - 1);
    const char *s;
    size_t n;
    assert_int_equal(json_get_str(o, "additionalInformation", &s, &n), JSON_OK);
    assert_int_equal(n, 159);
    assert_int_equal(buf_utf8_span(s, n), n);
    json_put(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(raised_and_cleared_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_ring, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_are_utf8, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_kind_of_the_reference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_stands_is_not_forgotten, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
