/* What the tests of guided decoding share: the bundled model's tokenizer, guides from a line of
 * JSON, and a random walk along the masks. */
#ifndef BATON_TEST_GUIDE_TESTLIB_H
#define BATON_TEST_GUIDE_TESTLIB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/guide/guide.h"

struct guide_fixture {
    struct tokenizer *tok;
    struct guide_vocab *v;
    int n_ids;
    int32_t eos;
    uint64_t *bits;
    size_t words;
};

static inline void fixture_open(struct guide_fixture *f) {
    struct errbuf eb = {.code = ERR_OK};
    assert_int_equal(tokenizer_load(&f->tok, "models/fable", &eb), ERR_OK);
    f->n_ids = tokenizer_vocab_size(f->tok);
    f->eos = tokenizer_token_id(f->tok, "<|end|>");
    assert_true(f->eos >= 0);
    assert_int_equal(guide_vocab_create(&f->v, f->tok, f->n_ids, &f->eos, 1), ERR_OK);
    f->words = ((size_t)f->n_ids + 63) / 64;
    f->bits = calloc(f->words, sizeof(*f->bits));
    assert_non_null(f->bits);
}

static inline void fixture_close(struct guide_fixture *f) {
    guide_vocab_destroy(&f->v);
    tokenizer_free(&f->tok);
    free(f->bits);
}

static inline struct guide *compile(struct guide_fixture *f, const char *text) {
    struct errbuf eb = {.code = ERR_OK};
    struct guide *g = NULL;
    enum err e = guide_compile(&g, f->v, text, strlen(text), NULL, &eb);
    if (e != ERR_OK) fail_msg("%s: %s: %s", text, err_name(e), eb.text);
    return g;
}

static inline bool has_bit(const uint64_t *bits, int32_t id) {
    return (bits[id >> 6] >> (id & 63) & 1) != 0;
}

static inline uint64_t next_random(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* One of the set bits, all alike; -1: none. */
static inline int32_t draw_bit(struct guide_fixture *f, uint64_t *seed) {
    size_t n = 0;
    for (size_t i = 0; i < f->words; i++) n += (size_t)__builtin_popcountll(f->bits[i]);
    if (n == 0) return -1;
    size_t k = next_random(seed) % n;
    for (int32_t id = 0; id < f->n_ids; id++)
        if (has_bit(f->bits, id) && k-- == 0) return id;
    return -1;
}

#endif
