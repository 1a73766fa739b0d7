/* h2_head: the head of a request from its fields, and of an answer to them. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "common/net/h2_priv.h"

static void refuse(struct h2_stream *st, int status, const char *why) {
    if (st->refuse_status != 0) return;
    st->refuse_status = status;
    st->refuse_why = why;
}

static uint32_t put(struct buf *b, const void *p, size_t n) {
    uint32_t at = (uint32_t)b->len;
    buf_append(b, p, n);
    buf_append(b, "", 1);
    return at;
}

static bool is(const uint8_t *name, size_t n, const char *what) {
    return n == strlen(what) && memcmp(name, what, n) == 0;
}

static void put_field(struct h2_stream *st, const void *name, size_t name_len, const void *value,
                      size_t value_len) {
    struct http_head *h = &st->head;
    if (h->n_fields == HTTP_HEADERS_MAX) {
        refuse(st, 431, "too many header fields");
        return;
    }
    struct http_field f = {.name = put(&h->raw, name, name_len)};
    f.value = put(&h->raw, value, value_len);
    h->fields[h->n_fields++] = f;
}

static void put_host(struct h2_stream *st, const uint8_t *value, size_t n) {
    const struct http_head *h = &st->head;
    put_field(st, "host", 4, value, n);
    if (!h->raw.failed && h->n_fields > 0 &&
        !http_host_ok(h->raw.data + h->fields[h->n_fields - 1].value))
        refuse(st, 400, "bad Host");
}

static void put_pseudo(struct h2_stream *st, const uint8_t *name, size_t name_len,
                       const uint8_t *value, size_t n) {
    struct http_head *h = &st->head;
    if (is(name, name_len, ":method")) {
        h->method = put(&h->raw, value, n);
        st->has_method = true;
    } else if (is(name, name_len, ":path")) {
        if (n > HTTP_TARGET_BYTES_MAX) {
            refuse(st, 414, "request target too long");
            return;
        }
        st->target = put(&h->raw, value, n);
        st->has_target = true;
    } else if (is(name, name_len, ":authority")) {
        put_host(st, value, n);
    } /* :scheme is not looked at: a proxy's business */
}

void h2_head_field(struct h2_stream *st, const uint8_t *name, size_t name_len, const uint8_t *value,
                   size_t value_len) {
    struct http_head *h = &st->head;
    /* As the client counts them (RFC 9113 6.5.2). Over the limit the rest is decoded and dropped.
     */
    st->list_bytes += name_len + value_len + 32;
    if (st->list_bytes > st->c->s->opts.head_bytes_max) refuse(st, 431, "header fields too large");
    if (st->refuse_status != 0) return;
    if (name_len > 0 && name[0] == ':') {
        put_pseudo(st, name, name_len, value, value_len);
    } else if (is(name, name_len, "host")) {
        if (http_head_field(h, "host") == NULL) put_host(st, value, value_len);
    } else {
        put_field(st, name, name_len, value, value_len);
    }
    if (h->raw.failed) refuse(st, 503, "out of memory");
}

/* nghttp2 has seen to it that there is one at most, of digits. */
static void read_length(struct http_head *h) {
    const char *v = http_head_field(h, "content-length");
    if (v == NULL) return;
    h->has_length = true;
    for (; *v >= '0' && *v <= '9'; v++)
        h->length =
            h->length > (UINT64_MAX - 9) / 10 ? UINT64_MAX : h->length * 10 + (uint64_t)(*v - '0');
}

void h2_head_finish(struct h2_stream *st, bool has_body) {
    struct http_head *h = &st->head;
    const char *wrong;
    if (st->refuse_status == 0 && (!st->has_method || !st->has_target))
        refuse(st, 501, "CONNECT is not supported");
    if (st->refuse_status == 0 && !http_method_ok(http_head_method(h)))
        refuse(st, 400, "bad method");
    if (st->refuse_status == 0 && (wrong = http_head_target(h, st->target)) != NULL)
        refuse(st, 400, wrong);
    if (st->refuse_status != 0) return;
    const char *expect = http_head_field(h, "expect");
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        refuse(st, 417, "unknown expectation");
    h->expect_continue = expect != NULL;
    h->minor = 1;
    h->keep_alive = true;
    read_length(h);
    h->chunked = has_body && !h->has_length;
}

/* ---- answers */
/* Fields that speak of a connection of HTTP/1 (RFC 9113 8.2.2). */
static bool is_of_connection(const char *name, size_t n) {
    static const char *const names[] = {"connection", "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (n == strlen(names[i]) && strncasecmp(name, names[i], n) == 0) return true;
    return false;
}

static nghttp2_nv pair(const char *name, size_t name_len, const char *value, size_t value_len) {
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = name_len,
                        .valuelen = value_len};
}

/* Header lines, "Name: value" CR LF each; names become lower case in place. */
static size_t pairs_of(nghttp2_nv *nv, size_t max, struct buf *lines) {
    size_t n = 0;
    for (char *at = lines->data, *end; at != NULL && (end = strstr(at, "\r\n")) != NULL;
         at = end + 2) {
        char *colon = memchr(at, ':', (size_t)(end - at));
        if (colon == NULL || n == max || is_of_connection(at, (size_t)(colon - at))) continue;
        for (char *c = at; c < colon; c++)
            if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
        char *value = colon + 1;
        while (value < end && *value == ' ') value++;
        nv[n++] = pair(at, (size_t)(colon - at), value, (size_t)(end - value));
    }
    return n;
}

bool h2_head_submit(struct h2_stream *st, const struct http_x *x, int status,
                    const char *content_type, uint64_t length, bool with_data) {
    const struct http_server *s = st->c->s;
    nghttp2_nv nv[H2_ANSWER_FIELDS_MAX];
    nghttp2_data_provider provider = h2_stream_provider(st);
    char code[12], digits[24];
    struct buf lines = BUF_INIT;
    size_t n = 0;
    snprintf(code, sizeof(code), "%d", status);
    nv[n++] = pair(":status", 7, code, strlen(code));
    if (s->name != NULL) nv[n++] = pair("server", 6, s->name, strlen(s->name));
    if (content_type != NULL && *content_type != '\0')
        nv[n++] = pair("content-type", 12, content_type, strlen(content_type));
    if (length < HTTP_LENGTH_BARE && !http_has_no_body(status)) {
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)length);
        nv[n++] = pair("content-length", 14, digits, strlen(digits));
    }
    buf_append(&lines, x->fields.data, x->fields.len);
    bool ok = !lines.failed && !x->fields.failed;
    if (ok) {
        n += pairs_of(nv + n, H2_ANSWER_FIELDS_MAX - n, &lines);
        ok = nghttp2_submit_response(st->c->h2->session, st->id, nv, n,
                                     with_data ? &provider : NULL) == 0;
    }
    buf_free(&lines);
    return ok;
}

bool h2_head_trailers(struct h2_stream *st) {
    nghttp2_nv nv[H2_ANSWER_FIELDS_MAX];
    const size_t n = pairs_of(nv, H2_ANSWER_FIELDS_MAX, &st->trailers);
    return !st->trailers.failed && nghttp2_submit_trailer(st->c->h2->session, st->id, nv, n) == 0;
}
