/* Goal: whatever joins, leaves, goes away, is drained or switched: nobody has two roles, no group
 * goes without P or D while an instance could be one, what stands stays. Method: hand-made cases of
 * a few instances; plan_random_test.c has the thousands of random ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/coordinator/plan_world.h"

/* ---- by hand */

/* The share is as near to the ratio as whole instances allow. */
static void ratios(void **state) {
    (void)state;
    assert_int_equal(plan_n_prefill(0, 1, 1), 0);
    assert_int_equal(plan_n_prefill(2, 0, 0), 1);
    assert_int_equal(plan_n_prefill(4, 3, 1), 3);
    for (size_t n = 0; n <= 64; n++)
        for (unsigned p = 0; p <= 15; p++)
            for (unsigned d = p == 0 ? 0 : 1; d <= (p == 0 ? 0 : 16 - p); d++) {
                size_t got = plan_n_prefill(n, p, d);
                double want = (double)n * (p == 0 ? 0.5 : (double)p / (p + d));
                assert_true(got <= n);
                if (n >= 2) assert_true(got >= 1 && got <= n - 1);
                if (n >= 2 && want >= 1 && want <= (double)n - 1)
                    assert_true(fabs((double)got - want) <= 0.5 + 1e-9);
            }
}

/* First roles wait for those that are listed and not there, but not for ever. */
static void first_roles(void **state) {
    (void)state;
    begin(1);
    add(-1);
    add(-1);
    struct plan_node *late = add(-1);
    late->here = false;
    late->closed_ms = w.now_ms;
    make();
    assert_int_equal(count(ROLE_NONE), 3);
    after(w.conf.first_wait_ms - 1);
    make();
    assert_int_equal(count(ROLE_NONE), 3);
    after(1);
    make();
    assert_int_equal(count(ROLE_PREFILL), 1);
    assert_int_equal(count(ROLE_DECODE), 1);
    assert_true(w.plan.decided);
}

/* The 17th instance leaves the groups of the others as they are; so does the 18th. */
static void the_seventeenth(void **state) {
    (void)state;
    begin(2);
    for (int i = 0; i < 16; i++) add(-1);
    make();
    after(w.conf.settle_ms);
    assert_int_equal(n_groups(), 1);
    assert_int_equal(group_has(1, ROLE_PREFILL), 8);
    note();
    uint32_t id = add(-1)->id;
    make();
    assert_int_equal(n_groups(), 2);
    assert_int_equal(n_moved(), 1); /* its partner: alone it could do nothing */
    assert_int_equal(node(id)->place.group, 2);
    assert_int_equal(group_has(2, ROLE_PREFILL), 1);
    assert_int_equal(group_has(2, ROLE_DECODE), 1);
    for (int i = 18; i <= 32; i++) {
        note();
        add(-1);
        make();
        assert_int_equal(n_moved(), 0);
        assert_int_equal(n_groups(), 2);
    }
    assert_int_equal(group_size(1), 16);
    assert_int_equal(count(ROLE_PREFILL), 16);
}

/* Two that come at once need nobody of the others. */
static void a_pair_joins(void **state) {
    (void)state;
    begin(3);
    for (int i = 0; i < 16; i++) add(-1);
    make();
    after(w.conf.settle_ms);
    note();
    add(-1);
    add(-1);
    make();
    assert_int_equal(n_moved(), 0);
    assert_int_equal(n_groups(), 2);
    assert_int_equal(group_has(2, ROLE_PREFILL), 1);
    assert_int_equal(group_has(2, ROLE_DECODE), 1);
}

/* All at once are dealt as the reference deals them: i to group i mod g, of each role. */
static void dealt(void **state) {
    unsigned p = 0, d = 0;
    (void)state;
    begin(4);
    for (int i = 0; i < 40; i++) add(-1);
    make();
    for (size_t i = 0; i < w.plan.n; i++) {
        const struct plan_place *at = &w.nodes[i].place;
        assert_int_equal(at->group, 1 + (at->role == ROLE_PREFILL ? p++ : d++) % 3);
    }
}

/* One prefill instance to 15 decode instances: the second group has its own all the same. */
static void lopsided(void **state) {
    (void)state;
    begin(5);
    w.conf.p_rate = 1;
    w.conf.d_rate = 15;
    for (int i = 0; i < 17; i++) add(-1);
    make();
    assert_int_equal(count(ROLE_PREFILL), 2);
    assert_int_equal(n_groups(), 2);
    /* where roles cannot be had, one group is too large rather than one idle */
    begin(6);
    add(LABEL_PREFILL_STATIC);
    for (int i = 0; i < 20; i++) add(LABEL_DECODE_STATIC);
    make();
    assert_int_equal(n_groups(), 1);
    assert_int_equal(group_size(1), 21);
}

