/* Goal: the sums over instances are right by name and labels, never fall, and weigh as cluster-api
 * 6.6 says; a text that is not the format changes nothing.
 * Method: small texts whose sums can be done by head: two roles, a restart, a switch, a silent
 * instance; every prefix of a good text, as a cut connection would leave it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "coordinator/prom_merge.h"

static struct prom_merge *fresh(void) {
    struct prom_merge *pm;
    assert_int_equal(prom_merge_create(&pm), ERR_OK);
    prom_merge_begin(pm);
    return pm;
}

static enum err put(struct prom_merge *pm, uint32_t id, const char *role, double blocks,
                    const char *text, size_t n) {
    char name[16], address[24];
    snprintf(name, sizeof(name), "i%u", (unsigned)id);
    snprintf(address, sizeof(address), "10.0.0.%u:1", (unsigned)id);
    return prom_merge_add(
        pm,
        &(struct prom_source){
            .id = id, .role = role, .name = name, .address = address, .blocks = blocks},
        text, n);
}

static void add(struct prom_merge *pm, uint32_t id, const char *role, double blocks,
                const char *text) {
    assert_int_equal(put(pm, id, role, blocks, text, strlen(text)), ERR_OK);
}

static char *text_of(const struct prom_merge *pm) {
    struct buf b = BUF_INIT;
    prom_merge_write(pm, &b);
    return b.data != NULL ? buf_steal(&b) : strdup("");
}

static void assert_text(const struct prom_merge *pm, const char *want) {
    char *got = text_of(pm);
    assert_string_equal(got, want);
    free(got);
}

static bool has(const struct prom_merge *pm, const char *part) {
    char *got = text_of(pm);
    bool found = strstr(got, part) != NULL;
    free(got);
    return found;
}

#define COUNTER "# HELP c_total C.\n# TYPE c_total counter\n"
#define GAUGE   "# HELP g G.\n# TYPE g gauge\n"

static void sums_by_name_labels_and_role(void **state) {
    (void)state;
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 1, COUNTER "c_total{m=\"x\"} 3\n" GAUGE "g 2\n");
    add(pm, 2, "prefill", 1, COUNTER "c_total{m=\"x\"} 4\nc_total{m=\"y\"} 1\n" GAUGE "g 5\n");
    add(pm, 3, "decode", 1, GAUGE "g 1\n" COUNTER "c_total{m=\"x\"} 10 1700000000\n");
    assert_text(pm, COUNTER "c_total{m=\"x\",role=\"prefill\"} 7\n"
                            "c_total{m=\"y\",role=\"prefill\"} 1\n"
                            "c_total{m=\"x\",role=\"decode\"} 10\n" GAUGE
                            "g{role=\"prefill\"} 7\ng{role=\"decode\"} 1\n");
    prom_merge_destroy(&pm);
}

static void a_counter_never_falls(void **state) {
    (void)state;
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 1, COUNTER "c_total 3\n");
    prom_merge_begin(pm); /* silent */
    assert_true(has(pm, "c_total{role=\"prefill\"} 3\n"));
    prom_merge_begin(pm);
    add(pm, 1, "prefill", 1, COUNTER "c_total 5\n");
    assert_true(has(pm, "c_total{role=\"prefill\"} 5\n"));
    prom_merge_begin(pm); /* restarted: 2 more */
    add(pm, 1, "prefill", 1, COUNTER "c_total 2\n");
    assert_true(has(pm, "c_total{role=\"prefill\"} 7\n"));
    prom_merge_begin(pm); /* switched: what follows is the new role's */
    add(pm, 1, "decode", 1, COUNTER "c_total 6\n");
    assert_true(has(pm, "c_total{role=\"prefill\"} 7\nc_total{role=\"decode\"} 4\n"));
    prom_merge_forget(pm, 1);
    prom_merge_begin(pm); /* another one of that id */
    add(pm, 1, "decode", 1, COUNTER "c_total 1\n");
    assert_true(has(pm, "c_total{role=\"decode\"} 5\n"));
    add(pm, 2, "decode", 1, COUNTER "c_total -1\nc_total NaN\n");
    assert_true(has(pm, "c_total{role=\"decode\"} 5\n"));
    prom_merge_destroy(&pm);
}

#define UP "# HELP pd_link_up L.\n# TYPE pd_link_up gauge\n"

