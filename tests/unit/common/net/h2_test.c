/* Goal: a connection of HTTP/2 serves its streams side by side, however its bytes arrive, and each
 * end that a stream can have reaches who has to know of it. Method: a client that sends frames of
 * its own making (raw_h2.h) against http_server_fixture.h. RFC 9113 case by case:
 * tests/cluster/test_h2.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <netinet/tcp.h>
#include "tests/unit/common/net/http_server_fixture.h"
#include "tests/unit/common/net/raw_h2.h"

static struct raw_h2 c;

static void assert_answer(uint32_t id, int status, const char *body) {
    const struct raw_h2_stream *s = raw_h2_answer(&c, id);
    assert_int_equal(s->status, status);
    assert_true(s->ended);
    assert_string_equal(s->body.data, body);
}

static void streams_are_served_side_by_side(void **state) {
    (void)state;
    up();
    raw_h2_open(&c, fx.port);
    raw_h2_ask(&c, 1, "/hold");
    WAIT_FOR(fx.n_held == 1);
    raw_h2_ask(&c, 3, "/stream");
    assert_true(raw_h2_ask_with(&c, 5, "POST", "/echo", false, NULL));
    assert_true(raw_h2_data(&c, 5, "a bo", 4, false));
    raw_h2_ask(&c, 7, "/echo");
    assert_answer(7, 200, "");
    assert_answer(3, 200, "onetwo");
    assert_true(raw_h2_data(&c, 5, "dy", 2, true));
    assert_answer(5, 200, "a body");
    assert_false(raw_h2_stream(&c, 1)->ended);
    run_on_loop(&fx.t, release, NULL);
    assert_answer(1, 200, "released");
    assert_int_equal(fx.n_closed, 0);
    assert_int_equal(c.window, 262144);
    raw_h2_close(&c);
    WAIT_FOR(conns() == 0);
    down();
}

/* Everything that a frame can be cut in: the preface, heads of frames, blocks of fields. */
static void put_conversation(struct buf *out) {
    struct buf block = BUF_INIT;
    buf_append(out, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    raw_h2_put_settings(out, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 100000);
    raw_h2_block(&block, "POST", "/echo", (const char *const[]){"x-tag", "t", NULL});
    raw_h2_put(out, NGHTTP2_HEADERS, 0, 1, block.data, 3);
    raw_h2_put(out, NGHTTP2_CONTINUATION, 0, 1, block.data + 3, 7);
    raw_h2_put(out, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 1, block.data + 10,
               block.len - 10);
    raw_h2_put(out, NGHTTP2_DATA, 0, 1, "one ", 4);
    raw_h2_put(out, NGHTTP2_PING, 0, 0, "12345678", 8);
    raw_h2_put(out, NGHTTP2_DATA, 0, 1, "", 0);
    raw_h2_put(out, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, "two", 3);
    buf_free(&block);
}

static void nothing(void *arg) {
    (void)arg;
}

/* What was sent before has been read: it may have come behind the first call of its pass. */
static void read_so_far(void) {
    run_on_loop(&fx.t, nothing, NULL);
    run_on_loop(&fx.t, nothing, NULL);
}

static void bytes_arrive_in_any_pieces(void **state) {
    static const size_t pieces[] = {1, 2, 5, 9, 23, 10000};
    struct buf all = BUF_INIT;
    const int one = 1;
    (void)state;
    put_conversation(&all);
    up();
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        raw_h2_connect(&c, fx.port);
        assert_int_equal(setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
        for (size_t at = 0; at < all.len; at += pieces[i]) {
            const size_t left = all.len - at;
            assert_true(raw_send_n(c.fd, all.data + at, left < pieces[i] ? left : pieces[i]));
            read_so_far();
        }
        assert_answer(1, 200, "one two");
        RAW_H2_UNTIL(&c, c.n_pings == 1 && c.n_acks == 1);
        raw_h2_close(&c);
    }
    assert_int_equal(fx.n_requests, sizeof(pieces) / sizeof(pieces[0]));
    buf_free(&all);
    down();
}

static void upgrade_from_http_1(void **state) {
    static const struct {
        const char *settings;
        bool taken;
    } cases[] = {
        {"AAMAAABkAAQAAP__", true}, {"", true},      {"AAMAAABkAAQAAP__==", true},
        {"AAMAAABkAAQAAP_", false}, {"****", false}, /* no entries, no base64url */
    };
    (void)state;
    up();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char ask[256];
        snprintf(ask, sizeof(ask),
                 "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                 "Upgrade: h2c\r\nHTTP2-Settings: %s\r\n\r\n",
                 cases[i].settings);
        raw_h2_connect(&c, fx.port);
        raw_send(c.fd, ask);
        raw_until(c.fd, &c.in, "\r\n\r\n");
        const bool taken = strncmp(c.in.data, "HTTP/1.1 101 ", 13) == 0;
        if (taken != cases[i].taken) fail_msg("%s: %s", cases[i].settings, c.in.data);
        if (taken) {
            buf_consume(&c.in, (size_t)(strstr(c.in.data, "\r\n\r\n") + 4 - c.in.data));
            assert_true(raw_send_n(c.fd, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN));
            assert_true(raw_h2_settings(&c, 0, 0));
            assert_answer(1, 200, "");
            raw_h2_ask(&c, 3, "/stream");
            assert_answer(3, 200, "onetwo");
        } else {
            assert_int_equal(strncmp(c.in.data, "HTTP/1.1 200 ", 13), 0);
        }
        raw_h2_close(&c);
    }
    down();
}

