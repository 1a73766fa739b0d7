/* Certificates of the cluster plane for the tests of sealed links: a PKI of tools/make-pki.sh in a
 * folder of its own, and contexts made from it. */
#ifndef BATON_TESTS_KV_PKI_H
#define BATON_TESTS_KV_PKI_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/net/tls.h"

struct pki {
    char dir[64];
};

/* Runs make-pki.sh; 0: it worked. */
static int __attribute__((unused, format(printf, 1, 2))) pki_run(const char *format, ...) {
    char args[512], line[640];
    va_list ap;
    va_start(ap, format);
    vsnprintf(args, sizeof(args), format, ap);
    va_end(ap);
    snprintf(line, sizeof(line), "tools/make-pki.sh %s >/dev/null", args);
    return system(line);
}

static int __attribute__((unused)) pki_make(struct pki *p) {
    snprintf(p->dir, sizeof(p->dir), "/tmp/baton-kv-pki-XXXXXX");
    return mkdtemp(p->dir) != NULL && pki_run("-p cluster %s", p->dir) == 0 ? 0 : -1;
}

static void __attribute__((unused)) pki_remove(struct pki *p) {
    char line[128];
    snprintf(line, sizeof(line), "rm -rf '%s'", p->dir);
    if (p->dir[0] == '/' && system(line) != 0) fprintf(stderr, "%s stays\n", p->dir);
    p->dir[0] = 0;
}

/* The context of `name` ("peer"), which trusts the CA in ca_dir, and asks for peer_name; crl: and
 * its CRL. NULL: refused. */
static struct tls *__attribute__((unused))
pki_open_named(const struct pki *p, const char *name, const char *ca_dir, bool crl,
               const char *peer_name) {
    static struct tls_conf c;
    struct tls *t = NULL;
    struct errbuf eb = {0};
    c = (struct tls_conf){.names = {"ca", "cert", "key", "passwd", "crl", NULL, "peerName"}};
    snprintf(c.ca[0], sizeof(c.ca[0]), "%s/cluster/ca.pem", ca_dir);
    snprintf(c.cert, sizeof(c.cert), "%s/cluster/%s.pem", p->dir, name);
    snprintf(c.key, sizeof(c.key), "%s/cluster/%s.key", p->dir, name);
    snprintf(c.passwd, sizeof(c.passwd), "%s/cluster/%s.pass", p->dir, name);
    if (crl) snprintf(c.crl[0], sizeof(c.crl[0]), "%s/cluster/crl.pem", ca_dir);
    snprintf(c.peer_name, sizeof(c.peer_name), "%s", peer_name);
    if (tls_open(&t, &c, &eb) != ERR_OK) fprintf(stderr, "tls_open: %s\n", eb.text);
    return t;
}

static struct tls *__attribute__((unused))
pki_open(const struct pki *p, const char *name, const char *ca_dir, bool crl) {
    return pki_open_named(p, name, ca_dir, crl, "");
}

#endif
