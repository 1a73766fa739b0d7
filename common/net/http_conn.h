/* http_conn: what http_server.c (listener), http_gate.c (all listeners), http_conn.c (one
 * connection) and http_x.c (one exchange) share. Private to the server.
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
    HTTP_YIELD_MS = 2000,     /* a body, or a slow reader, may be closed for others after so long */
    HTTP_HEAD_YIELD_MS = 100, /* a head or a handshake: most come whole */
    HTTP_SMALL_BODY_BYTES = 65536,     /* a body that may use the last eighth of the room */
    HTTP_TAKE_BYTES = 65536,           /* room for a chunked body is taken by so much */
    HTTP_BODY_BYTES_DEFAULT = 1048576, /* without a body_bytes_max callback */
    HTTP_CONNS_DEFAULT = 1000,         /* for conns_max 0 */
    HTTP_HANDSHAKE_MS_DEFAULT = 10000,
    HTTP_TLS_LOG_MS = 1000, /* failed handshakes are logged once in so long, with their number */
    HTTP_PEER_BYTES = 64,
};

struct http_conn;
struct http_addr;

/* Connections in the order they came in. A connection is in one list of each kind at most. */
enum { LINK_WAITS, LINK_STALLS, LINK_COUNT };
struct http_list {
    struct http_conn *first, *last;
};
struct http_link {
    struct http_conn *prev, *next;
    struct http_list *in; /* NULL: in none */
};

struct http_gate {
    struct loop *loop;
    struct budget *budget;
    struct http_server *servers; /* linked by next_in_gate */
    struct http_list bodies;     /* being read: LINK_WAITS */
    struct http_addr **addrs;    /* hash table of addresses with connections; NULL: not counted */
    uint64_t addr_seed;
    unsigned handshake_us_left[2]; /* of this loop pass: for clients, for other planes */
    bool pass_end_set;
    struct loop_task pass_end;
    uint64_t sweep_next_ms; /* no sweep before */
};

struct http_server {
    struct loop *loop;
    struct http_server_opts opts; /* host is not kept, name is a copy */
    char *name;
    int listen_fd;
    uint16_t port;
    struct loop_fd *listen_w;
    struct loop_timer *tick;
    struct loop_alarm accept_pause;
    struct http_conn *conns;
    struct http_conn *dirty; /* singly linked by next_dirty */
    unsigned n_conns;
    struct http_server *next_in_gate;
    struct http_list idle, heads; /* LINK_WAITS: nothing of a request; a handshake or head */
    struct http_list stalled;     /* LINK_STALLS: by the last progress of a write */
    unsigned n_tls_failed;        /* handshakes since the last log line */
    uint64_t tls_log_next_ms;     /* no line before */
    bool pass_end_set, closed;
    struct loop_task pass_end;
    char read_buf[HTTP_READ_BYTES];
};

enum http_phase {
    PHASE_HANDSHAKE,
    PHASE_IDLE, /* nothing of the next request has come */
    PHASE_HEAD,
    PHASE_BODY,
    PHASE_ANSWER, /* with the handler, or being sent */
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
    struct http_link links[LINK_COUNT];
    struct http_addr *addr; /* NULL: not counted */
    uint64_t since_ms;      /* when its phase began */
    uint64_t stalled_ms;    /* last progress of a write that waits; */
    uint64_t waits_ms;      /* since when something waits to be written; 0: nothing */
    size_t held;            /* as counted in the gate */
    size_t body_seen;       /* bytes of the body that the deadlines have counted */
    uint64_t body_end_us, rate_us, silent_us; /* when a body is late, in three ways */
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
    struct http_gate *gate; /* that body_taken came from */
    size_t body_taken;
    bool keep_alive, head_only, chunked;
    bool closing; /* on_close is running: nothing may free x */
    struct loop_task gone;
    bool gone_posted; /* on_close was asked for after the client had gone; a posted call holds x */
    bool limited;     /* by the client's certificate */
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
/* Closes a connection that can be spared. False: there is none. */
bool http_server_make_room(struct http_server *s);
struct budget *http_server_budget(const struct http_server *s);

/* http_gate.c */
struct sockaddr_storage;
void http_list_add(struct http_list *l, struct http_conn *c, int kind); /* last */
void http_list_drop(struct http_conn *c, int kind);
void http_gate_join(struct http_gate *g, struct http_server *s);
void http_gate_part(struct http_gate *g, struct http_server *s);
/* A place for a connection of this address; *addr is what the connection keeps. */
bool http_gate_enter(struct http_gate *g, struct http_addr **addr,
                     const struct sockaddr_storage *sa);
void http_gate_leave(struct http_gate *g, struct http_addr *addr);
bool http_gate_make_room(struct http_gate *g); /* descriptors have run out */
/* Room for n more bytes of the body of x. */
bool http_gate_take_body(struct http_gate *g, struct http_x *x, size_t n);
/* What the connection holds beside a body has changed. */
void http_gate_hold(struct http_gate *g, struct http_conn *c, size_t held);
/* Closes slow connections that hold much, when all together hold too much; never `but`. False: it
 * is too much still. */
bool http_gate_sweep(struct http_gate *g, const struct http_conn *but);
/* Time for a step of a handshake in this pass, which clients cannot take from the other planes;
 * each begin that is true wants its end. */
bool http_gate_handshake_begin(struct http_gate *g, bool control, uint64_t *began_us);
void http_gate_handshake_end(struct http_gate *g, bool control, uint64_t began_us);

/* http_conn.c */
enum err http_conn_open(struct http_server *s, int fd, const char *peer,
                        struct http_addr *addr); /* takes fd on ERR_OK */
void http_conn_free(struct http_conn *c);
void http_conn_pass_end(struct http_conn *c);
void http_conn_tick(struct http_conn *c, uint64_t now_ms);
void http_conn_gone(struct http_conn *c);     /* closes; tells the open exchange */
void http_conn_shutdown(struct http_conn *c); /* the same after one more write */
void http_conn_abort(struct http_conn *c, bool reset);
void http_conn_spare(struct http_conn *c);      /* closes for a new client */
void http_conn_yield_body(struct http_conn *c); /* ends a body for those of others */
size_t http_conn_pending(const struct http_conn *c);

/* http_x.c */
struct http_x *http_x_new(
    struct http_conn *c); /* takes the head out of the parser; NULL: no memory */
void http_x_free(struct http_x *x);
void http_x_client_gone(struct http_x *x); /* the connection has let go of x already */
/* The body is needed no more: its memory, and its room in the gate, are free. */
void http_x_drop_body(struct http_x *x);
/* Bytes of the body; its memory grows to what the head announced and no further. */
void http_x_body_append(struct http_x *x, const char *p, size_t n);
/* An answer without an exchange: head and body into c->out, closing. */
void http_x_plain_answer(struct http_conn *c, int status, const char *text);

#endif
