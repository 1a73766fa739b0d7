/* relay_out: what a client has of its answer, and the one place that writes to it: the head, pieces
 * in the framing of its family, comments while a stream is silent, the end. Ends exactly once: by
 * relay_out_last(), _error() or _fail(); then x is not ours any more.
 *
 * Back-pressure: what a client does not read waits on its connection, up to pd.relay_pending_mib;
 * over it the connection is closed, and the request's on_gone runs. Thread: the loop thread. */
#ifndef BATON_COORDINATOR_RELAY_OUT_H
#define BATON_COORDINATOR_RELAY_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct coordinator;
struct http_x;
struct api_path;

struct relay_out {
    struct coordinator *co;
    struct http_x *x; /* NULL: ended, or the client is gone: what is written goes nowhere */
    const struct api_path *path;
    bool stream;    /* the client wants one */
    bool head_sent; /* of a stream: from here on an error is an event */
    bool begun;     /* bytes of an answer are out: the next attempt has to go on behind them */
    uint64_t last_write_ms; /* or the arrival */
    unsigned retry_after_s; /* of 429 and 503; 0: a second */
    unsigned attempt;       /* for header x-baton-attempts: the one that answers, from 1 */
};

/* Takes x; gone(arg) when its client leaves. id: header RequestUUID. */
void relay_out_open(struct relay_out *o, struct coordinator *co, struct http_x *x,
                    const struct api_path *path, bool stream, const char *id, void (*gone)(void *),
                    void *arg);
/* The client has come back, over x: the one before is let go. p[n]: what it lacks. */
void relay_out_attach(struct relay_out *o, struct http_x *x, const char *id, void (*gone)(void *),
                      void *arg, const char *p, size_t n);
/* It shall go to another coordinator: the connection of a stream breaks, others get a 503. */
void relay_out_hand_on(struct relay_out *o, const char *text);
/* A piece of a stream; nothing where the client waits for a whole body. */
void relay_out_piece(struct relay_out *o, const char *p, size_t n);
/* The end of a stream, or a whole body. */
void relay_out_last(struct relay_out *o, const char *p, size_t n);
/* An instance's own error. framed: bytes that continue the stream as they are; else a body, which
 * becomes an event where the head of a stream is out. type NULL: JSON. */
void relay_out_error(struct relay_out *o, int status, const char *type, const char *body, size_t n,
                     bool framed);
/* The coordinator's own error. */
void relay_out_fail(struct relay_out *o, int status, const char *text);
/* A comment line on a stream that has been silent for sseKeepAliveSeconds, its head first
 * (inference-api 5.1); frames that are no server-sent events have none. */
void relay_out_tick(struct relay_out *o, uint64_t now_ms);

#endif
