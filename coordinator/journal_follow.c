/* journal_follow: one call, its frames, its reconnects. */
#include "coordinator/journal_follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/ha.h"
#include "coordinator/journal.h"
#include "coordinator/journal_feed.h"
#include "proto/dresult.h"
#include "proto/limits.h"

enum {
    LOOK_MS = 100,
    AGAIN_MS = 500,
    CONNECT_MS = 2000,
    SILENCE_MS = 5 * JOURNAL_BEAT_MS,
    ADDRESS_BYTES = 128,
    FRAME_BYTES_BESIDE = 1 << 20, /* beside body, context, answer and transcript */
};

struct journal_follow {
    struct coordinator *co;
    struct loop_timer *look;
    struct http_call *call;
    char leader[ADDRESS_BYTES]; /* whom the call is to */
    struct buf in;
    size_t taken; /* of in */
    uint64_t term, again_ms;
    bool greeted, synced;
    char said[160]; /* why it could not be followed, once for each text */
};

/* ---- frames */

static size_t frame_bytes_max(const struct coordinator *co) {
    return coord_conf_body_bytes(&co->conf) + CONTEXT_BYTES_MAX + DRESULT_PIECE_BYTES_MAX +
           2 * JOURNAL_ANSWER_BYTES_MAX + TRANSCRIPT_BYTES_MAX + FRAME_BYTES_BESIDE;
}

static enum err greet(struct journal_follow *f, const struct journal_msg *m, struct errbuf *eb) {
    if (f->greeted) return err_set(eb, ERR_BAD_FRAME, "journal: a second hello");
    if (m->term < f->term)
        return err_set(eb, ERR_CONFLICT,
                       "its term must be at least %llu, which another one had, got %llu",
                       (unsigned long long)f->term, (unsigned long long)m->term);
    f->term = m->term;
    f->greeted = true;
    journal_sweep(f->co->journal);
    return ERR_OK;
}

static enum err take(struct journal_follow *f, struct journal_msg *m, struct errbuf *eb) {
    if (m->kind == JOURNAL_HELLO) return greet(f, m, eb);
    if (!f->greeted) return err_set(eb, ERR_BAD_FRAME, "journal: no hello comes first");
    if (m->kind == JOURNAL_SYNCED && !f->synced) {
        journal_swept(f->co->journal);
        f->synced = true;
        f->said[0] = '\0';
        log_info("journal", "event=synced leader=%s term=%llu entries=%zu", f->leader,
                 (unsigned long long)f->term, journal_count(f->co->journal));
    } else if (m->kind != JOURNAL_BEAT) {
        journal_apply(f->co->journal, m, clock_ms());
    }
    return ERR_OK;
}

/* The frames that are whole. */
static enum err take_frames(struct journal_follow *f, struct errbuf *eb) {
    enum err e = ERR_OK;
    while (e == ERR_OK) {
        const char *p = f->in.data + f->taken;
        const size_t left = f->in.len - f->taken, n = journal_frame_bytes(p, left);
        struct journal_msg m;
        if (n > frame_bytes_max(f->co))
            return err_set(eb, ERR_TOO_LARGE, "journal: a frame of %zu bytes", n);
        if (n == 0 || left < n) break;
        e = journal_msg_unpack(&m, p + 4, n - 4, eb);
        if (e == ERR_OK) e = take(f, &m, eb);
        journal_msg_free(&m);
        f->taken += n;
    }
    buf_drop_taken(&f->in, &f->taken);
    return e;
}

static void say(struct journal_follow *f, const char *why) {
    if (strncmp(f->said, why, sizeof(f->said) - 1) == 0) return;
    snprintf(f->said, sizeof(f->said), "%s", why);
    log_warn("journal", "event=not_followed leader=%s why=\"%s\"", f->leader, f->said);
}

static bool on_data(void *arg, const char *p, size_t n) {
    struct journal_follow *f = arg;
    struct errbuf eb = {0};
    buf_append(&f->in, p, n);
    const enum err e = f->in.failed ? err_set(&eb, ERR_NO_MEMORY, "%s", err_text(ERR_NO_MEMORY))
                                    : take_frames(f, &eb);
    if (e != ERR_OK) say(f, eb.text);
    return e == ERR_OK;
}

/* ---- the call */

static void stop(struct journal_follow *f) {
    http_call_cancel(&f->call);
    buf_free(&f->in);
    f->taken = 0;
    f->greeted = f->synced = false;
    f->again_ms = clock_ms() + AGAIN_MS;
}

static void on_done(void *arg, const struct http_result *r) {
    struct journal_follow *f = arg;
    char why[sizeof(f->said)];
    f->call = NULL;
    if (r->err == ERR_OK && r->status == 200) {
        log_info("journal", "event=ended leader=%s", f->leader);
    } else if (r->err == ERR_OK && r->status != 503) {
        snprintf(why, sizeof(why), "status %d: %.100s", r->status, r->body);
        say(f, why);
    } else if (r->err != ERR_OK && r->err != ERR_CANCELLED) { /* a 503: it does not lead (yet) */
        say(f, r->detail != NULL ? r->detail : err_text(r->err));
    }
    stop(f);
}

static void start(struct journal_follow *f, const char *leader) {
    const struct coordinator *co = f->co;
    const bool secure = co->conf.tls[BLOCK_CONTROLLER_SERVER].enable;
    char url[ADDRESS_BYTES + 64];
    snprintf(f->leader, sizeof(f->leader), "%s", leader);
    snprintf(url, sizeof(url), "%s://%s" JOURNAL_PATH, secure ? "https" : "http", f->leader);
    const struct http_call_opts o = {.method = "GET",
                                     .url = url,
                                     .tls = secure ? co->tls.block[BLOCK_REPLICA] : NULL,
                                     .connect_ms = CONNECT_MS,
                                     .silence_ms = SILENCE_MS,
                                     .fresh_connection = true,
                                     .on_data = on_data,
                                     .on_done = on_done,
                                     .arg = f};
    const enum err e = http_client_call(co->client, &o, &f->call);
    if (e != ERR_OK) {
        say(f, err_text(e));
        f->again_ms = clock_ms() + AGAIN_MS;
    }
}

static void on_look(void *arg) {
    struct journal_follow *f = arg;
    const char *leader = coord_leads(f->co) ? "" : ha_leader_management(f->co);
    if (f->call != NULL && leader[0] != '\0' && strcmp(leader, f->leader) != 0) stop(f);
    if (f->call == NULL && leader[0] != '\0' && clock_ms() >= f->again_ms) start(f, leader);
}

bool journal_follow_is_synced(const struct journal_follow *f) {
    return f->synced;
}

void journal_follow_lead(struct journal_follow *f) {
    const uint64_t term = f->co->store != NULL ? store_term(f->co->store) : 0;
    stop(f);
    f->again_ms = 0;
    if (term > f->term) f->term = term;
    journal_orphan(f->co->journal, clock_ms());
}

enum err journal_follow_create(struct journal_follow **out, struct coordinator *co) {
    struct journal_follow *f = calloc(1, sizeof(*f));
    *out = NULL;
    if (f == NULL) return ERR_NO_MEMORY;
    f->co = co;
    const enum err e = loop_timer_start(&f->look, co->loop, LOOK_MS, LOOK_MS, on_look, f);
    if (e != ERR_OK) {
        free(f);
        return e;
    }
    *out = f;
    return ERR_OK;
}

void journal_follow_destroy(struct journal_follow **fp) {
    struct journal_follow *f = *fp;
    *fp = NULL;
    if (f == NULL) return;
    loop_timer_stop(&f->look);
    stop(f);
    free(f);
}
