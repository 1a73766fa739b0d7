/* dresult_out: the listener, the numbering of frames per request, and what is kept for a replay.
 *
 * Every piece is kept first and written from there, frame by frame, so that a listener that comes
 * late, comes back, or reads slowly gets each request's frames in order. A piece is dropped when a
 * socket has taken it and its time or the room is over; one that no socket has taken stays. */
#include "common/instance/dresult_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/entropy.h"
#include "common/base/heap.h"
#include "common/base/log.h"
#include "proto/hash.h"
#include "proto/limits.h"

enum {
    HEARTBEAT_AFTER_MS = 5000, /* of silence, for a listener that does not watch */
    TICK_MS = 1000,
    /* Who watches has the stream back, or holds the instance for lost, within nine heartbeats. */
    WATCHED_BEATS = 16,
    WATCHED_MS_MIN = 3000,
    TRIM_BYTES = 1024 * 1024, /* so much given back is worth a look at the heap */
    BUCKETS = 1024,
    PENDING_BYTES_MAX = 512 * 1024, /* unsent on the socket: the listener is too slow to get more */
    KEPT_BYTES_MAX = 16 * 1024 * 1024, /* of all requests, beyond what no socket has taken */
};

struct kept_piece {
    struct kept_piece *next;
    uint64_t seq, at_ms; /* seq: of its first frame */
    bool taken;          /* a socket has all of it */
    bool counted;        /* against the budget */
    enum dresult_kind kind;
    struct dresult_error error; /* of a DR_ERROR */
    size_t n_tokens, body_len;
    char *body;
    struct emitted tokens[]; /* the body follows */
};

struct kept_req {
    struct kept_req *next; /* of its bucket, or of the ended ones */
    char *req_id;
    uint32_t epoch;
    uint64_t next_seq, ended_ms;
    size_t bytes, unsent_bytes; /* of all its pieces; of those that no listener has got */
    struct kept_piece *first, **last;
    struct kept_piece *unsent; /* the first one the present listener has not got all of */
    struct dresult_cut cut;    /* how far it has got that one */
    struct kept_piece *spare;  /* room for an end; NULL: used, or never opened */
    bool full;
    loop_fn *on_room;
    void *arg;
    struct kept_req *turn_next, **turn_at; /* turn_at NULL: it has nothing to write */
};

struct dresult_out {
    struct loop *loop;
    struct budget *budget;
    struct loop_timer *tick;
    struct http_x *listener;
    int version;
    struct loop_timer *beat;                     /* of a listener that watches; NULL: it does not */
    uint64_t boot;                               /* of this process, at random */
    char session[DRESULT_SESSION_BYTES_MAX + 1]; /* of the last listener that had one */
    uint64_t last_write_ms;
    struct kept_req *live[BUCKETS];
    struct kept_req *ended, **ended_last; /* oldest first; kept for a replay only */
    struct kept_req *turn, **turn_last;   /* with something to write; the first is next */
    size_t bytes, dropped_bytes;          /* kept; dropped since the heap was trimmed */
    uint64_t replay_ms;                   /* how long what a socket has taken is kept */
    struct wr scratch;
};

static struct kept_req **bucket(struct dresult_out *d, const char *req_id, size_t n) {
    return &d->live[hash32_bytes(HASH32_BEGIN, req_id, n) % BUCKETS];
}

static size_t cost_of(size_t body_len, size_t n_tokens) {
    return sizeof(struct kept_piece) + n_tokens * sizeof(struct emitted) + body_len + 1;
}

/* ---- turns */

static void turn_join(struct dresult_out *d, struct kept_req *r) {
    if (r->turn_at != NULL || r->unsent == NULL) return;
    r->turn_next = NULL;
    r->turn_at = d->turn_last;
    *d->turn_last = r;
    d->turn_last = &r->turn_next;
}

