/* plan: the rules, in their order.
 *
 * 0. Where no instance is ever split off (single_node) all of them are unsplit decode instances of
 *    one group, from the moment they are known, whatever labels or earlier plans say. No other rule
 *    applies.
 * 1. One that comes with a role keeps it; a static label leaves no choice.
 * 2. The others get a role in the fixed ratio, one that is missing first.
 * 3. Who is in no group goes to that of its peers, else to the one that has fewest of its role.
 *    There is another group only when the others are full and there are enough of both roles.
 * 4. A group that lacks a role gets one instance: from another group, or one of its own changes its
 *    role. An instance that would be alone there goes to another group.
 * 5. Where the load of a group needs clearly more of one role than of the other, one instance
 *    changes its role; or, by the daily decision, until a group has as many of each as that says.
 * 6. Where a group has nobody at work of a role, those of the other role do both, at once, until
 *    they can serve with one of it again.
 * 7. Where one role of a group is under pressure and a whole instance more would be too much, one
 *    of its instances does both, with a share of prefill; the one with label flex_static first.
 * 8. Where a group serves its load better unsplit than in any ratio, all of it do both, each
 * request on one instance, until that is not so any more; unless one of it is static in one role. A
 * group that is not split follows no load, and nobody of it has a share.
 *
 * Only rules 4 and 5 move what stands: at most one instance a group, as long as roles can change.
 */
#include "coordinator/plan.h"

#include <math.h>
#include <stdlib.h>
#include "coordinator/coord_conf.h"

/* Of one role (0: prefill, 1: decode) in one group. */
struct part {
    size_t n_heard;  /* members that have answered this coordinator */
    size_t n_open;   /* members that take new work */
    size_t n_able;   /* of these, have their role */
    size_t n_coming; /* switch to the role */
    bool held;       /* one had it within repair_ms: nothing is done about it yet */
};

struct group {
    size_t n;
    bool in_use, switching;
    bool unsplit;   /* some of it do both without a bound (rule 8) */
    bool is_static; /* some of it have one role for ever */
    struct part part[2];
};

struct work {
    struct plan_node *nodes;
    size_t n;
    const struct plan *plan;
    const struct plan_conf *conf;
    uint64_t now_ms;
    struct group *groups; /* by number; [0] is not used */
    size_t n_groups;      /* with [0] */
};

static int part_of(enum inst_role role) {
    return role == ROLE_PREFILL ? 0 : 1;
}
static enum inst_role role_of(int part) {
    return part == 0 ? ROLE_PREFILL : ROLE_DECODE;
}
static bool has_role(const struct plan_node *v) {
    return v->place.role == ROLE_PREFILL || v->place.role == ROLE_DECODE;
}
/* The role it has when a switch is over. */
static enum inst_role role_then(const struct plan_node *v) {
    return v->place.next != ROLE_NONE ? v->place.next : v->place.role;
}
static bool is_open(const struct plan_node *v) {
    return v->here && v->closed_ms == 0 && v->place.next == ROLE_NONE;
}
static bool is_free(const struct plan_node *v) {
    return is_open(v) && v->place.role == ROLE_NONE;
}
static bool prefers(const struct plan_node *v, enum inst_role role) {
    return v->label == (role == ROLE_PREFILL ? LABEL_PREFILL_PREFER : LABEL_DECODE_PREFER);
}
static bool may_switch(const struct plan_node *v) {
    return v->label != LABEL_PREFILL_STATIC && v->label != LABEL_DECODE_STATIC &&
           v->label != LABEL_FLEX_STATIC;
}

bool plan_is_unsplit(const struct plan_place *place) {
    return place->share >= PLAN_UNSPLIT;
}

bool plan_is_peer(enum inst_role role, unsigned group, const struct plan_place *place) {
    return group != 0 && place->group == group &&
           place->role == (role == ROLE_PREFILL ? ROLE_DECODE : ROLE_PREFILL);
}

/* ---- rule 0 */

/* Of one role, so that nobody of them is the peer of another. One that has not answered yet keeps
 * no other place: what it is to be does not depend on what it says. */
