/* bench_relay: what the coordinator adds to a stream of tokens: relayed events per second of its
 * processor time, latency at 1, 100 and 1,000 streams, memory per stream.
 *
 *   bench_relay [--seconds S] [--streams N --rate EVENTS_PER_S]       (BUILD names the build
 * folder; runs its bin/coordinator)
 *
 * The coordinator is the real daemon. P and D are servers of this process that speak the instance's
 * side of the protocol and compute nothing; clients are sockets of a second thread. D writes one
 * frame per sequence and step, as a decode instance does, each with the time it was written.
 * Latency is from D's write to the client's read; what is added is that less the same for a stream
 * that D writes to a client directly. Rates are per second of the coordinator's processor time
 * (its threads together), so a busy machine changes them little: live at 20 tokens a second of each
 * stream, where every event is a read and a write of its own, and flat out, where what waits goes
 * out together. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/budget.h"
#include "common/base/log.h"
#include "tests/bench/machine.h"
#include "tests/bench/relay_parts.h"

enum { TOGETHER = 100 }; /* streams that begin at once */

/* ---- clients: one thread, any number of sockets */
struct client {
    int fd;
    struct arrivals_tail tail;
    bool answers; /* 200 */
};

struct clients {
    struct arrivals arrivals;
    int epoll;
    pthread_t thread;
    struct client *c[RELAY_STREAMS_MAX];
    unsigned n;
    atomic_bool stops;
};

static void client_read(struct clients *s, struct client *c) {
    char buf[65536];
    ssize_t got = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (got <= 0) {
        require(got < 0 && errno == EAGAIN, "a stream broke");
        return;
    }
    if (!c->answers && memcmp(buf, "HTTP/1.1 200", got < 12 ? (size_t)got : 12) != 0) {
        buf[got < 600 ? got : 600] = 0;
        require(false, buf);
    }
    c->answers = true;
    arrivals_scan(&s->arrivals, &c->tail, buf, (size_t)got);
}

static void *clients_main(void *arg) {
    struct clients *s = arg;
    struct epoll_event ev[256];
    while (!atomic_load(&s->stops)) {
        int n = epoll_wait(s->epoll, ev, 256, 50);
        for (int i = 0; i < n; i++) client_read(s, ev[i].data.ptr);
    }
    return NULL;
}

static void client_open(struct clients *s, uint16_t port, const char *path) {
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client *c = calloc(1, sizeof(*c));
    char head[512];
    static const char body[] = "{\"model\":\"m\",\"prompt\":\"once\",\"stream\":true}";
    require(c != NULL && s->n < RELAY_STREAMS_MAX, "too many streams");
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)) == 0, "no connection");
    int n = snprintf(head, sizeof(head),
                     "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     path, sizeof(body) - 1, body);
    require(send(c->fd, head, (size_t)n, MSG_NOSIGNAL) == n, "send");
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
    require(epoll_ctl(s->epoll, EPOLL_CTL_ADD, c->fd, &ev) == 0, "epoll");
    s->c[s->n++] = c;
}

static void clients_start(struct clients *s) {
    arrivals_open(&s->arrivals);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    require(pthread_create(&s->thread, NULL, clients_main, s) == 0, "no thread");
}

static void clients_stop(struct clients *s) {
    atomic_store(&s->stops, true);
    pthread_join(s->thread, NULL);
    for (unsigned i = 0; i < s->n; i++) {
        close(s->c[i]->fd);
        free(s->c[i]);
    }
    close(s->epoll);
    arrivals_close(&s->arrivals);
}

/* ---- what is measured */
static bool is_not_direct(struct relay_bench *b) {
    return b->direct == NULL;
}

static double direct_p50(struct relay_bench *b, unsigned n) {
    struct clients s = {0};
    clients_start(&s);
    b->arrivals = &s.arrivals;
    b->n_wished = 1;
    client_open(&s, b->d[0].port, "/direct");
    relay_wait(b, relay_all_begun, "no direct stream");
    relay_send(b, n, 1, 2);
    double p50 = arrivals_percentile(&s.arrivals, 0.5);
    clients_stop(&s);
    relay_wait(b, is_not_direct, "the direct stream does not end");
    return p50;
}

/* Budgets on the way of an event: one is taken and given for what waits at the client's connection,
 * one for a piece that waits for P. Most events need neither; here each has both. event_s: of the
 * coordinator's processor time, measured before in the same run. */
