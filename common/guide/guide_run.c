/* guide_run: configurations, their stacks, and the steps between them. */
#include "common/guide/guide_run.h"

#include <stdlib.h>
#include <string.h>
#include "common/guide/grow.h"

enum { CFG_SLOTS = 16384, STK_SLOTS = 65536, WORK_PER_LOOK = 4096 };

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* ---- life */

static bool tables_init(struct run *r) {
    r->cfg_slots = calloc(CFG_SLOTS, sizeof(*r->cfg_slots));
    r->stk_slots = calloc(STK_SLOTS, sizeof(*r->stk_slots));
    if (r->cfg_slots == NULL || r->stk_slots == NULL) return false;
    if (!GROW(r->cfgs, r->n_cfgs, r->cap_cfgs)) return false;
    r->cfgs[r->n_cfgs++] = (struct run_cfg){.budget = -1}; /* CFG_DEAD */
    for (int i = 0; i < 2; i++) {                          /* STK_BOTTOM, STK_HOLE */
        if (!GROW(r->stks, r->n_stks, r->cap_stks)) return false;
        r->stks[r->n_stks++] = (struct run_stk){.ret = -1, .canon = (uint32_t)i + 1};
    }
    return true;
}

static void tables_fini(struct run *r) {
    for (size_t i = 0; i < r->n_cfgs; i++) {
        free(r->cfgs[i].next);
        free(r->cfgs[i].mask);
    }
    free(r->cfgs);
    free(r->items);
    free(r->stks);
    free(r->cfg_slots);
    free(r->stk_slots);
}

bool run_init(struct run *r, const struct automaton *a, const struct guide_vocab *v) {
    *r = (struct run){.a = a, .v = v, .seen_mask = 255};
    r->locals = calloc((size_t)a->n_states + 1, sizeof(*r->locals));
    r->seen = calloc(r->seen_mask + 1, sizeof(*r->seen));
    return tables_init(r) && r->locals != NULL && r->seen != NULL;
}

void run_fini(struct run *r) {
    if (r->a == NULL) return;
    tables_fini(r);
    for (int32_t q = 0; r->locals != NULL && q < r->a->n_states; q++) {
        free(r->locals[q].bits);
        free(r->locals[q].ids);
        free(r->locals[q].nodes);
    }
    free(r->locals);
    free(r->todo);
    free(r->found);
    free(r->seen);
    *r = (struct run){0};
}

void run_step_begin(struct run *r, int step_ms) {
    r->failed = false;
    r->why = ERR_OK;
    r->limit = work_limit_start(step_ms, NULL);
    r->n_since_look = 0;
}

void run_fail(struct run *r, enum err why) {
    if (!r->failed) r->why = why;
    r->failed = true;
}

/* n configurations or items were looked at. */
static void count_work(struct run *r, size_t n) {
    r->n_since_look += (unsigned)n;
    if (r->n_since_look < WORK_PER_LOOK) return;
    r->n_since_look = 0;
    enum err e = work_limit_check(&r->limit);
    if (e != ERR_OK) run_fail(r, e);
}

bool run_is_full(const struct run *r) {
    return r->n_cfgs > CFGS_MAX || r->n_stks > STACKS_MAX;
}

/* ---- stacks */

uint32_t run_stack(struct run *r, int32_t ret, uint32_t parent) {
    uint32_t *slot =
        &r->stk_slots[mix(mix(1, (uint32_t)ret), parent) >> 20 & (uint64_t)(STK_SLOTS - 1)];
    for (uint32_t s = *slot; s != 0; s = r->stks[s - 1].hash_next)
        if (r->stks[s - 1].ret == ret && r->stks[s - 1].parent == parent) return s - 1;
    bool over = r->n_stks >= (size_t)4 * STACKS_MAX;
    if (over || !GROW(r->stks, r->n_stks, r->cap_stks)) {
        run_fail(r, over ? ERR_TOO_LARGE : ERR_NO_MEMORY);
        return STK_BOTTOM;
    }
    r->stks[r->n_stks++] = (struct run_stk){.ret = ret, .parent = parent, .hash_next = *slot};
    *slot = (uint32_t)r->n_stks;
    return *slot - 1;
}

