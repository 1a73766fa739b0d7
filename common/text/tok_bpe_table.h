/* tok_bpe_table: the merge table's hash, shared by its reader and its user. Open addressing with
 * linear probing, at most two thirds full. */
#ifndef BATON_TEXT_TOK_BPE_TABLE_H
#define BATON_TEXT_TOK_BPE_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include "common/text/tok_bpe.h"

#define TOK_NO_MERGE UINT64_MAX /* no id is that high */

static inline uint32_t tok_merge_slot(const struct tok_bpe *b, uint64_t key) {
    uint64_t h = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32) & b->merge_mask;
}

static inline const struct tok_merge *tok_merge_find(const struct tok_bpe *b, uint32_t left,
                                                     uint32_t right) {
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t k = tok_merge_slot(b, key);
    for (; b->merge[k].key != TOK_NO_MERGE; k = (k + 1) & b->merge_mask) {
        if (b->merge[k].key == key) return &b->merge[k];
    }
    return NULL;
}

#endif
