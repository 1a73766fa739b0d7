/* guide: compiled guides, the states of sequences that follow them, and the cache. */
#include "common/guide/guide.h"

#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/guide/grow.h"
#include "common/guide/guide_build.h"
#include "common/guide/guide_run.h"
#include "proto/json.h"

enum { WARM_MS_MAX = 100 };

struct guide_state {
    struct guide *g;
    struct guide_state *prev, *next; /* of the guide */
    uint32_t cfg;
    int64_t n_free;       /* tokens of free text since it began */
    struct detok_cut cut; /* blanks of the next tokens that are no text */
    bool ended;           /* end of sequence was taken */
    enum err why;         /* ERR_OK, or why the guide gave this sequence up */
};

struct guide {
    atomic_int refs;
    const struct guide_vocab *v;
    struct automaton a;
    pthread_mutex_t lock; /* of all below */
    struct run run;
    struct guide_state *states;
    size_t n_states;
    uint64_t *scratch;
    bool lock_made;
};

/* ---- compiling */

static void guide_free(struct guide *g) {
    run_fini(&g->run);
    automaton_fini(&g->a);
    if (g->lock_made) pthread_mutex_destroy(&g->lock);
    free(g->scratch);
    free(g);
}

static void build_fini(struct build *b) {
    net_fini(&b->net);
    for (size_t i = b->n_owned; i-- > 0;) json_put(b->owned[i]);
    free(b->owned);
    free(b->refs);
}

enum err guide_compile(struct guide **out, const struct guide_vocab *v, const char *text, size_t n,
                       const atomic_bool *cancelled, struct errbuf *eb) {
    struct errbuf own = {.code = ERR_OK};
    struct build b = {.v = v, .eb = eb != NULL ? eb : &own};
    struct guide *g = calloc(1, sizeof(*g));
    enum err e;
    *out = NULL;
    if (g == NULL) return err_set(eb, ERR_NO_MEMORY, "out of memory");
    *b.eb = (struct errbuf){.code = ERR_OK};
    b.net.eb = b.eb;
    b.net.compile_ms = v->compile_ms;
    b.net.work = work_limit_start(v->compile_ms, cancelled);
    for (int i = 0; i < RULE_COUNT; i++) b.shared[i] = -1;
    atomic_init(&g->refs, 1);
    g->v = v;
    const uint32_t failures = json_failures();
    e = guide_build(&b, text, n);
    if (json_failures() != failures) /* a schema made of others may lack a part */
        e = err_set(b.eb, ERR_NO_MEMORY, "out of memory");
    if (e == ERR_OK) e = automaton_make(&g->a, &b.net, v->token_bytes_max);
    if (e != ERR_OK) net_fail(&b.net, e);
    build_fini(&b);
    if (e == ERR_OK) {
        g->lock_made = pthread_mutex_init(&g->lock, NULL) == 0;
        bool ok = g->lock_made && run_init(&g->run, &g->a, v);
        g->scratch = ok ? calloc(run_mask_words(&g->run), sizeof(*g->scratch)) : NULL;
        if (g->scratch == NULL) e = err_set(eb, ERR_NO_MEMORY, "out of memory");
    }
    if (e != ERR_OK) {
        guide_free(g);
        return e;
    }
    run_warm(&g->run, clock_thread_us() + WARM_MS_MAX * 1000);
    *out = g;
    return ERR_OK;
}

