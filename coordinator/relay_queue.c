/* relay_queue: requests that wait for a pair, whose turn it is among their tenants, and what is
 * booked on instances for those that have one. */
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/recorder.h"
#include "coordinator/relay_priv.h"
#include "coordinator/route.h"

/* Whether r stands before other in its tenant's queue: those whose client waits for the rest of an
 * answer first, then by priority, by deadline (one without it last), by reordering_type. */
static bool goes_before(const struct relay *r, const struct relay *other, int64_t order) {
    if (r->state != other->state) return r->state == RELAY_RECOVERING;
    if (r->priority != other->priority) return r->priority < other->priority;
    if (r->deadline_ms != other->deadline_ms) return r->deadline_ms - 1 < other->deadline_ms - 1;
    if (order == 2 && r->n_chars != other->n_chars) return r->n_chars < other->n_chars;
    if (order == 3 && r->n_chars != other->n_chars) return r->n_chars > other->n_chars;
    return r->arrival_ms < other->arrival_ms;
}

/* Tokens that have to be computed, as far as that is known. */
static double tokens_of(const struct relay_set *s, double chars) {
    return chars / s->co->conf.string_token_rate * s->uncached_mean;
}

void relay_note_arrival(struct relay *r) {
    struct relay_set *s = r->set;
    const double n = r->n_prompts, tokens = tokens_of(s, (double)r->n_chars);
    if (n > 0)
        arrivals_add(&s->arrivals, n, tokens, r->n_sequences,
                     n * perf_prompt_s(&s->co->abilities.of[0], tokens / n), clock_us());
}

void relay_load(const struct relay_set *s, struct role_load *out) {
    const double n = (double)s->n_queued;
    out->arrivals = s->arrivals;
    out->waiting_sequences = s->waiting_sequences;
    out->new_tokens = s->new_tokens_mean;
    if (n > 0)
        out->waiting_prompt_s =
            n * perf_prompt_s(&s->co->abilities.of[0], tokens_of(s, s->waiting_chars) / n);
}

void relay_enqueue(struct relay *r) {
    struct relay_set *s = r->set;
    struct tenant *t = r->tenant;
    struct relay *after = t->last;
    while (after != NULL && goes_before(r, after, s->co->conf.reordering_type))
        after = after->queue_prev;
    r->queue_prev = after;
    r->queue_next = after != NULL ? after->queue_next : t->first;
    *(after != NULL ? &after->queue_next : &t->first) = r;
    *(r->queue_next != NULL ? &r->queue_next->queue_prev : &t->last) = r;
    r->queued_us = clock_us();
    r->refusal_recorded = false;
    t->n_queued++;
    s->n_queued++;
    s->n_waiting[r->priority]++;
    s->waiting_chars += (double)r->n_chars;
    s->waiting_sequences += r->n_sequences;
    tenants_wait(s->tenants, t);
}

void relay_dequeue(struct relay *r) {
    struct relay_set *s = r->set;
    struct tenant *t = r->tenant;
    *(r->queue_prev != NULL ? &r->queue_prev->queue_next : &t->first) = r->queue_next;
    *(r->queue_next != NULL ? &r->queue_next->queue_prev : &t->last) = r->queue_prev;
    s->n_queued--;
    s->n_waiting[r->priority]--;
    s->waiting_chars -= (double)r->n_chars;
    s->waiting_sequences -= r->n_sequences;
    if (--t->n_queued == 0) tenants_wait_no_more(s->tenants, t);
}

/* ---- what a tenant pays: tokens of prompts, and twice those of answers, as these take a slot for
 * a whole step each */

static double cost(double prompt_tokens, double new_tokens) {
    return prompt_tokens + 2 * new_tokens;
}

static void charge(struct relay *r) {
    struct relay_set *s = r->set;
    if (r->charged > 0) return; /* an attempt before this one was paid for */
    double each = r->new_tokens_max > 0 ? (double)r->new_tokens_max : s->new_tokens_mean;
    r->charged = cost((double)r->demand.prompt_tokens, each * r->n_sequences);
    tenants_charge(s->tenants, r->tenant, r->charged);
}

