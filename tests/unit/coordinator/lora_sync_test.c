/* Goal: every instance comes to have every adapter, and nobody stops serving for it: one that comes
 * anew is given all of them before it fc_serves, one that serves goes on while it is given another.
 * Method: a real coordinator over instances of the test, which keep every load until the test
 * answers it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/lora.h"
#include "tests/unit/coordinator/fake_cluster.h"

#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50},"                               \
    "\"controller\":{\"http_retries\":1}}"
#define LOAD "/v1/load_lora_adapter"

static struct held *load_at(struct fake *f) {
    for (size_t i = 0; i < f->n_held; i++)
        if (f->held[i].x != NULL && strcmp(f->held[i].path, LOAD) == 0) return &f->held[i];
    return NULL;
}

static bool is_asked(void *arg) {
    controller_poll_soon(&fc.co);
    return load_at(arg) != NULL;
}

static bool has_all(void *arg) {
    return !fake_inst(arg)->lora_due;
}

static bool waits_for_adapters(void *arg) {
    const char *why = "";
    const struct inst *in = fake_inst(arg);
    controller_poll_soon(&fc.co);
    return in != NULL && !inst_serves(in, &why) && strcmp(why, "adapters") == 0;
}

/* One joins with an adapter that nobody knew: the others are given it, and all the while the
 * cluster is ready, also when they take their time or cannot have it. */
static void joins_with_an_adapter(void **state) {
    (void)state;
    fc_start(CONF, 1, 1);
    struct fake *p = &fc.fakes[0], *d = &fc.fakes[1], *d2 = fc_add(LABEL_DECODE_STATIC);
    d2->adapter = "poet";
    uint64_t end = clock_ms() + FC_DEADLINE_MS;
    while (!is_asked(p) || !is_asked(d)) {
        assert_true(clock_ms() < end);
        assert_true(controller_ready(&fc.co));
        assert_true(fc_serves(p) && fc_serves(d));
        run_for(5);
    }
    assert_non_null(strstr(p->last_body, "\"lora_name\":\"poet\""));
    assert_non_null(strstr(p->last_body, "\"lora_path\":\"/adapters/a\""));
    run_for(300); /* several polls, nobody has answered */
    assert_true(controller_ready(&fc.co) && fc_serves(p) && fc_serves(d));
    fake_reply(load_at(p), 200, "Success");
    fake_reply(load_at(d), 422, "{\"error\":\"no such folder\"}");
    run_until(has_all, p);
    run_until(has_all, d);
    assert_true(controller_ready(&fc.co));
    run_until(is_asked, d2); /* it says that it has it */
    fake_error(load_at(d2), CAUSE_ADAPTER_PRESENT, 409, "{\"error\":\"x\"}");
    run_until(fc_serves, d2);
    assert_non_null(lora_find(&fc.co, "poet"));
    fc_close();
}

/* One that comes, or comes back, is given all of them in order before it serves; one that cannot be
 * asked is asked again. */
static void comes_anew(void **state) {
    (void)state;
    fc_start(CONF, 1, 1);
    struct fake *d = &fc.fakes[1];
    assert_true(lora_remember(&fc.co, "one", "{\"lora_name\":\"one\"}", 19));
    assert_true(lora_remember(&fc.co, "two", "{\"lora_name\":\"two\"}", 19));
    struct fake *d2 = fc_add(LABEL_DECODE_STATIC);
    run_until(waits_for_adapters, d2);
    run_until(is_asked, d2);
    assert_string_equal(d2->last_body, "{\"lora_name\":\"one\"}");
    fake_reply(load_at(d2), 503, "{}"); /* again, after a while */
    run_until(is_asked, d2);
    assert_string_equal(d2->last_body, "{\"lora_name\":\"one\"}");
    lora_forget(&fc.co, "one"); /* unloaded meanwhile: the second is the next all the same */
    fake_reply(load_at(d2), 200, "Success");
    run_until(waits_for_adapters, d2);
    assert_true(fc_serves(d)); /* it was not asked: it has them */
    run_until(is_asked, d2);
    assert_string_equal(d2->last_body, "{\"lora_name\":\"two\"}");
    fake_reply(load_at(d2), 200, "Success");
    run_until(fc_serves, d2);
    fc_close();
}

static bool both_asked(void *arg) {
    (void)arg;
    return load_at(&fc.fakes[0]) != NULL && load_at(&fc.fakes[1]) != NULL;
}

/* A load over all of them: what an instance says is its cause, whatever its words and status. */
static void by_cause_not_by_words(void **state) {
    static const char *const body = "{\"lora_name\":\"a\",\"lora_path\":\"/a\"}";
    struct client c;
    bool whole;
    (void)state;
    fc_start(CONF, 1, 1);
    struct fake *p = &fc.fakes[0], *d = &fc.fakes[1];
    client_ask(&c, "POST", LOAD, "", body);
    run_until(both_asked, NULL);
    fake_reply(load_at(p), 200, "Done");
    fake_reply(load_at(d), 200, "Done");
    client_expect(&c, 200, "Done");
    client_close(&c);
    client_ask(&c, "POST", LOAD, "", body); /* one has it, the other had lost it */
    run_until(both_asked, NULL);
    fake_error(load_at(p), CAUSE_ADAPTER_PRESENT, 200, "It is there.");
    fake_reply(load_at(d), 200, "Done");
    client_expect(&c, 200, "Done");
    client_close(&c);
    client_ask(&c, "POST", LOAD, "", body); /* 200 is no success where there is a cause */
    run_until(both_asked, NULL);
    fake_error(load_at(p), CAUSE_REQUEST, 200, "Success, or not");
    fake_error(load_at(d), CAUSE_REQUEST, 200, "Success, or not");
    run_until(client_done, &c);
    char *got = client_body(&c, &whole);
    assert_non_null(strstr(got, "Success, or not"));
    free(got);
    client_close(&c);
    assert_non_null(lora_find(&fc.co, "a")); /* by the load before */
    fc_close();
}

/* The same name twice: the newer body counts, in the order of loading. */
static void remembered(void **state) {
    (void)state;
    fc_start(CONF, 1, 1);
    assert_null(lora_find(&fc.co, "a"));
    assert_true(lora_remember(&fc.co, "a", "1", 1));
    assert_true(lora_remember(&fc.co, "b", "2", 1));
    assert_true(lora_remember(&fc.co, "a", "3", 1));
    assert_string_equal(lora_find(&fc.co, "a")->body, "3");
    assert_string_equal(fc.co.loras->name, "b");
    lora_forget(&fc.co, "nobody");
    lora_forget(&fc.co, "b");
    assert_string_equal(fc.co.loras->name, "a");
    lora_forget_all(&fc.co);
    assert_null(fc.co.loras);
    fc_close();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_with_an_adapter),
        cmocka_unit_test(comes_anew),
        cmocka_unit_test(by_cause_not_by_words),
        cmocka_unit_test(remembered),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
