/* prefix_book: a hash set for each instance, and rows in buckets of eight, of which the one that
 * was used longest ago goes. */
#include "coordinator/prefix_book.h"

#include <stdlib.h>
#include <string.h>

/* ---- sets */

enum { SLOTS_MIN = 64, SLOTS_MAX = 4 * PREFIX_DIGESTS_MAX }; /* powers of two; half are used */
enum { AHEAD = 16 };                                         /* digests */

static size_t home_of(const struct prefix_set *s, uint64_t digest) {
    return (size_t)(digest * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (s->n_slots - 1);
}

static uint64_t *slot_of(const struct prefix_set *s, uint64_t digest) {
    size_t i = home_of(s, digest);
    while (s->slots[i] != 0 && s->slots[i] != digest) i = (i + 1) & (s->n_slots - 1);
    return &s->slots[i];
}

void prefix_set_free(struct prefix_set *s) {
    free(s->slots);
    memset(s, 0, sizeof(*s));
}

static bool grow(struct prefix_set *s) {
    struct prefix_set more = *s;
    more.n_slots = s->n_slots > 0 ? 2 * s->n_slots : SLOTS_MIN;
    if (more.n_slots > SLOTS_MAX) return false;
    if ((more.slots = calloc(more.n_slots, sizeof(*more.slots))) == NULL) return false;
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slots[i] != 0) *slot_of(&more, s->slots[i]) = s->slots[i];
    free(s->slots);
    *s = more;
    return true;
}

static void put(struct prefix_set *s, uint64_t digest) {
    if (2 * (s->n + 1) > s->n_slots && !grow(s)) return;
    uint64_t *at = slot_of(s, digest);
    s->n += *at == 0;
    *at = digest;
}

/* What stands behind a slot that becomes free moves up, as far as it may stand there. */
static void drop(struct prefix_set *s, uint64_t digest) {
    uint64_t *at = s->n > 0 ? slot_of(s, digest) : NULL;
    if (at == NULL || *at == 0) return;
    size_t hole = (size_t)(at - s->slots);
    const size_t mask = s->n_slots - 1;
    for (size_t i = (hole + 1) & mask; s->slots[i] != 0; i = (i + 1) & mask) {
        if (((i - home_of(s, s->slots[i])) & mask) < ((i - hole) & mask)) continue;
        s->slots[hole] = s->slots[i];
        hole = i;
    }
    s->slots[hole] = 0;
    s->n--;
}

void prefix_set_take(struct prefix_set *s, const struct prefix_msg *m) {
    if (m->epoch == 0 || m->whole || m->epoch != s->epoch) {
        if (s->n_slots > 0) memset(s->slots, 0, s->n_slots * sizeof(*s->slots));
        s->n = 0;
    }
    s->epoch = m->epoch;
    s->seq = m->seq;
    for (size_t i = 0; i < m->n; i++) {
        /* Each is somewhere else in the table, which with hundreds of instances is in no cache. */
        if (i + AHEAD < m->n && s->n_slots > 0)
            __builtin_prefetch(&s->slots[home_of(s, m->digests[i + AHEAD] & ~PREFIX_GONE)]);
        if ((m->digests[i] & PREFIX_GONE) != 0)
            drop(s, m->digests[i] & ~PREFIX_GONE);
        else
            put(s, m->digests[i]);
    }
}

void prefix_set_expect(struct prefix_set *s, uint64_t digest) {
    if (s->epoch != 0 && digest != 0) put(s, digest);
}

bool prefix_set_has(const struct prefix_set *s, uint64_t digest) {
    return s->n > 0 && *slot_of(s, digest) != 0;
}

/* ---- the book */

enum { WAYS = 8 };

struct row {
    uint64_t key; /* 0: free */
    uint64_t digest;
    uint32_t tokens, at;
    uint32_t d_id, new_tokens;
    uint32_t used; /* when, by the count of the book */
};

struct prefix_book {
    uint32_t clock;
    struct row rows[PREFIX_BOOK_ROWS];
};

struct prefix_book *prefix_book_create(void) {
    return calloc(1, sizeof(struct prefix_book));
}

void prefix_book_destroy(struct prefix_book **b) {
    free(*b);
    *b = NULL;
}

static size_t bucket_of(uint64_t key) {
    return (size_t)(key >> 20) % (PREFIX_BOOK_ROWS / WAYS) * WAYS;
}

