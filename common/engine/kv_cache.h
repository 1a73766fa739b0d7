/* kv_cache: the pool of KV blocks: reference counts and the hash chain for prefix reuse. Knows nothing of sequences' state or roles.
 *
 * Memory: f32 or bf16 [n_layers][n_blocks] x { K [n_kv_heads][block_tokens][head_dim], V the same }; allocated and touched once.
 * Thread: the engine thread; kv_block_ptr() any thread. */
#ifndef BATON_ENGINE_KV_CACHE_H
#define BATON_ENGINE_KV_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/engine/engine.h"

struct kv_cache;

struct kv_shape {
    int n_layers, n_kv_heads, head_dim, block_tokens, n_blocks;
    enum dtype dtype;
};

enum err kv_cache_create(struct kv_cache **out, const struct kv_shape *shape, struct errbuf *eb);
void kv_cache_destroy(struct kv_cache **kv);
const struct kv_shape *kv_cache_shape(const struct kv_cache *kv);
uint8_t *kv_block_ptr(const struct kv_cache *kv, int layer, int32_t block);
size_t kv_block_bytes(const struct kv_shape *shape);  /* one layer of one block; 0 when the product overflows */

#endif
