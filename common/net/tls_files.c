/* tls_files: certificates, keys and CRLs from files, with every rule of the TLS planes about them.
 * A message names setting and file, so that whoever starts the daemon knows what to mend. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common/base/file_owner.h"
#include "common/base/log.h"
#include "common/net/tls_priv.h"

enum { FILE_BYTES_MAX = 10 << 20, PASSWORD_BYTES_MAX = 1024, RSA_BITS_MIN = 3072, CERTS_MAX = 64 };

/* The bytes of a file, wiped when freed: they may be a key. */
struct secret {
    char *data;
    size_t len;
};

static void secret_free(struct secret *s) {
    if (s->data != NULL) OPENSSL_cleanse(s->data, s->len);
    free(s->data);
    *s = (struct secret){NULL, 0};
}

static enum err check_file(int fd, const char *name, const char *path, size_t *size,
                           struct errbuf *eb) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_set(eb, ERR_BAD_CONFIG, "%s: cannot look at %s: %s", name, path,
                       strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(eb, ERR_BAD_CONFIG, "%s: %s must be a regular file", name, path);
    if (st.st_uid != geteuid() && !file_lent_by_root(&st))
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s: %s must belong to the user of the process (uid %u), or to root with "
                       "mode 0640 at most, it belongs to uid %u with mode %04o",
                       name, path, (unsigned)geteuid(), (unsigned)st.st_uid,
                       (unsigned)(st.st_mode & 07777));
    if (!file_lent_by_root(&st) && (st.st_mode & 07777 & ~(mode_t)0400) != 0)
        return err_set(eb, ERR_BAD_CONFIG, "%s: %s must have mode 0400, it has %04o", name, path,
                       (unsigned)(st.st_mode & 07777));
    if (st.st_size <= 0 || st.st_size > FILE_BYTES_MAX)
        return err_set(eb, ERR_BAD_CONFIG, "%s: %s must have from 1 to %d bytes, it has %lld", name,
                       path, FILE_BYTES_MAX, (long long)st.st_size);
    *size = (size_t)st.st_size;
    return ERR_OK;
}

static enum err read_file(struct secret *out, const char *name, const char *path,
                          struct errbuf *eb) {
    *out = (struct secret){NULL, 0};
    if (path[0] == 0) return err_set(eb, ERR_BAD_CONFIG, "%s must name a file", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_set(eb, ERR_BAD_CONFIG, "%s: cannot open %s: %s", name, path,
                       errno == ELOOP ? "it must not be a symbolic link" : strerror(errno));
    size_t size = 0;
    enum err e = check_file(fd, name, path, &size, eb);
    if (e == ERR_OK && (out->data = calloc(1, size + 1)) == NULL)
        e = err_set(eb, ERR_NO_MEMORY, "%s: no memory for %s", name, path);
    while (e == ERR_OK && out->len < size) {
        ssize_t n = read(fd, out->data + out->len, size - out->len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            e = err_set(eb, ERR_BAD_CONFIG, "%s: cannot read %s: %s", name, path,
                        n < 0 ? strerror(errno) : "it became shorter");
        else
            out->len += (size_t)n;
    }
    close(fd);
    if (e != ERR_OK) secret_free(out);
    return e;
}

/* Never asks a terminal, which OpenSSL's own callback would. */
struct password {
    const char *text; /* NULL: none given */
    int len;
    bool asked;
};

static int on_password(char *buf, int size, int writing, void *arg) {
    struct password *p = arg;
    (void)writing;
    p->asked = true;
    if (p->text == NULL || p->len > size) return -1;
    memcpy(buf, p->text, (size_t)p->len);
    return p->len;
}

/* ---- dates */
static enum err check_dates(const char *name, const char *path, const char *what,
                            const ASN1_TIME *from, const ASN1_TIME *until, struct errbuf *eb) {
    int days = 0, seconds = 0;
    if (from != NULL && X509_cmp_current_time(from) > 0)
        return err_set(eb, ERR_BAD_CONFIG, "%s: %s of %s is not valid yet", name, what, path);
    if (until == NULL) return ERR_OK;
    if (X509_cmp_current_time(until) <= 0 || ASN1_TIME_diff(&days, &seconds, NULL, until) != 1)
        return err_set(eb, ERR_BAD_CONFIG, "%s: %s of %s has expired", name, what, path);
    return ERR_OK;
}

/* The end of something in the file at path, which is a member of the settings. */
static void note_end(struct tls_material *m, const char *path, const ASN1_TIME *until) {
    struct tm tm;
    if (until == NULL || ASN1_TIME_to_tm(until, &tm) != 1) return;
    int64_t end = (int64_t)timegm(&tm);
    size_t i = 0;
    while (i < m->n_expiries && m->expiries[i].path != path) i++;
    if (i == m->n_expiries) {
        if (i == TLS_EXPIRIES_MAX) return;
        m->expiries[m->n_expiries++] = (struct tls_expiry){path, end};
    }
    if (end < m->expiries[i].unix_s) m->expiries[i].unix_s = end;
}

/* ---- strength */
static enum err check_key(const char *name, const char *path, const EVP_PKEY *key,
                          struct errbuf *eb) {
    int bits = EVP_PKEY_get_bits(key);
    char curve[64] = "";
    size_t n = 0;
    if (EVP_PKEY_is_a(key, "RSA") || EVP_PKEY_is_a(key, "RSA-PSS")) {
        if (bits >= RSA_BITS_MIN) return ERR_OK;
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s: the RSA key of %s must have at least %d bits, "
                       "it has %d",
                       name, path, RSA_BITS_MIN, bits);
    }
    if (EVP_PKEY_is_a(key, "EC") &&
        EVP_PKEY_get_utf8_string_param(key, "group", curve, sizeof(curve), &n) == 1) {
        static const char *const good[] = {"prime256v1", "secp384r1", "secp521r1"};
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
            if (strcmp(curve, good[i]) == 0) return ERR_OK;
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s: the EC key of %s must be on P-256, P-384 or P-521, it is on %s", name,
                       path, curve);
    }
    return err_set(eb, ERR_BAD_CONFIG,
                   "%s: the key of %s must be RSA of at least %d bits or EC on P-256, P-384 or "
                   "P-521",
                   name, path, RSA_BITS_MIN);
}

