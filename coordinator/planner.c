/* planner: shows the instances to plan_make() and begins what is new in its plan: roles, groups,
 * switches. A switch that an operator orders takes the same way. */
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/alarms.h"
#include "coordinator/coordinator.h"
#include "coordinator/relay.h"
#include "coordinator/stand_in.h"

/* ---- facts */

/* It answers and may be given new work; a switch of its role is the plan's own. */
static bool is_open(const struct inst *in) {
    return in->facts.online && inst_answers(in) && in->life.state != INST_LEAVING &&
           (in->drain.why == DRAIN_NONE || in->drain.why == DRAIN_SWITCH) &&
           !in->facts.status.held && in->facts.status.stuck_ms == 0;
}

static void note_closed(struct inst *in, uint64_t now_ms) {
    if (is_open(in)) {
        in->facts.closed_ms = 0;
    } else if (in->facts.closed_ms == 0) {
        in->facts.closed_ms = now_ms;
    }
}

/* One of the other role serves, and could be its partner. */
static bool has_partner(const struct coordinator *co, const struct inst *in) {
    const struct status_msg *m = &in->facts.status;
    for (size_t i = 0; i < m->n_links; i++) {
        const struct inst *other =
            m->links[i].ok ? registry_find(&co->reg, m->links[i].target) : NULL;
        if (other != NULL && other->plan.place.role != in->plan.place.role &&
            inst_linked(in, other) && inst_serves(other, NULL))
            return true;
    }
    return false;
}

/* links: room for as many as it has; NULL: nobody wants them. */
static struct plan_node node_of(const struct coordinator *co, const struct inst *in,
                                uint32_t *links) {
    const struct status_msg *m = &in->facts.status;
    struct plan_node v = {.id = in->id,
                          .label = override_label(in),
                          .here = in->facts.online && inst_answers(in),
                          .unheard = !in->facts.online,
                          .reports = stand_in_reported(co, m),
                          .closed_ms = in->facts.closed_ms,
                          .switched_ms = in->plan.switched_ms,
                          .shared_ms = in->plan.shared_ms,
                          .roleless = in->facts.roleless,
                          .paired = in->plan.place.stands_in && has_partner(co, in),
                          .tasks = in->ledger.tasks,
                          .links = links,
                          .place = in->plan.place};
    for (; links != NULL && v.n_links < m->n_links; v.n_links++)
        links[v.n_links] = m->links[v.n_links].target;
    return v;
}

/* ---- the load */

/* D's side of requests whose prompt is computed still is no decoding. */
static void load_of(const struct coordinator *co, struct role_load *out, double *slots) {
    double n_d = 0, tokens = 0, in_prefill = 0;
    *slots = 0;
    relay_load(co->relays, out);
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        const struct ledger *l = &in->ledger;
        out->decoding += l->decodes;
        in_prefill += l->tasks - l->decodes;
        tokens += (double)l->prompt_tokens;
        if (in->plan.place.role != ROLE_DECODE) continue;
        n_d++;
        *slots += in->facts.status.total_slots;
    }
    out->decoding = out->decoding > in_prefill ? out->decoding - in_prefill : 0;
    out->backlog_prompt_s = perf_prompt_s(&co->abilities.of[0], tokens);
    if (n_d > 0) *slots /= n_d;
}

