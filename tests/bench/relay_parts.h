/* relay_parts: what benchmarks of the coordinator's relay share: the coordinator as a process, a
 * prefill and five decode instances that speak the instance's side of the protocol and compute
 * nothing, and the times of the events that come through.
 *
 * D writes one frame per sequence and step, as a decode instance does, each with the time it was
 * written (`"t":` and 20 digits); whoever reads it finds that time again (arrivals_scan()). Every
 * failure ends the program. The instances live on the caller's thread, arrivals belong to all. */
#ifndef BATON_TESTS_BENCH_RELAY_PARTS_H
#define BATON_TESTS_BENCH_RELAY_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include "common/net/loop.h"
#include "proto/status_msg.h"

enum { RELAY_STREAMS_MAX = 20000, RELAY_DS = 5, RELAY_LINE_BYTES = 220 };

/* Says what is wrong and ends the program unless ok. */
void require(bool ok, const char *what);
/* The value of an option, which must be within [least, most]; absent: `value`. */
double relay_option(int argc, char **argv, const char *name, double least, double most,
                    double value);

/* ---- events as their readers find them */
struct arrivals {
    atomic_uint n_begun;   /* streams that have their first event */
    atomic_ulong n_events; /* with a time */
    atomic_uint n_samples;
    atomic_uint n_failed; /* streams that broke */
    atomic_bool measures;
    float *us; /* latencies */
};

/* Of one stream: the end of what was read, in case a mark is cut. */
struct arrivals_tail {
    char text[64];
    size_t n;
    bool begun;
};

void arrivals_open(struct arrivals *a);
void arrivals_close(struct arrivals *a);
void arrivals_scan(struct arrivals *a, struct arrivals_tail *tail, const char *p, size_t n);
/* Sorts the samples. In us. */
double arrivals_percentile(struct arrivals *a, double q);

/* ---- the instances */
struct seq {
    char req_id[32];
    uint32_t epoch;
    uint64_t next;
    unsigned d; /* which decode instance has it */
    bool grpc;  /* its events are messages, not text */
};

struct relay_bench {
    struct loop *loop;
    struct relay_inst {
        struct relay_bench *b;
        struct http_server *server;
        enum inst_role role;
        uint32_t peers[RELAY_DS];
        size_t n_peers;
        uint16_t port;
        struct http_x *dresult; /* NULL: the coordinator is not there */
    } p, d[RELAY_DS];
    struct http_x *direct;
    struct loop_timer *beat;
    struct seq seqs[RELAY_STREAMS_MAX];
    unsigned n_seqs, at, n_most;
    uint64_t n_written, n_wanted;
    uint64_t late_ms;  /* no progress by then: something hangs */
    unsigned step;     /* events of one timer tick; 0: as many as the socket takes */
    unsigned n_wished; /* streams that shall begin */
    struct arrivals *arrivals;
};

/* Answers a role body, whose peers' ids go to peers[max]; returns how many. */
struct http_x;
size_t relay_role_taken(struct http_x *x, uint32_t *peers, size_t max);

/* streams: at most so many at once, n_h2 of them over HTTP/2: those need no descriptor each. */
void relay_bench_open(struct relay_bench *b, unsigned streams, unsigned n_h2);
void relay_bench_close(struct relay_bench *b);
/* Turns the loop until fact() is there. */
void relay_wait(struct relay_bench *b, bool (*fact)(struct relay_bench *), const char *what);
bool relay_ready(struct relay_bench *b);     /* the coordinator has taken the instances */
bool relay_all_begun(struct relay_bench *b); /* all streams, or one has failed */
/* Forgets the sequences, whose order is by their beginning. */
void relay_forget(struct relay_bench *b);
/* Puts the sequences into an order that has nothing to do with whose connection they are on. */
void relay_shuffle(struct relay_bench *b);
/* n events in steps of `step` every every_ms; step 0: flat out. Ends early when a stream fails. */
void relay_send(struct relay_bench *b, uint64_t n, unsigned step, unsigned every_ms);
/* Sequences of a step, and how often, for `per_s` events a second: at most 32 sequences a step; at
 * least one event in 5 ms. */
void relay_pace(unsigned per_s, unsigned *step, unsigned *every_ms);
/* The last frame of every sequence. */
void relay_finish(struct relay_bench *b);

/* ---- the coordinator, the real daemon of $BUILD */
struct relay_daemon {
    pid_t pid;
    clockid_t cpu;
    uint16_t port;
    char dir[64];
};

/* An instance of this process, on 127.0.0.1. */
struct relay_node {
    uint16_t port, kv_port;
    bool decodes;
};
struct relay_settings {
    const char *coordinator, *pd; /* more of these blocks, with a comma behind it; "": none */
    unsigned requests, d_rate;
};
void relay_daemon_launch(struct relay_daemon *d, const struct relay_node *nodes, size_t n,
                         const struct relay_settings *s);
void relay_daemon_end(struct relay_daemon *d); /* and its files */
/* tls: settings of coordinator.tls_config with a comma behind them; "": none. */
void relay_daemon_start(struct relay_daemon *d, struct relay_bench *b, const char *tls);
/* The instances have no role afterwards, as at the beginning. */
void relay_daemon_stop(struct relay_daemon *d, struct relay_bench *b);
double relay_daemon_cpu(const struct relay_daemon *d); /* s, its threads together */
double relay_daemon_kb(const struct relay_daemon *d);  /* resident */

#endif