static void leave_whole(struct plan *p) {
    for (size_t i = 0; i < p->n; i++)
        p->nodes[i].place =
            (struct plan_place){.role = ROLE_DECODE, .group = 1, .share = PLAN_UNSPLIT};
    p->decided = true;
}

/* ---- rule 1 */
static void keep_reported(struct work *w) {
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        if (!v->here || v->place.role != ROLE_NONE) continue;
        if (v->reports == ROLE_PREFILL || v->reports == ROLE_DECODE)
            v->place.role = v->reports;
        else if (!w->conf->decides || !is_open(v))
            continue;
        else if (v->label == LABEL_PREFILL_STATIC)
            v->place.role = ROLE_PREFILL;
        else if (v->label == LABEL_DECODE_STATIC)
            v->place.role = ROLE_DECODE;
    }
}

/* ---- rule 2 */
size_t plan_n_prefill(size_t n, unsigned p_rate, unsigned d_rate) {
    if (p_rate + d_rate == 0) p_rate = d_rate = 1;
    size_t p = (size_t)llround((double)n * p_rate / (p_rate + d_rate));
    if (n >= 2 && p < 1) p = 1;
    if (n >= 2 && p > n - 1) p = n - 1;
    return p;
}

/* Gives the role to up to n instances that have none: those whose label prefers it, then those
 * without preference, then any. */
static void give(struct work *w, enum inst_role role, size_t n) {
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < w->n && n > 0; i++) {
            struct plan_node *v = &w->nodes[i];
            if (!is_free(v)) continue;
            if (pass == 0 && !prefers(v, role)) continue;
            if (pass == 1 && prefers(v, role == ROLE_PREFILL ? ROLE_DECODE : ROLE_PREFILL))
                continue;
            v->place.role = role;
            n--;
        }
    }
}

/* True when every known instance is there, or the wait for them is over. */
static bool may_give(const struct work *w, size_t n_here) {
    return n_here >= 2 && (n_here == w->n || w->plan->decided ||
                           w->now_ms - w->plan->started_ms >= w->conf->first_wait_ms);
}

static size_t n_groups_for(size_t n) {
    return (n + PLAN_GROUP_INSTANCES - 1) / PLAN_GROUP_INSTANCES;
}

static bool give_roles(struct work *w) {
    size_t n_here = 0, n_free = 0, n[2] = {0}, n_open[2] = {0};
    for (size_t i = 0; i < w->n; i++) {
        const struct plan_node *v = &w->nodes[i];
        n_here += v->here;
        n_free += is_free(v);
        if (!has_role(v)) continue;
        n[part_of(role_then(v))]++;
        n_open[part_of(role_then(v))] += is_open(v) || v->place.next != ROLE_NONE;
    }
    if (n_free == 0 || !may_give(w, n_here)) return false;
    const size_t all = n[0] + n[1] + n_free, groups = n_groups_for(all);
    size_t target = plan_n_prefill(all, w->conf->p_rate, w->conf->d_rate);
    /* every group has its part of each */
    if (target < groups) target = groups;
    if (all >= 2 * groups && target > all - groups) target = all - groups;
    size_t more_p = target > n[0] ? target - n[0] : 0;
    if (more_p > n_free) more_p = n_free;
    if (n_open[0] == 0 && n_open[1] > 0 && more_p == 0) more_p = 1;
    if (n_open[1] == 0 && n_open[0] + more_p > 1 && more_p == n_free) more_p--;
    give(w, ROLE_PREFILL, more_p);
    give(w, ROLE_DECODE, n_free);
    return true;
}

/* ---- groups */
static bool held_open(const struct work *w, const struct plan_node *v) {
    return v->place.next == ROLE_NONE &&
           (is_open(v) || w->now_ms - v->closed_ms < w->conf->repair_ms);
}

/* To put another one in its old role is up to whoever ordered it, for a while. */
static bool has_just_switched(const struct work *w, const struct plan_node *v) {
    return v->switched_ms != 0 && w->now_ms - v->switched_ms < w->conf->repair_ms;
}

