/* Goal: what is written over a certificate, key, CRL or key file is what the next handshake or
 * request meets, whole or not at all, and what ends soon is said in time and not more often.
 * Method: a PKI made by the test, a watch that looks every few milliseconds, sessions over memory
 * that say which certificate they were shown; the notices as a table of clock values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <time.h>
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/net/cred_watch.h"
#include "tests/unit/common/net/tls_pki.h"
#include "tests/unit/pace.h"

#define DEADLINE_MS pace_ms(20000)
enum { LOOK_MS = 5 };

static struct pki pki;
static struct issued ca, other_ca;

static int setup(void **state) {
    (void)state;
    log_init(LOG_NONE, 2);
    pki_up(&pki);
    ca = pki_issue(&pki, NULL, "ca", &(struct cert_opts){0});
    other_ca = pki_issue(&pki, NULL, "other", &(struct cert_opts){0});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pki_down(&pki);
    return 0;
}

/* ---- which certificate a server made now shows: its first name */
static void pump(struct tls_session *a, struct tls_session *b) {
    char bytes[16384];
    for (int i = 0; i < 10; i++) {
        size_t n = tls_session_drain(a, bytes, sizeof(bytes));
        if (n > 0) (void)tls_session_feed(b, bytes, n);
        size_t m = tls_session_drain(b, bytes, sizeof(bytes));
        if (m > 0) (void)tls_session_feed(a, bytes, m);
        if (n + m == 0) return;
    }
}

static bool shows(struct tls *server, struct tls *client, const char *name) {
    struct tls_session *s, *c;
    assert_int_equal(tls_session_create(&s, server, TLS_SERVER, NULL), ERR_OK);
    assert_int_equal(tls_session_create(&c, client, TLS_CLIENT, NULL), ERR_OK);
    pump(c, s);
    bool is = tls_session_state(c) == TLS_UP && tls_session_peer_has_name(c, name);
    tls_session_free(&s);
    tls_session_free(&c);
    return is;
}

static void issue(const char *name, const char *san, long until_s) {
    pki_issue(&pki, &ca, name, &(struct cert_opts){.san = san, .until_s = until_s});
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
}

/* ---- series */
struct rig {
    struct cred_watch *w;
    struct metrics *m;
};

static struct rig rig_open(struct tls *t, struct api_keys *k) {
    struct rig r = {.w = cred_watch_create("test")};
    assert_non_null(r.w);
    assert_int_equal(metrics_create(&r.m), ERR_OK);
    cred_watch_tls(r.w, "user", t);
    cred_watch_tls(r.w, "twice", t);
    cred_watch_tls(r.w, "plain", NULL);
    cred_watch_keys(r.w, k);
    assert_int_equal(cred_watch_metrics(r.w, r.m), ERR_OK);
    return r;
}

static void rig_close(struct rig *r) {
    metrics_destroy(&r->m);
    cred_watch_destroy(&r->w);
    assert_null(r->w);
}

static bool says(struct rig *r, const char *line) {
    struct buf b = BUF_INIT;
    cred_watch_metrics_read(r->w);
    metrics_write(r->m, &b);
    bool is = b.data != NULL && strstr(b.data, line) != NULL;
    buf_free(&b);
    return is;
}

static void wait_says(struct rig *r, const char *line) {
    for (uint64_t end = clock_ms() + DEADLINE_MS; !says(r, line); nap())
        if (clock_ms() > end) fail_msg("not in time: %s", line);
}

static void a_new_certificate_is_shown(void **state) {
    (void)state;
    issue("server", "DNS:first", 0);
    issue("client", "DNS:client", 0);
    struct tls_conf c = pki_conf(&pki, "ca", "server"), d = pki_conf(&pki, "ca", "client");
    struct tls *server = pki_open(&c), *client = pki_open(&d);
    struct rig r = rig_open(server, NULL);
    assert_int_equal(cred_watch_start(r.w, LOOK_MS), ERR_OK);
    struct tls_session *old_s, *old_c; /* begun before, goes on after */
    assert_int_equal(tls_session_create(&old_s, server, TLS_SERVER, NULL), ERR_OK);
    assert_int_equal(tls_session_create(&old_c, client, TLS_CLIENT, NULL), ERR_OK);
    assert_true(shows(server, client, "first"));
    issue("server", "DNS:second", 100 * DAY_S);
    wait_says(&r, "test_credential_reloads_total{plane=\"user\",result=\"ok\"} ");
    for (uint64_t end = clock_ms() + DEADLINE_MS; !shows(server, client, "second"); nap())
        assert_true(clock_ms() < end);
    pump(old_c, old_s);
    assert_int_equal(tls_session_state(old_c), TLS_UP);
    assert_true(tls_session_peer_has_name(old_c, "first"));
    tls_session_free(&old_s);
    tls_session_free(&old_c);
    rig_close(&r);
    tls_close(&server);
    tls_close(&client);
}

