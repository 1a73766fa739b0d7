/* tok_pieces: a tokenizer from SentencePiece's pieces, as tokenizer.model and GGUF files list them:
 * BPE by scores, or Unigram.
 *
 * BPE: the pair whose piece has the highest score is joined first, of equals the leftmost. So a
 * score is a rank, and every way to put a piece together from two others is a merge. The steps
 * around the model are those of the tokenizer.json that such models are converted to. */
#ifndef BATON_TEXT_TOK_PIECES_H
#define BATON_TEXT_TOK_PIECES_H

#include "common/text/tok_impl.h"

/* The numbers of SentencePiece and of GGUF. */
enum tok_piece_type {
    TOK_PIECE_NORMAL = 1,
    TOK_PIECE_UNKNOWN,
    TOK_PIECE_CONTROL,
    TOK_PIECE_USER,
    TOK_PIECE_UNUSED,
    TOK_PIECE_BYTE,
};

struct tok_piece {
    const char *s;
    size_t n;
    double score;
    int type;
};

struct tok_pieces {
    const struct tok_piece *piece; /* by id */
    size_t n;                      /* 1..TOK_IDS_MAX */
    bool unigram, byte_fallback;
    bool skip_unused;        /* unused pieces are never made, only decoded */
    int32_t unk_id;          /* -1: none */
    bool space_prefix;       /* a text begins with a blank, and what follows a special token */
    bool prefix_once;        /* only the text does */
    bool squeeze;            /* blanks at the ends go, of several in a row one stays */
    bool no_escape;          /* blanks stay blanks */
    const uint8_t *charsmap; /* the compiled normaliser */
    size_t charsmap_bytes;   /* 0: none */
    int32_t before, after;   /* ids around a text; -1: none */
};

/* Fills *t, all but its hash. On an error tokenizer_free(). ERR_BAD_FILE: at->eb says what. */
enum err tok_pieces_build(struct tok_at *at, const struct tok_pieces *p, struct tokenizer *t);

/* Tokens found in a text before the model sees it. */
bool tok_piece_is_added(int type);
/* Puts one into the vocabulary, and into the added tokens, which have room for it, when it is one.
 * *added_bytes counts those. */
enum err tok_piece_add(struct tok_at *at, struct tokenizer *t, uint32_t id, const char *s, size_t n,
                       int type, size_t *added_bytes);
/* Normaliser, pre-tokeniser and decoder from the text of a tokenizer.json that has only them. */
enum err tok_read_steps(struct tok_at *at, struct tokenizer *t, const struct buf *json);

#endif
