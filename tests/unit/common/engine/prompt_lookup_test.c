/* Goal: a draft is what followed the longest known run of newest ids, the latest time it was said;
 * its length follows what was right; a long prompt is entered in bounded steps.
 * Method: texts written for each rule, a plain search over random texts as the twin of the index.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/engine/prompt_lookup.h"

static uint64_t rng = 5;
static int rnd_to(int n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (int)((rng >> 33) % (uint64_t)n);
}

static struct prompt_lookup *made(int ids_max, int draft_max) {
    struct prompt_lookup *l = prompt_lookup_create(ids_max, draft_max);
    assert_non_null(l);
    return l;
}

/* The draft after text, by a fresh index that guesses up to n ids. */
static int draft_of(const char *text, int n, int room, char *out) {
    int32_t ids[256];
    int n_ids = (int)strlen(text);
    struct prompt_lookup *l = made(256, n);
    for (int i = 0; i < n_ids; i++) ids[i] = text[i];
    prompt_lookup_learn(l, 64, 64); /* it may guess all it wants */
    int n_draft = prompt_lookup_draft(l, ids, n_ids, room);
    for (int i = 0; i < n_draft; i++) out[i] = (char)ids[n_ids + i];
    out[n_draft] = 0;
    for (int i = 0; i < n_ids; i++) assert_int_equal(ids[i], text[i]);
    prompt_lookup_destroy(&l);
    assert_null(l);
    return n_draft;
}

static void check_draft(const char *text, int n, int room, const char *want) {
    char out[64];
    assert_int_equal(draft_of(text, n, room, out), (int)strlen(want));
    assert_string_equal(out, want);
}

static void rules_by_example(void **state) {
    (void)state;
    check_draft("", 4, 4, "");
    check_draft("a", 4, 4, "");
    check_draft("ab", 4, 4, "");
    check_draft("abcdab", 4, 4, "cdab");
    check_draft("abcdab", 4, 2, "cd"); /* no more room */
    check_draft("abcdab", 1, 9, "c");  /* no longer drafts */
    check_draft("abcdab", 4, 0, "");
    check_draft("abcda", 4, 4, "");                /* one id is no run */
    check_draft("abXabYab", 3, 9, "Yab");          /* the latest time */
    check_draft("qabcXzabcYabc_qabc", 2, 9, "Xz"); /* the longest run: qabc, not abc */
    check_draft("aaaa", 4, 9, "aaaa");             /* goes on with itself */
    check_draft("xyxyxy", 7, 9, "xyxyxyx");
}

/* As the index finds it while nothing was overwritten: the latest earlier end of the longest run.
 */
static int twin(const int32_t *ids, int n_ids) {
    for (int n = LOOKUP_NGRAM_MAX; n >= LOOKUP_NGRAM_MIN; n--)
        for (int next = n_ids - 1; next >= n; next--)
            if (memcmp(ids + next - n, ids + n_ids - n, (size_t)n * sizeof(*ids)) == 0) return next;
    return 0;
}

/* Two runs may share a slot, so the index misses one now and then; it never invents one. */
static void the_index_finds_what_a_search_finds(void **state) {
    (void)state;
    int n_found = 0, n_same = 0;
    for (int round = 0; round < 40; round++) {
        int32_t ids[400 + 4];
        int n_values = 2 + rnd_to(30);
        struct prompt_lookup *l = made(400, 4);
        for (int n = 0; n < 400; n++) {
            int next = twin(ids, n), n_draft = prompt_lookup_draft(l, ids, n, 4);
            if (n_draft > 0) {
                prompt_lookup_learn(l, n_draft, n_draft); /* never pauses */
                bool latest = memcmp(ids + n, ids + next, (size_t)n_draft * sizeof(*ids)) == 0;
                assert_true(next > 0);
                n_same += latest;
            }
            n_found += next > 0;
            ids[n] = rnd_to(n_values);
        }
        prompt_lookup_destroy(&l);
    }
    assert_true(n_found > 5000 && n_same > n_found * 8 / 10);
}

static void the_length_follows_what_was_right(void **state) {
    (void)state;
    int32_t ids[64];
    struct prompt_lookup *l = made(64, 16);
    for (int i = 0; i < 32; i++) ids[i] = i % 2;
    assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 4);
    prompt_lookup_learn(l, 4, 4);
    assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 8);
    prompt_lookup_learn(l, 8, 8);
    assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 16);
    prompt_lookup_learn(l, 16, 16);
    assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 16);
    prompt_lookup_learn(l, 16, 2);
    assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 3);
    for (int pause = 1, k = 0; k < 8; k++) {
        prompt_lookup_learn(l, 3, 0);
        for (int i = 0; i < pause; i++) assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 0);
        assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 4);
        pause = 2 * pause < LOOKUP_PAUSE_MAX ? 2 * pause : LOOKUP_PAUSE_MAX;
    }
    prompt_lookup_learn(l, 4, 1); /* forgiven */
    prompt_lookup_learn(l, 4, 0);
    assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 0);
    assert_int_equal(prompt_lookup_draft(l, ids, 32, 32), 4);
    prompt_lookup_destroy(&l);
}

static void a_long_prompt_takes_several_calls(void **state) {
    (void)state;
    int n = 3 * LOOKUP_INDEX_STEP_MAX + 2;
    int32_t *ids = calloc((size_t)n + 4, sizeof(*ids));
    struct prompt_lookup *l = made(n + 4, 4);
    assert_non_null(ids);
    for (int i = 0; i < n; i++) ids[i] = i % 5;
    for (int i = 0; i < 3; i++) assert_int_equal(prompt_lookup_draft(l, ids, n, 4), 0);
    assert_int_equal(prompt_lookup_draft(l, ids, n, 4), 4);
    for (int i = 0; i < 4; i++) assert_int_equal(ids[n + i], (n + i) % 5);
    prompt_lookup_destroy(&l);
    free(ids);
}

/* More runs than slots: old ones are forgotten, new ones are found. */
static void memory_is_bounded(void **state) {
    (void)state;
    int n = 4 * LOOKUP_SLOTS_MAX, n_right = 0;
    int32_t *ids = calloc((size_t)n + 8, sizeof(*ids));
    struct prompt_lookup *l = made(1048576, 4);
    assert_non_null(ids);
    for (int i = 0; i < n; i++) ids[i] = i < n - 64 ? rnd_to(100000) : ids[i - 1000];
    for (int i = 0; i < n / LOOKUP_INDEX_STEP_MAX; i++) {
        if (prompt_lookup_draft(l, ids, n, 4) == 0) continue;
        n_right += ids[n] == ids[n - 1000];
    }
    assert_int_equal(n_right, 1);
    prompt_lookup_destroy(&l);
    free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_by_example),
        cmocka_unit_test(the_index_finds_what_a_search_finds),
        cmocka_unit_test(the_length_follows_what_was_right),
        cmocka_unit_test(a_long_prompt_takes_several_calls),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
