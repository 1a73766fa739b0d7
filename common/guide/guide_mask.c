/* guide_mask: which tokens a configuration allows.
 *
 * A state within one rule allows most of its tokens whatever lies under it on the stack: a string's
 * characters do not depend on the object they are in. These "local" tokens are found once per
 * state, by walking the trie with a hole in place of the stack; where the rule ends in the middle
 * of a token, the node is noted, and only the part of the trie below such nodes is walked again
 * with the true stack. The mask of a configuration is the union over its states; it is kept. */
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/guide/grow.h"
#include "common/guide/guide_run.h"

enum { WIDE_BYTES = 48, SPARSE_SHARE = 64 };

size_t run_mask_words(const struct run *r) {
    return ((size_t)r->v->n_ids + 63) / 64;
}

static void set_tokens(const struct guide_vocab *v, uint32_t node, uint64_t *bits) {
    for (uint32_t i = v->tok_first[node]; i < v->tok_first[node + 1]; i++)
        bits[v->toks[i] >> 6] |= UINT64_C(1) << (v->toks[i] & 63);
}

/* Nodes below `top` along which the configuration lives. nodes: where a hole shows, may be NULL. */
static void walk(struct run *r, uint32_t top, uint32_t cfg, uint64_t *bits, struct run_local *local,
                 size_t *cap_nodes) {
    const struct guide_vocab *v = r->v;
    uint32_t at[WALK_DEPTH_MAX], base = v->depth[top];
    at[0] = cfg;
    for (uint32_t node = top + 1; node < v->end[top] && !r->failed;) {
        uint32_t depth = v->depth[node] - base;
        uint32_t to = run_step(r, at[depth - 1], v->byte[node]);
        if (to == CFG_DEAD) {
            node = v->end[node];
            continue;
        }
        at[depth] = to;
        set_tokens(v, node, bits);
        if (local != NULL && r->cfgs[to].popped && v->end[node] > node + 1) {
            size_t n = local->n_nodes;
            if (!GROW(local->nodes, n, *cap_nodes)) {
                run_fail(r, ERR_NO_MEMORY);
                return;
            }
            local->nodes[local->n_nodes++] = node;
        }
        node = r->cfgs[to].n == 0 ? v->end[node] : node + 1;
    }
}

/* Few bits become a list. */
static void local_pack(struct run *r, struct run_local *l) {
    size_t words = run_mask_words(r), n = 0;
    for (size_t i = 0; i < words; i++) n += (size_t)__builtin_popcountll(l->bits[i]);
    if (n > (size_t)r->v->n_ids / SPARSE_SHARE) {
        r->mask_bytes += words * sizeof(uint64_t);
        return;
    }
    l->ids = malloc((n + 1) * sizeof(*l->ids));
    if (l->ids == NULL) {
        r->mask_bytes += words * sizeof(uint64_t);
        return;
    }
    for (size_t i = 0; i < words; i++)
        for (uint64_t w = l->bits[i]; w != 0; w &= w - 1)
            l->ids[l->n_ids++] = (int32_t)(i * 64) + __builtin_ctzll(w);
    free(l->bits);
    l->bits = NULL;
}

static const struct run_local *local_of(struct run *r, int32_t q) {
    struct run_local *l = &r->locals[q];
    struct run_item it = {q, STK_HOLE};
    size_t cap = 0;
    if (l->known) return l;
    l->bits = calloc(run_mask_words(r), sizeof(uint64_t));
    if (l->bits == NULL) {
        run_fail(r, ERR_NO_MEMORY);
        return NULL;
    }
    uint32_t cfg = run_intern(r, &it, 1, false, false);
    if (!r->failed) walk(r, 0, cfg, l->bits, l, &cap);
    if (r->failed) {
        free(l->bits);
        free(l->nodes);
        *l = (struct run_local){0};
        return NULL;
    }
    local_pack(r, l);
    l->known = true;
    return l;
}

static bool add_item(struct run *r, struct run_item it, uint64_t *bits) {
    const struct run_local *l = local_of(r, it.q);
    if (l == NULL) return false;
    if (l->bits != NULL) {
        size_t words = run_mask_words(r);
        for (size_t i = 0; i < words; i++) bits[i] |= l->bits[i];
    }
    for (uint32_t i = 0; i < l->n_ids; i++) bits[l->ids[i] >> 6] |= UINT64_C(1) << (l->ids[i] & 63);
    if (it.stk == STK_BOTTOM || it.stk == STK_HOLE || l->n_nodes == 0) return true;
    uint32_t under = run_close(r, r->stks[it.stk].ret, r->stks[it.stk].parent);
    for (uint32_t i = 0; i < l->n_nodes && !r->failed; i++)
        walk(r, l->nodes[i], under, bits, NULL, NULL);
    return !r->failed;
}

/* ---- configurations that cannot be told apart by one token */

static uint32_t canon_stack(struct run *r, uint32_t s) {
    uint32_t bottom = s;
    while (r->stks[s].canon == 0 && !r->failed) {
        /* The lowest cell without a name first. */
        for (bottom = s; r->stks[r->stks[bottom].parent].canon == 0;
             bottom = r->stks[bottom].parent) {}
        uint32_t parent = r->stks[r->stks[bottom].parent].canon - 1;
        uint32_t c = run_stack(r, r->a->alike[r->stks[bottom].ret], parent);
        r->stks[bottom].canon = c + 1;
        r->stks[c].canon = c + 1;
    }
    return r->stks[s].canon - 1;
}

