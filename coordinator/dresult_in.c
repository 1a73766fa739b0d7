/* dresult_in: one stream, its parser, its reconnects, its silence. */
#include "coordinator/dresult_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/silence.h"
#include "coordinator/coordinator.h"
#include "coordinator/ha.h"
#include "coordinator/relay.h"
#include "proto/dresult.h"
#include "proto/limits.h"

enum {
    SILENCE_MS = 30000, /* of an instance that is not watched */
    BACKOFF_MS = 100,
    BACKOFF_MAX_MS = 2000,
    MISSES_MAX = 3,
    STEP_MS_MAX = 200, /* of silence, that a tick adds */
    CONNECT_MS_MIN = 1000,
    ANEW_MAX = 2, /* times MISSES_MAX heartbeats that a stream has when it is opened anew */
};

struct dresult_in {
    struct coordinator *co;
    uint32_t inst_id;
    struct http_call *call;
    struct loop_alarm retry;
    struct dresult_parser *parser; /* made at the first byte, which tells the version */
    bool replaced;                 /* another coordinator took the stream */
    unsigned n_failures;           /* connects without a byte, in a row */
    unsigned heartbeat_ms;         /* 0: it is not watched */
    uint64_t boot;                 /* number of the process that is watched */
    bool other_process;            /* another one has answered */
    bool asked;                    /* for its status, because of its silence */
    struct silence silence;        /* without a sign of life */
    struct silence stream_silence; /* without one on the stream */
};

/* The only writer of what the registry knows of the stream. */
static void set_stream(struct dresult_in *d, enum inst_stream stream) {
    static const char *const word[] = {
        [STREAM_DOWN] = "down", [STREAM_UP] = "up", [STREAM_NONE] = "none_in_its_role"};
    struct inst *in = registry_find(&d->co->reg, d->inst_id);
    if (in == NULL || in->stream == stream) return;
    log_info("dresult", "id=%u event=%s", d->inst_id, word[stream]);
    in->stream = stream;
}

void dresult_in_alive(struct dresult_in *d) {
    if (d == NULL) return;
    silence_end(&d->silence);
    d->asked = false;
}

/* ---- frames */

static void on_hello(struct dresult_in *d, const char *text) {
    char *end;
    unsigned long long boot = strtoull(text, &end, 16);
    unsigned long ms = *end == ' ' ? strtoul(end, NULL, 10) : 0;
    if (ms < DRESULT_HEARTBEAT_MS_MIN || ms > DRESULT_HEARTBEAT_MS_MAX) return;
    d->other_process = d->heartbeat_ms > 0 && d->boot != boot;
    d->boot = boot;
    d->heartbeat_ms = (unsigned)ms;
}

/* A heartbeat of ours may carry a word. */
static void on_heartbeat(struct dresult_in *d, const struct dresult_frame *f) {
    char text[80];
    size_t n = f->body_len < sizeof(text) - 1 ? f->body_len : sizeof(text) - 1;
    if (n == 0) return;
    memcpy(text, f->body, n);
    text[n] = 0;
    if (strncmp(text, DRESULT_HELLO, strlen(DRESULT_HELLO)) == 0) {
        on_hello(d, text + strlen(DRESULT_HELLO));
    } else if (strncmp(text, DRESULT_NOTE, strlen(DRESULT_NOTE)) == 0) {
        log_debug("dresult", "id=%u event=note why=\"%s\"", d->inst_id, text);
        controller_look_now(d->co, d->inst_id);
    }
}

static enum err on_frame(void *arg, const struct dresult_frame *f) {
    struct dresult_in *d = arg;
    if (f->kind == DR_CLOSE) {
        log_warn("dresult", "id=%u event=replaced", d->inst_id);
        d->replaced = true;
    } else if (f->kind == DR_HEARTBEAT) {
        on_heartbeat(d, f);
    } else {
        relay_on_frame(d->co->relays, d->inst_id, f);
    }
    return d->other_process ? ERR_PEER_LOST : ERR_OK;
}

static void on_ahead(void *arg, const char *id, size_t id_len) {
    const struct dresult_in *d = arg;
    relay_expect(d->co->relays, id, id_len);
}