/* In each tick while instances are few, since routes go by it; of many, one a millisecond. */
static void learn_abilities(struct coordinator *co, uint64_t now_ms) {
    struct abilities *a = &co->abilities;
    if (a->n > 0 && now_ms < co->learnt_ms + co->reg.n) return;
    co->learnt_ms = now_ms;
    abilities_begin(a);
    for (struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (inst_answers(in)) abilities_add(a, &in->ability, &in->facts.status.perf);
    for (struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (inst_answers(in)) abilities_note(a, &in->ability, &in->facts.status.perf, now_ms);
}

void planner_needs(const struct coordinator *co, struct role_needs *out) {
    struct role_load load = {0};
    const struct targets asked = relay_strictest(co->relays);
    struct role_targets t = {.first_token_s = asked.first_token_s, .token_s = asked.token_s};
    load_of(co, &load, &t.slots);
    role_needs_of(out, &load, &t, &co->abilities.of[0], clock_us());
}

/* The daily decision holds until the next one. Abilities are measured ones, where instances have
 * measured enough, else the formulas', where the files are there. */
enum { DECIDING_SAMPLES_MIN = 50 };

static uint32_t n_samples(const struct perf_msg *m) {
    uint32_t n = 0;
    for (int i = 0; i < PERF_BATCHES; i++)
        for (int k = 0; k < PERF_CONTEXTS; k++) n += m->steps[i][k].n;
    return n;
}

static void decide_daily(struct coordinator *co, uint64_t now_ms) {
    const struct coord_conf *c = &co->conf;
    struct relay_lengths mean;
    if (strcmp(c->role_decision, "daily") != 0 || c->p_rate != 0 || !c->roles_follow) return;
    if (co->decided_ms != 0 && now_ms - co->decided_ms < (uint64_t)c->decision_period_s * 1000)
        return;
    relay_lengths(co->relays, &mean);
    const struct digs_load l = {
        .input = mean.input > 0 ? (double)mean.input : (double)c->summary_input,
        .output = mean.output > 0 ? (double)mean.output : (double)c->summary_output,
        .prefill_slo_ms = (double)c->prefill_slo_ms,
        .decode_slo_ms = (double)c->decode_slo_ms};
    struct role_load load = {0};
    struct role_targets t = {.first_token_s = l.prefill_slo_ms * 1e-3,
                             .token_s = l.decode_slo_ms * 1e-3};
    struct digs_abilities a = {0};
    load_of(co, &load, &t.slots);
    if (n_samples(&co->abilities.of[0]) >= DECIDING_SAMPLES_MIN)
        digs_measured(&a, &co->abilities.of[0], &t, &l);
    if (!(a.p > 0 && a.d > 0) && co->digs_model.hidden > 0)
        digs_by_formula(&a, &co->digs_model, &co->digs_machine, &l);
    if (!(a.p > 0 && a.d > 0)) return; /* until somebody knows */
    co->digs = a;
    co->decided_ms = now_ms;
    log_info("controller",
             "event=role_decision input=%.0f output=%.0f p_per_s=%.3f d_per_s=%.3f t_per_s=%.3f "
             "prefill_of_16=%zu",
             l.input, l.output, a.p, a.d, a.t, digs_fill(&a, PLAN_GROUP_INSTANCES));
}

static struct plan_conf conf_of(const struct coordinator *co) {
    const struct coord_conf *c = &co->conf;
    struct plan_conf conf = {.decides = c->controller_enabled,
                             .single_node = c->single_node,
                             .p_rate = (unsigned)c->p_rate,
                             .d_rate = (unsigned)c->d_rate,
                             .first_wait_ms =
                                 (uint64_t)c->online_attempts * (uint64_t)c->online_wait_s * 1000,
                             .settle_ms = (uint64_t)c->register_lease_s * 1000,
                             .repair_ms = (uint64_t)c->role_repair_s * 1000,
                             .fall_back = c->controller_enabled && c->fall_back,
                             .flex = c->controller_enabled && c->flex,
                             .unsplit = c->controller_enabled && c->unsplit,
                             .cool_ms = (uint64_t)c->role_cool_s * 1000};
    if (c->roles_follow && c->p_rate == 0) {
        conf.digs = co->digs;
        if (strcmp(c->role_decision, "daily") != 0) planner_needs(co, &conf.needs);
    }
    return conf;
}

/* ---- what is new in a plan */
/* One that follows the load is not waited for: it takes nothing from what runs there. */
static void begin_switch(struct coordinator *co, struct inst *in, enum inst_role role, bool force,
                         bool at_once, const char *by) {
    log_info("controller", "id=%u event=switch by=%s from=%s to=%s force=%d", in->id, by,
             inst_role_name(in->plan.place.role), inst_role_name(role), force);
    in->plan.place.next = role;
    in->plan.force = force;
    in->plan.at_once = at_once;
    in->plan.switch_began_us = clock_us();
    in->plan.switch_until_ms = clock_ms() + (uint64_t)co->conf.drain_s * 1000;
    drain_tick(co, in, clock_ms());
    if (force) drain_move(co, in);
    controller_poll_soon(co);
}

void planner_stands_in(struct coordinator *co, struct inst *in, bool on) {
    struct plan_place *at = &in->plan.place;
    const struct alarm_of of = controller_alarm_of(in);
    if (at->stands_in == on) return;
    at->stands_in = on;
    if (on)
        alarms_raise(co->alarms, ALARM_DEGRADED, &of, 1,
                     "it stands in for a role that has nobody left");
    else
        alarms_clear(co->alarms, ALARM_DEGRADED, &of);
    log_warn("controller", "id=%u event=%s role=%s group=%u", in->id,
             on ? "stands_in" : "stands_in_no_more",
             inst_role_name(at->role == ROLE_PREFILL ? ROLE_DECODE : ROLE_PREFILL), at->group);
}

static void take(struct coordinator *co, struct inst *in, const struct plan_node *v) {
    struct plan_place *at = &in->plan.place;
    if (in->pushed.on) return; /* its place comes from elsewhere */
    if (v->place.role != at->role)
        log_info("controller", "id=%u event=%s role=%s", in->id,
                 v->place.role == v->reports ? "role_kept" : "role_decided",
                 inst_role_name(v->place.role));
    if (at->group != 0 && v->place.group != at->group)
        log_info("controller", "id=%u event=moved from_group=%u to_group=%u", in->id, at->group,
                 v->place.group);
    at->role = v->place.role;
    at->group = v->place.group;
    planner_stands_in(co, in, v->place.stands_in);
    if (v->place.share != at->share) {
        log_info("controller", "id=%u event=share role=%s percent=%d was=%d", in->id,
                 inst_role_name(at->role), v->place.share, at->share);
        at->share = v->place.share;
        in->plan.shared_ms = clock_ms();
    }
    if (v->place.next != at->next) {
        log_warn("controller", "event=role_wanted group=%u role=%s", at->group,
                 inst_role_name(v->place.next));
        begin_switch(co, in, v->place.next, false, v->place.by_load,
                     v->place.by_load ? "load" : "plan");
    }
}

static int by_id(const void *key, const void *node) {
    const uint32_t id = *(const uint32_t *)key, other = ((const struct plan_node *)node)->id;
    return id < other ? -1 : id > other;
}

static const struct plan_node *find(const struct plan *p, uint32_t id) {
    return bsearch(&id, p->nodes, p->n, sizeof(*p->nodes), by_id);
}

enum err planner_facts(struct coordinator *co, struct planner_facts *f) {
    const uint64_t now = clock_ms();
    size_t n_links = 0, i = 0;
    bool any_new = false; /* links say to which group it goes (plan.h, rule 3), and nothing else */
    for (struct inst *in = co->reg.first; in != NULL; in = in->next) {
        note_closed(in, now);
        any_new |= in->plan.place.group == 0;
        n_links += in->facts.status.n_links;
    }
    if (!any_new) n_links = 0;
    learn_abilities(co, now);
    decide_daily(co, now);
    *f = (struct planner_facts){.conf = conf_of(co),
                                .plan = {.nodes = calloc(co->reg.n + 1, sizeof(*f->plan.nodes)),
                                         .n = co->reg.n,
                                         .started_ms = co->started_ms,
                                         .decided = co->roles_decided},
                                .links = calloc(n_links + 1, sizeof(*f->links))};
    if (f->plan.nodes == NULL || f->links == NULL) {
        planner_facts_free(f);
        return ERR_NO_MEMORY;
    }
    uint32_t *next_link = f->links;
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next, i++) {
        f->plan.nodes[i] = node_of(co, in, any_new ? next_link : NULL);
        next_link += f->plan.nodes[i].n_links;
    }
    return ERR_OK;
}

void planner_facts_free(struct planner_facts *f) {
    free(f->plan.nodes);
    free(f->links);
    memset(f, 0, sizeof(*f));
}

void planner_run(struct coordinator *co) {
    struct planner_facts f;
    const uint64_t now = clock_ms();
    if (co->reg.n == 0) return;
    if (planner_facts(co, &f) != ERR_OK) return;
    if (plan_make(&f.plan, &f.conf, now) == ERR_OK) {
        co->roles_decided = f.plan.decided;
        for (struct inst *in = co->reg.first; in != NULL; in = in->next)
            take(co, in, find(&f.plan, in->id));
    }
    planner_facts_free(&f);
}

/* ---- for the next coordinator */
void planner_keep(struct coordinator *co) {
    struct store_state s = {.term = co->next_term > co->term ? co->next_term : co->term};
    struct errbuf eb = {0};
    if ((s.rows = calloc(co->reg.n + 1, sizeof(*s.rows))) == NULL) return; /* the next round */
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (in->pushed.on) continue;
        struct store_row *r = &s.rows[s.n_rows++];
        memcpy(r->identity, in->identity, sizeof(r->identity));
        r->id = in->id;
        r->role = in->plan.place.role;
        r->group = in->plan.place.group;
        r->drained = in->drain.ordered;
        if (in->plan.override.role == ROLE_NONE) continue;
        r->override = in->plan.override.role;
        r->back = in->plan.override.back;
        r->override_unix_s = in->plan.override.until_unix_s;
    }
    /* Those that have not come back yet are kept until they have had their time. */
    const bool settled = clock_ms() - co->started_ms >= (uint64_t)co->conf.register_lease_s * 1000;
    if (store_keep(co->store, &s, !settled, &eb) == ERR_OK) {
        co->store_failed = false;
    } else if (!co->store_failed) {
        log_error("store", "event=not_written detail=\"%s\"", eb.text);
        co->store_failed = true;
    }
    store_state_free(&s);
}

