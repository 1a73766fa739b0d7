/* Goal: routing by cost takes the pair that answers soonest, uses what instances have of a prompt,
 * and never one that could not serve. Method: small clusters whose best pair can be worked out by
 * hand; random ones against a plain search over all pairs; the same instances in another order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/route.h"

enum { N_MAX = 8 };

struct cluster {
    struct schedule_conf conf;
    struct inst_view p[N_MAX], d[N_MAX];
    uint32_t p_peers[N_MAX][N_MAX], d_peers[N_MAX][N_MAX];
    double rates[N_MAX][N_MAX];
    size_t n_p, n_d;
    struct demand demand;
};

static uint64_t rng = 11;
static unsigned rnd(unsigned n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng >> 33) % n;
}

/* Alike and idle: 1 ms and 1 ms a token of a prompt, 10 ms a step, 100 MB/s, 1 kB of KV a token. */
static void alike(struct cluster *c, size_t n_p, size_t n_d) {
    memset(c, 0, sizeof(*c));
    c->conf = (struct schedule_conf){.policy = POLICY_COST,
                                     .weights = {1, 1, 1, 1},
                                     .local_tokens_max = 64,
                                     .kv_token_bytes = 1000};
    c->n_p = n_p;
    c->n_d = n_d;
    c->demand = (struct demand){.prompts = 1,
                                .slots = 1,
                                .blocks = 10,
                                .prompt_tokens = 1000,
                                .new_tokens = 100,
                                .whole = true};
    for (size_t i = 0; i < n_p; i++)
        c->p[i] = (struct inst_view){.id = 1 + (uint32_t)i,
                                     .open = true,
                                     .start_s = 0.001,
                                     .token_s = 0.001,
                                     .step_s = 0.01,
                                     .blocks_total = 1000,
                                     .peers = c->p_peers[i],
                                     .peer_rate = c->rates[i]};
    for (size_t j = 0; j < n_d; j++)
        c->d[j] = (struct inst_view){.id = 101 + (uint32_t)j,
                                     .open = true,
                                     .start_s = 0.001,
                                     .token_s = 0.001,
                                     .step_s = 0.01,
                                     .blocks_total = 1000,
                                     .computes = true,
                                     .peers = c->d_peers[j]};
    for (size_t i = 0; i < n_p; i++)
        for (size_t j = 0; j < n_d; j++) {
            c->rates[i][c->p[i].n_peers] = 100e6;
            c->p_peers[i][c->p[i].n_peers++] = c->d[j].id;
            c->d_peers[j][c->d[j].n_peers++] = c->p[i].id;
        }
}

static struct pair_choice pick(const struct cluster *c) {
    struct pair_choice got = {0};
    assert_true(schedule_pick(&got, &c->conf, c->p, c->n_p, c->d, c->n_d, c->demand, 0, 0, 0));
    return got;
}

static void the_prompt_goes_to_who_has_it(void **state) {
    struct cluster c;
    (void)state;
    alike(&c, 3, 2);
    c.p[2].cached = 900;
    struct pair_choice got = pick(&c);
    assert_true(got.p == 2 && !got.alone && got.kv_at == 0 && got.computed == 100);
    assert_true(got.prompt_s > 0.1 && got.prompt_s < 0.102);
    c.p[2].queue_s = 0.95; /* to wait there takes longer than to compute it elsewhere */
    got = pick(&c);
    assert_true(got.p != 2 && got.computed == 1000);
}

static void blocks_come_back(void **state) {
    struct cluster c;
    (void)state;
    alike(&c, 2, 2);
    c.d[1].cached = 900; /* 900 kB at 100 MB/s: 9 ms instead of 900 */
    struct pair_choice got = pick(&c);
    assert_true(!got.alone && got.kv_at == c.d[1].id && got.computed == 100 && got.d == 1);
    for (size_t i = 0; i < 2; i++) c.rates[i][1] = 0.5e6; /* 1.8 s over this link */
    got = pick(&c);
    assert_true(got.kv_at == 0 && got.computed == 1000);
    for (size_t i = 0; i < 2; i++) c.rates[i][1] = 100e6;
    c.demand.whole = false; /* behind an attempt that was lost */
    got = pick(&c);
    assert_true(got.kv_at == 0 && !got.alone);
}