/* ---- configurations */

static int by_item(const void *a, const void *b) {
    const struct run_item *x = a, *y = b;
    if (x->q != y->q) return x->q < y->q ? -1 : 1;
    return (x->stk > y->stk) - (x->stk < y->stk);
}

static uint64_t hash_items(const struct run_item *items, size_t n, bool accepting, bool popped) {
    uint64_t h = (uint64_t)accepting * 2 + popped;
    for (size_t i = 0; i < n; i++) h = mix(h, (uint64_t)(uint32_t)items[i].q << 32 | items[i].stk);
    return h;
}

static int32_t budget_of(const struct run *r, const struct run_item *items, size_t n) {
    int32_t least = -1;
    if (r->a->budget == NULL) return -1;
    for (size_t i = 0; i < n; i++) {
        int32_t b = r->a->budget[items[i].q];
        if (b >= 0 && (least < 0 || b < least)) least = b;
    }
    return least;
}

/* items: sorted, without doubles. */
uint32_t run_intern(struct run *r, const struct run_item *items, size_t n, bool accepting,
                    bool popped) {
    if (n == 0 && !accepting && !popped) return CFG_DEAD;
    uint32_t *slot =
        &r->cfg_slots[hash_items(items, n, accepting, popped) >> 20 & (uint64_t)(CFG_SLOTS - 1)];
    for (uint32_t c = *slot; c != 0; c = r->cfgs[c - 1].hash_next) {
        const struct run_cfg *cfg = &r->cfgs[c - 1];
        if (cfg->n == n && cfg->accepting == accepting && cfg->popped == popped &&
            (n == 0 || memcmp(r->items + cfg->first, items, n * sizeof(*items)) == 0))
            return c - 1;
    }
    bool over = r->n_cfgs >= CFGS_HARD_MAX || r->n_items + n > UINT32_MAX / 2;
    if (over || !GROW(r->cfgs, r->n_cfgs, r->cap_cfgs)) {
        run_fail(r, over ? ERR_TOO_LARGE : ERR_NO_MEMORY);
        return CFG_DEAD;
    }
    uint32_t first = (uint32_t)r->n_items;
    for (size_t i = 0; i < n; i++) {
        if (!GROW(r->items, r->n_items, r->cap_items)) {
            run_fail(r, ERR_NO_MEMORY);
            return CFG_DEAD;
        }
        r->items[r->n_items++] = items[i];
    }
    r->cfgs[r->n_cfgs++] = (struct run_cfg){.first = first,
                                            .n = (uint32_t)n,
                                            .budget = budget_of(r, items, n),
                                            .accepting = accepting,
                                            .popped = popped,
                                            .hash_next = *slot};
    *slot = (uint32_t)r->n_cfgs;
    return *slot - 1;
}

/* ---- closure: calls entered, ends of rules returned from */

static void close_begin(struct run *r) {
    r->stamp++;
    r->n_todo = r->n_found = r->n_seen = 0;
    r->accepting = r->popped = false;
}

static bool seen_double(struct run *r) {
    size_t mask = r->seen_mask * 2 + 1;
    void *bigger = calloc(mask + 1, sizeof(*r->seen)), *old = r->seen;
    size_t old_mask = r->seen_mask;
    if (bigger == NULL) return false;
    __typeof__(r->seen) from = old;
    r->seen = bigger;
    r->seen_mask = mask;
    for (size_t i = 0; i <= old_mask; i++) {
        if (from[i].stamp != r->stamp) continue;
        size_t at = mix((uint32_t)from[i].item.q, from[i].item.stk) & mask;
        while (r->seen[at].stamp == r->stamp) at = (at + 1) & mask;
        r->seen[at] = from[i];
    }
    free(old);
    return true;
}