/* A role that nobody has any more is taken by another: after its time, by one that may, once. */
static void last_decode_is_gone(void **state) {
    (void)state;
    begin(7);
    uint32_t p1 = add(LABEL_PREFILL_PREFER)->id, p2 = add(LABEL_PREFILL_STATIC)->id,
             p3 = add(LABEL_PREFILL_PREFER)->id, d = add(LABEL_DECODE_STATIC)->id;
    w.conf.p_rate = 3;
    w.conf.d_rate = 1;
    make();
    assert_int_equal(node(d)->place.role, ROLE_DECODE);
    node(p1)->tasks = 5;
    node(d)->here = false;
    node(d)->closed_ms = w.now_ms;
    after(w.conf.repair_ms - 1);
    make();
    assert_int_equal(node(p3)->place.next, ROLE_NONE);
    after(1);
    make();
    assert_int_equal(node(p3)->place.next, ROLE_DECODE); /* it has less to do */
    assert_int_equal(node(p1)->place.next, ROLE_NONE);
    assert_int_equal(node(p2)->place.next, ROLE_NONE); /* it is not idle, but static */
    make();
    assert_int_equal(node(p1)->place.next, ROLE_NONE); /* one is under way */
    node(p3)->place.role = ROLE_DECODE;
    node(p3)->place.next = ROLE_NONE;
    node(d)->here = true; /* it comes back, and nobody moves */
    node(d)->closed_ms = 0;
    note();
    make();
    assert_int_equal(n_begun() + n_moved(), 0);
}

/* Of two groups one loses its only decode instance: the other can spare one. */
static void a_group_is_helped(void **state) {
    (void)state;
    begin(8);
    for (int i = 0; i < 18; i++) add(-1);
    make();
    after(w.conf.settle_ms);
    uint32_t gone = 0;
    for (size_t i = 0; i < w.plan.n; i++) { /* group 2 keeps two P and one D */
        const struct plan_node *v = &w.nodes[i];
        if (v->place.group == 2 && v->place.role == ROLE_DECODE) gone = v->id;
    }
    for (size_t i = 0; i < w.plan.n;) {
        const struct plan_node v = w.nodes[i];
        const bool drop = v.place.group == 2 && v.id != gone &&
                          (v.place.role == ROLE_DECODE || group_has(2, ROLE_PREFILL) > 2);
        if (drop)
            forget(v.id);
        else
            i++;
    }
    make();
    forget(gone);
    note();
    make();
    assert_int_equal(n_moved(), 1);
    assert_int_equal(n_begun(), 0);
    assert_int_equal(group_has(2, ROLE_DECODE), 1);
    /* alone it joins the others */
    forget(w.nodes[0].place.group == 1 ? w.nodes[0].id : w.nodes[1].id);
    uint32_t last[2] = {0};
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++)
        if (w.nodes[i].place.group == 2 && n < 2) last[n++] = w.nodes[i].id;
    forget(last[0]);
    forget(last[1]);
    make();
    assert_int_equal(n_groups(), 1);
}

/* An operator who moves the last of a role has time to fill it himself. */
static void an_order_is_not_undone(void **state) {
    (void)state;
    begin(11);
    uint32_t p = add(LABEL_PREFILL_PREFER)->id, d = add(LABEL_DECODE_PREFER)->id;
    make();
    after(w.conf.settle_ms);
    node(p)->place.role = ROLE_DECODE;
    node(p)->switched_ms = w.now_ms;
    after(w.conf.repair_ms - 1);
    make();
    assert_int_equal(node(p)->place.next, ROLE_NONE);
    assert_int_equal(node(d)->place.next, ROLE_NONE);
    after(1);
    make();
    assert_int_equal(node(p)->place.next, ROLE_PREFILL);
    assert_int_equal(node(d)->place.next, ROLE_NONE);
}

/* An order of an operator to drain: nothing is given to it. */
static void drained_gets_nothing(void **state) {
    (void)state;
    begin(9);
    struct plan_node *v = add(LABEL_PREFILL_STATIC);
    v->closed_ms = w.now_ms;
    uint32_t id = v->id;
    add(-1);
    add(-1);
    make();
    assert_int_equal(node(id)->place.role, ROLE_NONE);
    assert_int_equal(count(ROLE_PREFILL), 1);
    node(id)->closed_ms = 0;
    make();
    assert_int_equal(node(id)->place.role, ROLE_PREFILL);
}

