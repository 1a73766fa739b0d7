/* Goal: the client ends every call once, says truly how it ended, and bears being called from its
 * own callbacks. Method: client and a server of ours on one loop; each call notes its end; the loop
 * runs until a condition holds or a deadline fails the test. Listeners that never accept, and ports
 * nobody listens on, play the broken peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <time.h>
#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "proto/crc32c.h"
#include "tests/unit/common/net/raw_http.h"

enum { STREAMS = 200, PIECES = 20 };

static struct loop *loop;
static struct http_server *server;
static struct http_client *client;
static struct loop_timer *poll_timer;
static bool (*condition)(void);
static uint64_t deadline_ms;
static uint16_t port;
static int n_gone;

struct end {
    struct http_call *call;
    int n_done, status, n_headers;
    enum err err;
    bool connected;
    struct buf body, data, type;
    bool in_call; /* http_client_call() is on the stack */
};

static struct end ends[STREAMS];
static int n_ends, n_wanted;

/* ---- the server's side */

struct ticking {
    struct http_x *x;
    struct loop_timer *t;
    int n, n_max;
};

static void tick_gone(void *arg) {
    struct ticking *k = arg;
    loop_timer_stop(&k->t);
    free(k);
    n_gone++;
}

static void on_tick(void *arg) {
    struct ticking *k = arg;
    char piece[20];
    if (k->n == k->n_max) {
        loop_timer_stop(&k->t);
        http_x_stream_end(k->x);
        free(k);
        return;
    }
    int n = snprintf(piece, sizeof(piece), "%d;", k->n++);
    http_x_stream_write(k->x, piece, (size_t)n);
}

static void start_ticking(struct http_x *x, unsigned period_ms, int n_max) {
    struct ticking *k = calloc(1, sizeof(*k));
    assert_non_null(k);
    k->x = x;
    k->n_max = n_max;
    http_x_stream_begin(x, 200, "text/event-stream");
    http_x_on_close(x, tick_gone, k);
    assert_int_equal(loop_timer_start(&k->t, loop, 0, period_ms, on_tick, k), ERR_OK);
}

static void count_gone(void *arg) {
    (void)arg;
    n_gone++;
}

static uint64_t last_us, longest_us; /* between two polls, in processor time */

static uint64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void on_request(void *arg, struct http_x *x) {
    const char *path = http_x_path(x);
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)arg;
    if (strcmp(path, "/echo") == 0) {
        struct buf b = BUF_INIT;
        buf_printf(&b, "%s", http_x_method(x));
        for (size_t i = 0; i < http_x_n_headers(x); i++) {
            const char *name, *value;
            http_x_header_at(x, i, &name, &value);
            if (strcmp(name, "Host") != 0) buf_printf(&b, "|%s=%s", name, value);
        }
        buf_printf(&b, "|%.*s", (int)n, body);
        http_x_reply(x, 200, "text/plain", b.data, b.len);
        buf_free(&b);
    } else if (strcmp(path, "/sum") == 0) {
        char text[64];
        const uint64_t from_us = cpu_us();
        snprintf(text, sizeof(text), "%zu %08x", n, crc32c(0, body, n));
        last_us += cpu_us() - from_us; /* the sum is the test's own work */
        http_x_reply(x, 200, "text/plain", text, strlen(text));
    } else if (strcmp(path, "/ticks") == 0) {
        start_ticking(x, 5, PIECES);
    } else if (strcmp(path, "/ever") == 0) {
        start_ticking(x, 5, 1000000);
    } else if (strcmp(path, "/slow-ticks") == 0) {
        start_ticking(x, 40, 10);
    } else if (strcmp(path, "/hold") == 0) {
        http_x_on_close(x, count_gone, NULL); /* never answered */
    } else if (strcmp(path, "/die") == 0) {
        http_x_stream_begin(x, 200, "text/plain");
        http_x_stream_write(x, "half", 4);
        http_x_abort(x);
    } else if (strcmp(path, "/die-at-once") == 0) {
        http_x_abort(x);
    } else if (strcmp(path, "/thousand") == 0) {
        char text[1000];
        memset(text, 't', sizeof(text));
        http_x_reply(x, 200, "text/plain", text, sizeof(text));
    } else {
        http_x_reply(x, 404, "application/json", "{\"no\":1}", 8);
    }
}

/* ---- the loop's side */

