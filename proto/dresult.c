/* dresult: packing and byte-stream parsing of /dresult frames (see dresult.h for the grammar). */
#include "proto/dresult.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "proto/limits.h"

static const char *const kind_word[] = {
    [DR_NONE] = "none",   [DR_DATA] = "data",   [DR_LAST] = "lastData", [DR_ERROR] = "error",
    [DR_RETRY] = "retry", [DR_CLOSE] = "close", [DR_HEARTBEAT] = "ka",  [DR_PART] = "part",
};
enum { KIND_COUNT = sizeof(kind_word) / sizeof(kind_word[0]) };

enum {
    HEAD_BYTES_MAX = REQ_ID_BYTES_MAX + 136, /* id, epoch, seq, kind, status, cause, spaces */
    CUT_TOKENS_MAX = 4096,                   /* of one frame of a piece that is cut */
};

static enum dresult_kind kind_parse(const char *s, size_t n) {
    for (int k = DR_DATA; k < KIND_COUNT; k++)
        if (strlen(kind_word[k]) == n && memcmp(kind_word[k], s, n) == 0)
            return (enum dresult_kind)k;
    return DR_NONE;
}

static bool id_ok(const char *id) {
    size_t n = strlen(id);
    return n > 0 && n <= REQ_ID_BYTES_MAX && strcspn(id, " \t\r\n:;") == n;
}

static void put(struct wr *w, const char *s) {
    wr_bytes(w, s, strlen(s));
}

static enum err pack_v1(struct wr *w, const struct dresult_frame *f) {
    if (f->kind == DR_HEARTBEAT) {
        wr_bytes(w, "ka:heartbeat", sizeof("ka:heartbeat"));
        return w->failed ? ERR_NO_MEMORY : ERR_OK;
    }
    /* The NUL that ends a frame of vLLM's stream ends ours too: version 1 cannot carry it. */
    size_t n = f->body_len;
    if (n > 0 && f->body[n - 1] == 0) n--;
    if (!id_ok(f->req_id) || memchr(f->body, 0, n) != NULL) return ERR_INVALID;
    put(w, "reqId:");
    wr_bytes(w, f->req_id, strlen(f->req_id) + 1);
    put(w, kind_word[f->kind]);
    put(w, ":");
    wr_bytes(w, f->body, n);
    wr_u8(w, 0);
    return w->failed ? ERR_NO_MEMORY : ERR_OK;
}

static void put_error(struct wr *w, const struct dresult_frame *f) {
    char text[32];
    snprintf(text, sizeof(text), ";status=%d", f->status);
    if (f->status != 0) put(w, text);
    if (f->cause == CAUSE_NONE) return;
    put(w, ";cause=");
    put(w, cause_name(f->cause));
}

static enum err pack_v2(struct wr *w, const struct dresult_frame *f) {
    const char *id = f->kind == DR_HEARTBEAT ? "-" : f->req_id;
    if (!id_ok(id)) return ERR_INVALID;
    size_t start = w->len;
    char num[64];
    put(w, "00000000 ");
    put(w, id);
    snprintf(num, sizeof(num), " %u %llu ", f->epoch, (unsigned long long)f->seq);
    put(w, num);
    put(w, kind_word[f->kind]);
    if (f->kind == DR_ERROR && (f->status != 0 || f->cause != CAUSE_NONE)) {
        put_error(w, f);
    } else {
        for (size_t i = 0; i < f->n_tokens; i++) {
            put(w, i == 0 ? ";" : ",");
            wr_bytes(w, num, emitted_format(num, &f->tokens[i]));
        }
    }
    put(w, " ");
    wr_bytes(w, f->body, f->body_len);
    if (w->failed) return ERR_NO_MEMORY;
    size_t len = w->len - start - 9;
    if (len > DRESULT_FRAME_BYTES_MAX) {
        w->len = start;
        return ERR_TOO_LARGE;
    }
    snprintf(num, sizeof(num), "%08zx", len);
    memcpy(w->data + start, num, 8);
    return ERR_OK;
}

enum err dresult_pack(struct wr *w, int version, const struct dresult_frame *f) {
    if (f->kind <= DR_NONE || f->kind > DR_PART || (version != 1 && version != 2))
        return ERR_INVALID;
    if (version == 1 && f->kind == DR_PART) return ERR_INVALID; /* it has no numbers to join by */
    return version == 1 ? pack_v1(w, f) : pack_v2(w, f);
}

