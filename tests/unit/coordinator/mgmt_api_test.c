/* Goal: what cluster-api 6.5 asks of a coordinator is answered with the bodies and statuses of the
 * chapter, and says what is so: no new work for an instance that is offline while what it has goes
 * on, tasks, pairs, bookings, lengths, a coordinator that stands by. Method: a real coordinator
 * over instances of the test (fake_cluster.h), asked over its sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/fake_cluster.h"

#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50,\"drain_soft_s\":0},"            \
    "\"controller\":{\"http_retries\":1}}"
#define CHAT "/v1/chat/completions"
#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"0123456789012345678\"}]}"

static void asks_at(const char *method, const char *path, const char *body, int status,
                    const char *want, int line) {
    struct client c;
    client_ask(&c, method, path, "", body);
    client_expect_at(&c, status, want, line);
    client_close(&c);
}
#define gets(path, status, want)        asks_at("GET", path, "", status, want, __LINE__)
#define posts(path, body, status, want) asks_at("POST", path, body, status, want, __LINE__)

static bool holds_one(void *arg) {
    return ((struct fake *)arg)->n_held == 1;
}
static bool fc_published(void *arg) {
    (void)arg;
    controller_poll_soon(&fc.co);
    return fc.co.published;
}

/* Before anything was published most of it is 503, whatever the body. */
static void too_early(void **state) {
    struct client c;
    (void)state;
    fc_open(CONF);
    static const char *const rows[][3] = {{"POST", "/v1/instances/online", "{\"ids\":[1]}"},
                                          {"POST", "/v1/instances/offline", "nonsense"},
                                          {"GET", "/v1/coordinator_info", ""},
                                          {"POST", "/backup_info", "{}"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        client_ask(&c, rows[i][0], rows[i][1], "", rows[i][2]);
        run_until(client_done, &c);
        assert_int_equal(client_status(&c), 503);
        assert_non_null(strstr(c.in.data, "No instance has been published yet"));
        assert_true(client_has(&c, "Retry-After: 1"));
        client_close(&c);
    }
    gets("/v1/instances/tasks?id=11&id=x", 200, "{\"tasks\":[-1,-1]}");
    posts("/v1/instances/query_tasks", "{\"p_id\":1,\"d_id\":2,\"role_change_type\":0}", 200,
          "{\"is_end\":true}");
    gets("/recvs_info", 200, "{\"is_master\":true,\"recv_flow\":0}");
    fc_close();
}

/* The way of one request: booked, on its pair, over; an offline D keeps what it has. */
static void a_request(void **state) {
    struct client c, c2;
    (void)state;
    fc_start(CONF, 1, 2);
    run_until(fc_published, NULL);
    struct fake *p = &fc.fakes[0], *d = &fc.fakes[1], *d2 = &fc.fakes[2];
    gets("/v1/coordinator_info", 200,
         "{\"schedule_info\":[{\"id\":1,\"allocated_slots\":0,\"allocated_blocks\":0},"
         "{\"id\":2,\"allocated_slots\":0,\"allocated_blocks\":0},"
         "{\"id\":3,\"allocated_slots\":0,\"allocated_blocks\":0}],\"request_num\":0,"
         "\"request_length_info\":{\"input_len\":0,\"output_len\":0}}");
    client_ask(&c, "POST", CHAT, "", BODY);
    run_until(holds_one, p);
    struct held held = p->held[0];
    gets("/v1/coordinator_info", 200,
         "{\"schedule_info\":[{\"id\":1,\"allocated_slots\":1,\"allocated_blocks\":1},"
         "{\"id\":2,\"allocated_slots\":1,\"allocated_blocks\":1},"
         "{\"id\":3,\"allocated_slots\":0,\"allocated_blocks\":0}],\"request_num\":1,"
         "\"request_length_info\":{\"input_len\":0,\"output_len\":0}}");
    gets("/v1/instances/tasks?id=1&id=3&id=2&id=9&id=two", 200, "{\"tasks\":[1,0,1,-1,-1]}");
    posts("/v1/instances/query_tasks", "{\"p_id\":1,\"d_id\":2,\"role_change_type\":0}", 200,
          "{\"is_end\":false}");
    posts("/v1/instances/query_tasks", "{\"p_id\":1,\"d_id\":3,\"role_change_type\":0}", 200,
          "{\"is_end\":true}");
    posts("/v1/instances/query_tasks", "{\"p_id\":0,\"d_id\":0,\"role_change_type\":1}", 200,
          "{\"is_end\":true}");
    /* P has answered; the pair still has the request */
    fake_reply(&p->held[0], 200, "{\"reqId\":\"1\",\"isStream\":false}");
    p->n_held = 0;
    posts("/v1/instances/offline", "{\"ids\":[2,77]}", 200, "");
    posts("/v1/instances/query_tasks", "{\"p_id\":1,\"d_id\":2,\"role_change_type\":0}", 200,
          "{\"is_end\":false}");
    gets("/v1/instances/tasks?id=1&id=2", 200, "{\"tasks\":[0,1]}");
    run_for(400); /* longer than drain_soft_s: nothing moves */
    assert_int_equal(fake_inst(d)->drain.why, DRAIN_OFFLINE);
    assert_int_equal(d->n_stops, 0);
    client_ask(&c2, "POST", CHAT, "", BODY);
    run_until(holds_one, p);
    struct held second = p->held[0];
    gets("/v1/instances/tasks?id=2&id=3", 200, "{\"tasks\":[1,1]}");
    fake_send(d, &held, (struct dresult_frame){.kind = DR_LAST}, "{}", "5,6,7!2");
    client_expect(&c, 200, "{}");
    fake_reply(&p->held[0], 200, "{\"reqId\":\"1\",\"isStream\":false}");
    fake_send(d2, &second, (struct dresult_frame){.kind = DR_LAST}, "{}", "5!2");
    client_expect(&c2, 200, "{}");
    client_close(&c);
    client_close(&c2);
    gets("/recvs_info", 200, "{\"is_master\":true,\"recv_flow\":2}");
    gets("/recvs_metrics", 200, "{\"is_master\":true,\"recv_flow\":0}");
    struct relay_lengths mean;
    relay_lengths(fc.co.relays, &mean);
    assert_true(mean.output > 1.99 && mean.output < 2.01); /* three tokens, and one */
    assert_true(mean.input > 4 && mean.input < 20);
    posts("/v1/instances/online", "{\"ids\":[2]}", 200, "");
    assert_int_equal(fake_inst(d)->drain.why, DRAIN_NONE);
    assert_true(fc_serves(d));
    fc_close();
}

/* An operator's drain is another order: online does not end it. */
static void beside_a_drain(void **state) {
    struct errbuf eb;
    (void)state;
    fc_start(CONF, 1, 2);
    run_until(fc_published, NULL);
    struct inst *in = fake_inst(&fc.fakes[1]);
    posts("/v1/instances/offline", "{\"ids\":[2]}", 200, "");
    assert_int_equal(drain_order(&fc.co, 2, true, false, &eb), ERR_OK);
    assert_int_equal(in->drain.why, DRAIN_ORDER);
    posts("/v1/instances/online", "{\"ids\":[2]}", 200, "");
    assert_int_equal(in->drain.why, DRAIN_ORDER);
    posts("/v1/instances/offline", "{\"ids\":[2]}", 200, "");
    assert_int_equal(drain_order(&fc.co, 2, false, false, &eb), ERR_OK);
    assert_int_equal(in->drain.why, DRAIN_OFFLINE);
    fc_close();
}

static void wrong_bodies(void **state) {
    struct client c;
    static const struct {
        const char *method, *path, *body, *text;
    } rows[] = {
        {"POST", "/v1/instances/offline", "{", ""},
        {"POST", "/v1/instances/offline", "{\"ids\":[true]}",
         "ids[0] must be an integer from 0 to 4294967295, got true"},
        {"POST", "/v1/instances/online", "{\"id\":1}", "ids is missing"},
        {"POST", "/backup_info", "{\"is_master\":true}", "is_abnormal is missing"},
    };
    (void)state;
    fc_start(CONF, 1, 1);
    run_until(fc_published, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        client_ask(&c, rows[i].method, rows[i].path, "", rows[i].body);
        run_until(client_done, &c);
        assert_int_equal(client_status(&c), 400);
        assert_non_null(strstr(c.in.data, rows[i].text));
        client_close(&c);
    }
    posts("/v1/instances/query_tasks", "{\"p_id\":1}", 400, "{\"is_end\":true}");
    posts("/v1/instances/query_tasks", "x", 400, "{\"is_end\":true}");
    char url[1024] = "/v1/instances/tasks?id=1";
    for (int i = 0; i < 100; i++) strcat(url, "&id=1");
    client_ask(&c, "GET", url, "", "");
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 400);
    assert_non_null(strstr(c.in.data, "id must be given at most 100 times"));
    client_close(&c);
    fc_close();
}