static void close_add(struct run *r, int32_t q, uint32_t stk) {
    if (r->failed) return;
    size_t at = mix((uint32_t)q, stk) & r->seen_mask;
    for (; r->seen[at].stamp == r->stamp; at = (at + 1) & r->seen_mask)
        if (r->seen[at].item.q == q && r->seen[at].item.stk == stk) return;
    r->seen[at].item = (struct run_item){q, stk};
    r->seen[at].stamp = r->stamp;
    if (++r->n_seen * 2 > r->seen_mask && !seen_double(r)) run_fail(r, ERR_NO_MEMORY);
    if (r->n_seen > (size_t)8 * CFG_ITEMS_MAX)
        run_fail(r, ERR_TOO_LARGE);
    else if (!GROW(r->todo, r->n_todo, r->cap_todo))
        run_fail(r, ERR_NO_MEMORY);
    else
        r->todo[r->n_todo++] = (struct run_item){q, stk};
}

/* A call whose return state only returns again needs no cell of its own. */
static bool returns_at_once(const struct automaton *a, int32_t q) {
    return a->accept[q] && a->byte_first[q] == a->byte_first[q + 1] &&
           a->call_first[q] == a->call_first[q + 1];
}

static uint32_t close_end(struct run *r) {
    const struct automaton *a = r->a;
    while (r->n_todo > 0 && !r->failed) {
        struct run_item it = r->todo[--r->n_todo];
        if (a->byte_first[it.q] < a->byte_first[it.q + 1]) {
            bool over = r->n_found >= CFG_ITEMS_MAX;
            if (over || !GROW(r->found, r->n_found, r->cap_found)) {
                run_fail(r, over ? ERR_TOO_LARGE : ERR_NO_MEMORY);
                break;
            }
            r->found[r->n_found++] = it;
        }
        if (a->accept[it.q]) {
            if (it.stk == STK_BOTTOM)
                r->accepting = true;
            else if (it.stk == STK_HOLE)
                r->popped = true;
            else
                close_add(r, r->stks[it.stk].ret, r->stks[it.stk].parent);
        }
        for (uint32_t i = a->call_first[it.q]; i < a->call_first[it.q + 1]; i++) {
            int32_t ret = a->calls[i].to;
            uint32_t stk = returns_at_once(a, ret) ? it.stk : run_stack(r, ret, it.stk);
            close_add(r, a->start[a->calls[i].rule], stk);
        }
    }
    count_work(r, 16 + r->n_seen);
    if (r->failed) return CFG_DEAD;
    if (r->n_found > 0) qsort(r->found, r->n_found, sizeof(*r->found), by_item);
    return run_intern(r, r->found, r->n_found, r->accepting, r->popped);
}

uint32_t run_close(struct run *r, int32_t q, uint32_t stk) {
    close_begin(r);
    close_add(r, q, stk);
    return close_end(r);
}

uint32_t run_begin(struct run *r) {
    return run_close(r, r->a->main, STK_BOTTOM);
}

uint32_t run_step(struct run *r, uint32_t cfg, uint8_t byte) {
    uint32_t *next = r->cfgs[cfg].next;
    if (next != NULL && next[byte] != 0) return next[byte] - 1;
    if (cfg == CFG_DEAD) return CFG_DEAD;
    close_begin(r);
    for (uint32_t i = 0; i < r->cfgs[cfg].n; i++) {
        struct run_item it = r->items[r->cfgs[cfg].first + i];
        for (uint32_t e = r->a->byte_first[it.q]; e < r->a->byte_first[it.q + 1]; e++)
            if (r->a->bytes[e].lo <= byte && byte <= r->a->bytes[e].hi)
                close_add(r, r->a->bytes[e].to, it.stk);
    }
    uint32_t to = close_end(r);
    if (r->failed) return CFG_DEAD;
    if (next == NULL) next = r->cfgs[cfg].next = calloc(256, sizeof(*next));
    if (next != NULL) next[byte] = to + 1; /* without memory it is found again each time */
    return to;
}

