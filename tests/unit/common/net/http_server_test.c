/* Goal: the server keeps its contract on real sockets: what it answers, when it closes, what it
 * tells handlers. Method: clients of the test speak raw bytes (raw_http.h), good and bad, to the
 * server of http_server_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/unit/common/net/http_server_fixture.h"

static void answers_and_keeps_alive(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    exchange(fd, "GET /echo?a=b%20 HTTP/1.1\r\nHost: h\r\nX-Tag: t\r\n\r\n",
             HEAD_OK "Content-Length: 0\r\nX-Method: GET\r\nX-Query: a=b%20\r\nX-Tag: t\r\n\r\n");
    exchange(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
             HEAD_OK "Content-Length: 5\r\nX-Method: POST\r\nX-Query: \r\n\r\nhello");
    exchange(fd,
             "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
             "chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
             HEAD_OK "Content-Length: 5\r\nX-Method: POST\r\nX-Query: \r\n\r\nhello");
    exchange(fd, "HEAD /close HTTP/1.1\r\nHost: h\r\n\r\n",
             HEAD_OK "Content-Length: 3\r\nConnection: close\r\n\r\n");
    assert_ends(fd);
    fd = raw_connect(fx.port);
    exchange(fd, "GET /204 HTTP/1.1\r\nHost: h\r\n\r\n",
             "HTTP/1.1 204 No Content\r\nServer: test\r\n\r\n");
    exchange(fd, "GET /inject HTTP/1.1\r\nHost: h\r\n\r\n",
             HEAD_OK "Content-Length: 2\r\nX-Good: 1\r\n\r\nok");
    exchange(fd, "GET /204 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
             "HTTP/1.1 204 No Content\r\nServer: test\r\nConnection: close\r\n\r\n");
    assert_ends(fd);
    down();
}

static void http_1_0(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    exchange(fd, "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
             "HTTP/1.1 404 Not Found\r\nServer: test\r\nContent-Type: "
             "text/plain\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nno");
    exchange(fd, "GET /x HTTP/1.0\r\n\r\n",
             "HTTP/1.1 404 Not Found\r\nServer: test\r\nContent-Type: "
             "text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    assert_ends(fd);
    assert_string_equal(whole("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
                        "HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: "
                        "text/event-stream\r\nConnection: close\r\n\r\nonetwo");
    down();
}

static void peer_address(void **state) {
    struct sockaddr_in a;
    socklen_t len = sizeof(a);
    char want[40];
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    getsockname(fd, (struct sockaddr *)&a, &len);
    int n = snprintf(want, sizeof(want), "127.0.0.1:%u", (unsigned)ntohs(a.sin_port));
    raw_send(fd, "GET /peer HTTP/1.1\r\nHost: h\r\n\r\n");
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_string_equal(fx.answer.data + fx.answer.len - n, want);
    close(fd);
    down();
}

static void byte_by_byte(void **state) {
    static const char text[] = "POST /echo?q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                               "chunked\r\n\r\n3;x\r\nabc\r\n1\r\nd\r\n0\r\nT: v\r\n\r\n";
    (void)state;
    up();
    int fd = raw_connect(fx.port), one = 1;
    setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(text) - 1; i++) assert_true(raw_send_n(fd, text + i, 1));
        raw_answer(fd, &fx.in, &fx.answer, false);
        assert_string_equal(fx.answer.data, HEAD_OK
                            "Content-Length: 4\r\nX-Method: POST\r\nX-Query: q\r\n\r\nabcd");
    }
    close(fd);
    down();
}

#define STREAM_HEAD                                                                                \
    "HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "    \
    "chunked\r\n\r\n"
#define STREAM_ANSWER STREAM_HEAD "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"

static void pipelining_keeps_order(void **state) {
    enum { N = 40 };
    struct buf all = BUF_INIT;
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    for (int i = 0; i < N; i++) {
        if (i % 10 == 5)
            buf_puts(&all, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n");
        else if (i % 10 == 7)
            buf_puts(&all, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
        else
            buf_printf(&all, "POST /echo?%d HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n%03d",
                       i, i);
    }
    assert_true(raw_send_n(fd, all.data, all.len));
    for (int i = 0; i < N; i++) {
        char want[100];
        if (i % 10 == 7) {
            raw_until(fd, &fx.in, "0\r\n\r\n");
            assert_ptr_equal(strstr(fx.in.data, STREAM_ANSWER), fx.in.data);
            buf_consume(&fx.in, (size_t)(strstr(fx.in.data, "0\r\n\r\n") + 5 - fx.in.data));
            continue;
        }
        raw_answer(fd, &fx.in, &fx.answer, false);
        if (i % 10 == 5)
            snprintf(want, sizeof(want), "\r\n\r\nslow");
        else
            snprintf(want, sizeof(want), "X-Query: %d\r\n\r\n%03d", i, i);
        assert_non_null(strstr(fx.answer.data, want));
    }
    assert_int_equal(fx.in.len, 0);
    assert_int_equal(fx.n_requests, N);
    buf_free(&all);
    close(fd);
    down();
}

/* Far more requests than the server takes in ahead, from a client that reads nothing for a while.
 */
