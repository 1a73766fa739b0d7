/* Goal: the controller brings instances to their roles, notices what they say and what they stop
 * saying, and changes a role without losing what runs. Method: a real coordinator over instances of
 * the test (fake_cluster.h), which answer as each case needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/api_error.h"
#include "tests/unit/coordinator/fake_cluster.h"

#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50},"                               \
    "\"controller\":{\"http_retries\":1,\"digs_periodic_role_decision\":{\"tasks_end_wait_"        \
    "seconds\":"                                                                                   \
    "1}}}"

static struct errbuf eb;

static bool does_not_serve(void *arg) {
    return !fc_serves(arg);
}
static bool is_faulty(void *arg) {
    controller_poll_soon(&fc.co);
    return !inst_answers(fake_inst(arg));
}
static bool is_prefill(void *arg) {
    controller_poll_soon(&fc.co);
    return ((struct fake *)arg)->role == ROLE_PREFILL;
}
static bool has_two_peers(void *arg) {
    controller_poll_soon(&fc.co);
    return ((struct fake *)arg)->n_peers == 2;
}
static bool is_leaving(void *arg) {
    controller_poll_soon(&fc.co);
    return fake_inst(arg)->life.state == INST_LEAVING;
}
static bool switch_is_off(void *arg) {
    return fake_inst(arg)->plan.place.next == ROLE_NONE;
}

/* Nothing is ready before roles are taken and links stand; then everything is. */
static void bring_up(void **state) {
    (void)state;
    fc_open(CONF);
    assert_false(controller_ready(&fc.co));
    struct fake *a = fc_add(-1), *b = fc_add(LABEL_PREFILL_PREFER);
    run_until(fc_ready, NULL);
    assert_int_equal(b->role, ROLE_PREFILL); /* its label wishes it */
    assert_int_equal(a->role, ROLE_DECODE);
    assert_int_equal(a->n_peers, 1);
    assert_int_equal(a->peers[0], b->id);
    assert_int_equal(b->peers[0], a->id);
    assert_non_null(a->dresult);
    assert_non_null(b->dresult); /* to be watched */
    unsigned posts = a->n_posts;
    run_for(300);
    assert_int_equal(a->n_posts, posts); /* a role that is taken is not posted again */
    fc_close();
}

/* The ratio of the configuration. */
static void ratio(void **state) {
    (void)state;
    fc_open("{\"pd\":{\"register_lease_s\":3600,\"role_post_retry_ms\":50},\"controller\":{"
            "\"default_p_rate\":3,\"default_d_rate\":1,\"server_online_attempt_times\":1,"
            "\"server_online_wait_seconds\":1}}");
    for (int i = 0; i < 4; i++) fc_add(-1);
    run_until(fc_all_serve, NULL);
    int p = 0;
    for (int i = 0; i < 4; i++) p += fc.fakes[i].role == ROLE_PREFILL;
    assert_int_equal(p, 3);
    fc_close();
}

static bool are_online(void *arg) {
    for (int i = 0; i < *(int *)arg; i++)
        if (!fake_inst(&fc.fakes[i])->facts.online || !inst_answers(fake_inst(&fc.fakes[i])))
            return false;
    return true;
}

/* A static label leaves no choice, whatever the ratio wants and in whatever order they come; a wish
 * gives way to the ratio. */
static void labels(void **state) {
    int n = 2;
    (void)state;
    fc_open(CONF);
    fc_add(LABEL_DECODE_STATIC);
    fc_add(LABEL_DECODE_STATIC);
    run_until(are_online, &n);
    run_for(400);
    assert_int_equal(fake_inst(&fc.fakes[0])->plan.place.role, ROLE_DECODE);
    assert_int_equal(fake_inst(&fc.fakes[1])->plan.place.role, ROLE_DECODE);
    assert_false(controller_ready(&fc.co));
    struct fake *p = fc_add(LABEL_PREFILL_STATIC);
    run_until(fc_all_serve, NULL);
    assert_int_equal(p->role, ROLE_PREFILL);
    assert_int_equal(p->n_peers, 2);
    fc_close();
    fc_open(CONF);
    fc_add(LABEL_DECODE_PREFER);
    fc_add(LABEL_DECODE_PREFER);
    run_until(fc_all_serve, NULL);
    assert_int_equal((fc.fakes[0].role == ROLE_PREFILL) + (fc.fakes[1].role == ROLE_PREFILL), 1);
    fc_close();
}

