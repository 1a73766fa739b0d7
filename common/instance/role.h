/* role: the contract of a role. A role is a guest of the instance: weights, KV pool, sockets and
 * links belong to the instance and survive a switch; only the role's own state ends. A switch is
 * drain check, stop, start: calls through this table, no `if (role == ...)` outside it. All calls
 * come on the loop thread; none may block. */
#ifndef BATON_INSTANCE_ROLE_H
#define BATON_INSTANCE_ROLE_H

#include <stdbool.h>
#include "common/net/http_server.h"
#include "proto/api.h"
#include "proto/role_msg.h"

struct instance;
struct kv_peer;

struct role_load {
    unsigned waiting; /* requests not yet in the batch */
    unsigned running; /* requests in work */
    unsigned leases;  /* requests whose KV is held for a peer */
};

struct role_ops {
    enum inst_role role;
    enum err (*start)(void **self, struct instance *in); /* borrows all parts of in */
    /* An inference request on the business plane; body limit, stopping and model-in-path are
     * checked already. Answers x, now or later. */
    void (*on_request)(void *self, struct http_x *x, const struct api_path *path,
                       const char *path_model);
    /* Ends a request of the tenant's owner (proto/tenant.h) by internal id or client id: false when
     * it has none. tenant NULL: whoever asks may end any. epoch: attempts with a higher one are not
     * meant, for they began later; UINT32_MAX: any. The client gets its normal end with finish
     * reason abort. */
    bool (*stop_request)(void *self, const char *id, const char *tenant, uint32_t epoch);
    void (*load)(void *self, struct role_load *out);
    /* End every request with an error (drain time-out, forced switch); load is zero soon after. */
    void (*abort_all)(void *self, enum err why);
    /* A link of this instance came up or went down (kv_plane.h). May be NULL. */
    void (*on_link)(void *self, struct kv_peer *peer, bool up);
    void (*stop)(void **self); /* frees all, clears *self; aborts what is left */
};

extern const struct role_ops mixed_role; /* standard mode: common/instance/mixed_role.c */

#endif
