/* sim_cache: rows in a ring by their last use, found by a hash with chains. */
#include "tools/sim/sim_cache.h"

#include <stdlib.h>

static const uint32_t NOTHING = UINT32_MAX;

struct row {
    uint64_t name;
    uint32_t next;         /* of the same slot */
    uint32_t older, newer; /* NOTHING: the oldest, the newest */
};

struct sim_cache {
    struct row *rows;
    uint32_t *slots; /* [n_slots], a power of two */
    uint32_t n, most, n_slots, oldest, newest;
};

static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Behind a beginning of this name. */
static uint64_t name_of(uint64_t before, const struct sim_ask *a, uint32_t block) {
    return mixed(before ^ mixed(a->blocks[block] + 1)) + a->copy;
}

struct sim_cache *sim_cache_create(uint32_t blocks) {
    struct sim_cache *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->most = blocks;
    c->oldest = c->newest = NOTHING;
    for (c->n_slots = 16; c->n_slots < blocks; c->n_slots *= 2) {}
    c->rows = malloc(blocks * sizeof(*c->rows));
    c->slots = malloc(c->n_slots * sizeof(*c->slots));
    if (c->rows == NULL || c->slots == NULL) {
        sim_cache_destroy(&c);
        return NULL;
    }
    for (uint32_t i = 0; i < c->n_slots; i++) c->slots[i] = NOTHING;
    return c;
}

void sim_cache_destroy(struct sim_cache **c) {
    if (*c == NULL) return;
    free((*c)->rows);
    free((*c)->slots);
    free(*c);
    *c = NULL;
}

static uint32_t *slot_of(const struct sim_cache *c, uint64_t name) {
    return &c->slots[mixed(name) & (c->n_slots - 1)];
}

static uint32_t row_of(const struct sim_cache *c, uint64_t name) {
    uint32_t i = *slot_of(c, name);
    while (i != NOTHING && c->rows[i].name != name) i = c->rows[i].next;
    return i;
}

static void take_out(struct sim_cache *c, uint32_t i) {
    const struct row *r = &c->rows[i];
    *(r->older == NOTHING ? &c->oldest : &c->rows[r->older].newer) = r->newer;
    *(r->newer == NOTHING ? &c->newest : &c->rows[r->newer].older) = r->older;
}

static void make_newest(struct sim_cache *c, uint32_t i) {
    struct row *r = &c->rows[i];
    r->older = c->newest;
    r->newer = NOTHING;
    *(c->newest == NOTHING ? &c->oldest : &c->rows[c->newest].newer) = i;
    c->newest = i;
}

/* A row for a new name: a free one, else the oldest. */
static uint32_t new_row(struct sim_cache *c) {
    if (c->n < c->most) return c->n++;
    const uint32_t i = c->oldest;
    uint32_t *at = slot_of(c, c->rows[i].name);
    while (*at != i) at = &c->rows[*at].next;
    *at = c->rows[i].next;
    take_out(c, i);
    return i;
}

uint32_t sim_cache_find(const struct sim_cache *c, const struct sim_ask *a) {
    uint64_t name = 0;
    uint32_t n = 0;
    for (; n < a->n_blocks; n++) {
        name = name_of(name, a, n);
        if (row_of(c, name) == NOTHING) break;
    }
    return n;
}

void sim_cache_use(struct sim_cache *c, const struct sim_ask *a, uint32_t n) {
    uint64_t name = 0;
    for (uint32_t k = 0; k < n && k < a->n_blocks; k++) {
        name = name_of(name, a, k);
        uint32_t i = row_of(c, name);
        if (i != NOTHING) {
            take_out(c, i);
        } else {
            i = new_row(c);
            uint32_t *slot = slot_of(c, name);
            c->rows[i].name = name;
            c->rows[i].next = *slot;
            *slot = i;
        }
        make_newest(c, i);
    }
}

uint32_t sim_cache_held(const struct sim_cache *c) {
    return c->n;
}
