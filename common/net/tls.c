/* tls: contexts: what every session of a block has in common. */
#include "common/net/tls.h"

#include <openssl/err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/tls_priv.h"

#define SUITES_13                                                                                  \
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:"                  \
    "TLS_AES_128_CCM_SHA256"
/* Forward secrecy and AEAD, as in 1.3. */
#define SUITES_12                                                                                  \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"     \
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"

/* OpenSSL's level 3 refuses what has less than 128 bits of security, in peers' chains too: RSA and
 * DH under 3072 bits, curves under 256, SHA-1. */
enum { SECURITY_LEVEL = 3 };

struct tls {
    atomic_uint refs;
    struct tls_conf conf;
    pthread_mutex_t mutex; /* guards what tls_reload() replaces */
    SSL_CTX *ctx;          /* a session has a reference of its own */
    struct tls_material m;
};

/* ---- limited CAs: a stack that hangs from the context, and so lives as long as its sessions */
static int limited_idx = -1;
static pthread_once_t limited_once = PTHREAD_ONCE_INIT;

static void free_limited(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl,
                         void *argp) {
    (void)parent, (void)ad, (void)idx, (void)argl, (void)argp;
    sk_X509_pop_free(ptr, X509_free);
}

static void make_limited_idx(void) {
    limited_idx = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_limited);
}

bool tls_ssl_limited(const SSL *ssl) {
    const STACK_OF(X509) *limited =
        limited_idx >= 0 ? SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), limited_idx) : NULL;
    const STACK_OF(X509) *chain = SSL_get0_verified_chain(ssl);
    for (int i = 0; i < sk_X509_num(chain); i++)
        for (int k = 0; k < sk_X509_num(limited); k++)
            if (X509_cmp(sk_X509_value(chain, i), sk_X509_value(limited, k)) == 0) return true;
    return false;
}

void tls_take_error(char *out, size_t n, const char *otherwise) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    snprintf(out, n, "%s", reason != NULL ? reason : otherwise);
    ERR_clear_error();
}

SSL *tls_new_ssl(struct tls *t) {
    pthread_mutex_lock(&t->mutex);
    SSL *ssl = SSL_new(t->ctx);
    pthread_mutex_unlock(&t->mutex);
    return ssl;
}

/* h2 before http/1.1, or nothing: a client that insists on another protocol is told so. One that
 * does not speak of protocols is never asked. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned in_len, void *arg) {
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *pick = NULL;
    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&pick, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = pick;
    return SSL_TLSEXT_ERR_OK;
}

/* Shared by our own contexts and libcurl's. */
static bool setup(const struct tls_conf *c, const struct tls_material *m, SSL_CTX *ctx) {
    SSL_CTX_set_security_level(ctx, SECURITY_LEVEL);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    return SSL_CTX_set_min_proto_version(ctx, c->allow_tls12 ? TLS1_2_VERSION : TLS1_3_VERSION) ==
               1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(ctx, SUITES_13) == 1 &&
           SSL_CTX_set_cipher_list(ctx, SUITES_12) == 1 &&
           SSL_CTX_use_certificate(ctx, m->cert) == 1 &&
           (m->chain == NULL || SSL_CTX_set1_chain(ctx, m->chain) == 1) &&
           SSL_CTX_use_PrivateKey(ctx, m->key) == 1 &&
           /* Before the store of the context, which libcurl fills by itself at a later time. */
           SSL_CTX_set1_verify_cert_store(ctx, m->store) == 1;
}

