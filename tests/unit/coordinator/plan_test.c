/* Goal: whatever joins, leaves, goes away, is drained or switched, in whatever order: nobody has
 * two roles, no group goes without P or D while an instance could be one, what stands stays, and
 * the same facts give the same plan. Method: hand-made cases of a few instances; then thousands of
 * random clusters, worked by random events, with the rules checked after each. A seed that fails is
 * printed; PLAN_SEED runs it alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/coord_conf.h"
#include "coordinator/plan.h"

enum { NODES_MAX = 96, N_SEEDS = 3000, N_EVENTS = 60 };

static const struct plan_conf conf = {
    .decides = true, .first_wait_ms = 180000, .settle_ms = 10000, .repair_ms = 30000};

/* ---- a cluster */
static struct world {
    struct plan_node nodes[NODES_MAX];
    uint32_t links[NODES_MAX][NODES_MAX];
    struct plan plan;
    struct plan_conf conf;
    uint64_t now_ms;
    uint64_t rng;
    uint32_t next_id;
} w;

static uint64_t rnd(uint64_t n) {
    w.rng ^= w.rng << 13;
    w.rng ^= w.rng >> 7;
    w.rng ^= w.rng << 17;
    return (w.rng >> 11) % n;
}

static void begin(uint64_t seed) {
    memset(&w, 0, sizeof(w));
    w.rng = seed * 0x9e3779b97f4a7c15u + 1;
    w.conf = conf;
    w.now_ms = 1000000;
    w.next_id = 100;
    w.plan = (struct plan){.nodes = w.nodes, .started_ms = w.now_ms};
}

static void after(uint64_t ms) {
    w.now_ms += ms;
}

static struct plan_node *add(int label) {
    assert_true(w.plan.n < NODES_MAX);
    struct plan_node *v = &w.nodes[w.plan.n++];
    *v = (struct plan_node){.id = w.next_id += 1 + (uint32_t)rnd(50), .label = label, .here = true};
    return v;
}

static struct plan_node *node(uint32_t id) {
    for (size_t i = 0; i < w.plan.n; i++)
        if (w.nodes[i].id == id) return &w.nodes[i];
    fail_msg("no node %u", id);
    return NULL;
}

static void forget(uint32_t id) {
    struct plan_node *v = node(id);
    *v = w.nodes[--w.plan.n];
}

static void make(void) {
    assert_int_equal(plan_make(&w.plan, &w.conf, w.now_ms), ERR_OK);
}

static bool is_open(const struct plan_node *v) {
    return v->here && v->closed_ms == 0 && v->place.next == ROLE_NONE;
}
static bool has_role(const struct plan_node *v) {
    return v->place.role != ROLE_NONE;
}
static size_t count(enum inst_role role) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) n += w.nodes[i].place.role == role;
    return n;
}
static size_t group_size(unsigned group) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) n += w.nodes[i].place.group == group;
    return n;
}
static size_t group_has(unsigned group, enum inst_role role) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++)
        n += w.nodes[i].place.group == group && w.nodes[i].place.role == role;
    return n;
}
static unsigned last_group(void) {
    unsigned last = 0;
    for (size_t i = 0; i < w.plan.n; i++)
        if (w.nodes[i].place.group > last) last = w.nodes[i].place.group;
    return last;
}
static unsigned n_groups(void) {
    unsigned n = 0;
    for (unsigned g = 1; g <= last_group(); g++) n += group_size(g) > 0;
    return n;
}

/* ---- before and after */
static struct plan_node was[NODES_MAX];
static size_t n_was;

static void note(void) {
    memcpy(was, w.nodes, sizeof(was));
    n_was = w.plan.n;
}

static const struct plan_node *before(uint32_t id) {
    for (size_t i = 0; i < n_was; i++)
        if (was[i].id == id) return &was[i];
    return NULL;
}

/* Instances that had a group and have another. */
static size_t n_moved(void) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) {
        const struct plan_node *b = before(w.nodes[i].id);
        n += b != NULL && b->place.group != 0 && b->place.group != w.nodes[i].place.group;
    }
    return n;
}
/* Switches that the plan has begun. */
static size_t n_begun(void) {
    size_t n = 0;
    for (size_t i = 0; i < w.plan.n; i++) {
        const struct plan_node *b = before(w.nodes[i].id);
        n += w.nodes[i].place.next != ROLE_NONE && (b == NULL || b->place.next == ROLE_NONE);
    }
    return n;
}

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

/* ---- at random */

