/* replay_send: one loop, a timer for who is next, answers thrown away. A request goes after those
 * that had ended when it came: what a client asks next may rest on the answer before, or bear the
 * same id. */
#include "tools/replay_send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/net/http_client.h"
#include "common/net/loop.h"
#include "proto/tensors.h"

struct sent {
    struct sender *s;
    bool ended;
};

struct sender {
    const struct run *run;
    const struct replay_target *to;
    struct replay_sent *out;
    struct loop *loop;
    struct http_client *client;
    struct loop_timer *timer;
    uint64_t began_us;
    size_t next, n_open;
    struct sent *sent; /* [run->n] */
    size_t *by_end;    /* [run->n] numbers of requests, as they ended when they were recorded */
    size_t n_ended;    /* so many of by_end have ended here */
    size_t n_ended_at_next; /* so many had ended when the next one came */
    bool no_memory;
};

static void go_on(struct sender *s);

static void note_lost(struct sender *s, const char *why) {
    if (s->out->n_lost++ == 0) snprintf(s->out->first_lost, sizeof(s->out->first_lost), "%s", why);
}

static bool on_data(void *arg, const char *p, size_t n) {
    (void)arg;
    (void)p;
    (void)n;
    return true;
}

static void on_done(void *arg, const struct http_result *r) {
    struct sent *sent = arg;
    struct sender *s = sent->s;
    sent->ended = true;
    s->n_open--;
    if (r->err == ERR_OK)
        s->out->n_answered++;
    else
        note_lost(s, r->detail != NULL ? r->detail : err_text(r->err));
    go_on(s);
}

static void send_one(struct sender *s, size_t i) {
    const struct run_request *r = s->run->requests[i];
    struct buf body = BUF_INIT, url = BUF_INIT, key = BUF_INIT;
    char tensors[64];
    size_t n_json = 0;
    buf_puts(&url, s->to->base);
    buf_puts(&url, r->path);
    buf_puts(&key, "Authorization: Bearer ");
    buf_puts(&key, s->to->api_key != NULL ? s->to->api_key : "");
    if (!run_body(&body, &n_json, r) || url.failed || key.failed) {
        s->no_memory = true;
    } else {
        const char *headers[4] = {"Content-Type: application/json"};
        size_t n = 1;
        snprintf(tensors, sizeof(tensors), TENSORS_HEADER ": %zu", n_json);
        if (r->has_tensors) headers[n++] = tensors;
        if (s->to->api_key != NULL) headers[n++] = key.data;
        const struct http_call_opts o = {.method = "POST",
                                         .url = url.data,
                                         .tls = s->to->tls,
                                         .headers = headers,
                                         .body = body.data,
                                         .body_len = body.len,
                                         .on_data = on_data,
                                         .on_done = on_done,
                                         .arg = &s->sent[i]};
        const enum err e = http_client_call(s->client, &o, NULL);
        s->sent[i].ended = e != ERR_OK;
        s->n_open += e == ERR_OK;
        if (e != ERR_OK) note_lost(s, err_text(e));
    }
    buf_free(&body);
    buf_free(&url);
    buf_free(&key);
}

/* ---- whose turn it is */

/* As it was recorded, counted from the first one. */
static uint64_t due_us(const struct sender *s) {
    return s->began_us + (s->run->requests[s->next]->us - s->run->requests[0]->us);
}

/* All that had ended when the next one came have ended here. */
static bool may_follow(struct sender *s) {
    const struct run *run = s->run;
    const uint64_t us = run->requests[s->next]->us;
    while (s->n_ended_at_next < run->n &&
           run->requests[s->by_end[s->n_ended_at_next]]->end_us <= us)
        s->n_ended_at_next++;
    while (s->n_ended < s->n_ended_at_next && s->sent[s->by_end[s->n_ended]].ended) s->n_ended++;
    return s->n_ended == s->n_ended_at_next;
}

static void on_timer(void *arg) {
    go_on(arg);
}

/* Sends who may go now; the rest goes when an answer ends, or its time comes. */
static void go_on(struct sender *s) {
    const unsigned most = s->to->n_at_once;
    const uint64_t now = clock_us();
    loop_timer_stop(&s->timer);
    while (s->next < s->run->n && !s->no_memory && may_follow(s) &&
           (most > 0 ? s->n_open < most : due_us(s) <= now))
        send_one(s, s->next++);
    const bool waits = most == 0 && s->next < s->run->n && may_follow(s);
    if (waits && !s->no_memory)
        s->no_memory = loop_timer_start(&s->timer, s->loop, (due_us(s) - now) / 1000 + 1, 0,
                                        on_timer, s) != ERR_OK;
    if (s->no_memory || (s->next == s->run->n && s->n_open == 0)) loop_stop(s->loop);
}

/* ---- all of it */

static int cmp_end(const void *a, const void *b, void *arg) {
    const struct run *run = arg;
    const uint64_t x = run->requests[*(const size_t *)a]->end_us,
                   y = run->requests[*(const size_t *)b]->end_us;
    return x < y ? -1 : x > y;
}

static enum err open_sender(struct sender *s) {
    const size_t n = s->run->n;
    s->sent = calloc(n, sizeof(*s->sent));
    s->by_end = calloc(n, sizeof(*s->by_end));
    if (s->sent == NULL || s->by_end == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        s->sent[i].s = s;
        s->by_end[i] = i;
    }
    qsort_r(s->by_end, n, sizeof(*s->by_end), cmp_end, (void *)(uintptr_t)s->run);
    enum err e = loop_create(&s->loop);
    if (e == ERR_OK) e = http_client_create(&s->client, s->loop, "baton-replay/1.0");
    if (e == ERR_OK) e = loop_timer_start(&s->timer, s->loop, 0, 0, on_timer, s);
    return e;
}

enum err replay_send(struct replay_sent *out, const struct run *run,
                     const struct replay_target *t) {
    struct sender s = {.run = run, .to = t, .out = out, .began_us = clock_us()};
    memset(out, 0, sizeof(*out));
    if (run->n == 0) return ERR_OK;
    enum err e = open_sender(&s);
    if (e == ERR_OK) loop_run(s.loop);
    loop_timer_stop(&s.timer);
    http_client_destroy(&s.client);
    if (s.loop != NULL) loop_destroy(&s.loop);
    free(s.sent);
    free(s.by_end);
    return s.no_memory ? ERR_NO_MEMORY : e;
}
