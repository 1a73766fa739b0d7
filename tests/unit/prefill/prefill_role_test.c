/* Goal:   a prefill instance answers its coordinator as cluster-api 5.2 says, in good cases and
 * bad, and on every way out of a request gives back what it held on both sides. Method: both roles
 * real, over real HTTP, KV link and engine thread, around an engine without a model whose tokens
 * follow from the KV bytes; engines are held to stop a request at a stage. */
#include "tests/unit/fakes/role_fixture.h"

/* ---- good answers */

static void the_answer_has_the_members_of_the_contract(void **state) {
    (void)state;
    struct cluster c;
    char v[256];
    cluster_up(&c, &roomy, &roomy);
    struct flight *x = post(&c, "a1", "1 6 -1 0 0 : 5 6 8 9 11");
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 200);
    member(x, "reqId", v, sizeof(v));
    assert_string_equal(v, "a1");
    member(x, "isStream", v, sizeof(v));
    assert_string_equal(v, "true");
    member(x, "isLastResp", v, sizeof(v));
    assert_string_equal(v, "false");
    member(x, "promptTokens", v, sizeof(v));
    assert_string_equal(v, "5");
    member(x, "seed", v, sizeof(v));
    assert_string_equal(v, "1"); /* the instance's first random number */
    member(x, "kvBlocks", v, sizeof(v));
    assert_string_equal(v, "2");
    member(x, "kvBlocksHeld", v, sizeof(v));
    assert_string_equal(v, "0");
    member(x, "kvBytes", v, sizeof(v));
    assert_int_equal(atoi(v), 2 * FAKE_LAYERS * BT * 8);
    member(x, "kvExposedMs", v, sizeof(v));
    assert_true(atof(v) > 0);
    WAIT_FOR(&c, fact_ended, x);
    /* not streaming and not finished: neither output nor isLastResp */
    x = post(&c, "a2", "0 6 -1 0 0 : 5 6 8 9 11");
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(
        memcmp(x->body, "{\"reqId\":\"a2\",\"isStream\":false,\"promptTokens\":5,", 48), 0);
    assert_null(strstr(x->body, "output"));
    WAIT_FOR(&c, fact_ended, x);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void a_first_token_that_ends_the_request_is_the_whole_answer(void **state) {
    (void)state;
    struct cluster c;
    char v[256];
    cluster_up(&c, &roomy, &roomy);
    for (int stream = 0; stream <= 1; stream++) {
        char body[64], id[16];
        struct buf want = BUF_INIT;
        int32_t tokens[8];
        size_t n;
        snprintf(body, sizeof(body), "%d 1 -1 1 0 : 5 6 8 9 11", stream);
        snprintf(id, sizeof(id), "b%d", stream);
        fake_expected(body, BT, &want, tokens, &n);
        struct flight *x = post(&c, id, body);
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->status, 200);
        member(x, "isLastResp", v, sizeof(v));
        assert_string_equal(v, "true");
        member(x, "output", v, sizeof(v));
        assert_string_equal(v, want.data);
        assert_null(strstr(x->body, "kvBytes")); /* no hand-over took place */
        buf_free(&want);
        WAIT_FOR(&c, fact_idle, &c);
        assert_int_equal(x->n_frames, 0);
    }
    cluster_down(&c);
}

/* ---- errors before anything ran */

