/* A prefill and a decode instance with both roles real, a coordinator's two connections to them
 * (requests to P, the result stream of D), and waits for facts. For the tests of the roles. */
#ifndef BATON_TESTS_ROLE_FIXTURE_H
#define BATON_TESTS_ROLE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_client.h"
#include "decode/decode_role.h"
#include "prefill/prefill_role.h"
#include "proto/dresult.h"
#include "proto/transcript.h"
#include "tests/unit/fakes/fake_instance.h"
#include "tests/unit/pace.h"

#define UNUSED __attribute__((unused))

#define DEADLINE_MS pace_ms(60000)
enum { BT = 4, P_ID = 11, D_ID = 21, FLIGHTS_MAX = 64, TOKENS_MAX = 4096 };

/* What a client has from D: bytes of flight.text, tokens of flight.from_d. */
struct left_at {
    size_t n_text, n_tokens;
};

/* One client request as the coordinator sees it. */
struct flight {
    char req_id[32];
    uint32_t epoch;
    struct http_call *call;
    bool answered;
    int status;
    enum cause cause;
    char *body;             /* P's answer */
    struct buf text;        /* bodies of D's frames */
    struct transcript sent; /* what P and D reported as sent */
    struct buf from_d;      /* struct emitted[]: D's part of it */
    struct buf frames;      /* struct left_at[]: where the client is after each frame */
    uint64_t next_seq;
    unsigned n_frames, n_ends;
    enum dresult_kind end;
    int end_status;
};

struct cluster {
    struct loop *loop;
    struct instance p, d; /* d closed: p is both */
    struct http_client *client;
    struct http_call *listener;
    struct dresult_parser *parser;
    struct flight flights[FLIGHTS_MAX];
    size_t n_flights;
};

static struct instance UNUSED *d_of(struct cluster *c) {
    return c->d.worker != NULL ? &c->d : &c->p;
}

/* ---- waiting */
typedef bool fact_fn(void *arg);
struct wait {
    struct loop *loop;
    fact_fn *fact;
    void *arg;
    uint64_t until;
};
static void wait_tick(void *arg) {
    struct wait *w = arg;
    if (w->fact(w->arg) || clock_ms() >= w->until) loop_stop(w->loop);
}
static bool UNUSED wait_ms(struct loop *loop, fact_fn *fact, void *arg, unsigned ms) {
    struct wait w = {loop, fact, arg, clock_ms() + ms};
    struct loop_timer *t = NULL;
    if (fact(arg)) return true;
    assert_int_equal(loop_timer_start(&t, loop, 1, 1, wait_tick, &w), ERR_OK);
    loop_run(loop);
    loop_timer_stop(&t);
    return fact(arg);
}
#define WAIT_FOR(c, fact, arg)                                                                     \
    do {                                                                                           \
        if (!wait_ms((c)->loop, fact, arg, DEADLINE_MS)) fail_msg("%s did not come true", #fact);  \
    } while (0)

/* ---- what clients are sent */
static void take_frame(struct flight *x, const struct dresult_frame *f) {
    buf_append(&x->text, f->body, f->body_len);
    buf_append(&x->from_d, (const char *)f->tokens, f->n_tokens * sizeof(*f->tokens));
    const struct left_at at = {x->text.len, x->from_d.len / sizeof(struct emitted)};
    buf_append(&x->frames, (const char *)&at, sizeof(at));
    for (size_t i = 0; i < f->n_tokens && x->answered; i++)
        assert_int_equal(transcript_add(&x->sent, &f->tokens[i]), ERR_OK);
}

/* The first n tokens of D, of which more may be there. */
static void UNUSED add_from_d(const struct flight *x, struct transcript *t, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct emitted e;
        memcpy(&e, x->from_d.data + i * sizeof(e), sizeof(e));
        assert_int_equal(transcript_add(t, &e), ERR_OK);
    }
}

