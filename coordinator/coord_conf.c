/* coord_conf: the tables of the merged configuration and the rules between its keys. */
#include "coordinator/coord_conf.h"

#include <arpa/inet.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/conf.h"
#include "common/base/conf_layers.h"
#include "common/base/log.h"
#include "common/net/origin.h"
#include "proto/json.h"

#define BOOL(m, path, def, help)          CONF_B(struct coord_conf, m, path, def, help)
#define INT(m, path, min, max, def, help) CONF_I(struct coord_conf, m, path, min, max, def, help)
#define NUM(m, path, min, max, def, help) CONF_F(struct coord_conf, m, path, min, max, def, help)
#define STR(m, path, def, help)           CONF_S(struct coord_conf, m, path, def, help)
#define WORD(m, path, words, def, help)   CONF_W(struct coord_conf, m, path, words, def, help)
#define O                                 "coordinator."
#define R                                 "controller."
#define P                                 "pd."

/* The keys of one TLS block. */
#define TLS_BLOCK(at, name, what)                                                                  \
    BOOL(tls[at].enable, name "_enable", "false", "TLS " what),                                    \
        CONF_LS(struct coord_conf, tls[at].ca, name "_items.ca_cert", "",                          \
                "CAs that a peer's certificate may come from (PEM)"),                              \
        STR(tls[at].cert, name "_items.tls_cert", "", "own certificate (PEM)"),                    \
        STR(tls[at].key, name "_items.tls_key", "", "own key (PEM)"),                              \
        STR(tls[at].passwd, name "_items.tls_passwd", "",                                          \
            "file with the key's password; empty: the key is not encrypted"),                      \
        CONF_LS(struct coord_conf, tls[at].crl, name "_items.tls_crl", "",                         \
                "CRLs (PEM); none: no revocation test")
#define OT O "tls_config."
#define RT R "tls_config."

enum { REQUEST_TIMEOUT_S_MAX = 3600, INFER_TIMEOUT_S_MAX = 65535 };