static void count_in(struct work *w, const struct plan_node *v) {
    struct group *g = &w->groups[v->place.group];
    struct part *t = &g->part[part_of(v->place.role)];
    g->n++;
    g->in_use = true;
    t->n_heard += !v->unheard;
    t->n_open += is_open(v);
    t->n_able += is_open(v) && !v->roleless;
    t->held |= held_open(w, v);
    g->part[1 - part_of(v->place.role)].held |= has_just_switched(w, v);
    if (v->place.next != ROLE_NONE) {
        g->switching = true;
        g->part[part_of(v->place.next)].n_coming++;
    }
}

static void join(struct work *w, struct plan_node *v, unsigned group) {
    v->place.group = group;
    count_in(w, v);
}

static void leave(struct work *w, struct plan_node *v) {
    struct group *g = &w->groups[v->place.group];
    struct part *t = &g->part[part_of(v->place.role)];
    g->n--;
    t->n_heard -= !v->unheard;
    t->n_open -= is_open(v);
    t->n_able -= is_open(v) && !v->roleless;
    v->place.group = 0;
    v->place.share = 0;
}

static bool lacks(const struct group *g, int part) {
    return g->part[part].n_open + g->part[part].n_coming == 0 && !g->part[part].held;
}

static unsigned unused_group(const struct work *w) {
    unsigned g = 1;
    while (w->groups[g].in_use) g++;
    return g;
}

/* The group for one more of a role: not full, with the fewest of it at work; the smallest when all
 * are full. with_other: it must have the other role. 0: none. */
static unsigned best_group(const struct work *w, int part, unsigned but, bool with_other) {
    unsigned best = 0;
    for (unsigned g = 1; g < w->n_groups; g++) {
        const struct group *a = &w->groups[g], *b = &w->groups[best];
        if (!a->in_use || g == but || (with_other && a->part[1 - part].n_open == 0)) continue;
        if (best == 0) {
            best = g;
            continue;
        }
        const bool full_a = a->n >= PLAN_GROUP_INSTANCES, full_b = b->n >= PLAN_GROUP_INSTANCES;
        const size_t n_a = full_a ? a->n : a->part[part].n_open,
                     n_b = full_b ? b->n : b->part[part].n_open;
        if (full_a != full_b ? full_b : n_a < n_b) best = g;
    }
    return best;
}

/* ---- rule 3 */

/* Which group an id was seen in: as a member, or as a peer of one. Open addressing. */
struct seen {
    uint32_t id;
    unsigned group; /* 0: free */
};
struct seen_map {
    struct seen *at;
    size_t mask;
};

static struct seen *seen_slot(const struct seen_map *m, uint32_t id) {
    size_t i = (id * 2654435761u) & m->mask;
    while (m->at[i].group != 0 && m->at[i].id != id) i = (i + 1) & m->mask;
    return &m->at[i];
}

static void see(struct seen_map *m, const struct plan_node *v) {
    for (size_t k = 0; k <= v->n_links; k++) {
        const uint32_t id = k < v->n_links ? v->links[k] : v->id;
        struct seen *s = seen_slot(m, id);
        if (s->group == 0) *s = (struct seen){id, v->place.group};
    }
}

static unsigned group_of_peers(const struct seen_map *m, const struct plan_node *v) {
    unsigned g = seen_slot(m, v->id)->group;
    for (size_t k = 0; g == 0 && k < v->n_links; k++) g = seen_slot(m, v->links[k])->group;
    return g;
}

static bool comes_with_links(const struct plan_node *v) {
    return v->place.group == 0 && v->n_links > 0 && has_role(v);
}

/* A coordinator that was started again: the groups are those that its instances are linked in. */
static enum err join_peers(struct work *w) {
    size_t n_seen = 0, n_new = 0;
    struct seen_map m = {.mask = 15};
    for (size_t i = 0; i < w->n; i++) {
        n_seen += 1 + w->nodes[i].n_links;
        n_new += comes_with_links(&w->nodes[i]);
    }
    if (n_new == 0) return ERR_OK;
    while (m.mask < 2 * n_seen) m.mask = 2 * m.mask + 1;
    if ((m.at = calloc(m.mask + 1, sizeof(*m.at))) == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < w->n; i++)
        if (w->nodes[i].place.group != 0) see(&m, &w->nodes[i]);
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        if (!comes_with_links(v)) continue;
        const unsigned g = group_of_peers(&m, v);
        join(w, v, g != 0 ? g : unused_group(w));
        see(&m, v);
    }
    free(m.at);
    return ERR_OK;
}

