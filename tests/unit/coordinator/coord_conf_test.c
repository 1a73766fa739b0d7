/* Goal: every key of the coordinator's configuration keeps its bounds and says what is wrong; the
 * rules between keys hold; the reference's two files merge; what --check-config prints is a file
 * with the same meaning. Method: the table against itself (conf_table.h), then tables of files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "coordinator/coord_conf.h"
#include "common/base/conf.h"
#include "tests/unit/conf_flags.h"
#include "tests/unit/conf_ranges.h"

#define SINGLE_NODE(scheduler, algorithm)                                                          \
    "{\"coordinator\":{\"digs_scheduler_config\":{\"deploy_mode\":\"single_node\","                \
    "\"scheduler_type\":\"" scheduler "\",\"algorithm_type\":\"" algorithm "\"}}}"

static void every_row(void **state) {
    struct conf_table t = {.struct_bytes = sizeof(struct coord_conf), .base = "{}"};
    (void)state;
    t.keys = coord_conf_keys(&t.n);
    ct_rows(&t);
}

/* Every key of cluster-api 11.2 and 11.3. */
static void the_reference_s_ranges(void **state) {
    struct cr_tables t = {
        .settings = {.struct_bytes = sizeof(struct coord_conf), .base = "{}"},
        .checked = {.struct_bytes = sizeof(struct conf_scratch), .base = "{}"},
        .chapters = "11.2 11.3",
    };
    (void)state;
    t.settings.keys = coord_conf_keys(&t.settings.n);
    t.checked.keys = coord_conf_checked(&t.checked.n);
    ct_rows(&t.checked);
    cr_tables(&t, 120);
}

static enum err parse(struct coord_conf *c, const char *json, struct errbuf *eb) {
    memset(eb, 0, sizeof(*eb));
    return coord_conf_parse(c, json, strlen(json), "/etc/baton", eb);
}

static void defaults(void **state) {
    struct coord_conf c;
    struct errbuf eb;
    (void)state;
    assert_int_equal(parse(&c, "{}", &eb), ERR_OK);
    assert_string_equal(c.predict_ip, "127.0.0.1");
    assert_int_equal(c.predict_port, 1025);
    assert_int_equal(c.manage_port, 1026);
    assert_int_equal(c.external_port, 1028);
    assert_int_equal(c.status_port, 1029);
    assert_int_equal(c.requests_max, 10000);
    assert_int_equal(c.retries_max, 5);
    assert_int_equal(c.schedule_timeout_s, 580); /* 20 s below the nearest other bound */
    assert_int_equal(c.first_token_timeout_s, 600);
    assert_string_equal(c.algorithm_type, "load_balance");
    assert_string_equal(c.server_name, "MindIE-MS");
    assert_string_equal(c.dir, "/etc/baton");
    static const double k[9] = {0, 0.22, 1024, 24, 6, 0, 1, 0, 1};
    assert_memory_equal(c.coefficients, k, sizeof(k));
}