static const struct conf_key keys[] = {
    BOOL(allow_all_zero_ip, O "allow_all_zero_ip_listening", "false", "allows 0.0.0.0 and ::"),
    BOOL(longest_timeouts, O "EnableDynamicAdjustTimeoutConfig", "false",
         "true: the time-outs of requests are the longest allowed"),
    CONF_IPADDR(struct coord_conf, predict_ip, O "http_config.predict_ip", "127.0.0.1",
                "address of the user plane"),
    CONF_IPADDR(struct coord_conf, manage_ip, O "http_config.manage_ip", "127.0.0.1",
                "address of the management, status and external planes"),
    INT(predict_port, O "http_config.predict_port", 1024, 65535, "1025", "user plane"),
    INT(manage_port, O "http_config.manage_port", 1024, 65535, "1026", "management plane"),
    INT(alarm_port, O "http_config.alarm_port", 1024, 65535, "1027",
        "accepted; alarms are read with GET /v1/alarms of the management plane, and sent to "
        "pd.alarm_url"),
    INT(external_port, O "http_config.external_port", 1024, 65535, "1028", "external plane"),
    INT(status_port, O "http_config.status_port", 1024, 65535, "1029", "status plane"),
    INT(http_timeout_s, O "http_config.http_timeout_seconds", 0, 3600, "600",
        "seconds without progress of a connection; 0: none"),
    INT(keep_alive_s, O "http_config.keep_alive_seconds", 0, 3600, "180",
        "seconds a connection may idle"),
    STR(server_name, O "http_config.server_name", "MindIE-MS", "header Server"),
    STR(user_agent, O "http_config.user_agent", "Coordinator/1.0",
        "header User-Agent towards instances"),
    INT(single_node_requests_max, O "request_limit.single_node_max_requests", 1, 15000, "1000",
        "requests at once on one instance"),
    INT(requests_max, O "request_limit.max_requests", 1, 90000, "10000",
        "requests in flight; one more gets 429"),
    INT(body_limit_mib, O "request_limit.body_limit", 1, 20, "",
        "MiB of a request body; absent: pd.body_limit_mib"),
    INT(memory_limit_mib, O "request_limit.memory_limit", 0, 1048576, "0",
        "MiB of memory, from 80 % of which on new requests get 429, until it is below 60 %; 0: the "
        "control group's limit"),
    INT(retries_max, O "exception_config.max_retry", 0, 10, "5", "further attempts of one request"),
    INT(schedule_timeout_s, O "exception_config.schedule_timeout", 0, REQUEST_TIMEOUT_S_MAX, "600",
        "seconds a request may wait for a pair; 0: no bound"),
    INT(first_token_timeout_s, O "exception_config.first_token_timeout", 0, REQUEST_TIMEOUT_S_MAX,
        "600", "seconds until the first token; 0: no bound"),
    INT(infer_timeout_s, O "exception_config.infer_timeout", 0, INFER_TIMEOUT_S_MAX, "600",
        "seconds of a whole request; 0: no bound"),
    INT(metrics_reuse_s, O "prometheus_metrics_config.reuse_time", 0, 100, "3",
        "seconds the answer of /metrics is used again; 0: every scrape is answered anew"),
    INT(tokenizer_timeout_s, O "exception_config.tokenizer_timeout", 0, REQUEST_TIMEOUT_S_MAX,
        "300", "seconds of /v1/tokenizer; 0: no bound"),
    WORD(deploy_mode, O "digs_scheduler_config.deploy_mode",
         "pd_separate|pd_disaggregation|pd_disaggregation_single_container|single_node",
         "pd_separate",
         "how instances work together: in pairs of prefill and decode; single_node: each serves "
         "whole requests"),
    WORD(scheduler_type, O "digs_scheduler_config.scheduler_type",
         "default_scheduler|digs_scheduler", "digs_scheduler", "scheduler"),
    WORD(
        algorithm_type, O "digs_scheduler_config.algorithm_type",
        "round_robin|cache_affinity|load_balance", "load_balance",
        "how a pair, or an instance, is chosen; cache_affinity: the one that had the conversation"),
    INT(cache_size, O "digs_scheduler_config.cache_size", 1, 10000, "100",
        "cache_affinity: conversations that are remembered"),
    NUM(slots_thresh, O "digs_scheduler_config.slots_thresh", 0, 1, "0.05",
        "cache_affinity: part of its slots that an instance must have free for its conversations"),
    NUM(block_thresh, O "digs_scheduler_config.block_thresh", 0, 1, "0.05",
        "cache_affinity: part of its KV blocks that it must have free for them"),
    INT(max_schedule_count, O "digs_scheduler_config.max_schedule_count", 1, 90000, "10000",
        "requests looked at in one pass over the queue"),
    INT(reordering_type, O "digs_scheduler_config.reordering_type", 1, 3, "1",
        "queue order: 1 arrival, 2 shortest first, 3 longest first"),
    NUM(res_limit_rate, O "digs_scheduler_config.res_limit_rate", 0, 2000, "1.1",
        "booked demand over capacity at which an instance is skipped"),
    INT(select_type, O "digs_scheduler_config.select_type", 1, 2, "2",
        "1: no limit on booked demand, 2: res_limit_rate applies"),
    WORD(load_cost_values, O "digs_scheduler_config.load_cost_values", "1, 0|1, 1", "1, 0",
         "demand by length, or one block a request"),
    STR(load_cost_coefficient, O "digs_scheduler_config.load_cost_coefficient",
        "0, 0.22, 1024, 24, 6, 0, 1, 0, 1", "nine numbers a,i,o,n,k,m,r,b,c"),
    NUM(string_token_rate, O "string_token_rate", 1, 100, "4.02",
        "characters of a token, for length estimates"),
    WORD(log_level, O "log_info.log_level", "CRITICAL|ERROR|WARN|INFO|DEBUG", "INFO", "log level"),
    STR(access_log, O "log_info.access_log", "",
        "file that gets a line of JSON for each request of the user plane; empty: none"),
    WORD(error_format, O "errorFormat", "json|text", "json",
         "the coordinator's own errors: the family's JSON, or the reference's text"),
    WORD(error_style, O "errorStyle", "mindie|openai", "mindie",
         "manner of /v1 paths: the reference's, or that of OpenAI's own service"),
    INT(sse_keep_alive_s, O "sseKeepAliveSeconds", 0, 3600, "0",
        "seconds without an event, from its arrival on, after which a stream gets a comment line; "
        "0: never"),
    STR(cors_origin, O "corsAllowOrigin", "",
        "origins whose pages may call from a browser, separated by blanks; http://localhost:*: "
        "with any port; *: all; empty: none"),
    STR(management_hosts, O "managementHosts", "",
        "names that the planes without clients may be spoken to by, beside IP addresses and "
        "localhost, with blanks between them; .example.org: all below it; *: all"),
    STR(api_keys_file, O "apiKeysFile", "",
        "file of the API keys that clients of the user plane must show; empty: none"),
    TLS_BLOCK(BLOCK_REQUEST_SERVER, OT "request_server_tls", "of the user plane"),
    TLS_BLOCK(BLOCK_CONTROLLER_SERVER, OT "controller_server_tls", "of the management plane"),
    TLS_BLOCK(BLOCK_STATUS, OT "status_tls", "of the status plane"),
    TLS_BLOCK(BLOCK_EXTERNAL, OT "external_tls", "of the external plane"),
    TLS_BLOCK(BLOCK_MINDIE_CLIENT, OT "mindie_client_tls", "to the business plane of instances"),
    TLS_BLOCK(BLOCK_MINDIE_MANAGEMENT, OT "mindie_mangment_tls",
              "to the management plane of instances"),
    TLS_BLOCK(BLOCK_INSTANCE_METRICS, OT "instance_metrics_tls",
              "to the metrics plane of instances with a port of its own; off: as "
              "mindie_mangment_tls"),
    TLS_BLOCK(BLOCK_ETCD, OT "etcd_server_tls", "to etcd"),
    TLS_BLOCK(BLOCK_REPLICA, OT "replica_client_tls", "to the management plane of the leader"),
    TLS_BLOCK(BLOCK_LEADER, OT "leader_client_tls", "to the user plane of the leader"),
    BOOL(ha_enabled, O "backup_config.function_enable", "false",
         "one of several coordinators, of which the one leads that etcd says"),
    STR(etcd_hosts, O "backup_config.database_server_dns", "etcd.default.svc.cluster.local",
        "names or IPv4 addresses of etcd's members, separated by commas, each with a port where it "
        "is another; looked up at the start"),
    INT(etcd_port, O "backup_config.database_server_port", 1, 65535, "2379", "port of etcd"),
    CONF_LS(struct coord_conf, register_ca, OT "controller_server_tls_items.register_ca_cert", "",
            "CAs whose certificates may register instances on the management plane and do nothing "
            "else (PEM)"),
    WORD(tls_min_version, OT "min_version", "1.2|1.3", "1.3",
         "oldest TLS on the user plane; all else is 1.3"),
    WORD(client_certificates, OT "client_certificates", "required|optional", "required",
         "whether clients of the user plane must have a certificate"),
    BOOL(tls_verify_host, OT "verify_host", "true",
         "an instance's certificate must name its address"),
    STR(instance_peer_name, OT "instance_peer_name", "",
        "name that the certificates of instances must have, in place of their address; empty: as "
        "verify_host says"),
    STR(coordinator_peer_name, OT "coordinator_peer_name", "",
        "the same of the other coordinators' user and management planes"),
    STR(etcd_peer_name, OT "etcd_peer_name", "", "the same of etcd's members"),
    STR(discover, P "discover_names", "",
        "names whose IPv4 addresses are instances, each "
        "NAME[:MANAGEMENT[:BUSINESS[:KV]]][=prefill|decode], with blanks between them; looked up "
        "again and again; empty: none"),
    BOOL(controller_enabled, R "enabled", "true", "decides roles and posts them"),
    STR(rank_table_path, R "global_rank_table_file_path", "",
        "rank table of the instances, relative to this file; empty: instances register"),
    BOOL(process_to_file, R "process_manager.to_file", "true",
         "writes instances, roles and orders to a file, where its folder exists; the next "
         "coordinator starts with it"),
    STR(process_path, R "process_manager.file_path", "./logs/controller_process_status.json",
        "that file, relative to this one"),
    BOOL(status_to_file, R "cluster_status.to_file", "true",
         "writes the state of the cluster to a file, where its folder exists, once a "
         "cluster_synchronization_seconds"),
    STR(status_path, R "cluster_status.file_path", "./logs/cluster_status_output.json",
        "that file, relative to this one"),
    INT(sync_s, R "cluster_synchronization_seconds", 1, 65535, "1", "seconds between status polls"),
    INT(rank_table_s, R "rank_table_detecting_seconds", 1, 65535, "5",
        "seconds between looks at the rank table"),
    INT(disappeared_s, R "disappeared_server_waiting_seconds", 1, 65535, "7200",
        "seconds after which an instance gone from the table is forgotten"),
    INT(p_rate, R "default_p_rate", 0, 15, "0",
        "parts of prefill in the fixed ratio; 0 with default_d_rate 0: one to one"),
    INT(d_rate, R "default_d_rate", 0, 15, "0", "parts of decode in the fixed ratio"),
    BOOL(roles_follow, R "digs_periodic_role_decision.auto_pd_role_switching_enable", "true",
         "without a fixed ratio, roles follow the load"),
    INT(summary_input, R "digs_request_summary_input_length", 1, 65535, "3000",
        "daily decision of roles: tokens of a prompt, until there were requests"),
    INT(summary_output, R "digs_request_summary_output_length", 1, 65535, "200",
        "daily decision of roles: tokens of an answer, until there were requests"),
    STR(digs_model_path, R "digs_model_config_path", "./conf/model_config/llama2-70B.json",
        "daily decision of roles: the model, for its formulas; none where there is no such file"),
    STR(digs_machine_path, R "digs_machine_config_path", "./conf/machine_config/800IA2.json",
        "daily decision of roles: the machine, for its formulas"),
    INT(decision_period_s, R "digs_periodic_role_decision.role_decision_time_period", 3600, 1296000,
        "86400", "seconds between two daily decisions of roles"),
    INT(prefill_slo_ms, R "digs_prefill_slo", 1, 65535, "1000",
        "milliseconds to the first token that roles are chosen for"),
    INT(decode_slo_ms, R "digs_decode_slo", 1, 65535, "50",
        "milliseconds a token that roles are chosen for"),
    INT(online_attempts, R "server_online_attempt_times", 1, 65535, "36",
        "waits for instances of the table before roles are given to those there"),
    INT(online_wait_s, R "server_online_wait_seconds", 1, 65535, "5", "seconds of one such wait"),
    INT(drain_s, R "digs_periodic_role_decision.tasks_end_wait_seconds", 1, 65535, "300",
        "seconds a role switch waits for the instance's running requests"),
    INT(instance_port, R "mindie_server_port", 1024, 65535, "1025",
        "business port of a table entry that names none"),
    INT(instance_mgmt_port, R "mindie_server_control_port", 1024, 65535, "1026",
        "management port of a table entry that names none"),
    INT(instance_metric_port, R "mindie_server_metric_port", 1024, 65535, "1027",
        "metrics port of a table entry that names none"),
    INT(instance_timeout_s, R "http_timeout_seconds", 1, 65535, "5",
        "seconds of a management call to an instance"),
    INT(instance_retries, R "http_retries", 0, 65535, "3",
        "polls without answer after which an instance counts as faulty"),
    TLS_BLOCK(BLOCK_CONTROLLER_REQUEST, RT "request_server_tls",
              "of the controller's calls to instances; off: as mindie_mangment_tls"),
    TLS_BLOCK(BLOCK_ALARM_CLIENT, OT "alarm_client_tls", "to the receiver of alarms"),
    TLS_BLOCK(BLOCK_OTLP_CLIENT, OT "otlp_client_tls", "to the collector of traces"),
    BOOL(allow_insecure, P "allow_insecure", "false",
         "permits addresses that are not loopback while TLS is off"),
    INT(stop_drain_timeout_s, P "stop_drain_timeout_s", 0, 86400, "300",
        "seconds SIGTERM waits for requests in flight"),
    INT(vectors_timeout_s, P "vectors_timeout_s", 0, REQUEST_TIMEOUT_S_MAX, "300",
        "seconds of embeddings, scores and reranks; 0: no bound"),
    INT(register_lease_s, P "register_lease_s", 1, 3600, "10",
        "seconds a registered instance stays known without registering again"),
    INT(body_mib, P "body_limit_mib", 1, 100, "40",
        "MiB of a request body where request_limit.body_limit is absent; as the instances' "
        "maxRequestLength"),
    INT(relay_pending_mib, P "relay_pending_mib", 1, 1024, "16",
        "MiB unsent on a stream after which the client counts as gone"),
    INT(role_post_retry_ms, P "role_post_retry_ms", 50, 60000, "1000",
        "milliseconds between posts of a role that was not taken"),
    INT(breaker_faults, P "breaker_faults", 0, 16, "5",
        "failed requests among the last 16 of an instance, or of a link, from which on it gets no "
        "new ones for a while; 0: never"),
    INT(breaker_open_ms, P "breaker_open_ms", 100, 600000, "1000",
        "milliseconds until a request tries again what failed; doubles, up to 32 times, as long as "
        "it fails"),
    INT(drain_soft_s, P "drain_soft_s", 0, 86400, "10",
        "seconds in which the requests of an instance that is drained may end there; then they go "
        "on elsewhere"),
    INT(role_repair_s, P "role_repair_s", 1, 604800, "30",
        "seconds without a prefill or a decode instance, after which another instance takes the "
        "role; static labels are kept"),
    INT(role_window_s, P "role_window_s", 1, 3600, "5",
        "seconds of load that roles follow: what came earlier fades"),
    INT(role_cool_s, P "role_cool_s", 1, 604800, "2",
        "seconds after a switch in which the load switches nobody of its group back"),
    BOOL(unsplit, P "unsplit", "false",
         "whether groups that follow their load may do without a split, each request on one "
         "instance, where that serves it better"),
    WORD(routing, P "routing", "cost|reference", "cost",
         "how load_balance chooses a pair: by what instances have measured and have computed "
         "already, or by the reference's score"),
    STR(route_weights, P "route_weights", "1, 1, 1, 1",
        "routing by cost: weights of prompt, link, decode and missing blocks, each 0 to 1000"),
    INT(local_prefill_max, P "local_prefill_max", 0, 1048576, "64",
        "routing by cost: tokens of a prompt that a decode instance computes itself when it has "
        "all others; 0: none"),
    INT(prefill_queue_max, P "prefill_queue_max", 0, 90000, "16",
        "routing by cost: prompts at every prefill instance, above which a decode instance with "
        "nothing to do computes prompts too; 0: never"),
    NUM(reject_factor, P "reject_factor", 0, 1000, "0",
        "requests whose first token is expected later than so many times digs_prefill_slo, or "
        "whose "
        "tokens later than so many times digs_decode_slo, get 429; 0: none does"),
    WORD(role_decision, P "role_decision", "load|daily", "load",
         "without a fixed ratio: roles follow the load of the last seconds, or the reference's "
         "daily "
         "decision"),
    BOOL(
        flex, P "flex", "false",
        "roles that follow the load: one instance of a group may do both, with a share of prefill, "
        "where a whole one more of a role would be too much"),
    BOOL(fall_back, P "fallback_to_standard", "false",
         "while no prefill or no decode instance is left, those of the other role serve requests "
         "alone, whatever their labels say; false: 503"),
    STR(alarm_url, P "alarm_url", "",
        "where each alarm, and its end, is sent: http://ADDRESS:PORT/PATH, https with "
        "alarm_client_tls; empty: nowhere"),
    STR(otlp_url, P "otlp_url", "",
        "where traces are sent (OTLP, JSON): http://ADDRESS:PORT/v1/traces, https with "
        "otlp_client_tls; empty: as OTEL_EXPORTER_OTLP_ENDPOINT says, or nowhere"),
    NUM(otlp_sample, P "otlp_sample", 0, 1, "1",
        "part of the requests without a traceparent that is traced"),
    STR(state_dir, P "state_dir", "",
        "folder, relative to this file, in which a coordinator keeps its plan, ids, orders and "
        "term for the next one; empty: what instances say is all it has"),
    INT(ha_lease_s, P "ha_lease_s", 2, 300, "20",
        "seconds of the leader's lease in etcd: so long after its death another one leads"),
    BOOL(ha_keep, P "ha_keep_on_store_loss", "false",
         "a leader that cannot reach etcd goes on behind the end of its lease, until an instance "
         "obeys another; false: it stands by"),
    BOOL(ha_relays, P "ha_standby_relays", "false",
         "a coordinator that stands by passes the requests of clients on to the leader; false: it "
         "refuses them, and names the leader"),
    STR(etcd_prefix, P "etcd_prefix", "",
        "of the keys in etcd, /NAME/; empty: /POD_NAMESPACE/coordinator/, or /coordinator/"),
    STR(etcd_user, P "etcd_user", "", "user of etcd; empty: nobody logs in"),
    STR(etcd_password_file, P "etcd_password_file", "",
        "file with that user's password, relative to this file"),
    STR(advertised_ip, P "advertised_ip", "",
        "address of the user plane, as the other coordinators name it; empty: predict_ip"),
    STR(responses_dir, P "responses_dir", "",
        "folder, relative to this file, that has kept responses over restarts; empty: they are in "
        "memory alone"),
    INT(heartbeat_ms, P "heartbeat_ms", 20, 10000, "500",
        "milliseconds between signs of life of an instance; three that are missing, and its "
        "requests go on elsewhere"),
    INT(decode_silence_s, P "decode_silence_s", 0, 65535, "300",
        "seconds without a piece of a stream that has begun, after which it goes on elsewhere; 0: "
        "any number"),
    INT(transcripts_mib, P "transcripts_mib", 0, 1048576, "0",
        "MiB for the tokens that clients of running streams have been sent, 4 bytes each; a stream "
        "that finds no room there ends with its instance; 0: 256 or a sixteenth of the memory, the "
        "smaller"),
    BOOL(replicate, P "replicate_requests", "false",
         "clients may come back for the rest of an answer, to any coordinator"),
    INT(replicate_mib, P "replicate_mib", 0, 1048576, "0",
        "MiB for requests that clients may come back to; 0: 256 or a sixteenth of the memory, the "
        "smaller"),
    INT(resume_grace_s, P "resume_grace_s", 0, 3600, "10",
        "seconds that a request goes on whose client has gone and may come back; 0: it ends at "
        "once"),
    INT(resume_keep_s, P "resume_keep_s", 1, 86400, "60",
        "seconds that a stream is kept behind its end, or behind the death of its coordinator"),
    INT(idempotency_keep_s, P "idempotency_keep_s", 1, 86400, "600",
        "seconds that an answer is kept that was asked for with an Idempotency-Key"),
    BOOL(attempts_header, P "attempts_header", "false",
         "header x-baton-attempts on answers: which attempt began them"),
    INT(tenant_waiting_max, P "tenant_waiting_max", 0, 90000, "0",
        "requests of one client (API key, or address) that may wait for instances; one more gets "
        "429; 0: no bound of its own"),
    LIMITS_KEYS(struct coord_conf, limits, P "limits."),
};
enum { WEIGHT_MAX = 1000 }; /* of route_weights */
enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };

/* Blocks of connections that this daemon does not make, and stores of the reference's own password
 * format. */
#define NO_EFFECT(name) name "_enable", name "_items"
#define KMC(name)       name "_items.kmcKsfMaster", name "_items.kmcKsfStandby"

/* Keys of the reference without a range, which have no effect here. */
static const char *const also_known[] = {KMC(OT "alarm_client_tls"),
                                         KMC(OT "etcd_server_tls"),
                                         KMC(OT "request_server_tls"),
                                         KMC(OT "controller_server_tls"),
                                         KMC(OT "status_tls"),
                                         KMC(OT "external_tls"),
                                         KMC(OT "mindie_client_tls"),
                                         KMC(OT "mindie_mangment_tls"),
                                         NO_EFFECT(RT "request_coordinator_tls"),
                                         NO_EFFECT(RT "external_coordinator_tls"),
                                         NO_EFFECT(RT "http_server_tls"),
                                         NO_EFFECT(RT "alarm_tls"),
                                         NO_EFFECT(RT "cluster_tls"),
                                         NO_EFFECT(RT "ccae_tls"),
                                         NO_EFFECT(RT "etcd_server_tls"),
                                         KMC(RT "request_server_tls"),
                                         NULL};

static void warn_unknown(void *arg, const char *path) {
    (void)arg;
    log_warn("conf", "unknown key %s: ignored", path);
}

