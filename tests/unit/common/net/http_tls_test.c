/* Goal: TLS under the server and the client changes who may speak, and nothing of HTTP: answers,
 * streams and their ends are the same; whoever does not finish a handshake costs nothing for long
 * and holds up nobody.
 * Method: the server of http_server_fixture.h with a context of a test PKI; OpenSSL's own blocking
 * client, raw bytes, and our http_client on the server's loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include "common/base/log.h"
#include "common/net/http_client.h"
#include "tests/unit/common/net/http_server_fixture.h"
#include "tests/unit/common/net/tls_pki.h"
#include "tests/unit/pace.h"

static struct pki pki;
static struct issued ca, other_ca, client_id, stranger, elsewhere, revoked;
static struct tls *server_tls;

static int setup_pki(void **state) {
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    log_init(LOG_NONE, 2);
    pki_up(&pki);
    ca = pki_issue(&pki, NULL, "ca", &(struct cert_opts){0});
    other_ca = pki_issue(&pki, NULL, "other", &(struct cert_opts){0});
    pki_issue(&pki, &ca, "server", &(struct cert_opts){0});
    client_id = pki_issue(&pki, &ca, "client", &(struct cert_opts){0});
    stranger = pki_issue(&pki, &other_ca, "stranger", &(struct cert_opts){0});
    elsewhere = pki_issue(&pki, &ca, "elsewhere", &(struct cert_opts){.san = "IP:127.0.0.9"});
    revoked = pki_issue(&pki, &ca, "revoked", &(struct cert_opts){0});
    pki_crl(&pki, &ca, "crl", &revoked, -60, DAY_S);
    return 0;
}

static int teardown_pki(void **state) {
    (void)state;
    pki_down(&pki);
    return 0;
}

static struct tls *context(const char *ca_name, const char *name, bool with_crl) {
    struct tls_conf c = pki_conf(&pki, ca_name, name);
    if (with_crl) pki_path(&pki, c.crl[0], "crl");
    c.verify_host = true;
    c.allow_tls12 = true; /* of no effect for clients that can do better */
    return pki_open(&c);
}

static int setup_tls(void **state) {
    server_tls = context("ca", "server", true);
    int rc = setup(state);
    fx.opts.tls = server_tls;
    return rc;
}

static int teardown_tls(void **state) {
    tls_close(&server_tls);
    return teardown(state);
}

