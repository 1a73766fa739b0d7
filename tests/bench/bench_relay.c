/* bench_relay: what the coordinator adds to a stream of tokens: relayed events per second of its
 * processor time, latency at 1, 100 and 1,000 streams, memory per stream.
 *
 *   bench_relay [--seconds S] [--streams N [--h2 M] --rate EVENTS_PER_S]    (BUILD names the build
 * folder; runs its bin/coordinator). M of the N streams go over HTTP/2, 100 on a connection.
 *
 * The coordinator is the real daemon. P and D are servers of this process that speak the instance's
 * side of the protocol and compute nothing; clients are sockets of a second thread. D writes one
 * frame per sequence and step, as a decode instance does, each with the time it was written.
 * Latency is from D's write to the client's read; what is added is that less the same for a stream
 * that D writes to a client directly. Rates are per second of the coordinator's processor time
 * (its threads together), so a busy machine changes them little: live at 20 tokens a second of each
 * stream, where every event is a read and a write of its own, and flat out, where what waits goes
 * out together. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/budget.h"
#include "common/base/log.h"
#include "tests/bench/machine.h"
#include "tests/bench/relay_clients.h"
#include "tests/bench/relay_parts.h"

enum { TOGETHER = H2_STREAMS_EACH }; /* streams that begin at once */

/* ---- what is measured */
static bool is_not_direct(struct relay_bench *b) {
    return b->direct == NULL;
}

/* Of a stream without a coordinator, in us. */
struct direct {
    double p50, p99;
};

static struct direct measure_direct(struct relay_bench *b, unsigned n) {
    struct clients s;
    clients_start(&s);
    b->arrivals = &s.arrivals;
    b->n_wished = 1;
    clients_open_h1(&s, b->d[0].port, "/direct");
    relay_wait(b, relay_all_begun, "no direct stream");
    relay_send(b, n, 1, 2);
    const struct direct d = {arrivals_percentile(&s.arrivals, 0.5),
                             arrivals_percentile(&s.arrivals, 0.99)};
    clients_stop(&s);
    relay_wait(b, is_not_direct, "the direct stream does not end");
    return d;
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

/* Streams that begin together, the first n_h2 of them over HTTP/2. */
static void begin_streams(struct relay_bench *b, struct clients *s, uint16_t port, unsigned n,
                          unsigned n_h2) {
    for (unsigned at = 0; at < n;) {
        const unsigned left = (at < n_h2 ? n_h2 : n) - at, some = left < TOGETHER ? left : TOGETHER;
        if (at < n_h2)
            clients_open_h2(s, port, "/v1/completions", some);
        else
            for (unsigned i = 0; i < some; i++) clients_open_h1(s, port, "/v1/completions");
        at += some;
        b->n_wished = at; /* the instances are on this thread and must not be silent for long */
        relay_wait(b, relay_all_begun, "not every stream began");
    }
}

static void through(struct relay_bench *b, const struct relay_daemon *d, unsigned streams,
                    unsigned n_h2, unsigned per_s, double seconds, struct direct direct,
                    double idle_kb) {
    struct clients s;
    fprintf(stderr, "bench_relay: streams %u\n", streams);
    relay_forget(b);
    clients_start(&s);
    b->arrivals = &s.arrivals;
    begin_streams(b, &s, d->port, streams, n_h2);
    if (n_h2 > 0) relay_shuffle(b);
    double kb = (relay_daemon_kb(d) - idle_kb) / streams;
    unsigned step, every_ms;
    relay_pace(per_s, &step, &every_ms);
    double rate_paced = step * 1000.0 / every_ms;
    const uint64_t n_paced = (uint64_t)(rate_paced * seconds);
    double cpu_paced = relay_daemon_cpu(d);
    fprintf(stderr, "bench_relay: all begun, %.0f events/s\n", rate_paced);
    relay_send(b, n_paced, step, every_ms);
    cpu_paced = relay_daemon_cpu(d) - cpu_paced;
    double p50 = arrivals_percentile(&s.arrivals, 0.5),
           p99 = arrivals_percentile(&s.arrivals, 0.99);
    double cpu = relay_daemon_cpu(d), t = bench_now();
    uint64_t n = (uint64_t)(60000 * seconds);
    relay_send(b, n, 0, 0);
    cpu = relay_daemon_cpu(d) - cpu;
    t = bench_now() - t;
    printf("relay_%u_streams_latency_p50 %.3f ms added %.3f direct %.3f\n", streams, p50 * 1e-3,
           (p50 - direct.p50) * 1e-3, direct.p50 * 1e-3);
    printf("relay_%u_streams_latency_p99 %.3f ms added %.3f direct %.3f\n", streams, p99 * 1e-3,
           (p99 - direct.p99) * 1e-3, direct.p99 * 1e-3);
    printf("relay_%u_streams_live_rate %.0f events/s_of_one_core at %.0f events/s\n", streams,
           (double)n_paced / cpu_paced, rate_paced);
    printf("relay_%u_streams_flat_out_rate %.0f events/s_of_one_core %.0f events/s_here\n", streams,
           (double)n / cpu, (double)n / t);
    if (streams >= 1000) print_budget_cost(cpu_paced / (double)n_paced);
    if (streams == 1000) printf("relay_stream_memory %.1f KB\n", kb);
    if (streams > 1000) printf("relay_%u_streams_memory %.1f KB\n", streams, kb);
    fflush(stdout);
    clients_stop(&s);
}

int main(int argc, char **argv) {
    static struct relay_bench b;
    struct relay_daemon d;
    const double seconds = relay_option(argc, argv, "--seconds", 0.1, 60, 3);
    const unsigned streams =
        (unsigned)relay_option(argc, argv, "--streams", 0, RELAY_STREAMS_MAX, 0);
    const unsigned n_h2 = (unsigned)relay_option(argc, argv, "--h2", 0, streams, 0);
    const double rate = relay_option(argc, argv, "--rate", 1, 1e6, 100000);
    log_init(LOG_ERROR, STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    relay_bench_open(&b, streams > 1000 ? streams : 1000, n_h2);
    relay_daemon_start(&d, &b, "");
    relay_wait(&b, relay_ready, "the coordinator does not take the instances");
    const struct direct direct = measure_direct(&b, (unsigned)(seconds * 200));
    /* The first request shows that all is settled; its memory is not a stream's. */
    through(&b, &d, 1, 0, 20, seconds, direct, relay_daemon_kb(&d));
    if (streams > 0) {
        through(&b, &d, streams, n_h2, (unsigned)rate, seconds, direct, relay_daemon_kb(&d));
    } else { /* 20 tokens a second of each stream */
        through(&b, &d, 100, 0, 2000, seconds, direct, relay_daemon_kb(&d));
        through(&b, &d, 1000, 0, 20000, seconds, direct, relay_daemon_kb(&d));
    }
    relay_daemon_stop(&d, &b);
    relay_bench_close(&b);
    return 0;
}