uint32_t run_force(struct run *r, uint32_t cfg) {
    const struct automaton *a = r->a;
    if (a->budget == NULL) return cfg;
    close_begin(r);
    for (uint32_t i = 0; i < r->cfgs[cfg].n; i++) {
        struct run_item it = r->items[r->cfgs[cfg].first + i];
        close_add(r, a->budget[it.q] >= 0 ? a->twin[it.q] : it.q, it.stk);
    }
    return close_end(r);
}

/* ---- forgetting */

/* A stack of the old tables, made again in the new ones; *name: [old n_stks] number + 1. */
static uint32_t stack_again(struct run *r, const struct run_stk *old, uint32_t *name, uint32_t s) {
    uint32_t chain = s, parent;
    /* Down to what is there already, then up: a chain may be long, so no recursion. Cells above
     * `chain` remember their way in `name` only after they are made. */
    while (name[s] == 0) {
        for (chain = s; name[old[chain].parent] == 0; chain = old[chain].parent) {}
        parent = name[old[chain].parent] - 1;
        name[chain] = run_stack(r, old[chain].ret, parent) + 1;
        if (r->failed) return STK_BOTTOM;
        if (chain == s) break;
        /* Next round walks down again; collecting is rare and stacks are short. */
    }
    return name[s] - 1;
}

bool run_collect(struct run *r, uint32_t **cfgs, size_t n) {
    struct run old = *r;
    uint32_t *name = calloc(old.n_stks, sizeof(*name));
    uint32_t *fresh = calloc(n + 1, sizeof(*fresh));
    bool ok = name != NULL && fresh != NULL;
    r->cfgs = NULL;
    r->items = NULL;
    r->stks = NULL;
    r->cfg_slots = r->stk_slots = NULL;
    r->n_cfgs = r->cap_cfgs = r->n_items = r->cap_items = r->n_stks = r->cap_stks = 0;
    ok = ok && tables_init(r);
    if (ok) name[STK_BOTTOM] = STK_BOTTOM + 1, name[STK_HOLE] = STK_HOLE + 1;
    for (size_t i = 0; i < n && ok; i++) {
        const struct run_cfg *c = &old.cfgs[*cfgs[i]];
        r->n_found = 0;
        for (uint32_t k = 0; k < c->n && ok; k++) {
            struct run_item it = old.items[c->first + k];
            ok = GROW(r->found, r->n_found, r->cap_found);
            if (!ok) break;
            it.stk = stack_again(r, old.stks, name, it.stk);
            r->found[r->n_found++] = it;
        }
        if (!ok) break;
        if (r->n_found > 0) qsort(r->found, r->n_found, sizeof(*r->found), by_item);
        fresh[i] = run_intern(r, r->found, r->n_found, c->accepting, c->popped);
        ok = !r->failed;
    }
    r->failed = false;
    if (ok) {
        for (size_t i = 0; i < n; i++) *cfgs[i] = fresh[i];
        for (size_t i = 0; i < old.n_cfgs; i++)
            if (old.cfgs[i].mask != NULL) r->mask_bytes -= run_mask_words(r) * sizeof(uint64_t);
        tables_fini(&old);
    } else {
        /* The new tables go, the old ones stay; what closures use was not replaced. */
        tables_fini(r);
        r->cfgs = old.cfgs;
        r->n_cfgs = old.n_cfgs;
        r->cap_cfgs = old.cap_cfgs;
        r->items = old.items;
        r->n_items = old.n_items;
        r->cap_items = old.cap_items;
        r->stks = old.stks;
        r->n_stks = old.n_stks;
        r->cap_stks = old.cap_stks;
        r->cfg_slots = old.cfg_slots;
        r->stk_slots = old.stk_slots;
    }
    free(name);
    free(fresh);
    return ok;
}
