/* prompt_lookup: see prompt_lookup.h. The index is one table for runs of all lengths: a slot holds
 * where the newest run with its hash ends. What a slot says is compared with the ids themselves, so
 * a collision costs a draft, never a wrong one. */
#include "common/engine/prompt_lookup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_MIN = 64, FIRST_DRAFT = 4 };

struct prompt_lookup {
    int draft_max, draft;  /* longest ever; longest now */
    int pause, pause_next; /* calls still without a draft; how many the next time */
    int n_indexed;         /* runs that end before this position are in the table */
    uint32_t mask;         /* slots - 1, a power of two minus one */
    int32_t slots[];       /* position of a run's last id, + 1; 0: none */
};

static int min_int(int a, int b) {
    return a < b ? a : b;
}

struct prompt_lookup *prompt_lookup_create(int ids_max, int draft_max) {
    uint32_t n = SLOTS_MIN;
    while (n < LOOKUP_SLOTS_MAX && n / 4 < (uint32_t)ids_max) n *= 2;
    struct prompt_lookup *l = calloc(1, sizeof(*l) + n * sizeof(l->slots[0]));
    if (l == NULL) return NULL;
    l->draft_max = draft_max;
    l->draft = min_int(FIRST_DRAFT, draft_max);
    l->pause_next = 1;
    l->mask = n - 1;
    return l;
}

void prompt_lookup_destroy(struct prompt_lookup **l) {
    free(*l);
    *l = NULL;
}

/* The slot of the run of n ids that ends at `end`. */
static int32_t *slot_of(struct prompt_lookup *l, const int32_t *ids, int end, int n) {
    uint64_t h = (uint64_t)n;
    for (int i = end - n + 1; i <= end; i++) h = (h ^ (uint32_t)ids[i]) * 0x9E3779B97F4A7C15u;
    return &l->slots[(h >> 40) & l->mask];
}

/* Enters runs whose next id is known. False: more of them are left for later calls. */
static bool index_more(struct prompt_lookup *l, const int32_t *ids, int n_ids) {
    int until = n_ids - 1;
    if (until - l->n_indexed > LOOKUP_INDEX_STEP_MAX) until = l->n_indexed + LOOKUP_INDEX_STEP_MAX;
    for (; l->n_indexed < until; l->n_indexed++)
        for (int n = LOOKUP_NGRAM_MIN; n <= LOOKUP_NGRAM_MAX && n <= l->n_indexed + 1; n++)
            *slot_of(l, ids, l->n_indexed, n) = l->n_indexed + 1;
    return l->n_indexed >= n_ids - 1;
}

/* Where what followed the newest n ids earlier begins; 0: they are new. */
static int find(struct prompt_lookup *l, const int32_t *ids, int n_ids, int n) {
    if (n_ids <= n) return 0;
    int next = *slot_of(l, ids, n_ids - 1, n);
    if (next < n || memcmp(ids + next - n, ids + n_ids - n, (size_t)n * sizeof(*ids)) != 0)
        return 0;
    return next;
}

int prompt_lookup_draft(struct prompt_lookup *l, int32_t *ids, int n_ids, int room) {
    if (!index_more(l, ids, n_ids)) return 0;
    if (l->pause > 0) {
        l->pause--;
        return 0;
    }
    int next = 0, n_draft = min_int(l->draft, room);
    if (n_draft <= 0) return 0;
    for (int n = LOOKUP_NGRAM_MAX; n >= LOOKUP_NGRAM_MIN && next == 0; n--)
        next = find(l, ids, n_ids, n);
    if (next == 0) return 0;
    /* Past the newest id the draft goes on with itself: a loop of ids is drafted as one. */
    for (int i = 0; i < n_draft; i++) ids[n_ids + i] = ids[next + i];
    return n_draft;
}

void prompt_lookup_learn(struct prompt_lookup *l, int n_draft, int n_right) {
    if (n_right == 0) {
        l->pause = l->pause_next;
        l->pause_next = min_int(2 * l->pause_next, LOOKUP_PAUSE_MAX);
        l->draft = min_int(FIRST_DRAFT, l->draft_max);
        return;
    }
    l->pause_next = 1;
    l->draft = min_int(n_right == n_draft ? 2 * n_right : n_right + 1, l->draft_max);
}
