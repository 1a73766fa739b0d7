/* Goal: the choice of a pair is a right one in every cluster: open, linked both ways, of one group,
 * with room, and no free target was less loaded; no pair is overlooked; prompts spread over P's by
 * their rates and links, whether they wait or are answered at once. Method: 10,000 random clusters
 * against plain definitions of these words; 10,000 more that are given requests one after the
 * other; a table of demands. */
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

#include "coordinator/schedule.h"

enum { N_MAX = 6, PEERS_MAX = 8, CLUSTERS = 10000 };

static const double reference[9] = {0, 0.22, 1024, 24, 6, 0, 1, 0, 1};

struct cluster {
    struct schedule_conf conf;
    struct inst_view p[N_MAX], d[N_MAX];
    uint32_t p_peers[N_MAX][PEERS_MAX], d_peers[N_MAX][PEERS_MAX];
    size_t n_p, n_d;
    struct demand demand;
    uint32_t avoid_p, avoid_d;
    uint64_t turn;
};

static uint64_t rng;

static unsigned rnd(unsigned n) { /* xorshift64*; 0..n-1 */
    rng ^= rng >> 12;
    rng ^= rng << 25;
    rng ^= rng >> 27;
    return (unsigned)((rng * 2685821657736338717u) >> 33) % n;
}

static void random_view(struct inst_view *v, uint32_t *peers, uint32_t id, uint32_t first_peer,
                        size_t n_peers) {
    memset(v, 0, sizeof(*v));
    v->id = id;
    v->group = rnd(8) == 0;
    v->open = rnd(5) != 0;
    v->slots_total = rnd(6);
    v->blocks_total = rnd(40);
    v->slots_booked = rnd(3) == 0 ? 0 : rnd(6);
    v->blocks_booked = rnd(3) == 0 ? 0 : rnd(40);
    v->blocks_avail = rnd(50);
    v->token_sum = rnd(5000);
    v->prefill_tokens = rnd(3) == 0 ? 0 : rnd(4000);
    v->prefill_rate = rnd(4) == 0 ? 0 : 100 + rnd(1000);
    v->pass = rnd(4);
    v->peers = peers;
    for (size_t i = 0; i < n_peers; i++)
        if (rnd(4) != 0) peers[v->n_peers++] = first_peer + (uint32_t)i;
}

static void random_cluster(struct cluster *c, enum policy policy) {
    memset(c, 0, sizeof(*c));
    c->conf = (struct schedule_conf){
        .policy = policy, .limit_demand = rnd(4) != 0, .res_limit_rate = 0.5 + rnd(3) * 0.3};
    memcpy(c->conf.coefficients, reference, sizeof(reference));
    if (rnd(3) == 0)
        for (int i = 0; i < 9; i++) c->conf.coefficients[i] = rnd(4);
    c->n_p = rnd(N_MAX + 1);
    c->n_d = rnd(N_MAX + 1);
    for (size_t i = 0; i < c->n_p; i++)
        random_view(&c->p[i], c->p_peers[i], (uint32_t)(100 - i), 200, c->n_d);
    for (size_t i = 0; i < c->n_d; i++)
        random_view(&c->d[i], c->d_peers[i], (uint32_t)(200 + i), (uint32_t)(101 - c->n_p), c->n_p);
    c->demand = (struct demand){.prompts = 1 + rnd(2), .slots = 1 + rnd(3), .blocks = 1 + rnd(12)};
    schedule_count_links(c->p, c->n_p, c->d, c->n_d);
    if (rnd(3) == 0) c->avoid_p = 100 - rnd(N_MAX);
    if (rnd(3) == 0) c->avoid_d = 200 + rnd(N_MAX);
    c->turn = rnd(1000);
}

/* ---- the words, said plainly */
static bool lists(const struct inst_view *v, uint32_t id) {
    for (size_t i = 0; i < v->n_peers; i++)
        if (v->peers[i] == id) return true;
    return false;
}

static bool room(const struct cluster *c, const struct inst_view *v, uint64_t slots) {
    bool idle = v->slots_booked == 0 && v->blocks_booked == 0;
    bool within =
        (double)(v->slots_booked + slots) <= (double)v->slots_total * c->conf.res_limit_rate &&
        (double)(v->blocks_booked + c->demand.blocks) <=
            (double)v->blocks_total * c->conf.res_limit_rate;
    return v->open && (!c->conf.limit_demand || idle || within);
}

