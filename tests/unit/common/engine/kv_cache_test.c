/* Goal: a block is never in two hands, a found prefix is always the right one, and what is cached
 * is forgotten oldest first. Method: known answers for the hash; sizes on both sides of their
 * bounds; examples of sharing and eviction; a random run against a model that keeps the content of
 * every block in the open, with the pool's own lists checked at each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/engine/kv_cache.h"
#include "common/engine/siphash.h"

/* Key 00..0f, messages 00, 00 01, ...: values 0, 1, 8 and 15 of the vectors published with the
 * algorithm; 15 is also the example in the paper. */
static void test_siphash_known_answers(void **state) {
    (void)state;
    static const struct {
        size_t n;
        uint64_t want;
    } kat[] = {{0, 0x726fdb47dd0e0e31u},
               {1, 0x74f839c593dc67fdu},
               {8, 0x93f5f5799a932462u},
               {15, 0xa129ca6149be45e5u}};
    uint8_t key[16], msg[16];
    for (int i = 0; i < 16; i++) key[i] = msg[i] = (uint8_t)i;
    for (size_t i = 0; i < 4; i++) assert_true(siphash24(key, msg, kat[i].n) == kat[i].want);
    key[0] ^= 1;
    assert_true(siphash24(key, msg, 15) != kat[3].want);
}

static struct kv_shape shape_of(int n_blocks, int block_tokens) {
    return (struct kv_shape){.n_layers = 2,
                             .n_kv_heads = 3,
                             .head_dim = 5,
                             .block_tokens = block_tokens,
                             .n_blocks = n_blocks,
                             .dtype = DTYPE_BF16};
}
static struct kv_cache *pool(int n_blocks, int block_tokens) {
    struct kv_shape s = shape_of(n_blocks, block_tokens);
    struct kv_cache *kv;
    struct errbuf eb;
    if (kv_cache_create(&kv, &s, &eb) != ERR_OK) fail_msg("%s", eb.text);
    return kv;
}

static void test_sizes(void **state) {
    (void)state;
    struct kv_shape s = shape_of(4, 7);
    assert_int_equal(kv_block_bytes(&s), 2 * 3 * 5 * 7 * 2);
    assert_int_equal(kv_block_stride(&s), 448); /* 420 up to 64 */
    s.dtype = DTYPE_F32;
    assert_int_equal(kv_block_bytes(&s), 2 * 3 * 5 * 7 * 4);
    s.dtype = DTYPE_INT8;
    assert_int_equal(kv_block_bytes(&s), 2 * 3 * (5 + 2) * 7);
    s.values_in_keys = 4; /* no rows for them */
    assert_int_equal(kv_block_bytes(&s), 3 * (5 + 2) * 7);
    s.values_in_keys = 6;
    assert_int_equal(kv_block_bytes(&s), 0);
    s.values_in_keys = 0;
    s.dtype = DTYPE_F16;
    assert_int_equal(kv_block_bytes(&s), 0);
    s.dtype = DTYPE_NONE;
    assert_int_equal(kv_block_bytes(&s), 0);
    s.dtype = DTYPE_F32;
    s.n_kv_heads = s.head_dim = s.block_tokens = INT32_MAX;
    assert_int_equal(kv_block_bytes(&s), 0);
    assert_int_equal(kv_block_stride(&s), 0);

    struct kv_cache *kv;
    struct errbuf eb;
#define REFUSED(member, bad)                                                                       \
    do {                                                                                           \
        struct kv_shape s_ = shape_of(4, 7);                                                       \
        s_.member = (bad);                                                                         \
        eb.text[0] = 0;                                                                            \
        assert_int_not_equal(kv_cache_create(&kv, &s_, &eb), ERR_OK);                              \
        assert_null(kv);                                                                           \
        assert_true(eb.text[0] != 0);                                                              \
    } while (0)
    REFUSED(block_tokens, 0);
    REFUSED(block_tokens, KV_BLOCK_TOKENS_MAX + 1);
    REFUSED(n_blocks, 0);
    REFUSED(n_blocks, -1);
    REFUSED(n_layers, 0);
    REFUSED(head_dim, 0);
    REFUSED(n_kv_heads, -3);
    REFUSED(values_in_keys, -1);
    REFUSED(values_in_keys, 6);
    REFUSED(dtype, DTYPE_NONE);
    REFUSED(dtype, DTYPE_F16);
    REFUSED(dtype, DTYPE_INT4);
    s = shape_of(4, 7); /* a size, but larger than any address space */
    s.n_layers = INT32_MAX;
    s.head_dim = 1000000;
    assert_int_equal(kv_cache_create(&kv, &s, &eb), ERR_NO_MEMORY);
    assert_null(kv);
    s = shape_of(1, KV_BLOCK_TOKENS_MAX);
    assert_int_equal(kv_cache_create(&kv, &s, &eb), ERR_OK);
    kv_cache_destroy(&kv);
    kv_cache_destroy(&kv);
}

