/* coord_status: the whole cluster as JSON: GET /v1/status, /v2/status, and readiness with reasons.
 */
#include <stdio.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/process_state.h"
#include "coordinator/alarms.h"
#include "coordinator/coordinator.h"
#include "coordinator/ha.h"
#include "coordinator/relay.h"
#include "coordinator/stand_in.h"
#include "coordinator/tenants.h"
#include "proto/json.h"

enum { TENANTS_SHOWN = 100, STATE_REQUESTS_MAX = 1000 };

static void reply(struct http_x *x, int status, struct json_value *root) {
    const char *s = root != NULL ? json_to_text(root, JSON_COMPACT, NULL) : NULL;
    if (s != NULL)
        http_x_reply(x, status, "application/json; charset=utf-8", s, strlen(s));
    else
        http_x_reply(x, 500, NULL, "", 0);
    json_put(root);
}

static void add_u64(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64((int64_t)v));
}
static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}

static const char *link_text(char *out, size_t cap, const struct link_status *l) {
    snprintf(out, cap, "%s%s%s", l->text, l->detail[0] != 0 ? ": " : "", l->detail);
    return out;
}

const char *coord_not_ready(const struct coordinator *co) {
    static const char *const text[2][2] = {
        {"MindIE-MS Coordinator is not ready: no instance serves",
         "MindIE-MS Coordinator is not ready: no prefill instance serves"},
        {"MindIE-MS Coordinator is not ready: no decode instance serves",
         "MindIE-MS Coordinator is not ready: no prefill instance is linked to a decode instance"}};
    bool p = false, d = false;
    if (!coord_leads(co)) return ha_standby_text(co);
    if (co->stands_by) return "standby";
    if (strcmp(co->conf.error_format, "text") == 0) return "MindIE-MS Coordinator is not ready";
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!inst_serves(in, NULL)) continue;
        p |= inst_works_as(in, ROLE_PREFILL);
        d |= inst_works_as(in, ROLE_DECODE);
    }
    return text[p][d];
}

/* One reason per instance that does not serve: where it stands and the last thing that went wrong.
 */
struct json_value *coord_reasons(const struct coordinator *co) {
    struct json_value *arr = json_new_arr();
    bool p = false, d = false;
    if (!coord_leads(co)) {
        struct json_value *o = json_new_obj();
        add_str(o, "stage", "standby");
        add_str(o, "detail", ha_standby_text(co));
        json_arr_add(arr, o);
        return arr;
    }
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        const char *why = NULL;
        if (inst_serves(in, &why)) {
            p |= inst_works_as(in, ROLE_PREFILL);
            d |= inst_works_as(in, ROLE_DECODE);
            continue;
        }
        struct json_value *o = json_new_obj();
        const char *detail = in->facts.last_error;
        char text[sizeof(struct link_status)];
        if (detail[0] == 0)
            for (size_t i = 0; i < in->facts.status.n_links; i++)
                if (!in->facts.status.links[i].ok)
                    detail = link_text(text, sizeof(text), &in->facts.status.links[i]);
        add_u64(o, "id", in->id);
        add_str(o, "name", inst_name(in));
        add_str(o, "stage", why);
        add_str(o, "detail", detail);
        json_arr_add(arr, o);
    }
    const bool whole = co->conf.single_node;
    const char *const missing[] = {p       ? NULL
                                   : whole ? "no instance serves"
                                           : "no prefill instance serves",
                                   d || whole ? NULL : "no decode instance serves"};
    for (int i = 0; i < 2 && !controller_embeds(co); i++) {
        if (missing[i] == NULL) continue;
        struct json_value *o = json_new_obj();
        add_str(o, "stage", "role");
        add_str(o, "detail", missing[i]);
        json_arr_add(arr, o);
    }
    return arr;
}

void coord_reply_readiness(struct coordinator *co, struct http_x *x, bool with_reasons) {
    bool ready = !co->stopping && !co->stands_by && controller_serves(co);
    size_t n_p = 0, n_d = 0, n_embed = 0;
    if (!ready) http_x_set_header(x, "Retry-After", "1");
    if (!with_reasons) {
        http_x_reply(x, ready ? 200 : 503, NULL, "", 0);
        return;
    }
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (!inst_serves(in, NULL)) continue;
        const bool embeds = in->facts.status.embeds_only; /* whatever its role */
        n_p += !embeds && inst_works_as(in, ROLE_PREFILL);
        n_d += !embeds && inst_works_as(in, ROLE_DECODE);
        n_embed += embeds;
    }
    struct json_value *root = json_new_obj();
    json_obj_set(root, "ready", json_new_bool(ready));
    if (ready) {
        add_u64(root, "prefill", n_p);
        add_u64(root, "decode", n_d);
        if (n_embed > 0) add_u64(root, "embed", n_embed);
    }
    json_obj_set(root, "reasons", coord_reasons(co));
    reply(x, ready ? 200 : 503, root);
}