static void expect_continue(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    raw_send(fd,
             "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    raw_until(fd, &fx.in, "\r\n\r\n");
    assert_string_equal(fx.in.data, "HTTP/1.1 100 Continue\r\n\r\n");
    buf_clear(&fx.in);
    exchange(fd, "ok", HEAD_OK "Content-Length: 2\r\nX-Method: POST\r\nX-Query: \r\n\r\nok");
    /* no interim answer when the body is there already, or when there is none */
    exchange(
        fd, "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
        HEAD_OK "Content-Length: 2\r\nX-Method: POST\r\nX-Query: \r\n\r\nok");
    exchange(fd,
             "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
             HEAD_OK "Content-Length: 0\r\nX-Method: POST\r\nX-Query: \r\n\r\n");
    close(fd);
    down();
}

static void streams(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    raw_send(fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
    raw_recv(fd, &fx.in); /* one write per pass: all of it comes at once */
    assert_string_equal(fx.in.data, STREAM_ANSWER);
    buf_clear(&fx.in);
    exchange(fd, "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n", STREAM_HEAD);
    exchange(fd, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n",
             "HTTP/1.1 404 Not Found\r\nServer: test\r\nContent-Type: "
             "text/plain\r\nContent-Length: 2\r\n\r\nno");
    close(fd);
    /* an abort shows: the last chunk is missing */
    assert_string_equal(whole("GET /abort HTTP/1.1\r\nHost: h\r\n\r\n"),
                        STREAM_HEAD "3\r\none\r\n3\r\ntwo\r\n");
    /* and without chunks it is a reset */
    fd = raw_connect(fx.port);
    buf_clear(&fx.in);
    raw_send(fd, "GET /abort HTTP/1.0\r\n\r\n");
    ssize_t n;
    while ((n = raw_recv(fd, &fx.in)) > 0) {}
    assert_int_equal(n, -1);
    assert_int_equal(errno, ECONNRESET);
    close(fd);
    assert_int_equal(fx.n_closed, 0);
    down();
}

static void half_close(void **state) {
    (void)state;
    up();
    /* answered at once: the answer arrives */
    int fd = raw_connect(fx.port);
    raw_send(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_true(fx.answer.len > BIG_BYTES);
    assert_ends(fd);
    /* answered later: it counts as gone, as documented */
    fd = raw_connect(fx.port);
    raw_send(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_held == 1);
    assert_int_equal(fx.n_closed, 0);
    shutdown(fd, SHUT_WR);
    WAIT_FOR(fx.n_closed == 1);
    assert_ends(fd);
    /* in the middle of a request, and before any */
    fd = raw_connect(fx.port);
    raw_send(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
    shutdown(fd, SHUT_WR);
    assert_ends(fd);
    fd = raw_connect(fx.port);
    shutdown(fd, SHUT_WR);
    assert_ends(fd);
    WAIT_FOR(conns() == 0);
    down();
}

static void client_gone(void **state) {
    struct linger reset = {.l_onoff = 1};
    (void)state;
    up();
    for (int i = 0; i < 3; i++) { /* an answer not begun, closed and reset; a stream begun */
        int fd = raw_connect(fx.port);
        raw_send(fd, i == 2 ? "GET /stream-hold HTTP/1.1\r\nHost: h\r\n\r\n"
                            : "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
        WAIT_FOR(fx.n_held == i + 1);
        if (i == 1) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        uint64_t start_ms = clock_ms();
        close(fd);
        WAIT_FOR(fx.n_closed == i + 1);
        assert_true(clock_ms() - start_ms < 2000);
    }
    WAIT_FOR(conns() == 0);
    down();
}

static void late_on_close(void *arg) {
    (void)arg;
    http_x_on_close(fx.held, on_close, NULL);
}

static void late_on_close_then_reply(void *arg) {
    (void)arg;
    http_x_on_close(fx.held, on_close, NULL);
    release(NULL);
}

static void late_on_close_forgotten(void *arg) {
    (void)arg;
    http_x_on_close(fx.held, on_close, NULL);
    http_x_on_close(fx.held, NULL, NULL);
}

static void gone_before_the_handler_asks(void **state) {
    loop_fn *const then[] = {release, late_on_close, late_on_close_then_reply};
    (void)state;
    up();
    for (int i = 0; i < 4; i++) {
        int fd = raw_connect(fx.port);
        raw_send(fd, "GET /hold-plain HTTP/1.1\r\nHost: h\r\n\r\n");
        WAIT_FOR(fx.n_held == i + 1);
        close(fd);
        WAIT_FOR(conns() == 0);
        if (i < 3) {
            run_on_loop(&fx.t, then[i], NULL);
        } else {
            run_on_loop(&fx.t, late_on_close_forgotten, NULL);
            run_on_loop(&fx.t, release, NULL); /* x is still the handler's */
        }
        if (i == 1) WAIT_FOR(fx.n_closed == 1);
    }
    assert_int_equal(fx.n_closed, 1);
    down();
}

static void answer_comes_once_released(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    raw_send(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_held == 1);
    run_on_loop(&fx.t, release, NULL);
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_string_equal(fx.answer.data, HEAD_OK "Content-Length: 8\r\n\r\nreleased");
    close(fd);
    WAIT_FOR(conns() == 0);
    assert_int_equal(fx.n_closed, 0); /* not after a complete answer */
    down();
}

static void stop_accepting(void *arg) {
    (void)arg;
    http_server_stop_accepting(fx.server);
}

static void close_with_open_exchanges(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port), quiet = raw_connect(fx.port);
    raw_send(fd, "GET /stream-hold HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_held == 1);
    run_on_loop(&fx.t, stop_accepting, NULL);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(fx.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int late = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(late, (struct sockaddr *)&a, sizeof(a)), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(late);
    assert_int_equal(conns(), 2);
    down();
    assert_int_equal(fx.n_closed, 1);
    raw_to_end(fd, &fx.in);
    assert_non_null(strstr(fx.in.data, "two")); /* what was written before is not lost */
    buf_clear(&fx.in);
    assert_ends(quiet);
    close(fd);
}

static void close_from_handler(void *arg) {
    struct http_x *x = fx.held;
    (void)arg;
    fx.held = NULL;
    http_x_reply(x, 200, "text/plain", "last", 4);
    http_server_close(&fx.server);
}

static void close_right_after_an_answer(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    raw_send(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_held == 1);
    run_on_loop(&fx.t, close_from_handler, NULL);
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_non_null(strstr(fx.answer.data, "last"));
    assert_ends(fd);
    loop_thread_stop(&fx.t);
}

static void open_errors(void **state) {
    enum err e;
    struct http_server *first;
    (void)state;
    up();
    first = fx.server;
    fx.opts.port = fx.port;
    run_on_loop(&fx.t, open_server, &e);
    assert_int_equal(e, ERR_CONFLICT);
    assert_null(fx.server);
    assert_non_null(strstr(fx.eb.text, "cannot listen on 127.0.0.1:"));
    fx.opts.port = 0;
    static const char *const bad[] = {"localhost", "", "1.2.3", "256.0.0.1", "::x"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fx.opts.host = bad[i];
        run_on_loop(&fx.t, open_server, &e);
        assert_int_equal(e, ERR_INVALID);
    }
    fx.server = first;
    down();
}

/* Many at once, opening and closing, some leaving early: nothing is lost and nothing stays. */
static void *visitor(void *arg) {
    struct buf in = BUF_INIT, answer = BUF_INIT;
    long *n_ok = arg;
    for (int i = 0; i < 40; i++) {
        int fd = raw_connect(fx.port);
        raw_send(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nokGET /stream "
                     "HTTP/1.1\r\nHost: h\r\n\r\n");
        if (i % 4 != 3) {
            buf_clear(&in);
            raw_answer(fd, &in, &answer, false);
            raw_until(fd, &in, "0\r\n\r\n");
            *n_ok += 1;
        }
        close(fd);
    }
    buf_free(&in);
    buf_free(&answer);
    return NULL;
}

static void many_visitors(void **state) {
    pthread_t t[4];
    long n_ok[4] = {0};
    (void)state;
    up();
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, visitor, &n_ok[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(n_ok[i], 30);
    }
    WAIT_FOR(conns() == 0);
    down();
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(answers_and_keeps_alive),
        T(http_1_0),
        T(peer_address),
        T(byte_by_byte),
        T(pipelining_keeps_order),
        T(expect_continue),
        T(streams),
        T(half_close),
        T(client_gone),
        T(gone_before_the_handler_asks),
        T(answer_comes_once_released),
        T(close_with_open_exchanges),
        T(close_right_after_an_answer),
        T(open_errors),
        T(many_visitors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
