/* replay_send: one loop, a timer for who is next, answers thrown away. */
#include "tools/replay_send.h"

#include <stdio.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/net/http_client.h"
#include "common/net/loop.h"

struct sender {
    const struct run *run;
    const struct replay_target *to;
    struct replay_sent *out;
    struct loop *loop;
    struct http_client *client;
    struct loop_timer *timer;
    uint64_t began_us;
    size_t next, n_open;
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
    struct sender *s = arg;
    s->n_open--;
    if (r->err == ERR_OK)
        s->out->n_answered++;
    else
        note_lost(s, r->detail != NULL ? r->detail : err_text(r->err));
    go_on(s);
}

static void send_one(struct sender *s, const struct run_request *r) {
    struct buf body = BUF_INIT, url = BUF_INIT, key = BUF_INIT;
    buf_puts(&url, s->to->base);
    buf_puts(&url, r->path);
    buf_puts(&key, "Authorization: Bearer ");
    buf_puts(&key, s->to->api_key != NULL ? s->to->api_key : "");
    if (!run_body(&body, r) || url.failed || key.failed) {
        s->no_memory = true;
    } else {
        const char *const headers[] = {"Content-Type: application/json",
                                       s->to->api_key != NULL ? key.data : NULL, NULL};
        const struct http_call_opts o = {.method = "POST",
                                         .url = url.data,
                                         .tls = s->to->tls,
                                         .headers = headers,
                                         .body = body.data,
                                         .body_len = body.len,
                                         .on_data = on_data,
                                         .on_done = on_done,
                                         .arg = s};
        const enum err e = http_client_call(s->client, &o, NULL);
        if (e == ERR_OK)
            s->n_open++;
        else
            note_lost(s, err_text(e));
    }
    buf_free(&body);
    buf_free(&url);
    buf_free(&key);
}

/* As it was recorded, counted from the first one. */
static uint64_t due_us(const struct sender *s, const struct run_request *r) {
    return s->began_us + (r->us - s->run->requests[0]->us);
}

static void on_timer(void *arg) {
    go_on(arg);
}

/* Sends who may go now, and comes back for the next. */
static void go_on(struct sender *s) {
    const unsigned most = s->to->n_at_once;
    const uint64_t now = clock_us();
    while (s->next < s->run->n && !s->no_memory &&
           (most > 0 ? s->n_open < most : due_us(s, s->run->requests[s->next]) <= now))
        send_one(s, s->run->requests[s->next++]);
    loop_timer_stop(&s->timer);
    if (s->no_memory || (s->next == s->run->n && s->n_open == 0)) {
        loop_stop(s->loop);
    } else if (most == 0 && s->next < s->run->n) {
        const uint64_t due = due_us(s, s->run->requests[s->next]);
        s->no_memory =
            loop_timer_start(&s->timer, s->loop, (due - now) / 1000 + 1, 0, on_timer, s) != ERR_OK;
        if (s->no_memory) loop_stop(s->loop);
    }
}

enum err replay_send(struct replay_sent *out, const struct run *run,
                     const struct replay_target *t) {
    struct sender s = {.run = run, .to = t, .out = out, .began_us = clock_us()};
    memset(out, 0, sizeof(*out));
    if (run->n == 0) return ERR_OK;
    enum err e = loop_create(&s.loop);
    if (e == ERR_OK) e = http_client_create(&s.client, s.loop, "baton-replay/1.0");
    if (e == ERR_OK) e = loop_timer_start(&s.timer, s.loop, 0, 0, on_timer, &s);
    if (e == ERR_OK) loop_run(s.loop);
    loop_timer_stop(&s.timer);
    http_client_destroy(&s.client);
    if (s.loop != NULL) loop_destroy(&s.loop);
    return s.no_memory ? ERR_NO_MEMORY : e;
}
