/* Goal: a context is made only of files that keep every rule, and a session only with a peer that
 * proves itself; both sides then have the same secrets.
 * Method: a PKI made by the test (tls_pki.h), good and then bad in one point after the other; the
 * messages are compared. Sessions run over memory, against each other and against OpenSSL's own
 * client with rules of the test; every length of a truncated or damaged hello. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include "common/base/log.h"
#include "tests/unit/common/net/tls_pki.h"

static struct pki pki;
static struct issued ca, other_ca, server, client, revoked, stranger, weak, expired;

static int setup(void **state) {
    (void)state;
    log_init(LOG_NONE, 2);
    pki_up(&pki);
    ca = pki_issue(&pki, NULL, "ca", &(struct cert_opts){0});
    other_ca = pki_issue(&pki, NULL, "other", &(struct cert_opts){0});
    server = pki_issue(&pki, &ca, "server", &(struct cert_opts){.password = "secret word"});
    client = pki_issue(&pki, &ca, "client", &(struct cert_opts){0});
    revoked = pki_issue(&pki, &ca, "revoked", &(struct cert_opts){0});
    stranger = pki_issue(&pki, &other_ca, "stranger", &(struct cert_opts){0});
    weak = pki_issue(&pki, &ca, "weak", &(struct cert_opts){.kind = KEY_RSA_2048});
    expired =
        pki_issue(&pki, &ca, "expired", &(struct cert_opts){.from_s = -10 * DAY_S, .until_s = -1});
    pki_write(&pki, "server.pass", "secret word\n", 12, 0400);
    pki_crl(&pki, &ca, "crl", &revoked, -60, DAY_S);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pki_down(&pki);
    return 0;
}

static struct tls_conf server_conf(void) {
    struct tls_conf c = pki_conf(&pki, "ca", "server");
    pki_path(&pki, c.passwd, "server.pass");
    return c;
}

/* ---- files */
static void refused(const struct tls_conf *c, const char *begins, const char *holds) {
    struct tls *t = (struct tls *)1;
    struct errbuf eb = {0};
    enum err e = tls_open(&t, c, &eb);
    if (e != ERR_BAD_CONFIG || t != NULL || strncmp(eb.text, begins, strlen(begins)) != 0 ||
        strstr(eb.text, holds) == NULL)
        fail_msg("%s: \"%s\", wanted \"%s ... %s\"", err_name(e), eb.text, begins, holds);
}

enum slot { SLOT_CA, SLOT_CERT, SLOT_KEY, SLOT_PASS, SLOT_CRL };

static char *slot_of(struct tls_conf *c, enum slot s) {
    return s == SLOT_CA     ? c->ca[0]
           : s == SLOT_CERT ? c->cert
           : s == SLOT_KEY  ? c->key
           : s == SLOT_PASS ? c->passwd
                            : c->crl[0];
}

/* What every file must be, said with the setting's name. */
static void file_rules(void **state) {
    static const char *const begins[] = {"t.ca: ", "t.cert: ", "t.key: ", "t.passwd: ", "t.crl: "};
    static const char *const names[] = {"ca.pem", "server.pem", "server.key", "server.pass", "crl"};
    char path[TLS_PATH_BYTES], link_path[TLS_PATH_BYTES], big[TLS_PATH_BYTES];
    (void)state;
    pki_path(&pki, link_path, "link");
    pki_path(&pki, big, "big");
    pki_write(&pki, "empty", "", 0, 0400);
    pki_write(&pki, "big", "", 0, 0600);
    assert_int_equal(truncate(big, (10 << 20) + 1), 0);
    assert_int_equal(chmod(big, 0400), 0);
    for (int s = SLOT_CA; s <= SLOT_CRL; s++) {
        struct tls_conf c = server_conf();
        pki_path(&pki, path, names[s]);
        assert_int_equal(symlink(path, link_path), 0);
        pki_path(&pki, slot_of(&c, s), "missing");
        refused(&c, begins[s], "missing: No such file or directory");
        strcpy(slot_of(&c, s), link_path);
        refused(&c, begins[s], "must not be a symbolic link");
        unlink(link_path);
        strcpy(slot_of(&c, s), pki.dir);
        refused(&c, begins[s], "must be a regular file");
        pki_path(&pki, slot_of(&c, s), "empty");
        refused(&c, begins[s], "must have from 1 to 10485760 bytes, it has 0");
        strcpy(slot_of(&c, s), big);
        refused(&c, begins[s], "must have from 1 to 10485760 bytes, it has 10485761");
        static const unsigned wrong[] = {0600, 0440, 0404, 0500, 0420, 01400};
        strcpy(slot_of(&c, s), path);
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            char want[64];
            chmod(path, wrong[i]);
            snprintf(want, sizeof(want), "must have mode 0400, it has %04o", wrong[i]);
            refused(&c, begins[s], want);
        }
        chmod(path, 0400);
        if (geteuid() == 0) { /* only root can give a file away */
            assert_int_equal(chown(path, 1, (gid_t)-1), 0);
            refused(&c, begins[s], "must belong to the user of the process (uid 0)");
            assert_int_equal(chown(path, 0, (gid_t)-1), 0);
        }
        struct tls *t = pki_open(&c);
        tls_close(&t);
    }
    unlink(big);
}

