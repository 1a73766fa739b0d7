/* Goal: bodies and queries of the management plane are read within their bounds, and what is wrong
 * with one is said with member, value and range. Method: tables of bytes, and what they become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "coordinator/mgmt_msg.h"

static struct errbuf eb;
static struct mgmt_ids ids;

struct bad {
    const char *body, *text; /* text: a part of what is said */
};

static void check_ids(const char *body, enum err want, const char *text) {
    eb.text[0] = 0;
    assert_int_equal(mgmt_ids_parse(&ids, body, strlen(body), &eb), want);
    if (strstr(eb.text, text) == NULL) fail_msg("%s: got \"%s\"", body, eb.text);
}

static char *many_ids(size_t n) {
    struct buf b = BUF_INIT;
    buf_puts(&b, "{\"ids\":[");
    for (size_t i = 0; i < n; i++) buf_printf(&b, "%s%zu", i > 0 ? "," : "", i);
    buf_puts(&b, "]}");
    return buf_steal(&b);
}

static void lists_of_ids(void **state) {
    (void)state;
    check_ids("{\"ids\":[11,0,4294967295],\"more\":1}", ERR_OK, "");
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[0], 11);
    assert_int_equal(ids.ids[2], 4294967295u);
    check_ids("{\"ids\":[]}", ERR_OK, "");
    assert_int_equal(ids.n, 0);
    check_ids("{}", ERR_INVALID, "ids is missing");
    check_ids("{\"ids\":7}", ERR_INVALID, "ids must be an array of ids of instances, got 7");
    check_ids("{\"ids\":null}", ERR_INVALID, "ids must be an array of ids of instances, got null");
    check_ids("{\"ids\":[1,-2]}", ERR_INVALID,
              "ids[1] must be an integer from 0 to 4294967295, got -2");
    check_ids("{\"ids\":[4294967296]}", ERR_INVALID, "ids[0] must be an integer");
    check_ids("{\"ids\":[1.5]}", ERR_INVALID, "got 1.5");
    check_ids("[11]", ERR_INVALID, "the body must be an object");
    check_ids("null", ERR_INVALID, "the body must be an object");
    check_ids("", ERR_BAD_JSON, "");
    check_ids("{\"ids\":[11]", ERR_BAD_JSON, "");
    char *most = many_ids(INSTANCES_MAX), *more = many_ids(INSTANCES_MAX + 1);
    check_ids(most, ERR_OK, "");
    assert_int_equal(ids.n, INSTANCES_MAX);
    assert_int_equal(ids.ids[INSTANCES_MAX - 1], INSTANCES_MAX - 1);
    check_ids(more, ERR_TOO_LARGE, "ids must have at most 4096 entries, got 4097");
    free(most);
    free(more);
}

static void pairs(void **state) {
    struct mgmt_pair p;
    static const char good[] = "{\"p_id\":11,\"d_id\":21,\"role_change_type\":1}";
    static const struct bad bad[] = {
        {"{\"d_id\":21,\"role_change_type\":0}", "p_id is missing"},
        {"{\"p_id\":11,\"role_change_type\":0}", "d_id is missing"},
        {"{\"p_id\":11,\"d_id\":21}", "role_change_type is missing"},
        {"{\"p_id\":\"11\",\"d_id\":21,\"role_change_type\":0}",
         "p_id must be an integer from 0 to 4294967295, got \"11\""},
        {"{\"p_id\":11,\"d_id\":-1,\"role_change_type\":0}", "d_id must be an integer"},
        {"{\"p_id\":11,\"d_id\":21,\"role_change_type\":2}",
         "role_change_type must be 0 (P becomes D) or 1 (D becomes P), got 2"},
        {"{\"p_id\":11,\"d_id\":21,\"role_change_type\":true}", "role_change_type must be"},
        {"[]", "the body must be an object"},
        {"{", ""},
    };
    (void)state;
    assert_int_equal(mgmt_pair_parse(&p, good, sizeof(good) - 1, &eb), ERR_OK);
    assert_int_equal(p.p_id, 11);
    assert_int_equal(p.d_id, 21);
    assert_true(p.d_changes);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        eb.text[0] = 0;
        assert_int_not_equal(mgmt_pair_parse(&p, bad[i].body, strlen(bad[i].body), &eb), ERR_OK);
        if (eb.text[0] == 0 || strstr(eb.text, bad[i].text) == NULL)
            fail_msg("%s: got \"%s\"", bad[i].body, eb.text);
    }
    for (size_t n = 0; n < sizeof(good) - 1; n++)
        assert_int_not_equal(mgmt_pair_parse(&p, good, n, &eb), ERR_OK);
}

static void backups(void **state) {
    struct mgmt_backup b;
    static const char good[] =
        "{\"is_master\":false,\"is_abnormal\":true,\"is_random_pick\":false}";
    static const struct bad bad[] = {
        {"{\"is_abnormal\":true,\"is_random_pick\":false}", "is_master is missing"},
        {"{\"is_master\":1,\"is_abnormal\":true,\"is_random_pick\":false}",
         "is_master must be a boolean, got 1"},
        {"{\"is_master\":true,\"is_abnormal\":null,\"is_random_pick\":false}",
         "is_abnormal must be a boolean, got null"},
        {"{\"is_master\":true,\"is_abnormal\":true}", "is_random_pick is missing"},
        {"7", "the body must be an object"},
    };
    (void)state;
    assert_int_equal(mgmt_backup_parse(&b, good, sizeof(good) - 1, &eb), ERR_OK);
    assert_true(!b.is_master && b.is_abnormal && !b.is_random_pick);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        eb.text[0] = 0;
        assert_int_not_equal(mgmt_backup_parse(&b, bad[i].body, strlen(bad[i].body), &eb), ERR_OK);
        if (strstr(eb.text, bad[i].text) == NULL) fail_msg("%s: got \"%s\"", bad[i].body, eb.text);
    }
}

