/* tok_vocab: see the header. Open addressing with linear probing, at most half full. */
#include "common/text/tok_vocab.h"

#include <stdlib.h>

enum err tok_vocab_init(struct tok_vocab *v, uint32_t n_ids, uint32_t n_tokens) {
    size_t n_slots = 16;
    *v = (struct tok_vocab){.n_ids = n_ids};
    while (n_slots < (size_t)n_tokens * 2) n_slots *= 2;
    v->slot_mask = (uint32_t)(n_slots - 1);
    v->off = calloc(n_ids + 1u, sizeof *v->off);
    v->len = calloc(n_ids + 1u, sizeof *v->len);
    v->flags = calloc(n_ids + 1u, 1);
    v->slot = malloc(n_slots * sizeof *v->slot);
    buf_append(&v->text, "", 0);
    if (v->off == NULL || v->len == NULL || v->flags == NULL || v->slot == NULL) {
        return ERR_NO_MEMORY;
    }
    memset(v->slot, 0xFF, n_slots * sizeof *v->slot);
    return v->text.failed ? ERR_NO_MEMORY : ERR_OK;
}

void tok_vocab_fini(struct tok_vocab *v) {
    buf_free(&v->text);
    free(v->off);
    free(v->len);
    free(v->flags);
    free(v->slot);
    *v = (struct tok_vocab){0};
}

/* The slot of the written form, or the free one where it would go. */
static uint32_t probe(const struct tok_vocab *v, const char *s, size_t n) {
    uint32_t k = (uint32_t)tok_hash(s, n) & v->slot_mask;
    for (; v->slot[k] >= 0; k = (k + 1) & v->slot_mask) {
        uint32_t id = (uint32_t)v->slot[k];
        if (v->len[id] == n && memcmp(v->text.data + v->off[id], s, n) == 0) break;
    }
    return k;
}

enum err tok_vocab_add(struct tok_vocab *v, uint32_t id, const char *s, size_t n, uint8_t flags) {
    uint32_t k = probe(v, s, n);
    v->off[id] = (uint32_t)v->text.len;
    v->len[id] = (uint32_t)n;
    v->flags[id] = flags;
    buf_append(&v->text, s, n);
    if (v->text.failed) return ERR_NO_MEMORY;
    v->slot[k] = (int32_t)id;
    return ERR_OK;
}

int32_t tok_vocab_find(const struct tok_vocab *v, const char *s, size_t n, uint8_t any_of) {
    int32_t id = v->slot[probe(v, s, n)];
    return id >= 0 && (v->flags[id] & any_of) != 0 ? id : -1;
}
