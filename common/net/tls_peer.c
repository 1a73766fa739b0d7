/* tls_peer: the name that a peer's certificate must have. OpenSSL's verification compares; what is
 * written here is the other half: which names the refused certificate has. They come from the peer,
 * so only the characters of names are shown, and so many of them. */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "common/net/tls_priv.h"

enum { LIST_BYTES = 120, DNS_NAME_MAX = 253, DNS_LABEL_MAX = 63 };

static int ssl_idx = -1, ctx_idx = -1;
static pthread_once_t idx_once = PTHREAD_ONCE_INIT;

static void make_idx(void) {
    ssl_idx = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    ctx_idx = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL);
}

bool tls_is_ip(const char *s) {
    unsigned char a[16];
    return inet_pton(AF_INET, s, a) == 1 || inet_pton(AF_INET6, s, a) == 1;
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

enum err tls_check_peer_name(const struct tls_conf *c, struct errbuf *eb) {
    const char *s = c->peer_name;
    const size_t n = strlen(s);
    size_t label = 0;
    bool good = n <= DNS_NAME_MAX && !tls_is_ip(s);
    for (size_t i = 0; good && i < n; i++) {
        label = s[i] == '.' ? 0 : label + 1;
        good =
            s[i] == '.' ? i > 0 && s[i - 1] != '.' : is_name_char(s[i]) && label <= DNS_LABEL_MAX;
    }
    if (n == 0 || (good && label > 0)) return ERR_OK;
    return err_set(eb, ERR_BAD_CONFIG,
                   "%s must be a DNS name of letters, digits, '-' and '.', at most %d bytes, got "
                   "\"%.80s\"",
                   c->names.peer_name != NULL ? c->names.peer_name : "the peer's name",
                   DNS_NAME_MAX, s);
}

static void name_text(const GENERAL_NAME *g, char out[LIST_BYTES]) {
    out[0] = '\0';
    if (g->type == GEN_DNS) {
        const unsigned char *s = ASN1_STRING_get0_data(g->d.dNSName);
        int n = ASN1_STRING_length(g->d.dNSName);
        if (n >= LIST_BYTES) n = LIST_BYTES - 1;
        for (int i = 0; i < n; i++) {
            const char c = (char)s[i];
            out[i] = '?';
            if (is_name_char(c) || c == '.' || c == '*') out[i] = c;
        }
        out[n] = '\0';
    } else if (g->type == GEN_IPADD) {
        const int n = ASN1_STRING_length(g->d.iPAddress);
        if (n == 4 || n == 16)
            inet_ntop(n == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(g->d.iPAddress), out,
                      LIST_BYTES);
    }
}

/* "localhost, 10.0.0.1", cut where it does not fit; "nothing" where it has no names. */
static void list_names(const X509 *cert, char list[LIST_BYTES]) {
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    char one[LIST_BYTES];
    size_t len = 0;
    snprintf(list, LIST_BYTES, "nothing");
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        name_text(sk_GENERAL_NAME_value(names, i), one);
        if (one[0] == '\0') continue;
        if (len + strlen(one) + sizeof(", ..") > LIST_BYTES) {
            snprintf(list + len, LIST_BYTES - len, "%s..", len > 0 ? ", " : "");
            break;
        }
        len += (size_t)snprintf(list + len, LIST_BYTES - len, "%s%s", len > 0 ? ", " : "", one);
    }
    GENERAL_NAMES_free(names);
}

int tls_on_verify(int ok, X509_STORE_CTX *store) {
    const int why = X509_STORE_CTX_get_error(store);
    if (ok || (why != X509_V_ERR_HOSTNAME_MISMATCH && why != X509_V_ERR_IP_ADDRESS_MISMATCH))
        return ok;
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    const X509 *cert = X509_STORE_CTX_get0_cert(store);
    struct tls_expected *x = ssl != NULL ? SSL_get_ex_data(ssl, ssl_idx) : NULL;
    if (x == NULL && ssl != NULL) x = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), ctx_idx);
    if (x == NULL || cert == NULL) return ok;
    char list[LIST_BYTES];
    list_names(cert, list);
    ERR_clear_error(); /* of an extension that cannot be read; the verdict is set by the caller */
    const bool set = x->setting != NULL;
    if (snprintf(x->said, sizeof(x->said), "the certificate must name %s%s%s%s, but names %s",
                 x->name, set ? " (" : "", set ? x->setting : "", set ? ")" : "",
                 list) >= (int)sizeof(x->said))
        memcpy(x->said + sizeof(x->said) - 3, "..", 3);
    return ok;
}

bool tls_expect(X509_VERIFY_PARAM *param, struct tls_expected *x, const char *name,
                const char *setting) {
    *x = (struct tls_expected){.setting = setting};
    snprintf(x->name, sizeof(x->name), "%s", name);
    if (name[0] == '\0') return true;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return (tls_is_ip(name) ? X509_VERIFY_PARAM_set1_ip_asc(param, name)
                            : X509_VERIFY_PARAM_set1_host(param, name, 0)) == 1;
}

bool tls_expect_hang(SSL *ssl, SSL_CTX *ctx, struct tls_expected *x) {
    pthread_once(&idx_once, make_idx);
    if (ssl_idx < 0 || ctx_idx < 0) return false;
    return (ssl != NULL ? SSL_set_ex_data(ssl, ssl_idx, x)
                        : SSL_CTX_set_ex_data(ctx, ctx_idx, x)) == 1;
}
