/* Goal: POST /v1|v2/role is answered as cluster-api 3.4 and 3.5 say, in every case; a switch lets
 * go of the old role before it starts the new one, a refused body changes nothing, and the state
 * follows what the links report. Method: a real role_ctl with a real KV plane, result stream and
 * HTTP server, around roles of the test that count their calls. */
#include "tests/unit/common/instance/kv_fixture.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/instance/inst_internal.h"
#include "common/instance/worker_priv.h"

struct counts {
    unsigned n_started, n_aborted, n_stopped; /* aborted: requests */
    enum err fail_start;
};

static struct {
    struct instance in;
    struct worker worker; /* none of its calls but one, which needs no thread */
    struct http_server *server;
    struct side kv;
    struct counts p, d, alone;
    bool both; /* roles may be active together */
    int version;
    enum inst_role word;
    /* the answer */
    struct http_client *client;
    bool answered;
    int status;
    char body[1024];
} t;

/* For what must hold inside a callback, where cmocka cannot leave the loop. */
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) abort();                                                                      \
    } while (0)

/* ---- roles of the test: self is the counts */
static enum err start_in(void **self, struct counts *c) {
    *self = NULL;
    if (c->fail_start != ERR_OK) return c->fail_start;
    c->n_started++;
    *self = c;
    return ERR_OK;
}
static enum err p_start(void **self, struct instance *in) {
    REQUIRE(in == &t.in && (t.both || t.d.n_started == t.d.n_stopped)); /* the other is gone */
    return start_in(self, &t.p);
}
static enum err d_start(void **self, struct instance *in) {
    REQUIRE(in == &t.in && (t.both || t.p.n_started == t.p.n_stopped));
    return start_in(self, &t.d);
}
static enum err alone_start(void **self, struct instance *in) {
    (void)in;
    return start_in(self, &t.alone);
}
static void role_stop_fn(void **self) {
    struct counts *c = *self;
    req_set_abort(t.in.reqs,
                  c == &t.p   ? ROLE_PREFILL
                  : c == &t.d ? ROLE_DECODE
                              : ROLE_MIXED,
                  ERR_STOPPING);
    c->n_stopped++;
    *self = NULL;
}
static const struct role_ops p_ops = {
    .role = ROLE_PREFILL, .needs = CAN_PREFILL, .start = p_start, .stop = role_stop_fn};
static const struct role_ops d_ops = {
    .role = ROLE_DECODE, .needs = CAN_DECODE, .start = d_start, .stop = role_stop_fn};
static const struct role_ops alone_ops = {
    .role = ROLE_MIXED, .needs = CAN_BOTH, .start = alone_start, .stop = role_stop_fn};
static const struct role_ops *const roles[] = {&p_ops, &d_ops, &alone_ops, NULL};

/* ---- their requests */
struct request {
    struct inst_req of;
    enum req_phase phase;
};
static void request_fail(struct inst_req *r, enum cause cause, int status, const char *text) {
    REQUIRE(cause == r->kind->stopping && status == 503);
    (r->kind->role == ROLE_PREFILL ? &t.p : &t.d)->n_aborted++;
    req_end(r, REQ_FAILED, "failed", "%s", text);
    free(r);
}
static enum req_phase request_phase(const struct inst_req *r) {
    return ((const struct request *)r)->phase;
}
static const struct req_kind kinds[] = {[ROLE_PREFILL] = {.area = "p",
                                                          .role = ROLE_PREFILL,
                                                          .stopping = CAUSE_P_NOT_SERVING,
                                                          .fail = request_fail,
                                                          .phase = request_phase},
                                        [ROLE_DECODE] = {.area = "d",
                                                         .role = ROLE_DECODE,
                                                         .stopping = CAUSE_D_STOPPING,
                                                         .fail = request_fail,
                                                         .phase = request_phase}};

