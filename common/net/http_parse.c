/* http_parse: a state machine over single bytes as far as line ends go; a line is looked at when it
 * is complete. Body bytes are passed through, never copied. */
#include "common/net/http_parse.h"

#include <string.h>
#include <strings.h>

enum {
    ST_REQUEST_LINE,
    ST_FIELDS,
    ST_HEAD_DONE, /* HEAD was reported, the body is next */
    ST_FIXED,
    ST_CHUNK_SIZE,
    ST_CHUNK_DATA,
    ST_CHUNK_END, /* CR LF behind the data */
    ST_TRAILERS,
    ST_DONE,
    ST_ERROR,
};

/* Parts of a chunk's first line. */
enum { CHUNK_DIGITS, CHUNK_BLANKS, CHUNK_EXTENSION };

enum {
    CHUNK_DIGITS_MAX = 15, /* so that the size stays far from overflow */
    REQUEST_LINE_BYTES_MAX =
        HTTP_METHOD_BYTES_MAX + HTTP_TARGET_BYTES_MAX + 16, /* 16: blanks and version */
};

static bool in_set(unsigned char c, const char *others) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
    return c != '\0' && strchr(others, c) != NULL;
}

static bool token_char(unsigned char c) {
    return in_set(c, "!#$%&'*+-.^_`|~");
}

/* RFC 3986, plus square brackets, which clients put into queries bare. */
static bool target_char(unsigned char c) {
    return in_set(c, "-._~:/?[]@!$&'()*+,;=%");
}

static bool host_char(unsigned char c) {
    return in_set(c, "-._~:[]!$&'()*+;=%");
}

static bool value_char(unsigned char c) {
    return c == '\t' || (c >= 0x20 && c != 0x7F);
}

static bool all_chars(const char *s, size_t n, bool (*ok)(unsigned char)) {
    for (size_t i = 0; i < n; i++)
        if (!ok((unsigned char)s[i])) return false;
    return true;
}

const char *http_head_method(const struct http_head *h) {
    return h->raw.data + h->method;
}

const char *http_head_path(const struct http_head *h) {
    return h->raw.data + h->path;
}

const char *http_head_query(const struct http_head *h) {
    return h->raw.data + h->query;
}

const char *http_head_field(const struct http_head *h, const char *name) {
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->raw.data + h->fields[i].name, name) == 0)
            return h->raw.data + h->fields[i].value;
    return NULL;
}

void http_head_move(struct http_head *dst, struct http_head *src) {
    *dst = *src;
    *src = (struct http_head){0};
}

void http_head_free(struct http_head *h) {
    buf_free(&h->raw);
    *h = (struct http_head){0};
}

void http_parser_init(struct http_parser *p, size_t head_bytes_max) {
    *p = (struct http_parser){.head_bytes_max = head_bytes_max};
}

void http_parser_fini(struct http_parser *p) {
    http_head_free(&p->head);
    buf_free(&p->line);
}

void http_parser_next(struct http_parser *p) {
    size_t head_bytes_max = p->head_bytes_max;
    http_parser_fini(p);
    http_parser_init(p, head_bytes_max);
}

bool http_parser_idle(const struct http_parser *p) {
    return p->state == ST_REQUEST_LINE && p->head_len == 0;
}

