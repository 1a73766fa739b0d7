/* http_server_fixture: a server on a loop thread whose handlers are chosen by path, for the tests
 * of the server. What a handler saw is in counters that a test waits for. */
#ifndef BATON_TESTS_HTTP_SERVER_FIXTURE_H
#define BATON_TESTS_HTTP_SERVER_FIXTURE_H

#include <stdatomic.h>
#include "common/net/http_server.h"
#include "tests/unit/common/net/raw_http.h"

enum { BIG_BYTES = 8 * 1024 * 1024, BODY_MAX = 16 * 1024 * 1024 };

static struct {
    struct loop_thread t;
    struct http_server *server;
    struct errbuf eb;
    struct http_server_opts opts;
    uint16_t port;
    struct http_x *held; /* loop thread */
    struct loop_timer *slow_timer;
    atomic_int n_requests, n_closed, n_held;
    char *big;
    struct buf in, answer;
} fx;

static void on_close(void *arg) {
    (void)arg;
    fx.held = NULL;
    atomic_fetch_add(&fx.n_closed, 1);
}

static void hold(struct http_x *x) {
    fx.held = x;
    atomic_fetch_add(&fx.n_held, 1);
}

static void flood_more(void *arg) {
    (void)arg;
    if (fx.held == NULL) return;
    http_x_stream_write(fx.held, fx.big, 65536);
    if (loop_post(fx.t.loop, flood_more, NULL) != ERR_OK) abort();
}

static void slow_reply(void *arg) {
    struct http_x *x = arg;
    loop_timer_stop(&fx.slow_timer);
    http_x_reply(x, 200, "text/plain", "slow", 4);
}

static void stream_pieces(struct http_x *x, bool end) {
    http_x_stream_begin(x, 200, "text/event-stream");
    http_x_stream_write(x, "one", 3);
    http_x_stream_write(x, "", 0);
    http_x_stream_write(x, "two", 3);
    if (end) http_x_stream_end(x);
}

static void on_request(void *arg, struct http_x *x) {
    const char *path = http_x_path(x);
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)arg;
    atomic_fetch_add(&fx.n_requests, 1);
    if (strcmp(path, "/echo") == 0) {
        http_x_set_header(x, "X-Method", http_x_method(x));
        http_x_set_header(x, "X-Query", http_x_query(x));
        if (http_x_header(x, "x-tag") != NULL)
            http_x_set_header(x, "X-Tag", http_x_header(x, "x-tag"));
        http_x_reply(x, 200, "text/plain", body, n);
    } else if (strcmp(path, "/hold") == 0) {
        http_x_on_close(x, on_close, NULL);
        hold(x);
    } else if (strcmp(path, "/hold-plain") == 0) {
        hold(x);
    } else if (strcmp(path, "/slow") == 0) {
        if (loop_timer_start(&fx.slow_timer, fx.t.loop, 30, 0, slow_reply, x) != ERR_OK) abort();
    } else if (strcmp(path, "/stream") == 0) {
        stream_pieces(x, true);
    } else if (strcmp(path, "/stream-hold") == 0) {
        http_x_on_close(x, on_close, NULL);
        stream_pieces(x, false);
        hold(x);
    } else if (strcmp(path, "/flood") == 0) {
        http_x_on_close(x, on_close, NULL);
        http_x_stream_begin(x, 200, "text/plain");
        hold(x);
        flood_more(NULL);
    } else if (strcmp(path, "/big") == 0) {
        http_x_reply(x, 200, "application/octet-stream", fx.big, BIG_BYTES);
    } else if (strcmp(path, "/abort") == 0) {
        http_x_on_close(x, on_close, NULL);
        stream_pieces(x, false);
        http_x_abort(x);
    } else if (strcmp(path, "/inject") == 0) {
        http_x_set_header(x, "X-Bad", "a\r\nX-Evil: 1");
        http_x_set_header(x, "X-Bad\r\nX-Evil", "1");
        http_x_set_header(x, "X Bad", "1");
        http_x_set_header(x, "", "1");
        http_x_set_header(x, "Content-Length", "99");
        http_x_set_header(x, "Transfer-Encoding", "chunked");
        http_x_set_header(x, "X-Good", "1");
        http_x_reply(x, 200, "text/plain", "ok", 2);
    } else if (strcmp(path, "/close") == 0) {
        http_x_set_header(x, "Connection", "close");
        http_x_reply(x, 200, "text/plain", "bye", 3);
    } else if (strcmp(path, "/204") == 0) {
        http_x_reply(x, 204, "text/plain", "never", 5);
    } else if (strcmp(path, "/peer") == 0) {
        http_x_reply(x, 200, "text/plain", http_x_peer(x), strlen(http_x_peer(x)));
    } else {
        http_x_reply(x, 404, "text/plain", "no", 2);
    }
}

