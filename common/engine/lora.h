/* lora: a low-rank adapter of a loaded model: y = W x + scale * B (A x) in the linear layers it
 * adapts. Read from a PEFT directory (adapter_config.json, adapter_model.safetensors) or a GGUF
 * file of llama.cpp's kind (lora_file.h), checked against the base model, packed into panels of the
 * model's kernels (f32).
 *
 * Files are read, never mapped: an operator may replace them while we run. What a safetensors file
 * holds must be exactly what the config speaks of; a GGUF file says itself which layers it changes:
 * a tensor nobody asked for is refused as a missing one is.
 *
 * Identity: `hash` is SHA-256 over the base model's conf_hash and, per adapted layer, scale, types,
 * shapes and bytes. Two instances of the same weights that agree on it compute the same; of those
 * of others, which link where they may (proto/kv_fit.h), an adapter has the same hash too.
 *
 * Ownership: reference counted; immutable after lora_open(). Thread: any; lora_open() takes
 * seconds for a large adapter. */
#ifndef BATON_ENGINE_LORA_H
#define BATON_ENGINE_LORA_H

#include <stdatomic.h>
#include "common/engine/engine.h"
#include "common/engine/lora_conf.h"

enum { LORA_RANK_MAX = 64, LORA_HASH_BYTES = 32 };

struct lora_pair {
    int rank; /* 0: this layer is not adapted */
    float scale;
    uint8_t *a; /* panels of A, f32 [rank][k] */
    uint8_t *b; /* panels of B, f32 [n][rank] */
};

struct lora {
    _Atomic unsigned refs;
    uint8_t hash[LORA_HASH_BYTES];
    int rank; /* the largest */
    size_t bytes;
    struct lora_pair *pairs; /* [n_layers][LORA_MODULES] */
    void *memory;
};

/* path: the adapter's folder, which without an adapter_config.json may have one .gguf file, or a
 * .gguf file; base: the loaded model. rank_max: 1..LORA_RANK_MAX. *out has one
 * reference. ERR_NOT_FOUND: no such files. ERR_TOO_LARGE: a rank over rank_max. ERR_BAD_FILE:
 * everything else that is wrong with them. eb names file, member or tensor, never the folder. */
enum err lora_open(struct lora **out, const char *path, const struct model_info *base, int rank_max,
                   struct errbuf *eb);

/* The same from a config's bytes, NULL: the file is GGUF, and a file that `read` reads: n bytes at
 * offset, false when they are not to be had. name: what messages call it. */
struct lora_source {
    const char *name;
    bool (*read)(void *arg, uint64_t offset, void *dst, size_t n);
    void *arg;
    uint64_t bytes;
};
enum err lora_read(struct lora **out, const char *config, size_t n_config,
                   const struct lora_source *file, const struct model_info *base, int rank_max,
                   struct errbuf *eb);

struct lora *lora_ref(struct lora *l); /* NULL is fine, and returned */
void lora_unref(struct lora **l);      /* the last one frees; NULL is fine */
unsigned lora_refs(const struct lora *l);

static inline const struct lora_pair *lora_pair(const struct lora *l, int layer,
                                                enum lora_module m) {
    return &l->pairs[(size_t)layer * LORA_MODULES + (size_t)m];
}

#endif