static void rules(void **state) {
    static const struct {
        const char *json, *text; /* text NULL: taken */
    } rows[] = {
        {"{\"coordinator\":{\"http_config\":{\"predict_ip\":\"0.0.0.0\"}}}",
         "coordinator.http_config.predict_ip must not be 0.0.0.0 unless "
         "coordinator.allow_all_zero_ip_listening is true"},
        {"{\"coordinator\":{\"http_config\":{\"manage_ip\":\"::\"},\"allow_all_zero_ip_listening\":"
         "true}}",
         "coordinator.http_config.manage_ip must be a loopback address while TLS is off, got ::; "
         "pd.allow_insecure: true permits it"},
        {"{\"coordinator\":{\"http_config\":{\"predict_ip\":\"10.0.0.1\"}},\"pd\":{\"allow_"
         "insecure\":true}}",
         NULL},
        {"{\"coordinator\":{\"tls_config\":{\"request_server_tls_enable\":true}}}", NULL},
        {"{\"coordinator\":{\"tls_config\":{\"alarm_client_tls_enable\":true}}}", NULL},
        {"{\"pd\":{\"alarm_url\":\"http://127.0.0.1:9999/a\"}}", NULL},
        {"{\"pd\":{\"alarm_url\":\"http://[::1]:9999/a\"}}", NULL},
        {"{\"pd\":{\"alarm_url\":\"http://localhost/a\"}}", NULL},
        {"{\"pd\":{\"alarm_url\":\"http://10.0.0.9:1/a\",\"allow_insecure\":true}}", NULL},
        {"{\"coordinator\":{\"tls_config\":{\"alarm_client_tls_enable\":true}},"
         "\"pd\":{\"alarm_url\":\"https://10.0.0.9:1/a\"}}",
         NULL},
        {"{\"pd\":{\"alarm_url\":\"http://10.0.0.9:1/a\"}}",
         "pd.alarm_url must have a loopback address while TLS is off, got "
         "\"http://10.0.0.9:1/a\"; pd.allow_insecure: true permits it"},
        {"{\"controller\":{\"tls_config\":{\"a_tls_enable\":true}}}",
         "controller.tls_config.a_tls_enable must be false, got true: there is no such plane here"},
        {"{\"coordinator\":{\"http_config\":{\"predict_ip\":\"10.0.0.1\"},\"tls_config\":{"
         "\"request_server_tls_enable\":true}}}",
         NULL},
        {"{\"coordinator\":{\"http_config\":{\"manage_ip\":\"10.0.0.1\"},\"tls_config\":{"
         "\"controller_server_tls_enable\":true,\"status_tls_enable\":true}}}",
         "coordinator.http_config.manage_ip must be a loopback address while TLS is off, got "
         "10.0.0.1; pd.allow_insecure: true permits it"},
        {"{\"coordinator\":{\"http_config\":{\"manage_ip\":\"10.0.0.1\"},\"tls_config\":{"
         "\"controller_server_tls_enable\":true,\"status_tls_enable\":true,"
         "\"external_tls_enable\":true}}}",
         NULL},
        {"{\"coordinator\":{\"http_config\":{\"status_port\":1026},\"tls_config\":{"
         "\"controller_server_tls_enable\":true}}}",
         "coordinator.tls_config.status_tls_enable must be the same as "
         "coordinator.tls_config.controller_server_tls_enable: both planes are on port 1026"},
        {"{\"coordinator\":{\"tls_config\":{\"a_tls_enable\":false,\"a_tls_items\":{}}}}", NULL},
        {"{\"controller\":{\"default_p_rate\":1}}",
         "controller.default_p_rate and controller.default_d_rate must be both 0 or both above 0 "
         "with a sum of at most 16, got 1 and 0"},
        {"{\"controller\":{\"default_p_rate\":8,\"default_d_rate\":8}}", NULL},
        {"{\"controller\":{\"default_p_rate\":8,\"default_d_rate\":9}}",
         "controller.default_p_rate and controller.default_d_rate must be both 0 or both above 0 "
         "with a sum of at most 16, got 8 and 9"},
        {"{\"coordinator\":{\"digs_scheduler_config\":{\"algorithm_type\":\"round_robin\"}}}",
         "coordinator.digs_scheduler_config.algorithm_type must be load_balance with "
         "digs_scheduler, got \"round_robin\""},
        {"{\"coordinator\":{\"digs_scheduler_config\":{\"scheduler_type\":\"default_scheduler\"}}}",
         "coordinator.digs_scheduler_config.algorithm_type must be round_robin with "
         "default_scheduler, got \"load_balance\""},
        {"{\"coordinator\":{\"digs_scheduler_config\":{\"scheduler_type\":\"default_scheduler\","
         "\"algorithm_type\":\"round_robin\"}}}",
         NULL},
        {"{\"coordinator\":{\"digs_scheduler_config\":{\"scheduler_type\":\"default_scheduler\","
         "\"algorithm_type\":\"cache_affinity\"}}}",
         "coordinator.digs_scheduler_config.algorithm_type must be round_robin or load_balance "
         "with "
         "deploy_mode \"pd_separate\", got \"cache_affinity\", which is for single_node"},
        {SINGLE_NODE("default_scheduler", "cache_affinity"), NULL},
        {SINGLE_NODE("default_scheduler", "round_robin"), NULL},
        {SINGLE_NODE("digs_scheduler", "load_balance"), NULL},
        {SINGLE_NODE("digs_scheduler", "cache_affinity"),
         "coordinator.digs_scheduler_config.algorithm_type must be load_balance with "
         "digs_scheduler, got \"cache_affinity\""},
        {SINGLE_NODE("default_scheduler", "load_balance"),
         "coordinator.digs_scheduler_config.algorithm_type must be round_robin or cache_affinity "
         "with default_scheduler, got \"load_balance\""},
        {"{\"controller\":{\"deploy_mode\":\"single_node\"}}",
         "controller.deploy_mode must be that of coordinator.digs_scheduler_config.deploy_mode "
         "where one of them is single_node, got \"single_node\" and \"pd_separate\""},
        {"{\"controller\":{\"deploy_mode\":\"pd_disaggregation\"}}", NULL},
        {"{\"controller\":{\"deploy_mode\":\"pd_separate\"},\"coordinator\":{"
         "\"digs_scheduler_config\":{\"deploy_mode\":\"single_node\"}}}",
         "controller.deploy_mode must be that of coordinator.digs_scheduler_config.deploy_mode "
         "where one of them is single_node, got \"pd_separate\" and \"single_node\""},
        {"{\"coordinator\":{\"corsAllowOrigin\":\"http://localhost:* https://a.example\"}}", NULL},
        {"{\"controller\":{\"digs_periodic_role_decision\":{\"role_decision_time_period\":100}}}",
         "controller.digs_periodic_role_decision.role_decision_time_period must be an integer from "
         "3600 to 1296000, got 100"},
        {"{\"coordinator\":{\"corsAllowOrigin\":\"a.example\"}}",
         "coordinator.corsAllowOrigin must be origins separated by blanks, each *, scheme://host, "
         "scheme://host:port or scheme://host:*, got \"a.example\""},
        {"[]", "the configuration must be a JSON object"},
        {"{\"no\":{\"such\":1},\"coordinator\":{\"neither\":2}}", NULL}, /* warnings only */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct coord_conf c;
        struct errbuf eb;
        enum err e = parse(&c, rows[i].json, &eb);
        if (e != (rows[i].text == NULL ? ERR_OK : ERR_BAD_CONFIG) ||
            strcmp(eb.text, rows[i].text != NULL ? rows[i].text : "") != 0)
            fail_msg("row %zu: %s \"%s\"", i, err_name(e), eb.text);
    }
    struct coord_conf c;
    struct errbuf eb;
    assert_int_equal(parse(&c, "{", &eb), ERR_BAD_JSON);
}