/* ---- OpenSSL's client */
struct peer {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

static bool peer_open(struct peer *p, const struct issued *own, int max_version) {
    p->ctx = pki_client(&ca, own);
    if (max_version != 0) SSL_CTX_set_max_proto_version(p->ctx, max_version);
    p->fd = raw_connect(fx.port);
    p->ssl = SSL_new(p->ctx);
    SSL_set_fd(p->ssl, p->fd);
    return SSL_connect(p->ssl) == 1;
}

static void peer_close(struct peer *p) {
    SSL_free(p->ssl);
    SSL_CTX_free(p->ctx);
    close(p->fd);
    ERR_clear_error();
}

static void peer_send(struct peer *p, const char *data, size_t n) {
    assert_int_equal(SSL_write(p->ssl, data, (int)n), n);
}

/* Reads to the end; true: the end was said with close_notify. */
static bool peer_to_end(struct peer *p, struct buf *b) {
    char part[65536];
    int n;
    while ((n = SSL_read(p->ssl, part, sizeof(part))) > 0) buf_append(b, part, (size_t)n);
    if (b->data == NULL) buf_puts(b, "");
    bool clean = SSL_get_error(p->ssl, n) == SSL_ERROR_ZERO_RETURN;
    ERR_clear_error();
    return clean;
}

/* One request on a connection of its own, with everything up to the end. */
static bool ask_all(const char *request, struct buf *b) {
    struct peer p;
    buf_clear(b);
    assert_true(peer_open(&p, &client_id, 0));
    peer_send(&p, request, strlen(request));
    bool clean = peer_to_end(&p, b);
    peer_close(&p);
    return clean;
}

static void same_answers(void **state) {
    (void)state;
    up();
    assert_true(ask_all("GET /close HTTP/1.1\r\nHost: h\r\n\r\n", &fx.in));
    assert_string_equal(fx.in.data, HEAD_OK "Content-Length: 3\r\nConnection: close\r\n\r\nbye");
    assert_true(ask_all("GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", &fx.in));
    assert_non_null(strstr(fx.in.data, "\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
    /* Where the end is the end of the connection it must be a said one, and a cut must not be. */
    assert_true(ask_all("GET /stream HTTP/1.0\r\n\r\n", &fx.in));
    assert_non_null(strstr(fx.in.data, "\r\n\r\nonetwo"));
    assert_false(ask_all("GET /abort HTTP/1.0\r\n\r\n", &fx.in));
    assert_false(ask_all("GET /abort HTTP/1.1\r\nHost: h\r\n\r\n", &fx.in));
    assert_true(ask_all("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", &fx.in));
    assert_true(fx.in.len > BIG_BYTES);
    WAIT_FOR(conns() == 0);
    down();
}

static void keeps_alive_and_takes_big_bodies(void **state) {
    enum { BODY = 3 << 20 };
    struct peer p;
    struct buf b = BUF_INIT;
    char head[100];
    (void)state;
    up();
    assert_true(peer_open(&p, &client_id, 0));
    for (int i = 0; i < 3; i++) {
        int n = snprintf(head, sizeof(head),
                         "POST /echo HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n",
                         i == 2 ? "Connection: close\r\n" : "", BODY);
        peer_send(&p, head, (size_t)n);
        memset(fx.big, 'a' + i, BODY);
        peer_send(&p, fx.big, BODY);
        size_t want = b.len;
        char part[65536];
        while (b.len < want + BODY) {
            int got = SSL_read(p.ssl, part, sizeof(part));
            assert_true(got > 0);
            buf_append(&b, part, (size_t)got);
        }
        assert_int_equal(b.data[b.len - 1], 'a' + i);
    }
    assert_true(peer_to_end(&p, &b));
    assert_int_equal(fx.n_requests, 3);
    peer_close(&p);
    buf_free(&b);
    down();
}

static void a_client_that_leaves(void **state) {
    struct peer p;
    (void)state;
    up();
    /* with close_notify, with only the socket's end, and with a half-close of TLS */
    for (int how = 0; how < 3; how++) {
        assert_true(peer_open(&p, &client_id, 0));
        peer_send(&p, "GET /stream-hold HTTP/1.1\r\nHost: h\r\n\r\n", 39);
        WAIT_FOR(fx.n_held == how + 1);
        if (how != 1) SSL_shutdown(p.ssl);
        if (how == 1) shutdown(p.fd, SHUT_RDWR);
        WAIT_FOR(fx.n_closed == how + 1);
        peer_close(&p);
    }
    WAIT_FOR(conns() == 0);
    down();
}

static void who_is_refused(void **state) {
    static const struct issued *const who[] = {NULL, &stranger, &revoked};
    (void)state;
    up();
    for (size_t i = 0; i < 3; i++) {
        struct peer p;
        /* In TLS 1.3 a client is through before the server has seen its certificate. */
        bool open = peer_open(&p, who[i], 0);
        if (open) SSL_write(p.ssl, "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n", 31);
        buf_clear(&fx.in);
        assert_false(open && peer_to_end(&p, &fx.in));
        assert_true(fx.in.len == 0);
        peer_close(&p);
    }
    WAIT_FOR(conns() == 0);
    assert_int_equal(fx.n_requests, 0);
    down();
}

static void what_is_no_handshake(void **state) {
    static const char plain[] = "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";
    char garbage[5000], hello[2048];
    (void)state;
    up();
    SSL_CTX *ctx = pki_client(&ca, &client_id);
    SSL *ssl = SSL_new(ctx);
    BIO *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    SSL_set_connect_state(ssl);
    SSL_do_handshake(ssl);
    int n = BIO_read(out, hello, sizeof(hello));
    assert_true(n > 100);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    ERR_clear_error();
    for (size_t i = 0; i < sizeof(garbage); i++) garbage[i] = (char)(i * 197 + 13);
    int fd = raw_connect(fx.port);
    raw_send_n(fd, plain, sizeof(plain) - 1);
    buf_clear(&fx.in);
    raw_to_end(fd, &fx.in);
    assert_null(strstr(fx.in.data, "HTTP/1.1 200"));
    close(fd);
    fd = raw_connect(fx.port);
    raw_send_n(fd, garbage, sizeof(garbage));
    raw_to_end(fd, &fx.in);
    close(fd);
    for (int cut = 0; cut <= n; cut += 23) {
        fd = raw_connect(fx.port);
        raw_send_n(fd, hello, (size_t)cut);
        close(fd);
    }
    fd = raw_connect(fx.port); /* a good hello, and then no TLS */
    raw_send_n(fd, hello, (size_t)n);
    raw_send_n(fd, garbage, sizeof(garbage));
    buf_clear(&fx.in);
    raw_to_end(fd, &fx.in);
    close(fd);
    WAIT_FOR(conns() == 0);
    assert_int_equal(fx.n_requests, 0);
    down();
}

/* Twenty clients stand in the middle of a handshake: others are served meanwhile, and then they are
 * closed. */
static void slow_handshakes(void **state) {
    enum { N = 20 };
    int fds[N];
    (void)state;
    fx.opts.handshake_ms = 1500;
    up();
    for (int i = 0; i < N; i++) {
        fds[i] = raw_connect(fx.port);
        if (i % 2 == 0) raw_send_n(fds[i], "\x16\x03\x01\x02", 4);
    }
    WAIT_FOR(conns() == N);
    assert_true(ask_all("GET /close HTTP/1.1\r\nHost: h\r\n\r\n", &fx.in));
    WAIT_FOR(conns() == 0);
    for (int i = 0; i < N; i++) {
        buf_clear(&fx.in);
        raw_to_end(fds[i], &fx.in);
        assert_int_equal(fx.in.len, 0);
        close(fds[i]);
    }
    down();
}

/* After the handshake the limits of HTTP count, as on a plain connection. */
static void slow_requests(void **state) {
    struct peer p;
    (void)state;
    fx.opts.handshake_ms = pace_ms(100);
    fx.opts.read_ms = pace_ms(600);
    up();
    assert_true(peer_open(&p, &client_id, 0));
    uint64_t began_ms = clock_ms();
    peer_send(&p, "GET /echo HT", 12);
    buf_clear(&fx.in);
    assert_true(peer_to_end(&p, &fx.in));
    assert_non_null(strstr(fx.in.data, "HTTP/1.1 408 "));
    assert_true(clock_ms() - began_ms >= pace_ms(500));
    peer_close(&p);
    down();
}

static void no_renegotiation(void **state) {
    struct peer p;
    char part[1024];
    (void)state;
    up();
    assert_true(peer_open(&p, &client_id, TLS1_2_VERSION));
    assert_int_equal(SSL_version(p.ssl), TLS1_2_VERSION);
    assert_int_equal(SSL_renegotiate(p.ssl), 1);
    SSL_do_handshake(p.ssl); /* sends the wish */
    int n = SSL_read(p.ssl, part, sizeof(part));
    assert_true(n <= 0 && SSL_get_error(p.ssl, n) == SSL_ERROR_SSL);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()), SSL_R_NO_RENEGOTIATION);
    peer_close(&p);
    down();
}

static bool refuse_bodies(void *arg, const struct http_x *x) {
    (void)arg;
    return http_x_header(x, "X-Tag") != NULL;
}

/* A body that is not wanted is not waited for. */
static void unwanted_bodies(void **state) {
    (void)state;
    fx.opts.tls = NULL;
    fx.opts.wants_body = refuse_bodies;
    up();
    int fd = raw_connect(fx.port);
    raw_send(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\n\r\nfirst");
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_string_equal(fx.answer.data, HEAD_OK "Content-Length: 0\r\nX-Method: POST\r\nX-Query: "
                                                "\r\nConnection: close\r\n\r\n");
    close(fd);
    fd = raw_connect(fx.port);
    raw_send(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_non_null(strstr(fx.answer.data, "Connection: close"));
    close(fd);
    fd = raw_connect(fx.port);
    raw_send(fd, "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n"); /* no body: it goes on */
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_null(strstr(fx.answer.data, "Connection: close"));
    raw_send(fd, "POST /echo HTTP/1.1\r\nHost: h\r\nX-Tag: t\r\nContent-Length: 2\r\n\r\nhi");
    raw_answer(fd, &fx.in, &fx.answer, false);
    assert_non_null(strstr(fx.answer.data, "\r\n\r\nhi"));
    close(fd);
    down();
}

/* ---- our own client */
static struct http_client *client;
static struct {
    struct http_call_opts o;
    enum err started, err;
    int status;
    bool connected;
    char detail[256];
    atomic_int done;
} ask;

static void on_done(void *arg, const struct http_result *r) {
    (void)arg;
    ask.err = r->err;
    ask.status = r->status;
    ask.connected = r->connected;
    snprintf(ask.detail, sizeof(ask.detail), "%s", r->detail);
    atomic_store(&ask.done, 1);
}

static void make_client(void *arg) {
    *(enum err *)arg = http_client_create(&client, fx.t.loop, "test/1.0");
}
static void drop_client(void *arg) {
    (void)arg;
    http_client_destroy(&client);
}
static void start_call(void *arg) {
    (void)arg;
    ask.started = http_client_call(client, &ask.o, NULL);
}

/* scheme and path of the one listener; the result in ask. */
static enum err call(struct tls *tls, const char *scheme, const char *host, const char *path) {
    char url[128];
    snprintf(url, sizeof(url), "%s://%s:%u%s", scheme, host, (unsigned)fx.port, path);
    ask.o = (struct http_call_opts){.method = "GET", .url = url, .tls = tls, .on_done = on_done};
    atomic_store(&ask.done, 0);
    run_on_loop(&fx.t, start_call, NULL);
    if (ask.started != ERR_OK) return ask.started;
    WAIT_FOR(atomic_load(&ask.done));
    return ask.err;
}

static void clients(void **state) {
    struct tls *good = context("ca", "client", true), *wrong_ca = context("other", "client", false),
               *wrong_id = context("ca", "stranger", false), *gone = context("ca", "revoked", true);
    enum err e;
    (void)state;
    up();
    run_on_loop(&fx.t, make_client, &e);
    assert_int_equal(e, ERR_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(call(good, "https", "127.0.0.1", "/echo"), ERR_OK);
        assert_int_equal(ask.status, 200);
    }
    assert_int_equal(conns(), 1); /* it was kept */
    assert_int_equal(call(good, "https", "127.0.0.1", "/big"), ERR_OK);
    run_on_loop(&fx.t, drop_client, NULL);

    struct tls *const refused[] = {wrong_ca, wrong_id, gone};
    for (size_t i = 0; i < 3; i++) {
        int before = atomic_load(&fx.n_requests);
        run_on_loop(&fx.t, make_client, &e);
        assert_int_equal(call(refused[i], "https", "127.0.0.1", "/echo"), ERR_PEER_LOST);
        assert_string_not_equal(ask.detail, "");
        assert_int_equal(atomic_load(&fx.n_requests), before);
        run_on_loop(&fx.t, drop_client, NULL);
    }
    run_on_loop(&fx.t, make_client, &e);
    assert_int_equal(call(NULL, "https", "127.0.0.1", "/echo"), ERR_INVALID);
    assert_int_not_equal(call(good, "http", "127.0.0.1", "/echo"), ERR_OK); /* never in the clear */
    assert_int_equal(call(NULL, "http", "127.0.0.1", "/echo"), ERR_PEER_LOST);
    run_on_loop(&fx.t, drop_client, NULL);
    WAIT_FOR(conns() == 0);
    down();
    tls_close(&good);
    tls_close(&wrong_ca);
    tls_close(&wrong_id);
    tls_close(&gone);
}

/* The server's certificate is for another address. */
static void names_of_servers(void **state) {
    struct tls_conf c = pki_conf(&pki, "ca", "client");
    struct tls *lax = pki_open(&c), *strict = context("ca", "client", false);
    enum err e;
    (void)state;
    tls_close(&server_tls);
    fx.opts.tls = server_tls = context("ca", "elsewhere", false);
    up();
    run_on_loop(&fx.t, make_client, &e);
    assert_int_equal(call(strict, "https", "127.0.0.1", "/echo"), ERR_PEER_LOST);
    assert_int_equal(call(lax, "https", "127.0.0.1", "/echo"), ERR_OK);
    run_on_loop(&fx.t, drop_client, NULL);
    down();
    tls_close(&server_tls);
    fx.opts.tls = server_tls = context("ca", "revoked", false);
    up();
    tls_close(&strict);
    strict = context("ca", "client", true);
    run_on_loop(&fx.t, make_client, &e);
    assert_int_equal(call(strict, "https", "127.0.0.1", "/echo"), ERR_PEER_LOST);
    run_on_loop(&fx.t, drop_client, NULL);
    down();
    tls_close(&lax);
    tls_close(&strict);
}

/* A name that the settings ask for counts in place of the host of the URL, and the refusal says it.
 */
static void a_name_in_place_of_the_host(void **state) {
    struct tls_conf c = pki_conf(&pki, "ca", "client");
    struct tls *right, *wrong, *strict = context("ca", "client", false);
    enum err e;
    (void)state;
    strcpy(c.peer_name, "instance.baton");
    right = pki_open(&c);
    strcpy(c.peer_name, "other.baton");
    c.verify_host = true;
    wrong = pki_open(&c);
    pki_issue(&pki, &ca, "named", &(struct cert_opts){.san = "DNS:instance.baton"});
    tls_close(&server_tls);
    fx.opts.tls = server_tls = context("ca", "named", false);
    up();
    struct tls *const in_turn[] = {strict, wrong, right};
    for (int i = 0; i < 3; i++) {
        run_on_loop(&fx.t, make_client, &e);
        assert_int_equal(call(in_turn[i], "https", "127.0.0.1", "/echo"),
                         i == 2 ? ERR_OK : ERR_PEER_LOST);
        if (i == 1)
            assert_string_equal(ask.detail,
                                "the certificate must name other.baton (t.peer), but names "
                                "instance.baton");
        run_on_loop(&fx.t, drop_client, NULL);
    }
    down();
    for (int i = 0; i < 3; i++) {
        struct tls *t = in_turn[i];
        tls_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_answers, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(keeps_alive_and_takes_big_bodies, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(a_client_that_leaves, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(who_is_refused, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(what_is_no_handshake, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(slow_handshakes, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(slow_requests, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(no_renegotiation, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(unwanted_bodies, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(clients, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(names_of_servers, setup_tls, teardown_tls),
        cmocka_unit_test_setup_teardown(a_name_in_place_of_the_host, setup_tls, teardown_tls),
    };
    return cmocka_run_group_tests(tests, setup_pki, teardown_pki);
}
