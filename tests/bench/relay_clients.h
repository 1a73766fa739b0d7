/* relay_clients: clients of a coordinator that ask for streams, in clear: over HTTP/1.1, a
 * connection each, or many over each connection of HTTP/2. One thread reads all of them and notes
 * what comes (arrivals of relay_parts.h).
 *
 * Thread:  the caller's opens and closes, the clients' own reads. A failure ends the program. */
#ifndef BATON_TESTS_BENCH_RELAY_CLIENTS_H
#define BATON_TESTS_BENCH_RELAY_CLIENTS_H

#include <pthread.h>
#include "tests/bench/relay_parts.h"

enum { H2_STREAMS_EACH = 100 }; /* of a connection, at most */

struct client;

struct clients {
    struct arrivals arrivals;
    int epoll;
    pthread_t thread;
    struct client *first;
    atomic_bool stops;
};

void clients_start(struct clients *s);
/* Asks 127.0.0.1:port for one stream more, over a connection of HTTP/1.1 of its own. */
void clients_open_h1(struct clients *s, uint16_t port, const char *path);
/* For n streams, at most H2_STREAMS_EACH, over one connection of HTTP/2. */
void clients_open_h2(struct clients *s, uint16_t port, const char *path, unsigned n);
void clients_stop(struct clients *s); /* closes their connections */

#endif