/* What is true of one instance only is not summed; one that is gone leaves nothing. */
static void some_gauges_are_of_each_instance(void **state) {
    (void)state;
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 1, UP "pd_link_up{peer=\"3\"} 1\n");
    add(pm, 2, "prefill", 1, UP "pd_link_up{peer=\"3\"} 0\npd_link_up 1\n");
    assert_text(
        pm,
        UP "pd_link_up{peer=\"3\",instance_name=\"i1\",address=\"10.0.0.1:1\",role=\"prefill\"} 1\n"
           "pd_link_up{peer=\"3\",instance_name=\"i2\",address=\"10.0.0.2:1\",role=\"prefill\"} 0\n"
           "pd_link_up{instance_name=\"i2\",address=\"10.0.0.2:1\",role=\"prefill\"} 1\n");
    prom_merge_begin(pm);
    add(pm, 2, "decode", 1,
        "# TYPE x_not_after_seconds gauge\nx_not_after_seconds{file=\"a\"} 17\n");
    assert_text(pm, "# HELP x_not_after_seconds \n# TYPE x_not_after_seconds gauge\n"
                    "x_not_after_seconds{file=\"a\",instance_name=\"i2\",address=\"10.0.0.2:1\","
                    "role=\"decode\"} 17\n");
    prom_merge_begin(pm);
    prom_merge_begin(pm);
    assert_text(pm, "");
    add(pm, 1, "prefill", 1, UP "pd_link_up 1\n");
    assert_true(
        has(pm, "pd_link_up{instance_name=\"i1\",address=\"10.0.0.1:1\",role=\"prefill\"} 1\n"));
    prom_merge_destroy(&pm);
}

static void a_gauge_is_of_this_round(void **state) {
    (void)state;
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 1, GAUGE "g 2\n");
    prom_merge_begin(pm);
    assert_text(pm, "");
    add(pm, 2, "prefill", 1, GAUGE "g 3\n");
    assert_text(pm, GAUGE "g{role=\"prefill\"} 3\n");
    prom_merge_destroy(&pm);
}

static void histograms_add_up(void **state) {
    (void)state;
#define HISTOGRAM(a, b, sum)                                                                       \
    "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} " a "\nh_bucket{le=\"+Inf\"} " b          \
    "\nh_sum " sum "\nh_count " b "\n"
    struct prom_merge *pm = fresh();
    add(pm, 1, "decode", 1, HISTOGRAM("1", "2", "3.5"));
    add(pm, 2, "decode", 1, HISTOGRAM("4", "4", "1"));
    assert_text(pm, "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\",role=\"decode\"} 5\n"
                    "h_bucket{le=\"+Inf\",role=\"decode\"} 6\nh_sum{role=\"decode\"} 4.5\n"
                    "h_count{role=\"decode\"} 6\n");
    prom_merge_destroy(&pm);
}

static void a_usage_is_weighted_with_blocks(void **state) {
    (void)state;
#define USAGE "# HELP npu_cache_usage_perc U.\n# TYPE npu_cache_usage_perc gauge\n"
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 300, USAGE "npu_cache_usage_perc 1\n");
    add(pm, 2, "prefill", 100, USAGE "npu_cache_usage_perc 0\n");
    assert_text(pm, USAGE "npu_cache_usage_perc{role=\"prefill\"} 0.75\n");
    prom_merge_begin(pm);
    add(pm, 1, "prefill", 0, USAGE "npu_cache_usage_perc 1\n"); /* says it has no block */
    assert_text(pm, USAGE "npu_cache_usage_perc{role=\"prefill\"} 0\n");
    prom_merge_destroy(&pm);
}

/* Two that say the same say it once; of two times the later one stands. */
static void a_fact_is_no_sum(void **state) {
    (void)state;
#define INFO "# HELP vllm:x_info I.\n# TYPE vllm:x_info gauge\n"
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 300, INFO "vllm:x_info{a=\"1\"} 1780000005\n");
    add(pm, 2, "prefill", 100, INFO "vllm:x_info{a=\"1\"} 1780000003\n");
    assert_text(pm, INFO "vllm:x_info{a=\"1\",role=\"prefill\"} 1780000005\n");
    prom_merge_begin(pm);
    add(pm, 1, "prefill", 1, INFO "vllm:x_info{a=\"1\"} 1\n");
    assert_text(pm, INFO "vllm:x_info{a=\"1\",role=\"prefill\"} 1\n");
    prom_merge_destroy(&pm);
}

static void hits_are_those_of_prefill_when_there_is_any(void **state) {
    (void)state;
#define HITS(rate, all, hit)                                                                       \
    "# HELP npu_prefix_cache_hit_rate R.\n# TYPE npu_prefix_cache_hit_rate gauge\n"                \
    "npu_prefix_cache_hit_rate " rate "\n# HELP all_radix_match_num A.\n"                          \
    "# TYPE all_radix_match_num gauge\nall_radix_match_num " all                                   \
    "\n# HELP npu_radix_match_hit_num H.\n# TYPE npu_radix_match_hit_num gauge\n"                  \
    "npu_radix_match_hit_num " hit "\n"
    struct prom_merge *pm = fresh();
    add(pm, 2, "decode", 1, HITS("1", "10", "10"));
    assert_true(has(pm, "npu_prefix_cache_hit_rate{role=\"decode\"} 1\n"));
    add(pm, 1, "prefill", 1, HITS("0.5", "2", "1"));
    add(pm, 3, "prefill", 1, HITS("0", "6", "0"));
    assert_true(has(pm, "npu_prefix_cache_hit_rate{role=\"prefill\"} 0.125\n"));
    assert_false(has(pm, "npu_prefix_cache_hit_rate{role=\"decode\"}"));
    prom_merge_destroy(&pm);
}

