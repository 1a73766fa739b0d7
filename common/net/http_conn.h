/* http_conn: what the files of the server share; private to them. http_server.c: a listener;
 * http_gate.c: all listeners; http_conn.c: one connection, its socket and its phases; h1.c, h2*.c:
 * what a connection speaks (struct http_conn_ops) and how an answer is framed (struct http_x_ops);
 * http_req.c: a request on its way to its handler; http_x.c: an exchange as its handler sees it.
 *
 * Whatever changes a connection marks it dirty; at the end of the loop pass each dirty connection
 * makes one write and then looks at the next request. Memory of closed connections is freed there
 * too, so no caller up the stack is left holding it. */
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
        262144,            /* unsent answers over which the next pipelined request waits */
    HTTP_LINGER_MS = 2000, /* after the last answer: read and drop, so that the answer arrives */
    HTTP_LINGER_BYTES_MAX = 16777216,
    HTTP_YIELD_MS = 2000,     /* a body, or a slow reader, may be closed for others after so long */
    HTTP_HEAD_YIELD_MS = 100, /* a head or a handshake: most come whole */
    HTTP_SMALL_BODY_BYTES = 65536,     /* a body that may use the last eighth of the room */
    HTTP_TAKE_BYTES = 65536,           /* room for a chunked body is taken by so much */
    HTTP_BODY_BYTES_DEFAULT = 1048576, /* without a body_bytes_max callback */
    HTTP_CONNS_DEFAULT = 1000,         /* for conns_max 0 */
    HTTP_HANDSHAKE_MS_DEFAULT = 10000,
    HTTP_H2_STREAMS_DEFAULT = 128,
    HTTP_H2_CONTROL_DEFAULT = 200,
    HTTP_H2_RESETS_DEFAULT = 50,
    HTTP_TLS_LOG_MS = 1000, /* failed handshakes are logged once in so long, with their number */
    HTTP_WRITES_PER_PASS = 4,
    HTTP_PEER_BYTES = 64,
    HTTP_WHY_BYTES = 200,
};

struct http_conn;
struct http_addr;

/* Connections or exchanges in the order they came in; each is in one list by each of its links. */
struct http_link {
    struct http_link *prev, *next;
    struct http_list *in; /* NULL: in none */
    void *of;             /* whose link it is */
};
struct http_list {
    struct http_link *first, *last;
};