/* Every byte of every block of every layer belongs to it alone. */
static void test_memory(void **state) {
    (void)state;
    struct kv_cache *kv = pool(5, 7);
    const struct kv_shape *s = kv_cache_shape(kv);
    size_t n = kv_block_bytes(s);
    for (int layer = 0; layer < 2; layer++)
        for (int32_t b = 0; b < 5; b++) {
            uint8_t *p = kv_block_ptr(kv, layer, b);
            assert_int_equal((uintptr_t)p % 64, 0);
            for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
            memset(p, 1 + layer * 5 + b, n);
        }
    for (int layer = 0; layer < 2; layer++)
        for (int32_t b = 0; b < 5; b++)
            for (size_t i = 0; i < n; i++)
                assert_int_equal(kv_block_ptr(kv, layer, b)[i], 1 + layer * 5 + b);
    kv_cache_destroy(&kv);
}

static void test_alloc_and_refs(void **state) {
    (void)state;
    struct kv_cache *kv = pool(4, 2);
    int32_t a[4], b[4];
    assert_true(kv_blocks_alloc(kv, a, 3));
    assert_int_equal(kv_blocks_free(kv), 1);
    assert_false(kv_blocks_alloc(kv, b, 2)); /* all or nothing */
    assert_int_equal(kv_blocks_free(kv), 1);
    assert_true(kv_blocks_alloc(kv, b, 1));
    assert_true(kv_blocks_alloc(kv, b + 1, 0));
    assert_false(kv_blocks_alloc(kv, b + 1, 1));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++) assert_int_not_equal(a[i], a[j]);
    kv_block_ref(kv, a[1]);
    assert_int_equal(kv_block_refs(kv, a[1]), 2);
    kv_blocks_unref(kv, a, 3);
    assert_int_equal(kv_blocks_free(kv), 2);
    assert_true(kv_cache_check(kv));
    kv_blocks_unref(kv, a + 1, 1);
    kv_blocks_unref(kv, b, 1);
    assert_int_equal(kv_blocks_free(kv), 4);
    assert_true(kv_cache_check(kv));
    kv_cache_destroy(&kv);
}

/* Publishes n blocks of ids and gives them back. */
static void put(struct kv_cache *kv, uint64_t salt, const int32_t *ids, int n) {
    int32_t blocks[16];
    struct kv_chain chain = {0};
    int bt = kv_cache_shape(kv)->block_tokens;
    assert_true(kv_blocks_alloc(kv, blocks, n));
    for (int i = 0; i < n; i++) kv_prefix_publish(kv, salt, &chain, ids + i * bt, blocks[i]);
    kv_blocks_unref(kv, blocks, n);
}
static int found(struct kv_cache *kv, uint64_t salt, const int32_t *ids, int n) {
    int32_t blocks[16];
    struct kv_chain chain = {0};
    int hits = kv_prefix_lookup(kv, salt, ids, n, blocks, &chain);
    kv_blocks_unref(kv, blocks, hits);
    assert_true((chain.mark == 0) == (hits == 0));
    assert_int_equal(chain.depth, hits);
    return hits;
}

static void test_prefixes(void **state) {
    (void)state;
    struct kv_cache *kv = pool(8, 2);
    const int32_t ids[] = {1, 2, 3, 4, 5, 6}, other_tail[] = {1, 2, 3, 4, 5, 7},
                  shifted[] = {3, 4, 5, 6, 1, 2};
    put(kv, 0, ids, 3);
    assert_int_equal(kv_blocks_free(kv), 8); /* cached counts as free */
    assert_int_equal(found(kv, 0, ids, 3), 3);
    assert_int_equal(found(kv, 0, ids, 2), 2);
    assert_int_equal(found(kv, 0, ids, 0), 0);
    assert_int_equal(found(kv, 0, other_tail, 3), 2);
    assert_int_equal(found(kv, 0, shifted, 3),
                     0); /* the same tokens elsewhere are another content */
    assert_int_equal(found(kv, 1, ids, 3), 0);
    put(kv, 0, other_tail, 3); /* the twin of the first two stays private */
    assert_int_equal(found(kv, 0, other_tail, 3), 3);
    assert_int_equal(found(kv, 0, ids, 3), 3);
    assert_true(kv_cache_check(kv));
    kv_cache_destroy(&kv);
}

