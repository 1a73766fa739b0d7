/* Goal: what a client may waste over HTTP/2 is bounded as it is over HTTP/1.1, one client's waste
 * costs nobody else, and all that a connection took is given back however it ends. Method: both
 * sides of each limit, with frames of a client's own making (raw_h2.h) and the budgets beside them;
 * each allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "common/net/h2_priv.h"
#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/net/h2_fixture.h"

static struct raw_h2 c;

static void goes_on(uint32_t id) {
    raw_h2_ask(&c, id, "/echo");
    assert_int_equal(raw_h2_answer(&c, id)->status, 200);
}

static void assert_status(uint32_t id, int status) {
    const struct raw_h2_stream *s = raw_h2_answer(&c, id);
    assert_int_equal(s->status, status);
    assert_true(s->ended);
}

static void assert_reset(uint32_t id, uint32_t error) {
    const struct raw_h2_stream *s = raw_h2_answer(&c, id);
    assert_true(s->is_reset);
    assert_int_equal(s->reset, error);
}

/* The connection ends, and says why. */
static void assert_away(uint32_t error) {
    raw_h2_to_end(&c);
    assert_true(c.is_away);
    assert_int_equal(c.away, error);
}

static void hang_up(void) {
    raw_h2_close(&c);
    ASSERT_ALL_IS_BACK();
    gated_down();
}

/* ---- streams */
static void streams_at_once(void **state) {
    (void)state;
    fx.opts.h2_streams_max = 2;
    gated_up();
    raw_h2_open(&c, fx.port);
    raw_h2_ask(&c, 1, "/hold");
    raw_h2_ask(&c, 3, "/hold");
    WAIT_FOR(fx.n_held == 2);
    assert_int_equal(budget_used(&gated.budget, BUDGET_STREAMS), 2);
    raw_h2_ask(&c, 5, "/echo");
    assert_reset(5, NGHTTP2_REFUSED_STREAM);
    assert_int_equal(c.max_streams, 2);
    assert_int_equal(refusals(BUDGET_CONN_STREAMS), 1);
    assert_int_equal(budget_used(&gated.budget, BUDGET_STREAMS), 2);
    run_on_loop(&fx.t, release, NULL);
    assert_status(3, 200);
    goes_on(7);
    assert_true(raw_h2_reset(&c, 1, NGHTTP2_CANCEL));
    goes_on(9);
    assert_int_equal(fx.n_requests, 4);
    hang_up();
}

static void streams_of_all_connections(void **state) {
    struct raw_h2 other;
    (void)state;
    gated_up();
    budget_limit_set(&gated.budget, BUDGET_STREAMS, 1);
    raw_h2_open(&other, fx.port);
    raw_h2_ask(&other, 1, "/hold");
    WAIT_FOR(fx.n_held == 1);
    raw_h2_open(&c, fx.port);
    raw_h2_ask(&c, 1, "/echo");
    assert_reset(1, NGHTTP2_REFUSED_STREAM);
    assert_int_equal(refusals(BUDGET_STREAMS), 1);
    raw_h2_close(&other);
    WAIT_FOR(budget_used(&gated.budget, BUDGET_STREAMS) == 0);
    goes_on(3);
    hang_up();
}

/* ---- heads */
/* HEADERS and CONTINUATION, as many as it takes. */
static void ask_block(uint32_t id, const struct buf *block) {
    size_t at = 0;
    int type = NGHTTP2_HEADERS, flags = NGHTTP2_FLAG_END_STREAM;
    do {
        const size_t left = block->len - at, n = left < 16384 ? left : 16384;
        if (n == left) flags |= NGHTTP2_FLAG_END_HEADERS;
        assert_true(raw_h2_send(&c, type, flags, id, block->data + at, n));
        at += n;
        type = NGHTTP2_CONTINUATION;
        flags = 0;
    } while (at < block->len);
}