/* An address, a port and a path; the error names field, value and range. */
static void alarm_urls(void **state) {
    static const struct {
        const char *url; /* in JSON */
        bool good;
    } rows[] = {
        {"http://127.0.0.1", true},
        {"http://127.0.0.1/", true},
        {"http://127.0.0.1:1", true},
        {"http://127.0.0.1:65535/a?b=c:d", true},
        {"http://[::1]", true},
        {"http://[::1]/a", true},
        {"http://localhost:80/", true},
        {"https://127.0.0.1/a", false}, /* TLS is off */
        {"http://sink.example/a", false},
        {"http://", false},
        {"http:///a", false},
        {"http://127.0.0.1:0/a", false},
        {"http://127.0.0.1:65536/a", false},
        {"http://127.0.0.1:4294967297/a", false},
        {"http://127.0.0.1:/a", false},
        {"http://127.0.0.1:-1/a", false},
        {"http://127.0.0.1:80x/a", false},
        {"http://127.0.0.1:80?a", false},
        {"http://127.0.0.1?a", false},
        {"http://[::1", false},
        {"http://[::1/a", false},
        {"http://[::1]x/a", false},
        {"http://[::1]:/a", false},
        {"http://[127.0.0.1]/a", false},
        {"http://u@127.0.0.1/a", false},
        {"http://127.0.0.1/a#b", false},
        {"http://127.0.0.1/a b", false},
        {"http://127.0.0.1/a\\r\\nX: y", false},
        {"http://127.0.0.1/a\\u0001", false},
        {"http://127.0.0.1/a\x7F", false},
    };
    struct coord_conf c;
    struct errbuf eb;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char json[256];
        snprintf(json, sizeof(json), "{\"pd\":{\"alarm_url\":\"%s\"}}", rows[i].url);
        if ((parse(&c, json, &eb) == ERR_OK) != rows[i].good)
            fail_msg("\"%s\": %s", rows[i].url, eb.text);
    }
    assert_int_equal(parse(&c, "{\"pd\":{\"alarm_url\":\"http://127.0.0.1:0/a\"}}", &eb),
                     ERR_BAD_CONFIG);
    assert_string_equal(eb.text,
                        "pd.alarm_url must be http://ADDRESS:PORT/PATH without blanks and control "
                        "characters, PORT from 1 to 65535, while "
                        "coordinator.tls_config.alarm_client_tls_enable is false, got "
                        "\"http://127.0.0.1:0/a\"");
}

