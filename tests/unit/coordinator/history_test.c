/* Goal: the last hour is told as it was: each step what happened in it, silence as silence, nothing
 * older than the ring, percentiles within a bucket of the truth; and memory stays bounded whoever
 * comes. Method: made-up clocks and numbers, read back from the JSON. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/history.h"
#include "proto/json.h"

enum { START = 777000, STEP = HISTORY_STEP_MS };

static struct json_value *told(const struct history *h, uint64_t now, uint64_t since,
                               const uint32_t *ids, size_t n) {
    struct buf out = BUF_INIT;
    struct json_value *root = NULL;
    history_write(h, now, since, ids, n, &out);
    assert_false(out.failed);
    assert_int_equal(json_read(&root, out.data, out.len, NULL, NULL), ERR_OK);
    buf_free(&out);
    return root;
}

static uint64_t number(const struct json_value *o, const char *name) {
    uint64_t v = UINT64_MAX;
    json_get_u64(o, name, &v);
    return v;
}

/* Of a series; NAN: null. */
static double at(const struct json_value *root, const char *name, size_t i) {
    struct json_value *series, *arr;
    double v = NAN;
    assert_int_equal(json_get(root, "series", &series), JSON_OK);
    assert_int_equal(json_get_arr(series, name, &arr), JSON_OK);
    assert_true(i < json_arr_len(arr));
    json_as_f64(json_arr_at(arr, i), &v);
    return v;
}

static double inst_at(const struct json_value *root, const char *id, const char *name, size_t i) {
    struct json_value *all, *one, *arr;
    double v = NAN;
    assert_int_equal(json_get(root, "instances", &all), JSON_OK);
    assert_int_equal(json_get(all, id, &one), JSON_OK);
    assert_int_equal(json_get_arr(one, name, &arr), JSON_OK);
    json_as_f64(json_arr_at(arr, i), &v);
    return v;
}

static void first(struct history *h, uint64_t now, uint64_t ttft_us) {
    history_first_token(h, now,
                        &(struct history_first){.p_id = 1,
                                                .d_id = 2,
                                                .ttft_us = ttft_us,
                                                .prompt_tokens = 100,
                                                .cached_tokens = 40,
                                                .output_tokens = 1,
                                                .kv_bytes = 1000,
                                                .transfer_ms = 4});
}

/* What happens in a step is told once it has ended, and only what is asked for. */
static void steps(void **state) {
    struct history *h = history_create(START);
    (void)state;
    first(h, START + 10, 20000);
    history_tokens(h, START + 20, 2, 3, 30000);
    history_ended(h, START + 30, HISTORY_ANSWERED);
    history_ended(h, START + STEP + 1, HISTORY_FAILED);
    struct json_value *root = told(h, START + STEP - 1, 0, NULL, 0);
    assert_int_equal(number(root, "next"), 0);
    json_put(root);
    const uint32_t ids[] = {1, 2, 9};
    root = told(h, START + 3 * STEP + 7, 0, ids, 3);
    assert_int_equal(number(root, "from"), 0);
    assert_int_equal(number(root, "next"), 3);
    assert_int_equal(number(root, "ageMs"), 7);
    assert_true(at(root, "promptTokens", 0) == 100 && at(root, "cachedTokens", 0) == 40);
    assert_true(at(root, "outputTokens", 0) == 4 && at(root, "kvBytes", 0) == 1000);
    assert_true(at(root, "answered", 0) == 1 && at(root, "failed", 0) == 0);
    assert_true(at(root, "failed", 1) == 1 && at(root, "promptTokens", 1) == 0);
    assert_true(isnan(at(root, "ttftMs50", 1))); /* nobody waited for one */
    assert_true(isnan(at(root, "failed", 2)));   /* nothing was noted at all */
    assert_true(inst_at(root, "1", "tokens", 0) == 100 && inst_at(root, "2", "tokens", 0) == 3);
    assert_true(inst_at(root, "1", "waitMs", 0) == 20 && inst_at(root, "2", "waitMs", 0) == 10);
    assert_true(isnan(inst_at(root, "2", "waitMs", 1)));
    json_put(root);
    root = told(h, START + 3 * STEP, 2, NULL, 0);
    assert_int_equal(number(root, "from"), 2);
    json_put(root);
    root = told(h, START + 3 * STEP, 99, NULL, 0); /* of another life of the coordinator */
    assert_int_equal(number(root, "from"), 3);
    json_put(root);
    history_destroy(&h);
    assert_null(h);
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= want / 4)) fail_msg("%f is not near %f", got, want);
}

/* A thousand waits from 1 ms to 1 s, evenly: half are below 500 ms, and so on. */
static void percentiles(void **state) {
    struct history *h = history_create(START);
    (void)state;
    for (uint64_t i = 1; i <= 1000; i++) {
        first(h, START, i * 1000);
        history_tokens(h, START, 2, 2, i * 2 * 100); /* two tokens a piece: 0.1 ms to 100 ms each */
    }
    struct json_value *root = told(h, START + STEP, 0, NULL, 0);
    near(at(root, "ttftMs50", 0), 500);
    near(at(root, "ttftMs90", 0), 900);
    near(at(root, "ttftMs99", 0), 990);
    near(at(root, "gapMs50", 0), 50);
    near(at(root, "gapMs99", 0), 99);
    json_put(root);
    first(h, START + STEP, UINT64_MAX / 2); /* beyond the last bucket: in it */
    root = told(h, START + 2 * STEP, 1, NULL, 0);
    assert_true(at(root, "ttftMs50", 0) > 20000);
    json_put(root);
    history_destroy(&h);
}

