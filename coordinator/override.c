/* override: begins, ends, is remembered. */
#include "coordinator/override.h"

#include <inttypes.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/coordinator.h"

enum err override_order(struct coordinator *co, uint32_t id, enum inst_role role, bool force,
                        uint64_t seconds, struct errbuf *eb) {
    struct inst *in = registry_find(&co->reg, id);
    const struct inst_override was =
        in != NULL ? in->plan.override : (struct inst_override){ROLE_NONE, ROLE_NONE, 0, 0};
    const enum inst_role had = in != NULL ? in->plan.place.role : ROLE_NONE;
    const enum err e = planner_switch(co, id, role, force, eb);
    if (e != ERR_OK) return e;
    in->plan.override = (struct inst_override){.role = role,
                                               .back = was.role != ROLE_NONE ? was.back : had,
                                               .until_ms = clock_ms() + seconds * 1000,
                                               .until_unix_s = clock_unix_us() / 1000000 + seconds};
    log_info("controller", "id=%u event=override role=%s back=%s seconds=%" PRIu64, id,
             inst_role_name(role), inst_role_name(in->plan.override.back), seconds);
    planner_keep(co);
    return ERR_OK;
}

static void go_back(struct coordinator *co, struct inst *in) {
    const struct inst_override o = in->plan.override;
    struct errbuf eb = {0};
    in->plan.override = (struct inst_override){ROLE_NONE, ROLE_NONE, 0, 0};
    log_info("controller", "id=%u event=override_ends role=%s back=%s", in->id,
             inst_role_name(o.role), inst_role_name(o.back));
    if (o.back != ROLE_NONE && planner_switch(co, in->id, o.back, false, &eb) != ERR_OK)
        log_warn("controller", "id=%u event=stays role=%s detail=\"%s\"", in->id,
                 inst_role_name(in->plan.place.role), eb.text);
    planner_keep(co);
}

enum err override_end(struct coordinator *co, uint32_t id, struct errbuf *eb) {
    struct inst *in = registry_find(&co->reg, id);
    if (in == NULL) return err_set(eb, ERR_NOT_FOUND, "id must be a known instance, got %u", id);
    if (in->plan.override.role == ROLE_NONE)
        return err_set(eb, ERR_CONFLICT, "instance %u has no override that could end", id);
    go_back(co, in);
    return ERR_OK;
}

void override_tick(struct coordinator *co, struct inst *in, uint64_t now_ms) {
    if (in->plan.override.role != ROLE_NONE && now_ms >= in->plan.override.until_ms)
        go_back(co, in);
}

int override_label(const struct inst *in) {
    switch (in->plan.override.role) {
    case ROLE_PREFILL: return LABEL_PREFILL_STATIC;
    case ROLE_DECODE: return LABEL_DECODE_STATIC;
    default: return in->node.label;
    }
}

void override_resume(struct inst *in, enum inst_role role, enum inst_role back,
                     uint64_t until_unix_s) {
    const uint64_t now_s = clock_unix_us() / 1000000;
    uint64_t left_s = until_unix_s > now_s ? until_unix_s - now_s : 0;
    if (left_s > OVERRIDE_S_MAX) left_s = OVERRIDE_S_MAX;
    in->plan.override = (struct inst_override){.role = role,
                                               .back = back,
                                               .until_ms = clock_ms() + left_s * 1000,
                                               .until_unix_s = until_unix_s};
}
