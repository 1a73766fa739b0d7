/* Goal: a standalone instance answers every request exactly once, in good cases and bad, and on
 * every way out of a request gives back what it held.
 * Method: the real role over real HTTP, text pool and engine thread, around an engine and an
 * endpoint without a model (fake_engine.h, fake_instance.h): answers are compared with what a
 * straight computation gives; the engine is held to stop a request at a stage. */
#include "common/instance/role.h"
#include "tests/unit/fakes/role_fixture.h"

/* ---- one instance and its clients */

struct ask {
    struct http_call *call;
    bool answered;
    int status; /* of the head of a stream, too */
    struct buf text;
    char type[64];
};

static bool on_piece(void *arg, const char *p, size_t n) {
    buf_append(&((struct ask *)arg)->text, p, n);
    return true;
}
static void on_head(void *arg, int status) {
    ((struct ask *)arg)->status = status;
}
static void on_end(void *arg, const struct http_result *r) {
    struct ask *a = arg;
    a->call = NULL;
    a->answered = true;
    a->status = r->err == ERR_OK ? r->status : -(int)r->err;
    if (r->content_type != NULL) snprintf(a->type, sizeof(a->type), "%s", r->content_type);
    if (r->body_len > 0) buf_append(&a->text, r->body, r->body_len);
}

/* c->p is the instance; d and the listener are not used. */
static void solo_up(struct cluster *c, const struct fake_engine_opts *o) {
    memset(c, 0, sizeof(*c));
    log_init(LOG_NONE, 2);
    assert_int_equal(loop_create(&c->loop), ERR_OK);
    assert_int_equal(http_client_create(&c->client, c->loop, "test"), ERR_OK);
    fake_instance_open(&c->p, c->loop, &mixed_role, P_ID, o);
}

static bool solo_idle(void *arg) {
    struct cluster *c = arg;
    struct engine_stats st;
    struct role_load load = load_of(&c->p);
    engine_stats(worker_engine(c->p.worker), &st);
    return load.waiting + load.running + load.leases == 0 && st.blocks_free == st.blocks_total &&
           st.slots_free == st.slots_total && st.waiting + st.held + st.importing == 0;
}

static void solo_down(struct cluster *c) {
    WAIT_FOR(c, solo_idle, c);
    fake_instance_close(&c->p);
    http_client_destroy(&c->client);
    loop_destroy(&c->loop);
}

static void send_to(struct cluster *c, struct ask *a, const char *body) {
    char url[64];
    *a = (struct ask){0};
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/completions", http_server_port(c->p.server));
    const struct http_call_opts o = {.method = "POST",
                                     .url = url,
                                     .body = body,
                                     .body_len = strlen(body),
                                     .on_data = on_piece,
                                     .on_headers = on_head,
                                     .on_done = on_end,
                                     .arg = a};
    assert_int_equal(http_client_call(c->client, &o, &a->call), ERR_OK);
}

static bool is_answered(void *arg) {
    return ((struct ask *)arg)->answered;
}
static bool has_text(void *arg) {
    return ((struct ask *)arg)->text.len > 0;
}
static bool one_waits(void *arg) {
    return load_of(&((struct cluster *)arg)->p).waiting == 1;
}
static bool one_runs(void *arg) {
    return load_of(&((struct cluster *)arg)->p).running == 1;
}
static bool is_queued(void *arg) {
    struct engine_stats st;
    engine_stats(worker_engine(((struct cluster *)arg)->p.worker), &st);
    return st.waiting > 0;
}

static const char *text_of(const struct ask *a) {
    return a->text.data != NULL ? a->text.data : "";
}

static void expect(struct cluster *c, struct ask *a, int status, const char *text) {
    WAIT_FOR(c, is_answered, a);
    if (a->status != status || strcmp(text_of(a), text) != 0)
        fail_msg("%d \"%s\", expected %d \"%s\"", a->status, text_of(a), status, text);
    buf_free(&a->text);
}

/* The answer a straight computation gives. */
static void expect_good(struct cluster *c, struct ask *a, const char *body) {
    struct buf want = BUF_INIT;
    int32_t tokens[TOKENS_MAX];
    size_t n;
    fake_expected(body, BT, &want, tokens, &n);
    expect(c, a, 200, want.data);
    assert_string_equal(a->type, body[0] == '1' ? "text/event-stream" : "application/json");
    buf_free(&want);
}

