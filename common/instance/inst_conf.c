/* inst_conf: the table of config.json and the rules between its keys. */
#include "common/instance/inst_conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/conf.h"
#include "common/base/conf_layers.h"
#include "common/base/log.h"
#include "common/engine/cores.h"
#include "common/net/origin.h"
#include "proto/json.h"
#include "proto/status_msg.h"

#define S                                 "ServerConfig."
#define H                                 "HealthCheckConfig."
#define B                                 "BackendConfig."
#define D                                 "BackendConfig.ModelDeployConfig."
#define M                                 "BackendConfig.ModelDeployConfig.ModelConfig.0."
#define C                                 "BackendConfig.ScheduleConfig."
#define L                                 "LogConfig."
#define X                                 "BatonConfig."
#define BOOL(m, path, def, help)          CONF_B(struct inst_conf, m, path, def, help)
#define INT(m, path, min, max, def, help) CONF_I(struct inst_conf, m, path, min, max, def, help)
#define STR(m, path, def, help)           CONF_S(struct inst_conf, m, path, def, help)
#define WORD(m, path, words, def, help)   CONF_W(struct inst_conf, m, path, words, def, help)

/* The seven files of a TLS block. The reference spells the cluster plane's keys in its own way. */
#define TLS_BLOCK(at, k_ca_path, k_ca, k_cert, k_pk, k_pwd, k_crl_path, k_crl, dir, own)           \
    STR(tls[at].ca_path, k_ca_path, "security/" dir "ca/", "folder of the CA files"),              \
        CONF_LS(struct inst_conf, tls[at].ca_files, k_ca, "ca.pem",                                \
                "CAs that a peer's certificate may come from (PEM)"),                              \
        STR(tls[at].cert, k_cert, "security/" dir "certs/" own ".pem", "own certificate (PEM)"),   \
        STR(tls[at].pk, k_pk, "security/" dir "keys/" own ".key.pem", "own key (PEM)"),            \
        STR(tls[at].pk_pwd, k_pwd, "",                                                             \
            "file with the key's password; empty: the key is not encrypted"),                      \
        STR(tls[at].crl_path, k_crl_path, "security/" dir "certs/", "folder of the CRL files"),    \
        CONF_LS(struct inst_conf, tls[at].crl_files, k_crl, "",                                    \
                "CRLs (PEM); none: no revocation test")
#define TLS_PLANE(at, p, dir, own)                                                                 \
    TLS_BLOCK(at, p "CaPath", p "CaFile", p "Cert", p "Pk", p "PkPwd", p "CrlPath", p "CrlFiles",  \
              dir, own)

enum { DECODE_GAP_PERCENT_MAX = 100000 };
enum { TOKEN_TIMEOUT_S_MAX = 3600, E2E_TIMEOUT_S_MAX = 65535 };

