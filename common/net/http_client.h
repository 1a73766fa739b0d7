/* http_client: requests to other daemons as events of our loop (libcurl multi_socket, its only
 * door). HTTP/1.1, persistent connections, no redirects, no proxies, no signals.
 *
 * Retry:  a connection that was kept and turns out to be closed is replaced by a fresh one and the
 *   request sent again, as long as no byte of an answer came (libcurl's rule).
 * TLS:    an https url needs a context (ERR_INVALID without); certificate and CAs are the context's
 *   alone, never the system's. Kept connections serve all calls to their host and port, so one
 *   client must not speak to one listener in two identities. A peer that is refused gives
 * ERR_PEER_LOST with the reason as detail. Thread: the loop thread. Nothing blocks; hosts are IP
 * literals or "localhost". Calls may be started and cancelled from any callback; the client must
 * not be destroyed from one. */
#ifndef BATON_NET_HTTP_CLIENT_H
#define BATON_NET_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/net/loop.h"
#include "proto/cause.h"
#include "proto/err.h"

struct http_client;
struct http_call;
struct tls;

struct http_result {
    /* ERR_OK: a complete HTTP answer, whatever its status. ERR_PEER_LOST: could not connect (or not
     * in time), or the connection broke. ERR_TIMEOUT: connected, then too slow. ERR_TOO_LARGE: the
     * answer is over body_bytes_max. ERR_CANCELLED: on_data said so, or the client is closing. */
    enum err err;
    bool connected; /* false: no connection ever stood, so no byte of the request was sent */
    int status;
    const char *content_type; /* "" when absent; lives during the callback, like body and detail */
    enum cause cause;         /* header baton-cause; CAUSE_NONE when absent or not known here */
    const char *body;         /* what was collected, zero-terminated */
    size_t body_len;
    const char *detail; /* what libcurl says of an error, for logs */
};

struct http_call_opts {
    const char *method;
    const char *url;
    const char *const *headers; /* NULL-terminated "Name: value" lines, or NULL; copied */
    const void *body;           /* copied, unless it is lent */
    size_t body_len;
    const void *tail; /* goes behind body; copied */
    size_t tail_len;
    bool body_lent;        /* body stays as it is until on_done or http_call_cancel() */
    unsigned connect_ms;   /* 0: 5,000 */
    unsigned total_ms;     /* 0: none */
    unsigned silence_ms;   /* ends with ERR_TIMEOUT when no byte arrived for so long; 0: none */
    size_t body_bytes_max; /* of a collected answer; 0: 16 MiB */
    bool fresh_connection;
    struct tls *tls; /* for an https url: who we are, whom we trust; a reference is taken */
    /* When given, body bytes of a 200 answer go here as they come (others are collected). Returning
     * false ends the call (ERR_CANCELLED). */
    bool (*on_data)(void *arg, const char *p, size_t n);
    void (*on_headers)(void *arg, int status); /* may be NULL; once, before any body */
    /* Exactly once, never from inside http_client_call(), not after http_call_cancel(). */
    void (*on_done)(void *arg, const struct http_result *r);
    void *arg;
};

enum err http_client_create(struct http_client **out, struct loop *loop, const char *user_agent);

/* Ends calls with ERR_CANCELLED. Comes before loop_destroy(). */
void http_client_destroy(struct http_client **c);

/* On an error nothing was started and on_done will not run. ERR_INVALID: url or headers.
 * ERR_STOPPING: the client is being destroyed. out may be NULL; *out dies with on_done. */
enum err http_client_call(struct http_client *c, const struct http_call_opts *o,
                          struct http_call **out);

/* The headers of the answer, one after the other; for on_data and on_done. */
void http_call_headers(struct http_call *call,
                       void (*fn)(void *arg, const char *name, const char *value), void *arg);

/* No callback of the call runs after this. NULL is fine. */
void http_call_cancel(struct http_call **call);

#endif
