/* fake_cluster: a real coordinator (registry, controller, relays, routes) on one loop with
 * instances that are servers of the test: they say the status they are told to say, keep every
 * request until the test answers it, and write the result frames it wants. Clients are plain
 * sockets, so that every byte of an answer is seen. Everything runs on the thread of the test;
 * run_until() turns the loop until a fact is there. Include after cmocka.h. */
#ifndef BATON_TESTS_FAKE_CLUSTER_H
#define BATON_TESTS_FAKE_CLUSTER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/router.h"
#include "coordinator/coordinator.h"
#include "coordinator/dresult_in.h"
#include "coordinator/lora.h"
#include "coordinator/relay.h"
#include "proto/dresult.h"
#include "proto/json.h"
#include "proto/role_msg.h"
#include "proto/status_msg.h"
#include "proto/transcript.h"
#include "tests/unit/pace.h"

#define FC_DEADLINE_MS pace_ms(30000)
enum { FAKES_MAX = 4, HELD_MAX = 64, STOPS_MAX = 64 };

struct held {
    struct fake *owner;
    struct http_x *x; /* NULL: the caller is gone */
    char req_id[32], epoch[16], path[300];
};

struct fake {
    struct http_server *server;
    uint16_t port;
    uint32_t id;
    int label;
    /* what it says */
    enum inst_role role;
    enum role_status role_status;
    int share; /* p_percentage of a flex */
    uint32_t peers[FAKES_MAX];
    size_t n_peers;
    uint32_t waiting, running, leases, slots, used; /* used: of the slots */
    uint64_t stuck_ms;                              /* of its engine */
    bool engine_held, embeds_only, links_fail;
    uint64_t obeys;  /* term of another coordinator, which is connected; 0: ours */
    int status_code; /* of /v2/status; 0: 200 */
    const char *status_text;
    bool refuse_roles;   /* 409 */
    int stop_code;       /* of stopInfer; 0: 200 */
    const char *adapter; /* it says that it has this one; NULL: none */
    int timed_code;      /* of /health/timed; -1: it does not answer */
    const char *timed_text;
    /* what it was asked */
    struct held held[HELD_MAX];
    size_t n_held, n_gone;
    struct http_x *dresult;
    int n_listens;
    unsigned heartbeat_ms; /* 0: it does not let itself be watched */
    unsigned long long boot;
    struct loop_timer *beat;
    bool mute;                  /* nothing comes from it any more, as if it was stopped */
    bool deaf;                  /* listeners get no answer */
    bool no_stream;             /* they get 400: it has no /dresult in its role */
    char session[80], term[32]; /* of the last listener */
    char stops[STOPS_MAX][32];
    char stop_epoch[16];  /* header req-epoch of the same */
    bool stop_keeps;      /* header baton-keep-kv of the same is there */
    char stop_tenant[64]; /* header baton-tenant of the last stopInfer */
    size_t n_stops;
    unsigned n_posts, n_configs;
    bool last_forced;
    char last_headers[4096];  /* of the last inference request */
    char last_body[4096];     /* without the record behind it */
    struct transcript record; /* of the last one; n_parts 0: it had none */
};

static struct fc {
    struct coordinator co;
    struct dispatch_listener front;
    uint16_t port;
    struct fake fakes[FAKES_MAX];
    int n_fakes;
    const char *client_ip; /* where clients come from; NULL: 127.0.0.1 */
    bool (*fact)(void *);
    void *fact_arg;
    bool reached;
} fc;

/* For what must hold inside a callback, where cmocka cannot leave the loop. */
#define FC_REQUIRE(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- waiting */
static void fc_look(void *arg) {
    (void)arg;
    if (!fc.fact(fc.fact_arg)) return;
    fc.reached = true;
    loop_stop(fc.co.loop);
}

static void fc_late(void *arg) {
    (void)arg;
    loop_stop(fc.co.loop);
}

static void run_until_at(bool (*fact)(void *), void *arg, const char *what, int line) {
    struct loop_timer *look = NULL, *late = NULL;
    fc.fact = fact;
    fc.fact_arg = arg;
    fc.reached = false;
    assert_int_equal(loop_timer_start(&look, fc.co.loop, 0, 1, fc_look, NULL), ERR_OK);
    assert_int_equal(loop_timer_start(&late, fc.co.loop, FC_DEADLINE_MS, 0, fc_late, NULL), ERR_OK);
    loop_run(fc.co.loop);
    loop_timer_stop(&look);
    loop_timer_stop(&late);
    if (!fc.reached) fail_msg("line %d: not in time: %s", line, what);
}
#define run_until(fact, arg) run_until_at(fact, arg, #fact, __LINE__)

