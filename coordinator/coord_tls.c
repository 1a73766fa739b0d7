/* coord_tls: from the blocks of the configuration to contexts. */
#include "coordinator/coord_tls.h"

#include <stdio.h>
#include <string.h>

#define NAMES(p, peer)                                                                             \
    {                                                                                              \
        p ".ca_cert", p ".tls_cert", p ".tls_key", p ".tls_passwd", p ".tls_crl",                  \
            p ".register_ca_cert", peer                                                            \
    }
#define O "coordinator.tls_config."

static const struct tls_names names[BLOCK_COUNT] = {
    [BLOCK_REQUEST_SERVER] = NAMES(O "request_server_tls_items", NULL),
    [BLOCK_CONTROLLER_SERVER] = NAMES(O "controller_server_tls_items", NULL),
    [BLOCK_STATUS] = NAMES(O "status_tls_items", NULL),
    [BLOCK_EXTERNAL] = NAMES(O "external_tls_items", NULL),
    [BLOCK_MINDIE_CLIENT] = NAMES(O "mindie_client_tls_items", O "instance_peer_name"),
    [BLOCK_MINDIE_MANAGEMENT] = NAMES(O "mindie_mangment_tls_items", O "instance_peer_name"),
    [BLOCK_INSTANCE_METRICS] = NAMES(O "instance_metrics_tls_items", O "instance_peer_name"),
    [BLOCK_CONTROLLER_REQUEST] =
        NAMES("controller.tls_config.request_server_tls_items", O "instance_peer_name"),
    [BLOCK_ALARM_CLIENT] = NAMES(O "alarm_client_tls_items", NULL),
    [BLOCK_OTLP_CLIENT] = NAMES(O "otlp_client_tls_items", NULL),
    [BLOCK_ETCD] = NAMES(O "etcd_server_tls_items", O "etcd_peer_name"),
    [BLOCK_REPLICA] = NAMES(O "replica_client_tls_items", O "coordinator_peer_name"),
    [BLOCK_LEADER] = NAMES(O "leader_client_tls_items", O "coordinator_peer_name"),
};

/* As the series of cred_watch.h call them. */
static const char *const plane_names[BLOCK_COUNT] = {
    [BLOCK_REQUEST_SERVER] = "user",
    [BLOCK_CONTROLLER_SERVER] = "management",
    [BLOCK_STATUS] = "status",
    [BLOCK_EXTERNAL] = "external",
    [BLOCK_MINDIE_CLIENT] = "instance_business",
    [BLOCK_MINDIE_MANAGEMENT] = "instance_management",
    [BLOCK_INSTANCE_METRICS] = "instance_metrics",
    [BLOCK_CONTROLLER_REQUEST] = "instance_control",
    [BLOCK_ALARM_CLIENT] = "alarms",
    [BLOCK_OTLP_CLIENT] = "traces",
    [BLOCK_ETCD] = "etcd",
    [BLOCK_REPLICA] = "replica",
    [BLOCK_LEADER] = "leader",
};

static bool path_of(char out[TLS_PATH_BYTES], const char *dir, const char *file) {
    int n = file[0] == '/' || file[0] == 0 ? snprintf(out, TLS_PATH_BYTES, "%s", file)
                                           : snprintf(out, TLS_PATH_BYTES, "%s/%s", dir, file);
    return n < TLS_PATH_BYTES;
}

