/* tok_pre_names: the pre-tokenisers that GGUF files know by name (tokenizer.ggml.pre): lists of
 * patterns, each applied inside the pieces that the one before it left. Source: the names and
 * expressions of llama.cpp's vocabulary loader, which took them from the models' tokenizer.json. */
#ifndef BATON_TEXT_TOK_PRE_NAMES_H
#define BATON_TEXT_TOK_PRE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { TOK_PRE_PATTERNS_MAX = 6 };

struct tok_pre {
    const char *const *patterns; /* NULL-terminated */
    bool ignore_merges;          /* a word that is a token stays whole */
    bool add_bos;                /* where the file does not say */
};

/* NULL: no such name. */
const struct tok_pre *tok_pre_find(const char *name, size_t n);
/* The name that is spelled most like it; *n: its length. Not terminated there. */
const char *tok_pre_nearest(const char *name, size_t *n);

#endif
