/* guide_vocab: the bytes of every token, as a trie in the order of a depth-first walk. Private to
 * common/guide.
 *
 * Special tokens are no text: they stand in the trie under a path that no UTF-8 contains, 0xFF and
 * seven base-8 digits 0xF5..0xFC of the id. Left out: end-of-sequence ids, tokens without bytes,
 * tokens that hold a byte that UTF-8 never does. */
#ifndef BATON_GUIDE_VOCAB_H
#define BATON_GUIDE_VOCAB_H

#include "common/guide/guide.h"

enum { VOCAB_TOKEN_BYTES_MAX = 250, VOCAB_PATH_BYTES = 8 };

struct vocab_special {
    uint32_t off, len; /* its text, in bytes */
    int32_t id;
};

struct guide_vocab {
    int32_t n_ids;  /* masks have so many bits */
    uint8_t *bytes; /* paths of all tokens, one behind the other */
    uint32_t *off;  /* [n_ids + 1] into bytes */
    int token_bytes_max;
    int32_t eos[16];
    int n_eos;
    int compile_ms, step_ms; /* bounds of guides */

    uint32_t n_nodes; /* node 0 is the root */
    uint8_t *byte;    /* [n_nodes] on the edge to the node */
    uint8_t *depth;   /* [n_nodes] root 0 */
    uint32_t *end;    /* [n_nodes] first node that is not below this one */
    uint32_t
        *tok_first; /* [n_nodes + 1] tokens of node v: toks[tok_first[v] .. tok_first[v + 1]) */
    int32_t *toks;

    uint8_t *special_text;
    struct vocab_special *specials;
    size_t n_specials, cap_specials;
};

/* The special token whose written form begins the text p[0..n): the longest one; -1: none. */
int32_t guide_vocab_special(const struct guide_vocab *v, const char *p, size_t n, size_t *len);

#endif
