/* registry: the instances the coordinator knows: where they are, what they last said of themselves,
 * what is booked on them. No I/O. Thread: the loop thread. Pointers to instances live until
 * registry_remove(). */
#ifndef BATON_COORDINATOR_REGISTRY_H
#define BATON_COORDINATOR_REGISTRY_H

#include "coordinator/coord_conf.h"
#include "coordinator/schedule.h"
#include "proto/status_msg.h"

struct dresult_in;
struct http_call;

struct inst {
    struct inst *next;
    uint32_t id;
    struct node_conf node;
    bool from_table;        /* the rank table lists it; else it registered itself */
    uint64_t lease_end_ms;  /* of a registration */
    uint64_t gone_since_ms; /* 0, or when it left the table */

    /* what it says */
    bool online;          /* /v1/config was answered in range */
    bool healthy;         /* the last /v2/status came */
    bool initialised;     /* RoleReady was seen since its last role */
    unsigned n_failures;  /* polls without answer, in a row */
    char last_error[128]; /* of the last failed poll or role post */
    struct config_msg config;
    struct status_msg status;

    /* what the controller wants */
    enum inst_role want;
    unsigned group;
    uint64_t posted_hash; /* of the role body it took last; 0: none */
    uint64_t next_post_ms, role_taken_ms, poll_started_ms;
    bool draining; /* a role switch waits until it is idle: no new work */
    bool force;    /* the switch need not wait */
    uint64_t drain_until_ms;
    struct http_call *probe_call, *role_call;
    bool probing_config;

    /* what is on it */
    struct dresult_in *dresult; /* D only */
    bool dresult_up;
    unsigned tasks; /* requests of ours in work there: P until its first token, D after that */
    struct demand booked;
    double token_sum; /* expected tokens of those requests (D) */
};

struct registry {
    struct inst *first;
    size_t n;
    uint32_t next_id;
};

struct inst *registry_find(const struct registry *r, uint32_t id);
struct inst *registry_find_node(const struct registry *r, const char *mgmt_ip, uint16_t mgmt_port);
/* Adds a node (taking *node's devices) or updates the one with its management address. NULL: no
 * memory or INSTANCES_MAX. */
struct inst *registry_put(struct registry *r, struct node_conf *node);
void registry_remove(
    struct registry *r,
    struct inst *in); /* frees it; its calls and dresult are the caller's to end first */

/* In its role, linked, healthy: new work may go there (cluster-api 7.2, 7.6). why: the first stage
 * that is missing ("online", "role", "link", "dresult", "health"), or NULL. */
bool inst_serves(const struct inst *in, const char **why);
bool inst_link_ok(const struct inst *in, uint32_t peer_id);
/* Both ends list each other as ok. */
bool inst_linked(const struct inst *a, const struct inst *b);

#endif