static int random_label(void) {
    static const int labels[] = {-1, -1, -1, LABEL_PREFILL_PREFER, LABEL_DECODE_PREFER};
    static const int fixed[] = {LABEL_PREFILL_STATIC, LABEL_DECODE_STATIC, LABEL_FLEX_STATIC};
    return rnd(8) == 0 ? fixed[rnd(3)] : labels[rnd(5)];
}

static bool is_static(const struct plan_node *v) {
    return v->label >= LABEL_PREFILL_STATIC;
}

static void check_same(const struct plan_place *a, const struct plan_place *b) {
    assert_int_equal(a->role, b->role);
    assert_int_equal(a->next, b->next);
    assert_int_equal(a->group, b->group);
    assert_int_equal(a->stands_in, b->stands_in);
}

/* The same facts in another order are the same plan, and the plan is content with itself. */
static void check_order(void) {
    struct plan_node other[NODES_MAX];
    struct plan q = w.plan;
    const bool decided = w.plan.decided;
    memcpy(other, w.nodes, sizeof(other));
    for (size_t i = w.plan.n; i > 1; i--) {
        size_t j = rnd(i);
        struct plan_node t = other[i - 1];
        other[i - 1] = other[j];
        other[j] = t;
    }
    q.nodes = other;
    make();
    assert_int_equal(plan_make(&q, &w.conf, w.now_ms), ERR_OK);
    assert_int_equal(q.decided, w.plan.decided);
    assert_true(q.decided >= decided);
    for (size_t i = 0; i < w.plan.n; i++) {
        assert_int_equal(other[i].id, w.nodes[i].id);
        check_same(&other[i].place, &w.nodes[i].place);
    }
    make();
    for (size_t i = 0; i < w.plan.n; i++) check_same(&other[i].place, &w.nodes[i].place);
}

/* One instance: what it has, and how it came to it. */
static void check_node(const struct plan_node *v) {
    const struct plan_node *b = before(v->id);
    const enum inst_role role = v->place.role;
    assert_true(role == ROLE_NONE || role == ROLE_PREFILL || role == ROLE_DECODE);
    assert_int_equal(v->place.group != 0, role != ROLE_NONE);
    if (v->place.next != ROLE_NONE) assert_true(role != ROLE_NONE && v->place.next != role);
    if (role != ROLE_NONE && v->label == LABEL_PREFILL_STATIC) assert_int_equal(role, ROLE_PREFILL);
    if (role != ROLE_NONE && v->label == LABEL_DECODE_STATIC) assert_int_equal(role, ROLE_DECODE);
    if (b == NULL) return;
    if (b->place.role != ROLE_NONE)
        assert_int_equal(role, b->place.role); /* until it has switched */
    if (b->place.next != ROLE_NONE) assert_int_equal(v->place.next, b->place.next);
    if (is_open(b)) {
        if (is_static(v)) assert_int_equal(v->place.next, ROLE_NONE);
        return;
    }
    /* drained, away, or changing its role: nothing is asked of it */
    assert_int_equal(v->place.next, b->place.next);
    if (b->place.role == ROLE_NONE) assert_int_equal(role, ROLE_NONE);
    if (b->place.group != 0) assert_int_equal(v->place.group, b->place.group);
}

/* One switch a group at a time. */
static void check_switches(void) {
    for (unsigned g = 1; g <= last_group(); g++) {
        size_t begun = 0, going = 0;
        for (size_t i = 0; i < w.plan.n; i++) {
            const struct plan_node *v = &w.nodes[i];
            if (v->place.group != g || v->place.next == ROLE_NONE) continue;
            const struct plan_node *b = before(v->id);
            if (b == NULL || b->place.next == ROLE_NONE)
                begun++;
            else
                going++;
        }
        if (begun > 0) assert_true(begun == 1 && going == 0);
    }
}

/* What a group could have it has, once the time of those that are away is over. */
static void check_groups(void) {
    size_t open[2] = {0}, movable = 0;
    for (size_t i = 0; i < w.plan.n; i++) {
        const struct plan_node *v = &w.nodes[i];
        if (!has_role(v) || !is_open(v)) continue;
        open[v->place.role == ROLE_DECODE]++;
        movable += !is_static(v);
    }
    for (unsigned g = 1; g <= last_group(); g++) {
        size_t n_open[2] = {0}, coming[2] = {0};
        bool held = false;
        for (size_t i = 0; i < w.plan.n; i++) {
            const struct plan_node *v = &w.nodes[i];
            if (v->place.group != g) continue;
            if (is_open(v)) n_open[v->place.role == ROLE_DECODE]++;
            if (v->place.next != ROLE_NONE) coming[v->place.next == ROLE_DECODE]++;
            held |= v->closed_ms != 0 && w.now_ms - v->closed_ms < w.conf.repair_ms;
            held |= v->switched_ms != 0 && w.now_ms - v->switched_ms < w.conf.repair_ms;
        }
        if (n_open[0] + n_open[1] == 0 || held) continue;
        for (int r = 0; r < 2; r++) {
            if (n_open[r] + coming[r] > 0 || coming[1 - r] > 0) continue;
            if (open[r] > 0) fail_msg("group %u has none of role %d, others have", g, r);
            if (open[1 - r] >= 2 && movable > 0 && n_open[1 - r] >= 2) {
                size_t here = 0;
                for (size_t i = 0; i < w.plan.n; i++)
                    here += w.nodes[i].place.group == g && is_open(&w.nodes[i]) &&
                            !is_static(&w.nodes[i]);
                if (here > 0) fail_msg("group %u has none of role %d, and could", g, r);
            }
        }
    }
}

