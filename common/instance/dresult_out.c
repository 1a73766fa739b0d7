/* dresult_out: the listener, the numbering of frames per request, and what is kept for a replay. */
#include "common/instance/dresult_out.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "proto/limits.h"

enum { HEARTBEAT_AFTER_MS = 5000, TICK_MS = 1000 };

struct kept_frame {
    struct kept_frame *next;
    uint64_t seq, at_ms;
    bool taken; /* a socket has it */
    enum dresult_kind kind;
    int status;
    size_t n_ids, body_len;
    int32_t *ids;
    char *body;
};

struct kept_req {
    struct kept_req *next;
    char *req_id;
    uint32_t epoch;
    uint64_t next_seq, ended_ms;
    size_t bytes;
    struct kept_frame *first, **last;
};

struct dresult_out {
    struct loop *loop;
    struct loop_timer *tick;
    struct http_x *listener;
    int version;
    uint64_t last_write_ms;
    struct kept_req *live;  /* short: bounded by the slots, so a walk finds a request */
    struct kept_req *ended; /* kept for a replay only */
    struct wr scratch;
};

static void frame_free(struct kept_frame *f) {
    free(f->ids);
    free(f->body);
    free(f);
}

static void req_free(struct kept_req *r) {
    for (struct kept_frame *f = r->first, *next; f != NULL; f = next) {
        next = f->next;
        frame_free(f);
    }
    free(r->req_id);
    free(r);
}

static void list_free(struct kept_req *r) {
    for (struct kept_req *next; r != NULL; r = next) {
        next = r->next;
        req_free(r);
    }
}

/* Writes one frame to the listener. */
static void write_frame(struct dresult_out *d, const struct dresult_frame *f) {
    wr_clear(&d->scratch);
    if (dresult_pack(&d->scratch, d->version, f) != ERR_OK) {
        log_error("dresult", "event=frame_not_packed req=%s", f->req_id);
        return;
    }
    http_x_stream_write(d->listener, d->scratch.data, d->scratch.len);
    d->last_write_ms = clock_ms();
}

static void write_kept(struct dresult_out *d, const struct kept_req *r, struct kept_frame *k) {
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

static void drop_first(struct kept_req *r) {
    struct kept_frame *f = r->first;
    r->first = f->next;
    if (r->first == NULL) r->last = &r->first;
    r->bytes -= f->body_len + sizeof(*f) + f->n_ids * sizeof(*f->ids);
    frame_free(f);
}

/* Drops frames that are older than the replay time and were taken by a socket, and requests that
 * ended that long ago. */
static void expire(struct dresult_out *d, uint64_t now) {
    for (struct kept_req *r = d->live; r != NULL; r = r->next)
        while (r->first != NULL && r->first->taken && now - r->first->at_ms > DRESULT_REPLAY_MS_MAX)
            drop_first(r);
    for (struct kept_req **at = &d->ended; *at != NULL;) {
        struct kept_req *r = *at;
        if (now - r->ended_ms > DRESULT_REPLAY_MS_MAX) {
            *at = r->next;
            req_free(r);
        } else {
            at = &r->next;
        }
    }
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
    list_free(d->live);
    list_free(d->ended);
    wr_free(&d->scratch);
    free(d);
    *dp = NULL;
}

static void on_listener_gone(void *arg) {
    struct dresult_out *d = arg;
    log_warn("dresult", "event=listener_lost");
    d->listener = NULL;
}

void dresult_out_close_listener(struct dresult_out *d) {
    if (d->listener == NULL) return;
    struct http_x *x = d->listener;
    d->listener = NULL;
    http_x_on_close(x, NULL, NULL);
    http_x_stream_end(x);
}

bool dresult_out_has_listener(const struct dresult_out *d) {
    return d->listener != NULL;
}

static void replay(struct dresult_out *d, struct kept_req *r) {
    for (; r != NULL; r = r->next)
        for (struct kept_frame *f = r->first; f != NULL; f = f->next)
            if (d->version == 2 || !f->taken) write_kept(d, r, f);
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
    replay(d, d->ended);
    replay(d, d->live);
}

static struct kept_req *find(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    for (struct kept_req *r = d->live; r != NULL; r = r->next)
        if (r->epoch == epoch && strcmp(r->req_id, req_id) == 0) return r;
    struct kept_req *r = calloc(1, sizeof(*r));
    if (r == NULL || (r->req_id = strdup(req_id)) == NULL) {
        free(r);
        return NULL;
    }
    r->epoch = epoch;
    r->last = &r->first;
    r->next = d->live;
    d->live = r;
    return r;
}

static void end_req(struct dresult_out *d, struct kept_req *r) {
    struct kept_req **at = &d->live;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    r->next = d->ended;
    d->ended = r;
    r->ended_ms = clock_ms();
}

/* Makes room by dropping frames a socket has taken already, oldest first. */
static bool make_room(struct kept_req *r, size_t cost) {
    while (r->bytes + cost > DRESULT_REPLAY_BYTES_MAX && r->first != NULL && r->first->taken)
        drop_first(r);
    return r->bytes + cost <= DRESULT_REPLAY_BYTES_MAX || r->first == NULL;
}

enum err dresult_out_send(struct dresult_out *d, const char *req_id, uint32_t epoch,
                          enum dresult_kind kind, const int32_t *ids, size_t n_ids, int status,
                          const char *body, size_t n) {
    struct kept_req *r = find(d, req_id, epoch);
    if (r == NULL) return ERR_NO_MEMORY;
    size_t cost = n + sizeof(struct kept_frame) + n_ids * sizeof(*ids);
    if (!make_room(r, cost) && d->listener == NULL) return ERR_TOO_LARGE;
    struct kept_frame *f = calloc(1, sizeof(*f));
    if (f == NULL) return ERR_NO_MEMORY;
    f->body = malloc(n + 1);
    f->ids = n_ids > 0 ? malloc(n_ids * sizeof(*ids)) : NULL;
    if (f->body == NULL || (n_ids > 0 && f->ids == NULL)) {
        frame_free(f);
        return ERR_NO_MEMORY;
    }
    memcpy(f->body, body, n);
    f->body[n] = 0;
    if (n_ids > 0) memcpy(f->ids, ids, n_ids * sizeof(*ids));
    f->n_ids = n_ids;
    f->body_len = n;
    f->kind = kind;
    f->status = status;
    f->seq = r->next_seq++;
    f->at_ms = clock_ms();
    *r->last = f;
    r->last = &f->next;
    r->bytes += cost;
    if (d->listener != NULL) write_kept(d, r, f);
    if (kind == DR_LAST || kind == DR_ERROR || kind == DR_RETRY) end_req(d, r);
    return ERR_OK;
}

void dresult_out_forget(struct dresult_out *d, const char *req_id, uint32_t epoch) {
    for (struct kept_req **at = &d->live; *at != NULL; at = &(*at)->next) {
        struct kept_req *r = *at;
        if (r->epoch != epoch || strcmp(r->req_id, req_id) != 0) continue;
        *at = r->next;
        req_free(r);
        return;
    }
}
