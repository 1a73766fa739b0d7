/* role: what an instance can be, and the contract of it.
 *
 * An instance has a set of capabilities: it prefills for others, it decodes for others, or both
 * (flex, standard mode). A role (role_ops) is active as long as the set has all that it needs, so
 * one instance may serve requests alone, hand others over and take others in, at the same time.
 * Each request belongs to one role, by what it carries (role_ctl_request()). An instance that only
 * decodes computes prompts too, of requests whose other part is its own: a coordinator sends it
 * those of which it holds nearly all (docs/roles.md).
 *
 * A role is a guest of the instance: weights, KV pool, sockets and links belong to the instance and
 * survive a switch; only the role's own state ends. Its requests are in the instance's set
 * (req_set.h), which finds, times, counts and ends them. All calls come on the loop thread; none
 * may block. */
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

struct infer_req;
struct req_seq;
struct kv_commit;

struct role_ops {
    enum inst_role role; /* whose requests are its own */
    unsigned needs;      /* capabilities */
    unsigned own; /* also active with one of these: for requests that name the instance itself */
    enum err (*start)(void **self, struct instance *in); /* borrows all parts of in */
    /* An inference request on the business plane; body limit, stopping and model-in-path are
     * checked already. Answers x, now or later. */
    void (*on_request)(void *self, struct http_x *x, const struct api_path *path,
                       const char *path_model);
    /* A prompt that was computed here goes on in this role, as if it had come over a link: takes
     * *req, *seq (SEQ_STAGED, with its first tokens) and what c holds, on errors too. ERR_STOPPING,
     * ERR_CONFLICT, ERR_NO_MEMORY: eb says why. NULL: it takes none. */
    enum err (*take)(void *self, struct infer_req **req, struct req_seq **seq, struct kv_commit *c,
                     struct errbuf *eb);
    void (*stop)(void **self); /* ends its requests, frees all, clears *self */
};

extern const struct role_ops mixed_role; /* serves alone: common/instance/mixed_role.c */

#endif