/* Files of root that a process of another user may read, as Kubernetes mounts secrets: no others of
 * root. */
static void files_lent_by_root(void **state) {
    static const struct {
        unsigned mode;
        const char *says; /* NULL: taken */
    } rows[] = {{0440, NULL},
                {0640, NULL},
                {0444, "or to root with mode 0640 at most, it belongs to uid 0 with mode 0444"},
                {0660, "or to root with mode 0640 at most, it belongs to uid 0 with mode 0660"}};
    enum { SOMEBODY = 65534 };
    struct tls_conf c = pki_conf(&pki, "ca", "client");
    (void)state;
    if (geteuid() != 0) skip(); /* only root can give a file away */
    assert_int_equal(chmod(pki.dir, 0755), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *const files[] = {c.ca[0], c.cert, c.key};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(chown(files[k], 0, SOMEBODY), 0);
            assert_int_equal(chmod(files[k], rows[i].mode), 0);
        }
        struct errbuf eb = {0};
        struct tls *t = NULL;
        assert_int_equal(setegid(SOMEBODY), 0);
        assert_int_equal(seteuid(SOMEBODY), 0);
        const enum err e = tls_open(&t, &c, &eb);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(setegid(0), 0);
        tls_close(&t);
        if (rows[i].says == NULL ? e != ERR_OK : strstr(eb.text, rows[i].says) == NULL)
            fail_msg("%04o: \"%s\"", rows[i].mode, eb.text);
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(chown(files[k], 0, 0), 0);
            assert_int_equal(chmod(files[k], 0400), 0);
        }
    }
    assert_int_equal(chmod(pki.dir, 0700), 0);
}

