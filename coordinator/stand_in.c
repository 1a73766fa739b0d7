/* stand_in: a share in a role body, and a moment to move what is left. */
#include "coordinator/stand_in.h"

#include "common/base/log.h"
#include "coordinator/coordinator.h"
#include "coordinator/relay.h"

/* Both leave prefill all that the instances' own settings give it beside what decodes. */
enum { SHARE_OF_P = 99, SHARE_OF_D = 98, MOVE_AGAIN_MS = 1000 };

int stand_in_share(const struct plan_place *at) {
    if (!at->stands_in && at->share > 0) return at->share;
    return at->role == ROLE_PREFILL ? SHARE_OF_P : SHARE_OF_D;
}

bool stand_in_changes(const struct inst *in) {
    return in->plan.both || (in->plan.at_once && in->plan.place.next != ROLE_NONE);
}

int stand_in_share_of(const struct inst *in) {
    const struct plan_place *at = &in->plan.place;
    if (!in->plan.at_once || at->next == ROLE_NONE) return stand_in_share(at);
    return stand_in_share(&(struct plan_place){.role = at->next});
}

bool stand_in_says(int p_percentage) {
    return p_percentage == SHARE_OF_P || p_percentage == SHARE_OF_D;
}

enum inst_role stand_in_reported(const struct coordinator *co, const struct status_msg *m) {
    if (m->role == ROLE_PREFILL || m->role == ROLE_DECODE) return m->role;
    if (m->role != ROLE_FLEX || !co->conf.controller_enabled) return ROLE_NONE;
    return m->p_percentage % 2 == 0 ? ROLE_DECODE : ROLE_PREFILL;
}

/* Requests there in the other role than its own. */
static unsigned n_left(const struct inst *in) {
    const struct ledger *l = &in->ledger;
    return in->plan.place.role == ROLE_PREFILL ? l->decodes : l->tasks - l->decodes;
}

enum inst_role stand_in_word(const struct inst *in) {
    const struct inst_plan *p = &in->plan;
    if (p->place.role == ROLE_NONE) return ROLE_NONE;
    const bool does_both = p->place.stands_in || p->place.share > 0 ||
                           (p->posted_role == ROLE_FLEX && p->posted_hash != 0 && n_left(in) > 0);
    return does_both ? ROLE_FLEX : p->place.role;
}

void stand_in_now(struct coordinator *co) {
    if (!co->conf.fall_back || !co->conf.controller_enabled) return;
    planner_run(co);
    for (struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (in->plan.place.stands_in) role_post_if_needed(co, in);
}

void stand_in_tick(struct coordinator *co, struct inst *in, uint64_t now_ms) {
    struct inst_plan *p = &in->plan;
    /* What is at a D as its P will be done soon, unless it has been P alone. */
    const bool comes_back = (p->place.role == ROLE_PREFILL || p->both) && !p->place.stands_in &&
                            p->place.share == 0 && p->place.next == ROLE_NONE &&
                            stand_in_word(in) == ROLE_FLEX;
    if (!comes_back) {
        p->unpair_at_ms = 0;
    } else if (p->unpair_at_ms == 0) {
        p->unpair_at_ms = now_ms + (uint64_t)co->conf.drain_soft_s * 1000;
    } else if (now_ms >= p->unpair_at_ms) {
        p->unpair_at_ms = now_ms + MOVE_AGAIN_MS;
        log_info("controller", "id=%u event=move_from_the_other_role tasks=%u", in->id, n_left(in));
        relay_move_part(co->relays, in->id, p->place.role == ROLE_PREFILL);
    }
}