/* ---- the files of a block */
/* Every certificate of a PEM file goes to take(). */
static enum err each_cert(const char *name, const char *path,
                          enum err (*take)(struct tls_material *m, X509 *x, int i),
                          struct tls_material *m, struct errbuf *eb) {
    struct secret s;
    enum err e = read_file(&s, name, path, eb);
    if (e != ERR_OK) return e;
    BIO *bio = BIO_new_mem_buf(s.data, (int)s.len);
    X509 *x = NULL;
    int n = 0;
    struct password none = {NULL, 0, false};
    if (bio == NULL) e = err_set(eb, ERR_NO_MEMORY, "%s: no memory for %s", name, path);
    while (e == ERR_OK && (x = PEM_read_bio_X509(bio, NULL, on_password, &none)) != NULL) {
        e = check_dates(name, path, "the certificate", X509_get0_notBefore(x),
                        X509_get0_notAfter(x), eb);
        note_end(m, path, X509_get0_notAfter(x));
        EVP_PKEY *key = X509_get0_pubkey(x);
        if (e == ERR_OK && key == NULL)
            e = err_set(eb, ERR_BAD_CONFIG, "%s: %s has a certificate with an unknown kind of key",
                        name, path);
        if (e == ERR_OK) e = check_key(name, path, key, eb);
        if (e == ERR_OK && n == CERTS_MAX)
            e = err_set(eb, ERR_BAD_CONFIG, "%s: %s holds more than %d certificates", name, path,
                        CERTS_MAX);
        if (e == ERR_OK && take(m, x, n) != ERR_OK)
            e = err_set(eb, ERR_NO_MEMORY, "%s: no memory for %s", name, path);
        X509_free(x);
        n++;
    }
    /* The end of the file reads as "no start line"; anything else is a broken certificate. */
    unsigned long last = ERR_peek_last_error();
    if (e == ERR_OK && (n == 0 || (last != 0 && ERR_GET_REASON(last) != PEM_R_NO_START_LINE)))
        e = err_set(eb, ERR_BAD_CONFIG, "%s: %s is not a PEM file of certificates", name, path);
    ERR_clear_error();
    BIO_free(bio);
    secret_free(&s);
    return e;
}

static enum err take_own(struct tls_material *m, X509 *x, int i) {
    if (i == 0) {
        m->cert = x;
        X509_up_ref(x);
        return ERR_OK;
    }
    if (m->chain == NULL && (m->chain = sk_X509_new_null()) == NULL) return ERR_NO_MEMORY;
    if (sk_X509_push(m->chain, x) <= 0) return ERR_NO_MEMORY;
    X509_up_ref(x);
    return ERR_OK;
}

static enum err take_ca(struct tls_material *m, X509 *x, int i) {
    (void)i;
    X509_NAME *name = X509_NAME_dup(X509_get_subject_name(x));
    if (name == NULL) return ERR_NO_MEMORY;
    if (X509_STORE_add_cert(m->store, x) != 1 || sk_X509_NAME_push(m->ca_names, name) <= 0) {
        X509_NAME_free(name);
        return ERR_NO_MEMORY;
    }
    return ERR_OK;
}

