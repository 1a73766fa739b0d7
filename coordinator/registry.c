/* registry: a list of instances and what can be concluded from it. */
#include "coordinator/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "coordinator/coordinator.h"
#include "coordinator/recorder.h"

/* ---- by id */

static size_t bucket_of(uint32_t id) {
    return (id * 2654435761u >> 16) % REGISTRY_BUCKETS;
}

struct inst *registry_find(const struct registry *r, uint32_t id) {
    struct inst *in = r->by_id[bucket_of(id)];
    while (in != NULL && in->id != id) in = in->next_by_id;
    return in;
}

static void id_drop(struct registry *r, struct inst *in) {
    struct inst **at = &r->by_id[bucket_of(in->id)];
    while (*at != in) at = &(*at)->next_by_id;
    *at = in->next_by_id;
}

static void id_set(struct registry *r, struct inst *in, uint32_t id) {
    struct inst **at = &r->by_id[bucket_of(id)];
    in->id = id;
    in->next_by_id = *at;
    *at = in;
}

/* ---- all of them */

const char *inst_name(const struct inst *in) {
    return in->facts.config.instance_name[0] != 0 ? in->facts.config.instance_name : in->address;
}

struct inst *registry_find_name(const struct registry *r, const char *name) {
    struct inst *found = NULL;
    for (struct inst *in = r->first; in != NULL; in = in->next) {
        if (strcmp(inst_name(in), name) != 0 && strcmp(in->address, name) != 0) continue;
        if (found != NULL) return NULL;
        found = in;
    }
    return found;
}

struct inst *registry_find_node(const struct registry *r, const char *mgmt_ip, uint16_t mgmt_port) {
    for (struct inst *in = r->first; in != NULL; in = in->next)
        if (in->node.mgmt_port == mgmt_port && strcmp(in->node.mgmt_ip, mgmt_ip) == 0) return in;
    return NULL;
}

static bool is_taken(const struct registry *r, uint32_t id) {
    return registry_find(r, id) != NULL;
}

/* What the store says of a new instance. A static label that says otherwise is newer. */
static void take_row(const struct registry *r, struct inst *in, const struct store_row *row) {
    if (row->override != ROLE_NONE)
        override_resume(in, row->override, row->back, row->override_unix_s);
    const int label = override_label(in);
    const enum inst_role fixed = label == LABEL_PREFILL_STATIC  ? ROLE_PREFILL
                                 : label == LABEL_DECODE_STATIC ? ROLE_DECODE
                                                                : row->role;
    if (row->role != ROLE_NONE && row->role == fixed)
        in->plan.place = (struct plan_place){.role = row->role, .group = row->group};
    in->drain.ordered = row->drained;
    in->drain.term = store_term(r->store);
}

static void identify(struct registry *r, struct inst *in) {
    snprintf(in->identity, sizeof(in->identity), "%s:%u", in->node.mgmt_ip, in->node.mgmt_port);
    const struct store_row *row = r->store != NULL ? store_find(r->store, in->identity) : NULL;
    uint32_t id = row != NULL ? row->id : store_first_id(in->identity);
    while (is_taken(r, id)) id = store_next_id(id);
    id_set(r, in, id);
    if (row != NULL) take_row(r, in, row);
}

struct inst *registry_put(struct registry *r, struct node_conf *node) {
    struct inst *in = registry_find_node(r, node->mgmt_ip, node->mgmt_port);
    const bool is_new = in == NULL;
    if (is_new && (r->n >= INSTANCES_MAX || (in = calloc(1, sizeof(*in))) == NULL)) {
        node_conf_free(node);
        return NULL;
    }
    node_conf_free(&in->node);
    in->node = *node;
    memset(node, 0, sizeof(*node));
    snprintf(in->address, sizeof(in->address), "%s:%u", in->node.ip, in->node.port);
    if (is_new) {
        identify(r, in);
        in->co = r->co;
        *(r->last != NULL ? &r->last->next : &r->first) = in;
        r->last = in;
        r->n++;
    }
    return in;
}

void registry_keep_id(struct registry *r, struct inst *in, uint32_t id) {
    struct inst *other = id != 0 ? registry_find(r, id) : NULL;
    if (in->kept_id) return;
    in->kept_id = true;
    if (id == 0 || other == in || (other != NULL && other->kept_id)) return;
    const uint32_t was = in->id;
    id_drop(r, in);
    if (other != NULL) {
        id_drop(r, other);
        id_set(r, other, was);
    }
    id_set(r, in, id);
}

void registry_set_id(struct registry *r, struct inst *in, uint32_t id) {
    id_drop(r, in);
    id_set(r, in, id);
}

void registry_remove(struct registry *r, struct inst *gone) {
    struct inst **at = &r->first, *before = NULL;
    while (*at != gone) {
        before = *at;
        at = &before->next;
    }
    *at = gone->next;
    if (r->last == gone) r->last = before;
    id_drop(r, gone);
    r->n--;
    inst_breakers_reset(r, gone);
    node_conf_free(&gone->node);
    status_msg_free(&gone->facts.status);
    prefix_set_free(&gone->prefix);
    free(gone);
}

/* ---- breakers */

struct breaker *inst_link_breaker(const struct inst *p, uint32_t d_id) {
    for (size_t i = 0; i < p->n_link_breakers; i++)
        if (p->link_breakers[i].d_id == d_id) return &p->link_breakers[i].b;
    return NULL;
}