/* Instances that have roles keep them when a coordinator comes anew. */
static void keeps_roles(void **state) {
    (void)state;
    fc_open(CONF);
    struct fake *a = fc_add(LABEL_PREFILL_STATIC), *b = fc_add(LABEL_DECODE_STATIC);
    a->role = ROLE_DECODE;
    b->role = ROLE_PREFILL;
    a->role_status = b->role_status = ROLE_STATUS_READY;
    run_until(fc_all_serve, NULL);
    assert_int_equal(a->role, ROLE_DECODE);
    assert_int_equal(b->role, ROLE_PREFILL);
    fc_close();
}

/* A new instance joins while the others go on serving. */
static void join(void **state) {
    (void)state;
    fc_start(CONF, 1, 1);
    struct fake *p = &fc.fakes[0], *d = &fc.fakes[1];
    p->role_status = d->role_status = ROLE_STATUS_SWITCHING; /* as after a new set of peers */
    struct fake *d2 = fc_add(LABEL_DECODE_STATIC);
    uint64_t end = clock_ms() + FC_DEADLINE_MS;
    while (p->n_peers < 2) {
        assert_true(clock_ms() < end);
        assert_true(controller_ready(&fc.co));
        run_for(20);
    }
    run_until(fc_serves, d2);
    assert_true(controller_ready(&fc.co));
    fc_close();
}

/* A killed D is found out, and gets its role again when it comes back under its address. */
static void restart(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *d = &fc.fakes[1], *other = &fc.fakes[2];
    uint16_t port = d->port;
    fake_kill(d);
    run_until(is_faulty, d);
    assert_true(controller_ready(&fc.co)); /* by the other */
    assert_true(fc_serves(other));
    unsigned configs = d->n_configs;
    fake_open(d, port);
    run_until(fc_serves, d);
    assert_int_equal(d->role, ROLE_DECODE);
    assert_int_equal(d->id, 2);
    assert_true(d->n_configs > configs); /* it may have come back with another model */
    fc_close();
}

/* One that lost its role between two polls, or was given another, gets its own back. */
static void lost_role(void **state) {
    (void)state;
    fc_start(CONF, 1, 1);
    struct fake *d = &fc.fakes[1];
    d->role = ROLE_NONE;
    d->role_status = ROLE_STATUS_UNKNOWN;
    d->n_peers = 0;
    run_until(does_not_serve, d);
    run_until(fc_serves, d);
    assert_int_equal(d->role, ROLE_DECODE);
    d->role = ROLE_PREFILL;
    run_until(does_not_serve, d);
    run_until(fc_serves, d);
    assert_int_equal(d->role, ROLE_DECODE);
    fc_close();
}

/* An instance that says it stops gets no new work but keeps its stream; one that says nothing
 * sensible is faulty. */
static void leaving(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *d = &fc.fakes[1];
    d->status_code = 503;
    d->status_text =
        "{\"error\":\"The service has been stopped.\",\"error_type\":\"Service Unavailable\"}";
    run_until(is_leaving, d);
    run_for(300);
    assert_true(inst_answers(fake_inst(d)));
    assert_false(fc_serves(d));
    assert_non_null(d->dresult);
    assert_true(controller_ready(&fc.co));
    d->status_code = 500;
    d->status_text = "broken";
    run_until(is_faulty, d);
    assert_string_equal(fake_inst(d)->facts.last_error, "status 500: broken");
    d->status_code = 200;
    d->status_text = "{\"not\":\"a status\"}";
    run_for(200);
    assert_false(inst_answers(fake_inst(d)));
    d->status_code = 0;
    run_until(fc_serves, d);
    fc_close();
}

static bool known_stuck_ms(void *arg) {
    const struct fake *f = arg;
    controller_poll_soon(&fc.co);
    return fake_inst(f)->facts.status.stuck_ms == f->stuck_ms;
}

/* An engine that does not get on takes its instance out, and brings it back; nothing else of it
 * ends. */
static void a_stuck_engine_gets_no_work(void **state) {
    const char *why;
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *d = &fc.fakes[1];
    d->stuck_ms = 3000;
    run_until(known_stuck_ms, d);
    assert_false(inst_serves(fake_inst(d), &why));
    assert_string_equal(why, "engine");
    assert_true(inst_answers(fake_inst(d)));
    assert_non_null(d->dresult);
    assert_true(controller_ready(&fc.co)); /* the other D serves */
    d->stuck_ms = 0;
    run_until(fc_serves, d);
    assert_int_equal(d->n_posts, 1); /* in the role it had */
    fc_close();
}

