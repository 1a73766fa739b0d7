/* tls_session: one connection's TLS, over a socket (the second table of sock_io) or over memory. */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/tls_priv.h"

#include <sys/socket.h>
#include <unistd.h>

enum { RECORD_BYTES_MAX = 16384, UNREAD_BYTES_MAX = 65536, WHY_BYTES = 160 };

/* ---- over a socket */
struct tls_conn {
    SSL *ssl;
    struct tls *tls;
    bool failed;  /* OpenSSL forbids any further call */
    bool limited; /* once the handshake is done */
    char why[WHY_BYTES];
};

/* What a call that did not succeed means. */
static ssize_t not_done(struct sock_io *io, struct tls_conn *c, int rc) {
    switch (SSL_get_error(c->ssl, rc)) {
    case SSL_ERROR_WANT_READ: return SOCK_AGAIN;
    case SSL_ERROR_WANT_WRITE: io->want_write = true; return SOCK_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default: break;
    }
    long verify = SSL_get_verify_result(c->ssl);
    c->failed = true;
    if (BIO_number_read(SSL_get_rbio(c->ssl)) == 0) { /* came and went: a port probe */
        ERR_clear_error();
        return SOCK_FAILED;
    }
    tls_take_error(c->why, sizeof(c->why), "the connection broke");
    if (verify != X509_V_OK) {
        size_t n = strlen(c->why);
        snprintf(c->why + n, sizeof(c->why) - n, ": %s", X509_verify_cert_error_string(verify));
    }
    return SOCK_FAILED;
}

static bool handshake(struct sock_io *io, struct tls_conn *c, ssize_t *result) {
    if (SSL_is_init_finished(c->ssl)) return true;
    int rc = SSL_do_handshake(c->ssl);
    if (rc == 1) {
        io->handshaking = false;
        c->limited = tls_ssl_limited(c->ssl);
        return true;
    }
    *result = not_done(io, c, rc);
    if (*result == 0) *result = SOCK_FAILED;
    return false;
}

/* As many whole records as fit: a part of one left inside OpenSSL would not show on the socket. */
static ssize_t tls_io_read(struct sock_io *io, void *p, size_t n) {
    struct tls_conn *c = io->tls;
    size_t got = 0, one;
    ssize_t result;
    io->want_write = false;
    if (c->failed) return SOCK_FAILED;
    ERR_clear_error();
    if (!handshake(io, c, &result)) return result;
    do {
        int rc = SSL_read_ex(c->ssl, (char *)p + got, n - got, &one);
        if (rc != 1) return got > 0 ? (ERR_clear_error(), (ssize_t)got) : not_done(io, c, rc);
        got += one;
    } while (n - got >= RECORD_BYTES_MAX);
    return (ssize_t)got;
}

static ssize_t tls_io_write(struct sock_io *io, const void *p, size_t n) {
    struct tls_conn *c = io->tls;
    size_t taken = 0, one;
    if (c->failed) return SOCK_FAILED;
    if (io->handshaking) return SOCK_AGAIN;
    ERR_clear_error();
    while (taken < n) {
        int rc = SSL_write_ex(c->ssl, (const char *)p + taken, n - taken, &one);
        if (rc != 1) {
            if (taken > 0) {
                ERR_clear_error();
                break;
            }
            ssize_t result = not_done(io, c, rc);
            io->want_write = false; /* the caller waits for room to write anyway */
            return result == 0 ? SOCK_FAILED : result;
        }
        taken += one;
    }
    return (ssize_t)taken;
}

static void tls_io_shutdown(struct sock_io *io) {
    struct tls_conn *c = io->tls;
    ERR_clear_error();
    if (!c->failed && !io->handshaking && SSL_shutdown(c->ssl) < 0) ERR_clear_error();
    shutdown(io->fd, SHUT_WR);
}

/* Without a close_notify of its own: what was not shut down before is cut, and shall look it. */
static void tls_io_close(struct sock_io *io) {
    struct tls_conn *c = io->tls;
    SSL_free(c->ssl);
    tls_close(&c->tls);
    free(c);
    io->tls = NULL;
    close(io->fd);
    io->fd = -1;
}

static const struct sock_ops tls_ops = {tls_io_read, tls_io_write, tls_io_shutdown, tls_io_close};

enum err tls_sock_io(struct sock_io *io, struct tls *t, int fd) {
    struct tls_conn *c = calloc(1, sizeof(*c));
    if (c == NULL) return ERR_NO_MEMORY;
    c->ssl = tls_new_ssl(t);
    if (c->ssl == NULL || SSL_set_fd(c->ssl, fd) != 1) {
        SSL_free(c->ssl);
        ERR_clear_error();
        free(c);
        return ERR_NO_MEMORY;
    }
    SSL_set_accept_state(c->ssl);
    c->tls = tls_ref(t);
    *io = (struct sock_io){.ops = &tls_ops, .fd = fd, .tls = c, .handshaking = true};
    return ERR_OK;
}

size_t tls_sock_held(const struct sock_io *io) {
    return io->tls != NULL && SSL_has_pending(io->tls->ssl) ? RECORD_BYTES_MAX : 0;
}

bool tls_sock_limited(const struct sock_io *io) {
    return io->tls != NULL && io->tls->limited;
}

bool tls_sock_h2(const struct sock_io *io) {
    const unsigned char *name = NULL;
    unsigned n = 0;
    if (io->tls != NULL) SSL_get0_alpn_selected(io->tls->ssl, &name, &n);
    return n == 2 && memcmp(name, "h2", 2) == 0;
}

