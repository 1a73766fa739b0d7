/* Goal: one candidate at a time leads, under terms that rise; a leader goes when its lease may have
 * ended, when etcd says so, or when a write is refused; answers that cannot be read, lost tokens
 * and members that are away do no harm. Method: a gateway of the test on the same loop, with a
 * lock, a lease and a state that behave as etcd's, and orders to be mute or wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "common/base/base64.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/http_client.h"
#include "common/net/http_server.h"
#include "common/net/loop.h"
#include "coordinator/store_etcd.h"
#include "proto/json.h"
#include "tests/unit/pace.h"

#define FAR         9000000000000000u /* a term above those of this time */
#define DEADLINE_MS pace_ms(20000)
enum { HELD_MAX = 64 };

/* ---- the gateway */
static struct gateway {
    struct http_server *server;
    uint16_t port;
    /* what it holds */
    int64_t revision, lock_created, lease;
    char lock[64];
    struct buf state;
    /* what it is told to do */
    bool mute, refuse_writes;
    const char *token; /* that it asks for; NULL: none */
    const char *junk;  /* instead of any answer */
    bool lease_gone;
    /* what it was asked */
    unsigned n_logins, n_writes, n_grants, n_revokes;
    struct http_x *held[HELD_MAX];
    unsigned n_held;
} gw;

static struct fx {
    struct loop *loop;
    struct http_client *client;
    struct etcd etcd;
    struct store *store;
    unsigned n_led, n_yielded;
    bool left;
    char why[256];
} fx;

static void reply(struct http_x *x, int status, struct buf *b) {
    assert_false(b->failed);
    http_x_reply(x, status, "application/json", b->data, b->len);
    buf_free(b);
}

static void put_header(struct buf *b) {
    buf_printf(b, "{\"header\":{\"revision\":\"%lld\"}", (long long)gw.revision);
}

static void put_key(struct buf *b, const char *value, size_t n, int64_t created, int64_t lease) {
    buf_printf(b, "\"kvs\":[{\"create_revision\":\"%lld\",\"value\":\"", (long long)created);
    base64_put(b, value, n);
    buf_printf(b, "\"");
    if (lease != 0) buf_printf(b, ",\"lease\":\"%lld\"", (long long)lease);
    buf_puts(b, "}]");
}

static void put_lock(struct buf *b) {
    put_key(b, gw.lock, strlen(gw.lock), gw.lock_created, gw.lease);
}

/* The text of a member of an object in the body, out of base64 where it is of that. */
static void text_of(char *out, size_t cap, const struct json_value *o, const char *member,
                    bool encoded) {
    const char *s;
    size_t n;
    struct buf b = BUF_INIT;
    assert_int_equal(json_get_str(o, member, &s, &n), JSON_OK);
    if (encoded)
        assert_true(base64_take(&b, s, n));
    else
        buf_append(&b, s, n);
    assert_true(b.len < cap);
    memcpy(out, b.data, b.len);
    out[b.len] = '\0';
    buf_free(&b);
}

static void serve_txn(struct http_x *x, const struct json_value *root) {
    struct json_value *arr, *put;
    char created[32], value[1024];
    struct buf b = BUF_INIT;
    assert_int_equal(json_get_arr(root, "compare", &arr), JSON_OK);
    text_of(created, sizeof(created), json_arr_at(arr, 0), "createRevision", false);
    assert_int_equal(json_get_arr(root, "success", &arr), JSON_OK);
    assert_int_equal(json_get_obj(json_arr_at(arr, 0), "requestPut", &put), JSON_OK);
    text_of(value, sizeof(value), put, "value", true);
    const bool campaigns = strcmp(created, "0") == 0;
    const bool holds =
        strtoll(created, NULL, 10) == gw.lock_created && (campaigns || !gw.refuse_writes);
    if (holds) gw.revision++;
    if (holds && campaigns) {
        gw.lock_created = gw.revision;
        snprintf(gw.lock, sizeof(gw.lock), "%.60s", value);
    } else if (holds) {
        gw.n_writes++;
        buf_clear(&gw.state);
        buf_puts(&gw.state, value);
    }
    put_header(&b);
    buf_printf(&b, "%s,\"responses\":[", holds ? ",\"succeeded\":true" : "");
    if (holds) buf_puts(&b, "{\"response_put\":{}}");
    if (holds && campaigns) {
        buf_puts(&b, ",{\"response_range\":{");
        if (gw.state.len > 0) put_key(&b, gw.state.data, gw.state.len, 1, 0);
        buf_puts(&b, "}}");
    }
    if (!holds && campaigns) {
        buf_puts(&b, "{\"response_range\":{");
        put_lock(&b);
        buf_puts(&b, "}}");
    }
    buf_puts(&b, "]}");
    reply(x, 200, &b);
}

