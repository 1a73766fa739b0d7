/* Goal: flows that wait get the resource by their weights, whoever asks for how much and in which
 * pieces; who was away has saved nothing up and lost nothing. Method: 2,000 random sets of flows
 * served for a while against the bound of start-time fair queueing; cases by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/fair.h"

enum { FLOWS_MAX = 8 };

static uint64_t rng;

static unsigned rnd(unsigned n) { /* xorshift64*; 0..n-1 */
    rng ^= rng >> 12;
    rng ^= rng << 25;
    rng ^= rng >> 27;
    return (unsigned)((rng * 2685821657736338717u) >> 33) % n;
}

static size_t next_of(const struct fair *f, const struct fair_flow *w, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (fair_start(f, &w[i]) < fair_start(f, &w[best])) best = i;
    return best;
}

/* All wait all the time. At every moment, what any two got, over their weights, differs by at most
 * their largest requests over their weights. */
static void shares(void **state) {
    (void)state;
    rng = 6364136223846793005u;
    for (int round = 0; round < 2000; round++) {
        struct fair f = {0};
        struct fair_flow w[FLOWS_MAX] = {{0}};
        double got[FLOWS_MAX] = {0}, largest[FLOWS_MAX] = {0};
        size_t n = 2 + rnd(FLOWS_MAX - 1);
        unsigned size[FLOWS_MAX];
        for (size_t i = 0; i < n; i++) w[i].weight = 1 + rnd(10), size[i] = 1 + rnd(4000);
        for (int k = 0; k < 200; k++) {
            size_t i = next_of(&f, w, n);
            double cost = 1 + rnd(size[i]);
            fair_charge(&f, &w[i], cost);
            got[i] += cost / w[i].weight;
            if (cost / w[i].weight > largest[i]) largest[i] = cost / w[i].weight;
            for (size_t a = 0; a < n; a++)
                for (size_t b = 0; b < n; b++)
                    assert_true(got[a] - got[b] <= largest[a] + largest[b] + 1e-6);
        }
    }
}

/* One flow has had everything for long. Another comes: it is next, and then they alternate. */
static void newcomer(void **state) {
    struct fair f = {0};
    struct fair_flow w[2] = {{.weight = 1}, {.weight = 1}};
    (void)state;
    for (int i = 0; i < 1000; i++) fair_charge(&f, &w[0], 100);
    assert_int_equal(next_of(&f, w, 2), 1);
    unsigned late = 0;
    for (int i = 0; i < 20; i++) {
        size_t at = next_of(&f, w, 2);
        late += at == 1;
        fair_charge(&f, &w[at], 100);
    }
    assert_in_range(late, 10, 11);
}

/* Charged for 4,096 tokens, it took 10: the rest is given back, and it is next again. */
static void correction(void **state) {
    struct fair f = {0};
    struct fair_flow w[2] = {{.weight = 2}, {.weight = 1}};
    (void)state;
    fair_charge(&f, &w[0], 4096);
    fair_charge(&f, &w[1], 100);
    fair_charge(&f, &w[1], 100);
    assert_int_equal(next_of(&f, w, 2), 1);
    fair_correct(&w[0], 10 - 4096);
    assert_int_equal(next_of(&f, w, 2), 0);
    fair_correct(&w[0], -1e9);
    assert_true(w[0].end >= 0);
}

static void within(void **state) {
    static const struct {
        uint64_t held, wanted, total;
        double weight, weights;
        bool yes;
    } rows[] = {
        {0, 1000, 32, 1, 2, true}, /* the first always */
        {15, 1, 32, 1, 2, true},   {16, 1, 32, 1, 2, false}, {8, 8, 32, 1, 2, true},
        {9, 8, 32, 1, 2, false},   {24, 0, 32, 3, 4, true},  {24, 1, 32, 3, 4, false},
        {1, 1, 32, 1, 100, false}, {31, 1, 32, 5, 5, true},  {1, 1, 0, 1, 1, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (fair_within(rows[i].held, rows[i].wanted, rows[i].total, rows[i].weight,
                        rows[i].weights) != rows[i].yes)
            fail_msg("row %zu", i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares),
        cmocka_unit_test(newcomer),
        cmocka_unit_test(correction),
        cmocka_unit_test(within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
