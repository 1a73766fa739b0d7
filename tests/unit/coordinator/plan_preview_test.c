/* Goal: what is said of the next plan is what plan_make() then does, at the moment that is said,
 * with the reason of the rule that does it; a group that lacks a role and cannot be given one says
 * which constraint forbids it. Method: hand-made clusters, and random ones in which the preview is
 * held against the plan that is made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/plan_preview.h"
#include "tests/unit/coordinator/plan_world.h"

static struct plan_preview v;

static void preview(void) {
    plan_preview_free(&v);
    assert_int_equal(plan_preview(&v, &w.plan, &w.conf, w.now_ms), ERR_OK);
}

static const struct plan_change *change(uint32_t id) {
    for (size_t i = 0; i < v.n_changes; i++)
        if (v.changes[i].id == id) return &v.changes[i];
    fail_msg("%u is not among the %zu changes", id, v.n_changes);
    return NULL;
}

static void says(const char *why, const char *part) {
    if (strstr(why, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", why, part);
}

static struct plan_node *of_role(enum inst_role role) {
    for (size_t i = 0; i < w.plan.n; i++)
        if (w.nodes[i].place.role == role && w.nodes[i].closed_ms == 0) return &w.nodes[i];
    fail_msg("nobody is %s", inst_role_name(role));
    return NULL;
}

static void away(struct plan_node *n) {
    n->closed_ms = w.now_ms;
    n->here = false;
}

/* First roles: by label, by report, by ratio. */
static void first_roles(void **state) {
    (void)state;
    begin(1);
    w.conf.p_rate = w.conf.d_rate = 1;
    uint32_t fixed = add(LABEL_DECODE_STATIC)->id, likes = add(LABEL_PREFILL_PREFER)->id,
             plain = add(-1)->id;
    struct plan_node *kept = add(-1);
    uint32_t had = kept->id;
    kept->reports = ROLE_PREFILL;
    preview();
    assert_int_equal(v.in_ms, 0);
    assert_int_equal(v.n_changes, 4);
    assert_int_equal(v.n_lacks, 0);
    says(change(fixed)->why, "its label allows decode alone; group 1");
    says(change(had)->why, "it has the role prefill already");
    says(change(likes)->why, "4 instances in the ratio 1:1, and by its label, one more prefill");
    says(change(plain)->why, "want one more decode instance");
    make();
    preview();
    assert_int_equal(v.n_changes, 0);
}

/* Where nobody is split nothing is lacking as long as one is at work. */
static void nobody_is_split(void **state) {
    (void)state;
    begin(2);
    w.conf.single_node = true;
    uint32_t id = add(LABEL_DECODE_STATIC)->id;
    preview();
    assert_int_equal(v.n_changes, 1);
    says(change(id)->why, "deploy_mode single_node: every instance does both");
    assert_int_equal(v.n_lacks, 0);
    make();
    away(&w.nodes[0]);
    preview();
    assert_int_equal(v.n_changes, 0);
    assert_true(v.n_lacks > 0);
}

/* Before all that are listed are there, it says when it goes on without them. */
static void waits_for_the_late(void **state) {
    (void)state;
    begin(2);
    add(-1);
    add(-1);
    away(add(-1));
    preview();
    assert_int_equal(v.in_ms, w.conf.first_wait_ms);
    assert_int_equal(v.n_changes, 2);
    after(1000);
    preview();
    assert_int_equal(v.in_ms, w.conf.first_wait_ms - 1000);
}

static void pairs(int n_p, int n_d, int label_p) {
    begin(3);
    for (int i = 0; i < n_p + n_d; i++) {
        struct plan_node *n = add(i < n_p ? label_p : -1);
        n->place = (struct plan_place){.role = i < n_p ? ROLE_PREFILL : ROLE_DECODE, .group = 1};
    }
    w.plan.decided = true;
    after(w.conf.settle_ms);
}

/* A role that is lost: nothing is done before repair_ms, then one switches; what is said comes. */
static void a_lost_role(void **state) {
    (void)state;
    pairs(2, 1, -1);
    away(of_role(ROLE_DECODE));
    after(10000);
    preview();
    assert_int_equal(v.in_ms, w.conf.repair_ms - 10000);
    assert_int_equal(v.n_changes, 1);
    assert_int_equal(v.changes[0].to.next, ROLE_DECODE);
    says(v.changes[0].why, "group 1 has had no decode instance at work for 30 s");
    assert_int_equal(v.n_lacks, 0);
    const uint32_t who = v.changes[0].id;
    after(v.in_ms - 1);
    make();
    assert_int_equal(node(who)->place.next, ROLE_NONE);
    after(1);
    make();
    assert_int_equal(node(who)->place.next, ROLE_DECODE);
}

/* What forbids it. */
static void constraints(void **state) {
    (void)state;
    pairs(1, 1, -1);
    away(of_role(ROLE_DECODE));
    preview();
    assert_int_equal(v.n_changes, 0);
    assert_int_equal(v.n_lacks, 1);
    assert_int_equal(v.lacks[0].role, ROLE_DECODE);
    assert_int_equal(v.lacks[0].group, 1);
    says(v.lacks[0].why, "the group has one prefill instance, which must stay");
    pairs(2, 1, LABEL_PREFILL_STATIC);
    away(of_role(ROLE_DECODE));
    preview();
    assert_int_equal(v.n_changes, 0);
    says(v.lacks[0].why, "the labels of its 2 prefill instances are static");
    pairs(1, 1, -1);
    away(of_role(ROLE_DECODE));
    away(of_role(ROLE_PREFILL));
    preview();
    assert_int_equal(v.n_lacks, 2);
    says(v.lacks[0].why, "the group has no decode instance at work either");
    pairs(2, 1, -1);
    w.conf.decides = false;
    away(of_role(ROLE_DECODE));
    preview();
    says(v.lacks[0].why, "controller.enabled is false");
}