static void on_poll(void *arg) {
    const uint64_t now_us = cpu_us();
    (void)arg;
    if (now_us - last_us > longest_us) longest_us = now_us - last_us;
    last_us = now_us;
    if (condition())
        loop_stop(loop);
    else if (clock_ms() > deadline_ms)
        fail_msg("the condition never held");
}

static void run_until(bool (*fn)(void)) {
    condition = fn;
    deadline_ms = clock_ms() + DEADLINE_MS;
    loop_run(loop);
}

static int n_polls;

/* After a few turns of the loop. */
static bool is_sending(void) {
    return ++n_polls > 3;
}

static bool all_done(void) {
    int n = 0;
    for (int i = 0; i < n_ends; i++) n += ends[i].n_done;
    return n >= n_wanted;
}

/* Of the server: "/sum" takes more than the others. */
static size_t body_bytes_max(void *arg, const char *method, const char *path) {
    (void)arg, (void)method;
    return strcmp(path, "/sum") == 0 ? 48u << 20 : 1 << 20;
}

static void server_up(unsigned idle_ms) {
    struct http_server_opts o = {.host = "127.0.0.1",
                                 .port = port,
                                 .conns_max = 1000,
                                 .body_bytes_max = body_bytes_max,
                                 .idle_ms = idle_ms,
                                 .read_ms = 60000,
                                 .write_ms = 60000,
                                 .on_request = on_request};
    struct errbuf eb;
    if (http_server_open(&server, loop, &o, &eb) != ERR_OK) fail_msg("%s", eb.text);
    port = http_server_port(server);
}

static int setup(void **state) {
    (void)state;
    port = 0;
    n_gone = n_ends = n_wanted = 0;
    if (loop_create(&loop) != ERR_OK ||
        loop_timer_start(&poll_timer, loop, 1, 1, on_poll, NULL) != ERR_OK)
        return -1;
    server_up(60000);
    return http_client_create(&client, loop, "test/1") == ERR_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    http_client_destroy(&client);
    http_server_close(&server);
    loop_timer_stop(&poll_timer);
    loop_destroy(&loop);
    for (int i = 0; i < n_ends; i++) {
        buf_free(&ends[i].body);
        buf_free(&ends[i].data);
        buf_free(&ends[i].type);
    }
    return 0;
}

static void on_done(void *arg, const struct http_result *r) {
    struct end *e = arg;
    assert_false(e->in_call);
    e->n_done++;
    e->err = r->err;
    e->connected = r->connected;
    e->status = r->status;
    buf_append(&e->body, r->body, r->body_len);
    buf_puts(&e->type, r->content_type);
    assert_int_equal(strlen(r->body), r->body_len);
    assert_non_null(r->detail);
    e->call = NULL;
}

static bool on_data(void *arg, const char *p, size_t n) {
    buf_append(&((struct end *)arg)->data, p, n);
    return true;
}

static void on_headers(void *arg, int status) {
    struct end *e = arg;
    e->n_headers++;
    e->status = status;
}

static struct end *new_end(void) {
    struct end *e = &ends[n_ends++];
    assert_true(n_ends <= STREAMS);
    memset(e, 0, sizeof(*e));
    return e;
}

/* Starts a call with on_done noting into a new end; o may carry anything else. path NULL: o->url is
 * set. */
static struct end *start(const char *path, struct http_call_opts o) {
    char url[100];
    struct end *e = new_end();
    if (path != NULL) {
        snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", (unsigned)port, path);
        o.url = url;
    }
    if (o.method == NULL) o.method = "GET";
    o.on_done = on_done;
    o.arg = e;
    e->in_call = true;
    assert_int_equal(http_client_call(client, &o, &e->call), ERR_OK);
    e->in_call = false;
    n_wanted++;
    return e;
}

static struct end *whole(const char *path, struct http_call_opts o) {
    struct end *e = start(path, o);
    run_until(all_done);
    assert_int_equal(e->n_done, 1);
    return e;
}

#define OPTS(...) ((struct http_call_opts){__VA_ARGS__})

/* ---- the tests */