static void what_is_wrong_stays_out(void **state) {
    (void)state;
    issue("server", "DNS:first", 0);
    issue("client", "DNS:client", 0);
    struct tls_conf c = pki_conf(&pki, "ca", "server"), d = pki_conf(&pki, "ca", "client");
    struct tls *server = pki_open(&c), *client = pki_open(&d);
    struct rig r = rig_open(server, NULL);
    assert_int_equal(cred_watch_start(r.w, LOOK_MS), ERR_OK);
    static const struct {
        const char *name, *text;
        unsigned mode;
    } wrong[] = {{"server.pem", "no certificate\n", 0400},
                 {"server.key", "no key\n", 0400},
                 {"server.pem", "", 0400},
                 {"ca.pem", "-----BEGIN CERTIFICATE-----\nxxxx\n", 0400}};
    char good_ca[4096];
    FILE *f = fopen(c.ca[0], "rb");
    size_t n_ca = fread(good_ca, 1, sizeof(good_ca), f);
    fclose(f);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char line[96];
        pki_write(&pki, wrong[i].name, wrong[i].text, strlen(wrong[i].text), wrong[i].mode);
        snprintf(line, sizeof(line),
                 "test_credential_reloads_total{plane=\"user\",result=\"failed\"} %zu\n", i + 1);
        wait_says(&r, line);
        for (int k = 0; k < 5; k++) nap(); /* and it is not tried again and again */
        assert_true(says(&r, line));
        assert_true(shows(server, client, "first"));
    }
    cred_watch_now(r.w); /* but when it is asked for */
    wait_says(&r, "test_credential_reloads_total{plane=\"user\",result=\"failed\"} 5\n");
    issue("server", "DNS:second", 0);
    pki_write(&pki, "ca.pem", good_ca, n_ca, 0400);
    for (uint64_t end = clock_ms() + DEADLINE_MS; !shows(server, client, "second"); nap())
        assert_true(clock_ms() < end);
    rig_close(&r);
    tls_close(&server);
    tls_close(&client);
}

/* As Kubernetes mounts a secret: the folder is a link that is renamed over. */
static void a_swapped_folder_is_seen(void **state) {
    char one[TLS_PATH_BYTES], two[TLS_PATH_BYTES], data[TLS_PATH_BYTES], next[TLS_PATH_BYTES];
    static const char *const names[] = {"one", "two"};
    (void)state;
    issue("client", "DNS:client", 0);
    pki_path(&pki, one, "one");
    pki_path(&pki, two, "two");
    pki_path(&pki, data, "data");
    pki_path(&pki, next, "data.next");
    for (int i = 0; i < 2; i++) {
        char from[TLS_PATH_BYTES], to[TLS_PATH_BYTES + 32], san[32];
        assert_int_equal(mkdir(i == 0 ? one : two, 0700), 0);
        snprintf(san, sizeof(san), "DNS:%s", names[i]);
        issue("server", san, 0);
        for (int k = 0; k < 2; k++) {
            pki_path(&pki, from, k == 0 ? "server.pem" : "server.key");
            snprintf(to, sizeof(to), "%s/%s", i == 0 ? one : two,
                     k == 0 ? "server.pem" : "server.key");
            assert_int_equal(rename(from, to), 0);
        }
    }
    assert_int_equal(symlink("one", data), 0);
    struct tls_conf c = pki_conf(&pki, "ca", "data/server"), d = pki_conf(&pki, "ca", "client");
    struct tls *server = pki_open(&c), *client = pki_open(&d);
    struct rig r = rig_open(server, NULL);
    assert_int_equal(cred_watch_start(r.w, LOOK_MS), ERR_OK);
    assert_true(shows(server, client, "one"));
    assert_int_equal(symlink("two", next), 0);
    assert_int_equal(rename(next, data), 0);
    for (uint64_t end = clock_ms() + DEADLINE_MS; !shows(server, client, "two"); nap())
        assert_true(clock_ms() < end);
    rig_close(&r);
    tls_close(&server);
    tls_close(&client);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++) {
            char path[TLS_PATH_BYTES + 32];
            snprintf(path, sizeof(path), "%s/%s", i == 0 ? one : two,
                     k == 0 ? "server.pem" : "server.key");
            unlink(path);
        }
}

