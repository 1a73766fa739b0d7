/* route: the four parts of a cost, and the pair with the least. */
#include "coordinator/route.h"

#include <math.h>

static const double OVER_TARGET = 3; /* so many times more counts time beyond the target */
static const double FETCH_S = 0.002; /* to ask for blocks, beside their bytes */
static const double SAME = 0.02;     /* costs so near, or half a millisecond, are the same */
static const double SAME_S = 0.0005;
static const double KEPT_PART = 0.5;  /* of a prompt: who has so much of it has the conversation */
static const double BESIDE = 4.0 / 3; /* a prompt beside sequences has most of a step, not all */

static double more_than(double x, double least) {
    return x > least ? x : least;
}

/* ---- the parts */

static double compute_s(const struct inst_view *v, double tokens) {
    return v->start_s + v->token_s * more_than(tokens, 1);
}

void route_measure(struct inst_view *v, const struct perf_msg *perf, double prompt_pace,
                   double step_pace, double tokens, double context) {
    /* a line through what a token and what all of them take */
    const double n = more_than(tokens, 2), n_decoding = v->n_decoding;
    const double one = prompt_pace * perf_prompt_s(perf, 1),
                 all = prompt_pace * perf_prompt_s(perf, n);
    v->token_s = (all - one) / (n - 1);
    if (!(v->token_s > 0)) v->token_s = all / n; /* less than noise between them */
    v->start_s = more_than(all - n * v->token_s, 0);
    v->step_s = step_pace * perf_step_s(perf, n_decoding + 1, context);
    v->step_more_s = n_decoding > 0 ? step_pace * perf_step_more_s(perf, n_decoding, context) : 0;
}

static double rate_to(const struct inst_view *p, uint32_t d_id) {
    for (size_t i = 0; p->peer_rate != NULL && i < p->n_peers; i++)
        if (p->peers[i] == d_id) return p->peer_rate[i];
    return 0;
}

/* Seconds for the KV of so many tokens; 0: unknown, which is taken for nothing. */
static double move_s(const struct schedule_conf *c, double rate, double tokens) {
    return rate > 0 && tokens > 0 ? tokens * c->kv_token_bytes / rate : 0;
}

/* A prompt where others decode takes longer, and they get on so much slower meanwhile. */
static double beside(const struct inst_view *v, double s) {
    return v->n_decoding > 0 ? s * BESIDE * (1 + (double)v->n_decoding) : s;
}

/* The prompt at P: with what it has itself, or with what a D gives back to it. */
static void prompt_at(struct route_cost *out, const struct schedule_conf *c,
                      const struct inst_view *p, const struct inst_view *d, size_t n_d,
                      const struct demand *demand) {
    const double n = (double)demand->prompt_tokens;
    out->from = n_d;
    out->computed = more_than(n - p->cached, 1);
    double best = compute_s(p, out->computed);
    for (size_t i = 0; demand->whole && i < n_d; i++) {
        if (d[i].cached <= p->cached || d[i].id == p->id || !schedule_linked(p, &d[i])) continue;
        const double rest = more_than(n - d[i].cached, 1);
        const double s =
            FETCH_S + move_s(c, rate_to(p, d[i].id), d[i].cached - p->cached) + compute_s(p, rest);
        if (s >= best) continue;
        best = s;
        out->from = i;
        out->computed = rest;
    }
    out->prompt_s = best;
}

/* Layers go while later ones are computed: what is left over is waited for. */
static double link_s(const struct schedule_conf *c, const struct inst_view *p,
                     const struct inst_view *d, const struct demand *demand, double computing_s) {
    const double all = move_s(c, rate_to(p, d->id), (double)demand->prompt_tokens - d->cached);
    return more_than(all - computing_s, 0);
}

static double decode_s(const struct schedule_conf *c, const struct inst_view *d,
                       const struct demand *demand) {
    const double n = more_than(demand->new_tokens, 1);
    double step = d->step_s;
    const double target = demand->token_target_s > 0 ? demand->token_target_s : c->token_target_s;
    if (target > 0) step += OVER_TARGET * more_than(step - target, 0);
    return n * (step + (double)d->n_decoding * d->step_more_s);
}