/* Requests of the role, instead of those it had. */
static void have(enum inst_role role, unsigned waiting, unsigned running, unsigned leases) {
    const unsigned n[] = {[REQ_WAITING] = waiting, [REQ_RUNNING] = running, [REQ_LEASED] = leases};
    for (struct inst_req *r; (r = req_set_next(t.in.reqs, &kinds[role], NULL)) != NULL; free(r))
        req_end(r, REQ_ANSWERED, "finished", "%s", "");
    for (enum req_phase phase = REQ_WAITING; phase <= REQ_LEASED; phase++) {
        for (unsigned i = 0; i < n[phase]; i++) {
            struct request *q = calloc(1, sizeof(*q));
            assert_non_null(q);
            q->phase = phase;
            q->of = (struct inst_req){.kind = &kinds[role], .id = "1", .tenant = ""};
            req_begin(t.in.reqs, &q->of);
        }
    }
}

/* ---- up and down */
static void on_request(void *arg, struct http_x *x) {
    (void)arg;
    if (strcmp(http_x_path(x), "/dresult") == 0) {
        role_ctl_listen(t.in.role_ctl, x);
    } else {
        role_ctl_post(t.in.role_ctl, x, t.version, t.word);
    }
}

static void on_settled(void *arg, unsigned n_ok, unsigned n_wanted) {
    side_on_settled(arg, n_ok, n_wanted);
    role_ctl_on_settled(t.in.role_ctl, n_ok);
}

static int set_up(void **state) {
    struct errbuf eb;
    struct http_server_opts o = {.host = "127.0.0.1", .on_request = on_request};
    (void)state;
    memset(&t, 0, sizeof(t));
    log_init(LOG_ERROR, STDERR_FILENO);
    strcpy(t.in.conf.infer_mode, "dmi");
    t.in.conf.world_size = 1;
    assert_int_equal(loop_create(&t.in.loop), ERR_OK);
    t.in.conf.token_timeout_s = t.in.conf.e2e_timeout_s = 600;
    assert_int_equal(req_set_create(&t.in.reqs, &t.in), ERR_OK);
    assert_int_equal(role_ctl_create(&t.in.role_ctl, &t.in, roles), ERR_OK);
    assert_int_equal(dresult_out_create(&t.in.dresult, t.in.loop, NULL), ERR_OK);
    assert_int_equal(http_server_open(&t.server, t.in.loop, &o, &eb), ERR_OK);
    assert_int_equal(http_client_create(&t.client, t.in.loop, "t"), ERR_OK);
    t.in.worker = &t.worker;
    side_init(&t.kv, t.in.loop, 1);
    t.kv.o.settle_ms = 500;
    t.kv.o.on_settled = on_settled;
    t.kv.o.on_link = side_on_link;
    t.kv.o.arg = &t.kv;
    assert_int_equal(kv_plane_open(&t.in.kv_plane, &t.kv.o, &eb), ERR_OK);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    role_ctl_destroy(&t.in.role_ctl);
    http_server_close(&t.server);
    http_client_destroy(&t.client);
    kv_plane_close(&t.in.kv_plane);
    dresult_out_destroy(&t.in.dresult);
    have(ROLE_PREFILL, 0, 0, 0);
    have(ROLE_DECODE, 0, 0, 0);
    req_set_destroy(&t.in.reqs);
    loop_destroy(&t.in.loop);
    free(t.kv.mem.bytes);
    assert_int_equal(t.p.n_started, t.p.n_stopped);
    assert_int_equal(t.d.n_started, t.d.n_stopped);
    assert_int_equal(t.alone.n_started, t.alone.n_stopped);
    return 0;
}

static void on_done(void *arg, const struct http_result *r) {
    (void)arg;
    t.answered = true;
    t.status = r->status;
    snprintf(t.body, sizeof(t.body), "%s", r->body);
    loop_stop(t.in.loop);
}

static void post(int version, enum inst_role word, const char *body) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    char url[64];
    t.version = version;
    t.word = word;
    t.answered = false;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/role", http_server_port(t.server));
    struct http_call_opts o = {.method = "POST",
                               .url = url,
                               .headers = headers,
                               .body = body,
                               .body_len = strlen(body),
                               .total_ms = DEADLINE_MS,
                               .on_done = on_done};
    assert_int_equal(http_client_call(t.client, &o, NULL), ERR_OK);
    while (!t.answered) loop_run(t.in.loop);
}