static void a_crl_takes_a_peer_out(void **state) {
    (void)state;
    issue("server", "DNS:first", 0);
    struct issued peer = pki_issue(&pki, &ca, "client", &(struct cert_opts){0});
    pki_crl(&pki, &ca, "crl", NULL, -60, DAY_S);
    struct tls_conf c = pki_conf(&pki, "ca", "server"), d = pki_conf(&pki, "ca", "client");
    pki_path(&pki, c.crl[0], "crl");
    struct tls *server = pki_open(&c), *client = pki_open(&d);
    struct rig r = rig_open(server, NULL);
    assert_int_equal(cred_watch_start(r.w, LOOK_MS), ERR_OK);
    struct tls_session *s, *k;
    for (int revoked = 0; revoked < 2; revoked++) {
        if (revoked) {
            pki_crl(&pki, &ca, "crl", &peer, -60, DAY_S);
            wait_says(&r, "test_credential_reloads_total{plane=\"user\",result=\"ok\"} 1\n");
        }
        assert_int_equal(tls_session_create(&s, server, TLS_SERVER, NULL), ERR_OK);
        assert_int_equal(tls_session_create(&k, client, TLS_CLIENT, NULL), ERR_OK);
        pump(k, s);
        assert_int_equal(tls_session_state(s), revoked ? TLS_FAILED : TLS_UP);
        tls_session_free(&s);
        tls_session_free(&k);
    }
    rig_close(&r);
    tls_close(&server);
    tls_close(&client);
}

static void ends_are_series(void **state) {
    char want[TLS_PATH_BYTES + 96];
    (void)state;
    issue("server", "DNS:first", 50 * DAY_S);
    pki_crl(&pki, &ca, "crl", NULL, -60, 7 * DAY_S);
    int64_t now = (int64_t)time(NULL);
    struct tls_conf c = pki_conf(&pki, "ca", "server");
    pki_path(&pki, c.crl[0], "crl");
    struct tls *t = pki_open(&c);
    struct tls_expiry ends[TLS_EXPIRIES_MAX];
    assert_int_equal(tls_expiries(t, ends), 3); /* CA, certificate, CRL */
    for (size_t i = 0; i < 3; i++) {
        int64_t days = strcmp(ends[i].path, c.cert) == 0     ? 50
                       : strcmp(ends[i].path, c.crl[0]) == 0 ? 7
                                                             : 365;
        assert_true(ends[i].unix_s >= now + days * DAY_S - 60);
        assert_true(ends[i].unix_s <= now + days * DAY_S + 60);
    }
    struct rig r = rig_open(t, NULL);
    for (size_t i = 0; i < 3; i++) {
        snprintf(want, sizeof(want),
                 "test_certificate_not_after_seconds{plane=\"user\",file=\"%s\"} %lld\n",
                 ends[i].path, (long long)ends[i].unix_s);
        assert_true(says(&r, want));
    }
    assert_false(says(&r, "twice"));
    rig_close(&r);
    tls_close(&t);
}

static void keys_follow_their_file(void **state) {
    struct api_keys *k;
    struct errbuf eb = {0};
    (void)state;
    pki_write(&pki, "keys", "first-key-0123456789\n", 21, 0600);
    assert_int_equal(api_keys_open(&k, "keys", pki.dir, "keys", &eb), ERR_OK);
    struct rig r = rig_open(NULL, k);
    assert_int_equal(cred_watch_start(r.w, LOOK_MS), ERR_OK);
    pki_write(&pki, "keys", "second-key-0123456789\n", 22, 0600);
    wait_says(&r, "test_credential_reloads_total{plane=\"api_keys\",result=\"ok\"} 1\n");
    assert_true(api_keys_allow(k, "Bearer second-key-0123456789", NULL));
    assert_false(api_keys_allow(k, "Bearer first-key-0123456789", NULL));
    pki_write(&pki, "keys", "short\n", 6, 0600);
    wait_says(&r, "test_credential_reloads_total{plane=\"api_keys\",result=\"failed\"} 1\n");
    assert_true(api_keys_allow(k, "Bearer second-key-0123456789", NULL));
    rig_close(&r);
    api_keys_close(&k);
}

