/* Goal: a request is counted once, where it can be measured, whatever way it goes and ends.
 * Method: meters driven by hand as the three roles drive them; the numbers are read from the
 * registry's text. received = success + failed + cancelled must hold after every story. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/base/clock.h"
#include "common/instance/req_meter.h"

struct rig {
    struct metrics *reg;
    struct req_meters *m;
    struct infer_req *req;
};

static int setup(void **state) {
    struct rig *r = calloc(1, sizeof(*r));
    assert_int_equal(metrics_create(&r->reg), ERR_OK);
    assert_int_equal(req_meters_create(&r->m, r->reg, 4), ERR_OK);
    r->req = infer_req_create();
    assert_non_null(r->req);
    r->req->n_prompt = 7;
    r->req->sampling.n_choices = 1;
    *state = r;
    return 0;
}

/* The value of one line; -1: there is none. */
static double value(const struct rig *r, const char *name) {
    struct buf b = BUF_INIT;
    double v = -1;
    size_t n = strlen(name);
    metrics_write(r->reg, &b);
    for (const char *at = b.data; at != NULL; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, n) == 0 && at[n] == ' ') v = strtod(at + n, NULL);
    }
    buf_free(&b);
    return v;
}

#define assert_value(r, name, want) assert_true(value(r, name) == (double)(want))

static int teardown(void **state) {
    struct rig *r = *state;
    assert_true(value(r, "request_received_total") ==
                value(r, "request_success_total") + value(r, "request_failed_total") +
                    value(r, "request_refused_total") + value(r, "request_cancelled_total"));
    infer_req_destroy(&r->req);
    req_meters_destroy(&r->m);
    metrics_destroy(&r->reg);
    free(r);
    return 0;
}

static struct token_event token(int choice, int index) {
    return (struct token_event){.choice = choice, .index = index, .queue_wait_us = 2000};
}

static void tokens(struct req_meter *t, struct rig *r, int choice, int n) {
    for (int i = 0; i < n; i++) {
        struct token_event ev = token(choice, i);
        req_meter_token(t, r->req, &ev);
    }
}

static struct model_counts counted(struct rig *r, const char *adapter) {
    struct model_counts c;
    model_stats_get(req_meters_stats(r->m), adapter, &c);
    return c;
}

static void alone_everything_is_measured(void **state) {
    struct rig *r = *state;
    struct req_meter t;
    req_meter_begin(&t, r->m, clock_us() - 500000);
    assert_value(r, "request_received_total", 1);
    tokens(&t, r, 0, 5);
    req_meter_end(&t, REQ_ANSWERED);
    req_meter_end(&t, REQ_FAILED); /* over already */
    assert_value(r, "request_success_total", 1);
    assert_value(r, "request_failed_total", 0);
    assert_value(r, "prompt_tokens_total", 7);
    assert_value(r, "vllm:prompt_tokens_total", 7);
    assert_value(r, "generation_tokens_total", 5);
    assert_value(r, "time_to_first_token_seconds_count", 1);
    assert_value(r, "time_to_first_token_seconds_bucket{le=\"0.25\"}", 0);
    assert_value(r, "time_to_first_token_seconds_bucket{le=\"10\"}", 1);
    assert_value(r, "time_per_output_token_seconds_count", 4);
    assert_value(r, "vllm:inter_token_latency_seconds_count", 4);
    assert_value(r, "request_queue_time_seconds_sum", 0.002);
    assert_value(r, "e2e_request_latency_seconds_count", 1);
    assert_value(r, "request_generation_tokens_sum", 5);
    assert_value(r, "vllm:request_prefill_time_seconds_count", 1);
    assert_true(value(r, "vllm:request_prefill_time_seconds_sum") >= 0.498); /* but for the queue */
    assert_value(r, "vllm:request_decode_time_seconds_count", 1);
    assert_value(r, "vllm:request_inference_time_seconds_count", 1);
    assert_true(value(r, "vllm:request_inference_time_seconds_sum") >= 0.498);
    assert_value(r, "vllm:request_max_num_generation_tokens_sum", 5);
    assert_value(r, "vllm:request_params_n_sum", r->req->answer.n);
    assert_value(r, "vllm:request_params_max_tokens_sum", r->req->sampling.new_tokens_max);
    assert_value(r, "vllm:request_time_per_output_token_seconds_count", 1);
    assert_value(r, "pd_decode_wait_seconds_count", -1); /* no series: nothing was handed over */
    assert_true(req_meters_ttft_ms(r->m) >= 500 && req_meters_failed_part(r->m) == 0);
    const struct model_counts c = counted(r, NULL);
    assert_int_equal(c.n_ok, 1);
    assert_int_equal(c.n_prompts, 1);
    assert_true(c.ok_us >= 500000 && c.queue_us == 2000 && c.input_us >= 498000);
    assert_int_equal(c.queue_us + c.input_us + c.infer_us + c.output_us, c.ok_us);
}

