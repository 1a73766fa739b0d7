/* Goal: an instance that is drained, for whatever reason, gets nothing new; what it has may end
 * there for drain_soft_s and goes on elsewhere after that, when there is an elsewhere; what ends
 * the reason ends the drain. Method: a real coordinator over instances of the test
 * (fake_cluster.h); requests that they keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/drain.h"
#include "tests/unit/coordinator/fake_cluster.h"

#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50,\"drain_soft_s\":1},"            \
    "\"controller\":{\"http_retries\":1}}"
#define CHAT "/v1/chat/completions"
#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

static struct errbuf eb;

static bool is_empty(void *arg) {
    controller_poll_soon(&fc.co);
    return fake_inst(arg)->drain.empty;
}
static bool holds_one(void *arg) {
    return ((struct fake *)arg)->n_held == 1;
}

static const char *state_of(const struct fake *f) {
    static char out[32];
    struct client c;
    struct json_value *root = NULL, *arr;
    bool whole;
    client_ask(&c, "GET", "/v2/status", "", "");
    run_until(client_done, &c);
    char *body = client_body(&c, &whole);
    assert_int_equal(json_read(&root, body, strlen(body), NULL, NULL), ERR_OK);
    assert_int_equal(json_get_arr(root, "instances", &arr), JSON_OK);
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        uint64_t id = 0;
        const char *s = "";
        size_t n;
        json_get_u64(json_arr_at(arr, i), "id", &id);
        json_get_str(json_arr_at(arr, i), "state", &s, &n);
        if (id == f->id) snprintf(out, sizeof(out), "%s", s);
    }
    json_put(root);
    free(body);
    client_close(&c);
    return out;
}

/* It goes when it is empty and its registration is over, and stays when it is wanted again. */
static void leaving(void **state) {
    (void)state;
    fc_start(CONF, 1, 3);
    struct fake *d = &fc.fakes[1];
    struct inst *in = fake_inst(d);
    const uint64_t later = in->lease_end_ms + 1;
    assert_int_equal(drain_leave(&fc.co, 77, false, &eb), ERR_NOT_FOUND);
    assert_false(drain_is_over(in, later));
    assert_int_equal(drain_leave(&fc.co, d->id, false, &eb), ERR_OK);
    run_until(is_empty, d);
    assert_false(drain_is_over(in, in->lease_end_ms)); /* it registers again and again */
    assert_true(drain_is_over(in, later));
    assert_int_equal(drain_order(&fc.co, d->id, false, false, &eb), ERR_OK);
    assert_false(drain_is_over(in, later));
    assert_int_equal(drain_order(&fc.co, d->id, true, false, &eb), ERR_OK);
    run_until(is_empty, d);
    assert_false(drain_is_over(in, later)); /* drained alone, it stays */
    assert_int_equal(drain_leave(&fc.co, d->id, false, &eb), ERR_OK);
    const size_t n = fc.co.reg.n;
    in->lease_end_ms = 1; /* nobody has registered it for long */
    for (int i = 0; fc.co.reg.n == n; i++) {
        assert_true(i < 3000);
        (void)state_of(&fc.fakes[2]);
    }
    assert_null(registry_find(&fc.co.reg, d->id));
    in = fake_inst(&fc.fakes[2]);
    in->from_table = true;
    assert_int_equal(drain_leave(&fc.co, in->id, true, &eb), ERR_CONFLICT);
    assert_non_null(strstr(eb.text, "is listed by the rank table"));
    assert_int_equal(in->drain.why, DRAIN_NONE);
    in->from_table = false;
    fc_close();
}

