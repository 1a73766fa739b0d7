/* tls_pki: makes CAs, certificates, keys and CRLs for a test, good ones and bad ones, as PEM files
 * of a temporary folder; and the plain OpenSSL client that a test can make misbehave. Include after
 * cmocka.h. */
#ifndef BATON_TESTS_TLS_PKI_H
#define BATON_TESTS_TLS_PKI_H

#include <dirent.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/net/tls.h"

enum { DAY_S = 86400, PKI_OBJECTS_MAX = 64 };

/* A certificate with its key. */
struct issued {
    X509 *cert;
    EVP_PKEY *key;
};

struct pki {
    char dir[64];
    long serial;
    struct issued all[PKI_OBJECTS_MAX]; /* to be freed */
    int n;
};

enum key_kind { KEY_P256, KEY_P224, KEY_RSA_2048, KEY_RSA_3072, KEY_ED25519 };

struct cert_opts {
    enum key_kind kind;
    long from_s, until_s; /* from now; until 0: 365 days */
    const char *san;      /* NULL: IP:127.0.0.1,DNS:localhost */
    const char *eku;      /* NULL: serverAuth,clientAuth */
    const char *password; /* NULL: the key file is not encrypted */
};

static void pki_up(struct pki *p) {
    memset(p, 0, sizeof(*p));
    strcpy(p->dir, "/tmp/baton-tls-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
}

static void pki_down(struct pki *p) {
    char path[512];
    DIR *d = opendir(p->dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), "%s/%s", p->dir, e->d_name);
        if (unlink(path) != 0) rmdir(path);
    }
    closedir(d);
    rmdir(p->dir);
    for (int i = 0; i < p->n; i++) {
        X509_free(p->all[i].cert);
        EVP_PKEY_free(p->all[i].key);
    }
}

/* path[TLS_PATH_BYTES] of a file of the folder. */
static void pki_path(const struct pki *p, char *path, const char *name) {
    snprintf(path, TLS_PATH_BYTES, "%s/%s", p->dir, name);
}