static bool fits(const struct cluster *c, size_t i, size_t j) {
    const struct inst_view *p = &c->p[i], *d = &c->d[j];
    return room(c, p, c->demand.prompts) && room(c, d, c->demand.slots) && p->id != c->avoid_p &&
           d->id != c->avoid_d && p->group == d->group && lists(p, d->id) && lists(d, p->id);
}

/* What the tokens in front of a request cost, in seconds of a P with all links. */
static double wait_at(const struct cluster *c, const struct inst_view *v) {
    double rates = 0, most = 1, rate = v->prefill_rate;
    unsigned n = 0;
    for (size_t i = 0; i < c->n_p; i++) {
        rates += c->p[i].prefill_rate;
        n += c->p[i].prefill_rate > 0;
        if ((double)c->p[i].links > most) most = (double)c->p[i].links;
    }
    if (rate == 0) rate = n > 0 ? rates / n : 1;
    return (double)v->prefill_tokens / rate * most / (double)v->links;
}

static double score(const struct cluster *c, const struct inst_view *v) {
    const double *k = c->conf.coefficients;
    double used =
        v->blocks_total > v->blocks_avail ? (double)(v->blocks_total - v->blocks_avail) : 0;
    /* the term of m is the same for every D of a group */
    return k[0] * v->token_sum + k[6] * used + k[7] * (double)v->slots_booked +
           k[8] * (double)v->blocks_booked;
}

static bool pick(const struct cluster *c, struct pair_choice *out) {
    return schedule_pick(out, &c->conf, c->p, c->n_p, c->d, c->n_d, c->demand, c->avoid_p,
                         c->avoid_d, c->turn);
}

static bool p_has_pair(const struct cluster *c, size_t i) {
    for (size_t j = 0; j < c->n_d; j++)
        if (fits(c, i, j)) return true;
    return false;
}

static void check_balance(const struct cluster *c, struct pair_choice got) {
    const struct inst_view *p = &c->p[got.p], *d = &c->d[got.d];
    double mine = wait_at(c, p);
    for (size_t i = 0; i < c->n_p; i++) {
        const struct inst_view *o = &c->p[i];
        if (!p_has_pair(c, i)) continue;
        double theirs = wait_at(c, o), slack = 1e-9 * mine;
        assert_true(theirs >= mine - slack);
        if (theirs == mine)
            assert_true(o->pass > p->pass || (o->pass == p->pass && o->id >= p->id));
    }
    for (size_t j = 0; j < c->n_d; j++)
        if (fits(c, got.p, j)) assert_true(score(c, &c->d[j]) >= score(c, d) - 1e-6);
}

static void check_turn(const struct cluster *c, struct pair_choice got) {
    size_t i = c->turn % c->n_p;
    while (!p_has_pair(c, i)) i = (i + 1) % c->n_p;
    assert_int_equal(got.p, i);
    size_t j = c->turn % c->n_d;
    while (!fits(c, i, j)) j = (j + 1) % c->n_d;
    assert_int_equal(got.d, j);
}

static void random_clusters(void **state) {
    unsigned n_found = 0, n_none = 0;
    (void)state;
    rng = 88172645463325252u;
    for (int n = 0; n < CLUSTERS; n++) {
        struct cluster c;
        struct pair_choice got, again;
        bool any = false;
        random_cluster(&c, n % 2 ? POLICY_ROUND_ROBIN : POLICY_LOAD_BALANCE);
        for (size_t i = 0; i < c.n_p; i++) any = any || p_has_pair(&c, i);
        assert_int_equal(pick(&c, &got), any);
        if (!any) {
            n_none++;
            continue;
        }
        n_found++;
        assert_true(fits(&c, got.p, got.d));
        assert_true(pick(&c, &again) && again.p == got.p && again.d == got.d);
        if (c.conf.policy == POLICY_LOAD_BALANCE) {
            check_balance(&c, got);
        } else {
            check_turn(&c, got);
        }
    }
    print_message("%u clusters with a pair, %u without\n", n_found, n_none);
    assert_true(n_found > CLUSTERS / 10 && n_none > CLUSTERS / 10); /* both were tried */
}

/* ---- many requests, one after the other */

/* All open, of one group, with room for everything. Every P has at least one D; few: some of their
 * links are missing. */