/* An order, and its end; the state tells what is left. */
static void an_order(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *d = &fc.fakes[1];
    const char *why = NULL;
    d->running = 2;
    run_until(fc_running_is_known, d);
    assert_int_equal(drain_order(&fc.co, d->id, true, false, &eb), ERR_OK);
    assert_false(inst_serves(fake_inst(d), &why)); /* at once */
    assert_string_equal(why, "draining");
    assert_string_equal(state_of(d), "draining");
    d->running = 0;
    run_until(is_empty, d);
    assert_string_equal(state_of(d), "drained");
    assert_int_equal(drain_order(&fc.co, d->id, true, false, &eb), ERR_OK); /* again */
    assert_int_equal(drain_order(&fc.co, fc.fakes[2].id, true, false, &eb), ERR_CONFLICT);
    assert_string_equal(eb.text,
                        "instance 3 is the last decode instance; \"force\": true drains it "
                        "all the same");
    assert_true(controller_ready(&fc.co));
    assert_int_equal(drain_order(&fc.co, d->id, false, false, &eb), ERR_OK);
    assert_true(fc_serves(d));
    assert_string_equal(state_of(d), "serving");
    assert_int_equal(drain_order(&fc.co, fc.fakes[2].id, true, false, &eb), ERR_OK);
    assert_int_equal(drain_order(&fc.co, 77, true, false, &eb), ERR_NOT_FOUND);
    assert_int_equal(drain_order(&fc.co, d->id, true, true, &eb), ERR_OK);
    assert_false(controller_ready(&fc.co));
    assert_int_equal(drain_order(&fc.co, d->id, false, false, &eb), ERR_OK);
    assert_true(controller_ready(&fc.co));
    fc_close();
}

/* What a P has goes to another one when its time is over; where there is none it stays. */
static void what_is_left_moves(void **state) {
    struct client c;
    (void)state;
    fc_start(CONF, 2, 1);
    struct fake *p = &fc.fakes[0], *p2 = &fc.fakes[1];
    fake_inst(p2)->ledger.tasks = 1000;
    client_ask(&c, "POST", CHAT, "", BODY);
    run_until(holds_one, p);
    uint64_t began = clock_ms();
    assert_int_equal(drain_order(&fc.co, p->id, true, true, &eb), ERR_OK);
    fake_inst(p2)->ledger.tasks = 0;
    run_until(holds_one, p2);
    assert_in_range(clock_ms() - began, 900, 1500); /* drain_soft_s */
    assert_string_equal(p2->held[0].epoch, "1");
    assert_int_equal(p->n_gone, 1);
    run_until(is_empty, p);
    assert_int_equal(drain_order(&fc.co, p2->id, true, true, &eb), ERR_OK);
    run_for(1300);
    assert_int_equal(p2->n_gone, 0); /* nobody else could go on with it */
    fake_reply(&p2->held[0], 200, "{\"isStream\":false,\"isLastResp\":true,\"output\":\"{}\"}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    fc_close();
}

/* One that says it is being stopped, with what it still has. */
static void stopping(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *d = &fc.fakes[1];
    d->status_code = 503;
    d->status_text = "{\"error\":\"x\",\"service\":{\"state\":\"DRAINING\"},\"resource\":{"
                     "\"waitingRequestNum\":1,\"runningRequestNum\":2,\"kvLeases\":3}}";
    while (fake_inst(d)->facts.status.kv_leases != 3) run_for(10);
    assert_int_equal(fake_inst(d)->drain.why, DRAIN_STOPPING);
    assert_int_equal(fake_inst(d)->facts.status.waiting, 1);
    assert_int_equal(fake_inst(d)->facts.status.running, 2);
    assert_string_equal(state_of(d), "draining");
    d->status_text = "{\"service\":{\"state\":\"DRAINING\"},\"resource\":{}}";
    run_until(is_empty, d);
    d->status_code = 0; /* the order was taken back */
    run_until(fc_serves, d);
    assert_int_equal(fake_inst(d)->drain.why, DRAIN_NONE);
    fc_close();
}

/* One that left the rank table, as long as its role has another. */
static void unlisted(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct inst *p = fake_inst(&fc.fakes[0]), *d = fake_inst(&fc.fakes[1]),
                *d2 = fake_inst(&fc.fakes[2]);
    p->from_table = d->from_table = d2->from_table = true;
    p->gone_since_ms = d->gone_since_ms = d2->gone_since_ms = clock_ms();
    run_until(is_empty, &fc.fakes[1]);
    run_for(300);
    assert_int_equal(p->drain.why, DRAIN_NONE);
    assert_int_equal(d->drain.why, DRAIN_UNLISTED);
    assert_int_equal(d2->drain.why, DRAIN_NONE);
    assert_true(controller_ready(&fc.co));
    d2->facts.suspect_ms = UINT64_MAX; /* the other one is in trouble: better this than none */
    run_until(fc_serves, &fc.fakes[1]);
    d2->facts.suspect_ms = 0; /* well again, it is the one that goes: not both take turns */
    run_until(is_empty, &fc.fakes[2]);
    assert_int_equal(d2->drain.why, DRAIN_UNLISTED);
    assert_int_equal(d->drain.why, DRAIN_NONE);
    d2->gone_since_ms = 0; /* it is listed again, and the first one goes */
    run_until(fc_serves, &fc.fakes[2]);
    run_until(is_empty, &fc.fakes[1]);
    assert_int_equal(d->drain.why, DRAIN_UNLISTED);
    p->from_table = d->from_table = d2->from_table = false;
    fc_close();
}

/* A switch takes drain_soft_s and little more, whatever runs. */
static void a_switch(void **state) {
    struct client c;
    (void)state;
    fc_start(CONF, 2, 1);
    struct fake *p = &fc.fakes[0], *p2 = &fc.fakes[1];
    fake_inst(p2)->ledger.tasks = 1000;
    client_ask(&c, "POST", CHAT, "", BODY);
    run_until(holds_one, p);
    fake_inst(p2)->ledger.tasks = 0;
    uint64_t began = clock_ms();
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_DECODE, false, &eb), ERR_OK);
    assert_int_equal(fake_inst(p)->drain.why, DRAIN_SWITCH);
    run_until(fc_is_decode, p);
    assert_in_range(clock_ms() - began, 900, 3000);
    assert_false(p->last_forced);
    run_until(holds_one, p2);
    run_until(fc_serves, p);
    fake_reply(&p2->held[0], 200, "{\"isStream\":false,\"isLastResp\":true,\"output\":\"{}\"}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    fc_close();
}