static void says_what_it_was_told(void **state) {
    static const char *const headers[] = {"X-One: 1", "req-id: ab", NULL};
    static const char *const typed[] = {"Content-Type: application/json", NULL};
    (void)state;
    struct end *e = whole("/echo", OPTS(.method = "GET"));
    assert_int_equal(e->err, ERR_OK);
    assert_int_equal(e->status, 200);
    assert_true(e->connected);
    assert_string_equal(e->type.data, "text/plain");
    assert_string_equal(e->body.data, "GET|User-Agent=test/1|Accept=*/*|");
    e = whole("/echo", OPTS(.method = "POST", .headers = headers, .body = "a\0b", .body_len = 3));
    assert_string_equal(e->body.data,
                        "POST|User-Agent=test/1|Accept=*/*|X-One=1|req-id=ab|Content-Length=3|a");
    e = whole("/echo", OPTS(.method = "POST", .headers = typed));
    assert_string_equal(
        e->body.data,
        "POST|User-Agent=test/1|Accept=*/*|Content-Type=application/json|Content-Length=0|");
    e = whole("/echo", OPTS(.method = "PUT", .body = "x", .body_len = 1));
    assert_string_equal(e->body.data, "PUT|User-Agent=test/1|Accept=*/*|Content-Length=1|x");
    e = whole("/echo", OPTS(.method = "DELETE"));
    assert_string_equal(e->body.data, "DELETE|User-Agent=test/1|Accept=*/*|Content-Length=0|");
    e = whole("/echo", OPTS(.method = "HEAD"));
    assert_int_equal(e->status, 200);
    assert_int_equal(e->body.len, 0);
    e = whole("/nowhere", OPTS(.method = "GET"));
    assert_int_equal(e->err, ERR_OK);
    assert_int_equal(e->status, 404);
    assert_string_equal(e->body.data, "{\"no\":1}");
    assert_int_equal(http_server_conns(server), 1); /* all on one connection */
    whole("/echo", OPTS(.fresh_connection = true));
    assert_int_equal(http_server_conns(server), 2);
}

/* A body well over libcurl's limit for asking first. */
static void large_bodies_without_expect(void **state) {
    size_t n = 3 * 1000 * 1000;
    char *body = malloc(n);
    (void)state;
    assert_non_null(body);
    memset(body, 'b', n);
    struct end *e = whole("/echo", OPTS(.method = "POST", .body = body, .body_len = 900 * 1000));
    assert_int_equal(e->status, 200);
    assert_null(strstr(e->body.data, "Expect"));
    assert_true(e->body.len > 900 * 1000);
    e = whole("/echo",
              OPTS(.method = "POST", .body = body, .body_len = n)); /* over the server's limit */
    assert_int_equal(e->err, ERR_OK);
    assert_int_equal(e->status, 413);
    free(body);
}

/* Processor time that a copy of it takes in this build. */
static uint64_t copy_us(const char *p, size_t n) {
    const uint64_t from_us = cpu_us();
    char *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, p, n);
    assert_int_equal(copy[n - 1], p[n - 1]);
    free(copy);
    return cpu_us() - from_us;
}

/* A large body that is lent, and what goes behind it, arrive as one; neither the start of the call
 * nor the sending holds the loop for as long as a copy of it would, in processor time. */
static void lent_bodies(void **state) {
    static const char tail[] = "and a tail";
    const size_t n = 40u << 20;
    char *body = malloc(n), want[64];
    (void)state;
    assert_non_null(body);
    for (size_t i = 0; i < n; i++) body[i] = (char)(i * 2654435761u >> 24);
    const uint32_t crc = crc32c(crc32c(0, body, n), tail, sizeof(tail));
    snprintf(want, sizeof(want), "%zu %08x", n + sizeof(tail), crc);
    struct http_call_opts o = {.method = "POST",
                               .body = body,
                               .body_len = n,
                               .body_lent = true,
                               .tail = tail,
                               .tail_len = sizeof(tail)};
    for (int i = 0; i < 2; i++) {
        longest_us = 0;
        last_us = cpu_us();
        struct end *e = start("/sum", o);
        const uint64_t start_us = cpu_us() - last_us;
        run_until(all_done);
        assert_string_equal(e->body.data, want);
        const uint64_t whole_us = copy_us(body, n);
        print_message("40 MiB: %llu us to begin, the loop is held for %llu us at most, "
                      "a copy takes %llu us\n",
                      (unsigned long long)start_us, (unsigned long long)longest_us,
                      (unsigned long long)whole_us);
        assert_true(start_us < whole_us / 4);
        assert_true(longest_us < whole_us);
    }
    /* also over a connection that was kept and is closed, and where all of it fits one send */
    http_server_close(&server);
    server_up(60000);
    struct end *e = whole("/sum", o);
    assert_string_equal(e->body.data, want);
    o.body_len = 1000;
    e = whole("/sum", o);
    snprintf(want, sizeof(want), "%zu %08x", 1000 + sizeof(tail),
             crc32c(crc32c(0, body, 1000), tail, sizeof(tail)));
    assert_string_equal(e->body.data, want);
    /* what was lent is not read after a cancel, also one from a callback */
    o.body_len = n;
    e = start("/sum", o);
    run_until(is_sending);
    http_call_cancel(&e->call);
    n_wanted--;
    memset(body, 0, n);
    free(body);
    e = whole("/echo", OPTS(.method = "GET"));
    assert_int_equal(e->status, 200);
}

