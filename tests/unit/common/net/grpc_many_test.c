/* Goal: a call whose client streams is served message by message, within its bounds, and ends as
 * grpc_many.h says, whoever ends it. Method: the real server, frames of a client's own making
 * (raw_h2.h), handlers that do what a message says; each allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "common/net/grpc_many.h"
#include "proto/grpc.h"
#include "tests/unit/alloc_fault.h"
#include "tests/unit/common/net/h2_fixture.h"

enum { BIG_ANSWER = 65536, HELD_MAX = 64 };
static const char the_row[] = "row";

static struct raw_h2 c;
static struct grpc_many how;
static struct http_x *held[HELD_MAX]; /* loop thread; in the order they came */
static atomic_int n_served, n_held, n_gone;

static void put_message(struct buf *out, char flag, const char *p, size_t n) {
    unsigned char head[GRPC_HEAD_BYTES];
    grpc_head_put(head, (uint32_t)n);
    head[0] = (unsigned char)flag;
    buf_append(out, head, sizeof(head));
    buf_append(out, p, n);
}

static void write_message(struct http_x *x, const char *p, size_t n) {
    struct buf b = BUF_INIT;
    put_message(&b, 0, p, n);
    if (!b.failed) http_x_stream_write(x, b.data, b.len);
    buf_free(&b);
}

/* ---- handlers */
static void on_one_gone(void *arg) {
    *(struct http_x **)arg = NULL;
    atomic_fetch_add(&n_gone, 1);
}

static void hold_one(struct http_x *x) {
    const int i = atomic_load(&n_held);
    if (i == HELD_MAX) abort();
    held[i] = x;
    http_x_on_close(x, on_one_gone, &held[i]);
    http_x_stream_begin(x, 200, "x");
    atomic_fetch_add(&n_held, 1);
}

/* What a message asks for is its first word. */
static void serve(void *arg, struct http_x *x, const void *row) {
    size_t n;
    const char *p = http_x_body(x, &n);
    if (arg != &how || row != the_row || n < GRPC_HEAD_BYTES) abort();
    p += GRPC_HEAD_BYTES;
    n -= GRPC_HEAD_BYTES;
    atomic_fetch_add(&n_served, 1);
    if (n >= 4 && memcmp(p, "hold", 4) == 0) {
        hold_one(x);
    } else if (n >= 4 && memcmp(p, "fail", 4) == 0) {
        http_x_reply(x, 400, "text/plain", "no such thing\r\n", 15);
    } else if (n >= 5 && memcmp(p, "abort", 5) == 0) {
        http_x_stream_begin(x, 200, "x");
        http_x_abort(x);
    } else if (n >= 3 && memcmp(p, "big", 3) == 0) {
        http_x_stream_begin(x, 200, "x");
        write_message(x, fx.big, BIG_ANSWER - GRPC_HEAD_BYTES);
        http_x_stream_end(x);
    } else {
        http_x_stream_begin(x, 200, "x");
        write_message(x, p, n);
        write_message(x, "!", 1);
        http_x_stream_end(x);
    }
}

static void put_failure(struct buf *out, const char *request, size_t n, const char *text,
                        size_t n_text) {
    char line[100];
    const int len = snprintf(line, sizeof(line), "%.*s: %.*s", (int)n, request, (int)n_text, text);
    put_message(out, 0, line, (size_t)len);
}

static bool reads_body(void *arg, const struct http_x *x) {
    (void)arg;
    return strcmp(http_x_path(x), "/many") == 0;
}

static void start(void *arg, struct http_x *x) {
    if (strcmp(http_x_path(x), "/many") == 0)
        grpc_many_start(x, &how);
    else
        on_request(arg, x);
}

static void many_up(void) {
    how = (struct grpc_many){.serve = serve, .arg = &how, .row = the_row};
    fx.opts.reads_body = reads_body;
    fx.opts.on_request = start;
    atomic_store(&n_served, 0);
    atomic_store(&n_held, 0);
    atomic_store(&n_gone, 0);
    gated_up();
}

static void end_held(void *arg) {
    const int i = *(int *)arg;
    struct http_x *x = held[i];
    held[i] = NULL;
    write_message(x, "held", 4);
    http_x_stream_end(x);
}

static void end_one(int i) {
    run_on_loop(&fx.t, end_held, &i);
}

/* ---- the client */
static const char *const fields[] = {"content-type", "application/grpc", "te", "trailers", NULL};

static void call(uint32_t id) {
    assert_true(raw_h2_ask_with(&c, id, "POST", "/many", false, fields));
}

