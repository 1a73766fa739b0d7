/* Goal: the rank table and a registration are read as cluster-api 7.1 has them, every wrong member
 * is named, and every count is bounded. Method: the document's example, a table of damages of one
 * entry, both sides of the counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "coordinator/coord_conf.h"
#include "proto/json.h"

static struct coord_conf conf;

static int set_up(void **state) {
    struct errbuf eb;
    (void)state;
    static const char json[] =
        "{\"controller\":{\"mindie_server_port\":2025,\"mindie_server_control_port\":2026,"
        "\"mindie_server_metric_port\":2027}}";
    return coord_conf_parse(&conf, json, strlen(json), ".", &eb) == ERR_OK ? 0 : -1;
}

static enum err parse(struct rank_table *t, const char *json, struct errbuf *eb) {
    memset(eb, 0, sizeof(*eb));
    return rank_table_parse(t, &conf, json, strlen(json), eb);
}

static void example(void **state) {
    static const char json[] =
        "{\"version\":\"1.0\",\"status\":\"completed\",\"server_group_list\":["
        "{\"group_id\":\"0\",\"server_count\":\"1\",\"server_list\":[{\"server_ip\":\"10.0.0.1\"}]}"
        ","
        "{\"group_id\":\"1\",\"server_count\":\"1\",\"server_list\":[{\"server_ip\":\"10.0.0.1\"}]}"
        ","
        "{\"group_id\":\"2\",\"server_count\":\"2\",\"server_list\":["
        "{\"server_id\":\"10.0.0.11\",\"server_ip\":\"10.0.0.11\",\"predict_port\":\"1025\","
        "\"mgmt_port\":1030,\"metric_port\":\"\",\"inter_comm_port\":\"1121\","
        "\"hardware_type\":\"cpu-amx\",\"label\":1,"
        "\"device\":[{\"device_id\":\"0\",\"device_ip\":\"10.0.0.12\",\"rank_id\":\"3\","
        "\"device_logical_id\":\"4\"},{}]},"
        "{\"server_ip\":\"10.0.0.12\",\"mgmt_ip\":\"127.0.0.2\",\"device\":[{\"device_id\":\"7\"}]}"
        "]},{\"group_id\":\"3\",\"server_list\":[]}]}";
    struct rank_table t;
    struct errbuf eb;
    (void)state;
    assert_int_equal(parse(&t, json, &eb), ERR_OK);
    assert_int_equal(t.n_nodes, 2);
    const struct node_conf *n = &t.nodes[0];
    assert_string_equal(n->ip, "10.0.0.11");
    assert_string_equal(n->mgmt_ip, "10.0.0.11");
    assert_int_equal(n->port, 1025);
    assert_int_equal(n->mgmt_port, 1030);
    assert_int_equal(n->metric_port, 2027); /* "": the configured one */
    assert_int_equal(n->inter_comm_port, 1121);
    assert_int_equal(n->label, LABEL_DECODE_PREFER);
    assert_int_equal(n->n_devices, 2);
    assert_string_equal(n->devices[0].device_ip, "10.0.0.12");
    assert_string_equal(n->devices[0].rank_id, "3");
    assert_string_equal(n->devices[0].device_logical_id, "4");
    assert_string_equal(n->devices[1].device_id, "0");
    assert_string_equal(n->devices[1].device_ip, "10.0.0.11");
    n = &t.nodes[1];
    assert_string_equal(n->mgmt_ip, "127.0.0.2");
    assert_int_equal(n->port, 2025);
    assert_int_equal(n->mgmt_port, 2026);
    assert_int_equal(n->inter_comm_port, 1121);
    assert_int_equal(n->label, -1);
    assert_string_equal(n->devices[0].rank_id, "7"); /* absent: as the device */
    assert_string_equal(n->devices[0].device_logical_id, "7");
    rank_table_free(&t);
}

#define AT "server_group_list[0].server_list[0]"

