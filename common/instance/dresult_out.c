/* dresult_out: the listener, the numbering of frames per request, and what is kept for a replay.
 *
 * Every frame is kept first and written from there, so that a listener that comes late, comes back,
 * or reads slowly gets each request's frames in order. A frame is dropped when a socket has taken
 * it and its time or the room is over; one that no socket has taken stays. */
#include "common/instance/dresult_out.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/limits.h"

enum {
    HEARTBEAT_AFTER_MS = 5000,
    TICK_MS = 1000,
    BUCKETS = 1024,
    PENDING_BYTES_MAX = 512 * 1024, /* unsent on the socket: the listener is too slow to get more */
    CATCH_UP_MS = 10,               /* between looks at a slow listener */
    KEPT_BYTES_MAX = 16 * 1024 * 1024, /* of all requests, beyond what no socket has taken */
};

struct kept_frame {
    struct kept_frame *next;
    uint64_t seq, at_ms;
    bool taken; /* a socket has it */
    enum dresult_kind kind;
    int status;
    size_t n_ids, body_len;
    char *body;
    int32_t ids[]; /* the body follows */
};

struct kept_req {
    struct kept_req *next; /* of its bucket, or of the ended ones */
    char *req_id;
    uint32_t epoch;
    uint64_t next_seq, ended_ms;
    size_t bytes;
    struct kept_frame *first, **last;
    struct kept_frame *unsent; /* the first one the present listener has not got */
};

struct dresult_out {
    struct loop *loop;
    struct loop_timer *tick;
    struct loop_timer *catch_up; /* runs while the listener is behind */
    struct http_x *listener;
    int version;
    uint64_t last_write_ms;
    struct kept_req *live[BUCKETS];
    struct kept_req *ended, **ended_last; /* oldest first; kept for a replay only */
    size_t bytes;
    struct wr scratch;
};

static struct kept_req **bucket(struct dresult_out *d, const char *req_id) {
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *req_id != 0; req_id++) h = (h ^ (unsigned char)*req_id) * 16777619u;
    return &d->live[h % BUCKETS];
}

static size_t cost_of(size_t body_len, size_t n_ids) {
    return sizeof(struct kept_frame) + n_ids * sizeof(int32_t) + body_len + 1;
}

static void drop_first(struct dresult_out *d, struct kept_req *r) {
    struct kept_frame *f = r->first;
    size_t cost = cost_of(f->body_len, f->n_ids);
    r->first = f->next;
    if (r->first == NULL) r->last = &r->first;
    if (r->unsent == f) r->unsent = f->next;
    r->bytes -= cost;
    d->bytes -= cost;
    free(f);
}

static void req_free(struct dresult_out *d, struct kept_req *r) {
    while (r->first != NULL) drop_first(d, r);
    free(r->req_id);
    free(r);
}

/* ---- to the listener */

/* A zero ends a version 1 frame, so those that end the events of a vLLM stream are left out there.
 */
static enum err pack_without_zeros(struct dresult_out *d, struct dresult_frame f) {
    char *copy = malloc(f.body_len);
    if (copy == NULL) return ERR_NO_MEMORY;
    size_t n = 0;
    for (size_t i = 0; i < f.body_len; i++)
        if (f.body[i] != 0) copy[n++] = f.body[i];
    f.body = copy;
    f.body_len = n;
    enum err e = dresult_pack(&d->scratch, d->version, &f);
    free(copy);
    return e;
}

static void write_frame(struct dresult_out *d, const struct dresult_frame *f) {
    wr_clear(&d->scratch);
    bool zeros = d->version == 1 && f->body_len > 0 && memchr(f->body, 0, f->body_len) != NULL;
    enum err e = zeros ? pack_without_zeros(d, *f) : dresult_pack(&d->scratch, d->version, f);
    if (e != ERR_OK) {
        log_error("dresult", "event=frame_not_packed req=%s", f->req_id);
        return;
    }
    http_x_stream_write(d->listener, d->scratch.data, d->scratch.len);
    d->last_write_ms = clock_ms();
}

static bool may_write(const struct dresult_out *d) {
    return d->listener != NULL && http_x_pending(d->listener) < PENDING_BYTES_MAX;
}

/* Writes what the listener has not got of r. False: it is too slow for all of it. */
static bool bring_up(struct dresult_out *d, struct kept_req *r) {
    for (; r->unsent != NULL; r->unsent = r->unsent->next) {
        struct kept_frame *k = r->unsent;
        if (!may_write(d)) return false;
        write_frame(d, &(struct dresult_frame){.kind = k->kind,
                                               .req_id = r->req_id,
                                               .epoch = r->epoch,
                                               .seq = k->seq,
                                               .ids = k->ids,
                                               .n_ids = k->n_ids,
                                               .body = k->body,
                                               .body_len = k->body_len,
                                               .status = k->status});
        k->taken = true;
    }
    return true;
}