static bool fc_passed(void *arg) {
    return clock_ms() >= *(uint64_t *)arg;
}

/* Turns the loop so long; only to see that something does NOT happen. */
static inline void run_for(unsigned ms) {
    uint64_t end = clock_ms() + ms;
    run_until(fc_passed, &end);
}

/* ---- instances */
static void fake_held_gone(void *arg) {
    struct held *h = arg;
    h->x = NULL;
    h->owner->n_gone++;
}

static void fake_infer(struct fake *f, struct http_x *x) {
    FC_REQUIRE(f->n_held < HELD_MAX);
    struct held *h = &f->held[f->n_held++];
    const char *id = http_x_header(x, "req-id"), *epoch = http_x_header(x, "req-epoch");
    size_t n, at = 0;
    const char *body = http_x_body(x, &n), *name, *value;
    *h = (struct held){.owner = f, .x = x};
    snprintf(h->req_id, sizeof(h->req_id), "%s", id != NULL ? id : "");
    snprintf(h->epoch, sizeof(h->epoch), "%s", epoch != NULL ? epoch : "");
    snprintf(h->path, sizeof(h->path), "%s", http_x_path(x));
    const char *replay = http_x_header(x, "baton-replay");
    const size_t n_record = replay != NULL ? strtoul(replay, NULL, 10) : 0;
    FC_REQUIRE(n_record <= n);
    snprintf(f->last_body, sizeof(f->last_body), "%.*s", (int)(n - n_record), body);
    transcript_free(&f->record);
    if (n_record > 0) {
        struct rd r = rd_of(body + n - n_record, n_record);
        struct errbuf eb;
        FC_REQUIRE(transcript_unpack(&r, &f->record, &eb) == ERR_OK && rd_left(&r) == 0);
    }
    for (size_t i = 0; i < http_x_n_headers(x) && at < sizeof(f->last_headers); i++) {
        http_x_header_at(x, i, &name, &value);
        at += (size_t)snprintf(f->last_headers + at, sizeof(f->last_headers) - at, "%s: %s\n", name,
                               value);
    }
    http_x_on_close(x, fake_held_gone, h);
}

/* Something comes from it again: whoever waits for an answer asks anew. */
static inline void fake_wake(struct fake *f) {
    f->mute = false;
    for (size_t i = 0; i < f->n_held; i++) {
        struct http_x *x = f->held[i].x;
        if (x == NULL) continue;
        http_x_on_close(x, NULL, NULL);
        http_x_abort(x);
    }
    f->n_held = 0;
}

static void fake_status(struct fake *f, struct http_x *x) {
    struct status_msg m = {.role_status = f->role_status,
                           .role = f->role,
                           .p_percentage = f->share,
                           .avail_slots = f->slots - f->used,
                           .total_slots = f->slots,
                           .waiting = f->waiting,
                           .running = f->running,
                           .kv_leases = f->leases,
                           .stuck_ms = f->stuck_ms,
                           .held = f->engine_held,
                           .embeds_only = f->embeds_only,
                           .term = f->obeys,
                           .listened = f->obeys != 0,
                           .avail_blocks = 100,
                           .free_blocks = 100,
                           .total_blocks = 100};
    struct link_status links[FAKES_MAX] = {0};
    if (f->mute) {
        fake_infer(f, x); /* no answer */
        return;
    }
    if (f->status_code != 0) {
        http_x_reply(x, f->status_code, "application/json", f->status_text, strlen(f->status_text));
        return;
    }
    m.links = links;
    for (size_t i = 0; i < f->n_peers; i++) {
        links[i] = (struct link_status){.target = f->peers[i], .ok = !f->links_fail, .text = "ok"};
        if (f->links_fail) snprintf(links[i].text, sizeof(links[i].text), "failed : 11");
        snprintf(links[i].server_ip, sizeof(links[i].server_ip), "127.0.0.1");
    }
    m.n_links = f->n_peers;
    struct adapter_status adapter = {.path = "/adapters/a"};
    if (f->adapter != NULL) {
        snprintf(adapter.name, sizeof(adapter.name), "%s", f->adapter);
        m.adapters = &adapter;
        m.n_adapters = 1;
    }
    char *body = status_msg_format(&m, 2);
    http_x_reply(x, 200, "application/json", body, strlen(body));
    free(body);
}