static void even_cluster(struct cluster *c, size_t n_p, size_t n_d, bool few) {
    memset(c, 0, sizeof(*c));
    c->conf = (struct schedule_conf){.policy = POLICY_LOAD_BALANCE};
    memcpy(c->conf.coefficients, reference, sizeof(reference));
    c->n_p = n_p;
    c->n_d = n_d;
    c->demand = (struct demand){.prompts = 1, .slots = 1, .blocks = 2, .prompt_tokens = 32};
    for (size_t i = 0; i < n_p; i++)
        c->p[i] = (struct inst_view){.id = 1 + (uint32_t)i, .open = true, .peers = c->p_peers[i]};
    for (size_t j = 0; j < n_d; j++)
        c->d[j] = (struct inst_view){.id = 100 + (uint32_t)j, .open = true, .peers = c->d_peers[j]};
    for (size_t i = 0; i < n_p; i++) {
        size_t sure = rnd((unsigned)n_d);
        for (size_t j = 0; j < n_d; j++) {
            if (few && j != sure && rnd(3) == 0) continue;
            c->p_peers[i][c->p[i].n_peers++] = c->d[j].id;
            c->d_peers[j][c->d[j].n_peers++] = c->p[i].id;
        }
    }
    schedule_count_links(c->p, n_p, c->d, n_d);
}

struct turns {
    double p, d;
};

static struct pair_choice give(struct cluster *c, struct turns *t) {
    struct pair_choice got;
    assert_true(pick(c, &got));
    assert_true(fits(c, got.p, got.d));
    schedule_turn(&t->p, &c->p[got.p].pass, c->p[got.p].links);
    schedule_turn(&t->d, &c->d[got.d].pass, 1);
    c->turn++;
    return got;
}

/* Prompts that wait: no P's wait is longer than another's by more than the longest prompt, whatever
 * their rates and links are. */
static void waiting_prompts(void **state) {
    (void)state;
    rng = 1181783497276652981u;
    for (int n = 0; n < CLUSTERS; n++) {
        struct cluster c;
        struct turns t = {0, 0};
        even_cluster(&c, 2 + rnd(N_MAX - 1), 1 + rnd(N_MAX), n % 2 == 0);
        double step = 0; /* what one prompt of the greatest length can add to a wait */
        for (size_t i = 0; i < c.n_p; i++) c.p[i].prefill_rate = 100 + rnd(10) * 100.0;
        for (size_t i = 0; i < c.n_p; i++) {
            c.p[i].prefill_tokens = 1000;
            double w = wait_at(&c, &c.p[i]);
            if (w > step) step = w;
            c.p[i].prefill_tokens = 0;
        }
        for (int k = 0; k < 60; k++) {
            c.demand.prompt_tokens = 1 + rnd(1000);
            struct pair_choice got = give(&c, &t);
            c.p[got.p].prefill_tokens += c.demand.prompt_tokens;
            double least = INFINITY, most = 0;
            for (size_t i = 0; i < c.n_p; i++) {
                double w = wait_at(&c, &c.p[i]);
                if (w < least) least = w;
                if (w > most) most = w;
            }
            assert_true(most - least <= step + 1e-9);
        }
    }
}

/* Prompts that are answered before the next one comes: nobody waits anywhere, and each P has its
 * links' part of all turns, give or take two. */
static void prompts_of_a_calm_cluster(void **state) {
    (void)state;
    rng = 3935559000370003845u;
    for (int n = 0; n < CLUSTERS; n++) {
        struct cluster c;
        struct turns t = {0, 0};
        unsigned on_p[N_MAX] = {0};
        size_t links = 0;
        even_cluster(&c, 2 + rnd(N_MAX - 1), 1 + rnd(N_MAX), n % 2 == 0);
        for (size_t i = 0; i < c.n_p; i++) c.p[i].prefill_rate = 100 + rnd(10) * 100.0;
        for (size_t i = 0; i < c.n_p; i++) links += c.p[i].links;
        for (int k = 0; k < 120; k++) on_p[give(&c, &t).p]++;
        for (size_t i = 0; i < c.n_p; i++)
            assert_true(fabs(on_p[i] - 120.0 * (double)c.p[i].links / (double)links) <= 2);
    }
}

