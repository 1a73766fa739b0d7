/* refresh_msg: the list of instances that a controller of its own pushes (POST
 * /v1/instances/refresh, cluster-api 6.4), from bytes to values. An instance that is wrong is left
 * out and reported, the rest stands. Pure. */
#ifndef BATON_COORDINATOR_REFRESH_MSG_H
#define BATON_COORDINATOR_REFRESH_MSG_H

#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/role_msg.h"

enum {
    REFRESH_BODY_BYTES_MAX = 4 << 20,
    REFRESH_PEERS_MAX = 65536, /* of all instances together */
    REFRESH_SLOTS_MAX = 5000,
    REFRESH_BLOCK_TOKENS_MAX = 128
};

struct refresh_inst {
    uint32_t id;
    char ip[16];
    uint16_t port, metric_port, inter_comm_port;
    char model_name[MODEL_NAME_BYTES_MAX + 1];
    /* static_info */
    uint64_t group_id;
    uint32_t max_seq_len, max_output_len, total_slots, block_size;
    uint64_t total_blocks;
    int label;
    enum inst_role role; /* a flex with all or nothing of prefill is P or D */
    int p_percentage;    /* of a flex; -1 */
    /* dynamic_info */
    uint32_t avail_slots, waiting, running, swapped;
    uint64_t avail_blocks;
    uint32_t *peers;
    size_t n_peers;
};

struct refresh_msg {
    bool single_node;
    uint32_t *ids; /* sorted, each once */
    size_t n_ids;
    struct refresh_inst *insts; /* in the order of the body; ids among them are unique */
    size_t n_insts;
};

/* Of an instance that is left out: "instances[3] (id 11): port must be .., got ..". */
typedef void refresh_skip_fn(void *arg, const char *text);

/* single_node: all do both (deploy_mode). On an error *out is zeroed; else refresh_msg_free(). */
enum err refresh_msg_parse(struct refresh_msg *out, bool single_node, const char *body, size_t n,
                           refresh_skip_fn *skip, void *arg, struct errbuf *eb);
void refresh_msg_free(struct refresh_msg *m);

#endif
