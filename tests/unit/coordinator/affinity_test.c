/* Goal: the last conversations are known by their keys, each with the instance that had it last,
 * and the one that was used longest ago makes room. Method: random use against a plain list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "coordinator/affinity.h"

enum { ROWS_MAX = 24, KEYS = 60, USES = 20000 };

static uint64_t rng = 11;
static unsigned rnd(unsigned n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng >> 33) % n;
}

/* The newest first. */
static struct plain {
    uint64_t key;
    uint32_t id;
} rows[ROWS_MAX];
static size_t n_rows;

static struct plain *use(uint64_t key) {
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].key != key) continue;
        const struct plain r = rows[i];
        memmove(rows + 1, rows, i * sizeof(*rows));
        rows[0] = r;
        return rows;
    }
    return NULL;
}

static void put(uint64_t key, uint32_t id, size_t n_max) {
    if (use(key) == NULL) {
        if (n_rows < n_max) n_rows++;
        memmove(rows + 1, rows, (n_rows - 1) * sizeof(*rows));
        rows[0].key = key;
    }
    rows[0].id = id;
}

/* Many keys in a bucket, and few. */
static uint64_t key_of(unsigned i, bool crowded) {
    return crowded ? 1 + (uint64_t)i : (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

static void as_a_plain_list(void **state) {
    (void)state;
    for (unsigned round = 0; round < 8; round++) {
        const size_t n_max = round < 2 ? 1 : 1 + rnd(ROWS_MAX);
        struct affinity *a = affinity_create(n_max);
        size_t n_known = 0;
        assert_non_null(a);
        n_rows = 0;
        for (int i = 0; i < USES; i++) {
            const uint64_t key = key_of(rnd(KEYS), round % 2 == 0);
            if (rnd(2) == 0) {
                const uint32_t id = 1 + rnd(9);
                affinity_put(a, key, id);
                put(key, id, n_max);
            } else {
                const struct plain *r = use(key);
                assert_int_equal(affinity_find(a, key), r != NULL ? r->id : 0);
                n_known += r != NULL;
            }
            assert_int_equal(affinity_count(a), n_rows);
        }
        assert_true(n_known > 50 && n_rows == n_max);
        affinity_destroy(&a);
        assert_null(a);
        affinity_destroy(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_a_plain_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