static const struct row *look(const struct prefix_book *b, uint64_t key) {
    const struct row *r = &b->rows[bucket_of(key)];
    for (int i = 0; i < WAYS; i++)
        if (r[i].key == key) return &r[i];
    return NULL;
}

static struct row *row_for(struct prefix_book *b, uint64_t key) {
    struct row *r = &b->rows[bucket_of(key)], *oldest = r;
    for (int i = 0; i < WAYS; i++) {
        if (r[i].key == key) return &r[i];
        if (b->clock - r[i].used > b->clock - oldest->used || r[i].key == 0) oldest = &r[i];
        if (oldest->key == 0) break;
    }
    *oldest = (struct row){.key = key};
    return oldest;
}

/* The digest of the deepest told block within so many tokens: told depths are few, so from the end
 * of the last key on. */
struct told_walk {
    size_t i;       /* of the next digest */
    uint32_t depth; /* of digest i - 1; 0: none yet */
};

static void walk_to(struct told_walk *w, const struct prefix_told *t, double tokens) {
    while (w->i < t->n_digests) {
        const uint32_t next = prefix_digest_after(w->depth);
        if ((double)next * t->block_tokens > tokens) return;
        w->depth = next;
        w->i++;
    }
}

static uint32_t as_u32(double v) {
    return v > 0 ? v < UINT32_MAX ? (uint32_t)v : UINT32_MAX : 0;
}

/* A key at the very end, but for a bracket, stands for all of the prompt. */
static double tokens_at(const struct prefix_told *t, size_t at) {
    enum { BRACKETS = 2 };
    if (at + BRACKETS >= t->n_bytes) return t->prompt_tokens;
    return t->prompt_tokens * (double)at / (double)t->n_bytes;
}

void prefix_book_learn(struct prefix_book *b, const struct prefix_key *keys, size_t n_keys,
                       const struct prefix_told *t) {
    struct told_walk w = {0};
    if (b == NULL || t->n_digests == 0 || t->block_tokens == 0 || t->n_bytes == 0) return;
    b->clock++;
    for (size_t i = 0; i < n_keys && keys[i].at <= t->n_bytes; i++) {
        const double tokens = tokens_at(t, keys[i].at);
        walk_to(&w, t, tokens);
        if (w.i == 0) continue;
        struct row *r = row_for(b, keys[i].hash);
        *r = (struct row){.key = keys[i].hash,
                          .digest = t->digests[w.i - 1],
                          .tokens = as_u32((double)w.depth * t->block_tokens),
                          .at = as_u32(tokens),
                          .d_id = t->d_id,
                          .used = b->clock};
    }
}

void prefix_book_answered(struct prefix_book *b, const struct prefix_key *keys, size_t n_keys,
                          double new_tokens) {
    if (b == NULL || n_keys == 0) return;
    const struct row *r = look(b, keys[n_keys - 1].hash);
    if (r != NULL) b->rows[r - b->rows].new_tokens = as_u32(new_tokens);
}

size_t prefix_book_find(const struct prefix_book *b, const struct prefix_key *keys, size_t n_keys,
                        struct prefix_found out[PREFIX_FOUND_MAX]) {
    size_t n = 0;
    uint64_t last = 0;
    if (b == NULL) return 0;
    for (size_t i = n_keys; i > 0 && n < PREFIX_FOUND_MAX; i--) {
        const struct row *r = look(b, keys[i - 1].hash);
        if (r == NULL || (r->digest == last && r->new_tokens == 0)) continue;
        last = r->digest;
        out[n++] = (struct prefix_found){.digest = r->digest,
                                         .tokens = r->tokens,
                                         .at = r->at,
                                         .n_bytes = keys[i - 1].at,
                                         .d_id = r->d_id,
                                         .new_tokens = r->new_tokens};
    }
    return n;
}

double prefix_cached_at(const struct prefix_found *found, size_t n, const struct prefix_set *s,
                        uint32_t id) {
    for (size_t i = 0; i < n; i++) {
        if (!prefix_set_has(s, found[i].digest)) continue;
        /* Where the answer lies too, the cut's own tokens do, but for a block that is not full. */
        return found[i].d_id == id && found[i].new_tokens > 0 ? found[i].at + found[i].new_tokens
                                                              : found[i].tokens;
    }
    return 0;
}