const char *tls_sock_error(const struct sock_io *io) {
    const struct tls_conn *c = io->tls;
    return c != NULL ? c->why : "";
}

/* ---- over memory */
struct tls_session {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    struct tls *tls;
    enum tls_state state;
    struct tls_expected expected;
    char why[WHY_BYTES + TLS_WHY_BYTES];
};

static void fail(struct tls_session *s) {
    long verify = SSL_get_verify_result(s->ssl);
    s->state = TLS_FAILED;
    tls_take_error(s->why, sizeof(s->why), "the session broke");
    if (verify != X509_V_OK) {
        size_t n = strlen(s->why);
        const char *more = s->expected.said;
        snprintf(s->why + n, sizeof(s->why) - n, ": %s%s%s", X509_verify_cert_error_string(verify),
                 more[0] != '\0' ? ": " : "", more);
    }
}

static bool wants_more(const struct tls_session *s, int rc) {
    int e = SSL_get_error(s->ssl, rc);
    return e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE;
}

static void step(struct tls_session *s) {
    if (s->state != TLS_HANDSHAKE) return;
    ERR_clear_error();
    int rc = SSL_do_handshake(s->ssl);
    if (rc == 1)
        s->state = TLS_UP;
    else if (!wants_more(s, rc))
        fail(s);
}

enum err tls_session_create(struct tls_session **out, struct tls *t, enum tls_role role,
                            const char *peer_name) {
    struct tls_session *s = calloc(1, sizeof(*s));
    *out = NULL;
    if (s == NULL) return ERR_NO_MEMORY;
    s->ssl = tls_new_ssl(t);
    s->in = BIO_new(BIO_s_mem());
    s->out = BIO_new(BIO_s_mem());
    s->tls = tls_ref(t);
    bool ok = s->ssl != NULL && s->in != NULL && s->out != NULL;
    if (!ok) {
        BIO_free(s->in);
        BIO_free(s->out);
    } else {
        BIO_set_mem_eof_return(s->in, -1); /* empty is "not yet", not the end */
        SSL_set_bio(s->ssl, s->in, s->out);
        const struct tls_conf *c = tls_settings(t);
        const bool by_setting = c->peer_name[0] != '\0';
        const char *name = by_setting ? c->peer_name : peer_name != NULL ? peer_name : "";
        ok = tls_expect(SSL_get0_param(s->ssl), &s->expected, name,
                        by_setting ? c->names.peer_name : NULL) &&
             tls_expect_hang(s->ssl, NULL, &s->expected);
    }
    if (!ok) {
        ERR_clear_error();
        tls_session_free(&s);
        return ERR_NO_MEMORY;
    }
    if (role == TLS_SERVER)
        SSL_set_accept_state(s->ssl);
    else
        SSL_set_connect_state(s->ssl);
    step(s);
    *out = s;
    return ERR_OK;
}

void tls_session_free(struct tls_session **sp) {
    struct tls_session *s = *sp;
    *sp = NULL;
    if (s == NULL) return;
    SSL_free(s->ssl);
    tls_close(&s->tls);
    free(s);
}

enum err tls_session_feed(struct tls_session *s, const void *p, size_t n) {
    if (s->state == TLS_FAILED) return ERR_REFUSED;
    if (n > UNREAD_BYTES_MAX - BIO_ctrl_pending(s->in)) return ERR_TOO_LARGE;
    if (n > 0 && BIO_write(s->in, p, (int)n) != (int)n) return ERR_NO_MEMORY;
    step(s);
    return s->state == TLS_FAILED ? ERR_REFUSED : ERR_OK;
}

size_t tls_session_pending(const struct tls_session *s) {
    return BIO_ctrl_pending(s->out);
}

size_t tls_session_drain(struct tls_session *s, void *p, size_t n) {
    size_t got = 0;
    return BIO_read_ex(s->out, p, n, &got) == 1 ? got : 0;
}

enum tls_state tls_session_state(const struct tls_session *s) {
    return s->state;
}

const char *tls_session_error(const struct tls_session *s) {
    return s->why;
}

enum err tls_session_export(struct tls_session *s, const char *label, void *out, size_t n) {
    if (s->state != TLS_UP) return ERR_CONFLICT;
    if (SSL_export_keying_material(s->ssl, out, n, label, strlen(label), NULL, 0, 0) == 1)
        return ERR_OK;
    ERR_clear_error();
    return ERR_INTERNAL;
}

bool tls_session_peer_has_name(const struct tls_session *s, const char *name) {
    X509 *x = s->state == TLS_UP ? SSL_get0_peer_certificate(s->ssl) : NULL;
    if (x == NULL) return false;
    return (tls_is_ip(name)
                ? X509_check_ip_asc(x, name, 0)
                : X509_check_host(x, name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL)) == 1;
}

enum err tls_session_write(struct tls_session *s, const void *p, size_t n) {
    size_t at = 0, one;
    if (s->state != TLS_UP) return ERR_CONFLICT;
    ERR_clear_error();
    while (at < n) {
        if (SSL_write_ex(s->ssl, (const char *)p + at, n - at, &one) != 1) {
            fail(s);
            return ERR_INTERNAL;
        }
        at += one;
    }
    return ERR_OK;
}

size_t tls_session_read(struct tls_session *s, void *p, size_t n) {
    size_t got = 0;
    if (s->state != TLS_UP) return 0;
    ERR_clear_error();
    int rc = SSL_read_ex(s->ssl, p, n, &got);
    if (rc == 1) return got;
    if (!wants_more(s, rc)) fail(s);
    return 0;
}