static void add_from_p(const struct flight *x, struct transcript *t) {
    const char *list = x->body != NULL ? strstr(x->body, "\"tokens\":\"") : NULL;
    if (list == NULL) return;
    list += strlen("\"tokens\":\"");
    struct emitted e;
    for (size_t at = 0, n = strcspn(list, "\""); at < n;) {
        assert_int_equal(emitted_parse(list, n, &at, &e), ERR_OK);
        assert_int_equal(transcript_add(t, &e), ERR_OK);
    }
}

/* ---- D's results */
static enum err on_frame(void *arg, const struct dresult_frame *f) {
    struct cluster *c = arg;
    if (f->kind == DR_HEARTBEAT || f->kind == DR_CLOSE) return ERR_OK;
    for (size_t i = 0; i < c->n_flights; i++) {
        struct flight *x = &c->flights[i];
        if (strcmp(x->req_id, f->req_id) != 0 || x->epoch != f->epoch) continue;
        assert_int_equal(f->seq, x->next_seq++);
        assert_int_equal(x->n_ends, 0); /* nothing follows an end */
        x->n_frames++;
        take_frame(x, f);
        if (f->kind != DR_DATA && f->kind != DR_PART) {
            x->n_ends++;
            x->end = f->kind;
            x->end_status = f->status;
        }
        return ERR_OK;
    }
    fail_msg("a frame of %s epoch %u, which nobody sent", f->req_id, f->epoch);
    return ERR_OK;
}
static bool on_listener_data(void *arg, const char *p, size_t n) {
    struct cluster *c = arg;
    assert_int_equal(dresult_parser_feed(c->parser, p, n, on_frame, c), ERR_OK);
    return true;
}
static void on_listener_done(void *arg, const struct http_result *r) {
    struct cluster *c = arg;
    (void)r;
    c->listener = NULL;
}
static void UNUSED listen_to_d(struct cluster *c) {
    char url[64];
    static const char *const headers[] = {"dresult-version: 2", NULL};
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/dresult", http_server_port(d_of(c)->server));
    const struct http_call_opts o = {.method = "GET",
                                     .url = url,
                                     .headers = headers,
                                     .on_data = on_listener_data,
                                     .on_done = on_listener_done,
                                     .fresh_connection = true,
                                     .arg = c};
    assert_int_equal(dresult_parser_create(&c->parser, 2, 1 << 20), ERR_OK);
    assert_int_equal(http_client_call(c->client, &o, &c->listener), ERR_OK);
}
static void UNUSED stop_listening(struct cluster *c) {
    http_call_cancel(&c->listener);
    dresult_parser_destroy(&c->parser);
}
static bool UNUSED fact_listening(void *arg) {
    return dresult_out_has_listener(d_of(arg)->dresult);
}
static bool UNUSED fact_not_listening(void *arg) {
    return !fact_listening(arg);
}

/* ---- the cluster */
static bool UNUSED fact_linked(void *arg) {
    struct cluster *c = arg;
    struct kv_peer *d = kv_plane_find_id(c->p.kv_plane, D_ID),
                   *p = kv_plane_find_id(c->d.kv_plane, P_ID);
    return d != NULL && kv_peer_up(d) && p != NULL && kv_peer_up(p);
}

static const struct fake_engine_opts UNUSED roomy = {.n_blocks = 256,
                                                     .batch_max = 16,
                                                     .queue_max = 16,
                                                     .block_tokens = BT,
                                                     .chunk_blocks = 2,
                                                     .prefix_cache = true};

static void UNUSED cluster_up(struct cluster *c, const struct fake_engine_opts *pe,
                              const struct fake_engine_opts *de) {
    memset(c, 0, sizeof(*c));
    log_init(LOG_NONE, 2);
    assert_int_equal(loop_create(&c->loop), ERR_OK);
    assert_int_equal(http_client_create(&c->client, c->loop, "test"), ERR_OK);
    fake_instance_open(&c->p, c->loop, &prefill_role, P_ID, pe);
    fake_instance_open(&c->d, c->loop, &decode_role, D_ID, de);
    fake_instance_want(&c->d, &c->p);
    fake_instance_want(&c->p, &c->d);
    WAIT_FOR(c, fact_linked, c);
    listen_to_d(c);
    WAIT_FOR(c, fact_listening, c);
}