static void turn_leave(struct dresult_out *d, struct kept_req *r) {
    if (r->turn_at == NULL) return;
    *r->turn_at = r->turn_next;
    *(r->turn_next != NULL ? &r->turn_next->turn_at : &d->turn_last) = r->turn_at;
    r->turn_at = NULL;
}

/* ---- what a request keeps */

static void drop_first(struct dresult_out *d, struct kept_req *r) {
    struct kept_piece *k = r->first;
    size_t cost = cost_of(k->body_len, k->n_tokens);
    r->first = k->next;
    if (r->first == NULL) r->last = &r->first;
    if (k->counted) budget_give(d->budget, BUDGET_ANSWER_BYTES, cost);
    r->bytes -= cost;
    d->bytes -= cost;
    d->dropped_bytes += cost;
    free(k);
}

static void req_free(struct dresult_out *d, struct kept_req *r) {
    turn_leave(d, r);
    while (r->first != NULL) drop_first(d, r);
    free(r->spare);
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

/* The next frame of a piece, or all of it in version 1, which has no parts. */
static enum err pack_next(struct dresult_out *d, const struct dresult_frame *f,
                          struct dresult_cut *cut) {
    wr_clear(&d->scratch);
    if (d->version == 2) return dresult_pack_cut(&d->scratch, f, cut);
    cut->done = true;
    bool zeros = f->body_len > 0 && memchr(f->body, 0, f->body_len) != NULL;
    return zeros ? pack_without_zeros(d, *f) : dresult_pack(&d->scratch, 1, f);
}

static void on_listener_gone(void *arg) {
    struct dresult_out *d = arg;
    log_warn("dresult", "event=listener_lost");
    d->listener = NULL;
    loop_timer_stop(&d->beat);
}

/* Without memory for the frame, or for what the socket has not taken, the listener goes: it comes
 * back, and what it has not got is written then. */
static void drop_listener(struct dresult_out *d) {
    struct http_x *x = d->listener;
    http_x_on_close(x, NULL, NULL);
    on_listener_gone(d);
    http_x_abort(x);
}

static void write_frame(struct dresult_out *d, const struct dresult_frame *f,
                        struct dresult_cut *cut) {
    enum err e = pack_next(d, f, cut);
    if (e == ERR_NO_MEMORY) {
        cut->done = false;
        drop_listener(d);
        return;
    }
    if (e != ERR_OK) {
        log_error("dresult", "event=frame_not_packed req=%s", f->req_id);
        cut->done = true;
        return;
    }
    http_x_stream_write(d->listener, d->scratch.data, d->scratch.len);
    d->last_write_ms = clock_ms();
}

static void write_small(struct dresult_out *d, enum dresult_kind kind, const char *id,
                        const char *text) {
    struct dresult_cut cut = {0};
    const struct dresult_frame f = {
        .kind = kind, .req_id = id, .body = text, .body_len = strlen(text)};
    write_frame(d, &f, &cut);
}

static bool may_write(const struct dresult_out *d) {
    return d->listener != NULL && http_x_pending(d->listener) < PENDING_BYTES_MAX;
}

static void note_taken(struct kept_req *r, struct kept_piece *k) {
    k->taken = true;
    r->unsent_bytes -= cost_of(k->body_len, k->n_tokens);
    r->unsent = k->next;
    r->cut = (struct dresult_cut){0};
    if (!r->full || r->unsent_bytes > DRESULT_REPLAY_BYTES_MAX / 2) return;
    r->full = false;
    if (r->on_room != NULL) r->on_room(r->arg);
}

static struct dresult_frame frame_of(const struct kept_req *r, const struct kept_piece *k) {
    return (struct dresult_frame){.kind = k->kind,
                                  .req_id = r->req_id,
                                  .epoch = r->epoch,
                                  .seq = k->seq,
                                  .tokens = k->tokens,
                                  .n_tokens = k->n_tokens,
                                  .body = k->body,
                                  .body_len = k->body_len,
                                  .status = k->error.status,
                                  .cause = k->error.cause};
}

static void write_next(struct dresult_out *d, struct kept_req *r) {
    struct kept_piece *k = r->unsent;
    const struct dresult_frame f = frame_of(r, k);
    write_frame(d, &f, &r->cut);
    if (r->cut.done) note_taken(r, k);
}

static void on_listener_room(void *arg);

/* Writes what there is to say, a frame of each request in turn, as long as the listener takes it.
 */
static void pump(struct dresult_out *d) {
    while (d->turn != NULL && may_write(d)) {
        struct kept_req *r = d->turn;
        turn_leave(d, r);
        write_next(d, r);
        turn_join(d, r);
    }
    if (d->turn != NULL && d->listener != NULL)
        http_x_on_room(d->listener, PENDING_BYTES_MAX / 2, on_listener_room, d);
}

static void on_listener_room(void *arg) {
    pump(arg);
}

void dresult_out_close_listener(struct dresult_out *d) {
    if (d->listener == NULL) return;
    struct http_x *x = d->listener;
    d->listener = NULL;
    loop_timer_stop(&d->beat);
    http_x_on_close(x, NULL, NULL);
    http_x_stream_end(x);
}

bool dresult_out_has_listener(const struct dresult_out *d) {
    return d->listener != NULL;
}

bool dresult_out_takes_tokens(const struct dresult_out *d) {
    return d->listener != NULL && d->version == 2;
}

bool dresult_out_is_read(const struct dresult_out *d) {
    return d->turn == NULL && (d->listener == NULL || http_x_pending(d->listener) == 0);
}

/* Version 2 numbers its frames, so all that is kept may go out again; version 1 cannot tell a
 * repetition, so only what no socket has taken does. */
static void rewind_to(struct dresult_out *d, struct kept_req *r, int version) {
    turn_leave(d, r);
    r->unsent = r->first;
    while (version == 1 && r->unsent != NULL && r->unsent->taken) r->unsent = r->unsent->next;
    r->cut = (struct dresult_cut){0};
    r->unsent_bytes = 0;
    for (const struct kept_piece *k = r->unsent; k != NULL; k = k->next)
        r->unsent_bytes += cost_of(k->body_len, k->n_tokens);
    turn_join(d, r);
}

/* The listener has the frames before seq: what is left of these pieces goes out. */
static void go_on_at(struct dresult_out *d, struct kept_req *r, uint64_t seq) {
    turn_leave(d, r);
    while (r->unsent != NULL && r->unsent->seq < seq) {
        const struct dresult_frame f = frame_of(r, r->unsent);
        dresult_cut_skip(&f, seq - f.seq, &r->cut);
        if (!r->cut.done) break;
        note_taken(r, r->unsent);
    }
    turn_join(d, r);
}

static bool is_at(const struct kept_req *r, const struct dresult_position *p) {
    return r->epoch == p->epoch && strncmp(r->req_id, p->req_id, p->id_len) == 0 &&
           r->req_id[p->id_len] == 0;
}

static void resume(struct dresult_out *d, const char *positions) {
    struct dresult_position p;
    if (positions == NULL || strlen(positions) > DRESULT_RESUME_BYTES_MAX) return;
    while (dresult_position_next(&positions, &p)) {
        for (struct kept_req *r = *bucket(d, p.req_id, p.id_len); r != NULL; r = r->next)
            if (is_at(r, &p)) go_on_at(d, r, p.seq);
        for (struct kept_req *r = d->ended; r != NULL; r = r->next)
            if (is_at(r, &p)) go_on_at(d, r, p.seq);
    }
}

/* ---- listeners that watch */

/* 0: x does not watch. */
static unsigned heartbeat_of(const struct http_x *x) {
    const char *version = http_x_header(x, "dresult-version"),
               *ms = http_x_header(x, DRESULT_HEARTBEAT_HEADER);
    if (version == NULL || strcmp(version, "2") != 0 || ms == NULL || strlen(ms) > 5 ||
        ms[strspn(ms, "0123456789")] != 0)
        return 0;
    unsigned long v = strtoul(ms, NULL, 10);
    return v >= DRESULT_HEARTBEAT_MS_MIN && v <= DRESULT_HEARTBEAT_MS_MAX ? (unsigned)v : 0;
}

bool dresult_out_is_watch(const struct http_x *x) {
    return heartbeat_of(x) > 0;
}

static void on_beat(void *arg) {
    write_small(arg, DR_HEARTBEAT, "-", "");
}

static uint64_t replay_ms_of(unsigned beat_ms) {
    uint64_t ms = (uint64_t)WATCHED_BEATS * beat_ms;
    if (beat_ms == 0 || ms > DRESULT_REPLAY_MS_MAX) return DRESULT_REPLAY_MS_MAX;
    return ms > WATCHED_MS_MIN ? ms : WATCHED_MS_MIN;
}

static void watch(struct dresult_out *d, unsigned ms) {
    char hello[64];
    loop_timer_stop(&d->beat);
    d->replay_ms = replay_ms_of(ms);
    if (ms == 0 || loop_timer_start(&d->beat, d->loop, ms, ms, on_beat, d) != ERR_OK) return;
    snprintf(hello, sizeof(hello), DRESULT_HELLO "%016llx %u", (unsigned long long)d->boot, ms);
    write_small(d, DR_HEARTBEAT, "-", hello);
}

void dresult_out_note(struct dresult_out *d, const char *why) {
    char text[64];
    if (d->beat == NULL) return;
    snprintf(text, sizeof(text), DRESULT_NOTE "%s", why);
    write_small(d, DR_HEARTBEAT, "-", text);
}

void dresult_out_role_ends(struct dresult_out *d) {
    if (d->beat == NULL) dresult_out_close_listener(d);
}

bool dresult_out_new_session(struct dresult_out *d, const struct http_x *x) {
    const char *session = http_x_header(x, DRESULT_SESSION_HEADER);
    if (session == NULL || strlen(session) > DRESULT_SESSION_BYTES_MAX ||
        strcmp(session, d->session) == 0)
        return false;
    snprintf(d->session, sizeof(d->session), "%s", session);
    return true;
}

void dresult_out_listen(struct dresult_out *d, struct http_x *x) {
    const char *want = http_x_header(x, "dresult-version");
    int version = want != NULL && strcmp(want, "2") == 0 ? 2 : 1;
    if (d->listener != NULL) {
        write_small(d, DR_CLOSE, DRESULT_CLOSE_ID, DRESULT_CLOSE_TEXT);
        dresult_out_close_listener(d);
    }
    d->listener = x;
    d->version = version;
    d->last_write_ms = clock_ms();
    log_info("dresult", "event=listener peer=%s version=%d", http_x_peer(x), version);
    http_x_on_close(x, on_listener_gone, d);
    http_x_set_header(x, "dresult-version", version == 2 ? "2" : "1");
    http_x_stream_begin(x, 200, "text/event-stream");
    http_x_stream_paced(x); /* a frame of version 1 may be as large as an answer */
    watch(d, heartbeat_of(x));
    for (struct kept_req *r = d->ended; r != NULL; r = r->next) rewind_to(d, r, version);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct kept_req *r = d->live[i]; r != NULL; r = r->next) rewind_to(d, r, version);
    if (version == 2) resume(d, http_x_header(x, DRESULT_RESUME_HEADER));
    pump(d);
}

