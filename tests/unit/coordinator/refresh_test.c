/* Goal: while roles come from another controller, instances are what it pushes: added, updated,
 * removed, changed of role; one that is lost is passed over for two minutes; none of them is polled
 * or given a role. Method: a real coordinator (controller.enabled false) over instances of the test
 * (fake_cluster.h), with the pushes made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/fake_cluster.h"

#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":1,\"role_post_retry_ms\":50},"                                  \
    "\"controller\":{\"enabled\":false}}"
#define CHAT "/v1/chat/completions"
#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"

static struct fake *const P = &fc.fakes[0], *const D = &fc.fakes[1], *const D2 = &fc.fakes[2];

static bool holds_one(void *arg) {
    return ((struct fake *)arg)->n_held == 1;
}
static bool serves(void *arg) {
    const struct inst *in = fake_inst(arg);
    return in != NULL && inst_serves(in, NULL);
}
static bool is_ready(void *arg) {
    (void)arg;
    return controller_ready(&fc.co);
}
static bool is_lost(void *arg) {
    const struct inst *in = fake_inst(arg);
    return in != NULL && !inst_answers(in);
}

/* An instance that has its role from elsewhere. */
static void make_fake(uint32_t id, enum inst_role role) {
    struct fake *f = &fc.fakes[fc.n_fakes++];
    memset(f, 0, sizeof(*f));
    f->slots = 8;
    f->id = id;
    f->role = role;
    f->role_status = ROLE_STATUS_READY;
    f->heartbeat_ms = 100;
    f->boot = 7;
    fake_open(f, 0);
}

static void put(struct buf *b, const struct fake *f, char role, const char *peers) {
    if (b->len > 0) buf_puts(b, ",");
    buf_printf(
        b,
        "{\"id\":%u,\"ip\":\"127.0.0.1\",\"port\":\"%u\",\"metric_port\":\"%u\","
        "\"inter_comm_port\":\"\",\"model_name\":\"m\",\"static_info\":{\"group_id\":77,"
        "\"max_seq_len\":1024,\"max_output_len\":512,\"total_slots_num\":8,"
        "\"total_block_num\":100,\"block_size\":16,\"label\":2,\"role\":%d,"
        "\"p_percentage\":50},\"dynamic_info\":{\"avail_slots_num\":%u,\"avail_block_num\":90,"
        "\"peers\":[%s]}}",
        f->id, f->port, f->port, role, f->slots, peers);
}

static void push_at(const char *ids, struct buf *insts, int line) {
    struct client c;
    struct buf b = BUF_INIT;
    buf_printf(&b, "{\"ids\":[%s],\"instances\":[%s]}", ids, insts->len > 0 ? insts->data : "");
    client_ask(&c, "POST", "/v1/instances/refresh", "", b.data);
    client_expect_at(&c, 200, "", line);
    client_close(&c);
    buf_free(&b);
    buf_free(insts);
}
#define push(ids, insts) push_at(ids, insts, __LINE__)

static void push_three(void) {
    struct buf b = BUF_INIT;
    put(&b, P, 'P', "21,22");
    put(&b, D, 'D', "11");
    put(&b, D2, 'D', "11");
    push("11,21,22", &b);
}

static void up(void) {
    fc_open(CONF);
    make_fake(11, ROLE_PREFILL);
    make_fake(21, ROLE_DECODE);
    make_fake(22, ROLE_DECODE);
    push_three();
    run_until(serves, P);
    run_until(serves, D);
    run_until(serves, D2);
}

static void ask_and_answer(struct fake *d) {
    struct client c;
    client_ask(&c, "POST", CHAT, "", BODY);
    run_until(holds_one, P);
    struct held held = P->held[0];
    char want[32];
    snprintf(want, sizeof(want), "d-port: %u\n", d->port);
    if (strstr(P->last_headers, want) == NULL) fail_msg("no %s in %s", want, P->last_headers);
    fake_reply(&P->held[0], 200, "{\"reqId\":\"1\",\"isStream\":false}");
    P->n_held = 0;
    fake_frame(d, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
}

static void added_and_used(void **state) {
    (void)state;
    up();
    assert_true(controller_ready(&fc.co));
    const struct inst *p = fake_inst(P), *d = fake_inst(D);
    assert_true(p->pushed.on && d->pushed.on);
    assert_int_equal(p->plan.place.role, ROLE_PREFILL);
    assert_int_equal(p->plan.place.group, 1); /* 77 is the controller's word */
    assert_int_equal(d->plan.place.group, 1);
    assert_int_equal(d->facts.config.cache_block_size, 16);
    assert_int_equal(d->facts.status.total_slots, 8);
    assert_int_equal(d->facts.status.avail_blocks, 90);
    assert_true(inst_linked(p, d));
    ask_and_answer(D);
    run_for(400); /* no polls, no roles, and the plan leaves them */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fc.fakes[i].n_posts, 0);
        assert_int_equal(fc.fakes[i].n_configs, 0);
    }
    assert_int_equal(fc.co.reg.n, 3);
    D->slots = 3;
    push_three();
    assert_int_equal(fake_inst(D)->facts.status.avail_slots, 3);
    assert_ptr_equal(fake_inst(D), d); /* the same one */
    assert_int_equal(D->n_listens, 1);
    struct client c;
    client_ask(&c, "GET", "/v2/status", "", "");
    run_until(client_done, &c);
    assert_non_null(strstr(c.in.data, "\"source\":\"pushed\""));
    client_close(&c);
    fc_close();
}

