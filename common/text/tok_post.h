/* tok_post: the "post_processor" member: the special ids around a text. */
#ifndef BATON_TEXT_TOK_POST_H
#define BATON_TEXT_TOK_POST_H

#include "common/text/tok_json.h"
#include "common/text/tok_vocab.h"
#include "common/text/tokenizer.h"

struct tok_post {
    struct id_list before, after;
};

/* o NULL: nothing is added. Ids must be in the vocabulary. On an error tok_post_fini(). */
enum err tok_post_read(struct tok_at *at, const struct json_value *o, const struct tok_vocab *vocab,
                       struct tok_post *out);
void tok_post_fini(struct tok_post *p);

#endif
