/* journal_feed: one exchange for each of those that stand by. */
#include "coordinator/journal_feed.h"

#include <stdlib.h>
#include "common/base/log.h"
#include "common/net/http_server.h"
#include "common/net/loop.h"
#include "proto/wire.h"

enum {
    AHEAD_BYTES = 1 << 20, /* of what there was: more of it waits until this is out */
    /* Of what happens: who has more to read is cut off. All of them together stay far below what
     * connections may let wait (limits.buffersMiB), so that no client is refused for a standby. */
    BEHIND_BYTES = 8 << 20,
};

struct feed {
    struct feed *next;
    struct journal_feed *of;
    struct http_x *x;
    struct journal *j;
    uint64_t told; /* entries up to this serial */
    bool synced;
};

struct journal_feed {
    struct feed *first;
    size_t n;
    struct loop_timer *beat;
};

static void feed_free(struct feed *f) {
    struct feed **at = &f->of->first;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    f->of->n--;
    free(f);
}

static void on_gone(void *arg) {
    struct feed *f = arg;
    log_info("journal", "event=feed_gone peer=%s", http_x_peer(f->x));
    feed_free(f);
}

static void cut_off(struct feed *f, const char *why) {
    struct http_x *x = f->x;
    log_warn("journal", "event=feed_cut_off peer=%s why=\"%s\"", http_x_peer(x), why);
    http_x_on_close(x, NULL, NULL);
    feed_free(f);
    http_x_abort(x);
}

/* False: f is gone. */
static bool put(struct feed *f, const struct journal_msg *m) {
    struct wr w = WR_INIT;
    const bool behind = http_x_pending(f->x) > BEHIND_BYTES;
    if (!behind) journal_msg_pack(&w, m);
    const bool good = !behind && !w.failed;
    if (good)
        http_x_stream_write(f->x, w.data, w.len);
    else
        cut_off(f, behind ? "it reads too slowly" : err_text(ERR_NO_MEMORY));
    wr_free(&w);
    return good;
}

static void fill(void *arg) {
    struct feed *f = arg;
    struct journal_msg m;
    for (const struct journal_entry *e = journal_above(f->j, f->told); e != NULL; e = e->next) {
        if (http_x_pending(f->x) > AHEAD_BYTES) {
            http_x_on_room(f->x, AHEAD_BYTES / 2, fill, f);
            return;
        }
        f->told = e->serial;
        journal_tell(&m, e);
        if (!put(f, &m)) return;
    }
    f->told = journal_last_serial(f->j);
    if (f->synced) return;
    f->synced = true;
    (void)put(f, &(struct journal_msg){.kind = JOURNAL_SYNCED});
}

void journal_feed_change(void *feed, const struct journal_entry *e, const struct journal_msg *m) {
    struct journal_feed *all = feed;
    for (struct feed *f = all->first, *next; f != NULL; f = next) {
        next = f->next;
        if (f->synced && f->told < e->serial)
            f->told = e->serial; /* a new one */
        else if (f->told < e->serial)
            continue; /* its turn comes */
        (void)put(f, m);
    }
}

static void on_beat(void *arg) {
    struct journal_feed *all = arg;
    for (struct feed *f = all->first, *next; f != NULL; f = next) {
        next = f->next;
        (void)put(f, &(struct journal_msg){.kind = JOURNAL_BEAT});
    }
}

bool journal_feed_serve(struct journal_feed *all, struct http_x *x, struct journal *j,
                        uint64_t term) {
    struct feed *f = all->n < JOURNAL_FEEDS_MAX ? calloc(1, sizeof(*f)) : NULL;
    if (f == NULL) return false;
    *f = (struct feed){.next = all->first, .of = all, .x = x, .j = j};
    all->first = f;
    all->n++;
    log_info("journal", "event=feed peer=%s entries=%zu", http_x_peer(x), journal_count(j));
    http_x_on_close(x, on_gone, f);
    http_x_stream_paced(x);
    http_x_stream_begin(x, 200, "application/octet-stream");
    if (put(f, &(struct journal_msg){.kind = JOURNAL_HELLO, .term = term})) fill(f);
    return true;
}

void journal_feed_end(struct journal_feed *all) {
    while (all != NULL && all->first != NULL) {
        struct http_x *x = all->first->x;
        http_x_on_close(x, NULL, NULL);
        feed_free(all->first);
        http_x_stream_end(x);
    }
}

size_t journal_feed_count(const struct journal_feed *all, size_t *n_synced) {
    *n_synced = 0;
    for (const struct feed *f = all->first; f != NULL; f = f->next) *n_synced += f->synced;
    return all->n;
}

size_t journal_feed_pending(const struct journal_feed *all) {
    size_t most = 0;
    for (const struct feed *f = all->first; f != NULL; f = f->next)
        if (f->synced && http_x_pending(f->x) > most) most = http_x_pending(f->x);
    return most;
}

enum err journal_feed_create(struct journal_feed **out, struct loop *loop) {
    struct journal_feed *f = calloc(1, sizeof(*f));
    *out = NULL;
    if (f == NULL) return ERR_NO_MEMORY;
    const enum err e =
        loop_timer_start(&f->beat, loop, JOURNAL_BEAT_MS, JOURNAL_BEAT_MS, on_beat, f);
    if (e != ERR_OK) {
        free(f);
        return e;
    }
    *out = f;
    return ERR_OK;
}

void journal_feed_destroy(struct journal_feed **fp) {
    struct journal_feed *f = *fp;
    *fp = NULL;
    if (f == NULL) return;
    loop_timer_stop(&f->beat);
    free(f);
}
