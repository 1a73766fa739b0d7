/* raw_h2: a client of HTTP/2 that sends exactly the frames a test wants, and books what comes: what
 * each stream was answered, and what was said of the connection. Heads are written as literals, so
 * that a test knows every byte; nghttp2 reads those that come. Include after cmocka.h. */
#ifndef BATON_TESTS_RAW_H2_H
#define BATON_TESTS_RAW_H2_H

#include <nghttp2/nghttp2.h>
#include "tests/unit/common/net/raw_http.h"

enum { RAW_H2_STREAMS = 256, RAW_H2_HEAD = 9 };

/* What came for stream 2 * i + 1. */
struct raw_h2_stream {
    int status, n_heads; /* of the last head that has a :status */
    char grpc_status[8], grpc_message[256];
    struct buf body;
    bool ended, is_reset;
    uint32_t reset; /* its error */
};

struct raw_h2 {
    int fd;
    struct buf in;
    nghttp2_hd_inflater *hd;
    struct raw_h2_stream s[RAW_H2_STREAMS];
    bool over, is_away; /* the connection ended; GOAWAY came */
    uint32_t away, last_id;
    int n_pings, n_acks;                    /* answers to PING, to SETTINGS */
    uint32_t max_streams, window, max_list; /* as the server's SETTINGS have them; 0: not said */
};

