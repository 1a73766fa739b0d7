/* Goal:   the coordinator's headers are checked in the order and with the texts of
 * inference-api 2.6. Method: a table of headers and what comes of them; both sides of every bound.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "prefill/pd_head.h"

struct given {
    const char *req_type, *req_id, *d_target, *is_recompute, *req_epoch, *tenant, *replay;
};

static const char *header(const void *arg, const char *name) {
    const struct given *g = arg;
    if (strcmp(name, "req-type") == 0) return g->req_type;
    if (strcmp(name, "req-id") == 0) return g->req_id;
    if (strcmp(name, "d-target") == 0) return g->d_target;
    if (strcmp(name, "is-recompute") == 0) return g->is_recompute;
    if (strcmp(name, "req-epoch") == 0) return g->req_epoch;
    if (strcmp(name, "baton-tenant") == 0) return g->tenant;
    if (strcmp(name, "baton-replay") == 0) return g->replay;
    return NULL;
}

static const char missing[] = "DMI request must have req-type, req-id, d-target headers";
static const char bad_target[] = "Parameter d-target must be an IPv4 address";
static const char bad_recompute[] =
    "Parameter is-recompute is an optional parameter. When it is set, it must be true or false.";

static void bad_headers_have_their_texts(void **state) {
    (void)state;
    const struct {
        struct given g;
        const char *text;
    } cases[] = {
        {{NULL, "1", "10.0.0.1", NULL, NULL, NULL, NULL}, missing},
        {{"prefill", NULL, "10.0.0.1", NULL, NULL, NULL, NULL}, missing},
        {{"prefill", "1", NULL, NULL, NULL, NULL, NULL}, missing},
        {{"prefill", "", "10.0.0.1", NULL, NULL, NULL, NULL}, missing},
        {{"prefill", "12g4", "10.0.0.1", NULL, NULL, NULL, NULL},
         "Invalid req-id, the character of req-id should be hex char [0-9, a-f, A-F], but got "
         "12g4"},
        {{"decode", "1 2", "10.0.0.1", NULL, NULL, NULL, NULL},
         "Invalid req-id, the character of req-id should be hex char [0-9, a-f, A-F], but got 1 2"},
        {{"decode", "12", "10.0.0.1", NULL, NULL, NULL, NULL},
         "Parameter req-type must be prefill but got decode"},
        {{"", "12", "10.0.0.1", NULL, NULL, NULL, NULL},
         "Parameter req-type must be prefill but got "},
        {{"prefill", "12", "", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0.256", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0.1.1", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "::1", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "host", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", " 10.0.0.1", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0.1;x", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0.1;0", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0.1;65536", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0.1;-1", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", ";1121", NULL, NULL, NULL, NULL}, bad_target},
        {{"prefill", "12", "10.0.0.1", "yes", NULL, NULL, NULL}, bad_recompute},
        {{"prefill", "12", "10.0.0.1", "True", NULL, NULL, NULL}, bad_recompute},
        {{"prefill", "12", "10.0.0.1", NULL, "-1", NULL, NULL},
         "Parameter req-epoch must be an integer from 0 to 4294967295 but got -1"},
        {{"prefill", "12", "10.0.0.1", NULL, "4294967296", NULL, NULL},
         "Parameter req-epoch must be an integer from 0 to 4294967295 but got 4294967296"},
        {{"prefill", "12", "10.0.0.1", NULL, "1x", NULL, NULL},
         "Parameter req-epoch must be an integer from 0 to 4294967295 but got 1x"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pd_head h;
        struct errbuf eb = {0};
        assert_int_equal(pd_head_read(&h, header, &cases[i].g, &eb), ERR_INVALID);
        assert_string_equal(eb.text, cases[i].text);
    }
}

static void good_headers_give_their_values(void **state) {
    (void)state;
    const struct {
        struct given g;
        const char *target;
        uint32_t epoch;
        bool recompute;
    } cases[] = {
        {{"prefill", "1311768467463790320", "10.0.0.1", NULL, NULL, NULL, NULL},
         "10.0.0.1",
         0,
         false},
        {{"prefill", "aF09", "255.255.255.255;65535", "true", "4294967295", NULL, NULL},
         "255.255.255.255;65535",
         4294967295u,
         true},
        {{"prefill", "0", "127.0.0.1;1", "false", "0", NULL, NULL}, "127.0.0.1;1", 0, false},
        {{"prefill", "0", "127.0.0.1;", "", "", NULL, NULL}, "127.0.0.1;", 0, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pd_head h;
        assert_int_equal(pd_head_read(&h, header, &cases[i].g, NULL), ERR_OK);
        assert_string_equal(h.req_id, cases[i].g.req_id);
        assert_string_equal(h.d_target, cases[i].target);
        assert_int_equal(h.epoch, cases[i].epoch);
        assert_int_equal(h.is_recompute, cases[i].recompute);
    }
}

static const char *header_with_time(const void *arg, const char *name) {
    static const struct given g = {.req_type = "prefill", .req_id = "1", .d_target = "10.0.0.1"};
    return strcmp(name, "baton-spent-ms") == 0 ? arg : header(&g, name);
}

static void the_time_spent_is_a_number(void **state) {
    (void)state;
    static const char *const bad[] = {"", "-1", "4294967296", "1x", "0.5"};
    struct pd_head h;
    struct errbuf eb = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(pd_head_read(&h, header_with_time, bad[i], &eb), ERR_INVALID);
        assert_non_null(strstr(eb.text, "baton-spent-ms must be an integer from 0 to 4294967295"));
    }
    assert_int_equal(pd_head_read(&h, header_with_time, "4294967295", &eb), ERR_OK);
    assert_int_equal(h.spent_ms, UINT32_MAX);
    assert_int_equal(pd_head_read(&h, header_with_time, NULL, &eb), ERR_OK);
    assert_int_equal(h.spent_ms, 0);
}

static const char *header_with_place(const void *arg, const char *name) {
    static const struct given g = {.req_type = "prefill", .req_id = "1", .d_target = "10.0.0.1"};
    return strcmp(name, "baton-kv-at") == 0 ? arg : header(&g, name);
}

static void the_place_that_was_left_is_an_address(void **state) {
    (void)state;
    static const char *const bad[] = {"", "host", "10.0.0.1;0", "10.0.0.1;65536", "10.0.0.1:5"};
    struct pd_head h;
    struct errbuf eb = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(pd_head_read(&h, header_with_place, bad[i], &eb), ERR_INVALID);
        assert_string_equal(eb.text, "Parameter baton-kv-at must be an IPv4 address");
    }
    assert_int_equal(pd_head_read(&h, header_with_place, "10.0.0.2;1029", &eb), ERR_OK);
    assert_string_equal(h.kv_at, "10.0.0.2;1029");
    assert_int_equal(pd_head_read(&h, header_with_place, NULL, &eb), ERR_OK);
    assert_string_equal(h.kv_at, "");
}

static void the_tenant_is_a_word(void **state) {
    (void)state;
    static const struct {
        const char *given, *taken; /* NULL: refused */
    } rows[] = {
        {NULL, ""},
        {"", ""},
        {"key-00112233445566778899aabbccddeeff", "key-00112233445566778899aabbccddeeff"},
        {"addr-2001:db8::", "addr-2001:db8::"},
        {"key 1", NULL},
        {"1234567890123456789012345678901234567890123456789012345678901234", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pd_head h;
        struct errbuf eb = {0};
        struct given g = {
            .req_type = "prefill", .req_id = "1", .d_target = "10.0.0.1", .tenant = rows[i].given};
        enum err e = pd_head_read(&h, header, &g, &eb);
        assert_int_equal(e, rows[i].taken != NULL ? ERR_OK : ERR_INVALID);
        if (e == ERR_OK)
            assert_string_equal(h.tenant, rows[i].taken);
        else
            assert_non_null(strstr(eb.text, "Parameter baton-tenant must be 1 to 63"));
    }
}

