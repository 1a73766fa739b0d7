/* Goal: an instance, or a link, that fails its requests while its polls are fine gets no more of
 * them until a probe was served, which no client suffers for; what clients do wrong opens nothing;
 * the last one there is stays in use. Method: as relay_test.c; P and D fail as each case needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/relay_fixture.h"

#define LAST "{\"isLastResp\":true,\"output\":\"{}\"}"

static bool holds_any(void *arg) {
    (void)arg;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < fc.fakes[k].n_held; i++)
            if (fc.fakes[k].held[i].x != NULL) return true;
    return false;
}

/* Asks; gives what a P holds of it. */
static struct held *ask_any(struct client *c) {
    client_ask(c, "POST", CHAT, "", BODY);
    run_until(holds_any, NULL);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < fc.fakes[k].n_held; i++)
            if (fc.fakes[k].held[i].x != NULL) return &fc.fakes[k].held[i];
    return NULL;
}

/* One request that P ends so; which P. */
static struct fake *one(int status, const char *body, int want) {
    struct client c;
    struct held *h = ask_any(&c);
    struct fake *owner = h->owner;
    fake_reply(h, status, body);
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), want);
    client_close(&c);
    return owner;
}

static void fail_until_open(void) {
    const int64_t retries = fc.co.conf.retries_max;
    fc.co.conf.retries_max = 0;
    for (int i = 0; fake_inst(P)->breaker.state == BREAKER_CLOSED; i++) {
        assert_in_range(i, 0, 4);
        first_turn();
        assert_ptr_equal(one(500, "engine", 500), P);
    }
    fc.co.conf.retries_max = retries;
}

static bool p2_has_more(void *arg) {
    return P2->n_held > *(const size_t *)arg;
}

static bool may_be_tried(void *arg) {
    return breaker_allows(&fake_inst(arg)->breaker, clock_ms());
}

static void p_fails(void **state) {
    struct client c;
    (void)state;
    fail_until_open();
    const struct breaker *b = &fake_inst(P)->breaker;
    assert_int_equal(b->state, BREAKER_OPEN);
    assert_string_equal(b->cause, "p_failed, status 500: engine");
    assert_true(inst_serves(fake_inst(P), NULL)); /* its polls are fine */
    for (int i = 0; i < 4; i++) {
        first_turn();
        assert_ptr_equal(one(200, LAST, 200), P2);
    }
    /* The probe fails: its client is served all the same. */
    run_until(may_be_tried, P);
    first_turn();
    struct held *h = ask_any(&c);
    assert_ptr_equal(h->owner, P);
    assert_int_equal(b->state, BREAKER_HALF_OPEN);
    struct client other; /* beside the probe nobody goes there */
    size_t held = P2->n_held;
    client_ask(&other, "POST", CHAT, "", BODY);
    run_until(p2_has_more, &held);
    fake_reply(&P2->held[P2->n_held - 1], 200, LAST);
    client_expect(&other, 200, "{}");
    client_close(&other);
    held = P2->n_held;
    fake_reply(h, 500, "engine");
    run_until(p2_has_more, &held);
    fake_reply(&P2->held[P2->n_held - 1], 200, LAST);
    client_expect(&c, 200, "{}");
    client_close(&c);
    assert_int_equal(b->state, BREAKER_OPEN);
    assert_int_equal(b->wait_ms, pace_ms(200));
    /* The next one is served: all is as before. */
    run_until(may_be_tried, P);
    first_turn();
    assert_ptr_equal(one(200, LAST, 200), P);
    assert_int_equal(b->state, BREAKER_CLOSED);
    first_turn();
    assert_ptr_equal(one(200, LAST, 200), P);
}

static bool more_left(void *arg) {
    return P->n_gone + P2->n_gone > *(const size_t *)arg;
}
static bool more_held(void *arg) {
    return P->n_held + P2->n_held > *(const size_t *)arg;
}

/* What clients do wrong, and what they leave, says nothing. */
static void clients_open_nothing(void **state) {
    static const int codes[] = {400, 404, 413, 422, 424};
    struct client c;
    (void)state;
    for (int i = 0; i < 40; i++) (void)one(codes[i % 5], "{}", codes[i % 5]);
    for (int i = 0; i < 10; i++) {
        size_t n = P->n_gone + P2->n_gone;
        (void)ask_any(&c);
        client_close(&c);
        run_until(more_left, &n);
    }
    assert_true(relay_breakers_all_closed(&fc.co));
    assert_int_equal(breaker_faults(&fake_inst(P)->breaker), 0);
}

