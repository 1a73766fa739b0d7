/* Goal: every key of an instance's config.json keeps its bounds and says what is wrong; rules
 * between keys, defaults that follow other keys, and the environment hold; what --check-config
 * prints is a file with the same meaning. Method: the table against itself (conf_table.h), then
 * tables of files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "common/instance/inst_conf.h"
#include "proto/json.h"
#include "tests/unit/conf_flags.h"
#include "tests/unit/conf_ranges.h"

#define BASE                                                                                       \
    "{\"ServerConfig\":{\"httpsEnabled\":false},\"BackendConfig\":{\"ModelDeployConfig\":{"        \
    "\"ModelConfig\":[{\"modelName\":\"m\",\"modelWeightPath\":\"w\"}]}}}"

static void every_row(void **state) {
    struct conf_table t = {.struct_bytes = sizeof(struct inst_conf), .base = BASE};
    (void)state;
    t.keys = inst_conf_keys(&t.n);
    ct_rows(&t);
}

/* Every key of cluster-api 11.1. */
static void the_reference_s_ranges(void **state) {
    struct cr_tables t = {
        .settings = {.struct_bytes = sizeof(struct inst_conf), .base = BASE},
        .checked = {.struct_bytes = sizeof(struct conf_scratch), .base = "{}"},
        .chapters = "11.1",
    };
    (void)state;
    t.settings.keys = inst_conf_keys(&t.settings.n);
    t.checked.keys = inst_conf_checked(&t.checked.n);
    ct_rows(&t.checked);
    cr_tables(&t, 60);
}

/* Parses BASE with values (JSON text) set at paths; a list of pairs ending with NULL. */
static enum err parse_with(struct inst_conf *c, struct errbuf *eb, const char *const *pairs) {
    struct json_value *root = NULL;
    assert_int_equal(json_read(&root, BASE, strlen(BASE), NULL, NULL), ERR_OK);
    for (; pairs[0] != NULL; pairs += 2) ct_set(root, pairs[0], pairs[1]);
    const char *s = json_to_text(root, JSON_COMPACT, NULL);
    memset(eb, 0, sizeof(*eb));
    enum err e = inst_conf_parse(c, s, strlen(s), "/etc/baton", eb);
    json_put(root);
    return e;
}
#define PARSE(c, eb, ...) parse_with(c, eb, (const char *const[]){__VA_ARGS__, NULL})

#define DEPLOY   "BackendConfig.ModelDeployConfig."
#define MODEL    "BackendConfig.ModelDeployConfig.ModelConfig.0."
#define SCHEDULE "BackendConfig.ScheduleConfig."

static void defaults(void **state) {
    struct inst_conf c;
    struct errbuf eb;
    (void)state;
    assert_int_equal(PARSE(&c, &eb, "LogConfig.dynamicLogLevel", "\"\""), ERR_OK);
    assert_string_equal(c.ip, "127.0.0.1");
    assert_string_equal(c.management_ip, "127.0.0.1"); /* absent: as the business plane */
    assert_int_equal(c.port, 1025);
    assert_int_equal(c.management_port, 1025);
    assert_int_equal(c.metrics_port, 1027);
    assert_int_equal(c.link_num_max, 1000);
    assert_string_equal(c.infer_mode, "standard");
    assert_int_equal(c.request_mib_max, 40);
    assert_int_equal(c.max_seq_len, 2560);
    assert_int_equal(c.max_input_token_len, 2048);
    assert_int_equal(c.cache_block_size, 128);
    assert_int_equal(c.max_batch, 200);
    assert_int_equal(c.max_iter_times, 512);
    assert_int_equal(c.kv_link_timeout_s, 1080);
    assert_int_equal(c.kv_trans_timeout_s, 10);
    assert_int_equal(c.n_cpus, 0);
    assert_int_equal(c.max_n, 128);
    assert_string_equal(c.dir, "/etc/baton");
}

