/* h2_priv: what h2.c (a connection), h2_stream.c (requests and answers on it), h2_head.c (heads)
 * and h2_mem.c (nghttp2's memory) share. HTTP/2 is RFC 9113; framing, HPACK and the states of
 * streams are nghttp2's, whose only door these files are. Private to the server.
 *
 * Ends:   callbacks of nghttp2 never end its session. A connection that dies in one is marked
 *   (PHASE_DEAD), every later callback fails, and the session goes with the connection's memory.
 * Stream: lives from its HEADERS until nghttp2 closes it. Its exchange may go before (answered) and
 *   never stays behind: a stream that is reset is a client that has gone. */
#ifndef BATON_NET_H2_PRIV_H
#define BATON_NET_H2_PRIV_H

#include <nghttp2/nghttp2.h>
#include "common/net/http_conn.h"

enum {
    H2_OUT_BYTES = 65536,            /* framed ahead of a write */
    H2_STREAM_WINDOW_BYTES = 262144, /* of a body before it is taken */
    H2_CONN_WINDOW_BYTES = 1048576,  /* of all bodies */
    H2_SETTINGS_ENTRIES_MAX = 32,    /* in one frame */
    H2_ACKS_WAITING_MAX = 256,       /* to SETTINGS and PING, while the client does not read */
    H2_RATE_SECONDS = 10,            /* what a rate allows at once */
    H2_ANSWER_FIELDS_MAX = 64,
};

/* So many a second; what was not used of H2_RATE_SECONDS may come at once. */
struct h2_rate {
    uint64_t left_us, at_us; /* time not used; when it was counted */
    unsigned per_s;
};

struct h2_stream {
    struct http_conn *c;
    int32_t id;
    struct h2_stream *prev, *next;
    struct http_x *x; /* NULL: none yet, or answered */
    /* of the answer */
    struct buf out, trailers; /* trailers: header lines behind it */
    size_t out_at;            /* framed */
    uint64_t stalled_ms;      /* since when nothing of what waits has been framed */
    bool request_ended;       /* the client has sent all of it */
    bool began, ended;        /* the answer has a head; an end */
    bool aborted;             /* ends with a reset, once `out` is framed */
    bool deferred;            /* nghttp2 waits for more to send */
    /* of the head that is being read */
    struct http_head head;
    uint32_t target; /* offset of :path */
    bool has_target, has_method;
    bool malformed; /* a field of it, or of its trailers, is none */
    size_t list_bytes, trailer_bytes;
    int refuse_status; /* 0: it is well so far */
    const char *refuse_why;
};

/* Where the bytes stand that come: heads of frames, and what is left of one. */
struct h2_scan {
    uint8_t head[9];
    size_t n_head;
    uint32_t left;
    bool is_data;
    bool block_open; /* CONTINUATION must follow */
};

struct h2_block;
struct h2_mem {
    struct h2_block *first;
};

struct h2 {
    nghttp2_session *session; /* lives in mem, and ends with it: never taken apart */
    struct h2_mem mem;
    struct h2_stream *streams;
    unsigned n_streams;
    unsigned n_asking;  /* of them those whose request has not ended */
    size_t unsent;      /* in all out buffers */
    size_t held;        /* memory of streams: heads and what keeps them */
    size_t block_bytes; /* what the head that is read has decoded to, names and values */
    bool began;         /* the client's preface is complete */
    bool in_head;       /* between HEADERS and its last CONTINUATION */
    bool leaving;       /* GOAWAY is said */
    bool in_call;       /* nghttp2 is at work: it may not be asked for more */
    bool doomed;        /* the connection ends, with the error `doom` */
    uint32_t doom;
    struct h2_rate control, resets;
    struct h2_scan scan;
};

/* h2.c */
/* The connection ends with GOAWAY and this error, as soon as no callback is under way. */
void h2_doom(struct http_conn *c, uint32_t error);
/* No new streams; those that run end. */
void h2_leave(struct http_conn *c);
/* n units. False: too many. */
bool h2_rate_take(struct h2_rate *r, unsigned n);
void h2_rate_give(struct h2_rate *r, unsigned n);

/* h2_mem.c */
nghttp2_mem h2_mem_calls(struct h2_mem *m); /* m stays where it is */
void h2_mem_free(struct h2_mem *m);         /* all that is left */

/* h2_stream.c */
extern const struct http_x_ops h2_x_ops;
struct h2_stream *h2_stream_new(struct http_conn *c, int32_t id); /* NULL: no memory, or no place */
void h2_stream_free(struct h2_stream *st);
/* The head is complete: it gets an exchange, or its refusal. */
void h2_stream_head(struct h2_stream *st, bool has_body);
void h2_stream_body(struct h2_stream *st, const uint8_t *p, size_t n);
void h2_stream_end(struct h2_stream *st);   /* of the request */
void h2_stream_asked(struct h2_stream *st); /* its end has come; no more is done about it */
/* Ends it from this side; its exchange learns that the client has gone. */
void h2_stream_reset(struct h2_stream *st, uint32_t error);
/* Deadlines, and readers that are too slow. */
void h2_stream_tick(struct h2_stream *st, uint64_t now_ms);
void h2_stream_bound(struct h2_stream *st);

/* h2_head.c */
/* One field of a request's head, checked by nghttp2 for its characters and its order. */
void h2_head_field(struct h2_stream *st, const uint8_t *name, size_t name_len, const uint8_t *value,
                   size_t value_len);
/* All fields have come. */
void h2_head_finish(struct h2_stream *st, bool has_body);
/* Submits the head of x's answer; with_data: data will follow. False: no memory. */
bool h2_head_submit(struct h2_stream *st, const struct http_x *x, int status,
                    const char *content_type, uint64_t length, bool with_data);
/* Submits st->trailers, which end the stream. False: no memory. */
bool h2_head_trailers(struct h2_stream *st);
nghttp2_data_provider h2_stream_provider(struct h2_stream *st);

#endif