static size_t body_bytes_max(void *arg, const char *method, const char *path) {
    (void)arg;
    (void)method;
    return strcmp(path, "/none") == 0 ? 0 : strcmp(path, "/small") == 0 ? 10 : BODY_MAX;
}

static void on_too_large(void *arg, struct http_x *x, size_t max) {
    char text[60];
    (void)arg;
    int n = snprintf(text, sizeof(text), "at most %zu on %s", max, http_x_path(x));
    http_x_reply(x, 413, "application/json", text, (size_t)n);
}

static void open_server(void *arg) {
    *(enum err *)arg = http_server_open(&fx.server, fx.t.loop, &fx.opts, &fx.eb);
}

static void close_server(void *arg) {
    (void)arg;
    http_server_close(&fx.server);
}

static int setup(void **state) {
    (void)state;
    atomic_store(&fx.n_requests, 0);
    atomic_store(&fx.n_closed, 0);
    atomic_store(&fx.n_held, 0);
    fx.held = NULL;
    fx.opts = (struct http_server_opts){
        .host = "127.0.0.1",
        .name = "test",
        .conns_max = 100,
        .head_bytes_max = 16384,
        .idle_ms = 60000,
        .read_ms = 60000,
        .write_ms = 60000,
        .body_bytes_max = body_bytes_max,
        .on_too_large = on_too_large,
        .on_request = on_request,
    };
    fx.big = calloc(1, BIG_BYTES);
    return fx.big == NULL ? -1 : 0;
}

/* After the test has set fx.opts to its taste. */
static inline void up(void) {
    enum err e;
    loop_thread_start(&fx.t);
    run_on_loop(&fx.t, open_server, &e);
    if (e != ERR_OK) fail_msg("%s", fx.eb.text);
    fx.port = http_server_port(fx.server);
    assert_true(fx.port > 0);
}

static inline void down(void) {
    run_on_loop(&fx.t, close_server, NULL);
    loop_thread_stop(&fx.t);
}

static int teardown(void **state) {
    (void)state;
    free(fx.big);
    buf_free(&fx.in);
    buf_free(&fx.answer);
    return 0;
}

static void count_conns(void *arg) {
    *(unsigned *)arg = http_server_conns(fx.server);
}

static inline unsigned conns(void) {
    unsigned n;
    run_on_loop(&fx.t, count_conns, &n);
    return n;
}

static inline void release(void *arg) {
    struct http_x *x = fx.held;
    (void)arg;
    fx.held = NULL;
    if (x != NULL) http_x_reply(x, 200, "text/plain", "released", 8);
}

/* Sends a request and compares the whole answer. */
static inline void exchange(int fd, const char *request, const char *want) {
    raw_send(fd, request);
    raw_answer(fd, &fx.in, &fx.answer, strncmp(request, "HEAD", 4) == 0);
    assert_string_equal(fx.answer.data, want);
}

static inline void assert_ends(int fd) {
    raw_to_end(fd, &fx.in);
    assert_string_equal(fx.in.data, "");
    close(fd);
}

/* One request on a fresh connection; everything up to the close, in fx.in. */
static inline const char *whole(const char *request) {
    int fd = raw_connect(fx.port);
    buf_clear(&fx.in);
    raw_send(fd, request);
    raw_to_end(fd, &fx.in);
    close(fd);
    return fx.in.data;
}

#define HEAD_OK "HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: text/plain\r\n"

#endif
