/* Goal: a body is read off the loop into a request or an answer, exactly once, and a cancelled
 * reading gives back what it made without a word. Method: a real endpoint
 * (tests/unit/common/endpoint/ fixture.h), text pool and HTTP server; a job that holds the pool's
 * only thread makes the moments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "common/instance/inst_internal.h"
#include "common/instance/req_read.h"
#include "tests/unit/common/endpoint/fixture.h"
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(20000)

static struct {
    struct instance in;
    struct fixture f;
    struct http_server *server;
    struct http_client *client;
    pthread_mutex_t gate;
    struct http_x *x; /* the last request */
    size_t replay_bytes;
    int n_requests, n_gate_done;
    /* what came back */
    struct req_read *reading;
    int n_back;
    struct infer_req *req;
    struct api_answer err;
} t;

static void late(void *arg) {
    (void)arg;
    abort(); /* a fact did not come: nothing else can tell from inside the loop */
}

static void look(void *arg) {
    int *const *pair = arg;
    if (*pair[0] >= *pair[1]) loop_stop(t.in.loop);
}

static void wait_count(int *counter, int n) {
    int *pair[2] = {counter, &n};
    struct loop_timer *a = NULL, *b = NULL;
    assert_int_equal(loop_timer_start(&a, t.in.loop, 0, 1, look, pair), ERR_OK);
    assert_int_equal(loop_timer_start(&b, t.in.loop, DEADLINE_MS, 0, late, NULL), ERR_OK);
    loop_run(t.in.loop);
    loop_timer_stop(&a);
    loop_timer_stop(&b);
}

static void on_request(void *arg, struct http_x *x) {
    (void)arg;
    t.x = x;
    t.n_requests++;
}

static void on_done(void *arg, const struct http_result *r) {
    (void)arg, (void)r;
}

static void on_read(void *arg, struct infer_req *req, struct api_answer *err) {
    if (arg != &t || (req == NULL) == (err == NULL)) abort();
    t.n_back++;
    t.reading = NULL;
    t.req = req;
    if (err != NULL) t.err = *err;
}

/* ---- up and down */
static int set_up(void **state) {
    struct errbuf eb;
    struct http_server_opts o = {.host = "127.0.0.1", .on_request = on_request};
    (void)state;
    memset(&t, 0, sizeof(t));
    fixture_init(&t.f, false);
    fixture_open(&t.f);
    t.in.endpoint = t.f.ep;
    pthread_mutex_init(&t.gate, NULL);
    assert_int_equal(loop_create(&t.in.loop), ERR_OK);
    assert_int_equal(text_pool_open(&t.in.text_pool, t.in.loop, 1, 2), ERR_OK);
    assert_int_equal(http_server_open(&t.server, t.in.loop, &o, &eb), ERR_OK);
    assert_int_equal(http_client_create(&t.client, t.in.loop, "t"), ERR_OK);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    http_server_close(&t.server);
    http_client_destroy(&t.client);
    text_pool_close(&t.in.text_pool);
    loop_destroy(&t.in.loop);
    fixture_close(&t.f);
    pthread_mutex_destroy(&t.gate);
    infer_req_destroy(&t.req);
    buf_free(&t.err.body);
    return 0;
}

/* A client's request, up to where a role would get it. */
static struct http_x *ask(const char *body) {
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/generate", http_server_port(t.server));
    struct http_call_opts o = {
        .method = "POST", .url = url, .body = body, .body_len = strlen(body), .on_done = on_done};
    assert_int_equal(http_client_call(t.client, &o, NULL), ERR_OK);
    wait_count(&t.n_requests, t.n_requests + 1);
    return t.x;
}

static enum err start(struct http_x *x) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    const struct req_read_opts o = {.path = api_path_find("POST", "/generate", model),
                                    .path_model = "",
                                    .req_id = "77",
                                    .tenant = "key-1",
                                    .replay_bytes = t.replay_bytes};
    return req_read_start(&t.reading, &t.in, x, &o, on_read, &t);
}

/* ---- a job that keeps the pool busy */
static void gate_work(void *arg) {
    (void)arg;
    pthread_mutex_lock(&t.gate);
    pthread_mutex_unlock(&t.gate);
}
static void gate_done(void *arg) {
    (void)arg;
    t.n_gate_done++;
}
static void shut_gate(void) {
    pthread_mutex_lock(&t.gate);
    assert_int_equal(text_pool_run(t.in.text_pool, "", gate_work, gate_done, NULL), ERR_OK);
}

