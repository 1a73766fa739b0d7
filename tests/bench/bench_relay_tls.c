/* bench_relay_tls: 1,000 streams through the coordinator with TLS, three ways in turn: server-sent
 * events over HTTP/1.1 (a connection each), the same over 50 connections of HTTP/2, and 1,000
 * server-streaming calls of gRPC over 50.
 *
 *   bench_relay_tls [--seconds S] [--rounds N]  (BUILD names the build folder; its bin/coordinator)
 *
 * Rates are events a second of the coordinator's processor time, live (20 tokens a second of each
 * stream) and flat out, as in bench_relay; those of HTTP/2 and gRPC also over HTTP/1's of the same
 * round. Each way of each round has a coordinator of its own, so that its memory is a new one; a
 * step of D has sequences of any connection. Every stream must come to its end: a status of 200,
 * the end of its framing and, of a call, grpc-status 0. Streams that did not are errors, and the
 * program fails. Figures are medians of the rounds. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/log.h"
#include "common/grpc/grpc_json.h"
#include "tests/bench/machine.h"
#include "tests/bench/relay_parts.h"

/* The certificates of the tests, with their assertions. */
#define assert_non_null(p)     require((p) != NULL, #p)
#define assert_true(c)         require(c, #c)
#define assert_int_equal(a, b) require((a) == (b), #a)
#define fail_msg(format, ...)  require(false, __VA_ARGS__)
#include "tests/unit/common/net/tls_pki.h"

enum {
    STREAMS = 1000,
    H2_CONNS = 50,
    ROUNDS_MAX = 15,
    READ_BYTES = 65536,
    H2_STREAM_WINDOW = 1 << 20,
    H2_CONN_WINDOW = 1 << 24,
};

enum way { WAY_H1, WAY_H2, WAY_GRPC, WAYS };
static const char *const way_names[WAYS] = {"h1", "h2", "grpc"};

/* ---- clients: one thread, any number of connections */
struct stream {
    struct arrivals_tail tail;
    int status, grpc_status;
    char last[5]; /* of what came */
    bool over;
};

struct conn {
    struct clients *all;
    int fd;
    SSL *ssl;
    nghttp2_session *h2; /* NULL: HTTP/1.1, with one stream */
    struct stream *streams;
    unsigned n_streams;
    bool waits_to_write;
};

struct clients {
    struct arrivals arrivals;
    enum way way;
    uint16_t port;
    SSL_CTX *ctx;
    int epoll;
    pthread_t thread;
    struct conn conns[STREAMS];
    struct stream streams[STREAMS];
    unsigned n_conns, n_streams;
    atomic_uint n_whole; /* streams that came to their end */
    atomic_bool stops;
};

static void stream_over(struct clients *s, struct stream *st, bool whole) {
    if (st->over) return;
    st->over = true;
    atomic_fetch_add(whole ? &s->n_whole : &s->arrivals.n_failed, 1);
}

/* ---- HTTP/1.1 */
static void h1_read(struct conn *c, const char *p, size_t n) {
    struct stream *st = c->streams;
    if (st->status == 0) st->status = n > 12 ? atoi(p + 9) : -1; /* a head comes in one piece */
    arrivals_scan(&c->all->arrivals, &st->tail, p, n);
    if (n >= sizeof(st->last)) {
        memcpy(st->last, p + n - sizeof(st->last), sizeof(st->last));
    } else {
        memmove(st->last, st->last + n, sizeof(st->last) - n);
        memcpy(st->last + sizeof(st->last) - n, p, n);
    }
    if (st->status != 200) {
        fprintf(stderr, "bench_relay_tls: a stream was answered: %.*s\n", (int)n, p);
        stream_over(c->all, st, false);
    }
    if (st->status == 200 && memcmp(st->last, "0\r\n\r\n", sizeof(st->last)) == 0)
        stream_over(c->all, st, true);
}

static const char body_json[] = "{\"model\":\"m\",\"prompt\":\"once\",\"stream\":true}";

static void h1_ask(struct conn *c) {
    char head[512];
    int n = snprintf(head, sizeof(head),
                     "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json"
                     "\r\nContent-Length: %zu\r\n\r\n%s",
                     sizeof(body_json) - 1, body_json);
    require(SSL_write(c->ssl, head, n) == n, "a request cannot be sent");
}

