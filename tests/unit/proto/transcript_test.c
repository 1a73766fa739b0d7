/* Goal: a transcript keeps what was emitted, goes over the wire as it is, and takes nothing that is
 * out of range; the text form of tokens reads back. Method: random transcripts, every truncation of
 * their bytes, every refusal with the words it says, allocations that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/transcript.h"

static uint64_t seed = 1;
static uint32_t rnd(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static struct transcript random_one(uint32_t n_parts, uint32_t n_choices, uint32_t n_tokens) {
    struct transcript t = TRANSCRIPT_INIT;
    assert_int_equal(transcript_open(&t, n_parts, n_choices), ERR_OK);
    t.created_unix_s = 1700000000 + rnd(1000);
    t.seed = UINT64_MAX - rnd(1000);
    for (uint32_t i = 0; i < n_parts; i++) t.cached_tokens[i] = rnd(PROMPT_TOKENS_MAX);
    for (uint32_t i = 0, n = 0; i < n_tokens; i++) {
        struct emitted e = {.id = (int32_t)rnd(INT32_MAX),
                            .choice = (uint16_t)rnd(n_parts * n_choices),
                            .finish = rnd(100) == 0 ? FINISH_EOS : FINISH_NONE};
        bool over = t.choices[e.choice].finish != FINISH_NONE;
        assert_int_equal(transcript_add(&t, &e), over ? ERR_INVALID : ERR_OK);
        n += !over;
        assert_int_equal(t.n_ids, n);
        const struct transcript_choice *c = &t.choices[e.choice];
        if (!over) assert_true(c->ids[c->n_ids - 1] == e.id && c->finish == e.finish);
    }
    return t;
}

static void expect_same(const struct transcript *a, const struct transcript *b) {
    assert_int_equal(a->created_unix_s, b->created_unix_s);
    assert_true(a->seed == b->seed);
    assert_int_equal(a->n_ids, b->n_ids);
    assert_true(a->n_parts == b->n_parts && a->n_choices == b->n_choices);
    assert_memory_equal(a->cached_tokens, b->cached_tokens, a->n_parts * sizeof(uint32_t));
    for (uint32_t i = 0; i < a->n_parts * a->n_choices; i++) {
        assert_int_equal(a->choices[i].finish, b->choices[i].finish);
        assert_int_equal(a->choices[i].n_ids, b->choices[i].n_ids);
        if (a->choices[i].n_ids > 0)
            assert_memory_equal(a->choices[i].ids, b->choices[i].ids,
                                a->choices[i].n_ids * sizeof(int32_t));
    }
}

static void bytes_and_back(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        struct transcript a = random_one(1 + rnd(3), 1 + rnd(4), rnd(200)), b;
        struct wr w = WR_INIT;
        transcript_pack(&w, &a);
        wr_u8(&w, 7); /* somebody else's */
        struct rd r = rd_of(w.data, w.len);
        assert_int_equal(transcript_unpack(&r, &b, NULL), ERR_OK);
        assert_int_equal(rd_left(&r), 1);
        expect_same(&a, &b);
        transcript_free(&b);
        for (size_t n = 0; n + 1 < w.len; n++) {
            struct errbuf eb = {0};
            r = rd_of(w.data, n);
            assert_int_equal(transcript_unpack(&r, &b, &eb), ERR_BAD_FRAME);
            assert_non_null(strstr(eb.text, "replay record: it ends before"));
            assert_null(b.choices);
        }
        transcript_free(&a);
        wr_free(&w);
    }
}

static void one_part_of_it(void **state) {
    (void)state;
    struct transcript t = random_one(3, 2, 90), part;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(transcript_part(&part, &t, i), ERR_OK);
        assert_true(part.n_parts == 1 && part.n_choices == 2 && part.seed == t.seed);
        assert_int_equal(part.cached_tokens[0], t.cached_tokens[i]);
        for (int k = 0; k < 2; k++) {
            const struct transcript_choice *c = &t.choices[2 * i + (uint32_t)k];
            assert_int_equal(part.choices[k].n_ids, c->n_ids);
            assert_memory_equal(part.choices[k].ids, c->ids, c->n_ids * sizeof(int32_t));
        }
        transcript_free(&part);
    }
    assert_int_equal(transcript_part(&part, &t, 3), ERR_INVALID);
    transcript_free(&t);
}

static void says_when_all_have_ended(void **state) {
    (void)state;
    struct transcript t = TRANSCRIPT_INIT;
    assert_false(transcript_has_ended(&t));
    assert_int_equal(transcript_open(&t, 1, 2), ERR_OK);
    size_t empty = transcript_memory(&t);
    for (uint16_t i = 0; i < 2; i++) {
        assert_false(transcript_has_ended(&t));
        const struct emitted e = {.id = 1, .choice = i, .finish = FINISH_STOP_STRING};
        assert_int_equal(transcript_add(&t, &e), ERR_OK);
    }
    assert_true(transcript_has_ended(&t));
    assert_true(transcript_memory(&t) > empty);
    transcript_free(&t);
    assert_int_equal(transcript_memory(&t), 0);
}

