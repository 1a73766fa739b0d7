/* Goal: what is too large, too slow, too much or malformed is answered and let go, and costs nobody
 * else. Method: both sides of each limit of the server, by raw clients against
 * http_server_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "common/net/http_conn.h"
#include "tests/unit/common/net/http_server_fixture.h"

static void pipelining_without_reading(void **state) {
    enum { N = 300 };
    static const char one[] = "GET /big HTTP/1.1\r\nHost: h\r\n\r\n";
    (void)state;
    fx.opts.write_ms = 200;
    up();
    int fd = raw_connect_buf(fx.port, 4096);
    for (int i = 0; i < N; i++) raw_send(fd, one);
    WAIT_FOR(fx.n_requests >= 1);
    WAIT_FOR(conns() == 0); /* the stuck write ends it; until then the server could have gone on */
    assert_in_range(fx.n_requests, 1, 2);
    close(fd);
    down();
}

static void bad_requests_close(void **state) {
    static const struct {
        const char *request, *status;
    } cases[] = {
        {"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: "
         "chunked\r\n\r\n0\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
         "400 Bad Request"},
        {"GET /echo HTTP/1.1\n\n", "400 Bad Request"},
        {"GET /echo HTTP/1.1\r\nHost : h\r\n\r\n", "400 Bad Request"},
        {"GET /echo HTTP/3.0\r\n\r\n", "505 HTTP Version Not Supported"},
        {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
         "501 Not Implemented"},
        {"POST /echo HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", "417 Expectation Failed"},
        {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
         "400 Bad Request"},
    };
    (void)state;
    up();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char want[80];
        snprintf(want, sizeof(want), "HTTP/1.1 %s\r\n", cases[i].status);
        const char *got = whole(cases[i].request);
        assert_int_equal(strncmp(got, want, strlen(want)), 0);
        assert_non_null(strstr(got, "Connection: close\r\n"));
        assert_null(strstr(
            got + 1, "HTTP/1.1 ")); /* one answer: what followed was not taken for a request */
    }
    assert_int_equal(fx.n_requests, 0);
    WAIT_FOR(conns() == 0);
    down();
}

