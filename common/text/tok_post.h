/* tok_post: the "post_processor" member: the special ids around a text, and around a pair. */
#ifndef BATON_TEXT_TOK_POST_H
#define BATON_TEXT_TOK_POST_H

#include "common/text/tok_json.h"
#include "common/text/tok_vocab.h"
#include "common/text/tokenizer.h"

struct tok_post {
    struct id_list before, after;
    /* A pair: those before the first text, between the two, behind the second. */
    bool pairs; /* false: the file has no form for one, or one of another order */
    struct id_list pair_before, pair_between, pair_after;
    size_t n_between_first; /* of those between: have the token type of the first text */
};

/* o NULL: nothing is added. Ids must be in the vocabulary. On an error tok_post_fini(). */
enum err tok_post_read(struct tok_at *at, const struct json_value *o, const struct tok_vocab *vocab,
                       struct tok_post *out);
void tok_post_fini(struct tok_post *p);

/* BERT's form: CLS a SEP (b SEP); twice: RoBERTa's, with two SEP between. */
enum err tok_post_bert(struct tok_post *p, int32_t cls, int32_t sep, bool twice);

#endif