/* One instance with both roles, which is named as D to itself. */
static void UNUSED one_up(struct cluster *c, const struct fake_engine_opts *e) {
    memset(c, 0, sizeof(*c));
    log_init(LOG_NONE, 2);
    assert_int_equal(loop_create(&c->loop), ERR_OK);
    assert_int_equal(http_client_create(&c->client, c->loop, "test"), ERR_OK);
    fake_instance_open(&c->p, c->loop, &prefill_role, P_ID, e);
    fake_instance_add(&c->p, &decode_role);
    listen_to_d(c);
    WAIT_FOR(c, fact_listening, c);
}

/* The same for tests that run with both: *state is not NULL for one instance, like D. */
static void UNUSED either_up(struct cluster *c, void **state, const struct fake_engine_opts *pe,
                             const struct fake_engine_opts *de) {
    if (*state != NULL)
        one_up(c, de);
    else
        cluster_up(c, pe, de);
}

static void UNUSED cluster_down(struct cluster *c) {
    for (size_t i = 0; i < c->n_flights; i++) {
        http_call_cancel(&c->flights[i].call);
        free(c->flights[i].body);
        buf_free(&c->flights[i].text);
        buf_free(&c->flights[i].from_d);
        buf_free(&c->flights[i].frames);
        transcript_free(&c->flights[i].sent);
    }
    stop_listening(c);
    fake_instance_close(&c->p);
    if (c->d.worker != NULL) fake_instance_close(&c->d);
    http_client_destroy(&c->client);
    loop_destroy(&c->loop);
}

/* Everything is given back on both sides, and both roles say so. */
static bool UNUSED fact_idle(void *arg) {
    struct cluster *c = arg;
    struct instance *ins[2] = {&c->p, &c->d};
    for (int i = 0; i < 2; i++) {
        struct engine_stats st;
        struct role_load load = {0};
        if (ins[i]->worker == NULL) continue;
        engine_stats(worker_engine(ins[i]->worker), &st);
        req_set_load(ins[i]->reqs, ROLE_NONE, &load);
        if (load.waiting + load.running + load.leases > 0) return false;
        if (st.blocks_free != st.blocks_total || st.slots_free != st.slots_total ||
            st.waiting + st.held + st.importing > 0)
            return false;
    }
    return true;
}

/* ---- requests */
static void on_answer(void *arg, const struct http_result *r) {
    struct flight *x = arg;
    x->call = NULL;
    x->answered = true;
    x->status = r->err == ERR_OK ? r->status : -(int)r->err;
    x->cause = r->cause;
    free(x->body);
    x->body = strdup(r->body != NULL ? r->body : "");
    add_from_p(x, &x->sent);
    add_from_d(x, &x->sent, x->from_d.len / sizeof(struct emitted));
}

/* As many prompts and choices as a body has. */
static void count_choices(struct flight *x, const char *body) {
    uint32_t n_parts = 1, n_choices = 1;
    const char *star = strchr(body, '*');
    if (star != NULL) n_choices = (uint32_t)atoi(star + 1);
    for (const char *p = body; *p != '\0'; p++) n_parts += *p == '|';
    transcript_free(&x->sent);
    assert_int_equal(transcript_open(&x->sent, n_parts, n_choices), ERR_OK);
}

static UNUSED struct flight *post_bytes(struct cluster *c, const char *const *headers,
                                        const char *text, const void *body, size_t n) {
    assert_true(c->n_flights < FLIGHTS_MAX);
    struct flight *x = &c->flights[c->n_flights++];
    char url[64];
    count_choices(x, text);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/completions", http_server_port(c->p.server));
    const struct http_call_opts o = {.method = "POST",
                                     .url = url,
                                     .headers = headers,
                                     .body = body,
                                     .body_len = n,
                                     .on_done = on_answer,
                                     .arg = x};
    assert_int_equal(http_client_call(c->client, &o, &x->call), ERR_OK);
    return x;
}
static UNUSED struct flight *post_with(struct cluster *c, const char *const *headers,
                                       const char *body) {
    return post_bytes(c, headers, body, body, strlen(body));
}