static void fake_take_role(struct fake *f, struct http_x *x, enum inst_role role) {
    struct role_msg m;
    struct errbuf eb;
    size_t n;
    const char *body = http_x_body(x, &n);
    FC_REQUIRE(role_msg_parse(&m, 1, body, n, &eb) == ERR_OK);
    FC_REQUIRE(m.n_peers <= FAKES_MAX);
    f->n_posts++;
    f->last_forced = m.force;
    if (f->refuse_roles && f->role != role) {
        http_x_reply(x, 409, "application/json", "{\"error\":\"busy\"}", 16);
    } else {
        f->role = role;
        f->share = m.local.p_percentage;
        f->role_status = ROLE_STATUS_READY;
        f->n_peers = m.n_peers;
        for (size_t i = 0; i < m.n_peers; i++) f->peers[i] = m.peers[i].id;
        http_x_reply(x, 200, "application/json", "{\"result\":\"ok\"}", 15);
    }
    role_msg_free(&m);
}

static void fake_dresult_gone(void *arg) {
    struct fake *f = arg;
    f->dresult = NULL;
    loop_timer_stop(&f->beat);
}

static inline void fake_word(struct fake *f, const char *word) {
    struct wr w = WR_INIT;
    const struct dresult_frame fr = {
        .kind = DR_HEARTBEAT, .req_id = "-", .body = word, .body_len = strlen(word)};
    if (f->dresult == NULL) return;
    FC_REQUIRE(dresult_pack(&w, 2, &fr) == ERR_OK);
    http_x_stream_write(f->dresult, w.data, w.len);
    wr_free(&w);
}

static inline void fake_beat(void *arg) {
    if (!((struct fake *)arg)->mute) fake_word(arg, "");
}

static void fake_no_answer(void *arg) {
    (void)arg;
}

static inline void fake_listen(struct fake *f, struct http_x *x) {
    char hello[64];
    const char *session = http_x_header(x, "baton-session"),
               *term = http_x_header(x, "coordinator-epoch");
    FC_REQUIRE(strcmp(http_x_header(x, "dresult-version"), "2") == 0);
    FC_REQUIRE(session != NULL && term != NULL);
    if (f->deaf) {
        http_x_on_close(x, fake_no_answer, NULL); /* it goes with its client */
        return;
    }
    snprintf(f->session, sizeof(f->session), "%s", session);
    snprintf(f->term, sizeof(f->term), "%s", term);
    f->n_listens++;
    if (f->no_stream) {
        http_x_reply(x, 400, "text/plain", "", 0);
        return;
    }
    f->dresult = x;
    loop_timer_stop(&f->beat);
    http_x_on_close(x, fake_dresult_gone, f);
    http_x_stream_begin(x, 200, "text/event-stream");
    if (f->heartbeat_ms == 0) return;
    snprintf(hello, sizeof(hello), "hello %llx %u", f->boot, f->heartbeat_ms);
    fake_word(f, hello);
    FC_REQUIRE(loop_timer_start(&f->beat, fc.co.loop, f->heartbeat_ms, f->heartbeat_ms, fake_beat,
                                f) == ERR_OK);
}

static void fake_stop(struct fake *f, struct http_x *x) {
    struct json_value *root = NULL;
    const char *id;
    size_t n, id_len;
    const char *body = http_x_body(x, &n);
    FC_REQUIRE(json_read(&root, body, n, NULL, NULL) == ERR_OK);
    FC_REQUIRE(json_get_str(root, "id", &id, &id_len) == JSON_OK);
    FC_REQUIRE(f->n_stops < STOPS_MAX);
    const char *tenant = http_x_header(x, TENANT_HEADER);
    const char *epoch = http_x_header(x, "req-epoch");
    snprintf(f->stop_epoch, sizeof(f->stop_epoch), "%s", epoch != NULL ? epoch : "");
    f->stop_keeps = http_x_header(x, "baton-keep-kv") != NULL;
    snprintf(f->stop_tenant, sizeof(f->stop_tenant), "%s", tenant != NULL ? tenant : "");
    snprintf(f->stops[f->n_stops++], sizeof(f->stops[0]), "%s", id);
    json_put(root);
    http_x_reply(x, f->stop_code != 0 ? f->stop_code : 200, "application/json", body, n);
}