static void header_lists(void **state) {
    enum { MAX = 16384, FIXED = 7 + 3 + 7 + 4 + 10 + 1 + 5 + 5 + 4 * 32 + 5 + 32 };
    struct buf block = BUF_INIT;
    char *value = malloc(60001);
    (void)state;
    assert_non_null(value);
    gated_up();
    raw_h2_open(&c, fx.port);
    static const size_t lengths[] = {MAX - FIXED, MAX - FIXED + 1, 60000};
    for (uint32_t i = 0; i < 3; i++) { /* the list is counted as RFC 9113 6.5.2 does */
        memset(value, 'v', lengths[i]);
        value[lengths[i]] = 0;
        buf_clear(&block);
        raw_h2_block(&block, "GET", "/echo", (const char *const[]){"x-tag", value, NULL});
        ask_block(2 * i + 1, &block);
        assert_status(2 * i + 1, i == 0 ? 200 : 431);
    }
    assert_int_equal(c.max_list, MAX);
    buf_clear(&block);
    raw_h2_block(&block, "GET", "/echo", NULL);
    for (int i = 0; i < HTTP_HEADERS_MAX + 1; i++) raw_h2_field(&block, "a", "b");
    ask_block(7, &block);
    assert_status(7, 431);
    memset(value, 'p', HTTP_TARGET_BYTES_MAX + 1);
    value[0] = '/';
    value[HTTP_TARGET_BYTES_MAX + 1] = 0;
    buf_clear(&block);
    raw_h2_block(&block, "GET", value, NULL);
    ask_block(9, &block);
    assert_status(9, 414);
    goes_on(11);
    assert_int_equal(fx.n_requests, 2);
    free(value);
    buf_free(&block);
    hang_up();
}