static void bad_headers_and_bodies_are_answered_and_disturb_nothing(void **state) {
    (void)state;
    struct cluster c;
    char target[64];
    cluster_up(&c, &roomy, &roomy);
    snprintf(target, sizeof(target), "d-target: 127.0.0.1;%u", kv_plane_port(c.d.kv_plane));
    const struct {
        const char *headers[5];
        const char *body, *text;
        int status;
    } cases[] = {
        {{"req-type: prefill", target, NULL},
         "1 4 -1 0 0 : 5",
         "DMI request must have req-type, req-id, d-target headers",
         400},
        {{"req-type: prefill", "req-id: xyz", target, NULL},
         "1 4 -1 0 0 : 5",
         "Invalid req-id",
         400},
        {{"req-type: prefill", "req-id: 1", target, NULL}, "nonsense", "bad body", 422},
        {{"req-type: prefill", "req-id: 1", "d-target: 127.0.0.9", NULL},
         "1 4 -1 0 0 : 5",
         "[P Node] Send D request failed!... the KV link is down",
         500},
        {{"req-type: prefill", "req-id: 1", "d-target: 127.0.0.1;1", NULL},
         "1 4 -1 0 0 : 5",
         "[P Node] Send D request failed!... the KV link is down",
         500},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct flight *x = post_with(&c, cases[i].headers, cases[i].body);
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->status, cases[i].status);
        if (strstr(x->body, cases[i].text) == NULL) fail_msg("%s lacks %s", x->body, cases[i].text);
    }
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void the_engine_s_refusals_are_passed_on(void **state) {
    (void)state;
    struct cluster c;
    const struct fake_engine_opts small_p = {
        .n_blocks = 4, .batch_max = 2, .queue_max = 1, .block_tokens = BT, .chunk_blocks = 1};
    cluster_up(&c, &small_p, &roomy);
    struct flight *x = post(&c, "d1", "1 4 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17");
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 424);
    assert_non_null(
        strstr(x->body, "Failed to enqueue inferRequest. needs 5 KV blocks, the pool has 4"));
    /* one waits (the engine does not run), the next is one too many */
    hold(&c.p, true);
    struct flight *first = post(&c, "d2", "1 4 -1 0 0 : 1 2 3");
    unsigned n_added = fake_engine_n_added(c.p.engine);
    while (fake_engine_n_added(c.p.engine) == n_added)
        assert_false(wait_ms(c.loop, fact_answered, first, 2));
    struct flight *second = post(&c, "d3", "1 4 -1 0 0 : 1 2 3");
    WAIT_FOR(&c, fact_answered, second);
    assert_int_equal(second->status, 424);
    assert_non_null(strstr(second->body, "Failed to enqueue inferRequest. the queue is full"));
    hold(&c.p, false);
    WAIT_FOR(&c, fact_answered, first);
    assert_int_equal(first->status, 200);
    WAIT_FOR(&c, fact_ended, first);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void a_decode_that_can_never_take_it_is_named(void **state) {
    (void)state;
    struct cluster c;
    const struct fake_engine_opts small_d = {
        .n_blocks = 3, .batch_max = 2, .queue_max = 4, .block_tokens = BT, .chunk_blocks = 1};
    cluster_up(&c, &roomy, &small_d);
    struct flight *x = post(&c, "e1", "1 4 -1 0 0 : 1 2 3 4 5 6 7 8 9 10");
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 424);
    assert_int_equal(x->cause, CAUSE_D_TOO_SMALL);
    assert_non_null(
        strstr(x->body, "Failed to enqueue inferRequest. needs 4 KV blocks, the pool has 3"));
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

static void a_failing_engine_is_a_500(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    fake_engine_fail_next(c.p.engine);
    struct flight *x = post(&c, "e2", "1 4 -1 0 0 : 1 2 3");
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 500);
    assert_non_null(strstr(x->body, "Failed to get engine response."));
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* ---- ends at every stage */

enum stage { WAITING_AT_P, OFFER_OPEN_AT_D, ALL_SENT_NO_GRANT, STAGE_COUNT };

/* Brings request x to a stage and keeps it there: P's engine held, or D's, or both. */
static struct flight *reach(struct cluster *c, enum stage s, const char *id) {
    hold(&c->p, s != ALL_SENT_NO_GRANT);
    unsigned n = fake_engine_n_added(c->d.engine);
    struct flight *x = post(c, id, "1 40 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13");
    WAIT_FOR(c, fact_p_running, c);
    if (s == OFFER_OPEN_AT_D) {
        allow(&c->p, 1); /* it is admitted, and not computed */
        uint64_t until = clock_ms() + DEADLINE_MS;
        while (fake_engine_n_added(c->d.engine) == n && clock_ms() < until)
            wait_ms(c->loop, fact_answered, x, 1);
        WAIT_FOR(c, fact_d_importing, c);
    }
    if (s == ALL_SENT_NO_GRANT) WAIT_FOR(c, fact_p_leases, c);
    return x;
}

