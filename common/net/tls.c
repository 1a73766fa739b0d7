/* tls: contexts: what every session of a block has in common. */
#include "common/net/tls.h"

#include <openssl/err.h>
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
    SSL_CTX *ctx;
    struct tls_material m;
    bool allow_tls12, verify_host;
};

void tls_take_error(char *out, size_t n, const char *otherwise) {
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    snprintf(out, n, "%s", reason != NULL ? reason : otherwise);
    ERR_clear_error();
}

SSL_CTX *tls_ctx(struct tls *t) {
    return t->ctx;
}

/* http/1.1 or nothing: a client that insists on another protocol is told so. One that does not
 * speak of protocols is never asked. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned in_len, void *arg) {
    static const unsigned char ours[] = "\x08http/1.1";
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
static bool setup(struct tls *t, SSL_CTX *ctx) {
    SSL_CTX_set_security_level(ctx, SECURITY_LEVEL);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    return SSL_CTX_set_min_proto_version(ctx, t->allow_tls12 ? TLS1_2_VERSION : TLS1_3_VERSION) ==
               1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(ctx, SUITES_13) == 1 &&
           SSL_CTX_set_cipher_list(ctx, SUITES_12) == 1 &&
           SSL_CTX_use_certificate(ctx, t->m.cert) == 1 &&
           (t->m.chain == NULL || SSL_CTX_set1_chain(ctx, t->m.chain) == 1) &&
           SSL_CTX_use_PrivateKey(ctx, t->m.key) == 1 &&
           /* Before the store of the context, which libcurl fills by itself at a later time. */
           SSL_CTX_set1_verify_cert_store(ctx, t->m.store) == 1;
}

static bool make_ctx(struct tls *t, const struct tls_conf *c) {
    t->ctx = SSL_CTX_new(TLS_method());
    if (t->ctx == NULL || !setup(t, t->ctx)) return false;
    SSL_CTX_set_num_tickets(t->ctx, 0);
    SSL_CTX_set_mode(t->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_verify(
        t->ctx, SSL_VERIFY_PEER | (c->client_cert_optional ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT),
        NULL);
    SSL_CTX_set_alpn_select_cb(t->ctx, on_alpn, NULL);
    /* The context takes the names: a client with certificates of several CAs learns which to use.
     */
    SSL_CTX_set_client_CA_list(t->ctx, t->m.ca_names);
    t->m.ca_names = NULL;
    return true;
}

enum err tls_open(struct tls **out, const struct tls_conf *c, struct errbuf *eb) {
    struct tls *t = calloc(1, sizeof(*t));
    *out = NULL;
    if (t == NULL) return err_set(eb, ERR_NO_MEMORY, "%s: no memory", c->names.cert);
    atomic_init(&t->refs, 1);
    t->allow_tls12 = c->allow_tls12;
    t->verify_host = c->verify_host;
    enum err e = tls_material_load(&t->m, c, eb);
    if (e == ERR_OK && !make_ctx(t, c)) {
        char why[160];
        tls_take_error(why, sizeof(why), "no memory");
        e = err_set(eb, ERR_BAD_CONFIG, "%s: %s cannot be used: %s", c->names.cert, c->cert, why);
    }
    if (e != ERR_OK) {
        tls_close(&t);
        return e;
    }
    *out = t;
    return ERR_OK;
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
    free(t);
}

bool tls_verifies_host(const struct tls *t) {
    return t->verify_host;
}

bool tls_setup_client_ctx(struct tls *t, void *ssl_ctx) {
    SSL_CTX *ctx = ssl_ctx;
    if (!setup(t, ctx)) {
        ERR_clear_error();
        return false;
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return true;
}