/* TLS to nobody opens no files. */
static void alarm_client_tls(void **state) {
    static const char tls[] = "\"coordinator\":{\"tls_config\":{\"alarm_client_tls_enable\":true}}";
    struct coord_conf c;
    struct errbuf eb;
    char json[256];
    (void)state;
    snprintf(json, sizeof(json), "{%s}", tls);
    assert_int_equal(parse(&c, json, &eb), ERR_OK);
    assert_false(c.tls[BLOCK_ALARM_CLIENT].enable);
    snprintf(json, sizeof(json), "{%s,\"pd\":{\"alarm_url\":\"https://10.0.0.9:1/a\"}}", tls);
    assert_int_equal(parse(&c, json, &eb), ERR_OK);
    assert_true(c.tls[BLOCK_ALARM_CLIENT].enable);
}

static void coefficients(void **state) {
    static const struct {
        const char *text;
        bool good;
    } rows[] = {{"1,2,3,4,5,6,7,8,9", true},      {" 1 , 2,3,4,5,6,7,8,9 ", true},
                {"1,2,3,4,5,6,7,8", false},       {"1,2,3,4,5,6,7,8,9,10", false},
                {"1,2,3,4,x,6,7,8,9", false},     {"", false},
                {"1,2,3,4,5,6,7,8,nan", false},   {"inf,2,3,4,5,6,7,8,9", false},
                {"1e999,2,3,4,5,6,7,8,9", false}, {"1 2 3 4 5 6 7 8 9", false},
                {"-1,2.5,3,4,5,6,7,8,9", true}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct coord_conf c;
        struct errbuf eb;
        char json[256];
        snprintf(json, sizeof(json),
                 "{\"coordinator\":{\"digs_scheduler_config\":{\"load_cost_coefficient\":\"%s\"}}}",
                 rows[i].text);
        if ((parse(&c, json, &eb) == ERR_OK) != rows[i].good)
            fail_msg("\"%s\": %s", rows[i].text, eb.text);
        if (!rows[i].good) assert_non_null(strstr(eb.text, "nine numbers separated by commas"));
    }
}