static void serve_lease(struct http_x *x, const char *path) {
    struct buf b = BUF_INIT;
    if (strcmp(path, "/v3/lease/grant") == 0) {
        gw.n_grants++;
        gw.lease = 100 + gw.n_grants;
        gw.lease_gone = false;
        put_header(&b);
        buf_printf(&b, ",\"ID\":\"%lld\",\"TTL\":\"1\"}", (long long)gw.lease);
    } else if (strcmp(path, "/v3/lease/keepalive") == 0) {
        buf_puts(&b, "{\"result\":");
        put_header(&b);
        buf_printf(&b, ",\"ID\":\"%lld\"%s}}", (long long)gw.lease,
                   gw.lease_gone ? "" : ",\"TTL\":\"1\"");
    } else {
        gw.n_revokes++;
        gw.lock_created = 0;
        put_header(&b);
        buf_puts(&b, "}");
    }
    reply(x, 200, &b);
}

static void refuse(struct http_x *x, int status, const char *text) {
    struct buf b = BUF_INIT;
    buf_printf(&b, "{\"error\":\"%s\",\"message\":\"%s\",\"code\":16}", text, text);
    reply(x, status, &b);
}

static void held_gone(void *arg) {
    *(struct http_x **)arg = NULL;
}

static void serve(void *arg, struct http_x *x) {
    struct json_value *root = NULL;
    struct buf b = BUF_INIT;
    const char *path = http_x_path(x), *token = http_x_header(x, "Authorization");
    size_t n;
    const char *body = http_x_body(x, &n);
    (void)arg;
    if (gw.mute) {
        assert_true(gw.n_held < HELD_MAX);
        struct http_x **at = &gw.held[gw.n_held++];
        *at = x;
        http_x_on_close(x, held_gone, at);
        return;
    }
    if (gw.junk != NULL) {
        http_x_reply(x, 200, "application/json", gw.junk, strlen(gw.junk));
        return;
    }
    assert_int_equal(json_read(&root, body, n, NULL, NULL), ERR_OK);
    if (strcmp(path, "/v3/auth/authenticate") == 0) {
        char name[32], password[32];
        gw.n_logins++;
        text_of(name, sizeof(name), root, "name", false);
        text_of(password, sizeof(password), root, "password", false);
        if (strcmp(name, "u") == 0 && strcmp(password, "p\"w") == 0) {
            put_header(&b);
            buf_printf(&b, ",\"token\":\"%s\"}", gw.token);
            reply(x, 200, &b);
        } else {
            refuse(x, 400, "authentication failed");
        }
    } else if (gw.token != NULL && (token == NULL || strcmp(token, gw.token) != 0)) {
        refuse(x, 401, "invalid auth token");
    } else if (strcmp(path, "/v3/kv/range") == 0) {
        put_header(&b);
        if (gw.lock_created != 0) {
            buf_putc(&b, ',');
            put_lock(&b);
        }
        buf_puts(&b, "}");
        reply(x, 200, &b);
    } else if (strcmp(path, "/v3/kv/txn") == 0) {
        serve_txn(x, root);
    } else {
        serve_lease(x, path);
    }
    json_put(root);
}

static size_t body_max(void *arg, const char *method, const char *path) {
    (void)arg, (void)method, (void)path;
    return 1 << 20;
}

/* ---- a candidate */
static void on_lead(void *arg) {
    (void)arg;
    fx.n_led++;
}
static void on_yield(void *arg, const char *why) {
    (void)arg;
    fx.n_yielded++;
    snprintf(fx.why, sizeof(fx.why), "%s", why);
}

static void open_store(bool keep) {
    const struct store_etcd_opts o = {.loop = fx.loop,
                                      .etcd = &fx.etcd,
                                      .prefix = "/t/",
                                      .value = "10.0.0.1:1025",
                                      .ttl_s = 1,
                                      .keep_on_loss = keep,
                                      .on_lead = on_lead,
                                      .on_yield = on_yield};
    assert_int_equal(store_etcd_open(&fx.store, &o), ERR_OK);
}