static bool is_all_zero(const char *ip) {
    return strcmp(ip, "0.0.0.0") == 0 || strcmp(ip, "::") == 0;
}
static bool is_loopback(const char *ip) {
    return strncmp(ip, "127.", 4) == 0 || strcmp(ip, "::1") == 0;
}

static enum err check_address(const struct coord_conf *c, const char *key, const char *ip,
                              bool has_tls, struct errbuf *eb) {
    if (is_all_zero(ip) && !c->allow_all_zero_ip)
        return err_set(eb, ERR_BAD_CONFIG,
                       O "http_config.%s must not be %s unless " O
                         "allow_all_zero_ip_listening is true",
                       key, ip);
    if (!is_loopback(ip) && !has_tls && !c->allow_insecure)
        return err_set(eb, ERR_BAD_CONFIG,
                       O "http_config.%s must be a loopback address while TLS is off, got %s; " P
                         "allow_insecure: true permits it",
                       key, ip);
    return ERR_OK;
}

/* A file that switches on TLS for a plane we have not must not run in the clear unseen. Blocks of
 * connections that are never made are only mentioned. */
static enum err check_tls_names(const struct json_value *root, const char *block,
                                struct errbuf *eb) {
    struct json_value *b, *tls;
    if (json_get_obj(root, block, &b) != JSON_OK || json_get_obj(b, "tls_config", &tls) != JSON_OK)
        return ERR_OK;
    struct json_iter it = json_iter_begin(tls), end = json_iter_end(tls);
    for (; !json_iter_equal(&it, &end); json_iter_next(&it)) {
        const char *key = json_iter_name(&it);
        size_t n = strlen(key);
        bool on = false, known = false, no_effect = false;
        char path[160];
        if (n <= 7 || strcmp(key + n - 7, "_enable") != 0 ||
            json_as_bool(json_iter_value(&it), &on) != JSON_OK || !on)
            continue;
        snprintf(path, sizeof(path), "%s.tls_config.%s", block, key);
        for (size_t i = 0; i < N_KEYS; i++) known = known || strcmp(keys[i].path, path) == 0;
        for (size_t i = 0; also_known[i] != NULL; i++)
            no_effect = no_effect || strcmp(also_known[i], path) == 0;
        if (!known && !no_effect)
            return err_set(eb, ERR_BAD_CONFIG,
                           "%s must be false, got true: there is no such plane here", path);
        if (no_effect) log_warn("conf", "%s has no effect: no such connection is made", path);
    }
    return ERR_OK;
}