/* A D whose slots are all taken never grants: the request stays between its offer and its grant. */
static const struct fake_engine_opts no_slots = {
    .n_blocks = 64, .batch_max = 0, .queue_max = 4, .block_tokens = BT, .chunk_blocks = 2};

static void a_client_that_goes_leaves_nothing_behind(void **state) {
    (void)state;
    for (int s = 0; s < STAGE_COUNT; s++) {
        struct cluster c;
        cluster_up(&c, &roomy, s == ALL_SENT_NO_GRANT ? &no_slots : &roomy);
        struct flight *x = reach(&c, (enum stage)s, "f1");
        http_call_cancel(&x->call);
        WAIT_FOR(&c, fact_idle, &c);
        assert_int_equal(x->n_frames, 0);
        hold(&c.p, false);
        if (s != ALL_SENT_NO_GRANT) { /* and the next request is served */
            struct flight *y = post(&c, "f2", "0 3 -1 0 0 : 1 2 3");
            WAIT_FOR(&c, fact_ended, y);
            WAIT_FOR(&c, fact_idle, &c);
        }
        cluster_down(&c);
    }
}

static void stop_infer_answers_424_at_every_stage(void **state) {
    (void)state;
    for (int s = 0; s < STAGE_COUNT; s++) {
        struct cluster c;
        cluster_up(&c, &roomy, s == ALL_SENT_NO_GRANT ? &no_slots : &roomy);
        struct flight *x = reach(&c, (enum stage)s, "f3");
        assert_false(req_set_stop(c.p.reqs, "f4", NULL, UINT32_MAX));
        assert_true(req_set_stop(c.p.reqs, "f3", NULL, UINT32_MAX));
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->status, 424);
        assert_non_null(strstr(x->body, "stopped"));
        assert_false(req_set_stop(c.p.reqs, "f3", NULL, UINT32_MAX));
        WAIT_FOR(&c, fact_idle, &c);
        cluster_down(&c);
    }
}

static void a_decode_that_dies_fails_only_its_requests(void **state) {
    (void)state;
    for (int s = 0; s < STAGE_COUNT; s++) {
        struct cluster c;
        cluster_up(&c, &roomy, s == ALL_SENT_NO_GRANT ? &no_slots : &roomy);
        struct flight *x = reach(&c, (enum stage)s, "f5");
        stop_listening(&c);
        fake_instance_close(&c.d);
        WAIT_FOR(&c, fact_answered, x);
        assert_int_equal(x->status, 500);
        assert_non_null(strstr(x->body, "[P Node] Send D request failed!... "));
        if (s == WAITING_AT_P) /* D knows nothing of it; of the others it takes its leave */
            assert_non_null(strstr(x->body, "the KV link is down"));
        WAIT_FOR(&c, fact_idle, &c);
        /* the instance it was is back: open it again so that the fixture ends as it began */
        fake_instance_open(&c.d, c.loop, &decode_role, D_ID, &roomy);
        cluster_down(&c);
    }
}

static void aborting_all_and_stopping_the_role_end_everything(void **state) {
    (void)state;
    for (int s = 0; s < STAGE_COUNT; s++) {
        for (int stop = 0; stop <= 1; stop++) {
            struct cluster c;
            cluster_up(&c, &roomy, s == ALL_SENT_NO_GRANT ? &no_slots : &roomy);
            struct flight *x = reach(&c, (enum stage)s, "f6");
            if (stop) {
                c.p.ops->stop(&c.p.role);
                assert_null(c.p.role);
            } else {
                req_set_abort(c.p.reqs, ROLE_NONE, ERR_STOPPING);
            }
            WAIT_FOR(&c, fact_answered, x);
            assert_int_equal(x->status, 503);
            WAIT_FOR(&c, fact_idle, &c);
            cluster_down(&c);
        }
    }
}