/* What the peer remembers for us is bounded, and a head that refers to it is read. */
static void a_block_that_never_ends(void **state) {
    struct buf block = BUF_INIT;
    char junk[1000];
    (void)state;
    gated_up();
    raw_h2_open(&c, fx.port);
    raw_h2_block(&block, "GET", "/echo", NULL);
    assert_true(
        raw_h2_send(&c, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, block.data, block.len));
    buf_clear(&block);
    memset(junk, 'x', sizeof(junk) - 1);
    junk[sizeof(junk) - 1] = 0;
    raw_h2_field(&block, "a", junk);
    for (int n = 0; n < 5000; n++)
        if (!raw_h2_send(&c, NGHTTP2_CONTINUATION, 0, 1, block.data, block.len)) break;
    assert_away(NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(refusals(BUDGET_H2_CONTROL), 1);
    assert_int_equal(fx.n_requests, 0);
    buf_free(&block);
    hang_up();
}

static void empty_continuations(void **state) {
    (void)state;
    fx.opts.h2_control_rate = 10;
    gated_up();
    raw_h2_open(&c, fx.port);
    assert_true(raw_h2_send(&c, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, "", 0));
    for (int i = 0; i < 300 && raw_h2_send(&c, NGHTTP2_CONTINUATION, 0, 1, "", 0); i++) {}
    assert_away(NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(refusals(BUDGET_H2_CONTROL), 1);
    assert_int_equal(fx.n_requests, 0);
    hang_up();
}

/* ---- frames that ask for nothing */
static bool send_settings(void) {
    return raw_h2_settings(&c, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65535);
}
static bool send_ping(void) {
    return raw_h2_ping(&c);
}
static bool send_window(void) {
    return raw_h2_window(&c, 0, 1);
}
static bool send_empty_data(void) {
    return raw_h2_data(&c, 1, "", 0, false);
}
static bool send_priority(void) {
    return raw_h2_send(&c, NGHTTP2_PRIORITY, 0, 5, "\0\0\0\1\7", 5);
}
static bool send_unknown(void) {
    return raw_h2_send(&c, 0x42, 0, 0, "whatever", 8);
}

/* At 10 a second 100 may come at once; SETTINGS of the beginning and one head are among them, and
 * the head earns four. */
static void floods(void **state) {
    static bool (*const floods[])(void) = {send_settings,   send_ping,     send_window,
                                           send_empty_data, send_priority, send_unknown};
    (void)state;
    fx.opts.h2_control_rate = 10;
    for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
        gated_up();
        raw_h2_open(&c, fx.port);
        assert_true(raw_h2_ask_with(&c, 1, "POST", "/echo", false, NULL));
        for (int n = 0; n < 90; n++) assert_true(floods[i]());
        goes_on(3); /* so many are fine */
        assert_int_equal(refusals(BUDGET_H2_CONTROL), 0);
        for (int n = 0; n < 2000 && floods[i](); n++) {}
        assert_away(NGHTTP2_ENHANCE_YOUR_CALM);
        assert_int_equal(refusals(BUDGET_H2_CONTROL), 1);
        hang_up();
    }
}

/* Useful requests earn what their clients' control frames cost. */
static void a_client_that_works_is_no_flood(void **state) {
    (void)state;
    fx.opts.h2_control_rate = 10;
    gated_up();
    raw_h2_open(&c, fx.port);
    for (uint32_t i = 0; i < 200; i++) {
        goes_on(2 * i + 1);
        for (int n = 0; n < 3; n++) assert_true(raw_h2_ping(&c));
    }
    RAW_H2_UNTIL(&c, c.n_pings == 600);
    assert_int_equal(refusals(BUDGET_H2_CONTROL), 0);
    hang_up();
}

/* CVE-2023-44487. At 2 a second 20 may come at once. */
static void rapid_reset(void **state) {
    uint32_t id = 1;
    (void)state;
    fx.opts.h2_reset_rate = 2;
    gated_up();
    raw_h2_open(&c, fx.port);
    for (; id < 2 * 18; id += 2) {
        raw_h2_ask(&c, id, "/hold");
        assert_true(raw_h2_reset(&c, id, NGHTTP2_CANCEL));
    }
    raw_h2_ask(&c, id, "/echo");
    assert_status(id, 200);
    assert_int_equal(refusals(BUDGET_H2_RESETS), 0);
    for (int n = 0; n < 200 && id < 2 * RAW_H2_STREAMS - 2; n++) {
        id += 2;
        if (!raw_h2_ask_with(&c, id, "GET", "/stream", true, NULL) ||
            !raw_h2_reset(&c, id, NGHTTP2_CANCEL))
            break;
    }
    assert_away(NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(refusals(BUDGET_H2_RESETS), 1);
    raw_h2_close(&c);
    WAIT_FOR(conns() == 0);
    WAIT_FOR(budget_used(&gated.budget, BUDGET_STREAMS) == 0);
    gated_down();
}

/* A stream that its client makes fail is the same to us. */
static void streams_made_to_fail(void **state) {
    (void)state;
    fx.opts.h2_reset_rate = 2;
    gated_up();
    raw_h2_open(&c, fx.port);
    for (uint32_t id = 1; id < 200; id += 2) {
        if (!raw_h2_ask_with(&c, id, "GET", "/echo", false, NULL) ||
            !raw_h2_window(&c, id, INT32_MAX)) /* over what a window may be */
            break;
    }
    assert_away(NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(refusals(BUDGET_H2_RESETS), 1);
    hang_up();
}

/* ---- readers */
static void a_window_that_stays_shut(void **state) {
    (void)state;
    fx.opts.write_ms = 100;
    gated_up();
    raw_h2_open_with(&c, fx.port, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0);
    raw_h2_ask(&c, 1, "/stream");
    raw_h2_ask(&c, 3, "/hold-plain"); /* waits for its handler, which may take its time */
    RAW_H2_UNTIL(&c, c.s[0].n_heads == 1);
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BUFFER_BYTES) >= 6);
    assert_reset(1, NGHTTP2_CANCEL);
    assert_int_equal(refusals(BUDGET_SLOW_READER), 1);
    WAIT_FOR(fx.n_held == 1);
    run_on_loop(&fx.t, release, NULL);
    assert_true(raw_h2_window(&c, 3, 100));
    assert_status(3, 200);
    hang_up();
}

static void a_window_that_opens_late(void **state) {
    (void)state;
    gated_up();
    raw_h2_open_with(&c, fx.port, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0);
    raw_h2_ask(&c, 1, "/stream");
    raw_h2_ask(&c, 3, "/204"); /* needs no window */
    assert_status(3, 204);
    assert_int_equal(c.s[0].body.len, 0);
    for (size_t i = 1; i <= 6; i++) {
        assert_true(raw_h2_window(&c, 1, 1));
        RAW_H2_UNTIL(&c, c.s[0].body.len == i);
    }
    assert_status(1, 200);
    assert_string_equal(c.s[0].body.data, "onetwo");
    hang_up();
}

static void too_much_unread(void **state) {
    (void)state;
    fx.opts.stream_pending_max = 1000000;
    gated_up();
    raw_h2_open(&c, fx.port);
    raw_h2_ask(&c, 1, "/flood");
    assert_reset(1, NGHTTP2_CANCEL);
    WAIT_FOR(fx.n_closed == 1);
    assert_int_equal(refusals(BUDGET_SLOW_READER), 1);
    assert_true(c.s[0].body.len <= 65535);
    assert_true(raw_h2_window(&c, 0, 100000));
    goes_on(3);
    hang_up();
}

static void a_socket_that_nobody_reads(void **state) {
    (void)state;
    fx.opts.write_ms = 200;
    gated_up();
    raw_h2_connect(&c, fx.port);
    close(c.fd);
    c.fd = raw_connect_buf(fx.port, 4096);
    struct buf out = BUF_INIT;
    buf_append(&out, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    raw_h2_put_settings(&out, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, INT32_MAX);
    assert_true(raw_send_n(c.fd, out.data, out.len));
    buf_free(&out);
    assert_true(raw_h2_window(&c, 0, INT32_MAX - 65535));
    raw_h2_ask(&c, 1, "/big");
    WAIT_FOR(conns() == 0);
    hang_up();
}

/* ---- time */
static void what_does_not_come(void **state) {
    (void)state;
    fx.opts.head_ms = 100;
    fx.opts.idle_ms = 150;
    gated_up();
    raw_h2_connect(&c, fx.port); /* the preface without SETTINGS */
    assert_true(raw_send_n(c.fd, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN));
    assert_away(NGHTTP2_SETTINGS_TIMEOUT);
    raw_h2_close(&c);
    raw_h2_open(&c, fx.port); /* half the head of a frame */
    assert_true(raw_send_n(c.fd, "\0\0\10\6", 4));
    assert_away(NGHTTP2_PROTOCOL_ERROR);
    raw_h2_close(&c);
    raw_h2_open(&c, fx.port); /* a block without its end */
    assert_true(raw_h2_send(&c, NGHTTP2_HEADERS, 0, 1, "\x82", 1));
    assert_away(NGHTTP2_PROTOCOL_ERROR);
    raw_h2_close(&c);
    assert_int_equal(refusals(BUDGET_HEAD_TIME), 3);
    raw_h2_open(&c, fx.port); /* nothing more */
    goes_on(1);
    assert_away(NGHTTP2_NO_ERROR);
    raw_h2_close(&c);
    raw_h2_open(&c, fx.port); /* a stream that is open is no idle connection */
    raw_h2_ask(&c, 1, "/hold");
    usleep(400000);
    run_on_loop(&fx.t, release, NULL);
    assert_status(1, 200);
    assert_int_equal(fx.n_closed, 0);
    hang_up();
}

static void a_body_that_stops(void **state) {
    (void)state;
    fx.opts.read_ms = 100;
    gated_up();
    raw_h2_open(&c, fx.port);
    assert_true(raw_h2_ask_with(&c, 1, "POST", "/echo", false,
                                (const char *const[]){"content-length", "100000", NULL}));
    assert_true(raw_h2_data(&c, 1, "some", 4, false));
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BODY_BYTES) == 100000);
    assert_status(1, 408);
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BODY_BYTES) == 0);
    assert_int_equal(refusals(BUDGET_BODY_RATE), 1);
    goes_on(3);
    hang_up();
}