/* ---- HTTP/2 */
static ssize_t on_send(nghttp2_session *h2, const uint8_t *p, size_t n, int flags, void *arg) {
    struct conn *c = arg;
    (void)h2, (void)flags;
    int put = SSL_write(c->ssl, p, (int)n);
    if (put > 0) return put;
    require(SSL_get_error(c->ssl, put) == SSL_ERROR_WANT_WRITE, "a connection broke");
    return NGHTTP2_ERR_WOULDBLOCK;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *f, const uint8_t *name, size_t n,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *arg) {
    struct stream *st = nghttp2_session_get_stream_user_data(h2, f->hd.stream_id);
    (void)flags, (void)arg, (void)n_value;
    if (st == NULL) return 0;
    if (n == 7 && memcmp(name, ":status", n) == 0) st->status = atoi((const char *)value);
    if (n == 11 && memcmp(name, "grpc-status", n) == 0) st->grpc_status = atoi((const char *)value);
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *p, size_t n,
                   void *arg) {
    struct conn *c = arg;
    struct stream *st = nghttp2_session_get_stream_user_data(h2, id);
    (void)flags;
    if (st != NULL) arrivals_scan(&c->all->arrivals, &st->tail, (const char *)p, n);
    return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t id, uint32_t error, void *arg) {
    struct conn *c = arg;
    struct stream *st = nghttp2_session_get_stream_user_data(h2, id);
    if (st == NULL) return 0;
    stream_over(c->all, st,
                error == NGHTTP2_NO_ERROR && st->status == 200 &&
                    st->grpc_status == (c->all->way == WAY_GRPC ? 0 : -1));
    return 0;
}

/* model_id "m", request { text "once" }, as a message of gRPC. */
static const char body_grpc[] = "\0\0\0\0\x0b\x0a\x01m\x1a\x06\x12\x04once";

