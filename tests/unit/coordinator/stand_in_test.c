/* Goal: with `pd.fallback_to_standard` an instance whose group has nobody of the other role left is
 * P and D of each request alone, what was under way goes on there, and when the other role is back
 * it gets its own again without a request being hurt; without the setting clients are told which
 * role is missing. Method: a real coordinator over instances of the test (fake_cluster.h), one of
 * each role or two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/alarms.h"
#include "coordinator/relay_priv.h"
#include "coordinator/stand_in.h"
#include "tests/unit/coordinator/fake_cluster.h"

#define CHAT   "/v1/chat/completions"
#define STREAM "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}"
#define CONF_OF(more)                                                                              \
    "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50" more                            \
    "},\"controller\":{\"http_retries\":1}}"
#define CONF CONF_OF(",\"fallback_to_standard\":true")
#define FIRST(output, tokens)                                                                      \
    "{\"isStream\":true,\"isLastResp\":false,\"output\":\"" output "\",\"tokens\":\"" tokens       \
    "\",\"seed\":\"7\",\"created\":1700000000,\"cachedTokens\":[0],\"choices\":1}"

static struct fake *const P = &fc.fakes[0], *const D = &fc.fakes[1], *const P2 = &fc.fakes[2],
                          *const D2 = &fc.fakes[3];

/* ---- facts */
static bool holds(void *arg) {
    return ((struct fake *)arg)->n_held > 0;
}
static bool stands_in(void *arg) {
    return inst_serves(fake_inst(arg), NULL) && inst_stands_in(fake_inst(arg));
}
static bool stands_in_no_more(void *arg) {
    controller_poll_soon(&fc.co);
    return !inst_stands_in(fake_inst(arg));
}
static bool has_own_role(void *arg) {
    controller_poll_soon(&fc.co);
    const struct inst *in = fake_inst(arg);
    return in->facts.status.role == in->plan.place.role && inst_serves(in, NULL);
}
static bool has_event(void *arg) {
    return strstr(((struct client *)arg)->in.data, "data: ") != NULL;
}

static void data(struct fake *d, const struct held *h, uint64_t seq, const char *body,
                 const char *tokens) {
    fake_send(d, h, (struct dresult_frame){.kind = DR_DATA, .seq = seq}, body, tokens);
}
static void last(struct fake *d, const struct held *h, uint64_t seq) {
    fake_send(d, h, (struct dresult_frame){.kind = DR_LAST, .seq = seq}, "data: [DONE]\n\n", "");
}

/* The newest request at p, which is to hand it over to d. */
static struct held take(struct fake *p, const struct fake *d) {
    char target[64];
    run_until(holds, p);
    struct held h = p->held[p->n_held - 1];
    snprintf(target, sizeof(target), "d-target: 127.0.0.1;%u\n", d->port);
    if (strstr(p->last_headers, target) == NULL) fail_msg("%s not in %s", target, p->last_headers);
    fake_reply(&p->held[p->n_held - 1], 200, FIRST("data: 1\\n\\n", "11"));
    p->n_held = 0;
    return h;
}

static void whole(struct client *c) {
    client_expect(c, 200, "data: 1\n\ndata: [DONE]\n\n");
    client_close(c);
}

/* One more stream, by this pair. */
static void served_by(struct fake *p, struct fake *d) {
    struct client c;
    client_ask(&c, "POST", CHAT, "", STREAM);
    struct held h = take(p, d);
    last(d, &h, 0);
    whole(&c);
}

static void idle(void) {
    for (const struct inst *in = fc.co.reg.first; in != NULL; in = in->next) {
        assert_int_equal(in->ledger.tasks, 0);
        assert_int_equal(in->ledger.decodes, 0);
        assert_int_equal(in->ledger.coming, 0);
    }
}

/* Of the newest alarm with the id: whether it is cleared; -1: there is none. */
static int alarm_is_cleared(const char *id) {
    struct json_value *arr = alarms_json(fc.co.alarms);
    int cleared = -1;
    for (size_t i = 0; i < json_arr_len(arr) && cleared < 0; i++) {
        const char *s;
        size_t n;
        int64_t v;
        assert_int_equal(json_get_str(json_arr_at(arr, i), "alarmId", &s, &n), JSON_OK);
        assert_int_equal(json_get_i64(json_arr_at(arr, i), "cleared", &v), JSON_OK);
        if (strcmp(s, id) == 0) cleared = (int)v;
    }
    json_put(arr);
    return cleared;
}