static bool say(uint32_t id, const char *text, bool end) {
    struct buf b = BUF_INIT;
    put_message(&b, 0, text, strlen(text));
    const bool sent = raw_h2_data(&c, id, b.data, b.len, end);
    buf_free(&b);
    return sent;
}

static bool half_close(uint32_t id) {
    return raw_h2_data(&c, id, "", 0, true);
}

/* The texts of the messages that came, each with a blank behind it. */
static const char *texts(uint32_t id) {
    static char all[4096];
    const struct raw_h2_stream *s = raw_h2_stream(&c, id);
    size_t at = 0, n = 0;
    while (at + GRPC_HEAD_BYTES <= s->body.len) {
        const size_t len = raw_h2_u32(s->body.data + at + 1);
        assert_true(at + GRPC_HEAD_BYTES + len <= s->body.len);
        n += (size_t)snprintf(all + n, sizeof(all) - n, "%.*s ", (int)len,
                              s->body.data + at + GRPC_HEAD_BYTES);
        at += GRPC_HEAD_BYTES + len;
    }
    all[n] = 0;
    assert_int_equal(at, s->body.len);
    return all;
}

static void assert_status(uint32_t id, int status, const char *message) {
    char want[8];
    const struct raw_h2_stream *s = raw_h2_answer(&c, id);
    snprintf(want, sizeof(want), "%d", status);
    assert_int_equal(s->status, 200);
    assert_true(s->ended);
    assert_string_equal(s->grpc_status, want);
    assert_string_equal(s->grpc_message, message);
}

static void hang_up(void) {
    raw_h2_close(&c);
    ASSERT_ALL_IS_BACK();
    gated_down();
}

/* ---- tests */
static void each_message_is_a_request(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    many_up();
    raw_h2_open(&c, fx.port);
    put_message(&b, 0, "one", 3);
    put_message(&b, 0, "", 0);
    put_message(&b, 0, "three", 5);
    call(1);
    for (size_t i = 0; i < b.len; i++) assert_true(raw_h2_data(&c, 1, b.data + i, 1, false));
    RAW_H2_UNTIL(&c, c.s[0].body.len >= 38);
    assert_string_equal(texts(1), "one !  ! three ! ");
    assert_false(c.s[0].ended); /* the call goes on as long as its client wants */
    call(3);
    assert_true(raw_h2_data(&c, 3, b.data, b.len, true));
    assert_status(3, GRPC_OK, "");
    assert_string_equal(texts(3), "one !  ! three ! ");
    assert_true(say(1, "four", true));
    assert_status(1, GRPC_OK, "");
    assert_string_equal(texts(1), "one !  ! three ! four ! ");
    call(5); /* without a message */
    assert_true(half_close(5));
    assert_status(5, GRPC_OK, "");
    assert_int_equal(n_served, 7);
    buf_free(&b);
    hang_up();
}

/* Over HTTP/1.1 the body comes first, whole. */
static void over_http_1(void **state) {
    struct buf b = BUF_INIT;
    char head[200];
    (void)state;
    many_up();
    put_message(&b, 0, "one", 3);
    put_message(&b, 0, "two", 3);
    snprintf(head, sizeof(head),
             "POST /many HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: "
             "application/grpc\r\nContent-Length: %zu\r\n\r\n",
             b.len);
    int fd = raw_connect(fx.port);
    raw_send(fd, head);
    assert_true(raw_send_n(fd, b.data, b.len));
    buf_clear(&fx.in);
    raw_to_end(fd, &fx.in);
    assert_int_equal(n_served, 2);
    assert_non_null(memmem(fx.in.data, fx.in.len, "\0\0\0\0\3two", 8));
    assert_non_null(memmem(fx.in.data, fx.in.len, "\r\n0\r\ngrpc-status: 0\r\n", 21));
    close(fd);
    buf_free(&b);
    ASSERT_ALL_IS_BACK();
    gated_down();
}

static void so_many_at_once(void **state) {
    (void)state;
    many_up();
    raw_h2_open(&c, fx.port);
    call(1);
    for (int i = 0; i < GRPC_MANY_AT_ONCE + 2; i++) assert_true(say(1, "hold", false));
    assert_true(say(1, "last", true));
    WAIT_FOR(n_held == GRPC_MANY_AT_ONCE);
    assert_true(raw_h2_ping(&c));
    RAW_H2_UNTIL(&c, c.n_pings == 1);
    assert_int_equal(n_held, GRPC_MANY_AT_ONCE);
    end_one(5);
    WAIT_FOR(n_held == GRPC_MANY_AT_ONCE + 1);
    assert_int_equal(n_served, GRPC_MANY_AT_ONCE + 1);
    end_one(GRPC_MANY_AT_ONCE);
    end_one(0);
    WAIT_FOR(n_served == GRPC_MANY_AT_ONCE + 3);
    for (int i = 1; i < GRPC_MANY_AT_ONCE + 2; i++)
        if (i != 5 && i != GRPC_MANY_AT_ONCE) end_one(i);
    assert_status(1, GRPC_OK, "");
    assert_int_equal(n_gone, 0);
    hang_up();
}