/* Roles that come from elsewhere are taken as they are. */
static void decided_elsewhere(void **state) {
    (void)state;
    begin(10);
    w.conf.decides = false;
    add(-1)->reports = ROLE_PREFILL;
    add(-1)->reports = ROLE_PREFILL;
    uint32_t id = add(LABEL_DECODE_STATIC)->id;
    after(w.conf.first_wait_ms);
    make();
    assert_int_equal(count(ROLE_PREFILL), 2);
    assert_int_equal(node(id)->place.role, ROLE_NONE);
    assert_int_equal(n_groups(), 1);
    note();
    after(w.conf.repair_ms);
    make();
    assert_int_equal(n_moved() + n_begun(), 0);
    assert_false(w.plan.decided);
}

/* The only one of a role is lost: those of the other do both at once, whatever their labels, until
 * they can serve with one of it again. */
static void who_is_left_stands_in(void **state) {
    (void)state;
    for (int part = 0; part < 2; part++) {
        begin(12 + (uint64_t)part);
        w.conf.fall_back = true;
        const int labels[] = {LABEL_PREFILL_STATIC, LABEL_DECODE_STATIC};
        uint32_t one = add(labels[part])->id, a = add(labels[1 - part])->id,
                 b = add(labels[1 - part])->id;
        make();
        assert_false(node(a)->place.stands_in);
        node(one)->here = false;
        node(one)->closed_ms = w.now_ms;
        make();
        assert_true(node(a)->place.stands_in && node(b)->place.stands_in);
        assert_false(node(one)->place.stands_in);
        node(one)->here = true; /* a new process: its role has to come first */
        node(one)->roleless = true;
        node(one)->closed_ms = 0;
        make();
        assert_true(node(a)->place.stands_in && node(b)->place.stands_in);
        node(one)->roleless = false;
        node(a)->paired = true;
        make();
        assert_false(node(a)->place.stands_in);
        assert_true(node(b)->place.stands_in);
        node(a)->closed_ms = w.now_ms; /* drained: it stays what it is */
        node(b)->paired = true;
        make();
        assert_false(node(a)->place.stands_in || node(b)->place.stands_in);
    }
}

/* At the start somebody may be on the way: nobody stands in before all have had the time to come.
 */
static void nobody_is_missing_yet(void **state) {
    (void)state;
    begin(14);
    w.conf.fall_back = true;
    uint32_t p = add(LABEL_PREFILL_STATIC)->id;
    make();
    assert_int_equal(node(p)->place.role, ROLE_PREFILL);
    assert_false(node(p)->place.stands_in);
    after(w.conf.settle_ms - 1);
    make();
    assert_false(node(p)->place.stands_in);
    after(1);
    make();
    assert_true(node(p)->place.stands_in);
}

/* Nor one that the coordinator before knew, and that has not answered this one: both may have been
 * started again together. One that has answered and went is missed at once. */
static void nobody_unheard_is_missing_yet(void **state) {
    (void)state;
    for (int unheard = 0; unheard < 2; unheard++) {
        begin(15);
        w.conf.fall_back = true;
        uint32_t p = add(LABEL_PREFILL_STATIC)->id, d = add(LABEL_DECODE_STATIC)->id;
        node(p)->place = (struct plan_place){.role = ROLE_PREFILL, .group = 1};
        node(d)->place = (struct plan_place){.role = ROLE_DECODE, .group = 1};
        node(d)->here = false;
        node(d)->closed_ms = w.now_ms;
        node(d)->unheard = unheard == 1;
        make();
        assert_int_equal(node(p)->place.stands_in, unheard == 0);
        after(w.conf.settle_ms - 1);
        make();
        assert_int_equal(node(p)->place.stands_in, unheard == 0);
        after(1);
        make();
        assert_true(node(p)->place.stands_in);
    }
}

static size_t n_switching(void) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) n += w.nodes[i].place.next != ROLE_NONE;
    return n;
}

static void settle(void) {
    make();
    after(w.conf.settle_ms);
    make();
}

/* Their drain is over, and they have taken their new roles. */
static void end_switches(void) {
    for (size_t i = 0; i < w.plan.n; i++) {
        struct plan_node *v = &w.nodes[i];
        if (v->place.next == ROLE_NONE) continue;
        v->place.role = v->place.next;
        v->place.next = ROLE_NONE;
        v->switched_ms = w.now_ms;
    }
}

/* Roles go where the load is: one at a time, the one with the least to do, never the last of a
 * role, and not again before the group has cooled down. */
