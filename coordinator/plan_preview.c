/* plan_preview: the differences of two plans, in words. */
#include "coordinator/plan_preview.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coordinator/coord_conf.h"

/* A plan, and what plan_make() makes of it. */
struct look {
    const struct plan *was;
    struct plan is; /* its nodes are a copy */
    const struct plan_conf *conf;
    uint64_t now_ms; /* of the change */
};

static bool same_place(const struct plan_place *a, const struct plan_place *b) {
    return a->role == b->role && a->next == b->next && a->group == b->group &&
           a->stands_in == b->stands_in && a->share == b->share;
}

static enum inst_role other_role(enum inst_role role) {
    return role == ROLE_PREFILL ? ROLE_DECODE : ROLE_PREFILL;
}

static int by_id(const void *a, const void *b) {
    const struct plan_node *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_at_work(const struct plan_node *v) {
    return v->here && v->closed_ms == 0 && v->place.next == ROLE_NONE;
}

static bool is_static(const struct plan_node *v) {
    return v->label == LABEL_PREFILL_STATIC || v->label == LABEL_DECODE_STATIC ||
           v->label == LABEL_FLEX_STATIC;
}

/* Members of a group with a role that take new work. */
static size_t n_at_work(const struct plan *p, unsigned group, enum inst_role role) {
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->nodes[i].place.group == group && p->nodes[i].place.role == role &&
             is_at_work(&p->nodes[i]);
    return n;
}

/* ---- why something changes */

static void why_first_role(char *why, const struct look *l, const struct plan_node *v,
                           const struct plan_place *to) {
    const char *role = inst_role_name(to->role);
    if (v->reports == to->role)
        snprintf(why, PLAN_WHY_BYTES, "it has the role %s already; group %u", role, to->group);
    else if (is_static(v))
        snprintf(why, PLAN_WHY_BYTES, "its label allows %s alone; group %u", role, to->group);
    else
        snprintf(why, PLAN_WHY_BYTES,
                 "%zu instances in the ratio %u:%u, %s one more %s instance; group %u", l->was->n,
                 l->conf->p_rate != 0 ? l->conf->p_rate : 1,
                 l->conf->d_rate != 0 ? l->conf->d_rate : 1,
                 v->label == (to->role == ROLE_PREFILL ? LABEL_PREFILL_PREFER : LABEL_DECODE_PREFER)
                     ? "and by its label,"
                     : "want",
                 role, to->group);
}

static void why_moved(char *why, const struct look *l, const struct plan_node *v,
                      const struct plan_place *to) {
    if (n_at_work(l->was, to->group, to->role) == 0)
        snprintf(why, PLAN_WHY_BYTES,
                 "group %u has no %s instance at work, and group %u can spare one", to->group,
                 inst_role_name(to->role), v->place.group);
    else
        snprintf(why, PLAN_WHY_BYTES,
                 "group %u has no %s instance at work, and nobody for it: its others go where "
                 "they have peers",
                 v->place.group, inst_role_name(other_role(to->role)));
}

static void explain(char *why, const struct look *l, const struct plan_node *v,
                    const struct plan_place *to) {
    if (l->conf->single_node)
        snprintf(why, PLAN_WHY_BYTES, "deploy_mode single_node: every instance does both");
    else if (v->place.role != to->role)
        why_first_role(why, l, v, to);
    else if (to->next != v->place.next && to->by_load)
        snprintf(why, PLAN_WHY_BYTES,
                 "the load needs %.2f prefill and %.2f decode instances, and this %s instance of "
                 "group %u has least to do of those that may switch",
                 l->conf->needs.p, l->conf->needs.d, inst_role_name(to->role), to->group);
    else if (to->next != v->place.next)
        snprintf(why, PLAN_WHY_BYTES,
                 "group %u has had no %s instance at work for %llu s, and this %s instance has "
                 "least to do of those that may switch",
                 to->group, inst_role_name(to->next), (unsigned long long)l->conf->repair_ms / 1000,
                 inst_role_name(to->role));
    else if (to->stands_in != v->place.stands_in)
        snprintf(why, PLAN_WHY_BYTES, "group %u has %s %s instance that can work", to->group,
                 to->stands_in ? "no" : "a", inst_role_name(other_role(to->role)));
    else if (to->share != v->place.share && (plan_is_unsplit(to) || plan_is_unsplit(&v->place)))
        snprintf(why, PLAN_WHY_BYTES,
                 "the load needs %.2f prefill and %.2f decode instances, or %.2f unsplit ones, and "
                 "so group %u %s",
                 l->conf->needs.p, l->conf->needs.d, l->conf->needs.whole, to->group,
                 plan_is_unsplit(to) ? "is not split" : "is split again");
    else if (to->share != v->place.share)
        snprintf(
            why, PLAN_WHY_BYTES,
            "the load needs %.2f prefill and %.2f decode instances, and so this %s instance of "
            "group %u %s",
            l->conf->needs.p, l->conf->needs.d, inst_role_name(to->role), to->group,
            to->share > 0 ? "does both, with a share" : "need not do both any more");
    else if (v->place.group != 0)
        why_moved(why, l, v, to);
    else
        snprintf(why, PLAN_WHY_BYTES, "group %u has its peers, or fewest %s instances", to->group,
                 inst_role_name(to->role));
}

/* ---- what nobody can mend */

static void why_lacking(char *why, const struct look *l, unsigned group, enum inst_role role) {
    const enum inst_role other = other_role(role);
    size_t n_others = 0, n_may = 0;
    bool switching = false;
    for (size_t i = 0; i < l->is.n; i++) {
        const struct plan_node *v = &l->is.nodes[i];
        if (v->place.group != group) continue;
        switching |= v->place.next != ROLE_NONE;
        n_others += v->place.role == other && is_at_work(v);
        n_may += v->place.role == other && is_at_work(v) && !is_static(v);
    }
    if (!l->conf->decides)
        snprintf(why, PLAN_WHY_BYTES, "controller.enabled is false: roles come from elsewhere");
    else if (switching)
        snprintf(why, PLAN_WHY_BYTES, "a switch in the group is under way");
    else if (n_others == 0)
        snprintf(why, PLAN_WHY_BYTES, "the group has no %s instance at work either",
                 inst_role_name(other));
    else if (n_others == 1)
        snprintf(why, PLAN_WHY_BYTES,
                 "the group has one %s instance, which must stay, and no other group can spare a "
                 "%s instance",
                 inst_role_name(other), inst_role_name(role));
    else if (n_may == 0)
        snprintf(why, PLAN_WHY_BYTES,
                 "the labels of its %zu %s instances are static, and no other group can spare a "
                 "%s instance",
                 n_others, inst_role_name(other), inst_role_name(role));
    else
        snprintf(why, PLAN_WHY_BYTES,
                 "it waits until none was at work for %llu s (pd.role_repair_s)",
                 (unsigned long long)l->conf->repair_ms / 1000);
}

/* Whether anybody of the group with the role is at work, or about to be. */
static bool is_lacking(const struct plan *p, unsigned group, enum inst_role role, bool *any) {
    bool has = false;
    for (size_t i = 0; i < p->n; i++) {
        const struct plan_node *v = &p->nodes[i];
        if (v->place.group != group || v->place.role == ROLE_NONE) continue;
        *any = true;
        has |= v->place.next == role ||
               ((v->place.role == role || plan_is_unsplit(&v->place)) && is_at_work(v));
    }
    return !has;
}

static int by_group(const void *a, const void *b) {
    const unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return x < y ? -1 : x > y;
}

static enum err find_lacks(struct plan_preview *out, const struct look *l) {
    unsigned *groups = calloc(l->is.n + 1, sizeof(*groups));
    out->lacks = calloc(2 * l->is.n + 1, sizeof(*out->lacks));
    if (groups == NULL || out->lacks == NULL) {
        free(groups);
        return ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < l->is.n; i++) groups[i] = l->is.nodes[i].place.group;
    qsort(groups, l->is.n, sizeof(*groups), by_group);
    for (size_t i = 0; i < l->is.n; i++) {
        if (groups[i] == 0 || (i > 0 && groups[i] == groups[i - 1])) continue;
        for (int k = 0; k < 2; k++) {
            const enum inst_role role = k == 0 ? ROLE_PREFILL : ROLE_DECODE;
            bool any = false;
            if (!is_lacking(&l->is, groups[i], role, &any) || !any) continue;
            struct plan_lack *lack = &out->lacks[out->n_lacks++];
            *lack = (struct plan_lack){.group = groups[i], .role = role};
            why_lacking(lack->why, l, groups[i], role);
        }
    }
    free(groups);
    return ERR_OK;
}

/* ---- now, or later */

/* Has the plan of so late made. True: it changes something. */
static enum err look_at(struct look *l, uint64_t at_ms, bool *changes) {
    struct plan_node *nodes = l->is.nodes;
    *changes = false;
    memcpy(nodes, l->was->nodes, l->was->n * sizeof(*nodes));
    l->is = *l->was;
    l->is.nodes = nodes;
    l->now_ms = at_ms;
    const enum err e = plan_make(&l->is, l->conf, at_ms);
    for (size_t i = 0; e == ERR_OK && i < l->is.n; i++)
        *changes |= !same_place(&l->is.nodes[i].place, &l->was->nodes[i].place);
    return e;
}

static int by_time(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The moments ahead at which a rule's wait ends. */
static size_t moments(uint64_t *at, const struct plan *p, const struct plan_conf *c,
                      uint64_t now_ms) {
    size_t n = 0, n_out = 0;
    at[n++] = p->started_ms + c->settle_ms;
    at[n++] = p->started_ms + c->first_wait_ms;
    for (size_t i = 0; i < p->n; i++) {
        if (p->nodes[i].closed_ms != 0) at[n++] = p->nodes[i].closed_ms + c->repair_ms;
        if (p->nodes[i].switched_ms == 0) continue;
        at[n++] = p->nodes[i].switched_ms + c->repair_ms;
        if (c->cool_ms > 0) at[n++] = p->nodes[i].switched_ms + c->cool_ms;
    }
    qsort(at, n, sizeof(*at), by_time);
    for (size_t i = 0; i < n; i++)
        if (at[i] > now_ms && (n_out == 0 || at[n_out - 1] != at[i])) at[n_out++] = at[i];
    return n_out < PLAN_LOOKS_MAX ? n_out : PLAN_LOOKS_MAX;
}

static enum err look_ahead(struct look *l, uint64_t now_ms, uint64_t *in_ms) {
    uint64_t *at = calloc(3 * l->was->n + 2, sizeof(*at));
    bool changes = false;
    *in_ms = 0;
    if (at == NULL) return ERR_NO_MEMORY;
    enum err e = look_at(l, now_ms, &changes);
    const size_t n = changes ? 0 : moments(at, l->was, l->conf, now_ms);
    for (size_t i = 0; e == ERR_OK && !changes && i < n; i++) {
        e = look_at(l, at[i], &changes);
        if (changes) *in_ms = at[i] - now_ms;
    }
    free(at);
    return e;
}

static enum err note_changes(struct plan_preview *out, const struct look *l) {
    out->changes = calloc(l->is.n + 1, sizeof(*out->changes));
    if (out->changes == NULL) return ERR_NO_MEMORY;
    for (size_t i = 0; i < l->is.n; i++) {
        const struct plan_node *v = &l->was->nodes[i];
        const struct plan_place *to = &l->is.nodes[i].place;
        if (same_place(&v->place, to)) continue;
        struct plan_change *c = &out->changes[out->n_changes++];
        *c = (struct plan_change){.id = v->id, .from = v->place, .to = *to};
        explain(c->why, l, v, to);
    }
    return ERR_OK;
}

enum err plan_preview(struct plan_preview *out, struct plan *p, const struct plan_conf *c,
                      uint64_t now_ms) {
    struct look l = {.was = p, .conf = c};
    memset(out, 0, sizeof(*out));
    if (p->n == 0) return ERR_OK;
    qsort(p->nodes, p->n, sizeof(*p->nodes), by_id); /* as plan_make() leaves them */
    if ((l.is.nodes = malloc(p->n * sizeof(*l.is.nodes))) == NULL) return ERR_NO_MEMORY;
    enum err e = look_ahead(&l, now_ms, &out->in_ms);
    if (e == ERR_OK) e = note_changes(out, &l);
    if (e == ERR_OK) e = find_lacks(out, &l);
    free(l.is.nodes);
    if (e != ERR_OK) plan_preview_free(out);
    return e;
}

void plan_preview_free(struct plan_preview *v) {
    free(v->changes);
    free(v->lacks);
    memset(v, 0, sizeof(*v));
}