static void content_rules(void **state) {
    struct tls_conf c = server_conf();
    (void)state;
    c.ca[0][0] = 0;
    refused(&c, "t.ca must name a file", "");
    c = server_conf();
    c.cert[0] = 0;
    refused(&c, "t.cert must name a file", "");
    c = server_conf();
    c.key[0] = 0;
    refused(&c, "t.key must name a file", "");
    c = server_conf();
    pki_path(&pki, c.ca[0], "server.pass");
    refused(&c, "t.ca: ", "is not a PEM file of certificates");
    c = server_conf();
    pki_path(&pki, c.cert, "server.key");
    refused(&c, "t.cert: ", "is not a PEM file of certificates");
    c = server_conf();
    pki_path(&pki, c.key, "server.pem");
    refused(&c, "t.key: ", "is not a PEM file of a private key");
    c = server_conf();
    pki_path(&pki, c.crl[0], "ca.pem");
    refused(&c, "t.crl: ", "is not a PEM file of CRLs");
    c = server_conf();
    c.names.ca_limited = "t.limited";
    pki_path(&pki, c.ca_limited[0], "ca.pem");
    refused(&c, "t.limited: ", "a CA of this setting is one of t.ca too");
    c = server_conf();
    pki_path(&pki, c.key, "client.key");
    refused(&c, "t.key: ", "does not belong to the certificate");
    c = server_conf();
    c.passwd[0] = 0;
    refused(&c, "t.key: ", "is encrypted: t.passwd must name the file with its password");
    static const struct {
        const char *text, *says;
    } passwords[] = {{"wrong word\n", "does not open"},
                     {"\n", "must hold one line"},
                     {"secret word\nmore\n", "must hold one line"}};
    for (size_t i = 0; i < sizeof(passwords) / sizeof(passwords[0]); i++) {
        pki_write(&pki, "wrong.pass", passwords[i].text, strlen(passwords[i].text), 0400);
        pki_path(&pki, c.passwd, "wrong.pass");
        refused(&c, "t.passwd: ", passwords[i].says);
    }
    c = pki_conf(&pki, "ca", "weak");
    refused(&c, "t.cert: the RSA key of ", "must have at least 3072 bits, it has 2048");
    pki_issue(&pki, &ca, "p224", &(struct cert_opts){.kind = KEY_P224});
    c = pki_conf(&pki, "ca", "p224");
    refused(&c, "t.cert: the EC key of ", "must be on P-256, P-384 or P-521, it is on secp224r1");
    pki_issue(&pki, &ca, "ed", &(struct cert_opts){.kind = KEY_ED25519});
    c = pki_conf(&pki, "ca", "ed");
    refused(&c, "t.cert: the key of ", "must be RSA of at least 3072 bits or EC");
    pki_issue(&pki, &ca, "rsa", &(struct cert_opts){.kind = KEY_RSA_3072});
    c = pki_conf(&pki, "ca", "rsa");
    struct tls *t = pki_open(&c);
    tls_close(&t);
}

static void dates(void **state) {
    struct tls_conf c = pki_conf(&pki, "ca", "expired");
    (void)state;
    refused(&c, "t.cert: the certificate of ", "has expired");
    pki_issue(&pki, &ca, "early", &(struct cert_opts){.from_s = 3600});
    c = pki_conf(&pki, "ca", "early");
    refused(&c, "t.cert: the certificate of ", "is not valid yet");
    pki_issue(&pki, NULL, "old_ca", &(struct cert_opts){.from_s = -DAY_S, .until_s = -1});
    c = pki_conf(&pki, "old_ca", "client");
    refused(&c, "t.ca: the certificate of ", "has expired");
    c = server_conf();
    pki_path(&pki, c.crl[0], "crl2");
    pki_crl(&pki, &ca, "crl2", NULL, -2 * DAY_S, -1);
    refused(&c, "t.crl: the CRL of ", "has expired");
    pki_crl(&pki, &ca, "crl2", NULL, 3600, DAY_S);
    refused(&c, "t.crl: the CRL of ", "is not valid yet");
    pki_crl(&pki, &other_ca, "crl2", NULL, -60, DAY_S);
    refused(&c, "t.crl: ", "is not signed by a CA of this block");
}

/* What tls_open() logs at level warn, into out[n]. */
static void warnings(const struct tls_conf *c, char *out, size_t n) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    log_init(LOG_WARN, ends[1]);
    struct tls *t = pki_open(c);
    log_init(LOG_NONE, 2);
    tls_close(&t);
    close(ends[1]);
    ssize_t got = read(ends[0], out, n - 1);
    out[got > 0 ? got : 0] = 0;
    close(ends[0]);
}

static void warns_of_a_plain_key(void **state) {
    char text[2048];
    struct tls_conf c = server_conf();
    (void)state;
    warnings(&c, text, sizeof(text));
    assert_string_equal(text, "");
    c = pki_conf(&pki, "ca", "client");
    warnings(&c, text, sizeof(text));
    assert_non_null(strstr(text, "event=key_not_encrypted setting=t.key"));
}