/* ---- a piece in several frames */

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* The share of one frame of what is left of a piece. True: all of it. */
static bool share(const struct dresult_frame *piece, const struct dresult_cut *cut, size_t *n_body,
                  size_t *n_tokens) {
    size_t tokens = piece->n_tokens - cut->tokens_at, body = piece->body_len - cut->body_at;
    *n_tokens = min_size(tokens, CUT_TOKENS_MAX);
    *n_body =
        min_size(body, DRESULT_FRAME_BYTES_MAX - HEAD_BYTES_MAX - *n_tokens * EMITTED_BYTES_MAX);
    return *n_tokens == tokens && *n_body == body;
}

void dresult_cut_skip(const struct dresult_frame *piece, uint64_t n, struct dresult_cut *cut) {
    size_t n_body, n_tokens;
    *cut = (struct dresult_cut){0};
    while (cut->n_frames < n && !cut->done) {
        cut->done = share(piece, cut, &n_body, &n_tokens);
        cut->body_at += n_body;
        cut->tokens_at += n_tokens;
        cut->n_frames++;
    }
}

uint64_t dresult_n_frames(const struct dresult_frame *piece) {
    struct dresult_cut cut;
    dresult_cut_skip(piece, UINT64_MAX, &cut);
    return cut.n_frames;
}

enum err dresult_pack_cut(struct wr *w, const struct dresult_frame *piece,
                          struct dresult_cut *cut) {
    struct dresult_frame f = *piece;
    size_t n_body, n_tokens;
    bool last = share(piece, cut, &n_body, &n_tokens);
    f.seq += cut->n_frames;
    f.body += cut->body_at;
    f.body_len = n_body;
    if (n_tokens > 0) f.tokens += cut->tokens_at;
    f.n_tokens = n_tokens;
    if (!last) f.kind = DR_PART;
    enum err e = pack_v2(w, &f);
    if (e != ERR_OK) return e;
    cut->body_at += n_body;
    cut->tokens_at += n_tokens;
    cut->n_frames++;
    cut->done = last;
    return ERR_OK;
}

/* ---- where a stream goes on */

static bool dec_u64(const char *s, size_t n, uint64_t max, uint64_t *out) {
    uint64_t v = 0;
    if (n == 0 || n > 20) return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        uint64_t d = (uint64_t)(s[i] - '0');
        if (v > (max - d) / 10) return false;
        v = v * 10 + d;
    }
    *out = v;
    return true;
}

bool dresult_position_put(char *text, size_t cap, const char *req_id, uint32_t epoch,
                          uint64_t seq) {
    const size_t len = strlen(text);
    if (!id_ok(req_id)) return false;
    int n = snprintf(text + len, cap - len, "%s%s:%u:%llu", len > 0 ? " " : "", req_id, epoch,
                     (unsigned long long)seq);
    if (n > 0 && (size_t)n < cap - len) return true;
    text[len] = 0;
    return false;
}

bool dresult_position_next(const char **text, struct dresult_position *out) {
    const char *p = *text + strspn(*text, " "), *end = p + strcspn(p, " ");
    const char *epoch = memchr(p, ':', (size_t)(end - p));
    const char *seq = epoch != NULL ? memchr(epoch + 1, ':', (size_t)(end - epoch - 1)) : NULL;
    uint64_t e;
    if (seq == NULL || epoch == p || epoch - p > REQ_ID_BYTES_MAX) return false;
    if (!dec_u64(epoch + 1, (size_t)(seq - epoch - 1), UINT32_MAX, &e)) return false;
    if (!dec_u64(seq + 1, (size_t)(end - seq - 1), UINT64_MAX, &out->seq)) return false;
    out->req_id = p;
    out->id_len = (size_t)(epoch - p);
    out->epoch = (uint32_t)e;
    *text = end;
    return true;
}

/* ---- parsing */

struct dresult_parser {
    int version;
    size_t frame_bytes_max;
    struct wr hold; /* bytes of a frame not yet whole */
    struct emitted *tokens;
    size_t tokens_cap;
    dresult_ahead_fn *ahead;
    void *ahead_arg;
};

enum err dresult_parser_create(struct dresult_parser **out, int version, size_t frame_bytes_max) {
    *out = NULL;
    if (version != 1 && version != 2) return ERR_INVALID;
    struct dresult_parser *p = calloc(1, sizeof(*p));
    if (p == NULL) return ERR_NO_MEMORY;
    p->version = version;
    p->frame_bytes_max = frame_bytes_max;
    *out = p;
    return ERR_OK;
}

void dresult_parser_destroy(struct dresult_parser **pp) {
    struct dresult_parser *p = *pp;
    if (p == NULL) return;
    wr_free(&p->hold);
    free(p->tokens);
    free(p);
    *pp = NULL;
}

/* One version 1 frame at p[0..n): either a heartbeat or "reqId:" id NUL kind ":" body NUL. Returns
 * its length, 0 when more bytes are needed, or sets *e. */
