/* mgmt_msg: what callers of the coordinator's management plane send (cluster-api 6.5), from bytes
 * to values. Every error names member, value and range. Pure. */
#ifndef BATON_COORDINATOR_MGMT_MSG_H
#define BATON_COORDINATOR_MGMT_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/role_msg.h"

enum {
    MGMT_TASKS_MAX = 100, /* instances that one GET /v1/instances/tasks may ask for */
    MGMT_SERIES_MAX = 32, /* the same of GET /v2/console/history */
};

/* POST /v1/instances/online, /v1/instances/offline: {"ids":[11,21]}. */
struct mgmt_ids {
    size_t n;
    uint32_t ids[INSTANCES_MAX];
};
enum err mgmt_ids_parse(struct mgmt_ids *out, const char *body, size_t n, struct errbuf *eb);

/* POST /v1/instances/query_tasks. */
struct mgmt_pair {
    uint32_t p_id, d_id;
    bool d_changes; /* role_change_type 1: D becomes P; 0: P becomes D */
};
enum err mgmt_pair_parse(struct mgmt_pair *out, const char *body, size_t n, struct errbuf *eb);

/* POST /backup_info. */
struct mgmt_backup {
    bool is_master, is_abnormal, is_random_pick;
};
enum err mgmt_backup_parse(struct mgmt_backup *out, const char *body, size_t n, struct errbuf *eb);

/* GET /v1/instances/tasks?id=11&id=12: the values in their order, -1 for one that is no id.
 * Parameters of other names are passed over. ERR_TOO_LARGE: more than MGMT_TASKS_MAX. */
struct mgmt_tasks {
    size_t n;
    int64_t ids[MGMT_TASKS_MAX];
};
enum err mgmt_tasks_parse(struct mgmt_tasks *out, const char *query, struct errbuf *eb);

/* GET /v1/plan, and what it would be like if an instance had another role: ?id=11&role=decode, or
 * name in place of id, and force=true. Nothing else may be there. */
struct mgmt_plan {
    bool asks; /* for an instance */
    uint32_t id;
    char name[INSTANCE_NAME_BYTES_MAX + 1]; /* "": by id */
    enum inst_role role;
    bool force;
};
enum err mgmt_plan_parse(struct mgmt_plan *out, const char *query, struct errbuf *eb);

/* GET /v2/console/history?since=120&instances=11,21: the first step wanted, and whose series.
 * Parameters of other names are passed over. */
struct mgmt_history {
    uint64_t since;
    size_t n;
    uint32_t ids[MGMT_SERIES_MAX];
};
enum err mgmt_history_parse(struct mgmt_history *out, const char *query, struct errbuf *eb);

#endif
