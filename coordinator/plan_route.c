/* plan_route: GET /v1/plan: what the planner would change now, or will when the time comes, and why
 * (plan_preview.h); with an instance and a role also what would follow from that order. Nothing is
 * changed by it. */
#include <string.h>
#include "common/base/clock.h"
#include "coordinator/coordinator.h"
#include "coordinator/mgmt_msg.h"
#include "coordinator/plan_preview.h"
#include "proto/json.h"

static void add_u64(struct json_value *o, const char *key, uint64_t v) {
    json_obj_set(o, key, json_new_i64((int64_t)v));
}
static void add_str(struct json_value *o, const char *key, const char *s) {
    json_obj_set(o, key, json_new_str(s));
}

static struct json_value *place_json(const struct plan_place *at) {
    struct json_value *o = json_new_obj();
    add_str(o, "role", inst_role_name(at->next != ROLE_NONE ? at->next : at->role));
    add_u64(o, "group", at->group);
    if (at->stands_in) json_obj_set(o, "standsIn", json_new_bool(true));
    if (at->share > 0) json_obj_set(o, "prefillPercent", json_new_i64(at->share));
    return o;
}

static struct json_value *changes_json(const struct coordinator *co, const struct plan_preview *v) {
    struct json_value *arr = json_new_arr();
    for (size_t i = 0; i < v->n_changes; i++) {
        const struct plan_change *c = &v->changes[i];
        const struct inst *in = registry_find(&co->reg, c->id);
        struct json_value *o = json_new_obj();
        add_u64(o, "id", c->id);
        add_str(o, "name", in != NULL ? inst_name(in) : "");
        json_obj_set(o, "from", place_json(&c->from));
        json_obj_set(o, "to", place_json(&c->to));
        add_str(o, "why", c->why);
        json_arr_add(arr, o);
    }
    return arr;
}

static struct json_value *lacks_json(const struct plan_preview *v) {
    struct json_value *arr = json_new_arr();
    for (size_t i = 0; i < v->n_lacks; i++) {
        struct json_value *o = json_new_obj();
        add_u64(o, "group", v->lacks[i].group);
        add_str(o, "role", inst_role_name(v->lacks[i].role));
        add_str(o, "why", v->lacks[i].why);
        json_arr_add(arr, o);
    }
    return arr;
}

static void reply(struct coordinator *co, struct http_x *x, const struct planner_facts *f,
                  const struct plan_preview *v) {
    struct json_value *root = json_new_obj(), *ratio = json_new_obj();
    const bool fixed = f->conf.p_rate + f->conf.d_rate > 0;
    json_obj_set(root, "decides", json_new_bool(f->conf.decides));
    if (f->conf.single_node) json_obj_set(root, "singleNode", json_new_bool(true));
    add_u64(ratio, "prefill", fixed ? f->conf.p_rate : 1);
    add_u64(ratio, "decode", fixed ? f->conf.d_rate : 1);
    json_obj_set(root, "ratio", ratio);
    json_obj_set(root, "inSeconds", json_new_f64((double)v->in_ms / 1000));
    json_obj_set(root, "changes", changes_json(co, v));
    json_obj_set(root, "unmet", lacks_json(v));
    const char *s = json_to_text(root, JSON_COMPACT, NULL);
    if (s != NULL)
        http_x_reply(x, 200, "application/json; charset=utf-8", s, strlen(s));
    else
        http_x_reply(x, 500, NULL, "", 0);
    json_put(root);
}

/* As if the instance had the role now. */
static void suppose(struct plan *p, uint32_t id, enum inst_role role, uint64_t now_ms) {
    for (size_t i = 0; i < p->n; i++) {
        struct plan_node *v = &p->nodes[i];
        if (v->id != id) continue;
        if (v->place.role != role) v->switched_ms = now_ms;
        v->place.role = role;
        v->place.next = ROLE_NONE;
        v->place.stands_in = false;
    }
}

/* The instance that is asked about; what an order would be answered. */
static enum err check_order(const struct coordinator *co, struct mgmt_plan *ask,
                            struct errbuf *eb) {
    if (!ask->asks) return ERR_OK;
    if (ask->name[0] != 0) {
        const struct inst *in = registry_find_name(&co->reg, ask->name);
        if (in == NULL)
            return err_set(eb, ERR_NOT_FOUND,
                           "name must be that of one instance, or its address, got \"%s\" (GET "
                           "/v2/status lists them)",
                           ask->name);
        ask->id = in->id;
    }
    return planner_may_switch(co, ask->id, ask->role, ask->force, eb);
}

void plan_route(struct coordinator *co, struct http_x *x) {
    struct mgmt_plan ask;
    struct planner_facts f;
    struct plan_preview v;
    struct errbuf eb = {0};
    const uint64_t now = clock_ms();
    enum err e = mgmt_plan_parse(&ask, http_x_query(x), &eb);
    if (e != ERR_OK) {
        coord_reply_error(co, x, 422, eb.text);
        return;
    }
    if ((e = check_order(co, &ask, &eb)) != ERR_OK) {
        coord_reply_error(co, x, err_http_status(e), eb.text);
        return;
    }
    e = planner_facts(co, &f);
    if (e == ERR_OK && ask.asks) suppose(&f.plan, ask.id, ask.role, now);
    if (e == ERR_OK && (e = plan_preview(&v, &f.plan, &f.conf, now)) == ERR_OK) {
        reply(co, x, &f, &v);
        plan_preview_free(&v);
    }
    if (e != ERR_OK) coord_reply_error(co, x, 503, err_text(e));
    planner_facts_free(&f);
}