void relay_settle(struct relay *r) {
    struct relay_set *s = r->set;
    double n = (double)r->n_tokens;
    if (r->charged <= 0 || r->n_tokens < 2) return; /* unknown */
    tenants_correct(s->tenants, r->tenant, cost((double)r->demand.prompt_tokens, n) - r->charged);
    s->new_tokens_mean += (n / r->n_sequences - s->new_tokens_mean) / RELAY_MEAN_OF;
}

/* ---- the pass over the queue */
struct view_list {
    struct inst_view *views;
    struct inst **insts;
    size_t n;
    uint32_t *peer_ids; /* storage of all peers arrays */
    double *peer_rates; /* and of what goes over these links */
};

static void views_free(struct view_list *l) {
    free(l->views);
    free(l->insts);
    free(l->peer_ids);
    free(l->peer_rates);
}

/* strict: breakers hold. */
static void fill_view(struct inst_view *v, const struct coordinator *co, const struct inst *in,
                      uint32_t *peers, double *rates, bool strict) {
    uint64_t now = clock_ms();
    *v = (struct inst_view){
        .id = in->id,
        .group = in->plan.place.group,
        .open = inst_serves(in, NULL) && (!strict || breaker_allows(&in->breaker, now)) &&
                in->ledger.tasks < (unsigned)co->conf.single_node_requests_max,
        .slots_total = in->facts.status.total_slots != 0 ? in->facts.status.total_slots
                                                         : in->facts.status.avail_slots,
        .blocks_total = in->facts.status.total_blocks != 0 ? in->facts.status.total_blocks
                                                           : in->facts.status.avail_blocks,
        .slots_booked = in->ledger.booked.slots,
        .blocks_booked = in->ledger.booked.blocks,
        .blocks_avail = in->facts.status.avail_blocks,
        .slots_free = inst_slots_free(in),
        .blocks_free = inst_blocks_free(in),
        .token_sum = in->ledger.tokens,
        .prefill_tokens = in->ledger.prompt_tokens,
        .prefill_rate = rate_meter_get(&in->prefill_rate),
        .pass = in->pass,
        .queue_s = in->ledger.prefill_s,
        .n_prompts = in->ledger.tasks - in->ledger.decodes,
        .n_decoding = in->ledger.decodes,
        .n_coming = in->ledger.coming,
        .computes = in->prefix.epoch != 0,
        .peer_rate = rates,
        .peers = peers};
    v->whole = plan_is_unsplit(&in->plan.place) && inst_stands_in(in);
    if (v->whole) return;
    for (size_t i = 0; i < in->facts.status.n_links; i++) {
        const struct link_status *l = &in->facts.status.links[i];
        const struct breaker *b = inst_link_breaker(in, l->target);
        if (!l->ok || (strict && b != NULL && !breaker_allows(b, now))) continue;
        rates[v->n_peers] = (double)l->bytes_per_s;
        peers[v->n_peers++] = l->target;
    }
}

static bool views_of(struct view_list *l, const struct coordinator *co, enum inst_role role,
                     bool strict) {
    size_t n_links = 0, at = 0;
    memset(l, 0, sizeof(*l));
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        n_links += in->facts.status.n_links;
    l->views = calloc(co->reg.n + 1, sizeof(*l->views));
    l->insts = calloc(co->reg.n + 1, sizeof(*l->insts));
    l->peer_ids = calloc(n_links + 1, sizeof(*l->peer_ids));
    l->peer_rates = calloc(n_links + 1, sizeof(*l->peer_rates));
    if (l->views == NULL || l->insts == NULL || l->peer_ids == NULL || l->peer_rates == NULL)
        return false;
    for (struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!inst_works_as(in, role)) continue;
        fill_view(&l->views[l->n], co, in, l->peer_ids + at, l->peer_rates + at, strict);
        at += l->views[l->n].n_peers;
        l->insts[l->n++] = in;
    }
    abilities_level_rates(l->peer_rates, at);
    return true;
}