/* ---- cases */

/* A stream goes on where it was, by P alone; with D back new ones go to both, that one ends at P,
 * and then P is a P again. */
static void the_last_decode_dies(void **state) {
    struct client c, c2;
    (void)state;
    fc_start(CONF, 1, 1);
    assert_int_equal(alarms_create(&fc.co.alarms, "127.0.0.1"), ERR_OK);
    client_ask(&c, "POST", CHAT, "", STREAM);
    struct held h = take(P, D);
    data(D, &h, 0, "data: 2\n\n", "12");
    run_until(has_event, &c);
    fake_kill(D);
    client_ask(&c2, "POST", CHAT, "", STREAM); /* in the middle of it: it waits */
    run_until(stands_in, P);
    run_until(holds, P);
    assert_int_equal(alarm_is_cleared("0xFC001001"), 0);
    assert_int_equal(alarm_is_cleared("0xFC001003"), 0);
    assert_int_equal(P->role, ROLE_FLEX);
    assert_true(controller_ready(&fc.co));
    while (P->n_held < 2) run_for(5);
    for (int i = 0; i < 2; i++) {
        struct held *at = &P->held[i], now = *at;
        const bool again = strcmp(now.epoch, "1") == 0;
        fake_reply(at, 200, again ? FIRST("", "") : FIRST("data: 1\\n\\n", "11"));
        if (again)
            h = now;
        else
            last(P, &now, 0);
    }
    assert_string_equal(h.epoch, "1");
    P->n_held = 0;
    whole(&c2);
    served_by(P, P);

    const unsigned posts = P->n_posts;
    fake_open(D, D->port);
    run_until(fc_serves, D);
    run_until(stands_in_no_more, P);
    served_by(P, D);
    assert_int_equal(P->role, ROLE_FLEX); /* as long as the first one goes on there */
    assert_int_equal(P->n_posts, posts);
    data(P, &h, 0, "data: 3\n\n", "13");
    last(P, &h, 1);
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: [DONE]\n\n");
    client_close(&c);
    run_until(has_own_role, P);
    assert_int_equal(P->role, ROLE_PREFILL);
    served_by(P, D);
    assert_int_equal(alarm_is_cleared("0xFC001001"), 1);
    assert_int_equal(alarm_is_cleared("0xFC001003"), 1);
    assert_int_equal(alarm_is_cleared("0xFC001005"), -1);
    idle();
    fc_close();
    alarms_destroy(&fc.co.alarms);
}

static void the_last_prefill_dies(void **state) {
    struct client c;
    (void)state;
    fc_start(CONF, 1, 1);
    client_ask(&c, "POST", CHAT, "", STREAM);
    struct held h = take(P, D); /* D's from here on: it does not notice */
    fake_kill(P);
    run_until(stands_in, D);
    assert_int_equal(D->role, ROLE_FLEX);
    served_by(D, D);
    last(D, &h, 0);
    whole(&c);
    fake_open(P, P->port);
    run_until(has_own_role, D);
    assert_int_equal(D->role, ROLE_DECODE);
    run_until(fc_serves, P);
    served_by(P, D);
    idle();
    fc_close();
}

/* There is never a moment in which a client is sent away, whatever comes when. */
static void nobody_is_sent_away(void **state) {
    struct client c[40];
    size_t n = 0;
    (void)state;
    fc_start(CONF, 1, 1);
    for (int step = 0; step < 2; step++) {
        if (step == 0)
            fake_kill(D);
        else
            fake_open(D, D->port);
        for (int i = 0; i < 20; i++, n++) {
            client_ask(&c[n], "POST", CHAT, "", STREAM);
            run_for(10);
        }
    }
    run_until(fc_serves, D);
    for (size_t done = 0; done < n;) {
        run_for(10);
        for (size_t i = 0; i < P->n_held; i++) {
            if (P->held[i].x == NULL) continue;
            struct held h = P->held[i];
            struct fake *d = strstr(h.path, CHAT) == NULL ? NULL : P;
            const struct relay *r = relay_find(fc.co.relays, strtoull(h.req_id, NULL, 10));
            if (d == NULL) continue; /* a poll */
            assert_non_null(r);
            d = r->attempt.d_id == D->id ? D : P;
            fake_reply(&P->held[i], 200, FIRST("data: 1\\n\\n", "11"));
            last(d, &h, 0);
            done++;
        }
    }
    for (size_t i = 0; i < n; i++) whole(&c[i]);
    run_until(has_own_role, P);
    idle();
    fc_close();
}

