/* Goal: what plan_test.c shows of a few instances holds in whatever order things happen, and the
 * same facts give the same plan. Method: thousands of random clusters, worked by random events,
 * with the rules checked after each. A seed that fails is printed; PLAN_SEED runs it alone,
 * PLAN_SEEDS=10000 as many as that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/coordinator/plan_world.h"

enum { N_SEEDS = 500, N_EVENTS = 60 };
static size_t n_shares, n_unsplit;

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
    assert_int_equal(a->share, b->share);
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

/* Either all that can work of a group do both, or one of a group at most has a share, one that
 * could switch or was meant for it, beside at least one of each role; its number says what it is.
 */
static void check_shares(void) {
    for (unsigned g = 1; g <= last_group(); g++) {
        size_t n = 0, n_open = 0, n_whole = 0, n_apart = 0;
        bool is_static = false;
        for (size_t i = 0; i < w.plan.n; i++) {
            const struct plan_node *v = &w.nodes[i];
            if (v->place.group != g) continue;
            const struct plan_node *b = before(v->id);
            const bool anew = b == NULL || b->place.share != v->place.share;
            is_static |= v->label == LABEL_PREFILL_STATIC || v->label == LABEL_DECODE_STATIC;
            n_apart += is_open(v) && !v->roleless && !v->place.stands_in && v->place.share == 0;
            if (v->place.share == 0) continue;
            if (plan_is_unsplit(&v->place)) {
                assert_true(w.conf.unsplit && v->place.next == ROLE_NONE && !v->place.stands_in);
                assert_int_equal(v->place.share, PLAN_UNSPLIT + (v->place.role == ROLE_PREFILL));
                if (anew) assert_true(is_open(v) && !v->roleless);
                n_whole++;
                continue;
            }
            n++;
            n_open += is_open(v); /* of the others nothing is asked */
            assert_true(w.conf.flex && v->place.next == ROLE_NONE && !v->place.stands_in);
            assert_true(v->label != LABEL_PREFILL_STATIC && v->label != LABEL_DECODE_STATIC);
            assert_true(v->place.share >= 10 && v->place.share <= 91);
            assert_int_equal(v->place.share % 2, v->place.role == ROLE_PREFILL);
            if (anew) assert_true(is_open(v) && !v->roleless);
            n_shares++;
        }
        if (n > 1) fail_msg("group %u has %zu that do both", g, n);
        if (n_whole == 0) continue;
        if (n_open > 0 || is_static || n_apart > 0)
            fail_msg("group %u: %zu unsplit, %zu apart, %zu with a share, static %d", g, n_whole,
                     n_apart, n_open, is_static);
        n_unsplit++;
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
    check_shares();
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
    if (w.conf.needs.p > 0 || w.conf.needs.d > 0) return; /* the load switches others as well */
    if (n_moved() + n_begun() > 1)
        fail_msg("%s moves %zu and switches %zu", new_id != 0 ? "a newcomer" : "one that left",
                 n_moved(), n_begun());
}

/* Loads of all kinds, and none. */
static void random_needs(void) {
    w.conf.cool_ms = rnd(2) * 5000;
    w.conf.flex = rnd(2) == 0;
    w.conf.unsplit = rnd(2) == 0;
    w.conf.needs = needs_are(0, 0, 0);
    if (rnd(2) == 0)
        w.conf.needs =
            needs_are((double)rnd(60) * 0.5, (double)rnd(60) * 0.5, (double)rnd(90) * 0.5);
}

static void event(void) {
    struct plan_node *v = w.plan.n > 0 ? &w.nodes[rnd(w.plan.n)] : NULL;
    const bool settled = w.now_ms - w.plan.started_ms >= w.conf.settle_ms;
    after(rnd(4) == 0 ? rnd(60000) : rnd(300));
    if (rnd(4) == 0) random_needs();
    for (size_t i = 0; i < w.plan.n; i++) /* of those that may be, some have a link already */
        w.nodes[i].paired = w.nodes[i].place.stands_in && rnd(2) == 0;
    switch (v != NULL ? rnd(10) : 0) {
    case 0:
    case 1:
    case 2: check_one(settled); return;
    case 3: /* dies, or has not come since the coordinator started */
        v->here = false;
        v->unheard = rnd(3) == 0;
        v->closed_ms = w.now_ms;
        v->place.next = ROLE_NONE;
        break;
    case 4: /* comes back, is put into service again */
        v->roleless = rnd(2) == 0 && !v->here;
        v->here = true;
        v->unheard = false;
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
        v->unheard = false;
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
    const char *only = getenv("PLAN_SEED"), *seeds = getenv("PLAN_SEEDS");
    const uint64_t n = only != NULL ? 1 : seeds != NULL ? strtoull(seeds, NULL, 10) : N_SEEDS;
    (void)state;
    const uint64_t from = only != NULL ? strtoull(only, NULL, 10) : 1;
    for (uint64_t seed = from; seed < from + n; seed++) {
        running = seed;
        run_seed(seed);
    }
    if (only == NULL) assert_true(2 * n_shares > n && n_unsplit > n); /* they do occur */
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
        cmocka_unit_test(restarts),
        cmocka_unit_test_teardown(random_clusters, say_seed),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* one case alone */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