/* The management plane's answers. */
static void routes(void **state) {
    static const struct {
        const char *path, *body;
        int status;
        const char *word;
    } rows[] = {
        {"/v1/instances/drain", "{\"id\":9}", 404, "id must be a known instance, got 9"},
        {"/v1/instances/drain", "{\"id\":\"1\"}", 422, "id must be the number of an instance"},
        {"/v1/instances/drain", "{\"id\":2,\"force\":1}", 422, "force must be a boolean"},
        {"/v1/instances/drain", "{", 422, ""},
        {"/v1/instances/drain", "{\"name\":\"nobody\"}", 404, "name must be that of one instance"},
        {"/v1/instances/drain", "{\"id\":1}", 409, "is the last prefill instance"},
        {"/v1/instances/drain", "{\"id\":2}", 200, "{\"result\":\"ok\"}"},
        {"/v1/instances/undrain", "{\"id\":2}", 200, "{\"result\":\"ok\"}"},
        {"/v1/instances/undrain", "{\"id\":2}", 200, "{\"result\":\"ok\"}"},
    };
    (void)state;
    fc_start(CONF, 1, 2);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct client c;
        bool whole;
        client_ask(&c, "POST", rows[i].path, "", rows[i].body);
        run_until(client_done, &c);
        char *body = client_body(&c, &whole);
        if (client_status(&c) != rows[i].status || strstr(body, rows[i].word) == NULL)
            fail_msg("row %zu: %d %s", i, client_status(&c), body);
        free(body);
        client_close(&c);
    }
    run_until(fc_all_serve, NULL);
    fc_close();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order),
        cmocka_unit_test(leaving),
        cmocka_unit_test(what_is_left_moves),
        cmocka_unit_test(stopping),
        cmocka_unit_test(unlisted),
        cmocka_unit_test(a_switch),
        cmocka_unit_test(routes),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