static void fake_request(void *arg, struct http_x *x) {
    struct fake *f = arg;
    const char *path = http_x_path(x);
    static const char config[] = "{\"modelName\":\"m\",\"maxSeqLen\":1024,\"npuMemSize\":-1,"
                                 "\"cpuMemSize\":5,\"worldSize\":1,"
                                 "\"maxOutputLen\":512,\"cacheBlockSize\":16}";
    if (strcmp(path, "/v1/config") == 0) {
        f->n_configs++;
        http_x_reply(x, 200, "application/json", config, sizeof(config) - 1);
    } else if (strcmp(path, "/v2/status") == 0) {
        fake_status(f, x);
    } else if (strncmp(path, "/v1/role/", 9) == 0) {
        fake_take_role(f, x, inst_role_parse(path + 9));
    } else if (strcmp(path, "/dresult") == 0) {
        fake_listen(f, x);
    } else if (strncmp(path, "/health/timed", 13) == 0) {
        if (f->timed_code < 0) {
            fake_infer(f, x);
        } else {
            http_x_reply(x, f->timed_code, "application/json", f->timed_text,
                         strlen(f->timed_text));
        }
    } else if (strcmp(path, "/v2/models/m/stopInfer") == 0) {
        fake_stop(f, x);
    } else if (strcmp(http_x_method(x), "GET") == 0 || strcmp(path, "/v1/tokenizer") == 0) {
        http_x_reply(x, 200, "text/plain", path, strlen(path));
    } else {
        fake_infer(f, x);
    }
}

static void fake_open(struct fake *f, uint16_t port) {
    struct errbuf eb = {0};
    struct http_server_opts o = {
        .host = "127.0.0.1", .port = port, .on_request = fake_request, .arg = f};
    if (http_server_open(&f->server, fc.co.loop, &o, &eb) != ERR_OK) fail_msg("%s", eb.text);
    f->port = http_server_port(f->server);
}

/* As a killed process looks: every connection breaks, and nobody listens. */
static inline void fake_kill(struct fake *f) {
    http_server_close(&f->server);
    f->dresult = NULL;
    loop_timer_stop(&f->beat);
    f->role = ROLE_NONE;
    f->role_status = ROLE_STATUS_UNKNOWN;
    f->n_peers = 0;
}

static struct inst *fake_inst(const struct fake *f) {
    return registry_find(&fc.co.reg, f->id);
}

/* Writes one frame of the result stream. tokens: as emitted.h writes them. */
static inline void fake_send(struct fake *f, const struct held *h, struct dresult_frame fr,
                             const char *body, const char *tokens) {
    struct wr w = WR_INIT;
    struct emitted list[64];
    for (size_t at = 0; at < strlen(tokens); fr.n_tokens++)
        assert_int_equal(emitted_parse(tokens, strlen(tokens), &at, &list[fr.n_tokens]), ERR_OK);
    fr.tokens = list;
    fr.req_id = h->req_id;
    fr.epoch = (uint32_t)strtoul(h->epoch, NULL, 10);
    fr.body = body;
    fr.body_len = strlen(body);
    assert_int_equal(dresult_pack(&w, 2, &fr), ERR_OK);
    assert_non_null(f->dresult);
    http_x_stream_write(f->dresult, w.data, w.len);
    wr_free(&w);
}

static inline void fake_frame(struct fake *f, const struct held *h, uint64_t seq,
                              enum dresult_kind kind, int status, const char *body) {
    fake_send(f, h, (struct dresult_frame){.kind = kind, .seq = seq, .status = status}, body, "");
}

static inline void fake_error(struct held *h, enum cause cause, int status, const char *body) {
    assert_non_null(h->x);
    http_x_on_close(h->x, NULL, NULL);
    http_x_set_header(h->x, CAUSE_HEADER, cause_name(cause));
    http_x_reply(h->x, status, "application/json", body, strlen(body));
    h->x = NULL;
}

static inline void fake_reply(struct held *h, int status, const char *body) {
    assert_non_null(h->x);
    http_x_on_close(h->x, NULL, NULL);
    http_x_reply(h->x, status, "application/json", body, strlen(body));
    h->x = NULL;
}

/* ---- clients */
struct client {
    int fd;
    struct loop_fd *w;
    struct buf in;
    bool ended;
};