static int set_up(void **state) {
    const struct http_server_opts so = {.host = "127.0.0.1",
                                        .conns_max = 16,
                                        .head_bytes_max = 16384,
                                        .idle_ms = 60000,
                                        .read_ms = 60000,
                                        .write_ms = 60000,
                                        .stream_pending_max = 1 << 20,
                                        .body_bytes_max = body_max,
                                        .on_request = serve};
    struct errbuf eb;
    (void)state;
    log_init(LOG_NONE, 2);
    memset(&fx, 0, sizeof(fx));
    memset(&gw, 0, sizeof(gw));
    gw.revision = 41;
    if (loop_create(&fx.loop) != ERR_OK ||
        http_client_create(&fx.client, fx.loop, "test") != ERR_OK ||
        http_server_open(&gw.server, fx.loop, &so, &eb) != ERR_OK)
        return -1;
    gw.port = http_server_port(gw.server);
    fx.etcd.client = fx.client;
    fx.etcd.user = "";
    fx.etcd.n_members = 1;
    snprintf(fx.etcd.members[0], ETCD_MEMBER_BYTES, "127.0.0.1:%u", gw.port);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    store_close(&fx.store);
    http_client_destroy(&fx.client);
    http_server_close(&gw.server);
    loop_destroy(&fx.loop);
    buf_free(&gw.state);
    return 0;
}

/* ---- waiting */
struct wait {
    bool (*is_so)(void);
    uint64_t until_ms;
};
static void look(void *arg) {
    const struct wait *w = arg;
    if (w->is_so() || clock_ms() >= w->until_ms) loop_stop(fx.loop);
}
static void run_until(bool (*is_so)(void)) {
    struct wait w = {is_so, clock_ms() + DEADLINE_MS};
    struct loop_timer *t = NULL;
    assert_int_equal(loop_timer_start(&t, fx.loop, 1, 1, look, &w), ERR_OK);
    loop_run(fx.loop);
    loop_timer_stop(&t);
    assert_true(is_so());
}
static bool never(void) {
    return false;
}
/* Only to see that something does not happen. */
static void run_for(unsigned ms) {
    struct wait w = {never, clock_ms() + ms};
    struct loop_timer *t = NULL;
    assert_int_equal(loop_timer_start(&t, fx.loop, 1, 1, look, &w), ERR_OK);
    loop_run(fx.loop);
    loop_timer_stop(&t);
}

static bool leads(void) {
    return store_etcd_leads(fx.store);
}
static bool has_yielded(void) {
    return fx.n_yielded > 0;
}
static bool leads_again(void) {
    return fx.n_led > 1 && leads();
}
static bool is_unsure(void) {
    return election_is_unsure(store_etcd_election(fx.store));
}
static bool knows_leader(void) {
    return strcmp(election_leader(store_etcd_election(fx.store)), "10.0.0.2:1025") == 0;
}
static bool in_trouble(void) {
    return election_trouble(store_etcd_election(fx.store))[0] != '\0';
}
static bool has_written(void) {
    return store_written_term(fx.store) == 77;
}
static bool has_left(void) {
    return fx.left;
}

static void set_state(uint64_t term, uint32_t id) {
    const struct store_row row = {
        .identity = "10.0.0.7:1026", .id = id, .role = ROLE_DECODE, .group = 1, .drained = true};
    struct store_row rows[] = {row};
    const struct store_state s = {.term = term, .rows = rows, .n_rows = 1};
    buf_clear(&gw.state);
    assert_int_equal(store_state_format(&gw.state, &s), ERR_OK);
}

/* ---- cases */

/* The term is in etcd before anybody is told that we lead. */
static void leads_under_a_term_above_all(void **state) {
    (void)state;
    set_state(FAR, 123456);
    open_store(false);
    assert_false(leads());
    run_until(leads);
    assert_int_equal(fx.n_led, 1);
    assert_true(store_term(fx.store) == FAR + 1);
    assert_true(store_written_term(fx.store) == FAR + 1);
    assert_int_equal(store_find(fx.store, "10.0.0.7:1026")->id, 123456);
    assert_non_null(strstr(gw.state.data, "\"term\":\"9000000000000001\""));
    assert_string_equal(gw.lock, "10.0.0.1:1025");
    run_for(1500); /* longer than the lease */
    assert_true(leads());
    assert_int_equal(fx.n_yielded, 0);
    const struct store_state next = {.term = 77};
    struct errbuf eb = {0};
    assert_int_equal(store_keep(fx.store, &next, false, &eb), ERR_OK);
    run_until(has_written);
}