static void short_rests_stay_where_they_are(void **state) {
    struct cluster c;
    (void)state;
    alike(&c, 2, 2);
    c.d[1].cached = 950;
    struct pair_choice got = pick(&c);
    assert_true(got.alone && got.d == 1 && got.computed == 50);
    c.conf.local_tokens_max = 49;
    assert_false(pick(&c).alone);
    c.conf.local_tokens_max = 64;
    c.d[1].computes = false;
    assert_false(pick(&c).alone);
    c.d[1].computes = true;
    c.d[1].n_decoding = 20; /* each of them would wait for these 50 tokens */
    got = pick(&c);
    assert_true(!got.alone && got.kv_at == c.d[1].id);
    c.d[1].n_decoding = 0;
    c.conf.local_tokens_max = 0;
    c.d[1].cached = 1000; /* all of it: the last token is computed whatever is known */
    assert_false(pick(&c).alone);
}

static void idle_decoders_help(void **state) {
    struct cluster c;
    (void)state;
    alike(&c, 2, 2);
    c.conf.prefill_queue_max = 4;
    for (size_t i = 0; i < 2; i++) {
        c.p[i].n_prompts = 4;
        c.p[i].queue_s = 4;
    }
    struct pair_choice got = pick(&c);
    assert_true(got.alone && got.computed == 1000);
    c.d[0].n_decoding = c.d[1].n_decoding = 1;
    assert_false(pick(&c).alone);
    c.d[0].n_decoding = 0;
    c.p[1].n_prompts = 3; /* one has room */
    assert_false(pick(&c).alone);
}

static void the_batch_that_takes_one_more_best(void **state) {
    struct cluster c;
    (void)state;
    alike(&c, 1, 3);
    c.d[0].n_decoding = 8;
    c.d[0].step_s = 0.012;
    c.d[0].step_more_s = 0.001; /* 8 others wait 1 ms more a token */
    c.d[1].n_decoding = 2;
    c.d[1].step_s = 0.0105;
    c.d[1].step_more_s = 0.0001;
    c.d[2].step_s = 0.05; /* a slow machine */
    assert_int_equal(pick(&c).d, 1);
    c.d[1].blocks_booked = 1000; /* its pool is full */
    c.conf.limit_demand = false;
    assert_int_equal(pick(&c).d, 0);
    c.conf.token_target_s = 0.011; /* the first is beyond it, and counts so much more */
    c.conf.weights[3] = 0;
    assert_int_equal(pick(&c).d, 1);
}

static void equals_take_turns(void **state) {
    struct cluster c;
    unsigned n[N_MAX] = {0};
    double now = 0;
    (void)state;
    alike(&c, 3, 2);
    for (int k = 0; k < 300; k++) {
        const struct pair_choice got = pick(&c);
        n[got.p]++;
        schedule_turn(&now, &c.p[got.p].pass, c.p[got.p].links);
    }
    for (size_t i = 0; i < 3; i++) assert_int_equal(n[i], 100);
    /* Decode instances too; one that has the conversation before them, one that has a beginning
     * which all prompts share not. */
    double d_now = 0;
    unsigned n_d[2] = {0};
    c.conf.kv_token_bytes = 0;
    c.conf.local_tokens_max = 0;
    c.d[1].cached = 100;
    c.p[0].cached = c.p[1].cached = c.p[2].cached = 100;
    for (int k = 0; k < 100; k++) {
        const struct pair_choice got = pick(&c);
        n_d[got.d]++;
        schedule_turn(&d_now, &c.d[got.d].pass, 1);
    }
    assert_int_equal(n_d[0], 50);
    c.d[1].cached = 600;
    for (size_t i = 0; i < 3; i++) c.p[i].cached = 600;
    for (int k = 0; k < 10; k++) {
        const struct pair_choice got = pick(&c);
        assert_int_equal(got.d, 1);
        schedule_turn(&d_now, &c.d[got.d].pass, 1);
    }
}

/* However the steps of like instances were measured: each time ends somewhere, a new one comes, and
 * nobody has many while another has few. Noise that makes a large batch look free must not send
 * everything there. */
