/* Goal: the process file is read back as it was written, and a file that is cut, changed, of wrong
 * members or of other nodes is refused with what is wrong. Method: files made by hand and sealed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/process_file.h"
#include "proto/limits.h"

#define SERVER(ip, port, id, role, group)                                                          \
    "{\"mgmt_ip\":\"" ip "\",\"mgmt_port\":\"" port "\",\"id\":" id ",\"current_role\":" role      \
    ",\"static_info\":{\"group_id\":" group "}}"
#define FILE_OF(servers)                                                                           \
    "{\"version\":1,\"configuration\":77,\"term\":\"1763832000123\",\"server\":[" servers          \
    "],\"processed_switch_faults\":[]}"
#define A SERVER("10.0.0.2", "1026", "11", "80", "1")
#define B                                                                                          \
    "{\"mgmt_ip\":\"10.0.0.1\",\"mgmt_port\":\"1026\",\"id\":21,\"current_role\":68,"              \
    "\"static_info\":{\"group_id\":1},\"is_drained\":true,\"more\":[1]}"
#define C SERVER("10.0.0.3", "1026", "31", "85", "0")

static struct errbuf eb;
static struct process_file f;

static struct buf sealed(const char *json) {
    struct buf b = BUF_INIT;
    buf_puts(&b, json);
    assert_int_equal(process_file_seal(&b), ERR_OK);
    return b;
}

static enum err parse(const char *json) {
    struct buf b = sealed(json);
    eb.text[0] = 0;
    const enum err e = process_file_parse(&f, b.data, b.len, &eb);
    buf_free(&b);
    return e;
}

static void a_good_one(void **state) {
    static const char *const same[] = {"10.0.0.1:1026", "10.0.0.3:1026", "10.0.0.2:1026"};
    static const char *const other[] = {"10.0.0.1:1026", "10.0.0.3:1026", "10.0.0.4:1026"};
    (void)state;
    assert_int_equal(parse(FILE_OF(A "," B "," C)), ERR_OK);
    assert_int_equal(f.configuration, 77);
    assert_int_equal(f.state.term, 1763832000123);
    assert_int_equal(f.state.n_rows, 3);
    const struct store_row *r = f.state.rows; /* by identity */
    assert_string_equal(r[0].identity, "10.0.0.1:1026");
    assert_true(r[0].id == 21 && r[0].role == ROLE_DECODE && r[0].group == 1 && r[0].drained);
    assert_true(r[1].id == 11 && r[1].role == ROLE_PREFILL && !r[1].drained);
    assert_true(r[2].id == 31 && r[2].role == ROLE_NONE && r[2].group == 0);
    assert_int_equal(process_file_same_nodes(&f, same, 3, &eb), ERR_OK);
    assert_int_equal(process_file_same_nodes(&f, other, 3, &eb), ERR_CONFLICT);
    assert_string_equal(eb.text, "10.0.0.4:1026 of the rank table is not in it");
    assert_int_equal(process_file_same_nodes(&f, same, 2, &eb), ERR_CONFLICT);
    assert_string_equal(eb.text, "its 10.0.0.2:1026 is not in the rank table");
    store_state_free(&f.state);
    assert_int_equal(parse(FILE_OF("")), ERR_OK);
    assert_int_equal(f.state.n_rows, 0);
    assert_int_equal(process_file_same_nodes(&f, same, 0, &eb), ERR_OK);
    store_state_free(&f.state);
}

/* Cut anywhere, or with any byte another. */
static void damaged(void **state) {
    struct buf b = sealed(FILE_OF(A "," B));
    (void)state;
    for (size_t n = 0; n < b.len; n++) {
        assert_int_not_equal(process_file_parse(&f, b.data, n, &eb), ERR_OK);
        b.data[n] ^= 1;
        assert_int_not_equal(process_file_parse(&f, b.data, b.len, &eb), ERR_OK);
        assert_null(f.state.rows);
        b.data[n] ^= 1;
    }
    assert_int_equal(process_file_parse(&f, b.data, b.len, &eb), ERR_OK);
    store_state_free(&f.state);
    buf_free(&b);
    assert_int_equal(process_file_parse(&f, "", 0, &eb), ERR_INVALID);
    assert_non_null(strstr(eb.text, "the file has 0 bytes"));
    struct buf none = BUF_INIT;
    assert_int_equal(process_file_seal(&none), ERR_NO_MEMORY);
}