/* What a client does not read is not computed for it: what waits stays near the bound. */
static void a_client_that_does_not_read(void **state) {
    enum { ALL = 40, AHEAD = GRPC_MANY_UNSENT_MAX / BIG_ANSWER + 1 };
    (void)state;
    many_up();
    raw_h2_open_with(&c, fx.port, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1);
    assert_true(raw_h2_window(&c, 0, (ALL + 1) * BIG_ANSWER));
    call(1);
    for (int i = 0; i < ALL; i++) assert_true(say(1, "big", i + 1 == ALL));
    WAIT_FOR(n_served == AHEAD);
    RAW_H2_UNTIL(&c, c.s[0].body.len == 1);
    assert_true(raw_h2_ping(&c));
    RAW_H2_UNTIL(&c, c.n_pings == 1);
    assert_int_equal(n_served, AHEAD);
    for (int i = 1; i <= ALL; i++) { /* each piece that it takes makes room */
        assert_true(raw_h2_window(&c, 1, BIG_ANSWER));
        const size_t want = (size_t)i * BIG_ANSWER;
        RAW_H2_UNTIL(&c, c.s[0].body.len >= want || c.s[0].ended);
        const int least = i + 2 < ALL ? i + 2 : ALL; /* half of the bound is free */
        WAIT_FOR(n_served >= least);
        assert_in_range(n_served, least, i + AHEAD + 1);
    }
    assert_status(1, GRPC_OK, "");
    assert_int_equal(c.s[0].body.len, ALL * BIG_ANSWER);
    hang_up();
}

static void a_request_that_fails_ends_the_call(void **state) {
    (void)state;
    many_up();
    raw_h2_open(&c, fx.port);
    call(1);
    assert_true(say(1, "hold", false));
    assert_true(say(1, "hold", false));
    WAIT_FOR(n_held == 2);
    assert_true(say(1, "fail", false));
    assert_status(1, GRPC_INVALID_ARGUMENT, "no such thing");
    assert_int_equal(n_gone, 2);
    call(3);
    assert_true(say(3, "abort", false));
    assert_status(3, GRPC_INTERNAL, "the answer has broken off");
    hang_up();
}

static void a_request_that_fails_may_be_answered(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    many_up();
    how.put_failure = put_failure;
    raw_h2_open(&c, fx.port);
    call(1);
    assert_true(say(1, "fail 1", false));
    assert_true(say(1, "hold", false));
    put_message(&b, 1, "fail 2", 6); /* compressed: nobody looks into it */
    assert_true(raw_h2_data(&c, 1, b.data, b.len, false));
    assert_true(say(1, "abort", false));
    assert_true(say(1, "four", true));
    WAIT_FOR(n_served == 5);
    end_one(0);
    assert_status(1, GRPC_OK, "");
    assert_string_equal(texts(1), "fail 1: no such thing : no such thing abort: the answer has "
                                  "broken off four ! held ");
    buf_free(&b);
    hang_up();
}

static void bytes_that_are_no_message(void **state) {
    struct buf b = BUF_INIT;
    char head[GRPC_HEAD_BYTES];
    (void)state;
    many_up();
    raw_h2_open(&c, fx.port);
    call(1);
    put_message(&b, 2, "flag", 4);
    assert_true(raw_h2_data(&c, 1, b.data, b.len, false));
    assert_status(1, GRPC_INTERNAL, "the flag of a message must be 0 or 1");
    call(3);
    buf_clear(&b);
    put_message(&b, 0, "one", 3);
    put_message(&b, 0, "two", 3);
    assert_true(raw_h2_data(&c, 3, b.data, b.len - 1, true));
    assert_status(3, GRPC_INTERNAL, "the message ends before the length that it gives");
    assert_string_equal(texts(3), "one ! ");
    call(5);
    grpc_head_put((unsigned char *)head, BODY_MAX + 1);
    assert_true(raw_h2_data(&c, 5, head, sizeof(head), false));
    assert_status(5, GRPC_RESOURCE_EXHAUSTED, "the message is over the limit of 16777216 bytes");
    buf_free(&b);
    hang_up();
}