static size_t take_v1(struct dresult_parser *ps, const char *p, size_t n, dresult_frame_fn *fn,
                      void *arg, enum err *e) {
    const char *end1 = memchr(p, 0, n);
    if (end1 == NULL) return 0;
    size_t head = (size_t)(end1 - p);
    struct dresult_frame f = {.version = 1, .kind = DR_HEARTBEAT, .req_id = "-", .body = ""};
    (void)ps;
    if (head == strlen("ka:heartbeat") && memcmp(p, "ka:heartbeat", head) == 0) {
        *e = fn(arg, &f);
        return head + 1;
    }
    if (head <= 6 || memcmp(p, "reqId:", 6) != 0 || head - 6 > REQ_ID_BYTES_MAX) {
        *e = ERR_BAD_FRAME;
        return 0;
    }
    const char *rest = end1 + 1, *end2 = memchr(rest, 0, n - head - 1);
    if (end2 == NULL) return 0;
    const char *colon = memchr(rest, ':', (size_t)(end2 - rest));
    if (colon == NULL) {
        *e = ERR_BAD_FRAME;
        return 0;
    }
    f.kind = kind_parse(rest, (size_t)(colon - rest));
    f.req_id = p + 6;
    f.body = colon + 1;
    f.body_len = (size_t)(end2 - colon - 1);
    if (f.kind != DR_NONE && f.kind != DR_PART) /* an unknown kind is skipped */
        *e = fn(arg, &f);
    return (size_t)(end2 - p) + 1;
}

/* Cuts the next space-terminated word out of p[*at..n). */
static bool word(const char *p, size_t n, size_t *at, const char **w, size_t *len) {
    const char *sp = *at < n ? memchr(p + *at, ' ', n - *at) : NULL;
    if (sp == NULL) return false;
    *w = p + *at;
    *len = (size_t)(sp - *w);
    *at += *len + 1;
    return *len > 0;
}

static enum err parse_tokens(struct dresult_parser *ps, const char *s, size_t n,
                             struct dresult_frame *f) {
    for (size_t at = 0; at < n;) {
        if (f->n_tokens == ps->tokens_cap) {
            size_t cap = ps->tokens_cap == 0 ? 64 : ps->tokens_cap * 2;
            struct emitted *grown = realloc(ps->tokens, cap * sizeof(*grown));
            if (grown == NULL) return ERR_NO_MEMORY;
            ps->tokens = grown;
            ps->tokens_cap = cap;
        }
        enum err e = emitted_parse(s, n, &at, &ps->tokens[f->n_tokens]);
        if (e != ERR_OK) return e;
        f->n_tokens++;
    }
    f->tokens = ps->tokens;
    return ERR_OK;
}

/* "status=503;cause=d_stopping" of an error, or either alone. False: it begins with neither, or is
 * malformed, which *e tells apart. */
static bool parse_error(const char *s, size_t n, struct dresult_frame *f, enum err *e) {
    static const char status[] = "status=", cause[] = "cause=";
    const size_t n_status = sizeof(status) - 1, n_cause = sizeof(cause) - 1;
    const char *end = s + n;
    *e = ERR_OK;
    if (n > n_status && memcmp(s, status, n_status) == 0) {
        const char *semi = memchr(s, ';', n), *stop = semi != NULL ? semi : end;
        uint64_t v;
        s += n_status;
        if (!dec_u64(s, (size_t)(stop - s), 599, &v) || v < 100) *e = ERR_BAD_FRAME;
        if (*e != ERR_OK) return false;
        f->status = (int)v;
        if (semi == NULL) return true;
        s = semi + 1;
    }
    n = (size_t)(end - s);
    if (n > n_cause && memcmp(s, cause, n_cause) == 0) {
        f->cause = cause_parse(s + n_cause, n - n_cause);
        return true;
    }
    if (f->status != 0) *e = ERR_BAD_FRAME;
    return false;
}

