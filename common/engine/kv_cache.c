/* kv_cache: one mapping for the K and V of every block, and small arrays beside it that say who
 * uses what.
 *
 * Every block is on at most one list: the free list (nothing to find in it), the cached list
 * (unreferenced but published, least recently used first), or none (in use). Published blocks hang
 * in a hash table besides. All lists are arrays of block numbers made at creation, so nothing here
 * allocates or fails later. */
#include "common/engine/kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/entropy.h"
#include "common/engine/kernels.h"
#include "common/engine/siphash.h"

enum { ALIGN = 64, NONE = -1 };

struct block {
    uint32_t refs;
    bool published;
    int32_t prev, next; /* on the free or the cached list */
    int32_t hash_next;  /* next in the bucket */
    uint32_t bucket;
    uint64_t mark;   /* chain mark after this block, 0: unpublished */
    uint64_t before; /* chain mark before it */
    uint64_t salt;
    uint64_t digest; /* of the chain up to this block */
    uint32_t depth;  /* blocks in it */
};

struct list {
    int32_t head, tail;
    int n;
};

struct kv_cache {
    struct kv_shape shape;
    size_t stride;
    uint8_t *map; /* == mem.p */
    struct mem mem;
    struct block *blocks; /* [n_blocks] */
    int32_t *tokens;      /* [n_blocks][block_tokens] of published blocks */
    int32_t *buckets;     /* [n_buckets], a power of two */
    uint32_t n_buckets;
    struct list free, cached;
    uint64_t last_mark;
    struct prefix_log *log; /* NULL: nobody is told */
    uint8_t key[16];
};

/* ---- shape */

size_t kv_block_bytes(const struct kv_shape *s) {
    size_t n = s->values_in_keys > 0 ? 1 : 2;
    if (s->values_in_keys < 0 || s->values_in_keys > s->head_dim || s->n_kv_heads < 1 ||
        s->block_tokens < 1 || s->head_dim < 1)
        return 0;
    if (__builtin_mul_overflow(n, (size_t)s->n_kv_heads, &n) ||
        __builtin_mul_overflow(n, (size_t)s->block_tokens, &n) ||
        __builtin_mul_overflow(n, kv_row_bytes(s->head_dim, s->dtype), &n))
        return 0;
    return n;
}