/* Who is not in the list goes; one without details stays as it was. */
static void removed(void **state) {
    struct buf b = BUF_INIT;
    (void)state;
    up();
    put(&b, P, 'P', "21");
    push("11,21,99", &b);
    assert_null(fake_inst(D2));
    assert_non_null(fake_inst(D));
    assert_true(serves(D));
    assert_int_equal(fake_inst(P)->facts.status.n_links, 1);
    put(&b, P, 'P', "21");
    put(&b, D2, 'D', "11");
    push("11,21", &b); /* its id is not among them */
    assert_null(fake_inst(D2));
    push("", &b);
    assert_int_equal(fc.co.reg.n, 0);
    assert_false(controller_ready(&fc.co));
    fc_close();
}

/* Remove, then add: its stream is opened anew, and what ran there goes on elsewhere. */
static void a_role_changes(void **state) {
    struct client c;
    struct buf b = BUF_INIT;
    (void)state;
    up();
    client_ask(&c, "POST", CHAT, "", BODY);
    run_until(holds_one, P);
    assert_int_equal(fake_inst(D)->ledger.tasks, 1);
    D->role = ROLE_PREFILL;
    put(&b, P, 'P', "22");
    put(&b, D, 'P', "22");
    put(&b, D2, 'D', "11,21");
    push("11,21,22", &b);
    assert_int_equal(fake_inst(D)->plan.place.role, ROLE_PREFILL);
    run_until(serves, D);
    assert_int_equal(D->n_listens, 2);
    struct fake *now = P->n_held > 1 ? P : D;
    while (now->n_held == 0 || now->held[now->n_held - 1].x == NULL) {
        run_for(20);
        now = P->n_held > 1 ? P : D;
    }
    struct held held = now->held[now->n_held - 1];
    assert_string_equal(held.epoch, "1");
    fake_reply(&now->held[now->n_held - 1], 200, "{\"reqId\":\"1\",\"isStream\":false}");
    fake_frame(D2, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    fc_close();
}

/* Lost on its stream: nothing goes there, whatever is pushed, for two minutes. */
static void lost_and_back(void **state) {
    (void)state;
    up();
    const uint16_t port = D->port;
    fake_kill(D);
    run_until(is_lost, D);
    push_three();
    assert_true(is_lost(D));
    ask_and_answer(D2);
    struct buf b = BUF_INIT;
    put(&b, P, 'P', "22");
    put(&b, D2, 'D', "11");
    push("11,22", &b); /* the controller has noticed too: that it was lost is remembered */
    assert_true(is_lost(D));
    D->role = ROLE_DECODE;
    D->boot = 8;
    fake_open(D, port);
    push_three();
    run_for(300);
    assert_true(is_lost(D));
    fake_inst(D)->pushed.lost_ms = clock_ms() - REFRESH_FAULTY_MS;
    push_three();
    run_until(serves, D);
    fc_close();
}

/* A flex is a pair by itself. */
static void a_flex(void **state) {
    struct client c;
    struct buf b = BUF_INIT;
    (void)state;
    fc_open(CONF);
    make_fake(11, ROLE_FLEX);
    put(&b, P, 'F', "");
    push("11", &b);
    run_until(is_ready, NULL);
    client_ask(&c, "POST", CHAT, "", BODY);
    run_until(holds_one, P);
    struct held held = P->held[0];
    fake_reply(&P->held[0], 200, "{\"reqId\":\"1\",\"isStream\":false}");
    fake_frame(P, &held, 0, DR_LAST, 0, "{}");
    client_expect(&c, 200, "{}");
    client_close(&c);
    fc_close();
}

static void refused(void **state) {
    struct client c;
    (void)state;
    fc_open("{\"pd\":{\"register_lease_s\":3600}}");
    client_ask(&c, "POST", "/v1/instances/refresh", "", "{\"ids\":[],\"instances\":[]}");
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 409);
    assert_non_null(strstr(c.in.data, "controller.enabled is true"));
    client_close(&c);
    fc_close();
    fc_open(CONF);
    client_ask(&c, "POST", "/v1/instances/refresh", "", "{\"ids\":[]}");
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 400);
    assert_non_null(strstr(c.in.data, "instances must be an array"));
    client_close(&c);
    client_ask(&c, "GET", "/v1/coordinator_info", "", "");
    run_until(client_done, &c);
    assert_int_equal(client_status(&c), 503); /* nothing was published */
    client_close(&c);
    make_fake(11, ROLE_PREFILL);
    make_fake(12, ROLE_PREFILL);
    D->port = P->port; /* two at one address */
    struct buf b = BUF_INIT;
    put(&b, P, 'P', "");
    put(&b, D, 'P', "");
    push("11,12", &b);
    assert_non_null(fake_inst(P));
    assert_null(fake_inst(D));
    client_ask(&c, "GET", "/v1/coordinator_info", "", "");
    client_expect(&c, 200,
                  "{\"schedule_info\":[{\"id\":11,\"allocated_slots\":0,\"allocated_blocks\":0}],"
                  "\"request_num\":0,\"request_length_info\":{\"input_len\":0,\"output_len\":0}}");
    client_close(&c);
    fc_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_and_used), cmocka_unit_test(removed),
        cmocka_unit_test(a_role_changes), cmocka_unit_test(lost_and_back),
        cmocka_unit_test(a_flex),         cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