static void schedule_timeout(void **state) {
    static const struct {
        int schedule, first, infer, want;
    } rows[] = {{600, 600, 600, 580}, {580, 600, 600, 580}, {581, 600, 600, 580},
                {10, 600, 600, 10},   {0, 600, 600, 0},     {600, 0, 0, 600},
                {600, 0, 100, 80},    {600, 50, 100, 30},   {600, 20, 0, 600},
                {600, 21, 0, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct coord_conf c;
        struct errbuf eb;
        char json[256];
        snprintf(json, sizeof(json),
                 "{\"coordinator\":{\"exception_config\":{\"schedule_timeout\":%d,\"first_token_"
                 "timeout\":%d,\"infer_timeout\":%d}}}",
                 rows[i].schedule, rows[i].first, rows[i].infer);
        assert_int_equal(parse(&c, json, &eb), ERR_OK);
        assert_int_equal(c.schedule_timeout_s, rows[i].want);
    }
}

static void longest_timeouts(void **state) {
    struct coord_conf c;
    struct errbuf eb;
    (void)state;
    assert_int_equal(
        parse(&c, "{\"coordinator\":{\"EnableDynamicAdjustTimeoutConfig\":true}}", &eb), ERR_OK);
    assert_int_equal(c.schedule_timeout_s, 3580);
    assert_int_equal(c.first_token_timeout_s, 3600);
    assert_int_equal(c.infer_timeout_s, 65535);
    assert_int_equal(c.tokenizer_timeout_s, 3600);
    assert_int_equal(c.vectors_timeout_s, 3600);
}

static void environment(void **state) {
    struct coord_conf c;
    struct errbuf eb;
    (void)state;
    setenv("MINDIE_MS_COORDINATOR_CONFIG_SINGLE_NODE_MAX_REQ", "17", 1);
    setenv("MINDIE_MS_COORDINATOR_CONFIG_MAX_REQ", "18", 1);
    setenv("MINDIE_LOG_LEVEL", "DEBUG", 1);
    setenv("POD_IP", "127.0.0.9", 1);
    setenv("GLOBAL_RANK_TABLE_FILE_PATH", "/x/t.json", 1);
    setenv("MINDIE_MS_P_RATE", "3", 1);
    setenv("MINDIE_MS_D_RATE", "2", 1);
    assert_int_equal(parse(&c, "{\"coordinator\":{\"request_limit\":{\"max_requests\":5}}}", &eb),
                     ERR_OK);
    assert_int_equal(c.single_node_requests_max, 17);
    assert_int_equal(c.requests_max, 18);
    assert_string_equal(c.log_level, "DEBUG");
    assert_string_equal(c.predict_ip, "127.0.0.9");
    assert_string_equal(c.manage_ip, "127.0.0.9");
    assert_string_equal(c.rank_table_path, "/x/t.json");
    assert_int_equal(c.p_rate, 3);
    assert_int_equal(c.d_rate, 2);
    setenv("MINDIE_MS_COORDINATOR_CONFIG_MAX_REQ", "many", 1);
    assert_int_equal(parse(&c, "{}", &eb), ERR_BAD_CONFIG);
    assert_string_equal(eb.text, "environment MINDIE_MS_COORDINATOR_CONFIG_MAX_REQ: "
                                 "coordinator.request_limit.max_requests must be an integer from 1 "
                                 "to 90000, got \"many\"");
    unsetenv("MINDIE_MS_COORDINATOR_CONFIG_SINGLE_NODE_MAX_REQ");
    unsetenv("MINDIE_MS_COORDINATOR_CONFIG_MAX_REQ");
    unsetenv("MINDIE_LOG_LEVEL");
    unsetenv("POD_IP");
    unsetenv("GLOBAL_RANK_TABLE_FILE_PATH");
    unsetenv("MINDIE_MS_P_RATE");
    unsetenv("MINDIE_MS_D_RATE");
}

/* Printing and reading again changes nothing, from the defaults and from values of our own. */
static void printed_form(void **state) {
    static const char *const files[] = {
        "{}",
        "{\"coordinator\":{\"http_config\":{\"predict_port\":\"2000\"},\"string_token_rate\":3.5,"
        "\"errorFormat\":\"text\",\"corsAllowOrigin\":\"*\"},\"controller\":{\"enabled\":false,"
        "\"default_p_rate\":3,\"default_d_rate\":1},\"pd\":{\"register_lease_s\":3600}}"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct coord_conf c, again;
        struct errbuf eb;
        struct buf one = BUF_INIT, two = BUF_INIT;
        assert_int_equal(parse(&c, files[i], &eb), ERR_OK);
        coord_conf_print(&one, &c);
        assert_int_equal(parse(&again, one.data, &eb), ERR_OK);
        coord_conf_print(&two, &again);
        assert_string_equal(one.data, two.data);
        assert_memory_equal(c.coefficients, again.coefficients, sizeof(c.coefficients));
        buf_free(&one);
        buf_free(&two);
    }
}

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static enum err load(struct coord_conf *c, const char *path, const char *controller,
                     struct errbuf *eb) {
    struct conf_layers *l = NULL;
    assert_int_equal(conf_layers_create(&l, coord_conf_names()), ERR_OK);
    const enum err e = coord_conf_load(c, path, controller, l, eb);
    conf_layers_free(&l);
    return e;
}

static void every_key_is_a_flag(void **state) {
    (void)state;
    cf_every_key(coord_conf_names());
}

/* A merged file; the reference's two files; an error names the file. */
static void files(void **state) {
    char dir[] = "/tmp/baton-conf-XXXXXX", a[64], b[64], want[256];
    struct coord_conf c;
    struct errbuf eb = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(a, sizeof(a), "%s/a.json", dir);
    snprintf(b, sizeof(b), "%s/b.json", dir);
    write_file(a, "{\"http_config\":{\"predict_port\":\"3001\"}}");
    write_file(b, "{\"default_p_rate\":2,\"default_d_rate\":1}");
    assert_int_equal(load(&c, a, b, &eb), ERR_OK);
    assert_int_equal(c.predict_port, 3001);
    assert_int_equal(c.p_rate, 2);
    assert_string_equal(c.dir, dir);
    write_file(a, "{\"coordinator\":{\"http_config\":{\"predict_port\":3002}},\"pd\":{\"register_"
                  "lease_s\":7}}");
    assert_int_equal(load(&c, a, NULL, &eb), ERR_OK);
    assert_int_equal(c.predict_port, 3002);
    assert_int_equal(c.register_lease_s, 7);
    assert_int_equal(c.p_rate, 0);
    write_file(a, "{\"coordinator\":{\"http_config\":{\"predict_port\":1}}}");
    assert_int_equal(load(&c, a, NULL, &eb), ERR_BAD_CONFIG);
    snprintf(
        want, sizeof(want),
        "%s: coordinator.http_config.predict_port must be an integer from 1024 to 65535, got 1", a);
    assert_string_equal(eb.text, want);
    write_file(a, "[]");
    assert_int_equal(load(&c, a, NULL, &eb), ERR_BAD_CONFIG);
    write_file(a, "{");
    assert_int_equal(load(&c, a, NULL, &eb), ERR_BAD_JSON);
    unlink(a);
    assert_int_equal(load(&c, a, NULL, &eb), ERR_NOT_FOUND);
    unlink(b);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),
        cmocka_unit_test(the_reference_s_ranges),
        cmocka_unit_test(defaults),
        cmocka_unit_test(rules),
        cmocka_unit_test(coefficients),
        cmocka_unit_test(alarm_urls),
        cmocka_unit_test(alarm_client_tls),
        cmocka_unit_test(schedule_timeout),
        cmocka_unit_test(longest_timeouts),
        cmocka_unit_test(every_key_is_a_flag),
        cmocka_unit_test(environment),
        cmocka_unit_test(printed_form),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
