/* Goal: the strictest of what was asked for lately is always known, however many ask, and what
 * nobody asks for any more is forgotten. Method: random askers against a list of all of them; a
 * crowd of loose ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/targets.h"

enum { VALUES = 12, ROUNDS = 20000, WINDOW_MS = 500 };
static const struct targets of_all = {1, 0.05};

static uint64_t rng = 3;
static unsigned rnd(unsigned n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng >> 33) % n;
}

static void as_a_list_of_all(void **state) {
    struct targets_seen b = {0};
    uint64_t seen[VALUES] = {0}, now = 1000;
    unsigned n_default = 0, n_other = 0;
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        now += rnd(i % 1000 < 500 ? 20 : 400);
        const unsigned v = rnd(VALUES);
        if (rnd(3) > 0) {
            targets_note(&b, &(struct targets){0.1 * (v + 1), 0.01 * (VALUES - v)}, now);
            seen[v] = now;
        }
        double first = 0, token = 0;
        for (unsigned k = 0; k < VALUES; k++) {
            if (seen[k] == 0 || seen[k] < now - WINDOW_MS) continue;
            if (first == 0) first = 0.1 * (k + 1);
            token = 0.01 * (VALUES - k);
        }
        const struct targets got = targets_strictest(&b, now - WINDOW_MS, of_all);
        assert_true(got.first_token_s == (first > 0 ? first : of_all.first_token_s));
        assert_true(got.token_s == (token > 0 ? token : of_all.token_s));
        n_default += first == 0;
        n_other += first > 0;
    }
    assert_true(n_default > 100 && n_other > 1000); /* both do occur */
}

/* More different ones than are kept, all at once: the strict one stays. */
static void a_crowd_of_loose_ones(void **state) {
    struct targets_seen b = {0};
    (void)state;
    for (int i = 0; i < 100; i++)
        targets_note(&b, &(struct targets){i == 7 ? 0.2 : 2 + i, i == 60 ? 0.001 : 1 + i}, 1000);
    const struct targets got = targets_strictest(&b, 900, of_all);
    assert_true(got.first_token_s == 0.2 && got.token_s == 0.001);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_a_list_of_all),
                                       cmocka_unit_test(a_crowd_of_loose_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
