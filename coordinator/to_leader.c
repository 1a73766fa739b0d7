/* to_leader: one call of the HTTP client for each exchange. */
#include "coordinator/to_leader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "common/net/loop.h"
#include "coordinator/coordinator.h"
#include "coordinator/election.h"
#include "coordinator/fwd_headers.h"
#include "coordinator/store_etcd.h"

enum {
    PATH_BYTES = 8192,
    ADDRESS_BYTES = 128,
    HEADERS_MAX = 128,
    LAST_BYTES = 64, /* of an event's id */
    AGAIN_MS = 100,
    CONNECT_MS = 2000,
    WATCH_MS = 500,     /* how often it looks whether the leader is another one */
    SILENCE_SPARE_S = 5 /* the leader's own end of a request comes first */
};

#define LAST_HEADER "Last-Event-ID"

struct passed {
    struct passed *next, **at;
    struct to_leader *t;
    struct http_x *x;
    struct http_call *call;
    char leader[ADDRESS_BYTES];
    bool begun; /* of the answer's body something is out */
    bool ours;  /* it ran here, when this one led */
    bool waits; /* for a leader */
    bool got;   /* something of the leader's answer */
    uint64_t again_ms;
    char last[LAST_BYTES];
    char type[128];
};

struct to_leader {
    struct coordinator *co;
    struct passed *first;
    struct loop_timer *watch;
    unsigned n;
};

static void passed_free(struct passed *p) {
    *p->at = p->next;
    if (p->next != NULL) p->next->at = p->at;
    p->t->n--;
    free(p);
}

static void on_gone(void *arg) {
    struct passed *p = arg;
    http_call_cancel(&p->call);
    passed_free(p);
}

/* Its leader will not end it. */
static void give_up(struct passed *p, const char *why) {
    struct http_x *x = p->x;
    struct coordinator *co = p->t->co;
    const bool begun = p->begun;
    char text[ADDRESS_BYTES + 80];
    snprintf(text, sizeof(text), "The leader (%s) was lost before it answered; ask again",
             p->leader);
    log_info("ha", "event=relay_lost leader=%s path=%s begun=%d detail=\"%.200s\"", p->leader,
             http_x_path(x), begun, why);
    http_x_on_close(x, NULL, NULL);
    http_call_cancel(&p->call);
    passed_free(p);
    if (begun) {
        http_x_abort(x);
        return;
    }
    http_x_set_header(x, "Retry-After", "1");
    coord_reply_error_code(co, x, 503, "standby", text);
}

/* ---- the answer */
static bool is_one_of(const char *name, const char *const *list) {
    while (*list != NULL && strcasecmp(name, *list) != 0) list++;
    return *list != NULL;
}

/* What is between two ends of one connection, and what this one's listener says by itself. */
static void take_header(void *arg, const char *name, const char *value) {
    static const char *const own[] = {
        "Connection", "Keep-Alive", "Content-Type", "Content-Length", "Transfer-Encoding",
        "Trailer",    "Upgrade",    "X-Request-Id", "Date",           "Server",
        "Vary",       NULL};
    struct passed *p = arg;
    if (strcasecmp(name, "Content-Type") == 0) {
        snprintf(p->type, sizeof(p->type), "%s", value);
        return;
    }
    if (!is_one_of(name, own) && strncasecmp(name, "Access-Control-", 15) != 0)
        http_x_set_header(p->x, name, value);
}

static bool on_data(void *arg, const char *bytes, size_t n) {
    struct passed *p = arg;
    p->got = true;
    if (!p->begun) {
        p->begun = true;
        http_call_headers(p->call, take_header, p);
        http_x_stream_begin(p->x, 200, p->type[0] != '\0' ? p->type : NULL);
    }
    http_x_stream_write(p->x, bytes, n);
    return true;
}

/* Whoever leads next is not ready yet. */
static bool comes_too_early(const struct passed *p, const struct http_result *r) {
    return p->ours && !p->got && (r->err != ERR_OK || r->status == 503);
}

