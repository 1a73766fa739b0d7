/* tok_bpe: the BPE model: which ids a word becomes. A word starts as its characters (or bytes);
 * again and again the neighbouring pair of the lowest rank, the leftmost of equals, is joined. */
#ifndef BATON_TEXT_TOK_BPE_H
#define BATON_TEXT_TOK_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/text/tok_json.h"
#include "common/text/tok_vocab.h"
#include "common/text/tokenizer.h"

enum { TOK_MERGES_MAX = 1 << 21 };

struct tok_merge {
    uint64_t key; /* left id << 32 | right id; TOK_NO_MERGE: free slot */
    uint32_t rank, joined;
};

struct tok_bpe {
    const struct tok_vocab *vocab; /* borrowed */
    struct tok_merge *merge;       /* [merge_mask + 1], by hash of key */
    uint32_t merge_mask;
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    /* No merge joins a character and a following U+2581, so a text can be cut there and encoded in
     * short words although the file asks for no cut. */
    bool cut_at_metaspace;
    int32_t unk_id;           /* -1: what has no token is dropped */
    int32_t byte_id[256];     /* byte_level: of the byte's character; else of ASCII; -1 none */
    int32_t fallback_id[256]; /* of "<0x41>"; -1 none */
};

/* o: the "model" member; vocab holds its tokens and the added ones. On an error tok_bpe_fini(). */
enum err tok_bpe_read(struct tok_at *at, const struct json_value *o, const struct tok_vocab *vocab,
                      bool byte_level, struct tok_bpe *out);
void tok_bpe_fini(struct tok_bpe *b);

/* The same by hand: set vocab, byte_level and the options, begin with room for n_merges, add them.
 * Of equal ranks the leftmost pair of a text is joined first. */
enum err tok_bpe_begin(struct tok_bpe *b, size_t n_merges);
void tok_bpe_merge(struct tok_bpe *b, uint32_t left, uint32_t right, uint32_t rank,
                   uint32_t joined);

/* Scratch of one encode call: a cache of words and the arrays of the merge loop. */
struct tok_bpe_run {
    struct tok_word *cache; /* [cache_mask + 1] or NULL */
    uint32_t cache_mask;
    uint32_t *id, *rank, *joined, *prev, *next; /* [cap]; of the symbols of one word */
    uint64_t *heap;
    size_t cap, heap_cap;
};
/* text_bytes: of the whole text, to size the cache. Works without a cache when memory is short. */
void tok_bpe_run_init(struct tok_bpe_run *run, size_t text_bytes);
void tok_bpe_run_fini(struct tok_bpe_run *run);

/* Appends the ids of one word; ERR_TOO_LARGE once *out would pass n_ids_max. */
enum err tok_bpe_word(const struct tok_bpe *b, struct tok_bpe_run *run, const char *s, size_t n,
                      size_t n_ids_max, struct id_list *out);

#endif
