/* coord_conf_checked: keys of the reference's two files that have no use here. They are held to the
 * reference's ranges (cluster-api 11.2, 11.3) all the same, so that a file that it would refuse is
 * refused here, and then forgotten. */
#include "common/base/conf.h"
#include "coordinator/coord_conf.h"

#define O "coordinator."
#define R "controller."

static const struct conf_key checked[] = {
    CHECKED_I(O "http_config.server_thread_num", 1, 10000, "10"),
    CHECKED_I(O "http_config.client_thread_num", 1, 10000, "10"),
    CHECKED_B(O "metrics_config.enable", "false"),
    CHECKED_I(O "metrics_config.trigger_size", 1, 10000, "100"),
    CHECKED_I(O "digs_scheduler_config.max_res_num", 1, 10000, "5000"),
    CHECKED_B(O "log_info.to_file", "true"),
    CHECKED_B(O "log_info.to_stdout", "false"),
    CHECKED_S(O "log_info.run_log_path", ""),
    CHECKED_S(O "log_info.operation_log_path", ""),
    CHECKED_I(O "log_info.max_log_str_size", 128, 65535, "4096"),
    CHECKED_I(O "log_info.max_log_file_size", 1, 500, "20"),
    CHECKED_I(O "log_info.max_log_file_num", 1, 64, "10"),
    CHECKED_B(R "allow_all_zero_ip_listening", "false"),
    CHECKED_W(R "deploy_mode",
              "pd_separate|pd_disaggregation|pd_disaggregation_single_container|single_node",
              "pd_separate"),
    CHECKED_I(R "initial_dist_server_port", 1024, 65535, "10000"),
    CHECKED_I(R "cluster_port", 0, 65535, "8899"),
    CHECKED_B(R "controller_backup_cfg.function_sw", "false"),
    CHECKED_S(R "controller_backup_cfg.database_server_dns", "etcd.default.svc.cluster.local"),
    CHECKED_I(R "controller_backup_cfg.database_server_port", 0, 65535, "2379"),
    CHECKED_B(R "fault_recovery_func_dict.lingqu_link", "false"),
    CHECKED_B(R "fault_recovery_func_dict.oom", "false"),
    CHECKED_B(R "fault_recovery_func_dict.hbm", "false"),
    CHECKED_B(R "fault_recovery_func_dict.roce", "false"),
    CHECKED_B(R "is_heterogeneous", "false"),
    CHECKED_I(R "init_role_attempt_times", 1, 65535, "2"),
    CHECKED_I(R "check_role_attempt_times", 1, 65535, "300"),
    CHECKED_I(R "check_role_wait_seconds", 1, 65535, "5"),
    CHECKED_I(R "controller_alarm_port", 1024, 65535, "1027"),
    CHECKED_I(R "node_manager_port", 1024, 65535, "1028"),
    CHECKED_I(R "mindie_ms_coordinator_port", 1024, 65535, "1026"),
    CHECKED_I(R "mindie_ms_coordinator_external_port", 1024, 65535, "1028"),
    CHECKED_W(R "role_decision_methods", "digs", "digs"),
    CHECKED_I(R "digs_pp", 1, 65535, "1"),
    CHECKED_S(R "model_type", "llama2-70B"),
    CHECKED_W(R "transfer_type", "D2DTransfer", "D2DTransfer"),
    CHECKED_B(R "multi_node_infer_config.multi_node_infer_enable", "false"),
    CHECKED_B(R "multi_node_infer_config.p_node_config.enable_dist_dp_server", "false"),
    CHECKED_I(R "multi_node_infer_config.p_node_config.node_machine_num", 1, 768, "2"),
    CHECKED_I(R "multi_node_infer_config.p_node_config.tp_size", 1, 16, "4"),
    CHECKED_I(R "multi_node_infer_config.p_node_config.dp_size", 1, 512, "4"),
    CHECKED_I(R "multi_node_infer_config.p_node_config.sp_size", 1, 16, "1"),
    CHECKED_I(R "multi_node_infer_config.p_node_config.cp_size", 1, 2147483647, "1"),
    CHECKED_B(R "multi_node_infer_config.d_node_config.enable_dist_dp_server", "false"),
    CHECKED_I(R "multi_node_infer_config.d_node_config.node_machine_num", 1, 768, "2"),
    CHECKED_I(R "multi_node_infer_config.d_node_config.tp_size", 1, 16, "4"),
    CHECKED_I(R "multi_node_infer_config.d_node_config.dp_size", 1, 512, "4"),
    CHECKED_I(R "multi_node_infer_config.d_node_config.sp_size", 1, 16, "1"),
    CHECKED_I(R "multi_node_infer_config.d_node_config.cp_size", 1, 2147483647, "1"),
    CHECKED_IP(R "http_server.ip", "127.0.0.1"),
    CHECKED_I(R "http_server.port", 0, 65535, "1026"),
    CHECKED_S(R "ccae.ip", ""),
    CHECKED_I(R "ccae.port", 0, 65535, "0"),
    CHECKED_I(R "ccae.kafka_port", 0, 65535, "26329"),
    CHECKED_W(R "log_info.log_level", "CRITICAL|ERROR|WARN|INFO|DEBUG", "INFO"),
    CHECKED_B(R "log_info.to_file", "true"),
    CHECKED_B(R "log_info.to_stdout", "false"),
    CHECKED_S(R "log_info.run_log_path", ""),
    CHECKED_S(R "log_info.operation_log_path", ""),
    CHECKED_I(R "log_info.max_log_str_size", 128, 65535, "4096"),
    CHECKED_I(R "log_info.max_log_file_size", 1, 500, "20"),
    CHECKED_I(R "log_info.max_log_file_num", 1, 64, "10"),
};

const struct conf_key *coord_conf_checked(size_t *n) {
    *n = sizeof(checked) / sizeof(checked[0]);
    return checked;
}