static void on_catch_up(void *arg);

static void fall_behind(struct dresult_out *d) {
    if (d->listener == NULL || d->catch_up != NULL) return;
    if (loop_timer_start(&d->catch_up, d->loop, CATCH_UP_MS, CATCH_UP_MS, on_catch_up, d) != ERR_OK)
        log_error("dresult", "event=no_timer");
}

static void bring_all_up(struct dresult_out *d) {
    bool done = true;
    for (struct kept_req *r = d->ended; r != NULL && done; r = r->next) done = bring_up(d, r);
    for (size_t i = 0; i < BUCKETS && done; i++)
        for (struct kept_req *r = d->live[i]; r != NULL && done; r = r->next) done = bring_up(d, r);
    if (done) {
        loop_timer_stop(&d->catch_up);
    } else {
        fall_behind(d);
    }
}

static void on_catch_up(void *arg) {
    bring_all_up(arg);
}

static void on_listener_gone(void *arg) {
    struct dresult_out *d = arg;
    log_warn("dresult", "event=listener_lost");
    d->listener = NULL;
    loop_timer_stop(&d->catch_up);
}

void dresult_out_close_listener(struct dresult_out *d) {
    if (d->listener == NULL) return;
    struct http_x *x = d->listener;
    d->listener = NULL;
    loop_timer_stop(&d->catch_up);
    http_x_on_close(x, NULL, NULL);
    http_x_stream_end(x);
}

bool dresult_out_has_listener(const struct dresult_out *d) {
    return d->listener != NULL;
}

/* Version 2 numbers its frames, so all that is kept goes out again; version 1 cannot tell a
 * repetition, so only what no socket has taken does. */
static void rewind_to(struct kept_req *r, int version) {
    r->unsent = r->first;
    while (version == 1 && r->unsent != NULL && r->unsent->taken) r->unsent = r->unsent->next;
}

void dresult_out_listen(struct dresult_out *d, struct http_x *x) {
    const char *want = http_x_header(x, "dresult-version");
    int version = want != NULL && strcmp(want, "2") == 0 ? 2 : 1;
    if (d->listener != NULL) {
        write_frame(d, &(struct dresult_frame){.kind = DR_CLOSE,
                                               .req_id = DRESULT_CLOSE_ID,
                                               .body = DRESULT_CLOSE_TEXT,
                                               .body_len = strlen(DRESULT_CLOSE_TEXT)});
        dresult_out_close_listener(d);
    }
    d->listener = x;
    d->version = version;
    d->last_write_ms = clock_ms();
    log_info("dresult", "event=listener peer=%s version=%d", http_x_peer(x), version);
    http_x_on_close(x, on_listener_gone, d);
    http_x_set_header(x, "dresult-version", version == 2 ? "2" : "1");
    http_x_stream_begin(x, 200, "text/event-stream");
    for (struct kept_req *r = d->ended; r != NULL; r = r->next) rewind_to(r, version);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct kept_req *r = d->live[i]; r != NULL; r = r->next) rewind_to(r, version);
    bring_all_up(d);
}

/* ---- what is kept */

static void drop_oldest_ended(struct dresult_out *d) {
    struct kept_req *r = d->ended;
    d->ended = r->next;
    if (d->ended == NULL) d->ended_last = &d->ended;
    req_free(d, r);
}

/* Drops frames that are older than the replay time and were taken by a socket, and requests that
 * ended that long ago. */
static void expire(struct dresult_out *d, uint64_t now) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct kept_req *r = d->live[i]; r != NULL; r = r->next)
            while (r->first != NULL && r->first->taken && r->first != r->unsent &&
                   now - r->first->at_ms > DRESULT_REPLAY_MS_MAX)
                drop_first(d, r);
    while (d->ended != NULL && now - d->ended->ended_ms > DRESULT_REPLAY_MS_MAX)
        drop_oldest_ended(d);
}

/* The longest ended ones go first; nobody has come back for them. */
static void keep_within_bounds(struct dresult_out *d) {
    while (d->bytes > KEPT_BYTES_MAX && d->ended != NULL && d->ended->unsent == NULL &&
           (d->ended->first == NULL || d->ended->first->taken))
        drop_oldest_ended(d);
}