static int by_item(const void *a, const void *b) {
    const struct run_item *x = a, *y = b;
    if (x->q != y->q) return x->q < y->q ? -1 : 1;
    return (x->stk > y->stk) - (x->stk < y->stk);
}

static uint32_t canon_of(struct run *r, uint32_t cfg) {
    if (r->cfgs[cfg].canon != 0) return r->cfgs[cfg].canon - 1;
    size_t n = r->cfgs[cfg].n, kept = 0;
    struct run_item *items = malloc((n + 1) * sizeof(*items));
    if (items == NULL) {
        run_fail(r, ERR_NO_MEMORY);
        return CFG_DEAD;
    }
    for (size_t i = 0; i < n && !r->failed; i++) {
        struct run_item it = r->items[r->cfgs[cfg].first + i];
        items[i].stk = canon_stack(r, it.stk);
        items[i].q = r->a->alike[it.q];
    }
    if (n > 1) qsort(items, n, sizeof(*items), by_item);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || by_item(&items[kept - 1], &items[i]) != 0) items[kept++] = items[i];
    uint32_t c = r->failed ? CFG_DEAD : run_intern(r, items, kept, r->cfgs[cfg].accepting, false);
    free(items);
    if (r->failed) return CFG_DEAD;
    r->cfgs[c].canon = c + 1;
    r->cfgs[cfg].canon = c + 1;
    return c;
}

void run_forget_masks(struct run *r) {
    size_t bytes = run_mask_words(r) * sizeof(uint64_t);
    for (size_t i = 0; i < r->n_cfgs; i++) {
        if (r->cfgs[i].mask != NULL) r->mask_bytes -= bytes;
        free(r->cfgs[i].mask);
        r->cfgs[i].mask = NULL;
    }
    if (r->mask_bytes <= MASK_BYTES_MAX / 2) return;
    for (int32_t q = 0; q < r->a->n_states; q++) {
        struct run_local *l = &r->locals[q];
        if (l->bits != NULL) r->mask_bytes -= bytes;
        free(l->bits);
        free(l->ids);
        free(l->nodes);
        *l = (struct run_local){0};
    }
}

const uint64_t *run_mask(struct run *r, uint32_t cfg, uint64_t *scratch) {
    size_t words = run_mask_words(r);
    cfg = canon_of(r, cfg);
    if (r->failed) return NULL;
    if (r->cfgs[cfg].mask != NULL) return r->cfgs[cfg].mask;
    if (r->mask_bytes > MASK_BYTES_MAX) run_forget_masks(r);
    memset(scratch, 0, words * sizeof(*scratch));
    for (uint32_t i = 0; i < r->cfgs[cfg].n; i++)
        if (!add_item(r, r->items[r->cfgs[cfg].first + i], scratch)) return NULL;
    uint64_t *mask = malloc(words * sizeof(*mask));
    if (mask == NULL) return scratch;
    memcpy(mask, scratch, words * sizeof(*mask));
    r->cfgs[cfg].mask = mask;
    r->mask_bytes += words * sizeof(*mask);
    return mask;
}

static uint32_t blank_below(const struct guide_vocab *v, uint32_t node) {
    for (uint32_t at = node + 1; at < v->end[node]; at = v->end[at])
        if (v->byte[at] == ' ') return at;
    return 0;
}

static void clear_below(const struct guide_vocab *v, uint32_t node, uint64_t *bits) {
    for (uint32_t i = v->tok_first[node]; i < v->tok_first[v->end[node]]; i++)
        bits[v->toks[i] >> 6] &= ~(UINT64_C(1) << (v->toks[i] & 63));
}

const uint64_t *run_mask_cut(struct run *r, uint32_t cfg, struct detok_cut cut,
                             const uint64_t *mask, uint64_t *scratch) {
    const struct guide_vocab *v = r->v;
    uint32_t node = blank_below(v, 0);
    if (mask != scratch) memcpy(scratch, mask, run_mask_words(r) * sizeof(*scratch));
    for (uint32_t k = 0; node != 0 && k < cut.n && !r->failed; k++) {
        clear_below(v, node, scratch); /* as if the blank were text */
        set_tokens(v, node, scratch);  /* nothing but cut blanks */
        walk(r, node, cfg, scratch, NULL, NULL);
        node = blank_below(v, node);
    }
    return r->failed ? NULL : scratch;
}

void run_warm(struct run *r, uint64_t deadline_us) {
    for (int32_t q = 0; q < r->a->n_states; q++) {
        int width = 0;
        for (uint32_t e = r->a->byte_first[q]; e < r->a->byte_first[q + 1]; e++)
            width += r->a->bytes[e].hi - r->a->bytes[e].lo + 1;
        if (r->a->alike[q] != q || width < WIDE_BYTES) continue;
        if (clock_thread_us() > deadline_us || run_is_full(r) || r->mask_bytes > MASK_BYTES_MAX / 2)
            return;
        (void)local_of(r, q);
        r->failed = false;
    }
}