struct guide *guide_ref(struct guide *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void guide_unref(struct guide **g) {
    if (*g != NULL && atomic_fetch_sub(&(*g)->refs, 1) == 1) guide_free(*g);
    *g = NULL;
}

/* ---- states; the lock is held */

/* Room in the tables of the run, before a step that may need some. */
static void make_room(struct guide *g) {
    if (!run_is_full(&g->run)) return;
    uint32_t **cfgs = calloc(g->n_states + 1, sizeof(*cfgs));
    size_t n = 0;
    if (cfgs == NULL) return;
    for (struct guide_state *s = g->states; s != NULL; s = s->next) cfgs[n++] = &s->cfg;
    (void)run_collect(&g->run, cfgs,
                      n); /* without memory the tables grow on, to their hard bound */
    free(cfgs);
}

/* Free text that has had its tokens is cut short. */
static void check_budget(struct guide_state *s) {
    struct run *r = &s->g->run;
    int32_t budget = r->cfgs[s->cfg].budget;
    if (budget >= 0 && s->n_free >= budget) s->cfg = run_force(r, s->cfg);
    if (r->cfgs[s->cfg].budget < 0) s->n_free = 0;
}

static void link_state(struct guide *g, struct guide_state *s) {
    s->g = guide_ref(g);
    s->prev = NULL;
    s->next = g->states;
    if (s->next != NULL) s->next->prev = s;
    g->states = s;
    g->n_states++;
}

static void *state_fork(const void *state) {
    const struct guide_state *from = state;
    struct guide *g = from->g;
    struct guide_state *s = malloc(sizeof(*s));
    if (s == NULL) return NULL;
    pthread_mutex_lock(&g->lock);
    *s = *from;
    link_state(g, s);
    pthread_mutex_unlock(&g->lock);
    return s;
}

static void state_free(void *state) {
    struct guide_state *s = state;
    if (s == NULL) return;
    struct guide *g = s->g;
    pthread_mutex_lock(&g->lock);
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        g->states = s->next;
    if (s->next != NULL) s->next->prev = s->prev;
    g->n_states--;
    pthread_mutex_unlock(&g->lock);
    free(s);
    guide_unref(&g);
}

/* The run has failed under the sequence: what it may still say is not known. */
static void give_up(struct guide_state *s) {
    if (s->why == ERR_OK) s->why = s->g->run.failed ? s->g->run.why : ERR_NO_MEMORY;
    s->cfg = CFG_DEAD;
}

static enum err state_failed(const void *state) {
    return ((const struct guide_state *)state)->why;
}

static bool state_mask(void *state, uint64_t *bits, int n_ids) {
    struct guide_state *s = state;
    struct guide *g = s->g;
    size_t words = ((size_t)n_ids + 63) / 64, have = run_mask_words(&g->run);
    const uint64_t *mask = NULL;
    bool any = false;
    memset(bits, 0, words * sizeof(*bits));
    pthread_mutex_lock(&g->lock);
    if (!s->ended && s->cfg != CFG_DEAD) {
        make_room(g);
        run_step_begin(&g->run, g->v->step_ms);
        mask = run_mask(&g->run, s->cfg, g->scratch);
        if (mask != NULL && s->cut.n > 0)
            mask = run_mask_cut(&g->run, s->cfg, s->cut, mask, g->scratch);
        if (mask == NULL) give_up(s);
        run_step_begin(&g->run, 0);
    }
    if (mask != NULL) memcpy(bits, mask, (words < have ? words : have) * sizeof(*bits));
    if (mask != NULL && g->run.cfgs[s->cfg].accepting)
        for (int i = 0; i < g->v->n_eos; i++)
            if (g->v->eos[i] < n_ids) bits[g->v->eos[i] >> 6] |= UINT64_C(1) << (g->v->eos[i] & 63);
    pthread_mutex_unlock(&g->lock);
    if (n_ids % 64 != 0) bits[words - 1] &= (UINT64_C(1) << (n_ids % 64)) - 1;
    for (size_t i = 0; i < words && !any; i++) any = bits[i] != 0;
    return any;
}

static bool is_eos(const struct guide_vocab *v, int32_t id) {
    for (int i = 0; i < v->n_eos; i++)
        if (v->eos[i] == id) return true;
    return false;
}

/* How many bytes of the token at p the decoder cuts. */
static uint32_t take_cut(struct guide_state *s, const uint8_t *p, uint32_t n) {
    uint32_t k = 0;
    while (k < n && k < s->cut.n && p[k] == ' ') k++;
    s->cut.n = k < n || s->cut.of_token ? 0 : s->cut.n - k;
    return k;
}

static void step_token(struct guide_state *s, int32_t id) {
    struct run *r = &s->g->run;
    const struct guide_vocab *v = s->g->v;
    if (id < 0 || id >= v->n_ids || v->off[id] == v->off[id + 1]) {
        s->cfg = CFG_DEAD;
        return;
    }
    bool was_free = r->cfgs[s->cfg].budget >= 0;
    uint32_t at = v->off[id] + take_cut(s, v->bytes + v->off[id], v->off[id + 1] - v->off[id]);
    for (; at < v->off[id + 1] && s->cfg != CFG_DEAD; at++)
        s->cfg = run_step(r, s->cfg, v->bytes[at]);
    if (was_free) s->n_free++;
    check_budget(s);
}

static bool state_advance(void *state, int32_t id) {
    struct guide_state *s = state;
    struct guide *g = s->g;
    pthread_mutex_lock(&g->lock);
    make_room(g);
    run_step_begin(&g->run, g->v->step_ms);
    if (s->ended) {
        s->cfg = CFG_DEAD;
    } else if (is_eos(g->v, id)) {
        if (g->run.cfgs[s->cfg].accepting)
            s->ended = true;
        else
            s->cfg = CFG_DEAD;
    } else {
        step_token(s, id);
    }
    if (g->run.failed) give_up(s);
    run_step_begin(&g->run, 0);
    bool alive = s->cfg != CFG_DEAD;
    pthread_mutex_unlock(&g->lock);
    return alive;
}

/* On a copy that the collector does not know, so nothing is collected on the way. */
static int state_follow(void *state, const int32_t *ids, int n) {
    struct guide_state *s = state;
    struct guide *g = s->g;
    int n_good = 0;
    pthread_mutex_lock(&g->lock);
    make_room(g);
    run_step_begin(&g->run, g->v->step_ms);
    struct guide_state probe = *s;
    while (n_good < n && !probe.ended && probe.cfg != CFG_DEAD) {
        if (is_eos(g->v, ids[n_good])) {
            n_good += g->run.cfgs[probe.cfg].accepting;
            break;
        }
        step_token(&probe, ids[n_good]);
        if (probe.cfg == CFG_DEAD || g->run.failed) break;
        n_good++;
    }
    run_step_begin(&g->run, 0);
    pthread_mutex_unlock(&g->lock);
    return n_good;
}

static const struct token_guide_ops ops = {
    .fork = state_fork,
    .mask = state_mask,
    .advance = state_advance,
    .follow = state_follow,
    .failed = state_failed,
    .free = state_free,
};

static struct guide_state *state_new(struct guide *g, struct detok_cut cut) {
    struct guide_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    s->cut = cut;
    pthread_mutex_lock(&g->lock);
    make_room(g);
    link_state(g, s);
    run_step_begin(&g->run, g->v->step_ms);
    s->cfg = run_begin(&g->run);
    check_budget(s);
    if (g->run.failed) give_up(s);
    run_step_begin(&g->run, 0);
    pthread_mutex_unlock(&g->lock);
    return s;
}

enum err guide_start(struct guide *g, struct detok_cut cut, struct token_guide *out) {
    *out = (struct token_guide){.ops = &ops, .state = state_new(g, cut)};
    if (out->state != NULL) return ERR_OK;
    out->ops = NULL;
    return ERR_NO_MEMORY;
}

enum err guide_accepts(struct guide *g, const char *p, size_t n, bool *whole) {
    struct guide_state *s = state_new(g, (struct detok_cut){0});
    *whole = false;
    if (s == NULL) return ERR_NO_MEMORY;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < n && s->cfg != CFG_DEAD; i++) {
        make_room(g);
        s->cfg = run_step(&g->run, s->cfg, (uint8_t)p[i]);
    }
    *whole = s->cfg != CFG_DEAD && g->run.cfgs[s->cfg].accepting;
    bool failed = g->run.failed;
    g->run.failed = false;
    pthread_mutex_unlock(&g->lock);
    state_free(s);
    return failed ? ERR_TOO_LARGE : ERR_OK;
}