static const struct conf_key keys[] = {
    BOOL(longest_timeouts, "EnableDynamicAdjustTimeoutConfig", "false",
         "true: the time-outs of inference are the longest allowed"),
    CONF_IPADDR(struct inst_conf, ip, S "ipAddress", "127.0.0.1", "address of the business plane"),
    CONF_IPADDR(struct inst_conf, management_ip, S "managementIpAddress", "127.0.0.2",
                "address of management and metrics; absent: ipAddress"),
    INT(port, S "port", 1024, 65535, "1025", "port of the business plane"),
    INT(management_port, S "managementPort", 1024, 65535, "1026",
        "port of the management plane; absent: port"),
    INT(metrics_port, S "metricsPort", 1024, 65535, "1027", "port of the metrics plane"),
    BOOL(allow_all_zero_ip, S "allowAllZeroIpListening", "false", "allows 0.0.0.0 and ::"),
    INT(link_num_max, S "maxLinkNum", 1, 4096, "1000",
        "requests at once; connections are at most three times as many"),
    BOOL(https_enabled, S "httpsEnabled", "true", "TLS on the HTTP planes"),
    TLS_PLANE(INST_PLANE_BUSINESS, S "tls", "", "server"),
    TLS_PLANE(INST_PLANE_MANAGEMENT, S "managementTls", "management/", "server"),
    TLS_PLANE(INST_PLANE_METRICS, S "metricsTls", "metrics/", "server"),
    BOOL(full_text_enabled, S "fullTextEnabled", "false",
         "stream events carry the text so far instead of the new text"),
    WORD(infer_mode, S "inferMode", "standard|dmi", "standard",
         "standard: serves alone; dmi: takes a role in a cluster"),
    BOOL(inter_comm_tls_enabled, S "interCommTLSEnabled", "true", "seals the KV links"),
    TLS_BLOCK(INST_PLANE_CLUSTER, S "interCommTlsCaPath", S "interCommTlsCaFiles",
              S "interCommTlsCert", S "interCommPk", S "interCommPkPwd", S "interCommTlsCrlPath",
              S "interCommTlsCrlFiles", "grpc/", "server"),
    INT(inter_comm_port, S "interCommPort", 1024, 65535, "1121",
        "port of the KV link listener; this instance connects to those of others from it"),
    STR(open_ai_support, S "openAiSupport", "vllm",
        "\"vllm\": OpenAI paths with vLLM's ranges; anything else: the native ranges"),
    INT(token_timeout_s, S "tokenTimeout", 1, TOKEN_TIMEOUT_S_MAX, "600",
        "seconds without a token after which a request fails"),
    INT(e2e_timeout_s, S "e2eTimeout", 1, E2E_TIMEOUT_S_MAX, "600", "seconds a request may take"),
    INT(request_mib_max, S "maxRequestLength", 1, 100, "40", "MiB of a request body"),
    BOOL(dist_dp_server_enabled, S "distDPServerEnabled", "false", "accepted, no effect on CPUs"),
    INT(usage_threshold_pct, H "npuUsageThreshold", 0, 100, "10", "accepted; 0: off"),
    CONF_L(struct inst_conf, backend_name, B "backendName", "mindieservice_llm_engine",
           "accepted for compatibility"),
    INT(model_instance_number, B "modelInstanceNumber", 1, 10, "1",
        "must be 1: one model a process"),
    INT(tokenizer_threads, B "tokenizerProcessNumber", 1, 32, "8",
        "threads for templates and tokenising (at most the cores are used)"),
    BOOL(multi_nodes_enabled, B "multiNodesInferEnabled", "false",
         "must be false: an instance is one host"),
    INT(multi_nodes_port, B "multiNodesInferPort", 1024, 65535, "1120", "accepted, not used"),
    INT(max_seq_len, D "maxSeqLen", 1, 4194304, "2560",
        "tokens of prompt and answer together; cut to the model's context"),
    INT(max_input_token_len, D "maxInputTokenLen", 1, 4194304, "2048", "tokens of a prompt"),
    INT(truncation, D "truncation", -1, 1, "0",
        "too long prompts: -1 cut on the right, 1 on the left, 0 refuse"),
    WORD(model_instance_type, M "modelInstanceType", "Standard", "Standard", "kind of instance"),
    CONF_MUST_NAME(struct inst_conf, model_name, M "modelName", "the name clients use"),
    CONF_MUST_S(struct inst_conf, model_weight_path, M "modelWeightPath",
                "the model's folder, relative to this file"),
    INT(world_size, M "worldSize", 1, 1024, "1", "devices (core sets) of the instance"),
    INT(cpu_mem_gb, M "cpuMemSize", 0, 2147483647, "5", "accepted; nothing is swapped"),
    INT(npu_mem_gb, M "npuMemSize", -1, 2147483647, "-1", "GB of the KV pool; -1: automatic"),
    WORD(backend_type, M "backendType", "atb|torch", "atb", "accepted for compatibility"),
    BOOL(trust_remote_code, M "trustRemoteCode", "false",
         "accepted; no code of a model is ever run"),
    INT(kv_trans_timeout_s, M "kv_trans_timeout", -2147483648.0, 86400, "10",
        "seconds of a KV transfer at D; <= 0: 1"),
    INT(kv_link_timeout_s, M "kv_link_timeout", -2147483648.0, 86400, "1080",
        "seconds of a link attempt; <= 0: 1080"),
    WORD(template_type, C "templateType", "Standard|Mix", "Standard", "accepted for compatibility"),
    WORD(template_name, C "templateName", "Standard_LLM", "Standard_LLM",
         "accepted for compatibility"),
    INT(cache_block_size, C "cacheBlockSize", 1, 128, "128", "tokens of a KV block"),
    INT(max_prefill_batch, C "maxPrefillBatchSize", 1, 819200, "50", "prompts in one step"),
    INT(max_prefill_tokens, C "maxPrefillTokens", 1, 4194304, "8192", "token rows of one step"),
    INT(prefill_ms_per_req, C "prefillTimeMsPerReq", 0, 1000, "150", "accepted for compatibility"),
    INT(decode_ms_per_req, C "decodeTimeMsPerReq", 0, 1000, "50", "accepted for compatibility"),
    INT(prefill_policy, C "prefillPolicyType", 0, 0, "0", "0: first come, first served"),
    INT(decode_policy, C "decodePolicyType", 0, 0, "0", "0: first come, first served"),
    INT(max_batch, C "maxBatchSize", 1, 5000, "200", "sequences at once (slots)"),
    INT(max_iter_times, C "maxIterTimes", 1, 4194304, "512", "tokens of an answer"),
    INT(max_preempt, C "maxPreemptCount", 0, 819200, "0",
        "accepted; a running request is never pre-empted"),
    BOOL(support_select_batch, C "supportSelectBatch", "false", "accepted for compatibility"),
    INT(max_queue_delay_us, C "maxQueueDelayMicroseconds", 500, 1000000, "5000",
        "accepted; a step never waits for more requests"),
    INT(max_first_token_wait_ms, C "maxFirstTokenWaitTime", 0, 3600000, "2500",
        "accepted for compatibility"),
    INT(max_n, C "maxN", 1, 8192, "128",
        "answers of one request; at most maxBatchSize, to which the default is cut"),
    STR(log_level, L "dynamicLogLevel", "",
        "log level for dynamicLogLevelValidHours from the start on: debug, info, warn, error; "
        "empty, "
        "and after them: BatonConfig.logLevel"),
    INT(log_level_valid_hours, L "dynamicLogLevelValidHours", 1, 168, "2",
        "hours for which dynamicLogLevel holds"),
    STR(log_level_valid_time, L "dynamicLogLevelValidTime", "", "accepted for compatibility"),
    WORD(log_start_level, X "logLevel", "debug|info|warn|error", "info", "log level"),
    STR(access_log, X "accessLog", "",
        "file that gets a line of JSON for each request of the business plane; empty: none"),
    WORD(weight_dtype, X "weightDtype", "auto|bf16|f32|int8|int4", "auto",
         "type the weights are kept in"),
    WORD(kv_dtype, X "kvDtype", "bf16|f32|int8", "bf16", "type the KV blocks are kept in"),
    BOOL(allow_mixed_weight_dtype, X "allowMixedWeightDtype", "false",
         "links with peers of the same model whose weights have another type or other values, if "
         "they allow it too"),
    WORD(kernels, X "kernels",
         "auto|ref|avx2|avx512|avx512vnni|avx512bf16|amx|neon|neondot|neoni8mm|neonbf16|openblas",
         "auto", "instruction set of the kernels; auto asks the CPU"),
    BOOL(allow_mixed_isa, X "allowMixedIsa", "false",
         "links with peers whose kernels compute other bits (see kernels), if they allow it too"),
    INT(compute_threads, X "computeThreads", 0, 1024, "0", "threads that compute; 0: one a core"),
    INT(kv_cache_mib, X "kvCacheMiB", 0, 16777216, "0",
        "MiB of the KV pool; 0: npuMemSize decides"),
    BOOL(allow_insecure, X "allowInsecure", "false",
         "permits addresses that are not loopback while TLS is off"),
    WORD(tls_min_version, X "tlsMinVersion", "1.2|1.3", "1.3",
         "oldest TLS on the business plane of a standard instance; all else is 1.3"),
    WORD(client_certificates, X "clientCertificates", "required|optional", "required",
         "whether clients of a standard instance's business plane must have a certificate"),
    BOOL(tls_verify_host, X "tlsVerifyHost", "true",
         "the certificate of registerUrl's server must name its host"),
    STR(inter_comm_peer_name, X "interCommPeerName", "",
        "name that the certificates of KV links' peers must have, in place of their address; "
        "empty: "
        "their address"),
    CONF_LS(
        struct inst_conf, probe_ca, X "probeTlsCaFiles", "",
        "CAs, relative to this file, whose certificates may ask the management plane for health "
        "and nothing else (PEM)"),
    STR(management_hosts, X "managementHosts", "",
        "names that the planes without clients may be spoken to by, beside IP addresses and "
        "localhost, with blanks between them; .example.org: all below it; *: all"),
    STR(api_keys_file, X "apiKeysFile", "",
        "file of the API keys that clients of a standard instance must show; empty: none"),
    BOOL(pin_threads, X "pinThreads", "false",
         "pins the compute threads to the cores of npuDeviceIds"),
    STR(weight_cache_path, X "weightCachePath", "auto",
        "folder where packed weights are kept for other processes and the next start; auto: .baton "
        "in the model's folder, for models of 64 MiB and more; off"),
    BOOL(weight_cache_verify, X "weightCacheVerify", "false",
         "reads kept weights through and holds them against their checksum at every start"),
    WORD(kv_huge_pages, X "kvHugePages", "transparent|hugetlb|off", "transparent",
         "pages of the KV pool; hugetlb: from the system's reserve (vm.nr_hugepages), if it has "
         "enough"),
    CONF_LS(struct inst_conf, device_cores, X "deviceCores", "",
            "cores of the devices, each \"id=cores\" (\"0=0-3,8\"); none: device i is core i"),
    BOOL(prefix_cache, X "prefixCache", "true", "reuses KV blocks of equal prompt beginnings"),
    WORD(prefix_cache_scope, X "prefixCacheScope", "key|all", "key",
         "whose blocks a request may reuse: those of its own API key, or those of all clients, who "
         "can then learn from the time of an answer what others have asked"),
    INT(chunk_tokens, X "chunkTokens", 1, 65536, "256",
        "prompt tokens computed in one step of one request"),
    INT(decode_gap_percent, X "decodeGapPercent", 0, DECODE_GAP_PERCENT_MAX, "400",
        "while sequences decode, a step that computes prompts too takes at most so many percent of "
        "the time it takes without them, above 100; 0: no such bound"),
    INT(decode_gap_ms, X "decodeGapMs", 0, 60000, "0",
        "milliseconds that such a step takes at most, instead; 0: decodeGapPercent decides"),
    INT(prompt_lookup_tokens, X "promptLookupTokens", 0, LOOKUP_TOKENS_MAX, "0",
        "tokens guessed a step by looking up what was said before, where the request does not say; "
        "0: none"),
    INT(queue_max, X "queueMax", 1, 100000, "2000",
        "requests waiting for a slot; one more gets 429"),
    INT(stop_drain_timeout_s, X "stopDrainTimeoutSeconds", 0, 86400, "300",
        "seconds /stopService waits for running requests; 0: no bound"),
    INT(kv_inflight_mib, X "kvInflightMiB", 1, 4096, "64", "MiB of KV on the way to one peer"),
    INT(kv_lease_s, X "kvLeaseSeconds", 1, 3600, "30",
        "seconds P keeps the KV of a request without a heartbeat of D"),
    INT(kv_heartbeat_ms, X "kvHeartbeatMs", 20, 60000, "500",
        "milliseconds between heartbeats of a KV link; three misses fail it"),
    INT(kv_fetch_ms_min, X "kvFetchMsMin", 0, 1000, "5",
        "after a planned move the KV of a request is fetched from the D it left where computing it "
        "takes P so many milliseconds; 0: always"),
    INT(handover_timeout_s, X "handoverTimeoutSeconds", 1, 3600, "30",
        "seconds P waits for a D to take a request"),
    INT(listener_grace_s, X "listenerGraceSeconds", 1, 3600, "30",
        "seconds D keeps running requests without a /dresult listener"),
    INT(json_depth_max, X "maxJsonDepth", 10, 100, "10", "nesting of a request body"),
    STR(cors_origin, X "corsAllowOrigin", "",
        "origins whose pages may call from a browser, separated by blanks; http://localhost:*: "
        "with any port; *: all; empty: none"),
    INT(stream_pending_mib, X "streamPendingMiB", 4, 1024, "16",
        "MiB unsent on a stream after which the client counts as gone"),
    WORD(error_style, X "errorStyle", "mindie|openai", "mindie",
         "manner of /v1 paths: the reference's, or that of OpenAI's own service"),
    BOOL(metrics_enabled, X "metricsEnabled", "true",
         "GET /metrics; false: only with the environment's MIES_SERVICE_MONITOR_MODE=1"),
    BOOL(strict_ranges, X "strictRanges", "true",
         "each family's own parameter ranges; false: the widest of all"),
    BOOL(token_id_scalar, X "tokenIdScalar", "false",
         "TGI and native events: token.id as a number instead of a list"),
    BOOL(tgi_legacy_space, X "tgiLegacySpace", "false",
         "TGI return_full_text puts a space between prompt and answer"),
    BOOL(vllm_legacy_space, X "vllmLegacySpace", "true",
         "vLLM /generate puts a space between prompt and answer"),
    WORD(vllm_delimiter, X "vllmStreamDelimiter", "nul|newline", "nul",
         "what ends a frame of a vLLM stream"),
    BOOL(benchmark_info, X "benchmarkInfo", "false", "OpenAI answers carry times and batch sizes"),
    BOOL(open_ai_id_prefix, X "openAiIdPrefix", "false", "chatcmpl- and cmpl- before OpenAI ids"),
    WORD(special_tokens_in_content, X "specialTokensInContent", "text|parse", "text",
         "special tokens written in messages, tools and documents: text, or tokens as in the "
         "HuggingFace libraries"),
    WORD(tool_call_parser, X "toolCallParser",
         "auto|none|hermes|qwen2_5|qwen3|llama3|mistral|deepseek_v3|deepseek_v31|chatglm|harmony|"
         "llama4",
         "auto", "how the model writes tool calls; auto: by its chat template"),
    WORD(reasoning_parser, X "reasoningParser", "none|qwen3|deepseek_r1", "none",
         "parts thinking from the answer: opened by a tag, or always there at the beginning"),
    BOOL(pd_refusals, X "pdRefusals", "false",
         "inferMode dmi: refuses n, best_of, logprobs and stop strings as the reference does"),
    INT(sse_keep_alive_s, X "sseKeepAliveSeconds", 0, 3600, "0",
        "seconds without an event, from its arrival on, after which a stream gets a comment line; "
        "0: never"),
    INT(max_loras, X "maxLoras", 0, 1024, "32",
        "LoRA adapters loaded at once; 0: none can be loaded"),
    INT(max_lora_rank, X "maxLoraRank", 1, 64, "64", "largest rank of a LoRA adapter"),
    CONF_LS(struct inst_conf, lora_modules, X "loraModules", "",
            "adapters loaded at the start, each \"name=path\"; the path is relative to this file"),
    BOOL(lora_legacy_status, X "loraLegacyStatus", "false",
         "loading and unloading adapters answers failures with status 200, as the reference does"),
    STR(instance_name, X "instanceName", "",
        "what the coordinator's status and metrics call this instance; empty: its address and "
        "port"),
    STR(register_url, X "registerUrl", "",
        "management URL of a coordinator this instance registers itself with; of several "
        "coordinators all, with blanks between them; empty: none"),
    WORD(register_role, X "registerRole", "static|prefer|any|prefill|decode", "static",
         "role a registration asks for; static: that of its program, and no other; prefer: rather "
         "that of its program; any: as the ratio has it; prefill, decode: this one, and no other"),
    TLS_PLANE(INST_PLANE_REGISTER, X "registerTls", "register/", "client"),
    STR(responses_dir, X "responsesDir", "",
        "folder, relative to this file, that has the responses an instance alone keeps over "
        "restarts; empty: they are in memory alone"),
    LIMITS_KEYS(struct inst_conf, limits, X "limits."),
    INT(embed_texts_max, X "limits.embedTexts", 1, 65536, "2048",
        "texts, or pairs of texts, that one request may have made vectors or scores of"),
    INT(embed_tokens_max, X "limits.embedTokens", 1, 1000000000, "300000",
        "tokens of all texts of such a request"),
    INT(template_ms, X "limits.templateMs", 1, 60000, "200",
        "ms of processor time that a chat template sent by a client may take"),
    INT(guide_compile_ms, X "limits.guideCompileMs", 1, 60000, "2000",
        "ms of processor time that compiling a guide may take"),
    INT(guide_step_ms, X "limits.guideStepMs", 1, 60000, "100",
        "ms of processor time that a guide may take at one token"),
};
enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };

/* Keys of the reference that have no use here, held to its ranges all the same. */
static const struct conf_key checked[] = {
    CHECKED_W("Version", "1.0.0", "1.0.0"),
    CHECKED_B(B "interNodeTLSEnabled", "true"),
};
enum { N_CHECKED = sizeof(checked) / sizeof(checked[0]) };

/* Keys of the reference without a range: stores of its own password format, planes that do not
 * exist here; device ids (read by hand). */
static const char *const also_known[] = {B "npuDeviceIds",
                                         S "kmcKsfMaster",
                                         S "kmcKsfStandby",
                                         B "interNodeTlsCaPath",
                                         B "interNodeTlsCaFiles",
                                         B "interNodeTlsCert",
                                         B "interNodeTlsPk",
                                         B "interNodeTlsPkPwd",
                                         B "interNodeTlsCrlPath",
                                         B "interNodeTlsCrlFiles",
                                         B "interNodeKmcKsfMaster",
                                         B "interNodeKmcKsfStandby",
                                         NULL};

static void warn_unknown(void *arg, const char *path) {
    (void)arg;
    log_warn("conf", "unknown key %s: ignored", path);
}

/* npuDeviceIds: [[0,1]]: cores of the (one) model instance. */
static enum err read_devices(struct inst_conf *c, struct json_value *root, struct errbuf *eb) {
    struct json_value *backend, *outer, *inner;
    c->n_cpus = 0;
    if (json_get_obj(root, "BackendConfig", &backend) != JSON_OK ||
        json_get(backend, "npuDeviceIds", &outer) != JSON_OK)
        return ERR_OK;
    if (!json_is(outer, json_type_array) || json_arr_len(outer) != 1 ||
        json_as_arr(json_arr_at(outer, 0), &inner) != JSON_OK)
        return err_set(eb, ERR_BAD_CONFIG,
                       B "npuDeviceIds must be an array holding one array of device ids");
    size_t n = json_arr_len(inner);
    if (n > CONF_CPUS_MAX)
        return err_set(eb, ERR_BAD_CONFIG, B "npuDeviceIds has %zu ids, at most %d are allowed", n,
                       CONF_CPUS_MAX);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (json_as_i64(json_arr_at(inner, i), &id) != JSON_OK || id < 0 || id > 4095)
            return err_set(eb, ERR_BAD_CONFIG,
                           B "npuDeviceIds[0][%zu] must be an integer from 0 to 4095", i);
        c->cpus[i] = (int)id;
    }
    c->n_cpus = (int)n;
    return ERR_OK;
}