static void streams_piece_by_piece(void **state) {
    (void)state;
    struct end *e = whole("/ticks", OPTS(.on_data = on_data, .on_headers = on_headers));
    assert_int_equal(e->err, ERR_OK);
    assert_int_equal(e->n_headers, 1);
    assert_int_equal(e->body.len, 0);
    assert_string_equal(e->data.data, "0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;");
    assert_string_equal(e->type.data, "text/event-stream");
    /* what is not 200 is collected */
    e = whole("/nowhere", OPTS(.on_data = on_data, .on_headers = on_headers));
    assert_int_equal(e->n_headers, 1);
    assert_int_equal(e->data.len, 0);
    assert_string_equal(e->body.data, "{\"no\":1}");
}

static void many_streams_at_once(void **state) {
    (void)state;
    for (int i = 0; i < STREAMS; i++) start("/ticks", OPTS(.on_data = on_data));
    run_until(all_done);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(ends[i].n_done, 1);
        assert_int_equal(ends[i].err, ERR_OK);
        assert_string_equal(ends[i].data.data, ends[0].data.data);
    }
    assert_int_equal(n_gone, 0);
}

static bool none_connected(void) {
    return http_server_conns(server) == 0;
}

static bool ten_gone(void) {
    return n_gone >= 10;
}

static void cancel_from_outside(void **state) {
    struct http_call *nothing = NULL;
    (void)state;
    http_call_cancel(&nothing);
    struct end *e = start("/echo", OPTS(.method = "GET"));
    http_call_cancel(&e->call); /* before it began */
    assert_null(e->call);
    n_wanted = 1;
    for (int i = 0; i < 10; i++) start("/ever", OPTS(.on_data = on_data));
    n_wanted = 1;
    struct end *last = start("/ticks", OPTS(.on_data = on_data));
    n_wanted = 1;
    run_until(all_done);
    assert_int_equal(last->n_done, 1);
    for (int i = 1; i <= 10; i++) http_call_cancel(&ends[i].call);
    run_until(ten_gone); /* the peer is told */
    for (int i = 0; i <= 10; i++) assert_int_equal(ends[i].n_done, 0);
}

static bool stop_at_second(void *arg, const char *p, size_t n) {
    struct end *e = arg;
    buf_append(&e->data, p, n);
    return strstr(e->data.data, "1;") == NULL;
}

static bool cancel_own(void *arg, const char *p, size_t n) {
    struct end *e = arg;
    buf_append(&e->data, p, n);
    assert_non_null(e->call); /* not called again after the cancel */
    if (strstr(e->data.data, "1;") != NULL) http_call_cancel(&e->call);
    return true;
}

static bool cancel_all_others(void *arg, const char *p, size_t n) {
    struct end *e = arg;
    buf_append(&e->data, p, n);
    if (strstr(e->data.data, "2;") != NULL)
        for (int i = 0; i < n_ends; i++)
            if (&ends[i] != e) http_call_cancel(&ends[i].call);
    return true;
}

static void cancel_own_in_headers(void *arg, int status) {
    struct end *e = arg;
    e->n_headers++;
    e->status = status;
    http_call_cancel(&e->call);
}

static void cancel_from_callbacks(void **state) {
    (void)state;
    struct end *stopped = start("/ever", OPTS(.on_data = stop_at_second));
    struct end *own = start("/ever", OPTS(.on_data = cancel_own));
    struct end *head =
        start("/ever", OPTS(.on_data = on_data, .on_headers = cancel_own_in_headers));
    n_wanted = 1;
    run_until(all_done);
    assert_int_equal(stopped->err, ERR_CANCELLED);
    assert_true(stopped->connected);
    run_until(none_connected);
    assert_int_equal(n_gone, 3);
    assert_int_equal(own->n_done, 0);
    assert_null(own->call);
    assert_int_equal(head->n_headers, 1);
    assert_int_equal(head->data.len, 0);
    assert_int_equal(head->n_done, 0);

    int first = n_ends;
    for (int i = 0; i < 5; i++) start("/ever", OPTS(.on_data = on_data));
    struct end *killer = start("/ticks", OPTS(.on_data = cancel_all_others));
    n_wanted = 2;
    run_until(all_done);
    assert_int_equal(killer->err, ERR_OK);
    for (int i = first; i < first + 5; i++) assert_int_equal(ends[i].n_done, 0);
}