static void refresh(const struct coordinator *co, struct view_list *l, size_t i) {
    const struct inst *in = l->insts[i];
    l->views[i].open = l->views[i].open && in->breaker.state != BREAKER_HALF_OPEN &&
                       in->ledger.tasks < (unsigned)co->conf.single_node_requests_max;
    l->views[i].slots_booked = in->ledger.booked.slots;
    l->views[i].blocks_booked = in->ledger.booked.blocks;
    l->views[i].slots_free = inst_slots_free(in);
    l->views[i].blocks_free = inst_blocks_free(in);
    l->views[i].token_sum = in->ledger.tokens;
    l->views[i].prefill_tokens = in->ledger.prompt_tokens;
    l->views[i].pass = in->pass;
    l->views[i].queue_s = in->ledger.prefill_s;
    l->views[i].n_prompts = in->ledger.tasks - in->ledger.decodes;
    l->views[i].n_decoding = in->ledger.decodes;
    l->views[i].n_coming = in->ledger.coming;
}

/* ---- what a request costs there */

static void measure_views(struct view_list *l, const struct coordinator *co,
                          const struct demand *demand, const struct prefix_found *found,
                          size_t n_found) {
    const double n = (double)demand->prompt_tokens;
    const uint64_t now = clock_ms();
    for (size_t i = 0; i < l->n; i++) {
        struct inst_view *v = &l->views[i];
        const struct inst *in = l->insts[i];
        if (!v->open) continue;
        const struct ability *of = &in->ability;
        const struct perf_msg *perf = abilities_of(&co->abilities, of);
        route_measure(v, perf, pace_of(&of->prompt, now), pace_of(&of->step, now), n,
                      n + demand->new_tokens / 2);
        v->cached = prefix_cached_at(found, n_found, &in->prefix, in->id);
        if (v->cached > n) v->cached = n;
    }
}

static void measure_all(struct relay *r, struct view_list *p, struct view_list *d) {
    struct relay_set *s = r->set;
    struct prefix_found found[PREFIX_FOUND_MAX];
    struct demand *demand = &r->demand;
    const double most = (double)r->new_tokens_max;
    s->co->sched.kv_token_bytes = s->kv_token_bytes;
    demand->whole = r->n_prompts == 1 && r->n_lost == 0;
    demand->token_target_s = r->tenant->own_token ? r->tenant->targets.token_s : 0;
    demand->new_tokens = most > 0 && most < s->new_tokens_mean ? most : s->new_tokens_mean;
    const size_t n = relay_prefix_find(r, found, demand);
    measure_views(p, s->co, demand, found, n);
    measure_views(d, s->co, demand, found, n);
}

/* Some other instance of the role is open, so avoiding this one leaves a choice. */
static bool has_other(const struct view_list *l, uint32_t avoid) {
    for (size_t i = 0; i < l->n; i++)
        if (l->views[i].open && l->views[i].id != avoid) return true;
    return false;
}

enum placed { PLACED, NOT_YET, NO_ROOM };

/* What one pass over the queues works with. */
struct pass {
    struct view_list p, d;
    uint64_t now, slots_total, slots_most; /* of all D's, of the largest */
    int64_t left;                          /* requests it may still look at */
};

/* A request for more than the largest D has goes alone, and the instances say what is wrong with
 * it.
 */
static struct demand demand_of(const struct relay *r, const struct pass *ps) {
    const struct coord_conf *c = &r->set->co->conf;
    unsigned block = ps->p.n > 0 ? ps->p.insts[0]->facts.config.cache_block_size : 0;
    const size_t n_chars = /* the tokens the client has go in front of the new ones */
        r->n_chars + (size_t)(r->transcript.n_ids * c->string_token_rate);
    struct demand d = schedule_demand(n_chars, r->n_prompts, r->n_sequences, c->string_token_rate,
                                      block, strcmp(c->load_cost_values, "1, 0") == 0);
    if (ps->slots_most > 0 && d.slots > ps->slots_most) d.slots = ps->slots_most;
    return d;
}

/* For the record: of those that find no pair, the first while r waits. */
static void note_decision(struct relay *r, const struct pass *ps, const struct record_decision *d) {
    struct recorder *rec = r->set->co->recorder;
    if (rec == NULL || (!d->found && r->refusal_recorded)) return;
    struct record_decision whole = *d;
    r->refusal_recorded = !d->found;
    whole.id = r->id_text;
    whole.epoch = r->n_lost;
    whole.p = ps->p.views;
    whole.n_p = ps->p.n;
    whole.d = ps->d.views;
    whole.n_d = ps->d.n;
    whole.demand = r->demand;
    whole.kv_token_bytes = r->set->kv_token_bytes;
    whole.turn = r->set->turn;
    recorder_decision(rec, &whole);
}