/* What is left at P when D is back goes on there for drain_soft_s at most. */
static void what_is_left_moves(void **state) {
    struct client c;
    (void)state;
    fc_start(CONF_OF(",\"fallback_to_standard\":true,\"drain_soft_s\":1"), 1, 1);
    fake_kill(D);
    run_until(stands_in, P);
    client_ask(&c, "POST", CHAT, "", STREAM);
    struct held h = take(P, P);
    data(P, &h, 0, "data: 2\n\n", "12");
    fake_open(D, D->port);
    run_until(fc_serves, D);
    run_until(holds, P);
    h = P->held[0];
    assert_string_equal(h.epoch, "1");
    assert_int_equal(P->record.choices[0].n_ids, 2);
    fake_reply(&P->held[0], 200, FIRST("", ""));
    last(D, &h, 0);
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n");
    client_close(&c);
    run_until(has_own_role, P);
    idle();
    fc_close();
}

/* Drained without force: the others stand in for it, and what it has goes on with them. */
static void the_last_is_drained(void **state) {
    struct errbuf eb = {0};
    struct client c;
    (void)state;
    fc_start(CONF_OF(",\"fallback_to_standard\":true,\"drain_soft_s\":0"), 1, 1);
    client_ask(&c, "POST", CHAT, "", STREAM);
    (void)take(P, D);
    run_until(has_event, &c);
    assert_int_equal(drain_order(&fc.co, D->id, true, false, &eb), ERR_OK);
    run_until(holds, P);
    struct held h = P->held[0];
    fake_reply(&P->held[0], 200, FIRST("", ""));
    P->n_held = 0;
    last(P, &h, 0);
    whole(&c);
    served_by(P, P);
    assert_int_equal(drain_order(&fc.co, D->id, false, false, &eb), ERR_OK);
    run_until(has_own_role, P);
    run_until(fc_serves, D);
    served_by(P, D);
    idle();
    fc_close();
}

/* Two that are left are two pairs, each by itself. */
static void two_stand_in(void **state) {
    struct client c[2];
    (void)state;
    fc_open(CONF);
    fc_add(LABEL_PREFILL_STATIC);
    fc_add(LABEL_DECODE_STATIC);
    fc_add(LABEL_PREFILL_STATIC);
    run_until(fc_all_serve, NULL);
    fake_kill(D);
    run_until(stands_in, P);
    run_until(stands_in, P2);
    for (int i = 0; i < 2; i++) client_ask(&c[i], "POST", CHAT, "", STREAM);
    struct held a = take(P, P), b = take(P2, P2);
    last(P, &a, 0);
    last(P2, &b, 0);
    for (int i = 0; i < 2; i++) whole(&c[i]);
    idle();
    fc_close();
}

/* A coordinator that finds one standing in knows which role it is to have again. */
static void known_to_the_next(void **state) {
    struct status_msg m = {.role = ROLE_FLEX};
    (void)state;
    fc_open(CONF);
    for (enum inst_role role = ROLE_PREFILL; role <= ROLE_DECODE; role++) {
        m.p_percentage = stand_in_share(&(struct plan_place){.role = role});
        assert_int_equal(inst_role_can(ROLE_FLEX, m.p_percentage), CAN_BOTH);
        assert_int_equal(stand_in_reported(&fc.co, &m), role);
    }
    m.role = ROLE_DECODE;
    assert_int_equal(stand_in_reported(&fc.co, &m), ROLE_DECODE);
    fc.co.conf.controller_enabled = false;
    assert_int_equal(stand_in_reported(&fc.co, &m), ROLE_DECODE);
    m.role = ROLE_FLEX; /* somebody else's affair */
    assert_int_equal(stand_in_reported(&fc.co, &m), ROLE_NONE);
    fc_close();
}