/* Planes on one address and port share its socket, and so must agree. */
static enum err check_shared_sockets(const struct coord_conf *c, struct errbuf *eb) {
    const struct {
        const char *name, *ip;
        int64_t port;
        bool on;
    } planes[] = {
        {"request_server_tls", c->predict_ip, c->predict_port, c->tls[BLOCK_REQUEST_SERVER].enable},
        {"controller_server_tls", c->manage_ip, c->manage_port,
         c->tls[BLOCK_CONTROLLER_SERVER].enable},
        {"status_tls", c->manage_ip, c->status_port, c->tls[BLOCK_STATUS].enable},
        {"external_tls", c->manage_ip, c->external_port, c->tls[BLOCK_EXTERNAL].enable},
    };
    for (int i = 1; i < 4; i++)
        for (int j = 0; j < i; j++)
            if (planes[i].port == planes[j].port && strcmp(planes[i].ip, planes[j].ip) == 0 &&
                planes[i].on != planes[j].on)
                return err_set(eb, ERR_BAD_CONFIG,
                               OT "%s_enable must be the same as " OT
                                  "%s_enable: both planes are on port %lld",
                               planes[i].name, planes[j].name, (long long)planes[i].port);
    return ERR_OK;
}

static enum err check_tls(const struct coord_conf *c, const struct json_value *root,
                          struct errbuf *eb) {
    bool manage = c->tls[BLOCK_CONTROLLER_SERVER].enable && c->tls[BLOCK_STATUS].enable &&
                  c->tls[BLOCK_EXTERNAL].enable;
    enum err e =
        check_address(c, "predict_ip", c->predict_ip, c->tls[BLOCK_REQUEST_SERVER].enable, eb);
    if (e == ERR_OK) e = check_address(c, "manage_ip", c->manage_ip, manage, eb);
    if (e == ERR_OK) e = check_tls_names(root, "coordinator", eb);
    if (e == ERR_OK) e = check_tls_names(root, "controller", eb);
    if (e == ERR_OK) e = check_shared_sockets(c, eb);
    return e;
}

