/* tok_added: the "added_tokens" member: tokens that are found in the text before it is cut, some in
 * the text as it came, some in the normalised text. */
#ifndef BATON_TEXT_TOK_ADDED_H
#define BATON_TEXT_TOK_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/text/tok_json.h"
#include "common/text/tok_normalize.h"
#include "common/text/tok_vocab.h"

enum { TOK_ADDED_MAX = 1 << 16, TOK_ADDED_BYTES_MAX = 1 << 22 };

struct tok_added_token {
    const char *s; /* borrowed from the JSON tree until tok_added_build() is done */
    size_t n;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
};

struct tok_trie_node {
    int32_t child, sibling; /* -1 none */
    int32_t token;          /* index of the token that ends here, -1 none */
    unsigned char byte;
};
struct tok_trie {
    struct tok_trie_node *node;
    size_t n_nodes, cap;
    int32_t root[256]; /* first node by first byte, -1 none */
    int first_byte;    /* the only first byte of all tokens; -1 when there are several */
};

struct tok_added {
    struct tok_added_token *token;
    size_t n_tokens;
    struct tok_trie raw, norm; /* searched before and after normalising */
    struct tok_trie special;   /* the special ones of both, as written */
};

/* Reads the array (o NULL: none). A content given twice counts once. */
enum err tok_added_read(struct tok_at *at, const struct json_value *o, struct tok_added *out);
/* Once ids are settled: builds what is searched. */
enum err tok_added_build(struct tok_at *at, struct tok_added *a, const struct tok_norm *norm);
void tok_added_fini(struct tok_added *a);

/* tokenizer_mark(). */
bool tok_added_mark(const struct tok_added *a, const char *s, size_t n, struct buf *out);

/* Cuts s[0..n) into tokens and the text between; the leftmost token wins, and of those that start
 * at one place the longest. Zero it, set the first four. */
struct tok_seg_iter {
    const struct tok_added *a;
    const struct tok_trie *trie;
    const char *s;
    size_t n;
    size_t search, done; /* where to look next; what has been handed out */
    bool has_token;      /* the token behind the text just handed out */
    size_t token_start, token_end;
    int32_t token_id;
};
struct tok_seg {
    size_t start, end;
    int32_t id; /* -1: text */
};
bool tok_seg_next(struct tok_seg_iter *it, struct tok_seg *seg);

#endif