static enum placed place(struct relay *r, struct pass *ps) {
    struct relay_set *s = r->set;
    struct view_list *p = &ps->p, *d = &ps->d;
    struct pair_choice pick = {0};
    bool again_p = r->avoid.p != 0 && !has_other(p, r->avoid.p),
         again_d = r->avoid.d != 0 && !has_other(d, r->avoid.d);
    if ((again_p || again_d) && ps->now < r->avoid.not_before_ms) return NOT_YET;
    uint32_t avoid_p = again_p ? 0 : r->avoid.p, avoid_d = again_d ? 0 : r->avoid.d;
    r->demand = demand_of(r, ps);
    r->expected_tokens =
        (double)r->n_chars / s->co->conf.string_token_rate * s->co->sched.coefficients[1] +
        s->co->sched.coefficients[2];
    if (s->book != NULL) measure_all(r, p, d);
    r->demand.home = relay_prefix_home(r);
    const bool found = schedule_pick(&pick, &s->co->sched, p->views, p->n, d->views, d->n,
                                     r->demand, avoid_p, avoid_d, s->turn);
    note_decision(r, ps,
                  &(struct record_decision){
                      .avoid_p = avoid_p, .avoid_d = avoid_d, .found = found, .pick = pick});
    if (!found) return avoid_p == 0 && avoid_d == 0 ? NO_ROOM : NOT_YET;
    s->turn++;
    arrivals_add(&s->placed, 1, 0, 0, 0, clock_us());
    charge(r);
    const struct relay_input pair = {.p = pick.alone ? d->insts[pick.d] : p->insts[pick.p],
                                     .d = d->insts[pick.d]};
    relay_prefix_settle(r, pair.d->id);
    r->demand.computed = pick.computed;
    r->demand.prompt_s = pick.prompt_s;
    if (r->n_lost == 0) r->kv_at = pick.kv_at;
    coord_metrics_routed(s->co->metrics, pair.p == pair.d  ? ROUTE_ALONE
                                         : pick.kv_at != 0 ? ROUTE_FETCHED
                                                           : ROUTE_PAIR);
    const uint64_t waited_us = clock_us() - r->queued_us;
    r->waited_us += waited_us;
    if (r->first_token_us == 0) r->waited_first_us += waited_us;
    relay_step(r, EV_PAIR, &pair); /* r may be gone */
    if (!pick.alone) {
        schedule_turn(&s->p_turn, &p->insts[pick.p]->pass, p->views[pick.p].links);
        refresh(s->co, p, pick.p);
    }
    schedule_turn(&s->d_turn, &d->insts[pick.d]->pass, 1);
    refresh(s->co, d, pick.d);
    coord_metrics_scheduled(s->co->metrics, waited_us);
    return PLACED;
}

/* Gives the first request of t that can go now its pair. */
static enum placed place_one(struct tenant *t, struct pass *ps) {
    enum placed got = NOT_YET;
    for (struct relay *r = t->first, *next; r != NULL && ps->left > 0 && got == NOT_YET; r = next) {
        next = r->queue_next;
        ps->left--;
        got = place(r, ps);
    }
    return ps->left > 0 ? got : NO_ROOM;
}

/* Serves those that wait in their order until nobody can go. shares: who has its share of the slots
 * already lets the others go first. Who cannot go now is set aside. False: there is no room. */
static bool serve(struct relay_set *s, struct pass *ps, struct tenant **aside, bool shares) {
    struct tenant *t;
    bool room = true;
    while (room && (t = tenants_next(s->tenants)) != NULL) {
        enum placed got = NOT_YET;
        t->n_requests++; /* it must outlive a request that ends here */
        if (!shares ||
            tenants_within_share(s->tenants, t, demand_of(t->first, ps).slots, ps->slots_total))
            got = place_one(t, ps);
        room = got != NO_ROOM;
        if (got == PLACED && t->n_queued > 0) {
            tenants_wait(s->tenants, t);
        } else if (t->n_queued > 0) {
            t->aside = *aside;
            *aside = t;
        }
        tenants_leave(s->tenants, t);
    }
    return room;
}

/* Those whose client has a part of its answer: they were paid for and had their turn, and stand at
 * the front of their queues. */