static enum err take_limited(struct tls_material *m, X509 *x, int i) {
    if (m->limited == NULL && (m->limited = sk_X509_new_null()) == NULL) return ERR_NO_MEMORY;
    if (sk_X509_push(m->limited, x) <= 0) return ERR_NO_MEMORY;
    X509_up_ref(x);
    (void)i;
    return ERR_OK;
}

/* Into the store, with the others. A CA in both lists would leave open what its peers may do. */
static enum err add_limited(struct tls_material *m, const struct tls_conf *c, struct errbuf *eb) {
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(m->store);
    for (int i = 0; i < sk_X509_num(m->limited); i++)
        for (int k = 0; k < sk_X509_OBJECT_num(objects); k++) {
            X509 *ca = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, k));
            if (ca != NULL && X509_cmp(ca, sk_X509_value(m->limited, i)) == 0)
                return err_set(eb, ERR_BAD_CONFIG, "%s: a CA of this setting is one of %s too",
                               c->names.ca_limited, c->names.ca);
        }
    for (int i = 0; i < sk_X509_num(m->limited); i++)
        if (take_ca(m, sk_X509_value(m->limited, i), i) != ERR_OK)
            return err_set(eb, ERR_NO_MEMORY, "%s: no memory", c->names.ca_limited);
    return ERR_OK;
}

/* A CRL counts only when a CA of this block has signed it. */
static bool signed_by_a_ca(const struct tls_material *m, X509_CRL *crl) {
    STACK_OF(X509_OBJECT) *objects = X509_STORE_get0_objects(m->store);
    for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
        X509 *ca = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
        EVP_PKEY *key = ca != NULL ? X509_get0_pubkey(ca) : NULL;
        if (key != NULL &&
            X509_NAME_cmp(X509_get_subject_name(ca), X509_CRL_get_issuer(crl)) == 0 &&
            X509_CRL_verify(crl, key) == 1)
            return true;
    }
    return false;
}

static enum err load_crl(struct tls_material *m, const char *name, const char *path,
                         struct errbuf *eb) {
    struct secret s;
    enum err e = read_file(&s, name, path, eb);
    if (e != ERR_OK) return e;
    BIO *bio = BIO_new_mem_buf(s.data, (int)s.len);
    X509_CRL *crl;
    int n = 0;
    struct password none = {NULL, 0, false};
    if (bio == NULL) e = err_set(eb, ERR_NO_MEMORY, "%s: no memory for %s", name, path);
    while (e == ERR_OK && (crl = PEM_read_bio_X509_CRL(bio, NULL, on_password, &none)) != NULL) {
        n++;
        e = check_dates(name, path, "the CRL", X509_CRL_get0_lastUpdate(crl),
                        X509_CRL_get0_nextUpdate(crl), eb);
        note_end(m, path, X509_CRL_get0_nextUpdate(crl));
        if (e == ERR_OK && !signed_by_a_ca(m, crl))
            e = err_set(eb, ERR_BAD_CONFIG, "%s: %s is not signed by a CA of %s", name, path,
                        "this block");
        if (e == ERR_OK && X509_STORE_add_crl(m->store, crl) != 1)
            e = err_set(eb, ERR_NO_MEMORY, "%s: no memory for %s", name, path);
        X509_CRL_free(crl);
    }
    unsigned long last = ERR_peek_last_error();
    if (e == ERR_OK && (n == 0 || (last != 0 && ERR_GET_REASON(last) != PEM_R_NO_START_LINE)))
        e = err_set(eb, ERR_BAD_CONFIG, "%s: %s is not a PEM file of CRLs", name, path);
    ERR_clear_error();
    BIO_free(bio);
    secret_free(&s);
    return e;
}

/* One line without its line end. */
static enum err load_password(struct secret *out, const struct tls_conf *c, struct errbuf *eb) {
    enum err e = read_file(out, c->names.passwd, c->passwd, eb);
    if (e != ERR_OK) return e;
    size_t n = strcspn(out->data, "\r\n");
    if (n == 0 || n > PASSWORD_BYTES_MAX || n + strspn(out->data + n, "\r\n") != out->len) {
        secret_free(out);
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s: %s must hold one line of 1 to %d bytes, the password", c->names.passwd,
                       c->passwd, PASSWORD_BYTES_MAX);
    }
    out->data[n] = 0;
    return ERR_OK;
}