static struct end *second, *third;

static bool start_from_data(void *arg, const char *p, size_t n) {
    buf_append(&((struct end *)arg)->data, p, n);
    if (second == NULL) {
        second = start("/echo", OPTS(.method = "GET"));
        third = start("/echo", OPTS(.method = "GET"));
        http_call_cancel(&third->call); /* before libcurl ever saw it */
        n_wanted--;
    }
    return true;
}

static void retry_once(void *arg, const struct http_result *r) {
    struct end *e = arg;
    on_done(arg, r);
    http_call_cancel(&e->call); /* NULL by now: harmless */
    if (e->n_done == 1 && r->err == ERR_PEER_LOST) start("/echo", OPTS(.method = "GET"));
}

static void start_from_callbacks(void **state) {
    char url[60];
    (void)state;
    second = third = NULL;
    start("/ticks", OPTS(.on_data = start_from_data));
    run_until(all_done);
    assert_int_equal(second->err, ERR_OK);
    assert_int_equal(third->n_done, 0);
    struct end *e = new_end();
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/die-at-once", (unsigned)port);
    struct http_call_opts o = {.method = "GET", .url = url, .on_done = retry_once, .arg = e};
    assert_int_equal(http_client_call(client, &o, &e->call), ERR_OK);
    n_wanted++;
    run_until(all_done);
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_int_equal(ends[n_ends - 1].err, ERR_OK);
}

/* A port of the kernel's choice that nobody listens on (bound, so that nobody takes it meanwhile).
 */
static int silent_port(uint16_t *p) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    getsockname(fd, (struct sockaddr *)&a, &len);
    *p = ntohs(a.sin_port);
    return fd;
}

static void refused(void **state) {
    char url[60];
    uint16_t p;
    int fd = silent_port(&p);
    (void)state;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/", (unsigned)p);
    struct end *e = whole(NULL, OPTS(.url = url));
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_false(e->connected);
    assert_int_equal(e->status, 0);
    snprintf(url, sizeof(url), "http://localhost:%u/", (unsigned)p);
    e = whole(NULL, OPTS(.url = url));
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_false(e->connected);
    close(fd);
}

/* A listener whose queue is full answers no more: the connect waits and its limit ends it. */
static void connect_limit(void **state) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char url[60];
    uint16_t p;
    int fd = silent_port(&p), fill[8];
    (void)state;
    assert_int_equal(listen(fd, 0), 0);
    a.sin_port = htons(p);
    for (int i = 0; i < 8; i++) {
        fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(fill[i], (struct sockaddr *)&a, sizeof(a));
    }
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/", (unsigned)p);
    uint64_t start_ms = clock_ms();
    struct end *e = whole(NULL, OPTS(.url = url, .connect_ms = 150));
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_false(e->connected);
    assert_in_range(clock_ms() - start_ms, 140, 4000);
    e = whole(NULL, OPTS(.url = url, .silence_ms = 100));
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_false(e->connected);
    for (int i = 0; i < 8; i++) close(fill[i]);
    close(fd);
}

static void peer_dies(void **state) {
    (void)state;
    struct end *e = whole("/die", OPTS(.on_data = on_data, .on_headers = on_headers));
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_true(e->connected);
    assert_int_equal(e->n_headers, 1);
    assert_string_equal(e->data.data, "half");
    e = whole("/die-at-once", OPTS(.fresh_connection = true));
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_true(e->connected);
    assert_int_equal(e->status, 0);
}