/* The program may end at any moment: nothing leaks and nothing touches what is gone (the sanitizers
 * watch). */
static void the_instance_may_close_at_every_stage(void **state) {
    (void)state;
    for (int s = 0; s < STAGE_COUNT; s++) {
        struct cluster c;
        cluster_up(&c, &roomy, s == ALL_SENT_NO_GRANT ? &no_slots : &roomy);
        reach(&c, (enum stage)s, "f7");
        cluster_down(&c);
    }
}

static void time_outs_are_a_424(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    hold(&c.p, true);
    c.p.conf.token_timeout_s = 1;
    struct flight *x = post(&c, "f8", "1 40 -1 0 0 : 1 2 3 4");
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 424);
    assert_non_null(strstr(x->body, "Engine callback timeout."));
    c.p.conf.token_timeout_s = 600;
    x = post(&c, "f9", "1 40 -1 0 1 : 1 2 3 4"); /* the request's own: one second */
    WAIT_FOR(&c, fact_answered, x);
    assert_int_equal(x->status, 424);
    WAIT_FOR(&c, fact_idle, &c);
    cluster_down(&c);
}

/* ---- attempts */

static void a_newer_attempt_takes_the_place_of_an_older(void **state) {
    (void)state;
    struct cluster c;
    cluster_up(&c, &roomy, &roomy);
    hold(&c.p, true);
    struct flight *one = post_epoch(&c, "aa", 1, "1 6 -1 0 0 : 1 2 3 4");
    WAIT_FOR(&c, fact_p_running, &c);
    struct flight *same = post_epoch(&c, "aa", 1, "1 6 -1 0 0 : 1 2 3 4");
    WAIT_FOR(&c, fact_answered, same);
    assert_int_equal(same->status, 500);
    same->epoch = UINT32_MAX; /* its frames are the first one's */
    struct flight *old = post_epoch(&c, "aa", 0, "1 6 -1 0 0 : 1 2 3 4");
    WAIT_FOR(&c, fact_answered, old);
    assert_int_equal(old->status, 500);
    struct flight *two = post_epoch(&c, "aa", 2, "1 6 -1 0 0 : 1 2 3 4");
    WAIT_FOR(&c, fact_answered, one);
    assert_int_equal(one->status, 424);
    hold(&c.p, false);
    WAIT_FOR(&c, fact_answered, two);
    assert_int_equal(two->status, 200);
    WAIT_FOR(&c, fact_ended, two);
    assert_int_equal(two->end, DR_LAST);
    WAIT_FOR(&c, fact_idle, &c);
    assert_int_equal(one->n_frames, 0);
    cluster_down(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_has_the_members_of_the_contract),
        cmocka_unit_test(a_first_token_that_ends_the_request_is_the_whole_answer),
        cmocka_unit_test(bad_headers_and_bodies_are_answered_and_disturb_nothing),
        cmocka_unit_test(the_engine_s_refusals_are_passed_on),
        cmocka_unit_test(a_decode_that_can_never_take_it_is_named),
        cmocka_unit_test(a_failing_engine_is_a_500),
        cmocka_unit_test(a_client_that_goes_leaves_nothing_behind),
        cmocka_unit_test(stop_infer_answers_424_at_every_stage),
        cmocka_unit_test(a_decode_that_dies_fails_only_its_requests),
        cmocka_unit_test(aborting_all_and_stopping_the_role_end_everything),
        cmocka_unit_test(the_instance_may_close_at_every_stage),
        cmocka_unit_test(time_outs_are_a_424),
        cmocka_unit_test(a_newer_attempt_takes_the_place_of_an_older),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