/* ---- sessions */
/* Carries bytes both ways until neither side has any, at most `piece` at a time. */
static void pump(struct tls_session *a, struct tls_session *b, size_t piece) {
    char bytes[65536];
    for (bool moved = true; moved;) {
        moved = false;
        for (int side = 0; side < 2; side++) {
            struct tls_session *from = side == 0 ? a : b, *to = side == 0 ? b : a;
            size_t n = tls_session_drain(from, bytes, piece);
            if (n == 0) continue;
            moved = true;
            tls_session_feed(to, bytes, n);
        }
    }
}

struct duo {
    struct tls *ct, *st;
    struct tls_session *c, *s;
};

static struct duo duo_of(const struct tls_conf *cc, const struct tls_conf *sc,
                         const char *server_name, const char *client_name, size_t piece) {
    struct duo d = {pki_open(cc), pki_open(sc), NULL, NULL};
    assert_int_equal(tls_session_create(&d.c, d.ct, TLS_CLIENT, server_name), ERR_OK);
    assert_int_equal(tls_session_create(&d.s, d.st, TLS_SERVER, client_name), ERR_OK);
    assert_true(tls_session_pending(d.c) > 0);
    assert_int_equal(tls_session_pending(d.s), 0);
    pump(d.c, d.s, piece);
    return d;
}

static void duo_free(struct duo *d) {
    tls_session_free(&d->c);
    tls_session_free(&d->s);
    tls_close(&d->ct);
    tls_close(&d->st);
}

static void both_up_with_the_same_secrets(void **state) {
    static const size_t pieces[] = {1, 7, 65536};
    struct tls_conf cc = pki_conf(&pki, "ca", "client"), sc = server_conf();
    (void)state;
    pki_path(&pki, cc.crl[0], "crl");
    pki_path(&pki, sc.crl[0], "crl");
    for (size_t i = 0; i < 3; i++) {
        unsigned char a[32], b[32], other[32];
        char text[16];
        struct duo d = duo_of(&cc, &sc, "127.0.0.1", "localhost", pieces[i]);
        assert_int_equal(tls_session_state(d.c), TLS_UP);
        assert_int_equal(tls_session_state(d.s), TLS_UP);
        assert_int_equal(tls_session_export(d.c, "EXPORTER-a", a, 32), ERR_OK);
        assert_int_equal(tls_session_export(d.s, "EXPORTER-a", b, 32), ERR_OK);
        assert_memory_equal(a, b, 32);
        assert_int_equal(tls_session_export(d.s, "EXPORTER-b", other, 32), ERR_OK);
        assert_memory_not_equal(a, other, 32);
        assert_true(tls_session_peer_has_name(d.c, "127.0.0.1"));
        assert_true(tls_session_peer_has_name(d.s, "localhost"));
        assert_false(tls_session_peer_has_name(d.c, "127.0.0.2"));
        assert_false(tls_session_peer_has_name(d.c, "server")); /* the subject is no name */
        assert_int_equal(tls_session_write(d.c, "ping", 4), ERR_OK);
        assert_int_equal(tls_session_read(d.s, text, sizeof(text)), 0);
        pump(d.c, d.s, pieces[i]);
        assert_int_equal(tls_session_read(d.s, text, sizeof(text)), 4);
        assert_memory_equal(text, "ping", 4);
        duo_free(&d);
    }
}

static void nothing_before_it_is_up(void **state) {
    struct tls_conf cc = pki_conf(&pki, "ca", "client");
    struct tls *t = pki_open(&cc);
    struct tls_session *s;
    char bytes[8];
    (void)state;
    assert_int_equal(tls_session_create(&s, t, TLS_CLIENT, NULL), ERR_OK);
    assert_int_equal(tls_session_state(s), TLS_HANDSHAKE);
    assert_int_equal(tls_session_export(s, "x", bytes, 8), ERR_CONFLICT);
    assert_int_equal(tls_session_write(s, "x", 1), ERR_CONFLICT);
    assert_int_equal(tls_session_read(s, bytes, 8), 0);
    assert_false(tls_session_peer_has_name(s, "localhost"));
    tls_session_free(&s);
    assert_int_equal(tls_session_create(&s, t, TLS_SERVER, NULL), ERR_OK);
    tls_close(&t); /* the session holds its own reference */
    assert_int_equal(tls_session_feed(s, "", 0), ERR_OK);
    tls_session_free(&s);
    tls_session_free(&s);
}