/* Every P fails: they are used all the same, and their own words go out. */
static void nobody_else(void **state) {
    (void)state;
    fc.co.conf.breaker_open_ms = 60000;
    fc.co.conf.retries_max = 0;
    unsigned on[2] = {0};
    for (int i = 0; i < 30; i++) on[one(500, "engine", 500) == P2]++;
    assert_int_equal(fake_inst(P)->breaker.state, BREAKER_OPEN);
    assert_int_equal(fake_inst(P2)->breaker.state, BREAKER_OPEN);
    assert_true(on[0] >= 10 && on[1] >= 10);
    assert_true(controller_ready(&fc.co));
}

static bool link_is_well(void *arg) {
    (void)arg;
    controller_poll_soon(&fc.co);
    return inst_link_ok(fake_inst(P), D->id);
}

/* The link P to D fails hand-overs again and again, though both say that it is up. */
static void link_fails(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.breaker_open_ms = 60000;
    for (int i = 0; i < 5; i++) {
        run_until(link_is_well, NULL);
        first_turn();
        struct held *h = ask_any(&c);
        assert_ptr_equal(h->owner, P);
        size_t n = P->n_held + P2->n_held;
        fake_error(h, CAUSE_KV_LINK_DOWN, 500, "{\"error\":\"the link\"}");
        run_until(more_held, &n);
        for (int k = 0; k < 2; k++)
            for (size_t j = 0; j < fc.fakes[k].n_held; j++)
                if (fc.fakes[k].held[j].x != NULL) fake_reply(&fc.fakes[k].held[j], 200, LAST);
        client_expect(&c, 200, "{}");
        client_close(&c);
    }
    const struct breaker *b = inst_link_breaker(fake_inst(P), D->id);
    assert_non_null(b);
    assert_int_equal(b->state, BREAKER_OPEN);
    assert_string_equal(b->cause, "kv_link_down, status 500: {\"error\":\"the link\"}");
    assert_int_equal(fake_inst(P)->breaker.state, BREAKER_CLOSED);
    run_until(link_is_well, NULL);
    char to_d[64];
    snprintf(to_d, sizeof(to_d), "d-target: 127.0.0.1;%u\n", D->port);
    for (int i = 0; i < 6; i++) {
        first_turn();
        struct held *h = ask_any(&c);
        if (h->owner == P) assert_null(strstr(P->last_headers, to_d));
        fake_reply(h, 200, LAST);
        client_expect(&c, 200, "{}");
        client_close(&c);
    }
}

/* D ends what it decodes with errors of its own; those of the request's kind do not count. */
static void d_fails(void **state) {
    struct client c;
    (void)state;
    fc.co.conf.breaker_open_ms = 60000;
    fc.co.conf.retries_max = 0;
    for (int i = 0; i < 11; i++) {
        int status = i < 6 ? 424 : 500;
        assert_int_equal(fake_inst(D)->breaker.state, BREAKER_CLOSED);
        first_turn();
        struct held *h = ask_any(&c), held = *h;
        fake_reply(h, 200, FIRST_ONCE);
        fake_frame(D, &held, 0, DR_ERROR, status, "{\"error\":\"decode\"}");
        client_expect(&c, status, "{\"error\":\"decode\"}");
        client_close(&c);
    }
    assert_int_equal(fake_inst(D)->breaker.state, BREAKER_OPEN);
    first_turn();
    struct held *h = ask_any(&c), held = *h;
    fake_reply(h, 200, FIRST_ONCE);
    fake_frame(D2, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    client_ask(&c, "GET", "/v2/status", "", "");
    run_until(client_done, &c);
    assert_non_null(strstr(c.in.data, "\"breaker\":{\"state\":\"open\",\"faults\":5"));
    client_close(&c);
}

static int set_up_breakers(void **state) {
    int e = set_up(state);
    as_configured.breaker_open_ms = pace_ms(100); /* long enough for four requests */
    return e;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(p_fails), CASE(clients_open_nothing), CASE(nobody_else), CASE(link_fails),
        CASE(d_fails),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, set_up_breakers, tear_down);
}
