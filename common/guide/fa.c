/* fa: subset construction over ranges, products, and sets of code points. */
#include "common/guide/fa.h"

#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/guide/grow.h"

/* ---- building */

void nfa_fini(struct nfa *a) {
    free(a->edges);
    *a = (struct nfa){0};
}

int32_t nfa_state(struct nfa *a) {
    if (a->n_states >= NFA_STATES_MAX) {
        if (a->err == ERR_OK) a->err = ERR_TOO_LARGE;
        return 0;
    }
    return a->n_states++;
}

void nfa_range(struct nfa *a, int32_t from, uint32_t lo, uint32_t hi, int32_t to) {
    if (a->err != ERR_OK) return;
    if (a->n >= (size_t)4 * NFA_STATES_MAX) {
        a->err = ERR_TOO_LARGE;
        return;
    }
    if (!GROW(a->edges, a->n, a->cap)) {
        a->err = ERR_NO_MEMORY;
        return;
    }
    a->edges[a->n++] = (struct nfa_edge){.from = from, .to = to, .lo = lo, .hi = hi};
}

void nfa_eps(struct nfa *a, int32_t from, int32_t to) {
    if (from != to) nfa_range(a, from, 1, 0, to);
}

int32_t nfa_text(struct nfa *a, int32_t from, const char *s, size_t n, int32_t to) {
    if (n == 0) {
        if (to < 0) return from;
        nfa_eps(a, from, to);
        return to;
    }
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        uint32_t cp = len == 1 ? c : c & (0x7Fu >> len);
        for (size_t k = 1; k < len && i + k < n; k++) cp = cp << 6 | ((unsigned char)s[i + k] & 63);
        i += len;
        int32_t next = i >= n && to >= 0 ? to : nfa_state(a);
        nfa_range(a, from, cp, cp, next);
        from = next;
    }
    return from;
}

void nfa_add_fa(struct nfa *a, int32_t from, const struct fa *f, int32_t to) {
    int32_t base = a->n_states;
    for (int32_t q = 0; q < f->n_states; q++) nfa_state(a);
    if (a->err != ERR_OK || f->n_states == 0) return;
    nfa_eps(a, from, base);
    for (int32_t q = 0; q < f->n_states; q++) {
        if (f->accept[q]) nfa_eps(a, base + q, to);
        for (uint32_t e = f->first[q]; e < f->first[q + 1]; e++)
            nfa_range(a, base + q, f->edges[e].lo, f->edges[e].hi, base + f->edges[e].to);
    }
}

void fa_fini(struct fa *f) {
    free(f->accept);
    free(f->first);
    free(f->edges);
    *f = (struct fa){0};
}

/* ---- growing a result, state by state in order */

struct fa_out {
    struct fa *f;
    size_t cap_states, cap_first, n_edges, cap_edges, n_first;
};

static bool out_state(struct fa_out *o, bool accept) {
    size_t n = (size_t)o->f->n_states;
    if (!GROW(o->f->accept, n, o->cap_states)) return false;
    o->f->accept[o->f->n_states++] = accept;
    return true;
}

/* Marks the beginning of the next state's edges. */
static bool out_begin(struct fa_out *o) {
    if (!GROW(o->f->first, o->n_first, o->cap_first)) return false;
    o->f->first[o->n_first++] = (uint32_t)o->n_edges;
    return true;
}

static bool out_edge(struct fa_out *o, uint32_t lo, uint32_t hi, int32_t to) {
    size_t begin = o->f->first[o->n_first - 1];
    if (o->n_edges > begin) {
        struct fa_edge *last = &o->f->edges[o->n_edges - 1];
        if (last->to == to && last->hi + 1 == lo && (lo & FA_CALL) == 0 && (lo & FA_TOKEN) == 0) {
            last->hi = hi;
            return true;
        }
    }
    if (!GROW(o->f->edges, o->n_edges, o->cap_edges)) return false;
    o->f->edges[o->n_edges++] = (struct fa_edge){.lo = lo, .hi = hi, .to = to};
    return true;
}

/* ---- subset construction */

struct subset {
    const struct nfa *a;
    const struct work_limit *work;
    int32_t end;
    uint32_t *sym_first, *eps_first; /* [n_states + 1] */
    uint32_t *sym, *eps;             /* edge numbers by state */
    uint32_t *mark, stamp;           /* [n_states] */
    int32_t *todo;                   /* [n_states] */
    int32_t *set;                    /* [n_states] the set being made */
    size_t n_set;

