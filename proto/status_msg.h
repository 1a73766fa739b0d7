/* status_msg: what an instance says of itself: GET /v1/config and GET /v1|v2/status
 * (cluster-api 3.1 to 3.3), both ways. Pure. */
#ifndef BATON_PROTO_STATUS_MSG_H
#define BATON_PROTO_STATUS_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/perf_msg.h"
#include "proto/prefix_msg.h"
#include "proto/role_msg.h"

struct config_msg {
    char model_name[MODEL_NAME_BYTES_MAX + 1];
    /* what operators call it ("instanceName"); "": it has no name of its own */
    char instance_name[INSTANCE_NAME_BYTES_MAX + 1];
    uint32_t max_seq_len, max_output_len, cache_block_size, world_size;
    int64_t npu_mem_gb, cpu_mem_gb;
};
/* 1 to INSTANCE_NAME_BYTES_MAX of [A-Za-z0-9.:_-], not digits alone: that would be an id. */
bool instance_name_ok(const char *s);
char *config_msg_format(const struct config_msg *m);
enum err config_msg_parse(struct config_msg *m, const char *body, size_t n,
                          struct errbuf *eb); /* ranges of 3.1 */

enum role_status { ROLE_STATUS_UNKNOWN, ROLE_STATUS_SWITCHING, ROLE_STATUS_READY };
const char *role_status_name(enum role_status s); /* "RoleUnknown", "RoleSwitching", "RoleReady" */

struct link_status {
    uint32_t target; /* peer instance id */
    bool ok;
    char text[160]; /* "ok", "failed : 11", "failed : pull kv failed." */
    char server_ip[16];
    char detail[256]; /* why it failed, or what differs by leave; "" when there is nothing to say */
    uint64_t bytes_per_s; /* what was sent over it lately had ("bytesPerSecond"); 0: nothing yet */
    /* Measured while nothing went over it ("rttMicroseconds", "idleBytesPerSecond"); 0: not yet */
    uint64_t rtt_us, idle_bytes_per_s;
};
/* A LoRA adapter that requests may name. */
enum { STATUS_ADAPTERS_MAX = 1024, STATUS_PATH_BYTES = 1024 };
struct adapter_status {
    char name[ADAPTER_NAME_BYTES_MAX + 1];
    char path[STATUS_PATH_BYTES]; /* as the load named it */
};
struct status_msg {
    enum role_status role_status;
    enum inst_role role;
    int p_percentage;  /* of a flex, 0 to 100 */
    bool held;         /* its engine takes no steps until an operator lets it ("engineHeld") */
    bool embeds_only;  /* its model generates nothing: texts to vectors and scores ("embedsOnly") */
    uint64_t stuck_ms; /* its engine has not got on for so long ("engineStuckMs"); 0: it does */
    uint32_t avail_slots, total_slots, waiting, running, swapped;
    uint64_t avail_blocks, free_blocks, total_blocks;
    uint32_t kv_leases; /* requests whose KV is held for a peer ("kvLeases") */
    /* the orders it took last, for a coordinator that comes anew ("orders"); term 0: none yet */
    uint64_t term, plan; /* of the coordinator it obeys; role_msg_hash() of the role body it took */
    uint32_t id;         /* in that body */
    bool listened;       /* that coordinator is connected */
    bool drained;        /* an operator has it drained */
    struct perf_msg perf;
    /* Its prefix cache ("prefixCache"), from where the question said on; epoch 0: it says nothing.
     * One that says something also computes prompts as a decode instance and gives KV back
     * (LOCAL_PREFILL_HEADER, docs/roles.md). */
    struct prefix_msg prefix;
    struct link_status *links;
    size_t n_links;
    struct adapter_status *adapters; /* in order of loading ("loraAdapters") */
    size_t n_adapters;
};
char *status_msg_format(const struct status_msg *m,
                        int version); /* malloc'd JSON: linkStatus and the older "peers" too */
enum err status_msg_parse(struct status_msg *m, const char *body, size_t n,
                          struct errbuf *eb); /* accepts both peer shapes */
/* The answer 503 to GET /v2/status of an instance that takes no new work and ends when what it has
 * is over: {"error":text,"error_type":..,"service":{"state":"DRAINING"},"resource":{..}}, of which
 * only waiting, running and kv_leases are said. */
char *status_msg_format_draining(const struct status_msg *m, const char *text);
/* Sets those three. False: it is no such answer, *m is as it was. */
bool status_msg_parse_draining(struct status_msg *m, const char *body, size_t n);
void status_msg_free(struct status_msg *m);

#endif