static void roles_follow_the_load(void **state) {
    (void)state;
    begin(21);
    w.conf.cool_ms = 5000;
    for (int i = 0; i < 4; i++) add(-1);
    settle();
    assert_int_equal(count(ROLE_PREFILL), 2);
    w.conf.needs = needs_are(3, 0.2, 0);
    for (unsigned i = 0; i < 4; i++) w.nodes[i].tasks = 10 - i;
    uint32_t id = 0;
    unsigned least = 100;
    for (size_t i = 0; i < 4; i++) {
        const struct plan_node *v = &w.nodes[i];
        if (v->place.role != ROLE_DECODE || v->tasks >= least) continue;
        id = v->id;
        least = v->tasks;
    }
    make();
    assert_int_equal(n_switching(), 1);
    assert_int_equal(node(id)->place.next, ROLE_PREFILL);
    make();
    assert_int_equal(n_switching(), 1); /* one at a time */
    end_switches();
    w.conf.needs = needs_are(0.2, 9, 0);
    make();
    assert_int_equal(n_switching(), 0); /* it is warm still */
    for (size_t want = 2; want >= 1; want--) {
        after(w.conf.cool_ms);
        make();
        assert_int_equal(n_switching(), 1);
        end_switches();
        assert_int_equal(count(ROLE_PREFILL), want);
    }
    after(w.conf.cool_ms);
    make();
    assert_int_equal(n_switching(), 0); /* the last one stays */
}

/* A group that needs several gets one after the other: only the way back waits. */
static void more_of_the_same_does_not_wait(void **state) {
    (void)state;
    begin(30);
    w.conf.cool_ms = 60000;
    for (int i = 0; i < 8; i++) add(-1);
    settle();
    w.conf.needs = needs_are(20, 0.2, 0);
    for (size_t want = 5; want <= 7; want++) {
        make();
        assert_int_equal(n_switching(), 1);
        end_switches();
        assert_int_equal(count(ROLE_PREFILL), want);
    }
    w.conf.needs = needs_are(0.2, 20, 0);
    make();
    assert_int_equal(n_switching(), 0);
    after(w.conf.cool_ms);
    make();
    assert_int_equal(n_switching(), 1);
}

/* What may not move does not, whatever comes; and a load that roles cannot help moves nobody. */
static void roles_that_stay(void **state) {
    (void)state;
    begin(22);
    add(LABEL_PREFILL_STATIC);
    add(LABEL_PREFILL_STATIC);
    add(LABEL_DECODE_STATIC);
    add(LABEL_DECODE_STATIC);
    settle();
    w.conf.needs = needs_are(9, 0.1, 0);
    make();
    assert_int_equal(n_switching(), 0);
    begin(23);
    for (int i = 0; i < 6; i++) add(-1);
    settle();
    w.conf.needs = needs_are(30, 30, 0);
    make();
    assert_int_equal(n_switching(), 0);
    w.conf.needs = needs_are(30, 3, 0);
    w.conf.decides = false; /* roles come from elsewhere */
    make();
    assert_int_equal(n_switching(), 0);
}

/* Two groups: each follows its part of the load. */
static void every_group_follows(void **state) {
    (void)state;
    begin(24);
    for (int i = 0; i < 24; i++) add(-1);
    settle();
    assert_int_equal(n_groups(), 2);
    w.conf.needs = needs_are(20, 4, 0);
    for (int i = 0; i < 12; i++) {
        make();
        assert_true(n_switching() <= 2);
        end_switches();
    }
    assert_in_range(count(ROLE_PREFILL), 17, 22);
    for (unsigned g = 1; g <= 2; g++)
        assert_in_range(group_has(g, ROLE_PREFILL) * 100 / group_size(g), 65, 95);
}

static size_t n_unsplit(void) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) n += plan_is_unsplit(&w.nodes[i].place);
    return n;
}

static void note_shares(uint64_t at_ms) {
    for (size_t i = 0; i < w.plan.n; i++) w.nodes[i].shared_ms = at_ms;
}

/* Four that serve their load better without a split do all, keep their roles meanwhile, follow no
 * load, and are split again when a ratio is better by far, or little is to do; not at once. */
