/* coord_conf: the coordinator's settings: the reference's two files merged into one
 * (cluster-api 11.2, 11.3, 11.5), and the rank table (7.1). The tables in coord_conf.c are the
 * document: `--check-config` prints them with the values in effect. */
#ifndef BATON_COORDINATOR_COORD_CONF_H
#define BATON_COORDINATOR_COORD_CONF_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/base/limits_conf.h"
#include "coordinator/discover.h"
#include "proto/err.h"
#include "proto/limits.h"
#include "proto/role_msg.h"

enum {
    COORD_PATH_BYTES = 1024,
    COORD_FILE_BYTES = 256,
    COORD_FILES_MAX = 3,
    ALARM_URL_BYTES = 256
};

/* One TLS block as the file says it; coord_tls.h makes a context of it. Relative paths start in
 * dir. */
enum coord_block {
    BLOCK_REQUEST_SERVER,    /* user plane */
    BLOCK_CONTROLLER_SERVER, /* management plane */
    BLOCK_STATUS,
    BLOCK_EXTERNAL,
    BLOCK_MINDIE_CLIENT,      /* to the business plane of instances */
    BLOCK_MINDIE_MANAGEMENT,  /* to their management plane */
    BLOCK_INSTANCE_METRICS,   /* to their metrics plane, when it has a port of its own */
    BLOCK_CONTROLLER_REQUEST, /* the controller's calls to their management plane */
    BLOCK_ALARM_CLIENT,       /* to the receiver of alarms */
    BLOCK_OTLP_CLIENT,        /* to the collector of traces */
    BLOCK_ETCD,               /* to etcd (ha.h) */
    BLOCK_REPLICA,            /* to the management plane of the leader (journal_follow.h) */
    BLOCK_LEADER,             /* to its user plane (to_leader.h) */
    BLOCK_COUNT
};
struct coord_tls_block {
    bool enable;
    char ca[COORD_FILES_MAX][COORD_FILE_BYTES], cert[COORD_FILE_BYTES], key[COORD_FILE_BYTES],
        passwd[COORD_FILE_BYTES], crl[COORD_FILES_MAX][COORD_FILE_BYTES];
};

struct coord_conf {
    /* coordinator: 11.2 */
    bool allow_all_zero_ip, longest_timeouts;
    char predict_ip[64], manage_ip[64];
    int64_t predict_port, manage_port, alarm_port, external_port, status_port;
    int64_t http_timeout_s, keep_alive_s;
    char server_name[64], user_agent[64];
    int64_t single_node_requests_max, requests_max, body_limit_mib /* 0: absent */,
        memory_limit_mib;
    int64_t sse_keep_alive_s, retries_max, schedule_timeout_s, first_token_timeout_s,
        infer_timeout_s, tokenizer_timeout_s, vectors_timeout_s;
    char deploy_mode[48], scheduler_type[32], algorithm_type[32], load_cost_values[16],
        load_cost_coefficient[96], cors_origin[512], management_hosts[512];
    int64_t metrics_reuse_s;
    int64_t max_schedule_count, reordering_type, select_type, cache_size;
    double res_limit_rate, string_token_rate, reject_factor, slots_thresh, block_thresh;
    char log_level[16], error_format[16], error_style[16], access_log[COORD_PATH_BYTES];
    char api_keys_file[COORD_FILE_BYTES], tls_min_version[8], client_certificates[16];
    bool tls_verify_host;
    char instance_peer_name[256], coordinator_peer_name[256], etcd_peer_name[256];
    struct coord_tls_block tls[BLOCK_COUNT];
    char register_ca[COORD_FILES_MAX][COORD_FILE_BYTES]; /* of the management plane */
    bool ha_enabled;                                     /* backup_config: several coordinators */
    char etcd_hosts[512];
    int64_t etcd_port;
    /* controller: 11.3 */
    bool controller_enabled, roles_follow;
    int64_t prefill_slo_ms, decode_slo_ms;
    char rank_table_path[COORD_PATH_BYTES];
    bool process_to_file, status_to_file; /* cluster_files.h */
    char process_path[COORD_PATH_BYTES], status_path[COORD_PATH_BYTES];
    int64_t sync_s, rank_table_s, disappeared_s, p_rate, d_rate, online_attempts, online_wait_s,
        drain_s, instance_port, instance_mgmt_port, instance_metric_port, instance_timeout_s,
        instance_retries;
    /* pd: ours */
    bool allow_insecure;
    int64_t stop_drain_timeout_s, register_lease_s, body_mib, relay_pending_mib, role_post_retry_ms,
        tenant_waiting_max, breaker_faults, breaker_open_ms, heartbeat_ms, drain_soft_s,
        role_repair_s, role_window_s, role_cool_s, local_prefill_max, prefill_queue_max,
        decode_silence_s, transcripts_mib, replicate_mib, resume_grace_s, resume_keep_s,
        idempotency_keep_s;
    bool attempts_header, fall_back, flex, unsplit, ha_keep, ha_relays, replicate;
    char routing[16], route_weights[96], role_decision[16];
    char digs_model_path[COORD_PATH_BYTES], digs_machine_path[COORD_PATH_BYTES];
    int64_t summary_input, summary_output, decision_period_s;
    int64_t ha_lease_s;
    char etcd_user[128], etcd_prefix[128], advertised_ip[64], etcd_password_file[COORD_FILE_BYTES];
    char state_dir[COORD_PATH_BYTES], responses_dir[COORD_PATH_BYTES];
    char alarm_url[ALARM_URL_BYTES]; /* alarm_send.h; "": alarms are sent to nobody */
    char otlp_url[ALARM_URL_BYTES];  /* otlp.h; "": no traces */
    double otlp_sample;
    char discover[DISCOVER_TEXT_BYTES];
    struct discover_names discover_names; /* as `discover` has them */
    struct limits_conf limits;