static void the_record_has_a_length(void **state) {
    (void)state;
    static const struct {
        const char *given, *recompute;
        uint32_t taken; /* 0: refused, unless nothing was given */
    } rows[] = {
        {NULL, NULL, 0},      {"1", NULL, 1},      {"4200000", NULL, 4200000},
        {"4200001", NULL, 0}, {"0", NULL, 0},      {"", NULL, 0},
        {"-1", NULL, 0},      {"12 ", NULL, 0},    {"4294967297", NULL, 0},
        {"12", "true", 0},    {"12", "false", 12}, {NULL, "true", 0},
        {"0x10", NULL, 0},    {"+5", NULL, 0},     {"99999999999", NULL, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pd_head h;
        struct errbuf eb = {0};
        char text[128];
        struct given g = {.req_type = "prefill",
                          .req_id = "1",
                          .d_target = "10.0.0.1",
                          .is_recompute = rows[i].recompute,
                          .replay = rows[i].given};
        enum err e = pd_head_read(&h, header, &g, &eb);
        bool good = rows[i].given == NULL || rows[i].taken > 0;
        assert_int_equal(e, good ? ERR_OK : ERR_INVALID);
        if (good) assert_int_equal(h.replay_bytes, rows[i].taken);
        if (good) continue;
        snprintf(text, sizeof(text),
                 "Parameter baton-replay must be an integer from 1 to 4200000 but got %s",
                 rows[i].given);
        assert_string_equal(eb.text,
                            rows[i].recompute != NULL
                                ? "Parameter baton-replay cannot be set when is-recompute is true."
                                : text);
    }
}

static void the_id_may_be_as_long_as_the_limit(void **state) {
    (void)state;
    char id[REQ_ID_BYTES_MAX + 2];
    struct pd_head h;
    struct errbuf eb = {0};
    struct given g = {"prefill", id, "10.0.0.1", NULL, NULL, NULL, NULL};
    memset(id, 'a', sizeof(id));
    id[REQ_ID_BYTES_MAX] = '\0';
    assert_int_equal(pd_head_read(&h, header, &g, &eb), ERR_OK);
    assert_string_equal(h.req_id, id);
    id[REQ_ID_BYTES_MAX] = 'a';
    id[REQ_ID_BYTES_MAX + 1] = '\0';
    assert_int_equal(pd_head_read(&h, header, &g, &eb), ERR_INVALID);
    assert_string_equal(eb.text, "The length of req-id cannot exceed 1024");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_headers_have_their_texts),
        cmocka_unit_test(good_headers_give_their_values),
        cmocka_unit_test(the_time_spent_is_a_number),
        cmocka_unit_test(the_place_that_was_left_is_an_address),
        cmocka_unit_test(the_tenant_is_a_word),
        cmocka_unit_test(the_record_has_a_length),
        cmocka_unit_test(the_id_may_be_as_long_as_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