/* Two that get requests: the one that is not the master refuses them, and says so to probes. */
static void stands_by(void **state) {
    struct client c;
    static const char ok[] = "{\"update_successfully\":true}";
    (void)state;
    fc_start(CONF, 1, 1);
    run_until(fc_published, NULL);
    posts("/backup_info", "{\"is_master\":true,\"is_abnormal\":true,\"is_random_pick\":true}", 200,
          ok);
    gets("/v2/health/ready", 200, "");
    posts("/backup_info", "{\"is_master\":false,\"is_abnormal\":true,\"is_random_pick\":false}",
          200, ok);
    client_ask(&c, "POST", CHAT, "", BODY);
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 503);
    assert_non_null(strstr(c.in.data, "standby"));
    client_close(&c);
    gets("/v2/health/ready", 503, "");
    gets("/recvs_info", 200, "{\"is_master\":false,\"recv_flow\":1}");
    posts("/backup_info", "{\"is_master\":false,\"is_abnormal\":false,\"is_random_pick\":false}",
          200, ok);
    gets("/v2/health/ready", 200, "");
    gets("/recvs_info", 200, "{\"is_master\":true,\"recv_flow\":0}");
    fc_close();
}

/* Nothing changes by it, and an order that would be refused is refused. */
static void the_plan(void **state) {
    struct client c;
    (void)state;
    fc_start(CONF, 1, 2);
    gets("/v1/plan", 200,
         "{\"decides\":true,\"ratio\":{\"prefill\":1,\"decode\":1},\"inSeconds\":0.0,"
         "\"changes\":[],\"unmet\":[]}");
    gets("/v1/plan?id=2&role=prefill", 200,
         "{\"decides\":true,\"ratio\":{\"prefill\":1,\"decode\":1},\"inSeconds\":0.0,"
         "\"changes\":[],\"unmet\":[]}");
    static const struct {
        const char *query;
        int status;
        const char *text;
    } rows[] = {
        {"id=9&role=decode", 404, "id must be a known instance, got 9"},
        {"name=nobody&role=decode", 404, "name must be that of one instance"},
        {"id=1&role=decode", 409, "instance 1 is the last prefill instance"},
        {"id=1&role=none", 422, "role must be prefill or decode"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[128];
        snprintf(path, sizeof(path), "/v1/plan?%s", rows[i].query);
        client_ask(&c, "GET", path, "", "");
        run_until(client_done, &c);
        assert_int_equal(client_status(&c), rows[i].status);
        assert_non_null(strstr(c.in.data, rows[i].text));
        client_close(&c);
    }
    client_ask(&c, "GET", "/v1/plan?id=1&role=decode&force=true", "", "");
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 200); /* labels are static: nobody can take its place */
    assert_non_null(strstr(c.in.data, "\"unmet\":[{\"group\":1,\"role\":\"prefill\",\"why\":"));
    client_close(&c);
    assert_int_equal(fake_inst(&fc.fakes[0])->plan.place.role, ROLE_PREFILL);
    assert_int_equal(fake_inst(&fc.fakes[0])->plan.place.next, ROLE_NONE);
    fc_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_early),      cmocka_unit_test(a_request),
        cmocka_unit_test(beside_a_drain), cmocka_unit_test(wrong_bodies),
        cmocka_unit_test(stands_by),      cmocka_unit_test(the_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
