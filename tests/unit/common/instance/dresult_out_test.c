/* Goal: the result stream of a decode instance gives every listener each request's frames in order
 * and without a hole, across reconnects, replacements and slow readers, and keeps no more than it
 * may. Method: the stream behind a real HTTP server on the loop of the test; listeners are raw
 * sockets whose bytes go through the parser of proto/dresult.h. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/instance/dresult_out.h"
#include "proto/limits.h"
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(20000)

static struct {
    struct loop *loop;
    struct http_server *server;
    struct dresult_out *out;
    struct budget budget;
    uint16_t port;
    unsigned n_listens, n_sessions;
    const char *headers; /* more of them, of listeners to come */
    bool (*fact)(void *);
    void *arg;
    bool reached;
} t;

/* ---- waiting */
static void look(void *arg) {
    (void)arg;
    if (!t.fact(t.arg)) return;
    t.reached = true;
    loop_stop(t.loop);
}
static void late(void *arg) {
    (void)arg;
    loop_stop(t.loop);
}
static void run_until_at(bool (*fact)(void *), void *arg, const char *what, int line) {
    struct loop_timer *a = NULL, *b = NULL;
    t.fact = fact;
    t.arg = arg;
    t.reached = false;
    assert_int_equal(loop_timer_start(&a, t.loop, 0, 1, look, NULL), ERR_OK);
    assert_int_equal(loop_timer_start(&b, t.loop, DEADLINE_MS, 0, late, NULL), ERR_OK);
    loop_run(t.loop);
    loop_timer_stop(&a);
    loop_timer_stop(&b);
    if (!t.reached) fail_msg("line %d: not in time: %s", line, what);
}
#define run_until(fact, arg) run_until_at(fact, arg, #fact, __LINE__)

static bool at_once(void *arg) {
    (void)arg;
    return true;
}
/* A turn or two of the loop. */
static void turn(void) {
    run_until(at_once, NULL);
}

/* ---- a listener */
struct got {
    char text[8192]; /* "id/epoch/seq/kind[ids]status:body;" of the frames so far */
    size_t len, n_frames, n_heartbeats, body_bytes;
    char words[256]; /* those that heartbeats carried, each with a ';' behind it */
};

struct listener {
    int fd, version;
    struct loop_fd *w;
    struct buf in;
    size_t at; /* of the next chunk */
    bool head_seen, paused, ended;
    struct dresult_parser *parser;
    struct got got;
};

static enum err on_frame(void *arg, const struct dresult_frame *f) {
    static const char *const kinds[] = {"?",     "data",  "last", "error",
                                        "retry", "close", "ka",   "part"};
    struct got *g = arg;
    if (f->kind == DR_HEARTBEAT) {
        g->n_heartbeats++;
        size_t at = strlen(g->words);
        if (f->body_len > 0)
            snprintf(g->words + at, sizeof(g->words) - at, "%.*s;", (int)f->body_len, f->body);
        return ERR_OK;
    }
    g->n_frames++;
    g->body_bytes += f->body_len;
    size_t room = sizeof(g->text) - g->len;
    int n = snprintf(g->text + g->len, room, "%s/%u/%llu/%s", f->req_id, f->epoch,
                     (unsigned long long)f->seq, kinds[f->kind]);
    if ((size_t)n < room) g->len += (size_t)n;
    for (size_t i = 0; i < f->n_tokens && i < 4; i++) {
        room = sizeof(g->text) - g->len;
        n = snprintf(g->text + g->len, room, "%c%d", i == 0 ? '[' : ',', f->tokens[i].id);
        if ((size_t)n < room) g->len += (size_t)n;
    }
    room = sizeof(g->text) - g->len;
    n = snprintf(g->text + g->len, room, "%s%s%s:%.*s;", f->status == 424 ? "!424" : "",
                 f->cause != CAUSE_NONE ? "=" : "",
                 f->cause != CAUSE_NONE ? cause_name(f->cause) : "",
                 f->body_len < 32 ? (int)f->body_len : 0, f->body);
    if ((size_t)n < room) g->len += (size_t)n;
    return ERR_OK;
}