static ssize_t on_body(nghttp2_session *h2, int32_t id, uint8_t *p, size_t n, uint32_t *flags,
                       nghttp2_data_source *source, void *arg) {
    const struct conn *c = arg;
    (void)h2, (void)id, (void)source;
    const bool grpc = c->all->way == WAY_GRPC;
    const size_t len = (grpc ? sizeof(body_grpc) : sizeof(body_json)) - 1;
    require(len <= n, "a small frame");
    memcpy(p, grpc ? body_grpc : body_json, len);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static nghttp2_nv field(const char *name, const char *value) {
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

static void h2_ask(struct conn *c) {
    const bool grpc = c->all->way == WAY_GRPC;
    const nghttp2_nv nv[] = {
        field(":method", "POST"),
        field(":scheme", "https"),
        field(":authority", "h"),
        field(":path", grpc ? "/fmaas.GenerationService/GenerateStream" : "/v1/completions"),
        field("content-type", grpc ? "application/grpc" : "application/json"),
        field("te", "trailers"),
    };
    const nghttp2_data_provider body = {.read_callback = on_body};
    for (unsigned i = 0; i < c->n_streams; i++) {
        c->streams[i].grpc_status = -1;
        require(nghttp2_submit_request(c->h2, NULL, nv, sizeof(nv) / sizeof(nv[0]), &body,
                                       &c->streams[i]) > 0,
                "a request cannot be sent");
    }
}

static void h2_begin(struct conn *c) {
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
    nghttp2_session_callbacks *cb;
    require(nghttp2_session_callbacks_new(&cb) == 0, "no memory");
    nghttp2_session_callbacks_set_send_callback(cb, on_send);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    require(nghttp2_session_client_new(&c->h2, cb, c) == 0, "no memory");
    nghttp2_session_callbacks_del(cb);
    require(
        nghttp2_submit_settings(c->h2, NGHTTP2_FLAG_NONE, settings, 2) == 0 &&
            nghttp2_session_set_local_window_size(c->h2, NGHTTP2_FLAG_NONE, 0, H2_CONN_WINDOW) == 0,
        "no memory");
    h2_ask(c);
}

/* ---- connections */
static void conn_over(struct conn *c) {
    for (unsigned i = 0; i < c->n_streams; i++) {
        if (!c->streams[i].over) fprintf(stderr, "bench_relay_tls: a connection broke\n");
        stream_over(c->all, &c->streams[i], false);
    }
    require(epoll_ctl(c->all->epoll, EPOLL_CTL_DEL, c->fd, NULL) == 0, "epoll");
}

static void conn_send(struct conn *c) {
    if (c->h2 == NULL) return;
    require(nghttp2_session_send(c->h2) == 0, "HTTP/2 of the client");
    const bool waits = nghttp2_session_want_write(c->h2) != 0;
    if (waits == c->waits_to_write) return;
    struct epoll_event ev = {.events = EPOLLIN | (waits ? EPOLLOUT : 0u), .data.ptr = c};
    require(epoll_ctl(c->all->epoll, EPOLL_CTL_MOD, c->fd, &ev) == 0, "epoll");
    c->waits_to_write = waits;
}

static void conn_turn(struct conn *c) {
    char p[READ_BYTES];
    int n;
    while ((n = SSL_read(c->ssl, p, sizeof(p))) > 0) {
        if (c->h2 == NULL)
            h1_read(c, p, (size_t)n);
        else
            require(nghttp2_session_mem_recv(c->h2, (uint8_t *)p, (size_t)n) == n,
                    "HTTP/2 of the server");
    }
    if (SSL_get_error(c->ssl, n) != SSL_ERROR_WANT_READ)
        conn_over(c);
    else
        conn_send(c);
}

/* Connects and ends the handshake; the thread may wait. */
static void conn_open(struct conn *c) {
    static const unsigned char h1[] = "\x08http/1.1", h2[] = "\x02h2";
    const struct clients *s = c->all;
    const struct sockaddr_in sa = {.sin_family = AF_INET,
                                   .sin_port = htons(s->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int one = 1;
    const bool is_h2 = s->way != WAY_H1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(connect(c->fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0, "no connection");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->ssl = SSL_new(s->ctx);
    require(c->ssl != NULL && SSL_set_fd(c->ssl, c->fd) == 1 &&
                SSL_set_alpn_protos(c->ssl, is_h2 ? h2 : h1, is_h2 ? 3 : 9) == 0,
            "no memory");
    require(SSL_connect(c->ssl) == 1, "no handshake");
    if (is_h2)
        h2_begin(c);
    else
        h1_ask(c);
    require(fcntl(c->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    require(epoll_ctl(c->all->epoll, EPOLL_CTL_ADD, c->fd, &ev) == 0, "epoll");
    conn_send(c);
}

static void *clients_main(void *arg) {
    struct clients *s = arg;
    struct epoll_event ev[256];
    for (unsigned i = 0; i < s->n_conns && !atomic_load(&s->stops); i++) conn_open(&s->conns[i]);
    while (!atomic_load(&s->stops)) {
        int n = epoll_wait(s->epoll, ev, 256, 50);
        for (int i = 0; i < n; i++) conn_turn(ev[i].data.ptr);
    }
    return NULL;
}

static struct clients *clients_start(enum way way, unsigned n_streams, uint16_t port,
                                     SSL_CTX *ctx) {
    struct clients *s = calloc(1, sizeof(*s));
    require(s != NULL, "no memory");
    const unsigned each = way == WAY_H1 || n_streams < H2_CONNS ? 1 : n_streams / H2_CONNS;
    arrivals_open(&s->arrivals);
    s->way = way;
    s->port = port;
    s->ctx = ctx;
    s->n_streams = n_streams;
    s->n_conns = n_streams / each;
    for (unsigned i = 0; i < s->n_conns; i++)
        s->conns[i] =
            (struct conn){.all = s, .fd = -1, .streams = s->streams + i * each, .n_streams = each};
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    require(pthread_create(&s->thread, NULL, clients_main, s) == 0, "no thread");
    return s;
}

static void clients_stop(struct clients *s) {
    atomic_store(&s->stops, true);
    pthread_join(s->thread, NULL);
    for (unsigned i = 0; i < s->n_conns; i++) {
        SSL_free(s->conns[i].ssl);
        nghttp2_session_del(s->conns[i].h2);
        if (s->conns[i].fd >= 0) close(s->conns[i].fd);
    }
    close(s->epoll);
    arrivals_close(&s->arrivals);
    free(s);
}

/* ---- what is measured */
struct figures {
    double live, flat_out; /* events a second of processor time */
    double kb;             /* of a stream */
    unsigned errors;
};

static struct clients *under_way; /* of the round */

static bool all_over(struct relay_bench *b) {
    return atomic_load(&under_way->n_whole) + atomic_load(&b->arrivals->n_failed) ==
           under_way->n_streams;
}

static void begin(struct relay_bench *b, struct clients *s) {
    under_way = s;
    relay_forget(b);
    b->arrivals = &s->arrivals;
    b->n_wished = s->n_streams;
    relay_wait(b, relay_all_begun, "not every stream began");
    relay_shuffle(b);
}

/* Ends the streams; how many were not whole. */
static unsigned finish(struct relay_bench *b) {
    relay_finish(b);
    relay_wait(b, all_over, "streams do not end");
    const unsigned errors = atomic_load(&b->arrivals->n_failed);
    clients_stop(under_way);
    return errors;
}

static double rate(struct relay_bench *b, const struct relay_daemon *d, uint64_t n, unsigned step,
                   unsigned every_ms) {
    const double cpu = relay_daemon_cpu(d);
    relay_send(b, n, step, every_ms);
    return (double)n / (relay_daemon_cpu(d) - cpu);
}

static struct figures measure(struct relay_bench *b, enum way way, double seconds,
                              const char *settings, SSL_CTX *ctx) {
    struct relay_daemon d;
    struct figures f = {0};
    unsigned step, every_ms;
    fprintf(stderr, "bench_relay_tls: %u streams, %s\n", STREAMS, way_names[way]);
    relay_daemon_start(&d, b, settings);
    relay_wait(b, relay_ready, "the coordinator does not take the instances");
    /* The first request shows that all is settled; its memory is not a stream's. */
    begin(b, clients_start(way, 1, d.port, ctx));
    f.errors = finish(b);
    const double idle_kb = relay_daemon_kb(&d);
    begin(b, clients_start(way, STREAMS, d.port, ctx));
    relay_pace(STREAMS * 20, &step, &every_ms);
    f.live = rate(b, &d, (uint64_t)(step * 1000.0 / every_ms * seconds), step, every_ms);
    f.kb = (relay_daemon_kb(&d) - idle_kb) / STREAMS;
    f.flat_out = rate(b, &d, (uint64_t)(60000 * seconds), 0, 0);
    f.errors += finish(b);
    relay_daemon_stop(&d, b);
    return f;
}

static double median_of(const struct figures f[ROUNDS_MAX], int n, size_t member) {
    double v[ROUNDS_MAX];
    for (int i = 0; i < n; i++) memcpy(&v[i], (const char *)&f[i] + member, sizeof(v[i]));
    return bench_median(v, n);
}

static double median_ratio(const struct figures f[ROUNDS_MAX], const struct figures of[ROUNDS_MAX],
                           int n, size_t member) {
    double v[ROUNDS_MAX];
    for (int i = 0; i < n; i++) {
        double a, b;
        memcpy(&a, (const char *)&f[i] + member, sizeof(a));
        memcpy(&b, (const char *)&of[i] + member, sizeof(b));
        v[i] = a / b;
    }
    return bench_median(v, n);
}

/* The number of errors. */
static unsigned print(struct figures f[WAYS][ROUNDS_MAX], int rounds) {
    static const struct {
        const char *name;
        size_t member;
    } rates[] = {{"live", offsetof(struct figures, live)},
                 {"flat_out", offsetof(struct figures, flat_out)}};
    unsigned all = 0;
    for (int w = 0; w < WAYS; w++) {
        unsigned errors = 0;
        for (int i = 0; i < rounds; i++) errors += f[w][i].errors;
        for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++) {
            printf("relay_tls_%s_%s_rate %.0f events/s_of_one_core", way_names[w], rates[r].name,
                   median_of(f[w], rounds, rates[r].member));
            if (w != WAY_H1)
                printf(" %.2f of h1", median_ratio(f[w], f[WAY_H1], rounds, rates[r].member));
            printf("\n");
        }
        printf("relay_tls_%s_stream_memory %.1f KB\n", way_names[w],
               median_of(f[w], rounds, offsetof(struct figures, kb)));
        printf("relay_tls_%s_errors %u streams of_all %d\n", way_names[w], errors,
               rounds * (STREAMS + 1));
        all += errors;
    }
    return all;
}

/* A decode instance writes an event of gRPC as JSON and makes the message of that (grpc_json.h).
 * event_s: of the coordinator's processor time for one, live, in the same run. */
static void print_message_cost(double event_s) {
    enum { N = 20000, ROUNDS = 5 };
    static const struct {
        const char *name, *json;
    } events[] = {
        {"text",
         "{\"generated_token_count\":12,\"stop_reason\":\"NOT_FINISHED\",\"text\":\" and\"}"},
        {"details",
         "{\"generated_token_count\":12,\"stop_reason\":\"NOT_FINISHED\",\"text\":\" and\","
         "\"tokens\":[{\"text\":\" and\",\"logprob\":-1.2345678,\"rank\":3,\"top_tokens\":["
         "{\"text\":\" the\",\"logprob\":-0.5},{\"text\":\" and\",\"logprob\":-1.2345678},"
         "{\"text\":\" of\",\"logprob\":-1.75}]}]}"},
    };
    for (size_t e = 0; e < sizeof(events) / sizeof(events[0]); e++) {
        double best = 1;
        for (int r = 0; r < ROUNDS; r++) {
            struct timespec from, to;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
            for (int i = 0; i < N; i++) {
                struct buf out = BUF_INIT;
                grpc_put_text(&out, &grpc_fmaas_GenerationResponse, events[e].json,
                              strlen(events[e].json));
                require(!out.failed && out.len > 0, "a message is not made");
                buf_free(&out);
            }
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
            const double s =
                (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
            if (s / N < best) best = s / N;
        }
        printf("relay_grpc_message_%s %.0f ns %.3f of event_of_the_coordinator\n", events[e].name,
               1e9 * best, best / event_s);
    }
}

/* ---- certificates */
static SSL_CTX *make_certificates(struct pki *pki, char *settings, size_t n) {
    const struct cert_opts o = {.kind = KEY_P256};
    pki_up(pki);
    const struct issued ca = pki_issue(pki, NULL, "ca", &o),
                        server = pki_issue(pki, &ca, "server", &o),
                        client = pki_issue(pki, &ca, "client", &o);
    (void)server;
    snprintf(settings, n,
             "\"tls_config\":{\"request_server_tls_enable\":true,\"request_server_tls_items\":{"
             "\"ca_cert\":\"%s/ca.pem\",\"tls_cert\":\"%s/server.pem\",\"tls_key\":"
             "\"%s/server.key\"}},",
             pki->dir, pki->dir, pki->dir);
    return pki_client(&ca, &client);
}

static void parse(int argc, char **argv, double *seconds, int *rounds) {
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0) *seconds = atof(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0) *rounds = atoi(argv[i + 1]);
    }
    require(*seconds > 0 && *seconds <= 60, "--seconds over 0, up to 60");
    require(*rounds > 0 && *rounds <= ROUNDS_MAX, "--rounds 1 to 15");
}

int main(int argc, char **argv) {
    static struct relay_bench b;
    static struct figures f[WAYS][ROUNDS_MAX];
    struct pki pki;
    char settings[512];
    double seconds = 3;
    int rounds = 3;
    parse(argc, argv, &seconds, &rounds);
    log_init(LOG_ERROR, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    SSL_CTX *ctx = make_certificates(&pki, settings, sizeof(settings));
    relay_bench_open(&b, STREAMS, 0);
    for (int i = 0; i < rounds; i++)
        for (int w = 0; w < WAYS; w++) f[w][i] = measure(&b, (enum way)w, seconds, settings, ctx);
    relay_bench_close(&b);
    SSL_CTX_free(ctx);
    pki_down(&pki);
    const unsigned errors = print(f, rounds);
    print_message_cost(1 / median_of(f[WAY_GRPC], rounds, offsetof(struct figures, live)));
    return errors == 0 ? 0 : 1;
}
