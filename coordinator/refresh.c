/* refresh: a push becomes the registry's instances: new ones are added, known ones updated, those
 * that are missing removed; one whose role or address is another is removed and added. */
#include "coordinator/refresh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/alarms.h"
#include "coordinator/coordinator.h"
#include "coordinator/refresh_msg.h"
#include "coordinator/relay.h"

enum { SKIPPED_LOGGED = 8 }; /* of one push */

static void skip(void *arg, const char *text) {
    size_t *n = arg;
    if (++*n <= SKIPPED_LOGGED) log_warn("refresh", "event=skipped detail=\"%s\"", text);
}

static int by_value(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_listed(const struct refresh_msg *m, uint32_t id) {
    return bsearch(&id, m->ids, m->n_ids, sizeof(*m->ids), by_value) != NULL;
}

/* Lost a moment ago: what the controller says of it may be older. */
static bool is_barred(const struct inst *in, uint64_t now_ms) {
    return in->pushed.lost_ms != 0 && now_ms - in->pushed.lost_ms < REFRESH_FAULTY_MS;
}

/* ---- what it says */

/* The controller's groups have ours, numbered from 1 on. */
static unsigned group_of(const struct coordinator *co, uint64_t group_id) {
    unsigned most = 0;
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next) {
        if (in->pushed.on && in->pushed.group_id == group_id && in->plan.place.group != 0)
            return in->plan.place.group;
        if (in->plan.place.group > most) most = in->plan.place.group;
    }
    for (unsigned g = 1; g <= most; g++) {
        const struct inst *in = co->reg.first;
        while (in != NULL && in->plan.place.group != g) in = in->next;
        if (in == NULL) return g;
    }
    return most + 1;
}

/* False: no memory, and it keeps the links it had. */
static bool take_links(struct inst *in, const struct refresh_inst *m) {
    struct status_msg *s = &in->facts.status;
    struct link_status *links = calloc(m->n_peers + 1, sizeof(*links));
    if (links == NULL) return false;
    for (size_t i = 0; i < m->n_peers; i++) {
        links[i].target = m->peers[i];
        links[i].ok = true;
        memcpy(links[i].text, "ok", sizeof("ok"));
    }
    free(s->links);
    s->links = links;
    s->n_links = m->n_peers;
    inst_links_heard(in);
    return true;
}

static void take_numbers(struct inst *in, const struct refresh_inst *m) {
    struct status_msg *s = &in->facts.status;
    struct config_msg *c = &in->facts.config;
    snprintf(c->model_name, sizeof(c->model_name), "%s", m->model_name);
    c->max_seq_len = m->max_seq_len;
    c->max_output_len = m->max_output_len;
    c->cache_block_size = m->block_size;
    c->world_size = 1;
    s->role_status = ROLE_STATUS_READY;
    s->role = m->role;
    s->p_percentage = m->p_percentage;
    s->avail_slots = m->avail_slots;
    s->total_slots = m->total_slots;
    s->waiting = m->waiting;
    s->running = m->running;
    s->swapped = m->swapped;
    s->avail_blocks = s->free_blocks = m->avail_blocks;
    s->total_blocks = m->total_blocks;
    /* The numbers are as old as the push before, at most. */
    ledger_poll_answered(&in->ledger);
    ledger_poll_begins(&in->ledger);
}

static void update(struct coordinator *co, struct inst *in, const struct refresh_inst *m,
                   uint64_t now_ms) {
    in->pushed.group_id = m->group_id;
    in->node.metric_port = m->metric_port;
    in->node.inter_comm_port = m->inter_comm_port;
    in->node.label = m->label;
    take_numbers(in, m);
    if (!take_links(in, m)) log_error("refresh", "id=%u event=no_memory", in->id);
    /* A flex is the pair of its own, whatever else it is linked with. */
    in->plan.place.role = m->role == ROLE_FLEX ? ROLE_DECODE : m->role;
    const bool both = m->role == ROLE_FLEX, whole = co->conf.single_node;
    in->plan.place.stands_in = both && !whole;
    in->plan.place.share = both && whole ? PLAN_UNSPLIT : 0;
    in->facts.online = true;
    in->facts.closed_ms = 0;
    if (now_ms - in->facts.suspect_ms >= (uint64_t)co->conf.sync_s * 1000) in->facts.suspect_ms = 0;
    if (!inst_answers(in)) {
        const struct alarm_of of = controller_alarm_of(in);
        alarms_clear(co->alarms, ALARM_INSTANCE, &of);
        in->facts.last_error[0] = 0;
    }
    (void)inst_step(in, INST_EV_STATUS);
    (void)inst_step(in, INST_EV_ROLE_READY);
    in->facts.roleless = false;
    controller_listen(co, in);
}