static void open_groups(struct work *w) {
    size_t n[2] = {0}, n_used = 0;
    for (size_t i = 0; i < w->n; i++)
        if (has_role(&w->nodes[i])) n[part_of(role_then(&w->nodes[i]))]++;
    for (unsigned g = 1; g < w->n_groups; g++) n_used += w->groups[g].in_use;
    size_t wanted = n_groups_for(n[0] + n[1]);
    if (wanted > n[0]) wanted = n[0];
    if (wanted > n[1]) wanted = n[1];
    if (wanted == 0) wanted = 1;
    for (; n_used < wanted; n_used++) w->groups[unused_group(w)].in_use = true;
}

static enum err join_groups(struct work *w) {
    const enum err e = join_peers(w);
    size_t n_left = 0;
    for (size_t i = 0; i < w->n; i++)
        n_left += w->nodes[i].place.group == 0 && has_role(&w->nodes[i]);
    if (e != ERR_OK || n_left == 0) return e;
    open_groups(w);
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        if (v->place.group == 0 && has_role(v))
            join(w, v, best_group(w, part_of(v->place.role), 0, false));
    }
    return ERR_OK;
}

/* ---- rule 4 */
static void move(struct work *w, struct plan_node *v, unsigned group) {
    leave(w, v);
    join(w, v, group);
}

/* Of the open members of a group with a role, the one with the least to do. NULL: none may. */
static struct plan_node *least_busy(struct work *w, unsigned group, int part, bool to_switch) {
    struct plan_node *best = NULL;
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        if (v->place.group != group || v->place.role != role_of(part) || !is_open(v)) continue;
        if (to_switch && !may_switch(v)) continue;
        if (best == NULL) {
            best = v;
            continue;
        }
        const bool likes = to_switch && prefers(v, role_of(1 - part)),
                   best_likes = to_switch && prefers(best, role_of(1 - part));
        if (likes != best_likes ? likes : v->tasks < best->tasks) best = v;
    }
    return best;
}

/* The group that can spare one of a role best. 0: none can. */
static unsigned donor_of(const struct work *w, int part, unsigned but) {
    unsigned best = 0;
    size_t most = 1;
    for (unsigned g = 1; g < w->n_groups; g++)
        if (g != but && w->groups[g].part[part].n_open > most) {
            best = g;
            most = w->groups[g].part[part].n_open;
        }
    return best;
}

static void disband(struct work *w, unsigned group, int part) {
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        if (v->place.group == group && is_open(v) && has_role(v))
            move(w, v, best_group(w, 1 - part, group, true));
    }
}

/* One that is alone goes where there is room. */
static void rejoin(struct work *w, unsigned group, int part) {
    const struct group *g = &w->groups[group];
    const unsigned other = best_group(w, 1 - part, group, true);
    if (g->part[1 - part].n_open == 1 && !g->switching && other != 0 &&
        w->groups[other].n < PLAN_GROUP_INSTANCES)
        disband(w, group, part);
}

static void begin_switch(struct work *w, struct plan_node *v, int part) {
    struct group *g = &w->groups[v->place.group];
    v->place.next = role_of(part);
    v->place.by_load = false;
    g->switching = true;
    g->part[1 - part].n_open--;
    g->part[1 - part].n_able -= !v->roleless;
    g->part[part].n_coming++;
}

static void repair(struct work *w, unsigned group, int part) {
    struct group *g = &w->groups[group];
    const size_t n_others = g->part[1 - part].n_open;
    const unsigned donor = donor_of(w, part, group);
    if (n_others == 0 || g->switching) return; /* nobody to help, or under way */
    if (donor != 0) {
        move(w, least_busy(w, donor, part, false), group);
        return;
    }
    struct plan_node *v = n_others >= 2 ? least_busy(w, group, 1 - part, true) : NULL;
    if (v != NULL) {
        begin_switch(w, v, part);
    } else if (best_group(w, 1 - part, group, true) != 0) {
        disband(w, group, part);
    }
}

