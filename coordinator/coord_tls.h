/* coord_tls: the TLS contexts of the coordinator's planes and of its calls to instances
 * (cluster-api 12). Thread: the loop thread; coord_tls_open() reads files and is for the start and
 * for --check-config. From then on cred_watch.h keeps them fresh. */
#ifndef BATON_COORDINATOR_COORD_TLS_H
#define BATON_COORDINATOR_COORD_TLS_H

#include <stddef.h>
#include "common/net/cred_watch.h"
#include "common/net/tls.h"
#include "coordinator/coord_conf.h"

/* NULL: plain. */
struct coord_tls {
    struct tls *block[BLOCK_COUNT];
};

/* Opens the blocks that are switched on. Of the two blocks towards the instances' management plane,
 * one alone serves for both, and for a metrics plane without a block. ERR_BAD_CONFIG: eb names key,
 * file and rule, and nothing is open. */
enum err coord_tls_open(struct coord_tls *t, const struct coord_conf *c, struct errbuf *eb);
void coord_tls_close(struct coord_tls *t);
/* The files of a block, and what series and facts call it ("user"). */
enum err coord_tls_conf(struct tls_conf *o, const struct coord_conf *c, enum coord_block block,
                        struct errbuf *eb);
const char *coord_block_name(enum coord_block block);
/* Gives the contexts to w, each with the name of its plane. */
void coord_tls_watch(const struct coord_tls *t, struct cred_watch *w);

/* Who calls an instance for what: gives the context for http_call_opts.tls and writes the URL
 * ("https://10.0.0.1:1026" and the path) into dst[n]. */
enum node_plane {
    NODE_BUSINESS,
    NODE_MANAGEMENT,
    NODE_METRICS,
    NODE_CONTROL /* the controller's */
};
struct tls *coord_tls_url(const struct coord_tls *t, char *dst, size_t n,
                          const struct node_conf *node, enum node_plane plane, const char *path);

#endif