static void room_for_bodies(void **state) {
    (void)state;
    gated_up();
    budget_limit_set(&gated.budget, BUDGET_BODY_BYTES, 1000000);
    raw_h2_open(&c, fx.port);
    static const char *const large[] = {"content-length", "800000", NULL};
    assert_true(raw_h2_ask_with(&c, 1, "POST", "/echo", false, large));
    assert_true(raw_h2_ask_with(&c, 3, "POST", "/echo", false, large));
    assert_status(3, 503);
    assert_int_equal(refusals(BUDGET_BODY_BYTES), 1);
    assert_true(raw_h2_reset(&c, 1, NGHTTP2_CANCEL));
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BODY_BYTES) == 0);
    assert_true(raw_h2_ask_with(&c, 5, "POST", "/echo", false, large));
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BODY_BYTES) == 800000);
    hang_up(); /* in the middle of it */
}

/* Room is taken ahead of a body of unknown length, and held only for what has come of it. */
static void room_behind_a_body(void **state) {
    (void)state;
    gated_up();
    raw_h2_open(&c, fx.port);
    assert_true(raw_h2_ask_with(&c, 1, "POST", "/hold", false, NULL));
    assert_true(raw_h2_data(&c, 1, fx.big, 100, false));
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BODY_BYTES) == HTTP_TAKE_BYTES);
    assert_true(raw_h2_data(&c, 1, fx.big, 100, true));
    WAIT_FOR(fx.n_held == 1);
    const uint64_t used = budget_used(&gated.budget, BUDGET_BODY_BYTES);
    assert_in_range(used, 200, 1000);
    raw_h2_close(&c);
    ASSERT_ALL_IS_BACK();
    gated_down();
}