static void for_each_lack(struct work *w, void (*fn)(struct work *, unsigned, int)) {
    for (unsigned g = 1; g < w->n_groups; g++)
        for (int part = 0; part < 2; part++)
            if (w->groups[g].n > 0 && lacks(&w->groups[g], part)) fn(w, g, part);
}

static void repair_groups(struct work *w) {
    if (w->now_ms - w->plan->started_ms < w->conf->settle_ms) return;
    for_each_lack(w, rejoin);
    for_each_lack(w, repair);
}

/* ---- rule 5 */
/* Nobody has switched just now; or nobody to the role that is to give one (part): more of the same
 * is no change of mind. */
enum { ANY_PART = 2 };
static bool is_cool(const struct work *w, unsigned group, int part) {
    for (size_t i = 0; i < w->n; i++) {
        const struct plan_node *v = &w->nodes[i];
        if (v->place.group == group && v->switched_ms != 0 &&
            w->now_ms - v->switched_ms < w->conf->cool_ms &&
            (part == ANY_PART || v->place.role == role_of(part)))
            return false;
    }
    return true;
}

/* Members that work, and those that will when they have switched. */
static size_t n_working(const struct group *g) {
    size_t n = 0;
    for (int part = 0; part < 2; part++) n += g->part[part].n_able + g->part[part].n_coming;
    return n;
}

/* ---- rule 8 */

/* Nobody of the group has changed what it does just now. */
static bool is_at_rest(const struct work *w, unsigned group) {
    for (size_t i = 0; i < w->n; i++) {
        const struct plan_node *v = &w->nodes[i];
        if (v->place.group == group && v->shared_ms != 0 &&
            w->now_ms - v->shared_ms < w->conf->cool_ms)
            return false;
    }
    return is_cool(w, group, ANY_PART);
}

/* What those that are in it now say: rule 4 may have moved some. */
static void look_who_is_in(struct work *w) {
    for (unsigned g = 1; g < w->n_groups; g++)
        w->groups[g].unsplit = w->groups[g].is_static = false;
    for (size_t i = 0; i < w->n; i++) {
        const struct plan_node *v = &w->nodes[i];
        struct group *g = &w->groups[v->place.group];
        g->unsplit |= plan_is_unsplit(&v->place);
        g->is_static |= v->label == LABEL_PREFILL_STATIC || v->label == LABEL_DECODE_STATIC;
    }
}

/* Before rule 5, which has nothing to say of a group that is not split. */
static void split_or_not(struct work *w) {
    size_t n_all = 0;
    look_who_is_in(w);
    for (unsigned g = 1; g < w->n_groups; g++) n_all += n_working(&w->groups[g]);
    for (unsigned g = 1; g < w->n_groups; g++) {
        struct group *at = &w->groups[g];
        const size_t n_p = at->part[0].n_able, n_d = at->part[1].n_able;
        const bool may = w->conf->unsplit && w->conf->decides && !at->is_static;
        if (!may) at->unsplit = false;
        if (at->n == 0 || !may || at->switching || !is_at_rest(w, g)) continue;
        const struct role_needs need =
            role_needs_part(&w->conf->needs, n_all > 0 ? (double)n_working(at) / (double)n_all : 0);
        at->unsplit = role_needs_unsplit(&need, n_p, n_d, at->unsplit);
    }
}

/* Towards what the daily decision says of so many. */
static int lean_daily(const struct work *w, size_t n_p, size_t n_d) {
    const size_t wanted = digs_fill(&w->conf->digs, n_p + n_d);
    if (wanted > n_p) return n_d > 1 ? 1 : 0;
    return wanted < n_p && n_p > 1 ? -1 : 0;
}