static void what_the_coordinator_knows_better_is_left_out(void **state) {
    (void)state;
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 1,
        "# TYPE request_received_total counter\nrequest_received_total 3\n"
        "# TYPE failed_request_perc gauge\nfailed_request_perc 1\nnot_declared 4\n"
        "# TYPE process_open_fds gauge\nprocess_open_fds 9\n"
        "# TYPE baton_build_info gauge\nbaton_build_info{version=\"1\",commit=\"x\"} 1\n"
        "# TYPE baton_log_dropped_total counter\nbaton_log_dropped_total 2\n"
        "# TYPE moe_expert_rows_total counter\nmoe_expert_rows_total{expert=\"1\"} 2\n"
        "# TYPE s summary\ns{quantile=\"0.5\"} 4\n");
    assert_text(pm, "");
    prom_merge_destroy(&pm);
}

static void a_role_of_its_own_stays(void **state) {
    (void)state;
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 1,
        "# TYPE pd_role gauge\npd_role{x=\"role=\\\"\",role=\"decode\"} 1\npd_role{xrole=\"1\"} "
        "1\n");
    assert_true(has(pm, "pd_role{x=\"role=\\\"\",role=\"decode\"} 1\n"));
    assert_true(has(pm, "pd_role{xrole=\"1\",role=\"prefill\"} 1\n"));
    prom_merge_destroy(&pm);
}

static void a_bad_text_changes_nothing(void **state) {
    (void)state;
    static const char *const bad[] = {
        "c_total{a=\"b} 1\n",  "c_total{a=b} 1\n",
        "c_total{a=\"b\" 1\n", "c_total\n",
        "c_total \n",          "c_total x\n",
        "c_total 1 x\n",       "1c 1\n",
        "c_total{a=\"\\",      "{} 1\n",
        "c_total 1 1 1\n",     "<html>\n",
        "c_total{,} 1\n",      "c_total{a=\"b\"}1\n",
    };
    struct prom_merge *pm = fresh();
    add(pm, 1, "prefill", 1, COUNTER "c_total 3\n");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[256];
        int n = snprintf(text, sizeof(text), COUNTER "c_total 9\n%s", bad[i]);
        if (put(pm, 1, "prefill", 1, text, (size_t)n) != ERR_BAD_FRAME)
            fail_msg("taken: %s", bad[i]);
    }
    assert_int_equal(put(pm, 1, "prefill", 1, "c_total 4\n\0x", 12), ERR_BAD_FRAME);
    char *longest = malloc(PROM_LINE_BYTES_MAX + 2);
    memset(longest, 'a', PROM_LINE_BYTES_MAX);
    memcpy(longest + PROM_LINE_BYTES_MAX - 2, " 1", 2);
    assert_int_equal(put(pm, 1, "p", 1, longest, PROM_LINE_BYTES_MAX), ERR_BAD_FRAME);
    memset(longest, '#', PROM_LINE_BYTES_MAX);
    assert_int_equal(put(pm, 1, "p", 1, longest, PROM_LINE_BYTES_MAX - 1), ERR_OK);
    free(longest);
    assert_text(pm, COUNTER "c_total{role=\"prefill\"} 3\n");
    prom_merge_destroy(&pm);
}

static void a_cut_text_is_read_or_refused(void **state) {
    (void)state;
    static const char text[] = COUNTER "c_total{a=\"b\\\"\",c=\"d\",} 1.5e3 1700000000\n" GAUGE
                                       "g +Inf\n# a word\n\ng{x=\"y\"} -2\r\n";
    for (size_t n = 0; n <= sizeof(text) - 1; n++) {
        struct prom_merge *pm = fresh();
        enum err e = put(pm, 1, "decode", 1, text, n);
        assert_true(e == ERR_OK || e == ERR_BAD_FRAME);
        if (e == ERR_BAD_FRAME) assert_text(pm, "");
        prom_merge_destroy(&pm);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_by_name_labels_and_role),
        cmocka_unit_test(a_counter_never_falls),
        cmocka_unit_test(some_gauges_are_of_each_instance),
        cmocka_unit_test(a_gauge_is_of_this_round),
        cmocka_unit_test(histograms_add_up),
        cmocka_unit_test(a_usage_is_weighted_with_blocks),
        cmocka_unit_test(a_fact_is_no_sum),
        cmocka_unit_test(hits_are_those_of_prefill_when_there_is_any),
        cmocka_unit_test(what_the_coordinator_knows_better_is_left_out),
        cmocka_unit_test(a_role_of_its_own_stays),
        cmocka_unit_test(a_bad_text_changes_nothing),
        cmocka_unit_test(a_cut_text_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
