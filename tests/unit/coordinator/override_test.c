/* Goal: a role with an end holds for its time, whatever the plan would do, and then the instance is
 * what it was before; where it cannot be, that is said and it stays; another coordinator goes on
 * with it. Method: a real coordinator over instances of the test (fake_cluster.h); the end is moved
 * near where a case waits for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/fake_cluster.h"

#define CONF                                                                                       \
    "{\"pd\":{\"register_lease_s\":1,\"role_post_retry_ms\":50,\"role_repair_s\":1},"              \
    "\"controller\":{\"http_retries\":1}}"

static struct errbuf eb;

static bool is_prefill(void *arg) {
    controller_poll_soon(&fc.co);
    return ((struct fake *)arg)->role == ROLE_PREFILL && fc_serves(arg);
}
static bool has_none(void *arg) {
    return fake_inst(arg)->plan.override.role == ROLE_NONE;
}

static struct fake *of_role(enum inst_role role) {
    for (int i = 0; i < fc.n_fakes; i++)
        if (fc.fakes[i].role == role) return &fc.fakes[i];
    fail_msg("nobody is %s", inst_role_name(role));
    return NULL;
}

static void up(int n) {
    fc_open(CONF);
    for (int i = 0; i < n; i++) fc_add(-1);
    run_until(fc_all_serve, NULL);
}

static void there_and_back(void **state) {
    (void)state;
    up(4);
    struct fake *p = of_role(ROLE_PREFILL);
    struct inst *in = fake_inst(p);
    assert_int_equal(override_label(in), -1);
    assert_int_equal(override_order(&fc.co, p->id, ROLE_DECODE, false, 600, &eb), ERR_OK);
    run_until(fc_is_decode, p);
    assert_int_equal(override_label(in), LABEL_DECODE_STATIC);
    assert_in_range(in->plan.override.until_ms - clock_ms(), 590000, 600000);
    /* another one in its place goes back to the same */
    assert_int_equal(override_order(&fc.co, p->id, ROLE_DECODE, false, 5, &eb), ERR_OK);
    assert_int_equal(in->plan.override.back, ROLE_PREFILL);
    in->plan.override.until_ms = clock_ms() + 50;
    run_until(is_prefill, p);
    assert_int_equal(in->plan.override.role, ROLE_NONE);
    assert_int_equal(override_label(in), -1);
    /* at once */
    assert_int_equal(override_order(&fc.co, p->id, ROLE_DECODE, false, 600, &eb), ERR_OK);
    run_until(fc_is_decode, p);
    assert_int_equal(override_end(&fc.co, p->id, &eb), ERR_OK);
    run_until(is_prefill, p);
    assert_int_equal(override_end(&fc.co, p->id, &eb), ERR_CONFLICT);
    assert_int_equal(override_end(&fc.co, 77, &eb), ERR_NOT_FOUND);
    /* an order without an end takes its place */
    assert_int_equal(override_order(&fc.co, p->id, ROLE_DECODE, false, 600, &eb), ERR_OK);
    assert_int_equal(planner_switch(&fc.co, p->id, ROLE_DECODE, false, &eb), ERR_OK);
    assert_int_equal(in->plan.override.role, ROLE_NONE);
    /* what a switch refuses, this does */
    assert_int_equal(override_order(&fc.co, 77, ROLE_DECODE, false, 600, &eb), ERR_NOT_FOUND);
    fc_close();
}

/* The plan would move the only one that has no static label; it must not. */
static void the_plan_leaves_it(void **state) {
    (void)state;
    fc_open(CONF);
    struct fake *a = fc_add(LABEL_PREFILL_STATIC), *b = fc_add(-1), *d = fc_add(-1);
    run_until(fc_all_serve, NULL);
    struct fake *flexible = b->role == ROLE_PREFILL ? b : d, *other = flexible == b ? d : b;
    if (flexible->role == ROLE_DECODE) { /* one to one: the static one prefills alone */
        assert_int_equal(planner_switch(&fc.co, flexible->id, ROLE_PREFILL, false, &eb), ERR_OK);
        run_until(is_prefill, flexible);
    }
    assert_int_equal(override_order(&fc.co, flexible->id, ROLE_PREFILL, false, 600, &eb), ERR_OK);
    assert_int_equal(fake_inst(flexible)->plan.override.back, ROLE_PREFILL);
    fake_kill(other);
    run_for(2500); /* longer than role_repair_s */
    assert_int_equal(a->role, ROLE_PREFILL);
    assert_int_equal(flexible->role, ROLE_PREFILL);
    assert_int_equal(fake_inst(flexible)->plan.place.next, ROLE_NONE);
    assert_int_equal(override_end(&fc.co, flexible->id, &eb), ERR_OK);
    run_until(fc_is_decode, flexible); /* now the plan may */
    fc_close();
}