static void likes_share_what_comes(void **state) {
    static const double steps[][4] = {{1.8, 4.3, 4.3, 4.3}, /* a large batch for nothing */
                                      {4, 2, 2, 2.1},
                                      {3, 3, 3, 3},
                                      {1, 5, 2, 9},
                                      {9, 1, 1, 1}};
    (void)state;
    for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
        struct perf_msg perf = {0};
        struct cluster c;
        unsigned n[N_MAX] = {0};
        double now[2] = {0};
        for (int b = 0; b < 4; b++) perf_add_step(&perf, 1 << b, 64, steps[s][b] * 1e-3);
        perf_add_prompt(&perf, 16, 0.001);
        perf_add_prompt(&perf, 512, 0.03);
        alike(&c, 2, 3);
        c.demand.prompt_tokens = 30;
        for (int k = 0; k < 900; k++) {
            for (size_t j = 0; j < 3; j++) route_measure(&c.d[j], &perf, 1, 1, 30, 40);
            const struct pair_choice got = pick(&c);
            n[got.d]++;
            c.d[got.d].n_decoding++;
            schedule_turn(&now[0], &c.p[got.p].pass, 1);
            schedule_turn(&now[1], &c.d[got.d].pass, 1);
            if (k < 9) continue;
            unsigned end = rnd(10), j = 0; /* any of the ten there are */
            for (; end >= c.d[j].n_decoding; j++) end -= c.d[j].n_decoding;
            c.d[j].n_decoding--;
        }
        for (size_t j = 0; j < 3; j++)
            if (n[j] < 200 || n[j] > 400) fail_msg("steps %zu: %u of 900", s, n[j]);
    }
}

/* When a request would have its first token is known of a full cluster too. */
static void a_full_cluster(void **state) {
    struct cluster c;
    struct pair_choice got;
    bool known;
    (void)state;
    alike(&c, 2, 2);
    const double idle_s = route_first_token_s(&c.conf, c.p, 2, c.d, 2, &c.demand);
    assert_true(idle_s > 1 && idle_s < 1.01);
    c.conf.limit_demand = true;
    c.conf.res_limit_rate = 1;
    for (size_t i = 0; i < 2; i++) c.d[i].slots_total = c.d[i].slots_booked = 4;
    assert_false(route_pick(&got, &c.conf, c.p, 2, c.d, 2, &c.demand, 0, 0, &known));
    assert_true(known);
    assert_true(route_first_token_s(&c.conf, c.p, 2, c.d, 2, &c.demand) == idle_s);
    c.d[0].open = c.d[1].open = false;
    assert_true(route_first_token_s(&c.conf, c.p, 2, c.d, 2, &c.demand) == 0);
}

/* What nobody has measured is chosen as the reference does. */
static void nothing_is_known(void **state) {
    struct cluster c;
    struct pair_choice got;
    bool known = true;
    (void)state;
    alike(&c, 2, 2);
    c.p[0].token_s = 0;
    c.p[1].cached = 900;
    assert_false(route_pick(&got, &c.conf, c.p, 2, c.d, 2, &c.demand, 0, 0, &known));
    assert_false(known);
    c.p[0].prefill_tokens = 5;
    c.p[0].prefill_rate = c.p[1].prefill_rate = 10;
    got = pick(&c);
    assert_true(got.p == 1 && !got.alone && got.computed == 0);
    assert_true(route_first_token_s(&c.conf, c.p, 2, c.d, 2, &c.demand) == 0);
}

static void randomly(struct cluster *c) {
    alike(c, 1 + rnd(N_MAX), 1 + rnd(N_MAX));
    c->demand.prompt_tokens = 1 + rnd(3000);
    c->demand.whole = rnd(2) == 0;
    c->conf.prefill_queue_max = rnd(3);
    c->conf.limit_demand = rnd(2) == 0;
    c->conf.res_limit_rate = 1;
    for (size_t k = 0; k < c->n_p + c->n_d; k++) {
        struct inst_view *v = k < c->n_p ? &c->p[k] : &c->d[k - c->n_p];
        v->open = rnd(5) > 0;
        v->cached = rnd((unsigned)c->demand.prompt_tokens + 1);
        v->queue_s = rnd(1000) * 1e-3;
        v->n_prompts = rnd(4);
        v->n_decoding = rnd(8);
        v->token_s = (1 + rnd(9)) * 1e-4;
        v->step_s = (1 + rnd(9)) * 1e-3;
        v->step_more_s = rnd(3) * 1e-4;
        v->slots_total = 10;
        v->slots_booked = rnd(12);
        v->blocks_booked = rnd(1200);
        if (rnd(3) == 0) v->n_peers = rnd((unsigned)v->n_peers + 1);
    }
}

static double cost_of(const struct cluster *c, const struct pair_choice *pair) {
    struct route_cost r;
    route_cost_of(&r, &c->conf, pair->alone ? NULL : &c->p[pair->p], c->d, c->n_d, &c->d[pair->d],
                  &c->demand);
    return r.prompt_s + r.link_s + r.decode_s + r.shortage_s;
}