static bool on_data(void *arg, const char *p, size_t n) {
    struct dresult_in *d = arg;
    if (n == 0) return true;
    dresult_in_alive(d);
    silence_end(&d->stream_silence);
    if (d->parser ==
        NULL) { /* version 1 begins with "reqId:" or "ka:", version 2 with a hex digit */
        int version = p[0] == 'r' || p[0] == 'k' ? 1 : 2;
        size_t most = version == 1 ? DRESULT_PIECE_BYTES_MAX : DRESULT_FRAME_BYTES_MAX;
        if (dresult_parser_create(&d->parser, version, most) != ERR_OK) return false;
        dresult_parser_ahead(d->parser, on_ahead, d);
    }
    enum err e = dresult_parser_feed(d->parser, p, n, on_frame, d);
    if (e == ERR_OK) {
        d->n_failures = 0;
    } else if (!d->other_process) {
        log_error("dresult", "id=%u event=bad_frame err=%s", d->inst_id, err_name(e));
    }
    return e == ERR_OK;
}

static void on_headers(void *arg, int status) {
    if (status == 200) set_stream(arg, STREAM_UP);
}

/* ---- connections */

static void connect_now(void *arg);

static void connect_after(struct dresult_in *d, unsigned ms) {
    loop_alarm_set(d->co->loop, &d->retry, ms, connect_now, d);
}

/* True: it stood. */
static bool stream_ended(struct dresult_in *d) {
    const struct inst *in = registry_find(&d->co->reg, d->inst_id);
    bool was_up = in != NULL && in->stream == STREAM_UP;
    d->call = NULL;
    dresult_parser_destroy(&d->parser);
    set_stream(d, STREAM_DOWN);
    silence_end(&d->stream_silence);
    return was_up;
}

/* The end of a stream of an instance that is watched. was_up: it stood. Closes d when that is the
 * end of the instance as well. */
static void watched_ended(struct dresult_in *d, const struct http_result *r, bool was_up) {
    char text[160];
    enum alarm_lost how = ALARM_LOST_NO_REPLY;
    if (d->other_process) {
        how = ALARM_LOST_REBOOT;
        snprintf(text, sizeof(text), "its process has been replaced");
    } else if (was_up || d->replaced) { /* it may have been the network: what comes next tells */
        connect_after(d, d->replaced ? BACKOFF_MAX_MS : 0);
        return;
    } else if (r->err == ERR_OK) {
        how = ALARM_LOST_ERROR_STATUS;
        snprintf(text, sizeof(text), "GET /dresult: status %d: %.80s", r->status, r->body);
    } else {
        snprintf(text, sizeof(text), "GET /dresult: %.120s",
                 r->detail != NULL && r->detail[0] != 0 ? r->detail : err_text(r->err));
    }
    controller_instance_lost(d->co, d->inst_id, how, text);
}

/* A stream that stays away loses its requests: after max_retry attempts they are answered or moved.
 */
static void unwatched_ended(struct dresult_in *d, const struct http_result *r) {
    const struct inst *in = registry_find(&d->co->reg, d->inst_id);
    if (r->err == ERR_OK && r->status == 400 && in != NULL &&
        in->facts.status.role != ROLE_DECODE) {
        set_stream(d, STREAM_NONE);
        connect_after(d, SILENCE_MS);
        return;
    }
    if (d->n_failures > (unsigned)d->co->conf.retries_max + 1)
        relay_instance_lost(d->co->relays, d->inst_id);
    unsigned wait = BACKOFF_MS << (d->n_failures < 5 ? d->n_failures - 1 : 4);
    if (d->replaced || wait > BACKOFF_MAX_MS) wait = BACKOFF_MAX_MS;
    connect_after(d, wait);
}

static void on_done(void *arg, const struct http_result *r) {
    struct dresult_in *d = arg;
    bool was_up = stream_ended(d);
    if (d->n_failures < 16) d->n_failures++;
    if (d->n_failures == 1 || r->err == ERR_OK)
        log_warn("dresult", "id=%u event=lost err=%s status=%d", d->inst_id, err_name(r->err),
                 r->status);
    if (d->heartbeat_ms > 0) {
        watched_ended(d, r, was_up);
    } else {
        unwatched_ended(d, r);
    }
}

