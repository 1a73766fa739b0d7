/* http_server: strict HTTP/1.1 and HTTP/2 listeners on a loop: limits, keep-alive, Expect, chunked
 * requests and answers, streaming out with back-pressure. Over HTTP/1.1 a connection answers its
 * requests one by one, over HTTP/2 (RFC 9113) at once; a handler does not know which it is. HTTP/2
 * is spoken where TLS agreed on it (ALPN "h2"), and in clear where a connection begins with its
 * preface or its first request asks for it (Upgrade: h2c, RFC 7540 3.2).
 *
 * Gone:      a client that closes, or only shuts down its sending side, while its request is
 *   unanswered counts as gone: the two look alike on the socket, and work for a client that left
 *   must stop at once. An answer given from within on_request still reaches a client that shut down
 *   right behind its request.
 * Pipelining: bytes behind a request wait until it is answered; up to 64 KiB are taken in.
 * Errors:    the server answers by itself and closes: 400, 408, 413, 414, 417, 431, 501, 503, 505.
 *   Before the head is complete that is a line of plain text, after it on_refused words it.
 *   Over HTTP/2 only the stream ends with such an answer; what HTTP/1.1 says by closing, GOAWAY
 * says. Limits:    a gate (http_gate.h) bounds what all listeners hold together. TLS:       with a
 * context every connection starts with a handshake, which has handshake_ms; what fails there is
 * closed and logged, and no byte of it reaches a handler. The end of a TLS stream is its
 * close_notify; a connection cut without one counts as broken. Thread:    the loop thread. No call
 * blocks, and none but http_server_close() runs a callback of the caller's from inside. Ownership:
 * an exchange (struct http_x) belongs to the server; a handler may use it until it replied, ended
 * or aborted the stream, or its on_close callback ran, whichever comes first. An exchange without
 * on_close outlives its client until the handler has answered into nothing. */
#ifndef BATON_NET_HTTP_SERVER_H
#define BATON_NET_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/net/loop.h"
#include "proto/err.h"

struct http_ended;
struct http_gate;
struct http_server;
struct http_x;
struct tls;

struct http_server_opts {
    const char *host;       /* IPv4 or IPv6 literal */
    uint16_t port;          /* 0: the kernel picks; see http_server_port() */
    const char *name;       /* header Server, or NULL for none */
    unsigned conns_max;     /* one more takes the place of an idle one, or is closed; 0: 1,000 */
    bool control;           /* a plane of the daemon's own, with places apart from the clients' */
    struct http_gate *gate; /* borrowed; NULL: this listener bounds itself alone */
    /* The answer to the last one closes the connection, and says so. 0: no limit. */
    unsigned requests_per_conn_max;
    size_t head_bytes_max; /* request line and fields; over it 414 or 431; 0: HTTP_HEAD_BYTES_MAX */
    unsigned idle_ms;      /* between requests; here and below 0: no limit */
    unsigned head_ms;      /* for a whole head, from its first byte */
    unsigned read_ms;      /* the same, and between two pieces of a body */
    unsigned body_ms;      /* for a whole body */
    /* How far a body may lag behind body_rate_min, in bytes a second. A pause as long as the grace
     * ends it too, however fast it was before. */
    unsigned body_grace_ms, body_rate_min;
    unsigned write_ms;     /* without progress of a write */
    struct tls *tls;       /* NULL: plain; a reference is taken */
    unsigned handshake_ms; /* for a TLS handshake; 0: 10,000 */
    /* Of one HTTP/2 connection: requests at once; frames that ask for nothing, and requests begun
     * and given up, a second. 0: 128, 200, 50. */
    unsigned h2_streams_max, h2_control_rate, h2_reset_rate;
    /* Bytes unsent on a stream over which the client counts as gone (slow reader); 0: no limit. */
    size_t stream_pending_max;