static void print_budget_cost(double event_s) {
    enum { N = 2000000, PAIRS = 2 };
    struct budget b;
    budget_init(&b);
    budget_limit_set(&b, BUDGET_ANSWER_BYTES, UINT64_C(1) << 30);
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < N; i++) {
        require(budget_take(&b, BUDGET_ANSWER_BYTES, RELAY_LINE_BYTES), "a budget");
        budget_give(&b, BUDGET_ANSWER_BYTES, RELAY_LINE_BYTES);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    double pair_s =
        ((double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec)) / N;
    printf("relay_budgets_cost %.2f %%_of_an_event pair_ns %.1f event_ns %.0f\n",
           100 * PAIRS * pair_s / event_s, 1e9 * pair_s, 1e9 * event_s);
}

static void through(struct relay_bench *b, const struct relay_daemon *d, unsigned streams,
                    unsigned per_s, double seconds, double direct, double idle_kb) {
    struct clients s = {0};
    fprintf(stderr, "bench_relay: streams %u\n", streams);
    relay_forget(b);
    clients_start(&s);
    b->arrivals = &s.arrivals;
    for (unsigned i = 1; i <= streams; i++) {
        client_open(&s, d->port, "/v1/completions");
        if (i % TOGETHER != 0 && i != streams) continue;
        b->n_wished = i; /* the instances are on this thread and must not be silent for long */
        relay_wait(b, relay_all_begun, "not every stream began");
    }
    double kb = (relay_daemon_kb(d) - idle_kb) / streams;
    unsigned step, every_ms;
    relay_pace(per_s, &step, &every_ms);
    double rate_paced = step * 1000.0 / every_ms;
    const uint64_t n_paced = (uint64_t)(rate_paced * seconds);
    double cpu_paced = relay_daemon_cpu(d);
    relay_send(b, n_paced, step, every_ms);
    cpu_paced = relay_daemon_cpu(d) - cpu_paced;
    double p50 = arrivals_percentile(&s.arrivals, 0.5),
           p99 = arrivals_percentile(&s.arrivals, 0.99);
    double cpu = relay_daemon_cpu(d), t = bench_now();
    uint64_t n = (uint64_t)(60000 * seconds);
    relay_send(b, n, 0, 0);
    cpu = relay_daemon_cpu(d) - cpu;
    t = bench_now() - t;
    printf("relay_%u_streams_latency_p50 %.3f ms added %.3f p99 %.3f direct %.3f\n", streams,
           p50 * 1e-3, (p50 - direct) * 1e-3, p99 * 1e-3, direct * 1e-3);
    printf("relay_%u_streams_live_rate %.0f events/s_of_one_core\n", streams,
           (double)n_paced / cpu_paced);
    printf("relay_%u_streams_flat_out_rate %.0f events/s_of_one_core %.0f events/s_here\n", streams,
           (double)n / cpu, (double)n / t);
    if (streams >= 1000) print_budget_cost(cpu_paced / (double)n_paced);
    if (streams >= 1000) printf("relay_stream_memory %.1f KB\n", kb);
    fflush(stdout);
    clients_stop(&s);
}

/* The value of an option, which must be within [least, most]; absent: `value`. */
static double option(int argc, char **argv, const char *name, double least, double most,
                     double value) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0) value = atof(argv[i + 1]);
    require(value >= least && value <= most, name);
    return value;
}

int main(int argc, char **argv) {
    static struct relay_bench b;
    struct relay_daemon d;
    const double seconds = option(argc, argv, "--seconds", 0.1, 60, 3);
    const unsigned streams = (unsigned)option(argc, argv, "--streams", 0, RELAY_STREAMS_MAX, 0);
    const double rate = option(argc, argv, "--rate", 1, 1e6, 100000);
    log_init(LOG_ERROR, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    relay_bench_open(&b, streams > 1000 ? streams : 1000);
    relay_daemon_start(&d, &b, "");
    relay_wait(&b, relay_ready, "the coordinator does not take the instances");
    double direct = direct_p50(&b, (unsigned)(seconds * 200));
    /* The first request shows that all is settled; its memory is not a stream's. */
    through(&b, &d, 1, 20, seconds, direct, relay_daemon_kb(&d));
    if (streams > 0) {
        through(&b, &d, streams, (unsigned)rate, seconds, direct, relay_daemon_kb(&d));
    } else { /* 20 tokens a second of each stream */
        through(&b, &d, 100, 2000, seconds, direct, relay_daemon_kb(&d));
        through(&b, &d, 1000, 20000, seconds, direct, relay_daemon_kb(&d));
    }
    relay_daemon_stop(&d, &b);
    relay_bench_close(&b);
    return 0;
}