/* What one key says of another. text NULL: taken. */
static void rules(void **state) {
    static const struct {
        const char *pairs[9];
        const char *text;
    } rows[] = {
        {{"ServerConfig.httpsEnabled", "true"}, NULL},
        {{"ServerConfig.httpsEnabled", "true", "ServerConfig.ipAddress", "\"10.0.0.1\""}, NULL},
        {{"ServerConfig.httpsEnabled", "true", "ServerConfig.ipAddress", "\"0.0.0.0\""},
         "ServerConfig.ipAddress must not be 0.0.0.0 unless ServerConfig.allowAllZeroIpListening "
         "is true"},
        {{"ServerConfig.inferMode", "\"dmi\"", "ServerConfig.interCommTLSEnabled", "false",
          "ServerConfig.httpsEnabled", "true", "ServerConfig.ipAddress", "\"10.0.0.1\""},
         "ServerConfig.interCommTLSEnabled must be true while ipAddress is not a loopback address, "
         "got 10.0.0.1; BatonConfig.allowInsecure: true permits it"},
        {{"BatonConfig.registerUrl", "\"http://127.0.0.1:1026\""}, NULL},
        {{"BatonConfig.registerUrl", "\"http://127.0.0.1:1026 http://127.0.0.2:1026\""}, NULL},
        {{"BatonConfig.registerUrl", "\"http://127.0.0.1:1026 127.0.0.2:1026\""},
         "BatonConfig.registerUrl must be http://ADDRESS:PORT without a path while "
         "ServerConfig.httpsEnabled is false, got \"http://127.0.0.1:1026 127.0.0.2:1026\""},
        {{"BatonConfig.registerUrl", "\"http://127.0.0.1:1026/x\""},
         "BatonConfig.registerUrl must be http://ADDRESS:PORT without a path while "
         "ServerConfig.httpsEnabled is false, got \"http://127.0.0.1:1026/x\""},
        {{"BatonConfig.registerUrl", "\"https://127.0.0.1:1026\""},
         "BatonConfig.registerUrl must be http://ADDRESS:PORT without a path while "
         "ServerConfig.httpsEnabled is false, got \"https://127.0.0.1:1026\""},
        {{"BatonConfig.registerUrl", "\"http://127.0.0.1:1026\"", "ServerConfig.httpsEnabled",
          "true"},
         "BatonConfig.registerUrl must be https://ADDRESS:PORT without a path while "
         "ServerConfig.httpsEnabled is true, got \"http://127.0.0.1:1026\""},
        {{"BatonConfig.apiKeysFile", "\"keys\"", "BatonConfig.tlsMinVersion", "\"1.2\"",
          "BatonConfig.clientCertificates", "\"optional\""},
         NULL},
        {{"ServerConfig.inferMode", "\"dmi\"", "BatonConfig.apiKeysFile", "\"keys\""},
         "BatonConfig.apiKeysFile is for inferMode standard: the business plane of a dmi instance "
         "is the coordinator's alone, clients come to the coordinator's user plane"},
        {{"ServerConfig.inferMode", "\"dmi\"", "BatonConfig.tlsMinVersion", "\"1.2\""},
         "BatonConfig.tlsMinVersion is for inferMode standard: the business plane of a dmi "
         "instance "
         "is the coordinator's alone, clients come to the coordinator's user plane"},
        {{"ServerConfig.inferMode", "\"dmi\"", "BatonConfig.clientCertificates", "\"optional\""},
         "BatonConfig.clientCertificates is for inferMode standard: the business plane of a dmi "
         "instance is the coordinator's alone, clients come to the coordinator's user plane"},
        {{"ServerConfig.ipAddress", "\"0.0.0.0\""},
         "ServerConfig.ipAddress must not be 0.0.0.0 unless ServerConfig.allowAllZeroIpListening "
         "is "
         "true"},
        {{"ServerConfig.managementIpAddress", "\"::\""},
         "ServerConfig.managementIpAddress must not be :: unless "
         "ServerConfig.allowAllZeroIpListening is true"},
        {{"ServerConfig.ipAddress", "\"0.0.0.0\"", "ServerConfig.allowAllZeroIpListening", "true"},
         "ServerConfig.ipAddress must be a loopback address while httpsEnabled is false, got "
         "0.0.0.0; BatonConfig.allowInsecure: true permits it"},
        {{"ServerConfig.ipAddress", "\"0.0.0.0\"", "ServerConfig.allowAllZeroIpListening", "true",
          "BatonConfig.allowInsecure", "true"},
         NULL},
        {{"ServerConfig.inferMode", "\"dmi\""}, NULL},
        {{"ServerConfig.inferMode", "\"dmi\"", "ServerConfig.interCommTLSEnabled", "false"}, NULL},
        {{"BatonConfig.corsAllowOrigin", "\"http://localhost:* *\""}, NULL},
        {{"BatonConfig.corsAllowOrigin", "\"http://a/\""},
         "BatonConfig.corsAllowOrigin must be origins separated by blanks, each *, scheme://host, "
         "scheme://host:port or scheme://host:*, got \"http://a/\""},
        {{"BackendConfig.modelInstanceNumber", "2"},
         "BackendConfig.modelInstanceNumber must be 1, got 2"},
        {{"BackendConfig.multiNodesInferEnabled", "true"},
         "BackendConfig.multiNodesInferEnabled must be false, got true: an instance is one host"},
        {{SCHEDULE "maxPrefillBatchSize", "200"}, NULL},
        {{SCHEDULE "maxPrefillBatchSize", "201"},
         "BackendConfig.ScheduleConfig.maxPrefillBatchSize must be from 1 to maxBatchSize (200), "
         "got 201"},
        {{SCHEDULE "maxN", "200"}, NULL},
        {{SCHEDULE "maxN", "201"},
         "BackendConfig.ScheduleConfig.maxN must be from 1 to maxBatchSize (200), got 201"},
        {{"Version", "\"2.0.0\""}, "Version must be one of 1.0.0, got \"2.0.0\""},
        {{SCHEDULE "maxPreemptCount", "200"}, NULL},
        {{SCHEDULE "maxPreemptCount", "201"},
         "BackendConfig.ScheduleConfig.maxPreemptCount must be from 0 to maxBatchSize (200), got "
         "201"},
        {{MODEL "cpuMemSize", "0", SCHEDULE "maxPreemptCount", "1"},
         "BackendConfig.ModelDeployConfig.ModelConfig.0.cpuMemSize may be 0 only if "
         "maxPreemptCount "
         "is 0"},
        {{MODEL "cpuMemSize", "0"}, NULL},
        {{DEPLOY "maxInputTokenLen", "8192"}, NULL},
        {{DEPLOY "maxInputTokenLen", "8193"},
         "BackendConfig.ScheduleConfig.maxPrefillTokens must be at least maxInputTokenLen (8193), "
         "got 8192"},
        {{SCHEDULE "maxIterTimes", "2560"}, NULL},
        {{SCHEDULE "maxIterTimes", "2561"},
         "BackendConfig.ScheduleConfig.maxIterTimes must be from 1 to maxSeqLen (2560), got 2561"},
        {{MODEL "npuMemSize", "0"},
         "BackendConfig.ModelDeployConfig.ModelConfig.0.npuMemSize must be -1 or from 1 to "
         "2147483647, got 0"},
        {{MODEL "npuMemSize", "1"}, NULL},
        {{"LogConfig.dynamicLogLevel", "\"debug\""}, NULL},
        {{"LogConfig.dynamicLogLevel", "\"loud\""},
         "LogConfig.dynamicLogLevel must be debug, info, warn or error, got \"loud\""},
        {{"BackendConfig.npuDeviceIds", "[[0,4095]]"}, NULL},
        {{"BackendConfig.npuDeviceIds", "[0]"},
         "BackendConfig.npuDeviceIds must be an array holding one array of device ids"},
        {{"BackendConfig.npuDeviceIds", "[[0],[1]]"},
         "BackendConfig.npuDeviceIds must be an array holding one array of device ids"},
        {{"BackendConfig.npuDeviceIds", "[[0,4096]]"},
         "BackendConfig.npuDeviceIds[0][1] must be an integer from 0 to 4095"},
        {{"BackendConfig.npuDeviceIds", "[[-1]]"},
         "BackendConfig.npuDeviceIds[0][0] must be an integer from 0 to 4095"},
        {{"Unknown", "{\"deep\":1}"}, NULL}, /* a warning */
        {{"ServerConfig.tlsCaFile", "[\"a\"]"}, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct inst_conf c;
        struct errbuf eb;
        enum err e = parse_with(&c, &eb, rows[i].pairs);
        if (e != (rows[i].text == NULL ? ERR_OK : ERR_BAD_CONFIG) ||
            strcmp(eb.text, rows[i].text != NULL ? rows[i].text : "") != 0)
            fail_msg("row %zu: %s \"%s\"", i, err_name(e), eb.text);
    }
}

/* The reference's two spellings of the cluster plane's key; an absent block has its names. */
static void tls_blocks(void **state) {
    struct inst_conf c;
    struct errbuf eb;
    (void)state;
    assert_int_equal(PARSE(&c, &eb, "ServerConfig.interCommTlsPk", "\"k\"",
                           "ServerConfig.interCommPkPwd", "\"p\"", "ServerConfig.interCommTlsPkPwd",
                           "\"q\"", "ServerConfig.managementTlsCaFile", "[\"a\",\"b\"]"),
                     ERR_OK);
    assert_string_equal(c.tls[INST_PLANE_CLUSTER].pk, "k");
    assert_string_equal(c.tls[INST_PLANE_CLUSTER].pk_pwd, "p");
    assert_string_equal(c.tls[INST_PLANE_MANAGEMENT].ca_files[0], "a");
    assert_string_equal(c.tls[INST_PLANE_MANAGEMENT].ca_files[1], "b");
    assert_string_equal(c.tls[INST_PLANE_MANAGEMENT].ca_files[2], "");
    assert_string_equal(c.tls[INST_PLANE_BUSINESS].ca_files[0], "ca.pem");
    assert_string_equal(c.tls[INST_PLANE_BUSINESS].cert, "security/certs/server.pem");
    assert_string_equal(c.tls[INST_PLANE_METRICS].pk, "security/metrics/keys/server.key.pem");
    assert_string_equal(c.tls[INST_PLANE_METRICS].crl_files[0], "");
}

static void missing_keys(void **state) {
    struct inst_conf c;
    struct errbuf eb;
    (void)state;
    static const char json[] =
        "{\"BackendConfig\":{\"ModelDeployConfig\":{\"ModelConfig\":[{\"modelName\":\"m\"}]}}}";
    assert_int_equal(inst_conf_parse(&c, json, strlen(json), ".", &eb), ERR_BAD_CONFIG);
    assert_string_equal(eb.text,
                        "BackendConfig.ModelDeployConfig.ModelConfig.0.modelWeightPath is missing: "
                        "the model's folder, relative to this file");
    assert_int_equal(inst_conf_parse(&c, "[]", 2, ".", &eb), ERR_BAD_CONFIG);
    assert_int_equal(inst_conf_parse(&c, "null", 4, ".", &eb), ERR_BAD_CONFIG);
    assert_int_equal(inst_conf_parse(&c, "{", 1, ".", &eb), ERR_BAD_JSON);
}

static void values_that_follow(void **state) {
    struct inst_conf c;
    struct errbuf eb;
    static const struct {
        const char *value;
        int want;
    } truncations[] = {{"true", -1}, {"false", 0}, {"-1", -1}, {"1", 1}, {"0", 0}};
    (void)state;
    assert_int_equal(
        PARSE(&c, &eb, "ServerConfig.ipAddress", "\"127.0.0.7\"", "ServerConfig.port", "2000"),
        ERR_OK);
    assert_string_equal(c.management_ip, "127.0.0.7");
    assert_int_equal(c.management_port, 2000);
    assert_int_equal(PARSE(&c, &eb, "ServerConfig.managementIpAddress", "\"127.0.0.2\"",
                           "ServerConfig.managementPort", "1026"),
                     ERR_OK);
    assert_string_equal(c.management_ip, "127.0.0.2");
    assert_int_equal(c.management_port, 1026);
    for (size_t i = 0; i < sizeof(truncations) / sizeof(truncations[0]); i++) {
        assert_int_equal(PARSE(&c, &eb, DEPLOY "truncation", truncations[i].value), ERR_OK);
        assert_int_equal(c.truncation, truncations[i].want);
    }
    assert_int_equal(PARSE(&c, &eb, DEPLOY "truncation", "\"left\""), ERR_BAD_CONFIG);
    assert_int_equal(PARSE(&c, &eb, MODEL "kv_trans_timeout", "0", MODEL "kv_link_timeout", "-5"),
                     ERR_OK);
    assert_int_equal(c.kv_trans_timeout_s, 1);
    assert_int_equal(c.kv_link_timeout_s, 1080);
    assert_int_equal(PARSE(&c, &eb, "EnableDynamicAdjustTimeoutConfig", "true"), ERR_OK);
    assert_int_equal(c.token_timeout_s, 3600);
    assert_int_equal(c.e2e_timeout_s, 65535);
    assert_int_equal(PARSE(&c, &eb, "BackendConfig.npuDeviceIds", "[[3,1,2]]"), ERR_OK);
    assert_int_equal(c.n_cpus, 3);
    assert_true(c.cpus[0] == 3 && c.cpus[1] == 1 && c.cpus[2] == 2);
}

/* Devices become cores in the order of the ids; every list is checked before anything starts. */
static void devices_are_core_sets(void **state) {
    static const char *const wrong[] = {
        "[\"0=0-3\"]",       "[\"0=\",\"7=4\"]",    "[\"0\",\"7=4\"]",     "[\"0=3-1\",\"7=4\"]",
        "[\"x=1\",\"7=4\"]", "[\"0=1-4\",\"7=4\"]", "[\"0=1,1\",\"7=4\"]", "[\"0=4096\",\"7=4\"]"};
    struct inst_conf c;
    struct errbuf eb;
    int cores[CONF_CPUS_MAX];
    (void)state;
    assert_int_equal(PARSE(&c, &eb, "BackendConfig.npuDeviceIds", "[[7,0]]"), ERR_OK);
    assert_int_equal(inst_conf_cores(&c, cores, &eb), 2);
    assert_true(cores[0] == 7 && cores[1] == 0);
    assert_int_equal(PARSE(&c, &eb, "BackendConfig.npuDeviceIds", "[[7,0]]",
                           "BatonConfig.deviceCores", "[\"0=0-2,9\",\"7=4\",\"3=100\"]"),
                     ERR_OK);
    assert_int_equal(inst_conf_cores(&c, cores, &eb), 5);
    assert_true(cores[0] == 4 && cores[1] == 0 && cores[3] == 2 && cores[4] == 9);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (PARSE(&c, &eb, "BackendConfig.npuDeviceIds", "[[7,0]]", "BatonConfig.deviceCores",
                  wrong[i]) != ERR_BAD_CONFIG)
            fail_msg("%s was taken", wrong[i]);
}

static void environment(void **state) {
    struct inst_conf c;
    struct errbuf eb;
    (void)state;
    setenv("MIES_CONTAINER_IP", "127.0.0.5", 1);
    assert_int_equal(PARSE(&c, &eb, "ServerConfig.ipAddress", "\"127.0.0.9\""), ERR_OK);
    assert_string_equal(c.ip, "127.0.0.5");
    assert_string_equal(c.management_ip, "127.0.0.5"); /* it follows the address in effect */
    setenv("MIES_CONTAINER_MANAGEMENT_IP", "::1", 1);
    assert_int_equal(PARSE(&c, &eb, "ServerConfig.managementIpAddress", "\"127.0.0.9\""), ERR_OK);
    assert_string_equal(c.management_ip, "::1");
    setenv("MIES_CONTAINER_IP", "10.0.0.1", 1); /* the same rules as in the file */
    assert_int_equal(PARSE(&c, &eb, "ServerConfig.port", "1025"), ERR_BAD_CONFIG);
    setenv("MIES_CONTAINER_IP", "host", 1);
    assert_int_equal(PARSE(&c, &eb, "ServerConfig.port", "1025"), ERR_BAD_CONFIG);
    assert_string_equal(eb.text, "environment MIES_CONTAINER_IP: ServerConfig.ipAddress must be an "
                                 "IPv4 or IPv6 address, got "
                                 "\"host\"");
    setenv("MIES_CONTAINER_IP", "", 1); /* as if it were not there */
    unsetenv("MIES_CONTAINER_MANAGEMENT_IP");
    assert_int_equal(PARSE(&c, &eb, "ServerConfig.port", "1025"), ERR_OK);
    assert_string_equal(c.ip, "127.0.0.1");
    unsetenv("MIES_CONTAINER_IP");
}

static void printed_form(void **state) {
    struct inst_conf c, again;
    struct errbuf eb;
    struct buf one = BUF_INIT, two = BUF_INIT;
    (void)state;
    for (int own = 0; own < 2; own++) {
        assert_int_equal(own ? PARSE(&c, &eb, "ServerConfig.port", "\"2001\"",
                                     "BackendConfig.npuDeviceIds", "[[5,6]]", DEPLOY "truncation",
                                     "true", "EnableDynamicAdjustTimeoutConfig", "true",
                                     "BatonConfig.weightDtype", "\"f32\"")
                             : PARSE(&c, &eb, "ServerConfig.port", "1025"),
                         ERR_OK);
        inst_conf_print(&one, &c);
        assert_int_equal(inst_conf_parse(&again, one.data, one.len, c.dir, &eb), ERR_OK);
        inst_conf_print(&two, &again);
        assert_string_equal(one.data, two.data);
        assert_memory_equal(&c, &again, sizeof(c));
        assert_int_equal(again.n_cpus, own ? 2 : 0);
        buf_free(&one);
        buf_free(&two);
    }
}

static enum err load(struct inst_conf *c, const char *path, struct errbuf *eb) {
    struct conf_layers *l = NULL;
    assert_int_equal(conf_layers_create(&l, inst_conf_names()), ERR_OK);
    const enum err e = inst_conf_load(c, path, l, eb);
    conf_layers_free(&l);
    return e;
}

static void every_key_is_a_flag(void **state) {
    (void)state;
    cf_every_key(inst_conf_names());
}

static void files(void **state) {
    char path[] = "/tmp/baton-inst-XXXXXX", want[256];
    struct inst_conf c;
    struct errbuf eb = {0};
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, BASE, strlen(BASE)) == (ssize_t)strlen(BASE));
    assert_int_equal(load(&c, path, &eb), ERR_OK);
    assert_string_equal(c.dir, "/tmp");
    assert_string_equal(c.model_weight_path, "w");
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, "{}", 2, 0), 2);
    assert_int_equal(load(&c, path, &eb), ERR_BAD_CONFIG);
    snprintf(want, sizeof(want),
             "%s: BackendConfig.ModelDeployConfig.ModelConfig.0.modelName is missing: the name "
             "clients use",
             path);
    assert_string_equal(eb.text, want);
    close(fd);
    unlink(path);
    assert_int_equal(load(&c, path, &eb), ERR_NOT_FOUND);
    assert_non_null(strstr(eb.text, path));
}