static bool fail(struct http_parser *p, int status, const char *why) {
    p->state = ST_ERROR;
    p->status = status;
    p->why = why;
    return false;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* In place. Control characters, a zero among them, are refused in their escaped form too. NULL, or
 * what is wrong. */
static const char *percent_decode(char *s) {
    char *to = s;
    for (; *s != '\0'; s++, to++) {
        *to = *s;
        if (*s != '%') continue;
        int hi = hex_value(s[1]), lo = hi < 0 ? -1 : hex_value(s[2]);
        if (lo < 0) return "bad percent escape in the path";
        int c = hi * 16 + lo;
        if (c < 0x20 || c == 0x7F) return "control character in the path";
        *to = (char)c;
        s += 2;
    }
    *to = '\0';
    return NULL;
}

/* In place, RFC 3986 5.2.4 and empty segments: a path has one spelling, so that whoever judges it
 * and whoever serves it see the same. Begins with a slash. */
static const char *normalise(char *path) {
    char *to = path;
    for (const char *s = path; *s == '/';) {
        const char *segment = s + 1;
        size_t n = strcspn(segment, "/");
        bool last = segment[n] == '\0', dot = n == 1 && segment[0] == '.',
             up = n == 2 && memcmp(segment, "..", 2) == 0;
        if (up && to == path) return "the path climbs above its root";
        if (up)
            while (*--to != '/') {}
        if (!dot && !up && (n > 0 || last)) {
            memmove(to, s, n + 1);
            to += n + 1;
        } else if (last) {
            *to++ = '/';
        }
        s = segment + n;
    }
    *to = '\0';
    return NULL;
}

const char *http_head_target(struct http_head *h, uint32_t at) {
    char *raw = h->raw.data, *t = raw + at;
    const size_t len = strlen(t);
    if (len == 0 || !all_chars(t, len, target_char)) return "bad request target";
    if (strcmp(t, "*") == 0) {
        if (strcmp(http_head_method(h), "OPTIONS") != 0) return "bad request target";
        h->path = at;
        h->query = h->path + 1;
        return NULL;
    }
    char *path = t;
    if (*t != '/') {
        size_t scheme = strncasecmp(t, "http://", 7) == 0    ? 7
                        : strncasecmp(t, "https://", 8) == 0 ? 8
                                                             : 0;
        size_t host = scheme == 0 ? 0 : strcspn(t + scheme, "/?");
        if (host == 0 || !all_chars(t + scheme, host, host_char)) return "bad request target";
        path = t + scheme + host;
    }
    char *query = strchr(path, '?');
    if (query != NULL) *query++ = '\0';
    if (query == NULL) query = path + strlen(path);
    if (*path ==
        '\0') { /* "http://host": the path is "/", written over the scheme, which nobody needs */
        path = t;
        memcpy(path, "/", 2);
    }
    h->path = (uint32_t)(path - raw);
    h->query = (uint32_t)(query - raw);
    const char *wrong = percent_decode(path);
    return wrong != NULL ? wrong : normalise(path);
}

bool http_host_ok(const char *host) {
    return all_chars(host, strlen(host), host_char);
}

bool http_method_ok(const char *method) {
    size_t n = strlen(method);
    return n > 0 && n <= HTTP_METHOD_BYTES_MAX && all_chars(method, n, token_char);
}

static bool parse_version(struct http_parser *p, const char *v) {
    if (strcmp(v, "HTTP/1.1") == 0 || strcmp(v, "HTTP/1.0") == 0) {
        p->head.minor = v[7] - '0';
        return true;
    }
    bool other = strncmp(v, "HTTP/", 5) == 0 && v[5] >= '0' && v[5] <= '9' && v[6] == '.' &&
                 v[7] >= '0' && v[7] <= '9' && v[8] == '\0';
    if (other) return fail(p, 505, "HTTP version not supported");
    return fail(p, 400, "bad request line");
}

/* The line [at, at+n) of head.raw, without its line end, terminated. */
static bool parse_request_line(struct http_parser *p, size_t at, size_t n) {
    char *s = p->head.raw.data + at;
    char *sp1 = memchr(s, ' ', n);
    char *sp2 = sp1 == NULL ? NULL : memchr(sp1 + 1, ' ', n - (size_t)(sp1 + 1 - s));
    if (sp2 == NULL) return fail(p, 400, "bad request line");
    size_t method_len = (size_t)(sp1 - s), target_len = (size_t)(sp2 - sp1 - 1);
    *sp1 = '\0';
    if (!http_method_ok(s)) return fail(p, 400, "bad method");
    if (target_len > HTTP_TARGET_BYTES_MAX) return fail(p, 414, "request target too long");
    if (target_len == 0 || !all_chars(sp1 + 1, target_len, target_char))
        return fail(p, 400, "bad request target");
    *sp2 = '\0';
    p->head.method = (uint32_t)at;
    if (!parse_version(p, sp2 + 1)) return false;
    const char *wrong = http_head_target(&p->head, (uint32_t)(at + method_len + 1));
    return wrong == NULL || fail(p, 400, wrong);
}

static bool parse_length(struct http_parser *p, const char *v) {
    uint64_t n = 0;
    if (++p->n_lengths > 1) return fail(p, 400, "more than one Content-Length");
    if (*v == '\0') return fail(p, 400, "bad Content-Length");
    for (const char *d = v; *d != '\0'; d++)
        if (*d < '0' || *d > '9') return fail(p, 400, "bad Content-Length");
    for (; *v != '\0'; v++) {
        if (n > (UINT64_MAX - 9) / 10) return fail(p, 413, "Content-Length too large");
        n = n * 10 + (uint64_t)(*v - '0');
    }
    p->head.length = n;
    p->head.has_length = true;
    return true;
}

static void parse_connection(struct http_head *h, const char *v) {
    while (*v != '\0') {
        size_t n = strcspn(v, ", \t");
        if (n == 5 && strncasecmp(v, "close", 5) == 0) h->keep_alive = false;
        if (n == 10 && strncasecmp(v, "keep-alive", 10) == 0 && h->minor == 0) h->keep_alive = true;
        v += n;
        v += strspn(v, ", \t");
    }
}

/* Splits a terminated line "name: value" in place. */
static bool split_field(struct http_parser *p, char *s, size_t n, char **value) {
    char *colon = memchr(s, ':', n);
    if (colon == NULL || colon == s || !all_chars(s, (size_t)(colon - s), token_char))
        return fail(p, 400, "bad header field name");
    char *v = colon + 1, *end = s + n;
    while (*v == ' ' || *v == '\t') v++;
    while (end > v && (end[-1] == ' ' || end[-1] == '\t')) end--;
    if (!all_chars(v, (size_t)(end - v), value_char))
        return fail(p, 400, "bad character in a header field");
    *colon = *end = '\0';
    *value = v;
    return true;
}

static bool parse_field(struct http_parser *p, size_t at, size_t n) {
    struct http_head *h = &p->head;
    char *name = h->raw.data + at, *v;
    if (!split_field(p, name, n, &v)) return false;
    if (h->n_fields == HTTP_HEADERS_MAX) return fail(p, 431, "too many header fields");
    h->fields[h->n_fields++] =
        (struct http_field){.name = (uint32_t)at, .value = (uint32_t)(v - h->raw.data)};
    if (strcasecmp(name, "Content-Length") == 0) return parse_length(p, v);
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        p->n_codings++;
        p->coding_known = strcasecmp(v, "chunked") == 0;
    } else if (strcasecmp(name, "Host") == 0) {
        p->n_hosts++;
        if (!http_host_ok(v)) return fail(p, 400, "bad Host");
    } else if (strcasecmp(name, "Expect") == 0) {
        if (strcasecmp(v, "100-continue") != 0) return fail(p, 417, "unknown expectation");
        h->expect_continue = h->minor == 1;
    }
    return true;
}

