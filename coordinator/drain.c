/* drain: who is to be drained, since when, and what becomes of what is left. */
#include "coordinator/drain.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/relay.h"

enum { MOVE_AGAIN_MS = 1000 };

const char *drain_why_name(enum drain_why why) {
    static const char *const names[] = {
        [DRAIN_NONE] = "none",         [DRAIN_ORDER] = "order",       [DRAIN_SWITCH] = "switch",
        [DRAIN_STOPPING] = "stopping", [DRAIN_UNLISTED] = "unlisted", [DRAIN_OFFLINE] = "offline"};
    return names[why];
}

bool drain_is_empty(const struct inst *in) {
    return in->ledger.tasks == 0 &&
           in->facts.status.waiting + in->facts.status.running + in->facts.status.kv_leases == 0;
}

void drain_move(struct coordinator *co, struct inst *in) {
    if (in->ledger.tasks == 0 || !planner_has_other(co, in)) return;
    log_info("drain", "id=%u event=move tasks=%u", in->id, in->ledger.tasks);
    relay_move_off(co->relays, in->id,
                   in->drain.why == DRAIN_SWITCH ? CAUSE_ROLE_SWITCHED : CAUSE_DRAINED);
}

/* One that the table has dropped goes on as long as its role has nobody else: a table that was
 * written wrong must not end the service. */
static enum drain_why why_of(const struct coordinator *co, const struct inst *in) {
    if (in->life.state == INST_LEAVING) return DRAIN_STOPPING;
    if (in->plan.place.next != ROLE_NONE) return DRAIN_SWITCH;
    if (in->drain.ordered) return DRAIN_ORDER;
    if (in->drain.offline) return DRAIN_OFFLINE;
    if (in->from_table && in->gone_since_ms != 0 && planner_has_other(co, in))
        return DRAIN_UNLISTED;
    return DRAIN_NONE;
}

void drain_tick(struct coordinator *co, struct inst *in, uint64_t now_ms) {
    struct inst_drain *d = &in->drain;
    enum drain_why why = why_of(co, in);
    if (why != d->why) {
        log_info("drain", "id=%u event=%s why=%s tasks=%u", in->id,
                 why == DRAIN_NONE      ? "ends"
                 : d->why == DRAIN_NONE ? "begins"
                                        : "goes_on",
                 drain_why_name(why != DRAIN_NONE ? why : d->why), in->ledger.tasks);
        if (d->why == DRAIN_NONE || d->why == DRAIN_OFFLINE)
            d->move_at_ms = now_ms + (uint64_t)co->conf.drain_soft_s * 1000;
        d->why = why;
        d->empty = false;
    }
    if (why != DRAIN_NONE && in->life.state == INST_SERVING) (void)inst_step(in, INST_EV_DRAIN);
    if (why == DRAIN_NONE && in->life.state == INST_DRAINING) (void)inst_step(in, INST_EV_UNDRAIN);
    if (why == DRAIN_NONE) return;
    if (why != DRAIN_OFFLINE && now_ms >= d->move_at_ms) {
        d->move_at_ms = now_ms + MOVE_AGAIN_MS;
        drain_move(co, in);
    }
    bool empty = drain_is_empty(in);
    if (empty && !d->empty) log_info("drain", "id=%u event=empty", in->id);
    d->empty = empty;
}

void drain_offline(struct coordinator *co, uint32_t id, bool on) {
    struct inst *in = registry_find(&co->reg, id);
    if (in == NULL || in->drain.offline == on) {
        if (in == NULL) log_warn("drain", "id=%u event=unknown_instance", id);
        return;
    }
    log_info("drain", "id=%u event=%s", id, on ? "offline" : "online");
    in->drain.offline = on;
    drain_tick(co, in, clock_ms());
    relay_schedule(co->relays);
}

enum err drain_order(struct coordinator *co, uint32_t id, bool on, bool force, struct errbuf *eb) {
    struct inst *in = registry_find(&co->reg, id);
    if (in == NULL) return err_set(eb, ERR_NOT_FOUND, "id must be a known instance, got %u", id);
    if (on && !force && !in->drain.ordered && in->plan.place.role != ROLE_NONE &&
        inst_serves(in, NULL) && !planner_can_spare(co, in))
        return err_set(
            eb, ERR_CONFLICT,
            "instance %u is the last %s instance; \"force\": true drains it all the same", id,
            inst_role_name(in->plan.place.role));
    log_info("drain", "id=%u event=%s", id, on ? "ordered" : "taken_back");
    in->drain.ordered = on;
    in->drain.leaves = in->drain.leaves && on;
    in->drain.term = co->term;
    drain_tick(co, in, clock_ms());
    planner_keep(co);
    if (co->conf.controller_enabled) role_post_if_needed(co, in); /* it remembers the order */
    relay_schedule(co->relays);
    return ERR_OK;
}

enum err drain_leave(struct coordinator *co, uint32_t id, bool force, struct errbuf *eb) {
    struct inst *in = registry_find(&co->reg, id);
    if (in == NULL) return err_set(eb, ERR_NOT_FOUND, "id must be a known instance, got %u", id);
    if (in->from_table || in->pushed.on)
        return err_set(eb, ERR_CONFLICT,
                       "instance %u is listed by %s: it leaves when it is taken out there", id,
                       in->from_table ? "the rank table" : "a controller");
    const enum err e = drain_order(co, id, true, force, eb);
    if (e != ERR_OK) return e;
    log_info("drain", "id=%u event=leaves", id);
    in->drain.leaves = true;
    return ERR_OK;
}

bool drain_is_over(const struct inst *in, uint64_t now_ms) {
    return in->drain.leaves && in->drain.empty && now_ms > in->lease_end_ms;
}