static void prefill_measures_up_to_the_hand_over(void **state) {
    struct rig *r = *state;
    struct req_meter t;
    req_meter_begin(&t, r->m, clock_us());
    tokens(&t, r, 0, 1);
    req_meters_transfer(r->m, 2, 1000, 5000, 100);
    req_meter_end(&t, REQ_HANDED_OVER);
    assert_value(r, "request_success_total", 1);
    assert_value(r, "prompt_tokens_total", 7);
    assert_value(r, "generation_tokens_total", 1);
    assert_value(r, "time_to_first_token_seconds_count", 1);
    assert_value(r, "e2e_request_latency_seconds_count", 0);
    assert_value(r, "request_generation_tokens_count", 0);
    assert_value(r, "pd_kv_transfer_seconds_bucket{peer=\"2\",le=\"0.005\"}", 1);
    assert_value(r, "pd_kv_transfer_seconds_bucket{peer=\"2\",le=\"0.0025\"}", 0);
    assert_value(r, "pd_kv_exposed_seconds_sum", 0.0001);
    assert_value(r, "pd_kv_transfer_bytes_total", 1000);
}

static void decode_measures_from_the_hand_over(void **state) {
    struct rig *r = *state;
    struct req_meter t;
    struct token_event first = token(0, 0);
    req_meter_begin(&t, r->m, clock_us() - 3000000);
    req_meter_import(&t, r->req, &first);
    assert_value(r, "generation_tokens_total", 0);
    for (int i = 1; i < 4; i++) {
        struct token_event ev = token(0, i);
        req_meter_token(&t, r->req, &ev);
    }
    req_meter_end(&t, REQ_ANSWERED);
    assert_value(r, "prompt_tokens_total", 0);
    assert_value(r, "generation_tokens_total", 3);
    assert_value(r, "time_to_first_token_seconds_count", 0);
    assert_value(r, "time_per_output_token_seconds_count", 3);
    assert_value(r, "pd_decode_wait_seconds_count", 1);
    assert_value(r, "request_generation_tokens_sum", 4); /* of the whole answer */
    assert_value(r, "vllm:request_prefill_time_seconds_count", 0);
    assert_true(value(r, "vllm:request_decode_time_seconds_sum") < 3); /* not from the arrival */
    assert_value(r, "e2e_request_latency_seconds_bucket{le=\"2.5\"}", 0);
    assert_value(r, "e2e_request_latency_seconds_count", 1);
}

/* Each choice of each prompt has its own clock; a prompt counts once however many choices it has.
 */