static double shortage_s(const struct inst_view *d, const struct demand *demand,
                         double decoding_s) {
    const double booked = (double)d->blocks_booked + (double)demand->blocks;
    const double missing = booked - (double)d->blocks_total;
    if (missing <= 0 || demand->blocks == 0 || d->blocks_total == 0) return 0;
    return decoding_s * fmin(missing / (double)demand->blocks, 1);
}

/* What is the same at every D of a P: the prompt computed there, its queue not counted. */
struct prompt_part {
    double prompt_s, computed;
    size_t from;
};

static void part_at(struct prompt_part *out, const struct schedule_conf *c,
                    const struct inst_view *p, const struct inst_view *d, size_t n_d,
                    const struct demand *demand) {
    struct route_cost r;
    prompt_at(&r, c, p, d, n_d, demand);
    *out = (struct prompt_part){r.prompt_s, r.computed, r.from};
}

/* p NULL: one place for both; else part is that of p. */
static void cost_at(struct route_cost *out, const struct schedule_conf *c,
                    const struct inst_view *p, const struct prompt_part *part, size_t n_d,
                    const struct inst_view *at, const struct demand *demand) {
    *out = (struct route_cost){.from = n_d};
    if (p == NULL || p->id == at->id) {
        out->computed = more_than((double)demand->prompt_tokens - at->cached, 1);
        out->prompt_s = at->queue_s + beside(at, compute_s(at, out->computed));
    } else {
        out->computed = part->computed;
        out->from = part->from;
        out->link_s = link_s(c, p, at, demand, part->prompt_s);
        out->prompt_s = p->queue_s + beside(p, part->prompt_s);
    }
    out->decode_s = decode_s(c, at, demand);
    out->shortage_s = shortage_s(at, demand, out->decode_s);
}

void route_cost_of(struct route_cost *out, const struct schedule_conf *c, const struct inst_view *p,
                   const struct inst_view *d, size_t n_d, const struct inst_view *at,
                   const struct demand *demand) {
    struct prompt_part part = {0};
    if (p != NULL && p->id != at->id) part_at(&part, c, p, d, n_d, demand);
    cost_at(out, c, p, &part, n_d, at, demand);
}

static double sum_of(const struct schedule_conf *c, const struct route_cost *r) {
    return c->weights[0] * r->prompt_s + c->weights[1] * r->link_s + c->weights[2] * r->decode_s +
           c->weights[3] * r->shortage_s;
}

/* ---- the pick */

struct pick {
    const struct schedule_conf *c;
    const struct inst_view *p, *d;
    size_t n_p, n_d;
    const struct demand *demand;
    uint32_t avoid_p, avoid_d;
    bool busy; /* every P has prefill_queue_max prompts or more */
    bool full; /* those without room count as well: it will come there */
};

static bool p_can(const struct pick *k, size_t i) {
    if (k->full) return k->p[i].open;
    return k->p[i].id != k->avoid_p &&
           schedule_has_room(k->c, &k->p[i], k->demand->prompts, k->demand->blocks);
}

static bool d_can(const struct pick *k, size_t j) {
    if (k->full) return k->d[j].open;
    return k->d[j].id != k->avoid_d &&
           schedule_has_room(k->c, &k->d[j], k->demand->slots, k->demand->blocks);
}

/* Whether d[j] computes the prompt itself: it has nearly all, or it is idle where others are not.
 */
static bool may_be_alone(const struct pick *k, size_t j) {
    const struct inst_view *v = &k->d[j];
    if (!k->demand->whole || !v->computes || v->id == k->avoid_p) return false;
    const double rest = more_than((double)k->demand->prompt_tokens - v->cached, 1);
    if (v->cached > 0 && rest <= k->c->local_tokens_max) return true;
    return k->busy && v->n_decoding == 0 && v->n_prompts == 0;
}

/* D's by their groups, so that a P looks at those of its own alone. Where there are more than fit,
 * it looks at all. */
enum { INDEX_MAX = 4096, BUCKETS = 64 };
struct by_group {
    bool whole; /* all are in it */
    uint16_t first[BUCKETS], next[INDEX_MAX];
};
static const uint16_t END = UINT16_MAX;