static void refuses_what_is_out_of_range(void **state) {
    (void)state;
    static const struct {
        size_t at, n; /* bytes that are replaced */
        uint64_t with;
        const char *says;
    } cases[] = {
        {0, 2, 9, "version must be 1, got 9"},
        {2, 8, UINT64_MAX, "created must not be negative, got -1"},
        {18, 4, 0, "prompts must be from 1 to 128, got 0"},
        {18, 4, 129, "prompts must be from 1 to 128, got 129"},
        {22, 4, 0, "choices must be from 1 to 128"},
        {22, 4, 129, "choices must be from 1 to 128"},
        {26, 4, 1048577, "cached tokens must be at most 1048576, got 1048577"},
        {30, 1, 7, "finish of choice 0 must be from 0 to 6"},
        {31, 4, 1048577, "tokens must be at most 1048576, got 1048577"},
        {31, 4, 1048576, "it ends before the tokens of a choice"},
        {35, 4, UINT32_MAX, "token 0 of choice 0 must not be negative, got -1"},
        {39, 1, 1, "finish of choice 1 must be from 0 to 6, and 0 without tokens, got 1 with 0"},
    };
    struct transcript t = TRANSCRIPT_INIT;
    struct wr w = WR_INIT;
    assert_int_equal(transcript_open(&t, 1, 2), ERR_OK);
    assert_int_equal(transcript_add(&t, &(struct emitted){.id = 5}), ERR_OK);
    transcript_pack(&w, &t);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[64];
        struct transcript b;
        struct errbuf eb = {0};
        memcpy(bytes, w.data, w.len);
        memcpy(bytes + cases[i].at, &cases[i].with, cases[i].n);
        struct rd r = rd_of(bytes, w.len);
        assert_int_equal(transcript_unpack(&r, &b, &eb), ERR_BAD_FRAME);
        if (strstr(eb.text, cases[i].says) == NULL) fail_msg("%zu: %s", i, eb.text);
    }
    assert_int_equal(transcript_add(&t, &(struct emitted){.choice = 2}), ERR_INVALID);
    wr_free(&w);
    transcript_free(&t);
    assert_int_equal(transcript_open(&t, 0, 1), ERR_INVALID);
    assert_int_equal(transcript_open(&t, 1, 0), ERR_INVALID);
    assert_int_equal(transcript_open(&t, PARTS_MAX, CHOICES_MAX), ERR_INVALID);
}

static void tokens_as_text(void **state) {
    (void)state;
    static const struct {
        const char *text;
        struct emitted want;
    } good[] = {{"0", {.id = 0}},
                {"2147483647!6", {.id = INT32_MAX, .finish = FINISH_ERROR}},
                {"1023:5", {.id = 5, .choice = 1023}},
                {"7:320!1", {.id = 320, .choice = 7, .finish = FINISH_EOS}}};
    static const char *const bad[] = {"",
                                      "x",
                                      ",1",
                                      "1,",
                                      "-1",
                                      "2147483648",
                                      "1!",
                                      "1!0",
                                      "1!7",
                                      "1024:1",
                                      "1:",
                                      ":1",
                                      "1:2:3",
                                      "1!1!1",
                                      "1 ",
                                      "1;2",
                                      "99999999999999999999"};
    char text[EMITTED_BYTES_MAX];
    struct emitted e;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        size_t at = 0, n = strlen(good[i].text);
        assert_int_equal(emitted_parse(good[i].text, n, &at, &e), ERR_OK);
        assert_int_equal(at, n);
        assert_true(e.id == good[i].want.id && e.choice == good[i].want.choice &&
                    e.finish == good[i].want.finish);
        assert_int_equal(emitted_format(text, &e), n);
        assert_string_equal(text, good[i].text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        size_t at = 0;
        assert_int_equal(emitted_parse(bad[i], strlen(bad[i]), &at, &e), ERR_BAD_FRAME);
    }
    const struct emitted longest = {.id = INT32_MAX, .choice = 1023, .finish = FINISH_ERROR};
    assert_true(emitted_format(text, &longest) + 1 < EMITTED_BYTES_MAX + 1);
    const char *two = "1,2:3";
    size_t at = 0;
    assert_int_equal(emitted_parse(two, 5, &at, &e), ERR_OK);
    assert_int_equal(emitted_parse(two, 5, &at, &e), ERR_OK);
    assert_true(at == 5 && e.id == 3 && e.choice == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_and_back),           cmocka_unit_test(one_part_of_it),
        cmocka_unit_test(says_when_all_have_ended), cmocka_unit_test(refuses_what_is_out_of_range),
        cmocka_unit_test(tokens_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