static inline uint32_t raw_h2_u32(const char *p) {
    const uint8_t *u = (const uint8_t *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static inline void raw_h2_put_u32(char *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (char)(v >> (24 - 8 * i));
}

/* ---- frames out */

/* Appends one frame. */
static inline void raw_h2_put(struct buf *out, int type, int flags, uint32_t id, const void *p,
                              size_t n) {
    char head[RAW_H2_HEAD] = {(char)(n >> 16), (char)(n >> 8), (char)n, (char)type, (char)flags};
    raw_h2_put_u32(head + 5, id);
    buf_append(out, head, sizeof(head));
    if (n > 0) buf_append(out, p, n);
    assert_false(out->failed);
}

/* False: the server has closed. */
static inline bool raw_h2_send(struct raw_h2 *c, int type, int flags, uint32_t id, const void *p,
                               size_t n) {
    struct buf out = BUF_INIT;
    raw_h2_put(&out, type, flags, id, p, n);
    const bool sent = raw_send_n(c->fd, out.data, out.len);
    buf_free(&out);
    return sent;
}

static inline void raw_h2_put_length(struct buf *out, size_t n) {
    unsigned char c = (unsigned char)(n < 127 ? n : 127);
    buf_append(out, &c, 1);
    if (n < 127) return;
    for (n -= 127;; n >>= 7) {
        c = (unsigned char)(n < 128 ? n : (n & 127) | 128);
        buf_append(out, &c, 1);
        if (n < 128) return;
    }
}

/* A field as a literal that nobody remembers (RFC 7541 6.2.2). */
static inline void raw_h2_field(struct buf *block, const char *name, const char *value) {
    buf_append(block, "", 1);
    raw_h2_put_length(block, strlen(name));
    buf_puts(block, name);
    raw_h2_put_length(block, strlen(value));
    buf_puts(block, value);
}

/* fields: name, value, name, value .. NULL; NULL: none. */
static inline void raw_h2_block(struct buf *block, const char *method, const char *path,
                                const char *const *fields) {
    raw_h2_field(block, ":method", method);
    raw_h2_field(block, ":scheme", "http");
    raw_h2_field(block, ":authority", "h");
    raw_h2_field(block, ":path", path);
    for (; fields != NULL && *fields != NULL; fields += 2)
        raw_h2_field(block, fields[0], fields[1]);
}

/* HEADERS of a request in one frame. */
static inline bool raw_h2_ask_with(struct raw_h2 *c, uint32_t id, const char *method,
                                   const char *path, bool end, const char *const *fields) {
    struct buf block = BUF_INIT;
    raw_h2_block(&block, method, path, fields);
    const bool sent = raw_h2_send(c, NGHTTP2_HEADERS,
                                  NGHTTP2_FLAG_END_HEADERS | (end ? NGHTTP2_FLAG_END_STREAM : 0),
                                  id, block.data, block.len);
    buf_free(&block);
    return sent;
}

static inline void raw_h2_ask(struct raw_h2 *c, uint32_t id, const char *path) {
    assert_true(raw_h2_ask_with(c, id, "GET", path, true, NULL));
}

static inline bool raw_h2_data(struct raw_h2 *c, uint32_t id, const void *p, size_t n, bool end) {
    return raw_h2_send(c, NGHTTP2_DATA, end ? NGHTTP2_FLAG_END_STREAM : 0, id, p, n);
}

static inline bool raw_h2_reset(struct raw_h2 *c, uint32_t id, uint32_t error) {
    char p[4];
    raw_h2_put_u32(p, error);
    return raw_h2_send(c, NGHTTP2_RST_STREAM, 0, id, p, sizeof(p));
}

static inline bool raw_h2_window(struct raw_h2 *c, uint32_t id, uint32_t n) {
    char p[4];
    raw_h2_put_u32(p, n);
    return raw_h2_send(c, NGHTTP2_WINDOW_UPDATE, 0, id, p, sizeof(p));
}

static inline bool raw_h2_ping(struct raw_h2 *c) {
    return raw_h2_send(c, NGHTTP2_PING, 0, 0, "12345678", 8);
}

/* One entry; id 0: an empty frame. */
static inline void raw_h2_put_settings(struct buf *out, uint16_t id, uint32_t value) {
    char p[6] = {(char)(id >> 8), (char)id};
    raw_h2_put_u32(p + 2, value);
    raw_h2_put(out, NGHTTP2_SETTINGS, 0, 0, p, id != 0 ? sizeof(p) : 0);
}

static inline bool raw_h2_settings(struct raw_h2 *c, uint16_t id, uint32_t value) {
    struct buf out = BUF_INIT;
    raw_h2_put_settings(&out, id, value);
    const bool sent = raw_send_n(c->fd, out.data, out.len);
    buf_free(&out);
    return sent;
}

/* ---- frames in */

static inline struct raw_h2_stream *raw_h2_stream(struct raw_h2 *c, uint32_t id) {
    assert_true(id % 2 == 1 && id / 2 < RAW_H2_STREAMS);
    return &c->s[id / 2];
}

static inline void raw_h2_take_field(struct raw_h2_stream *s, const nghttp2_nv *nv) {
    const char *name = (const char *)nv->name, *value = (const char *)nv->value;
    if (strcmp(name, ":status") == 0) s->status = atoi(value);
    if (strcmp(name, "grpc-status") == 0)
        snprintf(s->grpc_status, sizeof(s->grpc_status), "%s", value);
    if (strcmp(name, "grpc-message") == 0)
        snprintf(s->grpc_message, sizeof(s->grpc_message), "%s", value);
}

/* The server's heads are in one frame each, without padding. */
static inline void raw_h2_take_head(struct raw_h2 *c, struct raw_h2_stream *s, const uint8_t *p,
                                    size_t n) {
    int flags = 0;
    s->n_heads++;
    while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0) {
        nghttp2_nv nv;
        const ssize_t used = nghttp2_hd_inflate_hd2(c->hd, &nv, &flags, p, n, 1);
        assert_true(used >= 0);
        p += used;
        n -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) raw_h2_take_field(s, &nv);
    }
    nghttp2_hd_inflate_end_headers(c->hd);
}

static inline void raw_h2_take_settings(struct raw_h2 *c, const char *p, size_t n) {
    for (; n >= 6; p += 6, n -= 6) {
        const int id = (uint8_t)p[0] << 8 | (uint8_t)p[1];
        const uint32_t v = raw_h2_u32(p + 2);
        if (id == NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) c->max_streams = v;
        if (id == NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE) c->window = v;
        if (id == NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE) c->max_list = v;
    }
}

