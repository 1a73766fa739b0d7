/* tok_wordpiece: the WordPiece model (BERT): a word is cut from its start into the longest tokens
 * that are there, all but the first written behind a prefix ("##"). A word with a place where no
 * token fits, or with too many characters, is one unknown token. */
#ifndef BATON_TEXT_TOK_WORDPIECE_H
#define BATON_TEXT_TOK_WORDPIECE_H

#include "common/text/tok_json.h"
#include "common/text/tok_vocab.h"
#include "common/text/tokenizer.h"

enum { TOK_WORD_CHARS_MAX = 1000, TOK_CONTINUING_BYTES_MAX = 16 };

struct tok_wordpiece {
    const struct tok_vocab *vocab; /* borrowed */
    int32_t unk_id;
    uint32_t word_chars_max;
    char prefix[TOK_CONTINUING_BYTES_MAX + 1];
    size_t prefix_bytes;
    size_t piece_bytes_max; /* of the vocabulary's longest token */
};

/* o: the "model" member; vocab holds its tokens. */
enum err tok_wordpiece_read(struct tok_at *at, const struct json_value *o,
                            const struct tok_vocab *vocab, struct tok_wordpiece *out);
/* The same by hand. unk_id: of the vocabulary. */
void tok_wordpiece_init(struct tok_wordpiece *w, const struct tok_vocab *vocab, int32_t unk_id);

/* Appends the ids of one word; ERR_TOO_LARGE once *out would pass n_ids_max. */
enum err tok_wordpiece_word(const struct tok_wordpiece *w, const char *s, size_t n,
                            size_t n_ids_max, struct id_list *out);

#endif