static bool chars_ok(const char *s, size_t n, const char *more) {
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
              (s[i] >= '0' && s[i] <= '9') || (s[i] != 0 && strchr(more, s[i]) != NULL)))
            return false;
    return true;
}

bool inst_lora_name_ok(const char *s, size_t n) {
    return n >= 1 && n <= ADAPTER_NAME_BYTES_MAX && chars_ok(s, n, "_-");
}

bool inst_lora_path_ok(const char *s, size_t n) {
    return n >= 1 && n < CONF_PATH_BYTES && chars_ok(s, n, "_-./") && strstr(s, "..") == NULL;
}

/* The cores of device id; n -1: the entry is wrong. 0: no entry names it. */
static int device_list(const struct inst_conf *c, int id, int out[CONF_CPUS_MAX]) {
    for (int i = 0; i < CONF_DEVICES_MAX; i++) {
        const char *s = c->device_cores[i], *eq = strchr(s, '=');
        int ids[1], n = 0;
        if (s[0] == 0) continue;
        if (eq == NULL || !cores_list(ids, 1, &n, s, (size_t)(eq - s)) || n != 1) return -1;
        if (ids[0] != id) continue;
        return cores_list(out, CONF_CPUS_MAX, &n, eq + 1, strlen(eq + 1)) && n > 0 ? n : -1;
    }
    return 0;
}