/* Takes whole chunks out of what has come. */
static void take_chunks(struct listener *l) {
    if (!l->head_seen) {
        const char *end = strstr(l->in.data, "\r\n\r\n");
        if (end == NULL) return;
        l->head_seen = true;
        l->at = (size_t)(end + 4 - l->in.data);
    }
    for (;;) {
        char *digits;
        const char *p = l->in.data + l->at, *end = l->in.data + l->in.len;
        size_t n = strtoul(p, &digits, 16);
        if (digits == p || end - digits < 2 || (size_t)(end - digits) < n + 4) return;
        if (n == 0) {
            l->ended = true;
            return;
        }
        if (dresult_parser_feed(l->parser, digits + 2, n, on_frame, &l->got) != ERR_OK) abort();
        l->at = (size_t)(digits + 2 + n + 2 - l->in.data);
        if (l->at > (1 << 20)) {
            buf_consume(&l->in, l->at);
            l->at = 0;
        }
    }
}

static void on_readable(void *arg, int fd, int events) {
    static char part[65536];
    struct listener *l = arg;
    (void)events;
    ssize_t n = recv(fd, part, sizeof(part), 0);
    if (n > 0) {
        buf_append(&l->in, part, (size_t)n);
        take_chunks(l);
    } else {
        l->ended = true;
        loop_fd_unwatch(&l->w);
    }
}

static bool has_listened(void *arg) {
    return t.n_listens == *(unsigned *)arg;
}

