/* http_parse: the bytes of one HTTP/1.x request to its head and body (RFC 9110, RFC 9112). Owns no
 * socket. It knows what is allowed and refuses the rest, since two readers that disagree on where a
 * request ends are a hole (request smuggling): lines end in CR LF; names are tokens with the colon
 * right behind them; no folded lines; one Content-Length, digits only; Transfer-Encoding is
 * "chunked" and nothing else, never beside a Content-Length; one Host. The result does not depend
 * on how the bytes are cut into calls.
 *
 * Thread: none of its own. Ownership: the parser belongs to the caller, the head moves out with
 * http_head_move(). */
#ifndef BATON_NET_HTTP_PARSE_H
#define BATON_NET_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "proto/limits.h"

enum {
    HTTP_METHOD_BYTES_MAX = 32,
    HTTP_TARGET_BYTES_MAX = 4096,    /* over it: 414 (inference-api 2.3) */
    HTTP_CHUNK_LINE_BYTES_MAX = 256, /* size and extensions of one chunk */
    HTTP_CHUNK_EXT_BYTES_MAX = 4096, /* extensions of a whole body */
    HTTP_TRAILER_BYTES_MAX = 8192,
};

struct http_field {
    uint32_t name, value; /* offsets into raw, each terminated by a zero */
};

struct http_head {
    struct buf raw;               /* the lines, cut into strings in place */
    uint32_t method, path, query; /* offsets; path is decoded and normalised, query is as it came */
    struct http_field fields[HTTP_HEADERS_MAX];
    size_t n_fields;
    int minor; /* HTTP/1.minor: 0 or 1 */
    bool keep_alive, expect_continue;
    bool chunked, has_length; /* how the body is framed; neither: there is none */
    uint64_t length;
};

const char *http_head_method(const struct http_head *h);
const char *http_head_path(const struct http_head *h);
const char *http_head_query(const struct http_head *h);
const char *http_head_field(const struct http_head *h,
                            const char *name); /* first of that name; NULL: absent */
/* For a head that comes as fields (RFC 9113 8.3.1). The target is the terminated string at `at` of
 * raw, which holds nothing else of use behind it up to its zero; the method is set. Sets path and
 * query. NULL, or what is wrong: one short sentence, safe to send. */
const char *http_head_target(struct http_head *h, uint32_t at);
bool http_method_ok(const char *method);
bool http_host_ok(const char *host);
void http_head_move(struct http_head *dst, struct http_head *src); /* src is empty afterwards */
void http_head_free(struct http_head *h);

enum http_event {
    HTTP_EV_MORE,  /* everything given was taken; give more */
    HTTP_EV_HEAD,  /* the head is complete: parser.head */
    HTTP_EV_BODY,  /* a piece of the body: parser.piece, parser.piece_len; it points into the bytes
                      given */
    HTTP_EV_END,   /* the request is complete; http_parser_next() prepares for another */
    HTTP_EV_ERROR, /* parser.status and parser.why; final */
};

struct http_parser {
    struct http_head head;
    const char *piece;
    size_t piece_len;
    int status;      /* 400, 413, 414, 417, 431, 501, 503 or 505 */
    const char *why; /* one short sentence, safe to send */

    int state; /* below: the parser's own */
    size_t head_bytes_max, head_len, line_at;
    int chunk_part;
    size_t chunk_line_len, ext_len, trailer_len, n_trailers;
    uint64_t body_left;
    bool seen_cr, line_skipped;
    int n_hosts, n_lengths, n_codings;
    bool coding_known;
    struct buf line; /* a trailer line */
};

void http_parser_init(struct http_parser *p,
                      size_t head_bytes_max); /* request line and fields, with line ends */
void http_parser_fini(struct http_parser *p);
void http_parser_next(struct http_parser *p);       /* after HTTP_EV_END */
bool http_parser_idle(const struct http_parser *p); /* nothing of a request has been seen */

/* Takes bytes up to the next event. *used: how many it took; the caller gives the rest again. With
 * HTTP_EV_END nothing behind the request was taken. After HTTP_EV_HEAD call again, with n = 0 too.
 */
enum http_event http_parser_feed(struct http_parser *p, const char *data, size_t n, size_t *used);

#endif