/* ---- what is kept */

static void drop_oldest_ended(struct dresult_out *d) {
    struct kept_req *r = d->ended;
    d->ended = r->next;
    if (d->ended == NULL) d->ended_last = &d->ended;
    req_free(d, r);
}

/* Drops pieces that are older than the replay time and were taken by a socket, and requests that
 * ended that long ago, unless a listener is about to get the rest of them. */
static void expire(struct dresult_out *d, uint64_t now) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct kept_req *r = d->live[i]; r != NULL; r = r->next)
            while (r->first != NULL && r->first->taken && r->first != r->unsent &&
                   now - r->first->at_ms > d->replay_ms)
                drop_first(d, r);
    while (d->ended != NULL && now - d->ended->ended_ms > d->replay_ms &&
           (d->listener == NULL || d->ended->unsent == NULL))
        drop_oldest_ended(d);
}

/* The longest ended ones go first; nobody has come back for them. */
static void keep_within_bounds(struct dresult_out *d) {
    while (d->bytes > KEPT_BYTES_MAX && d->ended != NULL && d->ended->unsent == NULL &&
           (d->ended->first == NULL || d->ended->first->taken))
        drop_oldest_ended(d);
}

/* What answers took goes back when none is left. */
static void rest(struct dresult_out *d) {
    if (d->bytes > 0 || d->dropped_bytes < TRIM_BYTES) return;
    d->dropped_bytes = 0;
    heap_trim();
}