/* Who is refused, by whom, and with which reason on the side that refuses. */
static void peers_that_do_not_prove_themselves(void **state) {
    enum { BY_CLIENT, BY_SERVER };
    static const struct {
        const char *client_ca, *client, *server_ca, *server, *server_name, *client_name;
        int by;
        const char *why;
    } rows[] = {
        {"other", "client", "ca", "server", NULL, NULL, BY_CLIENT, "unable to get local issuer"},
        {"ca", "stranger", "ca", "server", NULL, NULL, BY_SERVER, "unable to get local issuer"},
        {"ca", "revoked", "ca", "server", NULL, NULL, BY_SERVER, "revoked"},
        {"ca", "client", "ca", "revoked", NULL, NULL, BY_CLIENT, "revoked"},
        {"ca", "client", "ca", "server", "127.0.0.2", NULL, BY_CLIENT, "IP address mismatch"},
        {"ca", "client", "ca", "server", "elsewhere", NULL, BY_CLIENT, "hostname mismatch"},
        {"ca", "client", "ca", "server", "localhost", "elsewhere", BY_SERVER, "hostname mismatch"},
        {"ca", "only_server", "ca", "server", NULL, NULL, BY_SERVER, "unsuitable certificate"},
        {"ca", "client", "ca", "only_client", NULL, NULL, BY_CLIENT, "unsuitable certificate"},
    };
    (void)state;
    pki_issue(&pki, &ca, "only_server", &(struct cert_opts){.eku = "serverAuth"});
    pki_issue(&pki, &ca, "only_client", &(struct cert_opts){.eku = "clientAuth"});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tls_conf cc = pki_conf(&pki, rows[i].client_ca, rows[i].client),
                        sc = pki_conf(&pki, rows[i].server_ca, rows[i].server);
        if (strcmp(rows[i].server, "server") == 0) pki_path(&pki, sc.passwd, "server.pass");
        if (strcmp(rows[i].client_ca, "ca") == 0) pki_path(&pki, cc.crl[0], "crl");
        pki_path(&pki, sc.crl[0], "crl");
        struct duo d = duo_of(&cc, &sc, rows[i].server_name, rows[i].client_name, 65536);
        struct tls_session *by = rows[i].by == BY_CLIENT ? d.c : d.s;
        if (tls_session_state(by) != TLS_FAILED ||
            strstr(tls_session_error(by), rows[i].why) == NULL)
            fail_msg("row %zu: \"%s\"", i, tls_session_error(by));
        assert_int_equal(tls_session_feed(by, "x", 1), ERR_REFUSED);
        /* The other side has the alert, at the latest with its first read. */
        struct tls_session *told = by == d.c ? d.s : d.c;
        char bytes[8];
        tls_session_read(told, bytes, 8);
        assert_int_equal(tls_session_state(told), TLS_FAILED);
        duo_free(&d);
    }
}

/* A name of the settings counts in place of the one that a session is told, on both sides; what the
 * certificate has is said, of its characters those of names only. */
static void a_peer_name(void **state) {
    static const struct {
        const char *san, *want, *says; /* says NULL: up */
    } rows[] = {
        {"DNS:kv.baton.svc", "kv.baton.svc", NULL},
        {"DNS:*.baton.svc", "kv.baton.svc", NULL},
        {"DNS:*.baton.svc", "a.kv.baton.svc", "but names *.baton.svc"},
        {"DNS:KV.baton.svc", "kv.baton.SVC", NULL},
        {"IP:127.0.0.1,IP:::1,DNS:a b", "kv",
         "the certificate must name kv (t.peer), but names 127.0.0.1, ::1, a?b"},
        {"URI:spiffe://a/kv", "kv", "but names nothing"},
    };
    static const char *const wrong[] = {"10.0.0.1", "::1", "a..b", ".a", "a.", "*.a", "a b", "a/b"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pki_issue(&pki, &ca, "named", &(struct cert_opts){.san = rows[i].san});
        struct tls_conf c = pki_conf(&pki, "ca", "named");
        snprintf(c.peer_name, sizeof(c.peer_name), "%s", rows[i].want);
        struct duo d = duo_of(&c, &c, "127.0.0.1", NULL, 65536);
        const char *said = tls_session_error(d.c);
        if (rows[i].says == NULL
                ? tls_session_state(d.c) != TLS_UP || tls_session_state(d.s) != TLS_UP
                : strstr(said, "mismatch") == NULL || strstr(said, rows[i].says) == NULL)
            fail_msg("row %zu: \"%s\", \"%s\"", i, said, tls_session_error(d.s));
        duo_free(&d);
    }
    struct tls_conf c = server_conf();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(c.peer_name, sizeof(c.peer_name), "%s", wrong[i]);
        refused(&c, "t.peer must be a DNS name", wrong[i]);
    }
    memset(c.peer_name, 'a', 64);
    c.peer_name[64] = 0;
    refused(&c, "t.peer must be a DNS name", "");
}

