/* Goal: config and status bodies are written as cluster-api 3.1 to 3.3 print them, read back the
 * same, and bounded. Method: round trips, the older peer shape, both ends of every range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/status_msg.h"

static void status_round_trip(void **state) {
    (void)state;
    struct link_status links[] = {{.target = 3, .ok = true, .text = "ok", .server_ip = "10.0.0.5"},
                                  {.target = 4, .text = "failed : 11"}};
    struct adapter_status adapters[] = {{.name = "one", .path = "/srv/one"}, {.name = "2"}};
    memset(adapters[1].name, 'n', sizeof(adapters[1].name) - 1);
    memset(adapters[1].path, 'p', sizeof(adapters[1].path) - 1);
    struct status_msg m = {.role_status = ROLE_STATUS_READY,
                           .role = ROLE_DECODE,
                           .avail_slots = 198,
                           .total_slots = 200,
                           .waiting = 1,
                           .running = 2,
                           .avail_blocks = 1024,
                           .free_blocks = 1024,
                           .total_blocks = 1040,
                           .kv_leases = 5,
                           .links = links,
                           .n_links = 2,
                           .adapters = adapters,
                           .n_adapters = 2};
    for (int version = 1; version <= 2; version++) {
        char *s = status_msg_format(&m, version);
        struct status_msg b;
        struct errbuf eb = {0};
        assert_non_null(
            strstr(s, "\"service\":{\"roleStatus\":\"RoleReady\",\"currentRole\":\"decode\"}"));
        assert_non_null(strstr(s, "\"linkStatus\":{\"peers\":[{\"target\":3,\"link\":\"ok\"},{"
                                  "\"target\":4,\"link\":\"failed : 11\"}]}"));
        assert_non_null(strstr(s, "\"peers\":[\"10.0.0.5\"],\"loraAdapters\":[{\"name\":\"one\","
                                  "\"path\":\"/srv/one\"},"));
        assert_int_equal(strstr(s, "dpInstMap\":[[0,1024]]") != NULL, version == 2);
        assert_int_equal(status_msg_parse(&b, s, strlen(s), &eb), ERR_OK);
        assert_int_equal(b.role, ROLE_DECODE);
        assert_int_equal(b.role_status, ROLE_STATUS_READY);
        assert_int_equal(b.avail_slots, 198);
        assert_int_equal(b.total_blocks, 1040);
        assert_int_equal(b.kv_leases, 5);
        assert_int_equal(b.n_links, 2);
        assert_true(b.links[0].ok && !b.links[1].ok);
        assert_string_equal(b.links[1].text, "failed : 11");
        assert_int_equal(b.n_adapters, 2);
        assert_memory_equal(b.adapters, adapters, sizeof(adapters));
        status_msg_free(&b);
        free(s);
    }
}

#define STATUS(service, res, rest) "{\"service\":" service ",\"resource\":" res rest "}"
#define SVC                        "{\"roleStatus\":\"RoleReady\",\"currentRole\":\"decode\"}"

static enum err parse(struct status_msg *m, const char *s, struct errbuf *eb) {
    return status_msg_parse(m, s, strlen(s), eb);
}

static void what_is_rare_is_told_where_it_is(void **state) {
    (void)state;
    for (int held = 0; held < 2; held++) {
        struct status_msg m = {.role_status = ROLE_STATUS_READY,
                               .role = ROLE_DECODE,
                               .held = held,
                               .embeds_only = !held};
        struct status_msg b;
        struct errbuf eb = {0};
        char *s = status_msg_format(&m, 2);
        assert_int_equal(strstr(s, ",\"engineHeld\":true}") != NULL, held);
        assert_int_equal(strstr(s, ",\"embedsOnly\":true}") != NULL, !held);
        assert_int_equal(status_msg_parse(&b, s, strlen(s), &eb), ERR_OK);
        assert_int_equal(b.held, held);
        assert_int_equal(b.embeds_only, !held);
        status_msg_free(&b);
        free(s);
    }
}

static void a_stuck_engine_is_told(void **state) {
    (void)state;
    for (uint64_t ms = 0; ms <= 5000; ms += 5000) {
        struct status_msg m = {
            .role_status = ROLE_STATUS_READY, .role = ROLE_DECODE, .stuck_ms = ms};
        struct status_msg b;
        struct errbuf eb = {0};
        char *s = status_msg_format(&m, 2);
        assert_int_equal(strstr(s, ",\"engineStuckMs\":5000}") != NULL, ms > 0);
        assert_int_equal(status_msg_parse(&b, s, strlen(s), &eb), ERR_OK);
        assert_int_equal(b.stuck_ms, ms);
        status_msg_free(&b);
        free(s);
    }
}

static void the_older_peer_shape_is_read(void **state) {
    (void)state;
    struct status_msg m;
    struct errbuf eb = {0};
    assert_int_equal(
        parse(&m,
              STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":2}", ",\"peers\":[\"10.0.0.5\"]"),
              &eb),
        ERR_OK);
    assert_int_equal(m.n_links, 1);
    assert_true(m.links[0].ok);
    assert_string_equal(m.links[0].server_ip, "10.0.0.5");
    status_msg_free(&m);
}

static void status_bounds(void **state) {
    (void)state;
    struct status_msg m;
    struct errbuf eb = {0};
    assert_int_equal(
        parse(&m, STATUS(SVC, "{\"availSlotsNum\":5000,\"availBlockNum\":4294967295}", ""), &eb),
        ERR_OK);
    status_msg_free(&m);
    static const char *const bad[] = {
        "[]",
        "{}",
        STATUS("1", "{}", ""),
        STATUS("{}", "{}", ""),
        STATUS(SVC, "1", ""),
        STATUS(SVC, "{\"availSlotsNum\":5001,\"availBlockNum\":0}", ""),
        STATUS(SVC, "{\"availSlotsNum\":-1,\"availBlockNum\":0}", ""),
        STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":4294967296}", ""),
        STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":1}",
               ",\"linkStatus\":{\"peers\":[{}]}"),
        STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":1}",
               ",\"peers\":[\"1234567890123456\"]"),
        STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":1}", ",\"loraAdapters\":[1]"),
        STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":1}",
               ",\"loraAdapters\":[{\"name\":\"a\"}]"),
        STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":1}",
               ",\"loraAdapters\":[{\"name\":\"\",\"path\":\"p\"}]"),
        STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":1}",
               ",\"loraAdapters\":[{\"name\":\"a\",\"path\":\"\"}]"),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        eb.text[0] = 0;
        if (parse(&m, bad[i], &eb) == ERR_OK) fail_msg("row %zu was taken", i);
        assert_int_not_equal(strlen(eb.text), 0);
        assert_null(m.links);
        assert_null(m.adapters);
    }
}

/* One byte, and one adapter, more than there is room for. */
static void adapter_bounds(void **state) {
    static const char *const head = STATUS(SVC, "{\"availSlotsNum\":1,\"availBlockNum\":1}", ",");
    (void)state;
    for (int row = 0; row < 3; row++) {
        for (int over = 0; over < 2; over++) {
            size_t n_name = row == 0 ? ADAPTER_NAME_BYTES_MAX + (size_t)over : 1;
            size_t n_path = row == 1 ? STATUS_PATH_BYTES - 1 + (size_t)over : 1;
            size_t n = row == 2 ? STATUS_ADAPTERS_MAX + (size_t)over : 1, at;
            size_t room = strlen(head) + 64 + n * (n_name + n_path + 32);
            char *s = malloc(room), name[512], path[2048];
            struct errbuf eb = {0};
            struct status_msg m;
            assert_non_null(s);
            memset(name, 'a', n_name);
            memset(path, 'b', n_path);
            name[n_name] = path[n_path] = 0;
            at = (size_t)snprintf(s, room, "%.*s\"loraAdapters\":[", (int)strlen(head) - 1, head);
            for (size_t i = 0; i < n; i++)
                at += (size_t)snprintf(s + at, room - at, "%s{\"name\":\"%s\",\"path\":\"%s\"}",
                                       i > 0 ? "," : "", name, path);
            (void)snprintf(s + at, room - at, "]}");
            enum err e = parse(&m, s, &eb);
            assert_int_equal(e, over == 0 ? ERR_OK : ERR_INVALID);
            if (e == ERR_OK) {
                assert_int_equal(m.n_adapters, n);
                status_msg_free(&m);
            } else {
                assert_non_null(strstr(eb.text, "loraAdapters"));
            }
            free(s);
        }
    }
}