static void a_message_of_many_windows(void **state) {
    enum { BYTES = 1000000, PIECE = 16000 };
    struct buf b = BUF_INIT;
    (void)state;
    many_up();
    memcpy(fx.big, "big", 3);
    put_message(&b, 0, fx.big, BYTES);
    raw_h2_open_with(&c, fx.port, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, BIG_ANSWER);
    assert_true(raw_h2_window(&c, 0, 1));
    call(1);
    /* The stream's window is 256 KiB; it is opened for a message that is not complete. */
    size_t at = 0;
    for (; at + PIECE < 262144; at += PIECE)
        assert_true(raw_h2_data(&c, 1, b.data + at, PIECE, false));
    assert_true(raw_h2_ping(&c));
    RAW_H2_UNTIL(&c, c.n_pings == 1);
    for (; at < b.len; at += PIECE) {
        const size_t left = b.len - at;
        assert_true(raw_h2_data(&c, 1, b.data + at, left < PIECE ? left : PIECE, left <= PIECE));
    }
    assert_status(1, GRPC_OK, "");
    assert_int_equal(c.s[0].body.len, BIG_ANSWER);
    buf_free(&b);
    hang_up();
}

static void a_client_that_goes(void **state) {
    (void)state;
    many_up();
    raw_h2_open(&c, fx.port);
    for (uint32_t id = 1; id <= 3; id += 2) {
        call(id);
        for (int i = 0; i < 3; i++) assert_true(say(id, "hold", false));
    }
    assert_true(raw_h2_data(&c, 1, "\0\0\0", 3, false)); /* in a message */
    WAIT_FOR(n_held == 6);
    assert_true(raw_h2_reset(&c, 1, NGHTTP2_CANCEL));
    WAIT_FOR(n_gone == 3);
    hang_up();
    assert_int_equal(n_gone, 6);
}

static void a_deadline(void **state) {
    static const char *const soon[] = {"content-type", "application/grpc", "grpc-timeout", "50m",
                                       NULL};
    (void)state;
    many_up();
    raw_h2_open(&c, fx.port);
    assert_true(raw_h2_ask_with(&c, 1, "POST", "/many", false, soon));
    assert_true(say(1, "one", false));
    assert_true(say(1, "hold", false));
    assert_status(1, GRPC_DEADLINE_EXCEEDED, "the deadline of the call is over");
    WAIT_FOR(n_gone == 1 || n_held == 0); /* 50 ms may be over before it came */
    hang_up();
}

static void a_server_that_closes(void **state) {
    (void)state;
    many_up();
    raw_h2_open(&c, fx.port);
    call(1);
    assert_true(say(1, "hold", false));
    assert_true(say(1, "hold", false));
    WAIT_FOR(n_held == 2);
    run_on_loop(&fx.t, close_server, NULL);
    WAIT_FOR(n_gone == 2);
    raw_h2_to_end(&c);
    raw_h2_close(&c);
    WAIT_FOR(nothing_is_used());
    loop_thread_stop(&fx.t);
    http_gate_destroy(&gated.gate);
}

#if OWN_MALLOC
static void talk(void) {
    raw_h2_open_with(&c, fx.port, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2 * BIG_ANSWER);
    (void)(raw_h2_window(&c, 0, BIG_ANSWER) &&
           raw_h2_ask_with(&c, 1, "POST", "/many", false, fields) && say(1, "one", false) &&
           say(1, "fail", false) && say(1, "big", false) && say(1, "two", true));
    (void)raw_h2_answer(&c, 1);
    raw_h2_close(&c);
}

static void talk_well(void) {
    raw_h2_open(&c, fx.port);
    call(1);
    assert_true(say(1, "one", true));
    assert_status(1, GRPC_OK, "");
    raw_h2_close(&c);
}

static void no_allocation_is_needed(void **state) {
    (void)state;
    many_up();
    how.put_failure = put_failure;
    with_each_allocation_failing(talk, talk_well);
    gated_down();
}
#endif

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(each_message_is_a_request),
        T(over_http_1),
        T(so_many_at_once),
        T(a_client_that_does_not_read),
        T(a_request_that_fails_ends_the_call),
        T(a_request_that_fails_may_be_answered),
        T(bytes_that_are_no_message),
        T(a_message_of_many_windows),
        T(a_client_that_goes),
        T(a_deadline),
        T(a_server_that_closes),
#if OWN_MALLOC
        T(no_allocation_is_needed),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