static void trailers_are_dropped(void **state) {
    struct buf block = BUF_INIT;
    char long_value[9000];
    (void)state;
    memset(long_value, 'x', sizeof(long_value) - 1);
    long_value[sizeof(long_value) - 1] = 0;
    up();
    raw_h2_open(&c, fx.port);
    for (uint32_t id = 1; id <= 3; id += 2) {
        buf_clear(&block);
        raw_h2_field(&block, "x-tag", id == 1 ? "late" : long_value);
        assert_true(raw_h2_ask_with(&c, id, "POST", "/echo", false, NULL));
        assert_true(raw_h2_data(&c, id, "body", 4, false));
        assert_true(raw_h2_send(&c, NGHTTP2_HEADERS,
                                NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, id, block.data,
                                block.len));
    }
    assert_answer(1, 200, "body");
    assert_true(raw_h2_answer(&c, 3)->is_reset);
    assert_int_equal(fx.n_requests, 1);
    raw_h2_ask(&c, 5, "/echo"); /* what was dropped has been decoded */
    assert_answer(5, 200, "");
    buf_free(&block);
    raw_h2_close(&c);
    down();
}

static void an_answer_before_the_body(void **state) {
    (void)state;
    up();
    raw_h2_open(&c, fx.port);
    assert_true(raw_h2_ask_with(&c, 1, "POST", "/small", false,
                                (const char *const[]){"content-length", "11", NULL}));
    assert_answer(1, 413, "at most 10 on /small");
    RAW_H2_UNTIL(&c, c.s[0].is_reset);
    assert_int_equal(c.s[0].reset, NGHTTP2_NO_ERROR);
    assert_true(raw_h2_ask_with(&c, 3, "POST", "/small", false, NULL));
    assert_true(raw_h2_data(&c, 3, "0123456789", 10, false));
    assert_true(raw_h2_data(&c, 3, "x", 1, true));
    assert_answer(3, 413, "at most 10 on /small");
    assert_int_equal(fx.n_requests, 0);
    raw_h2_ask(&c, 5, "/echo");
    assert_answer(5, 200, "");
    raw_h2_close(&c);
    down();
}

static void ends_that_are_none(void **state) {
    (void)state;
    up();
    raw_h2_open(&c, fx.port);
    raw_h2_ask(&c, 1, "/abort"); /* by the handler */
    const struct raw_h2_stream *s = raw_h2_answer(&c, 1);
    assert_true(s->is_reset && !s->ended);
    assert_int_equal(s->reset, NGHTTP2_INTERNAL_ERROR);
    assert_string_equal(s->body.data, "onetwo"); /* what it had written comes first */
    assert_int_equal(fx.n_closed, 0);
    raw_h2_ask(&c, 3, "/hold"); /* by the client */
    WAIT_FOR(fx.n_held == 1);
    assert_true(raw_h2_reset(&c, 3, NGHTTP2_CANCEL));
    WAIT_FOR(fx.n_closed == 1);
    raw_h2_ask(&c, 5, "/stream-hold");
    WAIT_FOR(fx.n_held == 2);
    raw_h2_ask(&c, 7, "/echo");
    assert_answer(7, 200, "");
    raw_h2_close(&c); /* by the end of the connection */
    WAIT_FOR(fx.n_closed == 2);
    WAIT_FOR(conns() == 0);
    down();
}

static void leave(void *arg) {
    (void)arg;
    http_server_leave(fx.server);
}