int inst_conf_cores(const struct inst_conf *c, int out[CONF_CPUS_MAX], struct errbuf *eb) {
    bool mapped = false;
    int n = 0;
    for (int i = 0; i < CONF_DEVICES_MAX; i++) mapped = mapped || c->device_cores[i][0] != 0;
    for (int i = 0; i < c->n_cpus; i++) {
        int list[CONF_CPUS_MAX] = {c->cpus[i]}, n_list = 1;
        if (mapped && (n_list = device_list(c, c->cpus[i], list)) < 1) {
            err_set(eb, ERR_BAD_CONFIG,
                    X
                    "deviceCores must hold \"id=cores\", as \"0=0-3,8\", for each of npuDeviceIds: "
                    "not so for %d",
                    c->cpus[i]);
            return -1;
        }
        for (int k = 0; k < n_list; k++) {
            for (int j = 0; j < n; j++) {
                if (out[j] != list[k]) continue;
                err_set(eb, ERR_BAD_CONFIG, B "npuDeviceIds: core %d is there twice", list[k]);
                return -1;
            }
            if (n == CONF_CPUS_MAX) {
                err_set(eb, ERR_BAD_CONFIG, B "npuDeviceIds: more than %d cores", CONF_CPUS_MAX);
                return -1;
            }
            out[n++] = list[k];
        }
    }
    return n;
}