/* Requests spread over the groups by their size. */
static void follow_load(struct work *w) {
    const struct role_needs *all = &w->conf->needs;
    size_t n_all = 0;
    const bool daily = w->conf->digs.p > 0;
    if (!(daily || all->p > 0 || all->d > 0) ||
        w->now_ms - w->plan->started_ms < w->conf->settle_ms)
        return;
    for (unsigned g = 1; g < w->n_groups; g++) n_all += n_working(&w->groups[g]);
    for (unsigned g = 1; g < w->n_groups; g++) {
        const size_t n_p = w->groups[g].part[0].n_able, n_d = w->groups[g].part[1].n_able;
        if (w->groups[g].switching || w->groups[g].unsplit || n_p == 0 || n_d == 0) continue;
        const struct role_needs need =
            role_needs_part(all, (double)n_working(&w->groups[g]) / (double)n_all);
        const int lean = daily ? lean_daily(w, n_p, n_d) : role_needs_lean(&need, n_p, n_d);
        const int part = lean > 0 ? 0 : 1;
        if (lean == 0 || !is_cool(w, g, 1 - part)) continue;
        struct plan_node *v = least_busy(w, g, 1 - part, true);
        if (v == NULL || v->roleless) continue;
        begin_switch(w, v, part);
        v->place.by_load = true;
    }
}

/* ---- rule 6 */

/* Nobody of it can work: those it had are away, or all have had the time to come. One that is known
 * from an earlier coordinator alone is on its way for so long. */
static bool is_missing(const struct work *w, const struct part *t) {
    return t->n_able == 0 &&
           (t->n_heard > 0 || w->now_ms - w->plan->started_ms >= w->conf->settle_ms);
}

static void stand_in(struct work *w) {
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        struct plan_place *at = &v->place;
        if (!w->conf->fall_back || !v->here || !has_role(v)) {
            at->stands_in = false;
        } else if (is_open(v)) { /* of the others nothing is asked */
            const struct part *other = &w->groups[at->group].part[1 - part_of(at->role)];
            at->stands_in = is_missing(w, other) || (at->stands_in && !v->paired);
        }
    }
}

/* ---- rule 7 */

/* Numbers of percent tell the next coordinator which role it had: odd ones prefill. */
static int share_of(enum inst_role role, int percent) {
    return role == ROLE_PREFILL ? percent + 1 : percent;
}

static bool may_share(const struct work *w, const struct plan_node *v, unsigned group) {
    return v->place.group == group && is_open(v) && has_role(v) && !v->roleless &&
           !v->place.stands_in && v->label != LABEL_PREFILL_STATIC &&
           v->label != LABEL_DECODE_STATIC && w->conf->decides;
}

/* Who does both: who does already, who is meant for it, who has least to do. NULL: none may. */
static struct plan_node *sharer_of(struct work *w, unsigned group, enum inst_role role) {
    struct plan_node *best = NULL;
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        if (!may_share(w, v, group) || v->place.role != role) continue;
        if (best == NULL) {
            best = v;
            continue;
        }
        const bool has = v->place.share > 0, best_has = best->place.share > 0,
                   meant = v->label == LABEL_FLEX_STATIC,
                   best_meant = best->label == LABEL_FLEX_STATIC;
        if (has != best_has ? has : meant != best_meant ? meant : v->tasks < best->tasks) best = v;
    }
    return best;
}

/* Nothing is changed for less than two tens, nor soon after the last time. */
static bool is_news(const struct work *w, const struct plan_node *v, int share) {
    const int was = v->place.share, by = was > share ? was - share : share - was;
    if (share > 0 && was > 0 && by < 20) return false;
    return v->shared_ms == 0 || w->now_ms - v->shared_ms >= w->conf->cool_ms;
}