#define LONG "1 200 -1 0 0 : 5 6 8"
#define FULL "0 200 -1 0 0 : 5 6 8"

/* ---- good answers */

static void answers_are_those_of_the_engine(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "0 6 -1 0 0 : 5 6 8 9 11",
        "1 6 -1 0 0 : 5 6 8 9 11",
        "0 1 -1 0 0 : 5",
        "1 1 -1 0 0 : 5",
        "1 9 -1 1 0 : 5 6 8 9 11",
        "0 9 -1 1 0 : 5 6 8 9 11",
        "0 6 -1 0 0 *3 : 5 6 8 9",
        "0 6 -1 0 0 : 5 6 8 | 9 11 12",
        "0 5 -1 1 0 *2 : 5 6 | 9 | 3 4",
        "1 12 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13",
    };
    enum { N = sizeof(bodies) / sizeof(bodies[0]) };
    struct cluster c;
    struct ask asks[N];
    solo_up(&c, &roomy);
    for (int i = 0; i < N; i++) { /* one after another */
        send_to(&c, &asks[i], bodies[i]);
        expect_good(&c, &asks[i], bodies[i]);
    }
    for (int i = 0; i < N; i++) send_to(&c, &asks[i], bodies[i]); /* and together */
    for (int i = 0; i < N; i++) expect_good(&c, &asks[i], bodies[i]);
    solo_down(&c);
}

/* The endpoint finds a stop string, the engine does not: its sequence is stopped. */
static void a_stop_string_ends_the_sequence_too(void **state) {
    (void)state;
    const int32_t ids[3] = {5, 6, 8};
    int32_t first = fake_token(ids, 3, 3, BT, NULL, 0), generated[] = {first};
    char body[64];
    struct cluster c;
    struct ask a;
    solo_up(&c, &roomy);
    for (int stream = 0; stream < 2; stream++) {
        for (int at = 0; at < 2; at++) {
            int32_t stop = at == 0 ? first : fake_token(ids, 3, 3, BT, generated, 1);
            snprintf(body, sizeof(body), "%d 200 %d 0 0 : 5 6 8", stream, (int)stop);
            send_to(&c, &a, body);
            expect_good(&c, &a, body);
            WAIT_FOR(&c, solo_idle, &c);
        }
    }
    solo_down(&c);
}

/* ---- refusals */

static void refusals(void **state) {
    (void)state;
    const struct fake_engine_opts small = {
        .n_blocks = 4, .batch_max = 1, .queue_max = 1, .block_tokens = BT, .chunk_blocks = 1};
    struct cluster c;
    struct ask a, waits, more;
    solo_up(&c, &small);
    send_to(&c, &a, "nonsense");
    expect(&c, &a, 422, "{\"error\":\"bad body\"}");
    send_to(&c, &a, "0 4 -1 0 0 : 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17");
    expect(&c, &a, 424,
           "{\"error\":\"Failed to enqueue inferRequest. needs 6 KV blocks, the pool has 4\"}");
    hold(&c.p, true); /* one waits, the next is one too many */
    send_to(&c, &waits, "0 4 -1 0 0 : 1 2 3");
    WAIT_FOR(&c, is_queued, &c);
    send_to(&c, &more, "0 4 -1 0 0 : 1 2 3");
    WAIT_FOR(&c, is_answered, &more);
    expect(&c, &more, 429, "{\"error\":\"Too many requests\"}");
    hold(&c.p, false);
    expect_good(&c, &waits, "0 4 -1 0 0 : 1 2 3");
    solo_down(&c);
}

static void no_memory_for_an_answer(void **state) {
    (void)state;
    struct cluster c;
    struct ask a;
    solo_up(&c, &roomy);
    fake_answer_fails_at = 1;
    send_to(&c, &a, FULL);
    expect(&c, &a, 503, "{\"error\":\"out of memory\"}");
    assert_int_equal(fake_engine_n_added(c.p.engine), 0);
    send_to(&c, &a, "0 3 -1 0 0 : 5");
    expect_good(&c, &a, "0 3 -1 0 0 : 5");
    solo_down(&c);
}