static void client_read(void *arg, int fd, int events) {
    struct client *c = arg;
    char part[4096];
    ssize_t n = recv(fd, part, sizeof(part), 0);
    (void)events;
    if (n > 0) {
        buf_append(&c->in, part, (size_t)n);
    } else {
        c->ended = true;
        loop_fd_unwatch(&c->w);
    }
}

/* extra: header lines, each with its line end. */
static inline void client_ask(struct client *c, const char *method, const char *path,
                              const char *extra, const char *body) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(fc.port)};
    struct buf b = BUF_INIT;
    memset(c, 0, sizeof(*c));
    buf_puts(&c->in, "");
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fc.client_ip != NULL) {
        struct sockaddr_in own = {.sin_family = AF_INET};
        assert_int_equal(inet_pton(AF_INET, fc.client_ip, &own.sin_addr), 1);
        assert_int_equal(bind(c->fd, (struct sockaddr *)&own, sizeof(own)), 0);
    }
    assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    buf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%s", method,
               path, extra, strlen(body), body);
    assert_int_equal(send(c->fd, b.data, b.len, MSG_NOSIGNAL), (ssize_t)b.len);
    buf_free(&b);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(loop_fd_watch(&c->w, fc.co.loop, c->fd, LOOP_READ, client_read, c), ERR_OK);
}

static inline void client_close(struct client *c) {
    loop_fd_unwatch(&c->w);
    close(c->fd);
    buf_free(&c->in);
    memset(c, 0, sizeof(*c));
}

static int client_status(const struct client *c) {
    return c->in.len > 12 ? atoi(c->in.data + 9) : 0;
}

/* "\r\nName: value" is in the head. */
static bool client_has(const struct client *c, const char *line) {
    const char *end = strstr(c->in.data, "\r\n\r\n"), *at = strstr(c->in.data, line);
    return end != NULL && at != NULL && at < end;
}

/* The body so far without the chunks' framing; *whole: its end is there. malloc'd. */
static char *client_body(const struct client *c, bool *whole) {
    const char *head_end = strstr(c->in.data, "\r\n\r\n");
    struct buf out = BUF_INIT;
    *whole = false;
    buf_puts(&out, "");
    if (head_end == NULL) return buf_steal(&out);
    const char *p = head_end + 4, *end = c->in.data + c->in.len, *length;
    if (client_has(c, "Transfer-Encoding: chunked")) {
        for (;;) {
            char *digits_end;
            size_t n = strtoul(p, &digits_end, 16);
            if (digits_end == p || end - digits_end < 2) break;
            p = digits_end + 2;
            if ((size_t)(end - p) < n + 2) break;
            buf_append(&out, p, n);
            p += n + 2;
            if (n == 0) {
                *whole = true;
                break;
            }
        }
    } else if ((length = strstr(c->in.data, "Content-Length: ")) != NULL && length < head_end) {
        size_t n = strtoul(length + 16, NULL, 10);
        *whole = (size_t)(end - p) >= n;
        buf_append(&out, p, *whole ? n : (size_t)(end - p));
    } else {
        *whole = true; /* 204 */
    }
    return buf_steal(&out);
}

static bool client_done(void *arg) {
    bool whole;
    free(client_body(arg, &whole));
    return whole;
}

static inline void client_expect_at(struct client *c, int status, const char *body, int line) {
    bool whole;
    run_until_at(client_done, c, "a whole answer", line);
    char *got = client_body(c, &whole);
    if (client_status(c) != status || strcmp(got, body) != 0)
        fail_msg("line %d: got %d \"%s\", want %d \"%s\"", line, client_status(c), got, status,
                 body);
    free(got);
}
#define client_expect(c, status, body) client_expect_at(c, status, body, __LINE__)

/* ---- up and down */
static inline bool fc_ready(void *arg) {
    (void)arg;
    controller_poll_soon(&fc.co);
    return controller_ready(&fc.co);
}

/* Every instance serves. */
static inline bool fc_all_serve(void *arg) {
    (void)arg;
    controller_poll_soon(&fc.co);
    for (int i = 0; i < fc.n_fakes; i++) {
        const struct inst *in = fake_inst(&fc.fakes[i]);
        if (in == NULL || !inst_serves(in, NULL)) return false;
    }
    return true;
}