struct http_gate {
    struct loop *loop;
    struct budget *budget;
    struct http_server *servers; /* linked by next_in_gate */
    struct http_list bodies;     /* exchanges whose body is being read: reads */
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
    struct loop_alarm tick_on; /* a tick had no time for all */
    struct loop_alarm accept_pause;
    struct http_conn *conns;
    struct http_conn *dirty; /* singly linked by next_dirty */
    unsigned n_conns;
    struct http_server *next_in_gate;
    struct http_list idle, heads; /* waits: nothing of a request; a handshake or head */
    struct http_list stalled;     /* stalls: by the last progress of a write */
    unsigned n_tls_failed;        /* handshakes since the last log line */
    uint64_t tls_log_next_ms;     /* no line before */
    bool pass_end_set, closed, leaving;
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

/* What a connection speaks. Calls with a connection that is not const may close it. */
struct http_conn_ops {
    /* Bytes that came, all of them taken. */
    void (*feed)(struct http_conn *c, const char *data, size_t n);
    /* The client will send nothing more; c->eof is set. */
    void (*end_of_input)(struct http_conn *c);
    /* Before a write: more for c->out, which is not full. False: there is no more now. NULL: what
     * is to be sent is there at once. */
    bool (*fill)(struct http_conn *c);
    /* At the end of the pass, after the write: what can go on, and the phase it is in then. */
    void (*advance)(struct http_conn *c);
    /* c->read_deadline_ms has passed, in phase IDLE, HEAD or ANSWER; or time goes by in BODY. */
    void (*tick)(struct http_conn *c, uint64_t now_ms);
    bool (*wants_read)(const struct http_conn *c);
    /* Bytes that wait beside c->out; those of answers among them. */
    size_t (*held)(const struct http_conn *c);
    size_t (*unsent)(const struct http_conn *c);
    /* The connection is about to end though its client did not ask for it: says so, if it can. */
    void (*bye)(struct http_conn *c);
    /* Bytes came ahead of what can be done with them; what waits for the client is bounded by its
     * handler. */
    bool (*is_ahead)(const struct http_conn *c);
    bool (*is_paced)(const struct http_conn *c);
    /* The connection is closed: whoever still has an exchange is told. */
    void (*let_go)(struct http_conn *c);
    void (*fini)(struct http_conn *c); /* its memory */
};

/* How an answer reaches its client. x->conn is there in every call; the order is head, any number
 * of data, end; or abort at any time. */
struct http_x_ops {
    void (*go_on)(struct http_x *x); /* 100: the body is welcome */
    /* length: of all data; HTTP_LENGTH_UNKNOWN: until the end; HTTP_LENGTH_BARE: there is none, and
     * nothing is said of it. Fields are those of x->fields. */
    void (*head)(struct http_x *x, int status, const char *content_type, uint64_t length);
    void (*data)(struct http_x *x, const void *p, size_t n); /* n > 0 */
    /* x->trailers behind the data; the connection lets go of x. */
    void (*end)(struct http_x *x);
    void (*abort)(struct http_x *x); /* the same, and the client learns that it is no end */
    size_t (*pending)(const struct http_x *x);
    /* n bytes of a body that is read as it comes may be replaced by others. NULL: bodies come
     * whole. */
    void (*more)(struct http_x *x, size_t n);
};
#define HTTP_LENGTH_UNKNOWN UINT64_MAX
#define HTTP_LENGTH_BARE    (UINT64_MAX - 1)

/* The HTTP/1 of a connection: requests one by one. */
struct h1 {
    struct http_parser parser;
    struct buf in;
    size_t in_at;  /* taken by the parser */
    bool is_fresh; /* in clear, and its first bytes may yet be those of HTTP/2 */
    struct http_x *x;
};

struct http_conn {
    struct http_server *s;
    struct http_conn *prev, *next, *next_dirty;
    bool is_dirty, eof, close_after; /* close_after: once everything is sent */
    bool leaves;                     /* it was there when the server began to leave */
    enum http_phase phase;
    const struct http_conn_ops *ops;
    struct sock_io io;
    struct loop_fd *w;
    struct h1 h1;
    struct h2 *h2; /* NULL: it speaks HTTP/1 */
    struct buf out;
    size_t out_at; /* taken by the socket */
    bool fed;      /* bytes of answers, not of the protocol's own, were put into out */
    bool more;     /* to be had once out is written */
    unsigned n_requests;
    size_t linger_left;
    uint64_t read_deadline_ms, write_deadline_ms; /* 0: none */
    struct http_link waits, stalls;
    struct http_list rooms; /* exchanges that wait for what is pending to become less: room */
    struct http_addr *addr; /* NULL: not counted */
    uint64_t since_ms;      /* when its phase began */
    uint64_t stalled_ms;    /* last progress of a write that waits; */
    uint64_t waits_ms;      /* since when something waits to be written; 0: nothing */
    size_t held;            /* as counted in the gate */
    char peer[HTTP_PEER_BYTES];
};

enum http_x_state { X_READING, X_OPEN, X_STREAM };

/* When the body that is being read is late, in three ways. */
struct http_body_clock {
    bool runs;
    size_t seen; /* bytes of the body that it has counted */
    uint64_t since_ms, end_us, rate_us, silent_us;
    uint64_t deadline_ms; /* the first of the three; 0: none */
};

struct http_x {
    /* what each piece of a stream reads: one line of a cache */
    struct http_conn *conn; /* NULL: the client is gone, and the handler may not know yet */
    const struct http_x_ops *ops;
    struct h2_stream *stream;   /* NULL: HTTP/1 */
    const struct http_tap *tap; /* NULL: nobody reads along */
    void *tap_arg;
    uint64_t out_bytes;
    enum http_x_state state;
    bool head_only, chunked;
    struct loop *loop;
    bool paced; /* what is unsent of a stream is its handler's affair */
    struct http_head head;
    struct buf body;
    struct buf fields;   /* header lines of the answer, each with its line end */
    struct buf trailers; /* the same behind its data; not where that has a length */
    size_t body_max;
    struct http_gate *gate; /* that body_taken came from */
    size_t body_taken;
    struct http_body_clock clock;
    struct http_link reads;
    bool keep_alive;      /* false: the connection ends with the answer */
    bool unread;          /* answered before its body has come, of which no more is wanted */
    bool names_errors;    /* http_x_name_errors() */
    struct grpc_x *grpc;  /* a framing above that; NULL: none */
    struct grpc_one *one; /* it is a message of a call that has many; NULL: a request */
    bool is_read;         /* the body is read as it comes; */
    bool body_open;       /* its handler has it, and there is more to come */
    size_t body_at;       /* bytes of it that its handler has taken */
    size_t body_owed;     /* bytes of it that its client may not replace yet */
    const struct http_reader *reader;
    void *reader_arg;
    bool closing; /* on_close is running: nothing may free x */
    struct loop_task gone;
    bool gone_posted; /* on_close was asked for after the client had gone; a posted call holds x */
    bool limited;     /* by the client's certificate */
    bool finished;    /* the handler is done with an exchange whose client is gone */
    char request_id[HTTP_REQUEST_ID_BYTES_MAX + 1]; /* "": not asked for yet */
    char tenant[TENANT_BYTES_MAX + 1];              /* "": not asked for yet */
    loop_fn *on_close;
    void *on_close_arg;
    struct http_link room;
    size_t room_bytes; /* to be pending at most */
    loop_fn *on_room;
    void *on_room_arg;
    void (*on_ended)(void *arg, const struct http_ended *e); /* NULL: nobody is told */
    void *ended_arg;
    uint64_t begun_us, in_bytes;
    int status; /* 0: not answered yet */
    bool whole; /* answered to its end */
    bool h2;
    char *note;
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
void http_list_add(struct http_list *l, struct http_link *k, void *of); /* last */
void http_list_drop(struct http_link *k);                               /* in none is fine */
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
void http_conn_fetch(const struct http_conn *c); /* into the cache: its pass end comes next */
void http_conn_tick(struct http_conn *c, uint64_t now_ms);
void http_conn_gone(struct http_conn *c);     /* closes; tells the open exchanges */
void http_conn_shutdown(struct http_conn *c); /* the same after one more write */
void http_conn_spare(struct http_conn *c);    /* closes for a new client */
void http_conn_write(struct http_conn *c);    /* one write; may close it */
size_t http_conn_pending(const struct http_conn *c);
/* The only writer of c->phase. limit_ms 0: no deadline. */
void http_conn_set_phase(struct http_conn *c, enum http_phase phase, unsigned limit_ms);
/* The nearer of two limits in time; 0: none. */
unsigned http_nearer(unsigned a_ms, unsigned b_ms);

/* h1.c */
extern const struct http_conn_ops h1_conn_ops;
void h1_init(struct http_conn *c);

/* h2.c */
/* Speaks HTTP/2 from here on: what comes next is the client's preface. ERR_NO_MEMORY: nothing has
 * changed. */
enum err h2_start(struct http_conn *c);
/* The same behind the exchange of HTTP/1 that asked for it, which goes on as stream 1; settings:
 * the value of its HTTP2-Settings. ERR_INVALID: that is none, and nothing has changed. */
enum err h2_upgrade(struct http_conn *c, struct http_x *x, const char *settings);
void h2_stream_fetch(const struct h2_stream *st); /* http_x_fetch() */

/* http_req.c: each may end with x answered, and so gone. */
void http_req_head(struct http_x *x, bool body_came); /* body_came: bytes behind it are here */
void http_req_body(struct http_x *x, const char *p, size_t n);
void http_req_end(struct http_x *x);
/* The body is on its way. progress: bytes of it have come. */
void http_req_wait(struct http_x *x, bool progress);
void http_req_tick(struct http_x *x, uint64_t now_ms); /* 408 when the body is late */
void http_req_yield(struct http_x *x);                 /* ends a body for those of others */
/* An answer in plain text instead of a handler's; the connection ends with it, or its stream. */
void http_req_fail(struct http_x *x, int status, const char *text);
/* The head did not come in time: says so in why[HTTP_WHY_BYTES], and counts it. */
void http_req_head_late(const struct http_conn *c, char *why);

/* The handler of a body that is read as it comes has read some of it, and waits for more. */
void http_req_more(struct http_x *x);

/* grpc_x.c */
/* Where the head asks for gRPC x->ops are gRPC's from here on. False: x is answered. */
bool grpc_x_begin(struct http_x *x);
/* The body has come whole: it is one message. False: it is none, and x is answered. */
bool grpc_x_body_ok(struct http_x *x);
/* The exchange of a client that has gone: no deadline is of interest. */
void grpc_x_stop(struct http_x *x);
void grpc_x_free(struct http_x *x);
/* The framing below it is another one from here on. */
void grpc_x_under(struct http_x *x, const struct http_x_ops *ops);
/* What the end of the answer will say. */
void grpc_x_fail(struct http_x *x, int http_status, const char *text, size_t n);

/* http_x.c */
/* Takes the head; NULL: no memory, and the head is where it was. */
struct http_x *http_x_new(struct http_conn *c, const struct http_x_ops *ops,
                          struct http_head *head);
void http_x_free(struct http_x *x);
void http_x_client_gone(struct http_x *x); /* the connection has let go of x already */
/* Something has been written: calls those who waited for it. */
void http_x_tell_room(struct http_conn *c);
/* The body is needed no more: its memory, and its room in the gate, are free. */
void http_x_drop_body(struct http_x *x);
/* All of the body is here: room that was taken ahead of it is free again. */
void http_x_fit_body(struct http_x *x);
const char *http_reason(int status);
bool http_has_no_body(int status);

#endif
