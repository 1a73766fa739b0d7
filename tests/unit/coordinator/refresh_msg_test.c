/* Goal: a pushed list is read within its bounds; an instance that is wrong is left out with member,
 * value and range, and the others stand; what makes the list itself wrong refuses it. Method:
 * tables of changes to a good body. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/buf.h"
#include "coordinator/plan.h"
#include "coordinator/refresh_msg.h"

#define STATIC                                                                                     \
    "\"group_id\":1,\"max_seq_len\":4096,\"max_output_len\":1024,\"total_slots_num\":200,"         \
    "\"total_block_num\":1040,\"block_size\":128,\"label\":2,\"role\":80,\"virtual_id\":11,"       \
    "\"p_percentage\":0"
#define DYNAMIC "\"avail_slots_num\":190,\"avail_block_num\":1000,\"peers\":[21,22]"
#define ADDRESS                                                                                    \
    "\"ip\":\"10.0.0.11\",\"port\":\"1025\",\"metric_port\":\"1027\",\"inter_comm_port\":"         \
    "\"1121\",\"model_name\":\"m\""
#define INST(id, address, stat, dyn)                                                               \
    "{\"id\":" id "," address ",\"static_info\":{" stat "},\"dynamic_info\":{" dyn "}}"
#define GOOD       INST("11", ADDRESS, STATIC, DYNAMIC)
#define LIST(inst) "{\"ids\":[11,21],\"instances\":[" inst "]}"

static struct errbuf eb;
static struct refresh_msg m;
static bool single_node;
static char skipped[1024];
static int n_skipped;

static void on_skip(void *arg, const char *text) {
    assert_ptr_equal(arg, &m);
    n_skipped++;
    snprintf(skipped, sizeof(skipped), "%s", text);
}

static enum err parse(const char *body) {
    refresh_msg_free(&m);
    n_skipped = 0;
    skipped[0] = eb.text[0] = 0;
    return refresh_msg_parse(&m, single_node, body, strlen(body), on_skip, &m, &eb);
}

static void a_good_one(void **state) {
    (void)state;
    assert_int_equal(parse("{\"ids\":[21,11,21],\"instances\":[" GOOD "],\"more\":1}"), ERR_OK);
    assert_int_equal(n_skipped, 0);
    assert_int_equal(m.n_ids, 2);
    assert_int_equal(m.ids[0], 11);
    assert_int_equal(m.ids[1], 21);
    assert_int_equal(m.n_insts, 1);
    const struct refresh_inst *in = &m.insts[0];
    assert_int_equal(in->id, 11);
    assert_string_equal(in->ip, "10.0.0.11");
    assert_int_equal(in->port, 1025);
    assert_int_equal(in->metric_port, 1027);
    assert_int_equal(in->inter_comm_port, 1121);
    assert_string_equal(in->model_name, "m");
    assert_int_equal(in->group_id, 1);
    assert_int_equal(in->max_seq_len, 4096);
    assert_int_equal(in->max_output_len, 1024);
    assert_int_equal(in->total_slots, 200);
    assert_int_equal(in->total_blocks, 1040);
    assert_int_equal(in->block_size, 128);
    assert_int_equal(in->label, 2);
    assert_int_equal(in->role, ROLE_PREFILL);
    assert_int_equal(in->p_percentage, -1);
    assert_int_equal(in->avail_slots, 190);
    assert_int_equal(in->avail_blocks, 1000);
    assert_int_equal(in->waiting + in->running + in->swapped, 0);
    assert_int_equal(in->n_peers, 2);
    assert_int_equal(in->peers[1], 22);
    assert_int_equal(parse("{\"ids\":[],\"instances\":[]}"), ERR_OK);
    assert_int_equal(m.n_ids + m.n_insts, 0);
}

/* from in a good body, to in its place. */
static void with(const char *from, const char *to, const char *text) {
    static const char good[] = LIST(GOOD);
    struct buf b = BUF_INIT;
    const char *at = strstr(good, from);
    assert_non_null(at);
    buf_append(&b, good, (size_t)(at - good));
    buf_puts(&b, to);
    buf_puts(&b, at + strlen(from));
    assert_int_equal(parse(b.data), ERR_OK);
    buf_free(&b);
    if (text == NULL) {
        assert_int_equal(n_skipped, 0);
        assert_int_equal(m.n_insts, 1);
        return;
    }
    assert_int_equal(m.n_insts, 0);
    assert_int_equal(n_skipped, 1);
    if (strncmp(skipped, "instances[0] (id 11): ", 22) != 0 || strstr(skipped, text) == NULL)
        fail_msg("%s -> %s: \"%s\"", from, to, skipped);
}