/* Where etcd has nothing: as a coordinator without one, so that terms rise when it is wiped and
 * another one wins. */
static void the_first_term_is_the_time(void **state) {
    (void)state;
    const uint64_t now = clock_unix_us() / 1000;
    open_store(false);
    run_until(leads);
    assert_true(store_term(fx.store) >= now && store_term(fx.store) < now + DEADLINE_MS);
}

static void a_term_is_no_less_than_the_revision(void **state) {
    (void)state;
    gw.revision = (int64_t)FAR;
    open_store(false);
    run_until(leads);
    assert_true(store_term(fx.store) == FAR + 1);
}

static void follows_whoever_has_the_lock(void **state) {
    (void)state;
    gw.lock_created = 5;
    gw.lease = 9;
    snprintf(gw.lock, sizeof(gw.lock), "10.0.0.2:1025");
    open_store(false);
    run_until(knows_leader);
    run_for(500);
    assert_false(leads());
    assert_int_equal(gw.n_grants, 0); /* it only looks */
    gw.lock_created = 0;
    run_until(leads);
}

/* No answer comes: it may not rely on the lease for longer than that lasts. */
static void a_mute_etcd(void **state) {
    (void)state;
    open_store(false);
    run_until(leads);
    const uint64_t term = store_term(fx.store);
    gw.mute = true;
    const uint64_t began = clock_ms();
    run_until(has_yielded);
    assert_true(clock_ms() - began <= 1150); /* a beat more than the lease */
    assert_false(leads());
    assert_non_null(strstr(fx.why, "not renewed in time"));
    gw.mute = false;
    gw.lock_created = 0; /* its lease ended */
    run_until(leads_again);
    assert_true(store_term(fx.store) > term);
}

/* The clock alone tells, before any callback has run. */
static void a_process_that_was_stopped(void **state) {
    (void)state;
    open_store(false);
    run_until(leads);
    const uint64_t until = clock_ms() + 1000;
    while (clock_ms() < until) { /* as SIGSTOP: the loop does not turn */
        struct timespec nap = {.tv_nsec = 10000000};
        nanosleep(&nap, NULL);
    }
    assert_false(leads());
    assert_int_equal(fx.n_yielded, 0);
    run_until(has_yielded);
}

static void keeps_on_while_etcd_is_away(void **state) {
    (void)state;
    open_store(true);
    run_until(leads);
    gw.mute = true;
    run_until(is_unsure);
    run_for(1500);
    assert_true(leads());
    store_etcd_depose(fx.store, "an instance obeys another");
    assert_int_equal(fx.n_yielded, 1);
    assert_string_equal(fx.why, "an instance obeys another");
    assert_false(leads());
}

static void the_lease_is_gone(void **state) {
    (void)state;
    open_store(false);
    run_until(leads);
    gw.lease_gone = true;
    run_until(has_yielded);
    assert_non_null(strstr(fx.why, "etcd has no lease 101 any more"));
    gw.lock_created = 0;
    run_until(leads_again);
}

static void a_refused_write_ends_it(void **state) {
    const struct store_state next = {.term = 77};
    struct errbuf eb = {0};
    (void)state;
    open_store(false);
    run_until(leads);
    gw.refuse_writes = true;
    assert_int_equal(store_keep(fx.store, &next, false, &eb), ERR_OK);
    run_until(has_yielded);
    assert_non_null(strstr(fx.why, "the lock is not ours"));
    assert_int_not_equal(store_written_term(fx.store), 77);
}

/* An etcd that was put back to an older state does not lower our term. */
static void a_stale_state(void **state) {
    (void)state;
    set_state(FAR, 123456);
    open_store(false);
    run_until(leads);
    gw.lease_gone = true;
    set_state(5, 654321);
    run_until(has_yielded);
    gw.lock_created = 0;
    run_until(leads_again);
    assert_true(store_term(fx.store) == FAR + 2);
    assert_int_equal(store_find(fx.store, "10.0.0.7:1026")->id, 123456);
}

static void a_state_that_is_none(void **state) {
    (void)state;
    buf_puts(&gw.state, "something else");
    open_store(false);
    run_until(leads);
    assert_null(store_find(fx.store, "10.0.0.7:1026"));
}