static void test_eviction_order(void **state) {
    (void)state;
    struct kv_cache *kv = pool(6, 1);
    const int32_t a[] = {1, 2, 3}, b[] = {7, 8, 9};
    int32_t blocks[6];
    put(kv, 0, a, 3);
    put(kv, 0, b, 3);
    assert_int_equal(found(kv, 0, a, 3), 3); /* a is now the younger */
    assert_true(kv_blocks_alloc(kv, blocks, 1));
    assert_int_equal(found(kv, 0, a, 3), 3);
    assert_int_equal(found(kv, 0, b, 3),
                     2); /* the tail goes first, and what is left is still of use */
    kv_blocks_unref(kv, blocks, 1);
    /* in use is never evicted: hold a, take all others */
    struct kv_chain chain = {0};
    int32_t held[3];
    assert_int_equal(kv_prefix_lookup(kv, 0, a, 3, held, &chain), 3);
    assert_true(kv_blocks_alloc(kv, blocks, 3));
    assert_false(kv_blocks_alloc(kv, blocks + 3, 1));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) assert_int_not_equal(blocks[i], held[j]);
    assert_int_equal(found(kv, 0, b, 3), 0);
    kv_blocks_unref(kv, held, 3);
    kv_blocks_unref(kv, blocks, 3);
    assert_int_equal(found(kv, 0, a, 3), 3);
    assert_true(kv_cache_check(kv));
    kv_cache_destroy(&kv);
}

/* A block that is evicted and filled anew is found by its new content only. A pool of one block has
 * one bucket, so every look-up here meets a colliding hash. */
static void test_reuse_forgets(void **state) {
    (void)state;
    struct kv_cache *kv = pool(1, 2);
    for (int32_t k = 0; k < 20; k++) {
        const int32_t now[] = {k, k + 1}, before[] = {k - 1, k};
        put(kv, 0, now, 1);
        assert_int_equal(found(kv, 0, now, 1), 1);
        assert_int_equal(found(kv, 0, before, 1), 0);
        assert_int_equal(found(kv, 1, now, 1), 0);
    }
    kv_cache_destroy(&kv);
}

/* The model: what each block was last published with, as the whole token string from the start. A
 * hit must match it. */
enum { BLOCKS = 24, BT = 2, LEN_MAX = 6, USERS = 8 };
struct content {
    int32_t ids[LEN_MAX * BT];
    int n;
    uint64_t salt;
};
static void test_random_run(void **state) {
    (void)state;
    static struct content content[BLOCKS];
    struct user {
        int32_t ids[LEN_MAX * BT], blocks[LEN_MAX];
        int n;
    } users[USERS] = {0};
    int owner_refs[BLOCKS] = {0};
    uint64_t rng = 12345, hits = 0;
    struct kv_cache *kv = pool(BLOCKS, BT);
#define RND(n)                                                                                     \
    (int)((rng = rng * 6364136223846793005u + 1442695040888963407u, rng >> 33) % (uint64_t)(n))
    for (int step = 0; step < 30000; step++) {
        struct user *u = &users[RND(USERS)];
        if (u->n > 0) {
            kv_blocks_unref(kv, u->blocks, u->n);
            for (int i = 0; i < u->n; i++) owner_refs[u->blocks[i]]--;
            u->n = 0;
        } else {
            int n = 1 + RND(LEN_MAX);
            struct kv_chain chain = {0};
            const uint64_t salt = (uint64_t)RND(2);
            for (int i = 0; i < n * BT; i++) u->ids[i] = RND(2); /* few contents, many meetings */
            int hit = kv_prefix_lookup(kv, salt, u->ids, n, u->blocks, &chain);
            for (int i = 0; i < hit; i++) {
                const struct content *c = &content[u->blocks[i]];
                assert_true(c->n == i + 1 && c->salt == salt);
                assert_memory_equal(c->ids, u->ids, (size_t)(i + 1) * BT * sizeof(int32_t));
            }
            hits += (uint64_t)hit;
            if (!kv_blocks_alloc(kv, u->blocks + hit, n - hit)) {
                assert_true(n - hit > kv_blocks_free(kv));
                kv_blocks_unref(kv, u->blocks, hit);
                continue;
            }
            int full = RND(4) == 0 ? n - 1 : n; /* some end before their last block is full */
            for (int i = hit; i < n; i++) {
                assert_int_equal(owner_refs[u->blocks[i]], 0); /* a fresh block is nobody's */
                struct content *c = &content[u->blocks[i]];
                memcpy(c->ids, u->ids, sizeof(u->ids));
                c->n = i + 1;
                c->salt = salt;
                if (i < full) kv_prefix_publish(kv, salt, &chain, u->ids + i * BT, u->blocks[i]);
            }
            u->n = n;
            for (int i = 0; i < n; i++) owner_refs[u->blocks[i]]++;
        }
        assert_true(kv_cache_check(kv));
        int n_free = 0;
        for (int b = 0; b < BLOCKS; b++) {
            assert_int_equal(kv_block_refs(kv, b), owner_refs[b]);
            n_free += owner_refs[b] == 0;
        }
        assert_int_equal(kv_blocks_free(kv), n_free);
    }
    assert_true(hits > 1000);
    kv_cache_destroy(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash_known_answers),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_alloc_and_refs),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_eviction_order),
        cmocka_unit_test(test_reuse_forgets),
        cmocka_unit_test(test_random_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