static enum err check_loras(const struct inst_conf *c, struct errbuf *eb) {
    int64_t n = 0;
    for (int i = 0; i < CONF_LORAS_MAX; i++) {
        const char *s = c->lora_modules[i], *eq = strchr(s, '=');
        if (s[0] == 0) continue;
        n++;
        if (eq == NULL || !inst_lora_name_ok(s, (size_t)(eq - s)) ||
            !inst_lora_path_ok(eq + 1, strlen(eq + 1)))
            return err_set(eb, ERR_BAD_CONFIG,
                           X "loraModules must hold \"name=path\", a name of letters, digits, _ "
                             "and -, a path of these, . and / without .., got \"%.200s\"",
                           s);
    }
    if (n <= c->max_loras) return ERR_OK;
    return err_set(eb, ERR_BAD_CONFIG, X "loraModules must hold at most maxLoras (%lld), got %lld",
                   (long long)c->max_loras, (long long)n);
}

static bool is_all_zero(const char *ip) {
    return strcmp(ip, "0.0.0.0") == 0 || strcmp(ip, "::") == 0;
}
static bool is_loopback(const char *ip) {
    return strncmp(ip, "127.", 4) == 0 || strcmp(ip, "::1") == 0;
}

/* Settings for clients, which connect to a standalone instance, and in a cluster to the
 * coordinator. */
static enum err check_clients(const struct inst_conf *c, struct errbuf *eb) {
    bool dmi = strcmp(c->infer_mode, "dmi") == 0, old = strcmp(c->tls_min_version, "1.2") == 0,
         optional = strcmp(c->client_certificates, "optional") == 0;
    const char *key = old                        ? X "tlsMinVersion"
                      : optional                 ? X "clientCertificates"
                      : c->api_keys_file[0] != 0 ? X "apiKeysFile"
                                                 : NULL;
    if (dmi && key != NULL)
        return err_set(eb, ERR_BAD_CONFIG,
                       "%s is for inferMode standard: the business plane of a dmi instance is the "
                       "coordinator's alone, clients come to the coordinator's user plane",
                       key);
    return ERR_OK;
}

/* Both ends of the management plane are plain, or both have TLS. */
static enum err check_register_url(const struct inst_conf *c, struct errbuf *eb) {
    const char *scheme = c->https_enabled ? "https://" : "http://", *url = c->register_url;
    const size_t n = strlen(scheme);
    bool good = true;
    for (; *url != '\0'; url += strcspn(url, " "), url += strspn(url, " "))
        good = good && strncmp(url, scheme, n) == 0 && strcspn(url + n, "/?#@ ") > 0 &&
               strcspn(url + n, "/?#@ ") == strcspn(url + n, " ");
    url = c->register_url;
    if (!good || url[0] == ' ')
        return err_set(eb, ERR_BAD_CONFIG,
                       X "registerUrl must be %sADDRESS:PORT without a path while " S
                         "httpsEnabled is %s, got \"%s\"",
                       scheme, c->https_enabled ? "true" : "false", url);
    return ERR_OK;
}