/* What may come behind the host of a URL: a port, then the end or a path. */
static bool is_port_and_path(const char *p) {
    unsigned port = 1;
    if (*p == ':')
        for (port = 0, p++; *p >= '0' && *p <= '9' && port <= UINT16_MAX; p++)
            port = port * 10 + (unsigned)(*p - '0');
    return port >= 1 && port <= UINT16_MAX && (*p == '\0' || *p == '/');
}

/* No bytes that end a line or a word of a request, nor a user's name or a fragment. */
static bool is_plain_url(const char *p) {
    for (; *p != '\0'; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7F || *p == '@' || *p == '#') return false;
    return true;
}

/* Whoever is told of what happens here, at a URL. */
struct receiver {
    const char *key, *url, *tls;
    enum coord_block block;
};

/* An address, since no names are looked up; plain and away from this host only where that is
 * permitted. */
static enum err check_receiver(const struct coord_conf *c, const struct receiver *r,
                               struct errbuf *eb) {
    const bool secure = c->tls[r->block].enable;
    const char *scheme = secure ? "https://" : "http://", *url = r->url;
    const size_t n = strlen(scheme);
    struct in6_addr addr;
    char host[64] = "";
    if (url[0] == '\0') return ERR_OK;
    const bool six = strncmp(url, scheme, n) == 0 && url[n] == '[';
    const char *at = strncmp(url, scheme, n) == 0 ? url + n + six : "";
    const size_t len = strcspn(at, six ? "]" : ":/");
    if (len < sizeof(host)) memcpy(host, at, len);
    const bool known =
        strcmp(host, "localhost") == 0 || inet_pton(six ? AF_INET6 : AF_INET, host, &addr) == 1;
    const bool closed = !six || at[len] == ']';
    if (!known || !closed || !is_port_and_path(at + len + six) || !is_plain_url(url))
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s must be %sADDRESS:PORT/PATH without blanks and control "
                       "characters, PORT from 1 to 65535, while %s_enable is %s, got \"%s\"",
                       r->key, scheme, r->tls, secure ? "true" : "false", url);
    if (!secure && !c->allow_insecure && strcmp(host, "localhost") != 0 && !is_loopback(host))
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s must have a loopback address while TLS is off, got \"%s\"; " P
                       "allow_insecure: true permits it",
                       r->key, url);
    return ERR_OK;
}

/* Without a receiver the files of its block are not opened. */
static void settle_receiver(struct coord_conf *c, const struct receiver *r) {
    if (!c->tls[r->block].enable || r->url[0] != '\0') return;
    log_warn("conf", "%s_enable has no effect without %s: no such connection is made", r->tls,
             r->key);
    c->tls[r->block].enable = false;
}

/* As every exporter of OpenTelemetry takes it: of traces as it stands, or of all signals. */
static void settle_otlp_url(struct coord_conf *c) {
    const char *all = getenv("OTEL_EXPORTER_OTLP_ENDPOINT"),
               *traces = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    if (c->otlp_url[0] != '\0') return;
    if (traces != NULL && traces[0] != '\0')
        snprintf(c->otlp_url, sizeof(c->otlp_url), "%s", traces);
    else if (all != NULL && all[0] != '\0')
        snprintf(c->otlp_url, sizeof(c->otlp_url), "%s%sv1/traces", all,
                 all[strlen(all) - 1] == '/' ? "" : "/");
}