/* Also what there is to know of one that is closed: the last fault. */
static struct json_value *breaker_json(const struct breaker *b) {
    struct json_value *o = json_new_obj();
    uint64_t now = clock_ms();
    add_str(o, "state", breaker_state_name(b->state));
    add_u64(o, "faults", breaker_faults(b));
    if (b->state == BREAKER_OPEN)
        add_u64(o, "retryInMs", b->until_ms > now ? b->until_ms - now : 0);
    if (b->cause[0] != 0) add_str(o, "cause", b->cause);
    return o;
}

static struct json_value *override_json(const struct inst *in) {
    const struct inst_override *v = &in->plan.override;
    struct json_value *o = json_new_obj();
    const uint64_t now = clock_ms();
    add_str(o, "role", inst_role_name(v->role));
    add_str(o, "back", inst_role_name(v->back));
    add_u64(o, "secondsLeft", v->until_ms > now ? (v->until_ms - now + 999) / 1000 : 0);
    return o;
}

const char *coord_instance_state(const struct inst *in) {
    const char *why = NULL;
    if (inst_serves(in, &why)) return "serving";
    if (in->drain.why == DRAIN_NONE || !inst_answers(in)) return why;
    return in->drain.empty ? "drained" : "draining";
}

static struct json_value *instance_json(const struct coordinator *co, const struct inst *in) {
    struct json_value *o = json_new_obj(), *links = json_new_arr();
    char addr[64];
    add_u64(o, "id", in->id);
    add_str(o, "name", inst_name(in));
    add_str(o, "address", in->address);
    snprintf(addr, sizeof(addr), "%s:%u", in->node.mgmt_ip, in->node.mgmt_port);
    add_str(o, "management", addr);
    add_u64(o, "interCommPort", in->node.inter_comm_port);
    add_str(o, "source", in->pushed.on ? "pushed" : in->from_table ? "rank table" : "registered");
    if (!in->pushed.on && !in->from_table) {
        const uint64_t now = clock_ms();
        add_u64(o, "leaseMs", in->lease_end_ms > now ? in->lease_end_ms - now : 0);
    }
    add_str(o, "model", in->facts.config.model_name);
    add_str(o, "role", inst_role_name(in->facts.status.role));
    add_str(
        o, "wantedRole",
        inst_role_name(in->plan.place.next != ROLE_NONE ? in->plan.place.next : stand_in_word(in)));
    if (in->plan.override.role != ROLE_NONE) json_obj_set(o, "override", override_json(in));
    add_str(o, "roleStatus", role_status_name(in->facts.status.role_status));
    add_str(o, "state", coord_instance_state(in));
    if (in->drain.why != DRAIN_NONE) add_str(o, "draining", drain_why_name(in->drain.why));
    add_str(o, "life", inst_state_name(in->life.state));
    add_str(o, "lastError", in->facts.last_error);
    add_u64(o, "group", in->plan.place.group);
    add_u64(o, "slotsTotal", in->facts.status.total_slots);
    add_u64(o, "slotsFree", in->facts.status.avail_slots);
    add_u64(o, "blocksTotal", in->facts.status.total_blocks);
    add_u64(o, "blocksFree", in->facts.status.avail_blocks);
    add_u64(o, "waitingRequests", in->facts.status.waiting);
    add_u64(o, "runningRequests", in->facts.status.running);
    add_u64(o, "kvLeases", in->facts.status.kv_leases);
    add_u64(o, "tasks", in->ledger.tasks);
    add_u64(o, "bookedSlots", in->ledger.booked.slots);
    add_u64(o, "bookedBlocks", in->ledger.booked.blocks);
    if (inst_works_as(in, ROLE_PREFILL)) {
        add_u64(o, "promptTokensWaiting", in->ledger.prompt_tokens);
        json_obj_set(o, "promptTokensPerSecond", json_new_f64(rate_meter_get(&in->prefill_rate)));
    }
    json_obj_set(o, "dresult", json_new_bool(in->stream == STREAM_UP));
    json_obj_set(o, "breaker", breaker_json(&in->breaker));
    for (size_t i = 0; i < in->facts.status.n_links; i++) {
        struct json_value *l = json_new_obj();
        add_u64(l, "target", in->facts.status.links[i].target);
        const struct inst *peer = registry_find(&co->reg, in->facts.status.links[i].target);
        add_str(l, "name", peer != NULL ? inst_name(peer) : "");
        add_str(l, "link", in->facts.status.links[i].text);
        if (in->facts.status.links[i].detail[0] != 0)
            add_str(l, "detail", in->facts.status.links[i].detail);
        if (in->facts.status.links[i].rtt_us > 0)
            add_u64(l, "rttMicroseconds", in->facts.status.links[i].rtt_us);
        const struct breaker *b = inst_link_breaker(in, in->facts.status.links[i].target);
        if (b != NULL) json_obj_set(l, "breaker", breaker_json(b));
        json_arr_add(links, l);
    }
    json_obj_set(o, "links", links);
    return o;
}

