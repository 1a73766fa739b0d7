/* schedule: the policies of the reference and the arithmetic of demand. */
#include "coordinator/schedule.h"

#include <math.h>
#include <string.h>
#include "coordinator/route.h"

static const char *const policy_names[] = {[POLICY_LOAD_BALANCE] = "load_balance",
                                           [POLICY_ROUND_ROBIN] = "round_robin",
                                           [POLICY_COST] = "cost",
                                           [POLICY_CACHE_AFFINITY] = "cache_affinity"};
enum { N_POLICIES = sizeof(policy_names) / sizeof(policy_names[0]) };

const char *schedule_policy_name(enum policy policy) {
    return policy_names[policy];
}

bool schedule_policy_parse(enum policy *out, const char *name) {
    int i = 0;
    while (i < N_POLICIES && strcmp(policy_names[i], name) != 0) i++;
    if (i < N_POLICIES) *out = (enum policy)i;
    return i < N_POLICIES;
}

bool schedule_has_room(const struct schedule_conf *c, const struct inst_view *v, uint64_t slots,
                       uint64_t blocks) {
    if (!v->open) return false;
    if (!c->limit_demand) return true;
    /* An estimate larger than the whole instance must not wait for ever: alone it may go, and the
     * instance says what is wrong with it. */
    if (v->slots_booked == 0 && v->blocks_booked == 0) return true;
    return (double)(v->slots_booked + slots) <= (double)v->slots_total * c->res_limit_rate &&
           (double)(v->blocks_booked + blocks) <= (double)v->blocks_total * c->res_limit_rate;
}

bool schedule_linked(const struct inst_view *p, const struct inst_view *d) {
    bool p_knows = false, d_knows = false;
    if (p->id == d->id) return true;
    if (p->group != d->group) return false;
    for (size_t i = 0; i < p->n_peers; i++) p_knows |= p->peers[i] == d->id;
    for (size_t i = 0; i < d->n_peers; i++) d_knows |= d->peers[i] == p->id;
    return p_knows && d_knows;
}

void schedule_count_links(struct inst_view *p, size_t n_p, const struct inst_view *d, size_t n_d) {
    for (size_t i = 0; i < n_p; i++) {
        p[i].links = 0;
        for (size_t j = 0; j < n_d; j++) p[i].links += d[j].open && schedule_linked(&p[i], &d[j]);
    }
}

/* ---- P */

/* What all P's of a pick are measured with. */
struct yardstick {
    double rate; /* of a P that has none yet */
    size_t links_max;
};

static struct yardstick yardstick_of(const struct inst_view *p, size_t n_p) {
    struct yardstick y = {0, 1};
    size_t n = 0;
    for (size_t i = 0; i < n_p; i++) {
        if (p[i].links > y.links_max) y.links_max = p[i].links;
        y.rate += p[i].prefill_rate;
        n += p[i].prefill_rate > 0;
    }
    y.rate = n > 0 ? y.rate / (double)n : 1;
    return y;
}

static double expected_wait(const struct yardstick *y, const struct inst_view *v) {
    double rate = v->prefill_rate > 0 ? v->prefill_rate : y->rate;
    double links = v->links > 0 ? (double)v->links : 1;
    return (double)v->prefill_tokens / rate * ((double)y->links_max / links);
}