/* ---- cache */

enum { HASH_BYTES = 32 };

struct cached {
    uint8_t hash[HASH_BYTES];
    size_t n; /* of the text */
    struct guide *g;
    uint64_t used; /* larger: later */
};

struct guide_cache {
    const struct guide_vocab *v;
    pthread_mutex_t lock;
    struct cached *slots; /* [n_max]; g NULL: free */
    int n_max;
    uint64_t clock;
};

enum err guide_cache_create(struct guide_cache **out, const struct guide_vocab *v, int n_max) {
    struct guide_cache *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (c == NULL) return ERR_NO_MEMORY;
    c->v = v;
    c->n_max = n_max;
    c->slots = calloc((size_t)n_max + 1, sizeof(*c->slots));
    if (c->slots == NULL || pthread_mutex_init(&c->lock, NULL) != 0) {
        free(c->slots);
        free(c);
        return ERR_NO_MEMORY;
    }
    *out = c;
    return ERR_OK;
}

void guide_cache_destroy(struct guide_cache **c_ptr) {
    struct guide_cache *c = *c_ptr;
    if (c == NULL) return;
    for (int i = 0; i < c->n_max; i++) guide_unref(&c->slots[i].g);
    pthread_mutex_destroy(&c->lock);
    free(c->slots);
    free(c);
    *c_ptr = NULL;
}