static void both_sides_of_each_bound(void **state) {
    (void)state;
    with("\"port\":\"1025\"", "\"port\":\"1024\"", NULL);
    assert_int_equal(m.insts[0].port, 1024);
    with("\"port\":\"1025\"", "\"port\":65535", NULL);
    with("\"port\":\"1025\"", "\"port\":\"1023\"", "port must be a port from 1024 to 65535");
    with("\"port\":\"1025\"", "\"port\":\"65536\"", "got \"65536\"");
    with("\"port\":\"1025\"", "\"port\":\"\"", "port must be a port");
    with("\"port\":\"1025\"", "\"port\":\"10 25\"", "port must be a port");
    with("\"port\":\"1025\",", "", "port is missing");
    with("\"metric_port\":\"1027\"", "\"metric_port\":null", "metric_port must be a port");
    with("\"inter_comm_port\":\"1121\"", "\"inter_comm_port\":\"\"", NULL);
    assert_int_equal(m.insts[0].inter_comm_port, 1121);
    with("\"inter_comm_port\":\"1121\",", "", NULL);
    with("\"inter_comm_port\":\"1121\"", "\"inter_comm_port\":\"x\"", "inter_comm_port must be");
    with("\"10.0.0.11\"", "\"10.0.0\"", "ip must be an IPv4 address, got \"10.0.0\"");
    with("\"10.0.0.11\"", "\"10.0.0.1\\u0000\"", "ip must be an IPv4 address");
    with("\"10.0.0.11\"", "7", "ip must be an IPv4 address, got 7");
    with("\"m\"", "\"\"", "model_name must be a string of 1 to 256 bytes");
    with("\"total_slots_num\":200", "\"total_slots_num\":5000", NULL);
    with("\"total_slots_num\":200", "\"total_slots_num\":5001",
         "static_info.total_slots_num must be an integer from 1 to 5000, got 5001");
    with("\"total_slots_num\":200", "\"total_slots_num\":0", "total_slots_num must be");
    with("\"block_size\":128", "\"block_size\":129", "block_size must be an integer from 1 to 128");
    with("\"block_size\":128", "\"block_size\":1", NULL);
    with("\"total_block_num\":1040", "\"total_block_num\":0", "total_block_num must be");
    with("\"max_output_len\":1024", "\"max_output_len\":4096", NULL);
    with("\"max_output_len\":1024", "\"max_output_len\":4097",
         "max_output_len must be at most max_seq_len (4096), got 4097");
    with("\"max_seq_len\":4096", "\"max_seq_len\":0", "max_seq_len must be");
    with("\"label\":2", "\"label\":1", "static_info.label must be an integer from 2 to 4, got 1");
    with("\"label\":2", "\"label\":4", NULL);
    with("\"label\":2", "\"label\":5", "label must be");
    with("\"role\":80", "\"role\":85", "role must be 80 (P), 68 (D) or 70 (flex), got 85");
    with("\"role\":80,", "", "static_info.role is missing");
    single_node = true; /* all do both */
    with("\"role\":80", "\"role\":85", NULL);
    assert_int_equal(m.insts[0].role, ROLE_FLEX);
    assert_true(m.insts[0].p_percentage >= PLAN_UNSPLIT);
    with("\"role\":80", "\"role\":70", NULL);
    with("\"role\":80", "\"role\":80",
         "static_info.role must be 85 (undefined) or 70 (flex) with deploy_mode single_node, got "
         "80");
    single_node = false;
    with("\"p_percentage\":0", "\"p_percentage\":101", "p_percentage must be");
    with("\"group_id\":1,", "", "static_info.group_id is missing");
    with("\"avail_slots_num\":190", "\"avail_slots_num\":-1", "dynamic_info.avail_slots_num must");
    with("\"avail_slots_num\":190", "\"avail_slots_num\":5000", NULL);
    assert_int_equal(m.insts[0].avail_slots, 200); /* no more than there are */
    with("\"avail_block_num\":1000", "\"avail_block_num\":9000", NULL);
    assert_int_equal(m.insts[0].avail_blocks, 1040);
    with(",\"peers\":[21,22]", "", "dynamic_info.peers is missing");
    with("[21,22]", "7", "dynamic_info.peers must be an array of ids, got 7");
    with("[21,22]", "[21,-1]", "peers must be ids from 0 to 4294967295, got -1");
    with("\"static_info\"", "\"x\"", "static_info must be an object");
    with("\"dynamic_info\"", "\"x\"", "dynamic_info must be an object");
    with("\"avail_slots_num\":190", "\"waiting_request_num\":true,\"avail_slots_num\":190",
         "waiting_request_num must be");
}