static void index_groups(struct by_group *x, const struct inst_view *d, size_t n_d) {
    x->whole = n_d <= INDEX_MAX;
    for (size_t b = 0; b < BUCKETS; b++) x->first[b] = END;
    for (size_t j = x->whole ? n_d : 0; j-- > 0;) {
        uint16_t *first = &x->first[d[j].group % BUCKETS];
        x->next[j] = *first;
        *first = (uint16_t)j;
    }
}

static size_t first_of(const struct by_group *x, unsigned group, size_t n_d) {
    if (!x->whole) return 0;
    const uint16_t j = x->first[group % BUCKETS];
    return j == END ? n_d : j;
}

static size_t next_of(const struct by_group *x, size_t j, size_t n_d) {
    if (!x->whole) return j + 1;
    return x->next[j] == END ? n_d : x->next[j];
}

/* Calls fn for every pair; i == n_p: d alone. */
typedef void pair_fn(struct pick *k, size_t i, size_t j, const struct route_cost *r, double cost,
                     void *arg);
static void for_each_pair(struct pick *k, pair_fn *fn, void *arg) {
    struct route_cost r;
    struct by_group x;
    index_groups(&x, k->d, k->n_d);
    for (size_t i = 0; i < k->n_p; i++) {
        const struct inst_view *p = &k->p[i];
        struct prompt_part part;
        bool has_part = false;
        if (!p_can(k, i)) continue;
        for (size_t j = first_of(&x, p->group, k->n_d); j < k->n_d; j = next_of(&x, j, k->n_d)) {
            if (!schedule_linked(p, &k->d[j]) || !d_can(k, j)) continue;
            if (!has_part) part_at(&part, k->c, p, k->d, k->n_d, k->demand);
            has_part = true;
            cost_at(&r, k->c, p, &part, k->n_d, &k->d[j], k->demand);
            fn(k, i, j, &r, sum_of(k->c, &r), arg);
        }
    }
    for (size_t j = 0; j < k->n_d; j++) {
        if (!may_be_alone(k, j) || !d_can(k, j)) continue;
        cost_at(&r, k->c, NULL, NULL, k->n_d, &k->d[j], k->demand);
        fn(k, k->n_p, j, &r, sum_of(k->c, &r), arg);
    }
}

static void take_least(struct pick *k, size_t i, size_t j, const struct route_cost *r, double cost,
                       void *arg) {
    double *least = arg;
    (void)k, (void)i, (void)j, (void)r;
    if (cost < *least) *least = cost;
}

struct best {
    double most; /* that still counts as the least */
    bool found;
    size_t i, j;
    struct pair_choice choice;
};

/* A beginning that many prompts share is no reason to send them all to one. */
static double kept(const struct pick *k, size_t j) {
    const double cached = k->d[j].cached;
    return cached >= KEPT_PART * (double)k->demand->prompt_tokens ? cached : 0;
}

/* Among those that cost the same: one alone before a pair, then P's turn, then the D that has more
 * of the prompt, then the one with fewer sequences, then D's turn. */
static bool is_better(const struct pick *k, const struct best *b, size_t i, size_t j) {
    if (!b->found) return true;
    if ((i == k->n_p) != (b->i == k->n_p)) return i == k->n_p;
    if (i != b->i && k->p[i].pass != k->p[b->i].pass) return k->p[i].pass < k->p[b->i].pass;
    if (i != b->i) return k->p[i].id < k->p[b->i].id;
    const struct inst_view *d = &k->d[j], *other = &k->d[b->j];
    if (kept(k, j) != kept(k, b->j)) return kept(k, j) > kept(k, b->j);
    if (d->n_decoding != other->n_decoding) return d->n_decoding < other->n_decoding;
    if (d->pass != other->pass) return d->pass < other->pass;
    return d->id < other->id;
}

static void take_best(struct pick *k, size_t i, size_t j, const struct route_cost *r, double cost,
                      void *arg) {
    struct best *b = arg;
    if (cost > b->most || !is_better(k, b, i, j)) return;
    const bool alone = i == k->n_p;
    b->found = true;
    b->i = i;
    b->j = j;
    b->choice =
        (struct pair_choice){.p = i,
                             .d = j,
                             .alone = alone,
                             .kv_at = r->from < k->n_d ? k->d[r->from].id : 0,
                             .computed = r->computed,
                             .prompt_s = r->prompt_s - (alone ? k->d[j].queue_s : k->p[i].queue_s)};
}