size_t kv_block_stride(const struct kv_shape *s) {
    size_t n = kv_block_bytes(s);
    if (n == 0 || n > SIZE_MAX - ALIGN) return 0;
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

const struct kv_shape *kv_cache_shape(const struct kv_cache *kv) {
    return &kv->shape;
}

uint8_t *kv_block_ptr(const struct kv_cache *kv, int layer, int32_t block) {
    return kv->map + ((size_t)layer * (size_t)kv->shape.n_blocks + (size_t)block) * kv->stride;
}

/* ---- lists */

static void list_append(struct kv_cache *kv, struct list *l, int32_t b) {
    kv->blocks[b].prev = l->tail;
    kv->blocks[b].next = NONE;
    if (l->tail == NONE)
        l->head = b;
    else
        kv->blocks[l->tail].next = b;
    l->tail = b;
    l->n++;
}

static void list_remove(struct kv_cache *kv, struct list *l, int32_t b) {
    struct block *blk = &kv->blocks[b];
    if (blk->prev == NONE)
        l->head = blk->next;
    else
        kv->blocks[blk->prev].next = blk->next;
    if (blk->next == NONE)
        l->tail = blk->prev;
    else
        kv->blocks[blk->next].prev = blk->prev;
    blk->prev = blk->next = NONE;
    l->n--;
}

/* ---- life */

static enum err shape_check(const struct kv_shape *s, size_t *map_bytes, struct errbuf *eb) {
    if (s->block_tokens < 1 || s->block_tokens > KV_BLOCK_TOKENS_MAX)
        return err_set(eb, ERR_INVALID, "KV block size must be from 1 to %d tokens, got %d",
                       KV_BLOCK_TOKENS_MAX, s->block_tokens);
    if (s->n_layers < 1 || s->n_blocks < 1)
        return err_set(eb, ERR_INVALID, "KV pool needs a layer and a block, got %d and %d",
                       s->n_layers, s->n_blocks);
    size_t n = kv_block_stride(s);
    if (n == 0 || __builtin_mul_overflow(n, (size_t)s->n_layers, &n) ||
        __builtin_mul_overflow(n, (size_t)s->n_blocks, &n) || n > PTRDIFF_MAX)
        return err_set(eb, ERR_INVALID,
                       "KV pool of %d layers, %d blocks of %d tokens, %d heads of %d is no size",
                       s->n_layers, s->n_blocks, s->block_tokens, s->n_kv_heads, s->head_dim);
    *map_bytes = n;
    return ERR_OK;
}

enum err kv_cache_create_in(struct kv_cache **out, const struct kv_shape *shape,
                            enum mem_pages pages, struct errbuf *eb) {
    *out = NULL;
    size_t map_bytes = 0;
    enum err e = shape_check(shape, &map_bytes, eb);
    if (e != ERR_OK) return e;
    struct kv_cache *kv = calloc(1, sizeof(*kv));
    if (kv == NULL) return err_set(eb, ERR_NO_MEMORY, "no memory for the KV pool");
    size_t n = (size_t)shape->n_blocks;
    kv->shape = *shape;
    kv->stride = kv_block_stride(shape);
    for (kv->n_buckets = 1; kv->n_buckets < n && kv->n_buckets < 1u << 31;) kv->n_buckets *= 2;
    kv->blocks = calloc(n, sizeof(*kv->blocks));
    kv->tokens = calloc(n, sizeof(*kv->tokens) * (size_t)shape->block_tokens);
    kv->buckets = calloc(kv->n_buckets, sizeof(*kv->buckets));
    (void)mem_open(&kv->mem, map_bytes, pages, true);
    kv->map = kv->mem.p;
    if (kv->blocks == NULL || kv->tokens == NULL || kv->buckets == NULL || kv->map == NULL) {
        e = err_set(eb, ERR_NO_MEMORY, "no memory for a KV pool of %zu bytes", map_bytes);
        goto fail;
    }
    if (!entropy_get(kv->key, sizeof(kv->key))) {
        e = err_set(eb, ERR_INTERNAL, "no random key for the prefix cache");
        goto fail;
    }
    for (uint32_t i = 0; i < kv->n_buckets; i++) kv->buckets[i] = NONE;
    kv->free = kv->cached = (struct list){NONE, NONE, 0};
    for (int32_t b = 0; b < shape->n_blocks; b++) list_append(kv, &kv->free, b);
    *out = kv;
    return ERR_OK;
fail:
    kv_cache_destroy(&kv);
    return e;
}

enum err kv_cache_create(struct kv_cache **out, const struct kv_shape *shape, struct errbuf *eb) {
    return kv_cache_create_in(out, shape, MEM_TRANSPARENT, eb);
}

enum mem_pages kv_cache_pages(const struct kv_cache *kv) {
    return kv->mem.pages;
}

void kv_cache_destroy(struct kv_cache **kv_ptr) {
    struct kv_cache *kv = *kv_ptr;
    if (kv == NULL) return;
    mem_close(&kv->mem);
    free(kv->blocks);
    free(kv->tokens);
    free(kv->buckets);
    free(kv);
    *kv_ptr = NULL;
}

/* ---- blocks */

static void unpublish(struct kv_cache *kv, int32_t b) {
    int32_t *at = &kv->buckets[kv->blocks[b].bucket];
    while (*at != b) at = &kv->blocks[*at].hash_next;
    *at = kv->blocks[b].hash_next;
    if (prefix_digest_counts(kv->blocks[b].depth)) prefix_log_drop(kv->log, kv->blocks[b].digest);
    kv->blocks[b].published = false;
    kv->blocks[b].mark = 0;
}

int kv_blocks_free(const struct kv_cache *kv) {
    return kv->free.n + kv->cached.n;
}

bool kv_blocks_alloc(struct kv_cache *kv, int32_t *blocks, int n) {
    if (n > kv_blocks_free(kv)) return false;
    for (int i = 0; i < n; i++) {
        int32_t b = kv->free.head;
        if (b != NONE) {
            list_remove(kv, &kv->free, b);
        } else {
            b = kv->cached.head;
            list_remove(kv, &kv->cached, b);
            unpublish(kv, b);
        }
        kv->blocks[b].refs = 1;
        blocks[i] = b;
    }
    return true;
}

void kv_block_ref(struct kv_cache *kv, int32_t block) {
    struct block *b = &kv->blocks[block];
    if (b->refs++ == 0) list_remove(kv, b->published ? &kv->cached : &kv->free, block);
}

void kv_blocks_unref(struct kv_cache *kv, const int32_t *blocks, int n) {
    for (int i = n - 1; i >= 0; i--) {
        struct block *b = &kv->blocks[blocks[i]];
        if (--b->refs == 0) list_append(kv, b->published ? &kv->cached : &kv->free, blocks[i]);
    }
}

int kv_block_refs(const struct kv_cache *kv, int32_t block) {
    return (int)kv->blocks[block].refs;
}

/* ---- prefix reuse */

static uint32_t bucket_of(const struct kv_cache *kv, uint64_t before, uint64_t salt,
                          const int32_t *ids) {
    uint8_t bytes[2 * sizeof(uint64_t) + KV_BLOCK_TOKENS_MAX * sizeof(int32_t)];
    size_t n = (size_t)kv->shape.block_tokens * sizeof(int32_t);
    memcpy(bytes, &before, sizeof(before));
    memcpy(bytes + sizeof(before), &salt, sizeof(salt));
    memcpy(bytes + 2 * sizeof(uint64_t), ids, n);
    return (uint32_t)siphash24(kv->key, bytes, 2 * sizeof(uint64_t) + n) & (kv->n_buckets - 1);
}

static int32_t *tokens_of(const struct kv_cache *kv, int32_t block) {
    return kv->tokens + (size_t)block * (size_t)kv->shape.block_tokens;
}

static int32_t find(const struct kv_cache *kv, uint32_t bucket, uint64_t before, uint64_t salt,
                    const int32_t *ids) {
    size_t n = (size_t)kv->shape.block_tokens * sizeof(int32_t);
    for (int32_t b = kv->buckets[bucket]; b != NONE; b = kv->blocks[b].hash_next)
        if (kv->blocks[b].before == before && kv->blocks[b].salt == salt &&
            memcmp(tokens_of(kv, b), ids, n) == 0)
            return b;
    return NONE;
}

int kv_prefix_lookup(struct kv_cache *kv, uint64_t salt, const int32_t *ids, int n_blocks,
                     int32_t *blocks, struct kv_chain *chain) {
    uint64_t mark = 0;
    int n = 0;
    for (; n < n_blocks; n++) {
        const int32_t *block_ids = ids + (size_t)n * (size_t)kv->shape.block_tokens;
        int32_t b = find(kv, bucket_of(kv, mark, salt, block_ids), mark, salt, block_ids);
        if (b == NONE) break;
        kv_block_ref(kv, b);
        blocks[n] = b;
        mark = kv->blocks[b].mark;
    }
    chain->mark = mark;
    chain->depth = (uint32_t)n;
    if (n > 0) chain->digest = kv->blocks[blocks[n - 1]].digest;
    return n;
}

void kv_prefix_publish(struct kv_cache *kv, uint64_t salt, struct kv_chain *chain,
                       const int32_t *ids, int32_t block) {
    uint32_t bucket = bucket_of(kv, chain->mark, salt, ids);
    int32_t twin = find(kv, bucket, chain->mark, salt, ids);
    chain->digest = prefix_digest_next(chain->digest, ids, kv->shape.block_tokens);
    chain->depth++;
    if (twin != NONE) {
        chain->mark = kv->blocks[twin].mark;
        return;
    }
    struct block *b = &kv->blocks[block];
    memcpy(tokens_of(kv, block), ids, (size_t)kv->shape.block_tokens * sizeof(*ids));
    b->published = true;
    b->before = chain->mark;
    b->salt = salt;
    b->mark = ++kv->last_mark;
    b->digest = chain->digest;
    b->depth = chain->depth;
    b->bucket = bucket;
    b->hash_next = kv->buckets[bucket];
    kv->buckets[bucket] = block;
    chain->mark = b->mark;
    if (prefix_digest_counts(b->depth)) prefix_log_put(kv->log, b->digest);
}

void kv_prefix_tell(struct kv_cache *kv, struct prefix_log *log) {
    kv->log = log;
}

/* ---- self-check */

static bool list_check(const struct kv_cache *kv, const struct list *l, bool published) {
    int32_t prev = NONE;
    int n = 0;
    for (int32_t b = l->head; b != NONE; prev = b, b = kv->blocks[b].next) {
        if (++n > kv->shape.n_blocks || kv->blocks[b].prev != prev || kv->blocks[b].refs != 0 ||
            kv->blocks[b].published != published)
            return false;
    }
    return n == l->n && prev == l->tail;
}

bool kv_cache_check(const struct kv_cache *kv) {
    int n_used = 0, n_published = 0, n_hashed = 0;
    if (!list_check(kv, &kv->free, false) || !list_check(kv, &kv->cached, true)) return false;
    for (int32_t b = 0; b < kv->shape.n_blocks; b++) {
        n_used += kv->blocks[b].refs > 0;
        n_published += kv->blocks[b].published;
        if (kv->blocks[b].published != (kv->blocks[b].mark != 0)) return false;
    }
    for (uint32_t i = 0; i < kv->n_buckets; i++)
        for (int32_t b = kv->buckets[i]; b != NONE; b = kv->blocks[b].hash_next) {
            if (++n_hashed > n_published || !kv->blocks[b].published || kv->blocks[b].bucket != i)
                return false;
        }
    return n_hashed == n_published && n_used + kv->free.n + kv->cached.n == kv->shape.n_blocks;
}