/* < 0 when a is the better home for the prompt. */
static int prefill_cmp(const struct yardstick *y, const struct inst_view *a,
                       const struct inst_view *b) {
    double wa = expected_wait(y, a), wb = expected_wait(y, b);
    if (wa != wb) return wa < wb ? -1 : 1;
    if (a->pass != b->pass) return a->pass < b->pass ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* ---- D */

static double decode_score(const struct schedule_conf *c, const struct inst_view *v,
                           double slots_max) {
    const double *k = c->coefficients;
    double used =
        v->blocks_total > v->blocks_avail ? (double)(v->blocks_total - v->blocks_avail) : 0;
    return k[0] * v->token_sum + k[5] * slots_max + k[6] * used + k[7] * (double)v->slots_booked +
           k[8] * (double)v->blocks_booked;
}

static int decode_cmp(const struct schedule_conf *c, const struct inst_view *a,
                      const struct inst_view *b, double slots_max) {
    double sa = decode_score(c, a, slots_max), sb = decode_score(c, b, slots_max);
    if (sa != sb) return sa < sb ? -1 : 1;
    if (a->slots_booked != b->slots_booked) return a->slots_booked < b->slots_booked ? -1 : 1;
    if (a->pass != b->pass) return a->pass < b->pass ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool goes_in_turn(const struct schedule_conf *c) {
    return c->policy == POLICY_ROUND_ROBIN || c->policy == POLICY_CACHE_AFFINITY;
}

/* The decode instance for p, or n_d. */
static size_t pick_decode(const struct schedule_conf *c, const struct inst_view *p,
                          const struct inst_view *d, size_t n_d, struct demand demand,
                          uint32_t avoid, uint64_t turn) {
    size_t best = n_d;
    double slots_max = 0;
    for (size_t i = 0; i < n_d; i++)
        if (d[i].group == p->group && (double)d[i].slots_total > slots_max)
            slots_max = (double)d[i].slots_total;
    for (size_t k = 0; k < n_d; k++) {
        size_t i = goes_in_turn(c) ? (size_t)((turn + k) % n_d) : k;
        if (d[i].id == avoid || !schedule_has_room(c, &d[i], demand.slots, demand.blocks) ||
            !schedule_linked(p, &d[i]))
            continue;
        if (goes_in_turn(c)) return i;
        if (best == n_d || decode_cmp(c, &d[i], &d[best], slots_max) < 0) best = i;
    }
    return best;
}

/* ---- both */

/* < 0 when the pair of a is the better one. Of two that are whole, with as little in front of a
 * prompt, the one that decodes less. */
static int pair_cmp(const struct schedule_conf *c, const struct yardstick *y,
                    const struct inst_view *a, const struct inst_view *b) {
    if (a->whole && b->whole && expected_wait(y, a) == expected_wait(y, b))
        return decode_cmp(c, a, b, 0);
    return prefill_cmp(y, a, b);
}

/* The place of the request's home in the list, if that may have it; else n_p. */
static size_t home_of(const struct schedule_conf *c, const struct inst_view *p, size_t n_p,
                      const struct demand *demand) {
    size_t i = 0;
    while (i < n_p && p[i].id != demand->home) i++;
    if (i == n_p || demand->home == 0) return n_p;
    const bool is_free = (double)p[i].slots_free > c->slots_free_min * (double)p[i].slots_total &&
                         (double)p[i].blocks_free > c->blocks_free_min * (double)p[i].blocks_total;
    return is_free ? i : n_p;
}

bool schedule_pick(struct pair_choice *out, const struct schedule_conf *c,
                   const struct inst_view *p, size_t n_p, const struct inst_view *d, size_t n_d,
                   struct demand demand, uint32_t avoid_p, uint32_t avoid_d, uint64_t turn) {
    bool found = false, known = false;
    if (c->policy == POLICY_COST) {
        found = route_pick(out, c, p, n_p, d, n_d, &demand, avoid_p, avoid_d, &known);
        if (known) return found;
    }
    const struct yardstick y = yardstick_of(p, n_p);
    const bool in_turn = goes_in_turn(c);
    const size_t home = c->policy == POLICY_CACHE_AFFINITY ? home_of(c, p, n_p, &demand) : n_p;
    for (size_t k = home < n_p ? 0 : 1; k <= n_p; k++) { /* at 0 the home, then all */
        const size_t i = k == 0 ? home : in_turn ? (size_t)((turn + k - 1) % n_p) : k - 1;
        if (p[i].id == avoid_p || !schedule_has_room(c, &p[i], demand.prompts, demand.blocks))
            continue;
        if (found && pair_cmp(c, &y, &p[i], &p[out->p]) >= 0) continue;
        size_t j = pick_decode(c, &p[i], d, n_d, demand, avoid_d, turn);
        if (j == n_d) continue; /* a P without a D is no pair */
        *out = (struct pair_choice){.p = i, .d = j};
        found = true;
        if (in_turn) break;
    }
    return found;
}

void schedule_turn(double *now, double *pass, size_t links) {
    if (*pass < *now) *pass = *now;
    *now = *pass;
    *pass += 1.0 / (double)(links > 0 ? links : 1);
}

struct demand schedule_demand(size_t n_chars, unsigned prompts, unsigned sequences,
                              double chars_per_token, unsigned block_tokens, bool by_length) {
    double tokens = (double)n_chars / chars_per_token;
    struct demand d = {.prompts = prompts,
                       .slots = sequences,
                       .blocks = 1,
                       .prompt_tokens = (uint64_t)ceil(tokens)};
    if (d.prompt_tokens < 1) d.prompt_tokens = 1;
    if (by_length && block_tokens > 0) {
        d.blocks = (uint64_t)ceil(tokens / block_tokens);
        if (d.blocks < 1) d.blocks = 1;
    }
    return d;
}