/* The last one of its role stays what it is. */
static void cannot_go_back(void **state) {
    (void)state;
    up(3);
    struct fake *p = of_role(ROLE_PREFILL);
    int n_p = 0;
    for (int i = 0; i < 3; i++) n_p += fc.fakes[i].role == ROLE_PREFILL;
    const enum inst_role from = n_p == 2 ? ROLE_PREFILL : ROLE_DECODE,
                         to = n_p == 2 ? ROLE_DECODE : ROLE_PREFILL;
    struct fake *one = from == ROLE_PREFILL ? p : of_role(ROLE_DECODE), *last = of_role(to);
    assert_int_equal(override_order(&fc.co, one->id, to, false, 600, &eb), ERR_OK);
    run_until(to == ROLE_DECODE ? fc_is_decode : is_prefill, one);
    assert_int_equal(drain_order(&fc.co, last->id, true, true, &eb), ERR_OK);
    struct inst *in = fake_inst(one);
    in->plan.override.until_ms = clock_ms();
    run_until(has_none, one);
    assert_int_equal(in->plan.place.role, to);
    assert_int_equal(in->plan.place.next, ROLE_NONE);
    fc_close();
}

/* Kept, and taken up by the next coordinator: until the same moment, or at the latest in a week. */
static void resumed(void **state) {
    struct inst in = {.node.label = LABEL_PREFILL_STATIC};
    const uint64_t now_s = clock_unix_us() / 1000000;
    (void)state;
    override_resume(&in, ROLE_DECODE, ROLE_PREFILL, now_s + 100);
    assert_int_equal(override_label(&in), LABEL_DECODE_STATIC);
    assert_in_range(in.plan.override.until_ms - clock_ms(), 98000, 101000);
    assert_int_equal(in.plan.override.until_unix_s, now_s + 100);
    override_resume(&in, ROLE_DECODE, ROLE_PREFILL, now_s - 5);
    assert_true(in.plan.override.until_ms <= clock_ms());
    override_resume(&in, ROLE_DECODE, ROLE_PREFILL, INT64_MAX);
    assert_true(in.plan.override.until_ms <= clock_ms() + UINT64_C(1000) * OVERRIDE_S_MAX);
    up(4);
    struct fake *p = of_role(ROLE_PREFILL);
    assert_int_equal(override_order(&fc.co, p->id, ROLE_DECODE, false, 600, &eb), ERR_OK);
    const struct store_row *row = store_find(fc.co.store, fake_inst(p)->identity);
    assert_non_null(row);
    assert_int_equal(row->override, ROLE_DECODE);
    assert_int_equal(row->back, ROLE_PREFILL);
    assert_int_equal(row->override_unix_s, fake_inst(p)->plan.override.until_unix_s);
    run_until(fc_is_decode, p);
    planner_keep(&fc.co);
    struct node_conf node = fake_inst(p)->node;
    node.devices = NULL;
    node.n_devices = 0;
    struct registry fresh = {.store = fc.co.store};
    struct inst *again = registry_put(&fresh, &node);
    assert_int_equal(again->plan.override.role, ROLE_DECODE);
    assert_int_equal(again->plan.override.back, ROLE_PREFILL);
    assert_int_equal(again->plan.place.role, ROLE_DECODE);
    registry_remove(&fresh, again);
    fc_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back),
                                       cmocka_unit_test(the_plan_leaves_it),
                                       cmocka_unit_test(cannot_go_back), cmocka_unit_test(resumed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
