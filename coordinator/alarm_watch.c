/* alarm_watch: one function for each kind says whether it is so, and why. */
#include "coordinator/alarm_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "coordinator/alarms.h"
#include "coordinator/coordinator.h"
#include "coordinator/relay.h"

enum { REASON_MASTER = 1, REASON_CONGESTION = 1, REASON_MODEL = 1, REASON_HTTP = 1 };
enum { REASON_OWN_STATE = 2 };                           /* 0xFC001004 */
enum { REASON_PULL_KV = 3, REASON_DUMMY_INFERENCE = 4 }; /* 0xFC001008 */

/* On, and for ms now. */
static bool lasts(uint64_t *since_ms, bool on, uint64_t now_ms, uint64_t ms) {
    if (!on)
        *since_ms = 0;
    else if (*since_ms == 0)
        *since_ms = now_ms;
    return on && now_ms - *since_ms >= ms;
}

/* ---- the cluster */

/* Raised and cleared at different marks, so that it does not come and go. */
static void look_at_congestion(struct coordinator *co) {
    struct relay_counts n;
    const size_t max = (size_t)co->conf.requests_max;
    char text[64];
    relay_counts(co->relays, &n);
    snprintf(text, sizeof(text), "%" PRIu64 " of %zu requests", n.in_flight, max);
    if (n.in_flight * 100 >= max * 85)
        alarms_set(co->alarms, ALARM_CONGESTION, NULL, true, REASON_CONGESTION, text);
    else if (n.in_flight * 100 < max * 75)
        alarms_set(co->alarms, ALARM_CONGESTION, NULL, false, REASON_CONGESTION, text);
}

/* Somebody obeys another coordinator, which is there. */
static void look_at_term(struct coordinator *co) {
    char text[ALARM_TEXT_BYTES] = "";
    const struct inst *theirs = co->reg.first;
    while (theirs != NULL && !(inst_answers(theirs) && theirs->facts.status.listened &&
                               theirs->facts.status.term > co->term))
        theirs = theirs->next;
    if (theirs != NULL)
        snprintf(text, sizeof(text), "%.64s obeys a coordinator of term %llu; ours is %llu",
                 inst_name(theirs), (unsigned long long)theirs->facts.status.term,
                 (unsigned long long)co->term);
    alarms_set(co->alarms, ALARM_SUPERSEDED, NULL, theirs != NULL, REASON_MASTER, text);
}

/* ---- an instance */

/* It is there, is to work, and does not. */
static bool is_unfit(struct inst *in, uint64_t now_ms, char *text, size_t n) {
    const char *why = NULL;
    const bool due = inst_answers(in) && in->plan.place.role != ROLE_NONE && !inst_serves(in, &why);
    const bool held = due && strcmp(why, "held") == 0;
    const bool unready = due && (strcmp(why, "role") == 0 || strcmp(why, "adapters") == 0);
    if (due)
        snprintf(text, n, held ? "its engine is held" : "it is not ready: %s %s", why,
                 in->facts.last_error);
    return lasts(&in->watch.unfit_ms, unready, now_ms, ALARM_AFTER_MS) || held;
}

static bool is_stuck(struct inst *in, uint64_t now_ms, char *text, size_t n) {
    (void)now_ms;
    if (!inst_answers(in) || in->facts.status.stuck_ms == 0) return false;
    snprintf(text, n, "its engine has not got on for %llu ms",
             (unsigned long long)in->facts.status.stuck_ms);
    return true;
}

/* Its polls are fine, its requests or their results are not. */
static bool is_failing(struct inst *in, uint64_t now_ms, char *text, size_t n) {
    const bool broken = inst_answers(in) && in->breaker.state != BREAKER_CLOSED;
    const bool unheard = inst_answers(in) && in->dresult != NULL && in->stream == STREAM_DOWN;
    if (broken)
        snprintf(text, n, "requests to it fail: %s", in->breaker.cause);
    else if (unheard)
        snprintf(text, n, "its result stream is away");
    return lasts(&in->watch.unheard_ms, unheard, now_ms, ALARM_AFTER_MS) || broken;
}

/* The D of a link over which requests of in failed, or that is down though both are there. NULL:
 * there is none. */
static const struct inst *broken_peer(struct inst *in, const char **why) {
    const struct registry *reg = &in->co->reg;
    for (size_t i = 0; i < in->n_link_breakers; i++) {
        const struct link_breaker *l = &in->link_breakers[i];
        if (l->b.state == BREAKER_CLOSED) continue;
        const struct inst *d = registry_find(reg, l->d_id);
        *why = l->b.cause;
        if (d != NULL && inst_answers(d)) return d;
    }
    for (size_t i = 0; in->facts.links_down && i < in->facts.status.n_links; i++) {
        const struct link_status *l = &in->facts.status.links[i];
        if (l->ok) continue;
        const struct inst *peer = registry_find(reg, l->target);
        *why = l->detail[0] != '\0' ? l->detail : l->text;
        if (peer != NULL && inst_answers(peer) && peer->drain.why == DRAIN_NONE) return peer;
    }
    return NULL;
}

static bool is_unlinked(struct inst *in, uint64_t now_ms, char *text, size_t n) {
    const char *why = "";
    const struct inst *peer =
        inst_answers(in) && in->drain.why == DRAIN_NONE ? broken_peer(in, &why) : NULL;
    if (peer != NULL) snprintf(text, n, "KV link to %.64s: %s", inst_name(peer), why);
    return lasts(&in->watch.unlinked_ms, peer != NULL, now_ms, ALARM_AFTER_MS);
}

static const struct look {
    enum alarm which;
    int reason;
    bool (*is_so)(struct inst *in, uint64_t now_ms, char *text, size_t n);
} looks[] = {
    {ALARM_MODEL_INSTANCE, REASON_MODEL, is_unfit},
    {ALARM_CONNECTION, REASON_HTTP, is_failing},
    {ALARM_ENGINE, REASON_DUMMY_INFERENCE, is_stuck},
    {ALARM_KV_LINK, REASON_PULL_KV, is_unlinked},
};

void alarm_watch_tick(struct coordinator *co, uint64_t now_ms) {
    char text[ALARM_TEXT_BYTES];
    look_at_congestion(co);
    look_at_term(co);
    alarms_set(co->alarms, ALARM_STATE, NULL, co->store_failed, REASON_OWN_STATE,
               "its state cannot be written");
    for (struct inst *in = co->reg.first; in != NULL; in = in->next) {
        const struct alarm_of of = controller_alarm_of(in);
        for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++) {
            text[0] = '\0';
            const bool on = looks[i].is_so(in, now_ms, text, sizeof(text));
            alarms_set(co->alarms, looks[i].which, &of, on, looks[i].reason, text);
        }
    }
}
