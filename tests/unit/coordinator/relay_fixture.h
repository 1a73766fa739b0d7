/* relay_fixture: the cluster of the relay tests: two instances that prefill, two that decode, and
 * what puts them right before a case and holds them to account after it. Include after cmocka.h. */
#ifndef BATON_TESTS_RELAY_FIXTURE_H
#define BATON_TESTS_RELAY_FIXTURE_H

#include "coordinator/relay_priv.h"
#include "tests/unit/coordinator/fake_cluster.h"

#define CHAT       "/v1/chat/completions"
#define BODY       "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define STREAM     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}"
#define FIRST_ONCE "{\"reqId\":\"1\",\"isStream\":false,\"kvBytes\":5}"

static struct fake *const P = &fc.fakes[0], *const P2 = &fc.fakes[1], *const D = &fc.fakes[2],
                          *const D2 = &fc.fakes[3];
static struct coord_conf as_configured;

/* Cases change settings and what instances do: here all is put back, and must be idle. */
static inline bool is_idle(void *arg) {
    struct relay_counts n;
    (void)arg;
    relay_counts(fc.co.relays, &n);
    return n.in_flight == 0 && n.queued == 0;
}

static inline void check_idle(void) {
    run_until(is_idle, NULL);
    for (const struct inst *in = fc.co.reg.first; in != NULL; in = in->next) {
        assert_int_equal(in->ledger.tasks, 0);
        assert_int_equal(in->ledger.booked.slots, 0);
        assert_int_equal(in->ledger.booked.blocks, 0);
        assert_true(in->ledger.tokens < 1e-6);
        assert_int_equal(in->ledger.prompt_tokens, 0);
    }
}

static inline bool all_serve_and_listen(void *arg) {
    if (!fc_all_serve(arg) || D->dresult == NULL || D2->dresult == NULL) return false;
    for (int i = 0; i < fc.n_fakes;
         i++) { /* a failed hand-over casts doubt on a link for a while */
        const struct inst *in = fake_inst(&fc.fakes[i]);
        if (in->facts.status.n_links != 2 || !in->facts.status.links[0].ok ||
            !in->facts.status.links[1].ok)
            return false;
    }
    return true;
}

/* Among equals it is the turn of the first again: P and D. */
static inline void first_turn(void) {
    for (struct inst *in = fc.co.reg.first; in != NULL; in = in->next) in->pass = 0;
    fc.co.relays->p_turn = fc.co.relays->d_turn = 0;
}

static inline int before(void **state) {
    (void)state;
    fc.co.conf = as_configured;
    fc.client_ip = NULL;
    for (struct inst *in = fc.co.reg.first; in != NULL; in = in->next)
        inst_breakers_reset(&fc.co.reg, in);
    first_turn();
    for (int i = 0; i < fc.n_fakes; i++) {
        struct fake *f = &fc.fakes[i];
        for (size_t k = 0; k < f->n_held; k++) /* of calls that were given up */
            if (f->held[k].x != NULL) fake_reply(&f->held[k], 500, "{}");
        f->n_held = f->n_gone = f->n_stops = 0;
        f->stop_code = 0;
        f->last_headers[0] = f->last_body[0] = 0;
        if (f->server == NULL) fake_open(f, f->port);
    }
    run_until(all_serve_and_listen, NULL);
    return 0;
}

static inline int after(void **state) {
    (void)state;
    check_idle();
    return 0;
}

static inline int set_up(void **state) {
    (void)state;
    fc_open("{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50},\"controller\":{"
            "\"http_retries\":1}}");
    fc_add(LABEL_PREFILL_STATIC);
    fc_add(LABEL_PREFILL_STATIC);
    fc_add(LABEL_DECODE_STATIC);
    fc_add(LABEL_DECODE_STATIC);
    as_configured = fc.co.conf;
    return 0;
}

static inline int tear_down(void **state) {
    (void)state;
    fc_close();
    return 0;
}

/* ---- facts to wait for */
static inline bool holds_one(void *arg) {
    return ((struct fake *)arg)->n_held >= 1;
}
static inline bool holds_two(void *arg) {
    return ((struct fake *)arg)->n_held >= 2;
}
static inline bool holds_n(void *arg) { /* P, so many */
    return P->n_held >= *(const size_t *)arg;
}
static inline bool lost_one(void *arg) {
    return ((struct fake *)arg)->n_gone >= 1;
}
static inline bool was_told_to_stop(void *arg) {
    return ((struct fake *)arg)->n_stops >= 1;
}
static inline bool client_has_event(void *arg) {
    return strstr(((struct client *)arg)->in.data, "data: ") != NULL;
}
static inline bool has_queue(void *arg) {
    struct relay_counts n;
    relay_counts(fc.co.relays, &n);
    return n.queued == *(size_t *)arg;
}
static inline void wait_queue(size_t n) {
    run_until(has_queue, &n);
}

/* Asks, and gives P's side of it. */
static inline struct held *ask(struct client *c, const char *path, const char *body) {
    first_turn();
    client_ask(c, "POST", path, "", body);
    run_until(holds_one, P);
    return &P->held[0];
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, before, after)

#endif