static void share_in(struct work *w, unsigned group, const struct role_needs *need) {
    const struct group *g = &w->groups[group];
    struct plan_node *had = NULL, *next = NULL;
    for (size_t i = 0; i < w->n; i++)
        if (w->nodes[i].place.group == group && w->nodes[i].place.share > 0) had = &w->nodes[i];
    struct role_share s = {false, 0};
    if (!g->switching && w->conf->flex)
        s = role_needs_share(need, g->part[0].n_able, g->part[1].n_able, had != NULL);
    const enum inst_role role = s.of_p ? ROLE_PREFILL : ROLE_DECODE;
    if (s.percent > 0) next = sharer_of(w, group, role);
    if (had != NULL && had != next && is_open(had) && is_news(w, had, 0)) had->place.share = 0;
    if (next == NULL || (had != NULL && had != next && had->place.share > 0)) return;
    const int share = share_of(role, s.percent);
    if (is_news(w, next, share)) next->place.share = share;
}

/* Those that come to a group which is not split are like it at once, and nobody has a part there;
 * those that a group has which is split again have no share. */
static void share_all(struct work *w, unsigned group) {
    const bool unsplit = w->groups[group].unsplit;
    for (size_t i = 0; i < w->n; i++) {
        struct plan_node *v = &w->nodes[i];
        const bool is = plan_is_unsplit(&v->place);
        if (v->place.group != group) continue;
        if (unsplit && may_share(w, v, group))
            v->place.share = v->place.role == ROLE_PREFILL ? PLAN_UNSPLIT + 1 : PLAN_UNSPLIT;
        else if (unsplit ? is_open(v) && !is : is)
            v->place.share = 0;
    }
}

static void share(struct work *w) {
    size_t n_all = 0;
    for (unsigned g = 1; g < w->n_groups; g++) n_all += n_working(&w->groups[g]);
    for (unsigned g = 1; g < w->n_groups; g++) {
        const struct role_needs need = role_needs_part(
            &w->conf->needs, n_all > 0 ? (double)n_working(&w->groups[g]) / (double)n_all : 0);
        if (w->groups[g].n == 0) continue;
        share_all(w, g);
        if (!w->groups[g].unsplit) share_in(w, g, &need);
    }
    for (size_t i = 0; i < w->n; i++) { /* one that changes, or does all, has no part of it */
        struct plan_place *at = &w->nodes[i].place;
        if (at->next != ROLE_NONE || at->stands_in || (!w->conf->flex && !plan_is_unsplit(at)))
            at->share = 0;
    }
}

/* ---- all of them */
static int by_id(const void *a, const void *b) {
    const struct plan_node *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static enum err start(struct work *w) {
    unsigned most = 0;
    for (size_t i = 0; i < w->n; i++)
        if (w->nodes[i].place.group > most) most = w->nodes[i].place.group;
    w->n_groups = most + w->n + 2; /* every instance could have one of its own */
    w->groups = calloc(w->n_groups, sizeof(*w->groups));
    return w->groups != NULL ? ERR_OK : ERR_NO_MEMORY;
}

enum err plan_make(struct plan *p, const struct plan_conf *c, uint64_t now_ms) {
    struct work w = {.n = p->n, .plan = p, .conf = c, .now_ms = now_ms};
    bool gave = false;
    if (p->n == 0) return ERR_OK;
    qsort(p->nodes, p->n, sizeof(*p->nodes), by_id);
    if (c->single_node && c->decides) {
        leave_whole(p);
        return ERR_OK;
    }
    if ((w.nodes = malloc(p->n * sizeof(*w.nodes))) == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < p->n; i++) {
        w.nodes[i] = p->nodes[i];
        if (!has_role(&w.nodes[i])) w.nodes[i].place = (struct plan_place){0};
    }
    enum err e = start(&w);
    if (e == ERR_OK) {
        keep_reported(&w);
        gave = c->decides && give_roles(&w);
        for (size_t i = 0; i < w.n; i++)
            if (w.nodes[i].place.group != 0) count_in(&w, &w.nodes[i]);
        e = join_groups(&w);
    }
    if (e == ERR_OK) {
        if (c->decides) {
            repair_groups(&w);
        }
        split_or_not(&w);
        if (c->decides) follow_load(&w);
        stand_in(&w);
        share(&w);
        for (size_t i = 0; i < p->n; i++) p->nodes[i].place = w.nodes[i].place;
        p->decided |= gave;
    }
    free(w.nodes);
    free(w.groups);
    return e;
}
