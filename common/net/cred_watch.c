/* cred_watch: a thread, a list of blocks, and the stamps of their files. */
#include "common/net/cred_watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

enum {
    FILES_MAX = 3 + 3 * TLS_FILES_MAX,
    NAME_BYTES = 64,
    DAY_S = 86400,
    STAGE_DAILY = 2, /* 30 days ahead */
    STAGE_LAST = 4,  /* 1 day ahead */
};

/* What tells one state of a file from another. */
struct stamp {
    bool there;
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed, modified;
};

struct block {
    const char *plane;
    struct tls *tls;       /* one of these two */
    struct api_keys *keys; /* borrowed */
    struct stamp loaded[FILES_MAX], seen[FILES_MAX];
    atomic_uint n_ok, n_failed;
    struct metric *ok, *failed;
};

struct cred_watch {
    const char *who;
    struct block blocks[CRED_BLOCKS_MAX];
    size_t n_blocks;
    struct cred_notice notice;
    unsigned look_ms;
    char names[2][NAME_BYTES];
    struct metric_def defs[2];
    struct metric_family *ends;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t wake;   /* on the monotonic clock */
    bool stop, now;
};

/* ---- files */
static size_t paths_of(const struct block *b, const char *paths[FILES_MAX]) {
    size_t n = 0;
    if (b->keys != NULL) {
        paths[n++] = api_keys_path(b->keys);
        return n;
    }
    const struct tls_conf *c = tls_settings(b->tls);
    const char *const single[] = {c->cert, c->key, c->passwd};
    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
        if (single[i][0] != 0) paths[n++] = single[i];
    for (int i = 0; i < TLS_FILES_MAX; i++) {
        if (c->ca[i][0] != 0) paths[n++] = c->ca[i];
        if (c->ca_limited[i][0] != 0) paths[n++] = c->ca_limited[i];
        if (c->crl[i][0] != 0) paths[n++] = c->crl[i];
    }
    return n;
}

static void take_stamps(const struct block *b, struct stamp out[FILES_MAX]) {
    const char *paths[FILES_MAX];
    struct stat st;
    size_t n = paths_of(b, paths);
    memset(out, 0, FILES_MAX * sizeof(out[0])); /* padding too: they are compared as bytes */
    for (size_t i = 0; i < n; i++) {
        if (stat(paths[i], &st) != 0) continue;
        out[i].there = true;
        out[i].dev = st.st_dev;
        out[i].ino = st.st_ino;
        out[i].size = st.st_size;
        out[i].changed.tv_sec = st.st_ctim.tv_sec;
        out[i].changed.tv_nsec = st.st_ctim.tv_nsec;
        out[i].modified.tv_sec = st.st_mtim.tv_sec;
        out[i].modified.tv_nsec = st.st_mtim.tv_nsec;
    }
}

static bool same(const struct stamp a[FILES_MAX], const struct stamp b[FILES_MAX]) {
    return memcmp(a, b, FILES_MAX * sizeof(a[0])) == 0;
}

static void reload(struct block *b) {
    struct errbuf eb = {0};
    enum err e;
    if (b->keys != NULL) {
        e = api_keys_reload(b->keys);
    } else if ((e = tls_reload(b->tls, &eb)) == ERR_OK) {
        log_info("tls", "event=reloaded plane=%s", b->plane);
    } else {
        log_error("tls", "event=reload_failed plane=%s, what was read before stays in force: %s",
                  b->plane, eb.text);
    }
    atomic_fetch_add(e == ERR_OK ? &b->n_ok : &b->n_failed, 1);
}

/* A file that is just being written has another stamp at the next look. What was found wrong is not
 * read again before it changes. */
static void look(struct block *b, bool now) {
    struct stamp s[FILES_MAX];
    take_stamps(b, s);
    bool quiet = same(s, b->seen), changed = !same(s, b->loaded);
    memcpy(b->seen, s, sizeof(s));
    if (!now && !(changed && quiet)) return;
    memcpy(b->loaded, s, sizeof(s));
    reload(b);
}

/* ---- what ends */
static int stage_of(int64_t left_s) {
    static const int days[] = {90, 30, 7, 1, 0};
    int stage = 0;
    for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++)
        if (left_s <= (int64_t)days[i] * DAY_S) stage = (int)i + 1;
    return stage;
}

bool cred_notice_due(struct cred_notice *n, int64_t now_unix_s, int64_t end_unix_s) {
    int stage = stage_of(end_unix_s - now_unix_s);
    bool due =
        stage > n->stage || (stage >= STAGE_DAILY && now_unix_s - n->said_unix_s >= (int64_t)DAY_S);
    n->stage = stage; /* a renewed one begins again */
    if (due) n->said_unix_s = now_unix_s;
    return due;
}

/* One line for all of them: whoever renews one reads the series of the others. */
static void say_what_ends(struct cred_watch *w, int64_t now) {
    struct tls_expiry ends[TLS_EXPIRIES_MAX], first = {NULL, INT64_MAX};
    const char *plane = "";
    size_t n_soon = 0;
    for (size_t i = 0; i < w->n_blocks; i++) {
        if (w->blocks[i].tls == NULL) continue;
        size_t n = tls_expiries(w->blocks[i].tls, ends);
        for (size_t k = 0; k < n; k++) {
            n_soon += stage_of(ends[k].unix_s - now) > 0;
            if (ends[k].unix_s >= first.unix_s) continue;
            first = ends[k];
            plane = w->blocks[i].plane;
        }
    }
    if (first.path == NULL || !cred_notice_due(&w->notice, now, first.unix_s)) return;
    char end[32] = "";
    time_t t = (time_t)first.unix_s;
    struct tm tm;
    if (gmtime_r(&t, &tm) != NULL) strftime(end, sizeof(end), "%Y-%m-%dT%H:%M:%SZ", &tm);
    long long days = (long long)(first.unix_s - now) / DAY_S;
    if (w->notice.stage >= STAGE_LAST)
        log_error("tls", "event=expires_soon plane=%s file=%s not_after=%s days=%lld files=%zu",
                  plane, first.path, end, days, n_soon);
    else
        log_warn("tls", "event=expires_soon plane=%s file=%s not_after=%s days=%lld files=%zu",
                 plane, first.path, end, days, n_soon);
}