/* ---- who is there */

static bool same_instance(const struct inst *in, const struct refresh_inst *m) {
    return strcmp(in->node.ip, m->ip) == 0 && in->node.port == m->port &&
           in->facts.status.role == m->role;
}

/* Its management address is not in a push: who it is, is its business address. */
static struct inst *add(struct coordinator *co, const struct refresh_inst *m) {
    struct node_conf node = {.port = m->port,
                             .mgmt_port = m->port,
                             .metric_port = m->metric_port,
                             .inter_comm_port = m->inter_comm_port,
                             .label = m->label};
    memcpy(node.ip, m->ip, sizeof(node.ip));
    memcpy(node.mgmt_ip, m->ip, sizeof(node.mgmt_ip));
    if (registry_find_node(&co->reg, node.mgmt_ip, node.mgmt_port) != NULL) {
        log_warn("refresh", "id=%u event=skipped detail=\"another instance is at %s:%u\"", m->id,
                 node.ip, node.port);
        return NULL;
    }
    const unsigned group = group_of(co, m->group_id);
    struct inst *in = registry_put(&co->reg, &node);
    if (in == NULL) {
        log_warn("refresh", "id=%u event=skipped detail=\"no room for another instance\"", m->id);
        return NULL;
    }
    registry_set_id(&co->reg, in, m->id);
    in->kept_id = true;
    in->pushed = (struct inst_pushed){.on = true, .group_id = m->group_id};
    in->plan.place = (struct plan_place){.group = group};
    log_info("refresh", "id=%u event=added address=%s role=%s group=%u", in->id, in->address,
             inst_role_name(m->role), group);
    return in;
}

static void take(struct coordinator *co, const struct refresh_inst *m, uint64_t now_ms) {
    struct inst *in = registry_find(&co->reg, m->id);
    if (in != NULL && !in->pushed.on) {
        log_warn("refresh", "id=%u event=skipped detail=\"it is known from %s\"", m->id,
                 in->from_table ? "the rank table" : "its own registering");
        return;
    }
    if (in != NULL && is_barred(in, now_ms) && !inst_answers(in)) return;
    const bool moved = in != NULL && in->pushed.group_id != m->group_id;
    if (in != NULL && (moved || !same_instance(in, m))) {
        controller_forget(co, in);
        in = NULL;
    }
    if (in == NULL) in = add(co, m);
    if (in != NULL) update(co, in, m, now_ms);
}

static void drop_missing(struct coordinator *co, const struct refresh_msg *m, uint64_t now_ms) {
    for (struct inst *in = co->reg.first, *next; in != NULL; in = next) {
        next = in->next;
        if (!in->pushed.on || is_listed(m, in->id)) continue;
        if (!inst_answers(in) && is_barred(in, now_ms)) continue; /* that is remembered */
        controller_forget(co, in);
    }
}

void refresh_route(struct coordinator *co, struct http_x *x) {
    struct refresh_msg m;
    struct errbuf eb = {0};
    size_t n, n_skipped = 0;
    const char *body = http_x_body(x, &n);
    const uint64_t now = clock_ms();
    if (co->conf.controller_enabled) {
        coord_reply_error(co, x, 409,
                          "controller.enabled is true: this coordinator keeps the list of "
                          "instances itself");
        return;
    }
    const enum err e = refresh_msg_parse(&m, co->conf.single_node, body, n, skip, &n_skipped, &eb);
    if (e != ERR_OK) {
        coord_reply_error(co, x, e == ERR_NO_MEMORY ? 503 : 400, eb.text);
        return;
    }
    if (n_skipped > SKIPPED_LOGGED) log_warn("refresh", "event=skipped n=%zu", n_skipped);
    co->published = true;
    drop_missing(co, &m, now);
    for (size_t i = 0; i < m.n_insts; i++)
        if (is_listed(&m, m.insts[i].id)) take(co, &m.insts[i], now);
    refresh_msg_free(&m);
    http_x_reply(x, 200, NULL, "", 0);
    relay_schedule(co->relays);
}