/* ---- what was taken is given back */
static void cut_in_a_body(void) {
    assert_true(raw_h2_ask_with(&c, 1, "POST", "/echo", false, NULL));
    assert_true(raw_h2_data(&c, 1, fx.big, 10000, false));
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BODY_BYTES) > 0);
}
static void cut_in_a_head(void) {
    assert_true(raw_h2_send(&c, NGHTTP2_HEADERS, 0, 1, "\x82", 1));
    WAIT_FOR(budget_used(&gated.budget, BUDGET_STREAMS) == 1);
}
static void cut_while_held(void) {
    raw_h2_ask(&c, 1, "/hold");
    raw_h2_ask(&c, 3, "/stream-hold");
    WAIT_FOR(fx.n_held == 2);
    assert_int_equal(budget_used(&gated.budget, BUDGET_STREAMS), 2);
}
static void cut_in_an_answer(void) {
    raw_h2_ask(&c, 1, "/big");
    RAW_H2_UNTIL(&c, c.s[0].body.len > 0);
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BUFFER_BYTES) > BIG_BYTES / 2);
}
static void a_broken_frame(void) {
    raw_h2_ask(&c, 1, "/hold");
    raw_h2_ask(&c, 3, "/big");
    WAIT_FOR(fx.n_held == 1);
    assert_true(raw_h2_send(&c, NGHTTP2_PING, 0, 0, "short", 5));
    assert_away(NGHTTP2_FRAME_SIZE_ERROR);
}
static void a_doomed_connection(void) {
    raw_h2_ask(&c, 1, "/hold");
    raw_h2_ask(&c, 3, "/big");
    WAIT_FOR(fx.n_held == 1);
    assert_true(raw_h2_send(&c, NGHTTP2_PRIORITY, 0, 0, "\0\0\0\1\7", 5)); /* of no stream */
    assert_away(NGHTTP2_PROTOCOL_ERROR);
}
static void goaway_of_the_client(void) {
    raw_h2_ask(&c, 1, "/hold");
    WAIT_FOR(fx.n_held == 1);
    assert_true(raw_h2_send(&c, NGHTTP2_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8));
    run_on_loop(&fx.t, release, NULL);
    assert_status(1, 200);
    raw_h2_to_end(&c);
}

static void budgets_come_back(void **state) {
    static void (*const ways[])(void) = {cut_in_a_body,       cut_in_a_head,  cut_while_held,
                                         cut_in_an_answer,    a_broken_frame, a_doomed_connection,
                                         goaway_of_the_client};
    (void)state;
    gated_up();
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        atomic_store(&fx.n_held, 0);
        raw_h2_open(&c, fx.port);
        ways[i]();
        raw_h2_close(&c);
        ASSERT_ALL_IS_BACK();
    }
    gated_down();
}

