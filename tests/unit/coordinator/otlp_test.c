/* Goal: the spans of a request say when it waited, was prefilled, sent its KV, decoded and was
 * silent, inside of the request's own, as OTLP's JSON; lists of the environment are taken apart, or
 * refused. Method: the pure parts, and what they print read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/otlp_priv.h"
#include "coordinator/relay_priv.h"
#include "proto/json.h"

static void count_up(void *arg, uint8_t id[SPAN_ID_BYTES]) {
    memset(id, ++*(uint8_t *)arg, SPAN_ID_BYTES);
}

static struct json_value *spans_of(const struct recent *e, bool has_parent) {
    struct buf b = BUF_INIT;
    struct otlp_place at = {.has_parent = has_parent};
    struct json_value *v = NULL;
    struct errbuf eb = {0};
    uint8_t n = 0;
    memset(&at.own, 0xAB, TRACE_ID_BYTES + SPAN_ID_BYTES);
    memset(at.parent, 0xCD, SPAN_ID_BYTES);
    otlp_head(&b, "a \"service\"", "deployment.environment=test, k%20=v%2C1");
    otlp_spans(&b, &at, e, count_up, &n);
    otlp_spans(&b, &at, e, count_up, &n);
    otlp_tail(&b);
    if (json_read(&v, b.data, b.len, NULL, &eb) != ERR_OK) fail_msg("%s: %s", eb.text, b.data);
    buf_free(&b);
    return v;
}

static struct json_value *at(struct json_value *v, const char *key, size_t i) {
    struct json_value *arr = NULL;
    assert_int_equal(json_get_arr(v, key, &arr), JSON_OK);
    assert_true(i < json_arr_len(arr));
    return json_arr_at(arr, i);
}

static const char *text(struct json_value *v, const char *key) {
    const char *s = "";
    size_t n;
    json_get_str(v, key, &s, &n);
    return s;
}

static uint64_t ns(struct json_value *v, const char *key) {
    return strtoull(text(v, key), NULL, 10);
}

static struct json_value *span_named(struct json_value *scope, const char *name) {
    struct json_value *arr = NULL;
    assert_int_equal(json_get_arr(scope, "spans", &arr), JSON_OK);
    for (size_t i = 0; i < json_arr_len(arr); i++)
        if (strcmp(text(json_arr_at(arr, i), "name"), name) == 0) return json_arr_at(arr, i);
    return NULL;
}

static void a_request_with_everything(void **state) {
    (void)state;
    struct lost_attempt lost = {
        .cause = CAUSE_D_LOST, .n_kept = 7, .silence_us = 5000, .silent_unix_us = 1000000 + 300000};
    strcpy(lost.d_name, "d\"1");
    struct recent e = {.id = "17",
                       .path = "/v1/chat/completions",
                       .status = 200,
                       .epoch = 1,
                       .started_unix_ms = 1000,
                       .queue_us = 20000,
                       .ttft_us = 120000,
                       .total_ms = 900,
                       .n_tokens = 42,
                       .lost = &lost,
                       .n_lost = 1,
                       .handover = {.kv_bytes = 4096,
                                    .kv_blocks = 2,
                                    .prompt_tokens = 9,
                                    .transfer_ms = 60,
                                    .exposed_ms = 10,
                                    .prefill_ms = 80}};
    struct json_value *v = spans_of(&e, true),
                      *scope = at(at(v, "resourceSpans", 0), "scopeSpans", 0);
    struct json_value *root = span_named(scope, "/v1/chat/completions"), *arr = NULL;
    assert_int_equal(json_get_arr(scope, "spans", &arr), JSON_OK);
    assert_int_equal(json_arr_len(arr), 12);
    assert_string_equal(text(root, "traceId"), "abababababababababababababababab");
    assert_string_equal(text(root, "spanId"), "abababababababab");
    assert_string_equal(text(root, "parentSpanId"), "cdcdcdcdcdcdcdcd");
    assert_int_equal(ns(root, "startTimeUnixNano"), 1000000000);
    assert_int_equal(ns(root, "endTimeUnixNano"), 1900000000);
    assert_int_equal(ns(at(root, "events", 0), "timeUnixNano"), 1120000000);
    const struct {
        const char *name;
        uint64_t begin_ms, end_ms;
    } want[] = {{"queue", 1000, 1020},
                {"prefill", 1040, 1120},
                {"decode", 1120, 1900},
                {"kv_transfer", 1070, 1130},
                {"recover", 1300, 1305}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct json_value *s = span_named(scope, want[i].name);
        assert_non_null(s);
        assert_string_equal(text(s, "parentSpanId"), "abababababababab");
        assert_int_equal(ns(s, "startTimeUnixNano"), want[i].begin_ms * 1000000);
        assert_int_equal(ns(s, "endTimeUnixNano"), want[i].end_ms * 1000000);
    }
    json_put(v);
}

static void a_request_that_failed_early(void **state) {
    (void)state;
    struct recent e = {.id = "17",
                       .path = "/infer",
                       .status = 503,
                       .cause = CAUSE_P_LOST,
                       .started_unix_ms = 1000,
                       .total_ms = 3};
    struct json_value *v = spans_of(&e, false),
                      *scope = at(at(v, "resourceSpans", 0), "scopeSpans", 0);
    struct json_value *root = span_named(scope, "/infer"), *arr = NULL, *status = NULL, *gone;
    assert_int_equal(json_get_arr(scope, "spans", &arr), JSON_OK);
    assert_int_equal(json_arr_len(arr), 2);
    assert_int_equal(json_get(root, "parentSpanId", &gone), JSON_ABSENT);
    assert_int_equal(json_get_obj(root, "status", &status), JSON_OK);
    assert_string_equal(text(status, "message"), "p_lost");
    json_put(v);
}

static void times_that_do_not_fit_stay_inside(void **state) {
    (void)state;
    struct recent e = {
        .id = "17",
        .path = "/infer",
        .status = 200,
        .started_unix_ms = 1000,
        .ttft_us = 5900,
        .queue_us = 9000,
        .total_ms = 5,
        .n_tokens = 1,
        .handover = {.kv_bytes = 1, .transfer_ms = 1e12, .exposed_ms = 1e9, .prefill_ms = -3}};
    struct json_value *v = spans_of(&e, false),
                      *scope = at(at(v, "resourceSpans", 0), "scopeSpans", 0);
    struct json_value *arr = NULL;
    assert_int_equal(json_get_arr(scope, "spans", &arr), JSON_OK);
    for (size_t i = 0; i < json_arr_len(arr); i++) {
        struct json_value *s = json_arr_at(arr, i);
        if (strcmp(text(s, "name"), "queue") == 0) continue; /* what was measured, whatever it is */
        assert_true(ns(s, "startTimeUnixNano") >= 1000000000);
        assert_true(ns(s, "endTimeUnixNano") <= 1005900000);
        assert_true(ns(s, "startTimeUnixNano") <= ns(s, "endTimeUnixNano"));
    }
    json_put(v);
}