static void random_clusters(void **state) {
    struct cluster c;
    unsigned n_found = 0, n_alone = 0, n_fetched = 0;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct pair_choice got = {0};
        bool known, any = false;
        double least = 1e30;
        randomly(&c);
        const uint32_t avoid_p = rnd(4) == 0 ? 1 : 0, avoid_d = rnd(4) == 0 ? 101 : 0;
        const bool found =
            route_pick(&got, &c.conf, c.p, c.n_p, c.d, c.n_d, &c.demand, avoid_p, avoid_d, &known);
        assert_true(known);
        for (size_t i = 0; i < c.n_p; i++)
            for (size_t j = 0; j < c.n_d; j++) {
                const struct pair_choice pair = {.p = i, .d = j};
                if (c.p[i].id == avoid_p || c.d[j].id == avoid_d ||
                    !schedule_has_room(&c.conf, &c.p[i], c.demand.prompts, c.demand.blocks) ||
                    !schedule_has_room(&c.conf, &c.d[j], c.demand.slots, c.demand.blocks) ||
                    !schedule_linked(&c.p[i], &c.d[j]))
                    continue;
                any = true;
                if (cost_of(&c, &pair) < least) least = cost_of(&c, &pair);
            }
        assert_true(found || !any);
        if (!found) continue;
        n_found++;
        n_alone += got.alone;
        n_fetched += got.kv_at != 0;
        const struct inst_view *d = &c.d[got.d];
        assert_true(d->open && d->id != avoid_d);
        assert_true(schedule_has_room(&c.conf, d, c.demand.slots, c.demand.blocks));
        if (got.alone) {
            assert_true(c.demand.whole && d->computes);
            assert_true(got.kv_at == 0);
        } else {
            assert_true(c.p[got.p].open && c.p[got.p].id != avoid_p);
            assert_true(schedule_linked(&c.p[got.p], d));
        }
        assert_true(got.computed >= 1 && got.computed <= (double)c.demand.prompt_tokens);
        if (any) assert_true(cost_of(&c, &got) <= least * 1.0201 + 0.00051);
        assert_true(route_first_token_s(&c.conf, c.p, c.n_p, c.d, c.n_d, &c.demand) > 0);
    }
    assert_true(n_found > 10000 && n_alone > 100 && n_fetched > 1000);
}

/* Twelve prompts that wait 4 s in front of two prefill instances come one after the other: of those
 * that go to one decode instance as many decode at a time as come in the second that an answer
 * takes. */
static void those_that_come_one_by_one(void **state) {
    struct cluster c;
    (void)state;
    alike(&c, 3, 3);
    c.p[0].queue_s = 3;
    c.p[1].queue_s = 5;
    c.p[2].queue_s = 99;
    c.p[2].open = false;
    c.d[0].n_decoding = 10;
    c.d[0].n_coming = 8;
    c.d[1].n_decoding = 5; /* all of them decode */
    c.d[2].n_decoding = c.d[2].n_coming = 3;
    assert_true(route_expect(c.p, 3, c.d, 3, &c.demand));
    assert_int_equal(c.d[0].n_decoding, 2 + 2);
    assert_int_equal(c.d[1].n_decoding, 5);
    assert_int_equal(c.d[2].n_decoding, 1); /* there is one */
    /* Where an answer takes longer than all prompts, all will be there; with no prompts too. */
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < 3; i++) c.p[i].queue_s = k == 0 ? 0.9 : 0;
        c.d[0].n_decoding = 10;
        c.d[0].n_coming = 8;
        assert_false(route_expect(c.p, 3, c.d, 3, &c.demand));
        assert_int_equal(c.d[0].n_decoding, 10);
    }
    assert_false(route_expect(c.p, 0, c.d, 3, &c.demand));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prompt_goes_to_who_has_it),
        cmocka_unit_test(blocks_come_back),
        cmocka_unit_test(short_rests_stay_where_they_are),
        cmocka_unit_test(idle_decoders_help),
        cmocka_unit_test(the_batch_that_takes_one_more_best),
        cmocka_unit_test(equals_take_turns),
        cmocka_unit_test(likes_share_what_comes),
        cmocka_unit_test(nothing_is_known),
        cmocka_unit_test(a_full_cluster),
        cmocka_unit_test(random_clusters),
        cmocka_unit_test(those_that_come_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