static UNUSED struct flight *post_epoch(struct cluster *c, const char *req_id, uint32_t epoch,
                                        const char *body) {
    char id[64], target[64], ep[64];
    snprintf(id, sizeof(id), "req-id: %s", req_id);
    snprintf(target, sizeof(target), "d-target: 127.0.0.1;%u", kv_plane_port(d_of(c)->kv_plane));
    snprintf(ep, sizeof(ep), "req-epoch: %u", epoch);
    const char *const headers[] = {"req-type: prefill", id, target, ep, NULL};
    struct flight *x = post_with(c, headers, body);
    snprintf(x->req_id, sizeof(x->req_id), "%s", req_id);
    x->epoch = epoch;
    return x;
}
static UNUSED struct flight *post(struct cluster *c, const char *req_id, const char *body) {
    return post_epoch(c, req_id, 0, body);
}

/* A later attempt: what the client was sent is behind the body. */
static UNUSED struct flight *post_again(struct cluster *c, const char *req_id, uint32_t epoch,
                                        const char *body, const struct transcript *sent) {
    char id[64], target[64], ep[64], length[64];
    struct wr w = WR_INIT;
    wr_bytes(&w, body, strlen(body));
    transcript_pack(&w, sent);
    assert_false(w.failed);
    snprintf(id, sizeof(id), "req-id: %s", req_id);
    snprintf(target, sizeof(target), "d-target: 127.0.0.1;%u", kv_plane_port(d_of(c)->kv_plane));
    snprintf(ep, sizeof(ep), "req-epoch: %u", epoch);
    snprintf(length, sizeof(length), REPLAY_HEADER ": %zu", w.len - strlen(body));
    const char *const headers[] = {"req-type: prefill", id, target, ep, length, NULL};
    struct flight *x = post_bytes(c, headers, body, w.data, w.len);
    snprintf(x->req_id, sizeof(x->req_id), "%s", req_id);
    x->epoch = epoch;
    wr_free(&w);
    return x;
}

static bool UNUSED fact_answered(void *arg) {
    return ((struct flight *)arg)->answered;
}
static bool UNUSED fact_ended(void *arg) {
    return ((struct flight *)arg)->n_ends > 0;
}
static bool UNUSED fact_some_frames(void *arg) {
    return ((struct flight *)arg)->n_frames >= 2;
}

static void UNUSED hold(struct instance *in, bool held) {
    fake_engine_hold(in->engine, held);
    if (!held) worker_self_test(in->worker, NULL, NULL); /* wakes it */
}
static void UNUSED allow(struct instance *in, int n_steps) {
    fake_engine_allow(in->engine, n_steps);
    worker_self_test(in->worker, NULL, NULL);
}

static struct role_load UNUSED load_of(struct instance *in) {
    struct role_load l;
    req_set_load(in->reqs, ROLE_NONE, &l);
    return l;
}
static bool UNUSED fact_p_running(void *arg) {
    struct cluster *c = arg;
    return load_of(&c->p).waiting + load_of(&c->p).running + load_of(&c->p).leases > 0;
}
static bool UNUSED fact_d_importing(void *arg) {
    return load_of(&((struct cluster *)arg)->d).waiting > 0;
}
static bool UNUSED fact_d_decoding(void *arg) {
    return load_of(&((struct cluster *)arg)->d).running > 0;
}
static bool UNUSED fact_p_leases(void *arg) {
    return load_of(&((struct cluster *)arg)->p).leases > 0;
}
static bool UNUSED fact_d_offered(void *arg) {
    return fake_engine_n_added(((struct cluster *)arg)->d.engine) > 0;
}

/* The string value of a member of P's answer, JSON escapes left as they are (the fake's output has
 * none). */
static void UNUSED member(const struct flight *x, const char *name, char *out, size_t cap) {
    char key[64];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *p = strstr(x->body, key);
    out[0] = '\0';
    if (p == NULL) return;
    p += strlen(key);
    const char *end = *p == '"' ? strchr(++p, '"') : p + strcspn(p, ",}");
    snprintf(out, cap, "%.*s", (int)(end - p), p);
}

#endif