#define GOOD "{\"inputs\":\" a b\",\"parameters\":{\"max_new_tokens\":3,\"seed\":9}}"

static void a_request(void **state) {
    (void)state;
    struct http_x *x = ask(GOOD);
    assert_int_equal(start(x), ERR_OK);
    assert_non_null(t.reading);
    http_x_reply(x, 200, NULL, "", 0); /* the exchange need not outlive the call */
    wait_count(&t.n_back, 1);
    assert_non_null(t.req);
    assert_string_equal(t.req->head.req_id, "77");
    assert_int_equal(t.req->n_prompt, 2);
    assert_int_equal(t.req->sampling.seed, 9);
    assert_string_equal(t.req->head.tenant, "key-1");
}

/* Seeds that nobody gave are not the same twice. */
static void seeds(void **state) {
    uint64_t first;
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct http_x *x = ask("{\"inputs\":\" a\",\"parameters\":{\"do_sample\":true}}");
        assert_int_equal(start(x), ERR_OK);
        http_x_reply(x, 200, NULL, "", 0);
        wait_count(&t.n_back, i + 1);
        assert_non_null(t.req);
        if (i == 0) {
            first = t.req->sampling.seed;
        } else {
            assert_true(t.req->sampling.seed != first);
        }
        infer_req_destroy(&t.req);
    }
}

static void a_refusal(void **state) {
    (void)state;
    struct http_x *x = ask("{\"inputs\":5}");
    assert_int_equal(start(x), ERR_OK);
    wait_count(&t.n_back, 1);
    assert_null(t.req);
    assert_int_equal(t.err.status, 422);
    assert_true(t.err.body.len > 0);
    http_x_reply(x, 422, NULL, "", 0);
}

/* Forgotten before, while and after the pool works on it: no word, and nothing is left (the
 * sanitizers see). */
static void cancelled(void **state) {
    static const char *const bodies[] = {GOOD, "{\"inputs\":5}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        int gates = t.n_gate_done;
        shut_gate();
        struct http_x *x = ask(bodies[i]);
        assert_int_equal(start(x), ERR_OK);
        http_x_reply(x, 200, NULL, "", 0);
        req_read_cancel(&t.reading);
        assert_null(t.reading);
        req_read_cancel(&t.reading);
        pthread_mutex_unlock(&t.gate);
        wait_count(&t.n_gate_done, gates + 1);
        /* one more job behind it: when that is back, so is the cancelled one */
        assert_int_equal(text_pool_run(t.in.text_pool, "", gate_work, gate_done, NULL), ERR_OK);
        wait_count(&t.n_gate_done, gates + 2);
        assert_int_equal(t.n_back, 0);
    }
}

/* Too many bodies wait: ERR_BUSY, and nothing was started. */
static void busy(void **state) {
    (void)state;
    shut_gate();
    struct http_x *x = ask(GOOD);
    int n = 0;
    enum err e;
    struct req_read *all[8];
    while ((e = start(x)) == ERR_OK && n < 8) all[n++] = t.reading;
    for (int i = 0; i < n; i++) req_read_cancel(&all[i]);
    pthread_mutex_unlock(
        &t.gate); /* before any check: one that fails must not leave the pool waiting */
    assert_int_equal(e, ERR_BUSY);
    assert_true(n >= 1 && n <= 3); /* the gate's job may or may not have left the queue already */
    wait_count(&t.n_gate_done, 1);
    http_x_reply(x, 200, NULL, "", 0);
}

/* The pool closes with a reading under way: its owner has let go before, as roles do. */
static void pool_closes(void **state) {
    (void)state;
    shut_gate();
    struct http_x *x = ask(GOOD);
    assert_int_equal(start(x), ERR_OK);
    req_read_cancel(&t.reading);
    pthread_mutex_unlock(&t.gate);
    http_x_reply(x, 200, NULL, "", 0);
    text_pool_close(&t.in.text_pool);
    assert_int_equal(t.n_back, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(seeds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cancelled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pool_closes, set_up, tear_down),
    };
    log_init(LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
