/* role_post: POST /v1/role/{role} to an instance whose role or peers are not what the controller
 * wants. Re-posting is harmless. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/base/clock.h"
#include "common/base/log.h"
#include "coordinator/coord_metrics.h"
#include "coordinator/coordinator.h"
#include "coordinator/dresult_in.h"
#include "coordinator/ha.h"
#include "coordinator/stand_in.h"
#include "proto/dresult.h"
#include "proto/hash.h"
#include "proto/json.h"

static void fill_node(struct role_node *n, const struct inst *in) {
    memset(n, 0, sizeof(*n));
    memcpy(n->server_ip, in->node.ip, sizeof(n->server_ip));
    memcpy(n->host_ip, in->node.ip, sizeof(n->host_ip));
    n->has_id = true;
    n->id = in->id;
    n->inter_comm_port = in->node.inter_comm_port;
    n->p_percentage = -1;
    n->devices = in->node.devices; /* lent */
    n->n_devices = in->node.n_devices;
}

static int by_id(const void *a, const void *b) {
    const struct role_node *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Whether it is to be linked with p when it has the role; one that stands in has the peers of the
 * role of its plan, and one that changes its role at once those of both. */
static bool is_peer(const struct inst *in, enum inst_role role, const struct inst *p) {
    const struct plan_place *at = &p->plan.place;
    const unsigned group = in->plan.place.group;
    if (p == in || !p->facts.online) return false;
    if (stand_in_changes(p) || (role == ROLE_FLEX && stand_in_changes(in)))
        return group != 0 && at->group == group && at->role != ROLE_NONE;
    return plan_is_peer(role == ROLE_FLEX ? in->plan.place.role : role, group, at);
}

static bool may_be_alone(const struct inst *in, enum inst_role role) {
    return in->facts.status.role != ROLE_NONE || role == ROLE_FLEX;
}

/* The body an instance should have for a role: itself, and every instance of the other role of its
 * group. NULL: no memory, or no peer yet. */
static char *body_for(const struct coordinator *co, const struct inst *in, enum inst_role role,
                      bool force) {
    struct role_msg m = {.has_peers = true, .force = force, .drained = in->drain.ordered};
    fill_node(&m.local, in);
    if (role == ROLE_FLEX) m.local.p_percentage = stand_in_share_of(in);
    m.peers = calloc(co->reg.n + 1, sizeof(*m.peers));
    if (m.peers == NULL) return NULL;
    for (const struct inst *p = co->reg.first; p != NULL; p = p->next)
        if (is_peer(in, role, p)) fill_node(&m.peers[m.n_peers++], p);
    /* One order, whoever came first: the same plan is the same body. */
    qsort(m.peers, m.n_peers, sizeof(*m.peers), by_id);
    /* A first role needs a peer; an instance that has one may stand alone for a while. */
    char *body = m.n_peers > 0 || may_be_alone(in, role) ? role_msg_format(&m, 1) : NULL;
    free(m.peers);
    return body;
}

/* ---- what a body is made of, without making it: with hundreds of instances hardly one has another
 * body than in the tick before */

/* All of fill_node(). */
static uint64_t fingerprint_of_node(const struct inst *in) {
    const struct node_conf *n = &in->node;
    uint64_t h = hash64_bytes(HASH64_BEGIN, n->ip, strlen(n->ip) + 1);
    h = hash64_bytes(h, &in->id, sizeof(in->id));
    h = hash64_bytes(h, &n->inter_comm_port, sizeof(n->inter_comm_port));
    for (size_t i = 0; i < n->n_devices; i++) {
        const struct role_device *d = &n->devices[i];
        h = hash64_bytes(h, d->device_id, strlen(d->device_id) + 1);
        h = hash64_bytes(h, d->device_logical_id, strlen(d->device_logical_id) + 1);
        h = hash64_bytes(h, d->device_ip, strlen(d->device_ip) + 1);
        h = hash64_bytes(h, d->rank_id, strlen(d->rank_id) + 1);
    }
    h = (h ^ h >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return h ^ h >> 32;
}

/* Of the members of each group that may be somebody's peers, by role: a sum, since bodies have them
 * in one order whoever came first. Those that change their role at once are of both. */
struct role_fingerprints {
    unsigned n_groups;
    struct {
        uint64_t sum;
        size_t n;
    } of[][2];
};

static bool counts(const struct inst *in) {
    return in->facts.online && in->plan.place.role != ROLE_NONE;
}

static int column(enum inst_role role) {
    return role == ROLE_PREFILL ? 0 : 1;
}

static struct role_fingerprints *fingerprints_make(struct coordinator *co) {
    unsigned n = 0;
    for (const struct inst *in = co->reg.first; in != NULL; in = in->next)
        if (in->plan.place.group > n) n = in->plan.place.group;
    struct role_fingerprints *g = calloc(1, sizeof(*g) + (n + 1) * sizeof(g->of[0]));
    if (g == NULL) return NULL;
    g->n_groups = n + 1;
    for (struct inst *in = co->reg.first; in != NULL; in = in->next) {
        in->node_fingerprint = fingerprint_of_node(in);
        if (!counts(in)) continue;
        for (int k = 0; k < 2; k++) {
            if (k != column(in->plan.place.role) && !stand_in_changes(in)) continue;
            g->of[in->plan.place.group][k].sum += in->node_fingerprint;
            g->of[in->plan.place.group][k].n++;
        }
    }
    return g;
}

/* Of the body of body_for(), unless it forces. */
static uint64_t fingerprint_of(const struct role_fingerprints *g, const struct inst *in,
                               enum inst_role role) {
    const struct plan_place *at = &in->plan.place;
    const bool changes = stand_in_changes(in);
    uint64_t of[8] = {(uint64_t)role, (uint64_t)may_be_alone(in, role), in->drain.ordered,
                      role == ROLE_FLEX ? (uint64_t)stand_in_share_of(in) : 0};
    const int own = column(role == ROLE_FLEX ? at->role : role);
    for (int k = 0; at->group != 0 && at->group < g->n_groups && k < 2; k++) {
        if (k == own && !(role == ROLE_FLEX && changes)) continue;
        of[4 + 2 * k] = g->of[at->group][k].sum;
        of[5 + 2 * k] = g->of[at->group][k].n;
        if (counts(in) && (changes || column(at->role) == k)) { /* nobody is his own */
            of[4 + 2 * k] -= in->node_fingerprint;
            of[5 + 2 * k]--;
        }
    }
    return hash64_bytes(in->node_fingerprint, of, sizeof(of)) | 1;
}

static void note_failure(struct inst *in, const char *text) {
    snprintf(in->facts.last_error, sizeof(in->facts.last_error), "%s", text);
    log_warn("role", "id=%u role=%s event=not_taken detail=\"%s\"", in->id,
             inst_role_name(in->posting_role), in->facts.last_error);
}

static bool result_ok(const struct http_result *r) {
    struct json_value *root = NULL;
    const char *s = NULL;
    size_t n;
    bool ok = r->status == 200 && json_read(&root, r->body, r->body_len, NULL, NULL) == ERR_OK &&
              json_get_str(root, "result", &s, &n) == JSON_OK && strcasecmp(s, "ok") == 0;
    json_put(root);
    return ok;
}

/* The instance has the role now. Only from here on do the others see it there. */
static void took_role(struct inst *in) {
    const bool same = in->plan.posted_hash != 0 && in->plan.posted_role == in->posting_role;
    in->plan.posted_hash = in->posting_hash;
    in->plan.posted_role = in->posting_role;
    in->role_taken_ms = clock_ms();
    in->facts.last_error[0] = 0;
    log_info("role", "id=%u role=%s event=taken", in->id, inst_role_name(in->posting_role));
    if (in->posting_switch && in->plan.place.next != ROLE_NONE) {
        inst_breakers_reset(&in->co->reg, in);
        planner_stands_in(in->co, in, false);
        in->plan.both = in->posting_role == ROLE_FLEX;
        in->plan.place.role = in->plan.place.next;
        in->plan.place.next = ROLE_NONE;
        in->plan.force = in->plan.at_once = false;
        in->plan.switched_ms = in->role_taken_ms;
        coord_metrics_switched(in->co->metrics, clock_us() - in->plan.switch_began_us);
        planner_run(in->co);
    }
    if (in->posting_role != ROLE_FLEX) in->plan.both = false;
    /* It may have one in this role. */
    if (in->stream == STREAM_NONE && !same) dresult_in_close(&in->dresult);
    if (!inst_has_role(in)) (void)inst_step(in, INST_EV_ROLE_TAKEN); /* until it says RoleReady */
    controller_poll_soon(in->co);
    if (in->posting_role == ROLE_FLEX)
        controller_look_now(in->co, in->id); /* requests wait for it */
}

static void on_answer(void *arg, const struct http_result *r) {
    struct inst *in = arg;
    in->role_call = NULL;
    if (r->err != ERR_OK) {
        note_failure(in, r->detail != NULL ? r->detail : err_text(r->err));
    } else if (!result_ok(r)) {
        char text[120];
        snprintf(text, sizeof(text), "status %d: %.100s", r->status, r->body);
        note_failure(in, text);
    } else {
        took_role(in);
    }
}

static void post(struct coordinator *co, struct inst *in, enum inst_role role, const char *body) {
    char path[64], url[192];
    char term[64];
    const char *const headers[] = {"Content-Type: application/json", term, NULL};
    snprintf(term, sizeof(term), COORD_TERM_HEADER ": %llu", (unsigned long long)co->term);
    in->posting_role = role;
    snprintf(path, sizeof(path), "/v1/role/%s", inst_role_name(role));
    struct tls *tls = coord_tls_url(&co->tls, url, sizeof(url), &in->node, NODE_CONTROL, path);
    struct http_call_opts o = {.method = "POST",
                               .url = url,
                               .tls = tls,
                               .headers = headers,
                               .body = body,
                               .body_len = strlen(body),
                               .total_ms = (unsigned)co->conf.instance_timeout_s * 1000,
                               .body_bytes_max = 1 << 20,
                               .on_done = on_answer,
                               .arg = in};
    enum err e = http_client_call(co->client, &o, &in->role_call);
    if (e != ERR_OK) note_failure(in, err_text(e));
}

/* A switching instance gets its new role when nothing of ours runs on it and it says itself that it
 * is idle; it keeps the old one until it has taken the new. One that switches at once does both
 * until then. */
static bool may_switch(const struct inst *in) {
    return in->plan.force || in->plan.at_once || drain_is_empty(in);
}

static enum inst_role role_to_switch_to(const struct inst *in) {
    const bool beside = in->plan.at_once && !in->plan.force && !drain_is_empty(in);
    return beside ? ROLE_FLEX : in->plan.place.next;
}

/* A coordinator that has just started has not heard of everybody yet: an instance that has links
 * goes on with its peers until these are known again, or have had their time to come. */
static bool waits_for_peers(const struct coordinator *co, const struct inst *in, uint64_t now) {
    if (now - co->started_ms >= (uint64_t)co->conf.register_lease_s * 1000) return false;
    for (size_t i = 0; i < in->facts.status.n_links; i++) {
        const struct inst *peer = registry_find(&co->reg, in->facts.status.links[i].target);
        if (peer == NULL || !peer->facts.online || peer->plan.place.role == ROLE_NONE) return true;
    }
    return false;
}

static void post_if_needed(struct coordinator *co, struct inst *in,
                           const struct role_fingerprints *g) {
    uint64_t now = clock_ms();
    if (in->plan.place.role == ROLE_NONE || !in->facts.online || !inst_answers(in) ||
        in->life.state == INST_LEAVING || in->role_call != NULL || now < in->next_post_ms ||
        !coord_leads(co) || waits_for_peers(co, in, now))
        return;
    bool switches = in->plan.place.next != ROLE_NONE && may_switch(in);
    enum inst_role role = switches ? role_to_switch_to(in) : stand_in_word(in);
    const uint64_t fingerprint = g != NULL ? fingerprint_of(g, in, role) : 0;
    if (!switches && fingerprint != 0 && fingerprint == in->body_fingerprint &&
        in->body_hash == in->plan.posted_hash)
        return; /* it has this body */
    char *body = body_for(co, in, role, false);
    if (body == NULL) return;
    in->posting_hash = role_msg_hash(body, strlen(body));
    in->body_fingerprint = fingerprint;
    in->body_hash = in->posting_hash;
    if (switches || in->posting_hash != in->plan.posted_hash) {
        in->next_post_ms = now + (uint64_t)co->conf.role_post_retry_ms;
        if (switches && in->plan.force) {
            free(body);
            body = body_for(co, in, role, true);
        }
        in->posting_switch = switches;
        if (body != NULL) post(co, in, role, body);
    }
    free(body);
}

void role_post_if_needed(struct coordinator *co, struct inst *in) {
    post_if_needed(co, in, NULL);
}

void role_post_all(struct coordinator *co) {
    struct role_fingerprints *g = fingerprints_make(co);
    for (struct inst *in = co->reg.first; in != NULL; in = in->next) post_if_needed(co, in, g);
    free(g);
}
