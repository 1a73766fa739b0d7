/* Goal: what the coordinator counts of a model (relay_act.c) is what its clients asked for: each
 * request once, by how it ended, under its adapter once P has named it, and the waits of all its
 * attempts. Method: as relay_test.c; the answer of /v2/models/m/stats is the witness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/model_stats.h"
#include "tests/unit/coordinator/relay_fixture.h"

#define FIRST_OF(adapter, prompts)                                                                 \
    "{\"reqId\":\"1\",\"isStream\":false,\"adapter\":\"" adapter "\",\"cachedTokens\":" prompts "}"

static struct model_counts counts(const char *adapter) {
    struct model_counts c;
    model_stats_get(relay_stats(fc.co.relays), adapter, &c);
    return c;
}

static void assert_parts(const struct model_counts *c) {
    assert_int_equal(c->queue_us + c->input_us + c->infer_us + c->output_us, c->ok_us);
}

static void an_answer_counts_once(void **state) {
    struct client c;
    const struct model_counts start = counts(NULL);
    (void)state;
    struct held held = *ask(&c, CHAT, BODY);
    run_for(30);
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    run_for(30);
    fake_frame(D, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    const struct model_counts now = counts(NULL);
    assert_int_equal(now.n_ok - start.n_ok, 1);
    assert_int_equal(now.n_prompts - start.n_prompts, 1);
    assert_int_equal(now.n_failed, start.n_failed);
    assert_true(now.input_us - start.input_us >= 29000); /* until P spoke */
    assert_true(now.infer_us - start.infer_us >= 29000); /* until D did */
    assert_true(now.last_unix_ms > 0);
    assert_parts(&now);
}

static void p_names_the_adapter(void **state) {
    struct client c;
    const struct model_counts start = counts(NULL), poet = counts("poet");
    (void)state;
    struct held held = *ask(&c, CHAT, BODY);
    fake_reply(&P->held[0], 200, FIRST_OF("poet", "[0,0,0]"));
    fake_frame(D, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    assert_int_equal(counts("poet").n_ok - poet.n_ok, 1);
    assert_int_equal(counts("poet").n_prompts - poet.n_prompts, 3);
    assert_int_equal(counts(NULL).n_ok, start.n_ok);

    before(NULL); /* and it is the adapter's failure */
    held = *ask(&c, CHAT, BODY);
    fake_reply(&P->held[0], 200, FIRST_OF("poet", "[0]"));
    run_for(20);
    client_close(&c);
    run_until(was_told_to_stop, D);
    check_idle();
    assert_int_equal(counts("poet").n_failed - poet.n_failed, 1);
    assert_int_equal(counts(NULL).n_failed, start.n_failed);
}

static void what_is_refused_is_none(void **state) {
    struct client c;
    const struct model_counts start = counts(NULL);
    (void)state;
    fake_reply(ask(&c, CHAT, BODY), 422, "{\"error\":\"bad\"}");
    client_expect(&c, 422, "{\"error\":\"bad\"}");
    client_close(&c);
    const struct model_counts now = counts(NULL);
    assert_memory_equal(&now, &start, sizeof(now));
}

static void a_client_that_goes_has_failed(void **state) {
    struct client c;
    const struct model_counts start = counts(NULL);
    (void)state;
    (void)ask(&c, CHAT, BODY);
    client_close(&c);
    run_until(was_told_to_stop, P);
    check_idle();
    assert_int_equal(counts(NULL).n_failed - start.n_failed, 1);
    assert_int_equal(counts(NULL).n_ok, start.n_ok);
}

/* Its answer ends well, as D has it; the client wanted no more of it. */
static void who_stops_has_failed(void **state) {
    struct client c, s;
    const struct model_counts start = counts(NULL);
    (void)state;
    struct held held = *ask(&c, "/v2/models/m/generate", "{\"text_input\":\"x\",\"id\":\"mine\"}");
    fake_reply(&P->held[0], 200, FIRST_ONCE);
    run_for(20);
    client_ask(&s, "POST", "/v2/models/m/stopInfer", "", "{\"id\":\"mine\"}");
    client_expect(&s, 200, "{\"id\":\"mine\"}");
    fake_frame(D, &held, 0, DR_LAST, 0, "{\"text_output\":\"\"}");
    client_expect(&c, 200, "{\"text_output\":\"\"}");
    client_close(&c);
    client_close(&s);
    assert_int_equal(counts(NULL).n_failed - start.n_failed, 1);
    assert_int_equal(counts(NULL).n_ok, start.n_ok);
}

/* Another attempt is the same request. */
static void attempts_are_one_request(void **state) {
    struct client c;
    const struct model_counts start = counts(NULL);
    (void)state;
    (void)ask(&c, CHAT, BODY);
    first_turn();
    fake_reply(&P->held[0], 503, "{}");
    run_until(holds_one, P2);
    struct held now_at = P2->held[0];
    fake_reply(&P2->held[0], 200, FIRST_ONCE);
    fake_frame(D, &now_at, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    const struct model_counts now = counts(NULL);
    assert_int_equal(now.n_ok - start.n_ok, 1);
    assert_int_equal(now.n_failed, start.n_failed);
    assert_parts(&now);
}

static bool is_answered(void *arg) {
    return client_done(arg);
}

/* What a client reads is what was counted. */
static void it_is_told(void **state) {
    struct client c;
    char want[128];
    bool whole;
    const struct model_counts now = counts(NULL);
    (void)state;
    client_ask(&c, "GET", "/v2/models/m/stats", "", "");
    run_until(is_answered, &c);
    assert_int_equal(client_status(&c), 200);
    char *body = client_body(&c, &whole);
    snprintf(want, sizeof(want), "\"success\":{\"count\":%llu,\"ns\":%llu}",
             (unsigned long long)now.n_ok, (unsigned long long)now.ok_us * 1000);
    assert_non_null(strstr(body, want));
    snprintf(want, sizeof(want), "\"fail\":{\"count\":%llu,\"ns\":%llu}",
             (unsigned long long)now.n_failed, (unsigned long long)now.failed_us * 1000);
    assert_non_null(strstr(body, want));
    assert_null(strstr(body, "poet")); /* it is not loaded */
    free(body);
    client_close(&c);
    client_ask(&c, "GET", "/v2/models/poet/stats", "", "");
    client_expect(&c, 404,
                  "{\"error\":\"Request for unknown model: 'poet' is not found\",\"error_type\":"
                  "\"NotFoundError\"}");
    client_close(&c);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, before, after)
    const struct CMUnitTest tests[] = {
        CASE(an_answer_counts_once),
        CASE(p_names_the_adapter),
        CASE(what_is_refused_is_none),
        CASE(a_client_that_goes_has_failed),
        CASE(who_stops_has_failed),
        CASE(attempts_are_one_request),
        CASE(it_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