/* loraModules: names and folders as the management plane takes them, at most maxLoras. */
static void adapters(void **state) {
    struct inst_conf c;
    struct errbuf eb;
    char long_name[300], text[400];
    (void)state;
    assert_int_equal(PARSE(&c, &eb, "BatonConfig.loraModules", "[\"a=x/y.z\",\"b_-9=/q\"]"),
                     ERR_OK);
    assert_string_equal(c.lora_modules[0], "a=x/y.z");
    assert_string_equal(c.lora_modules[1], "b_-9=/q");
    static const char *const bad[] = {"[\"a\"]",         "[\"=x\"]",    "[\"a=\"]",
                                      "[\"a b=x\"]",     "[\"a=x y\"]", "[\"a=../x\"]",
                                      "[\"a=x\",\"b\"]", "[\"a/b=x\"]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(PARSE(&c, &eb, "BatonConfig.loraModules", bad[i]), ERR_BAD_CONFIG);
        assert_non_null(strstr(eb.text, "BatonConfig.loraModules must hold \"name=path\""));
    }
    for (int n = 256; n <= 257; n++) {
        memset(long_name, 'n', sizeof(long_name));
        snprintf(text, sizeof(text), "[\"%.*s=x\"]", n, long_name);
        assert_int_equal(PARSE(&c, &eb, "BatonConfig.loraModules", text),
                         n <= 256 ? ERR_OK : ERR_BAD_CONFIG);
    }
    assert_int_equal(
        PARSE(&c, &eb, "BatonConfig.loraModules", "[\"a=x\",\"b=y\"]", "BatonConfig.maxLoras", "2"),
        ERR_OK);
    assert_int_equal(
        PARSE(&c, &eb, "BatonConfig.loraModules", "[\"a=x\",\"b=y\"]", "BatonConfig.maxLoras", "1"),
        ERR_BAD_CONFIG);
    assert_non_null(strstr(eb.text, "at most maxLoras (1), got 2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),
        cmocka_unit_test(the_reference_s_ranges),
        cmocka_unit_test(defaults),
        cmocka_unit_test(rules),
        cmocka_unit_test(tls_blocks),
        cmocka_unit_test(missing_keys),
        cmocka_unit_test(values_that_follow),
        cmocka_unit_test(devices_are_core_sets),
        cmocka_unit_test(environment),
        cmocka_unit_test(printed_form),
        cmocka_unit_test(every_key_is_a_flag),
        cmocka_unit_test(files),
        cmocka_unit_test(adapters),
    };
    log_init(LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