    int32_t *members; /* of all known sets, one behind the other */
    size_t n_members, cap_members;
    size_t *set_first; /* [n_sets + 1] */
    size_t n_sets, cap_sets;
    uint32_t *slots; /* [slot_mask + 1] set + 1 */
    size_t slot_mask;

    struct nfa_edge *pick; /* edges that leave the present set */
    size_t n_pick, cap_pick;
};

static void subset_fini(struct subset *s) {
    free(s->sym_first);
    free(s->eps_first);
    free(s->sym);
    free(s->eps);
    free(s->mark);
    free(s->todo);
    free(s->set);
    free(s->members);
    free(s->set_first);
    free(s->slots);
    free(s->pick);
}

static bool subset_init(struct subset *s) {
    size_t n = (size_t)s->a->n_states;
    s->sym_first = calloc(n + 2, sizeof(*s->sym_first));
    s->eps_first = calloc(n + 2, sizeof(*s->eps_first));
    s->sym = calloc(s->a->n + 1, sizeof(*s->sym));
    s->eps = calloc(s->a->n + 1, sizeof(*s->eps));
    s->mark = calloc(n, sizeof(*s->mark));
    s->todo = calloc(n, sizeof(*s->todo));
    s->set = calloc(n, sizeof(*s->set));
    s->slot_mask = 1023;
    s->slots = calloc(s->slot_mask + 1, sizeof(*s->slots));
    if (s->sym_first == NULL || s->eps_first == NULL || s->sym == NULL || s->eps == NULL ||
        s->mark == NULL || s->todo == NULL || s->set == NULL || s->slots == NULL)
        return false;
    for (size_t i = 0; i < s->a->n; i++) {
        const struct nfa_edge *e = &s->a->edges[i];
        (e->lo > e->hi ? s->eps_first : s->sym_first)[e->from + 2]++;
    }
    for (size_t i = 2; i <= n + 1; i++) {
        s->sym_first[i] += s->sym_first[i - 1];
        s->eps_first[i] += s->eps_first[i - 1];
    }
    for (size_t i = 0; i < s->a->n; i++) {
        const struct nfa_edge *e = &s->a->edges[i];
        if (e->lo > e->hi)
            s->eps[s->eps_first[e->from + 1]++] = (uint32_t)i;
        else
            s->sym[s->sym_first[e->from + 1]++] = (uint32_t)i;
    }
    return true;
}

