/* http_conn: what http_server.c (listener), http_conn.c (one connection) and http_x.c (one
 * exchange) share. Private to the server.
 *
 * A connection runs through phases and one exchange at a time. Whatever changes it marks it dirty;
 * at the end of the loop pass each dirty connection makes one write and then looks at the next
 * request. Memory of closed connections is freed there too, so no caller up the stack is left
 * holding it. */
#ifndef BATON_NET_HTTP_CONN_H
#define BATON_NET_HTTP_CONN_H

#include <stdbool.h>
#include "common/base/buf.h"
#include "common/net/http_parse.h"
#include "common/net/http_server.h"
#include "common/net/sock_io.h"
#include "proto/tenant.h"

enum {
    HTTP_READ_BYTES = 65536,      /* one read */
    HTTP_AHEAD_BYTES_MAX = 65536, /* taken in behind a request that is not answered yet */
    HTTP_BACKLOG_BYTES_MAX =
        262144,                  /* unsent answers over which the next pipelined request waits */
    HTTP_BUF_KEEP_BYTES = 16384, /* an empty buffer above this size is given back */
    HTTP_LINGER_MS = 2000, /* after the last answer: read and drop, so that the answer arrives */
    HTTP_LINGER_BYTES_MAX = 16777216,
    HTTP_BODY_BYTES_DEFAULT = 1048576, /* without a body_bytes_max callback */
    HTTP_CONNS_DEFAULT = 1000,         /* for conns_max 0 */
    HTTP_HANDSHAKE_MS_DEFAULT = 10000,
    HTTP_TLS_LOG_MS = 1000, /* failed handshakes are logged once in so long, with their number */
    HTTP_PEER_BYTES = 64,
};

struct http_conn;

struct http_server {
    struct loop *loop;
    struct http_server_opts opts; /* host is not kept, name is a copy */
    char *name;
    int listen_fd;
    uint16_t port;
    struct loop_fd *listen_w;
    struct loop_timer *tick, *accept_pause;
    struct http_conn *conns;
    struct http_conn *dirty; /* singly linked by next_dirty */
    unsigned n_conns;
    unsigned n_tls_failed;    /* handshakes since the last log line */
    uint64_t tls_log_next_ms; /* no line before */
    bool pass_end_set, closed;
    char read_buf[HTTP_READ_BYTES];
};

enum http_phase {
    PHASE_HANDSHAKE,
    PHASE_IDLE, /* nothing of the next request has come */
    PHASE_HEAD,
    PHASE_BODY,
    PHASE_ANSWER, /* with the handler */
    PHASE_DRAIN,  /* the last answer is being sent */
    PHASE_LINGER,
    PHASE_DEAD,
};

struct http_conn {
    struct http_server *s;
    struct http_conn *prev, *next, *next_dirty;
    bool is_dirty, eof, close_after; /* close_after: once everything is sent */
    enum http_phase phase;
    struct sock_io io;
    struct loop_fd *w;
    struct http_parser parser;
    struct buf in, out;
    size_t in_at, out_at; /* taken by the parser; taken by the socket */
    struct http_x *x;
    unsigned n_requests;
    size_t linger_left;
    uint64_t read_deadline_ms, write_deadline_ms; /* 0: none */
    char peer[HTTP_PEER_BYTES];
};

enum http_x_state { X_READING, X_OPEN, X_STREAM };

struct http_x {
    struct http_conn *conn; /* NULL: the client is gone, and the handler may not know yet */
    struct loop *loop;
    enum http_x_state state;
    bool paced; /* what is unsent of a stream is its handler's affair */
    struct http_head head;
    struct buf body;
    struct buf fields; /* header lines of the answer, each with its line end */
    size_t body_max;
    bool keep_alive, head_only, chunked;
    bool closing;     /* on_close is running: nothing may free x */
    bool gone_posted; /* on_close was asked for after the client had gone; a posted call holds x */
    bool finished;    /* the handler is done with an exchange whose client is gone */
    char request_id[HTTP_REQUEST_ID_BYTES_MAX + 1]; /* "": not asked for yet */
    char tenant[TENANT_BYTES_MAX + 1];              /* "": not asked for yet */
    loop_fn *on_close;
    void *on_close_arg;
    char peer[HTTP_PEER_BYTES];
};

/* http_server.c */
void http_server_forget(struct http_server *s,
                        struct http_conn *c); /* closed: unlink, free at the pass end */
void http_server_dirty(struct http_server *s, struct http_conn *c);
void http_server_tls_failed(struct http_server *s, const char *peer, const char *why);

/* http_conn.c */
enum err http_conn_open(struct http_server *s, int fd, const char *peer); /* takes fd on ERR_OK */
void http_conn_free(struct http_conn *c);
void http_conn_pass_end(struct http_conn *c);
void http_conn_tick(struct http_conn *c, uint64_t now_ms);
void http_conn_gone(struct http_conn *c);     /* closes; tells the open exchange */
void http_conn_shutdown(struct http_conn *c); /* the same after one more write */
void http_conn_abort(struct http_conn *c, bool reset);
size_t http_conn_pending(const struct http_conn *c);

/* http_x.c */
struct http_x *http_x_new(
    struct http_conn *c); /* takes the head out of the parser; NULL: no memory */
void http_x_free(struct http_x *x);
void http_x_client_gone(struct http_x *x); /* the connection has let go of x already */
/* An answer without an exchange: head and body into c->out, closing. */
void http_x_plain_answer(struct http_conn *c, int status, const char *text);

#endif