static void lists_of_pairs(void **state) {
    const char *list = " a=1,, b = two%2Cthree ,c=";
    struct otlp_pair p;
    bool bad;
    (void)state;
    assert_true(otlp_pair_next(&p, &list, &bad) && strcmp(p.key, "a") == 0 &&
                strcmp(p.value, "1") == 0);
    assert_true(otlp_pair_next(&p, &list, &bad) && strcmp(p.key, "b") == 0 &&
                strcmp(p.value, " two,three") == 0);
    assert_true(otlp_pair_next(&p, &list, &bad) && strcmp(p.key, "c") == 0 && p.value[0] == 0);
    assert_false(otlp_pair_next(&p, &list, &bad) || bad);
    static const char *const wrong[] = {"a", "=1", "a=1,b", "a=%0a", "a=\r"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        list = wrong[i];
        while (otlp_pair_next(&p, &list, &bad)) {}
        assert_true(bad);
    }
}

static void whose_trace_it_is(void **state) {
    struct otlp *o;
    struct errbuf eb = {0};
    struct otlp_place at, other;
    (void)state;
    const struct otlp_opts opts = {.url = "http://127.0.0.1:1/",
                                   .headers = "api-key=x%3Dy",
                                   .service = "s",
                                   .resource = "",
                                   .sample = 1};
    assert_false(otlp_begin(NULL, &at, NULL));
    assert_int_equal(otlp_create(&o, &opts, &eb), ERR_OK);
    static const char parent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    assert_true(otlp_begin(o, &at, parent) && at.has_parent && at.parent[7] == 0xb7);
    assert_true(at.own.trace_id[0] == 0x4b &&
                memcmp(at.own.span_id, at.parent, SPAN_ID_BYTES) != 0);
    assert_false(otlp_begin(o, &at, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"));
    assert_true(otlp_begin(o, &at, "nonsense") && !at.has_parent);
    assert_true(otlp_begin(o, &other, NULL) && !other.has_parent);
    assert_memory_not_equal(at.own.trace_id, other.own.trace_id, TRACE_ID_BYTES);
    otlp_destroy(&o);
    struct otlp_opts none = opts;
    none.sample = 0;
    assert_int_equal(otlp_create(&o, &none, &eb), ERR_OK);
    assert_true(!otlp_begin(o, &at, NULL) && otlp_begin(o, &at, parent));
    otlp_destroy(&o);
    none.headers = "no pair";
    assert_int_equal(otlp_create(&o, &none, &eb), ERR_BAD_CONFIG);
    none.headers = "";
    none.resource = "x";
    assert_int_equal(otlp_create(&o, &none, &eb), ERR_BAD_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_with_everything),
        cmocka_unit_test(a_request_that_failed_early),
        cmocka_unit_test(times_that_do_not_fit_stay_inside),
        cmocka_unit_test(lists_of_pairs),
        cmocka_unit_test(whose_trace_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