    bool single_node;       /* deploy_mode */
    double coefficients[9]; /* a i o n k m r b c of load_cost_coefficient */
    double weights[4];      /* of route_weights */
    char dir[COORD_PATH_BYTES];
};

/* What keys are called on the command line and in the environment (common/base/conf_layers.h), with
 * the variables of the reference. */
struct conf_names;
struct conf_layers;
const struct conf_names *coord_conf_names(void);

/* Reads a merged file, or an 11.2 file (path, or NULL: none) and an 11.3 file (controller_path, or
 * NULL), then environment and flags (l, which was read already). ERR_BAD_CONFIG: where it was said,
 * key, value, allowed range. */
enum err coord_conf_load(struct coord_conf *c, const char *path, const char *controller_path,
                         struct conf_layers *l, struct errbuf *eb);
/* The merged form from bytes, with the environment and no flags; relative paths start in dir. */
enum err coord_conf_parse(struct coord_conf *c, const char *json, size_t n, const char *dir,
                          struct errbuf *eb);
/* The largest body of a request. */
size_t coord_conf_body_bytes(const struct coord_conf *c);
/* The tables, for whoever checks or describes them (common/base/conf.h): the settings, and keys of
 * the reference that are checked and have no effect (coord_conf_checked.c). */
struct conf_key;
const struct conf_key *coord_conf_keys(size_t *n);
const struct conf_key *coord_conf_checked(size_t *n);
void coord_conf_print(struct buf *out, const struct coord_conf *c);

/* One server of the rank table, or one that registered itself. */
struct node_conf {
    char ip[16], mgmt_ip[16];
    uint16_t port, mgmt_port, metric_port, inter_comm_port;
    int label; /* LABEL_*; -1: none */
    struct role_device *devices;
    size_t n_devices;
};
enum {
    LABEL_PREFILL_PREFER,
    LABEL_DECODE_PREFER,
    LABEL_PREFILL_STATIC,
    LABEL_DECODE_STATIC,
    LABEL_FLEX_STATIC
};

struct rank_table {
    struct node_conf *nodes;
    size_t n_nodes;
};
/* eb names member, value and rule. */
enum err rank_table_parse(struct rank_table *t, const struct coord_conf *c, const char *json,
                          size_t n, struct errbuf *eb);
void rank_table_free(struct rank_table *t);
struct json_value;
enum err node_conf_read(struct node_conf *n, const struct coord_conf *c, const struct json_value *o,
                        const char *where, struct errbuf *eb);
void node_conf_free(struct node_conf *n);

#endif
