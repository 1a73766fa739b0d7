/* kv_cache: the pool of KV blocks: reference counts and the hash chain for prefix reuse. Knows
 * nothing of sequences' state or roles.
 *
 * Memory: [n_layers][n_blocks] x { K [n_kv_heads][block_tokens] rows of kv_row_bytes(), V the same,
 * unless values are in the keys }; allocated and touched once. A block of a layer starts on a
 * 64-byte boundary, so between two blocks there may be padding. Thread: the engine thread;
 * kv_block_ptr() any thread. */
#ifndef BATON_ENGINE_KV_CACHE_H
#define BATON_ENGINE_KV_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/engine/engine.h"
#include "common/engine/mem.h"
#include "common/engine/prefix_log.h"

enum { KV_BLOCK_TOKENS_MAX = 128 };

struct kv_cache;

struct kv_shape {
    int n_layers, n_kv_heads, head_dim, block_tokens, n_blocks;
    enum dtype dtype;
    int values_in_keys; /* V is the first so many values of K and has no rows; 0: it has */
};

enum err kv_cache_create(struct kv_cache **out, const struct kv_shape *shape, struct errbuf *eb);
/* The same in pages of that kind (mem.h). */
enum err kv_cache_create_in(struct kv_cache **out, const struct kv_shape *shape,
                            enum mem_pages pages, struct errbuf *eb);
enum mem_pages kv_cache_pages(const struct kv_cache *kv); /* what they became */
void kv_cache_destroy(struct kv_cache **kv);
const struct kv_shape *kv_cache_shape(const struct kv_cache *kv);
uint8_t *kv_block_ptr(const struct kv_cache *kv, int layer, int32_t block);
/* Bytes of one layer of one block, and from one block of a layer to the next; 0 on overflow. */
size_t kv_block_bytes(const struct kv_shape *shape);
size_t kv_block_stride(const struct kv_shape *shape);

/* ---- blocks. A block is free, or in use (referenced), or cached: unreferenced, but published and
 * still findable. Cached blocks count as free; the one released longest ago is forgotten first. */
int kv_blocks_free(const struct kv_cache *kv);
/* All n or none: false when fewer are free. Each block comes with one reference, unpublished, its
 * old bytes still inside. */
bool kv_blocks_alloc(struct kv_cache *kv, int32_t *blocks, int n);
void kv_block_ref(struct kv_cache *kv, int32_t block);
/* Drops one reference on each, last block first, so that of one chain the tail is forgotten before
 * its head: a block whose predecessor is gone cannot be found. */
void kv_blocks_unref(struct kv_cache *kv, const int32_t *blocks, int n);
int kv_block_refs(const struct kv_cache *kv, int32_t block);

/* ---- prefix reuse. A full block is found by (what came before it, salt, its tokens). What came
 * before is a chain mark: 0 at the start of a sequence, then a number that no other content in this
 * process ever has. The hash (SipHash, random key) only finds candidates; mark, salt and tokens are
 * compared, so a collision never gives foreign KV. */

/* Where a sequence stands in the cache: behind `depth` blocks that are published or have a twin. */
struct kv_chain {
    uint64_t mark;
    uint64_t digest; /* of these blocks, for other processes (proto/prefix_msg.h); at depth 0 the
                        seed */
    uint32_t depth;
};

/* Looks for the first n_blocks blocks of ids (block_tokens each), takes one reference on each block
 * found, writes them to blocks[] and where that is to *chain, in which the caller gives the seed of
 * digests (one seed for each salt). Returns how many, from the start without a gap. */
int kv_prefix_lookup(struct kv_cache *kv, uint64_t salt, const int32_t *ids, int n_blocks,
                     int32_t *blocks, struct kv_chain *chain);

/* Block (referenced by the caller, full, never written again) holds ids[0..block_tokens) after
 * *chain. Moves *chain past it. When the same content is published already the block stays private
 * and *chain follows the published twin. */
void kv_prefix_publish(struct kv_cache *kv, uint64_t salt, struct kv_chain *chain,
                       const int32_t *ids, int32_t block);

/* What lies in the cache and comes and goes is told there from now on; lent, must outlive the
 * cache. NULL: nowhere, as at first. */
void kv_prefix_tell(struct kv_cache *kv, struct prefix_log *log);

/* Walks every list and count; false when they contradict each other. For tests. */
bool kv_cache_check(const struct kv_cache *kv);

#endif