/* ---- the thread */
static struct timespec after_ms(unsigned ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static void *thread_main(void *arg) {
    struct cred_watch *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        bool now = w->now;
        w->now = false;
        pthread_mutex_unlock(&w->mutex);
        for (size_t i = 0; i < w->n_blocks; i++) look(&w->blocks[i], now);
        say_what_ends(w, (int64_t)(clock_unix_us() / 1000000));
        struct timespec until = after_ms(w->look_ms);
        pthread_mutex_lock(&w->mutex);
        while (!w->stop && !w->now)
            if (pthread_cond_timedwait(&w->wake, &w->mutex, &until) != 0) break;
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* ---- life */
struct cred_watch *cred_watch_create(const char *who) {
    struct cred_watch *w = calloc(1, sizeof(*w));
    pthread_condattr_t attr;
    if (w == NULL) return NULL;
    w->who = who;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    return w;
}

static struct block *add(struct cred_watch *w, const char *plane) {
    if (w->n_blocks == CRED_BLOCKS_MAX) return NULL;
    struct block *b = &w->blocks[w->n_blocks++];
    b->plane = plane;
    return b;
}

static void begin(struct block *b) {
    take_stamps(b, b->loaded);
    memcpy(b->seen, b->loaded, sizeof(b->seen));
}

void cred_watch_tls(struct cred_watch *w, const char *plane, struct tls *t) {
    if (t == NULL) return;
    for (size_t i = 0; i < w->n_blocks; i++)
        if (w->blocks[i].tls == t) return;
    struct block *b = add(w, plane);
    if (b == NULL) return;
    b->tls = tls_ref(t);
    begin(b);
}

void cred_watch_keys(struct cred_watch *w, struct api_keys *k) {
    struct block *b = k != NULL ? add(w, "api_keys") : NULL;
    if (b == NULL) return;
    b->keys = k;
    begin(b);
}

enum err cred_watch_start(struct cred_watch *w, unsigned look_ms) {
    w->look_ms = look_ms;
    if (w->n_blocks == 0) return ERR_OK;
    if (pthread_create(&w->thread, NULL, thread_main, w) != 0) return ERR_NO_MEMORY;
    w->started = true;
    return ERR_OK;
}

void cred_watch_now(struct cred_watch *w) {
    if (w == NULL) return;
    if (w->n_blocks == 0) log_info("keys", "event=nothing_to_reload");
    pthread_mutex_lock(&w->mutex);
    w->now = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

void cred_watch_destroy(struct cred_watch **wp) {
    struct cred_watch *w = *wp;
    *wp = NULL;
    if (w == NULL) return;
    if (w->started) {
        pthread_mutex_lock(&w->mutex);
        w->stop = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
    }
    for (size_t i = 0; i < w->n_blocks; i++) tls_close(&w->blocks[i].tls);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->wake);
    free(w);
}

/* ---- metrics */
enum err cred_watch_metrics(struct cred_watch *w, struct metrics *m) {
    static const struct metric_def defs[2] = {
        {.name = "certificate_not_after_seconds",
         .help = "Unix time at which a file's first certificate ends, or its CRL wants a next one.",
         .kind = METRIC_GAUGE,
         .labels = {"plane", "file"}},
        {.name = "credential_reloads_total",
         .help = "Times that certificates, or API keys, were read again.",
         .labels = {"plane", "result"}},
    };
    struct metric_family *f[2];
    if (w->n_blocks == 0) return ERR_OK;
    for (int i = 0; i < 2; i++) {
        snprintf(w->names[i], NAME_BYTES, "%s_%s", w->who, defs[i].name);
        w->defs[i] = defs[i];
        w->defs[i].name = w->names[i];
        if ((f[i] = metrics_family(m, &w->defs[i])) == NULL) return ERR_NO_MEMORY;
    }
    w->ends = f[0];
    for (size_t i = 0; i < w->n_blocks; i++) {
        struct block *b = &w->blocks[i];
        b->ok = metric_of(f[1], (const char *const[]){b->plane, "ok", NULL});
        b->failed = metric_of(f[1], (const char *const[]){b->plane, "failed", NULL});
        if (b->ok == NULL || b->failed == NULL) return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

void cred_watch_metrics_read(struct cred_watch *w) {
    struct tls_expiry ends[TLS_EXPIRIES_MAX];
    if (w == NULL || w->ends == NULL) return;
    metric_clear(w->ends);
    for (size_t i = 0; i < w->n_blocks; i++) {
        struct block *b = &w->blocks[i];
        metric_add(b->ok, (double)atomic_load(&b->n_ok) - metric_value(b->ok));
        metric_add(b->failed, (double)atomic_load(&b->n_failed) - metric_value(b->failed));
        size_t n = b->tls != NULL ? tls_expiries(b->tls, ends) : 0;
        for (size_t k = 0; k < n; k++)
            metric_set(metric_of(w->ends, (const char *const[]){b->plane, ends[k].path, NULL}),
                       (double)ends[k].unix_s);
    }
}