static void stands_in(void **state) {
    (void)state;
    pairs(1, 1, -1);
    w.conf.fall_back = true;
    away(of_role(ROLE_DECODE));
    preview();
    assert_int_equal(v.in_ms, 0);
    assert_int_equal(v.n_changes, 1);
    assert_true(v.changes[0].to.stands_in);
    says(v.changes[0].why, "group 1 has no decode instance that can work");
}

static void moves(void **state) {
    (void)state;
    begin(4);
    for (int i = 0; i < 8; i++) {
        struct plan_node *n = add(-1);
        n->place = (struct plan_place){.role = i % 2 == 0 ? ROLE_PREFILL : ROLE_DECODE,
                                       .group = i < 6 ? 1 : 2};
    }
    w.plan.decided = true;
    after(w.conf.settle_ms);
    for (size_t i = 0; i < w.plan.n; i++)
        if (w.nodes[i].place.group == 2 && w.nodes[i].place.role == ROLE_DECODE) away(&w.nodes[i]);
    after(w.conf.repair_ms);
    preview();
    assert_int_equal(v.in_ms, 0);
    assert_true(v.n_changes >= 1);
    says(v.changes[0].why, "group ");
    struct plan_change said = v.changes[0];
    make();
    assert_int_equal(node(said.id)->place.group, said.to.group);
}

/* Whatever happens: what is said to come now is what plan_make() does, no more and no less; what is
 * said for later does not come a moment before. */
/* A role that follows the load, now and when the group has cooled down. */
static void follows_the_load(void **state) {
    (void)state;
    begin(9);
    pairs(2, 2, -1);
    after(w.conf.settle_ms);
    w.conf.cool_ms = 5000;
    w.conf.needs = needs_are(6, 0.25, 0);
    preview();
    assert_int_equal(v.n_changes, 1);
    says(v.changes[0].why, "the load needs 6.00 prefill and 0.25 decode instances");
    for (size_t i = 0; i < w.plan.n; i++) /* one of those that are to give one has just come */
        if (w.nodes[i].place.role == ROLE_DECODE) w.nodes[i].switched_ms = w.now_ms;
    w.conf.repair_ms = 1000000;
    preview();
    assert_int_equal(v.n_changes, 1);
    assert_int_equal(v.in_ms, 5000);
}

static void random_clusters(void **state) {
    (void)state;
    size_t n_now = 0, n_later = 0, n_lacks = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        begin(seed);
        w.conf.fall_back = rnd(2) == 0;
        for (int step = 0; step < 30; step++) {
            if (w.plan.n < 12 && rnd(3) == 0) add((int)rnd(6) - 1);
            if (w.plan.n > 0) {
                struct plan_node *n = &w.nodes[rnd(w.plan.n)];
                if (rnd(2) == 0) {
                    away(n);
                } else {
                    n->here = true;
                    n->closed_ms = 0;
                }
            }
            after(rnd(20000));
            preview();
            n_lacks += v.n_lacks;
            if (v.n_changes > 0 && v.in_ms > 0) {
                n_later++;
                after(v.in_ms - 1);
                struct plan_preview later = v;
                memset(&v, 0, sizeof(v));
                preview();
                assert_int_equal(v.in_ms, 1);
                assert_int_equal(v.n_changes, later.n_changes);
                plan_preview_free(&later);
                after(1);
                preview();
                assert_int_equal(v.in_ms, 0);
            }
            struct plan_node before[NODES_MAX];
            memcpy(before, w.nodes, sizeof(before));
            make();
            size_t n = 0;
            for (size_t i = 0; i < w.plan.n; i++) {
                const struct plan_place *a = &before[i].place, *b = &w.nodes[i].place;
                assert_int_equal(before[i].id, w.nodes[i].id);
                const bool same = a->role == b->role && a->next == b->next &&
                                  a->group == b->group && a->stands_in == b->stands_in;
                if (same) continue;
                n++;
                const struct plan_change *c = change(before[i].id);
                assert_int_equal(c->to.role, b->role);
                assert_int_equal(c->to.next, b->next);
                assert_int_equal(c->to.group, b->group);
                assert_true(c->to.stands_in == b->stands_in && c->why[0] != 0);
            }
            assert_int_equal(n, v.n_changes);
            n_now += n;
            for (size_t i = 0; i < w.plan.n; i++) { /* switches end at once */
                struct plan_place *at = &w.nodes[i].place;
                if (at->next == ROLE_NONE) continue;
                at->role = at->next;
                at->next = ROLE_NONE;
            }
        }
    }
    assert_true(n_now > 1000 && n_later > 100 && n_lacks > 100);
}

static void nobody(void **state) {
    (void)state;
    begin(5);
    preview();
    assert_int_equal(v.n_changes + v.n_lacks, 0);
}

static int tear_down(void **state) {
    (void)state;
    plan_preview_free(&v);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_roles),
                                       cmocka_unit_test(nobody_is_split),
                                       cmocka_unit_test(waits_for_the_late),
                                       cmocka_unit_test(a_lost_role),
                                       cmocka_unit_test(constraints),
                                       cmocka_unit_test(stands_in),
                                       cmocka_unit_test(moves),
                                       cmocka_unit_test(follows_the_load),
                                       cmocka_unit_test(nobody),
                                       cmocka_unit_test(random_clusters)};
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