static void budgets_come_back_from_a_listener_that_closes(void **state) {
    (void)state;
    gated_up();
    raw_h2_open(&c, fx.port);
    cut_while_held();
    assert_true(raw_h2_ask_with(&c, 5, "POST", "/echo", false,
                                (const char *const[]){"content-length", "1000", NULL}));
    WAIT_FOR(budget_used(&gated.budget, BUDGET_BODY_BYTES) == 1000);
    run_on_loop(&fx.t, close_server, NULL);
    WAIT_FOR(nothing_is_used());
    assert_int_equal(fx.n_closed, 2);
    raw_h2_to_end(&c);
    assert_true(c.is_away);
    raw_h2_close(&c);
    loop_thread_stop(&fx.t);
    http_gate_destroy(&gated.gate);
}

/* ---- memory */
#if OWN_MALLOC
/* All that a stream can be: with a body, a large answer, a refusal, aborted, given up. */
static void talk(void) {
    raw_h2_open_with(&c, fx.port, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 200000);
    (void)(raw_h2_ask_with(&c, 1, "POST", "/echo", false,
                           (const char *const[]){"x-tag", "tag", NULL}) &&
           raw_h2_data(&c, 1, fx.big, 16000, false) && raw_h2_data(&c, 1, "more", 4, true) &&
           raw_h2_ask_with(&c, 3, "GET", "/stream", true, NULL) &&
           raw_h2_ask_with(&c, 5, "GET", "/hold", true, NULL) &&
           raw_h2_reset(&c, 5, NGHTTP2_CANCEL) &&
           raw_h2_ask_with(&c, 7, "POST", "/none", false,
                           (const char *const[]){"content-length", "1", NULL}) &&
           raw_h2_ask_with(&c, 9, "GET", "/abort", true, NULL) && raw_h2_ping(&c));
    for (uint32_t id = 1; id <= 9; id += id == 3 ? 4 : 2) (void)raw_h2_answer(&c, id);
    raw_h2_close(&c);
}

static void upgrade(void) {
    raw_h2_connect(&c, fx.port);
    buf_clear(&fx.in);
    raw_send_n(c.fd,
               "GET /stream HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\n"
               "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
               118);
    while (raw_recv(c.fd, &fx.in) > 0 && strstr(fx.in.data, "\r\n\r\n") == NULL) {}
    if (fx.in.data != NULL && strncmp(fx.in.data, "HTTP/1.1 101 ", 13) == 0) {
        const size_t head = (size_t)(strstr(fx.in.data, "\r\n\r\n") + 4 - fx.in.data);
        buf_append(&c.in, fx.in.data + head, fx.in.len - head);
        (void)(raw_send_n(c.fd, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN) &&
               raw_h2_settings(&c, 0, 0));
        (void)raw_h2_answer(&c, 1);
    }
    raw_h2_close(&c);
}

static void talk_well(void) {
    raw_h2_open(&c, fx.port);
    raw_h2_ask(&c, 1, "/stream");
    assert_status(1, 200);
    assert_string_equal(c.s[0].body.data, "onetwo");
    raw_h2_close(&c);
}

static void no_allocation_is_needed(void **state) {
    (void)state;
    gated_up();
    with_each_allocation_failing(talk, talk_well);
    gated_down();
}

static void no_allocation_is_needed_for_an_upgrade(void **state) {
    (void)state;
    gated_up();
    buf_reserve(&fx.in, 65536);
    with_each_allocation_failing(upgrade, talk_well);
    gated_down();
}
#endif

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(streams_at_once),
        T(streams_of_all_connections),
        T(header_lists),
        T(a_block_that_never_ends),
        T(empty_continuations),
        T(floods),
        T(a_client_that_works_is_no_flood),
        T(rapid_reset),
        T(streams_made_to_fail),
        T(a_window_that_stays_shut),
        T(a_window_that_opens_late),
        T(too_much_unread),
        T(a_socket_that_nobody_reads),
        T(what_does_not_come),
        T(a_body_that_stops),
        T(room_for_bodies),
        T(room_behind_a_body),
        T(budgets_come_back),
        T(budgets_come_back_from_a_listener_that_closes),
#if OWN_MALLOC
        T(no_allocation_is_needed),
        T(no_allocation_is_needed_for_an_upgrade),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