static void queries(void **state) {
    struct mgmt_tasks t;
    struct buf b = BUF_INIT;
    (void)state;
    assert_int_equal(mgmt_tasks_parse(&t, "", &eb), ERR_OK);
    assert_int_equal(t.n, 0);
    assert_int_equal(
        mgmt_tasks_parse(&t, "id=11&x=5&id=&id=a1&id=-3&id=4294967295&id=4294967296&&id", &eb),
        ERR_OK);
    static const int64_t want[] = {11, -1, -1, -1, 4294967295, -1};
    assert_int_equal(t.n, sizeof(want) / sizeof(want[0]));
    for (size_t i = 0; i < t.n; i++) assert_int_equal(t.ids[i], want[i]);
    for (int i = 0; i < MGMT_TASKS_MAX; i++) buf_printf(&b, "%sid=%d", i > 0 ? "&" : "", i);
    assert_int_equal(mgmt_tasks_parse(&t, b.data, &eb), ERR_OK);
    assert_int_equal(t.n, MGMT_TASKS_MAX);
    assert_int_equal(t.ids[MGMT_TASKS_MAX - 1], MGMT_TASKS_MAX - 1);
    buf_puts(&b, "&id=1");
    assert_int_equal(mgmt_tasks_parse(&t, b.data, &eb), ERR_TOO_LARGE);
    assert_string_equal(eb.text, "id must be given at most 100 times");
    buf_free(&b);
}

static void plans(void **state) {
    struct mgmt_plan p;
    static const struct bad bad[] = {
        {"id=x&role=decode", "id must be an integer from 0 to 4294967295, got \"x\""},
        {"id=4294967296&role=decode", "id must be an integer"},
        {"id=1", "role is missing"},
        {"role=decode", "id or name is missing"},
        {"id=1&role=flex", "role must be prefill or decode, got \"flex\""},
        {"name=a%20b&role=decode", "name must be 1 to"},
        {"name=&role=decode", "name must be 1 to"},
        {"id=1&role=decode&force=1", "force must be true or false, got \"1\""},
        {"id=1&role=decode&x", "unknown parameter \"x\""},
    };
    (void)state;
    assert_int_equal(mgmt_plan_parse(&p, "", &eb), ERR_OK);
    assert_false(p.asks);
    assert_int_equal(mgmt_plan_parse(&p, "&id=7&role=decode&&force=true", &eb), ERR_OK);
    assert_true(p.asks && p.id == 7 && p.name[0] == 0 && p.role == ROLE_DECODE && p.force);
    assert_int_equal(mgmt_plan_parse(&p, "role=prefill&name=10.0.0.1:1025&force=false", &eb),
                     ERR_OK);
    assert_string_equal(p.name, "10.0.0.1:1025");
    assert_true(p.role == ROLE_PREFILL && !p.force);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(mgmt_plan_parse(&p, bad[i].body, &eb), ERR_INVALID);
        if (strstr(eb.text, bad[i].text) == NULL) fail_msg("%s: \"%s\"", bad[i].body, eb.text);
    }
    char query[INSTANCE_NAME_BYTES_MAX + 64] = "name=";
    memset(query + 5, 'a', INSTANCE_NAME_BYTES_MAX + 40);
    assert_int_equal(mgmt_plan_parse(&p, query, &eb), ERR_TOO_LARGE);
    assert_non_null(strstr(eb.text, "a parameter must have at most"));
}

static void histories(void **state) {
    static const char *const bad[][2] = {
        {"since=", "since must be"},
        {"since=-1", "got \"-1\""},
        {"since=1x", "since must be"},
        {"since=9007199254740993", "since must be"},
        {"since=99999999999999999999999999999999999999999999999999", "since must be"},
        {"instances=0", "instances must be"},
        {"instances=1,,2", "got \"1,,2\""},
        {"instances=1,", "instances must be"},
        {"instances=,1", "instances must be"},
        {"instances=4294967296", "instances must be"},
        {"since=3&instances=1,a", "at most 32 ids"},
        {"instances=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "32"},
    };
    struct mgmt_history h;
    (void)state;
    assert_int_equal(mgmt_history_parse(&h, "", &eb), ERR_OK);
    assert_true(h.since == 0 && h.n == 0);
    assert_int_equal(mgmt_history_parse(&h, "instances=&x=1", &eb), ERR_OK);
    assert_int_equal(h.n, 0);
    assert_int_equal(mgmt_history_parse(&h, "since=9007199254740992&&instances=7,4294967295", &eb),
                     ERR_OK);
    assert_true(h.since == UINT64_C(1) << 53 && h.n == 2 && h.ids[0] == 7 &&
                h.ids[1] == UINT32_MAX);
    assert_int_equal(
        mgmt_history_parse(
            &h, "instances=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", &eb),
        ERR_OK);
    assert_int_equal(h.n, MGMT_SERIES_MAX);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(mgmt_history_parse(&h, bad[i][0], &eb), ERR_INVALID);
        if (strstr(eb.text, bad[i][1]) == NULL) fail_msg("%s: \"%s\"", bad[i][0], eb.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_of_ids), cmocka_unit_test(pairs),
                                       cmocka_unit_test(backups),      cmocka_unit_test(queries),
                                       cmocka_unit_test(plans),        cmocka_unit_test(histories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