static inline void raw_h2_take(struct raw_h2 *c, int type, int flags, uint32_t id, const char *p,
                               size_t n) {
    struct raw_h2_stream *s = id != 0 ? raw_h2_stream(c, id) : NULL;
    switch (type) {
    case NGHTTP2_HEADERS: raw_h2_take_head(c, s, (const uint8_t *)p, n); break;
    case NGHTTP2_DATA: buf_append(&s->body, p, n); break;
    case NGHTTP2_RST_STREAM:
        s->is_reset = true;
        s->reset = raw_h2_u32(p);
        break;
    case NGHTTP2_SETTINGS:
        if ((flags & NGHTTP2_FLAG_ACK) != 0)
            c->n_acks++;
        else
            raw_h2_take_settings(c, p, n);
        break;
    case NGHTTP2_PING: c->n_pings += (flags & NGHTTP2_FLAG_ACK) != 0; break;
    case NGHTTP2_GOAWAY:
        c->is_away = true;
        c->last_id = raw_h2_u32(p);
        c->away = raw_h2_u32(p + 4);
        break;
    default: break;
    }
    if ((type == NGHTTP2_HEADERS || type == NGHTTP2_DATA) && (flags & NGHTTP2_FLAG_END_STREAM) != 0)
        s->ended = true;
}

/* Waits for one frame and books it. False: the connection has ended. */
static inline bool raw_h2_read(struct raw_h2 *c) {
    while (c->in.len < RAW_H2_HEAD || c->in.len < RAW_H2_HEAD + (raw_h2_u32(c->in.data) >> 8)) {
        if (raw_recv(c->fd, &c->in) > 0) continue;
        c->over = true;
        return false;
    }
    const size_t n = raw_h2_u32(c->in.data) >> 8;
    raw_h2_take(c, (uint8_t)c->in.data[3], (uint8_t)c->in.data[4],
                raw_h2_u32(c->in.data + 5) & INT32_MAX, c->in.data + RAW_H2_HEAD, n);
    buf_consume(&c->in, RAW_H2_HEAD + n);
    return true;
}

/* Reads until the fact is there; the end of the connection before it fails the test. */
#define RAW_H2_UNTIL(c, what)                                                                      \
    do {                                                                                           \
        while (!(what))                                                                            \
            if (!raw_h2_read(c)) fail_msg("the connection ended before: %s", #what);               \
    } while (0)

/* What the stream was answered, once it is over. */
static inline const struct raw_h2_stream *raw_h2_answer(struct raw_h2 *c, uint32_t id) {
    struct raw_h2_stream *s = raw_h2_stream(c, id);
    while (!s->ended && !s->is_reset && raw_h2_read(c)) {}
    if (s->body.data == NULL) buf_puts(&s->body, "");
    return s;
}

static inline void raw_h2_to_end(struct raw_h2 *c) {
    while (raw_h2_read(c)) {}
}

/* ---- its life */

/* A connection that has said nothing yet. */
static inline void raw_h2_connect(struct raw_h2 *c, uint16_t port) {
    memset(c, 0, sizeof(*c));
    assert_int_equal(nghttp2_hd_inflate_new(&c->hd), 0);
    c->fd = raw_connect(port);
}

/* One that has begun with SETTINGS of this entry, as raw_h2_put_settings() takes it. */
static inline void raw_h2_open_with(struct raw_h2 *c, uint16_t port, uint16_t id, uint32_t value) {
    raw_h2_connect(c, port);
    struct buf out = BUF_INIT;
    buf_append(&out, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    raw_h2_put_settings(&out, id, value);
    assert_true(raw_send_n(c->fd, out.data, out.len));
    buf_free(&out);
}

static inline void raw_h2_open(struct raw_h2 *c, uint16_t port) {
    raw_h2_open_with(c, port, 0, 0);
}

static inline void raw_h2_close(struct raw_h2 *c) {
    close(c->fd);
    nghttp2_hd_inflate_del(c->hd);
    buf_free(&c->in);
    for (size_t i = 0; i < RAW_H2_STREAMS; i++) buf_free(&c->s[i].body);
}

#endif