static void config_round_trip_and_bounds(void **state) {
    (void)state;
    struct config_msg m = {.model_name = "qwen3-0.6b",
                           .max_seq_len = 4096,
                           .max_output_len = 1024,
                           .cache_block_size = 128,
                           .world_size = 2,
                           .npu_mem_gb = -1,
                           .cpu_mem_gb = 5},
                      b;
    struct errbuf eb = {0};
    char *s = config_msg_format(&m);
    assert_string_equal(
        s, "{\"modelName\":\"qwen3-0.6b\",\"maxSeqLen\":4096,\"npuMemSize\":-1,\"cpuMemSize\":5,"
           "\"worldSize\":2,\"maxOutputLen\":1024,\"cacheBlockSize\":128}");
    assert_int_equal(config_msg_parse(&b, s, strlen(s), &eb), ERR_OK);
    assert_memory_equal(&m, &b, sizeof(m));
    free(s);
    static const struct {
        long long seq, out, block;
        bool ok;
    } rows[] = {{0, 1, 1, true},   {4294967295LL, 4294967294LL, 128, true},
                {-1, 1, 1, false}, {4294967296LL, 1, 1, false},
                {1, 0, 1, false},  {1, 4294967295LL, 1, false},
                {1, 1, 0, false},  {1, 1, 129, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[256];
        int n = snprintf(line, sizeof(line),
                         "{\"modelName\":\"m\",\"maxSeqLen\":%lld,\"maxOutputLen\":%lld,"
                         "\"cacheBlockSize\":%lld}",
                         rows[i].seq, rows[i].out, rows[i].block);
        assert_int_equal(config_msg_parse(&b, line, (size_t)n, &eb) == ERR_OK, rows[i].ok);
    }
}

#define ORDERS(o)                                                                                  \
    "{\"service\":{\"roleStatus\":\"RoleReady\",\"currentRole\":\"decode\"},\"resource\":{"        \
    "\"availSlotsNum\":1,\"availBlockNum\":2},\"orders\":" o "}"

/* The orders it took last; what makes no sense there counts as nothing. */
static void orders(void **state) {
    static const struct {
        const char *body;
        uint64_t term, plan;
        uint32_t id;
        bool listened, drained;
    } rows[] = {
        {ORDERS("{\"term\":\"1763818000123\",\"plan\":\"ff00ff00ff00ff01\",\"id\":7,\"listening\":"
                "true,\"drained\":true}"),
         1763818000123, 0xff00ff00ff00ff01, 7, true, true},
        {ORDERS("{\"term\":\"5\"}"), 5, 0, 0, false, false},
        {ORDERS("{\"term\":5,\"id\":7}"), 0, 0, 0, false, false},
        {ORDERS("{\"term\":\"-5\",\"id\":7}"), 0, 0, 0, false, false},
        {ORDERS("{\"term\":\"99999999999999999999\"}"), 0, 0, 0, false, false},
        {ORDERS("{\"term\":\"5\",\"plan\":\"xyz\",\"listening\":1}"), 5, 0, 0, false, false},
        {ORDERS("[]"), 0, 0, 0, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct status_msg m, again;
        struct errbuf eb = {0};
        assert_int_equal(status_msg_parse(&m, rows[i].body, strlen(rows[i].body), &eb), ERR_OK);
        if (m.term != rows[i].term || m.plan != rows[i].plan || m.id != rows[i].id ||
            m.listened != rows[i].listened || m.drained != rows[i].drained)
            fail_msg("row %zu", i);
        char *text = status_msg_format(&m, 2);
        assert_int_equal(strstr(text, "orders") != NULL, m.term != 0);
        assert_int_equal(status_msg_parse(&again, text, strlen(text), &eb), ERR_OK);
        assert_true(again.term == m.term && again.plan == m.plan && again.id == m.id &&
                    again.listened == m.listened && again.drained == m.drained);
        free(text);
        status_msg_free(&m);
        status_msg_free(&again);
    }
}

/* The 503 of one that is being stopped. */
static void draining(void **state) {
    const struct status_msg m = {.waiting = 1, .running = 2, .kv_leases = 3};
    struct status_msg got = {.waiting = 9, .total_slots = 5};
    static const char *const others[] = {"",
                                         "{}",
                                         "[]",
                                         "{\"error\":\"The service has been stopped.\"}",
                                         "{\"service\":{\"state\":\"x\"},\"resource\":{}}",
                                         "{\"service\":{\"state\":\"DRAINING\"}}"};
    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(status_msg_parse_draining(&got, others[i], strlen(others[i])));
    assert_int_equal(got.waiting, 9);
    char *text = status_msg_format_draining(&m, "The service has been stopped.");
    assert_string_equal(text,
                        "{\"error\":\"The service has been stopped.\",\"error_type\":\"Service "
                        "Unavailable\",\"service\":{\"state\":\"DRAINING\"},\"resource\":{"
                        "\"waitingRequestNum\":1,\"runningRequestNum\":2,\"kvLeases\":3}}");
    assert_true(status_msg_parse_draining(&got, text, strlen(text)));
    assert_true(got.waiting == 1 && got.running == 2 && got.kv_leases == 3 && got.total_slots == 5);
    free(text);
}

/* An instance's own name goes along when it has one, and is one that labels and lines can hold. */
static void instance_names(void **state) {
    (void)state;
    char longest[INSTANCE_NAME_BYTES_MAX + 2];
    memset(longest, 'n', sizeof(longest));
    longest[INSTANCE_NAME_BYTES_MAX + 1] = '\0';
    assert_false(instance_name_ok(longest));
    longest[INSTANCE_NAME_BYTES_MAX] = '\0';
    const struct {
        const char *name;
        bool ok;
    } rows[] = {{"rack1-p0", true}, {"10.0.0.3:1025", true},
                {"a", true},        {longest, true},
                {"", false},        {"7", false},
                {"a b", false},     {"a\"b", false},
                {"a\n", false},     {"\xc3\xa9", false},
                {"7a", true}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct config_msg m = {.model_name = "m", .max_output_len = 1, .cache_block_size = 1}, b;
        struct errbuf eb = {0};
        assert_int_equal(instance_name_ok(rows[i].name), rows[i].ok);
        snprintf(m.instance_name, sizeof(m.instance_name), "%s", rows[i].name);
        char *s = config_msg_format(&m);
        bool taken = config_msg_parse(&b, s, strlen(s), &eb) == ERR_OK;
        assert_int_equal(taken, rows[i].ok || rows[i].name[0] == '\0');
        if (taken) assert_string_equal(b.instance_name, rows[i].name);
        free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(status_round_trip),
                                       cmocka_unit_test(what_is_rare_is_told_where_it_is),
                                       cmocka_unit_test(instance_names),
                                       cmocka_unit_test(orders),
                                       cmocka_unit_test(draining),
                                       cmocka_unit_test(a_stuck_engine_is_told),
                                       cmocka_unit_test(the_older_peer_shape_is_read),
                                       cmocka_unit_test(status_bounds),
                                       cmocka_unit_test(adapter_bounds),
                                       cmocka_unit_test(config_round_trip_and_bounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