/* Renamed over what is there, so that a watch sees the old file or the new one and none between. */
static void pki_write(const struct pki *p, const char *name, const void *data, size_t n,
                      unsigned mode) {
    char path[TLS_PATH_BYTES], fresh[TLS_PATH_BYTES];
    pki_path(p, path, name);
    pki_path(p, fresh, "fresh");
    FILE *f = fopen(fresh, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    assert_int_equal(chmod(fresh, mode), 0);
    assert_int_equal(rename(fresh, path), 0);
}

static void pki_write_bio(const struct pki *p, const char *name, BIO *bio) {
    char *data;
    long n = BIO_get_mem_data(bio, &data);
    pki_write(p, name, data, (size_t)n, 0400);
    BIO_free(bio);
}

static EVP_PKEY *pki_key(enum key_kind kind) {
    switch (kind) {
    case KEY_P256: return EVP_EC_gen("P-256");
    case KEY_P224: return EVP_EC_gen("P-224");
    case KEY_RSA_2048: return EVP_RSA_gen(2048);
    case KEY_RSA_3072: return EVP_RSA_gen(3072);
    case KEY_ED25519: return EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    }
    return NULL;
}

static void pki_extension(X509 *x, X509 *issuer, int nid, const char *value) {
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(e);
    X509_add_ext(x, e, -1);
    X509_EXTENSION_free(e);
}

/* NAME.pem and NAME.key. ca NULL: a CA of its own. */
static struct issued pki_issue(struct pki *p, const struct issued *ca, const char *name,
                               const struct cert_opts *o) {
    char file[128];
    struct issued i = {X509_new(), pki_key(o->kind)};
    X509_NAME *subject = X509_get_subject_name(i.cert);
    assert_true(i.key != NULL && p->n < PKI_OBJECTS_MAX);
    p->all[p->n++] = i;
    X509_set_version(i.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(i.cert), ++p->serial);
    X509_gmtime_adj(X509_getm_notBefore(i.cert), o->from_s != 0 ? o->from_s : -60);
    X509_gmtime_adj(X509_getm_notAfter(i.cert), o->until_s != 0 ? o->until_s : 365 * DAY_S);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(i.cert, ca != NULL ? X509_get_subject_name(ca->cert) : subject);
    X509_set_pubkey(i.cert, i.key);
    if (ca == NULL) {
        pki_extension(i.cert, i.cert, NID_basic_constraints, "critical,CA:TRUE");
        pki_extension(i.cert, i.cert, NID_key_usage, "critical,keyCertSign,cRLSign");
    } else {
        pki_extension(i.cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE");
        pki_extension(i.cert, ca->cert, NID_subject_alt_name,
                      o->san != NULL ? o->san : "IP:127.0.0.1,DNS:localhost");
        pki_extension(i.cert, ca->cert, NID_ext_key_usage,
                      o->eku != NULL ? o->eku : "serverAuth,clientAuth");
    }
    EVP_PKEY *signer = ca != NULL ? ca->key : i.key;
    assert_true(X509_sign(i.cert, signer, EVP_PKEY_is_a(signer, "ED25519") ? NULL : EVP_sha256()) >
                0);
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, i.cert);
    snprintf(file, sizeof(file), "%s.pem", name);
    pki_write_bio(p, file, bio);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PKCS8PrivateKey(bio, i.key, o->password != NULL ? EVP_aes_256_cbc() : NULL,
                                  o->password, o->password != NULL ? (int)strlen(o->password) : 0,
                                  NULL, NULL);
    snprintf(file, sizeof(file), "%s.key", name);
    pki_write_bio(p, file, bio);
    return i;
}

static inline void pki_crl(const struct pki *p, const struct issued *ca, const char *name,
                           const struct issued *revoked, long from_s, long until_s) {
    X509_CRL *crl = X509_CRL_new();
    ASN1_TIME *from = X509_gmtime_adj(NULL, from_s), *until = X509_gmtime_adj(NULL, until_s);
    X509_CRL_set_version(crl, 1);
    X509_CRL_set_issuer_name(crl, X509_get_subject_name(ca->cert));
    X509_CRL_set1_lastUpdate(crl, from);
    X509_CRL_set1_nextUpdate(crl, until);
    if (revoked != NULL) {
        X509_REVOKED *r = X509_REVOKED_new();
        X509_REVOKED_set_serialNumber(r, X509_get_serialNumber(revoked->cert));
        X509_REVOKED_set_revocationDate(r, from);
        X509_CRL_add0_revoked(crl, r);
    }
    X509_CRL_sort(crl);
    assert_true(X509_CRL_sign(crl, ca->key, EVP_sha256()) > 0);
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509_CRL(bio, crl);
    pki_write_bio(p, name, bio);
    X509_CRL_free(crl);
    ASN1_TIME_free(from);
    ASN1_TIME_free(until);
}

/* Settings that name CA.pem, NAME.pem and NAME.key. */
static inline struct tls_conf pki_conf(const struct pki *p, const char *ca, const char *name) {
    struct tls_conf c = {.names = {"t.ca", "t.cert", "t.key", "t.passwd", "t.crl", NULL, "t.peer"}};
    char file[128];
    snprintf(file, sizeof(file), "%s.pem", ca);
    pki_path(p, c.ca[0], file);
    snprintf(file, sizeof(file), "%s.pem", name);
    pki_path(p, c.cert, file);
    snprintf(file, sizeof(file), "%s.key", name);
    pki_path(p, c.key, file);
    return c;
}

static inline struct tls *pki_open(const struct tls_conf *c) {
    struct tls *t;
    struct errbuf eb = {0};
    if (tls_open(&t, c, &eb) != ERR_OK) fail_msg("%s", eb.text);
    return t;
}

/* A client of OpenSSL's own that trusts ca and shows `own` (NULL: nothing), with no rules of ours.
 */
static inline SSL_CTX *pki_client(const struct issued *ca, const struct issued *own) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(ctx, 0);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), ca->cert);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (own != NULL) {
        assert_int_equal(SSL_CTX_use_certificate(ctx, own->cert), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(ctx, own->key), 1);
    }
    return ctx;
}

#endif
