/* Goal: who follows the changes of a prefix cache knows what is in it, however seldom it asks, and
 * a cache tells what came and went. Method: readers that ask at random beside a model of counts; a
 * pool of blocks whose chains are published, used again and forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/engine/kv_cache.h"

enum { DIGESTS = 64, READERS = 3 };

struct reader {
    uint64_t epoch, seq;
    bool has[DIGESTS + 1];
};

static void read_on(struct prefix_log *log, struct reader *r, unsigned *n_whole) {
    struct prefix_msg m;
    assert_int_equal(prefix_log_read(log, r->epoch, r->seq, &m), ERR_OK);
    if (m.whole) {
        memset(r->has, 0, sizeof(r->has));
        (*n_whole)++;
    }
    for (size_t i = 0; i < m.n; i++) {
        const uint64_t d = m.digests[i] & ~PREFIX_GONE;
        assert_true(d >= 1 && d <= DIGESTS);
        assert_true(r->has[d] == ((m.digests[i] & PREFIX_GONE) != 0)); /* each change is one */
        r->has[d] = !r->has[d];
    }
    r->epoch = m.epoch;
    r->seq = m.seq;
    prefix_msg_free(&m);
}

static void readers_know_what_is_there(void **state) {
    struct prefix_log *log;
    struct reader readers[READERS] = {{0}};
    unsigned counts[DIGESTS + 1] = {0}, n_whole = 0;
    uint64_t rng = 99;
    (void)state;
    assert_int_equal(prefix_log_create(&log), ERR_OK);
    for (int step = 0; step < 100000; step++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        const unsigned d = 1 + (unsigned)(rng >> 33) % DIGESTS;
        if ((rng >> 20 & 1) != 0 && counts[d] > 0) {
            prefix_log_drop(log, d);
            counts[d]--;
        } else if (counts[d] < 3) {
            prefix_log_put(log, d);
            counts[d]++;
        }
        for (int i = 0; i < READERS; i++) {
            const int every[] = {7, 900, 40000}; /* often, seldom, after more than is kept */
            if (step % every[i] != 0) continue;
            read_on(log, &readers[i], &n_whole);
            for (unsigned k = 1; k <= DIGESTS; k++)
                assert_true(readers[i].has[k] == (counts[k] > 0));
        }
    }
    assert_int_equal(n_whole, READERS + 2); /* each at first, and the last one each time */
    prefix_log_drop(log, DIGESTS + 1);      /* unknown: nothing */
    prefix_log_destroy(&log);
}

static void a_full_log_stays_in_bounds(void **state) {
    struct prefix_log *log;
    struct prefix_msg m;
    (void)state;
    assert_int_equal(prefix_log_create(&log), ERR_OK);
    for (uint64_t d = 1; d <= PREFIX_DIGESTS_MAX + 1000; d++) prefix_log_put(log, d);
    assert_int_equal(prefix_log_read(log, 0, 0, &m), ERR_OK);
    assert_int_equal(m.n, PREFIX_DIGESTS_MAX);
    prefix_msg_free(&m);
    for (uint64_t d = 1; d <= PREFIX_DIGESTS_MAX + 1000; d++) prefix_log_drop(log, d);
    assert_int_equal(prefix_log_read(log, 1, 0, &m), ERR_OK); /* another process's epoch */
    assert_true(m.whole && m.n == 0 && m.epoch != 0);
    prefix_msg_free(&m);
    prefix_log_destroy(&log);
}

static bool has(struct prefix_log *log, uint64_t digest) {
    struct prefix_msg m;
    bool found = false;
    assert_int_equal(prefix_log_read(log, 0, 0, &m), ERR_OK);
    for (size_t i = 0; i < m.n; i++) found = found || m.digests[i] == digest;
    prefix_msg_free(&m);
    return found;
}

/* What a prompt's list says is what the cache tells: from its beginning, and behind blocks that
 * were found. */
static void a_cache_tells(void **state) {
    enum { BLOCKS = 6, BT = 2 };
    const struct kv_shape shape = {1, 1, 8, BT, BLOCKS, DTYPE_BF16, 0};
    const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct errbuf eb = {0};
    struct kv_cache *kv;
    struct prefix_log *log;
    int32_t blocks[BLOCKS];
    uint64_t told[PREFIX_PROMPT_DIGESTS_MAX];
    struct kv_chain chain = {.digest = 42};
    (void)state;
    assert_int_equal(prefix_log_create(&log), ERR_OK);
    assert_int_equal(kv_cache_create(&kv, &shape, &eb), ERR_OK);
    kv_prefix_tell(kv, log);
    assert_int_equal(prefix_digests_of(told, 42, ids, 8, BT), 4);
    assert_true(kv_blocks_alloc(kv, blocks, 2));
    for (int i = 0; i < 2; i++) kv_prefix_publish(kv, 9, &chain, ids + i * BT, blocks[i]);
    kv_blocks_unref(kv, blocks, 2);
    assert_true(has(log, told[0]) && has(log, told[1]) && !has(log, told[2]));
    chain = (struct kv_chain){.digest = 42};
    assert_int_equal(kv_prefix_lookup(kv, 9, ids, 4, blocks, &chain), 2);
    assert_true(chain.depth == 2 && chain.digest == told[1]);
    assert_true(kv_blocks_alloc(kv, blocks + 2, 2));
    for (int i = 2; i < 4; i++) kv_prefix_publish(kv, 9, &chain, ids + i * BT, blocks[i]);
    kv_blocks_unref(kv, blocks, 4);
    assert_true(has(log, told[3]));
    /* who needs all blocks forgets what is cached, the tail first */
    assert_true(kv_blocks_alloc(kv, blocks, 3));
    assert_true(has(log, told[0]) && has(log, told[2]) && !has(log, told[3]));
    assert_true(kv_blocks_alloc(kv, blocks + 3, 3));
    assert_false(has(log, told[0]));
    kv_blocks_unref(kv, blocks, 6);
    kv_cache_destroy(&kv);
    prefix_log_destroy(&log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_know_what_is_there),
        cmocka_unit_test(a_full_log_stays_in_bounds),
        cmocka_unit_test(a_cache_tells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