/* Over the end of the ring, slowly and in one leap, nothing old comes back. */
static void forgets(void **state) {
    struct history *h = history_create(START);
    const uint32_t ids[] = {1};
    const uint64_t leap = (uint64_t)STEP * HISTORY_STEPS * 10;
    (void)state;
    for (uint64_t i = 0; i < 2 * HISTORY_STEPS; i++) {
        history_ended(h, START + i * STEP, HISTORY_ANSWERED);
        first(h, START + i * STEP, 1000);
    }
    struct json_value *root = told(h, START + (2 * HISTORY_STEPS - 1) * (uint64_t)STEP, 0, ids, 1);
    assert_int_equal(number(root, "next"), 2 * HISTORY_STEPS - 1);
    assert_int_equal(number(root, "from"), HISTORY_STEPS);
    for (size_t i = 0; i < HISTORY_STEPS - 1; i++) {
        assert_true(at(root, "answered", i) == 1);
        assert_true(inst_at(root, "1", "tokens", i) == 100);
    }
    json_put(root);
    first(h, START + leap, 1000);
    root = told(h, START + leap + STEP, 0, ids, 1);
    for (size_t i = 0; i < HISTORY_STEPS - 2; i++) {
        assert_true(isnan(at(root, "answered", i)));
        assert_false(inst_at(root, "1", "tokens", i) > 0);
    }
    assert_true(at(root, "promptTokens", HISTORY_STEPS - 2) == 100);
    json_put(root);
    /* Nobody noted anything for hours: it is asked all the same. */
    root = told(h, START + 3 * leap, 0, ids, 1);
    for (size_t i = 0; i < HISTORY_STEPS - 1; i++) assert_true(isnan(at(root, "answered", i)));
    json_put(root);
    history_destroy(&h);
}

static void gauges(void **state) {
    struct history *h = history_create(START);
    (void)state;
    history_gauges(h, START,
                   &(struct history_gauges){.queued = 9, .running = 2, .kv_permille = 500});
    history_gauges(h, START + 1, &(struct history_gauges){.queued = 1, .running = 3});
    history_instance(h, START + 1, 5, &(struct history_load){.batch = 7, .kv_permille = 250});
    const uint32_t ids[] = {5};
    struct json_value *root = told(h, START + STEP, 0, ids, 1);
    assert_true(at(root, "queued", 0) == 9 && at(root, "running", 0) == 3);
    assert_true(at(root, "kvUse", 0) == 0);
    assert_true(inst_at(root, "5", "batch", 0) == 7);
    assert_true(fabs(inst_at(root, "5", "kvUse", 0) - 0.25) < 1e-9);
    json_put(root);
    history_destroy(&h);
}

/* Tokens and bytes a second settle at what comes, and fade when nothing does. */
static void rates(void **state) {
    struct history *h = history_create(START);
    struct history_link l;
    uint64_t now = START;
    (void)state;
    assert_false(history_link_get(h, now, 1, 2, &l));
    for (; now < START + 60000; now += 100) first(h, now, 1000); /* 10 of them a second */
    assert_true(history_link_get(h, now, 1, 2, &l));
    near(l.bytes_per_s, 10000);
    assert_true(fabs(l.transfer_ms - 4) < 1e-6);
    assert_int_equal(l.n, 600);
    near(history_tokens_per_s(h, now, 1), 1000);
    assert_true(history_tokens_per_s(h, now + 60000, 1) < 1);
    assert_true(history_tokens_per_s(h, now, 77) == 0);
    assert_false(history_link_get(h, now, 2, 1, &l));
    history_destroy(&h);
}

/* More instances and links than there is room for: the newest are known. */
static void bounded(void **state) {
    struct history *h = history_create(START);
    struct history_link l;
    const uint32_t n = 3 * HISTORY_INSTANCES_MAX, m = 3 * HISTORY_LINKS_MAX;
    (void)state;
    for (uint32_t i = 1; i <= n; i++) history_tokens(h, START + i, i, 10, 1000);
    for (uint32_t i = 1; i <= n; i++)
        assert_true((history_tokens_per_s(h, START + n, i) > 0) == (i > n - HISTORY_INSTANCES_MAX));
    for (uint32_t i = 1; i <= HISTORY_LINKS_MAX + 64; i++)
        history_first_token(h, START + n + i,
                            &(struct history_first){.p_id = 7, .d_id = i, .kv_bytes = 1});
    for (uint32_t i = 1; i <= HISTORY_LINKS_MAX + 64; i++)
        assert_true(history_link_get(h, START + n + m, 7, i, &l) == (i > 64));
    history_destroy(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps),  cmocka_unit_test(percentiles), cmocka_unit_test(forgets),
        cmocka_unit_test(gauges), cmocka_unit_test(rates),       cmocka_unit_test(bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