static enum err check_receivers(struct coord_conf *c, struct errbuf *eb) {
    settle_otlp_url(c);
    const struct receiver all[] = {
        {P "alarm_url", c->alarm_url, OT "alarm_client_tls", BLOCK_ALARM_CLIENT},
        {P "otlp_url", c->otlp_url, OT "otlp_client_tls", BLOCK_OTLP_CLIENT},
    };
    enum err e = ERR_OK;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && e == ERR_OK; i++) {
        settle_receiver(c, &all[i]);
        e = check_receiver(c, &all[i], eb);
    }
    return e;
}

/* As above, of etcd. */
static void settle_etcd(struct coord_conf *c) {
    if (!c->tls[BLOCK_ETCD].enable || c->ha_enabled) return;
    log_warn("conf", OT "etcd_server_tls_enable has no effect without " O
                        "backup_config.function_enable: no such connection is made");
    c->tls[BLOCK_ETCD].enable = false;
}

/* n numbers of at least min, with commas between them. */
static bool read_numbers(double *out, int n, double min, double max, const char *p) {
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(p, &end);
        if (end == p || !(out[i] >= min && out[i] <= max) ||
            end[strspn(end, " ")] != (i + 1 < n ? ',' : 0))
            return false;
        p = end + strspn(end, " ") + 1;
    }
    return true;
}

static enum err read_coefficients(struct coord_conf *c, struct errbuf *eb) {
    if (!read_numbers(c->coefficients, 9, -DBL_MAX, DBL_MAX, c->load_cost_coefficient))
        return err_set(eb, ERR_BAD_CONFIG,
                       O "digs_scheduler_config.load_cost_coefficient must be nine numbers "
                         "separated by commas, got \"%s\"",
                       c->load_cost_coefficient);
    if (!read_numbers(c->weights, 4, 0, WEIGHT_MAX, c->route_weights))
        return err_set(eb, ERR_BAD_CONFIG,
                       P "route_weights must be four numbers from 0 to %d separated by commas, got "
                         "\"%s\"",
                       WEIGHT_MAX, c->route_weights);
    return ERR_OK;
}

static enum err read_discover(struct coord_conf *c, struct errbuf *eb) {
    const struct discover_name defaults = {.mgmt_port = (uint16_t)c->instance_mgmt_port,
                                           .port = (uint16_t)c->instance_port,
                                           .metric_port = (uint16_t)c->instance_metric_port,
                                           .kv_port = DISCOVER_KV_PORT,
                                           .label = -1};
    return discover_parse(&c->discover_names, c->discover, &defaults, eb);
}

/* What goes with what (cluster-api 8.1). The controller's word for the mode is another key. */
static enum err check_scheduler(struct coord_conf *c, const struct json_value *root,
                                struct errbuf *eb) {
    const bool digs = strcmp(c->scheduler_type, "digs_scheduler") == 0,
               affinity = strcmp(c->algorithm_type, "cache_affinity") == 0;
    struct json_value *controller = NULL;
    const char *mode = c->deploy_mode;
    size_t n = 0;
    c->single_node = strcmp(c->deploy_mode, "single_node") == 0;
    if (affinity && !c->single_node)
        return err_set(eb, ERR_BAD_CONFIG,
                       O
                       "digs_scheduler_config.algorithm_type must be round_robin or load_balance "
                       "with deploy_mode \"%s\", got \"cache_affinity\", which is for single_node",
                       c->deploy_mode);
    if (digs && strcmp(c->algorithm_type, "load_balance") != 0)
        return err_set(eb, ERR_BAD_CONFIG,
                       O "digs_scheduler_config.algorithm_type must be load_balance with "
                         "digs_scheduler, got \"%s\"",
                       c->algorithm_type);
    if (!digs && !affinity && strcmp(c->algorithm_type, "round_robin") != 0)
        return err_set(eb, ERR_BAD_CONFIG,
                       O "digs_scheduler_config.algorithm_type must be round_robin%s with "
                         "default_scheduler, got \"%s\"",
                       c->single_node ? " or cache_affinity" : "", c->algorithm_type);
    if (json_get_obj(root, "controller", &controller) == JSON_OK)
        (void)json_get_str(controller, "deploy_mode", &mode, &n);
    if ((strcmp(mode, "single_node") == 0) != c->single_node)
        return err_set(eb, ERR_BAD_CONFIG,
                       R "deploy_mode must be that of " O
                         "digs_scheduler_config.deploy_mode where one of them is single_node, got "
                         "\"%s\" and \"%s\"",
                       mode, c->deploy_mode);
    return ERR_OK;
}

