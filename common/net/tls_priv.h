/* tls_priv: what tls_files.c (files and certificates), tls.c (contexts) and tls_session.c share. */
#ifndef BATON_NET_TLS_PRIV_H
#define BATON_NET_TLS_PRIV_H

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include "common/net/tls.h"

/* What a block's files hold, checked. */
struct tls_material {
    X509 *cert;
    STACK_OF(X509) * chain; /* own intermediates */
    EVP_PKEY *key;
    X509_STORE *store; /* CAs and CRLs, flags set */
    STACK_OF(X509_NAME) * ca_names;
    STACK_OF(X509) * limited; /* CAs of ca_limited; NULL: none */
    struct tls_expiry expiries[TLS_EXPIRIES_MAX];
    size_t n_expiries;
};

/* tls_peer.c: what SSL_set_verify() wants; what tls_expect() hung from the session, or from its
 * context, says why a certificate's names are refused. */
int tls_on_verify(int ok, X509_STORE_CTX *store);
/* x must stay as long as handshakes run. name "": nothing is expected. False: no memory. */
bool tls_expect(X509_VERIFY_PARAM *param, struct tls_expected *x, const char *name,
                const char *setting);
bool tls_expect_hang(SSL *ssl, SSL_CTX *ctx, struct tls_expected *x); /* from one of the two */
/* ERR_BAD_CONFIG: peer_name is no DNS name. */
enum err tls_check_peer_name(const struct tls_conf *c, struct errbuf *eb);
bool tls_is_ip(const char *s);

/* tls_files.c */
enum err tls_material_load(struct tls_material *m, const struct tls_conf *c, struct errbuf *eb);
void tls_material_free(struct tls_material *m); /* accepts a half-filled one */

/* tls.c */
SSL *tls_new_ssl(struct tls *t); /* with what is in force now; NULL: no memory */
/* The verified chain of the peer has a CA of ca_limited, of the context the session began with. */
bool tls_ssl_limited(const SSL *ssl);
/* The newest entry of OpenSSL's error queue as text, and an empty queue. */
void tls_take_error(char *out, size_t n, const char *otherwise);

#endif