/* ---- ways out */

/* The client leaves while its request waits, and while it runs. */
static void a_client_that_goes(void **state) {
    (void)state;
    static const char *const bodies[] = {LONG, FULL, "1 200 -1 0 0 *3 : 5 6 | 8 9"};
    struct cluster c;
    struct ask a;
    solo_up(&c, &roomy);
    for (int i = 0; i < 3; i++) {
        for (int runs = 0; runs < 2; runs++) {
            hold(&c.p, true);
            send_to(&c, &a, bodies[i]);
            WAIT_FOR(&c, one_waits, &c);
            if (runs) {
                allow(&c.p, 2);
                WAIT_FOR(&c, one_runs, &c);
            }
            http_call_cancel(&a.call);
            buf_free(&a.text);
            hold(&c.p, false);
            WAIT_FOR(&c, solo_idle, &c);
        }
    }
    solo_down(&c);
}

/* stopInfer: the client gets its normal end with what there is. */
static void a_request_that_is_stopped(void **state) {
    (void)state;
    struct cluster c;
    struct ask a;
    char id[16];
    int n = 0;
    solo_up(&c, &roomy);
    assert_false(req_set_stop(c.p.reqs, "m1", NULL, UINT32_MAX));
    for (int stream = 0; stream < 2; stream++) {
        hold(&c.p, true);
        send_to(&c, &a, stream ? LONG : FULL);
        WAIT_FOR(&c, one_waits, &c);
        allow(&c.p, 2);
        WAIT_FOR(&c, one_runs, &c);
        snprintf(id, sizeof(id), "m%d", ++n); /* fake_instance.h */
        assert_false(req_set_stop(c.p.reqs, "m9", NULL, UINT32_MAX));
        assert_true(req_set_stop(c.p.reqs, id, NULL, UINT32_MAX));
        assert_false(req_set_stop(c.p.reqs, id, NULL, UINT32_MAX));
        hold(&c.p, false);
        WAIT_FOR(&c, is_answered, &a);
        assert_int_equal(a.status, 200);
        assert_non_null(strstr(text_of(&a), ":abort:"));
        buf_free(&a.text);
        WAIT_FOR(&c, solo_idle, &c);
    }
    solo_down(&c);
}

static void an_engine_that_fails(void **state) {
    (void)state;
    struct cluster c;
    struct ask a, b;
    solo_up(&c, &roomy);
    fake_engine_fail_next(c.p.engine);
    send_to(&c, &a, FULL);
    expect(&c, &a, 500, "{\"error\":\"Failed to get engine response.\"}");
    hold(&c.p, true); /* in the middle of a stream: one event, and the end */
    send_to(&c, &b, LONG);
    WAIT_FOR(&c, one_waits, &c);
    for (int i = 0; i < 100 && !has_text(&b); i++) {
        allow(&c.p, 1);
        wait_ms(c.loop, has_text, &b, 20);
    }
    assert_true(has_text(&b));
    fake_engine_fail_next(c.p.engine);
    hold(&c.p, false);
    WAIT_FOR(&c, is_answered, &b);
    assert_int_equal(b.status, 200);
    assert_non_null(strstr(text_of(&b), "event: 500 Failed to get engine response."));
    buf_free(&b.text);
    solo_down(&c);
}

/* The request's own time, the silence between two tokens, the whole. */
static void time_outs(void **state) {
    (void)state;
    struct cluster c;
    struct ask own, silent, whole;
    solo_up(&c, &roomy);
    hold(&c.p, true);
    c.p.conf.token_timeout_s = 1;
    send_to(&c, &own, "0 200 -1 0 1 : 5 6 8");
    send_to(&c, &silent, LONG);
    expect(&c, &own, 500, "{\"error\":\"Engine callback timeout: client timeout\"}");
    expect(&c, &silent, 500, "{\"error\":\"Engine callback timeout: server tokenTimeout\"}");
    c.p.conf.token_timeout_s = 600;
    c.p.conf.e2e_timeout_s = 1;
    send_to(&c, &whole, FULL);
    expect(&c, &whole, 500, "{\"error\":\"Engine callback timeout: server e2eTimeout\"}");
    hold(&c.p, false);
    solo_down(&c);
}

