/* discover: a thread that looks up names, and what it hands to the loop. The two share a round,
 * which belongs to the thread while it looks up and to the loop afterwards. */
#include "coordinator/discover.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/base/log.h"
#include "coordinator/coord_conf.h"

enum { STOP_WAIT_S = 1 };

struct answer {
    int n; /* -1: none */
    uint32_t addresses[DISCOVER_ADDRESSES_MAX];
    char why[128];
};

/* Outlives its discover when a look-up does not come back. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct loop *loop;      /* NULL: closed */
    struct discover *owner; /* of the loop thread */
    discover_look_up_fn *look_up;
    struct discover_names names;
    struct loop_task task;
    bool wanted, looking;
    int n_users; /* the thread, the discover, a task that was posted; the last one frees it */
    struct answer answers[DISCOVER_NAMES_MAX];
};

struct discover {
    struct shared *s;
    pthread_t thread;
    struct loop_timer *timer;
    discover_found_fn *found;
    void *arg;
    bool was_missing[DISCOVER_NAMES_MAX];
};

/* Ends one user's part; the lock is held, and free afterwards. */
static void leave(struct shared *s) {
    const bool last = --s->n_users == 0;
    pthread_mutex_unlock(&s->lock);
    if (last) free(s);
}

/* ---- names */

static enum err bad(struct errbuf *eb, const char *name, size_t n, const char *rule) {
    return err_set(
        eb, ERR_BAD_CONFIG,
        "pd.discover_names must hold NAME[:MANAGEMENT[:BUSINESS[:KV]]][=prefill|decode], "
        "with blanks between them: \"%.*s\" %s",
        (int)n, name, rule);
}

/* ":2026" at *p, up to end: moves *p behind it. False: it is no port. */
static bool read_port(const char **p, const char *end, uint16_t *port) {
    unsigned long v = 0;
    const char *at = *p + 1;
    const char *first = at;
    for (; at < end && *at >= '0' && *at <= '9' && v <= UINT16_MAX; at++)
        v = v * 10 + (unsigned long)(*at - '0');
    if (at == first || v < 1024 || v > UINT16_MAX) return false;
    *port = (uint16_t)v;
    *p = at;
    return true;
}

static enum err read_name(struct discover_name *out, const char *name, size_t n,
                          struct errbuf *eb) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    const char *end = name + n, *p = name;
    uint16_t *const ports[] = {&out->mgmt_port, &out->port, &out->kv_port};
    const size_t host = strspn(name, letters);
    if (host == 0 || host > n || host >= sizeof(out->host))
        return bad(eb, name, n, "has no name of at most 253 letters, digits, '-', '.' and '_'");
    memcpy(out->host, name, host);
    out->host[host] = '\0';
    p += host;
    const uint16_t mgmt_was = out->mgmt_port;
    for (size_t i = 0; p < end && *p == ':'; i++)
        if (i == 3 || !read_port(&p, end, ports[i]))
            return bad(eb, name, n, "must have up to three ports from 1024 to 65535");
    if (out->mgmt_port != mgmt_was) out->metric_port = out->mgmt_port;
    if (p < end && *p == '=') {
        const size_t k = (size_t)(end - p) - 1;
        if (k == 7 && memcmp(p + 1, "prefill", k) == 0)
            out->label = LABEL_PREFILL_PREFER;
        else if (k == 6 && memcmp(p + 1, "decode", k) == 0)
            out->label = LABEL_DECODE_PREFER;
        else
            return bad(eb, name, n, "must have the role prefill or decode");
        p = end;
    }
    return p == end ? ERR_OK : bad(eb, name, n, "has more than that");
}

enum err discover_parse(struct discover_names *out, const char *text,
                        const struct discover_name *defaults, struct errbuf *eb) {
    memset(out, 0, sizeof(*out));
    for (const char *p = text + strspn(text, " "); *p != '\0';) {
        const size_t n = strcspn(p, " ");
        if (out->n == DISCOVER_NAMES_MAX)
            return err_set(eb, ERR_BAD_CONFIG, "pd.discover_names must hold at most %d names",
                           DISCOVER_NAMES_MAX);
        out->names[out->n] = *defaults;
        const enum err e = read_name(&out->names[out->n], p, n, eb);
        if (e != ERR_OK) return e;
        out->n++;
        p += n;
        p += strspn(p, " ");
    }
    return ERR_OK;
}

