/* Goal: no bytes make a connection of HTTP/2 crash, loop, or keep what it took: room for bodies,
 * places, memory. Method: a connection of a real server over a socket pair, fed the input behind a
 * good preface in pieces whose sizes come from the input; handlers that answer at once, stream,
 * keep their exchange and answer later, or abort; then the client goes, and everything must be
 * given back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/log.h"
#include "common/net/http_conn.h"
#include "common/net/http_gate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KEPT_MAX = 64, ROOM_BYTES = 1 << 20 };

static struct loop *loop;
static struct budget budget;
static struct http_gate *gate;
static struct http_server *server;
static struct kept {
    struct http_x *x;
    bool streams;
} kept[KEPT_MAX];

static void on_close(void *arg) {
    ((struct kept *)arg)->x = NULL;
}

static bool keep(struct http_x *x, bool streams) {
    for (int i = 0; i < KEPT_MAX; i++) {
        if (kept[i].x != NULL) continue;
        kept[i] = (struct kept){.x = x, .streams = streams};
        http_x_on_close(x, on_close, &kept[i]);
        return true;
    }
    return false;
}

static void on_request(void *arg, struct http_x *x) {
    const char *path = http_x_path(x);
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)arg;
    if (strncmp(path, "/s", 2) == 0 && keep(x, true)) {
        http_x_stream_begin(x, 200, "text/event-stream");
        http_x_stream_write(x, "data: 1\n\n", 9);
    } else if (strncmp(path, "/h", 2) != 0 || !keep(x, false)) {
        http_x_set_header(x, "Connection", path[1] == 'c' ? "close" : "other");
        http_x_set_header(x, "X-Query", http_x_query(x));
        http_x_reply(x, 200, "text/plain", body, n);
    }
}

static bool wants_body(void *arg, const struct http_x *x) {
    (void)arg;
    return strncmp(http_x_path(x), "/n", 2) != 0;
}

static size_t body_bytes_max(void *arg, const char *method, const char *path) {
    (void)arg;
    (void)method;
    return strncmp(path, "/t", 2) == 0 ? 10 : 200000;
}

/* What a handler does later. */
static void act(unsigned what) {
    struct kept *k = &kept[what % KEPT_MAX];
    struct http_x *x = k->x;
    if (x == NULL) return;
    if (k->streams && what / KEPT_MAX % 4 != 0) {
        http_x_stream_write(x, "data: 2\n\n", 9);
        return;
    }
    k->x = NULL;
    if (what / KEPT_MAX % 2 == 0)
        http_x_abort(x);
    else if (k->streams)
        http_x_stream_end(x);
    else
        http_x_reply(x, 200, "text/plain", "later", 5);
}

static void on_stop(void *arg) {
    loop_stop(arg);
}

static void one_pass(void) {
    if (loop_post(loop, on_stop, loop) != ERR_OK) abort();
    loop_run(loop);
}

static void setup(void) {
    struct errbuf eb;
    static const struct limits_conf limits = {.head_s = 20,
                                              .handshake_s = 10,
                                              .body_grace_s = 10,
                                              .body_s = 600,
                                              .bodies_mib = 1,
                                              .h2_streams = 16,
                                              .h2_control = 10,
                                              .h2_resets = 10};
    struct http_server_opts o = {.host = "127.0.0.1",
                                 .conns_max = 4,
                                 .requests_per_conn_max = 40,
                                 .head_bytes_max = 4096,
                                 .stream_pending_max = ROOM_BYTES,
                                 .body_bytes_max = body_bytes_max,
                                 .wants_body = wants_body,
                                 .on_request = on_request};
    log_init(LOG_NONE, 2);
    budget_init(&budget);
    if (loop_create(&loop) != ERR_OK) abort();
    http_gate_limits(&budget, &limits, 8, 8, 8);
    if (http_gate_create(&gate, loop, &budget) != ERR_OK) abort();
    http_gate_options(&o, gate, &limits);
    if (http_server_open(&server, loop, &o, &eb) != ERR_OK) abort();
}

static void drain(int fd) {
    char bytes[65536];
    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    static const char peer[HTTP_PEER_BYTES] = "fuzz:1";
    int fd[2];
    if (server == NULL) setup();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) != 0) abort();
    if (http_conn_open(server, fd[0], peer, NULL) != ERR_OK) abort();
    struct http_conn *c = server->conns;
    c->ops->feed(c, preface, sizeof(preface) - 1);
    for (size_t at = 0; at < size && server->conns == c && !c->close_after;) {
        size_t n = data[at] % 64 == 0 ? 3 : 1000;
        if (n > size - at) n = size - at;
        c->ops->feed(c, (const char *)data + at, n);
        act(data[at] * 7u + (unsigned)at);
        at += n;
        one_pass();
        drain(fd[1]);
    }
    if (server->conns == c) http_conn_gone(c);
    one_pass();
    close(fd[1]);
    for (int i = 0; i < KEPT_MAX; i++)
        if (kept[i].x != NULL) abort();
    if (server->conns != NULL || budget_used(&budget, BUDGET_STREAMS) != 0 ||
        budget_used(&budget, BUDGET_BODY_BYTES) != 0 ||
        budget_used(&budget, BUDGET_BUFFER_BYTES) != 0 || budget_used(&budget, BUDGET_CONNS) != 0)
        abort();
    return 0;
}
