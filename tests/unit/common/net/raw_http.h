/* raw_http: a blocking client that says exactly the bytes a test wants, and a thread that runs a
 * loop. Every wait has a deadline, and missing it fails the test. */
#ifndef BATON_TESTS_RAW_HTTP_H
#define BATON_TESTS_RAW_HTTP_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/net/loop.h"
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(10000)

static inline int raw_connect_buf(uint16_t port, int rcvbuf) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval tv = {.tv_sec = DEADLINE_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (rcvbuf > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static inline int raw_connect(uint16_t port) {
    return raw_connect_buf(port, 0);
}

/* False when the peer has closed before everything was taken. */
static inline bool raw_send_n(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
        if (done <= 0) return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

static inline void raw_send(int fd, const char *text) {
    assert_true(raw_send_n(fd, text, strlen(text)));
}

/* One read into *b. 0: the end; -1: reset. Silence for the deadline fails the test. */
static inline ssize_t raw_recv(int fd, struct buf *b) {
    char part[65536];
    ssize_t n = recv(fd, part, sizeof(part), 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        fail_msg("silence after: %s", b->data != NULL ? b->data : "");
    if (n > 0) buf_append(b, part, (size_t)n);
    return n;
}

/* Reads until the bytes hold `text`. */
static inline void raw_until(int fd, struct buf *b, const char *text) {
    while (b->data == NULL || strstr(b->data, text) == NULL)
        if (raw_recv(fd, b) <= 0)
            fail_msg("the end came before \"%s\": %s", text, b->data != NULL ? b->data : "");
}

/* Reads to the end of the connection. */
static inline void raw_to_end(int fd, struct buf *b) {
    while (raw_recv(fd, b) > 0) {}
    if (b->data == NULL) buf_puts(b, "");
}

/* Reads one answer that has a Content-Length (or none, for head_only) and leaves what follows in
 * *b. */
static inline void raw_answer(int fd, struct buf *b, struct buf *answer, bool head_only) {
    raw_until(fd, b, "\r\n\r\n");
    size_t head = (size_t)(strstr(b->data, "\r\n\r\n") + 4 - b->data), body = 0;
    const char *length = strstr(b->data, "Content-Length: ");
    if (!head_only && length != NULL && length < b->data + head)
        body = strtoul(length + 16, NULL, 10);
    while (b->len < head + body)
        if (raw_recv(fd, b) <= 0) fail_msg("the end came in a body: %s", b->data);
    buf_clear(answer);
    buf_append(answer, b->data, head + body);
    buf_consume(b, head + body);
}

struct loop_thread {
    struct loop *loop;
    pthread_t thread;
};

static inline void *loop_thread_main(void *arg) {
    loop_run(arg);
    return NULL;
}

static inline void loop_thread_start(struct loop_thread *t) {
    assert_int_equal(loop_create(&t->loop), ERR_OK);
    assert_int_equal(pthread_create(&t->thread, NULL, loop_thread_main, t->loop), 0);
}

static inline void loop_thread_stop(struct loop_thread *t) {
    loop_stop(t->loop);
    pthread_join(t->thread, NULL);
    loop_destroy(&t->loop);
}

/* Runs fn(arg) on the loop thread and waits for it. */
struct on_loop {
    loop_fn *fn;
    void *arg;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
};

static inline void on_loop_run(void *arg) {
    struct on_loop *o = arg;
    o->fn(o->arg);
    pthread_mutex_lock(&o->mutex);
    o->done = true;
    pthread_cond_signal(&o->cond);
    pthread_mutex_unlock(&o->mutex);
}

static inline void run_on_loop(struct loop_thread *t, loop_fn *fn, void *arg) {
    struct on_loop o = {
        .fn = fn, .arg = arg, .mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    assert_int_equal(loop_post(t->loop, on_loop_run, &o), ERR_OK);
    pthread_mutex_lock(&o.mutex);
    while (!o.done) pthread_cond_wait(&o.cond, &o.mutex);
    pthread_mutex_unlock(&o.mutex);
    pthread_mutex_destroy(&o.mutex);
    pthread_cond_destroy(&o.cond);
}

/* Waits for a counter that another thread raises. */
#define WAIT_FOR(what)                                                                             \
    do {                                                                                           \
        uint64_t end_ms = clock_ms() + DEADLINE_MS;                                                \
        while (!(what)) {                                                                          \
            if (clock_ms() > end_ms) fail_msg("never came: %s", #what);                            \
            usleep(1000);                                                                          \
        }                                                                                          \
    } while (0)

#endif
