/* inst_conf: config.json of an instance (cluster-api 11.1 and the keys of our own in the object
 * "BatonConfig"). The table in inst_conf.c is the document: `--check-config` prints it with the
 * values in effect. */
#ifndef BATON_INSTANCE_INST_CONF_H
#define BATON_INSTANCE_INST_CONF_H

#include <stdbool.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/base/limits_conf.h"
#include "proto/err.h"
#include "proto/limits.h"

enum { CONF_LORAS_MAX = 32, CONF_LORA_BYTES = 1280, CONF_DEVICES_MAX = 64, CONF_CORES_BYTES = 256 };

enum { CONF_PATH_BYTES = 1024, CONF_CPUS_MAX = 256, CONF_FILE_BYTES = 256, CONF_FILES_MAX = 3 };

/* One TLS block as the file says it; inst_tls.h makes a context of it. Relative paths start in
 * dir. */
enum inst_plane {
    INST_PLANE_BUSINESS,
    INST_PLANE_MANAGEMENT,
    INST_PLANE_METRICS,
    INST_PLANE_CLUSTER,
    INST_PLANE_REGISTER, /* as a client of the coordinator's management plane */
    INST_PLANE_COUNT
};
struct inst_tls_block {
    char ca_path[CONF_FILE_BYTES], ca_files[CONF_FILES_MAX][CONF_FILE_BYTES], cert[CONF_FILE_BYTES],
        pk[CONF_FILE_BYTES], pk_pwd[CONF_FILE_BYTES], crl_path[CONF_FILE_BYTES],
        crl_files[CONF_FILES_MAX][CONF_FILE_BYTES];
};

struct conf_key;

struct inst_conf {
    /* ServerConfig */
    char ip[64], management_ip[64];
    int64_t port, management_port, metrics_port;
    bool allow_all_zero_ip;
    int64_t link_num_max;
    bool https_enabled, full_text_enabled;
    struct inst_tls_block tls[INST_PLANE_COUNT];
    char infer_mode[16];
    bool inter_comm_tls_enabled;
    int64_t inter_comm_port;
    char open_ai_support[32];
    int64_t token_timeout_s, e2e_timeout_s, request_mib_max;
    bool dist_dp_server_enabled;
    /* HealthCheckConfig, BackendConfig */
    int64_t usage_threshold_pct;
    char backend_name[51];
    int64_t model_instance_number, tokenizer_threads;
    bool multi_nodes_enabled;
    int64_t multi_nodes_port;
    /* ModelDeployConfig, ModelConfig */
    int64_t max_seq_len, max_input_token_len, truncation;
    char model_instance_type[32], model_name[MODEL_NAME_BYTES_MAX + 1],
        model_weight_path[CONF_PATH_BYTES];
    int64_t world_size, cpu_mem_gb, npu_mem_gb;
    char backend_type[32];
    bool trust_remote_code;
    int64_t kv_trans_timeout_s, kv_link_timeout_s;
    /* ScheduleConfig */
    char template_type[32], template_name[64];
    int64_t cache_block_size, max_prefill_batch, max_prefill_tokens, prefill_ms_per_req,
        decode_ms_per_req, prefill_policy, decode_policy, max_batch, max_iter_times, max_preempt,
        max_queue_delay_us, max_first_token_wait_ms, max_n;
    bool support_select_batch;
    /* LogConfig */
    char log_level[16], access_log[CONF_PATH_BYTES];
    int64_t log_level_valid_hours;
    char log_level_valid_time[64];
    /* BatonConfig: our own */
    char weight_dtype[8], kv_dtype[8], kernels[16], error_style[16], vllm_delimiter[16],
        register_url[256], register_role[16], log_start_level[16], cors_origin[512],
        management_hosts[512], tls_min_version[8], client_certificates[16],
        api_keys_file[CONF_FILE_BYTES], responses_dir[CONF_FILE_BYTES], inter_comm_peer_name[256];
    char probe_ca[CONF_FILES_MAX][CONF_FILE_BYTES];
    char prefix_cache_scope[8], instance_name[INSTANCE_NAME_BYTES_MAX + 1];
    char tool_call_parser[16], reasoning_parser[16], special_tokens_in_content[8];
    bool longest_timeouts;
    bool metrics_enabled;
    int64_t compute_threads, kv_cache_mib, chunk_tokens, decode_gap_percent, decode_gap_ms,
        queue_max, stop_drain_timeout_s, kv_inflight_mib, kv_lease_s, kv_heartbeat_ms,
        kv_fetch_ms_min, handover_timeout_s, listener_grace_s, json_depth_max, stream_pending_mib;
    int64_t max_loras, max_lora_rank, prompt_lookup_tokens;
    bool lora_legacy_status;
    char lora_modules[CONF_LORAS_MAX][CONF_LORA_BYTES]; /* "name=path"; "": unused */
    bool allow_mixed_weight_dtype, allow_mixed_isa;
    bool pin_threads, allow_insecure, tls_verify_host, prefix_cache, strict_ranges, token_id_scalar,
        tgi_legacy_space, vllm_legacy_space, benchmark_info, open_ai_id_prefix, pd_refusals;
    int64_t sse_keep_alive_s;
    struct limits_conf limits;
    int64_t template_ms, guide_compile_ms, guide_step_ms;
    int64_t embed_texts_max, embed_tokens_max;