/* D to P: its stream and its peers stay until it is idle and has taken the new role. */
static void switch_drains(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *p = &fc.fakes[0], *d = &fc.fakes[1];
    fc.co.conf.drain_s = 3600;
    d->running = 1;
    run_until(fc_running_is_known, d);
    assert_int_equal(planner_switch(&fc.co, d->id, ROLE_PREFILL, false, &eb), ERR_OK);
    assert_false(fc_serves(d));
    run_for(400);
    assert_int_equal(d->role, ROLE_DECODE);
    assert_non_null(d->dresult);
    assert_int_equal(p->n_peers, 2); /* nobody unlinks it yet */
    assert_int_equal(planner_switch(&fc.co, d->id, ROLE_PREFILL, false, &eb), ERR_OK); /* again */
    d->running = 0;
    run_until(is_prefill, d);
    run_until(fc_serves, d);
    assert_non_null(d->dresult);
    assert_int_equal(p->n_peers, 1);
    assert_int_equal(fake_inst(d)->plan.place.role, ROLE_PREFILL);
    /* and back */
    assert_int_equal(planner_switch(&fc.co, d->id, ROLE_DECODE, false, &eb), ERR_OK);
    run_until(fc_is_decode, d);
    run_until(fc_serves, d);
    run_until(has_two_peers, p);
    fc_close();
}

/* A switch that is refused for too long is off, and the instance serves as before. */
static void switch_given_up(void **state) {
    (void)state;
    fc_start(CONF, 2, 1);
    struct fake *p = &fc.fakes[0];
    p->refuse_roles = true;
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_DECODE, false, &eb), ERR_OK);
    assert_false(fc_serves(p));
    run_until(switch_is_off, p);
    run_until(fc_serves, p);
    assert_int_equal(p->role, ROLE_PREFILL);
    /* asking for the role it has takes a switch back */
    p->refuse_roles = false;
    p->running = 1;
    run_until(fc_running_is_known, p);
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_DECODE, false, &eb), ERR_OK);
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_PREFILL, false, &eb), ERR_OK);
    assert_true(fc_serves(p));
    fc_close();
}

/* The last of a role moves only by force, at once, and the cluster says that it is not ready. */
static void last_of_a_role(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *p = &fc.fakes[0], *d = &fc.fakes[1];
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_DECODE, false, &eb), ERR_CONFLICT);
    assert_string_equal(
        eb.text,
        "instance 1 is the last prefill instance; \"force\": true switches it all the same");
    /* the other D does not answer: this one is the last */
    fake_kill(&fc.fakes[2]);
    run_until(is_faulty, &fc.fakes[2]);
    assert_int_equal(planner_switch(&fc.co, d->id, ROLE_PREFILL, false, &eb), ERR_CONFLICT);
    assert_int_equal(planner_switch(&fc.co, 99, ROLE_PREFILL, false, &eb), ERR_NOT_FOUND);
    assert_int_equal(planner_switch(&fc.co, d->id, ROLE_FLEX, false, &eb), ERR_INVALID);
    assert_int_equal(planner_switch(&fc.co, fc.fakes[2].id, ROLE_PREFILL, true, &eb),
                     ERR_CONFLICT); /* one that does not answer cannot be told */
    p->running = 5;                 /* force does not wait */
    run_for(250);
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_DECODE, true, &eb), ERR_OK);
    run_until(fc_is_decode, p);
    assert_true(p->last_forced);
    run_until(does_not_serve, p); /* no peer */
    assert_false(controller_ready(&fc.co));
    p->running = 0;
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_PREFILL, true, &eb), ERR_OK);
    run_until(fc_ready, NULL);
    fc_close();
}

/* The last of a role is gone for good: another one takes its place, as a switch does. */
static void a_role_is_taken_over(void **state) {
    (void)state;
    fc_open("{\"pd\":{\"register_lease_s\":1,\"role_post_retry_ms\":50,\"role_repair_s\":1},"
            "\"controller\":{\"http_retries\":1,\"default_p_rate\":2,\"default_d_rate\":1}}");
    fc_add(LABEL_PREFILL_STATIC);
    struct fake *p = fc_add(LABEL_PREFILL_PREFER), *d = fc_add(LABEL_DECODE_STATIC);
    run_until(fc_all_serve, NULL);
    assert_int_equal(p->role, ROLE_PREFILL);
    fake_kill(d);
    run_until(is_faulty, d);
    assert_false(controller_ready(&fc.co));
    assert_int_equal(fake_inst(p)->plan.place.next, ROLE_NONE);
    run_until(fc_is_decode, p);
    run_until(fc_ready, NULL);
    assert_int_equal(fc.fakes[0].role, ROLE_PREFILL);
    fc_close();
}