static void on_left(void *arg) {
    (void)arg;
    fx.left = true;
}

static void resigns(void **state) {
    (void)state;
    open_store(false);
    run_until(leads);
    store_etcd_resign(fx.store, true, on_left, NULL);
    assert_false(leads());
    run_until(has_left);
    assert_int_equal(gw.lock_created, 0);
    assert_int_equal(fx.n_yielded, 0);
    run_for(300);
    assert_int_equal(gw.n_grants, 1); /* never again */
}

static void resigns_from_a_mute_etcd(void **state) {
    (void)state;
    open_store(false);
    run_until(leads);
    gw.mute = true;
    store_etcd_resign(fx.store, true, on_left, NULL);
    run_until(has_left);
}

static void logs_in(void **state) {
    (void)state;
    gw.token = "one";
    fx.etcd.user = "u";
    snprintf(fx.etcd.password, sizeof(fx.etcd.password), "p\"w");
    open_store(false);
    run_until(leads);
    assert_int_equal(gw.n_logins, 1);
    gw.token = "two"; /* the first one has run out */
    run_for(1500);
    assert_true(leads());
    assert_int_equal(gw.n_logins, 2);
    assert_int_equal(fx.n_yielded, 0);
}

static void wrong_password(void **state) {
    (void)state;
    gw.token = "one";
    fx.etcd.user = "u";
    snprintf(fx.etcd.password, sizeof(fx.etcd.password), "wrong");
    open_store(false);
    run_until(in_trouble);
    assert_string_equal(election_trouble(store_etcd_election(fx.store)),
                        "/v3/auth/authenticate status 400: authentication failed (user u)");
    run_for(500);
    assert_false(leads());
    assert_int_equal(gw.n_logins, 1); /* not in every beat */
}

static void asks_the_next_member(void **state) {
    (void)state;
    memcpy(fx.etcd.members[1], fx.etcd.members[0], ETCD_MEMBER_BYTES);
    snprintf(fx.etcd.members[0], ETCD_MEMBER_BYTES, "127.0.0.1:1"); /* nobody listens */
    fx.etcd.n_members = 2;
    open_store(false);
    run_until(leads);
    assert_string_equal(etcd_member(&fx.etcd), fx.etcd.members[1]);
}

static void answers_that_are_none(void **state) {
    static const char *const bodies[] = {
        "",
        "x",
        "null",
        "[]",
        "{}",
        "{\"header\":{}}x",
        "{\"header\":{\"revision\":7}}",
        "{\"header\":{\"revision\":\"-7\"}}",
        "{\"header\":{\"revision\":\"1\"},\"kvs\":[{\"value\":\"%%%\"}]}",
        "{\"header\":{\"revision\":\"1\"},\"kvs\":[{\"lease\":\"9223372036854775808\"}]}",
        "{\"header\":{\"revision\":\"1\"},\"kvs\":[{},{}]}",
        "{\"header\":{\"revision\":\"1\"},\"token\":\"a\\r\\nb\"}",
        "{\"header\":{\"revision\":\"1\"},\"succeeded\":1}",
    };
    struct etcd_answer a;
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct errbuf eb = {0};
        assert_int_not_equal(etcd_answer_parse(&a, bodies[i], strlen(bodies[i]), &eb), ERR_OK);
        assert_true(eb.text[0] != '\0');
    }
    gw.junk = "{\"header\":7}";
    open_store(false);
    run_until(in_trouble);
    assert_non_null(
        strstr(election_trouble(store_etcd_election(fx.store)), "header must be an object"));
    gw.junk = NULL;
    run_until(leads);
    assert_string_equal(election_trouble(store_etcd_election(fx.store)), "");
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(leads_under_a_term_above_all),
        CASE(the_first_term_is_the_time),
        CASE(a_term_is_no_less_than_the_revision),
        CASE(follows_whoever_has_the_lock),
        CASE(a_mute_etcd),
        CASE(a_process_that_was_stopped),
        CASE(keeps_on_while_etcd_is_away),
        CASE(the_lease_is_gone),
        CASE(a_refused_write_ends_it),
        CASE(a_stale_state),
        CASE(a_state_that_is_none),
        CASE(resigns),
        CASE(resigns_from_a_mute_etcd),
        CASE(logs_in),
        CASE(wrong_password),
        CASE(asks_the_next_member),
        CASE(answers_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