static void connect_now(void *arg) {
    struct dresult_in *d = arg;
    struct coordinator *co = d->co;
    const struct inst *in = registry_find(&co->reg, d->inst_id);
    char url[96], beat[64], term[64], session[sizeof(DRESULT_SESSION_HEADER) + 64];
    char positions[DRESULT_RESUME_BYTES_MAX], resume[sizeof(positions) + 32];
    loop_alarm_stop(&d->retry);
    if (in == NULL || d->call != NULL) return;
    if (!coord_leads(co)) {
        connect_after(d, BACKOFF_MS);
        return;
    }
    unsigned bound = MISSES_MAX * (unsigned)co->conf.heartbeat_ms;
    snprintf(beat, sizeof(beat), DRESULT_HEARTBEAT_HEADER ": %lld",
             (long long)co->conf.heartbeat_ms);
    snprintf(term, sizeof(term), COORD_TERM_HEADER ": %llu", (unsigned long long)co->term);
    snprintf(session, sizeof(session), DRESULT_SESSION_HEADER ": %016llx.%u",
             (unsigned long long)co->boot, in->session);
    relay_positions(co->relays, d->inst_id, positions, sizeof(positions));
    snprintf(resume, sizeof(resume), DRESULT_RESUME_HEADER ": %s", positions);
    const char *const headers[] = {
        "dresult-version: 2", beat, term, session, positions[0] != 0 ? resume : NULL, NULL};
    struct tls *tls =
        coord_tls_url(&co->tls, url, sizeof(url), &in->node, NODE_BUSINESS, "/dresult");
    struct http_call_opts o = {.method = "GET",
                               .url = url,
                               .tls = tls,
                               .headers = headers,
                               .connect_ms = d->heartbeat_ms == 0
                                                 ? (unsigned)co->conf.instance_timeout_s * 1000
                                             : bound > CONNECT_MS_MIN ? bound
                                                                      : CONNECT_MS_MIN,
                               .silence_ms = SILENCE_MS,
                               .fresh_connection = true,
                               .on_data = on_data,
                               .on_headers = on_headers,
                               .on_done = on_done,
                               .arg = d};
    if (http_client_call(co->client, &o, &d->call) != ERR_OK) connect_after(d, BACKOFF_MAX_MS);
}

/* ---- silence */
uint64_t dresult_in_away_ms_max(const struct coordinator *co) {
    return (uint64_t)ANEW_MAX * MISSES_MAX * (uint64_t)co->conf.heartbeat_ms;
}

/* An instance of which nothing is known yet has taken the connection and says nothing. */
static void ask_again(struct dresult_in *d) {
    const struct inst *in = registry_find(&d->co->reg, d->inst_id);
    if (d->call == NULL || in == NULL || in->stream != STREAM_DOWN) return;
    if (d->stream_silence.ms < dresult_in_away_ms_max(d->co)) return;
    http_call_cancel(&d->call);
    (void)stream_ended(d);
    connect_now(d);
}

void dresult_in_tick(struct dresult_in *d, uint64_t now_ms) {
    silence_look(&d->silence, now_ms, STEP_MS_MAX);
    silence_look(&d->stream_silence, now_ms, STEP_MS_MAX);
    if (d->heartbeat_ms == 0) {
        ask_again(d);
        return;
    }
    uint64_t bound = (uint64_t)MISSES_MAX * d->heartbeat_ms;
    if (d->silence.ms >= bound) {
        char text[80];
        snprintf(text, sizeof(text), "no sign of life for %llu ms",
                 (unsigned long long)d->silence.ms);
        controller_instance_lost(d->co, d->inst_id, ALARM_LOST_NO_REPLY, text);
        return;
    }
    if (d->stream_silence.ms >= ANEW_MAX * bound) {
        controller_instance_lost(d->co, d->inst_id, ALARM_LOST_NO_REPLY,
                                 "it answers polls, but nothing comes from its business plane");
        return;
    }
    if (d->stream_silence.ms >= bound && d->parser != NULL) {
        log_warn("dresult",
                 "id=%u event=silent ms=%llu: it answers polls, the stream is opened anew",
                 d->inst_id, (unsigned long long)d->stream_silence.ms);
        http_call_cancel(&d->call);
        (void)stream_ended(d);
        connect_now(d);
    }
    if (d->silence.ms >= d->heartbeat_ms + d->heartbeat_ms / 2 && !d->asked) {
        d->asked = true;
        controller_look_now(d->co, d->inst_id);
    }
}

enum err dresult_in_open(struct dresult_in **out, struct coordinator *co, uint32_t inst_id) {
    struct dresult_in *d = calloc(1, sizeof(*d));
    *out = d;
    if (d == NULL) return ERR_NO_MEMORY;
    d->co = co;
    d->inst_id = inst_id;
    connect_now(d);
    return ERR_OK;
}

void dresult_in_close(struct dresult_in **dp) {
    struct dresult_in *d = *dp;
    if (d == NULL) return;
    *dp = NULL;
    http_call_cancel(&d->call);
    (void)stream_ended(d);
    loop_alarm_stop(&d->retry);
    free(d);
}