/* A link is down: its P has half the turns of the other one, and both D's have the same. */
static void one_link_is_down(void **state) {
    struct cluster c;
    struct turns t = {0, 0};
    unsigned on_p[2] = {0}, on_d[2] = {0};
    (void)state;
    even_cluster(&c, 2, 2, false);
    c.p[0].n_peers = 1; /* P 1 has D 100 alone */
    c.d[1].n_peers = 1;
    c.d_peers[1][0] = c.p[1].id;
    schedule_count_links(c.p, 2, c.d, 2);
    for (int k = 0; k < 120; k++) {
        struct pair_choice got = give(&c, &t);
        on_p[got.p]++;
        on_d[got.d]++;
        c.d[got.d].slots_booked += 1; /* answers are long: D's fill */
        c.d[got.d].blocks_booked += 2;
    }
    assert_int_equal(on_p[0], 40);
    assert_int_equal(on_p[1], 80);
    assert_int_equal(on_d[0], 60);
    assert_int_equal(on_d[1], 60);
}

/* Those that stand in are in both lists: each is a pair by itself, and none with another; turns are
 * even. */
static void pairs_by_themselves(void **state) {
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        struct cluster c;
        struct turns t = {0, 0};
        unsigned n[3] = {0};
        even_cluster(&c, 3, 3, false);
        c.conf.policy = policy ? POLICY_ROUND_ROBIN : POLICY_LOAD_BALANCE;
        for (size_t i = 0; i < 3; i++) {
            c.p[i].n_peers = c.d[i].n_peers = 0;
            c.d[i].id = c.p[i].id;
        }
        schedule_count_links(c.p, 3, c.d, 3);
        for (int k = 0; k < 30; k++, c.turn++) {
            struct pair_choice got;
            assert_true(pick(&c, &got));
            assert_int_equal(got.p, got.d);
            n[got.p]++;
            schedule_turn(&t.p, &c.p[got.p].pass, c.p[got.p].links);
            schedule_turn(&t.d, &c.d[got.d].pass, 1);
        }
        for (int i = 0; i < 3; i++) assert_int_equal(n[i], 10);
        c.p[0].open = c.d[0].open = false;
        c.avoid_d = c.d[1].id;
        struct pair_choice got;
        assert_true(pick(&c, &got));
        assert_int_equal(got.p, 2);
    }
}

/* Three that are whole, as in a group that is not split. */
static void whole_cluster(struct cluster *c, enum policy policy) {
    even_cluster(c, 3, 3, false);
    c->conf.policy = policy;
    for (size_t i = 0; i < 3; i++) {
        struct inst_view *v = &c->p[i];
        v->n_peers = 0;
        v->whole = true;
        v->slots_total = 100;
        v->blocks_total = 1000;
        v->slots_free = 50;
        v->blocks_free = 500;
        v->blocks_avail = 500;
        c->d[i] = *v;
    }
    schedule_count_links(c->p, 3, c->d, 3);
}

static size_t picked(const struct cluster *c) {
    struct pair_choice got;
    assert_true(pick(c, &got));
    assert_int_equal(got.p, got.d);
    return got.p;
}

/* Where nothing waits in front of a prompt, the one that decodes least has it; else the one with
 * the shortest wait. */
static void whole_ones_by_load(void **state) {
    struct cluster c;
    (void)state;
    whole_cluster(&c, POLICY_LOAD_BALANCE);
    memcpy(c.conf.coefficients, reference, sizeof(reference));
    for (size_t i = 0; i < 3; i++) {
        c.p[i].prefill_tokens = c.d[i].prefill_tokens = 0;
        c.p[i].blocks_booked = c.d[i].blocks_booked = 10 * (3 - i);
    }
    assert_int_equal(picked(&c), 2);
    c.p[2].prefill_tokens = c.p[1].prefill_tokens = 5;
    assert_int_equal(picked(&c), 0);
}

/* The home has what it had before, as long as enough of it is free and it may be used; all else
 * goes in turn. */
static void the_home_has_it(void **state) {
    struct cluster c;
    (void)state;
    whole_cluster(&c, POLICY_CACHE_AFFINITY);
    c.conf.slots_free_min = c.conf.blocks_free_min = 0.05;
    for (c.turn = 0; c.turn < 6; c.turn++) assert_int_equal(picked(&c), c.turn % 3);
    c.demand.home = c.p[1].id;
    for (c.turn = 0; c.turn < 6; c.turn++) assert_int_equal(picked(&c), 1);
    c.turn = 0;
    c.p[1].slots_free = 5; /* of 100: not more than that part */
    assert_int_equal(picked(&c), 0);
    c.p[1].slots_free = 6;
    assert_int_equal(picked(&c), 1);
    c.p[1].blocks_free = 50;
    assert_int_equal(picked(&c), 0);
    c.p[1].blocks_free = 51;
    assert_int_equal(picked(&c), 1);
    c.avoid_d = c.p[1].id;
    assert_int_equal(picked(&c), 0);
    c.avoid_d = 0;
    c.p[1].open = c.d[1].open = false;
    assert_int_equal(picked(&c), 0);
    c.demand.home = 9999; /* gone */
    c.turn = 2;
    assert_int_equal(picked(&c), 2);
}