static enum err parse_v2(struct dresult_parser *ps, const char *p, size_t n, dresult_frame_fn *fn,
                         void *arg) {
    size_t at = 0, id_len, len;
    const char *id, *w;
    char id_z[REQ_ID_BYTES_MAX + 1];
    uint64_t v;
    struct dresult_frame f = {.version = 2, .req_id = id_z};
    if (!word(p, n, &at, &id, &id_len) || id_len > REQ_ID_BYTES_MAX ||
        memchr(id, 0, id_len) != NULL)
        return ERR_BAD_FRAME;
    memcpy(id_z, id, id_len);
    id_z[id_len] = 0;
    if (!word(p, n, &at, &w, &len) || !dec_u64(w, len, UINT32_MAX, &v)) return ERR_BAD_FRAME;
    f.epoch = (uint32_t)v;
    if (!word(p, n, &at, &w, &len) || !dec_u64(w, len, UINT64_MAX, &f.seq)) return ERR_BAD_FRAME;
    if (!word(p, n, &at, &w, &len)) return ERR_BAD_FRAME;
    const char *semi = memchr(w, ';', len);
    size_t kind_len = semi != NULL ? (size_t)(semi - w) : len;
    f.kind = kind_parse(w, kind_len);
    if (semi != NULL) {
        const char *x = semi + 1;
        size_t x_len = len - kind_len - 1;
        enum err e = ERR_OK;
        if (f.kind != DR_ERROR || !parse_error(x, x_len, &f, &e)) {
            if (e == ERR_OK) e = x_len == 0 ? ERR_BAD_FRAME : parse_tokens(ps, x, x_len, &f);
            if (e != ERR_OK) return e;
        }
    }
    f.body = p + at;
    f.body_len = n - at;
    return f.kind == DR_NONE ? ERR_OK : fn(arg, &f);
}

enum { LENGTH_BYTES = 9 }; /* eight digits and a space */

/* False: it is none. */
static bool read_length(const char *p, size_t *len) {
    *len = 0;
    for (int i = 0; i < LENGTH_BYTES - 1; i++) {
        const char c = p[i];
        const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0) return false;
        *len = *len * 16 + (size_t)d;
    }
    return p[LENGTH_BYTES - 1] == ' ';
}

static size_t take_v2(struct dresult_parser *ps, const char *p, size_t n, dresult_frame_fn *fn,
                      void *arg, enum err *e) {
    size_t len;
    if (n < LENGTH_BYTES) return 0;
    if (!read_length(p, &len)) {
        *e = ERR_BAD_FRAME;
        return 0;
    }
    if (len > ps->frame_bytes_max) {
        *e = ERR_TOO_LARGE;
        return 0;
    }
    if (n - LENGTH_BYTES < len) return 0;
    *e = parse_v2(ps, p + LENGTH_BYTES, len, fn, arg);
    return LENGTH_BYTES + len;
}

/* Frames that have been heard of and have not come yet. */
struct scout {
    const char *at, *end;
    unsigned n;
};

static bool hear_of_one(const struct dresult_parser *ps, struct scout *s) {
    size_t len, left = (size_t)(s->end - s->at);
    if (left < LENGTH_BYTES || !read_length(s->at, &len) || len > left - LENGTH_BYTES) return false;
    const char *id = s->at + LENGTH_BYTES, *space = memchr(id, ' ', len);
    s->at = id + len;
    s->n++;
    if (space != NULL)
        ps->ahead(ps->ahead_arg, id, (size_t)(space - id));
    else
        ps->ahead(ps->ahead_arg, NULL, 0);
    return true;
}

/* Before a frame is taken. */
static void look_ahead(const struct dresult_parser *ps, struct scout *s) {
    const bool begins = s->n == 0;
    while (s->n < DRESULT_AHEAD && hear_of_one(ps, s) && begins) continue;
    if (!begins && s->n < DRESULT_AHEAD) ps->ahead(ps->ahead_arg, NULL, 0);
    if (s->n > 0) s->n--;
}

void dresult_parser_ahead(struct dresult_parser *p, dresult_ahead_fn *fn, void *arg) {
    p->ahead = p->version == 2 ? fn : NULL;
    p->ahead_arg = arg;
}

enum err dresult_parser_feed(struct dresult_parser *ps, const char *bytes, size_t n,
                             dresult_frame_fn *fn, void *arg) {
    const char *p = bytes;
    size_t left = n;
    bool held = ps->hold.len > 0;
    if (held) {
        wr_bytes(&ps->hold, bytes, n);
        if (ps->hold.failed) return ERR_NO_MEMORY;
        p = (const char *)ps->hold.data;
        left = ps->hold.len;
    }
    struct scout scout = {p, p + left, 0};
    enum err e = ERR_OK;
    while (left > 0) {
        if (ps->ahead != NULL) look_ahead(ps, &scout);
        size_t used = ps->version == 1 ? take_v1(ps, p, left, fn, arg, &e)
                                       : take_v2(ps, p, left, fn, arg, &e);
        if (e != ERR_OK) return e;
        if (used == 0) break;
        p += used;
        left -= used;
    }
    if (left > ps->frame_bytes_max + REQ_ID_BYTES_MAX + 64) return ERR_TOO_LARGE;
    if (held) {
        memmove(ps->hold.data, p, left);
        ps->hold.len = left;
    } else {
        wr_bytes(&ps->hold, p, left);
    }
    return ps->hold.failed ? ERR_NO_MEMORY : ERR_OK;
}