/* A certificate with more names than a line has room for. */
static void many_names_are_cut(void **state) {
    char san[2048] = "DNS:first";
    (void)state;
    for (int i = 0; i < 100; i++)
        snprintf(san + strlen(san), sizeof(san) - strlen(san), ",DNS:name-%d", i);
    pki_issue(&pki, &ca, "many", &(struct cert_opts){.san = san});
    struct tls_conf c = pki_conf(&pki, "ca", "many");
    memset(c.peer_name, 'b', 63);
    memset(c.peer_name + 63, '.', 1);
    memset(c.peer_name + 64, 'b', 63);
    struct duo d = duo_of(&c, &c, NULL, NULL, 65536);
    assert_non_null(strstr(tls_session_error(d.c), "but names first, name-0"));
    const size_t n = strlen(tls_session_error(d.c));
    assert_string_equal(tls_session_error(d.c) + n - 2, "..");
    duo_free(&d);
}

/* OpenSSL's own client against a session of ours. True: both are through. */
static bool raw_handshake(SSL_CTX *ctx, const struct tls_conf *sc, char why[256]) {
    struct tls *t = pki_open(sc);
    struct tls_session *s;
    char bytes[65536];
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    assert_int_equal(tls_session_create(&s, t, TLS_SERVER, NULL), ERR_OK);
    for (int round = 0; round < 10; round++) {
        int n;
        size_t k;
        SSL_do_handshake(ssl);
        while ((n = BIO_read(out, bytes, sizeof(bytes))) > 0) tls_session_feed(s, bytes, (size_t)n);
        while ((k = tls_session_drain(s, bytes, sizeof(bytes))) > 0) BIO_write(in, bytes, (int)k);
    }
    bool up = tls_session_state(s) == TLS_UP && SSL_is_init_finished(ssl);
    snprintf(why, 256, "%s", tls_session_error(s));
    ERR_clear_error();
    SSL_free(ssl);
    tls_session_free(&s);
    tls_close(&t);
    return up;
}

static void what_clients_may_be(void **state) {
    struct tls_conf strict = server_conf(), old = strict, open = strict;
    char why[256];
    (void)state;
    old.allow_tls12 = true;
    open.client_cert_optional = true;
    SSL_CTX *ctx = pki_client(&ca, &client);
    assert_true(raw_handshake(ctx, &strict, why));
    SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
    assert_false(raw_handshake(ctx, &strict, why));
    assert_non_null(strstr(why, "unsupported protocol"));
    assert_true(raw_handshake(ctx, &old, why));
    SSL_CTX_set_cipher_list(ctx, "AES128-SHA:ECDHE-ECDSA-AES128-SHA");
    assert_false(raw_handshake(ctx, &old, why)); /* 1.2 without AEAD */
    SSL_CTX_set_max_proto_version(ctx, TLS1_1_VERSION);
    assert_false(raw_handshake(ctx, &old, why));
    SSL_CTX_free(ctx);

    ctx = pki_client(&ca, NULL);
    assert_false(raw_handshake(ctx, &strict, why));
    assert_non_null(strstr(why, "peer did not return a certificate"));
    assert_true(raw_handshake(ctx, &open, why));
    SSL_CTX_free(ctx);
    ctx = pki_client(&ca, &stranger); /* optional is not "any" */
    assert_false(raw_handshake(ctx, &open, why));
    SSL_CTX_free(ctx);
    ctx = pki_client(&ca, &weak);
    assert_false(raw_handshake(ctx, &strict, why));
    assert_non_null(strstr(why, "too weak"));
    SSL_CTX_free(ctx);
    ctx = pki_client(&ca, &expired);
    assert_false(raw_handshake(ctx, &strict, why));
    assert_non_null(strstr(why, "expired"));
    SSL_CTX_free(ctx);
}