/* The empty line: the fields are judged together. */
static bool finish_head(struct http_parser *p) {
    struct http_head *h = &p->head;
    if (p->n_hosts > 1 || (h->minor == 1 && p->n_hosts == 0))
        return fail(p, 400, "exactly one Host is wanted");
    if (p->n_codings > 0) {
        if (p->n_lengths > 0) return fail(p, 400, "Content-Length beside Transfer-Encoding");
        if (p->n_codings > 1 || h->minor == 0) return fail(p, 400, "bad Transfer-Encoding");
        if (!p->coding_known) return fail(p, 501, "transfer coding not supported");
        h->chunked = true;
    }
    h->keep_alive = h->minor == 1;
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcasecmp(h->raw.data + h->fields[i].name, "Connection") == 0)
            parse_connection(h, h->raw.data + h->fields[i].value);
    p->body_left = h->length;
    p->state = ST_HEAD_DONE;
    return true;
}

/* A line of the head is complete: its bytes are raw[line_at .. len), without CR LF. */
static bool take_line(struct http_parser *p) {
    size_t at = p->line_at, n = p->head.raw.len - at;
    buf_append(&p->head.raw, "", 1); /* the terminator of its last string */
    if (p->head.raw.failed) return fail(p, 503, "out of memory");
    p->line_at = p->head.raw.len;
    if (p->state == ST_REQUEST_LINE) {
        if (n == 0) { /* RFC 9112 2.2: one empty line before a request is let pass */
            if (p->line_skipped) return fail(p, 400, "bad request line");
            p->line_skipped = true;
            return true;
        }
        p->state = ST_FIELDS;
        return parse_request_line(p, at, n);
    }
    if (n == 0) return finish_head(p);
    return parse_field(p, at, n);
}