static void on_tick(void *arg) {
    struct dresult_out *d = arg;
    uint64_t now = clock_ms();
    if (d->listener != NULL && now - d->last_write_ms >= HEARTBEAT_AFTER_MS)
        write_frame(d, &(struct dresult_frame){.kind = DR_HEARTBEAT, .req_id = "-", .body = ""});
    expire(d, now);
}

enum err dresult_out_create(struct dresult_out **out, struct loop *loop) {
    *out = NULL;
    struct dresult_out *d = calloc(1, sizeof(*d));
    if (d == NULL) return ERR_NO_MEMORY;
    d->loop = loop;
    d->ended_last = &d->ended;
    enum err e = loop_timer_start(&d->tick, loop, TICK_MS, TICK_MS, on_tick, d);
    if (e != ERR_OK) {
        free(d);
        return e;
    }
    *out = d;
    return ERR_OK;
}

void dresult_out_destroy(struct dresult_out **dp) {
    struct dresult_out *d = *dp;
    if (d == NULL) return;
    dresult_out_close_listener(d);
    loop_timer_stop(&d->tick);
    while (d->ended != NULL) drop_oldest_ended(d);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct kept_req *r = d->live[i], *next; r != NULL; r = next) {
            next = r->next;
            req_free(d, r);
        }
    wr_free(&d->scratch);
    free(d);
    *dp = NULL;
}

static struct kept_req **find(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    struct kept_req **at = bucket(d, req_id);
    while (*at != NULL && ((*at)->epoch != epoch || strcmp((*at)->req_id, req_id) != 0))
        at = &(*at)->next;
    return at;
}

static struct kept_req *find_or_add(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    struct kept_req **at = find(d, req_id, epoch), *r = *at;
    if (r != NULL) return r;
    if ((r = calloc(1, sizeof(*r))) == NULL || (r->req_id = strdup(req_id)) == NULL) {
        free(r);
        return NULL;
    }
    r->epoch = epoch;
    r->last = &r->first;
    return *at = r;
}

static void end_req(struct dresult_out *d, struct kept_req *r) {
    struct kept_req **at = find(d, r->req_id, r->epoch);
    *at = r->next;
    r->next = NULL;
    r->ended_ms = clock_ms();
    *d->ended_last = r;
    d->ended_last = &r->next;
}

/* Makes room by dropping frames a socket has taken already, oldest first. A first frame always has
 * room: a whole body may be larger than what is kept of a stream. */
static bool make_room(struct dresult_out *d, struct kept_req *r, size_t cost) {
    while ((r->bytes + cost > DRESULT_REPLAY_BYTES_MAX || d->bytes + cost > KEPT_BYTES_MAX) &&
           r->first != NULL && r->first->taken && r->first != r->unsent)
        drop_first(d, r);
    return r->bytes + cost <= DRESULT_REPLAY_BYTES_MAX || r->first == NULL;
}

static struct kept_frame *frame_new(const int32_t *ids, size_t n_ids, const char *body, size_t n) {
    struct kept_frame *f = malloc(cost_of(n, n_ids));
    if (f == NULL) return NULL;
    *f = (struct kept_frame){.n_ids = n_ids, .body_len = n, .at_ms = clock_ms()};
    f->body = (char *)(f->ids + n_ids);
    if (n_ids > 0) memcpy(f->ids, ids, n_ids * sizeof(*ids));
    if (n > 0) memcpy(f->body, body, n);
    f->body[n] = 0;
    return f;
}

enum err dresult_out_send(struct dresult_out *d, const char *req_id, uint32_t epoch,
                          enum dresult_kind kind, const int32_t *ids, size_t n_ids, int status,
                          const char *body, size_t n) {
    struct kept_req *r = find_or_add(d, req_id, epoch);
    if (r == NULL) return ERR_NO_MEMORY;
    size_t cost = cost_of(n, n_ids);
    bool goes_out = r->unsent == NULL && may_write(d);
    keep_within_bounds(d);
    if (!make_room(d, r, cost) && !goes_out) return ERR_TOO_LARGE;
    struct kept_frame *f = frame_new(ids, n_ids, body, n);
    if (f == NULL) return ERR_NO_MEMORY;
    f->kind = kind;
    f->status = status;
    f->seq = r->next_seq++;
    *r->last = f;
    r->last = &f->next;
    r->bytes += cost;
    d->bytes += cost;
    if (r->unsent == NULL) r->unsent = f;
    if (!bring_up(d, r)) fall_behind(d);
    if (kind == DR_LAST || kind == DR_ERROR || kind == DR_RETRY) end_req(d, r);
    return ERR_OK;
}

void dresult_out_forget(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    struct kept_req **at = find(d, req_id, epoch), *r = *at;
    if (r == NULL) return;
    *at = r->next;
    req_free(d, r);
}