static void head_limits(void **state) {
    size_t n = 1000000;
    char *head = malloc(n + 100), *end;
    (void)state;
    assert_non_null(head);
    up();
    end = stpcpy(head, "GET /echo HTTP/1.1\r\nHost: h\r\nX-Long: ");
    memset(end, 'x', n);
    strcpy(end + n, "\r\n\r\n");
    int fd = raw_connect(fx.port);
    raw_send_n(fd, head, strlen(head)); /* may break off: the server has answered long before */
    raw_until(fd, &fx.in, "\r\n\r\n");
    assert_int_equal(strncmp(fx.in.data, "HTTP/1.1 431 ", 13), 0);
    close(fd);
    buf_clear(&fx.in);
    end = stpcpy(head, "GET /");
    memset(end, 'x', 4200);
    strcpy(end + 4200, " HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(strncmp(whole(head), "HTTP/1.1 414 ", 13), 0);
    assert_int_equal(fx.n_requests, 0);
    free(head);
    down();
}

static void body_limits(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    /* the limit itself, and one more; the body of the second is never sent, and the answer comes
     * all the same */
    exchange(fd, "POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789",
             "HTTP/1.1 404 Not Found\r\nServer: test\r\nContent-Type: "
             "text/plain\r\nContent-Length: 2\r\n\r\nno");
    exchange(
        fd, "POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n",
        "HTTP/1.1 413 Content Too Large\r\nServer: test\r\nContent-Type: "
        "application/json\r\nContent-Length: 20\r\nConnection: close\r\n\r\nat most 10 on /small");
    assert_ends(fd);
    fd = raw_connect(fx.port);
    exchange(fd,
             "POST /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
             "chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
             "HTTP/1.1 404 Not Found\r\nServer: test\r\nContent-Type: "
             "text/plain\r\nContent-Length: 2\r\n\r\nno");
    raw_send(fd, "POST /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                 "chunked\r\n\r\nA\r\n0123456789\r\n1\r\nx");
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_int_equal(strncmp(fx.answer.data, "HTTP/1.1 413 ", 13), 0);
    assert_ends(fd);
    assert_int_equal(strncmp(whole("GET /none HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n"),
                             "HTTP/1.1 413 ", 13),
                     0);
    assert_int_equal(
        strncmp(
            whole("GET /none HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n"),
            "HTTP/1.1 413 ", 13),
        0);
    /* asked first: 413 instead of 100 */
    assert_int_equal(strncmp(whole("POST /small HTTP/1.1\r\nHost: h\r\nExpect: "
                                   "100-continue\r\nContent-Length: 99\r\n\r\n"),
                             "HTTP/1.1 413 ", 13),
                     0);
    assert_int_equal(fx.n_requests, 2);
    /* a client that sends all of a large body before it reads still sees the answer */
    fd = raw_connect(fx.port);
    raw_send(fd, "POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 8388608\r\n\r\n");
    assert_true(raw_send_n(fd, fx.big, BIG_BYTES));
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_int_equal(strncmp(fx.answer.data, "HTTP/1.1 413 ", 13), 0);
    close(fd);
    buf_clear(&fx.in);
    down();

    fx.opts.on_too_large = NULL;
    up();
    assert_non_null(strstr(whole("POST /small HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n"),
                           "\r\n\r\nrequest body too large\r\n"));
    down();
}

static void large_bodies(void **state) {
    (void)state;
    up();
    int fd = raw_connect(fx.port);
    for (size_t i = 0; i < BIG_BYTES; i++) fx.big[i] = (char)(i * 31 >> 3);
    raw_send(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 8388608\r\n\r\n");
    assert_true(raw_send_n(fd, fx.big, BIG_BYTES));
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_memory_equal(fx.answer.data + fx.answer.len - BIG_BYTES, fx.big, BIG_BYTES);
    close(fd);
    down();
}

static void time_limits(void **state) {
    (void)state;
    fx.opts.idle_ms = 120;
    fx.opts.read_ms = 120;
    fx.opts.write_ms = 120;
    up();
    uint64_t start_ms = clock_ms();
    int fd = raw_connect(fx.port); /* says nothing */
    assert_ends(fd);
    assert_true(clock_ms() - start_ms >= 110);
    /* a head that trickles: bytes do not extend the time */
    fd = raw_connect(fx.port);
    start_ms = clock_ms();
    for (int i = 0; raw_send_n(fd, "G", 1) && i < 1000; i++) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 10) > 0) break;
    }
    assert_in_range(clock_ms() - start_ms, 110, 5000);
    raw_to_end(fd, &fx.in);
    assert_int_equal(strncmp(fx.in.data, "HTTP/1.1 408 ", 13), 0);
    close(fd);
    /* a body that stops */
    start_ms = clock_ms();
    assert_int_equal(strncmp(whole("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe"),
                             "HTTP/1.1 408 ", 13),
                     0);
    assert_true(clock_ms() - start_ms >= 110);
    /* between two requests */
    fd = raw_connect(fx.port);
    buf_clear(&fx.in);
    raw_send(fd, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_ends(fd);
    /* a handler may take its time */
    fd = raw_connect(fx.port);
    raw_send(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    start_ms = clock_ms();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 400), 0);
    run_on_loop(&fx.t, release, NULL);
    raw_answer(fd, &fx.in, &fx.answer, false);
    close(fd);
    /* a write that is stuck: nobody reads */
    fd = raw_connect_buf(fx.port, 4096);
    raw_send(fd, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(conns() == 0);
    close(fd);
    buf_clear(&fx.in);
    down();
}

static void slow_reader_is_let_go(void **state) {
    (void)state;
    fx.opts.stream_pending_max = 1000000;
    up();
    int fd = raw_connect_buf(fx.port, 4096);
    raw_send(fd, "GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_closed == 1);
    WAIT_FOR(conns() == 0);
    close(fd);
    down();
}

/* The last answer says that it is the last, so that nobody asks again on this connection. */
static void requests_per_connection(void **state) {
    static const char ask[] = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok";
    (void)state;
    fx.opts.requests_per_conn_max = 2;
    up();
    int fd = raw_connect(fx.port);
    raw_send(fd, ask);
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_null(strstr(fx.answer.data, "Connection: close"));
    raw_send(fd, ask);
    raw_send(fd, ask); /* behind the last one: never looked at */
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_int_equal(strncmp(fx.answer.data, "HTTP/1.1 200 ", 13), 0);
    assert_non_null(strstr(fx.answer.data, "\r\nConnection: close\r\n"));
    assert_ends(fd);
    assert_int_equal(fx.n_requests, 2);
    down();
}

static void ask(int fd) {
    raw_send(fd, "GET /x HTTP/1.1\r\nHost: h\r\n\r\n");
    raw_answer(fd, &fx.in, &fx.answer, false);
}

/* A full listener closes its oldest idle connection for a new one; one that is busy never. */
static void connection_cap(void **state) {
    int fd[4];
    (void)state;
    fx.opts.conns_max = 2;
    up();
    for (int i = 0; i < 2; i++) ask(fd[i] = raw_connect(fx.port));
    ask(fd[0]); /* so that the second idles longer */
    ask(fd[2] = raw_connect(fx.port));
    assert_ends(fd[1]);
    assert_int_equal(conns(), 2);
    raw_send(fd[0], "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_held == 1);
    raw_send(fd[2], "GET /hold-plain HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_held == 2);
    fd[3] = raw_connect(fx.port);
    assert_ends(fd[3]);
    run_on_loop(&fx.t, release, NULL);
    raw_answer(fd[2], &fx.in, &fx.answer, false);
    ask(fd[3] = raw_connect(fx.port));
    close(fd[0]);
    close(fd[3]);
    down();
}

/* A client whose head is under way, and another that comes when the listener is full: true when the
 * second was refused, whose place is the first one's as long as its head has come just now. Else
 * the first one gave way: on a busy machine that was not just now, or nothing of its head had been
 * read yet, and it was idle. */
static bool newcomer_is_refused(int *first) {
    *first = raw_connect(fx.port);
    raw_send(*first, "GET /x HTT");
    WAIT_FOR(conns() == 2);
    int second = raw_connect(fx.port);
    struct pollfd p[2] = {{.fd = *first, .events = POLLIN}, {.fd = second, .events = POLLIN}};
    assert_true(poll(p, 2, DEADLINE_MS) > 0);
    bool refused = p[1].revents != 0;
    if (refused) {
        assert_int_equal(p[0].revents, 0);
        assert_ends(second);
        return true;
    }
    assert_ends(*first);
    close(second);
    WAIT_FOR(conns() == 1);
    return false;
}

/* A head that does not come in a tenth of a second, or a reader that is slow for two, is no reason
 * to refuse others. */
static void slow_clients_give_way(void **state) {
    int fd[3];
    (void)state;
    fx.opts.conns_max = 2;
    up();
    const uint64_t start_ms = clock_ms();
    do { /* until all of them came just now */
        assert_true(clock_ms() - start_ms < DEADLINE_MS);
        fd[0] = raw_connect_buf(fx.port, 4096);
        fx.n_requests = 0;
        raw_send(fd[0], "GET /big HTTP/1.1\r\nHost: h\r\n\r\n");
        WAIT_FOR(fx.n_requests == 1);
        if (newcomer_is_refused(&fd[1])) break;
        close(fd[0]);
        WAIT_FOR(conns() == 0);
    } while (true);
    usleep(1000 * (HTTP_HEAD_YIELD_MS + 1));
    ask(fd[2] = raw_connect(fx.port)); /* for the head */
    raw_to_end(fd[1], &fx.in);
    assert_string_equal(fx.in.data, "");
    close(fd[1]);
    raw_send(fd[2], "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
    WAIT_FOR(fx.n_held == 1);
    usleep(1000 * (HTTP_YIELD_MS + 100)); /* a write that is stuck may still move a little first */
    ask(fd[1] = raw_connect(fx.port));    /* for the reader */
    for (int i = 0; i < 3; i++) close(fd[i]);
    down();
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(pipelining_without_reading),
        T(bad_requests_close),
        T(head_limits),
        T(body_limits),
        T(large_bodies),
        T(time_limits),
        T(slow_reader_is_let_go),
        T(requests_per_connection),
        T(connection_cap),
        T(slow_clients_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