static bool has_comment(void *arg) {
    struct ask *a = arg;
    return a->text.data != NULL && strstr(a->text.data, FAKE_COMMENT) != NULL;
}

/* A stream that is silent gets comment lines, an answer that is none does not. */
static void a_silent_stream_is_kept_alive(void **state) {
    (void)state;
    struct cluster c;
    struct ask a, b;
    solo_up(&c, &roomy);
    c.p.conf.sse_keep_alive_s = 1;
    hold(&c.p, true);
    send_to(&c, &a, LONG);
    send_to(&c, &b, FULL);
    for (int i = 0; i < 100 && !has_text(&a); i++) {
        allow(&c.p, 1);
        wait_ms(c.loop, has_text, &a, 20);
    }
    WAIT_FOR(&c, has_comment, &a);
    hold(&c.p, false);
    WAIT_FOR(&c, is_answered, &a);
    WAIT_FOR(&c, is_answered, &b);
    assert_non_null(strstr(text_of(&a), "(200:length:0)"));
    assert_false(has_comment(&b));
    buf_free(&a.text);
    buf_free(&b.text);
    solo_down(&c);
}

/* ---- the instance */

static void the_load(void **state) {
    (void)state;
    const struct fake_engine_opts one_slot = {
        .n_blocks = 64, .batch_max = 1, .queue_max = 8, .block_tokens = BT, .chunk_blocks = 2};
    struct cluster c;
    struct ask a, b;
    solo_up(&c, &one_slot);
    hold(&c.p, true);
    send_to(&c, &a, FULL);
    WAIT_FOR(&c, one_waits, &c);
    allow(&c.p, 1);
    WAIT_FOR(&c, one_runs, &c);
    send_to(&c, &b, FULL);
    WAIT_FOR(&c, one_waits, &c);
    assert_int_equal(load_of(&c.p).running, 1);
    assert_int_equal(load_of(&c.p).leases, 0);
    hold(&c.p, false);
    expect_good(&c, &a, FULL);
    expect_good(&c, &b, FULL);
    solo_down(&c);
}

static bool all_answered(void *arg) {
    struct ask *asks = arg;
    return asks[0].answered && asks[1].answered && asks[2].answered;
}

/* A drain that takes too long: whoever waits, runs or streams gets one error. */
static void all_are_ended(void **state) {
    (void)state;
    static const struct {
        enum err why;
        int status;
    } rows[] = {{ERR_STOPPING, 503}, {ERR_INTERNAL, 500}};
    for (int i = 0; i < 2; i++) {
        struct cluster c;
        struct ask asks[3];
        solo_up(&c, &roomy);
        hold(&c.p, true);
        send_to(&c, &asks[0], LONG);
        WAIT_FOR(&c, one_waits, &c);
        for (int k = 0; k < 100 && !has_text(&asks[0]); k++) {
            allow(&c.p, 1);
            wait_ms(c.loop, has_text, &asks[0], 20);
        }
        send_to(&c, &asks[1], FULL);
        WAIT_FOR(&c, one_waits, &c);
        send_to(&c, &asks[2], "nonsense"); /* still being read, perhaps */
        req_set_abort(c.p.reqs, ROLE_NONE, rows[i].why);
        hold(&c.p, false);
        WAIT_FOR(&c, all_answered, asks);
        assert_int_equal(asks[0].status, 200); /* its head was out */
        assert_non_null(strstr(text_of(&asks[0]), "event: 50"));
        assert_int_equal(asks[1].status, rows[i].status);
        for (int k = 0; k < 3; k++) buf_free(&asks[k].text);
        solo_down(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_the_engine),
        cmocka_unit_test(a_stop_string_ends_the_sequence_too),
        cmocka_unit_test(refusals),
        cmocka_unit_test(no_memory_for_an_answer),
        cmocka_unit_test(a_client_that_goes),
        cmocka_unit_test(a_request_that_is_stopped),
        cmocka_unit_test(an_engine_that_fails),
        cmocka_unit_test(time_outs),
        cmocka_unit_test(a_silent_stream_is_kept_alive),
        cmocka_unit_test(the_load),
        cmocka_unit_test(all_are_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