static void listen_with(struct listener *l, int version, int rcvbuf) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(t.port)};
    char req[512];
    unsigned want = t.n_listens + 1;
    memset(l, 0, sizeof(*l));
    buf_puts(&l->in, "");
    l->version = version;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(dresult_parser_create(&l->parser, version, 64 << 20), ERR_OK);
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (rcvbuf > 0) setsockopt(l->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
    assert_int_equal(connect(l->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    int n =
        snprintf(req, sizeof(req), "GET /dresult HTTP/1.1\r\nHost: h\r\n%s%s\r\n",
                 version == 2 ? "dresult-version: 2\r\n" : "", t.headers != NULL ? t.headers : "");
    assert_int_equal(send(l->fd, req, (size_t)n, MSG_NOSIGNAL), n);
    fcntl(l->fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(loop_fd_watch(&l->w, t.loop, l->fd, LOOP_READ, on_readable, l), ERR_OK);
    run_until(has_listened, &want);
}

static bool nobody_listens(void *arg) {
    (void)arg;
    return !dresult_out_has_listener(t.out);
}

static void hang_up(struct listener *l) {
    loop_fd_unwatch(&l->w);
    close(l->fd);
    buf_free(&l->in);
    dresult_parser_destroy(&l->parser);
}

static void hang_up_and_wait(struct listener *l) {
    hang_up(l);
    run_until(nobody_listens, NULL);
}

struct expected {
    struct listener *l;
    const char *text;
};
static bool text_is_there(void *arg) {
    const struct expected *e = arg;
    return strlen(e->l->got.text) >= strlen(e->text);
}
static void expect_at(struct listener *l, const char *text, int line) {
    struct expected e = {l, text};
    run_until_at(text_is_there, &e, text, line);
    if (strcmp(l->got.text, text) != 0)
        fail_msg("line %d:\n got  %s\n want %s", line, l->got.text, text);
}
#define expect(l, text) expect_at(l, text, __LINE__)

static enum err send_text(const char *id, uint32_t epoch, enum dresult_kind kind,
                          const char *body) {
    return dresult_out_send(t.out, id, epoch, kind, NULL, 0, NULL, body, strlen(body));
}

/* ---- up and down */
static void on_request(void *arg, struct http_x *x) {
    (void)arg;
    t.n_listens++;
    if (dresult_out_new_session(t.out, x)) {
        t.n_sessions++;
        dresult_out_reset(t.out);
    }
    dresult_out_listen(t.out, x);
}

static int set_up(void **state) {
    struct errbuf eb;
    struct http_server_opts o = {.host = "127.0.0.1",
                                 .stream_pending_max = 4 << 20, /* the least an instance may have */
                                 .on_request = on_request};
    (void)state;
    memset(&t, 0, sizeof(t));
    budget_init(&t.budget);
    if (loop_create(&t.loop) != ERR_OK || dresult_out_create(&t.out, t.loop, &t.budget) != ERR_OK ||
        http_server_open(&t.server, t.loop, &o, &eb) != ERR_OK)
        return -1;
    t.port = http_server_port(t.server);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    http_server_close(&t.server);
    dresult_out_destroy(&t.out);
    assert_int_equal(budget_used(&t.budget, BUDGET_ANSWER_BYTES), 0);
    loop_destroy(&t.loop);
    return 0;
}

static const struct dresult_error stopped = {424, CAUSE_STOPPED}, unread = {503, CAUSE_D_UNREAD};

/* ---- the cases */

/* What is sent arrives as it was given, in the version that was asked for. */
static void both_versions(void **state) {
    static const struct emitted ids[] = {{.id = 7}, {.id = 8}};
    struct listener l;
    (void)state;
    listen_with(&l, 2, 0);
    assert_true(dresult_out_has_listener(t.out));
    assert_non_null(strstr(l.in.data, "HTTP/1.1 200 OK"));
    assert_non_null(strstr(l.in.data, "Content-Type: text/event-stream"));
    assert_non_null(strstr(l.in.data, "dresult-version: 2"));
    assert_int_equal(dresult_out_send(t.out, "12", 3, DR_DATA, ids, 2, NULL, "data: a\n\n", 9),
                     ERR_OK);
    assert_int_equal(dresult_out_send(t.out, "13", 0, DR_ERROR, NULL, 0, &stopped, "{}", 2),
                     ERR_OK);
    assert_int_equal(dresult_out_send(t.out, "12", 3, DR_LAST, ids, 1, NULL, "b\0c", 3), ERR_OK);
    expect(&l, "12/3/0/data[7,8:data: a\n\n;13/0/0/error!424=stopped:{};12/3/1/last[7:b;");
    hang_up_and_wait(&l);

    listen_with(&l, 1, 0);
    assert_non_null(strstr(l.in.data, "dresult-version: 1"));
    assert_int_equal(dresult_out_send(t.out, "14", 3, DR_DATA, ids, 2, NULL, "x", 1), ERR_OK);
    assert_int_equal(send_text("14", 3, DR_LAST, "y"), ERR_OK);
    assert_int_equal(dresult_out_send(t.out, "15", 0, DR_LAST, NULL, 0, NULL, "{}\0[]\0", 6),
                     ERR_OK);
    expect(&l, "14/0/0/data:x;14/0/0/last:y;15/0/0/last:{}[];");
    hang_up(&l);
}

/* Nobody listens: pieces wait, in the order of their request; requests take turns. */
static void late_listener(void **state) {
    struct listener l;
    (void)state;
    for (int version = 1; version <= 2; version++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", version);
        assert_int_equal(send_text(id, 0, DR_DATA, "1"), ERR_OK);
        assert_int_equal(send_text(id, 0, DR_DATA, "2"), ERR_OK);
        assert_int_equal(send_text(id, 0, DR_LAST, "3"), ERR_OK);
        listen_with(&l, version, 0);
        if (version == 1) {
            expect(&l, "1/0/0/data:1;1/0/0/data:2;1/0/0/last:3;");
        } else { /* the ended one of before comes again: version 2 can tell */
            expect(&l, "1/0/0/data:1;2/0/0/data:1;1/0/1/data:2;2/0/1/data:2;1/0/2/last:3;"
                       "2/0/2/last:3;");
        }
        hang_up_and_wait(&l);
    }
}

/* A listener that comes back gets all again in version 2, nothing twice in version 1; the numbers
 * go on. */
static void reconnect(void **state) {
    struct listener l;
    (void)state;
    listen_with(&l, 2, 0);
    send_text("5", 1, DR_DATA, "a");
    expect(&l, "5/1/0/data:a;");
    hang_up_and_wait(&l);
    send_text("5", 1, DR_DATA, "b");
    listen_with(&l, 2, 0);
    expect(&l, "5/1/0/data:a;5/1/1/data:b;");
    hang_up_and_wait(&l);
    listen_with(&l, 1, 0);
    send_text("5", 1, DR_LAST, "c");
    expect(&l, "5/0/0/last:c;");
    hang_up_and_wait(&l);
    listen_with(&l, 2, 0);
    expect(&l, "5/1/0/data:a;5/1/1/data:b;5/1/2/last:c;");
    hang_up(&l);
}

static bool has_the_rest(void *arg) {
    const char *text = ((struct listener *)arg)->got.text;
    return strstr(text, "5/0/3/last:d;") != NULL && strstr(text, "55/0/2/data:c;") != NULL &&
           strstr(text, "7/1/2/last:;") != NULL;
}

/* One that says what it has gets what follows: of a request that goes on, of one that has ended, of
 * a piece in parts; and all of what it does not name, or names wrongly. */
static void a_listener_that_says_what_it_has(void **state) {
    static char big[2 * DRESULT_FRAME_BYTES_MAX + 1];
    struct listener l;
    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    listen_with(&l, 2, 0);
    for (char c = 'a'; c <= 'c'; c++) {
        const char text[2] = {c, 0};
        send_text("5", 0, DR_DATA, text);
        send_text("55", 0, DR_DATA, text);
    }
    send_text("6", 2, DR_LAST, "end");
    send_text("7", 1, DR_LAST, big); /* three frames */
    expect(&l, "5/0/0/data:a;55/0/0/data:a;5/0/1/data:b;55/0/1/data:b;5/0/2/data:c;55/0/2/data:c;"
               "6/2/0/last:end;7/1/0/part:;7/1/1/part:;7/1/2/last:;");
    hang_up_and_wait(&l);
    t.headers = "baton-resume: 5:0:2 6:2:1 7:1:2 8:0:1\r\n";
    listen_with(&l, 2, 0);
    send_text("5", 0, DR_LAST, "d");
    run_until(has_the_rest, &l);
    assert_int_equal(l.got.n_frames, 1 + 2 + 3); /* of 7, of 5, all of 55 */
    assert_non_null(strstr(l.got.text, "5/0/2/data:c;"));
    hang_up_and_wait(&l);
    t.headers = "baton-resume: 5:0:4 55:0:3 6:1:1 7:1:99999999999999999999\r\n";
    listen_with(&l, 2, 0);
    expect(&l, "6/2/0/last:end;7/1/0/part:;7/1/1/part:;7/1/2/last:;");
    hang_up(&l);
}

static bool has_ended(void *arg) {
    return ((struct listener *)arg)->ended;
}

/* A second listener: the first hears that it is replaced, and its stream ends properly. */
static void replacement(void **state) {
    struct listener a, b;
    (void)state;
    listen_with(&a, 2, 0);
    send_text("5", 0, DR_DATA, "x");
    expect(&a, "5/0/0/data:x;");
    listen_with(&b, 2, 0);
    run_until(has_ended, &a);
    assert_string_equal(a.got.text,
                        "5/0/0/data:x;18446744073709551615/0/0/close:;"); /* long text */
    expect(&b, "5/0/0/data:x;");
    send_text("5", 0, DR_LAST, "y");
    expect(&b, "5/0/0/data:x;5/0/1/last:y;");
    assert_true(dresult_out_has_listener(t.out));
    hang_up(&a);
    dresult_out_close_listener(t.out);
    run_until(has_ended, &b);
    assert_false(dresult_out_has_listener(t.out));
    hang_up(&b);
}

static bool has_heartbeat(void *arg) {
    return ((struct listener *)arg)->got.n_heartbeats > 0;
}

static void heartbeat(void **state) {
    struct listener l;
    (void)state;
    listen_with(&l, 2, 0);
    uint64_t began = clock_ms();
    run_until(has_heartbeat, &l);
    assert_true(clock_ms() - began >= 4900);
    hang_up(&l);
}

static bool has_five_beats(void *arg) {
    return ((struct listener *)arg)->got.n_heartbeats >= 5;
}
static bool has_two_words(void *arg) {
    const char *semi = strchr(((struct listener *)arg)->got.words, ';');
    return semi != NULL && strchr(semi + 1, ';') != NULL;
}

static bool is_later(void *arg) {
    return clock_ms() >= *(uint64_t *)arg;
}

/* What it ended with is kept for one that watches as long as it may take to come back. */
static void watched_replay(void **state) {
    struct listener l, again, late;
    (void)state;
    t.headers = "baton-heartbeat-ms: 100\r\n";
    listen_with(&l, 2, 0);
    send_text("1", 0, DR_LAST, "a");
    expect(&l, "1/0/0/last:a;");
    hang_up_and_wait(&l);
    listen_with(&again, 2, 0);
    expect(&again, "1/0/0/last:a;");
    hang_up_and_wait(&again);
    uint64_t end = clock_ms() + 4500;
    run_until(is_later, &end);
    listen_with(&late, 2, 0);
    send_text("2", 0, DR_LAST, "b");
    expect(&late, "2/0/0/last:b;");
    hang_up(&late);
    t.headers = NULL;
}

/* One that watches is told the process and the period at once, beats between frames, and notes; the
 * end of a role does not end its stream. */
static void watch(void **state) {
    struct listener l, again, plain;
    char boot[17] = "", more[17] = "";
    unsigned ms = 0;
    (void)state;
    dresult_out_note(t.out, "nobody");
    t.headers = "baton-heartbeat-ms: 30\r\n";
    listen_with(&l, 2, 0);
    uint64_t began = clock_ms();
    run_until(has_five_beats, &l);
    assert_in_range(clock_ms() - began, 80, DEADLINE_MS);
    assert_int_equal(sscanf(l.got.words, "hello %16[0-9a-f] %u;", boot, &ms), 2);
    assert_int_equal(ms, 30);
    dresult_out_role_ends(t.out);
    assert_true(dresult_out_has_listener(t.out));
    send_text("5", 0, DR_DATA, "a");
    dresult_out_note(t.out, "link down");
    run_until(has_two_words, &l);
    expect(&l, "5/0/0/data:a;");
    assert_non_null(strstr(l.got.words, ";note link down;"));
    hang_up_and_wait(&l);
    listen_with(&again, 2, 0);
    run_until(has_five_beats, &again);
    assert_int_equal(sscanf(again.got.words, "hello %16[0-9a-f] ", more), 1);
    assert_string_equal(more, boot); /* the same process */
    hang_up_and_wait(&again);
    static const char *const wrong[] = {"",
                                        "baton-heartbeat-ms: 19\r\n",
                                        "baton-heartbeat-ms: 10001\r\n",
                                        "baton-heartbeat-ms: -30\r\n",
                                        "baton-heartbeat-ms: 30x\r\n",
                                        "baton-heartbeat-ms: 000000030\r\n"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        t.headers = wrong[i];
        listen_with(&plain, 2, 0);
        turn();
        dresult_out_note(t.out, "not for you");
        dresult_out_role_ends(t.out); /* and its stream with it */
        assert_false(dresult_out_has_listener(t.out));
        assert_string_equal(plain.got.words, "");
        hang_up(&plain);
    }
    t.headers = "baton-heartbeat-ms: 30\r\n"; /* not in version 1 */
    listen_with(&plain, 1, 0);
    dresult_out_role_ends(t.out);
    assert_false(dresult_out_has_listener(t.out));
    hang_up(&plain);
}

/* The same session takes up where it was; another one gets nothing of what was asked before. */
static void sessions(void **state) {
    struct listener l;
    (void)state;
    t.headers = "baton-session: a.0\r\n";
    listen_with(&l, 2, 0);
    assert_int_equal(t.n_sessions, 1);
    hang_up_and_wait(&l);
    assert_int_equal(dresult_out_open(t.out, "1", 0, NULL, NULL), ERR_OK);
    send_text("1", 0, DR_DATA, "x");
    send_text("2", 0, DR_LAST, "y");
    listen_with(&l, 2, 0);
    assert_int_equal(t.n_sessions, 1);
    expect(&l, "2/0/0/last:y;1/0/0/data:x;");
    hang_up_and_wait(&l);
    t.headers = "baton-session: a.1\r\n";
    listen_with(&l, 2, 0);
    assert_int_equal(t.n_sessions, 2);
    assert_int_equal(budget_used(&t.budget, BUDGET_ANSWER_BYTES), 0);
    assert_false(dresult_out_is_full(t.out, "1", 0));
    dresult_out_forget(t.out, "1", 0);
    send_text("1", 7, DR_DATA, "z"); /* a later attempt */
    expect(&l, "1/7/0/data:z;");
    hang_up_and_wait(&l);
    t.headers = NULL; /* one without a session: as ever */
    listen_with(&l, 2, 0);
    assert_int_equal(t.n_sessions, 2);
    expect(&l, "1/7/0/data:z;");
    hang_up(&l);
}

/* Attempts of one request are apart; a forgotten one is gone, the others stay. */
static void attempts(void **state) {
    struct listener l;
    (void)state;
    send_text("9", 0, DR_DATA, "old");
    send_text("9", 1, DR_DATA, "new");
    send_text("8", 0, DR_DATA, "other");
    dresult_out_forget(t.out, "9", 0);
    dresult_out_forget(t.out, "9", 7); /* unknown: nothing */
    dresult_out_forget(t.out, "77", 0);
    listen_with(&l, 2, 0);
    struct expected e = {&l, "9/1/0/data:new;8/0/0/data:other;"};
    run_until(text_is_there, &e);
    assert_non_null(strstr(l.got.text, "9/1/0/data:new;"));
    assert_non_null(strstr(l.got.text, "8/0/0/data:other;"));
    assert_int_equal(l.got.n_frames, 2);
    hang_up(&l);
}

static void count_one(void *arg) {
    ++*(unsigned *)arg;
}

static bool is_not_full(void *arg) {
    return !dresult_out_is_full(t.out, arg, 0);
}

/* A request of which 1 MiB waits is full, and hears when it is not; others are not touched. What a
 * socket has taken makes room. */
static void room_of_a_request(void **state) {
    struct listener l;
    char *piece = malloc(100001);
    size_t n = 0;
    unsigned n_rooms = 0;
    (void)state;
    memset(piece, 'x', 100000);
    piece[100000] = 0;
    assert_int_equal(dresult_out_open(t.out, "1", 0, count_one, &n_rooms), ERR_OK);
    assert_int_equal(dresult_out_open(t.out, "1", 0, NULL, NULL), ERR_CONFLICT);
    for (; !dresult_out_is_full(t.out, "1", 0); n++)
        assert_int_equal(send_text("1", 0, DR_DATA, piece), ERR_OK);
    assert_int_equal(n, DRESULT_REPLAY_BYTES_MAX / 100100 + 1);
    assert_int_equal(send_text("2", 0, DR_DATA, piece), ERR_OK);
    assert_false(dresult_out_is_full(t.out, "2", 0));

    listen_with(&l, 2, 0);
    run_until(is_not_full, "1");
    assert_int_equal(n_rooms, 1);
    size_t sent = (n + 1) * 100000;
    for (int i = 0; i < 200; i++) { /* 20 MB: more than is kept, and than may be unsent at once */
        while (dresult_out_is_full(t.out, "1", 0)) turn();
        assert_int_equal(send_text("1", 0, DR_DATA, piece), ERR_OK);
        sent += 100000;
    }
    send_text("1", 0, DR_LAST, "");
    while (l.got.body_bytes < sent) {
        turn();
        assert_true(dresult_out_has_listener(t.out));
    }
    assert_int_equal(l.got.n_frames, n + 1 + 201);
    hang_up(&l);
    free(piece);
}

/* Bodies larger than an instance may leave unsent reach listeners of both versions, slow ones too,
 * without the listener being lost. */
static void whole_bodies_of_any_size(void **state) {
    size_t n = 9 << 20;
    char *big = malloc(n + 1);
    (void)state;
    memset(big, 'y', n);
    big[n] = 0;
    for (int version = 1; version <= 2; version++) {
        struct listener l;
        char id[16];
        snprintf(id, sizeof(id), "%d", version);
        listen_with(&l, version, version == 2 ? 4096 : 0);
        assert_int_equal(send_text(id, 0, DR_LAST, big), ERR_OK);
        while (l.got.body_bytes < n) {
            turn();
            assert_true(dresult_out_has_listener(t.out));
        }
        assert_int_equal(l.got.n_frames, version == 1 ? 1 : n / 261024 + 1);
        hang_up_and_wait(&l);
        memset(&l, 0, sizeof(l));
    }
    free(big);
}

/* While a large body crosses, other requests' pieces come in between: frame by frame in turn. */
static void others_go_in_between(void **state) {
    struct listener l;
    size_t n = 8 << 20;
    char *big = malloc(n + 1), id[16];
    (void)state;
    memset(big, 'y', n);
    big[n] = 0;
    listen_with(&l, 2, 0);
    assert_int_equal(send_text("1", 0, DR_LAST, big), ERR_OK);
    for (int i = 2; i < 10; i++) {
        snprintf(id, sizeof(id), "%d", i);
        assert_int_equal(send_text(id, 0, DR_LAST, "short"), ERR_OK);
    }
    while (l.got.body_bytes < n + 40) turn();
    const char *last_part = NULL;
    for (const char *p = l.got.text; (p = strstr(p, "1/0/")) != NULL; p++) last_part = p;
    for (int i = 2; i < 10; i++) {
        snprintf(id, sizeof(id), "%d/0/", i);
        const char *at = strstr(l.got.text, id);
        assert_non_null(at);
        assert_true(at < last_part);
        size_t before = 0; /* large frames ahead of it: those on the socket and one of its turn */
        for (const char *p = l.got.text; (p = strstr(p, "/part")) != NULL && p < at; p++) before++;
        assert_true(before <= 4);
    }
    hang_up(&l);
    free(big);
}

/* Over the limits nothing is kept, but the end of a request that was opened always is. */
static void an_end_always_has_room(void **state) {
    struct listener l;
    char *big = calloc(1, DRESULT_PIECE_BYTES_MAX + 2), text[DRESULT_SPARE_BYTES + 100];
    (void)state;
    memset(big, 'z', DRESULT_PIECE_BYTES_MAX + 1);
    assert_int_equal(dresult_out_open(t.out, "1", 0, NULL, NULL), ERR_OK);
    assert_int_equal(dresult_out_open(t.out, "2", 0, NULL, NULL), ERR_OK);
    assert_int_equal(send_text("1", 0, DR_DATA, "a"), ERR_OK);
    assert_int_equal(send_text("1", 0, DR_LAST, big), ERR_TOO_LARGE);
    budget_limit_set(&t.budget, BUDGET_ANSWER_BYTES, 1000);
    memset(text, 'e', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    assert_int_equal(send_text("1", 0, DR_DATA, text), ERR_BUSY);
    assert_int_equal(budget_refusals(&t.budget, BUDGET_ANSWER_BYTES), 1);
    assert_int_equal(send_text("3", 0, DR_ERROR, text), ERR_BUSY); /* not opened */
    assert_int_equal(dresult_out_send(t.out, "1", 0, DR_ERROR, NULL, 0, &unread, "full", 4),
                     ERR_OK);
    assert_int_equal(
        dresult_out_send(t.out, "2", 0, DR_ERROR, NULL, 0, &stopped, text, strlen(text)), ERR_OK);
    dresult_out_forget(t.out, "2", 0); /* it has ended: nothing */
    listen_with(&l, 2, 0);
    expect(&l, "1/0/0/data:a;2/0/0/error!424=stopped:;1/0/1/error=d_unread:full;");
    assert_int_equal(l.got.body_bytes, 5 + DRESULT_SPARE_BYTES);
    hang_up(&l);
    free(big);
}

struct count {
    struct listener *l;
    size_t n;
};
static bool has_frames(void *arg) {
    const struct count *c = arg;
    return c->l->got.n_frames >= c->n;
}

/* A replay larger than what may be unsent on the socket does not kill the listener, however slowly
 * it reads; every frame comes, each request's in order, and new ones behind the old. */
static void large_replay(void **state) {
    enum { REQS = 60, FRAMES = 10 };
    struct listener l;
    char *piece = malloc(20001), id[16];
    (void)state;
    memset(piece, 'x', 20000);
    piece[20000] = 0;
    for (int f = 0; f < FRAMES; f++)
        for (int r = 0; r < REQS; r++) { /* 12 MB */
            snprintf(id, sizeof(id), "%d", r);
            assert_int_equal(send_text(id, 0, DR_DATA, piece), ERR_OK);
        }
    listen_with(&l, 2, 4096);
    for (int r = 0; r < REQS; r++) {
        snprintf(id, sizeof(id), "%d", r);
        assert_int_equal(send_text(id, 0, DR_LAST, "end"), ERR_OK);
    }
    struct count all = {&l, REQS * (FRAMES + 1)};
    run_until(has_frames, &all);
    assert_int_equal(l.got.n_frames, all.n);
    assert_true(dresult_out_has_listener(t.out));
    assert_false(l.ended);
    hang_up(&l);
    free(piece);
}

/* The numbers of each request as they come, to see that none is missing or out of order. */
static void order_under_reconnects(void **state) {
    enum { REQS = 7, FRAMES = 40 };
    uint64_t next[REQS] = {0};
    (void)state;
    for (int f = 0; f < FRAMES; f++) {
        struct listener l;
        listen_with(&l, 2, 0);
        for (int r = 0; r < REQS; r++) {
            char id[16], body[16];
            snprintf(id, sizeof(id), "%d", r);
            snprintf(body, sizeof(body), "%d", f);
            assert_int_equal(send_text(id, 0, f == FRAMES - 1 ? DR_LAST : DR_DATA, body), ERR_OK);
        }
        struct count c = {&l, (size_t)REQS * ((size_t)f + 1)};
        if (f % 3 == 0) run_until(has_frames, &c); /* else it goes before it has all */
        for (const char *p = l.got.text; *p != 0;) {
            unsigned r, epoch;
            unsigned long long seq;
            if (sscanf(p, "%u/%u/%llu/", &r, &epoch, &seq) != 3) break;
            assert_true(seq <= next[r]); /* a coordinator would miss nothing */
            if (seq == next[r]) next[r]++;
            p = strchr(p, ';');
            if (p == NULL) break;
            p++;
        }
        hang_up_and_wait(&l);
    }
    struct listener l;
    listen_with(&l, 2, 0);
    struct count c = {&l, REQS * FRAMES};
    run_until(has_frames, &c);
    assert_int_equal(l.got.n_frames, REQS * FRAMES);
    hang_up(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_versions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(late_listener, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reconnect, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_listener_that_says_what_it_has, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replacement, set_up, tear_down),
        cmocka_unit_test_setup_teardown(heartbeat, set_up, tear_down),
        cmocka_unit_test_setup_teardown(attempts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(watched_replay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(watch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(room_of_a_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whole_bodies_of_any_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(others_go_in_between, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_always_has_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_replay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(order_under_reconnects, set_up, tear_down),
    };
    log_init(LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