struct wanted {
    const struct fake *of;
    size_t n;
};
static bool has_so_many(void *arg) {
    const struct wanted *w = arg;
    return w->of->n_held == w->n;
}
static void fake_infer_arrives(const struct fake *f, size_t n) {
    struct wanted w = {f, n};
    run_until(has_so_many, &w);
}

static bool embeds(void *arg) {
    (void)arg;
    controller_poll_soon(&fc.co);
    return controller_embeds(&fc.co);
}
static bool does_not_embed(void *arg) {
    return !embeds(arg);
}

/* Instances whose models only embed need no pair, nor a role; beside one that generates they are no
 * service of their own. */
static void encoders(void **state) {
    (void)state;
    fc_open(CONF);
    struct fake *a = fc_add(LABEL_PREFILL_STATIC);
    a->embeds_only = true;
    run_until(embeds, NULL);
    assert_true(controller_serves(&fc.co) && fc_serves(a));
    assert_false(controller_ready(&fc.co));
    assert_int_equal(a->role, ROLE_NONE);
    a->engine_held = true;
    run_until(does_not_embed, NULL);
    assert_false(controller_serves(&fc.co));
    a->engine_held = false;
    run_until(embeds, NULL);
    /* the last one stays unless it must; with another one it may go, whatever the roles */
    assert_int_equal(drain_order(&fc.co, a->id, true, false, &eb), ERR_CONFLICT);
    struct fake *b = fc_add(LABEL_DECODE_STATIC);
    b->embeds_only = true;
    run_until(fc_all_serve, NULL);
    assert_int_equal(drain_order(&fc.co, a->id, true, false, &eb), ERR_OK);
    assert_true(controller_embeds(&fc.co));
    struct client c;
    for (int i = 0; i < 4; i++) { /* not to the one that is drained */
        client_ask(&c, "POST", "/v1/embeddings", "", "{}");
        fake_infer_arrives(b, (size_t)i + 1);
        client_close(&c);
    }
    assert_int_equal(a->n_held, 0);
    assert_int_equal(drain_order(&fc.co, a->id, false, false, &eb), ERR_OK);
    fake_kill(b);
    run_until(is_faulty, b);
    assert_true(controller_embeds(&fc.co));
    client_ask(&c, "POST", "/v1/completions", "", "{\"prompt\":\"x\"}");
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 422);
    assert_non_null(strstr(c.in.data, API_GENERATES_NOTHING));
    client_close(&c);
    /* the test of the cluster is that of one instance */
    a->timed_code = 200;
    a->timed_text = "{}";
    client_ask(&c, "GET", "/health/timed-5", "", "");
    client_expect(&c, 200, "{\"status\":\"healthy\"}");
    client_close(&c);
    fc_add(LABEL_DECODE_STATIC); /* it generates */
    run_until(does_not_embed, NULL);
    fc_close();
}

static bool is_forgotten(void *arg) {
    return fake_inst(arg) == NULL;
}

/* A registration that is not renewed by an instance that does not answer is forgotten; the same
 * address is a new instance then. */
static void lease_ends(void **state) {
    (void)state;
    fc_start(CONF, 1, 2);
    struct fake *d = &fc.fakes[1];
    fake_inst(d)->lease_end_ms = 1; /* long ago, but it answers */
    run_for(300);
    assert_true(fc_serves(d));
    fake_kill(d);
    run_until(is_forgotten, d);
    assert_int_equal(fc.co.reg.n, 2);
    fc_close();
}