static void damages(void **state) {
    static const struct {
        const char *server, *text;
    } rows[] = {
        {"5", AT " must be an object"},
        {"{\"device\":[{}]}", AT ".server_ip must be an IPv4 address, got \"\""},
        {"{\"server_ip\":5,\"device\":[{}]}", AT ".server_ip must be an IPv4 address, got \"\""},
        {"{\"server_ip\":\"1.2.3\",\"device\":[{}]}",
         AT ".server_ip must be an IPv4 address, got \"1.2.3\""},
        {"{\"server_ip\":\"::1\",\"device\":[{}]}",
         AT ".server_ip must be an IPv4 address, got \"::1\""},
        {"{\"server_ip\":\"1.2.3.4\",\"mgmt_ip\":\"x\",\"device\":[{}]}",
         AT ".mgmt_ip must be an IPv4 address, got \"x\""},
        {"{\"server_ip\":\"1.2.3.4\",\"predict_port\":\"1023\",\"device\":[{}]}",
         AT ".predict_port must be a port from 1024 to 65535, got \"1023\""},
        {"{\"server_ip\":\"1.2.3.4\",\"mgmt_port\":65536,\"device\":[{}]}",
         AT ".mgmt_port must be a port from 1024 to 65535, got 65536"},
        {"{\"server_ip\":\"1.2.3.4\",\"metric_port\":\"2000x\",\"device\":[{}]}",
         AT ".metric_port must be a port from 1024 to 65535, got \"2000x\""},
        {"{\"server_ip\":\"1.2.3.4\",\"inter_comm_port\":\"999999\",\"device\":[{}]}",
         AT ".inter_comm_port must be a port from 1024 to 65535, got \"999999\""},
        {"{\"server_ip\":\"1.2.3.4\",\"inter_comm_port\":true,\"device\":[{}]}",
         AT ".inter_comm_port must be a port from 1024 to 65535, got true"},
        {"{\"server_ip\":\"1.2.3.4\"}", AT ".device must be a non-empty array"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[]}", AT ".device must be a non-empty array"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":{}}", AT ".device must be a non-empty array"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[5]}", AT ".device[0] must be an object"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{},{\"device_id\":\"x\"}]}",
         AT ".device[1].device_id must be decimal digits"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{\"rank_id\":\"-1\"}]}",
         AT ".device[0].rank_id must be decimal digits"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{\"device_logical_id\":1}]}",
         AT ".device[0].device_logical_id must be decimal digits"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{\"device_id\":\"123456789012345678901234\"}]}",
         AT ".device[0].device_id must be decimal digits"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{\"device_ip\":\"1.2.3.4.5\"}]}",
         AT ".device[0].device_ip must be an IPv4 address, got \"1.2.3.4.5\""},
        {"{\"server_ip\":\"1.2.3.4\",\"mgmt_port\":3000,\"device\":[{}]},"
         "{\"server_ip\":\"1.2.3.5\",\"mgmt_ip\":\"1.2.3.4\",\"mgmt_port\":3000,\"device\":[{}]}",
         "server_group_list[0].server_list[1]: management 1.2.3.4:3000 is another server's too"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{}],\"label\":5}",
         AT ".label must be an integer from 0 to 4"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{}],\"label\":-1}",
         AT ".label must be an integer from 0 to 4"},
        {"{\"server_ip\":\"1.2.3.4\",\"device\":[{}],\"label\":\"1\"}",
         AT ".label must be an integer from 0 to 4"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char json[1024];
        struct rank_table t;
        struct errbuf eb;
        /* a good one behind it must not matter */
        snprintf(json, sizeof(json),
                 "{\"server_group_list\":[{\"group_id\":\"2\",\"server_list\":[%s,"
                 "{\"server_ip\":\"1.1.1.1\",\"device\":[{}]}]}]}",
                 rows[i].server);
        assert_int_equal(parse(&t, json, &eb), ERR_INVALID);
        assert_string_equal(eb.text, rows[i].text);
        assert_null(t.nodes);
    }
}

static void shapes(void **state) {
    static const struct {
        const char *json, *text;
        enum err e;
    } rows[] = {
        {"{}", "server_group_list must be an array", ERR_INVALID},
        {"null", "server_group_list must be an array", ERR_INVALID},
        {"{\"server_group_list\":{}}", "server_group_list must be an array", ERR_INVALID},
        {"{\"server_group_list\":[5]}", "server_group_list[0].group_id must be a string",
         ERR_INVALID},
        {"{\"server_group_list\":[{\"group_id\":2}]}",
         "server_group_list[0].group_id must be a string", ERR_INVALID},
        {"{\"server_group_list\":[{\"group_id\":\"0\"},{\"group_id\":\"2\"}]}",
         "server_group_list[1].server_list must be an array", ERR_INVALID},
    };
    struct rank_table t;
    struct errbuf eb;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(parse(&t, rows[i].json, &eb), rows[i].e);
        assert_string_equal(eb.text, rows[i].text);
    }
    assert_int_equal(parse(&t, "{", &eb), ERR_BAD_JSON);
    assert_int_equal(parse(&t, "{\"server_group_list\":[]}", &eb), ERR_OK);
    assert_int_equal(t.n_nodes, 0);
    rank_table_free(&t);
}

static void counts(void **state) {
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct buf b = BUF_INIT;
        struct rank_table t;
        struct errbuf eb;
        buf_puts(&b, "{\"server_group_list\":[{\"group_id\":\"2\",\"server_list\":[");
        for (int i = 0; i < INSTANCES_MAX - 1; i++)
            buf_printf(&b, "%s{\"server_ip\":\"10.0.%d.%d\",\"device\":[{}]}", i > 0 ? "," : "",
                       i / 256, i % 256);
        buf_puts(&b, "]},{\"group_id\":\"3\",\"server_list\":[");
        for (int i = 0; i < 1 + over; i++)
            buf_printf(&b, "%s{\"server_ip\":\"10.1.0.%d\",\"device\":[{}]}", i > 0 ? "," : "", i);
        buf_puts(&b, "]}]}");
        assert_int_equal(parse(&t, b.data, &eb), over ? ERR_INVALID : ERR_OK);
        if (over) {
            assert_string_equal(eb.text, "more than 4096 servers");
        } else {
            assert_int_equal(t.n_nodes, INSTANCES_MAX);
            rank_table_free(&t);
        }
        buf_clear(&b);
        buf_puts(&b, "{\"server_group_list\":[{\"group_id\":\"2\",\"server_list\":[{\"server_ip\":"
                     "\"1.2.3.4\",\"device\":[{}");
        for (int i = 1; i < DEVICES_MAX + over; i++) buf_puts(&b, ",{}");
        buf_puts(&b, "]}]}]}");
        assert_int_equal(parse(&t, b.data, &eb), over ? ERR_INVALID : ERR_OK);
        if (over) {
            assert_string_equal(eb.text, AT ".device has 1025 entries, at most 1024 are allowed");
        } else {
            assert_int_equal(t.nodes[0].n_devices, DEVICES_MAX);
            rank_table_free(&t);
        }
        buf_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example),
        cmocka_unit_test(damages),
        cmocka_unit_test(shapes),
        cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
