/* Goal: whatever a request says to its client goes out in the framing of its family and ends once:
 * pieces, a whole body, an instance's error, the coordinator's own, before and behind the head of a
 * stream, comments included. Method: a real server hands exchanges to the test, which drives
 * relay_out over them; the client is a plain socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/relay_out.h"
#include "tests/unit/coordinator/fake_cluster.h"

static struct {
    struct http_server *server;
    struct http_x *x;
    struct relay_out out;
    int n_gone;
} t;

static void on_request(void *arg, struct http_x *x) {
    (void)arg;
    t.x = x;
}

static bool has_x(void *arg) {
    (void)arg;
    return t.x != NULL;
}

static bool is_gone(void *arg) {
    (void)arg;
    return t.n_gone > 0;
}

static void on_gone(void *arg) {
    (void)arg;
    t.n_gone++;
    t.out.x = NULL;
}

static int set_up(void **state) {
    struct errbuf eb;
    struct http_server_opts o = {.host = "127.0.0.1", .on_request = on_request};
    (void)state;
    fc_open("{}");
    if (http_server_open(&t.server, fc.co.loop, &o, &eb) != ERR_OK) return -1;
    fc.port = http_server_port(t.server);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    http_server_close(&t.server);
    fc_close();
    return 0;
}

/* A client of a path, and what answers it. */
static void open_out(struct client *c, const char *path, bool stream) {
    char model[MODEL_NAME_BYTES_MAX + 1];
    t.x = NULL;
    t.n_gone = 0;
    fc.co.conf.sse_keep_alive_s = 0;
    client_ask(c, "POST", path, "", "{}");
    run_until(has_x, NULL);
    relay_out_open(&t.out, &fc.co, t.x, api_path_find("POST", path, model), stream, "77", on_gone,
                   NULL);
}

static void has_ended(struct client *c, int status, const char *body) {
    client_expect(c, status, body);
    assert_null(t.out.x);
    client_close(c);
    run_for(5);
    assert_int_equal(t.n_gone, 0); /* an end is no leaving */
}

static void a_whole_body(void **state) {
    struct client c;
    (void)state;
    open_out(&c, "/v1/completions", false);
    relay_out_piece(&t.out, "nobody waits for pieces", 5);
    assert_false(t.out.begun || t.out.head_sent);
    relay_out_last(&t.out, "{}", 2);
    run_until(client_done, &c);
    assert_true(client_has(&c, "RequestUUID: 77"));
    assert_true(client_has(&c, "Content-Type: application/json; charset=utf-8"));
    has_ended(&c, 200, "{}");
}

static void a_stream(void **state) {
    struct client c;
    (void)state;
    open_out(&c, "/v1/completions", true);
    relay_out_piece(&t.out, "", 0);
    assert_false(t.out.begun || t.out.head_sent);
    relay_out_piece(&t.out, "data: 1\n\n", 9);
    assert_true(t.out.begun && t.out.head_sent);
    relay_out_last(&t.out, "data: 2\n\n", 9);
    run_until(client_done, &c);
    assert_true(client_has(&c, "Content-Type: text/event-stream; charset=utf-8"));
    assert_true(client_has(&c, "Cache-Control: no-cache"));
    has_ended(&c, 200, "data: 1\n\ndata: 2\n\n");
}

