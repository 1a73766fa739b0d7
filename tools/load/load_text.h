/* load_text: prompts of about so many tokens, of common English words. The same request gives the
 * same text, and two that share blocks begin alike. Pure. */
#ifndef BATON_TOOLS_LOAD_TEXT_H
#define BATON_TOOLS_LOAD_TEXT_H

#include <stdint.h>
#include "common/base/buf.h"
#include "tools/load/load_source.h"

/* What the server's tokenizer makes of our words: tokens = fixed + per_word * words. */
struct load_tokens {
    double fixed, per_word;
};

/* Appends n words drawn by `seed`, each behind a space but the first of an empty buffer. */
void load_text_words(struct buf *out, uint64_t seed, size_t n);
/* Appends the prompt of a request; at least one word. */
void load_text_prompt(struct buf *out, const struct load_ask *ask, const struct load_tokens *t,
                      uint64_t seed);
/* The line through two measured prompts; false: they tell nothing (no more tokens for more words).
 */
bool load_tokens_fit(struct load_tokens *out, size_t words1, int64_t tokens1, size_t words2,
                     int64_t tokens2);

#endif