static void choices_and_parts_have_their_own_clocks(void **state) {
    struct rig *r = *state;
    struct req_meter t;
    r->req->sampling.n_choices = 3;
    r->req->head.n_parts = 2;
    req_meter_begin(&t, r->m, clock_us());
    for (int part = 0; part < 2; part++) {
        r->req->head.part = (uint32_t)part;
        for (int choice = 0; choice < 3; choice++) tokens(&t, r, choice, 4);
    }
    req_meter_end(&t, REQ_ANSWERED);
    assert_value(r, "prompt_tokens_total", 14);
    assert_value(r, "request_prompt_tokens_count", 2);
    assert_value(r, "generation_tokens_total", 24);
    assert_value(r, "time_per_output_token_seconds_count", 18);
    assert_value(r, "time_to_first_token_seconds_count", 1);
}

/* Numbers outside what a request may have are counted, not followed. */
static void a_lane_out_of_range_has_no_clock(void **state) {
    struct rig *r = *state;
    struct req_meter t;
    const struct token_event bad[] = {token(-1, 0), token(CHOICES_MAX, 0), token(INT32_MAX, 0)};
    req_meter_begin(&t, r->m, clock_us());
    for (size_t i = 0; i < 3; i++) req_meter_token(&t, r->req, &bad[i]);
    r->req->head.part = PARTS_MAX;
    tokens(&t, r, 0, 2);
    r->req->head.part = UINT32_MAX;
    tokens(&t, r, 0, 2);
    req_meter_end(&t, REQ_CANCELLED);
    assert_value(r, "generation_tokens_total", 7);
    assert_value(r, "time_per_output_token_seconds_count", 0);
    assert_value(r, "request_cancelled_total", 1);
}

static void ends_are_told_apart(void **state) {
    struct rig *r = *state;
    struct req_meter t;
    for (int how = REQ_ANSWERED; how <= REQ_CANCELLED; how++) {
        req_meter_begin(&t, r->m, clock_us());
        req_meter_end(&t, (enum req_end)how);
    }
    req_meters_refused(r->m);
    assert_value(r, "request_received_total", 6);
    assert_value(r, "request_success_total", 2);
    assert_value(r, "request_failed_total", 2);
    assert_value(r, "request_refused_total", 1);
    assert_value(r, "request_cancelled_total", 1);
    assert_true(req_meters_failed_part(r->m) == 2.0 / 6);
    const struct model_counts c = counted(r, NULL);
    assert_int_equal(c.n_ok, 1);     /* a hand-over ends elsewhere */
    assert_int_equal(c.n_failed, 2); /* failed, cancelled */
    assert_int_equal(req_end_of(422), REQ_REFUSED);
    assert_int_equal(req_end_of(429), REQ_REFUSED);
    assert_int_equal(req_end_of(500), REQ_FAILED);
    assert_int_equal(req_end_of(503), REQ_FAILED);
}

/* vLLM's count of ends: how the engine told it, a stop string when it told none, an abort when the
 * client did; a hand-over and a failure are none. */
static void ends_have_reasons(void **state) {
    static const struct {
        enum finish told;
        enum req_end how;
        const char *reason; /* NULL: not counted */
    } rows[] = {{FINISH_EOS, REQ_ANSWERED, "stop"},    {FINISH_STOP_TOKEN, REQ_ANSWERED, "stop"},
                {FINISH_NONE, REQ_ANSWERED, "stop"},   {FINISH_LENGTH, REQ_ANSWERED, "length"},
                {FINISH_NONE, REQ_CANCELLED, "abort"}, {FINISH_NONE, REQ_HANDED_OVER, NULL},
                {FINISH_NONE, REQ_FAILED, NULL}};
    struct rig *r = *state;
    static const char *const reasons[] = {"stop", "length", "abort"};
    double want[3] = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct req_meter t;
        struct token_event ev = token(0, 1);
        req_meter_begin(&t, r->m, clock_us());
        tokens(&t, r, 0, 1);
        ev.finish = rows[i].told;
        req_meter_token(&t, r->req, &ev);
        req_meter_end(&t, rows[i].how);
        for (size_t k = 0; k < 3; k++) {
            char name[80];
            want[k] += rows[i].reason != NULL && strcmp(reasons[k], rows[i].reason) == 0;
            snprintf(name, sizeof(name), "vllm:request_success_total{finished_reason=\"%s\"}",
                     reasons[k]);
            assert_value(r, name, want[k]);
        }
    }
}