/* The errors of an instance and of the coordinator, where nothing, a head, or pieces are out. */
static void errors(void **state) {
    static const struct {
        const char *path, *event; /* what a body becomes behind a head */
    } rows[] = {
        {"/v1/completions", "data: {\"error\":\"e\"}\n\ndata: [DONE]\n\n"},
        {"/generate_stream", "data: {\"error\":\"e\"}\n\n"},
        {"/v2/models/m/generate_stream", "data:{\"error\":\"e\"}\n\n"},
        {"/infer", "data: {\"error\":\"e\"}\n\n"},
    };
    static const char body[] = "{\"error\":\"e\"}\r\n", framed[] = "data: framed by D\n\n";
    struct client c;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char want[128];
        open_out(&c, rows[i].path, true);
        relay_out_error(&t.out, 503, NULL, body, sizeof(body) - 1, true);
        run_until(client_done, &c);
        assert_true(client_has(&c, "Retry-After: 1"));
        has_ended(&c, 503, body);

        open_out(&c, rows[i].path, true);
        fc.co.conf.sse_keep_alive_s = 1;
        relay_out_tick(&t.out, t.out.last_write_ms + 1000);
        assert_true(t.out.head_sent && !t.out.begun);
        relay_out_error(&t.out, 503, NULL, body, sizeof(body) - 1, true);
        snprintf(want, sizeof(want), ":\n\n%s", rows[i].event);
        has_ended(&c, 200, want);

        open_out(&c, rows[i].path, true);
        relay_out_piece(&t.out, "data: 1\n\n", 9);
        relay_out_error(&t.out, 500, NULL, framed, sizeof(framed) - 1, true);
        has_ended(&c, 200, "data: 1\n\ndata: framed by D\n\n");

        open_out(&c, rows[i].path, true);
        relay_out_piece(&t.out, "data: 1\n\n", 9);
        relay_out_error(&t.out, 422, NULL, body, sizeof(body) - 1, false); /* of P */
        snprintf(want, sizeof(want), "data: 1\n\n%s", rows[i].event);
        has_ended(&c, 200, want);

        open_out(&c, rows[i].path, true);
        relay_out_fail(&t.out, 429, "too much");
        run_until(client_done, &c);
        assert_int_equal(client_status(&c), 429);
        assert_true(client_has(&c, "Retry-After: 1"));
        client_close(&c);
    }
}

/* Zero bytes end the frames of vLLM's stream, and it has no comments. */
static void frames_of_vllm(void **state) {
    struct client c;
    (void)state;
    open_out(&c, "/generate", true);
    fc.co.conf.sse_keep_alive_s = 1;
    relay_out_tick(&t.out, t.out.last_write_ms + 5000);
    assert_false(t.out.head_sent);
    relay_out_piece(&t.out, "{\"text\":[]}\0", 12);
    relay_out_fail(&t.out, 500, "gone");
    run_until(client_done, &c);
    static const char end[] = "\"error_type\":\"Incomplete Generation\"}\0\r\n0\r\n\r\n";
    assert_memory_equal(c.in.data + c.in.len - (sizeof(end) - 1), end, sizeof(end) - 1);
    client_close(&c);
}

static void comments_when_it_is_silent(void **state) {
    struct client c;
    (void)state;
    open_out(&c, "/generate_stream", true);
    fc.co.conf.sse_keep_alive_s = 2;
    const uint64_t now = t.out.last_write_ms;
    relay_out_tick(&t.out, now + 1999);
    assert_false(t.out.head_sent);
    relay_out_tick(&t.out, now + 2000);
    relay_out_tick(&t.out, now + 3999);
    relay_out_tick(&t.out, now + 4000);
    relay_out_last(&t.out, "data: 1\n\n", 9);
    has_ended(&c, 200, ":\n\n:\n\ndata: 1\n\n");
    open_out(&c, "/generate", false); /* who waits for a body gets none */
    fc.co.conf.sse_keep_alive_s = 1;
    relay_out_tick(&t.out, t.out.last_write_ms + 9000);
    relay_out_last(&t.out, "{}", 2);
    has_ended(&c, 200, "{}");
}

static void which_attempt(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.attempts_header = true;
    for (int how = 0; how < 3; how++) {
        open_out(&c, "/infer", how == 0);
        t.out.attempt = 3;
        if (how < 2)
            relay_out_last(&t.out, "{}", 2);
        else
            relay_out_fail(&t.out, 500, "x");
        run_until(client_done, &c);
        assert_true(client_has(&c, "x-baton-attempts: 3"));
        client_close(&c);
    }
    fc.co.conf.attempts_header = false;
    open_out(&c, "/infer", true);
    relay_out_last(&t.out, "", 0);
    run_until(client_done, &c);
    assert_false(client_has(&c, "x-baton-attempts"));
    client_close(&c);
}

static void a_client_leaves(void **state) {
    struct client c;
    (void)state;
    open_out(&c, "/infer", true);
    relay_out_piece(&t.out, "data: 1\n\n", 9);
    client_close(&c);
    run_until(is_gone, NULL);
    assert_int_equal(t.n_gone, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_body),    cmocka_unit_test(a_stream),
        cmocka_unit_test(errors),          cmocka_unit_test(frames_of_vllm),
        cmocka_unit_test(which_attempt),   cmocka_unit_test(comments_when_it_is_silent),
        cmocka_unit_test(a_client_leaves),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