/* NULL: not usable; OpenSSL's queue says why. */
static SSL_CTX *make_ctx(const struct tls_conf *c, struct tls_material *m) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    if (ctx == NULL || !setup(c, m, ctx)) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    if (m->limited != NULL) {
        pthread_once(&limited_once, make_limited_idx);
        if (limited_idx < 0 || SSL_CTX_set_ex_data(ctx, limited_idx, m->limited) != 1) {
            SSL_CTX_free(ctx);
            return NULL;
        }
        m->limited = NULL; /* the context's */
    }
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_verify(
        ctx, SSL_VERIFY_PEER | (c->client_cert_optional ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT),
        tls_on_verify);
    SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
    /* The context takes the names: a client with certificates of several CAs learns which to use.
     */
    SSL_CTX_set_client_CA_list(ctx, m->ca_names);
    m->ca_names = NULL;
    return ctx;
}

/* Both, or neither. */
static enum err load(SSL_CTX **ctx, struct tls_material *m, const struct tls_conf *c,
                     struct errbuf *eb) {
    enum err e = tls_check_peer_name(c, eb);
    if (e == ERR_OK) e = tls_material_load(m, c, eb);
    if (e != ERR_OK || (*ctx = make_ctx(c, m)) != NULL) return e;
    char why[160];
    tls_take_error(why, sizeof(why), "no memory");
    tls_material_free(m);
    return err_set(eb, ERR_BAD_CONFIG, "%s: %s cannot be used: %s", c->names.cert, c->cert, why);
}

enum err tls_open(struct tls **out, const struct tls_conf *c, struct errbuf *eb) {
    struct tls *t = calloc(1, sizeof(*t));
    *out = NULL;
    if (t == NULL) return err_set(eb, ERR_NO_MEMORY, "%s: no memory", c->names.cert);
    atomic_init(&t->refs, 1);
    t->conf = *c;
    enum err e = load(&t->ctx, &t->m, &t->conf, eb); /* which t->m.expiries point into */
    if (e != ERR_OK) {
        free(t);
        return e;
    }
    pthread_mutex_init(&t->mutex, NULL);
    *out = t;
    return ERR_OK;
}

enum err tls_reload(struct tls *t, struct errbuf *eb) {
    struct tls_material m, old_m;
    SSL_CTX *ctx, *old_ctx;
    enum err e = load(&ctx, &m, &t->conf, eb);
    if (e != ERR_OK) return e;
    pthread_mutex_lock(&t->mutex);
    old_ctx = t->ctx;
    old_m = t->m;
    t->ctx = ctx;
    t->m = m;
    pthread_mutex_unlock(&t->mutex);
    SSL_CTX_free(old_ctx);
    tls_material_free(&old_m);
    return ERR_OK;
}

const struct tls_conf *tls_settings(const struct tls *t) {
    return &t->conf;
}

size_t tls_expiries(struct tls *t, struct tls_expiry out[TLS_EXPIRIES_MAX]) {
    pthread_mutex_lock(&t->mutex);
    size_t n = t->m.n_expiries;
    memcpy(out, t->m.expiries, n * sizeof(out[0]));
    pthread_mutex_unlock(&t->mutex);
    return n;
}

struct tls *tls_ref(struct tls *t) {
    if (t != NULL) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void tls_close(struct tls **tp) {
    struct tls *t = *tp;
    *tp = NULL;
    if (t == NULL || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1) return;
    SSL_CTX_free(t->ctx);
    tls_material_free(&t->m);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

bool tls_verifies_host(const struct tls *t) {
    return t->conf.verify_host && t->conf.peer_name[0] == '\0';
}

bool tls_setup_client_ctx(struct tls *t, void *ssl_ctx, struct tls_expected *x) {
    SSL_CTX *ctx = ssl_ctx;
    pthread_mutex_lock(&t->mutex);
    bool ok = setup(&t->conf, &t->m, ctx);
    pthread_mutex_unlock(&t->mutex);
    if (ok && t->conf.peer_name[0] != '\0')
        ok = tls_expect(SSL_CTX_get0_param(ctx), x, t->conf.peer_name, t->conf.names.peer_name) &&
             tls_expect_hang(NULL, ctx, x);
    if (!ok) {
        ERR_clear_error();
        return false;
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, tls_on_verify);
    return true;
}