    /* Called when a request's head is complete: gives the largest body this request may have
     * (0: none). Over it the server answers 413 by calling on_too_large, or a plain 413 when that
     * is NULL. NULL: 1 MiB for all. */
    size_t (*body_bytes_max)(void *arg, const char *method, const char *path);
    void (*on_too_large)(void *arg, struct http_x *x, size_t body_bytes_max);
    /* Called for a request that the server cannot take in: 408 or 503, and why. No more of its body
     * is read. Must reply. NULL: the text in plain. */
    void (*on_refused)(void *arg, struct http_x *x, int status, const char *text);
    /* Called when a request's head is complete and a body is to come. False: the body is not read,
     * on_request runs at once without one, and the connection ends with the answer. NULL: always
     * true. */
    bool (*wants_body)(void *arg, const struct http_x *x);
    /* Called when the head of a call is complete: true: the handler reads the body as it comes
     * (http_x_read()), so on_request runs as soon as the client can be answered while it sends: at
     * once over HTTP/2, behind the body over HTTP/1. NULL: always false. */
    bool (*reads_body)(void *arg, const struct http_x *x);
    /* Called when head and body are complete. Must reply, now or later. */
    void (*on_request)(void *arg, struct http_x *x);
    void *arg;
    /* Called once for each exchange that was answered, or whose client left a handler without an
     * answer; e lives during the call, which may end no exchange. NULL: not called. */
    void (*on_ended)(void *ended_arg, const struct http_ended *e);
    void *ended_arg; /* outlives the exchanges, which may outlive the listener */
};

/* An exchange that is over. */
struct http_ended {
    const char *method, *path, *peer, *request_id, *tenant;
    const char *note; /* what its handler said of it by http_x_note(); "" when nothing */
    bool h2, grpc;
    int status;                   /* of HTTP; 499: the client left before it was answered */
    bool broken;                  /* answered, but not to its end */
    uint64_t in_bytes, out_bytes; /* of bodies */
    uint64_t us;                  /* since its head was complete */
};

/* Binds and listens before it returns. ERR_CONFLICT: the port is taken (eb names host and port). */
enum err http_server_open(struct http_server **out, struct loop *loop,
                          const struct http_server_opts *opts, struct errbuf *eb);
uint16_t http_server_port(const struct http_server *s);
unsigned http_server_conns(const struct http_server *s);
void http_server_stop_accepting(struct http_server *s);
/* For a daemon that drains: requests are taken as before, but no connection is kept for another
 * one. Over HTTP/1.1 each answer that begins from now on says that it is the last; over HTTP/2
 * GOAWAY is said, at once where a connection is open already and else with its first request, and
 * what runs ends. */
void http_server_leave(struct http_server *s);
/* Closes every connection; runs the on_close of open exchanges. Allowed inside callbacks. Comes
 * before loop_destroy(). */
void http_server_close(struct http_server **s);

/* The request. Strings live as long as the exchange. */
const char *http_x_method(const struct http_x *x);
const char *http_x_path(
    const struct http_x *x); /* percent-decoded, without empty, "." and ".." segments; no query */
const char *http_x_query(const struct http_x *x); /* raw, "" when none */
/* Case-insensitive; NULL when absent. */
const char *http_x_header(const struct http_x *x, const char *name);
size_t http_x_n_headers(const struct http_x *x);
void http_x_header_at(const struct http_x *x, size_t i, const char **name, const char **value);
/* Terminated by a zero that n does not count. */
const char *http_x_body(const struct http_x *x, size_t *n);
/* A body that is read as it comes: http_x_body() is what is there and was not taken, at most what
 * the client may send ahead (256 KiB) beside what http_x_body_more() asked for. The calls come from
 * inside the server, and may end the exchange. */
struct http_reader {
    void (*more)(void *arg); /* there is more of it, or its end */
    /* No more of it comes: it is late (408) or has no room (503). Must end the exchange. */
    void (*refused)(void *arg, int status, const char *text);
};
void http_x_read(struct http_x *x, const struct http_reader *r, void *arg);
bool http_x_body_ended(const struct http_x *x);
/* The first n bytes are read; those behind them have all the time of a new body. */
void http_x_body_take(struct http_x *x, size_t n);
/* The first n of them become the body of `to`, which has none, and are counted for it. It may be
 * left without memory (to->body.failed). */
void http_x_body_move(struct http_x *to, struct http_x *from, size_t n);
/* The client may send on. While something is there that was not taken, the rest of it has to come
 * as a body has to. */