/* Who stands in has a reason, and whoever has one does, as soon as it shows. */
static void check_stand_in(void) {
    const bool settled = w.now_ms - w.plan.started_ms >= w.conf.settle_ms;
    for (size_t i = 0; i < w.plan.n; i++) {
        const struct plan_node *v = &w.nodes[i], *b = before(v->id);
        const bool did = b != NULL && b->place.stands_in;
        size_t n = 0, n_able = 0;
        for (size_t k = 0; k < w.plan.n; k++) {
            const struct plan_node *o = &w.nodes[k];
            if (o->place.group != v->place.group || o->place.role == v->place.role) continue;
            n += !o->unheard;
            n_able += is_open(o) && !o->roleless;
        }
        if (!w.conf.fall_back || !v->here || !has_role(v)) {
            assert_false(v->place.stands_in);
        } else if (!is_open(v)) {
            if (b != NULL && !is_open(b)) assert_int_equal(v->place.stands_in, did);
        } else if (n_able == 0) {
            assert_int_equal(v->place.stands_in, n > 0 || settled || (did && !v->paired));
        } else {
            assert_int_equal(v->place.stands_in, did && !v->paired);
        }
    }
}

static bool all_well(void) {
    for (size_t i = 0; i < w.plan.n; i++)
        if (!is_open(&w.nodes[i]) || !has_role(&w.nodes[i])) return false;
    return true;
}

static void check(bool settled) {
    note();
    check_order();
    for (size_t i = 0; i < w.plan.n; i++) check_node(&w.nodes[i]);
    check_switches();
    check_stand_in();
    if (settled) check_groups();
}

/* One instance more, or less, in a cluster that is well: at most one other is moved, or one changes
 * its role. */
static void check_one(bool settled) {
    const bool was_well = all_well();
    uint32_t new_id = 0;
    const uint64_t what = rnd(2);
    if (what == 0 && w.plan.n < NODES_MAX)
        new_id = add(random_label())->id;
    else if (w.plan.n > 0)
        forget(w.nodes[rnd(w.plan.n)].id);
    check(settled);
    if (!was_well || !settled || !w.plan.decided) return;
    bool some_static = false;
    for (size_t i = 0; i < w.plan.n; i++) some_static |= is_static(&w.nodes[i]);
    if (some_static && new_id == 0) return; /* a group of them may have to be given up */
    if (n_moved() + n_begun() > 1)
        fail_msg("%s moves %zu and switches %zu", new_id != 0 ? "a newcomer" : "one that left",
                 n_moved(), n_begun());
}

static void event(void) {
    struct plan_node *v = w.plan.n > 0 ? &w.nodes[rnd(w.plan.n)] : NULL;
    const bool settled = w.now_ms - w.plan.started_ms >= w.conf.settle_ms;
    after(rnd(4) == 0 ? rnd(60000) : rnd(300));
    for (size_t i = 0; i < w.plan.n; i++) /* of those that may be, some have a link already */
        w.nodes[i].paired = w.nodes[i].place.stands_in && rnd(2) == 0;
    switch (v != NULL ? rnd(10) : 0) {
    case 0:
    case 1:
    case 2: check_one(settled); return;
    case 3: /* dies */
        v->here = false;
        v->closed_ms = w.now_ms;
        v->place.next = ROLE_NONE;
        break;
    case 4: /* comes back, is put into service again */
        v->roleless = rnd(2) == 0 && !v->here;
        v->here = true;
        v->closed_ms = 0;
        break;
    case 9: /* has its role again */ v->roleless = false; break;
    case 5: /* is drained */ v->closed_ms = w.now_ms; break;
    case 6: /* is switched by an operator */
        if (is_open(v) && has_role(v) && !is_static(v))
            v->place.next = v->place.role == ROLE_PREFILL ? ROLE_DECODE : ROLE_PREFILL;
        break;
    default: /* has switched */
        if (v->place.next != ROLE_NONE) {
            v->place.role = v->place.next;
            v->place.next = ROLE_NONE;
            v->switched_ms = w.now_ms;
        }
        break;
    }
    check(settled);
}