static void names_of_policies(void **state) {
    (void)state;
    for (int i = POLICY_LOAD_BALANCE; i <= POLICY_CACHE_AFFINITY; i++) {
        enum policy got;
        assert_true(schedule_policy_parse(&got, schedule_policy_name((enum policy)i)));
        assert_int_equal(got, i);
        assert_false(schedule_policy_parse(&got, "least"));
    }
}

/* An instance that comes late does not get all that follows. */
static void late_comer(void **state) {
    double now = 0, old = 0, late = 0;
    (void)state;
    for (int i = 0; i < 1000; i++) schedule_turn(&now, &old, 1);
    unsigned n = 0;
    for (int i = 0; i < 10; i++) {
        bool first = late < old;
        n += first;
        schedule_turn(&now, first ? &late : &old, 1);
    }
    assert_in_range(n, 5, 6);
}

/* Equal requests on equal instances spread evenly, under both policies. */
static void equal_load(void **state) {
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        struct cluster c;
        struct turns t = {0, 0};
        unsigned on_p[3] = {0}, on_d[4] = {0};
        even_cluster(&c, 3, 4, false);
        c.conf.policy = policy ? POLICY_ROUND_ROBIN : POLICY_LOAD_BALANCE;
        c.conf.limit_demand = true;
        c.conf.res_limit_rate = 1.1;
        for (size_t i = 0; i < 3; i++) c.p[i].slots_total = 100, c.p[i].blocks_total = 1000;
        for (size_t j = 0; j < 4; j++)
            c.d[j].slots_total = 100, c.d[j].blocks_total = c.d[j].blocks_avail = 1000;
        for (int n = 0; n < 120; n++) {
            struct pair_choice got = give(&c, &t);
            on_p[got.p]++;
            on_d[got.d]++;
            c.p[got.p].slots_booked += 1;
            c.p[got.p].blocks_booked += 2;
            c.p[got.p].prefill_tokens += 32;
            c.d[got.d].slots_booked += 1;
            c.d[got.d].blocks_booked += 2;
        }
        for (size_t i = 0; i < 3; i++) assert_int_equal(on_p[i], 40);
        for (size_t j = 0; j < 4; j++) assert_int_equal(on_d[j], 30);
        /* 110 of 100 slots may be booked, not 111 */
        for (size_t i = 0; i < 3; i++) c.p[i].slots_booked = 109;
        struct pair_choice got;
        assert_true(pick(&c, &got));
        for (size_t i = 0; i < 3; i++) c.p[i].slots_booked = 110;
        assert_false(pick(&c, &got));
    }
}

static void demands(void **state) {
    static const struct {
        size_t n_chars;
        double rate;
        unsigned block;
        bool by_length;
        uint64_t blocks;
    } rows[] = {
        {0, 4.02, 16, true, 1},         {1, 4.02, 16, true, 1},     {64, 4, 16, true, 1},
        {65, 4, 16, true, 2},           {128, 4, 16, true, 2},      {129, 4, 16, true, 3},
        {1000000, 1, 1, true, 1000000}, {1000000, 4, 16, false, 1}, {1000000, 4, 0, true, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct demand d =
            schedule_demand(rows[i].n_chars, 3, 12, rows[i].rate, rows[i].block, rows[i].by_length);
        assert_int_equal(d.prompts, 3);
        assert_int_equal(d.slots, 12);
        assert_int_equal(d.blocks, rows[i].blocks);
        assert_true(d.prompt_tokens >= 1);
        assert_true((double)d.prompt_tokens >= (double)rows[i].n_chars / rows[i].rate);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_clusters),
        cmocka_unit_test(waiting_prompts),
        cmocka_unit_test(prompts_of_a_calm_cluster),
        cmocka_unit_test(one_link_is_down),
        cmocka_unit_test(pairs_by_themselves),
        cmocka_unit_test(whole_ones_by_load),
        cmocka_unit_test(the_home_has_it),
        cmocka_unit_test(names_of_policies),
        cmocka_unit_test(late_comer),
        cmocka_unit_test(equal_load),
        cmocka_unit_test(demands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
