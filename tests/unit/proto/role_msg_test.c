/* Goal: role bodies of both versions are read with every rule of cluster-api 3.4 and 3.5, and what
 * is formatted is read back the same. Method: the reference's example, one broken variant per rule
 * with the words its error must hold, and a round trip. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/role_msg.h"

#define DEV                                                                                        \
    "[{\"device_id\":\"0\",\"device_logical_id\":\"0\",\"device_ip\":\"10.0.0.11\",\"rank_id\":"   \
    "\"0\"}]"
#define LOCAL                                                                                      \
    "\"local\":{\"server_ip\":\"10.0.0.11\",\"id\":11,\"host_ip\":\"10.0.0.11\",\"device\":" DEV "}"

static enum err parse(struct role_msg *m, int version, const char *s, struct errbuf *eb) {
    return role_msg_parse(m, version, s, strlen(s), eb);
}

static void the_documents_example_is_read(void **state) {
    (void)state;
    struct role_msg m;
    struct errbuf eb = {0};
    const char *s = "{" LOCAL ",\"peers\":[{\"server_ip\":\"10.0.0.21\",\"id\":21,\"host_ip\":\"10."
                    "0.0.21\",\"inter_comm_port\":\"1122\",\"device\":" DEV "}]}";
    assert_int_equal(parse(&m, 1, s, &eb), ERR_OK);
    assert_int_equal(m.local.id, 11);
    assert_true(m.has_peers && !m.force);
    assert_int_equal(m.n_peers, 1);
    assert_string_equal(m.peers[0].server_ip, "10.0.0.21");
    assert_int_equal(m.peers[0].inter_comm_port, 1122);
    assert_int_equal(m.peers[0].n_devices, 1);
    assert_int_equal(m.local.p_percentage, -1);
    for (int version = 1; version <= 2; version++) { /* format, parse, format: the same text */
        char *text = role_msg_format(&m, version), *again;
        struct role_msg b;
        assert_int_equal(parse(&b, version, text, &eb), ERR_OK);
        again = role_msg_format(&b, version);
        assert_string_equal(text, again);
        assert_int_equal(b.peers[0].id, 21);
        free(text);
        free(again);
        role_msg_free(&b);
    }
    role_msg_free(&m);
}

static void every_rule_has_its_words(void **state) {
    (void)state;
    static const struct {
        int version;
        const char *body, *words;
    } rows[] = {
        {1, "[]", "object"},
        {1, "{", "byte"},
        {1, "{}", "local is missing"},
        {1, "{\"local\":1}", "local must be an object"},
        {1, "{\"local\":{}}", "local.server_ip"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.256\"}}", "IPv4"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\"}}", "local.device"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"id\":1,\"device\":" DEV "}}",
         "both present or both absent"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"host_ip\":\"10.0.0.1\",\"device\":" DEV "}}",
         "both present or both absent"},
        {1,
         "{\"local\":{\"server_ip\":\"10.0.0.1\",\"id\":-1,\"host_ip\":\"10.0.0.1\",\"device\":" DEV
         "}}",
         "local.id"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"device\":[]}}", "non-empty"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"device\":[1]}}", "local.device[0]"},
        {1,
         "{\"local\":{\"server_ip\":\"10.0.0.1\",\"device\":[{\"device_id\":\"a\",\"device_ip\":"
         "\"10.0.0.1\"}]}}",
         "decimal digits"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"device\":[{\"device_id\":\"0\"}]}}",
         "device_ip"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"p_percentage\":101,\"device\":" DEV "}}",
         "0 to 100"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"inter_comm_port\":\"0\",\"device\":" DEV "}}",
         "inter_comm_port"},
        {1, "{\"local\":{\"server_ip\":\"10.0.0.1\",\"inter_comm_port\":65536,\"device\":" DEV "}}",
         "inter_comm_port"},
        {1, "{" LOCAL ",\"peers\":{}}", "peers must be an array"},
        {1, "{" LOCAL ",\"peers\":[{}]}", "peers[0].server_ip"},
        {1, "{" LOCAL ",\"force\":1}", "force"},
        {1, "{" LOCAL ",\"drained\":\"yes\"}", "drained"},
        {2, "{" LOCAL "}", "local must be an array"},
        {2, "{\"local\":[]}", "non-empty"},
        {2, "{\"local\":[{\"server_ip\":\"10.0.0.1\"}]}", "dp_inst_list"},
        {2, "{\"local\":[{\"server_ip\":\"10.0.0.1\",\"dp_inst_list\":[{}]}]}", "dp_inst_id"},
        {2,
         "{\"local\":[{\"server_ip\":\"10.0.0.1\",\"dp_inst_list\":[{\"dp_inst_id\":110000,"
         "\"device\":" DEV "},{\"dp_inst_id\":120000,\"device\":" DEV "}]}]}",
         "another instance"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct role_msg m;
        struct errbuf eb = {0};
        assert_int_not_equal(parse(&m, rows[i].version, rows[i].body, &eb), ERR_OK);
        if (strstr(eb.text, rows[i].words) == NULL) fail_msg("row %zu: %s", i, eb.text);
        assert_null(m.peers);
        assert_null(m.local.devices);
    }
}

static void groups_of_a_node_make_one_instance(void **state) {
    (void)state;
    struct role_msg m;
    struct errbuf eb = {0};
    const char *s = "{\"local\":[{\"server_ip\":\"10.0.0.1\",\"host_ip\":\"10.0.0.1\",\"dp_inst_"
                    "list\":[{\"dp_inst_id\":110000,\"device\":" DEV
                    "},{\"dp_inst_id\":110001,\"device\":" DEV "}]}],\"peers\":[],\"force\":true}";
    assert_int_equal(parse(&m, 2, s, &eb), ERR_OK);
    assert_int_equal(m.local.id, 11);
    assert_int_equal(m.local.n_devices, 2);
    assert_true(m.has_peers && m.force);
    assert_int_equal(m.n_peers, 0);
    role_msg_free(&m);
}

static void role_words(void **state) {
    (void)state;
    for (int r = ROLE_PREFILL; r <= ROLE_MIXED; r++)
        assert_int_equal(inst_role_parse(inst_role_name((enum inst_role)r)), r);
    assert_int_equal(inst_role_parse("Prefill"), ROLE_NONE);
    assert_string_equal(inst_role_name((enum inst_role)99), "none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_documents_example_is_read), cmocka_unit_test(every_rule_has_its_words),
        cmocka_unit_test(groups_of_a_node_make_one_instance), cmocka_unit_test(role_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