static void wrong_members(void **state) {
    static const struct {
        const char *json, *text;
    } rows[] = {
        {"[]", ""},
        {"{\"version\":2}", "version must be 1"},
        {"{\"version\":1}", "configuration must be an integer"},
        {"{\"version\":1,\"configuration\":4294967296}", "configuration must be an integer"},
        {"{\"version\":1,\"configuration\":1}", "term must be a string"},
        {"{\"version\":1,\"configuration\":1,\"term\":\"x\"}", "term must be a string"},
        {"{\"version\":1,\"configuration\":1,\"term\":\"1\"}", "server must be an array"},
        {FILE_OF("7"), "server[0].mgmt_ip must be an IPv4 address"},
        {FILE_OF(SERVER("10.0.0", "1026", "1", "80", "1")), "server[0].mgmt_ip must be"},
        {FILE_OF(SERVER("10.0.0.1", "0", "1", "80", "1")), "server[0].mgmt_port must be"},
        {FILE_OF(SERVER("10.0.0.1", "65536", "1", "80", "1")), "server[0].mgmt_port must be"},
        {FILE_OF(SERVER("10.0.0.1", "1026", "0", "80", "1")), "server[0].id must be"},
        {FILE_OF(SERVER("10.0.0.1", "1026", "4294967296", "80", "1")), "server[0].id must be"},
        {FILE_OF(A "," SERVER("10.0.0.1", "1026", "1", "70", "1")),
         "server[1].current_role must be 80 (P), 68 (D) or 85 (none yet)"},
        {FILE_OF(SERVER("10.0.0.1", "1026", "1", "80", "4097")),
         "server[0].static_info.group_id must be an integer from 0 to 4096"},
        {FILE_OF(A "," SERVER("10.0.0.1", "1026", "11", "80", "1")), "id 11 is there twice"},
        {FILE_OF(A "," SERVER("10.0.0.2", "1026", "12", "80", "1")),
         "10.0.0.2:1026 is there twice"},
        {FILE_OF("{\"mgmt_ip\":\"10.0.0.1\",\"mgmt_port\":\"1026\",\"id\":21,\"current_role\":68,"
                 "\"static_info\":{\"group_id\":1},\"is_drained\":1}"),
         "server[0].is_drained must be a boolean"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_not_equal(parse(rows[i].json), ERR_OK);
        if (strstr(eb.text, rows[i].text) == NULL) fail_msg("row %zu: \"%s\"", i, eb.text);
        assert_null(f.state.rows);
    }
}

static void too_many(void **state) {
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        struct buf b = BUF_INIT;
        buf_puts(&b, "{\"version\":1,\"configuration\":1,\"term\":\"1\",\"server\":[");
        for (size_t i = 0; i < INSTANCES_MAX + over; i++)
            buf_printf(&b,
                       "%s{\"mgmt_ip\":\"10.0.%zu.%zu\",\"mgmt_port\":\"1026\",\"id\":%zu,"
                       "\"current_role\":80,\"static_info\":{\"group_id\":1}}",
                       i > 0 ? "," : "", i / 256, i % 256, i + 1);
        buf_puts(&b, "]}");
        assert_int_equal(parse(b.data), over ? ERR_INVALID : ERR_OK);
        buf_free(&b);
        if (!over) store_state_free(&f.state);
    }
    assert_string_equal(eb.text, "server must have at most 4096 entries, got 4097");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_good_one), cmocka_unit_test(damaged),
                                       cmocka_unit_test(wrong_members), cmocka_unit_test(too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