/* What no single row can say. */
static enum err check_rules(const struct inst_conf *c, struct errbuf *eb) {
    const char *ips[] = {c->ip, c->management_ip};
    for (int i = 0; i < 2; i++) {
        if (is_all_zero(ips[i]) && !c->allow_all_zero_ip)
            return err_set(eb, ERR_BAD_CONFIG,
                           S "%s must not be %s unless " S "allowAllZeroIpListening is true",
                           i == 0 ? "ipAddress" : "managementIpAddress", ips[i]);
        if (!is_loopback(ips[i]) && !c->https_enabled && !c->allow_insecure)
            return err_set(eb, ERR_BAD_CONFIG,
                           S "%s must be a loopback address while httpsEnabled is false, got %s; " X
                             "allowInsecure: true permits it",
                           i == 0 ? "ipAddress" : "managementIpAddress", ips[i]);
    }
    if (c->probe_ca[0][0] != 0 && strcmp(c->ip, c->management_ip) == 0 &&
        c->port == c->management_port)
        return err_set(eb, ERR_BAD_CONFIG,
                       X "probeTlsCaFiles is for a management plane of its own: " S
                         "managementPort must not be that of the business plane, got %lld",
                       (long long)c->management_port);
    if (strcmp(c->infer_mode, "dmi") == 0 && !c->inter_comm_tls_enabled && !c->allow_insecure &&
        !is_loopback(c->ip))
        return err_set(eb, ERR_BAD_CONFIG,
                       S "interCommTLSEnabled must be true while ipAddress is not a loopback "
                         "address, got %s; " X "allowInsecure: true permits it",
                       c->ip);
    if (c->model_instance_number != 1)
        return err_set(eb, ERR_BAD_CONFIG, B "modelInstanceNumber must be 1, got %lld",
                       (long long)c->model_instance_number);
    if (c->multi_nodes_enabled)
        return err_set(eb, ERR_BAD_CONFIG,
                       B "multiNodesInferEnabled must be false, got true: an instance is one host");
    if (c->decode_gap_percent >= 1 && c->decode_gap_percent <= 100)
        return err_set(eb, ERR_BAD_CONFIG,
                       X "decodeGapPercent must be 0 or from 101 to %d, got %lld",
                       DECODE_GAP_PERCENT_MAX, (long long)c->decode_gap_percent);
    if (c->max_prefill_batch > c->max_batch)
        return err_set(eb, ERR_BAD_CONFIG,
                       C "maxPrefillBatchSize must be from 1 to maxBatchSize (%lld), got %lld",
                       (long long)c->max_batch, (long long)c->max_prefill_batch);
    if (c->max_preempt > c->max_batch)
        return err_set(eb, ERR_BAD_CONFIG,
                       C "maxPreemptCount must be from 0 to maxBatchSize (%lld), got %lld",
                       (long long)c->max_batch, (long long)c->max_preempt);
    if (c->max_n > c->max_batch)
        return err_set(eb, ERR_BAD_CONFIG, C "maxN must be from 1 to maxBatchSize (%lld), got %lld",
                       (long long)c->max_batch, (long long)c->max_n);
    if (c->cpu_mem_gb == 0 && c->max_preempt != 0)
        return err_set(eb, ERR_BAD_CONFIG, M "cpuMemSize may be 0 only if maxPreemptCount is 0");
    if (c->max_prefill_tokens < c->max_input_token_len)
        return err_set(eb, ERR_BAD_CONFIG,
                       C "maxPrefillTokens must be at least maxInputTokenLen (%lld), got %lld",
                       (long long)c->max_input_token_len, (long long)c->max_prefill_tokens);
    if (c->max_iter_times > c->max_seq_len)
        return err_set(eb, ERR_BAD_CONFIG,
                       C "maxIterTimes must be from 1 to maxSeqLen (%lld), got %lld",
                       (long long)c->max_seq_len, (long long)c->max_iter_times);
    if (origin_check_conf(X, c->management_hosts, c->cors_origin, eb) != ERR_OK)
        return ERR_BAD_CONFIG;
    int cores[CONF_CPUS_MAX];
    if (inst_conf_cores(c, cores, eb) < 0) return ERR_BAD_CONFIG;
    enum err e = check_clients(c, eb);
    if (e == ERR_OK) e = check_register_url(c, eb);
    if (e == ERR_OK && c->instance_name[0] != 0 && !instance_name_ok(c->instance_name))
        e = err_set(eb, ERR_BAD_CONFIG,
                    X "instanceName must be 1 to %d letters, digits, '.', ':', '_' or '-', not "
                      "digits alone, got "
                      "\"%s\"",
                    INSTANCE_NAME_BYTES_MAX, c->instance_name);
    if (e != ERR_OK) return e;
    if (c->npu_mem_gb == 0)
        return err_set(eb, ERR_BAD_CONFIG,
                       M "npuMemSize must be -1 or from 1 to 2147483647, got 0");
    if (c->log_level[0] != 0 && log_level_parse(c->log_level) < 0)
        return err_set(eb, ERR_BAD_CONFIG,
                       L "dynamicLogLevel must be debug, info, warn or error, got \"%s\"",
                       c->log_level);
    return ERR_OK;
}

/* "truncation" may also be a bool: true cuts on the right. */
static void normalise_truncation(struct json_value *root) {
    struct json_value *b, *d, *t;
    if (json_get_obj(root, "BackendConfig", &b) == JSON_OK &&
        json_get_obj(b, "ModelDeployConfig", &d) == JSON_OK &&
        json_get(d, "truncation", &t) == JSON_OK && json_is(t, json_type_boolean))
        json_obj_set(d, "truncation", json_new_i64(json_bool(t) ? -1 : 0));
}

/* Two spellings of one key are about: interCommPk and interCommTlsPk. */
static void normalise_inter_comm(struct json_value *root) {
    static const char *const pairs[][2] = {{"interCommTlsPk", "interCommPk"},
                                           {"interCommTlsPkPwd", "interCommPkPwd"}};
    struct json_value *s, *v, *other;
    if (json_get_obj(root, "ServerConfig", &s) != JSON_OK) return;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (json_get(s, pairs[i][0], &v) != JSON_OK) continue;
        if (json_get(s, pairs[i][1], &other) != JSON_OK) json_obj_set(s, pairs[i][1], json_ref(v));
        json_obj_del(s, pairs[i][0]);
    }
}

