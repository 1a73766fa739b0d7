/* Goal: a cache of prefixes has what was used last, whole beginnings only, and no more than it has
 * room for; a simulated cluster computes what no cache of its P has, and its router goes where the
 * prefix is. Method: a list that is searched from end to end beside it; conversations. */
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

#include "tools/sim/sim_cache.h"

enum { ROOM = 40, BLOCKS_MAX = 12, TURNS = 8, TALKS = 61 };

/* ---- a cache by itself */

/* Beginnings, the newest first: block k of a request is the path of its first k + 1 names. */
struct path {
    uint32_t n, copy;
    uint64_t names[BLOCKS_MAX];
};
static struct path list[ROOM + 1];
static size_t n_list;

static size_t list_find(const struct sim_ask *a, uint32_t n) {
    size_t i = 0;
    while (i < n_list && !(list[i].n == n && list[i].copy == a->copy &&
                           memcmp(list[i].names, a->blocks, n * sizeof(*a->blocks)) == 0))
        i++;
    return i;
}

static void list_use(const struct sim_ask *a) {
    for (uint32_t k = 1; k <= a->n_blocks; k++) {
        struct path p = {.n = k, .copy = a->copy};
        memcpy(p.names, a->blocks, k * sizeof(*a->blocks));
        const size_t i = list_find(a, k), end = i < n_list ? i : n_list;
        if (i == n_list && n_list < ROOM) n_list++;
        memmove(list + 1, list, (end < ROOM ? end : ROOM - 1) * sizeof(*list));
        list[0] = p;
    }
}

static void a_cache_is_the_list(void **state) {
    struct sim_cache *c = sim_cache_create(ROOM);
    (void)state;
    assert_non_null(c);
    srand(4);
    size_t hits = 0;
    for (int round = 0; round < 20000; round++) {
        uint64_t names[BLOCKS_MAX];
        const struct sim_ask a = {.blocks = names,
                                  .n_blocks = (uint32_t)rand() % (BLOCKS_MAX + 1),
                                  .copy = (uint32_t)rand() % 2};
        for (uint32_t k = 0; k < a.n_blocks; k++) names[k] = (uint64_t)rand() % 3;
        uint32_t there = 0;
        while (there < a.n_blocks && list_find(&a, there + 1) < n_list) there++;
        assert_int_equal(sim_cache_find(c, &a), there);
        hits += there;
        if (rand() % 2 == 0) continue;
        sim_cache_use(c, &a, a.n_blocks);
        list_use(&a);
        assert_int_equal(sim_cache_held(c), n_list);
    }
    assert_true(hits > 1000);
    sim_cache_destroy(&c);
    assert_null(c);
}

/* ---- caches in a cluster */
static struct sim_ask asks[TALKS * TURNS];
static uint64_t names[TALKS][TURNS];
static struct sim_result result;

/* TALKS conversations: every turn has the tokens of those before it and 512 more. Turns of a
 * conversation come four seconds apart. */
static void talk(void) {
    size_t n = 0;
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t t = 0; t < TALKS; t++) {
            names[t][turn] = t * 1000 + turn;
            asks[n++] = (struct sim_ask){.at_s = turn * 12 + t * 0.2,
                                         .in = 512 * (turn + 1) + 10,
                                         .out = 20,
                                         .blocks = names[t],
                                         .n_blocks = turn + 1,
                                         .block_tokens = 512};
        }
}

static struct sim_conf conf(unsigned instances) {
    struct sim_conf c = {.mode = SIM_FIXED,
                         .instances = instances,
                         .p_rate = 1,
                         .d_rate = 1,
                         .slots = 32,
                         .first_token_s = 1,
                         .token_s = 0.05,
                         .switch_s = 0.2,
                         .window_s = 5,
                         .cool_s = 5,
                         .kv_token_bytes = 1000,
                         .link_bytes_per_s = 1e8,
                         .per_host = 1};
    for (int n = 16; n <= 8192; n *= 2) perf_add_prompt(&c.perf, n, n * 0.5e-3);
    for (int b = 1; b <= 32; b *= 2) perf_add_step(&c.perf, b, 1000, 0.010 + 0.001 * b);
    return c;
}

static void a_second_turn_computes_the_rest(void **state) {
    struct sim_conf c = conf(2);
    (void)state;
    talk();
    struct sim_ask two[2] = {asks[0], asks[TALKS]};
    two[1].out = 1;
    c.kv_token_bytes = 0;
    assert_int_equal(sim_run(&result, &c, two, 2), ERR_OK);
    assert_true(fabs(result.end_s - (12 + perf_prompt_s(&c.perf, 1034))) < 1e-9);
    c.cache_blocks = 8;
    assert_int_equal(sim_run(&result, &c, two, 2), ERR_OK);
    assert_true(fabs(result.end_s - (12 + perf_prompt_s(&c.perf, 1034 - 512))) < 1e-9);
    assert_true(result.cached_tokens == 512 && result.prompt_tokens == 522 + 1034);
    two[1].copy = 1; /* the same names of another copy are others */
    assert_int_equal(sim_run(&result, &c, two, 2), ERR_OK);
    assert_true(result.cached_tokens == 0);
}

/* Blind, a third of the turns come to the P that has the conversation; the router that knows sends
 * all there, or has the D's part of it brought back. */
static void the_router_goes_where_it_is(void **state) {
    struct sim_conf c = conf(6);
    (void)state;
    talk();
    const size_t n = TALKS * TURNS;
    assert_int_equal(sim_run(&result, &c, asks, n), ERR_OK);
    const uint64_t without = result.good;
    assert_true(result.cached_tokens == 0);
    c.cache_blocks = TALKS * TURNS;
    c.blind = true;
    assert_int_equal(sim_run(&result, &c, asks, n), ERR_OK);
    const double blind = result.cached_tokens;
    const uint64_t blind_good = result.good;
    assert_int_equal(result.fetched, 0);
    c.blind = false;
    assert_int_equal(sim_run(&result, &c, asks, n), ERR_OK);
    print_message("good %d without, %d blind, %d of %d; cached %.2f blind, %.2f; fetched %d\n",
                  (int)without, (int)blind_good, (int)result.good, (int)n,
                  blind / result.prompt_tokens, result.cached_tokens / result.prompt_tokens,
                  (int)result.fetched);
    assert_true(result.cached_tokens > 1.1 * blind);
    assert_true(result.good > blind_good && blind_good >= without && result.fetched > 0);
    assert_int_equal(result.ended, n);
    c.cache_blocks = 1; /* hardly anything lasts */
    assert_int_equal(sim_run(&result, &c, asks, n), ERR_OK);
    assert_true(result.cached_tokens < 0.2 * blind);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_is_the_list),
        cmocka_unit_test(a_second_turn_computes_the_rest),
        cmocka_unit_test(the_router_goes_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