static void an_adapter_is_counted_by_name(void **state) {
    struct rig *r = *state;
    struct req_meter t;
    struct token_event first = token(0, 0);
    r->req->head.adapter = strdup("poet");
    req_meter_begin(&t, r->m, clock_us());
    tokens(&t, r, 0, 3);
    req_meter_end(&t, REQ_ANSWERED);
    assert_value(r, "lora_requests_total{lora_name=\"poet\"}", 1);
    assert_int_equal(counted(r, "poet").n_ok, 1);
    assert_int_equal(counted(r, NULL).n_ok, 0);
    req_meter_begin(&t, r->m, clock_us()); /* its prompt was computed elsewhere */
    req_meter_import(&t, r->req, &first);
    req_meter_end(&t, REQ_ANSWERED);
    assert_value(r, "lora_requests_total{lora_name=\"poet\"}", 1);
}

static void reasons_of_failed_transfers_are_words(void **state) {
    struct rig *r = *state;
    req_meters_transfer_failed(r->m, ERR_BUSY);
    req_meters_transfer_failed(r->m, ERR_PEER_LOST);
    req_meters_transfer_failed(r->m, ERR_PEER_LOST);
    req_meters_transfer_failed(r->m, ERR_CANCELLED); /* no failure */
    req_meters_transfer_failed(r->m, ERR_MISMATCH);
    assert_value(r, "pd_kv_transfer_failures_total{reason=\"busy\"}", 1);
    assert_value(r, "pd_kv_transfer_failures_total{reason=\"peer_lost\"}", 2);
    assert_value(r, "pd_kv_transfer_failures_total{reason=\"internal\"}", 1);
    assert_value(r, "pd_kv_transfer_failures_total{reason=\"cancelled\"}", -1);
}

/* The window of the rig has four places. */
static void means_are_of_the_last_requests(void **state) {
    struct rig *r = *state;
    for (int i = 0; i < 8; i++) {
        struct req_meter t;
        req_meter_begin(&t, r->m, clock_us() - (i < 4 ? 9000000 : 1000000));
        tokens(&t, r, 0, 1);
        req_meter_end(&t, REQ_ANSWERED);
    }
    double ms = req_meters_ttft_ms(r->m);
    assert_true(ms > 999.9 && ms < 5000); /* 1000 and a little; a sum of doubles may lie below */
    assert_true(req_meters_tbt_ms(r->m) == 0); /* one token each: nothing between two */
}

static void nothing_counts_without_meters(void **state) {
    struct rig *r = *state;
    struct req_meter t = {0};
    struct token_event ev = token(0, 0);
    req_meter_end(&t, REQ_FAILED);
    req_meter_begin(&t, NULL, 0);
    req_meter_import(&t, r->req, &ev);
    req_meter_token(&t, r->req, &ev);
    req_meter_end(&t, REQ_ANSWERED);
    req_meters_refused(NULL);
    req_meters_transfer(NULL, 1, 1, 1, 1);
    req_meters_transfer_failed(NULL, ERR_BUSY);
    assert_value(r, "request_received_total", 0);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(alone_everything_is_measured),          CASE(prefill_measures_up_to_the_hand_over),
        CASE(decode_measures_from_the_hand_over),    CASE(choices_and_parts_have_their_own_clocks),
        CASE(a_lane_out_of_range_has_no_clock),      CASE(ends_are_told_apart),
        CASE(reasons_of_failed_transfers_are_words), CASE(means_are_of_the_last_requests),
        CASE(nothing_counts_without_meters),         CASE(ends_have_reasons),
        CASE(an_adapter_is_counted_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
