/* doctor_net: many questions and many connections at once, for one that does not answer takes
 * seconds. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/clock.h"
#include "common/net/http_client.h"
#include "common/net/loop.h"
#include "tools/ctl/doctor.h"

enum { AT_ONCE = 256, CONNECT_MS = 2000 };

/* ---- questions */

struct batch {
    struct loop *loop;
    size_t left;
};
struct one {
    struct batch *batch;
    struct doc_ask *ask;
};

static double wall_s(void) {
    return (double)clock_unix_us() * 1e-6;
}

static void on_done(void *arg, const struct http_result *r) {
    struct one *o = arg;
    struct ctl_answer *a = &o->ask->answer;
    o->ask->got_s = wall_s();
    if (r->err == ERR_OK && (a->body = malloc(r->body_len + 1)) != NULL) {
        memcpy(a->body, r->body, r->body_len);
        a->body[r->body_len] = 0;
        a->len = r->body_len;
        a->status = r->status;
    } else {
        snprintf(o->ask->why, sizeof(o->ask->why), "%s",
                 r->detail != NULL && r->detail[0] != 0 ? r->detail : err_text(r->err));
    }
    if (--o->batch->left == 0) loop_stop(o->batch->loop);
}

static void ask_some(struct doc_ask *asks, size_t n) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct batch b = {0};
    struct http_client *client = NULL;
    struct one *ones = calloc(n, sizeof(*ones));
    enum err e = ones != NULL ? loop_create(&b.loop) : ERR_NO_MEMORY;
    if (e == ERR_OK) e = http_client_create(&client, b.loop, "batonctl/1.0");
    for (size_t i = 0; i < n; i++) {
        char url[1024];
        struct doc_ask *a = &asks[i];
        snprintf(url, sizeof(url), "%s%s", a->base, a->path);
        const struct http_call_opts o = {.method = a->body != NULL ? "POST" : "GET",
                                         .url = url,
                                         .tls = a->tls,
                                         .headers = a->body != NULL ? headers : NULL,
                                         .body = a->body,
                                         .body_len = a->body != NULL ? strlen(a->body) : 0,
                                         .connect_ms = CONNECT_MS,
                                         .total_ms = a->total_ms,
                                         .body_bytes_max = DOC_FACTS_BYTES_MAX,
                                         .fresh_connection = true,
                                         .on_done = on_done,
                                         .arg = ones != NULL ? &ones[i] : NULL};
        const enum err started = e == ERR_OK ? (ones[i] = (struct one){&b, a}, a->sent_s = wall_s(),
                                                http_client_call(client, &o, NULL))
                                             : e;
        if (started == ERR_OK)
            b.left++;
        else
            snprintf(a->why, sizeof(a->why), "%s", err_text(started));
    }
    if (b.left > 0) loop_run(b.loop);
    http_client_destroy(&client);
    loop_destroy(&b.loop);
    free(ones);
}

void doc_ask_all(struct doc_ask *asks, size_t n) {
    for (size_t i = 0; i < n; i += AT_ONCE) ask_some(asks + i, n - i < AT_ONCE ? n - i : AT_ONCE);
}

/* ---- connections */

static int knock_begin(struct doc_knock *k) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(k->port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (inet_pton(AF_INET, k->ip, &at.sin_addr) != 1) {
        snprintf(k->why, sizeof(k->why), "not an IPv4 address");
    } else if (fd >= 0 &&
               (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 || errno == EINPROGRESS)) {
        snprintf(k->why, sizeof(k->why), "no answer within %d ms", CONNECT_MS);
        return fd;
    } else {
        snprintf(k->why, sizeof(k->why), "%s", strerror(errno));
    }
    if (fd >= 0) close(fd);
    return -1;
}

static void knock_end(struct doc_knock *k, int fd) {
    int error = 0;
    socklen_t n = sizeof(error);
    struct tcp_info info = {0};
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0) error = errno;
    k->open = error == 0;
    snprintf(k->why, sizeof(k->why), "%s", k->open ? "" : strerror(error));
    n = sizeof(info);
    if (k->open && getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0) {
        k->rtt_us = info.tcpi_rtt;
        k->mtu = info.tcpi_pmtu;
    }
}

static void knock_some(struct doc_knock *knocks, size_t n) {
    struct pollfd fds[AT_ONCE];
    const uint64_t until_ms = clock_ms() + CONNECT_MS;
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        fds[i] = (struct pollfd){.fd = knock_begin(&knocks[i]), .events = POLLOUT};
        left += fds[i].fd >= 0;
    }
    for (uint64_t now = clock_ms(); left > 0 && now < until_ms; now = clock_ms()) {
        if (poll(fds, (nfds_t)n, (int)(until_ms - now)) < 0 && errno != EINTR) break;
        for (size_t i = 0; i < n; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0) continue;
            knock_end(&knocks[i], fds[i].fd);
            close(fds[i].fd);
            fds[i].fd = -1;
            left--;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (fds[i].fd >= 0) close(fds[i].fd);
}

void doc_knock_all(struct doc_knock *knocks, size_t n) {
    for (size_t i = 0; i < n; i += AT_ONCE)
        knock_some(knocks + i, n - i < AT_ONCE ? n - i : AT_ONCE);
}
