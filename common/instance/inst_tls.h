/* inst_tls: the TLS contexts of an instance, one for each plane that has a socket of its own
 * (cluster-api 12). Reads files: at start and for --check-config only, from then on cred_watch.h
 * keeps them fresh. Thread: any one. */
#ifndef BATON_INSTANCE_INST_TLS_H
#define BATON_INSTANCE_INST_TLS_H

#include "common/instance/inst_conf.h"
#include "common/net/cred_watch.h"
#include "common/net/tls.h"

/* NULL: the plane is plain, or shares the socket (and so the context) of another. */
struct inst_tls {
    struct tls *plane[INST_PLANE_COUNT];
};

/* Opens what the configuration switches on; ERR_BAD_CONFIG: eb names key, file and rule, and
 * nothing is open. */
enum err inst_tls_open(struct inst_tls *t, const struct inst_conf *c, struct errbuf *eb);
void inst_tls_close(struct inst_tls *t);
/* Whether a plane has a context of its own, and the files it is made of. */
bool inst_tls_uses(const struct inst_conf *c, enum inst_plane plane);
enum err inst_tls_conf(struct tls_conf *o, const struct inst_conf *c, enum inst_plane plane,
                       struct errbuf *eb);
const char *inst_plane_name(enum inst_plane plane); /* "business" */
/* Gives the contexts to w, each with the name of its plane. */
void inst_tls_watch(const struct inst_tls *t, struct cred_watch *w);

/* Which planes share a socket (cluster-api 1.3). */
bool inst_management_is_business(const struct inst_conf *c);
bool inst_metrics_is_business(const struct inst_conf *c);
bool inst_metrics_is_management(const struct inst_conf *c);

#endif