struct breaker *inst_link_breaker_put(struct inst *p, uint32_t d_id) {
    struct breaker *b = inst_link_breaker(p, d_id);
    if (b != NULL) return b;
    struct link_breaker *grown =
        realloc(p->link_breakers, (p->n_link_breakers + 1) * sizeof(*grown));
    if (grown == NULL) return NULL;
    p->link_breakers = grown;
    grown[p->n_link_breakers] = (struct link_breaker){.d_id = d_id};
    return &grown[p->n_link_breakers++].b;
}

void inst_breakers_reset(struct registry *r, struct inst *in) {
    (void)breaker_reset(&in->breaker);
    free(in->link_breakers);
    in->link_breakers = NULL;
    in->n_link_breakers = 0;
    for (struct inst *p = r->first; p != NULL; p = p->next)
        for (size_t i = 0; i < p->n_link_breakers; i++)
            if (p->link_breakers[i].d_id == in->id)
                p->link_breakers[i--] = p->link_breakers[--p->n_link_breakers];
}

/* ---- room */

uint64_t inst_slots_free(const struct inst *in) {
    return ledger_slots_left(&in->ledger, in->facts.status.total_slots,
                             in->facts.status.avail_slots);
}

uint64_t inst_blocks_free(const struct inst *in) {
    return ledger_blocks_left(&in->ledger, in->facts.status.total_blocks,
                              in->facts.status.avail_blocks);
}

/* ---- links */

bool inst_link_ok(const struct inst *in, uint32_t peer_id) {
    for (size_t i = 0; i < in->facts.status.n_links; i++)
        if (in->facts.status.links[i].target == peer_id) return in->facts.status.links[i].ok;
    return false;
}

void inst_links_heard(struct inst *in) {
    in->facts.links_down = false;
    for (size_t i = 0; i < in->facts.status.n_links; i++)
        in->facts.links_down |= !in->facts.status.links[i].ok;
}

static void record(const struct inst *in, const char *what, const char *why) {
    if (in->co != NULL)
        recorder_instance(in->co->recorder, in->id, inst_name(in),
                          inst_role_name(in->plan.place.role), what, why);
}

void inst_suspect(struct inst *in, uint64_t now_ms, const char *why) {
    if (in->facts.suspect_ms == 0) record(in, "suspect", why);
    in->facts.suspect_ms = now_ms;
    snprintf(in->facts.last_error, sizeof(in->facts.last_error), "%s", why);
}

void inst_suspect_link(struct inst *in, uint32_t peer_id) {
    for (size_t i = 0; i < in->facts.status.n_links; i++) {
        struct link_status *l = &in->facts.status.links[i];
        if (l->target != peer_id || !l->ok) continue;
        l->ok = false;
        in->facts.links_down = true;
        snprintf(l->text, sizeof(l->text), "suspect: a hand-over failed");
    }
}

bool inst_linked(const struct inst *a, const struct inst *b) {
    if (a == b) return inst_stands_in(a);
    return inst_link_ok(a, b->id) && inst_link_ok(b, a->id);
}

enum err inst_step(struct inst *in, enum inst_event ev) {
    const enum inst_state was = in->life.state;
    const enum err e = inst_fsm_step(&in->life, in->id, ev);
    if (in->life.state != was)
        record(in, inst_state_name(in->life.state),
               in->life.state == INST_FAULTY ? in->facts.last_error : "");
    return e;
}

bool inst_answers(const struct inst *in) {
    return inst_state_answers(in->life.state);
}

bool inst_has_role(const struct inst *in) {
    const enum inst_role role = in->plan.place.role, has = in->facts.status.role;
    return role != ROLE_NONE && (has == role || has == ROLE_FLEX);
}

bool inst_stands_in(const struct inst *in) {
    return (in->plan.place.stands_in || in->plan.place.share > 0) &&
           in->facts.status.role == ROLE_FLEX && in->stream == STREAM_UP;
}

bool inst_works_as(const struct inst *in, enum inst_role role) {
    return in->plan.place.role == role || inst_stands_in(in);
}

/* What one that generates lacks for its part in a pair; NULL: nothing. */
static const char *missing_of_part(const struct inst *in) {
    bool any_link = inst_stands_in(in); /* it needs none */
    for (size_t i = 0; i < in->facts.status.n_links && !any_link; i++)
        any_link = in->facts.status.links[i].ok;
    if (!inst_has_role(in) || in->facts.status.role_status == ROLE_STATUS_UNKNOWN) return "role";
    if (!any_link) return "link";
    if (!inst_state_has_role(in->life.state)) return "role";
    if (in->stream == STREAM_DOWN) return "dresult";
    return in->lora_due && in->lora_anew ? "adapters" : NULL;
}

bool inst_serves(const struct inst *in, const char **why) {
    const char *missing = NULL;
    if (!in->facts.online) {
        missing = "online";
    } else if (!inst_answers(in) || in->facts.suspect_ms != 0) {
        missing = "health";
    } else if (in->life.state == INST_LEAVING || in->drain.why != DRAIN_NONE ||
               in->plan.place.next != ROLE_NONE) {
        missing = "draining";
    } else if (in->facts.status.held) {
        missing = "held";
    } else if (in->facts.status.stuck_ms > 0) {
        missing = "engine";
    } else if (!in->facts.status.embeds_only) {
        missing = missing_of_part(in);
    }
    if (why != NULL) *why = missing;
    return missing == NULL;
}