static void expect_at(int status, const char *error, const char *detail, int line) {
    if (t.status != status || (error != NULL && strstr(t.body, error) == NULL) ||
        (detail != NULL && strstr(t.body, detail) == NULL))
        fail_msg("line %d: %d %s", line, t.status, t.body);
}
#define expect(status, error, detail) expect_at(status, error, detail, __LINE__)

#define NODE(id, ip)                                                                               \
    "{\"server_ip\":\"" ip "\",\"id\":" id ",\"host_ip\":\"" ip                                    \
    "\",\"inter_comm_port\":\"1\",\"device\":[{\"device_id\":\"0\","                               \
    "\"device_logical_id\":\"0\",\"device_ip\":\"" ip "\",\"rank_id\":\"0\"}]}"
#define BODY(id, peers, more) "{\"local\":" NODE(id, "127.0.0.1") ",\"peers\":[" peers "]" more "}"
#define PEER                  NODE("21", "127.0.0.1")
#define OK                    "{\"result\":\"ok\"}"
#define JSON_FAIL             "Req body converts to json fail. Reset to previous node status."
#define UPDATE_FAIL           "Update pd info failed. Reset to previous node status."

static void expect_role(enum inst_role role, enum role_status status) {
    assert_int_equal(role_ctl_role(t.in.role_ctl), role);
    assert_int_equal(role_ctl_status(t.in.role_ctl), status);
    const unsigned can = role_ctl_can(t.in.role_ctl);
    assert_int_equal(can == 0, role == ROLE_NONE);
    assert_int_equal(t.p.n_started - t.p.n_stopped, (can & CAN_PREFILL) != 0 && role != ROLE_MIXED);
    assert_int_equal(t.d.n_started - t.d.n_stopped, (can & CAN_DECODE) != 0 && role != ROLE_MIXED);
    assert_int_equal(t.alone.n_started - t.alone.n_stopped, can == CAN_BOTH);
}

/* ---- the cases */

