/* relay_clients: sockets and sessions of nghttp2 behind one epoll set. */
#include "tests/bench/relay_clients.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 65536,
    EVENTS = 256,
    H2_STREAM_WINDOW = 1 << 20,
    H2_CONN_WINDOW = 1 << 24,
    LOOK_US = 500, /* from one look at all connections to the next */
};
static const char body_text[] = "{\"model\":\"m\",\"prompt\":\"once\",\"stream\":true}";

struct client {
    struct client *next;
    struct clients *all;
    int fd;
    bool answers;             /* 200, the last one */
    nghttp2_session *session; /* NULL: HTTP/1.1 */
    bool waits_to_write;
    struct arrivals_tail tails[]; /* of each of its streams */
};

static struct client *client_new(struct clients *s, uint16_t port, unsigned n_streams) {
    const struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int one = 1;
    struct client *c = calloc(1, sizeof(*c) + n_streams * sizeof(c->tails[0]));
    require(c != NULL, "no memory");
    c->all = s;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(connect(c->fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0, "no connection");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->next = s->first;
    s->first = c;
    return c;
}

static void client_watch(struct client *c) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.ptr = c};
    require(fcntl(c->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    require(epoll_ctl(c->all->epoll, EPOLL_CTL_ADD, c->fd, &ev) == 0, "epoll");
}

/* ---- HTTP/1.1 */
static void h1_read(struct client *c, char *p, size_t n) {
    if (!c->answers && memcmp(p, "HTTP/1.1 200", n < 12 ? n : 12) != 0) {
        p[n < 600 ? n : 600] = 0;
        require(false, p);
    }
    c->answers = true;
    arrivals_scan(&c->all->arrivals, &c->tails[0], p, n);
}

void clients_open_h1(struct clients *s, uint16_t port, const char *path) {
    struct client *c = client_new(s, port, 1);
    char head[512];
    const int n = snprintf(head, sizeof(head),
                           "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                           "Content-Length: %zu\r\n\r\n%s",
                           path, sizeof(body_text) - 1, body_text);
    require(send(c->fd, head, (size_t)n, MSG_NOSIGNAL) == n, "send");
    client_watch(c);
}

/* ---- HTTP/2 */
static ssize_t on_send(nghttp2_session *session, const uint8_t *p, size_t n, int flags, void *arg) {
    const struct client *c = arg;
    (void)session, (void)flags;
    const ssize_t put = send(c->fd, p, n, MSG_NOSIGNAL);
    if (put >= 0) return put;
    require(errno == EAGAIN, "a connection broke");
    return NGHTTP2_ERR_WOULDBLOCK;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                     size_t n, const uint8_t *value, size_t n_value, uint8_t flags, void *arg) {
    (void)session, (void)f, (void)flags;
    struct client *c = arg;
    if (n == 7 && memcmp(name, ":status", n) == 0)
        c->answers = n_value == 3 && memcmp(value, "200", n_value) == 0;
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                   void *arg) {
    const struct client *c = arg;
    (void)flags;
    if (!c->answers) {
        fprintf(stderr, "bench_relay: a stream of HTTP/2 was answered: %.*s\n", (int)n, p);
        require(false, "a stream was refused");
    }
    arrivals_scan(&c->all->arrivals, nghttp2_session_get_stream_user_data(session, id),
                  (const char *)p, n);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *arg) {
    (void)session, (void)id, (void)error, (void)arg;
    require(false, "a stream of HTTP/2 ended");
    return 0;
}

static ssize_t on_body(nghttp2_session *session, int32_t id, uint8_t *p, size_t n, uint32_t *flags,
                       nghttp2_data_source *source, void *arg) {
    (void)session, (void)id, (void)source, (void)arg;
    require(sizeof(body_text) - 1 <= n, "a small frame");
    memcpy(p, body_text, sizeof(body_text) - 1);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    return sizeof(body_text) - 1;
}

static nghttp2_nv field(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

static void h2_send(struct client *c) {
    require(nghttp2_session_send(c->session) == 0, "HTTP/2 of the client");
    const bool waits = nghttp2_session_want_write(c->session) != 0;
    if (waits == c->waits_to_write) return;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET | (waits ? EPOLLOUT : 0u), .data.ptr = c};
    require(epoll_ctl(c->all->epoll, EPOLL_CTL_MOD, c->fd, &ev) == 0, "epoll");
    c->waits_to_write = waits;
}

static void h2_begin(struct client *c) {
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
    nghttp2_session_callbacks *cb;
    require(nghttp2_session_callbacks_new(&cb) == 0, "no memory");
    nghttp2_session_callbacks_set_send_callback(cb, on_send);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    require(nghttp2_session_client_new(&c->session, cb, c) == 0, "no memory");
    nghttp2_session_callbacks_del(cb);
    require(nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 2) == 0 &&
                nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                                      H2_CONN_WINDOW) == 0,
            "no memory");
}

void clients_open_h2(struct clients *s, uint16_t port, const char *path, unsigned n) {
    const nghttp2_nv nv[] = {field(":method", "POST"), field(":scheme", "http"),
                             field(":authority", "h"), field(":path", path),
                             field("content-type", "application/json")};
    const nghttp2_data_provider body = {.read_callback = on_body};
    struct client *c = client_new(s, port, n);
    h2_begin(c);
    for (unsigned i = 0; i < n; i++)
        require(nghttp2_submit_request(c->session, NULL, nv, sizeof(nv) / sizeof(nv[0]), &body,
                                       &c->tails[i]) > 0,
                "a request cannot be sent");
    require(nghttp2_session_send(c->session) == 0, "HTTP/2 of the client");
    client_watch(c);
}

/* ---- all of them */
static void client_turn(struct client *c) {
    static _Thread_local char p[READ_BYTES];
    ssize_t n;
    do {
        n = recv(c->fd, p, sizeof(p), MSG_DONTWAIT);
        require(n > 0 || (n < 0 && errno == EAGAIN), "a stream broke");
        if (n > 0 && c->session == NULL) h1_read(c, p, (size_t)n);
        if (n > 0 && c->session != NULL)
            require(nghttp2_session_mem_recv(c->session, (const uint8_t *)p, (size_t)n) == n,
                    "HTTP/2 of the server");
    } while (n == (ssize_t)sizeof(p)); /* one that is full may have more, of which nobody is told */
    if (c->session != NULL) h2_send(c);
}

/* Looks for what has come instead of waiting for it: a write to one that waits wakes its processor,
 * which on one machine is the writer's time, and no cost of a client that is on another. What this
 * adds to a latency is in that of the direct stream as well. */
static void *clients_main(void *arg) {
    struct clients *s = arg;
    struct epoll_event ev[EVENTS];
    while (!atomic_load(&s->stops)) {
        const int n = epoll_wait(s->epoll, ev, EVENTS, 0);
        for (int i = 0; i < n; i++) client_turn(ev[i].data.ptr);
        if (n < EVENTS) usleep(LOOK_US);
    }
    return NULL;
}

void clients_start(struct clients *s) {
    *s = (struct clients){0};
    arrivals_open(&s->arrivals);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    require(pthread_create(&s->thread, NULL, clients_main, s) == 0, "no thread");
}

void clients_stop(struct clients *s) {
    atomic_store(&s->stops, true);
    pthread_join(s->thread, NULL);
    while (s->first != NULL) {
        struct client *c = s->first;
        s->first = c->next;
        nghttp2_session_del(c->session);
        close(c->fd);
        free(c);
    }
    close(s->epoll);
    arrivals_close(&s->arrivals);
}