static bool has_key(const struct json_value *root, const char *obj, const char *key) {
    struct json_value *o, *v;
    return json_get_obj(root, obj, &o) == JSON_OK && json_get(o, key, &v) == JSON_OK;
}

static bool has_max_n(const struct json_value *root) {
    struct json_value *backend;
    return json_get_obj(root, "BackendConfig", &backend) == JSON_OK &&
           has_key(backend, "ScheduleConfig", "maxN");
}

const struct conf_names *inst_conf_names(void) {
    static const struct conf_alias aliases[] = {
        {"MIES_CONTAINER_IP", S "ipAddress"},
        {"MIES_CONTAINER_MANAGEMENT_IP", S "managementIpAddress"},
        {NULL, NULL}};
    static const struct conf_names names = {
        .env_prefix = "BATON_INSTANCE_",
        .keys = keys,
        .n_keys = N_KEYS,
        .aliases = aliases,
        .json_path = B "npuDeviceIds",
        .json_help = "cores of the instance, as [[0,1]]",
    };
    return &names;
}

static void normalise(struct json_value *root) {
    normalise_truncation(root);
    normalise_inter_comm(root);
}

static enum err fill(void *conf, struct json_value *root, struct errbuf *eb) {
    struct inst_conf *c = conf;
    const struct conf_tables tables = {keys, N_KEYS, checked, N_CHECKED, also_known};
    enum err e = conf_read(c, keys, N_KEYS, root, "", true, eb);
    if (e == ERR_OK) e = conf_check(&tables, root, eb);
    if (e == ERR_OK) e = read_devices(c, root, eb);
    if (e != ERR_OK) return e;
    if (c->max_n > c->max_batch && !has_max_n(root)) c->max_n = c->max_batch;
    if (!has_key(root, "ServerConfig", "managementPort")) c->management_port = c->port;
    if (!has_key(root, "ServerConfig", "managementIpAddress"))
        memcpy(c->management_ip, c->ip, sizeof(c->ip));
    if ((e = check_rules(c, eb)) != ERR_OK || (e = check_loras(c, eb)) != ERR_OK) return e;
    if (c->longest_timeouts) {
        c->token_timeout_s = TOKEN_TIMEOUT_S_MAX;
        c->e2e_timeout_s = E2E_TIMEOUT_S_MAX;
    }
    if (c->kv_trans_timeout_s <= 0) c->kv_trans_timeout_s = 1;
    if (c->kv_link_timeout_s <= 0) c->kv_link_timeout_s = 1080;
    conf_unknown(&tables, root, warn_unknown, NULL);
    return ERR_OK;
}

static struct conf_reading reading(void) {
    return (struct conf_reading){inst_conf_names(), normalise, fill};
}

enum err inst_conf_parse(struct inst_conf *c, const char *json, size_t n, const char *dir,
                         struct errbuf *eb) {
    const struct conf_reading how = reading();
    memset(c, 0, sizeof(*c));
    conf_defaults(c, keys, N_KEYS);
    snprintf(c->dir, sizeof(c->dir), "%s", dir);
    return conf_layers_parse(&how, c, json, n, eb);
}

enum err inst_conf_load(struct inst_conf *c, const char *path, struct conf_layers *l,
                        struct errbuf *eb) {
    const struct conf_reading how = reading();
    struct json_value *root = NULL;
    memset(c, 0, sizeof(*c));
    conf_defaults(c, keys, N_KEYS);
    enum err e = conf_folder_of(path, c->dir, sizeof(c->dir), eb);
    if (e != ERR_OK) return e;
    if (path != NULL)
        e = conf_read_file(&root, path, eb);
    else if ((root = json_new_obj()) == NULL)
        e = err_set(eb, ERR_NO_MEMORY, "out of memory");
    if (e == ERR_OK) e = conf_layers_read(l, &how, c, root, path, eb);
    json_put(root);
    return e;
}

const struct conf_key *inst_conf_keys(size_t *n) {
    *n = N_KEYS;
    return keys;
}

const struct conf_key *inst_conf_checked(size_t *n) {
    *n = N_CHECKED;
    return checked;
}

/* npuDeviceIds has no row, so it is put into the printed table by hand. */
void inst_conf_print(struct buf *out, const struct inst_conf *c) {
    struct json_value *root = NULL, *backend, *outer, *inner;
    struct buf b = BUF_INIT;
    conf_print(&b, c, keys, N_KEYS);
    if (c->n_cpus > 0 && !b.failed && json_read(&root, b.data, b.len, NULL, NULL) == ERR_OK &&
        json_get_obj(root, "BackendConfig", &backend) == JSON_OK) {
        outer = json_new_arr();
        inner = json_new_arr();
        for (int i = 0; i < c->n_cpus; i++) json_arr_add(inner, json_new_i64(c->cpus[i]));
        json_arr_add(outer, inner);
        json_obj_set(backend, "npuDeviceIds", outer);
        buf_puts(out, json_to_text(root, JSON_PRETTY, NULL));
        buf_putc(out, '\n');
    } else {
        buf_append(out, b.data, b.len);
    }
    json_put(root);
    buf_free(&b);
}