    char weight_cache_path[CONF_PATH_BYTES], kv_huge_pages[16];
    bool weight_cache_verify;
    char device_cores[CONF_DEVICES_MAX][CONF_CORES_BYTES]; /* "id=cores"; "": unused */

    /* npuDeviceIds: the compute threads are pinned to their cores when pin_threads */
    int cpus[CONF_CPUS_MAX];
    int n_cpus;
    char dir[CONF_PATH_BYTES]; /* folder of the file: relative paths start here */
};

/* What keys are called on the command line and in the environment (common/base/conf_layers.h);
 * MIES_CONTAINER_IP and MIES_CONTAINER_MANAGEMENT_IP are names of the reference. */
struct conf_names;
struct conf_layers;
const struct conf_names *inst_conf_names(void);

/* Defaults, then the file, then environment and flags (l, which was read already), then the rules
 * between keys. path NULL: there is no file, and relative paths start in the working directory.
 * ERR_BAD_CONFIG: eb has where it was said, key, value, allowed range. ERR_BAD_FILE / ERR_NOT_FOUND
 * / ERR_BAD_JSON: eb names the file. Unknown keys are logged as warnings. */
enum err inst_conf_load(struct inst_conf *c, const char *path, struct conf_layers *l,
                        struct errbuf *eb);
/* The same from bytes, with the environment and no flags; dir as above. */
enum err inst_conf_parse(struct inst_conf *c, const char *json, size_t n, const char *dir,
                         struct errbuf *eb);
/* Names and folders of adapters, as config and management plane take them (inference-api 15):
 * ^[a-zA-Z0-9_-]{1,256}$; letters, digits, "_-./", below CONF_PATH_BYTES, no "..". */
bool inst_lora_name_ok(const char *s, size_t n);
bool inst_lora_path_ok(const char *s, size_t n);
/* The cores of npuDeviceIds, in their order: device id i is core i, or with deviceCores the cores
 * of its entry. Returns how many; -1: eb has the entry. */
int inst_conf_cores(const struct inst_conf *c, int out[CONF_CPUS_MAX], struct errbuf *eb);
/* The tables, for whoever checks or describes them (common/base/conf.h): the settings, and keys of
 * the reference that are checked and have no effect. */
const struct conf_key *inst_conf_keys(size_t *n);
const struct conf_key *inst_conf_checked(size_t *n);
void inst_conf_print(struct buf *out, const struct inst_conf *c);

#endif
