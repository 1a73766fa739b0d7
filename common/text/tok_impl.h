/* tok_impl: what a loaded tokenizer is made of; for tokenizer.c and detok.c only. */
#ifndef BATON_TEXT_TOK_IMPL_H
#define BATON_TEXT_TOK_IMPL_H

#include <stdint.h>
#include "common/text/tok_added.h"
#include "common/text/tok_bpe.h"
#include "common/text/tok_decode.h"
#include "common/text/tok_normalize.h"
#include "common/text/tok_post.h"
#include "common/text/tok_pretok.h"
#include "common/text/tok_unigram.h"
#include "common/text/tok_vocab.h"
#include "common/text/tok_wordpiece.h"

enum tok_model { TOK_BPE, TOK_WORDPIECE, TOK_UNIGRAM };

struct tokenizer {
    enum tok_model model;
    struct tok_vocab vocab;
    struct tok_added added;
    struct tok_norm norm;
    struct tok_pretok pretok;
    struct tok_bpe bpe; /* that of `model` alone is there */
    struct tok_wordpiece wordpiece;
    struct tok_unigram unigram;
    struct tok_post post;
    struct tok_decoder decoder;
    struct buf token_bytes; /* what tokenizer_token_bytes() lends, by id one behind the other */
    uint32_t *bytes_off;    /* [vocab.n_ids + 1] */
    uint8_t hash[32];
};

/* Once all parts are there: what tokenizer_token_bytes() lends. */
enum err tokenizer_build_bytes(struct tokenizer *t);

#endif