enum err coord_tls_conf(struct tls_conf *o, const struct coord_conf *c, enum coord_block block,
                        struct errbuf *eb) {
    const struct coord_tls_block *b = &c->tls[block];
    *o = (struct tls_conf){.names = names[block], .verify_host = c->tls_verify_host};
    bool fits = path_of(o->cert, c->dir, b->cert) && path_of(o->key, c->dir, b->key) &&
                path_of(o->passwd, c->dir, b->passwd);
    for (int i = 0; i < COORD_FILES_MAX && i < TLS_FILES_MAX; i++)
        fits = fits && path_of(o->ca[i], c->dir, b->ca[i]) && path_of(o->crl[i], c->dir, b->crl[i]);
    for (int i = 0; block == BLOCK_CONTROLLER_SERVER && i < COORD_FILES_MAX && i < TLS_FILES_MAX;
         i++)
        fits = fits && path_of(o->ca_limited[i], c->dir, c->register_ca[i]);
    if (names[block].peer_name != NULL)
        snprintf(o->peer_name, sizeof(o->peer_name), "%s",
                 block == BLOCK_REPLICA || block == BLOCK_LEADER ? c->coordinator_peer_name
                 : block == BLOCK_ETCD                           ? c->etcd_peer_name
                                                                 : c->instance_peer_name);
    if (!fits)
        return err_set(eb, ERR_BAD_CONFIG, "%s: a path of this block is longer than %d bytes",
                       names[block].cert, TLS_PATH_BYTES - 1);
    if (block == BLOCK_REQUEST_SERVER) {
        o->allow_tls12 = strcmp(c->tls_min_version, "1.2") == 0;
        o->client_cert_optional = strcmp(c->client_certificates, "optional") == 0;
    }
    return ERR_OK;
}

const char *coord_block_name(enum coord_block block) {
    return plane_names[block];
}

static enum err open_block(struct coord_tls *t, const struct coord_conf *c, enum coord_block block,
                           struct errbuf *eb) {
    struct tls_conf o;
    const enum err e = coord_tls_conf(&o, c, block, eb);
    return e == ERR_OK ? tls_open(&t->block[block], &o, eb) : e;
}

enum err coord_tls_open(struct coord_tls *t, const struct coord_conf *c, struct errbuf *eb) {
    enum err e = ERR_OK;
    memset(t, 0, sizeof(*t));
    for (int i = 0; e == ERR_OK && i < BLOCK_COUNT; i++)
        if (c->tls[i].enable) e = open_block(t, c, (enum coord_block)i, eb);
    if (e != ERR_OK) {
        coord_tls_close(t);
        return e;
    }
    struct tls **a = &t->block[BLOCK_MINDIE_MANAGEMENT], **b = &t->block[BLOCK_CONTROLLER_REQUEST];
    if (*a == NULL) *a = tls_ref(*b);
    if (*b == NULL) *b = tls_ref(*a);
    struct tls **metrics = &t->block[BLOCK_INSTANCE_METRICS];
    if (*metrics == NULL) *metrics = tls_ref(*a);
    return ERR_OK;
}

void coord_tls_close(struct coord_tls *t) {
    for (int i = 0; i < BLOCK_COUNT; i++) tls_close(&t->block[i]);
}

void coord_tls_watch(const struct coord_tls *t, struct cred_watch *w) {
    for (int i = 0; i < BLOCK_COUNT; i++) cred_watch_tls(w, plane_names[i], t->block[i]);
}

/* Planes with one port are one listener, with the certificate of the first of them (1.3). */
static enum coord_block block_of(const struct node_conf *node, enum node_plane plane) {
    bool metrics_is_business =
        node->metric_port == node->port && strcmp(node->ip, node->mgmt_ip) == 0;
    switch (plane) {
    case NODE_BUSINESS: return BLOCK_MINDIE_CLIENT;
    case NODE_CONTROL: return BLOCK_CONTROLLER_REQUEST;
    case NODE_METRICS:
        if (metrics_is_business) return BLOCK_MINDIE_CLIENT;
        if (node->metric_port != node->mgmt_port) return BLOCK_INSTANCE_METRICS;
        break;
    case NODE_MANAGEMENT: break;
    }
    return BLOCK_MINDIE_MANAGEMENT;
}

struct tls *coord_tls_url(const struct coord_tls *t, char *dst, size_t n,
                          const struct node_conf *node, enum node_plane plane, const char *path) {
    struct tls *tls = t->block[block_of(node, plane)];
    unsigned port = plane == NODE_BUSINESS  ? node->port
                    : plane == NODE_METRICS ? node->metric_port
                                            : node->mgmt_port;
    snprintf(dst, n, "%s://%s:%u%s", tls != NULL ? "https" : "http",
             plane == NODE_BUSINESS ? node->ip : node->mgmt_ip, port, path);
    return tls;
}