/* The management plane's answers. */
static void routes(void **state) {
    struct client c;
    char path_body[128];
    bool whole;
    (void)state;
    fc_start(CONF, 1, 2);
    client_ask(&c, "GET", "/v1/readiness", "", "");
    client_expect(&c, 200, "{\"ready\":true,\"prefill\":1,\"decode\":2,\"reasons\":[]}");
    client_close(&c);
    client_ask(&c, "POST", "/v1/instances/role", "", "{\"id\":1,\"role\":\"decode\"}");
    client_expect(
        &c, 409,
        "{\"error\":\"instance 1 is the last prefill instance; \\\"force\\\": true switches "
        "it all the same\",\"error_type\":\"Conflict\",\"object\":\"error\",\"message\":"
        "\"instance 1 is the last prefill instance; \\\"force\\\": true switches it all "
        "the same\",\"type\":\"BadRequestError\",\"param\":null,\"code\":409}");
    client_close(&c);
    static const struct {
        const char *body;
        int status;
        const char *word;
    } bad[] = {
        {"{\"id\":9,\"role\":\"decode\"}", 404, "id must be a known instance, got 9"},
        {"{\"id\":\"1\",\"role\":\"decode\"}", 422, "id must be the number of an instance"},
        {"{\"id\":1,\"role\":\"flex\"}", 422, "role must be"},
        {"{\"id\":1,\"role\":5}", 422, "role must be"},
        {"{\"id\":4294967296,\"role\":\"decode\"}", 422, "id must be the number of an instance"},
        {"{\"id\":1,\"role\":\"decode\",\"force\":1}", 422, "force must be a boolean"},
        {"null", 422, "id must be the number of an instance"},
        {"{", 422, ""},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        client_ask(&c, "POST", "/v1/instances/role", "", bad[i].body);
        run_until(client_done, &c);
        char *body = client_body(&c, &whole);
        assert_int_equal(client_status(&c), bad[i].status);
        assert_non_null(strstr(body, bad[i].word));
        free(body);
        client_close(&c);
    }
    client_ask(&c, "POST", "/v1/instances/role", "", "{\"id\":1,\"role\":\"prefill\"}");
    client_expect(&c, 200, "{\"result\":\"ok\"}");
    client_close(&c);

    client_ask(&c, "POST", "/v1/instances/register", "", "{\"server_ip\":\"127.0.0.1\"}");
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 422);
    client_close(&c);
    snprintf(path_body, sizeof(path_body),
             "{\"server_ip\":\"127.0.0.1\",\"predict_port\":%u,\"mgmt_port\":%u,\"device\":[{}]}",
             fc.fakes[1].port, fc.fakes[1].port);
    client_ask(&c, "POST", "/v1/instances/register", "", path_body);
    client_expect(&c, 200, "{\"result\":\"ok\",\"id\":2,\"lease_s\":3600}");
    client_close(&c);
    assert_int_equal(fc.co.reg.n, 3);

    /* the whole cluster in one answer */
    client_ask(&c, "GET", "/v2/status", "", "");
    run_until(client_done, &c);
    char *body = client_body(&c, &whole);
    struct json_value *root = NULL, *arr, *o;
    assert_int_equal(json_read(&root, body, strlen(body), NULL, NULL), ERR_OK);
    assert_int_equal(json_get_arr(root, "instances", &arr), JSON_OK);
    assert_int_equal(json_arr_len(arr), 3);
    for (size_t i = 0; i < 3; i++) {
        const char *s;
        size_t n;
        int64_t slots;
        o = json_arr_at(arr, i);
        assert_int_equal(json_get_str(o, "state", &s, &n), JSON_OK);
        assert_string_equal(s, "serving");
        assert_int_equal(json_get_str(o, "role", &s, &n), JSON_OK);
        assert_string_equal(s, i == 0 ? "prefill" : "decode");
        assert_int_equal(json_get_i64(o, "slotsTotal", &slots), JSON_OK);
        assert_int_equal(slots, 8);
    }
    json_put(root);
    free(body);
    client_close(&c);

    /* and what is missing, when something is */
    fake_kill(&fc.fakes[0]);
    run_until(is_faulty, &fc.fakes[0]);
    client_ask(&c, "GET", "/v1/readiness", "", "");
    run_until(client_done, &c);
    body = client_body(&c, &whole);
    assert_int_equal(client_status(&c), 503);
    char want[128];
    snprintf(
        want, sizeof(want),
        "{\"ready\":false,\"reasons\":[{\"id\":%u,\"name\":\"127.0.0.1:%u\",\"stage\":\"health\"",
        fc.fakes[0].id, fc.fakes[0].port);
    assert_non_null(strstr(body, want));
    assert_non_null(strstr(body, "no prefill instance serves"));
    free(body);
    client_close(&c);
    client_ask(&c, "GET", "/v2/health/ready", "", "");
    client_expect(&c, 503, "");
    client_close(&c);
    client_ask(&c, "GET", "/v2/health/live", "", "");
    client_expect(&c, 200, "");
    client_close(&c);
    fc_close();
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bring_up),
        cmocka_unit_test(ratio),
        cmocka_unit_test(labels),
        cmocka_unit_test(keeps_roles),
        cmocka_unit_test(join),
        cmocka_unit_test(restart),
        cmocka_unit_test(a_stuck_engine_gets_no_work),
        cmocka_unit_test(lost_role),
        cmocka_unit_test(leaving),
        cmocka_unit_test(switch_drains),
        cmocka_unit_test(switch_given_up),
        cmocka_unit_test(last_of_a_role),
        cmocka_unit_test(a_role_is_taken_over),
        cmocka_unit_test(encoders),
        cmocka_unit_test(lease_ends),
        cmocka_unit_test(routes),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