static void serve_recovering(struct relay_set *s, struct pass *ps) {
    for (struct tenant *t = tenants_first(s->tenants), *next; t != NULL; t = next) {
        t->n_requests++; /* it must outlive a request that ends here */
        for (struct relay *r = t->first, *behind; r != NULL && ps->left > 0; r = behind) {
            if (r->state != RELAY_RECOVERING) break;
            behind = r->queue_next;
            ps->left--;
            (void)place(r, ps);
        }
        next = t->next;
        tenants_leave(s->tenants, t);
    }
}

static void come_back(struct relay_set *s, struct tenant **aside) {
    for (struct tenant *t = *aside; t != NULL; t = t->aside)
        if (t->n_queued > 0) tenants_wait(s->tenants, t);
    *aside = NULL;
}

void relay_schedule(struct relay_set *s) {
    struct pass ps = {.now = clock_ms()};
    if (s == NULL || s->n_queued == 0) return;
    ps.left = s->co->conf.max_schedule_count;
    /* Breakers choose among those that serve. Where they would leave nobody, they say nothing. */
    bool strict = relay_breakers_all_closed(s->co) || relay_breakers_leave_a_pair(s->co, ps.now);
    if (views_of(&ps.p, s->co, ROLE_PREFILL, strict) &&
        views_of(&ps.d, s->co, ROLE_DECODE, strict)) {
        struct tenant *aside = NULL;
        schedule_count_links(ps.p.views, ps.p.n, ps.d.views, ps.d.n);
        for (size_t i = 0; i < ps.d.n; i++) {
            const struct inst_view *v = &ps.d.views[i];
            if (!v->open) continue;
            ps.slots_total += v->slots_total;
            if (v->slots_total > ps.slots_most) ps.slots_most = v->slots_total;
        }
        if (s->n_recovering > 0) serve_recovering(s, &ps);
        /* Then those below their shares; what these leave is for all. */
        bool room = tenants_waiting(s->tenants) < 2 || serve(s, &ps, &aside, true);
        if (room) {
            come_back(s, &aside);
            (void)serve(s, &ps, &aside, false);
        }
        come_back(s, &aside);
    } else {
        log_error("relay", "event=no_memory_to_schedule");
    }
    views_free(&ps.p);
    views_free(&ps.d);
}

/* ---- whether to wait at all */

/* Those of its priority and before; itself not. */
static double n_before(const struct relay *r) {
    double n = 0;
    for (unsigned p = PRIORITY_FIRST; p <= r->priority; p++) n += (double)r->set->n_waiting[p];
    return n > 1 ? n - 1 : 0;
}

static void look_ahead(struct relay *r, struct forecast *out, const struct forecast_targets *t,
                       struct pass *ps) {
    struct relay_set *s = r->set;
    struct view_list *p = &ps->p, *d = &ps->d;
    struct forecast_facts f = {.n_before = n_before(r),
                               .placed_per_s = arrivals_per_s(&s->placed, clock_us())};
    schedule_count_links(p->views, p->n, d->views, d->n);
    r->demand = demand_of(r, ps);
    measure_all(r, p, d);
    if (route_expect(p->views, p->n, d->views, d->n, &r->demand)) measure_all(r, p, d);
    route_look_ahead(&f, &s->co->sched, p->views, p->n, d->views, d->n, &r->demand);
    forecast_of(out, &f, t);
}

bool relay_comes_too_late(struct relay *r, struct forecast *out) {
    struct relay_set *s = r->set;
    const struct coord_conf *c = &s->co->conf;
    const struct forecast_targets t = {
        .first_token_s = r->tenant->targets.first_token_s,
        .token_s = r->tenant->targets.token_s,
        .factor = c->reject_factor,
        .deadline_s = r->deadline_ms > 0 ? (double)(r->deadline_ms - r->arrival_ms) * 1e-3 : 0};
    struct pass ps = {.now = clock_ms()};
    *out = (struct forecast){0};
    if (s->book == NULL || (t.factor <= 0 && t.deadline_s <= 0)) return false;
    if (views_of(&ps.p, s->co, ROLE_PREFILL, false) && views_of(&ps.d, s->co, ROLE_DECODE, false))
        look_ahead(r, out, &t, &ps);
    views_free(&ps.p);
    views_free(&ps.d);
    return out->says != FORECAST_IN_TIME;
}