static void on_done(void *arg, const struct http_result *r) {
    struct passed *p = arg;
    struct http_x *x = p->x;
    if (comes_too_early(p, r)) {
        p->call = NULL;
        p->waits = true;
        p->again_ms = clock_ms() + AGAIN_MS;
        return;
    }
    if (r->err == ERR_OK && r->status != 200 && p->begun) { /* it cannot go on with it */
        char why[32];
        snprintf(why, sizeof(why), "status %d", r->status);
        p->call = NULL;
        give_up(p, why);
        return;
    }
    if (r->err != ERR_OK) {
        p->call = NULL;
        give_up(p, r->detail != NULL ? r->detail : err_text(r->err));
        return;
    }
    const bool begun = p->begun;
    if (!begun) http_call_headers(p->call, take_header, p);
    http_x_on_close(x, NULL, NULL);
    if (begun)
        http_x_stream_end(x);
    else
        http_x_reply(x, r->status, p->type[0] != '\0' ? p->type : NULL, r->body, r->body_len);
    passed_free(p);
}

/* ---- the request */
/* What etcd says is no part of a URL before it looks like one. */
static bool is_address(const char *s) {
    const size_t n = strlen(s);
    return n > 0 && n < ADDRESS_BYTES && strspn(s, "0123456789abcdefABCDEF.:[]") == n &&
           strchr(s, ':') != NULL;
}

static char *line_of(const char *name, const char *value) {
    const size_t n = strlen(name) + strlen(value) + 3;
    char *s = malloc(n);
    if (s != NULL) snprintf(s, n, "%s: %s", name, value);
    return s;
}

/* All that the client sent but what was between it and this one. last: the event that it has by
 * now;
 * "": as it says. False: too many, or no memory. */
static bool read_headers(struct http_x *x, const char *last, char *lines[HEADERS_MAX + 1]) {
    static const char *const own[] = {"Connection",
                                      "Keep-Alive",
                                      "Proxy-Connection",
                                      "Host",
                                      "Content-Length",
                                      "TE",
                                      "Transfer-Encoding",
                                      "Trailer",
                                      "Upgrade",
                                      "Expect",
                                      "Origin",
                                      "X-Request-Id",
                                      "HTTP2-Settings",
                                      "Accept-Encoding",
                                      NULL};
    size_t n = 0;
    bool whole = true;
    for (size_t i = 0; whole && i < http_x_n_headers(x); i++) {
        const char *name, *value;
        http_x_header_at(x, i, &name, &value);
        if (name[0] == ':' || value[0] == '\0' || is_one_of(name, own)) continue;
        if (last[0] != '\0' && strcasecmp(name, LAST_HEADER) == 0) continue;
        whole = n < HEADERS_MAX - 3 && (lines[n] = line_of(name, value)) != NULL && ++n > 0;
    }
    whole = whole && (lines[n] = line_of("X-Request-Id", http_x_request_id(x))) != NULL && ++n > 0;
    whole = whole && (lines[n] = line_of(RELAYED_HEADER, "1")) != NULL && ++n > 0;
    if (last[0] != '\0')
        whole = whole && (lines[n] = line_of(LAST_HEADER, last)) != NULL && ++n > 0;
    lines[n] = NULL;
    return whole;
}

static bool send_on(struct passed *p) {
    const struct coord_conf *c = &p->t->co->conf;
    char path[PATH_BYTES], url[PATH_BYTES + ADDRESS_BYTES + 8], *lines[HEADERS_MAX + 1];
    struct tls *tls =
        c->tls[BLOCK_REQUEST_SERVER].enable ? p->t->co->tls.block[BLOCK_LEADER] : NULL;
    size_t n;
    const char *body = http_x_body(p->x, &n), *query = http_x_query(p->x);
    const bool head = strcmp(http_x_method(p->x), "HEAD") == 0;
    bool ok = fwd_path_put(path, sizeof(path), http_x_path(p->x)) &&
              snprintf(url, sizeof(url), "%s://%s%s%s%s", tls != NULL ? "https" : "http", p->leader,
                       path, query[0] != '\0' ? "?" : "", query) < (int)sizeof(url);
    ok = read_headers(p->x, p->last, lines) && ok;
    const struct http_call_opts o = {
        .method = head ? "GET" : http_x_method(p->x),
        .url = url,
        .tls = tls,
        .headers = (const char *const *)lines,
        .body = body,
        .body_len = n,
        .body_lent = true, /* x has it until it is answered */
        .connect_ms = CONNECT_MS,
        .silence_ms =
            c->infer_timeout_s > 0 ? (unsigned)(c->infer_timeout_s + SILENCE_SPARE_S) * 1000 : 0,
        .on_data = on_data,
        .on_done = on_done,
        .arg = p};
    ok = ok && http_client_call(p->t->co->client, &o, &p->call) == ERR_OK;
    for (size_t i = 0; lines[i] != NULL; i++) free(lines[i]);
    return ok;
}