static void roles(void **state) {
    (void)state;
    with("\"role\":80", "\"role\":68", NULL);
    assert_int_equal(m.insts[0].role, ROLE_DECODE);
    with("\"role\":80,\"virtual_id\":11,\"p_percentage\":0", "\"role\":70,\"p_percentage\":30",
         NULL);
    assert_int_equal(m.insts[0].role, ROLE_FLEX);
    assert_int_equal(m.insts[0].p_percentage, 30);
    with("\"role\":80,\"virtual_id\":11,\"p_percentage\":0", "\"role\":70,\"p_percentage\":100",
         NULL);
    assert_int_equal(m.insts[0].role, ROLE_PREFILL);
    with("\"role\":80,\"virtual_id\":11,\"p_percentage\":0", "\"role\":70", NULL);
    assert_int_equal(m.insts[0].role, ROLE_DECODE);
}

/* The others stand, and are taken once. */
static void among_others(void **state) {
    (void)state;
    assert_int_equal(
        parse(LIST(GOOD "," INST("21", "\"ip\":\"x\"", STATIC, DYNAMIC) "," GOOD "," INST(
            "31", ADDRESS, STATIC, "\"avail_slots_num\":1,\"avail_block_num\":1,\"peers\":[]"))),
        ERR_OK);
    assert_int_equal(n_skipped, 2);
    assert_string_equal(skipped, "instances[2] (id 11): the id is there twice");
    assert_int_equal(m.n_insts, 2);
    assert_int_equal(m.insts[1].id, 31);
}

static void wrong_lists(void **state) {
    static const struct {
        const char *body;
        enum err err;
        const char *text;
    } rows[] = {
        {"", ERR_BAD_JSON, ""},
        {"[]", ERR_INVALID, "the body must be an object"},
        {"null", ERR_INVALID, "the body must be an object"},
        {"{\"instances\":[]}", ERR_INVALID, "ids must be an array"},
        {"{\"ids\":[11]}", ERR_INVALID, "instances must be an array"},
        {"{\"ids\":[0],\"instances\":[]}", ERR_INVALID,
         "ids[0] must be an integer from 1 to 4294967295, got 0"},
        {"{\"ids\":[\"1\"],\"instances\":[]}", ERR_INVALID, "ids[0] must be"},
        {"{\"ids\":[],\"instances\":[{}]}", ERR_INVALID, "instances[0].id must be"},
        {"{\"ids\":[],\"instances\":[7]}", ERR_INVALID, "instances[0].id must be"},
        {"{\"ids\":[],\"instances\":[" GOOD ",{\"id\":-1}]}", ERR_INVALID,
         "instances[1].id must be an integer from 1 to 4294967295, got -1"},
    };
    static const char good[] = LIST(GOOD);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(parse(rows[i].body), rows[i].err);
        if (strstr(eb.text, rows[i].text) == NULL) fail_msg("row %zu: \"%s\"", i, eb.text);
        assert_null(m.insts);
        assert_null(m.ids);
    }
    for (size_t n = 0; n < sizeof(good) - 1; n++)
        assert_int_not_equal(refresh_msg_parse(&m, false, good, n, on_skip, &m, &eb), ERR_OK);
}

static void too_many(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        buf_free(&b);
        buf_puts(&b, "{\"ids\":[1");
        for (size_t i = 1; i < INSTANCES_MAX + over; i++) buf_printf(&b, ",%zu", i + 1);
        buf_puts(&b, "],\"instances\":[]}");
        assert_int_equal(parse(b.data), over ? ERR_TOO_LARGE : ERR_OK);
    }
    assert_string_equal(eb.text, "ids must have at most 4096 entries, got 4097");
    buf_free(&b);
    buf_puts(&b, "{\"ids\":[],\"instances\":[{\"id\":1}");
    for (size_t i = 0; i < INSTANCES_MAX; i++) buf_puts(&b, ",{\"id\":1}");
    buf_puts(&b, "]}");
    assert_int_equal(parse(b.data), ERR_TOO_LARGE);
    assert_string_equal(eb.text, "instances must have at most 4096 entries, got 4097");
    buf_free(&b);
    for (size_t over = 0; over < 2; over++) {
        buf_puts(&b, "{\"ids\":[],\"instances\":[" INST("11", ADDRESS, STATIC,
                                                        "\"avail_slots_num\":1,"
                                                        "\"avail_block_num\":1,\"peers\":[1"));
        b.len -= strlen("}}"); /* the list goes on */
        for (size_t i = 1; i < REFRESH_PEERS_MAX + over; i++) buf_puts(&b, ",2");
        buf_puts(&b, "]}}]}");
        assert_int_equal(parse(b.data), over ? ERR_TOO_LARGE : ERR_OK);
        buf_free(&b);
    }
    assert_non_null(strstr(eb.text, "of all instances must have at most 65536 entries"));
}

static int tear_down(void **state) {
    (void)state;
    refresh_msg_free(&m);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_one),  cmocka_unit_test(both_sides_of_each_bound),
        cmocka_unit_test(roles),       cmocka_unit_test(among_others),
        cmocka_unit_test(wrong_lists), cmocka_unit_test(too_many)};
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