/* Line ends shared by head and trailers: CR LF and nothing else, no zero. *end: this byte completes
 * a line. */
static bool line_byte(struct http_parser *p, char c, bool *end) {
    *end = false;
    if (p->seen_cr) {
        p->seen_cr = false;
        if (c != '\n') return fail(p, 400, "a line must end in CR LF");
        *end = true;
    } else if (c == '\r') {
        p->seen_cr = true;
    } else if (c == '\n') {
        return fail(p, 400, "a line must end in CR LF");
    } else if (c == '\0') {
        return fail(p, 400, "zero byte in the head");
    }
    return true;
}

/* How many bytes from data on are neither a line end nor a zero, at most n. */
static size_t plain_run(const char *data, size_t n) {
    size_t i = 0;
    while (i < n && data[i] != '\r' && data[i] != '\n' && data[i] != '\0') i++;
    return i;
}

static bool head_too_long(struct http_parser *p) {
    if (p->state == ST_REQUEST_LINE) return fail(p, 414, "request target too long");
    return fail(p, 431, "header fields too large");
}

/* Takes bytes of the head up to the end of a line. The limits count bytes, so they do not see how
 * the bytes are cut into calls either. */
static bool feed_head(struct http_parser *p, const char *data, size_t n, size_t *used) {
    while (*used < n) {
        const char *at = data + *used;
        size_t line_len = p->head.raw.len - p->line_at,
               run = p->seen_cr ? 0 : plain_run(at, n - *used);
        bool end;
        if (run > 0) {
            if (line_len == 0 && p->state == ST_FIELDS && (*at == ' ' || *at == '\t'))
                return fail(p, 400, "folded header field");
            if (run > p->head_bytes_max - p->head_len) return head_too_long(p);
            if (p->state == ST_REQUEST_LINE && run > REQUEST_LINE_BYTES_MAX - line_len)
                return head_too_long(p);
            buf_append(&p->head.raw, at, run);
            if (p->head.raw.failed) return fail(p, 503, "out of memory");
            p->head_len += run;
            *used += run;
            continue;
        }
        if (p->head_len == p->head_bytes_max) return head_too_long(p);
        p->head_len++;
        (*used)++;
        if (!line_byte(p, *at, &end)) return false;
        if (end) return take_line(p);
    }
    return true;
}

/* A chunk's first line: hexadecimal digits, then perhaps blanks and an extension, which is skipped.
 */
static bool feed_chunk_size(struct http_parser *p, const char *data, size_t n, size_t *used) {
    while (*used < n) {
        char c = data[(*used)++];
        bool end, blank = c == ' ' || c == '\t';
        if (!line_byte(p, c, &end)) return false;
        if (p->seen_cr) continue;
        if (end) {
            if (p->chunk_line_len == 0 || p->chunk_part == CHUNK_BLANKS)
                return fail(p, 400, "bad chunk size");
            p->state = p->body_left > 0 ? ST_CHUNK_DATA : ST_TRAILERS;
            p->chunk_line_len = 0;
            p->chunk_part = CHUNK_DIGITS;
            return true;
        }
        if (++p->chunk_line_len > HTTP_CHUNK_LINE_BYTES_MAX)
            return fail(p, 400, "chunk line too long");
        int digit = p->chunk_part == CHUNK_DIGITS ? hex_value(c) : -1;
        if (digit >= 0) {
            if (p->chunk_line_len > CHUNK_DIGITS_MAX) return fail(p, 413, "chunk too large");
            p->body_left = p->body_left * 16 + (uint64_t)digit;
            continue;
        }
        if (p->chunk_line_len == 1) return fail(p, 400, "bad chunk size");
        if (p->chunk_part != CHUNK_EXTENSION) {
            if (c != ';' && !blank) return fail(p, 400, "bad chunk size");
            p->chunk_part = c == ';' ? CHUNK_EXTENSION : CHUNK_BLANKS;
        }
        if (!value_char((unsigned char)c)) return fail(p, 400, "bad chunk extension");
        if (++p->ext_len > HTTP_CHUNK_EXT_BYTES_MAX)
            return fail(p, 400, "chunk extensions too long");
    }
    return true;
}

