/* Goal: of a request whose beginning was computed before, the coordinator knows on which instances
 * it still lies and how much of it. Method: sets against a model, by random messages; a
 * conversation whose first turn two instances have; more inputs than the book has rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/prefix_book.h"

static uint64_t rng = 3;
static unsigned rnd(unsigned n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng >> 33) % n;
}

static void sets_follow_messages(void **state) {
    enum { DIGESTS = 3000 };
    static bool model[DIGESTS + 1];
    struct prefix_set s = {0};
    uint64_t list[200];
    (void)state;
    prefix_set_expect(&s, 5); /* it has never said anything */
    assert_false(prefix_set_has(&s, 5));
    for (uint64_t round = 1; round < 3000; round++) {
        struct prefix_msg m = {
            .epoch = 1 + round / 700, .seq = round, .digests = list, .n = rnd(200)};
        m.whole = m.epoch != s.epoch || rnd(50) == 0;
        if (m.whole) memset(model, 0, sizeof(model));
        for (size_t i = 0; i < m.n; i++) {
            const unsigned d = 1 + rnd(DIGESTS);
            const bool gone = !m.whole && rnd(2) == 0;
            model[d] = !gone;
            list[i] = d | (gone ? PREFIX_GONE : 0);
        }
        prefix_set_take(&s, &m);
        assert_true(s.epoch == m.epoch && s.seq == round);
        size_t n = 0;
        for (unsigned d = 1; d <= DIGESTS; d++) {
            if (prefix_set_has(&s, d) != model[d]) fail_msg("%u at round %u", d, (unsigned)round);
            n += model[d];
        }
        assert_int_equal(n, s.n);
    }
    prefix_set_expect(&s, DIGESTS + 7);
    assert_true(prefix_set_has(&s, DIGESTS + 7));
    prefix_set_take(&s, &(struct prefix_msg){0}); /* no cache any more */
    assert_true(s.n == 0 && s.epoch == 0 && !prefix_set_has(&s, DIGESTS + 7));
    prefix_set_free(&s);
}

static void a_set_is_bounded(void **state) {
    struct prefix_set s = {.epoch = 1};
    (void)state;
    for (uint64_t d = 1; d < 10 * PREFIX_DIGESTS_MAX; d++) prefix_set_expect(&s, d);
    assert_true(s.n <= 2 * PREFIX_DIGESTS_MAX && prefix_set_has(&s, 1));
    prefix_set_free(&s);
}

enum { BT = 16, P1 = 11, P2 = 12, D1 = 21, N_TOKENS = 2000 };

static void a_conversation(void **state) {
    static char text[10000], next[10500];
    static int32_t ids[N_TOKENS];
    struct prefix_key keys[PREFIX_KEYS_MAX];
    struct prefix_found found[PREFIX_FOUND_MAX];
    uint64_t digests[PREFIX_PROMPT_DIGESTS_MAX];
    struct prefix_set p1 = {.epoch = 1}, p2 = {.epoch = 1}, d1 = {.epoch = 1};
    struct prefix_book *b = prefix_book_create();
    (void)state;
    assert_non_null(b);
    memset(text, 'a', sizeof(text));
    text[0] = '[';
    text[sizeof(text) - 2] = '}';
    text[sizeof(text) - 1] = ']';
    size_t n = prefix_keys_of(keys, 1, text, sizeof(text));
    assert_int_equal(prefix_book_find(b, keys, n, found), 0);
    struct prefix_told told = {.digests = digests,
                               .n_digests = prefix_digests_of(digests, 0, ids, N_TOKENS, BT),
                               .block_tokens = BT,
                               .prompt_tokens = N_TOKENS,
                               .n_bytes = sizeof(text),
                               .d_id = D1};
    prefix_book_learn(b, keys, n, &told);
    prefix_book_answered(b, keys, n, 100);
    for (size_t i = 0; i < told.n_digests; i++) {
        prefix_set_expect(&p1, digests[i]);
        prefix_set_expect(&d1, digests[i]);
    }
    /* the next turn begins with the same message */
    memcpy(next, text, sizeof(text) - 1);
    memset(next + sizeof(text) - 1, 'b', sizeof(next) - sizeof(text) + 1);
    n = prefix_keys_of(keys, 1, next, sizeof(next));
    size_t n_found = prefix_book_find(b, keys, n, found);
    assert_true(n_found > 0);
    assert_int_equal(found[0].n_bytes, sizeof(text) - 1);
    assert_true(found[0].at == N_TOKENS);
    /* what is told is whole blocks, and of a deep chain each sixteenth part */
    assert_true(found[0].tokens <= N_TOKENS && found[0].tokens >= N_TOKENS * 15 / 16 - BT);
    assert_true(prefix_cached_at(found, n_found, &p1, P1) == found[0].tokens);
    assert_true(prefix_cached_at(found, n_found, &d1, D1) == N_TOKENS + 100);
    assert_true(prefix_cached_at(found, n_found, &p2, P2) == 0);
    /* one forgets the tail: the head is still of use */
    for (size_t i = told.n_digests / 2; i < told.n_digests; i++) {
        uint64_t gone = digests[i] | PREFIX_GONE;
        prefix_set_take(&p1, &(struct prefix_msg){.epoch = 1, .seq = 2, .digests = &gone, .n = 1});
    }
    const double left = prefix_cached_at(found, n_found, &p1, P1);
    assert_true(left > 0 && left < found[0].tokens);
    /* another beginning */
    memset(next, 'c', sizeof(next));
    n = prefix_keys_of(keys, 1, next, sizeof(next));
    assert_int_equal(prefix_book_find(b, keys, n, found), 0);
    prefix_set_free(&p1);
    prefix_set_free(&d1);
    prefix_book_destroy(&b);
}

static void what_was_used_longest_ago_goes(void **state) {
    struct prefix_book *b = prefix_book_create();
    struct prefix_found found[PREFIX_FOUND_MAX];
    const uint64_t digest = 9;
    const struct prefix_told told = {.digests = &digest,
                                     .n_digests = 1,
                                     .block_tokens = BT,
                                     .prompt_tokens = BT,
                                     .n_bytes = 10,
                                     .d_id = D1};
    (void)state;
    assert_non_null(b);
    const unsigned n = 4 * PREFIX_BOOK_ROWS;
    unsigned n_old = 0, n_new = 0;
    for (unsigned i = 1; i <= n; i++) {
        const struct prefix_key k = {.hash = i * UINT64_C(0x9E3779B97F4A7C15), .at = 10};
        prefix_book_learn(b, &k, 1, &told);
    }
    for (unsigned i = 1; i <= n; i++) {
        const struct prefix_key k = {.hash = i * UINT64_C(0x9E3779B97F4A7C15), .at = 10};
        const size_t known = prefix_book_find(b, &k, 1, found);
        if (i <= n / 2) n_old += known > 0;
        if (i > n - PREFIX_BOOK_ROWS / 4) n_new += known > 0;
    }
    assert_int_equal(n_new, PREFIX_BOOK_ROWS / 4);
    assert_true(n_old < PREFIX_BOOK_ROWS / 16);
    prefix_book_destroy(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_follow_messages),
        cmocka_unit_test(a_set_is_bounded),
        cmocka_unit_test(a_conversation),
        cmocka_unit_test(what_was_used_longest_ago_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