static struct passed *add(struct to_leader *t, struct http_x *x) {
    struct passed *p = calloc(1, sizeof(*p));
    if (p == NULL) return NULL;
    p->t = t;
    p->x = x;
    p->next = t->first;
    p->at = &t->first;
    if (p->next != NULL) p->next->at = &p->next;
    t->first = p;
    t->n++;
    return p;
}

bool to_leader_pass(struct to_leader *t, struct http_x *x, const char *leader) {
    if (!to_leader_may_park(t, x) || !is_address(leader)) return false;
    struct passed *p = add(t, x);
    if (p == NULL) return false;
    snprintf(p->leader, sizeof(p->leader), "%s", leader);
    if (!send_on(p)) {
        passed_free(p);
        return false;
    }
    http_x_on_close(x, on_gone, p);
    return true;
}

/* ---- what ran here */
bool to_leader_may_park(const struct to_leader *t, struct http_x *x) {
    return t != NULL && !http_x_is_grpc(x) && http_x_body_ended(x) &&
           http_x_header(x, RELAYED_HEADER) == NULL;
}

bool to_leader_park(struct to_leader *t, struct http_x *x, const char *last, bool begun) {
    struct passed *p = to_leader_may_park(t, x) && strlen(last) < LAST_BYTES ? add(t, x) : NULL;
    if (p == NULL) return false;
    p->ours = p->waits = true;
    p->begun = begun;
    snprintf(p->last, sizeof(p->last), "%s", last);
    http_x_on_close(x, on_gone, p);
    return true;
}

void to_leader_go(struct to_leader *t, const char *leader) {
    struct passed *next;
    if (t == NULL || !is_address(leader)) return;
    for (struct passed *p = t->first; p != NULL; p = next) {
        next = p->next;
        if (!p->waits || clock_ms() < p->again_ms) continue;
        snprintf(p->leader, sizeof(p->leader), "%s", leader);
        p->waits = false;
        if (send_on(p)) continue;
        p->call = NULL;
        give_up(p, "it cannot be passed on");
    }
}

/* ---- life */
/* One that hangs keeps its connections: when another leads, nothing more comes of them. */
static void on_watch(void *arg) {
    struct to_leader *t = arg;
    const char *leader = election_leader(store_etcd_election(t->co->store));
    struct passed *next;
    for (struct passed *p = t->first; p != NULL && leader[0] != '\0'; p = next) {
        next = p->next;
        if (!p->waits && strcmp(p->leader, leader) != 0) give_up(p, "another one leads");
    }
}

enum err to_leader_open(struct to_leader **out, struct coordinator *co) {
    struct to_leader *t = calloc(1, sizeof(*t));
    if (t == NULL) return ERR_NO_MEMORY;
    t->co = co;
    const enum err e = loop_timer_start(&t->watch, co->loop, WATCH_MS, WATCH_MS, on_watch, t);
    if (e != ERR_OK) {
        free(t);
        return e;
    }
    *out = t;
    return ERR_OK;
}

void to_leader_close(struct to_leader **t) {
    if (*t == NULL) return;
    loop_timer_stop(&(*t)->watch);
    free(*t);
    *t = NULL;
}

unsigned to_leader_count(const struct to_leader *t) {
    return t != NULL ? t->n : 0;
}