static bool feed_chunk_end(struct http_parser *p, const char *data, size_t n, size_t *used) {
    while (*used < n) {
        char c = data[(*used)++];
        if (c != (p->seen_cr ? '\n' : '\r')) return fail(p, 400, "a chunk must end in CR LF");
        p->seen_cr = !p->seen_cr;
        if (!p->seen_cr) {
            p->state = ST_CHUNK_SIZE;
            return true;
        }
    }
    return true;
}

/* Trailer fields are checked like header fields and dropped: nothing here may change a request
 * after the fact. */
static bool feed_trailers(struct http_parser *p, const char *data, size_t n, size_t *used) {
    while (*used < n) {
        char c = data[(*used)++], *value;
        bool end;
        if (!line_byte(p, c, &end)) return false;
        if (++p->trailer_len > HTTP_TRAILER_BYTES_MAX)
            return fail(p, 431, "trailer fields too large");
        if (!end) {
            if (!p->seen_cr) buf_putc(&p->line, c);
            if (p->line.failed) return fail(p, 503, "out of memory");
            continue;
        }
        if (p->line.len == 0) {
            p->state = ST_DONE;
            return true;
        }
        if (++p->n_trailers > HTTP_HEADERS_MAX) return fail(p, 431, "too many trailer fields");
        if (!split_field(p, p->line.data, p->line.len, &value)) return false;
        buf_clear(&p->line);
    }
    return true;
}

static enum http_event take_piece(struct http_parser *p, const char *data, size_t n, size_t *used) {
    size_t left = n - *used;
    if (left > p->body_left) left = (size_t)p->body_left;
    p->piece = data + *used;
    p->piece_len = left;
    *used += left;
    p->body_left -= left;
    if (p->body_left == 0) p->state = p->state == ST_FIXED ? ST_DONE : ST_CHUNK_END;
    return HTTP_EV_BODY;
}

enum http_event http_parser_feed(struct http_parser *p, const char *data, size_t n, size_t *used) {
    *used = 0;
    for (;;) {
        switch (p->state) {
        case ST_REQUEST_LINE:
        case ST_FIELDS:
            if (*used == n) return HTTP_EV_MORE;
            feed_head(p, data, n, used);
            if (p->state == ST_HEAD_DONE) return HTTP_EV_HEAD;
            break;
        case ST_HEAD_DONE:
            /* The head may have moved out by now, so how the body is framed was kept apart. */
            p->state = p->coding_known ? ST_CHUNK_SIZE : p->body_left > 0 ? ST_FIXED : ST_DONE;
            break;
        case ST_FIXED:
        case ST_CHUNK_DATA:
            if (*used == n) return HTTP_EV_MORE;
            return take_piece(p, data, n, used);
        case ST_CHUNK_SIZE:
            if (*used == n) return HTTP_EV_MORE;
            feed_chunk_size(p, data, n, used);
            break;
        case ST_CHUNK_END:
            if (*used == n) return HTTP_EV_MORE;
            feed_chunk_end(p, data, n, used);
            break;
        case ST_TRAILERS:
            if (*used == n) return HTTP_EV_MORE;
            feed_trailers(p, data, n, used);
            break;
        case ST_DONE: return HTTP_EV_END;
        default: return HTTP_EV_ERROR;
        }
    }
}