int discover_look_up(const char *host, uint32_t *addresses, size_t max, char why[128]) {
    const struct addrinfo want = {.ai_family = AF_INET, .ai_socktype = 1 /* each address once */};
    struct addrinfo *all = NULL;
    int n = 0;
    const int rc = getaddrinfo(host, NULL, &want, &all);
    if (rc != 0) {
        snprintf(why, 128, "%s", rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        return -1;
    }
    for (const struct addrinfo *a = all; a != NULL; a = a->ai_next, n++) {
        const struct sockaddr_in *at = (const struct sockaddr_in *)(const void *)a->ai_addr;
        if ((size_t)n < max) addresses[n] = at->sin_addr.s_addr;
    }
    freeaddrinfo(all);
    return n;
}

/* ---- the thread */

static void on_round(void *arg);

static void *look_up_all(void *arg) {
    struct shared *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->loop != NULL && !s->wanted) pthread_cond_wait(&s->wake, &s->lock);
        if (s->loop == NULL) break;
        s->wanted = false;
        s->looking = true;
        for (size_t i = 0; i < s->names.n && s->loop != NULL; i++) {
            struct answer *a = &s->answers[i];
            pthread_mutex_unlock(&s->lock);
            a->why[0] = '\0';
            a->n = s->look_up(s->names.names[i].host, a->addresses, DISCOVER_ADDRESSES_MAX, a->why);
            pthread_mutex_lock(&s->lock);
        }
        if (s->loop == NULL) break;
        s->n_users++;
        loop_post_task(s->loop, &s->task, on_round, s);
    }
    leave(s);
    return NULL;
}

/* ---- the loop */

static void note_missing(struct discover *d, size_t i, const struct answer *a) {
    const char *host = d->s->names.names[i].host;
    const bool missing = a->n < 0;
    if (missing != d->was_missing[i]) {
        if (missing)
            log_warn("discover", "name=%s event=not_found detail=\"%s\"", host, a->why);
        else
            log_info("discover", "name=%s event=found addresses=%d", host, a->n);
    }
    d->was_missing[i] = missing;
    if (a->n > DISCOVER_ADDRESSES_MAX)
        log_warn("discover", "name=%s event=too_many addresses=%d used=%d", host, a->n,
                 DISCOVER_ADDRESSES_MAX);
}

static void on_round(void *arg) {
    struct shared *s = arg;
    struct discover *d = s->owner;
    for (size_t i = 0; d != NULL && i < s->names.n; i++) {
        const struct answer *a = &s->answers[i];
        note_missing(d, i, a);
        for (int k = 0; k < a->n && k < DISCOVER_ADDRESSES_MAX; k++) {
            char ip[INET_ADDRSTRLEN];
            const struct in_addr at = {.s_addr = a->addresses[k]};
            if (inet_ntop(AF_INET, &at, ip, sizeof(ip)) != NULL)
                d->found(d->arg, &s->names.names[i], ip);
        }
    }
    pthread_mutex_lock(&s->lock);
    s->looking = false;
    leave(s);
}

static void on_period(void *arg) {
    struct discover *d = arg;
    pthread_mutex_lock(&d->s->lock);
    if (!d->s->looking) {
        d->s->wanted = true;
        pthread_cond_signal(&d->s->wake);
    }
    pthread_mutex_unlock(&d->s->lock);
}

enum err discover_start(struct discover **out, const struct discover_opts *o) {
    struct discover *d = *out = calloc(1, sizeof(*d));
    struct shared *s = calloc(1, sizeof(*s));
    if (d == NULL || s == NULL) {
        free(d);
        free(s);
        *out = NULL;
        return ERR_NO_MEMORY;
    }
    d->s = s;
    d->found = o->found;
    d->arg = o->arg;
    s->loop = o->loop;
    s->owner = d;
    s->look_up = o->look_up;
    s->names = *o->names;
    s->n_users = 2;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    enum err e = loop_timer_start(&d->timer, o->loop, 1, o->period_ms, on_period, d);
    if (e == ERR_OK && pthread_create(&d->thread, NULL, look_up_all, s) != 0) e = ERR_NO_MEMORY;
    if (e == ERR_OK) return e;
    loop_timer_stop(&d->timer);
    free(s);
    free(d);
    *out = NULL;
    return e;
}

void discover_stop(struct discover **out) {
    struct discover *d = *out;
    struct timespec end;
    if (d == NULL) return;
    struct shared *s = d->s;
    loop_timer_stop(&d->timer);
    pthread_mutex_lock(&s->lock);
    s->loop = NULL;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += STOP_WAIT_S;
    if (pthread_timedjoin_np(d->thread, NULL, &end) != 0) pthread_detach(d->thread);
    pthread_mutex_lock(&s->lock);
    s->owner = NULL;
    leave(s);
    free(d);
    *out = NULL;
}