/* It does not want the role: clients are told, and do not wait for what does not come. */
static bool is_not_admitted(void *arg) {
    (void)arg;
    return !controller_admits(&fc.co);
}
static void refused(void **state) {
    struct client c;
    bool done;
    (void)state;
    fc_start(CONF, 1, 1);
    P->refuse_roles = true;
    fake_kill(D);
    run_until(is_not_admitted, NULL);
    client_ask(&c, "POST", CHAT, "", STREAM);
    run_until(client_done, &c);
    char *body = client_body(&c, &done);
    assert_int_equal(client_status(&c), 503);
    assert_non_null(strstr(body, "no decode instance serves"));
    free(body);
    client_close(&c);
    P->refuse_roles = false;
    run_until(stands_in, P);
    served_by(P, P);
    fc_close();
}

static void not_asked_for(void **state) {
    struct client c;
    bool done;
    (void)state;
    fc_start(CONF_OF(""), 1, 1);
    fake_kill(D);
    run_until(is_not_admitted, NULL);
    run_for(300);
    assert_int_equal(P->role, ROLE_PREFILL);
    client_ask(&c, "POST", CHAT, "", STREAM);
    run_until(client_done, &c);
    char *body = client_body(&c, &done);
    assert_int_equal(client_status(&c), 503);
    assert_true(client_has(&c, "\r\nRetry-After: 1"));
    assert_non_null(strstr(body, "no decode instance serves"));
    free(body);
    client_close(&c);
    fc_close();
}

/* ---- a role that changes at once */

/* As the planner begins it for a load. */
static void load_wants(const struct fake *f, enum inst_role role) {
    struct inst_plan *p = &fake_inst(f)->plan;
    p->place.next = role;
    p->at_once = true;
    p->switch_until_ms = clock_ms() + 60000;
}
static bool has_switched(void *arg) {
    controller_poll_soon(&fc.co);
    return fake_inst(arg)->plan.place.next == ROLE_NONE && inst_serves(fake_inst(arg), NULL);
}
static bool is_peer_of(const struct fake *f, const struct fake *of) {
    for (size_t i = 0; i < of->n_peers; i++)
        if (of->peers[i] == f->id) return true;
    return false;
}
static bool are_linked_in_their_roles(void *arg) {
    (void)arg;
    controller_poll_soon(&fc.co);
    for (int i = 0; i < fc.n_fakes; i++)
        for (int k = 0; k < fc.n_fakes; k++) {
            const struct fake *a = &fc.fakes[i], *b = &fc.fakes[k];
            if (is_peer_of(a, b) != (a->role != b->role)) return false;
        }
    return true;
}

static void start_four(const char *conf) {
    static const int labels[] = {LABEL_PREFILL_PREFER, LABEL_DECODE_PREFER, LABEL_PREFILL_PREFER,
                                 LABEL_DECODE_PREFER};
    fc_open(conf);
    for (int i = 0; i < 4; i++) fc_add(labels[i]);
    run_until(fc_all_serve, NULL);
    run_until(are_linked_in_their_roles, NULL);
}

/* New work goes to it, or not. */
static bool is_out(void *arg) {
    return !fc_serves(arg);
}
static void offer(struct fake *f, bool on) {
    fake_inst(f)->drain.ordered = !on;
    run_until(on ? fc_serves : is_out, f);
}

static bool all_are_linked_with(void *arg) {
    const struct fake *f = arg;
    controller_poll_soon(&fc.co);
    for (int i = 0; i < fc.n_fakes; i++)
        if (&fc.fakes[i] != f && !(is_peer_of(f, &fc.fakes[i]) && is_peer_of(&fc.fakes[i], f)))
            return false;
    return true;
}

static void changes(struct fake *f, enum inst_role role) {
    load_wants(f, role);
    run_until(has_switched, f);
    assert_int_equal(f->role, ROLE_FLEX);
    assert_int_equal(f->share % 2, role == ROLE_PREFILL); /* so another coordinator knows which */
    assert_int_equal(fake_inst(f)->plan.place.role, role);
    run_until(all_are_linked_with, f);
}