/* The lock is held. */
static struct guide *find(struct guide_cache *c, const uint8_t *hash, size_t n) {
    for (int i = 0; i < c->n_max; i++) {
        struct cached *s = &c->slots[i];
        if (s->g == NULL || s->n != n || memcmp(s->hash, hash, HASH_BYTES) != 0) continue;
        s->used = ++c->clock;
        return guide_ref(s->g);
    }
    return NULL;
}

/* Puts g in the place of the one not used for longest, which is returned to be let go. */
static struct guide *keep(struct guide_cache *c, const uint8_t *hash, size_t n, struct guide *g) {
    struct cached *oldest = &c->slots[0];
    for (int i = 0; i < c->n_max; i++) {
        if (c->slots[i].g == NULL) {
            oldest = &c->slots[i];
            break;
        }
        if (c->slots[i].used < oldest->used) oldest = &c->slots[i];
    }
    struct guide *gone = oldest->g;
    *oldest = (struct cached){.n = n, .g = guide_ref(g), .used = ++c->clock};
    memcpy(oldest->hash, hash, HASH_BYTES);
    return gone;
}

enum err guide_cache_get(struct guide_cache *c, const char *text, size_t n,
                         const atomic_bool *cancelled, struct guide **out, struct errbuf *eb) {
    uint8_t hash[EVP_MAX_MD_SIZE];
    struct guide *gone = NULL;
    *out = NULL;
    if (EVP_Digest(text, n, hash, NULL, EVP_sha256(), NULL) != 1)
        return err_set(eb, ERR_NO_MEMORY, "no memory to hash the guide");
    pthread_mutex_lock(&c->lock);
    *out = find(c, hash, n);
    pthread_mutex_unlock(&c->lock);
    if (*out != NULL) return ERR_OK;
    enum err e = guide_compile(out, c->v, text, n, cancelled, eb);
    if (e != ERR_OK || c->n_max == 0) return e;
    pthread_mutex_lock(&c->lock);
    gone = keep(c, hash, n, *out);
    pthread_mutex_unlock(&c->lock);
    guide_unref(&gone);
    return ERR_OK;
}
