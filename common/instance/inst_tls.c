/* inst_tls: from the keys of a plane to its context. */
#include "common/instance/inst_tls.h"

#include <stdio.h>
#include <string.h>

#define S "ServerConfig."
#define X "BatonConfig."

static const struct tls_names names[INST_PLANE_COUNT] = {
    [INST_PLANE_BUSINESS] = {S "tlsCaFile", S "tlsCert", S "tlsPk", S "tlsPkPwd", S "tlsCrlFiles",
                             NULL, NULL},
    [INST_PLANE_MANAGEMENT] = {S "managementTlsCaFile", S "managementTlsCert", S "managementTlsPk",
                               S "managementTlsPkPwd", S "managementTlsCrlFiles",
                               X "probeTlsCaFiles", NULL},
    [INST_PLANE_METRICS] = {S "metricsTlsCaFile", S "metricsTlsCert", S "metricsTlsPk",
                            S "metricsTlsPkPwd", S "metricsTlsCrlFiles", NULL, NULL},
    [INST_PLANE_CLUSTER] = {S "interCommTlsCaFiles", S "interCommTlsCert", S "interCommPk",
                            S "interCommPkPwd", S "interCommTlsCrlFiles", NULL,
                            X "interCommPeerName"},
    [INST_PLANE_REGISTER] = {X "registerTlsCaFile", X "registerTlsCert", X "registerTlsPk",
                             X "registerTlsPkPwd", X "registerTlsCrlFiles", NULL, NULL},
};

/* dir/folder/file, from the last part that is absolute; an empty file stays empty. False: too
 * long. */
static bool path_of(char out[TLS_PATH_BYTES], const char *dir, const char *folder,
                    const char *file) {
    size_t k = strlen(folder);
    const char *slash = k == 0 || folder[k - 1] == '/' ? "" : "/";
    int n = file[0] == '/' ? snprintf(out, TLS_PATH_BYTES, "%s", file)
            : folder[0] == '/'
                ? snprintf(out, TLS_PATH_BYTES, "%s%s%s", folder, slash, file)
                : snprintf(out, TLS_PATH_BYTES, "%s/%s%s%s", dir, folder, slash, file);
    if (file[0] == 0) out[0] = 0;
    return n < TLS_PATH_BYTES;
}

enum err inst_tls_conf(struct tls_conf *o, const struct inst_conf *c, enum inst_plane plane,
                       struct errbuf *eb) {
    const struct inst_tls_block *b = &c->tls[plane];
    *o = (struct tls_conf){.names = names[plane], .verify_host = c->tls_verify_host};
    bool fits = path_of(o->cert, c->dir, "", b->cert) && path_of(o->key, c->dir, "", b->pk) &&
                path_of(o->passwd, c->dir, "", b->pk_pwd);
    for (int i = 0; i < CONF_FILES_MAX && i < TLS_FILES_MAX; i++)
        fits = fits && path_of(o->ca[i], c->dir, b->ca_path, b->ca_files[i]) &&
               path_of(o->crl[i], c->dir, b->crl_path, b->crl_files[i]);
    for (int i = 0; plane == INST_PLANE_MANAGEMENT && i < CONF_FILES_MAX && i < TLS_FILES_MAX; i++)
        fits = fits && path_of(o->ca_limited[i], c->dir, "", c->probe_ca[i]);
    if (plane == INST_PLANE_CLUSTER)
        snprintf(o->peer_name, sizeof(o->peer_name), "%s", c->inter_comm_peer_name);
    if (!fits)
        return err_set(eb, ERR_BAD_CONFIG, "%s: a path of this block is longer than %d bytes",
                       names[plane].cert, TLS_PATH_BYTES - 1);
    if (plane == INST_PLANE_BUSINESS) {
        o->allow_tls12 = strcmp(c->tls_min_version, "1.2") == 0;
        o->client_cert_optional = strcmp(c->client_certificates, "optional") == 0;
    }
    return ERR_OK;
}

bool inst_management_is_business(const struct inst_conf *c) {
    return strcmp(c->ip, c->management_ip) == 0 && c->port == c->management_port;
}

bool inst_metrics_is_business(const struct inst_conf *c) {
    return strcmp(c->ip, c->management_ip) == 0 && c->port == c->metrics_port;
}

bool inst_metrics_is_management(const struct inst_conf *c) {
    return c->management_port == c->metrics_port;
}

bool inst_tls_uses(const struct inst_conf *c, enum inst_plane plane) {
    switch (plane) {
    case INST_PLANE_BUSINESS: return c->https_enabled;
    case INST_PLANE_MANAGEMENT: return c->https_enabled && !inst_management_is_business(c);
    case INST_PLANE_METRICS:
        return c->https_enabled && !inst_metrics_is_business(c) && !inst_metrics_is_management(c);
    case INST_PLANE_REGISTER: return c->https_enabled && c->register_url[0] != 0;
    case INST_PLANE_CLUSTER: return c->inter_comm_tls_enabled && strcmp(c->infer_mode, "dmi") == 0;
    case INST_PLANE_COUNT: break;
    }
    return false;
}

enum err inst_tls_open(struct inst_tls *t, const struct inst_conf *c, struct errbuf *eb) {
    enum err e = ERR_OK;
    memset(t, 0, sizeof(*t));
    for (int i = 0; e == ERR_OK && i < INST_PLANE_COUNT; i++) {
        struct tls_conf o;
        if (!inst_tls_uses(c, (enum inst_plane)i)) continue;
        e = inst_tls_conf(&o, c, (enum inst_plane)i, eb);
        if (e == ERR_OK) e = tls_open(&t->plane[i], &o, eb);
    }
    if (e != ERR_OK) inst_tls_close(t);
    return e;
}

void inst_tls_close(struct inst_tls *t) {
    for (int i = 0; i < INST_PLANE_COUNT; i++) tls_close(&t->plane[i]);
}

const char *inst_plane_name(enum inst_plane plane) {
    static const char *const plane_names[INST_PLANE_COUNT] = {
        [INST_PLANE_BUSINESS] = "business", [INST_PLANE_MANAGEMENT] = "management",
        [INST_PLANE_METRICS] = "metrics",   [INST_PLANE_CLUSTER] = "cluster",
        [INST_PLANE_REGISTER] = "register",
    };
    return plane_names[plane];
}

void inst_tls_watch(const struct inst_tls *t, struct cred_watch *w) {
    for (int i = 0; i < INST_PLANE_COUNT; i++)
        cred_watch_tls(w, inst_plane_name((enum inst_plane)i), t->plane[i]);
}