static void a_group_is_not_split(void **state) {
    (void)state;
    begin(25);
    for (int i = 0; i < 4; i++) add(-1);
    settle();
    w.conf.unsplit = true;
    w.conf.cool_ms = 5000;
    w.conf.needs = needs_are(1.5, 1.5, 2.6);
    make();
    assert_int_equal(n_unsplit(), 4);
    assert_int_equal(count(ROLE_PREFILL), 2);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(w.nodes[i].place.share,
                         w.nodes[i].place.role == ROLE_PREFILL ? PLAN_UNSPLIT + 1 : PLAN_UNSPLIT);
    note_shares(w.now_ms);
    w.conf.needs = needs_are(2.9, 0.2, 5.5); /* three that prefill are better by far */
    make();
    assert_int_equal(n_unsplit(), 4); /* but nothing changes twice in so short a time */
    assert_int_equal(n_switching(), 0);
    add(-1); /* who comes is like the others */
    make();
    make();
    assert_int_equal(n_unsplit(), 5);
    forget(w.nodes[4].id);
    after(6000);
    make();
    assert_int_equal(n_unsplit(), 0);
    assert_int_equal(n_switching(), 1); /* and the ratio follows */
    end_switches();
    note_shares(0);
    after(6000);
    w.conf.needs = needs_are(1.5, 1.5, 2.6);
    make();
    assert_int_equal(n_unsplit(), 4);
    after(6000);
    w.conf.needs = needs_are(0.1, 0.1, 0.3);
    make();
    assert_int_equal(n_unsplit(), 0);
}

/* Where it may not, or one of it has one role for ever, a group is split whatever comes; so it is
 * where nobody knows how many unsplit ones would do. */
static void a_group_stays_split(void **state) {
    (void)state;
    begin(26);
    for (int i = 0; i < 4; i++) add(-1);
    settle();
    w.conf.needs = needs_are(1.5, 1.5, 1);
    make();
    assert_int_equal(n_unsplit(), 0);
    w.conf.unsplit = true;
    w.conf.needs.whole = 0;
    make();
    assert_int_equal(n_unsplit(), 0);
    w.conf.needs.whole = 1;
    make();
    assert_int_equal(n_unsplit(), 4);
    w.conf.unsplit = false; /* at once */
    note_shares(w.now_ms);
    make();
    assert_int_equal(n_unsplit(), 0);
    begin(27);
    for (int i = 0; i < 3; i++) add(-1);
    add(LABEL_DECODE_STATIC);
    settle();
    w.conf.unsplit = true;
    w.conf.needs = needs_are(1.5, 1.5, 1);
    make();
    assert_int_equal(n_unsplit(), 0);
}

/* With single_node everybody does both from the first moment on, one alone too, whatever it was, is
 * labelled as or says, and nobody is another one's peer; only where others decide it is left. */
static void nobody_is_split(void **state) {
    static const int labels[] = {LABEL_PREFILL_STATIC, LABEL_DECODE_STATIC, LABEL_FLEX_STATIC, -1};
    (void)state;
    begin(28);
    w.conf.single_node = true;
    w.conf.p_rate = w.conf.d_rate = 1;
    for (size_t n = 1; n <= 40; n++) {
        struct plan_node *v = add(labels[n % 4]);
        v->here = n % 5 != 0;
        if (n % 3 == 0) v->reports = ROLE_PREFILL;
        if (n % 7 == 0) v->place = (struct plan_place){.role = ROLE_PREFILL, .group = 3};
        make();
        assert_int_equal(n_unsplit(), n);
        assert_int_equal(n_switching(), 0);
    }
    for (size_t i = 0; i < w.plan.n; i++)
        for (size_t k = 0; k < w.plan.n; k++)
            assert_false(
                plan_is_peer(w.nodes[k].place.role, w.nodes[k].place.group, &w.nodes[i].place));
    w.conf.needs = needs_are(2.9, 0.2, 5.5);
    after(60000);
    make();
    assert_int_equal(n_unsplit(), 40);
    assert_int_equal(n_switching(), 0);
    begin(29);
    w.conf.single_node = true;
    w.conf.decides = false;
    add(-1)->reports = ROLE_PREFILL;
    make();
    assert_int_equal(n_unsplit(), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratios),
        cmocka_unit_test(first_roles),
        cmocka_unit_test(the_seventeenth),
        cmocka_unit_test(a_pair_joins),
        cmocka_unit_test(dealt),
        cmocka_unit_test(lopsided),
        cmocka_unit_test(last_decode_is_gone),
        cmocka_unit_test(a_group_is_helped),
        cmocka_unit_test(an_order_is_not_undone),
        cmocka_unit_test(roles_follow_the_load),
        cmocka_unit_test(more_of_the_same_does_not_wait),
        cmocka_unit_test(roles_that_stay),
        cmocka_unit_test(every_group_follows),
        cmocka_unit_test(a_group_is_not_split),
        cmocka_unit_test(a_group_stays_split),
        cmocka_unit_test(nobody_is_split),
        cmocka_unit_test(drained_gets_nothing),
        cmocka_unit_test(decided_elsewhere),
        cmocka_unit_test(who_is_left_stands_in),
        cmocka_unit_test(nobody_unheard_is_missing_yet),
        cmocka_unit_test(nobody_is_missing_yet),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