static void alpn(void **state) {
    static const struct {
        const char *offer;
        bool up;
    } rows[] = {
        {"\x08http/1.1", true}, {"\x02h2\x08http/1.1", true}, {"\x02h2", true}, {"\x02h3", false}};
    struct tls_conf sc = server_conf();
    char why[256];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        SSL_CTX *ctx = pki_client(&ca, &client);
        SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)rows[i].offer,
                                (unsigned)strlen(rows[i].offer));
        assert_true(raw_handshake(ctx, &sc, why) == rows[i].up);
        SSL_CTX_free(ctx);
    }
}

/* A hello cut or with a flipped bit never brings a session up, nor down the process. */
static void damaged_hellos(void **state) {
    struct tls_conf cc = pki_conf(&pki, "ca", "client"), sc = server_conf();
    struct tls *ct = pki_open(&cc), *st = pki_open(&sc);
    struct tls_session *c, *s;
    char hello[2048], bytes[65537];
    (void)state;
    assert_int_equal(tls_session_create(&c, ct, TLS_CLIENT, NULL), ERR_OK);
    size_t n = tls_session_drain(c, hello, sizeof(hello));
    assert_true(n > 100 && n < sizeof(hello));
    for (size_t cut = 0; cut < n; cut++) {
        assert_int_equal(tls_session_create(&s, st, TLS_SERVER, NULL), ERR_OK);
        tls_session_feed(s, hello, cut);
        assert_int_equal(tls_session_state(s), TLS_HANDSHAKE);
        assert_int_equal(tls_session_pending(s), 0);
        tls_session_free(&s);
    }
    for (size_t i = 0; i < n * 8; i += 5) {
        hello[i / 8] ^= (char)(1 << (i % 8));
        assert_int_equal(tls_session_create(&s, st, TLS_SERVER, NULL), ERR_OK);
        tls_session_feed(s, hello, n);
        assert_int_not_equal(tls_session_state(s), TLS_UP);
        tls_session_free(&s);
        hello[i / 8] ^= (char)(1 << (i % 8));
    }
    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(tls_session_create(&s, st, TLS_SERVER, NULL), ERR_OK);
    assert_int_equal(tls_session_feed(s, bytes, 100), ERR_REFUSED);
    assert_string_not_equal(tls_session_error(s), "");
    tls_session_free(&s);
    assert_int_equal(tls_session_create(&s, st, TLS_SERVER, NULL), ERR_OK);
    assert_int_equal(tls_session_feed(s, bytes, 65537), ERR_TOO_LARGE);
    assert_int_equal(tls_session_state(s), TLS_HANDSHAKE); /* nothing was taken */
    tls_session_free(&s);
    tls_session_free(&c);
    tls_close(&ct);
    tls_close(&st);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_rules),
        cmocka_unit_test(files_lent_by_root),
        cmocka_unit_test(content_rules),
        cmocka_unit_test(dates),
        cmocka_unit_test(warns_of_a_plain_key),
        cmocka_unit_test(both_up_with_the_same_secrets),
        cmocka_unit_test(nothing_before_it_is_up),
        cmocka_unit_test(peers_that_do_not_prove_themselves),
        cmocka_unit_test(a_peer_name),
        cmocka_unit_test(many_names_are_cut),
        cmocka_unit_test(what_clients_may_be),
        cmocka_unit_test(alpn),
        cmocka_unit_test(damaged_hellos),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