static void time_limits(void **state) {
    (void)state;
    uint64_t start_ms = clock_ms();
    struct end *e = whole("/hold", OPTS(.total_ms = 120));
    assert_int_equal(e->err, ERR_TIMEOUT);
    assert_true(e->connected);
    assert_in_range(clock_ms() - start_ms, 110, 4000);
    start_ms = clock_ms();
    e = whole("/hold", OPTS(.silence_ms = 120));
    assert_int_equal(e->err, ERR_TIMEOUT);
    assert_true(e->connected);
    assert_in_range(clock_ms() - start_ms, 110, 4000);
    /* bytes keep a call alive beyond the limit of silence; not beyond that of the total */
    start_ms = clock_ms();
    e = whole("/slow-ticks", OPTS(.on_data = on_data, .silence_ms = 250));
    assert_int_equal(e->err, ERR_OK);
    assert_true(clock_ms() - start_ms > 300);
    e = whole("/ever", OPTS(.on_data = on_data, .total_ms = 150, .silence_ms = 1000));
    assert_int_equal(e->err, ERR_TIMEOUT);
    assert_true(e->data.len > 0);
}

static void answer_limit(void **state) {
    (void)state;
    struct end *e = whole("/thousand", OPTS(.body_bytes_max = 1000));
    assert_int_equal(e->err, ERR_OK);
    assert_int_equal(e->body.len, 1000);
    e = whole("/thousand", OPTS(.body_bytes_max = 999));
    assert_int_equal(e->err, ERR_TOO_LARGE);
    e = whole("/thousand", OPTS(.body_bytes_max = 1,
                                .on_data = on_data)); /* a limit on what is collected only */
    assert_int_equal(e->err, ERR_OK);
    assert_int_equal(e->data.len, 1000);
}

/* Connections that were kept and then closed by the peer must cost nobody a call, and a peer that
 * is gone altogether must read as never connected. */
static void kept_connection_dies(void **state) {
    (void)state;
    whole("/echo", OPTS(.method = "GET"));
    http_server_close(&server);
    server_up(60000); /* the same port again */
    struct end *e = whole("/echo", OPTS(.method = "POST", .body = "x", .body_len = 1));
    assert_int_equal(e->err, ERR_OK);
    assert_int_equal(e->status, 200);
    http_server_close(&server);
    e = whole("/echo", OPTS(.method = "GET"));
    assert_int_equal(e->err, ERR_PEER_LOST);
    assert_false(e->connected);
    server_up(60000);
}

static void retry_when_closing(void *arg, const struct http_result *r) {
    struct http_call_opts o = {
        .method = "GET", .url = "http://127.0.0.1:1/", .on_done = on_done, .arg = arg};
    on_done(arg, r);
    assert_int_equal(http_client_call(client, &o, NULL), ERR_STOPPING);
}

static void destroy_ends_calls(void **state) {
    char url[60];
    (void)state;
    for (int i = 0; i < 3; i++) start("/ever", OPTS(.on_data = on_data));
    start("/hold", OPTS(.silence_ms = 5000, .total_ms = 5000));
    struct end *quick = start("/echo", OPTS(.method = "GET"));
    n_wanted = 1;
    run_until(all_done);
    assert_int_equal(quick->err, ERR_OK);
    struct end *e = new_end();
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/hold", (unsigned)port);
    struct http_call_opts o = {
        .method = "GET", .url = url, .on_done = retry_when_closing, .arg = e};
    assert_int_equal(http_client_call(client, &o, &e->call), ERR_OK);
    struct http_client *dying = client;
    http_client_destroy(&dying);
    client = NULL;
    for (int i = 0; i < n_ends; i++) {
        assert_int_equal(ends[i].n_done, 1);
        if (&ends[i] != quick) assert_int_equal(ends[i].err, ERR_CANCELLED);
    }
    run_until(none_connected);
}

static void refuses_bad_options(void **state) {
    static const char *const split[] = {"X: a\r\nY: b", NULL};
    struct http_call *call = (void *)1;
    struct http_call_opts o = {
        .method = "GET", .url = "http://127.0.0.1:1/", .headers = split, .on_done = on_done};
    (void)state;
    assert_int_equal(http_client_call(client, &o, &call), ERR_INVALID);
    assert_null(call);
    struct end *e = whole(NULL, OPTS(.url = "ftp://127.0.0.1/")); /* seen when it begins */
    assert_int_not_equal(e->err, ERR_OK);
    assert_false(e->connected);
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(says_what_it_was_told),
        T(large_bodies_without_expect),
        T(lent_bodies),
        T(streams_piece_by_piece),
        T(many_streams_at_once),
        T(cancel_from_outside),
        T(cancel_from_callbacks),
        T(start_from_callbacks),
        T(refused),
        T(connect_limit),
        T(peer_dies),
        T(time_limits),
        T(answer_limit),
        T(kept_connection_dies),
        T(destroy_ends_calls),
        T(refuses_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