static enum err check_rules(struct coord_conf *c, const struct json_value *root,
                            struct errbuf *eb) {
    enum err e = check_tls(c, root, eb);
    settle_etcd(c);
    const enum err receivers = check_receivers(c, e == ERR_OK ? eb : NULL);
    if (e == ERR_OK) e = receivers;
    if (e == ERR_OK) e = read_coefficients(c, eb);
    if (e == ERR_OK) e = read_discover(c, eb);
    if (e != ERR_OK) return e;
    if (origin_check_conf(O, c->management_hosts, c->cors_origin, eb) != ERR_OK)
        return ERR_BAD_CONFIG;
    if ((c->p_rate == 0) != (c->d_rate == 0) || c->p_rate + c->d_rate > 16)
        return err_set(eb, ERR_BAD_CONFIG,
                       R "default_p_rate and " R "default_d_rate must be both 0 or both above 0 "
                         "with a sum of at most 16, got %lld and %lld",
                       (long long)c->p_rate, (long long)c->d_rate);
    if ((e = check_scheduler(c, root, eb)) != ERR_OK) return e;
    if (c->longest_timeouts) {
        c->schedule_timeout_s = c->first_token_timeout_s = c->tokenizer_timeout_s =
            c->vectors_timeout_s = REQUEST_TIMEOUT_S_MAX;
        c->infer_timeout_s = INFER_TIMEOUT_S_MAX;
    }
    int64_t nearest = c->first_token_timeout_s;
    if (c->infer_timeout_s > 0 && (nearest == 0 || c->infer_timeout_s < nearest))
        nearest = c->infer_timeout_s;
    if (nearest > 20 && c->schedule_timeout_s > nearest - 20) c->schedule_timeout_s = nearest - 20;
    return ERR_OK;
}

const struct conf_names *coord_conf_names(void) {
    static const struct conf_alias aliases[] = {
        {"MINDIE_MS_COORDINATOR_CONFIG_SINGLE_NODE_MAX_REQ",
         O "request_limit.single_node_max_requests"},
        {"MINDIE_MS_COORDINATOR_CONFIG_MAX_REQ", O "request_limit.max_requests"},
        {"MINDIE_LOG_LEVEL", O "log_info.log_level"},
        {"POD_IP", O "http_config.predict_ip"},
        {"POD_IP", O "http_config.manage_ip"},
        {"GLOBAL_RANK_TABLE_FILE_PATH", R "global_rank_table_file_path"},
        {"MINDIE_MS_P_RATE", R "default_p_rate"},
        {"MINDIE_MS_D_RATE", R "default_d_rate"},
        {NULL, NULL},
    };
    static const struct conf_names names = {
        .env_prefix = "BATON_COORDINATOR_", .keys = keys, .n_keys = N_KEYS, .aliases = aliases};
    return &names;
}

/* root: what the files say; what was said elsewhere is put over it. */
static enum err fill(void *conf, struct json_value *root, struct errbuf *eb) {
    struct coord_conf *c = conf;
    struct conf_tables t = {.keys = keys, .n_keys = N_KEYS, .also = also_known};
    t.checked = coord_conf_checked(&t.n_checked);
    enum err e = conf_read(c, keys, N_KEYS, root, "", true, eb);
    if (e == ERR_OK) e = conf_check(&t, root, eb);
    if (e == ERR_OK) e = check_rules(c, root, eb);
    if (e == ERR_OK) conf_unknown(&t, root, warn_unknown, NULL);
    return e;
}

static struct conf_reading reading(void) {
    return (struct conf_reading){.names = coord_conf_names(), .fill = fill};
}

enum err coord_conf_parse(struct coord_conf *c, const char *json, size_t n, const char *dir,
                          struct errbuf *eb) {
    const struct conf_reading how = reading();
    memset(c, 0, sizeof(*c));
    conf_defaults(c, keys, N_KEYS);
    snprintf(c->dir, sizeof(c->dir), "%s", dir);
    return conf_layers_parse(&how, c, json, n, eb);
}

/* A file of the reference alone becomes its block of the merged form. */
static enum err read_block(struct json_value *merged, const char *path, const char *block,
                           struct errbuf *eb) {
    struct json_value *root = NULL, *v;
    enum err e = conf_read_file(&root, path, eb);
    if (e != ERR_OK) return e;
    if (!json_is(root, json_type_object)) {
        json_put(root);
        return err_set(eb, ERR_BAD_CONFIG, "%s: the configuration must be a JSON object", path);
    }
    bool is_merged = json_get(root, "coordinator", &v) == JSON_OK ||
                     json_get(root, "controller", &v) == JSON_OK ||
                     json_get(root, "pd", &v) == JSON_OK;
    if (!is_merged) {
        json_obj_set(merged, block, root);
        return ERR_OK;
    }
    struct json_iter it = json_iter_begin(root), end = json_iter_end(root);
    for (; !json_iter_equal(&it, &end); json_iter_next(&it))
        json_obj_set(merged, json_iter_name(&it), json_ref(json_iter_value(&it)));
    json_put(root);
    return ERR_OK;
}

enum err coord_conf_load(struct coord_conf *c, const char *path, const char *controller_path,
                         struct conf_layers *l, struct errbuf *eb) {
    const struct conf_reading how = reading();
    struct json_value *merged = json_new_obj();
    if (merged == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    memset(c, 0, sizeof(*c));
    conf_defaults(c, keys, N_KEYS);
    enum err e = conf_folder_of(path, c->dir, sizeof(c->dir), eb);
    if (e == ERR_OK && path != NULL) e = read_block(merged, path, "coordinator", eb);
    if (e == ERR_OK && controller_path != NULL)
        e = read_block(merged, controller_path, "controller", eb);
    if (e == ERR_OK) e = conf_layers_read(l, &how, c, merged, path, eb);
    json_put(merged);
    return e;
}

size_t coord_conf_body_bytes(const struct coord_conf *c) {
    return (size_t)(c->body_limit_mib > 0 ? c->body_limit_mib : c->body_mib) << 20;
}

const struct conf_key *coord_conf_keys(size_t *n) {
    *n = N_KEYS;
    return keys;
}

void coord_conf_print(struct buf *out, const struct coord_conf *c) {
    conf_print(out, c, keys, N_KEYS);
}