/* What is wrong with a body; the role stays none. */
static void refused_bodies(void **state) {
    static const struct {
        int version, status;
        const char *body, *error, *detail;
        enum inst_role word;
    } rows[] = {
        {1, 422, "{", JSON_FAIL, NULL, ROLE_PREFILL},
        {1, 422, "{}", JSON_FAIL, "local", ROLE_PREFILL},
        {2, 503, "{}", "Parse req json failed. Reset to previous node status.", "local",
         ROLE_PREFILL},
        {1, 503, BODY("11", "", ""), UPDATE_FAIL,
         "peers must not be empty when a role is given for the first time", ROLE_PREFILL},
        {1, 503, "{\"local\":" NODE("11", "127.0.0.1") "}", UPDATE_FAIL,
         "peers must not be empty when a role is given for the first time", ROLE_DECODE},
        {1, 422, BODY("21", PEER, ""), JSON_FAIL, "peers[0].id must not be the own id 21",
         ROLE_PREFILL},
        {1, 422,
         "{\"local\":{\"server_ip\":\"127.0.0.1\",\"device\":[{\"device_id\":\"0\",\"device_"
         "logical_id\":\"0\",\"device_ip\":\"127.0.0.1\"},{\"device_id\":\"1\",\"device_logical_"
         "id\":\"1\",\"device_ip\":\"127.0.0.1\"}]},\"peers\":[" PEER "]}",
         JSON_FAIL, "local.device must have 1 entries (worldSize), got 2", ROLE_PREFILL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        post(rows[i].version, rows[i].word, rows[i].body);
        if (t.status != rows[i].status || strstr(t.body, rows[i].error) == NULL ||
            (rows[i].detail != NULL && strstr(t.body, rows[i].detail) == NULL))
            fail_msg("row %zu: %d %s", i, t.status, t.body);
        expect_role(ROLE_NONE, ROLE_STATUS_UNKNOWN);
        assert_int_equal(t.p.n_started + t.d.n_started, 0);
    }
    strcpy(t.in.conf.infer_mode, "standard");
    post(1, ROLE_PREFILL, BODY("11", PEER, ""));
    expect(400, UPDATE_FAIL, "ServerConfig.inferMode must be dmi");
}

static bool is_settled(void *arg) {
    return t.kv.n_settled >= *(unsigned *)arg;
}

/* A role, its state, the same one again, other peers. */
static void takes_a_role(void **state) {
    struct side d = {0};
    struct errbuf eb;
    char body[1024];
    unsigned want = 1;
    (void)state;
    /* a peer that answers, so that the link comes up */
    side_init(&d, t.in.loop, 2);
    assert_int_equal(kv_plane_open(&d.kp, &d.o, &eb), ERR_OK);
    struct role_node self = {.server_ip = "127.0.0.1",
                             .has_id = true,
                             .id = 11,
                             .inter_comm_port = kv_plane_port(t.in.kv_plane)};
    assert_int_equal(kv_plane_want(d.kp, CAN_DECODE, 21, &self, 1), ERR_OK);

    snprintf(body, sizeof(body),
             BODY("11",
                  "{\"server_ip\":\"127.0.0.1\",\"id\":21,\"host_ip\":\"127.0.0.1\",\"inter_comm_"
                  "port\":%u,\"device\":[{\"device_id\":\"0\",\"device_logical_id\":\"0\",\"device_"
                  "ip\":\"127.0.0.1\"}]}",
                  ""),
             kv_plane_port(d.kp));
    post(1, ROLE_PREFILL, body);
    expect(200, OK, NULL);
    /* at once; the link may be up before this side has read the answer */
    expect_role(ROLE_PREFILL, t.kv.n_settled == 0 ? ROLE_STATUS_SWITCHING : ROLE_STATUS_READY);
    assert_int_equal(role_ctl_id(t.in.role_ctl), 11);
    WAIT_FOR(t.in.loop, is_settled, &want);
    expect_role(ROLE_PREFILL, ROLE_STATUS_READY);
    want = t.kv.n_settled + 1;
    post(1, ROLE_PREFILL, body); /* harmless */
    expect(200, OK, NULL);
    WAIT_FOR(t.in.loop, is_settled, &want);
    expect_role(ROLE_PREFILL, ROLE_STATUS_READY);
    assert_int_equal(t.p.n_started, 1);
    post(1, ROLE_PREFILL, BODY("11", "", "")); /* who has a role may stand alone */
    expect(200, OK, NULL);
    assert_int_equal(t.p.n_started, 1);
    assert_int_equal(t.p.n_aborted, 0);
    kv_plane_close(&d.kp);
    free(d.mem.bytes);
}

/* No link comes up: the role stays SWITCHING, and a D with a failed link and no good one is not
 * healthy. */
static void no_link(void **state) {
    unsigned want = 1;
    (void)state;
    post(1, ROLE_DECODE, BODY("11", PEER, ""));
    expect(200, OK, NULL);
    WAIT_FOR(t.in.loop, is_settled, &want);
    expect_role(ROLE_DECODE, ROLE_STATUS_SWITCHING);
    assert_true(role_ctl_unhealthy(t.in.role_ctl));
    post(1, ROLE_PREFILL, BODY("11", PEER, ""));
    assert_false(role_ctl_unhealthy(t.in.role_ctl)); /* a P always is */
}

static void on_dresult_done(void *arg, const struct http_result *r) {
    (void)r;
    *(bool *)arg = true;
}

/* P to D and back: idle only, or by force; the old role ends before the new one starts. */
static void switches(void **state) {
    static const struct role_load loads[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    bool stream_ended = false;
    char url[64];
    (void)state;
    post(1, ROLE_DECODE, BODY("11", PEER, ""));
    expect(200, OK, NULL);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/dresult", http_server_port(t.server));
    struct http_call_opts o = {
        .method = "GET", .url = url, .on_done = on_dresult_done, .arg = &stream_ended};
    assert_int_equal(http_client_call(t.client, &o, NULL), ERR_OK);
    while (!dresult_out_has_listener(t.in.dresult)) {
        post(1, ROLE_DECODE, BODY("11", PEER, ""));
        expect(200, OK, NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        have(ROLE_DECODE, loads[i].waiting, loads[i].running, loads[i].leases);
        post(1, ROLE_PREFILL, BODY("11", PEER, ""));
        expect(409, UPDATE_FAIL, "decode to prefill needs an idle instance");
        expect_role(ROLE_DECODE, role_ctl_status(t.in.role_ctl));
        post(1, ROLE_DECODE, BODY("11", PEER, "")); /* its own role is no switch */
        expect(200, OK, NULL);
    }
    assert_int_equal(t.d.n_aborted + t.d.n_stopped + t.p.n_started, 0);
    assert_true(dresult_out_has_listener(t.in.dresult));
    have(ROLE_DECODE, 1, 2, 3);
    post(1, ROLE_PREFILL, BODY("11", PEER, ",\"force\":true"));
    expect(200, OK, NULL);
    assert_true(t.d.n_aborted == 6 && t.d.n_stopped == 1 && t.p.n_started == 1);
    assert_false(dresult_out_has_listener(t.in.dresult)); /* a P has no result stream */
    expect_role(ROLE_PREFILL, ROLE_STATUS_SWITCHING);
    post(2, ROLE_DECODE,
         "{\"local\":[{\"server_ip\":\"127.0.0.1\",\"host_ip\":\"127.0.0.1\",\"dp_inst_list\":[{"
         "\"dp_inst_id\":110000,\"device\":[{\"device_id\":\"0\",\"device_ip\":\"127.0.0.1\","
         "\"device_logical_id\":\"0\",\"rank_id\":\"0\"}]}]}],\"peers\":[[{\"server_ip\":"
         "\"127.0.0.1\",\"host_ip\":\"127.0.0.1\",\"dp_inst_list\":[{\"dp_inst_id\":210000,"
         "\"device\":[{\"device_id\":\"0\",\"device_ip\":\"127.0.0.1\",\"device_logical_id\":\"0\","
         "\"rank_id\":\"0\"}]}]}]]}");
    expect(200, OK, NULL);
    expect_role(ROLE_DECODE, ROLE_STATUS_SWITCHING);
    assert_int_equal(role_ctl_id(t.in.role_ctl), 11);
    assert_true(t.p.n_stopped == 1 && t.d.n_started == 2);
}

static void on_listen_done(void *arg, const struct http_result *r) {
    snprintf(arg, 256, "%d %.240s", r->status, r->body != NULL ? r->body : "");
}

/* Begins a stream; what it is refused with, or "" while it stands. */
static const char *listen_as(const char *term, const char *session) {
    static char said[8][256];
    static unsigned n;
    char *out = said[n++ % 8], url[64];
    bool had = dresult_out_has_listener(t.in.dresult);
    const char *const headers[] = {"dresult-version: 2", "baton-heartbeat-ms: 10000", term, session,
                                   NULL};
    out[0] = 0;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/dresult", http_server_port(t.server));
    struct http_call_opts o = {
        .method = "GET", .url = url, .headers = headers, .on_done = on_listen_done, .arg = out};
    assert_int_equal(http_client_call(t.client, &o, NULL), ERR_OK);
    for (int i = 0; i < 3 || (!had && out[0] == 0 && !dresult_out_has_listener(t.in.dresult));
         i++) {
        t.version = 1;
        post(1, ROLE_DECODE, BODY("11", PEER, "")); /* turns the loop */
    }
    return out;
}

/* Another session ends what runs; the same one does not. Terms only grow. */
static void terms_and_sessions(void **state) {
    (void)state;
    post(1, ROLE_DECODE, BODY("11", PEER, ""));
    have(ROLE_DECODE, 0, 2, 0);
    assert_string_equal(listen_as("coordinator-epoch: 50", "baton-session: a.0"), "");
    assert_int_equal(t.d.n_aborted, 2);
    have(ROLE_DECODE, 0, 1, 0);
    assert_int_equal(role_ctl_term(t.in.role_ctl), 50);
    assert_string_equal(listen_as("coordinator-epoch: 50", "baton-session: a.0"), "");
    assert_int_equal(t.d.n_aborted, 2);
    assert_non_null(strstr(listen_as("coordinator-epoch: 49", "baton-session: b.0"),
                           "409 {\"error\":\"The coordinator is not obeyed.\""));
    assert_int_equal(t.d.n_aborted, 2); /* it does not even end a session */
    assert_string_equal(listen_as("coordinator-epoch: 51", "baton-session: b.0"), "");
    assert_int_equal(t.d.n_aborted, 3);
    static const char *const wrong[] = {"coordinator-epoch: -1", "coordinator-epoch: 1x",
                                        "coordinator-epoch: 99999999999999999999",
                                        "coordinator-epoch: +5", "coordinator-epoch: 0x50"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_non_null(strstr(listen_as(wrong[i], "baton-session: c.0"), "422 "));
    assert_int_equal(role_ctl_term(t.in.role_ctl), 51);
    assert_int_equal(t.d.n_aborted, 3);
}

#define FLEX_BODY(share, peers, more)                                                              \
    "{\"local\":{\"server_ip\":\"127.0.0.1\"" share                                                \
    ",\"device\":[{\"device_id\":\"0\",\"device_logical_id\":\"0\",\"device_ip\":\"127.0.0.1\"}]}" \
    ","                                                                                            \
    "\"peers\":[" peers "]" more "}"
#define SHARE(n) ",\"p_percentage\":" n

/* A flex is the set that its share says, and is called flex whatever that is. */
static void flex(void **state) {
    (void)state;
    t.both = true;
    post(1, ROLE_FLEX, FLEX_BODY("", PEER, ""));
    expect(422, JSON_FAIL, "local.p_percentage must be an integer from 0 to 100, got none");
    post(1, ROLE_FLEX, FLEX_BODY(SHARE("101"), PEER, ""));
    expect(422, JSON_FAIL, "p_percentage must be an integer from 0 to 100");
    post(1, ROLE_FLEX, FLEX_BODY(SHARE("100"), "", ""));
    expect(503, UPDATE_FAIL, "peers must not be empty when a role is given for the first time");
    expect_role(ROLE_NONE, ROLE_STATUS_UNKNOWN);
    static const struct {
        const char *body;
        unsigned can;
        int share;
    } rows[] = {{FLEX_BODY(SHARE("100"), PEER, ""), CAN_PREFILL, 100},
                {FLEX_BODY(SHARE("0"), PEER, ""), CAN_DECODE, 0},
                {FLEX_BODY(SHARE("1"), PEER, ""), CAN_BOTH, 1},
                {FLEX_BODY(SHARE("99"), PEER, ""), CAN_BOTH, 99},
                {FLEX_BODY(SHARE("0"), PEER, ""), CAN_DECODE, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        post(1, ROLE_FLEX, rows[i].body);
        expect(200, OK, NULL);
        expect_role(ROLE_FLEX, ROLE_STATUS_SWITCHING);
        assert_int_equal(role_ctl_can(t.in.role_ctl), rows[i].can);
        assert_int_equal(role_ctl_share(t.in.role_ctl), rows[i].share);
        /* it bounds prefill where both are done */
        assert_int_equal(atomic_load(&t.worker.prefill_share),
                         rows[i].can == CAN_BOTH ? rows[i].share : 0);
        assert_int_equal(role_ctl_id(t.in.role_ctl), 0x7f000001); /* no id: the address stands in */
    }
    assert_true(t.alone.n_started == 1 && t.d.n_started == 1 && t.p.n_started == 2);
}

/* To can more needs no idle instance and ends nothing; who loses a capability must be idle in it.
 */
static void a_set_grows_and_shrinks(void **state) {
    unsigned want = 1;
    (void)state;
    t.both = true;
    post(1, ROLE_PREFILL, BODY("11", PEER, ""));
    expect(200, OK, NULL);
    have(ROLE_PREFILL, 1, 1, 1);
    post(1, ROLE_FLEX, FLEX_BODY(SHARE("50"), "", ""));
    expect(200, OK, NULL);
    assert_int_equal(t.p.n_aborted + t.p.n_stopped, 0);
    WAIT_FOR(t.in.loop, is_settled, &want);
    expect_role(ROLE_FLEX, ROLE_STATUS_READY); /* without a link: it can do all alone */
    assert_false(role_ctl_unhealthy(t.in.role_ctl));
    have(ROLE_DECODE, 0, 1, 0);
    post(1, ROLE_PREFILL, BODY("11", PEER, ""));
    expect(409, UPDATE_FAIL, "flex to prefill needs an idle instance: 0 waiting, 1 running, 0 KV");
    expect_role(ROLE_FLEX, ROLE_STATUS_READY);
    have(ROLE_DECODE, 0, 0, 0);
    post(1, ROLE_PREFILL, BODY("11", PEER, "")); /* what P has is no hindrance */
    expect(200, OK, NULL);
    expect_role(ROLE_PREFILL, ROLE_STATUS_SWITCHING);
    assert_true(t.p.n_aborted == 0 && t.p.n_stopped == 0 && t.d.n_stopped == 1);
    post(1, ROLE_FLEX, FLEX_BODY(SHARE("50"), "", ",\"force\":true"));
    have(ROLE_DECODE, 1, 0, 0);
    post(1, ROLE_PREFILL, BODY("11", PEER, ",\"force\":true"));
    expect(200, OK, NULL);
    assert_true(t.d.n_aborted == 1 && t.p.n_aborted == 0);
}

/* The new role cannot start: there is none then, and the next post is a first one. */
static void start_fails(void **state) {
    (void)state;
    t.p.fail_start = ERR_NO_MEMORY;
    post(1, ROLE_PREFILL, BODY("11", PEER, ""));
    expect(503, UPDATE_FAIL, "out of memory");
    expect_role(ROLE_NONE, ROLE_STATUS_UNKNOWN);
    post(1, ROLE_DECODE, BODY("11", PEER, ""));
    expect(200, OK, NULL);
    post(1, ROLE_PREFILL, BODY("11", PEER, ""));
    expect(503, UPDATE_FAIL, "out of memory");
    expect_role(ROLE_NONE, ROLE_STATUS_UNKNOWN);
    assert_int_equal(t.d.n_stopped, 1);
    t.p.fail_start = ERR_OK;
    post(1, ROLE_PREFILL, BODY("11", PEER, ""));
    expect(200, OK, NULL);
    expect_role(ROLE_PREFILL, ROLE_STATUS_SWITCHING);
}

/* Standard mode: a role without a body, and links are nobody's affair. */
static void alone(void **state) {
    struct role_load load;
    (void)state;
    role_ctl_on_settled(t.in.role_ctl, 1); /* nothing to tell yet */
    t.alone.fail_start = ERR_NO_MEMORY;
    assert_int_equal(role_ctl_start_alone(t.in.role_ctl), ERR_NO_MEMORY);
    expect_role(ROLE_NONE, ROLE_STATUS_UNKNOWN);
    t.alone.fail_start = ERR_OK;
    assert_int_equal(role_ctl_start_alone(t.in.role_ctl), ERR_OK);
    expect_role(ROLE_MIXED, ROLE_STATUS_READY);
    have(ROLE_PREFILL, 1, 2, 3);
    req_set_load(t.in.reqs, ROLE_NONE, &load);
    assert_true(load.waiting == 1 && load.running == 2 && load.leases == 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(refused_bodies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_a_role, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(switches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(terms_and_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(flex, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_set_grows_and_shrinks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(start_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(alone, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