static struct pick pick_of(const struct schedule_conf *c, const struct inst_view *p, size_t n_p,
                           const struct inst_view *d, size_t n_d, const struct demand *demand) {
    struct pick k = {.c = c, .p = p, .n_p = n_p, .d = d, .n_d = n_d, .demand = demand};
    k.busy = c->prefill_queue_max > 0;
    for (size_t i = 0; i < n_p; i++)
        k.busy = k.busy && (!p[i].open || p[i].n_prompts >= c->prefill_queue_max);
    return k;
}

static bool is_known(const struct inst_view *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (v[i].open && !(v[i].token_s > 0 && v[i].step_s > 0)) return false;
    return n > 0;
}

bool route_pick(struct pair_choice *out, const struct schedule_conf *c, const struct inst_view *p,
                size_t n_p, const struct inst_view *d, size_t n_d, const struct demand *demand,
                uint32_t avoid_p, uint32_t avoid_d, bool *known) {
    struct pick k = pick_of(c, p, n_p, d, n_d, demand);
    double least = INFINITY;
    k.avoid_p = avoid_p;
    k.avoid_d = avoid_d;
    *known = is_known(p, n_p) && is_known(d, n_d);
    if (!*known) return false;
    for_each_pair(&k, take_least, &least);
    if (!(least < INFINITY)) return false;
    struct best b = {.most = least + more_than(SAME_S, SAME * least)};
    for_each_pair(&k, take_best, &b);
    *out = b.choice;
    return b.found;
}

static void take_first_token(struct pick *k, size_t i, size_t j, const struct route_cost *r,
                             double cost, void *arg) {
    double *least = arg;
    (void)k, (void)i, (void)j, (void)cost;
    if (r->prompt_s + r->link_s < *least) *least = r->prompt_s + r->link_s;
}

double route_first_token_s(const struct schedule_conf *c, const struct inst_view *p, size_t n_p,
                           const struct inst_view *d, size_t n_d, const struct demand *demand) {
    struct pick k = pick_of(c, p, n_p, d, n_d, demand);
    double least = INFINITY;
    k.full = true;
    if (!is_known(p, n_p) || !is_known(d, n_d)) return 0;
    for_each_pair(&k, take_first_token, &least);
    return least < INFINITY ? least : 0;
}

bool route_expect(const struct inst_view *p, size_t n_p, struct inst_view *d, size_t n_d,
                  const struct demand *demand) {
    double wait_s = 0, n_open = 0;
    bool changed = false;
    for (size_t i = 0; i < n_p; i++) {
        if (!p[i].open) continue;
        wait_s += p[i].queue_s;
        n_open++;
    }
    if (n_open > 0) wait_s /= n_open;
    for (size_t i = 0; i < n_d; i++) {
        const double answer_s = demand->new_tokens * d[i].step_s;
        if (d[i].n_coming == 0 || !(answer_s < wait_s)) continue;
        const unsigned at_a_time = (unsigned)ceil(d[i].n_coming * answer_s / wait_s);
        d[i].n_decoding -= d[i].n_coming - at_a_time;
        d[i].n_coming = at_a_time;
        changed = true;
    }
    return changed;
}

/* The step of the best batch that takes one more. */
static void look_at_batches(struct forecast_facts *f, const struct inst_view *d, size_t n_d) {
    f->idle = false;
    f->step_s = 0;
    for (size_t i = 0; i < n_d; i++) {
        if (!d[i].open) continue;
        f->idle = f->idle || d[i].n_decoding == 0;
        if (f->step_s <= 0 || d[i].step_s < f->step_s) f->step_s = d[i].step_s;
    }
}

void route_look_ahead(struct forecast_facts *f, const struct schedule_conf *c, struct inst_view *p,
                      size_t n_p, struct inst_view *d, size_t n_d, const struct demand *demand) {
    f->pair_s = route_first_token_s(c, p, n_p, d, n_d, demand);
    for (size_t i = 0; i < n_p; i++) p[i].queue_s = 0;
    for (size_t i = 0; i < n_d; i++) d[i].queue_s = 0;
    f->own_s = route_first_token_s(c, p, n_p, d, n_d, demand);
    look_at_batches(f, d, n_d);
}
