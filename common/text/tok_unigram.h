/* tok_unigram: the Unigram model of SentencePiece (XLM-RoBERTa, T5): of all ways to put a word
 * together from pieces, the one whose scores have the greatest sum. A character that is no piece is
 * unknown, at ten less than the worst score; unknown characters in a row are one token, or, with
 * byte fallback, their bytes are tokens. Source: Kudo 2018, and what the HuggingFace library does
 * where ways are equal: the shorter piece that came first stays. */
#ifndef BATON_TEXT_TOK_UNIGRAM_H
#define BATON_TEXT_TOK_UNIGRAM_H

#include "common/text/tok_json.h"
#include "common/text/tok_vocab.h"
#include "common/text/tokenizer.h"

struct tok_unigram {
    const struct tok_vocab *vocab; /* borrowed */
    double *score;                 /* [vocab->n_ids] */
    double unk_score;
    int32_t unk_id; /* -1: an unknown character is an error of the text */
    bool byte_fallback;
    int32_t byte_id[256]; /* of "<0x41>"; -1 none */
    size_t piece_bytes_max;
};

/* o: the "model" member, of whose `vocab` the vocabulary was made. On an error tok_unigram_fini().
 */
enum err tok_unigram_read(struct tok_at *at, const struct json_value *o,
                          const struct tok_vocab *vocab, struct tok_unigram *out);
/* The same by hand: takes score, [vocab->n_ids]; worst: the least of those that count.
 * ERR_BAD_FILE: neither unk_id nor all byte tokens. On an error tok_unigram_fini(). */
enum err tok_unigram_begin(struct tok_unigram *u, const struct tok_vocab *vocab, double *score,
                           double worst, int32_t unk_id, bool byte_fallback);
void tok_unigram_fini(struct tok_unigram *u);

/* Scratch of one encode call; zeros at first. */
struct tok_unigram_run {
    struct tok_unigram_node *node; /* [cap] */
    size_t cap;
};
void tok_unigram_run_fini(struct tok_unigram_run *run);

/* Appends the ids of one word; ERR_TOO_LARGE once *out would pass n_ids_max. */
enum err tok_unigram_word(const struct tok_unigram *u, struct tok_unigram_run *run, const char *s,
                          size_t n, size_t n_ids_max, struct id_list *out);

#endif