static int by_id(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Starts a new set. */
static void set_clear(struct subset *s) {
    s->stamp++;
    s->n_set = 0;
}

/* Adds q and what empty moves reach; keeps states that have edges, and the end. */
static void set_add(struct subset *s, int32_t q) {
    size_t n = 0;
    if (s->mark[q] == s->stamp) return;
    s->mark[q] = s->stamp;
    s->todo[n++] = q;
    while (n > 0) {
        q = s->todo[--n];
        if (q == s->end || s->sym_first[q + 1] > s->sym_first[q]) s->set[s->n_set++] = q;
        for (uint32_t i = s->eps_first[q]; i < s->eps_first[q + 1]; i++) {
            int32_t to = s->a->edges[s->eps[i]].to;
            if (s->mark[to] == s->stamp) continue;
            s->mark[to] = s->stamp;
            s->todo[n++] = to;
        }
    }
}

static uint64_t hash_ids(const int32_t *ids, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint32_t)ids[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return h;
}

static bool slots_double(struct subset *s) {
    size_t mask = s->slot_mask * 2 + 1;
    uint32_t *slots = calloc(mask + 1, sizeof(*slots));
    if (slots == NULL) return false;
    for (size_t k = 0; k < s->n_sets; k++) {
        size_t at =
            hash_ids(s->members + s->set_first[k], s->set_first[k + 1] - s->set_first[k]) & mask;
        while (slots[at] != 0) at = (at + 1) & mask;
        slots[at] = (uint32_t)k + 1;
    }
    free(s->slots);
    s->slots = slots;
    s->slot_mask = mask;
    return true;
}

/* The number of the set under construction, a new one when it is not known; -1: no memory. */
static int32_t set_find(struct subset *s, struct fa_out *o) {
    if (s->n_set > 1) qsort(s->set, s->n_set, sizeof(*s->set), by_id);
    size_t at = hash_ids(s->set, s->n_set) & s->slot_mask;
    for (; s->slots[at] != 0; at = (at + 1) & s->slot_mask) {
        size_t k = s->slots[at] - 1, n = s->set_first[k + 1] - s->set_first[k];
        if (n == s->n_set && memcmp(s->members + s->set_first[k], s->set, n * sizeof(*s->set)) == 0)
            return (int32_t)k;
    }
    bool accept = false;
    for (size_t i = 0; i < s->n_set; i++) {
        if (!GROW(s->members, s->n_members, s->cap_members)) return -1;
        s->members[s->n_members++] = s->set[i];
        accept |= s->set[i] == s->end;
    }
    size_t n_first = s->n_sets + 1;
    if (!GROW(s->set_first, n_first, s->cap_sets)) return -1;
    if (s->n_sets == 0) s->set_first[0] = 0;
    s->set_first[++s->n_sets] = s->n_members;
    s->slots[at] = (uint32_t)s->n_sets;
    if (s->n_sets * 2 > s->slot_mask && !slots_double(s)) return -1;
    return out_state(o, accept) ? (int32_t)s->n_sets - 1 : -1;
}

static int by_range(const void *a, const void *b) {
    const struct nfa_edge *x = a, *y = b;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return (x->hi > y->hi) - (x->hi < y->hi);
}

static bool pick_edges(struct subset *s, size_t k) {
    s->n_pick = 0;
    for (size_t i = s->set_first[k]; i < s->set_first[k + 1]; i++) {
        int32_t q = s->members[i];
        for (uint32_t e = s->sym_first[q]; e < s->sym_first[q + 1]; e++) {
            if (!GROW(s->pick, s->n_pick, s->cap_pick)) return false;
            s->pick[s->n_pick++] = s->a->edges[s->sym[e]];
        }
    }
    if (s->n_pick > 1) qsort(s->pick, s->n_pick, sizeof(*s->pick), by_range);
    return true;
}

/* Edges of one set: cuts the ranges of its members where they begin and end. */
static bool expand(struct subset *s, size_t k, struct fa_out *o) {
    if (!out_begin(o) || !pick_edges(s, k)) return false;
    size_t i = 0;
    uint64_t at = 0; /* symbols below are done */
    while (i < s->n_pick) {
        if (s->pick[i].lo > at) at = s->pick[i].lo;
        /* The segment that begins at `at` ends where the nearest range begins or ends. */
        uint64_t stop = UINT64_MAX;
        size_t j = i;
        set_clear(s);
        for (; j < s->n_pick && s->pick[j].lo <= at; j++) {
            if (s->pick[j].hi < at) continue;
            if ((uint64_t)s->pick[j].hi + 1 < stop) stop = (uint64_t)s->pick[j].hi + 1;
            set_add(s, s->pick[j].to);
        }
        if (j < s->n_pick && s->pick[j].lo < stop) stop = s->pick[j].lo;
        if (stop != UINT64_MAX) {
            int32_t to = set_find(s, o);
            if (to < 0 || !out_edge(o, (uint32_t)at, (uint32_t)(stop - 1), to)) return false;
            at = stop;
        }
        while (i < s->n_pick && s->pick[i].hi < at) i++;
        if (stop == UINT64_MAX && i < s->n_pick && s->pick[i].lo > at) at = s->pick[i].lo;
    }
    return true;
}

/* The automaton without empty moves, with the states as they are. */
static enum err plain(struct subset *s, int32_t start, struct fa *out) {
    struct fa_out o = {.f = out};
    int32_t *name = malloc((size_t)s->a->n_states * sizeof(*name));
    int32_t *order = malloc((size_t)s->a->n_states * sizeof(*order));
    enum err e = ERR_NO_MEMORY, over;
    int32_t n = 0;
    if (name == NULL || order == NULL) goto end;
    memset(name, -1, (size_t)s->a->n_states * sizeof(*name));
    name[start] = n;
    order[n++] = start;
    for (int32_t k = 0; k < n; k++) {
        bool accept = false;
        if ((k & 255) == 0 && (over = work_limit_check(s->work)) != ERR_OK) {
            e = over;
            goto end;
        }
        set_clear(s);
        set_add(s, order[k]);
        s->n_pick = 0;
        for (size_t i = 0; i < s->n_set; i++) {
            int32_t q = s->set[i];
            accept |= q == s->end;
            for (uint32_t x = s->sym_first[q]; x < s->sym_first[q + 1]; x++) {
                if (!GROW(s->pick, s->n_pick, s->cap_pick)) goto end;
                s->pick[s->n_pick++] = s->a->edges[s->sym[x]];
            }
        }
        if (s->n_pick > 1) qsort(s->pick, s->n_pick, sizeof(*s->pick), by_range);
        if (!out_state(&o, accept) || !out_begin(&o)) goto end;
        for (size_t i = 0; i < s->n_pick; i++) {
            int32_t to = s->pick[i].to;
            if (name[to] < 0) {
                name[to] = n;
                order[n++] = to;
            }
            if (!out_edge(&o, s->pick[i].lo, s->pick[i].hi, name[to])) goto end;
        }
        if (o.n_edges > (size_t)4 * NFA_STATES_MAX) {
            e = ERR_TOO_LARGE;
            goto end;
        }
    }
    e = out_begin(&o) ? ERR_OK : ERR_NO_MEMORY;
end:
    free(name);
    free(order);
    if (e != ERR_OK) fa_fini(out);
    return e;
}

enum err fa_build(struct fa *out, const struct nfa *a, int32_t start, int32_t end,
                  const struct work_limit *w) {
    struct subset s = {.a = a, .work = w, .end = end};
    struct fa_out o = {.f = out};
    size_t sets_max = (size_t)a->n_states * 2 + 1000,
           members_max = (size_t)a->n_states * 32 + 100000;
    enum err e = ERR_NO_MEMORY, over;
    *out = (struct fa){0};
    if (a->err != ERR_OK) return a->err;
    if (!subset_init(&s)) goto end;
    set_clear(&s);
    set_add(&s, start);
    if (set_find(&s, &o) < 0) goto end;
    for (size_t k = 0; k < s.n_sets; k++) {
        if ((k & 63) == 0 && (over = work_limit_check(w)) != ERR_OK) {
            e = over;
            goto end;
        }
        if (s.n_sets > sets_max || s.n_members > members_max) {
            fa_fini(out);
            e = plain(&s, start, out);
            subset_fini(&s);
            return e;
        }
        if (!expand(&s, k, &o)) goto end;
    }
    if (out_begin(&o)) e = ERR_OK;
end:
    subset_fini(&s);
    if (e != ERR_OK) fa_fini(out);
    return e;
}

/* ---- products */

struct pairs {
    uint64_t *pair; /* [n] state of a << 32 | state of b */
    size_t n, cap;
    uint32_t *slots;
    size_t mask;
};

static uint64_t hash_pair(uint64_t v) {
    v *= 0x9E3779B97F4A7C15u;
    return v ^ v >> 29;
}

static int32_t pair_find(struct pairs *p, uint64_t v) {
    size_t at = hash_pair(v) & p->mask;
    for (; p->slots[at] != 0; at = (at + 1) & p->mask)
        if (p->pair[p->slots[at] - 1] == v) return (int32_t)p->slots[at] - 1;
    if (!GROW(p->pair, p->n, p->cap)) return -1;
    p->pair[p->n++] = v;
    p->slots[at] = (uint32_t)p->n;
    if (p->n * 2 > p->mask) {
        size_t mask = p->mask * 2 + 1;
        uint32_t *slots = calloc(mask + 1, sizeof(*slots));
        if (slots == NULL) return -1;
        for (size_t i = 0; i < p->n; i++) {
            size_t k = hash_pair(p->pair[i]) & mask;
            while (slots[k] != 0) k = (k + 1) & mask;
            slots[k] = (uint32_t)i + 1;
        }
        free(p->slots);
        p->slots = slots;
        p->mask = mask;
    }
    return (int32_t)p->n - 1;
}

enum err fa_and(struct fa *out, const struct fa *a, const struct fa *b,
                const struct work_limit *w) {
    struct pairs p = {.mask = 1023};
    struct fa_out o = {.f = out};
    enum err e = ERR_NO_MEMORY, over;
    *out = (struct fa){0};
    p.slots = calloc(p.mask + 1, sizeof(*p.slots));
    if (p.slots == NULL || pair_find(&p, 0) < 0) goto end;
    for (size_t k = 0; k < p.n; k++) {
        int32_t qa = (int32_t)(p.pair[k] >> 32), qb = (int32_t)(uint32_t)p.pair[k];
        if ((k & 255) == 0 && (over = work_limit_check(w)) != ERR_OK) {
            e = over;
            goto end;
        }
        if (p.n > NFA_STATES_MAX) {
            e = ERR_TOO_LARGE;
            goto end;
        }
        if (!out_state(&o, a->accept[qa] && b->accept[qb]) || !out_begin(&o)) goto end;
        for (uint32_t i = a->first[qa]; i < a->first[qa + 1]; i++)
            for (uint32_t j = b->first[qb]; j < b->first[qb + 1]; j++) {
                const struct fa_edge *x = &a->edges[i], *y = &b->edges[j];
                uint32_t lo = x->lo > y->lo ? x->lo : y->lo, hi = x->hi < y->hi ? x->hi : y->hi;
                if (lo > hi) continue;
                int32_t to = pair_find(&p, (uint64_t)(uint32_t)x->to << 32 | (uint32_t)y->to);
                if (to < 0 || !out_edge(&o, lo, hi, to)) goto end;
            }
    }
    if (out_begin(&o)) e = ERR_OK;
end:
    free(p.pair);
    free(p.slots);
    if (e != ERR_OK) fa_fini(out);
    return e;
}

enum err fa_is_empty(const struct fa *f, bool *empty) {
    int32_t *todo = malloc(((size_t)f->n_states + 1) * sizeof(*todo));
    uint8_t *seen = calloc((size_t)f->n_states + 1, 1);
    int32_t n = 0;
    *empty = true;
    if (todo == NULL || seen == NULL) {
        free(todo);
        free(seen);
        return ERR_NO_MEMORY;
    }
    if (f->n_states > 0) {
        todo[n++] = 0;
        seen[0] = 1;
    }
    while (n > 0 && *empty) {
        int32_t q = todo[--n];
        if (f->accept[q]) *empty = false;
        for (uint32_t e = f->first[q]; e < f->first[q + 1]; e++)
            if (!seen[f->edges[e].to]) {
                seen[f->edges[e].to] = 1;
                todo[n++] = f->edges[e].to;
            }
    }
    free(todo);
    free(seen);
    return ERR_OK;
}

/* ---- sets of code points */

void cset_fini(struct cset *s) {
    free(s->r);
    *s = (struct cset){0};
}

void cset_add(struct cset *s, uint32_t lo, uint32_t hi) {
    if (lo > hi || s->failed) return;
    if (!GROW(s->r, s->n, s->cap)) {
        s->failed = true;
        return;
    }
    s->r[s->n++] = (struct crange){lo, hi};
}

void cset_add_all(struct cset *s, const struct cset *other) {
    for (size_t i = 0; i < other->n; i++) cset_add(s, other->r[i].lo, other->r[i].hi);
}

static int by_lo(const void *a, const void *b) {
    const struct crange *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void cset_normal(struct cset *s) {
    size_t n = 0;
    if (s->n == 0) return;
    qsort(s->r, s->n, sizeof(*s->r), by_lo);
    for (size_t i = 1; i < s->n; i++) {
        if (s->r[i].lo <= s->r[n].hi || s->r[i].lo == s->r[n].hi + 1) {
            if (s->r[i].hi > s->r[n].hi) s->r[n].hi = s->r[i].hi;
        } else {
            s->r[++n] = s->r[i];
        }
    }
    s->n = n + 1;
}

void cset_negate(struct cset *s) {
    struct cset out = {0};
    uint32_t at = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->r[i].lo > at) cset_add(&out, at, s->r[i].lo - 1);
        at = s->r[i].hi + 1;
    }
    if (at <= CP_MAX) cset_add(&out, at, CP_MAX);
    out.failed |= s->failed;
    cset_fini(s);
    *s = out;
    cset_remove(s, 0xD800, 0xDFFF);
}

void cset_remove(struct cset *s, uint32_t lo, uint32_t hi) {
    struct cset out = {0};
    for (size_t i = 0; i < s->n; i++) {
        struct crange r = s->r[i];
        if (r.hi < lo || r.lo > hi) {
            cset_add(&out, r.lo, r.hi);
            continue;
        }
        if (r.lo < lo) cset_add(&out, r.lo, lo - 1);
        if (r.hi > hi) cset_add(&out, hi + 1, r.hi);
    }
    out.failed |= s->failed;
    cset_fini(s);
    *s = out;
}
