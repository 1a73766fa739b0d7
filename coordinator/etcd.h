/* etcd: calls to an etcd's JSON gateway as events of the loop. With a user it logs in by itself,
 * also when its token has run out; of several members the next one is asked when one is away.
 * Thread: the loop thread. Nothing blocks. */
#ifndef BATON_COORDINATOR_ETCD_H
#define BATON_COORDINATOR_ETCD_H

#include <stdbool.h>
#include "common/base/buf.h"
#include "coordinator/etcd_msg.h"
#include "proto/err.h"

struct http_client;
struct http_call;
struct tls;

enum { ETCD_MEMBERS_MAX = 5, ETCD_MEMBER_BYTES = 128, ETCD_PASSWORD_BYTES = 1024 };

struct etcd {
    struct http_client *client;
    struct tls *tls;                                   /* NULL: plain; lent */
    char members[ETCD_MEMBERS_MAX][ETCD_MEMBER_BYTES]; /* "127.0.0.1:2379" */
    int n_members, at;
    const char *user; /* "": nobody logs in; lent */
    char password[ETCD_PASSWORD_BYTES];
    char token[ETCD_TOKEN_BYTES];
};

enum etcd_op { ETCD_GRANT, ETCD_KEEP_ALIVE, ETCD_REVOKE, ETCD_RANGE, ETCD_TXN };

struct etcd_result {
    /* ERR_OK: *answer holds. ERR_PEER_LOST, ERR_TIMEOUT: it is not known whether it was done.
     * ERR_NOT_FOUND: no such lease. ERR_REFUSED: it will not do it (credentials, permissions), or
     * its answer cannot be read. */
    enum err err;
    const struct etcd_answer *answer;
    const char *why; /* "" without error */
};

/* Zeroed: idle. In the caller's memory; one call at a time. */
struct etcd_call {
    struct etcd *etcd;
    struct http_call *call;
    enum etcd_op op;
    struct buf body;
    unsigned timeout_ms;
    bool logging_in, has_logged_in;
    void (*on_done)(void *arg, const struct etcd_result *r);
    void *arg;
};

/* Takes *body. on_done runs exactly once, never from inside, not after etcd_cancel(). An error:
 * nothing was started. */
enum err etcd_start(struct etcd *e, struct etcd_call *c, enum etcd_op op, struct buf *body,
                    unsigned timeout_ms);
void etcd_cancel(struct etcd_call *c); /* an idle one is fine */
bool etcd_busy(const struct etcd_call *c);
/* The member that is asked next. */
const char *etcd_member(const struct etcd *e);

#endif