/* Nothing to watch: no thread, no series, and asking does no harm. */
static void nothing_to_watch(void **state) {
    (void)state;
    struct rig r = rig_open(NULL, NULL);
    assert_int_equal(cred_watch_start(r.w, LOOK_MS), ERR_OK);
    cred_watch_now(r.w);
    cred_watch_now(NULL);
    assert_false(says(&r, "test_"));
    rig_close(&r);
}

static void notices(void **state) {
    static const struct {
        int64_t now_s, left_s;
        bool due;
    } rows[] = {
        {0, 91 * DAY_S, false},
        {DAY_S, 90 * DAY_S, true}, /* 90 days ahead */
        {2 * DAY_S, 89 * DAY_S, false},
        {60 * DAY_S, 31 * DAY_S, false},
        {61 * DAY_S, 30 * DAY_S, true}, /* 30 */
        {61 * DAY_S + 1, 30 * DAY_S - 1, false},
        {62 * DAY_S - 1, 29 * DAY_S + 1, false},
        {62 * DAY_S, 29 * DAY_S, true}, /* once a day */
        {62 * DAY_S + 100, 29 * DAY_S - 100, false},
        {84 * DAY_S - 10, 7 * DAY_S + 10, true},
        {84 * DAY_S, 7 * DAY_S, true}, /* 7, whenever the daily one came */
        {90 * DAY_S, DAY_S, true},     /* 1 */
        {90 * DAY_S + 60, DAY_S - 60, false},
        {91 * DAY_S - 61, 61, false},
        {91 * DAY_S, 0, true}, /* over */
        {91 * DAY_S + 1, -1, false},
        {92 * DAY_S, -DAY_S, true},
        {92 * DAY_S + 1, 300 * DAY_S, false}, /* renewed */
        {92 * DAY_S + 2, 80 * DAY_S, true},   /* by one that is short of time itself */
    };
    struct cred_notice n = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (cred_notice_due(&n, rows[i].now_s, rows[i].now_s + rows[i].left_s) != rows[i].due)
            fail_msg("row %zu", i);
}

static void one_line_a_start(void **state) {
    char text[4096] = "";
    int ends[2];
    (void)state;
    issue("server", "DNS:first", 20 * DAY_S);
    pki_crl(&pki, &ca, "crl", NULL, -60, 10 * DAY_S - 60);
    struct tls_conf c = pki_conf(&pki, "ca", "server");
    pki_path(&pki, c.crl[0], "crl");
    struct tls *t = pki_open(&c);
    struct rig r = rig_open(t, NULL);
    assert_int_equal(pipe(ends), 0);
    log_init(LOG_WARN, ends[1]);
    assert_int_equal(cred_watch_start(r.w, LOOK_MS), ERR_OK);
    ssize_t got = read(ends[0], text, sizeof(text) - 1); /* waits for the line */
    for (int i = 0; i < 10; i++) nap();
    rig_close(&r);
    log_init(LOG_NONE, 2);
    close(ends[1]);
    assert_true(got > 0);
    assert_non_null(strstr(text, "event=expires_soon plane=user file="));
    assert_non_null(strstr(text, "/crl not_after=2"));
    assert_non_null(strstr(text, " days=9 files=2"));
    assert_int_equal(read(ends[0], text, sizeof(text)), 0); /* that was all */
    close(ends[0]);
    tls_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_certificate_is_shown),
        cmocka_unit_test(what_is_wrong_stays_out),
        cmocka_unit_test(a_swapped_folder_is_seen),
        cmocka_unit_test(a_crl_takes_a_peer_out),
        cmocka_unit_test(ends_are_series),
        cmocka_unit_test(keys_follow_their_file),
        cmocka_unit_test(nothing_to_watch),
        cmocka_unit_test(notices),
        cmocka_unit_test(one_line_a_start),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
