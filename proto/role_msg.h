/* role_msg: bodies of POST /v1/role/{role} and /v2/role/{role} (cluster-api 3.4, 3.5), both ways.
 * Pure. Beyond the reference a node may carry "inter_comm_port" (string or integer): where its KV
 * listener listens; and a body "drained". */
#ifndef BATON_PROTO_ROLE_MSG_H
#define BATON_PROTO_ROLE_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/limits.h"

enum inst_role { ROLE_NONE, ROLE_PREFILL, ROLE_DECODE, ROLE_FLEX, ROLE_MIXED };
const char *inst_role_name(enum inst_role r);     /* "none", "prefill", "decode", "flex", "mixed" */
enum inst_role inst_role_parse(const char *name); /* ROLE_NONE when unknown */

/* What an instance of a role can do: a set. */
enum {
    CAN_PREFILL = 1,
    CAN_DECODE = 2,
    CAN_BOTH = CAN_PREFILL | CAN_DECODE,
};
/* p_percentage: of a flex, which with all or nothing of its share does only one of them. */
unsigned inst_role_can(enum inst_role r, int p_percentage);

struct role_device {
    char device_id[24], device_logical_id[24], device_ip[16], rank_id[24];
};
struct role_node {
    char server_ip[16], host_ip[16];
    bool has_id;              /* id and host_ip were given */
    uint32_t id;              /* in /v2 bodies: dp_inst_id / 10000 */
    uint16_t inter_comm_port; /* 0: not given */
    int p_percentage;         /* -1: not given */
    struct role_device *devices;
    size_t n_devices;
};
struct role_msg {
    struct role_node local;
    struct role_node *peers; /* one per peer instance */
    size_t n_peers;
    bool has_peers;
    bool force;
    bool drained; /* it is drained by order: it says so in its status, to the next coordinator */
};

/* version 1 or 2. eb names the field, the value and the rule. On an error *out is zeroed. */
enum err role_msg_parse(struct role_msg *out, int version, const char *body, size_t n,
                        struct errbuf *eb);
char *role_msg_format(const struct role_msg *m, int version); /* malloc'd JSON; NULL: no memory */
/* Tells one body from another (FNV-1a); never 0. */
uint64_t role_msg_hash(const char *body, size_t n);
void role_msg_free(struct role_msg *m);

#endif
