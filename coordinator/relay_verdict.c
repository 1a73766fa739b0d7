/* relay_verdict: what the end of an attempt says of the P, the D and the link it went over, told to
 * their breakers (breaker.h) once each. */
#include <stdio.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/relay_priv.h"

static struct breaker_conf conf_of(const struct coordinator *co) {
    return (struct breaker_conf){.faults = (unsigned)co->conf.breaker_faults,
                                 .open_ms = (uint64_t)co->conf.breaker_open_ms};
}

/* d_id 0: the instance p_id itself; else its link to that D. */
static void say(uint32_t id, uint32_t d_id, const struct breaker *b) {
    char link[32] = "";
    if (d_id != 0) snprintf(link, sizeof(link), " link_to=%u", d_id);
    if (b->state == BREAKER_OPEN) {
        log_warn("breaker", "id=%u%s event=open wait_ms=%llu faults=%u cause=\"%s\"", id, link,
                 (unsigned long long)b->wait_ms, breaker_faults(b), b->cause);
    } else {
        log_info("breaker", "id=%u%s event=%s", id, link, breaker_state_name(b->state));
    }
}

static bool send(struct breaker *b, uint32_t id, uint32_t d_id) {
    if (b == NULL || !breaker_send(b, clock_ms())) return false;
    say(id, d_id, b);
    return true;
}

void relay_verdicts_begin(struct relay *r, struct inst *p, struct inst *d) {
    r->attempt.p_end = (struct attempt_end){.probe = send(&p->breaker, p->id, 0)};
    r->attempt.d_end = (struct attempt_end){.probe = send(&d->breaker, d->id, 0)};
    r->attempt.link_end =
        (struct attempt_end){.probe = send(inst_link_breaker(p, d->id), p->id, d->id)};
}

static void report(struct relay *r, struct attempt_end *e, struct breaker *b, uint32_t id,
                   uint32_t d_id, enum breaker_verdict v, const char *cause) {
    struct coordinator *co = r->set->co;
    const struct breaker_conf c = conf_of(co);
    if (e->reported) return;
    e->reported = true;
    if (b == NULL || !breaker_report(b, &c, v, e->probe, cause, clock_ms())) return;
    say(id, d_id, b);
    if (b->state == BREAKER_OPEN && v == VERDICT_FAULT)
        coord_metrics_breaker(co->metrics, d_id == 0 ? "instance" : "link");
}

void relay_report_p(struct relay *r, enum breaker_verdict v, const char *cause) {
    struct inst *p = registry_find(&r->set->co->reg, r->attempt.p_id);
    report(r, &r->attempt.p_end, p != NULL ? &p->breaker : NULL, r->attempt.p_id, 0, v, cause);
}

/* With each piece of D. */
void relay_report_d(struct relay *r, enum breaker_verdict v, const char *cause) {
    if (r->attempt.d_end.reported) return;
    struct inst *d = registry_find(&r->set->co->reg, r->attempt.d_id);
    report(r, &r->attempt.d_end, d != NULL ? &d->breaker : NULL, r->attempt.d_id, 0, v, cause);
}

void relay_report_link(struct relay *r, enum breaker_verdict v, const char *cause) {
    struct inst *p = registry_find(&r->set->co->reg, r->attempt.p_id);
    struct breaker *b = NULL;
    if (p != NULL)
        b = v == VERDICT_FAULT ? inst_link_breaker_put(p, r->attempt.d_id)
                               : inst_link_breaker(p, r->attempt.d_id);
    report(r, &r->attempt.link_end, b, r->attempt.p_id, r->attempt.d_id, v, cause);
}

void relay_report_fault(struct relay *r, enum cause cause, const char *detail) {
    char text[BREAKER_CAUSE_BYTES];
    if (!cause_is_fault(cause)) return;
    snprintf(text, sizeof(text), "%s%s%.60s", cause_name(cause), detail[0] != 0 ? ", " : "",
             detail);
    switch (cause_side(cause)) {
    case SIDE_P: relay_report_p(r, VERDICT_FAULT, text); break;
    case SIDE_D: relay_report_d(r, VERDICT_FAULT, text); break;
    case SIDE_LINK: relay_report_link(r, VERDICT_FAULT, text); break;
    case SIDE_NOBODY:
    case SIDE_CLIENT: break;
    }
}

void relay_verdicts_end(struct relay *r) {
    relay_report_p(r, VERDICT_NONE, "");
    relay_report_d(r, VERDICT_NONE, "");
    relay_report_link(r, VERDICT_NONE, "");
}

/* ---- for the pass over the queues */

bool relay_breakers_all_closed(const struct coordinator *co) {
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (in->breaker.state != BREAKER_CLOSED) return false;
        for (size_t i = 0; i < in->n_link_breakers; i++)
            if (in->link_breakers[i].b.state != BREAKER_CLOSED) return false;
    }
    return true;
}

bool relay_breakers_leave_a_pair(const struct coordinator *co, uint64_t now_ms) {
    for (struct inst *p = co->reg.first; p != NULL; p = p->next) {
        if (!inst_works_as(p, ROLE_PREFILL) || !inst_serves(p, NULL) ||
            !breaker_allows(&p->breaker, now_ms))
            continue;
        for (const struct inst *d = co->reg.first; d != NULL; d = d->next) {
            const struct breaker *link = inst_link_breaker(p, d->id);
            if (inst_works_as(d, ROLE_DECODE) && inst_serves(d, NULL) && inst_linked(p, d) &&
                breaker_allows(&d->breaker, now_ms) &&
                (link == NULL || breaker_allows(link, now_ms)))
                return true;
        }
    }
    return false;
}