static void a_server_that_leaves(void **state) {
    (void)state;
    up();
    raw_h2_open(&c, fx.port);
    raw_h2_ask(&c, 1, "/hold");
    WAIT_FOR(fx.n_held == 1);
    run_on_loop(&fx.t, leave, NULL);
    RAW_H2_UNTIL(&c, c.is_away);
    assert_int_equal(c.away, NGHTTP2_NO_ERROR);
    assert_int_equal(c.last_id, 1);
    run_on_loop(&fx.t, release, NULL);
    assert_answer(1, 200, "released");
    raw_h2_to_end(&c);
    raw_h2_close(&c);
    WAIT_FOR(conns() == 0);
    down();
}

/* ---- room */
static struct http_x *roomy;
static atomic_int n_rooms;

static void on_room(void *arg) {
    struct http_x *x = arg;
    assert_true(http_x_pending(x) <= 1000);
    atomic_fetch_add(&n_rooms, 1);
    http_x_stream_write(x, "end", 3);
    roomy = NULL;
    http_x_on_close(x, NULL, NULL);
    http_x_stream_end(x);
}

static void on_roomy_gone(void *arg) {
    (void)arg;
    roomy = NULL;
    atomic_fetch_add(&fx.n_closed, 1);
}

enum { ROOM_BYTES = 4 * 1024 * 1024 };

static void serve_room(void *arg, struct http_x *x) {
    (void)arg;
    roomy = x;
    http_x_on_close(x, on_roomy_gone, NULL);
    http_x_stream_begin(x, 200, "text/plain");
    http_x_stream_write(x, fx.big, ROOM_BYTES);
    http_x_on_room(x, SIZE_MAX, on_room, x); /* one at a time: the first is forgotten */
    http_x_on_room(x, 1000, on_room, x);
    atomic_fetch_add(&fx.n_held, 1);
}

/* A handler is called when its client has taken what waited, and not before. */
static void room_is_told_over_http_2(void **state) {
    (void)state;
    fx.opts.on_request = serve_room;
    up();
    atomic_store(&n_rooms, 0);
    raw_h2_open_with(&c, fx.port, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1000);
    raw_h2_ask(&c, 1, "/");
    RAW_H2_UNTIL(&c, c.s[0].body.len == 1000);
    assert_true(raw_h2_ping(&c)); /* passes of the loop do not make it so */
    RAW_H2_UNTIL(&c, c.n_pings == 1);
    assert_int_equal(n_rooms, 0);
    assert_true(raw_h2_window(&c, 0, ROOM_BYTES));
    assert_true(raw_h2_window(&c, 1, ROOM_BYTES - 1000 - 1001));
    RAW_H2_UNTIL(&c, c.s[0].body.len == ROOM_BYTES - 1001);
    assert_true(raw_h2_ping(&c));
    RAW_H2_UNTIL(&c, c.n_pings == 2);
    assert_int_equal(n_rooms, 0); /* a byte too many */
    assert_true(raw_h2_window(&c, 1, 1));
    WAIT_FOR(n_rooms == 1);
    assert_true(raw_h2_window(&c, 1, ROOM_BYTES));
    RAW_H2_UNTIL(&c, c.s[0].ended);
    assert_int_equal(c.s[0].body.len, ROOM_BYTES + 3);
    raw_h2_ask(&c, 3, "/"); /* whose client goes: nobody is called */
    WAIT_FOR(fx.n_held == 2);
    assert_true(raw_h2_reset(&c, 3, NGHTTP2_CANCEL));
    WAIT_FOR(fx.n_closed == 1);
    assert_int_equal(n_rooms, 1);
    raw_h2_close(&c);
    WAIT_FOR(conns() == 0);
    down();
}

static void room_is_told_over_http_1(void **state) {
    (void)state;
    fx.opts.on_request = serve_room;
    up();
    atomic_store(&n_rooms, 0);
    int fd = raw_connect_buf(fx.port, 4096);
    raw_send(fd, "GET / HTTP/1.0\r\n\r\n");
    WAIT_FOR(fx.n_held == 1);
    usleep(20000);
    assert_int_equal(n_rooms, 0); /* 4 MiB are more than the sockets hold */
    raw_to_end(fd, &fx.in);
    assert_int_equal(n_rooms, 1);
    const size_t head = (size_t)(strstr(fx.in.data, "\r\n\r\n") + 4 - fx.in.data);
    assert_int_equal(fx.in.len, head + ROOM_BYTES + 3);
    close(fd);
    down();
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(streams_are_served_side_by_side),
        T(bytes_arrive_in_any_pieces),
        T(upgrade_from_http_1),
        T(trailers_are_dropped),
        T(an_answer_before_the_body),
        T(ends_that_are_none),
        T(a_server_that_leaves),
        T(room_is_told_over_http_2),
        T(room_is_told_over_http_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