/* The coordinator is started again and knows nothing: what its instances say of role and links, in
 * whatever order they come, is the plan that was. */
static void check_restart(void) {
    struct plan_node old[NODES_MAX], all[NODES_MAX];
    const size_t n = w.plan.n;
    memcpy(old, w.nodes, sizeof(old));
    memcpy(all, w.nodes, sizeof(all));
    for (size_t i = 0; i < n; i++) {
        struct plan_node *v = &all[i];
        v->n_links = 0;
        for (size_t j = 0; j < n; j++)
            if (plan_is_peer(v->place.role, v->place.group, &old[j].place))
                w.links[i][v->n_links++] = old[j].id;
        v->links = w.links[i];
        v->reports = v->place.role;
        v->place = (struct plan_place){0};
        v->here = true;
        v->closed_ms = 0;
    }
    w.plan.n = 0;
    w.plan.decided = false;
    w.plan.started_ms = w.now_ms;
    for (size_t left = n; left > 0;) {
        size_t i = rnd(left);
        w.nodes[w.plan.n++] = all[i];
        all[i] = all[--left];
        if (rnd(3) == 0) make();
    }
    make();
    for (size_t i = 0; i < n; i++) {
        const struct plan_node *v = node(old[i].id);
        assert_int_equal(v->place.role, old[i].place.role);
        assert_int_equal(v->place.next, ROLE_NONE);
        for (size_t j = 0; j < n; j++)
            assert_int_equal(node(old[j].id)->place.group == v->place.group,
                             old[j].place.group == old[i].place.group);
    }
}

/* Every group can work and everybody is there. */
static bool is_whole(void) {
    for (size_t i = 0; i < w.plan.n; i++)
        if (!is_open(&w.nodes[i]) || !has_role(&w.nodes[i])) return false;
    for (unsigned g = 1; g <= last_group(); g++)
        if (group_size(g) > 0 &&
            (group_has(g, ROLE_PREFILL) == 0 || group_has(g, ROLE_DECODE) == 0))
            return false;
    return w.plan.n > 1;
}

static void restarts(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        begin(seed);
        for (size_t n = 2 + rnd(NODES_MAX - 2); n > 0; n--) add(-1);
        make();
        assert_true(is_whole());
        check_restart();
    }
}

static void run_seed(uint64_t seed) {
    begin(seed);
    const size_t n = rnd(6) == 0 ? rnd(60) : rnd(12);
    if (rnd(2) == 0) {
        w.conf.p_rate = 1 + (unsigned)rnd(8);
        w.conf.d_rate = 1 + (unsigned)rnd(8);
    }
    const bool labels = rnd(2) == 0;
    w.conf.fall_back = rnd(2) == 0;
    for (size_t i = 0; i < n; i++) add(labels ? random_label() : -1);
    check(false);
    if (!labels && n >= 2) {
        size_t want = plan_n_prefill(n, w.conf.p_rate, w.conf.d_rate), groups = (n + 15) / 16;
        want = want < groups ? groups : want > n - groups ? n - groups : want;
        assert_int_equal(count(ROLE_PREFILL), want);
        assert_int_equal(n_groups(), groups);
    }
    if (rnd(2) == 0) after(w.conf.settle_ms);
    for (int i = 0; i < N_EVENTS; i++) event();
    if (is_whole()) check_restart();
}

static uint64_t running;

static void random_clusters(void **state) {
    const char *only = getenv("PLAN_SEED");
    (void)state;
    const uint64_t from = only != NULL ? strtoull(only, NULL, 10) : 1;
    for (uint64_t seed = from; seed < from + (only != NULL ? 1 : N_SEEDS); seed++) {
        running = seed;
        run_seed(seed);
    }
    running = 0;
}

/* Which one it was, when it failed. */
static int say_seed(void **state) {
    (void)state;
    if (running != 0) print_error("PLAN_SEED=%llu\n", (unsigned long long)running);
    return 0;
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
        cmocka_unit_test(drained_gets_nothing),
        cmocka_unit_test(decided_elsewhere),
        cmocka_unit_test(who_is_left_stands_in),
        cmocka_unit_test(nobody_unheard_is_missing_yet),
        cmocka_unit_test(nobody_is_missing_yet),
        cmocka_unit_test(restarts),
        cmocka_unit_test_teardown(random_clusters, say_seed),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
