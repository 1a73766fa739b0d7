/* affinity: rows in chains of a hash table, and in one list by their last use. Row 0 is nobody: the
 * end of every chain, and both ends of the list. */
#include "coordinator/affinity.h"

#include <stdlib.h>

struct row {
    uint64_t key;
    uint32_t id;
    uint32_t chain;        /* the next of its bucket */
    uint32_t newer, older; /* of row 0: the oldest and the newest */
};

struct affinity {
    uint32_t n, n_max, n_buckets; /* a power of two */
    uint32_t *buckets;
    struct row *rows; /* [n_max + 1] */
};

struct affinity *affinity_create(size_t n_max) {
    struct affinity *a = calloc(1, sizeof(*a));
    if (a == NULL) return NULL;
    a->n_max = (uint32_t)n_max;
    for (a->n_buckets = 16; a->n_buckets < n_max;) a->n_buckets *= 2;
    a->buckets = calloc(a->n_buckets, sizeof(*a->buckets));
    a->rows = calloc(n_max + 1, sizeof(*a->rows));
    if (a->buckets == NULL || a->rows == NULL) affinity_destroy(&a);
    return a;
}

void affinity_destroy(struct affinity **a) {
    if (*a == NULL) return;
    free((*a)->buckets);
    free((*a)->rows);
    free(*a);
    *a = NULL;
}

/* The link that names the row, or the end of its chain. */
static uint32_t *link_to(const struct affinity *a, uint64_t key) {
    uint32_t *at = &a->buckets[(key >> 20) & (a->n_buckets - 1)];
    while (*at != 0 && a->rows[*at].key != key) at = &a->rows[*at].chain;
    return at;
}

static void leave(struct row *rows, uint32_t i) {
    rows[rows[i].newer].older = rows[i].older;
    rows[rows[i].older].newer = rows[i].newer;
}

static void enter_as_newest(struct row *rows, uint32_t i) {
    rows[i].newer = 0;
    rows[i].older = rows[0].older;
    rows[rows[0].older].newer = i;
    rows[0].older = i;
}

uint32_t affinity_find(struct affinity *a, uint64_t key) {
    const uint32_t i = *link_to(a, key);
    if (i == 0) return 0;
    leave(a->rows, i);
    enter_as_newest(a->rows, i);
    return a->rows[i].id;
}

/* A row for a key that has none: a new one, or the oldest. */
static uint32_t row_for(struct affinity *a, uint64_t key) {
    uint32_t i = a->rows[0].newer;
    if (a->n < a->n_max) {
        i = ++a->n;
    } else {
        uint32_t *at = link_to(a, a->rows[i].key);
        *at = a->rows[i].chain;
        leave(a->rows, i);
    }
    uint32_t *at = link_to(a, key);
    a->rows[i] = (struct row){.key = key};
    *at = i;
    enter_as_newest(a->rows, i);
    return i;
}

void affinity_put(struct affinity *a, uint64_t key, uint32_t id) {
    const uint32_t i = affinity_find(a, key) != 0 ? *link_to(a, key) : row_for(a, key);
    a->rows[i].id = id;
}

size_t affinity_count(const struct affinity *a) {
    return a->n;
}