static void fc_open(const char *conf) {
    struct coordinator *co = &fc.co;
    struct errbuf eb = {0};
    memset(&fc, 0, sizeof(fc));
    budget_init(&fc.co.budget);
    log_init(getenv("FC_LOG") ? LOG_DEBUG : LOG_ERROR, STDERR_FILENO);
    if (coord_conf_parse(&co->conf, conf, strlen(conf), ".", &eb) != ERR_OK)
        fail_msg("%s", eb.text);
    co->sched = (struct schedule_conf){.policy = POLICY_LOAD_BALANCE,
                                       .limit_demand = co->conf.select_type == 2,
                                       .res_limit_rate = co->conf.res_limit_rate};
    memcpy(co->sched.coefficients, co->conf.coefficients, sizeof(co->sched.coefficients));
    budget_init(&co->budget);
    assert_int_equal(store_memory_open(&co->store), ERR_OK);
    co->reg.co = co;
    co->reg.store = co->store;
    assert_int_equal(loop_create(&co->loop), ERR_OK);
    assert_int_equal(http_client_create(&co->client, co->loop, "Coordinator/1.0"), ERR_OK);
    assert_int_equal(relay_set_create(&co->relays, co), ERR_OK);
    const struct http_server_opts o = {.host = "127.0.0.1", .name = "MindIE-MS"};
    const struct dispatch d = coord_dispatch(co);
    if (dispatch_listen(&fc.front, co->loop, &d, PLANE_DATA | PLANE_MGMT | PLANE_STATUS, &o, &eb) !=
        ERR_OK)
        fail_msg("%s", eb.text);
    fc.port = http_server_port(fc.front.server);
    assert_int_equal(controller_start(co, &eb), ERR_OK);
}

static inline struct fake *fc_add(int label) {
    struct fake *f = &fc.fakes[fc.n_fakes++];
    struct node_conf n = {0};
    memset(f, 0, sizeof(*f));
    f->slots = 8;
    f->label = label;
    fake_open(f, 0);
    strcpy(n.ip, "127.0.0.1");
    strcpy(n.mgmt_ip, "127.0.0.1");
    n.port = n.mgmt_port = n.metric_port = n.inter_comm_port = f->port;
    n.label = label;
    n.n_devices = 1;
    n.devices = calloc(1, sizeof(*n.devices));
    strcpy(n.devices[0].device_id, "0");
    strcpy(n.devices[0].device_logical_id, "0");
    strcpy(n.devices[0].rank_id, "0");
    strcpy(n.devices[0].device_ip, "127.0.0.1");
    struct inst *in = controller_register(&fc.co, &n);
    assert_non_null(in);
    f->id = (uint32_t)fc.n_fakes; /* easier to read than one of a port */
    registry_set_id(&fc.co.reg, in, f->id);
    return f;
}

/* So many of each role, all of them serving. */
static inline void fc_start(const char *conf, int n_p, int n_d) {
    fc_open(conf);
    for (int i = 0; i < n_p + n_d; i++)
        fc_add(i < n_p ? LABEL_PREFILL_STATIC : LABEL_DECODE_STATIC);
    run_until(fc_all_serve, NULL);
}

/* Facts of one instance (struct fake), looked at anew each time. */
static inline bool fc_serves(void *arg) {
    const struct inst *in = fake_inst(arg);
    controller_poll_soon(&fc.co);
    return in != NULL && inst_serves(in, NULL);
}
/* A poll has brought the number of requests that it says to run. */
static inline bool fc_running_is_known(void *arg) {
    const struct fake *f = arg;
    controller_poll_soon(&fc.co);
    return fake_inst(f)->facts.status.running == f->running;
}
static inline bool fc_is_decode(void *arg) {
    controller_poll_soon(&fc.co);
    return ((struct fake *)arg)->role == ROLE_DECODE;
}

static void fc_close(void) {
    struct coordinator *co = &fc.co;
    relay_abort_all(co->relays, 503, "The service has been stopped.");
    controller_stop(co);
    health_timed_close(co);
    http_server_close(&fc.front.server);
    for (int i = 0; i < fc.n_fakes; i++) {
        loop_timer_stop(&fc.fakes[i].beat);
        {
            http_server_close(&fc.fakes[i].server);
            transcript_free(&fc.fakes[i].record);
        }
    }
    relay_set_destroy(&co->relays);
    http_client_destroy(&co->client);
    lora_forget_all(co);
    loop_destroy(&co->loop);
    store_close(&co->store);
}

#endif
