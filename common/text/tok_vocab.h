/* tok_vocab: the tokens by id and by written form; model vocabulary and added tokens in one store,
 * told apart by flags. */
#ifndef BATON_TEXT_TOK_VOCAB_H
#define BATON_TEXT_TOK_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "common/base/buf.h"
#include "proto/err.h"

enum {
    TOK_IN_MODEL = 1, /* the model can make it */
    TOK_ADDED = 2,    /* found in the text before the model sees it */
    TOK_SPECIAL = 4,  /* left out when decoding with skip_special */
};

struct tok_vocab {
    struct buf text;     /* written forms, one behind the other */
    uint32_t *off, *len; /* [n_ids] into text */
    uint8_t *flags;      /* [n_ids]; 0: no token has this id */
    uint32_t n_ids;      /* highest id + 1 */
    int32_t *slot;       /* [slot_mask + 1] ids by hash of the written form; -1 free */
    uint32_t slot_mask;
};

enum err tok_vocab_init(struct tok_vocab *v, uint32_t n_ids, uint32_t n_tokens);
void tok_vocab_fini(struct tok_vocab *v);
/* id < n_ids, free until now; the text is not there yet. */
enum err tok_vocab_add(struct tok_vocab *v, uint32_t id, const char *s, size_t n, uint8_t flags);

/* The id of a written form, -1 when there is none with one of these flags. */
int32_t tok_vocab_find(const struct tok_vocab *v, const char *s, size_t n, uint8_t any_of);

static inline const char *tok_vocab_text(const struct tok_vocab *v, uint32_t id, size_t *n) {
    *n = v->len[id];
    return v->text.data + v->off[id];
}
static inline bool tok_vocab_has(const struct tok_vocab *v, int32_t id) {
    return id >= 0 && (uint32_t)id < v->n_ids && v->flags[id] != 0;
}

static inline uint64_t tok_hash(const char *s, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15u, w;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, s, n);
    h = (h ^ w) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

#endif