enum err tls_password_read(char *out, size_t cap, const char *name, const char *path,
                           struct errbuf *eb) {
    struct tls_conf c = {.names = {.passwd = name}};
    struct secret s = {NULL, 0};
    if (snprintf(c.passwd, sizeof(c.passwd), "%s", path) >= (int)sizeof(c.passwd))
        return err_set(eb, ERR_BAD_CONFIG, "%s: its path is longer than %d bytes", name,
                       TLS_PATH_BYTES - 1);
    enum err e = load_password(&s, &c, eb);
    if (e == ERR_OK && snprintf(out, cap, "%s", s.data) >= (int)cap)
        e = err_set(eb, ERR_BAD_CONFIG, "%s: %s must hold at most %zu bytes", name, path, cap - 1);
    secret_free(&s);
    return e;
}

static enum err load_key(struct tls_material *m, const struct tls_conf *c, struct errbuf *eb) {
    struct secret pem = {NULL, 0}, pass = {NULL, 0};
    struct password p = {NULL, 0, false};
    enum err e = ERR_OK;
    if (c->passwd[0] != 0) {
        e = load_password(&pass, c, eb);
        p.text = pass.data;
        p.len = pass.data != NULL ? (int)strlen(pass.data) : 0;
    }
    if (e == ERR_OK) e = read_file(&pem, c->names.key, c->key, eb);
    if (e == ERR_OK) {
        BIO *bio = BIO_new_mem_buf(pem.data, (int)pem.len);
        if (bio != NULL) m->key = PEM_read_bio_PrivateKey(bio, NULL, on_password, &p);
        BIO_free(bio);
        ERR_clear_error();
        if (m->key == NULL && p.asked && p.text == NULL)
            e = err_set(eb, ERR_BAD_CONFIG,
                        "%s: the key of %s is encrypted: %s must name the file "
                        "with its password",
                        c->names.key, c->key, c->names.passwd);
        else if (m->key == NULL && p.asked)
            e = err_set(eb, ERR_BAD_CONFIG, "%s: the password of %s does not open %s",
                        c->names.passwd, c->passwd, c->key);
        else if (m->key == NULL)
            e = err_set(eb, ERR_BAD_CONFIG, "%s: %s is not a PEM file of a private key",
                        c->names.key, c->key);
        else if (!p.asked)
            log_warn("tls", "event=key_not_encrypted setting=%s file=%s", c->names.key, c->key);
    }
    if (e == ERR_OK) e = check_key(c->names.key, c->key, m->key, eb);
    if (e == ERR_OK && X509_check_private_key(m->cert, m->key) != 1) {
        ERR_clear_error();
        e = err_set(eb, ERR_BAD_CONFIG,
                    "%s: the key of %s does not belong to the certificate %s "
                    "of %s",
                    c->names.key, c->key, c->cert, c->names.cert);
    }
    secret_free(&pem);
    secret_free(&pass);
    return e;
}

enum err tls_material_load(struct tls_material *m, const struct tls_conf *c, struct errbuf *eb) {
    enum err e = ERR_OK;
    bool has_ca = false, has_crl = false;
    memset(m, 0, sizeof(*m));
    m->store = X509_STORE_new();
    m->ca_names = sk_X509_NAME_new_null();
    if (m->store == NULL || m->ca_names == NULL)
        e = err_set(eb, ERR_NO_MEMORY, "%s: no memory", c->names.ca);
    for (int i = 0; e == ERR_OK && i < TLS_FILES_MAX; i++) {
        if (c->ca[i][0] == 0) continue;
        has_ca = true;
        e = each_cert(c->names.ca, c->ca[i], take_ca, m, eb);
    }
    if (e == ERR_OK && !has_ca) e = err_set(eb, ERR_BAD_CONFIG, "%s must name a file", c->names.ca);
    for (int i = 0; e == ERR_OK && i < TLS_FILES_MAX; i++)
        if (c->ca_limited[i][0] != 0)
            e = each_cert(c->names.ca_limited, c->ca_limited[i], take_limited, m, eb);
    if (e == ERR_OK) e = add_limited(m, c, eb);
    if (e == ERR_OK) e = each_cert(c->names.cert, c->cert, take_own, m, eb);
    if (e == ERR_OK) e = load_key(m, c, eb);
    for (int i = 0; e == ERR_OK && i < TLS_FILES_MAX; i++) {
        if (c->crl[i][0] == 0) continue;
        has_crl = true;
        e = load_crl(m, c->names.crl, c->crl[i], eb);
    }
    if (e == ERR_OK && has_crl)
        X509_STORE_set_flags(m->store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    if (e != ERR_OK) tls_material_free(m);
    return e;
}

void tls_material_free(struct tls_material *m) {
    X509_free(m->cert);
    sk_X509_pop_free(m->chain, X509_free);
    EVP_PKEY_free(m->key);
    X509_STORE_free(m->store);
    sk_X509_NAME_pop_free(m->ca_names, X509_NAME_free);
    sk_X509_pop_free(m->limited, X509_free);
    memset(m, 0, sizeof(*m));
}