static void on_tick(void *arg) {
    struct dresult_out *d = arg;
    uint64_t now = clock_ms();
    if (d->listener != NULL && d->beat == NULL && now - d->last_write_ms >= HEARTBEAT_AFTER_MS)
        write_small(d, DR_HEARTBEAT, "-", "");
    expire(d, now);
    rest(d);
    pump(d);
}

enum err dresult_out_create(struct dresult_out **out, struct loop *loop, struct budget *budget) {
    *out = NULL;
    struct dresult_out *d = calloc(1, sizeof(*d));
    if (d == NULL) return ERR_NO_MEMORY;
    d->loop = loop;
    d->budget = budget;
    d->ended_last = &d->ended;
    d->turn_last = &d->turn;
    d->replay_ms = DRESULT_REPLAY_MS_MAX;
    if (!entropy_get(&d->boot, sizeof(d->boot))) d->boot = clock_unix_us();
    enum err e = loop_timer_start(&d->tick, loop, TICK_MS, TICK_MS, on_tick, d);
    if (e != ERR_OK) {
        free(d);
        return e;
    }
    *out = d;
    return ERR_OK;
}

void dresult_out_reset(struct dresult_out *d) {
    while (d->ended != NULL) drop_oldest_ended(d);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct kept_req *r = d->live[i], *next; r != NULL; r = next) {
            next = r->next;
            req_free(d, r);
        }
        d->live[i] = NULL;
    }
}

