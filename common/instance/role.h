/* role: the contract of a role. A role is a guest of the instance: weights, KV pool, sockets and
 * links belong to the instance and survive a switch; only the role's own state ends. A switch is
 * drain check, stop, start: calls through this table, no `if (role == ...)` outside it. Its
 * requests are in the instance's set (req_set.h), which finds, times, counts and ends them. All
 * calls come on the loop thread; none may block. */
#ifndef BATON_INSTANCE_ROLE_H
#define BATON_INSTANCE_ROLE_H

#include <stdbool.h>
#include "common/net/http_server.h"
#include "proto/api.h"
#include "proto/role_msg.h"

struct instance;

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
    void (*stop)(void **self); /* ends its requests, frees all, clears *self */
};

extern const struct role_ops mixed_role; /* standard mode: common/instance/mixed_role.c */

#endif