void http_x_body_more(struct http_x *x);
/* Header X-Request-Id when it is 1 to HTTP_REQUEST_ID_BYTES_MAX visible ASCII characters, else one
 * made up (32 hex digits) that stays the same for this exchange. */
enum { HTTP_REQUEST_ID_BYTES_MAX = 128 };
const char *http_x_request_id(struct http_x *x);
/* A call of gRPC. Its answer is a stream of messages (of 200: what is written is messages with
 * their heads), or the text of an error with a status of HTTP, which becomes gRPC's. */
bool http_x_is_grpc(const struct http_x *x);
const char *http_x_peer(const struct http_x *x); /* "127.0.0.1:45122" */
/* What http_ended.note is to be: members of a JSON object behind a comma (",\"p\":\"p1\""); copied.
 * Nothing where nobody is told of ends; http_x_notes() says so. */
bool http_x_notes(const struct http_x *x);
void http_x_note(struct http_x *x, const char *members);
/* The client showed a certificate that may do only some of what the plane offers (tls.h). */
bool http_x_limited(const struct http_x *x);
/* Whose request it is (proto/tenant.h): what was set, else made of the peer's address. */
const char *http_x_tenant(struct http_x *x);
void http_x_set_tenant(struct http_x *x, const char *tenant); /* tenant_ok(); copied */

/* The answer. Headers first, then one reply or one stream. HEAD gets no body. */
/* Copied. Left out when it holds CR or LF, or says how the answer is framed; `Connection: close`
 * closes after the answer. */
void http_x_set_header(struct http_x *x, const char *name, const char *value);
/* An error of Anthropic's shape that answers x gets the member `request_id` (client-apis 2.10),
 * where it has none: one that is passed on has it. */
void http_x_name_errors(struct http_x *x);
void http_x_reply(struct http_x *x, int status, const char *content_type, const void *body,
                  size_t n);
/* Chunked (HTTP/1.0: until the close). What is written goes out at the end of the loop pass. */
void http_x_stream_begin(struct http_x *x, int status, const char *content_type);
void http_x_stream_write(struct http_x *x, const void *p, size_t n);
void http_x_stream_end(struct http_x *x);
/* What the next write to x works on is brought into the processor's cache: with step 0, and a while
 * later with step 1 what is behind that. A hint, for who has many and knows whose turn comes. */
void http_x_fetch(const struct http_x *x, int step);
/* The handler bounds what is unsent by itself: stream_pending_max is not for this stream. */
void http_x_stream_paced(struct http_x *x);
/* The same where it has begun and cannot be completed: status and text go into gRPC's trailers. A
 * call that is none of gRPC is aborted. */
void http_x_stream_fail(struct http_x *x, int status, const char *text, size_t n);
void http_x_abort(struct http_x *x); /* closes without a proper end, which the client notices */
size_t http_x_pending(const struct http_x *x); /* bytes not yet taken by the socket */
/* Runs fn(arg) once, at the end of a loop pass, as soon as no more than `bytes` are pending; not
 * after the exchange has ended or its client has gone. One at a time; NULL fn forgets it. */
void http_x_on_room(struct http_x *x, size_t bytes, loop_fn *fn, void *arg);

/* Who reads along: the body of the answer, as its handler writes it, whether or not the client is
 * still there. The calls come from inside those above, and may not use x. */
enum http_tap_end {
    HTTP_TAP_WHOLE,  /* the answer is complete */
    HTTP_TAP_BROKEN, /* its handler gave it up */
    HTTP_TAP_GONE,   /* its client went, or it was cancelled */
};
struct http_tap {
    void (*begin)(void *arg, int status, bool stream); /* before any data */
    void (*data)(void *arg, const char *p, size_t n);
    void (*end)(void *arg, enum http_tap_end how); /* once, and the last */
};
/* One at a time; tap NULL: nobody any more, without a call. */
void http_x_tap(struct http_x *x, const struct http_tap *tap, void *arg);
/* Ends the exchange as if its client had gone: the connection closes without a proper end, the
 * handler is told. */
void http_x_cancel(struct http_x *x);

/* Runs fn(arg) once if the client goes away (or the server closes) before the answer is complete.
 * Not run after a complete answer. NULL fn forgets it. */
void http_x_on_close(struct http_x *x, loop_fn *fn, void *arg);

#endif