void dresult_out_destroy(struct dresult_out **dp) {
    struct dresult_out *d = *dp;
    if (d == NULL) return;
    dresult_out_close_listener(d);
    loop_timer_stop(&d->tick);
    dresult_out_reset(d);
    wr_free(&d->scratch);
    free(d);
    *dp = NULL;
}

static struct kept_req **find(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    struct kept_req **at = bucket(d, req_id, strlen(req_id));
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

enum err dresult_out_open(struct dresult_out *d, const char *req_id, uint32_t epoch,
                          loop_fn *on_room, void *arg) {
    struct kept_req *r = find_or_add(d, req_id, epoch);
    if (r == NULL) return ERR_NO_MEMORY;
    if (r->spare != NULL || r->first != NULL) return ERR_CONFLICT;
    r->spare = malloc(cost_of(DRESULT_SPARE_BYTES, 0));
    if (r->spare == NULL) {
        dresult_out_forget(d, req_id, epoch);
        return ERR_NO_MEMORY;
    }
    r->on_room = on_room;
    r->arg = arg;
    return ERR_OK;
}

bool dresult_out_is_full(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    const struct kept_req *r = *find(d, req_id, epoch);
    return r != NULL && r->full;
}

static void end_req(struct dresult_out *d, struct kept_req *r) {
    struct kept_req **at = find(d, r->req_id, r->epoch);
    *at = r->next;
    r->next = NULL;
    r->ended_ms = clock_ms();
    r->on_room = NULL;
    free(r->spare);
    r->spare = NULL;
    *d->ended_last = r;
    d->ended_last = &r->next;
}

/* Drops pieces a socket has taken already, oldest first, down to what is kept for a replay. */
static void make_room(struct dresult_out *d, struct kept_req *r, size_t cost) {
    while ((r->bytes + cost > DRESULT_REPLAY_BYTES_MAX || d->bytes + cost > KEPT_BYTES_MAX) &&
           r->first != NULL && r->first->taken && r->first != r->unsent)
        drop_first(d, r);
}

static void piece_fill(struct kept_piece *k, const struct emitted *tokens, size_t n_tokens,
                       const char *body, size_t n) {
    *k = (struct kept_piece){.n_tokens = n_tokens, .body_len = n, .at_ms = clock_ms()};
    k->body = (char *)(k->tokens + n_tokens);
    if (n_tokens > 0) memcpy(k->tokens, tokens, n_tokens * sizeof(*tokens));
    if (n > 0) memcpy(k->body, body, n);
    k->body[n] = 0;
}

/* Room for a piece, counted. An end by an error always has some: the spare one, cut to its size. */
static enum err piece_new(struct dresult_out *d, struct kept_req *r, struct kept_piece **out,
                          bool always, size_t n_tokens, size_t *n) {
    size_t cost = cost_of(*n, n_tokens);
    enum err e = ERR_OK;
    *out = NULL;
    if (*n > DRESULT_PIECE_BYTES_MAX)
        e = ERR_TOO_LARGE;
    else if (!budget_take(d->budget, BUDGET_ANSWER_BYTES, cost))
        e = ERR_BUSY;
    else if ((*out = malloc(cost)) == NULL)
        e = ERR_NO_MEMORY;
    if (e == ERR_OK) return e;
    if (e == ERR_NO_MEMORY) budget_give(d->budget, BUDGET_ANSWER_BYTES, cost);
    if (!always || r->spare == NULL) return e;
    *out = r->spare;
    r->spare = NULL;
    if (*n > DRESULT_SPARE_BYTES) *n = DRESULT_SPARE_BYTES;
    return e;
}

enum err dresult_out_send(struct dresult_out *d, const char *req_id, uint32_t epoch,
                          enum dresult_kind kind, const struct emitted *tokens, size_t n_tokens,
                          const struct dresult_error *error, const char *body, size_t n) {
    struct kept_req *r = find_or_add(d, req_id, epoch);
    struct kept_piece *k;
    if (r == NULL) return ERR_NO_MEMORY;
    bool by_error = kind == DR_ERROR;
    if (by_error) n_tokens = 0; /* its frame has the status in their place */
    keep_within_bounds(d);
    make_room(d, r, cost_of(n, n_tokens));
    enum err e = piece_new(d, r, &k, by_error, n_tokens, &n);
    if (k == NULL) return e;
    piece_fill(k, tokens, n_tokens, body, n);
    k->counted = e == ERR_OK;
    k->kind = kind;
    if (error != NULL) k->error = *error;
    k->seq = r->next_seq;
    r->next_seq += dresult_n_frames(&(struct dresult_frame){.n_tokens = n_tokens, .body_len = n});
    *r->last = k;
    r->last = &k->next;
    r->bytes += cost_of(n, n_tokens);
    d->bytes += cost_of(n, n_tokens);
    r->unsent_bytes += cost_of(n, n_tokens);
    if (r->unsent == NULL) r->unsent = k;
    r->full = r->full || r->unsent_bytes > DRESULT_REPLAY_BYTES_MAX;
    turn_join(d, r);
    if (by_error || kind == DR_LAST || kind == DR_RETRY) end_req(d, r);
    pump(d);
    return ERR_OK;
}

void dresult_out_forget(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    struct kept_req **at = find(d, req_id, epoch), *r = *at;
    if (r == NULL) return;
    *at = r->next;
    req_free(d, r);
}
