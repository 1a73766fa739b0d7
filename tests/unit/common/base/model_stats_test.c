/* Goal: every request that ended is in the counts of its model or adapter, once; the parts of those
 * that were answered make up their whole, whatever their times say; the list of names has an end.
 * Method: requests made by hand, one of each story, then thousands at random and of more names than
 * there are places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "common/base/clock.h"
#include "common/base/model_stats.h"

static int setup(void **state) {
    *state = model_stats_create();
    return *state != NULL ? 0 : -1;
}

static int teardown(void **state) {
    model_stats_destroy((struct model_stats **)state);
    assert_null(*state);
    model_stats_destroy((struct model_stats **)state); /* again is nothing */
    return 0;
}

static struct model_counts counts(void **state, const char *adapter) {
    struct model_counts c;
    model_stats_get(*state, adapter, &c);
    return c;
}

static void an_answer_is_cut_into_its_parts(void **state) {
    const uint64_t before_ms = clock_unix_us() / 1000;
    model_stats_add(*state, NULL,
                    &(struct model_request){.ok = true,
                                            .n_prompts = 3,
                                            .arrival_us = 1000,
                                            .first_us = 1500,
                                            .last_us = 2700,
                                            .end_us = 2710,
                                            .queue_us = 200});
    struct model_counts c = counts(state, "");
    assert_int_equal(c.n_ok, 1);
    assert_int_equal(c.n_prompts, 3);
    assert_int_equal(c.n_failed, 0);
    assert_int_equal(c.ok_us, 1710);
    assert_int_equal(c.queue_us, 200);
    assert_int_equal(c.input_us, 300);
    assert_int_equal(c.infer_us, 1200);
    assert_int_equal(c.output_us, 10);
    assert_true(c.last_unix_ms >= before_ms && c.last_unix_ms <= clock_unix_us() / 1000);

    /* One that waited again, after its first token. */
    model_stats_add(*state, "",
                    &(struct model_request){.ok = true,
                                            .arrival_us = 1000,
                                            .first_us = 1500,
                                            .last_us = 2700,
                                            .end_us = 2700,
                                            .queue_us = 500,
                                            .queue_later_us = 700});
    c = counts(state, NULL);
    assert_int_equal(c.n_ok, 2);
    assert_int_equal(c.n_prompts, 4);
    assert_int_equal(c.queue_us, 200 + 1200);
    assert_int_equal(c.input_us, 300);
    assert_int_equal(c.infer_us, 1200 + 500);
    assert_int_equal(c.output_us, 10);
}

static void an_answer_without_tokens_is_all_input(void **state) {
    model_stats_add(
        *state, NULL,
        &(struct model_request){.ok = true, .arrival_us = 10, .end_us = 110, .queue_us = 40});
    const struct model_counts c = counts(state, NULL);
    assert_int_equal(c.ok_us, 100);
    assert_int_equal(c.queue_us, 40);
    assert_int_equal(c.input_us, 60);
    assert_int_equal(c.infer_us + c.output_us, 0);
}

static void a_failure_is_no_inference(void **state) {
    model_stats_add(*state, "poet",
                    &(struct model_request){.n_prompts = 2, .arrival_us = 5, .end_us = 25});
    struct model_counts c = counts(state, "poet");
    assert_int_equal(c.n_failed, 1);
    assert_int_equal(c.failed_us, 20);
    assert_int_equal(c.n_ok + c.n_prompts + c.ok_us + c.last_unix_ms, 0);
    c = counts(state, NULL); /* nobody else's */
    assert_int_equal(c.n_failed + c.n_ok, 0);
}

static void parts_make_up_the_whole(void **state) {
    srand(7);
    for (int i = 0; i < 20000; i++) {
        const struct model_request r = {.ok = true,
                                        .arrival_us = (uint64_t)(rand() % 1000),
                                        .first_us = (uint64_t)(rand() % 1000),
                                        .last_us = (uint64_t)(rand() % 1000),
                                        .end_us = (uint64_t)(rand() % 1000),
                                        .queue_us = (uint64_t)(rand() % 1000),
                                        .queue_later_us = (uint64_t)(rand() % 1000)};
        model_stats_add(*state, NULL, &r);
        const struct model_counts c = counts(state, NULL);
        assert_int_equal(c.queue_us + c.input_us + c.infer_us + c.output_us, c.ok_us);
        assert_true(c.ok_us <= 1000 * c.n_ok);
    }
}

static void count_one(void **state, int i) {
    char name[16];
    snprintf(name, sizeof(name), "a%d", i);
    model_stats_add(*state, name, &(struct model_request){.ok = true, .end_us = 1});
}

static uint64_t n_ok(void **state, int i) {
    char name[16];
    snprintf(name, sizeof(name), "a%d", i);
    return counts(state, name).n_ok;
}

static void the_list_has_an_end(void **state) {
    model_stats_add(*state, NULL, &(struct model_request){.ok = true, .end_us = 1});
    for (int i = 0; i < MODEL_STATS_MAX - 1; i++) count_one(state, i);
    count_one(state, 0); /* asked for again: the second is the oldest now */
    assert_int_equal(n_ok(state, 0), 2);
    assert_int_equal(n_ok(state, 1), 1);
    count_one(state, MODEL_STATS_MAX);
    assert_int_equal(n_ok(state, MODEL_STATS_MAX), 1);
    assert_int_equal(n_ok(state, 0), 2);
    assert_int_equal(n_ok(state, 1), 0);
    assert_int_equal(n_ok(state, 2), 1);
    assert_int_equal(counts(state, NULL).n_ok, 1); /* the model stays, old as it is */
}

static void nothing_counts_where_there_is_no_list(void **state) {
    void *none = NULL;
    (void)state;
    model_stats_add(NULL, NULL, &(struct model_request){.ok = true});
    assert_int_equal(counts(&none, NULL).n_ok, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_is_cut_into_its_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(an_answer_without_tokens_is_all_input, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failure_is_no_inference, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_make_up_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(the_list_has_an_end, setup, teardown),
        cmocka_unit_test(nothing_counts_where_there_is_no_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