static struct json_value *target_json(double s, const uint64_t kept[2]) {
    struct json_value *o = json_new_obj();
    json_obj_set(o, "targetMs", json_new_f64(s * 1e3));
    add_u64(o, "met", kept[true]);
    add_u64(o, "missed", kept[false]);
    return o;
}

/* Who has requests here: the newest first, at most TENANTS_SHOWN. */
static struct json_value *tenants_json(const struct coordinator *co) {
    struct json_value *arr = json_new_arr();
    const struct tenant *t = relay_tenants(co->relays);
    for (int i = 0; t != NULL && i < TENANTS_SHOWN; t = t->next, i++) {
        struct json_value *o = json_new_obj();
        add_str(o, "tenant", t->name);
        json_obj_set(o, "weight", json_new_f64(t->flow.weight));
        add_u64(o, "requests", t->n_requests);
        add_u64(o, "queued", t->n_queued);
        add_u64(o, "slots", t->slots);
        json_obj_set(o, "firstToken", target_json(t->targets.first_token_s, t->kept.first_token));
        json_obj_set(o, "token", target_json(t->targets.token_s, t->kept.token));
        json_arr_add(arr, o);
    }
    return arr;
}

/* How many instances of each role the load needs. */
struct json_value *coord_needs(const struct coordinator *co) {
    struct json_value *o = json_new_obj();
    struct role_needs needs;
    planner_needs(co, &needs);
    const struct targets asked = relay_strictest(co->relays);
    json_obj_set(o, "firstTokenMs", json_new_f64(asked.first_token_s * 1e3));
    json_obj_set(o, "tokenMs", json_new_f64(asked.token_s * 1e3));
    json_obj_set(o, "prefill", json_new_f64(needs.p));
    json_obj_set(o, "decode", json_new_f64(needs.d));
    json_obj_set(o, "unsplit", json_new_f64(needs.whole));
    return o;
}

void coord_reply_alarms(const struct coordinator *co, struct http_x *x) {
    reply(x, 200, alarms_json(co->alarms));
}

static struct json_value *status_json(struct coordinator *co) {
    struct json_value *root = json_new_obj(), *me = json_new_obj(), *arr = json_new_arr();
    struct relay_count n[RELAY_COUNTS];
    relay_counts_named(co->relays, n);
    bool ready = controller_serves(co);
    json_obj_set(me, "ready", json_new_bool(ready));
    json_obj_set(me, "reasons", ready ? json_new_arr() : coord_reasons(co));
    add_u64(me, "uptimeSeconds", (clock_ms() - co->started_ms) / 1000);
    for (int i = 0; i < RELAY_COUNTS; i++) add_u64(me, n[i].name, n[i].n);
    add_str(me, "deployMode", co->conf.deploy_mode);
    json_obj_set(me, "needs", coord_needs(co));
    json_obj_set(me, "tenants", tenants_json(co));
    struct json_value *ha = ha_status(co);
    if (ha != NULL) json_obj_set(me, "ha", ha);
    json_obj_set(root, "coordinator", me);
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        json_arr_add(arr, instance_json(co, in));
    json_obj_set(root, "instances", arr);
    json_obj_set(root, "recentRequests", relay_recent(co->relays));
    return root;
}

void coord_reply_status(struct coordinator *co, struct http_x *x) {
    reply(x, 200, status_json(co));
}

void coord_reply_state(struct coordinator *co, struct http_x *x) {
    struct json_value *root = status_json(co);
    json_obj_set(root, "process", process_state(&co->budget));
    json_obj_set(root, "requests", relay_moving(co->relays, STATE_REQUESTS_MAX));
    reply(x, 200, root);
}