/* ---- orders */
/* Those that only embed do the same whatever their roles. */
bool planner_has_other(const struct coordinator *co, const struct inst *in) {
    const bool any = controller_embeds(co);
    for (const struct inst *o = co->reg.first; o != NULL; o = o->next)
        if (o != in && (any || inst_works_as(o, in->plan.place.role)) && inst_serves(o, NULL))
            return true;
    return false;
}

bool planner_can_spare(const struct coordinator *co, const struct inst *in) {
    if (planner_has_other(co, in)) return true;
    if (!co->conf.fall_back || !co->conf.controller_enabled) return false;
    for (const struct inst *o = co->reg.first; o != NULL; o = o->next)
        if (o != in && o->plan.place.group == in->plan.place.group && inst_serves(o, NULL))
            return true; /* it will stand in */
    return false;
}

/* It has the role, or gets it as its first one. */
static bool needs_no_switch(const struct inst *in, enum inst_role role) {
    return in->plan.place.role == role || in->plan.place.role == ROLE_NONE;
}

enum err planner_may_switch(const struct coordinator *co, uint32_t id, enum inst_role role,
                            bool force, struct errbuf *eb) {
    const struct inst *in = registry_find(&co->reg, id);
    if (in == NULL) return err_set(eb, ERR_NOT_FOUND, "id must be a known instance, got %u", id);
    if (role != ROLE_PREFILL && role != ROLE_DECODE)
        return err_set(eb, ERR_INVALID, "role must be prefill or decode");
    if (!co->conf.controller_enabled)
        return err_set(eb, ERR_CONFLICT, "controller.enabled is false: roles come from elsewhere");
    if (co->conf.single_node)
        return err_set(eb, ERR_CONFLICT, "deploy_mode is single_node: no instance has one role");
    if (needs_no_switch(in, role)) return ERR_OK;
    if (!in->facts.online || !inst_answers(in) || in->life.state == INST_LEAVING)
        return err_set(eb, ERR_CONFLICT, "instance %u does not answer", id);
    if (!force && !planner_has_other(co, in))
        return err_set(
            eb, ERR_CONFLICT,
            "instance %u is the last %s instance; \"force\": true switches it all the same", id,
            inst_role_name(in->plan.place.role));
    return ERR_OK;
}

enum err planner_switch(struct coordinator *co, uint32_t id, enum inst_role role, bool force,
                        struct errbuf *eb) {
    const enum err e = planner_may_switch(co, id, role, force, eb);
    struct inst *in = registry_find(&co->reg, id);
    if (e != ERR_OK) return e;
    in->plan.override.role = ROLE_NONE; /* this one stays */
    if (needs_no_switch(in, role)) {
        in->plan.place.role = role;
        in->plan.place.next = ROLE_NONE;
        drain_tick(co, in, clock_ms());
        planner_run(co);
    } else {
        begin_switch(co, in, role, force, false, "order");
    }
    return ERR_OK;
}

void planner_end_late_switch(struct inst *in, uint64_t now_ms) {
    if (in->plan.place.next == ROLE_NONE || in->role_call != NULL ||
        now_ms < in->plan.switch_until_ms)
        return;
    log_warn("controller", "id=%u event=switch_given_up tasks=%u detail=\"%s\"", in->id,
             in->ledger.tasks, in->facts.last_error);
    in->plan.place.next = ROLE_NONE;
    in->plan.force = in->plan.at_once = false;
}