static void has_changed(struct fake *f, enum inst_role role) {
    run_until(has_own_role, f);
    assert_int_equal(f->role, role);
    run_until(are_linked_in_their_roles, NULL);
    assert_false(stand_in_changes(fake_inst(f)));
    idle();
}

/* A decode instance with a stream computes prompts at once, linked with everybody; the stream goes
 * on there to its end, and then it is a prefill instance and no more. */
static void a_decode_becomes_a_prefill(void **state) {
    struct client c;
    (void)state;
    start_four(CONF_OF(""));
    offer(P2, false);
    offer(D2, false);
    client_ask(&c, "POST", CHAT, "", STREAM);
    struct held h = take(P, D);
    data(D, &h, 0, "data: 2\n\n", "12");
    run_until(has_event, &c);
    offer(D2, true);
    changes(D, ROLE_PREFILL);
    offer(P, false);
    served_by(D, D2);
    assert_int_equal(D->role, ROLE_FLEX);
    last(D, &h, 1);
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n");
    client_close(&c);
    has_changed(D, ROLE_PREFILL);
    fc_close();
}

/* The same the other way: the prompt that it has is handed over from there. */
static void a_prefill_becomes_a_decode(void **state) {
    struct client c;
    (void)state;
    start_four(CONF_OF(""));
    offer(P2, false);
    offer(D2, false);
    client_ask(&c, "POST", CHAT, "", STREAM);
    run_until(holds, P);
    offer(P2, true);
    changes(P, ROLE_DECODE);
    offer(D, false);
    served_by(P2, P);
    assert_int_equal(P->role, ROLE_FLEX);
    struct held h = take(P, D);
    last(D, &h, 0);
    whole(&c);
    has_changed(P, ROLE_DECODE);
    fc_close();
}

/* What is left of the old role after drain_soft_s goes on elsewhere. */
static void the_old_role_is_given_up(void **state) {
    struct client c;
    (void)state;
    start_four(CONF_OF(",\"drain_soft_s\":1"));
    offer(P2, false);
    offer(D2, false);
    client_ask(&c, "POST", CHAT, "", STREAM);
    struct held h = take(P, D);
    data(D, &h, 0, "data: 2\n\n", "12");
    run_until(has_event, &c);
    offer(D2, true);
    changes(D, ROLE_PREFILL);
    offer(D, false);
    h = take(P, D2);
    assert_string_equal(h.epoch, "1");
    last(D2, &h, 0);
    client_expect(&c, 200, "data: 1\n\ndata: 2\n\ndata: 1\n\ndata: [DONE]\n\n");
    client_close(&c);
    offer(D, true);
    has_changed(D, ROLE_PREFILL);
    fc_close();
}

/* One whose new role is refused keeps the old one, and is asked again. */
static void a_change_is_refused(void **state) {
    struct client c;
    (void)state;
    start_four(CONF_OF(""));
    offer(P2, false);
    offer(D2, false);
    client_ask(&c, "POST", CHAT, "", STREAM);
    struct held h = take(P, D);
    offer(D2, true);
    D->refuse_roles = true;
    load_wants(D, ROLE_PREFILL);
    run_for(300);
    assert_int_equal(fake_inst(D)->plan.place.role, ROLE_DECODE);
    assert_int_equal(D->role, ROLE_DECODE);
    assert_true(is_peer_of(D, P)); /* and what it has is not hurt */
    last(D, &h, 0);
    whole(&c);
    D->refuse_roles = false;
    has_changed(D, ROLE_PREFILL);
    fc_close();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_decode_dies),
        cmocka_unit_test(the_last_prefill_dies),
        cmocka_unit_test(nobody_is_sent_away),
        cmocka_unit_test(what_is_left_moves),
        cmocka_unit_test(the_last_is_drained),
        cmocka_unit_test(two_stand_in),
        cmocka_unit_test(known_to_the_next),
        cmocka_unit_test(refused),
        cmocka_unit_test(not_asked_for),
        cmocka_unit_test(a_decode_becomes_a_prefill),
        cmocka_unit_test(a_prefill_becomes_a_decode),
        cmocka_unit_test(the_old_role_is_given_up),
        cmocka_unit_test(a_change_is_refused),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
